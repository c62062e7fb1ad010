/* Asynchronous events, and completion channels: what an application can wait for with a file
 * descriptor. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "base/cancel.h"
#include "base/log.h"

/* Make the descriptor readable while @waiting; writing and reading an eventfd cannot fail
 * otherwise. The program may set the descriptor to blocking mode. That must not affect us: we read
 * only when there is something, and do not wait if another thread has read it. Direct system calls:
 * the thread holds locks (base/cancel.h). */
static void signal_fd(int fd, bool waiting)
{
	uint64_t value = 1;
	struct iovec piece = {.iov_base = &value, .iov_len = sizeof(value)};
	long done = waiting ? syscall(SYS_write, fd, &value, sizeof(value))
	                    : syscall(SYS_preadv2, fd, &piece, 1, -1l, -1l, RWF_NOWAIT);
	if (done < 0 && !waiting && errno == EOPNOTSUPP) /* Linux before 5.8 */
		done = syscall(SYS_read, fd, &value, sizeof(value));
	(void)done; /* EAGAIN: it is already in the wanted state */
}

/* Wait for @fd up to @timeout_ms. */
static bool wait_fd(int fd, int timeout_ms)
{
	struct pollfd pollfd = {.fd = fd, .events = POLLIN};
	return poll(&pollfd, 1, timeout_ms) > 0;
}

int events_init(struct event_queue *events)
{
	events->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return events->fd < 0 ? -HDL_EIO : 0;
}

void events_end(struct event_queue *events)
{
	if (events->fd >= 0)
		close(events->fd);
}

void events_push(struct event_queue *events, const struct hdl_event *event)
{
	lock_take(&events->lock);
	if (events->tail - events->head == HDL_MAX_EVENTS)
		events->lost++;
	else
		events->ring[events->tail++ % HDL_MAX_EVENTS] = *event;
	signal_fd(events->fd, true);
	lock_drop(&events->lock);
}

static const void *event_object(const struct hdl_event *event)
{
	switch (event->type) {
	case HDL_EVENT_CQ_OVERRUN:
		return event->u.cq;
	case HDL_EVENT_SRQ_LIMIT:
	case HDL_EVENT_SRQ_ERR:
		return event->u.srq;
	case HDL_EVENT_MEMORY_GONE:
	case HDL_EVENT_PEER_GONE:
	case HDL_EVENT_AGENT_CHANGED:
	case HDL_EVENT_LOST:
		return NULL;
	default:
		return event->u.qp;
	}
}

void events_purge(struct event_queue *events, const void *object)
{
	lock_take(&events->lock);
	uint32_t to = events->head;
	for (uint32_t from = events->head; from != events->tail; from++)
		if (event_object(&events->ring[from % HDL_MAX_EVENTS]) != object)
			events->ring[to++ % HDL_MAX_EVENTS] = events->ring[from % HDL_MAX_EVENTS];
	events->tail = to;
	if (events->head == events->tail && events->lost == 0)
		signal_fd(events->fd, false);
	lock_drop(&events->lock);
}

static bool events_take(struct event_queue *events, struct hdl_event *event)
{
	bool found = true;
	lock_take(&events->lock);
	if (events->head != events->tail) {
		*event = events->ring[events->head++ % HDL_MAX_EVENTS];
	} else if (events->lost > 0) {
		*event = (struct hdl_event){.type = HDL_EVENT_LOST, .u.count = events->lost};
		events->lost = 0;
	} else {
		found = false;
	}
	if (events->head == events->tail && events->lost == 0)
		signal_fd(events->fd, false);
	lock_drop(&events->lock);
	return found;
}

void adapter_event(void *context, enum hdl_event_type type, enum hdl_detail detail, void *object,
                   struct hdl_key key)
{
	struct hdl_adapter *adapter = context;
	struct hdl_event event = {.type = type, .detail = detail};
	switch (type) {
	case HDL_EVENT_CQ_OVERRUN:
		event.u.cq = object;
		break;
	case HDL_EVENT_SRQ_LIMIT:
	case HDL_EVENT_SRQ_ERR:
		event.u.srq = object;
		break;
	case HDL_EVENT_MEMORY_GONE:
		event.u.key = key;
		break;
	case HDL_EVENT_PEER_GONE:
		event.u.gid = *(struct hdl_gid *)object;
		break;
	default:
		event.u.qp = object;
	}
	why_event(&event);
	events_push(&adapter->drive.events, &event);
}

int hdl_event_get(struct hdl_adapter *adapter, struct hdl_event *event, int timeout_ms)
{
	if (adapter == NULL || adapter->magic != MAGIC_ADAPTER || event == NULL)
		return -HDL_EINVAL;
	do {
		int cancel = cancel_forbid();
		adapter_drive(adapter);
		bool found = events_take(&adapter->drive.events, event);
		cancel_restore(cancel);
		if (found)
			return 0;
	} while (timeout_ms != 0 && wait_fd(adapter->drive.events.fd, timeout_ms));
	return -HDL_EAGAIN;
}

int hdl_event_fd(struct hdl_adapter *adapter)
{
	return adapter->drive.events.fd;
}

/* --- completion channels --- */

int hdl_channel_create(struct hdl_adapter *adapter, struct hdl_channel **out)
{
	if (adapter == NULL || adapter->magic != MAGIC_ADAPTER || out == NULL)
		return -HDL_EINVAL;
	struct hdl_channel *channel = calloc(1, sizeof(*channel));
	if (channel == NULL)
		return -HDL_ENOMEM;
	channel->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (channel->fd < 0) {
		log_error("eventfd: %m");
		free(channel);
		return -HDL_EIO;
	}
	channel->magic = MAGIC_CHANNEL;
	channel->adapter = adapter;
	channel->end = &channel->first;
	atomic_fetch_add(&adapter->objects.count, 1);
	*out = channel;
	return 0;
}

int hdl_channel_destroy(struct hdl_channel *channel)
{
	if (channel == NULL || channel->magic != MAGIC_CHANNEL)
		return -HDL_EINVAL;
	if (atomic_load(&channel->users) > 0)
		return -HDL_EBUSY;
	atomic_fetch_sub(&channel->adapter->objects.count, 1);
	close(channel->fd);
	channel->magic = 0;
	free(channel);
	return 0;
}

int hdl_channel_fd(struct hdl_channel *channel)
{
	return channel->fd;
}

/* The descriptor is readable while there are events. With channel->lock. */
static void channel_sync(struct hdl_channel *channel)
{
	bool waiting = channel->first != NULL;
	if (channel->signalled == waiting)
		return;
	signal_fd(channel->fd, waiting);
	channel->signalled = waiting;
	atomic_fetch_add_explicit(&channel->adapter->drive.readable, waiting ? 1 : UINT32_MAX,
	                          memory_order_relaxed);
}

void adapter_cq_event(void *context, struct cq *cq)
{
	struct hdl_adapter *adapter = context;
	struct hdl_cq *hdl_cq = (struct hdl_cq *)(void *)cq;
	struct hdl_channel *channel = hdl_cq->channel;
	atomic_fetch_sub_explicit(&adapter->drive.armed_cqs, 1, memory_order_relaxed);
	lock_take(&channel->lock);
	hdl_cq->raised++;
	if (!hdl_cq->queued) {
		hdl_cq->queued = true;
		hdl_cq->next = NULL;
		*channel->end = hdl_cq;
		channel->end = &hdl_cq->next;
	}
	/* A thread that drives in order to find an event finds it without the descriptor. */
	if (!adapter->engine.by_application || channel->takers == 0)
		channel_sync(channel);
	lock_drop(&channel->lock);
}

void channel_raise_held(struct hdl_cq *cq)
{
	lock_take(&cq->channel->lock);
	bool waits = cq->raised > 0;
	lock_drop(&cq->channel->lock);
	if (!waits && cq_raise(&cq->cq))
		adapter_cq_event(cq->adapter, &cq->cq);
}

/* Take @cq off the list of queues with an event. With channel->lock. */
static void channel_unlist(struct hdl_channel *channel, struct hdl_cq *cq)
{
	struct hdl_cq **at = &channel->first;
	while (*at != cq)
		at = &(*at)->next;
	*at = cq->next;
	if (channel->end == &cq->next)
		channel->end = at;
	cq->queued = false;
}

bool channel_forget(struct hdl_channel *channel, struct hdl_cq *cq)
{
	lock_take(&channel->lock);
	if (cq->queued)
		channel_unlist(channel, cq);
	channel_sync(channel);
	cq->raised = 0;
	bool free_of_it = cq->taken == 0;
	lock_drop(&channel->lock);
	return free_of_it;
}

/* Drive, then take the oldest event of the channel, if there is one. */
static bool channel_take(struct hdl_channel *channel, struct hdl_cq **cq)
{
	lock_take(&channel->lock);
	bool there = channel->first != NULL;
	channel->takers++;
	lock_drop(&channel->lock);
	if (!there)
		adapter_poll(channel->adapter);
	lock_take(&channel->lock);
	channel->takers--;
	struct hdl_cq *first = channel->first;
	if (first != NULL) {
		first->taken++;
		if (--first->raised == 0)
			channel_unlist(channel, first);
	}
	channel_sync(channel);
	lock_drop(&channel->lock);
	*cq = first;
	return first != NULL;
}

/* Take an event, or wait for one; NULL: there was none in time, or a signal arrived. */
static struct hdl_cq *channel_await(struct hdl_channel *channel, int timeout_ms, int cancel)
{
	struct hdl_cq *found;
	uint64_t until_ns = timeout_ms < 0 ? UINT64_MAX : 0;
	if (timeout_ms > 0)
		until_ns = clock_now_ns() + (uint64_t)timeout_ms * 1000000u;
	while (!channel_take(channel, &found)) {
		if (timeout_ms == 0 || (timeout_ms > 0 && clock_now_ns() >= until_ns) ||
		    adapter_wait(channel->adapter, channel->fd, until_ns, cancel) < 0)
			return NULL;
	}
	return found;
}

int hdl_channel_get(struct hdl_channel *channel, struct hdl_cq **cq, void **context, int timeout_ms)
{
	if (channel == NULL || channel->magic != MAGIC_CHANNEL || cq == NULL)
		return -HDL_EINVAL;
	pthread_testcancel();
	int cancel = cancel_forbid();
	struct hdl_cq *found = channel_await(channel, timeout_ms, cancel);
	cancel_restore(cancel);
	if (found == NULL)
		return -HDL_EAGAIN;
	*cq = found;
	if (context != NULL)
		*context = found->context;
	return 0;
}

int hdl_cq_ack(struct hdl_cq *cq, uint32_t count)
{
	if (cq == NULL || cq->magic != MAGIC_CQ || cq->channel == NULL)
		return -HDL_EINVAL;
	lock_take(&cq->channel->lock);
	bool fits = count <= cq->taken;
	if (fits)
		cq->taken -= count;
	lock_drop(&cq->channel->lock);
	return fits ? 0 : -HDL_EINVAL;
}
