/* 'adapters': two to eight adapters in one thread, joined pairwise by loop ports, driven at random
 * times through the public interface by random applications, with faults. 'wire': the same on a
 * network of packets. 'streams': the same on byte streams. MISSION X4, SN1, SN2, IP2 to IP5. The
 * checker knows what every byte must be; see world.h. */
#include "world.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "guard.h"

#define MAX_EVENTS     400000u
#define EVENT_CAPACITY 4096u
#define SWEEP_EVERY    400000u
#define SETTLE_STEP_NS 40000u
#define WIRE_STEP_NS   4000u

void world_fail(struct world *w, const char *format, ...)
{
	char why[SCENARIO_WHY_BYTES - 40];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(why, sizeof(why), format, arguments);
	va_end(arguments);
	scenario_fail(w->run, "at %" PRIu64 " ns: %s", world_now(w), why);
}

void world_say(struct world *w, const char *format, ...)
{
	va_list arguments;
	if (!w->run->trace)
		return;
	printf("  %9" PRIu64 " ", world_now(w));
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf("\n");
}

uint64_t world_now(const struct world *w)
{
	return sim_now_ns(w->sim);
}

uint32_t world_draw(struct world *w, uint64_t bound)
{
	return (uint32_t)prng_below(&w->prng, bound);
}

bool world_chance(struct world *w, uint32_t permille)
{
	return prng_chance(&w->prng, permille);
}

/* --- what drives a host --- */

static bool still_loading(const struct world *w)
{
	return !w->run->failed && world_now(w) < WORLD_LOAD_NS &&
	       w->request_count < w->request_limit;
}

static void progress(struct sim *sim, void *context, uint64_t index)
{
	struct world *w = context;
	struct host *host = &w->hosts[index];
	if (!host->adapter || !still_loading(w))
		return;
	hdl_progress(host->adapter);
	if (world_chance(w, 100))
		check_events(w, host);
	sim_at_host(sim, (uint32_t)index, world_now(w) + world_draw(w, 12000), progress, w, index);
}

static void application(struct sim *sim, void *context, uint64_t index)
{
	struct world *w = context;
	struct host *host = &w->hosts[index];
	if (!host->adapter || !still_loading(w))
		return;
	for (uint32_t burst = 1 + world_draw(w, 6); burst > 0 && host->adapter; burst--)
		load_step(w, host);
	if (host->adapter)
		sim_at_host(sim, (uint32_t)index, world_now(w) + world_draw(w, 15000), application,
		            w, index);
}

static void furnish(struct world *w, struct host *host)
{
	uint32_t connections = 1 + world_draw(w, 3);
	for (uint32_t i = 0; i < connections && !w->run->failed; i++) {
		struct host *peer = &w->hosts[world_draw(w, w->host_count)];
		if (!peer->adapter)
			continue;
		uint32_t type = world_chance(w, 700) ? HDL_QP_RC : HDL_QP_UC;
		if (w->wire && world_chance(w, 250))
			type = HDL_QP_XRC_INI;
		if (w->streams)
			type = HDL_QP_RC;
		conn_make(w, host, peer, type);
	}
	if (!w->streams && world_chance(w, 600)) {
		struct wqp *qp = wqp_make(w, host, HDL_QP_UD);
		if (qp)
			datagram_ready(w, qp);
	}
	sim_at_host(w->sim, host->index, world_now(w) + world_draw(w, 5000), progress, w,
	            host->index);
	sim_at_host(w->sim, host->index, world_now(w) + world_draw(w, 5000), application, w,
	            host->index);
}

/* Now and then every byte is looked at, and a host that died may come back as another. */
static void overseer(struct sim *sim, void *context, uint64_t arg)
{
	struct world *w = context;
	uint32_t alive = 0;
	if (!still_loading(w))
		return;
	world_sweep(w);
	for (uint32_t i = 0; i < w->host_count; i++)
		alive += w->hosts[i].adapter != NULL;
	if (alive < w->host_limit && w->host_count < WORLD_MAX_HOSTS && world_chance(w, 500) &&
	    host_open(w))
		furnish(w, &w->hosts[w->host_count - 1]);
	sim_at(sim, world_now(w) + SWEEP_EVERY, overseer, w, arg);
}

/* --- the end --- */

/* Receives for those that would wait for one for ever. */
static void feed(struct world *w, struct wqp *qp)
{
	if (!qp->ready || !qp->conn || !wqp_reliable(qp))
		return;
	const struct stream *stream = &qp->conn->streams[qp->conn->epoch][1 - qp->side];
	if (stream->taken >= stream->count)
		return;
	/* Streams may be slow: one for each message that comes will do. */
	if (w->streams && (wqp_state(qp) == HDL_QPS_ERR ||
	                   (!qp->srq && qp->receives->count - qp->receives->head >=
	                                        stream->count - stream->taken)))
		return;
	bool fed = true;
	if (qp->srq) /* full, perhaps: completions that were lost make it look fuller than it is */
		fed = load_receive_shared(w, qp->host, qp->srq, 512 + HDL_GRH_BYTES);
	else if (!qp->srq && qp->receives->count - qp->receives->head < qp->cap.max_recv_wr)
		fed = load_receive(w, qp, qp->max_message);
	if (!fed) /* every range is claimed, or gone */
		opening_register(w, qp->host, root_make(w, qp->host, false),
		                 qp->srq ? qp->srq->pd : qp->pd);
}

static void drive_all(struct world *w, int *did)
{
	for (uint32_t i = 0; i < w->host_count && !w->run->failed; i++) {
		struct host *host = &w->hosts[i];
		if (!host->adapter)
			continue;
		*did += hdl_progress(host->adapter);
		for (uint32_t n = 0; n < host->cq_count; n++)
			check_drain(w, host, &host->cqs[n]);
		check_events(w, host);
	}
}

/* Is a signalled request of a queue pair in flight that has no reason to wait? */
static bool unfinished(const struct world *w, const struct wqp *qp)
{
	if (!qp->qp)
		return false;
	uint32_t state = wqp_state(qp);
	/* A completion that is lost to an overrun takes its queue pair down. */
	if (qp->sends->lossy && (state == HDL_QPS_ERR || state == HDL_QPS_RESET))
		return false;
	bool stuck_peer = qp->reasons != 0 && qp->timeout == 0 && state == HDL_QPS_RTS;
	for (uint32_t n = qp->sends->head; n < qp->sends->count; n++)
		if (w->requests[qp->sends->ids[n]].signaled)
			return !stuck_peer && state != HDL_QPS_SQD;
	return false;
}

static bool any_unfinished(struct world *w, const struct wqp **which)
{
	for (uint32_t i = 0; i < w->qp_count; i++)
		if (unfinished(w, &w->qps[i])) {
			*which = &w->qps[i];
			return true;
		}
	return false;
}

/* No more work, no more faults: what is in flight must come to its end within a bounded time. */
static void settle(struct world *w)
{
	uint64_t end = world_now(w) + WORLD_SETTLE_NS;
	const struct wqp *which = NULL;
	uint64_t first_step = w->wire || w->streams ? WIRE_STEP_NS : SETTLE_STEP_NS;
	w->settling = true;
	if (w->wire)
		wire_heal(w);
	if (w->streams)
		streams_heal(w);
	w->request_limit = WORLD_MAX_REQUESTS;
	for (uint32_t i = 0; i < w->host_count; i++)
		if (w->hosts[i].adapter)
			wire_wake(w, i);
	for (uint64_t step = first_step; !w->run->failed; step += step / 16) {
		int did = 0;
		uint64_t arrivals = w->arrivals;
		drive_all(w, &did);
		which = NULL;
		if ((!any_unfinished(w, &which) && !streams_busy(w)) || w->run->failed)
			break;
		if (world_now(w) > end && !which) {
			world_fail(w, "a stream does not come to rest");
			break;
		}
		if (world_now(w) > end) {
			const struct request *r =
			        &w->requests[which->sends->ids[which->sends->head]];
			streams_say(w, which->conn);
			world_fail(
			        w,
			        "qp %u of host %u (type %u, state %u, reasons 0x%x, timeout %u): "
			        "request %u (opcode %u, %u bytes) is stuck",
			        (unsigned)(which - w->qps), which->host->index, which->type,
			        wqp_state(which), which->reasons, which->timeout, r->id, r->opcode,
			        r->length);
			break;
		}
		for (uint32_t i = 0; i < w->qp_count; i++)
			feed(w, &w->qps[i]);
		if (did)
			step = first_step;
		guard_sim_run(w->sim, world_now(w) + step, MAX_EVENTS);
		if (w->arrivals != arrivals)
			step = first_step;
	}
}

/* Everything to the error state: what is left is flushed. Then the checker's last look, and an
 * orderly end. */
static void take_down(struct world *w)
{
	for (uint32_t i = 0; i < w->qp_count; i++)
		w->qps[i].clean = w->qps[i].streamed && w->qps[i].reasons == 0;
	for (uint32_t i = 0; i < w->qp_count; i++) {
		struct wqp *qp = &w->qps[i];
		if (!qp->qp)
			continue;
		wqp_disturb(qp, REASON_STATE);
		if (wqp_state(qp) != HDL_QPS_RESET)
			wqp_to(w, qp, HDL_QPS_ERR);
	}
	for (int did = 1, rounds = 0; did > 0 && !w->run->failed && rounds < 1000; rounds++) {
		did = 0;
		drive_all(w, &did);
	}
	if (w->run->failed)
		return;
	check_at_end(w);
	if (!w->run->failed && !world_objects_end(w))
		world_fail(w, "an object cannot be destroyed at the end");
	if (!w->run->failed) { /* nothing happens to memory behind our back */
		world_sweep(w);
	}
}

static void draw_world(struct world *w)
{
	w->by_target = world_chance(w, 500);
	w->by_value = world_chance(w, 250);
	w->mixed = world_chance(w, 300);
	w->large = world_chance(w, 30);
	w->host_limit = w->large ? 2 : 2 + world_draw(w, world_chance(w, 700) ? 3 : 7);
	w->request_limit = 40 + world_draw(w, 900);
	if (world_chance(w, 650))
		w->faults =
		        (uint32_t)prng_next(&w->prng) & (uint32_t)prng_next(&w->prng) & FAULT_ALL;
	if (w->large)
		w->request_limit = 40 + world_draw(w, w->wire ? 20 : 200);
	w->load_weight[0] = 200 + world_draw(w, 400);
	w->load_weight[1] = w->load_weight[0] + 50 + world_draw(w, 200);
	w->load_weight[2] = w->load_weight[1] + 20 + world_draw(w, 80);
	w->load_weight[3] = w->load_weight[2] + 20;
}

static void free_world(struct world *w)
{
	for (uint32_t i = 0; i < w->host_count; i++) {
		if (w->hosts[i].adapter) {
			adapter_kill(w->hosts[i].adapter);
			host_forget(w, &w->hosts[i]);
		}
		free(w->hosts[i].cable);
	}
	streams_free(w);
	world_free_roots(w);
	for (uint32_t i = 0; i < w->request_count; i++)
		free(w->requests[i].data);
	for (struct line *line = w->lines, *next; line; line = next) {
		next = line->next;
		free(line->ids);
		free(line);
	}
	for (uint32_t i = 0; i < w->conn_count; i++)
		for (uint32_t e = 0; e < WORLD_MAX_EPOCHS; e++)
			for (int side = 0; side < 2; side++)
				free(w->conns[i].streams[e][side].ids);
	for (uint32_t i = 0; i < w->qp_count; i++)
		for (uint32_t n = 0; n < WORLD_MAX_HOSTS; n++)
			free(w->qps[i].datagrams[n].ids);
	sim_destroy(w->sim);
	free(w);
}

static void add_tally(struct world_tally *to, const struct world_tally *from)
{
	uint64_t *sum = (uint64_t *)to;
	const uint64_t *part = (const uint64_t *)from;
	for (size_t i = 0; i < sizeof(*to) / sizeof(*sum); i++)
		sum[i] += part[i];
}

void world_play(struct scenario_run *run, enum world_network network, struct world_tally *tally)
{
	bool wire = network == WORLD_WIRE || network == WORLD_STRIPED;
	struct world *w = calloc(1, sizeof(*w));
	struct sim_config config = {.seed = run->seed,
	                            .host_count =
	                                    (network == WORLD_STRIPED ? 2 : 1) * WORLD_MAX_HOSTS,
	                            .event_capacity = EVENT_CAPACITY,
	                            .packet_capacity = wire ? WORLD_PACKETS : 1,
	                            .packet_bytes = wire ? CABLE_BYTES : 1};
	if (!w || sim_create(&config, &w->sim)) {
		scenario_fail(run, "no memory for the world");
		free(w);
		return;
	}
	w->run = run;
	prng_seed(&w->prng, run->seed);
	w->wire = wire;
	w->striped = network == WORLD_STRIPED;
	w->messages = network == WORLD_MESSAGES;
	w->streams = network == WORLD_STREAMS || w->messages;
	draw_world(w);
	if (wire)
		wire_draw(w);
	if (w->streams)
		streams_draw(w);
	world_say(w, "faults 0x%x, %s", w->faults,
	          wire           ? "wire"
	          : w->messages  ? "messages"
	          : w->streams   ? "streams"
	          : w->mixed     ? "mixed"
	          : w->by_value  ? "by value"
	          : w->by_target ? "by target"
	                         : "direct");
	uint32_t hosts = w->host_limit;
	for (uint32_t i = 0; i < hosts && !run->failed; i++)
		host_open(w);
	for (uint32_t i = 0; i < hosts && !run->failed; i++)
		furnish(w, &w->hosts[i]);
	if (!run->failed)
		sim_at(w->sim, SWEEP_EVERY, overseer, w, 0);
	if (!run->failed)
		guard_sim_run(w->sim, WORLD_LOAD_NS, MAX_EVENTS);
	if (!run->failed)
		world_sweep(w);
	if (!run->failed)
		settle(w);
	if (!run->failed)
		take_down(w);
	run->hash = sim_hash(w->sim);
	if (tally)
		add_tally(tally, &w->tally);
	free_world(w);
}

static void run_adapters(struct scenario_run *run)
{
	world_play(run, WORLD_LANES, NULL);
}

static void run_wire(struct scenario_run *run)
{
	world_play(run, WORLD_WIRE, NULL);
}

static void run_striped(struct scenario_run *run)
{
	world_play(run, WORLD_STRIPED, NULL);
}

static void run_streams(struct scenario_run *run)
{
	world_play(run, WORLD_STREAMS, NULL);
}

static void run_messages(struct scenario_run *run)
{
	world_play(run, WORLD_MESSAGES, NULL);
}

extern const struct scenario scenario_adapters, scenario_wire, scenario_striped, scenario_streams,
        scenario_messages;
const struct scenario scenario_adapters = {
        .name = "adapters",
        .purpose = "adapters under random work and faults; every byte and completion is checked",
        .run = run_adapters,
        .test_seeds = 500,
        .twice = 50,
};
const struct scenario scenario_wire = {
        .name = "wire",
        .purpose = "the same over a network that loses, doubles, reorders, damages and cuts",
        .run = run_wire,
        .test_seeds = 100,
        .twice = 10,
};
const struct scenario scenario_striped = {
        .name = "striped",
        .purpose = "the same, and reliable connections use two paths at a time",
        .run = run_striped,
        .test_seeds = 60,
        .twice = 5,
};
const struct scenario scenario_streams = {
        .name = "streams",
        .purpose = "the same on byte streams (iWARP) that stall, break at any byte and are damaged",
        .run = run_streams,
        .test_seeds = 200,
        .twice = 20,
};
const struct scenario scenario_messages = {
        .name = "messages",
        .purpose = "the same on messages (iWARP on SCTP) that overtake each other and get lost",
        .run = run_messages,
        .test_seeds = 200,
        .twice = 20,
};
