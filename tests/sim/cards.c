/* 'cards': hosts and units of the split driver on adapters (PP4, PP5), with the binding that heddle
 * tap uses (ulp/channels), by RoCEv2 or by cells, on a network that loses, doubles, reorders,
 * damages and cuts. Hosts send frames to each other through one unit or two, by every mode, model
 * and owner of pools; users stop taking frames, processes stall, and ends die and come back.
 *
 * On acknowledged channels each frame that was taken arrives once, unchanged, in order, and in an
 * element of the pool it was indicated in; what is missing was under way when an end died, or was
 * dropped by the unit after its patience. No element changes while its owner reads it: a user that
 * refuses a frame keeps a copy and compares. */
#include "cards.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guard.h"

#define FRAMES     400u /* of each flow */
#define PACKETS    16384u
#define EVENTS     4096u
#define LINE_BPS   10000000000ull
#define LOAD_NS    400000000ull
#define SETTLE_NS  60000000000ull
#define MAX_EVENTS 20000000u

struct station *cards_station(struct cards_end *end)
{
	struct cards_world *w = end->world;
	return &w->stations[end->role == SPLIT_HOST ? end->host : HOSTS + end->unit];
}

static void cards_wake(struct sim *sim, void *context, uint64_t index)
{
	struct cards_world *w = context;
	(void)sim;
	for (uint32_t i = 0; i < WAKES; i++)
		if (w->wake_ns[index][i] <= cards_now(w))
			w->wake_ns[index][i] = 0;
	station_drive(&w->stations[index]);
}

void cards_wake_at(struct cards_end *end, uint64_t at_ns)
{
	struct cards_world *w = end->world;
	uint32_t index = cards_station(end)->config.index;
	uint64_t *place = NULL;
	for (uint32_t i = 0; i < WAKES; i++) {
		/* Whoever waits for a later one says so again then. */
		if (w->wake_ns[index][i] != 0 && w->wake_ns[index][i] <= at_ns)
			return;
		place = w->wake_ns[index][i] == 0 ? &w->wake_ns[index][i] : place;
	}
	if (place != NULL)
		*place = at_ns;
	if (sim_at_host(w->sim, index, at_ns, cards_wake, w, index) != 0)
		scenario_fail(w->run, "too many events");
}

/* --- connections --- */

static void cards_free(struct cards_end *end)
{
	if (end->push != NULL)
		channels_free(end->push);
	free(end->push);
	end->push = NULL;
	end->held = NULL;
	end->begun = false;
}

static bool cards_make(struct cards_end *end, struct cards_link *link)
{
	struct cards_world *w = end->world;
	struct station *station = cards_station(end);
	struct hdl_push *push = calloc(1, sizeof(*push));
	end->push = push;
	if (push == NULL)
		return false;
	push->port = &w->ports[station->config.index];
	push->user = end;
	push->role = end->role;
	push->terms = link->terms;
	push->mtu = w->mtu;
	for (unsigned i = 0; i < 2; i++)
		push->psn[i] = cards_draw(w, 1u << 24);
	return channels_make(push) == 0;
}

static bool cards_connect(struct cards_link *link)
{
	struct cards_end *a = &link->ends[SPLIT_HOST], *b = &link->ends[SPLIT_UNIT];
	struct cards_world *w = a->world;
	if (!cards_make(a, link) || !cards_make(b, link))
		return false;
	for (unsigned side = 0; side < 2; side++) {
		struct cards_end *end = &link->ends[side], *peer = &link->ends[1 - side];
		memcpy(end->push->peer_qpn, peer->push->qpn, sizeof(peer->push->qpn));
		memcpy(end->push->peer_psn, peer->push->psn, sizeof(peer->push->psn));
		end->push->gid = cards_station(peer)->config.gids[0];
		if (channels_connect(end->push) != 0)
			return false;
		/* One of them hears later than the other that they are connected. */
		end->begin_ns = cards_now(w) + cards_draw(w, 100000);
		cards_wake_at(end, end->begin_ns);
	}
	link->again_ns = 0;
	link->epoch++;
	return true;
}

/* What was taken up to now may be missing. */
static void cards_excuse_link(struct cards_link *link)
{
	struct cards_world *w = link->ends[0].world;
	uint32_t host = link->ends[0].host, unit = link->ends[0].unit;
	for (uint32_t i = 0; i < w->hosts; i++) {
		cards_excuse(&w->flows[unit][host][i], w->flows[unit][host][i].sent);
		cards_excuse(&w->flows[unit][i][host], w->flows[unit][i][host].sent);
	}
}

/* An end has gone; the other one learns of it, and they connect again. */
static void cards_lose(struct cards_link *link, uint32_t side)
{
	struct cards_world *w = link->ends[0].world;
	cards_free(&link->ends[side]);
	cards_excuse_link(link);
	if (link->again_ns != 0) {
		cards_free(&link->ends[1 - side]);
		return;
	}
	link->again_ns = cards_now(w) + 1000 + cards_draw(w, 3000000);
	cards_wake_at(&link->ends[0], link->again_ns);
}

static void cards_end_turn(struct cards_end *end, struct cards_link *link)
{
	struct cards_world *w = end->world;
	struct hdl_push *push = end->push;
	if (push == NULL)
		return;
	if (cards_now(w) < end->begin_ns) {
		cards_wake_at(end, end->begin_ns);
		return;
	}
	if (!end->begun) {
		end->begun = true;
		if (channels_begin(push) != 0)
			scenario_fail(w->run, "no memory for pools");
		push->stage = STAGE_OPEN;
	}
	cards_look(end);
	channels_poll(push);
	split_pump(push->split, cards_now(w));
	if (push->broken || push->split->state == SPLIT_FAILED) {
		/* Only an end whose peer died, or whose packets got lost again and again, fails. */
		if (!w->loses && link->again_ns == 0)
			scenario_fail(w->run, "host %u, unit %u: a connection failed: %s",
			              end->host, end->unit,
			              split_verdict_text(push->split->verdict));
		w->broken++;
		cards_lose(link, end->role);
		return;
	}
	uint64_t at = split_deadline(push->split);
	if (at != UINT64_MAX)
		cards_wake_at(end, at > cards_now(w) ? at : cards_now(w) + AGAIN_NS);
}

/* Completions of a station: all of its ends. */
static void cards_collect(struct station *station)
{
	struct cards_world *w = station->config.rig;
	uint32_t index = station->config.index;
	for (uint32_t i = 0; i < HOSTS * UNITS && !w->run->failed; i++) {
		struct cards_link *link = &w->links[i / UNITS][i % UNITS];
		struct cards_end *end = &link->ends[index < HOSTS ? SPLIT_HOST : SPLIT_UNIT];
		if (end->world == NULL || cards_station(end) != station)
			continue;
		if (link->again_ns != 0 && cards_now(w) >= link->again_ns) {
			cards_free(&link->ends[0]);
			cards_free(&link->ends[1]);
			cards_excuse_link(link); /* taken by an end whose peer was dead */
			if (!cards_connect(link))
				scenario_fail(w->run, "no memory for a connection");
		} else if (link->again_ns != 0) {
			cards_wake_at(end, link->again_ns);
		}
		cards_end_turn(end, link);
	}
}

/* --- what happens --- */

static void cards_out(void *context, const struct path *path, const uint8_t *payload, size_t bytes)
{
	struct station *from = context;
	struct cards_world *w = from->config.rig;
	uint8_t data[CABLE_BYTES];
	size_t all = cable_pack(data, path, payload, bytes);
	station_busy(from, 0, all);
	for (uint32_t i = 0; i < STATIONS; i++)
		if (w->stations[i].adapter != NULL &&
		    memcmp(w->stations[i].config.gids[0].raw, path->ip.dgid, 16) == 0)
			sim_send(w->sim, from->config.index, i, data, all);
}

static bool cards_is_loading(const struct cards_world *w)
{
	return !w->run->failed && cards_now(w) < LOAD_NS;
}

static void cards_send(struct sim *sim, void *context, uint64_t index)
{
	struct cards_world *w = context;
	uint32_t host = (uint32_t)index;
	bool left = false;
	for (uint32_t burst = 1 + cards_draw(w, 8); burst > 0; burst--) {
		uint32_t unit = cards_draw(w, w->units), to = cards_draw(w, w->hosts);
		struct cards_end *end = &w->links[host][unit].ends[SPLIT_HOST];
		struct cards_flow *flow = &w->flows[unit][host][to];
		uint8_t *frame = end->push != NULL && end->begun && flow->sent < FRAMES
		                         ? split_take(end->push->split)
		                         : NULL;
		if (frame == NULL)
			continue;
		/* The unit drops what does not fit at the other end. */
		uint32_t most = end->push->terms.frame_bytes;
		uint32_t other = w->links[to][unit].terms.frame_bytes;
		most = other < most ? other : most;
		uint32_t bytes = LEAST + cards_draw(w, (prng_chance(&w->prng, 300) ? most : 300) -
		                                               LEAST + 1);
		cards_fill(frame, bytes, unit, host, to, flow->sent++);
		split_send(end->push->split, bytes);
		if (prng_chance(&w->prng, 30)) {
			struct push_cfg question = {.item = PUSH_CFG_MTU};
			split_configure(end->push->split, &question, 1);
		}
	}
	station_drive(&w->stations[host]);
	for (uint32_t i = 0; i < w->units * w->hosts; i++)
		left |= w->flows[i / w->hosts][host][i % w->hosts].sent < FRAMES;
	if (left && cards_is_loading(w) &&
	    sim_at_host(sim, host, cards_now(w) + cards_draw(w, 60000), cards_send, w, index) != 0)
		scenario_fail(w->run, "too many events");
}

/* An end offers pools until it has no receives left for their indications. */
static void cards_offer(struct cards_world *w, struct cards_end *end)
{
	static const struct split_plan plan = {.elements = 64, .element_bytes = 512};
	struct hdl_push *push = end->push;
	if (push == NULL || !end->begun || push->terms.mode == HDL_PUSH_SEND ||
	    !push->split->config.own_pools || push->split->state != SPLIT_OPEN)
		return;
	for (uint32_t i = 0; i < HDL_PUSH_MAX_RECEIVE / 64; i++)
		split_offer(push->split, &plan);
	if (push->posted > HDL_PUSH_MAX_RECEIVE || split_offer(push->split, &plan))
		scenario_fail(w->run, "an end offers %u elements", push->posted);
	station_drive(cards_station(end));
}

/* Something bad happens. */
static void cards_harm(struct sim *sim, void *context, uint64_t arg)
{
	struct cards_world *w = context;
	uint32_t host = cards_draw(w, w->hosts), unit = cards_draw(w, w->units);
	uint32_t victim = prng_chance(&w->prng, 500) ? host : HOSTS + unit;
	struct cards_link *link = &w->links[host][unit];
	uint64_t now = cards_now(w);
	if (!cards_is_loading(w))
		return;
	switch (cards_draw(w, 5)) {
	case 4:
		cards_offer(w, &link->ends[cards_draw(w, 2)]);
		break;
	case 0:
		sim_stall(sim, victim, now + cards_draw(w, 3000000));
		break;
	case 1:
		sim_partition(sim, 1ull << host, 1ull << (HOSTS + unit), now,
		              now + 1 + cards_draw(w, 2000000));
		break;
	default:
		if (w->deadly && link->again_ns == 0) {
			w->deaths++;
			cards_lose(link, cards_draw(w, 2));
		}
	}
	sim_at(sim, now + 100000 + cards_draw(w, 20000000), cards_harm, w, arg);
}

/* --- the world --- */

static bool cards_open(struct cards_world *w, uint32_t index)
{
	struct station_config config = {
	        .sim = w->sim,
	        .index = index,
	        .seed = w->run->seed + index + 1,
	        .gids = {{{0xfe, 0x80, [14] = 18, [15] = (uint8_t)(index + 1)}}},
	        .max_qp = 4 * HOSTS,
	        .max_mr = 64,
	        .cq_entries = 16,
	        .memory_bytes = 4096,
	        .bandwidth_bps = LINE_BPS,
	        .room_bytes = 1u << 17,
	        .cells = w->cells,
	        .rig = w,
	        .out = cards_out,
	        .collect = cards_collect};
	if (!station_open(&w->stations[index], &config))
		return false;
	w->ports[index] = (struct hdl_push_port){.adapter = w->stations[index].adapter,
	                                         .pd = w->stations[index].pd,
	                                         .ops = &cards_ops};
	station_attach(&w->stations[index], index);
	return true;
}

static void cards_draw_terms(struct cards_world *w, struct cards_link *link)
{
	struct hdl_push_terms *terms = &link->terms;
	*terms = (struct hdl_push_terms){.mode = prng_chance(&w->prng, 150) ? HDL_PUSH_SEND
	                                                                    : HDL_PUSH_RDMA,
	                                 .model = (uint8_t)cards_draw(w, 3),
	                                 .host_owns = prng_chance(&w->prng, 800),
	                                 .unit_owns = prng_chance(&w->prng, 800),
	                                 .by_message = prng_chance(&w->prng, 250)};
	bool messages = terms->mode == HDL_PUSH_SEND || !terms->host_owns || !terms->unit_owns;
	terms->frame_bytes = messages ? PUSH_MAX_DATA : prng_chance(&w->prng, 500) ? 1024 : LONGEST;
	link->lossy = terms->mode == HDL_PUSH_SEND;
}

static bool cards_furnish(struct cards_world *w)
{
	w->hosts = 2 + cards_draw(w, HOSTS - 1);
	w->units = 1 + cards_draw(w, UNITS);
	w->cells = prng_chance(&w->prng, 400);
	w->deadly = prng_chance(&w->prng, 500);
	w->mtu = w->cells ? 256 : prng_chance(&w->prng, 500) ? 1024 : 4096;
	struct sim_config network = {.seed = w->run->seed,
	                             .host_count = STATIONS,
	                             .event_capacity = EVENTS,
	                             .packet_capacity = PACKETS,
	                             .packet_bytes = CABLE_BYTES};
	uint32_t bad = cards_draw(w, 4) * 8;
	struct sim_link link = {.delay_min_ns = 500,
	                        .delay_max_ns = 500 + cards_draw(w, 20000),
	                        .bandwidth_bps = LINE_BPS,
	                        .queue_bytes = 1u << 20,
	                        .loss_permille = cards_draw(w, bad + 1),
	                        .duplicate_permille = cards_draw(w, bad + 1),
	                        .reorder_permille = cards_draw(w, bad + 1),
	                        .reorder_ns = 8000,
	                        .flip_permille = cards_draw(w, bad + 1),
	                        .flip_bits_max = 3,
	                        .truncate_permille = cards_draw(w, bad / 2 + 1)};
	w->loses = link.loss_permille + link.flip_permille + link.truncate_permille > 25;
	if (sim_create(&network, &w->sim) != 0 || sim_link_set_all(w->sim, &link) != 0)
		return false;
	for (uint32_t i = 0; i < STATIONS; i++)
		if ((i < w->hosts || (i >= HOSTS && i < HOSTS + w->units)) && !cards_open(w, i))
			return false;
	for (uint32_t i = 0; i < w->hosts * w->units; i++) {
		uint32_t host = i / w->units, unit = i % w->units;
		struct cards_link *at = &w->links[host][unit];
		cards_draw_terms(w, at);
		for (unsigned side = 0; side < 2; side++)
			at->ends[side] = (struct cards_end){.world = w,
			                                    .host = host,
			                                    .unit = unit,
			                                    .role = (enum split_role)side};
		if (!cards_connect(at))
			return false;
	}
	for (uint32_t i = 0; i < w->hosts; i++)
		sim_at_host(w->sim, i, i * 1000, cards_send, w, i);
	return prng_chance(&w->prng, 300) || sim_at(w->sim, 1000000, cards_harm, w, 0) == 0;
}

/* No more faults: everything arrives in bounded time. */
static void cards_settle(struct cards_world *w)
{
	static const struct sim_link healthy = {.delay_min_ns = 1000, .delay_max_ns = 2000};
	uint64_t end = cards_now(w) + SETTLE_NS;
	bool whole = false;
	w->settling = true;
	sim_heal(w->sim);
	sim_link_set_all(w->sim, &healthy);
	for (uint32_t i = 0; i < STATIONS; i++)
		if (w->stations[i].adapter != NULL)
			sim_wake(w->sim, i);
	while (!whole && cards_now(w) < end && !w->run->failed) {
		for (uint32_t i = 0; i < STATIONS; i++)
			if (w->stations[i].adapter != NULL)
				station_drive(&w->stations[i]);
		guard_sim_run(w->sim, cards_now(w) + 50000000, MAX_EVENTS);
		whole = true;
		for (uint32_t i = 0; i < w->units * w->hosts * w->hosts; i++) {
			uint32_t unit = i / (w->hosts * w->hosts), from = i / w->hosts % w->hosts,
			         to = i % w->hosts;
			struct cards_flow *flow = &w->flows[unit][from][to];
			bool lossy = w->links[from][unit].lossy || w->links[to][unit].lossy;
			whole &=
			        flow->awaited == flow->sent || flow->excused == flow->sent || lossy;
		}
	}
	if (!whole)
		scenario_fail(w->run, "frames that were taken do not arrive");
}

static void cards_play(struct scenario_run *run)
{
	struct cards_world *w = calloc(1, sizeof(*w));
	if (w == NULL) {
		scenario_fail(run, "no memory");
		return;
	}
	w->run = run;
	prng_seed(&w->prng, run->seed);
	if (cards_furnish(w)) {
		guard_sim_run(w->sim, LOAD_NS, MAX_EVENTS);
		if (!run->failed)
			cards_settle(w);
		run->hash = w->hash;
	} else {
		scenario_fail(run, "no memory for the world");
	}
	if (run->trace)
		printf("  %" PRIu64 " frames arrived, %" PRIu64 " were dropped by units, %" PRIu64
		       " refusals, %" PRIu64 " ends died, %" PRIu64 " failed\n",
		       w->arrived, w->dropped, w->refusals, w->deaths, w->broken);
	for (uint32_t i = 0; i < HOSTS * UNITS; i++)
		for (unsigned side = 0; side < 2; side++)
			cards_free(&w->links[i / UNITS][i % UNITS].ends[side]);
	for (uint32_t i = 0; i < STATIONS; i++)
		if (w->stations[i].config.sim != NULL)
			station_close(&w->stations[i]);
	sim_destroy(w->sim);
	free(w);
}

extern const struct scenario scenario_cards;
const struct scenario scenario_cards = {
        .name = "cards",
        .purpose = "hosts and units of the split driver on adapters, with all faults",
        .run = cards_play,
        .test_seeds = 40,
        .twice = 4,
};
