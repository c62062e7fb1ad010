/* 'migration': the line that a connection uses is cut while messages are on it (MISSION SN3). They
 * go on along the alternate path; nothing is lost, nothing comes twice. 'striping': a connection
 * uses two lines at a time; it is nearly twice as fast, and when one of them is cut it goes on with
 * the other. */
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

/* Both lines against one; then each of them is cut, and mended; then both lose packets. */
static void run_striping(struct scenario_run *run)
{
	run->hash = SIM_FOLD_START;
	for (int kind = WAYS_SEND; kind <= WAYS_READ; kind++) {
		struct ways_config config = {.seed = run->seed,
		                             .use = WAYS_FIRST_ONLY,
		                             .kind = (enum ways_kind)kind,
		                             .mtu = run->seed & 1 ? 1024 : 4096,
		                             .message_bytes = 1u << 20,
		                             .depth = 4,
		                             .bandwidth_bps = 10 * GB,
		                             .delay_ns = {5000, 5000 + run->seed % 4 * 1000},
		                             .buffer_bytes = 1000000,
		                             .duration_ns = 20 * MS,
		                             .from_ns = 2 * MS,
		                             .timeout = 14,
		                             .retry_cnt = 7};
		struct ways_result one, both, cut, mended, lossy;
		if (!play(run, &config, &one))
			return;
		config.use = WAYS_STRIPE;
		if (!play(run, &config, &both))
			return;
		/* One message at a time: it takes about half as long, too. */
		struct ways_result lone[2];
		config.depth = 1;
		if (!play(run, &config, &lone[1]))
			return;
		config.use = WAYS_FIRST_ONLY;
		if (!play(run, &config, &lone[0]))
			return;
		if (lone[0].goodput > 0.6 * lone[1].goodput)
			scenario_fail(run, "%s: a message takes %.2f of the time over two lines",
			              kinds[kind], lone[0].goodput / lone[1].goodput);
		config.use = WAYS_STRIPE;
		config.depth = 4;
		uint64_t line = run->seed & 1;
		config.cut_ns[line] = 5 * MS + run->seed * 1037 % MS;
		config.from_ns = 10 * MS;
		if (!play(run, &config, &cut))
			return;
		config.mended_ns[line] = 8 * MS;
		config.from_ns = 16 * MS;
		config.duration_ns = 30 * MS;
		if (!play(run, &config, &mended))
			return;
		config.cut_ns[line] = 0;
		config.loss_permille = 3;
		if (!play(run, &config, &lossy))
			return;
		if (both.goodput < 1.7 * one.goodput)
			scenario_fail(run, "%s: %.0f MB/s over two lines, %.0f over one",
			              kinds[kind], both.goodput / 1e6, one.goodput / 1e6);
		if (cut.goodput < 0.9 * one.goodput)
			scenario_fail(run,
			              "%s: %.0f MB/s over the line that is left, %.0f over one",
			              kinds[kind], cut.goodput / 1e6, one.goodput / 1e6);
		if (mended.goodput < 1.7 * one.goodput)
			scenario_fail(run, "%s: %.0f MB/s after the other line came back",
			              kinds[kind], mended.goodput / 1e6);
		if (lossy.goodput < 0.1 * one.goodput)
			scenario_fail(run, "%s: %.0f MB/s with losses", kinds[kind],
			              lossy.goodput / 1e6);
	}
}

extern const struct scenario scenario_striping;
const struct scenario scenario_striping = {
        .name = "striping",
        .purpose = "one connection fills two lines, and goes on with the one that is left",
        .run = run_striping,
        .test_seeds = 4,
        .twice = 1,
};

extern const struct scenario scenario_migration;
const struct scenario scenario_migration = {
        .name = "migration",
        .purpose = "a connection goes on along its alternate path when its line is cut",
        .run = run_migration,
        .test_seeds = 6,
        .twice = 6,
};
