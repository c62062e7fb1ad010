/* What is checked about the frames of 'cards'; see cards.c. */
#include "cards.h"

#include <string.h>

#include "wire/be.h"

#define PATIENCE_NS 10000000ull

void cards_fill(uint8_t *frame, uint32_t bytes, uint32_t unit, uint32_t from, uint32_t to,
                uint32_t number)
{
	be32_store(frame, unit);
	be32_store(frame + 4, from);
	be32_store(frame + 8, to);
	be32_store(frame + 12, number);
	for (uint32_t i = 16; i < bytes; i++)
		frame[i] = (uint8_t)(number * 7 + from * 3 + unit + i + i / 256);
}

/* Is the frame where frames may be: at the beginning of an element, or in a receive? */
static bool cards_is_placed(const struct hdl_push *push, const uint8_t *frame, uint32_t bytes)
{
	for (uint32_t i = 0; i < SPLIT_MAX_POOLS; i++) {
		const struct push_region *region = &push->regions[i];
		if (!region->used || frame < region->host || frame >= region->host + region->bytes)
			continue;
		for (uint32_t n = 0; n < push->split->mine.open_count; n++) {
			const struct split_pool *pool =
			        &push->split->mine.pools[push->split->mine.open[n]];
			if (pool->host == region->host)
				return (uint32_t)(frame - region->host) % pool->at.element_bytes ==
				               0 &&
				       bytes <= pool->at.element_bytes;
		}
		return true; /* a pool that is being flushed */
	}
	return frame >= push->memory + push->receives_at &&
	       frame < push->memory + push->memory_bytes;
}

void cards_look(struct cards_end *end)
{
	struct cards_world *w = end->world;
	if (end->held != NULL && memcmp(end->held, end->copy, end->held_bytes) != 0)
		scenario_fail(w->run, "host %u, unit %u, %s: a frame was changed while it was read",
		              end->host, end->unit, end->role == SPLIT_HOST ? "host" : "unit");
}

static bool cards_refuse(struct cards_end *end, const uint8_t *frame, uint32_t bytes)
{
	struct cards_world *w = end->world;
	cards_look(end);
	if (end->held == NULL) {
		end->held = frame;
		end->held_bytes = bytes;
		memcpy(end->copy, frame, bytes);
	}
	w->refusals++;
	return false;
}

void cards_excuse(struct cards_flow *flow, uint32_t below)
{
	if (flow->excused < below)
		flow->excused = below;
}

/* The unit passes a frame on. False: not now. */
static bool cards_forward(struct cards_end *end, const uint8_t *frame, uint32_t bytes)
{
	struct cards_world *w = end->world;
	uint32_t from = be32_load(frame + 4), to = be32_load(frame + 8);
	if (be32_load(frame) != end->unit || from != end->host || to >= w->hosts) {
		scenario_fail(w->run, "unit %u: a frame of somebody else", end->unit);
		return true;
	}
	struct cards_flow *flow = &w->flows[end->unit][from][to];
	struct cards_end *out = &w->links[to][end->unit].ends[SPLIT_UNIT];
	struct hdl_push *push = out->push;
	uint8_t *place =
	        push != NULL && out->begun && !push->broken && bytes <= push->terms.frame_bytes
	                ? split_take(push->split)
	                : NULL;
	if (place != NULL) {
		flow->blocked_ns = 0;
		memcpy(place, frame, bytes);
		split_send(push->split, bytes);
		cards_wake_at(out, cards_now(w));
		return true;
	}
	if (flow->blocked_ns == 0)
		flow->blocked_ns = cards_now(w);
	if (push != NULL && bytes <= push->terms.frame_bytes &&
	    cards_now(w) - flow->blocked_ns < PATIENCE_NS) {
		cards_wake_at(end, cards_now(w) + AGAIN_NS);
		return cards_refuse(end, frame, bytes);
	}
	w->dropped++;
	cards_excuse(flow, be32_load(frame + 12) + 1);
	return true;
}

/* A host gets a frame. */
static void cards_arrive(struct cards_end *end, const uint8_t *frame, uint32_t bytes)
{
	static uint8_t want[LONGEST];
	struct cards_world *w = end->world;
	uint32_t from = be32_load(frame + 4), number = be32_load(frame + 12);
	if (from >= w->hosts || be32_load(frame) != end->unit ||
	    be32_load(frame + 8) != end->host) {
		scenario_fail(w->run, "host %u: a frame of somebody else", end->host);
		return;
	}
	struct cards_flow *flow = &w->flows[end->unit][from][end->host];
	bool lossy = w->links[from][end->unit].lossy || w->links[end->host][end->unit].lossy;
	if (number >= flow->sent || number < flow->awaited ||
	    (number != flow->awaited && number > flow->excused && !lossy))
		scenario_fail(w->run,
		              "host %u to %u through %u: frame %u instead of %u, of %u; excused "
		              "below %u",
		              from, end->host, end->unit, number, flow->awaited, flow->sent,
		              flow->excused);
	cards_fill(want, bytes, end->unit, from, end->host, number);
	if (memcmp(want, frame, bytes) != 0)
		scenario_fail(w->run, "host %u to %u: frame %u is not as it was sent", from,
		              end->host, number);
	flow->awaited = number + 1;
	w->arrived++;
	const uint64_t what[] = {cards_now(w), end->unit, from, end->host, number, bytes};
	for (unsigned i = 0; i < sizeof(what) / sizeof(what[0]); i++)
		w->hash = (w->hash ^ what[i]) * 0x100000001b3ull;
}

static bool cards_deliver(void *context, struct hdl_push *push, const uint8_t *frame,
                          uint32_t bytes)
{
	struct cards_end *end = push->user;
	struct cards_world *w = end->world;
	(void)context;
	if (bytes < LEAST || !cards_is_placed(push, frame, bytes)) {
		scenario_fail(w->run, "a frame of %u bytes is not in an element", bytes);
		return true;
	}
	if (end->held != NULL && end->held != frame)
		scenario_fail(w->run, "the frame that was refused is not the next one");
	if (cards_now(w) < end->refuses_ns) {
		cards_wake_at(end, end->refuses_ns);
		return cards_refuse(end, frame, bytes);
	}
	if (!w->settling && prng_chance(&w->prng, 20)) {
		end->refuses_ns =
		        cards_now(w) + cards_draw(w, prng_chance(&w->prng, 100) ? 3000000 : 100000);
		cards_wake_at(end, end->refuses_ns);
		return cards_refuse(end, frame, bytes);
	}
	if (end->role == SPLIT_UNIT && !cards_forward(end, frame, bytes))
		return false;
	cards_look(end);
	end->held = NULL;
	if (end->role == SPLIT_HOST)
		cards_arrive(end, frame, bytes);
	return true;
}

static void cards_configure(void *context, struct hdl_push *push,
                            const struct hdl_push_cfg *request, struct hdl_push_cfg *reply)
{
	(void)context;
	(void)push;
	(void)request;
	reply->has_value = true;
	reply->mtu = 1500;
}

static void cards_configured(void *context, struct hdl_push *push, uint64_t token,
                             const struct hdl_push_cfg *reply)
{
	struct cards_end *end = push->user;
	(void)context;
	(void)token;
	if (reply == NULL && !end->world->deadly && !end->world->loses)
		scenario_fail(end->world->run, "a question was not answered");
}

const struct hdl_push_ops cards_ops = {
        .deliver = cards_deliver, .configure = cards_configure, .configured = cards_configured};
