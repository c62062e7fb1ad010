/* Queue pairs as the channels of the messaging layer. Channel 0 carries messages, channel 1 frames:
 * reliable connections in RDMA mode, unreliable ones in send mode. Both complete in one queue, so
 * receives are seen in the order in which they arrived.
 *
 * An operation on an acknowledged channel is over when the peer has it. On iWARP, sends and writes
 * complete before that, when TCP has taken them. There they ask for no completion: a read of no
 * bytes is posted behind them, which the peer answers when it has them all (RFC 5040 section 5.5),
 * and whose completion is theirs (ADR 0206). */
#include <assert.h>
#include <endian.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "ulp/internal.h"

#define CONTROL_DEPTH  32u
#define DATA_DEPTH     (SPLIT_MAX_SLOTS + 128u)
#define SMALL_BYTES    2048u
#define LARGE_ELEMENTS 64u
#define POLL_BATCH     32
#define EXTRA_POOLS    2u

/* What completed: bit 63 a receive, bit 62 of the data channel, and its number. A send has the
 * number that the messaging layer gave it. */
#define WR_RECEIVE (1ull << 63)
#define WR_DATA    (1ull << 62)
#define WR_FENCE   (1ull << 61) /* iWARP: all operations up to this number have completed */
#define WR_SILENT  UINT32_MAX   /* a receive without a buffer, for immediate data */

void channels_config(const struct hdl_push *push, struct split_config *config)
{
	const struct hdl_push_terms *terms = &push->terms;
	bool host = push->role == SPLIT_HOST;
	*config =
	        (struct split_config){.role = push->role,
	                              .mode = (enum split_mode)terms->mode,
	                              .model = (enum split_model)terms->model,
	                              .own_pools = host ? terms->host_owns : terms->unit_owns,
	                              .peer_owns_pools = host ? terms->unit_owns : terms->host_owns,
	                              .by_message = terms->by_message,
	                              .credits = push->credits,
	                              .one_channel = terms->one_channel,
	                              .header_bytes = terms->header_bytes,
	                              .frame_bytes = terms->frame_bytes,
	                              .slots = 128,
	                              .plan_count = 2,
	                              .max_pools = 2 + EXTRA_POOLS};
	/* Short frames in many small elements, any frame in some large ones. */
	config->plans[0] = (struct split_plan){.elements = 256, .element_bytes = SMALL_BYTES};
	config->plans[1] = (struct split_plan){.elements = LARGE_ELEMENTS,
	                                       .element_bytes = terms->frame_bytes};
	if (terms->frame_bytes <= SMALL_BYTES) {
		config->plans[0].element_bytes = terms->frame_bytes;
		config->plan_count = 1;
	}
	if (terms->pool_count == 0)
		return;
	config->plan_count = terms->pool_count;
	for (uint32_t i = 0; i < terms->pool_count; i++)
		config->plans[i] = pools_plan(&terms->pools[i]);
	/* No other pool goes with one that is indicated by address. */
	config->max_pools = terms->pool_count + (terms->pools[0].by_address ? 0 : EXTRA_POOLS);
}

static uint8_t *channels_receive(struct hdl_push *push, uint32_t channel, uint32_t i)
{
	return push->memory + push->receives_at +
	       (size_t)(channel * SPLIT_RECEIVES + i) * PUSH_MAX_BYTES;
}

static int channels_post_receive(struct hdl_push *push, uint32_t channel, uint32_t i)
{
	struct hdl_sge piece = {.addr = (uintptr_t)channels_receive(push, channel, i),
	                        .length = PUSH_MAX_BYTES,
	                        .key = hdl_mr_key(push->mr)};
	struct hdl_recv_wr wr = {
	        .wr_id = WR_RECEIVE | (channel ? WR_DATA : 0) | i, .sg_list = &piece, .num_sge = 1};
	return hdl_post_recv(push->qp[channel], &wr, NULL);
}

static int channels_post_silent(struct hdl_push *push, uint32_t count)
{
	struct hdl_recv_wr wr = {.wr_id = WR_RECEIVE | WR_DATA | WR_SILENT};
	for (uint32_t i = 0; i < count; i++) {
		int error = hdl_post_recv(push->qp[SPLIT_DATA], &wr, NULL);
		if (error != 0)
			return error;
	}
	return 0;
}

/* --- struct split_channel --- */

static struct hdl_mr *channels_find(struct hdl_push *push, const uint8_t *local)
{
	if (local >= push->memory && local < push->memory + push->memory_bytes)
		return push->mr;
	for (uint32_t i = 0; i < SPLIT_MAX_POOLS; i++) {
		const struct push_region *region = &push->regions[i];
		if (region->used && local >= region->host && local < region->host + region->bytes)
			return region->mr;
	}
	return NULL;
}

static bool channels_post_send(struct hdl_push *push, uint32_t channel,
                               const struct hdl_send_wr *wr)
{
	int error = hdl_post_send(push->qp[channel], wr, NULL);
	if (error != 0 && error != -HDL_ENOSPC)
		push->broken = true;
	return error == 0;
}

static uint64_t channels_fence_id(uint32_t channel, uint32_t number)
{
	return WR_FENCE | (channel == SPLIT_DATA ? WR_DATA : 0) | number;
}

/* Post an operation whose completion is that of a read: its own, or that of a later one. */
static bool channels_post_ordered(struct hdl_push *push, uint32_t channel, struct hdl_send_wr *wr)
{
	struct push_order *order = &push->order[channel];
	uint64_t id = wr->wr_id;
	bool reads = wr->opcode == HDL_OP_READ;
	if (order->put - order->done == ORDER_MAX)
		return false;
	wr->wr_id = channels_fence_id(channel, order->put + 1);
	if (!reads)
		wr->flags &= ~(uint32_t)HDL_SEND_SIGNALED;
	if (!channels_post_send(push, channel, wr))
		return false;
	order->ids[order->put++ % ORDER_MAX] = id;
	if (reads)
		order->fenced = order->put;
	return true;
}

void channels_fence(struct hdl_push *push)
{
	for (uint32_t i = 0; i < 2 && push->stream; i++) {
		struct push_order *order = &push->order[i];
		struct hdl_send_wr wr = {.wr_id = channels_fence_id(i, order->put),
		                         .opcode = HDL_OP_READ,
		                         .flags = HDL_SEND_SIGNALED};
		/* One at a time: what is posted meanwhile shares the next one. */
		if (order->put != order->fenced && order->fenced == order->done &&
		    channels_post_send(push, i, &wr))
			order->fenced = order->put;
	}
}

static void channels_fenced(struct hdl_push *push, uint64_t wr_id)
{
	struct push_order *order =
	        &push->order[(wr_id & WR_DATA) != 0 ? SPLIT_DATA : SPLIT_CONTROL];
	while (order->done != (uint32_t)wr_id)
		split_done(push->split, order->ids[order->done++ % ORDER_MAX], true);
}

static bool channels_post(void *binding, const struct split_op *op, uint64_t id)
{
	static const uint32_t opcodes[] = {[SPLIT_OP_SEND] = HDL_OP_SEND,
	                                   [SPLIT_OP_WRITE] = HDL_OP_WRITE,
	                                   [SPLIT_OP_READ] = HDL_OP_READ};
	struct hdl_push *push = binding;
	struct hdl_mr *mr = channels_find(push, op->local);
	assert(mr != NULL);
	struct hdl_sge piece = {
	        .addr = (uintptr_t)op->local, .length = op->bytes, .key = hdl_mr_key(mr)};
	struct hdl_send_wr wr = {.wr_id = id,
	                         .sg_list = &piece,
	                         .num_sge = 1,
	                         .opcode = op->has_immediate ? HDL_OP_WRITE_IMM : opcodes[op->kind],
	                         .flags = HDL_SEND_SIGNALED,
	                         .imm = htobe32(op->immediate),
	                         .u.rdma = {op->address, {op->handle}}};
	return push->stream ? channels_post_ordered(push, op->channel, &wr)
	                    : channels_post_send(push, op->channel, &wr);
}

static bool channels_offer(void *binding, uint32_t index, uint32_t elements, uint32_t element_bytes,
                           bool readable, struct split_memory *memory)
{
	struct hdl_push *push = binding;
	struct push_region *region = push->regions;
	while (region->used)
		region++;
	assert(region < push->regions + SPLIT_MAX_POOLS);
	if (!readable && elements > HDL_PUSH_MAX_RECEIVE - push->posted)
		return false;
	*region = (struct push_region){.index = index,
	                               .elements = readable ? 0 : elements,
	                               .host = memory->host,
	                               .bytes = (size_t)elements * element_bytes};
	if (memory->host == NULL) {
		void *host;
		if (hdl_mem_alloc(region->bytes, &host) != 0)
			return false;
		region->host = host;
		region->allocated = true;
	}
	uint32_t access = HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE |
	                  (readable ? HDL_ACCESS_REMOTE_READ : HDL_ACCESS_REMOTE_WRITE);
	if (hdl_mr_register(push->port->pd, region->host, region->bytes, access, &region->mr) ||
	    channels_post_silent(push, region->elements) != 0) {
		if (region->mr != NULL)
			hdl_mr_deregister(region->mr);
		if (region->allocated)
			hdl_mem_free(region->host);
		return false;
	}
	/* Receives of a pool that was withdrawn stay posted, and serve the next one. */
	push->posted += region->elements;
	region->used = true;
	*memory = (struct split_memory){region->host, (uintptr_t)region->host,
	                                hdl_mr_key(region->mr).v};
	return true;
}

static void channels_withdraw(void *binding, uint32_t index)
{
	struct hdl_push *push = binding;
	for (uint32_t i = 0; i < SPLIT_MAX_POOLS; i++) {
		struct push_region *region = &push->regions[i];
		if (!region->used || region->index != index)
			continue;
		hdl_mr_deregister(region->mr);
		if (region->allocated)
			hdl_mem_free(region->host);
		region->used = false;
		return;
	}
}

static void channels_release(void *binding, uint32_t receive)
{
	struct hdl_push *push = binding;
	uint32_t channel = push->terms.one_channel ? SPLIT_CONTROL : SPLIT_DATA;
	if (channels_post_receive(push, channel, receive) != 0)
		push->broken = true;
}

static const struct split_channel channels_table = {channels_post, channels_offer,
                                                    channels_withdraw, channels_release};

/* --- struct split_user --- */

/* The public form of a configuration is that of the wire layer, under public names. */
_Static_assert(sizeof(struct hdl_push_cfg) == sizeof(struct push_cfg) &&
                       offsetof(struct hdl_push_cfg, statistics) ==
                               offsetof(struct push_cfg, statistics) &&
                       offsetof(struct hdl_push_cfg, filter) == offsetof(struct push_cfg, filter) &&
                       (int)HDL_PUSH_CFG_STATISTICS == (int)PUSH_CFG_STATISTICS &&
                       (int)HDL_PUSH_CFG_MORE_MAC == (int)PUSH_CFG_MORE_MAC &&
                       (int)HDL_PUSH_CFG_READ_ONLY == (int)PUSH_CFG_READ_ONLY &&
                       (int)HDL_PUSH_STAT_COUNT == (int)PUSH_STAT_COUNT &&
                       (int)HDL_PUSH_OFFLOAD_ALL == (int)PUSH_OFFLOAD_ALL,
               "one form");

static bool channels_deliver(void *user, const uint8_t *frame, uint32_t bytes)
{
	struct hdl_push *push = user;
	return push->port->ops->deliver(push->port->context, push, frame, bytes);
}

static void channels_configure(void *user, const struct push_cfg *request, struct push_cfg *reply)
{
	struct hdl_push *push = user;
	push->port->ops->configure(push->port->context, push, (const struct hdl_push_cfg *)request,
	                           (struct hdl_push_cfg *)reply);
}

static void channels_configured(void *user, uint64_t token, const struct push_cfg *reply)
{
	struct hdl_push *push = user;
	push->port->ops->configured(push->port->context, push, token,
	                            (const struct hdl_push_cfg *)reply);
}

static const struct split_user channels_user = {channels_deliver, channels_configure,
                                                channels_configured};

/* --- making and connecting --- */

int channels_make(struct hdl_push *push)
{
	struct hdl_push_port *port = push->port;
	struct split_config config;
	void *memory;
	if (!pools_possible(&push->terms) ||
	    (push->terms.iwarp && (push->terms.mode == HDL_PUSH_SEND || push->terms.one_channel)))
		return -HDL_EINVAL;
	channels_config(push, &config);
	size_t bytes = split_memory_bytes(&config);
	if (bytes == 0)
		return -HDL_EINVAL;
	push->receives_at = (bytes + 4095) & ~(size_t)4095;
	push->memory_bytes = push->receives_at + 2ull * SPLIT_RECEIVES * PUSH_MAX_BYTES;
	int error = hdl_mem_alloc(push->memory_bytes, &memory);
	if (error != 0)
		return error;
	push->memory = memory;
	error = hdl_mr_register(port->pd, memory, push->memory_bytes,
	                        HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE, &push->mr);
	if (error != 0)
		return error;
	uint32_t receives = SPLIT_RECEIVES + HDL_PUSH_MAX_RECEIVE;
	error = hdl_cq_create(port->adapter, CONTROL_DEPTH + DATA_DEPTH + SPLIT_RECEIVES + receives,
	                      port->channel, push, &push->cq);
	if (error != 0)
		return error;
	for (unsigned i = 0; i < channels_count(push); i++) {
		bool data = i == SPLIT_DATA || push->terms.one_channel;
		struct hdl_qp_init_attr init = {
		        .type = push->terms.mode == HDL_PUSH_SEND ? HDL_QP_UC : HDL_QP_RC,
		        .send_cq = push->cq,
		        .recv_cq = push->cq,
		        .packets = push->cells ? HDL_PACKETS_CELLS : HDL_PACKETS_ROCEV2,
		        .cap = {.max_send_wr = data ? DATA_DEPTH : CONTROL_DEPTH,
		                .max_recv_wr = data ? receives : SPLIT_RECEIVES,
		                .max_send_sge = 1,
		                .max_recv_sge = 1}};
		struct hdl_qp_attr attr = {
		        .state = HDL_QPS_INIT,
		        .port_num = 1,
		        .access = HDL_ACCESS_REMOTE_WRITE |
		                  (init.type == HDL_QP_RC ? HDL_ACCESS_REMOTE_READ : 0u)};
		error = hdl_qp_create(port->pd, &init, &push->qp[i]);
		if (error == 0)
			error = hdl_qp_modify(push->qp[i], &attr,
			                      HDL_QP_STATE | HDL_QP_PKEY_INDEX | HDL_QP_PORT |
			                              HDL_QP_ACCESS);
		if (error != 0)
			return error;
		push->qpn[i] = hdl_qp_number(push->qp[i]);
	}
	push->split = calloc(1, sizeof(*push->split));
	return push->split == NULL ? -HDL_ENOMEM : 0;
}

/* Receives are posted before the peer can know the queue pairs. */
static int channels_fill(struct hdl_push *push)
{
	bool own = push->role == SPLIT_HOST ? push->terms.host_owns : push->terms.unit_owns;
	bool sends = push->terms.mode == HDL_PUSH_SEND || !own;
	int error = 0;
	for (uint32_t i = 0; i < SPLIT_RECEIVES && error == 0; i++) {
		error = channels_post_receive(push, SPLIT_CONTROL, i);
		if (error == 0 && push->terms.one_channel) /* for frames */
			error = channels_post_receive(push, SPLIT_CONTROL, SPLIT_RECEIVES + i);
		else if (error == 0 && sends)
			error = channels_post_receive(push, SPLIT_DATA, i);
	}
	return error;
}

int channels_connect(struct hdl_push *push)
{
	bool reliable = push->terms.mode != HDL_PUSH_SEND;
	int error = channels_fill(push);
	if (error == 0 && push->stream)
		return streams_connect(push);
	for (unsigned i = 0; i < channels_count(push) && error == 0; i++) {
		struct hdl_qp_attr attr = {.state = HDL_QPS_RTR,
		                           .port_num = 1,
		                           .ah = {.dgid = push->gid,
		                                  .is_global = true,
		                                  .hop_limit = 64,
		                                  .port_num = 1},
		                           .dest_qpn = push->peer_qpn[i],
		                           .rq_psn = push->peer_psn[i],
		                           .sq_psn = push->psn[i],
		                           .path_mtu = push->mtu,
		                           .timeout = 14,
		                           .retry_cnt = 7,
		                           .rnr_retry = 7,
		                           .min_rnr_timer = 1,
		                           .max_rd_atomic = 16,
		                           .max_dest_rd_atomic = 16};
		error = hdl_qp_modify(
		        push->qp[i], &attr,
		        HDL_QP_STATE | HDL_QP_AV | HDL_QP_PATH_MTU | HDL_QP_DEST_QPN |
		                HDL_QP_RQ_PSN |
		                (reliable ? HDL_QP_MAX_DEST_RD_ATOMIC | HDL_QP_MIN_RNR_TIMER : 0u));
		attr.state = HDL_QPS_RTS;
		if (error == 0)
			error = hdl_qp_modify(
			        push->qp[i], &attr,
			        HDL_QP_STATE | HDL_QP_SQ_PSN |
			                (reliable ? HDL_QP_TIMEOUT | HDL_QP_RETRY_CNT |
			                                    HDL_QP_RNR_RETRY | HDL_QP_MAX_RD_ATOMIC
			                          : 0u));
	}
	return error;
}

int channels_begin(struct hdl_push *push)
{
	struct split_config config;
	channels_config(push, &config);
	return split_init(push->split, &config, &channels_table, push, &channels_user, push,
	                  push->memory, clock_now_ns())
	               ? 0
	               : -HDL_ENOMEM;
}

void channels_free(struct hdl_push *push)
{
	streams_end(push);
	for (unsigned i = 0; i < 2; i++)
		if (push->qp[i] != NULL)
			hdl_qp_destroy(push->qp[i]);
	if (push->split != NULL && push->split->channel != NULL)
		split_end(push->split);
	if (push->mr != NULL)
		hdl_mr_deregister(push->mr);
	if (push->cq != NULL)
		hdl_cq_destroy(push->cq);
	if (push->memory != NULL)
		hdl_mem_free(push->memory);
	free(push->split);
}

/* --- completions --- */

static void channels_received(struct hdl_push *push, const struct hdl_wc *wc)
{
	uint32_t channel = (wc->wr_id & WR_DATA) != 0 ? SPLIT_DATA : SPLIT_CONTROL;
	uint32_t i = (uint32_t)wc->wr_id;
	if (i == WR_SILENT) {
		push->broken |= channels_post_silent(push, 1) != 0;
		if (wc->opcode == HDL_WC_RECV_WRITE_IMM)
			split_indicated(push->split, be32toh(wc->imm));
		else
			push->broken = true; /* a send, where there is no room for one */
		return;
	}
	bool kept = false;
	if (wc->opcode == HDL_WC_RECV_WRITE_IMM)
		split_indicated(push->split, be32toh(wc->imm)); /* has its verdict there */
	else
		kept = split_received(push->split, (enum split_channel_number)channel,
		                      channels_receive(push, channel, i), wc->byte_len, i);
	if (!kept && channels_post_receive(push, channel, i) != 0)
		push->broken = true;
}

int channels_poll(struct hdl_push *push)
{
	struct hdl_wc wc[POLL_BATCH];
	int done = 0, got;
	while ((got = hdl_cq_poll(push->cq, wc, POLL_BATCH)) > 0) {
		for (int i = 0; i < got; i++) {
			if (push->stage == STAGE_OVER)
				return done;
			if (wc[i].status != HDL_WC_SUCCESS)
				push->broken = true;
			else if ((wc[i].wr_id & WR_RECEIVE) != 0)
				channels_received(push, &wc[i]);
			else if ((wc[i].wr_id & WR_FENCE) != 0)
				channels_fenced(push, wc[i].wr_id);
			else
				split_done(push->split, wc[i].wr_id, true);
		}
		done += got;
		/* Others have their turn. And what has come is handled before the queue is polled
		 * again, because that sends the acknowledgements that an answer would carry. */
		if (got < POLL_BATCH || done >= 8 * POLL_BATCH)
			break;
	}
	if (got < 0)
		push->broken = true;
	return done;
}
