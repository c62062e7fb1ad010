/* The result of `heddle perf` as tables and as JSON. */
#include <jansson.h>
#include <sched.h>
#include <stdio.h>

#include "cli/perf.h"

#define MIB (1u << 20)
#define KIB (1u << 10)

static void size_text(char *out, size_t out_bytes, uint64_t size_bytes)
{
	unsigned long long size = size_bytes;
	if (size % MIB == 0)
		snprintf(out, out_bytes, "%llu MiB", size / MIB);
	else if (size % KIB == 0)
		snprintf(out, out_bytes, "%llu KiB", size / KIB);
	else
		snprintf(out, out_bytes, "%llu B", size);
}

static const char *perf_report_type_name(uint32_t type)
{
	return type == HDL_QP_UC ? "UC" : type == HDL_QP_UD ? "UD" : "RC";
}

static void latency_table(const struct perf_row *rows, size_t count)
{
	bool any = false;
	for (size_t i = 0; i < count; i++) {
		const struct perf_row *r = &rows[i];
		char size[32], ratio[32] = "       -        -";
		if (r->plan.mode != PERF_LATENCY)
			continue;
		if (!any)
			printf("\nlatency (us)   size     min     50%%     90%%     99%%   99.9%%  "
			       "   max"
			       "   floor    ratio\n");
		any = true;
		size_text(size, sizeof(size), r->plan.size_bytes);
		if (r->floor_ns > 0)
			snprintf(ratio, sizeof(ratio), "%8.2f %8.2f", r->floor_ns / 1e3,
			         (double)r->p50_ns / r->floor_ns);
		printf("  %-7s %9s %7.2f %7.2f %7.2f %7.2f %7.2f %7.1f%s\n",
		       perf_op_name(r->plan.op), size, (double)r->min_ns / 1e3,
		       (double)r->p50_ns / 1e3, (double)r->p90_ns / 1e3, (double)r->p99_ns / 1e3,
		       (double)r->p999_ns / 1e3, (double)r->max_ns / 1e3, ratio);
	}
}

static void bandwidth_table(const struct perf_row *rows, size_t count)
{
	bool any = false;
	for (size_t i = 0; i < count; i++) {
		const struct perf_row *r = &rows[i];
		char size[32];
		if (r->plan.mode != PERF_BANDWIDTH)
			continue;
		if (!any)
			printf("\nbandwidth      size    GB/s  M msg/s    memcpy  process_vm    "
			       "ratio\n");
		any = true;
		size_text(size, sizeof(size), r->plan.size_bytes);
		printf("  %-7s %9s %7.2f %8.3f %9.2f", perf_op_name(r->plan.op), size,
		       r->bytes_per_s / 1e9, r->messages_per_s / 1e6, r->memcpy_bytes_per_s / 1e9);
		if (r->process_vm_bytes_per_s > 0)
			printf(" %11.2f %8.2f\n", r->process_vm_bytes_per_s / 1e9,
			       r->bytes_per_s / r->process_vm_bytes_per_s);
		else
			printf("           -        -\n");
	}
}

void perf_report_begin(const struct perf_options *options)
{
	cpu_set_t processors;
	printf("Two processes, %s, %s%s; up to %u requests in flight.\n",
	       perf_report_type_name(options->type),
	       options->sleeps ? "sleeping until something completes" : "polling",
	       options->mapped ? ", memory that both map" : "", options->depth);
	if (!options->sleeps && sched_getaffinity(0, sizeof(processors), &processors) == 0 &&
	    CPU_COUNT(&processors) < 2)
		puts("Both poll, and they have one processor: this takes a while, and --events is "
		     "faster.");
	fflush(stdout);
}

void perf_report_text(const struct perf_options *options, const struct perf_row *rows, size_t count,
                      double cache_line_ns)
{
	latency_table(rows, count);
	bandwidth_table(rows, count);
	printf("\nLatency of send and write is half of a round trip, of read and atomic the time "
	       "until "
	       "completion.\n");
	if (cache_line_ns > 0)
		printf("Floors: a cache line from process to process takes %.2f us%s.\n",
		       cache_line_ns / 1e3,
		       options->mapped ? "" : "; read: one process_vm_writev()");
}

static json_t *row_json(const struct perf_row *r)
{
	json_t *row = json_pack("{s:s, s:s, s:I, s:I}", "operation", perf_op_name(r->plan.op),
	                        "transport", perf_report_type_name(r->plan.type), "size_bytes",
	                        (json_int_t)r->plan.size_bytes, "count", (json_int_t)r->plan.count);
	json_t *more;
	if (r->plan.mode == PERF_LATENCY)
		more = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "min_ns",
		                 (json_int_t)r->min_ns, "p50_ns", (json_int_t)r->p50_ns, "p90_ns",
		                 (json_int_t)r->p90_ns, "p99_ns", (json_int_t)r->p99_ns, "p999_ns",
		                 (json_int_t)r->p999_ns, "max_ns", (json_int_t)r->max_ns, "mean_ns",
		                 r->mean_ns, "floor_ns", r->floor_ns);
	else
		more = json_pack("{s:f, s:f, s:f, s:f}", "bytes_per_s", r->bytes_per_s,
		                 "messages_per_s", r->messages_per_s, "memcpy_bytes_per_s",
		                 r->memcpy_bytes_per_s, "process_vm_bytes_per_s",
		                 r->process_vm_bytes_per_s);
	json_object_update(row, more);
	json_decref(more);
	return row;
}

bool perf_report_json(const struct perf_options *options, const struct perf_row *rows, size_t count,
                      double cache_line_ns)
{
	json_t *latency = json_array(), *bandwidth = json_array();
	for (size_t i = 0; i < count; i++)
		json_array_append_new(rows[i].plan.mode == PERF_LATENCY ? latency : bandwidth,
		                      row_json(&rows[i]));
	json_t *all =
	        json_pack("{s:s, s:i, s:b, s:b, s:f, s:o, s:o}", "transport",
	                  perf_report_type_name(options->type), "depth", (int)options->depth,
	                  "sleeping", options->sleeps, "mapped", options->mapped, "cache_line_ns",
	                  cache_line_ns, "latency", latency, "bandwidth", bandwidth);
	bool ok = all != NULL &&
	          json_dumpf(all, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) == 0 &&
	          putchar('\n') != EOF;
	json_decref(all);
	return ok;
}
