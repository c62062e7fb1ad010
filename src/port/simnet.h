/* A network of many hosts in one thread, on virtual time, from one seed. It carries packets of any
 * transport between hosts, which are numbers from 0 on, and does to them what networks do: it
 * delays, loses, duplicates, reorders and damages them, is partitioned, and has hosts that stall or
 * die. Nothing here reads a clock, starts a thread or uses a random number that does not come from
 * the seed, so a run can be reproduced from its seed, event by event.
 *
 *   sim_send() -> dead? cut? lost? -> once or twice: queue -> buffer -> damage -> delay -> heap
 *                                                                                            |
 *   receive()  <- attached? <- stalled: held until it wakes <- dead? cut by now? <- ingress <-+
 *
 * The ingress of a host is the last line to it, which all its senders share. If it is all zero,
 * there is none.
 *
 * Memory is allocated once, at creation. Time advances only inside sim_step() and sim_run(). All
 * functions except sim_destroy(), sim_step() and sim_run() may be called from inside a callback.
 * One thread. Host numbers that do not exist are an error of the caller and fail an assertion. */
#ifndef PORT_SIMNET_H
#define PORT_SIMNET_H

#include "base/clock.h"
#include "port/simtrace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_MAX_HOSTS         64u /* so that a set of hosts is one number */
#define SIM_MAX_EVENTS        (1u << 20)
#define SIM_MAX_PACKETS       (1u << 20)
#define SIM_MAX_PACKET_BYTES  65535u
#define SIM_MAX_PARTITIONS    16u
#define SIM_MAX_DELAY_NS      3600000000000u /* an hour */
#define SIM_MAX_QUEUE_BYTES   (1u << 30)
#define SIM_MIN_BANDWIDTH_BPS 1000u
#define SIM_MAX_FLIPS         64u
#define SIM_MAX_TIME_NS       (1ull << 62) /* 146 years: no sum of times wraps */
#define SIM_FOREVER           UINT64_MAX

struct sim;
struct prng;

struct sim_config {
	uint64_t seed;
	uint32_t host_count;      /* 1 to SIM_MAX_HOSTS */
	uint32_t event_capacity;  /* calls of sim_at() that may be pending at a time; 1 to
	                           SIM_MAX_EVENTS */
	uint32_t packet_capacity; /* packets in flight at a time; 1 to SIM_MAX_PACKETS */
	uint32_t packet_bytes;    /* the largest packet; 1 to SIM_MAX_PACKET_BYTES */
};

/* One direction between two hosts. All zero is a perfect link. Chances are in permille of packets.
 * Packets of one link arrive in the order in which they were sent, except those that
 * reorder_permille picks. */
struct sim_link {
	uint64_t delay_min_ns, delay_max_ns;
	uint64_t bandwidth_bps; /* 0: no limit, and no queue */
	uint32_t queue_bytes;   /* a packet that finds more than this in the queue is dropped */
	uint32_t loss_permille;
	uint32_t duplicate_permille;
	uint32_t reorder_permille; /* delayed by 1 to reorder_ns */
	uint64_t reorder_ns;
	uint32_t flip_permille; /* 1 to flip_bits_max bits, no bit twice */
	uint32_t flip_bits_max;
	uint32_t truncate_permille; /* to 0 to length - 1 bytes */
};

/* The line into a host, behind all the links to it: packets from all senders share its queue. A
 * packet that finds more than mark_bytes in the queue is passed to @mark, one that finds more than
 * queue_bytes is dropped. */
struct sim_ingress {
	uint64_t bandwidth_bps; /* 0: there is no queue */
	uint32_t queue_bytes;
	uint32_t mark_bytes;
	/* Mark congestion in the packet, as ECN does; false: this packet cannot be marked. NULL: no
	 * packet can. */
	bool (*mark)(void *packet, size_t bytes);
};

enum sim_death {
	SIM_DEATH_PROCESS, /* packets that it has sent still arrive */
	SIM_DEATH_NODE,    /* packets that it has sent are lost */
};

/* @packet belongs to the network and is invalid after the call returns. @died is called inside
 * sim_kill(), once; it may be NULL. @receive may be NULL: then packets that arrive are dropped
 * (SIM_UNATTENDED). */
struct sim_host_ops {
	void (*receive)(void *context, struct sim *sim, uint32_t host, uint32_t from,
	                const void *packet, size_t bytes);
	void (*died)(void *context, struct sim *sim, uint32_t host);
};

typedef void sim_call(struct sim *sim, void *context, uint64_t arg);

/* Called after each record has been hashed. It must not change the network. */
typedef void sim_trace_fn(void *context, const struct sim_trace *record);

/* 0, -EINVAL (a number outside its limits) or -ENOMEM. All links are perfect, no host is
 * attached. */
int sim_create(const struct sim_config *config, struct sim **out);
void sim_destroy(struct sim *sim); /* NULL is allowed */

uint64_t sim_now_ns(const struct sim *sim);
/* The same as a clock for whatever runs on this network; valid as long as @sim is. */
struct clock sim_clock(struct sim *sim);
/* The network's own generator. Drawing from it changes what the network does next. */
struct prng *sim_prng(struct sim *sim);
void sim_set_trace(struct sim *sim, sim_trace_fn *fn, void *context);
uint64_t sim_hash(const struct sim *sim);
uint64_t sim_count(const struct sim *sim, enum sim_kind kind);
/* Copies of packets that are neither delivered nor dropped yet, including those held for a stalled
 * host. */
uint32_t sim_in_flight(const struct sim *sim);
/* Add an event above the network to the hash. Never an address: addresses differ from run to
 * run. */
void sim_note(struct sim *sim, uint32_t host, uint64_t number, uint64_t value);

/* Call @fn(@sim, @context, @arg) at @time_ns, or now if that is in the past; calls for the same
 * time run in the order in which they were scheduled. @time_ns is below SIM_MAX_TIME_NS. @arg is
 * part of the hash: never an address. 0, or -ENOBUFS if event_capacity calls are pending. */
int sim_at(struct sim *sim, uint64_t time_ns, sim_call *fn, void *context, uint64_t arg);
/* The same as a timer of @host: it waits while the host is stalled and is dropped when the host
 * dies. */
int sim_at_host(struct sim *sim, uint32_t host, uint64_t time_ns, sim_call *fn, void *context,
                uint64_t arg);

/* When the next event is due; SIM_FOREVER if there is none. May be in the past after a host woke
 * up. */
uint64_t sim_next_ns(const struct sim *sim);
/* Run the next event. False: there is none. */
bool sim_step(struct sim *sim);

enum sim_stop {
	SIM_STOP_IDLE,   /* no event is left */
	SIM_STOP_TIME,   /* @until_ns is reached; events are left for later */
	SIM_STOP_EVENTS, /* @max_events have run and more are due */
};
/* Run all events that are due up to and at @until_ns. Afterwards the time is @until_ns, or that of
 * the last event for SIM_FOREVER, unless it stops for SIM_STOP_EVENTS. */
enum sim_stop sim_run(struct sim *sim, uint64_t until_ns, uint64_t max_events);

/* @ops is copied; an all-zero one detaches. */
void sim_host_attach(struct sim *sim, uint32_t host, const struct sim_host_ops *ops, void *context);

/* Send @bytes (0 is a packet, too) of @data, which is copied. As in any network, the sender does
 * not learn what happens to it. 0, or -EMSGSIZE above packet_bytes. */
int sim_send(struct sim *sim, uint32_t from, uint32_t to, const void *data, size_t bytes);

/* Applies to packets sent from now on. 0, or -EINVAL for a number outside its limits. */
int sim_link_set(struct sim *sim, uint32_t from, uint32_t to, const struct sim_link *link);
int sim_link_set_all(struct sim *sim, const struct sim_link *link);
const struct sim_link *sim_link_get(const struct sim *sim, uint32_t from, uint32_t to);

/* Applies to packets that reach it from now on. 0, or -EINVAL for a number outside its limits. */
int sim_ingress_set(struct sim *sim, uint32_t host, const struct sim_ingress *ingress);
/* How many bytes are in its queue. */
uint64_t sim_ingress_bytes(const struct sim *sim, uint32_t host);

/* Cut the hosts of @set_a from those of @set_b (bit n is host n) from @start_ns until before
 * @until_ns. A packet is cut if it is sent or would arrive in that time. 0; -EINVAL if a set is
 * empty, they overlap, one names a host that does not exist, or the time is empty; -ENOBUFS if
 * SIM_MAX_PARTITIONS are current or to come. */
int sim_partition(struct sim *sim, uint64_t set_a, uint64_t set_b, uint64_t start_ns,
                  uint64_t until_ns);
/* Lift every partition, including those to come. */
void sim_heal(struct sim *sim);
bool sim_is_cut(const struct sim *sim, uint32_t a, uint32_t b);

/* @host receives nothing, and none of its timers runs, until @until_ns (SIM_FOREVER: until
 * sim_wake()); then everything that was held follows in its order. A second stall replaces the end
 * of the first. 0; -ESRCH: it is dead; -ENOBUFS as for sim_at(). */
int sim_stall(struct sim *sim, uint32_t host, uint64_t until_ns);
void sim_wake(struct sim *sim, uint32_t host);
bool sim_is_stalled(const struct sim *sim, uint32_t host);

/* Once, for good. From now on everything to and from @host is lost. */
void sim_kill(struct sim *sim, uint32_t host, enum sim_death death);
bool sim_is_dead(const struct sim *sim, uint32_t host);

#endif
