/* An adapter with four links, a thousand queue pairs and RDMA from outside (SN1; SAN figure 11):
 * two nodes on four addresses each. 250 connections go along each pair of addresses, and each
 * writes to memory of its own at the other end, over UDP. */
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

#define LINKS    4u
#define EACH     250u /* connections per link */
#define ALL      (LINKS * EACH)
#define BYTES    64u
#define DEADLINE 60000 /* ms */

struct side {
	struct hdl_adapter *adapter;
	struct hdl_pd *pd;
	struct hdl_cq *cq;
	struct hdl_mr *mr;
	struct hdl_qp *qps[ALL];
	struct hdl_gid gids[LINKS];
	uint8_t indexes[LINKS]; /* of these among the GIDs of the node */
	unsigned char *memory;  /* ALL pieces that are sent, then ALL that are written */
};

static void make_side(struct side *side, const char *name, unsigned network)
{
	char addresses[LINKS * 20] = "", node[32];
	size_t length = 0;
	struct hdl_limits limits;
	for (unsigned i = 0; i < LINKS; i++)
		length += (size_t)snprintf(addresses + length, sizeof(addresses) - length,
		                           "%s127.%u.%u.%u", i > 0 ? "," : "", network + i,
		                           (unsigned)getpid() >> 8 & 255, (unsigned)getpid() & 255);
	snprintf(node, sizeof(node), "%s-%d", name, (int)getpid());
	setenv("HEDDLE_ADDR", addresses, 1);
	setenv("HEDDLE_LOCAL", "off", 1);
	struct hdl_open_attr attr = {.on_node = true, .node = node};
	MUST(hdl_open(&attr, &side->adapter));
	MUST(hdl_adapter_query(side->adapter, &limits));
	assert_int_equal(__builtin_popcount(limits.wire_gids), LINKS);
	for (uint8_t i = 0, at = 0; i < limits.gid_count; i++)
		if (limits.wire_gids >> i & 1) {
			side->indexes[at] = i;
			MUST(hdl_gid_query(side->adapter, i, &side->gids[at]));
			assert_int_equal(side->gids[at].raw[13], network + at);
			at++;
		}
	side->memory = calloc(2 * ALL, BYTES);
	MUST(hdl_pd_create(side->adapter, &side->pd));
	MUST(hdl_cq_create(side->adapter, ALL, NULL, NULL, &side->cq));
	MUST(hdl_mr_register(side->pd, side->memory, (uint64_t)2 * ALL * BYTES,
	                     HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE |
	                             HDL_ACCESS_REMOTE_WRITE,
	                     &side->mr));
	for (unsigned i = 0; i < ALL; i++) {
		struct hdl_qp_init_attr init = {.type = HDL_QP_RC,
		                                .send_cq = side->cq,
		                                .recv_cq = side->cq,
		                                .cap = {1, 1, 1, 1, 0}};
		struct hdl_qp_attr qp = {
		        .state = HDL_QPS_INIT, .port_num = 1, .access = HDL_ACCESS_REMOTE_WRITE};
		MUST(hdl_qp_create(side->pd, &init, &side->qps[i]));
		MUST(hdl_qp_modify(side->qps[i], &qp,
		                   HDL_QP_STATE | HDL_QP_PORT | HDL_QP_ACCESS | HDL_QP_PKEY_INDEX));
	}
}

/* A packet that does not come from the address of its link is not taken. */
static void connect_one(const struct side *side, const struct side *other, unsigned i)
{
	unsigned link = i % LINKS;
	struct hdl_qp_attr attr = {.state = HDL_QPS_RTR,
	                           .path_mtu = 1024,
	                           .dest_qpn = hdl_qp_number(other->qps[i]),
	                           .ah = {.dgid = other->gids[link],
	                                  .sgid_index = side->indexes[link],
	                                  .is_global = true,
	                                  .port_num = 1},
	                           .max_dest_rd_atomic = 1,
	                           .min_rnr_timer = 1};
	MUST(hdl_qp_modify(side->qps[i], &attr,
	                   HDL_QP_STATE | HDL_QP_AV | HDL_QP_PATH_MTU | HDL_QP_DEST_QPN |
	                           HDL_QP_RQ_PSN | HDL_QP_MAX_DEST_RD_ATOMIC |
	                           HDL_QP_MIN_RNR_TIMER));
	attr = (struct hdl_qp_attr){.state = HDL_QPS_RTS,
	                            .timeout = 16,
	                            .retry_cnt = 7,
	                            .rnr_retry = 7,
	                            .max_rd_atomic = 1};
	MUST(hdl_qp_modify(side->qps[i], &attr,
	                   HDL_QP_STATE | HDL_QP_SQ_PSN | HDL_QP_TIMEOUT | HDL_QP_RETRY_CNT |
	                           HDL_QP_RNR_RETRY | HDL_QP_MAX_RD_ATOMIC));
}

static void write_all(struct side *side, const struct side *other, unsigned seed)
{
	for (unsigned i = 0; i < ALL; i++) {
		unsigned char *from = side->memory + (size_t)i * BYTES;
		memset(from, (int)(i * 7 + seed), BYTES);
		memcpy(from, &i, sizeof(i));
		struct hdl_sge piece = {(uintptr_t)from, BYTES, hdl_mr_key(side->mr)};
		struct hdl_send_wr wr = {
		        .wr_id = i,
		        .sg_list = &piece,
		        .num_sge = 1,
		        .opcode = HDL_OP_WRITE,
		        .flags = HDL_SEND_SIGNALED,
		        .u.rdma = {(uintptr_t)(other->memory + (size_t)(ALL + i) * BYTES),
		                   hdl_mr_key(other->mr)}};
		MUST(hdl_post_send(side->qps[i], &wr, NULL));
	}
	double until = now_ms() + DEADLINE;
	for (unsigned done = 0; done < ALL;) {
		struct hdl_wc wc;
		int count = hdl_cq_poll(side->cq, &wc, 1);
		assert_true(count >= 0 && now_ms() < until);
		if (count == 0)
			continue;
		assert_int_equal(wc.status, HDL_WC_SUCCESS);
		done++;
	}
	for (unsigned i = 0; i < ALL; i++)
		assert_memory_equal(other->memory + (size_t)(ALL + i) * BYTES,
		                    side->memory + (size_t)i * BYTES, BYTES);
}

static void end_side(struct side *side)
{
	for (unsigned i = 0; i < ALL; i++)
		MUST(hdl_qp_destroy(side->qps[i]));
	MUST(hdl_mr_deregister(side->mr));
	MUST(hdl_cq_destroy(side->cq));
	MUST(hdl_pd_destroy(side->pd));
	MUST(hdl_close(side->adapter));
	free(side->memory);
}

static void sn1_four_links_a_thousand_queue_pairs(void **state)
{
	(void)state;
	static struct side a, b;
	make_side(&a, "links-a", 90);
	make_side(&b, "links-b", 100);
	for (unsigned i = 0; i < ALL; i++) {
		connect_one(&a, &b, i);
		connect_one(&b, &a, i);
	}
	write_all(&a, &b, 1);
	write_all(&b, &a, 2);
	end_side(&a);
	end_side(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(sn1_four_links_a_thousand_queue_pairs),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
