/* The simulator's event order: by time, then by insertion; bounded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/prng.h"
#include "port/simheap.h"

#define CAPACITY 512u

static struct sim_heap_entry entries[CAPACITY];

static void empty_heap_gives_nothing(void **state)
{
	struct sim_heap heap;
	struct sim_heap_entry entry;

	(void)state;
	sim_heap_init(&heap, entries, CAPACITY);
	assert_null(sim_heap_first(&heap));
	assert_false(sim_heap_pop(&heap, &entry));
}

static void x4_entries_of_one_time_come_out_as_they_went_in(void **state)
{
	struct sim_heap heap;
	struct sim_heap_entry entry;

	(void)state;
	sim_heap_init(&heap, entries, CAPACITY);
	for (uint32_t i = 0; i < CAPACITY; i++)
		assert_true(sim_heap_push(&heap, 7, i));
	for (uint32_t i = 0; i < CAPACITY; i++) {
		assert_true(sim_heap_pop(&heap, &entry));
		assert_int_equal(entry.index, i);
	}
}

static void full_heap_refuses_and_keeps_what_it_has(void **state)
{
	struct sim_heap heap;
	struct sim_heap_entry entry;

	(void)state;
	sim_heap_init(&heap, entries, 3);
	assert_true(sim_heap_push(&heap, 30, 0));
	assert_true(sim_heap_push(&heap, 10, 1));
	assert_true(sim_heap_push(&heap, 20, 2));
	assert_false(sim_heap_push(&heap, 5, 3));
	assert_int_equal(sim_heap_first(&heap)->index, 1);
	assert_true(sim_heap_pop(&heap, &entry));
	assert_true(sim_heap_push(&heap, 5, 3));
	uint32_t expected[] = {3, 2, 0};
	for (size_t i = 0; i < 3; i++) {
		assert_true(sim_heap_pop(&heap, &entry));
		assert_int_equal(entry.index, expected[i]);
	}
}

static void restored_entry_keeps_its_place(void **state)
{
	struct sim_heap heap;
	struct sim_heap_entry first, entry;

	(void)state;
	sim_heap_init(&heap, entries, 3);
	sim_heap_push(&heap, 10, 0);
	sim_heap_push(&heap, 10, 1);
	assert_true(sim_heap_pop(&heap, &first));
	sim_heap_push(&heap, 10, 2);
	assert_true(sim_heap_restore(&heap, &first));
	assert_false(sim_heap_restore(&heap, &first)); /* full */
	for (uint32_t i = 0; i < 3; i++) {
		assert_true(sim_heap_pop(&heap, &entry));
		assert_int_equal(entry.index, i);
	}
}

/* Against a slow model: an array searched from one end to the other. */
static void property_same_as_a_sorted_list(void **state)
{
	struct sim_heap heap;
	struct sim_heap_entry model[CAPACITY], entry;
	struct prng prng;
	uint32_t count = 0;
	uint64_t order = 0;

	(void)state;
	prng_seed(&prng, 1);
	sim_heap_init(&heap, entries, CAPACITY);
	for (int step = 0; step < 100000; step++) {
		if (prng_chance(&prng, step / 1000 % 2 ? 450 : 550)) {
			uint64_t time_ns = prng_below(&prng, 50);
			bool pushed = sim_heap_push(&heap, time_ns, (uint32_t)step);
			assert_int_equal(pushed, count < CAPACITY);
			if (pushed)
				model[count++] =
				        (struct sim_heap_entry){time_ns, order++, (uint32_t)step};
			continue;
		}
		uint32_t best = 0;
		for (uint32_t i = 1; i < count; i++)
			if (model[i].time_ns < model[best].time_ns ||
			    (model[i].time_ns == model[best].time_ns &&
			     model[i].order < model[best].order))
				best = i;
		assert_int_equal(sim_heap_pop(&heap, &entry), count > 0);
		if (count == 0)
			continue;
		assert_int_equal(entry.index, model[best].index);
		model[best] = model[--count];
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(empty_heap_gives_nothing),
	        cmocka_unit_test(x4_entries_of_one_time_come_out_as_they_went_in),
	        cmocka_unit_test(full_heap_refuses_and_keeps_what_it_has),
	        cmocka_unit_test(restored_entry_keeps_its_place),
	        cmocka_unit_test(property_same_as_a_sorted_list),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
