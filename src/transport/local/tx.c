/* The same-host path: the requester. Executes send queue elements in order, numbers messages, and
 * completes them in order. local/retry.c handles answers and timers. */
#include <assert.h>
#include <string.h>

#include "queue/qp_state.h"
#include "transport/capture.h"
#include "transport/local/local.h"
#include "transport/op.h"

/* --- sending frames --- */

static void local_tx_number(struct qp *qp, struct wqe_send *wqe)
{
	if (wqe->numbered)
		return;
	wqe->numbered = 1;
	wqe->msn = qp->next_msn++;
	if (request_is_read(wqe))
		wqe->imm = qp->local.next_read++;
}

void local_sent(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	assert(wqe->numbered && wqe->state != WQE_SENT); /* counted once: local_answer_came() */
	wqe->state = WQE_SENT;
	if (request_is_read(wqe))
		qp->reads_open++;
	if (wqe->marks & WQE_BY_VALUE)
		qp->local.value_reads++;
	local_await(engine, qp, 1);
}

void local_await(struct engine *engine, struct qp *qp, uint32_t count)
{
	qp->local.sent_position = engine->links[qp->link].tx.position;
	qp->unanswered += count;
	if (qp->type != HDL_QP_UC && qp->attr.timeout != 0 && !qp->timer_wanted &&
	    !timer_running(&qp->timer)) {
		qp->answered = false;
		engine_want_timer(engine, qp, local_timeout_ns(qp));
	}
}

void local_put_header(struct qp *qp, struct wqe_send *wqe, enum frame_kind kind, uint8_t flags,
                      struct frame *out)
{
	static const uint8_t by_opcode[HDL_OP_COUNT] = {
	        [HDL_OP_SEND_IMM] = FRAME_IMM,
	        [HDL_OP_WRITE_IMM] = FRAME_IMM,
	        [HDL_OP_SEND_INVALIDATE] = FRAME_INVALIDATE,
	};
	local_tx_number(qp, wqe);
	flags |= by_opcode[wqe->opcode];
	if (wqe->flags & HDL_SEND_SOLICITED)
		flags |= FRAME_SOLICITED;
	if (qp->type != HDL_QP_RC) {
		if (qp->type == HDL_QP_UC)
			flags |= FRAME_UNRELIABLE;
		else if (qp->type == HDL_QP_XRC_INI)
			qp->local.answer_msn = wqe->remote_srq; /* it has nothing to answer */
	} else if (local_ack_goes_along(qp)) {
		flags |= FRAME_ACKS;
		qp->local.answer_due = false;
	}
	*out = (struct frame){.kind = (uint8_t)kind,
	                      .flags = flags,
	                      .num_sge = flags & FRAME_BY_REFERENCE ? wqe->num_sge : 0,
	                      .to_qpn = qp->attr.dest_qpn,
	                      .from_qpn = qp->qpn,
	                      .msn = wqe->msn,
	                      .length = wqe->length,
	                      .imm = wqe->imm,
	                      .ack = qp->local.answer_msn};
}

/* Send a frame with the data of @wqe, or with its pieces, from which the receiver pulls the data.
 * @prefix comes first in the body. */
static enum step send_data(struct engine *engine, struct qp *qp, struct wqe_send *wqe,
                           enum frame_kind kind, const struct frame_target *prefix,
                           size_t prefix_bytes)
{
	bool by_reference = kind == FRAME_READ ||
	                    (wqe->length > FRAME_MAX_DATA && (wqe->flags & HDL_SEND_INLINE) == 0);
	/* A message that has begun in parts goes on in parts, although the peer may know by now
	 * that it reaches us. */
	bool begun = kind != FRAME_READ && wqe->offset > 0;
	if (by_reference && (begun || !local_peer_reaches(&engine->links[qp->link]))) {
		if (kind != FRAME_READ)
			return local_send_parts(engine, qp, wqe, kind, prefix);
		by_reference = false;
		wqe->marks |= WQE_BY_VALUE;
		wqe->offset = 0;
	}
	size_t body = by_reference         ? wqe->num_sge * sizeof(struct hdl_sge)
	              : kind == FRAME_READ ? 0
	                                   : wqe->length;
	struct frame *out = engine_reserve(engine, qp->link, sizeof(*out) + prefix_bytes + body);
	if (out == NULL)
		return STEP_NO_ROOM;
	unsigned char *data = (unsigned char *)(out + 1) + prefix_bytes;
	if (by_reference)
		memcpy(data, wqe_sge(wqe), body);
	else if (body > 0 && !request_gather(engine, qp, wqe, 0, data, wqe->length))
		return STEP_NEXT;
	if (prefix_bytes > 0)
		memcpy(out + 1, prefix, prefix_bytes);
	local_put_header(qp, wqe, kind, by_reference ? FRAME_BY_REFERENCE : 0, out);
	engine_publish(engine, qp->link);
	capture_request(engine, qp, wqe);
	if (kind != FRAME_READ)
		counter_add(&engine->counters[ENGINE_BYTES_SENT], wqe->length);
	qp->sent_messages++;
	if (qp->type == HDL_QP_UC && !by_reference)
		request_finish(wqe, HDL_WC_SUCCESS, HDL_DETAIL_NONE);
	else
		local_sent(engine, qp, wqe);
	return STEP_NEXT;
}

static enum step send_notice(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	struct frame *out = engine_reserve(engine, qp->link, sizeof(struct frame));
	if (out == NULL)
		return STEP_NO_ROOM;
	local_put_header(qp, wqe, FRAME_NOTICE, 0, out);
	engine_publish(engine, qp->link);
	capture_request(engine, qp, wqe);
	qp->sent_messages++;
	if (qp->type == HDL_QP_UC)
		request_finish(wqe, HDL_WC_SUCCESS, HDL_DETAIL_NONE);
	else
		local_sent(engine, qp, wqe);
	return STEP_NEXT;
}

static enum step local_tx_send_atomic(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	struct {
		struct frame frame;
		struct frame_atomic atomic;
	} *out = engine_reserve(engine, qp->link, sizeof(*out));
	if (out == NULL)
		return STEP_NO_ROOM;
	local_put_header(qp, wqe, FRAME_ATOMIC, wqe->opcode == HDL_OP_FETCH_ADD ? FRAME_ADD : 0,
	                 &out->frame);
	out->atomic = (struct frame_atomic){.addr = wqe->u.atomic.addr,
	                                    .compare_add = wqe->u.atomic.compare_add,
	                                    .swap = wqe->u.atomic.swap,
	                                    .key = wqe->u.atomic.key};
	engine_publish(engine, qp->link);
	capture_request(engine, qp, wqe);
	local_sent(engine, qp, wqe);
	return STEP_NEXT;
}

enum step local_unreachable(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	struct sg own =
	        sg_own(engine, qp, wqe_sge(wqe), wqe->num_sge,
	               request_is_read(wqe) ? HDL_ACCESS_LOCAL_WRITE : HDL_ACCESS_LOCAL_READ);
	struct sg_result result = {.detail = HDL_DETAIL_NONE};
	if ((wqe->flags & HDL_SEND_INLINE) == 0)
		result = sg_check(&own);
	if (result.detail == HDL_DETAIL_NONE) {
		if (!qp_reliable(qp))
			capture_request(engine, qp, wqe);
		return local_not_ready(engine, qp, wqe);
	}
	tpt_count(engine->tpt, result.detail);
	request_finish(wqe, op_local_status(result.detail), result.detail);
	return STEP_NEXT;
}

/* --- executing --- */

static enum step execute_rdma(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	if (request_is_read(wqe) && qp->attr.max_rd_atomic == 0) { /* it could never execute */
		request_finish(wqe, HDL_WC_LOC_QP_OP_ERR, HDL_DETAIL_LIMIT);
		return STEP_NEXT;
	}
	if ((wqe->marks & (WQE_BY_TARGET | WQE_PREPARED)) == 0) {
		enum step step = local_direct(engine, qp, wqe);
		if (step == STEP_NEXT)
			capture_direct(engine, qp, wqe);
		if (step != STEP_BY_TARGET)
			return step;
		wqe->marks |= WQE_BY_TARGET;
	}
	if (request_is_read(wqe) && qp->reads_open >= qp->attr.max_rd_atomic)
		return STEP_WAIT;
	/* The target reads when it has room for the answer, and an atomic must not come before that
	 * (IBTA table 79). */
	if (qp->local.value_reads > 0 && request_is_read(wqe) && wqe->opcode != HDL_OP_READ)
		return STEP_WAIT;
	struct frame_target target = {.addr = wqe->u.rdma.addr, .key = wqe->u.rdma.key};
	switch (wqe->opcode) {
	case HDL_OP_WRITE_IMM:
		if (wqe->marks & WQE_PREPARED)
			return send_notice(engine, qp, wqe);
		return send_data(engine, qp, wqe, FRAME_WRITE, &target, sizeof(target));
	case HDL_OP_WRITE:
		return send_data(engine, qp, wqe, FRAME_WRITE, &target, sizeof(target));
	case HDL_OP_READ:
		return send_data(engine, qp, wqe, FRAME_READ, &target, sizeof(target));
	default:
		return local_tx_send_atomic(engine, qp, wqe);
	}
}

static enum step local_tx_execute(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	if ((wqe->flags & HDL_SEND_FENCE) && qp->reads_open > 0 && (wqe->marks & WQE_PARTIAL) == 0)
		return STEP_WAIT;
	enum step step = request_own(engine, qp, wqe);
	if (step != STEP_BY_TARGET)
		return step;
	if (qp->link == LINK_NONE)
		return local_unreachable(engine, qp, wqe);
	switch (wqe->opcode) {
	case HDL_OP_REGISTER_SEND:
		if (!request_register(engine, qp, wqe))
			return STEP_NEXT;
		return send_data(engine, qp, wqe, FRAME_SEND, NULL, 0);
	case HDL_OP_SEND:
	case HDL_OP_SEND_IMM:
	case HDL_OP_SEND_INVALIDATE:
		return send_data(engine, qp, wqe, FRAME_SEND, NULL, 0);
	default:
		return execute_rdma(engine, qp, wqe);
	}
}

bool local_run(struct engine *engine, struct qp *qp)
{
	return request_run(engine, qp, local_tx_execute);
}
