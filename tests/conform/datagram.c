/* SN1: unreliable connections and datagrams: a lost message is lost silently, and the sender never
 * waits. */
#include "conform.h"

/* --- unreliable connection --- */

static const struct qp_options uc = {.type = HDL_QP_UC};

static void uc_without_receive_is_dropped(void **state)
{
	static const uint32_t sizes[] = {0, 64, 5000};
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, &uc, &qa, &qb);
	for (uint32_t i = 0; i < COUNT(sizes); i++) {
		post_data(qa, i, HDL_OP_SEND, &w->a, 0, sizes[i]);
		expect_sent(w, w->a.scq, qa, i, HDL_WC_SEND, sizes[i]);
	}
	world_settle(w);
	assert_int_equal(counter_of(&w->b, "dropped_no_recv"), COUNT(sizes));
	/* Those are lost; the next one arrives. */
	post_recv(qb, 7, &w->b, 64, 64);
	expect_nothing(w, w->b.rcq);
	post_data(qa, 8, HDL_OP_SEND, &w->a, 0, 64);
	expect_sent(w, w->a.scq, qa, 8, HDL_WC_SEND, 64);
	expect_received(w, w->b.rcq, qb, qa, 7, 64);
	expect_copy(&w->b, 64, &w->a, 0, 64);
	check_memory(w);
	expect_no_event(w);
}

static void uc_to_a_peer_that_is_not_ready_is_dropped(void **state)
{
	static const uint32_t sizes[] = {0, 64, 5000, 5000, 30000};
	struct world *w = *state;
	struct hdl_qp *qa = make_qp(&w->a, &uc), *qb = make_qp(&w->b, &uc);
	qp_to_init(qa, &uc);
	qp_to_init(qb, &uc);
	qp_to_rtr(qa, &uc, &w->b.gid, hdl_qp_number(qb));
	qp_to_rts(qa, &uc);
	post_recv(qb, 7, &w->b, 64, 30000);
	for (uint32_t i = 0; i < COUNT(sizes); i++) {
		post_data(qa, i, HDL_OP_SEND, &w->a, 0, sizes[i]);
		post_rdma(qa, 100 + i, HDL_OP_WRITE, piece(&w->a, 0, sizes[i]), address(&w->b, 0),
		          arena_key(&w->b));
	}
	for (uint32_t i = 0; i < COUNT(sizes); i++) {
		expect_sent(w, w->a.scq, qa, i, HDL_WC_SEND, sizes[i]);
		expect_sent(w, w->a.scq, qa, 100 + i, HDL_WC_WRITE, sizes[i]);
	}
	/* A destroyed queue pair does not make the sender wait, either. */
	drop_qp(w, qb);
	post_data(qa, 50, HDL_OP_SEND, &w->a, 0, 30000);
	expect_sent(w, w->a.scq, qa, 50, HDL_WC_SEND, 30000);
	check_memory(w);
	expect_no_event(w);
}

static void uc_write_refused_is_dropped(void **state)
{
	static const uint32_t sizes[] = {64, 8000};
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, &uc, &qa, &qb);
	struct hdl_key stale =
	        hdl_key_with_instance(arena_key(&w->b), (uint8_t)(arena_key(&w->b).v + 1));
	struct hdl_mr *read_only =
	        make_mr(&w->b, 0, 16384, HDL_ACCESS_LOCAL_READ | HDL_ACCESS_REMOTE_READ);
	for (uint32_t i = 0; i < COUNT(sizes); i++) {
		post_rdma(qa, 1, HDL_OP_WRITE, piece(&w->a, 0, sizes[i]), address(&w->b, 0), stale);
		post_rdma(qa, 2, HDL_OP_WRITE, piece(&w->a, 0, sizes[i]), address(&w->b, 0),
		          hdl_mr_key(read_only));
		post_rdma(qa, 3, HDL_OP_WRITE, piece(&w->a, 0, sizes[i]),
		          address(&w->b, ARENA_BYTES - 8), arena_key(&w->b));
		post_rdma(qa, 4, HDL_OP_WRITE, piece(&w->a, 0, sizes[i]), address(&w->b, 100),
		          arena_key(&w->b));
		for (uint32_t k = 1; k <= 4; k++)
			expect_sent(w, w->a.scq, qa, k, HDL_WC_WRITE, sizes[i]);
		world_settle(w);
		expect_copy(&w->b, 100, &w->a, 0, sizes[i]);
		check_memory(w);
	}
	assert_int_equal(qp_state_of(qa), HDL_QPS_RTS);
	assert_int_equal(qp_state_of(qb), HDL_QPS_RTS);
	expect_no_event(w);
}

/* Immediate data whose write was refused must not be delivered. */
static void uc_write_immediate_refused_announces_nothing(void **state)
{
	static const uint32_t sizes[] = {64, 8000};
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, &uc, &qa, &qb);
	post_recv(qb, 5, &w->b, 0, 0);
	for (uint32_t i = 0; i < COUNT(sizes); i++) {
		post_rdma(qa, i, HDL_OP_WRITE_IMM, piece(&w->a, 0, sizes[i]),
		          address(&w->b, ARENA_BYTES - 8), arena_key(&w->b));
		expect_sent(w, w->a.scq, qa, i, HDL_WC_WRITE, sizes[i]);
		expect_nothing(w, w->b.rcq);
	}
	post_rdma(qa, 9, HDL_OP_WRITE_IMM, piece(&w->a, 0, 16), address(&w->b, 0),
	          arena_key(&w->b));
	expect_sent(w, w->a.scq, qa, 9, HDL_WC_WRITE, 16);
	expect_wc(w, w->b.rcq,
	          &(struct hdl_wc){.wr_id = 5,
	                           .opcode = HDL_WC_RECV_WRITE_IMM,
	                           .byte_len = 16,
	                           .flags = HDL_WC_WITH_IMM,
	                           .qpn = hdl_qp_number(qb),
	                           .src_qpn = hdl_qp_number(qa)});
	expect_copy(&w->b, 0, &w->a, 0, 16);
	check_memory(w);
}

/* A message that is longer than the receive is lost, whenever its end arrives, and the receive
 * serves the next one (IBTA section 9.9.6.3, class D). */
static void uc_too_long_is_dropped(void **state)
{
	static const uint32_t sizes[] = {65, 5000, 30000}, rooms[] = {64, 4999, 6000};
	struct world *w = *state;
	struct hdl_srq *srq = make_srq(&w->b, 4, 1, 0);
	const struct qp_options shared = {.type = HDL_QP_UC, .srq = srq};
	for (uint32_t i = 0; i < 2 * COUNT(sizes); i++) {
		uint32_t size = sizes[i / 2], room = rooms[i / 2];
		struct hdl_qp *qa = make_qp(&w->a, &uc),
		              *qb = make_qp(&w->b, i % 2 ? &shared : &uc);
		connect_pair(w, &uc, qa, qb);
		uint64_t before = counter_of(&w->b, "dropped_too_long");
		struct hdl_sge small = piece(&w->b, 40000, room);
		struct hdl_recv_wr recv = {.wr_id = 1, .sg_list = &small, .num_sge = 1};
		assert_int_equal(
		        i % 2 ? hdl_srq_post(srq, &recv, NULL) : hdl_post_recv(qb, &recv, NULL), 0);
		for (uint32_t k = 0; k < 3; k++) {
			post_data(qa, k, HDL_OP_SEND, &w->a, 0, size);
			expect_sent(w, w->a.scq, qa, k, HDL_WC_SEND, size);
		}
		expect_nothing(w, w->b.rcq);
		assert_int_equal(counter_of(&w->b, "dropped_too_long"), before + 3);
		assert_int_equal(qp_state_of(qb), HDL_QPS_RTS);
		/* Parts that arrived before the end may have been placed. */
		expect_bytes(&w->b, 40000, w->b.mem + 40000, room);
		check_memory(w);
		post_data(qa, 9, HDL_OP_SEND, &w->a, 100, room);
		expect_sent(w, w->a.scq, qa, 9, HDL_WC_SEND, room);
		expect_received(w, w->b.rcq, qb, qa, 1, room);
		expect_copy(&w->b, 40000, &w->a, 100, room);
		check_memory(w);
		expect_no_event(w);
		drop_qp(w, qa);
		drop_qp(w, qb);
	}
}

static void uc_offers_no_reads_and_atomics(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, &uc, &qa, &qb);
	static const uint32_t refused[] = {HDL_OP_READ, HDL_OP_COMPARE_SWAP, HDL_OP_FETCH_ADD};
	struct hdl_sge one = piece(&w->a, 0, 8);
	for (uint32_t i = 0; i < COUNT(refused); i++)
		assert_int_equal(try_send(qa, (struct hdl_send_wr){.opcode = refused[i],
		                                                   .sg_list = &one,
		                                                   .num_sge = 1}),
		                 -HDL_ENOTSUP);
}

/* A failed request of its own only stops the send queue (SQE); it continues after a modify to
 * RTS. */
static void uc_own_error_stops_the_send_queue(void **state)
{
	static const uint32_t sizes[] = {64, 8000};
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, &uc, &qa, &qb);
	for (uint32_t i = 0; i < COUNT(sizes); i++) {
		struct hdl_sge bad = piece(&w->a, ARENA_BYTES - 8, sizes[i]);
		post_recv(qb, 30 + i, &w->b, 1024, 16000);
		post_recv(qa, 40 + i, &w->a, 2048, 64);
		post_send(qa, (struct hdl_send_wr){.wr_id = 1,
		                                   .sg_list = &bad,
		                                   .num_sge = 1,
		                                   .opcode = HDL_OP_SEND});
		expect_failed(w, w->a.scq, qa, 1, HDL_WC_LOC_PROT_ERR, HDL_DETAIL_BOUNDS);
		assert_int_equal(qp_state_of(qa), HDL_QPS_SQE);
		post_data(qa, 2, HDL_OP_SEND, &w->a, 0, 8);
		expect_flushed(w, w->a.scq, qa, 2);
		/* Receiving continues. */
		post_data(qb, 3, HDL_OP_SEND, &w->b, 0, 64);
		expect_sent(w, w->b.scq, qb, 3, HDL_WC_SEND, 64);
		expect_received(w, w->a.rcq, qa, qb, 40 + i, 64);
		expect_copy(&w->a, 2048, &w->b, 0, 64);
		qp_go(qa, HDL_QPS_RTS);
		post_data(qa, 4, HDL_OP_SEND, &w->a, 0, 8);
		expect_sent(w, w->a.scq, qa, 4, HDL_WC_SEND, 8);
		expect_received(w, w->b.rcq, qb, qa, 30 + i, 8);
		expect_copy(&w->b, 1024, &w->a, 0, 8);
		check_memory(w);
	}
}

/* --- datagrams --- */

#define QKEY 0x11223344u
static const struct qp_options ud = {.type = HDL_QP_UD, .qkey = QKEY};

static void ud_arrives_behind_a_route_header(void **state)
{
	static const uint32_t sizes[] = {0, 1, 64, 4095, HDL_UD_MTU};
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, &ud, &qa, &qb);
	for (uint32_t i = 0; i < 2 * COUNT(sizes); i++) {
		uint32_t size = sizes[i / 2];
		struct hdl_ah_attr to = {.dgid = w->b.gid,
		                         .port_num = 1,
		                         .is_global = i % 2 == 0,
		                         .sl = 5,
		                         .hop_limit = 63,
		                         .traffic_class = 0xa5,
		                         .flow_label = 0x9cdef};
		bool routed = to.is_global || w->port->wire; /* over IP all packets are routed */
		struct hdl_ah *ah = make_ah(&w->a, &to);
		uint32_t opcode = i % 3 ? HDL_OP_SEND : HDL_OP_SEND_IMM;
		/* The place of the header is divided among two pieces. */
		struct hdl_sge list[2] = {piece(&w->b, 100, 33), piece(&w->b, 500, 7 + size)};
		assert_int_equal(try_recv(qb, i, list, 2), 0);
		post_datagram(qa, i, opcode, piece(&w->a, 3, size), ah, hdl_qp_number(qb), QKEY);
		expect_sent(w, w->a.scq, qa, i, HDL_WC_SEND, size);
		expect_wc(w, w->b.rcq,
		          &(struct hdl_wc){
		                  .wr_id = i,
		                  .opcode = HDL_WC_RECV,
		                  .byte_len = size + HDL_GRH_BYTES,
		                  .imm = 0x600d,
		                  .flags = (routed ? HDL_WC_GRH : 0u) |
		                           (opcode == HDL_OP_SEND_IMM ? HDL_WC_WITH_IMM : 0u),
		                  .qpn = hdl_qp_number(qb),
		                  .src_qpn = hdl_qp_number(qa),
		                  .sl = 5});
		/* In the route header, other headers (BTH, DETH, immediate) and the ICRC count as
		 * payload. */
		uint32_t payload = 24 + (opcode == HDL_OP_SEND_IMM ? 4u : 0u) + (size + 3) / 4 * 4;
		unsigned char grh[HDL_GRH_BYTES], keep[HDL_GRH_BYTES];
		memcpy(keep, w->b.shadow + 100, sizeof(keep));
		expect_grh(&w->b, 100, &to, &w->a.gid, payload);
		memcpy(grh, w->b.shadow + 100, sizeof(grh));
		if (!routed) { /* without a header its place is undefined */
			memcpy(grh, w->b.mem + 100, 33);
			memcpy(grh + 33, w->b.mem + 500, 7);
		}
		expect_bytes(&w->b, 100, keep, sizeof(keep));
		expect_bytes(&w->b, 100, grh, 33);
		expect_bytes(&w->b, 500, grh + 33, 7);
		expect_copy(&w->b, 507, &w->a, 3, size);
		check_memory(w);
	}
	expect_no_event(w);
}

static void ud_limits(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, &ud, &qa, &qb);
	struct hdl_ah_attr to = {.dgid = w->b.gid, .port_num = 1};
	struct hdl_ah *ah = make_ah(&w->a, &to);
	struct hdl_sge one = piece(&w->a, 0, HDL_UD_MTU + 1);
	struct hdl_send_wr wr = {.sg_list = &one,
	                         .num_sge = 1,
	                         .opcode = HDL_OP_SEND,
	                         .u.ud = {ah, hdl_qp_number(qb), QKEY}};
	assert_int_equal(try_send(qa, wr), -HDL_EMSGSIZE);
	one.length = 8;
	wr.u.ud.qpn = 1u << 24;
	assert_int_equal(try_send(qa, wr), -HDL_EINVAL);
	wr.u.ud.ah = NULL;
	assert_int_equal(try_send(qa, wr), -HDL_EINVAL);
	static const uint32_t refused[] = {
	        HDL_OP_SEND_INVALIDATE, HDL_OP_WRITE,        HDL_OP_WRITE_IMM, HDL_OP_READ,
	        HDL_OP_FETCH_ADD,       HDL_OP_COMPARE_SWAP, HDL_OP_BIND,      HDL_OP_INVALIDATE,
	        HDL_OP_REGISTER,        HDL_OP_REGISTER_SEND};
	for (uint32_t i = 0; i < COUNT(refused); i++) {
		wr.opcode = refused[i];
		assert_int_equal(try_send(qa, wr), -HDL_ENOTSUP);
	}
	struct hdl_ah *bad;
	struct hdl_ah_attr nowhere = to;
	nowhere.dgid.raw[0] ^= 2;
	/* A wire does not know which adapter has an address. */
	if (!w->port->wire)
		assert_int_equal(hdl_ah_create(w->a.pd, &nowhere, &bad), -HDL_EHOSTUNREACH);
	nowhere = to;
	nowhere.port_num = 2;
	assert_int_equal(hdl_ah_create(w->a.pd, &nowhere, &bad), -HDL_EINVAL);
	nowhere = to;
	nowhere.sl = 16;
	assert_int_equal(hdl_ah_create(w->a.pd, &nowhere, &bad), -HDL_EINVAL);
	nowhere = to;
	nowhere.flow_label = 1u << 20;
	assert_int_equal(hdl_ah_create(w->a.pd, &nowhere, &bad), -HDL_EINVAL);
}

static void ud_qkey_guards_the_queue_pair(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, &ud, &qa, &qb);
	struct hdl_ah_attr to = {.dgid = w->b.gid, .port_num = 1};
	struct hdl_ah *ah = make_ah(&w->a, &to);
	post_recv(qb, 1, &w->b, 256, 64);
	uint32_t wrong[] = {QKEY + 1, 0, QKEY & 0xffff};
	for (uint32_t i = 0; i < COUNT(wrong); i++) {
		post_datagram(qa, i, HDL_OP_SEND, piece(&w->a, 0, 8), ah, hdl_qp_number(qb),
		              wrong[i]);
		expect_sent(w, w->a.scq, qa, i, HDL_WC_SEND, 8);
	}
	expect_nothing(w, w->b.rcq);
	assert_int_equal(counter_of(&w->b, "dropped_qkey"), COUNT(wrong));
	check_memory(w);
	/* IBTA section 10.2.5: if its high bit is set, the request's Q_Key stands for the queue
	 * pair's own. */
	post_datagram(qa, 9, HDL_OP_SEND, piece(&w->a, 0, 8), ah, hdl_qp_number(qb), 0x80000000u);
	expect_sent(w, w->a.scq, qa, 9, HDL_WC_SEND, 8);
	struct hdl_wc wc;
	wait_wc(w, w->b.rcq, &wc);
	assert_int_equal(wc.wr_id, 1);
	assert_int_equal(wc.byte_len, 48);
	/* It can be changed later. */
	struct hdl_qp_attr attr = {.qkey = 77};
	assert_int_equal(hdl_qp_modify(qb, &attr, HDL_QP_QKEY), 0);
	post_recv(qb, 2, &w->b, 256, 64);
	post_datagram(qa, 10, HDL_OP_SEND, piece(&w->a, 0, 8), ah, hdl_qp_number(qb), QKEY);
	post_datagram(qa, 11, HDL_OP_SEND, piece(&w->a, 0, 9), ah, hdl_qp_number(qb), 77);
	wait_wc(w, w->b.rcq, &wc);
	assert_int_equal(wc.wr_id, 2);
	assert_int_equal(wc.byte_len, 49);
}

static void ud_lost_in_silence(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb, *rc_a, *rc_b;
	make_pair(w, &ud, &qa, &qb);
	make_pair(w, NULL, &rc_a, &rc_b);
	struct hdl_ah_attr to = {.dgid = w->b.gid, .port_num = 1};
	struct hdl_ah *ah = make_ah(&w->a, &to);
	post_recv(rc_b, 1, &w->b, 0, 64);
	/* No receive; no such queue pair; a queue pair of another type. */
	uint32_t targets[] = {hdl_qp_number(qb), 0xabcdef, hdl_qp_number(rc_b)};
	for (uint32_t i = 0; i < COUNT(targets); i++) {
		post_datagram(qa, i, HDL_OP_SEND, piece(&w->a, 0, 8), ah, targets[i], QKEY);
		expect_sent(w, w->a.scq, qa, i, HDL_WC_SEND, 8);
	}
	expect_nothing(w, w->b.rcq);
	assert_int_equal(qp_state_of(rc_b), HDL_QPS_RTS);
	check_memory(w);
	expect_no_event(w);
}

/* Anybody can send a datagram that is too long: it is dropped and counted, and the receive serves
 * the next one. */
static void ud_too_long_is_dropped(void **state)
{
	static const uint32_t sizes[] = {8, 100, HDL_UD_MTU};
	struct world *w = *state;
	struct hdl_srq *srq = make_srq(&w->b, 4, 1, 0);
	const struct qp_options shared = {.type = HDL_QP_UD, .qkey = QKEY, .srq = srq};
	for (uint32_t i = 0; i < 2; i++) {
		struct hdl_qp *qa = make_qp(&w->a, &ud), *qb = make_qp(&w->b, i ? &shared : &ud);
		connect_pair(w, &ud, qa, qb);
		struct hdl_ah_attr to = {.dgid = w->b.gid, .port_num = 1, .is_global = true};
		struct hdl_ah *ah = make_ah(&w->a, &to);
		uint64_t before = counter_of(&w->b, "dropped_too_long");
		struct hdl_sge small = piece(&w->b, 256, HDL_GRH_BYTES + 7);
		if (i == 0)
			assert_int_equal(try_recv(qb, 1, &small, 1), 0);
		else
			assert_int_equal(hdl_srq_post(srq,
			                              &(struct hdl_recv_wr){.wr_id = 1,
			                                                    .sg_list = &small,
			                                                    .num_sge = 1},
			                              NULL),
			                 0);
		for (uint32_t k = 0; k < COUNT(sizes); k++) {
			post_datagram(qa, 9, HDL_OP_SEND, piece(&w->a, 0, sizes[k]), ah,
			              hdl_qp_number(qb), QKEY);
			expect_sent(w, w->a.scq, qa, 9, HDL_WC_SEND, sizes[k]);
		}
		expect_nothing(w, w->b.rcq);
		assert_int_equal(counter_of(&w->b, "dropped_too_long"), before + COUNT(sizes));
		assert_int_equal(qp_state_of(qb), HDL_QPS_RTS);
		check_memory(w);
		post_datagram(qa, 10, HDL_OP_SEND, piece(&w->a, 0, 7), ah, hdl_qp_number(qb), QKEY);
		struct hdl_wc wc;
		wait_wc(w, w->b.rcq, &wc);
		assert_int_equal(wc.wr_id, 1);
		assert_int_equal(wc.status, HDL_WC_SUCCESS);
		assert_int_equal(wc.byte_len, HDL_GRH_BYTES + 7);
		expect_sent(w, w->a.scq, qa, 10, HDL_WC_SEND, 7);
		expect_bytes(&w->b, 256, w->b.mem + 256, HDL_GRH_BYTES);
		expect_copy(&w->b, 256 + HDL_GRH_BYTES, &w->a, 0, 7);
		check_memory(w);
		expect_no_event(w);
		drop_qp(w, qa);
		drop_qp(w, qb);
	}
}

/* One handle for many destinations, the sender among them. */
static void ud_talks_to_many(void **state)
{
	enum { MANY = 8 };
	struct world *w = *state;
	struct hdl_qp *from = make_qp(&w->a, &ud), *to[MANY];
	qp_to_init(from, &ud);
	qp_to_rtr(from, &ud, &w->b.gid, 0);
	qp_to_rts(from, &ud);
	struct hdl_ah_attr there = {.dgid = w->b.gid, .port_num = 1};
	struct hdl_ah *ah = make_ah(&w->a, &there);
	for (uint32_t i = 0; i < MANY; i++) {
		to[i] = make_qp(&w->b, &ud);
		qp_to_init(to[i], &ud);
		qp_to_rtr(to[i], &ud, &w->a.gid, 0); /* receiving needs no RTS */
		post_recv(to[i], i, &w->b, 1024 * i, 64);
		post_datagram(from, i, HDL_OP_SEND, piece(&w->a, 16 * i, i), ah,
		              hdl_qp_number(to[i]), QKEY);
	}
	for (uint32_t i = 0; i < MANY; i++) {
		struct hdl_wc wc;
		wait_wc(w, w->b.rcq, &wc);
		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.qpn, hdl_qp_number(to[i]));
		assert_int_equal(wc.byte_len, HDL_GRH_BYTES + i);
		assert_memory_equal(w->b.mem + 1024 * i + HDL_GRH_BYTES, w->a.mem + 16 * i, i);
	}
	assert_int_equal(hdl_ah_destroy(ah), 0);
	forget_object(w, ah);
}

/* A node can also be addressed by its LID: there is no route header, and the completion has the
 * sender's LID. */
static void a_lid_is_an_address(void **state)
{
	struct world *w = *state;
	struct hdl_limits limits, own;
	struct hdl_qp *qa, *qb;
	struct hdl_ah *bad;
	hdl_adapter_query(w->a.adapter, &own);
	hdl_adapter_query(w->b.adapter, &limits);
	struct hdl_ah_attr to = {.dlid = limits.lid, .port_num = 1};
	if (limits.lid == 0) { /* adapters without a node have no LID */
		to.dlid = 5;
		if (!w->port->wire)
			assert_int_equal(hdl_ah_create(w->a.pd, &to, &bad), -HDL_EHOSTUNREACH);
		return;
	}
	assert_true(limits.lid > limits.sm_lid && limits.sm_lid > 0 && limits.lid <= 0xbfff);
	make_pair(w, &ud, &qa, &qb);
	struct hdl_ah *ah = make_ah(&w->a, &to);
	post_recv(qb, 1, &w->b, 256, 64);
	post_datagram(qa, 2, HDL_OP_SEND, piece(&w->a, 0, 8), ah, hdl_qp_number(qb), QKEY);
	expect_sent(w, w->a.scq, qa, 2, HDL_WC_SEND, 8);
	struct hdl_wc wc;
	wait_wc(w, w->b.rcq, &wc);
	assert_int_equal(wc.wr_id, 1);
	assert_int_equal(wc.slid, own.lid);
	if (w->port->wire) { /* IP has no LIDs: packets go to the address that belongs to it */
		assert_int_equal(wc.flags, HDL_WC_GRH);
	} else {
		assert_int_equal(wc.flags, 0);
		to.dlid = limits.lid == 0xbfff ? 2 : limits.lid + 1;
		assert_int_equal(hdl_ah_create(w->a.pd, &to, &bad), -HDL_EHOSTUNREACH);
	}

	/* A LID is enough for a connection. */
	struct hdl_qp *ca = make_qp(&w->a, NULL), *cb = make_qp(&w->b, NULL), *ends[] = {ca, cb};
	for (int i = 0; i < 2; i++) {
		qp_to_init(ends[i], NULL);
		struct hdl_qp_attr attr = {
		        .state = HDL_QPS_RTR,
		        .ah = {.dlid = i == 0 ? limits.lid : own.lid, .port_num = 1},
		        .path_mtu = 4096,
		        .rq_psn = 1234,
		        .min_rnr_timer = 1,
		        .dest_qpn = hdl_qp_number(ends[1 - i])};
		assert_int_equal(hdl_qp_modify(ends[i], &attr,
		                               HDL_QP_STATE | HDL_QP_AV | HDL_QP_PATH_MTU |
		                                       HDL_QP_DEST_QPN | HDL_QP_RQ_PSN |
		                                       HDL_QP_MAX_DEST_RD_ATOMIC |
		                                       HDL_QP_MIN_RNR_TIMER),
		                 0);
		qp_to_rts(ends[i], NULL);
	}
	post_recv(cb, 3, &w->b, 512, 64);
	post_data(ca, 4, HDL_OP_SEND, &w->a, 0, 64);
	expect_sent(w, w->a.scq, ca, 4, HDL_WC_SEND, 64);
	expect_received(w, w->b.rcq, cb, ca, 3, 64);
}

/* The route header shows which of its addresses the sender chose. */
static void ud_comes_from_the_address_that_was_chosen(void **state)
{
	struct world *w = *state;
	struct hdl_limits limits;
	struct hdl_qp *qa, *qb;
	make_pair(w, &ud, &qa, &qb);
	hdl_adapter_query(w->a.adapter, &limits);
	struct hdl_ah_attr to = {.dgid = w->b.gid, .port_num = 1, .is_global = true};
	for (uint32_t i = 0; i < limits.gid_count; i++) {
		struct hdl_gid from;
		struct hdl_wc wc;
		to.sgid_index = (uint8_t)i;
		struct hdl_ah *ah = make_ah(&w->a, &to);
		post_recv(qb, i, &w->b, 256, 64);
		post_datagram(qa, i, HDL_OP_SEND, piece(&w->a, 0, 8), ah, hdl_qp_number(qb), QKEY);
		wait_wc(w, w->b.rcq, &wc);
		assert_int_equal(wc.wr_id, i);
		hdl_gid_query(w->a.adapter, i, &from);
		/* A socket sends from its own address, the first one, which the IPv4 header has in
		 * another place. */
		if (!w->port->wire)
			assert_memory_equal(w->b.mem + 256 + 8, from.raw, 16);
	}
	struct hdl_ah *bad;
	to.sgid_index = (uint8_t)limits.gid_count;
	assert_int_equal(hdl_ah_create(w->a.pd, &to, &bad), -HDL_EINVAL);
}

static const struct CMUnitTest tests[] = {
        BEHAVIOUR(uc_without_receive_is_dropped),
        BEHAVIOUR(uc_to_a_peer_that_is_not_ready_is_dropped),
        BEHAVIOUR(uc_write_refused_is_dropped),
        BEHAVIOUR(uc_write_immediate_refused_announces_nothing),
        BEHAVIOUR(uc_too_long_is_dropped),
        BEHAVIOUR(uc_offers_no_reads_and_atomics),
        BEHAVIOUR(uc_own_error_stops_the_send_queue),
        BEHAVIOUR(ud_arrives_behind_a_route_header),
        BEHAVIOUR(ud_limits),
        BEHAVIOUR(ud_qkey_guards_the_queue_pair),
        BEHAVIOUR(ud_lost_in_silence),
        BEHAVIOUR(ud_too_long_is_dropped),
        BEHAVIOUR(ud_talks_to_many),
        BEHAVIOUR(a_lid_is_an_address),
        BEHAVIOUR(ud_comes_from_the_address_that_was_chosen),
};
THEME(datagram_theme, tests);
