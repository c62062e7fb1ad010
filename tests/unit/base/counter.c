/* Counters: found by name, raised by several threads without loss where that is promised. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>

#include "base/counter.h"

enum { DROPPED, SENT, COUNTERS };

static struct counter counters[COUNTERS];
static const char *const names[COUNTERS] = {[DROPPED] = "dropped", [SENT] = "sent"};
static const struct counter_set set = {.names = names, .counters = counters, .count = COUNTERS};

#define RAISES 3000000

static _Atomic int ready;

static void *raise_both(void *context)
{
	(void)context;
	atomic_fetch_add(&ready, 1);
	while (atomic_load(&ready) < 2) /* both at once, else they hardly meet */
		sched_yield();
	for (int i = 0; i < RAISES; i++)
		counter_add_shared(&counters[SENT], 2);
	return NULL;
}

static void shared_raises_are_not_lost(void **state)
{
	(void)state;
	pthread_t threads[2];
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, raise_both, NULL), 0);
	uint64_t last = 0;
	for (int i = 0; i < 1000; i++) { /* only ever goes up */
		uint64_t now = counter_read(&counters[SENT]);
		assert_true(now >= last);
		last = now;
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_int_equal(counter_read(&counters[SENT]), 4 * RAISES);
}

static void found_by_name(void **state)
{
	(void)state;
	counter_add(&counters[DROPPED], 3);
	counter_add(&counters[DROPPED], 4);
	assert_ptr_equal(counter_find(&set, "dropped"), &counters[DROPPED]);
	assert_int_equal(counter_read(counter_find(&set, "dropped")), 7);
	assert_null(counter_find(&set, "lost"));
}

int main(void)
{
	const struct CMUnitTest all[] = {
	        cmocka_unit_test(shared_raises_are_not_lost),
	        cmocka_unit_test(found_by_name),
	};
	return cmocka_run_group_tests(all, NULL, NULL);
}
