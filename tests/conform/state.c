/* The state machine of a queue pair (IBTA volume 1 section 10.3 and table 91): which transitions
 * exist, which attributes they need and allow, and what each does to work in progress. */
#include "conform.h"

#define STATES 7u

/* The path of every type through the states, with what each step needs; everything else is derived
 * from it. */
static const uint32_t need_init[4] = {0, HDL_QP_PKEY_INDEX | HDL_QP_PORT | HDL_QP_ACCESS,
                                      HDL_QP_PKEY_INDEX | HDL_QP_PORT | HDL_QP_ACCESS,
                                      HDL_QP_PKEY_INDEX | HDL_QP_PORT | HDL_QP_QKEY};
#define PATH (HDL_QP_AV | HDL_QP_PATH_MTU | HDL_QP_DEST_QPN | HDL_QP_RQ_PSN)
static const uint32_t need_rtr[4] = {0, PATH | HDL_QP_MAX_DEST_RD_ATOMIC | HDL_QP_MIN_RNR_TIMER,
                                     PATH, 0};
static const uint32_t need_rts[4] = {0,
                                     HDL_QP_SQ_PSN | HDL_QP_TIMEOUT | HDL_QP_RETRY_CNT |
                                             HDL_QP_RNR_RETRY | HDL_QP_MAX_RD_ATOMIC,
                                     HDL_QP_SQ_PSN, HDL_QP_SQ_PSN};

/* Is @from to @to a transition of @type, and which attributes does it need? */
static bool exists(uint32_t type, uint32_t from, uint32_t to, uint32_t *need)
{
	*need = 0;
	if (to == HDL_QPS_RESET || (to == HDL_QPS_ERR && from != HDL_QPS_RESET))
		return true;
	switch (from) {
	case HDL_QPS_RESET:
		*need = need_init[type];
		return to == HDL_QPS_INIT;
	case HDL_QPS_INIT:
		*need = to == HDL_QPS_RTR ? need_rtr[type] : 0;
		return to == HDL_QPS_INIT || to == HDL_QPS_RTR;
	case HDL_QPS_RTR:
		*need = need_rts[type];
		return to == HDL_QPS_RTS;
	case HDL_QPS_RTS:
		return to == HDL_QPS_RTS || to == HDL_QPS_SQD;
	case HDL_QPS_SQD:
		return to == HDL_QPS_RTS || to == HDL_QPS_SQD;
	case HDL_QPS_SQE:
		return to == HDL_QPS_RTS && type != HDL_QP_RC;
	default:
		return false;
	}
}

static struct hdl_qp_attr good_attr(struct world *w, uint32_t state, uint32_t dest)
{
	return (struct hdl_qp_attr){.state = state,
	                            .access = REMOTE_ALL,
	                            .qkey = 5,
	                            .dest_qpn = dest,
	                            .rq_psn = 1234,
	                            .sq_psn = 1234,
	                            .ah = {.dgid = w->b.gid, .port_num = 1},
	                            .path_mtu = 1024,
	                            .port_num = 1,
	                            .timeout = 10,
	                            .retry_cnt = 3,
	                            .rnr_retry = 7,
	                            .min_rnr_timer = 1,
	                            .max_rd_atomic = 2,
	                            .max_dest_rd_atomic = 2};
}

/* A queue pair of @type in @state. NULL: the type does not have that state. */
static struct hdl_qp *qp_in(struct world *w, uint32_t type, uint32_t state)
{
	struct qp_options o = {.type = type, .qkey = 5};
	if (state == HDL_QPS_SQE && type == HDL_QP_RC)
		return NULL;
	struct hdl_qp *qp = make_qp(&w->a, &o);
	uint32_t path[] = {HDL_QPS_RESET, HDL_QPS_INIT, HDL_QPS_RTR, HDL_QPS_RTS};
	uint32_t last = state > HDL_QPS_RTS ? HDL_QPS_RTS : state, need;
	for (uint32_t i = 1; i < COUNT(path) && path[i] <= last; i++) {
		struct hdl_qp_attr attr = good_attr(w, path[i], 0x123456);
		assert_true(exists(type, path[i - 1], path[i], &need));
		assert_int_equal(hdl_qp_modify(qp, &attr, HDL_QP_STATE | need), 0);
	}
	if (state == HDL_QPS_SQD || state == HDL_QPS_ERR)
		qp_go(qp, state);
	if (state == HDL_QPS_SQE) { /* a request of its own fails */
		struct hdl_sge bad = {.length = 1};
		struct hdl_ah_attr to = {.dgid = w->b.gid, .port_num = 1};
		struct hdl_send_wr wr = {.opcode = HDL_OP_SEND, .sg_list = &bad, .num_sge = 1};
		struct hdl_wc wc;
		if (type == HDL_QP_UD)
			wr.u.ud.ah = make_ah(&w->a, &to);
		post_send(qp, wr);
		wait_wc(w, w->a.scq, &wc);
	}
	assert_int_equal(qp_state_of(qp), state);
	return qp;
}

static void table_91_transitions(void **state)
{
	struct world *w = *state;
	for (uint32_t type = HDL_QP_RC; type <= HDL_QP_UD; type++) {
		for (uint32_t pair = 0; pair < STATES * STATES; pair++) {
			uint32_t from = pair / STATES, to = pair % STATES, need;
			struct hdl_qp *qp = qp_in(w, type, from);
			if (qp == NULL)
				continue;
			struct hdl_qp_attr attr = good_attr(w, to, 0x123456);
			bool legal = exists(type, from, to, &need);
			int result = hdl_qp_modify(qp, &attr, HDL_QP_STATE | need);
			if (result != (legal ? 0 : -HDL_EPERM))
				fail_msg("type %u from %u to %u: %s", type, from, to,
				         hdl_strerror(result));
			assert_int_equal(qp_state_of(qp), legal ? to : from);
			drop_qp(w, qp);
		}
		struct hdl_qp *qp = qp_in(w, type, HDL_QPS_RESET);
		struct hdl_qp_attr attr = {.state = STATES};
		assert_int_equal(hdl_qp_modify(qp, &attr, HDL_QP_STATE), -HDL_EINVAL);
		drop_qp(w, qp);
	}
}

/* Each required attribute left out, and each attribute that no transition allows added. */
static void table_91_attributes(void **state)
{
	struct world *w = *state;
	for (uint32_t type = HDL_QP_RC; type <= HDL_QP_UD; type++) {
		for (uint32_t from = HDL_QPS_RESET; from <= HDL_QPS_RTR; from++) {
			uint32_t need;
			struct hdl_qp *qp = qp_in(w, type, from);
			struct hdl_qp_attr attr = good_attr(w, from + 1, 0x123456);
			assert_true(exists(type, from, from + 1, &need));
			for (uint32_t bit = 1; bit < HDL_QP_CUR_STATE; bit <<= 1) {
				if (!(need & bit))
					continue;
				assert_int_equal(
				        hdl_qp_modify(qp, &attr, HDL_QP_STATE | (need & ~bit)),
				        -HDL_EINVAL);
				assert_int_equal(qp_state_of(qp), from);
			}
			/* Attributes of other steps or other types. */
			static const uint32_t strange[3] = {
			        HDL_QP_SQ_PSN | HDL_QP_DEST_QPN,
			        HDL_QP_SQ_PSN | HDL_QP_TIMEOUT | HDL_QP_PORT,
			        HDL_QP_RQ_PSN | HDL_QP_AV | HDL_QP_PORT};
			for (uint32_t bit = 1; bit < HDL_QP_CUR_STATE; bit <<= 1) {
				if (strange[from] & bit & ~need)
					assert_int_equal(
					        hdl_qp_modify(qp, &attr, HDL_QP_STATE | need | bit),
					        -HDL_EINVAL);
			}
			assert_int_equal(hdl_qp_modify(qp, &attr, HDL_QP_STATE | need | 1u << 17),
			                 -HDL_EINVAL);
			assert_int_equal(hdl_qp_modify(qp, &attr, HDL_QP_STATE | need), 0);
			drop_qp(w, qp);
		}
	}
}

static void attributes_out_of_range(void **state)
{
	struct world *w = *state;
	struct hdl_qp *in_reset = qp_in(w, HDL_QP_RC, HDL_QPS_RESET);
	struct hdl_qp *in_init = qp_in(w, HDL_QP_RC, HDL_QPS_INIT);
	struct hdl_qp *in_rtr = qp_in(w, HDL_QP_RC, HDL_QPS_RTR);
#define REFUSED(qp, to, needs, field, value)                                                \
	do {                                                                                \
		struct hdl_qp_attr attr = good_attr(w, to, 0x123456);                       \
		attr.field = value;                                                         \
		assert_int_equal(hdl_qp_modify(qp, &attr, HDL_QP_STATE | needs[HDL_QP_RC]), \
		                 -HDL_EINVAL);                                              \
	} while (0)
	REFUSED(in_reset, HDL_QPS_INIT, need_init, port_num, 0);
	REFUSED(in_reset, HDL_QPS_INIT, need_init, port_num, 2);
	REFUSED(in_reset, HDL_QPS_INIT, need_init, pkey_index, 1);
	REFUSED(in_reset, HDL_QPS_INIT, need_init, access, HDL_ACCESS_LOCAL_WRITE);
	REFUSED(in_init, HDL_QPS_RTR, need_rtr, path_mtu, 128);
	REFUSED(in_init, HDL_QPS_RTR, need_rtr, path_mtu, 1000);
	REFUSED(in_init, HDL_QPS_RTR, need_rtr, path_mtu, 8192);
	REFUSED(in_init, HDL_QPS_RTR, need_rtr, dest_qpn, 1u << 24);
	REFUSED(in_init, HDL_QPS_RTR, need_rtr, rq_psn, 1u << 24);
	REFUSED(in_init, HDL_QPS_RTR, need_rtr, min_rnr_timer, 32);
	REFUSED(in_init, HDL_QPS_RTR, need_rtr, max_dest_rd_atomic, HDL_MAX_RD_ATOMIC + 1);
	REFUSED(in_rtr, HDL_QPS_RTS, need_rts, sq_psn, 1u << 24);
	REFUSED(in_rtr, HDL_QPS_RTS, need_rts, timeout, 32);
	REFUSED(in_rtr, HDL_QPS_RTS, need_rts, retry_cnt, 8);
	REFUSED(in_rtr, HDL_QPS_RTS, need_rts, rnr_retry, 8);
	REFUSED(in_rtr, HDL_QPS_RTS, need_rts, max_rd_atomic, HDL_MAX_RD_ATOMIC + 1);
	struct hdl_qp_attr attr = good_attr(w, HDL_QPS_RTR, 0x123456);
	attr.ah.dgid.raw[3] ^= 0x55;
	if (w->port->wire) /* it does not know which adapter has an address */
		return;
	assert_int_equal(hdl_qp_modify(in_init, &attr, HDL_QP_STATE | need_rtr[HDL_QP_RC]),
	                 -HDL_EHOSTUNREACH);
	assert_int_equal(qp_state_of(in_init), HDL_QPS_INIT);
}

static void current_state_must_be_what_the_caller_believes(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	struct hdl_qp_attr attr = {.state = HDL_QPS_SQD, .cur_state = HDL_QPS_SQE};
	assert_int_equal(hdl_qp_modify(qa, &attr, HDL_QP_STATE | HDL_QP_CUR_STATE), -HDL_EPERM);
	assert_int_equal(qp_state_of(qa), HDL_QPS_RTS);
	attr.cur_state = HDL_QPS_RTS;
	assert_int_equal(hdl_qp_modify(qa, &attr, HDL_QP_STATE | HDL_QP_CUR_STATE), 0);
	assert_int_equal(qp_state_of(qa), HDL_QPS_SQD);
}

static void query_returns_what_was_set(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qp = qp_in(w, HDL_QP_RC, HDL_QPS_RTS);
	struct hdl_qp_attr attr, want = good_attr(w, HDL_QPS_RTS, 0x123456);
	struct hdl_qp_init_attr init;
	assert_int_equal(hdl_qp_query(qp, &attr, &init), 0);
	assert_int_equal(attr.state, HDL_QPS_RTS);
	assert_int_equal(attr.cur_state, HDL_QPS_RTS);
	assert_int_equal(attr.access, want.access);
	assert_int_equal(attr.dest_qpn, want.dest_qpn);
	assert_int_equal(attr.rq_psn, want.rq_psn);
	assert_int_equal(attr.sq_psn, want.sq_psn);
	assert_int_equal(attr.path_mtu, want.path_mtu);
	assert_int_equal(attr.timeout, want.timeout);
	assert_int_equal(attr.retry_cnt, want.retry_cnt);
	assert_int_equal(attr.rnr_retry, want.rnr_retry);
	assert_int_equal(attr.min_rnr_timer, want.min_rnr_timer);
	assert_int_equal(attr.max_rd_atomic, want.max_rd_atomic);
	assert_int_equal(attr.max_dest_rd_atomic, want.max_dest_rd_atomic);
	assert_memory_equal(&attr.ah.dgid, &want.ah.dgid, sizeof(want.ah.dgid));
	assert_false(attr.draining);
	assert_int_equal(init.type, HDL_QP_RC);
	assert_ptr_equal(init.send_cq, w->a.scq);
	assert_int_equal(init.cap.max_send_wr, 16);
	assert_true(hdl_qp_number(qp) > 1 && hdl_qp_number(qp) < 1u << 24);
	/* Nothing of the former connection is left in RESET. */
	struct hdl_gid nobody = {0};
	qp_go(qp, HDL_QPS_RESET);
	assert_int_equal(hdl_qp_query(qp, &attr, NULL), 0);
	assert_int_equal(attr.state, HDL_QPS_RESET);
	assert_int_equal(attr.access, 0);
	assert_int_equal(attr.dest_qpn, 0);
	assert_int_equal(attr.rq_psn, 0);
	assert_int_equal(attr.sq_psn, 0);
	assert_int_equal(attr.retry_cnt, 0);
	assert_memory_equal(&attr.ah.dgid, &nobody, sizeof(nobody));
}

/* What may be posted where. */
static void posting_by_state(void **state)
{
	struct world *w = *state;
	for (uint32_t s = HDL_QPS_RESET; s < STATES; s++) {
		struct hdl_qp *qp = qp_in(w, HDL_QP_UC, s);
		int send = try_send(qp, (struct hdl_send_wr){.wr_id = 5, .opcode = HDL_OP_SEND});
		int recv = try_recv(qp, 6, NULL, 0);
		assert_int_equal(send, s <= HDL_QPS_RTR ? -HDL_EPERM : 0);
		assert_int_equal(recv, s == HDL_QPS_RESET ? -HDL_EPERM : 0);
		if (s == HDL_QPS_ERR || s == HDL_QPS_SQE)
			expect_flushed(w, w->a.scq, qp, 5);
		if (s == HDL_QPS_ERR)
			expect_flushed(w, w->a.rcq, qp, 6);
		expect_nothing(w, w->a.scq);
		expect_nothing(w, w->a.rcq);
		drop_qp(w, qp);
	}
}

/* RESET discards everything, from any state, and the pair can be connected again. */
static void reset_clears_and_connects_again(void **state)
{
	struct world *w = *state;
	if (w->port->stream)
		skip(); /* what the stream has taken is over */
	for (uint32_t round = 0; round < 4; round++) {
		struct hdl_qp *qa, *qb;
		make_pair(w, NULL, &qa, &qb);
		for (uint32_t i = 0; i < 3; i++) {
			post_recv(qa, i, &w->a, 0, 8);
			post_data(qa, i, HDL_OP_SEND, &w->a, 0,
			          i * 4000); /* the peer has no receive */
		}
		world_settle(w);
		if (round == 1)
			qp_go(qa, HDL_QPS_SQD);
		if (round == 2) {
			qp_go(qa, HDL_QPS_ERR);
			for (uint32_t i = 0; i < 3; i++) {
				expect_flushed(w, w->a.scq, qa, i);
				expect_flushed(w, w->a.rcq, qa, i);
			}
		}
		qp_go(qa, HDL_QPS_RESET);
		if (round == 3)
			qp_go(qa, HDL_QPS_RESET);
		qp_go(qb, HDL_QPS_RESET);
		expect_nothing(w, w->a.scq);
		expect_nothing(w, w->a.rcq);
		connect_pair(w, NULL, qa, qb);
		fill(&w->a, 0, 9000, round);
		post_recv(qb, 7, &w->b, 64, 9000);
		post_data(qa, 8, HDL_OP_SEND, &w->a, 0, 9000);
		expect_sent(w, w->a.scq, qa, 8, HDL_WC_SEND, 9000);
		expect_received(w, w->b.rcq, qb, qa, 7, 9000);
		expect_copy(&w->b, 64, &w->a, 0, 9000);
		check_memory(w);
		/* The receive queue is empty as well: all of it can be filled. */
		for (uint32_t i = 0; i < 16; i++)
			post_recv(qa, i, &w->a, 0, 0);
		assert_int_equal(try_recv(qa, 16, NULL, 0), -HDL_ENOSPC);
	}
}

/* A message that the receiver was not ready for has begun: it is repeated, and the queue is not
 * drained before it is finished. */
static void sqd_waits_for_what_was_begun(void **state)
{
	struct world *w = *state;
	if (w->port->stream)
		skip(); /* what the stream has taken is over */
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	post_data(qa, 1, HDL_OP_SEND, &w->a, 0, 8);
	world_pass(w, 1000000);
	qp_go(qa, HDL_QPS_SQD);
	post_data(qa, 2, HDL_OP_SEND, &w->a, 8, 8); /* not begun: it waits */
	world_pass(w, 1000000);
	expect_no_event(w);
	post_recv(qb, 1, &w->b, 64, 8);
	post_recv(qb, 2, &w->b, 128, 8);
	expect_sent(w, w->a.scq, qa, 1, HDL_WC_SEND, 8);
	expect_received(w, w->b.rcq, qb, qa, 1, 8);
	expect_copy(&w->b, 64, &w->a, 0, 8);
	expect_event(w, &w->a, HDL_EVENT_SQ_DRAINED, HDL_DETAIL_NONE, qa);
	world_pass(w, 1000000);
	expect_nothing(w, w->a.scq);
	qp_go(qa, HDL_QPS_RTS);
	expect_sent(w, w->a.scq, qa, 2, HDL_WC_SEND, 8);
	expect_received(w, w->b.rcq, qb, qa, 2, 8);
	expect_copy(&w->b, 128, &w->a, 8, 8);
	check_memory(w);
}

static void sqd_drains_and_says_so(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	/* Nothing is in flight: drained immediately. */
	qp_go(qa, HDL_QPS_SQD);
	expect_event(w, &w->a, HDL_EVENT_SQ_DRAINED, HDL_DETAIL_NONE, qa);
	/* SQD to SQD changes attributes and raises nothing. */
	struct hdl_qp_attr attr = {.retry_cnt = 5};
	assert_int_equal(hdl_qp_modify(qa, &attr, HDL_QP_RETRY_CNT), 0);
	expect_no_event(w);
	post_recv(qb, 1, &w->b, 64, 8);
	post_data(qa, 1, HDL_OP_SEND, &w->a, 0, 8);
	world_pass(w, 1000000);
	expect_nothing(w, w->a.scq);
	check_memory(w);
	/* Receiving continues while the send queue is stopped. */
	post_recv(qa, 2, &w->a, 128, 8);
	post_data(qb, 2, HDL_OP_SEND, &w->b, 0, 8);
	expect_sent(w, w->b.scq, qb, 2, HDL_WC_SEND, 8);
	expect_received(w, w->a.rcq, qa, qb, 2, 8);
	expect_copy(&w->a, 128, &w->b, 0, 8);
	qp_go(qa, HDL_QPS_RTS);
	expect_sent(w, w->a.scq, qa, 1, HDL_WC_SEND, 8);
	expect_copy(&w->b, 64, &w->a, 0, 8);
	check_memory(w);
	if (w->port->threaded)
		return;
	/* In flight: the answer has not come yet, so it is not drained. */
	post_recv(qb, 3, &w->b, 64, 8);
	post_data(qa, 3, HDL_OP_SEND, &w->a, 8, 8);
	qp_go(qa, HDL_QPS_SQD);
	if (!w->port->one_adapter && !w->port->sockets) {
		assert_int_equal(hdl_qp_query(qa, &attr, NULL), 0);
		assert_true(attr.draining);
	}
	expect_sent(w, w->a.scq, qa, 3, HDL_WC_SEND, 8);
	expect_event(w, &w->a, HDL_EVENT_SQ_DRAINED, HDL_DETAIL_NONE, qa);
	assert_int_equal(hdl_qp_query(qa, &attr, NULL), 0);
	assert_false(attr.draining);
	expect_copy(&w->b, 64, &w->a, 8, 8);
	check_memory(w);
	expect_no_event(w);
}

/* A request fails while one before it waits for a receive: that one still gets its turn, the ones
 * behind it do not, and a change of attributes makes no difference. */
static void failed_request_waits_for_those_before_it(void **state)
{
	struct world *w = *state;
	for (int touch = 0; touch < 2; touch++) {
		struct hdl_qp *qa, *qb;
		make_pair(w, NULL, &qa, &qb);
		struct hdl_sge bad = {.length = 8};
		post_data(qa, 1, HDL_OP_SEND, &w->a, 0, 8); /* waits for a receive */
		struct hdl_send_wr failing = {
		        .wr_id = 2, .opcode = HDL_OP_SEND, .sg_list = &bad, .num_sge = 1};
		post_send(qa, failing);
		post_rdma(qa, 3, HDL_OP_WRITE, piece(&w->a, 0, 8), address(&w->b, 0),
		          arena_key(&w->b));
		world_settle(w);
		struct hdl_qp_attr attr = {.access = REMOTE_ALL};
		if (touch && !w->port->stream) /* where it has already failed */
			assert_int_equal(hdl_qp_modify(qa, &attr, HDL_QP_ACCESS), 0);
		world_pass(w, 100000);
		post_recv(qb, 4, &w->b, 64, 8);
		expect_sent(w, w->a.scq, qa, 1, HDL_WC_SEND, 8);
		expect_failed(w, w->a.scq, qa, 2, HDL_WC_LOC_PROT_ERR, HDL_DETAIL_NOT_VALID);
		expect_flushed(w, w->a.scq, qa, 3);
		expect_copy(&w->b, 64, &w->a, 0, 8);
		world_settle(w);
		check_memory(w); /* the write has not happened */
	}
}

/* The rights of peers change with the queue pair's attribute, from the next request on. */
static void access_can_be_changed_on_the_way(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	post_rdma(qa, 1, HDL_OP_READ, piece(&w->a, 0, 8), address(&w->b, 0), arena_key(&w->b));
	expect_sent(w, w->a.scq, qa, 1, HDL_WC_READ, 8);
	struct hdl_qp_attr attr = {.access = HDL_ACCESS_REMOTE_WRITE};
	assert_int_equal(hdl_qp_modify(qb, &attr, HDL_QP_ACCESS), 0);
	post_rdma(qa, 2, HDL_OP_READ, piece(&w->a, 0, 8), address(&w->b, 0), arena_key(&w->b));
	expect_refused(w, w->a.scq, qa, 2,
	               w->port->stream ? HDL_WC_REM_ACCESS_ERR : HDL_WC_REM_INV_REQ_ERR,
	               w->port->stream ? HDL_DETAIL_ACCESS : HDL_DETAIL_NONE);
}

/* The receiver may delay an acknowledgement, and then the sender ends the connection: what it sent
 * has arrived. */
static void what_has_arrived_is_told_before_the_end(void **state)
{
	struct world *w = *state;
	if (w->port->stream)
		skip(); /* what the stream has taken is over */
	if (w->port->wire)
		skip(); /* an acknowledgement may be on its way */
	static const enum hdl_qp_state ends[] = {HDL_QPS_ERR, HDL_QPS_RESET};
	for (uint32_t i = 0; i < COUNT(ends); i++) {
		struct hdl_qp *qa, *qb;
		struct hdl_wc wc;
		make_pair(w, NULL, &qa, &qb);
		post_recv(qb, 1, &w->b, 0, 8);
		post_data(qa, 2, HDL_OP_SEND, &w->a, 0, 8);
		int got = 0;
		for (uint64_t start = world_now(w); got == 0 && !world_expired(w, start);)
			got = hdl_cq_poll(w->b.rcq, &wc, 1);
		assert_int_equal(got, 1);
		expect_copy(&w->b, 0, &w->a, 0, 8);
		qp_go(qa, ends[i]);
		expect_sent(w, w->a.scq, qa, 2, HDL_WC_SEND, 8);
		drop_qp(w, qa);
		drop_qp(w, qb);
	}
}

/* Messages to a former connection of the same two queue pairs that are still in the lane are not
 * for the new one. */
static void a_new_connection_hears_nothing_of_the_old(void **state)
{
	struct world *w = *state;
	if (w->port->threaded || w->port->one_adapter || w->port->sockets)
		skip();
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	post_data(qa, 1, HDL_OP_SEND, &w->a, 0, 8);
	struct hdl_qp *both[2] = {qa, qb};
	struct hdl_qp_attr reset = {.state = HDL_QPS_RESET};
	for (int i = 0; i < 2; i++) {
		assert_int_equal(hdl_qp_modify(both[i], &reset, HDL_QP_STATE), 0);
		/* A wire tells old packets from new ones by their PSNs, which are the same here:
		 * wait for packets in flight (TimeWait). */
		if (w->port->wire)
			world_settle(w);
		qp_to_init(both[i], NULL);
	}
	post_recv(qb, 2, &w->b, 64, 8);
	qp_to_rtr(qb, NULL, &w->a.gid, hdl_qp_number(qa));
	qp_to_rtr(qa, NULL, &w->b.gid, hdl_qp_number(qb));
	qp_to_rts(qa, NULL);
	qp_to_rts(qb, NULL);
	world_settle(w);
	expect_nothing(w, w->b.rcq);
	post_data(qa, 3, HDL_OP_SEND, &w->a, 128, 8);
	expect_sent(w, w->a.scq, qa, 3, HDL_WC_SEND, 8);
	expect_received(w, w->b.rcq, qb, qa, 2, 8);
	expect_copy(&w->b, 64, &w->a, 128, 8);
}

static void destroy_with_work_in_flight(void **state)
{
	struct world *w = *state;
	for (uint32_t round = 0; round < 12; round++) {
		struct hdl_qp *qa, *qb;
		make_pair(w, NULL, &qa, &qb);
		for (uint32_t i = 0; i < 6; i++)
			post_data(qa, i, HDL_OP_SEND, &w->a, 0, i * 2000);
		post_send(qb,
		          (struct hdl_send_wr){.opcode = HDL_OP_DELAY, .u.delay = {1000000000}});
		if (round % 3 == 1)
			world_settle(w);
		if (round % 3 == 2)
			post_recv(qb, 1, &w->b, 0, 20000);
		drop_qp(w, round % 2 ? qa : qb);
		world_settle(w);
		drop_qp(w, round % 2 ? qb : qa);
	}
	/* Completions from before stay; there are no others. */
	struct hdl_wc wc;
	while (hdl_cq_poll(w->a.scq, &wc, 1) > 0)
		assert_true(wc.status == HDL_WC_SUCCESS ||
		            (w->port->stream && wc.status == HDL_WC_WR_FLUSH_ERR));
	if (!w->port->stream) /* whose ends end together */
		expect_nothing(w, w->b.scq);
	expect_bytes(&w->b, 0, w->b.mem, 2000);
	check_memory(w);
}

static const struct CMUnitTest tests[] = {
        BEHAVIOUR(table_91_transitions),
        BEHAVIOUR(table_91_attributes),
        BEHAVIOUR(attributes_out_of_range),
        BEHAVIOUR(current_state_must_be_what_the_caller_believes),
        BEHAVIOUR(query_returns_what_was_set),
        BEHAVIOUR(posting_by_state),
        BEHAVIOUR(reset_clears_and_connects_again),
        BEHAVIOUR(sqd_drains_and_says_so),
        BEHAVIOUR(sqd_waits_for_what_was_begun),
        BEHAVIOUR(failed_request_waits_for_those_before_it),
        BEHAVIOUR(access_can_be_changed_on_the_way),
        BEHAVIOUR(what_has_arrived_is_told_before_the_end),
        BEHAVIOUR(a_new_connection_hears_nothing_of_the_old),
        BEHAVIOUR(destroy_with_work_in_flight),
};
THEME(state_theme, tests);
