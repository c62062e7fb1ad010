/* What an operation means. */
#include "transport/op.h"

#include <assert.h>
#include <string.h>

#include "queue/qp_state.h"
#include "transport/descriptor.h"

/* Publish the fault for observers and report it to the adapter. Observers do not see contexts. */
static void note_fault(struct engine *engine, struct qp *qp, struct qp_fault now)
{
	if (qp->pub != NULL) {
		struct qp_fault fault = qp_read_fault(qp->pub);
		if (now.status != HDL_WC_SUCCESS) {
			fault.status = now.status;
			fault.detail = now.detail;
		} else {
			fault.event = now.event;
			fault.event_detail = now.event_detail;
		}
		qp_publish_fault(qp->pub, fault);
	}
	if (engine->sink.fault != NULL)
		engine->sink.fault(engine->sink.context, qp, now);
}

/* Is @status, with which a request ended, a failure of the request itself? */
static bool is_fault(uint32_t status)
{
	return status != HDL_WC_SUCCESS && status != HDL_WC_WR_FLUSH_ERR;
}

void op_event(struct engine *engine, struct qp *qp, enum hdl_event_type type,
              enum hdl_detail detail)
{
	if (type == HDL_EVENT_QP_FATAL || type == HDL_EVENT_QP_REQUEST_ERR ||
	    type == HDL_EVENT_QP_ACCESS_ERR)
		note_fault(engine, qp,
		           (struct qp_fault){.event = (uint8_t)(type + 1),
		                             .event_detail = (uint8_t)detail});
	engine->sink.event(engine->sink.context, type, detail, qp, (struct hdl_key){0});
}

void op_memory_gone(struct engine *engine, struct hdl_key key)
{
	counter_add(&engine->counters[ENGINE_MEMORY_GONE], 1);
	if (tpt_absent(engine->tpt, key))
		engine->sink.event(engine->sink.context, HDL_EVENT_MEMORY_GONE, HDL_DETAIL_GONE,
		                   NULL, key);
}

/* A lost completion moves its queue pair to ERR: an overflow is never silent. */
void op_completed_more(struct engine *engine, struct qp *qp, struct cq *cq, unsigned pushed)
{
	if (pushed & CQ_EVENT)
		engine->sink.cq_event(engine->sink.context, cq);
	if (pushed & CQ_STORED)
		return;
	if (pushed & CQ_OVERRUN)
		engine->sink.event(engine->sink.context, HDL_EVENT_CQ_OVERRUN, HDL_DETAIL_LIMIT, cq,
		                   (struct hdl_key){0});
	if (qp_state(qp) != HDL_QPS_ERR) {
		op_event(engine, qp, HDL_EVENT_QP_FATAL, HDL_DETAIL_LIMIT);
		qp_enter(engine, qp, HDL_QPS_ERR);
	}
}

void op_complete_descriptor(struct engine *engine, struct qp *qp, struct cq *cq, struct hdl_wc wc,
                            bool solicited)
{
	/* A thread that takes the completion finds the status. */
	enum hdl_detail detail = descriptor_completed(engine, qp, &wc);
	unsigned pushed = cq_push(cq, &wc, solicited);
	if (pushed != CQ_STORED)
		op_completed_more(engine, qp, cq, pushed);
	if (detail == HDL_DETAIL_NONE || qp_state(qp) == HDL_QPS_ERR)
		return;
	op_event(engine, qp, HDL_EVENT_QP_ACCESS_ERR, detail);
	qp_enter(engine, qp, HDL_QPS_ERR);
}

static uint32_t send_wc_opcode(uint8_t opcode)
{
	static const uint8_t names[HDL_OP_COUNT] = {
	        [HDL_OP_SEND] = HDL_WC_SEND,
	        [HDL_OP_SEND_IMM] = HDL_WC_SEND,
	        [HDL_OP_SEND_INVALIDATE] = HDL_WC_SEND,
	        [HDL_OP_WRITE] = HDL_WC_WRITE,
	        [HDL_OP_WRITE_IMM] = HDL_WC_WRITE,
	        [HDL_OP_READ] = HDL_WC_READ,
	        [HDL_OP_COMPARE_SWAP] = HDL_WC_COMPARE_SWAP,
	        [HDL_OP_FETCH_ADD] = HDL_WC_FETCH_ADD,
	        [HDL_OP_BIND] = HDL_WC_BIND,
	        [HDL_OP_INVALIDATE] = HDL_WC_INVALIDATE,
	        [HDL_OP_REGISTER] = HDL_WC_REGISTER,
	        [HDL_OP_REGISTER_SEND] = HDL_WC_SEND,
	        [HDL_OP_DELAY] = HDL_WC_DELAY,
	};
	assert(opcode < HDL_OP_COUNT);
	return names[opcode];
}

void op_complete_send(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	assert(wqe->state == WQE_DONE && wqe == wq_oldest(&qp->sq) && qp->send_cq != NULL);
	bool tell = wqe->status != HDL_WC_SUCCESS || qp->signal_all ||
	            (wqe->flags & HDL_SEND_SIGNALED) != 0;
	if (wqe->opcode == HDL_OP_REGISTER || wqe->opcode == HDL_OP_REGISTER_SEND)
		atomic_store_explicit(&qp->lists_head, wqe->list_end, memory_order_release);
	if (qp->next == wq_head(&qp->sq))
		qp->next++;
	reclaim_note_send(wqe, qp->send_cq, tell);
	if (!tell) {
		wq_release(&qp->sq);
		return;
	}
	struct hdl_wc wc = {.wr_id = wqe->wr_id,
	                    .status = wqe->status,
	                    .opcode = send_wc_opcode(wqe->opcode),
	                    .vendor_err = wqe->vendor_err,
	                    .byte_len = wqe->length,
	                    .qpn = qp->qpn};
	/* Before completing: a thread that sees the completion may post again. */
	wq_release(&qp->sq);
	if (is_fault(wc.status))
		note_fault(engine, qp,
		           (struct qp_fault){.status = (uint8_t)wc.status,
		                             .detail = (uint8_t)wc.vendor_err});
	op_complete(engine, qp, qp->send_cq, &wc, false);
}

void op_tell_sent(struct engine *engine, struct qp *qp, uint64_t wr_id, uint8_t opcode,
                  uint32_t length)
{
	struct hdl_wc wc = {.wr_id = wr_id,
	                    .status = HDL_WC_SUCCESS,
	                    .opcode = send_wc_opcode(opcode),
	                    .byte_len = length,
	                    .qpn = qp->qpn};
	op_complete(engine, qp, qp->send_cq, &wc, false);
}

void op_flush_send(struct engine *engine, struct qp *qp)
{
	struct wqe_send *wqe;
	/* This includes requests that are done but not yet reported: however they ended, they count
	 * as not executed (IBTA C10-42: what follows the first error is flushed). */
	while ((wqe = wq_oldest(&qp->sq)) != NULL) {
		wqe->state = WQE_DONE;
		wqe->status = HDL_WC_WR_FLUSH_ERR;
		wqe->vendor_err = HDL_DETAIL_NONE;
		op_complete_send(engine, qp, wqe);
	}
	qp->next = wq_head(&qp->sq);
	qp->unanswered = qp->reads_open = 0;
}

static void complete_recv(struct engine *engine, struct qp *qp, uint64_t wr_id,
                          enum hdl_wc_status status, enum hdl_detail detail)
{
	struct hdl_wc wc = {.wr_id = wr_id,
	                    .status = status,
	                    .opcode = HDL_WC_RECV,
	                    .vendor_err = detail,
	                    .qpn = qp->qpn};
	assert(qp->recv_cq != NULL); /* or the completion would be lost */
	if (is_fault(status))
		note_fault(engine, qp,
		           (struct qp_fault){.status = (uint8_t)status, .detail = (uint8_t)detail});
	if (qp->srq == NULL)
		reclaim_note_recv(&qp->rq, qp->recv_cq);
	op_complete(engine, qp, qp->recv_cq, &wc, false);
}

/* The receive number @index of those that are kept behind the oldest. */
static struct wqe_recv *kept_behind(const struct qp *qp, uint32_t index)
{
	uint32_t at = (qp->behind_first + index) % qp->behind_room;
	return (struct wqe_recv *)(void *)((uint8_t *)qp->behind +
	                                   (size_t)at * wqe_recv_stride(HDL_MAX_SGE));
}

static void copy_recv(struct wqe_recv *to, const struct wqe_recv *wqe)
{
	assert(wqe->num_sge <= HDL_MAX_SGE);
	memcpy(to, wqe, sizeof(*wqe) + wqe->num_sge * sizeof(struct hdl_sge));
}

/* The oldest of the receives that are kept has been consumed. */
static void release_kept(struct qp *qp)
{
	qp->keeps = qp->behind_count > 0;
	if (!qp->keeps)
		return;
	copy_recv(qp->kept, kept_behind(qp, 0));
	qp->behind_first = (qp->behind_first + 1) % qp->behind_room;
	qp->behind_count--;
}

void op_fail_kept(struct engine *engine, struct qp *qp, enum hdl_wc_status status)
{
	while (qp->keeps) {
		uint64_t wr_id = qp->kept->wr_id;
		release_kept(qp);
		complete_recv(engine, qp, wr_id, status, HDL_DETAIL_NONE);
	}
}

void op_flush_recv(struct engine *engine, struct qp *qp)
{
	op_fail_kept(engine, qp, HDL_WC_WR_FLUSH_ERR);
	if (qp_shares(qp)) {
		op_event(engine, qp, HDL_EVENT_QP_LAST_WQE, HDL_DETAIL_NONE);
		return;
	}
	struct wqe_recv *wqe;
	while ((wqe = wq_oldest(&qp->rq)) != NULL) {
		uint64_t wr_id = wqe->wr_id;
		wq_release(&qp->rq);
		complete_recv(engine, qp, wr_id, HDL_WC_WR_FLUSH_ERR, HDL_DETAIL_NONE);
	}
}

/* The receive request that a message fills; NULL if there is none. */
static const struct wqe_recv *next_recv(const struct qp *qp)
{
	if (qp->keeps)
		return qp->kept;
	return wq_oldest(qp->srq != NULL ? &qp->srq->wq : &qp->rq);
}

bool op_has_receive(const struct qp *qp)
{
	return next_recv(qp) != NULL;
}

/* The oldest receive of the queue is not needed there any more. A shared queue that falls below its
 * limit raises an event, once. */
static void release_posted(struct engine *engine, struct qp *qp)
{
	if (qp->srq == NULL) {
		wq_release(&qp->rq);
		return;
	}
	wq_release(&qp->srq->wq);
	uint32_t limit = atomic_load_explicit(&qp->srq->limit, memory_order_relaxed);
	if (limit != 0 && wq_held(&qp->srq->wq) < limit &&
	    atomic_exchange_explicit(&qp->srq->limit, 0, memory_order_relaxed) != 0)
		engine->sink.event(engine->sink.context, HDL_EVENT_SRQ_LIMIT, HDL_DETAIL_NONE,
		                   qp->srq, (struct hdl_key){0});
}

/* The receive request that a message fills has been consumed. */
static void release_recv(struct engine *engine, struct qp *qp)
{
	if (qp->keeps)
		release_kept(qp);
	else
		release_posted(engine, qp);
}

/* Fill the pieces of @wqe with the header and data of @message. */
static struct sg_result scatter(struct engine *engine, struct qp *qp, const struct wqe_recv *wqe,
                                const struct op_message *message, uint32_t pd)
{
	struct sg to = sg_own(engine, qp, wqe->sge, wqe->num_sge, HDL_ACCESS_LOCAL_WRITE);
	to.pd = pd;
	struct sg_result result = {.detail = HDL_DETAIL_NONE};
	struct hdl_sge piece;
	struct sg plain;
	if (message->grh != NULL) {
		plain = sg_plain(&piece, message->grh, HDL_GRH_BYTES);
		result = sg_move(&engine->own.ops, MOVE_BOTH_OWN, &to, &plain, HDL_GRH_BYTES);
	}
	if (result.detail != HDL_DETAIL_NONE || message->length == 0)
		return result;
	if (message->bytes == NULL)
		return sg_move(message->copy, message->side, &to, message->data, message->length);
	plain = sg_plain(&piece, message->bytes, message->length);
	return sg_move(&engine->own.ops, MOVE_BOTH_OWN, &to, &plain, message->length);
}

/* As scatter(), but only for messages that are short and need no special handling. */
static bool scatter_short(const struct engine *engine, const struct wqe_recv *wqe,
                          const struct op_message *message, uint32_t pd)
{
	if (message->bytes == NULL)
		return false;
	uint32_t header = message->grh != NULL ? HDL_GRH_BYTES : 0;
	if (header > 0 && !sg_copy_short(engine, pd, wqe->sge, wqe->num_sge, 0, message->grh,
	                                 header, HDL_ACCESS_LOCAL_WRITE))
		return false;
	return message->length == 0 ||
	       sg_copy_short(engine, pd, wqe->sge, wqe->num_sge, header, message->bytes,
	                     message->length, HDL_ACCESS_LOCAL_WRITE);
}

/* A piece of the receive was refused: the receive is consumed. */
static void target_refused(struct engine *engine, struct qp *qp, uint64_t wr_id,
                           const struct sg_result *result)
{
	tpt_count(engine->tpt, result->detail);
	if (result->detail == HDL_DETAIL_GONE)
		op_memory_gone(engine, result->key);
	release_recv(engine, qp);
	complete_recv(engine, qp, wr_id, op_local_status(result->detail), result->detail);
}

/* A message is longer than the receive @wr_id. This ends a reliable connection, and the receive
 * reports why. If messages may be lost (IBTA section 9.9.6.3, class D), this one is dropped, and
 * the receive serves the next. */
static enum op_received op_too_long(struct engine *engine, struct qp *qp, uint64_t wr_id,
                                    enum hdl_detail *detail)
{
	*detail = HDL_DETAIL_BOUNDS;
	if (qp_drops(qp)) {
		counter_add(&engine->counters[ENGINE_DROPPED_TOO_LONG], 1);
		return OP_TOO_LONG;
	}
	release_recv(engine, qp);
	complete_recv(engine, qp, wr_id, HDL_WC_LOC_LEN_ERR, *detail);
	return OP_TOO_LONG;
}

/* Place the data of @message in the receive @wqe, or consume the receive with an error.
 * OP_RECEIVED: continue. */
static enum op_received op_place(struct engine *engine, struct qp *qp, const struct wqe_recv *wqe,
                                 const struct op_message *message, enum hdl_detail *detail,
                                 struct hdl_key *key)
{
	uint64_t wr_id = wqe->wr_id;
	uint32_t header = message->grh != NULL ? HDL_GRH_BYTES : 0;
	uint32_t pd = qp->srq != NULL ? qp->srq->pd : qp->pd;
	if ((uint64_t)message->length + header > sg_length(wqe->sge, wqe->num_sge))
		return op_too_long(engine, qp, wr_id, detail);
	if (scatter_short(engine, wqe, message, pd))
		return OP_RECEIVED;
	struct sg_result result = scatter(engine, qp, wqe, message, pd);
	*detail = result.detail;
	*key = result.key;
	if (result.changed)
		return OP_SOURCE_CHANGED;
	if (result.detail == HDL_DETAIL_NONE)
		return OP_RECEIVED;
	if (!result.at_target)
		return OP_SOURCE_REFUSED;
	target_refused(engine, qp, wr_id, &result);
	return OP_TARGET_REFUSED;
}

bool op_refuse_receive(struct engine *engine, struct qp *qp, enum hdl_detail detail)
{
	const struct wqe_recv *wqe = next_recv(qp);
	if (wqe == NULL)
		return false;
	uint64_t wr_id = wqe->wr_id;
	release_recv(engine, qp);
	complete_recv(engine, qp, wr_id, HDL_WC_LOC_ACCESS_ERR, detail);
	return true;
}

/* A peer may revoke what it was granted: it has no business with a key without remote access. */
static enum hdl_detail invalidate_for_peer(struct engine *engine, const struct qp *qp,
                                           struct hdl_key key)
{
	struct tpt_entry entry;
	if (tpt_read(&engine->tpt->view, key, &entry) && (entry.flags & TPT_VALID) != 0 &&
	    (entry.access & OP_REMOTE_RIGHTS) == 0)
		return HDL_DETAIL_ACCESS;
	return tpt_invalidate(engine->tpt, key, qp->pd, qp->qpn, true);
}

/* Remove the oldest receive from a shared queue, or from one that several contexts fill: others may
 * want the next receive before this one is filled. */
static void keep_recv(struct engine *engine, struct qp *qp, const struct wqe_recv *wqe)
{
	assert(!qp->keeps);
	copy_recv(qp->kept, wqe);
	release_posted(engine, qp);
	qp->keeps = true;
}

/* As keep_recv(), for a message behind those whose receives are kept. False: none is posted, or
 * there is no room. */
static bool keep_behind(struct engine *engine, struct qp *qp)
{
	const struct wqe_recv *wqe = wq_oldest(qp->srq != NULL ? &qp->srq->wq : &qp->rq);
	if (wqe == NULL || qp->behind_count == qp->behind_room)
		return false;
	copy_recv(kept_behind(qp, qp->behind_count), wqe);
	qp->behind_count++;
	release_posted(engine, qp);
	return true;
}

bool op_hold_receive(struct engine *engine, struct qp *qp, uint32_t ahead)
{
	if (qp->kept == NULL)
		return ahead < wq_held(&qp->rq);
	const struct wqe_recv *wqe = next_recv(qp);
	if (wqe == NULL)
		return false;
	if (!qp->keeps)
		keep_recv(engine, qp, wqe);
	while (qp->behind_count < ahead)
		if (!keep_behind(engine, qp))
			return false;
	return true;
}

/* The receive of the message that is @ahead of the next one; op_hold_receive() has found it. */
static const struct wqe_recv *held_recv(const struct qp *qp, uint32_t ahead)
{
	if (qp->kept == NULL)
		return wq_at(&qp->rq, wq_head(&qp->rq) + ahead);
	return ahead == 0 ? qp->kept : kept_behind(qp, ahead - 1);
}

uint64_t op_receive_room(const struct qp *qp)
{
	const struct wqe_recv *wqe = held_recv(qp, 0);
	return sg_length(wqe->sge, wqe->num_sge);
}

enum op_received op_receive_list(struct engine *engine, struct qp *qp, uint32_t ahead,
                                 uint32_t offset, uint32_t count, struct sg *to)
{
	if (!op_hold_receive(engine, qp, ahead))
		return OP_NO_RECEIVE;
	const struct wqe_recv *wqe = held_recv(qp, ahead);
	uint64_t room = sg_length(wqe->sge, wqe->num_sge);
	if (offset > room || count > room - offset)
		return OP_TOO_LONG;
	*to = sg_own(engine, qp, wqe->sge, wqe->num_sge, HDL_ACCESS_LOCAL_WRITE);
	if (qp->srq != NULL)
		to->pd = qp->srq->pd;
	sg_skip(to, offset);
	return OP_RECEIVED;
}

void op_refuse_part(struct engine *engine, struct qp *qp, const struct sg_result *result)
{
	const struct wqe_recv *wqe = next_recv(qp);
	enum hdl_detail detail;
	if (wqe == NULL)
		return;
	if (result == NULL)
		op_too_long(engine, qp, wqe->wr_id, &detail);
	else
		target_refused(engine, qp, wqe->wr_id, result);
}

enum op_received op_receive_part(struct engine *engine, struct qp *qp, uint32_t length,
                                 uint32_t offset, void *bytes, uint32_t count,
                                 enum hdl_detail *detail)
{
	const struct wqe_recv *wqe = next_recv(qp);
	if (wqe == NULL)
		return OP_NO_RECEIVE;
	uint64_t wr_id = wqe->wr_id;
	if (length > sg_length(wqe->sge, wqe->num_sge))
		return op_too_long(engine, qp, wr_id, detail);
	if (qp->kept != NULL && !qp->keeps) {
		keep_recv(engine, qp, wqe);
		wqe = qp->kept;
	}
	struct hdl_sge piece;
	struct sg from = sg_plain(&piece, bytes, count);
	struct sg to = sg_own(engine, qp, wqe->sge, wqe->num_sge, HDL_ACCESS_LOCAL_WRITE);
	if (qp->srq != NULL)
		to.pd = qp->srq->pd;
	sg_skip(&to, offset);
	struct sg_result result = sg_move(&engine->own.ops, MOVE_BOTH_OWN, &to, &from, count);
	*detail = result.detail;
	if (result.detail == HDL_DETAIL_NONE)
		return OP_RECEIVED;
	target_refused(engine, qp, wr_id, &result);
	return OP_TARGET_REFUSED;
}

enum op_received op_receive(struct engine *engine, struct qp *qp, const struct op_message *message,
                            enum hdl_detail *detail, struct hdl_key *key)
{
	*detail = HDL_DETAIL_NONE;
	const struct wqe_recv *wqe = next_recv(qp);
	if (wqe == NULL)
		return OP_NO_RECEIVE;
	uint64_t wr_id = wqe->wr_id;
	if (message->data != NULL || message->bytes != NULL) {
		enum op_received placed = op_place(engine, qp, wqe, message, detail, key);
		if (placed != OP_RECEIVED)
			return placed;
	}
	release_recv(engine, qp);
	if (message->wc_flags & HDL_WC_WITH_INVALIDATE) {
		*detail = invalidate_for_peer(engine, qp, (struct hdl_key){message->imm});
		if (*detail != HDL_DETAIL_NONE) {
			tpt_count(engine->tpt, *detail);
			complete_recv(engine, qp, wr_id, HDL_WC_MEM_MGT_ERR, *detail);
			return OP_INVALIDATE_REFUSED;
		}
		engine->sink.quiesce(engine->sink.context);
	}
	struct hdl_wc wc = {.wr_id = wr_id,
	                    .opcode = message->wc_opcode,
	                    .eecn = message->eecn,
	                    .byte_len =
	                            message->length + (message->grh != NULL ? HDL_GRH_BYTES : 0),
	                    .imm = message->imm,
	                    .qpn = qp->qpn,
	                    .src_qpn = message->src_qpn,
	                    .flags = message->wc_flags,
	                    .sl = message->sl,
	                    .slid = message->slid,
	                    .dlid_path_bits = message->dlid_path_bits};
	qp->received_messages++;
	if (qp->srq == NULL)
		reclaim_note_recv(&qp->rq, qp->recv_cq);
	op_complete(engine, qp, qp->recv_cq, &wc, message->solicited);
	return OP_RECEIVED;
}

void op_receive_datagram(struct engine *engine, struct qp *qp, const struct op_message *message)
{
	enum hdl_detail detail;
	struct hdl_key key;
	switch (op_receive(engine, qp, message, &detail, &key)) {
	case OP_RECEIVED:
		counter_add(&engine->counters[ENGINE_BYTES_RECEIVED], message->length);
		break;
	case OP_NO_RECEIVE:
		counter_add(&engine->counters[ENGINE_DROPPED_NO_RECV], 1);
		break;
	case OP_TOO_LONG: /* already counted */
		break;
	default: /* the receive has been completed with the error */
		qp_enter(engine, qp, HDL_QPS_ERR);
	}
}

enum hdl_detail op_atomic(const struct copy_ops *copy, enum move_side side, struct sg *target,
                          bool add, uint64_t compare_add, uint64_t swap, uint64_t *old)
{
	const struct hdl_sge *piece = &target->pieces[0];
	assert(target->count == 1 && piece->length == 8);
	struct tpt_grant grant;
	struct span run;
	uint64_t covered;
	enum move_result result = MOVE_OK;
	if (target->guard != NULL)
		tpt_enter(target->guard);
	enum hdl_detail detail = sg_ask(target, piece, &grant);
	if (detail == HDL_DETAIL_NONE &&
	    (piece->addr % 8 != 0 ||
	     tpt_spans(target->table, &grant, 0, 8, &run, 1, &covered) != 1 || covered != 8 ||
	     run.addr % 8 != 0))
		/* Eight bytes, but not eight aligned bytes of memory. */
		detail = HDL_DETAIL_MISALIGNED;
	if (sg_changed(target))
		detail = HDL_DETAIL_QP;
	if (detail == HDL_DETAIL_NONE)
		result = copy->atomic(copy->context, side, run.addr, add, compare_add, swap, old);
	if (target->guard != NULL)
		tpt_leave(target->guard);
	if (result == MOVE_ELSEWHERE)
		return HDL_DETAIL_TOUCHED;
	return result == MOVE_OK ? detail : HDL_DETAIL_GONE;
}

enum hdl_detail op_memory(struct engine *engine, struct qp *qp, const struct wqe_send *wqe)
{
	enum hdl_detail detail;
	switch (wqe->opcode) {
	case HDL_OP_BIND: {
		struct tpt_bind bind = {.key = wqe->u.bind.window,
		                        .region = wqe->u.bind.region,
		                        .pd = qp->pd,
		                        .qpn = wqe->u.bind.type == OP_WINDOW_FOR_QP ? qp->qpn : 0,
		                        .access = wqe->u.bind.access,
		                        .addr = wqe->u.bind.addr,
		                        .length = wqe->u.bind.length,
		                        .rebind = wqe->u.bind.type != OP_WINDOW_FOR_QP};
		detail = bind.length == 0 && bind.region.v == 0
		                 ? tpt_invalidate(engine->tpt, bind.key, qp->pd, bind.qpn, false)
		                 : tpt_bind(engine->tpt, &bind);
		break;
	}
	case HDL_OP_INVALIDATE:
		detail = tpt_invalidate(engine->tpt, (struct hdl_key){wqe->imm}, qp->pd, qp->qpn,
		                        true);
		break;
	default: {
		struct hdl_register reg = {.pages = wqe->u.reg.pages,
		                           .num_pages = wqe->u.reg.num_pages,
		                           .page_shift = wqe->u.reg.page_shift,
		                           .first_offset = wqe->u.reg.first_offset,
		                           .length = wqe->u.reg.length,
		                           .iova = wqe->u.reg.iova,
		                           .access = wqe->u.reg.access};
		if (!qp->register_on_send)
			return HDL_DETAIL_LIMIT;
		return tpt_register(engine->tpt, wqe->u.reg.key, qp->pd, &reg);
	}
	}
	if (detail == HDL_DETAIL_NONE)
		engine->sink.quiesce(engine->sink.context);
	return detail;
}
