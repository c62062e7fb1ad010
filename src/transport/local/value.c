/* The same-host path: data through the lane. If neither side can access the other's memory (the
 * kernel forbids it, or a system call filter does), messages longer than a frame travel in parts,
 * and the data of reads comes back in frames. A part carries the message's number and its own
 * offset. Only the next expected part is accepted, and a message that is repeated starts again from
 * its beginning. */
#include <assert.h>

#include "transport/capture.h"
#include "transport/local/local.h"
#include "transport/op.h"

static uint32_t local_value_part_of(uint32_t left)
{
	return left < FRAME_MAX_PART ? left : FRAME_MAX_PART;
}

/* --- requester --- */

/* Copy the next @bytes of @wqe's data to @out. False: a piece was refused and the request has
 * failed. */
static bool gather_part(struct engine *engine, struct qp *qp, struct wqe_send *wqe, void *out,
                        uint32_t bytes)
{
	struct hdl_sge piece;
	struct sg to = sg_plain(&piece, out, bytes);
	struct sg from = sg_own(engine, qp, wqe_sge(wqe), wqe->num_sge, HDL_ACCESS_LOCAL_READ);
	sg_skip(&from, wqe->offset);
	struct sg_result result = sg_move(&engine->own.ops, MOVE_BOTH_OWN, &to, &from, bytes);
	if (result.detail == HDL_DETAIL_NONE)
		return true;
	request_refused(engine, wqe, &result);
	return false;
}

enum step local_send_parts(struct engine *engine, struct qp *qp, struct wqe_send *wqe,
                           enum frame_kind kind, const struct frame_target *target)
{
	size_t prefix = target != NULL ? sizeof(*target) : 0;
	do {
		uint32_t bytes = local_value_part_of(wqe->length - wqe->offset);
		struct frame *out = engine_reserve(engine, qp->link, sizeof(*out) + prefix + bytes);
		if (out == NULL)
			return STEP_NO_ROOM;
		if (!gather_part(engine, qp, wqe, (unsigned char *)(out + 1) + prefix, bytes))
			return STEP_NEXT;
		if (target != NULL)
			memcpy(out + 1, target, prefix);
		bool more = bytes < wqe->length - wqe->offset;
		local_put_header(qp, wqe, kind, more ? FRAME_MORE : 0, out);
		out->offset = wqe->offset;
		engine_publish(engine, qp->link);
		if (wqe->offset == 0)
			capture_request(engine, qp, wqe);
		if (qp->type != HDL_QP_UC) {
			/* From its first part on it may be answered, with a refusal. */
			if (wqe->offset == 0)
				local_sent(engine, qp, wqe);
			qp->local.sent_position = engine->links[qp->link].tx.position;
			wqe->marks = (uint8_t)(more ? wqe->marks | WQE_PARTIAL
			                            : wqe->marks & ~WQE_PARTIAL);
		}
		wqe->offset += bytes;
	} while (wqe->offset < wqe->length);
	counter_add(&engine->counters[ENGINE_BYTES_SENT], wqe->length);
	qp->sent_messages++;
	if (qp->type == HDL_QP_UC)
		request_finish(wqe, HDL_WC_SUCCESS, HDL_DETAIL_NONE);
	return STEP_NEXT;
}

void local_data(struct engine *engine, struct qp *qp, const struct frame *frame, void *bytes,
                uint32_t count)
{
	uint32_t index;
	struct wqe_send *wqe = local_find_sent(qp, frame->msn, &index);
	if (wqe == NULL || wqe->opcode != HDL_OP_READ || (wqe->marks & WQE_BY_VALUE) == 0 ||
	    frame->length != wqe->length)
		return;
	if (frame->offset == 0)
		wqe->offset = 0; /* the request was repeated, so its answer starts again */
	if (frame->offset != wqe->offset)
		return;
	qp->answered = true;
	if (!request_scatter(engine, qp, wqe, wqe->offset, bytes, count)) {
		local_answer_came(qp, wqe);
		request_reap(engine, qp);
		return;
	}
	wqe->offset += count;
	if ((frame->flags & FRAME_MORE) == 0) {
		struct frame_answer answer = {.answer = ANSWER_VALUE};
		local_answered(engine, qp, frame->msn, &answer);
	}
}

/* --- responder --- */

bool local_part_is_next(struct qp *qp, const struct frame *frame)
{
	if (frame->offset == 0) {
		qp->local.part_msn = frame->msn;
		qp->local.part_offset = 0;
		return true;
	}
	return qp->local.part_msn == frame->msn && qp->local.part_offset == frame->offset;
}

void local_owe_data(struct engine *engine, struct qp *qp, struct read_entry *entry,
                    const struct frame *frame, const struct frame_target *target)
{
	entry->tag = frame->msn;
	entry->addr = target->addr;
	entry->key = target->key.v;
	entry->pd = qp->pd;
	entry->length = frame->length;
	entry->offset = 0;
	if (entry->owed)
		return;
	entry->owed = true;
	if (qp->local.results_due++ == 0)
		qp->local.result_read = frame->imm;
	engine_owe(engine, qp);
}

bool local_send_read(struct engine *engine, struct qp *qp, struct read_entry *entry)
{
	while (entry->offset < entry->length) {
		uint32_t bytes = local_value_part_of(entry->length - entry->offset);
		struct frame *out = engine_reserve(engine, qp->link, sizeof(*out) + bytes);
		if (out == NULL)
			return false;
		struct hdl_sge piece, range = {.addr = entry->addr + entry->offset,
		                               .length = bytes,
		                               .key = {entry->key}};
		struct sg to = sg_plain(&piece, out + 1, bytes);
		struct sg from = respond_range(engine, qp, &range, HDL_ACCESS_REMOTE_READ);
		from.pd = entry->pd; /* an XRC target may have served others since */
		struct sg_result result =
		        sg_move(&engine->own.ops, MOVE_BOTH_OWN, &to, &from, bytes);
		if (result.detail != HDL_DETAIL_NONE) {
			if (result.detail == HDL_DETAIL_GONE)
				op_memory_gone(engine, result.key);
			local_refuse(engine, qp, entry->tag, local_answer_for(result.detail),
			             result.detail);
			return true;
		}
		*out = (struct frame){.kind = FRAME_DATA,
		                      .flags = bytes < entry->length - entry->offset ? FRAME_MORE
		                                                                     : 0,
		                      .to_qpn = qp->attr.dest_qpn,
		                      .from_qpn = qp->qpn,
		                      .msn = entry->tag,
		                      .length = entry->length,
		                      .offset = entry->offset};
		engine_publish(engine, qp->link);
		entry->offset += bytes;
	}
	assert(entry->offset == entry->length); /* the last frame was the answer, too */
	respond_touch(engine, (struct hdl_key){entry->key}, &respond_whole_message);
	return true;
}
