/* Cells: the requester's answers. What is acknowledged completes; what is lost is sent again, from
 * the first cell that is missing on. */
#include <assert.h>
#include <string.h>

#include "transport/cell/cells.h"
#include "transport/op.h"
#include "wire/be.h"

enum cells_code cells_code(const struct cell *cell, uint32_t *value)
{
	uint32_t word = be32_load(cell->data);
	*value = word & 0xffffff;
	return word >> 24 < CELLS_CODE_COUNT ? (enum cells_code)(word >> 24) : CELLS_CODE_COUNT;
}

enum hdl_wc_status cells_status(enum cells_code code)
{
	switch (code) {
	case CELLS_INVALID:
		return HDL_WC_REM_INV_REQ_ERR;
	case CELLS_ACCESS:
		return HDL_WC_REM_ACCESS_ERR;
	case CELLS_FAILED:
		return HDL_WC_REM_OP_ERR;
	default:
		return HDL_WC_BAD_RESP_ERR;
	}
}

/* --- the window --- */

static void cells_grow(struct cells *cells, uint32_t acknowledged)
{
	cells->grown += acknowledged;
	if (cells->grown < cells->window)
		return;
	cells->grown = 0;
	uint32_t step = cells->window / 8 + 1;
	cells->window =
	        cells->window + step < CELLS_WINDOW_MAX ? cells->window + step : CELLS_WINDOW_MAX;
}

static void cells_shrink(struct cells *cells)
{
	cells->grown = 0;
	cells->window /= 2;
	if (cells->window < CELLS_WINDOW_MIN)
		cells->window = CELLS_WINDOW_MIN;
}

/* --- going back --- */

/* Everything behind una was lost, or is treated so: send it again. */
static void cells_go_back(struct engine *engine, struct qp *qp)
{
	struct cells *cells = qp->cells;
	uint32_t first = wq_tail(&qp->sq);
	for (uint32_t at = wq_head(&qp->sq); at != first; at++) {
		struct wqe_send *wqe = wq_at(&qp->sq, at);
		if (!wqe->numbered || wqe->state == WQE_DONE)
			continue;
		if (first == wq_tail(&qp->sq))
			first = at;
		break;
	}
	for (uint32_t at = first; at != wq_tail(&qp->sq) && (int32_t)(at - qp->next) <= 0; at++) {
		struct wqe_send *wqe = wq_at(&qp->sq, at);
		if (!wqe->numbered || wqe->state == WQE_DONE)
			continue;
		wqe->state = WQE_READY;
		wqe->offset = wqe->opcode == HDL_OP_READ   ? wqe->got
		              : wqe->msn == cells->una_psn ? cells->una_cell * CELL_DATA_BYTES
		                                           : 0;
	}
	if ((int32_t)(first - qp->next) < 0)
		qp->next = first;
	qp->unanswered = qp->reads_open = 0;
	cells->flight = cells->read_open = 0;
	cells->cutting = false;
	cells->response.open = false;
	counter_add(&engine->counters[ENGINE_RETRIES], 1);
	engine_activate(engine, qp);
}

/* The request that una belongs to; NULL: nothing is unanswered. */
static struct wqe_send *cells_oldest(const struct qp *qp)
{
	for (uint32_t at = wq_head(&qp->sq); at != wq_tail(&qp->sq); at++) {
		struct wqe_send *wqe = wq_at(&qp->sq, at);
		if (wqe->numbered && wqe->state != WQE_DONE)
			return wqe;
	}
	return NULL;
}

static void cells_fail(struct engine *engine, struct qp *qp, struct wqe_send *wqe,
                       enum hdl_wc_status status)
{
	request_finish(wqe, status, HDL_DETAIL_NONE);
	request_reap(engine, qp);
}

/* --- answers --- */

static void cells_progress(struct qp *qp)
{
	qp->answered = true;
	qp->cells->asked_again = false;
	qp->retries_left = qp->attr.retry_cnt;
	qp->rnr_left = qp->attr.rnr_retry;
}

/* @wqe, a send or write that was sent, has arrived, perhaps before it was sent again. */
static void cells_arrived(struct qp *qp, struct wqe_send *wqe)
{
	struct cells *cells = qp->cells;
	uint32_t count = cell_count(wqe->length) - cells->una_cell;
	assert(wqe->state != WQE_SENT || qp->unanswered > 0);
	qp->unanswered -= wqe->state == WQE_SENT;
	if (wqe->state != WQE_SENT)
		cells->cutting = false;
	request_finish(wqe, HDL_WC_SUCCESS, HDL_DETAIL_NONE);
	cells->flight -= count < cells->flight ? count : cells->flight;
	cells_grow(cells, count);
	cells->una_psn = cells_psn(wqe->msn + 1);
	cells->una_cell = 0;
	cells_progress(qp);
}

/* @count cells of @wqe, the oldest packet, have arrived. */
static void cells_partly(struct qp *qp, struct wqe_send *wqe, uint32_t count)
{
	struct cells *cells = qp->cells;
	uint32_t more = count - cells->una_cell, bytes = count * CELL_DATA_BYTES;
	cells->flight -= more < cells->flight ? more : cells->flight;
	cells->una_cell = count;
	if (wqe->state == WQE_READY && wqe->offset < bytes) { /* no need to send them again */
		wqe->offset = bytes;
		cells->cutting = false;
	}
	cells_grow(cells, more);
	cells_progress(qp);
}

/* All packets up to @psn have arrived, and @count cells of the next one. False: that cannot be. */
static bool cells_acknowledge(struct qp *qp, uint32_t psn, uint32_t count)
{
	struct cells *cells = qp->cells;
	uint32_t next = cells_psn(psn + 1);
	int32_t ahead = cells_distance(next, cells->sent_psn);
	if (cells_distance(next, cells->una_psn) < 0)
		return true; /* late: it says less than is known */
	if (ahead > 0 || (ahead == 0 && count > cells->sent_cell))
		return false;
	for (uint32_t at = wq_head(&qp->sq); at != wq_tail(&qp->sq); at++) {
		struct wqe_send *wqe = wq_at(&qp->sq, at);
		if (wqe->state == WQE_DONE)
			continue;
		if (!wqe->numbered || wqe->opcode == HDL_OP_READ)
			break; /* only its data says that a read is over */
		if (cells_distance(wqe->msn, psn) <= 0) {
			cells_arrived(qp, wqe);
			continue;
		}
		if (count >= cell_count(wqe->length))
			return count == 0;
		if (wqe->msn == next && count > cells->una_cell)
			cells_partly(qp, wqe, count);
		break;
	}
	return true;
}

/* The peer has no receive for the packet @psn: wait. */
static void cells_not_ready(struct engine *engine, struct qp *qp, uint32_t psn, uint32_t timer)
{
	struct wqe_send *wqe = cells_oldest(qp);
	if (wqe == NULL || wqe->msn != psn || wqe->opcode == HDL_OP_READ || qp->waiting)
		return;
	qp->answered = true;
	qp->cells->una_cell = 0; /* from its first cell on */
	cells_go_back(engine, qp);
	if (qp->attr.rnr_retry != 7) {
		if (qp->rnr_left == 0) {
			cells_fail(engine, qp, wqe, HDL_WC_RNR_RETRY_EXC_ERR);
			return;
		}
		qp->rnr_left--;
	}
	qp->waiting = true;
	engine_drop_timer(engine, qp);
	engine_want_timer(engine, qp, request_rnr_ns(timer & 31));
}

void cells_answered(struct engine *engine, struct qp *qp, const struct cell *cell)
{
	struct cells *cells = qp->cells;
	uint32_t value;
	enum cells_code code = cells_code(cell, &value);
	bool about = code >= CELLS_NOT_READY;
	uint32_t psn = about ? cells_psn(cell->psn - 1) : cell->psn;
	if (code == CELLS_CODE_COUNT || !cells_acknowledge(qp, psn, about ? 0 : value)) {
		counter_add(&engine->counters[ENGINE_BAD_PACKETS], 1);
		return;
	}
	struct wqe_send *wqe = cells_oldest(qp);
	/* Only what is the oldest now can be refused, and only once. */
	bool current = cells_psn(psn + 1) == cells->una_psn;
	if (code == CELLS_AGAIN && current && cells->flight > 0) {
		cells_shrink(cells);
		qp->answered = true;
		cells_go_back(engine, qp);
	} else if (code == CELLS_NOT_READY && current) {
		cells_not_ready(engine, qp, cell->psn, value);
	} else if (about && code != CELLS_NOT_READY && wqe != NULL && current) {
		cells_fail(engine, qp, wqe, cells_status(code));
		return;
	}
	request_reap(engine, qp);
	if (qp->next != wq_tail(&qp->sq))
		engine_activate(engine, qp);
}

/* --- read responses --- */

/* The response to the read request at una is complete. */
static void cells_read_done(struct engine *engine, struct qp *qp, struct wqe_send *wqe,
                            uint32_t bytes)
{
	struct cells *cells = qp->cells;
	wqe->got += bytes;
	cells->una_psn = cells_psn(cells->una_psn + 1);
	cells->flight -= cells->flight > 0;
	cells->read_open -= cells->read_open > 0;
	counter_add(&engine->counters[ENGINE_BYTES_READ], bytes);
	cells_grow(cells, 1);
	cells_progress(qp);
	if (wqe->got == wqe->length && wqe->state == WQE_SENT) {
		assert(qp->unanswered > 0 && qp->reads_open > 0);
		qp->unanswered--;
		qp->reads_open--;
		request_finish(wqe, HDL_WC_SUCCESS, HDL_DETAIL_NONE);
	}
	request_reap(engine, qp);
	if (qp->next != wq_tail(&qp->sq))
		engine_activate(engine, qp);
}

void cells_responded(struct engine *engine, struct qp *qp, const struct cell *cell)
{
	struct cells *cells = qp->cells;
	uint64_t offset;
	/* A response says that everything before it has arrived. */
	if (cells_distance(cell->psn, cells->una_psn) < 0 ||
	    !cells_acknowledge(qp, cells_psn(cell->psn - 1), 0)) {
		cells_drop(engine);
		return;
	}
	struct wqe_send *wqe = cells_oldest(qp);
	if (wqe == NULL || wqe->opcode != HDL_OP_READ || cells->read_open == 0) {
		cells_drop(engine); /* nothing was asked for */
		request_reap(engine, qp);
		return;
	}
	uint32_t want = wqe->length - wqe->got < CELLS_READ_BYTES ? wqe->length - wqe->got
	                                                          : CELLS_READ_BYTES;
	bool expected = cell->psn == cells->una_psn &&
	                cell->number == (cells->response.open ? cells->response.next : 0);
	if (!expected) {
		/* Behind: it came twice. Ahead: something was lost, so ask again, once. */
		bool behind = cell->psn == cells->una_psn && cells->response.open &&
		              cell->number < cells->response.next;
		if (!behind && !cells->asked_again) {
			cells->asked_again = true;
			cells_shrink(cells);
			cells_go_back(engine, qp);
		}
		request_reap(engine, qp);
		return;
	}
	enum cell_step step = cell_assemble(&cells->response, cell, &offset);
	bool whole = step == CELL_WHOLE || step == CELL_CUT_WHOLE;
	if ((step != CELL_PLACE && step != CELL_CUT && !whole) || offset > want ||
	    cell->data_bytes > want - offset || whole != (offset + cell->data_bytes == want)) {
		counter_add(&engine->counters[ENGINE_BAD_PACKETS], 1);
		cells->response.open = false; /* the timer asks again */
		return;
	}
	if (!request_scatter(engine, qp, wqe, wqe->got + (uint32_t)offset, cell->data,
	                     cell->data_bytes)) {
		request_reap(engine, qp);
		return;
	}
	qp->answered = true; /* the peer is there, however much gets lost */
	qp->retries_left = qp->attr.retry_cnt;
	if (cell->number == 0)
		cells->asked_again = false;
	if (whole)
		cells_read_done(engine, qp, wqe, want);
}

/* --- time --- */

void cells_timeout(struct engine *engine, struct qp *qp)
{
	struct cells *cells = qp->cells;
	if (qp->waiting) {
		qp->waiting = false;
		engine_activate(engine, qp);
	}
	if (cells == NULL || cells->flight == 0 || !cells_acknowledged(qp))
		return;
	if (qp->answered) { /* since the timer began */
		qp->answered = false;
		engine_want_timer(engine, qp, cells_wait_ns(qp));
		return;
	}
	counter_add(&engine->counters[ENGINE_TIMEOUTS], 1);
	struct wqe_send *wqe = cells_oldest(qp);
	if (wqe == NULL)
		return;
	if (qp->retries_left == 0) {
		cells_fail(engine, qp, wqe, HDL_WC_RETRY_EXC_ERR);
		return;
	}
	qp->retries_left--;
	cells_shrink(cells);
	cells_go_back(engine, qp);
}
