/* The injected clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"

static uint64_t tell(void *context)
{
	return ++*(uint64_t *)context;
}

static void reads_what_was_injected(void **state)
{
	(void)state;
	uint64_t time = 41;
	struct clock fake = {.now = tell, .context = &time};
	assert_int_equal(clock_read(&fake), 42);
	assert_int_equal(clock_read(&fake), 43);
}

static void real_clock_goes_forward(void **state)
{
	(void)state;
	struct clock real = clock_real();
	uint64_t first = clock_read(&real), last = first;
	for (int i = 0; i < 100000 || last == first; i++) {
		uint64_t now = clock_read(&real);
		assert_true(now >= last);
		last = now;
	}
	assert_true(clock_now_ns() >= last);
	assert_true(last - first < UINT64_C(60000000000)); /* nanoseconds, not something finer */
}

/* Whoever sets the time of day does not end a wait, and does not make it longer. */
static void waits_by_the_same_clock(void **state)
{
	(void)state;
	pthread_cond_t cond;
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	clock_cond_init(&cond);
	pthread_mutex_lock(&lock);
	uint64_t begin = clock_now_ns(), end = begin + 20000000;
	while (clock_cond_wait(&cond, &lock, end))
		assert_true(clock_now_ns() - begin < UINT64_C(60000000000));
	assert_true(clock_now_ns() >= end);
	pthread_mutex_unlock(&lock);
	pthread_cond_destroy(&cond);
}

int main(void)
{
	const struct CMUnitTest all[] = {
	        cmocka_unit_test(reads_what_was_injected),
	        cmocka_unit_test(real_clock_goes_forward),
	        cmocka_unit_test(waits_by_the_same_clock),
	};
	return cmocka_run_group_tests(all, NULL, NULL);
}
