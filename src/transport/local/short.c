/* The same-host path: the usual message on the shortest way. What is sent most often is a short
 * SEND of one piece on a reliable connection where nothing is out of the ordinary, and what it
 * costs is instructions. Here such a message is posted and put into the lane, taken from it, and
 * acknowledged, each in one go. Everything else, and everything that is refused, is left as it was
 * to the files that know all cases: local/tx.c, local/rx.c and local/request.c, local/retry.c. */
#include <string.h>

#include "transport/local/local.h"
#include "transport/op.h"

/* May usual messages take this way? */
static inline bool is_usual(const struct engine *engine, const struct qp *qp)
{
	return qp->type == HDL_QP_RC && engine_fast(engine);
}

/* Is @wr one of them? */
static inline bool is_usual_request(const struct qp *qp, const struct hdl_send_wr *wr)
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

/* Copy the data of @wr to @out, and keep in @wqe where it is: it may have to be repeated. False:
 * its memory is not what it should be. */
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

/* Keep in @wqe what else @wr asks for, as message @msn in flight. */
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

/* How many messages from @wr on fit into one frame, *bytes long; at most @room. */
static uint32_t burst_of(const struct qp *qp, const struct hdl_send_wr *wr, uint32_t room,
                         size_t *bytes)
{
	uint32_t count = 0;
	size_t sum = sizeof(struct frame);
	for (; wr != NULL && count < room && count < UINT8_MAX && is_usual_request(qp, wr) &&
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

/* @count messages from @wr on, the data of the frame @out. False: one of them is refused. */
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

/* @count messages from @wr on, of @bytes in the lane. Returns what is left of the list, or @wr. */
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
	/* The peer has it. From here on nobody waits for us. */
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

/* Those that are not alone in their list. Kept out of local_short_send(), which is short. */
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
	if (!is_usual(engine, qp) || qp_state(qp) != HDL_QPS_RTS || qp->link == LINK_NONE ||
	    qp->next != wq_tail(&qp->sq) || qp->waiting || room == 0 || !is_usual_request(qp, wr))
		return wr;
	if (wr->next != NULL)
		return send_list(engine, qp, wr, room);
	return send_frame(engine, qp, wr, 1, sizeof(struct frame) + wr->sg_list->length);
}

void local_acked(struct engine *engine, struct qp *qp, uint32_t msn)
{
	const struct frame_answer ack = {.answer = ANSWER_ACK};
	uint32_t at = wq_head(&qp->sq);
	if ((int32_t)(msn - qp->next_msn) >= 0)
		return;
	bool usual = !qp->draining && engine_fast(engine);
	while (at != qp->next && usual) {
		struct wqe_send *wqe = wq_at(&qp->sq, at);
		usual = wqe->state == WQE_SENT && wqe->marks == 0 &&
		        (wqe->opcode == HDL_OP_SEND || wqe->opcode == HDL_OP_SEND_IMM);
		if (!usual || (int32_t)(msn - wqe->msn) < 0)
			break;
		at++;
		qp->unanswered--;
		qp->answered = true;
		qp->retries_left = qp->attr.retry_cnt;
		qp->rnr_left = qp->attr.rnr_retry;
		uint64_t wr_id = wqe->wr_id;
		uint32_t length = wqe->length;
		bool tell = qp->signal_all || (wqe->flags & HDL_SEND_SIGNALED) != 0;
		reclaim_note_send(wqe, qp->send_cq, tell);
		wq_release_to(&qp->sq, at); /* before it is told: who hears of it may post anew */
		if (tell)
			op_tell_sent(engine, qp, wr_id, HDL_OP_SEND, length);
		if (wq_head(&qp->sq) != at)
			return; /* that was one completion too many, and everything is flushed */
	}
	if (!usual)
		local_answered(engine, qp, msn, &ack);
	else if (qp->next != wq_tail(&qp->sq))
		engine_activate(engine, qp);
}

/* The queue pair that @a is for, if it is a usual message, and the next. */
static inline struct qp *receiver(const struct engine *engine, const struct arrival *a)
{
	const struct frame *f = &a->frame;
	const uint8_t flags = FRAME_ACKS | FRAME_SOLICITED | FRAME_IMM;
	struct qp *qp = engine->qps[f->to_qpn & engine->qp_mask];
	if (f->kind != FRAME_SEND || (f->flags & ~flags) != 0 || f->offset != 0 ||
	    f->length != a->body_bytes || f->length - 1 >= FRAME_MAX_DATA || qp == NULL ||
	    qp->qpn != f->to_qpn || qp->link != a->link || qp->attr.dest_qpn != f->from_qpn ||
	    f->msn != qp->local.expected_msn || qp->local.part_offset != 0 || qp->srq != NULL ||
	    !is_usual(engine, qp))
		return NULL;
	return qp;
}

/* Take what @a acknowledges. Whoever looks at this frame again may do so again. */
static inline void take_ack(struct engine *engine, struct qp *qp, const struct arrival *a)
{
	if ((a->frame.flags & FRAME_ACKS) != 0 && qp_state(qp) == HDL_QPS_RTS)
		local_acked(engine, qp, a->frame.ack);
}

/* Place the message @a of @qp. False: it is not usual after all. */
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
	qp->local.expected_msn++;
	atomic_store_explicit(&qp->pub->executed, QP_EXECUTED(f->msn), memory_order_release);
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
	if (record == NULL || bytes < sizeof(struct frame))
		return;
	local_open(&a, record, bytes);
	struct qp *qp = receiver(engine, &a);
	/* What is owed for the last one is due now, and here nobody would send it. */
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
