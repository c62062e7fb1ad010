/* Work queues: set-up and resizing. The fast path is in the header. */
#include "queue/wq.h"

#include <string.h>

uint32_t wq_slots(uint32_t depth)
{
	uint32_t slots = 1;
	while (slots < depth)
		slots <<= 1;
	return slots;
}

size_t wq_bytes(uint32_t depth, uint32_t stride)
{
	return (size_t)wq_slots(depth) * stride;
}

void wq_init(struct wq *wq, void *memory, uint32_t depth, uint32_t stride, uint32_t max_sge)
{
	assert(stride % 8 == 0);
	memset(wq, 0, sizeof(*wq));
	wq->elements = memory;
	wq->stride = stride;
	wq->depth = depth;
	wq->mask = wq_slots(depth) - 1;
	wq->max_sge = max_sge;
}

bool wq_move(struct wq *wq, void *memory, uint32_t depth)
{
	uint32_t head = wq_head(wq), tail = wq_tail(wq);
	if (tail - head > depth)
		return false;
	uint32_t mask = wq_slots(depth) - 1;
	for (uint32_t i = head; i != tail; i++)
		memcpy((unsigned char *)memory + (size_t)(i & mask) * wq->stride, wq_at(wq, i),
		       wq->stride);
	wq->elements = memory;
	wq->mask = mask;
	wq->depth = depth;
	wq->free = head;
	return true;
}

void wq_clear(struct wq *wq)
{
	uint32_t tail = wq_tail(wq);
	atomic_store_explicit(&wq->head, tail, memory_order_release);
	atomic_store_explicit(&wq->told, tail, memory_order_release);
	wq->free = tail;
}
