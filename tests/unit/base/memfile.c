/* Files in memory that processes share: whose size is final, and who can write to them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memfile.h"

#define BYTES 8192u

static void test_size_is_final(void **state)
{
	(void)state;
	int fd = memfile_make("test", BYTES);
	assert_true(fd >= 0);
	assert_false(memfile_is_sealed(fd, BYTES)); /* something could still be changed */
	assert_true(memfile_seal(fd));
	assert_true(memfile_is_sealed(fd, BYTES));
	assert_false(memfile_is_sealed(fd, BYTES + 1));
	assert_int_equal(ftruncate(fd, BYTES / 2), -1);
	assert_int_equal(ftruncate(fd, BYTES * 2), -1);
	close(fd);
}

/* Where vm.memfd_noexec is set every file has more seals than were asked for, as those that are
 * closed to writers have. */
static void test_more_seals_do_no_harm(void **state)
{
	(void)state;
	int fd = memfile_make("test", BYTES);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
	assert_true(memfile_seal(fd));
	assert_true(memfile_is_sealed(fd, BYTES));
	close(fd);
}

static void test_what_others_made_is_refused(void **state)
{
	(void)state;
	static const int lacking[] = {0, F_SEAL_SEAL | F_SEAL_GROW, F_SEAL_SEAL | F_SEAL_SHRINK,
	                              F_SEAL_SHRINK | F_SEAL_GROW};
	int pipes[2];
	assert_int_equal(pipe(pipes), 0);
	assert_false(memfile_is_sealed(pipes[0], 0));
	close(pipes[0]);
	close(pipes[1]);
	for (size_t i = 0; i < sizeof(lacking) / sizeof(lacking[0]); i++) {
		int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		assert_int_equal(ftruncate(fd, BYTES), 0);
		assert_int_equal(fcntl(fd, F_ADD_SEALS, lacking[i]), 0);
		assert_false(memfile_is_sealed(fd, BYTES));
		close(fd);
	}
}

/* Its pages may not be there: SIGBUS for whoever looks. It can be had without any huge page. */
static void test_huge_pages_are_refused(void **state)
{
	(void)state;
	struct stat st;
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
	if (fd < 0 || fstat(fd, &st) != 0 || ftruncate(fd, st.st_blksize) != 0)
		skip(); /* the kernel has no huge pages */
	const uint64_t bytes = (uint64_t)st.st_blksize;
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_GROW | F_SEAL_SHRINK), 0);
	assert_false(memfile_is_sealed(fd, bytes));
	close(fd);
}

static void test_closed_to_writers(void **state)
{
	(void)state;
	int fd = memfile_make("test", BYTES);
	unsigned char *own = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(own != MAP_FAILED);
	if (!memfile_close_to_writers(fd)) {
		assert_int_equal(errno, EINVAL); /* before Linux 5.1 */
		skip();
	}
	assert_true(memfile_seal(fd));
	assert_true(mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
	assert_int_equal(pwrite(fd, "x", 1, 0), -1);
	const unsigned char *read_only = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
	assert_true(read_only != MAP_FAILED);
	assert_int_equal(mprotect((void *)(uintptr_t)read_only, BYTES, PROT_READ | PROT_WRITE), -1);
	own[5] = 42; /* what was mapped before stays */
	assert_int_equal(read_only[5], 42);
	munmap(own, BYTES);
	munmap((void *)(uintptr_t)read_only, BYTES);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest list[] = {
	        cmocka_unit_test(test_size_is_final),
	        cmocka_unit_test(test_more_seals_do_no_harm),
	        cmocka_unit_test(test_what_others_made_is_refused),
	        cmocka_unit_test(test_huge_pages_are_refused),
	        cmocka_unit_test(test_closed_to_writers),
	};
	return cmocka_run_group_tests(list, NULL, NULL);
}
