/* The free list is a stack of indices: the object given back last is taken next, while its lines
 * are still in cache. */
#include "base/slab.h"

#include <assert.h>

void slab_init(struct slab *slab, void *objects, size_t object_bytes, uint32_t *free_list,
               uint32_t capacity)
{
	assert(capacity != SLAB_NONE);
	*slab = (struct slab){
	        .objects = objects,
	        .object_bytes = object_bytes,
	        .free_list = free_list,
	        .free_count = capacity,
	        .capacity = capacity,
	};
	for (uint32_t i = 0; i < capacity; i++)
		free_list[i] = capacity - 1 - i;
}

uint32_t slab_take(struct slab *slab)
{
	if (slab->free_count == 0)
		return SLAB_NONE;
	return slab->free_list[--slab->free_count];
}

void slab_give(struct slab *slab, uint32_t index)
{
	assert(index < slab->capacity);
	assert(slab->free_count < slab->capacity); /* otherwise one was given back twice */
	slab->free_list[slab->free_count++] = index;
}

void *slab_at(const struct slab *slab, uint32_t index)
{
	assert(index < slab->capacity);
	return slab->objects + (size_t)index * slab->object_bytes;
}
