/* The world of the 'packets' scenario: hosts that send each other numbered packets, and what the
 * checker remembers of each.
 *
 * A packet is a RoCEv2 datagram (packets_wire.c). Its kind, headers and payload come from its seed,
 * so the checker can tell what every byte must be. */
#ifndef SIM_PACKETS_H
#define SIM_PACKETS_H

#include "scenario.h"

#include "base/prng.h"
#include "port/simfault.h"

#define PACKETS_SMALLEST      44u
#define PACKETS_LARGEST       4200u
#define PACKETS_MAX_SENT      2048u
#define PACKETS_MAX_HOSTS     12u
#define PACKETS_MAX_EVENTS    1000000u
#define PACKETS_LAST_START_NS 3000000u /* faults and bursts start before this */

struct sent {
	uint32_t from, to;
	uint32_t room; /* it may have so many bytes */
	uint32_t bytes;
	uint64_t digest;
	uint64_t body_seed;
	uint64_t time_ns;
	uint64_t left_ns;     /* when its last byte left, on a link without faults */
	struct sim_link link; /* as it was then */
	uint32_t copies, ended, delivered, damaged, delayed, held;
};

struct world {
	struct scenario_run *run;
	struct sim *sim;
	struct prng prng; /* of the workload; the network has its own */
	bool faultless;
	uint32_t host_count, packet_capacity, packet_bytes;
	uint32_t budget; /* packets that may still be sent */
	struct sim_fault faults[SIM_MAX_FAULTS];
	uint32_t fault_count;

	struct sent sent[PACKETS_MAX_SENT]; /* by number */
	uint32_t sent_count;
	uint32_t in_flight;
	uint64_t counts[SIM_KINDS];
	struct sim_trace arriving; /* the latest SIM_DELIVERED */
	uint64_t free_ns[PACKETS_MAX_HOSTS]
	                [PACKETS_MAX_HOSTS]; /* when a link without faults is idle */
	uint64_t last_number[PACKETS_MAX_HOSTS]
	                    [PACKETS_MAX_HOSTS]; /* 1 + the last that kept its turn */
	uint8_t packet[PACKETS_LARGEST];
	uint8_t expected[PACKETS_LARGEST];
};

/* Play both halves of the scenario for run->seed: with faults and without. Adds what happened to
 * @counts, if not NULL. */
void packets_play(struct scenario_run *run, uint64_t counts[SIM_KINDS]);

/* Write packet @number, as world->sent[] describes it, to @out (PACKETS_LARGEST bytes). Returns its
 * bytes. */
uint32_t packets_build(const struct world *world, uint32_t number, uint8_t *out);
/* Do its lengths and checksums, the ICRC above all, say that it is whole? */
bool packets_is_good(const uint8_t *packet, size_t bytes);
/* The same but for what no checksum covers: a network may change that. */
bool packets_equal(const uint8_t *a, const uint8_t *b, size_t bytes);

/* The checker. packets_check_trace() is a sim_trace_fn whose context is the world; the other two
 * see each packet that a host receives (true: it is whole) and the end of the run. What is wrong
 * goes to scenario_fail(). */
void packets_check_trace(void *world, const struct sim_trace *record);
bool packets_check_received(struct world *world, uint32_t host, uint32_t from, const void *packet,
                            size_t bytes);
void packets_check_end(struct world *world);

#endif
