/* Cells: what a responder sends: the responses to reads, then the answer about what has arrived. */
#include <string.h>

#include "transport/cell/cells.h"
#include "transport/op.h"
#include "transport/respond.h"
#include "wire/be.h"

bool cells_owes(const struct qp *qp)
{
	const struct cells *cells = qp->cells;
	return cells != NULL && (cells->answer_due || cells->reads_sent != cells->reads_put);
}

/* The memory was granted when the read came, but no longer is. */
static void cells_response_refused(struct engine *engine, struct qp *qp,
                                   const struct read_entry *entry, const struct sg_result *result)
{
	tpt_count(engine->tpt, result->detail);
	if (result->detail == HDL_DETAIL_GONE)
		op_memory_gone(engine, result->key);
	qp->cells->answering = false;
	qp->cells->reads_sent++;
	/* It was answered before, and may have been revoked since; or an error is told already. */
	if (entry->again || qp_state(qp) == HDL_QPS_ERR)
		return;
	qp->cells->reads_sent = qp->cells->reads_put;
	cells_owe(engine, qp, result->detail == HDL_DETAIL_GONE ? CELLS_FAILED : CELLS_ACCESS,
	          entry->msn, 0);
	respond_refused(engine, qp, false, result->detail, false);
}

/* Send what is left of the oldest response. False: no room, or the connection has failed. */
static bool cells_respond(struct engine *engine, struct qp *qp)
{
	struct cells *cells = qp->cells;
	const struct read_entry *entry = &qp->reads.entries[cells->reads_sent & qp->reads.mask];
	uint8_t data[CELL_DATA_BYTES];
	uint64_t offset;
	if (!cells->answering) {
		struct cell packet = cells_packet(qp, &cells->path, qp->attr.dest_qpn, entry->msn);
		packet.operation = CELL_READ_RESPONSE;
		cell_cut(&cells->answer_cutter, &packet, entry->length);
		cells->answering = true;
	}
	while (cells->answer_cutter.next < cell_count(entry->length)) {
		uint32_t count = cell_cut_data(&cells->answer_cutter, &offset), sum = 0;
		struct hdl_sge part = {
		        .addr = entry->addr + offset, .length = count, .key = {entry->key}};
		struct sg from = respond_range(engine, qp, &part, HDL_ACCESS_REMOTE_READ);
		struct sg_result result = {.detail = HDL_DETAIL_NONE};
		if (count > 0)
			result = sg_gather_sum(engine, &from, data, count, &sum);
		if (result.detail != HDL_DETAIL_NONE) {
			cells_response_refused(engine, qp, entry, &result);
			return false;
		}
		if (!cells_put(engine, &cells->path, &cells->answer_cutter, data))
			return false;
	}
	cells->answering = false;
	cells->reads_sent++;
	return true;
}

enum settled cells_answer(struct engine *engine, struct qp *qp)
{
	struct cells *cells = qp->cells;
	if (cells == NULL)
		return SETTLED;
	while (cells->reads_sent != cells->reads_put)
		if (!cells_respond(engine, qp))
			return cells_owes(qp) ? UNSETTLED : SETTLED;
	if (!cells->answer_due)
		return SETTLED;
	bool datagram = qp->type == HDL_QP_UD;
	const struct path *path = datagram ? &cells->answer_path : &cells->path;
	struct cell packet = cells_packet(
	        qp, path, datagram ? cells->answer_qpn : qp->attr.dest_qpn, cells->answer_psn);
	struct cell_cutter cutter;
	uint8_t data[4];
	packet.operation = CELL_ANSWER;
	be32_store(data, (uint32_t)cells->answer_code << 24 | cells->answer_value);
	cell_cut(&cutter, &packet, sizeof(data));
	if (!cells_put(engine, path, &cutter, data))
		return UNSETTLED;
	cells->answer_due = false;
	return SETTLED;
}
