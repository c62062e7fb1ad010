/* IP8: the read resource queue by sequence number (MEMMGT figure 18A, steps 1804 and 1806). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/prng.h"
#include "queue/read_queue.h"

#define SLOTS 16u

static void ip8_next_expected_is_accepted_and_repeated_is_answered(void **state)
{
	(void)state;
	struct read_entry entries[8], *entry, *again;
	struct read_queue q;
	read_queue_init(&q, entries, 4, 100);
	assert_int_equal(read_queue_put(&q, 100, &entry), READ_ACCEPTED);
	assert_int_equal(read_queue_put(&q, 100, &again), READ_PENDING);
	read_queue_finish(&q, entry, 42);
	assert_int_equal(read_queue_put(&q, 100, &again), READ_REPEATED);
	assert_ptr_equal(entry, again);
	assert_int_equal(again->result, 42);
}

static void ip8_past_the_end_breaks_the_stream(void **state)
{
	(void)state;
	struct read_entry entries[8], *entry;
	struct read_queue q;
	read_queue_init(&q, entries, 3, 0);
	/* A free entry takes its number out of order; the one past the end does not exist. */
	assert_int_equal(read_queue_put(&q, 2, &entry), READ_ACCEPTED);
	assert_int_equal(read_queue_put(&q, 3, &entry), READ_OUT_OF_RANGE);
	assert_int_equal(read_queue_put(&q, 0, &entry), READ_ACCEPTED);
	assert_int_equal(read_queue_put(&q, 1, &entry), READ_ACCEPTED);
	/* All three are in use and none is finished: nothing more fits. */
	assert_int_equal(read_queue_put(&q, 3, &entry), READ_OUT_OF_RANGE);
	assert_int_equal(q.open, 3);
}

static void ip8_no_resources_no_reads(void **state)
{
	(void)state;
	struct read_entry *entry;
	struct read_queue q;
	read_queue_init(&q, NULL, 0, 0);
	assert_int_equal(read_queue_put(&q, 0, &entry), READ_OUT_OF_RANGE);
}

/* The slow model: every number ever put, by what became of it. */
struct model {
	uint32_t first;
	uint8_t fate[4096]; /* 0 never, 1 open, 2 finished */
};

static enum read_verdict model_put(struct model *m, uint32_t depth, uint32_t msn)
{
	uint32_t next = 0, at = msn - m->first;
	while (m->fate[next] != 0)
		next++;
	if (at < next && next - at <= depth)
		return m->fate[at] == 2 ? READ_REPEATED : READ_PENDING;
	if (at < next || at >= next + depth)
		return READ_OUT_OF_RANGE;
	if (m->fate[at] != 0)
		return m->fate[at] == 2 ? READ_REPEATED : READ_PENDING;
	/* One that never finishes blocks its place for good. */
	uint32_t slots = read_queue_slots(depth);
	if (at >= slots && m->fate[at - slots] == 1)
		return READ_OUT_OF_RANGE;
	uint32_t open = 0;
	for (uint32_t i = 0; i < at + depth; i++)
		open += m->fate[i] == 1;
	return open < depth ? READ_ACCEPTED : READ_OUT_OF_RANGE;
}

static void ip8_against_a_model_with_numbers_that_wrap(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 300; seed++) {
		struct prng prng;
		prng_seed(&prng, seed);
		uint32_t depth = 1 + (uint32_t)prng_below(&prng, SLOTS);
		struct model model = {.first = 0u - (uint32_t)prng_below(&prng, 500)};
		struct read_entry entries[2 * SLOTS], *entry;
		struct read_queue q;
		read_queue_init(&q, entries, depth, model.first);
		uint32_t next = 0;
		for (int step = 0; step < 2000 && next < 3000; step++) {
			uint32_t at = next + (uint32_t)prng_below(&prng, 2 * depth + 2);
			at = at >= depth ? at - depth : 0;
			enum read_verdict want = model_put(&model, depth, model.first + at);
			assert_int_equal(read_queue_put(&q, model.first + at, &entry), want);
			if (want == READ_ACCEPTED) {
				assert_int_equal(entry->msn, model.first + at);
				model.fate[at] = 1;
			}
			if (want == READ_REPEATED)
				assert_int_equal(entry->result, at);
			if ((want == READ_ACCEPTED || want == READ_PENDING) &&
			    prng_chance(&prng, 600)) {
				read_queue_finish(&q, entry, at);
				model.fate[at] = 2;
			}
			while (model.fate[next] != 0)
				next++;
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(ip8_next_expected_is_accepted_and_repeated_is_answered),
	        cmocka_unit_test(ip8_past_the_end_breaks_the_stream),
	        cmocka_unit_test(ip8_no_resources_no_reads),
	        cmocka_unit_test(ip8_against_a_model_with_numbers_that_wrap),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
