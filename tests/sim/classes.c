/* 'classes': queue pairs of all classes of service share one line of their host (MISSION IP9,
 * figure 3A). Bulk and normal ones keep it busy, with writes and with reads that the peer asks for;
 * the round trips of an urgent one take at most twice as long as on an idle line, at the 99th
 * percentile, and what the urgent one leaves of the line the others use. */
#include "scenario.h"

#include "guard.h"
#include "station.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BPS     1000000000ull
#define DELAY_NS     10000u
#define BUFFER_BYTES 1000000u
#define ROOM_BYTES   4096u /* of packets on their way out of the host: they are past their turn */
#define MTU          1024u
#define URGENT_BYTES 8192u
#define LONG_BYTES   65536u
#define DEPTH        4u
#define BUSY         6u /* queue pairs beside the urgent one */
#define QPS          (BUSY + 1)
#define ROUNDS       400u
#define PAUSE_NS     200000u /* between round trips, so that the others have the line */
#define DURATION_NS  1000000000ull
#define EVENTS       1024u
#define PACKETS      16384u
#define MAX_EVENTS   100000000u

/* The urgent one first. The others write, but for the last two, by which the peer reads. */
static const uint8_t traffic[QPS] = {0xb8, 0x20, 0x20, 0x00, 0x00, 0x20, 0x00};
#define FIRST_READER (QPS - 2)

struct line {
	struct scenario_run *run;
	struct sim *sim;
	struct station ends[2];
	struct hdl_qp *qps[2][QPS];
	bool busy;       /* the others have work */
	uint32_t rounds; /* of the urgent one */
	uint64_t began_ns, took_ns[ROUNDS];
	uint64_t bytes[QPS]; /* that the others have moved */
	uint64_t end_ns;
};

static void line_out(void *context, const struct path *path, const uint8_t *payload, size_t bytes)
{
	struct station *from = context;
	uint8_t data[CABLE_BYTES];
	size_t all = cable_pack(data, path, payload, bytes);
	station_busy(from, 0, all);
	sim_send(from->config.sim, from->config.index, !from->config.index, data, all);
}

static uint32_t length_of(uint32_t number)
{
	return number == 0 ? URGENT_BYTES : LONG_BYTES;
}

/* One request of queue pair @number, at the end that asks. */
static void line_post(struct line *line, uint32_t number)
{
	bool reads = number >= FIRST_READER;
	struct station *from = &line->ends[reads], *to = &line->ends[!reads];
	size_t at = (size_t)number * LONG_BYTES;
	struct hdl_sge piece = {(uint64_t)(uintptr_t)(from->memory + at), length_of(number),
	                        hdl_mr_key(from->mr)};
	struct hdl_send_wr wr = {
	        .wr_id = number,
	        .opcode = reads ? HDL_OP_READ : HDL_OP_WRITE,
	        .flags = HDL_SEND_SIGNALED,
	        .num_sge = 1,
	        .sg_list = &piece,
	        .u.rdma = {(uint64_t)(uintptr_t)(to->memory + at), hdl_mr_key(to->mr)}};
	if (hdl_post_send(line->qps[reads][number], &wr, NULL) != 0)
		scenario_fail(line->run, "a request of %u was refused", number);
}

static void next_round(struct sim *sim, void *context, uint64_t arg)
{
	struct line *line = context;
	(void)arg;
	line->began_ns = sim_now_ns(sim);
	line_post(line, 0);
	station_drive(&line->ends[0]);
}

static void line_collect(struct station *end)
{
	struct line *line = end->config.rig;
	struct hdl_wc wc[16];
	int count = hdl_cq_poll(end->cq, wc, 16);
	for (int i = 0; i < count; i++) {
		uint32_t number = (uint32_t)wc[i].wr_id;
		if (wc[i].status != HDL_WC_SUCCESS)
			scenario_fail(line->run, "status %u on %u", wc[i].status, number);
		if (number != 0) {
			line->bytes[number] += line->busy ? LONG_BYTES : 0;
			if (line->busy)
				line_post(line, number);
			continue;
		}
		line->took_ns[line->rounds++] = sim_now_ns(line->sim) - line->began_ns;
		line->end_ns = sim_now_ns(line->sim);
		if (line->rounds < ROUNDS)
			sim_at(line->sim, line->end_ns + PAUSE_NS, next_round, line, 0);
		else
			line->busy = false;
	}
}

static bool line_open(struct line *line, uint32_t index)
{
	struct station *end = &line->ends[index];
	struct station_config config = {.sim = line->sim,
	                                .index = index,
	                                .seed = line->run->seed * 131 + index + 1,
	                                .gids = {{{0xfe, 0x80, [15] = (uint8_t)(index + 1)}}},
	                                .max_qp = 16,
	                                .cq_entries = 4 * QPS * DEPTH,
	                                .memory_bytes = (size_t)QPS * LONG_BYTES,
	                                .bandwidth_bps = LINE_BPS,
	                                .room_bytes = ROOM_BYTES,
	                                .rig = line,
	                                .out = line_out,
	                                .collect = line_collect};
	if (!station_open(end, &config))
		return false;
	station_attach(end, index);
	for (uint32_t i = 0; i < QPS; i++)
		if ((line->qps[index][i] = station_qp(end, DEPTH)) == NULL)
			return false;
	return true;
}

static bool line_connect(struct line *line, uint32_t index)
{
	bool good = true;
	for (uint32_t i = 0; i < QPS; i++) {
		struct hdl_qp_attr attr = {.port_num = 1,
		                           .access =
		                                   HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE,
		                           .ah = {.dgid = line->ends[!index].config.gids[0],
		                                  .is_global = true,
		                                  .traffic_class = traffic[i]},
		                           .path_mtu = MTU,
		                           .dest_qpn = hdl_qp_number(line->qps[!index][i]),
		                           .timeout = 14,
		                           .retry_cnt = 7,
		                           .rnr_retry = 7,
		                           .min_rnr_timer = 1,
		                           .max_rd_atomic = 4,
		                           .max_dest_rd_atomic = 4};
		good = good && station_connect(line->qps[index][i], attr, 0, 0);
	}
	return good;
}

static bool line_furnish(struct line *line)
{
	struct sim_config network = {.seed = line->run->seed,
	                             .host_count = 2,
	                             .event_capacity = EVENTS,
	                             .packet_capacity = PACKETS,
	                             .packet_bytes = CABLE_BYTES};
	struct sim_link link = {.delay_min_ns = DELAY_NS,
	                        .delay_max_ns = DELAY_NS,
	                        .bandwidth_bps = LINE_BPS,
	                        .queue_bytes = BUFFER_BYTES};
	return sim_create(&network, &line->sim) == 0 && sim_link_set(line->sim, 0, 1, &link) == 0 &&
	       sim_link_set(line->sim, 1, 0, &link) == 0 && line_open(line, 0) &&
	       line_open(line, 1) && line_connect(line, 1) && line_connect(line, 0);
}

static int by_time(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

/* The 99th percentile of the urgent round trips; *rate: bits a second of the others. */
static uint64_t play_line(struct scenario_run *run, bool busy, double *rate)
{
	struct line *line = calloc(1, sizeof(*line));
	uint64_t p99 = 0;
	if (line == NULL)
		abort();
	line->run = run;
	line->busy = busy;
	if (line_furnish(line)) {
		for (uint32_t i = 1; busy && i < QPS; i++)
			for (uint32_t k = 0; k < DEPTH; k++)
				line_post(line, i);
		station_drive(&line->ends[1]);
		/* The windows of the others open meanwhile. */
		sim_at(line->sim, 20 * (uint64_t)PAUSE_NS, next_round, line, 0);
		station_drive(&line->ends[0]);
		guard_sim_run(line->sim, DURATION_NS, MAX_EVENTS);
		run->hash = sim_fold(run->hash, sim_hash(line->sim));
		if (line->rounds < ROUNDS)
			scenario_fail(run, "%u urgent round trips of %u", line->rounds, ROUNDS);
		qsort(line->took_ns, line->rounds, sizeof(line->took_ns[0]), by_time);
		p99 = line->took_ns[ROUNDS * 99 / 100];
		*rate = 0;
		for (uint32_t i = 1; i < QPS; i++) {
			double share = (double)line->bytes[i] * 8e9 / (double)line->end_ns;
			*rate += share;
			if (run->trace)
				printf("  %u (class 0x%02x): %.0f Mbit/s\n", i, traffic[i],
				       share / 1e6);
			/* Nobody starves, and those of one class share. */
			if (busy && share < (traffic[i] == 0 ? 0.1 : 0.01) * (double)LINE_BPS)
				scenario_fail(run, "%.0f Mbit/s for queue pair %u", share / 1e6, i);
		}
		if (run->trace)
			printf("  %s: median %.1f us, p99 %.1f us, the others %.0f Mbit/s\n",
			       busy ? "beside others" : "alone",
			       (double)line->took_ns[ROUNDS / 2] / 1e3, (double)p99 / 1e3,
			       *rate / 1e6);
	} else {
		scenario_fail(run, "no memory");
	}
	for (uint32_t i = 0; i < 2; i++) {
		for (uint32_t k = 0; k < QPS; k++)
			if (line->qps[i][k] != NULL)
				hdl_qp_destroy(line->qps[i][k]);
		station_close(&line->ends[i]);
	}
	sim_destroy(line->sim);
	free(line);
	return p99;
}

static void run_classes(struct scenario_run *run)
{
	double none, rate;
	run->hash = SIM_FOLD_START;
	uint64_t alone = play_line(run, false, &none), beside = play_line(run, true, &rate);
	if (beside > 2 * alone)
		scenario_fail(run, "urgent: p99 %" PRIu64 " ns alone, %" PRIu64 " beside others",
		              alone, beside);
	/* Of every round trip and pause the urgent one has its share of the line. */
	if (rate < 0.5 * (double)LINE_BPS)
		scenario_fail(run, "%.0f Mbit/s for the others", rate / 1e6);
}

extern const struct scenario scenario_classes;
const struct scenario scenario_classes = {
        .name = "classes",
        .purpose = "urgent round trips beside bulk data take at most twice as long",
        .run = run_classes,
        .test_seeds = 2,
        .twice = 1,
};
