/* Connection set-up between machines: what setup.c says, in the private data of IBTA's connection
 * management (12.6). Datagrams may get lost; setup.c repeats what was not answered. */
#include <string.h>

#include "ulp/internal.h"

_Static_assert(SETUP_BYTES <= IB_CM_REQ_PRIVATE_BYTES, "the shortest of the private data");

static int setup_wire_put(struct hdl_push *push, const struct ib_cm_message *message,
                          enum hdl_cm_wire how)
{
	struct hdl_cm_msg msg = {
	        .gid = push->gid, .own = push->own, .on_wire = how, .length = MAD_BYTES};
	ib_cm_encode(message, msg.data);
	return hdl_cm_send(push->port->adapter, &msg);
}

static void setup_wire_req(const struct hdl_push *push, struct ib_cm_req *req)
{
	*req = (struct ib_cm_req){.local_id = push->id,
	                          .service_id = ib_cm_service(HDL_PUSH_SPACE, push->service),
	                          .ca_guid = push->port->limits.guid,
	                          .qpn = push->qpn[SPLIT_CONTROL],
	                          .psn = push->psn[SPLIT_CONTROL],
	                          .responder_resources = 16,
	                          .initiator_depth = 16,
	                          .remote_response_timeout = IB_CM_RESPONSE_TIMEOUT,
	                          .local_response_timeout = IB_CM_RESPONSE_TIMEOUT,
	                          .transport =
	                                  push->terms.mode == HDL_PUSH_SEND ? IB_CM_UC : IB_CM_RC,
	                          .flow_control = 1,
	                          .retry_count = 7,
	                          .rnr_retry_count = 7,
	                          .pkey = 0xffff,
	                          .max_retries = IB_CM_MAX_RETRIES,
	                          .primary = {.hop_limit = 64, .ack_timeout = 14}};
	for (uint16_t mtu = push->mtu; mtu >= 256; mtu /= 2)
		req->mtu++;
	memcpy(req->primary.local_gid, push->port->limits.gid.raw, IB_GID_BYTES);
	memcpy(req->primary.remote_gid, push->gid.raw, IB_GID_BYTES);
}

static struct ib_cm_message setup_wire_dreq(const struct hdl_push *push)
{
	return (struct ib_cm_message){.kind = IB_CM_DREQ,
	                              .transaction_id = push->transaction,
	                              .u.dreq = {.local_id = push->id,
	                                         .remote_id = push->peer_id,
	                                         .remote_qpn = push->peer_qpn[SPLIT_CONTROL]}};
}

int setup_wire_send(struct hdl_push *push, enum setup_kind kind, const uint8_t *body)
{
	struct ib_cm_message message = {.transaction_id = push->transaction};
	switch (kind) {
	case SETUP_REQUEST:
		message.kind = IB_CM_REQ;
		setup_wire_req(push, &message.u.req);
		memcpy(message.u.req.private_data, body, SETUP_BYTES);
		break;
	case SETUP_ANSWER:
		message.kind = IB_CM_REP;
		message.u.rep = (struct ib_cm_rep){.local_id = push->id,
		                                   .remote_id = push->peer_id,
		                                   .qpn = push->qpn[SPLIT_CONTROL],
		                                   .psn = push->psn[SPLIT_CONTROL],
		                                   .responder_resources = 16,
		                                   .initiator_depth = 16,
		                                   .flow_control = 1,
		                                   .rnr_retry_count = 7,
		                                   .ca_guid = push->port->limits.guid};
		memcpy(message.u.rep.private_data, body, SETUP_BYTES);
		break;
	case SETUP_CONFIRM:
		message.kind = IB_CM_RTU;
		message.u.rtu =
		        (struct ib_cm_rtu){.local_id = push->id, .remote_id = push->peer_id};
		memcpy(message.u.rtu.private_data, body, SETUP_BYTES);
		break;
	default:
		message = setup_wire_dreq(push);
		memcpy(message.u.dreq.private_data, body, SETUP_BYTES);
		return setup_wire_put(push, &message, HDL_CM_LAST_WORD);
	}
	return setup_wire_put(push, &message, HDL_CM_ON_WIRE);
}

/* If this process is killed, the agent tells the peer. */
void setup_wire_leave_notice(struct hdl_push *push, const uint8_t *body)
{
	struct ib_cm_message message = setup_wire_dreq(push);
	memcpy(message.u.dreq.private_data, body, SETUP_BYTES);
	setup_wire_put(push, &message, HDL_CM_WHEN_GONE);
}

void setup_wire_answer_bye(struct hdl_push *push)
{
	struct ib_cm_message message = {
	        .kind = IB_CM_DREP,
	        .transaction_id = push->transaction,
	        .u.drep = {.local_id = push->id, .remote_id = push->peer_id}};
	push->bye = true;
	setup_wire_put(push, &message, HDL_CM_ON_WIRE);
}

void setup_wire_refuse(struct hdl_push_port *port, const struct hdl_cm_msg *msg,
                       const uint8_t *body)
{
	struct ib_cm_message request, answer;
	struct hdl_cm_msg out = {
	        .gid = msg->gid, .own = msg->own, .on_wire = HDL_CM_ON_WIRE, .length = MAD_BYTES};
	if (ib_cm_decode(&request, msg->data, msg->length) != IB_CM_OK ||
	    !ib_cm_refuse(&request, IB_CM_CONSUMER, &answer))
		return;
	memcpy(answer.u.rej.private_data, body, SETUP_BYTES);
	ib_cm_encode(&answer, out.data);
	hdl_cm_send(port->adapter, &out);
}

const uint8_t *setup_wire_body(const struct hdl_cm_msg *msg, struct ib_cm_message *message,
                               enum setup_kind *kind)
{
	*message = (struct ib_cm_message){0};
	if (ib_cm_decode(message, msg->data, msg->length) != IB_CM_OK)
		return NULL;
	switch (message->kind) {
	case IB_CM_REQ:
		*kind = SETUP_REQUEST;
		return message->u.req.private_data;
	case IB_CM_REP:
		*kind = SETUP_ANSWER;
		return message->u.rep.private_data;
	case IB_CM_RTU:
		*kind = SETUP_CONFIRM;
		return message->u.rtu.private_data;
	case IB_CM_REJ:
		*kind = SETUP_REFUSAL;
		return message->u.rej.private_data;
	case IB_CM_DREQ:
		*kind = SETUP_BYE;
		return message->u.dreq.private_data;
	default:
		return NULL;
	}
}
