/* Shared receive queues: many queue pairs take their receives from one, in the order in which they
 * were posted. */
#include "conform.h"

static int post_shared(struct hdl_srq *srq, uint64_t wr_id, struct side *s, size_t offset,
                       uint32_t length)
{
	struct hdl_sge one = piece(s, offset, length);
	struct hdl_recv_wr wr = {.wr_id = wr_id, .sg_list = &one, .num_sge = length > 0 ? 1 : 0};
	const struct hdl_recv_wr *bad = NULL;
	int result = hdl_srq_post(srq, &wr, &bad);
	assert_ptr_equal(bad, result == 0 ? NULL : &wr);
	return result;
}

static void many_queue_pairs_share_in_order(void **state)
{
	enum { MANY = 5 };
	struct world *w = *state;
	struct hdl_srq *srq = make_srq(&w->b, 32, 2, 0);
	struct hdl_qp *qa[MANY], *qb[MANY];
	for (uint32_t i = 0; i < MANY; i++) {
		qa[i] = make_qp(&w->a, NULL);
		qb[i] = make_qp(&w->b, &(struct qp_options){.srq = srq});
		connect_pair(w, NULL, qa[i], qb[i]);
		assert_int_equal(try_recv(qb[i], 1, NULL, 0), -HDL_EINVAL);
	}
	for (uint32_t i = 0; i < 20; i++)
		assert_int_equal(post_shared(srq, i, &w->b, 1024 * i, 64), 0);
	for (uint32_t i = 0; i < 20; i++) {
		struct hdl_qp *from = qa[i * 7 % MANY];
		fill(&w->a, 64 * i, 64, i);
		post_data(from, 100 + i, HDL_OP_SEND, &w->a, 64 * i, 64 - i);
		expect_sent(w, w->a.scq, from, 100 + i, HDL_WC_SEND, 64 - i);
		expect_received(w, w->b.rcq, qb[i * 7 % MANY], from, i, 64 - i);
		expect_copy(&w->b, 1024 * i, &w->a, 64 * i, 64 - i);
		check_memory(w);
	}
	/* Empty: the next message waits, as on any queue. */
	post_data(qa[0], 1, HDL_OP_SEND, &w->a, 0, 8);
	world_settle(w);
	if (!w->port->stream) /* which has taken it */
		expect_nothing(w, w->a.scq);
	assert_int_equal(post_shared(srq, 50, &w->b, 0, 8), 0);
	expect_sent(w, w->a.scq, qa[0], 1, HDL_WC_SEND, 8);
	expect_received(w, w->b.rcq, qb[0], qa[0], 50, 8);
	assert_int_equal(hdl_srq_destroy(srq), -HDL_EBUSY);
}

static void limit_is_raised_once(void **state)
{
	struct world *w = *state;
	struct hdl_srq *srq = make_srq(&w->b, 16, 1, 0);
	struct hdl_qp *qa = make_qp(&w->a, NULL);
	struct hdl_qp *qb = make_qp(&w->b, &(struct qp_options){.srq = srq});
	struct hdl_srq_attr attr;
	connect_pair(w, NULL, qa, qb);
	for (uint32_t i = 0; i < 8; i++)
		assert_int_equal(post_shared(srq, i, &w->b, 0, 0), 0);
	assert_int_equal(hdl_srq_modify(srq, 0, 5), 0);
	for (uint32_t i = 0; i < 3; i++) {
		post_data(qa, i, HDL_OP_SEND, &w->a, 0, 0);
		expect_sent(w, w->a.scq, qa, i, HDL_WC_SEND, 0);
	}
	expect_no_event(w); /* five are left: not fewer than five */
	assert_int_equal(hdl_srq_query(srq, &attr), 0);
	assert_int_equal(attr.limit, 5);
	post_data(qa, 3, HDL_OP_SEND, &w->a, 0, 0);
	expect_event(w, &w->b, HDL_EVENT_SRQ_LIMIT, HDL_DETAIL_NONE, srq);
	assert_int_equal(hdl_srq_query(srq, &attr), 0);
	assert_int_equal(attr.limit, 0);
	post_data(qa, 4, HDL_OP_SEND, &w->a, 0, 0);
	expect_sent(w, w->a.scq, qa, 3, HDL_WC_SEND, 0);
	expect_sent(w, w->a.scq, qa, 4, HDL_WC_SEND, 0);
	expect_no_event(w);
	/* Armed again, it comes again. */
	assert_int_equal(hdl_srq_modify(srq, 0, 3), 0);
	post_data(qa, 5, HDL_OP_SEND, &w->a, 0, 0);
	expect_event(w, &w->b, HDL_EVENT_SRQ_LIMIT, HDL_DETAIL_NONE, srq);
	expect_no_event(w);
	assert_int_equal(hdl_srq_modify(srq, 0, 17), -HDL_EINVAL);
}

/* A limit that is already undercut when it is set raises the event immediately: otherwise a program
 * that waits for it would wait for ever on an empty queue. */
static void limit_above_what_is_there_is_raised_at_once(void **state)
{
	static const struct {
		uint32_t there, limit;
		bool raised;
	} rows[] = {{0, 1, true},  {0, 16, true}, {0, 0, false},  {2, 3, true},
	            {2, 2, false}, {2, 1, false}, {16, 16, false}};
	struct world *w = *state;
	struct hdl_srq_attr attr;
	for (uint32_t i = 0; i < COUNT(rows); i++) {
		struct hdl_srq *srq = make_srq(&w->b, 16, 1, 0);
		for (uint32_t j = 0; j < rows[i].there; j++)
			assert_int_equal(post_shared(srq, j, &w->b, 0, 0), 0);
		assert_int_equal(hdl_srq_modify(srq, 0, rows[i].limit), 0);
		if (rows[i].raised)
			expect_event(w, &w->b, HDL_EVENT_SRQ_LIMIT, HDL_DETAIL_NONE, srq);
		expect_no_event(w);
		assert_int_equal(hdl_srq_query(srq, &attr), 0);
		assert_int_equal(attr.limit, rows[i].raised ? 0 : rows[i].limit);
		/* A new size changes no limit and arms nothing. */
		assert_int_equal(hdl_srq_modify(srq, 20, HDL_SRQ_KEEP_LIMIT), 0);
		expect_no_event(w);
		assert_int_equal(hdl_srq_query(srq, &attr), 0);
		assert_int_equal(attr.limit, rows[i].raised ? 0 : rows[i].limit);
		assert_int_equal(attr.max_wr, 20);
	}
	struct hdl_srq *srq = make_srq(&w->b, 16, 1, 0);
	for (uint32_t j = 0; j < 8; j++)
		assert_int_equal(post_shared(srq, j, &w->b, 0, 0), 0);
	assert_int_equal(hdl_srq_modify(srq, 0, 8), 0);
	/* The queue may not become smaller than its armed limit. */
	assert_int_equal(hdl_srq_modify(srq, 7, HDL_SRQ_KEEP_LIMIT), -HDL_EINVAL);
	expect_no_event(w);
}

static void resize_keeps_what_is_posted(void **state)
{
	struct world *w = *state;
	struct hdl_srq *srq = make_srq(&w->b, 5, 1, 0);
	struct hdl_qp *qa = make_qp(&w->a, NULL);
	struct hdl_qp *qb = make_qp(&w->b, &(struct qp_options){.srq = srq});
	struct hdl_srq_attr attr;
	connect_pair(w, NULL, qa, qb);
	uint64_t next = 0, taken = 0;
	for (uint32_t round = 0; round < 6; round++) {
		while (post_shared(srq, next, &w->b, 0, 8) == 0)
			next++;
		assert_int_equal(next - taken, 5);
		assert_int_equal(hdl_srq_modify(srq, 4, 0), -HDL_EINVAL);
		assert_int_equal(hdl_srq_modify(srq, 9, 0), 0);
		while (post_shared(srq, next, &w->b, 0, 8) == 0)
			next++;
		assert_int_equal(next - taken, 9);
		for (uint32_t i = 0; i < 6; i++, taken++) {
			post_data(qa, taken, HDL_OP_SEND, &w->a, 0, 8);
			expect_sent(w, w->a.scq, qa, taken, HDL_WC_SEND, 8);
			expect_received(w, w->b.rcq, qb, qa, taken, 8);
		}
		assert_int_equal(hdl_srq_modify(srq, 5, 0), 0);
	}
	assert_int_equal(hdl_srq_query(srq, &attr), 0);
	assert_int_equal(attr.max_wr, 5);
	assert_int_equal(attr.max_sge, 1);
	assert_int_equal(hdl_srq_modify(srq, HDL_MAX_SRQ_WR + 1, 0), -HDL_EINVAL);
}

static void posting_is_judged(void **state)
{
	struct world *w = *state;
	struct hdl_srq *srq = make_srq(&w->b, 2, 1, 0);
	struct hdl_sge two[2] = {piece(&w->b, 0, 8), piece(&w->b, 8, 8)};
	struct hdl_recv_wr list[3] = {{.next = &list[1], .wr_id = 0},
	                              {.next = &list[2], .wr_id = 1, .sg_list = two, .num_sge = 2},
	                              {.wr_id = 2}};
	const struct hdl_recv_wr *bad = NULL;
	assert_int_equal(hdl_srq_post(srq, list, &bad), -HDL_EMSGSIZE);
	assert_ptr_equal(bad, &list[1]);
	list[1].num_sge = 1;
	assert_int_equal(hdl_srq_post(srq, &list[1], &bad), -HDL_ENOSPC);
	assert_ptr_equal(bad, &list[2]);
	struct hdl_srq *none;
	struct hdl_srq_attr attr = {.max_wr = 0, .max_sge = 1};
	assert_int_equal(hdl_srq_create(w->b.pd, &attr, NULL, &none), -HDL_EINVAL);
	attr = (struct hdl_srq_attr){.max_wr = HDL_MAX_SRQ_WR + 1, .max_sge = 1};
	assert_int_equal(hdl_srq_create(w->b.pd, &attr, NULL, &none), -HDL_EINVAL);
	attr = (struct hdl_srq_attr){.max_wr = 1, .max_sge = HDL_MAX_SGE + 1};
	assert_int_equal(hdl_srq_create(w->b.pd, &attr, NULL, &none), -HDL_EINVAL);
	attr = (struct hdl_srq_attr){.max_wr = 1, .max_sge = 1, .limit = 2};
	assert_int_equal(hdl_srq_create(w->b.pd, &attr, NULL, &none), -HDL_EINVAL);
}

/* A queue pair that fails leaves the requests to the others, and reports when it takes no more. */
static void error_leaves_the_shared_requests(void **state)
{
	struct world *w = *state;
	struct hdl_srq *srq = make_srq(&w->b, 16, 1, 0);
	struct hdl_qp *qa[2], *qb[2];
	for (uint32_t i = 0; i < 2; i++) {
		qa[i] = make_qp(&w->a, NULL);
		qb[i] = make_qp(&w->b, &(struct qp_options){.srq = srq});
		connect_pair(w, NULL, qa[i], qb[i]);
	}
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(post_shared(srq, i, &w->b, 0, 8), 0);
	qp_go(qb[0], HDL_QPS_ERR);
	expect_event(w, &w->b, HDL_EVENT_QP_LAST_WQE, HDL_DETAIL_NONE, qb[0]);
	expect_terminated(w, &w->a, qa[0]);
	expect_no_event(w);
	expect_nothing(w, w->b.rcq);
	for (uint32_t i = 0; i < 3; i++) {
		post_data(qa[1], i, HDL_OP_SEND, &w->a, 0, 8);
		expect_received(w, w->b.rcq, qb[1], qa[1], i, 8);
	}
	/* Too long for the shared buffer: that receive is consumed, and only this queue pair is
	 * affected. */
	assert_int_equal(post_shared(srq, 9, &w->b, 0, 8), 0);
	assert_int_equal(post_shared(srq, 10, &w->b, 0, 8), 0);
	post_data(qa[1], 9, HDL_OP_SEND, &w->a, 0, 9);
	expect_failed(w, w->b.rcq, qb[1], 9, HDL_WC_LOC_LEN_ERR, HDL_DETAIL_BOUNDS);
	expect_event(w, &w->b, HDL_EVENT_QP_LAST_WQE, HDL_DETAIL_NONE, qb[1]);
	expect_nothing(w, w->b.rcq);
}

/* The pieces of a shared receive belong to the queue's domain, whatever the queue pair's domain
 * is. */
static void pieces_are_of_the_shared_queues_domain(void **state)
{
	struct world *w = *state;
	struct hdl_srq *srq = make_srq(&w->b, 4, 1, 0);
	struct hdl_qp *qa = make_qp(&w->a, NULL);
	struct hdl_qp *qb = make_qp(&w->b, &(struct qp_options){.srq = srq, .pd = make_pd(&w->b)});
	connect_pair(w, NULL, qa, qb);
	assert_int_equal(post_shared(srq, 1, &w->b, 64, 5000), 0);
	post_data(qa, 2, HDL_OP_SEND, &w->a, 0, 5000);
	expect_sent(w, w->a.scq, qa, 2, HDL_WC_SEND, 5000);
	expect_received(w, w->b.rcq, qb, qa, 1, 5000);
	expect_copy(&w->b, 64, &w->a, 0, 5000);
	check_memory(w);
}

/* Datagrams and unreliable connections can share as well. */
static void unreliable_types_share(void **state)
{
	struct world *w = *state;
	struct hdl_srq *srq = make_srq(&w->b, 4, 1, 0);
	struct qp_options ud = {.type = HDL_QP_UD, .qkey = 3}, uc = {.type = HDL_QP_UC};
	struct hdl_qp *ud_a = make_qp(&w->a, &ud), *uc_a = make_qp(&w->a, &uc);
	ud.srq = uc.srq = srq;
	struct hdl_qp *ud_b = make_qp(&w->b, &ud), *uc_b = make_qp(&w->b, &uc);
	connect_pair(w, &ud, ud_a, ud_b);
	connect_pair(w, &uc, uc_a, uc_b);
	struct hdl_ah_attr to = {.dgid = w->b.gid, .port_num = 1};
	assert_int_equal(post_shared(srq, 1, &w->b, 64, 64), 0);
	assert_int_equal(post_shared(srq, 2, &w->b, 256, 64), 0);
	post_send(ud_a,
	          (struct hdl_send_wr){.wr_id = 1,
	                               .opcode = HDL_OP_SEND,
	                               .flags = HDL_SEND_SIGNALED,
	                               .u.ud = {make_ah(&w->a, &to), hdl_qp_number(ud_b), 3}});
	expect_wc(w, w->b.rcq,
	          &(struct hdl_wc){.wr_id = 1,
	                           .opcode = HDL_WC_RECV,
	                           .byte_len = HDL_GRH_BYTES,
	                           .flags = w->port->wire ? HDL_WC_GRH : 0,
	                           .qpn = hdl_qp_number(ud_b),
	                           .src_qpn = hdl_qp_number(ud_a)});
	post_data(uc_a, 2, HDL_OP_SEND, &w->a, 0, 8);
	expect_received(w, w->b.rcq, uc_b, uc_a, 2, 8);
}

static const struct CMUnitTest tests[] = {
        BEHAVIOUR(many_queue_pairs_share_in_order),
        BEHAVIOUR(limit_is_raised_once),
        BEHAVIOUR(limit_above_what_is_there_is_raised_at_once),
        BEHAVIOUR(resize_keeps_what_is_posted),
        BEHAVIOUR(posting_is_judged),
        BEHAVIOUR(error_leaves_the_shared_requests),
        BEHAVIOUR(pieces_are_of_the_shared_queues_domain),
        BEHAVIOUR(unreliable_types_share),
};
THEME(srq_theme, tests);
