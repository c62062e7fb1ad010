/* The connection manager for peers across the wire: it translates between cm/peer.c and messages of
 * InfiniBand's communication management, which travel between queue pairs 1 of the two nodes.
 * cm/ibcm.c knows what to repeat and until when; each identifier has one such end once there is a
 * request. */
#include <stdlib.h>
#include <string.h>

#include "base/prng.h"
#include "compat/cm/cm.h"
#include "compat/cm/ibcm.h"

#define ETHERNET_LID  0xffffu
#define HOP_LIMIT     64u
#define FLOW_LABELS   0xfffffu
#define INVALID_GID   12            /* reason of a REJ: the primary path leads elsewhere */
#define LATE_REQUESTS 64u           /* of connections that have ended, to recognize repetitions */
#define ACK_TIMEOUT   17            /* 4.096 us * 2^17, half a second */
#define RELISTEN_NS   1000000000ull /* our own agents keep a request that long, too */

/* Requests of identifiers that are gone: a late copy of one is not a new request. */
static struct {
	struct hdl_gid gid;
	uint64_t transaction_id, until_ns;
	uint32_t remote_id;
} late[LATE_REQUESTS];
static unsigned next_late;

static struct hdl_limits limits(void)
{
	struct hdl_limits own = {0};
	struct hdl_adapter *adapter = compat_adapter();
	if (adapter != NULL)
		hdl_adapter_query(adapter, &own);
	return own;
}

static uint32_t number_of(const struct cm_id *id)
{
	return (uint32_t)limits().slot << CM_NUMBER_BITS | id->number;
}

static int send_to(const struct hdl_gid *gid, const struct hdl_gid *own, const uint8_t *mad,
                   enum hdl_cm_wire how)
{
	struct hdl_adapter *adapter = compat_adapter();
	struct hdl_cm_msg msg = {.gid = *gid, .own = *own, .on_wire = how, .length = MAD_BYTES};
	if (adapter == NULL)
		return ENODEV;
	memcpy(msg.data, mad, MAD_BYTES);
	return -hdl_cm_send(adapter, &msg);
}

/* The end of @id, which may have any manager; NULL: it has none. */
static struct ibcm *end_of(const struct cm_id *id)
{
	return id->manager == &cm_infiniband ? id->end : NULL;
}

/* A process may end without disconnecting, and the peer has to learn of it: the agent keeps a
 * disconnect notice for it. */
static void cm_infiniband_leave_notice(const struct cm_id *id)
{
	struct ibcm_out out = {0};
	if (id->end == NULL)
		return;
	struct ibcm end = *end_of(id);
	if (!end.datagram && ibcm_disconnect(&end, cm_now_ns(), &out))
		send_to(&id->dgid, &id->sgid, out.mad, HDL_CM_WHEN_GONE);
	else if (end.state == IBCM_DREQ_SENT) /* for a new agent, which does not know of it */
		send_to(&id->dgid, &id->sgid, end.last, HDL_CM_WHEN_GONE);
}

static int cm_infiniband_flush(const struct cm_id *id, const struct ibcm_out *out)
{
	return out->any ? send_to(&id->dgid, &id->sgid, out->mad,
	                          out->last ? HDL_CM_LAST_WORD : HDL_CM_ON_WIRE)
	                : 0;
}

/* Refuse @message, which arrived in @msg. */
static void cm_infiniband_refuse(const struct hdl_cm_msg *msg, const struct ib_cm_message *message,
                                 int reason)
{
	struct ib_cm_message answer;
	uint8_t mad[MAD_BYTES];
	if (!ib_cm_refuse(message, (enum ib_cm_reason)reason, &answer))
		return;
	ib_cm_encode(&answer, mad);
	send_to(&msg->gid, &msg->own, mad, HDL_CM_ON_WIRE);
}

/* --- addresses --- */

static const struct sockaddr_in *cm_infiniband_as_in(const struct sockaddr_in6 *address)
{
	return (const struct sockaddr_in *)(const void *)address;
}

static void ip_bytes(const struct sockaddr_in6 *address, uint8_t to[16])
{
	if (address->sin6_family == AF_INET)
		memcpy(to + 12, &cm_infiniband_as_in(address)->sin_addr, 4);
	else
		memcpy(to, &address->sin6_addr, 16);
}

static void ip_address(struct sockaddr_in6 *address, bool ipv4, const uint8_t from[16],
                       uint16_t port)
{
	*address = (struct sockaddr_in6){.sin6_family = ipv4 ? AF_INET : AF_INET6,
	                                 .sin6_port = htons(port)};
	if (ipv4)
		memcpy(&((struct sockaddr_in *)(void *)address)->sin_addr, from + 12, 4);
	else
		memcpy(&address->sin6_addr, from, 16);
}

/* Private data of a request, which follows the addresses (annex A11) if they are IP addresses. */
static void private_out(const struct cm_id *id, const struct cm_message *body, uint8_t *to)
{
	size_t header = id->is_ib ? 0 : IB_CM_IP_BYTES;
	struct sockaddr_in6 src = id->src;
	struct ib_cm_ip ip = {.family = src.sin6_family == AF_INET ? 4 : 6,
	                      .port = ntohs(*cm_port_of(&src))};
	ip_bytes(&id->src, ip.src);
	ip_bytes(&id->dst, ip.dst);
	if (header != 0)
		ib_cm_ip_encode(&ip, to);
	memcpy(to + header, body->private_data, body->private_length);
}

/* The reverse. @room: the size of the private data. */
static void private_in(struct cm_message *body, const uint8_t *from, size_t room, uint16_t port)
{
	struct ib_cm_ip ip;
	bool by_ip = ib_cm_ip_decode(&ip, from);
	size_t header = by_ip ? IB_CM_IP_BYTES : 0;
	if (by_ip) {
		ip_address(&body->src, ip.family == 4, ip.src, ip.port);
		ip_address(&body->dst, ip.family == 4, ip.dst, port);
	} else {
		ip_address(&body->src, false, body->sgid, 0);
		ip_address(&body->dst, false, body->dgid, port);
	}
	body->is_ib = !by_ip;
	body->private_length = (uint8_t)(room - header);
	memcpy(body->private_data, from + header, body->private_length);
}

/* --- sending --- */

static uint8_t transport_of(const struct cm_id *id)
{
	return id->qp_type == IBV_QPT_RC   ? IB_CM_RC
	       : id->qp_type == IBV_QPT_UC ? IB_CM_UC
	                                   : IB_CM_EXTENDED;
}

static void fill_req(struct cm_id *id, const struct cm_message *body, struct ib_cm_req *req)
{
	id->mtu = (uint8_t)compat_active_mtu(compat_adapter());
	*req = (struct ib_cm_req){.local_id = number_of(id),
	                          .ca_guid = limits().guid,
	                          .qpn = body->qpn,
	                          .responder_resources = body->responder_resources,
	                          .initiator_depth = body->initiator_depth,
	                          .remote_response_timeout = IB_CM_RESPONSE_TIMEOUT,
	                          .transport = transport_of(id),
	                          .flow_control = body->flow_control != 0,
	                          .psn = body->psn,
	                          .local_response_timeout = IB_CM_RESPONSE_TIMEOUT,
	                          .retry_count = body->retry_count,
	                          .pkey = COMPAT_PKEY,
	                          .mtu = id->mtu,
	                          .rnr_retry_count = body->rnr_retry_count,
	                          .max_retries = IB_CM_MAX_RETRIES,
	                          .srq = body->srq != 0,
	                          .extended_transport = transport_of(id) == IB_CM_EXTENDED,
	                          .primary = {.local_lid = ETHERNET_LID,
	                                      .remote_lid = ETHERNET_LID,
	                                      .flow_label = id->own_psn & FLOW_LABELS,
	                                      .hop_limit = HOP_LIMIT,
	                                      .traffic_class = id->tos,
	                                      .ack_timeout = cm_ack_timeout(id)}};
	memcpy(req->primary.local_gid, id->sgid.raw, 16);
	memcpy(req->primary.remote_gid, id->dgid.raw, 16);
	private_out(id, body, req->private_data);
}

static int cm_infiniband_ask(struct cm_id *id, const struct cm_message *body)
{
	struct sockaddr_in6 to = id->dst;
	uint64_t service = ib_cm_service(id->space, ntohs(*cm_port_of(&to)));
	struct ib_cm_message request = {
	        .kind = body->kind == CM_SIDR_REQ ? IB_CM_SIDR_REQ : IB_CM_REQ,
	        .transaction_id = prng_secret()}; /* the answer has to repeat it */
	struct ibcm_out out = {0};
	if (id->end == NULL)
		id->end = calloc(1, sizeof(struct ibcm));
	if (id->end == NULL)
		return ENOMEM;
	if (request.kind == IB_CM_REQ) {
		fill_req(id, body, &request.u.req);
		request.u.req.service_id = service;
	} else {
		request.u.sidr_req.request_id = number_of(id);
		request.u.sidr_req.pkey = COMPAT_PKEY;
		request.u.sidr_req.service_id = service;
		private_out(id, body, request.u.sidr_req.private_data);
	}
	ibcm_ask(id->end, &request, cm_now_ns(), &out);
	ibcm_give_up_at(id->end, id->give_up_ns);
	return cm_infiniband_flush(id, &out);
}

static int cm_infiniband_request(struct cm_id *id, struct cm_message *body)
{
	int error = cm_infiniband_ask(id, body);
	cm_wait_manager(id);
	return error;
}

static int cm_infiniband_answer(struct cm_id *id, const struct cm_message *body)
{
	struct ib_cm_message message = {0};
	struct ibcm_out out = {0};
	if (end_of(id)->datagram) {
		message.u.sidr_rep = (struct ib_cm_sidr_rep){
		        .service_id = ib_cm_service(id->space, ntohs(*cm_port_of(&id->src))),
		        .qpn = body->qpn,
		        .qkey = body->qkey};
		memcpy(message.u.sidr_rep.private_data, body->private_data, body->private_length);
	} else {
		message.u.rep = (struct ib_cm_rep){.qpn = body->qpn,
		                                   .psn = body->psn,
		                                   .responder_resources = body->responder_resources,
		                                   .initiator_depth = body->initiator_depth,
		                                   .flow_control = body->flow_control != 0,
		                                   .rnr_retry_count = body->rnr_retry_count,
		                                   .srq = body->srq != 0,
		                                   .ca_guid = limits().guid};
		memcpy(message.u.rep.private_data, body->private_data, body->private_length);
	}
	if (!ibcm_reply(id->end, &message, cm_now_ns(), &out))
		return EINVAL;
	ibcm_give_up_at(id->end, id->give_up_ns);
	return cm_infiniband_flush(id, &out);
}

static int cm_infiniband_reply(struct cm_id *id, struct cm_message *body)
{
	int error = cm_infiniband_answer(id, body);
	if (error == 0 && body->kind == CM_REP)
		cm_infiniband_leave_notice(id);
	cm_wait_manager(id);
	return error;
}

static int cm_infiniband_reject(struct cm_id *id, struct cm_message *body)
{
	struct ibcm_out out = {0};
	ibcm_reject(id->end, (uint16_t)body->status, body->private_data, &out);
	cm_infiniband_flush(id, &out);
	cm_wait_manager(id);
	return 0;
}

static int cm_infiniband_confirm(struct cm_id *id)
{
	struct ibcm_out out = {0};
	ibcm_confirm(id->end, &out);
	cm_infiniband_flush(id, &out);
	cm_infiniband_leave_notice(id);
	cm_wait_manager(id);
	return 0;
}

static int cm_infiniband_disconnect(struct cm_id *id)
{
	struct ibcm_out out = {0};
	ibcm_disconnect(id->end, cm_now_ns(), &out);
	cm_infiniband_flush(id, &out);
	cm_wait_manager(id);
	return 0;
}

static void cm_infiniband_part(struct cm_id *id)
{
	struct ibcm_out out = {0};
	struct ibcm *end = id->end;
	if (end == NULL)
		return;
	if (end->asked) {
		late[next_late].gid = id->dgid;
		late[next_late].transaction_id = end->transaction_id;
		late[next_late].remote_id = end->remote_id;
		late[next_late].until_ns = cm_now_ns() + ib_cm_time_ns(IB_CM_RESPONSE_TIMEOUT) *
		                                                 (IB_CM_MAX_RETRIES + 1);
		next_late = (next_late + 1) % LATE_REQUESTS;
	}
	ibcm_part(end, &out);
	cm_infiniband_flush(id, &out);
	free(end);
	id->end = NULL;
}

static int cm_infiniband_leave(struct cm_id *id)
{
	struct ibcm_out out = {0};
	if (id->end != NULL)
		ibcm_part(id->end, &out);
	return cm_infiniband_flush(id, &out);
}

static void cm_infiniband_forget(struct cm_id *id)
{
	if (id->end != NULL)
		*end_of(id) = (struct ibcm){.state = IBCM_OVER};
}

/* --- receiving --- */

static void from_rep(const struct ib_cm_rep *rep, struct cm_message *body)
{
	*body = (struct cm_message){.kind = CM_REP,
	                            .qpn = rep->qpn,
	                            .psn = rep->psn,
	                            .responder_resources = rep->responder_resources,
	                            .initiator_depth = rep->initiator_depth,
	                            .flow_control = rep->flow_control,
	                            .rnr_retry_count = rep->rnr_retry_count,
	                            .srq = rep->srq,
	                            .private_length = CM_REP_ROOM};
	memcpy(body->private_data, rep->private_data, CM_REP_ROOM);
}

static void from_sidr_rep(const struct ib_cm_sidr_rep *rep, struct cm_message *body)
{
	*body = (struct cm_message){.kind = CM_SIDR_REP,
	                            .status = rep->status,
	                            .qpn = rep->qpn,
	                            .qkey = rep->qkey,
	                            .private_length = CM_SIDR_REP_ROOM};
	memcpy(body->private_data, rep->private_data, CM_SIDR_REP_ROOM);
}

static void from_rej(const struct ib_cm_rej *rej, struct cm_message *body)
{
	*body = (struct cm_message){
	        .kind = CM_REJ, .status = rej->reason, .private_length = CM_REJ_ROOM};
	memcpy(body->private_data, rej->private_data, CM_REJ_ROOM);
}

/* Report to cm/peer.c, in its terms, what happened. */
static void report_event(struct cm_id *id, enum ibcm_event event,
                         const struct ib_cm_message *message)
{
	struct cm_message body = {.kind = CM_RTU};
	switch (event) {
	case IBCM_REPLIED:
		if (message->kind == IB_CM_REP) {
			from_rep(&message->u.rep, &body);
			cm_index_enter(id, CM_BY_QP,
			               cm_qp_key(end_of(id)->remote_guid, end_of(id)->remote_qpn));
		} else
			from_sidr_rep(&message->u.sidr_rep, &body);
		break;
	case IBCM_REJECTED:
		from_rej(&message->u.rej, &body);
		break;
	case IBCM_CONNECTED:
		break;
	case IBCM_DISCONNECTED:
		body.kind = CM_DREQ;
		break;
	case IBCM_UNREACHABLE:
		cm_unreachable(id);
		return;
	case IBCM_EXITED:
		cm_raise(id, CM_TIMEWAIT_EXIT, 0);
		return;
	default:
		return;
	}
	cm_take(id, &body);
}

static uint64_t cm_infiniband_due_ns(const struct cm_id *id)
{
	return id->end != NULL ? end_of(id)->due_ns : 0;
}

static void cm_infiniband_expire(struct cm_id *id)
{
	struct ibcm_out out = {0};
	enum ibcm_event event = ibcm_expire(id->end, cm_now_ns(), &out);
	cm_infiniband_flush(id, &out);
	report_event(id, event, NULL);
	cm_wait_manager(id);
}

static void cm_infiniband_notify(struct cm_id *id)
{
	if (id->end != NULL)
		report_event(id, ibcm_established(id->end), NULL);
}

static void cm_infiniband_deliver(struct cm_id *id, const struct ib_cm_message *message)
{
	struct ibcm_out out = {0};
	enum ibcm_event event = ibcm_receive(id->end, message, cm_now_ns(), &out);
	cm_infiniband_flush(id, &out);
	report_event(id, event, message);
	cm_wait_manager(id);
}

static bool is_late(const struct hdl_gid *gid, const struct ib_cm_message *message)
{
	uint32_t remote_id = message->kind == IB_CM_REQ ? message->u.req.local_id
	                                                : message->u.sidr_req.request_id;
	for (unsigned i = 0; i < LATE_REQUESTS; i++)
		if (late[i].remote_id == remote_id &&
		    late[i].transaction_id == message->transaction_id &&
		    memcmp(late[i].gid.raw, gid->raw, 16) == 0 && cm_now_ns() < late[i].until_ns)
			return true;
	return false;
}

/* The identifier that this request has already created; NULL: the request is new. */
static struct cm_id *known(const struct hdl_gid *gid, const struct ib_cm_message *message)
{
	uint32_t remote_id = message->kind == IB_CM_REQ ? message->u.req.local_id
	                                                : message->u.sidr_req.request_id;
	struct cm_id *id = cm_index_find(CM_BY_PEER, cm_peer_key(gid->raw, remote_id));
	while (id != NULL && (end_of(id) == NULL || !ibcm_is_of(id->end, message) ||
	                      memcmp(id->dgid.raw, gid->raw, 16) != 0))
		id = cm_index_next(id, CM_BY_PEER);
	return id;
}

/* A peer that sends a request from a queue pair that is connected to one of ours has lost that
 * connection (12.9.8.3.1): end it, and the peer may ask again. But only if the request comes from
 * that peer. */
static bool was_stale(const struct hdl_gid *gid, const struct ib_cm_req *req)
{
	struct cm_id *id = cm_index_find(CM_BY_QP, cm_qp_key(req->ca_guid, req->qpn));
	bool found = false;
	for (; id != NULL; id = cm_index_next(id, CM_BY_QP)) {
		const struct ibcm *end = end_of(id);
		if (end == NULL || end->datagram || end->remote_guid != req->ca_guid ||
		    end->remote_qpn != req->qpn || memcmp(id->dgid.raw, gid->raw, 16) != 0 ||
		    (end->state != IBCM_ESTABLISHED && end->state != IBCM_REP_SENT))
			continue;
		found = true;
		cm_disconnect(id);
	}
	return found;
}

static void from_request(const struct ib_cm_message *message, const struct hdl_cm_msg *msg,
                         struct cm_message *body)
{
	const struct ib_cm_req *req = &message->u.req;
	*body = (struct cm_message){.kind = message->kind == IB_CM_REQ ? CM_REQ : CM_SIDR_REQ};
	memcpy(body->sgid, msg->gid.raw, 16);
	memcpy(body->dgid, msg->own.raw, 16);
	if (body->kind == CM_SIDR_REQ) {
		private_in(body, message->u.sidr_req.private_data, IB_CM_SIDR_REQ_PRIVATE_BYTES,
		           msg->port);
		return;
	}
	body->tos = req->primary.traffic_class;
	body->qpn = req->qpn;
	body->psn = req->psn;
	body->qkey = req->qkey;
	body->responder_resources = req->responder_resources;
	body->initiator_depth = req->initiator_depth;
	body->flow_control = req->flow_control;
	body->retry_count = req->retry_count;
	body->rnr_retry_count = req->rnr_retry_count;
	body->srq = req->srq;
	private_in(body, req->private_data, IB_CM_REQ_PRIVATE_BYTES, msg->port);
}

/* What the path in @req allows, from our side. */
static void take_path(struct cm_id *id, const struct ib_cm_req *req)
{
	uint8_t own = (uint8_t)compat_active_mtu(compat_adapter());
	id->mtu = req->mtu >= IBV_MTU_256 && req->mtu < own ? req->mtu : own;
	if (id->ack_timeout == 0)
		id->ack_timeout = req->primary.ack_timeout;
	id->qp_type = req->transport == IB_CM_RC   ? IBV_QPT_RC
	              : req->transport == IB_CM_UC ? IBV_QPT_UC
	                                           : IBV_QPT_XRC_RECV;
}

/* Instead of the address that a request names as its source. */
static void show_sender(struct cm_message *body, const struct hdl_gid *sender)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	uint16_t port = ntohs(*cm_port_of(&body->src));
	bool ipv4 = memcmp(sender->raw, mapped, sizeof(mapped)) == 0;
	ip_address(&body->src, ipv4, sender->raw, port);
}

static void receive_request(const struct hdl_cm_msg *msg, const struct ib_cm_message *message)
{
	bool datagram = message->kind == IB_CM_SIDR_REQ;
	const struct ib_cm_req *req = &message->u.req;
	struct cm_id *child = known(&msg->gid, message);
	struct cm_message body;
	bool listening = true; /* true if there was no memory to find out */
	if (child != NULL) {
		cm_infiniband_deliver(child, message);
		return;
	}
	if (is_late(&msg->gid, message))
		return;
	/* Do not let a request direct our packets to an address that is not its sender's. */
	if (!datagram && memcmp(req->primary.local_gid, msg->gid.raw, 16) != 0) {
		cm_infiniband_refuse(msg, message, INVALID_GID);
		return;
	}
	if (!datagram && (req->transport == IB_CM_RD ||
	                  (req->transport == IB_CM_EXTENDED && req->extended_transport != 1))) {
		cm_infiniband_refuse(msg, message, IB_CM_INVALID_TRANSPORT);
		return;
	}
	if (!datagram && was_stale(&msg->gid, req)) {
		cm_infiniband_refuse(msg, message, IB_CM_STALE_CONNECTION);
		return;
	}
	struct ibcm *end = calloc(1, sizeof(*end));
	struct hdl_cm_msg to = *msg;
	to.guid = to.slot = 0;
	from_request(message, msg, &body);
	if (!cm_may_be_from(&body.src, &msg->gid)) /* it has only its word for that */
		show_sender(&body, &msg->gid);
	if (!cm_local_gid(&body.dst, &to.gid)) /* which of our addresses? */
		to.gid = msg->own;
	child = end != NULL ? cm_take_request(&cm_infiniband, &to, &body, &listening) : NULL;
	if (child == NULL) {
		free(end);
		cm_infiniband_refuse(msg, message,
		                     listening ? IB_CM_NO_RESOURCES : IB_CM_INVALID_SERVICE_ID);
		return;
	}
	child->end = end;
	if (!datagram)
		take_path(child, req);
	ibcm_asked(end, message, number_of(child));
	cm_index_enter(child, CM_BY_PEER, cm_peer_key(msg->gid.raw, end->remote_id));
	if (!datagram)
		cm_index_enter(child, CM_BY_QP, cm_qp_key(end->remote_guid, end->remote_qpn));
}

/* The peer gave up a request: all it can name is its own number. */
static struct cm_id *given_up(const struct hdl_gid *gid, const struct ib_cm_rej *rej)
{
	struct cm_id *id = cm_index_find(CM_BY_PEER, cm_peer_key(gid->raw, rej->local_id));
	for (; id != NULL; id = cm_index_next(id, CM_BY_PEER)) {
		const struct ibcm *end = end_of(id);
		if (end != NULL && end->asked && !end->datagram &&
		    end->remote_id == rej->local_id && memcmp(id->dgid.raw, gid->raw, 16) == 0)
			break;
	}
	return id;
}

void cm_infiniband_receive(const struct hdl_cm_msg *msg)
{
	struct ib_cm_message message;
	uint32_t number;
	uint64_t service;
	struct cm_id *id;
	if (ib_cm_decode(&message, msg->data, msg->length) != IB_CM_OK)
		return;
	if (!ib_cm_addressee(&message, &number, &service)) {
		receive_request(msg, &message);
		return;
	}
	if (message.kind == IB_CM_REJ && number == 0)
		id = given_up(&msg->gid, &message.u.rej);
	else
		id = cm_id_numbered(number & ((1u << CM_NUMBER_BITS) - 1));
	if (id != NULL && end_of(id) != NULL && memcmp(id->dgid.raw, msg->gid.raw, 16) == 0 &&
	    (number == 0 || number_of(id) == number))
		cm_infiniband_deliver(id, &message);
	else if (number != 0)
		cm_infiniband_refuse(msg, &message, IB_CM_INVALID_COMM_ID);
}

const struct cm_manager cm_infiniband = {
        .name = "InfiniBand",
        .across = true,
        .tells_addresses = true,
        .ack_timeout = ACK_TIMEOUT,
        .relisten_ns = RELISTEN_NS,
        .request = cm_infiniband_request,
        .reply = cm_infiniband_reply,
        .reject = cm_infiniband_reject,
        .confirm = cm_infiniband_confirm,
        .disconnect = cm_infiniband_disconnect,
        .notify = cm_infiniband_notify,
        .part = cm_infiniband_part,
        .due_ns = cm_infiniband_due_ns,
        .expire = cm_infiniband_expire,
        .leave_notice = cm_infiniband_leave_notice,
        .leave = cm_infiniband_leave,
        .forget = cm_infiniband_forget,
};
