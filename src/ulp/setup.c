/* How two ends agree on a connection: by messages of the node agent, or, between machines, in the
 * private data of the REQ, REP, RTU, REJ and DREQ of IBTA's connection management. All numbers are
 * big-endian.
 *
 *    0  "HDPU"
 *    4  version (2), 1
 *    6  kind (1)
 *    7  flags (1): 1 the host owns pools, 2 the unit does, 4 indications by message, 8 the sender
 *       speaks cells, 16 iWARP, 32 the sender uses no lanes, 64 it knows flow control of SendData,
 *       128 one channel
 *    8  mode (1), model (1), bytes of payload per packet (2)
 *   12  frame bytes (4), header bytes (2), iWARP: TCP port of the unit (2). In a request it is 1 if
 *       iWARP is to be used on one machine, too
 *   20  the sender's number for the connection (4), the receiver's (4)
 *   28  queue pairs of channel 0 and 1 (4 each), their first sequence numbers (4 each)
 *   44  address of the sender's node (16)
 *   60  name of the host, or why it was refused (32); setup_clean() is for what the other end says
 *
 *   host                  unit
 *   REQUEST  ---------->          host has made its queue pairs
 *            <----------  ANSWER  so has the unit, and they are connected; or REFUSAL
 *   CONFIRM  ---------->          the host's are connected; both begin
 *   BYE      <--------->          from either side, at the end
 *
 * With iWARP, the host connects the channels when it has the answer (streams.c), and confirms when
 * they are established. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/prng.h"
#include "ulp/internal.h"
#include "wire/be.h"

struct setup {
	uint16_t version;
	uint8_t kind;
	struct hdl_push_terms terms;
	bool cells, no_lanes, credits;
	uint16_t mtu, tcp_port;
	uint32_t from, to;
	uint32_t qpn[2], psn[2];
	struct hdl_gid gid;
	char text[HDL_PUSH_NAME_BYTES + 1];
};

static void setup_put(const struct setup *setup, uint8_t *out)
{
	const struct hdl_push_terms *terms = &setup->terms;
	memset(out, 0, SETUP_BYTES);
	be32_store(out, SETUP_MAGIC);
	be16_store(out + 4, SETUP_VERSION);
	out[6] = setup->kind;
	out[7] = (uint8_t)(terms->host_owns | terms->unit_owns << 1 | terms->by_message << 2 |
	                   setup->cells << 3 | terms->iwarp << 4 | setup->no_lanes << 5 |
	                   setup->credits << 6 | terms->one_channel << 7);
	out[8] = terms->mode;
	out[9] = terms->model;
	be16_store(out + 10, setup->mtu);
	be32_store(out + 12, terms->frame_bytes);
	be16_store(out + 16, terms->header_bytes);
	be16_store(out + 18, setup->tcp_port);
	be32_store(out + 20, setup->from);
	be32_store(out + 24, setup->to);
	for (unsigned i = 0; i < 2; i++) {
		be32_store(out + 28 + 4 * i, setup->qpn[i]);
		be32_store(out + 36 + 4 * i, setup->psn[i]);
	}
	memcpy(out + 44, setup->gid.raw, 16);
	memcpy(out + 60, setup->text, strnlen(setup->text, HDL_PUSH_NAME_BYTES));
}

void setup_clean(char *text)
{
	for (char *c = text; *c != '\0'; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
}

static bool setup_get(struct setup *setup, const uint8_t *in, uint32_t bytes)
{
	*setup = (struct setup){0};
	if (bytes != SETUP_BYTES || be32_load(in) != SETUP_MAGIC)
		return false;
	setup->version = be16_load(in + 4);
	setup->kind = in[6];
	setup->terms = (struct hdl_push_terms){.mode = in[8],
	                                       .model = in[9],
	                                       .host_owns = (in[7] & 1) != 0,
	                                       .unit_owns = (in[7] & 2) != 0,
	                                       .by_message = (in[7] & 4) != 0,
	                                       .iwarp = (in[7] & 16) != 0,
	                                       .one_channel = (in[7] & 128) != 0,
	                                       .frame_bytes = be32_load(in + 12),
	                                       .header_bytes = be16_load(in + 16)};
	setup->cells = (in[7] & 8) != 0;
	setup->no_lanes = (in[7] & 32) != 0;
	setup->credits = (in[7] & 64) != 0;
	setup->mtu = be16_load(in + 10);
	setup->tcp_port = be16_load(in + 18);
	setup->from = be32_load(in + 20);
	setup->to = be32_load(in + 24);
	for (unsigned i = 0; i < 2; i++) {
		setup->qpn[i] = be32_load(in + 28 + 4 * i) & 0xffffffu;
		setup->psn[i] = be32_load(in + 36 + 4 * i) & 0xffffffu;
	}
	memcpy(setup->gid.raw, in + 44, 16);
	memcpy(setup->text, in + 60, HDL_PUSH_NAME_BYTES);
	setup_clean(setup->text);
	return true;
}

/* Called by threads of the adapter: keep the message, and wake the thread of the port. */
void setup_heard(void *context, const struct hdl_cm_msg *msg)
{
	struct hdl_push_port *port = context;
	pthread_mutex_lock(&port->lock);
	if (port->tail - port->head < MAIL)
		port->mail[port->tail++ % MAIL] = *msg;
	pthread_mutex_unlock(&port->lock);
	setup_ring(port);
}

void setup_ring(struct hdl_push_port *port)
{
	const uint64_t one = 1;
	ssize_t done = write(port->bell, &one, sizeof(one));
	(void)done; /* EAGAIN: it is at its maximum, and rings */
	atomic_store(&port->rung, true);
}

/* The address under which the network knows this node. */
static struct hdl_gid setup_gid(const struct hdl_push_port *port)
{
	struct hdl_gid gid = port->limits.gid;
	if (port->limits.wire_gids != 0)
		hdl_gid_query(port->adapter, (uint32_t)__builtin_ctz(port->limits.wire_gids), &gid);
	return gid;
}

static struct setup setup_of(const struct hdl_push *push, enum setup_kind kind)
{
	struct setup setup = {.kind = (uint8_t)kind,
	                      .terms = push->terms,
	                      .cells = push->cells,
	                      .no_lanes = push->port->limits.wire == HDL_WIRE_ALL,
	                      .credits = true,
	                      .mtu = push->mtu,
	                      .tcp_port = push->tcp_port,
	                      .from = push->id,
	                      .to = push->peer_id,
	                      .qpn = {push->qpn[0], push->qpn[1]},
	                      .psn = {push->psn[0], push->psn[1]},
	                      .gid = push->stream ? setup_gid(push->port) : push->port->limits.gid};
	memcpy(setup.text, push->name, HDL_PUSH_NAME_BYTES);
	return setup;
}

static int setup_send(struct hdl_push *push, enum setup_kind kind)
{
	struct setup setup = setup_of(push, kind);
	struct hdl_cm_msg msg = {.guid = push->guid, .slot = push->slot, .length = SETUP_BYTES};
	if (push->wire) {
		setup_put(&setup, msg.data);
		push->repeat_ns = clock_now_ns() + HDL_PUSH_REPEAT_NS;
		return setup_wire_send(push, kind, msg.data);
	}
	if (kind == SETUP_REQUEST) {
		msg.to_port = 1;
		msg.gid = push->gid;
		msg.space = HDL_PUSH_SPACE;
		msg.port = push->service;
	}
	setup_put(&setup, msg.data);
	return hdl_cm_send(push->port->adapter, &msg);
}

int setup_call(struct hdl_push *push)
{
	uint16_t lid;
	push->wire = push->port->limits.wire != HDL_WIRE_NONE &&
	             hdl_node_find(push->port->adapter, &push->gid, &lid) != 0;
	push->deadline_ns = clock_now_ns() + HDL_PUSH_CONNECT_NS;
	push->tcp_port = push->terms.iwarp && push->port->limits.wire == HDL_WIRE_ALL;
	return setup_send(push, SETUP_REQUEST);
}

void setup_bye(struct hdl_push *push)
{
	if (push->wire ? push->peer_id != 0 && !push->bye : push->guid != 0)
		setup_send(push, SETUP_BYE);
}

void setup_time(struct hdl_push *push, uint64_t now_ns)
{
	if (!push->wire || now_ns < push->repeat_ns)
		return;
	if (push->stage == STAGE_CALLING)
		setup_send(push, SETUP_REQUEST);
	else if (push->stage == STAGE_ANSWERED)
		setup_send(push, SETUP_ANSWER);
}

static void setup_refuse(struct hdl_push_port *port, const struct hdl_cm_msg *to,
                         const struct setup *request, const char *why)
{
	struct setup setup = {.kind = SETUP_REFUSAL, .to = request->from};
	struct hdl_cm_msg msg = {.guid = to->guid, .slot = to->slot, .length = SETUP_BYTES};
	snprintf(setup.text, sizeof(setup.text), "%s", why);
	setup_put(&setup, msg.data);
	if (to->kind == HDL_CM_MAD)
		setup_wire_refuse(port, to, msg.data);
	else
		hdl_cm_send(port->adapter, &msg);
}

static void setup_take_peer(struct hdl_push *push, const struct hdl_cm_msg *msg,
                            const struct setup *setup)
{
	push->wire = msg->kind == HDL_CM_MAD;
	push->guid = msg->guid;
	push->slot = msg->slot;
	push->gid = push->wire ? msg->gid : setup->gid; /* where it really came from */
	push->own = msg->own;
	push->peer_id = setup->from;
	push->credits = setup->credits;
	memcpy(push->peer_qpn, setup->qpn, sizeof(push->peer_qpn));
	memcpy(push->peer_psn, setup->psn, sizeof(push->peer_psn));
	if (setup->mtu < push->mtu && setup->mtu >= 256)
		push->mtu = setup->mtu;
}

/* Would cells meet an adapter that speaks none? */
static bool setup_wires_differ(const struct hdl_push_port *port, const struct hdl_cm_msg *msg,
                               const struct setup *request)
{
	bool wire = msg->kind == HDL_CM_MAD || port->limits.wire == HDL_WIRE_ALL;
	return wire && !request->terms.iwarp && request->cells && !port->limits.cells;
}

/* Would one end use lanes, and the other one a network? An iWARP connection is told by the host. */
static bool setup_lanes_differ(const struct hdl_push_port *port, const struct hdl_cm_msg *msg,
                               const struct setup *request)
{
	bool no_lanes = port->limits.wire == HDL_WIRE_ALL;
	return msg->kind != HDL_CM_MAD && !request->terms.iwarp && request->no_lanes != no_lanes;
}

/* A host calls. */
static void setup_requested(struct hdl_push_port *port, const struct hdl_cm_msg *msg,
                            const struct setup *request)
{
	struct hdl_push_terms terms = request->terms;
	const char *why = NULL;
	if (port->service == 0)
		why = "this is not a unit";
	else if (request->version != SETUP_VERSION)
		why = "versions differ";
	else if (terms.mode > HDL_PUSH_SEND || terms.model > HDL_PUSH_PULL_PULL)
		why = "an unknown mode or model";
	else if (terms.iwarp && terms.mode == HDL_PUSH_SEND)
		why = "iWARP has no send mode";
	else if (setup_lanes_differ(port, msg, request))
		why = "HEDDLE_LOCAL=off at one end only"; /* HDL_PUSH_NAME_BYTES fit */
	else if (setup_wires_differ(port, msg, request))
		why = "the unit does not speak cells";
	else if (port->link_count == HDL_PUSH_MAX_LINKS)
		why = "the unit has too many hosts";
	else
		why = port->ops->accept(port->context, request->text, &terms);
	if (why != NULL) {
		setup_refuse(port, msg, request, why);
		return;
	}
	struct hdl_push *push = push_link_new(port, SPLIT_UNIT, request->text, &terms);
	if (push == NULL) {
		setup_refuse(port, msg, request, "out of memory");
		return;
	}
	setup_take_peer(push, msg, request);
	push->stream = terms.iwarp &&
	               (push->wire || request->tcp_port != 0 || port->limits.wire == HDL_WIRE_ALL);
	push->cells = request->cells && port->limits.cells;
	int error = channels_make(push);
	if (error == 0)
		error = channels_connect(push);
	if (error != 0) {
		setup_refuse(port, msg, request,
		             error == -HDL_EINVAL ? "terms that are impossible"
		                                  : "no memory, or terms too large");
		log_debug("push: connection of %s: %s", push->name, hdl_strerror(error));
		push_link_over(push, hdl_strerror(error));
		return;
	}
	push->stage = STAGE_ANSWERED;
	push->deadline_ns = clock_now_ns() + HDL_PUSH_CONNECT_NS;
	setup_send(push, SETUP_ANSWER);
}

static void setup_opened(struct hdl_push *push)
{
	if (channels_begin(push) != 0) {
		push_link_over(push, "no memory for pools");
		return;
	}
	push->stage = STAGE_OPEN;
	push->deadline_ns = UINT64_MAX;
	if (push->wire) {
		struct setup bye = setup_of(push, SETUP_BYE);
		uint8_t body[SETUP_BYTES];
		setup_put(&bye, body);
		setup_wire_leave_notice(push, body);
	}
	push->port->ops->opened(push->port->context, push);
}

/* The unit has agreed. */
static void setup_answered(struct hdl_push *push, const struct hdl_cm_msg *msg,
                           const struct setup *answer)
{
	if (push->role != SPLIT_HOST || push->stage != STAGE_CALLING)
		return;
	const struct hdl_push_terms *asked = &push->terms, *got = &answer->terms;
	if (answer->version != SETUP_VERSION || got->mode != asked->mode ||
	    got->model != asked->model || got->host_owns != asked->host_owns ||
	    got->unit_owns != asked->unit_owns || got->iwarp != asked->iwarp ||
	    got->one_channel != asked->one_channel || (got->one_channel && !answer->credits) ||
	    got->frame_bytes > asked->frame_bytes || got->frame_bytes < 64 ||
	    got->header_bytes > asked->header_bytes || !terms_leave_room(got)) {
		push_link_over(push,
		               "the unit answered with other terms, or is of another version");
		return;
	}
	struct hdl_push_terms terms = *got;
	terms.pool_count = asked->pool_count; /* these are ours, not agreed on */
	memcpy(terms.pools, asked->pools, sizeof(terms.pools));
	push->terms = terms;
	setup_take_peer(push, msg, answer);
	push->tcp_port = answer->tcp_port;
	push->stream = asked->iwarp && answer->tcp_port != 0;
	int error = channels_connect(push);
	if (error != 0) {
		push_link_over(push, hdl_strerror(error));
	} else if (push->stream) {
		push->stage = STAGE_JOINING;
	} else {
		setup_send(push, SETUP_CONFIRM);
		setup_opened(push);
	}
}

void setup_joined(struct hdl_push *push)
{
	if (push->role == SPLIT_HOST)
		setup_send(push, SETUP_CONFIRM);
	setup_opened(push);
}

/* The host has confirmed. What it says about iWARP channels, these have said before. */
static void setup_confirmed(struct hdl_push *push)
{
	if (push->stage == STAGE_ANSWERED && !push->stream)
		setup_opened(push);
}

static struct hdl_push *setup_find(struct hdl_push_port *port, uint32_t id)
{
	struct hdl_push *push = port->links;
	while (push != NULL && (push->id != id || push->stage == STAGE_OVER))
		push = push->next;
	return push;
}

static void setup_message(struct hdl_push_port *port, const struct hdl_cm_msg *msg)
{
	struct setup setup;
	if (!setup_get(&setup, msg->data, msg->length))
		return;
	if (setup.kind == SETUP_REQUEST) {
		setup_requested(port, msg, &setup);
		return;
	}
	struct hdl_push *push = setup_find(port, setup.to);
	/* Once the peer is known, nobody else speaks for it. */
	if (push == NULL ||
	    (push->guid != 0 && (push->guid != msg->guid || push->slot != msg->slot)))
		return;
	if (setup.kind == SETUP_ANSWER)
		setup_answered(push, msg, &setup);
	else if (setup.kind == SETUP_CONFIRM)
		setup_confirmed(push);
	else if (setup.kind == SETUP_REFUSAL)
		push_link_over(push, setup.text);
	else if (setup.kind == SETUP_BYE)
		push_link_over(push, "the other end has closed the connection");
}

/* The connection that a datagram belongs to: a request to one that it has made, all others to the
 * one whose number they carry, if it comes from where the peer is. */
static struct hdl_push *setup_wire_find(struct hdl_push_port *port, const struct hdl_cm_msg *msg,
                                        const struct setup *setup, enum setup_kind kind)
{
	for (struct hdl_push *push = port->links; push != NULL; push = push->next) {
		if (!push->wire || push->stage == STAGE_OVER ||
		    memcmp(&push->gid, &msg->gid, sizeof(push->gid)) != 0)
			continue;
		if (kind == SETUP_REQUEST ? push->peer_id == setup->from : push->id == setup->to)
			return push;
	}
	return NULL;
}

/* A management datagram. Each may come twice, or not at all. */
static void setup_datagram(struct hdl_push_port *port, const struct hdl_cm_msg *msg)
{
	struct ib_cm_message message;
	struct setup setup;
	enum setup_kind kind;
	const uint8_t *body = setup_wire_body(msg, &message, &kind);
	if (body == NULL || !setup_get(&setup, body, SETUP_BYTES) || setup.kind != kind) {
		uint32_t id;
		uint64_t service;
		if (message.kind == IB_CM_REJ && ib_cm_addressee(&message, &id, &service))
			for (struct hdl_push *push = port->links; push != NULL; push = push->next)
				if (push->wire && push->id == id && push->stage == STAGE_CALLING)
					push_link_over(push, "there is no such unit");
		return;
	}
	struct hdl_push *push = setup_wire_find(port, msg, &setup, kind);
	if (kind == SETUP_REQUEST) {
		if (push == NULL)
			setup_requested(port, msg, &setup);
		else if (push->stage == STAGE_ANSWERED)
			setup_send(push, SETUP_ANSWER);
		return;
	}
	if (push == NULL ||
	    (push->peer_id != 0 && push->peer_id != setup.from && kind != SETUP_REFUSAL))
		return;
	if (kind == SETUP_ANSWER && push->stage == STAGE_OPEN && push->role == SPLIT_HOST)
		setup_send(push, SETUP_CONFIRM);
	else if (kind == SETUP_ANSWER)
		setup_answered(push, msg, &setup);
	else if (kind == SETUP_CONFIRM)
		setup_confirmed(push);
	else if (kind == SETUP_REFUSAL && push->stage == STAGE_CALLING)
		push_link_over(push, setup.text);
	else if (kind == SETUP_BYE) {
		setup_wire_answer_bye(push);
		push_link_over(push, "the other end has closed the connection, or has gone");
	}
}

/* A message of ours came back, or a process has ended. */
static void setup_lost(struct hdl_push_port *port, const struct hdl_cm_msg *msg)
{
	struct setup setup;
	bool returned = msg->kind == HDL_CM_RETURNED;
	if (returned && !setup_get(&setup, msg->data, msg->length))
		return;
	for (struct hdl_push *push = port->links; push != NULL; push = push->next) {
		if (push->stage == STAGE_OVER)
			continue;
		if (returned && push->id == setup.from && !push->wire)
			push_link_over(push, push->guid != 0 ? "the other end has gone"
			                                     : "there is no such unit");
		if (!returned && !push->wire && push->guid == msg->guid && push->slot == msg->slot)
			push_link_over(push, "the other end has gone");
	}
}

int setup_run(struct hdl_push_port *port)
{
	uint64_t count;
	int done = 0;
	/* Whoever rings between the two rings again: the mark is set after the bell. */
	if (!atomic_exchange(&port->rung, false))
		return 0;
	if (read(port->bell, &count, sizeof(count)) < 0)
		count = 0;
	for (;; done++) {
		pthread_mutex_lock(&port->lock);
		bool any = port->head != port->tail;
		struct hdl_cm_msg msg;
		if (any)
			msg = port->mail[port->head++ % MAIL];
		pthread_mutex_unlock(&port->lock);
		if (!any)
			return done;
		if (msg.kind == HDL_CM_MESSAGE)
			setup_message(port, &msg);
		else if (msg.kind == HDL_CM_MAD)
			setup_datagram(port, &msg);
		else if (msg.kind == HDL_CM_RETURNED || msg.kind == HDL_CM_GONE)
			setup_lost(port, &msg);
	}
}
