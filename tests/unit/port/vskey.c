/* The key file of the virtual switches: what is a key, whose file counts, and who removes it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "port/vskey.h"

static const uint8_t example[AGENT_VS_KEY_BYTES] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef,
                                                    0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10};
#define EXAMPLE "0123456789abcdefFEDCBA9876543210"

static char dir[64], path[80];

static void test_text(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		bool good;
	} table[] = {
	        {EXAMPLE, true},
	        {EXAMPLE "\n", true},
	        {EXAMPLE "\nmore", true},
	        {"", false},
	        {"0123456789abcdefFEDCBA987654321", false},
	        {EXAMPLE "0", false},
	        {EXAMPLE " ", false},
	        {" " EXAMPLE, false},
	        {"/123456789abcdefFEDCBA9876543210", false},
	        {":123456789abcdefFEDCBA9876543210", false},
	        {"0`23456789abcdefFEDCBA9876543210", false},
	        {"0g23456789abcdefFEDCBA9876543210", false},
	};
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		uint8_t key[AGENT_VS_KEY_BYTES];
		if (vskey_parse(table[i].text, key) != table[i].good)
			fail_msg("'%s' is %s a key", table[i].text, table[i].good ? "" : "not");
		if (table[i].good)
			assert_memory_equal(key, example, sizeof(key));
	}
}

static void write_file(const char *text, mode_t mode)
{
	unlink(path);
	FILE *file = fopen(path, "we");
	assert_true(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
	assert_int_equal(chmod(path, mode), 0);
}

static void test_file(void **state)
{
	(void)state;
	uint8_t key[AGENT_VS_KEY_BYTES];
	char other[96];
	unlink(path);
	assert_false(vskey_read(path, key));
	write_file("# a comment\n#\n" EXAMPLE "\n", 0600);
	assert_true(vskey_read(path, key));
	assert_memory_equal(key, example, sizeof(key));
	write_file("# no more than that", 0600);
	assert_false(vskey_read(path, key));
	write_file("not a key\n" EXAMPLE "\n", 0600);
	assert_false(vskey_read(path, key));
	/* Open to others, or through a link. */
	for (mode_t bit = 1; bit <= 040; bit <<= 1) {
		write_file(EXAMPLE, 0600 | bit);
		assert_false(vskey_read(path, key));
	}
	write_file(EXAMPLE, 0600);
	snprintf(other, sizeof(other), "%s-link", path);
	assert_int_equal(symlink(path, other), 0);
	bool followed = vskey_read(other, key);
	unlink(other);
	assert_false(followed);
	if (geteuid() == 0) {
		assert_int_equal(chown(path, 65534, 65534), 0);
		assert_false(vskey_read(path, key));
	}
}

/* One that the user wrote stays; one that was made is secret, new each time, and goes. */
static void test_made(void **state)
{
	(void)state;
	uint8_t key[AGENT_VS_KEY_BYTES], again[AGENT_VS_KEY_BYTES];
	struct stat st;
	write_file(EXAMPLE, 0600);
	vskey_make(path);
	assert_true(vskey_read(path, key));
	assert_memory_equal(key, example, sizeof(key));
	vskey_remove(path);
	assert_int_equal(access(path, F_OK), 0);
	unlink(path);
	vskey_make(path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_true(vskey_read(path, key));
	vskey_make(path);
	assert_true(vskey_read(path, again));
	assert_true(vskey_equal(key, again));
	vskey_remove(path);
	assert_int_not_equal(access(path, F_OK), 0);
	vskey_make(path);
	assert_true(vskey_read(path, again));
	assert_false(vskey_equal(key, again));
}

static void test_equal(void **state)
{
	(void)state;
	uint8_t a[AGENT_VS_KEY_BYTES], none[AGENT_VS_KEY_BYTES] = {0};
	assert_true(vskey_equal(example, example));
	assert_false(vskey_equal(none, none));
	for (unsigned i = 0; i < 8 * AGENT_VS_KEY_BYTES; i++) {
		memcpy(a, example, sizeof(a));
		a[i / 8] = (uint8_t)(a[i / 8] ^ 1u << i % 8);
		assert_false(vskey_equal(a, example));
		memset(a, 0, sizeof(a));
		a[i / 8] = (uint8_t)(1u << i % 8);
		assert_true(vskey_equal(a, a));
	}
}

static int begin(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/heddle-vskey-XXXXXX");
	if (mkdtemp(dir) == NULL)
		return -1;
	snprintf(path, sizeof(path), "%s/key", dir);
	return 0;
}

static int end(void **state)
{
	(void)state;
	unlink(path);
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_text),
	        cmocka_unit_test(test_file),
	        cmocka_unit_test(test_made),
	        cmocka_unit_test(test_equal),
	};
	return cmocka_run_group_tests(tests, begin, end);
}
