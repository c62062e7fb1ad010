/* The same-host path: RDMA by the initiator. Where it reaches the target's memory, the
 * initiator checks the target's queue pair and protection table itself and copies once; the
 * target's processor does nothing. Only what the target alone may change (touch control, atomics
 * without shared memory) goes there as a frame. */
#include <assert.h>

#include "memory/judge.h"
#include "queue/qp_state.h"
#include "transport/capture.h"
#include "transport/local/local.h"
#include "transport/op.h"

/* The right that the target must have given, on the queue pair and on the memory. */
static uint8_t needed_access(uint8_t opcode)
{
	switch (opcode) {
	case HDL_OP_WRITE:
	case HDL_OP_WRITE_IMM:
		return HDL_ACCESS_REMOTE_WRITE;
	case HDL_OP_READ:
		return HDL_ACCESS_REMOTE_READ;
	default:
		return HDL_ACCESS_REMOTE_ATOMIC;
	}
}

enum step local_not_ready(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	if (!qp_reliable(qp)) { /* sent, and lost */
		request_finish(wqe, HDL_WC_SUCCESS, HDL_DETAIL_NONE);
		return STEP_NEXT;
	}
	/* The first look is the request itself; every further one stands for a repetition after a
	 * timeout. */
	if (qp->attr.timeout != 0 && (wqe->marks & WQE_LOOKED) != 0) {
		counter_add(&engine->counters[ENGINE_TIMEOUTS], 1);
		if (qp->retries_left == 0) {
			request_finish(wqe, HDL_WC_RETRY_EXC_ERR, HDL_DETAIL_NONE);
			return STEP_NEXT;
		}
		qp->retries_left--;
	}
	wqe->marks |= WQE_LOOKED;
	capture_request(engine, qp, wqe);
	qp->waiting = true;
	engine_want_timer(engine, qp, local_timeout_ns(qp));
	return STEP_WAIT;
}

/* The target's checks refused the request. We tell the target: its queue pair fails like ours. */
static void refused_by_target(struct engine *engine, struct qp *qp, struct wqe_send *wqe,
                              enum hdl_detail detail)
{
	if (qp->type == HDL_QP_UC) {
		request_finish(wqe, HDL_WC_SUCCESS, HDL_DETAIL_NONE);
		return;
	}
	enum hdl_wc_status status = HDL_WC_REM_ACCESS_ERR;
	if (detail == HDL_DETAIL_GONE)
		status = HDL_WC_REM_OP_ERR;
	if (detail == HDL_DETAIL_MISALIGNED || detail == HDL_DETAIL_NONE)
		status = HDL_WC_REM_INV_REQ_ERR;
	qp->close_due = true;
	qp->close_event = status == HDL_WC_REM_INV_REQ_ERR ? HDL_EVENT_QP_REQUEST_ERR
	                                                   : HDL_EVENT_QP_ACCESS_ERR;
	qp->close_detail = (uint8_t)detail;
	qp->close_key = wqe->u.rdma.key;
	qp->close_imm = wqe->opcode == HDL_OP_WRITE_IMM && status != HDL_WC_REM_INV_REQ_ERR;
	request_finish(wqe, status, detail);
	engine_owe(engine, qp);
}

static enum step direct_atomic(struct engine *engine, struct qp *qp, struct wqe_send *wqe,
                               struct sg *remote)
{
	struct link *link = &engine->links[qp->link];
	uint64_t old;
	enum hdl_detail detail =
	        op_atomic(&link->memory.ops, MOVE_TO_PEER, remote, wqe->opcode == HDL_OP_FETCH_ADD,
	                  wqe->u.atomic.compare_add, wqe->u.atomic.swap, &old);
	if (detail == HDL_DETAIL_TOUCHED)
		return STEP_BY_TARGET;
	if (detail == HDL_DETAIL_QP && sg_changed(remote))
		return local_not_ready(engine, qp, wqe);
	if (detail != HDL_DETAIL_NONE) {
		refused_by_target(engine, qp, wqe, detail);
		return STEP_NEXT;
	}
	counter_add(&engine->counters[ENGINE_ATOMICS], 1);
	struct hdl_sge piece;
	struct sg from = sg_plain(&piece, &old, sizeof(old));
	struct sg to = sg_own(engine, qp, wqe_sge(wqe), wqe->num_sge, HDL_ACCESS_LOCAL_WRITE);
	struct sg_result result = sg_move(&engine->own.ops, MOVE_BOTH_OWN, &to, &from, sizeof(old));
	if (result.detail != HDL_DETAIL_NONE)
		request_refused(engine, wqe, &result);
	else
		request_finish(wqe, HDL_WC_SUCCESS, HDL_DETAIL_NONE);
	return STEP_NEXT;
}

/* A request of one run of at most MOVE_SHORT bytes. */
struct short_run {
	uint64_t own; /* where the bytes are or go, in our memory */
	uint64_t addr;
	struct hdl_key key;
	uint32_t length;
	uint8_t access; /* that the target must have given */
};

/* The right that our own piece must have, if the target's must have @access. */
static uint8_t own_access(uint8_t access)
{
	return access == HDL_ACCESS_REMOTE_READ ? HDL_ACCESS_LOCAL_WRITE : HDL_ACCESS_LOCAL_READ;
}

/* Copy @run, whose other end lies at @host of the target's memory. Inside the guard. */
static inline bool copy_run(const struct link *link, const struct short_run *run, uint64_t host)
{
	const struct peer_memory *memory = &link->memory;
	enum move_side side = run->access == HDL_ACCESS_REMOTE_READ ? MOVE_FROM_PEER : MOVE_TO_PEER;
	return memory->copy_short(memory->ops.context, side, run->own, host, run->length);
}

/* A fast path: a short write or read of one run at both ends. False: it is another one or was
 * refused, and part of it may have been copied; sg_move() repeats it or finds what is wrong. */
static bool direct_short(struct qp *qp, const struct link *link, const struct qp_public *pub,
                         const struct qp_facts *facts, const struct short_run *run)
{
	uint64_t host;
	bool done = false;
	const struct tpt_request req = {.key = run->key,
	                                .side = TPT_REMOTE,
	                                .windows_only = facts->windows_only,
	                                .access = run->access,
	                                .pd = facts->pd,
	                                .qpn = qp->attr.dest_qpn,
	                                .addr = run->addr,
	                                .length = run->length};
	if (link->guard != NULL)
		tpt_enter(link->guard);
	/* The queue pair is still what it was: see struct sg. */
	if (atomic_load_explicit(&pub->words[0], memory_order_acquire) == facts->word &&
	    tpt_peer_run(&link->peer_table, &req, &host, &qp->local.target.memo)) {
		done = copy_run(link, run, host);
		qp->local.target.facts = facts->word;
		qp->local.target.access =
		        done ? run->access : 0; /* out of reach: direct_again() shall not try */
	}
	if (link->guard != NULL)
		tpt_leave(link->guard);
	return done;
}

/* direct_short() to the place of the last one, if nothing has changed there since. */
static inline bool direct_again(const struct qp *qp, const struct link *link,
                                const struct qp_public *pub, const struct short_run *run)
{
	const struct qp_target *target = &qp->local.target;
	uint64_t host;
	if (target->access != run->access || target->memo.key.v != run->key.v)
		return false;
	if (link->guard != NULL)
		tpt_enter(link->guard);
	bool done = atomic_load_explicit(&pub->words[0], memory_order_acquire) == target->facts &&
	            tpt_peer_run_again(&link->peer_table, &target->memo, run->addr, run->length,
	                               &host) &&
	            copy_run(link, run, host);
	if (link->guard != NULL)
		tpt_leave(link->guard);
	return done;
}

/* direct_short() for the element @wqe. */
static bool direct_one_run(const struct engine *engine, struct qp *qp, struct wqe_send *wqe,
                           const struct link *link, const struct qp_public *pub,
                           const struct qp_facts *facts, uint8_t access)
{
	const struct hdl_sge *piece = wqe_sge(wqe);
	struct short_run run = {.own = (uint64_t)(uintptr_t)wqe_inline(wqe),
	                        .addr = wqe->u.rdma.addr,
	                        .key = wqe->u.rdma.key,
	                        .length = wqe->length,
	                        .access = access};
	if (!engine_fast(engine) || wqe->length > MOVE_SHORT ||
	    ((wqe->flags & HDL_SEND_INLINE) == 0 &&
	     (piece->length != wqe->length ||
	      !sg_own_run(engine, qp->pd, piece, own_access(access), &run.own))))
		return false;
	return direct_short(qp, link, pub, facts, &run);
}

/* The bytes of @wqe have been copied. */
static enum step direct_done(struct engine *engine, struct wqe_send *wqe)
{
	bool read = wqe->opcode == HDL_OP_READ;
	counter_add(&engine->counters[read ? ENGINE_BYTES_READ : ENGINE_BYTES_WRITTEN],
	            wqe->length);
	if (wqe->opcode == HDL_OP_WRITE_IMM) {
		wqe->marks |= WQE_PREPARED;
		return STEP_BY_TARGET; /* the notice is a frame */
	}
	request_finish(wqe, HDL_WC_SUCCESS, HDL_DETAIL_NONE);
	return STEP_NEXT;
}

static enum step direct_copy(struct engine *engine, struct qp *qp, struct wqe_send *wqe,
                             struct sg *remote)
{
	struct link *link = &engine->links[qp->link];
	struct hdl_sge inline_piece;
	struct sg own = wqe->flags & HDL_SEND_INLINE
	                        ? sg_plain(&inline_piece, wqe_inline(wqe), wqe->length)
	                        : sg_own(engine, qp, wqe_sge(wqe), wqe->num_sge,
	                                 wqe->opcode == HDL_OP_READ ? HDL_ACCESS_LOCAL_WRITE
	                                                            : HDL_ACCESS_LOCAL_READ);
	bool read = wqe->opcode == HDL_OP_READ;
	uint32_t begin = wqe->marks & WQE_COPYING ? wqe->offset : 0;
	uint32_t count = wqe->length - begin;
	if (count > engine->turn_bytes)
		count = engine->turn_bytes;
	sg_skip(&own, begin);
	sg_skip(remote, begin);
	struct sg_result result =
	        read ? sg_move(&link->memory.ops, MOVE_FROM_PEER, &own, remote, count)
	             : sg_move(&link->memory.ops, MOVE_TO_PEER, remote, &own, count);
	wqe->marks &= (uint8_t)~WQE_COPYING; /* on failure it starts over, or is finished */
	wqe->offset = 0;
	if (result.changed)
		return local_not_ready(engine, qp, wqe);
	bool remote_refused = result.at_target != read;
	if (result.detail == HDL_DETAIL_TOUCHED && remote_refused)
		return STEP_BY_TARGET;
	if (result.detail != HDL_DETAIL_NONE) {
		if (remote_refused)
			refused_by_target(engine, qp, wqe, result.detail);
		else
			request_refused(engine, wqe, &result);
		return STEP_NEXT;
	}
	if (begin + count < wqe->length) {
		wqe->offset = begin + count;
		wqe->marks |= WQE_COPYING;
		return STEP_MORE;
	}
	return direct_done(engine, wqe);
}

/* What the queue pair at the other end of @qp publishes. */
static const struct qp_public *local_direct_peer_of(const struct link *link, const struct qp *qp)
{
	return &link->peer_qps[qp->attr.dest_qpn & link->peer_qp_mask];
}

/* Is the peer's queue pair connected to ours, and does it take requests? It takes none if it
 * expects another first number than ours. */
static bool is_ready(const struct link *link, const struct qp *qp, const struct qp_public *pub,
                     struct qp_facts *facts)
{
	return qp_read_facts(pub, facts) && qp_may_receive(facts->state) &&
	       facts->dest_qpn == qp->qpn && facts->link == link->id && facts->type == qp->type &&
	       (facts->rq_psn == qp->attr.sq_psn || qp->type != HDL_QP_RC);
}

const struct hdl_send_wr *local_express(struct engine *engine, struct qp *qp,
                                        const struct hdl_send_wr *wr)
{
	const struct hdl_sge *piece = wr->sg_list;
	bool read = wr->opcode == HDL_OP_READ, inlined = (wr->flags & HDL_SEND_INLINE) != 0;
	if (wq_room(&qp->sq) == 0 && reclaim_sends(&qp->sq, qp->send_cq) == 0)
		return wr;
	if (qp->type != HDL_QP_RC || qp_state(qp) != HDL_QPS_RTS || qp->link == LINK_NONE ||
	    wq_held(&qp->sq) != 0 || qp->sq.depth == 0 || qp->unanswered > 0 || qp->waiting ||
	    (wr->opcode != HDL_OP_WRITE && !read) ||
	    (read && (inlined || qp->attr.max_rd_atomic == 0)) ||
	    (wr->flags & ~(uint32_t)(HDL_SEND_SIGNALED | HDL_SEND_INLINE)) != 0 ||
	    wr->num_sge != 1 || piece == NULL || piece->length == 0 || piece->length > MOVE_SHORT ||
	    (inlined ? piece->length > qp->cap.max_inline : qp->sq.max_sge == 0))
		return wr;
	const struct link *link = &engine->links[qp->link];
	struct short_run run = {.own = piece->addr,
	                        .addr = wr->u.rdma.addr,
	                        .key = wr->u.rdma.key,
	                        .length = piece->length,
	                        .access = read ? HDL_ACCESS_REMOTE_READ : HDL_ACCESS_REMOTE_WRITE};
	struct qp_facts facts;
	const struct qp_public *pub = local_direct_peer_of(link, qp);
	if (link->memory.copy_short == NULL ||
	    (!inlined && !sg_own_run(engine, qp->pd, piece, own_access(run.access), &run.own)))
		return wr;
	if (!direct_again(qp, link, pub, &run) &&
	    (!is_ready(link, qp, pub, &facts) || (facts.access & run.access) == 0 ||
	     !direct_short(qp, link, pub, &facts, &run)))
		return wr;
	qp->retries_left = qp->attr.retry_cnt;
	counter_add(&engine->counters[read ? ENGINE_BYTES_READ : ENGINE_BYTES_WRITTEN], run.length);
	/* The request is finished, but it holds a place in the queue until its completion is
	 * polled, as others do. */
	bool tell = (wr->flags & HDL_SEND_SIGNALED) != 0 || qp->signal_all;
	reclaim_note_send(wq_at(&qp->sq, qp->next), qp->send_cq, tell);
	wq_posted(&qp->sq);
	qp->next++;
	wq_release_to(&qp->sq, qp->next);
	if (tell)
		op_tell_sent(engine, qp, wr->wr_id, (uint8_t)wr->opcode, run.length);
	return wr->next;
}

enum step local_direct(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	struct link *link = &engine->links[qp->link];
	bool atomic = wqe->opcode == HDL_OP_COMPARE_SWAP || wqe->opcode == HDL_OP_FETCH_ADD;
	if (link->memory.copy_short == NULL)
		return STEP_BY_TARGET;
	/* An earlier send may still be refused, and then this request must not have executed. */
	if (qp->unanswered > 0)
		local_look(engine, qp);
	if (qp->unanswered > 0) {
		/* The target has to see the immediate data in any case, and it can copy the bytes
		 * in order. To wait for its answer would be a round trip for each request. */
		if (wqe->opcode == HDL_OP_WRITE_IMM)
			return STEP_BY_TARGET;
		if (engine->by_application)
			engine_activate(engine,
			                qp); /* the application calls again, and we look again */
		return STEP_WAIT;
	}
	struct qp_facts facts;
	const struct qp_public *pub = local_direct_peer_of(link, qp);
	if (!is_ready(link, qp, pub, &facts)) {
		enum xrc_target target = xrc_facts(link, qp, wqe, &facts);
		if (target != XRC_READY)
			return target == XRC_NO_QUEUE ? STEP_BY_TARGET
			                              : local_not_ready(engine, qp, wqe);
	}
	qp->retries_left = qp->attr.retry_cnt;
	uint8_t access = needed_access(wqe->opcode);
	if ((facts.access & access) != access) {
		refused_by_target(engine, qp, wqe, HDL_DETAIL_NONE);
		return STEP_NEXT;
	}
	/* A length of zero touches nothing and needs no key (IBTA C9-88). */
	if (wqe->length == 0 && !atomic) {
		if (wqe->opcode == HDL_OP_WRITE_IMM) {
			wqe->marks |= WQE_PREPARED;
			return STEP_BY_TARGET;
		}
		request_finish(wqe, HDL_WC_SUCCESS, HDL_DETAIL_NONE);
		return STEP_NEXT;
	}
	if (!atomic && direct_one_run(engine, qp, wqe, link, pub, &facts, access))
		return direct_done(engine, wqe);
	struct hdl_sge piece = {
	        .addr = wqe->u.rdma.addr, .length = wqe->length, .key = wqe->u.rdma.key};
	struct sg remote = {.table = &link->peer_table,
	                    .guard = link->guard,
	                    .pieces = &piece,
	                    .count = 1,
	                    .pd = facts.pd,
	                    .qpn = qp->attr.dest_qpn,
	                    .access = access,
	                    .side = TPT_REMOTE,
	                    .windows_only = facts.windows_only,
	                    .untouchable = true,
	                    .watch = pub,
	                    .watched = facts.word};
	return atomic ? direct_atomic(engine, qp, wqe, &remote)
	              : direct_copy(engine, qp, wqe, &remote);
}
