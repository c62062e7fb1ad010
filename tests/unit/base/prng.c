/* The generator against values computed from the authors' description of xoshiro256** and
 * splitmix64. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/prng.h"

/* splitmix64 from seed 1234567 has published outputs; prng_seed() must leave them as the state. */
static void splitmix64_published_outputs(void **state)
{
	(void)state;
	struct prng prng;
	prng_seed(&prng, 1234567);
	assert_true(prng.state[0] == UINT64_C(6457827717110365317));
	assert_true(prng.state[1] == UINT64_C(3203168211198807973));
	assert_true(prng.state[2] == UINT64_C(9817491932198370423));
	assert_true(prng.state[3] == UINT64_C(4593380528125082431));
}

static void xoshiro256starstar_reference_outputs(void **state)
{
	(void)state;
	static const uint64_t expected[] = {11520, 0, 1509978240, 1215971899390074240};
	struct prng prng = {.state = {1, 2, 3, 4}};
	for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
		assert_true(prng_next(&prng) == expected[i]);
}

static void same_seed_same_numbers(void **state)
{
	(void)state;
	struct prng a, b, c;
	prng_seed(&a, 42);
	prng_seed(&b, 42);
	prng_seed(&c, 43);
	int same = 0;
	for (int i = 0; i < 1000; i++) {
		uint64_t draw = prng_next(&a);
		assert_true(draw == prng_next(&b));
		same += draw == prng_next(&c);
	}
	assert_int_equal(same, 0);
}

static void below_is_even_and_bounded(void **state)
{
	(void)state;
	struct prng prng;
	prng_seed(&prng, 5);
	int seen[7] = {0};
	for (int i = 0; i < 70000; i++)
		seen[prng_below(&prng, 7)]++; /* the sanitizer sees a draw of 7 or more */
	for (int i = 0; i < 7; i++)
		assert_in_range(seen[i], 9500, 10500);
	for (int i = 0; i < 100; i++)
		assert_int_equal(prng_below(&prng, 1), 0);
	/* 3 * 2^62: without drawing again, the answers below 2^62 would be twice as likely as they
	 * should be. */
	int low = 0;
	for (int i = 0; i < 30000; i++)
		low += prng_below(&prng, UINT64_C(3) << 62) % 3 == 0;
	assert_in_range(low, 9500, 10500);
}

static void chance_in_a_thousand(void **state)
{
	(void)state;
	struct prng prng;
	prng_seed(&prng, 6);
	int hits = 0;
	for (int i = 0; i < 100000; i++) {
		assert_false(prng_chance(&prng, 0));
		assert_true(prng_chance(&prng, 1000));
		hits += prng_chance(&prng, 100);
	}
	assert_in_range(hits, 9500, 10500);
}

static void fill_writes_lowest_byte_first_and_no_more(void **state)
{
	(void)state;
	struct prng a, b;
	prng_seed(&a, 8);
	prng_seed(&b, 8);
	uint8_t out[12];
	memset(out, 0, sizeof(out));
	prng_fill(&a, out, 11);
	uint64_t first = prng_next(&b), second = prng_next(&b);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(out[i], (uint8_t)(first >> (8 * i)));
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(out[8 + i], (uint8_t)(second >> (8 * i)));
	assert_int_equal(out[11], 0);
}

static void two_seeds_of_the_system_differ(void **state)
{
	(void)state;
	struct prng a, b;
	prng_seed_from_os(&a);
	prng_seed_from_os(&b);
	assert_memory_not_equal(&a, &b, sizeof(a));
}

/* RFC 8439 section 2.3.2. */
static void chacha20_published_block(void **state)
{
	(void)state;
	static const uint32_t nonce[3] = {0x09000000, 0x4a000000, 0};
	static const uint32_t expected[16] = {0xe4e7f110, 0x15593bd1, 0x1fdd0f50, 0xc47120a3,
	                                      0xc7f4d1c7, 0x0368c033, 0x9aaa2204, 0x4e6cd4c3,
	                                      0x466482d2, 0x09aa9f07, 0x05d7c214, 0xa2028bd9,
	                                      0xd19c12b5, 0xb94e16de, 0xe883d0cb, 0x4e3c50a2};
	uint32_t key[8], out[16];
	for (uint32_t i = 0; i < 8; i++)
		key[i] = 0x03020100u + 0x04040404u * i;
	prng_chacha(key, 1, nonce, out);
	assert_memory_equal(out, expected, sizeof(out));
}

static void a_pool_gives_each_value_once(void **state)
{
	(void)state;
	struct prng_pool pool = {0};
	static uint64_t seen[3 * PRNG_POOL];
	for (unsigned i = 0; i < 3 * PRNG_POOL; i++) {
		seen[i] = prng_pool_next(&pool);
		for (unsigned j = 0; j < i; j++)
			assert_int_not_equal(seen[i], seen[j]);
	}
}

int main(void)
{
	const struct CMUnitTest all[] = {
	        cmocka_unit_test(splitmix64_published_outputs),
	        cmocka_unit_test(xoshiro256starstar_reference_outputs),
	        cmocka_unit_test(same_seed_same_numbers),
	        cmocka_unit_test(below_is_even_and_bounded),
	        cmocka_unit_test(chance_in_a_thousand),
	        cmocka_unit_test(fill_writes_lowest_byte_first_and_no_more),
	        cmocka_unit_test(two_seeds_of_the_system_differ),
	        cmocka_unit_test(chacha20_published_block),
	        cmocka_unit_test(a_pool_gives_each_value_once),
	};
	return cmocka_run_group_tests(all, NULL, NULL);
}
