/* Bells: whoever rings one does not wait, whatever the others who have it do to it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "port/bell.h"

#define LIMIT_S 10 /* then something waits, and the alarm ends the test */

static bool rings(int in)
{
	struct pollfd look = {.fd = in, .events = POLLIN};
	return poll(&look, 1, 0) == 1;
}

static void hear_all(int in)
{
	for (int i = 0; i < 1000 && rings(in); i++)
		bell_hear(in);
	assert_false(rings(in));
}

static void test_it_rings_and_is_heard(void **state)
{
	(void)state;
	int ends[2];
	assert_true(bell_make(ends));
	int out = bell_take(bell_lend(ends[1]));
	assert_true(out >= 0);
	assert_false(rings(ends[0]));
	bell_ring(out);
	assert_true(rings(ends[0]));
	bell_hear(ends[0]);
	assert_false(rings(ends[0]));
	bell_ring(ends[1]);
	bell_ring(ends[1]);
	bell_hear(ends[0]);
	bell_hear(ends[0]); /* nothing to hear: it does not wait for it */
	assert_false(rings(ends[0]));
	close(ends[0]);
	close(ends[1]);
	close(out);
}

/* A process that has it fills it, and lets everybody who shares its open file wait for room. */
static void test_flags_of_others_keep_nobody(void **state)
{
	(void)state;
	int ends[2];
	char full[65536] = "";
	assert_true(bell_make(ends));
	int lent = bell_lend(ends[1]), out = bell_take(dup(lent));
	assert_true(lent >= 0 && out >= 0);
	while (write(lent, full, sizeof(full)) > 0)
		;
	assert_int_equal(fcntl(lent, F_SETFL, 0), 0);
	alarm(LIMIT_S);
	for (int i = 0; i < 100; i++) {
		bell_ring(out);
		bell_ring(ends[1]);
	}
	assert_true(rings(ends[0]));
	hear_all(ends[0]);
	bell_hear(ends[0]);
	alarm(0);
	bell_ring(out);
	assert_true(rings(ends[0]));
	close(ends[0]);
	close(ends[1]);
	close(lent);
	close(out);
}

/* No SIGPIPE: the program may not expect one. */
static void test_nobody_hears_it_any_more(void **state)
{
	(void)state;
	int ends[2];
	assert_true(bell_make(ends));
	int out = bell_take(bell_lend(ends[1]));
	close(ends[0]);
	close(ends[1]);
	bell_ring(out);
	close(out);
}

static void test_what_is_no_bell(void **state)
{
	(void)state;
	int ends[2], pair[2];
	char path[] = "/tmp/heddle-bell-XXXXXX";
	assert_int_equal(bell_take(-1), -1);
	assert_int_equal(bell_take(eventfd(0, EFD_NONBLOCK)), -1);
	assert_int_equal(bell_take(open("/dev/null", O_WRONLY)), -1);
	assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), 0);
	assert_int_equal(bell_take(pair[0]), -1);
	assert_int_equal(close(pair[0]), -1); /* it was taken over */
	close(pair[1]);
	assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
	assert_int_equal(bell_take(ends[0]), -1); /* the end that is heard */
	close(ends[1]);
	/* One with a name is of a file system that may not answer. */
	close(mkstemp(path));
	unlink(path);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(bell_take(open(path, O_RDWR | O_NONBLOCK)), -1);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest list[] = {
	        cmocka_unit_test(test_it_rings_and_is_heard),
	        cmocka_unit_test(test_flags_of_others_keep_nobody),
	        cmocka_unit_test(test_nobody_hears_it_any_more),
	        cmocka_unit_test(test_what_is_no_bell),
	};
	return cmocka_run_group_tests(list, NULL, NULL);
}
