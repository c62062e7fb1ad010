/* Timing on a reliable connection: receiver not ready, a peer that is not ready yet, the delay
 * request. With virtual time both bounds are checked; with real threads only "not earlier". */
#include "conform.h"

#include "cable/rnr.h"

/* @took is at least @least, and with virtual time not much more. */
static void check_time(struct world *w, uint64_t took, uint64_t least)
{
	if (took < least)
		fail_msg("took %llu ns, must be at least %llu", (unsigned long long)took,
		         (unsigned long long)least);
	if (!w->port->threaded && !w->port->lossy && took > least + least / 4 + 200000)
		fail_msg("took %llu ns, should be about %llu", (unsigned long long)took,
		         (unsigned long long)least);
}

static void rnr_retry_0_fails_at_once(void **state)
{
	struct world *w = *state;
	if (w->port->stream)
		skip(); /* a stream holds the peer back instead */
	static const uint32_t sizes[] = {0, 64, 5000};
	for (uint32_t i = 0; i < COUNT(sizes); i++) {
		struct hdl_qp *qa, *qb;
		make_pair(w, &(struct qp_options){.no_rnr_retry = true}, &qa, &qb);
		post_data(qa, 1, HDL_OP_SEND, &w->a, 0, sizes[i]);
		post_data(qa, 2, HDL_OP_SEND, &w->a, 0, 0);
		expect_failed(w, w->a.scq, qa, 1, HDL_WC_RNR_RETRY_EXC_ERR, HDL_DETAIL_NONE);
		expect_flushed(w, w->a.scq, qa, 2);
		assert_int_equal(qp_state_of(qa), HDL_QPS_ERR);
		assert_int_equal(qp_state_of(qb), HDL_QPS_RTS); /* nothing is wrong with it */
		check_memory(w);
		expect_no_event(w);
	}
	assert_true(counter_sum(w, "rnr_sent") >= COUNT(sizes));
}

static void rnr_retry_n_waits_n_times_the_timer(void **state)
{
	static const struct {
		uint8_t code, retries;
	} rows[] = {{1, 1}, {14, 3}, {20, 2}, {5, 6}};
	struct world *w = *state;
	if (w->port->stream)
		skip(); /* a stream holds the peer back instead */
	for (uint32_t i = 0; i < COUNT(rows); i++) {
		struct hdl_qp *qa, *qb;
		/* So long that nothing is repeated because of a late answer. */
		struct qp_options o = {.rnr_retry = rows[i].retries,
		                       .min_rnr_timer = rows[i].code,
		                       .timeout = w->port->lossy ? 0 : 20};
		make_pair(w, &o, &qa, &qb);
		uint64_t before = counter_sum(w, "rnr_sent");
		uint64_t start = world_now(w);
		post_data(qa, 1, HDL_OP_SEND, &w->a, 0, 8);
		expect_failed(w, w->a.scq, qa, 1, HDL_WC_RNR_RETRY_EXC_ERR, HDL_DETAIL_NONE);
		check_time(w, world_now(w) - start, rows[i].retries * rnr_ns(rows[i].code));
		/* In a network that loses and duplicates, it may be more or less often. */
		if (!w->port->lossy)
			assert_int_equal(counter_sum(w, "rnr_sent") - before, rows[i].retries + 1u);
	}
}

/* Every code of the table: one wait, then there is a receive. */
static void rnr_timer_table_45(void **state)
{
	struct world *w = *state;
	if (w->port->stream)
		skip(); /* a stream holds the peer back instead */
	for (uint8_t code = 1; code < 32; code++) {
		if (w->port->threaded && rnr_ns(code) > 6000000)
			continue; /* real time is expensive */
		struct hdl_qp *qa, *qb;
		struct qp_options o = {.min_rnr_timer = code,
		                       .rnr_retry = w->port->threaded || w->port->lossy ? 7 : 1};
		make_pair(w, &o, &qa, &qb);
		uint64_t start = world_now(w);
		post_data(qa, 1, HDL_OP_SEND, &w->a, 0, 8);
		world_settle(w);
		post_recv(qb, 2, &w->b, 64, 8);
		expect_sent(w, w->a.scq, qa, 1, HDL_WC_SEND, 8);
		if (!w->port->threaded) /* with threads the receive may have been posted in time */
			check_time(w, world_now(w) - start, rnr_ns(code));
		expect_received(w, w->b.rcq, qb, qa, 2, 8);
		expect_copy(&w->b, 64, &w->a, 0, 8);
		check_memory(w);
		drop_qp(w, qa);
		drop_qp(w, qb);
	}
}

static void rnr_retry_7_waits_for_ever(void **state)
{
	struct world *w = *state;
	if (w->port->stream)
		skip(); /* a stream holds the peer back instead */
	struct hdl_qp *qa, *qb;
	struct qp_options o = {.rnr_retry = 7, .min_rnr_timer = 1};
	make_pair(w, &o, &qa, &qb);
	for (uint32_t i = 0; i < 6; i++)
		post_data(qa, i, HDL_OP_SEND, &w->a, i * 8, 8);
	world_pass(w, 5000000); /* five hundred times the timer */
	expect_nothing(w, w->a.scq);
	/* One by one, each in its turn, in order and none twice. */
	for (uint32_t i = 0; i < 6; i++) {
		post_recv(qb, i, &w->b, 1024 + i * 8, 8);
		expect_sent(w, w->a.scq, qa, i, HDL_WC_SEND, 8);
		expect_received(w, w->b.rcq, qb, qa, i, 8);
		expect_copy(&w->b, 1024 + i * 8, &w->a, i * 8, 8);
		expect_nothing(w, w->a.scq);
	}
	check_memory(w);
	assert_true(counter_sum(w, "retries") > 0);
}

/* Requests behind a message that has to wait also wait: a write behind a send does not take effect
 * before it. */
static void rnr_holds_back_what_is_behind(void **state)
{
	struct world *w = *state;
	if (w->port->stream)
		skip(); /* a stream holds the peer back instead */
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	post_data(qa, 1, HDL_OP_SEND, &w->a, 0, 8);
	post_rdma(qa, 2, HDL_OP_WRITE, piece(&w->a, 8, 8), address(&w->b, 512), arena_key(&w->b));
	post_rdma(qa, 3, HDL_OP_READ, piece(&w->a, 2048, 8), address(&w->b, 512), arena_key(&w->b));
	world_pass(w, 1000000);
	check_memory(w);
	expect_nothing(w, w->a.scq);
	post_recv(qb, 1, &w->b, 128, 8);
	expect_sent(w, w->a.scq, qa, 1, HDL_WC_SEND, 8);
	expect_sent(w, w->a.scq, qa, 2, HDL_WC_WRITE, 8);
	expect_sent(w, w->a.scq, qa, 3, HDL_WC_READ, 8);
	expect_copy(&w->b, 128, &w->a, 0, 8);
	expect_copy(&w->b, 512, &w->a, 8, 8);
	expect_copy(&w->a, 2048, &w->a, 8, 8);
	check_memory(w);
}

static void rnr_on_write_with_immediate(void **state)
{
	struct world *w = *state;
	if (w->port->stream)
		skip(); /* a stream holds the peer back instead */
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	post_rdma(qa, 1, HDL_OP_WRITE_IMM, piece(&w->a, 0, 5000), address(&w->b, 512),
	          arena_key(&w->b));
	world_pass(w, 100000);
	expect_nothing(w, w->a.scq);
	post_recv(qb, 2, &w->b, 0, 0);
	expect_sent(w, w->a.scq, qa, 1, HDL_WC_WRITE, 5000);
	expect_copy(&w->b, 512, &w->a, 0, 5000);
	check_memory(w);
	make_pair(w, &(struct qp_options){.no_rnr_retry = true}, &qa, &qb);
	post_rdma(qa, 1, HDL_OP_WRITE_IMM, piece(&w->a, 0, 0), 0, arena_key(&w->b));
	expect_failed(w, w->a.scq, qa, 1, HDL_WC_RNR_RETRY_EXC_ERR, HDL_DETAIL_NONE);
}

/* --- a peer that does not answer --- */

static const uint32_t kinds[] = {HDL_OP_SEND, HDL_OP_WRITE, HDL_OP_READ, HDL_OP_FETCH_ADD};
static const uint32_t wc_kinds[] = {HDL_WC_SEND, HDL_WC_WRITE, HDL_WC_READ, HDL_WC_FETCH_ADD};

/* Connect a to b, whose queue pair stays in INIT. */
static void half_pair(struct world *w, const struct qp_options *o, struct hdl_qp **qa,
                      struct hdl_qp **qb)
{
	*qa = make_qp(&w->a, o);
	*qb = make_qp(&w->b, o);
	qp_to_init(*qa, o);
	qp_to_init(*qb, o);
	qp_to_rtr(*qa, o, &w->b.gid, hdl_qp_number(*qb));
	qp_to_rts(*qa, o);
}

static void post_kind(struct world *w, struct hdl_qp *qa, uint32_t opcode)
{
	struct hdl_sge own = piece(&w->a, 64, 8);
	struct hdl_send_wr wr = {.wr_id = opcode,
	                         .sg_list = &own,
	                         .num_sge = 1,
	                         .opcode = opcode,
	                         .flags = HDL_SEND_SIGNALED};
	set_target(&wr, address(&w->b, 64), arena_key(&w->b));
	post_send(qa, wr);
}

/* IBTA section 9.7.6.1.3: a request is repeated retry_cnt times, each after a timeout of at
 * least 4.096 us x 2^code; then it fails. */
static void timeout_times_retries(void **state)
{
	static const struct {
		uint8_t timeout, retries;
	} rows[] = {{8, 0}, {8, 1}, {10, 3}, {12, 7}};
	struct world *w = *state;
	for (uint32_t i = 0; i < COUNT(rows) * COUNT(kinds); i++) {
		struct hdl_qp *qa, *qb;
		uint32_t row = i / COUNT(kinds), kind = kinds[i % COUNT(kinds)];
		struct qp_options o = {.timeout = rows[row].timeout,
		                       .retry_cnt = rows[row].retries,
		                       .no_retry = rows[row].retries == 0};
		if ((w->port->threaded && rows[row].timeout > 10) || lacks(w, kind))
			continue;
		half_pair(w, &o, &qa, &qb);
		uint64_t start = world_now(w);
		post_kind(w, qa, kind);
		post_data(qa, 99, HDL_OP_SEND, &w->a, 0, 0);
		expect_failed(w, w->a.scq, qa, kind, HDL_WC_RETRY_EXC_ERR, HDL_DETAIL_NONE);
		check_time(w, world_now(w) - start,
		           (rows[row].retries + 1u) * (4096ull << rows[row].timeout));
		expect_flushed(w, w->a.scq, qa, 99);
		assert_int_equal(qp_state_of(qa), HDL_QPS_ERR);
		check_memory(w);
		drop_qp(w, qa);
		drop_qp(w, qb);
	}
	expect_no_event(w);
}

static void peer_ready_in_time_recovers(void **state)
{
	struct world *w = *state;
	for (uint32_t i = 0; i < 2 * COUNT(kinds); i++) {
		struct hdl_qp *qa, *qb;
		/* With timeout 0 it waits for ever and repeats nothing: whether it recovers depends
		 * on the port. */
		struct qp_options o = {.timeout = w->port->threaded ? 17 : 14,
		                       .retry_cnt = 7,
		                       .wait_for_ever = i % 2};
		if (lacks(w, kinds[i / 2]))
			continue;
		half_pair(w, &o, &qa, &qb);
		post_recv(qb, 5, &w->b, 128, 8);
		post_kind(w, qa, kinds[i / 2]);
		world_pass(w, w->port->threaded ? 2000000 : 100000000);
		expect_nothing(w, w->a.scq);
		if (i % 2) {
			drop_qp(w, qa);
			drop_qp(w, qb);
			continue;
		}
		qp_to_rtr(qb, &o, &w->a.gid, hdl_qp_number(qa));
		expect_sent(w, w->a.scq, qa, kinds[i / 2], wc_kinds[i / 2], 8);
		if (kinds[i / 2] == HDL_OP_SEND) {
			expect_received(w, w->b.rcq, qb, qa, 5, 8);
			expect_copy(&w->b, 128, &w->a, 64, 8);
			/* It arrived before RTS: an event reports it. */
			expect_event(w, &w->b, HDL_EVENT_COMM_EST, HDL_DETAIL_NONE, qb);
		} else if (kinds[i / 2] == HDL_OP_WRITE) {
			expect_copy(&w->b, 64, &w->a, 64, 8);
		} else {
			expect_copy(&w->a, 64, &w->b, 64, 8);
		}
		check_memory(w);
		drop_qp(w, qa);
		drop_qp(w, qb);
	}
}

/* The peer gets no processor time: frames that it has not looked at are not late, however long that
 * takes. */
static void a_slow_peer_is_waited_for(void **state)
{
	enum { MANY = 16 };
	struct world *w = *state;
	if (w->port->threaded || w->port->one_adapter || w->port->wire)
		skip(); /* on a wire, slow peers and dead peers look the same */
	struct hdl_qp *qa, *qb;
	struct qp_options o = {.timeout = 8, .no_retry = true, .cap = {.max_send_wr = MANY}};
	make_pair(w, &o, &qa, &qb);
	memset(w->b.mem + 64, 0, 8);
	for (uint32_t i = 0; i < MANY; i++)
		post_recv(qb, i, &w->b, 4096 + 64 * i, 8);
	for (uint32_t i = 0; i < MANY; i++) {
		if (i % 4 == 3)
			post_data(qa, i, HDL_OP_SEND, &w->a, 64 * i, 8);
		else if (i % 4 == 2)
			post_rdma(qa, i, HDL_OP_READ, piece(&w->a, 8192 + 8 * i, 8),
			          address(&w->b, 64), arena_key(&w->b));
		else
			post_atomic(qa, i, HDL_OP_FETCH_ADD, piece(&w->a, 8192 + 8 * i, 8),
			            address(&w->b, 64), arena_key(&w->b), 1, 0);
	}
	for (int slow = 0; slow < 3; slow++) {
		w->virtual_ns += 2 * (4096ull << 8);
		for (int i = 0; i < 3; i++)
			hdl_progress(w->a.adapter);
	}
	uint64_t value = 0;
	for (uint32_t i = 0; i < MANY; i++) {
		static const uint32_t opcodes[] = {HDL_WC_FETCH_ADD, HDL_WC_FETCH_ADD, HDL_WC_READ,
		                                   HDL_WC_SEND};
		expect_sent(w, w->a.scq, qa, i, opcodes[i % 4], 8);
		if (i % 4 != 3)
			expect_bytes(&w->a, 8192 + 8 * i, &value, 8);
		value += i % 4 < 2;
	}
	for (uint32_t i = 0; i < MANY / 4; i++) {
		expect_received(w, w->b.rcq, qb, qa, i, 8);
		expect_copy(&w->b, 4096 + 64 * i, &w->a, 64 * (4 * i + 3), 8);
	}
	expect_nothing(w, w->b.rcq);
	expect_bytes(&w->b, 64, &value, 8);
	check_memory(w);
	assert_int_equal(counter_of(&w->a, "timeouts"), 0);
}

/* --- delay --- */

static void sn1_delay_holds_back_what_is_behind_it(void **state)
{
	static const uint64_t delays[] = {0, 1, 100000, 3000000, 20000000};
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	for (uint32_t i = 0; i < COUNT(delays); i++) {
		uint64_t start = world_now(w);
		fill(&w->a, 0, 64, i);
		post_rdma(qa, 1, HDL_OP_WRITE, piece(&w->a, 0, 8), address(&w->b, 0),
		          arena_key(&w->b));
		post_send(qa, (struct hdl_send_wr){.wr_id = 2,
		                                   .opcode = HDL_OP_DELAY,
		                                   .flags = HDL_SEND_SIGNALED,
		                                   .u.delay = {delays[i]}});
		post_rdma(qa, 3, HDL_OP_WRITE, piece(&w->a, 8, 8), address(&w->b, 8),
		          arena_key(&w->b));
		expect_sent(w, w->a.scq, qa, 1, HDL_WC_WRITE, 8);
		if (delays[i] >= 100000 && !w->port->threaded) {
			world_pass(w, delays[i] / 2);
			expect_nothing(w, w->a.scq);
			expect_copy(&w->b, 0, &w->a, 0, 8);
			check_memory(w); /* the second write has not happened */
		}
		expect_sent(w, w->a.scq, qa, 2, HDL_WC_DELAY, 0);
		check_time(w, world_now(w) - start, delays[i]);
		expect_sent(w, w->a.scq, qa, 3, HDL_WC_WRITE, 8);
		expect_copy(&w->b, 0, &w->a, 0, 16);
		check_memory(w);
	}
}

/* A message that is repeated during a delay must not shorten the delay. */
static void sn1_delay_behind_a_repeated_send_is_not_shortened(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	uint64_t start = world_now(w);
	post_data(qa, 1, HDL_OP_SEND, &w->a, 0, 8);
	post_send(qa, (struct hdl_send_wr){.wr_id = 2,
	                                   .opcode = HDL_OP_DELAY,
	                                   .flags = HDL_SEND_SIGNALED,
	                                   .u.delay = {2000000}});
	world_pass(w, 500000);
	post_recv(qb, 3, &w->b, 64, 8);
	expect_sent(w, w->a.scq, qa, 1, HDL_WC_SEND, 8);
	expect_sent(w, w->a.scq, qa, 2, HDL_WC_DELAY, 0);
	assert_true(world_now(w) - start >= 2000000);
}

/* A requester that starts with a number that the peer does not expect is ignored, whatever it
 * requests. */
static void sn2_numbers_that_do_not_meet(void **state)
{
	static const uint32_t opcodes[] = {HDL_OP_SEND, HDL_OP_WRITE, HDL_OP_READ,
	                                   HDL_OP_FETCH_ADD};
	const struct qp_options o = {.psn_ahead = 5, .timeout = 8, .retry_cnt = 2};
	struct world *w = *state;
	if (w->port->stream)
		skip(); /* messages on a stream count from one */
	for (uint32_t i = 0; i < COUNT(opcodes); i++) {
		struct hdl_qp *qa, *qb;
		make_pair(w, &o, &qa, &qb);
		post_recv(qb, 9, &w->b, 0, 64);
		fill(&w->a, 0, 8, i);
		if (opcodes[i] == HDL_OP_SEND)
			post_data(qa, 1, HDL_OP_SEND, &w->a, 0, 8);
		else if (opcodes[i] == HDL_OP_FETCH_ADD)
			post_atomic(qa, 1, opcodes[i], piece(&w->a, 0, 8), address(&w->b, 128),
			            arena_key(&w->b), 1, 0);
		else
			post_rdma(qa, 1, opcodes[i], piece(&w->a, 0, 8), address(&w->b, 128),
			          arena_key(&w->b));
		expect_failed(w, w->a.scq, qa, 1, HDL_WC_RETRY_EXC_ERR, HDL_DETAIL_NONE);
		expect_nothing(w, w->b.rcq);
		check_memory(w);
		drop_qp(w, qa);
		drop_qp(w, qb);
	}
}

static const struct CMUnitTest tests[] = {
        BEHAVIOUR(sn2_numbers_that_do_not_meet),
        BEHAVIOUR(rnr_retry_0_fails_at_once),
        BEHAVIOUR(rnr_retry_n_waits_n_times_the_timer),
        BEHAVIOUR(rnr_timer_table_45),
        BEHAVIOUR(rnr_retry_7_waits_for_ever),
        BEHAVIOUR(rnr_holds_back_what_is_behind),
        BEHAVIOUR(rnr_on_write_with_immediate),
        BEHAVIOUR(timeout_times_retries),
        BEHAVIOUR(peer_ready_in_time_recovers),
        BEHAVIOUR(a_slow_peer_is_waited_for),
        BEHAVIOUR(sn1_delay_holds_back_what_is_behind_it),
        BEHAVIOUR(sn1_delay_behind_a_repeated_send_is_not_shortened),
};
THEME(retry_theme, tests);
