/* How bytes move between address spaces. The adapter supplies it; a transport decides what may move
 * and when. Every function survives memory that has gone: it reports the fault instead of dying
 * from it. */
#ifndef TRANSPORT_MOVER_H
#define TRANSPORT_MOVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/span.h"

/* Which of the two lists lies in the peer's address space. */
enum move_side { MOVE_BOTH_OWN, MOVE_FROM_PEER, MOVE_TO_PEER };

enum move_result {
	MOVE_OK,
	MOVE_SOURCE_GONE,
	MOVE_TARGET_GONE,
	MOVE_ELSEWHERE /* the peer's memory is not within reach: only its own adapter can do it */
};

#define MOVE_MAX_SPANS 16u
#define MOVE_SHORT     4096u

struct mover {
	/* Copy the runs @from to the runs @to; both lists have the same total. */
	enum move_result (*copy)(void *context, enum move_side side, const struct span *to,
	                         size_t to_count, const struct span *from, size_t from_count);
	/* Compare-and-swap (or, with @add, fetch-and-add) on 8 aligned bytes, atomic for everyone
	 * on this machine. */
	enum move_result (*atomic)(void *context, enum move_side side, uint64_t addr, bool add,
	                           uint64_t compare_add, uint64_t swap, uint64_t *old);
	/* One run of up to MOVE_SHORT bytes, at @own in this process and at @addr of the peer's
	 * memory. False: out of reach, or one of the two has gone; copy() says which. The function
	 * is NULL where nothing of the peer's memory may be used but by its own adapter. */
	bool (*copy_peer)(void *context, enum move_side side, uint64_t own, uint64_t addr,
	                  size_t bytes);
	/* Within this process, up to MOVE_SHORT bytes. False: one of the two has gone; copy() says
	 * which. */
	bool (*copy_short)(void *to, const void *from, size_t bytes);
	/* The same with any number of bytes, which *crc (base/crc.h, CRC-32) takes in. Only own
	 * memory's mover has it. */
	bool (*copy_crc)(void *to, const void *from, size_t bytes, uint32_t *crc);
	void *context;
	bool reaches_peer; /* copy can reach all of the peer's memory */
};

#endif
