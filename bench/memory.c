/* What the protection table costs: the check, on one hot entry and on many; bind and unbind;
 * register and deregister; bytes per region. Every figure has its goal beside it, and those that
 * depend on the memory of the machine have their floor: a bare load of one cache line in the same
 * working set, in the same order. Each is the median of several rounds, with the minimum and the
 * maximum. It never fails. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/prng.h"
#include "figures.h"
#include "memory/tpt.h"

#define ROUNDS 15u
#define PD     1u

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Nanoseconds per operation, one figure per round. */
struct figures {
	double ns[ROUNDS];
};

static double median(struct figures *f)
{
	figures_sort(f->ns, ROUNDS);
	return f->ns[ROUNDS / 2];
}

static double report(const char *what, struct figures *f, const char *aim)
{
	double middle = median(f);
	printf("%-46s %8.1f ns   (%.1f to %.1f)%s%s\n", what, middle, f->ns[0], f->ns[ROUNDS - 1],
	       aim[0] != 0 ? "   aim " : "", aim);
	return middle;
}

static void *memory(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
	               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	return p;
}

/* A table with @count regions of 4 KiB; keys in the order in which they will be used. */
struct bench {
	struct tpt tpt;
	struct tpt_bytes bytes;
	struct hdl_key *keys;
	uint32_t count;
};

static struct tpt_region region_number(uint32_t i)
{
	return (struct tpt_region){
	        .pd = PD,
	        .access = HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE | HDL_ACCESS_REMOTE_READ |
	                  HDL_ACCESS_REMOTE_WRITE | HDL_ACCESS_BIND,
	        .iova = 0x10000,
	        .host = 0x700000000000u + (uint64_t)i * 4096,
	        .length = 4096,
	};
}

static void bench_open(struct bench *b, uint32_t capacity, uint32_t count, struct prng *prng)
{
	const struct tpt_config config = {.capacity = capacity, .arena_words = 1u << 16};
	b->bytes = tpt_bytes(&config);
	b->count = count;
	b->keys = memory(sizeof *b->keys * count);
	tpt_init(&b->tpt, &config, memory(b->bytes.slots), memory(b->bytes.arena),
	         memory(b->bytes.private_bytes), 1);
	for (uint32_t i = 0; i < count; i++) {
		struct tpt_region region = region_number(i);
		if (tpt_insert_run(&b->tpt, &region, &b->keys[i]) != 0) {
			fprintf(stderr, "the table is full after %u\n", i);
			exit(1);
		}
	}
	for (uint32_t i = count - 1; i > 0; i--) {
		uint32_t other = (uint32_t)prng_below(prng, i + 1);
		struct hdl_key key = b->keys[i];
		b->keys[i] = b->keys[other];
		b->keys[other] = key;
	}
}

static struct tpt_request request(struct hdl_key key)
{
	return (struct tpt_request){.key = key,
	                            .side = TPT_REMOTE,
	                            .access = HDL_ACCESS_REMOTE_WRITE,
	                            .pd = PD,
	                            .addr = 0x10040,
	                            .length = 64};
}

/* One key after the other, each used after the check of the one before: nothing overlaps, as with
 * one message at a time. The next index depends on a field of the entry that is always 0, which the
 * processor only knows after it has read the entry. */
static uint32_t next(const struct bench *b, uint32_t at, uint64_t read)
{
	at += 1 + (uint32_t)(read & 1);
	return at < b->count ? at : 0;
}

static double time_checks(struct bench *b, uint32_t steps)
{
	uint64_t start = now_ns();
	for (uint32_t i = 0, at = 0; i < steps; i++) {
		struct tpt_request req = request(b->keys[at]);
		struct tpt_grant grant;
		if (tpt_check(&b->tpt.view, &req, &grant) != HDL_DETAIL_NONE)
			abort();
		at = next(b, at, grant.entry.att_skip);
	}
	return (double)(now_ns() - start) / steps;
}

/* The floor: the same keys and the same lines, but only one word of each. */
static double time_loads(struct bench *b, uint32_t steps)
{
	uint64_t start = now_ns();
	for (uint32_t i = 0, at = 0; i < steps; i++) {
		const struct tpt_slot *slot =
		        &b->tpt.view.slots[tpt_index(&b->tpt.view, b->keys[at])];
		at = next(b, at, atomic_load_explicit(&slot->words[4], memory_order_relaxed));
	}
	return (double)(now_ns() - start) / steps;
}

static void bench_checks(struct prng *prng)
{
	static const struct {
		const char *name;
		uint32_t count, steps;
		const char *aim;
	} rows[] = {
	        {"1 entry (hot)", 1, 500000, "< 10 ns"},
	        {"1 thousand entries", 1000, 500000, ""},
	        {"1 million entries", 1000000, 500000, ""},
	};
	double over[3];
	for (size_t i = 0; i < 3; i++) {
		struct bench *b = memory(sizeof *b);
		bench_open(b, rows[i].count, rows[i].count, prng);
		struct figures checks, loads, differences;
		time_loads(b, rows[i].count);
		for (uint32_t round = 0; round < ROUNDS; round++) {
			loads.ns[round] = time_loads(b, rows[i].steps);
			checks.ns[round] = time_checks(b, rows[i].steps);
			differences.ns[round] = checks.ns[round] - loads.ns[round];
		}
		char name[64];
		snprintf(name, sizeof name, "check, %s", rows[i].name);
		report(name, &checks, rows[i].aim);
		report("  floor: a bare load of the same lines", &loads, "");
		over[i] = report("  check minus floor", &differences, "");
	}
	printf("%-46s %8.1f ns   aim 0 or less: flat\n",
	       "  minus floors, a million against a thousand", over[2] - over[1]);
}

static void bench_bind(struct prng *prng)
{
	struct bench *b = memory(sizeof *b);
	bench_open(b, 1000, 100, prng);
	struct hdl_key window;
	if (tpt_insert_empty(&b->tpt, PD, TPT_WINDOW, 0, &window) != 0)
		abort();
	struct figures f;
	for (uint32_t round = 0; round < ROUNDS; round++) {
		enum { STEPS = 200000 };
		uint64_t start = now_ns();
		for (uint32_t i = 0; i < STEPS; i++) {
			window.v = (window.v & ~0xffu) | (i & 0xff);
			const struct tpt_bind bind = {.key = window,
			                              .region = b->keys[i % b->count],
			                              .pd = PD,
			                              .qpn = 5,
			                              .access = HDL_ACCESS_REMOTE_WRITE,
			                              .addr = 0x10010,
			                              .length = 100};
			if (tpt_bind(&b->tpt, &bind) != HDL_DETAIL_NONE ||
			    tpt_invalidate(&b->tpt, window, PD, 5, true) != HDL_DETAIL_NONE)
				abort();
		}
		f.ns[round] = (double)(now_ns() - start) / STEPS;
	}
	report("bind + unbind", &f, "< 100 ns");
}

static void bench_register(struct prng *prng)
{
	struct bench *b = memory(sizeof *b);
	bench_open(b, 100000, 1000, prng);
	static const uint64_t page = 0x700000000000u;
	const struct hdl_register list = {.pages = &page,
	                                  .num_pages = 1,
	                                  .page_shift = 12,
	                                  .length = 4096,
	                                  .access = HDL_ACCESS_LOCAL_READ};
	struct figures runs, pages;
	for (uint32_t round = 0; round < ROUNDS; round++) {
		enum { STEPS = 100000 };
		uint64_t start = now_ns();
		for (uint32_t i = 0; i < STEPS; i++) {
			struct tpt_region region = region_number(i);
			struct hdl_key key;
			if (tpt_insert_run(&b->tpt, &region, &key) != 0 ||
			    tpt_retire(&b->tpt, key) != HDL_DETAIL_NONE)
				abort();
			tpt_free(&b->tpt, key);
		}
		uint64_t middle = now_ns();
		for (uint32_t i = 0; i < STEPS; i++) {
			struct hdl_key key;
			if (tpt_insert_pages(&b->tpt, PD, TPT_REGION, 0, &list, &key) != 0 ||
			    tpt_retire(&b->tpt, key) != HDL_DETAIL_NONE)
				abort();
			tpt_free(&b->tpt, key);
		}
		runs.ns[round] = (double)(middle - start) / STEPS;
		pages.ns[round] = (double)(now_ns() - middle) / STEPS;
	}
	report("register + deregister 4 KiB, table part", &runs, "");
	report("  the same as a list of one page", &pages, "");
}

/* Pages of the mapping that have been touched. */
static size_t resident_bytes(void *at, size_t bytes)
{
	size_t pages = (bytes + 4095) / 4096, count = 0;
	unsigned char *present = malloc(pages);
	if (present == NULL || mincore(at, bytes, present) != 0)
		abort();
	for (size_t i = 0; i < pages; i++)
		count += present[i] & 1u;
	free(present);
	return count * 4096;
}

static void bench_bytes(struct prng *prng)
{
	static const uint32_t counts[] = {1000, 100000, 1000000};
	for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
		struct bench *b = memory(sizeof *b);
		bench_open(b, 1000000, counts[i], prng);
		/* The two parts that grow with entries; the arena is for translation tables. */
		size_t used =
		        resident_bytes(b->tpt.slots, b->bytes.slots) +
		        resident_bytes((void *)((uintptr_t)b->tpt.free_list & ~(uintptr_t)4095),
		                       b->tpt.view.capacity * sizeof *b->tpt.free_list);
		printf("bytes of table per region, %7u of a million %8.1f     aim <= 128\n",
		       counts[i], (double)used / counts[i]);
	}
}

int main(void)
{
	struct prng prng;
	prng_seed(&prng, 1);
	printf("protection table: median of %u rounds (minimum to maximum)\n", ROUNDS);
	bench_checks(&prng);
	bench_bind(&prng);
	bench_register(&prng);
	bench_bytes(&prng);
	return 0;
}
