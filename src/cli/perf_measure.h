/* The measurements of `heddle perf` and how they are reported. */
#ifndef CLI_PERF_MEASURE_H
#define CLI_PERF_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PERF_MAX_SIZES 2u

/* How long one small message takes, in nanoseconds. */
struct perf_latency {
	const char *name;
	uint64_t min_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns;
};

/* How fast large ones go. */
struct perf_rate {
	const char *name;
	size_t size_bytes;
	double bytes_per_s;
	double memcpy_bytes_per_s; /* of the same bytes between the same memory */
};

struct perf_result {
	uint32_t iterations;
	uint32_t threads; /* 1: one drives both adapters; 2: one each */
	uint32_t latency_bytes;
	struct perf_latency latency[2];
	uint32_t rate_count;
	struct perf_rate rates[3 * PERF_MAX_SIZES];
};

/* Measure into the result, whose iterations and threads say how. On false the reason was printed. */
bool perf_measure_latency(struct perf_result *result);
bool perf_measure_rates(struct perf_result *result, size_t size_bytes);

void perf_report_text(const struct perf_result *result);
/* False: standard output does not take it. */
bool perf_report_json(const struct perf_result *result);

#endif
