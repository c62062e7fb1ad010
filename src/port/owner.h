/* Whose a UDP socket of this machine is. On the loopback an address proves nothing: any user may
 * send from any address of 127.0.0.0/8. But the kernel knows which user holds the port that a
 * packet came from, and tells everybody (NETLINK_SOCK_DIAG, or /proc/net/udp where that is
 * missing).
 *
 * Packets from the loopback, and those that claim to come from our own address, are taken only from
 * sockets of this user or of root. What the kernel said is remembered for a while, so that a packet
 * costs a comparison. Where it tells nothing all are taken: a line in the log says so once.
 *
 * One thread at a time. */
#ifndef PORT_OWNER_H
#define PORT_OWNER_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include "port/udp.h"

#define OWNER_SOURCES  1024u       /* that are remembered; a power of two */
#define OWNER_FRESH_NS 1000000000u /* what the kernel said holds so long */
/* A process may send and end, and its socket is gone when we ask. One that was ours so short a time
 * ago counts as ours. Of others that are gone already so many packets a second are taken: as many
 * as programs say at their end, and so few that guessing a PSN takes hours. */
#define OWNER_LEFT_NS    60000000000u
#define OWNER_MISSING_NS 10000000u /* then it is asked for again */
#define OWNER_GONE_PER_S 1024u
/* Whoever sends from ever new ports makes us ask: not more often than this, and what comes beyond
 * that is dropped. */
#define OWNER_ASKS_PER_S 4096u

enum owner_is {
	OWNER_UNTOLD, /* the kernel does not say */
	OWNER_NOBODY,
	OWNER_OURS, /* this user's, or root's */
	OWNER_OTHER
};

struct owner_source {
	struct udp_address address;
	uint16_t port;
	uint8_t is; /* enum owner_is */
	uint64_t until_ns;
	uint64_t ours_ns; /* when it was ours for the last time; 0: never */
};

struct owner {
	uid_t uid;
	int diag;     /* the kernel's socket for such questions; -1: not opened, or not there */
	bool no_diag; /* it was tried */
	uint32_t asks, gone; /* that are left of this second, */
	uint64_t asks_ns;    /* which began then */
	struct owner_source *last, *sources;
	uint64_t refused; /* packets of others */
};

/* Without memory nothing is remembered. */
void owner_begin(struct owner *owner);
void owner_end(struct owner *owner);

/* Ask the kernel who holds UDP @port of @address, which is one of this machine's. *uid: who, unless
 * it is nobody or untold. */
enum owner_is owner_ask(struct owner *owner, const struct udp_address *address, uint16_t port,
                        uid_t *uid);

/* The same for one question, from any thread. */
enum owner_is owner_of(const struct udp_address *address, uint16_t port, uid_t *uid);

/* Does what comes from @from to us at @own need a proof? */
static inline bool owner_concerns(const struct udp_address *own, const struct udp_address *from)
{
	return udp_address_is_loopback(from) || memcmp(own->gid, from->gid, sizeof(own->gid)) == 0;
}

/* Then: is the socket at @from, @port one of this user's, or of root's? */
bool owner_proves(struct owner *owner, const struct udp_address *from, uint16_t port);
/* Is what comes from there to be taken? */
static inline bool owner_admits(struct owner *owner, const struct udp_address *own,
                                const struct udp_address *from, uint16_t port)
{
	return !owner_concerns(own, from) || owner_proves(owner, from, port);
}

#endif
