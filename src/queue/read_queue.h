/* The read resource queue (MEMMGT figure 18A steps 1804 and 1806): a responder keeps a fixed number
 * of read and atomic requests, indexed by their sequence number. A request is accepted if its
 * number is the next expected one or belongs to a free entry; a number past the end breaks the
 * stream. Finished entries keep their result until the number comes round again, so that a repeated
 * atomic is answered and not executed twice. */
#ifndef QUEUE_READ_QUEUE_H
#define QUEUE_READ_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

struct read_entry {
	uint32_t msn;
	bool used;     /* holds a request or a result */
	bool finished; /* executed: result is the answer */
	bool owed;     /* used by the caller: the answer has not been sent yet */
	bool again;    /* used by the caller: the answer is to be sent again */
	bool joined;   /* used by the caller: the next request continues where this one ends */
	uint8_t way;   /* used by the caller: the path along which it is answered */
	uint32_t tag;  /* used by the caller */
	uint64_t result;
	/* Used by the caller: what is left of a read whose data it sends itself. */
	uint64_t addr;
	uint32_t key, pd;
	uint32_t length, offset;
	uint32_t from, to; /* on the wire: the part that was requested last */
	/* On the wire: one bit for each packet that ends one of several requests. */
	uint32_t cuts;
};

struct read_queue {
	struct read_entry *entries; /* in the caller's memory: read_queue_slots() entries */
	uint32_t depth;             /* max_dest_rd_atomic */
	/* Slots - 1: numbers wrap at 2^32, so the number of slots is a power of two. */
	uint32_t mask;
	uint32_t next_msn; /* next expected */
	uint32_t open;     /* accepted but not finished */
};

enum read_verdict {
	READ_ACCEPTED,    /* a free entry now holds it */
	READ_REPEATED,    /* executed before: *entry has the result */
	READ_PENDING,     /* accepted before but not finished */
	READ_OUT_OF_RANGE /* past the end, or too old: terminate the stream */
};

uint32_t read_queue_slots(uint32_t depth);
void read_queue_init(struct read_queue *q, struct read_entry *entries, uint32_t depth,
                     uint32_t first_msn);
enum read_verdict read_queue_put(struct read_queue *q, uint32_t msn, struct read_entry **entry);
/* The request of @entry has been executed. */
void read_queue_finish(struct read_queue *q, struct read_entry *entry, uint64_t result);

#endif
