/* Completion queues: one for many queue pairs, bounded, never silently overrun, polled by several
 * threads. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "conform.h"

static void overrun_is_an_error_never_silent(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	struct hdl_cq *small = make_cq(&w->b, 3, NULL, NULL);
	struct qp_options o = {.rcq = small};
	qa = make_qp(&w->a, NULL);
	qb = make_qp(&w->b, &o);
	connect_pair(w, NULL, qa, qb);
	for (uint32_t i = 0; i < 5; i++)
		post_recv(qb, i, &w->b, 0, 0);
	for (uint32_t i = 0; i < 5; i++)
		post_data(qa, i, HDL_OP_SEND, &w->a, 0, 0);
	expect_event(w, &w->b, HDL_EVENT_CQ_OVERRUN, HDL_DETAIL_LIMIT, small);
	expect_event(w, &w->b, HDL_EVENT_QP_FATAL, HDL_DETAIL_LIMIT, qb);
	assert_int_equal(qp_state_of(qb), HDL_QPS_ERR);
	/* Completions that were in the queue can be taken intact; after that it always reports the
	 * overrun. */
	for (uint32_t i = 0; i < 3; i++)
		expect_received(w, small, qb, qa, i, 0);
	struct hdl_wc wc;
	for (int i = 0; i < 3; i++)
		assert_int_equal(hdl_cq_poll(small, &wc, 1), -HDL_EOVERFLOW);
	/* The sender's first three succeed; of the others it is not known whether they arrived. */
	for (uint32_t i = 0; i < 3; i++)
		expect_sent(w, w->a.scq, qa, i, HDL_WC_SEND, 0);
}

static void exactly_full_is_not_overrun(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	struct hdl_cq *cq = make_cq(&w->b, 3, NULL, NULL);
	qa = make_qp(&w->a, NULL);
	qb = make_qp(&w->b, &(struct qp_options){.rcq = cq});
	connect_pair(w, NULL, qa, qb);
	for (uint32_t round = 0; round < 5; round++) {
		for (uint32_t i = 0; i < 3; i++) {
			post_recv(qb, i, &w->b, 0, 0);
			post_data(qa, i, HDL_OP_SEND, &w->a, 0, 0);
		}
		for (uint32_t i = 0; i < 3; i++)
			expect_sent(w, w->a.scq, qa, i, HDL_WC_SEND, 0);
		for (uint32_t i = 0; i < 3; i++)
			expect_received(w, cq, qb, qa, i, 0);
	}
	expect_no_event(w);
}

static void resize_keeps_content_in_order(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	struct hdl_cq *cq = make_cq(&w->b, 5, NULL, NULL);
	qa = make_qp(&w->a, NULL);
	qb = make_qp(&w->b, &(struct qp_options){.rcq = cq});
	connect_pair(w, NULL, qa, qb);
	for (uint32_t round = 0; round < 7;
	     round++) { /* so that the ends of the ring are at every position */
		for (uint32_t i = 0; i < 5; i++) {
			post_recv(qb, i, &w->b, 0, 0);
			post_data(qa, i, HDL_OP_SEND, &w->a, 0, 0);
		}
		for (uint32_t i = 0; i < 5; i++)
			expect_sent(w, w->a.scq, qa, i, HDL_WC_SEND, 0);
		assert_int_equal(hdl_cq_resize(cq, 4), -HDL_EINVAL);
		assert_int_equal(hdl_cq_resize(cq, 100), 0);
		expect_received(w, cq, qb, qa, 0, 0);
		assert_int_equal(hdl_cq_resize(cq, 4), 0);
		expect_received(w, cq, qb, qa, 1, 0);
		assert_int_equal(hdl_cq_resize(cq, 5), 0);
		for (uint32_t i = 2; i < 5; i++)
			expect_received(w, cq, qb, qa, i, 0);
		expect_nothing(w, cq);
	}
	assert_int_equal(hdl_cq_resize(cq, 0), -HDL_EINVAL);
	assert_int_equal(hdl_cq_resize(cq, HDL_MAX_CQE + 1), -HDL_EINVAL);
}

static void one_queue_for_many_queue_pairs(void **state)
{
	enum { MANY = 12, EACH = 4 };
	struct world *w = *state;
	struct hdl_qp *qa[MANY], *qb[MANY];
	/* One queue for all completions of a side. */
	struct hdl_cq *cq_a = make_cq(&w->a, 2 * MANY * EACH, NULL, NULL);
	struct hdl_cq *cq_b = make_cq(&w->b, 2 * MANY * EACH, NULL, NULL);
	unsigned sent_a[MANY] = {0}, received_a[MANY] = {0}, sent_b[MANY] = {0},
	         received_b[MANY] = {0};
	for (uint32_t i = 0; i < MANY; i++) {
		qa[i] = make_qp(&w->a, &(struct qp_options){.scq = cq_a, .rcq = cq_a});
		qb[i] = make_qp(&w->b, &(struct qp_options){.scq = cq_b, .rcq = cq_b});
		connect_pair(w, NULL, qa[i], qb[i]);
		for (uint32_t k = 0; k < EACH; k++) {
			post_recv(qa[i], i, &w->a, 0, 0);
			post_recv(qb[i], i, &w->b, 0, 0);
		}
	}
	for (uint32_t k = 0; k < EACH; k++) {
		for (uint32_t i = 0; i < MANY; i++) {
			post_data(qa[i], i, HDL_OP_SEND, &w->a, 0, 0);
			post_data(qb[i], i, HDL_OP_SEND, &w->b, 0, 0);
		}
	}
	for (uint32_t n = 0; n < 2 * MANY * EACH; n++) {
		struct hdl_wc wc;
		wait_wc(w, cq_a, &wc);
		assert_int_equal(wc.status, HDL_WC_SUCCESS);
		assert_int_equal(wc.qpn, hdl_qp_number(qa[wc.wr_id]));
		wc.opcode == HDL_WC_RECV ? received_a[wc.wr_id]++ : sent_a[wc.wr_id]++;
		wait_wc(w, cq_b, &wc);
		assert_int_equal(wc.qpn, hdl_qp_number(qb[wc.wr_id]));
		wc.opcode == HDL_WC_RECV ? received_b[wc.wr_id]++ : sent_b[wc.wr_id]++;
	}
	for (uint32_t i = 0; i < MANY; i++) {
		assert_int_equal(sent_a[i], EACH);
		assert_int_equal(sent_b[i], EACH);
		assert_int_equal(received_a[i], EACH);
		assert_int_equal(received_b[i], EACH);
	}
	expect_nothing(w, cq_a);
	expect_nothing(w, cq_b);
}

static void poll_takes_no_more_than_asked(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	for (uint32_t i = 0; i < 9; i++) {
		post_recv(qb, i, &w->b, 0, 0);
		post_data(qa, i, HDL_OP_SEND, &w->a, 0, 0);
	}
	for (uint32_t i = 0; i < 9; i++)
		expect_sent(w, w->a.scq, qa, i, HDL_WC_SEND, 0);
	struct hdl_wc wc[20] = {{0}};
	wc[4].wr_id = 0xabcd;
	assert_int_equal(hdl_cq_poll(w->b.rcq, wc, 0), 0);
	assert_int_equal(hdl_cq_poll(w->b.rcq, wc, 4), 4);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(wc[i].wr_id, i);
	assert_int_equal(wc[4].wr_id, 0xabcd);
	assert_int_equal(hdl_cq_poll(w->b.rcq, wc, 20), 5);
	assert_int_equal(wc[4].wr_id, 8);
	assert_int_equal(hdl_cq_poll(w->b.rcq, wc, 20), 0);
	assert_int_equal(hdl_cq_poll(w->b.rcq, wc, -1), -HDL_EINVAL);
	assert_int_equal(hdl_cq_poll(w->b.rcq, NULL, 1), -HDL_EINVAL);
}

static void destroy_while_used_is_refused(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	assert_int_equal(hdl_cq_destroy(w->a.scq), -HDL_EBUSY);
	assert_int_equal(hdl_cq_destroy(w->a.rcq), -HDL_EBUSY);
	assert_int_equal(hdl_pd_destroy(w->a.pd), -HDL_EBUSY);
	assert_int_equal(hdl_close(w->a.adapter), -HDL_EBUSY);
	/* Completions of a destroyed queue pair stay. */
	post_recv(qb, 1, &w->b, 0, 0);
	post_data(qa, 2, HDL_OP_SEND, &w->a, 0, 0);
	expect_received(w, w->b.rcq, qb, qa, 1, 0);
	world_settle(w);
	uint32_t number = hdl_qp_number(qa);
	drop_qp(w, qa);
	struct hdl_wc wc;
	assert_int_equal(hdl_cq_poll(w->a.scq, &wc, 1), 1);
	assert_int_equal(wc.qpn, number);
}

/* --- several threads --- */

enum { THREADS = 4, TOTAL = 5000 };

struct poller {
	struct world *w;
	struct hdl_cq *cq;
	_Atomic unsigned char *seen;
	_Atomic uint32_t *taken;
	_Atomic bool *failed;
};

static void *poll_all(void *context)
{
	struct poller *p = context;
	while (atomic_load(p->taken) < TOTAL && !atomic_load(p->failed)) {
		struct hdl_wc wc[7];
		int count = hdl_cq_poll(p->cq, wc, 7);
		if (count < 0)
			atomic_store(p->failed, true);
		if (count == 0)
			sched_yield();
		for (int i = 0; i < count; i++) {
			if (wc[i].status != HDL_WC_SUCCESS || wc[i].wr_id >= TOTAL ||
			    atomic_fetch_add(&p->seen[wc[i].wr_id], 1) != 0)
				atomic_store(p->failed, true);
			atomic_fetch_add(p->taken, 1);
		}
	}
	return NULL;
}

/* Each completion goes to exactly one of the threads. */
static void polled_by_several_threads(void **state)
{
	struct world *w = *state;
	skip_lossy(w);
	struct hdl_qp *qa, *qb;
	struct hdl_cq *cq = make_cq(&w->a, 64, NULL, NULL);
	qa = make_qp(&w->a, &(struct qp_options){.scq = cq});
	qb = make_qp(&w->b, NULL);
	connect_pair(w, NULL, qa, qb);
	void *memory = calloc(TOTAL, 1);
	_Atomic unsigned char *seen = memory;
	_Atomic uint32_t taken = 0;
	_Atomic bool failed = false;
	assert_non_null(memory);
	struct poller p = {w, cq, seen, &taken, &failed};
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, poll_all, &p), 0);
	struct hdl_sge own = piece(&w->a, 0, 8);
	for (uint32_t posted = 0; posted < TOTAL && !atomic_load(&failed);) {
		if (posted - atomic_load(&taken) >= 64) { /* the queue holds no more */
			sched_yield();
			continue;
		}
		struct hdl_send_wr wr = {.wr_id = posted,
		                         .sg_list = &own,
		                         .num_sge = 1,
		                         .opcode = HDL_OP_WRITE,
		                         .flags = HDL_SEND_SIGNALED,
		                         .u.rdma = {address(&w->b, 0), arena_key(&w->b)}};
		int result = hdl_post_send(qa, &wr, NULL);
		posted += result == 0;
		if (result != 0 && result != -HDL_ENOSPC)
			atomic_store(&failed, true);
		if (!w->port->threaded)
			world_turn(w);
	}
	while (!w->port->threaded && atomic_load(&taken) < TOTAL && !atomic_load(&failed))
		world_turn(w);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_false(atomic_load(&failed));
	for (uint32_t i = 0; i < TOTAL; i++)
		assert_int_equal(seen[i], 1);
	free(memory);
	expect_copy(&w->b, 0, &w->a, 0, 8);
	check_memory(w);
}

static const struct CMUnitTest tests[] = {
        BEHAVIOUR(overrun_is_an_error_never_silent), BEHAVIOUR(exactly_full_is_not_overrun),
        BEHAVIOUR(resize_keeps_content_in_order),    BEHAVIOUR(one_queue_for_many_queue_pairs),
        BEHAVIOUR(poll_takes_no_more_than_asked),    BEHAVIOUR(destroy_while_used_is_refused),
        BEHAVIOUR(polled_by_several_threads),
};
THEME(cq_theme, tests);
