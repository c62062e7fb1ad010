/* The thread that fetches absent pages. It is not the thread that resolves faults, because it may
 * wait for the drive lock and for the network. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "adapter/track/track.h"
#include "base/fd.h"
#include "base/thread.h"

/* Of those that begin and end ranges, and with them the thread, which takes the second lock. No
 * one waits for fetching with the first. */
static pthread_mutex_t fetch_life = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t fetch_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t fetch_free = PTHREAD_COND_INITIALIZER;
/* Those that want pages: pushed by fault handlers, which take no lock, and taken all at once. */
static struct track *_Atomic pushed;
static struct track *list; /* taken; with the lock */
static struct track *busy; /* the thread works on this one, without the lock */
static uint32_t users;
static pthread_t fetcher;
static _Atomic int fetch_bell = -1;
static _Atomic bool fetch_quits;

void track_fetch_in_child(void)
{
	int bell = atomic_exchange(&fetch_bell, -1);
	pthread_mutex_init(&fetch_life, NULL);
	pthread_mutex_init(&fetch_lock, NULL);
	atomic_store(&pushed, NULL);
	list = busy = NULL;
	users = 0;
	if (bell >= 0)
		close(bell);
}

static void fetch_wake(void)
{
	uint64_t one = 1;
	long done = syscall(SYS_write, atomic_load(&fetch_bell), &one, sizeof(one));
	(void)done; /* EAGAIN: it is awake */
}

void track_fetch(struct track *track)
{
	if (!atomic_exchange(&track->wanted, true)) {
		struct track *first = atomic_load(&pushed);
		do
			track->wanted_next = first;
		while (!atomic_compare_exchange_weak(&pushed, &first, track));
		fetch_wake();
	}
}

/* Move what was pushed to the end of the list, the first first. With the lock. */
static void fetch_take(void)
{
	struct track *last = atomic_exchange(&pushed, NULL), *in_order = NULL;
	while (last != NULL) {
		struct track *before = last->wanted_next;
		last->wanted_next = in_order;
		in_order = last;
		last = before;
	}
	struct track **end = &list;
	while (*end != NULL)
		end = &(*end)->wanted_next;
	*end = in_order;
}

/* Fetch what is wanted of @track. */
static void fetch_wanted(struct track *track)
{
	unsigned char bytes[TRACK_PAGE];
	sigset_t mask;
	for (uint64_t page = 0; page < track->pages; page++) {
		track_lock(track, &mask);
		const uint8_t *next =
		        memchr(track->states + page, TRACK_FETCHING, track->pages - page);
		bool orphaned = track->orphaned;
		track_unlock(track, &mask);
		if (next == NULL)
			return;
		page = (uint64_t)(next - track->states);
		if (orphaned || !track->source.fetch(track->source.context, page * TRACK_PAGE,
		                                     bytes, TRACK_PAGE)) {
			memset(bytes, 0, sizeof(bytes));
			atomic_fetch_add_explicit(&track->misses, 1, memory_order_relaxed);
		}
		atomic_fetch_add_explicit(&track->fetches, 1, memory_order_relaxed);
		track_place(track, page * TRACK_PAGE, bytes, TRACK_PAGE);
	}
}

static void *fetch_thread(void *context)
{
	(void)context;
	struct pollfd bell = {.fd = atomic_load(&fetch_bell), .events = POLLIN};
	while (!atomic_load(&fetch_quits)) {
		uint64_t count;
		poll(&bell, 1, -1);
		ssize_t got = read(bell.fd, &count, sizeof(count));
		(void)got;
		pthread_mutex_lock(&fetch_lock);
		for (fetch_take(); list != NULL; fetch_take()) {
			busy = list;
			list = busy->wanted_next;
			atomic_store(&busy->wanted, false); /* it may be pushed again */
			pthread_mutex_unlock(&fetch_lock);
			fetch_wanted(busy);
			pthread_mutex_lock(&fetch_lock);
			busy = NULL;
			pthread_cond_broadcast(&fetch_free);
		}
		pthread_mutex_unlock(&fetch_lock);
	}
	return NULL;
}

static bool fetch_start(void)
{
	int bell = fd_aside(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (bell < 0)
		return false;
	atomic_store(&fetch_bell, bell);
	atomic_store(&fetch_quits, false);
	bool started = thread_start(&fetcher, fetch_thread, NULL) == 0;
	if (!started) {
		atomic_store(&fetch_bell, -1);
		close(bell);
	}
	return started;
}

bool track_fetch_begin(void)
{
	pthread_mutex_lock(&fetch_life);
	bool started = users > 0 || fetch_start();
	users += started;
	pthread_mutex_unlock(&fetch_life);
	return started;
}

void track_fetch_end(struct track *track)
{
	sigset_t mask;
	/* Whoever opens another range does not wait for this: it may hold what fetching needs. */
	pthread_mutex_lock(&fetch_lock);
	while (busy == track)
		pthread_cond_wait(&fetch_free, &fetch_lock);
	/* It stays wanted, so that no late fault pushes it again. */
	track_lock(track, &mask);
	atomic_store(&track->wanted, true);
	track_unlock(track, &mask);
	fetch_take();
	struct track **at = &list;
	while (*at != NULL && *at != track)
		at = &(*at)->wanted_next;
	if (*at == track)
		*at = track->wanted_next;
	pthread_mutex_unlock(&fetch_lock);
	pthread_mutex_lock(&fetch_life);
	if (--users == 0) {
		atomic_store(&fetch_quits, true);
		fetch_wake();
		pthread_join(fetcher, NULL);
		close(atomic_exchange(&fetch_bell, -1));
	}
	pthread_mutex_unlock(&fetch_life);
}
