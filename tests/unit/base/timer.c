/* The timer wheel by example; tests/property/timer.c does it at random. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/timer.h"

#define YEAR_NS UINT64_C(31557600000000000)

static void exact_to_the_nanosecond(void **state)
{
	(void)state;
	static const uint64_t delays[] = {0,           1,           1023,         1024,
	                                  1025,        65535,       65536,        65537,
	                                  4194304,     1000000000,  60000000000,  YEAR_NS,
	                                  8 * YEAR_NS, 9 * YEAR_NS, 10 * YEAR_NS, 100 * YEAR_NS};
	for (size_t i = 0; i < sizeof(delays) / sizeof(delays[0]); i++) {
		const uint64_t start = 123456789;
		struct timer_wheel wheel;
		struct timer_node node;
		timer_wheel_init(&wheel, start);
		timer_node_init(&node);
		timer_start(&wheel, &node, start + delays[i]);
		assert_true(timer_running(&node));
		assert_true(timer_next_ns(&wheel) <= start + delays[i]);
		if (delays[i] > 0)
			assert_null(timer_advance(&wheel, start + delays[i] - 1));
		assert_ptr_equal(timer_advance(&wheel, start + delays[i]), &node);
		assert_null(node.next);
		assert_false(timer_running(&node));
		assert_int_equal(timer_next_ns(&wheel), UINT64_MAX);
	}
}

static void order_of_tick_then_of_start(void **state)
{
	(void)state;
	struct timer_wheel wheel;
	struct timer_node nodes[4];
	timer_wheel_init(&wheel, 0);
	for (int i = 0; i < 4; i++)
		timer_node_init(&nodes[i]);
	timer_start(&wheel, &nodes[0], 50 * TIMER_TICK_NS + 9);
	timer_start(&wheel, &nodes[1], 5000000);
	timer_start(&wheel, &nodes[2], 50 * TIMER_TICK_NS + 1); /* the tick of nodes[0] */
	timer_start(&wheel, &nodes[3], 3 * TIMER_TICK_NS);
	struct timer_node *expired = timer_advance(&wheel, YEAR_NS);
	static const int order[] = {3, 0, 2, 1};
	for (int i = 0; i < 4; i++, expired = expired->next)
		assert_ptr_equal(expired, &nodes[order[i]]);
	assert_null(expired);
}

static void past_deadline_fires_at_the_next_advance(void **state)
{
	(void)state;
	struct timer_wheel wheel;
	struct timer_node node;
	timer_wheel_init(&wheel, 1000000);
	timer_node_init(&node);
	timer_start(&wheel, &node, 5);
	assert_true(timer_next_ns(&wheel) <= 1000000);
	assert_ptr_equal(timer_advance(&wheel, 999), &node); /* an older time is ignored */
	assert_int_equal(wheel.now_ns, 1000000);
}

static void stop_and_move(void **state)
{
	(void)state;
	struct timer_wheel wheel;
	struct timer_node a, b;
	timer_wheel_init(&wheel, 0);
	timer_node_init(&a);
	timer_node_init(&b);
	timer_stop(&wheel, &a); /* not running: nothing happens */
	timer_start(&wheel, &a, 10000);
	timer_start(&wheel, &b, 10000);
	timer_start(&wheel, &a, 20000);
	assert_int_equal(wheel.running, 2);
	assert_ptr_equal(timer_advance(&wheel, 15000), &b);
	assert_null(b.next);
	timer_stop(&wheel, &a);
	assert_int_equal(wheel.running, 0);
	assert_int_equal(timer_next_ns(&wheel), UINT64_MAX);
	assert_null(timer_advance(&wheel, UINT64_MAX));
	timer_start(&wheel, &a, UINT64_MAX);
	assert_ptr_equal(timer_advance(&wheel, UINT64_MAX), &a);
}

static void latest_deadline_of_all(void **state)
{
	(void)state;
	struct timer_wheel wheel;
	struct timer_node node;
	timer_wheel_init(&wheel, 0);
	timer_node_init(&node);
	timer_start(&wheel, &node, UINT64_MAX);
	uint64_t now = 0;
	int steps = 0;
	/* Whoever sleeps from timer_next_ns() to timer_next_ns() gets there, in few steps. */
	for (; timer_running(&node); steps++) {
		uint64_t next = timer_next_ns(&wheel);
		assert_true(next > now);
		now = next;
		timer_advance(&wheel, now);
	}
	assert_int_equal(now, UINT64_MAX);
	assert_true(steps < 100);
}

int main(void)
{
	const struct CMUnitTest all[] = {
	        cmocka_unit_test(exact_to_the_nanosecond),
	        cmocka_unit_test(order_of_tick_then_of_start),
	        cmocka_unit_test(past_deadline_fires_at_the_next_advance),
	        cmocka_unit_test(stop_and_move),
	        cmocka_unit_test(latest_deadline_of_all),
	};
	return cmocka_run_group_tests(all, NULL, NULL);
}
