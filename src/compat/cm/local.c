/* The connection manager for peers on this machine: struct cm_message from process to process. The
 * agent delivers in order, returns what it cannot deliver, and tells when a process has ended. What
 * a process that was killed took with it is sent again (cm/wait.c). */
#include <string.h>

#include "compat/cm/cm.h"

#define ACK_TIMEOUT 18 /* 4.096 us * 2^18, about a second */

static int cm_local_post(const struct cm_id *id, struct cm_message *message, struct hdl_cm_msg *msg)
{
	struct hdl_adapter *adapter = compat_adapter();
	if (adapter == NULL)
		return ENODEV;
	message->from = id->number;
	message->to = id->peer;
	message->attempt = id->attempt;
	msg->length = sizeof(*message);
	memcpy(msg->data, message, sizeof(*message));
	return -hdl_cm_send(adapter, msg);
}

/* --- sending --- */

/* To the process that holds the port. */
static int cm_local_request(struct cm_id *id, struct cm_message *message)
{
	struct sockaddr_in6 to = id->dst;
	struct hdl_cm_msg msg = {.gid = id->dgid,
	                         .space = id->space,
	                         .port = ntohs(*cm_port_of(&to)),
	                         .to_port = 1,
	                         .options = cm_family_of(&to)};
	return cm_local_post(id, message, &msg);
}

/* To the peer, which is known. */
static int cm_local_send_message(struct cm_id *id, struct cm_message *message)
{
	struct hdl_cm_msg msg = {.guid = id->guid, .slot = id->slot};
	return cm_local_post(id, message, &msg);
}

static int cm_local_send(struct cm_id *id, enum cm_kind kind, uint32_t status)
{
	struct cm_message message = {.kind = (uint16_t)kind, .status = status};
	return cm_local_send_message(id, &message);
}

static int cm_local_confirm(struct cm_id *id)
{
	return cm_local_send(id, CM_RTU, 0);
}

static int cm_local_disconnect(struct cm_id *id)
{
	return cm_local_send(id, CM_DREQ, 0);
}

static int cm_local_disconnected(struct cm_id *id)
{
	return cm_local_send(id, CM_DREP, 0);
}

static void cm_local_part(struct cm_id *id)
{
	static const uint8_t no_data;
	cm_told(id);
	switch (id->state) {
	case CM_REQ_RECEIVED:
	case CM_REP_RECEIVED:
		cm_reject(id, CM_REASON_CONSUMER, &no_data, 0);
		break;
	case CM_REQ_SENT:
		if (id->peer != 0)
			cm_local_send(id, CM_REJ, CM_REASON_CONSUMER);
		break;
	case CM_CONNECTED:
	case CM_REP_SENT:
		cm_local_send(id, CM_DREQ, 0);
		break;
	default:
		break;
	}
}

/* --- receiving --- */

/* Was this request received before? Then the peer repeats it because it, or the answer, seems lost.
 */
static bool cm_local_is_known(const struct hdl_cm_msg *msg, const struct cm_message *message)
{
	struct cm_id *id =
	        cm_index_find(CM_BY_PEER, cm_process_key(msg->guid, msg->slot, message->from));
	for (; id != NULL; id = cm_index_next(id, CM_BY_PEER)) {
		if (id->manager != &cm_local || id->peer != message->from ||
		    id->attempt != message->attempt || id->guid != msg->guid ||
		    id->slot != msg->slot || (id->sent != NULL && id->sent->kind == message->kind))
			continue;
		if (id->state == CM_REQ_RECEIVED)
			cm_local_send(id, CM_MRA, 0);
		else if (id->sent != NULL)
			cm_local_send_message(id, id->sent);
		return true;
	}
	return false;
}

static void take_request(const struct hdl_cm_msg *msg, const struct cm_message *message)
{
	/* In place of the identifier that is not created when nobody accepts the request. */
	struct cm_id nobody = {.guid = msg->guid,
	                       .slot = msg->slot,
	                       .peer = message->from,
	                       .attempt = message->attempt};
	bool datagram = message->kind == CM_SIDR_REQ, listening;
	if (cm_local_is_known(msg, message))
		return;
	struct cm_id *child = cm_take_request(&cm_local, msg, message, &listening);
	if (child != NULL) {
		cm_index_enter(child, CM_BY_PEER,
		               cm_process_key(msg->guid, msg->slot, message->from));
		cm_local_send(child, CM_MRA,
		              0); /* so that the peer knows which process it is waiting for */
	} else if (datagram) {
		cm_local_send(&nobody, CM_SIDR_REP,
		              listening ? CM_SIDR_REJECTED : CM_SIDR_NO_SERVICE);
	} else {
		cm_local_send(&nobody, CM_REJ,
		              listening ? CM_REASON_RESOURCES : CM_REASON_NO_SERVICE);
	}
}

/* Does @id, which may be NULL, still wait for this message? */
static bool cm_local_is_for(const struct cm_id *id, const struct cm_message *message)
{
	if (id == NULL || id->attempt != message->attempt)
		return false;
	return (message->kind != CM_MRA && message->kind != CM_REP) ||
	       (id->state != CM_IDLE && id->state != CM_ENDED);
}

/* A process that accepts a request after we gave it up has not learned of that, or was stopped
 * until now: it must not accept the request. */
static void tell_too_late(const struct hdl_cm_msg *msg, const struct cm_message *message)
{
	struct cm_id nobody = {.number = message->to,
	                       .guid = msg->guid,
	                       .slot = msg->slot,
	                       .peer = message->from,
	                       .attempt = message->attempt};
	if (message->kind == CM_MRA || message->kind == CM_REP)
		cm_local_send(&nobody, CM_REJ, CM_REASON_TIMEOUT);
}

static void cm_local_take(const struct hdl_cm_msg *msg, const struct cm_message *message)
{
	if (message->kind == CM_REQ || message->kind == CM_SIDR_REQ) {
		take_request(msg, message);
		return;
	}
	struct cm_id *id = cm_id_numbered(message->to);
	if (!cm_local_is_for(id, message)) {
		tell_too_late(msg, message);
		return;
	}
	if (id->manager != &cm_local)
		return;
	if (id->peer == 0 || id->state == CM_REQ_SENT) {
		id->guid = msg->guid;
		id->slot = msg->slot;
		id->peer = message->from;
	} else if (id->guid != msg->guid || id->slot != msg->slot) {
		return;
	}
	cm_take(id, message);
}

static void take_return(const struct hdl_cm_msg *msg, const struct cm_message *message)
{
	struct cm_id *id = cm_id_numbered(message->from);
	if (id == NULL || id->attempt != message->attempt)
		return;
	bool refused = msg->error == -HDL_ECONNREFUSED;
	if (refused && id->state == CM_REQ_SENT && cm_wait_more(id))
		return;
	if (message->kind == CM_REQ && refused && id->state == CM_REQ_SENT) {
		id->state = CM_ENDED;
		cm_wait_end(id);
		cm_raise(id, CM_REJECTED, (int)CM_REASON_NO_SERVICE);
	} else if (message->kind == CM_SIDR_REQ && id->state == CM_REQ_SENT) {
		id->state = CM_IDLE;
		cm_wait_end(id);
		cm_raise(id, CM_UNREACHABLE, refused ? (int)CM_SIDR_NO_SERVICE : -ETIMEDOUT);
	} else if (message->kind != CM_MRA && message->kind != CM_DREP) {
		cm_end_connection(id);
	}
}

/* A process has ended. */
static void cm_local_gone(const struct hdl_cm_msg *msg)
{
	struct cm_id *id;
	for (uint32_t at = 0; (id = cm_id_next(&at)) != NULL; at++)
		if (id->peer != 0 && id->guid == msg->guid && id->slot == msg->slot)
			cm_end_connection(id);
		else if (id->peer == 0 && id->state == CM_REQ_SENT && id->manager == &cm_local &&
		         id->wait != CM_WAIT_LISTENER)
			cm_repeat(id); /* it may have taken our request with it */
}

void cm_local_receive(const struct hdl_cm_msg *msg)
{
	struct cm_message message;
	if (msg->kind == HDL_CM_GONE) {
		cm_local_gone(msg);
	} else if (msg->length == sizeof(message)) {
		memcpy(&message, msg->data, sizeof(message));
		if (msg->kind == HDL_CM_RETURNED)
			take_return(msg, &message);
		else
			cm_local_take(msg, &message);
	}
}

const struct cm_manager cm_local = {
        .name = "local",
        .ack_timeout = ACK_TIMEOUT,
        .request = cm_local_request,
        .reply = cm_local_send_message,
        .reject = cm_local_send_message,
        .confirm = cm_local_confirm,
        .disconnect = cm_local_disconnect,
        .disconnected = cm_local_disconnected,
        .part = cm_local_part,
};
