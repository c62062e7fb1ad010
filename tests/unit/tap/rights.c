/* What the user of a unit says about addresses, and how often a host may change its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tap/rights.h"

static const uint8_t one[6] = {2, 0, 0, 0, 0, 1}, two[6] = {2, 0, 0, 0, 0, 2},
                     free_one[6] = {2, 0, 0, 0, 0, 3};

static void pp6_rules_about_addresses(void **state)
{
	(void)state;
	static struct rights rights;
	memset(&rights, 0, sizeof(rights));
	assert_true(rights_allow(&rights, "a", one));
	assert_true(rights_add(&rights, "a", one));
	assert_true(rights_add(&rights, "", two));
	static const struct {
		const char *name;
		const uint8_t *mac;
		bool allowed;
	} cases[] = {{"a", one, true},       {"a", two, false}, {"a", free_one, false},
	             {"b", one, false},      {"b", two, false}, {"b", free_one, true},
	             {"", free_one, true},   {"", two, false},  {"", one, false},
	             {"aa", free_one, true}, {"aa", one, false}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(rights_allow(&rights, cases[i].name, cases[i].mac),
		                 cases[i].allowed);
	assert_true(rights_add(&rights, "a", free_one));
	assert_true(rights_allow(&rights, "a", one) && rights_allow(&rights, "a", free_one));
	assert_false(rights_add(&rights, "a name of more than 31 characters", one));
	while (rights.count < RIGHTS_MAX_RULES)
		assert_true(rights_add(&rights, "a", one));
	assert_false(rights_add(&rights, "a", one));
}

static void pp6_changes_have_a_limit(void **state)
{
	(void)state;
	struct rights_changes changes = {0};
	uint64_t now = 1000 * RIGHTS_CHANGE_NS;
	for (unsigned round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < RIGHTS_MAX_CHANGES; i++) {
			assert_true(rights_may_change(&changes, now));
			rights_changed(&changes, now);
		}
		assert_false(rights_may_change(&changes, now));
		now += RIGHTS_CHANGE_NS - 1;
		assert_false(rights_may_change(&changes, now));
		now++;
		assert_true(rights_may_change(&changes, now));
		rights_changed(&changes, now);
		assert_false(rights_may_change(&changes, now));
		now += RIGHTS_MAX_CHANGES * RIGHTS_CHANGE_NS;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(pp6_rules_about_addresses),
	        cmocka_unit_test(pp6_changes_have_a_limit),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
