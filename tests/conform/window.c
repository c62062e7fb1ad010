/* SN9 and IP3: windows, that is remote keys: any byte range, one range per key, one-shot keys; and
 * keys that a peer's message invalidates. */
#include "conform.h"

static void try_write(struct world *w, struct hdl_qp *qa, uint32_t status, uint32_t detail,
                      uint64_t addr, struct hdl_key key, uint32_t length)
{
	struct hdl_wc wc;
	post_rdma(qa, 5, HDL_OP_WRITE, piece(&w->a, 16, length), addr, key);
	if (status != HDL_WC_SUCCESS) {
		expect_refused(w, w->a.scq, qa, 5, status, detail);
		return;
	}
	wait_wc(w, w->a.scq, &wc);
	assert_int_equal(wc.status, status);
}

/* A write through @key to the 64 bytes at @offset of b's arena (@addr in the terms of the key)
 * works. */
static void key_opens(struct world *w, uint64_t addr, struct hdl_key key, size_t offset,
                      uint32_t length)
{
	static uint32_t seed;
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	fill(&w->a, 16, length, ++seed);
	try_write(w, qa, HDL_WC_SUCCESS, HDL_DETAIL_NONE, addr, key, length);
	expect_copy(&w->b, offset, &w->a, 16, length);
	check_memory(w);
	drop_qp(w, qa);
	drop_qp(w, qb);
}

static void key_is_refused(struct world *w, uint64_t addr, struct hdl_key key, uint32_t length,
                           uint32_t detail)
{
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	try_write(w, qa, HDL_WC_REM_ACCESS_ERR, detail, addr, key, length);
	check_memory(w);
	drop_qp(w, qa);
	drop_qp(w, qb);
}

static struct hdl_bind range(struct world *w, size_t offset, uint64_t length)
{
	return (struct hdl_bind){.mr = w->b.mr,
	                         .addr = address(&w->b, offset),
	                         .length = length,
	                         .access = REMOTE_ALL};
}

static void sn9_bind_any_byte_range(void **state)
{
	static const struct {
		size_t offset;
		uint32_t length;
	} rows[] = {{0, 1},
	            {1, 1},
	            {4095, 2},
	            {4097, 4095},
	            {63, 129},
	            {1000, 20000},
	            {ARENA_BYTES - 1, 1},
	            {0, ARENA_BYTES - 64}};
	struct world *w = *state;
	struct hdl_mw *mw = make_mw(&w->b, HDL_MW_TYPE_1);
	struct hdl_key old = {0};
	for (uint32_t i = 0; i < COUNT(rows); i++) {
		struct hdl_bind bind = range(w, rows[i].offset, rows[i].length);
		struct hdl_key key;
		assert_int_equal(hdl_mw_bind(mw, &bind, &key), 0);
		assert_int_equal(key.v, hdl_mw_key(mw).v);
		assert_int_not_equal(key.v, old.v);
		key_opens(w, bind.addr, key, rows[i].offset, rows[i].length);
		key_is_refused(w, bind.addr - 1, key, 1, HDL_DETAIL_BOUNDS);
		key_is_refused(w, bind.addr + rows[i].length, key, 1, HDL_DETAIL_BOUNDS);
		/* One range per key: the former key grants nothing any longer. */
		if (i > 0)
			key_is_refused(w, bind.addr, old, 1, HDL_DETAIL_INSTANCE);
		old = key;
	}
	assert_int_equal(hdl_mw_unbind(mw), 0);
	key_is_refused(w, address(&w->b, 0), old, 1, HDL_DETAIL_NOT_VALID);
	assert_int_equal(hdl_mw_unbind(mw), 0); /* even if it was not bound */
}

static void sn9_bind_refusals(void **state)
{
	struct world *w = *state;
	struct hdl_mw *mw = make_mw(&w->b, HDL_MW_TYPE_1), *two = make_mw(&w->b, HDL_MW_TYPE_2);
	struct hdl_mr *plain = make_mr(&w->b, 0, 4096, LOCAL_BOTH | REMOTE_ALL);
	struct hdl_mr *no_write = make_mr(&w->b, 0, 4096, HDL_ACCESS_LOCAL_READ | HDL_ACCESS_BIND);
	struct hdl_mr *empty = make_empty_mr(&w->b, 1);
	struct hdl_mr *foreign;
	assert_int_equal(hdl_mr_register(make_pd(&w->b), w->b.mem, 4096,
	                                 LOCAL_BOTH | HDL_ACCESS_BIND, &foreign),
	                 0);
	keep_mr(w, foreign);
	struct hdl_bind good = range(w, 64, 64), bind = good;
	struct hdl_key key;
	assert_int_equal(hdl_mw_bind(mw, &good, &key), 0);
	bind.mr = plain;
	assert_int_equal(hdl_mw_bind(mw, &bind, NULL), -HDL_EACCES);
	bind.mr = no_write;
	assert_int_equal(hdl_mw_bind(mw, &bind, NULL), -HDL_EACCES);
	bind.mr = empty;
	assert_int_equal(hdl_mw_bind(mw, &bind, NULL), -HDL_ESTALE);
	bind.mr = foreign;
	assert_int_equal(hdl_mw_bind(mw, &bind, NULL), -HDL_EINVAL);
	bind = range(w, ARENA_BYTES - 8, 9);
	assert_int_equal(hdl_mw_bind(mw, &bind, NULL), -HDL_EINVAL);
	bind = range(w, 0, UINT64_MAX);
	assert_int_equal(hdl_mw_bind(mw, &bind, NULL), -HDL_EINVAL);
	bind = good;
	bind.access |= HDL_ACCESS_LOCAL_WRITE;
	assert_int_equal(hdl_mw_bind(mw, &bind, NULL), -HDL_EINVAL);
	bind = good;
	bind.mr = NULL;
	assert_int_equal(hdl_mw_bind(mw, &bind, NULL), -HDL_EINVAL);
	assert_int_equal(hdl_mw_bind(two, &good, NULL), -HDL_EINVAL);
	/* A refusal changes nothing. */
	key_opens(w, good.addr, key, 64, 64);
	/* A null region and no length unbind. */
	bind.length = 0;
	assert_int_equal(hdl_mw_bind(mw, &bind, NULL), 0);
	key_is_refused(w, good.addr, key, 1, HDL_DETAIL_NOT_VALID);
}

static void sn9_region_with_windows_stays(void **state)
{
	struct world *w = *state;
	struct hdl_mw *mw = make_mw(&w->b, HDL_MW_TYPE_1);
	struct hdl_mr *mr = make_mr(&w->b, 0, 4096, LOCAL_BOTH | HDL_ACCESS_BIND);
	struct hdl_bind bind = range(w, 0, 8);
	bind.mr = mr;
	assert_int_equal(hdl_mw_bind(mw, &bind, NULL), 0);
	assert_int_equal(hdl_mr_deregister(mr), -HDL_EBUSY);
	assert_int_equal(hdl_mw_unbind(mw), 0);
	assert_int_equal(hdl_mw_bind(mw, &bind, NULL), 0);
	assert_int_equal(hdl_mw_bind(mw, &bind, NULL), 0); /* again: counted once */
	assert_int_equal(hdl_mw_free(mw), 0);
	forget_object(w, mw);
	assert_int_equal(hdl_mr_deregister(mr), 0);
	forget_object(w, mr);
}

static void sn9_zero_based(void **state)
{
	struct world *w = *state;
	struct hdl_mw *mw = make_mw(&w->b, HDL_MW_TYPE_1);
	struct hdl_bind bind = range(w, 1001, 50);
	bind.access |= HDL_ACCESS_ZERO_BASED;
	struct hdl_key key;
	assert_int_equal(hdl_mw_bind(mw, &bind, &key), 0);
	key_opens(w, 0, key, 1001, 50);
	key_opens(w, 49, key, 1050, 1);
	key_is_refused(w, 49, key, 2, HDL_DETAIL_BOUNDS);
	key_is_refused(w, bind.addr, key, 1, HDL_DETAIL_BOUNDS);
	struct hdl_mr *mr =
	        make_mr(&w->b, 2002, 100,
	                LOCAL_BOTH | REMOTE_ALL | HDL_ACCESS_BIND | HDL_ACCESS_ZERO_BASED);
	key_opens(w, 0, hdl_mr_key(mr), 2002, 100);
	key_opens(w, 7, hdl_mr_key(mr), 2009, 93);
	key_is_refused(w, 0, hdl_mr_key(mr), 101, HDL_DETAIL_BOUNDS);
	/* A window on it: the range is given in the region's terms, and the window has its own. */
	bind = (struct hdl_bind){.mr = mr, .addr = 10, .length = 20, .access = REMOTE_ALL};
	assert_int_equal(hdl_mw_bind(mw, &bind, &key), 0);
	key_opens(w, 10, key, 2012, 20);
	/* Its own requests address it from zero as well. */
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	struct hdl_sge zero = {.addr = 3, .length = 9, .key = hdl_mr_key(mr)};
	post_recv(qa, 1, &w->a, 512, 9);
	post_send(qb, (struct hdl_send_wr){.wr_id = 2,
	                                   .sg_list = &zero,
	                                   .num_sge = 1,
	                                   .opcode = HDL_OP_SEND,
	                                   .flags = HDL_SEND_SIGNALED});
	expect_sent(w, w->b.scq, qb, 2, HDL_WC_SEND, 9);
	expect_copy(&w->a, 512, &w->b, 2005, 9);
	check_memory(w);
}

static void sn9_rights_of_a_window(void **state)
{
	static const uint32_t rights[] = {HDL_ACCESS_REMOTE_WRITE, HDL_ACCESS_REMOTE_READ,
	                                  HDL_ACCESS_REMOTE_ATOMIC};
	static const uint32_t opcodes[] = {HDL_OP_WRITE, HDL_OP_READ, HDL_OP_FETCH_ADD};
	struct world *w = *state;
	struct hdl_mw *mw = make_mw(&w->b, HDL_MW_TYPE_1);
	for (uint32_t i = 0; i < 9; i++) {
		struct hdl_qp *qa, *qb;
		struct hdl_bind bind = range(w, 64, 64);
		struct hdl_key key;
		if (lacks(w, opcodes[i % 3]))
			continue;
		bind.access = rights[i / 3];
		assert_int_equal(hdl_mw_bind(mw, &bind, &key), 0);
		make_pair(w, NULL, &qa, &qb);
		struct hdl_sge own = piece(&w->a, 64, 8);
		struct hdl_send_wr wr = {.sg_list = &own,
		                         .num_sge = 1,
		                         .opcode = opcodes[i % 3],
		                         .flags = HDL_SEND_SIGNALED};
		set_target(&wr, bind.addr, key);
		post_send(qa, wr);
		expect_refused(w, w->a.scq, qa, 0,
		               i / 3 == i % 3 ? HDL_WC_SUCCESS : HDL_WC_REM_ACCESS_ERR,
		               i / 3 == i % 3 ? HDL_DETAIL_NONE : HDL_DETAIL_ACCESS);
		drop_qp(w, qa);
		drop_qp(w, qb);
	}
}

/* IP5: a one-touch key is valid for one message, whatever it does and however long it is. */
static void ip5_one_touch_opens_once(void **state)
{
	static const struct {
		uint32_t opcode, length;
	} rows[] = {{HDL_OP_WRITE, 64}, {HDL_OP_WRITE, 9000}, {HDL_OP_WRITE_IMM, 64},
	            {HDL_OP_READ, 64},  {HDL_OP_READ, 9000},  {HDL_OP_FETCH_ADD, 8}};
	struct world *w = *state;
	for (uint32_t i = 0; i < 2 * COUNT(rows); i++) {
		struct hdl_qp *qa, *qb;
		uint32_t opcode = rows[i / 2].opcode, length = rows[i / 2].length;
		if (lacks(w, opcode))
			continue;
		struct hdl_key key;
		struct hdl_bind bind = range(w, 8192, 9000);
		bind.access |= HDL_ACCESS_ONE_TOUCH;
		if (i % 2)
			assert_int_equal(hdl_mw_bind(make_mw(&w->b, HDL_MW_TYPE_1), &bind, &key),
			                 0);
		else
			key = hdl_mr_key(make_mr(&w->b, 8192, 9000,
			                         LOCAL_BOTH | REMOTE_ALL | HDL_ACCESS_ONE_TOUCH));
		make_pair(w, NULL, &qa, &qb);
		post_recv(qb, 1, &w->b, 0, 0);
		post_recv(qb, 2, &w->b, 0, 0);
		struct hdl_sge own = piece(&w->a, 64, length);
		struct hdl_send_wr wr = {.wr_id = 1,
		                         .sg_list = &own,
		                         .num_sge = 1,
		                         .opcode = opcode,
		                         .flags = HDL_SEND_SIGNALED};
		set_target(&wr, address(&w->b, 8192), key);
		struct hdl_wc wc;
		/* A request of no bytes does not touch it. */
		post_rdma(qa, 0, HDL_OP_WRITE, piece(&w->a, 0, 0), address(&w->b, 8192), key);
		expect_sent(w, w->a.scq, qa, 0, HDL_WC_WRITE, 0);
		post_send(qa, wr);
		wait_wc(w, w->a.scq, &wc);
		assert_int_equal(wc.status, HDL_WC_SUCCESS);
		if (opcode == HDL_OP_WRITE || opcode == HDL_OP_WRITE_IMM)
			expect_copy(&w->b, 8192, &w->a, 64, length);
		else
			expect_copy(&w->a, 64, &w->b, 8192, length);
		check_memory(w);
		wr.wr_id = 2;
		post_send(qa, wr);
		expect_refused(w, w->a.scq, qa, 2, HDL_WC_REM_ACCESS_ERR, HDL_DETAIL_TOUCHED);
		if (opcode != HDL_OP_WRITE_IMM) /* its receive reports it */
			expect_event(w, &w->b, HDL_EVENT_QP_ACCESS_ERR, HDL_DETAIL_TOUCHED, qb);
		check_memory(w);
		drop_qp(w, qa);
		drop_qp(w, qb);
		struct hdl_wc rest;
		while (hdl_cq_poll(w->b.rcq, &rest, 1) > 0)
			;
	}
}

/* IP5, MEMMGT figure 18A step 1814: nor does it take the answers of two reads, of any length. Other
 * pieces of the read are not affected, and two pieces of one message touch a region once. */
static void ip5_one_touch_sink_of_one_read(void **state)
{
	static const uint32_t lengths[] = {8, 64, 9000, 40000};
	struct world *w = *state;
	if (lacks(w, HDL_OP_READ))
		skip();
	for (uint32_t i = 0; i < 2 * COUNT(lengths); i++) {
		struct hdl_qp *qa, *qb;
		uint32_t length = lengths[i / 2];
		struct hdl_key once =
		        hdl_mr_key(make_mr(&w->a, 4096, length, LOCAL_BOTH | HDL_ACCESS_ONE_TOUCH));
		make_pair(w, NULL, &qa, &qb);
		struct hdl_sge list[] = {
		        {.addr = address(&w->a, 4096), .length = length / 2, .key = once},
		        {.addr = address(&w->a, 64), .length = 16, .key = hdl_mr_key(w->a.mr)},
		        {.addr = address(&w->a, 4096 + length / 2),
		         .length = length - length / 2,
		         .key = once}};
		struct hdl_sge whole = {
		        .addr = address(&w->a, 4096), .length = length, .key = once};
		struct hdl_send_wr wr = {.wr_id = 1,
		                         .sg_list = i % 2 ? list : &whole,
		                         .num_sge = i % 2 ? 3 : 1,
		                         .opcode = HDL_OP_READ,
		                         .flags = HDL_SEND_SIGNALED};
		set_target(&wr, address(&w->b, 8192), hdl_mr_key(w->b.mr));
		/* A message from it, and one that it receives, do not touch it. */
		post_recv(qb, 1, &w->b, 0, 16);
		post_send(qa,
		          (struct hdl_send_wr){.sg_list = &(struct hdl_sge){whole.addr, 8, once},
		                               .num_sge = 1,
		                               .opcode = HDL_OP_SEND,
		                               .flags = HDL_SEND_SIGNALED});
		expect_sent(w, w->a.scq, qa, 0, HDL_WC_SEND, 8);
		expect_received(w, w->b.rcq, qb, qa, 1, 8);
		expect_copy(&w->b, 0, &w->a, 4096, 8);
		struct hdl_wc wc;
		post_send(qa, wr);
		wait_wc(w, w->a.scq, &wc);
		assert_int_equal(wc.status, HDL_WC_SUCCESS);
		if (i % 2) {
			expect_copy(&w->a, 4096, &w->b, 8192, length / 2);
			expect_copy(&w->a, 64, &w->b, 8192 + length / 2, 16);
			expect_copy(&w->a, 4096 + length / 2, &w->b, 8192 + length / 2 + 16,
			            length - length / 2);
		} else {
			expect_copy(&w->a, 4096, &w->b, 8192, length);
		}
		check_memory(w);
		wr.wr_id = 2;
		wr.u.rdma.addr += 8;
		post_send(qa, wr);
		expect_failed(w, w->a.scq, qa, 2, HDL_WC_LOC_PROT_ERR, HDL_DETAIL_TOUCHED);
		check_memory(w);
		drop_qp(w, qa);
		drop_qp(w, qb);
	}
}

/* --- by work request --- */

static void bind_by_request(struct world *w, struct hdl_qp *qb, struct hdl_mw *mw,
                            struct hdl_key key, struct hdl_bind bind, uint32_t status,
                            uint32_t detail)
{
	post_send(qb, (struct hdl_send_wr){.wr_id = 3,
	                                   .opcode = HDL_OP_BIND,
	                                   .flags = HDL_SEND_SIGNALED,
	                                   .bind = {mw, key, bind}});
	if (status == HDL_WC_SUCCESS)
		expect_sent(w, w->b.scq, qb, 3, HDL_WC_BIND, 0);
	else
		expect_failed(w, w->b.scq, qb, 3, status, detail);
}

static void sn9_bind_type_1_by_request(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	struct hdl_mw *mw = make_mw(&w->b, HDL_MW_TYPE_1);
	struct hdl_key one = hdl_key_with_instance(hdl_mw_key(mw), 1);
	struct hdl_key two = hdl_key_with_instance(hdl_mw_key(mw), 2);
	bind_by_request(w, qb, mw, one, range(w, 33, 77), HDL_WC_SUCCESS, 0);
	assert_int_equal(hdl_mw_key(mw).v, one.v);
	key_opens(w, address(&w->b, 33), one, 33, 77); /* through any queue pair of the domain */
	bind_by_request(w, qb, mw, two, range(w, 200, 10), HDL_WC_SUCCESS, 0); /* bound again */
	key_is_refused(w, address(&w->b, 200), one, 1, HDL_DETAIL_INSTANCE);
	key_opens(w, address(&w->b, 200), two, 200, 10);
	/* A null region and no length unbind. */
	bind_by_request(w, qb, mw, two, (struct hdl_bind){0}, HDL_WC_SUCCESS, 0);
	key_is_refused(w, address(&w->b, 200), two, 1, HDL_DETAIL_NOT_VALID);
	/* The next request on the queue can rely on the bind: the key is sent together with it. */
	post_recv(qa, 1, &w->a, 0, 4);
	struct hdl_sge tell = {.addr = (uint64_t)(uintptr_t)&one, .length = 4};
	struct hdl_send_wr send = {.wr_id = 5,
	                           .opcode = HDL_OP_SEND,
	                           .sg_list = &tell,
	                           .num_sge = 1,
	                           .flags = HDL_SEND_SIGNALED | HDL_SEND_INLINE};
	struct hdl_send_wr bind = {.next = &send,
	                           .wr_id = 4,
	                           .opcode = HDL_OP_BIND,
	                           .bind = {mw, one, range(w, 5, 6)}};
	assert_int_equal(hdl_post_send(qb, &bind, NULL), 0);
	expect_sent(w, w->b.scq, qb, 5, HDL_WC_SEND, 4);
	expect_bytes(&w->a, 0, &one, 4);
	key_opens(w, address(&w->b, 5), one, 5, 6);
}

static void sn9_bind_type_2_by_request(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb, *qa2, *qb2;
	make_pair(w, NULL, &qa, &qb);
	make_pair(w, NULL, &qa2, &qb2);
	struct hdl_mw *mw = make_mw(&w->b, HDL_MW_TYPE_2);
	struct hdl_key key = hdl_key_with_instance(hdl_mw_key(mw), 200);
	bind_by_request(w, qb, mw, key, range(w, 33, 77), HDL_WC_SUCCESS, 0);
	/* Only through the queue pair that bound it. */
	try_write(w, qa, HDL_WC_SUCCESS, HDL_DETAIL_NONE, address(&w->b, 33), key, 77);
	expect_copy(&w->b, 33, &w->a, 16, 77);
	try_write(w, qa2, HDL_WC_REM_ACCESS_ERR, HDL_DETAIL_QP, address(&w->b, 33), key, 77);
	check_memory(w);
	/* INVALIDATE unbinds, then it may be bound again. */
	post_send(qb, (struct hdl_send_wr){.wr_id = 6,
	                                   .opcode = HDL_OP_INVALIDATE,
	                                   .flags = HDL_SEND_SIGNALED,
	                                   .invalidate_key = key});
	expect_sent(w, w->b.scq, qb, 6, HDL_WC_INVALIDATE, 0);
	struct hdl_key next = hdl_key_with_instance(key, 201);
	bind_by_request(w, qb, mw, next, range(w, 64, 8), HDL_WC_SUCCESS, 0);
	try_write(w, qa, HDL_WC_SUCCESS, HDL_DETAIL_NONE, address(&w->b, 64), next, 8);
	expect_copy(&w->b, 64, &w->a, 16, 8);
	/* A second bind of a bound window is refused, and the queue pair enters the error state. */
	bind_by_request(w, qb, mw, key, range(w, 0, 8), HDL_WC_MEM_MGT_ERR, HDL_DETAIL_ALREADY);
	assert_int_equal(qp_state_of(qb), HDL_QPS_ERR);
	check_memory(w);
}

static void ip4_bind_by_request_refusals(void **state)
{
	struct world *w = *state;
	struct hdl_mr *plain = make_mr(&w->b, 0, 4096, LOCAL_BOTH | REMOTE_ALL);
	struct hdl_mr *no_write = make_mr(&w->b, 0, 4096, HDL_ACCESS_LOCAL_READ | HDL_ACCESS_BIND);
	struct hdl_mr *empty = make_empty_mr(&w->b, 1), *foreign;
	assert_int_equal(hdl_mr_register(make_pd(&w->b), w->b.mem, 4096,
	                                 LOCAL_BOTH | HDL_ACCESS_BIND, &foreign),
	                 0);
	keep_mr(w, foreign);
	const struct {
		struct hdl_mr *mr;
		uint64_t length;
		uint32_t detail;
	} rows[] = {{plain, 8, HDL_DETAIL_BIND},
	            {no_write, 8, HDL_DETAIL_ACCESS},
	            {empty, 8, HDL_DETAIL_NOT_VALID},
	            {foreign, 8, HDL_DETAIL_PD},
	            {w->b.mr, UINT64_MAX, HDL_DETAIL_BOUNDS}};
	for (uint32_t i = 0; i < COUNT(rows); i++) {
		struct hdl_qp *qa, *qb;
		make_pair(w, NULL, &qa, &qb);
		struct hdl_mw *mw = make_mw(&w->b, HDL_MW_TYPE_2);
		struct hdl_bind bind = range(w, 0, rows[i].length);
		bind.mr = rows[i].mr;
		bind_by_request(w, qb, mw, hdl_mw_key(mw), bind, HDL_WC_MEM_MGT_ERR,
		                rows[i].detail);
		assert_int_equal(qp_state_of(qb), HDL_QPS_ERR);
		/* Invalid in itself: refused when posted. */
		struct hdl_send_wr wr = {.opcode = HDL_OP_BIND, .bind = {mw, {0}, bind}};
		make_pair(w, NULL, &qa, &qb);
		assert_int_equal(try_send(qb, wr), -HDL_EINVAL);
		wr.bind.mw = NULL;
		assert_int_equal(try_send(qb, wr), -HDL_EINVAL);
	}
}

/* --- taken away by the peer's message --- */

static void send_invalidate(struct world *w, struct hdl_qp *qa, struct hdl_qp *qb,
                            struct hdl_key key, uint32_t detail)
{
	struct hdl_sge one = piece(&w->a, 0, 32);
	post_recv(qb, 8, &w->b, 40000, 32);
	post_send(qa, (struct hdl_send_wr){.wr_id = 9,
	                                   .sg_list = &one,
	                                   .num_sge = 1,
	                                   .opcode = HDL_OP_SEND_INVALIDATE,
	                                   .flags = HDL_SEND_SIGNALED,
	                                   .invalidate_key = key});
	if (detail == HDL_DETAIL_NONE) {
		expect_sent(w, w->a.scq, qa, 9, HDL_WC_SEND, 32);
		expect_wc(w, w->b.rcq,
		          &(struct hdl_wc){.wr_id = 8,
		                           .opcode = HDL_WC_RECV,
		                           .byte_len = 32,
		                           .imm = key.v,
		                           .flags = HDL_WC_WITH_INVALIDATE,
		                           .qpn = hdl_qp_number(qb),
		                           .src_qpn = hdl_qp_number(qa)});
	} else {
		/* IBTA section 9.9.6.3, class J: the message has arrived, and only the receiver
		 * learns of the rest. */
		if (w->port->lossy) { /* the acknowledgement may be lost, and it is not repeated */
			struct hdl_wc wc;
			wait_wc(w, w->a.scq, &wc);
			assert_true(wc.status == HDL_WC_SUCCESS ||
			            wc.status == HDL_WC_RETRY_EXC_ERR);
		} else {
			expect_sent(w, w->a.scq, qa, 9, HDL_WC_SEND, 32);
			if (!w->port->stream)
				assert_int_equal(qp_state_of(qa), HDL_QPS_RTS);
		}
		expect_failed(w, w->b.rcq, qb, 8, HDL_WC_MEM_MGT_ERR, detail);
		if (w->port->stream) /* RFC 5040 section 4.8: the sender is told */
			expect_event(w, &w->a, HDL_EVENT_QP_FATAL, HDL_DETAIL_NOT_VALID, qa);
		expect_no_event(w); /* the completion reports everything */
		assert_int_equal(qp_state_of(qb), HDL_QPS_ERR);
	}
	expect_copy(&w->b, 40000, &w->a, 0, 32);
	check_memory(w);
}

static void ip3_send_with_invalidate_of_a_window(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	struct hdl_mw *mw = make_mw(&w->b, HDL_MW_TYPE_2);
	struct hdl_key key = hdl_key_with_instance(hdl_mw_key(mw), 3);
	bind_by_request(w, qb, mw, key, range(w, 33, 77), HDL_WC_SUCCESS, 0);
	send_invalidate(w, qa, qb, key, HDL_DETAIL_NONE);
	try_write(w, qa, HDL_WC_REM_ACCESS_ERR, HDL_DETAIL_NOT_VALID, address(&w->b, 33), key, 1);
}

static void ip3_send_with_invalidate_refusals(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb, *other_a, *other_b;
	make_pair(w, NULL, &other_a, &other_b);
	struct hdl_mw *mw = make_mw(&w->b, HDL_MW_TYPE_2), *type_1 = make_mw(&w->b, HDL_MW_TYPE_1);
	struct hdl_key bound = hdl_key_with_instance(hdl_mw_key(mw), 3), open_key;
	bind_by_request(w, other_b, mw, bound, range(w, 33, 77), HDL_WC_SUCCESS, 0);
	struct hdl_bind bind = range(w, 0, 8);
	assert_int_equal(hdl_mw_bind(type_1, &bind, &open_key), 0);
	const struct {
		struct hdl_key key;
		uint32_t detail;
	} rows[] = {
	        {{0}, HDL_DETAIL_NOT_VALID},
	        {{UINT32_MAX}, HDL_DETAIL_NOT_VALID},
	        {arena_key(&w->b), HDL_DETAIL_TYPE}, /* registered by a call: only its owner's */
	        {open_key, HDL_DETAIL_TYPE},         /* for every queue pair */
	        {bound, HDL_DETAIL_QP}};
	for (uint32_t i = 0; i < COUNT(rows); i++) {
		make_pair(w, NULL, &qa, &qb);
		send_invalidate(w, qa, qb, rows[i].key, rows[i].detail);
	}
	key_opens(w, bind.addr, open_key, 0, 8);
	try_write(w, other_a, HDL_WC_SUCCESS, HDL_DETAIL_NONE, address(&w->b, 33), bound, 8);
}

static const struct CMUnitTest tests[] = {
        BEHAVIOUR(sn9_bind_any_byte_range),
        BEHAVIOUR(sn9_bind_refusals),
        BEHAVIOUR(sn9_region_with_windows_stays),
        BEHAVIOUR(sn9_zero_based),
        BEHAVIOUR(sn9_rights_of_a_window),
        BEHAVIOUR(ip5_one_touch_opens_once),
        BEHAVIOUR(ip5_one_touch_sink_of_one_read),
        BEHAVIOUR(sn9_bind_type_1_by_request),
        BEHAVIOUR(sn9_bind_type_2_by_request),
        BEHAVIOUR(ip4_bind_by_request_refusals),
        BEHAVIOUR(ip3_send_with_invalidate_of_a_window),
        BEHAVIOUR(ip3_send_with_invalidate_refusals),
};
THEME(window_theme, tests);
