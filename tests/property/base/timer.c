/* The timer wheel against an array that is searched from end to end: a million random starts,
 * moves, stops and advances, with deadlines from the past to the end of time and jumps of years. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdlib.h>

#include "base/prng.h"
#include "base/timer.h"

#define TIMERS     64
#define OPERATIONS 1000000

struct entry {
	struct timer_node node;
	bool running;
	uint64_t deadline_ns;
	uint64_t tick;    /* by which it is ordered: the deadline's, or that of its start if that is
	                     later */
	uint64_t started; /* which start of all */
};

static struct entry entries[TIMERS];
static struct timer_wheel wheel;

/* Every magnitude equally likely, from nanoseconds to five centuries. */
static uint64_t random_span(struct prng *prng)
{
	return prng_next(prng) >> (1 + prng_below(prng, 63));
}

static uint64_t random_deadline(struct prng *prng, uint64_t now)
{
	uint64_t span = random_span(prng);
	switch (prng_below(prng, 16)) {
	case 0:
		return now > span ? now - span : 0;
	case 1:
		return UINT64_MAX - (span >> 20);
	case 2: /* a border of a slot of some level, or one beside it */
		span = ((now >> prng_below(prng, 58)) + 1) << prng_below(prng, 58);
		return span + prng_below(prng, 3) - 1;
	case 3:
	case 4: /* often the same tick as another */
		return entries[prng_below(prng, TIMERS)].deadline_ns +
		       prng_below(prng, TIMER_TICK_NS);
	default:
		return span > UINT64_MAX - now ? UINT64_MAX : now + span;
	}
}

/* Which of the model's timers must come next out of those that are due at @now; NULL when none is.
 */
static struct entry *first_due(uint64_t now)
{
	struct entry *first = NULL;
	for (int i = 0; i < TIMERS; i++) {
		struct entry *e = &entries[i];
		if (!e->running || e->deadline_ns > now)
			continue;
		if (first == NULL || e->tick < first->tick ||
		    (e->tick == first->tick && e->started < first->started))
			first = e;
	}
	return first;
}

static void check_advance(uint64_t now)
{
	struct timer_node *expired = timer_advance(&wheel, now);
	struct entry *due;
	while ((due = first_due(now)) != NULL) {
		assert_ptr_equal(expired, &due->node); /* not late, and in order */
		assert_false(timer_running(expired));
		due->running = false;
		expired = expired->next;
	}
	assert_null(expired); /* not early */
}

static void check_next(uint64_t now)
{
	uint64_t first = UINT64_MAX;
	uint32_t running = 0;
	for (int i = 0; i < TIMERS; i++) {
		assert_int_equal(timer_running(&entries[i].node), entries[i].running);
		running += entries[i].running;
		if (entries[i].running && entries[i].deadline_ns < first)
			first = entries[i].deadline_ns;
	}
	assert_int_equal(wheel.running, running);
	uint64_t next = timer_next_ns(&wheel);
	assert_true(next <= first);
	if (running == 0)
		assert_true(next == UINT64_MAX);
	else if (first > now)
		assert_true(next > now); /* a sleeper gets on */
}

static uint64_t next_time(struct prng *prng, uint64_t now)
{
	uint64_t span = random_span(prng);
	if (prng_chance(prng, 300) && timer_next_ns(&wheel) > now && wheel.running != 0)
		return timer_next_ns(&wheel);
	if (prng_chance(prng, 900))
		span >>= 24; /* mostly up to minutes, else a life lasts few steps */
	return span > UINT64_MAX - now ? UINT64_MAX : now + span;
}

static void live(struct prng *prng, int *operations)
{
	uint64_t now = random_span(prng) >> 8, starts = 0;
	timer_wheel_init(&wheel, now);
	for (int i = 0; i < TIMERS; i++) {
		entries[i] = (struct entry){0};
		timer_node_init(&entries[i].node);
	}
	/* A life ends when time does. */
	for (int steps = 0; steps < 2000 && *operations < OPERATIONS; steps++, (*operations)++) {
		struct entry *e = &entries[prng_below(prng, TIMERS)];
		uint64_t kind = prng_below(prng, 10);
		if (kind < 5) {
			e->deadline_ns = random_deadline(prng, now);
			e->tick = (e->deadline_ns > now ? e->deadline_ns : now) / TIMER_TICK_NS;
			e->started = starts++;
			e->running = true;
			timer_start(&wheel, &e->node, e->deadline_ns);
		} else if (kind == 5) {
			e->running = false;
			timer_stop(&wheel, &e->node);
		} else if (kind == 6) {
			check_advance(now);
			timer_advance(&wheel, now > 5 ? now - 5 : 0); /* ignored */
		} else {
			now = next_time(prng, now);
			check_advance(now);
		}
		check_next(now);
	}
}

static void like_an_array_searched_from_end_to_end(void **state)
{
	(void)state;
	struct prng prng;
	prng_seed(&prng, 31);
	for (int operations = 0; operations < OPERATIONS;)
		live(&prng, &operations);
}

int main(void)
{
	const struct CMUnitTest all[] = {cmocka_unit_test(like_an_array_searched_from_end_to_end)};
	return cmocka_run_group_tests(all, NULL, NULL);
}
