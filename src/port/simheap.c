/* The event order of the simulator; see simheap.h. */
#include "port/simheap.h"

#include <stddef.h>

void sim_heap_init(struct sim_heap *heap, struct sim_heap_entry *entries, uint32_t capacity)
{
	*heap = (struct sim_heap){.entries = entries, .capacity = capacity};
}

static bool simheap_before(const struct sim_heap_entry *a, const struct sim_heap_entry *b)
{
	if (a->time_ns != b->time_ns)
		return a->time_ns < b->time_ns;
	return a->order < b->order;
}

bool sim_heap_restore(struct sim_heap *heap, const struct sim_heap_entry *entry)
{
	struct sim_heap_entry added = *entry;

	if (heap->count == heap->capacity)
		return false;
	uint32_t at = heap->count++;
	while (at > 0) {
		uint32_t parent = (at - 1) / 2;
		if (!simheap_before(&added, &heap->entries[parent]))
			break;
		heap->entries[at] = heap->entries[parent];
		at = parent;
	}
	heap->entries[at] = added;
	return true;
}

bool sim_heap_push(struct sim_heap *heap, uint64_t time_ns, uint32_t index)
{
	struct sim_heap_entry added = {time_ns, heap->next_order, index};

	if (!sim_heap_restore(heap, &added))
		return false;
	heap->next_order++;
	return true;
}

const struct sim_heap_entry *sim_heap_first(const struct sim_heap *heap)
{
	return heap->count > 0 ? &heap->entries[0] : NULL;
}

bool sim_heap_pop(struct sim_heap *heap, struct sim_heap_entry *entry)
{
	if (heap->count == 0)
		return false;
	*entry = heap->entries[0];
	struct sim_heap_entry moved = heap->entries[--heap->count];
	uint32_t at = 0;
	for (;;) {
		uint64_t child = 2 * (uint64_t)at + 1; /* 64 bits: the capacity may be past 2^31 */
		if (child >= heap->count)
			break;
		if (child + 1 < heap->count &&
		    simheap_before(&heap->entries[child + 1], &heap->entries[child]))
			child++;
		if (!simheap_before(&heap->entries[child], &moved))
			break;
		heap->entries[at] = heap->entries[child];
		at = (uint32_t)child;
	}
	if (heap->count > 0)
		heap->entries[at] = moved;
	return true;
}
