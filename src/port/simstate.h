/* The internals of the simulated network, shared by simnet.c (events, time, hosts) and simlink.c
 * (links and partitions: what happens to a packet). No other file includes this.
 *
 * An event is a call or the arrival of a packet. It occupies one node from when it is scheduled
 * until it has happened. The heap holds the nodes that wait for their time, a host's list those
 * that wait for the host to wake up. There is one node per call (event_capacity) and per packet
 * buffer (packet_capacity), so neither can starve the other, and a heap of that many entries cannot
 * overflow. */
#ifndef PORT_SIMSTATE_H
#define PORT_SIMSTATE_H

#include "base/prng.h"
#include "base/slab.h"
#include "port/simheap.h"
#include "port/simnet.h"

#include <assert.h>

enum sim_event_kind {
	SIM_EVENT_CALL,
	SIM_EVENT_WAKE,
	SIM_EVENT_ARRIVAL,
};

struct sim_packet {
	uint64_t number;
	uint64_t digest;
	uint32_t from, to;
	uint32_t bytes;
	uint32_t buffer;
};

struct sim_event {
	enum sim_event_kind kind;
	bool was_held;
	bool passed;                 /* the ingress queue of its host */
	uint32_t host;               /* the host that it concerns, or SIM_NO_HOST */
	uint32_t next_held;          /* SLAB_NONE: the end of the host's list */
	struct sim_heap_entry entry; /* its place in time, kept while it is held */
	sim_call *fn;
	void *context;
	uint64_t arg;
	struct sim_packet packet;
};

struct sim_host {
	struct sim_host_ops ops;
	void *context;
	struct sim_ingress ingress;
	uint64_t ingress_free_ns; /* when the last packet in its ingress queue will have passed */
	bool dead, vanished, stalled;
	uint64_t stall_count; /* the wake-up call of an older stall is ignored */
	uint32_t held_first, held_last;
	uint32_t held_count;
};

struct sim_wire {
	struct sim_link attributes;
	uint64_t free_ns;    /* when the last packet in the queue will have left */
	uint64_t arrival_ns; /* of the last packet that was not reordered */
};

struct sim_cut {
	uint64_t set_a, set_b;
	uint64_t start_ns, until_ns; /* until_ns 0: free */
};

struct sim {
	struct sim_config config;
	uint64_t now_ns;
	uint64_t hash;
	uint64_t counts[SIM_KINDS];
	uint64_t next_number;
	struct prng prng;
	sim_trace_fn *trace;
	void *trace_context;
	uint32_t calls_waiting;
	uint32_t in_flight;
	struct sim_heap heap;
	struct slab nodes, buffers;
	struct sim_cut partitions[SIM_MAX_PARTITIONS];
	struct sim_host hosts[SIM_MAX_HOSTS];
	struct sim_wire *links; /* host_count * host_count */
};

static inline struct sim_host *sim_host_at(struct sim *sim, uint32_t host)
{
	assert(host < sim->config.host_count);
	return &sim->hosts[host];
}

static inline struct sim_wire *sim_wire_at(const struct sim *sim, uint32_t from, uint32_t to)
{
	assert(from < sim->config.host_count && to < sim->config.host_count);
	return &sim->links[from * sim->config.host_count + to];
}

static inline bool sim_in_limits(uint32_t value, uint32_t most)
{
	return value >= 1 && value <= most;
}

/* Count, hash and trace. The time is filled in. */
void sim_record(struct sim *sim, struct sim_trace happened);
void sim_record_packet(struct sim *sim, enum sim_kind kind, const struct sim_packet *packet,
                       uint64_t value);
void sim_record_host(struct sim *sim, enum sim_kind kind, uint32_t host, uint64_t number,
                     uint64_t value);

/* @packet has reached the ingress of its host. True: it has arrived; otherwise it is queued, or was
 * dropped. */
bool sim_pass_ingress(struct sim *sim, const struct sim_packet *packet);
/* The end of a packet that has a buffer. */
void sim_drop(struct sim *sim, enum sim_kind kind, const struct sim_packet *packet);

/* Put @event into a node and the heap. A node must be available. */
void sim_schedule(struct sim *sim, uint64_t time_ns, const struct sim_event *event);

#endif
