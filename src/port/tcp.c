/* TCP sockets that carry iWARP. See tcp.h. */
#include "port/tcp.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

#define SEGMENT_UNKNOWN 536u   /* RFC 9293 section 3.7.1 */
#define SEGMENT_LARGE   16384u /* no link between machines has such an MTU */
#define HEADERS_IPV4    52u    /* with TCP's, and its timestamps */
#define HEADERS_IPV6    72u
#define SYN_BYTES       256u  /* the headers of a SYN, with all the options there are */
#define TCP_CLASS_MASK  0xfcu /* the rest belongs to congestion control */

static int tcp_set(int sock, int level, int option, int value)
{
	return setsockopt(sock, level, option, &value, sizeof(value)) == 0 ? 0 : -errno;
}

/* What every connection has. Accepted sockets inherit none of it everywhere, so it is set again. */
static int tcp_options(int sock)
{
	static const struct {
		int level, option, value;
	} options[] = {
	        {IPPROTO_TCP, TCP_NODELAY, 1},
	        {SOL_SOCKET, SO_KEEPALIVE, 1},
	        {IPPROTO_TCP, TCP_KEEPIDLE, TCP_PROBE_IDLE_S},
	        {IPPROTO_TCP, TCP_KEEPINTVL, TCP_PROBE_S},
	        {IPPROTO_TCP, TCP_KEEPCNT, TCP_PROBES},
	        {IPPROTO_TCP, TCP_USER_TIMEOUT, TCP_GIVE_UP_MS},
	};
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		int result = tcp_set(sock, options[i].level, options[i].option, options[i].value);
		if (result != 0)
			return result;
	}
	return 0;
}

/* Close @sock, which is not finished, because of @error. */
static int tcp_give_up(int sock, int error)
{
	fd_close(sock);
	return error;
}

int tcp_bind(const struct udp_address *address, uint16_t *port)
{
	union udp_name name;
	socklen_t bytes = udp_name_of(address, *port, &name);
	int sock =
	        fd_aside(socket(name.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
	if (sock < 0)
		return -errno;
	/* Connections of a former listener linger in TIME_WAIT and do not hold the port. */
	int result = tcp_set(sock, SOL_SOCKET, SO_REUSEADDR, 1);
	if (result == 0)
		result = tcp_options(sock);
	if (result == 0 && bind(sock, &name.any, bytes) != 0)
		result = -errno;
	bytes = sizeof(name);
	if (result == 0 && getsockname(sock, &name.any, &bytes) != 0)
		result = -errno;
	if (result != 0)
		return tcp_give_up(sock, result);
	struct udp_address own;
	udp_address_of(&name, &own, port);
	return sock;
}

int tcp_listen(int sock, int backlog)
{
	/* For tcp_peer_class(). Without it, peers have none. */
	(void)tcp_set(sock, IPPROTO_TCP, TCP_SAVE_SYN, 1);
	return listen(sock, backlog) == 0 ? 0 : -errno;
}

uint8_t tcp_peer_class(int sock)
{
	uint8_t syn[SYN_BYTES];
	socklen_t bytes = sizeof(syn);
	if (getsockopt(sock, IPPROTO_TCP, TCP_SAVED_SYN, syn, &bytes) != 0 || bytes < 2)
		return 0;
	unsigned class = syn[1];
	if (syn[0] >> 4 != 4)
		class = (unsigned)syn[0] << 4 | syn[1] >> 4;
	return (uint8_t)(class & TCP_CLASS_MASK);
}

int tcp_accept(int sock, struct udp_address *peer, uint16_t *port)
{
	union udp_name name = {0};
	socklen_t bytes = sizeof(name);
	int found;
	do
		found = (int)syscall(SYS_accept4, sock, &name.any, &bytes,
		                     SOCK_NONBLOCK | SOCK_CLOEXEC);
	while (found < 0 && errno == EINTR);
	if (found < 0)
		return errno == EWOULDBLOCK ? -EAGAIN : -errno;
	found = fd_aside(found);
	udp_address_of(&name, peer, port);
	int result = tcp_options(found);
	return result == 0 ? found : tcp_give_up(found, -ECONNABORTED);
}

int tcp_connect_from(int sock, const struct udp_address *to, uint16_t port,
                     const struct tcp_class *class)
{
	union udp_name name;
	/* Before it connects: the peer learns the class from the SYN. */
	if (class->traffic_class != 0)
		udp_set_class(sock, to, class->traffic_class, class->priority);
	socklen_t bytes = udp_name_of(to, port, &name);
	if (syscall(SYS_connect, sock, &name.any, bytes) != 0 && errno != EINPROGRESS)
		return -errno;
	return 0;
}

int tcp_connect(const struct udp_address *from, const struct udp_address *to, uint16_t port,
                const struct tcp_class *class)
{
	uint16_t any = 0;
	if (udp_address_is_ipv4(from) != udp_address_is_ipv4(to))
		return -EAFNOSUPPORT;
	int sock = tcp_bind(from, &any);
	if (sock < 0)
		return sock;
	int result = tcp_connect_from(sock, to, port, class);
	return result == 0 ? sock : tcp_give_up(sock, result);
}

int tcp_connected(int sock)
{
	int error = 0;
	union udp_name name;
	socklen_t bytes = sizeof(error);
	if (getsockopt(sock, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
		return -errno;
	if (error != 0)
		return -error;
	bytes = sizeof(name);
	if (getpeername(sock, &name.any, &bytes) == 0)
		return 0;
	return errno == ENOTCONN ? -EINPROGRESS : -errno;
}

int tcp_adopt(int sock)
{
	int protocol = 0;
	socklen_t bytes = sizeof(protocol);
	union udp_name name;
	if (getsockopt(sock, SOL_SOCKET, SO_PROTOCOL, &protocol, &bytes) != 0)
		return -errno;
	if (protocol != IPPROTO_TCP)
		return -EPROTOTYPE;
	bytes = sizeof(name);
	if (getpeername(sock, &name.any, &bytes) != 0)
		return -errno;
	int flags = fcntl(sock, F_GETFL);
	if (flags < 0 || fcntl(sock, F_SETFL, flags | O_NONBLOCK) != 0 ||
	    fcntl(sock, F_SETFD, FD_CLOEXEC) != 0)
		return -errno;
	return tcp_options(sock);
}

int tcp_names(int sock, struct udp_address *own, uint16_t *own_port, struct udp_address *peer,
              uint16_t *peer_port)
{
	union udp_name name;
	socklen_t bytes = sizeof(name);
	if (getsockname(sock, &name.any, &bytes) != 0)
		return -errno;
	udp_address_of(&name, own, own_port);
	bytes = sizeof(name);
	if (getpeername(sock, &name.any, &bytes) != 0)
		return -errno;
	udp_address_of(&name, peer, peer_port);
	return 0;
}

ssize_t tcp_send(int sock, const struct iovec *parts, unsigned count, enum tcp_then then)
{
	int flags = then == TCP_MORE ? MSG_MORE : then == TCP_RECORD ? MSG_EOR : 0;
	struct msghdr msg = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = count};
	ssize_t sent;
	assert(count > 0 && count <= TCP_MAX_PARTS);
	do
		sent = syscall(SYS_sendmsg, sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT | flags);
	while (sent < 0 && errno == EINTR);
	return sent >= 0 ? sent : errno == EWOULDBLOCK ? -EAGAIN : -errno;
}

void tcp_push(int sock)
{
	tcp_set(sock, IPPROTO_TCP, TCP_NODELAY, 1); /* tcp(7): setting it again flushes */
}

ssize_t tcp_receive(int sock, const struct iovec *parts, unsigned count)
{
	struct msghdr msg = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = count};
	ssize_t got;
	assert(count > 0 && count <= TCP_MAX_PARTS);
	do
		got = syscall(SYS_recvmsg, sock, &msg, MSG_DONTWAIT);
	while (got < 0 && errno == EINTR);
	return got >= 0 ? got : errno == EWOULDBLOCK ? -EAGAIN : -errno;
}

void tcp_finish(int sock)
{
	shutdown(sock, SHUT_WR);
}

void tcp_close(int sock, bool reset)
{
	const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
	if (reset)
		setsockopt(sock, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	fd_close(sock);
}

unsigned tcp_unacknowledged(int sock)
{
	int bytes = 0;
	return ioctl(sock, SIOCOUTQ, &bytes) == 0 && bytes > 0 ? (unsigned)bytes : 0;
}

/* The number that an option of @sock has; 0: none. */
static unsigned tcp_option(int sock, int level, int option)
{
	int value = 0;
	socklen_t length = sizeof(value);
	return getsockopt(sock, level, option, &value, &length) == 0 && value > 0 ? (unsigned)value
	                                                                          : 0;
}

/* Linux never makes a segment longer than half of the largest window that the peer has offered. On
 * links with a very large MTU (the loopback) this is what limits it at first, but not later. */
static unsigned segment_later(int sock)
{
	unsigned mtu = tcp_option(sock, IPPROTO_IP, IP_MTU), headers = HEADERS_IPV4;
	if (mtu == 0) {
		mtu = tcp_option(sock, IPPROTO_IPV6, IPV6_MTU);
		headers = HEADERS_IPV6;
	}
	return mtu > headers ? mtu - headers : 0;
}

unsigned tcp_segment(int sock)
{
	unsigned bytes = tcp_option(sock, IPPROTO_TCP, TCP_MAXSEG);
	if (bytes == 0)
		return SEGMENT_UNKNOWN;
	unsigned later = bytes >= SEGMENT_LARGE ? segment_later(sock) : 0;
	if (later > bytes)
		bytes = later;
	return bytes < TCP_MAX_SEGMENT ? bytes : TCP_MAX_SEGMENT;
}
