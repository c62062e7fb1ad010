/* The rig of the scenarios that measure; see crowd.h. */
#include "crowd.h"

#include <stdlib.h>
#include <string.h>

#include <heddle/heddle.h>

#include "adapter/adapter.h"
#include "guard.h"
#include "station.h"
#include "transport/ib/ib.h"

#define PACKETS     16384u
#define EVENTS      1024u
#define MAX_DEPTH   8u
#define HOST_QUEUE  (1u << 20) /* a host's own line takes whatever it sends: */
#define HOST_ROOM   131072u    /* it sends no more than so many bytes at once */
#define TRAFFIC_AT  40u        /* cable_pack(): the traffic class */
#define CONGESTED   3u
#define QUEUE_EVERY 10000u /* ns between two looks at the queue */
#define MAX_EVENTS  200000000u
#define FIRST_PSN   1000u
#define PATIENT     14u /* timeout: 67 ms */

struct flow {
	struct station *end[2]; /* 0: who posts the messages */
	struct hdl_qp *qp[2];
	uint8_t *to; /* where the messages arrive */
	struct hdl_key to_key, from_key;
	uint64_t from;
	uint32_t posted;
	uint32_t last_psn;
	uint64_t packets; /* acknowledged, in the time that is measured */
};

struct crowd {
	struct crowd_config config;
	struct sim *sim;
	struct station hosts[CROWD_MAX_FLOWS + 1];
	struct flow flows[CROWD_MAX_FLOWS];
	uint64_t queue_sum, queue_looks;
	struct crowd_result *result;
};

/* --- the network --- */

static bool mark(void *packet, size_t bytes)
{
	uint8_t *traffic = (uint8_t *)packet + TRAFFIC_AT;
	if (bytes <= TRAFFIC_AT || (*traffic & 3u) == 0)
		return false;
	*traffic |= CONGESTED;
	return true;
}

static void out(void *context, const struct path *path, const uint8_t *payload, size_t bytes)
{
	struct station *from = context;
	struct crowd *c = from->config.rig;
	uint8_t data[CABLE_BYTES];
	size_t all = cable_pack(data, path, payload, bytes);
	station_busy(from, 0, all);
	for (uint32_t i = 0; i <= c->config.flows; i++)
		if (memcmp(c->hosts[i].config.gids[0].raw, path->ip.dgid, 16) == 0)
			sim_send(c->sim, from->config.index, i, data, all);
}

/* --- messages --- */

static uint8_t pattern(uint32_t flow, uint32_t message, uint32_t at)
{
	return (uint8_t)(flow * 31 + message * 7 + at / 64);
}

static void post(struct crowd *c, struct flow *f)
{
	struct hdl_sge piece = {f->from, c->config.message_bytes, f->from_key};
	struct hdl_send_wr wr = {.wr_id = f->posted++,
	                         .opcode = c->config.kind == CROWD_WRITE  ? HDL_OP_WRITE
	                                   : c->config.kind == CROWD_SEND ? HDL_OP_SEND
	                                                                  : HDL_OP_READ,
	                         .flags = HDL_SEND_SIGNALED,
	                         .num_sge = 1,
	                         .sg_list = &piece};
	if (c->config.kind == CROWD_READ)
		piece = (struct hdl_sge){(uint64_t)(uintptr_t)f->to, c->config.message_bytes,
		                         f->to_key};
	if (c->config.kind == CROWD_WRITE) {
		wr.u.rdma.addr = (uint64_t)(uintptr_t)f->to;
		wr.u.rdma.key = f->to_key;
	} else if (c->config.kind == CROWD_READ) {
		wr.u.rdma.addr = f->from;
		wr.u.rdma.key = f->from_key;
	}
	if (hdl_post_send(f->qp[0], &wr, NULL) != 0)
		c->result->failed++;
}

static void post_receive(struct crowd *c, struct flow *f)
{
	struct hdl_sge piece = {(uint64_t)(uintptr_t)f->to, c->config.message_bytes, f->to_key};
	struct hdl_recv_wr wr = {
	        .wr_id = (uint64_t)(f - c->flows), .num_sge = 1, .sg_list = &piece};
	if (hdl_post_recv(f->qp[1], &wr, NULL) != 0)
		c->result->failed++;
}

static void collect(struct station *host)
{
	struct crowd *c = host->config.rig;
	struct hdl_wc wc[16];
	int count = hdl_cq_poll(host->cq, wc, 16);
	for (int i = 0; i < count; i++) {
		bool receive = wc[i].opcode == HDL_WC_RECV;
		struct flow *f = NULL;
		/* Numbers are of one adapter: look among the ends that this host has. */
		for (uint32_t n = 0; n < c->config.flows && f == NULL; n++)
			if (c->flows[n].end[receive] == host &&
			    hdl_qp_number(c->flows[n].qp[receive]) == wc[i].qpn)
				f = &c->flows[n];
		if (f == NULL || wc[i].status != HDL_WC_SUCCESS) {
			c->result->failed++;
			continue;
		}
		if (receive || c->config.kind != CROWD_SEND) {
			uint32_t end = c->config.message_bytes - 1;
			uint32_t flow = (uint32_t)(f - c->flows);
			for (uint32_t at = 0; at < end; at += 997)
				if (f->to[at] != pattern(flow, 0, at))
					c->result->wrong++;
			c->result->wrong += f->to[end] != pattern(flow, 0, end);
		}
		if (receive)
			post_receive(c, f);
		else
			post(c, f);
	}
}

/* --- setting up --- */

static bool open_host(struct crowd *c, uint32_t index)
{
	struct station *host = &c->hosts[index];
	struct station_config config = {
	        .sim = c->sim,
	        .index = index,
	        .seed = c->config.seed * 131 + index + 1,
	        .gids = {{{0xfe, 0x80, [14] = 1, [15] = (uint8_t)(index + 1)}}},
	        .max_qp = 128,
	        .cq_entries = 4096,
	        .memory_bytes =
	                (size_t)c->config.message_bytes * (index == 0 ? c->config.flows : 1),
	        .bandwidth_bps = c->config.bandwidth_bps,
	        .room_bytes = HOST_ROOM,
	        .rig = c,
	        .out = out,
	        .collect = collect};
	if (!station_open(host, &config))
		return false;
	station_attach(host, index);
	return true;
}

static bool to_ready(struct crowd *c, struct flow *f, int end)
{
	struct hdl_qp_attr attr = {.port_num = 1,
	                           .access = HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE,
	                           .ah = {.dgid = f->end[!end]->config.gids[0], .is_global = true},
	                           .path_mtu = (uint16_t)c->config.mtu,
	                           .dest_qpn = hdl_qp_number(f->qp[!end]),
	                           .rq_psn = FIRST_PSN,
	                           .sq_psn = FIRST_PSN,
	                           .timeout = PATIENT,
	                           .retry_cnt = 7,
	                           .rnr_retry = 7,
	                           .min_rnr_timer = 12,
	                           .max_rd_atomic = 16,
	                           .max_dest_rd_atomic = 16};
	return station_connect(f->qp[end], attr, 0, 0);
}

static bool connect_flow(struct crowd *c, uint32_t index)
{
	struct flow *f = &c->flows[index];
	struct station *many = &c->hosts[index + 1], *one = &c->hosts[0];
	bool reads = c->config.kind == CROWD_READ;
	f->end[0] = reads ? one : many;
	f->end[1] = reads ? many : one;
	f->to = one->memory + (size_t)index * c->config.message_bytes;
	f->to_key = hdl_mr_key(one->mr);
	f->from = (uint64_t)(uintptr_t)many->memory;
	f->from_key = hdl_mr_key(many->mr);
	for (uint32_t at = 0; at < c->config.message_bytes; at++)
		many->memory[at] = pattern(index, 0, at);
	for (int end = 0; end < 2; end++)
		f->qp[end] = station_qp(f->end[end], MAX_DEPTH * 2);
	if (f->qp[0] == NULL || f->qp[1] == NULL)
		return false;
	if (!to_ready(c, f, 1) || !to_ready(c, f, 0))
		return false;
	for (uint32_t i = 0; c->config.kind == CROWD_SEND && i < 2 * c->config.depth; i++)
		post_receive(c, f);
	f->last_psn = FIRST_PSN;
	return true;
}

static void begin(struct sim *sim, void *context, uint64_t index)
{
	struct crowd *c = context;
	struct flow *f = &c->flows[index];
	(void)sim;
	for (uint32_t i = 0; i < c->config.depth; i++)
		post(c, f);
	station_drive(f->end[0]);
}

/* What the flows have done so far, and what is queued at the ingress. */
static void look(struct sim *sim, void *context, uint64_t arg)
{
	struct crowd *c = context;
	(void)arg;
	bool counts = sim_now_ns(sim) > c->config.from_ns;
	for (uint32_t i = 0; i < c->config.flows; i++) {
		struct flow *f = &c->flows[i];
		uint32_t una = f->qp[0]->qp.ib->una_psn;
		if (counts)
			f->packets += ib_psn(una - f->last_psn);
		f->last_psn = una;
	}
	c->queue_sum += sim_ingress_bytes(sim, 0);
	c->queue_looks++;
	sim_at(sim, sim_now_ns(sim) + QUEUE_EVERY, look, c, 0);
}

static bool furnish(struct crowd *c)
{
	const struct crowd_config *config = &c->config;
	struct sim_config network = {.seed = config->seed,
	                             .host_count = config->flows + 1,
	                             .event_capacity = EVENTS,
	                             .packet_capacity = PACKETS,
	                             .packet_bytes = CABLE_BYTES};
	struct sim_link link = {.delay_min_ns = config->round_trip_ns / 2,
	                        .delay_max_ns = config->round_trip_ns / 2,
	                        .bandwidth_bps = config->bandwidth_bps,
	                        .queue_bytes = HOST_QUEUE,
	                        .loss_permille = config->loss_permille};
	struct sim_ingress ingress = {.bandwidth_bps = config->bandwidth_bps,
	                              .queue_bytes = config->buffer_bytes,
	                              .mark_bytes = config->mark_bytes,
	                              .mark = config->marks ? mark : NULL};
	if (sim_create(&network, &c->sim) != 0)
		return false;
	bool good =
	        sim_link_set_all(c->sim, &link) == 0 && sim_ingress_set(c->sim, 0, &ingress) == 0;
	for (uint32_t i = 0; i <= config->flows && good; i++)
		good = open_host(c, i);
	for (uint32_t i = 0; i < config->flows && good; i++)
		good = connect_flow(c, i);
	for (uint32_t i = 0; i < config->flows && good; i++)
		sim_at(c->sim, i * config->late_ns, begin, c, i);
	if (good)
		sim_at(c->sim, 0, look, c, 0);
	return good;
}

/* --- the end --- */

static void sum_up(struct crowd *c)
{
	struct crowd_result *r = c->result;
	double sum = 0, squares = 0, least = -1;
	uint32_t mtu = c->config.mtu, overhead = CABLE_PATH_BYTES + IB_BTH_BYTES + IB_ICRC_BYTES;
	for (uint32_t i = 0; i < c->config.flows; i++) {
		double bytes = (double)c->flows[i].packets * mtu;
		sum += bytes;
		squares += bytes * bytes;
		least = least < 0 || bytes < least ? bytes : least;
	}
	double seconds = (double)(c->config.duration_ns - c->config.from_ns) / 1e9;
	double most = (double)c->config.bandwidth_bps / 8 * seconds * mtu / (mtu + overhead);
	r->goodput = sum / most;
	r->fairness = squares > 0 ? sum * sum / (squares * c->config.flows) : 0;
	r->slowest = sum > 0 ? least * c->config.flows / sum : 0;
	r->queue = (double)c->queue_sum / (double)(c->queue_looks + !c->queue_looks);
	r->dropped = sim_count(c->sim, SIM_QUEUE_FULL);
	r->marked = sim_count(c->sim, SIM_MARKED);
	r->hash = sim_hash(c->sim);
	for (uint32_t i = 0; i <= c->config.flows; i++) {
		const struct counter *counters = c->hosts[i].adapter->engine.counters;
		r->retries += counter_read(&counters[ENGINE_RETRIES]);
		r->timeouts += counter_read(&counters[ENGINE_TIMEOUTS]);
	}
}

static void demolish(struct crowd *c)
{
	for (uint32_t i = 0; i < c->config.flows; i++)
		for (int end = 0; end < 2; end++)
			if (c->flows[i].qp[end] != NULL)
				hdl_qp_destroy(c->flows[i].qp[end]);
	for (uint32_t i = 0; i <= c->config.flows; i++)
		station_close(&c->hosts[i]);
	sim_destroy(c->sim);
	free(c);
}

bool crowd_run(const struct crowd_config *config, struct crowd_result *result)
{
	struct crowd *c = calloc(1, sizeof(*c));
	*result = (struct crowd_result){0};
	if (c == NULL)
		return false;
	c->config = *config;
	c->result = result;
	bool good = furnish(c);
	if (good) {
		guard_sim_run(c->sim, config->duration_ns, MAX_EVENTS);
		sum_up(c);
	}
	demolish(c);
	return good;
}
