/* The carrier on UDP sockets: how the engine's packets leave the process and come to it.
 *
 *   out   reserve, commit: packets lie one behind the other in an arena; those that go to one
 *         process and are of one length make a train, which one call to the kernel sends
 *   in    the socket of the process, of the bundle that the agent keeps (port/steer.h)
 *
 * Packets are sent from sockets of the process's own with source ports of their own, so that the
 * network spreads its flows; which one, follows from the path's source port and from the process
 * that it goes to.
 *
 * An adapter on several addresses has a wire for each, in a list, and the carrier of
 * net/udp_ports.c, which knows by a packet's source address whose it is. */
#ifndef ADAPTER_UDP_H
#define ADAPTER_UDP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/counter.h"
#include "port/owner.h"
#include "port/udp.h"
#include "transport/path.h"

#define UDP_SENDERS 8u /* source ports of a process */
#define UDP_ARENA_BYTES \
	(1u << 19) /* of packets that wait for the end of a turn: more than one queue pair sends \
	              in it */
#define UDP_SEEDS      64u /* of the ICRC that are remembered */
#define UDP_MAX_GROUPS 64u /* that a process is a member of */

/* While nothing comes to the socket, a drive does not look at it each time: looking is a call to
 * the kernel. */
#define UDP_EAGER_LOOKS 1024u /* in vain, then it looks every ... */
#define UDP_SKIP        32u   /* drives; */
#define UDP_LAZY_LOOKS  8192u /* in vain, then every ... */
#define UDP_LONG_SKIP   256u

/* How long nothing is joined after packets of several processes came as one: twice as long each
 * time, unless it was long ago. */
#define UDP_APART_NS     1000000000ull
#define UDP_APART_MAX_NS (8 * UDP_APART_NS)

/* The seed of the ICRC with identification 0, of packets that go to or come from somewhere. */
struct udp_seed {
	uint8_t gid[16];
	uint16_t port;
	uint16_t bytes; /* of the UDP payload; 0: nothing is remembered here */
	uint32_t seed;
};

struct udp_counts {
	uint64_t sent, received; /* packets */
	uint64_t refused;        /* by the kernel: no route, too long, a filter */
	uint64_t bad, foreign;   /* came damaged; was for another process */
	uint64_t strange;        /* came from a socket of another user on this machine */
	uint64_t blocked;        /* times that the kernel had no room */
};

struct udp_wire {
	struct carrier carrier;
	struct udp_address address;
	struct udp_wire *next; /* on another address of ours */
	/* Of the first, where there are several (net/udp_ports.c). */
	struct carrier ports;
	struct udp_wire *last; /* that got a packet */
	uint32_t mtu;
	uint32_t slot_shift, slot; /* which queue pairs are ours */
	/* Who gets what came. */
	void (*take)(void *context, const struct path *came, bool congested,
	             const struct ib_packet *packet);
	void *take_context;
	struct counter *bad; /* that of packets which came damaged, or NULL */

	/* In. */
	int sock;     /* -1: none */
	bool watched; /* the thread's epoll has it (net/udp_link.c), */
	bool armed;   /* and is to wake it */
	/* Packets of several processes came joined: nothing is joined until then (0: it is), and
	 * how long that is the next time. */
	uint64_t apart_ns, pause_ns;
	unsigned empty_polls; /* looks at it without finding anything */
	unsigned skip;        /* drives that do not look */
	struct udp_receiver receiver;
	struct owner owner; /* whose packets from this machine are */

	struct {
		int sock; /* -1: a free place */
		uint8_t gid[16];
		struct udp_address address;
	} groups[UDP_MAX_GROUPS];
	unsigned group_count, group_turn; /* the last that was looked at */

	/* Out. */
	bool loop;        /* what goes to groups is also for those of this machine */
	bool trains_work; /* the kernel cuts a train into packets */
	struct {
		int sock; /* -1: not opened yet */
		uint16_t port;
		uint8_t hops; /* those that it has by itself, the first that were wanted; 0: none
		                 were */
	} senders[UDP_SENDERS];
	uint8_t *arena;
	size_t used;
	unsigned first, count; /* of the trains that wait */
	struct udp_waiting {
		struct udp_train train;
		uint32_t sender, slot;
		uint8_t gid[16]; /* of the path, which may be a group's and not its address */
		uint8_t hops;
		bool closed; /* its last packet is shorter */
	} trains[UDP_MAX_TRAINS];
	uint32_t id_seeds[UDP_MAX_PACKETS]; /* icrc_seed_ip_id() */
	struct udp_seed out_seeds[UDP_SEEDS], in_seeds[UDP_SEEDS];
	struct udp_counts counts;
};

/* Ready to send from @address; @sock, which is taken over, is where packets come to (-1: nowhere).
 * 0 or -errno. */
int udp_wire_begin(struct udp_wire *wire, const struct udp_address *address, int sock,
                   uint32_t mtu);
void udp_wire_end(struct udp_wire *wire);
/* Another socket to receive at: the agent is a new one. */
void udp_wire_replace(struct udp_wire *wire, int sock);
/* Take what came, at most one batch. Returns the number of packets. */
unsigned udp_wire_receive(struct udp_wire *wire);
/* Shall what goes to groups reach members of this machine too? */
void udp_wire_loop(struct udp_wire *wire, bool loop);
/* Be a member of the group @gid. The socket to wait for, which stays the wire's, or -errno. */
int udp_wire_join(struct udp_wire *wire, const uint8_t gid[16]);
void udp_wire_leave(struct udp_wire *wire, const uint8_t gid[16]);
/* Take what came to groups. */
unsigned udp_wire_receive_groups(struct udp_wire *wire);

/* --- those of a list (net/udp_ports.c) --- */
/* The carrier of all wires from @first on. */
struct carrier *udp_ports_carrier(struct udp_wire *first);
/* The wire for packets to @to from @from, if that is one of these addresses; else the first that is
 * of the family of @to, or the first. */
struct udp_wire *udp_ports_find(struct udp_wire *first, const uint8_t *from, const uint8_t to[16]);
/* Take what came, at most one batch of each. Returns the number of packets. */
unsigned udp_ports_receive(struct udp_wire *first);
/* How many packets ever came. */
uint64_t udp_ports_received(const struct udp_wire *first);
/* Are there packets that the kernel had no room for? They are sent before the next batch is taken.
 */
static inline bool udp_ports_blocked(const struct udp_wire *wire)
{
	do
		if (wire->first != wire->count)
			return true;
	while ((wire = wire->next) != NULL);
	return false;
}
/* Take what came if it is worth a look. For every drive. */
static inline unsigned udp_ports_look(struct udp_wire *wire)
{
	unsigned packets = 0;
	do
		if (wire->skip > 0)
			wire->skip--;
		else
			packets += udp_wire_receive(wire);
	while ((wire = wire->next) != NULL);
	return packets;
}

#endif
