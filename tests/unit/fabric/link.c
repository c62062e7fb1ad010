/* One end of a link against another: up, down, losses, and frames that are none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "fabric/link.h"
#include "wire/be.h"

#define MS 1000000u

static struct link a, b;
static uint64_t now;

static int begin(void **state)
{
	(void)state;
	link_begin(&a);
	link_begin(&b);
	now = 1000 * MS;
	return 0;
}

/* A frame from @from to @to with a packet of @bytes; @arrives: it is not lost. */
static size_t pass(struct link *from, struct link *to, size_t bytes, bool arrives)
{
	static uint8_t frame[LINK_MAX_BYTES];
	link_put(from, frame, bytes, now);
	return arrives ? link_take(to, frame, LINK_HEADER_BYTES + bytes, now) : 0;
}

/* Let @ns pass with keep-alives in both directions, as far as these arrive. */
static void let_pass(uint64_t ns, bool to_b, bool to_a)
{
	for (uint64_t end = now + ns; now < end; now += 50 * MS) {
		if (link_tick(&a, now))
			pass(&a, &b, 0, to_b);
		if (link_tick(&b, now))
			pass(&b, &a, 0, to_a);
	}
}

static void up_when_both_hear(void **state)
{
	(void)state;
	let_pass(300 * MS, true, false); /* b hears a, a hears nothing */
	assert_false(a.up);
	assert_false(b.up);
	let_pass(300 * MS, true, true);
	assert_true(a.up && b.up);
	assert_int_equal(pass(&a, &b, 100, true), 100);
	let_pass(LINK_SILENCE_NS + 500 * MS, true, false); /* one direction is cut: both go down */
	assert_false(a.up);
	assert_false(b.up);
	assert_int_equal(a.downs, 1);
	assert_int_equal(b.downs, 1);
	let_pass(300 * MS, true, true);
	assert_true(a.up && b.up);
	let_pass(5000 * MS, true, true);
	assert_int_equal(a.downs + b.downs, 2);
}

static void silence_is_noticed_in_time(void **state)
{
	(void)state;
	let_pass(300 * MS, true, true);
	uint64_t cut = now;
	while (a.up) {
		now += 10 * MS;
		link_tick(&a, now);
	}
	assert_true(now - cut < LINK_SILENCE_NS + LINK_KEEP_NS);
}

/* LINK_KEEP_NS after the last frame, whichever that was, and at once from an end that has sent
 * none. */
static void a_keep_alive_is_due_when_nothing_was_sent(void **state)
{
	(void)state;
	assert_true(link_tick(&a, now));
	for (unsigned bytes = 0; bytes <= 10; bytes += 10) {
		pass(&a, &b, bytes, true);
		assert_false(link_tick(&a, now));
		assert_false(link_tick(&a, now + LINK_KEEP_NS - 1));
		now += LINK_KEEP_NS;
		assert_true(link_tick(&a, now));
	}
}

static void losses_are_counted(void **state)
{
	(void)state;
	let_pass(300 * MS, true, true);
	uint64_t before = b.lost;
	for (unsigned i = 0; i < 100; i++)
		pass(&a, &b, 10, i % 10 != 3);
	assert_int_equal(b.lost - before, 10);
	/* One that comes late was not lost. */
	uint8_t late[LINK_HEADER_BYTES + 4] = {0}, next[LINK_HEADER_BYTES + 4] = {0};
	before = b.lost;
	link_put(&a, late, 4, now);
	link_put(&a, next, 4, now);
	assert_int_equal(link_take(&b, next, sizeof(next), now), 4);
	assert_int_equal(b.lost - before, 1);
	assert_int_equal(link_take(&b, late, sizeof(late), now), 4);
	assert_int_equal(b.lost - before, 0);
	/* An end that starts again is not a great loss. */
	link_begin(&a);
	a.next = 0x80000000u;
	pass(&a, &b, 10, true);
	assert_int_equal(b.lost - before, 0);
	a.next = UINT32_MAX; /* the number wraps */
	pass(&a, &b, 10, true);
	pass(&a, &b, 10, true);
	assert_int_equal(b.lost - before, 0);
}

static void closed_links_are_deaf_and_dumb(void **state)
{
	(void)state;
	let_pass(300 * MS, true, true);
	link_close(&a, true);
	assert_false(a.up);
	assert_false(link_tick(&a, now + 1000 * MS));
	assert_int_equal(pass(&b, &a, 50, true), 0);
	let_pass(LINK_SILENCE_NS + 500 * MS, true, true);
	assert_false(b.up);
	link_close(&a, false);
	let_pass(300 * MS, true, true);
	assert_true(a.up && b.up);
	link_lose(&a);
	assert_false(a.up);
}

static void other_frames_are_damaged(void **state)
{
	(void)state;
	uint8_t frame[LINK_HEADER_BYTES + 8], bad[sizeof(frame)];
	static const struct {
		unsigned at;
		uint8_t value;
	} rows[] = {{0, 'h'},
	            {1, 0},
	            {2, 0},
	            {2, LINK_KIND_COUNT},
	            {2, LINK_KEEP_ALIVE},
	            {3, 2},
	            {8, 1},
	            {9, 9},
	            {9, 0},
	            {10, 1},
	            {11, 1}};
	memset(frame, 0, sizeof(frame));
	link_put(&a, frame, 8, now);
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		memcpy(bad, frame, sizeof(bad));
		bad[rows[i].at] = rows[i].value;
		assert_int_equal(link_take(&b, bad, sizeof(bad), now), 0);
		assert_int_equal(b.damaged, i + 1);
		assert_false(b.heard);
	}
	for (size_t cut = 0; cut < sizeof(frame); cut++)
		assert_int_equal(link_take(&b, frame, cut, now), 0);
	assert_false(b.heard);
	assert_int_equal(link_take(&b, frame, sizeof(frame), now), 8);
	/* Padding behind the packet is allowed: Ethernet frames have a least length. */
	link_put(&a, frame, 3, now);
	assert_int_equal(link_take(&b, frame, sizeof(frame), now), 3);
	be16_store(frame + 8, IBC_MAX_BYTES + 1);
	assert_int_equal(link_take(&b, frame, sizeof(frame), now), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup(up_when_both_hear, begin),
	        cmocka_unit_test_setup(silence_is_noticed_in_time, begin),
	        cmocka_unit_test_setup(a_keep_alive_is_due_when_nothing_was_sent, begin),
	        cmocka_unit_test_setup(losses_are_counted, begin),
	        cmocka_unit_test_setup(closed_links_are_deaf_and_dumb, begin),
	        cmocka_unit_test_setup(other_frames_are_damaged, begin),
	};
	return cmocka_run_group_tests_name("vs5_links", tests, NULL, NULL);
}
