/* The same-host path: the requester. Executes send queue elements in order, numbers and repeats messages, and completes
 * them in order. */
#include <assert.h>
#include <string.h>

#include "queue/qp_state.h"
#include "transport/local.h"
#include "transport/multicast.h"
#include "transport/op.h"

/* A peer that is not ready is looked at this often when the queue pair waits for ever (timeout 0). */
#define LOOK_AGAIN_NS 100000u

uint64_t local_timeout_ns(const struct qp *qp)
{
	return qp->attr.timeout == 0 ? LOOK_AGAIN_NS : 4096ull << (qp->attr.timeout & 31);
}

uint64_t local_rnr_ns(uint32_t code)
{
	static const uint32_t us[32] = {
	        655360, 10,    20,    30,    40,    60,     80,     120,    160,    240,   320,
	        480,    640,   960,   1280,  1920,  2560,   3840,   5120,   7680,   10240, 15360,
	        20480,  30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520};
	return us[code & 31] * 1000ull;
}

void local_finish(struct wqe_send *wqe, enum hdl_wc_status status, enum hdl_detail detail)
{
	wqe->state = WQE_DONE;
	wqe->status = (uint8_t)status;
	wqe->vendor_err = (uint8_t)detail;
}

/* Is @wqe over and failed? Those before it may still have to be executed; nothing behind it starts. */
static bool failed(const struct wqe_send *wqe)
{
	return wqe->state == WQE_DONE && wqe->status != HDL_WC_SUCCESS;
}

static bool is_read(const struct wqe_send *wqe)
{
	return wqe->opcode == HDL_OP_READ || wqe->opcode == HDL_OP_COMPARE_SWAP ||
	       wqe->opcode == HDL_OP_FETCH_ADD;
}

static void answer_came(struct qp *qp, struct wqe_send *wqe)
{
	assert(wqe->state == WQE_SENT && qp->unanswered > 0);
	qp->unanswered--;
	if (is_read(wqe))
		qp->reads_open--;
}

/* --- sending frames --- */

static void number(struct qp *qp, struct wqe_send *wqe)
{
	if (wqe->numbered)
		return;
	wqe->numbered = 1;
	wqe->msn = qp->next_msn++;
	if (is_read(wqe))
		wqe->imm = qp->next_read++;
}

static void sent(struct node *node, struct qp *qp, struct wqe_send *wqe)
{
	wqe->state = WQE_SENT;
	qp->sent_position = node->links[qp->link].tx.position;
	qp->unanswered++;
	if (is_read(wqe))
		qp->reads_open++;
	if (qp->type == HDL_QP_RC && qp->attr.timeout != 0 && !qp->timer_wanted &&
	    !timer_running(&qp->timer)) {
		qp->answered = false;
		node_want_timer(node, qp, local_timeout_ns(qp));
	}
}

static struct frame header_of(struct qp *qp, struct wqe_send *wqe, enum frame_kind kind)
{
	number(qp, wqe);
	struct frame frame = {.kind = (uint8_t)kind,
	                      .to_qpn = qp->attr.dest_qpn,
	                      .from_qpn = qp->qpn,
	                      .msn = wqe->msn,
	                      .length = wqe->length,
	                      .imm = wqe->imm};
	if (wqe->flags & HDL_SEND_SOLICITED)
		frame.flags |= FRAME_SOLICITED;
	if (wqe->opcode == HDL_OP_SEND_IMM || wqe->opcode == HDL_OP_WRITE_IMM)
		frame.flags |= FRAME_IMM;
	if (wqe->opcode == HDL_OP_SEND_INVALIDATE)
		frame.flags |= FRAME_INVALIDATE;
	if (qp->type == HDL_QP_UC)
		frame.flags |= FRAME_UNRELIABLE;
	return frame;
}

bool local_gather(struct node *node, struct qp *qp, struct wqe_send *wqe, void *out)
{
	if (wqe->flags & HDL_SEND_INLINE) {
		memcpy(out, wqe_inline(wqe), wqe->length);
		return true;
	}
	if (wqe->length == 0)
		return true;
	struct hdl_sge piece;
	struct sg to = sg_plain(&piece, out, wqe->length);
	struct sg from = sg_own(node, qp, wqe_sge(wqe), wqe->num_sge, HDL_ACCESS_LOCAL_READ);
	struct sg_result result = sg_move(&node->own, MOVE_BOTH_OWN, &to, &from, wqe->length);
	if (result.detail == HDL_DETAIL_NONE)
		return true;
	tpt_count(node->tpt, result.detail);
	if (result.detail == HDL_DETAIL_GONE)
		op_memory_gone(node, result.key);
	local_finish(wqe, op_local_status(result.detail), result.detail);
	return false;
}

/* A frame with the data of @wqe, or with its pieces for the receiver to pull from. @prefix comes first in the body. */
static enum local_step send_data(struct node *node, struct qp *qp, struct wqe_send *wqe,
                                 enum frame_kind kind, const void *prefix, size_t prefix_bytes)
{
	bool by_reference = kind == FRAME_READ ||
	                    (wqe->length > FRAME_MAX_DATA && (wqe->flags & HDL_SEND_INLINE) == 0);
	size_t body = by_reference ? wqe->num_sge * sizeof(struct hdl_sge) : wqe->length;
	unsigned char *out =
	        node_reserve(node, qp->link, sizeof(struct frame) + prefix_bytes + body);
	if (out == NULL)
		return LOCAL_NO_ROOM;
	struct frame frame = header_of(qp, wqe, kind);
	unsigned char *data = out + sizeof(frame) + prefix_bytes;
	if (by_reference) {
		frame.flags |= FRAME_BY_REFERENCE;
		frame.num_sge = wqe->num_sge;
		memcpy(data, wqe_sge(wqe), body);
	} else if (!local_gather(node, qp, wqe, data)) {
		return LOCAL_NEXT;
	}
	memcpy(out, &frame, sizeof(frame));
	if (prefix_bytes > 0)
		memcpy(out + sizeof(frame), prefix, prefix_bytes);
	node_publish(node, qp->link);
	counter_add(&node->counters[NODE_BYTES_SENT], wqe->length);
	qp->sent_messages++;
	if (qp->type == HDL_QP_UC && !by_reference)
		local_finish(wqe, HDL_WC_SUCCESS, HDL_DETAIL_NONE);
	else
		sent(node, qp, wqe);
	return LOCAL_NEXT;
}

static enum local_step send_notice(struct node *node, struct qp *qp, struct wqe_send *wqe)
{
	struct frame *out = node_reserve(node, qp->link, sizeof(struct frame));
	if (out == NULL)
		return LOCAL_NO_ROOM;
	*out = header_of(qp, wqe, FRAME_NOTICE);
	node_publish(node, qp->link);
	qp->sent_messages++;
	if (qp->type == HDL_QP_UC)
		local_finish(wqe, HDL_WC_SUCCESS, HDL_DETAIL_NONE);
	else
		sent(node, qp, wqe);
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
	out->frame = header_of(qp, wqe, FRAME_ATOMIC);
	if (wqe->opcode == HDL_OP_FETCH_ADD)
		out->frame.flags |= FRAME_ADD;
	out->atomic = (struct frame_atomic){.addr = wqe->u.atomic.addr,
	                                    .compare_add = wqe->u.atomic.compare_add,
	                                    .swap = wqe->u.atomic.swap,
	                                    .key = wqe->u.atomic.key};
	node_publish(node, qp->link);
	sent(node, qp, wqe);
	return LOCAL_NEXT;
}

enum local_step local_to_nobody(struct node *node, struct qp *qp, struct wqe_send *wqe)
{
	struct sg own = sg_own(node, qp, wqe_sge(wqe), wqe->num_sge,
	                       is_read(wqe) ? HDL_ACCESS_LOCAL_WRITE : HDL_ACCESS_LOCAL_READ);
	struct sg_result result = {.detail = HDL_DETAIL_NONE};
	if ((wqe->flags & HDL_SEND_INLINE) == 0)
		result = sg_check(&own);
	if (result.detail == HDL_DETAIL_NONE)
		return local_not_ready(node, qp, wqe);
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
	unsigned char *out = node_reserve(node, wqe->u.ud.link,
	                                  sizeof(struct frame) + sizeof(body) + wqe->length);
	if (out == NULL)
		return LOCAL_NO_ROOM;
	if (!local_gather(node, qp, wqe, out + sizeof(struct frame) + sizeof(body)))
		return LOCAL_NEXT;
	memcpy(body.sgid, node->gids[wqe->u.ud.sgid_index].raw, 16);
	memcpy(body.dgid, wqe->u.ud.dgid, 16);
	struct frame frame = header_of(qp, wqe, FRAME_DATAGRAM);
	frame.to_qpn = wqe->u.ud.qpn;
	memcpy(out, &frame, sizeof(frame));
	memcpy(out + sizeof(frame), &body, sizeof(body));
	node_publish(node, wqe->u.ud.link);
	counter_add(&node->counters[NODE_BYTES_SENT], wqe->length);
	qp->sent_messages++;
	local_finish(wqe, HDL_WC_SUCCESS, HDL_DETAIL_NONE);
	return LOCAL_NEXT;
}

/* Is the next element one that was begun? A message that is to be repeated was, and counts as in flight. */
static bool begun(const struct qp *qp)
{
	if (qp->next == wq_tail(&qp->sq))
		return false;
	const struct wqe_send *wqe = wq_at(&qp->sq, qp->next);
	return wqe->state != WQE_READY || wqe->numbered;
}

/* --- executing --- */

static enum local_step execute_rdma(struct node *node, struct qp *qp, struct wqe_send *wqe)
{
	if (is_read(wqe) && qp->attr.max_rd_atomic == 0) { /* its turn would never come */
		local_finish(wqe, HDL_WC_LOC_QP_OP_ERR, HDL_DETAIL_LIMIT);
		return LOCAL_NEXT;
	}
	if ((wqe->marks & (WQE_BY_TARGET | WQE_PREPARED)) == 0) {
		enum local_step step = local_direct(node, qp, wqe);
		if (step != LOCAL_BY_TARGET)
			return step;
		wqe->marks |= WQE_BY_TARGET;
	}
	if (is_read(wqe) && qp->reads_open >= qp->attr.max_rd_atomic)
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
	if ((wqe->flags & HDL_SEND_FENCE) && qp->reads_open > 0)
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
	return state == HDL_QPS_RTS || (state == HDL_QPS_SQD && begun(qp));
}

bool local_run(struct node *node, struct qp *qp)
{
	bool did = false;
	unsigned budget = NODE_TX_BATCH;
	enum local_step step = LOCAL_NEXT;
	while (qp->next != wq_tail(&qp->sq) && !qp->waiting && budget > 0 && may_run(qp)) {
		struct wqe_send *wqe = wq_at(&qp->sq, qp->next);
		if (wqe->state == WQE_READY) {
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
	if (qp->type != HDL_QP_RC) {
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
	if (qp->draining && qp->unanswered == 0 && !begun(qp)) {
		qp->draining = false;
		op_event(node, qp, HDL_EVENT_SQ_DRAINED, HDL_DETAIL_NONE);
	}
}

/* --- answers and time --- */

/* Execute again everything from the element at @index on that was sent. */
static void rewind_to(struct node *node, struct qp *qp, uint32_t index)
{
	counter_add(&node->counters[NODE_RETRIES], 1);
	for (uint32_t i = index; i != qp->next; i++) {
		struct wqe_send *wqe = wq_at(&qp->sq, i);
		if (wqe->state == WQE_SENT) {
			answer_came(qp, wqe);
			wqe->state = WQE_READY;
		}
	}
	struct wqe_send *current = wq_at(&qp->sq, qp->next);
	if (qp->next != wq_tail(&qp->sq) && current->opcode == HDL_OP_DELAY)
		current->marks &=
		        (uint8_t)~WQE_PREPARED; /* its time starts anew: never too short */
	qp->waiting = false;
	qp->next = index;
	node_activate(node, qp);
}

/* The element that holds message @msn, if it is waiting for an answer. */
static struct wqe_send *find_sent(struct qp *qp, uint32_t msn, uint32_t *index)
{
	for (uint32_t i = wq_head(&qp->sq); i != qp->next; i++) {
		struct wqe_send *wqe = wq_at(&qp->sq, i);
		if (wqe->state == WQE_SENT && wqe->msn == msn) {
			*index = i;
			return wqe;
		}
	}
	return NULL;
}

/* An atomic's answer: the old value goes where the request says. */
static void place_value(struct node *node, struct qp *qp, struct wqe_send *wqe, uint64_t value)
{
	struct hdl_sge piece;
	struct sg from = sg_plain(&piece, &value, sizeof(value));
	struct sg to = sg_own(node, qp, wqe_sge(wqe), wqe->num_sge, HDL_ACCESS_LOCAL_WRITE);
	struct sg_result result = sg_move(&node->own, MOVE_BOTH_OWN, &to, &from, sizeof(value));
	if (result.detail != HDL_DETAIL_NONE)
		tpt_count(node->tpt, result.detail);
	if (result.detail == HDL_DETAIL_GONE)
		op_memory_gone(node, result.key);
	local_finish(wqe,
	             result.detail == HDL_DETAIL_NONE ? HDL_WC_SUCCESS
	                                              : op_local_status(result.detail),
	             result.detail);
}

static bool is_atomic(const struct wqe_send *wqe)
{
	return wqe->opcode == HDL_OP_COMPARE_SWAP || wqe->opcode == HDL_OP_FETCH_ADD;
}

/* Everything before message @end (and including it, if @answer is an ACK) has been executed by the responder. An atomic is
 * over with its own answer alone, which brings the value: where that was overtaken, it and what follows is repeated in
 * time (IBTA section 9.7.5.2.8 calls this an implied NAK). */
static void acknowledge(struct node *node, struct qp *qp, uint32_t end,
                        const struct frame_answer *answer)
{
	bool inclusive = answer->answer == ANSWER_ACK || answer->answer == ANSWER_VALUE;
	for (uint32_t i = wq_head(&qp->sq); i != qp->next; i++) {
		struct wqe_send *wqe = wq_at(&qp->sq, i);
		if (wqe->state != WQE_SENT)
			continue;
		int32_t distance = (int32_t)(end - wqe->msn);
		if (distance < 0 || (distance == 0 && !inclusive) ||
		    (is_atomic(wqe) && (distance != 0 || answer->answer != ANSWER_VALUE)))
			break;
		answer_came(qp, wqe);
		qp->answered = true;
		qp->retries_left = qp->attr.retry_cnt;
		qp->rnr_left = qp->attr.rnr_retry;
		if (is_atomic(wqe))
			place_value(node, qp, wqe, answer->value);
		else
			local_finish(wqe, HDL_WC_SUCCESS, HDL_DETAIL_NONE);
	}
}

/* The message at @index was not taken, and may be repeated *left times at most. False: that was once too often. */
static bool try_again(struct node *node, struct qp *qp, uint32_t index, uint8_t *left,
                      enum hdl_wc_status exhausted)
{
	struct wqe_send *wqe = wq_at(&qp->sq, index);
	if (*left > 0) {
		(*left)--;
		rewind_to(node, qp, index);
		return true;
	}
	if (wqe->state == WQE_SENT)
		answer_came(qp, wqe);
	local_finish(wqe, exhausted, HDL_DETAIL_NONE);
	return false;
}

static void receiver_not_ready(struct node *node, struct qp *qp, uint32_t index, uint32_t code)
{
	uint8_t forever = 1;
	if (try_again(node, qp, index, qp->attr.rnr_retry == 7 ? &forever : &qp->rnr_left,
	              HDL_WC_RNR_RETRY_EXC_ERR)) {
		qp->waiting = true;
		node_want_timer(node, qp, local_rnr_ns(code));
	}
}

/* Our own pieces were refused while the peer pulled from them. */
static enum hdl_wc_status own_list_refused(struct node *node, struct wqe_send *wqe,
                                           const struct frame_answer *answer)
{
	if (answer->detail < HDL_DETAIL_COUNT) /* the peer says so */
		tpt_count(node->tpt, answer->detail);
	for (uint32_t i = 0; answer->detail == HDL_DETAIL_GONE && i < wqe->num_sge; i++)
		if (wqe_sge(wqe)[i].key.v == (uint32_t)answer->value)
			op_memory_gone(node, wqe_sge(wqe)[i].key);
	return op_local_status(answer->detail);
}

void local_answered(struct node *node, struct qp *qp, uint32_t msn,
                    const struct frame_answer *answer)
{
	/* An answer to what was not sent is left over from a former connection; believed, it would acknowledge everything. */
	if ((int32_t)(msn - qp->next_msn) >= 0)
		return;
	acknowledge(node, qp, msn, answer);
	uint32_t index;
	bool good = answer->answer == ANSWER_ACK || answer->answer == ANSWER_VALUE;
	struct wqe_send *wqe = good ? NULL : find_sent(qp, msn, &index);
	if (wqe != NULL) {
		static const enum hdl_wc_status failures[ANSWER_COUNT] = {
		        [ANSWER_INVALID] = HDL_WC_REM_INV_REQ_ERR,
		        [ANSWER_ACCESS] = HDL_WC_REM_ACCESS_ERR,
		        [ANSWER_OPERATION] = HDL_WC_REM_OP_ERR,
		};
		qp->answered = true;
		switch (answer->answer) {
		case ANSWER_RNR:
			receiver_not_ready(node, qp, index, answer->detail);
			break;
		case ANSWER_SEQUENCE:
			try_again(node, qp, index, &qp->retries_left, HDL_WC_RETRY_EXC_ERR);
			break;
		case ANSWER_OWN_LIST:
			answer_came(qp, wqe);
			local_finish(wqe, own_list_refused(node, wqe, answer), answer->detail);
			break;
		default:
			answer_came(qp, wqe);
			local_finish(wqe, failures[answer->answer], answer->detail);
		}
	}
	local_reap(node, qp);
	node_activate(node, qp);
}

/* The oldest message that waits for an answer; qp->next when there is none. */
static uint32_t oldest_sent(const struct qp *qp)
{
	uint32_t i = wq_head(&qp->sq);
	while (i != qp->next && ((struct wqe_send *)wq_at(&qp->sq, i))->state != WQE_SENT)
		i++;
	return i;
}

void local_timeout(struct node *node, struct qp *qp)
{
	if (qp->waiting) { /* RNR, delay, or a peer that was not ready: go on */
		qp->waiting = false;
		node_activate(node, qp);
		if (qp->unanswered == 0)
			return;
		qp->answered = true; /* the answer timer did not run meanwhile: start it afresh */
	}
	if (qp->unanswered == 0 || qp->attr.timeout == 0 || qp->type != HDL_QP_RC)
		return;
	/* A lane loses nothing: what the peer has not looked at yet is not late, it has had no processor time. (Should it have
	 * died, the link goes down.) What it looked at and did not answer was dropped: its queue pair was not ready. */
	if (!qp->answered && ring_consumed(&node->links[qp->link].tx, qp->sent_position)) {
		counter_add(&node->counters[NODE_TIMEOUTS], 1);
		try_again(node, qp, oldest_sent(qp), &qp->retries_left, HDL_WC_RETRY_EXC_ERR);
		local_reap(node, qp);
	}
	qp->answered = false;
	if (qp_state(qp) != HDL_QPS_ERR)
		node_want_timer(node, qp, local_timeout_ns(qp));
}

void local_peer_gone(struct node *node, struct qp *qp)
{
	if (qp->type == HDL_QP_UD || qp_state(qp) == HDL_QPS_ERR)
		return;
	struct wqe_send *wqe = wq_oldest(&qp->sq);
	if (qp->type == HDL_QP_RC && wqe != NULL && qp->next != wq_head(&qp->sq)) {
		/* Of what is in flight the oldest tells why; the rest is flushed. */
		if (wqe->state == WQE_SENT)
			answer_came(qp, wqe);
		if (wqe->state != WQE_DONE)
			local_finish(wqe, HDL_WC_RETRY_EXC_ERR, HDL_DETAIL_NONE);
		op_complete_send(node, qp, wqe);
	}
	op_event(node, qp, HDL_EVENT_QP_FATAL, HDL_DETAIL_NONE);
	qp_enter(node, qp, HDL_QPS_ERR);
}
