/* An attacker who sends cells to the queue pairs of an adapter: requests, answers, read responses,
 * whole packets and torn ones. The input is a row of records, each a cell with plausible fields and
 * right checksums, or something that the application does meanwhile. Whatever comes: no crash, no
 * byte outside registered memory, and only cells leave. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <heddle/heddle.h>

#include "adapter/adapter.h"
#include "base/crc.h"
#include "cable/cable.h"
#include "wire/be.h"
#include "wire/cell.h"

#define REGION       8192u
#define EDGE         4096u
#define GUARD        0xA5u
#define PEER         0x000777u
#define PSN          0xfffff0u /* soon to wrap around */
#define RECORD_BYTES 10u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { VICTIM_RC, VICTIM_UC, VICTIM_UD, VICTIM_ACKED, VICTIMS };

struct victim {
	uint64_t now_ns;
	struct cable cable;
	struct hdl_adapter *adapter;
	struct hdl_gid own, peer;
	uint8_t mac[CELL_MAC_BYTES];
	struct hdl_pd *pd;
	struct hdl_cq *cq;
	struct hdl_mr *mr;
	struct hdl_ah *ah;
	struct hdl_qp *qp[VICTIMS];
	uint8_t *block, *memory;
	uint32_t psn[VICTIMS], sent[VICTIMS], number[VICTIMS];
};

static uint64_t victim_now(void *context)
{
	return ((struct victim *)context)->now_ns;
}

static void victim_out(void *context, const struct path *path, const uint8_t *payload, size_t bytes)
{
	struct victim *victim = context;
	struct cell cell;
	(void)path;
	enum cell_verdict verdict = cell_decode(&cell, payload, bytes);
	assert(verdict == CELL_OK);
	for (int i = 0; i < VICTIMS; i++)
		if (victim->qp[i] != NULL && cell.source_qp == hdl_qp_number(victim->qp[i]) &&
		    cell.operation <= CELL_READ_REQUEST)
			victim->sent[i] = cell.psn;
}

static void victim_connect(struct victim *victim, int which)
{
	bool connected = which <= VICTIM_UC, reliable = which == VICTIM_RC;
	struct hdl_qp_attr a = {.state = HDL_QPS_RESET,
	                        .port_num = 1,
	                        .access = 0xc,
	                        .qkey = 1,
	                        .path_mtu = 256,
	                        .dest_qpn = PEER,
	                        .rq_psn = PSN,
	                        .sq_psn = PSN,
	                        .ah = {.dgid = victim->peer, .port_num = 1, .is_global = true},
	                        .max_rd_atomic = 2,
	                        .max_dest_rd_atomic = 2,
	                        .timeout = 4,
	                        .retry_cnt = 3,
	                        .rnr_retry = 3,
	                        .min_rnr_timer = 1};
	int bad = hdl_qp_modify(victim->qp[which], &a, HDL_QP_STATE);
	a.state = HDL_QPS_INIT;
	bad |= hdl_qp_modify(victim->qp[which], &a,
	                     HDL_QP_STATE | HDL_QP_PORT | HDL_QP_PKEY_INDEX |
	                             (connected ? HDL_QP_ACCESS : HDL_QP_QKEY));
	a.state = HDL_QPS_RTR;
	bad |= hdl_qp_modify(
	        victim->qp[which], &a,
	        HDL_QP_STATE |
	                (connected ? HDL_QP_AV | HDL_QP_PATH_MTU | HDL_QP_DEST_QPN | HDL_QP_RQ_PSN
	                           : 0u) |
	                (reliable ? HDL_QP_MAX_DEST_RD_ATOMIC | HDL_QP_MIN_RNR_TIMER : 0u));
	a.state = HDL_QPS_RTS;
	bad |= hdl_qp_modify(victim->qp[which], &a,
	                     HDL_QP_STATE | HDL_QP_SQ_PSN |
	                             (reliable ? HDL_QP_TIMEOUT | HDL_QP_RETRY_CNT |
	                                                 HDL_QP_RNR_RETRY | HDL_QP_MAX_RD_ATOMIC
	                                       : 0u));
	if (bad != 0)
		abort();
	victim->psn[which] = victim->sent[which] = PSN;
	victim->number[which] = 0;
}

static void victim_open(struct victim *victim)
{
	memset(victim, 0, sizeof(*victim));
	victim->own = (struct hdl_gid){{0xfe, 0x80, [15] = 1}};
	victim->peer = (struct hdl_gid){{0xfe, 0x80, [15] = 2}};
	struct hdl_open_attr attr = {
	        .max_mr = 64, .max_qp = 16, .no_thread = true, .gid = victim->own};
	struct adapter_env env = {.clock = {victim_now, victim},
	                          .seed = 1,
	                          .carrier = &victim->cable.carrier,
	                          .cells = true};
	cable_init(&victim->cable, victim_out, NULL, victim);
	victim->block = aligned_alloc(4096, REGION + 2 * EDGE);
	if (victim->block == NULL || adapter_open(&attr, &env, &victim->adapter) != 0)
		abort();
	memset(victim->block, GUARD, REGION + 2 * EDGE);
	victim->memory = victim->block + EDGE;
	cell_mac(victim->own.raw, victim->mac);
	int bad = hdl_pd_create(victim->adapter, &victim->pd);
	bad |= hdl_cq_create(victim->adapter, 4096, NULL, NULL, &victim->cq);
	bad |= hdl_mr_register(victim->pd, victim->memory, REGION, 0xf, &victim->mr);
	struct hdl_ah_attr ah = {.dgid = victim->peer, .port_num = 1, .is_global = true};
	bad |= hdl_ah_create(victim->pd, &ah, &victim->ah);
	for (int i = 0; i < VICTIMS; i++) {
		struct hdl_qp_init_attr init = {.type = i == VICTIM_RC   ? HDL_QP_RC
		                                        : i == VICTIM_UC ? HDL_QP_UC
		                                                         : HDL_QP_UD,
		                                .send_cq = victim->cq,
		                                .recv_cq = victim->cq,
		                                .acknowledged = i == VICTIM_ACKED,
		                                .cap = {8, 8, 2, 2, 32}};
		bad |= hdl_qp_create(victim->pd, &init, &victim->qp[i]);
	}
	if (bad != 0)
		abort();
	for (int i = 0; i < VICTIMS; i++)
		victim_connect(victim, i);
}

static void victim_close(struct victim *victim)
{
	for (uint32_t i = 0; i < EDGE; i++)
		assert(victim->block[i] == GUARD && victim->memory[REGION + i] == GUARD);
	int bad = hdl_ah_destroy(victim->ah);
	for (int i = 0; i < VICTIMS; i++)
		bad |= hdl_qp_destroy(victim->qp[i]);
	bad |= hdl_mr_deregister(victim->mr) | hdl_cq_destroy(victim->cq) |
	       hdl_pd_destroy(victim->pd) | hdl_close(victim->adapter);
	if (bad != 0)
		abort();
	free(victim->block);
}

/* A little ahead or behind. */
static uint32_t near(uint8_t code)
{
	int32_t distance = (int8_t)code;
	return (uint32_t)distance;
}

/* A cell as the record @in says, whose checksums are right. */
static size_t make_cell(const struct victim *victim, int which, const uint8_t *in, uint8_t *out)
{
	uint8_t operation = (uint8_t)(1 + in[1] % 5), flags = in[2] & 0x1f;
	bool first = (flags & CELL_FIRST) != 0, last = (flags & CELL_LAST) != 0;
	bool answers = operation == CELL_ANSWER || operation == CELL_READ_RESPONSE;
	uint32_t number = first ? 0 : victim->number[which] + near(in[4]);
	uint16_t data = operation == CELL_ANSWER         ? 4
	                : operation == CELL_READ_REQUEST ? 0
	                : last                           ? (uint16_t)(in[5] * 2 % 257)
	                                                 : 256;
	memcpy(out, victim->mac, 6);
	memset(out + 6, 2, 6);
	out[12] = (uint8_t)(CELL_VERSION << 4 | operation);
	out[13] = flags;
	be16_store(out + 14, data);
	be32_store(out + 16, hdl_qp_number(victim->qp[which]));
	be32_store(out + 20, PEER ^ (in[8] == 0xff));
	be32_store(out + 24,
	           ((answers ? victim->sent[which] : victim->psn[which]) + near(in[3])) & 0xffffff);
	be32_store(out + 28, number);
	uint8_t *at = out + CELL_HEADER_BYTES;
	if (first && (operation == CELL_WRITE || operation == CELL_READ_REQUEST)) {
		uint64_t addr = (uint64_t)(uintptr_t)victim->memory + in[6] * 36u;
		be64_store(at, in[7] & 1 ? 0 - (uint64_t)in[6] : addr);
		be32_store(at + 8, hdl_mr_key(victim->mr).v ^ (in[7] & 2));
		at += 12;
		if (operation == CELL_READ_REQUEST) {
			be32_store(at, in[5] * 40u);
			at += 4;
		}
	}
	memset(at, in[8], data);
	if (operation == CELL_ANSWER)
		be32_store(at, (uint32_t)(in[8] % 8) << 24 | in[9]);
	at += data;
	if (flags & CELL_IMMEDIATE)
		at += 4;
	if (last) {
		/* Right for a packet of one cell; longer ones are damaged, or have none. */
		uint32_t crc =
		        crc32c(0, out + CELL_HEADER_BYTES, (size_t)(at - out) - CELL_HEADER_BYTES);
		be32_store(at, crc);
		at += 4;
	}
	be32_store(at, crc32c(0, out, (size_t)(at - out)));
	return (size_t)(at - out) + 4;
}

static void take(struct victim *victim, int which, const uint8_t *in)
{
	uint8_t cell[CELL_MAX_BYTES + 16] = {0};
	struct path came = {.kind = PATH_CELL};
	memcpy(came.ip.sgid, victim->peer.raw, 16);
	memcpy(came.ip.dgid, victim->own.raw, 16);
	size_t bytes = make_cell(victim, which, in, cell);
	/* In an Ethernet frame, perhaps padded, perhaps from somebody else. */
	came.cell.framed = in[0] >> 7;
	memcpy(came.cell.to, victim->mac, 6);
	memset(came.cell.from, in[0] & 0x40 ? 3 : 2, 6);
	bytes += came.cell.framed ? in[0] >> 2 & 12 : 0;
	adapter_take(victim->adapter, &came, false, cell, bytes);
	bool last = (in[2] & CELL_LAST) != 0;
	victim->number[which] = last ? 0 : victim->number[which] + 1;
	victim->psn[which] = (victim->psn[which] + last) & 0xffffff;
}

/* A whole packet, cut as a peer would cut it. */
static void take_packet(struct victim *victim, int which, const uint8_t *in)
{
	static const uint8_t zeroes[2048];
	struct path came = {.kind = PATH_CELL};
	struct cell packet = {
	        .operation = in[1] & 1 ? CELL_SEND : CELL_WRITE,
	        .flags = which == VICTIM_RC || which == VICTIM_ACKED ? CELL_ACKNOWLEDGED : 0,
	        .dest_qp = hdl_qp_number(victim->qp[which]),
	        .source_qp = PEER,
	        .psn = victim->psn[which],
	        .address = (uint64_t)(uintptr_t)victim->memory + in[6] * 32u,
	        .handle = hdl_mr_key(victim->mr).v};
	struct cell_cutter cutter;
	uint8_t cell[CELL_MAX_BYTES];
	size_t bytes;
	memcpy(came.ip.sgid, victim->peer.raw, 16);
	memcpy(came.ip.dgid, victim->own.raw, 16);
	memcpy(packet.to, victim->mac, 6);
	cell_cut(&cutter, &packet, in[5] * 8u);
	for (unsigned i = 0; (bytes = cell_cut_next(&cutter, zeroes, cell)) > 0; i++)
		if (i != in[4]) /* all but one, perhaps */
			adapter_take(victim->adapter, &came, false, cell, bytes);
	victim->psn[which] = (victim->psn[which] + 1) & 0xffffff;
}

static void act(struct victim *victim, int which, const uint8_t *in)
{
	static const uint32_t opcodes[] = {HDL_OP_SEND, HDL_OP_WRITE_IMM, HDL_OP_READ,
	                                   HDL_OP_WRITE};
	uint32_t length = in[5] * (which >= VICTIM_UD ? 1u : 16u);
	struct hdl_sge piece = {(uint64_t)(uintptr_t)victim->memory, length,
	                        hdl_mr_key(victim->mr)};
	struct hdl_send_wr wr = {.sg_list = &piece,
	                         .num_sge = 1,
	                         .opcode = which >= VICTIM_UD ? HDL_OP_SEND : opcodes[in[1] & 3],
	                         .flags = HDL_SEND_SIGNALED};
	struct hdl_recv_wr receive = {.sg_list = &piece, .num_sge = 1};
	struct hdl_wc wc[8];
	switch (in[2] % 5) {
	case 0:
		if (which >= VICTIM_UD) {
			wr.u.ud.ah = victim->ah;
			wr.u.ud.qpn = PEER;
			wr.u.ud.qkey = 1;
		} else {
			wr.u.rdma.addr = 4096;
		}
		hdl_post_send(victim->qp[which], &wr, NULL);
		break;
	case 1:
		hdl_post_recv(victim->qp[which], &receive, NULL);
		break;
	case 2:
		hdl_cq_poll(victim->cq, wc, 8);
		break;
	case 3:
		victim->now_ns += in[6] * 20000u;
		hdl_progress(victim->adapter);
		break;
	default:
		victim_connect(victim, which);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct victim victim;
	victim_open(&victim);
	for (; size >= RECORD_BYTES; data += RECORD_BYTES, size -= RECORD_BYTES) {
		int which = data[0] & 3;
		switch (data[0] >> 2 & 3) {
		case 0:
			act(&victim, which, data);
			break;
		case 1:
			take_packet(&victim, which, data);
			break;
		default:
			take(&victim, which, data);
		}
		hdl_progress(victim.adapter);
	}
	victim_close(&victim);
	return 0;
}
