/* Connections: the messages that two identifiers exchange, and what becomes of their states (IBTA
 * volume 1, 12.9). The agent delivers in order, returns what it cannot deliver and says when a
 * process has ended; what one that was killed took along is sent again (cm/wait.c). Peers across
 * the wire are reached by cm/far.c. */
#include <stdlib.h>
#include <string.h>

#include "compat/cm/cm.h"

static int post(const struct cm_id *id, struct cm_wire *wire, struct hdl_cm_msg *msg)
{
	struct hdl_adapter *adapter = compat_adapter();
	if (adapter == NULL)
		return ENODEV;
	wire->from = id->number;
	wire->to = id->peer;
	wire->attempt = id->attempt;
	msg->length = sizeof(*wire);
	memcpy(msg->data, wire, sizeof(*wire));
	return -hdl_cm_send(adapter, msg);
}

/* To the peer that is known. */
static int send_to_peer(struct cm_id *id, struct cm_wire *wire)
{
	if (id->across)
		return cm_far_send(id, wire);
	struct hdl_cm_msg msg = {.guid = id->guid, .slot = id->slot};
	return post(id, wire, &msg);
}

static int send_kind(struct cm_id *id, enum cm_kind kind, uint32_t status)
{
	struct cm_wire wire = {.kind = kind, .status = status};
	return send_to_peer(id, &wire);
}

static int set_private(struct cm_wire *wire, const void *data, uint8_t length, unsigned room)
{
	if (length > room)
		return EINVAL;
	wire->private_length = length;
	memcpy(wire->private_data, data, length);
	return 0;
}

/* Counts of retries have three bits; programs ask for more. */
static uint8_t at_most_7(uint8_t count)
{
	return count < 7 ? count : 7;
}

static void set_param(struct cm_wire *wire, struct cm_id *id,
                      const struct rdma_ucm_conn_param *param)
{
	id->own_qpn = wire->qpn = param->qp_num;
	wire->qkey = param->qkey != 0 ? param->qkey : CM_UDP_QKEY;
	wire->psn = id->own_psn;
	wire->responder_resources = param->responder_resources;
	wire->initiator_depth = param->initiator_depth;
	wire->flow_control = param->flow_control;
	wire->retry_count = at_most_7(param->retry_count);
	wire->rnr_retry_count = at_most_7(param->rnr_retry_count);
	wire->srq = param->srq;
}

/* Keep what is about to be sent. */
static bool cm_peer_keep(struct cm_id *id, const struct cm_wire *wire)
{
	if (id->sent == NULL)
		id->sent = malloc(sizeof(*id->sent));
	if (id->sent != NULL)
		*id->sent = *wire;
	return id->sent != NULL;
}

/* To whoever holds the port. */
static int send_request(struct cm_id *id)
{
	if (id->across)
		return cm_far_send(id, id->sent);
	struct sockaddr_in6 to = id->dst;
	struct hdl_cm_msg msg = {.gid = id->dgid,
	                         .space = id->space,
	                         .port = ntohs(*cm_port_of(&to)),
	                         .to_port = 1,
	                         .options = cm_family_of(&to)};
	return post(id, id->sent, &msg);
}

/* The peer is gone, or wants no more. */
static void end_connection(struct cm_id *id)
{
	if (id->state < CM_REQ_SENT || id->state == CM_ENDED)
		return;
	bool connected = id->state >= CM_REP_SENT;
	id->state = CM_ENDED;
	cm_wait_end(id);
	cm_raise(id, connected ? CM_DISCONNECTED : CM_UNREACHABLE, connected ? 0 : -ETIMEDOUT);
	if (connected)
		cm_wait_timewait(id);
}

/* --- commands --- */

int cm_request(struct cm_id *id, const struct rdma_ucm_conn_param *param)
{
	bool datagram = id->qp_type == IBV_QPT_UD;
	struct cm_wire wire = {.kind = datagram ? CM_SIDR_REQ : CM_REQ};
	if (id->state != CM_IDLE || !id->has_device || !id->has_path)
		return EINVAL;
	if (set_private(&wire, param->private_data, param->private_data_len,
	                datagram ? CM_SIDR_REQ_ROOM : CM_REQ_ROOM) != 0)
		return EINVAL;
	set_param(&wire, id, param);
	wire.slid = cm_own_lid();
	wire.is_ib = id->is_ib;
	memcpy(wire.sgid, id->sgid.raw, 16);
	memcpy(wire.dgid, id->dgid.raw, 16);
	wire.src = id->src;
	wire.dst = id->dst;
	id->responder_resources = param->responder_resources;
	id->initiator_depth = param->initiator_depth;
	id->retry_count = at_most_7(param->retry_count);
	id->rnr_retry_count = at_most_7(param->rnr_retry_count);
	if (!cm_peer_keep(id, &wire))
		return ENOMEM;
	id->attempt++;
	id->tries = 0;
	id->asked_ns = cm_now_ns();
	id->peer = 0;
	cm_give_up_in(id, cm_answer_ms());
	int error = send_request(id);
	if (error == 0) {
		id->state = CM_REQ_SENT;
		cm_wait_answer(id);
	}
	return error;
}

void cm_repeat(struct cm_id *id)
{
	if (id->state != CM_REQ_SENT)
		return;
	cm_wait_answer(id);
	if (send_request(id) != 0)
		end_connection(id);
}

void cm_send_again(struct cm_id *id)
{
	if (id->state == CM_REQ_SENT)
		send_request(id);
	else if (id->state == CM_REP_SENT)
		send_to_peer(id, id->sent);
	else if (id->state == CM_DREQ_SENT)
		send_kind(id, CM_DREQ, 0);
}

void cm_expire(struct cm_id *id)
{
	if (id->state == CM_DREQ_SENT) /* it is over, whether the peer knows or not (IBTA 12.9.6) */
		end_connection(id);
	if (id->state != CM_REQ_SENT && id->state != CM_REP_SENT)
		return;
	if (id->peer != 0)
		send_kind(id, CM_REJ, CM_REASON_TIMEOUT); /* or it would accept it later */
	cm_unreachable(id);
}

void cm_unreachable(struct cm_id *id)
{
	id->state = id->qp_type == IBV_QPT_UD ? CM_IDLE : CM_ENDED; /* it may ask others */
	cm_raise(id, CM_UNREACHABLE, -ETIMEDOUT);
}

/* Answer the request that made @id. */
static int cm_peer_reply(struct cm_id *id, const struct rdma_ucm_conn_param *param)
{
	bool datagram = id->qp_type == IBV_QPT_UD;
	struct cm_wire wire = {.kind = datagram ? CM_SIDR_REP : CM_REP};
	if (param->valid) {
		if (set_private(&wire, param->private_data, param->private_data_len,
		                datagram ? CM_SIDR_REP_ROOM : CM_REP_ROOM) != 0)
			return EINVAL;
		set_param(&wire, id, param);
		id->responder_resources = param->responder_resources;
		id->initiator_depth = param->initiator_depth;
	}
	if (!cm_peer_keep(id, &wire))
		return ENOMEM;
	cm_give_up_in(id, cm_answer_ms());
	int error = send_to_peer(id, &wire);
	if (error == 0)
		id->state = datagram ? CM_ENDED : CM_REP_SENT;
	if (error == 0 && !datagram)
		cm_wait_answer(id);
	return error;
}

int cm_accept(struct cm_id *id, const struct rdma_ucm_conn_param *param)
{
	static const uint8_t no_data;
	if (id->state == CM_REP_RECEIVED && !param->valid) {
		id->state = CM_CONNECTED;
		return send_kind(id, CM_RTU, 0);
	}
	if (id->state == CM_ENDED)
		return ECONNABORTED; /* the peer gave up */
	if (id->state != CM_REQ_RECEIVED)
		return EINVAL;
	int error = cm_peer_reply(id, param);
	/* There is no second try: librdmacm has put the queue pair into error by then. As in
	 * Linux's rdma_accept(), the peer hears of it. */
	if (error != 0)
		cm_reject(id, CM_REASON_CONSUMER, &no_data, 0);
	return error;
}

int cm_reject(struct cm_id *id, uint32_t reason, const void *data, uint8_t length)
{
	bool datagram = id->qp_type == IBV_QPT_UD;
	struct cm_wire wire = {.kind = datagram ? CM_SIDR_REP : CM_REJ,
	                       .status = datagram ? CM_SIDR_REJECTED : reason};
	if (id->state == CM_ENDED)
		return 0;
	if (id->state != CM_REQ_RECEIVED && id->state != CM_REP_RECEIVED)
		return EINVAL;
	if (set_private(&wire, data, length, datagram ? CM_SIDR_REP_ROOM : CM_REJ_ROOM) != 0)
		return EINVAL;
	id->state = CM_ENDED;
	cm_peer_keep(id, &wire); /* without it, it cannot be said again */
	return send_to_peer(id, &wire);
}

void cm_told(struct cm_id *id)
{
	if (!id->owes_drep)
		return;
	id->owes_drep = false;
	send_kind(id, CM_DREP, 0);
}

int cm_disconnect(struct cm_id *id)
{
	cm_told(id);
	switch (id->state) {
	case CM_CONNECTED:
	case CM_REP_SENT:
		id->state = CM_DREQ_SENT;
		cm_give_up_in(id, cm_answer_ms());
		cm_wait_answer(id);
		return send_kind(id, CM_DREQ, 0);
	case CM_DREQ_SENT:
	case CM_ENDED:
		return 0;
	default:
		return EINVAL;
	}
}

void cm_part(struct cm_id *id)
{
	static const uint8_t no_data;
	if (id->across) {
		cm_far_part(id);
		id->state = CM_ENDED;
		return;
	}
	cm_told(id);
	switch (id->state) {
	case CM_REQ_RECEIVED:
	case CM_REP_RECEIVED:
		cm_reject(id, CM_REASON_CONSUMER, &no_data, 0);
		break;
	case CM_REQ_SENT:
		if (id->peer != 0)
			send_kind(id, CM_REJ, CM_REASON_CONSUMER);
		break;
	case CM_CONNECTED:
	case CM_REP_SENT:
		send_kind(id, CM_DREQ, 0);
		break;
	default:
		break;
	}
	id->state = CM_ENDED;
}

/* --- messages --- */

/* What the peer said becomes what the program is told: its resources are our depth. */
static void fill_conn(struct cm_event *event, const struct cm_wire *wire, uint8_t room)
{
	struct rdma_ucm_conn_param *param = &event->resp.param.conn;
	param->qp_num = wire->qpn;
	param->responder_resources = wire->initiator_depth;
	param->initiator_depth = wire->responder_resources;
	param->flow_control = wire->flow_control;
	param->retry_count = wire->retry_count;
	param->rnr_retry_count = wire->rnr_retry_count;
	param->srq = wire->srq;
	param->private_data_len = room;
	memcpy(param->private_data, wire->private_data, wire->private_length);
}

static void fill_ud(struct cm_event *event, const struct cm_wire *wire, uint8_t room)
{
	struct rdma_ucm_ud_param *param = &event->resp.param.ud;
	param->qp_num = wire->qpn;
	param->qkey = wire->qkey;
	param->private_data_len = room;
	memcpy(param->private_data, wire->private_data, wire->private_length);
}

static void take_param(struct cm_id *id, const struct cm_wire *wire)
{
	id->qpn = wire->qpn;
	id->psn = wire->psn;
	id->qkey = wire->qkey;
	id->responder_resources = wire->initiator_depth;
	id->initiator_depth = wire->responder_resources;
	id->rnr_retry_count = wire->rnr_retry_count;
}

static struct cm_id *listener_of(const struct hdl_cm_msg *msg)
{
	struct cm_id *id, *found = NULL;
	for (id = cm_index_find(CM_BY_PORT, cm_port_key(msg->space, msg->port)); id != NULL;
	     id = cm_index_next(id, CM_BY_PORT))
		if (id->state == CM_LISTENING && id->space == msg->space &&
		    ntohs(*cm_port_of(&id->src)) == msg->port &&
		    ((id->port_options & msg->options) != 0 ||
		     (id->port_options & HDL_CM_ONLY) == 0) &&
		    (id->for_all || memcmp(id->sgid.raw, msg->gid.raw, 16) == 0) &&
		    (found == NULL || (found->port_options & msg->options) == 0))
			found = id;
	return found;
}

/* Was this request heard before? Then it was repeated because it, or what was said to it, seemed
 * lost. */
static bool cm_peer_is_known(const struct hdl_cm_msg *msg, const struct cm_wire *wire)
{
	struct cm_id *id =
	        cm_index_find(CM_BY_PEER, cm_process_key(msg->guid, msg->slot, wire->from));
	for (; id != NULL; id = cm_index_next(id, CM_BY_PEER)) {
		if (id->across || id->peer != wire->from || id->attempt != wire->attempt ||
		    id->guid != msg->guid || id->slot != msg->slot ||
		    (id->sent != NULL && id->sent->kind == wire->kind))
			continue;
		if (id->state == CM_REQ_RECEIVED)
			send_kind(id, CM_MRA, 0);
		else if (id->sent != NULL)
			send_to_peer(id, id->sent);
		return true;
	}
	return false;
}

struct cm_id *cm_take_request(const struct hdl_cm_msg *msg, const struct cm_wire *wire,
                              bool *listening)
{
	bool datagram = wire->kind == CM_SIDR_REQ;
	struct cm_id *listener = listener_of(msg);
	struct cm_id *child = NULL;
	struct cm_event *event = NULL;
	*listening = listener != NULL;
	if (listener != NULL && listener->backlog > 0 &&
	    (listener->qp_type == IBV_QPT_UD) == datagram)
		event = cm_event_new(listener, CM_CONNECT_REQUEST, 0);
	if (event != NULL)
		child = cm_id_new(listener->channel, listener->space, listener->qp_type);
	if (child == NULL) {
		free(event);
		return NULL;
	}
	child->state = CM_REQ_RECEIVED;
	child->guid = msg->guid;
	child->slot = msg->slot;
	child->peer = wire->from;
	child->src = wire->dst;
	child->dst = wire->src;
	memcpy(child->sgid.raw, wire->dgid, 16);
	memcpy(child->dgid.raw, wire->sgid, 16);
	child->dlid = cm_own_lid() != 0 ? wire->slid : 0;
	child->is_ib = wire->is_ib != 0;
	child->attempt = wire->attempt;
	child->has_device = child->has_path = true;
	child->retry_count = wire->retry_count;
	take_param(child, wire);
	listener->backlog--;
	event->child = child;
	event->resp.id = child->handle;
	if (datagram)
		fill_ud(event, wire, CM_SIDR_REQ_ROOM);
	else
		fill_conn(event, wire, CM_REQ_ROOM);
	cm_push(event);
	return child;
}

static void heard_request(const struct hdl_cm_msg *msg, const struct cm_wire *wire)
{
	/* Stands for the one that is not made when there is nobody to take it. */
	struct cm_id nobody = {
	        .guid = msg->guid, .slot = msg->slot, .peer = wire->from, .attempt = wire->attempt};
	bool datagram = wire->kind == CM_SIDR_REQ, listening;
	if (cm_peer_is_known(msg, wire))
		return;
	struct cm_id *child = cm_take_request(msg, wire, &listening);
	if (child != NULL) {
		cm_index_enter(child, CM_BY_PEER, cm_process_key(msg->guid, msg->slot, wire->from));
		send_kind(child, CM_MRA, 0); /* so that the peer knows whose end to be afraid of */
	} else if (datagram) {
		send_kind(&nobody, CM_SIDR_REP, listening ? CM_SIDR_REJECTED : CM_SIDR_NO_SERVICE);
	} else {
		send_kind(&nobody, CM_REJ, listening ? CM_REASON_RESOURCES : CM_REASON_NO_SERVICE);
	}
}

static void heard_response(struct cm_id *id, const struct cm_wire *wire)
{
	if (id->state == CM_CONNECTED && id->sent != NULL && id->sent->kind == CM_REQ)
		send_kind(id, CM_RTU, 0); /* once more: the first was lost */
	if (id->state != CM_REQ_SENT)
		return;
	take_param(id, wire);
	id->state = CM_REP_RECEIVED;
	cm_wait_end(id);
	struct cm_event *event = cm_event_new(id, CM_CONNECT_RESPONSE, 0);
	if (event == NULL)
		return;
	fill_conn(event, wire, CM_REP_ROOM);
	cm_push(event);
}

static void heard_sidr_response(struct cm_id *id, const struct cm_wire *wire)
{
	if (id->state != CM_REQ_SENT)
		return;
	if (wire->status == CM_SIDR_NO_SERVICE && cm_wait_more(id))
		return;
	id->state = CM_IDLE; /* it may ask others */
	cm_wait_end(id);
	struct cm_event *event = cm_event_new(
	        id, wire->status == 0 ? CM_ESTABLISHED : CM_UNREACHABLE, (int)wire->status);
	if (event == NULL)
		return;
	fill_ud(event, wire, CM_SIDR_REP_ROOM);
	cm_ah_attr(id, &event->resp.param.ud.ah_attr);
	cm_push(event);
}

static void heard_rejection(struct cm_id *id, const struct cm_wire *wire)
{
	if (id->state == CM_ENDED || id->state == CM_IDLE || id->state == CM_LISTENING)
		return;
	bool later = wire->status == CM_REASON_NO_SERVICE || wire->status == CM_REASON_RESOURCES;
	if (id->state == CM_REQ_SENT && later && cm_wait_more(id)) {
		id->peer = 0;
		return;
	}
	uint32_t status = wire->status == CM_REASON_RESOURCES ? CM_REASON_CONSUMER : wire->status;
	id->state = CM_ENDED;
	cm_wait_end(id);
	struct cm_event *event = cm_event_new(id, CM_REJECTED, (int)status);
	if (event == NULL)
		return;
	fill_conn(event, wire, CM_REJ_ROOM);
	cm_push(event);
}

/* The peer ends the connection; or what was to be one: then we have not sent an RTU, and it has
 * changed its mind. */
static void heard_disconnect(struct cm_id *id)
{
	const struct cm_wire changed_mind = {.kind = CM_REJ, .status = CM_REASON_CONSUMER};
	bool waits = id->state == CM_CONNECTED || id->state == CM_REP_SENT;
	id->owes_drep = true;
	if (id->state == CM_REP_RECEIVED)
		heard_rejection(id, &changed_mind);
	else
		end_connection(id);
	if (!waits || id->uid == 0 || id->across)
		cm_told(id);
}

/* Does @id, which may be NULL, still wait for what @wire says? */
static bool cm_peer_is_for(const struct cm_id *id, const struct cm_wire *wire)
{
	if (id == NULL || id->attempt != wire->attempt)
		return false;
	return (wire->kind != CM_MRA && wire->kind != CM_REP) ||
	       (id->state != CM_IDLE && id->state != CM_ENDED);
}

/* Who has taken up a request that was given up meanwhile did not hear so, or it was stopped until
 * then: it must not accept it. */
static void tell_too_late(const struct hdl_cm_msg *msg, const struct cm_wire *wire)
{
	struct cm_id nobody = {.number = wire->to,
	                       .guid = msg->guid,
	                       .slot = msg->slot,
	                       .peer = wire->from,
	                       .attempt = wire->attempt};
	if (wire->kind == CM_MRA || wire->kind == CM_REP)
		send_kind(&nobody, CM_REJ, CM_REASON_TIMEOUT);
}

static void heard_message(const struct hdl_cm_msg *msg, const struct cm_wire *wire)
{
	if (wire->kind == CM_REQ || wire->kind == CM_SIDR_REQ) {
		heard_request(msg, wire);
		return;
	}
	struct cm_id *id = cm_id_numbered(wire->to);
	if (!cm_peer_is_for(id, wire)) {
		tell_too_late(msg, wire);
		return;
	}
	if (id->peer == 0 || id->state == CM_REQ_SENT) {
		id->guid = msg->guid;
		id->slot = msg->slot;
		id->peer = wire->from;
	} else if (id->guid != msg->guid || id->slot != msg->slot) {
		return;
	}
	if (!id->across)
		cm_take(id, wire);
}

void cm_take(struct cm_id *id, const struct cm_wire *wire)
{
	switch (wire->kind) {
	case CM_REP:
		heard_response(id, wire);
		break;
	case CM_SIDR_REP:
		heard_sidr_response(id, wire);
		break;
	case CM_REJ:
		heard_rejection(id, wire);
		break;
	case CM_RTU:
		if (id->state == CM_REP_SENT) {
			id->state = CM_CONNECTED;
			cm_wait_end(id);
			cm_raise(id, CM_ESTABLISHED, 0);
		}
		break;
	case CM_DREQ:
		heard_disconnect(id);
		break;
	case CM_DREP:
		if (id->state == CM_DREQ_SENT)
			end_connection(id);
		break;
	default: /* MRA: who it is was taken note of above; the time it asks for it has anyway */
		break;
	}
}

static void heard_return(const struct hdl_cm_msg *msg, const struct cm_wire *wire)
{
	struct cm_id *id = cm_id_numbered(wire->from);
	if (id == NULL || id->attempt != wire->attempt)
		return;
	bool refused = msg->error == -HDL_ECONNREFUSED;
	if (refused && id->state == CM_REQ_SENT && cm_wait_more(id))
		return;
	if (wire->kind == CM_REQ && refused && id->state == CM_REQ_SENT) {
		id->state = CM_ENDED;
		cm_wait_end(id);
		cm_raise(id, CM_REJECTED, (int)CM_REASON_NO_SERVICE);
	} else if (wire->kind == CM_SIDR_REQ && id->state == CM_REQ_SENT) {
		id->state = CM_IDLE;
		cm_wait_end(id);
		cm_raise(id, CM_UNREACHABLE, refused ? (int)CM_SIDR_NO_SERVICE : -ETIMEDOUT);
	} else if (wire->kind != CM_MRA && wire->kind != CM_DREP) {
		end_connection(id);
	}
}

void cm_heard(void *context, const struct hdl_cm_msg *msg)
{
	struct cm_wire wire;
	struct cm_id *id;
	(void)context;
	cm_lock();
	if (msg->kind == HDL_CM_GONE) {
		for (uint32_t at = 0; (id = cm_id_next(&at)) != NULL; at++)
			if (id->peer != 0 && id->guid == msg->guid && id->slot == msg->slot)
				end_connection(id);
			else if (id->peer == 0 && id->state == CM_REQ_SENT && !id->across &&
			         id->wait != CM_WAIT_LISTENER)
				cm_repeat(id); /* it may have taken our request with it */
	} else if (msg->kind == HDL_CM_MAD) {
		cm_far_heard(msg);
	} else if (msg->kind == HDL_CM_AGENT) {
		for (uint32_t at = 0; (id = cm_id_next(&at)) != NULL; at++)
			cm_far_leave_word(id);
	} else if (msg->length == sizeof(wire)) {
		memcpy(&wire, msg->data, sizeof(wire));
		if (msg->kind == HDL_CM_RETURNED)
			heard_return(msg, &wire);
		else
			heard_message(msg, &wire);
	}
	cm_unlock();
}
