/* The bitmap against an array of bool, at sizes on and beside the word border. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <string.h>

#include "base/bitmap.h"
#include "base/prng.h"

#define MAX_BITS 200

static bool model[MAX_BITS];

static bool model_run_is_clear(size_t bits, size_t bit, size_t count)
{
	if (count > bits || bit > bits - count)
		return false;
	for (size_t i = 0; i < count; i++)
		if (model[bit + i])
			return false;
	return true;
}

static size_t model_find_clear_run(size_t bits, size_t from, size_t count)
{
	for (size_t i = 0; i < bits; i++)
		if (model_run_is_clear(bits, (from + i) % bits, count))
			return (from + i) % bits;
	return BITMAP_NONE;
}

static void check_against_model(const struct bitmap *map, struct prng *prng)
{
	size_t bits = map->bits, count = 0;
	for (size_t i = 0; i < bits; i++) {
		assert_int_equal(bitmap_test(map, i), model[i]);
		count += model[i];
	}
	assert_int_equal(bitmap_count(map), count);
	for (int i = 0; i < 4; i++) {
		size_t from = prng_below(prng, bits);
		assert_int_equal(bitmap_find_clear(map, from), model_find_clear_run(bits, from, 1));
		size_t run = 1 + prng_below(prng, i < 2 ? 4 : bits + 2);
		assert_int_equal(bitmap_find_clear_run(map, from, run),
		                 model_find_clear_run(bits, from, run));
	}
}

static void like_an_array_of_bool(void **state)
{
	(void)state;
	static const size_t sizes[] = {1, 2, 63, 64, 65, 127, 128, 129, MAX_BITS};
	struct prng prng;
	prng_seed(&prng, 7);
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		uint64_t words[BITMAP_WORDS(MAX_BITS)];
		struct bitmap map;
		memset(words, 0xa5, sizeof(words));
		memset(model, 0, sizeof(model));
		bitmap_init(&map, words, sizes[s]);
		for (int round = 0; round < 5000; round++) {
			size_t bit = prng_below(&prng, sizes[s]);
			size_t count = prng_below(&prng, sizes[s] - bit + 1);
			bool value = prng_chance(&prng, 300 + 400 * ((uint32_t)round / 100 % 2));
			if (prng_chance(&prng, 900)) {
				value ? bitmap_set(&map, bit) : bitmap_clear(&map, bit);
				model[bit] = value;
			} else {
				if (value)
					bitmap_set_run(&map, bit, count);
				else
					bitmap_clear_run(&map, bit, count);
				memset(model + bit, value, count);
			}
			check_against_model(&map, &prng);
		}
	}
}

static void full_map_has_no_clear_bit(void **state)
{
	(void)state;
	uint64_t words[2];
	struct bitmap map;
	bitmap_init(&map, words, 100);
	bitmap_set_run(&map, 0, 100);
	assert_int_equal(bitmap_find_clear(&map, 50), BITMAP_NONE);
	assert_int_equal(bitmap_find_clear_run(&map, 0, 1), BITMAP_NONE);
	bitmap_clear(&map, 99);
	assert_int_equal(bitmap_find_clear(&map, 0), 99);
	assert_int_equal(bitmap_find_clear_run(&map, 0, 2), BITMAP_NONE); /* not round the end */
	assert_int_equal(bitmap_find_clear(&map, 100), 99); /* one past the end is the start */
	bitmap_set_run(&map, 100, 0);
	assert_int_equal(bitmap_count(&map), 99);
}

static void no_bits_at_all(void **state)
{
	(void)state;
	struct bitmap map;
	bitmap_init(&map, NULL, 0);
	assert_int_equal(bitmap_find_clear(&map, 0), BITMAP_NONE);
	assert_int_equal(bitmap_find_clear_run(&map, 0, 1), BITMAP_NONE);
	assert_int_equal(bitmap_count(&map), 0);
}

int main(void)
{
	const struct CMUnitTest all[] = {
	        cmocka_unit_test(like_an_array_of_bool),
	        cmocka_unit_test(full_map_has_no_clear_bit),
	        cmocka_unit_test(no_bits_at_all),
	};
	return cmocka_run_group_tests(all, NULL, NULL);
}
