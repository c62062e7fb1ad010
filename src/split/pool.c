/* Tables of pools and their elements: those that this side owns, and those of the peer. */
#include <assert.h>
#include <string.h>

#include "split/internal.h"

void queue_push(struct split_queue *queue, uint32_t number)
{
	assert(queue_length(queue) < SPLIT_MAX_ELEMENTS);
	queue->entry[queue->tail++ % SPLIT_MAX_ELEMENTS] = (uint16_t)number;
}

uint32_t queue_peek(const struct split_queue *queue)
{
	assert(queue_length(queue) > 0);
	return queue->entry[queue->head % SPLIT_MAX_ELEMENTS];
}

uint32_t queue_pop(struct split_queue *queue)
{
	uint32_t number = queue_peek(queue);
	queue->head++;
	return number;
}

struct split_pool *pool_find(struct split_side *side, uint32_t index)
{
	for (uint32_t i = 0; i < side->open_count; i++) {
		struct split_pool *pool = &side->pools[side->open[i]];
		if (pool->at.index == index)
			return pool;
	}
	return NULL;
}

/* The first of @count consecutive elements that no pool has; SPLIT_MAX_ELEMENTS: none. */
static uint32_t pool_find_room(const struct split_side *side, uint32_t count)
{
	uint32_t start = 0;
	for (uint32_t i = 0; i < side->open_count;) {
		const struct split_pool *pool = &side->pools[side->open[i]];
		uint32_t end = pool->first + pool->at.elements;
		if (start < end && pool->first < start + count) {
			start = end;
			i = 0; /* those before may be in the way now */
		} else {
			i++;
		}
	}
	return start <= SPLIT_MAX_ELEMENTS && count <= SPLIT_MAX_ELEMENTS - start
	               ? start
	               : SPLIT_MAX_ELEMENTS;
}

struct split_pool *pool_add(struct split_side *side, const struct push_pool *at,
                            enum split_element state)
{
	if (side->open_count == SPLIT_MAX_POOLS || at->elements > SPLIT_MAX_ELEMENTS)
		return NULL;
	uint32_t first = pool_find_room(side, at->elements), place = 0;
	if (first == SPLIT_MAX_ELEMENTS)
		return NULL;
	while (side->pools[place].state != SPLIT_POOL_NONE)
		place++;
	struct split_pool *pool = &side->pools[place];
	*pool = (struct split_pool){.at = *at,
	                            .state = SPLIT_POOL_OPEN,
	                            .flags = push_pool_flags(at->context),
	                            .first = first};
	side->open[side->open_count++] = (uint16_t)place;
	memset(&side->element[first], (int)state, at->elements);
	if (state == ELEMENT_FREE || state == ELEMENT_IDLE)
		for (uint32_t i = 0; i < at->elements; i++)
			pool_put_free(side, pool, i);
	return pool;
}

void pool_remove(struct split_side *side, struct split_pool *pool)
{
	uint32_t place = (uint32_t)(pool - side->pools), i = 0;
	while (side->open[i] != place)
		i++;
	assert(i < side->open_count);
	memmove(&side->open[i], &side->open[i + 1],
	        (side->open_count - i - 1) * sizeof(side->open[0]));
	side->open_count--;
	pool->state = SPLIT_POOL_NONE;
}

void pool_put_free(struct split_side *side, struct split_pool *pool, uint32_t element)
{
	assert(pool->free < pool->at.elements);
	uint32_t at = (pool->ring_head + pool->free) % pool->at.elements;
	side->ring[pool->first + at] = (uint16_t)element;
	pool->free++;
}

uint32_t pool_take_free(struct split_side *side, struct split_pool *pool)
{
	assert(pool->free > 0);
	uint32_t element = side->ring[pool->first + pool->ring_head];
	pool->ring_head = (pool->ring_head + 1) % pool->at.elements;
	pool->free--;
	return element;
}

uint32_t pool_updates(struct split_side *side, struct split_pool *pool, uint32_t mark,
                      enum split_element next, struct push_run *runs, uint32_t max)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < pool->at.elements && pool->updates > 0; i++) {
		uint8_t *element = pool_element(side, pool, i);
		if (*element != ELEMENT_FREED)
			continue;
		struct push_run *last = count > 0 ? &runs[count - 1] : NULL;
		if (last != NULL && last->first + last->elements == i) {
			last->elements++;
		} else {
			if (count == max)
				break;
			runs[count++] = (struct push_run){pool->at.index | mark, i, 1};
		}
		*element = (uint8_t)next;
		pool->updates--;
	}
	return count;
}
