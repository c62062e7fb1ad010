/* Translation: direct, first-order and second-order tables with every page size, against a list
 * that is simply looked up; and a reader that meets a table full of nonsense. MISSION IP2. */
#include "table.h"

#include "base/bitmap.h"
#include "base/prng.h"

/* Scattered pages as a caller sees them. */
struct list {
	uint64_t *pages;
	struct hdl_register reg;
};

/* @count pages of which a third follow their neighbour, so that runs are joined now and then. */
static struct list list_make(struct prng *prng, uint32_t count, uint8_t page_shift)
{
	struct list list = {.pages = malloc(count * sizeof *list.pages)};
	uint64_t page_bytes = (uint64_t)1 << page_shift;
	for (uint32_t i = 0; i < count; i++) {
		bool follows = i != 0 && prng_chance(prng, 333);
		list.pages[i] = follows ? list.pages[i - 1] + page_bytes
		                        : prng_below(prng, 1u << 18) << page_shift;
	}
	uint64_t first = prng_chance(prng, 300) ? 0 : prng_below(prng, page_bytes);
	uint64_t least = ((uint64_t)(count - 1) << page_shift) + 1;
	least = least > first ? least - first : 1;
	uint64_t most = ((uint64_t)count << page_shift) - first;
	list.reg = (struct hdl_register){
	        .pages = list.pages,
	        .num_pages = count,
	        .page_shift = page_shift,
	        .first_offset = first,
	        .length =
	                prng_chance(prng, 300) ? most : least + prng_below(prng, most - least + 1),
	        .iova = prng_next(prng) >> 1,
	        .access = RW_LOCAL | RW_REMOTE | HDL_ACCESS_BIND,
	};
	return list;
}

/* Where byte @offset of the range lies. */
static uint64_t list_at(const struct list *list, uint64_t offset)
{
	uint64_t at = list->reg.first_offset + offset;
	uint64_t page_bytes = (uint64_t)1 << list->reg.page_shift;
	return list->pages[at / page_bytes] + at % page_bytes;
}

/* The runs of a grant must be what the list says, in the fewest pieces. */
static void compare(const struct list *list, uint64_t offset, const struct span *runs, size_t count,
                    uint64_t covered)
{
	uint64_t page_bytes = (uint64_t)1 << list->reg.page_shift;
	uint64_t done = 0;
	for (size_t i = 0; i < count; i++) {
		assert_true(runs[i].length != 0);
		if (i != 0)
			assert_true(runs[i - 1].addr + runs[i - 1].length != runs[i].addr);
		for (uint64_t in_run = 0; in_run < runs[i].length;) {
			uint64_t at = offset + done + in_run;
			assert_true(runs[i].addr + in_run == list_at(list, at));
			/* On to the next border; the last byte before it must follow as well. */
			uint64_t step = page_bytes - (list->reg.first_offset + at) % page_bytes;
			if (step > runs[i].length - in_run)
				step = runs[i].length - in_run;
			assert_true(runs[i].addr + in_run + step - 1 ==
			            list_at(list, at + step - 1));
			in_run += step;
		}
		done += runs[i].length;
	}
	assert_true(done == covered);
}

#define RUNS 64

/* Ask for pieces of the key's range, which begins @from bytes into the list. */
static void probe(struct tpt *tpt, struct prng *prng, const struct list *list, struct hdl_key key,
                  uint8_t side, uint64_t base, uint64_t from, uint64_t length)
{
	uint64_t page_bytes = (uint64_t)1 << list->reg.page_shift;
	for (int i = 0; i < 200; i++) {
		uint64_t offset = prng_below(prng, length);
		if (prng_chance(prng, 500)) { /* at a border */
			offset = offset / page_bytes * page_bytes;
			offset = offset > list->reg.first_offset ? offset - list->reg.first_offset
			                                         : 0;
		}
		uint64_t most =
		        length - offset < 100 * page_bytes ? length - offset : 100 * page_bytes;
		uint64_t bytes = 1 + prng_below(prng, most);
		const struct tpt_request req = {.key = key,
		                                .side = side,
		                                .pd = PD,
		                                .qpn = QPN,
		                                .addr = base + offset,
		                                .length = bytes};
		struct tpt_grant grant;
		assert_int_equal(tpt_check(&tpt->view, &req, &grant), HDL_DETAIL_NONE);
		struct span runs[RUNS];
		size_t max = 1 + prng_below(prng, RUNS);
		uint64_t skip = prng_chance(prng, 500) ? 0 : prng_below(prng, bytes);
		uint64_t want = prng_chance(prng, 500) ? UINT64_MAX : 1 + prng_below(prng, bytes);
		uint64_t covered;
		size_t count = tpt_spans(&tpt->view, &grant, skip, want, runs, max, &covered);
		assert_true(count >= 1 && count <= max);
		compare(list, from + offset + skip, runs, count, covered);
		if (want > bytes - skip)
			want = bytes - skip;
		assert_true(covered <= want && (covered == want || count == max));
		if (covered < want) /* the next byte starts a run of its own */
			assert_true(list_at(list, from + offset + skip + covered) !=
			            runs[count - 1].addr + runs[count - 1].length);
	}
}

static void check_list(struct tpt *tpt, struct prng *prng, uint32_t count, uint8_t page_shift,
                       enum tpt_order order)
{
	struct list list = list_make(prng, count, page_shift);
	struct hdl_key region, window, empty;
	assert_int_equal(tpt_insert_pages(tpt, PD, TPT_REGION, 0, &list.reg, &region), 0);
	assert_int_equal(((struct tpt_entry *)&tpt->slots[tpt_index(&tpt->view, region)])->order,
	                 order);
	probe(tpt, prng, &list, region, TPT_LOCAL, list.reg.iova, 0, list.reg.length);

	/* A window uses the region's table from its own offset on. */
	uint64_t from = prng_below(prng, list.reg.length);
	assert_int_equal(tpt_insert_empty(tpt, PD, TPT_WINDOW, 0, &window), 0);
	const struct tpt_bind bind = {.key = window,
	                              .region = region,
	                              .pd = PD,
	                              .addr = list.reg.iova + from,
	                              .length = list.reg.length - from};
	assert_int_equal(tpt_bind(tpt, &bind), HDL_DETAIL_NONE);
	probe(tpt, prng, &list, window, TPT_REMOTE, bind.addr, from, bind.length);
	remove_entry(tpt, window);
	remove_entry(tpt, region);

	/* Room for more pages than are registered: the order is that of the room. */
	assert_int_equal(tpt_insert_empty(tpt, PD, TPT_REGION, count + count / 2 + 1, &empty), 0);
	assert_int_equal(tpt_register(tpt, empty, PD, &list.reg), HDL_DETAIL_NONE);
	probe(tpt, prng, &list, empty, TPT_LOCAL, list.reg.iova, 0, list.reg.length);
	remove_entry(tpt, empty);
	assert_int_equal(bitmap_count(&tpt->arena.map), 0);
	free(list.pages);
}

static void ip2_orders_and_page_sizes(void **state)
{
	(void)state;
	struct table *table = table_open(16, 1u << 20);
	struct prng prng;
	prng_seed(&prng, 2);
	static const struct {
		uint32_t count;
		enum tpt_order order;
	} rows[] = {
	        {1, TPT_DIRECT},   {2, TPT_DIRECT},   {8, TPT_DIRECT},  {9, TPT_DIRECT},
	        {511, TPT_DIRECT}, {512, TPT_DIRECT}, {513, TPT_FIRST}, {1024, TPT_FIRST},
	        {1025, TPT_FIRST}, {5000, TPT_FIRST},
	};
	for (uint8_t shift = TPT_MIN_PAGE_SHIFT; shift <= TPT_MAX_PAGE_SHIFT; shift++) {
		for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
			check_list(&table->tpt, &prng, rows[i].count, shift, rows[i].order);
	}
	/* Large lists with the least, a middle and the largest page. */
	for (uint8_t shift = TPT_MIN_PAGE_SHIFT; shift <= TPT_MAX_PAGE_SHIFT; shift += 8) {
		check_list(&table->tpt, &prng, 512 * 512, shift, TPT_FIRST);
		check_list(&table->tpt, &prng, 512 * 512 + 1, shift, TPT_SECOND);
		check_list(&table->tpt, &prng, 300000, shift, TPT_SECOND);
	}
	table_close(table);
}

static void no_bytes_no_runs(void **state)
{
	(void)state;
	struct table *table = table_open(16, 64);
	struct hdl_key key = make_run(&table->tpt, RW_LOCAL, 100);
	const struct tpt_request req = {.key = key, .pd = PD, .addr = IOVA, .length = 100};
	struct tpt_grant grant;
	struct span run;
	uint64_t covered;
	assert_int_equal(tpt_check(&table->tpt.view, &req, &grant), HDL_DETAIL_NONE);
	assert_int_equal(tpt_spans(&table->tpt.view, &grant, 0, 0, &run, 1, &covered), 0);
	assert_int_equal(tpt_spans(&table->tpt.view, &grant, 100, 1, &run, 1, &covered), 0);
	assert_int_equal(tpt_spans(&table->tpt.view, &grant, UINT64_MAX, 1, &run, 1, &covered), 0);
	assert_int_equal(tpt_spans(&table->tpt.view, &grant, 0, 1, &run, 0, &covered), 0);
	assert_int_equal(covered, 0);
	assert_int_equal(tpt_spans(&table->tpt.view, &grant, 99, UINT64_MAX, &run, 1, &covered), 1);
	assert_int_equal(covered, 1);
	assert_true(run.addr == HOST + 99);
	table_close(table);
}

/* Ways in which an entry can point outside its arena, each of which a peer could write. */
static void a_broken_table_has_no_runs(void **state)
{
	(void)state;
	enum { WORDS = 1024 };
	uint64_t *arena =
	        malloc(WORDS * sizeof *arena); /* exactly: the sanitizer sees one word too many */
	for (int i = 0; i < WORDS; i++)
		arena[i] = 0x1000u * (uint64_t)i;
	arena[0] = UINT64_MAX;
	arena[1] = WORDS;
	arena[2] = WORDS - 1;
	arena[3] = 0x1001;             /* not aligned */
	arena[4] = UINT64_MAX - 0xfff; /* ends at 2^64 */
	arena[5] = 2;                  /* a list whose first table is cut off by the end */
	const struct tpt_view view = {.arena = arena, .arena_words = WORDS};
	static const struct {
		uint8_t order, page_shift;
		uint64_t att, att_skip, bytes;
		bool works;
	} rows[] = {
	        {TPT_DIRECT, 12, 8, 0, 0x1000, true},
	        {TPT_DIRECT, 12, 8, 0, 0x3000, true},
	        {TPT_DIRECT, 11, 8, 0, 1, false},
	        {TPT_DIRECT, 29, 8, 0, 1, false},
	        {TPT_DIRECT, 255, 8, 0, 1, false},
	        {TPT_DIRECT, 12, WORDS, 0, 1, false},
	        {TPT_DIRECT, 12, UINT64_MAX, 0, 1, false},
	        {TPT_DIRECT, 12, WORDS - 1, 0, 1, true},
	        {TPT_DIRECT, 12, WORDS - 1, 0, 0x1001, false},
	        {TPT_DIRECT, 12, UINT64_MAX - 1, 0x2000, 1, false},
	        {TPT_DIRECT, 12, 8, 512 << 12, 1, false}, /* a table has 512 words */
	        {TPT_DIRECT, 12, 8, UINT64_MAX, 1, false},
	        {TPT_DIRECT, 12, 8, UINT64_MAX - 1, 1, false},
	        {TPT_DIRECT, 12, 3, 0, 1, false},
	        {TPT_DIRECT, 12, 4, 0, 1, false},
	        {TPT_DIRECT, 12, 2, 0, 0x1000, false},
	        {TPT_FIRST, 12, 0, 0, 1, false},
	        {TPT_FIRST, 12, 1, 0, 1, false},
	        {TPT_FIRST, 12, 2, 0, 0x1000, true},
	        {TPT_FIRST, 12, 2, 0x1000, 1, false},
	        {TPT_FIRST, 12, WORDS, 0, 1, false},
	        {TPT_FIRST, 12, 8, (uint64_t)512 << 21, 1, false},
	        {TPT_SECOND, 12, 0, 0, 1, false},
	        {TPT_SECOND, 12, 1, 0, 1, false},
	        {TPT_SECOND, 12, 5, 0, 0x1000, true},
	        {TPT_SECOND, 12, 5, 0x1000, 1, false},
	        {TPT_SECOND, 12, 8, (uint64_t)512 << 30, 1, false},
	        {TPT_NULL, 12, 8, 0, 1, true},
	        {TPT_NULL, 12, 8, UINT64_MAX, 0x8000, true}, /* the same page, eight times */
	        {TPT_NULL, 11, 8, 0, 1, false},
	        {TPT_NULL, 29, 8, 0, 1, false},
	        {TPT_NULL, 12, UINT64_MAX - 0x1fff, 0, 1, false},
	        {5, 12, 8, 0, 1, false},
	        {255, 12, 8, 0, 1, false},
	        {TPT_INLINE, 0, UINT64_MAX, 0, 1, false},
	        {TPT_INLINE, 0, UINT64_MAX - 1, 0, 1, true},
	        {TPT_INLINE, 0, UINT64_MAX - 1, 0, 2, false},
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		const struct tpt_grant grant = {.entry = {.order = rows[i].order,
		                                          .page_shift = rows[i].page_shift,
		                                          .att = rows[i].att,
		                                          .att_skip = rows[i].att_skip},
		                                .length = rows[i].bytes};
		struct span runs[8];
		uint64_t covered = 1;
		size_t count = tpt_spans(&view, &grant, 0, UINT64_MAX, runs, 8, &covered);
		assert_int_equal(count != 0, rows[i].works);
		assert_true(covered == (rows[i].works ? rows[i].bytes : 0));
	}
	free(arena);
}

/* A peer that writes anything at all into both arrays: no read outside them, and no run longer than
 * what was asked. */
static void a_table_of_nonsense_is_survived(void **state)
{
	(void)state;
	enum { SLOTS = 8, WORDS = 64, ROUNDS = 200000 };
	struct prng prng;
	prng_seed(&prng, 3);
	struct tpt_slot *slots = aligned_alloc(64, SLOTS * sizeof *slots);
	uint64_t *arena = malloc(WORDS * sizeof *arena);
	const struct tpt_view view = {
	        .slots = slots, .arena = arena, .capacity = SLOTS, .arena_words = WORDS, .mul = 1};
	uint32_t granted = 0, translated = 0;
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < WORDS; i++)
			arena[i] = prng_chance(&prng, 500) ? prng_below(&prng, 2 * WORDS)
			                                   : prng_next(&prng) << 12;
		struct tpt_entry entry;
		prng_fill(&prng, &entry, sizeof entry);
		entry.seq &= ~1u;
		entry.type &= 3;
		entry.order &= 7;
		entry.page_shift = (uint8_t)(entry.page_shift % 24 + 8);
		entry.flags |= TPT_VALID;
		entry.access |= HDL_ACCESS_REMOTE_READ;
		entry.qpn = 0;
		entry.att = prng_chance(&prng, 700) ? prng_below(&prng, 2 * WORDS) : entry.att;
		entry.att_skip =
		        prng_chance(&prng, 700) ? prng_below(&prng, 1u << 20) : entry.att_skip;
		uint32_t index = (uint32_t)prng_below(&prng, SLOTS);
		entry.tag = (uint16_t)index;
		memcpy(&slots[index], &entry, sizeof entry);
		const struct tpt_request req = {
		        .key = {index << TPT_INSTANCE_BITS | entry.instance},
		        .side = TPT_REMOTE,
		        .access = HDL_ACCESS_REMOTE_READ,
		        .pd = entry.pd,
		        .addr = entry.base,
		        .length = prng_below(&prng, entry.length % 100000 + 1)};
		struct tpt_grant grant;
		if (tpt_check(&view, &req, &grant) != HDL_DETAIL_NONE)
			continue;
		granted++;
		struct span runs[4];
		uint64_t covered, sum = 0;
		size_t count = tpt_spans(&view, &grant, 0, req.length, runs, 4, &covered);
		assert_true(count <= 4);
		for (size_t i = 0; i < count; i++) {
			assert_true(runs[i].length <= UINT64_MAX - runs[i].addr);
			sum += runs[i].length;
		}
		assert_true(sum == covered && covered <= req.length);
		translated += count != 0;
	}
	assert_true(granted > ROUNDS / 10 &&
	            translated > ROUNDS / 100); /* else nothing was tried */
	free(arena);
	free(slots);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(ip2_orders_and_page_sizes),
	        cmocka_unit_test(no_bytes_no_runs),
	        cmocka_unit_test(a_broken_table_has_no_runs),
	        cmocka_unit_test(a_table_of_nonsense_is_survived),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
