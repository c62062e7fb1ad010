/* The same pages in two mappings (AP9): stores appear, only sealed files are mapped, and what is
 * revoked leads nowhere. The peer is a child process that keeps what it has mapped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <heddle/heddle.h>

#include "adapter/reach/shared.h"
#include "base/memfile.h"

#define BYTES (4 * 4096u)

static struct segment_table *table;
static struct segments segments;

static int setup(void **state)
{
	(void)state;
	table = mmap(NULL, sizeof(*table), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
	             0);
	segment_begin(&segments, table, true);
	return table == MAP_FAILED;
}

static struct segment_ref publish(void *memory)
{
	struct segment found;
	assert_true(mem_behind((uint64_t)(uintptr_t)memory, BYTES, &found));
	return segment_take(&segments, (uint64_t)(uintptr_t)memory, BYTES, &found);
}

/* A peer that maps @memory and stores: first 'a', and after the revocation 'h'. */
static pid_t hostile(void *memory, int go, int done)
{
	pid_t owner = getpid(), child = fork();
	if (child != 0)
		return child;
	struct reach *reach = reach_make(owner, -1, table, false);
	unsigned char *map = shared_map(reach, (uint64_t)(uintptr_t)memory, BYTES, NULL);
	char byte;
	if (map == NULL)
		_exit(2);
	map[100] = 'a';
	if (write(done, "x", 1) != 1 || read(go, &byte, 1) != 1)
		_exit(3);
	memset(map, 'h', BYTES); /* no signal, no effect */
	if (write(done, "x", 1) != 1)
		_exit(4);
	_exit(map[0] == 'h' ? 0 : 5);
}

static void ap9_a_peer_that_keeps_its_mapping_writes_to_orphans(void **state)
{
	(void)state;
	void *memory;
	unsigned char *bytes, expected[BYTES];
	int go[2], done[2], status;
	char byte;
	assert_int_equal(hdl_mem_alloc(BYTES, &memory), 0);
	bytes = memory;
	memset(bytes, 'o', BYTES);
	struct segment_ref ref = publish(memory);
	assert_int_equal(pipe(go) | pipe(done), 0);
	pid_t child = hostile(memory, go[0], done[1]);
	assert_int_equal(read(done[0], &byte, 1), 1);
	assert_int_equal(bytes[100], 'a'); /* the same page */
	/* Close: no entry names it any more, then the owner gets fresh pages. */
	segment_give(&segments, ref);
	assert_int_equal(mem_renew(memory), 0);
	memcpy(expected, bytes, BYTES);
	assert_int_equal(bytes[99], 'o');
	assert_int_equal(bytes[100], 'a');
	assert_int_equal(write(go[1], "x", 1), 1);
	assert_int_equal(read(done[0], &byte, 1), 1);
	assert_memory_equal(bytes, expected, BYTES); /* not a byte changes */
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	/* The memory can be offered again. */
	ref = publish(memory);
	struct reach *reach = reach_make(getpid(), -1, table, false);
	unsigned char *map = shared_map(reach, (uint64_t)(uintptr_t)memory, BYTES, NULL);
	assert_non_null(map);
	map[1] = 'n';
	assert_int_equal(bytes[1], 'n');
	munmap(map, BYTES);
	reach_end(reach);
	segment_give(&segments, ref);
	assert_int_equal(hdl_mem_free(memory), 0);
	assert_int_equal(mem_renew(memory), -HDL_EINVAL);
	for (int i = 0; i < 2; i++) {
		close(go[i]);
		close(done[i]);
	}
}

static void parts_and_places(void **state)
{
	(void)state;
	void *memory;
	assert_int_equal(hdl_mem_alloc(BYTES, &memory), 0);
	struct segment_ref ref = publish(memory);
	struct reach *reach = reach_make(getpid(), -1, table, false);
	uint64_t addr = (uint64_t)(uintptr_t)memory;
	void *place = mmap(NULL, 2 * BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char *at = (unsigned char *)place + 4096;
	assert_ptr_equal(shared_map(reach, addr + 4096, 8192, at), at);
	at[0] = 7;
	assert_int_equal(((unsigned char *)memory)[4096], 7);
	assert_ptr_equal(shared_unmap(at, 8192), at);
	at[0] = 9; /* leads nowhere */
	assert_int_equal(((unsigned char *)memory)[4096], 7);
	assert_null(shared_map(reach, addr + 100, 4096, NULL)); /* no whole pages */
	assert_null(shared_map(reach, addr, 100, NULL));
	assert_null(shared_map(reach, addr, 2 * BYTES, NULL)); /* more than there is */
	assert_null(shared_map(reach, addr - 4096, 4096, NULL));
	assert_null(shared_map(reach, addr, UINT64_MAX - 4095, NULL));
	munmap(place, 2 * BYTES);
	reach_end(reach);
	segment_give(&segments, ref);
	hdl_mem_free(memory);
}

/* A file that its owner could truncate is not mapped: a load would die of SIGBUS. */
static void a_file_without_seals_is_refused(void **state)
{
	(void)state;
	for (int sealed = 0; sealed < 2; sealed++) {
		struct segment s = {.length = BYTES, .writable = true};
		s.fd = sealed ? memfile_make("test", BYTES) : memfd_create("test", MFD_CLOEXEC);
		assert_true(s.fd >= 0);
		if (sealed)
			memfile_seal(s.fd);
		else
			assert_int_equal(ftruncate(s.fd, BYTES), 0);
		assert_true(file_in_memory(s.fd, &s.dev, &s.inode));
		void *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, s.fd, 0);
		s.addr = (uint64_t)(uintptr_t)memory;
		struct segment_ref ref = segment_take(&segments, s.addr, BYTES, &s);
		struct reach *reach = reach_make(getpid(), -1, table, false);
		void *map = shared_map(reach, s.addr, BYTES, NULL);
		assert_int_equal(map != NULL, sealed);
		if (map != NULL)
			munmap(map, BYTES);
		reach_end(reach);
		segment_give(&segments, ref);
		munmap(memory, BYTES);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(ap9_a_peer_that_keeps_its_mapping_writes_to_orphans),
	        cmocka_unit_test(parts_and_places),
	        cmocka_unit_test(a_file_without_seals_is_refused),
	};
	return cmocka_run_group_tests(tests, setup, NULL);
}
