/* The lane by example, and what a consumer makes of a producer that writes nonsense. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <string.h>

#include "base/prng.h"
#include "base/ring.h"

#define SLOTS 16u

static _Alignas(64) unsigned char memory[sizeof(struct ring_shared) + SLOTS * RING_SLOT_BYTES];
static struct ring_tx tx;
static struct ring_rx rx;

static int open_ring(void **state)
{
	(void)state;
	ring_format(memory, SLOTS);
	ring_tx_attach(&tx, memory, SLOTS);
	ring_rx_attach(&rx, memory, SLOTS);
	return 0;
}

static struct ring_slot *slot(uint32_t index)
{
	return (struct ring_slot *)(memory + sizeof(struct ring_shared)) + index;
}

static bool push(size_t bytes, unsigned char fill)
{
	void *to = ring_reserve(&tx, bytes);
	if (to == NULL)
		return false;
	memset(to, fill, bytes);
	ring_publish(&tx);
	return true;
}

static void pop(size_t bytes, unsigned char fill)
{
	size_t length = 0;
	const unsigned char *from = ring_peek(&rx, &length);
	assert_non_null(from);
	assert_int_equal(length, bytes);
	for (size_t i = 0; i < length; i++)
		assert_int_equal(from[i], fill);
	ring_release(&rx);
}

static void sizes_are_as_drawn(void **state)
{
	(void)state;
	assert_int_equal(ring_bytes(SLOTS), sizeof(memory));
	assert_int_equal(ring_max_record(SLOTS), 8 * 64 - 8);
	assert_int_equal(ring_bytes(RING_MAX_SLOTS), 128 + 64 * (size_t)RING_MAX_SLOTS);
	assert_ptr_equal(ring_reserve(&tx, 1), memory + 128 + 8);
}

static void reserved_is_not_visible_and_may_be_replaced(void **state)
{
	(void)state;
	size_t bytes;
	memset(ring_reserve(&tx, 100), 0xee, 100);
	assert_null(ring_peek(&rx, &bytes));
	assert_true(push(10, 1));
	pop(10, 1);
	assert_null(ring_peek(&rx, &bytes));
}

static void small_record_takes_one_line(void **state)
{
	(void)state;
	assert_true(push(56, 1));
	assert_int_equal(tx.position, 1);
	assert_true(push(57, 2));
	assert_int_equal(tx.position, 3);
	pop(56, 1);
	pop(57, 2);
}

static void one_slot_is_kept_free(void **state)
{
	(void)state;
	for (unsigned char i = 0; i < SLOTS - 1; i++)
		assert_true(push(56, i));
	assert_false(push(1, 0));
	size_t bytes;
	for (unsigned char i = 0; i < SLOTS - 1; i++)
		pop(56, i);
	assert_null(ring_peek(&rx, &bytes));
	assert_true(push(1, 9));
	pop(1, 9);
}

/* From every position of an empty ring, after the consumer looked once more and said so. */
static void largest_record_fits_an_empty_ring(void **state)
{
	(void)state;
	for (uint32_t start = 0; start < 3 * SLOTS; start++) {
		size_t bytes;
		open_ring(state);
		for (uint32_t i = 0; i < start; i++) {
			assert_true(push(1, 7));
			pop(1, 7);
		}
		assert_null(ring_peek(&rx, &bytes));
		assert_true(push(ring_max_record(SLOTS), 0x5a));
		pop(ring_max_record(SLOTS), 0x5a);
		assert_false(rx.broken);
	}
}

/* Every byte of a record looks like a stamp that the consumer may come to wait for. */
static void old_bytes_are_never_taken_for_a_stamp(void **state)
{
	(void)state;
	size_t bytes;
	for (uint32_t round = 0; round < 2000; round++) {
		size_t length = 1 + (round * 37u) % ring_max_record(SLOTS);
		unsigned char *to = ring_reserve(&tx, length);
		assert_non_null(to);
		uint32_t stamp = RING_STAMP(tx.position / SLOTS + round % 2);
		for (size_t i = 0; i + 4 <= length; i += 4)
			memcpy(to + i, &stamp, 4);
		ring_publish(&tx);
		assert_non_null(ring_peek(&rx, &bytes));
		assert_int_equal(bytes, length);
		ring_release(&rx);
		assert_null(ring_peek(&rx, &bytes));
		assert_false(rx.broken);
	}
}

static void armed_is_taken_once(void **state)
{
	(void)state;
	assert_false(ring_take_armed(&tx));
	ring_arm(&rx);
	assert_true(ring_take_armed(&tx));
	assert_false(ring_take_armed(&tx));
	ring_arm(&rx);
	ring_disarm(&rx);
	assert_false(ring_take_armed(&tx));
}

static void head_is_told_by_the_quarter_and_when_idle(void **state)
{
	(void)state;
	struct ring_shared *shared = (struct ring_shared *)memory;
	size_t bytes;
	for (unsigned char i = 0; i < 5; i++)
		assert_true(push(1, i));
	for (unsigned char i = 0; i < 3; i++)
		pop(1, i);
	assert_int_equal(atomic_load(&shared->head), 0);
	pop(1, 3);
	assert_int_equal(atomic_load(&shared->head), 4);
	pop(1, 4);
	assert_int_equal(atomic_load(&shared->head), 4);
	assert_null(ring_peek(&rx, &bytes));
	assert_int_equal(atomic_load(&shared->head), 5);
}

/* What the producer writes at one slot, and whether the consumer at that slot must call it broken.
 */
static void nonsense_breaks_the_lane(void **state)
{
	static const struct {
		const char *what;
		uint32_t position, stamp, bytes;
		bool broken;
	} rows[] = {
	        {"nothing", 0, 0, 77, false},
	        {"stamp of the next lap", 0, RING_STAMP(1), 8, true},
	        {"even stamp", 0, 2, 8, true},
	        {"all ones", 0, UINT32_MAX, 8, true},
	        {"stamp of the last lap", SLOTS + 3, RING_STAMP(0), 8, false},
	        {"stamp of the lap before", 2 * SLOTS + 3, RING_STAMP(0), 8, true},
	        {"empty record", 0, RING_STAMP(0), 0, true},
	        {"one above the largest", 0, RING_STAMP(0), 8 * 64 - 8 + 1, true},
	        {"wraps when rounded up", 0, RING_STAMP(0), UINT32_MAX - 1, true},
	        {"high bit", 0, RING_STAMP(0), 1u << 31, true},
	        {"beyond the end", SLOTS - 1, RING_STAMP(0), 57, true},
	        {"beyond the end from the middle", SLOTS / 2 + 1, RING_STAMP(0), 8 * 64 - 8, true},
	        {"pad at slot 0", 0, RING_STAMP(0), RING_PAD, true},
	        {"pad of half a ring", SLOTS / 2, RING_STAMP(0), RING_PAD, true},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		size_t bytes = 12345;
		open_ring(state);
		for (uint32_t n = 0; n < rows[i].position; n++) {
			assert_true(push(1, 1));
			pop(1, 1);
		}
		struct ring_slot *at = slot(rows[i].position % SLOTS);
		atomic_store(&slot(0)->stamp,
		             0); /* what a believed pad would lead to is no nonsense */
		atomic_store(&at->bytes, rows[i].bytes);
		atomic_store(&at->stamp, rows[i].stamp);
		assert_null(ring_peek(&rx, &bytes));
		if (rx.broken != rows[i].broken)
			fail_msg("%s: broken is %d", rows[i].what, rx.broken);
		assert_int_equal(bytes, 12345);
		if (rx.broken) { /* and stays so */
			atomic_store(&at->bytes, 8);
			atomic_store(&at->stamp, RING_STAMP(rows[i].position / SLOTS));
			assert_null(ring_peek(&rx, &bytes));
		}
	}
}

static void garbage_never_leads_out_of_the_ring(void **state)
{
	const unsigned char *first = memory + sizeof(struct ring_shared);
	const unsigned char *end = memory + sizeof(memory);
	struct prng prng;
	prng_seed(&prng, 11);
	for (int round = 0; round < 20000; round++) {
		open_ring(state);
		for (int step = 0; step < 40 && !rx.broken; step++) {
			/* Mostly a stamp that will be believed, with any length; sometimes any
			 * bytes at all. */
			struct ring_slot *at = slot((uint32_t)rx.position % SLOTS);
			if (prng_chance(&prng, 20))
				prng_fill(&prng, memory, sizeof(memory));
			atomic_store(&at->stamp, prng_chance(&prng, 900)
			                                 ? RING_STAMP(rx.position / SLOTS)
			                                 : (uint32_t)prng_next(&prng));
			uint32_t length = (uint32_t)prng_below(&prng, 600);
			if (prng_chance(&prng, 100))
				length = RING_PAD;
			else if (prng_chance(&prng, 50))
				length = (uint32_t)prng_next(&prng);
			atomic_store(&at->bytes, length);
			size_t bytes = 0;
			const unsigned char *from = ring_peek(&rx, &bytes);
			if (from == NULL)
				continue;
			assert_in_range(bytes, 1, ring_max_record(SLOTS));
			assert_true(from >= first && bytes <= (size_t)(end - from));
			ring_release(&rx);
		}
	}
}

static void lying_head_makes_no_room(void **state)
{
	(void)state;
	struct ring_shared *shared = (struct ring_shared *)memory;
	while (push(56, 1))
		;
	static const uint64_t lies[] = {16, UINT64_MAX, UINT64_C(1) << 63, 1000};
	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		atomic_store(&shared->head, lies[i]);
		assert_null(ring_reserve(&tx, 1));
	}
	atomic_store(&shared->head, 3);
	assert_non_null(ring_reserve(&tx, 1));
}

/* After 2^32 laps the stamps come round. */
static void stamps_come_round(void **state)
{
	(void)state;
	tx.position = rx.position = tx.head_cache = rx.released = (UINT64_C(1) << 31) * SLOTS - 8;
	atomic_store(&((struct ring_shared *)memory)->head, tx.position);
	for (unsigned i = 0; i < 100; i++) {
		assert_true(push(1 + i, (unsigned char)i));
		pop(1 + i, (unsigned char)i);
	}
	tx.position = rx.position = tx.head_cache = rx.released = UINT64_MAX - SLOTS - 7;
	atomic_store(&((struct ring_shared *)memory)->head, tx.position);
	memset(memory + sizeof(struct ring_shared), 0, sizeof(memory) - sizeof(struct ring_shared));
	for (unsigned i = 0; i < 100; i++) {
		assert_true(push(1 + i, (unsigned char)i));
		pop(1 + i, (unsigned char)i);
	}
}

int main(void)
{
	const struct CMUnitTest all[] = {
	        cmocka_unit_test_setup(sizes_are_as_drawn, open_ring),
	        cmocka_unit_test_setup(reserved_is_not_visible_and_may_be_replaced, open_ring),
	        cmocka_unit_test_setup(small_record_takes_one_line, open_ring),
	        cmocka_unit_test_setup(one_slot_is_kept_free, open_ring),
	        cmocka_unit_test_setup(largest_record_fits_an_empty_ring, open_ring),
	        cmocka_unit_test_setup(old_bytes_are_never_taken_for_a_stamp, open_ring),
	        cmocka_unit_test_setup(armed_is_taken_once, open_ring),
	        cmocka_unit_test_setup(head_is_told_by_the_quarter_and_when_idle, open_ring),
	        cmocka_unit_test_setup(nonsense_breaks_the_lane, open_ring),
	        cmocka_unit_test_setup(garbage_never_leads_out_of_the_ring, open_ring),
	        cmocka_unit_test_setup(lying_head_makes_no_room, open_ring),
	        cmocka_unit_test_setup(stamps_come_round, open_ring),
	};
	return cmocka_run_group_tests(all, NULL, NULL);
}
