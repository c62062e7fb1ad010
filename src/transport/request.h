/* What all requests have in common, whatever path they take: executing those that need no peer,
 * gathering their data, how they end, and the order in which they complete. */
#ifndef TRANSPORT_REQUEST_H
#define TRANSPORT_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "queue/wqe.h"
#include "transport/engine.h"
#include "transport/sg.h"

/* The outcome of a request's turn. */
enum step {
	STEP_NEXT,    /* executed or sent: continue with the next one */
	STEP_WAIT,    /* an answer or a timer will resume it */
	STEP_NO_ROOM, /* the lane or network is full: try again soon */
	STEP_MORE,    /* partly executed: continue in the next turn */
	STEP_BY_TARGET
};

/* @wqe is finished. */
static inline void request_finish(struct wqe_send *wqe, enum hdl_wc_status status,
                                  enum hdl_detail detail)
{
	wqe->state = WQE_DONE;
	wqe->status = (uint8_t)status;
	wqe->vendor_err = (uint8_t)detail;
}

static inline bool request_is_atomic(const struct wqe_send *wqe)
{
	return wqe->opcode == HDL_OP_COMPARE_SWAP || wqe->opcode == HDL_OP_FETCH_ADD;
}

static inline bool request_is_read(const struct wqe_send *wqe)
{
	return wqe->opcode == HDL_OP_READ || request_is_atomic(wqe);
}

/* Has @wqe finished with an error? Requests before it may still have to be executed; nothing behind
 * it starts. */
static inline bool request_failed(const struct wqe_send *wqe)
{
	return wqe->state == WQE_DONE && wqe->status != HDL_WC_SUCCESS;
}

/* Has the next element been started? A message that is to be repeated has, and counts as in flight.
 */
static inline bool request_begun(const struct qp *qp)
{
	if (qp->next == wq_tail(&qp->sq))
		return false;
	const struct wqe_send *wqe = wq_at(&qp->sq, qp->next);
	return wqe->state != WQE_READY || wqe->numbered || (wqe->marks & WQE_COPYING) != 0;
}

/* May the next element be executed in the state of @qp? While draining, only if it has been started
 * (IBTA section 10.3.1.5). */
bool request_may_run(const struct qp *qp);

/* Execute @wqe, or start to, if it needs no peer: STEP_NEXT, STEP_WAIT. STEP_BY_TARGET: it has to
 * be sent. */
enum step request_own(struct engine *engine, struct qp *qp, struct wqe_send *wqe);
/* Do the registration of REGISTER_SEND, once; the message is sent after it. False: it was refused,
 * and the request is finished. */
bool request_register(struct engine *engine, struct qp *qp, struct wqe_send *wqe);

/* Copy @count bytes of the data of @wqe, starting at @offset, to @out. False: a piece was refused,
 * and the request is finished. */
bool request_gather(struct engine *engine, struct qp *qp, struct wqe_send *wqe, uint32_t offset,
                    void *out, uint32_t count);
/* The same, and continue *sum, the CRC-32C of the bytes, in the same pass where possible. */
bool request_gather_sum(struct engine *engine, struct qp *qp, struct wqe_send *wqe, uint32_t offset,
                        void *out, uint32_t count, uint32_t *sum);
/* Place data that came for the read or atomic @wqe, starting at @offset. False: a piece was
 * refused, and the request is finished. */
bool request_scatter(struct engine *engine, struct qp *qp, struct wqe_send *wqe, uint32_t offset,
                     const void *bytes, uint32_t count);
/* Would every piece of the read or atomic @wqe be granted? False: it is finished. */
bool request_check(struct engine *engine, struct qp *qp, struct wqe_send *wqe);
/* A local piece was refused: @wqe is finished. */
void request_refused(struct engine *engine, struct wqe_send *wqe, const struct sg_result *result);

/* Complete finished requests, oldest first. */
void request_reap(struct engine *engine, struct qp *qp);

/* Table 45 of IBTA volume 1: the RNR timer codes, in nanoseconds. */
uint64_t request_rnr_ns(uint32_t code);

/* The turn of @qp: execute its requests in order, within the limits of one turn, and complete those
 * that are finished. True if anything was done. */
static inline bool request_run(struct engine *engine, struct qp *qp,
                               enum step (*execute)(struct engine *engine, struct qp *qp,
                                                    struct wqe_send *wqe))
{
	bool did = false;
	unsigned budget = ENGINE_TX_BATCH;
	uint64_t bytes = 0;
	enum step step = STEP_NEXT;
	while (qp->next != wq_tail(&qp->sq) && !qp->waiting && budget > 0 && request_may_run(qp)) {
		struct wqe_send *wqe = wq_at(&qp->sq, qp->next);
		if (wqe->state == WQE_READY || (wqe->marks & WQE_PARTIAL) != 0) {
			step = execute(engine, qp, wqe);
			did |= step == STEP_NEXT || step == STEP_MORE;
			if (step != STEP_NEXT)
				break;
			bytes += wqe->length;
			budget = bytes < engine->turn_bytes ? budget - 1 : 0;
		}
		if (request_failed(wqe))
			break;
		qp->next++;
	}
	request_reap(engine, qp);
	if (step == STEP_NO_ROOM || step == STEP_MORE ||
	    (budget == 0 && qp->next != wq_tail(&qp->sq)))
		engine_activate(engine, qp);
	return did;
}
/* The timer of @qp has expired, for a queue pair on which only a delay uses the timer. */
void request_timeout(struct engine *engine, struct qp *qp);

#endif
