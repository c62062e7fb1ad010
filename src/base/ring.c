/* Memory order, by pairs:
 *   R1 publish: stamp, release   with R2 peek: stamp, acquire: the record, its length, the cleared
 *                                stamp behind it
 *   R3 flush: head, release      with R4 reserve: head, acquire: the consumer has finished reading
 *                                what it released
 *   R5 arm: exchange             with R6 take_armed: fence and load: whichever comes second sees
 *                                what preceded the other: the producer sees the mark, or the
 *                                consumer (in its ring_peek() after arming) sees the record
 *   R7 ask_fence: fence, release with R8 take_armed: fence, acquire: what was armed while the
 *                                producer executed the barriers
 * R5 and R6 are full barriers: otherwise a store on one side and a load on the other could pass
 * each other. */
#include "base/ring.h"

#include <assert.h>
#include <string.h>

static bool count_is_good(uint32_t slot_count)
{
	return slot_count >= RING_MIN_SLOTS && slot_count <= RING_MAX_SLOTS &&
	       (slot_count & (slot_count - 1)) == 0;
}

size_t ring_bytes(uint32_t slot_count)
{
	assert(count_is_good(slot_count));
	return sizeof(struct ring_shared) + (size_t)slot_count * RING_SLOT_BYTES;
}

void ring_format(void *memory, uint32_t slot_count)
{
	assert(((uintptr_t)memory & 63u) == 0);
	memset(memory, 0, ring_bytes(slot_count));
}

void ring_tx_attach(struct ring_tx *tx, void *memory, uint32_t slot_count)
{
	assert(count_is_good(slot_count));
	*tx = (struct ring_tx){
	        .shared = memory,
	        .slot_count = slot_count,
	        .lap_shift = (uint32_t)__builtin_ctz(slot_count),
	};
}

void ring_rx_attach(struct ring_rx *rx, void *memory, uint32_t slot_count)
{
	assert(count_is_good(slot_count));
	*rx = (struct ring_rx){
	        .shared = memory,
	        .slot_count = slot_count,
	        .lap_shift = (uint32_t)__builtin_ctz(slot_count),
	};
}

/* Are @slots slots free, and one more behind them? */
static bool has_room(struct ring_tx *tx, uint32_t slots)
{
	if (tx->position - tx->head_cache + slots < tx->slot_count)
		return true;
	uint64_t head = atomic_load_explicit(&tx->shared->head, memory_order_acquire); /* R4 */
	/* The consumer can only have advanced, and not beyond us; believe nothing else. */
	if (head - tx->head_cache > tx->position - tx->head_cache)
		return false;
	tx->head_cache = head;
	return tx->position - head + slots < tx->slot_count;
}

void *ring_reserve_slowly(struct ring_tx *tx, size_t bytes)
{
	assert(bytes >= 1 && bytes <= ring_max_record(tx->slot_count));
	uint32_t slots = ring_slots_of(bytes);
	uint32_t to_end = tx->slot_count - (uint32_t)(tx->position & (tx->slot_count - 1));
	uint32_t pad = slots > to_end ? to_end : 0;
	if (!has_room(tx, pad + slots))
		return NULL;
	if (pad != 0)
		/* Not a record, so the consumer may see it immediately. */
		ring_put(tx, RING_PAD, pad);
	tx->reserved = (uint32_t)bytes;
	tx->reserved_slots = slots;
	return ring_slot_at(tx->shared, tx->slot_count, tx->position)->record;
}

bool ring_consumed(const struct ring_tx *tx, uint64_t position)
{
	/* An invalid head only hurts the consumer itself: we then do not wait for it. */
	return atomic_load_explicit(&tx->shared->head, memory_order_acquire) - position <
	       UINT64_MAX / 2;
}

/* Never reached with a producer that follows the layout in ring.h. */
static const void *ring_give_up(struct ring_rx *rx)
{
	rx->broken = true;
	rx->taken = 0;
	return NULL;
}

/* What the slot of the next record may contain until then: nothing, or the stamp of the last lap.
 */
static bool stamp_is_old(const struct ring_rx *rx, uint32_t stamp)
{
	uint64_t lap = rx->position >> rx->lap_shift;
	return stamp == 0 || (lap > 0 && stamp == RING_STAMP(lap - 1));
}

const void *ring_peek_slowly(struct ring_rx *rx, size_t *bytes)
{
	while (!rx->broken) {
		struct ring_slot *slot = ring_slot_at(rx->shared, rx->slot_count, rx->position);
		uint32_t stamp = atomic_load_explicit(&slot->stamp, memory_order_acquire); /* R2 */
		if (stamp != RING_STAMP(rx->position >> rx->lap_shift)) {
			if (!stamp_is_old(rx, stamp))
				return ring_give_up(rx);
			if (rx->released != rx->position)
				ring_flush_head(rx);
			return NULL;
		}
		uint32_t length = atomic_load_explicit(&slot->bytes, memory_order_relaxed);
		uint32_t to_end = rx->slot_count - (uint32_t)(rx->position & (rx->slot_count - 1));
		if (length == RING_PAD) {
			if (to_end >= rx->slot_count / 2) /* never at slot 0, so this loop ends */
				return ring_give_up(rx);
			rx->position += to_end;
			continue;
		}
		if (length == 0 || length > ring_max_record(rx->slot_count) ||
		    ring_slots_of(length) > to_end)
			return ring_give_up(rx);
		rx->taken = ring_slots_of(length);
		*bytes = length;
		return slot->record;
	}
	return NULL;
}

void ring_arm(struct ring_rx *rx)
{
	atomic_exchange_explicit(&rx->shared->armed, 1, memory_order_acq_rel); /* R5 */
}

void ring_disarm(struct ring_rx *rx)
{
	atomic_store_explicit(&rx->shared->armed, 0, memory_order_relaxed);
}

void ring_ask_fence(struct ring_rx *rx, bool fence)
{
	atomic_store_explicit(&rx->shared->fence, fence, memory_order_release); /* R7 */
}
