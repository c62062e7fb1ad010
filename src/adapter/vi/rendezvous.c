/* How virtual interfaces find each other by name: the calls of the two sides. See vi.h. */
#include <stdlib.h>
#include <string.h>

#include "adapter/adapter.h"
#include "base/clock.h"

#define REPEAT_NS 1000000000u /* a message that is not answered is sent again after this time */
#define AGAIN_NS  20000000u   /* a name that nobody has is looked up again after this time */
#define ACK_TIME  14u         /* of connections: 67 ms */
#define RETRIES   7u
#define RNR_TIMER 20u /* 10 ms */

/* --- listening --- */

static bool vi_may_talk(const struct hdl_adapter *adapter)
{
	return adapter->agent.on_node && adapter->drive.has_thread;
}

/* Take the name and the first free port that it may have. Returns 0 or an error. */
static int vi_take_name(struct hdl_vi_listener *listener)
{
	struct hdl_adapter *adapter = listener->adapter;
	uint16_t only = 1;
	listener->name_key = vi_name_key(listener->name, listener->name_bytes);
	int taken = hdl_cm_bind(adapter, VI_NAMES, &listener->name_key, &only, HDL_CM_DEAF);
	if (taken != 0)
		return taken;
	int result = -HDL_EADDRINUSE;
	for (uint32_t probe = 0; result == -HDL_EADDRINUSE && probe < VI_PROBES; probe++) {
		listener->port = vi_name_port(listener->name, listener->name_bytes, probe);
		result = hdl_cm_bind(adapter, VI_SPACE, NULL, &listener->port,
		                     HDL_CM_IPV4 | HDL_CM_IPV6 | HDL_CM_DEAF);
	}
	if (result != 0)
		hdl_cm_unbind(adapter, VI_NAMES, &listener->name_key, only, HDL_CM_DEAF);
	return result;
}

static void vi_give_up_name(const struct hdl_vi_listener *listener)
{
	struct hdl_adapter *adapter = listener->adapter;
	hdl_cm_unbind(adapter, VI_SPACE, NULL, listener->port, HDL_CM_IPV4 | HDL_CM_IPV6);
	hdl_cm_unbind(adapter, VI_NAMES, &listener->name_key, 1, HDL_CM_DEAF);
}

int hdl_vi_listen(struct hdl_adapter *adapter, const char *name, struct hdl_vi *vi,
                  struct hdl_vi_listener **out)
{
	size_t bytes = vi_name_length(name);
	if (adapter == NULL || adapter->magic != MAGIC_ADAPTER || bytes == 0 || out == NULL ||
	    (vi != NULL && (vi->magic != MAGIC_VI || vi->pd->adapter != adapter ||
	                    (vi->attr.channel & HDL_VI_CONNECTED) != 0)))
		return -HDL_EINVAL;
	if (!vi_may_talk(adapter))
		return -HDL_ENOTSUP;
	struct hdl_vi_listener *listener = calloc(1, sizeof(*listener));
	if (listener == NULL)
		return -HDL_ENOMEM;
	listener->magic = MAGIC_VI_LISTENER;
	listener->adapter = adapter;
	listener->vi = vi;
	listener->name_bytes = (uint8_t)bytes;
	memcpy(listener->name, name, bytes);
	int result = vi_take_name(listener);
	if (result != 0) {
		free(listener);
		return result;
	}
	pthread_mutex_lock(&adapter->vis.lock);
	listener->next = adapter->vis.listeners;
	adapter->vis.listeners = listener;
	if (vi != NULL)
		vi->users++;
	pthread_mutex_unlock(&adapter->vis.lock);
	hdl_cm_listen(adapter, VI_SPACE, NULL, listener->port, HDL_CM_IPV4 | HDL_CM_IPV6);
	*out = listener;
	return 0;
}

int hdl_vi_unlisten(struct hdl_vi_listener *listener)
{
	if (listener == NULL || listener->magic != MAGIC_VI_LISTENER)
		return -HDL_EINVAL;
	struct hdl_adapter *adapter = listener->adapter;
	pthread_mutex_lock(&adapter->vis.lock);
	struct hdl_vi_listener **at = &adapter->vis.listeners;
	while (*at != listener)
		at = &(*at)->next;
	*at = listener->next;
	if (listener->vi != NULL)
		listener->vi->users--;
	for (uint32_t i = 0; i < listener->count; i++)
		vi_reject(adapter, &listener->requests[i].from, 0,
		          listener->requests[i].transaction, IB_CM_CONSUMER, 0);
	pthread_mutex_unlock(&adapter->vis.lock);
	vi_give_up_name(listener);
	listener->magic = 0;
	free(listener);
	return 0;
}

/* --- connecting --- */

static uint64_t vi_deadline(int timeout_ms)
{
	return timeout_ms < 0 ? UINT64_MAX : clock_now_ns() + (uint64_t)timeout_ms * 1000000u;
}

/* A number for a connection of @vi, in which the agent finds our process, and the PSN that the peer
 * begins with. With vis.lock. */
static void vi_number(struct hdl_vi *vi)
{
	struct hdl_adapter *adapter = vi->pd->adapter;
	uint32_t low = adapter->vis.next_id++ & (VI_ID_BIT - 1);
	vi->id = adapter->slot << AGENT_CM_ID_BITS | VI_ID_BIT | low;
	adapter_lock(adapter);
	vi->rq_psn = (uint32_t)prng_next(&adapter->prng) & 0xffffff;
	adapter_unlock(adapter);
}

/* Take the queue pair to RTS, connected to vi->far. Without a lock: may wait for the agent. */
static int vi_ready(struct hdl_vi *vi)
{
	bool reliable = (vi->attr.channel & HDL_VI_ACKNOWLEDGED) != 0;
	struct hdl_qp_attr attr = {.state = HDL_QPS_RTR,
	                           .path_mtu = vi->far.mtu,
	                           .dest_qpn = vi->far.qpn,
	                           .rq_psn = vi->rq_psn,
	                           .sq_psn = vi->far.psn,
	                           .timeout = ACK_TIME,
	                           .retry_cnt = RETRIES,
	                           .rnr_retry = VI_RNR_RETRY,
	                           .min_rnr_timer = RNR_TIMER,
	                           .max_rd_atomic = VI_READ_DEPTH,
	                           .max_dest_rd_atomic = VI_READ_DEPTH,
	                           .ah = {.dgid = vi->far.gid, .is_global = true, .port_num = 1}};
	memcpy(attr.ah.dmac, vi->far.mac, sizeof(attr.ah.dmac));
	int result = hdl_qp_modify(
	        vi->qp, &attr,
	        HDL_QP_STATE | HDL_QP_AV | HDL_QP_PATH_MTU | HDL_QP_DEST_QPN | HDL_QP_RQ_PSN |
	                (reliable ? HDL_QP_MAX_DEST_RD_ATOMIC | HDL_QP_MIN_RNR_TIMER : 0u));
	attr.state = HDL_QPS_RTS;
	if (result == 0)
		result = hdl_qp_modify(vi->qp, &attr,
		                       HDL_QP_STATE | HDL_QP_SQ_PSN |
		                               (reliable ? HDL_QP_TIMEOUT | HDL_QP_RETRY_CNT |
		                                                   HDL_QP_RNR_RETRY |
		                                                   HDL_QP_MAX_RD_ATOMIC
		                                         : 0u));
	return result;
}

static uint8_t mtu_code(uint16_t mtu)
{
	uint8_t code = 1;
	while (code < 5 && 128u << (code + 1) <= mtu)
		code++;
	return code;
}

static uint8_t vi_transport(const struct hdl_vi *vi)
{
	return (vi->attr.channel & HDL_VI_ACKNOWLEDGED) != 0 ? IB_CM_RC : IB_CM_UC;
}

/* Does a thread have to wait any longer? With vis.lock. */
static bool vi_wait_change(struct hdl_adapter *adapter, uint64_t end)
{
	if (end != UINT64_MAX)
		return clock_cond_wait(&adapter->vis.changed, &adapter->vis.lock, end);
	pthread_cond_wait(&adapter->vis.changed, &adapter->vis.lock);
	return true;
}

/* Where requests to the node @gid go. Without a lock. */
static int vi_locate(struct hdl_adapter *adapter, const struct hdl_gid *gid, struct vi_far *to)
{
	uint16_t lid;
	*to = (struct vi_far){.gid = *gid};
	int result = hdl_node_find(adapter, gid, &lid);
	if (result != -HDL_EHOSTUNREACH)
		return result;
	to->on_wire = true;
	return adapter->net.port_count > 0 ? 0 : -HDL_EHOSTUNREACH;
}

/* A REQ or SIDR_REQ of @vi to the @probe-th port of @name. With vis.lock. */
static struct ib_cm_message vi_question(const struct hdl_vi *vi, uint16_t port, const char *name,
                                        const struct hdl_gid *gid)
{
	const struct hdl_adapter *adapter = vi->pd->adapter;
	struct ib_cm_message question = {.kind = IB_CM_REQ, .transaction_id = vi->transaction};
	uint64_t service = ib_cm_service(VI_SPACE, port);
	size_t bytes = vi_name_length(name);
	uint8_t cells = wire_speaks_cells(&adapter->net, vi->attr.packets) ? VI_HELLO_CELLS : 0;
	if (vi->descriptors.addressed) {
		question.kind = IB_CM_SIDR_REQ;
		question.u.sidr_req = (struct ib_cm_sidr_req){
		        .request_id = vi->id, .pkey = 0xffff, .service_id = service};
		uint8_t *data = question.u.sidr_req.private_data;
		vi_hello_encode(data, name, bytes, (uint8_t)(VI_HELLO_DATAGRAM | cells));
		vi_self_encode(data + VI_HELLO_BYTES, adapter->guid, vi->qp->qp.qpn, vi->qkey,
		               &adapter->engine.gid);
		return question;
	}
	question.u.req = (struct ib_cm_req){.local_id = vi->id,
	                                    .service_id = service,
	                                    .ca_guid = adapter->guid,
	                                    .qpn = vi->qp->qp.qpn,
	                                    .responder_resources = VI_READ_DEPTH,
	                                    .initiator_depth = VI_READ_DEPTH,
	                                    .remote_response_timeout = IB_CM_RESPONSE_TIMEOUT,
	                                    .transport = vi_transport(vi),
	                                    .psn = vi->rq_psn,
	                                    .local_response_timeout = IB_CM_RESPONSE_TIMEOUT,
	                                    .retry_count = RETRIES,
	                                    .pkey = 0xffff,
	                                    .mtu = mtu_code(net_mtu(adapter)),
	                                    .rnr_retry_count = VI_RNR_RETRY,
	                                    .max_retries = IB_CM_MAX_RETRIES};
	memcpy(question.u.req.primary.local_gid, adapter->engine.gid.raw, IB_GID_BYTES);
	memcpy(question.u.req.primary.remote_gid, gid->raw, IB_GID_BYTES);
	vi_hello_encode(question.u.req.private_data, name, bytes, cells);
	return question;
}

/* Ask the @probe-th port of @name until somebody answers or @end has come. With vis.lock. */
static enum vi_answer vi_ask(struct hdl_vi *vi, const struct vi_far *to, const char *name,
                             uint32_t probe, uint64_t end)
{
	struct hdl_adapter *adapter = vi->pd->adapter;
	uint16_t port = vi_name_port(name, vi_name_length(name), probe);
	vi->transaction++;
	vi->answer = VI_UNANSWERED;
	vi->far = *to;
	struct ib_cm_message question = vi_question(vi, port, name, &to->gid);
	for (uint64_t now; vi->answer == VI_UNANSWERED && (now = clock_now_ns()) < end;) {
		struct hdl_cm_msg msg = {.port = port, .to_port = to->on_wire ? 0 : 1};
		if (vi_send(adapter, to, &msg, &question) != 0)
			return VI_UNREACHABLE;
		uint64_t again = end - now > REPEAT_NS ? now + REPEAT_NS : end;
		while (vi->answer == VI_UNANSWERED && vi_wait_change(adapter, again))
			;
	}
	return (enum vi_answer)vi->answer;
}

/* Nobody waits for the answer to the last request any more: the listener may forget it. */
static void vi_withdraw(const struct hdl_vi *vi, const struct vi_far *to, const char *name,
                        uint32_t probe)
{
	struct ib_cm_message rej = {
	        .kind = IB_CM_REJ,
	        .transaction_id = vi->transaction,
	        .u.rej = {.local_id = vi->id, .about = IB_CM_ABOUT_OTHER, .reason = IB_CM_TIMEOUT}};
	struct hdl_cm_msg msg = {.port = vi_name_port(name, vi_name_length(name), probe),
	                         .to_port = to->on_wire ? 0 : 1};
	vi_send(vi->pd->adapter, to, &msg, &rej);
}

/* Ask all ports that @name may have, again and again, until it is found. With vis.lock. */
static int vi_find(struct hdl_vi *vi, const struct vi_far *to, const char *name, uint64_t end)
{
	struct hdl_adapter *adapter = vi->pd->adapter;
	uint32_t probe = 0;
	for (;;) {
		switch (vi_ask(vi, to, name, probe, end)) {
		case VI_ACCEPTED:
			return 0;
		case VI_REFUSED:
			return -HDL_ECONNREFUSED;
		case VI_UNREACHABLE:
			return -HDL_EHOSTUNREACH;
		case VI_UNANSWERED:
			vi_withdraw(vi, to, name, probe);
			return -HDL_ETIMEDOUT;
		default:
			break;
		}
		probe = (probe + 1) % VI_PROBES;
		uint64_t now = clock_now_ns(), again = now + AGAIN_NS;
		if (probe == 0) /* it is not there yet */
			while (vi_wait_change(adapter, again < end ? again : end))
				;
		if (clock_now_ns() >= end)
			return -HDL_ETIMEDOUT;
	}
}

static bool vi_judge_call(const struct hdl_vi *vi, const struct hdl_gid *gid, const char *name)
{
	return vi != NULL && vi->magic == MAGIC_VI && gid != NULL && vi_name_length(name) > 0;
}

/* The attempt to connect has ended with @result. With vis.lock, which is released meanwhile if it
 * has failed. */
static int vi_settle(struct hdl_vi *vi, int result)
{
	struct vis *vis = &vi->pd->adapter->vis;
	vi->asking = vi->offering = false;
	if (result == 0) {
		if (vi->state == HDL_VI_CONNECTING)
			vi->state = HDL_VI_READY;
		return 0;
	}
	vi->id = 0;
	pthread_mutex_unlock(&vis->lock); /* for the order of locks */
	pthread_mutex_lock(&vi->post_locks[HDL_VI_SEND_QUEUE]);
	pthread_mutex_lock(&vi->post_locks[HDL_VI_RECEIVE_QUEUE]);
	pthread_mutex_lock(&vis->lock);
	if (qp_state(&vi->qp->qp) != HDL_QPS_INIT) { /* receives stay posted otherwise */
		vi_fail(vi);
		vi_reset(vi);
	}
	vi->state = HDL_VI_IDLE;
	pthread_mutex_unlock(&vi->post_locks[HDL_VI_RECEIVE_QUEUE]);
	pthread_mutex_unlock(&vi->post_locks[HDL_VI_SEND_QUEUE]);
	return result;
}

int hdl_vi_connect(struct hdl_vi *vi, const struct hdl_gid *gid, const char *name, int timeout_ms)
{
	if (!vi_judge_call(vi, gid, name))
		return -HDL_EINVAL;
	struct hdl_adapter *adapter = vi->pd->adapter;
	uint64_t end = vi_deadline(timeout_ms);
	struct vi_far to;
	if (!vi_may_talk(adapter))
		return -HDL_ENOTSUP;
	int result = vi_locate(adapter, gid, &to);
	if (result != 0)
		return result;
	pthread_mutex_lock(&adapter->vis.lock);
	if (vi->state != HDL_VI_IDLE) {
		pthread_mutex_unlock(&adapter->vis.lock);
		return -HDL_EPERM;
	}
	vi->state = HDL_VI_CONNECTING;
	vi_number(vi);
	vi->asking = true;
	result = vi_find(vi, &to, name, end);
	vi->asking = false;
	pthread_mutex_unlock(&adapter->vis.lock);
	if (result == 0)
		result = vi_ready(vi);
	pthread_mutex_lock(&adapter->vis.lock);
	if (result == 0 && vi->answer != VI_ACCEPTED) /* it left meanwhile */
		result = -HDL_ECONNREFUSED;
	struct ib_cm_message message = {.kind = IB_CM_RTU,
	                                .transaction_id = vi->transaction,
	                                .u.rtu = {.local_id = vi->id, .remote_id = vi->far.id}};
	if (result == 0) {
		vi_leave_notice(vi);
		vi_tell(adapter, &vi->far, &message);
	} else if (vi->answer == VI_ACCEPTED) {
		vi_reject(adapter, &vi->far, vi->id, vi->transaction, IB_CM_CONSUMER, 0);
	}
	result = vi_settle(vi, result);
	pthread_mutex_unlock(&adapter->vis.lock);
	return result;
}

int hdl_vi_resolve(struct hdl_vi *vi, const struct hdl_gid *gid, const char *name, int timeout_ms,
                   struct hdl_vi_destination *to)
{
	if (!vi_judge_call(vi, gid, name) || to == NULL)
		return -HDL_EINVAL;
	if (!vi->descriptors.addressed)
		return -HDL_EPERM;
	struct hdl_adapter *adapter = vi->pd->adapter;
	uint64_t end = vi_deadline(timeout_ms);
	struct vi_far far;
	if (!vi_may_talk(adapter))
		return -HDL_ENOTSUP;
	int result = vi_locate(adapter, gid, &far);
	if (result != 0)
		return result;
	pthread_mutex_lock(&adapter->vis.lock);
	while (vi->asking) /* another thread asks for the same VI */
		vi_wait_change(adapter, UINT64_MAX);
	vi_number(vi);
	vi->asking = true;
	result = vi_find(vi, &far, name, end);
	vi->asking = false;
	vi->id = 0;
	pthread_cond_broadcast(&adapter->vis.changed);
	if (result == 0 && !vi_know(vi, &vi->found))
		result = -HDL_ENOMEM;
	if (result == 0) {
		*to = (struct hdl_vi_destination){.qpn = vi->found.qpn};
		memcpy(to->mac, vi->found.mac, sizeof(to->mac));
	}
	pthread_mutex_unlock(&adapter->vis.lock);
	return result;
}

/* --- accepting --- */

/* The oldest request for a VI like @vi; those of other kinds are refused. With vis.lock. */
static bool vi_take_request(struct hdl_vi_listener *listener, const struct hdl_vi *vi,
                            struct vi_request *out)
{
	while (listener->count > 0) {
		*out = listener->requests[0];
		vi_drop_request(listener, 0);
		if (out->transport == vi_transport(vi) && vi_same_wire(vi, out->cells, &out->from))
			return true;
		vi_reject(listener->adapter, &out->from, 0, out->transaction,
		          IB_CM_INVALID_TRANSPORT, 0);
	}
	return false;
}

static struct ib_cm_message vi_offer(const struct hdl_vi *vi)
{
	return (struct ib_cm_message){.kind = IB_CM_REP,
	                              .transaction_id = vi->transaction,
	                              .u.rep = {.local_id = vi->id,
	                                        .remote_id = vi->far.id,
	                                        .qpn = vi->qp->qp.qpn,
	                                        .psn = vi->rq_psn,
	                                        .responder_resources = VI_READ_DEPTH,
	                                        .initiator_depth = VI_READ_DEPTH,
	                                        .rnr_retry_count = VI_RNR_RETRY,
	                                        .ca_guid = vi->pd->adapter->guid}};
}

/* Connect @vi to @request. With vis.lock, which is released meanwhile. */
static int vi_answer(struct hdl_vi *vi, const struct vi_request *request, uint64_t end)
{
	struct hdl_adapter *adapter = vi->pd->adapter;
	vi_number(vi);
	vi->far = request->from;
	vi->transaction = request->transaction;
	vi->answer = VI_UNANSWERED;
	pthread_mutex_unlock(&adapter->vis.lock);
	int result = vi_ready(vi);
	pthread_mutex_lock(&adapter->vis.lock);
	if (result != 0) {
		vi_reject(adapter, &vi->far, vi->id, vi->transaction, IB_CM_NO_RESOURCES, 0);
		return result;
	}
	struct ib_cm_message rep = vi_offer(vi);
	memcpy(rep.u.rep.private_data, adapter->engine.gid.raw, IB_GID_BYTES);
	vi->offering = true;
	vi_leave_notice(vi);
	for (uint64_t now; vi->answer == VI_UNANSWERED && (now = clock_now_ns()) < end;) {
		vi_tell(adapter, &vi->far, &rep);
		uint64_t again = end - now > REPEAT_NS ? now + REPEAT_NS : end;
		while (vi->answer == VI_UNANSWERED && vi_wait_change(adapter, again))
			;
	}
	if (vi->answer == VI_ACCEPTED)
		return 0;
	vi_reject(adapter, &vi->far, vi->id, vi->transaction, IB_CM_TIMEOUT,
	          0); /* forgets the notice */
	return vi->answer == VI_UNANSWERED ? -HDL_ETIMEDOUT : 1;
}

int hdl_vi_accept(struct hdl_vi_listener *listener, struct hdl_vi *vi, int timeout_ms)
{
	if (listener == NULL || listener->magic != MAGIC_VI_LISTENER || vi == NULL ||
	    vi->magic != MAGIC_VI || vi->pd->adapter != listener->adapter || listener->vi != NULL ||
	    vi->descriptors.addressed)
		return -HDL_EINVAL;
	struct hdl_adapter *adapter = listener->adapter;
	uint64_t end = vi_deadline(timeout_ms);
	struct vi_request request;
	int result = 1; /* the peer has given up: wait for the next */
	pthread_mutex_lock(&adapter->vis.lock);
	if (vi->state != HDL_VI_IDLE)
		result = -HDL_EPERM;
	while (result == 1) {
		vi->state = HDL_VI_CONNECTING;
		bool found = vi_take_request(listener, vi, &request);
		while (!found && vi_wait_change(adapter, end))
			found = vi_take_request(listener, vi, &request);
		result = found ? vi_answer(vi, &request, end) : -HDL_ETIMEDOUT;
		result = vi_settle(vi, result);
	}
	pthread_mutex_unlock(&adapter->vis.lock);
	return result;
}
