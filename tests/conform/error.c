/* IP4: every check of MEMMGT figures 15 (local) and 18 (remote) has its own answer, and what an
 * error does to the queue pairs on both sides: the failing request says why, everything behind it
 * is flushed in order. */
#include "conform.h"

/* --- figure 15: a work request's own pieces --- */

/* A piece of @s that fails exactly the given check. */
static struct hdl_sge bad_piece(struct side *s, uint32_t detail, uint32_t access)
{
	struct hdl_sge good = piece(s, 8192, 64);
	switch (detail) {
	case HDL_DETAIL_NOT_VALID:
		good.key = hdl_mr_key(make_empty_mr(s, 1));
		break;
	case HDL_DETAIL_TYPE: { /* windows are for peers */
		struct hdl_bind bind = {.mr = s->mr,
		                        .addr = good.addr,
		                        .length = 64,
		                        .access = HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE};
		assert_int_equal(hdl_mw_bind(make_mw(s, HDL_MW_TYPE_1), &bind, &good.key), 0);
		break;
	}
	case HDL_DETAIL_PD: {
		struct hdl_mr *mr;
		assert_int_equal(hdl_mr_register(make_pd(s), s->mem + 8192, 64, LOCAL_BOTH, &mr),
		                 0);
		keep_mr(s->world, mr);
		good.key = hdl_mr_key(mr);
		break;
	}
	case HDL_DETAIL_INSTANCE:
		good.key = hdl_key_with_instance(good.key, (uint8_t)(good.key.v + 1));
		break;
	case HDL_DETAIL_BOUNDS:
		good.key = hdl_mr_key(make_mr(s, 8192, 63, LOCAL_BOTH));
		break;
	default: /* every right except the one that is needed */
		good.key = hdl_mr_key(make_mr(s, 8192, 64, access));
	}
	return good;
}

static const uint32_t figure_15[] = {HDL_DETAIL_NOT_VALID, HDL_DETAIL_TYPE,   HDL_DETAIL_PD,
                                     HDL_DETAIL_INSTANCE,  HDL_DETAIL_BOUNDS, HDL_DETAIL_ACCESS};
static const char *const counters[HDL_DETAIL_COUNT] = {
        [HDL_DETAIL_NOT_VALID] = "refused_not_valid",
        [HDL_DETAIL_TYPE] = "refused_type",
        [HDL_DETAIL_PD] = "refused_pd",
        [HDL_DETAIL_QP] = "refused_qp",
        [HDL_DETAIL_INSTANCE] = "refused_instance",
        [HDL_DETAIL_BOUNDS] = "refused_bounds",
        [HDL_DETAIL_ACCESS] = "refused_access",
};

/* Every request that has a list of pieces, with a bad piece behind a good one, for every check. */
static void ip4_figure_15_local_pieces_of_requests(void **state)
{
	static const struct {
		uint32_t opcode, length;
	} rows[] = {{HDL_OP_SEND, 64},  {HDL_OP_SEND, 8000},   {HDL_OP_SEND_IMM, 64},
	            {HDL_OP_WRITE, 64}, {HDL_OP_WRITE, 8000},  {HDL_OP_WRITE_IMM, 64},
	            {HDL_OP_READ, 64},  {HDL_OP_FETCH_ADD, 8}, {HDL_OP_COMPARE_SWAP, 8}};
	struct world *w = *state;
	for (uint32_t c = 0; c < COUNT(figure_15); c++) {
		bool writes[2] = {false, true};
		struct hdl_sge bad[2]; /* to be read, to be written */
		for (int k = 0; k < 2; k++)
			bad[k] = bad_piece(&w->a, figure_15[c],
			                   writes[k] ? HDL_ACCESS_LOCAL_READ
			                             : HDL_ACCESS_LOCAL_WRITE);
		for (uint32_t r = 0; r < COUNT(rows); r++) {
			struct hdl_qp *qa, *qb;
			if ((w->port->stream && rows[r].opcode == HDL_OP_SEND_IMM) ||
			    lacks(w, rows[r].opcode))
				continue;
			make_pair(w, NULL, &qa, &qb);
			bool write = rows[r].opcode >= HDL_OP_READ;
			bool atomic = rows[r].opcode > HDL_OP_READ;
			uint64_t before = counter_sum(w, counters[figure_15[c]]);
			struct hdl_sge list[2] = {piece(&w->a, 0, rows[r].length), bad[write]};
			if (atomic) { /* its one piece of eight bytes */
				list[0] = bad[write];
				list[0].length = 8;
				if (figure_15[c] == HDL_DETAIL_BOUNDS)
					list[0].addr += 56;
			}
			post_recv(qb, 7, &w->b, 32768, 16384);
			struct hdl_send_wr wr = {.wr_id = 1,
			                         .sg_list = list,
			                         .num_sge = atomic ? 1 : 2,
			                         .opcode = rows[r].opcode};
			set_target(&wr, address(&w->b, 16384), arena_key(&w->b));
			post_send(qa, wr);
			/* The peer may execute what follows before we notice: use something that
			 * leaves no trace. */
			post_data(qa, 2, HDL_OP_WRITE, &w->a, 0, 0);
			expect_failed(w, w->a.scq, qa, 1, HDL_WC_LOC_PROT_ERR, figure_15[c]);
			expect_flushed(w, w->a.scq, qa, 2);
			assert_int_equal(qp_state_of(qa), HDL_QPS_ERR);
			assert_true(counter_sum(w, counters[figure_15[c]]) > before);
			drop_qp(w, qa);
			drop_qp(w, qb);
			world_settle(w);
			/* The good piece may have arrived, the bad one must not have. */
			expect_bytes(&w->b, 16384, w->b.mem + 16384, rows[r].length);
			expect_bytes(&w->b, 32768, w->b.mem + 32768, rows[r].length);
			if (write && !atomic)
				expect_bytes(&w->a, 0, w->a.mem, rows[r].length);
			check_memory(w);
		}
	}
	if (!w->port->sockets) /* there the receives are flushed before the queue pair goes */
		expect_nothing(w, w->b.rcq);
}

/* A receive's own piece is bad: both sides learn of it, and only the receiver learns why. */
static void ip4_figure_15_local_pieces_of_receives(void **state)
{
	static const uint32_t lengths[] = {64, 5000};
	struct world *w = *state;
	for (uint32_t c = 0; c < 2 * COUNT(figure_15); c++) {
		uint32_t detail = figure_15[c / 2], length = lengths[c % 2];
		struct hdl_qp *qa, *qb;
		make_pair(w, NULL, &qa, &qb);
		uint64_t before = counter_sum(w, counters[detail]);
		struct hdl_sge list[3] = {piece(&w->b, 0, length - 1),
		                          bad_piece(&w->b, detail, HDL_ACCESS_LOCAL_READ),
		                          piece(&w->b, 20000, 64)};
		assert_int_equal(try_recv(qb, 1, list, 3), 0);
		post_recv(qb, 2, &w->b, 0, 64);
		post_data(qb, 3, HDL_OP_DELAY, &w->b, 0, 0);
		post_data(qa, 4, HDL_OP_SEND, &w->a, 0, length);
		post_data(qa, 5, HDL_OP_SEND, &w->a, 0, 1);
		expect_failed(w, w->b.rcq, qb, 1, HDL_WC_LOC_PROT_ERR, detail);
		expect_flushed(w, w->b.rcq, qb, 2);
		expect_refused(w, w->a.scq, qa, 4, HDL_WC_REM_OP_ERR, detail);
		expect_behind(w, w->a.scq, qa, 5);
		assert_int_equal(qp_state_of(qa), HDL_QPS_ERR);
		assert_int_equal(qp_state_of(qb), HDL_QPS_ERR);
		assert_true(counter_sum(w, counters[detail]) > before);
		struct hdl_wc wc;
		wait_wc(w, w->b.scq, &wc); /* the delay: finished before the error, or flushed */
		expect_bytes(&w->b, 0, w->b.mem,
		             length - 1); /* the good piece may have been filled */
		check_memory(w);
		expect_no_event(w); /* the completions report everything */
		drop_qp(w, qa);
		drop_qp(w, qb);
	}
}

/* --- figure 18: what a peer asks for --- */

struct remote_case {
	uint32_t detail;
	struct hdl_key key;
	uint64_t addr;
	struct qp_options o;
};

/* A target of 64 bytes at b that fails exactly the given check for @access. */
static struct remote_case bad_target(struct world *w, uint32_t detail, uint32_t access,
                                     struct hdl_qp *other)
{
	struct side *s = &w->b;
	struct remote_case c = {.detail = detail, .key = arena_key(s), .addr = address(s, 8192)};
	struct hdl_bind bind = {.mr = s->mr, .addr = c.addr, .length = 64, .access = REMOTE_ALL};
	switch (detail) {
	case HDL_DETAIL_TYPE: /* (b): a region where only windows may be used */
		c.o.windows_only = true;
		break;
	case HDL_DETAIL_QP: { /* (c): a window that another queue pair bound */
		struct hdl_mw *mw = make_mw(s, HDL_MW_TYPE_2);
		c.key = hdl_key_with_instance(hdl_mw_key(mw), 17);
		post_send(other, (struct hdl_send_wr){.wr_id = 1,
		                                      .opcode = HDL_OP_BIND,
		                                      .flags = HDL_SEND_SIGNALED,
		                                      .bind = {mw, c.key, bind}});
		expect_sent(w, s->scq, other, 1, HDL_WC_BIND, 0);
		break;
	}
	case HDL_DETAIL_BOUNDS:
		bind.length = 7; /* one byte less than the smallest request */
		assert_int_equal(hdl_mw_bind(make_mw(s, HDL_MW_TYPE_1), &bind, &c.key), 0);
		break;
	case HDL_DETAIL_ACCESS:
		c.key = hdl_mr_key(make_mr(s, 8192, 16384, LOCAL_BOTH | (REMOTE_ALL & ~access)));
		break;
	default: { /* as for figure 15 */
		struct hdl_sge bad = bad_piece(s, detail, 0);
		c.key = bad.key;
	}
	}
	return c;
}

static const struct {
	uint32_t opcode, length, access;
} remote_rows[] = {{HDL_OP_WRITE, 64, HDL_ACCESS_REMOTE_WRITE},
                   {HDL_OP_WRITE, 8000, HDL_ACCESS_REMOTE_WRITE},
                   {HDL_OP_WRITE_IMM, 64, HDL_ACCESS_REMOTE_WRITE},
                   {HDL_OP_READ, 64, HDL_ACCESS_REMOTE_READ},
                   {HDL_OP_FETCH_ADD, 8, HDL_ACCESS_REMOTE_ATOMIC},
                   {HDL_OP_COMPARE_SWAP, 8, HDL_ACCESS_REMOTE_ATOMIC}};

static void post_row(struct world *w, struct hdl_qp *qa, uint32_t row, uint64_t addr,
                     struct hdl_key key)
{
	struct hdl_sge own = piece(&w->a, 128, remote_rows[row].length);
	struct hdl_send_wr wr = {.wr_id = 1,
	                         .sg_list = &own,
	                         .num_sge = 1,
	                         .opcode = remote_rows[row].opcode,
	                         .flags = HDL_SEND_SIGNALED};
	set_target(&wr, addr, key);
	post_send(qa, wr);
}

static void ip4_figure_18_remote_checks(void **state)
{
	static const uint32_t details[] = {
	        HDL_DETAIL_NOT_VALID, HDL_DETAIL_TYPE,   HDL_DETAIL_PD,    HDL_DETAIL_QP,
	        HDL_DETAIL_INSTANCE,  HDL_DETAIL_BOUNDS, HDL_DETAIL_ACCESS};
	struct world *w = *state;
	struct hdl_qp *other_a, *other_b;
	make_pair(w, NULL, &other_a, &other_b);
	for (uint32_t d = 0; d < COUNT(details); d++) {
		for (uint32_t r = 0; r < COUNT(remote_rows); r++) {
			struct hdl_qp *qa, *qb;
			if (lacks(w, remote_rows[r].opcode))
				continue;
			struct remote_case c =
			        bad_target(w, details[d], remote_rows[r].access, other_b);
			make_pair(w, &c.o, &qa, &qb);
			uint64_t before = counter_sum(w, counters[details[d]]);
			post_recv(qb, 7, &w->b, 0, 16);
			post_row(w, qa, r, c.addr, c.key);
			post_data(qa, 2, HDL_OP_SEND, &w->a, 0, 0);
			expect_refused(w, w->a.scq, qa, 1, HDL_WC_REM_ACCESS_ERR, details[d]);
			expect_behind(w, w->a.scq, qa, 2);
			if (remote_rows[r].opcode == HDL_OP_WRITE_IMM && !w->port->stream) {
				/* The receive that it was for reports it, so there is no event. */
				expect_failed(w, w->b.rcq, qb, 7, HDL_WC_LOC_ACCESS_ERR,
				              details[d]);
			} else {
				expect_event(w, &w->b, HDL_EVENT_QP_ACCESS_ERR, details[d], qb);
				expect_flushed(w, w->b.rcq, qb, 7);
			}
			assert_int_equal(qp_state_of(qa), HDL_QPS_ERR);
			assert_int_equal(qp_state_of(qb), HDL_QPS_ERR);
			assert_true(counter_sum(w, counters[details[d]]) > before);
			check_memory(w);
			expect_no_event(w);
			drop_qp(w, qa);
			drop_qp(w, qb);
		}
	}
}

/* Ranges that begin too early, end too late, or wrap around. */
static void ip4_figure_18_e_bounds_by_byte(void **state)
{
	struct world *w = *state;
	struct hdl_mr *mr = make_mr(&w->b, 8192, 4096, LOCAL_BOTH | REMOTE_ALL);
	uint64_t start = address(&w->b, 8192);
	const struct {
		uint64_t addr;
		uint32_t length;
		bool good;
	} rows[] = {
	        {start, 4096, true},         {start, 4097, false},
	        {start - 1, 1, false},       {start - 1, 2, false},
	        {start + 4095, 1, true},     {start + 4095, 2, false},
	        {start + 4096, 1, false},    {UINT64_MAX, 1, false},
	        {UINT64_MAX - 7, 64, false}, {0, 8, false},
	        {start + 1, 4095, true},     {start + 1, 4096, false},
	};
	for (uint32_t i = 0; i < 2 * COUNT(rows); i++) {
		struct hdl_qp *qa, *qb;
		uint32_t r = i / 2, opcode = i % 2 ? HDL_OP_READ : HDL_OP_WRITE;
		make_pair(w, NULL, &qa, &qb);
		post_rdma(qa, i, opcode, piece(&w->a, 16384, rows[r].length), rows[r].addr,
		          hdl_mr_key(mr));
		if (rows[r].good) {
			expect_sent(w, w->a.scq, qa, i, i % 2 ? HDL_WC_READ : HDL_WC_WRITE,
			            rows[r].length);
			if (i % 2 == 0)
				expect_copy(&w->b, rows[r].addr - address(&w->b, 0), &w->a, 16384,
				            rows[r].length);
			else
				expect_copy(&w->a, 16384, &w->b, rows[r].addr - address(&w->b, 0),
				            rows[r].length);
		} else {
			expect_refused(w, w->a.scq, qa, i, HDL_WC_REM_ACCESS_ERR,
			               HDL_DETAIL_BOUNDS);
			expect_event(w, &w->b, HDL_EVENT_QP_ACCESS_ERR, HDL_DETAIL_BOUNDS, qb);
		}
		check_memory(w);
		drop_qp(w, qa);
		drop_qp(w, qb);
	}
}

static void ip4_queue_pair_without_the_right(void **state)
{
	struct world *w = *state;
	for (uint32_t r = 0; r < COUNT(remote_rows); r++) {
		struct hdl_qp *qa, *qb;
		if (lacks(w, remote_rows[r].opcode))
			continue;
		struct qp_options o = {.access = REMOTE_ALL & ~remote_rows[r].access};
		make_pair(w, &o, &qa, &qb);
		post_recv(qb, 7, &w->b, 0, 16);
		post_row(w, qa, r, address(&w->b, 8192), arena_key(&w->b));
		if (w->port->stream) /* RFC 5040 section 4.8 has a code for it */
			expect_refused(w, w->a.scq, qa, 1, HDL_WC_REM_ACCESS_ERR,
			               HDL_DETAIL_ACCESS);
		else
			expect_refused(w, w->a.scq, qa, 1, HDL_WC_REM_INV_REQ_ERR, HDL_DETAIL_NONE);
		expect_event(w, &w->b, HDL_EVENT_QP_REQUEST_ERR, HDL_DETAIL_NONE, qb);
		expect_flushed(w, w->b.rcq, qb, 7);
		check_memory(w);
		expect_no_event(w);
	}
}

static void sn1_misaligned_atomic_is_an_invalid_request(void **state)
{
	struct world *w = *state;
	for (uint32_t by = 1; by < 8; by += 3) {
		struct hdl_qp *qa, *qb;
		make_pair(w, NULL, &qa, &qb);
		post_atomic(qa, 1, HDL_OP_FETCH_ADD, piece(&w->a, 0, 8), address(&w->b, 64 + by),
		            arena_key(&w->b), 1, 0);
		expect_refused(w, w->a.scq, qa, 1, HDL_WC_REM_INV_REQ_ERR, HDL_DETAIL_MISALIGNED);
		expect_event(w, &w->b, HDL_EVENT_QP_REQUEST_ERR, HDL_DETAIL_MISALIGNED, qb);
		assert_int_equal(qp_state_of(qb), HDL_QPS_ERR);
		check_memory(w);
		expect_no_event(w);
	}
}

/* Whether the memory may be accessed at all is checked before alignment. */
static void sn1_misaligned_atomic_with_a_bad_key_is_an_access_error(void **state)
{
	struct world *w = *state;
	for (uint32_t by = 0; by < 8; by += 7) {
		struct hdl_qp *qa, *qb;
		make_pair(w, NULL, &qa, &qb);
		struct hdl_key key = arena_key(&w->b);
		key = hdl_key_with_instance(key, (uint8_t)(key.v + 1));
		post_atomic(qa, 1, HDL_OP_COMPARE_SWAP, piece(&w->a, 0, 8), address(&w->b, 64 + by),
		            key, 1, 0);
		expect_refused(w, w->a.scq, qa, 1, HDL_WC_REM_ACCESS_ERR, HDL_DETAIL_INSTANCE);
		expect_event(w, &w->b, HDL_EVENT_QP_ACCESS_ERR, HDL_DETAIL_INSTANCE, qb);
		assert_int_equal(qp_state_of(qb), HDL_QPS_ERR);
		check_memory(w);
		expect_no_event(w);
	}
}

/* --- length --- */

static void sn1_receive_too_short(void **state)
{
	static const uint32_t sizes[] = {1, 64, 4096, 4097, 30000};
	struct world *w = *state;
	for (uint32_t i = 0; i < COUNT(sizes); i++) {
		struct hdl_qp *qa, *qb;
		make_pair(w, NULL, &qa, &qb);
		post_recv(qb, 1, &w->b, 128, sizes[i] - 1);
		post_recv(qb, 2, &w->b, 128, sizes[i]);
		post_data(qa, 3, HDL_OP_SEND, &w->a, 0, sizes[i]);
		post_data(qa, 4, HDL_OP_SEND, &w->a, 0, 1);
		expect_failed(w, w->b.rcq, qb, 1, HDL_WC_LOC_LEN_ERR, HDL_DETAIL_BOUNDS);
		expect_flushed(w, w->b.rcq, qb, 2);
		expect_refused(w, w->a.scq, qa, 3, HDL_WC_REM_INV_REQ_ERR, HDL_DETAIL_BOUNDS);
		expect_behind(w, w->a.scq, qa, 4);
		assert_int_equal(qp_state_of(qa), HDL_QPS_ERR);
		assert_int_equal(qp_state_of(qb), HDL_QPS_ERR);
		if (w->port->wire || w->port->stream) /* its first packets fit */
			expect_bytes(&w->b, 128, w->b.mem + 128, sizes[i] - 1);
		if (w->port->messages) /* the next message may have been placed before */
			expect_bytes(&w->b, 128, w->b.mem + 128, 1);
		check_memory(w);
	}
}

/* --- after the error --- */

static void sn1_error_flushes_everything_in_order(void **state)
{
	struct world *w = *state;
	if (w->port->stream)
		skip(); /* what the stream has taken is over */
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	for (uint32_t i = 0; i < 5; i++)
		post_recv(qa, 10 + i, &w->a, 0, 16);
	/* Behind a message that the peer cannot receive yet, one of each kind, unsignalled ones as
	 * well. */
	post_data(qa, 0, HDL_OP_SEND, &w->a, 0, 1);
	post_data(qa, 1, HDL_OP_SEND, &w->a, 0, 5000);
	post_rdma(qa, 2, HDL_OP_WRITE, piece(&w->a, 0, 8), address(&w->b, 0), arena_key(&w->b));
	post_rdma(qa, 3, HDL_OP_READ, piece(&w->a, 0, 8), address(&w->b, 0), arena_key(&w->b));
	post_atomic(qa, 4, HDL_OP_FETCH_ADD, piece(&w->a, 0, 8), address(&w->b, 0),
	            arena_key(&w->b), 1, 0);
	post_send(qa, (struct hdl_send_wr){.wr_id = 5, .opcode = HDL_OP_DELAY, .u.delay = {1}});
	post_send(qa, (struct hdl_send_wr){.wr_id = 6, .opcode = HDL_OP_SEND});
	world_settle(w);
	qp_go(qa, HDL_QPS_ERR);
	for (uint32_t i = 0; i < 7; i++)
		expect_flushed(w, w->a.scq, qa, i);
	for (uint32_t i = 0; i < 5; i++)
		expect_flushed(w, w->a.rcq, qa, 10 + i);
	/* Requests that are posted now are flushed, too. */
	post_data(qa, 8, HDL_OP_SEND, &w->a, 0, 0);
	post_recv(qa, 9, &w->a, 0, 1);
	expect_flushed(w, w->a.scq, qa, 8);
	expect_flushed(w, w->a.rcq, qa, 9);
	/* A receive that the peer has posted stays unused. */
	post_recv(qb, 1, &w->b, 0, 16);
	expect_nothing(w, w->b.rcq);
	check_memory(w);
}

static const struct CMUnitTest tests[] = {
        BEHAVIOUR(ip4_figure_15_local_pieces_of_requests),
        BEHAVIOUR(ip4_figure_15_local_pieces_of_receives),
        BEHAVIOUR(ip4_figure_18_remote_checks),
        BEHAVIOUR(ip4_figure_18_e_bounds_by_byte),
        BEHAVIOUR(ip4_queue_pair_without_the_right),
        BEHAVIOUR(sn1_misaligned_atomic_is_an_invalid_request),
        BEHAVIOUR(sn1_misaligned_atomic_with_a_bad_key_is_an_access_error),
        BEHAVIOUR(sn1_receive_too_short),
        BEHAVIOUR(sn1_error_flushes_everything_in_order),
};
THEME(error_theme, tests);
