/* 'migration': the line that a connection uses is cut while messages are on it (MISSION SN3). They go on along the alternate path;
 * nothing is lost, nothing comes twice. */
#include "scenario.h"

#include "ways.h"

#include <inttypes.h>
#include <stdio.h>

#define MS 1000000ull
#define GB 1000000000ull

static const char *const kinds[] = {"sends", "writes", "reads"};

static bool play(struct scenario_run *run, const struct ways_config *config,
                 struct ways_result *result)
{
	if (!ways_run(config, result)) {
		scenario_fail(run, "no memory");
		return false;
	}
	run->hash = sim_fold(run->hash, result->hash);
	if (run->trace)
		printf("  %s: %.0f MB/s, %" PRIu64 " messages, %" PRIu64 " failed, %" PRIu64
		       " migrations, %.2f ms without any\n",
		       kinds[config->kind], result->goodput / 1e6, result->messages, result->failed,
		       result->migrated, (double)result->longest_ns / 1e6);
	if (result->failed != 0)
		scenario_fail(run, "%s: %" PRIu64 " failed, doubled, out of order or not whole",
		              kinds[config->kind], result->failed);
	return true;
}

static void run_migration(struct scenario_run *run)
{
	run->hash = SIM_FOLD_START;
	for (int kind = WAYS_SEND; kind <= WAYS_READ; kind++) {
		struct ways_config config = {.seed = run->seed,
		                             .use = WAYS_MIGRATE,
		                             .kind = (enum ways_kind)kind,
		                             .mtu = 1024,
		                             .message_bytes = 60000,
		                             .depth = 4,
		                             .bandwidth_bps = 10 * GB,
		                             .delay_ns = {5000, 7000},
		                             .buffer_bytes = 1000000,
		                             .loss_permille = (uint32_t)(run->seed % 3),
		                             .duration_ns = 20 * MS,
		                             .cut_ns = {3 * MS + run->seed * 1037 % MS, 0},
		                             .from_ns = 10 * MS,
		                             .timeout = 8,
		                             .retry_cnt = 2};
		struct ways_result result;
		if (!play(run, &config, &result))
			return;
		if (result.migrated != 2)
			scenario_fail(run, "%s: %" PRIu64 " ends changed over", kinds[kind],
			              result.migrated);
		/* Nothing went for 3 timeouts, and then it all went on. */
		if (result.goodput < (config.loss_permille != 0 ? 0.2 : 0.9) * 1.25e9)
			scenario_fail(run, "%s: %.0f MB/s after the change", kinds[kind],
			              result.goodput / 1e6);
	}
}

extern const struct scenario scenario_migration;
const struct scenario scenario_migration = {
        .name = "migration",
        .purpose = "a connection goes on along its alternate path when its line is cut",
        .run = run_migration,
        .test_seeds = 6,
};
