/* The connection manager of the iWARP device: one TCP connection per identifier, on which MPA
 * negotiates (RFC 5044, RFC 6581). hdl_conn_connect(3) and its kin do that and keep its time; this
 * translates between them and cm/peer.c.
 *
 * An rdma_cm port is a TCP port: an identifier that is bound holds both. There is one exchange, a
 * Request and a Reply, so a connection is established as soon as the Reply has come. The queue pair
 * is moved to RTS below, not by librdmacm. */
#include <string.h>

#include "base/log.h"
#include "compat/cm/cm.h"

#define RELISTEN_NS   1000000000ull /* as for the other wire */
#define MAX_DEPTH     128u          /* reads at a time, where the peer does not say */
#define PRIVATE_BYTES 255u          /* all that rdma_cm's interface can count */

static void *context_of(const struct cm_id *id)
{
	return (void *)(uintptr_t)id->number;
}

static bool has_wire(struct hdl_adapter *adapter)
{
	struct hdl_limits limits;
	return hdl_adapter_query(adapter, &limits) == 0 && limits.wire != HDL_WIRE_NONE;
}

/* --- events --- */

static struct cm_id *id_of(const struct hdl_conn_event *event)
{
	struct cm_id *id = cm_id_numbered((uint32_t)(uintptr_t)event->context);
	if (id != NULL && id->manager == &cm_mpa && id->end == event->conn)
		return id;
	/* A request that ends before it is answered has the context of its listener. */
	for (uint32_t at = 0; (id = cm_id_next(&at)) != NULL; at++)
		if (id->manager == &cm_mpa && id->end == event->conn)
			return id;
	return NULL;
}

static void ip_of(struct sockaddr_in6 *to, const struct hdl_gid *gid, uint16_t port)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	bool ipv4 = memcmp(gid->raw, mapped, sizeof(mapped)) == 0;
	*to = (struct sockaddr_in6){.sin6_family = ipv4 ? AF_INET : AF_INET6,
	                            .sin6_port = htons(port)};
	if (ipv4)
		memcpy(&((struct sockaddr_in *)(void *)to)->sin_addr, gid->raw + 12, 4);
	else
		memcpy(&to->sin6_addr, gid->raw, 16);
}

static uint8_t depth_of(uint16_t depth)
{
	return (uint8_t)(depth < MAX_DEPTH ? depth : MAX_DEPTH);
}

/* @from the peer. cm_message has the peer's depths, the event has ours. */
static void message_of(const struct hdl_conn_event *event, enum cm_kind kind,
                       struct cm_message *message)
{
	*message =
	        (struct cm_message){.kind = (uint16_t)kind,
	                            .responder_resources = depth_of(event->ord),
	                            .initiator_depth = depth_of(event->ird),
	                            .private_length = (uint8_t)(event->private_bytes < PRIVATE_BYTES
	                                                                ? event->private_bytes
	                                                                : PRIVATE_BYTES)};
	memcpy(message->private_data, event->private_data, message->private_length);
	memcpy(message->sgid, event->peer.raw, 16);
	memcpy(message->dgid, event->own.raw, 16);
	ip_of(&message->src, &event->peer, event->peer_port);
	ip_of(&message->dst, &event->own, event->own_port);
}

static void mpa_take_request(const struct hdl_conn_event *event)
{
	struct cm_message message;
	bool listening;
	message_of(event, CM_REQ, &message);
	struct hdl_cm_msg to = {.gid = event->own,
	                        .space = RDMA_PS_TCP,
	                        .port = event->own_port,
	                        .options = cm_family_of(&message.dst)};
	struct cm_id *child = cm_take_request(&cm_mpa, &to, &message, &listening);
	if (child != NULL)
		child->end = event->conn;
	else
		hdl_conn_destroy(event->conn); /* which rejects it */
}

/* A connection was not established. */
static void mpa_take_failure(struct cm_id *id, const struct hdl_conn_event *event)
{
	struct cm_message message;
	hdl_conn_destroy(id->end);
	id->end = NULL;
	message_of(event, CM_REJ, &message);
	message.status =
	        event->type == HDL_CONN_REJECTED ? CM_REASON_CONSUMER : CM_REASON_NO_SERVICE;
	if (event->type == HDL_CONN_REJECTED || event->error == -HDL_ECONNREFUSED)
		cm_take(id, &message);
	else if (id->state == CM_REQ_SENT || id->state == CM_REP_SENT)
		cm_unreachable(id);
	else
		cm_end_connection(id); /* the program has not answered it yet */
}

static void mpa_take_event(const struct hdl_conn_event *event)
{
	struct cm_message message;
	if (event->type == HDL_CONN_REQUEST) {
		mpa_take_request(event);
		return;
	}
	struct cm_id *id = id_of(event);
	if (id == NULL)
		return;
	switch (event->type) {
	case HDL_CONN_ESTABLISHED:
		message_of(event, id->state == CM_REQ_SENT ? CM_REP : CM_RTU, &message);
		cm_take(id, &message);
		break;
	case HDL_CONN_CLOSED:
		cm_end_connection(id);
		break;
	default:
		mpa_take_failure(id, event);
		break;
	}
}

/* Called by the adapter's thread. */
static void mpa_events(void *context)
{
	struct hdl_conn_event event;
	while (hdl_conn_event_get(context, &event, 0) == 0) {
		cm_lock();
		mpa_take_event(&event);
		cm_unlock();
	}
}

/* --- ports --- */

static int cm_mpa_bind(struct cm_id *id)
{
	struct hdl_adapter *adapter = compat_adapter();
	uint16_t port = ntohs(*cm_port_of(&id->src));
	if (adapter == NULL)
		return ENODEV;
	if (id->space != RDMA_PS_TCP || !has_wire(adapter))
		return 0;
	hdl_conn_notify(adapter, mpa_events, adapter);
	/* :: is every address, unless it is for IPv6 alone. */
	const struct hdl_gid any6 = {0}, any4 = {.raw = {[10] = 0xff, [11] = 0xff}};
	const struct hdl_gid *where = !id->for_all                       ? &id->port_gid
	                              : id->src.sin6_family == AF_INET   ? &any4
	                              : (id->port_options & HDL_CM_ONLY) ? &any6
	                                                                 : NULL;
	int error = -hdl_listener_bind(adapter, where, &port, context_of(id), &id->bound);
	/* An address of the node that is on no wire has only peers on this machine. */
	return error == HDL_EHOSTUNREACH ? 0 : error;
}

static void cm_mpa_unbind(struct cm_id *id)
{
	if (id->bound != NULL)
		hdl_listener_close(id->bound);
	id->bound = NULL;
}

static int cm_mpa_listen(struct cm_id *id)
{
	/* cm/peer.c counts the requests that wait. */
	return id->bound != NULL ? -hdl_listener_listen(id->bound, CM_MAX_BACKLOG) : 0;
}

/* --- sending --- */

static void param_of(const struct cm_id *id, const struct cm_message *message,
                     struct hdl_conn_param *param)
{
	*param = (struct hdl_conn_param){.ird = message->responder_resources,
	                                 .ord = message->initiator_depth,
	                                 .traffic_class = id->tos,
	                                 .private_bytes = message->private_length,
	                                 .private_data = message->private_data};
}

static int cm_mpa_request(struct cm_id *id, struct cm_message *message)
{
	struct hdl_adapter *adapter = compat_adapter();
	struct hdl_qp *qp = adapter != NULL ? hdl_qp_find(adapter, message->qpn) : NULL;
	struct hdl_conn *conn;
	struct hdl_conn_param param;
	struct sockaddr_in6 to = id->dst;
	uint16_t port = ntohs(*cm_port_of(&to));
	if (qp == NULL)
		return EINVAL;
	param_of(id, message, &param);
	int error = EHOSTUNREACH;
	if (id->bound != NULL)
		error = -hdl_conn_connect(qp, id->bound, &id->sgid, &id->dgid, port, &param,
		                          context_of(id), &conn);
	/* An attempt that failed took the socket with it; and an identifier may be bound to an
	 * address that is on no wire. */
	if (error == EHOSTUNREACH) {
		cm_mpa_unbind(id);
		cm_mpa_bind(id);
		error = -hdl_conn_connect(qp, id->bound, &id->sgid, &id->dgid, port, &param,
		                          context_of(id), &conn);
	}
	if (error == 0)
		id->end = conn;
	return error;
}

static int cm_mpa_reply(struct cm_id *id, struct cm_message *message)
{
	struct hdl_adapter *adapter = compat_adapter();
	struct hdl_qp *qp = adapter != NULL ? hdl_qp_find(adapter, message->qpn) : NULL;
	struct hdl_conn_param param;
	if (qp == NULL || id->end == NULL)
		return EINVAL;
	param_of(id, message, &param);
	int error = -hdl_conn_accept(id->end, qp, &param, context_of(id));
	return error == EPERM ? ECONNABORTED : error;
}

static int cm_mpa_reject(struct cm_id *id, struct cm_message *message)
{
	if (id->end != NULL)
		hdl_conn_reject(id->end, message->private_data, message->private_length);
	return 0;
}

static int cm_mpa_confirm(struct cm_id *id)
{
	(void)id; /* the Reply has established it */
	return 0;
}

static int cm_mpa_disconnect(struct cm_id *id)
{
	return id->end != NULL ? -hdl_conn_disconnect(id->end) : 0;
}

static void cm_mpa_part(struct cm_id *id)
{
	if (id->end != NULL)
		hdl_conn_destroy(id->end);
	id->end = NULL;
}

static void cm_mpa_forget(struct cm_id *id)
{
	id->end = NULL;
}

/* --- the rest --- */

/* The adapter keeps the time of the exchange; the program may want to give up earlier. */
static uint64_t cm_mpa_due_ns(const struct cm_id *id)
{
	return id->state == CM_REQ_SENT || id->state == CM_REP_SENT ? id->give_up_ns : 0;
}

static void cm_mpa_expire(struct cm_id *id)
{
	if (id->state != CM_REQ_SENT && id->state != CM_REP_SENT)
		return;
	cm_mpa_part(id);
	cm_unreachable(id);
}

/* Only what a queue pair needs before it is connected: the connection moves it on. */
static int cm_mpa_init_qp_attr(const struct cm_id *id, uint32_t state,
                               struct ib_uverbs_qp_attr *attr)
{
	(void)id;
	if (state != IBV_QPS_INIT && state != IBV_QPS_RTR && state != IBV_QPS_RTS)
		return EINVAL;
	attr->qp_access_flags =
	        IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	if (state == IBV_QPS_INIT)
		attr->qp_attr_mask =
		        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	else if (state == IBV_QPS_RTR)
		attr->qp_attr_mask = IBV_QP_ACCESS_FLAGS;
	return 0;
}

const struct cm_manager cm_mpa = {
        .name = "MPA",
        .across = true,
        .one_exchange = true,
        .relisten_ns = RELISTEN_NS,
        .bind = cm_mpa_bind,
        .unbind = cm_mpa_unbind,
        .listen = cm_mpa_listen,
        .request = cm_mpa_request,
        .reply = cm_mpa_reply,
        .reject = cm_mpa_reject,
        .confirm = cm_mpa_confirm,
        .disconnect = cm_mpa_disconnect,
        .part = cm_mpa_part,
        .init_qp_attr = cm_mpa_init_qp_attr,
        .due_ns = cm_mpa_due_ns,
        .expire = cm_mpa_expire,
        .forget = cm_mpa_forget,
};
