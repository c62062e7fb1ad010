#include "adapter/reach/unmapped.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "base/fd.h"
#include "base/thread.h"

static void tell_absent(void *context, struct hdl_key key)
{
	adapter_event(context, HDL_EVENT_MEMORY_GONE, HDL_DETAIL_GONE, NULL, key);
}

/* The owner is told, and no peer has the pages afterwards: those that are copying have read the
 * table of segments before it changed, inside a guard. */
static void unmapped_act(struct hdl_adapter *adapter, struct span range)
{
	adapter_lock(adapter);
	segment_forget(&adapter->peers.segments, range.addr, range.length);
	adapter_quiesce(adapter);
	tpt_segment_absent(&adapter->tpt, range.addr, range.length, tell_absent, adapter);
	adapter_unlock(adapter);
}

static void *unmapped_main(void *context)
{
	struct hdl_adapter *adapter = context;
	struct unmapped *unmapped = &adapter->peers.unmapped;
	struct pollfd fds[2] = {{.fd = adapter->peers.segments.watch, .events = POLLIN},
	                        {.fd = unmapped->quit, .events = POLLIN}};
	while (poll(fds, 2, -1) < 0 || fds[1].revents == 0) {
		struct span range;
		pthread_mutex_lock(&unmapped->lock);
		while (segment_hear(fds[0].fd, &range))
			unmapped_act(adapter, range);
		pthread_mutex_unlock(&unmapped->lock);
	}
	return NULL;
}

void unmapped_begin(struct hdl_adapter *adapter)
{
	adapter->peers.unmapped = (struct unmapped){.quit = -1};
	pthread_mutex_init(&adapter->peers.unmapped.lock, NULL);
}

void unmapped_watch(struct hdl_adapter *adapter)
{
	struct unmapped *unmapped = &adapter->peers.unmapped;
	pthread_mutex_lock(&unmapped->lock);
	if (!unmapped->runs && adapter->drive.has_thread) {
		adapter_lock(adapter);
		int watch = segment_watch(&adapter->peers.segments);
		adapter_unlock(adapter);
		if (watch >= 0)
			unmapped->quit = fd_aside(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
		unmapped->runs = unmapped->quit >= 0 &&
		                 thread_start(&unmapped->thread, unmapped_main, adapter) == 0;
		if (!unmapped->runs) { /* nobody would read the events */
			adapter_lock(adapter);
			segment_unwatch(&adapter->peers.segments);
			adapter_unlock(adapter);
		}
	}
	pthread_mutex_unlock(&unmapped->lock);
}

void unmapped_end(struct hdl_adapter *adapter)
{
	struct unmapped *unmapped = &adapter->peers.unmapped;
	uint64_t one = 1;
	if (adapter->peers.segments.table == NULL) /* it was never begun */
		return;
	if (unmapped->runs && write(unmapped->quit, &one, sizeof(one)) == sizeof(one))
		pthread_join(unmapped->thread, NULL);
	unmapped->runs = false;
	segment_unwatch(&adapter->peers.segments);
	if (unmapped->quit >= 0)
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
