/* Address translation tables (seed 004 figure 13, "ATT control"): how they are laid out in the
 * arena, built, shared and taken apart by the owner, and how a reader who trusts nothing finds a
 * page in them.
 *
 * Every table holds at most TPT_FANOUT words and is a run of its own, so the arena fragments into
 * pieces of 64 units at worst. A table knows nothing about its size: it follows from the number of
 * pages, which the entry implies. */
#ifndef MEMORY_ATT_H
#define MEMORY_ATT_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/tpt.h"

/* The least order that holds @pages. */
enum tpt_order att_order(uint32_t pages);

/* Room for @pages (1 to TPT_MAX_PAGES) with all its levels and one reference; the pages are not
 * set. False: the arena has no such room, and nothing was taken. */
bool att_build(struct tpt_arena *arena, uint32_t pages, uint64_t *att);

/* Set the first @count pages of the table at @att, which was built for at least as many, in the
 * order @order. */
void att_fill(struct tpt_arena *arena, enum tpt_order order, uint64_t att, const uint64_t *pages,
              uint32_t count);

void att_share(struct tpt_arena *arena, uint64_t att);
/* Give a reference back; with the last one the room of the table, which was built for @pages. */
void att_drop(struct tpt_arena *arena, uint64_t att, uint32_t pages);

/* Part of a table's last level: @count words at @words, the first of which is the page asked for.
 */
struct att_leaf {
	const uint64_t *words;
	uint64_t count;
};
/* The leaf with page number @page. False: the table is broken, or has no such page. */
bool att_find(const struct tpt_view *view, uint8_t order, uint64_t att, uint64_t page,
              struct att_leaf *leaf);

/* A word of the arena, which the owner may be writing this moment. */
static inline uint64_t att_word(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED);
}

#endif
