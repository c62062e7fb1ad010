/* Where the directory of a user's agent is: what the environment says, and else the first default
 * place that no other user has taken. Each part runs in a process of its own, because it changes
 * the environment, and the default places are empty directories that only that process sees. */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "port/rundir.h"

#define STRANGER 65534
#define SKIPPED  77

static char dir[64]; /* of this test, for what the environment names */

/* Like assert_true(), for a process that is not cmocka's. */
#define MUST(condition)                                                         \
	do {                                                                    \
		if (!(condition)) {                                             \
			fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
			_exit(1);                                               \
		}                                                               \
	} while (0)

static void apart(void (*part)(void))
{
	int status;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		unsetenv("HEDDLE_DIR");
		unsetenv("XDG_RUNTIME_DIR");
		part();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
		skip();
	assert_int_equal(status, 0);
}

static void write_text(const char *path, const char *text)
{
	FILE *file = fopen(path, "we");
	MUST(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

/* Give this process empty default places; @as_other: and another number for its user. */
static void own_places(bool as_other)
{
	static const char *const places[] = {"/tmp", "/dev/shm", "/var/tmp", "/run"};
	char map[32];
	unsigned uid = geteuid(), gid = getegid();
	if (uid != 0 || as_other) {
		if (unshare(CLONE_NEWUSER) != 0)
			_exit(SKIPPED);
		snprintf(map, sizeof(map), "%u %u 1", as_other ? uid + 7 : uid, uid);
		write_text("/proc/self/uid_map", map);
		snprintf(map, sizeof(map), "%u %u 1", gid, gid);
		write_text("/proc/self/setgroups", "deny");
		write_text("/proc/self/gid_map", map);
	}
	if (unshare(CLONE_NEWNS) != 0)
		_exit(SKIPPED);
	MUST(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		MUST(mount("tmpfs", places[i], "tmpfs", 0, "mode=1777") == 0);
}

static const char *default_place(const char *before)
{
	static char path[RUNDIR_MAX];
	snprintf(path, sizeof(path), "%s/heddle-%u", before, (unsigned)geteuid());
	return path;
}

static void environment(void)
{
	char path[RUNDIR_MAX], want[RUNDIR_MAX], passed[RUNDIR_MAX] = "x";
	struct stat st;
	snprintf(want, sizeof(want), "%s/given", dir);
	setenv("HEDDLE_DIR", want, 1);
	setenv("XDG_RUNTIME_DIR", dir, 1);
	for (int again = 0; again < 2; again++) { /* made, then found */
		MUST(rundir_open(path, passed) == 0);
		MUST(strcmp(path, want) == 0 && passed[0] == '\0');
	}
	MUST(stat(path, &st) == 0 && (st.st_mode & 07777) == 0700);
	MUST(chmod(path, 0750) == 0 && rundir_open(path, NULL) == -EPERM);
	setenv("HEDDLE_DIR", "given", 1);
	MUST(rundir_open(path, NULL) == -EINVAL);
	char longest[2 * RUNDIR_MAX] = "/";
	memset(longest + 1, 'x', RUNDIR_MAX - 1); /* and no room for the end */
	setenv("HEDDLE_DIR", longest, 1);
	MUST(rundir_open(path, NULL) == -ENAMETOOLONG);
	/* Why it could not be made, not merely that it is not there. */
	setenv("HEDDLE_DIR", "/proc/self/status/heddle", 1);
	MUST(rundir_open(path, NULL) == -ENOTDIR);
	snprintf(want, sizeof(want), "%s/file", dir);
	write_text(want, "");
	setenv("HEDDLE_DIR", want, 1);
	MUST(rundir_open(path, NULL) == -ENOTDIR);
	setenv("HEDDLE_DIR", "/sys/heddle", 1);
	int refused = rundir_open(path, NULL);
	MUST(refused < 0 && refused != -ENOENT);
	setenv("HEDDLE_DIR", "", 1); /* like none */
	snprintf(want, sizeof(want), "%s/heddle", dir);
	MUST(rundir_open(path, NULL) == 0 && strcmp(path, want) == 0);
}

/* XDG_RUNTIME_DIR counts only where it is an absolute path that can be written to. */
static void unusable_runtime(void)
{
	char path[RUNDIR_MAX];
	own_places(false);
	int before = dup(0); /* the lowest number that is free */
	close(before);
	setenv("XDG_RUNTIME_DIR", "/proc/none", 1);
	MUST(rundir_open(path, NULL) == 0 && strcmp(path, default_place("/tmp")) == 0);
	MUST(chdir("/tmp") == 0);
	setenv("XDG_RUNTIME_DIR", ".", 1);
	MUST(rundir_open(path, NULL) == 0 && strcmp(path, default_place("/tmp")) == 0);
	int after = dup(0);
	MUST(after == before);
	close(after);
}

/* A directory that is there is used before a better place is made into one. */
static void first_of_ours(void)
{
	char path[RUNDIR_MAX], passed[RUNDIR_MAX];
	own_places(false);
	MUST(mkdir(default_place("/var/tmp"), 0700) == 0);
	MUST(rundir_open(path, passed) == 0);
	MUST(strcmp(path, default_place("/var/tmp")) == 0 && passed[0] == '\0');
	/* One that the user must repair counts as well. */
	MUST(mkdir(default_place("/dev/shm"), 0755) == 0);
	MUST(rundir_open(path, passed) == -EPERM);
	MUST(strcmp(path, default_place("/dev/shm")) == 0 && passed[0] == '\0');
}

/* Places that another user has taken are skipped, and the first is named. */
static void taken(void)
{
	char path[RUNDIR_MAX], passed[RUNDIR_MAX];
	if (geteuid() != 0)
		_exit(SKIPPED); /* nobody else can make a directory that belongs to a stranger */
	own_places(false);
	MUST(mkdir("/tmp/heddle-0", 0700) == 0 && chown("/tmp/heddle-0", STRANGER, 0) == 0);
	MUST(rundir_open(path, passed) == 0);
	MUST(strcmp(path, "/dev/shm/heddle-0") == 0 && strcmp(passed, "/tmp/heddle-0") == 0);
	MUST(rmdir(path) == 0 && mkdir(path, 0700) == 0 && chown(path, STRANGER, 0) == 0);
	MUST(rundir_open(path, passed) == 0);
	MUST(strcmp(path, "/var/tmp/heddle-0") == 0 && strcmp(passed, "/tmp/heddle-0") == 0);
	MUST(rmdir(path) == 0 && mkdir(path, 0700) == 0 && chown(path, STRANGER, 0) == 0);
	MUST(mkdir("/run/user", 0755) == 0 && mkdir("/run/user/0", 0700) == 0);
	MUST(rundir_open(path, NULL) == 0 && strcmp(path, "/run/user/0/heddle") == 0);
	/* Nothing left: the report is about the place that comes first. */
	MUST(rmdir(path) == 0 && rmdir("/run/user/0") == 0);
	MUST(rundir_open(path, passed) == -EACCES && strcmp(path, "/tmp/heddle-0") == 0);
}

/* In a user namespace the directory is named after both numbers. */
static void other_number(void)
{
	char path[RUNDIR_MAX], want[RUNDIR_MAX];
	unsigned uid = geteuid();
	own_places(true);
	MUST(geteuid() == uid + 7);
	snprintf(want, sizeof(want), "/tmp/heddle-%u-%u", uid, uid + 7);
	MUST(rundir_open(path, NULL) == 0 && strcmp(path, want) == 0);
}

static void test_environment(void **state)
{
	(void)state;
	apart(environment);
}

static void test_unusable_runtime(void **state)
{
	(void)state;
	apart(unusable_runtime);
}

static void test_first_of_ours(void **state)
{
	(void)state;
	apart(first_of_ours);
}

static void test_taken(void **state)
{
	(void)state;
	apart(taken);
}

static void test_other_number(void **state)
{
	(void)state;
	apart(other_number);
}

static int begin(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/heddle-rundir-XXXXXX");
	return mkdtemp(dir) != NULL ? 0 : -1;
}

static int end(void **state)
{
	static const char *const names[] = {"given", "heddle", "file"};
	char path[RUNDIR_MAX];
	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		(void)remove(path);
	}
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_environment),   cmocka_unit_test(test_unusable_runtime),
	        cmocka_unit_test(test_first_of_ours), cmocka_unit_test(test_taken),
	        cmocka_unit_test(test_other_number),
	};
	return cmocka_run_group_tests(tests, begin, end);
}
