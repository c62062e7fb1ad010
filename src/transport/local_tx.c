/* The same-host path: the requester. Executes send queue elements in order, numbers messages, and completes them in order.
 * Answers and timers are local_retry.c's. */
#include <assert.h>
#include <string.h>

#include "queue/qp_state.h"
#include "transport/capture.h"
#include "transport/local.h"
#include "transport/multicast.h"
#include "transport/op.h"

/* Is @wqe over and failed? Those before it may still have to be executed; nothing behind it starts. */
static bool failed(const struct wqe_send *wqe)
{
	return wqe->state == WQE_DONE && wqe->status != HDL_WC_SUCCESS;
}

/* --- sending frames --- */

static void number(struct qp *qp, struct wqe_send *wqe)
{
	if (wqe->numbered)
		return;
	wqe->numbered = 1;
	wqe->msn = qp->next_msn++;
	if (local_is_read(wqe))
		wqe->imm = qp->next_read++;
}

void local_sent(struct node *node, struct qp *qp, struct wqe_send *wqe)
{
	wqe->state = WQE_SENT;
	qp->sent_position = node->links[qp->link].tx.position;
	qp->unanswered++;
	if (local_is_read(wqe))
		qp->reads_open++;
	if (wqe->marks & WQE_BY_VALUE)
		qp->value_reads++;
	if (qp->type != HDL_QP_UC && qp->attr.timeout != 0 && !qp->timer_wanted &&
	    !timer_running(&qp->timer)) {
		qp->answered = false;
		node_want_timer(node, qp, local_timeout_ns(qp));
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
	number(qp, wqe);
	flags |= by_opcode[wqe->opcode];
	if (wqe->flags & HDL_SEND_SOLICITED)
		flags |= FRAME_SOLICITED;
	if (qp->type != HDL_QP_RC) {
		if (qp->type == HDL_QP_UC)
			flags |= FRAME_UNRELIABLE;
		else if (qp->type == HDL_QP_XRC_INI)
			qp->answer_msn = wqe->remote_srq; /* it has nothing to answer */
	} else if (qp->answer_due && qp->answer == ANSWER_ACK && qp->results_due == 0) {
		flags |= FRAME_ACKS;
		qp->answer_due = false;
	}
	*out = (struct frame){.kind = (uint8_t)kind,
	                      .flags = flags,
	                      .num_sge = flags & FRAME_BY_REFERENCE ? wqe->num_sge : 0,
	                      .to_qpn = qp->attr.dest_qpn,
	                      .from_qpn = qp->qpn,
	                      .msn = wqe->msn,
	                      .length = wqe->length,
	                      .imm = wqe->imm,
	                      .ack = qp->answer_msn};
}

bool local_gather(struct node *node, struct qp *qp, struct wqe_send *wqe, void *out)
{
	if (wqe->flags & HDL_SEND_INLINE) {
		memcpy(out, wqe_inline(wqe), wqe->length);
		return true;
	}
	if (wqe->length == 0)
		return true;
	if (sg_copy_short(node, qp->pd, wqe_sge(wqe), wqe->num_sge, 0, out, wqe->length,
	                  HDL_ACCESS_LOCAL_READ))
		return true;
	struct sg from = sg_own(node, qp, wqe_sge(wqe), wqe->num_sge, HDL_ACCESS_LOCAL_READ);
	struct hdl_sge piece;
	struct sg to = sg_plain(&piece, out, wqe->length);
	struct sg_result result = sg_move(&node->own, MOVE_BOTH_OWN, &to, &from, wqe->length);
	if (result.detail == HDL_DETAIL_NONE)
		return true;
	local_refused_here(node, wqe, &result);
	return false;
}

/* A frame with the data of @wqe, or with its pieces for the receiver to pull from. @prefix comes first in the body. */
static enum local_step send_data(struct node *node, struct qp *qp, struct wqe_send *wqe,
                                 enum frame_kind kind, const struct frame_target *prefix,
                                 size_t prefix_bytes)
{
	bool by_reference = kind == FRAME_READ ||
	                    (wqe->length > FRAME_MAX_DATA && (wqe->flags & HDL_SEND_INLINE) == 0);
	if (by_reference && !local_peer_reaches(&node->links[qp->link])) {
		if (kind != FRAME_READ)
			return local_send_parts(node, qp, wqe, kind, prefix);
		by_reference = false;
		wqe->marks |= WQE_BY_VALUE;
		wqe->offset = 0;
	}
	size_t body = by_reference         ? wqe->num_sge * sizeof(struct hdl_sge)
	              : kind == FRAME_READ ? 0
	                                   : wqe->length;
	struct frame *out = node_reserve(node, qp->link, sizeof(*out) + prefix_bytes + body);
	if (out == NULL)
		return LOCAL_NO_ROOM;
	unsigned char *data = (unsigned char *)(out + 1) + prefix_bytes;
	if (by_reference)
		memcpy(data, wqe_sge(wqe), body);
	else if (body > 0 && !local_gather(node, qp, wqe, data))
		return LOCAL_NEXT;
	if (prefix_bytes > 0)
		memcpy(out + 1, prefix, prefix_bytes);
	local_put_header(qp, wqe, kind, by_reference ? FRAME_BY_REFERENCE : 0, out);
	node_publish(node, qp->link);
	capture_request(node, qp, wqe);
	counter_add(&node->counters[NODE_BYTES_SENT], wqe->length);
	qp->sent_messages++;
	if (qp->type == HDL_QP_UC && !by_reference)
		local_finish(wqe, HDL_WC_SUCCESS, HDL_DETAIL_NONE);
	else
		local_sent(node, qp, wqe);
	return LOCAL_NEXT;
}

static enum local_step send_notice(struct node *node, struct qp *qp, struct wqe_send *wqe)
{
	struct frame *out = node_reserve(node, qp->link, sizeof(struct frame));
	if (out == NULL)
		return LOCAL_NO_ROOM;
	local_put_header(qp, wqe, FRAME_NOTICE, 0, out);
	node_publish(node, qp->link);
	capture_request(node, qp, wqe);
	qp->sent_messages++;
	if (qp->type == HDL_QP_UC)
		local_finish(wqe, HDL_WC_SUCCESS, HDL_DETAIL_NONE);
	else
		local_sent(node, qp, wqe);
	return LOCAL_NEXT;
}

static enum local_step send_atomic(struct node *node, struct qp *qp, struct wqe_send *wqe)
{
	struct {
		struct frame frame;
		struct frame_atomic atomic;
	} *out = node_reserve(node, qp->link, sizeof(*out));
	if (out == NULL)
		return LOCAL_NO_ROOM;
	local_put_header(qp, wqe, FRAME_ATOMIC, wqe->opcode == HDL_OP_FETCH_ADD ? FRAME_ADD : 0,
	                 &out->frame);
	out->atomic = (struct frame_atomic){.addr = wqe->u.atomic.addr,
	                                    .compare_add = wqe->u.atomic.compare_add,
	                                    .swap = wqe->u.atomic.swap,
	                                    .key = wqe->u.atomic.key};
	node_publish(node, qp->link);
	capture_request(node, qp, wqe);
	local_sent(node, qp, wqe);
	return LOCAL_NEXT;
}

enum local_step local_to_nobody(struct node *node, struct qp *qp, struct wqe_send *wqe)
{
	struct sg own = sg_own(node, qp, wqe_sge(wqe), wqe->num_sge,
	                       local_is_read(wqe) ? HDL_ACCESS_LOCAL_WRITE : HDL_ACCESS_LOCAL_READ);
	struct sg_result result = {.detail = HDL_DETAIL_NONE};
	if ((wqe->flags & HDL_SEND_INLINE) == 0)
		result = sg_check(&own);
	if (result.detail == HDL_DETAIL_NONE) {
		if (!qp_reliable(qp))
			capture_request(node, qp, wqe);
		return local_not_ready(node, qp, wqe);
	}
	tpt_count(node->tpt, result.detail);
	local_finish(wqe, op_local_status(result.detail), result.detail);
	return LOCAL_NEXT;
}

static enum local_step send_datagram(struct node *node, struct qp *qp, struct wqe_send *wqe)
{
	if (wqe->u.ud.link != LINK_NONE && wqe->u.ud.link >= MULTICAST_LINK)
		return local_multicast(node, qp, wqe);
	const struct link *link = wqe->u.ud.link == LINK_NONE ? NULL : &node->links[wqe->u.ud.link];
	struct frame_datagram body = {.qkey = wqe->u.ud.qkey,
	                              .flow_label = wqe->u.ud.flow_label,
	                              .sl = wqe->u.ud.sl,
	                              .traffic_class = wqe->u.ud.traffic_class,
	                              .hop_limit = wqe->u.ud.hop_limit,
	                              .is_global = wqe->u.ud.is_global,
	                              .slid = node->lid};
	if (link == NULL || !link->up || link->epoch != wqe->u.ud.epoch)
		return local_to_nobody(node, qp, wqe);
	struct frame *out =
	        node_reserve(node, wqe->u.ud.link, sizeof(*out) + sizeof(body) + wqe->length);
	if (out == NULL)
		return LOCAL_NO_ROOM;
	if (!local_gather(node, qp, wqe, (unsigned char *)(out + 1) + sizeof(body)))
		return LOCAL_NEXT;
	memcpy(body.sgid, node->gids[wqe->u.ud.sgid_index].raw, 16);
	memcpy(body.dgid, wqe->u.ud.dgid, 16);
	memcpy(out + 1, &body, sizeof(body));
	local_put_header(qp, wqe, FRAME_DATAGRAM, 0, out);
	out->to_qpn = wqe->u.ud.qpn;
	node_publish(node, wqe->u.ud.link);
	capture_request(node, qp, wqe);
	counter_add(&node->counters[NODE_BYTES_SENT], wqe->length);
	qp->sent_messages++;
	local_finish(wqe, HDL_WC_SUCCESS, HDL_DETAIL_NONE);
	return LOCAL_NEXT;
}

/* --- executing --- */

static enum local_step execute_rdma(struct node *node, struct qp *qp, struct wqe_send *wqe)
{
	if (local_is_read(wqe) && qp->attr.max_rd_atomic == 0) { /* its turn would never come */
		local_finish(wqe, HDL_WC_LOC_QP_OP_ERR, HDL_DETAIL_LIMIT);
		return LOCAL_NEXT;
	}
	if ((wqe->marks & (WQE_BY_TARGET | WQE_PREPARED)) == 0) {
		enum local_step step = local_direct(node, qp, wqe);
		if (step == LOCAL_NEXT)
			capture_direct(node, qp, wqe);
		if (step != LOCAL_BY_TARGET)
			return step;
		wqe->marks |= WQE_BY_TARGET;
	}
	if (local_is_read(wqe) && qp->reads_open >= qp->attr.max_rd_atomic)
		return LOCAL_WAIT;
	/* The target reads when it has room for the answer, and an atomic must not come before that (IBTA table 79). */
	if (qp->value_reads > 0 && local_is_read(wqe) && wqe->opcode != HDL_OP_READ)
		return LOCAL_WAIT;
	struct frame_target target = {.addr = wqe->u.rdma.addr, .key = wqe->u.rdma.key};
	switch (wqe->opcode) {
	case HDL_OP_WRITE_IMM:
		if (wqe->marks & WQE_PREPARED)
			return send_notice(node, qp, wqe);
		return send_data(node, qp, wqe, FRAME_WRITE, &target, sizeof(target));
	case HDL_OP_WRITE:
		return send_data(node, qp, wqe, FRAME_WRITE, &target, sizeof(target));
	case HDL_OP_READ:
		return send_data(node, qp, wqe, FRAME_READ, &target, sizeof(target));
	default:
		return send_atomic(node, qp, wqe);
	}
}

static enum local_step execute_memory(struct node *node, struct qp *qp, struct wqe_send *wqe)
{
	enum hdl_detail detail = op_memory(node, qp, wqe);
	if (detail != HDL_DETAIL_NONE) {
		tpt_count(node->tpt, detail);
		local_finish(wqe, HDL_WC_MEM_MGT_ERR, detail);
	} else if (wqe->opcode != HDL_OP_REGISTER_SEND) {
		local_finish(wqe, HDL_WC_SUCCESS, HDL_DETAIL_NONE);
	}
	return LOCAL_NEXT;
}

static enum local_step execute(struct node *node, struct qp *qp, struct wqe_send *wqe)
{
	if ((wqe->flags & HDL_SEND_FENCE) && qp->reads_open > 0 && (wqe->marks & WQE_PARTIAL) == 0)
		return LOCAL_WAIT;
	switch (wqe->opcode) {
	case HDL_OP_DELAY:
		if (wqe->marks & WQE_PREPARED) {
			local_finish(wqe, HDL_WC_SUCCESS, HDL_DETAIL_NONE);
			return LOCAL_NEXT;
		}
		wqe->marks |= WQE_PREPARED;
		qp->waiting = true;
		node_want_timer(node, qp, wqe->u.delay.ns);
		return LOCAL_WAIT;
	case HDL_OP_BIND:
	case HDL_OP_INVALIDATE:
	case HDL_OP_REGISTER:
		return execute_memory(node, qp, wqe);
	default:
		break;
	}
	if (qp->link == LINK_NONE && qp->type != HDL_QP_UD)
		return local_to_nobody(node, qp, wqe);
	switch (wqe->opcode) {
	case HDL_OP_REGISTER_SEND:
		if ((wqe->marks & WQE_PREPARED) == 0) {
			execute_memory(node, qp, wqe);
			if (wqe->state == WQE_DONE)
				return LOCAL_NEXT;
			wqe->marks |= WQE_PREPARED;
		}
		return send_data(node, qp, wqe, FRAME_SEND, NULL, 0);
	case HDL_OP_SEND:
	case HDL_OP_SEND_IMM:
	case HDL_OP_SEND_INVALIDATE:
		if (qp->type == HDL_QP_UD)
			return send_datagram(node, qp, wqe);
		return send_data(node, qp, wqe, FRAME_SEND, NULL, 0);
	default:
		return execute_rdma(node, qp, wqe);
	}
}

/* May the next element be executed in the state @qp is in? Draining, only what was begun (IBTA section 10.3.1.5). */
static bool may_run(const struct qp *qp)
{
	enum hdl_qp_state state = qp_state(qp);
	return state == HDL_QPS_RTS || (state == HDL_QPS_SQD && local_begun(qp));
}

bool local_run(struct node *node, struct qp *qp)
{
	bool did = false;
	unsigned budget = NODE_TX_BATCH;
	enum local_step step = LOCAL_NEXT;
	while (qp->next != wq_tail(&qp->sq) && !qp->waiting && budget > 0 && may_run(qp)) {
		struct wqe_send *wqe = wq_at(&qp->sq, qp->next);
		if (wqe->state == WQE_READY || (wqe->marks & WQE_PARTIAL) != 0) {
			step = execute(node, qp, wqe);
			if (step != LOCAL_NEXT)
				break;
			budget--;
			did = true;
		}
		if (failed(wqe))
			break;
		qp->next++;
	}
	local_reap(node, qp);
	if (step == LOCAL_NO_ROOM || budget == 0)
		node_activate(node, qp);
	return did;
}

/* --- completing --- */

/* The oldest request failed and was completed: what becomes of the queue pair. */
static void send_failed(struct node *node, struct qp *qp, uint8_t opcode, enum hdl_wc_status status,
                        enum hdl_detail detail)
{
	bool registration = status == HDL_WC_MEM_MGT_ERR &&
	                    (opcode == HDL_OP_REGISTER || opcode == HDL_OP_REGISTER_SEND);
	if (!qp_reliable(qp)) {
		qp_enter(node, qp, HDL_QPS_SQE);
	} else if (registration && qp->register_error == HDL_REGISTER_ERROR_DRAIN) {
		/* Seed 004 figure 11 option 1: drained, the rest flushed; receiving goes on. */
		op_flush_send(node, qp);
		qp_enter(node, qp, HDL_QPS_SQD);
	} else {
		if (registration) { /* option 2: error state, and the stream is terminated */
			qp->close_due = true;
			qp->close_event = HDL_EVENT_QP_FATAL;
			qp->close_detail = (uint8_t)detail;
			node_owe(node, qp);
		}
		qp_enter(node, qp, HDL_QPS_ERR);
	}
}

void local_reap(struct node *node, struct qp *qp)
{
	struct wqe_send *wqe;
	while ((wqe = wq_oldest(&qp->sq)) != NULL && wqe->state == WQE_DONE) {
		uint8_t opcode = wqe->opcode;
		enum hdl_wc_status status = wqe->status;
		enum hdl_detail detail = wqe->vendor_err;
		op_complete_send(node, qp, wqe);
		if (status != HDL_WC_SUCCESS) {
			if (qp_state(qp) != HDL_QPS_ERR)
				send_failed(node, qp, opcode, status, detail);
			return;
		}
	}
	if (qp->draining && qp->unanswered == 0 && !local_begun(qp)) {
		qp->draining = false;
		op_event(node, qp, HDL_EVENT_SQ_DRAINED, HDL_DETAIL_NONE);
	}
}
