/* Invalid calls: an error, never a crash. */
#include <time.h>

#include "conform.h"

static void null_everywhere(void **state)
{
	struct world *w = *state;
	struct hdl_adapter *a = w->a.adapter;
	struct hdl_pd *pd;
	struct hdl_mr *mr;
	struct hdl_mw *mw;
	struct hdl_cq *cq;
	struct hdl_channel *channel;
	struct hdl_srq *srq;
	struct hdl_qp *qp;
	struct hdl_ah *ah;
	struct hdl_event event;
	struct hdl_limits limits;
	struct hdl_srq_attr srq_attr = {.max_wr = 1};
	struct hdl_qp_attr qp_attr = {0};
	struct hdl_ah_attr ah_attr = {.dgid = w->b.gid, .port_num = 1};
	struct hdl_qp_init_attr init = {
	        .type = HDL_QP_RC, .send_cq = w->a.scq, .recv_cq = w->a.rcq};
	struct hdl_bind bind = {0};
	const int results[] = {
	        hdl_open(NULL, NULL),
	        hdl_close(NULL),
	        hdl_adapter_query(NULL, &limits),
	        hdl_adapter_query(a, NULL),
	        hdl_join(NULL, a),
	        hdl_event_get(NULL, &event, 0),
	        hdl_event_get(a, NULL, 0),
	        hdl_pd_create(NULL, &pd),
	        hdl_pd_create(a, NULL),
	        hdl_pd_destroy(NULL),
	        hdl_mr_register(NULL, w->a.mem, 8, 1, &mr),
	        hdl_mr_register(w->a.pd, w->a.mem, 8, 1, NULL),
	        hdl_mr_register_pages(w->a.pd, NULL, &mr),
	        hdl_mr_alloc(NULL, 1, &mr),
	        hdl_mr_alloc(w->a.pd, 1, NULL),
	        hdl_mr_alloc_null(NULL, &mr),
	        hdl_mr_alloc_null(w->a.pd, NULL),
	        hdl_mr_share(NULL, w->a.pd, 1, &mr),
	        hdl_mr_share(w->a.mr, NULL, 1, &mr),
	        hdl_mr_share(w->a.mr, w->a.pd, 1, NULL),
	        hdl_mr_deregister(NULL),
	        hdl_segment_update(NULL, w->a.mem, 1),
	        hdl_mw_alloc(NULL, HDL_MW_TYPE_1, &mw),
	        hdl_mw_alloc(w->a.pd, 0, &mw),
	        hdl_mw_alloc(w->a.pd, 3, &mw),
	        hdl_mw_alloc(w->a.pd, HDL_MW_TYPE_1, NULL),
	        hdl_mw_bind(NULL, &bind, NULL),
	        hdl_mw_unbind(NULL),
	        hdl_mw_free(NULL),
	        hdl_channel_create(NULL, &channel),
	        hdl_channel_create(a, NULL),
	        hdl_channel_destroy(NULL),
	        hdl_channel_get(NULL, &cq, NULL, 0),
	        hdl_poll(NULL, NULL, 0, NULL, NULL),
	        hdl_poll(a, NULL, 1, NULL, NULL),
	        hdl_poll(a, NULL, 0, &(struct timespec){.tv_sec = -1}, NULL),
	        hdl_epoll_wait(NULL, 0, NULL, 0, NULL, NULL),
	        hdl_epoll_wait(a, 0, NULL, 0, &(struct timespec){.tv_nsec = 1000000000}, NULL),
	        hdl_cq_create(NULL, 1, NULL, NULL, &cq),
	        hdl_cq_create(a, 1, NULL, NULL, NULL),
	        hdl_cq_destroy(NULL),
	        hdl_cq_resize(NULL, 1),
	        hdl_cq_poll(NULL, NULL, 0),
	        hdl_cq_arm(NULL, false),
	        hdl_cq_ack(NULL, 1),
	        hdl_srq_create(NULL, &srq_attr, NULL, &srq),
	        hdl_srq_create(w->a.pd, NULL, NULL, &srq),
	        hdl_srq_create(w->a.pd, &srq_attr, NULL, NULL),
	        hdl_srq_modify(NULL, 1, 0),
	        hdl_srq_query(NULL, &srq_attr),
	        hdl_srq_destroy(NULL),
	        hdl_srq_post(NULL, NULL, NULL),
	        hdl_ah_create(NULL, &ah_attr, &ah),
	        hdl_ah_create(w->a.pd, NULL, &ah),
	        hdl_ah_create(w->a.pd, &ah_attr, NULL),
	        hdl_ah_destroy(NULL),
	        hdl_qp_create(NULL, &init, &qp),
	        hdl_qp_create(w->a.pd, NULL, &qp),
	        hdl_qp_create(w->a.pd, &init, NULL),
	        hdl_qp_modify(NULL, &qp_attr, 0),
	        hdl_qp_query(NULL, &qp_attr, NULL),
	        hdl_qp_destroy(NULL),
	        hdl_post_send(NULL, NULL, NULL),
	        hdl_post_recv(NULL, NULL, NULL),
	};
	for (size_t i = 0; i < COUNT(results); i++)
		if (results[i] != -HDL_EINVAL)
			fail_msg("call %zu returned %d", i, results[i]);
}

/* Whatever is wrong, the first request that was not accepted is reported. */
static void a_bad_handle_refuses_the_first_request(void **state)
{
	(void)state;
	/* As large as any object, but not one of ours. */
	static _Alignas(64) unsigned char nothing[1 << 14];
	void *other = nothing;
	struct hdl_send_wr send = {0};
	struct hdl_recv_wr recv = {0};
	const struct hdl_send_wr *bad_send = NULL;
	const struct hdl_recv_wr *bad_recv = NULL;
	assert_int_equal(hdl_post_send(other, &send, &bad_send), -HDL_EINVAL);
	assert_ptr_equal(bad_send, &send);
	assert_int_equal(hdl_post_recv(other, &recv, &bad_recv), -HDL_EINVAL);
	assert_ptr_equal(bad_recv, &recv);
	bad_recv = NULL;
	assert_int_equal(hdl_srq_post(other, &recv, &bad_recv), -HDL_EINVAL);
	assert_ptr_equal(bad_recv, &recv);
}

/* A handle of another kind, or of another adapter. */
static void foreign_handles(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	struct hdl_cq *cq;
	void *adapter = w->a.adapter, *pd = w->a.pd, *region = w->a.mr, *queue = w->a.scq;
	assert_int_equal(hdl_close(queue), -HDL_EINVAL);
	assert_int_equal(hdl_pd_destroy(adapter), -HDL_EINVAL);
	assert_int_equal(hdl_mr_deregister(pd), -HDL_EINVAL);
	assert_int_equal(hdl_mw_free(region), -HDL_EINVAL);
	assert_int_equal(hdl_ah_destroy(region), -HDL_EINVAL);
	assert_int_equal(hdl_channel_destroy(region), -HDL_EINVAL);
	if (w->port->one_adapter)
		return;
	struct hdl_qp_init_attr init = {.type = HDL_QP_RC,
	                                .send_cq = w->b.scq,
	                                .recv_cq = w->a.rcq,
	                                .cap = {1, 1, 1, 1, 0}};
	struct hdl_qp *qp;
	struct hdl_mr *mr;
	assert_int_equal(hdl_qp_create(w->a.pd, &init, &qp), -HDL_EINVAL);
	init.send_cq = w->a.scq;
	init.recv_cq = w->b.rcq;
	assert_int_equal(hdl_qp_create(w->a.pd, &init, &qp), -HDL_EINVAL);
	init.recv_cq = w->a.rcq;
	init.srq = make_srq(&w->b, 1, 1, 0);
	assert_int_equal(hdl_qp_create(w->a.pd, &init, &qp), -HDL_EINVAL);
	assert_int_equal(hdl_mr_share(w->a.mr, w->b.pd, LOCAL_BOTH, &mr), -HDL_EINVAL);
	assert_int_equal(hdl_cq_create(w->a.adapter, 1, make_channel(&w->b), NULL, &cq),
	                 -HDL_EINVAL);
	struct hdl_mw *mw = make_mw(&w->b, HDL_MW_TYPE_1);
	struct hdl_bind bind = {.mr = w->a.mr, .addr = address(&w->a, 0), .length = 8};
	assert_int_equal(hdl_mw_bind(mw, &bind, NULL), -HDL_EINVAL);
	struct hdl_send_wr wr = {.opcode = HDL_OP_BIND, .bind = {mw, hdl_mw_key(mw), bind}};
	assert_int_equal(try_send(qa, wr), -HDL_EINVAL);
	struct qp_options o = {.type = HDL_QP_UD, .qkey = 1};
	struct hdl_qp *ua, *ub;
	make_pair(w, &o, &ua, &ub);
	struct hdl_ah_attr to = {.dgid = w->a.gid, .port_num = 1};
	wr = (struct hdl_send_wr){.opcode = HDL_OP_SEND, .u.ud = {make_ah(&w->b, &to), 5, 1}};
	assert_int_equal(try_send(ua, wr), -HDL_EINVAL);
}

/* Every code has a text, and so do codes that do not exist. */
static void words_for_everything(void **state)
{
	(void)state;
	/* Between them are the statuses of reliable datagrams and of tag matching, which never
	 * occur. */
	static const uint8_t statuses[] = {
	        HDL_WC_SUCCESS,        HDL_WC_LOC_LEN_ERR,     HDL_WC_LOC_QP_OP_ERR,
	        HDL_WC_LOC_PROT_ERR,   HDL_WC_WR_FLUSH_ERR,    HDL_WC_MEM_MGT_ERR,
	        HDL_WC_LOC_ACCESS_ERR, HDL_WC_REM_INV_REQ_ERR, HDL_WC_REM_ACCESS_ERR,
	        HDL_WC_REM_OP_ERR,     HDL_WC_RETRY_EXC_ERR,   HDL_WC_RNR_RETRY_EXC_ERR,
	        HDL_WC_FATAL_ERR};
	for (uint32_t i = 0; i < sizeof(statuses); i++)
		assert_string_not_equal(hdl_wc_status_str(statuses[i]), "unknown");
	for (uint32_t i = 0; i < HDL_DETAIL_COUNT; i++)
		assert_string_not_equal(hdl_detail_str(i), "unknown");
	for (uint32_t i = 0; i < HDL_EVENT_TYPE_COUNT; i++)
		assert_string_not_equal(hdl_event_str(i), "unknown");
	/* No code appears twice, and each has advice. */
	for (uint32_t kind = HDL_CODES_ERROR; kind <= HDL_CODES_COUNTER; kind++) {
		size_t count;
		const struct hdl_code *list = hdl_codes(kind, &count);
		for (size_t j = 0; j < count; j++) {
			assert_true(list[j].text[0] != '\0' && list[j].advice[0] != '\0');
			for (size_t k = 0; k < j; k++)
				assert_true(list[j].value != list[k].value &&
				            strcmp(list[j].name, list[k].name) != 0);
		}
	}
	size_t none = 1;
	assert_null(hdl_codes(HDL_CODES_KIND_COUNT, &none));
	assert_int_equal(none, 0);
	assert_non_null(hdl_wc_status_str(UINT32_MAX));
	assert_non_null(hdl_detail_str(UINT32_MAX));
	assert_non_null(hdl_event_str(UINT32_MAX));
	assert_string_equal(hdl_strerror(HDL_ENOSPC), hdl_strerror(-HDL_ENOSPC));
	assert_non_null(hdl_strerror(99999));
	assert_non_null(hdl_strerror(0));
}

static void counters_have_names(void **state)
{
	struct world *w = *state;
	struct hdl_counter list[64];
	size_t count = hdl_counters(w->a.adapter, list, COUNT(list));
	assert_true(count > 16 && count <= COUNT(list));
	for (size_t i = 0; i < count; i++) {
		assert_non_null(list[i].name);
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(list[i].name, list[k].name);
	}
	assert_int_equal(hdl_counters(w->a.adapter, NULL, 0), count);
}

static const struct CMUnitTest tests[] = {
        BEHAVIOUR(null_everywhere),     BEHAVIOUR(a_bad_handle_refuses_the_first_request),
        BEHAVIOUR(foreign_handles),     BEHAVIOUR(words_for_everything),
        BEHAVIOUR(counters_have_names),
};
THEME(bad_call_theme, tests);
