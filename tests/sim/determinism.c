/* 'determinism': the same seed is the same run, event by event and byte by byte, and another seed
 * is another run. 'coverage': over a hundred seeds the worlds of 'packets' meet every fault there
 * is; else its checker would say nothing. */
#include "packets.h"

#include <inttypes.h>
#include <stdio.h>

#define COVERAGE_SEEDS 100u

static void play(struct scenario_run *run)
{
	packets_play(run, NULL);
}

static void run_determinism(struct scenario_run *run)
{
	struct scenario_run other = {.seed = run->seed + 1};
	play(run);
	scenario_repeat(run, play);
	play(&other);
	if (other.hash == run->hash)
		scenario_fail(run, "seed %" PRIu64 " has the same hash", other.seed);
}

static void run_coverage(struct scenario_run *run)
{
	uint64_t counts[SIM_KINDS] = {0};

	run->hash = SIM_FOLD_START;
	for (uint64_t n = 0; n < COVERAGE_SEEDS; n++) {
		struct scenario_run one = {.seed = run->seed * COVERAGE_SEEDS + n,
		                           .trace = run->trace};
		packets_play(&one, counts);
		if (one.failed)
			scenario_fail(run, "seed %" PRIu64 " of 'packets': %s", one.seed, one.why);
		run->hash = sim_fold(run->hash, one.hash);
	}
	for (int kind = 0; kind < SIM_KINDS; kind++) {
		/* These four the worlds never ask for. */
		bool unused = kind == SIM_UNATTENDED || kind == SIM_HEALED || kind == SIM_NOTED ||
		              kind == SIM_MARKED;
		if (run->trace)
			printf("  %-13s %" PRIu64 "\n", sim_kind_name((enum sim_kind)kind),
			       counts[kind]);
		if (counts[kind] == 0 && !unused)
			scenario_fail(run, "'%s' never happens",
			              sim_kind_name((enum sim_kind)kind));
	}
}

extern const struct scenario scenario_determinism, scenario_coverage;
const struct scenario scenario_determinism = {
        .name = "determinism",
        .purpose = "the same seed gives the same hash, another seed another",
        .run = run_determinism,
        .test_seeds = 50,
};
const struct scenario scenario_coverage = {
        .name = "coverage",
        .purpose = "the faults that 'packets' claims to survive do happen",
        .run = run_coverage,
        .test_seeds = 1,
};
