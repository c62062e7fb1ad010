/* What a service keeps for each peer (SN2; SAN figure 4): unreliable datagrams less than reliable
 * ones, and these less than connections. The memory of an adapter that talks to a thousand peers
 * by each is measured. */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include <heddle/heddle.h>

#define PEERS 1000u
#define SKIP  77

static size_t held_bytes(void)
{
	struct mallinfo2 info = mallinfo2();
	return info.uordblks + info.hblkhd;
}

struct rig {
	struct hdl_adapter *adapter;
	struct hdl_pd *pd;
	struct hdl_cq *cq;
	struct hdl_rdd *rdd;
};

static void open_rig(struct rig *rig)
{
	struct hdl_open_attr attr = {0};
	assert_int_equal(hdl_open(&attr, &rig->adapter), 0);
	assert_int_equal(hdl_pd_create(rig->adapter, &rig->pd), 0);
	assert_int_equal(hdl_cq_create(rig->adapter, 16, NULL, NULL, &rig->cq), 0);
	assert_int_equal(hdl_rdd_open(rig->adapter, &rig->rdd), 0);
}

static void close_rig(struct rig *rig)
{
	assert_int_equal(hdl_rdd_close(rig->rdd), 0);
	assert_int_equal(hdl_cq_destroy(rig->cq), 0);
	assert_int_equal(hdl_pd_destroy(rig->pd), 0);
	assert_int_equal(hdl_close(rig->adapter), 0);
}

static struct hdl_qp *make_qp(const struct rig *rig, enum hdl_qp_type type)
{
	struct hdl_qp *qp;
	struct hdl_qp_init_attr init = {.type = type,
	                                .send_cq = rig->cq,
	                                .recv_cq = rig->cq,
	                                .rdd = type == HDL_QP_RD ? rig->rdd : NULL,
	                                .cap = {16, 16, 1, 1, 0}};
	assert_int_equal(hdl_qp_create(rig->pd, &init, &qp), 0);
	return qp;
}

/* One queue pair, and an address handle for each peer. */
static size_t of_unreliable_datagrams(void)
{
	static struct hdl_ah *ahs[PEERS];
	struct rig rig;
	struct hdl_limits limits;
	open_rig(&rig);
	assert_int_equal(hdl_adapter_query(rig.adapter, &limits), 0);
	size_t before = held_bytes();
	struct hdl_qp *qp = make_qp(&rig, HDL_QP_UD);
	for (uint32_t i = 0; i < PEERS; i++) {
		struct hdl_ah_attr attr = {.dgid = limits.gid, .is_global = true, .port_num = 1};
		assert_int_equal(hdl_ah_create(rig.pd, &attr, &ahs[i]), 0);
	}
	size_t bytes = held_bytes() - before;
	for (uint32_t i = 0; i < PEERS; i++)
		assert_int_equal(hdl_ah_destroy(ahs[i]), 0);
	assert_int_equal(hdl_qp_destroy(qp), 0);
	close_rig(&rig);
	return bytes;
}

/* One queue pair, and a context for each peer. */
static size_t of_reliable_datagrams(void)
{
	static struct hdl_eec *contexts[PEERS];
	struct rig rig;
	open_rig(&rig);
	size_t before = held_bytes();
	struct hdl_qp *qp = make_qp(&rig, HDL_QP_RD);
	for (uint32_t i = 0; i < PEERS; i++)
		assert_int_equal(hdl_eec_create(rig.rdd, &contexts[i]), 0);
	size_t bytes = held_bytes() - before;
	for (uint32_t i = 0; i < PEERS; i++)
		assert_int_equal(hdl_eec_destroy(contexts[i]), 0);
	assert_int_equal(hdl_qp_destroy(qp), 0);
	close_rig(&rig);
	return bytes;
}

/* A queue pair for each peer. */
static size_t of_connections(void)
{
	static struct hdl_qp *qps[PEERS];
	struct rig rig;
	open_rig(&rig);
	size_t before = held_bytes();
	for (uint32_t i = 0; i < PEERS; i++)
		qps[i] = make_qp(&rig, HDL_QP_RC);
	size_t bytes = held_bytes() - before;
	for (uint32_t i = 0; i < PEERS; i++)
		assert_int_equal(hdl_qp_destroy(qps[i]), 0);
	close_rig(&rig);
	return bytes;
}

static void sn2_state_per_peer(void **state)
{
	(void)state;
	size_t ud = of_unreliable_datagrams(), rd = of_reliable_datagrams(), rc = of_connections();
	printf("a peer: unreliable datagrams %zu bytes, reliable datagrams %zu, connections %zu\n",
	       ud / PEERS, rd / PEERS, rc / PEERS);
	assert_true(ud < rd);
	assert_true(rd < rc);
}

int main(void)
{
	size_t before = held_bytes();
	void *block = malloc(4096);
	bool counted = block != NULL && held_bytes() > before;
	free(block);
	if (!counted) {
		printf("skipped: this malloc() does not count\n");
		return SKIP;
	}
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(sn2_state_per_peer),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
