/* Address translation tables (MEMMGT figure 13, "ATT control"): how they are laid out in the arena,
 * how the owner builds, shares and frees them, and how a reader that trusts nothing finds a page in
 * them.
 *
 * Every table holds at most TPT_FANOUT words and is a run of its own, so the arena fragments into
 * pieces of 64 units at worst. A table does not store its size, which follows from the number of
 * pages, which the entry implies. */
#ifndef MEMORY_ATT_H
#define MEMORY_ATT_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/tpt.h"

/* The lowest order that can hold @pages. */
enum tpt_order att_order(uint32_t pages);

/* Allocate room for @pages (1 to TPT_MAX_PAGES) with all its levels and one reference; the pages
 * are not set. False: the arena does not have enough room, and nothing was taken. */
bool att_build(struct tpt_arena *arena, uint32_t pages, uint64_t *att);

/* Set the first @count pages of the table at @att, which was built for at least that many, with
 * order @order. */
void att_fill(struct tpt_arena *arena, enum tpt_order order, uint64_t att, const uint64_t *pages,
              uint32_t count);

void att_share(struct tpt_arena *arena, uint64_t att);
/* Drop a reference, and with the last one the table, which was built for @pages. */
void att_drop(struct tpt_arena *arena, uint64_t att, uint32_t pages);

/* Part of the last level of a table: @count words at @words, the first of which is the requested
 * page. */
struct att_leaf {
	const uint64_t *words;
	uint64_t count;
};
/* Find the leaf with page number @page. False: the table is broken, or has no such page. */
bool att_find(const struct tpt_view *view, uint8_t order, uint64_t att, uint64_t page,
              struct att_leaf *leaf);

/* Read a word of the arena, which the owner may be writing at this moment. */
static inline uint64_t att_word(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED);
}

#endif
