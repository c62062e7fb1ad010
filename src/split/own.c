/* Pools that this side owns: the peer writes into them, or reads the slots of this side. */
#include <assert.h>

#include "split/internal.h"

/* Take memory for a pool and put it into the table; it is announced by own_pump(). */
static struct split_pool *own_add(struct split *split, const struct split_plan *plan,
                                  uint16_t flags, bool local, bool source)
{
	struct split_side *side = &split->mine;
	struct push_pool at = {.elements = plan->elements,
	                       .element_bytes = plan->element_bytes,
	                       .context = push_pool_context(flags, plan->port, plan->source)};
	while (pool_find(side, at.index) != NULL)
		at.index++;
	bool ring = local || source || (flags & PUSH_POOL_ON_REQUEST) != 0;
	struct split_pool *pool = pool_add(side, &at, ring ? ELEMENT_IDLE : ELEMENT_OFFERED);
	if (pool == NULL)
		return NULL;
	struct split_memory memory = {
	        .host = source ? split->memory + SPLIT_MESSAGES * PUSH_MAX_BYTES + PUSH_SEND_BYTES
	                       : NULL};
	if (!split->channel->offer(split->binding, at.index, at.elements, at.element_bytes, source,
	                           &memory)) {
		pool_remove(side, pool);
		return NULL;
	}
	pool->host = memory.host;
	pool->at.address = memory.address;
	pool->at.handle = memory.handle;
	pool->local = local;
	pool->source = source;
	pool->state = local ? SPLIT_POOL_OPEN : SPLIT_POOL_NEW;
	return pool;
}

bool split_offer(struct split *split, const struct split_plan *plan)
{
	enum split_way way = split_way_in(split);
	uint16_t flags = (uint16_t)((way == WAY_ASK ? PUSH_POOL_ON_REQUEST : 0u) |
	                            (plan->by_address ? PUSH_POOL_BY_ADDRESS : 0u));
	if (way == WAY_SEND || plan->elements == 0 || plan->element_bytes == 0 ||
	    plan->element_bytes > SPLIT_MAX_ELEMENT_BYTES || split->state != SPLIT_OPEN)
		return false;
	return own_add(split, plan, flags, way == WAY_SHOW, false) != NULL;
}

bool split_receives_in_pools(const struct split *split)
{
	return split_way_in(split) == WAY_WRITE || split_way_in(split) == WAY_ASK;
}

uint32_t split_pool_free(const struct split_side *side, const struct split_pool *pool, bool own)
{
	uint32_t count = 0;
	if (!own)
		return pool->free;
	for (uint32_t i = 0; i < pool->at.elements; i++)
		count += !pool->source && side->element[pool->first + i] == ELEMENT_OFFERED;
	return count;
}

bool own_begin(struct split *split)
{
	for (uint32_t i = 0; i < split->config.plan_count; i++)
		if (split_way_in(split) != WAY_SEND && !split_offer(split, &split->config.plans[i]))
			return false;
	struct split_plan slots = {.elements = split->config.slots,
	                           .element_bytes = split->slot_bytes};
	return split_way_out(split) != WAY_SHOW ||
	       own_add(split, &slots, PUSH_POOL_READABLE, false, true) != NULL;
}

/* The peer has written an element. */
void own_indicated(struct split *split, const struct push_indication *indication)
{
	struct split_pool *pool = pool_find(&split->mine, indication->pool);
	if (pool == NULL || pool->source || pool->local || pool->state == SPLIT_POOL_NEW ||
	    pool->state == SPLIT_POOL_ENDING) {
		split_judge(split, SPLIT_NO_POOL);
		return;
	}
	if (indication->element >= pool->at.elements) {
		split_judge(split, SPLIT_NO_ELEMENT);
		return;
	}
	uint8_t *element = pool_element(&split->mine, pool, indication->element);
	if (*element != ELEMENT_OFFERED) {
		split_judge(split, SPLIT_NOT_OFFERED);
		return;
	}
	if (indication->bytes == 0 || indication->bytes > pool->at.element_bytes) {
		split_judge(split, SPLIT_BAD_SIZE);
		return;
	}
	*element = ELEMENT_HELD;
	pool->busy++;
	struct split_frame *frame = frames_push(split);
	*frame = (struct split_frame){.pool = (uint16_t)(pool - split->mine.pools),
	                              .element = (uint16_t)indication->element,
	                              .ready = true,
	                              .bytes = indication->bytes,
	                              .data = pool->host +
	                                      (size_t)indication->element * pool->at.element_bytes};
	split_deliver(split);
}

/* Indication by immediate data: 8/8/16, or by address where such a pool was offered. */
void own_immediate(struct split *split, uint32_t immediate)
{
	struct push_indication indication = push_unpack(immediate);
	for (uint32_t i = 0; i < split->mine.open_count; i++) {
		struct split_pool *pool = &split->mine.pools[split->mine.open[i]];
		if ((pool->flags & PUSH_POOL_BY_ADDRESS) == 0)
			continue;
		uint64_t offset;
		push_unpack_address(immediate, &offset, &indication.bytes);
		if (offset % pool->at.element_bytes != 0) {
			split_judge(split, SPLIT_BAD_IMMEDIATE);
			return;
		}
		indication.pool = pool->at.index;
		indication.element = (uint32_t)(offset / pool->at.element_bytes);
		break;
	}
	own_indicated(split, &indication);
}

/* Pull-pull: give the peer elements for what it asked. */
static void own_grant(struct split *split)
{
	struct split_side *side = &split->mine;
	while (split->wanted_head != split->wanted_tail) {
		uint32_t bytes = split->wanted[split->wanted_head % SPLIT_MAX_SLOTS];
		struct split_pool *best = NULL;
		for (uint32_t i = 0; i < side->open_count; i++) {
			struct split_pool *pool = &side->pools[side->open[i]];
			if (!pool->source && pool->state == SPLIT_POOL_OPEN && pool->free > 0 &&
			    pool->at.element_bytes >= bytes &&
			    (best == NULL || pool->at.element_bytes < best->at.element_bytes))
				best = pool;
		}
		if (best == NULL)
			return;
		uint32_t element = pool_take_free(side, best);
		*pool_element(side, best, element) = ELEMENT_FREED;
		best->updates++;
		split->urgent = true;
		split->wanted_head++;
	}
}

/* BufferRecvPoolGet. In pull-pull it asks for elements, else for a pool, which it need not get. */
void own_get(struct split *split, uint32_t packet_bytes, uint32_t packets)
{
	if (packet_bytes == 0 || packet_bytes > split->config.frame_bytes || packets == 0) {
		split_judge(split, SPLIT_BAD_SIZE);
		return;
	}
	if (split_way_in(split) == WAY_ASK) {
		if (packets > SPLIT_MAX_SLOTS - (split->wanted_tail - split->wanted_head)) {
			split_judge(split, SPLIT_TOO_MANY);
			return;
		}
		for (uint32_t i = 0; i < packets; i++)
			split->wanted[split->wanted_tail++ % SPLIT_MAX_SLOTS] = packet_bytes;
		own_grant(split);
		return;
	}
	split->urgent = true;
	if (split_way_in(split) != WAY_WRITE || split->state != SPLIT_OPEN)
		return;
	uint32_t pools = 0;
	for (uint32_t i = 0; i < split->mine.open_count; i++)
		pools += !split->mine.pools[split->mine.open[i]].source;
	struct split_plan plan = {.elements = packets < 64 ? packets : 64,
	                          .element_bytes = packet_bytes};
	if (pools < split->config.max_pools)
		split_offer(split, &plan);
}

void own_update(struct split *split, const struct push_run *run)
{
	struct split_pool *pool = pool_find(&split->mine, run->pool & PUSH_INDEX_MASK);
	if (pool == NULL || !pool->source) {
		split_judge(split, SPLIT_NO_POOL);
		return;
	}
	if (run->first >= pool->at.elements || run->elements > pool->at.elements - run->first) {
		split_judge(split, SPLIT_NO_ELEMENT);
		return;
	}
	for (uint32_t i = run->first; i < run->first + run->elements; i++) {
		uint8_t *element = pool_element(&split->mine, pool, i);
		if (*element != ELEMENT_OFFERED) {
			split_judge(split, SPLIT_NOT_USED);
			return;
		}
		*element = ELEMENT_IDLE;
		frames_slot_free(split, i);
	}
}

/* A frame was delivered: its element is the peer's again. */
void own_release(struct split *split, struct split_pool *pool, uint32_t element)
{
	uint8_t *state = pool_element(&split->mine, pool, element);
	assert(*state == ELEMENT_HELD && pool->busy > 0);
	pool->busy--;
	if (pool->local || (pool->flags & PUSH_POOL_ON_REQUEST) != 0) {
		*state = ELEMENT_IDLE;
		pool_put_free(&split->mine, pool, element);
		own_grant(split);
		return;
	}
	*state = ELEMENT_FREED;
	pool->updates++;
}

static void own_remove(struct split *split, struct split_pool *pool)
{
	split->channel->withdraw(split->binding, pool->at.index);
	pool_remove(&split->mine, pool);
}

/* The peer does not use pool @index any more, and asks for it to be freed. */
void own_returned(struct split *split, uint32_t index)
{
	struct split_pool *pool = pool_find(&split->mine, index);
	if (pool == NULL || pool->local || pool->state == SPLIT_POOL_NEW) {
		split_judge(split, SPLIT_NO_POOL);
		return;
	}
	pool->state = SPLIT_POOL_ENDING;
}

/* The reply to our request has come, or is not awaited any longer. */
void own_flushed(struct split *split)
{
	struct split_side *side = &split->theirs;
	for (uint32_t i = 0; i < split->mine.open_count; i++) {
		struct split_pool *pool = &split->mine.pools[split->mine.open[i]];
		if (pool->state == SPLIT_POOL_FLUSHING && pool->sent)
			pool->state = SPLIT_POOL_ENDING;
	}
	for (uint32_t i = side->open_count; i-- > 0;) {
		struct split_pool *pool = &side->pools[side->open[i]];
		if (pool->returning && pool->sent)
			pool_remove(side, pool);
	}
	split->flush_sent = false;
}

/* Free pools that nobody uses any more. */
void own_end_flushed(struct split *split)
{
	for (uint32_t i = split->mine.open_count; i-- > 0;) {
		struct split_pool *pool = &split->mine.pools[split->mine.open[i]];
		if (pool->state == SPLIT_POOL_ENDING && pool->busy == 0)
			own_remove(split, pool);
	}
}

void own_withdraw_all(struct split *split)
{
	while (split->mine.open_count > 0)
		own_remove(split, &split->mine.pools[split->mine.open[0]]);
}

bool split_flush(struct split *split, uint32_t index)
{
	struct split_pool *pool = pool_find(&split->mine, index);
	if (pool == NULL || pool->state == SPLIT_POOL_FLUSHING || pool->state == SPLIT_POOL_ENDING)
		return false;
	/* What the peer has never heard of, it need not stop using. */
	bool unknown = pool->local || pool->state == SPLIT_POOL_NEW;
	pool->state = unknown ? SPLIT_POOL_ENDING : SPLIT_POOL_FLUSHING;
	return true;
}

static bool own_announce(struct split *split)
{
	struct push_pool pools[PUSH_MAX_POOLS];
	uint32_t count = 0, buffer;
	struct split_side *side = &split->mine;
	for (uint32_t i = 0; i < side->open_count && count < PUSH_MAX_POOLS; i++)
		if (side->pools[side->open[i]].state == SPLIT_POOL_NEW)
			pools[count++] = side->pools[side->open[i]].at;
	if (count == 0)
		return true;
	uint8_t *out = split_message_begin(split, &buffer);
	if (out == NULL)
		return false;
	size_t bytes = push_put_pools(split->next_context++, pools, count, out, PUSH_MAX_BYTES);
	if (!split_message_send(split, buffer, bytes, ID_MESSAGE))
		return false;
	for (uint32_t i = 0; i < count; i++)
		pool_find(side, pools[i].index)->state = SPLIT_POOL_OPEN;
	return count < PUSH_MAX_POOLS; /* else there may be more */
}

/* Ask the peer to stop using pools, in either direction. One request at a time. */
static void own_ask_flush(struct split *split)
{
	uint32_t list[PUSH_MAX_FLUSHED], count = 0, buffer;
	struct split_side *sides[2] = {&split->mine, &split->theirs};
	struct split_pool *pools[PUSH_MAX_FLUSHED];
	for (uint32_t s = 0; s < 2; s++) {
		for (uint32_t i = 0; i < sides[s]->open_count && count < PUSH_MAX_FLUSHED; i++) {
			struct split_pool *pool = &sides[s]->pools[sides[s]->open[i]];
			bool wanted = s == 0 ? pool->state == SPLIT_POOL_FLUSHING
			                     : pool->returning && pool->busy == 0;
			if (!wanted || pool->sent)
				continue;
			pools[count] = pool;
			list[count++] = pool->at.index | (s == 0 ? 0 : PUSH_YOURS);
		}
	}
	if (count == 0 || split->flush_sent)
		return;
	uint8_t *out = split_message_begin(split, &buffer);
	if (out == NULL)
		return;
	split->flush_context = split->next_context++;
	size_t bytes = push_put_flush(split->flush_context, list, count, out, PUSH_MAX_BYTES);
	if (!split_message_send(split, buffer, bytes, ID_MESSAGE))
		return;
	for (uint32_t i = 0; i < count; i++)
		pools[i]->sent = true;
	split->flush_sent = true;
	split->flush_deadline_ns = split->now_ns + SPLIT_FLUSH_NS;
}

/* Send updates for own elements that are free again, and for the peer's slots that were read. A
 * quarter of a pool makes a message worth while; the peer still has the rest. */
static bool own_send_updates(struct split *split)
{
	static const uint32_t marks[2] = {0, PUSH_YOURS};
	static const enum split_element next[2] = {ELEMENT_OFFERED, ELEMENT_IDLE};
	struct split_side *sides[2] = {&split->mine, &split->theirs};
	struct push_run runs[PUSH_MAX_RUNS];
	bool due = false;
	for (uint32_t s = 0; s < 2; s++) {
		for (uint32_t i = 0; i < sides[s]->open_count; i++) {
			const struct split_pool *pool = &sides[s]->pools[sides[s]->open[i]];
			if (pool->state == SPLIT_POOL_OPEN && pool->updates > 0 &&
			    (split->urgent || pool->updates >= (pool->at.elements + 3) / 4))
				due = true;
		}
	}
	if (!due)
		return true;
	uint32_t buffer, count = 0;
	uint8_t *out = split_message_begin(split, &buffer);
	if (out == NULL)
		return false;
	for (uint32_t s = 0; s < 2; s++) {
		for (uint32_t i = 0; i < sides[s]->open_count && count < PUSH_MAX_RUNS; i++) {
			struct split_pool *pool = &sides[s]->pools[sides[s]->open[i]];
			if (pool->state == SPLIT_POOL_OPEN && pool->updates > 0)
				count += pool_updates(sides[s], pool, marks[s], next[s],
				                      runs + count, PUSH_MAX_RUNS - count);
		}
	}
	split->urgent = count == PUSH_MAX_RUNS;
	size_t bytes = push_put_runs(split->next_context++, runs, count, out, PUSH_MAX_BYTES);
	assert(bytes > 0);
	if (split_message_send(split, buffer, bytes, ID_MESSAGE))
		return true;
	/* No room: the elements wait again. */
	for (uint32_t i = 0; i < count; i++) {
		struct split_side *side = sides[(runs[i].pool & PUSH_YOURS) != 0];
		struct split_pool *pool = pool_find(side, runs[i].pool & PUSH_INDEX_MASK);
		for (uint32_t e = 0; e < runs[i].elements; e++)
			*pool_element(side, pool, runs[i].first + e) = ELEMENT_FREED;
		pool->updates += runs[i].elements;
	}
	split->urgent = true;
	return false;
}

void own_pump(struct split *split)
{
	if (own_announce(split) && own_send_updates(split))
		own_ask_flush(split);
}
