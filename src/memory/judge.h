/* The check itself, on an entry that does not change meanwhile: a snapshot (tpt_check()), or the
 * owner's table in place, because the thread that drives an adapter has its own table to itself.
 * Inline, because it precedes every copy. */
#ifndef MEMORY_JUDGE_H
#define MEMORY_JUDGE_H

#include <stdint.h>

#include "memory/slot.h"
#include "memory/tpt.h"

/* MEMMGT figures 15, 17B and 18 (b): which types of entries may be used in which way. */
static inline bool tpt_type_fits(const struct tpt_entry *e, const struct tpt_request *req)
{
	switch (req->side) {
	case TPT_LOCAL:
		return e->type == TPT_REGION;
	case TPT_REMOTE:
		return e->type == TPT_WINDOW || (e->type == TPT_REGION && !req->windows_only);
	case TPT_TASK:
		return e->type == TPT_ISCSI;
	default:
		return e->type == TPT_APERTURE;
	}
}

/* Is @e no longer valid because a message that @key opened it for was its one touch? */
static inline bool tpt_used_up(const struct tpt_entry *e, struct hdl_key key, uint32_t name)
{
	return (e->flags & (TPT_VALID | TPT_TOUCHED)) == TPT_TOUCHED && e->tag == (uint16_t)name &&
	       e->instance == (uint8_t)key.v;
}

/* tpt_check() on @e, the entry that @name, the name in the request's key, leads to. On
 * HDL_DETAIL_NONE *offset is the position of the first granted byte in the entry. */
static inline enum hdl_detail tpt_judge(const struct tpt_entry *e, const struct tpt_request *req,
                                        uint32_t name, uint64_t *offset)
{
	if (!(e->flags & TPT_VALID) || e->tag != (uint16_t)name)
		return tpt_used_up(e, req->key, name) ? HDL_DETAIL_TOUCHED : HDL_DETAIL_NOT_VALID;
	if (e->flags & TPT_GONE)
		return HDL_DETAIL_GONE;
	if (!tpt_type_fits(e, req))
		return HDL_DETAIL_TYPE;
	if (e->pd != req->pd)
		return HDL_DETAIL_PD;
	if (e->qpn != 0 && e->qpn != req->qpn)
		return HDL_DETAIL_QP;
	if (e->instance != (uint8_t)req->key.v)
		return HDL_DETAIL_INSTANCE;

	/* Never form addr + length: the peer chooses both, and the sum wraps. */
	uint64_t base = e->type == TPT_ISCSI ? 0 : e->base;
	if (req->addr < base)
		return HDL_DETAIL_BOUNDS;
	uint64_t at = req->addr - base;
	if (at > e->length || req->length > e->length - at)
		return HDL_DETAIL_BOUNDS;
	if ((e->access & req->access) != req->access) /* all bits, not any */
		return HDL_DETAIL_ACCESS;
	*offset = at;
	return HDL_DETAIL_NONE;
}

/* Does our own table grant @req, more than once, and are its bytes one run of memory, at *host? If
 * not, tpt_check() tells why. */
static inline bool tpt_own_run(const struct tpt *tpt, const struct tpt_request *req, uint64_t *host)
{
	uint32_t name = tpt_name(&tpt->view, req->key), index = name >> tpt->view.tag_bits;
	if (index >= tpt->view.capacity)
		return false;
	const struct tpt_entry *e = (const struct tpt_entry *)(const void *)&tpt->slots[index];
	uint64_t offset;
	if (tpt_judge(e, req, name, &offset) != HDL_DETAIL_NONE || e->order != TPT_INLINE ||
	    (e->access & HDL_ACCESS_ONE_TOUCH) != 0)
		return false;
	*host = e->att + offset;
	return true;
}

/* Does the peer's table @view grant @req, more than once, and are its bytes one run of its memory,
 * at *host? If not, tpt_check() tells why. The caller is inside a guard, as for tpt_check(). */
static inline bool tpt_peer_run(const struct tpt_view *view, const struct tpt_request *req,
                                uint64_t *host, struct tpt_memo *memo)
{
	uint32_t name = tpt_name(view, req->key), index = name >> view->tag_bits;
	struct tpt_entry e;
	uint64_t offset;
	if (index >= view->capacity || !slot_try_read(&view->slots[index], &e) ||
	    tpt_judge(&e, req, name, &offset) != HDL_DETAIL_NONE || e.order != TPT_INLINE ||
	    (e.access & HDL_ACCESS_ONE_TOUCH) != 0)
		return false;
	/* Whatever the peer wrote there: the code that translates it checks it. */
	*host = e.att + offset;
	*memo = (struct tpt_memo){.word = slot_word(&e, 0),
	                          .base = req->addr - offset,
	                          .length = e.length,
	                          .host = e.att,
	                          .key = req->key,
	                          .index = index};
	return true;
}

/* As tpt_peer_run(), for a request that differs from that of @memo only in address and length.
 * False: do the full check. */
static inline bool tpt_peer_run_again(const struct tpt_view *view, const struct tpt_memo *memo,
                                      uint64_t addr, uint64_t length, uint64_t *host)
{
	uint64_t at = addr - memo->base; /* for an address before base this exceeds any length */
	if (at > memo->length || length > memo->length - at ||
	    atomic_load_explicit(&view->slots[memo->index].words[0], memory_order_seq_cst) !=
	            memo->word) /* S1 */
		return false;
	*host = memo->host + at;
	return true;
}

#endif
