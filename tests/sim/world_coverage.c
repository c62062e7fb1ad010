/* 'adapters-again': a world of adapters is the same the second time, wherever its memory lies. 'adapters-coverage': over
 * a few hundred seeds everything happens that the checker of 'adapters' claims to have an eye on; else it would say
 * nothing. */
#include "world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COVERAGE_SEEDS 300u
#define MOVED_BLOCKS   64u

static void run_again(struct scenario_run *run)
{
	struct scenario_run second = {.seed = run->seed};
	void *moved[MOVED_BLOCKS];

	world_play(run, NULL);
	for (size_t i = 0; i < MOVED_BLOCKS; i++)
		moved[i] = malloc((i + 1) * 4096);
	world_play(&second, NULL);
	for (size_t i = 0; i < MOVED_BLOCKS; i++)
		free(moved[i]);
	if (second.hash != run->hash)
		scenario_fail(run, "the second run has the hash 0x%016" PRIx64, second.hash);
}

static void must_happen(struct scenario_run *run, const char *what, uint64_t which, uint64_t count)
{
	if (run->trace)
		printf("  %-9s %3" PRIu64 ": %" PRIu64 "\n", what, which, count);
	if (count == 0)
		scenario_fail(run, "%s %" PRIu64 " never happens", what, which);
}

/* Which opcodes a type of queue pair offers. */
static bool offered(int type, uint32_t opcode)
{
	if (type + 1 == HDL_QP_RC)
		return true;
	bool plain = opcode == HDL_OP_SEND || opcode == HDL_OP_SEND_IMM || opcode == HDL_OP_DELAY;
	bool writes = opcode == HDL_OP_WRITE || opcode == HDL_OP_WRITE_IMM;
	return plain || (writes && type + 1 == HDL_QP_UC);
}

static void run_coverage(struct scenario_run *run)
{
	struct world_tally tally;
	memset(&tally, 0, sizeof(tally));
	run->hash = SIM_FOLD_START;
	for (uint64_t n = 0; n < COVERAGE_SEEDS; n++) {
		struct scenario_run one = {.seed = run->seed * COVERAGE_SEEDS + n};
		world_play(&one, &tally);
		if (one.failed)
			scenario_fail(run, "seed %" PRIu64 " of 'adapters': %s", one.seed, one.why);
		run->hash = sim_fold(run->hash, one.hash);
	}
	for (uint32_t i = 0; i < HDL_WC_STATUS_COUNT; i++)
		if (strcmp(hdl_wc_status_str(i), "unknown") != 0 && i != HDL_WC_LOC_QP_OP_ERR &&
		    i != HDL_WC_FATAL_ERR && i != HDL_WC_BAD_RESP_ERR &&
		    i != HDL_WC_REM_INV_RD_REQ_ERR) /* nothing here leads to these */
			must_happen(run, "status", i, tally.statuses[i]);
	for (int type = 0; type < 3; type++) {
		for (uint32_t i = 0; i < HDL_OP_COUNT; i++)
			if (offered(type, i))
				must_happen(run,
				            type ? type == 1 ? "uc opcode" : "ud opcode"
				                 : "rc opcode",
				            i, tally.done[type][i]);
		must_happen(run, "received", (uint64_t)type, tally.received[type]);
	}
	for (uint32_t i = 0; i < HDL_EVENT_TYPE_COUNT; i++)
		if (i != HDL_EVENT_LOST && i != HDL_EVENT_SRQ_ERR)
			if (i !=
			    HDL_EVENT_AGENT_CHANGED) /* there is no agent in a simulated world */
				must_happen(run, "event", i, tally.events[i]);
	const uint32_t done_to_hosts =
	        FAULT_KILL | FAULT_DEREGISTER | FAULT_UNMAP | FAULT_STATE | FAULT_DESTROY;
	for (uint32_t i = 0; i < 32; i++)
		if (done_to_hosts >> i & 1)
			must_happen(run, "fault", i, tally.faults[i]);
}

extern const struct scenario scenario_adapters_again, scenario_adapters_coverage;
const struct scenario scenario_adapters_again = {
        .name = "adapters-again",
        .purpose = "a world of adapters is the same the second time",
        .run = run_again,
        .test_seeds = 50,
};
const struct scenario scenario_adapters_coverage = {
        .name = "adapters-coverage",
        .purpose = "what 'adapters' claims to survive does happen",
        .run = run_coverage,
        .test_seeds = 1,
};
