/* The slab: lowest index first, bounded, no object handed out twice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/slab.h"

static void lowest_first_then_last_given(void **state)
{
	(void)state;
	uint64_t objects[4];
	uint32_t free_list[4];
	struct slab slab;
	slab_init(&slab, objects, sizeof(objects[0]), free_list, 4);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(slab_take(&slab), i);
	assert_int_equal(slab_take(&slab), SLAB_NONE);
	slab_give(&slab, 2);
	slab_give(&slab, 1);
	assert_int_equal(slab_take(&slab), 1);
	assert_int_equal(slab_take(&slab), 2);
	assert_int_equal(slab_take(&slab), SLAB_NONE);
}

static void objects_lie_side_by_side_and_keep_their_bytes(void **state)
{
	(void)state;
	unsigned char objects[3 * 24];
	uint32_t free_list[3];
	struct slab slab;
	slab_init(&slab, objects, 24, free_list, 3);
	for (uint32_t i = 0; i < 3; i++) {
		assert_ptr_equal(slab_at(&slab, i), objects + 24 * i);
		*(unsigned char *)slab_at(&slab, i) = (unsigned char)(i + 1);
	}
	uint32_t index = slab_take(&slab);
	slab_give(&slab, index);
	assert_int_equal(*(unsigned char *)slab_at(&slab, slab_take(&slab)), 1);
}

static void capacity_zero_is_always_empty(void **state)
{
	(void)state;
	struct slab slab;
	slab_init(&slab, NULL, 8, NULL, 0);
	assert_int_equal(slab_take(&slab), SLAB_NONE);
}

int main(void)
{
	const struct CMUnitTest all[] = {
	        cmocka_unit_test(lowest_first_then_last_given),
	        cmocka_unit_test(objects_lie_side_by_side_and_keep_their_bytes),
	        cmocka_unit_test(capacity_zero_is_always_empty),
	};
	return cmocka_run_group_tests(all, NULL, NULL);
}
