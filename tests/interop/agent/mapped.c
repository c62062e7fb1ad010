/* Memory that a peer maps, between two processes: this one owns it, a child works on it as it is
 * told. Whether the child has it mapped is read from its list of mappings, where a memory file has
 * a name. */
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "owner.h"

static unsigned char *map_room(void *where, int flags, int *fd)
{
	*fd = memfd_create(NAME, MFD_CLOEXEC);
	assert_true(*fd >= 0);
	assert_int_equal(ftruncate(*fd, ROOM), 0);
	unsigned char *room = mmap(where, ROOM, PROT_READ | PROT_WRITE, flags, *fd, 0);
	assert_true(room != MAP_FAILED);
	return room;
}

static struct hdl_mr *enter(struct owner *o, void *memory, uint32_t rights)
{
	struct hdl_mr *mr;
	assert_int_equal(hdl_mr_register(o->end.pd, memory, ROOM, rights, &mr), 0);
	return mr;
}

static struct task task_on(const void *memory, struct hdl_mr *mr, uint32_t opcode, uint32_t length,
                           uint64_t value)
{
	return (struct task){.order = WORK,
	                     .opcode = opcode,
	                     .length = length,
	                     .count = 1,
	                     .addr = (uint64_t)(uintptr_t)memory,
	                     .key = hdl_mr_key(mr),
	                     .value = value};
}

static uint64_t first_word(const void *memory)
{
	uint64_t value;
	memcpy(&value, memory, sizeof(value));
	return value;
}

/* --- scenarios --- */

/* Every way to have such memory, and the ways that look like it and are not. */
enum kind {
	ALLOCATED,
	MEMORY_FILE,
	NAMED,
	CLOSED,
	READ_ONLY,
	PRIVATE_FILE,
	ANONYMOUS,
	PLAIN,
	KIND_COUNT
};

static void *make_room(enum kind kind, int *fd)
{
	void *room = NULL;
	*fd = -1;
	if (kind == ALLOCATED) {
		assert_int_equal(hdl_mem_alloc(ROOM, &room), 0);
	} else if (kind == ANONYMOUS || kind == PLAIN) {
		room = mmap(NULL, ROOM, PROT_READ | PROT_WRITE,
		            MAP_ANONYMOUS | (kind == PLAIN ? MAP_PRIVATE : MAP_SHARED), -1, 0);
	} else if (kind == NAMED) {
		*fd = shm_open("/" NAME, O_RDWR | O_CREAT | O_EXCL, 0600);
		assert_true(*fd >= 0);
		assert_int_equal(ftruncate(*fd, 2 * ROOM), 0);
		/* Not from the beginning, and the descriptor is gone: the path leads there. */
		room = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, ROOM);
		close(*fd);
	} else if (kind == READ_ONLY) {
		char path[64];
		room = map_room(NULL, MAP_SHARED, fd);
		memset(room, 7, ROOM);
		munmap(room, ROOM);
		snprintf(path, sizeof(path), "/proc/self/fd/%d", *fd);
		int reader = open(path, O_RDONLY | O_CLOEXEC);
		close(*fd);
		*fd = reader;
		room = mmap(NULL, ROOM, PROT_READ, MAP_SHARED, *fd, 0);
	} else {
		room = map_room(NULL, kind == PRIVATE_FILE ? MAP_PRIVATE : MAP_SHARED, fd);
		if (kind == CLOSED)
			close(*fd);
	}
	assert_true(room != MAP_FAILED && room != NULL);
	return room;
}

static void drop_room(enum kind kind, void *room, int fd)
{
	if (kind == ALLOCATED)
		assert_int_equal(hdl_mem_free(room), 0);
	else
		munmap(room, ROOM);
	if (kind == NAMED)
		shm_unlink("/" NAME);
	else if (fd >= 0 && kind != CLOSED)
		close(fd);
}

static void every_kind_of_memory_works(void **state)
{
	static const bool mapped[KIND_COUNT] = {
	        [ALLOCATED] = true, [MEMORY_FILE] = true, [NAMED] = true, [READ_ONLY] = true};
	struct owner *o = *state;
	for (enum kind kind = 0; kind < KIND_COUNT; kind++) {
		int fd;
		unsigned char *room = make_room(kind, &fd);
		bool read_only = kind == READ_ONLY;
		struct hdl_mr *mr =
		        enter(o, room,
		              read_only ? HDL_ACCESS_LOCAL_READ | HDL_ACCESS_REMOTE_READ : RIGHTS);
		struct outcome got;
		if (!read_only) {
			got = tell(o, task_on(room + 4000, mr, HDL_OP_WRITE, 8, 5));
			assert_int_equal(got.status, HDL_WC_SUCCESS);
			assert_int_equal(first_word(room + 4000), 5);
			got = tell(o, task_on(room, mr, HDL_OP_WRITE, ROOM, 6));
			assert_int_equal(got.status, HDL_WC_SUCCESS);
			assert_int_equal(first_word(room), 6);
			assert_int_equal(first_word(room + ROOM - 8), 6);
			got = tell(o, task_on(room, mr, HDL_OP_FETCH_ADD, 8, 10));
			assert_int_equal(got.status, HDL_WC_SUCCESS);
			assert_int_equal(got.value, 6);
			assert_int_equal(first_word(room), 16);
		}
		uint64_t holds = first_word(room);
		got = tell(o, task_on(room, mr, HDL_OP_READ, 8, 0));
		assert_int_equal(got.status, HDL_WC_SUCCESS);
		assert_int_equal(got.value, holds);
		if (got.mapped != mapped[kind])
			fail_msg("kind %d: %s by the peer", (int)kind,
			         got.mapped ? "mapped" : "not mapped");
		assert_int_equal(hdl_mr_deregister(mr), 0);
		drop_room(kind, room, fd);
		/* Its next access to us makes it look again. */
		void *other = make_room(PLAIN, &fd);
		mr = enter(o, other, RIGHTS);
		got = tell(o, task_on(other, mr, HDL_OP_WRITE, 8, 1));
		assert_int_equal(got.status, HDL_WC_SUCCESS);
		assert_false(got.mapped);
		assert_int_equal(hdl_mr_deregister(mr), 0);
		drop_room(PLAIN, other, fd);
	}
}

/* The owner cuts the file off: an error for both, and nobody dies. */
static void a_file_cut_off_is_memory_that_has_gone(void **state)
{
	static const struct {
		uint32_t opcode, length;
	} rows[] = {{HDL_OP_WRITE, 8},
	            {HDL_OP_WRITE, ROOM},
	            {HDL_OP_READ, 8},
	            {HDL_OP_READ, ROOM},
	            {HDL_OP_FETCH_ADD, 8}};
	struct owner *o = *state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int fd;
		unsigned char *room = map_room(NULL, MAP_SHARED, &fd);
		struct hdl_mr *mr = enter(o, room, RIGHTS);
		struct outcome got = tell(o, task_on(room, mr, HDL_OP_WRITE, 8, 1));
		assert_int_equal(got.status, HDL_WC_SUCCESS);
		assert_true(got.mapped);
		assert_int_equal(ftruncate(fd, 0), 0);
		got = tell(o, task_on(room, mr, rows[i].opcode, rows[i].length, 1));
		assert_int_equal(got.status, HDL_WC_REM_OP_ERR);
		assert_int_equal(got.detail, HDL_DETAIL_GONE);
		assert_int_equal(hdl_mr_deregister(mr), 0);
		munmap(room, ROOM);
		close(fd);
		reconnect(o);
	}
}

/* Once deregistration has returned, no byte changes, however busy the peer is. */
static void deregistration_waits_for_the_peer(void **state)
{
	struct owner *o = *state;
	unsigned char *copy = malloc(ROOM);
	for (uint32_t round = 0; round < 20; round++) {
		int fd;
		unsigned char *room = map_room(NULL, MAP_SHARED, &fd);
		struct hdl_mr *mr = enter(o, room, RIGHTS);
		struct task task = task_on(room, mr, HDL_OP_WRITE, round % 2 == 0 ? 8 : ROOM, 1);
		task.count = UINT32_MAX;
		say(o, task);
		while (first_word(room) < 50) /* it is at work */
			__builtin_ia32_pause();
		assert_int_equal(hdl_mr_deregister(mr), 0);
		memcpy(copy, room, ROOM);
		struct outcome got = hear(o);
		assert_int_equal(got.status, HDL_WC_REM_ACCESS_ERR);
		assert_memory_equal(copy, room, ROOM);
		assert_int_equal(first_word(room), got.done);
		munmap(room, ROOM);
		close(fd);
		reconnect(o);
	}
	free(copy);
}

/* The address is reused for other memory: what is written there arrives there, whether or not the
 * former registration was ended before. */
static void an_address_with_other_memory(void **state)
{
	struct owner *o = *state;
	for (int leave = 0; leave < 2; leave++) {
		int first_fd, fd;
		unsigned char *room = map_room(NULL, MAP_SHARED, &first_fd);
		struct hdl_mr *first = enter(o, room, RIGHTS);
		struct outcome got = tell(o, task_on(room, first, HDL_OP_WRITE, 8, 11));
		assert_int_equal(got.status, HDL_WC_SUCCESS);
		for (uint64_t turn = 0; turn < 6; turn++) {
			bool shared = (turn + (uint64_t)leave) % 2 == 0;
			if (!leave && turn == 0)
				assert_int_equal(hdl_mr_deregister(first), 0);
			assert_true(map_room(room, MAP_FIXED | (shared ? MAP_SHARED : MAP_PRIVATE),
			                     &fd) == room);
			struct hdl_mr *mr = enter(o, room, RIGHTS);
			got = tell(o, task_on(room, mr, HDL_OP_WRITE, 8, 20 + turn));
			assert_int_equal(got.status, HDL_WC_SUCCESS);
			assert_int_equal(first_word(room), 20 + turn);
			assert_int_equal(got.mapped, shared);
			got = tell(o, task_on(room, mr, HDL_OP_WRITE, ROOM, 30 + turn));
			assert_int_equal(got.status, HDL_WC_SUCCESS);
			assert_int_equal(first_word(room + ROOM - 8), 30 + turn);
			assert_int_equal(hdl_mr_deregister(mr), 0);
			close(fd);
		}
		uint64_t kept = 0;
		assert_int_equal(pread(first_fd, &kept, sizeof(kept), 0), sizeof(kept));
		assert_int_equal(kept, 11);
		if (leave)
			assert_int_equal(hdl_mr_deregister(first), 0);
		munmap(room, ROOM);
		close(first_fd);
	}
}

/* Does the kernel tell when memory is unmapped? (Containers often forbid it.) */
static bool kernel_tells(void)
{
	struct uffdio_api api = {.api = UFFD_API,
	                         .features = UFFD_FEATURE_EVENT_UNMAP |
	                                     UFFD_FEATURE_WP_HUGETLBFS_SHMEM};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	bool tells = fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0;
	if (fd >= 0)
		close(fd);
	return tells;
}

/* Does the owner hear that memory of @mr is gone, without any access or call? */
static bool hears_of_it(struct owner *o, struct hdl_mr *mr)
{
	struct hdl_event event;
	while (hdl_event_get(o->end.adapter, &event, 5000) == 0)
		if (event.type == HDL_EVENT_MEMORY_GONE)
			return event.u.key.v == hdl_mr_key(mr).v;
	return false;
}

enum unmap { UNMAP, COVER, MOVE, UNMAP_COUNT };

/* The second page of a room that the peer has mapped leaves the owner's address space: the owner
 * hears of it, the peer reaches what is there now and never the old page, and the rest of the room
 * stays usable, as does the page when it comes back. */
static void unmapped_pages_are_absent(void **state)
{
	struct owner *o = *state;
	if (!kernel_tells()) {
		print_message("the kernel does not tell when memory is unmapped\n");
		skip();
	}
	for (int i = 0; i < 2 * UNMAP_COUNT; i++) {
		enum unmap how = (enum unmap)(i / 2);
		const uint64_t page = 4096;
		int fd;
		unsigned char *room = make_room(i % 2 == 0 ? MEMORY_FILE : ALLOCATED, &fd);
		unsigned char *second = room + page;
		const unsigned char *elsewhere = NULL;
		struct hdl_mr *mr = enter(o, room, RIGHTS);
		struct outcome got = tell(o, task_on(room, mr, HDL_OP_WRITE, ROOM, 1));
		assert_int_equal(got.status, HDL_WC_SUCCESS);
		assert_true(got.mapped);
		if (how == UNMAP) {
			assert_int_equal(munmap(second, page), 0);
		} else if (how == COVER) {
			assert_true(mmap(second, page, PROT_READ | PROT_WRITE,
			                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == second);
		} else {
			elsewhere = mremap(
			        second, page, page, MREMAP_MAYMOVE | MREMAP_FIXED,
			        mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
			assert_true(elsewhere != MAP_FAILED && elsewhere != second);
		}
		assert_true(hears_of_it(o, mr));
		got = tell(o, task_on(second, mr, HDL_OP_WRITE, 8, 2));
		if (how == COVER) {
			assert_int_equal(got.status, HDL_WC_SUCCESS);
			assert_int_equal(first_word(second), 2);
		} else {
			assert_int_equal(got.status, HDL_WC_REM_OP_ERR);
			assert_int_equal(got.detail, HDL_DETAIL_GONE);
			reconnect(o);
		}
		uint64_t kept = 1;
		if (fd >= 0)
			assert_int_equal(pread(fd, &kept, sizeof(kept), (off_t)page), sizeof(kept));
		assert_int_equal(kept, 1);
		if (elsewhere != NULL)
			assert_int_equal(first_word(elsewhere), 1);
		got = tell(o, task_on(room, mr, HDL_OP_WRITE, 8, 3));
		assert_int_equal(got.status, HDL_WC_SUCCESS);
		assert_int_equal(first_word(room), 3);
		if (how != COVER)
			assert_true(mmap(second, page, PROT_READ | PROT_WRITE,
			                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == second);
		got = tell(o, task_on(second, mr, HDL_OP_WRITE, 8, 4));
		assert_int_equal(got.status, HDL_WC_SUCCESS);
		assert_int_equal(first_word(second), 4);
		assert_int_equal(hdl_mr_deregister(mr), 0);
		drop_room(i % 2 == 0 ? MEMORY_FILE : ALLOCATED, room, fd);
		if (elsewhere != NULL)
			munmap((void *)(uintptr_t)elsewhere, page);
	}
}

/* Private memory: what is protected fails, and is usable again without any call when the protection
 * has gone. */
static void protected_pages_come_back(void **state)
{
	struct owner *o = *state;
	int fd;
	unsigned char *room = make_room(PLAIN, &fd);
	struct hdl_mr *mr = enter(o, room, RIGHTS);
	assert_int_equal(mprotect(room, 4096, PROT_NONE), 0);
	struct outcome got = tell(o, task_on(room, mr, HDL_OP_WRITE, 8, 1));
	assert_int_equal(got.status, HDL_WC_REM_OP_ERR);
	assert_int_equal(got.detail, HDL_DETAIL_GONE);
	assert_true(hears_of_it(o, mr));
	reconnect(o);
	got = tell(o, task_on(room + 4096, mr, HDL_OP_WRITE, 8, 2));
	assert_int_equal(got.status, HDL_WC_SUCCESS);
	assert_int_equal(first_word(room + 4096), 2);
	assert_int_equal(mprotect(room, 4096, PROT_READ | PROT_WRITE), 0);
	got = tell(o, task_on(room, mr, HDL_OP_WRITE, 8, 3));
	assert_int_equal(got.status, HDL_WC_SUCCESS);
	assert_int_equal(first_word(room), 3);
	assert_int_equal(hdl_mr_deregister(mr), 0);
	drop_room(PLAIN, room, fd);
}

/* Memory that the peer maps: what the owner protects fails for the peer as well, and is usable
 * again when the protection has gone. It can be read as long as the owner can. */
static void protected_pages_of_a_mapping(void **state)
{
	struct owner *o = *state;
	for (int i = 0; i < 2; i++) {
		enum kind kind = i == 0 ? MEMORY_FILE : ALLOCATED;
		int fd;
		unsigned char *room = make_room(kind, &fd), *second = room + 4096;
		struct hdl_mr *mr = enter(o, room, RIGHTS);
		struct outcome got = tell(o, task_on(room, mr, HDL_OP_WRITE, ROOM, 1));
		assert_int_equal(got.status, HDL_WC_SUCCESS);
		assert_true(got.mapped);
		assert_int_equal(mprotect(second, 4096, PROT_READ), 0);
		got = tell(o, task_on(second, mr, HDL_OP_READ, 8, 0));
		assert_int_equal(got.status, HDL_WC_SUCCESS);
		assert_int_equal(got.value, 1);
		got = tell(o, task_on(second, mr, HDL_OP_WRITE, 8, 2));
		assert_int_equal(got.status, HDL_WC_REM_OP_ERR);
		assert_int_equal(got.detail, HDL_DETAIL_GONE);
		assert_int_equal(first_word(second), 1);
		assert_true(hears_of_it(o, mr));
		reconnect(o);
		assert_int_equal(mprotect(second, 4096, PROT_NONE), 0);
		got = tell(o, task_on(second, mr, HDL_OP_READ, 8, 0));
		assert_int_equal(got.status, HDL_WC_REM_OP_ERR);
		reconnect(o);
		got = tell(o, task_on(room, mr, HDL_OP_WRITE, 8, 3));
		assert_int_equal(got.status, HDL_WC_SUCCESS);
		assert_int_equal(first_word(room), 3);
		assert_int_equal(mprotect(second, 4096, PROT_READ | PROT_WRITE), 0);
		got = tell(o, task_on(second, mr, HDL_OP_WRITE, 8, 4));
		assert_int_equal(got.status, HDL_WC_SUCCESS);
		assert_int_equal(first_word(second), 4);
		assert_int_equal(hdl_mr_deregister(mr), 0);
		drop_room(kind, room, fd);
	}
}

/* The rights of pages before a hole are taken, and then the call fails. */
static void protected_up_to_a_hole(void **state)
{
	struct owner *o = *state;
	int fd;
	unsigned char *room = make_room(MEMORY_FILE, &fd);
	struct hdl_mr *mr = enter(o, room, RIGHTS);
	assert_true(tell(o, task_on(room, mr, HDL_OP_WRITE, 8, 1)).mapped);
	munmap(room + 4096, ROOM - 4096);
	assert_int_equal(mprotect(room, 8192, PROT_READ), -1);
	struct outcome got = tell(o, task_on(room, mr, HDL_OP_WRITE, 8, 2));
	assert_int_equal(got.status, HDL_WC_REM_OP_ERR);
	assert_int_equal(first_word(room), 1);
	reconnect(o);
	assert_int_equal(hdl_mr_deregister(mr), 0);
	munmap(room, 4096);
	close(fd);
}

static void *load_modules(void *stop)
{
	static const char *const names[] = {"libcrypto.so.3", "libfabric.so.1", "libglib-2.0.so.0"};
	for (unsigned i = 0; !atomic_load((atomic_bool *)stop); i++) {
		void *module = dlopen(names[i % 3], RTLD_NOW | RTLD_LOCAL);
		if (module != NULL)
			dlclose(module);
	}
	return NULL;
}

/* Import tables are changed while another thread loads modules: what the linker has not finished is
 * left alone. */
static void registered_while_modules_are_loaded(void **state)
{
	struct owner *o = *state;
	atomic_bool stop = false;
	pthread_t loader;
	int fd;
	unsigned char *room = make_room(MEMORY_FILE, &fd);
	assert_int_equal(pthread_create(&loader, NULL, load_modules, &stop), 0);
	for (int i = 0; i < 300; i++)
		assert_int_equal(hdl_mr_deregister(enter(o, room, RIGHTS)), 0);
	atomic_store(&stop, true);
	pthread_join(loader, NULL);
	drop_room(MEMORY_FILE, room, fd);
}

/* More mappings than a peer keeps, and more than the table holds. */
static void many_mappings(void **state)
{
	enum { MANY = 100 };
	struct owner *o = *state;
	unsigned char *rooms[MANY];
	struct hdl_mr *mrs[MANY];
	int fds[MANY];
	for (int i = 0; i < MANY; i++) {
		rooms[i] = map_room(NULL, MAP_SHARED, &fds[i]);
		mrs[i] = enter(o, rooms[i], RIGHTS);
	}
	for (int turn = 0; turn < 3 * MANY; turn++) {
		int i = turn * 7 % MANY;
		struct outcome got = tell(
		        o, task_on(rooms[i], mrs[i], HDL_OP_WRITE, 8, (uint64_t)(1000 + turn)));
		assert_int_equal(got.status, HDL_WC_SUCCESS);
		assert_int_equal(first_word(rooms[i]), 1000 + turn);
	}
	for (int i = 0; i < MANY; i++) {
		assert_int_equal(hdl_mr_deregister(mrs[i]), 0);
		munmap(rooms[i], ROOM);
		close(fds[i]);
	}
}

/* The peer's atomics, which it does itself, and ours, which our adapter does, on one counter. */
static void atomics_of_both_sides_add_up(void **state)
{
	enum { TIMES = 20000 };
	struct owner *o = *state;
	void *room;
	uint64_t *landing = calloc(1, ROOM);
	assert_int_equal(hdl_mem_alloc(ROOM, &room), 0);
	struct hdl_mr *mr = enter(o, room, RIGHTS), *own = enter(o, landing, RIGHTS);
	struct end self = o->end;
	struct hdl_qp *other = new_qp(&self);
	self.qp = new_qp(&self);
	connect_qp(self.qp, &(struct card){self.gid, hdl_qp_number(other)});
	connect_qp(other, &(struct card){self.gid, hdl_qp_number(self.qp)});
	struct task task = task_on(room, mr, HDL_OP_FETCH_ADD, 8, 1);
	struct hdl_sge piece = {(uint64_t)(uintptr_t)landing, 8, hdl_mr_key(own)};
	struct outcome ours = {0};
	task.count = TIMES;
	say(o, task);
	for (int i = 0; i < TIMES; i++)
		work(&self, &task, piece, &ours);
	struct outcome got = hear(o);
	assert_true(got.mapped);
	assert_int_equal(ours.done, TIMES);
	assert_int_equal(got.done, TIMES);
	assert_int_equal(first_word(room), 2 * TIMES);
	assert_int_equal(hdl_qp_destroy(self.qp), 0);
	assert_int_equal(hdl_qp_destroy(other), 0);
	assert_int_equal(hdl_mr_deregister(mr), 0);
	assert_int_equal(hdl_mr_deregister(own), 0);
	assert_int_equal(hdl_mem_free(room), 0);
	free(landing);
}

/* A peer that dies in the midst of writing holds nothing up. */
static void a_peer_that_is_killed(void **state)
{
	struct owner *o = *state;
	void *room;
	assert_int_equal(hdl_mem_alloc(ROOM, &room), 0);
	struct hdl_mr *mr = enter(o, room, RIGHTS);
	struct task task = task_on(room, mr, HDL_OP_WRITE, ROOM, 1);
	task.count = UINT32_MAX;
	say(o, task);
	while (first_word(room) < 50)
		__builtin_ia32_pause();
	kill(o->child, SIGKILL);
	assert_int_equal(hdl_mr_deregister(mr), 0);
	uint64_t last = first_word(room);
	siginfo_t info;
	assert_int_equal(waitid(P_PID, (id_t)o->child, &info, WEXITED | WNOWAIT), 0);
	assert_int_equal(first_word(room), last);
	assert_int_equal(hdl_mem_free(room), 0);
}

/* A program that had two pieces of shared memory registered with an adapter, one after the other,
 * and whose child still has all of its descriptors: it was made without fork handlers. The adapter
 * is closed, and munmap() waits for nobody who would have to hear of it. */
static void close_and_unmap(void)
{
	struct hdl_open_attr attr = {.on_node = true};
	struct hdl_adapter *adapter;
	struct hdl_pd *pd;
	struct hdl_mr *mr;
	int fd;
	unsigned char *former = map_room(NULL, MAP_SHARED, &fd);
	unsigned char *room = map_room(NULL, MAP_SHARED, &fd);
	if (hdl_open(&attr, &adapter) != 0 || hdl_pd_create(adapter, &pd) != 0 ||
	    hdl_mr_register(pd, former, ROOM, RIGHTS, &mr) != 0 ||
	    hdl_mr_reregister(mr, pd, room, ROOM, RIGHTS) != 0)
		_exit(1);
	pid_t child = _Fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	if (hdl_mr_deregister(mr) != 0 || hdl_pd_destroy(pd) != 0 || hdl_close(adapter) != 0)
		_exit(2);
	alarm(30); /* should it wait */
	_exit(munmap(former, ROOM) == 0 && munmap(room, ROOM) == 0 && kill(child, SIGKILL) == 0
	              ? 0
	              : 3);
}

static void unmapping_waits_for_no_child(void **state)
{
	(void)state;
	int status;
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0)
		close_and_unmap();
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void what_the_allocator_refuses(void **state)
{
	(void)state;
	void *room;
	int here;
	assert_int_equal(hdl_mem_alloc(0, &room), -HDL_EINVAL);
	assert_int_equal(hdl_mem_alloc((1ull << 40) + 1, &room), -HDL_EINVAL);
	assert_int_equal(hdl_mem_alloc(1, NULL), -HDL_EINVAL);
	assert_int_equal(hdl_mem_free(NULL), -HDL_EINVAL);
	assert_int_equal(hdl_mem_free(&here), -HDL_EINVAL);
	assert_int_equal(hdl_mem_alloc(1, &room), 0);
	assert_int_equal((uintptr_t)room % 4096, 0);
	assert_int_equal(first_word(room), 0);
	assert_int_equal(hdl_mem_free((char *)room + 1), -HDL_EINVAL);
	assert_int_equal(hdl_mem_free(room), 0);
	assert_int_equal(hdl_mem_free(room), -HDL_EINVAL);

	struct rlimit before, less;
	assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
	less = before;
	less.rlim_cur = 1ull << 30;
	assert_int_equal(setrlimit(RLIMIT_AS, &less), 0);
	int result = hdl_mem_alloc(1ull << 31, &room);
	assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
	assert_int_equal(result, -HDL_ENOMEM);
}

int main(void)
{
#define SCENARIO(f) cmocka_unit_test_setup_teardown(f, owner_setup, owner_teardown)
	const struct CMUnitTest tests[] = {
	        SCENARIO(every_kind_of_memory_works),
	        SCENARIO(a_file_cut_off_is_memory_that_has_gone),
	        SCENARIO(deregistration_waits_for_the_peer),
	        SCENARIO(an_address_with_other_memory),
	        SCENARIO(unmapped_pages_are_absent),
	        SCENARIO(protected_pages_come_back),
	        SCENARIO(protected_pages_of_a_mapping),
	        SCENARIO(protected_up_to_a_hole),
	        SCENARIO(registered_while_modules_are_loaded),
	        SCENARIO(many_mappings),
	        SCENARIO(atomics_of_both_sides_add_up),
	        SCENARIO(a_peer_that_is_killed),
	        cmocka_unit_test(unmapping_waits_for_no_child),
	        cmocka_unit_test(what_the_allocator_refuses),
	};
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests_name("mapped-memory", tests, NULL, NULL);
}
