/* The port on UDP sockets: how the packets of the engine leave and enter the process.
 *
 *   out   reserve, commit: packets lie back to back in an arena; packets to the same
 *         process with the same length form a train, which one system call sends
 *   in    the socket of the process, one of the group that the agent keeps (port/steer.h)
 *
 * The process sends packets from its own sockets with different source ports, so that the network
 * can spread its flows. The source port of the path and the destination process select the socket.
 *
 * Each class of service (wire/dscp.h) has an arena, trains and sockets of its own. A flush sends
 * the urgent class first, and where the kernel has no room for the packets of one class, only that
 * class waits.
 *
 * An adapter on several addresses has one such port per address. Each builds its own trains, so
 * packets that alternate between two addresses are still joined. */
#ifndef ADAPTER_UDP_H
#define ADAPTER_UDP_H

#include <stdbool.h>
#include <stdint.h>

#include "adapter/net/port.h"
#include "base/counter.h"
#include "port/owner.h"
#include "port/udp.h"
#include "transport/path.h"
#include "wire/dscp.h"

#define UDP_SENDERS 8u /* source ports per process */
#define UDP_ARENA_BYTES \
	(1u << 19) /* of packets of a class that wait for the end of a turn: more than one queue \
	              pair sends in it */
#define UDP_SEEDS      64u /* cached ICRC seeds */
#define UDP_MAX_GROUPS 64u /* groups that a process can be a member of */

/* How long GRO stays off after packets for several processes arrived as one. The time doubles on
 * each repetition, unless the last one was long ago. */
#define UDP_APART_NS     1000000000ull
#define UDP_APART_MAX_NS (8 * UDP_APART_NS)

/* The ICRC seed, for IPv4 identification 0, of packets to or from one peer. */
struct udp_seed {
	uint8_t gid[16];
	uint16_t port;
	uint16_t bytes; /* of the UDP payload; 0: unused entry */
	uint32_t seed;
};

struct udp_counts {
	uint64_t sent, received; /* packets */
	uint64_t refused;        /* by the kernel: no route, too long, a filter */
	uint64_t bad, foreign;   /* damaged; for another process */
	uint64_t strange;        /* from a socket of another user on this machine */
	uint64_t blocked;        /* how often the kernel had no room */
};

/* The packets of one class of service that wait, and the sockets that send them. */
struct udp_queue {
	struct {
		int sock; /* -1: not opened yet */
		uint16_t port;
		/* The socket's own hop limit and traffic class: the first ones requested; 0: none
		 * yet. */
		uint8_t hops, tos;
	} senders[UDP_SENDERS];
	uint8_t *arena; /* NULL: no packet of this class has been sent yet */
	size_t used;
	unsigned first, count; /* of the waiting trains */
	struct udp_waiting {
		struct udp_train train;
		uint32_t sender, slot;
		uint8_t gid[16]; /* of the path; for a group it is not the destination address */
		uint8_t hops;
		bool closed; /* its last packet is shorter, so none can follow */
	} trains[UDP_MAX_TRAINS];
};

struct udp_wire {
	struct net_port port; /* must be first: udp_wire_of() */
	struct carrier carrier;
	struct udp_address address;
	uint32_t slot_shift, slot; /* which queue pairs belong to this process */
	/* The receiver of incoming packets. */
	void (*take)(void *context, const struct path *came, bool congested,
	             const struct ib_packet *packet);
	void *take_context;
	struct counter *bad; /* counts damaged packets; or NULL */

	/* In. */
	int sock; /* -1: none */
	/* Packets for several processes arrived joined: GRO is off until apart_ns (0: it is on);
	 * pause_ns is how long it was off the last time. */
	uint64_t apart_ns, pause_ns;
	struct udp_receiver receiver;
	struct owner owner; /* which user sent packets from this machine */

	struct {
		int sock; /* -1: a free entry */
		uint8_t gid[16];
		struct udp_address address;
	} groups[UDP_MAX_GROUPS];
	unsigned group_count, group_turn; /* the last one that was polled */

	/* Out. */
	bool loop;        /* packets to groups also reach members on this machine */
	bool trains_work; /* the kernel splits a train into packets */
	struct udp_queue queues[SERVICE_CLASSES];
	struct udp_queue *queue;            /* that of the last packet */
	uint32_t id_seeds[UDP_MAX_PACKETS]; /* icrc_seed_ip_id() */
	struct udp_seed out_seeds[UDP_SEEDS], in_seeds[UDP_SEEDS];
	struct udp_counts counts;
};

/* Prepare to send from @address and to receive on @sock, which is taken over (-1: none). Returns 0
 * or -errno. */
int udp_wire_begin(struct udp_wire *wire, const struct udp_address *address, int sock,
                   uint32_t mtu);
void udp_wire_end(struct udp_wire *wire);
/* Receive on another socket: there is a new agent. */
void udp_wire_replace(struct udp_wire *wire, int sock);
/* Receive at most one batch. Returns the number of packets. */
unsigned udp_wire_receive(struct udp_wire *wire);
/* Set whether packets to groups also reach members on this machine. */
void udp_wire_loop(struct udp_wire *wire, bool loop);
/* Join the group @gid. Returns the socket to wait for, which the wire owns, or -errno. */
int udp_wire_join(struct udp_wire *wire, const uint8_t gid[16]);
void udp_wire_leave(struct udp_wire *wire, const uint8_t gid[16]);
/* Receive packets to groups. */
unsigned udp_wire_receive_groups(struct udp_wire *wire);
/* Are there packets that the kernel had no room for? */
static inline bool udp_wire_blocked(const struct udp_wire *wire)
{
	for (unsigned i = 0; i < SERVICE_CLASSES; i++)
		if (wire->queues[i].first != wire->queues[i].count)
			return true;
	return false;
}

/* --- net/udp_link.c --- */
extern const struct net_port_ops udp_port_ops;
/* The wire of a port with these functions. */
static inline struct udp_wire *udp_wire_of(struct net_port *port)
{
	return (struct udp_wire *)(void *)port;
}

#endif
