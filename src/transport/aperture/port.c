/* Apertures: ports, to which strangers may send CONNECT and STATUS. See ap.h. */
#include <assert.h>
#include <string.h>

#include "transport/aperture/ap.h"

void ap_port_open(struct ap_node *node, struct ap_port *port, uint16_t number)
{
	assert(ap_port_find(node, number) == NULL);
	memset(port, 0, offsetof(struct ap_port, room));
	port->number = number;
	port->offers_end = &port->offers;
	port->waiting_most = HDL_MAX_PORT_WAITING;
	for (unsigned i = 0; i < HDL_MAX_PORT_WAITING; i++) {
		port->room[i].next = port->free_waiting;
		port->free_waiting = &port->room[i];
	}
	port->hash_next = node->ports[number % AP_HASH];
	node->ports[number % AP_HASH] = port;
}

struct ap_port *ap_port_find(const struct ap_node *node, uint16_t number)
{
	struct ap_port *port = node->ports[number % AP_HASH];
	while (port != NULL && port->number != number)
		port = port->hash_next;
	return port;
}

void ap_port_close(struct ap_node *node, struct ap_port *port)
{
	while (port->waiting != NULL)
		ap_reject(node, port, port->waiting, HDL_REASON_NO_PORT);
	while (port->offers != NULL)
		ap_withdraw(port->offers);
	struct ap_port **at = &node->ports[port->number % AP_HASH];
	while (*at != port)
		at = &(*at)->hash_next;
	*at = port->hash_next;
}

/* --- offers --- */

void ap_offer(struct ap_port *port, struct ap_conn *conn)
{
	assert(conn->state == HDL_APERTURE_CLOSED || conn->state == HDL_APERTURE_FAILED);
	conn->offered_to = port;
	conn->offer_next = NULL;
	*port->offers_end = conn;
	port->offers_end = &conn->offer_next;
	port->offer_count++;
	ap_set_state(conn, HDL_APERTURE_OFFERED);
}

void ap_withdraw(struct ap_conn *conn)
{
	struct ap_port *port = conn->offered_to;
	if (port == NULL)
		return;
	struct ap_conn **at = &port->offers;
	while (*at != conn)
		at = &(*at)->offer_next;
	*at = conn->offer_next;
	if (*at == NULL)
		port->offers_end = at;
	port->offer_count--;
	conn->offered_to = NULL;
	if (conn->state == HDL_APERTURE_OFFERED)
		ap_set_state(conn, HDL_APERTURE_CLOSED);
}

/* --- answers --- */

static void ap_send_reject(struct ap_node *node, const struct ap_path *to,
                           const struct ci_offer *offer, uint8_t reason)
{
	uint8_t body[8];
	struct ci_note note = {.reason = reason};
	struct ci_packet packet = {.kind = CI_REJECT,
	                           .cluster = to->cluster,
	                           .index = offer->index,
	                           .nonce = offer->nonce,
	                           .bytes = ci_set_note(CI_REJECT, &note, body),
	                           .data = body};
	ap_count(node, HDL_APERTURE_COUNTER_REJECTS, 1);
	(void)ap_send(node, to, &packet);
}

void ap_send_accept(struct ap_conn *conn)
{
	uint8_t body[CI_OFFER_BYTES];
	struct ci_offer offer = conn->own;
	struct ci_packet packet = {.kind = CI_ACCEPT,
	                           .cluster = conn->out->cluster,
	                           .index = conn->peer.index,
	                           .nonce = conn->peer.nonce,
	                           .offset = conn->node->lid,
	                           .bytes = sizeof(body),
	                           .data = body};
	offer.port = conn->to_port;
	ci_set_offer(&offer, body);
	(void)ap_send(conn->node, &conn->path, &packet); /* CONNECT is repeated if it gets lost */
	ap_activate(conn);
}

/* Who offers what, by a number that nobody can choose: others may have heard the nonce. */
static uint64_t ap_offer_digest(const struct ap_node *node, const struct ci_offer *offer,
                                const struct ap_path *from)
{
	struct {
		uint8_t host[16];
		uint64_t nonce, index;
	} who = {.nonce = offer->nonce, .index = offer->index};
	memcpy(who.host, from->host, sizeof(who.host));
	return siphash(node->secret, &who, sizeof(who));
}

/* The ticket for the offer with @digest, as long as no other one of its kind is used. */
static uint64_t ap_ticket(const struct ap_node *node, uint64_t digest)
{
	const uint64_t what[2] = {digest, node->tickets[digest % AP_TICKETS].count};
	uint64_t ticket = siphash(node->secret, what, sizeof(what));
	return ticket != 0 ? ticket : 1;
}

/* CONNECT came from a network without the ticket: its sender gets it. Whoever poses as the sender
 * does not, and costs us nothing but the answer. */
static void ap_send_ticket(struct ap_node *node, const struct ap_path *to,
                           const struct ci_offer *offer, uint64_t ticket)
{
	uint8_t body[CI_TICKET_BYTES];
	struct ci_packet packet = {.kind = CI_REJECT,
	                           .cluster = to->cluster,
	                           .index = offer->index,
	                           .nonce = offer->nonce,
	                           .bytes = sizeof(body),
	                           .data = body};
	ci_set_ticket(ticket, body);
	(void)ap_send(node, to, &packet);
}

/* Can a carrier that shows where packets come from as in @from make the check of the link address
 * that @conn wants? */
static bool ap_can_check(const struct ap_conn *conn, const struct ap_path *from)
{
	return (conn->in->checks & HDL_CHECK_LINK) == 0 || from->has_link;
}

/* Accept @offer with @conn, which is not offered any more. False: a check is wanted that is not
 * possible; it is rejected. */
static bool ap_take_offer(struct ap_port *port, struct ap_conn *conn, const struct ci_offer *offer,
                          const struct ap_path *from, uint8_t rule)
{
	struct ap_node *node = conn->node;
	if (!ap_can_check(conn, from)) {
		port->rejected++;
		ap_send_reject(node, from, offer, HDL_REASON_CARRIER);
		return false;
	}
	if (from->replays) {
		uint64_t digest = ap_offer_digest(node, offer, from);
		node->tickets[digest % AP_TICKETS].taker = digest;
		node->tickets[digest % AP_TICKETS].count++;
	}
	conn->accepting = true;
	conn->accepted_by = port;
	conn->rule = rule;
	conn->to_port = conn->new_port != NULL ? conn->new_port->number : port->number;
	port->by_rule[rule]++;
	port->open++;
	ap_begin(conn, offer, from);
	ap_send_accept(conn);
	return true;
}

void ap_port_left(struct ap_conn *conn)
{
	struct ap_port *port = conn->accepted_by;
	if (port == NULL)
		return;
	conn->accepted_by = NULL;
	/* The port may have gone before, and another may have its memory. */
	for (unsigned i = 0; i < AP_HASH; i++) {
		const struct ap_port *at = conn->node->ports[i];
		while (at != NULL && at != port)
			at = at->hash_next;
		if (at == NULL)
			continue;
		port->open -= port->open > 0;
		port->by_rule[conn->rule] -= port->by_rule[conn->rule] > 0;
		return;
	}
}

/* --- CONNECTs that wait --- */

static void ap_waiting_free(struct ap_port *port, struct ap_waiting *waiting)
{
	struct ap_waiting **at = &port->waiting;
	while (*at != waiting)
		at = &(*at)->next;
	*at = waiting->next;
	waiting->next = port->free_waiting;
	port->free_waiting = waiting;
	port->waiting_count--;
}

struct ap_waiting *ap_waiting_find(struct ap_port *port, uint64_t id)
{
	struct ap_waiting *waiting = port->waiting;
	while (waiting != NULL && id != 0 && waiting->id != id)
		waiting = waiting->next;
	return waiting;
}

bool ap_accept(struct ap_port *port, struct ap_waiting *waiting, struct ap_conn *conn)
{
	struct ap_waiting taken = *waiting;
	if (taken.offer.type != conn->own.type) {
		ap_reject(conn->node, port, waiting, HDL_REASON_TYPE);
		return false;
	}
	ap_waiting_free(port, waiting);
	return ap_take_offer(port, conn, &taken.offer, &taken.from, taken.rule);
}

void ap_reject(struct ap_node *node, struct ap_port *port, struct ap_waiting *waiting,
               uint8_t reason)
{
	port->rejected++;
	ap_send_reject(node, &waiting->from, &waiting->offer, reason);
	ap_waiting_free(port, waiting);
}

static struct ap_waiting *ap_waiting_like(struct ap_port *port, const struct ci_offer *offer,
                                          const struct ap_path *from)
{
	struct ap_waiting *waiting = port->waiting;
	while (waiting != NULL &&
	       (waiting->offer.nonce != offer->nonce || waiting->offer.index != offer->index ||
	        memcmp(waiting->from.host, from->host, 16) != 0))
		waiting = waiting->next;
	return waiting;
}

/* Their senders gave up. */
static void ap_waiting_expire(struct ap_port *port, uint64_t now_ns)
{
	struct ap_waiting *next;
	for (struct ap_waiting *at = port->waiting; at != NULL; at = next) {
		next = at->next;
		if (now_ns - at->heard_ns > AP_WAITING_NS)
			ap_waiting_free(port, at);
	}
}

void ap_ports_forget(struct ap_node *node, uint32_t route)
{
	struct ap_waiting *next;
	for (uint32_t i = 0; i < AP_HASH; i++)
		for (struct ap_port *port = node->ports[i]; port != NULL; port = port->hash_next)
			for (struct ap_waiting *at = port->waiting; at != NULL; at = next) {
				next = at->next;
				if (at->from.route == route)
					ap_waiting_free(port, at);
			}
}

static void ap_wait_for_application(struct ap_node *node, struct ap_port *port,
                                    const struct ci_offer *offer, const struct ap_path *from,
                                    uint8_t rule)
{
	ap_waiting_expire(port, node->now_ns);
	struct ap_waiting *waiting = port->free_waiting;
	if (port->waiting_count >= port->waiting_most) {
		port->rejected++;
		ap_send_reject(node, from, offer, HDL_REASON_BUSY);
		return;
	}
	port->free_waiting = waiting->next;
	*waiting = (struct ap_waiting){.id = ++port->next_id,
	                               .heard_ns = node->now_ns,
	                               .offer = *offer,
	                               .from = *from,
	                               .rule = rule};
	struct ap_waiting **at = &port->waiting;
	while (*at != NULL)
		at = &(*at)->next;
	*at = waiting;
	port->waiting_count++;
	struct ap_event event = {.kind = CI_CONNECT, .index = offer->index, .id = waiting->id};
	memcpy(event.source, from->host, 16);
	(void)node->sink->event(node->context, port, &event);
}

/* --- rules --- */

/* The rule that decides, plus 1; 0: none matches. *action: what it says, and *reason why. */
static uint8_t ap_rule(const struct ap_port *port, const struct ci_offer *offer,
                       const struct ap_path *from, uint32_t *action, uint8_t *reason)
{
	*action = HDL_RULE_ASK;
	*reason = HDL_REASON_RULE;
	for (uint32_t i = 0; i < port->rule_count; i++) {
		const struct hdl_port_rule *rule = &port->rules[i];
		if (!incoming_matches(from->host, rule->source.raw, rule->mask.raw))
			continue;
		*action = rule->action;
		if (offer == NULL) /* only a question */
			return (uint8_t)(i + 1);
		if (rule->max_length != 0 && offer->length > rule->max_length) {
			*action = HDL_RULE_REJECT;
			*reason = HDL_REASON_SIZE;
		} else if (rule->max_count != 0 && port->by_rule[i + 1] >= rule->max_count) {
			*action = HDL_RULE_REJECT;
			*reason = HDL_REASON_BUSY;
		}
		return (uint8_t)(i + 1);
	}
	return 0;
}

static void ap_hear_connect(struct ap_node *node, const struct ci_packet *packet,
                            const struct ap_path *sender)
{
	const struct ap_path said = ap_path_said(sender, packet), *from = &said;
	struct ci_offer offer;
	uint32_t action;
	uint8_t reason = HDL_REASON_NO_PORT;
	if (ci_get_offer(packet, &offer) != CI_OK || offer.port != ci_row(packet->index)) {
		ap_count(node, HDL_APERTURE_COUNTER_BAD_FRAMES, 1);
		return;
	}
	/* A repetition: ACCEPT was lost, or the application has not decided yet. */
	struct ap_conn *known = ap_by_offer(node, &offer, from);
	if (known != NULL) {
		ap_send_accept(known);
		return;
	}
	uint64_t digest = from->replays ? ap_offer_digest(node, &offer, from) : 0;
	/* A late one of a connection that has ended: it opens nothing again. */
	if (from->replays && node->tickets[digest % AP_TICKETS].taker == digest) {
		ap_count(node, HDL_APERTURE_COUNTER_DUPLICATES, 1);
		ap_send_reject(node, from, &offer, HDL_REASON_CLOSED);
		return;
	}
	struct ap_port *port = ap_port_find(node, offer.port);
	if (port == NULL) {
		ap_send_reject(node, from, &offer, reason);
		return;
	}
	if (from->replays && packet->nonce != ap_ticket(node, digest)) {
		ap_send_ticket(node, from, &offer, ap_ticket(node, digest));
		return;
	}
	struct ap_waiting *waiting = ap_waiting_like(port, &offer, from);
	if (waiting != NULL) {
		waiting->heard_ns = node->now_ns;
		return;
	}
	uint8_t rule = ap_rule(port, &offer, from, &action, &reason);
	if (action == HDL_RULE_ASK) {
		ap_wait_for_application(node, port, &offer, from, rule);
		return;
	}
	if (action == HDL_RULE_ACCEPT) {
		struct ap_conn *conn = port->offers;
		while (conn != NULL && conn->own.type != offer.type)
			conn = conn->offer_next;
		if (conn != NULL) {
			ap_withdraw(conn);
			if (!ap_take_offer(port, conn, &offer, from, rule))
				ap_offer(port, conn);
			return;
		}
		reason = port->offers != NULL ? HDL_REASON_TYPE : HDL_REASON_BUSY;
	}
	port->rejected++;
	ap_send_reject(node, from, &offer, reason);
}

/* --- STATUS --- */

static void ap_hear_status(struct ap_node *node, const struct ci_packet *packet,
                           const struct ap_path *sender)
{
	const struct ap_path said = ap_path_said(sender, packet), *from = &said;
	uint8_t body[CI_STATUSACK_BYTES], reason;
	uint32_t action;
	struct ci_status status = ci_get_status(packet);
	struct ap_port *port = ap_port_find(node, (uint16_t)ci_row(packet->index));
	struct ci_offer to = {.index = status.index, .nonce = status.nonce};
	if (port == NULL) {
		ap_send_reject(node, from, &to, HDL_REASON_NO_PORT);
		return;
	}
	(void)ap_rule(port, NULL, from, &action, &reason);
	if (action == HDL_RULE_REJECT)
		return;
	uint32_t events = 0, blocked = 0;
	if (node->sink->look != NULL)
		node->sink->look(node->context, port, &events, &blocked);
	const uint32_t values[CI_STATUSES] = {port->waiting_count,
	                                      port->offer_count,
	                                      port->open,
	                                      port->rejected,
	                                      events,
	                                      blocked};
	memcpy(status.values, values, sizeof(values));
	struct ci_packet reply = {.kind = CI_STATUSACK,
	                          .cluster = from->cluster,
	                          .index = to.index,
	                          .nonce = to.nonce,
	                          .bytes = ci_set_status(CI_STATUSACK, &status, body),
	                          .data = body};
	(void)ap_send(node, from, &reply);
	if ((port->signals & HDL_SIGNAL_STATUS) == 0)
		return;
	struct ap_event event = {.kind = CI_STATUS, .index = status.index};
	memcpy(event.source, from->host, 16);
	(void)node->sink->event(node->context, port, &event);
}

void ap_ask_status(struct ap_conn *conn, const struct ap_path *path, uint16_t number,
                   uint32_t token)
{
	uint8_t body[CI_STATUSACK_BYTES];
	struct ci_status status = {
	        .index = conn->own.index, .nonce = conn->own.nonce, .token = token};
	struct ci_packet packet = {.kind = CI_STATUS,
	                           .cluster = path->by_cluster ? path->cluster : 0,
	                           .offset = conn->node->lid,
	                           .index = ci_index(0, number),
	                           .bytes = ci_set_status(CI_STATUS, &status, body),
	                           .data = body};
	memcpy(conn->in->source.raw, path->host, 16);
	memset(conn->in->mask.raw, 0xff, 16);
	conn->path = *path;
	conn->asks_status = true;
	(void)ap_send(conn->node, path, &packet);
	ap_activate(conn);
}

void ap_hear_port(struct ap_node *node, const struct ci_packet *packet, const struct ap_path *from)
{
	if (ci_slot(packet->index) != 0 || ci_row(packet->index) > UINT16_MAX)
		ap_count(node, HDL_APERTURE_COUNTER_NO_ENTRY, 1);
	else if (packet->kind == CI_CONNECT)
		ap_hear_connect(node, packet, from);
	else
		ap_hear_status(node, packet, from);
}
