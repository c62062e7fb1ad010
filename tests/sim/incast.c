/* 'incast': thirty-two senders into one receiver, over a line with a short buffer that marks and
 * drops (MISSION SN3). The line stays full, everybody has a fair share of it, nothing fails; and
 * one sender alone has all of it, two come to share it. */
#include "scenario.h"

#include "crowd.h"

#include <inttypes.h>
#include <stdio.h>

#define MS 1000000ull

struct claim {
	double goodput, fairness; /* at least */
};

static void check(struct scenario_run *run, const struct crowd_config *config,
                  const struct claim *claim)
{
	static const char *const kinds[] = {"writes", "sends", "reads"};
	struct crowd_result r;
	if (!crowd_run(config, &r)) {
		scenario_fail(run, "no memory");
		return;
	}
	run->hash = sim_fold(run->hash, r.hash);
	if (run->trace)
		printf("  %u %s, MTU %u, buffer %u: %.1f %%, Jain %.3f, %" PRIu64 " dropped\n",
		       config->flows, kinds[config->kind], config->mtu, config->buffer_bytes,
		       r.goodput * 100, r.fairness, r.dropped);
	if (r.failed != 0 || r.wrong != 0)
		scenario_fail(run,
		              "%u %s, MTU %u: %" PRIu64 " requests failed, %" PRIu64 " bytes wrong",
		              config->flows, kinds[config->kind], config->mtu, r.failed, r.wrong);
	if (r.goodput < claim->goodput || r.fairness < claim->fairness)
		scenario_fail(run,
		              "%u %s, MTU %u, buffer %u: %.1f %% of the line, Jain's index %.3f",
		              config->flows, kinds[config->kind], config->mtu, config->buffer_bytes,
		              r.goodput * 100, r.fairness);
}

static void run_incast(struct scenario_run *run)
{
	static const struct {
		enum crowd_kind kind;
		uint32_t flows, mtu, buffer_bytes, mark_bytes;
		uint64_t gigabits, ms, from_ms;
		struct claim claim;
	} rows[] = {
	        {CROWD_WRITE, 32, 1024, 200000, 80000, 10, 30, 0, {0.9, 0.9}},
	        {CROWD_WRITE, 32, 4096, 200000, 80000, 25, 20, 0, {0.9, 0.9}},
	        {CROWD_SEND, 32, 4096, 200000, 80000, 10, 20, 0, {0.9, 0.9}},
	        {CROWD_SEND, 32, 1024, 1000000, 200000, 25, 20, 0, {0.9, 0.9}},
	        {CROWD_READ, 32, 1024, 200000, 80000, 10, 30, 0, {0.9, 0.9}},
	        {CROWD_READ, 32, 4096, 1000000, 200000, 25, 30, 0, {0.9, 0.9}},
	        {CROWD_WRITE, 1, 1024, 200000, 80000, 25, 10, 0, {0.95, 1}},
	        {CROWD_READ, 1, 4096, 200000, 80000, 10, 10, 0, {0.95, 1}},
	        {CROWD_SEND, 2, 1024, 200000, 80000, 10, 20, 5, {0.9, 0.95}},
	};
	run->hash = SIM_FOLD_START;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct crowd_config config = {.seed = run->seed,
		                              .kind = rows[i].kind,
		                              .flows = rows[i].flows,
		                              .mtu = rows[i].mtu,
		                              .message_bytes = 1u << 20,
		                              .depth = 2,
		                              .bandwidth_bps = rows[i].gigabits * 1000000000,
		                              .round_trip_ns = 10000,
		                              .buffer_bytes = rows[i].buffer_bytes,
		                              .mark_bytes = rows[i].mark_bytes,
		                              .marks = true,
		                              .duration_ns = rows[i].ms * MS,
		                              .from_ns = rows[i].from_ms * MS,
		                              .late_ns = rows[i].from_ms * MS / 2};
		check(run, &config, &rows[i].claim);
	}
}

extern const struct scenario scenario_incast;
const struct scenario scenario_incast = {
        .name = "incast",
        .purpose = "many senders into one receiver keep its line full and share it",
        .run = run_incast,
        .test_seeds = 1,
        .twice = 1,
};
