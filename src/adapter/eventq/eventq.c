#include "adapter/eventq/eventq.h"

#include <stdlib.h>
#include <string.h>

#include "adapter/adapter.h"
#include "base/log.h"
#include "port/oob.h"

#define PORTS 65536u

/* A size of the caller's as a power of two; 0: out of range. */
static uint32_t eventq_size(uint32_t asked, uint32_t fallback, uint32_t least, uint32_t most)
{
	uint32_t size = least;
	if (asked == 0)
		asked = fallback;
	if (asked > most)
		return 0;
	while (size < asked)
		size *= 2;
	return size;
}

/* --- sets --- */

int hdl_eventset_create(struct hdl_adapter *adapter, struct hdl_eventset **out)
{
	if (adapter == NULL || adapter->magic != MAGIC_ADAPTER || out == NULL)
		return -HDL_EINVAL;
	struct hdl_eventset *set = calloc(1, sizeof(*set));
	if (set == NULL)
		return -HDL_ENOMEM;
	if (!ready_init(&set->ready)) {
		log_error("eventfd: %m");
		free(set);
		return -HDL_EIO;
	}
	set->magic = MAGIC_EVENTSET;
	set->adapter = adapter;
	atomic_fetch_add(&adapter->objects.count, 1);
	*out = set;
	return 0;
}

int hdl_eventset_destroy(struct hdl_eventset *set)
{
	if (set == NULL || set->magic != MAGIC_EVENTSET)
		return -HDL_EINVAL;
	if (atomic_load(&set->users) > 0)
		return -HDL_EBUSY;
	atomic_fetch_sub(&set->adapter->objects.count, 1);
	ready_end(&set->ready);
	set->magic = 0;
	free(set);
	return 0;
}

int hdl_eventset_fd(struct hdl_eventset *set)
{
	return set != NULL && set->magic == MAGIC_EVENTSET ? set->ready.fd : -HDL_EINVAL;
}

struct wanted {
	struct hdl_eventq **queues;
	int max, count;
};

static bool eventset_take(struct ready_list *ready, void *context)
{
	struct wanted *wanted = context;
	while (ready->first != NULL && wanted->count < wanted->max) {
		struct ready_node *node = ready->first;
		wanted->queues[wanted->count++] =
		        (struct hdl_eventq *)(void *)((char *)node -
		                                      offsetof(struct hdl_eventq, node));
		ready_remove(ready, node);
	}
	return true;
}

int hdl_eventset_wait(struct hdl_eventset *set, struct hdl_eventq **queues, int max, int timeout_ms)
{
	struct wanted wanted = {queues, max, 0};
	if (set == NULL || set->magic != MAGIC_EVENTSET || queues == NULL || max <= 0)
		return -HDL_EINVAL;
	adapter_touch(set->adapter);
	int result = ready_wait(set->adapter, &set->ready, timeout_ms, eventset_take, &wanted);
	return result < 0 ? result : wanted.count;
}

/* --- the deliverer; all with the drive lock --- */

static struct hdl_eventq *eventq_find(struct hdl_adapter *adapter, uint16_t port)
{
	return adapter->eventqs.by_port != NULL ? adapter->eventqs.by_port[port] : NULL;
}

static void eventq_not_armed(struct hdl_eventq *queue)
{
	if (atomic_exchange_explicit(&queue->armed, false, memory_order_relaxed))
		atomic_fetch_sub_explicit(&queue->adapter->drive.armed_cqs, 1,
		                          memory_order_relaxed);
}

/* The queue is empty: the next event interrupts. With queue->lock. False: there are events. */
static bool eventq_arm(struct hdl_eventq *queue)
{
	if (!atomic_exchange_explicit(&queue->armed, true, memory_order_relaxed))
		atomic_fetch_add_explicit(&queue->adapter->drive.armed_cqs, 1,
		                          memory_order_relaxed);
	if (evring_arm(&queue->reader))
		return true;
	eventq_not_armed(queue);
	return false;
}

/* The queue has events, and its application wants to be told. */
static void eventq_interrupt(struct hdl_eventq *queue)
{
	struct ready_list *ready = &queue->set->ready;
	queue->interrupts++;
	eventq_not_armed(queue);
	lock_take(&ready->lock);
	ready_add(ready, &queue->node);
	ready_announce(queue->adapter, ready);
	lock_drop(&ready->lock);
}

enum eventq_result eventq_deliver(struct hdl_adapter *adapter, uint16_t port,
                                  const struct hdl_port_event *event, const void *data,
                                  uint64_t bytes)
{
	struct hdl_eventq *queue = eventq_find(adapter, port);
	struct hdl_port_event placed = *event;
	if (queue == NULL) {
		/* Signals also wake calls like hdl_port_waiting(); these would wait for a queue. */
		bool nobody = event->type >= HDL_PORT_DATA || event->type == HDL_PORT_ERROR;
		oob_note(adapter, port, NULL, event, nobody ? OOB_NOBODY : 0);
		return EVENTQ_NO_PORT;
	}
	placed.port = port;
	switch (evring_put(&queue->writer, &placed, data, bytes)) {
	case EVRING_INTERRUPT:
		eventq_interrupt(queue);
		oob_note(adapter, port, queue, event, OOB_BLOCKED);
		return EVENTQ_PLACED;
	case EVRING_PLACED:
		oob_note(adapter, port, queue, event, 0);
		return EVENTQ_PLACED;
	case EVRING_TOO_LONG:
		return EVENTQ_TOO_LONG;
	default:
		queue->kept++;
		return EVENTQ_FULL;
	}
}

void eventq_lose(struct hdl_adapter *adapter, uint16_t port)
{
	const struct hdl_port_event event = {.type = HDL_PORT_LOST};
	struct hdl_eventq *queue = eventq_find(adapter, port);
	if (queue == NULL)
		return;
	queue->lost++;
	oob_note(adapter, port, queue, &event, OOB_NOBODY);
	evring_lose(&queue->writer);
	if (evring_tell_lost(&queue->writer) == EVRING_INTERRUPT)
		eventq_interrupt(queue);
}

bool eventq_look(struct hdl_adapter *adapter, uint16_t port, uint32_t *events, bool *blocked)
{
	struct hdl_eventq *queue = eventq_find(adapter, port);
	if (queue == NULL)
		return false;
	uint64_t room = pring_look_room(&queue->writer.events);
	*events = (uint32_t)(queue->writer.events.units - room);
	*blocked = atomic_load(&queue->writer.block->events_writer.irq_copy) != 0;
	return true;
}

/* --- opening and closing --- */

int eventq_open(struct hdl_adapter *adapter, uint16_t port, const struct hdl_eventq_attr *attr,
                struct hdl_eventq **out)
{
	static const struct hdl_eventq_attr defaults;
	if (attr == NULL)
		attr = &defaults;
	uint32_t events = eventq_size(attr->events, HDL_EVENTQ_DEFAULT_EVENTS, EVRING_MIN_EVENTS,
	                              EVRING_MAX_EVENTS);
	uint32_t words = eventq_size(attr->words, HDL_EVENTQ_DEFAULT_WORDS, EVRING_MIN_WORDS,
	                             EVRING_MAX_WORDS);
	if (out == NULL || events == 0 || words == 0 ||
	    (attr->set != NULL &&
	     (attr->set->magic != MAGIC_EVENTSET || attr->set->adapter != adapter)))
		return -HDL_EINVAL;
	size_t bytes = evring_bytes(events, words);
	struct hdl_eventq *queue = calloc(1, sizeof(*queue));
	struct hdl_eventq **by_port = NULL;
	if (queue != NULL)
		queue->memory = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
	if (queue == NULL || queue->memory == NULL) {
		free(queue);
		return -HDL_ENOMEM;
	}
	memset(queue->memory, 0, bytes);
	evring_writer_init(&queue->writer, queue->memory, events, words);
	evring_reader_init(&queue->reader, queue->memory, events, words);
	queue->magic = MAGIC_EVENTQ;
	queue->adapter = adapter;
	queue->port = port;
	queue->context = attr->context;
	queue->set = attr->set;
	if (adapter->eventqs.by_port == NULL)
		by_port = calloc(PORTS, sizeof(struct hdl_eventq *));
	adapter_lock(adapter);
	if (adapter->eventqs.by_port == NULL) {
		adapter->eventqs.by_port = by_port;
		by_port = NULL;
	}
	int result = adapter->eventqs.by_port == NULL         ? -HDL_ENOMEM
	             : adapter->eventqs.by_port[port] != NULL ? -HDL_EBUSY
	                                                      : 0;
	if (result == 0) {
		adapter->eventqs.by_port[port] = queue;
		adapter->eventqs.count++;
		if (queue->set != NULL) {
			atomic_fetch_add(&queue->set->users, 1);
			eventq_arm(queue);
		}
		atomic_fetch_add(&adapter->objects.count, 1);
	}
	adapter_unlock(adapter);
	free(by_port);
	if (result != 0) {
		free(queue->memory);
		free(queue);
		return result;
	}
	oob_attach(adapter);
	*out = queue;
	return 0;
}

/* With the drive lock. */
static void eventq_free(struct hdl_eventq *queue)
{
	eventq_not_armed(queue);
	if (queue->set != NULL) {
		lock_take(&queue->set->ready.lock);
		ready_remove(&queue->set->ready, &queue->node);
		ready_sync(queue->adapter, &queue->set->ready);
		lock_drop(&queue->set->ready.lock);
		atomic_fetch_sub(&queue->set->users, 1);
		if (queue->own_set)
			hdl_eventset_destroy(queue->set);
	}
	atomic_fetch_sub(&queue->adapter->objects.count, 1);
	queue->magic = 0;
	free(queue->memory);
	free(queue);
}

static bool is_eventq(const struct hdl_eventq *queue)
{
	return queue != NULL && queue->magic == MAGIC_EVENTQ;
}

int hdl_eventq_close(struct hdl_eventq *queue)
{
	if (!is_eventq(queue))
		return -HDL_EINVAL;
	struct hdl_adapter *adapter = queue->adapter;
	adapter_lock(adapter);
	adapter->eventqs.by_port[queue->port] = NULL;
	adapter->eventqs.count--;
	eventq_free(queue);
	adapter_unlock(adapter);
	return 0;
}

void eventqs_end(struct hdl_adapter *adapter)
{
	free(adapter->eventqs.by_port);
	adapter->eventqs.by_port = NULL;
}

void *hdl_eventq_context(const struct hdl_eventq *queue)
{
	return is_eventq(queue) ? queue->context : NULL;
}

/* --- the application --- */

/* A queue with a descriptor of its own, which tells no more than there is. With queue->lock. */
static void eventq_sync(struct hdl_eventq *queue)
{
	struct ready_list *ready = &queue->set->ready;
	lock_take(&ready->lock);
	/* An event that comes after this look finds the queue armed, and adds it again. */
	if (!evring_holds(&queue->reader))
		ready_remove(ready, &queue->node);
	ready_sync(queue->adapter, ready);
	lock_drop(&ready->lock);
}

/* Is the queue to be armed whenever it is empty? Those of a set, and those whose descriptor the
 * application has, may be slept for at any time; others only while a thread waits. With
 * queue->lock. */
static bool eventq_stays_armed(const struct hdl_eventq *queue)
{
	return queue->set != NULL && (!queue->own_set || queue->fd_given || queue->sleepers > 0);
}

/* Take events; then the queue is empty, and armed if need be. */
static int eventq_take_some(struct hdl_eventq *queue, struct hdl_port_event *events, int max)
{
	lock_take(&queue->lock);
	int taken = evring_take(&queue->reader, events, max);
	while (taken < max && eventq_stays_armed(queue) && !eventq_arm(queue))
		taken += evring_take(&queue->reader, events + taken, max - taken);
	if (queue->own_set && taken < max)
		eventq_sync(queue);
	lock_drop(&queue->lock);
	return taken;
}

int hdl_eventq_take(struct hdl_eventq *queue, struct hdl_port_event *events, int max)
{
	if (!is_eventq(queue) || events == NULL || max <= 0)
		return -HDL_EINVAL;
	adapter_touch(queue->adapter);
	int taken = eventq_take_some(queue, events, max);
	if (taken == 0) {
		adapter_poll(queue->adapter);
		taken = eventq_take_some(queue, events, max);
	}
	return taken;
}

int hdl_eventq_read(struct hdl_eventq *queue, const struct hdl_port_event *event, void *to,
                    size_t max, size_t *bytes)
{
	uint64_t size = 0;
	if (!is_eventq(queue) || event == NULL || bytes == NULL || (to == NULL && max > 0))
		return -HDL_EINVAL;
	lock_take(&queue->lock);
	enum evring_read result = evring_read(&queue->reader, event, to, max, &size);
	lock_drop(&queue->lock);
	*bytes = size;
	switch (result) {
	case EVRING_READ:
		return 0;
	case EVRING_GONE:
		return -HDL_ESTALE;
	case EVRING_SHORT:
		return -HDL_EMSGSIZE;
	case EVRING_BROKEN:
		return -HDL_EIO;
	default:
		return -HDL_EINVAL;
	}
}

/* Give a queue without a set one of its own. */
static int eventq_need_set(struct hdl_eventq *queue)
{
	struct hdl_eventset *set;
	lock_take(&queue->lock);
	bool has = queue->set != NULL, own = queue->own_set;
	lock_drop(&queue->lock);
	if (has)
		return own ? 0 : -HDL_EBUSY;
	int result = hdl_eventset_create(queue->adapter, &set);
	if (result != 0)
		return result;
	adapter_lock(queue->adapter);
	lock_take(&queue->lock);
	bool first = queue->set == NULL;
	if (first) {
		queue->own_set = true;
		queue->set = set;
		atomic_fetch_add(&set->users, 1);
	}
	lock_drop(&queue->lock);
	adapter_unlock(queue->adapter);
	if (!first)
		hdl_eventset_destroy(set);
	return 0;
}

bool eventq_in_set(struct hdl_eventq *queue)
{
	lock_take(&queue->lock);
	bool in_set = queue->set != NULL && !queue->own_set;
	lock_drop(&queue->lock);
	return in_set;
}

int hdl_eventq_fd(struct hdl_eventq *queue)
{
	if (!is_eventq(queue))
		return -HDL_EINVAL;
	int result = eventq_need_set(queue);
	if (result != 0)
		return result;
	adapter_lock(queue->adapter);
	lock_take(&queue->lock);
	bool first = !queue->fd_given;
	queue->fd_given = true;
	if (first && !eventq_arm(queue))
		eventq_interrupt(queue); /* it has events */
	lock_drop(&queue->lock);
	adapter_unlock(queue->adapter);
	return queue->set->ready.fd;
}

int eventq_begin_sleep(struct hdl_eventq *queue)
{
	int result = eventq_need_set(queue);
	if (result != 0)
		return result;
	lock_take(&queue->lock);
	bool empty = eventq_arm(queue);
	if (empty) {
		queue->sleepers++;
		eventq_sync(queue); /* of events that have been taken */
	}
	lock_drop(&queue->lock);
	return empty ? queue->set->ready.fd : -HDL_EAGAIN;
}

void eventq_end_sleep(struct hdl_eventq *queue)
{
	lock_take(&queue->lock);
	queue->sleepers--;
	if (!eventq_stays_armed(queue)) {
		eventq_not_armed(queue);
		evring_disarm(&queue->reader);
	}
	lock_drop(&queue->lock);
}

/* Leaves the queue in the list: it has events until they are taken. */
static bool eventq_leave(struct ready_list *ready, void *context)
{
	(void)ready;
	(void)context;
	return true;
}

static bool eventq_holds(struct hdl_eventq *queue)
{
	lock_take(&queue->lock);
	bool holds = evring_holds(&queue->reader);
	lock_drop(&queue->lock);
	return holds;
}

int hdl_eventq_wait(struct hdl_eventq *queue, int timeout_ms)
{
	if (!is_eventq(queue))
		return -HDL_EINVAL;
	pthread_testcancel();
	adapter_touch(queue->adapter);
	int result = eventq_need_set(queue);
	if (result != 0)
		return result;
	if (!eventq_holds(queue))
		adapter_poll(queue->adapter);
	if (eventq_holds(queue))
		return 0;
	if (timeout_ms == 0)
		return -HDL_EAGAIN;
	if (eventq_begin_sleep(queue) < 0)
		return 0; /* one came meanwhile */
	result = ready_wait(queue->adapter, &queue->set->ready, timeout_ms, eventq_leave, NULL);
	eventq_end_sleep(queue);
	return result;
}

int hdl_eventq_query(struct hdl_eventq *queue, struct hdl_eventq_status *status)
{
	if (!is_eventq(queue) || status == NULL)
		return -HDL_EINVAL;
	adapter_lock(queue->adapter);
	lock_take(&queue->lock);
	pring_look_room(&queue->writer.words);
	*status = (struct hdl_eventq_status){
	        .delivered = queue->writer.events.wrptr,
	        .taken = queue->reader.events.rdptr,
	        .words = queue->writer.words.wrptr - queue->writer.words.rdptr,
	        .lost = queue->lost,
	        .kept = queue->kept,
	        .wild = queue->writer.events.wild + queue->writer.words.wild +
	                queue->reader.events.wild + queue->reader.words.wild + queue->reader.broken,
	        .blocked = atomic_load(&queue->writer.block->events_writer.irq_copy) != 0,
	        .interrupts = queue->interrupts};
	lock_drop(&queue->lock);
	adapter_unlock(queue->adapter);
	return 0;
}
