/* Extended reliable connections through libibverbs: domains known by files, queue pairs that are
 * opened by their number, and messages that name a shared receive queue. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "pair.h"

#define FD_AND_FLAGS (IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS)

static struct ibv_xrcd *open_domain(struct ibv_context *context, int fd, int flags)
{
	struct ibv_xrcd_init_attr attr = {.comp_mask = FD_AND_FLAGS, .fd = fd, .oflags = flags};
	return ibv_open_xrcd(context, &attr);
}

static struct ibv_srq *make_srq(struct side *side, struct ibv_xrcd *xrcd)
{
	struct ibv_srq_init_attr_ex attr = {.attr = {.max_wr = 8, .max_sge = 1},
	                                    .comp_mask =
	                                            IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
	                                            IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
	                                    .srq_type = IBV_SRQT_XRC,
	                                    .pd = side->pd,
	                                    .xrcd = xrcd,
	                                    .cq = side->cq};
	return ibv_create_srq_ex(side->context, &attr);
}

static struct ibv_qp *make_target(struct ibv_context *context, struct ibv_xrcd *xrcd)
{
	struct ibv_qp_init_attr_ex attr = {
	        .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = xrcd};
	return ibv_create_qp_ex(context, &attr);
}

static struct ibv_qp *make_initiator(struct side *side, uint64_t send_ops)
{
	struct ibv_qp_init_attr_ex attr = {
	        .send_cq = side->cq,
	        .cap = {.max_send_wr = 8, .max_send_sge = 1},
	        .qp_type = IBV_QPT_XRC_SEND,
	        .sq_sig_all = 1,
	        .comp_mask = IBV_QP_INIT_ATTR_PD |
	                     (send_ops != 0 ? (uint32_t)IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0u),
	        .pd = side->pd,
	        .send_ops_flags = send_ops};
	return ibv_create_qp_ex(side->context, &attr);
}

/* Take @qp to RTS with the attributes that its end of XRC has, and no others. */
static void connect_to(struct ibv_qp *qp, uint32_t number, const union ibv_gid *gid)
{
	bool target = qp->qp_type == IBV_QPT_XRC_RECV;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
	                           .port_num = 1,
	                           .qp_access_flags = target ? IBV_ACCESS_REMOTE_WRITE : 0};
	assert_int_equal(
	        ibv_modify_qp(qp, &attr,
	                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
	        0);
	attr = (struct ibv_qp_attr){
	        .qp_state = IBV_QPS_RTR,
	        .path_mtu = IBV_MTU_1024,
	        .dest_qp_num = number,
	        .max_dest_rd_atomic = 1,
	        .min_rnr_timer = 1,
	        .ah_attr = {.is_global = 1, .grh = {.dgid = *gid, .hop_limit = 1}, .port_num = 1}};
	assert_int_equal(
	        ibv_modify_qp(
	                qp, &attr,
	                IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
	                        IBV_QP_RQ_PSN |
	                        (target ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)),
	        0);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
	                            .timeout = 14,
	                            .retry_cnt = 7,
	                            .rnr_retry = 7,
	                            .max_rd_atomic = 1};
	assert_int_equal(ibv_modify_qp(qp, &attr,
	                               IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN |
	                                       (target ? 0
	                                               : IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
	                                                         IBV_QP_MAX_QP_RD_ATOMIC)),
	                 0);
}

static int scratch_file(void)
{
	char name[] = "/tmp/heddle-xrc-XXXXXX";
	int fd = mkstemp(name);
	assert_true(fd >= 0);
	unlink(name);
	return fd;
}

static void domains_are_known_by_their_file(void **state)
{
	struct pair *pair = pair_open(NULL);
	struct ibv_context *context = pair->a.context;
	struct ibv_device_attr device;
	struct ibv_xrcd_init_attr none = {.comp_mask = IBV_XRCD_INIT_ATTR_FD};
	int one = scratch_file(), two = scratch_file();
	(void)state;
	assert_int_equal(ibv_query_device(context, &device), 0);
	assert_true(device.device_cap_flags & IBV_DEVICE_XRC);
	FAILS(ibv_open_xrcd(context, &none), EINVAL);
	none.comp_mask = IBV_XRCD_INIT_ATTR_RESERVED;
	FAILS(ibv_open_xrcd(context, &none), EOPNOTSUPP);
	FAILS(open_domain(context, one, 0), EAGAIN); /* there is none yet */
	FAILS(open_domain(context, 99999, O_CREAT), EBADF);
	struct ibv_xrcd *first = open_domain(context, one, O_CREAT);
	struct ibv_xrcd *again = open_domain(pair->b.context, one, 0);
	struct ibv_xrcd *other = open_domain(context, two, O_CREAT | O_EXCL);
	struct ibv_xrcd *nameless = open_domain(context, -1, O_CREAT);
	assert_true(first && again && other && nameless);
	FAILS(open_domain(context, two, O_CREAT | O_EXCL), EINVAL);

	/* The same domain for both: what is made through one is found through the other. */
	struct ibv_qp *qp = make_target(context, first);
	assert_non_null(qp);
	struct ibv_qp_open_attr attr = {.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
	                                             IBV_QP_OPEN_ATTR_TYPE,
	                                .qp_num = qp->qp_num,
	                                .xrcd = other,
	                                .qp_type = IBV_QPT_XRC_RECV};
	FAILS(ibv_open_qp(context, &attr), EINVAL);
	attr.xrcd = nameless;
	FAILS(ibv_open_qp(context, &attr), EINVAL);
	attr.xrcd = again;
	attr.qp_type = IBV_QPT_RC;
	FAILS(ibv_open_qp(context, &attr), EINVAL);
	attr.qp_type = IBV_QPT_XRC_RECV;
	struct ibv_qp *opened = ibv_open_qp(pair->b.context, &attr);
	assert_non_null(opened);
	assert_int_equal(opened->qp_num, qp->qp_num);
	assert_int_equal(ibv_close_xrcd(first), EBUSY);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_close_xrcd(first), 0);
	/* It lives on for who opened it. */
	struct ibv_qp_attr now;
	struct ibv_qp_init_attr init;
	assert_int_equal(ibv_query_qp(opened, &now, IBV_QP_STATE, &init), 0);
	assert_int_equal(init.qp_type, IBV_QPT_XRC_RECV);
	assert_int_equal(ibv_close_xrcd(again), EBUSY);
	assert_int_equal(ibv_destroy_qp(opened), 0);
	FAILS(ibv_open_qp(pair->b.context, &attr), EINVAL);
	assert_int_equal(ibv_close_xrcd(again), 0);
	assert_int_equal(ibv_close_xrcd(other), 0);
	assert_int_equal(ibv_close_xrcd(nameless), 0);
	FAILS(open_domain(context, one, 0), EAGAIN); /* the last close ended it */
	close(one);
	close(two);
	pair_close(pair);
}

static void objects_are_judged(void **state)
{
	struct pair *pair = pair_open(NULL);
	struct side *a = &pair->a;
	struct ibv_xrcd *xrcd = open_domain(a->context, -1, O_CREAT);
	struct ibv_srq_init_attr_ex srq = {
	        .attr = {.max_wr = 8, .max_sge = 1},
	        .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD,
	        .srq_type = IBV_SRQT_XRC,
	        .pd = a->pd,
	        .xrcd = xrcd};
	struct ibv_srq_init_attr basic_attr = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_qp_init_attr_ex qp = {
	        .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = a->pd};
	uint32_t number;
	(void)state;
	FAILS(ibv_create_srq_ex(a->context, &srq), EINVAL); /* no completion queue */
	FAILS(ibv_create_qp_ex(a->context, &qp), EINVAL);   /* no domain */
	qp.qp_type = IBV_QPT_XRC_SEND;
	FAILS(ibv_create_qp_ex(a->context, &qp), EINVAL); /* no completion queue */
	struct ibv_srq *basic = ibv_create_srq(a->pd, &basic_attr);
	assert_int_equal(ibv_get_srq_num(basic, &number), EINVAL);
	assert_int_equal(ibv_destroy_srq(basic), 0);
	struct ibv_qp *target = make_target(a->context, xrcd);
	struct ibv_send_wr send = {.opcode = IBV_WR_SEND}, *bad_send = NULL;
	struct ibv_recv_wr recv = {.wr_id = 1}, *bad_recv = NULL;
	connect_to(target, 99, &pair->b.gid);
	assert_int_equal(ibv_post_send(target, &send, &bad_send), EINVAL);
	assert_ptr_equal(bad_send, &send);
	assert_int_equal(ibv_post_recv(target, &recv, &bad_recv), ENOMEM);
	assert_ptr_equal(bad_recv, &recv);
	assert_int_equal(ibv_destroy_qp(target), 0);
	assert_int_equal(ibv_close_xrcd(xrcd), 0);
	pair_close(pair);
}

/* A send to queue @number, as a request of its own or through struct ibv_qp_ex. */
static void send_one(struct ibv_qp *qp, uint64_t wr_id, struct ibv_sge *from, uint32_t number,
                     bool extended)
{
	if (!extended) {
		struct ibv_send_wr *bad, wr = {.wr_id = wr_id,
		                               .sg_list = from,
		                               .num_sge = 1,
		                               .opcode = IBV_WR_SEND,
		                               .qp_type.xrc.remote_srqn = number};
		assert_int_equal(ibv_post_send(qp, &wr, &bad), 0);
		return;
	}
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	ibv_wr_start(ex);
	ex->wr_id = wr_id;
	ex->wr_flags = 0;
	ibv_wr_send(ex);
	ibv_wr_set_xrc_srqn(ex, number);
	ibv_wr_set_sge(ex, from->lkey, from->addr, from->length);
	assert_int_equal(ibv_wr_complete(ex), 0);
}

/* One target, two queues, requests of both kinds; the event of the target's end comes to all who
 * opened it. */
static void messages_name_their_queue(void **state)
{
	struct pair *pair = pair_open(NULL);
	struct side *a = &pair->a, *b = &pair->b;
	struct ibv_xrcd *xrcd = open_domain(b->context, -1, O_CREAT);
	struct ibv_srq *queues[2] = {make_srq(b, xrcd), make_srq(b, xrcd)};
	struct ibv_qp *target = make_target(b->context, xrcd);
	struct ibv_qp *initiator = make_initiator(a, IBV_QP_EX_WITH_SEND);
	(void)state;
	assert_true(xrcd && queues[0] && queues[1] && target && initiator);
	struct ibv_qp_open_attr attr = {.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
	                                             IBV_QP_OPEN_ATTR_TYPE |
	                                             IBV_QP_OPEN_ATTR_CONTEXT,
	                                .qp_num = target->qp_num,
	                                .xrcd = xrcd,
	                                .qp_context = pair,
	                                .qp_type = IBV_QPT_XRC_RECV};
	struct ibv_qp *opened = ibv_open_qp(b->context, &attr);
	assert_non_null(opened);
	assert_ptr_equal(opened->qp_context, pair);
	connect_to(target, initiator->qp_num, &a->gid);
	connect_to(initiator, target->qp_num, &b->gid);
	for (uint32_t i = 0; i < 4; i++) {
		uint32_t number;
		struct ibv_sge from = pair_sge(a, 64, 32), to = pair_sge(b, 1024 * (i + 1), 32);
		struct ibv_recv_wr recv = {.wr_id = 100 + i, .sg_list = &to, .num_sge = 1},
		                   *bad_recv;
		assert_int_equal(ibv_get_srq_num(queues[i % 2], &number), 0);
		assert_int_equal(ibv_post_srq_recv(queues[i % 2], &recv, &bad_recv), 0);
		memset(a->bytes + 64, (int)i + 1, 32);
		send_one(initiator, i, &from, number, i >= 2);
		struct ibv_wc wc = pair_wait(a);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, i);
		wc = pair_wait(b);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, 100 + i);
		assert_int_equal(wc.qp_num, target->qp_num);
		assert_int_equal(wc.src_qp, initiator->qp_num);
		assert_memory_equal(b->bytes + 1024 * (i + 1), a->bytes + 64, 32);
	}
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
	assert_int_equal(ibv_modify_qp(target, &error, IBV_QP_STATE), 0);
	bool heard[2] = {false, false};
	for (int i = 0; i < 2; i++) {
		struct ibv_async_event event;
		assert_int_equal(ibv_get_async_event(b->context, &event), 0);
		assert_int_equal(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
		heard[event.element.qp == opened] = true;
		ibv_ack_async_event(&event);
	}
	assert_true(heard[0] && heard[1]);
	assert_int_equal(ibv_destroy_qp(target), 0);
	assert_int_equal(ibv_destroy_qp(opened), 0);
	assert_int_equal(ibv_destroy_qp(initiator), 0);
	assert_int_equal(ibv_destroy_cq(b->cq), EBUSY);
	assert_int_equal(ibv_destroy_srq(queues[0]) | ibv_destroy_srq(queues[1]), 0);
	assert_int_equal(ibv_close_xrcd(xrcd), 0);
	pair_close(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(domains_are_known_by_their_file),
	        cmocka_unit_test(objects_are_judged),
	        cmocka_unit_test(messages_name_their_queue),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
