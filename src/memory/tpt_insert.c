/* The protection table: how entries are inserted and removed. All are control calls, except
 * tpt_register(), which a work request executes; it does not allocate. */
#include "memory/tpt.h"

#include <assert.h>

#include <heddle/error.h>

#include "memory/att.h"
#include "memory/slot.h"

#define ORDER_ROUNDS 4u

static uint8_t half_of(uint64_t table, uint8_t half)
{
	return table >> (4 * half) & 15;
}

/* The instance of @index that follows @old. Each index goes through all instances before one
 * repeats, so a stale key stays stale for 255 others. Each index has an order of its own that only
 * we know, so a peer that has seen few instances cannot predict the next. One that has seen all of
 * them can: another order in the next round would let some repeat early. The order is that of
 * enciphered numbers: a Feistel network over halves of four bits. */
static uint8_t next_instance(const struct tpt *tpt, uint32_t index, uint8_t old)
{
	uint64_t tables[ORDER_ROUNDS];
	struct prng prng;
	prng_seed(&prng, tpt->secret + index);
	for (unsigned i = 0; i < ORDER_ROUNDS; i++)
		tables[i] = prng_next(&prng);

	uint8_t left = old >> 4, right = old & 15;
	for (unsigned i = ORDER_ROUNDS; i-- > 0;) {
		uint8_t before = right ^ half_of(tables[i], left);
		right = left;
		left = before;
	}
	uint8_t place = (uint8_t)((left << 4 | right) + 1);
	left = place >> 4;
	right = place & 15;
	for (unsigned i = 0; i < ORDER_ROUNDS; i++) {
		uint8_t after = left ^ half_of(tables[i], right);
		left = right;
		right = after;
	}
	return (uint8_t)(left << 4 | right);
}

/* The tag of @index, constant for the lifetime of the table, so that stale keys stay stale
 * (next_instance()). */
static uint16_t tag_of(const struct tpt *tpt, uint32_t index)
{
	struct prng prng;
	prng_seed(&prng, ~tpt->secret + index);
	uint32_t low = (uint32_t)prng_below(&prng, (uint64_t)1 << tpt->view.tag_bits);
	return (uint16_t)(index << tpt->view.tag_bits | low);
}

/* A free index, drawn at random: keys must not be guessable. 0: the table is full. */
static uint32_t index_take(struct tpt *tpt)
{
	if (tpt->free_count < TPT_MIN_FREE) {
		uint32_t step = tpt->view.capacity - tpt->opened;
		if (step > TPT_OPEN_STEP)
			step = TPT_OPEN_STEP;
		for (uint32_t i = 0; i < step; i++)
			tpt->free_list[tpt->free_count++] = tpt->opened++;
	}
	if (tpt->free_count == 0)
		return 0;
	uint32_t at = (uint32_t)prng_below(&tpt->prng, tpt->free_count);
	uint32_t index = tpt->free_list[at];
	tpt->free_list[at] = tpt->free_list[--tpt->free_count];
	return index;
}

/* Give the entry an index and an instance and make it visible. */
static int entry_insert(struct tpt *tpt, struct tpt_entry *e, struct hdl_key *key)
{
	uint32_t index = index_take(tpt);
	if (index == 0)
		return -HDL_ENOMEM;
	struct tpt_slot *slot = &tpt->slots[index];
	struct tpt_entry old = slot_get(slot);
	assert(old.flags == 0);
	e->seq = old.seq;
	e->instance = next_instance(tpt, index, old.instance);
	e->tag = tag_of(tpt, index);
	e->flags |= TPT_ALLOCATED;
	slot_put(slot, e);
	*key = slot_key(tpt, index, e->tag, e->instance);
	return 0;
}

/* A region that allows remote writes must allow local writes (types.h). Tasks are never used
 * locally. */
static bool access_fits(uint32_t access, uint8_t type)
{
	uint32_t writes = HDL_ACCESS_REMOTE_WRITE | HDL_ACCESS_REMOTE_ATOMIC;
	if (access & ~HDL_ACCESS_ALL)
		return false;
	return type != TPT_REGION || !(access & writes) || (access & HDL_ACCESS_LOCAL_WRITE);
}

/* How many pages @length bytes need. At least one: a table needs a page. */
static uint32_t pages_needed(uint64_t first_offset, uint64_t length, uint8_t page_shift)
{
	uint64_t last = first_offset + (length != 0 ? length - 1 : 0);
	return (uint32_t)(last >> page_shift) + 1;
}

/* MEMMGT figure 13: every page but the first starts, and every page but the last ends, at a page
 * boundary. */
static bool pages_fit(const struct hdl_register *reg)
{
	if (reg->page_shift < TPT_MIN_PAGE_SHIFT || reg->page_shift > TPT_MAX_PAGE_SHIFT ||
	    reg->num_pages == 0 || reg->num_pages > TPT_MAX_PAGES)
		return false;
	uint64_t page_bytes = (uint64_t)1 << reg->page_shift;
	uint64_t room = (uint64_t)reg->num_pages << reg->page_shift;
	if (reg->first_offset >= page_bytes || reg->length > room - reg->first_offset)
		return false;
	uint32_t count = pages_needed(reg->first_offset, reg->length, reg->page_shift);
	for (uint32_t i = 0; i < count; i++) {
		if ((reg->pages[i] & (page_bytes - 1)) != 0 ||
		    reg->pages[i] > UINT64_MAX - page_bytes)
			return false;
	}
	return true;
}

/* The address of the first byte; for a task, its cookie. False: the addresses would wrap. */
static bool base_fits(uint8_t type, uint32_t access, uint64_t iova, uint64_t length, uint64_t *base)
{
	*base = iova;
	if (type == TPT_ISCSI)
		return true;
	if (access & HDL_ACCESS_ZERO_BASED)
		*base = 0;
	return length <= UINT64_MAX - *base;
}

/* The entry of a region or aperture that is one run. False: invalid access rights or addresses. */
static bool run_entry(const struct tpt_region *region, struct tpt_entry *e)
{
	uint64_t base;
	if ((region->type != TPT_REGION && region->type != TPT_APERTURE) ||
	    !access_fits(region->access, region->type) ||
	    region->length > UINT64_MAX - region->host ||
	    !base_fits(region->type, region->access, region->iova, region->length, &base))
		return false;
	*e = (struct tpt_entry){
	        .type = region->type,
	        .flags = TPT_VALID,
	        .order = TPT_INLINE,
	        .base = base,
	        .length = region->length,
	        .att = region->host,
	        .pd = region->pd,
	        .access = (uint8_t)region->access,
	};
	return true;
}

int tpt_insert_run(struct tpt *tpt, const struct tpt_region *region, struct hdl_key *key)
{
	struct tpt_entry e;
	if (!run_entry(region, &e))
		return -HDL_EINVAL;
	lock_take(&tpt->lock);
	int error = entry_insert(tpt, &e, key);
	lock_drop(&tpt->lock);
	return error;
}

int tpt_insert_null(struct tpt *tpt, uint32_t pd, uint64_t host, uint8_t page_shift,
                    struct hdl_key *key)
{
	assert(page_shift >= TPT_MIN_PAGE_SHIFT && page_shift <= TPT_MAX_PAGE_SHIFT);
	struct tpt_entry e = {
	        .type = TPT_REGION,
	        .flags = TPT_VALID,
	        .order = TPT_NULL,
	        .length = UINT64_MAX,
	        .att = host,
	        .pd = pd,
	        .access = HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE,
	        .page_shift = page_shift,
	};
	lock_take(&tpt->lock);
	int error = entry_insert(tpt, &e, key);
	lock_drop(&tpt->lock);
	return error;
}

static int replace_check(const struct tpt_entry *old, uint8_t type)
{
	if (!(old->flags & TPT_VALID) || (old->flags & (TPT_RETIRED | TPT_GONE)))
		return -HDL_ESTALE;
	if (old->type != type || old->order != TPT_INLINE || old->max_pages != 0)
		return -HDL_ENOTSUP;
	return old->link != 0 ? -HDL_EBUSY : 0;
}

int tpt_replace_run(struct tpt *tpt, struct hdl_key key, const struct tpt_region *region)
{
	struct tpt_entry e;
	struct tpt_slot *slot = slot_of(tpt, key);
	if (slot == NULL)
		return -HDL_ESTALE;
	if (!run_entry(region, &e))
		return -HDL_EINVAL;
	lock_take(&tpt->lock);
	struct tpt_entry old = slot_get(slot);
	int error = replace_check(&old, region->type);
	if (error == 0) {
		e.seq = old.seq;
		e.instance = old.instance;
		e.tag = old.tag;
		e.flags = old.flags & (uint8_t)~TPT_TOLD; /* other memory */
		slot_put(slot, &e);
	}
	lock_drop(&tpt->lock);
	return error;
}

int tpt_insert_pages(struct tpt *tpt, uint32_t pd, enum tpt_type type, uint64_t cookie,
                     const struct hdl_register *reg, struct hdl_key *key)
{
	uint64_t base;
	if ((type != TPT_REGION && type != TPT_ISCSI) || !access_fits(reg->access, (uint8_t)type) ||
	    !pages_fit(reg) ||
	    !base_fits((uint8_t)type, reg->access, type == TPT_ISCSI ? cookie : reg->iova,
	               reg->length, &base))
		return -HDL_EINVAL;
	uint32_t count = pages_needed(reg->first_offset, reg->length, reg->page_shift);
	struct tpt_entry e = {
	        .type = (uint8_t)type,
	        .flags = TPT_VALID,
	        .order = (uint8_t)att_order(count),
	        .base = base,
	        .length = reg->length,
	        .att_skip = reg->first_offset,
	        .pd = pd,
	        .access = (uint8_t)reg->access,
	        .page_shift = reg->page_shift,
	};
	int error = -HDL_ENOMEM;
	lock_take(&tpt->lock);
	if (att_build(&tpt->arena, count, &e.att)) {
		att_fill(&tpt->arena, e.order, e.att, reg->pages, count);
		error = entry_insert(tpt, &e, key);
		if (error != 0)
			att_drop(&tpt->arena, e.att, count);
	}
	lock_drop(&tpt->lock);
	return error;
}

int tpt_insert_empty(struct tpt *tpt, uint32_t pd, enum tpt_type type, uint32_t max_pages,
                     struct hdl_key *key)
{
	bool window = type == TPT_WINDOW;
	if (type > TPT_ISCSI || window != (max_pages == 0) || max_pages > TPT_MAX_PAGES)
		return -HDL_EINVAL;
	struct tpt_entry e = {
	        .type = (uint8_t)type,
	        .order = window ? TPT_INLINE : (uint8_t)att_order(max_pages),
	        .pd = pd,
	        .max_pages = max_pages,
	};
	int error = -HDL_ENOMEM;
	lock_take(&tpt->lock);
	if (window || att_build(&tpt->arena, max_pages, &e.att)) {
		error = entry_insert(tpt, &e, key);
		if (error != 0 && !window)
			att_drop(&tpt->arena, e.att, max_pages);
	}
	lock_drop(&tpt->lock);
	return error;
}

/* Does @has, the access rights of a region, prove that its memory can be used as @asks says? */
static bool rights_known(uint32_t has, uint32_t asks)
{
	uint32_t reads = HDL_ACCESS_LOCAL_READ | HDL_ACCESS_REMOTE_READ;
	uint32_t writes =
	        HDL_ACCESS_LOCAL_WRITE | HDL_ACCESS_REMOTE_WRITE | HDL_ACCESS_REMOTE_ATOMIC;
	return (!(asks & reads) || (has & reads)) &&
	       (!(asks & writes) || (has & HDL_ACCESS_LOCAL_WRITE));
}

int tpt_insert_shared(struct tpt *tpt, struct hdl_key of, uint32_t pd, uint32_t access,
                      struct hdl_key *key)
{
	struct tpt_slot *slot = slot_of(tpt, of);
	if (slot == NULL)
		return -HDL_ESTALE;
	int error = 0;
	lock_take(&tpt->lock);
	struct tpt_entry e = slot_get(slot);
	if (!(e.flags & TPT_VALID) || (e.flags & TPT_GONE) || e.instance != (uint8_t)of.v)
		error = -HDL_ESTALE;
	else if (e.type != TPT_REGION || e.max_pages != 0 || e.order == TPT_NULL ||
	         !access_fits(access, TPT_REGION))
		error = -HDL_EINVAL;
	else if (!rights_known(e.access, access))
		error = -HDL_EACCES;
	if (error == 0) {
		e.flags = TPT_VALID;
		e.pd = pd;
		e.access = (uint8_t)access;
		e.link = 0;
		if (access & HDL_ACCESS_ZERO_BASED)
			e.base = 0;
		error = entry_insert(tpt, &e, key);
	}
	if (error == 0 && e.order != TPT_INLINE)
		att_share(&tpt->arena, e.att);
	lock_drop(&tpt->lock);
	return error;
}

/* May a request of domain @pd register the entry? If so, *base is the address of its first byte. */
static enum hdl_detail register_check(const struct tpt_entry *e, uint32_t pd,
                                      const struct hdl_register *reg, uint64_t *base)
{
	if (!(e->flags & TPT_ALLOCATED) || (e->flags & TPT_RETIRED))
		return HDL_DETAIL_NOT_VALID;
	if (e->max_pages == 0)
		return HDL_DETAIL_TYPE;
	if (e->pd != pd)
		return HDL_DETAIL_PD;
	if (e->flags & TPT_VALID)
		return HDL_DETAIL_ALREADY;
	if (e->link != 0)
		return HDL_DETAIL_BUSY;
	if (!pages_fit(reg) ||
	    pages_needed(reg->first_offset, reg->length, reg->page_shift) > e->max_pages)
		return HDL_DETAIL_PAGES;
	if (!base_fits(e->type, reg->access, reg->iova, reg->length, base))
		return HDL_DETAIL_BOUNDS;
	return access_fits(reg->access, e->type) ? HDL_DETAIL_NONE : HDL_DETAIL_ACCESS;
}

enum hdl_detail tpt_register(struct tpt *tpt, struct hdl_key key, uint32_t pd,
                             const struct hdl_register *reg)
{
	struct tpt_slot *slot = slot_of(tpt, key);
	if (slot == NULL)
		return HDL_DETAIL_NOT_VALID;
	lock_take(&tpt->lock);
	struct tpt_entry e = slot_get(slot);
	enum hdl_detail verdict = register_check(&e, pd, reg, &e.base);
	if (verdict == HDL_DETAIL_NONE) {
		att_fill(&tpt->arena, e.order, e.att, reg->pages,
		         pages_needed(reg->first_offset, reg->length, reg->page_shift));
		e.instance = (uint8_t)key.v;
		e.flags = TPT_ALLOCATED | TPT_VALID;
		e.length = reg->length;
		e.att_skip = reg->first_offset;
		e.access = (uint8_t)reg->access;
		e.page_shift = reg->page_shift;
		slot_put(slot, &e);
	}
	lock_drop(&tpt->lock);
	return verdict;
}

enum hdl_detail tpt_retire(struct tpt *tpt, struct hdl_key key)
{
	struct tpt_slot *slot = slot_of(tpt, key);
	if (slot == NULL)
		return HDL_DETAIL_NOT_VALID;
	enum hdl_detail verdict = HDL_DETAIL_NONE;
	lock_take(&tpt->lock);
	struct tpt_entry e = slot_get(slot);
	if (!(e.flags & TPT_ALLOCATED) || (e.flags & TPT_RETIRED)) {
		verdict = HDL_DETAIL_NOT_VALID;
	} else if (e.type != TPT_WINDOW && e.link != 0) {
		verdict = HDL_DETAIL_BUSY;
	} else {
		slot_invalidate(tpt, slot, &e);
		e.flags |= TPT_RETIRED;
		slot_put_head(slot, &e);
	}
	lock_drop(&tpt->lock);
	return verdict;
}

void tpt_free(struct tpt *tpt, struct hdl_key key)
{
	struct tpt_slot *slot = slot_of(tpt, key);
	assert(slot != NULL);
	lock_take(&tpt->lock);
	struct tpt_entry e = slot_get(slot);
	assert(e.flags & TPT_RETIRED);
	if (e.type != TPT_WINDOW && e.order != TPT_INLINE && e.order != TPT_NULL)
		att_drop(&tpt->arena, e.att,
		         e.max_pages != 0 ? e.max_pages
		                          : pages_needed(e.att_skip, e.length, e.page_shift));
	e.flags = 0;
	slot_put_head(slot, &e);
	tpt->free_list[tpt->free_count++] = tpt_index(&tpt->view, key);
	lock_drop(&tpt->lock);
}

struct hdl_key tpt_fresh(const struct tpt *tpt, struct hdl_key key)
{
	uint32_t index = tpt_index(&tpt->view, key);
	return (struct hdl_key){(key.v & ~0xffu) | next_instance(tpt, index, (uint8_t)key.v)};
}
