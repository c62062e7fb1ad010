/* Objects of one size in one block of the caller's memory, named by index; take and give are O(1)
 * and do not allocate. */
#ifndef BASE_SLAB_H
#define BASE_SLAB_H

#include <stddef.h>
#include <stdint.h>

#define SLAB_NONE UINT32_MAX

struct slab {
	unsigned char *objects;
	size_t object_bytes;
	uint32_t *free_list; /* @capacity indices */
	uint32_t free_count;
	uint32_t capacity;
};

/* @objects holds @capacity objects of @object_bytes; @free_list holds @capacity indices. The lowest
 * indices are taken first. */
void slab_init(struct slab *slab, void *objects, size_t object_bytes, uint32_t *free_list,
               uint32_t capacity);
/* An index, or SLAB_NONE if all are taken. The object still has its previous content. */
uint32_t slab_take(struct slab *slab);
void slab_give(struct slab *slab, uint32_t index);
void *slab_at(const struct slab *slab, uint32_t index);

#endif
