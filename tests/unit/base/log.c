/* The log: which lines come out at which level, and that a line is one line. Each case runs in a
 * child of its own, since the level is read once in a process; its stderr is a packet socket, so
 * one read is one write. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"

static void all_levels(void)
{
	log_error("e %d", 1);
	log_warn("w %d", 2);
	log_info("i %d", 3);
	log_debug("d %d", 4);
}

static void hostile_text(void)
{
	log_error("%s", "a\nheddle: forged\x1b[2J\x7f\tz");
}

static void long_text(void)
{
	char text[3 * LOG_LINE_BYTES];
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	log_error("%s", text);
}

static void keeps_errno(void)
{
	close(STDERR_FILENO);
	errno = ENOSPC;
	log_error("nobody reads this");
	if (errno != ENOSPC)
		abort();
}

/* What @body writes to stderr with HEDDLE_LOG=@level: writes joined by '|', or "killed". */
static void run(const char *level, void (*body)(void), char *out, size_t room)
{
	int pair[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		dup2(pair[1], STDERR_FILENO);
		close(pair[0]);
		close(pair[1]);
		if (level != NULL)
			setenv("HEDDLE_LOG", level, 1);
		else
			unsetenv("HEDDLE_LOG");
		body();
		_exit(0);
	}
	close(pair[1]);
	size_t used = 0;
	ssize_t got;
	while ((got = recv(pair[0], out + used, room - used - 2, 0)) > 0) {
		used += (size_t)got;
		out[used++] = '|';
	}
	out[used] = 0;
	close(pair[0]);
	int status = 0;
	assert_int_equal(waitpid(child, &status, 0), child);
	if (status != 0)
		snprintf(out, room, "killed");
}

static void level_chooses_the_lines(void **state)
{
	(void)state;
	static const struct {
		const char *level, *lines;
	} rows[] = {
	        {"error", "heddle: e 1\n|"},
	        {"warn", "heddle: e 1\n|heddle: w 2\n|"},
	        {NULL, "heddle: e 1\n|heddle: w 2\n|"},
	        {"", "heddle: e 1\n|heddle: w 2\n|"},
	        {"nonsense", "heddle: HEDDLE_LOG: 'nonsense' means nothing; it can be 'error', "
	                     "'warn', 'info' or "
	                     "'debug', and is taken for 'warn'\n|heddle: e 1\n|heddle: w 2\n|"},
	        {"info", "heddle: e 1\n|heddle: w 2\n|heddle: i 3\n|"},
	        {"debug", "heddle: e 1\n|heddle: w 2\n|heddle: i 3\n|heddle: d 4\n|"},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char out[8192];
		run(rows[i].level, all_levels, out, sizeof(out));
		assert_string_equal(out, rows[i].lines);
	}
}

static void peer_text_cannot_forge_a_line(void **state)
{
	(void)state;
	char out[8192];
	run("error", hostile_text, out, sizeof(out));
	assert_string_equal(out, "heddle: a?heddle: forged?[2J??z\n|");
}

static void long_line_is_cut_and_ended(void **state)
{
	(void)state;
	char out[8192];
	run("error", long_text, out, sizeof(out));
	assert_int_equal(strlen(out), LOG_LINE_BYTES + 1);
	assert_string_equal(out + LOG_LINE_BYTES - 2, "x\n|");
}

static void errno_is_kept(void **state)
{
	(void)state;
	char out[8192];
	run("error", keeps_errno, out, sizeof(out));
	assert_string_equal(out, "");
}

int main(void)
{
	const struct CMUnitTest all[] = {
	        cmocka_unit_test(level_chooses_the_lines),
	        cmocka_unit_test(peer_text_cannot_forge_a_line),
	        cmocka_unit_test(long_line_is_cut_and_ended),
	        cmocka_unit_test(errno_is_kept),
	};
	return cmocka_run_group_tests(all, NULL, NULL);
}
