/* The check itself, on an entry that does not change while it is looked at: a snapshot
 * (tpt_check()), or the owner's table in place, because whoever drives an adapter is alone with its
 * own table. Inline, for it stands before every copy. */
#ifndef MEMORY_JUDGE_H
#define MEMORY_JUDGE_H

#include <stdint.h>

#include "memory/slot.h"
#include "memory/tpt.h"

/* Figures 15, 17B and 18 (b): which entries may be used which way. */
static inline bool tpt_type_fits(const struct tpt_entry *e, const struct tpt_request *req)
{
	switch (req->side) {
	case TPT_LOCAL:
		return e->type == TPT_REGION;
	case TPT_REMOTE:
		return e->type == TPT_WINDOW || (e->type == TPT_REGION && !req->windows_only);
	default:
		return e->type == TPT_ISCSI;
	}
}

/* tpt_check() on @e, the entry that @name, that of the request's key, leads to. On HDL_DETAIL_NONE
 * *offset is where the first granted byte lies in the entry. */
static inline enum hdl_detail tpt_judge(const struct tpt_entry *e, const struct tpt_request *req,
                                        uint32_t name, uint64_t *offset)
{
	if (!(e->flags & TPT_VALID) || e->tag != (uint16_t)name)
		return HDL_DETAIL_NOT_VALID;
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

/* Is @req granted by our own table, and are its bytes one run of memory, at *host? Where not,
 * tpt_check() says why. */
static inline bool tpt_own_run(const struct tpt *tpt, const struct tpt_request *req, uint64_t *host)
{
	uint32_t name = tpt_name(&tpt->view, req->key), index = name >> tpt->view.tag_bits;
	if (index >= tpt->view.capacity)
		return false;
	const struct tpt_entry *e = (const struct tpt_entry *)(const void *)&tpt->slots[index];
	uint64_t offset;
	if (tpt_judge(e, req, name, &offset) != HDL_DETAIL_NONE || e->order != TPT_INLINE)
		return false;
	*host = e->att + offset;
	return true;
}

/* Is @req granted by the peer's table @view, and more than once, and are its bytes one run of its
 * memory, at *host? Where not, tpt_check() says why. The caller stands inside the guard, as there.
 */
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
	*host = e.att + offset; /* whatever the peer wrote there: judged by whoever looks for it */
	*memo = (struct tpt_memo){.word = slot_word(&e, 0),
	                          .base = req->addr - offset,
	                          .length = e.length,
	                          .host = e.att,
	                          .key = req->key,
	                          .index = index};
	return true;
}

/* The same for a request that differs from the one of @memo in address and length alone. False: ask
 * anew. */
static inline bool tpt_peer_run_again(const struct tpt_view *view, const struct tpt_memo *memo,
                                      uint64_t addr, uint64_t length, uint64_t *host)
{
	uint64_t at = addr - memo->base; /* of what lies before it, a number beyond any length */
	if (at > memo->length || length > memo->length - at ||
	    atomic_load_explicit(&view->slots[memo->index].words[0], memory_order_seq_cst) !=
	            memo->word) /* S1 */
		return false;
	*host = memo->host + at;
	return true;
}

#endif
