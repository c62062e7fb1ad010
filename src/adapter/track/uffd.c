/* Tracking by userfaultfd in write-protect mode. With UFFD_USER_MODE_ONLY it needs no privilege,
 * and system calls get EFAULT on pages that are protected or absent. The view is shared memory,
 * so that Linux 5.19 is needed. One descriptor and one thread of the process serve all ranges: a
 * process may have few descriptors, and the kernel joins neighbouring mappings only if they have
 * the same one. The thread never waits for anything, because the thread that faults may hold any
 * lock of ours. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <heddle/error.h>

#include "adapter/track/track.h"
#include "base/fd.h"
#include "base/thread.h"

/* Of those that begin and end ranges, and with them the thread, which takes the second lock. */
static pthread_mutex_t uffd_life = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t uffd_lock = PTHREAD_MUTEX_INITIALIZER;
/* The ranges, by the addresses of their views. With the lock. */
static struct track **tracked;
static uint32_t uffd_count, uffd_room;
static pthread_t resolver;
static int uffd = -1, uffd_bell = -1;
static _Atomic bool uffd_quits;

static void uffd_close(void)
{
	if (uffd >= 0)
		close(uffd);
	if (uffd_bell >= 0)
		close(uffd_bell);
	uffd = uffd_bell = -1;
	free(tracked);
	tracked = NULL;
	uffd_count = uffd_room = 0;
}

void track_uffd_in_child(void)
{
	pthread_mutex_init(&uffd_life, NULL);
	pthread_mutex_init(&uffd_lock, NULL);
	uffd_close();
}

static bool uffd_wp(struct track *track, uint64_t page, uint64_t count, bool protect)
{
	struct uffdio_writeprotect wp = {
	        .range = {(uintptr_t)track->view + page * TRACK_PAGE, count * TRACK_PAGE},
	        .mode = protect ? UFFDIO_WRITEPROTECT_MODE_WP : 0};
	int result;
	do
		result = ioctl(uffd, UFFDIO_WRITEPROTECT, &wp);
	while (result != 0 && errno == EAGAIN);
	return result == 0;
}

static void uffd_wake(struct track *track, uint64_t page, uint64_t count)
{
	struct uffdio_range range = {(uintptr_t)track->view + page * TRACK_PAGE,
	                             count * TRACK_PAGE};
	ioctl(uffd, UFFDIO_WAKE, &range);
}

/* The place of the first range that ends behind @address. With the lock. */
static uint32_t uffd_place(uintptr_t address)
{
	uint32_t low = 0, high = uffd_count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		const struct track *track = tracked[middle];
		if (address - (uintptr_t)track->view < track->bytes ||
		    address < (uintptr_t)track->view)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/* With the lock: the range cannot be closed. */
static void uffd_resolve(const struct uffd_msg *msg)
{
	uintptr_t address = (uintptr_t)msg->arg.pagefault.address;
	uint32_t place = uffd_place(address);
	sigset_t mask;
	if (msg->event != UFFD_EVENT_PAGEFAULT || place == uffd_count ||
	    address < (uintptr_t)tracked[place]->view)
		return;
	struct track *track = tracked[place];
	uint64_t page = (address - (uintptr_t)track->view) / TRACK_PAGE;
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

static void *uffd_thread(void *context)
{
	struct pollfd fds[2] = {{.fd = uffd, .events = POLLIN},
	                        {.fd = uffd_bell, .events = POLLIN}};
	(void)context;
	while (!atomic_load(&uffd_quits)) {
		struct uffd_msg msgs[16];
		(void)poll(fds, 2, -1);
		pthread_mutex_lock(&uffd_lock);
		ssize_t got = read(fds[0].fd, msgs, sizeof(msgs));
		for (ssize_t i = 0; i < got / (ssize_t)sizeof(msgs[0]); i++)
			uffd_resolve(&msgs[i]);
		pthread_mutex_unlock(&uffd_lock);
	}
	return NULL;
}

/* False: not here. */
static bool uffd_start(void)
{
	struct uffdio_api api = {.api = UFFD_API,
	                         .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP |
	                                     UFFD_FEATURE_MISSING_SHMEM |
	                                     UFFD_FEATURE_WP_HUGETLBFS_SHMEM};
	uffd = fd_aside(
	        (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY));
	uffd_bell = fd_aside(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	atomic_store(&uffd_quits, false);
	bool started = uffd >= 0 && uffd_bell >= 0 && ioctl(uffd, UFFDIO_API, &api) == 0 &&
	               thread_start(&resolver, uffd_thread, NULL) == 0;
	if (!started)
		uffd_close();
	return started;
}

/* Both with the lock. */
static bool uffd_enter(struct track *track)
{
	if (uffd_count == uffd_room) {
		uint32_t room = uffd_room != 0 ? 2 * uffd_room : 64;
		struct track **more = realloc(tracked, room * sizeof(struct track *));
		if (more == NULL)
			return false;
		tracked = more;
		uffd_room = room;
	}
	uint32_t place = uffd_place((uintptr_t)track->view);
	memmove(tracked + place + 1, tracked + place,
	        (uffd_count - place) * sizeof(struct track *));
	tracked[place] = track;
	uffd_count++;
	return true;
}

static void uffd_leave(struct track *track)
{
	uint32_t place = uffd_place((uintptr_t)track->view);
	assert(place < uffd_count && tracked[place] == track);
	uffd_count--;
	memmove(tracked + place, tracked + place + 1,
	        (uffd_count - place) * sizeof(struct track *));
}

/* The view faults from now on. False: not here, or there is no mapping left. */
static bool uffd_register(struct track *track)
{
	struct uffdio_register range = {.range = {(uintptr_t)track->view, track->bytes},
	                                .mode = UFFDIO_REGISTER_MODE_WP |
	                                        (track->lazy ? UFFDIO_REGISTER_MODE_MISSING : 0)};
	if (ioctl(uffd, UFFDIO_REGISTER, &range) != 0)
		return false;
	/* A page that a store has put there before would never fault. */
	return track->lazy ? track_pages_clear(track, 0, track->pages)
	                   : uffd_wp(track, 0, track->pages, true);
}

/* End the thread if nobody needs it. With the first lock only. */
static void uffd_stop(void)
{
	uint64_t one = 1;
	if (uffd_count > 0 || uffd < 0)
		return;
	atomic_store(&uffd_quits, true);
	ssize_t done = write(uffd_bell, &one, sizeof(one));
	(void)done;
	pthread_join(resolver, NULL);
	uffd_close();
}

static int uffd_begin(struct track *track)
{
	int result = -HDL_EIO;
	pthread_mutex_lock(&uffd_life);
	if (uffd >= 0 || uffd_start()) {
		pthread_mutex_lock(&uffd_lock);
		/* The thread must know the range before it faults. */
		result = uffd_enter(track) ? 0 : -HDL_ENOMEM;
		if (result == 0 && !uffd_register(track)) {
			result = errno == ENOMEM ? -HDL_ENOMEM : -HDL_EIO;
			uffd_leave(track);
		}
		pthread_mutex_unlock(&uffd_lock);
		uffd_stop();
	}
	pthread_mutex_unlock(&uffd_life);
	return result;
}

static void uffd_end(struct track *track)
{
	struct uffdio_range range = {(uintptr_t)track->view, track->bytes};
	pthread_mutex_lock(&uffd_life);
	pthread_mutex_lock(&uffd_lock);
	uffd_leave(track);
	ioctl(uffd, UFFDIO_UNREGISTER, &range);
	pthread_mutex_unlock(&uffd_lock);
	uffd_stop();
	pthread_mutex_unlock(&uffd_life);
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
	return track_pages_clear(track, page, count);
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
