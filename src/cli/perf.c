/* `heddle perf`: what goes between two adapters of this process, and how fast. */
#include "cli/command.h"
#include "cli/perf_measure.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_ITERATIONS 20000u
#define MAX_ITERATIONS     10000000u
#define MAX_SIZE_BYTES     (64u << 20)

struct options {
	struct perf_result result;
	size_t size_bytes; /* 0: the usual ones */
	bool json;
};

static const struct argp_option option_list[] = {
        {"json", 'j', NULL, 0, "One JSON object instead of tables", 0},
        {"size", 's', "BYTES", 0, "Bandwidth with requests of BYTES (k, m: times 1024, 1048576)",
         0},
        {"iterations", 'n', "N", 0, "Latency from N messages (20000)", 0},
        {"threads", 't', "N", 0, "1: one thread drives both adapters, 2: one each", 0},
        {0},
};

/* A number from 1 to @max, with k or m behind it; 0 for anything else. */
static unsigned long number(const char *text, unsigned long max)
{
	char *end;
	if (text[0] < '0' || text[0] > '9')
		return 0;
	unsigned long value = strtoul(text, &end, 10), unit = 1;
	if (*end == 'k' || *end == 'K')
		unit = 1024;
	else if (*end == 'm' || *end == 'M')
		unit = 1024ul * 1024;
	end += unit > 1;
	return *end || value > max / unit ? 0 : value * unit;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
	struct options *options = state->input;
	switch (key) {
	case 'j':
		options->json = true;
		return 0;
	case 's':
		options->size_bytes = number(text, MAX_SIZE_BYTES);
		if (!options->size_bytes)
			argp_error(state, "a size is from 1 byte to 64 MiB, not '%s'", text);
		return 0;
	case 'n':
		options->result.iterations = (uint32_t)number(text, MAX_ITERATIONS);
		if (!options->result.iterations)
			argp_error(state, "iterations are from 1 to 10000000, not '%s'", text);
		return 0;
	case 't':
		options->result.threads = (uint32_t)number(text, 2);
		if (!options->result.threads)
			argp_error(state, "there are 1 or 2 threads, not '%s'", text);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int perf_command(int argc, char **argv)
{
	static const struct argp argp = {
	        .options = option_list,
	        .parser = parse,
	        .doc = "Latency and bandwidth between two adapters of this process, beside memcpy.",
	};
	struct options options = {
	        .result = {.iterations = DEFAULT_ITERATIONS,
	                   .threads = sysconf(_SC_NPROCESSORS_ONLN) > 1 ? 2 : 1},
	};
	if (argp_parse(&argp, argc, argv, 0, NULL, &options) != 0)
		return EXIT_WRONG_USAGE;

	bool ok = perf_measure_latency(&options.result);
	if (options.size_bytes)
		ok = ok && perf_measure_rates(&options.result, options.size_bytes);
	else
		ok = ok && perf_measure_rates(&options.result, 64u << 10) &&
		     perf_measure_rates(&options.result, 1u << 20);
	if (!ok)
		return EXIT_FAILURE;
	if (options.json)
		return perf_report_json(&options.result) ? EXIT_SUCCESS : EXIT_FAILURE;
	perf_report_text(&options.result);
	return EXIT_SUCCESS;
}
