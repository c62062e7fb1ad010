/* Cells: the requester. Executes send queue elements in order; a message becomes a packet, a packet
 * becomes cells. */
#include <assert.h>
#include <string.h>

#include "transport/cell/cells.h"
#include "transport/op.h"
#include "wire/be.h"

void cells_begin_requester(struct qp *qp)
{
	struct cells *cells = qp->cells;
	cells->next_psn = cells->una_psn = cells->sent_psn = cells_psn(qp->attr.sq_psn);
	cells->sent_cell = cells->crc_first = cells->crc_end = 0;
	cells->asked_again = false;
	cells->una_cell = cells->flight = cells->read_open = cells->grown = 0;
	cells->window = CELLS_WINDOW_FIRST;
	cells->cutting = false;
	cells->response = (struct cell_assembly){0};
}

void cells_note_sent(struct cells *cells, uint32_t psn, uint32_t count)
{
	int32_t ahead = cells_distance(psn, cells->sent_psn);
	if (ahead < 0 || (ahead == 0 && count <= cells->sent_cell))
		return;
	cells->sent_psn = cells_psn(psn);
	cells->sent_cell = count;
}

uint64_t cells_wait_ns(const struct qp *qp)
{
	uint8_t timeout = qp->type == HDL_QP_UD ? CELLS_TIMEOUT : qp->attr.timeout;
	return timeout == 0 ? 0 : 4096ull << timeout;
}

void cells_await(struct engine *engine, struct qp *qp)
{
	uint64_t ns = cells_wait_ns(qp);
	if (!cells_acknowledged(qp) || ns == 0 || qp->timer_wanted || timer_running(&qp->timer))
		return;
	qp->answered = false;
	engine_want_timer(engine, qp, ns);
}

/* Assign @wqe its PSNs. False: so many are in flight that old and new ones could be confused. */
static bool cells_number(struct qp *qp, struct wqe_send *wqe)
{
	struct cells *cells = qp->cells;
	if (wqe->numbered)
		return true;
	uint32_t span = cells_span(wqe);
	if (cells_acknowledged(qp) &&
	    cells_psn(cells->next_psn - cells->una_psn) + span >= CELLS_PSN_HALF)
		return false;
	wqe->numbered = 1;
	wqe->msn = cells->next_psn;
	wqe->offset = 0;
	if (wqe->opcode == HDL_OP_READ)
		wqe->got = 0;
	cells->next_psn = cells_psn(cells->next_psn + span);
	return true;
}

static struct cell cells_of_request(const struct qp *qp, const struct wqe_send *wqe)
{
	struct cell packet = cells_packet(qp, &qp->cells->path, qp->attr.dest_qpn, wqe->msn);
	bool writes = wqe->opcode == HDL_OP_WRITE || wqe->opcode == HDL_OP_WRITE_IMM;
	packet.operation = writes ? CELL_WRITE : CELL_SEND;
	if (writes) {
		packet.address = wqe->u.rdma.addr;
		packet.handle = wqe->u.rdma.key.v;
	}
	if (wqe->opcode == HDL_OP_SEND_IMM || wqe->opcode == HDL_OP_WRITE_IMM) {
		packet.flags |= CELL_IMMEDIATE;
		packet.immediate = be32_load((const uint8_t *)&wqe->imm);
	}
	if (wqe->flags & HDL_SEND_SOLICITED)
		packet.flags |= CELL_SOLICITED;
	return packet;
}

/* Note the CRC before the next cell. */
static void cells_note_crc(struct cells *cells, uint32_t psn)
{
	uint32_t number = cells->cutter.next;
	if (cells->crc_psn != psn || number < cells->crc_first || number > cells->crc_end) {
		cells->crc_psn = psn;
		cells->crc_first = cells->crc_end = number;
	}
	cells->crcs[number % CELLS_WINDOW_MAX] = cells->cutter.crc;
	if (number == cells->crc_end)
		cells->crc_end++;
	if (cells->crc_end - cells->crc_first > CELLS_WINDOW_MAX)
		cells->crc_first = cells->crc_end - CELLS_WINDOW_MAX;
}

/* Cut @wqe from wqe->offset on. What lies before it counts for the CRC of the packet: that is
 * known, or after going back to another packet it is read once more. False: a piece was refused,
 * and the request is finished. */
static bool cells_begin_cut(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	struct cells *cells = qp->cells;
	struct cell packet = cells_of_request(qp, wqe);
	uint8_t data[CELL_DATA_BYTES], unsent[CELL_MAX_BYTES];
	uint32_t number = wqe->offset / CELL_DATA_BYTES;
	uint64_t offset;
	cell_cut(&cells->cutter, &packet, wqe->length);
	if (cells->crc_psn == wqe->msn && number >= cells->crc_first && number < cells->crc_end) {
		cells->cutter.next = number;
		cells->cutter.crc = cells->crcs[number % CELLS_WINDOW_MAX];
	}
	while (cells->cutter.next < number) {
		uint32_t count = cell_cut_data(&cells->cutter, &offset);
		if (!request_gather(engine, qp, wqe, (uint32_t)offset, data, count))
			return false;
		cell_cut_next(&cells->cutter, data, unsent);
	}
	cells->cutting = true;
	cells->cut_index = qp->next;
	return true;
}

static enum step cells_over(struct qp *qp, struct wqe_send *wqe)
{
	qp->cells->cutting = false;
	qp->sent_messages++;
	if (cells_acknowledged(qp)) {
		wqe->state = WQE_SENT;
		qp->unanswered++;
	} else {
		request_finish(wqe, HDL_WC_SUCCESS, HDL_DETAIL_NONE);
	}
	return STEP_NEXT;
}

/* Send cells of a send or write, as many as window and turn allow. */
static enum step cells_send(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	struct cells *cells = qp->cells;
	uint8_t data[CELL_DATA_BYTES];
	uint64_t offset;
	if ((!cells->cutting || cells->cut_index != qp->next) && !cells_begin_cut(engine, qp, wqe))
		return STEP_NEXT;
	for (uint32_t budget = CELLS_TX_BATCH; budget > 0; budget--) {
		if (cells_acknowledged(qp) && cells->flight >= cells->window)
			return STEP_WAIT;
		uint32_t count = cell_cut_data(&cells->cutter, &offset);
		if (!request_gather(engine, qp, wqe, (uint32_t)offset, data, count)) {
			cells->cutting = false;
			return STEP_NEXT;
		}
		cells_note_crc(cells, wqe->msn);
		if (!cells_put(engine, &cells->path, &cells->cutter, data))
			return STEP_NO_ROOM;
		counter_add(&engine->counters[ENGINE_BYTES_SENT], count);
		wqe->offset += count;
		cells->flight++;
		cells_await(engine, qp);
		if (cells->cutter.next == cell_count(wqe->length)) {
			cells_note_sent(cells, wqe->msn + 1, 0);
			return cells_over(qp, wqe);
		}
		cells_note_sent(cells, wqe->msn, cells->cutter.next);
	}
	return STEP_MORE;
}

/* Ask for the next parts of a read. */
static enum step cells_read(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	struct cells *cells = qp->cells;
	if (qp->attr.max_rd_atomic == 0) { /* it could never execute */
		request_finish(wqe, HDL_WC_LOC_QP_OP_ERR, HDL_DETAIL_LIMIT);
		return STEP_NEXT;
	}
	if (wqe->offset == 0 && !request_check(engine, qp, wqe))
		return STEP_NEXT;
	do {
		if (cells->read_open >= qp->attr.max_rd_atomic || cells->flight >= cells->window)
			return STEP_WAIT;
		uint32_t left = wqe->length - wqe->offset;
		struct cell_cutter cutter;
		struct cell packet = cells_packet(qp, &cells->path, qp->attr.dest_qpn,
		                                  wqe->msn + wqe->offset / CELLS_READ_BYTES);
		packet.operation = CELL_READ_REQUEST;
		packet.address = wqe->u.rdma.addr + wqe->offset;
		packet.handle = wqe->u.rdma.key.v;
		packet.read_bytes = left < CELLS_READ_BYTES ? left : CELLS_READ_BYTES;
		cell_cut(&cutter, &packet, 0);
		if (!cells_put(engine, &cells->path, &cutter, NULL))
			return STEP_NO_ROOM;
		wqe->offset += packet.read_bytes;
		cells_note_sent(cells, packet.psn + 1, 0);
		cells->flight++;
		cells->read_open++;
		cells_await(engine, qp);
	} while (wqe->offset < wqe->length);
	wqe->state = WQE_SENT;
	qp->unanswered++;
	qp->reads_open++;
	qp->sent_messages++;
	return STEP_NEXT;
}

static enum step cells_execute(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	if ((wqe->flags & HDL_SEND_FENCE) && qp->reads_open > 0 && !wqe->numbered)
		return STEP_WAIT;
	enum step step = request_own(engine, qp, wqe);
	if (step != STEP_BY_TARGET)
		return step;
	switch (wqe->opcode) {
	case HDL_OP_REGISTER_SEND:
		if (!request_register(engine, qp, wqe))
			return STEP_NEXT;
		break;
	case HDL_OP_SEND:
	case HDL_OP_SEND_IMM:
	case HDL_OP_WRITE:
	case HDL_OP_WRITE_IMM:
		break;
	case HDL_OP_READ:
		return cells_number(qp, wqe) ? cells_read(engine, qp, wqe) : STEP_WAIT;
	default: /* cells have no atomics, and nothing that invalidates */
		request_finish(wqe, HDL_WC_LOC_QP_OP_ERR, HDL_DETAIL_TYPE);
		return STEP_NEXT;
	}
	return cells_number(qp, wqe) ? cells_send(engine, qp, wqe) : STEP_WAIT;
}

bool cells_run(struct engine *engine, struct qp *qp)
{
	return request_run(engine, qp, cells_execute);
}
