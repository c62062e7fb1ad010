/* SCTP inside UDP (RFC 6951), by usrsctp, whose packets pass through here: it has no sockets and no
 * threads of its own. Its state belongs to the process, so that all adapters of a process share it;
 * a lock of ours orders the calls, because a timer that one adapter runs may send for another.
 *
 *	sctp_end     a UDP socket on one address of ours, through which packets leave and come
 *	sctp_path    one peer of an end: address and UDP port. usrsctp knows addresses as
 *	             pointers, and for it this is the address of both ends
 *	sctp_sock    a socket of usrsctp: listening, or one association on one path
 *
 * An association has one path (no multi-homing), one stream each way and messages that are never
 * fragmented. It announces an adaptation code; one whose peer announces another is of no use. */
#ifndef PORT_SCTP_H
#define PORT_SCTP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "port/owner.h"
#include "port/udp.h"

#define SCTP_UDP_PORT     9899u /* RFC 6951 */
#define SCTP_TICK_NS      10000000u
#define SCTP_MAX_PATHS    4096u  /* of an end; then the one that was idle for longest goes */
#define SCTP_BUFFER_BYTES 524288 /* of an association, each way */
#define SCTP_PACKET_BYTES 65536u
#define SCTP_MAX_MTU      16384u
#define SCTP_TRIES        6u /* of a packet that is not acknowledged */
#define SCTP_HEARTBEAT_MS 5000u
#define SCTP_BATCH        64u /* packets that an end takes in one turn */

struct socket;
struct sctp_end;

struct sctp_path {
	struct sctp_end *end;
	struct udp_address peer;
	uint16_t port;
	uint32_t users; /* sockets that know it */
	uint64_t heard_ns;
	struct sctp_path *next;
};

struct sctp_end {
	int fd; /* -1: closed; nothing leaves any more */
	struct udp_address own;
	uint16_t port;
	uint32_t mtu; /* of SCTP packets */
	struct sctp_path *paths;
	uint32_t path_count;
	struct owner owner;
	uint64_t refused; /* packets of other users, damaged ones, and those of strangers */
	uint8_t *room;    /* SCTP_PACKET_BYTES */
};

struct sctp_sock {
	struct socket *so;
	struct sctp_path *path; /* of an association */
	bool up;                /* it is established */
	atomic_bool news; /* something has happened since it was cleared; set from any thread */
	void (*notify)(void *context);
	void *context;
};

/* What a receive has found. */
enum sctp_came {
	SCTP_CAME_NOTHING,
	SCTP_CAME_MESSAGE,
	SCTP_CAME_UP,     /* the association is established */
	SCTP_CAME_CLOSED, /* the peer has sent everything and ended it */
	SCTP_CAME_BROKEN  /* aborted, lost, or not what was asked for */
};

/* Open @end on @address, @port (0: any). Returns 0 or -errno. */
int sctp_end_open(struct sctp_end *end, const struct udp_address *address, uint16_t port);
/* Closes the socket at once: nothing that the associations on it say will be heard. All sockets on
 * it must be closed afterwards, and then sctp_end_free(). */
void sctp_end_mute(struct sctp_end *end);
void sctp_end_free(struct sctp_end *end);
/* Take the packets that have come, up to SCTP_BATCH. Returns how many. */
unsigned sctp_end_receive(struct sctp_end *end, uint64_t now_ns);
/* Let time pass, for all ends of the process; call it at least every SCTP_TICK_NS while there is a
 * socket. */
void sctp_tick(uint64_t now_ns);

/* Listen on SCTP port *port (0: any) of every end of the process. @notify is called, from any
 * thread that runs usrsctp, and must only note it. Returns 0 or -errno. */
int sctp_listen(struct sctp_sock *sock, uint16_t *port, int backlog, uint32_t adaptation,
                uint32_t mtu, void (*notify)(void *context), void *context);
/* The next association of @listener. Returns 0, -EAGAIN or another -errno. */
int sctp_accept(struct sctp_sock *listener, struct sctp_sock *sock, uint16_t *peer_port);
void sctp_set_notify(struct sctp_sock *sock, void (*notify)(void *context), void *context);
/* Begin to associate with @port of @peer, at @udp_port there. *own_port: 0 or the port to use; then
 * the one that is. */
int sctp_connect(struct sctp_sock *sock, struct sctp_end *end, const struct udp_address *peer,
                 uint16_t udp_port, uint16_t port, uint16_t *own_port, uint32_t adaptation,
                 void (*notify)(void *context), void *context);

/* Send a message, unordered. 0, -EAGAIN or another -errno. */
int sctp_send(struct sctp_sock *sock, uint32_t ppid, const void *message, size_t bytes);
/* Receive: *bytes of a message with *ppid, or what else has come. */
enum sctp_came sctp_receive(struct sctp_sock *sock, void *to, size_t max, size_t *bytes,
                            uint32_t *ppid);
/* The longest message that fits into one packet. */
uint32_t sctp_longest(const struct sctp_end *end);
/* Everything that was sent arrives, then the association ends. */
void sctp_finish(struct sctp_sock *sock);
/* @abort: the peer is told to forget it. */
void sctp_close(struct sctp_sock *sock, bool abort);

#endif
