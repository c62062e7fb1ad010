/* Taking completions: ibv_poll_cq(), and the start_poll, next_poll, end_poll of struct ibv_cq_ex. */
#include "compat/compat.h"

static const uint8_t statuses[HDL_WC_STATUS_COUNT] = {
        [HDL_WC_SUCCESS] = IBV_WC_SUCCESS,
        [HDL_WC_LOC_LEN_ERR] = IBV_WC_LOC_LEN_ERR,
        [HDL_WC_LOC_QP_OP_ERR] = IBV_WC_LOC_QP_OP_ERR,
        [HDL_WC_LOC_PROT_ERR] = IBV_WC_LOC_PROT_ERR,
        [HDL_WC_WR_FLUSH_ERR] = IBV_WC_WR_FLUSH_ERR,
        [HDL_WC_MEM_MGT_ERR] = IBV_WC_MW_BIND_ERR,
        [HDL_WC_LOC_ACCESS_ERR] = IBV_WC_LOC_ACCESS_ERR,
        [HDL_WC_REM_INV_REQ_ERR] = IBV_WC_REM_INV_REQ_ERR,
        [HDL_WC_REM_ACCESS_ERR] = IBV_WC_REM_ACCESS_ERR,
        [HDL_WC_REM_OP_ERR] = IBV_WC_REM_OP_ERR,
        [HDL_WC_RETRY_EXC_ERR] = IBV_WC_RETRY_EXC_ERR,
        [HDL_WC_RNR_RETRY_EXC_ERR] = IBV_WC_RNR_RETRY_EXC_ERR,
        [HDL_WC_FATAL_ERR] = IBV_WC_FATAL_ERR,
};

/* The numbers agree, those of a receive too, so that nothing is looked up for each completion. */
_Static_assert((int)HDL_WC_SEND == (int)IBV_WC_SEND &&
                       (int)HDL_WC_WRITE == (int)IBV_WC_RDMA_WRITE &&
                       (int)HDL_WC_READ == (int)IBV_WC_RDMA_READ &&
                       (int)HDL_WC_COMPARE_SWAP == (int)IBV_WC_COMP_SWAP &&
                       (int)HDL_WC_FETCH_ADD == (int)IBV_WC_FETCH_ADD &&
                       (int)HDL_WC_BIND == (int)IBV_WC_BIND_MW &&
                       (int)HDL_WC_INVALIDATE == (int)IBV_WC_LOCAL_INV &&
                       (int)HDL_WC_RECV == (int)IBV_WC_RECV &&
                       (int)HDL_WC_RECV_WRITE_IMM == (int)IBV_WC_RECV_RDMA_WITH_IMM,
               "opcodes of completions are numbered alike");

static enum ibv_wc_status status_of(const struct hdl_wc *wc)
{
	return wc->status < HDL_WC_STATUS_COUNT ? (enum ibv_wc_status)statuses[wc->status]
	                                        : IBV_WC_GENERAL_ERR;
}

static unsigned flags_of(const struct hdl_wc *wc)
{
	return (wc->flags & HDL_WC_WITH_IMM ? (unsigned)IBV_WC_WITH_IMM : 0u) |
	       (wc->flags & HDL_WC_WITH_INVALIDATE ? (unsigned)IBV_WC_WITH_INV : 0u) |
	       (wc->flags & HDL_WC_GRH ? (unsigned)IBV_WC_GRH : 0u);
}

int compat_poll_cq(struct ibv_cq *ibv, int count, struct ibv_wc *wc)
{
	struct hdl_cq *cq = compat_cq(ibv)->hdl;
	struct hdl_wc batch[COMPAT_BATCH];
	int done = 0;
	while (done < count) {
		int want = count - done < COMPAT_BATCH ? count - done : COMPAT_BATCH;
		int got = hdl_cq_poll(cq, batch, want);
		if (got < 0)
			return done > 0 ? done : got;
		for (int i = 0; i < got; i++) {
			const struct hdl_wc *from = &batch[i];
			struct ibv_wc *to = &wc[done + i];
			to->wr_id = from->wr_id;
			to->status = status_of(from);
			to->opcode = (enum ibv_wc_opcode)from->opcode;
			to->vendor_err = from->vendor_err;
			to->byte_len = from->byte_len;
			to->imm_data = from->imm;
			to->qp_num = from->qpn;
			to->src_qp = from->src_qpn;
			to->wc_flags = flags_of(from);
			to->pkey_index = 0;
			to->slid = from->slid;
			to->sl = from->sl;
			to->dlid_path_bits = 0;
		}
		done += got;
		if (got < want)
			break;
	}
	return done;
}

/* --- struct ibv_cq_ex --- */

static struct compat_cq *of(struct ibv_cq_ex *cq)
{
	return (struct compat_cq *)cq;
}

/* Take the next completion; ENOENT when there is none. */
static int take(struct compat_cq *cq)
{
	int got = hdl_cq_poll(cq->hdl, &cq->current, 1);
	if (got <= 0)
		return got == 0 ? ENOENT : -got;
	cq->ibv.wr_id = cq->current.wr_id;
	cq->ibv.status = status_of(&cq->current);
	return 0;
}

static int start_poll(struct ibv_cq_ex *ibv, struct ibv_poll_cq_attr *attr)
{
	struct compat_cq *cq = of(ibv);
	if (attr->comp_mask != 0)
		return EINVAL;
	if (!cq->single_threaded)
		pthread_mutex_lock(&cq->poll_lock);
	int error = take(cq);
	/* end_poll follows a success only. */
	if (error != 0 && !cq->single_threaded)
		pthread_mutex_unlock(&cq->poll_lock);
	return error;
}

static int next_poll(struct ibv_cq_ex *ibv)
{
	return take(of(ibv));
}

static void end_poll(struct ibv_cq_ex *ibv)
{
	struct compat_cq *cq = of(ibv);
	if (!cq->single_threaded)
		pthread_mutex_unlock(&cq->poll_lock);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *cq)
{
	return (enum ibv_wc_opcode)of(cq)->current.opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *cq)
{
	return of(cq)->current.vendor_err;
}

static uint32_t read_byte_len(struct ibv_cq_ex *cq)
{
	return of(cq)->current.byte_len;
}

static __be32 read_imm_data(struct ibv_cq_ex *cq)
{
	return of(cq)->current.imm;
}

static uint32_t read_qp_num(struct ibv_cq_ex *cq)
{
	return of(cq)->current.qpn;
}

static uint32_t read_src_qp(struct ibv_cq_ex *cq)
{
	return of(cq)->current.src_qpn;
}

static unsigned int read_wc_flags(struct ibv_cq_ex *cq)
{
	return flags_of(&of(cq)->current);
}

static uint32_t read_slid(struct ibv_cq_ex *cq)
{
	return of(cq)->current.slid;
}

static uint8_t read_sl(struct ibv_cq_ex *cq)
{
	return of(cq)->current.sl;
}

static uint8_t read_dlid_path_bits(struct ibv_cq_ex *cq)
{
	(void)cq;
	return 0;
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
