/* iWARP: how a connection ends. Whoever finds an error tells the other end with a Terminate, which
 * is the last message of its direction (RFC 5040 section 4.8), and closes. The peer's Terminate
 * fails the request that it quotes, if that is a read or atomic; sends and writes are over before
 * anybody can refuse them, so an event reports what became of those. */
#include "queue/qp_state.h"
#include "transport/iwarp/iwarp.h"
#include "transport/op.h"
#include "wire/be.h"

/* --- codes --- */

enum rdmap_error iwarp_error_of(enum hdl_detail detail, bool tagged)
{
	switch (detail) {
	case HDL_DETAIL_NOT_VALID:
	case HDL_DETAIL_TYPE:
	case HDL_DETAIL_INSTANCE:
	case HDL_DETAIL_TOUCHED:
		return tagged ? RDMAP_ERROR_DDP_INVALID_STAG : RDMAP_ERROR_RDMAP_INVALID_STAG;
	case HDL_DETAIL_PD:
	case HDL_DETAIL_QP:
		return tagged ? RDMAP_ERROR_DDP_STAG_STREAM : RDMAP_ERROR_RDMAP_STAG_STREAM;
	case HDL_DETAIL_BOUNDS:
		return tagged ? RDMAP_ERROR_DDP_BOUNDS : RDMAP_ERROR_RDMAP_BOUNDS;
	case HDL_DETAIL_ACCESS: /* DDP has no code for it */
		return RDMAP_ERROR_RDMAP_ACCESS;
	case HDL_DETAIL_MISALIGNED:
		return RDMAP_ERROR_RDMAP_UNSPECIFIED;
	case HDL_DETAIL_GONE:
		return RDMAP_ERROR_RDMAP_STREAM_FAILED;
	default:
		return RDMAP_ERROR_RDMAP_PROTECTION;
	}
}

enum hdl_detail iwarp_detail_of(enum rdmap_error error)
{
	switch (error) {
	case RDMAP_ERROR_RDMAP_INVALID_STAG:
	case RDMAP_ERROR_DDP_INVALID_STAG:
	case RDMAP_ERROR_RDMAP_PROTECT_INVALIDATE:
	case RDMAP_ERROR_RDMAP_OPERATION_INVALIDATE:
		return HDL_DETAIL_NOT_VALID;
	case RDMAP_ERROR_RDMAP_STAG_STREAM:
	case RDMAP_ERROR_DDP_STAG_STREAM:
		return HDL_DETAIL_PD;
	case RDMAP_ERROR_RDMAP_BOUNDS:
	case RDMAP_ERROR_RDMAP_TO_WRAP:
	case RDMAP_ERROR_DDP_BOUNDS:
	case RDMAP_ERROR_DDP_WRAP:
	case RDMAP_ERROR_DDP_MESSAGE_TOO_LONG:
		return HDL_DETAIL_BOUNDS;
	case RDMAP_ERROR_RDMAP_ACCESS:
		return HDL_DETAIL_ACCESS;
	case RDMAP_ERROR_DDP_NO_BUFFER:
		return HDL_DETAIL_LIMIT;
	case RDMAP_ERROR_DDP_MSN_RANGE:
		return HDL_DETAIL_OUT_OF_WINDOW;
	default:
		return HDL_DETAIL_NONE;
	}
}

/* The status of a read or atomic that the peer refused. */
static enum hdl_wc_status end_status(const struct rdmap_terminate *t)
{
	if (t->layer == RDMAP_LAYER_RDMAP && t->etype == 1)
		return HDL_WC_REM_ACCESS_ERR;
	if ((t->layer == RDMAP_LAYER_RDMAP && (t->etype == 0 || t->code == 7 || t->code == 8)) ||
	    t->layer == RDMAP_LAYER_LLP)
		return HDL_WC_REM_OP_ERR;
	return HDL_WC_REM_INV_REQ_ERR;
}

/* --- ends --- */

/* Nothing that comes counts any more, and what is owed is not answered. */
static void end_listening(struct iwarp *iwarp, enum iwarp_ending ending)
{
	iwarp->deaf = true;
	iwarp->ending = (uint8_t)ending;
	iwarp->answered = iwarp->expected_read;
	iwarp->receive_at = iwarp->look_at = iwarp->stall_at = 0;
	iwarp_wake(iwarp);
}

static void end_fail(struct iwarp *iwarp)
{
	if (qp_state(iwarp->qp) != HDL_QPS_ERR)
		qp_enter(iwarp->engine, iwarp->qp, HDL_QPS_ERR);
}

static void end_with(struct iwarp *iwarp, enum rdmap_error error, const uint8_t *segment,
                     size_t segment_bytes)
{
	struct rdmap_terminate terminate;
	if (iwarp->terms.plain) { /* has no word for it */
		end_listening(iwarp, IWARP_ABORT);
		return;
	}
	iwarp_out_recall(iwarp);
	if (!iwarp->cut) {
		rdmap_terminate_make(error, segment, segment_bytes, &terminate);
		iwarp_out_last(iwarp, &terminate);
	}
	end_listening(iwarp, iwarp->cut ? IWARP_ABORT : IWARP_FIN);
}

void iwarp_refuse_segment(struct iwarp *iwarp, enum rdmap_error error, enum hdl_detail detail,
                          bool told, const uint8_t *segment, size_t segment_bytes)
{
	if (iwarp->deaf)
		return;
	if (iwarp->ending == IWARP_GOES_ON)
		end_with(iwarp, error, segment, segment_bytes);
	else /* after iwarp_close(): nothing can be sent any more */
		end_listening(iwarp, IWARP_ABORT);
	if (detail != HDL_DETAIL_NONE)
		tpt_count(iwarp->engine->tpt, detail);
	/* The request itself is wrong, not what it wants to access. */
	bool asks = iwarp->segment.opcode == RDMAP_READ_REQUEST ||
	            iwarp->segment.opcode == RDMAP_ATOMIC_REQUEST;
	bool malformed = detail == HDL_DETAIL_NONE || detail == HDL_DETAIL_MISALIGNED ||
	                 detail == HDL_DETAIL_OUT_OF_WINDOW ||
	                 (detail == HDL_DETAIL_LIMIT && asks) ||
	                 error == RDMAP_ERROR_DDP_MESSAGE_TOO_LONG;
	if (!told)
		op_event(iwarp->engine, iwarp->qp,
		         malformed ? HDL_EVENT_QP_REQUEST_ERR : HDL_EVENT_QP_ACCESS_ERR, detail);
	end_fail(iwarp);
}

void iwarp_refuse(struct iwarp *iwarp, enum rdmap_error error, enum hdl_detail detail, bool told)
{
	bool known = iwarp->segment_known;
	iwarp_refuse_segment(iwarp, error, detail, told, known ? iwarp->head : NULL,
	                     known ? iwarp->ulpdu_bytes : 0);
}

void iwarp_request_failed(struct iwarp *iwarp, struct wqe_send *wqe)
{
	struct qp *qp = iwarp->qp;
	struct wqe_send *oldest;
	iwarp_out_recall(iwarp);
	while ((oldest = wq_oldest(&qp->sq)) != NULL && oldest != wqe) {
		request_finish(oldest, HDL_WC_WR_FLUSH_ERR, HDL_DETAIL_NONE);
		op_complete_send(iwarp->engine, qp, oldest);
	}
	request_reap(iwarp->engine, qp); /* fails the queue pair, which sends a Terminate */
}

/* The read or atomic of ours that @t quotes; NULL: none. */
static struct wqe_send *end_quoted(const struct iwarp *iwarp, const struct rdmap_terminate *t)
{
	struct ddp_header h;
	if (t->ddp_header == NULL || ddp_decode(t->ddp_header, t->ddp_header_bytes, &h) != DDP_OK ||
	    h.tagged || h.qn != RDMAP_QUEUE_READ_REQUEST)
		return NULL;
	/* The sink tag of a read is its MSN, too (tx.c). Linux's siw (6.1) quotes the length of the
	 * read as its MSN, and the sink tag as it was. */
	if (t->rdmap_header != NULL && t->rdmap_header_bytes == RDMAP_READ_REQUEST_BYTES) {
		struct wqe_send *wqe = iwarp_named_read(iwarp, be32_load(t->rdmap_header));
		if (wqe != NULL)
			return wqe;
	}
	return iwarp_named_read(iwarp, h.msn);
}

void iwarp_terminated(struct iwarp *iwarp, const struct rdmap_terminate *terminate)
{
	enum rdmap_error error =
	        rdmap_error_find(terminate->layer, terminate->etype, terminate->code);
	enum hdl_detail detail = iwarp_detail_of(error);
	struct wqe_send *wqe = end_quoted(iwarp, terminate);
	end_listening(iwarp, IWARP_FIN);
	iwarp_out_drop(iwarp);
	if (wqe != NULL) {
		request_finish(wqe, end_status(terminate), detail);
		iwarp_request_failed(iwarp, wqe);
	} else {
		op_event(iwarp->engine, iwarp->qp, HDL_EVENT_QP_FATAL, detail);
	}
	end_fail(iwarp);
}

void iwarp_ended(void *context, enum stream_end why)
{
	struct iwarp *iwarp = context;
	bool before = iwarp->ended;
	iwarp->ended = true;
	if (iwarp->qp == NULL || before || why == STREAM_OPEN)
		return;
	if (iwarp->terms.plain && why == STREAM_CLOSED && !iwarp->deaf) {
		/* The peer has said all, and may still listen. */
		iwarp->end_due = true;
		iwarp_plain_end(iwarp);
		return;
	}
	iwarp_out_recall(iwarp);
	bool in_order = why == STREAM_CLOSED && mpa_stream_between(&iwarp->in) &&
	                iwarp_window_between(iwarp) && !iwarp->cut;
	if (iwarp->ending != IWARP_GOES_ON) {
		if (why == STREAM_BROKEN) {
			iwarp_out_drop(iwarp);
			iwarp->ending = IWARP_ABORT;
		}
		end_fail(iwarp); /* after iwarp_close(): receives that are left are flushed */
		return;
	}
	end_listening(iwarp, in_order ? IWARP_FIN : IWARP_ABORT);
	if (!in_order) {
		iwarp_out_drop(iwarp);
		op_event(iwarp->engine, iwarp->qp, HDL_EVENT_QP_FATAL, HDL_DETAIL_NONE);
	}
	end_fail(iwarp);
}

/* Which piece of @wqe is gone? */
static struct sg_result end_gone(const struct iwarp *iwarp, struct wqe_send *wqe)
{
	struct sg list =
	        sg_own(iwarp->engine, iwarp->qp, wqe_sge(wqe), wqe->num_sge, HDL_ACCESS_LOCAL_READ);
	struct span run;
	uint64_t covered;
	struct sg_result result = {.detail = HDL_DETAIL_NONE};
	while (sg_runs(&list, UINT32_MAX, &run, 1, &covered, &result.detail) > 0 &&
	       iwarp_out_sum(iwarp, &run, &(uint32_t){0}))
		sg_skip(&list, covered);
	result.key = sg_key(&list);
	if (result.detail == HDL_DETAIL_NONE)
		result.detail = HDL_DETAIL_GONE;
	return result;
}

/* The stream may end within an FPDU: nothing more can be said on it. */
void iwarp_source_gone(struct iwarp *iwarp)
{
	uint32_t index;
	bool gone = iwarp->qp != NULL && iwarp_out_gone(iwarp, &index);
	iwarp_out_drop(iwarp);
	end_listening(iwarp, IWARP_ABORT);
	if (gone) {
		struct wqe_send *wqe = wq_at(&iwarp->qp->sq, index);
		struct sg_result result = end_gone(iwarp, wqe);
		request_refused(iwarp->engine, wqe, &result);
		iwarp_request_failed(iwarp, wqe);
	}
	if (iwarp->qp != NULL)
		end_fail(iwarp);
}

/* A failure of our own, or the application's wish: the peer is told. */
void iwarp_leaving(struct engine *engine, struct qp *qp, enum hdl_qp_state state)
{
	struct iwarp *iwarp = qp->iwarp;
	(void)engine;
	if (iwarp == NULL || iwarp->deaf)
		return;
	if (iwarp->ending != IWARP_GOES_ON) /* after iwarp_close() */
		end_listening(iwarp, (enum iwarp_ending)iwarp->ending);
	else if (state == HDL_QPS_ERR)
		end_with(iwarp, RDMAP_ERROR_RDMAP_CATASTROPHIC, NULL, 0);
	else
		end_listening(iwarp, iwarp->out != NULL ? IWARP_ABORT : IWARP_FIN);
}

/* What is in flight is flushed. */
void iwarp_left(struct engine *engine, struct qp *qp, enum hdl_qp_state state)
{
	struct iwarp *iwarp = qp->iwarp;
	(void)engine;
	if (iwarp == NULL)
		return;
	iwarp_rx_reset(iwarp);
	iwarp_window_drop(iwarp);
	iwarp->delay_at = 0;
	iwarp->delay_begins = false;
	if (state != HDL_QPS_RESET)
		return;
	if (iwarp->hold_waits) {
		struct iwarp **at = &iwarp->engine->iwarp_pool->waiting;
		while (*at != iwarp)
			at = &(*at)->hold_next;
		*at = iwarp->hold_next;
		iwarp->hold_waits = false;
	}
	if (iwarp->ending == IWARP_ABORT)
		iwarp_out_drop(iwarp);
	iwarp->qp = NULL;
	qp->behind = NULL;
	qp->behind_room = 0;
	qp->iwarp = NULL;
	qp->transport = iwarp->before;
	iwarp_wake(iwarp);
}

void iwarp_close(struct iwarp *iwarp)
{
	if (iwarp->qp == NULL)
		return;
	iwarp->closing = true;
	iwarp_decide(iwarp);
}

void iwarp_decide(struct iwarp *iwarp)
{
	struct qp *qp = iwarp->qp;
	if (qp == NULL || !iwarp->closing || iwarp->ending != IWARP_GOES_ON ||
	    !iwarp_drained(iwarp))
		return;
	iwarp->ending = IWARP_FIN;
	if (qp_state(qp) == HDL_QPS_RTS)
		qp_enter(iwarp->engine, qp, HDL_QPS_SQD);
	iwarp_wake(iwarp);
}

enum iwarp_ending iwarp_ending(const struct iwarp *iwarp)
{
	return (enum iwarp_ending)iwarp->ending;
}
