/* Which user owns a UDP socket of this machine. On the loopback interface an address proves
 * nothing: any user can send from any address in 127.0.0.0/8. But the kernel knows which user holds
 * the source port of a packet, and reports it (NETLINK_SOCK_DIAG, or /proc/net/udp if that is
 * missing).
 *
 * Packets from the loopback, and packets that claim to come from our own address, are accepted only
 * from sockets of this user or of root. The kernel's answer is cached for a while, so that a packet
 * costs one comparison. If the kernel gives no answer, all packets are accepted, and the log says
 * so once.
 *
 * One thread at a time. */
#ifndef PORT_OWNER_H
#define PORT_OWNER_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include "port/udp.h"

#define OWNER_SOURCES  1024u       /* cached sources; a power of two */
#define OWNER_FRESH_NS 1000000000u /* how long an answer of the kernel is valid */
/* A process may send and exit, and its socket is gone when we ask. A socket that was ours less than
 * OWNER_LEFT_NS ago still counts as ours. From other sockets that are gone, a limited number of
 * packets per second is accepted: as many as programs send when they exit, and so few that
 * guessing a PSN takes hours. */
#define OWNER_LEFT_NS    60000000000u
#define OWNER_MISSING_NS 10000000u /* then the kernel is asked again */
#define OWNER_GONE_PER_S 1024u
/* A sender that keeps changing its port makes us ask the kernel each time. We ask at most this
 * often; packets beyond that are dropped. */
#define OWNER_ASKS_PER_S 4096u

enum owner_is {
	OWNER_UNTOLD, /* the kernel gives no answer */
	OWNER_NOBODY,
	OWNER_OURS, /* owned by this user or by root */
	OWNER_OTHER
};

struct owner_source {
	struct udp_address address;
	uint16_t port;
	uint8_t is; /* enum owner_is */
	uint64_t until_ns;
	uint64_t ours_ns; /* when it was last found to be ours; 0: never */
};

struct owner {
	uid_t uid;
	int diag;            /* the netlink socket; -1: not open, or not available */
	bool no_diag;        /* it was tried */
	uint32_t asks, gone; /* questions and packets left in this second, */
	uint64_t asks_ns;    /* which began then */
	struct owner_source *last, *sources;
	uint64_t refused; /* packets of others */
};

/* Without memory, nothing is cached. */
void owner_begin(struct owner *owner);
void owner_end(struct owner *owner);

/* Ask the kernel which user holds UDP @port of @address, an address of this machine. *uid: the
 * user, if there is one and the kernel answers. */
enum owner_is owner_ask(struct owner *owner, const struct udp_address *address, uint16_t port,
                        uid_t *uid);

/* The same for a single question, from any thread. */
enum owner_is owner_of(const struct udp_address *address, uint16_t port, uid_t *uid);

/* Ask the kernel which user holds the other end of a TCP connection on this machine: the socket on
 * @peer that is connected to @own. */
enum owner_is owner_ask_tcp(struct owner *owner, const struct udp_address *own, uint16_t own_port,
                            const struct udp_address *peer, uint16_t peer_port, uid_t *uid);

/* Must the owner of packets from @from to @own be checked? */
static inline bool owner_concerns(const struct udp_address *own, const struct udp_address *from)
{
	return udp_address_is_loopback(from) || memcmp(own->gid, from->gid, sizeof(own->gid)) == 0;
}

/* Does the socket at @from, @port belong to this user or to root? */
bool owner_proves(struct owner *owner, const struct udp_address *from, uint16_t port);
/* Should packets from there be accepted? */
static inline bool owner_admits(struct owner *owner, const struct udp_address *own,
                                const struct udp_address *from, uint16_t port)
{
	return !owner_concerns(own, from) || owner_proves(owner, from, port);
}

#endif
