/* Multicast groups as the engine keeps them: which addresses are groups, who is in one, and how
 * many fit. */
#include "transport/multicast.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static const struct hdl_gid some = {{0xff, 0x12, [15] = 1}};

static int setup(void **state)
{
	struct engine *engine = calloc(1, sizeof(*engine));
	engine->groups = calloc(HDL_MAX_GROUPS, sizeof(*engine->groups));
	*state = engine;
	return 0;
}

static int teardown(void **state)
{
	struct engine *engine = *state;
	free(engine->groups);
	free(engine);
	return 0;
}

static void which_addresses_are_groups(void **state)
{
	static const struct {
		struct hdl_gid gid;
		bool is;
	} rows[] = {
	        {{{0xff, 0x12, [15] = 1}}, true},
	        {{{0xff}}, true},
	        {{{0xfe, 0x80, [15] = 1}}, false},
	        {{{[10] = 0xff, [11] = 0xff, 224, 0, 0, 0}}, true},
	        {{{[10] = 0xff, [11] = 0xff, 239, 255, 255, 255}}, true},
	        {{{[10] = 0xff, [11] = 0xff, 223, 255, 255, 255}}, false},
	        {{{[10] = 0xff, [11] = 0xff, 240, 0, 0, 0}}, false},
	        {{{[9] = 1, [10] = 0xff, [11] = 0xff, 224, 0, 0, 1}}, false},
	        {{{[12] = 224, [15] = 1}}, false},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(multicast_is(&rows[i].gid), rows[i].is);
}

/* A place that is given to another group is known as another: requests for the former one must not
 * reach the new. */
static void places_are_used_again(void **state)
{
	struct engine *engine = *state;
	struct hdl_gid gid = some;
	struct group *first = multicast_open(engine, &gid), *again = multicast_open(engine, &gid);
	assert_ptr_equal(first, again);
	uint32_t epoch = first->epoch;
	assert_true(multicast_link(first, 3, true));
	multicast_close(first);
	assert_ptr_equal(multicast_find(engine, gid.raw), first);
	multicast_close(first);
	assert_null(multicast_find(engine, gid.raw));
	gid.raw[15] = 2;
	again = multicast_open(engine, &gid);
	assert_ptr_equal(first, again);
	assert_int_not_equal(again->epoch, epoch);
	assert_int_equal(again->link_count, 0);
}

static void how_many_fit(void **state)
{
	struct engine *engine = *state;
	struct group *group = multicast_open(engine, &some);
	static struct qp qps[HDL_MAX_GROUP_MEMBERS + 1];
	for (uint32_t i = 0; i < HDL_MAX_GROUP_PEERS; i++) {
		assert_true(multicast_link(group, i, true));
		assert_true(multicast_link(group, i, true)); /* once is enough */
	}
	assert_int_equal(group->link_count, HDL_MAX_GROUP_PEERS);
	assert_false(multicast_link(group, HDL_MAX_GROUP_PEERS, true));
	assert_true(multicast_link(group, HDL_MAX_GROUP_PEERS, false)); /* which it was not */
	multicast_link_down(engine, 7);
	assert_int_equal(group->link_count, HDL_MAX_GROUP_PEERS - 1);
	assert_true(multicast_link(group, HDL_MAX_GROUP_PEERS, true));
	for (uint32_t i = 0; i <= HDL_MAX_GROUP_MEMBERS; i++)
		assert_int_equal(multicast_attach(group, &qps[i]), i < HDL_MAX_GROUP_MEMBERS);
	assert_true(multicast_has(group, &qps[0]));
	assert_true(multicast_detach(group, &qps[0]));
	assert_false(multicast_has(group, &qps[0]));
	assert_false(multicast_detach(group, &qps[0]));
	assert_true(multicast_attach(group, &qps[HDL_MAX_GROUP_MEMBERS]));
	struct hdl_gid gid = some;
	for (uint32_t i = 1; i <= HDL_MAX_GROUPS; i++) {
		gid.raw[14] = (uint8_t)i;
		assert_int_equal(multicast_open(engine, &gid) != NULL, i < HDL_MAX_GROUPS);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(which_addresses_are_groups),
	        cmocka_unit_test_setup_teardown(places_are_used_again, setup, teardown),
	        cmocka_unit_test_setup_teardown(how_many_fit, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
