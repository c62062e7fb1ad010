/* The same-host path: how the requester handles answers and timeouts. It repeats messages that were
 * not taken, from the oldest on, as often as the queue pair allows. */
#include <assert.h>

#include "queue/qp_state.h"
#include "transport/capture.h"
#include "transport/local/local.h"
#include "transport/op.h"

/* How often to look at a peer that is not ready, when the queue pair waits for ever (timeout 0). */
#define LOOK_AGAIN_NS 100000u

/* Time between two retries to a peer that has gone for good. They cannot succeed, and the program
 * shall learn so soon. */
#define GONE_NS 16000000u

uint64_t local_timeout_ns(const struct qp *qp)
{
	uint64_t ns = qp->attr.timeout == 0 ? LOOK_AGAIN_NS : 4096ull << (qp->attr.timeout & 31);
	return qp->link == LINK_NONE && ns > GONE_NS ? GONE_NS : ns;
}

void local_answer_came(struct qp *qp, struct wqe_send *wqe)
{
	assert(qp->unanswered > 0); /* pairs with local_sent() */
	qp->unanswered--;
	if (request_is_read(wqe)) {
		assert(qp->reads_open > 0);
		qp->reads_open--;
	}
	if (wqe->marks & WQE_BY_VALUE) {
		assert(qp->local.value_reads > 0);
		qp->local.value_reads--;
	}
}

/* Execute again everything from the element at @index on that was sent. */
static void local_retry_rewind_to(struct engine *engine, struct qp *qp, uint32_t index)
{
	counter_add(&engine->counters[ENGINE_RETRIES], 1);
	for (uint32_t i = index, end = local_sent_end(qp); i != end; i++) {
		struct wqe_send *wqe = wq_at(&qp->sq, i);
		if (wqe->state == WQE_SENT) {
			local_answer_came(qp, wqe);
			wqe->state = WQE_READY;
			wqe->offset = 0;
			wqe->marks &= (uint8_t)~WQE_PARTIAL;
		}
	}
	struct wqe_send *current = wq_at(&qp->sq, qp->next);
	if (qp->next != wq_tail(&qp->sq) && current->opcode == HDL_OP_DELAY)
		current->marks &=
		        (uint8_t)~WQE_PREPARED; /* the delay starts over: never too short */
	qp->waiting = false;
	qp->next = index;
	engine_activate(engine, qp);
}

struct wqe_send *local_find_sent(struct qp *qp, uint32_t msn, uint32_t *index)
{
	for (uint32_t i = wq_head(&qp->sq), end = local_sent_end(qp); i != end; i++) {
		struct wqe_send *wqe = wq_at(&qp->sq, i);
		if (wqe->state == WQE_SENT && wqe->msn == msn) {
			*index = i;
			return wqe;
		}
	}
	return NULL;
}

/* Does the answer to @wqe carry data? */
static bool brings_data(const struct wqe_send *wqe)
{
	return request_is_atomic(wqe) ||
	       (wqe->opcode == HDL_OP_READ && (wqe->marks & WQE_BY_VALUE) != 0 && wqe->length > 0);
}

static bool data_is_here(const struct wqe_send *wqe)
{
	return request_is_atomic(wqe) || wqe->offset == wqe->length;
}

/* Everything before message @end (and including it, if @answer is an ACK) has been executed by the
 * responder. An atomic is over with its own answer alone, which brings the value: where that was
 * overtaken, it and what follows is repeated in time (IBTA section 9.7.5.2.8 calls this an implied
 * NAK). */
static void local_retry_acknowledge(struct engine *engine, struct qp *qp, uint32_t end,
                                    const struct frame_answer *answer)
{
	bool inclusive = answer->answer == ANSWER_ACK || answer->answer == ANSWER_VALUE;
	for (uint32_t i = wq_head(&qp->sq), end_index = local_sent_end(qp); i != end_index; i++) {
		struct wqe_send *wqe = wq_at(&qp->sq, i);
		if (wqe->state != WQE_SENT)
			continue;
		int32_t distance = (int32_t)(end - wqe->msn);
		if (distance < 0 || (distance == 0 && !inclusive) ||
		    (brings_data(wqe) &&
		     (distance != 0 || answer->answer != ANSWER_VALUE || !data_is_here(wqe))))
			break;
		capture_answer(engine, qp, wqe, end, answer);
		local_answer_came(qp, wqe);
		local_answers_count(qp);
		if (wqe->opcode == HDL_OP_READ)
			counter_add(&engine->counters[ENGINE_BYTES_READ], wqe->length);
		if (!request_is_atomic(wqe) ||
		    request_scatter(engine, qp, wqe, 0, &answer->value, 8))
			request_finish(wqe, HDL_WC_SUCCESS, HDL_DETAIL_NONE);
	}
}

/* The message at @index was not taken and may be repeated *left more times. False: *left was 0, and
 * the request has failed. */
static bool local_retry_try_again(struct engine *engine, struct qp *qp, uint32_t index,
                                  uint8_t *left, enum hdl_wc_status exhausted)
{
	struct wqe_send *wqe = wq_at(&qp->sq, index);
	if (*left > 0) {
		(*left)--;
		local_retry_rewind_to(engine, qp, index);
		return true;
	}
	if (wqe->state == WQE_SENT)
		local_answer_came(qp, wqe);
	request_finish(wqe, exhausted, HDL_DETAIL_NONE);
	return false;
}

static void local_retry_receiver_not_ready(struct engine *engine, struct qp *qp, uint32_t index,
                                           uint32_t code)
{
	uint8_t forever = 1;
	if (local_retry_try_again(engine, qp, index,
	                          qp->attr.rnr_retry == 7 ? &forever : &qp->rnr_left,
	                          HDL_WC_RNR_RETRY_EXC_ERR)) {
		qp->waiting = true;
		engine_want_timer(engine, qp, request_rnr_ns(code));
	}
}

/* Our own pieces were refused when the peer pulled data from them. */
static enum hdl_wc_status own_list_refused(struct engine *engine, struct wqe_send *wqe,
                                           const struct frame_answer *answer)
{
	if (answer->detail < HDL_DETAIL_COUNT) /* the peer says so */
		tpt_count(engine->tpt, answer->detail);
	for (uint32_t i = 0; answer->detail == HDL_DETAIL_GONE && i < wqe->num_sge; i++)
		if (wqe_sge(wqe)[i].key.v == (uint32_t)answer->value)
			op_memory_gone(engine, wqe_sge(wqe)[i].key);
	return op_local_status(answer->detail);
}

void local_answered(struct engine *engine, struct qp *qp, uint32_t msn,
                    const struct frame_answer *answer)
{
	/* An answer to a message that was not sent is left over from an earlier connection. It must
	 * not acknowledge everything. */
	if ((int32_t)(msn - qp->next_msn) >= 0)
		return;
	local_retry_acknowledge(engine, qp, msn, answer);
	uint32_t index;
	bool good = answer->answer == ANSWER_ACK || answer->answer == ANSWER_VALUE;
	struct wqe_send *wqe = good ? NULL : local_find_sent(qp, msn, &index);
	if (wqe != NULL) {
		static const enum hdl_wc_status failures[ANSWER_COUNT] = {
		        [ANSWER_INVALID] = HDL_WC_REM_INV_REQ_ERR,
		        [ANSWER_ACCESS] = HDL_WC_REM_ACCESS_ERR,
		        [ANSWER_OPERATION] = HDL_WC_REM_OP_ERR,
		};
		qp->answered = true;
		capture_refusal(engine, qp, wqe, answer);
		switch (answer->answer) {
		case ANSWER_RNR:
			local_retry_receiver_not_ready(engine, qp, index, answer->detail);
			break;
		case ANSWER_SEQUENCE:
			local_retry_try_again(engine, qp, index, &qp->retries_left,
			                      HDL_WC_RETRY_EXC_ERR);
			break;
		case ANSWER_OWN_LIST:
			local_answer_came(qp, wqe);
			request_finish(wqe, own_list_refused(engine, wqe, answer), answer->detail);
			break;
		default:
			local_answer_came(qp, wqe);
			request_finish(wqe, failures[answer->answer], answer->detail);
		}
	}
	request_reap(engine, qp);
	if (qp->next != wq_tail(&qp->sq))
		engine_activate(engine, qp);
}

void local_look(struct engine *engine, struct qp *qp)
{
	const struct link *link = &engine->links[qp->link];
	const struct qp_public *pub = &link->peer_qps[qp->attr.dest_qpn & link->peer_qp_mask];
	struct qp_facts facts;
	uint64_t executed = atomic_load_explicit(&pub->executed, memory_order_acquire);
	struct frame_answer ack = {.answer = ANSWER_ACK};
	if (executed >> 32 == 1 && qp_read_facts(pub, &facts) && facts.dest_qpn == qp->qpn &&
	    facts.link == link->id && facts.type == qp_peer_type(qp))
		local_answered(engine, qp, (uint32_t)executed, &ack);
}

/* The oldest message that waits for an answer; qp->next when there is none. */
static uint32_t oldest_sent(const struct qp *qp)
{
	uint32_t i = wq_head(&qp->sq), end = local_sent_end(qp);
	while (i != end && ((struct wqe_send *)wq_at(&qp->sq, i))->state != WQE_SENT)
		i++;
	return i;
}

void local_timeout(struct engine *engine, struct qp *qp)
{
	if (qp->waiting) { /* RNR, delay, or a peer that was not ready: go on */
		qp->waiting = false;
		engine_activate(engine, qp);
		if (qp->unanswered == 0)
			return;
		qp->answered = true; /* the answer timer did not run meanwhile: start it afresh */
	}
	if (qp->unanswered == 0 || qp->attr.timeout == 0 || !qp_reliable(qp))
		return;
	/* A lane loses nothing: what the peer has not looked at yet is not late, it has had no
	 * processor time. (Should it have died, the link goes down.) What it looked at and did not
	 * answer was dropped: its queue pair was not ready. */
	if (!qp->answered)
		local_look(engine, qp);
	if (!qp->answered && ring_consumed(&engine->links[qp->link].tx, qp->local.sent_position)) {
		counter_add(&engine->counters[ENGINE_TIMEOUTS], 1);
		local_retry_try_again(engine, qp, oldest_sent(qp), &qp->retries_left,
		                      HDL_WC_RETRY_EXC_ERR);
		request_reap(engine, qp);
	}
	qp->answered = false;
	if (qp_state(qp) != HDL_QPS_ERR)
		engine_want_timer(engine, qp, local_timeout_ns(qp));
}

void local_peer_left(struct engine *engine, struct qp *qp)
{
	local_look(engine, qp);
	if (qp->unanswered > 0)
		local_retry_rewind_to(engine, qp, oldest_sent(qp));
}

void local_peer_gone(struct engine *engine, struct qp *qp)
{
	if (qp->type == HDL_QP_UD || qp_state(qp) == HDL_QPS_ERR)
		return;
	if (qp->unanswered > 0)
		local_look(engine, qp);
	struct wqe_send *wqe = wq_oldest(&qp->sq);
	if (qp_reliable(qp) && wqe != NULL && local_sent_end(qp) != wq_head(&qp->sq)) {
		/* Of what is in flight the oldest tells why; the rest is flushed. */
		if (wqe->state == WQE_SENT)
			local_answer_came(qp, wqe);
		if (wqe->state != WQE_DONE)
			request_finish(wqe, HDL_WC_RETRY_EXC_ERR, HDL_DETAIL_NONE);
		op_complete_send(engine, qp, wqe);
	}
	/* No event of the queue pair: it has not failed. What it had in flight or posted tells, and
	 * the connection is ended, as on a wire. */
	qp_enter(engine, qp, HDL_QPS_ERR);
}
