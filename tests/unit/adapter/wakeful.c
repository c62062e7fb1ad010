/* Who takes packets decides whether the adapter's thread is woken for them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "adapter/drive/busy_poll.h"

#define WINDOW (uint64_t) WAKEFUL_WINDOW_NS

/* Windows in which packets lay there, all but the last that is needed. */
#define NEARLY (WAKEFUL_PROOFS - 1)

/* What both took in one window, and what follows from that. */
static void the_thread_is_woken_for_what_nobody_takes(void **state)
{
	static const struct {
		uint64_t mine, theirs;
		bool eager;
	} rows[] = {
	        {0, 0, false}, {0, 500, false},  {1, 0, true},    {1, 4, true},
	        {1, 5, false}, {100, 200, true}, {3, 100, false}, {50, 0, true},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct wakeful wakeful = {.window_ns = WINDOW, .seen = 1000, .proofs = NEARLY};
		uint64_t all = 1000 + rows[i].theirs;
		wakeful_took(&wakeful, WINDOW / 2, 0, all);
		assert_false(wakeful.eager);
		wakeful_took(&wakeful, WINDOW, rows[i].mine, all + rows[i].mine);
		assert_int_equal(wakeful.eager, rows[i].eager);
	}
}

/* While it is woken it may take what the application would have taken: now and then that is tried.
 */
static void that_is_tried_anew(void **state)
{
	(void)state;
	struct wakeful wakeful = {.proofs = NEARLY};
	uint64_t now = WINDOW, all = 1;
	wakeful_took(&wakeful, now, 1, all);
	assert_true(wakeful.eager);
	for (unsigned i = 1; i < WAKEFUL_WINDOWS; i++) {
		wakeful_took(&wakeful, now += WINDOW, 1, all += 10);
		assert_true(wakeful.eager);
	}
	wakeful_took(&wakeful, now += WINDOW, 1, all += 10);
	assert_false(wakeful.eager);
	/* Once more is enough, */
	struct wakeful again = wakeful;
	wakeful_took(&again, now + WINDOW, 1, all + 2);
	assert_true(again.eager);
	/* if it is so at once. */
	wakeful_took(&wakeful, now += WINDOW, 1, all += 10);
	assert_false(wakeful.eager);
	for (unsigned i = 0; i < NEARLY; i++)
		wakeful_took(&wakeful, now += WINDOW, 1, all += 2);
	assert_false(wakeful.eager);
	wakeful_took(&wakeful, now += WINDOW, 1, all += 2);
	assert_true(wakeful.eager);
}

/* An application that sends much takes its packets late, but it is at it when the thread comes. */
static void who_is_at_it_is_left_alone(void **state)
{
	(void)state;
	struct wakeful wakeful = {0};
	uint64_t now = WINDOW, all = 0;
	for (unsigned i = 0; i < 5; i++) {
		for (unsigned k = 0; k < NEARLY; k++)
			wakeful_took(&wakeful, now += WINDOW, 10, all += 15);
		wakeful_leave(&wakeful);
	}
	assert_false(wakeful.eager);
	for (unsigned k = 0; k < WAKEFUL_PROOFS; k++)
		wakeful_took(&wakeful, now += WINDOW, 10, all += 15);
	assert_true(wakeful.eager);
}

/* Whoever else wants to run, and whoever does not: nothing is looked for for ever. */
static void it_goes_to_sleep(void **state)
{
	(void)state;
	struct wakeful wakeful = {0};
	uint64_t now = 5 * WINDOW;
	assert_false(wakeful_stay(&wakeful, now));
	wakeful_took(&wakeful, now, 3, 3);
	wakeful.alone = true;
	wakeful.asked_ns = now;
	assert_true(wakeful_stay(&wakeful, now));
	assert_true(wakeful_stay(&wakeful, now + WAKEFUL_NS - 1));
	wakeful_took(&wakeful, now + WAKEFUL_NS - 1, 0, 9);
	assert_false(wakeful_stay(&wakeful, now + WAKEFUL_NS));
	wakeful_took(&wakeful, now, 1, 10);
	wakeful.alone = false;
	assert_false(wakeful_stay(&wakeful, now));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(the_thread_is_woken_for_what_nobody_takes),
	        cmocka_unit_test(that_is_tried_anew),
	        cmocka_unit_test(who_is_at_it_is_left_alone),
	        cmocka_unit_test(it_goes_to_sleep),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
