/* Posting: ibv_post_send(), ibv_post_recv(), ibv_post_srq_recv(). Requests have the same layout on
 * both sides and are passed on as they are. Requests that name an object of ours (an address
 * handle, a window) are translated one by one. */
#include "compat/compat.h"

_Static_assert(sizeof(struct ibv_sge) == sizeof(struct hdl_sge) &&
                       offsetof(struct ibv_sge, addr) == offsetof(struct hdl_sge, addr) &&
                       offsetof(struct ibv_sge, length) == offsetof(struct hdl_sge, length) &&
                       offsetof(struct ibv_sge, lkey) == offsetof(struct hdl_sge, key),
               "same layout of a scatter/gather entry");

#define SAME(ibv, ibv_field, hdl, hdl_field)                                   \
	(offsetof(struct ibv, ibv_field) == offsetof(struct hdl, hdl_field) && \
	 sizeof(((struct ibv *)0)->ibv_field) == sizeof(((struct hdl *)0)->hdl_field))

_Static_assert(SAME(ibv_send_wr, wr_id, hdl_send_wr, wr_id) &&
                       SAME(ibv_send_wr, next, hdl_send_wr, next) &&
                       SAME(ibv_send_wr, sg_list, hdl_send_wr, sg_list) &&
                       SAME(ibv_send_wr, num_sge, hdl_send_wr, num_sge) &&
                       SAME(ibv_send_wr, opcode, hdl_send_wr, opcode) &&
                       SAME(ibv_send_wr, send_flags, hdl_send_wr, flags) &&
                       SAME(ibv_send_wr, imm_data, hdl_send_wr, imm) &&
                       SAME(ibv_send_wr, invalidate_rkey, hdl_send_wr, invalidate_key) &&
                       SAME(ibv_send_wr, wr.rdma.remote_addr, hdl_send_wr, u.rdma.addr) &&
                       SAME(ibv_send_wr, wr.rdma.rkey, hdl_send_wr, u.rdma.key) &&
                       SAME(ibv_send_wr, wr.atomic.remote_addr, hdl_send_wr, u.atomic.addr) &&
                       SAME(ibv_send_wr, wr.atomic.compare_add, hdl_send_wr,
                            u.atomic.compare_add) &&
                       SAME(ibv_send_wr, wr.atomic.swap, hdl_send_wr, u.atomic.swap) &&
                       SAME(ibv_send_wr, wr.atomic.rkey, hdl_send_wr, u.atomic.key) &&
                       SAME(ibv_send_wr, qp_type.xrc.remote_srqn, hdl_send_wr, remote_srq),
               "same layout of a send request");
_Static_assert(SAME(ibv_recv_wr, wr_id, hdl_recv_wr, wr_id) &&
                       SAME(ibv_recv_wr, next, hdl_recv_wr, next) &&
                       SAME(ibv_recv_wr, sg_list, hdl_recv_wr, sg_list) &&
                       SAME(ibv_recv_wr, num_sge, hdl_recv_wr, num_sge) &&
                       sizeof(struct ibv_recv_wr) == sizeof(struct hdl_recv_wr),
               "same layout of a receive request");
_Static_assert((int)IBV_WR_RDMA_WRITE == (int)HDL_OP_WRITE &&
                       (int)IBV_WR_RDMA_WRITE_WITH_IMM == (int)HDL_OP_WRITE_IMM &&
                       (int)IBV_WR_SEND == (int)HDL_OP_SEND &&
                       (int)IBV_WR_SEND_WITH_IMM == (int)HDL_OP_SEND_IMM &&
                       (int)IBV_WR_RDMA_READ == (int)HDL_OP_READ &&
                       (int)IBV_WR_ATOMIC_CMP_AND_SWP == (int)HDL_OP_COMPARE_SWAP &&
                       (int)IBV_WR_ATOMIC_FETCH_AND_ADD == (int)HDL_OP_FETCH_ADD &&
                       (int)IBV_WR_LOCAL_INV == (int)HDL_OP_INVALIDATE &&
                       (int)IBV_WR_BIND_MW == (int)HDL_OP_BIND &&
                       (int)IBV_WR_SEND_WITH_INV == (int)HDL_OP_SEND_INVALIDATE &&
                       (int)IBV_SEND_FENCE == (int)HDL_SEND_FENCE &&
                       (int)IBV_SEND_SIGNALED == (int)HDL_SEND_SIGNALED &&
                       (int)IBV_SEND_SOLICITED == (int)HDL_SEND_SOLICITED &&
                       (int)IBV_SEND_INLINE == (int)HDL_SEND_INLINE,
               "same numbers in it");

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

int compat_bind(struct hdl_send_wr *to, struct ibv_mw *mw, uint32_t rkey,
                const struct ibv_mw_bind_info *info)
{
	const unsigned remote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
	                        IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED;
	/* Programs ask for local write as well, but local accesses do not go through windows. */
	if (mw == NULL || (info->mw_access_flags & ~(remote | IBV_ACCESS_LOCAL_WRITE)) != 0)
		return compat_refuse(EINVAL,
		                     "a bind: the window is NULL, or the rights 0x%x are "
		                     "not for a window",
		                     info->mw_access_flags);
	/* A bind of length 0 unbinds the window (IBTA section 10.6.7.2). */
	struct ibv_mr *mr = info->length > 0 ? info->mr : NULL;
	to->bind.mw = compat_mw(mw)->hdl;
	/* The program chooses the low 8 bits of the R_Key; the others are the window's. As other
	 * adapters do, take these 8 bits of any number that is passed; the caller stores the whole
	 * key in @mw, where the program finds it. */
	to->bind.key.v = (hdl_mw_key(to->bind.mw).v & ~0xffu) | (rkey & 0xffu);
	to->bind.bind = (struct hdl_bind){.mr = mr != NULL ? compat_mr(mr)->hdl : NULL,
	                                  .addr = info->addr,
	                                  .length = info->length,
	                                  .access = compat_access(info->mw_access_flags & remote)};
	return 0;
}

/* Can @wr be passed on as it is? The opcodes after HDL_OP_SEND_INVALIDATE differ between the two
 * sides. */
static bool same(const struct ibv_send_wr *wr)
{
	return (unsigned)wr->opcode <= IBV_WR_SEND_WITH_INV && wr->opcode != IBV_WR_BIND_MW;
}

/* Post @wr alone, as it is or translated. */
static int verbs_post_one(const struct compat_qp *qp, const struct ibv_send_wr *wr)
{
	struct hdl_send_wr one = {.wr_id = wr->wr_id,
	                          .sg_list = (const struct hdl_sge *)(const void *)wr->sg_list,
	                          .num_sge = (uint32_t)wr->num_sge,
	                          .opcode = wr->opcode,
	                          .flags = wr->send_flags,
	                          .imm = wr->imm_data};
	if ((unsigned)wr->opcode > IBV_WR_SEND_WITH_INV)
		return compat_refuse(EINVAL,
		                     "ibv_post_send: queue pair 0x%06x: the request with wr_id "
		                     "0x%llx has the opcode %d, which does not exist here",
		                     qp->ibv.qp_base.qp_num, (unsigned long long)wr->wr_id,
		                     (int)wr->opcode);
	if (wr->opcode == IBV_WR_BIND_MW) {
		int error =
		        compat_bind(&one, wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info);
		if (error != 0)
			return error;
		one.num_sge = 0;
		error = compat_post_error(hdl_post_send(qp->hdl, &one, NULL));
		if (error == 0)
			wr->bind_mw.mw->rkey = one.bind.key.v;
		return error;
	} else if (qp->ibv.qp_base.qp_type == IBV_QPT_UD) {
		if (wr->wr.ud.ah == NULL)
			return compat_refuse(EINVAL,
			                     "ibv_post_send: queue pair 0x%06x: the request with "
			                     "wr_id 0x%llx has no address handle",
			                     qp->ibv.qp_base.qp_num, (unsigned long long)wr->wr_id);
		one.u.ud.ah = compat_ah(wr->wr.ud.ah)->hdl;
		one.u.ud.qpn = wr->wr.ud.remote_qpn;
		one.u.ud.qkey = wr->wr.ud.remote_qkey;
	} else {
		memcpy(&one.u, &wr->wr, sizeof(wr->wr));
		one.remote_srq = wr->qp_type.xrc.remote_srqn;
	}
	int result = hdl_post_send(qp->hdl, &one, NULL);
	/* A datagram that is too long for the port: the error that other adapters return. */
	if (result == -HDL_EMSGSIZE && qp->ibv.qp_base.qp_type == IBV_QPT_UD)
		return EMSGSIZE;
	return compat_post_error(result);
}

/* Not inlined, to keep compat_post_send() short. */
__attribute__((noinline)) static int post_each(const struct compat_qp *qp, struct ibv_send_wr *wr,
                                               struct ibv_send_wr **bad)
{
	for (; wr != NULL; wr = wr->next) {
		int error = verbs_post_one(qp, wr);
		if (error != 0) {
			*bad = wr;
			return error;
		}
	}
	return 0;
}

int compat_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	const struct compat_qp *qp = compat_qp(ibv);
	const struct hdl_send_wr *list = (const struct hdl_send_wr *)(const void *)wr,
	                         *refused = list;
	if (qp->ibv.qp_base.qp_type == IBV_QPT_UD)
		return post_each(qp, wr, bad);
	for (const struct ibv_send_wr *at = wr; at != NULL; at = at->next)
		if (!same(at))
			return post_each(qp, wr, bad);
	int result = hdl_post_send(qp->hdl, list, &refused);
	if (result == 0)
		return 0;
	*bad = (struct ibv_send_wr *)(uintptr_t)refused;
	return compat_post_error(result);
}

/* For both kinds of receive queue: exactly one of @qp and @srq is not NULL. */
static int post_recv(struct hdl_qp *qp, struct hdl_srq *srq, struct ibv_recv_wr *wr,
                     struct ibv_recv_wr **bad)
{
	const struct hdl_recv_wr *list = (const struct hdl_recv_wr *)(const void *)wr,
	                         *refused = list;
	int result =
	        qp != NULL ? hdl_post_recv(qp, list, &refused) : hdl_srq_post(srq, list, &refused);
	if (result == 0)
		return 0;
	*bad = (struct ibv_recv_wr *)(uintptr_t)refused;
	return compat_post_error(result);
}

int compat_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return post_recv(compat_qp(qp)->hdl, NULL, wr, bad);
}

int compat_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return post_recv(NULL, compat_srq(srq)->hdl, wr, bad);
}
