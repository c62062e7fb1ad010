/* What an operation means, implemented once for every transport: consuming a receive and scattering
 * into it, atomics, binds, completing and flushing work. */
#ifndef TRANSPORT_OP_H
#define TRANSPORT_OP_H

#include <stdbool.h>
#include <stdint.h>

#include <heddle/types.h>

#include "queue/reclaim.h"
#include "queue/wqe.h"
#include "transport/engine.h"
#include "transport/sg.h"

/* A message that consumes a receive request. */
struct op_message {
	void *bytes; /* where the bytes are, if in this process */
	/* Otherwise where they are; both NULL: they are already in place. */
	struct sg *data;
	const struct copy_ops *copy; /* reaches both ends */
	enum move_side side;
	uint8_t *grh; /* HDL_GRH_BYTES that precede the data, or NULL */
	uint32_t length;
	uint32_t src_qpn;
	uint32_t imm;      /* or the key to invalidate */
	uint32_t wc_flags; /* enum hdl_wc_flags */
	uint16_t wc_opcode;
	uint8_t sl;
	uint16_t slid;
	uint8_t dlid_path_bits;
	uint32_t eecn; /* the context that it came through; 0: none */
	bool solicited;
};

enum op_received {
	OP_RECEIVED,
	OP_NO_RECEIVE, /* nothing is posted; nothing has happened */
	/* Reliable: the receive has been completed with an error; otherwise counted, and nothing
	 * consumed. */
	OP_TOO_LONG,
	/* A piece of the receive was refused; it has been completed with an error. */
	OP_TARGET_REFUSED,
	OP_SOURCE_REFUSED, /* a piece of the sender was refused; nothing has been consumed */
	OP_SOURCE_CHANGED, /* the sender's queue pair has changed; nothing has been consumed */
	/* Placed, but the key could not be invalidated; the receive has been completed with an
	 * error. */
	OP_INVALIDATE_REFUSED
};

/* *detail: the check that refused; *key: for OP_SOURCE_REFUSED, the key of the sender's piece that
 * was refused. */
enum op_received op_receive(struct engine *engine, struct qp *qp, const struct op_message *message,
                            enum hdl_detail *detail, struct hdl_key *key);

/* A datagram came for @qp: it is received, or dropped and counted. */
void op_receive_datagram(struct engine *engine, struct qp *qp, const struct op_message *message);

/* Copy @count bytes of a message of @length, starting at @offset, into the receive that it fills.
 * After the last part, call op_receive() without data. Returns OP_RECEIVED, OP_NO_RECEIVE,
 * OP_TOO_LONG or OP_TARGET_REFUSED. */
enum op_received op_receive_part(struct engine *engine, struct qp *qp, uint32_t length,
                                 uint32_t offset, void *bytes, uint32_t count,
                                 enum hdl_detail *detail);
/* Make sure that the message that comes @ahead of the next one (0: that one itself) has a receive.
 * Receives of a shared queue are taken out of it: others want the next one before these are filled.
 * False: there is none. */
bool op_hold_receive(struct engine *engine, struct qp *qp, uint32_t ahead);
/* How many bytes the receive of the next message has, which op_hold_receive() has found. */
uint64_t op_receive_room(const struct qp *qp);
/* *to: where @count bytes of that message, from @offset on, belong in the receive that it fills.
 * Returns OP_RECEIVED; or OP_NO_RECEIVE or OP_TOO_LONG, and nothing has happened yet. The message
 * may turn out to be damaged; if it is not, and is the next one, call op_refuse_part(). */
enum op_received op_receive_list(struct engine *engine, struct qp *qp, uint32_t ahead,
                                 uint32_t offset, uint32_t count, struct sg *to);
/* The next message, not damaged, is longer than its receive (@result NULL), or a piece of that was
 * refused: consume the receive with the error. */
void op_refuse_part(struct engine *engine, struct qp *qp, const struct sg_result *result);
/* A write with immediate data was refused: complete the receive that it would have consumed with
 * HDL_WC_LOC_ACCESS_ERR (IBTA section 11.6.2). False: there is none. */
bool op_refuse_receive(struct engine *engine, struct qp *qp, enum hdl_detail detail);
/* Is there a receive for the next message? */
bool op_has_receive(const struct qp *qp);

/* A compare-and-swap or fetch-and-add on @target, a list of one 8-byte piece with
 * HDL_ACCESS_REMOTE_ATOMIC. HDL_DETAIL_TOUCHED: only the target's own adapter can do it. */
enum hdl_detail op_atomic(const struct copy_ops *copy, enum move_side side, struct sg *target,
                          bool add, uint64_t compare_add, uint64_t swap, uint64_t *old);

/* BIND, INVALIDATE, REGISTER, and the registration of REGISTER_SEND. Waits until nobody uses the
 * former key any more. */
enum hdl_detail op_memory(struct engine *engine, struct qp *qp, const struct wqe_send *wqe);

/* Handle the other effects of a completion, enum cq_pushed. */
void op_completed_more(struct engine *engine, struct qp *qp, struct cq *cq, unsigned pushed);
/* As op_complete(), for a queue pair with descriptors. */
void op_complete_descriptor(struct engine *engine, struct qp *qp, struct cq *cq, struct hdl_wc wc,
                            bool solicited);
/* Every completion goes through here. */
static inline void op_complete(struct engine *engine, struct qp *qp, struct cq *cq,
                               const struct hdl_wc *wc, bool solicited)
{
	if (__builtin_expect(qp->descriptors != NULL, 0)) {
		op_complete_descriptor(engine, qp, cq, *wc, solicited);
		return;
	}
	unsigned pushed = cq_push(cq, wc, solicited);
	if (pushed != CQ_STORED)
		op_completed_more(engine, qp, cq, pushed);
}

/* Complete the request @wqe, if it is one that @qp's completion queue reports, and free the
 * element. */
void op_complete_send(struct engine *engine, struct qp *qp, struct wqe_send *wqe);

/* Report to the completion queue that a request has succeeded. */
void op_tell_sent(struct engine *engine, struct qp *qp, uint64_t wr_id, uint8_t opcode,
                  uint32_t length);

/* Complete everything that waits in the queues with HDL_WC_WR_FLUSH_ERR. */
void op_flush_send(struct engine *engine, struct qp *qp);
void op_flush_recv(struct engine *engine, struct qp *qp);
/* Complete the receives that messages were filling in parts, if @qp keeps any. */
void op_fail_kept(struct engine *engine, struct qp *qp, enum hdl_wc_status status);

/* Raise an event about @qp. */
void op_event(struct engine *engine, struct qp *qp, enum hdl_event_type type,
              enum hdl_detail detail);

/* Memory behind one of our keys turned out to be gone: mark it and tell the application. */
void op_memory_gone(struct engine *engine, struct hdl_key key);

/* What a key may allow a peer to do. */
#define OP_REMOTE_RIGHTS \
	(HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE | HDL_ACCESS_REMOTE_ATOMIC)

/* wqe_send.u.bind.type: a window for this queue pair only, whose binder chose the instance. */
#define OP_WINDOW_FOR_QP 2u

/* The completion status of a request of which a local piece was refused. */
static inline enum hdl_wc_status op_local_status(enum hdl_detail detail)
{
	return detail == HDL_DETAIL_GONE ? HDL_WC_LOC_ACCESS_ERR : HDL_WC_LOC_PROT_ERR;
}

#endif
