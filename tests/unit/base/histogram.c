/* The histogram against the sorted values themselves: the bound on its error, and what is exact. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "base/histogram.h"
#include "base/prng.h"

#define VALUES 20000

static uint64_t values[VALUES];
static struct histogram whole, half;

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

/* Never below the true value, never above it by more than one part in HISTOGRAM_PARTS. */
static void check_percentiles(void)
{
	static const double percents[] = {0, 0.01, 1, 10, 25, 50, 75, 90, 99, 99.9, 99.99, 100};
	qsort(values, VALUES, sizeof(values[0]), compare);
	for (size_t i = 0; i < sizeof(percents) / sizeof(percents[0]); i++) {
		double rank = percents[i] / 100 * VALUES;
		size_t index = (size_t)rank;
		if ((double)index == rank && index > 0)
			index--; /* ranks count from 1, and a whole share needs no rounding up */
		uint64_t exact = values[index < VALUES ? index : VALUES - 1];
		uint64_t told = histogram_percentile(&whole, percents[i]);
		assert_true(told >= exact);
		assert_true(told - exact <= exact / HISTOGRAM_PARTS);
	}
	assert_true(histogram_percentile(&whole, 0) == values[0]);
	assert_true(histogram_percentile(&whole, 100) == values[VALUES - 1]);
	assert_true(histogram_min(&whole) == values[0]);
	assert_true(histogram_max(&whole) == values[VALUES - 1]);
}

static void error_is_bounded_at_every_magnitude(void **state)
{
	(void)state;
	struct prng prng;
	prng_seed(&prng, 21);
	for (unsigned widest = 1; widest <= 64; widest++) {
		histogram_init(&whole);
		long double sum = 0;
		for (int i = 0; i < VALUES; i++) {
			values[i] = prng_next(&prng) >> (64 - 1 - prng_below(&prng, widest));
			histogram_record(&whole, values[i]);
			sum += (long double)values[i];
		}
		assert_int_equal(whole.count, VALUES);
		double mean = (double)(sum / VALUES);
		assert_true(histogram_mean(&whole) >= mean * (1 - 1e-12));
		assert_true(histogram_mean(&whole) <= mean * (1 + 1e-12));
		check_percentiles();
	}
}

static void small_values_and_borders_are_exact(void **state)
{
	(void)state;
	for (unsigned bit = 0; bit < 64; bit++) {
		uint64_t power = UINT64_C(1) << bit;
		const uint64_t around[] = {power - 1, power, power + 1, power * 2 - 1, UINT64_MAX};
		for (size_t i = 0; i < sizeof(around) / sizeof(around[0]); i++) {
			histogram_init(&whole);
			histogram_record(&whole, around[i]);
			assert_true(histogram_percentile(&whole, 50) == around[i]);
			histogram_record(&whole, UINT64_MAX);
			uint64_t told = histogram_percentile(&whole, 50);
			assert_true(told >= around[i] &&
			            told - around[i] <= around[i] / HISTOGRAM_PARTS);
			if (around[i] < 2 * HISTOGRAM_PARTS)
				assert_true(told == around[i]);
		}
	}
}

static void merging_equals_recording_all(void **state)
{
	(void)state;
	struct prng prng;
	static struct histogram other;
	prng_seed(&prng, 22);
	histogram_init(&whole);
	histogram_init(&half);
	histogram_init(&other);
	for (int i = 0; i < VALUES; i++) {
		uint64_t value = prng_next(&prng) >> prng_below(&prng, 64);
		histogram_record(&whole, value);
		histogram_record(i % 3 ? &half : &other, value);
	}
	histogram_merge(&half, &other);
	assert_memory_equal(half.buckets, whole.buckets, sizeof(whole.buckets));
	assert_true(half.sum == whole.sum && half.count == whole.count);
	assert_true(half.min == whole.min && half.max == whole.max);
}

static void empty_says_zero(void **state)
{
	(void)state;
	histogram_init(&whole);
	histogram_init(&half);
	histogram_merge(&whole, &half);
	assert_int_equal(histogram_percentile(&whole, 99), 0);
	assert_int_equal(histogram_min(&whole), 0);
	assert_int_equal(histogram_max(&whole), 0);
	assert_true(histogram_mean(&whole) == 0);
	histogram_record(&half, 5);
	histogram_merge(&whole, &half);
	assert_int_equal(histogram_min(&whole), 5);
}

int main(void)
{
	const struct CMUnitTest all[] = {
	        cmocka_unit_test(error_is_bounded_at_every_magnitude),
	        cmocka_unit_test(small_values_and_borders_are_exact),
	        cmocka_unit_test(merging_equals_recording_all),
	        cmocka_unit_test(empty_says_zero),
	};
	return cmocka_run_group_tests(all, NULL, NULL);
}
