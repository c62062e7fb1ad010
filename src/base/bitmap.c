/* Bits beyond the end of the map in its last word stay clear; the searches stop at map->bits. */
#include "base/bitmap.h"

#include <assert.h>

void bitmap_init(struct bitmap *map, uint64_t *words, size_t bits)
{
	*map = (struct bitmap){.words = words, .bits = bits};
	for (size_t i = 0; i < BITMAP_WORDS(bits); i++)
		words[i] = 0;
}

void bitmap_set(struct bitmap *map, size_t bit)
{
	assert(bit < map->bits);
	map->words[bit / 64] |= UINT64_C(1) << (bit % 64);
}

void bitmap_clear(struct bitmap *map, size_t bit)
{
	assert(bit < map->bits);
	map->words[bit / 64] &= ~(UINT64_C(1) << (bit % 64));
}

bool bitmap_test(const struct bitmap *map, size_t bit)
{
	assert(bit < map->bits);
	return (map->words[bit / 64] >> (bit % 64)) & 1u;
}

/* First bit in [@from, @end) whose value is @value; @end if there is none. */
static size_t scan(const struct bitmap *map, size_t from, size_t end, bool value)
{
	uint64_t flip = value ? 0 : UINT64_MAX;
	while (from < end) {
		uint64_t word = (map->words[from / 64] ^ flip) >> (from % 64);
		if (word != 0) {
			from += (size_t)__builtin_ctzll(word);
			return from < end ? from : end;
		}
		from = (from / 64 + 1) * 64;
	}
	return end;
}

size_t bitmap_find_clear(const struct bitmap *map, size_t from)
{
	if (from >= map->bits)
		from = 0;
	size_t bit = scan(map, from, map->bits, false);
	if (bit < map->bits)
		return bit;
	bit = scan(map, 0, from, false);
	return bit < from ? bit : BITMAP_NONE;
}

/* First run of @count clear bits that starts in [@from, @end). It may extend beyond @end, but not
 * beyond the map. */
static size_t scan_run(const struct bitmap *map, size_t from, size_t end, size_t count)
{
	while (from < end) {
		size_t start = scan(map, from, end, false);
		if (start == end || count > map->bits - start)
			break;
		size_t stop = scan(map, start, start + count, true);
		if (stop == start + count)
			return start;
		from = stop + 1;
	}
	return BITMAP_NONE;
}

size_t bitmap_find_clear_run(const struct bitmap *map, size_t from, size_t count)
{
	assert(count != 0);
	if (from >= map->bits)
		from = 0;
	size_t start = scan_run(map, from, map->bits, count);
	return start != BITMAP_NONE ? start : scan_run(map, 0, from, count);
}

/* The bits of word @index that lie in [@bit, @end). */
static uint64_t mask_in_word(size_t index, size_t bit, size_t end)
{
	size_t low = index * 64;
	uint64_t mask = UINT64_MAX;
	if (bit > low)
		mask &= UINT64_MAX << (bit - low);
	if (end < low + 64)
		mask &= UINT64_MAX >> (low + 64 - end);
	return mask;
}

void bitmap_set_run(struct bitmap *map, size_t bit, size_t count)
{
	assert(bit <= map->bits && count <= map->bits - bit);
	size_t end = bit + count;
	for (size_t i = bit / 64; i * 64 < end; i++)
		map->words[i] |= mask_in_word(i, bit, end);
}

void bitmap_clear_run(struct bitmap *map, size_t bit, size_t count)
{
	assert(bit <= map->bits && count <= map->bits - bit);
	size_t end = bit + count;
	for (size_t i = bit / 64; i * 64 < end; i++)
		map->words[i] &= ~mask_in_word(i, bit, end);
}

size_t bitmap_count(const struct bitmap *map)
{
	size_t count = 0;
	for (size_t i = 0; i < BITMAP_WORDS(map->bits); i++)
		count += (size_t)__builtin_popcountll(map->words[i]);
	return count;
}
