/* The protection table: changes to existing entries. Binding, invalidation, and memory that goes
 * away. */
#include "memory/tpt.h"

#include <assert.h>

#include "memory/slot.h"

#define WINDOW_ACCESS                                                                  \
	(HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE | HDL_ACCESS_REMOTE_ATOMIC | \
	 HDL_ACCESS_ONE_TOUCH | HDL_ACCESS_ZERO_BASED)

/* The entry keeps no more than @flags. */
static void slot_end(struct tpt *tpt, struct tpt_slot *slot, struct tpt_entry *entry, uint8_t flags)
{
	bool bound = entry->type == TPT_WINDOW && (entry->flags & TPT_VALID);
	entry->flags &= flags;
	slot_put_head(slot, entry);
	if (bound)
		slot_add_link(&tpt->slots[entry->link], -1);
}

void slot_invalidate(struct tpt *tpt, struct tpt_slot *slot, struct tpt_entry *entry)
{
	slot_end(tpt, slot, entry, TPT_ALLOCATED | TPT_RETIRED);
}

void slot_use_up(struct tpt *tpt, struct tpt_slot *slot, struct tpt_entry *entry)
{
	entry->flags |= TPT_TOUCHED;
	slot_end(tpt, slot, entry, TPT_ALLOCATED | TPT_RETIRED | TPT_TOUCHED);
}

/* What the owner itself must be allowed to do. SAN: BindRKey succeeds if the consumer may access
 * the range. */
static uint8_t rights_behind(uint32_t access)
{
	uint8_t rights = 0;
	if (access & (HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_ATOMIC))
		rights |= HDL_ACCESS_LOCAL_READ;
	if (access & (HDL_ACCESS_REMOTE_WRITE | HDL_ACCESS_REMOTE_ATOMIC))
		rights |= HDL_ACCESS_LOCAL_WRITE;
	return rights;
}

/* Does the window exist, and may it be bound? */
static enum hdl_detail bind_check_window(const struct tpt_entry *window,
                                         const struct tpt_bind *bind)
{
	if (!(window->flags & TPT_ALLOCATED) || (window->flags & TPT_RETIRED))
		return HDL_DETAIL_NOT_VALID;
	if (window->type != TPT_WINDOW)
		return HDL_DETAIL_TYPE;
	if (window->pd != bind->pd)
		return HDL_DETAIL_PD;
	if ((window->flags & TPT_VALID) && !bind->rebind)
		return HDL_DETAIL_ALREADY;
	return bind->access & ~(uint32_t)WINDOW_ACCESS ? HDL_DETAIL_ACCESS : HDL_DETAIL_NONE;
}

/* MEMMGT figure 15 for the region: tpt_check() does (a) to (f), (g) is here. */
static enum hdl_detail bind_check_region(const struct tpt *tpt, const struct tpt_bind *bind,
                                         struct tpt_grant *grant)
{
	const struct tpt_request req = {
	        .key = bind->region,
	        .side = TPT_LOCAL,
	        .access = rights_behind(bind->access),
	        .pd = bind->pd,
	        .addr = bind->addr,
	        .length = bind->length,
	};
	enum hdl_detail verdict = tpt_check(&tpt->view, &req, grant);
	if (verdict == HDL_DETAIL_NONE && !(grant->entry.access & HDL_ACCESS_BIND))
		verdict = HDL_DETAIL_BIND;
	return verdict;
}

/* Make the window give access to the granted part of the region. */
static void window_set(struct tpt_entry *window, const struct tpt_bind *bind,
                       const struct tpt_grant *grant)
{
	const struct tpt_entry *region = &grant->entry;
	bool run = region->order == TPT_INLINE;
	window->instance = (uint8_t)bind->key.v;
	window->flags = TPT_ALLOCATED | TPT_VALID;
	window->order = region->order;
	window->base = bind->access & HDL_ACCESS_ZERO_BASED ? 0 : bind->addr;
	window->length = bind->length;
	window->att = run ? region->att + grant->offset : region->att;
	window->att_skip = run ? 0 : region->att_skip + grant->offset;
	window->qpn = bind->qpn;
	window->link = grant->index;
	window->ddp_sn = 0;
	window->access = (uint8_t)bind->access;
	window->page_shift = region->page_shift;
}

enum hdl_detail tpt_bind(struct tpt *tpt, const struct tpt_bind *bind)
{
	struct tpt_slot *slot = slot_of(tpt, bind->key);
	if (slot == NULL)
		return HDL_DETAIL_NOT_VALID;
	struct tpt_grant grant;
	lock_take(&tpt->lock);
	struct tpt_entry window = slot_get(slot);
	enum hdl_detail verdict = bind_check_window(&window, bind);
	if (verdict == HDL_DETAIL_NONE)
		verdict = bind_check_region(tpt, bind, &grant);
	if (verdict == HDL_DETAIL_NONE) {
		bool bound = window.flags & TPT_VALID;
		uint32_t before = window.link;
		window_set(&window, bind, &grant);
		slot_put(slot, &window);
		slot_add_link(&tpt->slots[grant.index], 1);
		if (bound)
			slot_add_link(&tpt->slots[before], -1);
	}
	lock_drop(&tpt->lock);
	return verdict;
}

/* May a request, or with @qpn 0 the owner, invalidate the entry? */
static bool can_invalidate(const struct tpt_entry *e, uint32_t qpn)
{
	switch (e->type) {
	case TPT_REGION:
		return e->max_pages != 0;
	/* A type 1 window belongs to no queue pair, so none may take it from the others. */
	case TPT_WINDOW:
		return qpn == 0 || e->qpn != 0;
	default:
		return qpn == 0;
	}
}

static enum hdl_detail invalidate_check(const struct tpt_entry *e, struct hdl_key key, uint32_t pd,
                                        uint32_t qpn, bool exact)
{
	if (!(e->flags & TPT_VALID))
		return HDL_DETAIL_NOT_VALID;
	if (!can_invalidate(e, qpn))
		return HDL_DETAIL_TYPE;
	if (e->pd != pd)
		return HDL_DETAIL_PD;
	if (qpn != 0 && e->qpn != 0 && e->qpn != qpn)
		return HDL_DETAIL_QP;
	if (exact && e->instance != (uint8_t)key.v)
		return HDL_DETAIL_INSTANCE;
	if (e->type != TPT_WINDOW && e->link != 0)
		return HDL_DETAIL_BUSY;
	return HDL_DETAIL_NONE;
}

enum hdl_detail tpt_invalidate(struct tpt *tpt, struct hdl_key key, uint32_t pd, uint32_t qpn,
                               bool exact)
{
	struct tpt_slot *slot = slot_of(tpt, key);
	if (slot == NULL)
		return HDL_DETAIL_NOT_VALID;
	lock_take(&tpt->lock);
	struct tpt_entry e = slot_get(slot);
	enum hdl_detail verdict = invalidate_check(&e, key, pd, qpn, exact);
	if (verdict == HDL_DETAIL_NONE)
		slot_invalidate(tpt, slot, &e);
	lock_drop(&tpt->lock);
	return verdict;
}

/* Do the two ranges share a byte? No sum is formed: either may end at 2^64 or beyond. */
static bool tpt_change_overlap(struct span a, struct span b)
{
	return a.addr <= b.addr ? b.length != 0 && b.addr - a.addr < a.length
	                        : a.length != 0 && a.addr - b.addr < b.length;
}

/* Is any byte of the entry in @range? */
static bool lies_in(const struct tpt *tpt, const struct tpt_entry *e, struct span range)
{
	const struct tpt_grant whole = {.entry = *e, .length = e->length};
	struct span runs[16];
	uint64_t covered;
	if (e->order == TPT_NULL) /* contains no memory of the program */
		return false;
	for (uint64_t done = 0; done < e->length; done += covered) {
		size_t count = tpt_spans(&tpt->view, &whole, done, e->length - done, runs,
		                         sizeof runs / sizeof runs[0], &covered);
		assert(count != 0); /* our own tables are not broken */
		for (size_t i = 0; i < count; i++) {
			if (tpt_change_overlap(runs[i], range))
				return true;
		}
	}
	return false;
}

/* Windows can outlive the validity of a one-touch region; the region is then examined on their
 * behalf. */
static bool in_play(const struct tpt_entry *e)
{
	return (e->flags & TPT_VALID) || (e->type == TPT_REGION && e->link != 0);
}

/* Set @flag on every valid region whose memory overlaps @range. */
static uint32_t flag_regions(struct tpt *tpt, struct span range, uint8_t flag,
                             void (*each)(void *context, struct hdl_key key), void *context)
{
	uint32_t count = 0;
	for (uint32_t index = 1; index < tpt->opened; index++) {
		struct tpt_entry e = slot_get(&tpt->slots[index]);
		if (!in_play(&e) || (e.flags & (TPT_GONE | flag)) || e.type == TPT_WINDOW ||
		    !lies_in(tpt, &e, range))
			continue;
		e.flags |= flag;
		slot_put_head(&tpt->slots[index], &e);
		if (!(e.flags & TPT_VALID))
			continue;
		count++;
		if (each != NULL)
			each(context, slot_key(tpt, index, e.tag, e.instance));
	}
	return count;
}

/* Windows on a region that has gone are gone, too. */
static uint32_t flag_windows(struct tpt *tpt, void (*each)(void *context, struct hdl_key key),
                             void *context)
{
	uint32_t count = 0;
	for (uint32_t index = 1; index < tpt->opened; index++) {
		struct tpt_entry e = slot_get(&tpt->slots[index]);
		if (!in_play(&e) || (e.flags & TPT_GONE) || e.type != TPT_WINDOW ||
		    !(slot_get(&tpt->slots[e.link]).flags & TPT_GONE))
			continue;
		e.flags |= TPT_GONE;
		slot_put_head(&tpt->slots[index], &e);
		if (!(e.flags & TPT_VALID))
			continue;
		count++;
		if (each != NULL)
			each(context, slot_key(tpt, index, e.tag, e.instance));
	}
	return count;
}

uint32_t tpt_segment_gone(struct tpt *tpt, uint64_t host, uint64_t length,
                          void (*each)(void *context, struct hdl_key key), void *context)
{
	const struct span range = {host, length};
	lock_take(&tpt->lock);
	uint32_t count = flag_regions(tpt, range, TPT_GONE, each, context);
	count += flag_windows(tpt, each, context);
	lock_drop(&tpt->lock);
	return count;
}

uint32_t tpt_segment_absent(struct tpt *tpt, uint64_t host, uint64_t length,
                            void (*each)(void *context, struct hdl_key key), void *context)
{
	const struct span range = {host, length};
	lock_take(&tpt->lock);
	uint32_t count = flag_regions(tpt, range, TPT_TOLD, each, context);
	lock_drop(&tpt->lock);
	return count;
}

bool tpt_absent(struct tpt *tpt, struct hdl_key key)
{
	bool news = false;
	lock_take(&tpt->lock);
	struct tpt_slot *slot = slot_of(tpt, key);
	struct tpt_entry e = slot != NULL ? slot_get(slot) : (struct tpt_entry){0};
	/* The notice may be late: by now the index may belong to another region, or the window to
	 * another range. */
	if (e.instance == (uint8_t)key.v && in_play(&e)) {
		if (e.type == TPT_WINDOW)
			slot = &tpt->slots[e.link];
		e = slot_get(slot);
		news = in_play(&e) && !(e.flags & (TPT_GONE | TPT_TOLD));
		e.flags |= TPT_TOLD;
		if (news)
			slot_put_head(slot, &e);
	}
	lock_drop(&tpt->lock);
	return news;
}
