/* Calls of a module reach what they are redirected to, however its compiler makes them; those of
 * our own module, and of what is not listed, stay as they are. The argument is the module. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/imports.h"

#define OURS 123456789

static const char *path;

static pid_t our_id(void)
{
	return OURS;
}

static void calls_are_redirected(void **state)
{
	(void)state;
	const struct import list[] = {{"getpgrp", (void (*)(void))our_id},
	                              {"getppid", (void (*)(void))our_id}};
	struct imports imports = {.list = list, .count = 2};
	void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	assert_non_null(module);
	pid_t (*by_table)(void) = (pid_t(*)(void))dlsym(module, "by_table");
	pid_t (*by_pointer)(void) = (pid_t(*)(void))dlsym(module, "by_pointer");
	gid_t (*another)(void) = (gid_t(*)(void))dlsym(module, "another");
	assert_int_equal(by_table(), getppid());
	assert_int_equal(by_pointer(), getpgrp());
	imports_patch(&imports);
	assert_int_equal(by_table(), OURS);
	assert_int_equal(by_pointer(), OURS);
	assert_int_equal(another(), getegid());
	assert_int_not_equal(getppid(), OURS);
	assert_int_not_equal(getpgrp(), OURS);
	/* Nothing has been loaded since: it need not look again. */
	const struct import back[] = {{"getppid", (void (*)(void))getppid}};
	imports.list = back;
	imports.count = 1;
	imports_patch(&imports);
	assert_int_equal(by_table(), OURS);
	imports.loaded = 0;
	imports_patch(&imports);
	assert_int_equal(by_table(), getppid());
	assert_int_equal(by_pointer(), OURS);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(calls_are_redirected),
	};
	if (argc < 2)
		return 77;
	path = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
