/* "In use": readers stand inside guards and look at memory that a check has granted while the owner
 * takes entries away, reuses them, and reuses the memory. The memory is plain, so the thread
 * sanitizer sees a reader that comes too late; the values in it show one without the sanitizer.
 * DESIGN rule: a registration in use is never freed under an operation. */
#include "table.h"

#include <pthread.h>
#include <sched.h>

#include "base/prng.h"

enum { READERS = 2, PLACES = 4, CELLS = 64, CHANGES = 4000, PAGE = 4096, LOOKS = 20 };

/* A page of the owner's memory, of which a few words are looked at. */
struct cell {
	_Alignas(64) uint64_t mark;
	unsigned char rest[PAGE - sizeof(uint64_t)];
};

/* What a place of the board has on offer: the key, and in the entry's base the mark its memory must
 * have. */
struct world {
	struct table *table;
	struct tpt *tpt;
	struct cell *cells;
	_Atomic uint32_t board[PLACES];
	struct tpt_guard guards[READERS];
	_Atomic bool stop;
	_Atomic uint64_t granted, refused, wrong; /* cmocka's assertions are for the main thread */
};

struct reader {
	struct world *w;
	unsigned number;
	pthread_t thread;
};

/* Use one key: everything that the check grants must be marked as the entry says. */
static bool use_key(struct world *w, struct hdl_key key)
{
	/* The range asked for starts at the entry's base, which tells the mark: 2^20 addresses a
	 * registration. */
	struct tpt_entry seen;
	struct tpt_grant grant;
	struct tpt_request req = {
	        .key = key, .side = TPT_REMOTE, .access = HDL_ACCESS_REMOTE_READ, .pd = PD};
	/* First learn the base the way a peer would not: by reading the slot. It may be out of date
	 * at once. */
	for (unsigned i = 0; i < 8; i++) {
		uint64_t word = atomic_load_explicit(
		        &w->tpt->view.slots[tpt_index(&w->tpt->view, key)].words[i],
		        memory_order_relaxed);
		memcpy((unsigned char *)&seen + 8 * i, &word, 8);
	}
	req.addr = seen.base;
	req.length = seen.length;
	if (tpt_check(&w->tpt->view, &req, &grant) != HDL_DETAIL_NONE)
		return false;
	struct span runs[4];
	uint64_t covered;
	size_t count = tpt_spans(&w->tpt->view, &grant, 0, UINT64_MAX, runs, 4, &covered);
	if (count == 0 || covered != grant.length)
		w->wrong++;
	/* Linger, as a copy would: whoever does not wait for us writes meanwhile. */
	for (size_t i = 0; i < LOOKS * count; i++) {
		struct span run = runs[i % count];
		for (uint64_t at = 0; at < run.length; at += PAGE) {
			const volatile struct cell *cell =
			        (const volatile struct cell *)(uintptr_t)(run.addr + at);
			if (cell->mark != grant.entry.base >> 20)
				w->wrong++;
		}
	}
	return true;
}

static void *read_on(void *context)
{
	struct reader *reader = context;
	struct world *w = reader->w;
	struct prng prng;
	prng_seed(&prng, reader->number);
	while (!atomic_load_explicit(&w->stop, memory_order_relaxed)) {
		struct hdl_key key = {atomic_load_explicit(&w->board[prng_below(&prng, PLACES)],
		                                           memory_order_relaxed)};
		tpt_enter(&w->guards[reader->number]);
		bool granted = use_key(w, key);
		tpt_leave(&w->guards[reader->number]);
		atomic_fetch_add_explicit(granted ? &w->granted : &w->refused, 1,
		                          memory_order_relaxed);
	}
	return NULL;
}

static void wait_for_readers(struct world *w)
{
	for (unsigned i = 0; i < READERS; i++) {
		uint64_t seen = 0;
		while (!tpt_left(&w->guards[i], &seen))
			sched_yield();
	}
}

/* Pages @first to @first + 3, backwards, so that they are not one run. */
static struct hdl_register list_of(struct world *w, uint64_t pages[4], uint32_t first,
                                   uint64_t mark)
{
	for (uint32_t i = 0; i < 4; i++) {
		pages[i] = (uint64_t)(uintptr_t)&w->cells[first + 3 - i];
		w->cells[first + 3 - i].mark = mark;
	}
	return (struct hdl_register){.pages = pages,
	                             .num_pages = 4,
	                             .page_shift = 12,
	                             .length = 4 * PAGE,
	                             .iova = mark << 20,
	                             .access = RW_LOCAL | RW_REMOTE | HDL_ACCESS_BIND};
}

/* Every place is one kind of life: registered by call, by pages, by work request, and a window on
 * the move. The cells of place p are 16p to 16p + 15, and the owner moves through them. */
static void change(struct world *w, struct hdl_key keys[PLACES], struct hdl_key region,
                   uint32_t round)
{
	uint32_t place = round % PLACES, first = place * 16 + (round / PLACES) % 4 * 4;
	uint64_t mark = round + 1, pages[4];
	if (place == 3) { /* a window: bound anew, to another part of the same region */
		struct tpt_bind bind = {.key = tpt_fresh(w->tpt, keys[3]),
		                        .region = region,
		                        .pd = PD,
		                        .access = HDL_ACCESS_REMOTE_READ,
		                        .addr = (uint64_t)(first - 48) * PAGE,
		                        .length = PAGE,
		                        .rebind = true};
		assert_int_equal(tpt_bind(w->tpt, &bind), HDL_DETAIL_NONE);
		keys[3] = bind.key;
		wait_for_readers(w);
	} else if (place == 2) {
		if (tpt_invalidate(w->tpt, keys[2], PD, 0, true) == HDL_DETAIL_NONE)
			wait_for_readers(w);
		keys[2] = tpt_fresh(w->tpt, keys[2]);
		struct hdl_register reg = list_of(w, pages, first, mark);
		assert_int_equal(tpt_register(w->tpt, keys[2], PD, &reg), HDL_DETAIL_NONE);
	} else {
		if (keys[place].v != 0) {
			assert_int_equal(tpt_retire(w->tpt, keys[place]), HDL_DETAIL_NONE);
			wait_for_readers(w);
			tpt_free(w->tpt, keys[place]);
		}
		struct hdl_register reg = list_of(w, pages, first, mark);
		const struct tpt_region run = {PD,       reg.access, reg.iova,
		                               pages[3], reg.length, TPT_REGION};
		assert_int_equal(
		        place == 0 ? tpt_insert_run(w->tpt, &run, &keys[0])
		                   : tpt_insert_pages(w->tpt, PD, TPT_REGION, 0, &reg, &keys[1]),
		        0);
	}
	atomic_store_explicit(&w->board[place], keys[place].v, memory_order_relaxed);
}

static void no_reader_meets_reused_memory(void **state)
{
	(void)state;
	struct world *w = table_memory(sizeof *w);
	w->table = table_open(16, 1024);
	w->tpt = &w->table->tpt;
	w->cells = aligned_alloc(PAGE, CELLS * sizeof *w->cells);
	memset(w->cells, 0, CELLS * sizeof *w->cells);
	struct hdl_key keys[PLACES] = {{0}}, region;
	assert_int_equal(tpt_insert_empty(w->tpt, PD, TPT_REGION, 4, &keys[2]), 0);
	assert_int_equal(tpt_insert_empty(w->tpt, PD, TPT_WINDOW, 0, &keys[3]), 0);
	/* The window's region counts from 0, so the base of a window on cell n is n pages, below
	 * 2^20: its mark is 0. */
	const struct tpt_region whole = {PD,        RW_LOCAL | HDL_ACCESS_BIND,
	                                 0,         (uint64_t)(uintptr_t)&w->cells[48],
	                                 16 * PAGE, TPT_REGION};
	assert_int_equal(tpt_insert_run(w->tpt, &whole, &region), 0);
	struct reader readers[READERS];
	for (unsigned i = 0; i < READERS; i++) {
		readers[i] = (struct reader){.w = w, .number = i};
		assert_int_equal(pthread_create(&readers[i].thread, NULL, read_on, &readers[i]), 0);
	}
	/* At least CHANGES, and until the readers have been let in and refused often enough for
	 * this to mean something. */
	for (uint32_t round = 0;
	     round < CHANGES || atomic_load(&w->granted) < 1000 || atomic_load(&w->refused) < 10;
	     round++)
		change(w, keys, region, round);
	atomic_store(&w->stop, true);
	for (unsigned i = 0; i < READERS; i++)
		pthread_join(readers[i].thread, NULL);
	assert_int_equal(w->wrong, 0);
	free(w->cells);
	table_close(w->table);
	free(w);
}

static void a_guard_is_left_or_passed(void **state)
{
	(void)state;
	struct tpt_guard guard = {0};
	uint64_t seen = 0;
	assert_true(tpt_left(&guard, &seen)); /* nobody inside */
	tpt_enter(&guard);
	seen = 0;
	assert_false(tpt_left(&guard, &seen));
	assert_false(tpt_left(&guard, &seen));
	tpt_leave(&guard);
	assert_true(tpt_left(&guard, &seen));
	tpt_enter(&guard);
	assert_true(tpt_left(&guard, &seen)); /* inside again, but not since then */
	seen = 0;
	assert_false(tpt_left(&guard, &seen));
	tpt_leave(&guard);
}

/* Readers that only check while a window moves between ranges. What the check itself compares stays
 * the same, so a copy that is half of each would be granted; the instance, the place in memory and
 * the rights tell which range it is. */
enum { RANGES = 8, RANGE = 0x1000 };

struct torn {
	struct table *table;
	struct hdl_key window;
	_Atomic bool stop;
	_Atomic uint64_t granted, wrong;
};

static struct hdl_key key_with(struct hdl_key key, uint32_t instance)
{
	key.v = (key.v & ~0xffu) | instance;
	return key;
}

static uint32_t access_of(uint32_t range)
{
	return HDL_ACCESS_ZERO_BASED |
	       (range % 2 ? HDL_ACCESS_REMOTE_READ : HDL_ACCESS_REMOTE_WRITE);
}

static void *check_on(void *context)
{
	struct torn *torn = context;
	const struct tpt_view *view = &torn->table->tpt.view;
	while (!atomic_load_explicit(&torn->stop, memory_order_relaxed)) {
		for (uint32_t range = 0; range < RANGES; range++) {
			const struct tpt_request req = {.key = key_with(torn->window, range),
			                                .side = TPT_REMOTE,
			                                .pd = PD,
			                                .length = RANGE};
			struct tpt_grant grant;
			if (tpt_check(view, &req, &grant) != HDL_DETAIL_NONE)
				continue;
			atomic_fetch_add_explicit(&torn->granted, 1, memory_order_relaxed);
			if (grant.entry.att != HOST + range * RANGE ||
			    grant.entry.access != access_of(range))
				torn->wrong++;
		}
	}
	return NULL;
}

static void a_copy_is_never_torn(void **state)
{
	(void)state;
	struct torn *torn = table_memory(sizeof *torn);
	torn->table = table_open(16, 64);
	struct tpt *tpt = &torn->table->tpt;
	const struct tpt_region whole = {PD,        RW_LOCAL | HDL_ACCESS_BIND, 0, HOST, 0x10000,
	                                 TPT_REGION};
	struct hdl_key region;
	assert_int_equal(tpt_insert_run(tpt, &whole, &region), 0);
	torn->window = make_window(tpt);
	pthread_t threads[2];
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, check_on, torn), 0);
	for (uint32_t round = 0; round < 20000 || atomic_load(&torn->granted) < 1000; round++) {
		uint32_t range = round % RANGES;
		const struct tpt_bind bind = {.key = key_with(torn->window, range),
		                              .region = region,
		                              .pd = PD,
		                              .access = access_of(range),
		                              .addr = range * RANGE,
		                              .length = RANGE,
		                              .rebind = true};
		assert_int_equal(tpt_bind(tpt, &bind), HDL_DETAIL_NONE);
	}
	atomic_store(&torn->stop, true);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(torn->wrong, 0);
	table_close(torn->table);
	free(torn);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_guard_is_left_or_passed),
	        cmocka_unit_test(no_reader_meets_reused_memory),
	        cmocka_unit_test(a_copy_is_never_torn),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
