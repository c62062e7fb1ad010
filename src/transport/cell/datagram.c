/* Cells without connection: each packet is one cell and names its destination. Not acknowledged, it
 * is done when it is sent. Acknowledged, it is done when it is answered; one at a time is on its
 * way, and the receiver remembers the last one of each sender, so that a packet that comes again is
 * answered again but not received twice. */
#include <assert.h>
#include <string.h>

#include "queue/qp_state.h"
#include "transport/cell/cells.h"
#include "transport/op.h"
#include "wire/be.h"

enum step cells_send_datagram(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	struct cells *cells = qp->cells;
	uint8_t data[CELL_DATA_BYTES];
	struct path path = cells->path;
	struct cell_cutter cutter;
	if (wqe->length > CELL_DATA_BYTES) { /* posting refuses it; the path may have changed */
		request_finish(wqe, HDL_WC_LOC_LEN_ERR, HDL_DETAIL_LIMIT);
		return STEP_NEXT;
	}
	if (qp->acknowledged && qp->unanswered > 0)
		return STEP_WAIT;
	if (!wqe->numbered) {
		wqe->numbered = 1;
		wqe->msn = cells->next_psn;
		cells->next_psn = cells_psn(cells->next_psn + 1);
		qp->retries_left = CELLS_RETRIES;
	}
	path.port = engine->cell_ports[wqe->u.ud.sgid_index];
	memcpy(path.ip.dgid, wqe->u.ud.dgid, sizeof(path.ip.dgid));
	memcpy(path.ip.sgid, engine->gids[wqe->u.ud.sgid_index].raw, sizeof(path.ip.sgid));
	memcpy(path.cell.to, wqe->u.ud.dmac, CELL_MAC_BYTES);
	cells_address(&path);
	struct cell packet = cells_packet(qp, &path, wqe->u.ud.qpn, wqe->msn);
	packet.operation = CELL_SEND;
	if (wqe->opcode == HDL_OP_SEND_IMM) {
		packet.flags |= CELL_IMMEDIATE;
		packet.immediate = be32_load((const uint8_t *)&wqe->imm);
	}
	if (wqe->flags & HDL_SEND_SOLICITED)
		packet.flags |= CELL_SOLICITED;
	if (!request_gather(engine, qp, wqe, 0, data, wqe->length))
		return STEP_NEXT;
	cell_cut(&cutter, &packet, wqe->length);
	if (!cells_put(engine, &path, &cutter, data))
		return STEP_NO_ROOM;
	counter_add(&engine->counters[ENGINE_BYTES_SENT], wqe->length);
	qp->sent_messages++;
	if (!qp->acknowledged) {
		request_finish(wqe, HDL_WC_SUCCESS, HDL_DETAIL_NONE);
		return STEP_NEXT;
	}
	wqe->state = WQE_SENT;
	qp->unanswered = 1;
	cells_await(engine, qp);
	return STEP_NEXT;
}

/* The packet that is on its way; NULL: none is. */
static struct wqe_send *cells_datagram_sent(const struct qp *qp, uint32_t *index)
{
	for (uint32_t at = wq_head(&qp->sq); at != wq_tail(&qp->sq); at++) {
		struct wqe_send *wqe = wq_at(&qp->sq, at);
		*index = at;
		if (wqe->state == WQE_SENT)
			return wqe;
	}
	return NULL;
}

/* It is sent again, after @ns. */
static void cells_datagram_again(struct engine *engine, struct qp *qp, struct wqe_send *wqe,
                                 uint32_t index, uint64_t ns)
{
	wqe->state = WQE_READY;
	qp->next = index;
	qp->unanswered = 0;
	counter_add(&engine->counters[ENGINE_RETRIES], 1);
	if (ns > 0) {
		qp->waiting = true;
		engine_drop_timer(engine, qp);
		engine_want_timer(engine, qp, ns);
	}
	engine_activate(engine, qp);
}

static void cells_datagram_end(struct engine *engine, struct qp *qp, struct wqe_send *wqe,
                               enum hdl_wc_status status)
{
	qp->unanswered = 0;
	engine_drop_timer(engine, qp);
	request_finish(wqe, status, HDL_DETAIL_NONE);
	request_reap(engine, qp);
	if (qp->next != wq_tail(&qp->sq))
		engine_activate(engine, qp);
}

void cells_datagram_timeout(struct engine *engine, struct qp *qp)
{
	uint32_t index;
	if (qp->waiting) {
		qp->waiting = false;
		engine_activate(engine, qp);
		return;
	}
	struct wqe_send *wqe = cells_datagram_sent(qp, &index);
	if (wqe == NULL)
		return;
	counter_add(&engine->counters[ENGINE_TIMEOUTS], 1);
	if (qp->retries_left == 0) {
		cells_datagram_end(engine, qp, wqe, HDL_WC_RETRY_EXC_ERR);
		return;
	}
	qp->retries_left--;
	cells_datagram_again(engine, qp, wqe, index, 0);
}

static void cells_datagram_answered(struct engine *engine, struct qp *qp, const struct cell *cell)
{
	uint32_t value, index;
	enum cells_code code = cells_code(cell, &value);
	struct wqe_send *wqe = cells_datagram_sent(qp, &index);
	if (wqe == NULL || cell->psn != wqe->msn || cell->source_qp != wqe->u.ud.qpn ||
	    code == CELLS_CODE_COUNT) {
		cells_drop(engine);
		return;
	}
	if (code == CELLS_ACK) {
		cells_datagram_end(engine, qp, wqe, HDL_WC_SUCCESS);
	} else if (code == CELLS_NOT_READY && qp->retries_left > 0) {
		qp->retries_left--;
		cells_datagram_again(engine, qp, wqe, index, request_rnr_ns(value & 31));
	} else {
		cells_datagram_end(engine, qp, wqe,
		                   code == CELLS_NOT_READY ? HDL_WC_RNR_RETRY_EXC_ERR
		                                           : cells_status(code));
	}
}

/* The sender of @cell: what is remembered of it, or the place of whoever sent longest ago. */
static struct cells_source *cells_find_source(struct cells *cells, const struct cell *cell)
{
	struct cells_source *oldest = &cells->sources[0];
	for (uint32_t i = 0; i < CELLS_SOURCES; i++) {
		struct cells_source *at = &cells->sources[i];
		if (at->used != 0 && at->qpn == cell->source_qp &&
		    memcmp(at->mac, cell->from, CELL_MAC_BYTES) == 0)
			return at;
		if (at->used < oldest->used)
			oldest = at;
	}
	oldest->used = 0;
	return oldest;
}

void cells_take_datagram(struct engine *engine, struct qp *qp, const struct path *came,
                         const struct cell *cell)
{
	struct cells *cells = qp->cells;
	const uint8_t alone = CELL_FIRST | CELL_LAST;
	enum hdl_qp_state state = qp_state(qp);
	uint64_t offset;
	if (cell->operation == CELL_ANSWER && qp->acknowledged && state == HDL_QPS_RTS) {
		cells_datagram_answered(engine, qp, cell);
		return;
	}
	struct cell_assembly assembly = {0};
	if (cell->operation != CELL_SEND || (cell->flags & alone) != alone ||
	    !qp_may_receive(state) || cell_assemble(&assembly, cell, &offset) != CELL_WHOLE) {
		cells_drop(engine);
		return;
	}
	struct cells_source *source = qp->acknowledged ? cells_find_source(cells, cell) : NULL;
	bool again = source != NULL && source->used != 0 && source->psn == cell->psn;
	bool ready = again || op_has_receive(qp);
	if (source != NULL) {
		if (cells->answer_due &&
		    (cells->answer_qpn != cell->source_qp || cells_answer(engine, qp) != SETTLED)) {
			cells_drop(engine); /* one answer at a time; it is sent again */
			return;
		}
		cells->answer_path = *came;
		path_turn(&cells->answer_path);
		memcpy(cells->answer_path.cell.to, cell->from, CELL_MAC_BYTES);
		cells_address(&cells->answer_path);
		cells->answer_qpn = cell->source_qp;
		cells_owe(engine, qp, ready ? CELLS_ACK : CELLS_NOT_READY, cell->psn,
		          ready ? 0 : qp->attr.min_rnr_timer);
		if (again || !ready) {
			counter_add(&engine->counters[again ? ENGINE_REPEATED : ENGINE_RNR_SENT],
			            1);
			return;
		}
		memcpy(source->mac, cell->from, CELL_MAC_BYTES);
		source->qpn = cell->source_qp;
		source->psn = cell->psn;
		source->used = ++cells->source_clock;
	}
	bool immediate = (cell->flags & CELL_IMMEDIATE) != 0;
	uint32_t word = 0;
	uint8_t header[HDL_GRH_BYTES] = {0x60};
	memcpy(header + 8, came->ip.sgid, 16);
	memcpy(header + 24, came->ip.dgid, 16);
	if (immediate)
		be32_store((uint8_t *)&word, cell->immediate);
	struct op_message message = {.bytes = (void *)(uintptr_t)cell->data,
	                             .grh = header,
	                             .length = cell->data_bytes,
	                             .src_qpn = cell->source_qp,
	                             .imm = word,
	                             .wc_flags = HDL_WC_GRH | (immediate ? HDL_WC_WITH_IMM : 0u),
	                             .wc_opcode = HDL_WC_RECV,
	                             .solicited = (cell->flags & CELL_SOLICITED) != 0};
	op_receive_datagram(engine, qp, &message);
}
