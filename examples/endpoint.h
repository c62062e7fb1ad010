/* What every example needs before it can send anything: an adapter with registered memory, a
 * completion queue and a queue pair that is connected to another one. */
#ifndef EXAMPLES_ENDPOINT_H
#define EXAMPLES_ENDPOINT_H

#include <heddle/heddle.h>
#include <stdio.h>
#include <stdlib.h>

struct endpoint {
	struct hdl_adapter *adapter;
	struct hdl_pd *pd;
	struct hdl_channel *channel; /* events of the completion queue, for those that sleep */
	struct hdl_cq *cq;
	struct hdl_mr *mr;
	struct hdl_qp *qp;
	char memory[64];
};

/* What the other side must know to connect to an endpoint and to write to its memory. */
struct address {
	struct hdl_gid gid;
	uint32_t qpn;
	struct hdl_key key;
	uint64_t memory;
};

static inline void must(int result)
{
	if (result >= 0)
		return;
	fprintf(stderr, "%s\n", hdl_strerror(result));
	exit(1);
}

/* @on_node: other processes of this user can reach the adapter. */
static inline void endpoint_open(struct endpoint *e, bool on_node)
{
	struct hdl_open_attr attr = {.on_node = on_node};
	must(hdl_open(&attr, &e->adapter));
	must(hdl_pd_create(e->adapter, &e->pd));
	must(hdl_mr_register(
	        e->pd, e->memory, sizeof(e->memory),
	        HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE | HDL_ACCESS_REMOTE_WRITE, &e->mr));
	must(hdl_channel_create(e->adapter, &e->channel));
	must(hdl_cq_create(e->adapter, 16, e->channel, NULL, &e->cq));
	struct hdl_qp_init_attr init = {
	        .type = HDL_QP_RC, .send_cq = e->cq, .recv_cq = e->cq, .cap = {4, 4, 1, 1, 0}};
	must(hdl_qp_create(e->pd, &init, &e->qp));
}

static inline struct address endpoint_address(const struct endpoint *e)
{
	struct hdl_limits limits;
	must(hdl_adapter_query(e->adapter, &limits));
	return (struct address){.gid = limits.gid,
	                        .qpn = hdl_qp_number(e->qp),
	                        .key = hdl_mr_key(e->mr),
	                        .memory = (uintptr_t)e->memory};
}

/* RESET to INIT, to ready-to-receive, to ready-to-send; each step has its own attributes. */
static inline void endpoint_connect(struct endpoint *e, const struct address *peer)
{
	static const uint32_t steps[][2] = {
	        {HDL_QPS_INIT, HDL_QP_PKEY_INDEX | HDL_QP_PORT | HDL_QP_ACCESS},
	        {HDL_QPS_RTR, HDL_QP_AV | HDL_QP_PATH_MTU | HDL_QP_DEST_QPN | HDL_QP_RQ_PSN |
	                              HDL_QP_MAX_DEST_RD_ATOMIC | HDL_QP_MIN_RNR_TIMER},
	        {HDL_QPS_RTS, HDL_QP_TIMEOUT | HDL_QP_RETRY_CNT | HDL_QP_RNR_RETRY | HDL_QP_SQ_PSN |
	                              HDL_QP_MAX_RD_ATOMIC}};
	struct hdl_qp_attr attr = {.port_num = 1,
	                           .access = HDL_ACCESS_REMOTE_WRITE,
	                           .ah = {.dgid = peer->gid, .is_global = true, .port_num = 1},
	                           .dest_qpn = peer->qpn,
	                           .path_mtu = 4096,
	                           .retry_cnt = 7,
	                           .rnr_retry = 7,
	                           .timeout = 14,
	                           .min_rnr_timer = 1,
	                           .max_rd_atomic = 1,
	                           .max_dest_rd_atomic = 1};
	for (int i = 0; i < 3; i++) {
		attr.state = steps[i][0];
		must(hdl_qp_modify(e->qp, &attr, HDL_QP_STATE | steps[i][1]));
	}
}

/* Poll until one request has completed. */
static inline void endpoint_wait(struct endpoint *e)
{
	struct hdl_wc wc;
	int count = 0;
	while (count == 0)
		must(count = hdl_cq_poll(e->cq, &wc, 1));
	if (wc.status != HDL_WC_SUCCESS) {
		fprintf(stderr, "%s\n", hdl_wc_status_str(wc.status));
		exit(1);
	}
}

#endif
