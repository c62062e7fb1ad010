/* The read resource queue. */
#include "queue/read_queue.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "queue/wq.h"

uint32_t read_queue_slots(uint32_t depth)
{
	return wq_slots(2 * depth); /* so that requests ahead never collide with those behind */
}

void read_queue_init(struct read_queue *q, struct read_entry *entries, uint32_t depth,
                     uint32_t first_msn)
{
	uint32_t slots = read_queue_slots(depth);
	if (depth != 0)
		memset(entries, 0, slots * sizeof(*entries));
	*q = (struct read_queue){
	        .entries = entries, .depth = depth, .mask = slots - 1, .next_msn = first_msn};
}

enum read_verdict read_queue_put(struct read_queue *q, uint32_t msn, struct read_entry **entry)
{
	if (q->depth == 0)
		return READ_OUT_OF_RANGE;
	/* At most @depth behind the next expected number, and less than @depth ahead; unsigned, so
	 * numbers may wrap. */
	if (msn - q->next_msn + q->depth >= 2 * q->depth)
		return READ_OUT_OF_RANGE;
	struct read_entry *slot = &q->entries[msn & q->mask];
	if (slot->used && slot->msn == msn) {
		*entry = slot;
		return slot->finished ? READ_REPEATED : READ_PENDING;
	}
	bool behind = q->next_msn - msn - 1 < q->depth;
	if (behind || q->open == q->depth || (slot->used && !slot->finished))
		return READ_OUT_OF_RANGE;
	*slot = (struct read_entry){.msn = msn, .used = true};
	q->open++;
	*entry = slot;
	/* Advance past every number that has come. */
	while (q->entries[q->next_msn & q->mask].used &&
	       q->entries[q->next_msn & q->mask].msn == q->next_msn)
		q->next_msn++;
	return READ_ACCEPTED;
}

void read_queue_finish(struct read_queue *q, struct read_entry *entry, uint64_t result)
{
	assert(entry->used && !entry->finished && q->open > 0);
	entry->finished = true;
	entry->result = result;
	q->open--;
}
