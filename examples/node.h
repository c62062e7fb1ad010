/* What every example needs before it can say something: an adapter with memory and a queue pair, connected to another. */
#ifndef EXAMPLES_NODE_H
#define EXAMPLES_NODE_H

#include <heddle/heddle.h>
#include <stdio.h>
#include <stdlib.h>

struct node {
	struct hdl_adapter *adapter;
	struct hdl_pd *pd;
	struct hdl_cq *cq;
	struct hdl_mr *mr;
	struct hdl_qp *qp;
	char memory[64];
};

static inline void must(int result)
{
	if (result >= 0)
		return;
	fprintf(stderr, "%s\n", hdl_strerror(result));
	exit(1);
}

static inline void node_open(struct node *node)
{
	must(hdl_open(NULL, &node->adapter));
	must(hdl_pd_create(node->adapter, &node->pd));
	must(hdl_mr_register(node->pd, node->memory, sizeof(node->memory),
	                     HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE |
	                             HDL_ACCESS_REMOTE_WRITE,
	                     &node->mr));
	must(hdl_cq_create(node->adapter, 16, NULL, NULL, &node->cq));
	struct hdl_qp_init_attr init = {.type = HDL_QP_RC,
	                                .send_cq = node->cq,
	                                .recv_cq = node->cq,
	                                .cap = {4, 4, 1, 1, 0}};
	must(hdl_qp_create(node->pd, &init, &node->qp));
}

/* RESET to INIT, to ready-to-receive, to ready-to-send; each step has its own attributes. */
static inline void node_connect(struct node *node, struct node *peer)
{
	static const uint32_t steps[][2] = {
	        {HDL_QPS_INIT, HDL_QP_PKEY_INDEX | HDL_QP_PORT | HDL_QP_ACCESS},
	        {HDL_QPS_RTR, HDL_QP_AV | HDL_QP_PATH_MTU | HDL_QP_DEST_QPN | HDL_QP_RQ_PSN |
	                              HDL_QP_MAX_DEST_RD_ATOMIC | HDL_QP_MIN_RNR_TIMER},
	        {HDL_QPS_RTS, HDL_QP_TIMEOUT | HDL_QP_RETRY_CNT | HDL_QP_RNR_RETRY | HDL_QP_SQ_PSN |
	                              HDL_QP_MAX_RD_ATOMIC}};
	struct hdl_limits there;
	must(hdl_adapter_query(peer->adapter, &there));
	struct hdl_qp_attr attr = {.port_num = 1,
	                           .access = HDL_ACCESS_REMOTE_WRITE,
	                           .ah = {.dgid = there.gid, .is_global = true, .port_num = 1},
	                           .dest_qpn = hdl_qp_number(peer->qp),
	                           .path_mtu = 4096,
	                           .retry_cnt = 7,
	                           .rnr_retry = 7,
	                           .timeout = 14,
	                           .min_rnr_timer = 1,
	                           .max_rd_atomic = 1,
	                           .max_dest_rd_atomic = 1};
	for (int i = 0; i < 3; i++) {
		attr.state = steps[i][0];
		must(hdl_qp_modify(node->qp, &attr, HDL_QP_STATE | steps[i][1]));
	}
}

static inline void node_wait(struct node *node)
{
	struct hdl_wc wc;
	int count = 0;
	while (count == 0)
		must(count = hdl_cq_poll(node->cq, &wc, 1));
	if (wc.status != HDL_WC_SUCCESS) {
		fprintf(stderr, "%s\n", hdl_wc_status_str(wc.status));
		exit(1);
	}
}

#endif
