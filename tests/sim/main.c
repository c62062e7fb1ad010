/* sim-worlds: runs worlds from seeds and judges them. Prints a line a run; for one that failed,
 * why, and the command that has it again. Seeds that failed once are kept in tests/sim/seeds and
 * run first, each time, unless one seed is asked for. */
#include "guard.h"
#include "scenario.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEPT_SEEDS   "tests/sim/seeds" /* from the root of the tree, where `make` is */
#define FULL_SHARE   100u              /* seeds of a scenario that is not special */
#define MOVED_BLOCKS 64u
#define EXIT_TROUBLE 2 /* the runner could not do what it was asked */

struct options {
	uint64_t seed;
	bool seed_given;
	uint64_t seed_count; /* 0: what each scenario asks for */
	const char *scenario;
	const char *kept;
	uint64_t part, parts; /* of what is to be run, this part of so many, from 0 on */
	bool trace;
	bool quiet;
	unsigned limit_ms; /* of processor time without an event; 0: the usual */
	bool endless;      /* run nothing but a world that needs more */
};

struct tally {
	uint64_t runs, failures;
	uint64_t seen; /* runs that were this part's turn or not */
	bool quiet;
};

void scenario_fail(struct scenario_run *run, const char *format, ...)
{
	va_list arguments;

	if (run->failed)
		return;
	run->failed = true;
	va_start(arguments, format);
	vsnprintf(run->why, sizeof(run->why), format, arguments);
	va_end(arguments);
}

void scenario_print(void *context, const struct sim_trace *record)
{
	const struct scenario_run *run = context;
	char line[SIM_TRACE_LINE_BYTES];

	if (run->trace)
		printf("  %s\n", sim_trace_format(record, line, sizeof(line)));
}

/* Other memory the second time: an address that found its way into the run shows. */
void scenario_repeat(struct scenario_run *run, void (*play)(struct scenario_run *run))
{
	struct scenario_run again = {.seed = run->seed};
	void *moved[MOVED_BLOCKS];

	for (size_t i = 0; i < MOVED_BLOCKS; i++)
		moved[i] = malloc((size_t)4096 << i % 12);
	play(&again);
	for (size_t i = 0; i < MOVED_BLOCKS; i++)
		free(moved[i]);
	if (again.hash != run->hash)
		scenario_fail(run, "the second run has the hash 0x%016" PRIx64, again.hash);
}

static const struct scenario *find_scenario(const char *name)
{
	for (size_t i = 0; scenarios[i]; i++)
		if (strcmp(scenarios[i]->name, name) == 0)
			return scenarios[i];
	return NULL;
}

static bool parse_number(const char *text, uint64_t *number)
{
	char *end;

	if (*text < '0' || *text > '9') /* strtoull() would take a sign and spaces */
		return false;
	errno = 0;
	*number = strtoull(text, &end, 0);
	return errno == 0 && *end == '\0';
}

static void run_one(const struct options *options, const struct scenario *scenario, uint64_t seed,
                    bool twice, struct tally *tally)
{
	struct scenario_run run = {.seed = seed, .trace = options->trace};
	char endless[256];

	if (tally->seen++ % options->parts != options->part)
		return;
	snprintf(endless, sizeof(endless),
	         "seed %" PRIu64 " scenario %s: FAILED\n  no event ended within %u ms of processor "
	         "time: a loop that does not end?\n  again: make sim SEED=%" PRIu64 "\n",
	         seed, scenario->name,
	         options->limit_ms != 0 ? options->limit_ms : guard_limit_ms(), seed);
	guard_begin(endless, options->limit_ms);
	scenario->run(&run);
	if (twice)
		scenario_repeat(&run, scenario->run);
	guard_end();
	tally->runs++;
	if (!run.failed) {
		if (!tally->quiet)
			printf("seed %" PRIu64 " scenario %s: ok hash 0x%016" PRIx64 "\n", seed,
			       scenario->name, run.hash);
		return;
	}
	tally->failures++;
	printf("seed %" PRIu64 " scenario %s: FAILED hash 0x%016" PRIx64 "\n  %s\n"
	       "  again: make sim SEED=%" PRIu64 "\n"
	       "  events: %s --seed %" PRIu64 " --scenario %s --trace\n"
	       "  keep:  echo '%s %" PRIu64 "' >> tests/sim/seeds\n",
	       seed, scenario->name, run.hash, run.why, seed, program_invocation_name, seed,
	       scenario->name, scenario->name, seed);
	fflush(stdout);
}

/* A line is a scenario and a seed; one that starts with # is a comment. False when the file cannot
 * be read or understood. */
static bool run_kept(const struct options *options, struct tally *tally)
{
	FILE *file = fopen(options->kept, "r");
	char line[256];
	bool good = true;

	if (!file) {
		fprintf(stderr, "sim: %s: %s\n", options->kept, strerror(errno));
		return false;
	}
	for (unsigned number = 1; good && fgets(line, sizeof(line), file); number++) {
		char *rest = NULL;
		char *name = strtok_r(line, " \t\n", &rest);
		if (!name || *name == '#')
			continue;
		char *text = strtok_r(NULL, " \t\n", &rest);
		const struct scenario *scenario = find_scenario(name);
		uint64_t seed;
		good = scenario && text && parse_number(text, &seed);
		if (!good)
			fprintf(stderr, "sim: %s:%u: not a scenario and a seed\n", options->kept,
			        number);
		else if (!options->scenario || strcmp(options->scenario, name) == 0)
			run_one(options, scenario, seed, false, tally);
	}
	if (ferror(file))
		good = false;
	fclose(file);
	return good;
}

/* Of @count seeds those scenarios get fewer that `make test` gives few: some runs are many worlds.
 */
static uint64_t share_of(const struct scenario *scenario, uint64_t count)
{
	uint64_t share = scenario->test_seeds >= FULL_SHARE
	                         ? count
	                         : count * scenario->test_seeds / FULL_SHARE;
	return share > 0 ? share : 1;
}

static void run_seeds(const struct options *options, struct tally *tally)
{
	for (size_t i = 0; scenarios[i]; i++) {
		const struct scenario *scenario = scenarios[i];
		uint64_t count = options->seed_count;
		if (options->scenario && strcmp(options->scenario, scenario->name) != 0)
			continue;
		if (count == 0)
			count = options->seed_given ? 1 : scenario->test_seeds;
		else if (!options->scenario)
			count = share_of(scenario, count);
		for (uint64_t n = 0; n < count; n++)
			run_one(options, scenario, options->seed + n, n < scenario->twice, tally);
	}
}

static void compute_for_ever(struct sim *sim, void *context, uint64_t arg)
{
	volatile uint64_t work = arg;
	(void)sim;
	(void)context;
	for (;;)
		work++;
}

/* What the guard is for. */
static void run_endless(struct scenario_run *run)
{
	struct sim *sim;
	if (sim_create(&(struct sim_config){.seed = run->seed,
	                                    .host_count = 1,
	                                    .event_capacity = 1,
	                                    .packet_capacity = 1,
	                                    .packet_bytes = 1},
	               &sim) != 0 ||
	    sim_at(sim, 1, compute_for_ever, NULL, 0) != 0)
		abort();
	guard_sim_run(sim, SIM_FOREVER, 1);
	sim_destroy(sim);
}

static const struct scenario endless = {
        .name = "endless", .purpose = "an event that does not end", .run = run_endless};

/* "I/N": the I-th of N. */
static bool parse_part(char *text, struct options *options)
{
	char *slash = strchr(text, '/');
	if (slash == NULL)
		return false;
	*slash = '\0';
	if (!parse_number(text, &options->part) || !parse_number(slash + 1, &options->parts) ||
	    options->part < 1 || options->part > options->parts)
		return false;
	options->part--;
	return true;
}

enum {
	OPTION_KEPT = 1000,
	OPTION_LIST,
	OPTION_PART,
	OPTION_ENDLESS,
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;
	uint64_t number;

	switch (key) {
	case 's':
		options->seed_given = true;
		if (!parse_number(arg, &options->seed))
			argp_error(state, "not a seed: %s", arg);
		return 0;
	case 'n':
		if (!parse_number(arg, &options->seed_count) || options->seed_count == 0)
			argp_error(state, "not a number of seeds: %s", arg);
		return 0;
	case 'c':
		options->scenario = arg;
		if (!find_scenario(arg))
			argp_error(state, "no such scenario: %s (--list names them)", arg);
		return 0;
	case 't':
		options->trace = true;
		return 0;
	case 'q':
		options->quiet = true;
		return 0;
	case OPTION_KEPT:
		options->kept = arg;
		return 0;
	case OPTION_ENDLESS:
		options->endless = parse_number(arg, &number) && number > 0 && number < UINT_MAX;
		if (!options->endless)
			argp_error(state, "not a number of milliseconds: %s", arg);
		options->limit_ms = (unsigned)number;
		return 0;
	case OPTION_PART:
		if (!parse_part(arg, options))
			argp_error(state, "not a part of the whole, such as 1/2");
		return 0;
	case OPTION_LIST:
		for (size_t i = 0; scenarios[i]; i++)
			printf("%-14s %s\n", scenarios[i]->name, scenarios[i]->purpose);
		exit(0);
	case ARGP_KEY_ARG:
		argp_usage(state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int main(int argc, char **argv)
{
	static const struct argp_option known[] = {
	        {"seed", 's', "N", 0, "Run this seed (or that of HEDDLE_SEED), and no kept ones",
	         0},
	        {"seeds", 'n', "COUNT", 0,
	         "Run so many seeds, from --seed or 1 on; without --scenario that is for those "
	         "with the most, and others get their share",
	         0},
	        {"scenario", 'c', "NAME", 0, "Run this scenario alone", 0},
	        {"quiet", 'q', NULL, 0, "Print only what failed, and the count", 0},
	        {"trace", 't', NULL, 0, "Print every event", 0},
	        {"kept", OPTION_KEPT, "FILE", 0, "The seeds that failed before", 0},
	        {"part", OPTION_PART, "I/N", 0, "Of these runs, the I-th of N parts alone", 0},
	        {"endless", OPTION_ENDLESS, "MS", OPTION_HIDDEN, NULL, 0},
	        {"list", OPTION_LIST, NULL, 0, "Name the scenarios", 0},
	        {0},
	};
	static const struct argp parser = {
	        .options = known,
	        .parser = parse_option,
	        .doc = "Run simulated worlds from seeds and judge them.",
	};
	struct options options = {.seed = 1, .kept = KEPT_SEEDS, .parts = 1};
	struct tally tally = {0};

	const char *seed = getenv("HEDDLE_SEED"); /* what `make sim SEED=n` sets */

	argp_err_exit_status = EXIT_TROUBLE;
	if (seed) {
		options.seed_given = true;
		if (!parse_number(seed, &options.seed)) {
			fprintf(stderr, "sim: HEDDLE_SEED is not a number: %s\n", seed);
			return EXIT_TROUBLE;
		}
	}
	argp_parse(&parser, argc, argv, 0, NULL, &options);
	tally.quiet = options.quiet;
	if (options.endless) {
		run_one(&options, &endless, options.seed, false, &tally);
		return 0; /* the guard sleeps */
	}
	if (!options.seed_given && !run_kept(&options, &tally))
		return EXIT_TROUBLE;
	run_seeds(&options, &tally);
	printf("%" PRIu64 " runs, %" PRIu64 " failed\n", tally.runs, tally.failures);
	return tally.failures > 0;
}
