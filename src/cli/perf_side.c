/* One end of a measurement: an adapter on the node, and for each plan a queue pair and memory. */
#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "cli/perf.h"

#define POLL_BATCH 16
#define QKEY       0x11111111u
#define RECEIVES   (2 * PERF_MAX_DEPTH)

const char *perf_op_name(uint32_t op)
{
	static const char *const names[PERF_OPS] = {"send", "write", "read", "atomic"};
	return op < PERF_OPS ? names[op] : "?";
}

bool side_fail(struct perf_side *side, const char *what, int error)
{
	if (side->failed[0] == '\0')
		snprintf(side->failed, sizeof(side->failed), "%s%s%s", what, error != 0 ? ": " : "",
		         error > 0   ? hdl_wc_status_str((uint32_t)error)
		         : error < 0 ? hdl_strerror(error)
		                     : "");
	return false;
}

bool side_open(struct perf_side *side, const char *node)
{
	struct hdl_open_attr attr = {.on_node = true, .node = node};
	struct hdl_limits limits;
	*side = (struct perf_side){0};
	int error = hdl_open(&attr, &side->adapter);
	if (error != 0)
		return side_fail(side, "hdl_open", error);
	error = hdl_adapter_query(side->adapter, &limits);
	if (error != 0)
		return side_fail(side, "hdl_adapter_query", error);
	side->gid = limits.gid;
	return talk_start(side);
}

void side_close(struct perf_side *side)
{
	if (side->adapter != NULL)
		hdl_close(side->adapter);
}

uint8_t *side_slot(const struct perf_side *side, uint64_t n)
{
	assert(side->slots > 0 && side->slots * side->slot_bytes <= side->memory_bytes);
	return side->memory + n % side->slots * side->slot_bytes;
}

static bool make_memory(struct perf_side *side)
{
	size_t grh = side->plan.type == HDL_QP_UD ? PERF_GRH : 0;
	side->slots = side->plan.mode == PERF_LATENCY ? 2 : PERF_SLOTS;
	side->slot_bytes = (side->plan.size_bytes + grh + 63) & ~(size_t)63;
	side->memory_bytes = side->slots * side->slot_bytes;
	void *memory;
	int error;
	if (side->plan.mapped) {
		error = hdl_mem_alloc(side->memory_bytes, &memory);
	} else {
		memory = mmap(NULL, side->memory_bytes, PROT_READ | PROT_WRITE,
		              MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		error = memory == MAP_FAILED ? -HDL_ENOMEM : 0;
	}
	if (error != 0)
		return side_fail(side, "memory", error);
	side->memory = memory;
	error = hdl_mr_register(side->pd, memory, side->memory_bytes,
	                        HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE |
	                                HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE |
	                                HDL_ACCESS_REMOTE_ATOMIC,
	                        &side->mr);
	return error == 0 || side_fail(side, "hdl_mr_register", error);
}

static bool post_receive(struct perf_side *side, uint64_t number)
{
	/* In a ping-pong, data arrives in slot 1 and leaves from slot 0. */
	uint64_t slot = side->plan.mode == PERF_LATENCY ? 1 : number;
	struct hdl_sge piece = {.addr = (uintptr_t)side_slot(side, slot),
	                        .length = (uint32_t)side->slot_bytes,
	                        .key = hdl_mr_key(side->mr)};
	struct hdl_recv_wr request = {.wr_id = number, .sg_list = &piece, .num_sge = 1};
	int error = hdl_post_recv(side->qp, &request, NULL);
	return error == 0 || side_fail(side, "hdl_post_recv", error);
}

bool side_begin(struct perf_side *side, const struct perf_plan *plan)
{
	side->plan = *plan;
	side->posted = side->sent_done = side->received = 0;
	int error = hdl_pd_create(side->adapter, &side->pd);
	if (error != 0)
		return side_fail(side, "hdl_pd_create", error);
	error = hdl_channel_create(side->adapter, &side->channel);
	if (error != 0)
		return side_fail(side, "hdl_channel_create", error);
	error = hdl_cq_create(side->adapter, PERF_MAX_DEPTH + RECEIVES, side->channel, NULL,
	                      &side->cq);
	if (error != 0)
		return side_fail(side, "hdl_cq_create", error);
	struct hdl_qp_init_attr init = {.type = (uint8_t)plan->type,
	                                .send_cq = side->cq,
	                                .recv_cq = side->cq,
	                                .cap = {.max_send_wr = PERF_MAX_DEPTH,
	                                        .max_recv_wr = RECEIVES,
	                                        .max_send_sge = 1,
	                                        .max_recv_sge = 1,
	                                        .max_inline = PERF_INLINE}};
	error = hdl_qp_create(side->pd, &init, &side->qp);
	if (error != 0)
		return side_fail(side, "hdl_qp_create", error);
	return make_memory(side);
}

void side_end(struct perf_side *side)
{
	if (side->qp != NULL)
		hdl_qp_destroy(side->qp);
	if (side->ah != NULL)
		hdl_ah_destroy(side->ah);
	if (side->mr != NULL)
		hdl_mr_deregister(side->mr);
	if (side->memory != NULL && side->plan.mapped)
		hdl_mem_free(side->memory);
	else if (side->memory != NULL)
		munmap(side->memory, side->memory_bytes);
	if (side->cq != NULL)
		hdl_cq_destroy(side->cq);
	if (side->channel != NULL)
		hdl_channel_destroy(side->channel);
	if (side->pd != NULL)
		hdl_pd_destroy(side->pd);
	side->qp = NULL;
	side->ah = NULL;
	side->mr = NULL;
	side->memory = NULL;
	side->cq = NULL;
	side->channel = NULL;
	side->pd = NULL;
}

/* --- connecting --- */

static bool to_state(struct perf_side *side, const struct hdl_qp_attr *attr, uint32_t mask)
{
	static const char *const names[] = {[HDL_QPS_INIT] = "hdl_qp_modify to INIT",
	                                    [HDL_QPS_RTR] = "hdl_qp_modify to RTR",
	                                    [HDL_QPS_RTS] = "hdl_qp_modify to RTS"};
	int error = hdl_qp_modify(side->qp, attr, mask);
	return error == 0 || side_fail(side, names[attr->state], error);
}

static bool connect_datagrams(struct perf_side *side, struct hdl_qp_attr *attr)
{
	attr->qkey = QKEY;
	attr->state = HDL_QPS_INIT;
	if (!to_state(side, attr, HDL_QP_STATE | HDL_QP_PKEY_INDEX | HDL_QP_PORT | HDL_QP_QKEY))
		return false;
	attr->state = HDL_QPS_RTR;
	if (!to_state(side, attr, HDL_QP_STATE))
		return false;
	attr->state = HDL_QPS_RTS;
	if (!to_state(side, attr, HDL_QP_STATE | HDL_QP_SQ_PSN))
		return false;
	int error = hdl_ah_create(side->pd, &attr->ah, &side->ah);
	return error == 0 || side_fail(side, "hdl_ah_create", error);
}

static bool connect_pair(struct perf_side *side, struct hdl_qp_attr *attr)
{
	bool reliable = side->plan.type == HDL_QP_RC;
	attr->state = HDL_QPS_INIT;
	if (!to_state(side, attr, HDL_QP_STATE | HDL_QP_PKEY_INDEX | HDL_QP_PORT | HDL_QP_ACCESS))
		return false;
	attr->state = HDL_QPS_RTR;
	if (!to_state(side, attr,
	              HDL_QP_STATE | HDL_QP_AV | HDL_QP_PATH_MTU | HDL_QP_DEST_QPN | HDL_QP_RQ_PSN |
	                      (reliable ? HDL_QP_MAX_DEST_RD_ATOMIC | HDL_QP_MIN_RNR_TIMER : 0u)))
		return false;
	attr->state = HDL_QPS_RTS;
	return to_state(side, attr,
	                HDL_QP_STATE | HDL_QP_SQ_PSN |
	                        (reliable ? HDL_QP_TIMEOUT | HDL_QP_RETRY_CNT | HDL_QP_RNR_RETRY |
	                                            HDL_QP_MAX_RD_ATOMIC
	                                  : 0u));
}

bool side_connect(struct perf_side *side)
{
	struct hdl_qp_attr attr = {
	        .port_num = 1,
	        .access = HDL_ACCESS_REMOTE_WRITE |
	                  (side->plan.type == HDL_QP_RC
	                           ? HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_ATOMIC
	                           : 0u),
	        .ah = {.dgid = side->peer.gid, .is_global = true, .hop_limit = 1, .port_num = 1},
	        .dest_qpn = side->peer.qpn,
	        .path_mtu = 4096,
	        .timeout = 14,
	        .retry_cnt = 7,
	        .rnr_retry = 7,
	        .min_rnr_timer = 1,
	        .max_rd_atomic = 16,
	        .max_dest_rd_atomic = 16};
	if (side->plan.type == HDL_QP_UD ? !connect_datagrams(side, &attr)
	                                 : !connect_pair(side, &attr))
		return false;
	uint64_t receives = side->plan.op == PERF_SEND ? 2ull * side->plan.depth : 0;
	for (uint64_t i = 0; i < receives; i++)
		if (!post_receive(side, i))
			return false;
	return true;
}

/* --- requests --- */

bool side_post(struct perf_side *side)
{
	static const uint32_t opcodes[PERF_OPS] = {HDL_OP_SEND, HDL_OP_WRITE, HDL_OP_READ,
	                                           HDL_OP_FETCH_ADD};
	const struct perf_plan *plan = &side->plan;
	bool latency = plan->mode == PERF_LATENCY;
	uint64_t slot = latency ? 0 : side->posted % side->slots;
	/* A ping-pong of writes goes from slot 0 to the other side's slot 1. */
	uint64_t far = latency && plan->op == PERF_WRITE ? 1 : slot;
	struct hdl_sge piece = {.addr = (uintptr_t)side_slot(side, slot),
	                        .length = (uint32_t)plan->size_bytes,
	                        .key = hdl_mr_key(side->mr)};
	struct hdl_send_wr request = {.sg_list = &piece,
	                              .num_sge = 1,
	                              .opcode = opcodes[plan->op],
	                              .flags = HDL_SEND_SIGNALED};
	if (plan->size_bytes <= PERF_INLINE && plan->op <= PERF_WRITE)
		request.flags |= HDL_SEND_INLINE;
	if (plan->op == PERF_ATOMIC) {
		request.u.atomic.addr = side->peer.addr;
		request.u.atomic.key = side->peer.key;
		request.u.atomic.compare_add = 1;
	} else if (plan->op != PERF_SEND) {
		request.u.rdma.addr = side->peer.addr + far * side->slot_bytes;
		request.u.rdma.key = side->peer.key;
	} else if (plan->type == HDL_QP_UD) {
		request.u.ud.ah = side->ah;
		request.u.ud.qpn = side->peer.qpn;
		request.u.ud.qkey = QKEY;
	}
	side->posted++;
	int error = hdl_post_send(side->qp, &request, NULL);
	return error == 0 || side_fail(side, "hdl_post_send", error);
}

bool side_poll(struct perf_side *side)
{
	struct hdl_wc wc[POLL_BATCH];
	int count = hdl_cq_poll(side->cq, wc, POLL_BATCH);
	if (count < 0)
		return side_fail(side, "hdl_cq_poll", count);
	side->idle = count > 0 ? 0 : side->idle + 1;
	if (side->idle == PERF_IDLE) {
		side->idle = 0;
		sched_yield();
	}
	for (int i = 0; i < count; i++) {
		if (wc[i].status != HDL_WC_SUCCESS)
			return side_fail(side, perf_op_name(side->plan.op), (int)wc[i].status);
		if (wc[i].opcode >= HDL_WC_RECV) {
			side->received++;
			if (!post_receive(side, wc[i].wr_id + 2ull * side->plan.depth))
				return false;
		} else {
			side->sent_done++;
		}
	}
	return true;
}

bool side_wait(struct perf_side *side)
{
	uint64_t before = side->sent_done + side->received;
	if (!side_poll(side))
		return false;
	if (!side->plan.sleeps || side->sent_done + side->received != before)
		return true;
	/* What arrived before the queue was armed raises no event: poll once more. */
	int error = hdl_cq_arm(side->cq, false);
	if (error != 0)
		return side_fail(side, "hdl_cq_arm", error);
	if (!side_poll(side))
		return false;
	if (side->sent_done + side->received != before)
		return true;
	struct hdl_cq *cq;
	void *context;
	error = hdl_channel_get(side->channel, &cq, &context, 100);
	if (error == 0)
		hdl_cq_ack(cq, 1);
	else if (error != -HDL_EAGAIN)
		return side_fail(side, "hdl_channel_get", error);
	return side_poll(side);
}
