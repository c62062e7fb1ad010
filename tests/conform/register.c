/* IP3: registration by call (runs, page lists, shared tables) and by work request, with both error
 * options. */
#include "conform.h"

#define PAGES 5u

/* Pages of @s's arena in no order: 9, 2, 7, 3, 12. */
static const uint32_t scattered[PAGES] = {9, 2, 7, 3, 12};

static void page_list(struct side *s, uint64_t *pages)
{
	for (uint32_t i = 0; i < PAGES; i++)
		pages[i] = address(s, scattered[i] * PAGE);
}

/* Where byte @at of the page list, which starts @skip bytes into its first page, is in the
 * arena. */
static size_t lies_at(size_t skip, size_t at)
{
	at += skip;
	return scattered[at / PAGE] * PAGE + at % PAGE;
}

static struct hdl_register list_of(const uint64_t *pages, uint64_t skip, uint64_t length,
                                   uint64_t iova, uint32_t access)
{
	return (struct hdl_register){.pages = pages,
	                             .num_pages = PAGES,
	                             .page_shift = 12,
	                             .first_offset = skip,
	                             .length = length,
	                             .iova = iova,
	                             .access = access};
}

/* Write and read @length bytes at @at of b's region with @key; it starts @skip bytes into the
 * list. */
static void list_works(struct world *w, struct hdl_qp *qa, struct hdl_key key, uint64_t iova,
                       size_t skip, size_t at, uint32_t length)
{
	static uint32_t seed = 1000;
	fill(&w->a, 100, length, ++seed);
	post_rdma(qa, 1, HDL_OP_WRITE, piece(&w->a, 100, length), iova + at, key);
	post_rdma(qa, 2, HDL_OP_READ, piece(&w->a, 32768, length), iova + at, key);
	expect_sent(w, w->a.scq, qa, 1, HDL_WC_WRITE, length);
	expect_sent(w, w->a.scq, qa, 2, HDL_WC_READ, length);
	for (uint32_t i = 0; i < length; i++)
		expect_copy(&w->b, lies_at(skip, at + i), &w->a, 100 + i, 1);
	expect_copy(&w->a, 32768, &w->a, 100, length);
	check_memory(w);
}

static void ip3_page_list_crosses_borders(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	uint64_t pages[PAGES];
	page_list(&w->b, pages);
	static const struct {
		uint32_t at, length;
	} rows[] = {{0, 1},        {0, PAGE},         {PAGE - 1 - 123, 2}, {PAGE - 7, 3 * PAGE},
	            {0, 4 * PAGE}, {5, 3 * PAGE + 9}, {4 * PAGE - 1, 1}};
	struct hdl_register reg = list_of(pages, 123, 4 * PAGE, 0x7000000000000127,
	                                  LOCAL_BOTH | REMOTE_ALL | HDL_ACCESS_BIND);
	struct hdl_mr *mr;
	assert_int_equal(hdl_mr_register_pages(w->b.pd, &reg, &mr), 0);
	keep_mr(w, mr);
	for (uint32_t i = 0; i < COUNT(rows); i++)
		list_works(w, qa, hdl_mr_key(mr), reg.iova, 123, rows[i].at, rows[i].length);
	/* A window on it, and sends and receives of its own, use the same pages. */
	struct hdl_mw *mw = make_mw(&w->b, HDL_MW_TYPE_1);
	struct hdl_bind bind = {.mr = mr,
	                        .addr = reg.iova + PAGE - 50,
	                        .length = 2 * PAGE,
	                        .access = REMOTE_ALL | HDL_ACCESS_ZERO_BASED};
	struct hdl_key key;
	assert_int_equal(hdl_mw_bind(mw, &bind, &key), 0);
	list_works(w, qa, key, 0, 123 + PAGE - 50, 3, 2 * PAGE - 3);
	struct hdl_sge own = {.addr = reg.iova + 10, .length = 2 * PAGE, .key = hdl_mr_key(mr)};
	assert_int_equal(try_recv(qb, 4, &own, 1), 0);
	post_data(qa, 5, HDL_OP_SEND, &w->a, 64, 2 * PAGE);
	expect_received(w, w->b.rcq, qb, qa, 4, 2 * PAGE);
	for (uint32_t i = 0; i < 2 * PAGE; i++)
		expect_copy(&w->b, lies_at(123, 10 + i), &w->a, 64 + i, 1);
	expect_sent(w, w->a.scq, qa, 5, HDL_WC_SEND, 2 * PAGE);
	check_memory(w);
	/* An atomic across two pages is not eight bytes of memory. */
	post_atomic(qa, 6, HDL_OP_FETCH_ADD, piece(&w->a, 0, 8), reg.iova + PAGE - 4 - 123,
	            hdl_mr_key(mr), 1, 0);
	expect_refused(w, w->a.scq, qa, 6, HDL_WC_REM_INV_REQ_ERR, HDL_DETAIL_MISALIGNED);
	check_memory(w);
}

static void ip3_page_list_refusals(void **state)
{
	struct world *w = *state;
	uint64_t pages[PAGES];
	struct hdl_mr *mr;
	page_list(&w->b, pages);
	struct hdl_register good = list_of(pages, 0, PAGES * PAGE, 0, LOCAL_BOTH), bad;
	bad = good, bad.length++;
	assert_int_equal(hdl_mr_register_pages(w->b.pd, &bad, &mr), -HDL_EINVAL);
	bad = good, bad.first_offset = 1;
	assert_int_equal(hdl_mr_register_pages(w->b.pd, &bad, &mr), -HDL_EINVAL);
	bad = good, bad.first_offset = PAGE;
	assert_int_equal(hdl_mr_register_pages(w->b.pd, &bad, &mr), -HDL_EINVAL);
	bad = good, bad.page_shift = 11;
	assert_int_equal(hdl_mr_register_pages(w->b.pd, &bad, &mr), -HDL_EINVAL);
	bad = good, bad.page_shift = 29;
	assert_int_equal(hdl_mr_register_pages(w->b.pd, &bad, &mr), -HDL_EINVAL);
	bad = good, bad.num_pages = 0;
	assert_int_equal(hdl_mr_register_pages(w->b.pd, &bad, &mr), -HDL_EINVAL);
	bad = good, bad.pages = NULL;
	assert_int_equal(hdl_mr_register_pages(w->b.pd, &bad, &mr), -HDL_EINVAL);
	bad = good, bad.iova = UINT64_MAX - PAGE;
	assert_int_equal(hdl_mr_register_pages(w->b.pd, &bad, &mr), -HDL_EINVAL);
	bad = good, bad.access = HDL_ACCESS_REMOTE_WRITE;
	assert_int_equal(hdl_mr_register_pages(w->b.pd, &bad, &mr), -HDL_EINVAL);
	pages[2] += 8;
	assert_int_equal(hdl_mr_register_pages(w->b.pd, &good, &mr), -HDL_EINVAL);
	pages[2] = PAGE; /* never mapped */
	assert_int_equal(hdl_mr_register_pages(w->b.pd, &good, &mr), -HDL_EFAULT);
}

/* Figure 14: a second region over the same table, with its own rights and domain, outlives the
 * first. */
static void ip3_shared_translation(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	struct hdl_pd *pd = make_pd(&w->b);
	make_pair(w, NULL, &qa, &qb);
	uint64_t pages[PAGES];
	page_list(&w->b, pages);
	struct hdl_register reg = list_of(pages, 77, 4 * PAGE, 0x10000, LOCAL_BOTH | REMOTE_ALL);
	struct hdl_mr *mr, *twin, *foreign;
	assert_int_equal(hdl_mr_register_pages(w->b.pd, &reg, &mr), 0);
	assert_int_equal(
	        hdl_mr_share(mr, w->b.pd, LOCAL_BOTH | REMOTE_ALL | HDL_ACCESS_ZERO_BASED, &twin),
	        0);
	keep_mr(w, twin);
	assert_int_equal(hdl_mr_share(mr, pd, LOCAL_BOTH | REMOTE_ALL, &foreign), 0);
	keep_mr(w, foreign);
	assert_int_not_equal(hdl_mr_key(mr).v, hdl_mr_key(twin).v);
	list_works(w, qa, hdl_mr_key(mr), 0x10000, 77, 9, 2 * PAGE);
	list_works(w, qa, hdl_mr_key(twin), 0, 77, 4000, 2 * PAGE);
	assert_int_equal(hdl_mr_deregister(mr), 0);
	list_works(w, qa, hdl_mr_key(twin), 0, 77, 2, 3 * PAGE);
	post_rdma(qa, 3, HDL_OP_READ, piece(&w->a, 0, 8), 0x10000, hdl_mr_key(foreign));
	expect_refused(w, w->a.scq, qa, 3, HDL_WC_REM_ACCESS_ERR, HDL_DETAIL_PD);
	/* A plain run can be shared as well, but not with rights that were not checked when it was
	 * registered. */
	struct hdl_mr *read_only = make_mr(&w->b, 0, 64, HDL_ACCESS_LOCAL_READ);
	assert_int_equal(hdl_mr_share(read_only, w->b.pd, LOCAL_BOTH, &mr), -HDL_EACCES);
	assert_int_equal(hdl_mr_share(read_only, w->b.pd, HDL_ACCESS_REMOTE_READ, &mr), 0);
	keep_mr(w, mr);
	make_pair(w, NULL, &qa, &qb);
	post_rdma(qa, 3, HDL_OP_READ, piece(&w->a, 0, 64), address(&w->b, 0), hdl_mr_key(mr));
	expect_sent(w, w->a.scq, qa, 3, HDL_WC_READ, 64);
	expect_copy(&w->a, 0, &w->b, 0, 64);
	check_memory(w);
	assert_int_equal(hdl_mr_share(make_empty_mr(&w->b, 1), w->b.pd, 0, &mr), -HDL_ESTALE);
}

/* --- by work request --- */

static struct hdl_send_wr register_wr(struct hdl_mr *mr, uint8_t instance, struct hdl_register reg,
                                      uint64_t wr_id)
{
	return (struct hdl_send_wr){
	        .wr_id = wr_id,
	        .opcode = HDL_OP_REGISTER,
	        .flags = HDL_SEND_SIGNALED,
	        .reg = {mr, hdl_key_with_instance(hdl_mr_key(mr), instance), reg}};
}

static void ip3_register_by_request(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, &(struct qp_options){.register_on_send = true}, &qa, &qb);
	struct hdl_mr *mr = make_empty_mr(&w->b, PAGES);
	for (uint8_t instance = 1; instance < 5; instance++) {
		uint64_t pages[PAGES], iova = 0x5550000ull * instance;
		page_list(&w->b, pages);
		struct hdl_key key = hdl_key_with_instance(hdl_mr_key(mr), instance);
		struct hdl_sge own = {.addr = iova + 100, .length = 2 * PAGE, .key = key};
		/* Register, and use the key in the next request of the same list. */
		struct hdl_send_wr wr = register_wr(
		        mr, instance,
		        list_of(pages, instance, 4 * PAGE, iova, LOCAL_BOTH | REMOTE_ALL), 1);
		struct hdl_send_wr use = {.wr_id = 2,
		                          .sg_list = &own,
		                          .num_sge = 1,
		                          .opcode = HDL_OP_SEND,
		                          .flags = HDL_SEND_SIGNALED};
		wr.next = &use;
		post_recv(qa, 3, &w->a, 16384, 2 * PAGE);
		assert_int_equal(hdl_post_send(qb, &wr, NULL), 0);
		memset(pages, 0xff, sizeof(pages)); /* the list was copied */
		expect_sent(w, w->b.scq, qb, 1, HDL_WC_REGISTER, 0);
		expect_sent(w, w->b.scq, qb, 2, HDL_WC_SEND, 2 * PAGE);
		expect_received(w, w->a.rcq, qa, qb, 3, 2 * PAGE);
		for (uint32_t i = 0; i < 2 * PAGE; i++)
			expect_copy(&w->a, 16384 + i, &w->b, lies_at(instance, 100 + i), 1);
		check_memory(w);
		assert_int_equal(hdl_mr_key(mr).v, key.v);
		list_works(w, qa, key, iova, instance, 7, 3 * PAGE);
		/* Invalidate it: by a request of the owner, or by the peer's message. */
		if (instance % 2) {
			post_send(qb, (struct hdl_send_wr){.wr_id = 4,
			                                   .opcode = HDL_OP_INVALIDATE,
			                                   .flags = HDL_SEND_SIGNALED,
			                                   .invalidate_key = key});
			expect_sent(w, w->b.scq, qb, 4, HDL_WC_INVALIDATE, 0);
		} else {
			post_recv(qb, 5, &w->b, 0, 0);
			post_send(qa, (struct hdl_send_wr){.wr_id = 6,
			                                   .opcode = HDL_OP_SEND_INVALIDATE,
			                                   .flags = HDL_SEND_SIGNALED,
			                                   .invalidate_key = key});
			expect_sent(w, w->a.scq, qa, 6, HDL_WC_SEND, 0);
			expect_wc(w, w->b.rcq,
			          &(struct hdl_wc){.wr_id = 5,
			                           .opcode = HDL_WC_RECV,
			                           .imm = key.v,
			                           .flags = HDL_WC_WITH_INVALIDATE,
			                           .qpn = hdl_qp_number(qb),
			                           .src_qpn = hdl_qp_number(qa)});
		}
	}
	struct hdl_key key = hdl_mr_key(mr);
	post_rdma(qa, 7, HDL_OP_READ, piece(&w->a, 0, 8), 0x5550000, key);
	expect_refused(w, w->a.scq, qa, 7, HDL_WC_REM_ACCESS_ERR, HDL_DETAIL_NOT_VALID);
}

static void ip3_register_and_send_in_one_request(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, &(struct qp_options){.register_on_send = true}, &qa, &qb);
	struct hdl_mr *mr = make_empty_mr(&w->b, PAGES);
	uint64_t pages[PAGES];
	page_list(&w->b, pages);
	struct hdl_send_wr wr =
	        register_wr(mr, 9, list_of(pages, 0, 4 * PAGE, 0x1000, LOCAL_BOTH | REMOTE_ALL), 1);
	/* The send carries the key to the peer, from memory that the key itself covers. */
	struct hdl_sge own = {.addr = 0x1000 + PAGE - 16, .length = 32, .key = wr.reg.key};
	wr.opcode = HDL_OP_REGISTER_SEND;
	wr.sg_list = &own;
	wr.num_sge = 1;
	post_send(qb, wr); /* the peer is not ready: the registration must not be executed twice */
	world_pass(w, 100000);
	post_recv(qa, 3, &w->a, 0, 32);
	expect_sent(w, w->b.scq, qb, 1, HDL_WC_SEND, 32);
	expect_received(w, w->a.rcq, qa, qb, 3, 32);
	for (uint32_t i = 0; i < 32; i++)
		expect_copy(&w->a, i, &w->b, lies_at(0, PAGE - 16 + i), 1);
	list_works(w, qa, wr.reg.key, 0x1000, 0, 0, 4 * PAGE);
}

/* The possible errors of a registration request. */
static struct hdl_send_wr bad_register(struct side *s, uint32_t detail, const uint64_t *pages)
{
	struct hdl_mr *mr = make_empty_mr(s, PAGES);
	struct hdl_send_wr wr =
	        register_wr(mr, 9, list_of(pages, 0, 4 * PAGE, 0x1000, LOCAL_BOTH), 1);
	switch (detail) {
	case HDL_DETAIL_PD: {
		struct hdl_mr *foreign;
		assert_int_equal(hdl_mr_alloc(make_pd(s), PAGES, &foreign), 0);
		keep_mr(s->world, foreign);
		return register_wr(foreign, 9, list_of(pages, 0, PAGE, 0, LOCAL_BOTH), 1);
	}
	case HDL_DETAIL_PAGES:
		wr.reg.reg.length = PAGES * PAGE + 1;
		break;
	case HDL_DETAIL_BOUNDS:
		wr.reg.reg.iova = UINT64_MAX - PAGE;
		break;
	default:
		wr.reg.reg.access = HDL_ACCESS_REMOTE_WRITE;
	}
	return wr;
}

static const uint32_t register_details[] = {HDL_DETAIL_PD, HDL_DETAIL_PAGES, HDL_DETAIL_BOUNDS,
                                            HDL_DETAIL_ACCESS};

/* Figure 11 option 1: drained, requests behind it are flushed, receiving continues, RTS resumes. */
static void ip3_failed_registration_option_1_drains(void **state)
{
	struct world *w = *state;
	for (uint32_t i = 0; i < 2 * COUNT(register_details); i++) {
		struct hdl_qp *qa, *qb;
		struct qp_options o = {.register_on_send = true,
		                       .register_error = HDL_REGISTER_ERROR_DRAIN};
		uint64_t pages[PAGES];
		page_list(&w->b, pages);
		make_pair(w, &o, &qa, &qb);
		struct hdl_send_wr wr = bad_register(&w->b, register_details[i / 2], pages);
		if (i % 2)
			wr.opcode = HDL_OP_REGISTER_SEND;
		struct hdl_send_wr behind = {.wr_id = 2, .opcode = HDL_OP_SEND};
		wr.next = &behind;
		post_recv(qa, 7, &w->a, 0, 8);
		post_recv(qb, 8, &w->b, 512, 8);
		assert_int_equal(hdl_post_send(qb, &wr, NULL), 0);
		expect_failed(w, w->b.scq, qb, 1, HDL_WC_MEM_MGT_ERR, register_details[i / 2]);
		expect_flushed(w, w->b.scq, qb, 2);
		assert_int_equal(qp_state_of(qb), HDL_QPS_SQD);
		expect_event(w, &w->b, HDL_EVENT_SQ_DRAINED, HDL_DETAIL_NONE, qb);
		/* The peer notices nothing. */
		post_data(qa, 3, HDL_OP_SEND, &w->a, 64, 8);
		expect_sent(w, w->a.scq, qa, 3, HDL_WC_SEND, 8);
		expect_received(w, w->b.rcq, qb, qa, 8, 8);
		expect_copy(&w->b, 512, &w->a, 64, 8);
		/* Posted while drained: it is behind the registration as well, and must not run
		 * before that has been tried again. */
		post_data(qb, 10, HDL_OP_SEND, &w->b, 64, 8);
		expect_flushed(w, w->b.scq, qb, 10);
		post_data(qb, 11, HDL_OP_SEND, &w->b, 64, 8);
		post_data(qb, 12, HDL_OP_WRITE, &w->b, 64, 8);
		expect_flushed(w, w->b.scq, qb, 11);
		expect_flushed(w, w->b.scq, qb, 12);
		assert_int_equal(qp_state_of(qb), HDL_QPS_SQD);
		post_send(qb, (struct hdl_send_wr){.wr_id = 13, .opcode = HDL_OP_SEND});
		qp_go(qb, HDL_QPS_RTS);
		expect_flushed(w, w->b.scq, qb, 13);
		post_data(qb, 4, HDL_OP_SEND, &w->b, 64, 8);
		expect_sent(w, w->b.scq, qb, 4, HDL_WC_SEND, 8);
		expect_received(w, w->a.rcq, qa, qb, 7, 8);
		expect_copy(&w->a, 0, &w->b, 64, 8);
		check_memory(w);
		expect_no_event(w);
		drop_qp(w, qa);
		drop_qp(w, qb);
	}
}

/* Option 1 goes on with what was posted before, with receives, with what the peer reads, writes and
 * gets refused; and the registration can be tried again, with what is behind it. */
static void ip3_option_1_goes_on_and_is_tried_again(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	struct qp_options o = {.register_on_send = true,
	                       .register_error = HDL_REGISTER_ERROR_DRAIN};
	uint64_t pages[PAGES];
	page_list(&w->b, pages);
	make_pair(w, &o, &qa, &qb);
	struct hdl_send_wr bad = bad_register(&w->b, HDL_DETAIL_PAGES, pages);
	struct hdl_sge own = piece(&w->b, 64, 5000);
	struct hdl_send_wr before = {.next = &bad,
	                             .wr_id = 20,
	                             .sg_list = &own,
	                             .num_sge = 1,
	                             .opcode = HDL_OP_SEND,
	                             .flags = HDL_SEND_SIGNALED};
	post_recv(qa, 7, &w->a, 32768, 5000);
	assert_int_equal(hdl_post_send(qb, &before, NULL), 0);
	expect_sent(w, w->b.scq, qb, 20, HDL_WC_SEND, 5000);
	expect_received(w, w->a.rcq, qa, qb, 7, 5000);
	expect_copy(&w->a, 32768, &w->b, 64, 5000);
	expect_failed(w, w->b.scq, qb, 1, HDL_WC_MEM_MGT_ERR, HDL_DETAIL_PAGES);
	expect_event(w, &w->b, HDL_EVENT_SQ_DRAINED, HDL_DETAIL_NONE, qb);
	for (uint32_t round = 0; round < 2; round++) { /* drained; and when it is tried again */
		assert_int_equal(qp_state_of(qb), round == 0 ? HDL_QPS_SQD : HDL_QPS_RTS);
		fill(&w->a, 0, 3000, round);
		post_rdma(qa, 21, HDL_OP_WRITE, piece(&w->a, 0, 3000), address(&w->b, 16384),
		          arena_key(&w->b));
		expect_sent(w, w->a.scq, qa, 21, HDL_WC_WRITE, 3000);
		post_rdma(qa, 22, HDL_OP_READ, piece(&w->a, 8192, 3000), address(&w->b, 16384),
		          arena_key(&w->b));
		expect_sent(w, w->a.scq, qa, 22, HDL_WC_READ, 3000);
		expect_copy(&w->b, 16384, &w->a, 0, 3000);
		expect_copy(&w->a, 8192, &w->a, 0, 3000);
		check_memory(w);
		if (round > 0)
			break;
		qp_go(qb, HDL_QPS_RTS);
		struct hdl_mr *mr = make_empty_mr(&w->b, PAGES);
		struct hdl_send_wr again = register_wr(
		        mr, 3, list_of(pages, 0, 4 * PAGE, 0x1000, LOCAL_BOTH | REMOTE_ALL), 23);
		struct hdl_sge listed = {.addr = 0x1000, .length = 64, .key = again.reg.key};
		struct hdl_send_wr behind = {.wr_id = 24,
		                             .sg_list = &listed,
		                             .num_sge = 1,
		                             .opcode = HDL_OP_SEND,
		                             .flags = HDL_SEND_SIGNALED};
		again.next = &behind;
		post_recv(qa, 8, &w->a, 40000, 64);
		assert_int_equal(hdl_post_send(qb, &again, NULL), 0);
		expect_sent(w, w->b.scq, qb, 23, HDL_WC_REGISTER, 0);
		expect_sent(w, w->b.scq, qb, 24, HDL_WC_SEND, 64);
		expect_received(w, w->a.rcq, qa, qb, 8, 64);
		for (uint32_t i = 0; i < 64; i++)
			expect_copy(&w->a, 40000 + i, &w->b, lies_at(0, i), 1);
	}
	/* Drained once more: what the peer may not do ends the connection as ever. */
	bad = bad_register(&w->b, HDL_DETAIL_PAGES, pages);
	post_send(qb, bad);
	expect_failed(w, w->b.scq, qb, 1, HDL_WC_MEM_MGT_ERR, HDL_DETAIL_PAGES);
	expect_event(w, &w->b, HDL_EVENT_SQ_DRAINED, HDL_DETAIL_NONE, qb);
	post_rdma(qa, 25, HDL_OP_READ, piece(&w->a, 0, 8), address(&w->b, 0),
	          (struct hdl_key){arena_key(&w->b).v ^ 1});
	expect_refused(w, w->a.scq, qa, 25, HDL_WC_REM_ACCESS_ERR, HDL_DETAIL_INSTANCE);
	expect_event(w, &w->b, HDL_EVENT_QP_ACCESS_ERR, HDL_DETAIL_INSTANCE, qb);
	assert_int_equal(qp_state_of(qb), HDL_QPS_ERR);
	check_memory(w);
}

/* Option 2: error state, and the stream is terminated. */
static void ip3_failed_registration_option_2_terminates(void **state)
{
	struct world *w = *state;
	for (uint32_t i = 0; i < COUNT(register_details); i++) {
		struct hdl_qp *qa, *qb;
		struct qp_options o = {.register_on_send = true,
		                       .register_error = HDL_REGISTER_ERROR_TERMINATE};
		uint64_t pages[PAGES];
		page_list(&w->b, pages);
		make_pair(w, &o, &qa, &qb);
		post_recv(qa, 7, &w->a, 0, 8);
		post_recv(qb, 8, &w->b, 0, 8);
		struct hdl_send_wr wr = bad_register(&w->b, register_details[i], pages);
		struct hdl_send_wr behind = {.wr_id = 2, .opcode = HDL_OP_SEND};
		wr.next = &behind;
		assert_int_equal(hdl_post_send(qb, &wr, NULL), 0);
		expect_failed(w, w->b.scq, qb, 1, HDL_WC_MEM_MGT_ERR, register_details[i]);
		expect_flushed(w, w->b.scq, qb, 2);
		expect_flushed(w, w->b.rcq, qb, 8);
		assert_int_equal(qp_state_of(qb), HDL_QPS_ERR);
		if (!w->port->wire) { /* InfiniBand has no packet to tell it with */
			expect_flushed(w, w->a.rcq, qa, 7);
			expect_event(w, &w->a, HDL_EVENT_QP_FATAL,
			             w->port->stream ? HDL_DETAIL_NONE : register_details[i], qa);
		}
		assert_int_equal(qp_state_of(qa), w->port->wire ? HDL_QPS_RTS : HDL_QPS_ERR);
		check_memory(w);
		expect_no_event(w);
	}
}

static void ip3_register_busy_and_refused_when_posted(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb, *plain_a, *plain_b;
	struct qp_options o = {.register_on_send = true,
	                       .register_error = HDL_REGISTER_ERROR_TERMINATE};
	make_pair(w, &o, &qa, &qb);
	make_pair(w, NULL, &plain_a, &plain_b);
	uint64_t pages[PAGES];
	page_list(&w->b, pages);
	struct hdl_register reg = list_of(pages, 0, PAGE, 0, LOCAL_BOTH);
	struct hdl_mr *mr = make_empty_mr(&w->b, PAGES), *small = make_empty_mr(&w->b, PAGES - 1);
	assert_int_equal(try_send(plain_b, register_wr(mr, 1, reg, 1)), -HDL_ENOTSUP);
	assert_int_equal(try_send(qb, register_wr(small, 1, reg, 1)), -HDL_EMSGSIZE);
	struct hdl_send_wr wr = register_wr(mr, 1, reg, 1);
	wr.reg.mr = w->b.mr;
	assert_int_equal(try_send(qb, wr), -HDL_EINVAL);
	wr.reg.mr = NULL;
	assert_int_equal(try_send(qb, wr), -HDL_EINVAL);
	wr = register_wr(mr, 1, reg, 1);
	wr.reg.key.v += 256;
	assert_int_equal(try_send(qb, wr), -HDL_EINVAL);
	wr = register_wr(mr, 1, reg, 1);
	wr.reg.reg.pages = NULL;
	assert_int_equal(try_send(qb, wr), -HDL_EINVAL);
	struct hdl_mr *none;
	assert_int_equal(hdl_mr_alloc(w->b.pd, 0, &none), -HDL_EINVAL);
	assert_int_equal(hdl_mr_alloc(w->b.pd, HDL_MAX_REGISTER_PAGES + 1, &none), -HDL_EINVAL);
	/* Valid already: it must be invalidated first. */
	post_send(qb, register_wr(mr, 1, reg, 1));
	post_send(qb, register_wr(mr, 2, reg, 2));
	expect_sent(w, w->b.scq, qb, 1, HDL_WC_REGISTER, 0);
	expect_failed(w, w->b.scq, qb, 2, HDL_WC_MEM_MGT_ERR, HDL_DETAIL_ALREADY);
}

/* Keys that are drawn for registrations, however many of them wait to be executed, do not repeat
 * until 255 others have been drawn: what a peer kept stays stale. */
static void ip3_drawn_keys_stay_stale(void **state)
{
	enum { KEYS = 256, POSTED = 8 };
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	struct qp_options o = {.register_on_send = true};
	make_pair(w, &o, &qa, &qb);
	uint64_t pages[PAGES];
	page_list(&w->b, pages);
	struct hdl_register reg = list_of(pages, 0, PAGE, 0, LOCAL_BOTH | REMOTE_ALL);
	struct hdl_mr *mr = make_empty_mr(&w->b, PAGES);
	struct hdl_key keys[KEYS];
	bool seen[KEYS] = {false};
	for (uint32_t i = 0; i < KEYS; i++) {
		keys[i] = hdl_mr_draw_key(mr);
		assert_int_equal(keys[i].v >> 8, hdl_mr_key(mr).v >> 8);
		assert_false(seen[keys[i].v & 255]);
		seen[keys[i].v & 255] = true;
	}
	assert_int_equal(hdl_mr_draw_key(mr).v, keys[0].v);
	for (uint32_t i = 0; i < POSTED; i++) {
		struct hdl_send_wr wr = register_wr(mr, 0, reg, i);
		wr.reg.key = keys[i];
		post_send(qb, wr);
		if (i + 1 < POSTED)
			post_send(qb, (struct hdl_send_wr){.opcode = HDL_OP_INVALIDATE,
			                                   .invalidate_key = keys[i]});
	}
	for (uint32_t i = 0; i < POSTED; i++)
		expect_sent(w, w->b.scq, qb, i, HDL_WC_REGISTER, 0);
	assert_int_equal(hdl_mr_key(mr).v, keys[POSTED - 1].v);
	post_rdma(qa, 1, HDL_OP_WRITE, piece(&w->a, 0, 8), 0, keys[POSTED - 1]);
	expect_sent(w, w->a.scq, qa, 1, HDL_WC_WRITE, 8);
	post_rdma(qa, 2, HDL_OP_WRITE, piece(&w->a, 0, 8), 0, keys[0]);
	expect_refused(w, w->a.scq, qa, 2, HDL_WC_REM_ACCESS_ERR, HDL_DETAIL_INSTANCE);
	/* A window: the call that binds draws, too. */
	struct hdl_mw *mw = make_mw(&w->b, HDL_MW_TYPE_1);
	const struct hdl_bind bind = {.mr = w->b.mr,
	                              .access = HDL_ACCESS_REMOTE_READ,
	                              .addr = address(&w->b, 0),
	                              .length = 8};
	memset(seen, 0, sizeof(seen));
	for (uint32_t i = 0; i < KEYS; i++) {
		struct hdl_key key;
		if (i % 3 == 0)
			assert_int_equal(hdl_mw_bind(mw, &bind, &key), 0);
		else
			key = hdl_mw_draw_key(mw);
		assert_false(seen[key.v & 255]);
		seen[key.v & 255] = true;
	}
	/* Regions that are not for work requests have one key. */
	assert_int_equal(hdl_mr_draw_key(w->b.mr).v, 0);
	assert_int_equal(hdl_mr_draw_key(NULL).v, 0);
	assert_int_equal(hdl_mw_draw_key(NULL).v, 0);
}

#define STORE_TRIES 6 /* lists, of which the store holds two */

/* Post lists behind a delay until there is no room for another one. Returns how many were accepted:
 * more than two if the delay was over earlier, on a busy machine. */
static int fill_store(struct hdl_qp *qp, struct hdl_mr *mr, const struct hdl_register *reg,
                      uint64_t delay_ns)
{
	static uint8_t instance;
	int posted = 0, result = 0;
	post_send(qp, (struct hdl_send_wr){.opcode = HDL_OP_DELAY, .u.delay = {delay_ns}});
	for (; posted < STORE_TRIES; posted++) {
		struct hdl_key key = hdl_key_with_instance(hdl_mr_key(mr), ++instance);
		result = try_send(qp, register_wr(mr, instance, *reg, (uint64_t)posted));
		if (result != 0)
			break;
		post_send(qp,
		          (struct hdl_send_wr){.opcode = HDL_OP_INVALIDATE, .invalidate_key = key});
	}
	assert_int_equal(result, posted < STORE_TRIES ? -HDL_ENOMEM : 0);
	assert_true(posted >= 2);
	return posted;
}

/* The page lists of waiting requests fill their store; room becomes free in order. */
static void ip3_page_list_store_is_bounded(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	struct qp_options o = {.register_on_send = true, .cap = {.max_send_wr = 64}};
	make_pair(w, &o, &qa, &qb);
	static uint64_t pages[HDL_MAX_REGISTER_PAGES];
	for (uint32_t i = 0; i < HDL_MAX_REGISTER_PAGES; i++)
		pages[i] = address(&w->b, (i % 16) * PAGE);
	struct hdl_register reg = {.pages = pages,
	                           .num_pages = HDL_MAX_REGISTER_PAGES,
	                           .page_shift = 12,
	                           .length = (uint64_t)HDL_MAX_REGISTER_PAGES * PAGE,
	                           .access = LOCAL_BOTH | REMOTE_ALL};
	struct hdl_mr *mr = make_empty_mr(&w->b, HDL_MAX_REGISTER_PAGES);
	uint64_t delay = 3000000;
	for (int full = 0; full < 3;) {
		int posted = fill_store(qb, mr, &reg, delay);
		for (int i = 0; i < posted; i++)
			expect_sent(w, w->b.scq, qb, (uint64_t)i, HDL_WC_REGISTER, 0);
		world_settle(w);
		full += posted == 2;
		delay = posted == 2 ? delay : 2 * delay;
		assert_true(delay < 10000000000u);
	}
	/* The whole store can be used for one large list. */
	post_send(qb, register_wr(mr, 99, reg, 1));
	expect_sent(w, w->b.scq, qb, 1, HDL_WC_REGISTER, 0);
	uint64_t at = (uint64_t)(HDL_MAX_REGISTER_PAGES - 9) * PAGE -
	              11; /* ends on page 7 of the arena */
	post_rdma(qa, 3, HDL_OP_WRITE, piece(&w->a, 0, 22), at, hdl_mr_key(mr));
	expect_sent(w, w->a.scq, qa, 3, HDL_WC_WRITE, 22);
	expect_copy(&w->b, 7 * PAGE - 11, &w->a, 0, 22);
	check_memory(w);
}

static const struct CMUnitTest tests[] = {
        BEHAVIOUR(ip3_page_list_crosses_borders),
        BEHAVIOUR(ip3_page_list_refusals),
        BEHAVIOUR(ip3_shared_translation),
        BEHAVIOUR(ip3_register_by_request),
        BEHAVIOUR(ip3_register_and_send_in_one_request),
        BEHAVIOUR(ip3_failed_registration_option_1_drains),
        BEHAVIOUR(ip3_option_1_goes_on_and_is_tried_again),
        BEHAVIOUR(ip3_failed_registration_option_2_terminates),
        BEHAVIOUR(ip3_register_busy_and_refused_when_posted),
        BEHAVIOUR(ip3_drawn_keys_stay_stale),
        BEHAVIOUR(ip3_page_list_store_is_bounded),
};
THEME(register_theme, tests);
