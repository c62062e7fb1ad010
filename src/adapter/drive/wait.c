/* How an application thread waits for completions.
 *
 * A thread that sleeps in poll(2) on a channel's descriptor is woken indirectly: the peer rings the
 * bell, the adapter's thread wakes and drives, and that makes the descriptor readable. So a thread
 * that waits through the calls below waits for the bell itself, next to its own descriptors, and
 * drives; the adapter's thread ignores the bell in the meantime (take_bell()). A message wakes one
 * thread, not two.
 *
 *      hdl_channel_get()   drive, take an event      else sleep for the bell and the channel's
 *                          descriptor
 *      hdl_poll()          drive, poll(2) at once    else sleep for the bell and the caller's
 *                          descriptors
 *      hdl_epoll_wait()    drive, epoll_wait(2)      else sleep for the bell and the epoll's
 *                          descriptor
 *
 * Only one thread has the bell. Other threads that wait at the same time sleep on their own
 * descriptors, which the driving thread makes readable. When the thread with the bell returns to
 * its own work, the adapter's thread gets the bell back immediately, for the other threads
 * (give_bell()). If no thread waits, the adapter's thread checks within a millisecond whether the
 * application is still active (drive.c).
 *
 * A thread can be cancelled before it drives and while it sleeps, where a cleanup handler gives the
 * bell back, and nowhere in between (base/cancel.h): it would keep the bell, or the drive lock, and
 * nobody would drive any more. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "base/cancel.h"
#include "port/bell.h"

#define WAIT_EXTRA (1u + ENGINE_MAX_PORTS) /* descriptors of ours to wait for as well */
#define WAIT_STACK 64u                     /* descriptors of the caller without memory allocation */

/* A wait, and what it took from the adapter. */
struct waiting {
	struct hdl_adapter *adapter;
	struct pollfd *fds;             /* the caller's, followed by room for WAIT_EXTRA */
	uint32_t count;                 /* number of the caller's, */
	uint32_t all;                   /* and including ours */
	const struct timespec *timeout; /* NULL: none */
	uint64_t until_ns;              /* when the wait ends; 0: computed at the first sleep */
	uint64_t sleep_ns;              /* limit of the next sleep */
	int cancel;                     /* whether the thread can be cancelled while it sleeps */
	bool has_bell;
};

static bool is_time(const struct timespec *timeout)
{
	return timeout == NULL ||
	       (timeout->tv_sec >= 0 && timeout->tv_nsec >= 0 && timeout->tv_nsec < 1000000000);
}

/* Is the timeout zero, so that the call must not sleep? */
static bool is_at_once(const struct timespec *timeout)
{
	return timeout != NULL && timeout->tv_sec == 0 && timeout->tv_nsec == 0;
}

/* How much time is left for a sleep. The clock is not read before the first sleep. */
static uint64_t time_left(struct waiting *w)
{
	if (w->until_ns == UINT64_MAX || (w->timeout == NULL && w->until_ns == 0))
		return UINT64_MAX;
	uint64_t now = clock_now_ns();
	if (w->until_ns == 0) {
		uint64_t seconds = (uint64_t)w->timeout->tv_sec;
		w->until_ns = seconds < (UINT64_MAX - now) / 1000000000u - 1
		                      ? now + seconds * 1000000000u + (uint64_t)w->timeout->tv_nsec
		                      : UINT64_MAX;
	}
	return now < w->until_ns ? w->until_ns - now : 0;
}

/* We are about to sleep: take the bell, if no other thread has it. Drive the adapter once more, for
 * what arrived before that. */
static void take_bell(struct waiting *w)
{
	struct hdl_adapter *adapter = w->adapter;
	w->all = w->count;
	w->sleep_ns = time_left(w);
	adapter_lock(adapter);
	/* A thread that left a wait with longjmp() still has the bell. */
	w->has_bell = adapter->drive.has_thread &&
	              (adapter->drive.bell_holder != BELL_WAITER ||
	               pthread_equal(adapter->drive.bell_waiter, pthread_self()));
	if (!w->has_bell) {
		atomic_fetch_add_explicit(&adapter->drive.waiters, 1, memory_order_relaxed);
		adapter_unlock(adapter);
		return;
	}
	adapter_hand_bell(adapter, BELL_WAITER);
	adapter->drive.bell_waiter = pthread_self();
	/* Nothing that arrives wakes the adapter's thread any more, so give_bell() must. (The
	 * thread goes to sleep while it holds the lock.) */
	uint32_t sleeping = THREAD_SLEEPING;
	atomic_compare_exchange_strong_explicit(&adapter->drive.state, &sleeping, THREAD_ARMED,
	                                        memory_order_relaxed, memory_order_relaxed);
	adapter_arm(adapter);
	/* Work that was left for the application's next call is due now: that call may not come for
	 * a long time. */
	bool goes_on = engine_run(&adapter->engine) > 0;
	recorder_flush(adapter);
	bool stuck = adapter_is_stuck(adapter);
	w->fds[w->all++] = (struct pollfd){.fd = adapter->drive.bell, .events = POLLIN};
	for (uint32_t i = 0; i < adapter->net.port_count; i++) /* poll(2) skips negative ones */
		w->fds[w->all++] =
		        (struct pollfd){.fd = adapter->net.ports[i]->fd, .events = POLLIN};
	if (!engine_idle(&adapter->engine) || (goes_on && stuck))
		w->sleep_ns = 0;
	else if (stuck && w->sleep_ns > ADAPTER_STUCK_NS)
		w->sleep_ns = ADAPTER_STUCK_NS;
	adapter_unlock_to_wait(adapter); /* what is left is ours to do */
}

/* The sleep is over; @rang: the bell rang. */
static void give_bell(struct waiting *w, bool rang)
{
	struct hdl_adapter *adapter = w->adapter;
	if (!w->has_bell) {
		atomic_fetch_sub_explicit(&adapter->drive.waiters, 1, memory_order_relaxed);
		return;
	}
	if (rang)
		bell_hear(adapter->drive.bell);
	adapter_lock(adapter);
	if (rang)
		adapter->drive.lanes_armed = false;
	adapter_hand_bell(adapter, BELL_NOBODY);
	for (uint32_t i = 0; w->count + 1 + i < w->all && i < adapter->net.port_count; i++)
		if ((w->fds[w->count + 1 + i].revents & POLLIN) != 0)
			port_is_ready(adapter->net.ports[i]);
	bool others = atomic_load_explicit(&adapter->drive.waiters, memory_order_relaxed) > 0;
	if (others) {
		adapter_hand_bell(adapter, BELL_THREAD);
		adapter_arm(adapter);
		others = !engine_idle(&adapter->engine);
	}
	adapter_unlock(adapter);
	if (others)
		adapter_nudge(adapter);
	adapter_touch(adapter); /* the adapter's thread, if it sleeps, takes the bell back */
}

/* The thread was cancelled while it slept. */
static void bell_dropped(void *context)
{
	give_bell(context, true);
}

/* Sleep on the caller's descriptors and the bell, after take_bell(). Returns how many of the
 * caller's descriptors are ready; 0: none, but there may be something to drive, or the timeout has
 * passed; or a negative error. */
static int sleep_taken(struct waiting *w, const sigset_t *sigmask)
{
	int ready;
	struct timespec timeout = {.tv_sec = (time_t)(w->sleep_ns / 1000000000u),
	                           .tv_nsec = (long)(w->sleep_ns % 1000000000u)};
	pthread_cleanup_push(bell_dropped, w);
	cancel_restore(w->cancel);
	ready = ppoll(w->fds, w->all, w->sleep_ns == UINT64_MAX ? NULL : &timeout, sigmask);
	if (ready < 0)
		ready = -errno;
	cancel_forbid();
	pthread_cleanup_pop(0);
	give_bell(w, ready > 0 && w->has_bell && w->fds[w->count].revents != 0);
	for (uint32_t i = w->count; i < w->all && ready > 0; i++)
		ready -= w->fds[i].revents != 0;
	return ready;
}

static int sleep_once(struct waiting *w, const sigset_t *sigmask)
{
	take_bell(w);
	return sleep_taken(w, sigmask);
}

int adapter_wait(struct hdl_adapter *adapter, int fd, uint64_t until_ns, int cancel)
{
	struct pollfd fds[1 + WAIT_EXTRA] = {{.fd = fd, .events = POLLIN}};
	struct waiting w = {
	        .adapter = adapter, .fds = fds, .count = 1, .until_ns = until_ns, .cancel = cancel};
	return sleep_once(&w, NULL);
}

/* Drive before looking. Is there an event to find? */
static bool drive_first(struct hdl_adapter *adapter)
{
	adapter_poll(adapter);
	return atomic_load_explicit(&adapter->drive.readable, memory_order_relaxed) > 0;
}

static bool is_adapter(const struct hdl_adapter *adapter)
{
	return adapter != NULL && adapter->magic == MAGIC_ADAPTER;
}

/* Look at @fds without waiting. */
static int look_poll(struct pollfd *fds, uint32_t count)
{
	int ready = poll(fds, count, 0);
	return ready < 0 ? -errno : ready;
}

static int poll_all(struct waiting *w, const sigset_t *sigmask)
{
	for (bool last = is_at_once(w->timeout);; last = time_left(w) == 0) {
		int ready = drive_first(w->adapter) || last ? look_poll(w->fds, w->count) : 0;
		if (ready == 0 && !last)
			ready = sleep_once(w, sigmask);
		if (ready == 0 && !last && drive_first(w->adapter))
			ready = look_poll(w->fds, w->count);
		if (ready != 0 || last)
			return ready;
	}
}

/* poll_all() with allocated descriptors, which are freed even if the thread is cancelled. */
static int poll_many(struct waiting *w, const sigset_t *sigmask)
{
	int ready;
	pthread_cleanup_push(free, w->fds);
	ready = poll_all(w, sigmask);
	pthread_cleanup_pop(0);
	return ready;
}

int hdl_poll(struct hdl_adapter *adapter, struct pollfd *fds, uint32_t count,
             const struct timespec *timeout, const void *sigmask)
{
	struct pollfd few[WAIT_STACK + WAIT_EXTRA];
	struct waiting w = {.adapter = adapter, .fds = few, .count = count, .timeout = timeout};
	if (!is_adapter(adapter) || (fds == NULL && count > 0) || !is_time(timeout))
		return -HDL_EINVAL;
	pthread_testcancel();
	if (count > WAIT_STACK)
		w.fds = calloc((size_t)count + WAIT_EXTRA, sizeof(*fds));
	if (w.fds == NULL)
		return -HDL_ENOMEM;
	if (count > 0)
		memcpy(w.fds, fds, count * sizeof(*fds));
	w.cancel = cancel_forbid();
	int ready = count > WAIT_STACK ? poll_many(&w, sigmask) : poll_all(&w, sigmask);
	cancel_restore(w.cancel);
	for (uint32_t i = 0; i < count && ready >= 0; i++)
		fds[i].revents = w.fds[i].revents;
	if (w.fds != few)
		free(w.fds);
	return ready;
}

/* Sleep as epoll_pwait(2) does: another thread has the bell. An event wakes only one of the threads
 * that wait for one epoll. */
static int sleep_in_epoll(struct waiting *w, struct epoll_event *events, int max,
                          const sigset_t *sigmask)
{
	int ready;
	struct timespec timeout = {.tv_sec = (time_t)(w->sleep_ns / 1000000000u),
	                           .tv_nsec = (long)(w->sleep_ns % 1000000000u)};
	uint64_t ms = w->sleep_ns / 1000000u + 1;
	pthread_cleanup_push(bell_dropped, w);
	cancel_restore(w->cancel);
	ready = epoll_pwait2(w->fds[0].fd, events, max, w->sleep_ns == UINT64_MAX ? NULL : &timeout,
	                     sigmask);
	if (ready < 0 && errno == ENOSYS) /* Linux before 5.11 */
		ready = epoll_pwait(w->fds[0].fd, events, max,
		                    w->sleep_ns == UINT64_MAX ? -1
		                    : ms < INT_MAX            ? (int)ms
		                                              : INT_MAX,
		                    sigmask);
	if (ready < 0)
		ready = -errno;
	cancel_forbid();
	pthread_cleanup_pop(0);
	give_bell(w, false);
	return ready;
}

static int epoll_all(struct waiting *w, struct epoll_event *events, int max,
                     const sigset_t *sigmask)
{
	bool last = is_at_once(w->timeout), found = drive_first(w->adapter);
	for (;;) {
		int ready = found || last ? epoll_wait(w->fds[0].fd, events, max, 0) : 0;
		if (ready != 0 || last)
			return ready < 0 ? -errno : ready;
		take_bell(w);
		ready = w->has_bell ? sleep_taken(w, sigmask)
		                    : sleep_in_epoll(w, events, max, sigmask);
		if (ready < 0 || (ready > 0 && !w->has_bell))
			return ready;
		found = drive_first(w->adapter) || ready > 0;
		last = time_left(w) == 0; /* even if other channels keep having events */
	}
}

int hdl_epoll_wait(struct hdl_adapter *adapter, int epoll, struct epoll_event *events, int max,
                   const struct timespec *timeout, const void *sigmask)
{
	struct pollfd fds[1 + WAIT_EXTRA] = {{.fd = epoll, .events = POLLIN}};
	struct waiting w = {.adapter = adapter, .fds = fds, .count = 1, .timeout = timeout};
	if (!is_adapter(adapter) || !is_time(timeout))
		return -HDL_EINVAL;
	pthread_testcancel();
	w.cancel = cancel_forbid();
	int ready = epoll_all(&w, events, max, sigmask);
	cancel_restore(w.cancel);
	return ready;
}
