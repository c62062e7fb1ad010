/* A lane: records from one producer to one consumer, through memory that both map.
 *
 *   offset 0     struct ring_shared         written by
 *      0         head      (u64)            consumer: slots released so far, free-running
 *     64         armed     (u32)            consumer sets, producer clears: "ring me" (the IRQ bit
 *                of APERTURE)
 *     68         fence     (u32)            consumer: it arms often, so the producer is to execute
 *                the barrier
 *    128         slots[slot_count], 64 bytes each:
 *                  +0  stamp (u32)          producer, last: RING_STAMP(lap) if a record starts here
 *                  +4  bytes (u32)          producer: length of the record, or RING_PAD
 *                  +8  the record           producer; continues in the following slots without a
 *                      header
 *
 * There is no shared tail. The consumer waits for the stamp of the slot that it expects, so a small
 * record moves one cache line from core to core. The slot behind a record still contains what it
 * contained one lap ago. That is an old stamp, unless a longer record covered the slot. In that
 * case the producer clears it before it publishes, so that bytes of an older record are never
 * mistaken for a stamp. One slot is therefore always kept free. Records are contiguous; if one does
 * not fit before the end of the ring, a RING_PAD record fills the rest.
 *
 * Each side keeps its own cursor in private memory (struct ring_tx, struct ring_rx) and trusts
 * nothing that it reads from the other: a consumer checks every length against the ring before use,
 * and must copy a record once and check only that copy. The cursors of two threads should not share
 * a cache line. */
#ifndef BASE_RING_H
#define BASE_RING_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RING_SLOT_BYTES   64u
#define RING_HEADER_BYTES 8u
#define RING_PAD          0xffffffffu
#define RING_MIN_SLOTS    16u
#define RING_MAX_SLOTS    (1u << 20)

/* Different on every lap, and never 0, the value of a cleared stamp. */
#define RING_STAMP(lap) ((uint32_t)(lap) << 1 | 1u)

struct ring_shared {
	_Alignas(64) _Atomic uint64_t head;
	_Alignas(64) _Atomic uint32_t armed;
	_Atomic uint32_t fence;
	_Alignas(64) unsigned char slots[];
};
_Static_assert(sizeof(struct ring_shared) == 128, "see the drawing");

struct ring_slot {
	_Atomic uint32_t stamp;
	_Atomic uint32_t bytes;
	unsigned char record[RING_SLOT_BYTES - RING_HEADER_BYTES];
};
_Static_assert(sizeof(struct ring_slot) == RING_SLOT_BYTES, "see the drawing");

struct ring_tx {
	struct ring_shared *shared;
	/* The consumer pays for the barrier by calling barrier_everyone() after ring_arm(),
	 * unless it asks for fences. */
	bool unfenced;
	uint64_t position;   /* next slot to write, free-running */
	uint64_t head_cache; /* what the consumer had released when we last read it */
	uint64_t long_end;   /* end of the last record that took several slots */
	uint32_t slot_count; /* a power of two */
	uint32_t lap_shift;  /* its logarithm */
	uint32_t reserved;   /* bytes of the record between ring_reserve() and ring_publish() */
	uint32_t reserved_slots;
};

struct ring_rx {
	struct ring_shared *shared;
	uint64_t position; /* next slot to read, free-running */
	uint64_t released; /* what we last reported to the producer */
	uint32_t slot_count;
	uint32_t lap_shift;
	uint32_t taken; /* slots of the record between ring_peek() and ring_release() */
	bool broken;    /* the producer wrote invalid data; the lane is dead */
};

/* Bytes of memory that a ring of @slot_count slots needs. */
size_t ring_bytes(uint32_t slot_count);

/* Create an empty ring in @memory (64-byte aligned, ring_bytes() long). Call once, before either
 * side attaches. */
void ring_format(void *memory, uint32_t slot_count);

void ring_tx_attach(struct ring_tx *tx, void *memory, uint32_t slot_count);
void ring_rx_attach(struct ring_rx *rx, void *memory, uint32_t slot_count);

/* The largest record that always fits into an empty ring, half of the ring: n slots may need a pad
 * of n - 1 slots before them and one free slot behind, 2n slots in all. */
static inline size_t ring_max_record(uint32_t slot_count)
{
	return (size_t)(slot_count / 2) * RING_SLOT_BYTES - RING_HEADER_BYTES;
}

static inline uint32_t ring_slots_of(size_t bytes)
{
	return (uint32_t)((bytes + RING_HEADER_BYTES + RING_SLOT_BYTES - 1) / RING_SLOT_BYTES);
}

static inline struct ring_slot *ring_slot_at(struct ring_shared *shared, uint32_t slot_count,
                                             uint64_t position)
{
	return (struct ring_slot *)(void *)shared->slots + (position & (slot_count - 1));
}

/* Publish @slots slots at the producer's position and advance. Memory order: see ring.c. */
static inline void ring_put(struct ring_tx *tx, uint32_t bytes, uint32_t slots)
{
	struct ring_slot *slot = ring_slot_at(tx->shared, tx->slot_count, tx->position);
	uint64_t end = tx->position + slots;
	if (end < tx->long_end + tx->slot_count)
		atomic_store_explicit(&ring_slot_at(tx->shared, tx->slot_count, end)->stamp, 0,
		                      memory_order_relaxed);
	if (slots > 1)
		tx->long_end = end;
	atomic_store_explicit(&slot->bytes, bytes, memory_order_relaxed);
	atomic_store_explicit(&slot->stamp, RING_STAMP(tx->position >> tx->lap_shift),
	                      memory_order_release); /* R1 */
	tx->position = end;
}

/* The slow path of ring_reserve(): the ring may be full, or its end is near. */
void *ring_reserve_slowly(struct ring_tx *tx, size_t bytes);

/* Room for a record of @bytes (at least 1, at most ring_max_record()), or NULL if the ring is too
 * full. The record is invisible until ring_publish(). Another ring_reserve() before that replaces
 * the first. */
static inline void *ring_reserve(struct ring_tx *tx, size_t bytes)
{
	uint32_t slots = ring_slots_of(bytes),
	         index = (uint32_t)tx->position & (tx->slot_count - 1);
	if (index + slots > tx->slot_count || slots > tx->slot_count / 2 ||
	    tx->position - tx->head_cache + slots >= tx->slot_count)
		return ring_reserve_slowly(tx, bytes);
	assert(bytes >= 1);
	tx->reserved = (uint32_t)bytes;
	tx->reserved_slots = slots;
	return ring_slot_at(tx->shared, tx->slot_count, tx->position)->record;
}

static inline void ring_publish(struct ring_tx *tx)
{
	assert(tx->reserved != 0);
	ring_put(tx, tx->reserved, tx->reserved_slots);
	tx->reserved = 0;
}

/* Has the consumer released everything published up to @position, a value that tx->position had? */
bool ring_consumed(const struct ring_tx *tx, uint64_t position);

/* Take the consumer's "ring me" mark. True: the caller must wake the consumer. Call after
 * publishing. */
static inline bool ring_take_armed(struct ring_tx *tx)
{
	/* Unfenced (base/barrier.h): either we see the mark, or the consumer sees the record. */
	if (!tx->unfenced ||
	    atomic_load_explicit(&tx->shared->fence, memory_order_acquire) != 0) /* R8 */
		atomic_thread_fence(memory_order_seq_cst);
	return atomic_load_explicit(&tx->shared->armed, memory_order_relaxed) != 0 &&
	       atomic_exchange_explicit(&tx->shared->armed, 0, memory_order_acq_rel) != 0; /* R6 */
}

/* The slow path of ring_peek(), which returns the next record, or NULL. If there is none, it
 * reports everything released to the producer, so a consumer that polls never starves its producer.
 * The length is at most ring_max_record(). Sets rx->broken if the producer's data is invalid. The
 * memory belongs to the producer again after ring_release(), which may only follow a ring_peek()
 * that found a record. */
const void *ring_peek_slowly(struct ring_rx *rx, size_t *bytes);

static inline const void *ring_peek(struct ring_rx *rx, size_t *bytes)
{
	struct ring_slot *slot = ring_slot_at(rx->shared, rx->slot_count, rx->position);
	uint32_t stamp = atomic_load_explicit(&slot->stamp, memory_order_acquire); /* R2 */
	if (stamp != RING_STAMP(rx->position >> rx->lap_shift) || rx->broken)
		return ring_peek_slowly(rx, bytes);
	/* Loaded once: the producer could change it between the check and the use. */
	uint32_t length = atomic_load_explicit(&slot->bytes, memory_order_relaxed);
	if (length - 1 >= RING_SLOT_BYTES - RING_HEADER_BYTES)
		return ring_peek_slowly(rx, bytes);
	rx->taken = 1;
	*bytes = length;
	return slot->record;
}

/* Is there a record, or a pad before one? */
static inline bool ring_waits(const struct ring_rx *rx)
{
	return atomic_load_explicit(&ring_slot_at(rx->shared, rx->slot_count, rx->position)->stamp,
	                            memory_order_relaxed) ==
	       RING_STAMP(rx->position >> rx->lap_shift);
}

/* Would ring_peek() find nothing and have nothing to do? Busy polling calls this, so it is as short
 * as possible. */
static inline bool ring_quiet(const struct ring_rx *rx)
{
	uint32_t stamp =
	        atomic_load_explicit(&ring_slot_at(rx->shared, rx->slot_count, rx->position)->stamp,
	                             memory_order_relaxed);
	/* The stamp of the last lap, or cleared. */
	return (stamp == RING_STAMP(rx->position >> rx->lap_shift) - 2 || stamp == 0) &&
	       rx->released == rx->position && !rx->broken;
}

/* Report everything released so far to the producer. ring_release() does so by itself after each
 * quarter of the ring. */
static inline void ring_flush_head(struct ring_rx *rx)
{
	rx->released = rx->position;
	atomic_store_explicit(&rx->shared->head, rx->position, memory_order_release); /* R3 */
}

static inline void ring_release(struct ring_rx *rx)
{
	assert(rx->taken != 0);
	rx->position += rx->taken;
	rx->taken = 0;
	if (rx->position - rx->released >= rx->slot_count / 4)
		ring_flush_head(rx);
}

/* Ask to be woken by the next record. The consumer must then call ring_peek() once more before it
 * sleeps. */
void ring_arm(struct ring_rx *rx);
void ring_disarm(struct ring_rx *rx);

/* Ask an unfenced producer to execute a barrier with each record, or to stop doing so. Before
 * relying on it, call barrier_everyone() once. */
void ring_ask_fence(struct ring_rx *rx, bool fence);

#endif
