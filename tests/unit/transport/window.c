/* How many packets may be in flight, and when an answer is missing: the promises of window.h, with
 * numbers of 24 bits that wrap in most of the tests. */
#include "transport/window.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MTU    1024u
#define SPARE  8u
#define NUMBER 0xffffffu
#define PACKET (1u << WINDOW_SHIFT)
#define FIRST  (WINDOW_FIRST_BYTES / MTU)
#define MS     1000000ull

static struct window w;
static uint32_t una, sent;

static int setup(void **state)
{
	(void)state;
	window_begin(&w, MTU, SPARE);
	una = sent = NUMBER - 9;
	assert_int_equal(window_packets(&w), FIRST);
	return 0;
}

static void fill(void)
{
	sent = (una + window_packets(&w)) & NUMBER;
}

/* Everything that is in flight is acknowledged, packet by packet, and others take its place. */
static void round_trip(void)
{
	fill();
	for (uint32_t end = sent; una != end;) {
		una = (una + 1) & NUMBER;
		window_grow(&w, una, sent, 1);
		fill();
	}
}

static void grow_to(uint32_t packets)
{
	while (window_packets(&w) < packets)
		round_trip();
	assert_int_equal(window_packets(&w), packets);
	fill();
}

static void doubles_until_it_meets_congestion(void **state)
{
	(void)state;
	for (uint32_t packets = FIRST; packets < WINDOW_MAX_PACKETS; packets *= 2) {
		assert_int_equal(window_packets(&w), packets);
		round_trip();
	}
	assert_int_equal(window_packets(&w), WINDOW_MAX_PACKETS);
	round_trip();
	assert_int_equal(window_packets(&w), WINDOW_MAX_PACKETS);
}

static void marks_take_a_quarter_once_per_round_trip(void **state)
{
	(void)state;
	grow_to(16);
	window_marked(&w, una, sent);
	assert_int_equal(window_packets(&w), 12);
	uint32_t end = sent;
	while (una != end) {
		window_marked(&w, una, sent);
		una = (una + 1) & NUMBER;
		if (una != end)
			window_grow(&w, una, sent, 1);
		assert_int_equal(w.size, 12 * PACKET);
	}
	/* From now on a kilobyte per round trip. */
	for (uint32_t trip = 0; trip < 3; trip++) {
		uint32_t before = w.size;
		round_trip();
		assert_in_range(w.size - before, PACKET * 7 / 8, PACKET);
	}
	fill();
	uint32_t flight = window_packets(&w);
	window_marked(&w, una, sent);
	assert_int_equal(w.size, flight * PACKET * 3 / 4);
}

static void losses_take_half(void **state)
{
	(void)state;
	grow_to(16);
	window_lost(&w, una, sent);
	assert_int_equal(w.size, 8 * PACKET);
	window_lost(&w, una, sent);
	assert_int_equal(w.size, 8 * PACKET);
	/* With little in flight, chance is as likely a reason. */
	setup(state);
	fill();
	window_lost(&w, una, sent);
	assert_int_equal(window_packets(&w), FIRST);
	/* What was not used is no measure. */
	setup(state);
	grow_to(64);
	window_lost(&w, una, (una + 16) & NUMBER);
	assert_int_equal(w.size, 8 * PACKET);
}

/* What was in flight was less than half of the window: it was not the window that held it back. */
static void a_window_that_is_not_used_does_not_grow(void **state)
{
	(void)state;
	grow_to(16);
	window_grow(&w, una, (una + 6) & NUMBER, 1);
	assert_int_equal(w.size, 16 * PACKET);
	window_grow(&w, una, (una + 7) & NUMBER, 1);
	assert_int_equal(w.size, 17 * PACKET);
}

static void silence_starts_over_and_late_answers_restore(void **state)
{
	(void)state;
	for (uint32_t answered = FIRST; answered <= FIRST + 1; answered++) {
		setup(state);
		grow_to(32);
		window_silent(&w, una);
		assert_int_equal(w.size, FIRST * PACKET);
		window_silent(&w, una); /* the same silence */
		una = (una + answered) & NUMBER;
		window_grow(&w, una, sent, answered);
		/* More than was sent again: nothing had been lost. */
		assert_int_equal(window_packets(&w), answered > FIRST ? 32 : 2 * FIRST);
		if (answered == FIRST) { /* quickly up to half of what it was, slowly from there */
			grow_to(16);
			round_trip();
			assert_int_equal(window_packets(&w), 16);
		} else {
			round_trip();
			assert_int_equal(window_packets(&w), 64);
		}
	}
}

static void hints_count_seldom(void **state)
{
	(void)state;
	fill();
	window_hinted(&w, una, sent, 1); /* with so little it is not even remembered */
	assert_int_equal(window_packets(&w), FIRST);
	round_trip();
	assert_int_equal(window_packets(&w), 2 * FIRST);
	grow_to(64);
	window_hinted(&w, una, una, 2); /* nothing is in flight */
	assert_int_equal(window_packets(&w), 64);
	window_hinted(&w, una, sent, 3);
	assert_int_equal(window_packets(&w), 48);
	window_hinted(&w, una, sent, 2 + WINDOW_HINT_NS);
	assert_int_equal(window_packets(&w), 48);
	window_hinted(&w, una, sent, 3 + WINDOW_HINT_NS);
	assert_int_equal(window_packets(&w), 36);
	/* On a slow network, seldomer. */
	uint64_t now = 4 + WINDOW_HINT_NS;
	window_time_sent(&w, sent, sent, now);
	window_time_answered(&w, (sent + 1) & NUMBER, now + 10 * MS);
	window_hinted(&w, una, sent, 2 + WINDOW_HINT_NS + WINDOW_HINT_TRIPS * 10 * MS);
	assert_int_equal(window_packets(&w), 36);
	window_hinted(&w, una, sent, 3 + WINDOW_HINT_NS + WINDOW_HINT_TRIPS * 10 * MS);
	assert_int_equal(window_packets(&w), 27);
}

static void below_one_packet_the_next_one_waits(void **state)
{
	(void)state;
	window_time_sent(&w, sent, sent, 0);
	sent = (sent + 1) & NUMBER;
	window_time_answered(&w, sent, 3 * MS);
	una = sent;
	window_pace(&w, 10 * MS);
	assert_true(window_pace_wait_ns(&w, 10 * MS) == 0);
	for (unsigned trip = 0; trip < 40; trip++) {
		sent = (una + 1) & NUMBER;
		window_marked(&w, una, sent);
		una = sent;
		if (trip == 0) { /* three quarters of a packet */
			window_pace(&w, 10 * MS);
			assert_true(window_pace_wait_ns(&w, 10 * MS) == 4 * MS);
			assert_true(window_pace_wait_ns(&w, 14 * MS - 1) == 1);
			assert_true(window_pace_wait_ns(&w, 14 * MS) == 0);
			assert_true(window_pace_wait_ns(&w, 15 * MS) == 0);
		}
	}
	assert_int_equal(window_packets(&w), 1);
	window_pace(&w, 20 * MS);
	assert_true(window_pace_wait_ns(&w, 20 * MS) == WINDOW_PARTS * 3 * MS);
	/* Acknowledgements lead back to whole packets, of which none waits. */
	for (unsigned trip = 0; trip < 3 * WINDOW_PARTS && w.size < PACKET; trip++) {
		sent = (una + 1) & NUMBER;
		una = sent;
		window_grow(&w, una, sent, 1);
	}
	assert_true(w.size >= PACKET);
	assert_true(window_pace_wait_ns(&w, 20 * MS) == 0);
}

/* One at a time, and none that was sent before: nobody knows which of the two is answered. */
static void answers_are_timed(void **state)
{
	(void)state;
	uint32_t first = sent;
	window_time_sent(&w, first, first, 1000);
	window_time_sent(&w, (first + 1) & NUMBER, (first + 1) & NUMBER, 2500);
	window_time_answered(&w, first, 2000); /* what was before it */
	assert_true(w.rtt_ns == 0);
	window_time_answered(&w, (first + 1) & NUMBER, 3000);
	assert_true(w.rtt_ns == 2000);
	window_time_answered(&w, (first + 2) & NUMBER, 9000);
	assert_true(w.rtt_ns == 2000);
	window_time_sent(&w, (first + 2) & NUMBER, (first + 3) & NUMBER, 9000);
	window_time_answered(&w, (first + 3) & NUMBER, 99000);
	assert_true(w.rtt_ns == 2000);
	window_time_sent(&w, (first + 3) & NUMBER, (first + 3) & NUMBER, 100000);
	window_time_answered(&w, (first + 4) & NUMBER, 102800);
	assert_true(w.rtt_ns == 2100); /* an eighth of the way */
}

static void a_missing_answer_is_requested_sooner(void **state)
{
	(void)state;
	uint64_t timeout = 100 * MS, waited = 0, soon = WINDOW_WAIT_FIRST_NS;
	for (;;) {
		uint64_t wait = window_wait_ns(&w, timeout);
		assert_true(wait == (soon < timeout - waited ? soon : timeout - waited));
		waited += wait;
		soon *= 2;
		bool overdue = window_overdue(&w, timeout, wait);
		assert_int_equal(overdue, waited == timeout); /* never later, never sooner */
		if (overdue)
			break;
	}
	assert_true(window_wait_ns(&w, timeout) == WINDOW_WAIT_FIRST_NS); /* the next try */
	assert_false(window_overdue(&w, timeout, WINDOW_WAIT_FIRST_NS));
	window_time_answered(&w, una, 0); /* any answer ends it */
	assert_true(window_wait_ns(&w, timeout) == WINDOW_WAIT_FIRST_NS);
	/* A timeout that is not much longer is waited for. */
	assert_true(window_wait_ns(&w, 8 * WINDOW_WAIT_FIRST_NS) == WINDOW_WAIT_FIRST_NS);
	assert_true(window_wait_ns(&w, 8 * WINDOW_WAIT_FIRST_NS - 8) ==
	            8 * WINDOW_WAIT_FIRST_NS - 8);
	/* Of an answer that usually comes after 2 ms, give or take one. */
	window_time_sent(&w, sent, sent, 0);
	window_time_answered(&w, (sent + 1) & NUMBER, 2 * MS);
	assert_true(window_wait_ns(&w, timeout) == 6 * MS);
	/* And very soon. */
	window_begin(&w, MTU, SPARE);
	window_time_sent(&w, 0, 0, 0);
	window_time_answered(&w, 1, 1000);
	assert_true(window_wait_ns(&w, timeout) == WINDOW_WAIT_MIN_NS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup(doubles_until_it_meets_congestion, setup),
	        cmocka_unit_test_setup(marks_take_a_quarter_once_per_round_trip, setup),
	        cmocka_unit_test_setup(losses_take_half, setup),
	        cmocka_unit_test_setup(a_window_that_is_not_used_does_not_grow, setup),
	        cmocka_unit_test_setup(silence_starts_over_and_late_answers_restore, setup),
	        cmocka_unit_test_setup(hints_count_seldom, setup),
	        cmocka_unit_test_setup(below_one_packet_the_next_one_waits, setup),
	        cmocka_unit_test_setup(answers_are_timed, setup),
	        cmocka_unit_test_setup(a_missing_answer_is_requested_sooner, setup),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
