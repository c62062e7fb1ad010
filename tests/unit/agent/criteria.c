/* HEDDLE_CRITERIA: which events get a message on the agent's queue, and which wake it (AP7;
 * claims 2, 3 and 9 of APERTURE). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/agent.h"
#include "port/oob.h"

static void claim_9_words_and_bits(void **state)
{
	(void)state;
	static const struct {
		const char *words;
		bool good;
		uint32_t criteria, wakes;
	} rows[] = {
	        {"", true, 0, 0},
	        {"blocked", true, OOB_BLOCKED, 0},
	        {"blocked,!errors", true, OOB_BLOCKED | OOB_ERRORS, OOB_ERRORS},
	        {"!connect,data", true, 1u << 1 | 1u << 9, 1u << 1},
	        {"!all", true, OOB_ALL, OOB_ALL},
	        {"failures,", true, OOB_FAILURES, 0},
	        {"!nobody", true, OOB_NOBODY, OOB_NOBODY},
	        {"nonsense", false, 0, 0},
	        {"block", false, 0, 0},
	        {"blocked,,errors", false, 0, 0},
	        {"!", false, 0, 0},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint32_t criteria, wakes;
		assert_int_equal(oob_criteria(rows[i].words, &criteria, &wakes), rows[i].good);
		if (rows[i].good) {
			assert_int_equal(criteria, rows[i].criteria);
			assert_int_equal(wakes, rows[i].wakes);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(claim_9_words_and_bits)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
