#include "adapter/reach/unmapped.h"

#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "base/fd.h"
#include "base/thread.h"

static void tell_absent(void *context, struct hdl_key key)
{
	adapter_event(context, HDL_EVENT_MEMORY_GONE, HDL_DETAIL_GONE, NULL, key);
}

/* The owner is told, and no peer has the pages afterwards: those that are copying have read the
 * table of segments before it changed, inside a guard. With the drive lock. */
static void unmapped_act(struct hdl_adapter *adapter, const struct span *ranges, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		segment_forget(&adapter->peers.segments, ranges[i].addr, ranges[i].length);
	if (count > 0)
		adapter_quiesce(adapter);
	for (uint32_t i = 0; i < count; i++)
		tpt_segment_absent(&adapter->tpt, ranges[i].addr, ranges[i].length, tell_absent,
		                   adapter);
}

static void unmapped_note(struct unmapped *unmapped, struct span range)
{
	struct span *last = &unmapped->ranges[UNMAPPED_RANGES - 1];
	if (unmapped->count < UNMAPPED_RANGES) {
		unmapped->ranges[unmapped->count++] = range;
		return;
	}
	uint64_t first = range.addr < last->addr ? range.addr : last->addr;
	uint64_t range_end = range.addr + range.length, end = last->addr + last->length;
	*last = (struct span){first, (range_end > end ? range_end : end) - first};
}

static void *unmapped_main(void *context)
{
	struct hdl_adapter *adapter = context;
	struct unmapped *unmapped = &adapter->peers.unmapped;
	struct pollfd fds[2] = {{.fd = adapter->peers.segments.watch, .events = POLLIN},
	                        {.fd = unmapped->quit, .events = POLLIN}};
	bool waiting = false; /* for the drive lock */
	while (poll(fds, 2, waiting ? 1 : -1) < 0 || fds[1].revents == 0) {
		struct span range;
		pthread_mutex_lock(&unmapped->lock);
		while (segment_hear(fds[0].fd, &range))
			unmapped_note(unmapped, range);
		if (unmapped->count > 0 && lock_try(&adapter->drive.lock)) {
			unmapped_act(adapter, unmapped->ranges, unmapped->count);
			unmapped->count = 0;
			adapter_unlock(adapter);
		}
		waiting = unmapped->count > 0;
		pthread_mutex_unlock(&unmapped->lock);
	}
	return NULL;
}

void unmapped_settle(struct hdl_adapter *adapter)
{
	struct unmapped *unmapped = &adapter->peers.unmapped;
	struct span ranges[UNMAPPED_RANGES];
	if (!atomic_load_explicit(&unmapped->runs, memory_order_acquire))
		return;
	/* Whatever has returned from munmap() has been read, under this lock. */
	pthread_mutex_lock(&unmapped->lock);
	uint32_t count = unmapped->count;
	memcpy(ranges, unmapped->ranges, count * sizeof(ranges[0]));
	unmapped->count = 0;
	pthread_mutex_unlock(&unmapped->lock);
	if (count == 0)
		return;
	adapter_lock(adapter);
	unmapped_act(adapter, ranges, count);
	adapter_unlock(adapter);
}

void unmapped_begin(struct hdl_adapter *adapter)
{
	adapter->peers.unmapped = (struct unmapped){.quit = -1};
	pthread_mutex_init(&adapter->peers.unmapped.lock, NULL);
}

static void unmapped_start(struct hdl_adapter *adapter)
{
	struct unmapped *unmapped = &adapter->peers.unmapped;
	int quit = -1;
	bool runs = segment_watch(&adapter->peers.segments) >= 0;
	/* A direct call, as the close() in fd_aside() is: the thread sanitizer keeps an account of
	 * numbers. */
	if (runs)
		quit = fd_aside((int)syscall(SYS_eventfd2, 0, EFD_CLOEXEC | EFD_NONBLOCK));
	runs = quit >= 0;
	unmapped->quit = quit;
	runs = runs && thread_start(&unmapped->thread, unmapped_main, adapter) == 0;
	if (!runs) { /* nobody would read the events */
		segment_unwatch(&adapter->peers.segments);
		if (quit >= 0)
			fd_close(quit);
		unmapped->quit = -1;
	}
	atomic_store_explicit(&unmapped->runs, runs, memory_order_release);
}

void unmapped_watch(struct hdl_adapter *adapter)
{
	struct unmapped *unmapped = &adapter->peers.unmapped;
	if (atomic_load_explicit(&unmapped->runs, memory_order_acquire) ||
	    !adapter->drive.has_thread)
		return;
	adapter_lock(adapter);
	if (!atomic_load_explicit(&unmapped->runs, memory_order_relaxed))
		unmapped_start(adapter);
	adapter_unlock(adapter);
}

void unmapped_end(struct hdl_adapter *adapter)
{
	struct unmapped *unmapped = &adapter->peers.unmapped;
	uint64_t one = 1;
	if (!atomic_load(&unmapped->runs))
		return;
	if (write(unmapped->quit, &one, sizeof(one)) == sizeof(one))
		pthread_join(unmapped->thread, NULL);
	atomic_store(&unmapped->runs, false);
	segment_unwatch(&adapter->peers.segments);
	close(unmapped->quit);
	unmapped->quit = -1;
}

void unmapped_forget(struct hdl_adapter *adapter)
{
	struct unmapped *unmapped = &adapter->peers.unmapped;
	if (unmapped->quit >= 0)
		close(unmapped->quit);
	unmapped_begin(adapter);
}
