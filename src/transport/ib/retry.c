/* The wire: how the requester handles answers and timeouts. Acknowledgements are cumulative. A read
 * or atomic only finishes with its own response, and a later answer says that the response was lost
 * (IBTA section 9.7.5.1.1: implied NAK). What was lost is sent again from the oldest packet on, as
 * often as the queue pair allows. */
#include <assert.h>

#include "queue/qp_state.h"
#include "transport/ib/ib.h"
#include "transport/ib/rd.h"
#include "transport/op.h"

uint64_t ib_timeout_ns(const struct qp *qp)
{
	return 4096ull << (qp->attr.timeout & 31);
}

void ib_reap(struct engine *engine, struct qp *qp)
{
	if (qp->type == QP_TYPE_EEC)
		rd_reap(engine, qp);
	else
		request_reap(engine, qp);
}

/* --- finding requests --- */

/* The unfinished element that contains @psn; NULL if there is none. */
static struct wqe_send *ib_retry_find(const struct qp *qp, uint32_t psn, uint32_t *index)
{
	for (uint32_t i = wq_head(&qp->sq), end = wq_tail(&qp->sq); i != end; i++) {
		struct wqe_send *wqe = wq_at(&qp->sq, i);
		if (!wqe->numbered) {
			if (wqe->state != WQE_DONE)
				return NULL;
			continue; /* it needed no peer */
		}
		int32_t distance = ib_psn_distance(psn, wqe->msn);
		if (distance < 0)
			return NULL;
		if ((uint32_t)distance < ib_span(qp->ib, wqe)) {
			*index = i;
			return wqe->state == WQE_DONE ? NULL : wqe;
		}
	}
	return NULL;
}

/* The first PSN of @wqe that is still wanted, as far as @wqe itself knows. */
static uint32_t wanted_psn(const struct ib *ib, const struct wqe_send *wqe)
{
	return ib_psn(wqe->msn + (wqe->opcode == HDL_OP_READ ? wqe->got / ib->mtu : 0));
}

/* A request that was sent is answered, refused or sent again: it no longer counts. */
static void answer_came(struct qp *qp)
{
	assert(qp->unanswered > 0);
	qp->unanswered--;
}

/* --- retransmission --- */

/* Send everything again from @psn on, which belongs to the element at @index. */
static void ib_retry_rewind_to(struct engine *engine, struct qp *qp, uint32_t index, uint32_t psn)
{
	struct ib *ib = qp->ib;
	counter_add(&engine->counters[ENGINE_RETRIES], 1);
	ib->window.timing = false;
	if (ib->stripe != NULL) {
		ib->stripe->repairing = true;
		ib->stripe->repair_psn = ib->sent_psn;
		stripe_forget_early(ib->stripe);
	}
	/* What was to be sent again before it has arrived meanwhile. */
	for (; (int32_t)(index - qp->next) > 0; qp->next++) {
		const struct wqe_send *wqe = wq_at(&qp->sq, qp->next);
		if (wqe->numbered)
			ib->ssn = ib_psn(ib->ssn + ib_messages(wqe));
	}
	uint32_t end = qp->next + (qp->next != wq_tail(&qp->sq));
	for (uint32_t i = index; i != end; i++) {
		struct wqe_send *wqe = wq_at(&qp->sq, i);
		if (i != qp->next && wqe->numbered)
			ib->ssn = ib_psn(ib->ssn - ib_messages(wqe));
		if (!wqe->numbered || wqe->state == WQE_DONE)
			continue;
		if (wqe->state == WQE_SENT)
			answer_came(qp);
		wqe->state = WQE_READY;
		wqe->offset = wqe->opcode == HDL_OP_READ ? wqe->got
		              : i == index ? (uint32_t)ib_psn_distance(psn, wqe->msn) * ib->mtu
		                           : 0;
	}
	struct wqe_send *current = wq_at(&qp->sq, qp->next);
	if (qp->next != wq_tail(&qp->sq) && current->opcode == HDL_OP_DELAY)
		current->marks &=
		        (uint8_t)~WQE_PREPARED; /* its time starts over: never too short */
	qp->reads_open = 0;                     /* what came before is finished */
	qp->waiting = false;
	qp->next = index;
	engine_activate(engine, qp);
}

static void ib_retry_finish(struct qp *qp, struct wqe_send *wqe, enum hdl_wc_status status)
{
	if (wqe->state == WQE_SENT)
		answer_came(qp);
	request_finish(wqe, status, HDL_DETAIL_NONE);
}

/* @psn of the element at @index was not executed and may be sent *left more times. False: the
 * retries are exhausted. */
static bool ib_retry_try_again(struct engine *engine, struct qp *qp, uint32_t index, uint32_t psn,
                               uint8_t *left, enum hdl_wc_status exhausted)
{
	if (*left > 0) {
		(*left)--;
		ib_retry_rewind_to(engine, qp, index, psn);
		return true;
	}
	if (exhausted == HDL_WC_RETRY_EXC_ERR && ib_path_failed(engine, qp)) {
		ib_retry_rewind_to(engine, qp, index, psn);
		return true;
	}
	ib_retry_finish(qp, wq_at(&qp->sq, index), exhausted);
	return false;
}

/* The packets from @psn on were lost. */
static void lost(struct engine *engine, struct qp *qp, uint32_t index, uint32_t psn)
{
	window_lost(&qp->ib->window, qp->ib->una_psn, qp->ib->sent_psn);
	ib_retry_try_again(engine, qp, index, psn, &qp->retries_left, HDL_WC_RETRY_EXC_ERR);
}

/* The packet @psn was lost, and the responder keeps those after it, except those sent along a path
 * that is now out of use. */
static void one_lost(struct engine *engine, struct qp *qp, uint32_t index, uint32_t psn)
{
	struct wqe_send *wqe = wq_at(&qp->sq, index);
	struct stripe *s = qp->ib->stripe;
	if (s->repairing && ib_psn_distance(psn, s->repair_psn) < 0)
		return;
	bool all = stripe_lost(s, psn, engine->now_ns) || request_is_read(wqe);
	window_lost(&qp->ib->window, qp->ib->una_psn, qp->ib->sent_psn);
	if (all || !ib_resend(engine, qp, wqe, psn))
		ib_retry_rewind_to(engine, qp, index, psn);
	else
		counter_add(&engine->counters[ENGINE_RETRIES], 1);
	qp->ib->window.timing = false;
}

/* An answer to something later says that the one for @psn is lost. More answers that were already
 * on their way follow and say the same: they count once, until there is progress or the timeout
 * expires. */
static void passed_by(struct engine *engine, struct qp *qp, uint32_t index, uint32_t psn)
{
	struct ib *ib = qp->ib;
	if (ib->passed && ib->passed_psn == psn)
		return;
	ib->passed = true;
	ib->passed_psn = psn;
	lost(engine, qp, index, psn);
}

/* --- acknowledgements --- */

/* Everything before @end is known to have been executed. */
static void progress(const struct engine *engine, struct qp *qp, uint32_t end)
{
	struct ib *ib = qp->ib;
	int32_t count = ib_psn_distance(end, ib->una_psn);
	if (count <= 0)
		return;
	if (ib->stripe != NULL) {
		stripe_arrived(ib->stripe, ib->una_psn, (uint32_t)count);
		if (ib_psn_distance(end, ib->stripe->repair_psn) >= 0)
			ib->stripe->repairing = false;
	}
	ib->una_psn = ib_psn(end);
	ib->passed = false;
	window_grow(&ib->window, ib->una_psn, ib->sent_psn, (uint32_t)count);
	window_time_answered(&ib->window, ib->una_psn, engine->now_ns);
	qp->answered = true;
	qp->retries_left = qp->attr.retry_cnt;
	qp->rnr_left = qp->attr.rnr_retry;
}

/* An answer says that everything before @end was executed, but the response for @psn did not come.
 * It is lost, unless it takes the other path: then the answer is remembered until the response
 * arrives. */
static void comes_early(struct engine *engine, struct qp *qp, uint32_t index, uint32_t psn,
                        uint32_t end)
{
	struct stripe *s = qp->ib->stripe;
	if (s == NULL || !stripe_may_come(s, psn)) {
		passed_by(engine, qp, index, psn);
	} else if (ib_psn_distance(end, psn) > 0 &&
	           (!s->acked || ib_psn_distance(end, s->acked_psn) > 0)) {
		s->acked = true;
		s->acked_way = s->came;
		s->acked_psn = end;
	}
}

/* The responder has executed everything before @end. False: except a read or atomic whose response
 * did not come; it is sent again now, if it was lost. */
static bool ib_retry_acknowledge(struct engine *engine, struct qp *qp, uint32_t end)
{
	struct ib *ib = qp->ib;
	for (uint32_t i = wq_head(&qp->sq), tail = wq_tail(&qp->sq); i != tail; i++) {
		struct wqe_send *wqe = wq_at(&qp->sq, i);
		if (wqe->state == WQE_DONE)
			continue;
		int32_t covered = ib_psn_distance(end, wqe->msn);
		if (!wqe->numbered || covered <= 0)
			break;
		if (request_is_read(wqe)) {
			/* The part of a long read that was executed may be the part that has
			 * arrived. */
			if (ib_psn_distance(end, wanted_psn(ib, wqe)) <= 0)
				break;
			progress(engine, qp, wanted_psn(ib, wqe));
			comes_early(engine, qp, i, wanted_psn(ib, wqe), end);
			return false;
		}
		if ((uint32_t)covered < ib_span(ib, wqe))
			break;
		ib_retry_finish(qp, wqe, HDL_WC_SUCCESS);
	}
	progress(engine, qp, end);
	return true;
}

/* --- responses --- */

/* A response that no conforming responder sends (IBTA section 9.9.2.4.2). */
static void bad_response(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	counter_add(&engine->counters[ENGINE_BAD_PACKETS], 1);
	ib_retry_finish(qp, wqe, HDL_WC_BAD_RESP_ERR);
}

static void read_done(struct qp *qp)
{
	if (qp->reads_open > 0) /* a retransmission has already reset the count */
		qp->reads_open--;
}

/* The next @count bytes of @wqe have arrived. @ends: so has the end of a request. */
static void read_more(struct engine *engine, struct qp *qp, struct wqe_send *wqe, uint32_t count,
                      bool ends)
{
	uint32_t psn = wanted_psn(qp->ib, wqe);
	wqe->got += count;
	progress(engine, qp, psn + 1);
	if (ends)
		read_done(qp);
	if (wqe->got < wqe->length)
		return;
	counter_add(&engine->counters[ENGINE_BYTES_READ], wqe->length);
	ib_retry_finish(qp, wqe, HDL_WC_SUCCESS);
}

static uint32_t read_due(const struct ib *ib, const struct wqe_send *wqe, uint32_t offset)
{
	uint32_t left = wqe->length - offset;
	return left < ib->mtu ? left : ib->mtu;
}

static void read_response(struct engine *engine, struct qp *qp, const struct ib_packet *packet)
{
	struct ib *ib = qp->ib;
	struct stripe *s = ib->stripe;
	uint32_t index, psn = packet->bth.psn;
	struct wqe_send *wqe = ib_retry_find(qp, psn, &index);
	if (wqe == NULL || wqe->opcode != HDL_OP_READ)
		return;
	if (s != NULL)
		s->forgotten = false;
	bool turn = ib_retry_acknowledge(engine, qp, wqe->msn);
	int32_t distance = ib_psn_distance(psn, wanted_psn(ib, wqe));
	if (turn && distance > 0)
		comes_early(engine, qp, index, wanted_psn(ib, wqe), wqe->msn);
	turn = turn && distance == 0;
	if (distance < 0 || (!turn && (s == NULL || s->forgotten)))
		return; /* it came before, or has been requested again */
	uint8_t *early = s != NULL ? &s->early[psn & (HDL_MAX_STRIPE - 1)] : NULL;
	if (!turn && *early != STRIPE_MISSING)
		return;
	/* Every packet but the last of the whole read is full. Where a request ended only matters
	 * for the responder's count of requests. */
	uint32_t offset = (uint32_t)ib_psn_distance(psn, wqe->msn) * ib->mtu;
	uint32_t due = read_due(ib, wqe, offset);
	bool ends = packet->op->part == IB_LAST || packet->op->part == IB_ONLY;
	if (packet->payload_bytes != due || (due == wqe->length - offset && !ends)) {
		bad_response(engine, qp, wqe);
		return;
	}
	bool was_sent = wqe->state == WQE_SENT;
	if (!request_scatter(engine, qp->ib->from, wqe, offset, packet->payload, due)) {
		if (was_sent)
			answer_came(qp);
	} else if (turn) {
		read_more(engine, qp, wqe, due, ends);
	} else {
		*early = ends ? STRIPE_PLACED_LAST : STRIPE_PLACED;
	}
}

static void atomic_response(struct engine *engine, struct qp *qp, const struct ib_packet *packet)
{
	uint32_t index, psn = packet->bth.psn;
	struct wqe_send *wqe = ib_retry_find(qp, psn, &index);
	if (wqe == NULL || !request_is_atomic(wqe) || !ib_retry_acknowledge(engine, qp, wqe->msn))
		return;
	bool was_sent = wqe->state == WQE_SENT;
	if (!request_scatter(engine, qp->ib->from, wqe, 0, &packet->atomicack.original, 8)) {
		if (was_sent)
			answer_came(qp);
		return;
	}
	progress(engine, qp, psn + 1);
	read_done(qp);
	ib_retry_finish(qp, wqe, HDL_WC_SUCCESS);
}

/* --- NAKs --- */

static void ib_retry_receiver_not_ready(struct engine *engine, struct qp *qp, uint32_t index,
                                        uint32_t psn, uint8_t code)
{
	uint8_t forever = 1;
	if (ib_retry_try_again(engine, qp, index, psn,
	                       qp->attr.rnr_retry == 7 ? &forever : &qp->rnr_left,
	                       HDL_WC_RNR_RETRY_EXC_ERR)) {
		qp->answered = true;
		qp->waiting = true;
		engine_want_timer(engine, qp, request_rnr_ns(code));
	}
}

/* IBTA section 9.7.5.2: everything before the PSN was executed; the code is about the PSN itself.
 */
static void refused(struct engine *engine, struct qp *qp, const struct ib_packet *packet)
{
	static const enum hdl_wc_status failures[] = {
	        [IB_NAK_INVALID_REQUEST] = HDL_WC_REM_INV_REQ_ERR,
	        [IB_NAK_REMOTE_ACCESS_ERROR] = HDL_WC_REM_ACCESS_ERR,
	        [IB_NAK_REMOTE_OPERATIONAL_ERROR] = HDL_WC_REM_OP_ERR,
	        [IB_NAK_INVALID_RD_REQUEST] = HDL_WC_REM_INV_RD_REQ_ERR,
	};
	uint32_t index, psn = packet->bth.psn;
	uint8_t code = ib_aeth_value(packet->aeth.syndrome);
	struct stripe *s = qp->ib->stripe;
	if (!ib_retry_acknowledge(engine, qp, psn)) {
		if (s != NULL && s->acked && !s->refused) { /* it is handled in its turn */
			s->refused = true;
			s->refused_way = s->came;
			s->refusal = *packet;
		}
		return;
	}
	struct wqe_send *wqe = ib_retry_find(qp, psn, &index);
	if (wqe == NULL)
		return;
	/* Responders drop what follows a message for which they have no receive (IBTA section
	 * 9.7.5.2.8), but some, among them Linux's rdma_rxe, report it as out of sequence. It is
	 * sent again anyway when the RNR timer expires. */
	bool pause = qp->waiting && index == qp->next;
	if (ib_aeth_kind(packet->aeth.syndrome) == IB_AETH_RNR_NAK)
		ib_retry_receiver_not_ready(engine, qp, index, psn, code);
	else if (code == IB_NAK_PSN_SEQUENCE_ERROR && !pause && qp->ib->stripe != NULL)
		one_lost(engine, qp, index, psn);
	else if (code == IB_NAK_PSN_SEQUENCE_ERROR && !pause)
		lost(engine, qp, index, psn);
	else if (code == IB_NAK_PSN_SEQUENCE_ERROR)
		counter_add(&engine->counters[ENGINE_DROPPED], 1);
	else if (code < sizeof(failures) / sizeof(failures[0]))
		ib_retry_finish(qp, wqe, failures[code]);
	else
		bad_response(engine, qp, wqe);
}

/* What an acknowledgement says about receives (IBTA section 9.7.7.2). */
static void take_credits(struct ib *ib, const struct ib_aeth *aeth)
{
	uint8_t code = ib_aeth_value(aeth->syndrome);
	ib->limited = code != IB_AETH_NO_CREDITS;
	if (ib->limited)
		ib->limit = ib_psn(aeth->msn + ib_credits(code));
}

/* Handle what came early, as far as its turn has come. */
static void ib_retry_settle(struct engine *engine, struct qp *qp)
{
	struct ib *ib = qp->ib;
	struct stripe *s = ib->stripe;
	uint32_t index, before;
	do {
		before = ib->una_psn;
		uint8_t early = s->early[before & (HDL_MAX_STRIPE - 1)];
		struct wqe_send *wqe =
		        early != STRIPE_MISSING ? ib_retry_find(qp, before, &index) : NULL;
		if (wqe != NULL && wqe->opcode == HDL_OP_READ) {
			read_more(engine, qp, wqe, read_due(ib, wqe, wqe->got),
			          early == STRIPE_PLACED_LAST);
		} else if (s->acked) {
			s->acked = false;
			s->came = s->acked_way;
			ib_retry_acknowledge(engine, qp, s->acked_psn);
		}
	} while (ib->una_psn != before);
	if (s->refused && !s->acked) {
		s->refused = false;
		s->came = s->refused_way;
		refused(engine, qp, &s->refusal);
	}
}

void ib_answered(struct engine *engine, struct qp *qp, const struct ib_packet *packet)
{
	struct ib *ib = qp->ib;
	uint32_t psn = packet->bth.psn;
	enum ib_aeth_kind kind =
	        packet->headers & IB_HAS_AETH ? ib_aeth_kind(packet->aeth.syndrome) : IB_AETH_ACK;
	if (ib->stripe != NULL)
		stripe_heard(ib->stripe);
	/* An answer about something that was not sent is left over from a former connection; one
	 * about something long finished is late. */
	if (ib_psn_distance(psn, ib->sent_psn) >= 0 || ib_psn_distance(psn, ib->una_psn) < -1)
		return;
	if (kind == IB_AETH_ACK && (packet->headers & IB_HAS_AETH) != 0)
		take_credits(ib, &packet->aeth);
	if (ib_psn_distance(psn, ib->una_psn) >= 0) {
		if (packet->op->operation == IB_READ_RESPONSE)
			read_response(engine, qp, packet);
		else if (packet->op->operation == IB_ATOMIC_ACK)
			atomic_response(engine, qp, packet);
		else if (kind == IB_AETH_ACK)
			ib_retry_acknowledge(engine, qp, psn + 1);
		else if (kind != IB_AETH_RESERVED)
			refused(engine, qp, packet);
		else
			counter_add(&engine->counters[ENGINE_BAD_PACKETS], 1);
		if (ib->stripe != NULL)
			ib_retry_settle(engine, qp);
	}
	ib_reap(engine, qp);
	if (qp->next != wq_tail(&qp->sq))
		engine_activate(engine, qp);
}

/* --- timeouts --- */

void ib_timeout(struct engine *engine, struct qp *qp)
{
	struct ib *ib = qp->ib;
	bool flight = ib_psn_distance(ib->sent_psn, ib->una_psn) > 0;
	if (qp->waiting) { /* RNR or delay: continue */
		qp->waiting = false;
		engine_activate(engine, qp);
		qp->answered = true; /* the answer timer was not running meanwhile: restart it */
	}
	if (!flight || qp->attr.timeout == 0 || !qp_reliable(qp))
		return;
	uint32_t index;
	if (!qp->answered && ib_retry_find(qp, ib->una_psn, &index) != NULL) {
		ib->passed = false;
		window_silent(&ib->window, ib->una_psn);
		if (ib->stripe != NULL)
			stripe_silent(ib->stripe, ib->una_psn, engine->now_ns);
		if (window_overdue(&ib->window, ib_timeout_ns(qp), qp->timer_ns)) {
			counter_add(&engine->counters[ENGINE_TIMEOUTS], 1);
			ib_retry_try_again(engine, qp, index, ib->una_psn, &qp->retries_left,
			                   HDL_WC_RETRY_EXC_ERR);
		} else {
			counter_add(&engine->counters[ENGINE_PROBES], 1);
			ib_retry_rewind_to(engine, qp, index, ib->una_psn);
		}
		ib_reap(engine, qp);
	}
	qp->answered = false;
	if (qp_state(qp) != HDL_QPS_ERR)
		engine_want_timer(engine, qp, window_wait_ns(&ib->window, ib_timeout_ns(qp)));
}
