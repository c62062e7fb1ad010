/* Two connected queue pairs. */
#include "pair.h"

#include <stdlib.h>
#include <time.h>

static void open_side(struct side *side, const struct pair_how *how, bool is_b)
{
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);
	assert_non_null(list);
	assert_true(count > 0);
	assert_string_equal(ibv_get_device_name(list[0]), "heddle0");
	side->context = ibv_open_device(list[0]);
	assert_non_null(side->context);
	ibv_free_device_list(list);
	assert_int_equal(ibv_query_gid(side->context, 1, 0, &side->gid), 0);
	side->pd = ibv_alloc_pd(side->context);
	side->channel = ibv_create_comp_channel(side->context);
	assert_non_null(side->pd);
	assert_non_null(side->channel);
	struct ibv_cq_init_attr_ex cq = {.cqe = 4 * PAIR_DEPTH,
	                                 .cq_context = side,
	                                 .channel = side->channel,
	                                 .wc_flags = IBV_WC_STANDARD_FLAGS};
	side->cq = how->cq_ex
	                   ? ibv_cq_ex_to_cq(ibv_create_cq_ex(side->context, &cq))
	                   : ibv_create_cq(side->context, 4 * PAIR_DEPTH, side, side->channel, 0);
	assert_non_null(side->cq);
	side->bytes = aligned_alloc(4096, PAIR_BYTES);
	memset(side->bytes, 0, PAIR_BYTES);
	side->mr = ibv_reg_mr(side->pd, side->bytes, PAIR_BYTES,
	                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
	                              IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
	                              IBV_ACCESS_MW_BIND);
	assert_non_null(side->mr);
	struct ibv_qp_init_attr_ex init = {
	        .send_cq = side->cq,
	        .recv_cq = side->cq,
	        .srq = is_b && how->srq != NULL ? how->srq(side->pd) : NULL,
	        .cap = {.max_send_wr = PAIR_DEPTH,
	                .max_recv_wr = PAIR_DEPTH,
	                .max_send_sge = 4,
	                .max_recv_sge = 4,
	                .max_inline_data = 128},
	        .qp_type = how->type != 0 ? how->type : IBV_QPT_RC,
	        .comp_mask =
	                IBV_QP_INIT_ATTR_PD | (how->send_ops ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0),
	        .pd = side->pd,
	        .send_ops_flags = how->send_ops,
	};
	side->qp = ibv_create_qp_ex(side->context, &init);
	assert_non_null(side->qp);
	assert_true(init.cap.max_inline_data >= 128);
}

static void modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	assert_int_equal(ibv_modify_qp(qp, attr, mask), 0);
	assert_int_equal(qp->state, attr->qp_state);
}

void pair_connect(struct side *side, const struct side *peer)
{
	enum ibv_qp_type type = side->qp->qp_type;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
	                           .port_num = 1,
	                           .qkey = PAIR_QKEY,
	                           .qp_access_flags =
	                                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
	                                   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC};
	modify(side->qp, &attr,
	       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
	               (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
	                            .path_mtu = IBV_MTU_1024,
	                            .dest_qp_num = peer->qp->qp_num,
	                            .rq_psn = 7,
	                            .max_dest_rd_atomic = 4,
	                            .min_rnr_timer = 1,
	                            .ah_attr = {.grh = {.dgid = peer->gid, .hop_limit = 1},
	                                        .is_global = 1,
	                                        .port_num = 1}};
	int path = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	modify(side->qp, &attr,
	       IBV_QP_STATE | (type == IBV_QPT_UD ? 0 : path) |
	               (type == IBV_QPT_RC ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
	                            .sq_psn = 7,
	                            .timeout = 14,
	                            .retry_cnt = 7,
	                            .rnr_retry = 7,
	                            .max_rd_atomic = 4};
	modify(side->qp, &attr,
	       IBV_QP_STATE | IBV_QP_SQ_PSN |
	               (type == IBV_QPT_RC ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
	                                             IBV_QP_MAX_QP_RD_ATOMIC
	                                   : 0));
}

void pair_reset(struct side *side)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	modify(side->qp, &attr, IBV_QP_STATE);
}

struct pair *pair_open(const struct pair_how *how)
{
	static const struct pair_how plain;
	struct pair *pair = calloc(1, sizeof(*pair));
	if (how == NULL)
		how = &plain;
	open_side(&pair->a, how, false);
	open_side(&pair->b, how, true);
	pair_connect(&pair->a, &pair->b);
	pair_connect(&pair->b, &pair->a);
	return pair;
}

static void close_side(struct side *side)
{
	struct ibv_srq *srq = side->qp->srq;
	assert_int_equal(ibv_destroy_qp(side->qp), 0);
	if (srq != NULL)
		assert_int_equal(ibv_destroy_srq(srq), 0);
	assert_int_equal(ibv_dereg_mr(side->mr), 0);
	assert_int_equal(ibv_destroy_cq(side->cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(side->channel), 0);
	assert_int_equal(ibv_dealloc_pd(side->pd), 0);
	assert_int_equal(ibv_close_device(side->context), 0);
	free(side->bytes);
}

void pair_close(struct pair *pair)
{
	close_side(&pair->a);
	close_side(&pair->b);
	free(pair);
}

struct ibv_sge pair_sge(const struct side *side, size_t offset, size_t length)
{
	return (struct ibv_sge){.addr = (uintptr_t)(side->bytes + offset),
	                        .length = (uint32_t)length,
	                        .lkey = side->mr->lkey};
}

void pair_recv(struct side *side, uint64_t wr_id, size_t offset, size_t length)
{
	struct ibv_sge sge = pair_sge(side, offset, length);
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;
	assert_int_equal(side->qp->srq != NULL ? ibv_post_srq_recv(side->qp->srq, &wr, &bad)
	                                       : ibv_post_recv(side->qp, &wr, &bad),
	                 0);
}

void pair_send(struct side *side, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	assert_int_equal(ibv_post_send(side->qp, wr, &bad), 0);
}

struct ibv_wc pair_wait(struct side *side)
{
	struct timespec start, now;
	struct ibv_wc wc;
	clock_gettime(CLOCK_MONOTONIC, &start);
	do {
		int got = ibv_poll_cq(side->cq, 1, &wc);
		assert_true(got >= 0);
		if (got == 1)
			return wc;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec - start.tv_sec < 20);
	fail_msg("no completion came");
	return wc;
}

struct ibv_wc pair_done(struct side *side)
{
	struct ibv_wc wc = pair_wait(side);
	assert_string_equal(ibv_wc_status_str(wc.status), ibv_wc_status_str(IBV_WC_SUCCESS));
	assert_int_equal(wc.qp_num, side->qp->qp_num);
	return wc;
}
