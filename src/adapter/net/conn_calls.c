/* The calls of programs about connections: connect, adopt, accept, reject, disconnect, destroy. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/adapter.h"
#include "adapter/net/tcp_port.h"
#include "base/cancel.h"
#include "port/tcp.h"
#include "queue/qp_state.h"
#include "wire/dscp.h"

#define CONN_FLAGS \
	(HDL_CONN_NO_CRC | HDL_CONN_MARKERS | HDL_CONN_REVISION_1 | HDL_CONN_CLIENT_SERVER)

static const struct hdl_conn_param conn_defaults;

static uint16_t conn_depth(uint16_t wanted)
{
	return wanted < HDL_MAX_RD_ATOMIC ? wanted : HDL_MAX_RD_ATOMIC;
}

/* What the program asks for, and its user. */
static uint32_t conn_flags(const struct hdl_conn *conn, const struct hdl_conn_param *param)
{
	return param->flags | conn->port->port.adapter->net.conn_flags;
}

static void conn_offer(struct hdl_conn *conn, const struct hdl_conn_param *param)
{
	uint32_t flags = conn_flags(conn, param);
	conn->offer = (struct mpa_offer){.markers = (flags & HDL_CONN_MARKERS) != 0,
	                                 .crc = (flags & HDL_CONN_NO_CRC) == 0,
	                                 .max_ird = conn_depth(param->ird),
	                                 .max_ord = conn_depth(param->ord),
	                                 .rtr = MPA_RTR_ALL};
	/* A read that shows that we are ready needs a place in the peer's queue. */
	if (conn->offer.max_ord == 0)
		conn->offer.rtr = MPA_RTR_SEND | MPA_RTR_WRITE;
	/* Answers go back in the class that the requests come in, unless the program says
	 * otherwise. */
	conn->traffic_class = param->traffic_class != 0 ? param->traffic_class : conn->peer_class;
}

static bool conn_param_fits(const struct hdl_conn_param *param)
{
	return (param->flags & ~(uint32_t)CONN_FLAGS) == 0 &&
	       param->private_bytes <= HDL_CONN_PRIVATE &&
	       param->service < HDL_CONN_SERVICE_COUNT &&
	       (param->service != HDL_CONN_TCP || param->private_bytes == 0) &&
	       (param->private_bytes == 0 || param->private_data != NULL);
}

/* May @qp be connected? With the drive lock. */
static int conn_qp_fits(const struct hdl_adapter *adapter, const struct hdl_qp *qp)
{
	if (qp == NULL || qp->magic != MAGIC_QP || qp->pd->adapter != adapter)
		return -HDL_EINVAL;
	if (qp->qp.type != HDL_QP_RC)
		return -HDL_ENOTSUP;
	return qp_state(&qp->qp) == HDL_QPS_INIT && qp->qp.iwarp == NULL && qp->joining == NULL
	               ? 0
	               : -HDL_EPERM;
}

static struct tcp_class conn_class(uint8_t traffic_class)
{
	static const int priorities[SERVICE_CLASSES] = {
	        [SERVICE_URGENT] = UDP_PRIORITY_URGENT, [SERVICE_BULK] = UDP_PRIORITY_BULK};
	return (struct tcp_class){traffic_class, priorities[service_class(traffic_class)]};
}

/* Of a connection that a peer has begun; an initiator's has it before it connects. */
static void conn_set_class(struct hdl_conn *conn)
{
	struct tcp_class class = conn_class(conn->traffic_class);
	if (conn->sctp != NULL)
		sctp_conn_set_class(conn);
	else if (class.traffic_class != 0)
		udp_set_class(conn->flow.sock, &conn->own, class.traffic_class, class.priority);
	if (conn->capture != NULL)
		capture_stream_class(conn->capture, conn->traffic_class);
}

/* The request of an initiator. */
static int conn_request(struct hdl_conn *conn, const struct hdl_conn_param *param)
{
	bool session = param->service == HDL_CONN_RDMA_SCTP;
	uint32_t flags = conn_flags(conn, param);
	const struct mpa_wish wish = {.session = session,
	                              .offer = conn->offer,
	                              .revision = flags & HDL_CONN_REVISION_1 ? 1 : 2,
	                              .peer_to_peer =
	                                      !session && (flags & HDL_CONN_CLIENT_SERVER) == 0};
	uint64_t until = clock_read(&conn->port->port.adapter->clock) + TCP_REPLY_NS;
	conn->service = param->service;
	if (conn->service == HDL_CONN_TCP)
		*conn->setup = (struct mpa_setup){.state = MPA_SETUP_AGREED, .initiator = true};
	else if (!mpa_setup_request(conn->setup, &wish, param->private_data, param->private_bytes,
	                            until))
		return -HDL_EINVAL;
	conn->initiator = true;
	conn->due_ns = until;
	tcp_port_at(conn->port, until);
	return 0;
}

/* The program gets @conn, which has something to do. */
static void conn_hand_out(struct hdl_conn *conn, void *context, struct hdl_conn **out)
{
	conn->context = context;
	conn->held = true;
	atomic_fetch_add(&conn->port->port.adapter->objects.count, 1);
	*out = conn;
	tcp_port_wake(conn->port, conn);
	conn_service(conn);
}

/* --- connect --- */

/* A socket that begins to connect: that of @listener, or a new one. Returns it, or -errno. */
static int conn_open(const struct hdl_adapter *adapter, struct hdl_listener *listener,
                     const struct hdl_gid *from, const struct hdl_gid *to, uint16_t port,
                     const struct tcp_class *class)
{
	struct udp_address own, peer = {0};
	memcpy(peer.gid, to->raw, sizeof(peer.gid));
	if (listener == NULL) {
		if (!listener_source(adapter, from, to, &own))
			return -EADDRNOTAVAIL;
		peer.scope = own.scope;
		return tcp_connect(&own, &peer, port, class);
	}
	for (uint32_t i = 0; i < listener->count; i++) {
		int sock = listener->socks[i].sock;
		const struct udp_address *address = &listener->socks[i].address;
		if (sock < 0 || udp_address_is_ipv4(address) != udp_address_is_ipv4(&peer) ||
		    (from != NULL && memcmp(from->raw, address->gid, sizeof(from->raw)) != 0))
			continue;
		peer.scope = address->scope;
		int result = tcp_connect_from(sock, &peer, port, class);
		if (result == 0)
			listener->socks[i].sock = -1; /* it is the connection's from now on */
		return result == 0 ? sock : result;
	}
	return -EADDRNOTAVAIL;
}

/* With the drive lock. */
static int conn_start(struct hdl_adapter *adapter, struct hdl_qp *qp, int sock,
                      const struct hdl_conn_param *param, void *context, struct hdl_conn **out)
{
	struct tcp_port *port = tcp_port_of(adapter);
	struct hdl_conn *conn = port != NULL ? conn_new(port, sock) : NULL;
	if (conn == NULL) {
		tcp_close(sock, true);
		return -HDL_ENOMEM;
	}
	conn->state = CONN_CONNECTING;
	conn_claim(conn, qp);
	conn_offer(conn, param);
	int result = conn_request(conn, param);
	if (result == 0)
		result = listener_error(tcp_port_watch(port, sock, conn, NULL));
	if (result != 0) {
		conn_orphan(conn);
		return result;
	}
	conn_hand_out(conn, context, out);
	return 0;
}

/* The same on SCTP. With the drive lock. */
static int conn_start_sctp(struct hdl_adapter *adapter, struct hdl_qp *qp,
                           const struct hdl_listener *listener, const struct hdl_gid *from,
                           const struct hdl_gid *to, uint16_t number,
                           const struct hdl_conn_param *param, void *context, struct hdl_conn **out)
{
	struct udp_address own, peer = {0};
	memcpy(peer.gid, to->raw, sizeof(peer.gid));
	if (!listener_source(adapter, from, to, &own))
		return -HDL_EHOSTUNREACH;
	peer.scope = own.scope;
	struct tcp_port *port = tcp_port_of(adapter);
	struct hdl_conn *conn = port != NULL ? conn_new(port, -1) : NULL;
	if (conn == NULL)
		return -HDL_ENOMEM;
	conn->state = CONN_CONNECTING;
	conn_claim(conn, qp);
	conn_offer(conn, param);
	int result = sctp_conn_new(conn) ? conn_request(conn, param) : -HDL_ENOMEM;
	if (result == 0)
		result = listener_error(sctp_conn_connect(conn, &own, &peer, number,
		                                          listener != NULL ? listener->number : 0));
	if (result != 0) {
		conn_drop(conn);
		return result;
	}
	conn_set_class(conn);
	conn_hand_out(conn, context, out);
	return 0;
}

/* On a node: take the port to connect from, that of @listener or any. *own: where, for a
 * listener's. Without a lock. */
static int conn_share(struct hdl_adapter *adapter, const struct hdl_listener *listener,
                      const struct hdl_gid *from, const struct hdl_gid *to, struct udp_address *own)
{
	adapter_lock(adapter);
	bool found = listener_source(adapter, from, to, own);
	adapter_unlock(adapter);
	if (!found)
		return -EHOSTUNREACH;
	return listener != NULL ? sctp_share_bind(adapter, own, listener->number)
	                        : sctp_share_ready(adapter);
}

int hdl_conn_connect(struct hdl_qp *qp, struct hdl_listener *listener, const struct hdl_gid *from,
                     const struct hdl_gid *to, uint16_t port, const struct hdl_conn_param *param,
                     void *context, struct hdl_conn **out)
{
	if (param == NULL)
		param = &conn_defaults;
	if (qp == NULL || qp->magic != MAGIC_QP || to == NULL || out == NULL || port == 0 ||
	    !conn_param_fits(param))
		return -HDL_EINVAL;
	struct hdl_adapter *adapter = qp->pd->adapter;
	if (listener != NULL && (listener->magic != MAGIC_LISTENER || listener->backlog != 0 ||
	                         listener->port->port.adapter != adapter))
		return -HDL_EINVAL;
	int cancel = cancel_forbid();
	bool sctp = param->service == HDL_CONN_RDMA_SCTP;
	struct udp_address own;
	int shared = sctp ? conn_share(adapter, listener, from, to, &own) : 0;
	adapter_lock(adapter);
	int result = shared == 0 ? conn_qp_fits(adapter, qp) : listener_error(shared);
	const struct tcp_class class = conn_class(param->traffic_class);
	int sock = result == 0 && !sctp ? conn_open(adapter, listener, from, to, port, &class) : -1;
	if (result == 0 && sctp)
		result =
		        conn_start_sctp(adapter, qp, listener, from, to, port, param, context, out);
	else if (result == 0)
		result = sock >= 0 ? conn_start(adapter, qp, sock, param, context, out)
		                   : listener_error(sock);
	if (sctp && shared == 0 && listener != NULL) /* the connection has it now */
		sctp_share_unbind(listener->port, &own, listener->number);
	adapter_unlock(adapter);
	if (sctp)
		sctp_share_tidy(adapter);
	cancel_restore(cancel);
	return result;
}

/* --- adopt --- */

/* With the drive lock. */
static int conn_take_over(struct hdl_adapter *adapter, struct hdl_qp *qp, int sock, bool initiator,
                          const void *data, size_t bytes, const struct hdl_conn_param *param,
                          void *context, struct hdl_conn **out)
{
	struct tcp_port *port = tcp_port_of(adapter);
	struct hdl_conn *conn = port != NULL ? conn_new(port, sock) : NULL;
	if (conn == NULL)
		return -HDL_ENOMEM;
	uint64_t until = clock_read(&adapter->clock) + TCP_REQUEST_NS;
	int result = 0;
	conn->state = CONN_SETUP;
	conn_record(conn, initiator);
	if (conn->capture != NULL)
		capture_stream_put(conn->capture, true, data, bytes);
	if (initiator) {
		conn_claim(conn, qp);
		conn_offer(conn, param);
		conn_set_class(conn);
		result = conn_request(conn, param);
	} else {
		mpa_setup_await(conn->setup, until);
		conn->due_ns = until;
		tcp_port_at(port, until);
	}
	if (result == 0 && !tcp_flow_put_back(&conn->flow, data, bytes))
		result = -HDL_ENOMEM;
	if (result == 0)
		result = listener_error(tcp_port_watch(port, sock, conn, NULL));
	if (result != 0) { /* the descriptor stays the caller's */
		conn_give_back(conn);
		return result;
	}
	conn_hand_out(conn, context, out);
	return 0;
}

int hdl_conn_adopt(struct hdl_adapter *adapter, struct hdl_qp *qp, int fd, bool initiator,
                   const void *data, size_t bytes, const struct hdl_conn_param *param,
                   void *context, struct hdl_conn **out)
{
	if (param == NULL)
		param = &conn_defaults;
	if (adapter == NULL || adapter->magic != MAGIC_ADAPTER || out == NULL ||
	    (data == NULL && bytes > 0) || bytes > TCP_READ_AHEAD || !conn_param_fits(param) ||
	    (initiator && qp == NULL) || param->service == HDL_CONN_RDMA_SCTP)
		return -HDL_EINVAL;
	int cancel = cancel_forbid();
	adapter_lock(adapter);
	int result = initiator ? conn_qp_fits(adapter, qp) : 0;
	if (result == 0 && tcp_adopt(fd) != 0)
		result = -HDL_EINVAL;
	if (result == 0)
		result = conn_take_over(adapter, qp, fd, initiator, data, bytes, param, context,
		                        out);
	adapter_unlock(adapter);
	cancel_restore(cancel);
	return result;
}

/* --- answers --- */

static struct hdl_adapter *conn_adapter(const struct hdl_conn *conn)
{
	return conn != NULL && conn->magic == MAGIC_CONN ? conn->port->port.adapter : NULL;
}

static bool conn_is_asked(const struct hdl_conn *conn)
{
	return conn->state == CONN_SETUP && conn->setup->state == MPA_SETUP_ASKED;
}

/* With the drive lock. */
static int conn_accept(struct hdl_conn *conn, struct hdl_qp *qp, const struct hdl_conn_param *param,
                       void *context)
{
	struct hdl_adapter *adapter = conn->port->port.adapter;
	int result = conn_qp_fits(adapter, qp);
	if (result != 0)
		return result;
	if (!conn_is_asked(conn))
		return -HDL_EPERM;
	uint64_t until = clock_read(&adapter->clock) + TCP_REPLY_NS;
	conn_offer(conn, param);
	if (conn->service == HDL_CONN_TCP)
		conn->setup->state = MPA_SETUP_AGREED;
	else if (!mpa_setup_accept(conn->setup, &conn->offer, param->private_data,
	                           param->private_bytes, until))
		return -HDL_EINVAL;
	conn_claim(conn, qp);
	conn->context = context;
	conn->due_ns = until;
	tcp_port_at(conn->port, until);
	conn_set_class(conn);
	conn_uncount(conn);
	conn_service(conn);
	return 0;
}

int hdl_conn_accept(struct hdl_conn *conn, struct hdl_qp *qp, const struct hdl_conn_param *param,
                    void *context)
{
	struct hdl_adapter *adapter = conn_adapter(conn);
	if (param == NULL)
		param = &conn_defaults;
	if (adapter == NULL || !conn_param_fits(param))
		return -HDL_EINVAL;
	adapter_lock(adapter);
	int result = conn_accept(conn, qp, param, context);
	adapter_unlock(adapter);
	return result;
}

int hdl_conn_reject(struct hdl_conn *conn, const void *data, uint32_t bytes)
{
	struct hdl_adapter *adapter = conn_adapter(conn);
	if (adapter == NULL || (data == NULL && bytes > 0))
		return -HDL_EINVAL;
	int result = 0;
	adapter_lock(adapter);
	if (!conn_is_asked(conn)) {
		result = -HDL_EPERM;
	} else if (!conn_refuse(conn, data, bytes)) {
		result = -HDL_EINVAL;
	} else {
		conn_uncount(conn);
		conn_service(conn);
	}
	adapter_unlock(adapter);
	return result;
}

int hdl_conn_disconnect(struct hdl_conn *conn)
{
	struct hdl_adapter *adapter = conn_adapter(conn);
	if (adapter == NULL)
		return -HDL_EINVAL;
	int result = 0;
	adapter_lock(adapter);
	if (conn->state == CONN_UP) {
		iwarp_close(&conn->iwarp);
		conn_service(conn);
	} else if (conn->state != CONN_OVER) {
		result = -HDL_EPERM;
	}
	adapter_unlock(adapter);
	return result;
}

int hdl_conn_destroy(struct hdl_conn *conn)
{
	struct hdl_adapter *adapter = conn_adapter(conn);
	if (adapter == NULL)
		return -HDL_EINVAL;
	adapter_lock(adapter);
	bool sctp = conn->sctp != NULL;
	conn_orphan(conn);
	adapter_unlock(adapter);
	if (sctp)
		sctp_share_tidy(adapter);
	atomic_fetch_sub(&adapter->objects.count, 1);
	return 0;
}
