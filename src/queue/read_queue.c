/* The read resource queue. */
#include "queue/read_queue.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "queue/wq.h"

uint32_t read_queue_slots(uint32_t depth)
{
	return wq_slots(depth);
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
	/* Ahead by a whole queue or more, or behind by more than one: the difference is unsigned, so both are seen. */
	uint32_t ahead = msn - q->next_msn;
	uint32_t behind = q->next_msn - msn;
	struct read_entry *slot = &q->entries[msn & q->mask];
	if (behind != 0 && behind <= q->depth) {
		if (!slot->used || slot->msn != msn)
			return READ_OUT_OF_RANGE;
		*entry = slot;
		return slot->finished ? READ_REPEATED : READ_PENDING;
	}
	if (ahead >= q->depth || (slot->used && !slot->finished))
		return slot->used && !slot->finished && slot->msn == msn ? READ_PENDING
									 : READ_OUT_OF_RANGE;
	*slot = (struct read_entry){.msn = msn, .used = true};
	q->open++;
	*entry = slot;
	/* Move past every number that has come. */
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
