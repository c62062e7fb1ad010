/* A port with several LIDs: it is reached by each of them, and says which it sends from. Two nodes
 * of one agent, one adapter each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "end.h"

#define LMC   3u
#define LIDS  (1u << LMC)
#define QKEY  0x1234u
#define BYTES 64u

static char names[2][32];
static struct end ends[2];
static struct hdl_limits limits[2];

static void open_end(struct end *end, const char *node, const char *lmc)
{
	struct hdl_adapter *adapter;
	struct hdl_open_attr attr = {.on_node = true, .node = node};
	setenv("HEDDLE_LMC", lmc, 1);
	MUST(hdl_open(&attr, &adapter));
	end_open_on(end, adapter, 4096, 16);
	end->borrowed = false;
}

static struct hdl_qp *datagram_qp(struct end *end)
{
	struct hdl_qp *qp;
	struct hdl_qp_init_attr init = {
	        .type = HDL_QP_UD,
	        .send_cq = end->cq,
	        .recv_cq = end->cq,
	        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
	struct hdl_qp_attr attr = {.state = HDL_QPS_INIT, .port_num = 1, .qkey = QKEY};
	MUST(hdl_qp_create(end->pd, &init, &qp));
	MUST(hdl_qp_modify(qp, &attr,
	                   HDL_QP_STATE | HDL_QP_PKEY_INDEX | HDL_QP_PORT | HDL_QP_QKEY));
	attr.state = HDL_QPS_RTR;
	MUST(hdl_qp_modify(qp, &attr, HDL_QP_STATE));
	attr.state = HDL_QPS_RTS;
	MUST(hdl_qp_modify(qp, &attr, HDL_QP_STATE | HDL_QP_SQ_PSN));
	return qp;
}

/* One datagram, from LID @from of the one end to LID @to of the other, counted from their first. */
static void send_one(struct hdl_qp *by, struct hdl_qp *at, uint8_t from, uint8_t to)
{
	struct end *a = &ends[0], *b = &ends[1];
	struct hdl_ah *ah;
	struct hdl_ah_attr way = {
	        .dlid = (uint16_t)(limits[1].lid + to), .src_path_bits = from, .port_num = 1};
	struct hdl_sge out = {(uintptr_t)a->mine.addr, BYTES, hdl_mr_key(a->mr)},
	               in = {(uintptr_t)b->mine.addr, HDL_GRH_BYTES + BYTES, hdl_mr_key(b->mr)};
	struct hdl_recv_wr receive = {.wr_id = 1, .sg_list = &in, .num_sge = 1};
	struct hdl_wc wc;
	MUST(hdl_ah_create(a->pd, &way, &ah));
	struct hdl_send_wr send = {.wr_id = 2,
	                           .sg_list = &out,
	                           .num_sge = 1,
	                           .opcode = HDL_OP_SEND,
	                           .flags = HDL_SEND_SIGNALED,
	                           .u.ud = {.ah = ah, .qpn = hdl_qp_number(at), .qkey = QKEY}};
	MUST(hdl_post_recv(at, &receive, NULL));
	MUST(hdl_post_send(by, &send, NULL));
	assert_true(end_wait(a, &wc, 10000));
	assert_int_equal(wc.status, HDL_WC_SUCCESS);
	assert_true(end_wait(b, &wc, 10000));
	assert_int_equal(wc.status, HDL_WC_SUCCESS);
	/* A wire has IP addresses and no LIDs: there is one of a node's. */
	bool wire = limits[0].wire == HDL_WIRE_ALL;
	assert_int_equal(wc.slid, limits[0].lid + (wire ? 0 : from));
	assert_int_equal(wc.dlid_path_bits, wire ? 0 : to);
	hdl_ah_destroy(ah);
}

static void test_datagrams(void **state)
{
	(void)state;
	struct hdl_qp *by = datagram_qp(&ends[0]), *at = datagram_qp(&ends[1]);
	for (uint8_t i = 0; i < LIDS; i++)
		send_one(by, at, i, (uint8_t)(LIDS - 1 - i));
	struct hdl_ah *ah;
	struct hdl_ah_attr way = {.dlid = limits[1].lid, .src_path_bits = LIDS, .port_num = 1};
	assert_int_equal(hdl_ah_create(ends[0].pd, &way, &ah), -HDL_EINVAL);
	hdl_qp_destroy(by);
	hdl_qp_destroy(at);
}

/* A connection to any of them, and one's own. */
static void test_connections(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct end *a = &ends[0], *b = &ends[1];
		struct hdl_qp_attr attr;
		a->mine.path_bits = 2;
		a->peer = b->mine;
		b->peer = a->mine;
		a->peer.lid = (uint16_t)(limits[1].lid + LIDS - 1);
		b->peer.lid = (uint16_t)(limits[0].lid + 1);
		end_connect(a);
		end_connect(b);
		MUST(hdl_qp_query(a->qp, &attr, NULL));
		assert_int_equal(attr.ah.src_path_bits, 2);
		assert_int_equal(attr.ah.dlid, limits[1].lid + LIDS - 1);
		memset(a->room, 'x', BYTES);
		end_must(a, HDL_OP_WRITE, BYTES);
		assert_int_equal(b->room[0], 'x');
		b->room[0] = 0;
		struct hdl_qp_attr reset = {.state = HDL_QPS_RESET};
		MUST(hdl_qp_modify(a->qp, &reset, HDL_QP_STATE));
		MUST(hdl_qp_modify(b->qp, &reset, HDL_QP_STATE));
	}
}

static void connect_and_write(struct end *a, struct end *b, char what)
{
	struct hdl_qp_attr reset = {.state = HDL_QPS_RESET};
	end_connect(a);
	end_connect(b);
	memset(a->room, what, BYTES);
	end_must(a, HDL_OP_WRITE, BYTES);
	assert_int_equal(b->room[0], what);
	assert_int_equal(b->room[BYTES - 1], what);
	MUST(hdl_qp_modify(a->qp, &reset, HDL_QP_STATE));
	MUST(hdl_qp_modify(b->qp, &reset, HDL_QP_STATE));
}

/* LIDs and GIDs need not correspond: the node has eight of the ones, and another number of the
 * others, and is reached by each. */
static void sn4_every_address_leads_to_the_node(void **state)
{
	(void)state;
	struct end *a = &ends[0], *b = &ends[1];
	struct hdl_gid gid;
	a->peer = b->mine;
	b->peer = a->mine;
	a->mine.path_bits = 0;
	a->peer.lid = b->peer.lid = 0;
	assert_in_range(limits[1].gid_count, 3, LIDS - 1);
	connect_and_write(a, b, 0);
	int shared = count_mappings("memfd:heddle");
	for (uint32_t i = 0; i < limits[1].gid_count; i++) {
		MUST(hdl_gid_query(b->adapter, i, &gid));
		a->peer.gid = gid;
		connect_and_write(a, b, (char)('a' + i));
	}
	for (unsigned i = 0; i < LIDS; i++) {
		a->peer.lid = (uint16_t)(limits[1].lid + i);
		connect_and_write(a, b, (char)('A' + i));
	}
	/* By whichever it was asked for, it is the same peer. */
	assert_int_equal(count_mappings("memfd:heddle"), shared);
}

/* The first program of a node decides; and no LID is two nodes'. */
static void test_one_number_a_node(void **state)
{
	(void)state;
	struct hdl_adapter *adapter;
	struct hdl_open_attr attr = {.on_node = true, .node = names[0]};
	struct hdl_limits again;
	setenv("HEDDLE_LMC", "2", 1);
	assert_int_equal(hdl_open(&attr, &adapter), -HDL_EIO);
	setenv("HEDDLE_LMC", "8", 1);
	assert_int_equal(hdl_open(&attr, &adapter), -HDL_EINVAL);
	unsetenv("HEDDLE_LMC");
	MUST(hdl_open(&attr, &adapter));
	MUST(hdl_adapter_query(adapter, &again));
	assert_int_equal(again.lid, limits[0].lid);
	assert_int_equal(again.lmc, LMC);
	hdl_close(adapter);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(limits[i].lmc, LMC);
		assert_int_equal(limits[i].lid % LIDS, 0);
	}
	assert_int_not_equal(limits[0].lid, limits[1].lid);
}

static int begin(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		snprintf(names[i], sizeof(names[i]), "lids-%d-%u", (int)getpid(), i);
		open_end(&ends[i], names[i], "3");
		MUST(hdl_adapter_query(ends[i].adapter, &limits[i]));
	}
	return 0;
}

static int finish(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++)
		end_close(&ends[i]);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_datagrams),
	        cmocka_unit_test(test_connections),
	        cmocka_unit_test(sn4_every_address_leads_to_the_node),
	        cmocka_unit_test(test_one_number_a_node),
	};
	return cmocka_run_group_tests(tests, begin, finish);
}
