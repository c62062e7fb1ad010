/* A hostile peer on the same-host path: it writes what it likes into its lane. The input is a row
 * of records; each names a queue pair and a few header fields, so that the fuzzer gets past the
 * first checks, or is taken raw. Whatever comes, the other side must not crash, must not touch
 * memory outside what it granted, and must still answer its owner. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/adapter.h"
#include "transport/local/frame.h"

#define REGION 4096u
#define EDGE   64u

struct end {
	struct hdl_adapter *adapter;
	struct hdl_pd *pd;
	struct hdl_cq *cq;
	struct hdl_mr *mr;
	struct hdl_mw *mw;
	struct hdl_qp *qp[5]; /* RC, UC, UD, and the two ends of XRC */
	struct hdl_xrcd *xrcd;
	struct hdl_srq *srq[2];
	unsigned char *memory; /* EDGE, REGION, EDGE */
};

static uint64_t fixed_time(void *context)
{
	uint64_t *now = context;
	return *now += 100000;
}

static uint64_t now_ns;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void open_end(struct end *end, uint64_t seed, bool by_value)
{
	struct hdl_open_attr attr = {.max_mr = 64, .max_qp = 16, .no_thread = true};
	struct adapter_env env = {
	        .clock = {fixed_time, &now_ns}, .seed = seed, .by_value = by_value};
	int bad = adapter_open(&attr, &env, &end->adapter);
	bad |= hdl_pd_create(end->adapter, &end->pd);
	bad |= hdl_cq_create(end->adapter, 64, NULL, NULL, &end->cq);
	end->memory = aligned_alloc(64, REGION + 2 * EDGE);
	memset(end->memory, 0xA5, REGION + 2 * EDGE);
	bad |= hdl_mr_register(end->pd, end->memory + EDGE, REGION, 0x3f, &end->mr);
	bad |= hdl_mw_alloc(end->pd, HDL_MW_TYPE_1, &end->mw);
	struct hdl_bind bind = {.mr = end->mr,
	                        .addr = (uint64_t)(uintptr_t)end->memory + EDGE,
	                        .length = 100,
	                        .access = HDL_ACCESS_REMOTE_WRITE | HDL_ACCESS_ONE_TOUCH};
	bad |= hdl_mw_bind(end->mw, &bind, NULL);
	bad |= hdl_xrcd_open(end->adapter, &end->xrcd);
	for (uint32_t i = 0; i < 2; i++) {
		struct hdl_srq_attr limits = {.max_wr = 4, .max_sge = 2};
		bad |= hdl_srq_create_xrc(end->pd, end->xrcd, end->cq, &limits, NULL, &end->srq[i]);
	}
	for (uint32_t i = 0; i < 5; i++) {
		struct hdl_qp_init_attr init = {.type = HDL_QP_RC + i,
		                                .send_cq = end->cq,
		                                .recv_cq = end->cq,
		                                .xrcd = end->xrcd,
		                                .cap = {4, 4, 2, 2, 32}};
		bad |= hdl_qp_create(init.type == HDL_QP_XRC_TGT ? NULL : end->pd, &init,
		                     &end->qp[i]);
	}
	if (bad)
		abort();
}

/* The place among a peer's of the queue pair that number @i talks to. */
static int other_end(int i)
{
	return i < 3 ? i : 7 - i;
}

static void connect_end(struct end *end, const struct end *peer)
{
	for (int i = 0; i < 5; i++) {
		struct hdl_qp_attr a = {.state = HDL_QPS_INIT,
		                        .port_num = 1,
		                        .access = 0x1c,
		                        .qkey = 0x11,
		                        .path_mtu = 1024,
		                        .dest_qpn = hdl_qp_number(peer->qp[other_end(i)]),
		                        .ah = {.dgid = peer->adapter->engine.gid, .port_num = 1},
		                        .max_rd_atomic = 2,
		                        .max_dest_rd_atomic = 2,
		                        .timeout = 10,
		                        .retry_cnt = 2,
		                        .rnr_retry = 2};
		uint32_t requests = i == 0 || i == 3 ? UINT32_MAX : 0;
		uint32_t responds = i == 0 || i == 4 ? UINT32_MAX : 0;
		uint32_t connected = i != 2 ? UINT32_MAX : 0;
		int bad = hdl_qp_modify(end->qp[i], &a,
		                        HDL_QP_STATE | HDL_QP_PORT | HDL_QP_PKEY_INDEX |
		                                (i != 2 ? HDL_QP_ACCESS : HDL_QP_QKEY));
		a.state = HDL_QPS_RTR;
		bad |= hdl_qp_modify(
		        end->qp[i], &a,
		        HDL_QP_STATE |
		                (connected &
		                 (HDL_QP_AV | HDL_QP_PATH_MTU | HDL_QP_DEST_QPN | HDL_QP_RQ_PSN)) |
		                (responds & (HDL_QP_MAX_DEST_RD_ATOMIC | HDL_QP_MIN_RNR_TIMER)));
		a.state = HDL_QPS_RTS;
		bad |= hdl_qp_modify(end->qp[i], &a,
		                     HDL_QP_STATE | HDL_QP_SQ_PSN |
		                             ((requests | responds) & HDL_QP_TIMEOUT) |
		                             (requests & (HDL_QP_RETRY_CNT | HDL_QP_RNR_RETRY |
		                                          HDL_QP_MAX_RD_ATOMIC)));
		struct hdl_sge piece = {(uint64_t)(uintptr_t)end->memory + EDGE + 1024, 512,
		                        hdl_mr_key(end->mr)};
		struct hdl_recv_wr recv = {.sg_list = &piece, .num_sge = 1};
		for (int n = 0; n < 2; n++)
			bad |= i < 3 ? hdl_post_recv(end->qp[i], &recv, NULL)
			             : hdl_srq_post(end->srq[n], &recv, NULL);
		if (bad)
			abort();
	}
	/* Something that waits for answers. */
	struct hdl_sge piece = {(uint64_t)(uintptr_t)end->memory + EDGE, 8, hdl_mr_key(end->mr)};
	struct hdl_send_wr send = {.sg_list = &piece, .num_sge = 1, .opcode = HDL_OP_SEND};
	hdl_post_send(end->qp[0], &send, NULL);
	struct hdl_send_wr read = {
	        .sg_list = &piece,
	        .num_sge = 1,
	        .opcode = HDL_OP_READ,
	        .u.rdma = {(uint64_t)(uintptr_t)peer->memory + EDGE, hdl_mr_key(peer->mr)}};
	hdl_post_send(end->qp[0], &read, NULL);
}

/* One record of the input into the lane of @from. Returns how many bytes it took. */
static size_t put_record(struct end *from, const struct end *to, const uint8_t *in, size_t size)
{
	struct link *link = &from->adapter->peers.links[1];
	if (size < 10)
		return size;
	size_t bytes = in[9], used = 10 + (bytes < size - 10 ? bytes : size - 10);
	bytes = used - 10;
	bool raw = in[0] == 0xff;
	unsigned char *out = ring_reserve(&link->tx, raw ? used : sizeof(struct frame) + bytes);
	if (out == NULL)
		return used;
	if (raw) {
		memcpy(out, in, used);
	} else {
		int which = in[3] < 192 ? in[3] % 3 : 3 + in[3] % 2;
		struct frame frame = {.kind = in[0] % (FRAME_KIND_COUNT + 1),
		                      .flags = in[1],
		                      .num_sge = in[2],
		                      .to_qpn = hdl_qp_number(to->qp[other_end(which)]),
		                      .from_qpn = hdl_qp_number(from->qp[which]),
		                      .msn = (uint32_t)(int8_t)in[4],
		                      .length = in[5] == 0xff ? (uint32_t)bytes : in[5] * 257u,
		                      .imm = in[6],
		                      .ack = (uint32_t)(int8_t)in[6],
		                      .offset = in[8] & 0x80 ? in[2] * 8u : 0};
		if (which == 3 && in[6] < 192)
			frame.ack = hdl_srq_number(to->srq[in[6] % 2]);
		memcpy(out, &frame, sizeof(frame));
		memcpy(out + sizeof(frame), in + 10, bytes);
		/* A key and an address that lead somewhere, where a body has them. */
		if (in[7] & 1 && bytes >= sizeof(struct frame_target)) {
			struct frame_target target = {
			        .addr = (uint64_t)(uintptr_t)to->memory + EDGE + in[8] * 17u,
			        .key = in[7] & 2 ? hdl_mw_key(to->mw) : hdl_mr_key(to->mr)};
			memcpy(out + sizeof(frame), &target, sizeof(target));
		}
	}
	ring_publish(&link->tx);
	return used;
}

static void close_end(struct end *end)
{
	bool intact = true;
	for (unsigned i = 0; i < EDGE; i++)
		intact = intact && end->memory[i] == 0xA5 && end->memory[EDGE + REGION + i] == 0xA5;
	assert(intact);
	int bad = 0;
	for (int i = 0; i < 5; i++)
		bad |= hdl_qp_destroy(end->qp[i]);
	bad |= hdl_srq_destroy(end->srq[0]) | hdl_srq_destroy(end->srq[1]);
	bad |= hdl_xrcd_close(end->xrcd);
	bad |= hdl_mw_free(end->mw) | hdl_mr_deregister(end->mr) | hdl_cq_destroy(end->cq);
	bad |= hdl_pd_destroy(end->pd);
	assert(bad == 0);
	bad = hdl_close(end->adapter);
	assert(bad == 0);
	free(end->memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct end hostile, victim;
	struct hdl_wc wc[16];
	now_ns = 0;
	bool by_value = size > 0 && (data[0] & 1) != 0;
	open_end(&hostile, 1, by_value);
	open_end(&victim, 2, by_value);
	if (hdl_join(hostile.adapter, victim.adapter) != 0)
		abort();
	connect_end(&hostile, &victim);
	connect_end(&victim, &hostile);
	for (size_t at = 0; at < size;) {
		at += put_record(&hostile, &victim, data + at, size - at);
		hdl_progress(victim.adapter);
	}
	for (int i = 0; i < 20; i++) {
		hdl_progress(victim.adapter);
		hdl_progress(hostile.adapter);
	}
	while (hdl_cq_poll(victim.cq, wc, 16) > 0)
		;
	close_end(&victim);
	close_end(&hostile);
	return 0;
}
