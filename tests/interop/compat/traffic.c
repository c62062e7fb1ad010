/* MISSION X1: every operation of libibverbs that Heddle offers, between two queue pairs of one
 * process. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>

#include "pair.h"

static void fill(struct side *side, size_t offset, size_t length)
{
	for (size_t i = 0; i < length; i++)
		side->bytes[offset + i] = (unsigned char)(i * 7 + length);
}

static void x1_sends(void **state)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC};
	static const size_t lengths[] = {0, 1, 8, 128, 4096, 30000};
	(void)state;
	for (size_t t = 0; t < 2; t++) {
		struct pair *pair = pair_open(&(struct pair_how){.type = types[t]});
		for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
			size_t length = lengths[i];
			fill(&pair->a, 0, length);
			memset(pair->b.bytes, 0xee, PAIR_BYTES);
			pair_recv(&pair->b, 100 + i, 0, PAIR_BYTES);
			struct ibv_sge sge = pair_sge(&pair->a, 0, length);
			if (length <= 128)
				sge.lkey = 0; /* inline: nobody asks for it */
			struct ibv_send_wr wr = {.wr_id = 200 + i,
			                         .sg_list = &sge,
			                         .num_sge = 1,
			                         .opcode = IBV_WR_SEND_WITH_IMM,
			                         .send_flags =
			                                 IBV_SEND_SIGNALED |
			                                 (length <= 128 ? IBV_SEND_INLINE : 0),
			                         .imm_data = htonl(0xabcd0000u + (uint32_t)i)};
			pair_send(&pair->a, &wr);
			if (length <= 128)
				memset(pair->a.bytes, 0, length); /* inline: taken already */
			struct ibv_wc wc = pair_done(&pair->b);
			assert_int_equal(wc.wr_id, 100 + i);
			assert_int_equal(wc.opcode, IBV_WC_RECV);
			assert_int_equal(wc.byte_len, length);
			assert_int_equal(wc.wc_flags, IBV_WC_WITH_IMM);
			assert_int_equal(ntohl(wc.imm_data), 0xabcd0000u + i);
			wc = pair_done(&pair->a);
			assert_int_equal(wc.wr_id, 200 + i);
			assert_int_equal(wc.opcode, IBV_WC_SEND);
			fill(&pair->a, 0, length);
			assert_memory_equal(pair->a.bytes, pair->b.bytes, length);
			assert_int_equal(pair->b.bytes[length], 0xee);
		}
		pair_close(pair);
	}
}

static struct ibv_send_wr rdma(const struct side *side, const struct side *peer,
                               struct ibv_sge *sge, enum ibv_wr_opcode opcode, size_t length)
{
	*sge = pair_sge(side, 0, length);
	return (struct ibv_send_wr){
	        .sg_list = sge,
	        .num_sge = 1,
	        .opcode = opcode,
	        .send_flags = IBV_SEND_SIGNALED,
	        .wr.rdma = {.remote_addr = (uintptr_t)peer->bytes, .rkey = peer->mr->rkey}};
}

static void x1_rdma(void **state)
{
	struct pair *pair = pair_open(NULL);
	struct ibv_sge sge;
	(void)state;
	fill(&pair->a, 0, 10000);
	struct ibv_send_wr wr = rdma(&pair->a, &pair->b, &sge, IBV_WR_RDMA_WRITE, 10000);
	pair_send(&pair->a, &wr);
	assert_int_equal(pair_done(&pair->a).opcode, IBV_WC_RDMA_WRITE);
	assert_memory_equal(pair->a.bytes, pair->b.bytes, 10000);

	pair_recv(&pair->b, 5, 50000, 0);
	wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	wr.imm_data = htonl(77);
	pair_send(&pair->a, &wr);
	struct ibv_wc wc = pair_done(&pair->b);
	assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(wc.byte_len, 10000);
	assert_int_equal(ntohl(wc.imm_data), 77);
	pair_done(&pair->a);

	fill(&pair->b, 0, 3000);
	wr = rdma(&pair->a, &pair->b, &sge, IBV_WR_RDMA_READ, 3000);
	pair_send(&pair->a, &wr);
	wc = pair_done(&pair->a);
	assert_int_equal(wc.opcode, IBV_WC_RDMA_READ);
	assert_int_equal(wc.byte_len, 3000);
	assert_memory_equal(pair->a.bytes, pair->b.bytes, 3000);
	pair_close(pair);
}

static void x1_atomics(void **state)
{
	struct pair *pair = pair_open(NULL);
	uint64_t *target = (uint64_t *)(void *)pair->b.bytes,
	         *result = (uint64_t *)(void *)pair->a.bytes;
	struct ibv_sge sge = pair_sge(&pair->a, 0, 8);
	(void)state;
	*target = 40;
	struct ibv_send_wr wr = {.sg_list = &sge,
	                         .num_sge = 1,
	                         .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
	                         .send_flags = IBV_SEND_SIGNALED,
	                         .wr.atomic = {.remote_addr = (uintptr_t)target,
	                                       .rkey = pair->b.mr->rkey,
	                                       .compare_add = 2}};
	pair_send(&pair->a, &wr);
	assert_int_equal(pair_done(&pair->a).opcode, IBV_WC_FETCH_ADD);
	assert_int_equal(*result, 40);
	assert_int_equal(*target, 42);
	wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	wr.wr.atomic.compare_add = 42;
	wr.wr.atomic.swap = 9;
	pair_send(&pair->a, &wr);
	assert_int_equal(pair_done(&pair->a).opcode, IBV_WC_COMP_SWAP);
	assert_int_equal(*result, 42);
	assert_int_equal(*target, 9);
	pair_close(pair);
}

/* A window of either type: bound, used, unbound, refused. */
static void x1_windows(void **state)
{
	(void)state;
	for (int type = IBV_MW_TYPE_1; type <= IBV_MW_TYPE_2; type++) {
		struct pair *pair = pair_open(NULL);
		struct ibv_mw *mw = ibv_alloc_mw(pair->b.pd, (enum ibv_mw_type)type);
		assert_non_null(mw);
		struct ibv_mw_bind_info info = {.mr = pair->b.mr,
		                                .addr = (uintptr_t)pair->b.bytes,
		                                .length = 64,
		                                .mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
		uint32_t rkey = ibv_inc_rkey(mw->rkey);
		if (type == IBV_MW_TYPE_1) {
			struct ibv_mw_bind bind = {
			        .wr_id = 3, .send_flags = IBV_SEND_SIGNALED, .bind_info = info};
			assert_int_equal(ibv_bind_mw(pair->b.qp, mw, &bind), 0);
			rkey = mw->rkey;
		} else {
			struct ibv_send_wr bind = {
			        .wr_id = 3,
			        .opcode = IBV_WR_BIND_MW,
			        .send_flags = IBV_SEND_SIGNALED,
			        .bind_mw = {.mw = mw, .rkey = rkey, .bind_info = info}};
			pair_send(&pair->b, &bind);
		}
		struct ibv_wc wc = pair_done(&pair->b);
		assert_int_equal(wc.opcode, IBV_WC_BIND_MW);
		assert_int_equal(wc.wr_id, 3);

		struct ibv_sge sge;
		fill(&pair->a, 0, 64);
		struct ibv_send_wr wr = rdma(&pair->a, &pair->b, &sge, IBV_WR_RDMA_WRITE, 64);
		wr.wr.rdma.rkey = rkey;
		pair_send(&pair->a, &wr);
		pair_done(&pair->a);
		assert_memory_equal(pair->a.bytes, pair->b.bytes, 64);
		assert_int_equal(ibv_dereg_mr(pair->b.mr), EBUSY);

		if (type == IBV_MW_TYPE_2) {
			pair_recv(&pair->b, 0, 1000, 8);
			struct ibv_send_wr invalidate = {.opcode = IBV_WR_SEND_WITH_INV,
			                                 .send_flags = IBV_SEND_SIGNALED,
			                                 .invalidate_rkey = rkey};
			pair_send(&pair->a, &invalidate);
			pair_done(&pair->a);
			wc = pair_done(&pair->b);
			assert_int_equal(wc.wc_flags & IBV_WC_WITH_INV, IBV_WC_WITH_INV);
			assert_int_equal(wc.invalidated_rkey, rkey);
		} else {
			struct ibv_mw_bind unbind = {.send_flags = IBV_SEND_SIGNALED};
			assert_int_equal(ibv_bind_mw(pair->b.qp, mw, &unbind), 0);
			pair_done(&pair->b);
		}
		pair_send(&pair->a, &wr);
		assert_int_equal(pair_wait(&pair->a).status, IBV_WC_REM_ACCESS_ERR);
		assert_int_equal(ibv_dealloc_mw(mw), 0);
		pair_close(pair);
	}
}

static void x1_datagrams_and_the_way_back(void **state)
{
	struct pair *pair = pair_open(&(struct pair_how){.type = IBV_QPT_UD});
	struct ibv_ah_attr attr = {
	        .grh = {.dgid = pair->b.gid, .flow_label = UINT32_MAX, .hop_limit = 64},
	        .is_global = 1,
	        .port_num = 1};
	struct ibv_ah *ah = ibv_create_ah(pair->a.pd, &attr);
	(void)state;
	assert_non_null(ah);
	pair_recv(&pair->b, 1, 0, 4096);
	fill(&pair->a, 0, 500);
	struct ibv_sge sge = pair_sge(&pair->a, 0, 500);
	struct ibv_send_wr wr = {
	        .sg_list = &sge,
	        .num_sge = 1,
	        .opcode = IBV_WR_SEND,
	        .send_flags = IBV_SEND_SIGNALED,
	        .wr.ud = {.ah = ah, .remote_qpn = pair->b.qp->qp_num, .remote_qkey = PAIR_QKEY}};
	pair_send(&pair->a, &wr);
	pair_done(&pair->a);
	struct ibv_wc wc = pair_done(&pair->b);
	assert_int_equal(wc.byte_len, 540);
	assert_int_equal(wc.src_qp, pair->a.qp->qp_num);
	assert_true(wc.wc_flags & IBV_WC_GRH);
	assert_memory_equal(pair->a.bytes, pair->b.bytes + 40, 500);

	struct ibv_ah *back =
	        ibv_create_ah_from_wc(pair->b.pd, &wc, (struct ibv_grh *)(void *)pair->b.bytes, 1);
	assert_non_null(back);
	pair_recv(&pair->a, 2, 8192, 4096);
	sge = pair_sge(&pair->b, 40, 500);
	wr.wr.ud.ah = back;
	wr.wr.ud.remote_qpn = wc.src_qp;
	pair_send(&pair->b, &wr);
	pair_done(&pair->b);
	pair_done(&pair->a);
	assert_memory_equal(pair->a.bytes + 8192 + 40, pair->b.bytes + 40, 500);
	assert_int_equal(ibv_destroy_ah(back), 0);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	pair_close(pair);
}

/* IBTA 10.2.5: who comes with another Q_Key is dropped, and the port counts it. */
static void x1_wrong_qkeys_are_counted(void **state)
{
	struct pair *pair = pair_open(&(struct pair_how){.type = IBV_QPT_UD});
	struct ibv_ah_attr attr = {
	        .grh = {.dgid = pair->b.gid, .hop_limit = 64}, .is_global = 1, .port_num = 1};
	struct ibv_ah *ah = ibv_create_ah(pair->a.pd, &attr);
	struct ibv_port_attr before, after;
	(void)state;
	assert_non_null(ah);
	assert_int_equal(ibv_query_port(pair->b.context, 1, &before), 0);
	pair_recv(&pair->b, 1, 0, 4096);
	struct ibv_sge sge = pair_sge(&pair->a, 0, 8);
	struct ibv_send_wr wr = {.sg_list = &sge,
	                         .num_sge = 1,
	                         .opcode = IBV_WR_SEND,
	                         .send_flags = IBV_SEND_SIGNALED,
	                         .wr.ud = {.ah = ah, .remote_qpn = pair->b.qp->qp_num}};
	for (uint32_t i = 0; i < 4; i++) { /* the last is right, and comes behind the others */
		wr.wr.ud.remote_qkey = i < 3 ? PAIR_QKEY + 1 + i : PAIR_QKEY;
		pair_send(&pair->a, &wr);
		pair_done(&pair->a);
	}
	pair_done(&pair->b);
	assert_int_equal(ibv_query_port(pair->b.context, 1, &after), 0);
	assert_int_equal(after.qkey_viol_cntr - before.qkey_viol_cntr, 3);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	pair_close(pair);
}

/* A list longer than what is translated at a time, and than the queue: the first that does not fit
 * is named. */
static void x1_lists_and_the_first_bad_one(void **state)
{
	struct pair *pair = pair_open(NULL);
	struct ibv_send_wr wr[PAIR_DEPTH + 5], *bad = NULL;
	struct ibv_recv_wr recv[PAIR_DEPTH + 5], *bad_recv = NULL;
	struct ibv_sge sge = pair_sge(&pair->a, 0, 8), to = pair_sge(&pair->b, 0, 8);
	(void)state;
	for (size_t i = 0; i < PAIR_DEPTH + 5; i++) {
		bool last = i == PAIR_DEPTH + 4;
		wr[i] = (struct ibv_send_wr){.wr_id = i,
		                             .next = last ? NULL : &wr[i + 1],
		                             .sg_list = &sge,
		                             .num_sge = 1,
		                             .opcode = IBV_WR_SEND,
		                             .send_flags = IBV_SEND_SIGNALED};
		recv[i] = (struct ibv_recv_wr){.wr_id = i,
		                               .next = last ? NULL : &recv[i + 1],
		                               .sg_list = &to,
		                               .num_sge = 1};
	}
	assert_int_equal(ibv_post_recv(pair->b.qp, recv, &bad_recv), ENOMEM);
	assert_ptr_equal(bad_recv, &recv[PAIR_DEPTH]);
	wr[37].opcode = (enum ibv_wr_opcode)99;
	assert_int_equal(ibv_post_send(pair->a.qp, wr, &bad), EINVAL);
	assert_ptr_equal(bad, &wr[37]);
	for (uint64_t i = 0; i < 37; i++) {
		assert_int_equal(pair_done(&pair->a).wr_id, i);
		assert_int_equal(pair_done(&pair->b).wr_id, i);
	}
	wr[37].opcode = IBV_WR_SEND;
	wr[37].num_sge = 5;
	assert_int_equal(ibv_post_send(pair->a.qp, &wr[35], &bad), EINVAL);
	assert_ptr_equal(bad, &wr[37]);
	pair_close(pair);
}

static void x1_completions_by_cq_ex(void **state)
{
	struct pair *pair = pair_open(&(struct pair_how){.cq_ex = true});
	struct ibv_cq_ex *cq = (struct ibv_cq_ex *)(void *)pair->b.cq;
	struct ibv_poll_cq_attr attr = {0};
	struct ibv_sge sge = pair_sge(&pair->a, 0, 24);
	struct ibv_send_wr wr = {
	        .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = 5};
	(void)state;
	assert_int_equal(ibv_start_poll(cq, &attr), ENOENT);
	for (uint64_t i = 0; i < 2; i++)
		pair_recv(&pair->b, 60 + i, 0, 4096);
	pair_send(&pair->a, &wr);
	int error;
	while ((error = ibv_start_poll(cq, &attr)) == ENOENT)
		;
	assert_int_equal(error, 0);
	assert_int_equal(cq->status, IBV_WC_SUCCESS);
	assert_int_equal(cq->wr_id, 60);
	assert_int_equal(ibv_wc_read_opcode(cq), IBV_WC_RECV);
	assert_int_equal(ibv_wc_read_byte_len(cq), 24);
	assert_int_equal(ibv_wc_read_imm_data(cq), 5);
	assert_int_equal(ibv_wc_read_wc_flags(cq), IBV_WC_WITH_IMM);
	assert_int_equal(ibv_wc_read_qp_num(cq), pair->b.qp->qp_num);
	assert_int_equal(ibv_next_poll(cq), ENOENT);
	ibv_end_poll(cq);
	pair_close(pair);
}

static void x1_requests_by_qp_ex(void **state)
{
	struct pair_how how = {.send_ops = IBV_QP_EX_WITH_SEND_WITH_IMM |
	                                   IBV_QP_EX_WITH_RDMA_WRITE |
	                                   IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD};
	struct pair *pair = pair_open(&how);
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(pair->a.qp);
	char word[] = "inline";
	struct ibv_data_buf pieces[] = {{word, 2}, {word + 2, 4}};
	(void)state;
	assert_non_null(qp);
	assert_null(qp->wr_rdma_read); /* not asked for */
	pair_recv(&pair->b, 1, 0, 4096);
	uint64_t *target = (uint64_t *)(void *)(pair->b.bytes + 4096);
	*target = 1;
	fill(&pair->a, 100, 32);

	ibv_wr_start(qp);
	qp->wr_id = 11;
	qp->wr_flags = 0;
	ibv_wr_rdma_write(qp, pair->b.mr->rkey, (uintptr_t)pair->b.bytes + 9000);
	ibv_wr_set_sge(qp, pair->a.mr->lkey, (uintptr_t)pair->a.bytes + 100, 32);
	ibv_wr_atomic_fetch_add(qp, pair->b.mr->rkey, (uintptr_t)target, 5);
	ibv_wr_set_sge(qp, pair->a.mr->lkey, (uintptr_t)pair->a.bytes, 8);
	qp->wr_id = 12;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send_imm(qp, htonl(6));
	ibv_wr_set_inline_data_list(qp, 2, pieces);
	memset(word, 0, sizeof(word));
	assert_int_equal(ibv_wr_complete(qp), 0);

	assert_int_equal(pair_done(&pair->a).wr_id, 12);
	struct ibv_wc wc = pair_done(&pair->b);
	assert_int_equal(wc.byte_len, 6);
	assert_memory_equal(pair->b.bytes, "inline", 6);
	assert_memory_equal(pair->b.bytes + 9000, pair->a.bytes + 100, 32);
	assert_int_equal(*target, 6);

	/* What goes wrong on the way is said at the end, and nothing is posted. */
	ibv_wr_start(qp);
	ibv_wr_send_imm(qp, 0);
	ibv_wr_set_inline_data(qp, pair->a.bytes, 4096);
	assert_int_equal(ibv_wr_complete(qp), EINVAL);
	ibv_wr_start(qp);
	for (int i = 0; i <= PAIR_DEPTH; i++)
		ibv_wr_send_imm(qp, 0);
	assert_int_equal(ibv_wr_complete(qp), ENOMEM);
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
	pair_recv(&pair->b, 2, 0, 4096);
	pair_send(&pair->a, &wr); /* the queue is empty */
	pair_done(&pair->a);
	pair_done(&pair->b);
	ibv_wr_start(qp);
	ibv_wr_send_imm(qp, 0);
	ibv_wr_abort(qp);
	assert_int_equal(ibv_poll_cq(pair->a.cq, 1, &wc), 0);
	pair_close(pair);
}

static void x1_regions_with_an_address_of_their_own(void **state)
{
	struct pair *pair = pair_open(NULL);
	uint64_t iova = 0x100000000000u + 123;
	struct ibv_mr *mr = ibv_reg_mr_iova(pair->b.pd, pair->b.bytes + 300, 20000, iova,
	                                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_sge sge;
	(void)state;
	assert_non_null(mr);
	fill(&pair->a, 0, 9000);
	struct ibv_send_wr wr = rdma(&pair->a, &pair->b, &sge, IBV_WR_RDMA_WRITE, 9000);
	wr.wr.rdma.remote_addr = iova + 10000;
	wr.wr.rdma.rkey = mr->rkey;
	pair_send(&pair->a, &wr);
	pair_done(&pair->a);
	assert_memory_equal(pair->a.bytes, pair->b.bytes + 300 + 10000, 9000);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	pair_close(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(x1_sends),
	        cmocka_unit_test(x1_rdma),
	        cmocka_unit_test(x1_atomics),
	        cmocka_unit_test(x1_windows),
	        cmocka_unit_test(x1_datagrams_and_the_way_back),
	        cmocka_unit_test(x1_wrong_qkeys_are_counted),
	        cmocka_unit_test(x1_lists_and_the_first_bad_one),
	        cmocka_unit_test(x1_completions_by_cq_ex),
	        cmocka_unit_test(x1_requests_by_qp_ex),
	        cmocka_unit_test(x1_regions_with_an_address_of_their_own),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
