/* 'cells': two to four adapters that speak cells, every two connected, on a network that loses,
 * doubles, reorders and damages as the seed says (PP2, PP3). Both ends of each connection send,
 * write and read at the same time. Everything on these acknowledged channels succeeds, arrives once
 * and in order, and is whole; nothing else changes. */
#include "scenario.h"

#include <stdlib.h>
#include <string.h>

#include <heddle/heddle.h>

#include "base/prng.h"
#include "guard.h"
#include "station.h"

#define HOSTS      4u
#define MESSAGES   24u   /* of each end */
#define SLOT       4096u /* bytes for each, at most SLOT of which are used */
#define AREA       (MESSAGES * SLOT)
#define OUT        0u         /* in the part of each peer: what is sent, */
#define IN         AREA       /* what arrives in receives, */
#define WRITTEN    (2 * AREA) /* by writes, */
#define READ       (3 * AREA) /* and by reads */
#define PART       (4 * AREA)
#define PACKETS    8192u
#define EVENTS     256u
#define LINE_BPS   10000000000ull
#define LIMIT_NS   60000000000ull
#define MAX_EVENTS 50000000u
#define IN_FLIGHT  8u

struct cells_world;

/* One end of a connection: of host @at, to host @to. */
struct cells_end {
	struct cells_world *world;
	uint32_t at, to;
	struct hdl_qp *qp;
	uint32_t posted, done, received;
	uint32_t received_slot[MESSAGES], received_bytes[MESSAGES];
};

struct cells_world {
	struct scenario_run *run;
	struct sim *sim;
	uint32_t hosts;
	struct station stations[HOSTS];
	struct cells_end ends[HOSTS][HOSTS];
};

/* What message @number of an end is, from the seed alone. */
struct cells_message {
	uint32_t opcode, length;
};

static struct cells_message cells_message(const struct cells_end *end, uint32_t number)
{
	static const uint32_t opcodes[] = {HDL_OP_SEND, HDL_OP_WRITE, HDL_OP_READ, HDL_OP_WRITE_IMM,
	                                   HDL_OP_SEND_IMM};
	static const uint32_t edges[] = {0, 1, 255, 256, 257, 512, SLOT - 1, SLOT};
	struct prng prng;
	prng_seed(&prng, end->world->run->seed * 1000003 + end->at * 4096 + end->to * 256 + number);
	uint32_t length = prng_below(&prng, 2) ? edges[prng_below(&prng, 8)]
	                                       : (uint32_t)prng_below(&prng, SLOT + 1);
	return (struct cells_message){opcodes[prng_below(&prng, 5)], length};
}

static uint8_t cells_byte(uint32_t from, uint32_t to, uint32_t number, uint32_t at)
{
	return (uint8_t)(from * 61 + to * 17 + number * 7 + at + at / 256);
}

static uint8_t *cells_part(struct cells_world *w, uint32_t host, uint32_t peer)
{
	return w->stations[host].memory + (size_t)peer * PART;
}

/* --- the network --- */

static void cells_out(void *context, const struct path *path, const uint8_t *payload, size_t bytes)
{
	struct station *from = context;
	struct cells_world *w = from->config.rig;
	uint8_t data[CABLE_BYTES];
	size_t all = cable_pack(data, path, payload, bytes);
	station_busy(from, 0, all);
	for (uint32_t i = 0; i < w->hosts; i++)
		if (memcmp(w->stations[i].config.gids[0].raw, path->ip.dgid, 16) == 0)
			sim_send(w->sim, from->config.index, i, data, all);
}

/* --- messages --- */

static void cells_post(struct cells_end *end)
{
	struct cells_world *w = end->world;
	struct station *own = &w->stations[end->at], *peer = &w->stations[end->to];
	uint32_t number = end->posted++;
	struct cells_message message = cells_message(end, number);
	bool reads = message.opcode == HDL_OP_READ;
	uint8_t *mine = cells_part(w, end->at, end->to) + (reads ? READ : OUT) + number * SLOT;
	uint8_t *theirs = cells_part(w, end->to, end->at) + (reads ? OUT : WRITTEN) + number * SLOT;
	struct hdl_sge piece = {(uint64_t)(uintptr_t)mine, message.length, hdl_mr_key(own->mr)};
	struct hdl_send_wr wr = {.wr_id = number,
	                         .opcode = message.opcode,
	                         .flags = HDL_SEND_SIGNALED,
	                         .imm = number,
	                         .sg_list = &piece,
	                         .num_sge = 1};
	wr.u.rdma.addr = (uint64_t)(uintptr_t)theirs;
	wr.u.rdma.key = hdl_mr_key(peer->mr);
	if (hdl_post_send(end->qp, &wr, NULL) != 0)
		scenario_fail(w->run, "host %u could not post message %u", end->at, number);
}

static void cells_completed(struct cells_end *end, const struct hdl_wc *wc)
{
	struct cells_world *w = end->world;
	if (wc->status != HDL_WC_SUCCESS)
		scenario_fail(w->run, "host %u to %u: message %u: %s", end->at, end->to,
		              (unsigned)wc->wr_id, hdl_wc_status_str(wc->status));
	if (wc->opcode >= HDL_WC_RECV) {
		if (end->received == MESSAGES)
			return;
		end->received_slot[end->received] = (uint32_t)wc->wr_id;
		end->received_bytes[end->received++] = wc->byte_len;
		return;
	}
	if (wc->wr_id != end->done)
		scenario_fail(w->run, "host %u to %u: %u completed instead of %u", end->at, end->to,
		              (unsigned)wc->wr_id, end->done);
	end->done++;
	if (end->posted < MESSAGES)
		cells_post(end);
}

static void cells_collect(struct station *station)
{
	struct cells_world *w = station->config.rig;
	struct hdl_wc wc;
	while (hdl_cq_poll(station->cq, &wc, 1) == 1)
		for (uint32_t peer = 0; peer < w->hosts; peer++) {
			struct cells_end *end = &w->ends[station->config.index][peer];
			if (end->qp != NULL && hdl_qp_number(end->qp) == wc.qpn)
				cells_completed(end, &wc);
		}
}

/* --- the beginning --- */

static bool cells_open(struct cells_world *w, uint32_t index)
{
	struct station_config config = {
	        .sim = w->sim,
	        .index = index,
	        .seed = w->run->seed + index + 1,
	        .gids = {{{0xfe, 0x80, [14] = 3, [15] = (uint8_t)(index + 1)}}},
	        .max_qp = 16,
	        .cq_entries = 1024,
	        .memory_bytes = HOSTS * PART,
	        .bandwidth_bps = LINE_BPS,
	        .room_bytes = 1u << 17,
	        .cells = true,
	        .rig = w,
	        .out = cells_out,
	        .collect = cells_collect};
	if (!station_open(&w->stations[index], &config))
		return false;
	station_attach(&w->stations[index], index);
	return true;
}

static bool cells_connect(struct cells_world *w, uint32_t at, uint32_t to)
{
	struct cells_end *end = &w->ends[at][to];
	struct station *own = &w->stations[at];
	struct hdl_qp_attr attr = {
	        .port_num = 1,
	        .access = HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE,
	        .ah = {.dgid = w->stations[to].config.gids[0], .is_global = true, .port_num = 1},
	        .path_mtu = 256,
	        .dest_qpn = hdl_qp_number(w->ends[to][at].qp),
	        .rq_psn = 0xfffff8 + to,
	        .sq_psn = 0xfffff8 + at,
	        .timeout = 8,
	        .retry_cnt = 7,
	        .rnr_retry = 7,
	        .min_rnr_timer = 4,
	        .max_rd_atomic = 4,
	        .max_dest_rd_atomic = 4};
	if (!station_connect(end->qp, attr, 0, 0))
		return false;
	for (uint32_t i = 0; i < MESSAGES; i++) {
		uint8_t *memory = cells_part(w, at, to);
		struct hdl_sge piece = {(uint64_t)(uintptr_t)(memory + IN + i * SLOT), SLOT,
		                        hdl_mr_key(own->mr)};
		struct hdl_recv_wr wr = {.wr_id = i, .sg_list = &piece, .num_sge = 1};
		for (uint32_t b = 0; b < SLOT; b++)
			memory[OUT + i * SLOT + b] = cells_byte(at, to, i, b);
		if (hdl_post_recv(end->qp, &wr, NULL) != 0)
			return false;
	}
	return true;
}

static void cells_begin(struct sim *sim, void *context, uint64_t index)
{
	struct cells_world *w = context;
	(void)sim;
	for (uint32_t to = 0; to < w->hosts; to++)
		for (uint32_t i = 0; to != index && i < IN_FLIGHT; i++)
			cells_post(&w->ends[index][to]);
	station_drive(&w->stations[index]);
}

static bool cells_furnish(struct cells_world *w)
{
	struct prng prng;
	prng_seed(&prng, w->run->seed);
	w->hosts = 2 + (uint32_t)prng_below(&prng, HOSTS - 1);
	struct sim_config network = {.seed = w->run->seed,
	                             .host_count = w->hosts,
	                             .event_capacity = EVENTS,
	                             .packet_capacity = PACKETS,
	                             .packet_bytes = CABLE_BYTES};
	struct sim_link link = {.delay_min_ns = 500,
	                        .delay_max_ns = 500 + prng_below(&prng, 5000),
	                        .bandwidth_bps = LINE_BPS,
	                        .queue_bytes = 1u << 20,
	                        .loss_permille = (uint32_t)prng_below(&prng, 31),
	                        .duplicate_permille = (uint32_t)prng_below(&prng, 31),
	                        .reorder_permille = (uint32_t)prng_below(&prng, 31),
	                        .reorder_ns = 8000,
	                        .flip_permille = (uint32_t)prng_below(&prng, 21),
	                        .flip_bits_max = 3,
	                        .truncate_permille = (uint32_t)prng_below(&prng, 11)};
	if (sim_create(&network, &w->sim) != 0 || sim_link_set_all(w->sim, &link) != 0)
		return false;
	for (uint32_t i = 0; i < w->hosts; i++)
		if (!cells_open(w, i))
			return false;
	for (uint32_t i = 0; i < w->hosts * w->hosts; i++) {
		struct cells_end *end = &w->ends[i / w->hosts][i % w->hosts];
		*end = (struct cells_end){.world = w, .at = i / w->hosts, .to = i % w->hosts};
		if (end->at != end->to &&
		    (end->qp = station_qp(&w->stations[end->at], 2 * MESSAGES)) == NULL)
			return false;
	}
	for (uint32_t i = 0; i < w->hosts * w->hosts; i++)
		if (i / w->hosts != i % w->hosts && !cells_connect(w, i / w->hosts, i % w->hosts))
			return false;
	for (uint32_t i = 0; i < w->hosts; i++)
		sim_at(w->sim, i * 1000, cells_begin, w, i);
	return true;
}

/* --- the end --- */

static bool cells_holds(const uint8_t *memory, uint32_t from, uint32_t to, uint32_t number,
                        uint32_t length)
{
	for (uint32_t b = 0; b < SLOT; b++)
		if (memory[b] != (b < length ? cells_byte(from, to, number, b) : 0))
			return false;
	return true;
}

static void cells_check(struct cells_world *w, struct cells_end *from)
{
	struct cells_end *to = &w->ends[from->to][from->at];
	uint8_t *there = cells_part(w, from->to, from->at),
	        *here = cells_part(w, from->at, from->to);
	uint32_t receives = 0;
	if (from->done != MESSAGES)
		scenario_fail(w->run, "host %u to %u: %u of %u messages completed", from->at,
		              from->to, from->done, MESSAGES);
	for (uint32_t i = 0; i < MESSAGES && !w->run->failed; i++) {
		struct cells_message message = cells_message(from, i);
		bool sends = message.opcode == HDL_OP_SEND || message.opcode == HDL_OP_SEND_IMM;
		bool writes = message.opcode == HDL_OP_WRITE || message.opcode == HDL_OP_WRITE_IMM;
		bool good = cells_holds(there + WRITTEN + i * SLOT, from->at, from->to, i,
		                        writes ? message.length : 0) &&
		            cells_holds(here + READ + i * SLOT, from->to, from->at, i,
		                        message.opcode == HDL_OP_READ ? message.length : 0);
		if (sends || message.opcode == HDL_OP_WRITE_IMM) {
			good = good && receives < to->received &&
			       to->received_slot[receives] == receives &&
			       to->received_bytes[receives] == message.length &&
			       cells_holds(there + IN + receives * SLOT, from->at, from->to, i,
			                   sends ? message.length : 0);
			receives++;
		}
		if (!good)
			scenario_fail(w->run, "host %u to %u: message %u is not as it was sent",
			              from->at, from->to, i);
	}
	if (!w->run->failed && to->received != receives)
		scenario_fail(w->run, "host %u to %u: %u messages arrived, not %u", from->at,
		              from->to, to->received, receives);
}

static void cells_play(struct scenario_run *run)
{
	struct cells_world *w = calloc(1, sizeof(*w));
	if (w == NULL) {
		scenario_fail(run, "no memory");
		return;
	}
	w->run = run;
	if (cells_furnish(w)) {
		guard_sim_run(w->sim, LIMIT_NS, MAX_EVENTS);
		for (uint32_t i = 0; i < w->hosts * w->hosts; i++)
			if (i / w->hosts != i % w->hosts)
				cells_check(w, &w->ends[i / w->hosts][i % w->hosts]);
		run->hash = sim_hash(w->sim);
	} else {
		scenario_fail(run, "no memory");
	}
	for (uint32_t i = 0; i < HOSTS * HOSTS; i++)
		if (w->ends[i / HOSTS][i % HOSTS].qp != NULL)
			hdl_qp_destroy(w->ends[i / HOSTS][i % HOSTS].qp);
	for (uint32_t i = 0; i < w->hosts; i++)
		station_close(&w->stations[i]);
	sim_destroy(w->sim);
	free(w);
}

extern const struct scenario scenario_cells;
const struct scenario scenario_cells = {
        .name = "cells",
        .purpose = "messages by cells, on a network that loses, doubles, reorders and damages",
        .run = cells_play,
        .test_seeds = 100,
        .twice = 4,
};
