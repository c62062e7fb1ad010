/* The same-host path, between its files. Two adapters of one machine share a pair of lanes (frame.h). RDMA operations are
 * executed by the initiator itself where it can reach the target's memory, and by the target's adapter otherwise; sends
 * travel in the lane or are pulled by the receiver. Messages are numbered (MSN) and answered like packets of a
 * reliable connection: a lane loses nothing, but a queue pair that is not ready does. */
#ifndef TRANSPORT_LOCAL_H
#define TRANSPORT_LOCAL_H

#include <stdbool.h>
#include <stdint.h>

#include "queue/wqe.h"
#include "transport/frame.h"
#include "transport/node.h"

/* Requester: execute what can be executed. True if anything was done. */
bool local_run(struct node *node, struct qp *qp);
/* Requester: the responder answered. */
void local_answered(struct node *node, struct qp *qp, uint32_t msn,
                    const struct frame_answer *answer);
/* Requester: take from the peer's table what it has executed and not yet said so. */
void local_look(struct node *node, struct qp *qp);
/* Requester: the timer of @qp ran out. */
void local_timeout(struct node *node, struct qp *qp);
/* Requester: the peer is gone. */
void local_peer_gone(struct node *node, struct qp *qp);
/* Complete what is over, oldest first. */
void local_reap(struct node *node, struct qp *qp);

/* RDMA by the initiator, on the target's memory. */
enum local_step {
	LOCAL_NEXT,    /* executed or sent: on to the next request */
	LOCAL_WAIT,    /* an answer or a timer will set it going */
	LOCAL_NO_ROOM, /* the lane is full: try again soon */
	LOCAL_BY_TARGET
};
/* Nobody answers at the other end yet (or any more): what a timeout would tell on a wire. */
enum local_step local_not_ready(struct node *node, struct qp *qp, struct wqe_send *wqe);
enum local_step local_direct(struct node *node, struct qp *qp, struct wqe_send *wqe);
/* Execute and complete @wr at once, without an element of the queue: a short write or read that nothing stands before, on memory
 * of this process. False: nothing was decided, post it. */
bool local_express(struct node *node, struct qp *qp, const struct hdl_send_wr *wr);
/* @wqe is over. */
static inline void local_finish(struct wqe_send *wqe, enum hdl_wc_status status,
                                enum hdl_detail detail)
{
	wqe->state = WQE_DONE;
	wqe->status = (uint8_t)status;
	wqe->vendor_err = (uint8_t)detail;
}
static inline bool local_is_read(const struct wqe_send *wqe)
{
	return wqe->opcode == HDL_OP_READ || wqe->opcode == HDL_OP_COMPARE_SWAP ||
	       wqe->opcode == HDL_OP_FETCH_ADD;
}
/* Is the next element one that was begun? A message that is to be repeated was, and counts as in flight. */
static inline bool local_begun(const struct qp *qp)
{
	if (qp->next == wq_tail(&qp->sq))
		return false;
	const struct wqe_send *wqe = wq_at(&qp->sq, qp->next);
	return wqe->state != WQE_READY || wqe->numbered;
}

/* Responder: take frames from a link. Returns how many. */
unsigned local_receive(struct node *node, uint32_t link);
/* Responder: @qp owes an answer about message @msn. */
void local_owe(struct node *node, struct qp *qp, enum answer answer, uint32_t msn, uint32_t detail);
/* An answer at once, from @qp or on behalf of nobody. False: no room. */
bool local_reply(struct node *node, struct qp *qp, uint32_t msn, enum answer answer,
                 uint32_t detail, uint64_t value);
bool local_send_answer(struct node *node, uint32_t link, uint32_t to_qpn, uint32_t from_qpn,
                       uint32_t msn, struct frame_answer answer);
/* Responder: send what is owed. False when there was no room. */
bool local_answer(struct node *node, struct qp *qp);
/* Responder: may what is owed wait until the application calls the next time? Once, for a single message: an answer to it from
 * the application may come next and take the ACK along (put_header()). */
bool local_may_wait(struct qp *qp);

/* Local ack timeout: 4.096 us x 2^code (IBTA section 9.7.6.1.3). */
uint64_t local_timeout_ns(const struct qp *qp);
/* Table 45 of IBTA volume 1: the RNR timer codes, in nanoseconds. */
uint64_t local_rnr_ns(uint32_t code);

#endif
