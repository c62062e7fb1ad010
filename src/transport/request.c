/* What all requests have in common, whatever path they take. */
#include "transport/request.h"

#include <assert.h>
#include <string.h>

#include "base/crc.h"
#include "queue/qp_state.h"
#include "transport/op.h"
#include "transport/respond.h"

void request_refused(struct engine *engine, struct wqe_send *wqe, const struct sg_result *result)
{
	tpt_count(engine->tpt, result->detail);
	if (result->detail == HDL_DETAIL_GONE)
		op_memory_gone(engine, result->key);
	request_finish(wqe, op_local_status(result->detail), result->detail);
}

bool request_gather(struct engine *engine, struct qp *qp, struct wqe_send *wqe, uint32_t offset,
                    void *out, uint32_t count)
{
	assert(offset <= wqe->length && count <= wqe->length - offset);
	if (wqe->flags & HDL_SEND_INLINE) {
		memcpy(out, wqe_inline(wqe) + offset, count);
		return true;
	}
	if (count == 0)
		return true;
	if (sg_copy_short(engine, qp->pd, wqe_sge(wqe), wqe->num_sge, offset, out, count,
	                  HDL_ACCESS_LOCAL_READ))
		return true;
	struct sg from = sg_own(engine, qp, wqe_sge(wqe), wqe->num_sge, HDL_ACCESS_LOCAL_READ);
	struct hdl_sge piece;
	struct sg to = sg_plain(&piece, out, count);
	sg_skip(&from, offset);
	struct sg_result result = sg_move(&engine->own.ops, MOVE_BOTH_OWN, &to, &from, count);
	if (result.detail == HDL_DETAIL_NONE)
		return true;
	request_refused(engine, wqe, &result);
	return false;
}

bool request_scatter(struct engine *engine, struct qp *qp, struct wqe_send *wqe, uint32_t offset,
                     const void *bytes, uint32_t count)
{
	/* The caller has judged what the peer sent. */
	assert(request_is_read(wqe) && offset <= wqe->length && count <= wqe->length - offset);
	if (count == 0)
		return true;
	struct hdl_sge piece;
	struct sg from = sg_plain(&piece, bytes, count);
	struct sg to = sg_own(engine, qp, wqe_sge(wqe), wqe->num_sge, HDL_ACCESS_LOCAL_WRITE);
	sg_skip(&to, offset);
	struct sg_result result = sg_move(&engine->own.ops, MOVE_BOTH_OWN, &to, &from, count);
	if (result.detail == HDL_DETAIL_NONE)
		return true;
	request_refused(engine, wqe, &result);
	return false;
}

bool request_gather_sum(struct engine *engine, struct qp *qp, struct wqe_send *wqe, uint32_t offset,
                        void *out, uint32_t count, uint32_t *sum)
{
	if ((wqe->flags & HDL_SEND_INLINE) != 0 || count <= MOVE_SHORT) {
		if (!request_gather(engine, qp, wqe, offset, out, count))
			return false;
		*sum = crc32c(*sum, out, count);
		return true;
	}
	struct sg from = sg_own(engine, qp, wqe_sge(wqe), wqe->num_sge, HDL_ACCESS_LOCAL_READ);
	sg_skip(&from, offset);
	struct sg_result result = sg_gather_sum(engine, &from, out, count, sum);
	if (result.detail == HDL_DETAIL_NONE)
		return true;
	request_refused(engine, wqe, &result);
	return false;
}

bool request_check(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	struct sg list = sg_own(engine, qp, wqe_sge(wqe), wqe->num_sge, HDL_ACCESS_LOCAL_WRITE);
	struct sg_result result = sg_check(&list);
	if (result.detail == HDL_DETAIL_NONE)
		return true;
	request_refused(engine, wqe, &result);
	return false;
}

uint64_t request_rnr_ns(uint32_t code)
{
	static const uint32_t us[32] = {
	        655360, 10,    20,    30,    40,    60,     80,     120,    160,    240,   320,
	        480,    640,   960,   1280,  1920,  2560,   3840,   5120,   7680,   10240, 15360,
	        20480,  30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520};
	return us[code & 31] * 1000ull;
}

static void run_memory(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	enum hdl_detail detail = op_memory(engine, qp, wqe);
	if (detail != HDL_DETAIL_NONE) {
		tpt_count(engine->tpt, detail);
		request_finish(wqe, HDL_WC_MEM_MGT_ERR, detail);
	} else if (wqe->opcode != HDL_OP_REGISTER_SEND) {
		request_finish(wqe, HDL_WC_SUCCESS, HDL_DETAIL_NONE);
	}
}

bool request_register(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	if (wqe->marks & WQE_PREPARED)
		return true;
	run_memory(engine, qp, wqe);
	wqe->marks |= WQE_PREPARED;
	return wqe->state != WQE_DONE;
}

enum step request_own(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	switch (wqe->opcode) {
	case HDL_OP_DELAY:
		if (wqe->marks & WQE_PREPARED) {
			request_finish(wqe, HDL_WC_SUCCESS, HDL_DETAIL_NONE);
			return STEP_NEXT;
		}
		wqe->marks |= WQE_PREPARED;
		qp->waiting = true;
		engine_want_timer(engine, qp, wqe->u.delay.ns);
		return STEP_WAIT;
	case HDL_OP_BIND:
	case HDL_OP_INVALIDATE:
	case HDL_OP_REGISTER:
		run_memory(engine, qp, wqe);
		return STEP_NEXT;
	default:
		return STEP_BY_TARGET;
	}
}

bool request_may_run(const struct qp *qp)
{
	enum hdl_qp_state state = qp_state(qp);
	return state == HDL_QPS_RTS || (state == HDL_QPS_SQD && request_begun(qp));
}

/* The oldest request failed and has been completed: decide what happens to the queue pair. */
static void send_failed(struct engine *engine, struct qp *qp, uint8_t opcode,
                        enum hdl_wc_status status, enum hdl_detail detail)
{
	bool registration = status == HDL_WC_MEM_MGT_ERR &&
	                    (opcode == HDL_OP_REGISTER || opcode == HDL_OP_REGISTER_SEND);
	if (status == HDL_WC_RNR_RETRY_EXC_ERR && engine->sink.not_ready != NULL)
		engine->sink.not_ready(engine->sink.context, qp);
	if (qp->type == HDL_QP_RD) {
		/* Its messages are independent: the next one gets its turn (rd.h). */
	} else if (!qp_reliable(qp)) {
		qp_enter(engine, qp, HDL_QPS_SQE);
	} else if (registration && qp->register_error == HDL_REGISTER_ERROR_DRAIN) {
		/* MEMMGT figure 11 option 1: drained, the rest is flushed, whenever it was posted,
		 * and receiving continues. */
		op_flush_send(engine, qp);
		qp->flushes = true;
		qp_enter(engine, qp, HDL_QPS_SQD);
	} else {
		if (registration) { /* option 2: error state, and the stream is terminated */
			qp->close_due = true;
			qp->close_event = HDL_EVENT_QP_FATAL;
			qp->close_detail = (uint8_t)detail;
			qp->close_imm = false;
			engine_owe(engine, qp);
		}
		qp_enter(engine, qp, HDL_QPS_ERR);
	}
}

/* Is @index the first piece of @wqe, of those with octets, that has its key? */
static bool is_first_of_key(struct wqe_send *wqe, uint32_t index)
{
	const struct hdl_sge *pieces = wqe_sge(wqe);
	if (pieces[index].length == 0)
		return false;
	for (uint32_t i = 0; i < index; i++)
		if (pieces[i].length > 0 && pieces[i].key.v == pieces[index].key.v)
			return false;
	return true;
}

/* MEMMGT figure 18A step 1814: table D holds for what is read, too. The answer to the read @wqe is
 * in place, all of it, and what came before it: one-touch memory that it went to is over. If other
 * memory was used up before, by an answer that was placed at the same time, the read fails. */
static void request_touch(struct engine *engine, struct wqe_send *wqe)
{
	const struct hdl_sge *pieces = wqe_sge(wqe);
	for (uint32_t i = 0; i < wqe->num_sge; i++) {
		struct tpt_entry entry;
		if (!is_first_of_key(wqe, i) ||
		    !tpt_read(&engine->tpt->view, pieces[i].key, &entry) ||
		    (entry.access & HDL_ACCESS_ONE_TOUCH) == 0 ||
		    entry.instance != (uint8_t)pieces[i].key.v)
			continue;
		if (respond_touch(engine, pieces[i].key, &respond_whole_message) == TPT_TERMINATE)
			request_finish(wqe, op_local_status(HDL_DETAIL_TOUCHED),
			               HDL_DETAIL_TOUCHED);
	}
}

void request_reap(struct engine *engine, struct qp *qp)
{
	struct wqe_send *wqe;
	while ((wqe = wq_oldest(&qp->sq)) != NULL && wqe->state == WQE_DONE) {
		uint8_t opcode = wqe->opcode;
		if (opcode == HDL_OP_READ && wqe->status == HDL_WC_SUCCESS)
			request_touch(engine, wqe);
		enum hdl_wc_status status = wqe->status;
		enum hdl_detail detail = wqe->vendor_err;
		op_complete_send(engine, qp, wqe);
		if (status != HDL_WC_SUCCESS) {
			if (qp_state(qp) != HDL_QPS_ERR)
				send_failed(engine, qp, opcode, status, detail);
			return;
		}
	}
	if (qp->draining && qp->unanswered == 0 && !request_begun(qp)) {
		qp->draining = false;
		op_event(engine, qp, HDL_EVENT_SQ_DRAINED, HDL_DETAIL_NONE);
	}
}

void request_timeout(struct engine *engine, struct qp *qp)
{
	if (!qp->waiting)
		return;
	qp->waiting = false;
	engine_activate(engine, qp);
}
