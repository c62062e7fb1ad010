/* The wire: the requester. Executes send queue elements in order and divides messages into packets
 * of the path MTU. How far it may run ahead of the peer's acknowledgements depends on the window
 * and, for messages that consume a receive, on the peer's credits. ib/retry.c handles answers and
 * timeouts. */
#include <assert.h>
#include <string.h>

#include "queue/qp_state.h"
#include "transport/capture.h"
#include "transport/ib/ib.h"
#include "transport/ib/rd.h"
#include "transport/multicast.h"
#include "transport/op.h"
#include "wire/be.h"

#define ECT_0 2u /* IP: the network may mark the packet instead of dropping it */

void ib_begin_requester(struct qp *qp)
{
	struct ib *ib = qp->ib;
	ib->next_psn = ib->una_psn = ib->sent_psn = ib_psn(qp->attr.sq_psn);
	ib->recorded.answer_in = ib->sent_psn;
	ib->ssn = 1;
	ib->limited = false;
	ib->since_ack_request = 0;
	ib->passed = false;
	window_begin(&ib->window, ib->mtu, IB_SPARE_BITS);
	if (ib->rd == NULL)
		ib->from = qp;
}

/* --- packets --- */

uint8_t *ib_begin_packet(struct engine *engine, const struct path *path,
                         const struct ib_packet *packet, uint8_t **start)
{
	size_t header = ib_transport_header_bytes(packet);
	size_t bytes = header + packet->payload_bytes + ib_pad_bytes(packet->payload_bytes);
	assert(path->port <= ENGINE_LANES_PORT);
	const struct carrier *carrier = engine->carriers[path->port];
	if (carrier == NULL)
		return NULL;
	*start = carrier->reserve(carrier->context, path, bytes);
	if (*start == NULL)
		return NULL;
	ib_transport_header_encode(packet, *start, header);
	return *start + header;
}

void ib_end_packet(struct engine *engine, const struct path *path, const struct ib_packet *packet,
                   uint8_t *start, uint8_t *payload)
{
	size_t pad = ib_pad_bytes(packet->payload_bytes);
	uint8_t *end = payload + packet->payload_bytes;
	if (pad > 0)
		memset(end, 0, pad);
	capture_wire(engine, path, packet, payload, false);
	const struct carrier *carrier = engine->carriers[path->port];
	carrier->commit(carrier->context, path, (size_t)(end - start) + pad);
	engine->last_port = path->port;
	counter_add(&engine->counters[ENGINE_PACKETS_OUT], 1);
}

bool ib_end_packet_from(struct engine *engine, const struct path *path,
                        const struct ib_packet *packet, uint8_t *start, const uint8_t *payload,
                        const struct sg *from)
{
	const struct carrier *carrier = engine->carriers[path->port];
	size_t bytes = packet->payload_bytes;
	struct span run;
	if (bytes < IB_FROM_BYTES || carrier->commit_from == NULL || engine->own.copy_crc == NULL ||
	    !engine_fast(engine) || !sg_one_run(from, bytes, &run) ||
	    !carrier->commit_from(carrier->context, path, (size_t)(payload - start),
	                          (const void *)(uintptr_t)run.addr, bytes, engine->own.copy_crc))
		return false;
	engine->last_port = path->port;
	counter_add(&engine->counters[ENGINE_PACKETS_OUT], 1);
	return true;
}

/* Fill the payload of a packet of @wqe, from wqe->offset on, and send it. False: @wqe is finished,
 * and the reserved packet has not been sent. */
static bool end_packet(struct engine *engine, const struct path *path, struct qp *from,
                       struct wqe_send *wqe, const struct ib_packet *packet, uint8_t *start,
                       uint8_t *payload)
{
	uint32_t count = (uint32_t)packet->payload_bytes;
	if (count >= IB_FROM_BYTES && (wqe->flags & HDL_SEND_INLINE) == 0) {
		struct sg list =
		        sg_own(engine, from, wqe_sge(wqe), wqe->num_sge, HDL_ACCESS_LOCAL_READ);
		sg_skip(&list, wqe->offset);
		if (ib_end_packet_from(engine, path, packet, start, payload, &list))
			return true;
	}
	if (!request_gather(engine, from, wqe, wqe->offset, payload, count))
		return false;
	ib_end_packet(engine, path, packet, start, payload);
	return true;
}

/* The part of an opcode that says which packet of a send or write it is. */
static uint8_t part_opcode(const struct wqe_send *wqe, bool first, bool last)
{
	static const struct {
		uint8_t first, middle, last, only;
	} of[HDL_OP_COUNT] = {
	        [HDL_OP_SEND] = {IB_OP_SEND_FIRST, IB_OP_SEND_MIDDLE, IB_OP_SEND_LAST,
	                         IB_OP_SEND_ONLY},
	        [HDL_OP_SEND_IMM] = {IB_OP_SEND_FIRST, IB_OP_SEND_MIDDLE, IB_OP_SEND_LAST_IMM,
	                             IB_OP_SEND_ONLY_IMM},
	        [HDL_OP_SEND_INVALIDATE] = {IB_OP_SEND_FIRST, IB_OP_SEND_MIDDLE,
	                                    IB_OP_SEND_LAST_INV, IB_OP_SEND_ONLY_INV},
	        [HDL_OP_REGISTER_SEND] = {IB_OP_SEND_FIRST, IB_OP_SEND_MIDDLE, IB_OP_SEND_LAST,
	                                  IB_OP_SEND_ONLY},
	        [HDL_OP_WRITE] = {IB_OP_WRITE_FIRST, IB_OP_WRITE_MIDDLE, IB_OP_WRITE_LAST,
	                          IB_OP_WRITE_ONLY},
	        [HDL_OP_WRITE_IMM] = {IB_OP_WRITE_FIRST, IB_OP_WRITE_MIDDLE, IB_OP_WRITE_LAST_IMM,
	                              IB_OP_WRITE_ONLY_IMM},
	};
	if (wqe->marks & WQE_RESYNC)
		return IB_OP_RESYNC;
	if (first)
		return last ? of[wqe->opcode].only : of[wqe->opcode].first;
	return last ? of[wqe->opcode].last : of[wqe->opcode].middle;
}

/* The headers of a request of @wqe. */
static void ib_tx_put_headers(const struct qp *qp, struct wqe_send *wqe, uint8_t opcode,
                              uint32_t psn, struct ib_packet *packet)
{
	const uint8_t *imm = (const uint8_t *)&wqe->imm; /* bytes of the application */
	ib_put_bth(qp, opcode, psn, packet);
	packet->xrceth = (struct ib_xrceth){.srq = wqe->remote_srq};
	packet->immdt = (struct ib_immdt){.data = be32_load(imm)};
	packet->ieth = (struct ib_ieth){.rkey = wqe->imm};
	if (qp->type == QP_TYPE_EEC)
		rd_put_request(qp, wqe, packet);
}

/* Packets up to @end_psn have been sent. Between the cursor and sent_psn are packets that are sent
 * again. The timer runs while anything is unanswered. */
static void sent(struct engine *engine, struct qp *qp, uint32_t end_psn)
{
	struct ib *ib = qp->ib;
	if (ib_psn_distance(end_psn, ib->sent_psn) > 0)
		ib->sent_psn = ib_psn(end_psn);
	assert(!qp_reliable(qp) || (ib_psn_distance(ib->sent_psn, ib->una_psn) >= 0 &&
	                            ib_psn_distance(ib->next_psn, ib->sent_psn) >= 0));
	window_pace(&ib->window, engine->now_ns);
	if (qp_reliable(qp) && qp->attr.timeout != 0 && !qp->timer_wanted &&
	    !timer_running(&qp->timer)) {
		qp->answered = false;
		engine_want_timer(engine, qp, window_wait_ns(&ib->window, ib_timeout_ns(qp)));
	}
}

/* --- what holds a request back --- */

static bool consumes_receive(const struct wqe_send *wqe)
{
	return wqe->opcode != HDL_OP_WRITE && !request_is_read(wqe);
}

/* End-to-end flow control (IBTA section 9.7.7.2): beyond the peer's credits, one packet at a time
 * is sent, as a probe. */
static bool beyond_credits(const struct ib *ib, const struct wqe_send *wqe)
{
	return ib->limited && consumes_receive(wqe) &&
	       ib_psn_distance(ib->ssn, ib->limit) > 0; /* both have 24 bits */
}

static bool ib_tx_must_wait(const struct qp *qp, const struct wqe_send *wqe, uint32_t psn)
{
	const struct ib *ib = qp->ib;
	if (!qp_reliable(qp))
		return false;
	int32_t flight = ib_psn_distance(psn, ib->una_psn);
	return flight > 0 && ((uint32_t)flight >= ib_limit(ib) || beyond_credits(ib, wqe));
}

/* Nothing is in flight, but it is too early for the next packet: a timer continues. */
static bool paces(struct engine *engine, struct qp *qp)
{
	uint64_t ns = qp_reliable(qp) ? window_pace_wait_ns(&qp->ib->window, engine->now_ns) : 0;
	if (ns == 0)
		return false;
	qp->waiting = true;
	engine_want_timer(engine, qp, ns);
	return true;
}

/* Assign @wqe its PSNs. False: so many are in flight that old and new ones could be confused. */
static bool ib_tx_number(struct qp *qp, struct wqe_send *wqe)
{
	struct ib *ib = qp->ib;
	if (wqe->numbered)
		return true;
	uint32_t span = ib_span(ib, wqe);
	if (qp_reliable(qp) && ib_psn(ib->next_psn - ib->una_psn) + span >= IB_PSN_HALF)
		return false;
	wqe->numbered = 1;
	wqe->msn = ib->next_psn;
	wqe->offset = 0;
	if (wqe->opcode == HDL_OP_READ) {
		wqe->got = 0;
		wqe->read.requests = 0;
		wqe->read.bits = IB_READ_BITS;
		wqe->u.rdma.cut = wqe->u.rdma.cut_bits = 0;
	}
	ib->next_psn = ib_psn(ib->next_psn + span);
	return true;
}

/* --- requests --- */

static enum step over(struct qp *qp, struct wqe_send *wqe)
{
	qp->sent_messages++;
	if (qp_reliable(qp)) {
		wqe->state = WQE_SENT;
		qp->unanswered++;
	} else {
		request_finish(wqe, HDL_WC_SUCCESS, HDL_DETAIL_NONE);
	}
	return STEP_NEXT;
}

/* The fewer packets are in flight, the sooner the next ones can follow those that have arrived, so
 * that bursts do not grow. */
static uint32_t ack_every(const struct ib *ib)
{
	uint32_t part = window_packets(&ib->window) / IB_ACK_PARTS;
	return part < IB_ACK_EVERY ? part : IB_ACK_EVERY;
}

/* Send a copy of the packet at wqe->offset along a path that is out of use, if it is time to try.
 */
static void try_way(struct engine *engine, struct qp *qp, struct wqe_send *wqe,
                    const struct ib_packet *packet)
{
	unsigned way = stripe_due(qp->ib->stripe, engine->now_ns);
	uint8_t *start, *payload;
	if (way == STRIPE_WAYS ||
	    (payload = ib_begin_packet(engine, ib_way(qp->ib, way), packet, &start)) == NULL)
		return;
	if (!request_gather(engine, qp->ib->from, wqe, wqe->offset, payload,
	                    (uint32_t)packet->payload_bytes))
		return;
	ib_end_packet(engine, ib_way(qp->ib, way), packet, start, payload);
	stripe_tried(qp->ib->stripe, way, engine->now_ns);
}

/* The path for the packet at wqe->offset. */
static unsigned pick_way(struct engine *engine, struct qp *qp, struct wqe_send *wqe,
                         const struct ib_packet *packet)
{
	struct ib *ib = qp->ib;
	if (ib->stripe == NULL)
		return 0;
	try_way(engine, qp, wqe, packet);
	return ib_psn_distance(packet->bth.psn, ib->sent_psn) < 0
	               ? stripe_other_way(ib->stripe, packet->bth.psn)
	               : stripe_next_way(ib->stripe);
}

/* Send one packet of a send or write, from wqe->offset on. */
static enum step send_part(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	struct ib *ib = qp->ib;
	assert(wqe->numbered && (wqe->offset < wqe->length || wqe->length == 0));
	uint32_t left = wqe->length - wqe->offset;
	uint32_t count = left < ib->mtu ? left : ib->mtu;
	bool first = wqe->offset == 0, last = count == left;
	uint32_t psn = wqe->msn + wqe->offset / ib->mtu;
	struct ib_packet packet;
	uint8_t *start, opcode = (uint8_t)(ib_transport_of(qp) | part_opcode(wqe, first, last));
	if (ib_opcode(opcode) == NULL) { /* unreliable connections cannot invalidate on a wire */
		request_finish(wqe, HDL_WC_LOC_QP_OP_ERR, HDL_DETAIL_LIMIT);
		return STEP_NEXT;
	}
	ib_tx_put_headers(qp, wqe, opcode, psn, &packet);
	packet.payload_bytes = count;
	packet.bth.solicited = last && (wqe->flags & HDL_SEND_SOLICITED) != 0;
	packet.bth.ack_request =
	        qp_reliable(qp) &&
	        (last || ++ib->since_ack_request >= ack_every(ib) || beyond_credits(ib, wqe) ||
	         ib_psn_distance(psn + 1, ib->una_psn) >= (int32_t)ib_limit(ib));
	packet.reth = (struct ib_reth){
	        .addr = wqe->u.rdma.addr, .rkey = wqe->u.rdma.key.v, .length_bytes = wqe->length};
	unsigned way = pick_way(engine, qp, wqe, &packet);
	uint8_t *payload = ib_begin_packet(engine, ib_way(ib, way), &packet, &start);
	if (payload == NULL)
		return STEP_NO_ROOM;
	if (!end_packet(engine, ib_way(ib, way), ib->from, wqe, &packet, start, payload))
		return STEP_NEXT;
	if (packet.bth.ack_request) {
		ib->since_ack_request = 0;
		window_time_sent(&ib->window, psn, ib->sent_psn, engine->now_ns);
	}
	counter_add(&engine->counters[ENGINE_BYTES_SENT], count);
	if (ib->stripe != NULL)
		stripe_sent(ib->stripe, psn, way);
	wqe->offset += count;
	sent(engine, qp, psn + 1);
	return last ? over(qp, wqe) : STEP_WAIT;
}

bool ib_resend(struct engine *engine, struct qp *qp, struct wqe_send *wqe, uint32_t psn)
{
	uint32_t offset = wqe->offset, unanswered = qp->unanswered;
	uint64_t messages = qp->sent_messages;
	uint8_t state = wqe->state;
	wqe->offset = (uint32_t)ib_psn_distance(psn, wqe->msn) * qp->ib->mtu;
	enum step step = send_part(engine, qp, wqe);
	if (wqe->state == WQE_DONE) { /* its memory is gone */
		assert(state != WQE_SENT || qp->unanswered > 0);
		qp->unanswered -= state == WQE_SENT;
		return true;
	}
	wqe->offset = offset;
	wqe->state = state;
	qp->unanswered = unanswered;
	qp->sent_messages = messages;
	return step != STEP_NO_ROOM;
}

/* The path for a request that is answered by @packets packets of its own. */
static unsigned pick_request_way(struct engine *engine, struct qp *qp,
                                 const struct ib_packet *packet, uint32_t packets)
{
	struct ib *ib = qp->ib;
	struct stripe *s = ib->stripe;
	uint8_t *start, *payload;
	if (s == NULL)
		return 0;
	unsigned due = stripe_due(s, engine->now_ns);
	if (due != STRIPE_WAYS && packet->op->operation == IB_READ_REQUEST &&
	    (payload = ib_begin_packet(engine, ib_way(ib, due), packet, &start)) != NULL) {
		ib_end_packet(engine, ib_way(ib, due), packet, start, payload);
		stripe_tried(s, due, engine->now_ns);
	}
	bool again = ib_psn_distance(packet->bth.psn, ib->sent_psn) < 0;
	unsigned way = again ? stripe_other_way(s, packet->bth.psn) : stripe_next_way(s);
	for (uint32_t i = 0; i < packets; i++)
		stripe_sent(s, packet->bth.psn + i, way);
	return way;
}

/* The requests of a read end at multiples of a power of two that is a fraction of the window. A
 * repeated request ends where it ended the first time: responders, among them Linux's rdma_rxe,
 * look for the request of which it is the rest, and have no room for two parts of one. So the power
 * only changes at the cut, and only once everything requested before the last cut has arrived. A
 * read that fits into one request is never divided: its key may name a one-touch entry. */
static void choose_bits(const struct qp *qp, struct wqe_send *wqe)
{
	const struct ib *ib = qp->ib;
	const uint32_t at = wqe->offset / ib->mtu;
	uint32_t window = ib_limit(ib), bits = IB_READ_BITS;
	bool whole = ib_packets(ib, wqe->length) <= 1u << IB_READ_BITS;
	while (!whole && bits > 0 &&
	       (1u << bits) > (qp->attr.max_rd_atomic > 1 ? window / 2 : window))
		bits--;
	if (bits == wqe->read.bits ||
	    (at != wqe->u.rdma.cut && wqe->got / ib->mtu < wqe->u.rdma.cut))
		return;
	if (at != wqe->u.rdma.cut) {
		wqe->u.rdma.cut = at & 0x7ffffffu;
		wqe->u.rdma.cut_bits = wqe->read.bits;
	}
	wqe->read.bits = bits & 31u;
}

/* How much the next request of a read asks for. 0: the window has no room for it. */
static uint32_t read_bytes(const struct qp *qp, struct wqe_send *wqe, uint32_t psn)
{
	const struct ib *ib = qp->ib;
	uint32_t flight = (uint32_t)ib_psn_distance(psn, ib->una_psn);
	if (ib_psn_distance(psn, ib->sent_psn) >= 0)
		choose_bits(qp, wqe);
	bool before = wqe->offset / ib->mtu < wqe->u.rdma.cut;
	uint32_t chunk = ib->mtu << (before ? wqe->u.rdma.cut_bits : wqe->read.bits);
	uint32_t end = before ? wqe->u.rdma.cut * ib->mtu : wqe->length;
	uint32_t left_here = chunk - wqe->offset % chunk, left = end - wqe->offset;
	uint32_t count = left < left_here ? left : left_here;
	if (flight > 0 && flight + ib_packets(ib, count) > ib_limit(ib))
		return 0;
	return count;
}

/* Send the next request for a part of a read. */
static enum step send_read(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	struct ib *ib = qp->ib;
	uint32_t psn = wqe->msn + wqe->offset / ib->mtu;
	struct ib_packet packet;
	uint8_t *start;
	if (qp->reads_open >= qp->attr.max_rd_atomic)
		return STEP_WAIT;
	uint32_t count = wqe->length == 0 ? 0 : read_bytes(qp, wqe, psn);
	if (count == 0 && wqe->length != 0)
		return STEP_WAIT;
	ib_tx_put_headers(qp, wqe, (uint8_t)(ib_transport_of(qp) | IB_OP_READ_REQUEST), psn,
	                  &packet);
	packet.bth.ack_request = true;
	packet.reth = (struct ib_reth){.addr = wqe->u.rdma.addr + wqe->offset,
	                               .rkey = wqe->u.rdma.key.v,
	                               .length_bytes = count};
	const struct path *path =
	        ib_way(ib, pick_request_way(engine, qp, &packet, ib_packets(ib, count)));
	uint8_t *payload = ib_begin_packet(engine, path, &packet, &start);
	if (payload == NULL)
		return STEP_NO_ROOM;
	window_time_sent(&ib->window, psn, ib->sent_psn, engine->now_ns);
	ib_end_packet(engine, path, &packet, start, payload);
	if (ib_psn_distance(psn, ib->sent_psn) >= 0)
		wqe->read.requests++;
	wqe->offset += count;
	qp->reads_open++;
	sent(engine, qp, psn + ib_packets(ib, count));
	return wqe->offset == wqe->length ? over(qp, wqe) : STEP_WAIT;
}

static enum step ib_tx_send_atomic(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	struct ib *ib = qp->ib;
	bool add = wqe->opcode == HDL_OP_FETCH_ADD;
	struct ib_packet packet;
	uint8_t *start;
	/* The responder reads when it answers, and an atomic must not come before that (IBTA table
	 * 79). */
	if (qp->reads_open > 0)
		return STEP_WAIT;
	ib_tx_put_headers(
	        qp, wqe,
	        (uint8_t)(ib_transport_of(qp) | (add ? IB_OP_FETCH_ADD : IB_OP_COMPARE_SWAP)),
	        wqe->msn, &packet);
	packet.bth.ack_request = true;
	packet.atomiceth = (struct ib_atomiceth){.addr = wqe->u.atomic.addr,
	                                         .rkey = wqe->u.atomic.key.v,
	                                         .swap_or_add = add ? wqe->u.atomic.compare_add
	                                                            : wqe->u.atomic.swap,
	                                         .compare = add ? 0 : wqe->u.atomic.compare_add};
	const struct path *path = ib_way(ib, pick_request_way(engine, qp, &packet, 1));
	uint8_t *payload = ib_begin_packet(engine, path, &packet, &start);
	if (payload == NULL)
		return STEP_NO_ROOM;
	ib_end_packet(engine, path, &packet, start, payload);
	qp->reads_open++;
	sent(engine, qp, wqe->msn + 1);
	return over(qp, wqe);
}

/* Send the next packet of @wqe. STEP_WAIT with packets left to send: the window, the credits or the
 * read resources are used up, or, if *more is set, only this packet was sent. */
static enum step send_packet(struct engine *engine, struct qp *qp, struct wqe_send *wqe, bool *more)
{
	struct ib *ib = qp->ib;
	*more = false;
	if (!ib_tx_number(qp, wqe))
		return STEP_WAIT;
	/* What was about to be sent again may have been acknowledged after all. */
	int32_t known = ib_psn_distance(ib->una_psn, wqe->msn);
	if (known > 0 && wqe->offset / ib->mtu < (uint32_t)known)
		wqe->offset = (uint32_t)known * ib->mtu;
	if (ib_tx_must_wait(qp, wqe, wqe->msn + wqe->offset / ib->mtu) || paces(engine, qp))
		return STEP_WAIT;
	uint32_t before = wqe->offset;
	enum step step = request_is_atomic(wqe)       ? ib_tx_send_atomic(engine, qp, wqe)
	                 : wqe->opcode == HDL_OP_READ ? send_read(engine, qp, wqe)
	                                              : send_part(engine, qp, wqe);
	*more = step == STEP_WAIT && wqe->offset != before;
	return step;
}

/* The turn of @wqe. *count: packets sent. */
static enum step ib_tx_execute(struct engine *engine, struct qp *qp, struct wqe_send *wqe,
                               unsigned *count)
{
	if ((wqe->flags & HDL_SEND_FENCE) && qp->reads_open > 0 && !wqe->numbered)
		return STEP_WAIT;
	enum step step = request_own(engine, qp, wqe);
	if (step != STEP_BY_TARGET)
		return step;
	if (wqe->opcode == HDL_OP_REGISTER_SEND && !request_register(engine, qp, wqe))
		return STEP_NEXT;
	if (request_is_read(wqe) && qp->attr.max_rd_atomic == 0) { /* its turn would never come */
		request_finish(wqe, HDL_WC_LOC_QP_OP_ERR, HDL_DETAIL_LIMIT);
		return STEP_NEXT;
	}
	bool more = true;
	step = STEP_WAIT;
	while (more && step == STEP_WAIT && ib_goes_on(engine, *count)) {
		step = send_packet(engine, qp, wqe, &more);
		if (more || step == STEP_NEXT)
			(*count)++;
	}
	return step;
}

bool ib_run(struct engine *engine, struct qp *qp)
{
	struct ib *ib = qp->ib;
	unsigned count = 0;
	enum step step = STEP_NEXT;
	while (qp->next != wq_tail(&qp->sq) && !qp->waiting && ib_goes_on(engine, count) &&
	       request_may_run(qp)) {
		struct wqe_send *wqe = wq_at(&qp->sq, qp->next);
		if (wqe->state == WQE_READY) {
			step = ib_tx_execute(engine, qp, wqe, &count);
			if (step != STEP_NEXT)
				break;
		}
		if (request_failed(wqe))
			break;
		if (wqe->numbered)
			ib->ssn = ib_psn(ib->ssn + ib_messages(wqe));
		qp->next++;
	}
	ib_reap(engine, qp);
	if (step == STEP_NO_ROOM || count >= IB_TX_BATCH)
		engine_activate(engine, qp);
	return count > 0;
}

/* --- datagrams --- */

/* STEP_WAIT: it has been sent, and nothing else has happened. */
static enum step put_datagram(struct engine *engine, struct qp *qp, struct wqe_send *wqe,
                              uint32_t dest_qp)
{
	bool immediate = wqe->opcode == HDL_OP_SEND_IMM;
	uint8_t from = dest_qp == MULTICAST_QPN ? engine->group_gid : wqe->u.ud.sgid_index;
	struct path path = {
	        .kind = PATH_ROCE,
	        .port = engine->gid_ports[from],
	        .ip = {.src_port = (uint16_t)(0xc000u | (qp->qpn & 0x3fffu)),
	               .dont_fragment = true,
	               .traffic_class = (uint8_t)((wqe->u.ud.traffic_class & ~3u) | ECT_0),
	               .hop_limit = wqe->u.ud.hop_limit,
	               .flow_label = wqe->u.ud.flow_label},
	        .sl = wqe->u.ud.sl};
	struct ib_packet packet;
	uint8_t *start;
	memcpy(path.ip.sgid, engine->gids[from].raw, IB_GID_BYTES);
	memcpy(path.ip.dgid, wqe->u.ud.dgid, IB_GID_BYTES);
	ib_tx_put_headers(qp, wqe,
	                  (uint8_t)(IB_UD | (immediate ? IB_OP_SEND_ONLY_IMM : IB_OP_SEND_ONLY)),
	                  qp->next_msn, &packet);
	packet.bth.dest_qp = dest_qp;
	packet.bth.solicited = (wqe->flags & HDL_SEND_SOLICITED) != 0;
	packet.deth = (struct ib_deth){.qkey = wqe->u.ud.qkey, .src_qp = qp->qpn};
	packet.payload_bytes = wqe->length;
	uint8_t *payload = ib_begin_packet(engine, &path, &packet, &start);
	if (payload == NULL)
		return STEP_NO_ROOM;
	if (!request_gather(engine, qp, wqe, 0, payload, wqe->length))
		return STEP_NEXT;
	ib_end_packet(engine, &path, &packet, start, payload);
	qp->next_msn++;
	return STEP_WAIT;
}

enum step ib_send_to_group(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	return put_datagram(engine, qp, wqe, MULTICAST_QPN);
}

enum step ib_send_datagram(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	enum step step = put_datagram(engine, qp, wqe, wqe->u.ud.qpn);
	if (step != STEP_WAIT)
		return step;
	counter_add(&engine->counters[ENGINE_BYTES_SENT], wqe->length);
	qp->sent_messages++;
	request_finish(wqe, HDL_WC_SUCCESS, HDL_DETAIL_NONE);
	return STEP_NEXT;
}
