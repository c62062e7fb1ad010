/* Asynchronous events, and completion channels: what an application can wait for with a file
 * descriptor. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "adapter/drive/ready.h"
#include "base/cancel.h"
#include "base/log.h"

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
	ready_signal(events->fd, true);
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
		ready_signal(events->fd, false);
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
		ready_signal(events->fd, false);
	lock_drop(&events->lock);
	return found;
}

/* Does the agent want to know? Others are news for the program alone. */
static bool is_failure(enum hdl_event_type type)
{
	return type == HDL_EVENT_CQ_OVERRUN || type == HDL_EVENT_QP_FATAL ||
	       type == HDL_EVENT_QP_REQUEST_ERR || type == HDL_EVENT_QP_ACCESS_ERR ||
	       type == HDL_EVENT_SRQ_ERR || type == HDL_EVENT_MEMORY_GONE;
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
	if (is_failure(type))
		oob_failed(adapter, (uint16_t)type);
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
	if (!ready_init(&channel->ready)) {
		log_error("eventfd: %m");
		free(channel);
		return -HDL_EIO;
	}
	channel->magic = MAGIC_CHANNEL;
	channel->adapter = adapter;
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
	ready_end(&channel->ready);
	channel->magic = 0;
	free(channel);
	return 0;
}

int hdl_channel_fd(struct hdl_channel *channel)
{
	return channel->ready.fd;
}

void adapter_cq_event(void *context, struct cq *cq)
{
	struct hdl_adapter *adapter = context;
	struct hdl_cq *hdl_cq = (struct hdl_cq *)(void *)cq;
	struct hdl_channel *channel = hdl_cq->channel;
	atomic_fetch_sub_explicit(&adapter->drive.armed_cqs, 1, memory_order_relaxed);
	lock_take(&channel->ready.lock);
	hdl_cq->raised++;
	ready_add(&channel->ready, &hdl_cq->node);
	ready_announce(adapter, &channel->ready);
	lock_drop(&channel->ready.lock);
}

void channel_raise_held(struct hdl_cq *cq)
{
	lock_take(&cq->channel->ready.lock);
	bool waits = cq->raised > 0;
	lock_drop(&cq->channel->ready.lock);
	if (!waits && cq_raise(&cq->cq))
		adapter_cq_event(cq->adapter, &cq->cq);
}

bool channel_forget(struct hdl_channel *channel, struct hdl_cq *cq)
{
	lock_take(&channel->ready.lock);
	ready_remove(&channel->ready, &cq->node);
	ready_sync(channel->adapter, &channel->ready);
	cq->raised = 0;
	bool free_of_it = cq->taken == 0;
	lock_drop(&channel->ready.lock);
	return free_of_it;
}

static struct hdl_cq *cq_of_node(struct ready_node *node)
{
	return (struct hdl_cq *)(void *)((char *)node - offsetof(struct hdl_cq, node));
}

/* Take the oldest event of a channel. */
static bool channel_take(struct ready_list *ready, void *context)
{
	struct hdl_cq **cq = context;
	*cq = cq_of_node(ready->first);
	(*cq)->taken++;
	if (--(*cq)->raised == 0)
		ready_remove(ready, &(*cq)->node);
	return true;
}

int hdl_channel_get(struct hdl_channel *channel, struct hdl_cq **cq, void **context, int timeout_ms)
{
	struct hdl_cq *found;
	if (channel == NULL || channel->magic != MAGIC_CHANNEL || cq == NULL)
		return -HDL_EINVAL;
	if (ready_wait(channel->adapter, &channel->ready, timeout_ms, channel_take, &found) != 0)
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
	lock_take(&cq->channel->ready.lock);
	bool fits = count <= cq->taken;
	if (fits)
		cq->taken -= count;
	lock_drop(&cq->channel->ready.lock);
	return fits ? 0 : -HDL_EINVAL;
}
