/* Every limit of limits.h that can be reached in reasonable time gives the documented error, and
 * going below it again makes room. */
#include <stdlib.h>

#include "conform.h"

/* A third adapter with its own limits. */
static struct hdl_adapter *small_adapter(struct world *w, uint32_t max_qp, uint32_t max_mr)
{
	struct hdl_open_attr attr = {.name = "small", .max_qp = max_qp, .max_mr = max_mr};
	struct hdl_adapter *adapter;
	assert_int_equal(w->port->open(w, &adapter, &attr), 0);
	return adapter;
}

static void limits_are_reported(void **state)
{
	struct world *w = *state;
	struct hdl_adapter *adapter = small_adapter(w, 7, 9);
	struct hdl_limits limits;
	assert_int_equal(hdl_adapter_query(adapter, &limits), 0);
	assert_int_equal(limits.max_qp, 7);
	assert_int_equal(limits.max_mr, 9);
	assert_int_equal(limits.max_qp_wr, HDL_MAX_QP_WR);
	assert_int_equal(limits.max_sge, HDL_MAX_SGE);
	assert_int_equal(limits.max_inline, HDL_MAX_INLINE);
	assert_int_equal(limits.max_cqe, HDL_MAX_CQE);
	assert_int_equal(limits.max_srq_wr, HDL_MAX_SRQ_WR);
	assert_int_equal(limits.max_rd_atomic, HDL_MAX_RD_ATOMIC);
	assert_int_equal(limits.max_message, HDL_MAX_MESSAGE);
	assert_int_equal(limits.max_register_pages, HDL_MAX_REGISTER_PAGES);
	static const struct hdl_gid none;
	assert_memory_not_equal(&limits.gid, &none, sizeof(none));
	if (!w->port->one_address)
		assert_memory_not_equal(&limits.gid, &w->a.gid, sizeof(none));
	assert_int_equal(hdl_close(adapter), 0);
	struct hdl_open_attr attr = {.max_qp = HDL_MAX_QP + 1};
	assert_int_equal(w->port->open(w, &adapter, &attr), -HDL_EINVAL);
	attr = (struct hdl_open_attr){.max_mr = HDL_MAX_MR + 1};
	assert_int_equal(w->port->open(w, &adapter, &attr), -HDL_EINVAL);
}

static void queue_pairs(void **state)
{
	struct world *w = *state;
	enum { MANY = 100 };
	static const uint32_t sizes[] = {1, 7, 64, MANY};
	for (uint32_t s = 0; s < COUNT(sizes); s++) {
		struct hdl_adapter *adapter = small_adapter(w, sizes[s], 16);
		struct hdl_qp *qps[MANY], *more;
		struct hdl_pd *pd;
		struct hdl_cq *cq;
		assert_int_equal(hdl_pd_create(adapter, &pd), 0);
		assert_int_equal(hdl_cq_create(adapter, 4, NULL, NULL, &cq), 0);
		struct hdl_qp_init_attr init = {
		        .type = HDL_QP_RC, .send_cq = cq, .recv_cq = cq, .cap = {1, 1, 1, 1, 0}};
		for (uint32_t i = 0; i < sizes[s]; i++) {
			assert_int_equal(hdl_qp_create(pd, &init, &qps[i]), 0);
			for (uint32_t k = 0; k < i; k++)
				assert_int_not_equal(hdl_qp_number(qps[i]), hdl_qp_number(qps[k]));
		}
		assert_int_equal(hdl_qp_create(pd, &init, &more), -HDL_ENOMEM);
		assert_int_equal(hdl_qp_destroy(qps[0]), 0);
		assert_int_equal(hdl_qp_create(pd, &init, &qps[0]), 0);
		assert_int_equal(hdl_qp_create(pd, &init, &more), -HDL_ENOMEM);
		for (uint32_t i = 0; i < sizes[s]; i++)
			assert_int_equal(hdl_qp_destroy(qps[i]), 0);
		assert_int_equal(hdl_cq_destroy(cq), 0);
		assert_int_equal(hdl_pd_destroy(pd), 0);
		assert_int_equal(hdl_close(adapter), 0);
	}
}

static void queue_pair_sizes(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qp;
	const struct hdl_qp_init_attr good = {
	        .type = HDL_QP_RC,
	        .send_cq = w->a.scq,
	        .recv_cq = w->a.rcq,
	        .cap = {HDL_MAX_QP_WR, HDL_MAX_QP_WR, HDL_MAX_SGE, HDL_MAX_SGE, HDL_MAX_INLINE}};
	struct hdl_qp_init_attr init = good;
	assert_int_equal(hdl_qp_create(w->a.pd, &init, &qp), 0);
	assert_true(init.cap.max_send_wr >= HDL_MAX_QP_WR && init.cap.max_inline >= HDL_MAX_INLINE);
	assert_int_equal(hdl_qp_destroy(qp), 0);
#define TOO_LARGE(field, limit)                                                    \
	do {                                                                       \
		init = good;                                                       \
		init.cap.field = (limit) + 1;                                      \
		assert_int_equal(hdl_qp_create(w->a.pd, &init, &qp), -HDL_EINVAL); \
	} while (0)
	TOO_LARGE(max_send_wr, HDL_MAX_QP_WR);
	TOO_LARGE(max_recv_wr, HDL_MAX_QP_WR);
	TOO_LARGE(max_send_sge, HDL_MAX_SGE);
	TOO_LARGE(max_recv_sge, HDL_MAX_SGE);
	TOO_LARGE(max_inline, HDL_MAX_INLINE);
	init = good;
	init.type = 0;
	assert_int_equal(hdl_qp_create(w->a.pd, &init, &qp), -HDL_ENOTSUP);
	init.type = 9;
	assert_int_equal(hdl_qp_create(w->a.pd, &init, &qp), -HDL_ENOTSUP);
	init = good;
	init.register_error = 2;
	assert_int_equal(hdl_qp_create(w->a.pd, &init, &qp), -HDL_EINVAL);
	/* Zero is a size, too: such a queue accepts nothing. */
	init = good;
	init.cap = (struct hdl_qp_cap){0};
	struct hdl_qp *empty = NULL;
	assert_int_equal(hdl_qp_create(w->a.pd, &init, &empty), 0);
	qp_to_init(empty, NULL);
	qp_to_rtr(empty, NULL, &w->b.gid, 5);
	qp_to_rts(empty, NULL);
	assert_int_equal(try_recv(empty, 1, NULL, 0), -HDL_ENOSPC);
	assert_int_equal(try_send(empty, (struct hdl_send_wr){.opcode = HDL_OP_SEND}), -HDL_ENOSPC);
	assert_int_equal(hdl_qp_destroy(empty), 0);
}

/* Regions and windows together. */
static void protection_table(void **state)
{
	enum { MANY = 40 };
	struct world *w = *state;
	struct hdl_adapter *adapter = small_adapter(w, 4, MANY);
	struct hdl_pd *pd;
	struct hdl_mr *mrs[MANY], *more;
	struct hdl_mw *mws[MANY], *window;
	assert_int_equal(hdl_pd_create(adapter, &pd), 0);
	for (uint32_t i = 0; i < MANY; i++) {
		if (i % 2)
			assert_int_equal(hdl_mw_alloc(pd, HDL_MW_TYPE_1, &mws[i]), 0);
		else
			assert_int_equal(hdl_mr_register(pd, w->a.mem, 64, LOCAL_BOTH, &mrs[i]), 0);
	}
	assert_int_equal(hdl_mr_register(pd, w->a.mem, 64, LOCAL_BOTH, &more), -HDL_ENOMEM);
	assert_int_equal(hdl_mr_alloc(pd, 1, &more), -HDL_ENOMEM);
	assert_int_equal(hdl_mr_share(mrs[0], pd, LOCAL_BOTH, &more), -HDL_ENOMEM);
	assert_int_equal(hdl_mw_alloc(pd, HDL_MW_TYPE_2, &window), -HDL_ENOMEM);
	uint64_t page = address(&w->a, 0);
	struct hdl_register reg = {.pages = &page,
	                           .num_pages = 1,
	                           .page_shift = 12,
	                           .length = 64,
	                           .access = LOCAL_BOTH};
	assert_int_equal(hdl_mr_register_pages(pd, &reg, &more), -HDL_ENOMEM);
	assert_int_equal(hdl_mw_free(mws[1]), 0);
	assert_int_equal(hdl_mr_register_pages(pd, &reg, &mrs[1]), 0);
	assert_int_equal(hdl_mw_alloc(pd, HDL_MW_TYPE_2, &window), -HDL_ENOMEM);
	assert_int_equal(hdl_mr_deregister(mrs[1]), 0);
	for (uint32_t i = 0; i < MANY; i++) {
		if (i % 2 == 0)
			assert_int_equal(hdl_mr_deregister(mrs[i]), 0);
		else if (i != 1)
			assert_int_equal(hdl_mw_free(mws[i]), 0);
	}
	assert_int_equal(hdl_pd_destroy(pd), 0);
	assert_int_equal(hdl_close(adapter), 0);
	assert_int_equal(
	        hdl_mr_register(w->a.pd, w->a.mem, HDL_MAX_MR_LENGTH + 1, LOCAL_BOTH, &more),
	        -HDL_EINVAL);
}

static void domains(void **state)
{
	struct world *w = *state;
	struct hdl_adapter *adapter = small_adapter(w, 4, 4);
	struct hdl_limits limits;
	assert_int_equal(hdl_adapter_query(adapter, &limits), 0);
	struct hdl_pd **pds = calloc(limits.max_pd + 1, sizeof(struct hdl_pd *));
	assert_non_null(pds);
	uint32_t count = 0;
	int result;
	while (count <= limits.max_pd && (result = hdl_pd_create(adapter, &pds[count])) == 0)
		count++;
	assert_int_equal(count, limits.max_pd);
	assert_int_equal(result, -HDL_ENOMEM);
	assert_int_equal(hdl_pd_destroy(pds[17]), 0);
	assert_int_equal(hdl_pd_create(adapter, &pds[17]), 0);
	for (uint32_t i = 0; i < count; i++)
		assert_int_equal(hdl_pd_destroy(pds[i]), 0);
	free(pds);
	assert_int_equal(hdl_close(adapter), 0);
}

static void completion_queues_and_handles(void **state)
{
	struct world *w = *state;
	struct hdl_cq *cq;
	assert_int_equal(hdl_cq_create(w->a.adapter, 0, NULL, NULL, &cq), -HDL_EINVAL);
	assert_int_equal(hdl_cq_create(w->a.adapter, HDL_MAX_CQE + 1, NULL, NULL, &cq),
	                 -HDL_EINVAL);
	assert_int_equal(hdl_cq_create(w->a.adapter, HDL_MAX_CQE, NULL, NULL, &cq), 0);
	assert_int_equal(hdl_cq_destroy(cq), 0);
	/* Address handles: the only objects that are many and cheap. */
	struct hdl_ah_attr to = {.dgid = w->b.gid, .port_num = 1};
	struct hdl_ah **ahs = calloc(HDL_MAX_AH + 1, sizeof(struct hdl_ah *));
	assert_non_null(ahs);
	uint32_t count = 0;
	int result;
	while (count <= HDL_MAX_AH && (result = hdl_ah_create(w->a.pd, &to, &ahs[count])) == 0)
		count++;
	assert_int_equal(count, HDL_MAX_AH);
	assert_int_equal(result, -HDL_ENOMEM);
	assert_int_equal(hdl_ah_destroy(ahs[0]), 0);
	assert_int_equal(hdl_ah_create(w->a.pd, &to, &ahs[0]), 0);
	for (uint32_t i = 0; i < count; i++)
		assert_int_equal(hdl_ah_destroy(ahs[i]), 0);
	free(ahs);
	struct hdl_srq **srqs = calloc(HDL_MAX_SRQ + 1, sizeof(struct hdl_srq *));
	assert_non_null(srqs);
	struct hdl_srq_attr attr = {.max_wr = 1, .max_sge = 1};
	for (count = 0; count <= HDL_MAX_SRQ &&
	                (result = hdl_srq_create(w->a.pd, &attr, NULL, &srqs[count])) == 0;
	     count++)
		;
	assert_int_equal(count, HDL_MAX_SRQ);
	assert_int_equal(result, -HDL_ENOMEM);
	for (uint32_t i = 0; i < count; i++)
		assert_int_equal(hdl_srq_destroy(srqs[i]), 0);
	free(srqs);
}

static void message_length(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	/* Longer than a message can be: refused when posted, whatever the pieces are. */
	struct hdl_sge half[2] = {{.length = 1u << 29}, {.length = (1u << 29) + 1}};
	struct hdl_send_wr wr = {.opcode = HDL_OP_SEND, .sg_list = half, .num_sge = 2};
	assert_int_equal(try_send(qa, wr), -HDL_EMSGSIZE);
	half[0].length = half[1].length = UINT32_MAX;
	assert_int_equal(try_send(qa, wr), -HDL_EMSGSIZE);
	/* The longest message is checked like any other. */
	half[0].length = half[1].length = 1u << 29;
	wr.wr_id = 3;
	post_send(qa, wr);
	post_recv(qb, 1, &w->b, 0, 8);
	struct hdl_wc wc;
	wait_wc(w, w->a.scq, &wc);
	assert_int_equal(wc.wr_id, 3);
	assert_true(wc.status == HDL_WC_REM_INV_REQ_ERR || wc.status == HDL_WC_LOC_PROT_ERR);
	check_memory(w);
	/* Unknown values are refused as well. */
	make_pair(w, NULL, &qa, &qb);
	wr = (struct hdl_send_wr){.opcode = HDL_OP_COUNT};
	assert_int_equal(try_send(qa, wr), -HDL_EINVAL);
	wr = (struct hdl_send_wr){.opcode = HDL_OP_SEND, .flags = 1u << 4};
	assert_int_equal(try_send(qa, wr), -HDL_EINVAL);
	wr = (struct hdl_send_wr){.opcode = HDL_OP_SEND, .num_sge = 1};
	assert_int_equal(try_send(qa, wr), -HDL_EINVAL);
	wr = (struct hdl_send_wr){.opcode = HDL_OP_SEND, .num_sge = UINT32_MAX};
	assert_int_equal(try_send(qa, wr), -HDL_EMSGSIZE);
	assert_int_equal(try_recv(qa, 1, NULL, 1), -HDL_EINVAL);
	assert_int_equal(try_recv(qa, 1, NULL, UINT32_MAX), -HDL_EMSGSIZE);
}

/* The deepest possible queue works up to its last element. */
static void deepest_queue(void **state)
{
	struct world *w = *state;
	struct hdl_cq *cq = make_cq(&w->a, HDL_MAX_QP_WR, NULL, NULL);
	struct hdl_cq *rcq = make_cq(&w->b, HDL_MAX_QP_WR, NULL, NULL);
	struct qp_options o = {.scq = cq, .cap = {.max_send_wr = HDL_MAX_QP_WR}};
	struct hdl_qp *qa = make_qp(&w->a, &o);
	o = (struct qp_options){.rcq = rcq, .cap = {.max_recv_wr = HDL_MAX_QP_WR}};
	struct hdl_qp *qb = make_qp(&w->b, &o);
	connect_pair(w, NULL, qa, qb);
	for (uint32_t i = 0; i < HDL_MAX_QP_WR; i++)
		assert_int_equal(try_recv(qb, i, NULL, 0), 0);
	assert_int_equal(try_recv(qb, 0, NULL, 0), -HDL_ENOSPC);
	qp_go(qa, HDL_QPS_SQD); /* nothing is executed while we fill it */
	for (uint32_t i = 0; i < HDL_MAX_QP_WR; i++)
		post_data(qa, i, HDL_OP_SEND, &w->a, 0, 0);
	assert_int_equal(try_send(qa, (struct hdl_send_wr){.opcode = HDL_OP_SEND}), -HDL_ENOSPC);
	qp_go(qa, HDL_QPS_RTS);
	for (uint32_t i = 0; i < HDL_MAX_QP_WR; i++) {
		expect_sent(w, cq, qa, i, HDL_WC_SEND, 0);
		expect_received(w, rcq, qb, qa, i, 0);
	}
}

static const struct CMUnitTest tests[] = {
        BEHAVIOUR(limits_are_reported),
        BEHAVIOUR(queue_pairs),
        BEHAVIOUR(queue_pair_sizes),
        BEHAVIOUR(protection_table),
        BEHAVIOUR(domains),
        BEHAVIOUR(completion_queues_and_handles),
        BEHAVIOUR(message_length),
        BEHAVIOUR(deepest_queue),
};
THEME(limit_theme, tests);
