/* Reliable datagrams. See rd.h. */
#include "transport/ib/rd.h"

#include <assert.h>
#include <string.h>

#include "queue/qp_state.h"
#include "transport/capture.h"
#include "transport/ib/ib.h"
#include "transport/op.h"

/* --- contexts --- */

void rd_add_context(struct engine *engine, struct qp *context)
{
	struct rd *rd = context->ib->rd;
	context->type = QP_TYPE_EEC;
	context->transport = &rd_context_transport;
	context->link = LINK_NONE;
	context->established = true; /* no event reports it */
	rd->end = &rd->first;
	assert(engine->eecs[context->qpn & engine->qp_mask] == NULL);
	engine->eecs[context->qpn & engine->qp_mask] = context;
	context->rd_next = engine->eec_list;
	engine->eec_list = context;
}

void rd_forget_context(struct engine *engine, struct qp *context)
{
	engine_forget(engine, context);
	engine->eecs[context->qpn & engine->qp_mask] = NULL;
	struct qp **at = &engine->eec_list;
	while (*at != context)
		at = &(*at)->rd_next;
	*at = context->rd_next;
}

struct qp *rd_find_context(const struct engine *engine, uint32_t number)
{
	struct qp *context = engine->eecs[number & engine->qp_mask];
	return context != NULL && context->qpn == number ? context : NULL;
}

/* --- requester: whose turn it is --- */

static void wait_for(struct qp *context, struct qp *qp)
{
	struct rd *rd = context->ib->rd;
	assert(qp->context == NULL);
	qp->context = context;
	qp->unanswered++;
	qp->rd_next = NULL;
	*rd->end = qp;
	rd->end = &qp->rd_next;
}

static struct qp *next_waiting(struct rd *rd)
{
	struct qp *qp = rd->first;
	if (qp == NULL)
		return NULL;
	rd->first = qp->rd_next;
	if (rd->first == NULL)
		rd->end = &rd->first;
	return qp;
}

static void stop_waiting(struct rd *rd, const struct qp *qp)
{
	for (struct qp **at = &rd->first; *at != NULL; at = &(*at)->rd_next) {
		if (*at != qp)
			continue;
		*at = qp->rd_next;
		if (rd->end == &qp->rd_next)
			rd->end = at;
		return;
	}
}

/* Return the message of @qp, which is finished with @status. */
static void give_back(struct engine *engine, struct qp *qp, enum hdl_wc_status status)
{
	struct wqe_send *wqe = wq_at(&qp->sq, qp->next);
	assert(qp->context != NULL && qp->unanswered > 0); /* pairs with wait_for() */
	qp->context = NULL;
	qp->unanswered--;
	request_finish(wqe, status, wqe->vendor_err);
	request_reap(engine, qp);
	engine_activate(engine, qp);
}

static void lend(struct qp *context, struct wqe_send *wqe)
{
	struct wq *sq = &context->sq;
	assert(wq_held(sq) == 0);
	wqe->state = WQE_READY;
	wqe->numbered = 0;
	wqe->offset = 0;
	sq->elements = (unsigned char *)wqe;
	context->next = wq_head(sq);
	wq_posted(sq);
}

/* The context no longer owns the element that was lent to it. */
static void take_element(struct qp *context)
{
	wq_release(&context->sq);
	context->sq.elements = NULL;
	context->next = wq_head(&context->sq);
	context->unanswered = context->reads_open = 0;
	context->waiting = false;
	context->ib->from = NULL;
}

/* A message was abandoned of which the peer may have seen a part (IBTA section 9.7.8: RESYNC). Its
 * PSNs are not used again. */
static void abandon(struct qp *context, const struct wqe_send *wqe)
{
	struct ib *ib = context->ib;
	struct rd *rd = ib->rd;
	if (!wqe->numbered || ib->sent_psn == wqe->msn) {
		if (wqe->numbered)
			ib->next_psn = wqe->msn;
		return;
	}
	ib->next_psn = ib->una_psn = ib->sent_psn;
	ib->passed = ib->window.timing = ib->window.probed = false;
	ib->window.waited_ns = 0;
	ib->window.backoff = 0;
	context->retries_left = context->attr.retry_cnt;
	context->rnr_left = context->attr.rnr_retry;
	rd->resync_due = true;
	rd->resync = (struct wqe_send){.opcode = HDL_OP_SEND, .marks = WQE_RESYNC};
	rd->resync.u.rd.qpn = wqe->u.rd.qpn;
	rd->resync.u.rd.qkey = wqe->u.rd.qkey;
}

static void next_message(struct qp *context)
{
	struct ib *ib = context->ib;
	struct rd *rd = ib->rd;
	if (wq_held(&context->sq) != 0)
		return;
	if (rd->resync_due) {
		rd->resync_due = false;
		lend(context, &rd->resync);
		return;
	}
	struct qp *qp = next_waiting(rd);
	if (qp == NULL)
		return;
	ib->from = qp;
	rd->source = qp->qpn;
	lend(context, wq_at(&qp->sq, qp->next));
}

static bool rd_run_context(struct engine *engine, struct qp *context)
{
	if (qp_state(context) != HDL_QPS_RTS)
		return false;
	next_message(context);
	capture_turn(engine, context->ib->from);
	return ib_run(engine, context);
}

/* @context failed, with nothing lent to it: every message that waits for it fails too. */
static void fail_waiting(struct engine *engine, struct qp *context)
{
	struct qp *qp;
	while ((qp = next_waiting(context->ib->rd)) != NULL)
		give_back(engine, qp, HDL_WC_INV_EEC_STATE_ERR);
}

void rd_reap(struct engine *engine, struct qp *context)
{
	struct ib *ib = context->ib;
	const struct wqe_send *wqe = wq_oldest(&context->sq);
	if (wqe == NULL || wqe->state != WQE_DONE)
		return;
	enum hdl_wc_status status = wqe->status;
	struct qp *qp = ib->from;
	bool lost = status == HDL_WC_RETRY_EXC_ERR || status == HDL_WC_BAD_RESP_ERR ||
	            (status != HDL_WC_SUCCESS && qp == NULL);
	if (status != HDL_WC_SUCCESS && !lost)
		abandon(context, wqe);
	take_element(context);
	if (qp != NULL)
		give_back(engine, qp, status);
	if (lost)
		rd_enter(engine, context, HDL_QPS_ERR);
	else if (ib->rd->resync_due || ib->rd->first != NULL)
		engine_activate(engine, context);
}

/* --- requester: the queue pair --- */

/* Put the message @wqe of @qp in line. */
static enum step ib_rd_join(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	struct qp *context = rd_find_context(engine, wqe->u.rd.eecn);
	if (context == NULL || context->rdd != qp->rdd) {
		request_finish(wqe, HDL_WC_INV_EECN_ERR, HDL_DETAIL_NONE);
		return STEP_NEXT;
	}
	if (qp_state(context) != HDL_QPS_RTS) {
		request_finish(wqe, HDL_WC_INV_EEC_STATE_ERR, HDL_DETAIL_NONE);
		return STEP_NEXT;
	}
	wait_for(context, qp);
	rd_run_context(engine, context);
	return STEP_WAIT;
}

static bool rd_run(struct engine *engine, struct qp *qp)
{
	bool did = false;
	unsigned budget = ENGINE_TX_BATCH;
	while (qp->next != wq_tail(&qp->sq) && !qp->waiting && qp->context == NULL && budget > 0 &&
	       request_may_run(qp)) {
		struct wqe_send *wqe = wq_at(&qp->sq, qp->next);
		enum step step = request_own(engine, qp, wqe);
		if (step == STEP_BY_TARGET)
			step = ib_rd_join(engine, qp, wqe);
		if (step == STEP_NEXT)
			request_reap(engine, qp);
		budget--;
		did = true;
	}
	request_reap(engine, qp);
	if (budget == 0)
		engine_activate(engine, qp);
	return did;
}

/* --- requester: packets --- */

void rd_put_request(const struct qp *context, const struct wqe_send *wqe, struct ib_packet *packet)
{
	packet->bth.dest_qp = wqe->u.rd.qpn;
	packet->rdeth = (struct ib_rdeth){.ee_context = context->attr.dest_qpn};
	packet->deth = (struct ib_deth){.qkey = wqe->u.rd.qkey, .src_qp = context->ib->rd->source};
}

void rd_put_response(const struct qp *context, struct ib_packet *packet)
{
	packet->bth.dest_qp = context->ib->rd->peer;
	packet->rdeth = (struct ib_rdeth){.ee_context = context->attr.dest_qpn};
}

/* --- responder --- */

/* The receive that @context keeps is lent to @to while @to is working. */
static void lend_kept(struct qp *context, struct qp *to)
{
	to->kept = context->kept;
	to->keeps = context->keeps;
	context->keeps = false;
}

static void take_kept(struct qp *context, struct qp *to)
{
	context->keeps = to->keeps;
	to->keeps = false;
	to->kept = NULL;
}

static void fail_kept(struct engine *engine, struct qp *context, enum hdl_wc_status status)
{
	struct qp *to = context->ib->to;
	if (to == NULL)
		return;
	bool lent = to->kept == context->kept;
	if (!lent)
		lend_kept(context, to);
	op_fail_kept(engine, to, status);
	if (!lent)
		take_kept(context, to);
}

void rd_refused(struct engine *engine, struct qp *context)
{
	struct ib *ib = context->ib;
	ib->rd->refused = true;
	ib->rd->syndrome = ib->syndrome;
	ib->rd->psn = ib->ack_psn;
	ib->kind = IB_NOTHING;
	ib->reads_put = ib->reads_sent = 0;
	context->nak_sent = true; /* the rest of the message is not requested again */
	fail_kept(engine, context, HDL_WC_REM_ABORT_ERR);
}

/* Can @packet be the RESYNC of the requester that we know? It skips no more than was in flight, and
 * names the two queue pairs of the message that it abandons. */
static bool resync_fits(const struct qp *context, const struct ib_packet *packet, int32_t ahead)
{
	const struct ib *ib = context->ib;
	if (ahead > (int32_t)IB_RESYNC_AHEAD)
		return false;
	return ib->kind == IB_NOTHING || ib->to == NULL ||
	       (packet->bth.dest_qp == ib->to->qpn && packet->deth.src_qp == ib->rd->peer);
}

/* The requester abandoned its message; the next one has the PSN behind this one. */
static void resync(struct engine *engine, struct qp *context, const struct ib_packet *packet)
{
	struct ib *ib = context->ib;
	if (!resync_fits(context, packet, ib_psn_distance(packet->bth.psn, ib->expected_psn))) {
		counter_add(&engine->counters[ENGINE_BAD_PACKETS], 1);
		return;
	}
	if (ib_psn_distance(packet->bth.psn, ib->expected_psn) < 0) { /* received before */
		counter_add(&engine->counters[ENGINE_REPEATED], 1);
		if (!ib->ack_due)
			ib_owe_ack(engine, context, 0, ib->expected_psn - 1);
		return;
	}
	fail_kept(engine, context, HDL_WC_REM_ABORT_ERR);
	ib->kind = IB_NOTHING;
	ib->reads_put = ib->reads_sent = 0;
	ib->rd->refused = context->nak_sent = false;
	ib->rd->peer = packet->deth.src_qp;
	ib->expected_psn = ib_psn(packet->bth.psn + 1);
	ib_owe_ack(engine, context, 0, packet->bth.psn);
}

bool rd_takes_itself(struct engine *engine, struct qp *context, const struct ib_packet *packet)
{
	struct ib *ib = context->ib;
	struct rd *rd = ib->rd;
	if (packet->op->operation == IB_RESYNC) {
		resync(engine, context, packet);
		return true;
	}
	if (packet->bth.psn == ib->expected_psn) /* otherwise anybody may have sent it */
		rd->peer = packet->deth.src_qp;
	if (!rd->refused || packet->bth.psn != ib->expected_psn)
		return false;
	ib_owe_ack(engine, context, rd->syndrome, rd->psn);
	return true;
}

/* May the message that @packet begins go to @to? (IBTA section 9.6.1.4: destination, domain and
 * Q_Key) */
static bool ib_rd_admits(struct engine *engine, const struct qp *context, const struct qp *to,
                         const struct ib_packet *packet)
{
	if (to == NULL || to->type != HDL_QP_RD || to->rdd != context->rdd ||
	    !qp_may_receive(qp_state(to))) {
		counter_add(&engine->counters[ENGINE_DROPPED], 1);
		return false;
	}
	if (to->attr.qkey != packet->deth.qkey) {
		counter_add(&engine->counters[ENGINE_DROPPED_QKEY], 1);
		return false;
	}
	return true;
}

bool rd_request(struct engine *engine, struct qp *context, const struct ib_packet *packet,
                uint32_t *span)
{
	struct ib *ib = context->ib;
	bool begins = packet->op->part == IB_FIRST || packet->op->part == IB_ONLY, done;
	struct qp *to = begins ? engine_find_qp(engine, packet->bth.dest_qp) : ib->to;
	if (begins ? !ib_rd_admits(engine, context, to, packet)
	           : to == NULL || to->qpn != packet->bth.dest_qp) {
		ib_owe_nak(engine, context, IB_NAK_INVALID_RD_REQUEST, packet->bth.psn);
		rd_refused(engine, context);
		return false;
	}
	if (begins) { /* the requester has the answers to everything before */
		ib->to = to;
		ib->reads_put = ib->reads_sent = 0;
	}
	lend_kept(context, to);
	done = ib_run_request(engine, context, packet, span);
	take_kept(context, to);
	return done;
}

/* --- the end of a queue pair, and of a context --- */

/* Responder: refuse the message that is being sent to @qp. */
static void leave_as_target(struct engine *engine, struct qp *context, struct qp *qp)
{
	struct ib *ib = context->ib;
	bool busy = ib->kind != IB_NOTHING;
	ib->reads_put = ib->reads_sent = 0;
	if (qp_state(qp) == HDL_QPS_RESET)
		context->keeps = false; /* it no longer produces completions */
	fail_kept(engine, context, HDL_WC_WR_FLUSH_ERR);
	if (busy) {
		ib_owe_nak(engine, context, IB_NAK_INVALID_RD_REQUEST, ib->expected_psn);
		rd_refused(engine, context);
	}
	ib->to = NULL;
}

/* @qp no longer sends or receives: remove it from all contexts. */
static void rd_left(struct engine *engine, struct qp *qp, enum hdl_qp_state state)
{
	struct qp *context = qp->context;
	if (context != NULL && context->ib->from == qp) {
		abandon(context, wq_oldest(&context->sq));
		take_element(context);
		engine_activate(engine, context);
	} else if (context != NULL) {
		stop_waiting(context->ib->rd, qp);
	}
	qp->context = NULL;
	for (context = engine->eec_list; context != NULL; context = context->rd_next)
		if (context->ib->to == qp && state != HDL_QPS_SQE)
			leave_as_target(engine, context, qp);
}

/* Stop sending and receiving. */
static void ib_rd_end(struct engine *engine, struct qp *context)
{
	struct ib *ib = context->ib;
	struct qp *qp = ib->from;
	engine_drop_timer(engine, context);
	if (wq_held(&context->sq) != 0)
		take_element(context);
	ib->rd->resync_due = false;
	if (qp != NULL)
		give_back(engine, qp, HDL_WC_LOC_EEC_OP_ERR);
	fail_waiting(engine, context);
	fail_kept(engine, context, HDL_WC_LOC_EEC_OP_ERR);
	ib->kind = IB_NOTHING;
	ib->reads_put = ib->reads_sent = 0;
	ib->to = NULL;
}

void rd_enter(struct engine *engine, struct qp *context, enum hdl_qp_state state)
{
	enum hdl_qp_state old = qp_state(context);
	atomic_store_explicit(&context->state, (uint8_t)state, memory_order_release);
	switch (state) {
	case HDL_QPS_RTR:
		context->ib->rd->refused = context->nak_sent = false;
		ib_begin_responder(context);
		break;
	case HDL_QPS_RTS:
		if (old == HDL_QPS_RTR)
			ib_begin_requester(context);
		context->retries_left = context->attr.retry_cnt;
		context->rnr_left = context->attr.rnr_retry;
		break;
	case HDL_QPS_RESET:
	case HDL_QPS_ERR:
		ib_rd_end(engine, context);
		context->ib->ack_due = false;
		break;
	default:
		break;
	}
}

const struct transport rd_transport = {
        .name = "reliable datagrams",
        .run = rd_run,
        .timeout = request_timeout,
        .left = rd_left,
};

const struct transport rd_context_transport = {
        .name = "end-to-end context",
        .borrows_requests = true,
        .run = rd_run_context,
        IB_TRANSPORT_ENTRIES,
};
