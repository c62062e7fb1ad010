/* The table of a unit's switch: whose address is whose, and its limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tap/macs.h"

static struct macs table;

static const uint8_t *mac_of(uint32_t number)
{
	static uint8_t mac[6];
	mac[0] = 2;
	mac[2] = (uint8_t)(number >> 24);
	mac[3] = (uint8_t)(number >> 16);
	mac[4] = (uint8_t)(number >> 8);
	mac[5] = (uint8_t)number;
	return mac;
}

static int fresh_table(void **state)
{
	(void)state;
	memset(&table, 0, sizeof(table));
	return 0;
}

static void pp6_no_host_takes_the_address_of_another(void **state)
{
	(void)state;
	assert_true(macs_claim(&table, mac_of(1), 1, 0));
	assert_true(macs_claim(&table, mac_of(1), 1, 0));
	assert_false(macs_claim(&table, mac_of(1), 2, 0));
	assert_int_equal(macs_find(&table, mac_of(1), 100000), 1); /* hosts are not forgotten */
	assert_false(macs_learn(&table, mac_of(1), 0));            /* nor may the LAN use it */
	assert_true(macs_learn(&table, mac_of(9), 0));
	assert_false(macs_claim(&table, mac_of(9), 2, 0)); /* a station of the LAN */
	macs_leave(&table, 1);
	assert_int_equal(macs_find(&table, mac_of(1), 0), MACS_NONE);
	assert_true(macs_claim(&table, mac_of(1), 2, 0));
	static const uint8_t group[6] = {1}, none[6];
	assert_false(macs_claim(&table, group, 3, 0));
	assert_false(macs_claim(&table, none, 3, 0));
}

/* A host that is refused another address has the one that it had. */
static void pp6_a_refused_change_changes_nothing(void **state)
{
	(void)state;
	static const uint8_t group[6] = {1}, none[6];
	assert_true(macs_replace(&table, none, mac_of(1), 1, 0));
	assert_true(macs_claim(&table, mac_of(2), 2, 0));
	assert_true(macs_learn(&table, mac_of(9), 0));
	uint8_t own[6];
	memcpy(own, mac_of(1), sizeof(own));
	assert_false(macs_replace(&table, own, mac_of(2), 1, 0));
	assert_false(macs_replace(&table, own, mac_of(9), 1, 0));
	assert_false(macs_replace(&table, own, group, 1, 0));
	assert_false(macs_replace(&table, own, none, 1, 0));
	assert_int_equal(macs_find(&table, own, 0), 1);
	assert_false(macs_claim(&table, own, 2, 0));
	/* All places that the new address could have belong to hosts. */
	uint32_t number = 100;
	while (macs_claim(&table, mac_of(number), 3, 0))
		number++;
	assert_false(macs_replace(&table, own, mac_of(number), 1, 0));
	assert_int_equal(macs_find(&table, own, 0), 1);
	macs_leave(&table, 3);
	assert_true(macs_replace(&table, own, own, 1, 0));
	assert_int_equal(macs_find(&table, own, 0), 1);
	assert_true(macs_replace(&table, own, mac_of(number), 1, 0));
	assert_int_equal(macs_find(&table, own, 0), MACS_NONE);
	assert_int_equal(macs_find(&table, mac_of(number), 0), 1);
}

/* A bridge is behind the host: it has several addresses, and gives back those that are silent. */
static void pp6_a_host_with_several_addresses(void **state)
{
	(void)state;
	uint8_t first[6], list[2][6];
	memcpy(first, mac_of(1), sizeof(first));
	for (uint32_t i = 1; i <= 3; i++)
		assert_true(macs_claim(&table, mac_of(i), 1, 0));
	assert_true(macs_claim(&table, mac_of(4), 2, 0));
	assert_true(macs_learn(&table, mac_of(5), 0));
	assert_int_equal(macs_list(&table, 1, list, 2), 3);
	assert_int_equal(macs_list(&table, 2, list, 2), 1);
	assert_memory_equal(list[0], mac_of(4), 6);
	assert_int_equal(macs_list(&table, 3, NULL, 0), 0);
	for (uint32_t i = 4; i <= 6; i++)
		assert_false(macs_use(&table, mac_of(i), 1, 0));
	assert_false(macs_retire(&table, 1, first, MACS_FORGET_S));
	assert_true(macs_use(&table, mac_of(2), 1, 10));
	assert_true(macs_retire(&table, 1, first, MACS_FORGET_S + 1));
	assert_int_equal(macs_find(&table, mac_of(3), 0), MACS_NONE);
	assert_false(macs_retire(&table, 1, first, MACS_FORGET_S + 1));
	assert_true(macs_retire(&table, 1, first, MACS_FORGET_S + 11));
	/* A host asks again before the unit can have retired the address. */
	assert_true(macs_use_recent(&table, first, 1, MACS_FORGET_S - 20));
	assert_false(macs_use_recent(&table, first, 2, MACS_FORGET_S - 19));
	assert_true(macs_use_recent(&table, first, 1, 2 * MACS_FORGET_S - 30));
	assert_false(macs_use_recent(&table, first, 1, 3 * MACS_FORGET_S - 39));
	assert_true(macs_use(&table, first, 1, 3 * MACS_FORGET_S - 39));
	assert_true(macs_use_recent(&table, first, 1, 3 * MACS_FORGET_S - 38));
	assert_false(macs_retire(&table, 1, first, 100 * MACS_FORGET_S)); /* its own stays */
	assert_int_equal(macs_find(&table, first, 0), 1);
	assert_int_equal(macs_find(&table, mac_of(4), 0), 2);
}

static void pp6_the_lan_is_forgotten(void **state)
{
	(void)state;
	assert_true(macs_learn(&table, mac_of(1), 10));
	assert_int_equal(macs_find(&table, mac_of(1), 10 + MACS_FORGET_S), MACS_LAN);
	assert_int_equal(macs_find(&table, mac_of(1), 11 + MACS_FORGET_S), MACS_NONE);
	assert_true(macs_claim(&table, mac_of(1), 4, 11 + MACS_FORGET_S));
	assert_int_equal(macs_find(&table, mac_of(1), 0), 4);
}

/* Many addresses of the LAN push each other out, but never a host. */
static void pp6_the_table_is_bounded(void **state)
{
	(void)state;
	for (uint32_t i = 1; i <= 64; i++)
		assert_true(macs_claim(&table, mac_of(i << 16), i, 0));
	for (uint32_t i = 0; i < 10 * MACS_MAX; i++)
		assert_true(macs_learn(&table, mac_of(i << 24 | i), i));
	assert_true(table.evicted > 0);
	for (uint32_t i = 1; i <= 64; i++)
		assert_int_equal(macs_find(&table, mac_of(i << 16), 0), i);
	/* Without anybody to push out, there is no room in the end. */
	fresh_table(NULL);
	uint32_t claimed = 0;
	while (claimed < 2 * MACS_MAX && macs_claim(&table, mac_of(claimed), 1 + claimed, 0))
		claimed++;
	assert_in_range(claimed, MACS_PROBES, MACS_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup(pp6_no_host_takes_the_address_of_another, fresh_table),
	        cmocka_unit_test_setup(pp6_a_refused_change_changes_nothing, fresh_table),
	        cmocka_unit_test_setup(pp6_a_host_with_several_addresses, fresh_table),
	        cmocka_unit_test_setup(pp6_the_lan_is_forgotten, fresh_table),
	        cmocka_unit_test_setup(pp6_the_table_is_bounded, fresh_table),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
