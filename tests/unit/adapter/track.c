/* One suite over the three trackers (AP9): what is stored arrives, only that is sent, absent
 * pages are fetched, system calls can be prepared, and nothing ever hangs or dies.
 *
 *   unit-track [KIND]      userfaultfd, protect or compare; all of them by default
 *
 * A kind that does not work here is skipped, unless it was named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <heddle/error.h>

#include "adapter/adapter.h"
#include "adapter/track/track.h"
#include "base/prng.h"

#define PAGES 16u
#define BYTES (PAGES * TRACK_PAGE)

static const char *const names[TRACK_KINDS] = {"any", "userfaultfd", "protect", "compare"};
static bool works[TRACK_KINDS];

/* The peer's memory, and what was sent to it. */
struct other {
	unsigned char memory[BYTES];
	uint64_t sent, runs, fetches;
	uint64_t budget; /* runs that it takes */
	bool dead;
};

static int sink(void *context, uint64_t offset, const void *data, uint64_t bytes)
{
	struct other *peer = context;
	if (peer->budget == 0)
		return -HDL_EAGAIN;
	peer->budget--;
	assert_true(offset <= BYTES && bytes <= BYTES - offset && bytes > 0);
	memcpy(peer->memory + offset, data, bytes);
	peer->sent += bytes;
	peer->runs++;
	return 0;
}

static bool fetch(void *context, uint64_t offset, void *to, uint64_t bytes)
{
	struct other *peer = context;
	if (peer->dead)
		return false;
	memcpy(to, peer->memory + offset, bytes);
	peer->fetches++;
	return true;
}

static struct other *peer_make(void)
{
	struct other *peer = calloc(1, sizeof(*peer));
	assert_non_null(peer);
	peer->budget = UINT64_MAX;
	return peer;
}

static struct track *track_make(enum track_kind kind, struct other *peer)
{
	struct track *track;
	struct track_source source = {fetch, peer};
	assert_int_equal(track_open(kind, BYTES, peer != NULL ? &source : NULL, &track), 0);
	return track;
}

#define EACH_KIND(kind)                                                     \
	for (enum track_kind kind = TRACK_UFFD; kind < TRACK_KINDS; kind++) \
		if (works[kind])

static void ap9_what_is_stored_arrives_and_nothing_else_is_sent(void **state)
{
	(void)state;
	EACH_KIND(kind)
	{
		struct other *peer = peer_make();
		struct track *track = track_make(kind, NULL);
		volatile unsigned char *view = track->view;
		view[5] = 1;
		view[TRACK_PAGE * 3 + 100] = 2;
		memset((unsigned char *)track->view + TRACK_PAGE * 7 - 10, 3, 20);
		peer->memory[6] = 77; /* the peer's own store, beside ours */
		assert_int_equal(track_collect(track, sink, peer), 0);
		assert_int_equal(peer->memory[5], 1);
		assert_int_equal(peer->memory[6], 77);
		assert_int_equal(peer->memory[TRACK_PAGE * 3 + 100], 2);
		for (int i = -10; i < 10; i++)
			assert_int_equal(peer->memory[(int)TRACK_PAGE * 7 + i], 3);
		assert_true(peer->sent <= 22 + TRACK_GAP * 3);
		uint64_t sent = peer->sent;
		assert_int_equal(track_collect(track, sink, peer), 0);
		view[5] = 1; /* the value that is there */
		assert_int_equal(track_collect(track, sink, peer), 0);
		assert_int_equal(peer->sent, sent);
		view[5] = 9;
		assert_int_equal(track_collect(track, sink, peer), 0);
		assert_int_equal(peer->memory[5], 9);
		track_close(track);
		free(peer);
	}
}

static void runs_end_where_bytes_stay_the_same(void **state)
{
	(void)state;
	EACH_KIND(kind)
	{
		struct other *peer = peer_make();
		struct track *track = track_make(kind, NULL);
		track->view[0] = track->view[TRACK_GAP] = 1;         /* one run: a gap of GAP - 1 */
		track->view[100] = track->view[101 + TRACK_GAP] = 1; /* two */
		track->view[BYTES - 1] = 1;
		assert_int_equal(track_collect(track, sink, peer), 0);
		assert_int_equal(peer->runs, 4);
		assert_int_equal(peer->sent, TRACK_GAP + 1 + 3);
		assert_memory_equal(peer->memory, track->view, BYTES);
		track_close(track);
		free(peer);
	}
}

static void what_finds_no_room_stays_changed(void **state)
{
	(void)state;
	EACH_KIND(kind)
	{
		struct other *peer = peer_make();
		struct track *track = track_make(kind, NULL);
		for (uint32_t i = 0; i < PAGES; i++)
			for (uint32_t k = 0; k < 4; k++)
				track->view[i * TRACK_PAGE + k * 1000] = (unsigned char)(i + 1);
		for (uint64_t budget = 1; budget < 10; budget++) {
			peer->budget = budget;
			assert_int_equal(track_collect(track, sink, peer), -HDL_EAGAIN);
			/* A store on top of what was not sent, and one beside it. */
			track->view[BYTES - TRACK_PAGE + budget] = (unsigned char)budget;
			track->view[BYTES - TRACK_PAGE] = (unsigned char)budget;
		}
		peer->budget = UINT64_MAX;
		assert_int_equal(track_collect(track, sink, peer), 0);
		assert_memory_equal(peer->memory, track->view, BYTES);
		uint64_t runs = peer->runs;
		assert_int_equal(track_collect(track, sink, peer), 0);
		assert_int_equal(peer->runs, runs);
		track_close(track);
		free(peer);
	}
}

/* Both sides store at random; bytes of ours that were not sent survive what comes from the peer. */
static void against_a_model(void **state)
{
	(void)state;
	EACH_KIND(kind)
	{
		struct other *peer = peer_make();
		struct track *track = track_make(kind, NULL);
		unsigned char *model = calloc(1, BYTES), *unsent = calloc(1, BYTES);
		struct prng prng;
		prng_seed(&prng, 42 + kind);
		for (uint32_t step = 0; step < 4000; step++) {
			uint64_t at = prng_below(&prng, BYTES - 64);
			uint64_t bytes = 1 + prng_below(&prng, 64);
			unsigned char data[64];
			prng_fill(&prng, data, sizeof(data));
			switch (prng_below(&prng, 8)) {
			case 0:
				assert_int_equal(track_collect(track, sink, peer), 0);
				memset(unsent, 0, BYTES);
				assert_memory_equal(peer->memory, model, BYTES);
				break;
			case 1: /* refresh: the peer's stores, which it made elsewhere */
				for (uint64_t i = at; i < at + bytes; i++)
					if (!unsent[i])
						model[i] = peer->memory[i] = data[i - at];
				track_place(track, at, peer->memory + at, bytes);
				break;
			default:
				memcpy(track->view + at, data, bytes);
				for (uint64_t i = at; i < at + bytes; i++) {
					unsent[i] |= model[i] != data[i - at];
					model[i] = data[i - at];
				}
			}
			if (step % 100 == 0)
				assert_memory_equal(track->view, model, BYTES);
		}
		track_close(track);
		free(peer);
		free(model);
		free(unsent);
	}
}

static void ap9_a_load_fetches_an_absent_page(void **state)
{
	(void)state;
	EACH_KIND(kind)
	{
		struct other *peer = peer_make();
		for (uint32_t i = 0; i < BYTES; i++)
			peer->memory[i] = (unsigned char)(i >> 8 ^ i);
		struct track *track = track_make(kind, peer);
		volatile unsigned char *view = track->view;
		assert_int_equal(view[3 * TRACK_PAGE + 77], peer->memory[3 * TRACK_PAGE + 77]);
		if (kind != TRACK_COMPARE)
			assert_int_equal(peer->fetches, 1);
		/* A store to an absent page: the rest of it is the peer's. */
		view[5 * TRACK_PAGE] = 200;
		assert_int_equal(view[5 * TRACK_PAGE + 1], peer->memory[5 * TRACK_PAGE + 1]);
		assert_int_equal(track_collect(track, sink, peer), 0);
		assert_int_equal(peer->sent, 1);
		assert_memory_equal(track->view, peer->memory, BYTES);
		/* The range stands for other memory: nothing of the old one is seen or sent. */
		view[0] = 99;
		memset(peer->memory, 0x5a, BYTES);
		track_forget(track);
		if (kind == TRACK_COMPARE)
			track_place(track, 0, peer->memory, BYTES);
		assert_int_equal(view[0], 0x5a);
		assert_int_equal(view[9 * TRACK_PAGE], 0x5a);
		assert_int_equal(track_collect(track, sink, peer), 0);
		assert_int_equal(peer->sent, 1);
		track_close(track);
		free(peer);
	}
}

/* A load is as fresh as the age that was chosen; what was stored and not sent stays. */
static void ap9_old_pages_are_fetched_again(void **state)
{
	(void)state;
	EACH_KIND(kind)
	{
		struct other *peer = peer_make();
		struct track *track = track_make(kind, peer);
		volatile unsigned char *view = track->view;
		for (unsigned round = 1; round < 20 && kind != TRACK_COMPARE; round++) {
			memset(peer->memory, (int)round, BYTES - TRACK_PAGE);
			view[BYTES - 1] = (unsigned char)(100 + round); /* in a page of its own */
			track_expire(track);
			assert_int_equal(view[0], round);
			assert_int_equal(view[5 * TRACK_PAGE], round);
			assert_int_equal(view[BYTES - 1], 100 + round);
			view[7 * TRACK_PAGE] = (unsigned char)(50 + round);
			assert_int_equal(track_collect(track, sink, peer), 0);
			assert_int_equal(peer->memory[7 * TRACK_PAGE], 50 + round);
			assert_int_equal(peer->memory[7 * TRACK_PAGE + 1], round);
			assert_int_equal(peer->memory[BYTES - 1], 100 + round);
		}
		track_close(track);
		free(peer);
	}
}

static void ap9_a_dead_peer_is_zeroes_and_never_a_signal(void **state)
{
	(void)state;
	EACH_KIND(kind)
	{
		struct other *peer = peer_make();
		memset(peer->memory, 7, BYTES);
		struct track *track = track_make(kind, peer);
		volatile unsigned char *view = track->view;
		assert_int_equal(view[0], 7);
		peer->dead = true;
		if (kind != TRACK_COMPARE) {
			assert_int_equal(view[TRACK_PAGE], 0);
			assert_int_equal(track->misses, 1);
		}
		track_orphan(track);
		assert_int_equal(view[0], 7); /* the last known byte */
		if (kind != TRACK_COMPARE)
			assert_int_equal(view[2 * TRACK_PAGE], 0);
		memset(track->view, 1, BYTES);
		track_close(track);
		free(peer);
	}
}

static sem_t answer;

/* A peer that does not answer before the test says so; not for ever. */
static bool fetch_late(void *context, uint64_t offset, void *to, uint64_t bytes)
{
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec++;
	(void)sem_timedwait(&answer, &until);
	return fetch(context, offset, to, bytes);
}

static void preparing_has_a_limit_of_time(void **state)
{
	(void)state;
	for (enum track_kind kind = TRACK_UFFD; kind <= TRACK_PROTECT; kind++) {
		if (!works[kind])
			continue;
		struct other *peer = peer_make();
		struct track *track;
		struct track_source source = {fetch_late, peer};
		assert_int_equal(sem_init(&answer, 0, 0), 0);
		assert_int_equal(track_open(kind, BYTES, &source, &track), 0);
		assert_int_equal(track_prepare(track, 0, 10, false, clock_now_ns()),
		                 -HDL_ETIMEDOUT);
		sem_post(&answer);
		assert_int_equal(track_prepare(track, 0, 10, false, UINT64_MAX), 0);
		track_close(track);
		sem_destroy(&answer);
		free(peer);
	}
}

static void system_calls_need_preparing(void **state)
{
	(void)state;
	EACH_KIND(kind)
	{
		struct other *peer = peer_make();
		memset(peer->memory, 'p', BYTES);
		struct track *track = track_make(kind, peer);
		int ends[2];
		char text[8192];
		memset(text, 'x', sizeof(text));
		assert_int_equal(pipe(ends), 0);
		if (kind != TRACK_COMPARE) {
			assert_int_equal(write(ends[1], track->view, 10), -1); /* absent */
			assert_int_equal(errno, EFAULT);
		}
		assert_int_equal(track_prepare(track, 0, 10, false, UINT64_MAX), 0);
		assert_int_equal(write(ends[1], track->view, 10), 10);
		if (kind != TRACK_COMPARE) {
			assert_int_equal(read(ends[0], track->view, 10), -1); /* protected */
			assert_int_equal(errno, EFAULT);
		}
		assert_int_equal(write(ends[1], text, sizeof(text)), sizeof(text));
		assert_int_equal(read(ends[0], text, 10), 10);
		assert_int_equal(track_prepare(track, 100, sizeof(text), true, UINT64_MAX), 0);
		assert_int_equal(read(ends[0], track->view + 100, sizeof(text)), sizeof(text));
		assert_int_equal(track_collect(track, sink, peer), 0);
		assert_int_equal(peer->memory[99], 'p');
		assert_int_equal(peer->memory[100], 'x');
		assert_int_equal(peer->memory[100 + sizeof(text) - 1], 'x');
		assert_int_equal(peer->memory[100 + sizeof(text)], 'p');
		assert_int_equal(track_prepare(track, BYTES, 1, true, UINT64_MAX), -HDL_EINVAL);
		assert_int_equal(track_prepare(track, 1, UINT64_MAX, true, UINT64_MAX),
		                 -HDL_EINVAL);
		close(ends[0]);
		close(ends[1]);
		track_close(track);
		free(peer);
	}
}

/* Threads that store while others collect: nothing is lost. */
#define COUNTS 200000u

struct storm {
	struct track *track;
	uint32_t which;
};

static void *storm_thread(void *context)
{
	struct storm *storm = context;
	_Atomic uint32_t *at = (_Atomic uint32_t *)(void *)storm->track->view;
	for (uint32_t i = 1; i <= COUNTS; i++)
		atomic_store_explicit(&at[(i % PAGES) * TRACK_PAGE / 4 + storm->which], i,
		                      memory_order_relaxed);
	return NULL;
}

static void stores_during_collection_are_not_lost(void **state)
{
	(void)state;
	EACH_KIND(kind)
	{
		struct other *peer = peer_make();
		struct track *track = track_make(kind, NULL);
		struct storm storms[2] = {{track, 0}, {track, 100}};
		pthread_t threads[2];
		for (int i = 0; i < 2; i++)
			assert_int_equal(
			        pthread_create(&threads[i], NULL, storm_thread, &storms[i]), 0);
		for (uint32_t i = 0; i < 200; i++) {
			peer->budget = i % 3 == 0 ? 5 : UINT64_MAX;
			track_collect(track, sink, peer);
			uint32_t seen;
			memcpy(&seen, peer->memory, 4);
			assert_true(seen <= COUNTS);
		}
		pthread_join(threads[0], NULL);
		pthread_join(threads[1], NULL);
		peer->budget = UINT64_MAX;
		assert_int_equal(track_collect(track, sink, peer), 0);
		assert_memory_equal(peer->memory, track->view, BYTES);
		track_close(track);
		free(peer);
	}
}

static void ap9_a_child_of_fork_has_no_mapping(void **state)
{
	(void)state;
	EACH_KIND(kind)
	{
		struct track *track = track_make(kind, NULL);
		track->view[0] = 1;
		pid_t child = fork();
		if (child == 0) {
			signal(SIGSEGV, SIG_DFL);
			signal(SIGBUS, SIG_DFL);
			track->view[1] = 1;
			_exit(0);
		}
		int status;
		assert_int_equal(waitpid(child, &status, 0), child);
		/* A sanitizer turns the signal into an exit code. */
		assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
		assert_int_equal(track->view[1], 0);
		track_close(track);
	}
}

static sigjmp_buf landing;
static volatile sig_atomic_t landed;

static void on_segv(int number)
{
	(void)number;
	landed++;
	siglongjmp(landing, 1);
}

static void other_faults_go_to_the_handler_of_the_program(void **state)
{
	(void)state;
	struct sigaction mine = {.sa_handler = on_segv, .sa_flags = SA_NODEFER}, before;
	if (!works[TRACK_PROTECT])
		skip();
	sigaction(SIGSEGV, &mine, &before);
	struct track *track = track_make(TRACK_PROTECT, NULL); /* installs ours on top */
	unsigned char *closed =
	        mmap(NULL, TRACK_PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	landed = 0;
	if (sigsetjmp(landing, 1) == 0)
		*(volatile unsigned char *)closed = 1;
	assert_int_equal(landed, 1);
	track->view[0] = 1; /* this one is ours */
	assert_int_equal(landed, 1);
	munmap(closed, TRACK_PAGE);
	track_close(track);
	sigaction(SIGSEGV, &before, NULL);
}

/* The engine copies under the lock that fetching needs: it is told that the page is not there. */
static void copies_of_ours_do_not_wait_for_absent_pages(void **state)
{
	(void)state;
	if (!works[TRACK_PROTECT])
		skip();
	struct other *peer = peer_make();
	memset(peer->memory, 7, BYTES);
	struct track *track = track_make(TRACK_PROTECT, peer);
	struct own_memory own = fault_own_memory();
	unsigned char to[8] = {0};
	assert_false(own.copy_short(to, track->view, sizeof(to)));
	assert_int_equal(peer->fetches, 0);
	assert_int_equal(track->view[0], 7);
	assert_true(own.copy_short(to, track->view, sizeof(to)));
	/* A page that is only protected is no obstacle. */
	assert_true(own.copy_short(track->view + 8, "engine", 6));
	assert_int_equal(track_collect(track, sink, peer), 0);
	assert_memory_equal(peer->memory + 8, "engine", 6);
	track_close(track);
	free(peer);
}

/* Mappings run out: mprotect() may give pages of the view other rights only in long runs. */
static const struct track *scarce;
static uint64_t least_pages;

int __real_mprotect(void *at, size_t bytes, int rights);
int __wrap_mprotect(void *at, size_t bytes, int rights);

int __wrap_mprotect(void *at, size_t bytes, int rights)
{
	if (scarce != NULL && (unsigned char *)at >= scarce->view &&
	    (unsigned char *)at < scarce->view + scarce->bytes && (rights & PROT_WRITE) != 0 &&
	    bytes < least_pages * TRACK_PAGE) {
		errno = ENOMEM;
		return -1;
	}
	return __real_mprotect(at, bytes, rights);
}

static void mappings_that_run_out_make_longer_runs(void **state)
{
	(void)state;
	if (!works[TRACK_PROTECT])
		skip();
	for (least_pages = 2; least_pages <= PAGES; least_pages *= 2) {
		struct other *peer = peer_make();
		struct track *track = track_make(TRACK_PROTECT, NULL);
		scarce = track;
		for (uint32_t i = 0; i < PAGES; i += 2)
			track->view[i * TRACK_PAGE] = (unsigned char)(i + 1);
		assert_true(track->grain >= least_pages);
		assert_int_equal(track_collect(track, sink, peer), 0);
		assert_memory_equal(peer->memory, track->view, BYTES);
		assert_int_equal(peer->sent, PAGES / 2);
		scarce = NULL;
		track_close(track);
		free(peer);
	}
}

/* --- what happens at the same time --- */

static sem_t begun, opened;
static bool late;

static bool sleeps(long thread)
{
	char path[64], line[256];
	snprintf(path, sizeof(path), "/proc/self/task/%ld/stat", thread);
	FILE *file = fopen(path, "re");
	if (file == NULL)
		return true; /* it has ended */
	const char *at = fgets(line, sizeof(line), file) != NULL ? strrchr(line, ')') : NULL;
	fclose(file);
	return at == NULL || at[2] == 'S';
}

/* Do all other threads sleep? */
static bool all_sleep(void)
{
	long self = syscall(SYS_gettid);
	bool all = true;
	DIR *dir = opendir("/proc/self/task");
	assert_non_null(dir);
	for (struct dirent *entry; all && (entry = readdir(dir)) != NULL;) {
		long thread = strtol(entry->d_name, NULL, 10);
		all = thread == 0 || thread == self || sleeps(thread);
	}
	closedir(dir);
	return all;
}

/* Fetching does not end before another range has been opened, as it may wait for a lock that is
 * held there; not for ever. */
static bool fetch_after_opening(void *context, uint64_t offset, void *to, uint64_t bytes)
{
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 5;
	sem_post(&begun);
	late = sem_timedwait(&opened, &until) != 0;
	return fetch(context, offset, to, bytes);
}

struct closing {
	struct track *track;
	_Atomic long thread;
};

static void *closing_thread(void *context)
{
	struct closing *closing = context;
	atomic_store(&closing->thread, syscall(SYS_gettid));
	track_close(closing->track);
	return NULL;
}

/* Closing one waits for the thread that fetches, opening another does not wait for closing. */
static void a_range_is_opened_while_another_is_closed(void **state)
{
	(void)state;
	for (enum track_kind kind = TRACK_UFFD; kind <= TRACK_PROTECT; kind++) {
		if (!works[kind])
			continue;
		struct other *peer = peer_make();
		struct closing closing = {0};
		struct track *track;
		struct track_source source = {fetch_after_opening, peer};
		pthread_t closer;
		assert_int_equal(sem_init(&begun, 0, 0), 0);
		assert_int_equal(sem_init(&opened, 0, 0), 0);
		assert_int_equal(track_open(kind, BYTES, &source, &closing.track), 0);
		assert_int_equal(track_prepare(closing.track, 0, 10, false, clock_now_ns()),
		                 -HDL_ETIMEDOUT);
		assert_int_equal(sem_wait(&begun), 0);
		assert_int_equal(pthread_create(&closer, NULL, closing_thread, &closing), 0);
		while (atomic_load(&closing.thread) == 0 || !sleeps(closing.thread))
			sched_yield();
		assert_int_equal(track_open(kind, BYTES, &source, &track), 0);
		sem_post(&opened);
		pthread_join(closer, NULL);
		assert_false(late);
		track_close(track);
		sem_destroy(&begun);
		sem_destroy(&opened);
		free(peer);
	}
}

/* What happens at the very moment when a range gets its memory, or the bell of a thread is made. */
static unsigned char *place;
static _Atomic bool storing;
static bool stores_at_once;
static _Atomic uint64_t stores;
static _Atomic bool enough;

void *__real_mmap64(void *at, size_t bytes, int rights, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *at, size_t bytes, int rights, int flags, int fd, off_t offset);
int __real_eventfd(unsigned count, int flags);
int __wrap_eventfd(unsigned count, int flags);

void *__wrap_mmap64(void *at, size_t bytes, int rights, int flags, int fd, off_t offset)
{
	void *map = __real_mmap64(at, bytes, rights, flags, fd, offset);
	if (stores_at_once && map == place && (flags & MAP_SHARED) != 0)
		place[5] = 'x';
	return map;
}

int __wrap_eventfd(unsigned count, int flags)
{
	/* The thread that stores meets a fault, and that is handled as far as it can be; or it
	 * meets none. */
	uint64_t most = atomic_load(&stores) + 1000000;
	for (unsigned looks = 0; storing && looks < 100 && atomic_load(&stores) < most;) {
		looks = all_sleep() ? looks + 1 : 0;
		sched_yield();
	}
	return __real_eventfd(count, flags);
}

static void *storing_thread(void *context)
{
	volatile unsigned char *at = context;
	atomic_store(&storing, true);
	do
		at[5]++;
	while (atomic_fetch_add(&stores, 1) > 0 && !atomic_load(&enough));
	return NULL;
}

static unsigned char *place_make(void)
{
	void *at = __real_mmap64(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
	                         -1, 0);
	assert_true(at != MAP_FAILED);
	return at;
}

static bool fetch_said(void *context, uint64_t offset, void *to, uint64_t bytes)
{
	sem_post(&begun);
	return fetch(context, offset, to, bytes);
}

/* The program stores while its addresses become a tracked range: it waits for the first page, and
 * goes on. */
static void a_store_while_the_range_is_made_is_answered(void **state)
{
	(void)state;
	if (!works[TRACK_UFFD])
		skip(); /* nothing else leaves the addresses mapped meanwhile */
	struct other *peer = peer_make();
	struct track *track;
	struct track_source source = {fetch_said, peer};
	struct timespec until;
	pthread_t storer;
	place = place_make();
	assert_int_equal(sem_init(&begun, 0, 0), 0);
	atomic_store(&stores, 1);
	atomic_store(&enough, false);
	assert_int_equal(pthread_create(&storer, NULL, storing_thread, place), 0);
	while (atomic_load(&stores) < 1000)
		sched_yield();
	assert_int_equal(track_open_at(TRACK_UFFD, BYTES, &source, place, &track), 0);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 5;
	assert_int_equal(sem_timedwait(&begun, &until), 0);
	atomic_store(&enough, true);
	pthread_join(storer, NULL);
	atomic_store(&storing, false);
	track_close(track);
	munmap(place, BYTES);
	sem_destroy(&begun);
	free(peer);
}

/* One store before the pages are protected: the page is fetched all the same, and the next store
 * is noticed. */
static void a_store_before_the_pages_are_protected_hides_none(void **state)
{
	(void)state;
	for (enum track_kind kind = TRACK_UFFD; kind <= TRACK_PROTECT; kind++) {
		if (!works[kind])
			continue;
		struct other *peer = peer_make();
		struct track *track;
		struct track_source source = {fetch, peer};
		memset(peer->memory, 'p', BYTES);
		place = place_make();
		stores_at_once = true;
		assert_int_equal(track_open_at(kind, BYTES, &source, place, &track), 0);
		stores_at_once = false;
		volatile unsigned char *view = place;
		assert_int_equal(view[6], 'p');
		view[7] = 's';
		assert_int_equal(track_collect(track, sink, peer), 0);
		assert_int_equal(peer->memory[7], 's');
		track_close(track);
		munmap(place, BYTES);
		free(peer);
	}
}

#define ROOM_BYTES (8 * TRACK_PAGE) /* of no other test: two such ranges, then, share a slab */

/* A range in the room of another shows nothing of it, however the program locks its memory. */
static void a_room_is_clear_for_the_next_range(void **state)
{
	(void)state;
	static const int locks[] = {0, MCL_FUTURE | MCL_ONFAULT, MCL_FUTURE};
	for (unsigned i = 0; i < 2 * sizeof(locks) / sizeof(locks[0]); i++)
		EACH_KIND(kind)
		{
			struct other *peer = peer_make();
			struct track *keep[2], *track;
			struct track_source source = {fetch, peer};
			bool fetches = i % 2 == 0;
			memset(peer->memory, fetches ? 'p' : 0, BYTES);
			int locked = locks[i / 2] != 0 ? mlockall(locks[i / 2]) : 0;
			for (int k = 0; k < 2; k++)
				assert_int_equal(track_open(kind, ROOM_BYTES, NULL, &keep[k]), 0);
			assert_int_equal(track_open(kind, ROOM_BYTES, NULL, &track), 0);
			memcpy(track->view, "secret", 6);
			track_close(track);
			assert_int_equal(
			        track_open(kind, ROOM_BYTES, fetches ? &source : NULL, &track), 0);
			volatile unsigned char *view = track->view;
			for (uint64_t at = 0; at < ROOM_BYTES; at++)
				assert_int_equal(view[at], peer->memory[at]);
			view[3] = '!';
			assert_int_equal(track_collect(track, sink, peer), 0);
			assert_int_equal(peer->memory[3], '!');
			/* What is old is fetched again. */
			peer->memory[4] = '?';
			track_expire(track);
			if (fetches && kind != TRACK_COMPARE)
				assert_int_equal(view[4], '?');
			track_close(track);
			for (int k = 0; k < 2; k++)
				track_close(keep[k]);
			if (locked == 0)
				munlockall();
			free(peer);
		}
}

/* The kernel refuses to take away the next mapping, as it does when there are too many. */
static bool stays;

int __real_munmap(void *at, size_t bytes);
int __wrap_munmap(void *at, size_t bytes);

int __wrap_munmap(void *at, size_t bytes)
{
	if (stays) {
		stays = false;
		errno = ENOMEM;
		return -1;
	}
	return __real_munmap(at, bytes);
}

static void a_room_that_is_still_mapped_is_not_used_again(void **state)
{
	(void)state;
	EACH_KIND(kind)
	{
		struct track *keep[2], *track;
		for (int k = 0; k < 2; k++)
			assert_int_equal(track_open(kind, 4 * TRACK_PAGE, NULL, &keep[k]), 0);
		assert_int_equal(track_open(kind, 4 * TRACK_PAGE, NULL, &track), 0);
		unsigned char *left = track->view;
		stays = true;
		track_close(track);
		assert_false(stays);
		assert_int_equal(track_open(kind, 4 * TRACK_PAGE, NULL, &track), 0);
		track->view[0] = 's';
		assert_int_equal(left[0], 0);
		track_close(track);
		assert_int_equal(munmap(left, 4 * TRACK_PAGE), 0);
		for (int k = 0; k < 2; k++)
			track_close(keep[k]);
	}
}

static void limits_are_reached(void **state)
{
	(void)state;
	struct track *track, *all[TRACK_MAX];
	uint32_t count = 0;
	assert_int_equal(track_open(TRACK_ANY, 0, NULL, &track), -HDL_EINVAL);
	assert_int_equal(track_open(TRACK_ANY, 100, NULL, &track), -HDL_EINVAL);
	assert_int_equal(track_open(TRACK_ANY, TRACK_MAX_BYTES + TRACK_PAGE, NULL, &track),
	                 -HDL_EINVAL);
	assert_int_equal(track_open(TRACK_COMPARE, TRACK_COMPARE_BYTES + TRACK_PAGE, NULL, &track),
	                 -HDL_EINVAL);
	assert_int_equal(track_open(TRACK_KINDS, TRACK_PAGE, NULL, &track), -HDL_EINVAL);
	while (count < TRACK_MAX && track_open(TRACK_COMPARE, TRACK_PAGE, NULL, &all[count]) == 0)
		count++;
	assert_int_equal(count, TRACK_MAX);
	assert_int_equal(track_open(TRACK_COMPARE, TRACK_PAGE, NULL, &track), -HDL_ENOMEM);
	while (count > 0)
		track_close(all[--count]);
}

int main(int argc, char **argv)
{
	bool named = false;
	for (enum track_kind kind = TRACK_UFFD; kind < TRACK_KINDS; kind++) {
		struct track *track;
		bool wanted = argc > 1 && strcmp(argv[1], names[kind]) == 0;
		named |= wanted;
		if (argc > 1 && !wanted)
			continue;
		works[kind] = track_open(kind, TRACK_PAGE, NULL, &track) == 0;
		if (works[kind])
			track_close(track);
		else if (wanted)
			return 77;
		fprintf(stderr, "%s: %s\n", names[kind], works[kind] ? "works" : "not here");
	}
	if (argc > 1 && !named)
		return 2;
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(ap9_what_is_stored_arrives_and_nothing_else_is_sent),
	        cmocka_unit_test(runs_end_where_bytes_stay_the_same),
	        cmocka_unit_test(what_finds_no_room_stays_changed),
	        cmocka_unit_test(against_a_model),
	        cmocka_unit_test(ap9_a_load_fetches_an_absent_page),
	        cmocka_unit_test(ap9_old_pages_are_fetched_again),
	        cmocka_unit_test(ap9_a_dead_peer_is_zeroes_and_never_a_signal),
	        cmocka_unit_test(system_calls_need_preparing),
	        cmocka_unit_test(preparing_has_a_limit_of_time),
	        cmocka_unit_test(stores_during_collection_are_not_lost),
	        cmocka_unit_test(ap9_a_child_of_fork_has_no_mapping),
	        cmocka_unit_test(other_faults_go_to_the_handler_of_the_program),
	        cmocka_unit_test(copies_of_ours_do_not_wait_for_absent_pages),
	        cmocka_unit_test(mappings_that_run_out_make_longer_runs),
	        cmocka_unit_test(a_range_is_opened_while_another_is_closed),
	        cmocka_unit_test(a_store_while_the_range_is_made_is_answered),
	        cmocka_unit_test(a_store_before_the_pages_are_protected_hides_none),
	        cmocka_unit_test(a_room_is_clear_for_the_next_range),
	        cmocka_unit_test(a_room_that_is_still_mapped_is_not_used_again),
	        cmocka_unit_test(limits_are_reached),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
