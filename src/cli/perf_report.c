/* The result of `heddle perf` as tables and as JSON. */
#include "cli/perf_measure.h"

#include <jansson.h>
#include <stdio.h>

#define MIB (1u << 20)
#define KIB (1u << 10)

static void size_text(char *out, size_t out_bytes, size_t size_bytes)
{
	if (size_bytes % MIB == 0)
		snprintf(out, out_bytes, "%zu MiB", size_bytes / MIB);
	else if (size_bytes % KIB == 0)
		snprintf(out, out_bytes, "%zu KiB", size_bytes / KIB);
	else
		snprintf(out, out_bytes, "%zu B", size_bytes);
}

static double us(uint64_t ns)
{
	return (double)ns / 1e3;
}

void perf_report_text(const struct perf_result *result)
{
	printf("Two adapters in one process, %s.\n\n",
	       result->threads > 1 ? "a thread each" : "one thread drives both");
	printf("latency, %u bytes (us)   min     50%%     90%%     99%%   99.9%%     max\n",
	       result->latency_bytes);
	for (size_t i = 0; i < 2; i++) {
		const struct perf_latency *l = &result->latency[i];
		printf("  %-18s %7.2f %7.2f %7.2f %7.2f %7.2f %7.2f\n", l->name, us(l->min_ns),
		       us(l->p50_ns), us(l->p90_ns), us(l->p99_ns), us(l->p999_ns), us(l->max_ns));
	}
	printf("\nbandwidth (GB/s)      size    heddle    memcpy     ratio\n");
	for (size_t i = 0; i < result->rate_count; i++) {
		const struct perf_rate *r = &result->rates[i];
		char size[32];
		size_text(size, sizeof(size), r->size_bytes);
		printf("  %-12s %11s %9.2f %9.2f %8.0f%%\n", r->name, size, r->bytes_per_s / 1e9,
		       r->memcpy_bytes_per_s / 1e9, 100.0 * r->bytes_per_s / r->memcpy_bytes_per_s);
	}
	printf("\nA send is half of a round trip, a write is until its completion. "
	       "All bytes arrived as they were sent.\n");
}

bool perf_report_json(const struct perf_result *result)
{
	json_t *latency = json_array(), *rates = json_array();
	for (size_t i = 0; i < 2; i++) {
		const struct perf_latency *l = &result->latency[i];
		json_array_append_new(
		        latency,
		        json_pack("{s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:I}", "operation", l->name,
		                  "size_bytes", (int)result->latency_bytes, "min_ns",
		                  (json_int_t)l->min_ns, "p50_ns", (json_int_t)l->p50_ns, "p90_ns",
		                  (json_int_t)l->p90_ns, "p99_ns", (json_int_t)l->p99_ns, "p999_ns",
		                  (json_int_t)l->p999_ns, "max_ns", (json_int_t)l->max_ns));
	}
	for (size_t i = 0; i < result->rate_count; i++) {
		const struct perf_rate *r = &result->rates[i];
		json_array_append_new(rates,
		                      json_pack("{s:s, s:I, s:f, s:f, s:f}", "operation", r->name,
		                                "size_bytes", (json_int_t)r->size_bytes,
		                                "bytes_per_s", r->bytes_per_s, "memcpy_bytes_per_s",
		                                r->memcpy_bytes_per_s, "ratio",
		                                r->bytes_per_s / r->memcpy_bytes_per_s));
	}
	json_t *all =
	        json_pack("{s:i, s:i, s:o, s:o}", "threads", (int)result->threads, "iterations",
	                  (int)result->iterations, "latency", latency, "bandwidth", rates);
	bool ok = all && json_dumpf(all, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) == 0 &&
	          putchar('\n') != EOF;
	json_decref(all);
	return ok;
}
