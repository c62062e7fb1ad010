/* Traffic classes on a line that is slower than its senders (MISSION IP9, figure 3A): beside a
 * queue pair that fills the line with bulk data, an urgent one answers almost as quickly as on an
 * idle line. Line 0 is shaped at the end of the first, by a token bucket above the kernel's three
 * bands. The urgent messages have several packets, so that the line, not the processor, makes up
 * their round trip. The tail of the distribution is printed and not judged: on a machine that does
 * other things it tells of those (tests/sim/classes.c judges it, on virtual time). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <heddle/heddle.h>

#include "net.h"

#define MTU          1024u
#define URGENT_BYTES (16u << 10)
#define BULK_BYTES   (256u << 10)
#define BULK_DEPTH   8u
#define ROUNDS       200u
#define WARM_UP      20u
#define WAIT_S       40.0
#define BULK_S       0.5 /* how long bulk data has the line to itself before anything is measured */
#define PAUSE_S      3e-3 /* between round trips, so that there is bulk data */
#define LINE         "rate 100mbit burst 4500 limit 4mb"
#define URGENT_CLASS 0xb8u /* expedited forwarding (RFC 3246) */
#define BULK_CLASS   0x20u /* class selector 1 (RFC 4594: low-priority data) */
#define FACTOR       2.0   /* of the urgent class, loaded to unloaded */
#define ACCESS       0x1fu

enum { URGENT, BULK, KINDS };

struct end {
	struct hdl_adapter *adapter;
	struct hdl_pd *pd;
	struct hdl_cq *cq[KINDS];
	struct hdl_qp *qp[KINDS];
	struct hdl_mr *mr;
	uint8_t *memory;
	bool first;
	int talk;
	struct card {
		uint32_t qpn[KINDS];
		struct hdl_key key;
		uint64_t addr;
	} mine, peer;
	uint32_t bulk_posted, bulk_done;
};

static void open_end(struct end *end)
{
	struct hdl_open_attr attr = {.on_node = true};
	CHECK(hdl_open(&attr, &end->adapter) == 0);
	end->memory = calloc(1, BULK_BYTES + URGENT_BYTES);
	CHECK(end->memory != NULL && hdl_pd_create(end->adapter, &end->pd) == 0);
	CHECK(hdl_mr_register(end->pd, end->memory, BULK_BYTES + URGENT_BYTES, ACCESS, &end->mr) ==
	      0);
	for (int i = 0; i < KINDS; i++) {
		struct hdl_qp_init_attr init = {.type = HDL_QP_RC, .cap = {BULK_DEPTH, 1, 1, 1, 0}};
		CHECK(hdl_cq_create(end->adapter, 2 * BULK_DEPTH, NULL, NULL, &end->cq[i]) == 0);
		init.send_cq = init.recv_cq = end->cq[i];
		CHECK(hdl_qp_create(end->pd, &init, &end->qp[i]) == 0);
		end->mine.qpn[i] = hdl_qp_number(end->qp[i]);
	}
	end->mine.key = hdl_mr_key(end->mr);
	end->mine.addr = (uint64_t)(uintptr_t)end->memory;
	CHECK(net_exchange(end->talk, &end->mine, &end->peer, sizeof(end->mine)));
}

static void connect_one(struct end *end, int kind, uint8_t traffic_class)
{
	struct hdl_ah_attr ah = {
	        .port_num = 1, .is_global = true, .hop_limit = 64, .traffic_class = traffic_class};
	struct hdl_gid own, gid;
	net_gid(0, end->first, own.raw);
	while (hdl_gid_query(end->adapter, ah.sgid_index, &gid) == 0 && memcmp(&gid, &own, 16) != 0)
		ah.sgid_index++;
	net_gid(0, !end->first, ah.dgid.raw);
	struct hdl_qp_attr attr = {.state = HDL_QPS_INIT, .port_num = 1, .access = 0x1c};
	CHECK(hdl_qp_modify(end->qp[kind], &attr,
	                    HDL_QP_STATE | HDL_QP_PORT | HDL_QP_ACCESS | HDL_QP_PKEY_INDEX) == 0);
	attr = (struct hdl_qp_attr){.state = HDL_QPS_RTR,
	                            .path_mtu = MTU,
	                            .dest_qpn = end->peer.qpn[kind],
	                            .ah = ah,
	                            .max_dest_rd_atomic = 4,
	                            .min_rnr_timer = 1};
	CHECK(hdl_qp_modify(end->qp[kind], &attr,
	                    HDL_QP_STATE | HDL_QP_AV | HDL_QP_PATH_MTU | HDL_QP_DEST_QPN |
	                            HDL_QP_RQ_PSN | HDL_QP_MAX_DEST_RD_ATOMIC |
	                            HDL_QP_MIN_RNR_TIMER) == 0);
	attr = (struct hdl_qp_attr){.state = HDL_QPS_RTS,
	                            .timeout = 18,
	                            .retry_cnt = 7,
	                            .rnr_retry = 7,
	                            .max_rd_atomic = 4};
	CHECK(hdl_qp_modify(end->qp[kind], &attr,
	                    HDL_QP_STATE | HDL_QP_SQ_PSN | HDL_QP_TIMEOUT | HDL_QP_RETRY_CNT |
	                            HDL_QP_RNR_RETRY | HDL_QP_MAX_RD_ATOMIC) == 0);
}

static void post_write(struct end *end, int kind)
{
	uint32_t at = kind == BULK ? 0 : BULK_BYTES;
	struct hdl_sge piece = {(uint64_t)(uintptr_t)end->memory + at,
	                        kind == BULK ? BULK_BYTES : URGENT_BYTES, hdl_mr_key(end->mr)};
	struct hdl_send_wr wr = {.sg_list = &piece,
	                         .num_sge = 1,
	                         .opcode = HDL_OP_WRITE,
	                         .flags = HDL_SEND_SIGNALED,
	                         .u.rdma = {end->peer.addr + at, end->peer.key}};
	CHECK(hdl_post_send(end->qp[kind], &wr, NULL) == 0);
}

static uint32_t take(struct end *end, int kind)
{
	struct hdl_wc wc;
	int count = hdl_cq_poll(end->cq[kind], &wc, 1);
	CHECK(count >= 0 && (count == 0 || wc.status == HDL_WC_SUCCESS));
	return (uint32_t)count;
}

/* Keep the bulk queue full. */
static void feed(struct end *end)
{
	end->bulk_done += take(end, BULK);
	for (; end->bulk_posted - end->bulk_done < BULK_DEPTH; end->bulk_posted++)
		post_write(end, BULK);
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Round trips of the urgent queue pair, in seconds: @percentile of them took at most that. */
static double measure(struct end *end, bool loaded, const char *what, unsigned percentile)
{
	static double took[ROUNDS];
	uint32_t bulk = end->bulk_done;
	double start = net_now_s();
	for (uint32_t i = 0; i < WARM_UP + ROUNDS; i++) {
		double began = net_now_s();
		post_write(end, URGENT);
		while (take(end, URGENT) == 0) {
			CHECK(net_now_s() - began < WAIT_S);
			if (loaded)
				feed(end);
		}
		double ended = net_now_s();
		if (i >= WARM_UP)
			took[i - WARM_UP] = ended - began;
		while (loaded && net_now_s() < ended + PAUSE_S)
			feed(end);
	}
	double rate = (end->bulk_done - bulk) * (double)BULK_BYTES / (net_now_s() - start);
	qsort(took, ROUNDS, sizeof(took[0]), by_size);
	printf("%-28s median %6.0f us, p99 %6.0f us, bulk data %5.1f MB/s\n", what,
	       took[ROUNDS / 2] * 1e6, took[ROUNDS * 99 / 100] * 1e6, rate / 1e6);
	return took[ROUNDS * percentile / 100];
}

static void lead(struct end *end)
{
	double idle = measure(end, false, "urgent, an idle line", 50);
	for (double until = net_now_s() + BULK_S; net_now_s() < until;)
		feed(end);
	double loaded = measure(end, true, "urgent, beside bulk data", 10);
	while (end->bulk_done < end->bulk_posted)
		end->bulk_done += take(end, BULK);
	CHECK(loaded <= FACTOR * idle);
	CHECK(end->bulk_done > BULK_DEPTH);
}

int main(void)
{
	struct end end = {0};
	char byte = 0;
	setvbuf(stdout, NULL, _IOLBF, 0);
	end.first = net_begin(&end.talk);
	if (end.first && !net_shape(0, LINE)) {
		printf("skipped: this kernel shapes no line (tbf)\n");
		return NET_SKIP;
	}
	open_end(&end);
	connect_one(&end, URGENT, URGENT_CLASS);
	connect_one(&end, BULK, BULK_CLASS);
	CHECK(net_exchange(end.talk, &byte, &byte, 1));
	if (end.first)
		lead(&end);
	CHECK(net_exchange(end.talk, &byte, &byte, 1));
	for (int i = 0; i < KINDS; i++)
		CHECK(hdl_qp_destroy(end.qp[i]) == 0 && hdl_cq_destroy(end.cq[i]) == 0);
	CHECK(hdl_mr_deregister(end.mr) == 0 && hdl_pd_destroy(end.pd) == 0);
	CHECK(hdl_close(end.adapter) == 0);
	free(end.memory);
	return 0;
}
