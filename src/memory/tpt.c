/* The protection table, reading side: the check, and where granted bytes are in memory. Also how a
 * table is set up. */
#include "memory/tpt.h"

#include <assert.h>

#include "memory/att.h"
#include "memory/judge.h"
#include "memory/slot.h"

struct tpt_bytes tpt_bytes(const struct tpt_config *config)
{
	assert(config->capacity != 0 && config->capacity <= TPT_MAX_CAPACITY);
	size_t slots = (size_t)config->capacity + 1;
	size_t units = (size_t)(config->arena_words / TPT_UNIT_WORDS);
	struct tpt_bytes bytes = {
	        .slots = slots * sizeof(struct tpt_slot),
	        .arena = units * TPT_UNIT_WORDS * sizeof(uint64_t),
	        .private_bytes = BITMAP_WORDS(units) * sizeof(uint64_t) + units * sizeof(uint32_t) +
	                         slots * sizeof(uint32_t),
	};
	return bytes;
}

void tpt_init(struct tpt *tpt, const struct tpt_config *config, void *slots, void *arena,
              void *private_memory, uint64_t random_seed)
{
	size_t units = (size_t)(config->arena_words / TPT_UNIT_WORDS);
	uint64_t *map = private_memory;
	uint32_t *refs = (uint32_t *)(map + BITMAP_WORDS(units));
	*tpt = (struct tpt){
	        .view =
	                {
	                        .slots = slots,
	                        .arena = arena,
	                        .capacity = config->capacity + 1,
	                        .arena_words = (uint64_t)units * TPT_UNIT_WORDS,
	                        .tag_bits = tpt_tag_bits(config->capacity + 1),
	                },
	        .slots = slots,
	        .free_list = refs + units,
	        .opened = 1,
	        /* Not bitmap_init(): the memory is clear and must not be touched before it is used.
	         */
	        .arena = {.words = arena, .refs = refs, .map = {.words = map, .bits = units}},
	};
	prng_seed(&tpt->prng, random_seed);
	tpt->secret = prng_next(&tpt->prng);
	tpt->view.mul = (uint32_t)prng_next(&tpt->prng) | 1;
	/* The inverse of an odd number modulo a power of two: each round doubles the number of
	 * correct bits (Newton), starting with three. */
	tpt->hide = tpt->view.mul;
	for (unsigned i = 0; i < 4; i++)
		tpt->hide *= 2 - tpt->view.mul * tpt->hide;
}

bool slot_keep_reading(const struct tpt_slot *slot, struct tpt_entry *out)
{
	for (unsigned spins = 0; spins < TPT_READ_SPINS; spins++) {
		lock_relax(spins);
		if (slot_try_read(slot, out))
			return true;
	}
	return false;
}

enum hdl_detail tpt_check(const struct tpt_view *view, const struct tpt_request *req,
                          struct tpt_grant *grant)
{
	struct tpt_entry *e = &grant->entry;
	uint32_t name = tpt_name(view, req->key), index = name >> view->tag_bits;
	if (index >= view->capacity || !slot_read(&view->slots[index], e))
		return HDL_DETAIL_NOT_VALID;
	enum hdl_detail detail = tpt_judge(e, req, name, &grant->offset);
	grant->index = index;
	grant->access = req->access;
	grant->length = req->length;
	return detail;
}

/* The runs found so far. */
struct runs {
	struct span *out;
	size_t max, count;
	uint64_t covered;
};

/* Add a run. False: there is no room for it. */
static bool run_add(struct runs *runs, uint64_t addr, uint64_t length)
{
	struct span *last = runs->count != 0 ? &runs->out[runs->count - 1] : NULL;
	if (last != NULL && addr >= last->addr && addr - last->addr == last->length) {
		last->length += length;
	} else if (runs->count < runs->max) {
		runs->out[runs->count++] = (struct span){addr, length};
	} else {
		return false;
	}
	runs->covered += length;
	return true;
}

/* Walk the pages from byte @at of the table on. False: the table is broken. */
static bool walk_pages(const struct tpt_view *view, const struct tpt_entry *e, uint64_t at,
                       uint64_t bytes, struct runs *runs)
{
	if (e->page_shift < TPT_MIN_PAGE_SHIFT || e->page_shift > TPT_MAX_PAGE_SHIFT)
		return false;
	uint64_t page_bytes = (uint64_t)1 << e->page_shift;
	struct att_leaf leaf = {NULL, 0};
	while (bytes != 0) {
		if (leaf.count == 0 &&
		    !att_find(view, e->order, e->att, at >> e->page_shift, &leaf))
			return false;
		uint64_t page = att_word(leaf.words);
		if ((page & (page_bytes - 1)) != 0 || page > UINT64_MAX - page_bytes)
			return false;
		uint64_t in_page = at & (page_bytes - 1);
		uint64_t run = page_bytes - in_page;
		if (run > bytes)
			run = bytes;
		if (!run_add(runs, page + in_page, run))
			return true;
		at += run;
		bytes -= run;
		leaf.words++;
		leaf.count--;
	}
	return true;
}

/* The same page over and over: the page of zeroes, or the one for writing. False: the entry is
 * broken. */
static bool walk_null(const struct tpt_grant *grant, uint64_t bytes, struct runs *runs)
{
	const struct tpt_entry *e = &grant->entry;
	if (e->page_shift < TPT_MIN_PAGE_SHIFT || e->page_shift > TPT_MAX_PAGE_SHIFT)
		return false;
	uint64_t page_bytes = (uint64_t)1 << e->page_shift;
	if (e->att > UINT64_MAX - 2 * page_bytes)
		return false;
	uint64_t page = e->att + (grant->access & HDL_ACCESS_LOCAL_WRITE ? page_bytes : 0);
	while (bytes != 0) {
		uint64_t run = bytes < page_bytes ? bytes : page_bytes;
		if (!run_add(runs, page, run))
			break;
		bytes -= run;
	}
	return true;
}

size_t tpt_spans(const struct tpt_view *view, const struct tpt_grant *grant, uint64_t skip,
                 uint64_t bytes, struct span *out, size_t max, uint64_t *covered)
{
	const struct tpt_entry *e = &grant->entry;
	struct runs runs = {.out = out, .max = max};
	*covered = 0;
	if (skip >= grant->length)
		return 0;
	if (bytes > grant->length - skip)
		bytes = grant->length - skip;

	/* The granted bytes are within the entry's length, but att and att_skip are whatever the
	 * owner wrote there: no sum of them may wrap. */
	uint64_t at = grant->offset + skip;
	if (e->order == TPT_NULL) {
		if (!walk_null(grant, bytes, &runs))
			return 0;
		*covered = runs.covered;
		return runs.count;
	}
	uint64_t start = e->order == TPT_INLINE ? e->att : e->att_skip;
	if (at > UINT64_MAX - start || bytes > UINT64_MAX - start - at)
		return 0;
	at += start;
	bool whole = true;
	if (e->order != TPT_INLINE)
		whole = walk_pages(view, e, at, bytes, &runs);
	else if (bytes != 0)
		run_add(&runs, at, bytes);
	if (!whole)
		return 0;
	*covered = runs.covered;
	return runs.count;
}

bool tpt_read_slot(const struct tpt_view *view, uint32_t index, struct tpt_entry *entry)
{
	return index < view->capacity && slot_read(&view->slots[index], entry);
}

bool tpt_read(const struct tpt_view *view, struct hdl_key key, struct tpt_entry *entry)
{
	uint32_t name = tpt_name(view, key);
	return tpt_read_slot(view, name >> view->tag_bits, entry) && entry->tag == (uint16_t)name;
}

struct hdl_key tpt_current(const struct tpt *tpt, struct hdl_key key)
{
	struct tpt_entry entry;
	if (!tpt_read(&tpt->view, key, &entry))
		return key;
	return (struct hdl_key){(key.v & ~0xffu) | entry.instance};
}
