/* What an operation means, written once for every transport: consuming a receive and scattering
 * into it, an atomic, a bind, completing and flushing work. */
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
	void *bytes;                 /* where the bytes are, if in this process; */
	struct sg *data;             /* else where; both NULL: they are in place already */
	const struct copy_ops *copy; /* reaches both ends */
	enum move_side side;
	uint8_t *grh; /* HDL_GRH_BYTES that come first, or NULL */
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
	OP_TOO_LONG, /* reliable: the receive was completed with an error; else counted, and nothing
	                is consumed */
	OP_TARGET_REFUSED, /* the receive's own pieces were refused; it was completed with an error
	                    */
	OP_SOURCE_REFUSED, /* the sender's pieces were refused; nothing is consumed */
	OP_SOURCE_CHANGED, /* the sender's queue pair is no longer what it was; nothing is consumed
	                    */
	OP_INVALIDATE_REFUSED /* placed, but the key could not be invalidated; the receive was
	                         completed with an error */
};

/* *detail: which check refused; *key: of OP_SOURCE_REFUSED, the sender's piece that was. */
enum op_received op_receive(struct engine *engine, struct qp *qp, const struct op_message *message,
                            enum hdl_detail *detail, struct hdl_key *key);

/* A datagram came for @qp: received, or dropped and counted. */
void op_receive_datagram(struct engine *engine, struct qp *qp, const struct op_message *message);

/* @count bytes of a message of @length from @offset on go into the receive that it fills. After the
 * last part, op_receive() without data. OP_RECEIVED, OP_NO_RECEIVE, OP_TOO_LONG, OP_TARGET_REFUSED.
 */
enum op_received op_receive_part(struct engine *engine, struct qp *qp, uint32_t length,
                                 uint32_t offset, void *bytes, uint32_t count,
                                 enum hdl_detail *detail);
/* A write with immediate data was refused: the receive that it would have consumed is completed
 * with HDL_WC_LOC_ACCESS_ERR (IBTA section 11.6.2). False: there is none. */
bool op_refuse_receive(struct engine *engine, struct qp *qp, enum hdl_detail detail);
/* Is there a receive for the next message? */
bool op_has_receive(const struct qp *qp);

/* A compare-and-swap or fetch-and-add on @target, a list of one 8-byte piece with
 * HDL_ACCESS_REMOTE_ATOMIC. HDL_DETAIL_TOUCHED: only the target's own adapter can do it. */
enum hdl_detail op_atomic(const struct copy_ops *copy, enum move_side side, struct sg *target,
                          bool add, uint64_t compare_add, uint64_t swap, uint64_t *old);

/* BIND, INVALIDATE, REGISTER, and the registration of REGISTER_SEND. Waits until the former key's
 * users have gone. */
enum hdl_detail op_memory(struct engine *engine, struct qp *qp, const struct wqe_send *wqe);

/* What else a completion brought about, of enum cq_pushed. */
void op_completed_more(struct engine *engine, struct qp *qp, struct cq *cq, unsigned pushed);
/* Every completion goes through here. */
static inline void op_complete(struct engine *engine, struct qp *qp, struct cq *cq,
                               const struct hdl_wc *wc, bool solicited)
{
	unsigned pushed = cq_push(cq, wc, solicited);
	if (pushed != CQ_STORED)
		op_completed_more(engine, qp, cq, pushed);
}

/* Is the request @wqe one that @qp's completion queue hears of? Completes it and frees the element.
 */
void op_complete_send(struct engine *engine, struct qp *qp, struct wqe_send *wqe);

/* Tell the completion queue that a request has succeeded. */
void op_tell_sent(struct engine *engine, struct qp *qp, uint64_t wr_id, uint8_t opcode,
                  uint32_t length);

/* Complete everything that waits in the queues with HDL_WC_WR_FLUSH_ERR. */
void op_flush_send(struct engine *engine, struct qp *qp);
void op_flush_recv(struct engine *engine, struct qp *qp);
/* The receive that a message was filling in parts, if @qp keeps one, is over. */
void op_fail_kept(struct engine *engine, struct qp *qp, enum hdl_wc_status status);

/* Raise an event about @qp. */
void op_event(struct engine *engine, struct qp *qp, enum hdl_event_type type,
              enum hdl_detail detail);

/* Memory behind one of our keys turned out to be gone: mark it, tell the application. */
void op_memory_gone(struct engine *engine, struct hdl_key key);

/* What a key can let a peer do. */
#define OP_REMOTE_RIGHTS \
	(HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE | HDL_ACCESS_REMOTE_ATOMIC)

/* wqe_send.u.bind.type: a window for this queue pair only, whose binder picked the instance. */
#define OP_WINDOW_FOR_QP 2u

/* The completion status of a request whose own pieces were refused. */
static inline enum hdl_wc_status op_local_status(enum hdl_detail detail)
{
	return detail == HDL_DETAIL_GONE ? HDL_WC_LOC_ACCESS_ERR : HDL_WC_LOC_PROT_ERR;
}

#endif
