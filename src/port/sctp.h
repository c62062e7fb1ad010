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
 * fragmented. It announces an adaptation code; one whose peer announces another, or none, is of no
 * use (RFC 5043 section 11.1). */
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
#define SCTP_TRIES        6u   /* of a packet that is not acknowledged */
#define SCTP_INIT_TRIES   4u   /* repetitions of an INIT that is not answered, */
#define SCTP_INIT_MS      500u /* the first after this time: all in all, about eight seconds */
#define SCTP_HEARTBEAT_MS 5000u
#define SCTP_BATCH        64u   /* packets that an end takes in one turn */
#define SCTP_MAX_SEEN     4096u /* packets that wait to be recorded */

struct socket;
struct sctp_end;

/* The traffic class in which the peer began an association, until that is accepted. */
#define SCTP_BEGUN 16u
struct sctp_begun {
	uint16_t port; /* the peer's, of SCTP */
	uint8_t traffic_class;
};

/* The UDP port of a peer that has shown that it is there, or that we connect to. usrsctp knows it
 * by its name, a number that leads to it as long as it exists: what an association that has
 * outlived its path sends then goes nowhere. */
struct sctp_path {
	struct sctp_end *end;
	struct udp_address peer;
	uint16_t port;
	uint64_t name;
	uint32_t users;   /* sockets that know it */
	uint32_t waiting; /* associations that began since, and were not accepted yet */
	uint64_t heard_ns;
	struct sctp_begun begun[SCTP_BEGUN]; /* a ring */
	uint32_t begun_count;
	struct sctp_path *next;   /* of the end */
	struct sctp_path *beside; /* in sctp_paths */
};

struct sctp_end {
	int fd; /* -1: closed; nothing leaves any more */
	/* Others have sockets on the same UDP port: the SCTP ports that are ours, by bits. Packets
	 * to others are dropped, because the answer of usrsctp would end what is another's. */
	uint64_t *ports;
	struct udp_address own;
	uint16_t port;
	uint32_t mtu; /* of SCTP packets */
	struct sctp_path *paths;
	uint32_t path_count;
	struct owner owner;
	uint64_t refused; /* packets of other users, damaged ones, and those of strangers */
	struct udp_receiver receiver;
	/* Packets for sctp_end_seen(), oldest first. Any adapter's thread may send for this end, so
	 * they wait here for the thread that records. */
	bool records;
	struct sctp_seen *seen, **seen_end;
	uint32_t seen_count;
	uint64_t unseen; /* for which there was no room */
};

/* An SCTP packet that was sent or that has come. */
struct sctp_seen {
	struct sctp_seen *next;
	struct udp_address peer;
	uint16_t port;
	uint8_t tos;
	bool inbound;
	size_t bytes;
	uint8_t data[];
};

struct sctp_sock {
	struct socket *so;
	struct sctp_path *path; /* of an association */
	uint32_t adaptation;    /* the code that its peer must announce */
	uint8_t peer_class;     /* the traffic class in which the peer began it */
	bool up;                /* it is established, and the peer has announced the code */
	int error;              /* of SCTP_CAME_BROKEN: why; -EPROTO: another adaptation, or none */
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
/* The same on @fd, a socket of udp_open() there, which it takes over, also if it fails. */
int sctp_end_adopt(struct sctp_end *end, const struct udp_address *address, int fd);
/* Send and receive through @fd instead; -1: through none, until there is one again. */
void sctp_end_replace(struct sctp_end *end, int fd);
/* Closes the socket at once: nothing that the associations on it say will be heard. All sockets on
 * it must be closed afterwards, and then sctp_end_free(). */
void sctp_end_mute(struct sctp_end *end);
void sctp_end_free(struct sctp_end *end);
/* Take the packets that have come, up to SCTP_BATCH. Returns how many. */
unsigned sctp_end_receive(struct sctp_end *end, uint64_t now_ns);
/* The UDP port of @end is shared. False: no memory. */
bool sctp_end_share(struct sctp_end *end);
/* Of such an end: @count SCTP ports from @first on are ours, or are not. */
void sctp_end_hold(struct sctp_end *end, uint16_t first, uint16_t count, bool ours);
/* From now on packets are kept for sctp_end_seen(). */
void sctp_end_record(struct sctp_end *end);
/* Pass the packets of @end since the last call to @take, in their order. */
void sctp_end_seen(struct sctp_end *end,
                   void (*take)(void *context, const struct sctp_end *end,
                                const struct sctp_seen *seen),
                   void *context);
/* Let time pass, for all ends of the process; call it at least every SCTP_TICK_NS while there is a
 * socket. */
void sctp_tick(uint64_t now_ns);

/* Listen on SCTP port *port (0: any) of every end of the process. @notify is called, from any
 * thread that runs usrsctp, and must only note it. Returns 0 or -errno. */
int sctp_listen(struct sctp_sock *sock, uint16_t *port, int backlog, uint32_t adaptation,
                uint32_t mtu, void (*notify)(void *context), void *context);
/* The next association of @listener, which is not up before SCTP_CAME_UP. Returns 0, -EAGAIN or
 * another -errno. */
int sctp_accept(struct sctp_sock *listener, struct sctp_sock *sock, uint16_t *peer_port);
void sctp_set_notify(struct sctp_sock *sock, void (*notify)(void *context), void *context);
/* Begin to associate with @port of @peer, at @udp_port there. *own_port: 0 or the port to use; then
 * the one that is. */
int sctp_connect(struct sctp_sock *sock, struct sctp_end *end, const struct udp_address *peer,
                 uint16_t udp_port, uint16_t port, uint16_t *own_port, uint32_t adaptation,
                 void (*notify)(void *context), void *context);

/* The traffic class of the IP headers that carry packets of @sock; its ECN bits are ignored. */
bool sctp_set_class(struct sctp_sock *sock, uint8_t traffic_class);

/* Send a message, unordered. 0, -EAGAIN or another -errno. */
int sctp_send(struct sctp_sock *sock, uint32_t ppid, const void *message, size_t bytes);
/* Receive: *bytes of a message with *ppid, or what else has come. */
enum sctp_came sctp_receive(struct sctp_sock *sock, void *to, size_t max, size_t *bytes,
                            uint32_t *ppid);
/* Has the association been aborted or lost? Messages that came before may still be there. */
bool sctp_is_broken(struct sctp_sock *sock);
/* The longest message that fits into one packet. */
uint32_t sctp_longest(const struct sctp_end *end);
/* Has everything that was sent been acknowledged? */
bool sctp_is_settled(struct sctp_sock *sock);
/* Everything that was sent arrives, then the association ends. */
void sctp_finish(struct sctp_sock *sock);
/* @abort: the peer is told to forget it. */
void sctp_close(struct sctp_sock *sock, bool abort);

#endif
