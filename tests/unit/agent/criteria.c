/* Criteria as words: which events get a message on the agent's queue, and which wake it (AP7;
 * claims 2, 3 and 9 of APERTURE). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "port/oob.h"

static void claim_9_words_and_bits(void **state)
{
	(void)state;
	static const struct {
		const char *words, *bad;
		uint32_t criteria, wakes;
	} rows[] = {
	        {"", NULL, 0, 0},
	        {"blocked", NULL, OOB_BLOCKED, 0},
	        {"blocked,!errors", NULL, OOB_BLOCKED | OOB_ERRORS, OOB_ERRORS},
	        {"!connect,data", NULL, 1u << 1 | 1u << 9, 1u << 1},
	        {"!all", NULL, OOB_ALL, OOB_ALL},
	        {"failures,", NULL, OOB_FAILURES, 0},
	        {"none", NULL, 0, 0},
	        {"all,!errors,!var", NULL, OOB_ALL, OOB_ERRORS | 1u << 10},
	        {"!nobody", NULL, OOB_NOBODY, OOB_NOBODY},
	        {"nonsense", "nonsense", 0, 0},
	        {"block", "block", 0, 0},
	        {"blocked,!bloked,errors", "bloked", 0, 0},
	        {"blocked,,errors", "", 0, 0},
	        {"!", "", 0, 0},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct oob_criteria read, again;
		char text[OOB_TEXT];
		const char *bad = oob_parse(rows[i].words, &read);
		if (rows[i].bad != NULL) {
			assert_non_null(bad);
			assert_int_equal(strcspn(bad, ","), strlen(rows[i].bad));
			assert_memory_equal(bad, rows[i].bad, strlen(rows[i].bad));
			continue;
		}
		assert_null(bad);
		assert_int_equal(read.events, rows[i].criteria);
		assert_int_equal(read.wakes, rows[i].wakes);
		assert_true(oob_is_possible(&read));
		/* What is printed means the same. */
		oob_print(&read, text);
		assert_null(oob_parse(text, &again));
		assert_int_equal(again.events, read.events);
		assert_int_equal(again.wakes, read.wakes);
	}
}

static void claim_9_every_word_has_room(void **state)
{
	(void)state;
	char text[OOB_TEXT];
	struct oob_criteria every = {0}, read;
	for (size_t i = 0; i < OOB_WORDS; i++)
		every.events = every.wakes |= oob_words[i].bits;
	oob_print(&every, text);
	assert_null(oob_parse(text, &read));
	assert_int_equal(read.events, every.events);
	assert_int_equal(read.wakes, every.wakes);
	oob_list(text);
	assert_non_null(strstr(text, "blocked, errors, "));
	assert_string_equal(text + strlen(text) - 14, "var, all, none");
	every = (struct oob_criteria){.events = OOB_ERRORS, .wakes = OOB_BLOCKED};
	assert_false(oob_is_possible(&every));
	every = (struct oob_criteria){.events = OOB_ALL + 1u};
	assert_false(oob_is_possible(&every));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(claim_9_words_and_bits),
	                                   cmocka_unit_test(claim_9_every_word_has_room)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
