/* Where the parts of an installation are looked for: beside the file that asks comes first, and
 * what is not there, not accessible or too long for the caller is not found. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/installed.h"

#define FILE_NAME "part-of-nothing"

static char folder[64], asking[96], part[96];

static int setup(void **state)
{
	(void)state;
	strcpy(folder, "/tmp/heddle-installed-XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(asking, sizeof(asking), "%s/asking", folder);
	snprintf(part, sizeof(part), "%s/./%s", folder, FILE_NAME);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(part);
	return rmdir(folder);
}

static void make(mode_t mode)
{
	int fd = open(part, O_WRONLY | O_CREAT | O_EXCL, mode);
	assert_true(fd >= 0);
	close(fd);
}

static void beside_the_file_that_asks(void **state)
{
	(void)state;
	char out[256];
	assert_false(installed_find(INSTALLED_AGENT, asking, FILE_NAME, R_OK, out, sizeof(out)));
	assert_false(installed_find(INSTALLED_COMPAT, asking, FILE_NAME, R_OK, out, sizeof(out)));
	make(0600);
	assert_true(installed_find(INSTALLED_AGENT, asking, FILE_NAME, R_OK, out, sizeof(out)));
	assert_string_equal(out, part);
	assert_true(installed_find_directory(INSTALLED_COMPAT, asking, FILE_NAME, R_OK, out,
	                                     sizeof(out)));
	assert_int_equal(strncmp(out, folder, strlen(folder)), 0);
	assert_null(strstr(out, FILE_NAME));
	/* It is no program. */
	assert_false(installed_find(INSTALLED_AGENT, asking, FILE_NAME, X_OK, out, sizeof(out)));
	/* Who asks is not known. */
	assert_false(installed_find(INSTALLED_AGENT, NULL, FILE_NAME, R_OK, out, sizeof(out)));
}

/* The whole path has to fit, not only the folder. */
static void room_for_the_whole_path(void **state)
{
	(void)state;
	char out[256];
	size_t bytes = strlen(part) + 1;
	make(0600);
	assert_true(installed_find(INSTALLED_AGENT, asking, FILE_NAME, R_OK, out, bytes));
	assert_string_equal(out, part);
	for (size_t less = 0; less < bytes; less++)
		assert_false(installed_find(INSTALLED_AGENT, asking, FILE_NAME, R_OK, out, less));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(beside_the_file_that_asks, setup, teardown),
	        cmocka_unit_test_setup_teardown(room_for_the_whole_path, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
