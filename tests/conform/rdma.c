/* SN1: RDMA write and read, atomics, fence; IP8: the depth of the read resource queue. */
#include <pthread.h>
#include <stdatomic.h>

#include "conform.h"

static void sn1_write_places_every_size(void **state)
{
	static const uint32_t sizes[] = {0,    1,    7,    8,     63,      64,
	                                 4095, 4096, 4097, 65536, 1048577, 8388608};
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	for (uint32_t i = 0; i < COUNT(sizes); i++) {
		fill(&w->a, i, sizes[i], i);
		post_rdma(qa, i, HDL_OP_WRITE, piece(&w->a, i, sizes[i]),
		          address(&w->b, 1000 + i * 3), arena_key(&w->b));
		expect_sent(w, w->a.scq, qa, i, HDL_WC_WRITE, sizes[i]);
		expect_copy(&w->b, 1000 + i * 3, &w->a, i, sizes[i]);
		check_memory(w);
	}
	expect_nothing(w, w->b.rcq);
	expect_no_event(w);
}

/* hdl_counters(3): each byte of a message is sent and received once, each byte that a request moves
 * is written or read once, whichever way the port moves it. What gets lost is sent again. */
static void counters_count_every_byte_once(void **state)
{
	static const uint32_t sizes[] = {0, 1, 64, 1000, 4096, 4097, 50000};
	static const uint32_t opcodes[] = {HDL_OP_SEND, HDL_OP_WRITE, HDL_OP_READ};
	static const uint32_t done[] = {HDL_WC_SEND, HDL_WC_WRITE, HDL_WC_READ};
	static const char *const names[] = {"bytes_received", "bytes_written", "bytes_read"};
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	for (uint32_t i = 0; i < COUNT(opcodes); i++) {
		uint64_t moved = counter_sum(w, names[i]), sent = counter_sum(w, "bytes_sent");
		uint64_t all = 0;
		for (uint32_t n = 0; n < COUNT(sizes); n++) {
			fill(opcodes[i] == HDL_OP_READ ? &w->b : &w->a, 0, sizes[n], n);
			if (opcodes[i] == HDL_OP_SEND) {
				post_recv(qb, n, &w->b, 0, 50000);
				post_data(qa, n, HDL_OP_SEND, &w->a, 0, sizes[n]);
				expect_received(w, w->b.rcq, qb, qa, n, sizes[n]);
			} else {
				post_rdma(qa, n, opcodes[i], piece(&w->a, 0, sizes[n]),
				          address(&w->b, 0), arena_key(&w->b));
			}
			expect_sent(w, w->a.scq, qa, n, done[i], sizes[n]);
			if (opcodes[i] == HDL_OP_READ)
				expect_copy(&w->a, 0, &w->b, 0, sizes[n]);
			else
				expect_copy(&w->b, 0, &w->a, 0, sizes[n]);
			check_memory(w);
			all += sizes[n];
		}
		assert_int_equal(counter_sum(w, names[i]) - moved, all);
		if (opcodes[i] == HDL_OP_READ)
			assert_true(w->port->wire || counter_sum(w, "bytes_sent") == sent);
		if (opcodes[i] == HDL_OP_SEND)
			assert_true(counter_sum(w, "bytes_sent") - sent >= all);
		if (opcodes[i] == HDL_OP_SEND && !w->port->wire)
			assert_int_equal(counter_sum(w, "bytes_sent") - sent, all);
	}
}

static void sn1_write_gathers(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	for (uint32_t scale = 1; scale < 3000; scale = scale * 7 + 1) {
		struct hdl_sge list[4] = {piece(&w->a, 1, scale), piece(&w->a, 40000, 0),
		                          piece(&w->a, 10000, 2 * scale),
		                          piece(&w->a, 20003, scale + 1)};
		post_send(qa,
		          (struct hdl_send_wr){.wr_id = scale,
		                               .sg_list = list,
		                               .num_sge = 4,
		                               .opcode = HDL_OP_WRITE,
		                               .flags = HDL_SEND_SIGNALED,
		                               .u.rdma = {address(&w->b, 5), arena_key(&w->b)}});
		expect_sent(w, w->a.scq, qa, scale, HDL_WC_WRITE, 4 * scale + 1);
		expect_copy(&w->b, 5, &w->a, 1, scale);
		expect_copy(&w->b, 5 + scale, &w->a, 10000, 2 * scale);
		expect_copy(&w->b, 5 + 3 * scale, &w->a, 20003, scale + 1);
		check_memory(w);
	}
}

static void sn1_write_inline(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	unsigned char data[64], copy[64];
	pattern(data, 64, 4);
	memcpy(copy, data, 64);
	struct hdl_sge one = {.addr = (uint64_t)(uintptr_t)data, .length = 64};
	post_send(qa, (struct hdl_send_wr){.wr_id = 1,
	                                   .sg_list = &one,
	                                   .num_sge = 1,
	                                   .opcode = HDL_OP_WRITE,
	                                   .flags = HDL_SEND_SIGNALED | HDL_SEND_INLINE,
	                                   .u.rdma = {address(&w->b, 501), arena_key(&w->b)}});
	memset(data, 0, 64);
	expect_sent(w, w->a.scq, qa, 1, HDL_WC_WRITE, 64);
	expect_bytes(&w->b, 501, copy, 64);
	check_memory(w);
}

static void sn1_write_with_immediate_consumes_a_receive(void **state)
{
	static const uint32_t sizes[] = {0, 5, 4096, 20000};
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	for (uint32_t i = 0; i < COUNT(sizes); i++) {
		struct hdl_sge one = piece(&w->a, 0, sizes[i]);
		fill(&w->a, 0, sizes[i], i);
		post_recv(qb, 40 + i, &w->b, 60000, 16); /* its buffer stays untouched */
		post_send(qa,
		          (struct hdl_send_wr){.wr_id = i,
		                               .sg_list = &one,
		                               .num_sge = 1,
		                               .opcode = HDL_OP_WRITE_IMM,
		                               .flags = HDL_SEND_SIGNALED,
		                               .imm = 0xabc0 + i,
		                               .u.rdma = {address(&w->b, 77), arena_key(&w->b)}});
		expect_sent(w, w->a.scq, qa, i, HDL_WC_WRITE, sizes[i]);
		expect_wc(w, w->b.rcq,
		          &(struct hdl_wc){.wr_id = 40 + i,
		                           .opcode = HDL_WC_RECV_WRITE_IMM,
		                           .byte_len = sizes[i],
		                           .imm = 0xabc0 + i,
		                           .flags = HDL_WC_WITH_IMM,
		                           .qpn = hdl_qp_number(qb),
		                           .src_qpn = hdl_qp_number(qa)});
		expect_copy(&w->b, 77, &w->a, 0, sizes[i]);
		check_memory(w);
	}
}

static void sn1_read_scatters_every_size(void **state)
{
	static const uint32_t sizes[] = {0, 1, 8, 4095, 4096, 4097, 1048577, 8388608};
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	for (uint32_t i = 0; i < COUNT(sizes); i++) {
		uint32_t third = sizes[i] / 3;
		struct hdl_sge list[4] = {piece(&w->a, 13, third), piece(&w->a, 0, 0),
		                          piece(&w->a, 100 + third, third),
		                          piece(&w->a, 200 + 2 * third, sizes[i] - 2 * third)};
		fill(&w->b, 21, sizes[i], i);
		post_send(qa,
		          (struct hdl_send_wr){.wr_id = i,
		                               .sg_list = list,
		                               .num_sge = 4,
		                               .opcode = HDL_OP_READ,
		                               .flags = HDL_SEND_SIGNALED,
		                               .u.rdma = {address(&w->b, 21), arena_key(&w->b)}});
		expect_sent(w, w->a.scq, qa, i, HDL_WC_READ, sizes[i]);
		expect_copy(&w->a, 13, &w->b, 21, third);
		expect_copy(&w->a, 100 + third, &w->b, 21 + third, third);
		expect_copy(&w->a, 200 + 2 * third, &w->b, 21 + 2 * third, sizes[i] - 2 * third);
		check_memory(w);
	}
}

/* IBTA C9-88: a request of no bytes accesses nothing, so its key is not checked. */
static void c9_88_zero_length_needs_no_key(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	struct hdl_key wild = {0xfffffff0};
	struct hdl_sge none = {0};
	post_rdma(qa, 1, HDL_OP_WRITE, none, 0xdeadbeefdeadbeef, wild);
	post_rdma(qa, 2, HDL_OP_READ, none, UINT64_MAX, wild);
	post_recv(qb, 9, &w->b, 0, 0);
	post_rdma(qa, 3, HDL_OP_WRITE_IMM, none, 0, wild);
	/* Local pieces of no bytes are not checked, either. */
	struct hdl_sge empty = {.addr = 1, .length = 0, .key = {0xffffff}};
	post_send(qa, (struct hdl_send_wr){.wr_id = 4,
	                                   .sg_list = &empty,
	                                   .num_sge = 1,
	                                   .opcode = HDL_OP_WRITE,
	                                   .flags = HDL_SEND_SIGNALED});
	expect_sent(w, w->a.scq, qa, 1, HDL_WC_WRITE, 0);
	expect_sent(w, w->a.scq, qa, 2, HDL_WC_READ, 0);
	expect_sent(w, w->a.scq, qa, 3, HDL_WC_WRITE, 0);
	expect_sent(w, w->a.scq, qa, 4, HDL_WC_WRITE, 0);
	check_memory(w);
	expect_no_event(w);
}

/* IBTA section 10.6.3.1 allows a region of no bytes; not one byte may be accessed. */
static void a_region_of_no_bytes_grants_none(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	struct hdl_mr *mr = make_mr(&w->b, 100, 0, LOCAL_BOTH | REMOTE_ALL);
	struct hdl_sge none = {0};
	post_rdma(qa, 1, HDL_OP_WRITE, none, address(&w->b, 100), hdl_mr_key(mr));
	post_rdma(qa, 2, HDL_OP_READ, none, address(&w->b, 100), hdl_mr_key(mr));
	expect_sent(w, w->a.scq, qa, 1, HDL_WC_WRITE, 0);
	expect_sent(w, w->a.scq, qa, 2, HDL_WC_READ, 0);
	post_rdma(qa, 3, HDL_OP_WRITE, piece(&w->a, 0, 1), address(&w->b, 100), hdl_mr_key(mr));
	expect_refused(w, w->a.scq, qa, 3, HDL_WC_REM_ACCESS_ERR, HDL_DETAIL_BOUNDS);
	expect_event(w, &w->b, HDL_EVENT_QP_ACCESS_ERR, HDL_DETAIL_BOUNDS, qb);
	check_memory(w);
}

/* A region without memory: it reads as zeroes, discards writes, contains every address, and gives a
 * peer nothing. */
static void a_null_region_reads_zeroes_and_drops_writes(void **state)
{
	static const uint32_t sizes[] = {1, 64, 4097, 40000};
	static const uint64_t addresses[] = {0, 0x7ffffffff123, UINT64_MAX - 65536};
	static unsigned char zeroes[40000];
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	struct hdl_mr *null, *more;
	make_pair(w, NULL, &qa, &qb);
	assert_int_equal(hdl_mr_alloc_null(w->a.pd, &null), 0);
	keep_mr(w, null);
	assert_int_equal(hdl_mr_share(null, w->a.pd, LOCAL_BOTH, &more), -HDL_EINVAL);
	for (uint32_t i = 0; i < COUNT(sizes) * COUNT(addresses); i++) {
		uint32_t length = sizes[i / COUNT(addresses)];
		struct hdl_sge nowhere = {.addr = addresses[i % COUNT(addresses)],
		                          .length = length,
		                          .key = hdl_mr_key(null)};
		fill(&w->b, 7, length, i);
		/* Read first, so that anything but zeroes would show in what is written. */
		post_rdma(qa, 1, HDL_OP_READ, nowhere, address(&w->b, 7), arena_key(&w->b));
		expect_sent(w, w->a.scq, qa, 1, HDL_WC_READ, length);
		post_rdma(qa, 2, HDL_OP_WRITE, nowhere, address(&w->b, 7), arena_key(&w->b));
		expect_sent(w, w->a.scq, qa, 2, HDL_WC_WRITE, length);
		expect_bytes(&w->b, 7, zeroes, length);
		check_memory(w);
	}
	post_rdma(qb, 3, HDL_OP_WRITE, piece(&w->b, 0, 1), 0, hdl_mr_key(null));
	expect_refused(w, w->b.scq, qb, 3, HDL_WC_REM_ACCESS_ERR, HDL_DETAIL_ACCESS);
	expect_event(w, &w->a, HDL_EVENT_QP_ACCESS_ERR, HDL_DETAIL_ACCESS, qa);
	check_memory(w);
}

static void sn1_compare_swap_and_fetch_add(void **state)
{
	static const struct {
		uint32_t opcode;
		uint64_t before, compare_add, swap, after;
	} rows[] = {
	        {HDL_OP_COMPARE_SWAP, 5, 5, 9, 9},
	        {HDL_OP_COMPARE_SWAP, 5, 6, 9, 5},
	        {HDL_OP_COMPARE_SWAP, UINT64_MAX, UINT64_MAX, 0, 0},
	        {HDL_OP_COMPARE_SWAP, 0x100000005, 5, 9, 0x100000005},
	        {HDL_OP_FETCH_ADD, 5, 1, 0, 6},
	        {HDL_OP_FETCH_ADD, UINT64_MAX, 1, 0, 0},
	        {HDL_OP_FETCH_ADD, 7, UINT64_MAX, 0, 6},
	        {HDL_OP_FETCH_ADD, 0xffffffff, 1, 0, 0x100000000},
	        {HDL_OP_FETCH_ADD, 7, 0, 3, 7},
	};
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	for (uint32_t i = 0; i < COUNT(rows); i++) {
		memcpy(w->b.mem + 4096, &rows[i].before, 8);
		expect_bytes(&w->b, 4096, &rows[i].before, 8);
		/* The value found is scattered like any other data. */
		struct hdl_sge list[2] = {piece(&w->a, 33, 3), piece(&w->a, 50, 5)};
		post_send(qa, (struct hdl_send_wr){.wr_id = i,
		                                   .sg_list = list,
		                                   .num_sge = 2,
		                                   .opcode = rows[i].opcode,
		                                   .flags = HDL_SEND_SIGNALED,
		                                   .u.atomic = {.addr = address(&w->b, 4096),
		                                                .key = arena_key(&w->b),
		                                                .compare_add = rows[i].compare_add,
		                                                .swap = rows[i].swap}});
		expect_sent(w, w->a.scq, qa, i,
		            rows[i].opcode == HDL_OP_FETCH_ADD ? HDL_WC_FETCH_ADD
		                                               : HDL_WC_COMPARE_SWAP,
		            8);
		unsigned char found[8];
		memcpy(found, &rows[i].before, 8);
		expect_bytes(&w->a, 33, found, 3);
		expect_bytes(&w->a, 50, found + 3, 5);
		expect_bytes(&w->b, 4096, &rows[i].after, 8);
		check_memory(w);
	}
	struct hdl_sge seven = piece(&w->a, 0, 7);
	struct hdl_send_wr wr = {.sg_list = &seven, .num_sge = 1, .opcode = HDL_OP_FETCH_ADD};
	assert_int_equal(try_send(qa, wr), -HDL_EINVAL);
}

/* A burst of atomics, more than the read resource queue holds. */
static void ip8_more_reads_than_resources_wait_their_turn(void **state)
{
	enum { MANY = 60 };
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	struct qp_options o = {.cap = {.max_send_wr = MANY}, .max_rd_atomic = 3};
	make_pair(w, &o, &qa, &qb);
	memset(w->b.mem + 64, 0, 8);
	for (uint32_t i = 0; i < MANY; i++) {
		if (i % 3 == 2)
			post_rdma(qa, i, HDL_OP_READ, piece(&w->a, 1024 + 8 * i, 8),
			          address(&w->b, 64), arena_key(&w->b));
		else
			post_atomic(qa, i, HDL_OP_FETCH_ADD, piece(&w->a, 1024 + 8 * i, 8),
			            address(&w->b, 64), arena_key(&w->b), 1, 0);
	}
	uint64_t value = 0;
	for (uint32_t i = 0; i < MANY; i++) {
		expect_sent(w, w->a.scq, qa, i, i % 3 == 2 ? HDL_WC_READ : HDL_WC_FETCH_ADD, 8);
		expect_bytes(&w->a, 1024 + 8 * i, &value, 8);
		value += i % 3 != 2;
	}
	expect_bytes(&w->b, 64, &value, 8);
	check_memory(w);
}

static void ip8_no_resources_no_reads(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	/* The requester may have none outstanding: the request does not fit the queue pair. */
	make_pair(w, &(struct qp_options){.no_rd_atomic = true}, &qa, &qb);
	post_rdma(qa, 1, HDL_OP_READ, piece(&w->a, 0, 8), address(&w->b, 0), arena_key(&w->b));
	expect_failed(w, w->a.scq, qa, 1, HDL_WC_LOC_QP_OP_ERR, HDL_DETAIL_LIMIT);
	assert_int_equal(qp_state_of(qa), HDL_QPS_ERR);
	/* The responder accepts none: beyond the end of its queue. */
	make_pair(w, &(struct qp_options){.no_dest_rd_atomic = true}, &qa, &qb);
	post_atomic(qa, 2, HDL_OP_FETCH_ADD, piece(&w->a, 0, 8), address(&w->b, 0),
	            arena_key(&w->b), 1, 0);
	expect_refused(w, w->a.scq, qa, 2, HDL_WC_REM_INV_REQ_ERR,
	               w->port->stream ? HDL_DETAIL_LIMIT : HDL_DETAIL_NONE);
	expect_event(w, &w->b, HDL_EVENT_QP_REQUEST_ERR, HDL_DETAIL_NONE, qb);
	assert_int_equal(qp_state_of(qb), HDL_QPS_ERR);
	check_memory(w);
}

static void sn1_fence_waits_for_reads(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	for (uint32_t round = 0; round < 20; round++) {
		fill(&w->b, 0, 8192, round);
		post_recv(qb, round, &w->b, 16384, 8192);
		/* The data that the read brings is what the fenced send sends. */
		post_rdma(qa, 1, HDL_OP_READ, piece(&w->a, 100, 8192), address(&w->b, 0),
		          arena_key(&w->b));
		struct hdl_sge one = piece(&w->a, 100, 8192);
		post_send(qa, (struct hdl_send_wr){.wr_id = 2,
		                                   .sg_list = &one,
		                                   .num_sge = 1,
		                                   .opcode = HDL_OP_SEND,
		                                   .flags = HDL_SEND_SIGNALED | HDL_SEND_FENCE});
		expect_sent(w, w->a.scq, qa, 1, HDL_WC_READ, 8192);
		expect_sent(w, w->a.scq, qa, 2, HDL_WC_SEND, 8192);
		expect_received(w, w->b.rcq, qb, qa, round, 8192);
		expect_copy(&w->a, 100, &w->b, 0, 8192);
		expect_copy(&w->b, 16384, &w->b, 0, 8192);
		check_memory(w);
	}
}

/* One thread's share of the counting, through one queue pair. */
struct counting {
	struct world *w;
	struct side *s;
	struct hdl_qp *qp;
	struct hdl_cq *cq;
	uint64_t addr;
	struct hdl_key key;
	size_t offset;
	unsigned times;
	bool failed;
};

static void *count_up(void *context)
{
	struct counting *c = context;
	for (unsigned done = 0; done < c->times && !c->failed;) {
		struct hdl_sge own = piece(c->s, c->offset, 8);
		struct hdl_send_wr wr = {
		        .sg_list = &own,
		        .num_sge = 1,
		        .opcode = HDL_OP_FETCH_ADD,
		        .flags = HDL_SEND_SIGNALED,
		        .u.atomic = {.addr = c->addr, .key = c->key, .compare_add = 1}};
		struct hdl_wc wc;
		int count;
		if (hdl_post_send(c->qp, &wr, NULL) != 0)
			c->failed = true;
		uint64_t start = world_now(c->w);
		while (!c->failed && (count = hdl_cq_poll(c->cq, &wc, 1)) == 0) {
			if (!c->w->port->threaded)
				world_turn(c->w);
			c->failed = world_expired(c->w, start);
		}
		if (!c->failed && wc.status != HDL_WC_SUCCESS)
			c->failed = true;
		done++;
	}
	return NULL;
}

/* Three initiators (two at a, and b through its own adapter) add to one word concurrently; the
 * application adds as well. */
static void sn1_atomics_are_atomic_for_each_other(void **state)
{
	enum { TIMES = 1500 };
	struct world *w = *state;
	skip_lossy(w);
	struct counting work[3];
	pthread_t threads[3];
	if (lacks(w, HDL_OP_FETCH_ADD))
		skip();
	memset(w->b.mem, 0, 8);
	for (int i = 0; i < 3; i++) {
		struct hdl_qp *from, *to;
		struct side *s = i < 2 ? &w->a : &w->b;
		struct hdl_cq *cq = make_cq(s, 16, NULL, NULL);
		from = make_qp(s, &(struct qp_options){.scq = cq});
		to = make_qp(&w->b, NULL);
		qp_to_init(from, NULL);
		qp_to_init(to, NULL);
		qp_to_rtr(from, NULL, &w->b.gid, hdl_qp_number(to));
		qp_to_rtr(to, NULL, &s->gid, hdl_qp_number(from));
		qp_to_rts(from, NULL);
		qp_to_rts(to, NULL);
		work[i] = (struct counting){.w = w,
		                            .s = s,
		                            .qp = from,
		                            .cq = cq,
		                            .addr = address(&w->b, 0),
		                            .key = arena_key(&w->b),
		                            .offset = 4096 + 64 * (size_t)i,
		                            .times = TIMES};
	}
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, count_up, &work[i]), 0);
	for (int i = 0; i < TIMES; i++)
		atomic_fetch_add((_Atomic uint64_t *)(void *)w->b.mem, 1);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 3; i++)
		assert_false(work[i].failed);
	uint64_t sum;
	memcpy(&sum, w->b.mem, 8);
	assert_int_equal(sum, 4 * TIMES);
}

/* What was granted to the last request is no promise to the next one, even if it is the same. */
static void sn1_every_request_is_judged_anew(void **state)
{
	static const uint32_t opcodes[] = {HDL_OP_WRITE, HDL_OP_READ};
	struct world *w = *state;
	for (uint32_t i = 0; i < 2 * COUNT(opcodes); i++) {
		struct hdl_qp *qa, *qb;
		struct hdl_mr *mr =
		        make_mr(&w->b, 4096, 4096, LOCAL_BOTH | REMOTE_ALL | HDL_ACCESS_BIND);
		struct hdl_mw *mw = make_mw(&w->b, HDL_MW_TYPE_1);
		struct hdl_bind bind = {.mr = mr,
		                        .addr = address(&w->b, 4096),
		                        .length = 256,
		                        .access = REMOTE_ALL};
		struct hdl_key key = hdl_mr_key(mr);
		bool window = i % 2 != 0, read = opcodes[i / 2] == HDL_OP_READ;
		if (window)
			assert_int_equal(hdl_mw_bind(mw, &bind, &key), 0);
		make_pair(w, NULL, &qa, &qb);
		for (uint32_t j = 0; j < 3; j++) { /* at some places within it */
			uint32_t at = 4096 + 100 * j;
			fill(read ? &w->b : &w->a, at, 8, i + j);
			post_rdma(qa, j, opcodes[i / 2], piece(&w->a, at, 8), address(&w->b, at),
			          key);
			expect_sent(w, w->a.scq, qa, j, read ? HDL_WC_READ : HDL_WC_WRITE, 8);
			expect_copy(read ? &w->a : &w->b, at, read ? &w->b : &w->a, at, 8);
		}
		check_memory(w);
		assert_int_equal(hdl_mw_free(mw), 0);
		forget_object(w, mw);
		if (!window) {
			assert_int_equal(hdl_mr_deregister(mr), 0);
			forget_object(w, mr);
		}
		fill(read ? &w->b : &w->a, 4096, 8, 77);
		post_rdma(qa, 9, opcodes[i / 2], piece(&w->a, 4096, 8), address(&w->b, 4096), key);
		expect_refused(w, w->a.scq, qa, 9, HDL_WC_REM_ACCESS_ERR, HDL_DETAIL_NOT_VALID);
		expect_event(w, &w->b, HDL_EVENT_QP_ACCESS_ERR, HDL_DETAIL_NOT_VALID, qb);
		check_memory(w);
		drop_qp(w, qa);
		drop_qp(w, qb);
	}
}

static const struct CMUnitTest tests[] = {
        BIG_BEHAVIOUR(sn1_write_places_every_size),
        BEHAVIOUR(counters_count_every_byte_once),
        BEHAVIOUR(sn1_write_gathers),
        BEHAVIOUR(sn1_write_inline),
        BEHAVIOUR(sn1_write_with_immediate_consumes_a_receive),
        BIG_BEHAVIOUR(sn1_read_scatters_every_size),
        BEHAVIOUR(c9_88_zero_length_needs_no_key),
        BEHAVIOUR(a_region_of_no_bytes_grants_none),
        BEHAVIOUR(a_null_region_reads_zeroes_and_drops_writes),
        BEHAVIOUR(sn1_compare_swap_and_fetch_add),
        BEHAVIOUR(ip8_more_reads_than_resources_wait_their_turn),
        BEHAVIOUR(ip8_no_resources_no_reads),
        BEHAVIOUR(sn1_fence_waits_for_reads),
        BEHAVIOUR(sn1_every_request_is_judged_anew),
        BEHAVIOUR(sn1_atomics_are_atomic_for_each_other),
};
THEME(rdma_theme, tests);
