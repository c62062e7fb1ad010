/* poll(2), select(2), epoll_wait(2) and the like, for programs that wait for completion channels
 * among other descriptors. If a channel is among them, the wait goes to hdl_poll() or
 * hdl_epoll_wait(), so that the thread drives the adapter and receives from its peers itself, as it
 * does in ibv_get_cq_event(). All other waits go to the C library.
 *
 * Which descriptors are channels, and which are epolls that contain one, is remembered by number,
 * as a hint. A descriptor that was created in a way we do not see (dup(2), a system call of the
 * program's own) still works, through the adapter's thread. A number that means something else by
 * now works, too; it only costs a needless drive of the adapter. */
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include "compat/compat.h"

#define MOST_FDS 65536 /* higher numbers are not remembered */

/* 1: the descriptor with this number is a channel, or an epoll that contains one. */
static _Atomic uint8_t leads_to_us[MOST_FDS];
static _Atomic uint32_t channels; /* how many are open: if none, nothing is looked up */
static struct hdl_adapter *_Atomic waited_for;

static bool preload_wait_is_ours(int fd)
{
	return fd >= 0 && fd < MOST_FDS &&
	       atomic_load_explicit(&leads_to_us[fd], memory_order_relaxed) != 0;
}

static void remember(int fd, bool ours)
{
	if (fd >= 0 && fd < MOST_FDS)
		atomic_store_explicit(&leads_to_us[fd], ours, memory_order_relaxed);
}

static bool nobody_waits(void)
{
	return atomic_load_explicit(&channels, memory_order_relaxed) == 0;
}

static struct hdl_adapter *the_adapter(void)
{
	return atomic_load_explicit(&waited_for, memory_order_acquire);
}

void compat_wait_opened(struct hdl_adapter *adapter, int fd)
{
	atomic_store_explicit(&waited_for, adapter, memory_order_release);
	remember(fd, true);
	if (preload_wait_is_ours(fd))
		atomic_fetch_add_explicit(&channels, 1, memory_order_relaxed);
}

void compat_wait_closing(int fd)
{
	if (preload_wait_is_ours(fd))
		atomic_fetch_sub_explicit(&channels, 1, memory_order_relaxed);
	remember(fd, false);
}

void compat_wait_forget(void)
{
	atomic_store_explicit(&channels, 0, memory_order_relaxed);
	for (int fd = 0; fd < MOST_FDS; fd++)
		if (preload_wait_is_ours(fd))
			remember(fd, false);
}

void compat_wait_closed(int fd)
{
	if (preload_wait_is_ours(fd))
		remember(fd, false);
}

/* As the C library returns it. */
static int as_c_library(int result)
{
	if (result >= 0)
		return result;
	errno = -result;
	return -1;
}

/* NULL, which means for ever, if @timeout_ms is negative. */
static const struct timespec *in_ms(int timeout_ms, struct timespec *space)
{
	*space = (struct timespec){.tv_sec = timeout_ms / 1000,
	                           .tv_nsec = timeout_ms % 1000 * 1000000L};
	return timeout_ms < 0 ? NULL : space;
}

/* --- poll --- */

static bool any_of(const struct pollfd *fds, nfds_t count)
{
	if (nobody_waits() || fds == NULL || count > MOST_FDS)
		return false;
	for (nfds_t i = 0; i < count; i++)
		if (preload_wait_is_ours(fds[i].fd))
			return true;
	return false;
}

int compat_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
	struct timespec space;
	if (!any_of(fds, count))
		return poll(fds, count, timeout_ms);
	return as_c_library(
	        hdl_poll(the_adapter(), fds, (uint32_t)count, in_ms(timeout_ms, &space), NULL));
}

int compat_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
                 const sigset_t *sigmask)
{
	if (!any_of(fds, count))
		return ppoll(fds, count, timeout, sigmask);
	return as_c_library(hdl_poll(the_adapter(), fds, (uint32_t)count, timeout, sigmask));
}

int compat_poll_chk(struct pollfd *fds, nfds_t count, int timeout_ms, size_t room)
{
	if (room / sizeof(*fds) < count)
		abort(); /* as the C library does, which has a separate function for it */
	return compat_poll(fds, count, timeout_ms);
}

int compat_ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
                     const sigset_t *sigmask, size_t room)
{
	if (room / sizeof(*fds) < count)
		abort();
	return compat_ppoll(fds, count, timeout, sigmask);
}

/* --- select --- */

static bool is_in(int fd, const fd_set *set)
{
	return set != NULL && FD_ISSET(fd, set);
}

/* The members of the sets in the form of poll(2). Returns how many; 0 also if none of them is
 * ours. */
static uint32_t as_polled(int count, const fd_set *in, const fd_set *out, const fd_set *except,
                          struct pollfd fds[FD_SETSIZE])
{
	uint32_t members = 0;
	bool ours = false;
	if (nobody_waits() || count < 0 || count > FD_SETSIZE)
		return 0;
	for (int fd = 0; fd < count; fd++) {
		short events =
		        (short)((is_in(fd, in) ? POLLIN : 0) | (is_in(fd, out) ? POLLOUT : 0) |
		                (is_in(fd, except) ? POLLPRI : 0));
		if (events == 0)
			continue;
		fds[members++] = (struct pollfd){.fd = fd, .events = events};
		ours = ours || preload_wait_is_ours(fd);
	}
	return ours ? members : 0;
}

/* Put a member into the sets, as select(2) does. Returns the number of sets. */
static int sort_in(const struct pollfd *one, fd_set *in, fd_set *out, fd_set *except)
{
	/* As on Linux: hang-ups and errors count as readable, and errors as writable. */
	const struct {
		fd_set *set;
		short asked, found;
	} sets[] = {{in, POLLIN, POLLIN | POLLHUP | POLLERR},
	            {out, POLLOUT, POLLOUT | POLLERR},
	            {except, POLLPRI, POLLPRI}};
	int count = 0;
	for (size_t i = 0; i < 3; i++) {
		if (sets[i].set == NULL || (one->events & sets[i].asked) == 0)
			continue;
		if ((one->revents & sets[i].found) != 0)
			count++;
		else
			FD_CLR(one->fd, sets[i].set);
	}
	return count;
}

int compat_pselect(int count, fd_set *in, fd_set *out, fd_set *except,
                   const struct timespec *timeout, const sigset_t *sigmask)
{
	struct pollfd fds[FD_SETSIZE];
	uint32_t members = as_polled(count, in, out, except, fds);
	if (members == 0)
		return pselect(count, in, out, except, timeout, sigmask);
	int result = hdl_poll(the_adapter(), fds, members, timeout, sigmask);
	if (result < 0)
		return as_c_library(result);
	bool strange = false; /* select(2) would not have returned for it, or not in this set */
	for (uint32_t i = 0; i < members; i++)
		strange = strange || (fds[i].revents & POLLNVAL) != 0 ||
		          ((fds[i].revents & POLLHUP) != 0 && (fds[i].events & POLLIN) == 0) ||
		          ((fds[i].revents & POLLERR) != 0 && fds[i].events == POLLPRI);
	if (strange)
		return pselect(count, in, out, except, timeout, sigmask);
	result = 0;
	for (uint32_t i = 0; i < members; i++)
		result += sort_in(&fds[i], in, out, except);
	return result;
}

int compat_select(int count, fd_set *in, fd_set *out, fd_set *except, struct timeval *timeout)
{
	struct pollfd fds[FD_SETSIZE];
	struct timespec space, before, after;
	if (as_polled(count, in, out, except, fds) == 0 ||
	    (timeout != NULL &&
	     (timeout->tv_sec < 0 || timeout->tv_usec < 0 || timeout->tv_usec >= 1000000)))
		return select(count, in, out, except, timeout);
	if (timeout == NULL)
		return compat_pselect(count, in, out, except, NULL, NULL);
	space = (struct timespec){.tv_sec = timeout->tv_sec, .tv_nsec = timeout->tv_usec * 1000};
	clock_gettime(CLOCK_MONOTONIC, &before);
	int result = compat_pselect(count, in, out, except, &space, NULL);
	int error = errno;
	clock_gettime(CLOCK_MONOTONIC, &after);
	/* Linux updates it to the time that is left. */
	int64_t left = timeout->tv_sec * 1000000 + timeout->tv_usec -
	               (after.tv_sec - before.tv_sec) * 1000000 -
	               (after.tv_nsec - before.tv_nsec) / 1000;
	left = left > 0 && result != 0 ? left : 0;
	*timeout = (struct timeval){.tv_sec = left / 1000000, .tv_usec = left % 1000000};
	errno = error;
	return result;
}

/* --- epoll --- */

int compat_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event)
{
	int result = epoll_ctl(epoll, operation, fd, event);
	if (result == 0 && operation != EPOLL_CTL_DEL && preload_wait_is_ours(fd))
		remember(epoll, true);
	return result;
}

int compat_epoll_pwait2(int epoll, struct epoll_event *events, int most,
                        const struct timespec *timeout, const sigset_t *sigmask)
{
	if (nobody_waits() || !preload_wait_is_ours(epoll))
		return epoll_pwait2(epoll, events, most, timeout, sigmask);
	return as_c_library(hdl_epoll_wait(the_adapter(), epoll, events, most, timeout, sigmask));
}

int compat_epoll_pwait(int epoll, struct epoll_event *events, int most, int timeout_ms,
                       const sigset_t *sigmask)
{
	struct timespec space;
	if (nobody_waits() || !preload_wait_is_ours(epoll))
		return epoll_pwait(epoll, events, most, timeout_ms, sigmask);
	return as_c_library(hdl_epoll_wait(the_adapter(), epoll, events, most,
	                                   in_ms(timeout_ms, &space), sigmask));
}

int compat_epoll_wait(int epoll, struct epoll_event *events, int most, int timeout_ms)
{
	return compat_epoll_pwait(epoll, events, most, timeout_ms, NULL);
}
