/* Cells as the engine sees them: their table, and received cells. A cell that matches nothing is
 * dropped and counted: an attacker can send anything. */
#include "transport/cell/cells.h"

#include <assert.h>
#include <string.h>

#include "base/mac.h"
#include "queue/qp_state.h"
#include "transport/capture.h"
#include "transport/op.h"

static const uint8_t any_mac[CELL_MAC_BYTES] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

static bool cells_same_mac(const uint8_t *a, const uint8_t *b)
{
	return memcmp(a, b, CELL_MAC_BYTES) == 0;
}

void cells_drop(struct engine *engine)
{
	counter_add(&engine->counters[ENGINE_DROPPED], 1);
}

void cells_address(struct path *path)
{
	cell_mac(path->ip.sgid, path->cell.from);
	if (!mac_from_gid(path->ip.dgid, path->cell.to) && mac_is_clear(path->cell.to))
		cell_mac(path->ip.dgid, path->cell.to);
}

bool cells_put(struct engine *engine, const struct path *path, struct cell_cutter *cutter,
               const uint8_t *data)
{
	assert(path->kind == PATH_CELL && path->port < ENGINE_MAX_PORTS);
	const struct carrier *carrier = engine->carriers[path->port];
	if (carrier == NULL)
		return false;
	uint8_t *start = carrier->reserve(carrier->context, path, CELL_MAX_BYTES);
	if (start == NULL)
		return false;
	size_t bytes = cell_cut_next(cutter, data, start);
	assert(bytes > 0);
	capture_cell(engine, path, start, bytes, false);
	carrier->commit(carrier->context, path, bytes);
	engine->last_port = path->port;
	counter_add(&engine->counters[ENGINE_PACKETS_OUT], 1);
	return true;
}

struct cell cells_packet(const struct qp *qp, const struct path *path, uint32_t dest_qpn,
                         uint32_t psn)
{
	struct cell packet = {.flags = cells_acknowledged(qp) ? CELL_ACKNOWLEDGED : 0,
	                      .dest_qp = dest_qpn,
	                      .source_qp = qp->qpn,
	                      .psn = cells_psn(psn)};
	memcpy(packet.to, path->cell.to, CELL_MAC_BYTES);
	memcpy(packet.from, path->cell.from, CELL_MAC_BYTES);
	return packet;
}

/* Is @cell, which came along @came, from whom it says, and to the port at which it came? In a
 * frame, both addresses are those of the frame, which the kernel has seen. */
static bool cells_true(const struct path *came, const struct cell *cell)
{
	uint8_t own[CELL_MAC_BYTES];
	if (came->cell.framed)
		return cells_same_mac(cell->from, came->cell.from) &&
		       cells_same_mac(cell->to, came->cell.to);
	cell_mac(came->ip.dgid, own);
	return cells_same_mac(cell->to, own) || cells_same_mac(cell->to, any_mac);
}

/* Is @cell, which came along @came, of the peer that @qp is connected to? */
static bool cells_of_peer(const struct qp *qp, const struct path *came, const struct cell *cell)
{
	const struct cells *cells = qp->cells;
	return cell->source_qp == qp->attr.dest_qpn && path_matches(&cells->path, came) &&
	       (cells_same_mac(cells->path.cell.to, any_mac) ||
	        cells_same_mac(cells->path.cell.to, cell->from));
}

static void cells_connected(struct engine *engine, struct qp *qp, const struct cell *cell)
{
	enum hdl_qp_state state = qp_state(qp);
	bool answers = cell->operation == CELL_ANSWER || cell->operation == CELL_READ_RESPONSE;
	bool sends = state == HDL_QPS_RTS || state == HDL_QPS_SQD;
	if (!answers && qp_may_receive(state))
		cells_request(engine, qp, cell);
	else if (answers && sends && qp_reliable(qp) && cell->operation == CELL_ANSWER)
		cells_answered(engine, qp, cell);
	else if (answers && sends && qp_reliable(qp))
		cells_responded(engine, qp, cell);
	else
		cells_drop(engine);
}

void cells_take(struct engine *engine, const struct path *came, const uint8_t *in, size_t bytes)
{
	struct cell cell;
	if (cell_decode(&cell, in, bytes) != CELL_OK) {
		counter_add(&engine->counters[ENGINE_BAD_PACKETS], 1);
		return;
	}
	counter_add(&engine->counters[ENGINE_PACKETS_IN], 1);
	capture_cell(engine, came, in, bytes, true);
	struct qp *qp = engine_find_qp(engine, cell.dest_qp);
	bool acknowledged = (cell.flags & CELL_ACKNOWLEDGED) != 0;
	if (qp == NULL || qp->cells == NULL || acknowledged != cells_acknowledged(qp) ||
	    !cells_true(came, &cell)) {
		cells_drop(engine);
		return;
	}
	if (qp->type == HDL_QP_UD)
		cells_take_datagram(engine, qp, came, &cell);
	else if (cells_of_peer(qp, came, &cell))
		cells_connected(engine, qp, &cell);
	else
		cells_drop(engine);
}

static void cells_leaving(struct engine *engine, struct qp *qp, enum hdl_qp_state state)
{
	if (qp->cells == NULL)
		return;
	cells_touch(engine, qp);
	if (state == HDL_QPS_RESET)
		cells_answer(engine, qp);
}

static void cells_left(struct engine *engine, struct qp *qp, enum hdl_qp_state state)
{
	(void)engine;
	struct cells *cells = qp->cells;
	if (cells == NULL || state == HDL_QPS_SQE)
		return;
	cells->cutting = false;
	cells->flight = cells->read_open = 0;
	if (state != HDL_QPS_RESET)
		return; /* reads that came before the error are answered, then the error */
	cells->answering = cells->answer_due = false;
	cells->reads_sent = cells->reads_put;
}

const struct transport cells_transport = {
        .name = "cells",
        .run = cells_run,
        .owes = cells_owes,
        .answer = cells_answer,
        .timeout = cells_timeout,
        .begin_responder = cells_begin_responder,
        .begin_requester = cells_begin_requester,
        .leaving = cells_leaving,
        .left = cells_left,
};
