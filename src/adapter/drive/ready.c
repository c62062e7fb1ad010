#include "adapter/drive/ready.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "base/cancel.h"

/* Writing and reading an eventfd cannot fail but for being in the wanted state already. The program
 * may set the descriptor to blocking mode. That must not affect us: we read only when there is
 * something, and do not wait if another thread has read it. Direct system calls: the thread holds
 * locks (base/cancel.h). */
void ready_signal(int fd, bool readable)
{
	uint64_t value = 1;
	struct iovec piece = {.iov_base = &value, .iov_len = sizeof(value)};
	long done = readable ? syscall(SYS_write, fd, &value, sizeof(value))
	                     : syscall(SYS_preadv2, fd, &piece, 1, -1l, -1l, RWF_NOWAIT);
	if (done < 0 && !readable && errno == EOPNOTSUPP) /* Linux before 5.8 */
		done = syscall(SYS_read, fd, &value, sizeof(value));
	(void)done; /* EAGAIN: it is already in the wanted state */
}

bool ready_init(struct ready_list *list)
{
	*list = (struct ready_list){.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
	list->end = &list->first;
	return list->fd >= 0;
}

void ready_end(struct ready_list *list)
{
	close(list->fd);
}

void ready_add(struct ready_list *list, struct ready_node *node)
{
	if (node->queued)
		return;
	node->queued = true;
	node->next = NULL;
	*list->end = node;
	list->end = &node->next;
}

void ready_remove(struct ready_list *list, struct ready_node *node)
{
	struct ready_node **at = &list->first;
	if (!node->queued)
		return;
	while (*at != node)
		at = &(*at)->next;
	*at = node->next;
	if (list->end == &node->next)
		list->end = at;
	node->queued = false;
}

void ready_sync(struct hdl_adapter *adapter, struct ready_list *list)
{
	bool waiting = list->first != NULL;
	if (list->signalled == waiting)
		return;
	ready_signal(list->fd, waiting);
	list->signalled = waiting;
	atomic_fetch_add_explicit(&adapter->drive.readable, waiting ? 1 : UINT32_MAX,
	                          memory_order_relaxed);
}

void ready_announce(struct hdl_adapter *adapter, struct ready_list *list)
{
	if (!adapter->engine.by_application || list->takers == 0)
		ready_sync(adapter, list);
}

/* Drive unless there is something already, then take. */
static bool ready_try(struct hdl_adapter *adapter, struct ready_list *list,
                      bool (*take)(struct ready_list *list, void *context), void *context)
{
	lock_take(&list->lock);
	bool there = list->first != NULL;
	list->takers++;
	lock_drop(&list->lock);
	if (!there)
		adapter_poll(adapter);
	lock_take(&list->lock);
	list->takers--;
	bool taken = list->first != NULL && take(list, context);
	ready_sync(adapter, list);
	lock_drop(&list->lock);
	return taken;
}

int ready_wait(struct hdl_adapter *adapter, struct ready_list *list, int timeout_ms,
               bool (*take)(struct ready_list *list, void *context), void *context)
{
	int result = 0;
	uint64_t until_ns = timeout_ms < 0 ? UINT64_MAX : 0;
	pthread_testcancel();
	int cancel = cancel_forbid();
	if (timeout_ms > 0)
		until_ns = clock_now_ns() + (uint64_t)timeout_ms * 1000000u;
	while (result == 0 && !ready_try(adapter, list, take, context)) {
		if (timeout_ms == 0 || (timeout_ms > 0 && clock_now_ns() >= until_ns))
			result = -HDL_EAGAIN;
		else if (adapter_wait(adapter, list->fd, until_ns, cancel) < 0)
			result = -HDL_EINTR;
	}
	cancel_restore(cancel);
	return result;
}
