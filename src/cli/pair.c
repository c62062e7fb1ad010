/* See pair.h. */
#include "cli/pair.h"

#include <sys/mman.h>

#define POLL_BATCH 16

static bool fail(struct side *side, const char *what, int error)
{
	if (!side->failed) {
		side->failed = what;
		side->error = error;
	}
	return false;
}

static bool side_open(struct side *side, const char *name, size_t memory_bytes)
{
	struct hdl_open_attr attr = {.name = name, .no_thread = true};
	int error = hdl_open(&attr, &side->adapter);
	if (error)
		return fail(side, "hdl_open", error);
	error = hdl_pd_create(side->adapter, &side->pd);
	if (error)
		return fail(side, "hdl_pd_create", error);
	error = hdl_cq_create(side->adapter, 4 * PAIR_DEPTH, NULL, NULL, &side->cq);
	if (error)
		return fail(side, "hdl_cq_create", error);

	void *memory = mmap(NULL, memory_bytes, PROT_READ | PROT_WRITE,
	                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (memory == MAP_FAILED)
		return fail(side, "mmap", -HDL_ENOMEM);
	side->memory = memory;
	side->memory_bytes = memory_bytes;
	error = hdl_mr_register(side->pd, memory, memory_bytes,
	                        HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE |
	                                HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE,
	                        &side->mr);
	if (error)
		return fail(side, "hdl_mr_register", error);

	struct hdl_qp_init_attr init = {
	        .type = HDL_QP_RC,
	        .send_cq = side->cq,
	        .recv_cq = side->cq,
	        .cap = {.max_send_wr = PAIR_DEPTH,
	                .max_recv_wr = PAIR_DEPTH,
	                .max_send_sge = 1,
	                .max_recv_sge = 1,
	                .max_inline = PAIR_INLINE},
	};
	error = hdl_qp_create(side->pd, &init, &side->qp);
	return error ? fail(side, "hdl_qp_create", error) : true;
}

/* RESET to RTS, with @peer at the other end. */
static bool side_connect(struct side *side, const struct side *peer)
{
	struct hdl_limits limits;
	int error = hdl_adapter_query(peer->adapter, &limits);
	if (error)
		return fail(side, "hdl_adapter_query", error);
	struct hdl_qp_attr attr = {
	        .state = HDL_QPS_INIT,
	        .access = HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE,
	        .port_num = 1,
	        .ah = {.dgid = limits.gid, .is_global = true, .hop_limit = 1, .port_num = 1},
	        .dest_qpn = hdl_qp_number(peer->qp),
	        .path_mtu = 4096,
	        .timeout = 14,
	        .retry_cnt = 7,
	        .rnr_retry = 7,
	        .min_rnr_timer = 1,
	        .max_rd_atomic = 16,
	        .max_dest_rd_atomic = 16,
	};
	error = hdl_qp_modify(side->qp, &attr,
	                      HDL_QP_STATE | HDL_QP_PKEY_INDEX | HDL_QP_PORT | HDL_QP_ACCESS);
	if (error)
		return fail(side, "hdl_qp_modify to INIT", error);
	attr.state = HDL_QPS_RTR;
	error = hdl_qp_modify(side->qp, &attr,
	                      HDL_QP_STATE | HDL_QP_AV | HDL_QP_PATH_MTU | HDL_QP_DEST_QPN |
	                              HDL_QP_RQ_PSN | HDL_QP_MAX_DEST_RD_ATOMIC |
	                              HDL_QP_MIN_RNR_TIMER);
	if (error)
		return fail(side, "hdl_qp_modify to RTR", error);
	attr.state = HDL_QPS_RTS;
	error = hdl_qp_modify(side->qp, &attr,
	                      HDL_QP_STATE | HDL_QP_TIMEOUT | HDL_QP_RETRY_CNT | HDL_QP_RNR_RETRY |
	                              HDL_QP_SQ_PSN | HDL_QP_MAX_RD_ATOMIC);
	return error ? fail(side, "hdl_qp_modify to RTS", error) : true;
}

static bool post_receive(struct side *side, uint64_t number)
{
	size_t slots = side->memory_bytes / side->slot_bytes;
	struct hdl_sge piece = {
	        .addr = (uintptr_t)(side->memory + number % slots * side->slot_bytes),
	        .length = (uint32_t)side->slot_bytes,
	        .key = hdl_mr_key(side->mr),
	};
	struct hdl_recv_wr request = {.wr_id = number, .sg_list = &piece, .num_sge = 1};
	const struct hdl_recv_wr *bad;
	int error = hdl_post_recv(side->qp, &request, &bad);
	return error ? fail(side, "hdl_post_recv", error) : true;
}

static bool post_receives(struct side *side)
{
	for (uint64_t number = 0; number < PAIR_DEPTH; number++) {
		if (!post_receive(side, number))
			return false;
	}
	return true;
}

bool pair_open(struct pair *pair, size_t memory_bytes, size_t slot_bytes)
{
	*pair = (struct pair){0};
	pair->near.slot_bytes = pair->far.slot_bytes = slot_bytes;
	if (!side_open(&pair->near, "near", memory_bytes) ||
	    !side_open(&pair->far, "far", memory_bytes))
		return false;
	int error = hdl_join(pair->near.adapter, pair->far.adapter);
	if (error)
		return fail(&pair->near, "hdl_join", error);
	return side_connect(&pair->near, &pair->far) && side_connect(&pair->far, &pair->near) &&
	       post_receives(&pair->near) && post_receives(&pair->far);
}

const struct side *pair_failed(const struct pair *pair)
{
	if (pair->near.failed)
		return &pair->near;
	return pair->far.failed ? &pair->far : NULL;
}

static void side_close(struct side *side)
{
	if (side->qp)
		hdl_qp_destroy(side->qp);
	if (side->mr)
		hdl_mr_deregister(side->mr);
	if (side->memory)
		munmap(side->memory, side->memory_bytes);
	if (side->cq)
		hdl_cq_destroy(side->cq);
	if (side->pd)
		hdl_pd_destroy(side->pd);
	if (side->adapter)
		hdl_close(side->adapter);
}

void pair_close(struct pair *pair)
{
	side_close(&pair->near);
	side_close(&pair->far);
}

bool side_post(struct side *side, const struct side *peer, uint32_t opcode, size_t offset,
               size_t bytes)
{
	struct hdl_sge piece = {
	        .addr = (uintptr_t)(side->memory + offset),
	        .length = (uint32_t)bytes,
	        .key = hdl_mr_key(side->mr),
	};
	struct hdl_send_wr request = {
	        .sg_list = &piece,
	        .num_sge = 1,
	        .opcode = opcode,
	        .flags = HDL_SEND_SIGNALED,
	};
	if (bytes <= PAIR_INLINE && opcode != HDL_OP_READ)
		request.flags |= HDL_SEND_INLINE;
	if (opcode != HDL_OP_SEND) {
		request.u.rdma.addr = (uintptr_t)(peer->memory + offset);
		request.u.rdma.key = hdl_mr_key(peer->mr);
	}
	const struct hdl_send_wr *bad;
	int error = hdl_post_send(side->qp, &request, &bad);
	return error ? fail(side, "hdl_post_send", error) : true;
}

bool side_poll(struct side *side)
{
	struct hdl_wc wc[POLL_BATCH];
	int count = hdl_cq_poll(side->cq, wc, POLL_BATCH);
	if (count < 0)
		return fail(side, "hdl_cq_poll", count);
	for (int i = 0; i < count; i++) {
		if (wc[i].status != HDL_WC_SUCCESS)
			return fail(side, "a request", (int)wc[i].status);
		if (wc[i].opcode == HDL_WC_RECV) {
			side->received++;
			if (!post_receive(side, wc[i].wr_id + PAIR_DEPTH))
				return false;
		} else {
			side->sent_done++;
		}
	}
	return true;
}
