/* How entries come and go: limits, keys, shared translation tables (MEMMGT figure 14), and memory
 * that is taken away (SAN, SegmentTableUpdate). MISSION SN8, IP2. */
#include "table.h"

#include "base/bitmap.h"
#include "base/prng.h"

#define LENGTH 0x3000u

static int open_table(void **state)
{
	*state = table_open(100, 4096);
	return 0;
}

static int close_table(void **state)
{
	table_close(*state);
	return 0;
}

static size_t units_used(const struct tpt *tpt)
{
	return bitmap_count(&tpt->arena.map);
}

static const uint64_t page_list[] = {HOST + 0x5000, HOST + 0x1000, HOST + 0x3000};

static struct hdl_register make_list(uint32_t num_pages, uint64_t *pages)
{
	for (uint32_t i = 0; i < num_pages; i++)
		pages[i] = HOST + 0x2000u * (uint64_t)i;
	return (struct hdl_register){.pages = pages,
	                             .num_pages = num_pages,
	                             .page_shift = 12,
	                             .length = (uint64_t)num_pages << 12,
	                             .iova = IOVA,
	                             .access = RW_LOCAL | RW_REMOTE | HDL_ACCESS_BIND};
}

static struct hdl_key insert_list(struct tpt *tpt)
{
	struct hdl_register reg = make_list(3, (uint64_t[3]){0});
	reg.pages = page_list;
	struct hdl_key key;
	assert_int_equal(tpt_insert_pages(tpt, PD, TPT_REGION, 0, &reg, &key), 0);
	return key;
}

static enum hdl_detail use(struct tpt *tpt, struct hdl_key key)
{
	const struct tpt_request req = {
	        .key = key, .side = TPT_REMOTE, .pd = PD, .qpn = QPN, .addr = IOVA, .length = 1};
	return check(tpt, &req);
}

static void runs_that_are_refused(void **state)
{
	struct tpt *tpt = &((struct table *)*state)->tpt;
	static const struct {
		struct tpt_region region;
		int error;
	} rows[] = {
	        {{PD, RW_LOCAL, IOVA, HOST, 0, TPT_REGION}, 0},
	        {{PD, RW_LOCAL, 0, 0, UINT64_MAX, TPT_REGION}, 0},
	        {{PD, RW_LOCAL, 1, 0, UINT64_MAX, TPT_REGION}, -HDL_EINVAL},
	        {{PD, RW_LOCAL, 0, 1, UINT64_MAX, TPT_REGION}, -HDL_EINVAL},
	        {{PD, RW_LOCAL, UINT64_MAX, HOST, 1, TPT_REGION}, -HDL_EINVAL},
	        {{PD, RW_LOCAL | HDL_ACCESS_ZERO_BASED, UINT64_MAX, HOST, 1, TPT_REGION}, 0},
	        {{PD, RW_LOCAL, IOVA, UINT64_MAX - 4, 5, TPT_REGION}, -HDL_EINVAL},
	        {{PD, RW_LOCAL, IOVA, UINT64_MAX - 5, 5, TPT_REGION}, 0},
	        {{PD, 0x100, IOVA, HOST, 1, TPT_REGION}, -HDL_EINVAL},
	        {{PD, HDL_ACCESS_LOCAL_READ | HDL_ACCESS_REMOTE_WRITE, IOVA, HOST, 1, TPT_REGION},
	         -HDL_EINVAL},
	        {{PD, HDL_ACCESS_LOCAL_READ | HDL_ACCESS_REMOTE_ATOMIC, IOVA, HOST, 1, TPT_REGION},
	         -HDL_EINVAL},
	        {{PD, HDL_ACCESS_REMOTE_READ, IOVA, HOST, 1, TPT_REGION}, 0},
	        {{PD, HDL_ACCESS_ALL, IOVA, HOST, 1, TPT_REGION}, 0},
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct hdl_key key;
		assert_int_equal(tpt_insert_run(tpt, &rows[i].region, &key), rows[i].error);
	}
	struct hdl_key key;
	assert_int_equal(tpt_insert_empty(tpt, PD, TPT_WINDOW, 1, &key), -HDL_EINVAL);
	assert_int_equal(tpt_insert_empty(tpt, PD, TPT_REGION, 0, &key), -HDL_EINVAL);
	assert_int_equal(tpt_insert_empty(tpt, PD, TPT_REGION, TPT_MAX_PAGES + 1, &key),
	                 -HDL_EINVAL);
	assert_int_equal(tpt_insert_empty(tpt, PD, (enum tpt_type)3, 1, &key), -HDL_EINVAL);
	struct hdl_register reg = make_list(1, (uint64_t[1]){0});
	assert_int_equal(tpt_insert_pages(tpt, PD, TPT_WINDOW, 0, &reg, &key), -HDL_EINVAL);
}

/* The bound that a header names is reached, refused, and usable again. */
static void limit_of_entries(void **state)
{
	struct tpt *tpt = &((struct table *)*state)->tpt;
	struct hdl_key keys[100], more;
	const struct tpt_region region = {PD, RW_LOCAL, IOVA, HOST, 1, TPT_REGION};
	for (int round = 0; round < 3; round++) {
		bool seen[101] = {false};
		for (int i = 0; i < 100; i++) {
			keys[i] = make_run(tpt, RW_LOCAL, 1);
			uint32_t index = tpt_index(&tpt->view, keys[i]);
			assert_true(index >= 1 && index <= 100 && !seen[index]);
			seen[index] = true;
		}
		assert_int_equal(tpt_insert_run(tpt, &region, &more), -HDL_ENOMEM);
		assert_int_equal(tpt_insert_empty(tpt, PD, TPT_WINDOW, 0, &more), -HDL_ENOMEM);
		assert_int_equal(tpt_insert_empty(tpt, PD, TPT_REGION, 9, &more), -HDL_ENOMEM);
		assert_int_equal(tpt_insert_shared(tpt, keys[0], PD, RW_LOCAL, &more), -HDL_ENOMEM);
		struct hdl_register reg = make_list(1, (uint64_t[1]){0});
		assert_int_equal(tpt_insert_pages(tpt, PD, TPT_REGION, 0, &reg, &more),
		                 -HDL_ENOMEM);
		assert_int_equal(units_used(tpt),
		                 0); /* what was built for the refused ones is back */
		for (int i = 0; i < 100; i++)
			remove_entry(tpt, keys[i]);
	}
}

/* An arena of 512 units: tables of every shape until one does not fit, then all back. */
static void limit_of_the_arena(void **state)
{
	struct tpt *tpt = &((struct table *)*state)->tpt;
	static const uint32_t shapes[] = {1, 8, 9, 100, 500, 512, 513, 700, 1500};
	uint64_t *pages = calloc(5000, sizeof *pages);
	struct prng prng;
	prng_seed(&prng, 5);
	for (int round = 0; round < 200; round++) {
		struct hdl_key keys[100];
		int count = 0, error = 0;
		while (count < 100) {
			size_t before = units_used(tpt);
			uint32_t num_pages =
			        shapes[prng_below(&prng, sizeof shapes / sizeof shapes[0])];
			struct hdl_register reg = make_list(num_pages, pages);
			error = tpt_insert_pages(tpt, PD, TPT_REGION, 0, &reg, &keys[count]);
			if (error != 0) {
				assert_int_equal(units_used(tpt), before);
				break;
			}
			uint32_t leaves = (num_pages + 511) / 512,
			         root = leaves > 1 ? (leaves + 7) / 8 : 0;
			uint32_t tail = (num_pages - (leaves - 1) * 512 + 7) / 8;
			assert_int_equal(units_used(tpt) - before, (leaves - 1) * 64 + tail + root);
			count++;
			if (count > 5 && prng_chance(&prng, 300)) { /* holes */
				uint32_t at = (uint32_t)prng_below(&prng, (uint64_t)count);
				remove_entry(tpt, keys[at]);
				keys[at] = keys[--count];
			}
		}
		assert_true(error == -HDL_ENOMEM || count == 100);
		while (count > 0)
			remove_entry(tpt, keys[--count]);
		assert_int_equal(units_used(tpt), 0);
		/* Nothing was lost to fragments: all of it in one table. 4032 pages need 8 leaves
		 * (504 units) and a root. */
		struct hdl_register reg = make_list(4032, pages);
		assert_int_equal(tpt_insert_pages(tpt, PD, TPT_REGION, 0, &reg, &keys[0]), 0);
		assert_int_equal(units_used(tpt), 505);
		remove_entry(tpt, keys[0]);
	}
	struct hdl_key key;
	struct hdl_register reg = make_list(4100, pages);
	assert_int_equal(tpt_insert_pages(tpt, PD, TPT_REGION, 0, &reg, &key), -HDL_ENOMEM);
	assert_int_equal(tpt_insert_empty(tpt, PD, TPT_REGION, TPT_MAX_PAGES, &key), -HDL_ENOMEM);
	assert_int_equal(units_used(tpt), 0);
	free(pages);
}

/* Two holes that become one are found, also after the search has gone past the first without
 * success. */
static void holes_of_the_arena_grow_together(void **state)
{
	(void)state;
	struct table *table = table_open(16, 4 * TPT_UNIT_WORDS);
	struct tpt *tpt = &table->tpt;
	struct hdl_key keys[4], wide;
	for (int i = 0; i < 4; i++)
		assert_int_equal(tpt_insert_empty(tpt, PD, TPT_REGION, TPT_UNIT_WORDS, &keys[i]),
		                 0);
	for (int i = 0; i < 3;
	     i++) { /* behind, before and on both sides of the hole that is there */
		static const int order[3][2] = {{1, 2}, {2, 1}, {0, 1}};
		remove_entry(tpt, keys[order[i][0]]);
		assert_int_equal(tpt_insert_empty(tpt, PD, TPT_REGION, TPT_UNIT_WORDS + 1, &wide),
		                 -HDL_ENOMEM);
		remove_entry(tpt, keys[order[i][1]]);
		assert_int_equal(tpt_insert_empty(tpt, PD, TPT_REGION, TPT_UNIT_WORDS + 1, &wide),
		                 0);
		remove_entry(tpt, wide);
		for (int k = 0; k < 2; k++)
			assert_int_equal(tpt_insert_empty(tpt, PD, TPT_REGION, TPT_UNIT_WORDS,
			                                  &keys[order[i][k]]),
			                 0);
		/* First fit: the lower unit went to the first of the two. */
		if (order[i][0] > order[i][1]) {
			struct hdl_key lower = keys[order[i][0]];
			keys[order[i][0]] = keys[order[i][1]];
			keys[order[i][1]] = lower;
		}
	}
	table_close(table);
}

/* What HDL_OP_REGISTER needs was kept: it works when the arena is full to the last unit. */
static void ip3_room_for_registration_is_kept(void **state)
{
	struct tpt *tpt = &((struct table *)*state)->tpt;
	uint64_t pages[1200];
	struct hdl_register reg = make_list(1200, pages);
	struct hdl_key key, filler;
	assert_int_equal(tpt_insert_empty(tpt, PD, TPT_REGION, 1200, &key), 0);
	while (tpt_insert_empty(tpt, PD, TPT_REGION, 8, &filler) == 0 ||
	       tpt_insert_empty(tpt, PD, TPT_REGION, 512, &filler) == 0)
		;
	size_t before = units_used(tpt);
	for (uint32_t count = 1200; count > 0; count -= 100) {
		reg.num_pages = count;
		reg.length = (uint64_t)count << 12;
		assert_int_equal(tpt_register(tpt, key, PD, &reg), HDL_DETAIL_NONE);
		assert_int_equal(tpt_invalidate(tpt, key, PD, 0, true), HDL_DETAIL_NONE);
	}
	assert_int_equal(units_used(tpt), before);
	remove_entry(tpt, key);
	assert_int_equal(units_used(tpt), before - (64 + 64 + 22 + 1));
}

static void a_stale_key_is_refused_after_reuse(void **state)
{
	struct tpt *tpt = &((struct table *)*state)->tpt;
	struct hdl_key last[101] = {{0}};
	for (int round = 0; round < 5000; round++) {
		struct hdl_key key = make_run(tpt, RW_LOCAL | RW_REMOTE, 1);
		uint32_t index = tpt_index(&tpt->view, key);
		assert_int_equal(use(tpt, key), HDL_DETAIL_NONE);
		assert_int_not_equal(last[index].v, key.v);
		if (last[index].v != 0)
			assert_int_equal(use(tpt, last[index]), HDL_DETAIL_INSTANCE);
		last[index] = key;
		assert_int_equal(tpt_retire(tpt, key), HDL_DETAIL_NONE);
		assert_int_equal(use(tpt, key), HDL_DETAIL_NOT_VALID);
		assert_int_equal(tpt_retire(tpt, key), HDL_DETAIL_NOT_VALID);
		tpt_free(tpt, key);
		assert_int_equal(use(tpt, key), HDL_DETAIL_NOT_VALID);
		assert_int_equal(tpt_retire(tpt, key), HDL_DETAIL_NOT_VALID);
	}
	assert_int_equal(tpt_retire(tpt, (struct hdl_key){UINT32_MAX}), HDL_DETAIL_NOT_VALID);
}

/* A table for a million entries costs what is used of it. */
static void a_large_table_opens_step_by_step(void **state)
{
	(void)state;
	struct table *table = table_open(1000000, 64);
	const unsigned char *slots = table->slots;
	for (uint32_t count = 0; count < 5000; count++) {
		make_run(&table->tpt, RW_LOCAL, 1);
		assert_in_range(table->tpt.opened, count, count + TPT_MIN_FREE + TPT_OPEN_STEP);
	}
	for (size_t at = table->tpt.opened * sizeof(struct tpt_slot); at < 1000000; at++)
		assert_int_equal(slots[at], 0);
	table_close(table);
}

static void fig14_regions_share_a_table(void **state)
{
	struct tpt *tpt = &((struct table *)*state)->tpt;
	struct hdl_key first = insert_list(tpt), second, third;
	size_t before = units_used(tpt);
	assert_int_equal(before, 1);
	assert_int_equal(tpt_insert_shared(tpt, first, OTHER_PD, HDL_ACCESS_REMOTE_READ, &second),
	                 0);
	assert_int_equal(tpt_insert_shared(tpt, second, PD,
	                                   HDL_ACCESS_REMOTE_READ | HDL_ACCESS_ZERO_BASED, &third),
	                 0);
	assert_int_equal(units_used(tpt), before);
	assert_int_equal(use(tpt, second), HDL_DETAIL_PD);
	assert_int_equal(use(tpt, third), HDL_DETAIL_BOUNDS);
	remove_entry(tpt, first);
	assert_int_equal(units_used(tpt), before); /* still in use by two */
	const struct tpt_request req = {.key = second,
	                                .side = TPT_REMOTE,
	                                .access = HDL_ACCESS_REMOTE_READ,
	                                .pd = OTHER_PD,
	                                .addr = IOVA + 0x1000,
	                                .length = 0x1000};
	struct tpt_grant grant;
	struct span run;
	uint64_t covered;
	assert_int_equal(tpt_check(&tpt->view, &req, &grant), HDL_DETAIL_NONE);
	assert_int_equal(tpt_spans(&tpt->view, &grant, 0, UINT64_MAX, &run, 1, &covered), 1);
	assert_true(run.addr == HOST + 0x1000);
	remove_entry(tpt, second);
	remove_entry(tpt, third);
	assert_int_equal(units_used(tpt), 0);
}

static void fig14_what_cannot_be_shared(void **state)
{
	struct tpt *tpt = &((struct table *)*state)->tpt;
	struct hdl_key read_only = make_run(tpt, HDL_ACCESS_LOCAL_READ, LENGTH);
	struct hdl_key write_only = make_run(tpt, HDL_ACCESS_LOCAL_WRITE | HDL_ACCESS_BIND, LENGTH);
	struct hdl_key window = make_bound(tpt, write_only, HDL_ACCESS_REMOTE_WRITE, 1);
	struct hdl_key by_request, task, gone, key;
	uint64_t pages[1];
	struct hdl_register reg = make_list(1, pages);
	assert_int_equal(tpt_insert_empty(tpt, PD, TPT_REGION, 1, &by_request), 0);
	assert_int_equal(tpt_register(tpt, by_request, PD, &reg), HDL_DETAIL_NONE);
	assert_int_equal(tpt_insert_pages(tpt, PD, TPT_ISCSI, 1, &reg, &task), 0);
	const struct tpt_region elsewhere = {PD, RW_LOCAL, IOVA, 0x1000, 1, TPT_REGION};
	assert_int_equal(tpt_insert_run(tpt, &elsewhere, &gone), 0);
	assert_int_equal(tpt_segment_gone(tpt, 0x1000, 1, NULL, NULL), 1);
	const struct {
		struct hdl_key of;
		uint32_t access;
		int error;
	} rows[] = {
	        {{0}, 0, -HDL_ESTALE},
	        {{UINT32_MAX}, 0, -HDL_ESTALE},
	        {key_other_instance(read_only), 0, -HDL_ESTALE},
	        {gone, HDL_ACCESS_LOCAL_READ, -HDL_ESTALE},
	        {window, HDL_ACCESS_REMOTE_WRITE | HDL_ACCESS_LOCAL_WRITE, -HDL_EINVAL},
	        {by_request, HDL_ACCESS_LOCAL_READ, -HDL_EINVAL},
	        {task, HDL_ACCESS_LOCAL_READ, -HDL_EINVAL},
	        {read_only, HDL_ACCESS_REMOTE_WRITE, -HDL_EINVAL},
	        {read_only, 0x100, -HDL_EINVAL},
	        {read_only, HDL_ACCESS_LOCAL_WRITE, -HDL_EACCES},
	        {read_only, RW_LOCAL | RW_REMOTE, -HDL_EACCES},
	        {read_only, HDL_ACCESS_REMOTE_READ | HDL_ACCESS_BIND, 0},
	        {write_only, HDL_ACCESS_LOCAL_READ, -HDL_EACCES},
	        {write_only, HDL_ACCESS_REMOTE_READ, -HDL_EACCES},
	        {write_only, HDL_ACCESS_LOCAL_WRITE | HDL_ACCESS_REMOTE_ATOMIC, 0},
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		assert_int_equal(tpt_insert_shared(tpt, rows[i].of, PD, rows[i].access, &key),
		                 rows[i].error);
	/* A shared region starts without the windows of the first. */
	assert_int_equal(tpt_retire(tpt, key), HDL_DETAIL_NONE);
	assert_int_equal(tpt_retire(tpt, write_only), HDL_DETAIL_BUSY);
}

/* Keys that a call of tpt_segment_gone() named. */
struct heard {
	struct hdl_key keys[8];
	uint32_t count;
};

static void hear(void *context, struct hdl_key key)
{
	struct heard *heard = context;
	heard->keys[heard->count++] = key;
}

static void sn8_memory_that_goes(void **state)
{
	(void)state;
	/* The region over pages covers 0x5010..0x6000, 0x1000..0x2000 and 0x3000..0x3810, counted
	 * from HOST. */
	static const struct {
		uint64_t host, length;
		bool run, list;
	} rows[] = {
	        {HOST, 1, true, false},
	        {HOST - 1, 1, false, false},
	        {HOST - 1, 2, true, false},
	        {HOST + 0xfff, 1, true, false},
	        {HOST + 0x800, 0, false, false},
	        {HOST + 0x1000, 1, false, true},
	        {HOST + 0x1fff, 1, false, true},
	        {HOST + 0x2000, 0x1000, false, false},
	        {HOST + 0x2000, 0x1001, false, true},
	        {HOST + 0x380f, 1, false, true},
	        {HOST + 0x3810, 1, false, false},
	        {HOST + 0x5000, 0x10, false, false}, /* the first page before its offset */
	        {HOST + 0x5010, 1, false, true},
	        {HOST + 0x6000, UINT64_MAX, false, false},
	        {HOST + 0xfff, UINT64_MAX, true, true}, /* the sum wraps */
	        {0, UINT64_MAX, true, true},
	        {UINT64_MAX, UINT64_MAX, false, false},
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct table *table = table_open(100, 4096);
		struct tpt *tpt = &table->tpt;
		struct hdl_key run = make_run(tpt, RW_LOCAL | HDL_ACCESS_BIND, 0x1000), list,
		               unbound;
		struct hdl_register reg = {
		        page_list, 3, 12, 0x10, 0x2800, IOVA, RW_LOCAL | HDL_ACCESS_BIND};
		assert_int_equal(tpt_insert_pages(tpt, PD, TPT_REGION, 0, &reg, &list), 0);
		struct hdl_key on_run = make_bound(tpt, run, RW_REMOTE, 1);
		struct hdl_key on_list = make_bound(tpt, list, RW_REMOTE, 1);
		unbound = make_window(tpt);
		struct heard heard = {.count = 0};
		uint32_t expect = (rows[i].run ? 2u : 0u) + (rows[i].list ? 2u : 0u);
		assert_int_equal(tpt_segment_gone(tpt, rows[i].host, rows[i].length, hear, &heard),
		                 expect);
		assert_int_equal(heard.count, expect);
		for (uint32_t k = 0; k < heard.count; k++)
			assert_int_equal(use(tpt, heard.keys[k]), HDL_DETAIL_GONE);
		assert_int_equal(use(tpt, run), rows[i].run ? HDL_DETAIL_GONE : HDL_DETAIL_NONE);
		assert_int_equal(use(tpt, on_run), rows[i].run ? HDL_DETAIL_GONE : HDL_DETAIL_NONE);
		assert_int_equal(use(tpt, list), rows[i].list ? HDL_DETAIL_GONE : HDL_DETAIL_NONE);
		assert_int_equal(use(tpt, on_list),
		                 rows[i].list ? HDL_DETAIL_GONE : HDL_DETAIL_NONE);
		assert_int_equal(use(tpt, unbound), HDL_DETAIL_NOT_VALID);
		/* Told once, not twice. */
		assert_int_equal(tpt_segment_gone(tpt, rows[i].host, rows[i].length, NULL, NULL),
		                 0);
		/* What is gone is not bound again, but can be put away. */
		const struct tpt_bind bind = {
		        .key = unbound, .region = run, .pd = PD, .addr = IOVA};
		assert_int_equal(tpt_bind(tpt, &bind),
		                 rows[i].run ? HDL_DETAIL_GONE : HDL_DETAIL_NONE);
		remove_entry(tpt, unbound);
		assert_int_equal(tpt_invalidate(tpt, on_run, PD, QPN, true), HDL_DETAIL_NONE);
		remove_entry(tpt, on_list);
		remove_entry(tpt, run);
		remove_entry(tpt, list);
		table_close(table);
	}
}

static void sn8_registering_anew_brings_memory_back(void **state)
{
	struct tpt *tpt = &((struct table *)*state)->tpt;
	struct hdl_key key;
	struct hdl_register reg = {page_list, 3, 12, 0, 0x3000, IOVA, RW_LOCAL};
	assert_int_equal(tpt_insert_empty(tpt, PD, TPT_REGION, 3, &key), 0);
	assert_int_equal(tpt_segment_gone(tpt, HOST, 0x10000, NULL, NULL), 0); /* not valid yet */
	assert_int_equal(tpt_register(tpt, key, PD, &reg), HDL_DETAIL_NONE);
	assert_int_equal(tpt_segment_gone(tpt, HOST + 0x3000, 1, NULL, NULL), 1);
	assert_int_equal(use(tpt, key), HDL_DETAIL_GONE);
	assert_int_equal(tpt_register(tpt, key, PD, &reg), HDL_DETAIL_ALREADY);
	assert_int_equal(tpt_invalidate(tpt, key, PD, QPN, true), HDL_DETAIL_NONE);
	assert_int_equal(tpt_register(tpt, key, PD, &reg), HDL_DETAIL_NONE);
	assert_int_equal(use(tpt, key), HDL_DETAIL_NONE);
}

/* IBTA section 11.2.8.6: a region gets other memory and rights; here it keeps its key, so that who
 * knows it need not learn another. */
static void a_region_changes_in_place(void **state)
{
	struct tpt *tpt = &((struct table *)*state)->tpt;
	struct hdl_key key = make_run(tpt, RW_LOCAL | RW_REMOTE | HDL_ACCESS_BIND, LENGTH);
	const struct tpt_region other = {OTHER_PD,      RW_LOCAL, IOVA + LENGTH,
	                                 HOST + LENGTH, 0x10,     TPT_REGION};
	const struct tpt_region back = {PD, RW_LOCAL | RW_REMOTE, IOVA, HOST, LENGTH, TPT_REGION};
	const struct tpt_region wraps = {PD, RW_LOCAL, UINT64_MAX, HOST, 2, TPT_REGION};

	assert_int_equal(tpt_replace_run(tpt, key, &wraps), -HDL_EINVAL);
	struct hdl_key window = make_bound(tpt, key, HDL_ACCESS_REMOTE_READ, LENGTH);
	assert_int_equal(tpt_replace_run(tpt, key, &other), -HDL_EBUSY);
	assert_int_equal(tpt_invalidate(tpt, window, PD, QPN, false), HDL_DETAIL_NONE);
	assert_int_equal(use(tpt, key), HDL_DETAIL_NONE);
	assert_int_equal(tpt_replace_run(tpt, key, &other), 0);
	assert_int_equal(use(tpt, key), HDL_DETAIL_PD);
	assert_int_equal(tpt_current(tpt, key).v, key.v);
	assert_int_equal(tpt_replace_run(tpt, key, &back), 0);
	assert_int_equal(use(tpt, key), HDL_DETAIL_NONE);

	assert_int_equal(tpt_replace_run(tpt, insert_list(tpt), &back), -HDL_ENOTSUP);
	assert_int_equal(tpt_replace_run(tpt, make_window(tpt), &back), -HDL_ESTALE);
	assert_int_equal(tpt_segment_gone(tpt, HOST, 1, NULL, NULL), 1);
	assert_int_equal(tpt_replace_run(tpt, key, &back), -HDL_ESTALE);
	assert_int_equal(tpt_retire(tpt, key), HDL_DETAIL_NONE);
	assert_int_equal(tpt_replace_run(tpt, key, &back), -HDL_ESTALE);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_table, close_table)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(runs_that_are_refused),
	        TEST(limit_of_entries),
	        TEST(limit_of_the_arena),
	        cmocka_unit_test(holes_of_the_arena_grow_together),
	        TEST(ip3_room_for_registration_is_kept),
	        TEST(a_stale_key_is_refused_after_reuse),
	        cmocka_unit_test(a_large_table_opens_step_by_step),
	        TEST(a_region_changes_in_place),
	        TEST(fig14_regions_share_a_table),
	        TEST(fig14_what_cannot_be_shared),
	        cmocka_unit_test(sn8_memory_that_goes),
	        TEST(sn8_registering_anew_brings_memory_back),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
