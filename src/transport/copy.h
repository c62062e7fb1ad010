/* How bytes move between address spaces. The adapter supplies the functions; a transport decides
 * what may move and when. Every function survives memory that is gone: it reports the fault instead
 * of crashing.
 *
 *   struct copy_ops      what sg_move() and op_atomic() need: any list to any list
 *   struct own_memory    this process's memory: the same, and fast paths that need no lists
 *   struct peer_memory   the memory behind a link: the same, and a fast path
 *
 * Another kind of peer memory is another struct peer_memory. */
#ifndef TRANSPORT_COPY_H
#define TRANSPORT_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/span.h"

/* Which of the two lists is in the peer's address space. */
enum move_side { MOVE_BOTH_OWN, MOVE_FROM_PEER, MOVE_TO_PEER };

enum move_result {
	MOVE_OK,
	MOVE_SOURCE_GONE,
	MOVE_TARGET_GONE,
	MOVE_ELSEWHERE /* the peer's memory cannot be reached: only its own adapter can do it */
};

#define MOVE_MAX_SPANS 16u
#define MOVE_SHORT     4096u

struct copy_ops {
	/* Copy the runs @from to the runs @to; both lists have the same total length. */
	enum move_result (*copy)(void *context, enum move_side side, const struct span *to,
	                         size_t to_count, const struct span *from, size_t from_count);
	/* Compare-and-swap (or, with @add, fetch-and-add) on 8 aligned bytes, atomic for all
	 * processes on this machine. */
	enum move_result (*atomic)(void *context, enum move_side side, uint64_t addr, bool add,
	                           uint64_t compare_add, uint64_t swap, uint64_t *old);
	void *context;
};

struct own_memory {
	struct copy_ops ops;
	/* Up to MOVE_SHORT bytes. False: one of the two is gone; ops.copy() tells which. */
	bool (*copy_short)(void *to, const void *from, size_t bytes);
	/* Copy any number of bytes and add them to *crc (base/crc.h): CRC-32, CRC-32C. */
	bool (*copy_crc)(void *to, const void *from, size_t bytes, uint32_t *crc);
	bool (*copy_crc32c)(void *to, const void *from, size_t bytes, uint32_t *crc);
	/* Add bytes to *crc, CRC-32C, without copying them. */
	bool (*crc32c)(const void *from, size_t bytes, uint32_t *crc);
};

struct peer_memory {
	struct copy_ops ops;
	/* One run of up to MOVE_SHORT bytes, at @own in this process and at @addr in the peer's
	 * memory. False: unreachable, or one of the two is gone; ops.copy() tells which. NULL: only
	 * the peer's own adapter may access its memory. */
	bool (*copy_short)(void *context, enum move_side side, uint64_t own, uint64_t addr,
	                   size_t bytes);
};

#endif
