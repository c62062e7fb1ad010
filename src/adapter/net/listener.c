/* Listeners: bound TCP ports, and the peers that connect to them. See tcp_port.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "adapter/adapter.h"
#include "adapter/net/tcp_port.h"
#include "base/fd.h"
#include "base/log.h"
#include "port/owner.h"
#include "port/tcp.h"

/* Accept nobody: until a request is answered (@ns is 0), or until that time. */
static void listener_pause(struct hdl_listener *listener, uint64_t ns)
{
	listener->resume_ns = ns;
	if (ns != 0)
		tcp_port_at(listener->port, ns);
	if (listener->paused)
		return;
	listener->paused = true;
	for (uint32_t i = 0; listener->sctp == NULL && i < listener->count; i++)
		epoll_ctl(listener->port->port.fd, EPOLL_CTL_DEL, listener->socks[i].sock, NULL);
}

void listener_check(struct hdl_listener *listener)
{
	if (listener->asked >= (uint32_t)listener->backlog)
		listener_pause(listener, 0);
}

void listener_resume(struct hdl_listener *listener, uint64_t now_ns)
{
	if (!listener->paused || listener->backlog == 0 || now_ns < listener->resume_ns ||
	    listener->asked >= (uint32_t)listener->backlog)
		return;
	listener->paused = false;
	listener->resume_ns = 0;
	if (listener->sctp != NULL) { /* look again */
		atomic_store(&listener->sctp->news, true);
		atomic_store(&listener->port->sctp->news, true);
	}
	for (uint32_t i = 0; listener->sctp == NULL && i < listener->count; i++)
		tcp_port_watch(listener->port, listener->socks[i].sock, NULL, listener);
}

/* Disconnect the peer that has been silent for the longest time. */
static void listener_evict(struct hdl_listener *listener)
{
	struct hdl_conn *oldest = NULL;
	for (struct hdl_conn *at = listener->port->conns; at != NULL; at = at->next)
		if (at->listener == listener && at->counted == CONN_SILENT)
			oldest = at; /* the newest is first */
	if (oldest != NULL)
		conn_abort(oldest, -HDL_ETIMEDOUT);
}

/* On the loopback any user of the machine can connect; only our own and root may. */
static bool listener_admits(const struct hdl_conn *conn)
{
	uid_t uid;
	return !owner_concerns(&conn->own, &conn->peer) ||
	       owner_ask_tcp(&conn->port->owner, &conn->own, conn->own_port, &conn->peer,
	                     conn->peer_port, &uid) != OWNER_OTHER;
}

void listener_admit(struct hdl_listener *listener, struct hdl_conn *conn)
{
	struct tcp_port *port = listener->port;
	uint64_t until = clock_read(&port->port.adapter->clock) + TCP_REQUEST_NS;
	conn->listener = listener;
	conn->context = listener->context;
	conn->counted = CONN_SILENT;
	listener->silent++;
	conn->state = CONN_SETUP;
	conn->service = listener->service;
	if (conn->sctp == NULL)
		conn_record(conn, false);
	mpa_setup_await(conn->setup, until);
	if (conn->service == HDL_CONN_TCP) /* it has nothing to say before */
		conn->setup->state = MPA_SETUP_ASKED;
	conn->setup->session = conn->service == HDL_CONN_RDMA_SCTP;
	conn->due_ns = until;
	tcp_port_at(port, until);
	/* SCTP has judged every packet. */
	bool admitted = conn->sctp != NULL || listener_admits(conn);
	if (!admitted)
		counter_add(&port->port.adapter->engine.counters[ENGINE_BAD_PACKETS], 1);
	if (!admitted ||
	    (conn->sctp == NULL && tcp_port_watch(port, conn->flow.sock, conn, NULL) != 0))
		conn_abort(conn, -HDL_EIO);
	else
		conn_service(conn);
}

static void listener_take(struct hdl_listener *listener, int sock)
{
	if (listener->silent >= TCP_SILENT)
		listener_evict(listener);
	struct hdl_conn *conn = conn_new(listener->port, sock);
	if (conn == NULL) {
		tcp_close(sock, true);
		return;
	}
	conn->peer_class = tcp_peer_class(sock);
	listener_admit(listener, conn);
}

/* Descriptors or memory are used up: the peers wait in the kernel. */
static void listener_starves(struct hdl_listener *listener, int error)
{
	struct tcp_port *port = listener->port;
	listener_pause(listener, clock_read(&port->port.adapter->clock) + TCP_FILES_NS);
	if (port->files_said)
		return;
	port->files_said = true;
	log_error("cannot accept a connection on TCP port %u: %s; close some files, or raise "
	          "\"ulimit -n\" (logged once; peers wait)",
	          listener->number, strerror(error));
}

void listener_accept(struct hdl_listener *listener)
{
	struct udp_address peer;
	uint16_t peer_port;
	for (uint32_t i = 0; i < listener->count && !listener->paused; i++) {
		for (unsigned n = 0; n < TCP_ACCEPTS && !listener->paused; n++) {
			int sock = tcp_accept(listener->socks[i].sock, &peer, &peer_port);
			if (sock == -EAGAIN)
				break;
			if (sock == -EMFILE || sock == -ENFILE || sock == -ENOBUFS ||
			    sock == -ENOMEM)
				listener_starves(listener, -sock);
			if (sock < 0)
				continue;
			listener_take(listener, sock);
		}
	}
}

void listener_drop(struct hdl_listener *listener)
{
	struct hdl_listener **at = &listener->port->listeners;
	while (*at != listener)
		at = &(*at)->next;
	*at = listener->next;
	sctp_listener_close(listener);
	for (uint32_t i = 0; i < listener->count; i++)
		if (listener->socks[i].sock >= 0)
			fd_close(listener->socks[i].sock);
}

/* --- calls --- */

/* Is it the address of a node, or of the loopback for an adapter without a node? Peers of other
 * machines reach nothing else. Its interface goes to *out. */
static bool listener_may_use(const struct hdl_adapter *adapter, const struct hdl_gid *gid,
                             struct udp_address *out)
{
	*out = (struct udp_address){0};
	memcpy(out->gid, gid->raw, sizeof(out->gid));
	for (uint32_t i = 0; i < adapter->net.address_count; i++)
		if (!adapter->net.addresses[i].frames &&
		    memcmp(adapter->net.addresses[i].gid, gid->raw, sizeof(gid->raw)) == 0) {
			*out = adapter->net.addresses[i];
			return true;
		}
	return !adapter->agent.on_node && udp_address_is_loopback(out);
}

bool listener_source(const struct hdl_adapter *adapter, const struct hdl_gid *from,
                     const struct hdl_gid *to, struct udp_address *out)
{
	struct udp_address peer = {0};
	memcpy(peer.gid, to->raw, sizeof(peer.gid));
	if (from != NULL)
		return listener_may_use(adapter, from, out);
	for (uint32_t i = 0; i < adapter->net.address_count; i++)
		if (!adapter->net.addresses[i].frames &&
		    udp_address_is_ipv4(&adapter->net.addresses[i]) == udp_address_is_ipv4(&peer)) {
			*out = adapter->net.addresses[i];
			return true;
		}
	*out = peer; /* without a node: from the address that it connects to */
	return !adapter->agent.on_node && udp_address_is_loopback(&peer);
}

/* Is it :: or 0.0.0.0? */
static bool listener_is_any(const struct hdl_gid *gid)
{
	static const struct hdl_gid any6, any4 = {.raw = {[10] = 0xff, [11] = 0xff}};
	return memcmp(gid, &any6, sizeof(*gid)) == 0 || memcmp(gid, &any4, sizeof(*gid)) == 0;
}

/* Every address of the node, or every one of the family of @family. */
static void listener_take_all(struct hdl_listener *listener, const struct hdl_gid *family)
{
	const struct net *net = &listener->port->port.adapter->net;
	struct udp_address any = {0};
	if (family != NULL)
		memcpy(any.gid, family->raw, sizeof(any.gid));
	for (uint32_t i = 0; i < net->address_count; i++)
		if (!net->addresses[i].frames &&
		    (family == NULL ||
		     udp_address_is_ipv4(&net->addresses[i]) == udp_address_is_ipv4(&any)))
			listener->socks[listener->count++].address = net->addresses[i];
}

/* Bind all addresses of @listener to one port. Returns 0 or -errno. */
static int listener_bind_all(struct hdl_listener *listener, uint16_t *port)
{
	for (uint32_t i = 0; i < listener->count; i++) {
		listener->socks[i].sock = tcp_bind(&listener->socks[i].address, port);
		if (listener->socks[i].sock < 0)
			return listener->socks[i].sock;
	}
	listener->number = *port;
	return 0;
}

int listener_error(int error)
{
	switch (error) {
	case 0:
		return 0;
	case -EADDRINUSE:
		return -HDL_EADDRINUSE;
	case -EACCES:
	case -EPERM:
		return -HDL_EACCES;
	case -ENOMEM:
	case -ENOBUFS:
		return -HDL_ENOMEM;
	case -EPROTONOSUPPORT:
		return -HDL_ENOTSUP;
	case -EADDRNOTAVAIL:
	case -EAFNOSUPPORT:
	case -ENETUNREACH:
	case -EHOSTUNREACH:
		return -HDL_EHOSTUNREACH;
	default:
		log_error("TCP port: %s; \"ulimit -n\" may be too low", strerror(-error));
		return -HDL_EIO;
	}
}

/* With the drive lock. */
static int listener_make(struct hdl_adapter *adapter, const struct hdl_gid *gid, uint16_t *number,
                         struct hdl_listener *listener)
{
	struct tcp_port *port = tcp_port_of(adapter);
	if (port == NULL)
		return listener_error(-errno);
	listener->port = port;
	if (gid != NULL && !listener_is_any(gid)) {
		if (!listener_may_use(adapter, gid, &listener->socks[0].address))
			return -HDL_EHOSTUNREACH;
		listener->count = 1;
	} else {
		listener_take_all(listener, gid);
		if (listener->count == 0)
			return -HDL_EHOSTUNREACH;
	}
	int result = listener_bind_all(listener, number);
	if (result != 0)
		return listener_error(result);
	listener->next = port->listeners;
	port->listeners = listener;
	return 0;
}

int hdl_listener_bind(struct hdl_adapter *adapter, const struct hdl_gid *gid, uint16_t *port,
                      void *context, struct hdl_listener **out)
{
	if (adapter == NULL || adapter->magic != MAGIC_ADAPTER || port == NULL || out == NULL)
		return -HDL_EINVAL;
	struct hdl_listener *listener = calloc(1, sizeof(*listener));
	if (listener == NULL)
		return -HDL_ENOMEM;
	listener->magic = MAGIC_LISTENER;
	listener->context = context;
	for (uint32_t i = 0; i < UDP_MAX_ADDRESSES; i++)
		listener->socks[i].sock = -1;
	adapter_lock(adapter);
	int result = listener_make(adapter, gid, port, listener);
	adapter_unlock(adapter);
	if (result != 0) {
		for (uint32_t i = 0; i < listener->count; i++)
			if (listener->socks[i].sock >= 0)
				fd_close(listener->socks[i].sock);
		free(listener);
		return result;
	}
	atomic_fetch_add(&adapter->objects.count, 1);
	*out = listener;
	return 0;
}

/* With the drive lock. */
static int listener_begin(struct hdl_listener *listener, int backlog)
{
	if (listener->service == HDL_CONN_RDMA_SCTP) {
		int error = sctp_listener_begin(listener, backlog);
		if (error == 0)
			listener->backlog = backlog;
		return listener_error(error);
	}
	for (uint32_t i = 0; i < listener->count; i++) {
		int result = listener->socks[i].sock >= 0
		                     ? tcp_listen(listener->socks[i].sock,
		                                  backlog < TCP_BACKLOG ? TCP_BACKLOG : backlog)
		                     : -EINVAL;
		if (result == 0)
			result = tcp_port_watch(listener->port, listener->socks[i].sock, NULL,
			                        listener);
		if (result != 0)
			return result == -EINVAL ? -HDL_EINVAL : listener_error(result);
	}
	listener->backlog = backlog;
	return 0;
}

int hdl_listener_serve(struct hdl_listener *listener, enum hdl_conn_service service)
{
	if (listener == NULL || listener->magic != MAGIC_LISTENER ||
	    (unsigned)service >= HDL_CONN_SERVICE_COUNT)
		return -HDL_EINVAL;
	struct hdl_adapter *adapter = listener->port->port.adapter;
	adapter_lock(adapter);
	int result = listener->backlog != 0 ? -HDL_EPERM : 0;
	if (result == 0)
		listener->service = (uint8_t)service;
	adapter_unlock(adapter);
	return result;
}

/* Of an SCTP listener on a node: take its port, @count times. 0 or an error. */
static int listener_share(const struct hdl_listener *listener, uint32_t *count)
{
	int result = 0;
	for (*count = 0; result == 0 && listener->service == HDL_CONN_RDMA_SCTP &&
	                 listener->backlog == 0 && *count < listener->count;
	     *count += result == 0)
		result = sctp_share_bind(listener->port->port.adapter,
		                         &listener->socks[*count].address, listener->number);
	return result;
}

int hdl_listener_listen(struct hdl_listener *listener, int backlog)
{
	uint32_t shared;
	if (listener == NULL || listener->magic != MAGIC_LISTENER)
		return -HDL_EINVAL;
	struct hdl_adapter *adapter = listener->port->port.adapter;
	int result = listener_error(listener_share(listener, &shared));
	adapter_lock(adapter);
	if (result == 0)
		result = listener->backlog != 0
		                 ? -HDL_EINVAL
		                 : listener_begin(listener, backlog > 0 ? backlog : 1);
	for (uint32_t i = 0; result != 0 && i < shared; i++)
		sctp_share_unbind(listener->port, &listener->socks[i].address, listener->number);
	adapter_unlock(adapter);
	sctp_share_tidy(adapter);
	return result;
}

int hdl_listener_close(struct hdl_listener *listener)
{
	if (listener == NULL || listener->magic != MAGIC_LISTENER)
		return -HDL_EINVAL;
	struct tcp_port *port = listener->port;
	struct hdl_adapter *adapter = port->port.adapter;
	adapter_lock(adapter);
	listener->backlog = 0;
	for (struct hdl_conn *at = port->conns, *next; at != NULL; at = next) {
		next = at->next;
		if (at->listener != listener)
			continue;
		conn_abort(at, -HDL_ECONNREFUSED);
	}
	listener_drop(listener);
	adapter_unlock(adapter);
	sctp_share_tidy(adapter);
	listener->magic = 0;
	free(listener);
	atomic_fetch_sub(&adapter->objects.count, 1);
	return 0;
}
