/* Thousands of connected queue pairs in one process: what each costs in memory and setup time, and
 * whether one busy pair is slowed down by the others. Prints one line per figure: what, median,
 * minimum, maximum, unit. */
#include <heddle/heddle.h>
#include <stdio.h>

#include "base/clock.h"
#include "figures.h"
#include "must.h"

#define MANY     10000u
#define DEPTH    16u
#define ROUNDS   15
#define MESSAGES 20000u

static struct hdl_adapter *adapter;
static struct hdl_pd *pd;
static struct hdl_cq *cq;
static struct hdl_mr *mr;
static struct hdl_gid gid;
static unsigned char memory[8192];
static struct hdl_qp *qps[MANY];
static double alone[ROUNDS], among[ROUNDS];

static void make(uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < to; i++) {
		struct hdl_qp_init_attr init = {.type = HDL_QP_RC,
		                                .send_cq = cq,
		                                .recv_cq = cq,
		                                .cap = {.max_send_wr = DEPTH,
		                                        .max_recv_wr = DEPTH,
		                                        .max_send_sge = 1,
		                                        .max_recv_sge = 1}};
		must(hdl_qp_create(pd, &init, &qps[i]), "hdl_qp_create");
	}
	for (uint32_t i = from; i < to; i++) {
		struct hdl_qp_attr attr = {.state = HDL_QPS_INIT,
		                           .port_num = 1,
		                           .ah = {.dgid = gid, .port_num = 1},
		                           .dest_qpn = hdl_qp_number(qps[i ^ 1]),
		                           .path_mtu = 1024,
		                           .timeout = 14,
		                           .retry_cnt = 7,
		                           .rnr_retry = 7,
		                           .max_rd_atomic = 1,
		                           .max_dest_rd_atomic = 1};
		must(hdl_qp_modify(qps[i], &attr,
		                   HDL_QP_STATE | HDL_QP_PORT | HDL_QP_PKEY_INDEX | HDL_QP_ACCESS),
		     "to INIT");
		attr.state = HDL_QPS_RTR;
		must(hdl_qp_modify(qps[i], &attr,
		                   HDL_QP_STATE | HDL_QP_AV | HDL_QP_PATH_MTU | HDL_QP_DEST_QPN |
		                           HDL_QP_RQ_PSN | HDL_QP_MAX_DEST_RD_ATOMIC |
		                           HDL_QP_MIN_RNR_TIMER),
		     "to RTR");
		attr.state = HDL_QPS_RTS;
		must(hdl_qp_modify(qps[i], &attr,
		                   HDL_QP_STATE | HDL_QP_TIMEOUT | HDL_QP_RETRY_CNT |
		                           HDL_QP_RNR_RETRY | HDL_QP_SQ_PSN | HDL_QP_MAX_RD_ATOMIC),
		     "to RTS");
	}
}

/* One message from queue pair @from to its peer, and both completions. */
static void message(uint32_t from)
{
	struct hdl_sge out = {(uint64_t)(uintptr_t)memory, 8, hdl_mr_key(mr)};
	struct hdl_sge in = {(uint64_t)(uintptr_t)memory + 4096, 8, hdl_mr_key(mr)};
	struct hdl_recv_wr recv = {.sg_list = &in, .num_sge = 1};
	struct hdl_send_wr send = {
	        .sg_list = &out, .num_sge = 1, .opcode = HDL_OP_SEND, .flags = HDL_SEND_SIGNALED};
	struct hdl_wc wc[2];
	must(hdl_post_recv(qps[from ^ 1], &recv, NULL), "hdl_post_recv");
	must(hdl_post_send(qps[from], &send, NULL), "hdl_post_send");
	for (int done = 0, got; done < 2; done += got) {
		got = hdl_cq_poll(cq, wc, 2);
		must(got < 0 ? got : 0, "hdl_cq_poll");
	}
}

static void measure(double *values)
{
	for (int r = 0; r < ROUNDS; r++) {
		uint64_t begin = clock_now_ns();
		for (uint32_t i = 0; i < MESSAGES; i++)
			message(0);
		values[r] = (double)(clock_now_ns() - begin) / MESSAGES;
	}
}

int main(void)
{
	struct hdl_open_attr attr = {.name = "queue-pairs"};
	struct hdl_limits limits;
	must(hdl_open(&attr, &adapter), "hdl_open");
	must(hdl_adapter_query(adapter, &limits), "hdl_adapter_query");
	gid = limits.gid;
	must(hdl_pd_create(adapter, &pd), "hdl_pd_create");
	must(hdl_cq_create(adapter, 1024, NULL, NULL, &cq), "hdl_cq_create");
	must(hdl_mr_register(pd, memory, sizeof(memory),
	                     HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE, &mr),
	     "hdl_mr_register");
	make(0, 2);
	measure(alone);
	long before = figures_resident_kib();
	uint64_t begin = clock_now_ns();
	make(2, MANY);
	double make_us = (double)(clock_now_ns() - begin) / 1000 / (MANY - 2);
	for (uint32_t i = 2; i < MANY; i += 2)
		message(i);
	double each = (double)(figures_resident_kib() - before) / (MANY - 2);
	measure(among);
	printf("memory per queue pair, %u of them, used once\t%.2f\t%.2f\t%.2f\tKiB\n", MANY, each,
	       each, each);
	printf("time to create and connect one\t%.2f\t%.2f\t%.2f\tus\n", make_us, make_us, make_us);
	figures_report("a message, one pair in the process", alone, ROUNDS, "ns");
	figures_report("a message, one busy pair among them", among, ROUNDS, "ns");
	printf("ratio\t%.3f\t%.3f\t%.3f\t\n", among[ROUNDS / 2] / alone[ROUNDS / 2],
	       among[0] / alone[0], among[ROUNDS - 1] / alone[ROUNDS - 1]);
	for (uint32_t i = 0; i < MANY; i++)
		must(hdl_qp_destroy(qps[i]), "hdl_qp_destroy");
	must(hdl_mr_deregister(mr), "hdl_mr_deregister");
	must(hdl_cq_destroy(cq), "hdl_cq_destroy");
	must(hdl_pd_destroy(pd), "hdl_pd_destroy");
	must(hdl_close(adapter), "hdl_close");
	return 0;
}
