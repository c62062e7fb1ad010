/* Who takes packets decides whether the adapter's thread is woken for them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "adapter/drive/busy_poll.h"

#define WINDOW (uint64_t) BUSY_POLL_WINDOW_NS

/* Windows in which packets lay there, all but the last that is needed. */
#define NEARLY (BUSY_POLL_PROOFS - 1)

/* What both took in one window, and what follows from that. */
static void the_thread_is_woken_for_what_nobody_takes(void **state)
{
	static const struct {
		uint64_t mine, theirs;
		bool wake_on_packet;
	} rows[] = {
	        {0, 0, false}, {0, 500, false},  {1, 0, true},    {1, 4, true},
	        {1, 5, false}, {100, 200, true}, {3, 100, false}, {50, 0, true},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct busy_poll busy_poll = {.window_ns = WINDOW, .seen = 1000, .proofs = NEARLY};
		uint64_t all = 1000 + rows[i].theirs;
		busy_poll_took(&busy_poll, WINDOW / 2, 0, all);
		assert_false(busy_poll.wake_on_packet);
		busy_poll_took(&busy_poll, WINDOW, rows[i].mine, all + rows[i].mine);
		assert_int_equal(busy_poll.wake_on_packet, rows[i].wake_on_packet);
	}
}

/* While it is woken it may take what the application would have taken: now and then that is tried.
 */
static void that_is_tried_anew(void **state)
{
	(void)state;
	struct busy_poll busy_poll = {.proofs = NEARLY};
	uint64_t now = WINDOW, all = 1;
	busy_poll_took(&busy_poll, now, 1, all);
	assert_true(busy_poll.wake_on_packet);
	for (unsigned i = 1; i < BUSY_POLL_WINDOWS; i++) {
		busy_poll_took(&busy_poll, now += WINDOW, 1, all += 10);
		assert_true(busy_poll.wake_on_packet);
	}
	busy_poll_took(&busy_poll, now += WINDOW, 1, all += 10);
	assert_false(busy_poll.wake_on_packet);
	/* Once more is enough, */
	struct busy_poll again = busy_poll;
	busy_poll_took(&again, now + WINDOW, 1, all + 2);
	assert_true(again.wake_on_packet);
	/* if it is so at once. */
	busy_poll_took(&busy_poll, now += WINDOW, 1, all += 10);
	assert_false(busy_poll.wake_on_packet);
	for (unsigned i = 0; i < NEARLY; i++)
		busy_poll_took(&busy_poll, now += WINDOW, 1, all += 2);
	assert_false(busy_poll.wake_on_packet);
	busy_poll_took(&busy_poll, now += WINDOW, 1, all += 2);
	assert_true(busy_poll.wake_on_packet);
}

/* An application that sends much takes its packets late, but it is at it when the thread comes. */
static void who_is_at_it_is_left_alone(void **state)
{
	(void)state;
	struct busy_poll busy_poll = {0};
	uint64_t now = WINDOW, all = 0;
	for (unsigned i = 0; i < 5; i++) {
		for (unsigned k = 0; k < NEARLY; k++)
			busy_poll_took(&busy_poll, now += WINDOW, 10, all += 15);
		busy_poll_leave(&busy_poll);
	}
	assert_false(busy_poll.wake_on_packet);
	for (unsigned k = 0; k < BUSY_POLL_PROOFS; k++)
		busy_poll_took(&busy_poll, now += WINDOW, 10, all += 15);
	assert_true(busy_poll.wake_on_packet);
}

/* Whoever else wants to run, and whoever does not: nothing is looked for for ever. */
static void it_goes_to_sleep(void **state)
{
	(void)state;
	struct busy_poll busy_poll = {0};
	uint64_t now = 5 * WINDOW;
	assert_false(busy_poll_stay(&busy_poll, now));
	busy_poll_took(&busy_poll, now, 3, 3);
	busy_poll.alone = true;
	busy_poll.asked_ns = now;
	assert_true(busy_poll_stay(&busy_poll, now));
	assert_true(busy_poll_stay(&busy_poll, now + BUSY_POLL_NS - 1));
	busy_poll_took(&busy_poll, now + BUSY_POLL_NS - 1, 0, 9);
	assert_false(busy_poll_stay(&busy_poll, now + BUSY_POLL_NS));
	busy_poll_took(&busy_poll, now, 1, 10);
	busy_poll.alone = false;
	assert_false(busy_poll_stay(&busy_poll, now));
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
