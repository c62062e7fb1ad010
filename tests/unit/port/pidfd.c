/* Processes by descriptor: their number here, and their end. Numbers of other namespaces:
 * tests/interop/container. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "port/pidfd.h"

static void test_a_process_lives_and_ends(void **state)
{
	(void)state;
	int pair[2];
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		pause();
		_exit(0);
	}
	/* No kernel knows more of a pair than that we made it; a child is found by its number. */
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	int own = pidfd_of_peer(pair[0], getpid()), fd = pidfd_of_peer(-1, child);
	if (own < 0 || fd < 0) {
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		skip(); /* before Linux 5.3, or a filter forbids it */
	}
	assert_int_equal(pidfd_number(own), getpid());
	assert_int_equal(pidfd_number(fd), child);
	assert_false(pidfd_ended(own));
	assert_false(pidfd_ended(fd));
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_true(pidfd_ended(fd));
	assert_int_equal(pidfd_number(fd), 0); /* the number may be another's by now */
	close(own);
	close(fd);
	close(pair[0]);
	close(pair[1]);
}

static void test_no_process(void **state)
{
	(void)state;
	assert_int_equal(pidfd_of_peer(-1, 0), -1);
	assert_int_equal(pidfd_number(STDIN_FILENO), 0);
}

int main(void)
{
	const struct CMUnitTest list[] = {
	        cmocka_unit_test(test_a_process_lives_and_ends),
	        cmocka_unit_test(test_no_process),
	};
	return cmocka_run_group_tests(list, NULL, NULL);
}
