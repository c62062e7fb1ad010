/* The rig of the scenarios about paths; see ways.h. Each end is two hosts of the network, one a line. */
#include "ways.h"

#include <stdlib.h>
#include <string.h>

#include <heddle/heddle.h>

#include "adapter/adapter.h"
#include "cable/cable.h"
#include "port/simnet.h"

#define PACKETS    16384u
#define EVENTS     256u
#define MAX_DEPTH  8u
#define LINES      2u
#define HOST_ROOM  65536u
#define MAX_EVENTS 100000000u
#define STRIPE     1024u

struct ways_end {
	struct ways *ways;
	uint32_t index; /* 0: A, 1: B */
	struct hdl_adapter *adapter;
	struct hdl_gid gids[LINES];
	struct hdl_pd *pd;
	struct hdl_cq *cq;
	struct hdl_qp *qp;
	struct hdl_mr *mr;
	uint8_t *memory;
	struct cable cable;
	uint64_t wake_ns;
	uint64_t line_ns[LINES]; /* until when a line is busy with what was sent */
};

struct ways {
	struct ways_config config;
	struct ways_result *result;
	struct sim *sim;
	struct ways_end ends[2];
	uint32_t posted, done, received;
	uint64_t last_ns;
};

/* --- the network --- */

static uint64_t line_ns(const struct ways *w, size_t bytes)
{
	return bytes * 8 * 1000000000 / w->config.bandwidth_bps;
}

static void out(void *context, const struct path *path, const uint8_t *payload, size_t bytes)
{
	struct ways_end *from = context;
	struct ways *w = from->ways;
	uint8_t data[CABLE_BYTES];
	size_t all = cable_pack(data, path, payload, bytes);
	uint64_t now = sim_now_ns(w->sim);
	for (uint32_t line = 0; line < LINES; line++) {
		if (memcmp(from->gids[line].raw, path->ip.sgid, 16) != 0)
			continue;
		uint64_t *busy = &from->line_ns[line];
		*busy = (*busy > now ? *busy : now) + line_ns(w, all);
		sim_send(w->sim, from->index * LINES + line, !from->index * LINES + line, data,
		         all);
	}
}

static bool room(void *context)
{
	const struct ways_end *end = context;
	uint64_t most = sim_now_ns(end->ways->sim) + line_ns(end->ways, HOST_ROOM);
	return end->line_ns[0] < most && end->line_ns[1] < most;
}

static void drive(struct ways_end *end);

static void wake(struct sim *sim, void *context, uint64_t arg)
{
	struct ways_end *end = context;
	(void)arg;
	if (sim_now_ns(sim) >= end->wake_ns)
		drive(end);
}

static void arrive(void *context, struct sim *sim, uint32_t index, uint32_t from,
                   const void *packet, size_t bytes)
{
	struct ways_end *end = context;
	struct path came;
	const uint8_t *payload;
	size_t payload_bytes;
	(void)sim;
	(void)index;
	(void)from;
	if (!cable_unpack(packet, bytes, &came, &payload, &payload_bytes))
		return;
	adapter_take(end->adapter, &came, (came.ip.traffic_class & 3) == 3, payload, payload_bytes);
	drive(end);
}

/* --- messages --- */

static uint8_t *slot(struct ways_end *end, uint32_t number)
{
	return end->memory + (size_t)(number % MAX_DEPTH) * end->ways->config.message_bytes;
}

static void stamp(struct ways *w, uint8_t *at, uint32_t number)
{
	for (uint32_t i = 0; i + 4 <= w->config.message_bytes; i += 500)
		memcpy(at + i, &number, 4);
	memcpy(at + w->config.message_bytes - 4, &number, 4);
}

static bool stamped(const struct ways *w, const uint8_t *at, uint32_t number)
{
	bool good = memcmp(at + w->config.message_bytes - 4, &number, 4) == 0;
	for (uint32_t i = 0;
	     i + 4 <= w->config.message_bytes && i / 500 * 500 + 8 <= w->config.message_bytes;
	     i += 500)
		good = good && memcmp(at + i, &number, 4) == 0;
	return good;
}

/* Of a read the bytes are at B, and of whatever else at A. */
static void post(struct ways *w)
{
	struct ways_end *a = &w->ends[0], *b = &w->ends[1];
	uint32_t number = w->posted++;
	struct hdl_sge piece = {(uint64_t)(uintptr_t)slot(a, number), w->config.message_bytes,
	                        hdl_mr_key(a->mr)};
	struct hdl_send_wr wr = {.wr_id = number,
	                         .opcode = w->config.kind == WAYS_SEND    ? HDL_OP_SEND_IMM
	                                   : w->config.kind == WAYS_WRITE ? HDL_OP_WRITE_IMM
	                                                                  : HDL_OP_READ,
	                         .flags = HDL_SEND_SIGNALED,
	                         .imm = number,
	                         .num_sge = 1,
	                         .sg_list = &piece};
	stamp(w, slot(w->config.kind == WAYS_READ ? b : a, number), number);
	if (w->config.kind != WAYS_SEND) {
		wr.u.rdma.addr = (uint64_t)(uintptr_t)slot(b, number);
		wr.u.rdma.key = hdl_mr_key(b->mr);
	}
	if (hdl_post_send(a->qp, &wr, NULL) != 0)
		w->result->failed++;
}

static void post_receive(struct ways *w, uint32_t number)
{
	struct ways_end *b = &w->ends[1];
	struct hdl_sge piece = {(uint64_t)(uintptr_t)slot(b, number), w->config.message_bytes,
	                        hdl_mr_key(b->mr)};
	struct hdl_recv_wr wr = {.wr_id = number, .num_sge = 1, .sg_list = &piece};
	if (hdl_post_recv(b->qp, &wr, NULL) != 0)
		w->result->failed++;
}

static void arrived(struct ways *w, bool good)
{
	uint64_t now = sim_now_ns(w->sim);
	if (now - w->last_ns > w->result->longest_ns)
		w->result->longest_ns = now - w->last_ns;
	w->last_ns = now;
	w->result->failed += !good;
	if (now > w->config.from_ns)
		w->result->messages++;
}

static void collect(struct ways_end *end)
{
	struct ways *w = end->ways;
	struct hdl_wc wc[16];
	int count = hdl_cq_poll(end->cq, wc, 16);
	for (int i = 0; i < count; i++) {
		if (wc[i].status != HDL_WC_SUCCESS) {
			w->result->failed++;
			continue;
		}
		if (end->index == 1) { /* in order, once, whole */
			uint32_t number = w->received++;
			arrived(w, wc[i].imm == number && stamped(w, slot(end, number), number) &&
			                   wc[i].byte_len == w->config.message_bytes);
			post_receive(w, number + MAX_DEPTH);
			continue;
		}
		uint32_t number = w->done++;
		if (wc[i].wr_id != number)
			w->result->failed++;
		if (w->config.kind == WAYS_READ)
			arrived(w, stamped(w, slot(end, number), number));
		post(w);
	}
	struct hdl_event event;
	while (hdl_event_get(end->adapter, &event, 0) == 0)
		w->result->migrated += event.type == HDL_EVENT_PATH_MIG;
}

static void drive(struct ways_end *end)
{
	struct ways *w = end->ways;
	for (int turns = 0; turns < 64 && hdl_progress(end->adapter) > 0; turns++)
		;
	collect(end);
	hdl_progress(end->adapter);
	adapter_lock(end->adapter);
	uint64_t next = node_next_tick(&end->adapter->node), now = sim_now_ns(w->sim);
	if (node_stuck(&end->adapter->node))
		next = now + 1000;
	adapter_unlock(end->adapter);
	if (next <= now)
		next = now + 1;
	if (next == UINT64_MAX || (end->wake_ns > now && end->wake_ns <= next))
		return;
	end->wake_ns = next;
	sim_at(w->sim, next, wake, end, end->index);
}

/* --- setting up --- */

static bool open_end(struct ways *w, uint32_t index)
{
	struct ways_end *end = &w->ends[index];
	const struct sim_host_ops ops = {.receive = arrive};
	size_t bytes = (size_t)w->config.message_bytes * MAX_DEPTH;
	for (uint32_t line = 0; line < LINES; line++)
		end->gids[line] = (struct hdl_gid){
		        {0xfe, 0x80, [14] = (uint8_t)(line + 1), [15] = (uint8_t)(index + 1)}};
	struct hdl_open_attr attr = {
	        .max_qp = 16, .max_mr = 16, .no_thread = true, .gid = end->gids[0]};
	struct adapter_env env = {.clock = sim_clock(w->sim),
	                          .seed = w->config.seed * 131 + index + 1,
	                          .carrier = &end->cable.carrier,
	                          .second_gid = end->gids[1]};
	end->ways = w;
	end->index = index;
	cable_init(&end->cable, out, room, end);
	end->memory = calloc(1, bytes);
	if (end->memory == NULL || adapter_open(&attr, &env, &end->adapter) != 0)
		return false;
	for (uint32_t line = 0; line < LINES; line++)
		sim_host_attach(w->sim, index * LINES + line, &ops, end);
	uint32_t access = HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE | HDL_ACCESS_REMOTE_READ |
	                  HDL_ACCESS_REMOTE_WRITE;
	if (hdl_pd_create(end->adapter, &end->pd) != 0 ||
	    hdl_cq_create(end->adapter, 64, NULL, NULL, &end->cq) != 0 ||
	    hdl_mr_register(end->pd, end->memory, bytes, access, &end->mr) != 0)
		return false;
	struct hdl_qp_init_attr init = {.type = HDL_QP_RC,
	                                .send_cq = end->cq,
	                                .recv_cq = end->cq,
	                                .cap = {MAX_DEPTH, MAX_DEPTH, 1, 1, 0}};
	return hdl_qp_create(end->pd, &init, &end->qp) == 0;
}

static bool connect_end(struct ways *w, uint32_t index)
{
	struct ways_end *end = &w->ends[index], *other = &w->ends[!index];
	struct hdl_qp_attr attr = {
	        .state = HDL_QPS_INIT,
	        .port_num = 1,
	        .access = HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE,
	        .ah = {.dgid = other->gids[0], .is_global = true},
	        .path_mtu = (uint16_t)w->config.mtu,
	        .dest_qpn = hdl_qp_number(other->qp),
	        .rq_psn = 0xfffff0, /* the numbers wrap soon */
	        .sq_psn = 0xfffff0,
	        .timeout = w->config.timeout,
	        .retry_cnt = w->config.retry_cnt,
	        .rnr_retry = 7,
	        .min_rnr_timer = 1,
	        .max_rd_atomic = 16,
	        .max_dest_rd_atomic = 16,
	        .alt_ah = {.dgid = other->gids[1], .sgid_index = 1, .is_global = true},
	        .alt_port_num = 1,
	        .alt_timeout = w->config.timeout,
	        .stripe = STRIPE};
	if (hdl_qp_modify(end->qp, &attr,
	                  HDL_QP_STATE | HDL_QP_PKEY_INDEX | HDL_QP_PORT | HDL_QP_ACCESS) != 0)
		return false;
	attr.state = HDL_QPS_RTR;
	uint32_t mask = HDL_QP_STATE | HDL_QP_AV | HDL_QP_PATH_MTU | HDL_QP_DEST_QPN |
	                HDL_QP_RQ_PSN | HDL_QP_MAX_DEST_RD_ATOMIC | HDL_QP_MIN_RNR_TIMER;
	if (w->config.use != WAYS_FIRST_ONLY)
		mask |= HDL_QP_ALT_PATH;
	if (w->config.use == WAYS_STRIPE)
		mask |= HDL_QP_STRIPE;
	if (hdl_qp_modify(end->qp, &attr, mask) != 0)
		return false;
	attr.state = HDL_QPS_RTS;
	attr.path_mig_state = HDL_MIG_REARM;
	return hdl_qp_modify(end->qp, &attr,
	                     HDL_QP_STATE | HDL_QP_SQ_PSN | HDL_QP_TIMEOUT | HDL_QP_RETRY_CNT |
	                             HDL_QP_RNR_RETRY | HDL_QP_MAX_RD_ATOMIC |
	                             (w->config.use == WAYS_MIGRATE ? HDL_QP_PATH_MIG_STATE : 0)) ==
	       0;
}

static bool furnish(struct ways *w)
{
	const struct ways_config *config = &w->config;
	struct sim_config network = {.seed = config->seed,
	                             .host_count = 2 * LINES,
	                             .event_capacity = EVENTS,
	                             .packet_capacity = PACKETS,
	                             .packet_bytes = CABLE_BYTES};
	if (sim_create(&network, &w->sim) != 0)
		return false;
	bool good = true;
	for (uint32_t line = 0; line < LINES; line++) {
		struct sim_link link = {.delay_min_ns = config->delay_ns[line],
		                        .delay_max_ns = config->delay_ns[line],
		                        .bandwidth_bps = config->bandwidth_bps,
		                        .queue_bytes = config->buffer_bytes,
		                        .loss_permille = config->loss_permille};
		good = good && sim_link_set(w->sim, line, LINES + line, &link) == 0 &&
		       sim_link_set(w->sim, LINES + line, line, &link) == 0;
		if (config->cut_ns[line] != 0)
			good = good &&
			       sim_partition(w->sim, 1ull << line, 1ull << (LINES + line),
			                     config->cut_ns[line],
			                     config->mended_ns[line] != 0 ? config->mended_ns[line]
			                                                  : SIM_MAX_TIME_NS) == 0;
	}
	good = good && open_end(w, 0) && open_end(w, 1) && connect_end(w, 1) && connect_end(w, 0);
	for (uint32_t i = 0; good && i < MAX_DEPTH; i++)
		post_receive(w, i);
	for (uint32_t i = 0; good && i < config->depth; i++)
		post(w);
	if (good)
		drive(&w->ends[0]);
	return good;
}

static void demolish(struct ways *w)
{
	for (uint32_t i = 0; i < 2; i++) {
		struct ways_end *end = &w->ends[i];
		if (end->qp != NULL)
			hdl_qp_destroy(end->qp);
		if (end->mr != NULL)
			hdl_mr_deregister(end->mr);
		if (end->cq != NULL)
			hdl_cq_destroy(end->cq);
		if (end->pd != NULL)
			hdl_pd_destroy(end->pd);
		if (end->adapter != NULL)
			hdl_close(end->adapter);
		free(end->memory);
	}
	sim_destroy(w->sim);
	free(w);
}

bool ways_run(const struct ways_config *config, struct ways_result *result)
{
	struct ways *w = calloc(1, sizeof(*w));
	*result = (struct ways_result){0};
	if (w == NULL)
		return false;
	w->config = *config;
	w->result = result;
	bool good = furnish(w);
	if (good) {
		sim_run(w->sim, config->duration_ns, MAX_EVENTS);
		arrived(w, true);
		result->messages--;
		result->goodput = (double)result->messages * config->message_bytes * 1e9 /
		                  (double)(config->duration_ns - config->from_ns);
		result->hash = sim_hash(w->sim);
	}
	demolish(w);
	return good;
}
