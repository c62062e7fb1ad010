/* Links over UDP. The socket is bound to the address of this end and connected to that of the other
 * one, so that the kernel drops whatever comes from anywhere else. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "vport/port.h"

#define BATCH 16u

union vport_address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

static socklen_t address_of(const struct topology_address *from, union vport_address *to)
{
	memset(to, 0, sizeof(*to));
	if (from->ipv6) {
		to->v6.sin6_family = AF_INET6;
		to->v6.sin6_port = htons(from->port);
		memcpy(&to->v6.sin6_addr, from->bytes, 16);
		return sizeof(to->v6);
	}
	to->v4.sin_family = AF_INET;
	to->v4.sin_port = htons(from->port);
	memcpy(&to->v4.sin_addr, from->bytes, 4);
	return sizeof(to->v4);
}

static int udp_link_open(struct port *port, const char **why)
{
	union vport_address own, other;
	socklen_t own_bytes = address_of(&port_own_end(port)->address, &own),
	          other_bytes = address_of(&port_other_end(port)->address, &other);
	int sock = socket(own.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	*why = "is the address one of this machine, and its UDP port free?";
	if (sock < 0)
		return -errno;
	int room = 4 << 20; /* the kernel may grant less */
	setsockopt(sock, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	setsockopt(sock, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	if (bind(sock, &own.any, own_bytes) != 0 || connect(sock, &other.any, other_bytes) != 0) {
		int error = errno;
		close(sock);
		return -error;
	}
	port->fd = sock;
	port_watch(port, sock);
	return 0;
}

static void udp_link_close(struct port *port)
{
	port_unwatch(port, port->fd);
	close(port->fd);
	port->fd = -1;
}

static bool udp_link_hear(struct port *port)
{
	static uint8_t room[BATCH][LINK_MAX_BYTES + 1]; /* one more: a longer one is damaged */
	struct iovec parts[BATCH];
	struct mmsghdr headers[BATCH];
	memset(headers, 0, sizeof(headers));
	for (unsigned i = 0; i < BATCH; i++) {
		parts[i] = (struct iovec){room[i], sizeof(room[i])};
		headers[i].msg_hdr.msg_iov = &parts[i];
		headers[i].msg_hdr.msg_iovlen = 1;
	}
	/* An error is that of an earlier packet: nobody listens at the other end. */
	int got = recvmmsg(port->fd, headers, BATCH, 0, NULL);
	for (int i = 0; i < got; i++)
		port_frame(port, room[i], headers[i].msg_len);
	return got > 0;
}

static enum port_sent udp_link_send(struct port *port, const uint8_t header[LINK_HEADER_BYTES],
                                    const uint8_t *packet, size_t bytes)
{
	struct iovec parts[2] = {{(void *)(uintptr_t)header, LINK_HEADER_BYTES},
	                         {(void *)(uintptr_t)packet, bytes}};
	struct msghdr msg = {.msg_iov = parts, .msg_iovlen = bytes > 0 ? 2 : 1};
	ssize_t sent = sendmsg(port->fd, &msg, MSG_NOSIGNAL);
	/* ECONNREFUSED is about an earlier packet, too. */
	if (sent < 0 && errno == ECONNREFUSED)
		sent = sendmsg(port->fd, &msg, MSG_NOSIGNAL);
	if (sent >= 0)
		return PORT_SENT;
	return errno == EMSGSIZE ? PORT_TOO_LONG : PORT_FULL;
}

const struct port_kind port_udp = {.name = "udp",
                                   .open = udp_link_open,
                                   .close = udp_link_close,
                                   .hear = udp_link_hear,
                                   .send = udp_link_send};
