/* Connections: the program's commands, the messages of peers, the states that follow (IBTA volume
 * 1, 12.9) and the events that the program gets. The identifier's connection manager (cm/manager.h)
 * carries the messages. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "compat/cm/cm.h"

static int set_private(struct cm_message *message, const void *data, uint8_t length, unsigned room)
{
	if (length > room)
		return EINVAL;
	message->private_length = length;
	memcpy(message->private_data, data, length);
	return 0;
}

/* Retry counts have three bits; programs pass larger ones. */
static uint8_t at_most_7(uint8_t count)
{
	return count < 7 ? count : 7;
}

static void set_param(struct cm_message *message, struct cm_id *id,
                      const struct rdma_ucm_conn_param *param)
{
	id->own_qpn = message->qpn = param->qp_num;
	message->qkey = param->qkey != 0 ? param->qkey : CM_UDP_QKEY;
	message->psn = id->own_psn;
	message->responder_resources = param->responder_resources;
	message->initiator_depth = param->initiator_depth;
	message->flow_control = param->flow_control;
	message->retry_count = at_most_7(param->retry_count);
	message->rnr_retry_count = at_most_7(param->rnr_retry_count);
	message->srq = param->srq;
}

/* Keep a copy of what is about to be sent. */
static bool cm_peer_keep(struct cm_id *id, const struct cm_message *message)
{
	if (id->sent == NULL)
		id->sent = malloc(sizeof(*id->sent));
	if (id->sent != NULL)
		*id->sent = *message;
	return id->sent != NULL;
}

/* A queue pair of an iWARP device does not outlive its connection. */
static void cm_peer_end_qp(const struct cm_id *id)
{
	const struct hdl_qp_attr error = {.state = HDL_QPS_ERR};
	struct hdl_adapter *adapter = compat_adapter();
	struct hdl_qp *qp = adapter != NULL ? hdl_qp_find(adapter, id->own_qpn) : NULL;
	if (qp != NULL)
		hdl_qp_modify(qp, &error, HDL_QP_STATE);
}

void cm_end_connection(struct cm_id *id)
{
	if (id->state < CM_REQ_SENT || id->state == CM_ENDED)
		return;
	bool connected = id->state >= CM_REP_SENT;
	id->state = CM_ENDED;
	cm_wait_end(id);
	if (connected && cm_ends_qps())
		cm_peer_end_qp(id);
	cm_raise(id, connected ? CM_DISCONNECTED : CM_UNREACHABLE, connected ? 0 : -ETIMEDOUT);
	if (connected)
		cm_wait_timewait(id);
}

/* --- commands --- */

int cm_request(struct cm_id *id, const struct rdma_ucm_conn_param *param)
{
	bool datagram = id->qp_type == IBV_QPT_UD;
	struct cm_message message = {.kind = datagram ? CM_SIDR_REQ : CM_REQ};
	if (id->state != CM_IDLE || !id->has_device || !id->has_path)
		return EINVAL;
	if (set_private(&message, param->private_data, param->private_data_len,
	                datagram ? CM_SIDR_REQ_ROOM : cm_room(CM_REQ_ROOM)) != 0)
		return EINVAL;
	set_param(&message, id, param);
	message.slid = cm_own_lid();
	message.is_ib = id->is_ib;
	message.tos = id->tos;
	memcpy(message.sgid, id->sgid.raw, 16);
	memcpy(message.dgid, id->dgid.raw, 16);
	message.src = id->src;
	message.dst = id->dst;
	id->responder_resources = param->responder_resources;
	id->initiator_depth = param->initiator_depth;
	id->retry_count = at_most_7(param->retry_count);
	id->rnr_retry_count = at_most_7(param->rnr_retry_count);
	if (!cm_peer_keep(id, &message))
		return ENOMEM;
	id->attempt++;
	id->tries = 0;
	id->asked_ns = cm_now_ns();
	id->peer = 0;
	cm_give_up_in(id, cm_answer_ms());
	int error = id->manager->request(id, id->sent);
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
	if (id->manager->request(id, id->sent) != 0)
		cm_end_connection(id);
}

void cm_send_again(struct cm_id *id)
{
	if (id->state == CM_REQ_SENT)
		id->manager->request(id, id->sent);
	else if (id->state == CM_REP_SENT)
		id->manager->reply(id, id->sent);
	else if (id->state == CM_DREQ_SENT)
		id->manager->disconnect(id);
}

void cm_expire(struct cm_id *id)
{
	struct cm_message too_late = {.kind = CM_REJ, .status = CM_REASON_TIMEOUT};
	if (id->state ==
	    CM_DREQ_SENT) /* it has ended, whether the peer knows or not (IBTA 12.9.6) */
		cm_end_connection(id);
	if (id->state != CM_REQ_SENT && id->state != CM_REP_SENT)
		return;
	if (id->peer != 0)
		id->manager->reject(id, &too_late); /* or the peer would accept it later */
	cm_unreachable(id);
}

void cm_unreachable(struct cm_id *id)
{
	log_debug("rdma_cm: a peer does not answer (connection manager %s)", id->manager->name);
	id->state =
	        id->qp_type == IBV_QPT_UD ? CM_IDLE : CM_ENDED; /* the program may connect again */
	cm_raise(id, CM_UNREACHABLE, -ETIMEDOUT);
}

/* Answer the request that made @id. */
static int cm_peer_reply(struct cm_id *id, const struct rdma_ucm_conn_param *param)
{
	bool datagram = id->qp_type == IBV_QPT_UD;
	struct cm_message message = {.kind = datagram ? CM_SIDR_REP : CM_REP};
	if (param->valid) {
		if (set_private(&message, param->private_data, param->private_data_len,
		                datagram ? CM_SIDR_REP_ROOM : cm_room(CM_REP_ROOM)) != 0)
			return EINVAL;
		set_param(&message, id, param);
		id->responder_resources = param->responder_resources;
		id->initiator_depth = param->initiator_depth;
	}
	if (!cm_peer_keep(id, &message))
		return ENOMEM;
	cm_give_up_in(id, cm_answer_ms());
	int error = id->manager->reply(id, &message);
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
		return id->manager->confirm(id);
	}
	if (id->state == CM_ENDED)
		return ECONNABORTED; /* the peer gave up */
	if (id->state != CM_REQ_RECEIVED)
		return EINVAL;
	int error = cm_peer_reply(id, param);
	/* There is no second try: librdmacm has put the queue pair into error by then. The peer is
	 * told, as by Linux's rdma_accept(). */
	if (error != 0)
		cm_reject(id, CM_REASON_CONSUMER, &no_data, 0);
	return error;
}

int cm_reject(struct cm_id *id, uint32_t reason, const void *data, uint8_t length)
{
	bool datagram = id->qp_type == IBV_QPT_UD;
	struct cm_message message = {.kind = datagram ? CM_SIDR_REP : CM_REJ,
	                             .status = datagram ? CM_SIDR_REJECTED : reason};
	if (id->state == CM_ENDED)
		return 0;
	if (id->state != CM_REQ_RECEIVED && id->state != CM_REP_RECEIVED)
		return EINVAL;
	if (set_private(&message, data, length,
	                datagram ? CM_SIDR_REP_ROOM : cm_room(CM_REJ_ROOM)) != 0)
		return EINVAL;
	id->state = CM_ENDED;
	cm_peer_keep(id, &message); /* without a copy it cannot be sent again */
	return id->manager->reject(id, &message);
}

void cm_told(struct cm_id *id)
{
	if (!id->owes_drep)
		return;
	id->owes_drep = false;
	id->manager->disconnected(id);
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
		return id->manager->disconnect(id);
	case CM_DREQ_SENT:
	case CM_ENDED:
		return 0;
	default:
		return EINVAL;
	}
}

void cm_part(struct cm_id *id)
{
	id->manager->part(id);
	id->state = CM_ENDED;
}

void cm_part_all(void)
{
	struct cm_id *id;
	for (uint32_t at = 0; (id = cm_id_next(&at)) != NULL; at++)
		if (id->manager->leave != NULL && id->manager->leave(id) != 0)
			break; /* there is no agent to carry it */
}

void cm_forget_all(void)
{
	struct cm_id *id;
	for (uint32_t at = 0; (id = cm_id_next(&at)) != NULL; at++) {
		id->bound = NULL;
		if (id->manager->forget != NULL)
			id->manager->forget(id);
	}
}

/* --- messages --- */

/* From the peer's message to the program's event: the peer's resources are our depth. The private
 * data has the length of @room on InfiniBand, and its own on iWARP. */
static void fill_conn(struct cm_event *event, const struct cm_message *message, uint8_t room)
{
	struct rdma_ucm_conn_param *param = &event->resp.param.conn;
	param->qp_num = message->qpn;
	param->responder_resources = message->initiator_depth;
	param->initiator_depth = message->responder_resources;
	param->flow_control = message->flow_control;
	param->retry_count = message->retry_count;
	param->rnr_retry_count = message->rnr_retry_count;
	param->srq = message->srq;
	param->private_data_len = cm_room(room) == room ? room : message->private_length;
	memcpy(param->private_data, message->private_data, message->private_length);
}

static void fill_ud(struct cm_event *event, const struct cm_message *message, uint8_t room)
{
	struct rdma_ucm_ud_param *param = &event->resp.param.ud;
	param->qp_num = message->qpn;
	param->qkey = message->qkey;
	param->private_data_len = room;
	memcpy(param->private_data, message->private_data, message->private_length);
}

static void take_param(struct cm_id *id, const struct cm_message *message)
{
	id->qpn = message->qpn;
	id->psn = message->psn;
	id->qkey = message->qkey;
	id->responder_resources = message->initiator_depth;
	id->initiator_depth = message->responder_resources;
	id->rnr_retry_count = message->rnr_retry_count;
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

struct cm_id *cm_take_request(const struct cm_manager *manager, const struct hdl_cm_msg *msg,
                              const struct cm_message *message, bool *listening)
{
	bool datagram = message->kind == CM_SIDR_REQ;
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
	child->manager = manager;
	child->state = CM_REQ_RECEIVED;
	child->guid = msg->guid;
	child->slot = msg->slot;
	child->peer = message->from;
	child->src = message->dst;
	child->dst = message->src;
	memcpy(child->sgid.raw, message->dgid, 16);
	memcpy(child->dgid.raw, message->sgid, 16);
	child->dlid = cm_own_lid() != 0 ? message->slid : 0;
	child->is_ib = message->is_ib != 0;
	child->tos = message->tos;
	child->attempt = message->attempt;
	child->has_device = child->has_path = true;
	child->retry_count = message->retry_count;
	take_param(child, message);
	listener->backlog--;
	event->child = child;
	event->resp.id = child->handle;
	if (datagram)
		fill_ud(event, message, CM_SIDR_REQ_ROOM);
	else
		fill_conn(event, message, CM_REQ_ROOM);
	cm_push(event);
	return child;
}

static void take_response(struct cm_id *id, const struct cm_message *message)
{
	if (id->state == CM_CONNECTED && id->sent != NULL && id->sent->kind == CM_REQ)
		id->manager->confirm(id); /* repeated, because the first was lost */
	if (id->state != CM_REQ_SENT)
		return;
	bool over = id->manager->one_exchange;
	take_param(id, message);
	id->state = over ? CM_CONNECTED : CM_REP_RECEIVED;
	cm_wait_end(id);
	struct cm_event *event = cm_event_new(id, over ? CM_ESTABLISHED : CM_CONNECT_RESPONSE, 0);
	if (event == NULL)
		return;
	fill_conn(event, message, CM_REP_ROOM);
	cm_push(event);
}

static void take_sidr_response(struct cm_id *id, const struct cm_message *message)
{
	if (id->state != CM_REQ_SENT)
		return;
	if (message->status == CM_SIDR_NO_SERVICE && cm_wait_more(id))
		return;
	id->state = CM_IDLE; /* the program may connect again */
	cm_wait_end(id);
	struct cm_event *event = cm_event_new(
	        id, message->status == 0 ? CM_ESTABLISHED : CM_UNREACHABLE, (int)message->status);
	if (event == NULL)
		return;
	fill_ud(event, message, CM_SIDR_REP_ROOM);
	cm_ah_attr(id, &event->resp.param.ud.ah_attr);
	cm_push(event);
}

static void take_rejection(struct cm_id *id, const struct cm_message *message)
{
	if (id->state == CM_ENDED || id->state == CM_IDLE || id->state == CM_LISTENING)
		return;
	bool later =
	        message->status == CM_REASON_NO_SERVICE || message->status == CM_REASON_RESOURCES;
	if (id->state == CM_REQ_SENT && later && cm_wait_more(id)) {
		id->peer = 0;
		return;
	}
	uint32_t status =
	        message->status == CM_REASON_RESOURCES ? CM_REASON_CONSUMER : message->status;
	id->state = CM_ENDED;
	cm_wait_end(id);
	struct cm_event *event = cm_event_new(
	        id, CM_REJECTED, id->manager->one_exchange ? -ECONNREFUSED : (int)status);
	if (event == NULL)
		return;
	fill_conn(event, message, CM_REJ_ROOM);
	cm_push(event);
}

/* The peer ends the connection. Or it has changed its mind about one that is not established,
 * because we have not sent an RTU. */
static void take_disconnect(struct cm_id *id)
{
	const struct cm_message changed_mind = {.kind = CM_REJ, .status = CM_REASON_CONSUMER};
	bool waits = id->state == CM_CONNECTED || id->state == CM_REP_SENT;
	id->owes_drep = id->manager->disconnected != NULL;
	if (id->state == CM_REP_RECEIVED)
		take_rejection(id, &changed_mind);
	else
		cm_end_connection(id);
	if (!waits || id->uid == 0)
		cm_told(id);
}

void cm_take(struct cm_id *id, const struct cm_message *message)
{
	switch (message->kind) {
	case CM_REP:
		take_response(id, message);
		break;
	case CM_SIDR_REP:
		take_sidr_response(id, message);
		break;
	case CM_REJ:
		take_rejection(id, message);
		break;
	case CM_RTU:
		if (id->state == CM_REP_SENT) {
			id->state = CM_CONNECTED;
			cm_wait_end(id);
			cm_raise(id, CM_ESTABLISHED, 0);
		}
		break;
	case CM_DREQ:
		take_disconnect(id);
		break;
	case CM_DREP:
		if (id->state == CM_DREQ_SENT)
			cm_end_connection(id);
		break;
	default: /* MRA: the peer has as much time as it asks for in any case */
		break;
	}
}

void cm_receive(void *context, const struct hdl_cm_msg *msg)
{
	struct cm_id *id;
	(void)context;
	cm_lock();
	if (msg->kind == HDL_CM_MAD) {
		cm_infiniband_receive(msg);
	} else if (msg->kind == HDL_CM_AGENT) {
		for (uint32_t at = 0; (id = cm_id_next(&at)) != NULL; at++)
			if (id->manager->leave_notice != NULL)
				id->manager->leave_notice(id);
	} else {
		cm_local_receive(msg);
	}
	cm_unlock();
}
