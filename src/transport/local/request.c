/* The same-host path: the responder. It executes the requests of a connection in order, through
 * op.h, and owes answers. Nothing here waits for room in the other lane: answers that are owed are
 * kept in the queue pair. */
#include <assert.h>
#include <string.h>

#include "queue/qp_state.h"
#include "transport/local/local.h"
#include "transport/op.h"

/* @told: a completion reports it, so no event is needed. */
static void local_request_refuse_quietly(struct engine *engine, struct qp *qp, uint32_t msn,
                                         enum answer answer, enum hdl_detail detail, bool told)
{
	tpt_count(engine->tpt, detail);
	if (!qp_reliable(qp))
		return; /* unreliable: dropped, and the peer is not told */
	local_owe(engine, qp, answer, msn, detail);
	respond_refused(engine, qp, answer == ANSWER_INVALID, detail, told);
}

void local_refuse(struct engine *engine, struct qp *qp, uint32_t msn, enum answer answer,
                  enum hdl_detail detail)
{
	local_request_refuse_quietly(engine, qp, msn, answer, detail, false);
}

static void local_request_refuse(struct engine *engine, struct qp *qp, const struct arrival *a,
                                 enum answer answer, enum hdl_detail detail)
{
	local_refuse(engine, qp, a->frame.msn, answer, detail);
}

/* A write was refused. If it has immediate data, the completion of a receive reports it (IBTA
 * section 9.9.6.3, class C). */
static void refuse_write(struct engine *engine, struct qp *qp, const struct arrival *a,
                         enum hdl_detail detail)
{
	bool told = (a->frame.flags & FRAME_IMM) != 0 && qp_reliable(qp) &&
	            op_refuse_receive(engine, qp, detail);
	local_request_refuse_quietly(engine, qp, a->frame.msn, local_answer_for(detail), detail,
	                             told);
}

/* --- executing --- */

/* The data of @a as a list: bytes in the lane, or pieces of the sender's memory, of which @pieces
 * gets a copy. */
static bool data_of(struct engine *engine, struct qp *qp, const struct arrival *a, size_t skip,
                    struct hdl_sge *pieces, struct sg *data)
{
	const struct link *link = &engine->links[a->link];
	if ((a->frame.flags & FRAME_BY_REFERENCE) == 0) {
		*data = sg_plain(pieces, a->body + skip, a->frame.length);
		return true;
	}
	memcpy(pieces, a->body + skip, a->frame.num_sge * sizeof(*pieces));
	const struct qp_public *pub = &link->peer_qps[a->frame.from_qpn & link->peer_qp_mask];
	struct qp_facts facts;
	if (!qp_read_facts(pub, &facts) || !qp_may_receive(facts.state) ||
	    facts.dest_qpn != qp->qpn || facts.link != link->id)
		return false;
	*data = (struct sg){.table = &link->peer_table,
	                    .guard = link->guard,
	                    .pieces = pieces,
	                    .count = a->frame.num_sge,
	                    .pd = facts.pd,
	                    .qpn = a->frame.from_qpn,
	                    .access = a->frame.kind == FRAME_READ ? HDL_ACCESS_LOCAL_WRITE
	                                                          : HDL_ACCESS_LOCAL_READ,
	                    .side = TPT_LOCAL,
	                    .watch = pub,
	                    .watched = facts.word};
	return true;
}

static enum move_side side_of(const struct arrival *a)
{
	return a->frame.flags & FRAME_BY_REFERENCE ? MOVE_FROM_PEER : MOVE_BOTH_OWN;
}

/* A message @a, or a part of it, was not received: owe the peer the right answer. True: go on to
 * the next message. */
static bool local_request_not_received(struct engine *engine, struct qp *qp,
                                       const struct arrival *a, enum op_received received,
                                       enum hdl_detail detail, struct hdl_key key)
{
	switch (received) {
	case OP_NO_RECEIVE:
		if (qp_reliable(qp)) {
			counter_add(&engine->counters[ENGINE_RNR_SENT], 1);
			qp->nak_sent = true;
			local_owe(engine, qp, ANSWER_RNR, a->frame.msn, qp->attr.min_rnr_timer);
			return false;
		}
		counter_add(&engine->counters[ENGINE_DROPPED_NO_RECV], 1);
		return true;
	case OP_TOO_LONG:
		if (qp_drops(qp))
			return true;
		local_request_refuse(engine, qp, a, ANSWER_INVALID, detail);
		return false;
	case OP_INVALIDATE_REFUSED:
		/* IBTA section 9.9.6.3, class J: the message has arrived and is acknowledged. That
		 * its key could not be invalidated is a local error, which the receive's completion
		 * reports. */
		qp_enter(engine, qp, HDL_QPS_ERR);
		return true;
	case OP_TARGET_REFUSED: /* a local error, which the receive's completion reports: no
	                           event */
		if (qp_reliable(qp))
			local_owe(engine, qp, ANSWER_OPERATION, a->frame.msn, detail);
		qp_enter(engine, qp, HDL_QPS_ERR);
		return false;
	case OP_SOURCE_REFUSED:
		qp->close_key = key;
		local_owe(engine, qp, ANSWER_OWN_LIST, a->frame.msn, detail);
		qp->nak_sent = true;
		return false;
	case OP_SOURCE_CHANGED:
	default:
		return false;
	}
}

/* Consume a receive for the message @a. True: go on to the next message. */
static bool local_request_receive_message(struct engine *engine, struct qp *qp,
                                          const struct arrival *a, void *bytes, struct sg *data)
{
	bool immediate = (a->frame.flags & FRAME_IMM) != 0;
	struct op_message message = {
	        .bytes = bytes,
	        .data = data,
	        .copy = &engine->links[a->link].memory.ops,
	        .side = side_of(a),
	        .length = a->frame.length,
	        .src_qpn = a->frame.from_qpn,
	        .imm = a->frame.imm,
	        .wc_flags = (immediate ? HDL_WC_WITH_IMM : 0u) |
	                    (a->frame.flags & FRAME_INVALIDATE ? HDL_WC_WITH_INVALIDATE : 0u),
	        .wc_opcode = a->frame.kind == FRAME_SEND ? HDL_WC_RECV : HDL_WC_RECV_WRITE_IMM,
	        .solicited = (a->frame.flags & FRAME_SOLICITED) != 0};
	enum hdl_detail detail;
	struct hdl_key key;
	enum op_received received = op_receive(engine, qp, &message, &detail, &key);
	if (received == OP_RECEIVED) {
		counter_add(&engine->counters[ENGINE_BYTES_RECEIVED], a->frame.length);
		return true;
	}
	return local_request_not_received(engine, qp, a, received, detail, key);
}

static bool is_part(const struct arrival *a)
{
	return (a->frame.flags & FRAME_MORE) != 0 || a->frame.offset != 0;
}

/* The part has been placed. True: it was the last. */
static bool part_done(struct qp *qp, const struct arrival *a, size_t count)
{
	bool last = (a->frame.flags & FRAME_MORE) == 0;
	qp->local.part_offset = last ? 0 : qp->local.part_offset + (uint32_t)count;
	return last;
}

static bool local_request_run_send(struct engine *engine, struct qp *qp, const struct arrival *a)
{
	if (is_part(a)) {
		enum hdl_detail detail = HDL_DETAIL_NONE;
		enum op_received received =
		        op_receive_part(engine, qp, a->frame.length, a->frame.offset, a->body,
		                        (uint32_t)a->body_bytes, &detail);
		if (received != OP_RECEIVED)
			return local_request_not_received(engine, qp, a, received, detail,
			                                  (struct hdl_key){0});
		return part_done(qp, a, a->body_bytes) &&
		       local_request_receive_message(engine, qp, a, NULL, NULL);
	}
	if ((a->frame.flags & FRAME_BY_REFERENCE) == 0)
		return local_request_receive_message(engine, qp, a, a->body, NULL);
	struct hdl_sge pieces[HDL_MAX_SGE];
	struct sg data;
	if (!data_of(engine, qp, a, 0, pieces, &data))
		return false;
	return local_request_receive_message(engine, qp, a, NULL, &data);
}

/* What a refused copy means for the queue pair. True: the message counts as executed. */
static bool moved(struct engine *engine, struct qp *qp, const struct arrival *a,
                  struct sg_result result, bool target_is_ours)
{
	if (result.changed)
		return false;
	if (result.detail == HDL_DETAIL_NONE)
		return true;
	if (result.at_target == target_is_ours) {
		if (result.detail == HDL_DETAIL_GONE)
			op_memory_gone(engine, result.key);
		local_request_refuse(engine, qp, a, local_answer_for(result.detail), result.detail);
	} else {
		qp->close_key = result.key;
		qp->nak_sent = true;
		local_owe(engine, qp, ANSWER_OWN_LIST, a->frame.msn, result.detail);
	}
	return !qp_reliable(qp);
}

/* A part of a write. The first part also checks the whole range; every part checks its own; the
 * last brings the immediate data. */
static bool run_write_part(struct engine *engine, struct qp *qp, const struct arrival *a,
                           const struct frame_target *target)
{
	uint32_t count = (uint32_t)(a->body_bytes - sizeof(*target));
	struct hdl_sge whole = {
	        .addr = target->addr, .length = a->frame.length, .key = target->key};
	struct hdl_sge range = {
	        .addr = target->addr + a->frame.offset, .length = count, .key = target->key};
	struct sg to;
	enum hdl_detail detail = HDL_DETAIL_NONE;
	if ((qp->attr.access & HDL_ACCESS_REMOTE_WRITE) == 0) {
		local_request_refuse(engine, qp, a, ANSWER_INVALID, HDL_DETAIL_NONE);
		return false;
	}
	if (a->frame.offset == 0) {
		qp->local.part_key = target->key;
		detail = respond_check(engine, qp, &whole, HDL_ACCESS_REMOTE_WRITE,
		                       &respond_whole_message, &to);
	} else if (target->key.v != qp->local.part_key.v) {
		/* The key of the first part would never be touched. */
		local_request_refuse(engine, qp, a, ANSWER_INVALID, HDL_DETAIL_NONE);
		return false;
	}
	if (detail != HDL_DETAIL_NONE) {
		refuse_write(engine, qp, a, detail);
		return false;
	}
	struct hdl_sge piece;
	struct sg data = sg_plain(&piece, a->body + sizeof(*target), count);
	to = respond_range(engine, qp, &range, HDL_ACCESS_REMOTE_WRITE);
	struct sg_result result = sg_move(&engine->own.ops, MOVE_BOTH_OWN, &to, &data, count);
	if (result.detail != HDL_DETAIL_NONE) {
		moved(engine, qp, a, result, true);
		return false;
	}
	counter_add(&engine->counters[ENGINE_BYTES_WRITTEN], count);
	if (!part_done(qp, a, count))
		return false;
	if ((a->frame.flags & FRAME_IMM) != 0 &&
	    !local_request_receive_message(engine, qp, a, NULL, NULL))
		return false;
	respond_touch(engine, target->key, &respond_whole_message);
	return true;
}

static bool local_request_run_write(struct engine *engine, struct qp *qp, const struct arrival *a)
{
	struct frame_target target;
	memcpy(&target, a->body, sizeof(target));
	struct hdl_sge pieces[HDL_MAX_SGE];
	struct hdl_sge range = {.addr = target.addr, .length = a->frame.length, .key = target.key};
	struct sg to, data;
	if (is_part(a))
		return run_write_part(engine, qp, a, &target);
	if (!data_of(engine, qp, a, sizeof(target), pieces, &data))
		return false;
	if ((qp->attr.access & HDL_ACCESS_REMOTE_WRITE) == 0) {
		local_request_refuse(engine, qp, a, ANSWER_INVALID, HDL_DETAIL_NONE);
		return !qp_reliable(qp);
	}
	/* Immediate data needs a receive: check before the data is placed. */
	bool immediate = (a->frame.flags & FRAME_IMM) != 0;
	if (immediate && !op_has_receive(qp))
		return local_request_receive_message(engine, qp, a, NULL, NULL);
	if (a->frame.length > 0) {
		enum hdl_detail detail = respond_check(engine, qp, &range, HDL_ACCESS_REMOTE_WRITE,
		                                       &respond_whole_message, &to);
		if (detail != HDL_DETAIL_NONE) {
			refuse_write(engine, qp, a, detail);
			return !qp_reliable(qp);
		}
		struct sg_result result = sg_move(&engine->links[a->link].memory.ops, side_of(a),
		                                  &to, &data, a->frame.length);
		if (!moved(engine, qp, a, result, true))
			return false;
		if (result.detail != HDL_DETAIL_NONE)
			return true; /* unreliable: lost, and nobody is told */
		counter_add(&engine->counters[ENGINE_BYTES_WRITTEN], a->frame.length);
		respond_touch(engine, target.key, &respond_whole_message);
	}
	return !immediate || local_request_receive_message(engine, qp, a, NULL, NULL);
}

static bool local_request_run_read(struct engine *engine, struct qp *qp, const struct arrival *a)
{
	struct frame_target target;
	memcpy(&target, a->body, sizeof(target));
	struct hdl_sge pieces[HDL_MAX_SGE];
	struct hdl_sge range = {.addr = target.addr, .length = a->frame.length, .key = target.key};
	struct sg from, list;
	struct read_entry *entry;
	enum read_verdict verdict = READ_OUT_OF_RANGE;
	bool allowed = (qp->attr.access & HDL_ACCESS_REMOTE_READ) != 0;
	if (allowed)
		verdict = read_queue_put(&qp->reads, a->frame.imm, &entry);
	/* Executed before and yet expected: the initiator's pieces were refused, but it did not get
	 * that answer. */
	if (verdict != READ_ACCEPTED && verdict != READ_REPEATED) {
		local_request_refuse(engine, qp, a, ANSWER_INVALID,
		                     allowed ? respond_no_room(qp) : HDL_DETAIL_NONE);
		return false;
	}
	if (verdict == READ_ACCEPTED)
		read_queue_finish(&qp->reads, entry, 0);
	if (a->frame.length == 0)
		return true;
	if ((a->frame.flags & FRAME_BY_REFERENCE) != 0 &&
	    !data_of(engine, qp, a, sizeof(target), pieces, &list))
		return false;
	enum hdl_detail detail = respond_check(engine, qp, &range, HDL_ACCESS_REMOTE_READ,
	                                       &respond_whole_message, &from);
	if (detail != HDL_DETAIL_NONE) {
		local_request_refuse(engine, qp, a, local_answer_for(detail), detail);
		return false;
	}
	if ((a->frame.flags & FRAME_BY_REFERENCE) == 0) {
		local_owe_data(engine, qp, entry, &a->frame, &target);
		return true;
	}
	if (!moved(engine, qp, a,
	           sg_move(&engine->links[a->link].memory.ops, MOVE_TO_PEER, &list, &from,
	                   a->frame.length),
	           false))
		return false;
	respond_touch(engine, target.key, &respond_whole_message);
	return true;
}

static bool local_request_run_atomic(struct engine *engine, struct qp *qp, const struct arrival *a)
{
	struct frame_atomic atomic;
	memcpy(&atomic, a->body, sizeof(atomic));
	struct hdl_sge range = {.addr = atomic.addr, .length = 8, .key = atomic.key};
	struct sg target;
	struct read_entry *entry;
	bool allowed = (qp->attr.access & HDL_ACCESS_REMOTE_ATOMIC) != 0;
	if (!allowed || read_queue_put(&qp->reads, a->frame.imm, &entry) != READ_ACCEPTED) {
		local_request_refuse(engine, qp, a, ANSWER_INVALID,
		                     allowed ? respond_no_room(qp) : HDL_DETAIL_NONE);
		return false;
	}
	uint64_t old = 0;
	enum hdl_detail detail = respond_check(engine, qp, &range, HDL_ACCESS_REMOTE_ATOMIC,
	                                       &respond_whole_message, &target);
	if (detail == HDL_DETAIL_NONE)
		detail = op_atomic(&engine->own.ops, MOVE_BOTH_OWN, &target,
		                   (a->frame.flags & FRAME_ADD) != 0, atomic.compare_add,
		                   atomic.swap, &old);
	read_queue_finish(&qp->reads, entry, old);
	if (detail != HDL_DETAIL_NONE) {
		if (detail == HDL_DETAIL_GONE)
			op_memory_gone(engine, atomic.key);
		local_request_refuse(engine, qp, a, local_answer_for(detail), detail);
		return false;
	}
	respond_touch(engine, atomic.key, &respond_whole_message);
	counter_add(&engine->counters[ENGINE_ATOMICS], 1);
	entry->tag = a->frame.msn;
	entry->owed = true;
	if (qp->local.results_due++ == 0)
		qp->local.result_read = a->frame.imm;
	engine_owe(engine, qp);
	return true;
}

static bool run_request(struct engine *engine, struct qp *qp, const struct arrival *a)
{
	switch (a->frame.kind) {
	case FRAME_SEND:
		return local_request_run_send(engine, qp, a);
	case FRAME_NOTICE:
		return local_request_receive_message(engine, qp, a, NULL, NULL);
	case FRAME_WRITE:
		return local_request_run_write(engine, qp, a);
	case FRAME_READ:
		return local_request_run_read(engine, qp, a);
	default:
		return local_request_run_atomic(engine, qp, a);
	}
}

/* Is the result that the request asked for its only answer? */
static bool answers_itself(const struct arrival *a)
{
	return a->frame.kind == FRAME_ATOMIC ||
	       (a->frame.kind == FRAME_READ && (a->frame.flags & FRAME_BY_REFERENCE) == 0 &&
	        a->frame.length > 0);
}

/* A message that has been executed before, so the answer was lost or late. */
static void local_request_repeated(struct engine *engine, struct qp *qp, const struct arrival *a)
{
	struct read_entry *entry;
	counter_add(&engine->counters[ENGINE_REPEATED], 1);
	if (a->frame.kind == FRAME_ATOMIC) {
		/* If answers are still owed, ours would overtake them and acknowledge theirs; it is
		 * one of them anyway. */
		if (qp->local.results_due == 0 &&
		    read_queue_put(&qp->reads, a->frame.imm, &entry) == READ_REPEATED)
			local_reply(engine, qp, a->frame.msn, ANSWER_VALUE, 0, entry->result);
		return;
	}
	if (answers_itself(a)) { /* a read: send its data again */
		local_request_run_read(engine, qp, a);
		return;
	}
	if (!qp->local.answer_due)
		local_owe(engine, qp, ANSWER_ACK, qp->local.expected_msn - 1, 0);
}

static void unreliable_request(struct engine *engine, struct qp *qp, const struct arrival *a)
{
	if (!local_part_is_next(qp, &a->frame))
		return;
	run_request(engine, qp, a);
	/* An answer that frees an earlier message frees this one, too; a refusal is not
	 * replaced. */
	if ((a->frame.flags & FRAME_BY_REFERENCE) &&
	    (!qp->local.answer_due || qp->local.answer == ANSWER_ACK))
		local_owe(engine, qp, ANSWER_ACK, a->frame.msn, 0);
}

/* What is special about requests to queue pairs other than RC. True: go on as for RC. */
static bool other_request(struct engine *engine, struct qp *qp, const struct arrival *a)
{
	if (qp->type == HDL_QP_UC) {
		unreliable_request(engine, qp, a);
		return false;
	}
	if (qp->type != HDL_QP_XRC_TGT) { /* an XRC initiator takes no requests */
		counter_add(&engine->counters[ENGINE_DROPPED], 1);
		return false;
	}
	if (xrc_choose(engine, qp, a->frame.ack))
		return true;
	qp->pd = 0; /* no domain */
	if (a->frame.msn != qp->local.expected_msn)
		return true;
	local_request_refuse(engine, qp, a, ANSWER_INVALID, HDL_DETAIL_NONE);
	return false;
}

void local_request(struct engine *engine, struct qp *qp, const struct arrival *a)
{
	if (qp->type != HDL_QP_RC && !other_request(engine, qp, a))
		return;
	int32_t distance = (int32_t)(a->frame.msn - qp->local.expected_msn);
	if (distance < 0) {
		local_request_repeated(engine, qp, a);
		return;
	}
	if (distance > 0) {
		if (!qp->nak_sent) {
			qp->nak_sent = true;
			local_owe(engine, qp, ANSWER_SEQUENCE, qp->local.expected_msn, 0);
		}
		return;
	}
	respond_established(engine, qp);
	if (!local_part_is_next(qp, &a->frame))
		return; /* left over from a message that will be repeated */
	qp->nak_sent = false;
	if (!run_request(engine, qp, a))
		return;
	local_executed(qp, a->frame.msn);
	if (!answers_itself(a))
		local_owe(engine, qp, ANSWER_ACK, a->frame.msn, 0);
}
