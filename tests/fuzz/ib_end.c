/* The victim of the packet fuzzers. See ib_end.h. */
#include "ib_end.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static uint64_t now(void *context)
{
	return ((struct end *)context)->now_ns;
}

static void out(void *context, const struct path *path, const uint8_t *payload, size_t bytes)
{
	struct end *end = context;
	struct roce_path ip = path->ip;
	struct ib_packet packet;
	end->packets_out++;
	/* What leaves is well-formed, whatever came. */
	enum ib_verdict verdict = roce_udp_decode(&ip, &packet, payload, bytes);
	assert(verdict == IB_OK);
	if (packet.op->role != IB_REQUEST)
		return;
	int which = packet.op->transport == IB_RC   ? END_RC
	            : packet.op->transport == IB_UC ? END_UC
	            : packet.op->transport == IB_UD ? END_UD
	            : packet.op->transport == IB_RD ? END_RD
	                                            : END_INI;
	end->last_psn[which] = packet.bth.psn;
}

static bool room(void *context)
{
	return !((struct end *)context)->full;
}

uint64_t end_address(const struct end *end, uint32_t offset)
{
	return (uint64_t)(uintptr_t)end->memory + offset;
}

static int make_objects(struct end *end)
{
	int bad = hdl_pd_create(end->adapter, &end->pd);
	bad |= hdl_cq_create(end->adapter, 4096, NULL, NULL, &end->cq);
	bad |= hdl_mr_register(end->pd, end->memory, END_REGION, 0x3f, &end->mr);
	bad |= hdl_mw_alloc(end->pd, HDL_MW_TYPE_1, &end->mw);
	struct hdl_bind bind = {.mr = end->mr,
	                        .addr = end_address(end, 0),
	                        .length = 600,
	                        .access = HDL_ACCESS_REMOTE_WRITE | HDL_ACCESS_ONE_TOUCH};
	bad |= hdl_mw_bind(end->mw, &bind, &end->window);
	bad |= hdl_xrcd_open(end->adapter, &end->xrcd);
	struct hdl_srq_attr limits = {.max_wr = 8, .max_sge = 2};
	bad |= hdl_rdd_open(end->adapter, &end->rdd) || hdl_eec_create(end->rdd, &end->eec);
	bad |= hdl_srq_create_xrc(end->pd, end->xrcd, end->cq, &limits, NULL, &end->srq);
	for (uint32_t i = 0; i < END_QPS; i++) {
		struct hdl_qp_init_attr init = {.type = HDL_QP_RC + i,
		                                .send_cq = end->cq,
		                                .recv_cq = end->cq,
		                                .xrcd = end->xrcd,
		                                .rdd = end->rdd,
		                                .cap = {8, 8, 2, 2, 32}};
		bad |= hdl_qp_create(init.type == HDL_QP_XRC_TGT ? NULL : end->pd, &init,
		                     &end->qp[i]);
	}
	return bad;
}

void end_open(struct end *end)
{
	memset(end, 0, sizeof(*end));
	end->own = (struct hdl_gid){{0xfe, 0x80, [15] = 1}};
	end->peer = (struct hdl_gid){{0xfe, 0x80, [15] = 2}};
	struct hdl_open_attr attr = {
	        .max_mr = 64, .max_qp = 16, .no_thread = true, .gid = end->own};
	struct adapter_env env = {.clock = {now, end}, .seed = 1, .carrier = &end->cable.carrier};
	cable_init(&end->cable, out, room, end);
	end->block = aligned_alloc(4096, END_REGION + 2 * END_EDGE);
	if (end->block == NULL || adapter_open(&attr, &env, &end->adapter) != 0)
		abort();
	memset(end->block, END_GUARD, END_REGION + 2 * END_EDGE);
	end->memory = end->block + END_EDGE;
	if (make_objects(end) != 0)
		abort();
	for (int i = 0; i < END_QPS; i++)
		end_connect(end, i);
}

/* A reliable datagram queue pair needs no way; its context does, and what is under way in it ends.
 */
static void connect_context(struct end *end, struct hdl_qp_attr *a)
{
	int bad = 0;
	a->max_rd_atomic = a->max_dest_rd_atomic = 1;
	a->state = HDL_QPS_RESET;
	bad |= hdl_eec_modify(end->eec, a, HDL_QP_STATE);
	a->state = HDL_QPS_INIT;
	bad |= hdl_eec_modify(end->eec, a, HDL_QP_STATE | HDL_QP_PORT | HDL_QP_PKEY_INDEX);
	bad |= hdl_qp_modify(end->qp[END_RD], a,
	                     HDL_QP_STATE | HDL_QP_PORT | HDL_QP_PKEY_INDEX | HDL_QP_QKEY |
	                             HDL_QP_ACCESS);
	a->state = HDL_QPS_RTR;
	bad |= hdl_qp_modify(end->qp[END_RD], a, HDL_QP_STATE);
	bad |= hdl_eec_modify(end->eec, a,
	                      HDL_QP_STATE | HDL_QP_AV | HDL_QP_PATH_MTU | HDL_QP_DEST_QPN |
	                              HDL_QP_RQ_PSN | HDL_QP_MAX_DEST_RD_ATOMIC);
	a->state = HDL_QPS_RTS;
	bad |= hdl_qp_modify(end->qp[END_RD], a, HDL_QP_STATE);
	bad |= hdl_eec_modify(end->eec, a,
	                      HDL_QP_STATE | HDL_QP_SQ_PSN | HDL_QP_TIMEOUT | HDL_QP_RETRY_CNT |
	                              HDL_QP_RNR_RETRY | HDL_QP_MAX_RD_ATOMIC);
	if (bad != 0)
		abort();
}

void end_connect(struct end *end, int which)
{
	struct hdl_qp_attr a = {.state = HDL_QPS_RESET,
	                        .port_num = 1,
	                        .access = 0x1c,
	                        .qkey = END_QKEY,
	                        .path_mtu = END_MTU,
	                        .dest_qpn = END_PEER,
	                        .rq_psn = END_PSN,
	                        .sq_psn = END_PSN,
	                        .ah = {.dgid = end->peer, .port_num = 1, .is_global = true},
	                        .alt_ah = {.dgid = end->peer, .port_num = 1, .is_global = true},
	                        .alt_port_num = 1,
	                        .stripe = 16,
	                        .max_rd_atomic = 2,
	                        .max_dest_rd_atomic = 2,
	                        .timeout = 4,
	                        .retry_cnt = 3,
	                        .rnr_retry = 3,
	                        .min_rnr_timer = 1};
	uint32_t requests = which == END_RC || which == END_INI ? UINT32_MAX : 0;
	uint32_t responds = which == END_RC || which == END_TGT ? UINT32_MAX : 0;
	uint32_t connected = which != END_UD ? UINT32_MAX : 0;
	uint32_t striped = end->striped && which == END_RC ? UINT32_MAX : 0;
	int bad = hdl_qp_modify(end->qp[which], &a, HDL_QP_STATE);
	if (which == END_RD) {
		connect_context(end, &a);
		return;
	}
	a.state = HDL_QPS_INIT;
	bad |= hdl_qp_modify(end->qp[which], &a,
	                     HDL_QP_STATE | HDL_QP_PORT | HDL_QP_PKEY_INDEX |
	                             (which != END_UD ? HDL_QP_ACCESS : HDL_QP_QKEY));
	a.state = HDL_QPS_RTR;
	bad |= hdl_qp_modify(
	        end->qp[which], &a,
	        HDL_QP_STATE |
	                (connected &
	                 (HDL_QP_AV | HDL_QP_PATH_MTU | HDL_QP_DEST_QPN | HDL_QP_RQ_PSN)) |
	                (striped & (HDL_QP_ALT_PATH | HDL_QP_STRIPE)) |
	                (responds & (HDL_QP_MAX_DEST_RD_ATOMIC | HDL_QP_MIN_RNR_TIMER)));
	a.state = HDL_QPS_RTS;
	bad |= hdl_qp_modify(
	        end->qp[which], &a,
	        HDL_QP_STATE | HDL_QP_SQ_PSN | ((requests | responds) & HDL_QP_TIMEOUT) |
	                (requests & (HDL_QP_RETRY_CNT | HDL_QP_RNR_RETRY | HDL_QP_MAX_RD_ATOMIC)));
	if (bad != 0)
		abort();
}

void end_receive(struct end *end, int which, uint32_t offset, uint32_t bytes)
{
	struct hdl_sge pieces[2] = {
	        {end_address(end, offset), bytes / 2, hdl_mr_key(end->mr)},
	        {end_address(end, offset + bytes / 2), bytes - bytes / 2, hdl_mr_key(end->mr)}};
	struct hdl_recv_wr wr = {.sg_list = pieces, .num_sge = 2};
	int refused = which == END_INI || which == END_TGT
	                      ? hdl_srq_post(end->srq, &wr, NULL)
	                      : hdl_post_recv(end->qp[which], &wr, NULL);
	end->posted += refused == 0;
}

void end_take(struct end *end, int which, struct ib_packet *packet, bool from_elsewhere,
              bool damaged)
{
	uint8_t bytes[CABLE_PACKET_BYTES];
	struct path came = {.ip = {.src_port = 50000, .hop_limit = 63}};
	if (end->second_way)
		came.ip.src_port ^= IB_ALTERNATE_PORT;
	memcpy(came.ip.sgid, end->peer.raw, 16);
	memcpy(came.ip.dgid, end->own.raw, 16);
	if (from_elsewhere)
		came.ip.sgid[15] = 3;
	packet->bth.dest_qp = hdl_qp_number(end->qp[which]);
	packet->rdeth.ee_context = hdl_eec_number(end->eec);
	size_t count = roce_udp_encode(&came.ip, packet, bytes, sizeof(bytes));
	if (count == 0)
		return;
	if (damaged)
		bytes[count / 2] ^= 4;
	adapter_take(end->adapter, &came, from_elsewhere, bytes, count);
}

void end_run(struct end *end, uint64_t ns)
{
	struct hdl_wc wc[16];
	end->now_ns += ns;
	hdl_progress(end->adapter);
	for (int count; (count = hdl_cq_poll(end->cq, wc, 16)) > 0;)
		end->completed += (uint32_t)count;
	assert(end->completed <= end->posted);
}

void end_close(struct end *end)
{
	end->full = false;
	for (int i = 0; i < 8; i++)
		end_run(end, 1000000);
	for (size_t i = 0; i < END_EDGE; i++) {
		assert(end->block[i] == END_GUARD);
		assert(end->memory[END_REGION + i] == END_GUARD);
	}
	int bad = 0;
	for (int i = 0; i < END_QPS; i++)
		bad |= hdl_qp_destroy(end->qp[i]);
	bad |= hdl_srq_destroy(end->srq) | hdl_xrcd_close(end->xrcd);
	bad |= hdl_eec_destroy(end->eec) | hdl_rdd_close(end->rdd);
	bad |= hdl_mw_free(end->mw) | hdl_mr_deregister(end->mr) | hdl_cq_destroy(end->cq);
	bad |= hdl_pd_destroy(end->pd);
	assert(bad == 0);
	bad = hdl_close(end->adapter);
	assert(bad == 0);
	free(end->block);
}
