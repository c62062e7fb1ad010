/* SN1: send and receive on a reliable connection. */
#include "conform.h"

/* What the receiver must see of a message from @qa. */
static struct hdl_wc received(struct hdl_qp *qb, struct hdl_qp *qa, uint64_t wr_id, uint32_t length)
{
	return (struct hdl_wc){.wr_id = wr_id,
	                       .opcode = HDL_WC_RECV,
	                       .byte_len = length,
	                       .qpn = hdl_qp_number(qb),
	                       .src_qpn = hdl_qp_number(qa)};
}

static void sn1_send_arrives_whole_at_every_size(void **state)
{
	static const uint32_t sizes[] = {0,     1,       7,       8,       31,     32,   33,
	                                 63,    64,      65,      4095,    4096,   4097, 65535,
	                                 65536, 1048575, 1048576, 1048577, 8388608};
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	for (uint32_t i = 0; i < COUNT(sizes); i++) {
		uint32_t odd = i % 5; /* neither end need be aligned */
		fill(&w->a, 64 + odd, sizes[i], i);
		post_recv(qb, 100 + i, &w->b, 4096 + 3 * odd, sizes[i] + i % 2);
		post_data(qa, i, HDL_OP_SEND, &w->a, 64 + odd, sizes[i]);
		expect_sent(w, w->a.scq, qa, i, HDL_WC_SEND, sizes[i]);
		expect_received(w, w->b.rcq, qb, qa, 100 + i, sizes[i]);
		expect_copy(&w->b, 4096 + 3 * odd, &w->a, 64 + odd, sizes[i]);
		check_memory(w);
	}
	expect_no_event(w);
}

/* Cut @total bytes from @offset on into @count pieces, some of them empty, with a gap of @gap bytes
 * between them. */
static void cut(struct side *s, size_t offset, uint32_t total, uint32_t gap, struct hdl_sge *list,
                uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		uint32_t length = i % 7 == 3 ? 0 : total / count + i % 3;
		if (length > total || i == count - 1)
			length = i == count - 1 ? total : 0;
		list[i] = piece(s, offset, length);
		offset += length + gap;
		total -= length;
	}
}

static void sn1_send_gathers_and_scatters_up_to_32_pieces(void **state)
{
	static const struct {
		uint32_t from, to, total;
	} rows[] = {{2, 1, 100},   {1, 2, 100},   {5, 3, 777},    {32, 32, 1000},
	            {32, 1, 4096}, {1, 32, 4097}, {31, 32, 9999}, {32, 7, 20000}};
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	struct qp_options o = {.cap = {.max_send_sge = HDL_MAX_SGE, .max_recv_sge = HDL_MAX_SGE}};
	make_pair(w, &o, &qa, &qb);
	for (uint32_t i = 0; i < COUNT(rows); i++) {
		struct hdl_sge from[HDL_MAX_SGE], to[HDL_MAX_SGE];
		static unsigned char whole[ARENA_BYTES];
		cut(&w->a, 11, rows[i].total, 5, from, rows[i].from);
		cut(&w->b, 1001, rows[i].total, 9, to, rows[i].to);
		fill(&w->a, 0, 32768, 7 + i);
		uint32_t at = 0;
		for (uint32_t p = 0; p < rows[i].from; at += from[p++].length)
			memcpy(whole + at, (void *)(uintptr_t)from[p].addr, from[p].length);
		assert_int_equal(at, rows[i].total);
		at = 0;
		for (uint32_t p = 0; p < rows[i].to; at += to[p++].length)
			expect_bytes(&w->b, to[p].addr - address(&w->b, 0), whole + at,
			             to[p].length);
		assert_int_equal(try_recv(qb, i, to, rows[i].to), 0);
		post_send(qa, (struct hdl_send_wr){.wr_id = 50 + i,
		                                   .sg_list = from,
		                                   .num_sge = rows[i].from,
		                                   .opcode = HDL_OP_SEND,
		                                   .flags = HDL_SEND_SIGNALED});
		expect_sent(w, w->a.scq, qa, 50 + i, HDL_WC_SEND, rows[i].total);
		expect_received(w, w->b.rcq, qb, qa, i, rows[i].total);
		check_memory(w);
	}
}

static void sn1_inline_data_is_the_callers_again_after_post(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	struct qp_options o = {.cap = {.max_inline = HDL_MAX_INLINE, .max_send_sge = 1}};
	make_pair(w, &o, &qa, &qb);
	for (uint32_t length = 0; length <= HDL_MAX_INLINE; length += length < 70 ? 1 : 53) {
		unsigned char data[HDL_MAX_INLINE], copy[HDL_MAX_INLINE];
		uint32_t half = length / 2;
		pattern(data, length, length);
		memcpy(copy, data, length);
		/* Two pieces, one more than a list may have: inline data is not a list. Keys are
		 * ignored. */
		struct hdl_sge list[2] = {
		        {.addr = (uint64_t)(uintptr_t)data, .length = half, .key = {0xdeadbeef}},
		        {.addr = (uint64_t)(uintptr_t)(data + half), .length = length - half}};
		post_recv(qb, length, &w->b, 99, length + 1);
		post_send(qa, (struct hdl_send_wr){.wr_id = length,
		                                   .sg_list = list,
		                                   .num_sge = 2,
		                                   .opcode = HDL_OP_SEND,
		                                   .flags = HDL_SEND_SIGNALED | HDL_SEND_INLINE});
		memset(data, 0xee, sizeof(data));
		expect_sent(w, w->a.scq, qa, length, HDL_WC_SEND, length);
		expect_received(w, w->b.rcq, qb, qa, length, length);
		expect_bytes(&w->b, 99, copy, length);
		check_memory(w);
	}
	struct hdl_sge long_piece = piece(&w->a, 0, HDL_MAX_INLINE + 1);
	struct hdl_send_wr wr = {.sg_list = &long_piece,
	                         .num_sge = 1,
	                         .opcode = HDL_OP_SEND,
	                         .flags = HDL_SEND_INLINE};
	assert_int_equal(try_send(qa, wr), -HDL_EMSGSIZE);
	wr.opcode = HDL_OP_READ;
	long_piece.length = 8;
	assert_int_equal(try_send(qa, wr), -HDL_EINVAL);
}

static void sn1_immediate_data_is_carried_unchanged(void **state)
{
	static const uint32_t values[] = {0, 1, 0x80000000, 0xffffffff, 0x12345678};
	struct world *w = *state;
	if (w->port->stream)
		skip(); /* RFC 7306 has no Send with immediate data */
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	for (uint32_t i = 0; i < COUNT(values); i++) {
		uint32_t length = i * 2000;
		struct hdl_sge one = piece(&w->a, 0, length);
		fill(&w->a, 0, length, i);
		post_recv(qb, i, &w->b, 16, length);
		post_send(qa, (struct hdl_send_wr){.wr_id = 9,
		                                   .sg_list = &one,
		                                   .num_sge = 1,
		                                   .opcode = HDL_OP_SEND_IMM,
		                                   .flags = HDL_SEND_SIGNALED,
		                                   .imm = values[i]});
		struct hdl_wc want = received(qb, qa, i, length);
		want.flags = HDL_WC_WITH_IMM;
		want.imm = values[i];
		expect_sent(w, w->a.scq, qa, 9, HDL_WC_SEND, length);
		expect_wc(w, w->b.rcq, &want);
		expect_copy(&w->b, 16, &w->a, 0, length);
		check_memory(w);
	}
}

static void sn1_unsignalled_work_completes_only_when_it_fails(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	for (uint32_t i = 0; i < 10; i++)
		post_recv(qb, i, &w->b, 0, 0);
	for (uint32_t i = 0; i < 9; i++)
		post_send(qa, (struct hdl_send_wr){.wr_id = i, .opcode = HDL_OP_SEND});
	post_data(qa, 9, HDL_OP_SEND, &w->a, 0, 0);
	expect_sent(w, w->a.scq, qa, 9, HDL_WC_SEND, 0);
	for (uint32_t i = 0; i < 10; i++)
		expect_received(w, w->b.rcq, qb, qa, i, 0);
	expect_nothing(w, w->a.scq);
	/* The places of the unsignalled requests are free again: a later completion was polled. */
	for (uint32_t i = 0; i < 15; i++)
		post_recv(qb, i, &w->b, 0, 0);
	for (uint32_t i = 0; i < 15; i++)
		post_send(qa, (struct hdl_send_wr){.wr_id = i, .opcode = HDL_OP_SEND});
	for (uint32_t i = 0; i < 15; i++)
		expect_received(w, w->b.rcq, qb, qa, i, 0);
	expect_nothing(w, w->a.scq);
	struct hdl_sge one = {.length = 1};
	post_send(qa, (struct hdl_send_wr){
	                      .wr_id = 77, .opcode = HDL_OP_SEND, .sg_list = &one, .num_sge = 1});
	expect_failed(w, w->a.scq, qa, 77, HDL_WC_LOC_PROT_ERR, HDL_DETAIL_NOT_VALID);
}

static void sn1_signal_all_completes_everything(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, &(struct qp_options){.signal_all = true}, &qa, &qb);
	for (uint32_t i = 0; i < 5; i++) {
		post_recv(qb, i, &w->b, 0, 0);
		post_send(qa, (struct hdl_send_wr){.wr_id = i, .opcode = HDL_OP_SEND});
	}
	for (uint32_t i = 0; i < 5; i++)
		expect_sent(w, w->a.scq, qa, i, HDL_WC_SEND, 0);
}

static void sn1_completions_come_in_order_of_posting(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	fill(&w->a, 0, 20000, 3);
	for (uint32_t i = 0; i < 4; i++)
		post_recv(qb, 100 + i, &w->b, 40000 + i * 5000, 5000);
	/* Long and short, sends and RDMA: whatever finishes first waits for what was posted before
	 * it. */
	post_data(qa, 0, HDL_OP_SEND, &w->a, 0, 5000);
	post_rdma(qa, 1, HDL_OP_WRITE, piece(&w->a, 5000, 7), address(&w->b, 7), arena_key(&w->b));
	post_rdma(qa, 2, HDL_OP_READ, piece(&w->a, 30000, 100), address(&w->b, 20000),
	          arena_key(&w->b));
	post_data(qa, 3, HDL_OP_SEND, &w->a, 5100, 1);
	post_atomic(qa, 4, HDL_OP_FETCH_ADD, piece(&w->a, 31000, 8), address(&w->b, 800),
	            arena_key(&w->b), 1, 0);
	post_data(qa, 5, HDL_OP_SEND, &w->a, 6000, 4096);
	post_data(qa, 6, HDL_OP_SEND, &w->a, 12000, 4097);
	static const struct {
		uint16_t opcode;
		uint32_t length;
	} want[] = {{HDL_WC_SEND, 5000}, {HDL_WC_WRITE, 7},     {HDL_WC_READ, 100},
	            {HDL_WC_SEND, 1},    {HDL_WC_FETCH_ADD, 8}, {HDL_WC_SEND, 4096},
	            {HDL_WC_SEND, 4097}};
	for (uint32_t i = 0; i < COUNT(want); i++)
		expect_sent(w, w->a.scq, qa, i, want[i].opcode, want[i].length);
	static const uint32_t lengths[] = {5000, 1, 4096, 4097}, offsets[] = {0, 5100, 6000, 12000};
	for (uint32_t i = 0; i < 4; i++) {
		expect_received(w, w->b.rcq, qb, qa, 100 + i, lengths[i]);
		expect_copy(&w->b, 40000 + i * 5000, &w->a, offsets[i], lengths[i]);
	}
	expect_copy(&w->b, 7, &w->a, 5000, 7);
	expect_copy(&w->a, 30000, &w->b, 20000, 100);
	expect_copy(&w->a, 31000, &w->b, 800, 8);
	uint64_t word;
	memcpy(&word, w->b.shadow + 800, 8);
	word++;
	expect_bytes(&w->b, 800, &word, 8);
	check_memory(w);
}

static void sn1_full_queues_refuse_and_recover(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	struct qp_options o = {.cap = {.max_send_wr = 5, .max_recv_wr = 7}};
	make_pair(w, &o, &qa, &qb);
	struct hdl_sge none = {0};
	/* The peer has no receive: nothing is removed from the send queue. */
	for (uint32_t i = 0; i < 5; i++)
		post_data(qa, i, HDL_OP_SEND, &w->a, 0, 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(try_send(qa, (struct hdl_send_wr){.opcode = HDL_OP_SEND}),
		                 -HDL_ENOSPC);
		world_settle(w);
	}
	/* Nothing comes from b: its receive queue fills up at a. */
	for (uint32_t i = 0; i < 7; i++)
		assert_int_equal(try_recv(qa, i, &none, 0), 0);
	assert_int_equal(try_recv(qa, 7, &none, 0), -HDL_ENOSPC);
	for (uint32_t i = 0; i < 7; i++)
		assert_int_equal(try_recv(qb, i, &none, 0), 0);
	for (uint32_t i = 0; i < 5; i++)
		expect_sent(w, w->a.scq, qa, i, HDL_WC_SEND, 0);
	for (uint32_t i = 0; i < 5; i++)
		expect_received(w, w->b.rcq, qb, qa, i, 0);
	post_data(qa, 9, HDL_OP_SEND, &w->a, 0, 0);
	expect_sent(w, w->a.scq, qa, 9, HDL_WC_SEND, 0);
	expect_received(w, w->b.rcq, qb, qa, 5, 0);
}

/* A request is outstanding until its completion, or that of a later one, has been polled: a
 * completion queue as long as the work queues does not overflow, however fast they are
 * processed. */
static void sn1_what_was_not_taken_is_outstanding(void **state)
{
	static const uint32_t opcodes[] = {HDL_OP_SEND, HDL_OP_WRITE, HDL_OP_READ};
	struct world *w = *state;
	struct hdl_sge none = {0};
	struct qp_options o = {.cap = {.max_send_wr = 5, .max_recv_wr = 6}};
	for (size_t k = 0; k < COUNT(opcodes); k++) {
		struct hdl_qp *qa, *qb;
		struct hdl_sge piece = {
		        .addr = address(&w->a, 0), .length = 8, .key = hdl_mr_key(w->a.mr)};
		struct hdl_send_wr wr = {.opcode = opcodes[k],
		                         .sg_list = &piece,
		                         .num_sge = 1,
		                         .u.rdma = {address(&w->b, 0), hdl_mr_key(w->b.mr)}};
		bool sends = opcodes[k] == HDL_OP_SEND;
		uint32_t wc_opcode = sends                       ? HDL_WC_SEND
		                     : opcodes[k] == HDL_OP_READ ? HDL_WC_READ
		                                                 : HDL_WC_WRITE;
		make_pair(w, &o, &qa, &qb);
		for (uint32_t i = 0; sends && i < 6; i++)
			post_recv(qb, i, &w->b, 0, 8);
		/* Two unsignalled requests, then three signalled ones. */
		for (wr.wr_id = 0; wr.wr_id < 5; wr.wr_id++) {
			wr.flags = wr.wr_id >= 2 ? HDL_SEND_SIGNALED : 0;
			post_send(qa, wr);
			world_settle(w);
		}
		for (int i = 0; i < 3; i++) {
			assert_int_equal(try_send(qa, wr), -HDL_ENOSPC);
			world_settle(w);
		}
		/* The first completion is that of the third: three places are free. */
		expect_sent(w, w->a.scq, qa, 2, wc_opcode, 8);
		for (; wr.wr_id < 8; wr.wr_id++) {
			if (sends && wr.wr_id == 5) { /* the same applies to receives */
				assert_int_equal(try_recv(qb, 6, &none, 0), -HDL_ENOSPC);
				for (uint32_t i = 0; i < 5; i++)
					expect_received(w, w->b.rcq, qb, qa, i, 8);
				for (uint32_t i = 6; i < 11; i++)
					post_recv(qb, i, &w->b, 0, 8);
				assert_int_equal(try_recv(qb, 11, &none, 0), -HDL_ENOSPC);
			}
			post_send(qa, wr);
			world_settle(w);
		}
		assert_int_equal(try_send(qa, wr), -HDL_ENOSPC);
		for (uint32_t i = 3; i < 8; i++)
			expect_sent(w, w->a.scq, qa, i, wc_opcode, 8);
		for (uint32_t i = 5; sends && i < 8; i++)
			expect_received(w, w->b.rcq, qb, qa, i, 8);
		drop_qp(w, qa);
		drop_qp(w, qb);
	}
}

static void sn1_many_in_flight_arrive_in_order(void **state)
{
	enum { ROUNDS = 20, DEPTH = 60 };
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	struct qp_options o = {.cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH}};
	make_pair(w, &o, &qa, &qb);
	fill(&w->a, 0, DEPTH * 512, 5);
	for (uint32_t round = 0; round < ROUNDS; round++) {
		for (uint32_t i = 0; i < DEPTH; i++)
			post_recv(qb, i, &w->b, i * 512, 512);
		for (uint32_t i = 0; i < DEPTH; i++)
			post_data(qa, i, HDL_OP_SEND, &w->a, i * 512, (i * 37 + round) % 513);
		for (uint32_t i = 0; i < DEPTH; i++) {
			uint32_t length = (i * 37 + round) % 513;
			expect_sent(w, w->a.scq, qa, i, HDL_WC_SEND, length);
			expect_received(w, w->b.rcq, qb, qa, i, length);
			expect_copy(&w->b, i * 512, &w->a, i * 512, length);
		}
		check_memory(w);
	}
}

static void sn1_post_list_stops_at_the_bad_request(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	struct hdl_sge many[5] = {{0}};
	struct hdl_send_wr s[4];
	struct hdl_recv_wr r[4];
	for (uint32_t i = 0; i < 4; i++) {
		s[i] = (struct hdl_send_wr){.next = i < 3 ? &s[i + 1] : NULL,
		                            .wr_id = i,
		                            .opcode = HDL_OP_SEND,
		                            .flags = HDL_SEND_SIGNALED};
		r[i] = (struct hdl_recv_wr){.next = i < 3 ? &r[i + 1] : NULL, .wr_id = i};
	}
	r[2].sg_list = s[2].sg_list = many;
	r[2].num_sge = s[2].num_sge = 5; /* one more than the queue pair's limit */
	const struct hdl_send_wr *bad_send = NULL;
	const struct hdl_recv_wr *bad_recv = NULL;
	assert_int_equal(hdl_post_recv(qb, r, &bad_recv), -HDL_EMSGSIZE);
	assert_ptr_equal(bad_recv, &r[2]);
	assert_int_equal(hdl_post_send(qa, s, &bad_send), -HDL_EMSGSIZE);
	assert_ptr_equal(bad_send, &s[2]);
	for (uint32_t i = 0; i < 2; i++) {
		expect_sent(w, w->a.scq, qa, i, HDL_WC_SEND, 0);
		expect_received(w, w->b.rcq, qb, qa, i, 0);
	}
	expect_nothing(w, w->a.scq);
	/* @bad may be NULL, and the whole of a good list is posted. */
	r[2].num_sge = s[2].num_sge = 0;
	assert_int_equal(hdl_post_recv(qb, r, NULL), 0);
	assert_int_equal(hdl_post_send(qa, s, NULL), 0);
	for (uint32_t i = 0; i < 4; i++) {
		expect_sent(w, w->a.scq, qa, i, HDL_WC_SEND, 0);
		expect_received(w, w->b.rcq, qb, qa, i, 0);
	}
}

/* Short messages that are posted together may share a frame; that must not be visible. */
static void sn1_lists_of_short_messages_arrive_one_by_one(void **state)
{
	enum { MESSAGES = 40, FIRST = 13 };
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	struct hdl_send_wr wr[MESSAGES];
	struct hdl_sge from[MESSAGES];
	make_pair(w, &(struct qp_options){.cap = {.max_send_wr = 64, .max_recv_wr = 64}}, &qa, &qb);
	fill(&w->a, 0, MESSAGES * 200, 5);
	for (uint32_t i = 0; i < MESSAGES; i++) {
		uint32_t length = (i + 1) * 37 % 150, flags = i % 3 == 0 ? 0 : HDL_SEND_SIGNALED;
		from[i] = piece(&w->a, i * 200, length);
		wr[i] = (struct hdl_send_wr){
		        .next = i + 1 < MESSAGES ? &wr[i + 1] : NULL,
		        .wr_id = i,
		        .sg_list = &from[i],
		        .num_sge = 1,
		        .opcode = i % 5 == 0 && !w->port->stream ? HDL_OP_SEND_IMM : HDL_OP_SEND,
		        .flags = flags | (length <= 64 && i % 2 == 0 ? HDL_SEND_INLINE : 0),
		        .imm = 1000 + i};
	}
	for (uint32_t i = 0; i < FIRST; i++)
		post_recv(qb, 100 + i, &w->b, i * 200, 150);
	assert_int_equal(hdl_post_send(qa, wr, NULL), 0);
	for (uint32_t i = 0; i < MESSAGES; i++) {
		if (i == FIRST) /* in the middle of such a group, there was no receive */
			for (uint32_t j = i; j < MESSAGES; j++)
				post_recv(qb, 100 + j, &w->b, j * 200, 150);
		struct hdl_wc want = received(qb, qa, 100 + i, from[i].length);
		if (wr[i].opcode == HDL_OP_SEND_IMM) {
			want.flags = HDL_WC_WITH_IMM;
			want.imm = 1000 + i;
		}
		expect_wc(w, w->b.rcq, &want);
		expect_copy(&w->b, i * 200, &w->a, i * 200, from[i].length);
		if (wr[i].flags & HDL_SEND_SIGNALED)
			expect_sent(w, w->a.scq, qa, i, HDL_WC_SEND, from[i].length);
	}
	check_memory(w);
	/* A refused request ends the list where it is: what precedes it has arrived. */
	from[4].key.v ^= 1;
	wr[4].flags = 0;
	wr[9].next = NULL;
	for (uint32_t i = 0; i < 10; i++)
		post_recv(qb, 100 + i, &w->b, i * 200, 150);
	assert_int_equal(hdl_post_send(qa, wr, NULL), 0);
	for (uint32_t i = 0; i < 4; i++) {
		wait_wc(w, w->b.rcq, &(struct hdl_wc){0});
		if (wr[i].flags & HDL_SEND_SIGNALED)
			expect_sent(w, w->a.scq, qa, i, HDL_WC_SEND, from[i].length);
	}
	expect_failed(w, w->a.scq, qa, 4, HDL_WC_LOC_PROT_ERR, HDL_DETAIL_INSTANCE);
	for (uint32_t i = 5; i < 10; i++)
		expect_flushed(w, w->a.scq, qa, i);
	if (!w->port->stream) /* where the peer fails as well */
		expect_nothing(w, w->b.rcq);
	check_memory(w);
}

static void sn1_both_directions_at_once(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	fill(&w->a, 0, 16000, 1);
	fill(&w->b, 0, 16000, 2);
	for (uint32_t i = 0; i < 8; i++) {
		post_recv(qa, i, &w->a, 20000 + i * 2000, 2000);
		post_recv(qb, i, &w->b, 20000 + i * 2000, 2000);
	}
	for (uint32_t i = 0; i < 8; i++) {
		post_data(qa, i, HDL_OP_SEND, &w->a, i * 2000, 1000 + i);
		post_data(qb, i, HDL_OP_SEND, &w->b, i * 2000, 2000 - i);
	}
	for (uint32_t i = 0; i < 8; i++) {
		expect_sent(w, w->a.scq, qa, i, HDL_WC_SEND, 1000 + i);
		expect_sent(w, w->b.scq, qb, i, HDL_WC_SEND, 2000 - i);
		expect_received(w, w->a.rcq, qa, qb, i, 2000 - i);
		expect_received(w, w->b.rcq, qb, qa, i, 1000 + i);
		expect_copy(&w->b, 20000 + i * 2000, &w->a, i * 2000, 1000 + i);
		expect_copy(&w->a, 20000 + i * 2000, &w->b, i * 2000, 2000 - i);
	}
	check_memory(w);
}

static void sn1_unconnected_type_sends_complete_and_arrive(void **state)
{
	static const uint32_t sizes[] = {0, 1, 4096, 4097, 30000, 20000, 10000};
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, &(struct qp_options){.type = HDL_QP_UC}, &qa, &qb);
	for (uint32_t i = 0; i < COUNT(sizes); i++)
		post_recv(qb, i, &w->b, 0, 30000);
	fill(&w->a, 0, 30000, 8);
	for (uint32_t i = 0; i < COUNT(sizes); i++)
		post_data(qa, i, HDL_OP_SEND, &w->a, 0, sizes[i]);
	for (uint32_t i = 0; i < COUNT(sizes); i++) {
		expect_sent(w, w->a.scq, qa, i, HDL_WC_SEND, sizes[i]);
		expect_received(w, w->b.rcq, qb, qa, i, sizes[i]);
	}
	expect_copy(&w->b, 0, &w->a, 0, 30000);
	check_memory(w);
}

static const struct CMUnitTest tests[] = {
        BIG_BEHAVIOUR(sn1_send_arrives_whole_at_every_size),
        BEHAVIOUR(sn1_send_gathers_and_scatters_up_to_32_pieces),
        BEHAVIOUR(sn1_inline_data_is_the_callers_again_after_post),
        BEHAVIOUR(sn1_immediate_data_is_carried_unchanged),
        BEHAVIOUR(sn1_unsignalled_work_completes_only_when_it_fails),
        BEHAVIOUR(sn1_signal_all_completes_everything),
        BEHAVIOUR(sn1_completions_come_in_order_of_posting),
        BEHAVIOUR(sn1_full_queues_refuse_and_recover),
        BEHAVIOUR(sn1_what_was_not_taken_is_outstanding),
        BEHAVIOUR(sn1_many_in_flight_arrive_in_order),
        BEHAVIOUR(sn1_post_list_stops_at_the_bad_request),
        BEHAVIOUR(sn1_lists_of_short_messages_arrive_one_by_one),
        BEHAVIOUR(sn1_both_directions_at_once),
        BEHAVIOUR(sn1_unconnected_type_sends_complete_and_arrive),
};
THEME(send_theme, tests);
