/* The same-host path: frames that come in. Takes frames out of a lane, has each judged once, from a
 * copy (local_judge()), and hands it to its queue pair: plain messages to local/short.c, other
 * requests to local/request.c, answers to local/retry.c, data of reads to local/value.c. Datagrams
 * are received here. */
#include <string.h>

#include "queue/qp_state.h"
#include "transport/local/local.h"
#include "transport/multicast.h"
#include "transport/op.h"

static void local_rx_datagram(struct engine *engine, struct qp *qp, const struct arrival *a)
{
	struct frame_datagram header;
	memcpy(&header, a->body, sizeof(header));
	if (header.qkey != qp->attr.qkey) {
		counter_add(&engine->counters[ENGINE_DROPPED_QKEY], 1);
		return;
	}
	uint8_t grh[HDL_GRH_BYTES] = {0};
	if (header.is_global) {
		/* IBTA section 8.3: version 6, traffic class, flow label, payload length, next
		 * header 0x1b, hop limit. */
		uint32_t first = 6u << 28 | (uint32_t)header.traffic_class << 20 |
		                 (header.flow_label & 0xfffffu);
		/* As on a wire: BTH, DETH and ICRC, immediate data, and the padding to words are
		 * counted too. */
		uint32_t length =
		        ((a->frame.length + 3) & ~3u) + 24 + (a->frame.flags & FRAME_IMM ? 4 : 0);
		for (int i = 0; i < 4; i++)
			grh[i] = (uint8_t)(first >> (24 - 8 * i));
		grh[4] = (uint8_t)(length >> 8);
		grh[5] = (uint8_t)length;
		grh[6] = 0x1b;
		grh[7] = header.hop_limit;
		memcpy(grh + 8, header.sgid, 16);
		memcpy(grh + 24, header.dgid, 16);
	}
	struct op_message message = {
	        .bytes = a->body + sizeof(header),
	        .grh = grh,
	        .length = a->frame.length,
	        .src_qpn = a->frame.from_qpn,
	        .imm = a->frame.imm,
	        .wc_flags = (header.is_global ? HDL_WC_GRH : 0u) |
	                    (a->frame.flags & FRAME_IMM ? HDL_WC_WITH_IMM : 0u),
	        .wc_opcode = HDL_WC_RECV,
	        .sl = header.sl,
	        .slid = header.slid,
	        .dlid_path_bits = (uint8_t)(header.dlid & ((1u << engine->lmc) - 1)),
	        .solicited = (a->frame.flags & FRAME_SOLICITED) != 0};
	op_receive_datagram(engine, qp, &message);
}

/* The peer's queue pair gave up on ours. */
static void closed(struct engine *engine, struct qp *qp, const struct arrival *a)
{
	enum hdl_detail detail =
	        a->frame.length < HDL_DETAIL_COUNT ? a->frame.length : HDL_DETAIL_NONE;
	enum hdl_event_type type = HDL_EVENT_QP_FATAL;
	if (a->frame.imm == HDL_EVENT_QP_ACCESS_ERR || a->frame.imm == HDL_EVENT_QP_REQUEST_ERR)
		type = a->frame.imm;
	/* A claim that memory has gone is believed of a key that the peer could have used, and of
	 * no other. */
	struct hdl_key key = {a->frame.msn};
	struct tpt_entry entry;
	if (detail == HDL_DETAIL_GONE && tpt_read(&engine->tpt->view, key, &entry) &&
	    entry.pd == qp->pd && (entry.access & OP_REMOTE_RIGHTS) != 0)
		op_memory_gone(engine, key);
	tpt_count(engine->tpt, detail);
	/* Of an XRC target it is not known which queue the request meant. */
	if ((a->frame.flags & FRAME_IMM) == 0 || qp->type != HDL_QP_RC ||
	    !op_refuse_receive(engine, qp, detail))
		op_event(engine, qp, type, detail);
	qp_enter(engine, qp, HDL_QPS_ERR);
}

/* Is the body of @a as long as its header says? */
static bool is_well_formed(const struct arrival *a)
{
	static const uint8_t fixed[FRAME_KIND_COUNT] = {
	        [FRAME_WRITE] = sizeof(struct frame_target),
	        [FRAME_READ] = sizeof(struct frame_target),
	        [FRAME_ATOMIC] = sizeof(struct frame_atomic),
	        [FRAME_ANSWER] = sizeof(struct frame_answer),
	        [FRAME_DATAGRAM] = sizeof(struct frame_datagram),
	};
	const struct frame *f = &a->frame;
	if (f->kind == 0 || f->kind >= FRAME_KIND_COUNT || a->body_bytes < fixed[f->kind] ||
	    f->num_sge > HDL_MAX_SGE)
		return false;
	size_t rest = a->body_bytes - fixed[f->kind];
	if (f->kind == FRAME_CI)
		return rest == f->length;
	if (f->kind == FRAME_PACKET)
		return rest == f->length && rest <= FRAME_MAX_PACKET;
	bool has_data = f->kind == FRAME_SEND || f->kind == FRAME_WRITE || f->kind == FRAME_READ ||
	                f->kind == FRAME_DATAGRAM || f->kind == FRAME_DATA;
	bool part = (f->flags & FRAME_MORE) != 0 || f->offset != 0 || f->kind == FRAME_DATA;
	if (f->length > HDL_MAX_MESSAGE && f->kind != FRAME_CLOSE)
		return false;
	if (part)
		return (f->kind == FRAME_SEND || f->kind == FRAME_WRITE || f->kind == FRAME_DATA) &&
		       (f->flags & FRAME_BY_REFERENCE) == 0 && rest > 0 && rest <= FRAME_MAX_PART &&
		       f->offset <= f->length && rest <= f->length - f->offset &&
		       ((f->flags & FRAME_MORE) != 0) == (rest < f->length - f->offset);
	if (!has_data)
		return rest == 0;
	if ((f->flags & FRAME_BY_REFERENCE) != 0)
		return f->kind != FRAME_DATAGRAM && rest == f->num_sge * sizeof(struct hdl_sge);
	if (f->kind == FRAME_READ)
		return rest == 0;
	return f->length <= (f->kind == FRAME_DATAGRAM ? FRAME_MAX_DATA : FRAME_MAX_PART) &&
	       rest == f->length;
}

/* Messages in a burst are judged one by one, as they are opened. */
enum frame_verdict local_judge_other(const struct arrival *a)
{
	return a->frame.kind == FRAME_BURST || is_well_formed(a) ? FRAME_GOOD : FRAME_BAD;
}

/* Nobody takes the frame. An unreliable sender does not repeat it, so it must be told that its
 * memory is free again. */
static void local_rx_drop(struct engine *engine, const struct arrival *a)
{
	const uint8_t waits = FRAME_UNRELIABLE | FRAME_BY_REFERENCE;
	counter_add(&engine->counters[ENGINE_DROPPED], 1);
	if ((a->frame.flags & waits) == waits && a->frame.kind != FRAME_ANSWER)
		local_send_answer(engine, a->link, a->frame.from_qpn, a->frame.to_qpn, a->frame.msn,
		                  (struct frame_answer){.answer = ANSWER_ACK});
}

/* A copy for each of our members. */
static void local_rx_to_group(struct engine *engine, const struct arrival *a)
{
	struct frame_datagram header;
	memcpy(&header, a->body, sizeof(header));
	const struct group *group = multicast_find(engine, header.dgid);
	for (uint32_t i = 0; group != NULL && i < group->member_count; i++)
		if (qp_may_receive(qp_state(group->members[i])))
			local_rx_datagram(engine, group->members[i], a);
}

static void local_rx_take(struct engine *engine, const struct arrival *a)
{
	if (a->frame.kind == FRAME_CI) {
		if (engine->sink.ci != NULL)
			engine->sink.ci(engine->sink.context, a->link, a->body, a->body_bytes);
		return;
	}
	if (a->frame.kind == FRAME_PACKET) {
		if (engine->sink.packet != NULL)
			engine->sink.packet(engine->sink.context, a->link, a->body, a->body_bytes);
		return;
	}
	struct qp *qp = engine_find_qp(engine, a->frame.to_qpn);
	if (qp == NULL) {
		/* No queue pair has the number that groups are addressed to. */
		if (a->frame.kind == FRAME_DATAGRAM && a->frame.to_qpn == MULTICAST_QPN)
			local_rx_to_group(engine, a);
		else
			local_rx_drop(engine, a);
		return;
	}
	bool is_datagram = a->frame.kind == FRAME_DATAGRAM;
	if (is_datagram != (qp->type == HDL_QP_UD) ||
	    (!is_datagram && (qp->link != a->link || qp->attr.dest_qpn != a->frame.from_qpn))) {
		local_rx_drop(engine, a);
		return;
	}
	enum hdl_qp_state state = qp_state(qp);
	if (a->frame.kind == FRAME_ANSWER) {
		struct frame_answer answer;
		memcpy(&answer, a->body, sizeof(answer));
		if (answer.answer >= ANSWER_COUNT || answer.detail >= 32)
			counter_add(&engine->counters[ENGINE_BAD_FRAMES], 1);
		else if (state != HDL_QPS_RTS && state != HDL_QPS_SQD)
			return;
		else if (answer.answer == ANSWER_ACK)
			local_acked(engine, qp, a->frame.msn);
		else
			local_answered(engine, qp, a->frame.msn, &answer);
		return;
	}
	if ((a->frame.flags & FRAME_ACKS) != 0 && (state == HDL_QPS_RTS || state == HDL_QPS_SQD)) {
		local_acked(engine, qp, a->frame.ack);
		state = qp_state(qp);
	}
	if (a->frame.kind == FRAME_DATA) {
		if (state == HDL_QPS_RTS || state == HDL_QPS_SQD)
			local_data(engine, qp, &a->frame, a->body, (uint32_t)a->body_bytes);
		return;
	}
	if (!qp_may_receive(state)) {
		local_rx_drop(engine, a);
		return;
	}
	if (a->frame.kind == FRAME_CLOSE)
		closed(engine, qp, a);
	else if (is_datagram)
		local_rx_datagram(engine, qp, a);
	else
		local_request(engine, qp, a);
}

/* @a is good, and no burst. */
static inline void take_message(struct engine *engine, const struct arrival *a,
                                enum frame_verdict verdict)
{
	if (verdict != FRAME_PLAIN || !local_short_take(engine, a))
		local_rx_take(engine, a);
}

/* Open message @index of the burst @a, whose item begins at *at of the body, as if it had come in a
 * frame of its own, and judge it. *at: behind it. */
static enum frame_verdict open_item(const struct arrival *a, uint32_t index, size_t *at,
                                    struct arrival *each)
{
	struct frame_item item;
	if (a->body_bytes - *at < sizeof(item))
		return FRAME_BAD;
	memcpy(&item, a->body + *at, sizeof(item));
	*at += sizeof(item);
	size_t padded = (item.length + 7u) & ~(size_t)7;
	if (a->body_bytes - *at < padded)
		return FRAME_BAD;
	each->frame.flags = item.flags & (FRAME_SOLICITED | FRAME_IMM);
	if (index == 0)
		each->frame.flags |= a->frame.flags & FRAME_ACKS;
	each->frame.msn = a->frame.msn + index;
	each->frame.length = item.length;
	each->frame.imm = item.imm;
	each->body = a->body + *at;
	each->body_bytes = item.length;
	*at += padded;
	return local_judge(each);
}

/* Take messages that share a frame, up to the first that makes no sense. False: there is one. */
static bool take_burst(struct engine *engine, const struct arrival *a)
{
	struct arrival each = *a;
	size_t at = 0;
	each.frame.kind = FRAME_SEND;
	each.frame.num_sge = 0;
	for (uint32_t i = 0; i < a->frame.num_sge; i++) {
		enum frame_verdict verdict = open_item(a, i, &at, &each);
		if (verdict == FRAME_BAD)
			return false;
		take_message(engine, &each, verdict);
	}
	return true;
}

unsigned local_receive(struct engine *engine, uint32_t index)
{
	struct link *link = &engine->links[index];
	unsigned count = 0;
	size_t bytes;
	const unsigned char *record;
	struct arrival a = {.link = index};
	while (count < ENGINE_RX_BATCH && link->up && (count == 0 || ring_waits(&link->rx)) &&
	       (record = ring_peek(&link->rx, &bytes)) != NULL) {
		count++;
		enum frame_verdict verdict =
		        local_open(&a, record, bytes) ? local_judge(&a) : FRAME_BAD;
		bool good = verdict != FRAME_BAD;
		if (good && a.frame.kind == FRAME_BURST)
			good = take_burst(engine, &a);
		else if (good)
			take_message(engine, &a, verdict);
		if (!good)
			counter_add(&engine->counters[ENGINE_BAD_FRAMES], 1);
		ring_release(&link->rx);
	}
	if (count > 0) {
		counter_add(&engine->counters[ENGINE_FRAMES_IN], count);
		ring_flush_head(&link->rx);
	}
	if (link->rx.broken && link->up)
		engine_link_down(engine, index);
	return count;
}
