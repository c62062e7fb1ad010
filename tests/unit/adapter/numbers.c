/* Queue pair numbers: in an order that nobody else knows, each of them, and one that was just freed
 * comes back last. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "adapter/adapter.h"
#include "base/clock.h"

#define QPS   1023u
#define BITS  10u
#define MASK  ((1u << BITS) - 1)
#define SEEDS 100u

static struct hdl_adapter *open_with(uint64_t seed)
{
	struct hdl_open_attr attr = {.no_thread = true, .max_qp = QPS, .max_mr = 64};
	struct adapter_env env = {.clock = clock_real(), .seed = seed};
	struct hdl_adapter *adapter;
	assert_int_equal(adapter_open(&attr, &env, &adapter), 0);
	assert_int_equal(adapter->objects.qp_bits, BITS);
	return adapter;
}

static uint32_t take(struct hdl_adapter *adapter)
{
	uint32_t number;
	assert_int_equal(adapter_take_number(adapter, &number), 0);
	return number & MASK;
}

static void each_number_once(void **state)
{
	bool seen[1u << BITS] = {false};
	uint32_t number;
	(void)state;
	struct hdl_adapter *adapter = open_with(1);
	for (unsigned i = 0; i < QPS; i++) {
		uint32_t place = take(adapter);
		assert_true(place != 0 && !seen[place]);
		seen[place] = true;
	}
	assert_int_equal(adapter_take_number(adapter, &number), -HDL_ENOMEM);
	adapter_free_number(adapter, 77);
	assert_int_equal(take(adapter), 77);
	hdl_close(adapter);
}

static void a_freed_number_comes_back_last(void **state)
{
	(void)state;
	struct hdl_adapter *adapter = open_with(2);
	for (unsigned i = 0; i < 5000; i++) {
		static uint32_t last[QPS - 1];
		uint32_t number = take(adapter);
		for (unsigned j = 0; j < QPS - 1; j++)
			assert_true(last[j] != number);
		last[i % (QPS - 1)] = number;
		adapter_free_number(adapter, number);
	}
	hdl_close(adapter);
}

/* The simulator's runs are the same each time; those of two processes are not, and one number does
 * not tell the next. */
static void the_order_follows_from_the_seed(void **state)
{
	static uint32_t numbers[SEEDS][3];
	unsigned same_first = 0, same_step = 0;
	(void)state;
	for (unsigned seed = 0; seed < SEEDS; seed++) {
		struct hdl_adapter *adapter = open_with(1 + seed), *again = open_with(1 + seed);
		for (unsigned i = 0; i < 3; i++) {
			numbers[seed][i] = take(adapter);
			assert_int_equal(numbers[seed][i], take(again));
		}
		hdl_close(adapter);
		hdl_close(again);
	}
	for (unsigned a = 1; a < SEEDS; a++) {
		same_first += numbers[a][0] == numbers[0][0];
		same_step += ((numbers[a][1] - numbers[a][0]) & MASK) ==
		             ((numbers[a][2] - numbers[a][1]) & MASK);
	}
	assert_true(same_first < 4 && same_step < 4);
	/* And those of the operating system's are all different. */
	struct hdl_adapter *one = open_with(0), *other = open_with(0);
	assert_true(take(one) != take(other) || take(one) != take(other));
	hdl_close(one);
	hdl_close(other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(each_number_once),
	        cmocka_unit_test(a_freed_number_comes_back_last),
	        cmocka_unit_test(the_order_follows_from_the_seed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
