/* Posting: ibv_post_send(), ibv_post_recv(), ibv_post_srq_recv(). Requests are translated on the stack, COMPAT_BATCH at a
 * time; lists of pieces have the same layout on both sides and are handed down as they are. */
#include "compat/compat.h"

_Static_assert(sizeof(struct ibv_sge) == sizeof(struct hdl_sge) &&
                       offsetof(struct ibv_sge, addr) == offsetof(struct hdl_sge, addr) &&
                       offsetof(struct ibv_sge, length) == offsetof(struct hdl_sge, length) &&
                       offsetof(struct ibv_sge, lkey) == offsetof(struct hdl_sge, key),
               "a piece is the same on both sides");

static const uint8_t opcodes[] = {
        [IBV_WR_RDMA_WRITE] = HDL_OP_WRITE,
        [IBV_WR_RDMA_WRITE_WITH_IMM] = HDL_OP_WRITE_IMM,
        [IBV_WR_SEND] = HDL_OP_SEND,
        [IBV_WR_SEND_WITH_IMM] = HDL_OP_SEND_IMM,
        [IBV_WR_RDMA_READ] = HDL_OP_READ,
        [IBV_WR_ATOMIC_CMP_AND_SWP] = HDL_OP_COMPARE_SWAP,
        [IBV_WR_ATOMIC_FETCH_AND_ADD] = HDL_OP_FETCH_ADD,
        [IBV_WR_LOCAL_INV] = HDL_OP_INVALIDATE,
        [IBV_WR_BIND_MW] = HDL_OP_BIND,
        [IBV_WR_SEND_WITH_INV] = HDL_OP_SEND_INVALIDATE,
};

int compat_post_error(int result)
{
	switch (-result) {
	case 0:
		return 0;
	case HDL_ENOSPC:
	case HDL_ENOMEM:
		return ENOMEM;
	default:
		return EINVAL;
	}
}

static uint32_t flags_of(unsigned flags)
{
	return (flags & IBV_SEND_FENCE ? (uint32_t)HDL_SEND_FENCE : 0u) |
	       (flags & IBV_SEND_SIGNALED ? (uint32_t)HDL_SEND_SIGNALED : 0u) |
	       (flags & IBV_SEND_SOLICITED ? (uint32_t)HDL_SEND_SOLICITED : 0u) |
	       (flags & IBV_SEND_INLINE ? (uint32_t)HDL_SEND_INLINE : 0u);
}

int compat_bind(struct hdl_send_wr *to, struct ibv_mw *mw, uint32_t rkey,
                const struct ibv_mw_bind_info *info)
{
	const unsigned remote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
	                        IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED;
	/* Programs ask for local write too; through a window nobody writes locally. */
	if (mw == NULL || (info->mw_access_flags & ~(remote | IBV_ACCESS_LOCAL_WRITE)) != 0)
		return EINVAL;
	/* A window of no bytes is an unbound one (IBTA section 10.6.7.2). */
	struct ibv_mr *mr = info->length > 0 ? info->mr : NULL;
	to->u.bind.mw = compat_mw(mw)->hdl;
	to->u.bind.key.v = rkey;
	to->u.bind.bind =
	        (struct hdl_bind){.mr = mr != NULL ? compat_mr(mr)->hdl : NULL,
	                          .addr = info->addr,
	                          .length = info->length,
	                          .access = compat_access(info->mw_access_flags & remote)};
	return 0;
}

/* Translate one request. Only the fields that its operation uses are written. */
static int translate(const struct compat_qp *qp, const struct ibv_send_wr *from,
                     struct hdl_send_wr *to)
{
	const unsigned known =
	        IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;
	if ((unsigned)from->opcode >= sizeof(opcodes) || from->num_sge < 0 ||
	    (from->send_flags & ~known) != 0)
		return EINVAL;
	to->next = NULL;
	to->wr_id = from->wr_id;
	to->sg_list = (const struct hdl_sge *)(const void *)from->sg_list;
	to->num_sge = (uint32_t)from->num_sge;
	to->opcode = opcodes[from->opcode];
	to->flags = flags_of(from->send_flags);
	to->imm = from->imm_data;
	to->invalidate_key.v = from->invalidate_rkey;
	switch (from->opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		if (qp->ibv.qp_base.qp_type != IBV_QPT_UD)
			return 0;
		if (from->wr.ud.ah == NULL)
			return EINVAL;
		to->u.ud.ah = compat_ah(from->wr.ud.ah)->hdl;
		to->u.ud.qpn = from->wr.ud.remote_qpn;
		to->u.ud.qkey = from->wr.ud.remote_qkey;
		return 0;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
		to->u.rdma.addr = from->wr.rdma.remote_addr;
		to->u.rdma.key.v = from->wr.rdma.rkey;
		return 0;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		to->u.atomic.addr = from->wr.atomic.remote_addr;
		to->u.atomic.compare_add = from->wr.atomic.compare_add;
		to->u.atomic.swap = from->wr.atomic.swap;
		to->u.atomic.key.v = from->wr.atomic.rkey;
		return 0;
	case IBV_WR_BIND_MW:
		to->num_sge = 0;
		return compat_bind(to, from->bind_mw.mw, from->bind_mw.rkey,
		                   &from->bind_mw.bind_info);
	case IBV_WR_LOCAL_INV:
		to->num_sge = 0;
		return 0;
	default:
		return 0;
	}
}

int compat_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	const struct compat_qp *qp = compat_qp(ibv);
	struct hdl_send_wr batch[COMPAT_BATCH];
	struct ibv_send_wr *from[COMPAT_BATCH];
	while (wr != NULL) {
		int count = 0, error = 0;
		for (; wr != NULL && count < COMPAT_BATCH; wr = wr->next, count++) {
			from[count] = wr;
			error = translate(qp, wr, &batch[count]);
			if (error != 0)
				break;
			if (count > 0)
				batch[count - 1].next = &batch[count];
		}
		/* What comes before a request that is refused is posted all the same. */
		const struct hdl_send_wr *refused = NULL;
		int result = count > 0 ? hdl_post_send(qp->hdl, batch, &refused) : 0;
		if (result != 0) {
			*bad = from[refused != NULL ? refused - batch : 0];
			return compat_post_error(result);
		}
		if (error != 0) {
			*bad = wr;
			return error;
		}
	}
	return 0;
}

/* Both kinds of receive queue: exactly one of @qp and @srq is there. */
static int post_recv(struct hdl_qp *qp, struct hdl_srq *srq, struct ibv_recv_wr *wr,
                     struct ibv_recv_wr **bad)
{
	struct hdl_recv_wr batch[COMPAT_BATCH];
	struct ibv_recv_wr *from[COMPAT_BATCH];
	while (wr != NULL) {
		int count = 0;
		for (; wr != NULL && count < COMPAT_BATCH && wr->num_sge >= 0;
		     wr = wr->next, count++) {
			from[count] = wr;
			batch[count] = (struct hdl_recv_wr){
			        .wr_id = wr->wr_id,
			        .sg_list = (const struct hdl_sge *)(const void *)wr->sg_list,
			        .num_sge = (uint32_t)wr->num_sge};
			if (count > 0)
				batch[count - 1].next = &batch[count];
		}
		const struct hdl_recv_wr *refused = NULL;
		int result = 0;
		if (count > 0)
			result = qp != NULL ? hdl_post_recv(qp, batch, &refused)
			                    : hdl_srq_post(srq, batch, &refused);
		if (result != 0) {
			*bad = from[refused != NULL ? refused - batch : 0];
			return compat_post_error(result);
		}
		if (wr != NULL && wr->num_sge < 0) {
			*bad = wr;
			return EINVAL;
		}
	}
	return 0;
}

int compat_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return post_recv(compat_qp(qp)->hdl, NULL, wr, bad);
}

int compat_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return post_recv(NULL, compat_srq(srq)->hdl, wr, bad);
}
