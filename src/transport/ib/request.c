/* The wire: the responder. Requests are executed packet by packet in the order of their PSNs,
 * through op.h. Requests that came before are not executed twice; if one comes too early, the
 * missing ones are requested again. Answers are owed, never sent from here (ib/answer.c). */
#include <string.h>

#include "queue/qp_state.h"
#include "transport/ib/ib.h"
#include "transport/ib/rd.h"
#include "transport/op.h"
#include "transport/respond.h"
#include "transport/xrc.h"
#include "wire/be.h"

void ib_begin_responder(struct qp *qp)
{
	struct ib *ib = qp->ib;
	ib->expected_psn = ib_psn(qp->attr.rq_psn);
	ib->recorded.request_in = ib->recorded.answer_out = ib->expected_psn;
	ib->msn = 0;
	ib_guess_begin(ib);
	if (ib->stripe != NULL)
		stripe_init(ib->stripe, ib->stripe->count, ib->stripe->packet_bytes);
	ib->kind = IB_NOTHING;
	ib->reads_put = ib->reads_sent = 0;
	ib->touch_due = false;
	ib->read_psn = ib_psn(~ib->expected_psn); /* there was none before */
	ib->ack_due = ib->cnp_due = ib->reply_alternate = false;
	ib->cnp_ns = 0;
	ib->burst.limit = ib->burst.sent = 0;
	ib->burst.psn = ib_psn(~ib->expected_psn); /* there was none before */
	if (ib->rd == NULL)
		ib->to = qp;
}

void ib_owe_ack(struct engine *engine, struct qp *qp, uint8_t syndrome, uint32_t psn)
{
	struct ib *ib = qp->ib;
	ib->ack_new = !ib->ack_due && ib_aeth_kind(syndrome) == IB_AETH_ACK;
	ib->ack_due = true;
	ib->syndrome = syndrome;
	ib->ack_psn = ib_psn(psn);
	engine_owe(engine, qp);
}

void ib_owe_nak(struct engine *engine, struct qp *qp, enum ib_nak_code code, uint32_t psn)
{
	ib_owe_ack(engine, qp, ib_aeth_syndrome(IB_AETH_NAK, (uint8_t)code), psn);
}

/* The request cannot be executed: tell the peer, raise the event unless a completion reports it,
 * and fail (IBTA table 62). An unreliable request is dropped with the rest of its message. */
static void ib_request_refuse_quietly(struct engine *engine, struct qp *qp, enum ib_nak_code code,
                                      uint32_t psn, enum hdl_detail detail, bool told)
{
	qp->ib->kind = IB_NOTHING;
	tpt_count(engine->tpt, detail);
	if (!qp_reliable(qp))
		return;
	ib_owe_nak(engine, qp, code, psn);
	if (qp->type == QP_TYPE_EEC) {
		rd_refused(engine, qp);
		return;
	}
	respond_refused(engine, qp, code == IB_NAK_INVALID_REQUEST, detail, told);
}

static void ib_request_refuse(struct engine *engine, struct qp *qp, enum ib_nak_code code,
                              uint32_t psn, enum hdl_detail detail)
{
	ib_request_refuse_quietly(engine, qp, code, psn, detail, false);
}

static void invalid(struct engine *engine, struct qp *qp, const struct ib_packet *packet)
{
	ib_request_refuse(engine, qp, IB_NAK_INVALID_REQUEST, packet->bth.psn, HDL_DETAIL_NONE);
}

/* More reads and atomics than the queue pair answers at a time. */
static void too_many(struct engine *engine, struct qp *qp, const struct ib_packet *packet)
{
	ib_request_refuse(engine, qp, IB_NAK_INVALID_REQUEST, packet->bth.psn, respond_no_room(qp));
}

static enum ib_nak_code code_for(enum hdl_detail detail)
{
	if (detail == HDL_DETAIL_MISALIGNED)
		return IB_NAK_INVALID_REQUEST;
	return detail == HDL_DETAIL_GONE ? IB_NAK_REMOTE_OPERATIONAL_ERROR
	                                 : IB_NAK_REMOTE_ACCESS_ERROR;
}

/* --- receives --- */

/* A message, or part of it, found no receive or failed in the one that it found. */
static void ib_request_not_received(struct engine *engine, struct qp *qp,
                                    const struct ib_packet *packet, enum op_received received,
                                    enum hdl_detail detail)
{
	uint32_t psn = packet->bth.psn;
	switch (received) {
	case OP_NO_RECEIVE:
		if (!qp_reliable(qp)) {
			counter_add(&engine->counters[ENGINE_DROPPED_NO_RECV], 1);
			qp->ib->kind = IB_NOTHING;
			return;
		}
		counter_add(&engine->counters[ENGINE_RNR_SENT], 1);
		qp->nak_sent = true;
		ib_owe_ack(engine, qp,
		           ib_aeth_syndrome(IB_AETH_RNR_NAK, qp->ib->to->attr.min_rnr_timer), psn);
		return;
	case OP_TOO_LONG:
		if (qp_drops(qp)) { /* with the rest of the message */
			qp->ib->kind = IB_NOTHING;
			return;
		}
		ib_request_refuse(engine, qp, IB_NAK_INVALID_REQUEST, psn, detail);
		break;
	case OP_INVALIDATE_REFUSED:
		/* IBTA section 9.9.6.3, class J: the message has arrived and is acknowledged. That
		 * its key could not be invalidated is a local error, which the completion of the
		 * receive reports. */
		qp->ib->msn = ib_psn(qp->ib->msn + 1);
		ib_owe_ack(engine, qp, 0, psn);
		break;
	default: /* our own fault, which the completion of the receive reports: no event */
		if (qp_reliable(qp))
			ib_owe_nak(engine, qp, IB_NAK_REMOTE_OPERATIONAL_ERROR, psn);
		if (qp->type == QP_TYPE_EEC)
			rd_refused(engine, qp);
	}
	if (qp_state(qp) != HDL_QPS_ERR && qp->type != QP_TYPE_EEC)
		qp_enter(engine, qp, HDL_QPS_ERR);
}

/* Consume a receive for a message of @length that ends with @packet. True: done. */
static bool receive(struct engine *engine, struct qp *qp, const struct ib_packet *packet, bool here,
                    uint32_t length)
{
	bool immediate = (packet->headers & IB_HAS_IMMDT) != 0;
	bool invalidates = (packet->headers & IB_HAS_IETH) != 0;
	uint32_t word = packet->ieth.rkey;
	if (immediate)
		be32_store((uint8_t *)&word, packet->immdt.data);
	struct op_message message = {
	        .bytes = here ? (void *)(uintptr_t)packet->payload : NULL,
	        .length = length,
	        .src_qpn = qp->type == QP_TYPE_EEC ? qp->ib->rd->peer : qp->attr.dest_qpn,
	        .eecn = qp->type == QP_TYPE_EEC ? qp->qpn : 0,
	        .imm = immediate || invalidates ? word : 0,
	        .wc_flags = (immediate ? HDL_WC_WITH_IMM : 0u) |
	                    (invalidates ? HDL_WC_WITH_INVALIDATE : 0u),
	        .wc_opcode = packet->op->operation == IB_SEND ? HDL_WC_RECV : HDL_WC_RECV_WRITE_IMM,
	        .solicited = packet->bth.solicited};
	enum hdl_detail detail;
	struct hdl_key key;
	enum op_received received = op_receive(engine, qp->ib->to, &message, &detail, &key);
	if (received == OP_RECEIVED) {
		counter_add(&engine->counters[ENGINE_BYTES_RECEIVED], length);
		return true;
	}
	ib_request_not_received(engine, qp, packet, received, detail);
	return false;
}

/* --- sends and writes --- */

static bool ends(const struct ib_packet *packet)
{
	return packet->op->part == IB_LAST || packet->op->part == IB_ONLY;
}

static bool ib_request_run_send(struct engine *engine, struct qp *qp,
                                const struct ib_packet *packet)
{
	struct ib *ib = qp->ib;
	uint32_t count = (uint32_t)packet->payload_bytes;
	if (packet->op->part == IB_ONLY)
		return receive(engine, qp, packet, true, count);
	if (packet->op->part == IB_FIRST) {
		ib->kind = IB_SEND;
		ib->offset = 0;
	}
	if (count > HDL_MAX_MESSAGE - ib->offset) {
		invalid(engine, qp, packet);
		return false;
	}
	enum hdl_detail detail = HDL_DETAIL_NONE;
	enum op_received received =
	        op_receive_part(engine, ib->to, ib->offset + count, ib->offset,
	                        (void *)(uintptr_t)packet->payload, count, &detail);
	if (received != OP_RECEIVED) {
		if (packet->op->part == IB_FIRST)
			ib->kind = IB_NOTHING;
		ib_request_not_received(engine, qp, packet, received, detail);
		return false;
	}
	/* There is a receive: part of it has been filled. */
	if (ends(packet) && !receive(engine, qp, packet, false, ib->offset + count))
		return false;
	ib->offset += count;
	return true;
}

/* The RETH of a write: access and length are checked once, for the whole range. */
static bool begin_write(struct engine *engine, struct qp *qp, const struct ib_packet *packet)
{
	struct ib *ib = qp->ib;
	const struct ib_reth *reth = &packet->reth;
	bool only = packet->op->part == IB_ONLY;
	struct hdl_sge whole = {
	        .addr = reth->addr, .length = reth->length_bytes, .key = {reth->rkey}};
	struct sg range;
	if ((qp->ib->to->attr.access & HDL_ACCESS_REMOTE_WRITE) == 0 ||
	    reth->length_bytes > HDL_MAX_MESSAGE ||
	    (only ? packet->payload_bytes != reth->length_bytes
	          : packet->payload_bytes >= reth->length_bytes)) {
		invalid(engine, qp, packet);
		return false;
	}
	/* Immediate data needs a receive; check before the data is placed. */
	if (only && (packet->headers & IB_HAS_IMMDT) != 0 && !op_has_receive(ib->to)) {
		ib_request_not_received(engine, qp, packet, OP_NO_RECEIVE, HDL_DETAIL_NONE);
		return false;
	}
	enum hdl_detail detail = HDL_DETAIL_NONE;
	if (reth->length_bytes > 0) {
		if (!ib_may_judge(engine, qp, whole.key)) {
			counter_add(&engine->counters[ENGINE_DROPPED_KEYS], 1);
			ib->kind = IB_NOTHING;
			return false;
		}
		detail = respond_check(engine, qp->ib->to, &whole, HDL_ACCESS_REMOTE_WRITE,
		                       &respond_whole_message, &range);
		ib_judged(qp, whole.key, detail == HDL_DETAIL_NONE);
	}
	if (detail != HDL_DETAIL_NONE) {
		/* IBTA section 9.9.6.3, class C: if it is known which receive the request would
		 * consume, that one reports the error. It is not known for a longer message, whose
		 * first packet does not tell that the last one carries immediate data. */
		bool told = (packet->headers & IB_HAS_IMMDT) != 0 && qp_reliable(qp) &&
		            qp->type != QP_TYPE_EEC && op_refuse_receive(engine, qp, detail);
		ib_request_refuse_quietly(engine, qp, code_for(detail), packet->bth.psn, detail,
		                          told);
		return false;
	}
	ib->kind = IB_WRITE;
	ib->offset = 0;
	ib->write_addr = reth->addr;
	ib->write_key = whole.key;
	ib->write_length = reth->length_bytes;
	return true;
}

static bool ib_request_run_write(struct engine *engine, struct qp *qp,
                                 const struct ib_packet *packet)
{
	struct ib *ib = qp->ib;
	uint32_t count = (uint32_t)packet->payload_bytes;
	if ((packet->headers & IB_HAS_RETH) != 0 && !begin_write(engine, qp, packet))
		return false;
	if (count > ib->write_length - ib->offset ||
	    ends(packet) != (count == ib->write_length - ib->offset)) {
		invalid(engine, qp, packet);
		return false;
	}
	bool immediate = (packet->headers & IB_HAS_IMMDT) != 0;
	if (immediate && !op_has_receive(ib->to)) {
		ib_request_not_received(engine, qp, packet, OP_NO_RECEIVE, HDL_DETAIL_NONE);
		return false;
	}
	struct hdl_sge piece,
	        part = {.addr = ib->write_addr + ib->offset, .length = count, .key = ib->write_key};
	struct sg to = respond_range(engine, ib->to, &part, HDL_ACCESS_REMOTE_WRITE);
	struct sg from = sg_plain(&piece, packet->payload, count);
	struct sg_result result = sg_move(&engine->own.ops, MOVE_BOTH_OWN, &to, &from, count);
	if (result.detail != HDL_DETAIL_NONE) {
		if (result.detail == HDL_DETAIL_GONE)
			op_memory_gone(engine, result.key);
		ib_request_refuse(engine, qp, code_for(result.detail), packet->bth.psn,
		                  result.detail);
		return false;
	}
	counter_add(&engine->counters[ENGINE_BYTES_WRITTEN], count);
	if (immediate && !receive(engine, qp, packet, false, ib->write_length))
		return false;
	ib->offset += count;
	if (ends(packet) && ib->write_length > 0)
		respond_touch(engine, ib->write_key, &respond_whole_message);
	return true;
}

/* --- reads and atomics --- */

/* An entry for one more request that keeps its answer; NULL: more than was agreed. Requests that
 * were repeated do not count: the initiator has given them up, or it would not continue. */
static struct read_entry *new_entry(struct qp *qp, uint32_t psn, uint32_t span)
{
	struct ib *ib = qp->ib;
	if (qp->reads.depth == 0)
		return NULL;
	while (ib->reads_put - ib->reads_sent >= qp->reads.depth) {
		struct read_entry *oldest = &qp->reads.entries[ib->reads_sent & qp->reads.mask];
		if (oldest->owed && !oldest->again)
			return NULL;
		oldest->owed = false;
		ib->reads_sent++;
	}
	struct read_entry *entry = &qp->reads.entries[ib->reads_put & qp->reads.mask];
	*entry = (struct read_entry){
	        .used = true, .msn = psn, .tag = ib_psn(psn + span - 1), .pd = ib->to->pd};
	entry->way = ib_came(ib);
	return entry;
}

static void owe_entry(struct engine *engine, struct qp *qp, struct read_entry *entry)
{
	entry->owed = true;
	entry->result = entry->finished ? entry->result : qp->ib->msn;
	qp->ib->reads_put++;
	engine_owe(engine, qp);
}

/* Does this request continue the last read? Long reads come as several requests. */
static bool ib_request_goes_on(const struct ib *ib, const struct ib_packet *packet)
{
	return packet->op->operation == IB_READ_REQUEST && packet->bth.psn == ib->read_psn &&
	       packet->reth.addr == ib->read_end && packet->reth.rkey == ib->read_key.v;
}

static bool ib_request_run_read(struct engine *engine, struct qp *qp,
                                const struct ib_packet *packet, uint32_t *span)
{
	struct ib *ib = qp->ib;
	const struct ib_reth *reth = &packet->reth;
	struct hdl_sge whole = {
	        .addr = reth->addr, .length = reth->length_bytes, .key = {reth->rkey}};
	struct sg range;
	if ((qp->ib->to->attr.access & HDL_ACCESS_REMOTE_READ) == 0 ||
	    reth->length_bytes > HDL_MAX_MESSAGE) {
		invalid(engine, qp, packet);
		return false;
	}
	*span = ib_packets(qp->ib, reth->length_bytes);
	struct read_entry *entry = new_entry(qp, packet->bth.psn, *span);
	if (entry == NULL) {
		too_many(engine, qp, packet);
		return false;
	}
	enum hdl_detail detail =
	        reth->length_bytes == 0
	                ? HDL_DETAIL_NONE
	                : respond_check(engine, ib->to, &whole, HDL_ACCESS_REMOTE_READ,
	                                &respond_whole_message, &range);
	if (detail != HDL_DETAIL_NONE) {
		ib_request_refuse(engine, qp, code_for(detail), packet->bth.psn, detail);
		return false;
	}
	entry->addr = reth->addr;
	entry->key = reth->rkey;
	entry->length = entry->to = reth->length_bytes;
	if (ib_request_goes_on(ib, packet)) {
		qp->reads.entries[(ib->reads_put - 1) & qp->reads.mask].joined = true;
		ib->touch_due = false;
	}
	ib->read_end = reth->addr + reth->length_bytes;
	ib->read_key = whole.key;
	ib->read_psn = ib_psn(packet->bth.psn + *span);
	owe_entry(engine, qp, entry);
	return true;
}

static bool ib_request_run_atomic(struct engine *engine, struct qp *qp,
                                  const struct ib_packet *packet)
{
	const struct ib_atomiceth *eth = &packet->atomiceth;
	bool add = packet->op->operation == IB_FETCH_ADD;
	struct hdl_sge range = {.addr = eth->addr, .length = 8, .key = {eth->rkey}};
	struct sg target;
	struct read_entry *entry;
	/* Reads before it see the memory as it was: they are answered first. */
	if (qp->ib->reads_put != qp->ib->reads_sent && !ib_answer(engine, qp)) {
		counter_add(&engine->counters[ENGINE_DROPPED], 1);
		return false;
	}
	if ((qp->ib->to->attr.access & HDL_ACCESS_REMOTE_ATOMIC) == 0) {
		invalid(engine, qp, packet);
		return false;
	}
	entry = new_entry(qp, packet->bth.psn, 1);
	if (entry == NULL) {
		too_many(engine, qp, packet);
		return false;
	}
	uint64_t old = 0;
	enum hdl_detail detail = respond_check(engine, qp->ib->to, &range, HDL_ACCESS_REMOTE_ATOMIC,
	                                       &respond_whole_message, &target);
	if (detail == HDL_DETAIL_NONE)
		detail = op_atomic(&engine->own.ops, MOVE_BOTH_OWN, &target, add,
		                   add ? eth->swap_or_add : eth->compare,
		                   add ? 0 : eth->swap_or_add, &old);
	if (detail != HDL_DETAIL_NONE) {
		if (detail == HDL_DETAIL_GONE)
			op_memory_gone(engine, range.key);
		ib_request_refuse(engine, qp, code_for(detail), packet->bth.psn, detail);
		return false;
	}
	respond_touch(engine, range.key, &respond_whole_message);
	counter_add(&engine->counters[ENGINE_ATOMICS], 1);
	entry->finished = true;
	entry->result = old;
	owe_entry(engine, qp, entry);
	return true;
}

/* --- order --- */

/* Does @packet follow what came before it? (IBTA table 60) */
static bool in_sequence(const struct ib *ib, const struct ib_packet *packet)
{
	if (packet->op->part == IB_FIRST || packet->op->part == IB_ONLY)
		return ib->kind == IB_NOTHING;
	return ib->kind == packet->op->operation;
}

void ib_touch(struct engine *engine, struct qp *qp)
{
	if (qp->ib->touch_due)
		respond_touch(engine, qp->ib->read_key, &respond_whole_message);
	qp->ib->touch_due = false;
}

bool ib_run_request(struct engine *engine, struct qp *qp, const struct ib_packet *packet,
                    uint32_t *span)
{
	*span = 1;
	if (qp->ib->touch_due && !ib_request_goes_on(qp->ib, packet))
		ib_touch(engine, qp);
	switch (packet->op->operation) {
	case IB_SEND:
		return ib_request_run_send(engine, qp, packet);
	case IB_WRITE:
		return ib_request_run_write(engine, qp, packet);
	case IB_READ_REQUEST:
		return ib_request_run_read(engine, qp, packet, span);
	default:
		return ib_request_run_atomic(engine, qp, packet);
	}
}

/* A repeated read: its responses, or some of the last of them, were lost. It requests part of the
 * original range. */
static void repeat_read(struct engine *engine, struct qp *qp, const struct ib_packet *packet,
                        struct read_entry *entry)
{
	struct ib *ib = qp->ib;
	const struct ib_reth *reth = &packet->reth;
	uint64_t from = (uint64_t)ib_psn(packet->bth.psn - entry->msn) * ib->mtu;
	if (entry->finished || from > entry->length || reth->rkey != entry->key ||
	    reth->addr != entry->addr + from || reth->length_bytes > entry->length - from) {
		counter_add(&engine->counters[ENGINE_BAD_PACKETS], 1);
		return;
	}
	/* It continues where a previous one, which is not answered yet, ends. */
	uint32_t packets = (uint32_t)from / ib->mtu;
	if (entry->owed && from == entry->to && from > entry->from && packets <= 32) {
		entry->cuts |= 1u << (packets - 1);
	} else {
		ib_burst_again(engine, ib, entry, (uint32_t)from);
		entry->from = entry->offset = (uint32_t)from;
		entry->cuts = 0;
	}
	entry->to = (uint32_t)from + reth->length_bytes;
	entry->owed = true;
}

/* How far to acknowledge to an initiator that sends @psn again: everything executed (C9-105),
 * except from a read or atomic behind @psn on, whose response it may lack as well. An ACK with the
 * last PSN of a read tells it to ask again; Linux's rdma_rxe considers the read done, and then the
 * response an error. */
static uint32_t repeated_ack(const struct qp *qp, uint32_t psn)
{
	const struct ib *ib = qp->ib;
	uint32_t end = ib->expected_psn;
	for (uint32_t age = 1; age <= qp->reads.depth && age <= ib->reads_put; age++) {
		const struct read_entry *entry =
		        &qp->reads.entries[(ib->reads_put - age) & qp->reads.mask];
		if (entry->used && ib_psn_distance(entry->msn, psn) > 0 &&
		    ib_psn_distance(entry->msn, end) < 0)
			end = entry->msn;
	}
	return end - 1;
}

/* A repeated request has already been executed, so its answer was lost or late (IBTA section
 * 9.7.5.1.2). */
static void ib_request_repeated(struct engine *engine, struct qp *qp,
                                const struct ib_packet *packet)
{
	struct ib *ib = qp->ib;
	uint8_t operation = packet->op->operation;
	counter_add(&engine->counters[ENGINE_REPEATED], 1);
	if (ib->stripe != NULL)
		ib->stripe->reply = ib->stripe->came;
	if (operation == IB_SEND || operation == IB_WRITE) {
		if (!ib->ack_due)
			ib_owe_ack(engine, qp, 0, repeated_ack(qp, packet->bth.psn));
		return;
	}
	for (uint32_t age = 1; age <= qp->reads.depth && age <= ib->reads_put; age++) {
		struct read_entry *entry =
		        &qp->reads.entries[(ib->reads_put - age) & qp->reads.mask];
		if (!entry->used || ib_psn_distance(packet->bth.psn, entry->msn) < 0)
			continue;
		if (ib_psn_distance(packet->bth.psn, entry->tag) > 0)
			return;
		if (ib_asks_for_echo(ib, packet, entry)) {
			engine_owe(engine, qp);
			return;
		}
		entry->way = ib_came(ib);
		if (operation == IB_READ_REQUEST)
			repeat_read(engine, qp, packet, entry);
		else
			entry->owed |= entry->finished;
		entry->again = true;
		if (entry->owed && ib->reads_put - ib->reads_sent < age)
			ib->reads_sent = ib->reads_put - age;
		engine_owe(engine, qp);
		return;
	}
	if (qp->type == QP_TYPE_EEC && !ib->ack_due) /* the queue pair that it was for is gone */
		ib_owe_nak(engine, qp, IB_NAK_INVALID_RD_REQUEST, packet->bth.psn);
}

/* An unreliable connection: a packet out of order is lost together with its message (IBTA section
 * 9.8.2). */
static void unreliable(struct engine *engine, struct qp *qp, const struct ib_packet *packet)
{
	struct ib *ib = qp->ib;
	uint32_t span;
	bool begins = packet->op->part == IB_FIRST || packet->op->part == IB_ONLY;
	int32_t distance = ib_psn_distance(packet->bth.psn, ib->expected_psn);
	bool gap = distance > 0;
	if (distance < 0) { /* duplicated or overtaken: nothing is delivered twice or late */
		counter_add(&engine->counters[ENGINE_DROPPED], 1);
		return;
	}
	respond_established(engine, qp);
	ib->expected_psn = ib_psn(packet->bth.psn + 1);
	if (gap || begins) {
		/* The receive that a broken message was filling serves the next one. */
		ib->kind = IB_NOTHING;
		ib->offset = 0;
	}
	if (!in_sequence(ib, packet) ||
	    !ib_payload_fits(packet->op, packet->payload_bytes, ib->mtu)) {
		counter_add(&engine->counters[ENGINE_DROPPED], 1);
		ib->kind = IB_NOTHING;
		return;
	}
	if (ib_run_request(engine, qp, packet, &span) && ends(packet))
		ib->kind = IB_NOTHING;
}

/* Request what is lost, once. */
static void ask_again(struct engine *engine, struct qp *qp)
{
	if (qp->nak_sent)
		return;
	qp->nak_sent = true;
	counter_add(&engine->counters[ENGINE_SEQUENCE_NAKS], 1);
	ib_owe_nak(engine, qp, IB_NAK_PSN_SEQUENCE_ERROR, qp->ib->expected_psn);
}

/* @packet is the expected one. True: it has been executed. */
static bool expected(struct engine *engine, struct qp *qp, const struct ib_packet *packet)
{
	struct ib *ib = qp->ib;
	respond_established(engine, qp);
	qp->nak_sent = false;
	if (!in_sequence(ib, packet) ||
	    !ib_payload_fits(packet->op, packet->payload_bytes, ib->mtu) ||
	    (qp->type == HDL_QP_XRC_TGT && !xrc_choose(engine, qp, packet->xrceth.srq))) {
		invalid(engine, qp, packet);
		return false;
	}
	uint32_t span;
	if (qp->type == QP_TYPE_EEC ? !rd_request(engine, qp, packet, &span)
	                            : !ib_run_request(engine, qp, packet, &span))
		return false;
	ib->expected_psn = ib_psn(ib->expected_psn + span);
	bool done = ends(packet);
	if (done) {
		ib->kind = IB_NOTHING;
		ib->msn = ib_psn(ib->msn + 1);
	}
	bool answers_itself = packet->op->operation != IB_SEND && packet->op->operation != IB_WRITE;
	if (!answers_itself && (done || packet->bth.ack_request))
		ib_owe_ack(engine, qp, 0, packet->bth.psn);
	return true;
}

/* Packets come along two paths: those that are early are kept. */
static void ib_request_striped(struct engine *engine, struct qp *qp, const struct ib_packet *packet,
                               uint32_t ahead)
{
	struct ib *ib = qp->ib;
	if (ahead >= ib->stripe->count) { /* more than the peer may have in flight */
		counter_add(&engine->counters[ENGINE_BAD_PACKETS], 1);
		return;
	}
	/* That a path works again is reported along it, and immediately. */
	if (stripe_note(ib->stripe, packet->bth.psn, ib->expected_psn) && !ib->ack_due)
		ib_owe_ack(engine, qp, 0, ib->expected_psn - 1);
	if (ahead > 0) {
		if (!stripe_keep(ib->stripe, packet, ahead) ||
		    stripe_is_lost(ib->stripe, ib->expected_psn))
			ask_again(engine, qp);
		return;
	}
	while (packet != NULL && expected(engine, qp, packet))
		packet = stripe_take(ib->stripe, ib->expected_psn);
	if (packet == NULL && stripe_is_lost(ib->stripe, ib->expected_psn))
		ask_again(engine, qp);
}

void ib_request(struct engine *engine, struct qp *qp, const struct ib_packet *packet)
{
	struct ib *ib = qp->ib;
	if (qp->type == HDL_QP_UC) {
		unreliable(engine, qp, packet);
		return;
	}
	if (qp->type == QP_TYPE_EEC && rd_takes_itself(engine, qp, packet))
		return;
	int32_t distance = ib_psn_distance(packet->bth.psn, ib->expected_psn);
	if (distance < 0)
		ib_request_repeated(engine, qp, packet);
	else if (ib->stripe != NULL)
		ib_request_striped(engine, qp, packet, (uint32_t)distance);
	else if (distance > 0)
		ask_again(engine, qp);
	else
		expected(engine, qp, packet);
}
