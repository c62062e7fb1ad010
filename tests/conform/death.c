/* A peer that dies: whenever that happens, its peers learn of it, nothing hangs, and a new peer can
 * take its place. */
#include "conform.h"

/* Side b dies without any cleanup. Its objects are gone with it. */
static void b_dies(struct world *w, struct hdl_qp **mine, size_t count, struct hdl_qp *theirs)
{
	struct hdl_qp *kept[MAX_OBJECTS] = {NULL};
	struct hdl_mr *mr = w->a.mr;
	for (size_t i = 0; i < count; i++)
		kept[i] = mine[i];
	memset(w->qps, 0, sizeof(w->qps));
	memset(w->mrs, 0, sizeof(w->mrs));
	memset(w->cqs, 0, sizeof(w->cqs));
	memset(w->pds, 0, sizeof(w->pds));
	memcpy(w->qps, kept, sizeof(kept));
	w->mrs[0] = mr;
	w->cqs[0] = w->a.scq;
	w->cqs[1] = w->a.rcq;
	w->pds[0] = w->a.pd;
	/* Their handles are never used again; this tells LeakSanitizer that the leak is
	 * intended. */
	static void *graves[5 * MAX_OBJECTS];
	static size_t grave_count;
	void *dead[] = {w->b.pd, w->b.scq, w->b.rcq, w->b.mr, theirs};
	for (size_t i = 0; i < COUNT(dead) && grave_count < COUNT(graves); i++)
		graves[grave_count++] = dead[i];
	(void)graves;
	w->port->kill(w->b.adapter);
	w->b.adapter = NULL;
}

static void death_fails_what_is_in_flight(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	if (w->port->one_adapter)
		skip();
	make_pair(w, NULL, &qa, &qb);
	struct hdl_gid gid = w->b.gid;
	for (uint32_t i = 0; i < 3; i++) {
		post_recv(qa, 10 + i, &w->a, 0, 8);
		post_data(qa, i, HDL_OP_SEND, &w->a, 0, 5000 * i); /* no receive at b */
	}
	post_rdma(qa, 3, HDL_OP_WRITE, piece(&w->a, 0, 8), address(&w->b, 0), arena_key(&w->b));
	if (!w->port->threaded)
		world_settle(w);
	b_dies(w, &qa, 1, qb);
	expect_lost_peer(w, &w->a, &gid, qa);
	/* The oldest says why (unless its turn had not come); the others are flushed, in order. */
	struct hdl_wc wc;
	for (uint32_t i = 0; i < 4; i++) {
		wait_wc(w, w->a.scq, &wc);
		assert_int_equal(wc.wr_id, i);
		assert_true(wc.status == HDL_WC_WR_FLUSH_ERR ||
		            (i == 0 && wc.status == HDL_WC_RETRY_EXC_ERR) ||
		            (w->port->stream && wc.status == HDL_WC_SUCCESS));
	}
	for (uint32_t i = 0; i < 3; i++)
		expect_flushed(w, w->a.rcq, qa, 10 + i);
	assert_int_equal(qp_state_of(qa), HDL_QPS_ERR);
	check_memory(w);
	/* There is no such peer any more. (A node may exist without the process; and a wire does
	 * not know which adapter has an address.) */
	if (w->port->one_address || w->port->wire)
		return;
	struct hdl_qp *again = make_qp(&w->a, NULL);
	qp_to_init(again, NULL);
	struct hdl_qp_attr attr = {.state = HDL_QPS_RTR,
	                           .ah = {.dgid = gid, .port_num = 1},
	                           .path_mtu = 1024,
	                           .min_rnr_timer = 1};
	assert_int_equal(hdl_qp_modify(again, &attr,
	                               HDL_QP_STATE | HDL_QP_AV | HDL_QP_PATH_MTU |
	                                       HDL_QP_DEST_QPN | HDL_QP_RQ_PSN |
	                                       HDL_QP_MAX_DEST_RD_ATOMIC | HDL_QP_MIN_RNR_TIMER),
	                 -HDL_EHOSTUNREACH);
	expect_no_event(w);
}

/* A message that was received is complete, even if the receiver died before it acknowledged. */
static void what_was_received_completes_after_death(void **state)
{
	struct world *w = *state;
	if (w->port->stream)
		skip(); /* what the stream has taken is over */
	struct hdl_qp *qa, *qb;
	if (w->port->one_adapter || w->port->wire)
		skip(); /* on a wire the acknowledgement dies with the receiver */
	make_pair(w, NULL, &qa, &qb);
	struct hdl_gid gid = w->b.gid;
	post_recv(qb, 1, &w->b, 64, 100);
	post_data(qa, 2, HDL_OP_SEND, &w->a, 0, 100);
	struct hdl_wc wc = {0};
	/* Not world_pump(): the sender must not get the acknowledgement. */
	int got = 0;
	uint64_t start = world_now(w);
	for (uint32_t i = 0; got == 0 && i < 1000000 && !world_expired(w, start);
	     i += !w->port->threaded)
		got = hdl_cq_poll(w->b.rcq, &wc, 1);
	assert_int_equal(got, 1);
	assert_int_equal(wc.wr_id, 1);
	b_dies(w, &qa, 1, qb);
	expect_sent(w, w->a.scq, qa, 2, HDL_WC_SEND, 100);
	expect_lost_peer(w, &w->a, &gid, qa);
}

static void datagrams_to_the_dead_vanish(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	if (w->port->one_adapter)
		skip();
	struct qp_options ud = {.type = HDL_QP_UD, .qkey = 1};
	make_pair(w, &ud, &qa, &qb);
	struct hdl_gid gid = w->b.gid;
	uint32_t number = hdl_qp_number(qb);
	struct hdl_ah_attr to = {.dgid = gid, .port_num = 1};
	struct hdl_ah *ah = make_ah(&w->a, &to);
	b_dies(w, &qa, 1, qb);
	for (uint32_t i = 0; i < 20; i++) {
		post_send(qa, (struct hdl_send_wr){.wr_id = i,
		                                   .opcode = HDL_OP_SEND,
		                                   .flags = HDL_SEND_SIGNALED,
		                                   .u.ud = {ah, number, 1}});
		expect_sent(w, w->a.scq, qa, i, HDL_WC_SEND, 0);
	}
	assert_int_equal(qp_state_of(qa), HDL_QPS_RTS); /* losing one peer is no reason to fail */
	expect_peer_gone(w, &w->a, &gid);
	expect_no_event(w);
}

/* Open and join b again, with new objects, and exchange messages. */
static void rejoin_and_talk(struct world *w)
{
	struct hdl_open_attr attr = {.max_qp = 64, .max_mr = 256};
	struct hdl_limits limits;
	struct hdl_qp *qa, *qb;
	assert_int_equal(w->port->open(w, &w->b.adapter, &attr), 0);
	assert_int_equal(w->port->join(w, w->a.adapter, w->b.adapter), 0);
	assert_int_equal(hdl_adapter_query(w->b.adapter, &limits), 0);
	w->b.gid = limits.gid;
	w->b.pd = make_pd(&w->b);
	w->b.scq = make_cq(&w->b, 64, NULL, NULL);
	w->b.rcq = make_cq(&w->b, 64, NULL, NULL);
	w->b.mr = make_mr(&w->b, 0, w->b.bytes, LOCAL_BOTH | REMOTE_ALL);
	make_pair(w, NULL, &qa, &qb);
	post_recv(qb, 1, &w->b, 64, 9000);
	post_data(qa, 2, HDL_OP_SEND, &w->a, 0, 9000);
	post_rdma(qa, 3, HDL_OP_READ, piece(&w->a, 20000, 64), address(&w->b, 0), arena_key(&w->b));
	expect_sent(w, w->a.scq, qa, 2, HDL_WC_SEND, 9000);
	expect_received(w, w->b.rcq, qb, qa, 1, 9000);
	expect_sent(w, w->a.scq, qa, 3, HDL_WC_READ, 64);
	expect_copy(&w->b, 64, &w->a, 0, 9000);
	expect_copy(&w->a, 20000, &w->b, 0, 64);
	check_memory(w);
	drop_qp(w, qa);
	drop_qp(w, qb);
}

static void rejoin_after_death(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	if (w->port->one_adapter)
		skip();
	for (uint32_t round = 0; round < 5; round++) {
		make_pair(w, NULL, &qa, &qb);
		struct hdl_gid gid = w->b.gid;
		for (uint32_t i = 0; i < round; i++)
			post_data(qa, i, HDL_OP_SEND, &w->a, 0, 100);
		b_dies(w, &qa, 1, qb);
		expect_lost_peer(w, &w->a, &gid, qa);
		struct hdl_wc wc;
		for (uint32_t i = 0; i < round; i++)
			wait_wc(w, w->a.scq, &wc);
		drop_qp(w, qa);
		rejoin_and_talk(w);
	}
}

/* Side b, whose queue pair has been destroyed, ends in order. */
static void b_leaves(struct world *w)
{
	struct hdl_gid gid = w->b.gid;
	forget_object(w, w->b.mr);
	assert_int_equal(hdl_mr_deregister(w->b.mr), 0);
	forget_object(w, w->b.scq);
	forget_object(w, w->b.rcq);
	forget_object(w, w->b.pd);
	assert_int_equal(hdl_close(w->b.adapter), -HDL_EBUSY);
	assert_int_equal(hdl_cq_destroy(w->b.scq), 0);
	assert_int_equal(hdl_cq_destroy(w->b.rcq), 0);
	assert_int_equal(hdl_pd_destroy(w->b.pd), 0);
	assert_int_equal(hdl_close(w->b.adapter), 0);
	w->b.adapter = NULL;
	expect_peer_gone(w, &w->a, &gid);
}

/* A side that destroys its queue pair before it ends does not affect the other's, as on a wire;
 * what is sent then gets no answer. */
static void an_orderly_end_fails_nothing(void **state)
{
	struct world *w = *state;
	if (w->port->stream)
		skip(); /* both ends of a stream end together */
	struct hdl_qp *qa, *qb;
	if (w->port->one_adapter)
		skip();
	make_pair(w, NULL, &qa, &qb);
	post_recv(qa, 1, &w->a, 0, 8);
	drop_qp(w, qb);
	b_leaves(w);
	expect_no_event(w);
	expect_nothing(w, w->a.rcq);
	assert_int_equal(qp_state_of(qa), HDL_QPS_RTS);
	struct hdl_wc wc;
	post_data(qa, 2, HDL_OP_SEND, &w->a, 0, 8);
	wait_wc(w, w->a.scq, &wc);
	assert_int_equal(wc.status, HDL_WC_RETRY_EXC_ERR);
	expect_flushed(w, w->a.rcq, qa, 1);
	drop_qp(w, qa);
	rejoin_and_talk(w);
}

/* What was sent to it before fails no sooner than on a wire, when its retries are used up: a
 * program that has what it wanted is not disturbed. */
static void an_orderly_end_fails_nothing_at_once(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	struct hdl_wc wc;
	if (w->port->one_adapter || w->port->stream || w->port->threaded)
		skip(); /* threads may be late, and time runs */
	make_pair(w, NULL, &qa, &qb);
	post_recv(qb, 1, &w->b, 64, 100);
	post_data(qa, 2, HDL_OP_SEND, &w->a, 0, 100);
	expect_sent(w, w->a.scq, qa, 2, HDL_WC_SEND, 100);
	expect_received(w, w->b.rcq, qb, qa, 1, 100);
	drop_qp(w, qb);
	for (uint32_t i = 3; i < 6; i++)
		post_data(qa, i, HDL_OP_SEND, &w->a, 0, 100);
	(void)hdl_progress(w->a.adapter);
	b_leaves(w);
	assert_int_equal(hdl_cq_poll(w->a.scq, &wc, 1), 0);
	assert_int_equal(qp_state_of(qa), HDL_QPS_RTS);
	wait_wc(w, w->a.scq, &wc);
	assert_int_equal(wc.wr_id, 3);
	assert_int_equal(wc.status, HDL_WC_RETRY_EXC_ERR);
	for (uint32_t i = 4; i < 6; i++)
		expect_flushed(w, w->a.scq, qa, i);
	drop_qp(w, qa);
	rejoin_and_talk(w);
}

static void joining_is_judged(void **state)
{
	struct world *w = *state;
	if (w->port->one_adapter || w->port->wire)
		skip(); /* a wire has no join */
	assert_int_equal(hdl_join(w->a.adapter, w->b.adapter), -HDL_EINVAL); /* joined already */
	assert_int_equal(hdl_join(w->b.adapter, w->a.adapter), -HDL_EINVAL);
	assert_int_equal(hdl_join(w->a.adapter, w->a.adapter), -HDL_EINVAL);
	assert_int_equal(hdl_join(w->a.adapter, NULL), -HDL_EINVAL);
	struct hdl_open_attr same = {.gid = w->b.gid, .max_qp = 16, .max_mr = 16};
	struct hdl_adapter *twin;
	assert_int_equal(w->port->open(w, &twin, &same), 0);
	assert_int_equal(hdl_join(w->b.adapter, twin), -HDL_EINVAL); /* both have the same GID */
	assert_int_equal(hdl_join(w->a.adapter, twin),
	                 -HDL_EINVAL); /* a already knows a peer with this GID */
	assert_int_equal(hdl_close(twin), 0);
}

static const struct CMUnitTest tests[] = {
        BEHAVIOUR(death_fails_what_is_in_flight),
        BEHAVIOUR(what_was_received_completes_after_death),
        BEHAVIOUR(datagrams_to_the_dead_vanish),
        BEHAVIOUR(rejoin_after_death),
        BEHAVIOUR(an_orderly_end_fails_nothing),
        BEHAVIOUR(an_orderly_end_fails_nothing_at_once),
        BEHAVIOUR(joining_is_judged),
};
THEME(death_theme, tests);
