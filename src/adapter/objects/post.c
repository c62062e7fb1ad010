/* Posting work: requests are checked and copied into the queue, and the adapter is driven. */
#include <string.h>

#include "adapter/adapter.h"
#include "queue/reclaim.h"
#include "transport/sg.h"

#define TYPE(type) (1u << (type))
#define RELIABLE   (TYPE(HDL_QP_RC) | TYPE(HDL_QP_XRC_INI))
#define DATAGRAM   TYPE(HDL_QP_RD)
#define CONNECTED  (RELIABLE | TYPE(HDL_QP_UC))
#define EVERY      (CONNECTED | TYPE(HDL_QP_UD) | DATAGRAM)
#define WINDOW_RIGHTS                                                                  \
	(HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE | HDL_ACCESS_REMOTE_ATOMIC | \
	 HDL_ACCESS_ONE_TOUCH | HDL_ACCESS_ZERO_BASED)

/* Which types of queue pair support an operation, and whether it carries data (and so may be
 * inline). */
static const struct {
	uint32_t types;
	bool sends_data;
	bool message; /* goes to the peer */
} operations[HDL_OP_COUNT] = {
        [HDL_OP_SEND] = {EVERY | TYPE(HDL_QP_RAW), true, true},
        [HDL_OP_SEND_IMM] = {EVERY, true, true},
        [HDL_OP_SEND_INVALIDATE] = {CONNECTED, true, true},
        [HDL_OP_WRITE] = {CONNECTED | DATAGRAM, true, true},
        [HDL_OP_WRITE_IMM] = {CONNECTED | DATAGRAM, true, true},
        [HDL_OP_READ] = {RELIABLE | DATAGRAM, false, true},
        [HDL_OP_COMPARE_SWAP] = {RELIABLE | DATAGRAM, false, true},
        [HDL_OP_FETCH_ADD] = {RELIABLE | DATAGRAM, false, true},
        [HDL_OP_BIND] = {CONNECTED | DATAGRAM, false, false},
        [HDL_OP_INVALIDATE] = {CONNECTED | DATAGRAM, false, false},
        [HDL_OP_REGISTER] = {CONNECTED | DATAGRAM, false, false},
        [HDL_OP_REGISTER_SEND] = {CONNECTED, true, true},
        [HDL_OP_DELAY] = {EVERY | TYPE(HDL_QP_RAW), false, false},
};

static int fill_bind(const struct hdl_qp *qp, struct wqe_send *wqe, const struct hdl_send_wr *wr)
{
	const struct hdl_mw *mw = wr->bind.mw;
	const struct hdl_bind *bind = &wr->bind.bind;
	if (mw == NULL || mw->magic != MAGIC_MW || mw->pd->adapter != qp->pd->adapter ||
	    (bind->access & ~(uint32_t)WINDOW_RIGHTS) != 0 ||
	    (bind->mr == NULL && bind->length > 0))
		return -HDL_EINVAL;
	if (bind->mr != NULL &&
	    (bind->mr->magic != MAGIC_MR || bind->mr->pd->adapter != qp->pd->adapter))
		return -HDL_EINVAL;
	/* The key of the window: for type 1 it is chosen as in hdl_mw_bind(), for type 2 the caller
	 * chooses the instance. */
	if (wr->bind.key.v >> TPT_INSTANCE_BITS != mw->key.v >> TPT_INSTANCE_BITS)
		return -HDL_EINVAL;
	wqe->u.bind.window = wr->bind.key;
	wqe->u.bind.region = bind->mr != NULL ? hdl_mr_key(bind->mr) : (struct hdl_key){0};
	wqe->u.bind.access = bind->access;
	wqe->u.bind.type = mw->type;
	wqe->u.bind.addr = bind->addr;
	wqe->u.bind.length = bind->length;
	return 0;
}

/* Allocate contiguous room for @count page addresses in the list store; NULL: none. Under
 * sq.post_lock. */
static uint64_t *take_list(struct qp *qp, uint32_t count, uint32_t *end)
{
	uint32_t head = atomic_load_explicit(&qp->lists_head, memory_order_acquire);
	uint32_t at = qp->lists_tail % qp->lists_size;
	uint32_t skip = at + count > qp->lists_size ? qp->lists_size - at : 0;
	if (qp->lists_tail - head + skip + count > qp->lists_size)
		return NULL;
	*end = qp->lists_tail + skip + count;
	return qp->lists + (skip != 0 ? 0 : at);
}

static int fill_register(struct hdl_qp *qp, struct wqe_send *wqe, const struct hdl_send_wr *wr)
{
	const struct hdl_mr *mr = wr->reg.mr;
	const struct hdl_register *reg = &wr->reg.reg;
	if (!qp->qp.register_on_send)
		return -HDL_ENOTSUP;
	if (mr == NULL || mr->magic != MAGIC_MR || mr->pd->adapter != qp->pd->adapter ||
	    mr->max_pages == 0 || reg->pages == NULL || reg->num_pages == 0 ||
	    (reg->access & ~HDL_ACCESS_ALL) != 0 ||
	    wr->reg.key.v >> TPT_INSTANCE_BITS != mr->key.v >> TPT_INSTANCE_BITS)
		return -HDL_EINVAL;
	if (reg->num_pages > mr->max_pages)
		return -HDL_EMSGSIZE;
	uint64_t *pages = take_list(&qp->qp, reg->num_pages, &wqe->list_end);
	if (pages == NULL)
		return -HDL_ENOMEM;
	memcpy(pages, reg->pages, reg->num_pages * sizeof(*pages));
	wqe->u.reg.key = wr->reg.key;
	wqe->u.reg.access = reg->access;
	wqe->u.reg.iova = reg->iova;
	wqe->u.reg.length = reg->length;
	wqe->u.reg.first_offset = reg->first_offset;
	wqe->u.reg.pages = pages;
	wqe->u.reg.num_pages = reg->num_pages;
	wqe->u.reg.page_shift = reg->page_shift;
	return 0;
}

static int fill_datagram(const struct hdl_qp *qp, struct wqe_send *wqe,
                         const struct hdl_send_wr *wr)
{
	struct hdl_ah *ah = wr->u.ud.ah;
	if (ah == NULL || ah->magic != MAGIC_AH || ah->pd != qp->pd || wr->u.ud.qpn > 0xffffff ||
	    ah->attr.plain != (qp->qp.udp != NULL))
		return -HDL_EINVAL;
	struct ah_route route = {.link = LINK_NONE};
	if (qp->qp.udp == NULL) /* plain UDP has no other way than its socket */
		route = ah_find(ah, wr->u.ud.qpn);
	wqe->u.ud.link = route.link;
	wqe->u.ud.epoch = route.epoch;
	wqe->u.ud.qpn = ah->grouped ? MULTICAST_QPN : wr->u.ud.qpn;
	/* A Q_Key with its high bit set stands for the queue pair's own (IBTA section 10.2.5). */
	wqe->u.ud.qkey = wr->u.ud.qkey & 0x80000000u ? qp->qp.attr.qkey : wr->u.ud.qkey;
	wqe->u.ud.flow_label = ah->attr.flow_label;
	wqe->u.ud.sl = ah->attr.sl;
	wqe->u.ud.traffic_class = ah->attr.traffic_class;
	wqe->u.ud.hop_limit = ah->attr.hop_limit;
	wqe->u.ud.is_global = ah->attr.is_global;
	wqe->u.ud.sgid_index = ah->attr.sgid_index;
	wqe->u.ud.src_path_bits = ah->attr.src_path_bits;
	wqe->u.ud.dlid = ah->attr.dlid;
	memcpy(wqe->u.ud.dgid, ah->attr.dgid.raw, 16);
	memcpy(wqe->u.ud.dmac, ah->attr.dmac, sizeof(wqe->u.ud.dmac));
	return 0;
}

/* Fill in the fields of the rare queue pair types. */
static int fill_extended(const struct hdl_qp *qp, struct wqe_send *wqe,
                         const struct hdl_send_wr *wr)
{
	if (qp->qp.type != HDL_QP_RD) {
		wqe->remote_srq = wr->remote_srq;
		return 0;
	}
	if (!operations[wr->opcode].message)
		return 0;
	const struct hdl_eec *eec = wr->rd.eec;
	if (eec == NULL || eec->magic != MAGIC_EEC || eec->rdd != qp->init.rdd ||
	    wr->rd.qpn > 0xffffff)
		return -HDL_EINVAL;
	wqe->u.rd.eecn = eec->qp.qpn;
	wqe->u.rd.qpn = wr->rd.qpn;
	wqe->u.rd.qkey = wr->rd.qkey & 0x80000000u ? qp->qp.attr.qkey : wr->rd.qkey;
	return 0;
}

/* Fill in the fields of the operation. */
static int fill_operation(struct hdl_qp *qp, struct wqe_send *wqe, const struct hdl_send_wr *wr)
{
	switch (wr->opcode) {
	case HDL_OP_SEND:
	case HDL_OP_SEND_IMM:
		return qp->qp.type == HDL_QP_UD ? fill_datagram(qp, wqe, wr) : 0;
	case HDL_OP_SEND_INVALIDATE:
	case HDL_OP_INVALIDATE:
		wqe->imm = wr->invalidate_key.v;
		return 0;
	case HDL_OP_WRITE:
	case HDL_OP_WRITE_IMM:
	case HDL_OP_READ:
		wqe->u.rdma.addr = wr->u.rdma.addr;
		wqe->u.rdma.key = wr->u.rdma.key;
		return 0;
	case HDL_OP_COMPARE_SWAP:
	case HDL_OP_FETCH_ADD:
		wqe->u.atomic.addr = wr->u.atomic.addr;
		wqe->u.atomic.key = wr->u.atomic.key;
		wqe->u.atomic.compare_add = wr->u.atomic.compare_add;
		wqe->u.atomic.swap = wr->u.atomic.swap;
		return wqe->length == 8 ? 0 : -HDL_EINVAL;
	case HDL_OP_BIND:
		return fill_bind(qp, wqe, wr);
	case HDL_OP_REGISTER:
	case HDL_OP_REGISTER_SEND:
		return fill_register(qp, wqe, wr);
	default:
		wqe->u.delay.ns = wr->u.delay.ns;
		return 0;
	}
}

static int judge_send(const struct hdl_qp *qp, const struct hdl_send_wr *wr, uint64_t length)
{
	const uint32_t known =
	        HDL_SEND_SIGNALED | HDL_SEND_SOLICITED | HDL_SEND_INLINE | HDL_SEND_FENCE;
	if (wr->opcode >= HDL_OP_COUNT || (wr->flags & ~known) != 0 ||
	    (wr->num_sge > 0 && wr->sg_list == NULL))
		return -HDL_EINVAL;
	if ((operations[wr->opcode].types & TYPE(qp->qp.type)) == 0)
		return -HDL_ENOTSUP;
	if (wr->flags & HDL_SEND_INLINE) {
		if (!operations[wr->opcode].sends_data)
			return -HDL_EINVAL;
		if (length > qp->qp.cap.max_inline)
			return -HDL_EMSGSIZE;
	}
	if (length > qp->qp.max_message)
		return -HDL_EMSGSIZE;
	return 0;
}

/* Copy @wr into the next element of the send queue. Under sq.post_lock. */
static int post_post_one(struct hdl_qp *qp, const struct hdl_send_wr *wr)
{
	struct wq *sq = &qp->qp.sq;
	/* Inline data may be gathered from more entries than the queue pair allows in a list. */
	if (wr->num_sge > (wr->flags & HDL_SEND_INLINE ? HDL_MAX_SGE : sq->max_sge))
		return -HDL_EMSGSIZE;
	uint64_t length = wr->sg_list != NULL ? sg_length(wr->sg_list, wr->num_sge) : 0;
	int result = judge_send(qp, wr, length);
	if (result != 0)
		return result;
	if (wq_room(sq) == 0 && reclaim_sends(sq, qp->qp.send_cq) == 0)
		return -HDL_ENOSPC;
	struct wqe_send *wqe = wq_post(sq);
	wqe_begin(wqe, wr, (uint32_t)length);
	result = fill_operation(qp, wqe, wr);
	if (result == 0 && qp->qp.type >= HDL_QP_XRC_INI)
		result = fill_extended(qp, wqe, wr);
	if (result != 0)
		return result;
	if (wr->flags & HDL_SEND_INLINE) {
		unsigned char *to = wqe_inline(wqe);
		for (uint32_t i = 0; i < wr->num_sge; i++) {
			memcpy(to, (const void *)(uintptr_t)wr->sg_list[i].addr,
			       wr->sg_list[i].length);
			to += wr->sg_list[i].length;
		}
	} else {
		for (uint32_t i = 0; i < wr->num_sge; i++)
			wqe_sge(wqe)[i] = wr->sg_list[i];
	}
	if (wr->opcode == HDL_OP_REGISTER || wr->opcode == HDL_OP_REGISTER_SEND)
		qp->qp.lists_tail = wqe->list_end;
	wq_posted(sq);
	return 0;
}

/* Find routes to processes that datagrams of the list go to for the first time, before any lock is
 * taken. */
static void prepare_datagrams(const struct hdl_send_wr *wr)
{
	for (; wr != NULL; wr = wr->next)
		if ((wr->opcode == HDL_OP_SEND || wr->opcode == HDL_OP_SEND_IMM) &&
		    wr->u.ud.ah != NULL && wr->u.ud.ah->magic == MAGIC_AH)
			ah_prepare(wr->u.ud.ah, wr->u.ud.qpn);
}

/* Post the list from *wr on; afterwards *wr is the first request that was not posted. */
static int post_list(struct hdl_qp *qp, const struct hdl_send_wr **wr)
{
	adapter_lock_sends(qp->pd->adapter, &qp->qp);
	enum hdl_qp_state state = qp_state(&qp->qp);
	int result = state == HDL_QPS_RESET || state == HDL_QPS_INIT || state == HDL_QPS_RTR
	                     ? -HDL_EPERM
	                     : 0;
	while (result == 0 && *wr != NULL) {
		result = post_post_one(qp, *wr);
		if (result == 0)
			*wr = (*wr)->next;
	}
	lock_drop(&qp->qp.sq.post_lock);
	return result;
}

/* Requests that cannot use the fast path. Kept out of hdl_post_send(), which is short. */
__attribute__((noinline)) static int post_rest(struct hdl_qp *qp, const struct hdl_send_wr *wr,
                                               const struct hdl_send_wr **bad)
{
	if (qp->qp.type == HDL_QP_UD && qp->pd->adapter->agent.on_node && qp->qp.udp == NULL)
		prepare_datagrams(wr);
	int result = post_list(qp, &wr);
	if (result == -HDL_ENOSPC) {
		/* Answers that have arrived make room, and a thread that only posts has never
		 * received them. */
		adapter_doorbell(qp->pd->adapter, &qp->qp);
		adapter_drive(qp->pd->adapter);
		result = post_list(qp, &wr);
	}
	if (result != 0) {
		why_not_posted(qp, wr, result);
		if (bad != NULL)
			*bad = wr;
	}
	adapter_touch(qp->pd->adapter);
	adapter_doorbell(qp->pd->adapter, &qp->qp);
	return result;
}

int hdl_post_send(struct hdl_qp *qp, const struct hdl_send_wr *wr, const struct hdl_send_wr **bad)
{
	if (qp == NULL || qp->magic != MAGIC_QP) {
		why_not_posted(qp, wr, -HDL_EINVAL);
		if (bad != NULL)
			*bad = wr;
		return -HDL_EINVAL;
	}
	if (wr != NULL) {
		wr = adapter_express(qp->pd->adapter, &qp->qp, wr);
		adapter_touch(qp->pd->adapter);
		if (wr == NULL)
			return 0;
	}
	return post_rest(qp, wr, bad);
}

/* Copy @wr into the next element of a receive queue, which completes in @cq (NULL: it is shared).
 * Under its post_lock. */
static int post_recv_one(struct wq *wq, const struct cq *cq, const struct hdl_recv_wr *wr)
{
	if (wr->num_sge > wq->max_sge)
		return -HDL_EMSGSIZE;
	if (wr->num_sge > 0 && wr->sg_list == NULL)
		return -HDL_EINVAL;
	if (wq_room(wq) == 0 && (cq != NULL ? reclaim_recvs(wq, cq) : reclaim_released(wq)) == 0)
		return -HDL_ENOSPC;
	struct wqe_recv *wqe = wq_post(wq);
	wqe->wr_id = wr->wr_id;
	wqe->num_sge = wr->num_sge;
	for (uint32_t i = 0; i < wr->num_sge; i++)
		wqe->sge[i] = wr->sg_list[i];
	wq_posted(wq);
	return 0;
}

/* Post the list from *wr on; afterwards *wr is the first request that was not posted. */
static int post_recv_list(struct wq *wq, const struct cq *cq, const struct hdl_recv_wr **wr)
{
	int result = 0;
	while (result == 0 && *wr != NULL) {
		result = post_recv_one(wq, cq, *wr);
		if (result == 0)
			*wr = (*wr)->next;
	}
	return result;
}

/* Without the lock: a log line may block. */
__attribute__((noinline)) static int recv_refused(struct hdl_qp *qp, const struct hdl_recv_wr *wr,
                                                  const struct hdl_recv_wr **bad, int error)
{
	why_not_received(qp, wr, error);
	if (bad != NULL)
		*bad = wr;
	return error;
}

int hdl_post_recv(struct hdl_qp *qp, const struct hdl_recv_wr *wr, const struct hdl_recv_wr **bad)
{
	if (qp == NULL || qp->magic != MAGIC_QP || qp->qp.srq != NULL)
		return recv_refused(qp, wr, bad, -HDL_EINVAL);
	int result = -HDL_EPERM;
	lock_take(&qp->qp.rq.post_lock);
	enum hdl_qp_state state = qp_state(&qp->qp);
	if (state != HDL_QPS_RESET)
		result = post_recv_list(&qp->qp.rq, qp->qp.recv_cq, &wr);
	lock_drop(&qp->qp.rq.post_lock);
	if (state == HDL_QPS_ERR) { /* flushed immediately */
		adapter_doorbell(qp->pd->adapter, &qp->qp);
	}
	return result == 0 ? 0 : recv_refused(qp, wr, bad, result);
}

int hdl_srq_post(struct hdl_srq *srq, const struct hdl_recv_wr *wr, const struct hdl_recv_wr **bad)
{
	int result = -HDL_EINVAL;
	if (srq != NULL && srq->magic == MAGIC_SRQ) {
		lock_take(&srq->srq.wq.post_lock);
		result = post_recv_list(&srq->srq.wq, NULL, &wr);
		lock_drop(&srq->srq.wq.post_lock);
	}
	if (result == 0)
		return 0;
	why_not_shared(srq, wr, result);
	if (bad != NULL)
		*bad = wr;
	return result;
}
