/* Frames: out of the slots by one of four ways, and to the user in the order of their arrival. */
#include <assert.h>

#include "split/internal.h"

static uint8_t *slot_frame(const struct split *split, uint32_t slot)
{
	return split->memory + SPLIT_MESSAGES * PUSH_MAX_BYTES + PUSH_SEND_BYTES +
	       (size_t)slot * split->slot_bytes;
}

uint8_t *split_take(struct split *split)
{
	assert(split->slot_taken == SPLIT_MAX_SLOTS);
	if (split->state != SPLIT_OPEN || split->slots_free == 0)
		return NULL;
	/* A frame that was taken is not dropped: there must be an element for it, whatever its
	 * length. */
	if (split_way_out(split) == WAY_SEND && !credit_room(split))
		return NULL;
	if (split_way_out(split) == WAY_WRITE &&
	    theirs_room(split) <= queue_length(&split->queued)) {
		split->starving = true;
		return NULL;
	}
	while (split->slots[split->next_slot].state != SLOT_FREE)
		split->next_slot = (split->next_slot + 1) % split->config.slots;
	split->slot_taken = split->next_slot;
	split->slots[split->slot_taken].state = SLOT_TAKEN;
	split->slots_free--;
	return slot_frame(split, split->slot_taken);
}

void frames_slot_free(struct split *split, uint32_t slot)
{
	assert(split->slots[slot].state != SLOT_FREE);
	split->slots[slot].state = SLOT_FREE;
	split->slots_free++;
}

void split_untake(struct split *split)
{
	frames_slot_free(split, split->slot_taken);
	split->slot_taken = SPLIT_MAX_SLOTS;
}

void split_send(struct split *split, uint32_t bytes)
{
	assert(bytes > 0 && bytes <= split->config.frame_bytes);
	struct split_slot *slot = &split->slots[split->slot_taken];
	slot->state = SLOT_QUEUED;
	slot->bytes = bytes;
	queue_push(&split->queued, split->slot_taken);
	split->slot_taken = SPLIT_MAX_SLOTS;
	split->counters[SPLIT_TX_FRAMES]++;
	split->counters[SPLIT_TX_BYTES] += bytes;
}

static bool frames_send(struct split *split, uint32_t number)
{
	struct split_slot *slot = &split->slots[number];
	uint8_t *message = slot_frame(split, number) - PUSH_SEND_BYTES;
	push_put_send(credit_number(split), slot->bytes, message);
	struct split_op op = {.kind = SPLIT_OP_SEND,
	                      .channel = split->config.one_channel ? SPLIT_CONTROL : SPLIT_DATA,
	                      .local = message,
	                      .bytes = PUSH_SEND_BYTES + slot->bytes};
	if (!split->channel->post(split->binding, &op, split_id(ID_SEND, number)))
		return false;
	credit_sent(split);
	slot->state = SLOT_FLYING;
	split->counters[SPLIT_TX_SENDS]++;
	return true;
}

/* Write a frame into an element of the peer's, with its indication where that fits. A write with
 * immediate data must not overtake a message that indicates an earlier frame: frames arrive in
 * order. */
static bool frames_write(struct split *split, uint32_t number)
{
	struct split_slot *slot = &split->slots[number];
	if (!theirs_pick(split, slot_frame(split, number), slot->bytes, &slot->pool,
	                 &slot->element))
		return false;
	const struct split_pool *pool = &split->theirs.pools[slot->pool];
	uint64_t offset = (uint64_t)slot->element * pool->at.element_bytes;
	struct push_indication indication = {pool->at.index, slot->element, slot->bytes};
	struct split_op op = {.kind = SPLIT_OP_WRITE,
	                      .channel = SPLIT_DATA,
	                      .local = slot_frame(split, number),
	                      .bytes = slot->bytes,
	                      .address = pool->at.address + offset,
	                      .handle = pool->at.handle};
	if (!split->config.by_message)
		op.has_immediate = (pool->flags & PUSH_POOL_BY_ADDRESS) != 0
		                           ? push_pack_address(offset, slot->bytes, &op.immediate)
		                           : push_pack(&indication, &op.immediate);
	enum split_id what = op.has_immediate ? ID_WRITE : ID_WRITE_SILENT;
	if ((op.has_immediate && split->messages > 0) ||
	    !split->channel->post(split->binding, &op, split_id(what, number))) {
		theirs_unpick(split, slot->pool, slot->element);
		return false;
	}
	slot->state = SLOT_FLYING;
	split->messages += !op.has_immediate;
	split->counters[SPLIT_TX_WRITES]++;
	return true;
}

static bool frames_indicate(struct split *split, const struct push_indication *indication,
                            enum split_id what)
{
	uint32_t buffer;
	struct push_message message = {.function = PUSH_INDICATE, .indication = *indication};
	uint8_t *out = split_message_begin(split, &buffer);
	if (out == NULL)
		return false;
	message.context = split->next_context;
	if (!split_message_send(split, buffer, push_put(&message, out, PUSH_MAX_BYTES), what))
		return false;
	split->next_context++;
	split->counters[SPLIT_INDICATED]++;
	return true;
}

/* Push-pull: tell the peer which slot it is to read. */
static bool frames_show(struct split *split, uint32_t number)
{
	struct split_side *side = &split->mine;
	for (uint32_t i = 0; i < side->open_count; i++) {
		struct split_pool *pool = &side->pools[side->open[i]];
		if (!pool->source || pool->state != SPLIT_POOL_OPEN)
			continue;
		struct push_indication at = {pool->at.index, number, split->slots[number].bytes};
		if (!frames_indicate(split, &at, ID_MESSAGE))
			return false;
		*pool_element(side, pool, number) = ELEMENT_OFFERED;
		split->slots[number].state = SLOT_SHOWN;
		split->counters[SPLIT_TX_SHOWN]++;
		return true;
	}
	return false; /* not announced yet */
}

/* Pull-pull: ask for elements, several of one size in one message. */
static bool frames_ask(struct split *split)
{
	while (split->asks < queue_length(&split->asked)) {
		uint32_t bytes = 0, count = 0, buffer;
		for (uint32_t i = split->asks; i < queue_length(&split->asked); i++, count++) {
			uint32_t at = (split->asked.head + i) % SPLIT_MAX_ELEMENTS;
			uint32_t size = split->slots[split->asked.entry[at]].bytes;
			if (count > 0 && size != bytes)
				break;
			bytes = size;
		}
		uint8_t *out = split_message_begin(split, &buffer);
		if (out == NULL)
			return false;
		struct push_message message = {.function = PUSH_POOL_GET,
		                               .context = split->next_context,
		                               .packet_bytes = bytes,
		                               .packets = count};
		if (!split_message_send(split, buffer, push_put(&message, out, PUSH_MAX_BYTES),
		                        ID_MESSAGE))
			return false;
		split->next_context++;
		split->asks += count;
		split->counters[SPLIT_TX_ASKED] += count;
	}
	return true;
}

/* Say which elements were written, now that they have been. */
static bool frames_indicate_written(struct split *split)
{
	while (queue_length(&split->written) > 0) {
		uint32_t number = queue_peek(&split->written);
		struct split_slot *slot = &split->slots[number];
		struct split_pool *pool = &split->theirs.pools[slot->pool];
		struct push_indication at = {pool->at.index, slot->element, slot->bytes};
		if (!frames_indicate(split, &at, ID_INDICATION))
			return false;
		queue_pop(&split->written);
		pool->busy--; /* only now: a reply to a flush goes after the indication */
		frames_slot_free(split, number);
	}
	return true;
}

/* No element was free when the user had a frame: ask for some. */
static void frames_get(struct split *split)
{
	uint32_t buffer;
	if (!split->starving || split->get_sent || split->state != SPLIT_OPEN)
		return;
	uint8_t *out = split_message_begin(split, &buffer);
	if (out == NULL)
		return;
	struct push_message message = {.function = PUSH_POOL_GET,
	                               .context = split->next_context++,
	                               .packet_bytes = split->config.frame_bytes,
	                               .packets = split->config.slots};
	if (split_message_send(split, buffer, push_put(&message, out, PUSH_MAX_BYTES),
	                       ID_MESSAGE)) {
		split->get_sent = true;
		split->starving = false;
		split->counters[SPLIT_STARVED]++;
	}
}

void frames_pump(struct split *split)
{
	enum split_way way = split_way_out(split);
	if (way == WAY_ASK) {
		while (queue_length(&split->queued) > 0)
			queue_push(&split->asked, queue_pop(&split->queued));
		frames_ask(split);
		while (split->asks > 0 && frames_write(split, queue_peek(&split->asked))) {
			queue_pop(&split->asked);
			split->asks--;
		}
	} else {
		bool (*const send[])(struct split *, uint32_t) = {[WAY_SEND] = frames_send,
		                                                  [WAY_WRITE] = frames_write,
		                                                  [WAY_SHOW] = frames_show};
		while (queue_length(&split->queued) > 0 &&
		       send[way](split, queue_peek(&split->queued)))
			queue_pop(&split->queued);
	}
	frames_indicate_written(split);
	frames_get(split);
}

void frames_done(struct split *split, enum split_id what, uint32_t number)
{
	assert(number < split->config.slots && split->slots[number].state == SLOT_FLYING);
	if (what == ID_WRITE_SILENT) {
		split->slots[number].state = SLOT_WRITTEN;
		queue_push(&split->written, number);
		return;
	}
	if (what == ID_WRITE)
		split->theirs.pools[split->slots[number].pool].busy--;
	frames_slot_free(split, number);
}

void frames_indication_done(struct split *split)
{
	assert(split->messages > 0);
	split->messages--;
}

struct split_frame *frames_push(struct split *split)
{
	assert(split->frames_tail - split->frames_head < SPLIT_MAX_FRAMES);
	return &split->frames[split->frames_tail++ % SPLIT_MAX_FRAMES];
}

void frames_read_done(struct split *split, uint32_t number)
{
	assert(number < SPLIT_MAX_FRAMES);
	split->frames[number].ready = true;
	split_deliver(split);
}

/* The user has taken a frame: give back what it was in. */
static void frames_release(struct split *split, const struct split_frame *frame)
{
	if (frame->pool == SPLIT_MAX_POOLS) {
		split->channel->release(split->binding, frame->element);
		if (split->config.credits)
			credit_taken(split, frame->number);
		return;
	}
	struct split_pool *pool = &split->mine.pools[frame->pool];
	if (pool->local) {
		struct split_pool *from = &split->theirs.pools[frame->from_pool];
		*pool_element(&split->theirs, from, frame->from_element) = ELEMENT_FREED;
		from->updates++;
		from->busy--;
	}
	own_release(split, pool, frame->element);
}

bool split_delivering(const struct split *split, struct push_indication *at)
{
	const struct split_frame *frame = &split->frames[split->frames_head % SPLIT_MAX_FRAMES];
	if (!split->delivering || frame->pool == SPLIT_MAX_POOLS)
		return false;
	const struct split_pool *pool = &split->mine.pools[frame->pool];
	*at = (struct push_indication){pool->at.index, frame->element, frame->bytes};
	if (pool->local) /* the peer has named its own */
		*at = (struct push_indication){split->theirs.pools[frame->from_pool].at.index,
		                               frame->from_element, frame->bytes};
	return true;
}

void split_deliver(struct split *split)
{
	while (split->frames_head != split->frames_tail && split->state != SPLIT_FAILED) {
		struct split_frame *frame = &split->frames[split->frames_head % SPLIT_MAX_FRAMES];
		if (!frame->ready)
			return;
		if (frame->bytes > split->config.frame_bytes) {
			split->counters[SPLIT_RX_TOO_LONG]++;
		} else {
			split->delivering = true;
			bool taken = split->user->deliver(split->user_context, frame->data,
			                                  frame->bytes);
			split->delivering = false;
			if (!taken)
				return;
			split->counters[SPLIT_RX_FRAMES]++;
			split->counters[SPLIT_RX_BYTES] += frame->bytes;
		}
		split->frames_head++;
		frames_release(split, frame);
	}
}
