/* Which file is behind memory: the kernel's answer about one mapping and its list of all of them
 * must say the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "adapter/reach/segment.h"

#define PAGE  4096u
#define PAGES 8u

static unsigned char *map_file(int fd, int flags)
{
	unsigned char *room = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, flags, fd, 0);
	assert_true(room != MAP_FAILED);
	room[0] = 1;
	return room;
}

static int make_file(void)
{
	int fd = memfd_create("behind", MFD_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)PAGES * PAGE), 0);
	return fd;
}

/* Both ways; @room NULL: there is no file. */
static void expect(const unsigned char *at, size_t length, const unsigned char *room,
                   uint64_t bytes)
{
	struct segment found, listed;
	char *path, *listed_path;
	bool there = file_mapping((uint64_t)(uintptr_t)at, length, &found, &path);
	bool in_list = file_listed_mapping((uint64_t)(uintptr_t)at, length, &listed, &listed_path);
	assert_int_equal(there, room != NULL);
	assert_int_equal(in_list, room != NULL);
	if (room != NULL) {
		assert_true(found.addr == (uint64_t)(uintptr_t)room);
		assert_true(found.length == bytes);
		assert_memory_equal(&found, &listed, sizeof(found));
		assert_string_equal(path, listed_path);
	}
	free(path);
	free(listed_path);
}

static void one_mapping_although_it_is_cut(void **state)
{
	(void)state;
	int fd = make_file();
	unsigned char *room = map_file(fd, MAP_SHARED);
	expect(room, 1, room, PAGES * PAGE);
	expect(room + 5, PAGES * PAGE - 5, room, PAGES * PAGE);
	expect(room, PAGES * PAGE + 1, NULL, 0);
	/* Rights and advice cut it into several for the kernel. */
	assert_int_equal(mprotect(room + 2 * PAGE, PAGE, PROT_READ), 0);
	assert_int_equal(madvise(room + 5 * PAGE, PAGE, MADV_DONTFORK), 0);
	for (unsigned i = 0; i < PAGES; i++)
		expect(room + i * PAGE + 7, 1, room, PAGES * PAGE);
	/* A hole ends it, and so does another part of the file. */
	assert_int_equal(munmap(room + 3 * PAGE, PAGE), 0);
	expect(room + PAGE, 1, room, 3 * PAGE);
	expect(room + 3 * PAGE, 1, NULL, 0);
	expect(room + 2 * PAGE, 2 * PAGE, NULL, 0);
	assert_true(mmap(room + 3 * PAGE, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) !=
	            MAP_FAILED);
	expect(room + 3 * PAGE, 1, room + 3 * PAGE, PAGE);
	expect(room + 4 * PAGE, 1, room + 4 * PAGE, 4 * PAGE);
	munmap(room, PAGES * PAGE);
	expect(room, 1, NULL, 0);
	close(fd);
}

static void private_memory_has_no_file(void **state)
{
	(void)state;
	int fd = make_file();
	unsigned char *room = map_file(fd, MAP_PRIVATE),
	              *own = map_file(-1, MAP_PRIVATE | MAP_ANONYMOUS);
	struct segment found;
	int pagemap = file_pagemap();
	expect(room, 1, NULL, 0);
	expect(own, 1, NULL, 0);
	expect(NULL, 1, NULL, 0);
	if (pagemap >= 0) {
		assert_false(file_behind(pagemap, (uint64_t)(uintptr_t)own, 1, &found));
		close(pagemap);
	}
	munmap(room, PAGES * PAGE);
	munmap(own, PAGES * PAGE);
	close(fd);
}

/* A descriptor is found although others were closed, or are other files', since they were looked
 * through. */
static void descriptors_that_change(void **state)
{
	(void)state;
	int pagemap = file_pagemap(), fds[8];
	unsigned char *rooms[8];
	struct segment found;
	if (pagemap < 0)
		skip();
	for (unsigned i = 0; i < 8; i++)
		rooms[i] = map_file(fds[i] = make_file(), MAP_SHARED);
	assert_true(file_behind(pagemap, (uint64_t)(uintptr_t)rooms[0], PAGE, &found));
	close(found.fd);
	/* They change places. */
	for (unsigned i = 0; i < 8; i += 2) {
		int other = dup(fds[i]);
		assert_int_equal(dup2(fds[i + 1], fds[i]), fds[i]);
		assert_int_equal(dup2(other, fds[i + 1]), fds[i + 1]);
		close(other);
	}
	for (unsigned i = 0; i < 8; i++) {
		assert_true(file_behind(pagemap, (uint64_t)(uintptr_t)rooms[i], PAGE, &found));
		uint64_t dev, inode;
		assert_true(file_in_memory(found.fd, &dev, &inode));
		assert_true(dev == found.dev && inode == found.inode);
		close(found.fd);
	}
	for (unsigned i = 0; i < 8; i++)
		close(fds[i]);
	/* The mappings are there, but nothing leads to their files any more. */
	for (unsigned i = 0; i < 8; i++) {
		assert_false(file_behind(pagemap, (uint64_t)(uintptr_t)rooms[i], PAGE, &found));
		munmap(rooms[i], PAGES * PAGE);
	}
	close(pagemap);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(one_mapping_although_it_is_cut),
	        cmocka_unit_test(private_memory_has_no_file),
	        cmocka_unit_test(descriptors_that_change),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
