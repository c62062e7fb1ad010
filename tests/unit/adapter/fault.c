/* Copies that survive memory which has gone: SN8. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "adapter/adapter.h"
#include "base/crc.h"

#define PAGE 4096u

/* Every length, at every distance from a multiple of 16; the bytes around it stay as they are. */
static void short_copies_are_exact(void **state)
{
	(void)state;
	static unsigned char from[MOVE_SHORT + 64], to[MOVE_SHORT + 64], want[MOVE_SHORT + 64];
	struct own_memory own_memory = fault_own_memory();
	for (size_t i = 0; i < sizeof(from); i++)
		from[i] = (unsigned char)(i * 7 + i / 251);
	for (size_t bytes = 0; bytes <= MOVE_SHORT; bytes += bytes < 300 ? 1 : 61) {
		for (size_t shift = 0; shift < 16; shift += bytes < 300 ? 1 : 5) {
			memset(to, 0xee, sizeof(to));
			memset(want, 0xee, sizeof(want));
			memcpy(want + 16 + shift, from + 15 - shift, bytes);
			assert_true(
			        own_memory.copy_short(to + 16 + shift, from + 15 - shift, bytes));
			assert_memory_equal(to, want, sizeof(to));
		}
	}
	assert_true(own_memory.copy_short(to, from, MOVE_SHORT));
	assert_memory_equal(to, from, MOVE_SHORT);
}

/* The first or the last byte, of either side, lies in a page that is not there. */
static void short_copies_end_where_memory_does(void **state)
{
	(void)state;
	assert_int_equal(fault_install(), 0);
	struct own_memory own_memory = fault_own_memory();
	static unsigned char own[MOVE_SHORT];
	unsigned char *page = mmap(NULL, 3 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(page, MAP_FAILED);
	page += PAGE;
	assert_int_equal(mprotect(page, PAGE, PROT_READ | PROT_WRITE), 0);
	for (size_t bytes = 1; bytes <= MOVE_SHORT; bytes += bytes < 100 ? 1 : 111) {
		unsigned char *behind = page + PAGE - bytes + 1, *before = page - 1;
		assert_true(own_memory.copy_short(page + PAGE - bytes, own, bytes));
		assert_true(own_memory.copy_short(own, page, bytes));
		assert_false(own_memory.copy_short(behind, own, bytes));
		assert_false(own_memory.copy_short(own, behind, bytes));
		assert_false(own_memory.copy_short(before, own, bytes));
		assert_false(own_memory.copy_short(own, before, bytes));
	}
	assert_int_equal(munmap(page - PAGE, 3 * PAGE), 0);
}

/* The same of copies that make a checksum. */
static void checked_copies_end_where_memory_does(void **state)
{
	(void)state;
	assert_int_equal(fault_install(), 0);
	struct own_memory own_memory = fault_own_memory();
	static unsigned char own[PAGE], copy[PAGE];
	unsigned char *page = mmap(NULL, 3 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(page, MAP_FAILED);
	page += PAGE;
	assert_int_equal(mprotect(page, PAGE, PROT_READ | PROT_WRITE), 0);
	for (size_t i = 0; i < PAGE; i++)
		page[i] = (unsigned char)(i * 11 + i / 253);
	memcpy(own, page, PAGE);
	for (size_t bytes = 1; bytes <= PAGE; bytes += bytes < 100 ? 1 : 111) {
		uint32_t crc = 5;
		assert_true(own_memory.copy_crc(copy, page + PAGE - bytes, bytes, &crc));
		assert_memory_equal(copy, own + PAGE - bytes, bytes);
		assert_int_equal(crc, crc32_ieee(5, own + PAGE - bytes, bytes));
		assert_false(own_memory.copy_crc(copy, page + PAGE - bytes + 1, bytes, &crc));
		assert_false(own_memory.copy_crc(copy, page - 1, bytes, &crc));
		assert_int_equal(crc, crc32_ieee(5, own + PAGE - bytes, bytes));
		crc = 6;
		memset(copy, 0, bytes);
		assert_true(own_memory.copy_crc32c(copy, page + PAGE - bytes, bytes, &crc));
		assert_memory_equal(copy, own + PAGE - bytes, bytes);
		assert_int_equal(crc, crc32c(6, own + PAGE - bytes, bytes));
		assert_false(own_memory.copy_crc32c(copy, page - 1, bytes, &crc));
		assert_false(own_memory.crc32c(page + PAGE - bytes + 1, bytes, &crc));
		assert_false(own_memory.crc32c(page - 1, bytes, &crc));
		crc = 6;
		assert_true(own_memory.crc32c(page + PAGE - bytes, bytes, &crc));
		assert_int_equal(crc, crc32c(6, own + PAGE - bytes, bytes));
	}
	assert_int_equal(munmap(page - PAGE, 3 * PAGE), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(short_copies_are_exact),
	        cmocka_unit_test(short_copies_end_where_memory_does),
	        cmocka_unit_test(checked_copies_end_where_memory_does),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
