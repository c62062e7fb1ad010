/* Pools of the peer: this side writes into them, or reads from them what it was told about. */
#include <assert.h>

#include "split/internal.h"
#include "wire/be.h"

/* Do two pools of one memory handle share bytes? Neither wraps: push_decode() has checked that. */
static bool theirs_overlap(const struct push_pool *a, const struct push_pool *b)
{
	uint64_t a_bytes = (uint64_t)a->elements * a->element_bytes;
	uint64_t b_bytes = (uint64_t)b->elements * b->element_bytes;
	if (a->handle != b->handle)
		return false;
	return a->address <= b->address ? b->address - a->address < a_bytes
	                                : a->address - b->address < b_bytes;
}

static enum split_verdict theirs_judge(struct split *split, const struct push_pool *at)
{
	struct split_side *side = &split->theirs;
	uint16_t flags = push_pool_flags(at->context);
	enum split_way out = split_way_out(split);
	bool readable = (flags & PUSH_POOL_READABLE) != 0, by_address = false;
	bool on_request = (flags & PUSH_POOL_ON_REQUEST) != 0;
	if ((flags & ~PUSH_POOL_FLAGS) != 0 || (readable && split_way_in(split) != WAY_SHOW) ||
	    (!readable && out != WAY_WRITE && out != WAY_ASK) ||
	    (!readable && on_request != (out == WAY_ASK)))
		return SPLIT_POOL_KIND;
	if (at->index > PUSH_MAX_INDEX || at->elements > SPLIT_MAX_ELEMENTS ||
	    at->element_bytes > SPLIT_MAX_ELEMENT_BYTES)
		return SPLIT_POOL_LIMIT;
	for (uint32_t i = 0; i < side->open_count; i++) {
		const struct split_pool *other = &side->pools[side->open[i]];
		if (other->at.index == at->index)
			return SPLIT_POOL_TWICE;
		if (theirs_overlap(&other->at, at))
			return SPLIT_POOL_OVERLAP;
		by_address |= ((other->flags | flags) & PUSH_POOL_BY_ADDRESS) != 0;
	}
	/* Indication by address does not say which pool: there can only be one. */
	return by_address ? SPLIT_POOL_KIND : SPLIT_OK;
}

void theirs_offered(struct split *split, const struct push_message *message)
{
	for (uint32_t i = 0; i < message->count && split->state != SPLIT_FAILED; i++) {
		struct push_pool at = push_get_pool(message, i);
		bool idle = (push_pool_flags(at.context) &
		             (PUSH_POOL_READABLE | PUSH_POOL_ON_REQUEST)) != 0;
		enum split_verdict verdict = theirs_judge(split, &at);
		struct split_pool *pool = NULL;
		if (verdict == SPLIT_OK)
			pool = pool_add(&split->theirs, &at, idle ? ELEMENT_IDLE : ELEMENT_FREE);
		if (pool == NULL) {
			split_judge(split, verdict == SPLIT_OK ? SPLIT_POOL_LIMIT : verdict);
			return;
		}
		if (idle)
			pool->free = 0; /* none is ours before we are told */
	}
	split->get_sent = false;
}

void theirs_update(struct split *split, const struct push_run *run)
{
	struct split_pool *pool = pool_find(&split->theirs, run->pool);
	if (pool == NULL || (pool->flags & PUSH_POOL_READABLE) != 0) {
		split_judge(split, SPLIT_NO_POOL);
		return;
	}
	if (run->first >= pool->at.elements || run->elements > pool->at.elements - run->first) {
		split_judge(split, SPLIT_NO_ELEMENT);
		return;
	}
	/* What was granted on request is used up by one write; else it is ours, used, ours. */
	bool on_request = (pool->flags & PUSH_POOL_ON_REQUEST) != 0;
	for (uint32_t i = run->first; i < run->first + run->elements; i++) {
		uint8_t *element = pool_element(&split->theirs, pool, i);
		if (*element != ELEMENT_USED && !(on_request && *element == ELEMENT_IDLE)) {
			split_judge(split, SPLIT_NOT_USED);
			return;
		}
		*element = ELEMENT_FREE;
		pool_put_free(&split->theirs, pool, i);
	}
	split->get_sent = false;
}

/* Push-pull: a frame waits in an element of the peer's. */
void theirs_told(struct split *split, const struct push_indication *indication)
{
	struct split_pool *pool = pool_find(&split->theirs, indication->pool);
	if (pool == NULL || (pool->flags & PUSH_POOL_READABLE) == 0 ||
	    pool->state != SPLIT_POOL_OPEN) {
		split_judge(split, SPLIT_NO_POOL);
		return;
	}
	if (indication->element >= pool->at.elements) {
		split_judge(split, SPLIT_NO_ELEMENT);
		return;
	}
	uint8_t *element = pool_element(&split->theirs, pool, indication->element);
	if (*element != ELEMENT_IDLE) {
		split_judge(split, SPLIT_NOT_OFFERED);
		return;
	}
	if (indication->bytes == 0 || indication->bytes > pool->at.element_bytes ||
	    indication->bytes > split->config.frame_bytes) {
		split_judge(split, SPLIT_BAD_SIZE);
		return;
	}
	*element = ELEMENT_USED;
	pool->busy++;
	*frames_push(split) =
	        (struct split_frame){.pool = SPLIT_MAX_POOLS,
	                             .from_pool = (uint16_t)(pool - split->theirs.pools),
	                             .from_element = (uint16_t)indication->element,
	                             .bytes = indication->bytes};
}

/* A place of our own for a frame of @bytes that is to be read. */
static struct split_pool *theirs_read_place(struct split *split, uint32_t bytes)
{
	struct split_side *side = &split->mine;
	struct split_pool *best = NULL;
	for (uint32_t i = 0; i < side->open_count; i++) {
		struct split_pool *pool = &side->pools[side->open[i]];
		if (pool->local && pool->free > 0 && pool->at.element_bytes >= bytes &&
		    (best == NULL || pool->at.element_bytes < best->at.element_bytes))
			best = pool;
	}
	return best;
}

void theirs_read(struct split *split)
{
	while (split->frames_issued != split->frames_tail) {
		uint32_t number = split->frames_issued % SPLIT_MAX_FRAMES;
		struct split_frame *frame = &split->frames[number];
		struct split_pool *place = theirs_read_place(split, frame->bytes);
		if (place == NULL)
			return;
		struct split_pool *from = &split->theirs.pools[frame->from_pool];
		uint32_t element = pool_take_free(&split->mine, place);
		struct split_op op = {.kind = SPLIT_OP_READ,
		                      .channel = SPLIT_DATA,
		                      .local = place->host +
		                               (size_t)element * place->at.element_bytes,
		                      .bytes = frame->bytes,
		                      .address = from->at.address + (uint64_t)frame->from_element *
		                                                            from->at.element_bytes,
		                      .handle = from->at.handle};
		if (!split->channel->post(split->binding, &op, split_id(ID_READ, number))) {
			pool_put_free(&split->mine, place, element);
			return;
		}
		*pool_element(&split->mine, place, element) = ELEMENT_HELD;
		place->busy++;
		frame->pool = (uint16_t)(place - split->mine.pools);
		frame->element = (uint16_t)element;
		frame->data = op.local;
		split->frames_issued++;
		split->counters[SPLIT_RX_READS]++;
	}
}

/* The flow of a frame, for pools with a context: where it comes from, and to which port it goes. */
static void theirs_flow(const uint8_t *frame, uint32_t bytes, uint32_t *source, uint16_t *port)
{
	const uint8_t *ip = frame + 14;
	*source = 0;
	*port = 0;
	if (bytes < 14 + 20 || be16_load(frame + 12) != 0x0800 || ip[0] >> 4 != 4)
		return;
	uint32_t header = (ip[0] & 15u) * 4u;
	*source = be32_load(ip + 12);
	if ((ip[9] == 6 || ip[9] == 17) && (be16_load(ip + 6) & 0x1fffu) == 0 && header >= 20 &&
	    bytes >= 14 + header + 4)
		*port = be16_load(ip + header + 2);
}

bool theirs_pick(struct split *split, const uint8_t *frame, uint32_t bytes, uint16_t *place,
                 uint32_t *element)
{
	struct split_side *side = &split->theirs;
	struct split_pool *best = NULL;
	bool best_steered = false, parsed = false;
	uint32_t source = 0;
	uint16_t port = 0;
	for (uint32_t i = 0; i < side->open_count; i++) {
		struct split_pool *pool = &side->pools[side->open[i]];
		uint64_t context = pool->at.context & 0xffffffffffffull;
		if (pool->state != SPLIT_POOL_OPEN || pool->returning || pool->free == 0 ||
		    pool->at.element_bytes < bytes || (pool->flags & PUSH_POOL_READABLE) != 0)
			continue;
		if (context != 0 && !parsed) {
			uint32_t skip = split->config.header_bytes;
			if (bytes > skip)
				theirs_flow(frame + skip, bytes - skip, &source, &port);
			parsed = true;
		}
		uint16_t want_port = (uint16_t)(context >> 32);
		uint32_t want_source = (uint32_t)context;
		if ((want_port != 0 && want_port != port) ||
		    (want_source != 0 && want_source != source))
			continue;
		bool steered = context != 0;
		if (best == NULL || (steered && !best_steered) ||
		    (steered == best_steered && pool->at.element_bytes < best->at.element_bytes)) {
			best = pool;
			best_steered = steered;
		}
	}
	if (best == NULL)
		return false;
	*place = (uint16_t)(best - side->pools);
	*element = pool_take_free(side, best);
	*pool_element(side, best, *element) = ELEMENT_USED;
	best->busy++;
	return true;
}

void theirs_unpick(struct split *split, uint16_t place, uint32_t element)
{
	struct split_pool *pool = &split->theirs.pools[place];
	*pool_element(&split->theirs, pool, element) = ELEMENT_FREE;
	pool->busy--;
	pool_put_free(&split->theirs, pool, element);
}

uint32_t theirs_room(const struct split *split)
{
	uint32_t room = 0;
	for (uint32_t i = 0; i < split->theirs.open_count; i++) {
		const struct split_pool *pool = &split->theirs.pools[split->theirs.open[i]];
		if (pool->state == SPLIT_POOL_OPEN && !pool->returning &&
		    (pool->flags & PUSH_POOL_READABLE) == 0 &&
		    (pool->at.context & 0xffffffffffffull) == 0 &&
		    pool->at.element_bytes >= split->config.frame_bytes)
			room += pool->free;
	}
	return room;
}

/* BufferPoolFlushRequest: stop using the peer's pools, or free own pools that the peer returns. The
 * reply is sent when nothing is in flight (theirs_pump()). */
void theirs_flush(struct split *split, const struct push_message *message)
{
	if (split->reply_owed) {
		split_judge(split, SPLIT_TOO_MANY);
		return;
	}
	for (uint32_t i = 0; i < message->count && split->state != SPLIT_FAILED; i++) {
		uint32_t reference = push_get_flushed(message, i);
		if ((reference & PUSH_YOURS) != 0) {
			own_returned(split, reference & PUSH_INDEX_MASK);
			continue;
		}
		struct split_pool *pool = pool_find(&split->theirs, reference);
		if (pool == NULL || pool->state == SPLIT_POOL_FLUSHING) {
			split_judge(split, SPLIT_NO_POOL);
			return;
		}
		pool->state = SPLIT_POOL_FLUSHING;
	}
	split->reply_owed = true;
	split->reply_context = message->context;
}

bool split_return(struct split *split, uint32_t index)
{
	struct split_pool *pool = pool_find(&split->theirs, index);
	if (pool == NULL || pool->state != SPLIT_POOL_OPEN || pool->returning ||
	    (pool->flags & PUSH_POOL_READABLE) != 0)
		return false;
	pool->returning = true;
	return true;
}

/* Send the reply to a flush when every operation on those pools has completed. */
void theirs_pump(struct split *split)
{
	struct split_side *side = &split->theirs;
	if (!split->reply_owed)
		return;
	for (uint32_t i = 0; i < side->open_count; i++) {
		const struct split_pool *pool = &side->pools[side->open[i]];
		if (pool->state == SPLIT_POOL_FLUSHING && pool->busy > 0)
			return;
	}
	struct push_message reply = {.function = PUSH_FLUSH_REPLY, .context = split->reply_context};
	uint32_t buffer;
	uint8_t *out = split_message_begin(split, &buffer);
	if (out == NULL)
		return;
	size_t bytes = push_put(&reply, out, PUSH_MAX_BYTES);
	if (!split_message_send(split, buffer, bytes, ID_MESSAGE))
		return;
	split->reply_owed = false;
	for (uint32_t i = side->open_count; i-- > 0;) {
		struct split_pool *pool = &side->pools[side->open[i]];
		if (pool->state == SPLIT_POOL_FLUSHING)
			pool_remove(side, pool);
	}
}
