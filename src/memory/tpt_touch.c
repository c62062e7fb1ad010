/* One-touch entries: table D of MEMMGT figure 18B, and the end of a touch that came out of order.
 */
#include "memory/slot.h"
#include "memory/tpt.h"

/* Is the entry still the one that @key named? */
static bool still_there(const struct tpt_entry *e, struct hdl_key key)
{
	return (e->flags & TPT_VALID) && !(e->flags & TPT_GONE) && e->instance == (uint8_t)key.v;
}

/* The last three rows: where is the segment's last byte? Sequence numbers count modulo 2^32. */
static enum tpt_action first_touch(struct tpt *tpt, struct tpt_slot *slot, struct tpt_entry *e,
                                   const struct tpt_segment *segment)
{
	if (segment->sn == segment->next_sn - 1) { /* in order */
		slot_use_up(tpt, slot, e);
		return TPT_PLACE_INVALIDATE;
	}
	if (segment->sn - segment->next_sn < segment->window_end - segment->next_sn) {
		e->flags |= TPT_TOUCHED;
		e->ddp_sn = segment->sn;
		slot_put(slot, e);
		return TPT_PLACE_TOUCHED;
	}
	return TPT_DROP;
}

/* Table D, Last bit set. */
static enum tpt_action touch(struct tpt *tpt, struct tpt_slot *slot, struct tpt_entry *e,
                             struct hdl_key key, const struct tpt_segment *segment)
{
	if (!still_there(e, key))
		return TPT_TERMINATE;
	if (!(e->access & HDL_ACCESS_ONE_TOUCH))
		return TPT_PLACE;
	if (e->flags & TPT_TOUCHED) {
		slot_use_up(tpt, slot, e);
		return TPT_TERMINATE;
	}
	return first_touch(tpt, slot, e, segment);
}

enum tpt_action tpt_touch(struct tpt *tpt, struct hdl_key key, const struct tpt_segment *segment)
{
	if (!segment->last)
		return TPT_PLACE;
	struct tpt_slot *slot = slot_of(tpt, key);
	struct tpt_entry e;
	if (slot == NULL)
		return TPT_TERMINATE;
	/* Most entries may be touched repeatedly: they need no lock. */
	if (slot_read(slot, &e) && still_there(&e, key) && !(e.access & HDL_ACCESS_ONE_TOUCH))
		return TPT_PLACE;
	lock_take(&tpt->lock);
	e = slot_get(slot);
	enum tpt_action action = touch(tpt, slot, &e, key, segment);
	lock_drop(&tpt->lock);
	return action;
}

bool tpt_line_up(struct tpt *tpt, struct hdl_key key, uint32_t next_sn)
{
	struct tpt_slot *slot = slot_of(tpt, key);
	if (slot == NULL)
		return false;
	lock_take(&tpt->lock);
	struct tpt_entry e = slot_get(slot);
	bool lined_up = still_there(&e, key) && (e.flags & TPT_TOUCHED) &&
	                (int32_t)(next_sn - e.ddp_sn) > 0;
	if (lined_up)
		slot_use_up(tpt, slot, &e);
	lock_drop(&tpt->lock);
	return lined_up;
}
