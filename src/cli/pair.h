/* Two adapters of this process, joined, with one connected queue pair each and a block of registered memory each: what
 * a measurement runs on. "Near" is where requests are posted, "far" is the peer. */
#ifndef CLI_PAIR_H
#define CLI_PAIR_H

#include <heddle/heddle.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAIR_DEPTH  64u /* receives that each side keeps posted, and the depth of its send queue */
#define PAIR_INLINE 64u /* messages up to this length are posted inline */

struct side {
	struct hdl_adapter *adapter;
	struct hdl_pd *pd;
	struct hdl_cq *cq;
	struct hdl_qp *qp;
	struct hdl_mr *mr;
	uint8_t *memory;
	size_t memory_bytes;
	size_t slot_bytes;  /* receive number n lands in slot n modulo the number of slots */
	uint64_t received;  /* messages so far */
	uint64_t sent_done; /* send completions so far */
	const char *failed; /* the call that went wrong first; NULL: none */
	int error;          /* its error; a completion status when positive */
};

struct pair {
	struct side near, far;
};

/* Open, join and connect. Each side has @memory_bytes in slots of @slot_bytes and keeps PAIR_DEPTH receives posted,
 * which fill the slots in turn. False: a side has failed; pair_close() is still due. */
bool pair_open(struct pair *pair, size_t memory_bytes, size_t slot_bytes);
void pair_close(struct pair *pair);
/* The failed side, or NULL. */
const struct side *pair_failed(const struct pair *pair);

/* Post one signalled request of @bytes at @offset; for write and read that is also the offset in the memory of @peer. */
bool side_post(struct side *side, const struct side *peer, uint32_t opcode, size_t offset,
               size_t bytes);

/* Take what has completed; every receive is posted again. False on a failed completion. */
bool side_poll(struct side *side);

#endif
