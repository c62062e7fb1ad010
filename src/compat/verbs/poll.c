/* Polling: ibv_poll_cq(), and start_poll, next_poll and end_poll of struct ibv_cq_ex. */
#include "compat/compat.h"

#define SAME(ibv_field, hdl_field)                                                   \
	(offsetof(struct ibv_wc, ibv_field) == offsetof(struct hdl_wc, hdl_field) && \
	 sizeof(((struct ibv_wc *)0)->ibv_field) == sizeof(((struct hdl_wc *)0)->hdl_field))

_Static_assert(sizeof(struct ibv_wc) == sizeof(struct hdl_wc) && SAME(wr_id, wr_id) &&
                       SAME(status, status) && SAME(opcode, opcode) &&
                       SAME(vendor_err, vendor_err) && SAME(byte_len, byte_len) &&
                       SAME(imm_data, imm) && SAME(qp_num, qpn) && SAME(src_qp, src_qpn) &&
                       SAME(wc_flags, flags) && SAME(pkey_index, pkey_index) && SAME(slid, slid) &&
                       SAME(sl, sl) && SAME(dlid_path_bits, dlid_path_bits),
               "a completion is the same on both sides");
_Static_assert((int)HDL_WC_SUCCESS == (int)IBV_WC_SUCCESS &&
                       (int)HDL_WC_LOC_LEN_ERR == (int)IBV_WC_LOC_LEN_ERR &&
                       (int)HDL_WC_LOC_QP_OP_ERR == (int)IBV_WC_LOC_QP_OP_ERR &&
                       (int)HDL_WC_LOC_PROT_ERR == (int)IBV_WC_LOC_PROT_ERR &&
                       (int)HDL_WC_WR_FLUSH_ERR == (int)IBV_WC_WR_FLUSH_ERR &&
                       (int)HDL_WC_MEM_MGT_ERR == (int)IBV_WC_MW_BIND_ERR &&
                       (int)HDL_WC_LOC_ACCESS_ERR == (int)IBV_WC_LOC_ACCESS_ERR &&
                       (int)HDL_WC_REM_INV_REQ_ERR == (int)IBV_WC_REM_INV_REQ_ERR &&
                       (int)HDL_WC_REM_ACCESS_ERR == (int)IBV_WC_REM_ACCESS_ERR &&
                       (int)HDL_WC_REM_OP_ERR == (int)IBV_WC_REM_OP_ERR &&
                       (int)HDL_WC_RETRY_EXC_ERR == (int)IBV_WC_RETRY_EXC_ERR &&
                       (int)HDL_WC_RNR_RETRY_EXC_ERR == (int)IBV_WC_RNR_RETRY_EXC_ERR &&
                       (int)HDL_WC_FATAL_ERR == (int)IBV_WC_FATAL_ERR,
               "statuses have the same numbers");
_Static_assert((int)HDL_WC_SEND == (int)IBV_WC_SEND &&
                       (int)HDL_WC_WRITE == (int)IBV_WC_RDMA_WRITE &&
                       (int)HDL_WC_READ == (int)IBV_WC_RDMA_READ &&
                       (int)HDL_WC_COMPARE_SWAP == (int)IBV_WC_COMP_SWAP &&
                       (int)HDL_WC_FETCH_ADD == (int)IBV_WC_FETCH_ADD &&
                       (int)HDL_WC_BIND == (int)IBV_WC_BIND_MW &&
                       (int)HDL_WC_INVALIDATE == (int)IBV_WC_LOCAL_INV &&
                       (int)HDL_WC_RECV == (int)IBV_WC_RECV &&
                       (int)HDL_WC_RECV_WRITE_IMM == (int)IBV_WC_RECV_RDMA_WITH_IMM &&
                       (int)HDL_WC_GRH == (int)IBV_WC_GRH &&
                       (int)HDL_WC_WITH_IMM == (int)IBV_WC_WITH_IMM &&
                       (int)HDL_WC_WITH_INVALIDATE == (int)IBV_WC_WITH_INV,
               "so have opcodes and flags");

int compat_poll_cq(struct ibv_cq *ibv, int count, struct ibv_wc *wc)
{
	return hdl_cq_poll(compat_cq(ibv)->hdl, (struct hdl_wc *)(void *)wc, count);
}

/* --- struct ibv_cq_ex --- */

static struct compat_cq *verbs_poll_of(struct ibv_cq_ex *cq)
{
	return (struct compat_cq *)cq;
}

/* Take the next completion; ENOENT if there is none. */
static int verbs_poll_take(struct compat_cq *cq)
{
	int got = hdl_cq_poll(cq->hdl, &cq->current, 1);
	if (got <= 0)
		return got == 0 ? ENOENT : -got;
	cq->ibv.wr_id = cq->current.wr_id;
	cq->ibv.status = (enum ibv_wc_status)cq->current.status;
	return 0;
}

static int start_poll(struct ibv_cq_ex *ibv, struct ibv_poll_cq_attr *attr)
{
	struct compat_cq *cq = verbs_poll_of(ibv);
	if (attr->comp_mask != 0)
		return EINVAL;
	if (!cq->single_threaded)
		pthread_mutex_lock(&cq->poll_lock);
	int error = verbs_poll_take(cq);
	/* The program calls end_poll only after a success. */
	if (error != 0 && !cq->single_threaded)
		pthread_mutex_unlock(&cq->poll_lock);
	return error;
}

static int next_poll(struct ibv_cq_ex *ibv)
{
	return verbs_poll_take(verbs_poll_of(ibv));
}

static void end_poll(struct ibv_cq_ex *ibv)
{
	struct compat_cq *cq = verbs_poll_of(ibv);
	if (!cq->single_threaded)
		pthread_mutex_unlock(&cq->poll_lock);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *cq)
{
	return (enum ibv_wc_opcode)verbs_poll_of(cq)->current.opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *cq)
{
	return verbs_poll_of(cq)->current.vendor_err;
}

static uint32_t read_byte_len(struct ibv_cq_ex *cq)
{
	return verbs_poll_of(cq)->current.byte_len;
}

static __be32 read_imm_data(struct ibv_cq_ex *cq)
{
	return verbs_poll_of(cq)->current.imm;
}

static uint32_t read_qp_num(struct ibv_cq_ex *cq)
{
	return verbs_poll_of(cq)->current.qpn;
}

static uint32_t read_src_qp(struct ibv_cq_ex *cq)
{
	return verbs_poll_of(cq)->current.src_qpn;
}

static unsigned int read_wc_flags(struct ibv_cq_ex *cq)
{
	return verbs_poll_of(cq)->current.flags;
}

static uint32_t read_slid(struct ibv_cq_ex *cq)
{
	return verbs_poll_of(cq)->current.slid;
}

static uint8_t read_sl(struct ibv_cq_ex *cq)
{
	return verbs_poll_of(cq)->current.sl;
}

static uint8_t read_dlid_path_bits(struct ibv_cq_ex *cq)
{
	return verbs_poll_of(cq)->current.dlid_path_bits;
}

void compat_poll_calls(struct compat_cq *cq, uint64_t wc_flags)
{
	struct ibv_cq_ex *ibv = &cq->ibv;
	ibv->start_poll = start_poll;
	ibv->next_poll = next_poll;
	ibv->end_poll = end_poll;
	ibv->read_opcode = read_opcode;
	ibv->read_vendor_err = read_vendor_err;
	ibv->read_wc_flags = read_wc_flags;
	if (wc_flags & IBV_WC_EX_WITH_BYTE_LEN)
		ibv->read_byte_len = read_byte_len;
	if (wc_flags & IBV_WC_EX_WITH_IMM)
		ibv->read_imm_data = read_imm_data;
	if (wc_flags & IBV_WC_EX_WITH_QP_NUM)
		ibv->read_qp_num = read_qp_num;
	if (wc_flags & IBV_WC_EX_WITH_SRC_QP)
		ibv->read_src_qp = read_src_qp;
	if (wc_flags & IBV_WC_EX_WITH_SLID)
		ibv->read_slid = read_slid;
	if (wc_flags & IBV_WC_EX_WITH_SL)
		ibv->read_sl = read_sl;
	if (wc_flags & IBV_WC_EX_WITH_DLID_PATH_BITS)
		ibv->read_dlid_path_bits = read_dlid_path_bits;
}
