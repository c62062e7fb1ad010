/* Extended reliable connections (IBTA annex A14): side a sends through an initiator, side b
 * receives through a target into the shared receive queue that each message names. */
#include "conform.h"

/* Queue i of side b: its completion queue, and receives from 1024 * (i + 1) on. */
struct ends {
	struct hdl_xrcd *xrcd;
	struct hdl_qp *ini, *tgt;
	struct hdl_srq *srq[2];
	struct hdl_cq *cq[2];
};

static struct hdl_srq *make_xrc_srq(struct side *s, struct hdl_pd *pd, struct hdl_xrcd *xrcd,
                                    struct hdl_cq *cq)
{
	struct hdl_srq *srq;
	struct hdl_srq_attr attr = {.max_wr = 16, .max_sge = 2};
	assert_int_equal(hdl_srq_create_xrc(pd != NULL ? pd : s->pd, xrcd, cq, &attr, NULL, &srq),
	                 0);
	keep_srq(s->world, srq);
	return srq;
}

static struct ends connect_ends(struct world *w, const struct qp_options *options)
{
	struct qp_options o = options != NULL ? *options : (struct qp_options){0};
	struct ends e = {.xrcd = make_xrcd(&w->b)};
	for (int i = 0; i < 2; i++) {
		e.cq[i] = make_cq(&w->b, 16, NULL, NULL);
		e.srq[i] = make_xrc_srq(&w->b, NULL, e.xrcd, e.cq[i]);
	}
	o.type = HDL_QP_XRC_INI;
	e.ini = make_qp(&w->a, &o);
	o.type = HDL_QP_XRC_TGT;
	o.xrcd = e.xrcd;
	e.tgt = make_qp(&w->b, &o);
	connect_pair(w, &o, e.ini, e.tgt);
	return e;
}

static void post_to(struct side *s, struct hdl_srq *srq, uint64_t wr_id, size_t offset,
                    uint32_t length)
{
	struct hdl_sge one = piece(s, offset, length);
	struct hdl_recv_wr wr = {.wr_id = wr_id, .sg_list = &one, .num_sge = 1};
	assert_int_equal(hdl_srq_post(srq, &wr, NULL), 0);
}

/* A signalled request of @length bytes of side a that names queue @number. */
static struct hdl_send_wr request(uint64_t wr_id, uint32_t opcode, struct hdl_sge *own,
                                  uint32_t number)
{
	return (struct hdl_send_wr){.wr_id = wr_id,
	                            .opcode = opcode,
	                            .flags = HDL_SEND_SIGNALED,
	                            .sg_list = own,
	                            .num_sge = own->length > 0 ? 1 : 0,
	                            .remote_srq = number};
}

static void send_to(struct world *w, struct hdl_qp *ini, uint64_t wr_id, size_t offset,
                    uint32_t length, uint32_t number)
{
	struct hdl_sge own = piece(&w->a, offset, length);
	post_send(ini, request(wr_id, HDL_OP_SEND, &own, number));
}

static void messages_choose_their_queue(void **state)
{
	struct world *w = *state;
	struct ends e = connect_ends(w, NULL);
	uint32_t numbers[2] = {hdl_srq_number(e.srq[0]), hdl_srq_number(e.srq[1])};
	assert_int_not_equal(numbers[0], numbers[1]);
	assert_in_range(numbers[0], 2, 0xffffff);
	for (uint32_t i = 0; i < 8; i++) {
		uint32_t to = i == 3 || i % 2;
		post_to(&w->b, e.srq[to], i, 1024 * (i + 1), 1024);
		send_to(w, e.ini, i, 100 * i, 100 + i, numbers[to]);
		expect_sent(w, w->a.scq, e.ini, i, HDL_WC_SEND, 100 + i);
		expect_received(w, e.cq[to], e.tgt, e.ini, i, 100 + i);
		expect_copy(&w->b, 1024 * (i + 1), &w->a, 100 * i, 100 + i);
	}
	expect_nothing(w, e.cq[0]);
	expect_nothing(w, e.cq[1]);
	check_memory(w);
	expect_no_event(w);
}

/* Two targets of one domain feed one queue, and long messages (pulled, or in parts) do not get
 * mixed up. */
static void targets_share_a_queue(void **state)
{
	struct world *w = *state;
	struct ends e = connect_ends(w, NULL);
	struct qp_options o = {.type = HDL_QP_XRC_INI};
	struct hdl_qp *ini = make_qp(&w->a, &o);
	o = (struct qp_options){.type = HDL_QP_XRC_TGT, .xrcd = e.xrcd};
	struct hdl_qp *tgt = make_qp(&w->b, &o);
	connect_pair(w, NULL, ini, tgt);
	uint32_t number = hdl_srq_number(e.srq[0]), length = 2 << 20;
	for (uint32_t i = 0; i < 4; i++)
		post_to(&w->b, e.srq[0], i, (size_t)length * i, length);
	fill(&w->a, 0, 2 * length, 5);
	for (uint32_t i = 0; i < 2; i++) {
		send_to(w, e.ini, i, 0, length, number);
		send_to(w, ini, i, length, length, number);
	}
	for (uint32_t i = 0; i < 4; i++) {
		struct hdl_wc wc;
		wait_wc(w, e.cq[0], &wc);
		assert_int_equal(wc.status, HDL_WC_SUCCESS);
		assert_int_equal(wc.byte_len, length);
		bool first = wc.qpn == hdl_qp_number(e.tgt);
		assert_true(first || wc.qpn == hdl_qp_number(tgt));
		expect_copy(&w->b, (size_t)length * wc.wr_id, &w->a, first ? 0 : length, length);
	}
	check_memory(w);
}

static void immediate_data_and_writes(void **state)
{
	struct world *w = *state;
	struct ends e = connect_ends(w, NULL);
	uint32_t number = hdl_srq_number(e.srq[1]);
	struct hdl_sge own = piece(&w->a, 64, 32);
	struct hdl_send_wr wr = request(1, HDL_OP_SEND_IMM, &own, number);
	struct hdl_wc want = {.wr_id = 11,
	                      .opcode = HDL_WC_RECV,
	                      .byte_len = 32,
	                      .imm = 0x12345678,
	                      .flags = HDL_WC_WITH_IMM,
	                      .qpn = hdl_qp_number(e.tgt),
	                      .src_qpn = hdl_qp_number(e.ini)};
	wr.imm = want.imm;
	post_to(&w->b, e.srq[0], 10, 4096, 64); /* not this one */
	post_to(&w->b, e.srq[1], 11, 1024, 64);
	post_to(&w->b, e.srq[1], 12, 2048, 64);
	post_send(e.ini, wr);
	expect_wc(w, e.cq[1], &want);
	expect_copy(&w->b, 1024, &w->a, 64, 32);
	expect_sent(w, w->a.scq, e.ini, 1, HDL_WC_SEND, 32);
	wr.opcode = HDL_OP_WRITE_IMM;
	set_target(&wr, address(&w->b, 8192), arena_key(&w->b));
	want.wr_id = 12;
	want.opcode = HDL_WC_RECV_WRITE_IMM;
	post_send(e.ini, wr);
	expect_wc(w, e.cq[1], &want);
	expect_copy(&w->b, 8192, &w->a, 64, 32);
	expect_sent(w, w->a.scq, e.ini, 1, HDL_WC_WRITE, 32);
	expect_nothing(w, e.cq[0]);
	check_memory(w);
}

/* RDMA and atomics use the domain of the queue that they name; no receive is consumed. */
static void rdma_is_of_the_queues_domain(void **state)
{
	struct world *w = *state;
	struct ends e = connect_ends(w, NULL);
	uint32_t number = hdl_srq_number(e.srq[0]);
	struct hdl_sge own = piece(&w->a, 0, 20000);
	struct hdl_send_wr wr = request(1, HDL_OP_WRITE, &own, number);
	set_target(&wr, address(&w->b, 128), arena_key(&w->b));
	post_send(e.ini, wr);
	expect_sent(w, w->a.scq, e.ini, 1, HDL_WC_WRITE, 20000);
	expect_copy(&w->b, 128, &w->a, 0, 20000);
	own = piece(&w->a, 30000, 20000);
	wr = request(2, HDL_OP_READ, &own, number);
	set_target(&wr, address(&w->b, 40000), arena_key(&w->b));
	post_send(e.ini, wr);
	expect_sent(w, w->a.scq, e.ini, 2, HDL_WC_READ, 20000);
	expect_copy(&w->a, 30000, &w->b, 40000, 20000);
	uint64_t before, after;
	memcpy(&before, w->b.mem + 64, 8);
	after = before + 5;
	own = piece(&w->a, 24, 8);
	wr = request(3, HDL_OP_FETCH_ADD, &own, number);
	set_target(&wr, address(&w->b, 64), arena_key(&w->b));
	wr.u.atomic.compare_add = 5;
	post_send(e.ini, wr);
	expect_sent(w, w->a.scq, e.ini, 3, HDL_WC_FETCH_ADD, 8);
	expect_bytes(&w->a, 24, &before, 8);
	expect_bytes(&w->b, 64, &after, 8);
	check_memory(w);
	expect_no_event(w);

	/* The same key through a queue of another domain. */
	struct hdl_srq *other = make_xrc_srq(&w->b, make_pd(&w->b), e.xrcd, e.cq[0]);
	own = piece(&w->a, 0, 8);
	wr = request(4, HDL_OP_WRITE, &own, hdl_srq_number(other));
	set_target(&wr, address(&w->b, 128), arena_key(&w->b));
	post_send(e.ini, wr);
	expect_refused(w, w->a.scq, e.ini, 4, HDL_WC_REM_ACCESS_ERR, HDL_DETAIL_PD);
	expect_event(w, &w->b, HDL_EVENT_QP_ACCESS_ERR, HDL_DETAIL_PD, e.tgt);
	expect_event(w, &w->b, HDL_EVENT_QP_LAST_WQE, HDL_DETAIL_NONE, e.tgt);
	expect_no_event(w);
	check_memory(w);
}

/* A read whose data is still owed keeps its domain when the next message names a queue of another
 * one. */
static void domains_do_not_mix(void **state)
{
	struct world *w = *state;
	struct ends e = connect_ends(w, NULL);
	struct hdl_srq *other = make_xrc_srq(&w->b, make_pd(&w->b), e.xrcd, e.cq[1]);
	struct hdl_sge own = piece(&w->a, 0, 50000);
	struct hdl_send_wr read = request(1, HDL_OP_READ, &own, hdl_srq_number(e.srq[0]));
	struct hdl_recv_wr empty = {.wr_id = 7};
	set_target(&read, address(&w->b, 0), arena_key(&w->b));
	struct hdl_send_wr send = {.wr_id = 2,
	                           .opcode = HDL_OP_SEND,
	                           .flags = HDL_SEND_SIGNALED,
	                           .remote_srq = hdl_srq_number(other)};
	read.next = &send;
	assert_int_equal(hdl_srq_post(other, &empty, NULL), 0);
	post_send(e.ini, read);
	expect_sent(w, w->a.scq, e.ini, 1, HDL_WC_READ, 50000);
	expect_sent(w, w->a.scq, e.ini, 2, HDL_WC_SEND, 0);
	expect_received(w, e.cq[1], e.tgt, e.ini, 7, 0);
	expect_copy(&w->a, 0, &w->b, 0, 50000);
	check_memory(w);
	expect_no_event(w);
}

/* Receives of another queue do not help. */
static void empty_queue_is_not_ready(void **state)
{
	struct world *w = *state;
	struct ends e = connect_ends(w, &(struct qp_options){.min_rnr_timer = 1});
	post_to(&w->b, e.srq[1], 1, 1024, 64);
	send_to(w, e.ini, 1, 0, 64, hdl_srq_number(e.srq[0]));
	world_pass(w, 1000000);
	expect_nothing(w, w->a.scq);
	expect_nothing(w, e.cq[1]);
	assert_true(counter_of(&w->b, "rnr_sent") > 0);
	post_to(&w->b, e.srq[0], 2, 2048, 64);
	expect_sent(w, w->a.scq, e.ini, 1, HDL_WC_SEND, 64);
	expect_received(w, e.cq[0], e.tgt, e.ini, 2, 64);
	expect_copy(&w->b, 2048, &w->a, 0, 64);
	check_memory(w);

	e = connect_ends(w, &(struct qp_options){.min_rnr_timer = 1, .no_rnr_retry = true});
	send_to(w, e.ini, 1, 0, 64, hdl_srq_number(e.srq[0]));
	expect_failed(w, w->a.scq, e.ini, 1, HDL_WC_RNR_RETRY_EXC_ERR, HDL_DETAIL_NONE);
}

/* Numbers of nothing, of a destroyed queue, of a queue of another XRC domain, and of a queue
 * pair. */
static void wrong_queue_is_an_invalid_request(void **state)
{
	struct world *w = *state;
	struct hdl_xrcd *elsewhere = make_xrcd(&w->b);
	struct hdl_srq *foreign =
	        make_xrc_srq(&w->b, NULL, elsewhere, make_cq(&w->b, 4, NULL, NULL));
	post_to(&w->b, foreign, 1, 1024, 64);
	for (int c = 0; c < 4; c++)
		for (int opcode = 0; opcode < 3; opcode++) {
			struct ends e = connect_ends(w, NULL);
			uint32_t number = hdl_srq_number(e.srq[0]);
			uint32_t numbers[] = {number ^ 0x800000, number, hdl_srq_number(foreign),
			                      hdl_qp_number(e.tgt)};
			if (c == 1) {
				forget_object(w, e.srq[0]);
				assert_int_equal(hdl_srq_destroy(e.srq[0]), 0);
			}
			struct hdl_sge own = piece(&w->a, 0, 8);
			static const uint32_t opcodes[] = {HDL_OP_SEND, HDL_OP_WRITE, HDL_OP_READ};
			struct hdl_send_wr wr = request(3, opcodes[opcode], &own, numbers[c]);
			set_target(&wr, address(&w->b, 128), arena_key(&w->b));
			post_send(e.ini, wr);
			expect_refused(w, w->a.scq, e.ini, 3, HDL_WC_REM_INV_REQ_ERR,
			               HDL_DETAIL_NONE);
			expect_event(w, &w->b, HDL_EVENT_QP_REQUEST_ERR, HDL_DETAIL_NONE, e.tgt);
			expect_event(w, &w->b, HDL_EVENT_QP_LAST_WQE, HDL_DETAIL_NONE, e.tgt);
			assert_int_equal(qp_state_of(e.tgt), HDL_QPS_ERR);
			drop_qp(w, e.ini);
			drop_qp(w, e.tgt);
		}
	expect_no_event(w);
	check_memory(w);
}

/* A queue may end before the targets that fed it, and takes its completion queue's last user with
 * it. */
static void ends_in_any_order(void **state)
{
	struct world *w = *state;
	struct ends e = connect_ends(w, NULL);
	post_to(&w->b, e.srq[0], 1, 1024, 64);
	send_to(w, e.ini, 1, 0, 64, hdl_srq_number(e.srq[0]));
	expect_received(w, e.cq[0], e.tgt, e.ini, 1, 64);
	assert_int_equal(hdl_xrcd_close(e.xrcd), -HDL_EBUSY);
	assert_int_equal(hdl_cq_destroy(e.cq[0]), -HDL_EBUSY);
	for (int i = 0; i < 2; i++) {
		forget_object(w, e.srq[i]);
		forget_object(w, e.cq[i]);
		assert_int_equal(hdl_srq_destroy(e.srq[i]), 0);
		assert_int_equal(hdl_cq_destroy(e.cq[i]), 0);
	}
	assert_int_equal(hdl_xrcd_close(e.xrcd), -HDL_EBUSY); /* the target */
	qp_go(e.tgt, HDL_QPS_ERR);
	expect_event(w, &w->b, HDL_EVENT_QP_LAST_WQE, HDL_DETAIL_NONE, e.tgt);
	expect_no_event(w);
	drop_qp(w, e.tgt);
	forget_object(w, e.xrcd);
	assert_int_equal(hdl_xrcd_close(e.xrcd), 0);
}

/* While a message comes in parts, the queue that it fills ends. */
static void queue_ends_in_the_middle(void **state)
{
	struct world *w = *state;
	struct ends e = connect_ends(w, NULL);
	uint32_t length = 4 << 20;
	if (w->port->threaded)
		skip();
	post_to(&w->b, e.srq[0], 1, 0, length);
	send_to(w, e.ini, 1, 0, length, hdl_srq_number(e.srq[0]));
	hdl_progress(w->b.adapter);
	forget_object(w, e.srq[0]);
	forget_object(w, e.cq[0]);
	assert_int_equal(hdl_srq_destroy(e.srq[0]), 0);
	assert_int_equal(hdl_cq_destroy(e.cq[0]), 0);
	struct hdl_wc wc;
	wait_wc(w, w->a.scq, &wc);
	assert_true(wc.status == HDL_WC_SUCCESS || wc.status == HDL_WC_REM_INV_REQ_ERR);
}

static void limit_is_raised(void **state)
{
	struct world *w = *state;
	struct ends e = connect_ends(w, NULL);
	for (uint64_t i = 0; i < 2; i++) {
		post_to(&w->b, e.srq[0], i, 1024, 8);
		post_to(&w->b, e.srq[1], i, 1024, 8);
	}
	assert_int_equal(hdl_srq_modify(e.srq[1], 0, 2), 0);
	send_to(w, e.ini, 1, 0, 8, hdl_srq_number(e.srq[0]));
	expect_sent(w, w->a.scq, e.ini, 1, HDL_WC_SEND, 8);
	expect_no_event(w);
	send_to(w, e.ini, 2, 0, 8, hdl_srq_number(e.srq[1]));
	expect_event(w, &w->b, HDL_EVENT_SRQ_LIMIT, HDL_DETAIL_NONE, e.srq[1]);
}

static void calls_are_judged(void **state)
{
	struct world *w = *state;
	struct ends e = connect_ends(w, NULL);
	struct hdl_qp *qp;
	struct hdl_srq *srq;
	struct hdl_xrcd *xrcd;
	struct hdl_qp_init_attr init = {.type = HDL_QP_XRC_TGT, .xrcd = e.xrcd};
	struct hdl_srq_attr attr = {.max_wr = 4, .max_sge = 1};
	assert_int_equal(hdl_qp_create(w->b.pd, &init, &qp), -HDL_EINVAL);
	init.xrcd = NULL;
	assert_int_equal(hdl_qp_create(NULL, &init, &qp), -HDL_EINVAL);
	init = (struct hdl_qp_init_attr){.type = HDL_QP_XRC_INI};
	assert_int_equal(hdl_qp_create(w->b.pd, &init, &qp), -HDL_EINVAL); /* nowhere to complete */
	init = (struct hdl_qp_init_attr){
	        .type = HDL_QP_RC, .send_cq = w->b.scq, .recv_cq = w->b.rcq, .srq = e.srq[0]};
	assert_int_equal(hdl_qp_create(w->b.pd, &init, &qp), -HDL_EINVAL);
	assert_int_equal(hdl_srq_create_xrc(w->b.pd, NULL, w->b.rcq, &attr, NULL, &srq),
	                 -HDL_EINVAL);
	assert_int_equal(hdl_srq_create_xrc(w->b.pd, e.xrcd, NULL, &attr, NULL, &srq), -HDL_EINVAL);
	attr.max_wr = 0;
	assert_int_equal(hdl_srq_create_xrc(w->b.pd, e.xrcd, w->b.rcq, &attr, NULL, &srq),
	                 -HDL_EINVAL);
	assert_int_equal(hdl_xrcd_open(NULL, &xrcd), -HDL_EINVAL);
	assert_int_equal(hdl_xrcd_open(w->b.adapter, NULL), -HDL_EINVAL);
	assert_int_equal(hdl_xrcd_close(NULL), -HDL_EINVAL);
	assert_int_equal(hdl_srq_number(make_srq(&w->b, 1, 1, 0)), 0);
	struct hdl_sge own = piece(&w->a, 0, 0);
	assert_int_equal(try_recv(e.ini, 1, NULL, 0), -HDL_ENOSPC);
	assert_int_equal(try_send(e.tgt, request(1, HDL_OP_SEND, &own, 0)), -HDL_ENOTSUP);
	if (w->port->one_adapter)
		return;
	attr.max_wr = 4;
	assert_int_equal(hdl_srq_create_xrc(w->a.pd, e.xrcd, w->a.rcq, &attr, NULL, &srq),
	                 -HDL_EINVAL);
}

static const struct CMUnitTest tests[] = {
        BEHAVIOUR(messages_choose_their_queue),
        BIG_BEHAVIOUR(targets_share_a_queue),
        BEHAVIOUR(immediate_data_and_writes),
        BEHAVIOUR(rdma_is_of_the_queues_domain),
        BEHAVIOUR(domains_do_not_mix),
        BEHAVIOUR(empty_queue_is_not_ready),
        BEHAVIOUR(wrong_queue_is_an_invalid_request),
        BEHAVIOUR(ends_in_any_order),
        BIG_BEHAVIOUR(queue_ends_in_the_middle),
        BEHAVIOUR(limit_is_raised),
        BEHAVIOUR(calls_are_judged),
};
THEME(xrc_theme, tests);
