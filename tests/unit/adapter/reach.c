/* Mapping a peer's memory by what the peer says: a table that tells the truth, and all the ways in
 * which it may not. The peer is this process. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <linux/magic.h>

#include "adapter/adapter.h"

#define ROOM  (16u << 10)
#define THERE 0x700000000000ull /* where the owner says it has it */

static struct segment_table table;

static void say(uint32_t index, const struct segment *s)
{
	uint64_t words[SEGMENT_WORDS];
	memcpy(words, s, sizeof(words));
	for (unsigned i = 0; i < SEGMENT_WORDS; i++)
		atomic_store(&table.slots[index].words[i], words[i]);
	atomic_fetch_add(&table.version, 2);
}

static int memory_file(void)
{
	int fd = memfd_create("reach", MFD_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, ROOM), 0);
	return fd;
}

static struct segment truth(int fd)
{
	struct segment s = {
	        .addr = THERE, .length = ROOM, .generation = 1, .fd = fd, .writable = 1};
	assert_true(file_in_memory(fd, &s.dev, &s.inode));
	return s;
}

static struct reach *begin(void)
{
	memset(&table, 0, sizeof(table));
	struct reach *reach = reach_make(getpid(), -1, &table, false);
	assert_non_null(reach);
	return reach;
}

static void only_what_lies_in_a_segment(void **state)
{
	static const struct {
		uint64_t addr, length;
		bool found;
	} rows[] = {{THERE, 8, true},
	            {THERE, ROOM, true},
	            {THERE + ROOM - 8, 8, true},
	            {THERE + ROOM, 0, true},
	            {THERE, ROOM + 1, false},
	            {THERE + ROOM - 7, 8, false},
	            {THERE + ROOM + 1, 0, false},
	            {THERE - 1, 8, false},
	            {THERE, UINT64_MAX, false},
	            {UINT64_MAX, 8, false},
	            {0, UINT64_MAX, false}};
	struct reach *reach = begin();
	int fd = memory_file();
	struct segment s = truth(fd);
	(void)state;
	assert_null(reach_find(reach, THERE, 8));
	say(3, &s);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		unsigned char *at = reach_find(reach, rows[i].addr, rows[i].length);
		assert_int_equal(at != NULL, rows[i].found);
		if (at != NULL)
			assert_ptr_equal(at, reach->at[3].base + (rows[i].addr - THERE));
	}
	uint64_t value = 42;
	memcpy(reach_find(reach, THERE + 4096, 8), &value, 8);
	value = 0;
	assert_int_equal(pread(fd, &value, 8, 4096), 8);
	assert_int_equal(value, 42);
	s.generation = 0;
	say(3, &s);
	assert_null(reach_find(reach, THERE, 8));
	assert_int_equal(reach->mapped, 0);
	reach_end(reach);
	close(fd);
}

/* Each row is the truth but for one thing. */
enum lie {
	NO_GENERATION,
	NO_LENGTH,
	TOO_LONG,
	WRAPS,
	OFFSET_WRAPS,
	BEHIND_THE_END,
	UNALIGNED,
	NEGATIVE_FD,
	CLOSED_FD,
	OTHER_INODE,
	OTHER_DEVICE,
	READ_ONLY_FD,
	A_PIPE,
	A_DEVICE,
	A_DIRECTORY,
	A_FILE_ON_DISK,
	LIE_COUNT
};

static void use_other(struct segment *s, int fd)
{
	struct stat st;
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	s->fd = fd;
	s->dev = st.st_dev;
	s->inode = st.st_ino;
}

/* @other is a descriptor to close, or -1. */
static void tell_lie(struct segment *s, enum lie lie, int *other)
{
	char path[64];
	int ends[2];
	struct statfs fs;
	*other = -1;
	switch (lie) {
	case NO_GENERATION:
		s->generation = 0;
		break;
	case NO_LENGTH:
		s->length = 0;
		break;
	case TOO_LONG:
		s->length = SEGMENT_MAX_BYTES + 4096;
		break;
	case WRAPS:
		s->addr = UINT64_MAX - 4095;
		break;
	case OFFSET_WRAPS:
		s->offset = (uint64_t)INT64_MAX - 4095;
		break;
	case BEHIND_THE_END:
		s->offset = ROOM;
		break;
	case UNALIGNED:
		s->offset = 8;
		break;
	case NEGATIVE_FD:
		s->fd = -1;
		break;
	case CLOSED_FD:
		s->fd = 1 << 20;
		break;
	case OTHER_INODE:
		s->inode++;
		break;
	case OTHER_DEVICE:
		s->dev++;
		break;
	case READ_ONLY_FD:
		snprintf(path, sizeof(path), "/proc/self/fd/%d", s->fd);
		use_other(s, *other = open(path, O_RDONLY | O_CLOEXEC));
		break;
	case A_PIPE:
		assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
		close(ends[0]);
		use_other(s, *other = ends[1]);
		break;
	case A_DEVICE:
		use_other(s, *other = open("/dev/zero", O_RDWR | O_CLOEXEC));
		break;
	case A_DIRECTORY:
		use_other(s, *other = open("/dev", O_RDONLY | O_CLOEXEC));
		s->writable = 0;
		break;
	default:
		/* This program itself, unless it was built in memory. */
		*other = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
		assert_int_equal(fstatfs(*other, &fs), 0);
		if (fs.f_type == TMPFS_MAGIC) {
			close(*other);
			*other = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
		}
		use_other(s, *other);
		s->writable = 0;
		break;
	}
}

static void nothing_is_mapped_for_a_lie(void **state)
{
	(void)state;
	for (enum lie lie = 0; lie < LIE_COUNT; lie++) {
		struct reach *reach = begin();
		int fd = memory_file(), other;
		struct segment s = truth(fd);
		tell_lie(&s, lie, &other);
		say(0, &s);
		if (reach_find(reach, s.addr, 8) != NULL || reach->mapped != 0)
			fail_msg("lie %d was believed", (int)lie);
		/* The truth after it is. */
		s = truth(fd);
		say(0, &s);
		assert_non_null(reach_find(reach, THERE, 8));
		reach_end(reach);
		close(fd);
		if (other >= 0)
			close(other);
	}
}

/* The owner died in the midst of a change, or never ends one: no wait, no mapping. */
static void a_table_that_never_settles(void **state)
{
	struct reach *reach = begin();
	int fd = memory_file();
	struct segment s = truth(fd);
	(void)state;
	say(0, &s);
	atomic_fetch_add(&table.version, 1);
	assert_null(reach_find(reach, THERE, 8));
	atomic_fetch_add(&table.version, 1);
	assert_non_null(reach_find(reach, THERE, 8));
	reach_end(reach);
	close(fd);
}

static void the_least_recently_used_goes(void **state)
{
	struct reach *reach = begin();
	int fd = memory_file();
	(void)state;
	for (uint32_t i = 0; i < SEGMENT_MAX; i++) {
		struct segment s = truth(fd);
		s.addr += (uint64_t)i * ROOM;
		s.generation = i + 1;
		say(i, &s);
	}
	for (uint32_t i = 0; i < SEGMENT_MAX; i++) {
		assert_non_null(reach_find(reach, THERE + (uint64_t)i * ROOM, 8));
		assert_non_null(reach_find(reach, THERE, 8)); /* this one is always in use */
		assert_true(reach->mapped <= REACH_MAX_MAPPED);
		assert_non_null(reach->at[0].base);
	}
	assert_int_equal(reach->mapped, REACH_MAX_MAPPED);
	/* Runs of one copy stay together, however many are mapped for them. */
	struct span runs[REACH_MAX_MAPPED], out[REACH_MAX_MAPPED];
	for (uint32_t i = 0; i < REACH_MAX_MAPPED; i++)
		runs[i] = (struct span){THERE + (uint64_t)(20 + i) * ROOM, 8};
	assert_true(reach_find_all(reach, runs, REACH_MAX_MAPPED, out));
	for (uint32_t i = 0; i < REACH_MAX_MAPPED; i++)
		assert_int_equal(out[i].addr, (uint64_t)(uintptr_t)reach->at[20 + i].base);
	reach_end(reach);
	close(fd);
}

/* Where the kernel refuses to reach the peer, what it lets us map still works, and the rest is the
 * peer's to do. */
static void without_the_kernel(void **state)
{
	struct reach *reach = begin();
	int fd = memory_file();
	struct segment s = truth(fd);
	uint64_t here = 7, old = 1;
	struct span own = {(uint64_t)(uintptr_t)&here, 8}, there = {THERE, 8},
	            elsewhere = {THERE - 8, 8};
	(void)state;
	say(0, &s);
	assert_int_equal(fault_install(), 0);
	struct peer_memory memory = process_memory(reach, false);
	assert_int_equal(memory.ops.copy(reach, MOVE_TO_PEER, &there, 1, &own, 1), MOVE_OK);
	assert_int_equal(memory.ops.atomic(reach, MOVE_TO_PEER, THERE, true, 3, 0, &old), MOVE_OK);
	assert_int_equal(old, 7);
	assert_int_equal(memory.ops.copy(reach, MOVE_FROM_PEER, &own, 1, &there, 1), MOVE_OK);
	assert_int_equal(here, 10);
	uint64_t here_at = own.addr;
	assert_true(memory.copy_short(reach, MOVE_TO_PEER, here_at, THERE + 8, 8));
	here = 0;
	assert_true(memory.copy_short(reach, MOVE_FROM_PEER, here_at, THERE + 8, 8));
	assert_int_equal(here, 10);
	assert_false(memory.copy_short(reach, MOVE_TO_PEER, here_at, THERE - 8, 8));
	assert_false(
	        memory.copy_short(reach, MOVE_FROM_PEER, here_at, (uint64_t)(uintptr_t)&old, 8));
	assert_int_equal(memory.ops.copy(reach, MOVE_TO_PEER, &elsewhere, 1, &own, 1),
	                 MOVE_ELSEWHERE);
	assert_int_equal(memory.ops.copy(reach, MOVE_FROM_PEER, &own, 1, &elsewhere, 1),
	                 MOVE_ELSEWHERE);
	assert_int_equal(memory.ops.atomic(reach, MOVE_TO_PEER, THERE - 8, true, 3, 0, &old),
	                 MOVE_ELSEWHERE);
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(memory.ops.copy(reach, MOVE_TO_PEER, &there, 1, &own, 1),
	                 MOVE_TARGET_GONE);
	assert_int_equal(memory.ops.copy(reach, MOVE_FROM_PEER, &own, 1, &there, 1),
	                 MOVE_SOURCE_GONE);
	assert_int_equal(memory.ops.atomic(reach, MOVE_TO_PEER, THERE, true, 3, 0, &old),
	                 MOVE_TARGET_GONE);
	assert_false(memory.copy_short(reach, MOVE_TO_PEER, here_at, THERE, 8));
	assert_false(memory.copy_short(reach, MOVE_FROM_PEER, here_at, THERE, 8));
	assert_null(process_memory(reach, true).copy_short);
	reach_end(reach);
	close(fd);
}

/* A short run that nobody mapped is the kernel's to copy. */
static void with_the_kernel(void **state)
{
	(void)state;
	uint64_t ours = 7;
	memset(&table, 0, sizeof(table));
	struct reach *reach = reach_make(getpid(), -1, &table, true);
	struct peer_memory memory = process_memory(reach, false);
	uint64_t *theirs =
	        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(theirs != MAP_FAILED);
	uint64_t own = (uint64_t)(uintptr_t)&ours, there = (uint64_t)(uintptr_t)theirs;
	assert_true(memory.copy_short(reach, MOVE_TO_PEER, own, there, 8));
	assert_int_equal(theirs[0], 7);
	theirs[1] = 9;
	assert_true(memory.copy_short(reach, MOVE_FROM_PEER, own, there + 8, 8));
	assert_int_equal(ours, 9);
	/* What its owner may not write, nobody else may. */
	assert_int_equal(mprotect(theirs, 4096, PROT_READ), 0);
	assert_false(memory.copy_short(reach, MOVE_TO_PEER, own, there, 8));
	assert_true(memory.copy_short(reach, MOVE_FROM_PEER, own, there, 8));
	assert_int_equal(munmap(theirs, 4096), 0);
	assert_false(memory.copy_short(reach, MOVE_TO_PEER, own, there, 8));
	assert_false(memory.copy_short(reach, MOVE_FROM_PEER, own, there, 8));
	/* Whose memory is not there: constants of ours can be sent, but not received into. */
	static const uint64_t constant = 5;
	struct span gone = {there, 8}, mine = {own, 8}, fixed = {(uint64_t)(uintptr_t)&constant, 8};
	assert_int_equal(fault_install(), 0);
	assert_int_equal(memory.ops.copy(reach, MOVE_TO_PEER, &gone, 1, &fixed, 1),
	                 MOVE_TARGET_GONE);
	assert_int_equal(memory.ops.copy(reach, MOVE_FROM_PEER, &mine, 1, &gone, 1),
	                 MOVE_SOURCE_GONE);
	assert_int_equal(memory.ops.copy(reach, MOVE_TO_PEER, &mine, 1, &gone, 1),
	                 MOVE_SOURCE_GONE);
	assert_int_equal(memory.ops.copy(reach, MOVE_FROM_PEER, &fixed, 1, &mine, 1),
	                 MOVE_TARGET_GONE);
	reach_end(reach);
}

static void *end_at_once(void *number)
{
	*(pid_t *)number = gettid();
	return NULL;
}

static void a_thread_that_ended_is_not_the_process(void **state)
{
	(void)state;
	pthread_t thread;
	pid_t ended;
	assert_int_equal(pthread_create(&thread, NULL, end_at_once, &ended), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	memset(&table, 0, sizeof(table));
	struct reach *reach = reach_make(getpid(), -1, &table, true);
	assert_non_null(reach);
	assert_int_equal(reach->task, getpid());
	reach->task = ended;
	struct peer_memory memory = process_memory(reach, false);
	uint64_t ours = 7, theirs = 0;
	struct span own = {(uint64_t)(uintptr_t)&ours, 8},
	            there = {(uint64_t)(uintptr_t)&theirs, 8};
	assert_int_equal(memory.ops.copy(reach, MOVE_TO_PEER, &there, 1, &own, 1), MOVE_OK);
	assert_int_equal(theirs, 7);
	assert_int_equal(reach->task, getpid());
	reach_end(reach);
}

/* The number of a thread that has ended is given to another process: what is meant for this one
 * must not be written there. */
static void a_number_that_another_process_has_now(void **state)
{
	(void)state;
	int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	uint64_t *word =
	        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(pidfd >= 0 && word != MAP_FAILED);
	pid_t bystander = fork();
	if (bystander == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
		_exit(0);
	}
	memset(&table, 0, sizeof(table));
	struct reach *reach = reach_make(getpid(), pidfd, &table, true);
	struct peer_memory memory = process_memory(reach, false);
	uint64_t ours = 7, there = (uint64_t)(uintptr_t)word, seen = 0;
	/* One that lied from the beginning, and one that was right as long as it was believed. */
	for (int i = 0; i < 2; i++) {
		word[0] = 0;
		reach_prefer(reach, i == 0 ? bystander : gettid());
		reach->task = bystander;
		if (i == 1)
			usleep(2 * REACH_BELIEF_NS / 1000);
		assert_true(memory.copy_short(reach, MOVE_TO_PEER, (uint64_t)(uintptr_t)&ours,
		                              there, 8));
		assert_int_equal(word[0], 7);
		assert_int_equal(reach->task, getpid());
	}
	struct iovec here = {&seen, 8}, far = {word, 8};
	assert_int_equal(process_vm_readv(bystander, &here, 1, &far, 1, 0), 8);
	assert_int_equal(seen, 0);
	kill(bystander, SIGKILL);
	waitpid(bystander, NULL, 0);
	reach_end(reach);
	close(pidfd);
}

/* Nor is what is meant for a process that has ended. */
static void a_process_that_ended(void **state)
{
	(void)state;
	pid_t child = fork();
	if (child == 0)
		_exit(0);
	int pidfd = (int)syscall(SYS_pidfd_open, child, 0);
	assert_true(pidfd >= 0);
	waitpid(child, NULL, 0);
	memset(&table, 0, sizeof(table));
	/* As if its number were ours by now. */
	struct reach *reach = reach_make(getpid(), pidfd, &table, true);
	uint64_t ours = 7, theirs = 0;
	assert_false(process_memory(reach, false)
	                     .copy_short(reach, MOVE_TO_PEER, (uint64_t)(uintptr_t)&ours,
	                                 (uint64_t)(uintptr_t)&theirs, 8));
	assert_int_equal(theirs, 0);
	reach_end(reach);
	close(pidfd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(only_what_lies_in_a_segment),
	        cmocka_unit_test(nothing_is_mapped_for_a_lie),
	        cmocka_unit_test(a_table_that_never_settles),
	        cmocka_unit_test(the_least_recently_used_goes),
	        cmocka_unit_test(without_the_kernel),
	        cmocka_unit_test(with_the_kernel),
	        cmocka_unit_test(a_thread_that_ended_is_not_the_process),
	        cmocka_unit_test(a_number_that_another_process_has_now),
	        cmocka_unit_test(a_process_that_ended),
	};
	return cmocka_run_group_tests_name("reach", tests, NULL, NULL);
}
