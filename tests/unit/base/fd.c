/* Descriptors of ours are out of the program's way, where there is room for that. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "base/fd.h"

static void test_aside(void **state)
{
	(void)state;
	int low = open("/dev/null", O_RDONLY), high = fd_aside(low);
	assert_true(low >= 0 && high >= FD_ASIDE);
	assert_int_equal(fcntl(low, F_GETFD), -1); /* its number is the program's again */
	assert_int_equal(fcntl(high, F_GETFD), FD_CLOEXEC);
	assert_int_equal(fd_aside(high), high); /* where it is already */
	close(high);
	assert_int_equal(fd_aside(-1), -1);
}

/* A program that was started without a standard input finds 0 free when it opens its first file. */
static void test_aside_of_zero(void **state)
{
	(void)state;
	int input = dup(0);
	close(0);
	assert_int_equal(open("/dev/null", O_RDONLY), 0);
	int high = fd_aside(0);
	assert_true(high >= FD_ASIDE);
	assert_int_equal(fcntl(0, F_GETFD), -1);
	close(high);
	if (input >= 0) {
		dup2(input, 0);
		close(input);
	}
}

static void test_no_room(void **state)
{
	(void)state;
	struct rlimit before, few;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	few = before;
	few.rlim_cur = 64;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	int fd = open("/dev/null", O_RDONLY);
	assert_true(fd >= 0);
	assert_int_equal(fd_aside(fd), fd);
	assert_true(fcntl(fd, F_GETFD) >= 0);
	close(fd);
	setrlimit(RLIMIT_NOFILE, &before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_aside),
	        cmocka_unit_test(test_aside_of_zero),
	        cmocka_unit_test(test_no_room),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
