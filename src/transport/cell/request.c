/* Cells: the responder. Acknowledged packets are executed in the order of their cells, through
 * op.h. A cell that comes too early makes the sender go back; one that came before is not executed
 * twice. Of packets that are not acknowledged, those with a gap are dropped. */
#include <string.h>

#include "queue/qp_state.h"
#include "transport/cell/cells.h"
#include "transport/op.h"
#include "transport/respond.h"
#include "wire/be.h"

void cells_begin_responder(struct qp *qp)
{
	struct cells *cells = qp->cells;
	cells->expected_psn = cells_psn(qp->attr.rq_psn);
	cells->request = (struct cell_assembly){0};
	cells->since_ack = 0;
	cells->reads_put = cells->reads_sent = 0;
	cells->answering = cells->answer_due = cells->write_refused = false;
	cells->touch_due = cells->read_last = false;
}

void cells_owe(struct engine *engine, struct qp *qp, enum cells_code code, uint32_t psn,
               uint32_t value)
{
	struct cells *cells = qp->cells;
	cells->answer_due = true;
	cells->answer_code = (uint8_t)code;
	cells->answer_psn = cells_psn(psn);
	cells->answer_value = value;
	cells->since_ack = 0;
	engine_owe(engine, qp);
}

/* Tell how much has arrived in order. */
static void cells_owe_place(struct engine *engine, struct qp *qp, enum cells_code code)
{
	const struct cells *cells = qp->cells;
	cells_owe(engine, qp, code, cells->expected_psn - 1,
	          cells->request.open ? cells->request.next : 0);
}

/* The packet cannot be executed: tell the peer and fail. One that is not acknowledged is dropped.
 */
static void cells_refuse(struct engine *engine, struct qp *qp, enum cells_code code,
                         enum hdl_detail detail, bool told)
{
	struct cells *cells = qp->cells;
	cells->request.open = false;
	cells->write_refused = true;
	tpt_count(engine->tpt, detail);
	if (!qp_reliable(qp))
		return;
	cells_owe(engine, qp, code, cells->expected_psn, 0);
	respond_refused(engine, qp, code == CELLS_INVALID, detail, told);
}

static enum cells_code cells_code_for(enum hdl_detail detail)
{
	return detail == HDL_DETAIL_GONE ? CELLS_FAILED : CELLS_ACCESS;
}

/* A message, or part of it, found no receive or failed in the one that it found. */
static void cells_not_received(struct engine *engine, struct qp *qp, enum op_received received,
                               enum hdl_detail detail)
{
	struct cells *cells = qp->cells;
	cells->request.open = false;
	cells->write_refused = true;
	switch (received) {
	case OP_NO_RECEIVE:
		if (!qp_reliable(qp)) {
			counter_add(&engine->counters[ENGINE_DROPPED_NO_RECV], 1);
			return;
		}
		counter_add(&engine->counters[ENGINE_RNR_SENT], 1);
		qp->nak_sent = true; /* what follows is not asked for */
		cells_owe(engine, qp, CELLS_NOT_READY, cells->expected_psn, qp->attr.min_rnr_timer);
		return;
	case OP_TOO_LONG:
		if (qp_reliable(qp))
			cells_refuse(engine, qp, CELLS_INVALID, detail, true);
		return;
	default: /* our own fault, which the completion of the receive reports */
		if (qp_reliable(qp))
			cells_owe(engine, qp, CELLS_FAILED, cells->expected_psn, 0);
		if (qp_state(qp) != HDL_QPS_ERR)
			qp_enter(engine, qp, HDL_QPS_ERR);
	}
}

/* Consume a receive for a message of @length that ends with @cell. */
static bool cells_receive(struct engine *engine, struct qp *qp, const struct cell *cell, bool here,
                          uint32_t length)
{
	bool immediate = (cell->flags & CELL_IMMEDIATE) != 0;
	uint32_t word = 0;
	if (immediate)
		be32_store((uint8_t *)&word, cell->immediate);
	struct op_message message = {
	        .bytes = here ? (void *)(uintptr_t)cell->data : NULL,
	        .length = length,
	        .src_qpn = qp->attr.dest_qpn,
	        .imm = word,
	        .wc_flags = immediate ? HDL_WC_WITH_IMM : 0u,
	        .wc_opcode = cell->operation == CELL_SEND ? HDL_WC_RECV : HDL_WC_RECV_WRITE_IMM,
	        .solicited = (cell->flags & CELL_SOLICITED) != 0};
	enum hdl_detail detail;
	struct hdl_key key;
	enum op_received received = op_receive(engine, qp, &message, &detail, &key);
	if (received == OP_RECEIVED) {
		counter_add(&engine->counters[ENGINE_BYTES_RECEIVED], length);
		return true;
	}
	cells_not_received(engine, qp, received, detail);
	return false;
}

static bool cells_run_send(struct engine *engine, struct qp *qp, const struct cell *cell,
                           uint64_t offset)
{
	bool last = (cell->flags & CELL_LAST) != 0;
	if (last && offset == 0)
		return cells_receive(engine, qp, cell, true, cell->data_bytes);
	if (offset + cell->data_bytes > HDL_MAX_MESSAGE) {
		cells_refuse(engine, qp, CELLS_INVALID, HDL_DETAIL_NONE, false);
		return false;
	}
	uint32_t end = (uint32_t)offset + cell->data_bytes;
	enum hdl_detail detail = HDL_DETAIL_NONE;
	enum op_received received =
	        op_receive_part(engine, qp, end, (uint32_t)offset, (void *)(uintptr_t)cell->data,
	                        cell->data_bytes, &detail);
	if (received != OP_RECEIVED) {
		cells_not_received(engine, qp, received, detail);
		return false;
	}
	return !last || cells_receive(engine, qp, cell, false, end);
}

/* Only the first cell says where a write goes, and none says how long it is: each is checked. */
static bool cells_run_write(struct engine *engine, struct qp *qp, const struct cell *cell,
                            uint64_t offset)
{
	const struct cell *first = &qp->cells->request.first;
	bool last = (cell->flags & CELL_LAST) != 0;
	bool immediate = (cell->flags & CELL_IMMEDIATE) != 0;
	struct hdl_sge piece, part = {.length = cell->data_bytes, .key = {first->handle}};
	struct sg to, from = sg_plain(&piece, cell->data, cell->data_bytes);
	enum hdl_detail detail = HDL_DETAIL_NONE;
	if ((qp->attr.access & HDL_ACCESS_REMOTE_WRITE) == 0 ||
	    offset + cell->data_bytes > HDL_MAX_MESSAGE) {
		cells_refuse(engine, qp, CELLS_INVALID, HDL_DETAIL_NONE, false);
		return false;
	}
	if (immediate && !op_has_receive(qp)) {
		cells_not_received(engine, qp, OP_NO_RECEIVE, HDL_DETAIL_NONE);
		return false;
	}
	/* The peer chooses the address: the sum may wrap. */
	if (offset > UINT64_MAX - first->address)
		detail = HDL_DETAIL_BOUNDS;
	part.addr = first->address + offset;
	if (detail == HDL_DETAIL_NONE && cell->data_bytes > 0)
		detail = respond_check(engine, qp, &part, HDL_ACCESS_REMOTE_WRITE,
		                       &respond_whole_message, &to);
	if (detail == HDL_DETAIL_NONE && cell->data_bytes > 0) {
		struct sg_result result =
		        sg_move(&engine->own.ops, MOVE_BOTH_OWN, &to, &from, cell->data_bytes);
		detail = result.detail;
		if (detail == HDL_DETAIL_GONE)
			op_memory_gone(engine, result.key);
	}
	if (detail != HDL_DETAIL_NONE) {
		bool told = immediate && qp_reliable(qp) && op_refuse_receive(engine, qp, detail);
		cells_refuse(engine, qp, cells_code_for(detail), detail, told);
		return false;
	}
	counter_add(&engine->counters[ENGINE_BYTES_WRITTEN], cell->data_bytes);
	uint32_t length = (uint32_t)offset + cell->data_bytes;
	if (immediate && !cells_receive(engine, qp, cell, false, length))
		return false;
	if (last && length > 0)
		respond_touch(engine, (struct hdl_key){first->handle}, &respond_whole_message);
	return true;
}

/* --- reads --- */

static struct read_entry *cells_entry(const struct qp *qp, uint32_t number)
{
	return &qp->reads.entries[number & qp->reads.mask];
}

static bool cells_run_read(struct engine *engine, struct qp *qp, const struct cell *cell)
{
	struct cells *cells = qp->cells;
	struct hdl_sge whole = {
	        .addr = cell->address, .length = cell->read_bytes, .key = {cell->handle}};
	struct sg range;
	if ((qp->attr.access & HDL_ACCESS_REMOTE_READ) == 0 || cell->read_bytes > HDL_MAX_MESSAGE) {
		cells_refuse(engine, qp, CELLS_INVALID, HDL_DETAIL_NONE, false);
		return false;
	}
	if (qp->reads.depth == 0 || cells->reads_put - cells->reads_sent >= qp->reads.depth) {
		cells_refuse(engine, qp, CELLS_INVALID, respond_no_room(qp), false);
		return false;
	}
	enum hdl_detail detail = cell->read_bytes == 0
	                                 ? HDL_DETAIL_NONE
	                                 : respond_check(engine, qp, &whole, HDL_ACCESS_REMOTE_READ,
	                                                 &respond_whole_message, &range);
	if (detail != HDL_DETAIL_NONE) {
		cells_refuse(engine, qp, cells_code_for(detail), detail, false);
		return false;
	}
	cells->read_end = cell->address + cell->read_bytes; /* only compared */
	cells->read_key = whole.key;
	cells->read_last = true;
	cells->touch_due |= cell->read_bytes > 0;
	*cells_entry(qp, cells->reads_put) = (struct read_entry){.used = true,
	                                                         .msn = cell->psn,
	                                                         .addr = cell->address,
	                                                         .key = cell->handle,
	                                                         .pd = qp->pd,
	                                                         .length = cell->read_bytes};
	cells->reads_put++;
	engine_owe(engine, qp);
	return true;
}

void cells_touch(struct engine *engine, struct qp *qp)
{
	struct cells *cells = qp->cells;
	if (cells->touch_due)
		respond_touch(engine, cells->read_key, &respond_whole_message);
	cells->touch_due = cells->read_last = false;
}

/* Does this request continue the last read? */
static bool cells_goes_on(const struct cells *cells, const struct cell *cell)
{
	return cell->operation == CELL_READ_REQUEST && cells->read_last &&
	       cell->address == cells->read_end && cell->handle == cells->read_key.v;
}

/* A read request came again: its response was lost. All responses from there on are sent again. */
static void cells_read_again(struct engine *engine, struct qp *qp, uint32_t psn)
{
	struct cells *cells = qp->cells;
	for (uint32_t age = 1; age <= qp->reads.depth && age <= cells->reads_put; age++) {
		struct read_entry *entry = cells_entry(qp, cells->reads_put - age);
		if (entry->msn != psn)
			continue;
		entry->again = true;
		if (cells->reads_put - cells->reads_sent < age) {
			cells->reads_sent = cells->reads_put - age;
			cells->answering = false;
		} else if (cells->reads_put - cells->reads_sent == age) {
			cells->answering = false; /* from its first cell on */
		}
		engine_owe(engine, qp);
		return;
	}
}

/* --- cells in order --- */

static bool cells_run_cell(struct engine *engine, struct qp *qp, const struct cell *cell,
                           uint64_t offset)
{
	switch (cell->operation) {
	case CELL_SEND:
		return cells_run_send(engine, qp, cell, offset);
	case CELL_WRITE:
		return cells_run_write(engine, qp, cell, offset);
	default:
		return cells_run_read(engine, qp, cell);
	}
}

/* The cell that is due has come. */
static void cells_expected(struct engine *engine, struct qp *qp, const struct cell *cell)
{
	struct cells *cells = qp->cells;
	uint64_t offset;
	respond_established(engine, qp);
	qp->nak_sent = false;
	if ((cell->flags & CELL_FIRST) && !cells_goes_on(cells, cell))
		cells_touch(engine, qp);
	enum cell_step step = cell_assemble(&cells->request, cell, &offset);
	if (step != CELL_PLACE && step != CELL_WHOLE) {
		cells_refuse(engine, qp, CELLS_INVALID, HDL_DETAIL_NONE, false);
		return;
	}
	if (!cells_run_cell(engine, qp, cell, offset))
		return;
	if (step == CELL_WHOLE) {
		cells->expected_psn = cells_psn(cells->expected_psn + 1);
		qp->received_messages++;
		if (cell->operation != CELL_READ_REQUEST)
			cells_owe_place(engine, qp, CELLS_ACK);
	} else if (++cells->since_ack >= CELLS_ACK_EVERY) {
		cells_owe_place(engine, qp, CELLS_ACK);
	}
}

/* Ask for what is missing, once. */
static void cells_ask_again(struct engine *engine, struct qp *qp)
{
	if (qp->nak_sent)
		return;
	qp->nak_sent = true;
	counter_add(&engine->counters[ENGINE_SEQUENCE_NAKS], 1);
	cells_owe_place(engine, qp, CELLS_AGAIN);
}

static void cells_reliable(struct engine *engine, struct qp *qp, const struct cell *cell)
{
	struct cells *cells = qp->cells;
	int32_t distance = cells_distance(cell->psn, cells->expected_psn);
	uint32_t next = cells->request.open ? cells->request.next : 0;
	if (distance == 0 && cell->number == next) {
		cells_expected(engine, qp, cell);
	} else if (distance < 0 || (distance == 0 && cell->number < next)) {
		counter_add(&engine->counters[ENGINE_REPEATED], 1);
		if (cell->operation == CELL_READ_REQUEST)
			cells_read_again(engine, qp, cell->psn);
		else if (!cells->answer_due)
			cells_owe_place(engine, qp, CELLS_ACK);
	} else {
		cells_ask_again(engine, qp);
	}
}

static void cells_unreliable(struct engine *engine, struct qp *qp, const struct cell *cell)
{
	struct cells *cells = qp->cells;
	uint64_t offset;
	if (cells_distance(cell->psn, cells->expected_psn) < 0 ||
	    (cell->psn == cells->expected_psn && (cell->flags & CELL_FIRST) != 0 &&
	     cells->request.open)) {
		cells_drop(engine); /* duplicated or overtaken */
		return;
	}
	if (cell->operation == CELL_READ_REQUEST) {
		counter_add(&engine->counters[ENGINE_BAD_PACKETS], 1);
		return;
	}
	respond_established(engine, qp);
	enum cell_step step = cell_assemble(&cells->request, cell, &offset);
	bool whole = step == CELL_WHOLE || step == CELL_CUT_WHOLE;
	if (cell->flags & CELL_FIRST) {
		cells->expected_psn = cell->psn;
		cells->write_refused = false;
	}
	if ((step != CELL_PLACE && step != CELL_CUT && !whole) || cells->write_refused) {
		cells_drop(engine); /* with the rest of its packet */
		return;
	}
	if (whole)
		cells->expected_psn = cells_psn(cell->psn + 1);
	if (cells_run_cell(engine, qp, cell, offset) && whole)
		qp->received_messages++;
}

void cells_request(struct engine *engine, struct qp *qp, const struct cell *cell)
{
	if (qp_reliable(qp))
		cells_reliable(engine, qp, cell);
	else
		cells_unreliable(engine, qp, cell);
}
