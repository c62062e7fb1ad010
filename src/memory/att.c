/* Translation tables in the arena; see att.h. */
#include "memory/att.h"

#include <assert.h>

#define LEAF_PAGES   ((uint64_t)TPT_FANOUT)
#define LIST_PAGES   (LEAF_PAGES * TPT_FANOUT)
#define SECOND_PAGES (LIST_PAGES * TPT_FANOUT)

static uint32_t divide_up(uint64_t value, uint64_t by)
{
	return (uint32_t)((value + by - 1) / by);
}

enum tpt_order att_order(uint32_t pages)
{
	return pages <= LEAF_PAGES ? TPT_DIRECT : pages <= LIST_PAGES ? TPT_FIRST : TPT_SECOND;
}

/* Pages below one word of a table of @order. */
static uint64_t pages_below(uint8_t order)
{
	return order == TPT_DIRECT ? 1 : order == TPT_FIRST ? LEAF_PAGES : LIST_PAGES;
}

/* Words of a table of @order for @pages. */
static uint32_t words_of(uint8_t order, uint64_t pages)
{
	return divide_up(pages, pages_below(order));
}

/* How many of @pages lie below word @i. */
static uint64_t pages_of(uint8_t order, uint64_t pages, uint32_t i)
{
	uint64_t rest = pages - i * pages_below(order);
	return rest < pages_below(order) ? rest : pages_below(order);
}

/* Allocate one table of @words words. First fit, but never searched from the start: hint[]
 * remembers for each size where there is nothing to be found. */
static bool table_take(struct tpt_arena *arena, uint32_t words, uint64_t *at)
{
	size_t units = divide_up(words, TPT_UNIT_WORDS);
	size_t from = arena->hint[units - 1];
	size_t unit = BITMAP_NONE;
	if (from < arena->map.bits)
		unit = bitmap_find_clear_run(&arena->map, from, units);
	assert(unit >= from);
	size_t nothing_before = unit == BITMAP_NONE ? arena->map.bits : unit + units;
	for (size_t size = units; size <= TPT_TABLE_UNITS; size++) {
		if (arena->hint[size - 1] < nothing_before)
			arena->hint[size - 1] = nothing_before;
	}
	if (unit == BITMAP_NONE)
		return false;
	bitmap_set_run(&arena->map, unit, units);
	*at = (uint64_t)unit * TPT_UNIT_WORDS;
	return true;
}

static void table_give(struct tpt_arena *arena, uint64_t at, uint32_t words)
{
	size_t unit = (size_t)(at / TPT_UNIT_WORDS);
	bitmap_clear_run(&arena->map, unit, divide_up(words, TPT_UNIT_WORDS));
	for (size_t size = 1; size <= TPT_TABLE_UNITS; size++) {
		/* A run that becomes long enough through this one starts less than its length
		 * before it. */
		size_t first = unit >= size ? unit - size + 1 : 0;
		if (arena->hint[size - 1] > first)
			arena->hint[size - 1] = first;
	}
}

static void word_set(struct tpt_arena *arena, uint64_t at, uint64_t value)
{
	__atomic_store_n(&arena->words[at], value, __ATOMIC_RELAXED);
}

/* Free the table of @order for @pages at @at, of which the first @built words are set. */
static void level_drop(struct tpt_arena *arena, uint8_t order, uint64_t at, uint64_t pages,
                       uint32_t built)
{
	uint8_t under = (uint8_t)(order - 1);
	for (uint32_t i = 0; order != TPT_DIRECT && i < built; i++) {
		uint64_t part = pages_of(order, pages, i);
		level_drop(arena, under, arena->words[at + i], part, words_of(under, part));
	}
	table_give(arena, at, words_of(order, pages));
}

static bool level_build(struct tpt_arena *arena, uint8_t order, uint64_t pages, uint64_t *at)
{
	if (!table_take(arena, words_of(order, pages), at))
		return false;
	for (uint32_t i = 0; order != TPT_DIRECT && i < words_of(order, pages); i++) {
		uint64_t child;
		if (!level_build(arena, (uint8_t)(order - 1), pages_of(order, pages, i), &child)) {
			level_drop(arena, order, *at, pages, i);
			return false;
		}
		word_set(arena, *at + i, child);
	}
	return true;
}

bool att_build(struct tpt_arena *arena, uint32_t pages, uint64_t *att)
{
	assert(pages != 0 && pages <= TPT_MAX_PAGES);
	if (!level_build(arena, (uint8_t)att_order(pages), pages, att))
		return false;
	arena->refs[*att / TPT_UNIT_WORDS] = 1;
	return true;
}

static void level_fill(struct tpt_arena *arena, uint8_t order, uint64_t at, const uint64_t *pages,
                       uint64_t count)
{
	for (uint32_t i = 0; i < words_of(order, count); i++) {
		if (order == TPT_DIRECT)
			word_set(arena, at + i, pages[i]);
		else
			level_fill(arena, (uint8_t)(order - 1), arena->words[at + i],
			           pages + i * pages_below(order), pages_of(order, count, i));
	}
}

void att_fill(struct tpt_arena *arena, enum tpt_order order, uint64_t att, const uint64_t *pages,
              uint32_t count)
{
	level_fill(arena, (uint8_t)order, att, pages, count);
}

void att_share(struct tpt_arena *arena, uint64_t att)
{
	uint32_t *refs = &arena->refs[att / TPT_UNIT_WORDS];
	assert(*refs != 0 &&
	       *refs != UINT32_MAX); /* one reference per entry: there are not that many entries */
	*refs += 1;
}

void att_drop(struct tpt_arena *arena, uint64_t att, uint32_t pages)
{
	uint32_t *refs = &arena->refs[att / TPT_UNIT_WORDS];
	assert(*refs != 0);
	*refs -= 1;
	if (*refs == 0) {
		uint8_t order = (uint8_t)att_order(pages);
		level_drop(arena, order, att, pages, words_of(order, pages));
	}
}

/* Word @i of the table at @at, if it is inside the arena. */
static bool word_get(const struct tpt_view *view, uint64_t at, uint64_t i, uint64_t *value)
{
	if (at >= view->arena_words || i >= view->arena_words - at)
		return false;
	*value = att_word(&view->arena[at + i]);
	return true;
}

bool att_find(const struct tpt_view *view, uint8_t order, uint64_t att, uint64_t page,
              struct att_leaf *leaf)
{
	if (order < TPT_DIRECT || order > TPT_SECOND)
		return false;
	if (page >= (order == TPT_DIRECT  ? LEAF_PAGES
	             : order == TPT_FIRST ? LIST_PAGES
	                                  : SECOND_PAGES))
		return false;
	if (order == TPT_SECOND) {
		if (!word_get(view, att, page / LIST_PAGES, &att))
			return false;
		page %= LIST_PAGES;
	}
	if (order >= TPT_FIRST) {
		if (!word_get(view, att, page / LEAF_PAGES, &att))
			return false;
		page %= LEAF_PAGES;
	}
	if (att >= view->arena_words || page >= view->arena_words - att)
		return false;
	leaf->words = &view->arena[att + page];
	leaf->count = LEAF_PAGES - page;
	if (leaf->count > view->arena_words - att - page)
		leaf->count = view->arena_words - att - page;
	return true;
}
