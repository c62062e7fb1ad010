/* 'adapters-coverage', 'wire-coverage', 'streams-coverage', 'messages-coverage': over a few hundred
 * seeds everything happens that the checker claims to have an eye on; else it would say nothing. */
#include "world.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define COVERAGE_SEEDS 200u
#define WIRE_SEEDS     150u /* they have more in them */

static const char *const network_names[] = {[WORLD_LANES] = "adapters",
                                            [WORLD_WIRE] = "wire",
                                            [WORLD_STRIPED] = "striped",
                                            [WORLD_STREAMS] = "streams",
                                            [WORLD_MESSAGES] = "messages"};

/* Do connections run iWARP? */
static bool is_iwarp(enum world_network network)
{
	return network == WORLD_STREAMS || network == WORLD_MESSAGES;
}

static void must_happen(struct scenario_run *run, const char *what, uint64_t which, uint64_t count)
{
	if (run->trace)
		printf("  %-9s %3" PRIu64 ": %" PRIu64 "\n", what, which, count);
	if (count == 0)
		scenario_fail(run, "%s %" PRIu64 " never happens", what, which);
}

/* Which opcodes a type of queue pair offers. */
static bool offered(enum world_network network, int type, uint32_t opcode)
{
	if (type + 1 == HDL_QP_RC) /* iWARP has no Send with immediate data */
		return !is_iwarp(network) || opcode != HDL_OP_SEND_IMM;
	if (type + 1 == HDL_QP_XRC_INI) /* which seldom finds something to invalidate */
		return opcode != HDL_OP_BIND && opcode != HDL_OP_REGISTER &&
		       opcode != HDL_OP_REGISTER_SEND && opcode != HDL_OP_INVALIDATE &&
		       opcode != HDL_OP_SEND_INVALIDATE;
	bool plain = opcode == HDL_OP_SEND || opcode == HDL_OP_SEND_IMM || opcode == HDL_OP_DELAY;
	bool writes = opcode == HDL_OP_WRITE || opcode == HDL_OP_WRITE_IMM;
	return plain || (writes && type + 1 == HDL_QP_UC);
}

/* Statuses that work in these worlds can end with. */
static bool may_happen(enum world_network network, uint32_t status)
{
	switch (status) {
	case HDL_WC_RETRY_EXC_ERR:
	case HDL_WC_RNR_RETRY_EXC_ERR:
		return !is_iwarp(network);
	case HDL_WC_LOC_QP_OP_ERR:
	case HDL_WC_FATAL_ERR:
	case HDL_WC_BAD_RESP_ERR:
	/* Of reliable datagrams: their worlds are others. */
	case HDL_WC_LOC_EEC_OP_ERR:
	case HDL_WC_REM_INV_RD_REQ_ERR:
	case HDL_WC_REM_ABORT_ERR:
	case HDL_WC_INV_EECN_ERR:
	case HDL_WC_INV_EEC_STATE_ERR:
		return false;
	default:
		return strcmp(hdl_wc_status_str(status), "unknown") != 0;
	}
}

static void run_coverage(struct scenario_run *run, enum world_network network)
{
	struct world_tally tally;
	uint64_t count = network == WORLD_WIRE ? WIRE_SEEDS : COVERAGE_SEEDS;
	memset(&tally, 0, sizeof(tally));
	run->hash = SIM_FOLD_START;
	for (uint64_t n = 0; n < count; n++) {
		struct scenario_run one = {.seed = run->seed * count + n};
		world_play(&one, network, &tally);
		if (one.failed)
			scenario_fail(run, "seed %" PRIu64 " of '%s': %s", one.seed,
			              network_names[network], one.why);
		run->hash = sim_fold(run->hash, one.hash);
	}
	for (uint32_t i = 0; i < HDL_WC_STATUS_COUNT; i++)
		if (may_happen(network, i))
			must_happen(run, "status", i, tally.statuses[i]);
	static const char *const names[] = {"rc opcode", "uc opcode", "ud opcode", "xrc opcode"};
	const int types = network == WORLD_WIRE ? 4 : is_iwarp(network) ? 1 : 3;
	for (int type = 0; type < types; type++) {
		for (uint32_t i = 0; i < HDL_OP_COUNT; i++)
			if (offered(network, type, i))
				must_happen(run, names[type], i, tally.done[type][i]);
		int at = type + 1 == HDL_QP_XRC_INI ? HDL_QP_XRC_TGT - 1 : type;
		must_happen(run, "received", (uint64_t)at, tally.received[at]);
	}
	for (uint32_t i = 0; i < HDL_EVENT_TYPE_COUNT; i++)
		if (i != HDL_EVENT_LOST && i != HDL_EVENT_SRQ_ERR && i != HDL_EVENT_PATH_MIG &&
		    i != HDL_EVENT_PATH_MIG_ERR)
			/* There is no agent in a simulated world, and on a wire nobody tells of a
			 * death. A stream begins when its queue pair is ready to send. */
			if (i != HDL_EVENT_AGENT_CHANGED &&
			    (i != HDL_EVENT_COMM_EST || !is_iwarp(network)) &&
			    (i != HDL_EVENT_PEER_GONE || network == WORLD_LANES))
				must_happen(run, "event", i, tally.events[i]);
	const uint32_t done_to_hosts = FAULT_KILL | FAULT_DEREGISTER | FAULT_UNMAP | FAULT_STATE |
	                               FAULT_DESTROY |
	                               (network == WORLD_WIRE ? FAULT_PARTITION : 0) |
	                               (is_iwarp(network) ? FAULT_STREAMS : 0);
	for (uint32_t i = 0; network == WORLD_MESSAGES && i < MESSAGE_CASES; i++)
		must_happen(run, "message", i, tally.messages[i]);
	for (uint32_t i = 0; i < 32; i++)
		if (done_to_hosts >> i & 1)
			must_happen(run, "fault", i, tally.faults[i]);
}

static void run_adapters_coverage(struct scenario_run *run)
{
	run_coverage(run, WORLD_LANES);
}

static void run_wire_coverage(struct scenario_run *run)
{
	run_coverage(run, WORLD_WIRE);
}

static void run_streams_coverage(struct scenario_run *run)
{
	run_coverage(run, WORLD_STREAMS);
}

static void run_messages_coverage(struct scenario_run *run)
{
	run_coverage(run, WORLD_MESSAGES);
}

extern const struct scenario scenario_adapters_coverage, scenario_wire_coverage,
        scenario_streams_coverage, scenario_messages_coverage;
const struct scenario scenario_adapters_coverage = {
        .name = "adapters-coverage",
        .purpose = "what 'adapters' claims to survive does happen",
        .run = run_adapters_coverage,
        .test_seeds = 1,
};
const struct scenario scenario_wire_coverage = {
        .name = "wire-coverage",
        .purpose = "what 'wire' claims to survive does happen",
        .run = run_wire_coverage,
        .test_seeds = 1,
};
const struct scenario scenario_streams_coverage = {
        .name = "streams-coverage",
        .purpose = "what 'streams' claims to survive does happen",
        .run = run_streams_coverage,
        .test_seeds = 1,
};
const struct scenario scenario_messages_coverage = {
        .name = "messages-coverage",
        .purpose = "what 'messages' claims to survive does happen",
        .run = run_messages_coverage,
        .test_seeds = 1,
};
