/* The same-host path: the fast path of short messages. Most messages are short SENDs of one piece
 * on a reliable connection in which nothing is out of the ordinary. They cost instructions, not
 * bytes. Each function here handles such a message in one go: one posts it and puts it into the
 * lane, one takes it out of the lane, one takes its acknowledgement. A function that meets anything
 * else, or a check that refuses, leaves the message untouched for the general path: local/tx.c,
 * local/rx.c with local/request.c, and local/retry.c.
 *
 * The fast path judges no frame: it takes those that local_judge() calls plain. What it does to a
 * queue pair it does by the functions that the general path calls, where these cost nothing:
 * local_answers_count(), local_executed(). Where it repeats what the general path does, because the
 * general functions handle more and cost more, a comment says so; tests/unit/transport/lane_paths.c
 * gives both paths the same random input and compares what comes out. */
#include <assert.h>
#include <string.h>

#include "transport/local/local.h"
#include "transport/op.h"

/* Is @wr a message for the fast path? */
static inline bool is_plain_request(const struct qp *qp, const struct hdl_send_wr *wr)
{
	const uint32_t flags = HDL_SEND_SIGNALED | HDL_SEND_SOLICITED | HDL_SEND_INLINE;
	return (wr->opcode == HDL_OP_SEND || wr->opcode == HDL_OP_SEND_IMM) &&
	       (wr->flags & ~flags) == 0 && wr->num_sge == 1 && wr->sg_list != NULL &&
	       wr->sg_list->length - 1 < FRAME_MAX_DATA &&
	       ((wr->flags & HDL_SEND_INLINE) != 0 ? wr->sg_list->length <= qp->cap.max_inline
	                                           : qp->sq.max_sge > 0);
}

static inline uint8_t frame_flags(const struct hdl_send_wr *wr)
{
	return (uint8_t)((wr->opcode == HDL_OP_SEND_IMM ? FRAME_IMM : 0) |
	                 ((wr->flags & HDL_SEND_SOLICITED) != 0 ? FRAME_SOLICITED : 0));
}

/* Copy the data of @wr to @out, and note in @wqe where it is, in case the message must be repeated.
 * False: its memory is not one run, or is refused. */
static inline bool local_short_put(const struct engine *engine, const struct qp *qp,
                                   const struct hdl_send_wr *wr, struct wqe_send *wqe, void *out)
{
	const struct hdl_sge *piece = wr->sg_list;
	uint64_t from = piece->addr;
	if ((wr->flags & HDL_SEND_INLINE) != 0) {
		if (!engine->own.copy_short(wqe_inline(wqe), (void *)(uintptr_t)from,
		                            piece->length))
			return false;
		from = (uint64_t)(uintptr_t)wqe_inline(wqe);
	} else {
		if (!sg_own_run(engine, qp->pd, piece, HDL_ACCESS_LOCAL_READ, &from))
			return false;
		*wqe_sge(wqe) = *piece;
	}
	return engine->own.copy_short(out, (void *)(uintptr_t)from, piece->length);
}

/* Note in @wqe the rest of @wr, as message @msn in flight. */
static inline void local_short_keep(const struct hdl_send_wr *wr, struct wqe_send *wqe,
                                    uint32_t msn)
{
	wqe_begin(wqe, wr, wr->sg_list->length);
	wqe->state = WQE_SENT;
	wqe->msn = msn;
	wqe->numbered = 1;
}

static inline size_t item_bytes(const struct hdl_send_wr *wr)
{
	return sizeof(struct frame_item) + ((wr->sg_list->length + 7u) & ~(size_t)7);
}

/* How many messages from @wr on fit into one frame, at most @room. *bytes: how long it is. */
static uint32_t burst_of(const struct qp *qp, const struct hdl_send_wr *wr, uint32_t room,
                         size_t *bytes)
{
	uint32_t count = 0;
	size_t sum = sizeof(struct frame);
	for (; wr != NULL && count < room && count < UINT8_MAX && is_plain_request(qp, wr) &&
	       wr->sg_list->length <= FRAME_BURST_ITEM;
	     wr = wr->next) {
		if (sum + item_bytes(wr) > FRAME_BURST_BYTES)
			break;
		sum += item_bytes(wr);
		count++;
	}
	if (count > 1)
		*bytes = sum;
	return count > 1 ? count : 1;
}

/* Fill the body of the frame @out with @count messages from @wr on. False: one is refused. */
static bool put_burst(const struct engine *engine, const struct qp *qp,
                      const struct hdl_send_wr *wr, uint32_t count, struct frame *out)
{
	unsigned char *at = (unsigned char *)(out + 1);
	for (uint32_t i = 0; i < count; i++, wr = wr->next) {
		struct frame_item item = {.length = (uint16_t)wr->sg_list->length,
		                          .flags = frame_flags(wr),
		                          .imm = wr->imm};
		memcpy(at, &item, sizeof(item));
		if (!local_short_put(engine, qp, wr, wq_at(&qp->sq, qp->next + i),
		                     at + sizeof(item)))
			return false;
		at += item_bytes(wr);
	}
	return true;
}

/* Send @count messages from @wr on as one frame of @bytes. Returns what is left of the list; @wr:
 * nothing has happened. */
static inline const struct hdl_send_wr *send_frame(struct engine *engine, struct qp *qp,
                                                   const struct hdl_send_wr *wr, uint32_t count,
                                                   size_t bytes)
{
	struct link *link = &engine->links[qp->link];
	uint32_t tail = qp->next, length = 0;
	struct frame *out = ring_reserve(&link->tx, bytes);
	if (out == NULL ||
	    !(count == 1 ? local_short_put(engine, qp, wr, wq_at(&qp->sq, tail), out + 1)
	                 : put_burst(engine, qp, wr, count, out)))
		return wr;
	bool acks = local_ack_goes_along(qp);
	uint8_t flags = acks ? FRAME_ACKS : 0;
	*out = (struct frame){.kind = count == 1 ? FRAME_SEND : FRAME_BURST,
	                      .flags = count == 1 ? flags | frame_flags(wr) : flags,
	                      .num_sge = count == 1 ? 0 : (uint8_t)count,
	                      .to_qpn = qp->attr.dest_qpn,
	                      .from_qpn = qp->qpn,
	                      .msn = qp->next_msn,
	                      .length = wr->sg_list->length,
	                      .imm = wr->imm,
	                      .ack = qp->local.answer_msn};
	ring_publish(&link->tx);
	/* The peer has the frame. What follows does not delay the message. */
	engine_ring_bell(engine, qp->link);
	if (acks)
		qp->local.answer_due = false;
	for (uint32_t i = 0; i < count; i++, wr = wr->next) {
		local_short_keep(wr, wq_at(&qp->sq, tail + i), qp->next_msn + i);
		length += wr->sg_list->length;
	}
	wq_posted_many(&qp->sq, count);
	qp->next = tail + count;
	qp->next_msn += count;
	qp->sent_messages += count;
	counter_add(&engine->counters[ENGINE_FRAMES_OUT], 1);
	counter_add(&engine->counters[ENGINE_BYTES_SENT], length);
	local_await(engine, qp, count);
	return wr;
}

/* A message that others follow in its list. Not inlined, to keep local_short_send() small. */
__attribute__((noinline)) static const struct hdl_send_wr *send_list(struct engine *engine,
                                                                     struct qp *qp,
                                                                     const struct hdl_send_wr *wr,
                                                                     uint32_t room)
{
	size_t bytes = sizeof(struct frame) + wr->sg_list->length;
	uint32_t count = burst_of(qp, wr, room, &bytes);
	return send_frame(engine, qp, wr, count, bytes);
}

const struct hdl_send_wr *local_short_send(struct engine *engine, struct qp *qp,
                                           const struct hdl_send_wr *wr)
{
	uint32_t room = wq_room(&qp->sq);
	if (room == 0)
		room = reclaim_sends(&qp->sq, qp->send_cq);
	if (qp->type != HDL_QP_RC || qp_state(qp) != HDL_QPS_RTS || qp->link == LINK_NONE ||
	    qp->next != wq_tail(&qp->sq) || qp->waiting || room == 0 || !is_plain_request(qp, wr))
		return wr;
	if (wr->next != NULL)
		return send_list(engine, qp, wr, room);
	return send_frame(engine, qp, wr, 1, sizeof(struct frame) + wr->sg_list->length);
}

/* Completes the messages up to @msn in one go. The general path does this in two steps, because
 * requests of other kinds finish out of order: local_answered() marks elements as finished, and
 * request_reap() completes those at the head of the queue. */
void local_acked(struct engine *engine, struct qp *qp, uint32_t msn)
{
	const struct frame_answer ack = {.answer = ANSWER_ACK};
	uint32_t at = wq_head(&qp->sq);
	if ((int32_t)(msn - qp->next_msn) >= 0)
		return;
	bool plain = !qp->draining && engine_fast(engine);
	while (at != qp->next && plain) {
		struct wqe_send *wqe = wq_at(&qp->sq, at);
		plain = wqe->state == WQE_SENT && wqe->marks == 0 &&
		        (wqe->opcode == HDL_OP_SEND || wqe->opcode == HDL_OP_SEND_IMM);
		if (!plain || (int32_t)(msn - wqe->msn) < 0)
			break;
		assert(qp->unanswered > 0);
		at++;
		qp->unanswered--;
		local_answers_count(qp);
		uint64_t wr_id = wqe->wr_id;
		uint32_t length = wqe->length;
		bool tell = qp->signal_all || (wqe->flags & HDL_SEND_SIGNALED) != 0;
		reclaim_note_send(wqe, qp->send_cq, tell);
		wq_release_to(&qp->sq, at); /* first: whoever polls the completion may post again */
		if (tell)
			op_tell_sent(engine, qp, wr_id, HDL_OP_SEND, length);
		if (wq_head(&qp->sq) != at)
			return; /* the completion queue was full, and everything is flushed */
	}
	if (!plain) {
		local_answered(engine, qp, msn, &ack);
	} else if (qp->next != wq_tail(&qp->sq)) {
		request_reap(engine, qp); /* the next one may have failed, and waited for these */
		if (qp->next != wq_tail(&qp->sq))
			engine_activate(engine, qp);
	}
}

/* The queue pair that the plain message @a is for, if it may take the fast path and expects @a
 * next. */
static inline struct qp *receiver(const struct engine *engine, const struct arrival *a)
{
	const struct frame *f = &a->frame;
	struct qp *qp = engine->qps[f->to_qpn & engine->qp_mask];
	if (qp == NULL || qp->qpn != f->to_qpn || qp->link != a->link ||
	    qp->attr.dest_qpn != f->from_qpn || f->msn != qp->local.expected_msn ||
	    qp->local.part_offset != 0 || qp->srq != NULL || qp->type != HDL_QP_RC ||
	    !engine_fast(engine))
		return NULL;
	return qp;
}

/* Take the acknowledgement in @a. The general path may take it a second time. */
static inline void take_ack(struct engine *engine, struct qp *qp, const struct arrival *a)
{
	if ((a->frame.flags & FRAME_ACKS) != 0 && qp_state(qp) == HDL_QPS_RTS)
		local_acked(engine, qp, a->frame.ack);
}

/* Place the message @a in the receive of @qp, and complete that. What op_receive() and
 * local_request() do, for a receive of one piece that lies in one run. False: it is another one, or
 * is missing or refused, and nothing was consumed. The completion is written here and not by a
 * function that op_receive() shares: one that also knows shared queues cost 2 % of a ping-pong. */
static inline bool local_short_place(struct engine *engine, struct qp *qp, const struct arrival *a)
{
	const struct frame *f = &a->frame;
	const struct wqe_recv *wqe = wq_oldest(&qp->rq);
	enum hdl_qp_state state = qp_state(qp);
	uint64_t to;
	if (wqe == NULL || wqe->num_sge != 1 || wqe->sge->length < f->length ||
	    (state != HDL_QPS_RTS && (state != HDL_QPS_RTR || !qp->established)) ||
	    !sg_own_run(engine, qp->pd, wqe->sge, HDL_ACCESS_LOCAL_WRITE, &to) ||
	    !engine->own.copy_short((void *)(uintptr_t)to, a->body, f->length))
		return false;
	uint64_t wr_id = wqe->wr_id;
	reclaim_note_recv(&qp->rq, qp->recv_cq);
	wq_release(&qp->rq);
	qp->received_messages++;
	op_complete(engine, qp, qp->recv_cq,
	            &(struct hdl_wc){.wr_id = wr_id,
	                             .opcode = HDL_WC_RECV,
	                             .byte_len = f->length,
	                             .imm = f->imm,
	                             .qpn = qp->qpn,
	                             .src_qpn = f->from_qpn,
	                             .flags = f->flags & FRAME_IMM ? HDL_WC_WITH_IMM : 0u},
	            (f->flags & FRAME_SOLICITED) != 0);
	counter_add(&engine->counters[ENGINE_BYTES_RECEIVED], f->length);
	qp->nak_sent = false;
	local_executed(qp, f->msn);
	local_owe(engine, qp, ANSWER_ACK, f->msn, 0);
	return true;
}

bool local_short_take(struct engine *engine, const struct arrival *a)
{
	struct qp *qp = receiver(engine, a);
	if (qp == NULL)
		return false;
	take_ack(engine, qp, a);
	return local_short_place(engine, qp, a);
}

void local_short_poll(struct engine *engine, uint32_t index)
{
	struct link *link = &engine->links[index];
	struct arrival a = {.link = index};
	size_t bytes;
	const unsigned char *record = ring_peek(&link->rx, &bytes);
	if (record == NULL || !local_open(&a, record, bytes) || !local_is_plain(&a))
		return;
	struct qp *qp = receiver(engine, &a);
	/* An ACK that is still owed for an earlier message is due now; engine_run() sends it. */
	if (qp == NULL || qp->local.answer_due)
		return;
	engine->short_polls--;
	take_ack(engine, qp, &a);
	if (!local_short_place(engine, qp, &a))
		return;
	counter_add(&engine->counters[ENGINE_FRAMES_IN], 1);
	ring_release(&link->rx);
	ring_flush_head(&link->rx);
}
