/* TCP sockets that carry iWARP: non-blocking, close-on-exec, without Nagle's delay (the caller says
 * with each call whether more follows), and with keep-alive probes, so that a peer that disappears
 * without a word is noticed.
 *
 * Addresses are those of port/udp.h. Functions that return a descriptor return -errno on failure.
 */
#ifndef PORT_TCP_H
#define PORT_TCP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "port/udp.h"

#define TCP_MAX_PARTS 80u /* runs of memory in one call */
/* A peer that acknowledges nothing for this long is gone: data or FIN in flight (RFC 5482), and
 * probes of an idle connection. */
#define TCP_GIVE_UP_MS   60000u
#define TCP_PROBE_IDLE_S 30
#define TCP_PROBE_S      10
#define TCP_PROBES       3
/* The longest segment of the loopback interface; a route that says more is not believed. */
#define TCP_MAX_SEGMENT 65483u

/* Open a socket on @address and *port (0: any, which is stored), which is held against others but
 * does not listen yet. */
int tcp_bind(const struct udp_address *address, uint16_t *port);
/* Listen on a socket of tcp_bind(); again to change @backlog. Returns 0 or -errno. */
int tcp_listen(int sock, int backlog);
/* Accept a connection: its descriptor. -EAGAIN: there is none; -EMFILE, -ENFILE, -ENOBUFS or
 * -ENOMEM: nothing is left to accept it with; any other error belongs to the connection, and the
 * next may succeed. */
int tcp_accept(int sock, struct udp_address *peer, uint16_t *port);
/* What is in the IP headers of a connection, and its place in the kernel's queues; 0: as usual. */
struct tcp_class {
	uint8_t traffic_class;
	int priority;
};
/* The traffic class, without ECN, that the peer of a connection of tcp_accept() began it with; 0:
 * none. Answers only once. */
uint8_t tcp_peer_class(int sock);
/* Open a socket on @from (any port) and begin to connect it. */
int tcp_connect(const struct udp_address *from, const struct udp_address *to, uint16_t port,
                const struct tcp_class *class);
/* The same from a socket of tcp_bind(), whose descriptor is kept. Returns 0 or -errno. */
int tcp_connect_from(int sock, const struct udp_address *to, uint16_t port,
                     const struct tcp_class *class);
/* How far tcp_connect() is: 0: connected; -EINPROGRESS; another error: it failed. */
int tcp_connected(int sock);
/* Prepare @sock, which somebody else has connected, for the calls below. Returns 0; -ENOTSOCK,
 * -ENOTCONN; -EPROTOTYPE: it is not a TCP socket. */
int tcp_adopt(int sock);
/* The addresses of both ends. Returns 0 or -errno. */
int tcp_names(int sock, struct udp_address *own, uint16_t *own_port, struct udp_address *peer,
              uint16_t *peer_port);

/* How what is sent ends. */
enum tcp_then {
	TCP_AS_IT_IS,
	TCP_MORE,  /* other calls follow at once, so a short segment may wait for them */
	TCP_RECORD /* what comes behind it begins a segment, if all of it was taken */
};

/* Send @parts. Returns how many bytes were taken; -EAGAIN; -EFAULT: some of it cannot be read, and
 * nothing was taken; another error: the connection is broken. */
ssize_t tcp_send(int sock, const struct iovec *parts, unsigned count, enum tcp_then then);
/* Send now what waits for more. */
void tcp_push(int sock);
/* Receive into @parts. Returns the number of bytes; 0: the peer has closed its direction; -EAGAIN;
 * -EFAULT: some of it cannot be written to where it belongs, and stays in the socket; another
 * error: the connection is broken. */
ssize_t tcp_receive(int sock, const struct iovec *parts, unsigned count);
/* Nothing more will be sent: FIN, after what was sent before. */
void tcp_finish(int sock);
/* Close. @reset: at once and with a RST, which drops whatever the peer has not read; else what was
 * sent is still delivered. */
void tcp_close(int sock, bool reset);
/* Bytes that the peer has not acknowledged; 0: all have arrived, or unknown. */
unsigned tcp_unacknowledged(int sock);
/* The payload of one segment to the peer. */
unsigned tcp_segment(int sock);

#endif
