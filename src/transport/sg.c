/* Checked lists. */
#include "transport/sg.h"

#include <assert.h>
#include <string.h>

#include "base/crc.h"
#include "memory/judge.h"

struct sg sg_own(const struct engine *engine, const struct qp *qp, const struct hdl_sge *pieces,
                 uint32_t count, uint8_t access)
{
	return (struct sg){.table = &engine->tpt->view,
	                   .pieces = pieces,
	                   .count = count,
	                   .pd = qp->pd,
	                   .qpn = qp->qpn,
	                   .access = access,
	                   .side = TPT_LOCAL};
}

struct sg sg_plain(struct hdl_sge *piece, const void *memory, uint32_t length)
{
	*piece = (struct hdl_sge){.addr = (uint64_t)(uintptr_t)memory, .length = length};
	return (struct sg){.pieces = piece, .count = 1};
}

enum hdl_detail sg_ask(const struct sg *list, const struct hdl_sge *piece, struct tpt_grant *grant)
{
	struct tpt_request req = {.key = piece->key,
	                          .side = list->side,
	                          .windows_only = list->windows_only,
	                          .access = list->access,
	                          .pd = list->pd,
	                          .qpn = list->qpn,
	                          .addr = piece->addr,
	                          .length = piece->length};
	enum hdl_detail detail = tpt_check(list->table, &req, grant);
	if (detail == HDL_DETAIL_NONE && list->untouchable &&
	    (grant->entry.access & HDL_ACCESS_ONE_TOUCH) != 0)
		detail = HDL_DETAIL_TOUCHED;
	return detail;
}

size_t sg_runs(const struct sg *list, uint64_t want, struct span *out, size_t max,
               uint64_t *covered, enum hdl_detail *detail)
{
	size_t count = 0;
	uint32_t index = list->index;
	uint64_t offset = list->offset, sum = 0;
	*detail = HDL_DETAIL_NONE;
	for (; index < list->count && sum < want && count < max; index++, offset = 0) {
		const struct hdl_sge *piece = &list->pieces[index];
		uint64_t left = piece->length - offset;
		if (left > want - sum)
			left = want - sum;
		if (left == 0)
			continue;
		if (list->table == NULL) {
			out[count++] = (struct span){piece->addr + offset, left};
			sum += left;
			continue;
		}
		struct tpt_grant grant;
		*detail = sg_ask(list, piece, &grant);
		if (*detail != HDL_DETAIL_NONE)
			break;
		uint64_t got;
		size_t n = tpt_spans(list->table, &grant, offset, left, out + count, max - count,
		                     &got);
		if (n == 0) {
			*detail = HDL_DETAIL_NOT_VALID;
			break;
		}
		count += n;
		sum += got;
		if (got < left)
			break;
	}
	*covered = sum;
	return count;
}

void sg_skip(struct sg *list, uint64_t bytes)
{
	while (bytes > 0) {
		assert(list->index < list->count);
		uint64_t left = list->pieces[list->index].length - list->offset;
		if (bytes < left) {
			list->offset += bytes;
			return;
		}
		bytes -= left;
		list->index++;
		list->offset = 0;
	}
}

/* The current piece, the first that is not empty, and how much of it is left; NULL behind the last.
 */
static const struct hdl_sge *sg_piece(const struct sg *list, uint64_t *left)
{
	uint64_t offset = list->offset;
	for (uint32_t index = list->index; index < list->count; index++, offset = 0) {
		*left = list->pieces[index].length - offset;
		if (*left != 0)
			return &list->pieces[index];
	}
	return NULL;
}

struct hdl_key sg_key(const struct sg *list)
{
	uint64_t left;
	const struct hdl_sge *piece = sg_piece(list, &left);
	return piece != NULL ? piece->key : (struct hdl_key){0};
}

static struct sg_result sg_refused(enum hdl_detail detail, bool at_target, const struct sg *list)
{
	/* Nothing was refused, and yet there is no run: the list is shorter than the message. */
	if (detail == HDL_DETAIL_NONE)
		detail = HDL_DETAIL_BOUNDS;
	return (struct sg_result){.detail = detail, .at_target = at_target, .key = sg_key(list)};
}

/* Cut the list of runs to @bytes. */
static size_t spans_trim(struct span *spans, size_t count, uint64_t bytes)
{
	for (size_t i = 0; i < count; i++) {
		if (spans[i].length >= bytes) {
			spans[i].length = bytes;
			return i + 1;
		}
		bytes -= spans[i].length;
	}
	return count;
}

static struct sg_result sg_move_chunk(const struct copy_ops *copy, enum move_side side,
                                      struct sg *to, struct sg *from, uint64_t want,
                                      uint64_t *moved)
{
	struct span to_runs[MOVE_MAX_SPANS], from_runs[MOVE_MAX_SPANS];
	uint64_t to_bytes, from_bytes;
	enum hdl_detail detail;
	*moved = 0;
	if (sg_changed(to) || sg_changed(from))
		return (struct sg_result){.detail = HDL_DETAIL_QP, .changed = true};

	size_t from_count = sg_runs(from, want, from_runs, MOVE_MAX_SPANS, &from_bytes, &detail);
	if (from_count == 0)
		return sg_refused(detail, false, from);
	size_t to_count = sg_runs(to, from_bytes, to_runs, MOVE_MAX_SPANS, &to_bytes, &detail);
	if (to_count == 0)
		return sg_refused(detail, true, to);
	uint64_t bytes = from_bytes < to_bytes ? from_bytes : to_bytes;
	assert(bytes > 0 && bytes <= want);
	from_count = spans_trim(from_runs, from_count, bytes);
	to_count = spans_trim(to_runs, to_count, bytes);
	enum move_result result =
	        copy->copy(copy->context, side, to_runs, to_count, from_runs, from_count);
	if (result == MOVE_SOURCE_GONE)
		return sg_refused(HDL_DETAIL_GONE, false, from);
	if (result == MOVE_TARGET_GONE)
		return sg_refused(HDL_DETAIL_GONE, true, to);
	if (result == MOVE_ELSEWHERE) /* as with one-touch entries: the owner has to do it */
		return side == MOVE_TO_PEER ? sg_refused(HDL_DETAIL_TOUCHED, true, to)
		                            : sg_refused(HDL_DETAIL_TOUCHED, false, from);
	*moved = bytes;
	return (struct sg_result){.detail = HDL_DETAIL_NONE};
}

bool sg_one_run(const struct sg *list, uint64_t length, struct span *run)
{
	if (list->guard != NULL || list->index >= list->count)
		return false;
	const struct hdl_sge *piece = &list->pieces[list->index];
	if (piece->length - list->offset < length)
		return false;
	if (list->table == NULL) {
		*run = (struct span){piece->addr + list->offset, length};
		return true;
	}
	struct tpt_grant grant;
	if (sg_ask(list, piece, &grant) != HDL_DETAIL_NONE || grant.entry.order != TPT_INLINE)
		return false;
	*run = (struct span){grant.entry.att + grant.offset + list->offset, length};
	return true;
}

/* The slow path: chunk by chunk, and everything that is unusual or wrong. */
__attribute__((noinline)) static struct sg_result move_long(const struct copy_ops *copy,
                                                            enum move_side side, struct sg *to,
                                                            struct sg *from, uint64_t length)
{
	struct sg_result result = {.detail = HDL_DETAIL_NONE};
	uint64_t portion = ENGINE_CHUNK_BYTES;
	while (length > 0 && result.detail == HDL_DETAIL_NONE) {
		uint64_t want = length < portion ? length : portion, moved, left;
		if (to->guard != NULL)
			tpt_enter(to->guard);
		if (from->guard != NULL && from->guard != to->guard)
			tpt_enter(from->guard);
		result = sg_move_chunk(copy, side, to, from, want, &moved);
		if (from->guard != NULL && from->guard != to->guard)
			tpt_leave(from->guard);
		if (to->guard != NULL)
			tpt_leave(to->guard);
		sg_skip(from, moved);
		sg_skip(to, moved);
		length -= moved;
		/* One of several pieces is gone: continue piece by piece, so that the right one is
		 * reported. */
		if (result.detail == HDL_DETAIL_GONE &&
		    sg_piece(result.at_target ? to : from, &left) != NULL && left < want) {
			portion = left;
			result.detail = HDL_DETAIL_NONE;
		}
	}
	return result;
}

struct sg_result sg_move(const struct copy_ops *copy, enum move_side side, struct sg *to,
                         struct sg *from, uint64_t length)
{
	struct span to_run, from_run;
	if (length > ENGINE_CHUNK_BYTES || length == 0 || !sg_one_run(to, length, &to_run) ||
	    !sg_one_run(from, length, &from_run) ||
	    copy->copy(copy->context, side, &to_run, 1, &from_run, 1) != MOVE_OK)
		return move_long(copy, side, to, from, length);
	sg_skip(to, length);
	sg_skip(from, length);
	/* Constructed again, so that it is in registers: loading it from memory would wait for
	 * every byte of the copy. */
	return (struct sg_result){.detail = HDL_DETAIL_NONE};
}

struct sg_result sg_gather_sum(const struct engine *engine, struct sg *from, void *out,
                               uint32_t length, uint32_t *sum)
{
	struct span run;
	struct hdl_sge piece;
	if (length == 0)
		return (struct sg_result){.detail = HDL_DETAIL_NONE};
	if (engine->own.copy_crc32c != NULL && sg_one_run(from, length, &run) &&
	    engine->own.copy_crc32c(out, (const void *)(uintptr_t)run.addr, length, sum)) {
		sg_skip(from, length);
		return (struct sg_result){.detail = HDL_DETAIL_NONE};
	}
	struct sg to = sg_plain(&piece, out, length);
	struct sg_result result = sg_move(&engine->own.ops, MOVE_BOTH_OWN, &to, from, length);
	if (result.detail == HDL_DETAIL_NONE)
		*sum = crc32c(*sum, out, length);
	return result;
}

bool sg_own_run(const struct engine *engine, uint32_t pd, const struct hdl_sge *piece,
                uint8_t access, uint64_t *host)
{
	const struct tpt_request req = {.key = piece->key,
	                                .side = TPT_LOCAL,
	                                .access = access,
	                                .pd = pd,
	                                .addr = piece->addr,
	                                .length = piece->length};
	return tpt_own_run(engine->tpt, &req, host);
}

/* Copy within one piece. */
static inline bool copy_piece(const struct engine *engine, uint32_t pd, const struct hdl_sge *piece,
                              uint64_t skip, void *plain, uint32_t length, uint8_t access)
{
	uint64_t host;
	if (!sg_own_run(engine, pd, piece, access, &host))
		return false;
	void *memory = (void *)(uintptr_t)(host + skip);
	return access == HDL_ACCESS_LOCAL_READ ? engine->own.copy_short(plain, memory, length)
	                                       : engine->own.copy_short(memory, plain, length);
}

bool sg_copy_short(const struct engine *engine, uint32_t pd, const struct hdl_sge *pieces,
                   uint32_t count, uint64_t skip, void *plain, uint32_t length, uint8_t access)
{
	if (length > MOVE_SHORT || count == 0 || !engine_fast(engine))
		return false;
	if (pieces->length >= skip + length)
		return copy_piece(engine, pd, pieces, skip, plain, length, access);
	for (unsigned char *at = plain; length > 0; pieces++, count--) {
		if (count == 0)
			return false;
		if (skip >= pieces->length) {
			skip -= pieces->length;
			continue;
		}
		uint64_t left = pieces->length - skip;
		uint32_t bytes = left < length ? (uint32_t)left : length;
		if (!copy_piece(engine, pd, pieces, skip, at, bytes, access))
			return false;
		at += bytes;
		length -= bytes;
		skip = 0;
	}
	return true;
}

struct sg_result sg_check(const struct sg *list)
{
	struct sg at = *list;
	for (; at.index < list->count; at.index++) {
		struct span run;
		uint64_t covered;
		enum hdl_detail detail;
		uint64_t length = list->pieces[at.index].length;
		if (length > 0 && sg_runs(&at, length, &run, 1, &covered, &detail) == 0)
			return sg_refused(detail, false, &at);
	}
	return (struct sg_result){.detail = HDL_DETAIL_NONE};
}
