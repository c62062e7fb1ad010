/* A fixed-size set of bits in the caller's memory. */
#ifndef BASE_BITMAP_H
#define BASE_BITMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BITMAP_NONE SIZE_MAX

struct bitmap {
	uint64_t *words;
	size_t bits;
};

#define BITMAP_WORDS(bits) (((bits) + 63u) / 64u)

/* Clear all bits. @words has BITMAP_WORDS(@bits) elements. */
void bitmap_init(struct bitmap *map, uint64_t *words, size_t bits);
void bitmap_set(struct bitmap *map, size_t bit);
void bitmap_clear(struct bitmap *map, size_t bit);
bool bitmap_test(const struct bitmap *map, size_t bit);
/* First clear bit at or after @from, wrapping around once; BITMAP_NONE if all are set. */
size_t bitmap_find_clear(const struct bitmap *map, size_t from);
/* First of @count (not 0) consecutive clear bits. Tries start positions from @from on, then those
 * before it; BITMAP_NONE if there is no such run. A run does not wrap around the end. */
size_t bitmap_find_clear_run(const struct bitmap *map, size_t from, size_t count);
void bitmap_set_run(struct bitmap *map, size_t bit, size_t count);
void bitmap_clear_run(struct bitmap *map, size_t bit, size_t count);
size_t bitmap_count(const struct bitmap *map);

#endif
