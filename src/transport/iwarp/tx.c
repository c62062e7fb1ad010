/* iWARP: the requester. Requests become messages on the stream in the order in which they were
 * posted. A send or write is over once the stream has taken the last octet of it: its memory may be
 * reused, which says nothing about the peer (RFC 5040 section 5.5). A read or atomic is over with
 * its answer. */
#include "queue/qp_state.h"
#include "transport/iwarp/iwarp.h"
#include "transport/op.h"
#include "wire/be.h"

#define ALL_BITS UINT64_MAX

struct gather {
	struct iwarp *iwarp;
	struct wqe_send *wqe;
};

static bool gather_fill(void *context, uint32_t offset, uint8_t *to, uint32_t bytes, uint32_t *sum)
{
	const struct gather *gather = context;
	struct iwarp *iwarp = gather->iwarp;
	return iwarp->sender.crc && !iwarp->sender.markers
	               ? request_gather_sum(iwarp->engine, iwarp->qp, gather->wqe, offset, to,
	                                    bytes, sum)
	               : request_gather(iwarp->engine, iwarp->qp, gather->wqe, offset, to, bytes);
}

/* The last FPDU of @wqe, a send or write, is on its way. */
static enum step tx_sent(struct iwarp *iwarp, struct wqe_send *wqe)
{
	wqe->state = WQE_SENT;
	wqe->msn = (uint32_t)iwarp->sender.position;
	iwarp->qp->unanswered++;
	iwarp->qp->sent_messages++;
	counter_add(&iwarp->engine->counters[ENGINE_BYTES_SENT], wqe->length);
	return STEP_NEXT;
}

/* Send a segment with a copy of up to @wanted octets. STEP_MORE: done, and *count says how many. */
static enum step tx_copy(struct iwarp *iwarp, struct wqe_send *wqe, struct rdmap_segment *segment,
                         uint32_t wanted, uint32_t *count)
{
	struct gather gather = {iwarp, wqe};
	size_t header = ddp_header_bytes(rdmap_operations[segment->opcode].tagged);
	if (!iwarp_out_room(iwarp, header, wanted, count))
		return STEP_WAIT;
	segment->last = *count == wqe->length - wqe->offset;
	return iwarp_out_put(iwarp, segment, wqe->offset, *count, gather_fill, &gather) ? STEP_MORE
	                                                                                : STEP_NEXT;
}

/* Send a segment from where its octets are, if that is possible. As tx_copy(). */
static enum step tx_lend(struct iwarp *iwarp, struct wqe_send *wqe, struct rdmap_segment *segment,
                         uint32_t wanted, uint32_t *count)
{
	struct span runs[IWARP_LEND_RUNS];
	size_t header = ddp_header_bytes(rdmap_operations[segment->opcode].tagged);
	struct sg from =
	        sg_own(iwarp->engine, iwarp->qp, wqe_sge(wqe), wqe->num_sge, HDL_ACCESS_LOCAL_READ);
	uint32_t most = iwarp->max_ulpdu - (uint32_t)header;
	uint64_t covered;
	enum hdl_detail detail;
	sg_skip(&from, wqe->offset);
	size_t found = sg_runs(&from, wanted < most ? wanted : most, runs, IWARP_LEND_RUNS,
	                       &covered, &detail);
	/* Whoever copies says what is wrong. */
	if (detail != HDL_DETAIL_NONE || covered < IWARP_LEND_BYTES)
		return tx_copy(iwarp, wqe, segment, wanted, count);
	if (!iwarp_out_lend_room(iwarp, header, found))
		return STEP_WAIT;
	*count = (uint32_t)covered;
	segment->last = *count == wqe->length - wqe->offset;
	return iwarp_out_lend(iwarp, segment, runs, found, iwarp->qp->next)
	               ? STEP_MORE
	               : tx_copy(iwarp, wqe, segment, wanted, count);
}

/* Send the data of @wqe, from where it stands, in segments like @first. STEP_BY_TARGET: all of it
 * has been. */
static enum step tx_segments(struct iwarp *iwarp, struct wqe_send *wqe,
                             const struct rdmap_segment *first)
{
	bool lends = (wqe->flags & HDL_SEND_INLINE) == 0 && iwarp_out_lends(iwarp);
	uint32_t left, count;
	do {
		left = wqe->length - wqe->offset;
		uint32_t wanted = iwarp_part(iwarp, wqe->offset, left);
		struct rdmap_segment segment = *first;
		segment.to += wqe->offset;
		segment.mo = wqe->offset;
		enum step step = lends && wanted >= IWARP_LEND_BYTES
		                         ? tx_lend(iwarp, wqe, &segment, wanted, &count)
		                         : tx_copy(iwarp, wqe, &segment, wanted, &count);
		if (step != STEP_MORE)
			return step;
		wqe->numbered = 1;
		wqe->offset += count;
	} while (count < left);
	return STEP_BY_TARGET;
}

static enum step tx_send(struct iwarp *iwarp, struct wqe_send *wqe)
{
	bool solicited = (wqe->flags & HDL_SEND_SOLICITED) != 0;
	bool invalidates = wqe->opcode == HDL_OP_SEND_INVALIDATE;
	struct rdmap_segment segment = {.opcode = invalidates ? solicited ? RDMAP_SEND_SE_INVALIDATE
	                                                                  : RDMAP_SEND_INVALIDATE
	                                          : solicited ? RDMAP_SEND_SE
	                                                      : RDMAP_SEND,
	                                .msn = iwarp->send_msn,
	                                .invalidate_stag = invalidates ? wqe->imm : 0};
	enum step step = tx_segments(iwarp, wqe, &segment);
	if (step != STEP_BY_TARGET)
		return step;
	iwarp->send_msn++;
	return tx_sent(iwarp, wqe);
}

/* RFC 7306 section 6: immediate data is a message of its own, of 8 octets. The four that a request
 * has come first. */
static enum step tx_immediate(struct iwarp *iwarp, struct wqe_send *wqe)
{
	bool solicited = (wqe->flags & HDL_SEND_SOLICITED) != 0;
	const struct rdmap_segment segment = {
	        .opcode = solicited ? RDMAP_IMMEDIATE_SE : RDMAP_IMMEDIATE,
	        .msn = iwarp->send_msn,
	        .u.immediate = (uint64_t)be32_load((const uint8_t *)&wqe->imm) << 32};
	uint32_t none;
	if (!iwarp_out_room(iwarp, DDP_UNTAGGED_BYTES + RDMAP_IMMEDIATE_BYTES, 0, &none))
		return STEP_WAIT;
	iwarp_out_put(iwarp, &segment, 0, 0, NULL, NULL);
	iwarp->send_msn++;
	return tx_sent(iwarp, wqe);
}

static enum step tx_write(struct iwarp *iwarp, struct wqe_send *wqe)
{
	if ((wqe->marks & WQE_PREPARED) == 0) {
		const struct rdmap_segment segment = {
		        .opcode = RDMAP_WRITE, .stag = wqe->u.rdma.key.v, .to = wqe->u.rdma.addr};
		enum step step = tx_segments(iwarp, wqe, &segment);
		if (step != STEP_BY_TARGET)
			return step;
		wqe->marks |= WQE_PREPARED;
	}
	return wqe->opcode == HDL_OP_WRITE_IMM ? tx_immediate(iwarp, wqe) : tx_sent(iwarp, wqe);
}

/* Reads and atomics share the MSNs of queue 1. The sink tag of a read tells the peer nothing: it is
 * the MSN, and the answer is compared with the oldest open read alone. */
static void tx_request(const struct iwarp *iwarp, const struct wqe_send *wqe,
                       struct rdmap_segment *segment)
{
	*segment = (struct rdmap_segment){.msn = iwarp->read_msn};
	if (wqe->opcode == HDL_OP_READ) {
		segment->opcode = RDMAP_READ_REQUEST;
		segment->u.read = (struct rdmap_read_request){.sink_stag = iwarp->read_msn,
		                                              .bytes = wqe->length,
		                                              .source_stag = wqe->u.rdma.key.v,
		                                              .source_to = wqe->u.rdma.addr};
		return;
	}
	bool add = wqe->opcode == HDL_OP_FETCH_ADD;
	segment->opcode = RDMAP_ATOMIC_REQUEST;
	segment->u.atomic = (struct rdmap_atomic_request){
	        .operation = add ? RDMAP_FETCH_ADD : RDMAP_COMPARE_SWAP,
	        .id = iwarp->read_msn,
	        .stag = wqe->u.atomic.key.v,
	        .to = wqe->u.atomic.addr,
	        .data = add ? wqe->u.atomic.compare_add : wqe->u.atomic.swap,
	        .mask = add ? 0 : ALL_BITS,
	        .compare = add ? 0 : wqe->u.atomic.compare_add,
	        .compare_mask = add ? 0 : ALL_BITS};
}

static enum step tx_read(struct iwarp *iwarp, struct wqe_send *wqe)
{
	struct qp *qp = iwarp->qp;
	uint32_t most = qp->attr.max_rd_atomic, none;
	if (most > iwarp->terms.ord)
		most = iwarp->terms.ord;
	if (most == 0) { /* it could never execute */
		request_finish(wqe, HDL_WC_LOC_QP_OP_ERR, HDL_DETAIL_LIMIT);
		return STEP_NEXT;
	}
	if (qp->reads_open + iwarp->ready_read >= most)
		return STEP_WAIT;
	struct rdmap_segment segment;
	tx_request(iwarp, wqe, &segment);
	if (!request_check(iwarp->engine, qp, wqe))
		return STEP_NEXT;
	size_t header = DDP_UNTAGGED_BYTES + rdmap_operations[segment.opcode].header_bytes;
	if (!iwarp_out_room(iwarp, header, 0, &none))
		return STEP_WAIT;
	iwarp_out_put(iwarp, &segment, 0, 0, NULL, NULL);
	wqe->numbered = 1;
	wqe->msn = iwarp->read_msn++;
	wqe->got = 0;
	wqe->state = WQE_SENT;
	qp->unanswered++;
	qp->reads_open++;
	qp->sent_messages++;
	return STEP_NEXT;
}

/* Plain TCP knows bytes alone. */
static enum step tx_plain(struct iwarp *iwarp, struct wqe_send *wqe)
{
	struct gather gather = {iwarp, wqe};
	uint32_t count;
	if (wqe->opcode != HDL_OP_SEND && wqe->opcode != HDL_OP_REGISTER_SEND) {
		request_finish(wqe, HDL_WC_LOC_QP_OP_ERR, HDL_DETAIL_TYPE);
		return STEP_NEXT;
	}
	while (wqe->offset < wqe->length) {
		uint32_t left = wqe->length - wqe->offset;
		if (!iwarp_out_room(iwarp, 0, left, &count))
			return STEP_WAIT;
		if (!iwarp_out_plain(iwarp, wqe->offset, count, gather_fill, &gather))
			return STEP_NEXT;
		wqe->numbered = 1;
		wqe->offset += count;
	}
	return tx_sent(iwarp, wqe);
}

static enum step tx_execute(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	struct iwarp *iwarp = qp->iwarp;
	if ((wqe->flags & HDL_SEND_FENCE) && qp->reads_open > 0 && !wqe->numbered)
		return STEP_WAIT;
	enum step step = request_own(engine, qp, wqe);
	if (step == STEP_WAIT)
		iwarp_delay(iwarp, wqe->u.delay.ns);
	if (step != STEP_BY_TARGET)
		return step;
	if (iwarp->terms.plain)
		return wqe->opcode != HDL_OP_REGISTER_SEND || request_register(engine, qp, wqe)
		               ? tx_plain(iwarp, wqe)
		               : STEP_NEXT;
	switch (wqe->opcode) {
	case HDL_OP_REGISTER_SEND:
		return request_register(engine, qp, wqe) ? tx_send(iwarp, wqe) : STEP_NEXT;
	case HDL_OP_SEND:
	case HDL_OP_SEND_INVALIDATE:
		return tx_send(iwarp, wqe);
	case HDL_OP_WRITE:
	case HDL_OP_WRITE_IMM:
		return tx_write(iwarp, wqe);
	case HDL_OP_READ:
	case HDL_OP_COMPARE_SWAP:
	case HDL_OP_FETCH_ADD:
		return tx_read(iwarp, wqe);
	default: /* RFC 7306 has no Send with immediate data */
		request_finish(wqe, HDL_WC_LOC_QP_OP_ERR, HDL_DETAIL_TYPE);
		return STEP_NEXT;
	}
}

bool iwarp_run(struct engine *engine, struct qp *qp)
{
	struct iwarp *iwarp = qp->iwarp;
	if (iwarp == NULL || iwarp->ending != IWARP_GOES_ON)
		return false;
	uint64_t before = iwarp->sender.position;
	bool did = request_run(engine, qp, tx_execute);
	if (iwarp->sender.position != before)
		iwarp_wake(iwarp);
	else if (iwarp->terms.plain) /* a send without bytes is over at once */
		iwarp_sent(iwarp);
	iwarp_decide(iwarp);
	return did;
}

void iwarp_sent(struct iwarp *iwarp)
{
	struct qp *qp = iwarp->qp;
	uint32_t head = wq_head(&qp->sq), at = iwarp->tell;
	if ((int32_t)(head - at) > 0)
		at = head;
	for (; at != qp->next; at++) {
		struct wqe_send *wqe = wq_at(&qp->sq, at);
		if (wqe->state != WQE_SENT || request_is_read(wqe))
			continue;
		if ((int32_t)((uint32_t)iwarp->taken - wqe->msn) < 0)
			break;
		qp->unanswered--;
		request_finish(wqe, HDL_WC_SUCCESS, HDL_DETAIL_NONE);
	}
	iwarp->tell = at;
	request_reap(iwarp->engine, qp);
}

struct wqe_send *iwarp_oldest_read(struct iwarp *iwarp)
{
	struct qp *qp = iwarp->qp;
	uint32_t head = wq_head(&qp->sq), at = iwarp->oldest;
	if (qp->reads_open == 0)
		return NULL;
	if ((int32_t)(head - at) > 0)
		at = head;
	for (; at != qp->next; at++) {
		struct wqe_send *wqe = wq_at(&qp->sq, at);
		if (wqe->state == WQE_SENT && request_is_read(wqe)) {
			iwarp->oldest = at;
			return wqe;
		}
	}
	return NULL;
}

struct wqe_send *iwarp_named_read(const struct iwarp *iwarp, uint32_t msn)
{
	const struct qp *qp = iwarp->qp;
	for (uint32_t i = wq_head(&qp->sq); i != qp->next; i++) {
		struct wqe_send *wqe = wq_at(&qp->sq, i);
		if (wqe->state == WQE_SENT && request_is_read(wqe) && wqe->msn == msn)
			return wqe;
	}
	return NULL;
}

void iwarp_read_done(struct iwarp *iwarp, struct wqe_send *wqe)
{
	struct qp *qp = iwarp->qp;
	qp->unanswered--;
	qp->reads_open--;
	request_finish(wqe, HDL_WC_SUCCESS, HDL_DETAIL_NONE);
	request_reap(iwarp->engine, qp);
	/* Others may have waited for it: a fence, or one read more. */
	if (qp->next != wq_tail(&qp->sq))
		engine_activate(iwarp->engine, qp);
}

bool iwarp_drained(const struct iwarp *iwarp)
{
	const struct qp *qp = iwarp->qp;
	return wq_held(&qp->sq) == 0 && iwarp->out == NULL && !iwarp_owes(qp) && !iwarp->ready_read;
}
