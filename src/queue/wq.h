/* Work queues: rings of fixed-size elements in the memory of one process. Application threads post
 * under the post lock, or while they drive the adapter and see that nobody holds it (base/lock.h).
 * The thread that drives the adapter consumes. Indices run freely and are masked on use.
 *
 *   tail   next element to post                 written by posters (under post_lock)
 *   head   oldest element that is still needed  written by the driver
 *   told   receives: the next to complete       written by the driver
 *   free   oldest element that may not be posted again yet (posters, under post_lock)
 *   depth  maximum number of elements between free and tail: what the user was promised. The number
 *          of slots is the next power of two
 *
 * A request is outstanding until the application has taken its completion, or that of a later
 * request in the same queue (IBTA 10.8.5.1), so a completion queue as long as its work queues never
 * overflows. See reclaim.h.
 *
 * Send queues, receive queues and shared receive queues are all of this type. */
#ifndef QUEUE_WQ_H
#define QUEUE_WQ_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <heddle/types.h>

#include "base/lock.h"

struct wq {
	unsigned char *elements;
	uint32_t stride;
	uint32_t mask;
	uint32_t depth;
	uint32_t max_sge;
	struct lock post_lock;
	_Alignas(64) _Atomic uint32_t tail;
	uint32_t free;
	_Alignas(64) _Atomic uint32_t head;
	_Atomic uint32_t told;
};

/* Slots for @depth elements: the next power of two. */
uint32_t wq_slots(uint32_t depth);
size_t wq_bytes(uint32_t depth, uint32_t stride);
void wq_init(struct wq *wq, void *memory, uint32_t depth, uint32_t stride, uint32_t max_sge);

/* Copy the elements of @wq, in order, into @memory, laid out for @depth elements, and use that from
 * now on. The caller must lock out both ends. False, with nothing changed, if the queue holds more
 * than @depth. */
bool wq_move(struct wq *wq, void *memory, uint32_t depth);

static inline void *wq_at(const struct wq *wq, uint32_t index)
{
	return wq->elements + (size_t)(index & wq->mask) * wq->stride;
}

static inline uint32_t wq_head(const struct wq *wq)
{
	return atomic_load_explicit(&wq->head, memory_order_acquire); /* W1 pairs with W2 */
}

static inline uint32_t wq_tail(const struct wq *wq)
{
	return atomic_load_explicit(&wq->tail, memory_order_acquire); /* W3 pairs with W4 */
}

static inline uint32_t wq_held(const struct wq *wq)
{
	return wq_tail(wq) - wq_head(wq);
}

/* How many elements may be posted, as far as is known now. The caller holds post_lock. */
static inline uint32_t wq_room(const struct wq *wq)
{
	return wq->depth - (atomic_load_explicit(&wq->tail, memory_order_relaxed) - wq->free);
}

/* The element to fill next, or NULL if the queue is full. The caller holds post_lock until
 * wq_posted(). */
static inline void *wq_post(struct wq *wq)
{
	return wq_room(wq) == 0 ? NULL
	                        : wq_at(wq, atomic_load_explicit(&wq->tail, memory_order_relaxed));
}

static inline void wq_posted(struct wq *wq)
{
	uint32_t tail = atomic_load_explicit(&wq->tail, memory_order_relaxed);
	atomic_store_explicit(&wq->tail, tail + 1, memory_order_release); /* W4 */
}

/* Post the next @count elements. The caller has made sure that there is room and has filled them.
 */
static inline void wq_posted_many(struct wq *wq, uint32_t count)
{
	uint32_t tail = atomic_load_explicit(&wq->tail, memory_order_relaxed);
	atomic_store_explicit(&wq->tail, tail + count, memory_order_release); /* W4 */
}

/* The oldest element is no longer needed. */
static inline void wq_release(struct wq *wq)
{
	uint32_t head = atomic_load_explicit(&wq->head, memory_order_relaxed);
	assert(head != wq_tail(wq));
	atomic_store_explicit(&wq->head, head + 1, memory_order_release); /* W2 */
}

/* All elements before the one at @index, which is held or the next to be posted, are no longer
 * needed. */
static inline void wq_release_to(struct wq *wq, uint32_t index)
{
	atomic_store_explicit(&wq->head, index, memory_order_release); /* W2 */
}

static inline void *wq_oldest(const struct wq *wq)
{
	uint32_t head = atomic_load_explicit(&wq->head, memory_order_relaxed);
	return head == wq_tail(wq) ? NULL : wq_at(wq, head);
}

/* Drop everything. The caller must lock out both ends. */
void wq_clear(struct wq *wq);

#endif
