/* The wire: what the responder owes. Responses to reads and atomics go first, in the order of the
 * requests: acknowledging anything later would say that they are lost. What finds no room stays in
 * the queue pair.
 *
 * A read may ask for more than the network can take, and nobody acknowledges a response: the only
 * feedback is the request, repeated from the first gap on. Everything that was sent behind the gap
 * is wasted. If that is a lot, the responses are sent in bursts, with pauses as long as it took
 * until the request was repeated, so that another loss costs only one burst. A burst is about twice
 * as long as what arrived before the last gaps, and twice as long as the previous burst if no
 * request came. Linux's rdma_rxe, for example, only asks again after a timeout without any
 * response, whatever was lost. Reads that ask for no more than one burst, such as Heddle's own,
 * have no pauses. */
#include <assert.h>

#include "transport/capture.h"
#include "transport/ib/ib.h"
#include "transport/ib/rd.h"
#include "transport/op.h"
#include "transport/respond.h"

/* IBTA table 44. */
static const uint16_t credits[31] = {0,    1,    2,    3,     4,     6,     8,    12,
                                     16,   24,   32,   48,    64,    96,    128,  192,
                                     256,  384,  512,  768,   1024,  1536,  2048, 3072,
                                     4096, 6144, 8192, 12288, 16384, 24576, 32768};

uint32_t ib_credits(uint8_t code)
{
	return code < 31 ? credits[code] : 0;
}

uint8_t ib_credit_code(uint32_t count)
{
	uint8_t code = 30;
	while (credits[code] > count)
		code--;
	return code;
}

/* How many more messages may come. Shared queues report nothing: others may consume the receives.
 */
static uint8_t own_credits(const struct qp *qp)
{
	return qp_shares(qp) || qp->type == QP_TYPE_EEC ? IB_AETH_NO_CREDITS
	                                                : ib_credit_code(wq_held(&qp->rq));
}

static void ib_answer_put_headers(const struct qp *qp, uint8_t opcode, uint32_t psn, uint32_t msn,
                                  struct ib_packet *packet)
{
	ib_put_bth(qp, (uint8_t)(ib_transport_of(qp) | opcode), psn, packet);
	packet->aeth = (struct ib_aeth){.syndrome = ib_aeth_syndrome(IB_AETH_ACK, own_credits(qp)),
	                                .msn = ib_psn(msn)};
	if (qp->type == QP_TYPE_EEC)
		rd_put_response(qp, packet);
}

static bool send_plain(struct engine *engine, const struct path *path,
                       const struct ib_packet *packet)
{
	uint8_t *start, *payload = ib_begin_packet(engine, path, packet, &start);
	if (payload == NULL)
		return false;
	ib_end_packet(engine, path, packet, start, payload);
	return true;
}

static bool send_value(struct engine *engine, struct qp *qp, const struct read_entry *entry)
{
	struct ib_packet packet;
	ib_answer_put_headers(qp, IB_OP_ATOMIC_ACK, entry->msn, qp->ib->msn, &packet);
	packet.atomicack.original = entry->result;
	return send_plain(engine, ib_respond_path(qp->ib, entry), &packet);
}

/* The memory that the read asks for was granted, but no longer is. */
static void read_refused(struct engine *engine, struct qp *qp, struct read_entry *entry,
                         uint32_t psn, const struct sg_result *result)
{
	entry->owed = false;
	if (result->detail == HDL_DETAIL_GONE)
		op_memory_gone(engine, result->key);
	tpt_count(engine->tpt, result->detail);
	ib_owe_ack(engine, qp,
	           ib_aeth_syndrome(IB_AETH_NAK, result->detail == HDL_DETAIL_GONE
	                                                 ? IB_NAK_REMOTE_OPERATIONAL_ERROR
	                                                 : IB_NAK_REMOTE_ACCESS_ERROR),
	           psn);
	/* A repeated request may be a packet that the network duplicated, and its memory may have
	 * been revoked properly since. */
	if (entry->again)
		return;
	if (qp->type == QP_TYPE_EEC) {
		rd_refused(engine, qp);
		return;
	}
	qp->ib->reads_sent = qp->ib->reads_put;
	op_event(engine, qp, HDL_EVENT_QP_ACCESS_ERR, result->detail);
	qp_enter(engine, qp, HDL_QPS_ERR);
}

/* Does one of the requests that @entry answers end before its packet @number? */
static bool is_cut(const struct read_entry *entry, uint32_t number)
{
	return number > 0 && number <= 32 && (entry->cuts >> (number - 1) & 1) != 0;
}

/* --- bursts --- */

static void burst_grow(struct ib *ib)
{
	ib->burst.limit = ib->burst.limit < IB_BURST_MAX / 2 ? 2 * ib->burst.limit : 0;
}

static void burst_begin(const struct engine *engine, struct ib *ib, const struct read_entry *entry)
{
	ib->burst.sent = 0;
	ib->burst.psn = entry->msn;
	ib->burst.began_ns = engine->now_ns;
}

/* How long to wait for the request after a burst: a little longer than it took just now, or longer
 * than before if that was not enough. */
static uint64_t new_pause(const struct engine *engine, const struct ib *ib, bool in_time)
{
	uint64_t took = engine->now_ns - ib->burst.began_ns;
	uint64_t pause = in_time ? took + took / 4 : 2 * ib->burst.pause_ns;
	return pause < IB_PAUSE_MIN_NS   ? IB_PAUSE_MIN_NS
	       : pause > IB_PAUSE_MAX_NS ? IB_PAUSE_MAX_NS
	                                 : pause;
}

void ib_burst_again(const struct engine *engine, struct ib *ib, const struct read_entry *entry,
                    uint32_t from)
{
	/* In packets, of which the last may be short. */
	uint32_t limit = ib->burst.limit, next = (entry->offset + ib->mtu - 1) / ib->mtu;
	uint32_t before = next - ib->burst.sent;
	uint32_t arrived = from > entry->from ? (from - entry->from) / ib->mtu : 0;
	if (entry->msn != ib->burst.psn || entry->offset == entry->from)
		return; /* others were sent since, or nothing was */
	if (from >= entry->offset) {
		burst_grow(ib);
	} else if (limit != 0 || (entry->offset - from) / ib->mtu > IB_BURST_MIN) {
		arrived = arrived < IB_BURST_MAX ? arrived : IB_BURST_MAX;
		limit = limit == 0 ? 2 * arrived : limit / 2 + arrived;
		ib->burst.pause_ns = new_pause(engine, ib, from / ib->mtu >= before);
		ib->burst.limit = limit < IB_BURST_MIN ? IB_BURST_MIN : limit;
	}
	burst_begin(engine, ib, entry);
}

/* Is it time for a pause? */
static bool burst_over(struct engine *engine, struct qp *qp)
{
	struct ib *ib = qp->ib;
	if (ib->burst.limit == 0 || ib->burst.sent < ib->burst.limit)
		return false;
	uint64_t until = ib->burst.began_ns + ib->burst.pause_ns;
	if (engine->now_ns < until) {
		engine_hold(engine, qp, until);
		ib->pausing = true;
		return true;
	}
	burst_grow(ib);
	ib->burst.sent = 0;
	ib->burst.began_ns = engine->now_ns;
	return false;
}

/* --- answers --- */

/* Send one response of a read. False: no room, or not yet. */
static bool send_response(struct engine *engine, struct qp *qp, struct read_entry *entry)
{
	struct ib *ib = qp->ib;
	assert(entry->owed && entry->offset <= entry->to && entry->to <= entry->length);
	uint32_t left = entry->to - entry->offset, count = left < ib->mtu ? left : ib->mtu;
	uint32_t number = entry->offset / ib->mtu, psn = entry->msn + number;
	bool over = count == left;
	bool first = entry->offset == entry->from || is_cut(entry, number);
	bool last = over || is_cut(entry, number + 1);
	struct ib_packet packet;
	if (entry->offset == entry->from && !entry->again)
		burst_begin(engine, ib, entry);
	if (burst_over(engine, qp))
		return false;
	ib_answer_put_headers(qp,
	                      first  ? (last ? IB_OP_READ_RESPONSE_ONLY : IB_OP_READ_RESPONSE_FIRST)
	                      : last ? IB_OP_READ_RESPONSE_LAST
	                             : IB_OP_READ_RESPONSE_MIDDLE,
	                      psn, (uint32_t)entry->result + 1, &packet);
	packet.payload_bytes = count;
	uint8_t *start,
	        *payload = ib_begin_packet(engine, ib_respond_path(ib, entry), &packet, &start);
	if (payload == NULL)
		return false;
	struct hdl_sge piece,
	        part = {.addr = entry->addr + entry->offset, .length = count, .key = {entry->key}};
	struct sg from = respond_range(engine, ib->to, &part, HDL_ACCESS_REMOTE_READ);
	from.pd = entry->pd;
	if (!ib_end_packet_from(engine, ib_respond_path(ib, entry), &packet, start, payload,
	                        &from)) {
		struct sg to = sg_plain(&piece, payload, count);
		struct sg_result result =
		        sg_move(&engine->own.ops, MOVE_BOTH_OWN, &to, &from, count);
		if (result.detail != HDL_DETAIL_NONE) {
			read_refused(engine, qp, entry, psn, &result);
			return true;
		}
		ib_end_packet(engine, ib_respond_path(ib, entry), &packet, start, payload);
	}
	entry->offset += count;
	ib->burst.sent++;
	if (!over)
		return true;
	entry->owed = false;
	if (entry->length == 0 || entry->to < entry->length || entry->again || entry->joined)
		return true;
	/* Parts of a longer read are whole packets. */
	ib->touch_due = entry->length % ib->mtu == 0 && entry->key == ib->read_key.v &&
	                entry->addr + entry->length == ib->read_end;
	if (!ib->touch_due)
		respond_touch(engine, (struct hdl_key){entry->key}, &respond_whole_message);
	return true;
}

/* Send a congestion notification to the source of the marked packets (IBTA annex A17.9.3). */
static bool send_cnp(struct engine *engine, const struct qp *qp)
{
	struct ib_packet packet = {.cnp = {{0}}}; /* only a part of it is signed */
	ib_put_bth(qp, IB_OPCODE_CNP, 0, &packet);
	packet.bth.becn = true;
	ib_cnp_sign(qp->ib, &packet.cnp);
	if (!send_plain(engine, ib_reply_path(qp->ib), &packet))
		return false;
	counter_add(&engine->counters[ENGINE_CNP_SENT], 1);
	return true;
}

bool ib_may_wait(struct qp *qp)
{
	struct ib *ib = qp->ib;
	/* A program that sleeps until completions come, and whose peer usually does the same, gains
	 * nothing from a delayed ACK. And some programs, among them perftest with -e, hang if the
	 * answer completes before the message that it answers. */
	const struct qp *to = ib->to; /* for a context, the queue pair that got the message */
	if (to == NULL || to->recv_cq == NULL || to->recv_cq->notifies)
		return false;
	if (!ib->ack_new || !ib->ack_due || ib->cnp_due || ib->reads_sent != ib->reads_put)
		return false;
	ib->ack_new = false;
	return true;
}

bool ib_asks_for_echo(struct ib *ib, const struct ib_packet *packet, const struct read_entry *entry)
{
	if (ib->stripe == NULL || !entry->owed || entry->finished || entry->way == ib_came(ib) ||
	    packet->bth.psn != entry->msn)
		return false;
	ib->stripe->echo = true;
	ib->stripe->echo_way = ib_came(ib);
	return true;
}

/* Tell the peer along the path that it asked about, with an acknowledgement of nothing new, that it
 * works. */
static bool send_echo(struct engine *engine, const struct qp *qp)
{
	const struct ib *ib = qp->ib;
	struct ib_packet packet;
	uint32_t end = ib->reads_sent != ib->reads_put
	                       ? qp->reads.entries[ib->reads_sent & qp->reads.mask].msn
	                       : ib->expected_psn;
	ib_answer_put_headers(qp, IB_OP_ACK, end - 1, ib->msn, &packet);
	return send_plain(engine, ib_way(ib, ib->stripe->echo_way), &packet);
}

bool ib_answer(struct engine *engine, struct qp *qp)
{
	struct ib *ib = qp->ib;
	unsigned count = 0;
	capture_answering(engine, qp);
	ib->pausing = false;
	/* The wire has no packet for it: the peer finds out through its own retries. */
	qp->close_due = false;
	if (ib->cnp_due) {
		if (!send_cnp(engine, qp))
			return false;
		ib->cnp_due = false;
	}
	if (ib->stripe != NULL && ib->stripe->echo) {
		if (!send_echo(engine, qp))
			return false;
		ib->stripe->echo = false;
	}
	while (ib->reads_sent != ib->reads_put) {
		struct read_entry *entry = &qp->reads.entries[ib->reads_sent & qp->reads.mask];
		while (entry->owed) {
			if (!ib_goes_on(engine, count++))
				return false;
			if (!entry->finished) {
				if (!send_response(engine, qp, entry))
					return false;
			} else {
				if (!send_value(engine, qp, entry))
					return false;
				entry->owed = false;
			}
		}
		if (ib->reads_sent != ib->reads_put)
			ib->reads_sent++;
	}
	if (ib->ack_due) {
		struct ib_packet packet;
		ib_answer_put_headers(qp, IB_OP_ACK, ib->ack_psn, ib->msn, &packet);
		if (ib_aeth_kind(ib->syndrome) != IB_AETH_ACK)
			packet.aeth.syndrome = ib->syndrome;
		if (!send_plain(engine, ib_reply_path(qp->ib), &packet))
			return false;
		ib->ack_due = false;
	}
	return true;
}

void ib_take_along(struct engine *engine, struct qp *qp)
{
	/* Without room, it stays in the list of those that owe an answer. */
	if (qp->is_owing && qp->ib->ack_due && !engine->no_answers)
		ib_answer(engine, qp);
}
