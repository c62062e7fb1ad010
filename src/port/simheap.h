/* The order of events: a bounded binary heap of (time, insertion order, index). Two entries with
 * the same time come out in the order in which they went in, so that a run depends on its seed
 * alone and not on the shape of the heap. The index refers to whatever the owner keeps for the
 * entry. */
#ifndef PORT_SIMHEAP_H
#define PORT_SIMHEAP_H

#include <stdbool.h>
#include <stdint.h>

struct sim_heap_entry {
	uint64_t time_ns;
	uint64_t order;
	uint32_t index;
};

struct sim_heap {
	struct sim_heap_entry *entries; /* @capacity of them, owned by the caller */
	uint32_t count;
	uint32_t capacity;
	uint64_t next_order;
};

void sim_heap_init(struct sim_heap *heap, struct sim_heap_entry *entries, uint32_t capacity);

/* Add @index at @time_ns, after everything already there for that time. False: the heap is full. */
bool sim_heap_push(struct sim_heap *heap, uint64_t time_ns, uint32_t index);

/* Put back an entry that sim_heap_pop() returned, in its old place: before everything that was
 * inserted after it. False: the heap is full. */
bool sim_heap_restore(struct sim_heap *heap, const struct sim_heap_entry *entry);

/* The earliest entry, or NULL. Valid until the heap changes. */
const struct sim_heap_entry *sim_heap_first(const struct sim_heap *heap);

/* Remove the earliest entry. False: there is none. */
bool sim_heap_pop(struct sim_heap *heap, struct sim_heap_entry *entry);

#endif
