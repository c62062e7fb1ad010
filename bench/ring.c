/* What a lane costs between two cores: the one-way latency of small records, half of a round trip
 * through two lanes, beside the same round trip through two bare cache lines, which is the floor of
 * this machine; then records per second in one direction. Floor and lane are measured in turns, so
 * that both see the same noise. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/histogram.h"
#include "base/ring.h"
#include "figures.h"

#define SLOTS   1024u
#define TURNS   40
#define BATCHES 250 /* per turn */
#define TRIPS \
	20 /* per batch: long compared with reading the clock, short compared with an interrupt */
#define STREAM_CHUNK  20000
#define STREAM_CHUNKS 100

struct line {
	_Alignas(64) _Atomic uint64_t value;
};

/* The two ends are used on two cores: in one cache line they would cost more than the lane. */
struct lane {
	_Alignas(64) struct ring_tx tx;
	_Alignas(64) struct ring_rx rx;
};

static struct line ping, pong;
static struct lane there, back;
static size_t processors[2];

static bool find_processors(void)
{
	cpu_set_t set;
	int found = 0;
	if (sched_getaffinity(0, sizeof(set), &set) != 0)
		return false;
	for (size_t i = 0; i < CPU_SETSIZE && found < 2; i++)
		if (CPU_ISSET(i, &set))
			processors[found++] = i;
	return found == 2;
}

static void wait_for(struct line *line, uint64_t value)
{
	while (atomic_load_explicit(&line->value, memory_order_acquire) != value)
		;
}

static void send(struct lane *lane, const void *data, size_t bytes)
{
	void *to;
	while ((to = ring_reserve(&lane->tx, bytes)) == NULL)
		;
	memcpy(to, data, bytes);
	ring_publish(&lane->tx);
}

/* Receive into @data, which has room for @bytes; the record must have exactly that length. */
static void receive(struct lane *lane, void *data, size_t bytes)
{
	const void *from;
	size_t length = 0;
	while ((from = ring_peek(&lane->rx, &length)) == NULL)
		if (lane->rx.broken)
			abort();
	if (length != bytes)
		abort();
	memcpy(data, from, bytes);
	ring_release(&lane->rx);
}

static const size_t sizes[] = {8, 56, 248};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* The other side: answers main(), in the same order. */
static void *answer(void *context)
{
	(void)context;
	unsigned char data[256];
	figures_pin(processors[1]);
	uint64_t floor_trip = 0;
	for (int turn = 0; turn < TURNS; turn++) {
		for (int i = 0; i < BATCHES * TRIPS; i++) {
			wait_for(&ping, ++floor_trip);
			atomic_store_explicit(&pong.value, floor_trip, memory_order_release);
		}
		for (size_t s = 0; s < SIZES; s++)
			for (int i = 0; i < BATCHES * TRIPS; i++) {
				receive(&there, data, sizes[s]);
				send(&back, data, sizes[s]);
			}
	}
	for (size_t s = 0; s < SIZES; s++)
		for (int i = 0; i < STREAM_CHUNK * STREAM_CHUNKS; i++)
			send(&back, data, sizes[s]);
	return NULL;
}

static void floor_turn(struct histogram *one_way_ps, uint64_t *trip)
{
	for (int batch = 0; batch < BATCHES; batch++) {
		uint64_t start = clock_now_ns();
		for (int i = 0; i < TRIPS; i++) {
			atomic_store_explicit(&ping.value, ++*trip, memory_order_release);
			wait_for(&pong, *trip);
		}
		histogram_record(one_way_ps, (clock_now_ns() - start) * 1000 / (2 * TRIPS));
	}
}

static void lane_turn(struct histogram *one_way_ps, size_t bytes)
{
	unsigned char data[256] = {0};
	for (int batch = 0; batch < BATCHES; batch++) {
		uint64_t start = clock_now_ns();
		for (int i = 0; i < TRIPS; i++) {
			send(&there, data, bytes);
			receive(&back, data, bytes);
		}
		histogram_record(one_way_ps, (clock_now_ns() - start) * 1000 / (2 * TRIPS));
	}
}

static void print_latency(const char *what, const struct histogram *ps,
                          const struct histogram *floor_ps)
{
	double median = (double)histogram_percentile(ps, 50);
	printf("%-28s %8.1f %8.1f %8.1f ns   %5.2f x floor\n", what,
	       (double)histogram_min(ps) / 1000, median / 1000,
	       (double)histogram_percentile(ps, 99) / 1000,
	       median / (double)histogram_percentile(floor_ps, 50));
}

static void open_lane(struct lane *lane)
{
	void *memory = aligned_alloc(4096, (ring_bytes(SLOTS) + 4095) / 4096 * 4096);
	if (memory == NULL)
		abort();
	ring_format(memory, SLOTS);
	ring_tx_attach(&lane->tx, memory, SLOTS);
	ring_rx_attach(&lane->rx, memory, SLOTS);
}

static void print_stream(size_t bytes)
{
	static struct histogram chunk_ns;
	unsigned char data[256];
	histogram_init(&chunk_ns);
	for (int chunk = 0; chunk < STREAM_CHUNKS; chunk++) {
		uint64_t start = clock_now_ns();
		for (int i = 0; i < STREAM_CHUNK; i++)
			receive(&back, data, bytes);
		histogram_record(&chunk_ns, clock_now_ns() - start);
	}
	/* Nanoseconds per record; the slowest chunks give the lowest rates. */
	const double records = STREAM_CHUNK * 1000.0;
	printf("one way, %3zu bytes            %8.2f %8.2f %8.2f M records/s\n", bytes,
	       records / (double)histogram_min(&chunk_ns),
	       records / (double)histogram_percentile(&chunk_ns, 50),
	       records / (double)histogram_percentile(&chunk_ns, 99));
}

int main(void)
{
	static struct histogram floor_ps, lane_ps[SIZES];
	pthread_t thread;
	uint64_t trip = 0;
	if (!find_processors()) {
		printf("bench-ring: needs two processors, skipped\n");
		return 77;
	}
	open_lane(&there);
	open_lane(&back);
	histogram_init(&floor_ps);
	for (size_t s = 0; s < SIZES; s++)
		histogram_init(&lane_ps[s]);
	figures_pin(processors[0]);
	if (pthread_create(&thread, NULL, answer, NULL) != 0)
		abort();
	for (int turn = 0; turn < TURNS; turn++) {
		floor_turn(&floor_ps, &trip);
		for (size_t s = 0; s < SIZES; s++)
			lane_turn(&lane_ps[s], sizes[s]);
	}
	printf("processors %zu and %zu, batches of %d trips\n", processors[0], processors[1],
	       TRIPS);
	printf("%-28s %8s %8s %8s\n", "one-way latency", "min", "median", "p99");
	print_latency("bare cache line (the floor)", &floor_ps, &floor_ps);
	for (size_t s = 0; s < SIZES; s++) {
		char what[32];
		snprintf(what, sizeof(what), "lane, %3zu bytes", sizes[s]);
		print_latency(what, &lane_ps[s], &floor_ps);
	}
	printf("%-28s %8s %8s %8s\n", "throughput", "best", "median", "p99");
	for (size_t s = 0; s < SIZES; s++)
		print_stream(sizes[s]);
	pthread_join(thread, NULL);
	free(there.tx.shared);
	free(back.tx.shared);
	return 0;
}
