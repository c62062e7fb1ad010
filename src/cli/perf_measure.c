/* What `heddle perf` measures. The near side posts and takes the time; the far side answers, in a thread of its own or
 * between two polls of the near one. Each measurement has a pair of its own, so none inherits the state of another. */
#include "cli/perf_measure.h"
#include "cli/pair.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LATENCY_BYTES 8u
#define SLOTS         8u           /* buffers a side that large requests go round */
#define WINDOW        16u          /* large requests in flight */
#define RATE_BYTES    (512u << 20) /* what one rate is taken from, at most */
#define MIN_REQUESTS  (8 * SLOTS)  /* and at least */

struct run {
	struct pair pair;
	bool echo; /* the far side answers each message with one */
	bool threaded;
	uint64_t echoed;
	atomic_bool stop;
	pthread_t thread;
};

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* One look of the far side at what has come. */
static bool serve(struct run *run)
{
	struct side *far = &run->pair.far;
	if (!side_poll(far))
		return false;
	for (; run->echo && run->echoed < far->received; run->echoed++) {
		if (!side_post(far, &run->pair.near, HDL_OP_SEND, 0, LATENCY_BYTES))
			return false;
	}
	return true;
}

static void *serve_thread(void *argument)
{
	struct run *run = argument;
	while (!atomic_load_explicit(&run->stop, memory_order_acquire)) {
		if (!serve(run))
			break;
	}
	atomic_store_explicit(&run->stop, true, memory_order_release);
	return NULL;
}

/* One look of the near side; false when either side has failed. */
static bool step(struct run *run)
{
	if (!side_poll(&run->pair.near))
		return false;
	if (!run->threaded)
		return serve(run);
	return !atomic_load_explicit(&run->stop, memory_order_acquire);
}

static bool run_open(struct run *run, const struct perf_result *result, size_t memory_bytes,
                     size_t slot_bytes, bool echo)
{
	*run = (struct run){.echo = echo, .threaded = result->threads > 1};
	if (!pair_open(&run->pair, memory_bytes, slot_bytes))
		return false;
	if (run->threaded && pthread_create(&run->thread, NULL, serve_thread, run) != 0)
		run->threaded = false; /* one thread measures as well */
	return true;
}

/* End the run; says what failed, if anything did. */
static bool run_close(struct run *run, bool ok)
{
	if (run->threaded) {
		atomic_store_explicit(&run->stop, true, memory_order_release);
		pthread_join(run->thread, NULL);
	}
	const struct side *failed = pair_failed(&run->pair);
	if (failed)
		fprintf(stderr, "heddle perf: %s failed: %s\n", failed->failed,
		        failed->error > 0 ? hdl_wc_status_str((uint32_t)failed->error)
		                          : hdl_strerror(failed->error));
	pair_close(&run->pair);
	return ok && !failed;
}

static int compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

static void summarize(struct perf_latency *latency, uint64_t *samples, size_t count)
{
	qsort(samples, count, sizeof(*samples), compare_u64);
	latency->min_ns = samples[0];
	latency->p50_ns = samples[count / 2];
	latency->p90_ns = samples[count * 9 / 10];
	latency->p99_ns = samples[count * 99 / 100];
	latency->p999_ns = samples[count * 999 / 1000];
	latency->max_ns = samples[count - 1];
}

/* A send waits for the peer's answer and counts half; a write waits for its own completion. */
static bool time_one(struct run *run, uint32_t opcode, uint64_t *elapsed_ns)
{
	struct side *near = &run->pair.near;
	uint64_t received = near->received, done = near->sent_done, start = now_ns();
	if (!side_post(near, &run->pair.far, opcode, 0, LATENCY_BYTES))
		return false;
	while (near->sent_done == done || (run->echo && near->received == received)) {
		if (!step(run))
			return false;
	}
	*elapsed_ns = (now_ns() - start) / (run->echo ? 2 : 1);
	return true;
}

static bool measure_one_latency(struct perf_result *result, struct perf_latency *latency,
                                uint32_t opcode, uint64_t *samples)
{
	struct run run;
	bool ok = run_open(&run, result, 4096, 64, opcode == HDL_OP_SEND);
	for (uint32_t i = 0; ok && i < result->iterations / 10 + 1; i++) /* warm up */
		ok = time_one(&run, opcode, &samples[0]);
	for (uint32_t i = 0; ok && i < result->iterations; i++)
		ok = time_one(&run, opcode, &samples[i]);
	if (!run_close(&run, ok))
		return false;
	summarize(latency, samples, result->iterations);
	return true;
}

bool perf_measure_latency(struct perf_result *result)
{
	uint64_t *samples = calloc(result->iterations, sizeof(*samples));
	if (!samples) {
		fprintf(stderr, "heddle perf: no memory for %u samples\n", result->iterations);
		return false;
	}
	result->latency_bytes = LATENCY_BYTES;
	result->latency[0].name = "send";
	result->latency[1].name = "write";
	bool ok = measure_one_latency(result, &result->latency[0], HDL_OP_SEND, samples) &&
	          measure_one_latency(result, &result->latency[1], HDL_OP_WRITE, samples);
	free(samples);
	return ok;
}

static bool transfer(struct run *run, uint32_t opcode, size_t size_bytes, uint64_t count)
{
	struct side *near = &run->pair.near;
	uint64_t first = near->sent_done, posted = 0;
	while (near->sent_done - first < count) {
		while (posted < count && posted - (near->sent_done - first) < WINDOW) {
			if (!side_post(near, &run->pair.far, opcode, posted % SLOTS * size_bytes,
			               size_bytes))
				return false;
			posted++;
		}
		if (!step(run))
			return false;
	}
	return true;
}

/* The floor: the same bytes, the same memory, no adapter. */
static double memcpy_rate(struct pair *pair, size_t size_bytes, uint64_t count)
{
	uint64_t start = now_ns();
	for (uint64_t i = 0; i < count; i++) {
		size_t offset = i % SLOTS * size_bytes;
		memcpy(pair->far.memory + offset, pair->near.memory + offset, size_bytes);
		/* What is overwritten by the next round would else not be copied at all. */
		__asm__ volatile("" : : "r"(pair->far.memory) : "memory");
	}
	return (double)size_bytes * (double)count * 1e9 / (double)(now_ns() - start);
}

static bool measure_one_rate(struct perf_result *result, struct perf_rate *rate, uint32_t opcode)
{
	size_t size_bytes = rate->size_bytes, memory_bytes = SLOTS * size_bytes;
	uint64_t count = RATE_BYTES / size_bytes;
	if (count > result->iterations)
		count = result->iterations;
	if (count < MIN_REQUESTS)
		count = MIN_REQUESTS;

	struct run run;
	bool ok = run_open(&run, result, memory_bytes, size_bytes, false);
	if (ok) {
		struct side *source = opcode == HDL_OP_READ ? &run.pair.far : &run.pair.near;
		uint8_t *near = run.pair.near.memory, *far = run.pair.far.memory;
		rate->memcpy_bytes_per_s = memcpy_rate(&run.pair, size_bytes, SLOTS); /* warm up */
		rate->memcpy_bytes_per_s = memcpy_rate(&run.pair, size_bytes, count);
		for (size_t i = 0; i < memory_bytes; i++)
			source->memory[i] = (uint8_t)(i ^ (i >> 8) ^ (i >> 16) ^ opcode);

		ok = transfer(&run, opcode, size_bytes, SLOTS); /* warm up */
		uint64_t start = now_ns();
		ok = ok && transfer(&run, opcode, size_bytes, count);
		rate->bytes_per_s =
		        (double)size_bytes * (double)count * 1e9 / (double)(now_ns() - start);
		if (ok && memcmp(near, far, memory_bytes) != 0) {
			fprintf(stderr, "heddle perf: what arrived is not what was sent\n");
			ok = false;
		}
	}
	return run_close(&run, ok);
}

bool perf_measure_rates(struct perf_result *result, size_t size_bytes)
{
	static const struct {
		const char *name;
		uint32_t opcode;
	} operations[] = {{"send", HDL_OP_SEND}, {"write", HDL_OP_WRITE}, {"read", HDL_OP_READ}};

	for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++) {
		struct perf_rate *rate = &result->rates[result->rate_count];
		*rate = (struct perf_rate){.name = operations[i].name, .size_bytes = size_bytes};
		if (!measure_one_rate(result, rate, operations[i].opcode))
			return false;
		result->rate_count++;
	}
	return true;
}
