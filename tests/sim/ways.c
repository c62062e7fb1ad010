/* The rig of the scenarios about paths; see ways.h. Each end is two hosts of the network, one a
 * line. */
#include "ways.h"

#include <stdlib.h>
#include <string.h>

#include <heddle/heddle.h>

#include "guard.h"
#include "station.h"

#define PACKETS    16384u
#define EVENTS     256u
#define MAX_DEPTH  8u
#define LINES      STATION_LINES
#define HOST_ROOM  65536u
#define MAX_EVENTS 100000000u
#define STRIPE     1024u

struct ways {
	struct ways_config config;
	struct ways_result *result;
	struct sim *sim;
	struct station ends[2]; /* A, B */
	struct hdl_qp *qps[2];
	uint32_t posted, done, received;
	uint64_t last_ns;
};

/* --- the network --- */

static void out(void *context, const struct path *path, const uint8_t *payload, size_t bytes)
{
	struct station *from = context;
	const struct station_config *config = &from->config;
	uint8_t data[CABLE_BYTES];
	size_t all = cable_pack(data, path, payload, bytes);
	for (uint32_t line = 0; line < LINES; line++) {
		if (memcmp(config->gids[line].raw, path->ip.sgid, 16) != 0)
			continue;
		station_busy(from, line, all);
		sim_send(config->sim, config->index * LINES + line, !config->index * LINES + line,
		         data, all);
	}
}

/* --- messages --- */

static uint8_t *slot(struct station *end, uint32_t number)
{
	const struct ways *w = end->config.rig;
	return end->memory + (size_t)(number % MAX_DEPTH) * w->config.message_bytes;
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
	struct station *a = &w->ends[0], *b = &w->ends[1];
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
	if (hdl_post_send(w->qps[0], &wr, NULL) != 0)
		w->result->failed++;
}

static void post_receive(struct ways *w, uint32_t number)
{
	struct station *b = &w->ends[1];
	struct hdl_sge piece = {(uint64_t)(uintptr_t)slot(b, number), w->config.message_bytes,
	                        hdl_mr_key(b->mr)};
	struct hdl_recv_wr wr = {.wr_id = number, .num_sge = 1, .sg_list = &piece};
	if (hdl_post_recv(w->qps[1], &wr, NULL) != 0)
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

static void collect(struct station *end)
{
	struct ways *w = end->config.rig;
	struct hdl_wc wc[16];
	int count = hdl_cq_poll(end->cq, wc, 16);
	for (int i = 0; i < count; i++) {
		if (wc[i].status != HDL_WC_SUCCESS) {
			w->result->failed++;
			continue;
		}
		if (end->config.index == 1) { /* in order, once, whole */
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

/* --- setting up --- */

static bool open_end(struct ways *w, uint32_t index)
{
	struct station *end = &w->ends[index];
	struct station_config config = {.sim = w->sim,
	                                .index = index,
	                                .seed = w->config.seed * 131 + index + 1,
	                                .max_qp = 16,
	                                .cq_entries = 64,
	                                .memory_bytes = (size_t)w->config.message_bytes * MAX_DEPTH,
	                                .bandwidth_bps = w->config.bandwidth_bps,
	                                .room_bytes = HOST_ROOM,
	                                .rig = w,
	                                .out = out,
	                                .collect = collect};
	for (uint32_t line = 0; line < LINES; line++)
		config.gids[line] = (struct hdl_gid){
		        {0xfe, 0x80, [14] = (uint8_t)(line + 1), [15] = (uint8_t)(index + 1)}};
	if (!station_open(end, &config))
		return false;
	for (uint32_t line = 0; line < LINES; line++)
		station_attach(end, index * LINES + line);
	w->qps[index] = station_qp(end, MAX_DEPTH);
	return w->qps[index] != NULL;
}

static bool connect_end(struct ways *w, uint32_t index)
{
	const struct hdl_gid *other = w->ends[!index].config.gids;
	struct hdl_qp_attr attr = {.port_num = 1,
	                           .access = HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE,
	                           .ah = {.dgid = other[0], .is_global = true},
	                           .path_mtu = (uint16_t)w->config.mtu,
	                           .dest_qpn = hdl_qp_number(w->qps[!index]),
	                           .rq_psn = 0xfffff0, /* the numbers wrap soon */
	                           .sq_psn = 0xfffff0,
	                           .timeout = w->config.timeout,
	                           .retry_cnt = w->config.retry_cnt,
	                           .rnr_retry = 7,
	                           .min_rnr_timer = 1,
	                           .max_rd_atomic = 16,
	                           .max_dest_rd_atomic = 16,
	                           .alt_ah = {.dgid = other[1], .sgid_index = 1, .is_global = true},
	                           .alt_port_num = 1,
	                           .alt_timeout = w->config.timeout,
	                           .path_mig_state = HDL_MIG_REARM,
	                           .stripe = STRIPE};
	uint32_t on_ready = w->config.use != WAYS_FIRST_ONLY ? HDL_QP_ALT_PATH : 0;
	if (w->config.use == WAYS_STRIPE)
		on_ready |= HDL_QP_STRIPE;
	return station_connect(w->qps[index], attr, on_ready,
	                       w->config.use == WAYS_MIGRATE ? HDL_QP_PATH_MIG_STATE : 0);
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
		station_drive(&w->ends[0]);
	return good;
}

static void demolish(struct ways *w)
{
	for (uint32_t i = 0; i < 2; i++) {
		if (w->qps[i] != NULL)
			hdl_qp_destroy(w->qps[i]);
		station_close(&w->ends[i]);
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
		guard_sim_run(w->sim, config->duration_ns, MAX_EVENTS);
		arrived(w, true);
		result->messages--;
		result->goodput = (double)result->messages * config->message_bytes * 1e9 /
		                  (double)(config->duration_ns - config->from_ns);
		result->hash = sim_hash(w->sim);
	}
	demolish(w);
	return good;
}
