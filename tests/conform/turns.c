/* SN1: a long request takes many turns, and what happens between them; what one poll does, and what
 * it leaves to the next. */
#include "conform.h"

#define LONG (3u << 20)

/* Start to move LONG bytes between the sides. */
static void begin_long(struct world *w, struct hdl_qp *qp, uint32_t opcode, struct hdl_key key)
{
	fill(&w->a, 0, LONG, 5);
	fill(&w->b, 0, LONG, 6);
	post_rdma(qp, 1, opcode, piece(&w->a, 0, LONG), address(&w->b, 0), key);
}

/* Is a long request in progress when the call that posted it returns? Otherwise it may be finished:
 * another thread drives, or the target executes it at once. */
static bool has_turns(const struct world *w)
{
	return w->port->in_turns && !w->port->threaded;
}

static void sn1_what_is_posted_later_passes_a_long_one(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb, *other_a, *other_b;
	struct hdl_cq *cq = make_cq(&w->a, 16, NULL, NULL);
	make_pair(w, NULL, &qa, &qb);
	other_a = make_qp(&w->a, &(struct qp_options){.scq = cq});
	other_b = make_qp(&w->b, NULL);
	connect_pair(w, NULL, other_a, other_b);
	begin_long(w, qa, HDL_OP_WRITE, arena_key(&w->b));
	fill(&w->a, LONG, 5000, 7);
	post_rdma(other_a, 2, HDL_OP_WRITE, piece(&w->a, LONG, 5000), address(&w->b, LONG),
	          arena_key(&w->b));
	struct hdl_wc wc;
	if (has_turns(w)) {
		assert_int_equal(hdl_cq_poll(cq, &wc, 1), 1);
		assert_int_equal(wc.wr_id, 2);
		assert_int_equal(hdl_cq_poll(w->a.scq, &wc, 1), 0);
	} else {
		expect_sent(w, cq, other_a, 2, HDL_WC_WRITE, 5000);
	}
	expect_sent(w, w->a.scq, qa, 1, HDL_WC_WRITE, LONG);
	expect_copy(&w->b, 0, &w->a, 0, LONG);
	expect_copy(&w->b, LONG, &w->a, LONG, 5000);
	check_memory(w);
}

/* More than one turn's worth of short requests, posted in one call: all complete, each in its
 * place, in order. */
static void sn1_a_long_list_of_short_ones(void **state)
{
	enum { REQUESTS = 200 };
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	struct hdl_cq *cq = make_cq(&w->a, REQUESTS, NULL, NULL);
	struct hdl_send_wr wr[REQUESTS];
	struct hdl_sge from[REQUESTS];
	if (w->port->messages)
		skip(); /* writes are placed as they come (RFC 5041 section 5.3) */
	qa = make_qp(&w->a, &(struct qp_options){.cap.max_send_wr = REQUESTS, .scq = cq});
	qb = make_qp(&w->b, NULL);
	connect_pair(w, NULL, qa, qb);
	fill(&w->a, 0, 64 * REQUESTS, 5);
	for (uint32_t i = 0; i < REQUESTS; i++) {
		/* Neighbours overlap: each overwrites a part of the one before. */
		from[i] = piece(&w->a, 64 * (size_t)i, 64);
		wr[i] = (struct hdl_send_wr){.next = i + 1 < REQUESTS ? &wr[i + 1] : NULL,
		                             .wr_id = i,
		                             .opcode = HDL_OP_WRITE,
		                             .flags = HDL_SEND_SIGNALED,
		                             .sg_list = &from[i],
		                             .num_sge = 1,
		                             .u.rdma = {.addr = address(&w->b, 32 * (size_t)i),
		                                        .key = arena_key(&w->b)}};
	}
	assert_int_equal(hdl_post_send(qa, wr, NULL), 0);
	for (uint32_t i = 0; i < REQUESTS; i++)
		expect_sent(w, cq, qa, i, HDL_WC_WRITE, 64);
	for (uint32_t i = 0; i < REQUESTS; i++)
		expect_copy(&w->b, 32 * (size_t)i, &w->a, 64 * (size_t)i,
		            i + 1 < REQUESTS ? 32 : 64);
	check_memory(w);
}

static void sn1_a_long_one_is_finished_before_the_queue_rests(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	begin_long(w, qa, HDL_OP_READ, arena_key(&w->b));
	qp_go(qa, HDL_QPS_SQD);
	expect_sent(w, w->a.scq, qa, 1, HDL_WC_READ, LONG);
	expect_event(w, &w->a, HDL_EVENT_SQ_DRAINED, HDL_DETAIL_NONE, qa);
	expect_copy(&w->a, 0, &w->b, 0, LONG);
	check_memory(w);
	expect_no_event(w);
}

/* It is not known then which part of the target was written. */
static void forget_target(struct world *w)
{
	memcpy(w->b.shadow, w->b.mem, LONG);
}

static void sn1_a_long_one_ends_with_its_queue_pair(void **state)
{
	static const enum hdl_qp_state ends[] = {HDL_QPS_ERR, HDL_QPS_RESET};
	struct world *w = *state;
	if (!has_turns(w))
		skip();
	for (uint32_t i = 0; i < COUNT(ends); i++) {
		struct hdl_qp *qa, *qb;
		make_pair(w, NULL, &qa, &qb);
		begin_long(w, qa, HDL_OP_WRITE, arena_key(&w->b));
		qp_go(qa, ends[i]);
		if (ends[i] == HDL_QPS_ERR)
			expect_flushed(w, w->a.scq, qa, 1);
		forget_target(w);
		world_settle(w);
		expect_nothing(w, w->a.scq);
		check_memory(w); /* nothing is written any longer */
	}
}

static void sn1_the_region_of_a_long_one_goes(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	if (!has_turns(w))
		skip();
	make_pair(w, NULL, &qa, &qb);
	struct hdl_mr *mr = make_mr(&w->b, 0, LONG, HDL_ACCESS_REMOTE_WRITE | LOCAL_BOTH);
	begin_long(w, qa, HDL_OP_WRITE, hdl_mr_key(mr));
	assert_int_equal(hdl_mr_deregister(mr), 0);
	forget_object(w, mr);
	forget_target(w);
	expect_refused(w, w->a.scq, qa, 1, HDL_WC_REM_ACCESS_ERR, HDL_DETAIL_NOT_VALID);
	expect_event(w, &w->b, HDL_EVENT_QP_ACCESS_ERR, HDL_DETAIL_NOT_VALID, qb);
	check_memory(w);
}

/* Do the sides communicate through lanes, and does nothing happen except in calls of the test? */
static bool moves_by_calls(const struct world *w)
{
	return !w->port->threaded && !w->port->wire && !w->port->stream && !w->port->one_adapter;
}

static void sn1_a_poll_lets_go_on_what_waited_for_an_answer(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	struct hdl_wc wc;
	if (!moves_by_calls(w) || !w->port->in_turns)
		skip();
	make_pair(w, NULL, &qa, &qb);
	post_recv(qa, 1, &w->a, 0, 64);
	post_recv(qb, 2, &w->b, 0, 64);
	fill(&w->a, 64, 16, 3);
	fill(&w->b, 64, 8, 4);
	post_data(qa, 3, HDL_OP_SEND, &w->a, 64, 8);
	post_rdma(qa, 4, HDL_OP_WRITE, piece(&w->a, 72, 8), address(&w->b, 128), arena_key(&w->b));
	expect_received(w, w->b.rcq, qb, qa, 2, 8);
	expect_copy(&w->b, 0, &w->a, 64, 8);
	post_data(qb, 5, HDL_OP_SEND, &w->b, 64, 8);
	assert_int_equal(hdl_cq_poll(w->a.rcq, &wc, 1), 1);
	assert_int_equal(wc.wr_id, 1);
	expect_copy(&w->a, 0, &w->b, 64, 8);
	expect_copy(&w->b, 128, &w->a, 72, 8);
	check_memory(w);
}

static void sn1_who_polls_one_by_one_answers_as_it_goes(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	struct hdl_wc wc[2];
	if (!moves_by_calls(w))
		skip();
	make_pair(w, NULL, &qa, &qb);
	for (uint64_t i = 0; i < 2; i++) {
		post_recv(qb, i, &w->b, i * 64, 64);
		post_data(qa, i, HDL_OP_SEND, &w->a, 0, 8);
	}
	for (uint64_t i = 0; i < 2; i++) {
		assert_int_equal(hdl_cq_poll(w->b.rcq, wc, 1), 1);
		assert_int_equal(wc[0].wr_id, i);
		expect_copy(&w->b, i * 64, &w->a, 0, 8);
	}
	assert_int_equal(hdl_cq_poll(w->a.scq, wc, 2), 2);
	check_memory(w);
}

static void sn1_a_busy_connection_does_not_keep_others_waiting(void **state)
{
	enum { MANY = 40 };
	struct world *w = *state;
	struct hdl_qp *qa, *qb, *other_a, *other_b;
	struct hdl_wc wc;
	if (!moves_by_calls(w))
		skip();
	struct hdl_cq *cq = make_cq(&w->a, 16, NULL, NULL);
	make_pair(w, NULL, &qa, &qb);
	other_a = make_qp(&w->a, &(struct qp_options){.scq = cq});
	other_b = make_qp(&w->b, NULL);
	connect_pair(w, NULL, other_a, other_b);
	/* It has arrived, and its acknowledgement waits for a call that has time for it. */
	post_recv(other_b, 100, &w->b, 0, 64);
	post_data(other_a, 101, HDL_OP_SEND, &w->a, 0, 8);
	assert_int_equal(hdl_cq_poll(w->b.rcq, &wc, 1), 1);
	expect_copy(&w->b, 0, &w->a, 0, 8);
	uint32_t polls = 0;
	for (; polls < MANY && hdl_cq_poll(cq, &wc, 1) == 0; polls++) {
		/* The other side always finds what it polls for. */
		post_recv(qb, 1, &w->b, 64, 64);
		post_recv(qa, 2, &w->a, 64, 64);
		post_data(qa, 3, HDL_OP_SEND, &w->a, 0, 8);
		assert_int_equal(hdl_cq_poll(w->b.rcq, &wc, 1), 1);
		if (polls > 0)
			assert_int_equal(hdl_cq_poll(w->b.scq, &wc, 1), 1);
		post_data(qb, 4, HDL_OP_SEND, &w->b, 0, 8);
		assert_int_equal(hdl_cq_poll(w->a.rcq, &wc, 1), 1);
		assert_int_equal(hdl_cq_poll(w->a.scq, &wc, 1), 1);
		expect_copy(&w->b, 64, &w->a, 0, 8);
		expect_copy(&w->a, 64, &w->b, 0, 8);
	}
	assert_true(polls < MANY);
	assert_int_equal(wc.wr_id, 101);
	check_memory(w);
}

static const struct CMUnitTest tests[] = {
        BEHAVIOUR(sn1_a_poll_lets_go_on_what_waited_for_an_answer),
        BEHAVIOUR(sn1_who_polls_one_by_one_answers_as_it_goes),
        BEHAVIOUR(sn1_a_busy_connection_does_not_keep_others_waiting),
        BEHAVIOUR(sn1_a_long_list_of_short_ones),
        BIG_BEHAVIOUR(sn1_what_is_posted_later_passes_a_long_one),
        BIG_BEHAVIOUR(sn1_a_long_one_is_finished_before_the_queue_rests),
        BIG_BEHAVIOUR(sn1_a_long_one_ends_with_its_queue_pair),
        BIG_BEHAVIOUR(sn1_the_region_of_a_long_one_goes),
};
THEME(turns_theme, tests);
