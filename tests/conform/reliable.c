/* Reliable datagrams (STATUS row SN2): queue pairs that talk to any other through a context that
 * they share: on networks, and in lanes. */
#include <stdlib.h>

#include "conform.h"

#define QUEUE_PAIRS 3u
#define QKEY        0x1e55u
#define HALF        (ARENA_BYTES / 2)

struct end {
	struct side *side;
	struct hdl_rdd *rdd;
	struct hdl_eec *eec;
	struct hdl_qp *qps[QUEUE_PAIRS];
};

struct ends {
	struct world *w;
	struct end a, b;
};

static void make_end(struct end *end, struct side *side)
{
	end->side = side;
	assert_int_equal(hdl_rdd_open(side->adapter, &end->rdd), 0);
	assert_int_equal(hdl_eec_create(end->rdd, &end->eec), 0);
	for (uint32_t i = 0; i < QUEUE_PAIRS; i++) {
		struct qp_options o = {.type = HDL_QP_RD, .rdd = end->rdd};
		struct hdl_qp_attr attr = {.state = HDL_QPS_INIT,
		                           .port_num = 1,
		                           .qkey = QKEY,
		                           .access = REMOTE_ALL,
		                           .min_rnr_timer = 1};
		struct hdl_qp *qp = end->qps[i] = make_qp(side, &o);
		assert_int_equal(hdl_qp_modify(qp, &attr,
		                               HDL_QP_STATE | HDL_QP_PKEY_INDEX | HDL_QP_PORT |
		                                       HDL_QP_QKEY | HDL_QP_ACCESS |
		                                       HDL_QP_MIN_RNR_TIMER),
		                 0);
		qp_go(qp, HDL_QPS_RTR);
		qp_go(qp, HDL_QPS_RTS);
	}
}

/* 0, or the error. */
static int connect_end(const struct end *end, const struct end *peer, uint8_t rnr_retry)
{
	bool lossy = end->side->world->port->lossy;
	struct hdl_qp_attr attr = {
	        .state = HDL_QPS_INIT,
	        .port_num = 1,
	        .ah = {.dgid = peer->side->gid, .port_num = 1, .is_global = true, .hop_limit = 64},
	        .path_mtu = 1024,
	        .dest_qpn = hdl_eec_number(peer->eec),
	        .rq_psn = 0xfffffe,
	        .sq_psn = 0xfffffe,
	        .max_dest_rd_atomic = 1,
	        .max_rd_atomic = 1,
	        .timeout = lossy ? 8 : 12,
	        .retry_cnt = 7,
	        .rnr_retry = rnr_retry};
	assert_int_equal(
	        hdl_eec_modify(end->eec, &attr, HDL_QP_STATE | HDL_QP_PKEY_INDEX | HDL_QP_PORT), 0);
	attr.state = HDL_QPS_RTR;
	int result = hdl_eec_modify(end->eec, &attr,
	                            HDL_QP_STATE | HDL_QP_AV | HDL_QP_PATH_MTU | HDL_QP_DEST_QPN |
	                                    HDL_QP_RQ_PSN | HDL_QP_MAX_DEST_RD_ATOMIC);
	if (result != 0)
		return result;
	attr.state = HDL_QPS_RTS;
	return hdl_eec_modify(end->eec, &attr,
	                      HDL_QP_STATE | HDL_QP_SQ_PSN | HDL_QP_TIMEOUT | HDL_QP_RETRY_CNT |
	                              HDL_QP_RNR_RETRY | HDL_QP_MAX_RD_ATOMIC);
}

static void take_apart(struct end *end)
{
	for (uint32_t i = 0; i < QUEUE_PAIRS; i++)
		drop_qp(end->side->world, end->qps[i]);
	assert_int_equal(hdl_eec_destroy(end->eec), 0);
	assert_int_equal(hdl_rdd_close(end->rdd), 0);
}

static void finish(struct ends *e)
{
	take_apart(&e->a);
	take_apart(&e->b);
}

static void begin(struct ends *e, struct world *w, uint8_t rnr_retry)
{
	*e = (struct ends){.w = w};
	make_end(&e->a, &w->a);
	make_end(&e->b, &w->b);
	assert_int_equal(connect_end(&e->a, &e->b, rnr_retry), 0);
	assert_int_equal(connect_end(&e->b, &e->a, rnr_retry), 0);
}

static struct hdl_send_wr to_b(const struct ends *e, uint32_t which, uint64_t wr_id,
                               uint32_t opcode, struct hdl_sge *one)
{
	return (struct hdl_send_wr){.wr_id = wr_id,
	                            .opcode = opcode,
	                            .flags = HDL_SEND_SIGNALED,
	                            .sg_list = one,
	                            .num_sge = one->length > 0,
	                            .imm = 0x600d,
	                            .rd = {e->a.eec, hdl_qp_number(e->b.qps[which]), QKEY}};
}

static void expect_from_a(struct ends *e, uint32_t from, uint32_t to, uint64_t wr_id,
                          uint32_t opcode, uint32_t length, bool immediate)
{
	struct hdl_wc want = {.wr_id = wr_id,
	                      .opcode = opcode,
	                      .byte_len = length,
	                      .imm = immediate ? 0x600d : 0,
	                      .qpn = hdl_qp_number(e->b.qps[to]),
	                      .src_qpn = hdl_qp_number(e->a.qps[from]),
	                      .eecn = hdl_eec_number(e->b.eec),
	                      .flags = immediate ? HDL_WC_WITH_IMM : 0};
	expect_wc(e->w, e->w->b.rcq, &want);
}

static void sn2_rd_every_operation(void **state)
{
	struct world *w = *state;
	if (w->port->stream || w->port->cells)
		skip(); /* iWARP has reliable connections alone */
	struct ends e;
	begin(&e, w, 7);
	static const uint32_t sizes[] = {0, 1, 64, 1024, 1025, 9000};
	struct hdl_qp *qp = e.a.qps[0];
	for (size_t i = 0; i < COUNT(sizes); i++) {
		uint32_t size = sizes[i];
		struct hdl_sge one = piece(&w->a, 0, size);
		fill(&w->a, 0, size, (uint32_t)i);
		post_recv(e.b.qps[1], 10 + i, &w->b, HALF, 9000);
		post_send(qp, to_b(&e, 1, i, HDL_OP_SEND_IMM, &one));
		expect_sent(w, w->a.scq, qp, i, HDL_WC_SEND, size);
		expect_from_a(&e, 0, 1, 10 + i, HDL_WC_RECV, size, true);
		expect_copy(&w->b, HALF, &w->a, 0, size);
		check_memory(w);
		/* Written back to another place, and read from there. */
		fill(&w->a, 0, size, 100 + (uint32_t)i);
		struct hdl_send_wr wr = to_b(&e, 1, 20 + i, HDL_OP_WRITE, &one);
		set_target(&wr, address(&w->b, HALF), arena_key(&w->b));
		post_send(qp, wr);
		expect_sent(w, w->a.scq, qp, 20 + i, HDL_WC_WRITE, size);
		expect_copy(&w->b, HALF, &w->a, 0, size);
		check_memory(w);
		one = piece(&w->a, 10240, size);
		wr = to_b(&e, 2, 30 + i, HDL_OP_READ, &one);
		set_target(&wr, address(&w->b, HALF), arena_key(&w->b));
		post_send(qp, wr);
		expect_copy(&w->a, 10240, &w->b, HALF, size);
		expect_sent(w, w->a.scq, qp, 30 + i, HDL_WC_READ, size);
		check_memory(w);
	}
	struct hdl_sge one = piece(&w->a, 0, 8);
	uint64_t first = 41, sum = 42;
	memcpy(w->b.mem + HALF, &first, 8);
	expect_bytes(&w->b, HALF, &sum, 8);
	expect_bytes(&w->a, 0, &first, 8);
	struct hdl_send_wr wr = to_b(&e, 0, 50, HDL_OP_FETCH_ADD, &one);
	wr.u.atomic.addr = address(&w->b, HALF);
	wr.u.atomic.key = arena_key(&w->b);
	wr.u.atomic.compare_add = 1;
	post_send(qp, wr);
	expect_sent(w, w->a.scq, qp, 50, HDL_WC_FETCH_ADD, 8);
	check_memory(w);
	finish(&e);
}

/* All queue pairs of one side send to all of the other side, through one context. */
static void sn2_rd_all_share_a_context(void **state)
{
	struct world *w = *state;
	if (w->port->stream || w->port->cells)
		skip(); /* iWARP has reliable connections alone */
	struct ends e;
	begin(&e, w, 7);
	for (uint32_t i = 0; i < QUEUE_PAIRS; i++)
		for (uint32_t k = 0; k < QUEUE_PAIRS; k++) {
			size_t slot = (size_t)(i * QUEUE_PAIRS + k) * 2048;
			fill(&w->a, slot, 2000, i * 10 + k);
			struct hdl_sge one = piece(&w->a, slot, 2000);
			post_recv(e.b.qps[k], i, &w->b, HALF + (i * QUEUE_PAIRS + k) * 2048, 2000);
			post_send(e.a.qps[i], to_b(&e, k, i * 10 + k, HDL_OP_SEND_IMM, &one));
		}
	uint32_t next[QUEUE_PAIRS] = {0}; /* messages of each that have completed */
	for (uint32_t n = 0; n < QUEUE_PAIRS * QUEUE_PAIRS; n++) {
		struct hdl_wc sent, came;
		wait_wc(w, w->a.scq, &sent);
		uint32_t i = (uint32_t)sent.wr_id / 10;
		assert_int_equal(sent.status, HDL_WC_SUCCESS);
		assert_int_equal(sent.wr_id, i * 10 + next[i]++);
		wait_wc(w, w->b.rcq, &came);
		assert_int_equal(came.status, HDL_WC_SUCCESS);
		assert_int_equal(came.byte_len, 2000);
		assert_int_equal(came.eecn, hdl_eec_number(e.b.eec));
		/* In turn: they arrive in the order in which they were sent. */
		assert_int_equal(came.src_qpn, sent.qpn);
		uint32_t k = (uint32_t)sent.wr_id % 10;
		assert_int_equal(came.qpn, hdl_qp_number(e.b.qps[k]));
		expect_copy(&w->b, HALF + (came.wr_id * QUEUE_PAIRS + k) * 2048, &w->a,
		            (size_t)(i * QUEUE_PAIRS + k) * 2048, 2000);
	}
	check_memory(w);
	finish(&e);
}

static void sn2_rd_an_error_ends_one_message(void **state)
{
	struct world *w = *state;
	if (w->port->stream || w->port->cells)
		skip(); /* iWARP has reliable connections alone */
	struct ends e;
	begin(&e, w, 1);
	struct hdl_sge one = piece(&w->a, 0, 100);
	fill(&w->a, 0, 100, 9);
	static const uint32_t status[] = {HDL_WC_REM_INV_RD_REQ_ERR, HDL_WC_REM_INV_RD_REQ_ERR,
	                                  HDL_WC_RNR_RETRY_EXC_ERR, HDL_WC_REM_INV_REQ_ERR,
	                                  HDL_WC_REM_ACCESS_ERR};
	for (uint32_t i = 0; i < COUNT(status); i++) {
		struct hdl_send_wr wr = to_b(&e, 0, i, HDL_OP_SEND_IMM, &one);
		struct hdl_send_wr good = to_b(&e, 1, 10 + i, HDL_OP_SEND_IMM, &one);
		if (i == 0)
			wr.rd.qkey++;
		if (i == 1)
			wr.rd.qpn ^= 0x1000;
		if (i == 3)
			post_recv(e.b.qps[0], 20, &w->b, HALF, 99);
		if (i == 4) {
			wr.opcode = HDL_OP_WRITE;
			set_target(&wr, address(&w->b, HALF),
			           (struct hdl_key){arena_key(&w->b).v ^ 1});
		}
		post_recv(e.b.qps[1], 30, &w->b, HALF, 100);
		post_send(e.a.qps[0], wr);
		post_send(e.a.qps[0], good);
		expect_failed(w, w->a.scq, e.a.qps[0], i, status[i], HDL_DETAIL_NONE);
		expect_sent(w, w->a.scq, e.a.qps[0], 10 + i, HDL_WC_SEND, 100);
		if (i == 3)
			expect_failed(w, w->b.rcq, e.b.qps[0], 20, HDL_WC_LOC_LEN_ERR,
			              HDL_DETAIL_BOUNDS);
		expect_from_a(&e, 0, 1, 30, HDL_WC_RECV, 100, true);
		expect_copy(&w->b, HALF, &w->a, 0, 100);
		check_memory(w);
		assert_int_equal(qp_state_of(e.a.qps[0]), HDL_QPS_RTS);
		assert_int_equal(qp_state_of(e.b.qps[0]), HDL_QPS_RTS);
	}
	expect_no_event(w);
	finish(&e);
}

static void sn2_rd_a_silent_peer_fails_the_context(void **state)
{
	struct world *w = *state;
	if (w->port->stream || w->port->cells)
		skip(); /* iWARP has reliable connections alone */
	struct ends e;
	begin(&e, w, 7);
	struct hdl_qp_attr reset = {.state = HDL_QPS_RESET}, attr;
	struct hdl_sge one = piece(&w->a, 0, 100);
	assert_int_equal(hdl_eec_modify(e.b.eec, &reset, HDL_QP_STATE), 0);
	for (uint32_t i = 0; i < QUEUE_PAIRS; i++)
		post_send(e.a.qps[i], to_b(&e, 0, i, HDL_OP_SEND, &one));
	expect_failed(w, w->a.scq, e.a.qps[0], 0, HDL_WC_RETRY_EXC_ERR, HDL_DETAIL_NONE);
	for (uint32_t i = 1; i < QUEUE_PAIRS; i++)
		expect_failed(w, w->a.scq, e.a.qps[i], i, HDL_WC_INV_EEC_STATE_ERR,
		              HDL_DETAIL_NONE);
	assert_int_equal(hdl_eec_query(e.a.eec, &attr), 0);
	assert_int_equal(attr.state, HDL_QPS_ERR);
	assert_int_equal(qp_state_of(e.a.qps[0]), HDL_QPS_RTS);
	/* Both ends start again. */
	assert_int_equal(hdl_eec_modify(e.a.eec, &reset, HDL_QP_STATE), 0);
	assert_int_equal(connect_end(&e.a, &e.b, 7), 0);
	assert_int_equal(connect_end(&e.b, &e.a, 7), 0);
	post_recv(e.b.qps[2], 5, &w->b, HALF, 100);
	post_send(e.a.qps[1], to_b(&e, 2, 6, HDL_OP_SEND_IMM, &one));
	expect_sent(w, w->a.scq, e.a.qps[1], 6, HDL_WC_SEND, 100);
	expect_from_a(&e, 1, 2, 5, HDL_WC_RECV, 100, true);
	expect_copy(&w->b, HALF, &w->a, 0, 100);
	check_memory(w);
	finish(&e);
}

static const struct CMUnitTest tests[] = {
        BEHAVIOUR(sn2_rd_every_operation),
        BEHAVIOUR(sn2_rd_all_share_a_context),
        BEHAVIOUR(sn2_rd_an_error_ends_one_message),
        BEHAVIOUR(sn2_rd_a_silent_peer_fails_the_context),
};
THEME(reliable_theme, tests);
