/* Faults drawn from a seed: how bad the links are, and what happens to hosts and the network during
 * a run. A fault is data: a checker that draws the list can read it, and knows what must have
 * happened without asking the network. */
#ifndef PORT_SIMFAULT_H
#define PORT_SIMFAULT_H

#include "port/simnet.h"

struct prng;

#define SIM_MAX_FAULTS 64u

enum sim_fault_kind {
	SIM_FAULT_PARTITION,
	SIM_FAULT_STALL,
	SIM_FAULT_DEATH,
};

struct sim_fault {
	enum sim_fault_kind kind;
	uint64_t start_ns, until_ns; /* a death has no end: SIM_FOREVER */
	uint64_t set_a, set_b;       /* of a partition */
	uint32_t host;               /* of a stall or a death */
	enum sim_death death;
};

/* What to draw, and when. No more than SIM_MAX_FAULTS in all, of which SIM_MAX_PARTITIONS are
 * partitions. */
struct sim_fault_plan {
	uint64_t start_ns, until_ns;                     /* every fault starts within this time */
	uint64_t longest_ns;                             /* of a partition or stall; at least 1 */
	uint32_t partitions_max, stalls_max, deaths_max; /* 0 to this many of each */
};

/* Draw a link: one in four is perfect except for its delay, and in the others each kind of fault
 * may or may not occur. */
void sim_link_draw(struct prng *prng, struct sim_link *link);

/* Fill @faults (room for SIM_MAX_FAULTS) for a network of @host_count hosts; returns the number of
 * faults. Partitions and deaths need two hosts. No host dies twice, and at least one stays
 * alive. */
uint32_t sim_faults_draw(struct prng *prng, const struct sim_fault_plan *plan, uint32_t host_count,
                         struct sim_fault *faults);

/* Schedule @fault. The caller keeps it, and it must outlive the run. 0, -EINVAL or -ENOBUFS as
 * sim_partition() and sim_at(). */
int sim_fault_arm(struct sim *sim, const struct sim_fault *fault);

#endif
