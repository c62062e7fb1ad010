/* Communication management over a network: see cm/ibcm.h. */
#include "compat/cm/ibcm.h"

#include <string.h>

#define ALTERNATE_PATHS_NOT_SUPPORTED 2u /* status of an APR, table 117 */

/* A time that the peer specifies, with an upper limit. */
static uint64_t at_most(uint8_t exponent, uint8_t most)
{
	return ib_cm_time_ns(exponent < most ? exponent : most);
}

static void cm_ibcm_send(const struct ib_cm_message *message, struct ibcm_out *out)
{
	out->any = true;
	ib_cm_encode(message, out->mad);
}

/* Send it, and keep it for repetition. */
static void send_and_keep(struct ibcm *end, const struct ib_cm_message *message,
                          struct ibcm_out *out)
{
	cm_ibcm_send(message, out);
	memcpy(end->last, out->mad, MAD_BYTES);
	end->has_last = true;
}

static void send_last_again(const struct ibcm *end, struct ibcm_out *out)
{
	if (!end->has_last)
		return;
	out->any = true;
	memcpy(out->mad, end->last, MAD_BYTES);
}

static void wait_until(struct ibcm *end, uint64_t due_ns)
{
	end->due_ns = end->give_up_ns != 0 && end->give_up_ns < due_ns ? end->give_up_ns : due_ns;
}

static void cm_ibcm_await(struct ibcm *end, uint64_t now_ns)
{
	end->tries = end->asked && !end->proven ? IBCM_UNPROVEN_REPEATS : IB_CM_MAX_RETRIES;
	end->pause_ns = end->timeout_ns;
	wait_until(end, now_ns + end->pause_ns);
}

/* Both numbers of the connection are at the same place in all messages except requests and SIDR. */
static struct ib_cm_message cm_ibcm_message_of(const struct ibcm *end, enum ib_cm_kind kind)
{
	struct ib_cm_message message = {.kind = kind, .transaction_id = end->transaction_id};
	message.u.rtu.local_id = end->local_id;
	message.u.rtu.remote_id = end->remote_id;
	return message;
}

/* The TransactionID of our DREQ, which starts an exchange of its own. */
static uint64_t own_exchange(const struct ibcm *end)
{
	return ~end->transaction_id;
}

static void send_drep(const struct ibcm *end, uint64_t transaction_id, struct ibcm_out *out)
{
	struct ib_cm_message drep = cm_ibcm_message_of(end, IB_CM_DREP);
	drep.transaction_id = transaction_id;
	cm_ibcm_send(&drep, out);
}

static void enter_timewait(struct ibcm *end, uint64_t now_ns)
{
	end->state = IBCM_TIMEWAIT;
	end->due_ns = now_ns + end->timewait_ns;
}

static void cm_ibcm_finish(struct ibcm *end)
{
	end->state = IBCM_OVER;
	end->due_ns = 0;
}

/* --- the program's part --- */

void ibcm_ask(struct ibcm *end, const struct ib_cm_message *request, uint64_t now_ns,
              struct ibcm_out *out)
{
	const struct ib_cm_req *req = &request->u.req;
	*end = (struct ibcm){.state = IBCM_REQ_SENT, .transaction_id = request->transaction_id};
	if (request->kind == IB_CM_SIDR_REQ) {
		end->datagram = true;
		end->local_id = request->u.sidr_req.request_id;
		end->timeout_ns = ib_cm_time_ns(IB_CM_RESPONSE_TIMEOUT);
	} else {
		uint64_t path_ns = ib_cm_time_ns(req->primary.ack_timeout); /* there and back */
		end->local_id = req->local_id;
		end->local_qpn = req->qpn;
		end->local_guid = req->ca_guid;
		end->timeout_ns = ib_cm_time_ns(req->remote_response_timeout) + path_ns;
		end->timewait_ns = path_ns;
	}
	cm_ibcm_await(end, now_ns);
	send_and_keep(end, request, out);
}

void ibcm_asked(struct ibcm *end, const struct ib_cm_message *request, uint32_t local_id)
{
	const struct ib_cm_req *req = &request->u.req;
	*end = (struct ibcm){.state = IBCM_REQ_RECEIVED,
	                     .asked = true,
	                     .local_id = local_id,
	                     .transaction_id = request->transaction_id};
	if (request->kind == IB_CM_SIDR_REQ) {
		end->datagram = true;
		end->remote_id = request->u.sidr_req.request_id;
		return;
	}
	uint64_t path_ns = at_most(req->primary.ack_timeout, IBCM_LONGEST_TIMEOUT);
	end->remote_id = req->local_id;
	end->remote_guid = req->ca_guid;
	end->remote_qpn = req->qpn;
	end->timeout_ns = at_most(req->local_response_timeout, IBCM_LONGEST_TIMEOUT) + path_ns;
	end->timewait_ns = path_ns;
}

bool ibcm_is_of(const struct ibcm *end, const struct ib_cm_message *request)
{
	if (!end->asked || end->datagram != (request->kind == IB_CM_SIDR_REQ))
		return false;
	if (end->datagram)
		return end->remote_id == request->u.sidr_req.request_id &&
		       end->transaction_id == request->transaction_id;
	return end->remote_id == request->u.req.local_id &&
	       end->remote_guid == request->u.req.ca_guid &&
	       end->transaction_id == request->transaction_id;
}

bool ibcm_reply(struct ibcm *end, struct ib_cm_message *reply, uint64_t now_ns,
                struct ibcm_out *out)
{
	if (end->state != IBCM_REQ_RECEIVED)
		return false;
	reply->transaction_id = end->transaction_id;
	if (end->datagram) {
		reply->kind = IB_CM_SIDR_REP;
		reply->u.sidr_rep.request_id = end->remote_id;
		cm_ibcm_finish(end);
	} else {
		reply->kind = IB_CM_REP;
		reply->u.rep.local_id = end->local_id;
		reply->u.rep.remote_id = end->remote_id;
		end->local_qpn = reply->u.rep.qpn;
		end->state = IBCM_REP_SENT;
		cm_ibcm_await(end, now_ns);
	}
	send_and_keep(end, reply, out);
	return true;
}

void ibcm_give_up_at(struct ibcm *end, uint64_t give_up_ns)
{
	if (end->state != IBCM_REQ_SENT && end->state != IBCM_REP_SENT)
		return;
	end->give_up_ns = give_up_ns;
	wait_until(end, end->due_ns);
}

bool ibcm_confirm(struct ibcm *end, struct ibcm_out *out)
{
	if (end->state != IBCM_REP_RECEIVED)
		return false;
	struct ib_cm_message rtu = cm_ibcm_message_of(end, IB_CM_RTU);
	end->state = IBCM_ESTABLISHED;
	send_and_keep(end, &rtu, out);
	return true;
}

static void send_rej(struct ibcm *end, enum ib_cm_about about, uint16_t reason,
                     const uint8_t *private_data, struct ibcm_out *out)
{
	struct ib_cm_message rej = cm_ibcm_message_of(end, IB_CM_REJ);
	rej.u.rej.about = (uint8_t)about;
	rej.u.rej.reason = reason;
	if (private_data != NULL)
		memcpy(rej.u.rej.private_data, private_data, IB_CM_REJ_PRIVATE_BYTES);
	send_and_keep(end, &rej, out);
	out->last = true;
}

bool ibcm_reject(struct ibcm *end, uint16_t reason, const uint8_t *private_data,
                 struct ibcm_out *out)
{
	if (end->state != IBCM_REQ_RECEIVED && end->state != IBCM_REP_RECEIVED)
		return false;
	if (end->datagram) {
		struct ib_cm_message rep = {.kind = IB_CM_SIDR_REP,
		                            .transaction_id = end->transaction_id};
		rep.u.sidr_rep.request_id = end->remote_id;
		rep.u.sidr_rep.status = (uint8_t)reason;
		if (private_data != NULL)
			memcpy(rep.u.sidr_rep.private_data, private_data,
			       IB_CM_SIDR_REP_PRIVATE_BYTES);
		send_and_keep(end, &rep, out);
		out->last = true;
	} else {
		send_rej(end, end->asked ? IB_CM_ABOUT_REQ : IB_CM_ABOUT_REP, reason, private_data,
		         out);
	}
	cm_ibcm_finish(end);
	return true;
}

bool ibcm_disconnect(struct ibcm *end, uint64_t now_ns, struct ibcm_out *out)
{
	if (end->state != IBCM_ESTABLISHED && end->state != IBCM_REP_SENT)
		return false;
	struct ib_cm_message dreq = cm_ibcm_message_of(end, IB_CM_DREQ);
	dreq.transaction_id = own_exchange(end);
	dreq.u.dreq.remote_qpn = end->remote_qpn;
	end->state = IBCM_DREQ_SENT;
	end->give_up_ns = 0;
	cm_ibcm_await(end, now_ns);
	send_and_keep(end, &dreq, out);
	return true;
}

enum ibcm_event ibcm_established(struct ibcm *end)
{
	if (end->state != IBCM_REP_SENT)
		return IBCM_NOTHING;
	end->state = IBCM_ESTABLISHED;
	end->proven = true;
	end->due_ns = 0;
	end->has_last = false;
	return IBCM_CONNECTED;
}

/* We no longer wait for the answer to our request. The peer identifies the request by our GUID,
 * since it may not have sent us its number yet (table 109, reason 4). For datagrams there is no
 * such message. */
static void take_back(struct ibcm *end, struct ibcm_out *out)
{
	struct ib_cm_message rej = cm_ibcm_message_of(end, IB_CM_REJ);
	rej.u.rej.about = IB_CM_ABOUT_REQ;
	rej.u.rej.reason = IB_CM_TIMEOUT;
	rej.u.rej.info_bytes = sizeof(end->local_guid);
	for (unsigned i = 0; i < sizeof(end->local_guid); i++)
		rej.u.rej.info[i] = (uint8_t)(end->local_guid >> (56 - 8 * i));
	send_and_keep(end, &rej, out);
	out->last = true;
}

void ibcm_part(struct ibcm *end, struct ibcm_out *out)
{
	if (end->state == IBCM_REQ_SENT && !end->datagram) {
		take_back(end, out);
	} else if (end->state == IBCM_REP_SENT) { /* sent once: there may be nobody */
		send_rej(end, IB_CM_ABOUT_OTHER, IB_CM_CONSUMER, NULL, out);
	} else if (!ibcm_reject(end,
	                        end->datagram ? (uint16_t)IB_CM_SIDR_REJECT
	                                      : (uint16_t)IB_CM_CONSUMER,
	                        NULL, out)) {
		if (end->state == IBCM_DREQ_SENT)
			send_last_again(end, out);
		else
			ibcm_disconnect(end, 0, out);
		out->last = out->any;
	}
	cm_ibcm_finish(end);
}

/* --- the peer's part --- */

/* Ask for more time: the program has not decided yet. */
static void send_mra(const struct ibcm *end, enum ib_cm_about about, struct ibcm_out *out)
{
	struct ib_cm_message mra = cm_ibcm_message_of(end, IB_CM_MRA);
	mra.u.mra.about = (uint8_t)about;
	mra.u.mra.service_timeout = IBCM_SERVICE_TIMEOUT;
	cm_ibcm_send(&mra, out);
}

/* The request was repeated, so it, or our answer, was probably lost. */
static void receive_request_again(const struct ibcm *end, struct ibcm_out *out)
{
	if (end->state == IBCM_REQ_RECEIVED && !end->datagram) {
		send_mra(end, IB_CM_ABOUT_REQ, out);
	} else if (end->state == IBCM_REP_SENT || end->state == IBCM_OVER) {
		send_last_again(end, out);
	}
}

static enum ibcm_event receive_reply(struct ibcm *end, const struct ib_cm_message *message,
                                     struct ibcm_out *out)
{
	const struct ib_cm_rep *rep = &message->u.rep;
	/* Repeated: our RTU or our REJ was lost. */
	if ((end->state == IBCM_ESTABLISHED || end->state == IBCM_OVER) && !end->asked)
		send_last_again(end, out);
	if (end->state == IBCM_REP_RECEIVED)
		send_mra(end, IB_CM_ABOUT_REP, out);
	if (end->state != IBCM_REQ_SENT || end->datagram)
		return IBCM_NOTHING;
	end->state = IBCM_REP_RECEIVED;
	end->due_ns = 0;
	end->remote_id = rep->local_id;
	end->remote_qpn = rep->qpn;
	end->remote_guid = rep->ca_guid;
	return IBCM_REPLIED;
}

/* A peer that gave up its request does not know our number, so the REJ has none (12.6.7.2, reason
 * 4). */
static bool names_us(const struct ib_cm_rej *rej)
{
	return rej->remote_id != 0;
}

/* 12.9.7: the other end gives up a connection that is not established yet. On an established
 * connection only the active side can get a REJ, from a peer that our RTU never reached; a side
 * that has sent an RTU uses DREQ. */
static enum ibcm_event receive_rejection(struct ibcm *end, const struct ib_cm_rej *rej,
                                         uint64_t now_ns)
{
	switch (end->state) {
	case IBCM_REQ_SENT:
		if (rej->about != IB_CM_ABOUT_REQ)
			return IBCM_NOTHING;
		break;
	case IBCM_REQ_RECEIVED: /* the peer gave up */
	case IBCM_REP_SENT:
		if (!names_us(rej) && rej->reason != IB_CM_TIMEOUT)
			return IBCM_NOTHING;
		break;
	case IBCM_REP_RECEIVED:
		if (!names_us(rej))
			return IBCM_NOTHING;
		break;
	case IBCM_ESTABLISHED:
		if (end->asked || !names_us(rej) || rej->about == IB_CM_ABOUT_REQ)
			return IBCM_NOTHING;
		enter_timewait(end, now_ns);
		return IBCM_DISCONNECTED;
	case IBCM_DREQ_SENT:
		if (!names_us(rej))
			return IBCM_NOTHING;
		enter_timewait(end, now_ns);
		return IBCM_DISCONNECTED;
	default:
		return IBCM_NOTHING;
	}
	end->has_last = false;
	cm_ibcm_finish(end);
	return IBCM_REJECTED;
}

/* The peer needs more time: wait for as long as it says, and start to count our tries again. The
 * time at which the program gives up does not change. */
static void receive_mra(struct ibcm *end, const struct ib_cm_mra *mra, uint64_t now_ns)
{
	bool ours = end->state == IBCM_REQ_SENT   ? mra->about == IB_CM_ABOUT_REQ
	            : end->state == IBCM_REP_SENT ? mra->about == IB_CM_ABOUT_REP
	                                          : false;
	if (!ours || end->datagram)
		return;
	end->proven = true;
	cm_ibcm_await(end, now_ns);
	wait_until(end,
	           now_ns + end->timeout_ns + at_most(mra->service_timeout, IBCM_SERVICE_TIMEOUT));
}

static enum ibcm_event receive_dreq(struct ibcm *end, const struct ib_cm_message *message,
                                    uint64_t now_ns, struct ibcm_out *out)
{
	if (message->u.dreq.remote_qpn != end->local_qpn)
		return IBCM_NOTHING;
	switch (end->state) {
	case IBCM_REP_SENT: /* the RTU was lost */
	case IBCM_ESTABLISHED:
	case IBCM_DREQ_SENT:
		send_drep(end, message->transaction_id, out);
		enter_timewait(end, now_ns);
		return IBCM_DISCONNECTED;
	case IBCM_TIMEWAIT:
	case IBCM_OVER:
		send_drep(end, message->transaction_id, out);
		return IBCM_NOTHING;
	default:
		return IBCM_NOTHING;
	}
}

static enum ibcm_event receive_sidr_reply(struct ibcm *end)
{
	if (end->state != IBCM_REQ_SENT || !end->datagram)
		return IBCM_NOTHING;
	cm_ibcm_finish(end);
	return IBCM_REPLIED;
}

static void receive_lap(const struct ibcm *end, const struct ib_cm_message *message,
                        struct ibcm_out *out)
{
	if (end->state != IBCM_ESTABLISHED || message->u.lap.remote_qpn != end->local_qpn)
		return;
	struct ib_cm_message apr = cm_ibcm_message_of(end, IB_CM_APR);
	apr.transaction_id = message->transaction_id;
	apr.u.apr.status = ALTERNATE_PATHS_NOT_SUPPORTED;
	cm_ibcm_send(&apr, out);
}

/* Does @message come from the end that we are connected to? It must contain what nobody else knows:
 * see ibcm_receive(). Before a REP the peer's number is not known, and the peer may not have one
 * yet: a REJ or an MRA then identifies the request by its TransactionID alone. A REP may still
 * arrive for a request that we have given up. */
static bool is_from_peer(const struct ibcm *end, const struct ib_cm_message *message)
{
	bool same_exchange = message->transaction_id == end->transaction_id;
	bool same_peer = message->u.rtu.local_id == end->remote_id;
	switch (message->kind) {
	case IB_CM_SIDR_REP: /* maybe for a request that was given up before this one */
		return same_exchange;
	case IB_CM_DREQ:
	case IB_CM_LAP: /* exchanges that the peer starts; the functions for them compare our queue
	                   pair */
		return same_peer && end->remote_id != 0;
	case IB_CM_DREP:
		return same_peer && message->transaction_id == own_exchange(end);
	default:
		return same_exchange && (same_peer || end->state == IBCM_REQ_SENT ||
		                         (message->kind == IB_CM_REP && end->remote_id == 0));
	}
}

enum ibcm_event ibcm_receive(struct ibcm *end, const struct ib_cm_message *message, uint64_t now_ns,
                             struct ibcm_out *out)
{
	if (message->kind == IB_CM_REQ || message->kind == IB_CM_SIDR_REQ) {
		if (ibcm_is_of(end, message))
			receive_request_again(end, out);
		return IBCM_NOTHING;
	}
	if (!is_from_peer(end, message) || (end->datagram && message->kind != IB_CM_SIDR_REP))
		return IBCM_NOTHING;
	switch (message->kind) {
	case IB_CM_MRA:
		receive_mra(end, &message->u.mra, now_ns);
		return IBCM_NOTHING;
	case IB_CM_REJ:
		return receive_rejection(end, &message->u.rej, now_ns);
	case IB_CM_REP:
		return receive_reply(end, message, out);
	case IB_CM_RTU:
		return ibcm_established(end);
	case IB_CM_DREQ:
		return receive_dreq(end, message, now_ns, out);
	case IB_CM_DREP:
		if (end->state != IBCM_DREQ_SENT)
			return IBCM_NOTHING;
		enter_timewait(end, now_ns);
		return IBCM_DISCONNECTED;
	case IB_CM_SIDR_REP:
		return receive_sidr_reply(end);
	case IB_CM_LAP:
		receive_lap(end, message, out);
		return IBCM_NOTHING;
	default: /* an APR: we never request another path */
		return IBCM_NOTHING;
	}
}

enum ibcm_event ibcm_expire(struct ibcm *end, uint64_t now_ns, struct ibcm_out *out)
{
	if (end->due_ns == 0 || now_ns < end->due_ns)
		return IBCM_NOTHING;
	if (end->state == IBCM_TIMEWAIT) {
		cm_ibcm_finish(end);
		end->has_last = false;
		return IBCM_EXITED;
	}
	bool in_time = end->give_up_ns == 0 || now_ns < end->give_up_ns;
	if (end->tries > 0 && in_time) {
		end->tries--;
		if (end->asked && !end->proven)
			end->pause_ns *= 2;
		wait_until(end, now_ns + end->pause_ns);
		send_last_again(end, out);
		return IBCM_NOTHING;
	}
	if (end->give_up_ns != 0 && in_time) { /* an answer may still come */
		end->due_ns = end->give_up_ns;
		return IBCM_NOTHING;
	}
	if (end->state == IBCM_DREQ_SENT) {
		enter_timewait(end, now_ns);
		return IBCM_DISCONNECTED;
	}
	if (end->state == IBCM_REP_SENT)
		send_rej(end, IB_CM_ABOUT_OTHER, IB_CM_TIMEOUT, NULL, out);
	else if (!end->datagram)
		take_back(end, out);
	else
		end->has_last = false;
	cm_ibcm_finish(end);
	return IBCM_UNREACHABLE;
}
