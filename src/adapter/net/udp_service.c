/* Plain UDP queue pairs: each has a socket of its own, in the epoll of the TCP port. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "adapter/adapter.h"
#include "adapter/net/tcp_port.h"
#include "base/cancel.h"
#include "base/fd.h"
#include "port/udp.h"
#include "queue/qp_state.h"
#include "transport/udp.h"

#define UDP_TURN 64u /* datagrams that a queue pair takes in one turn */

struct udp_sock {
	struct udp_service service;
	struct tcp_port *port;
	struct qp *qp;
	struct udp_address own;
	int fd;
	struct udp_sock *next;
};

static int udp_sock_send(void *context, const uint8_t to[16], uint16_t port, const uint8_t *bytes,
                         uint32_t length)
{
	const struct udp_sock *sock = context;
	struct udp_address address = {.scope = sock->own.scope};
	union udp_name name;
	memcpy(address.gid, to, sizeof(address.gid));
	if (udp_address_is_ipv4(&address) != udp_address_is_ipv4(&sock->own))
		return -EAFNOSUPPORT;
	socklen_t name_bytes = udp_name_of(&address, port, &name);
	ssize_t sent =
	        sendto(sock->fd, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL, &name.any, name_bytes);
	return sent >= 0 ? 0 : errno == EWOULDBLOCK || errno == ENOBUFS ? -EAGAIN : -errno;
}

static void udp_sock_free(struct udp_sock *sock)
{
	struct udp_sock **at = &sock->port->udps;
	while (*at != sock)
		at = &(*at)->next;
	*at = sock->next;
	fd_close(sock->fd); /* which takes it out of the epoll */
	free(sock);
}

static void udp_sock_release(void *context)
{
	udp_sock_free(context);
}

unsigned udp_service_receive(struct udp_sock *sock)
{
	struct engine *engine = &sock->port->port.adapter->engine;
	unsigned count = 0;
	for (; count < UDP_TURN; count++) {
		union udp_name name;
		socklen_t name_bytes = sizeof(name);
		struct udp_address from;
		uint16_t port;
		ssize_t got = recvfrom(sock->fd, sock->port->staging, TCP_STAGING_BYTES,
		                       MSG_DONTWAIT, &name.any, &name_bytes);
		if (got < 0)
			break;
		udp_address_of(&name, &from, &port);
		udp_service_take(engine, sock->qp, from.gid, port, sock->own.gid,
		                 sock->port->staging, (uint32_t)got);
	}
	return count;
}

void udp_service_end(struct tcp_port *port)
{
	while (port->udps != NULL)
		udp_sock_free(port->udps);
}

/* With the drive lock. */
static int udp_service_open(struct hdl_adapter *adapter, struct hdl_qp *qp,
                            const struct udp_address *own, uint16_t *number)
{
	struct tcp_port *port = tcp_port_of(adapter);
	struct udp_sock *sock = port != NULL ? calloc(1, sizeof(*sock)) : NULL;
	if (sock == NULL)
		return -HDL_ENOMEM;
	*sock = (struct udp_sock){.port = port, .qp = &qp->qp, .own = *own};
	sock->service.send = udp_sock_send;
	sock->service.release = udp_sock_release;
	sock->service.context = sock;
	sock->fd = udp_open_plain(own, number);
	int result = sock->fd >= 0 ? tcp_port_watch_udp(port, sock, sock->fd) : sock->fd;
	if (result != 0) {
		if (sock->fd >= 0)
			fd_close(sock->fd);
		free(sock);
		return listener_error(result);
	}
	sock->next = port->udps;
	port->udps = sock;
	qp_begin_udp(qp, &sock->service);
	return 0;
}

int hdl_qp_open_udp(struct hdl_qp *qp, const struct hdl_gid *gid, uint16_t *port)
{
	struct udp_address own;
	if (qp == NULL || qp->magic != MAGIC_QP || port == NULL || gid == NULL)
		return -HDL_EINVAL;
	struct hdl_adapter *adapter = qp->pd->adapter;
	int cancel = cancel_forbid();
	adapter_lock(adapter);
	int result = 0;
	if (qp->qp.type != HDL_QP_UD)
		result = -HDL_ENOTSUP;
	else if (qp_state(&qp->qp) != HDL_QPS_INIT || qp->qp.udp != NULL)
		result = -HDL_EPERM;
	else if (!listener_source(adapter, gid, gid, &own))
		result = -HDL_EHOSTUNREACH;
	else
		result = udp_service_open(adapter, qp, &own, port);
	adapter_unlock(adapter);
	cancel_restore(cancel);
	return result;
}
