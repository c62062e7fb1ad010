/* The same-host path, between its files. Two adapters of one machine share a pair of lanes
 * (local/frame.h). RDMA operations are executed by the initiator itself where it can reach the
 * target's memory, and by the target's adapter otherwise; sends travel in the lane or are pulled by
 * the receiver. Messages are numbered (MSN) and answered like packets of a reliable connection: a
 * lane loses nothing, but a queue pair that is not ready does. */
#ifndef TRANSPORT_LOCAL_H
#define TRANSPORT_LOCAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "queue/wqe.h"
#include "transport/engine.h"
#include "transport/local/frame.h"
#include "transport/multicast.h"
#include "transport/request.h"
#include "transport/respond.h"
#include "transport/sg.h"
#include "transport/xrc.h"

/* A frame that came: a copy of its header, and where its body lies. */
struct arrival {
	struct frame frame;
	unsigned char *body; /* in the lane; we do not write to it, the peer may at any time */
	size_t body_bytes;
	uint32_t link;
};

/* What the judge says of a frame. */
enum frame_verdict {
	FRAME_BAD,  /* makes no sense: the peer is broken or hostile */
	FRAME_GOOD, /* its kind exists, and its body is as long as the header says */
	FRAME_PLAIN /* good, and a whole SEND of 1 to FRAME_MAX_DATA bytes which are its body, and
	               nothing in the header asks for more: the fast path takes these */
};

/* local_judge() for frames that are not plain (local/rx.c). */
enum frame_verdict local_judge_other(const struct arrival *a);

/* Would local_judge() say FRAME_PLAIN? For callers that have no use for other frames. */
static inline bool local_is_plain(const struct arrival *a)
{
	const struct frame *f = &a->frame;
	const uint8_t flags = FRAME_ACKS | FRAME_SOLICITED | FRAME_IMM;
	return f->kind == FRAME_SEND && (f->flags & ~flags) == 0 && f->offset == 0 &&
	       f->length == a->body_bytes && f->length - 1 < FRAME_MAX_DATA;
}

/* The only judge of frames, for the fast path and the general one. It judges the copy of the
 * header; a message in a burst comes here when open_item() (local/rx.c) has found where it ends.
 * Values in the fixed part of a body are judged by the function that copies them. */
static inline enum frame_verdict local_judge(const struct arrival *a)
{
	return local_is_plain(a) ? FRAME_PLAIN : local_judge_other(a);
}

/* Copy the header of the frame in @record, of @bytes. False: it is too short for one. */
static inline bool local_open(struct arrival *a, const unsigned char *record, size_t bytes)
{
	if (bytes < sizeof(struct frame))
		return false;
	memcpy(&a->frame, record, sizeof(a->frame));
	a->body = (unsigned char *)(uintptr_t)record + sizeof(struct frame);
	a->body_bytes = bytes - sizeof(struct frame);
	return true;
}

/* Requester: execute what can be executed. True if anything was done. */
bool local_run(struct engine *engine, struct qp *qp);
/* Requester: the responder answered. */
void local_answered(struct engine *engine, struct qp *qp, uint32_t msn,
                    const struct frame_answer *answer);
/* Requester: take from the peer's table what it has executed and not yet said so. */
void local_look(struct engine *engine, struct qp *qp);
/* Requester: the timer of @qp ran out. */
void local_timeout(struct engine *engine, struct qp *qp);
/* Requester: the peer is gone. */
void local_peer_gone(struct engine *engine, struct qp *qp);
/* The process at the other end has gone, but ended its queue pair before: @qp repeats what was not
 * answered, until its retries are used up. */
void local_peer_left(struct engine *engine, struct qp *qp);
/* RDMA by the initiator, on the target's memory. */
/* The other end does not answer yet, or not any more: do what a timeout would do on a wire. */
enum step local_not_ready(struct engine *engine, struct qp *qp, struct wqe_send *wqe);
enum step local_direct(struct engine *engine, struct qp *qp, struct wqe_send *wqe);
/* One datagram through the lane that it names (local/datagram.c). */
enum step local_send_datagram(struct engine *engine, struct qp *qp, struct wqe_send *wqe);
/* Is it worth waiting for room in the lanes to the members of @group? A peer that takes nothing
 * must not stop the group for the others. */
bool local_group_must_wait(struct engine *engine, struct group *group, const struct wqe_send *wqe);
/* Send a datagram to the members of @group on this host. False: its memory was refused, and the
 * request is finished. */
bool local_send_to_group(struct engine *engine, struct qp *qp, struct wqe_send *wqe,
                         const struct group *group);
/* There is no peer: a datagram is lost, a message is never answered. The request's own memory is
 * checked all the same. */
enum step local_unreachable(struct engine *engine, struct qp *qp, struct wqe_send *wqe);
/* Execute and complete @wr at once, without an element of the queue: a short write or read with
 * nothing in front of it. Returns what is left of the list; @wr itself: nothing was decided, post
 * it. The caller has asked engine_fast() and keeps other threads from posting to @qp. */
const struct hdl_send_wr *local_express(struct engine *engine, struct qp *qp,
                                        const struct hdl_send_wr *wr);
/* @wqe is in flight: an answer will come. */
void local_sent(struct engine *engine, struct qp *qp, struct wqe_send *wqe);
/* Answers to @count messages that were published last will come. */
void local_await(struct engine *engine, struct qp *qp, uint32_t count);
/* @wqe was answered, and is not in flight any more. */
void local_answer_came(struct qp *qp, struct wqe_send *wqe);
/* The element that holds message @msn, if it is waiting for an answer. */
struct wqe_send *local_find_sent(struct qp *qp, uint32_t msn, uint32_t *index);
/* Behind the last element that may be in flight: the next one is, while parts of it are still to be
 * sent. */
static inline uint32_t local_sent_end(const struct qp *qp)
{
	bool partial = qp->next != wq_tail(&qp->sq) &&
	               ((struct wqe_send *)wq_at(&qp->sq, qp->next))->state == WQE_SENT;
	return qp->next + partial;
}
/* Write the header of @wqe's frame. What is owed to the peer goes with it, where that is a plain
 * ACK. */
void local_put_header(struct qp *qp, struct wqe_send *wqe, enum frame_kind kind, uint8_t flags,
                      struct frame *out);

/* Requester: a message of @qp was acknowledged: what it may retry begins anew. */
static inline void local_answers_count(struct qp *qp)
{
	qp->answered = true;
	qp->retries_left = qp->attr.retry_cnt;
	qp->rnr_left = qp->attr.rnr_retry;
}
/* Responder: message @msn, the expected one, was executed. The peer may read so in our table. */
static inline void local_executed(struct qp *qp, uint32_t msn)
{
	qp->local.expected_msn++;
	atomic_store_explicit(&qp->pub->executed, QP_EXECUTED(msn), memory_order_release);
}

/* --- local/short.c: the fast path --- */
/* Requester: post and send @wr at once, together with the messages that follow it, where they are
 * short and plain. Returns what is left of the list; @wr itself: nothing has happened. The caller
 * has asked engine_fast() and keeps other threads from posting to @qp. */
const struct hdl_send_wr *local_short_send(struct engine *engine, struct qp *qp,
                                           const struct hdl_send_wr *wr);
/* Requester: as local_answered() with ANSWER_ACK. */
void local_acked(struct engine *engine, struct qp *qp, uint32_t msn);
/* Responder: take the plain message @a. False: at most its acknowledgement was taken. */
bool local_short_take(struct engine *engine, const struct arrival *a);
/* The application polls, and a frame is in the lane of @link: take it, if it is a plain message and
 * nothing has to be done about it before the application calls again. */
void local_short_poll(struct engine *engine, uint32_t link);

/* --- local/value.c --- */
/* Can the peer of @link read and write our memory? (port/lanes.h: LANES_REACH_YES) */
static inline bool local_peer_reaches(const struct link *link)
{
	return atomic_load_explicit(link->peer_reach, memory_order_relaxed) == 1;
}
/* Requester: send the parts of @wqe from where it stands. */
enum step local_send_parts(struct engine *engine, struct qp *qp, struct wqe_send *wqe,
                           enum frame_kind kind, const struct frame_target *target);
/* Requester: @count bytes of a read have come. */
void local_data(struct engine *engine, struct qp *qp, const struct frame *frame, void *bytes,
                uint32_t count);
/* Responder: is this part the one that is due? One that begins a message always is. */
bool local_part_is_next(struct qp *qp, const struct frame *frame);
/* Responder: the read that @frame asks for, granted, will be answered with its data. */
void local_owe_data(struct engine *engine, struct qp *qp, struct read_entry *entry,
                    const struct frame *frame, const struct frame_target *target);
/* Responder: send what is left of it. False: no room. */
bool local_send_read(struct engine *engine, struct qp *qp, struct read_entry *entry);

/* Responder: @a is a request of the connection. */
void local_request(struct engine *engine, struct qp *qp, const struct arrival *a);
/* Responder: take frames from a link. Returns how many. */
unsigned local_receive(struct engine *engine, uint32_t link);
/* Responder: @qp owes an answer about message @msn. */
void local_owe(struct engine *engine, struct qp *qp, enum answer answer, uint32_t msn,
               uint32_t detail);
/* An answer at once, from @qp or on behalf of nobody. False: no room. */
bool local_reply(struct engine *engine, struct qp *qp, uint32_t msn, enum answer answer,
                 uint32_t detail, uint64_t value);
bool local_send_answer(struct engine *engine, uint32_t link, uint32_t to_qpn, uint32_t from_qpn,
                       uint32_t msn, struct frame_answer answer);
/* Responder: is anything owed? */
static inline bool local_owes(const struct qp *qp)
{
	return qp->local.answer_due || qp->close_due || qp->local.results_due > 0;
}
/* Responder: can a message to the peer carry what is owed? A plain ACK, with nothing before it. */
static inline bool local_ack_goes_along(const struct qp *qp)
{
	return qp->local.answer_due && qp->local.answer == ANSWER_ACK && qp->local.results_due == 0;
}
/* Responder: send what is owed. False when there was no room. */
bool local_answer(struct engine *engine, struct qp *qp);
/* Responder: may what is owed wait until the application calls the next time? Once, for a single
 * message: an answer to it from the application may come next and take the ACK along
 * (put_header()). */
bool local_may_wait(struct qp *qp);

/* Responder: the request cannot be executed: tell the peer, raise the event, fail. */
void local_refuse(struct engine *engine, struct qp *qp, uint32_t msn, enum answer answer,
                  enum hdl_detail detail);
/* How a peer is told that a check of its range said no. */
static inline enum answer local_answer_for(enum hdl_detail detail)
{
	if (detail == HDL_DETAIL_MISALIGNED)
		return ANSWER_INVALID;
	return detail == HDL_DETAIL_GONE ? ANSWER_OPERATION : ANSWER_ACCESS;
}
/* Local ack timeout: 4.096 us x 2^code (IBTA section 9.7.6.1.3). */
uint64_t local_timeout_ns(const struct qp *qp);

extern const struct transport local_transport;

#endif
