/* Apertures: the states of a connection. One function per packet or cause; see ap.h. */
#include <assert.h>
#include <string.h>

#include "transport/aperture/ap.h"

void ap_node_init(struct ap_node *node, struct hdl_aperture_fixed *rows,
                  struct hdl_aperture_user *users, struct ap_conn **conns, uint64_t *map,
                  uint32_t row_count, uint64_t now_ns)
{
	assert(row_count <= CI_MAX_ROWS);
	*node = (struct ap_node){
	        .rows = rows, .users = users, .conns = conns, .row_count = row_count};
	/* Not bitmap_init(): the memory is clear and need not be touched before it is used. */
	node->row_map = (struct bitmap){.words = map, .bits = row_count};
	node->active_end = &node->active;
	node->now_ns = now_ns;
	timer_wheel_init(&node->wheel, now_ns);
}

bool ap_open(struct ap_node *node, struct ap_conn *conn)
{
	/* Rows are reused late. Row 0 stays free: a zeroed index leads nowhere. */
	size_t row = bitmap_find_clear(&node->row_map, node->next_row > 0 ? node->next_row : 1);
	if (row == BITMAP_NONE || row == 0)
		return false;
	bitmap_set(&node->row_map, row);
	node->next_row = (uint32_t)((row + 1) % node->row_count);
	node->conns[row] = conn;
	conn->node = node;
	conn->row = (uint32_t)row;
	conn->in = &node->rows[row];
	conn->user = &node->users[row];
	*conn->in = (struct hdl_aperture_fixed){.index = ci_index(node->slot, (uint32_t)row)};
	*conn->user = (struct hdl_aperture_user){0};
	conn->out = &conn->plain;
	ap_set_state(conn, HDL_APERTURE_CLOSED);
	timer_node_init(&conn->timer);
	return true;
}

void ap_arm(struct ap_conn *conn, uint64_t nonce, uint32_t sequence)
{
	conn->own.index = conn->in->index = ci_index(conn->node->slot, conn->row);
	conn->own.nonce = nonce;
	conn->own.sequence = sequence;
	conn->in->expected = sequence;
	nonce_begin(&conn->roll, 0, sequence, conn->own.nonce_every, conn->own.nonce_step);
	incoming_show(conn->user, nonce, sequence);
	conn->reason = HDL_REASON_NONE;
	conn->ack_due = conn->alive_due = false;
	conn->gap_due = HDL_REASON_NONE;
	conn->gap_told = conn->unsent = conn->held = conn->awaiting = false;
}

static void ap_unhash(struct ap_conn *conn)
{
	struct ap_conn **at = &conn->node->by_nonce[conn->peer.nonce % AP_HASH];
	while (*at != NULL && *at != conn)
		at = &(*at)->hash_next;
	if (*at == conn)
		*at = conn->hash_next;
}

static void ap_deactivate(struct ap_conn *conn)
{
	struct ap_node *node = conn->node;
	if (!conn->is_active)
		return;
	struct ap_conn **at = &node->active;
	while (*at != conn)
		at = &(*at)->active_next;
	*at = conn->active_next;
	if (*at == NULL)
		node->active_end = at;
	conn->is_active = false;
}

void ap_tell(struct ap_conn *conn, uint8_t kind, uint8_t reason)
{
	struct ap_event event = {
	        .kind = kind, .reason = reason, .index = conn->own.index, .conn = conn};
	if (kind == CI_ERROR)
		event.element = conn->element;
	memcpy(event.source, conn->path.host, 16);
	if (conn->port != NULL && kind != 0)
		(void)conn->node->sink->event(conn->node->context, conn->port, &event);
}

void ap_enter(struct ap_conn *conn, uint8_t state, uint8_t reason, uint8_t kind)
{
	uint8_t before = conn->state;
	ap_set_state(conn, state);
	conn->reason = reason;
	conn->tries = 0;
	conn->awaiting = false;
	conn->began_ns = conn->heard_ns = conn->node->now_ns;
	if (state == HDL_APERTURE_CLOSED || state == HDL_APERTURE_FAILED) {
		conn->in->connected = false;
		ap_drop_burst(conn);
		if (ap_is_connected(before)) {
			ap_unhash(conn);
			ap_port_left(conn);
		}
		conn->ack_due = conn->alive_due = false;
		conn->gap_due = HDL_REASON_NONE;
		if (state == HDL_APERTURE_FAILED)
			ap_count(conn->node, HDL_APERTURE_COUNTER_FAILED, 1);
	}
	ap_set_timer(conn);
	conn->node->sink->changed(conn->node->context, conn);
	ap_tell(conn, kind, reason);
}

void ap_unpoint(struct ap_conn *conn)
{
	if (!conn->pointed)
		return;
	conn->pointed = false;
	conn->node->sink->changed(conn->node->context, conn);
}

void ap_free(struct ap_conn *conn)
{
	struct ap_node *node = conn->node;
	ap_withdraw(conn);
	ap_close(conn, true);
	ap_drop_burst(conn); /* one that needs no connection may have been written to */
	ap_deactivate(conn);
	timer_stop(&node->wheel, &conn->timer);
	*conn->in = (struct hdl_aperture_fixed){0};
	*conn->user = (struct hdl_aperture_user){0};
	node->conns[conn->row] = NULL;
	bitmap_clear(&node->row_map, conn->row);
}

/* --- CONNECT --- */

void ap_send_connect(struct ap_conn *conn)
{
	uint8_t body[CI_OFFER_BYTES];
	struct ci_offer offer = conn->own;
	struct ci_packet packet = {.kind = CI_CONNECT,
	                           .index = ci_index(0, conn->to_port),
	                           .nonce = conn->ticket,
	                           .cluster = conn->path.by_cluster ? conn->path.cluster : 0,
	                           .offset = conn->node->lid,
	                           .bytes = sizeof(body),
	                           .data = body};
	offer.port = conn->to_port;
	ci_set_offer(&offer, body);
	(void)ap_send(conn->node, &conn->path, &packet); /* it is repeated anyway */
	ap_activate(conn);                               /* which flushes the frame */
}

/* Only the peer may send, unless the owner wants others. */
static void ap_expect(struct ap_conn *conn, const struct ap_path *path)
{
	conn->path = *path;
	conn->path.by_agent = false;
	conn->in->connected = true;
	if (!conn->own_cluster) {
		conn->in->source_cluster = path->cluster;
		conn->in->cluster_mask = path->cluster != 0 ? UINT16_MAX : 0;
	}
	if (!conn->own_link)
		memcpy(conn->in->link, path->link, sizeof(conn->in->link));
	if (conn->own_source)
		return;
	memcpy(conn->in->source.raw, path->host, 16);
	memset(conn->in->mask.raw, 0xff, 16);
}

void ap_connect(struct ap_conn *conn, const struct ap_path *path, uint16_t port)
{
	assert(conn->state == HDL_APERTURE_CLOSED || conn->state == HDL_APERTURE_FAILED);
	ap_unpoint(conn);
	conn->to_port = port;
	conn->ticket = conn->tickets = 0;
	conn->asks_status = false;
	conn->accepting = false;
	conn->accepted_by = NULL;
	memset(&conn->peer, 0, sizeof(conn->peer));
	/* The peer may write as soon as it has accepted, before ACCEPT is here. */
	ap_expect(conn, path);
	ap_count(conn->node, HDL_APERTURE_COUNTER_CONNECTS, 1);
	ap_enter(conn, HDL_APERTURE_CONNECTING, HDL_REASON_NONE, 0);
	ap_send_connect(conn);
}

static void ap_set_target(struct ap_conn *conn, const struct ci_offer *offer)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	struct outgoing *out = conn->out;
	out->index = offer->index;
	out->sequence = offer->sequence;
	out->sequenced = (offer->checks & HDL_CHECK_SEQUENCE) != 0;
	out->first = offer->first;
	out->length = offer->length;
	out->cluster = conn->path.cluster;
	out->address = conn->path.by_cluster                                  ? OUTGOING_CLUSTER
	               : memcmp(conn->path.host, mapped, sizeof(mapped)) == 0 ? OUTGOING_IPV4
	                                                                      : OUTGOING_IPV6;
	memcpy(out->host, conn->path.host, 16);
	memcpy(out->link, conn->path.link, sizeof(out->link));
	out->owner = conn;
	conn->unsent = false;
	nonce_begin(&out->nonce, offer->nonce, offer->sequence, offer->nonce_every,
	            offer->nonce_step);
	ap_restart(conn);
}

void ap_begin(struct ap_conn *conn, const struct ci_offer *offer, const struct ap_path *path)
{
	struct ap_node *node = conn->node;
	conn->peer = *offer;
	conn->pointed = false;
	ap_expect(conn, path);
	ap_set_target(conn, offer);
	if (conn->accepting) {
		conn->hash_next = node->by_nonce[offer->nonce % AP_HASH];
		node->by_nonce[offer->nonce % AP_HASH] = conn;
	}
	ap_count(node, HDL_APERTURE_COUNTER_ACCEPTS, 1);
	ap_enter(conn, HDL_APERTURE_OPEN, HDL_REASON_NONE, CI_ACCEPT);
}

void ap_point(struct ap_conn *conn, const struct ci_offer *offer, const struct ap_path *path)
{
	if (ap_is_connected(conn->state) || conn->state == HDL_APERTURE_CONNECTING)
		ap_close(conn, true);
	conn->path = *path;
	conn->peer = *offer;
	conn->pointed = true;
	ap_set_target(conn, offer);
}

void ap_use(struct ap_conn *conn, struct outgoing *out)
{
	struct outgoing *now = out != NULL ? out : &conn->plain;
	struct outgoing copy = *conn->out;
	if (now == conn->out)
		return;
	copy.base = now->base;
	copy.bits = now->bits;
	copy.type = now->type;
	*now = copy;
	now->owner = conn;
	conn->out = now;
}

struct ap_conn *ap_by_offer(struct ap_node *node, const struct ci_offer *offer,
                            const struct ap_path *from)
{
	struct ap_conn *conn = node->by_nonce[offer->nonce % AP_HASH];
	while (conn != NULL &&
	       (conn->peer.nonce != offer->nonce || conn->peer.index != offer->index ||
	        memcmp(conn->path.host, from->host, 16) != 0))
		conn = conn->hash_next;
	return conn;
}

/* ACCEPT answers CONNECT and nothing else: a second one finds the connection open. */
static void ap_hear_accept(struct ap_conn *conn, const struct ci_packet *packet,
                           const struct ap_path *from)
{
	struct ci_offer offer;
	if (conn->state != HDL_APERTURE_CONNECTING)
		return;
	bool known = ci_get_offer(packet, &offer) == CI_OK;
	if (!known || offer.type != conn->own.type) {
		ap_count(conn->node, HDL_APERTURE_COUNTER_BAD_FRAMES, 1);
		if (known) { /* it believes that we are connected */
			conn->peer = offer;
			ap_set_target(conn, &offer);
		}
		ap_give_up(conn, CI_SENDER, HDL_REASON_PROTOCOL);
		return;
	}
	struct ap_path path = ap_path_said(from, packet);
	path.by_cluster = conn->path.by_cluster;
	conn->to_port = offer.port;
	ap_begin(conn, &offer, &path);
}

/* The port wants the ticket @ticket. False: CONNECT has to be given up. */
static bool ap_take_ticket(struct ap_conn *conn, uint64_t ticket)
{
	if (ticket == conn->ticket)
		return true; /* the answer to an earlier copy */
	/* A connection that has begun, and of which ACCEPT got lost, is not begun again. */
	if (ticket == 0 || conn->in->expected != conn->own.sequence ||
	    ++conn->tickets > AP_TICKET_TRIES)
		return false;
	conn->ticket = ticket;
	ap_send_connect(conn);
	return true;
}

static void ap_hear_reject(struct ap_conn *conn, const struct ci_packet *packet)
{
	struct ci_note note = ci_get_note(packet);
	if (conn->asks_status) { /* nobody holds the port whose status was asked for */
		conn->asks_status = false;
		return;
	}
	if (conn->state != HDL_APERTURE_CONNECTING)
		return;
	if (note.reason == HDL_REASON_TICKET && ap_take_ticket(conn, ci_get_ticket(packet)))
		return;
	ap_count(conn->node, HDL_APERTURE_COUNTER_REJECTS, 1);
	uint8_t reason = note.reason != 0 && note.reason < HDL_REASON_COUNT
	                         ? (uint8_t)note.reason
	                         : (uint8_t)HDL_REASON_DECLINED;
	ap_enter(conn, HDL_APERTURE_CLOSED, reason, CI_REJECT);
}

/* --- CLOSE --- */

void ap_send_close(struct ap_conn *conn, bool ask)
{
	uint8_t body[8];
	struct ci_note note = {.reason = HDL_REASON_CLOSED, .number = conn->next};
	struct ci_packet packet = {.kind = CI_CLOSE,
	                           .flags = ask ? CI_ASK : 0,
	                           .cluster = conn->out->cluster,
	                           .index = conn->out->index,
	                           .nonce = conn->out->nonce.first,
	                           .bytes = ci_set_note(CI_CLOSE, &note, body),
	                           .data = body};
	(void)ap_send(conn->node, &conn->path, &packet);
	ap_activate(conn);
}

void ap_close(struct ap_conn *conn, bool abrupt)
{
	ap_unpoint(conn);
	if (conn->state == HDL_APERTURE_OFFERED)
		ap_withdraw(conn);
	if (conn->state == HDL_APERTURE_CONNECTING)
		ap_enter(conn, HDL_APERTURE_CLOSED, HDL_REASON_NONE, 0);
	if (!ap_is_connected(conn->state))
		return;
	/* From now on nothing changes in our memory. */
	conn->in->connected = false;
	ap_drop_burst(conn);
	ap_count(conn->node, HDL_APERTURE_COUNTER_CLOSES, 1);
	if (abrupt) {
		ap_send_close(conn, true);
		ap_enter(conn, HDL_APERTURE_CLOSED, HDL_REASON_NONE, 0);
	} else if (conn->state == HDL_APERTURE_OPEN) {
		ap_enter(conn, HDL_APERTURE_CLOSING, HDL_REASON_NONE, 0);
		if (ap_all_acked(conn) || !conn->out->sequenced)
			ap_send_close(conn, true);
		ap_activate(conn);
	}
}

static void ap_hear_close(struct ap_conn *conn, const struct ci_packet *packet)
{
	struct ci_note note = ci_get_note(packet);
	bool asks = (packet->flags & CI_ASK) != 0;
	bool numbered = (conn->in->checks & HDL_CHECK_SEQUENCE) != 0;
	switch (conn->state) {
	case HDL_APERTURE_OPEN:
		/* Data is missing that was sent before. */
		if (asks && numbered && (int32_t)(note.number - conn->in->expected) > 0) {
			conn->gap_due = HDL_REASON_SEQUENCE;
			ap_activate(conn);
			return;
		}
		ap_count(conn->node, HDL_APERTURE_COUNTER_CLOSES, 1);
		break;
	case HDL_APERTURE_CLOSING: /* both close, or it is the answer */
		break;
	case HDL_APERTURE_CLOSED:
	case HDL_APERTURE_FAILED:
		/* Our answer was lost. */
		if (asks && ap_knows_peer(conn))
			ap_send_close(conn, false);
		return;
	default:
		return;
	}
	if (asks)
		ap_send_close(conn, false);
	ap_enter(conn, HDL_APERTURE_CLOSED, HDL_REASON_CLOSED, CI_CLOSE);
}

/* --- ALIVE, ALIVEACK --- */

/* A packet that the adapter has dealt with: an event, if the port wants to hear of it. */
static void ap_tell_signal(struct ap_conn *conn, uint8_t kind, uint32_t signal)
{
	if (conn->port != NULL && (conn->port->signals & signal) != 0)
		ap_tell(conn, kind, HDL_REASON_NONE);
}

static void ap_hear_alive(struct ap_conn *conn, const struct ci_packet *packet)
{
	if (ap_is_connected(conn->state)) {
		conn->alive_due = true;
		conn->alive_number = packet->offset;
		ap_activate(conn);
		ap_tell_signal(conn, CI_ALIVE, HDL_SIGNAL_ALIVE);
	} else if (ap_knows_peer(conn)) {
		struct ci_note note = {.reason = HDL_REASON_CLOSED, .element = CI_RECEIVER};
		(void)ap_send_note(conn, CI_ERROR, &note);
		ap_activate(conn);
	}
}

/* CI_ASK: it answers ALIVE, not data. Only the first answer to an ALIVE that was sent counts. */
static void ap_hear_aliveack(struct ap_conn *conn, const struct ci_packet *packet)
{
	if (!ap_is_connected(conn->state))
		return;
	ap_acked(conn, ci_get_note(packet).number, false);
	uint32_t number = packet->offset;
	if ((packet->flags & CI_ASK) == 0 || (int32_t)(number - conn->lives) <= 0 ||
	    (int32_t)(conn->asks - number) < 0)
		return;
	conn->lives = number;
	ap_tell_signal(conn, CI_ALIVEACK, HDL_SIGNAL_ALIVEACK);
}

void ap_hear_control(struct ap_conn *conn, const struct ci_packet *packet,
                     const struct ap_path *from)
{
	struct ci_status status;
	switch (packet->kind) {
	case CI_ACCEPT:
		ap_hear_accept(conn, packet, from);
		break;
	case CI_REJECT:
		ap_hear_reject(conn, packet);
		break;
	case CI_CLOSE:
		ap_hear_close(conn, packet);
		break;
	case CI_ALIVE:
		ap_hear_alive(conn, packet);
		break;
	case CI_ALIVEACK:
		ap_hear_aliveack(conn, packet);
		break;
	case CI_ERROR:
		ap_hear_error(conn, packet);
		break;
	case CI_STATUSACK:
		status = ci_get_status(packet);
		conn->asks_status = false;
		conn->node->sink->status(conn->node->context, conn, &status);
		break;
	default:
		ap_count(conn->node, HDL_APERTURE_COUNTER_BAD_FRAMES, 1);
		break;
	}
	if (conn->state == HDL_APERTURE_CLOSING && ap_all_acked(conn) &&
	    (packet->kind == CI_ALIVEACK || packet->kind == CI_ERROR))
		ap_send_close(conn, true);
}
