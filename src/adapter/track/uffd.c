/* Tracking by userfaultfd in write-protect mode. With UFFD_USER_MODE_ONLY it needs no privilege,
 * and system calls get EFAULT on pages that are protected or absent. The view is shared memory,
 * so that Linux 5.19 is needed. One thread of the process resolves the faults of all ranges. It
 * never waits for anything, because the thread that faults may hold any lock of ours. */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <heddle/error.h>

#include "adapter/track/track.h"
#include "base/fd.h"
#include "base/thread.h"

static pthread_mutex_t uffd_lock = PTHREAD_MUTEX_INITIALIZER;
static struct track *tracked[TRACK_MAX];
static uint32_t uffd_users;
static pthread_t resolver;
static int uffd_epoll = -1, uffd_bell = -1;
static _Atomic bool uffd_quits;

static void uffd_close(void)
{
	if (uffd_epoll >= 0)
		close(uffd_epoll);
	if (uffd_bell >= 0)
		close(uffd_bell);
	uffd_epoll = uffd_bell = -1;
}

void track_uffd_in_child(void)
{
	pthread_mutex_init(&uffd_lock, NULL);
	for (uint32_t i = 0; i < TRACK_MAX; i++) {
		if (tracked[i] != NULL)
			close(tracked[i]->uffd);
		tracked[i] = NULL;
	}
	uffd_users = 0;
	uffd_close();
}

static bool uffd_wp(struct track *track, uint64_t page, uint64_t count, bool protect)
{
	struct uffdio_writeprotect wp = {
	        .range = {(uintptr_t)track->view + page * TRACK_PAGE, count * TRACK_PAGE},
	        .mode = protect ? UFFDIO_WRITEPROTECT_MODE_WP : 0};
	int result;
	do
		result = ioctl(track->uffd, UFFDIO_WRITEPROTECT, &wp);
	while (result != 0 && errno == EAGAIN);
	return result == 0;
}

static void uffd_wake(struct track *track, uint64_t page, uint64_t count)
{
	struct uffdio_range range = {(uintptr_t)track->view + page * TRACK_PAGE,
	                             count * TRACK_PAGE};
	ioctl(track->uffd, UFFDIO_WAKE, &range);
}

static void uffd_resolve(struct track *track, const struct uffd_msg *msg)
{
	uint64_t page = (msg->arg.pagefault.address - (uintptr_t)track->view) / TRACK_PAGE;
	sigset_t mask;
	if (msg->event != UFFD_EVENT_PAGEFAULT || page >= track->pages)
		return;
	atomic_fetch_add_explicit(&track->faults, 1, memory_order_relaxed);
	track_lock(track, &mask);
	uint8_t state = track->states[page];
	if (state < TRACK_CLEAN) {
		track_want(track, page);
	} else if ((msg->arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP) == 0) {
		uffd_wake(track, page, 1); /* it has been shown meanwhile */
	} else {
		if (state == TRACK_CLEAN)
			track_stored(track, page);
		uffd_wp(track, page, 1, false);
	}
	track_unlock(track, &mask);
}

/* With uffd_lock: the range cannot be closed. */
static void uffd_hear(uint64_t index)
{
	struct uffd_msg msgs[16];
	struct track *track = index < TRACK_MAX ? tracked[index] : NULL;
	if (track == NULL)
		return;
	ssize_t got = read(track->uffd, msgs, sizeof(msgs));
	for (ssize_t i = 0; i < got / (ssize_t)sizeof(msgs[0]); i++)
		uffd_resolve(track, &msgs[i]);
}

static void *uffd_thread(void *context)
{
	(void)context;
	while (!atomic_load(&uffd_quits)) {
		struct epoll_event events[16];
		int count = epoll_wait(uffd_epoll, events, 16, -1);
		pthread_mutex_lock(&uffd_lock);
		for (int i = 0; i < count; i++)
			uffd_hear(events[i].data.u64);
		pthread_mutex_unlock(&uffd_lock);
	}
	return NULL;
}

static bool uffd_watch(int fd, uint64_t index)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = index};
	return epoll_ctl(uffd_epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

static bool uffd_start(void)
{
	uffd_epoll = fd_aside(epoll_create1(EPOLL_CLOEXEC));
	uffd_bell = fd_aside(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	atomic_store(&uffd_quits, false);
	bool started = uffd_epoll >= 0 && uffd_bell >= 0 && uffd_watch(uffd_bell, TRACK_MAX);
	started = started && thread_start(&resolver, uffd_thread, NULL) == 0;
	if (!started)
		uffd_close();
	return started;
}

/* The descriptor, for the view; false: not here. */
static bool uffd_register(struct track *track)
{
	struct uffdio_api api = {.api = UFFD_API,
	                         .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP |
	                                     UFFD_FEATURE_MISSING_SHMEM |
	                                     UFFD_FEATURE_WP_HUGETLBFS_SHMEM};
	struct uffdio_register range = {.range = {(uintptr_t)track->view, track->bytes},
	                                .mode = UFFDIO_REGISTER_MODE_WP |
	                                        (track->lazy ? UFFDIO_REGISTER_MODE_MISSING : 0)};
	track->uffd = fd_aside(
	        (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY));
	return track->uffd >= 0 && ioctl(track->uffd, UFFDIO_API, &api) == 0 &&
	       ioctl(track->uffd, UFFDIO_REGISTER, &range) == 0 &&
	       (track->lazy || uffd_wp(track, 0, track->pages, true));
}

static void uffd_leave(struct track *track)
{
	for (uint32_t i = 0; i < TRACK_MAX; i++)
		if (tracked[i] == track)
			tracked[i] = NULL;
}

static bool uffd_enter(struct track *track)
{
	for (uint32_t i = 0; i < TRACK_MAX; i++) {
		if (tracked[i] != NULL)
			continue;
		tracked[i] = track;
		if (uffd_watch(track->uffd, i))
			return true;
		tracked[i] = NULL;
		return false;
	}
	return false;
}

/* With the lock: end the thread if nobody needs it. Returns without the lock. */
static void uffd_drop(void)
{
	uint64_t one = 1;
	bool last = uffd_users == 0 && uffd_epoll >= 0;
	if (last) {
		atomic_store(&uffd_quits, true);
		ssize_t done = write(uffd_bell, &one, sizeof(one));
		(void)done;
	}
	pthread_mutex_unlock(&uffd_lock);
	if (last) {
		pthread_join(resolver, NULL);
		uffd_close();
	}
}

static int uffd_begin(struct track *track)
{
	int result = -HDL_EIO;
	if (uffd_register(track)) {
		pthread_mutex_lock(&uffd_lock);
		if (uffd_epoll >= 0 || uffd_start())
			result = uffd_enter(track) ? 0 : -HDL_ENOMEM;
		uffd_users += result == 0;
		uffd_drop();
	}
	if (result != 0 && track->uffd >= 0)
		close(track->uffd);
	return result;
}

static void uffd_end(struct track *track)
{
	pthread_mutex_lock(&uffd_lock);
	uffd_leave(track);
	close(track->uffd);
	uffd_users--;
	uffd_drop();
}

static bool uffd_protect(struct track *track, uint64_t page, uint64_t count)
{
	return uffd_wp(track, page, count, true);
}

static bool uffd_open(struct track *track, uint64_t page, uint64_t count)
{
	return uffd_wp(track, page, count, false);
}

/* The alias has put the page into the file. It is not in the view yet; when it gets there it is
 * protected. */
static bool uffd_show(struct track *track, uint64_t page, uint64_t count)
{
	bool shown = uffd_wp(track, page, count, true);
	uffd_wake(track, page, count);
	return shown;
}

/* Without its page in the file, an access is a missing fault. */
static bool uffd_hide(struct track *track, uint64_t page, uint64_t count)
{
	return madvise(track->alias + page * TRACK_PAGE, count * TRACK_PAGE, MADV_REMOVE) == 0;
}

static void uffd_reset(struct track *track)
{
	track_reset_states(track);
	if (track->lazy)
		uffd_hide(track, 0, track->pages);
	else
		uffd_wp(track, 0, track->pages, true);
}

const struct track_ops track_uffd = {.name = "userfaultfd",
                                     .begin = uffd_begin,
                                     .end = uffd_end,
                                     .protect = uffd_protect,
                                     .open = uffd_open,
                                     .show = uffd_show,
                                     .hide = uffd_hide,
                                     .reset = uffd_reset};
