#include "adapter/cqueue/cqueue.h"

#include <stdlib.h>

#include "adapter/adapter.h"
#include "base/cancel.h"

static uint64_t cqueue_size(uint64_t bytes)
{
	uint64_t size = HDL_CQUEUE_MIN_BYTES;
	if (bytes > HDL_CQUEUE_MAX_BYTES)
		return 0;
	while (size < bytes)
		size *= 2;
	return size;
}

uint64_t hdl_cqueue_length(uint64_t bytes)
{
	uint64_t size = cqueue_size(bytes);
	return size == 0 ? 0 : cring_block_bytes(size);
}

int cqueue_open(struct hdl_adapter *adapter, struct cring_block *own, uint64_t bytes,
                struct cring_block *peer, const struct cqueue_carrier *carrier,
                struct hdl_eventq *events, struct hdl_cqueue **out)
{
	uint64_t size = cqueue_size(bytes);
	struct cring_stores stores = {carrier->store, carrier->context};
	if (size == 0)
		return -HDL_EINVAL;
	struct hdl_cqueue *queue = calloc(1, sizeof(*queue));
	if (queue == NULL)
		return -HDL_ENOMEM;
	queue->magic = MAGIC_CQUEUE;
	queue->adapter = adapter;
	queue->events = events;
	queue->carrier = *carrier;
	pthread_mutex_init(&queue->lock, NULL);
	clock_cond_init(&queue->looked);
	cring_init(&queue->ring, own, size, size, peer, peer != NULL ? NULL : &stores);
	atomic_fetch_add(&adapter->objects.count, 1);
	*out = queue;
	return 0;
}

static bool is_cqueue(const struct hdl_cqueue *queue)
{
	return queue != NULL && queue->magic == MAGIC_CQUEUE;
}

int hdl_cqueue_close(struct hdl_cqueue *queue)
{
	if (!is_cqueue(queue))
		return -HDL_EINVAL;
	if (queue->carrier.end != NULL)
		queue->carrier.end(queue->carrier.context);
	atomic_fetch_sub(&queue->adapter->objects.count, 1);
	pthread_mutex_destroy(&queue->lock);
	pthread_cond_destroy(&queue->looked);
	queue->magic = 0;
	free(queue);
	return 0;
}

/* The peer waits: wake it, now or with the next call. */
static void cqueue_wake(struct hdl_cqueue *queue, bool wanted)
{
	if ((wanted || atomic_load_explicit(&queue->owes_wake, memory_order_relaxed)) &&
	    queue->carrier.wake != NULL)
		atomic_store_explicit(&queue->owes_wake,
		                      !queue->carrier.wake(queue->carrier.context),
		                      memory_order_relaxed);
}

bool cqueue_placed(struct hdl_cqueue *queue, uint16_t port, uint32_t index)
{
	const struct cring_block *own = queue->ring.own;
	const struct cring_stores stores = {queue->carrier.store_locked, queue->carrier.context};
	struct hdl_port_event event = {.type = HDL_PORT_DATA, .index = index};
	/* C1 pairs with C2: either we see that the queue is armed, or it sees the store. */
	atomic_thread_fence(memory_order_seq_cst);
	bool data = atomic_load(&queue->wants_data) &&
	            (atomic_load(&own->in.wrptr_copy) != atomic_load(&queue->seen_wrptr) ||
	             atomic_load(&own->in.end_copy) != atomic_load(&queue->seen_end));
	bool room = atomic_load(&queue->wants_room) &&
	            atomic_load(&own->out.rdptr_copy) != atomic_load(&queue->seen_rdptr);
	if ((data || room) &&
	    eventq_deliver(queue->adapter, port, &event, NULL, 0) != EVENTQ_FULL) {
		if (data)
			atomic_store(&queue->wants_data, false);
		if (room)
			atomic_store(&queue->wants_room, false);
	}
	return cring_answer(&queue->ring, &stores);
}

/* --- waiting --- */

/* Events of a queue that waits by itself say only: look again. A thread that takes them tells the
 * others. While one of them sleeps for these events, they are left to it: it would go on sleeping
 * if another thread took them first. */
static void cqueue_drain(struct hdl_cqueue *queue)
{
	struct hdl_port_event events[8];
	int taken = 8;
	if (queue->events == NULL || eventq_in_set(queue->events))
		return;
	pthread_mutex_lock(&queue->lock);
	while (taken == 8 && !queue->leads) {
		taken = hdl_eventq_take(queue->events, events, 8);
		if (taken > 0) {
			queue->looks++;
			pthread_cond_broadcast(&queue->looked);
		}
	}
	pthread_mutex_unlock(&queue->lock);
}

static uint64_t cqueue_looks(struct hdl_cqueue *queue)
{
	pthread_mutex_lock(&queue->lock);
	uint64_t looks = queue->looks;
	pthread_mutex_unlock(&queue->lock);
	return looks;
}

struct attempt_at {
	struct hdl_cqueue *queue;
	const void *from;
	void *to;
	uint64_t bytes;
	int64_t result;
	bool is_stuck; /* the carrier had no room for some of it; no event tells of that */
	bool is_last;  /* nothing is armed behind this attempt */
};

/* Sleep until an event, something to drive, or @until_ns. The queue was armed when @looks was read.
 * -HDL_EINTR: a signal arrived. */
static int cqueue_sleep(const struct attempt_at *at, uint64_t looks, uint64_t until_ns, int cancel)
{
	struct hdl_cqueue *queue = at->queue;
	bool alone = queue->events != NULL && !eventq_in_set(queue->events);
	bool owes = atomic_load_explicit(&queue->owes_wake, memory_order_relaxed);
	bool naps = at->is_stuck || owes || !alone || queue->carrier.silent;
	uint64_t soon = naps ? clock_now_ns() + CQUEUE_NAP_NS : UINT64_MAX;
	if (soon > until_ns)
		soon = until_ns;
	pthread_mutex_lock(&queue->lock);
	bool leads = !queue->leads && queue->looks == looks;
	if (leads)
		queue->leads = true;
	else
		while (queue->looks == looks && queue->leads &&
		       clock_cond_wait(&queue->looked, &queue->lock, soon))
			;
	pthread_mutex_unlock(&queue->lock);
	if (!leads)
		return 0;
	int slept = 0, fd = alone ? eventq_begin_sleep(queue->events) : -HDL_EBUSY;
	if (fd != -HDL_EAGAIN) {
		uint64_t nap = clock_now_ns() + CQUEUE_NAP_NS;
		slept = adapter_wait(queue->adapter, fd < 0 ? -1 : fd,
		                     fd < 0 && nap < soon ? nap : soon, cancel);
	}
	if (fd >= 0)
		eventq_end_sleep(queue->events);
	pthread_mutex_lock(&queue->lock);
	queue->leads = false;
	queue->looks++;
	pthread_cond_broadcast(&queue->looked);
	pthread_mutex_unlock(&queue->lock);
	return slept < 0 ? -HDL_EINTR : 0;
}

/* Repeat @attempt, which is true once there is a result, until @timeout_ms have passed. @arm:
 * before sleeping; false: there is no reason to. */
static int64_t cqueue_repeat(struct attempt_at *at, bool (*attempt)(struct attempt_at *at),
                             bool (*arm)(struct hdl_cqueue *queue), int timeout_ms)
{
	struct hdl_cqueue *queue = at->queue;
	uint64_t until_ns = timeout_ms < 0 ? UINT64_MAX : 0;
	if (attempt(at))
		return at->result;
	adapter_touch(queue->adapter);
	adapter_poll(queue->adapter);
	at->is_last = timeout_ms == 0;
	if (attempt(at))
		return at->result;
	if (timeout_ms == 0)
		return -HDL_EAGAIN;
	if (timeout_ms > 0)
		until_ns = clock_now_ns() + (uint64_t)timeout_ms * 1000000u;
	pthread_testcancel();
	int cancel = cancel_forbid(), slept = 0;
	bool done = false;
	while (!done && slept == 0 && (timeout_ms < 0 || clock_now_ns() < until_ns)) {
		cqueue_drain(queue);
		uint64_t looks = cqueue_looks(queue);
		if (arm(queue) || at->is_stuck)
			slept = cqueue_sleep(at, looks, until_ns, cancel);
		adapter_poll(queue->adapter);
		done = attempt(at);
	}
	cancel_restore(cancel);
	return done ? at->result : slept != 0 ? slept : -HDL_EAGAIN;
}

static bool cqueue_arm_data(struct hdl_cqueue *queue)
{
	const struct pring_reader_block *in = &queue->ring.own->in;
	atomic_store(&queue->seen_wrptr, atomic_load(&in->wrptr_copy));
	atomic_store(&queue->seen_end, atomic_load(&in->end_copy));
	atomic_store(&queue->wants_data, true);
	atomic_thread_fence(memory_order_seq_cst); /* C2 */
	return cring_arm_data(&queue->ring);
}

static bool cqueue_arm_room(struct hdl_cqueue *queue)
{
	atomic_store(&queue->seen_rdptr, atomic_load(&queue->ring.own->out.rdptr_copy));
	atomic_store(&queue->wants_room, true);
	atomic_thread_fence(memory_order_seq_cst); /* C2 */
	return cring_arm_room(&queue->ring);
}

int hdl_cqueue_arm(struct hdl_cqueue *queue, bool data, bool room)
{
	if (!is_cqueue(queue))
		return -HDL_EINVAL;
	bool quiet = (!data || cqueue_arm_data(queue)) && (!room || cqueue_arm_room(queue));
	return quiet ? 0 : -HDL_EAGAIN;
}

/* --- the calls --- */

static bool cqueue_ended(const struct hdl_cqueue *queue)
{
	return queue->carrier.alive != NULL && !queue->carrier.alive(queue->carrier.context);
}

static bool cqueue_try_write(struct attempt_at *at)
{
	struct hdl_cqueue *queue = at->queue;
	if (queue->finished || cqueue_ended(queue)) {
		at->result = -HDL_EPERM;
		return true;
	}
	uint64_t written = cring_write(&queue->ring, at->from, at->bytes);
	if (written == 0 && at->is_last && cring_look_room(&queue->ring) > 0)
		written = cring_write(&queue->ring, at->from, at->bytes);
	cqueue_wake(queue, cring_publish(&queue->ring));
	at->result = (int64_t)written;
	/* There was room, as far as cring_write() looked, but a store did not go out. */
	const struct pring_writer *out = &queue->ring.out;
	at->is_stuck = out->published != out->wrptr ||
	               (written == 0 && out->wrptr - out->rdptr < out->units);
	return written > 0;
}

int64_t hdl_cqueue_write(struct hdl_cqueue *queue, const void *data, uint64_t bytes, int timeout_ms)
{
	if (!is_cqueue(queue) || (data == NULL && bytes > 0) || bytes > INT64_MAX)
		return -HDL_EINVAL;
	struct attempt_at at = {.queue = queue, .from = data, .bytes = bytes};
	return bytes == 0 ? 0 : cqueue_repeat(&at, cqueue_try_write, cqueue_arm_room, timeout_ms);
}

static bool cqueue_try_end(struct attempt_at *at)
{
	bool wakes;
	if (cqueue_ended(at->queue)) {
		at->result = -HDL_EPERM;
		return true;
	}
	bool told = cring_finish(&at->queue->ring, &wakes);
	cqueue_wake(at->queue, wakes);
	at->queue->finished = told;
	at->result = 0;
	at->is_stuck = !told;
	return told && !atomic_load(&at->queue->owes_wake);
}

static bool cqueue_arm_nothing(struct hdl_cqueue *queue)
{
	(void)queue;
	return true;
}

int hdl_cqueue_end(struct hdl_cqueue *queue, int timeout_ms)
{
	if (!is_cqueue(queue))
		return -HDL_EINVAL;
	struct attempt_at at = {.queue = queue};
	return (int)cqueue_repeat(&at, cqueue_try_end, cqueue_arm_nothing, timeout_ms);
}

static bool cqueue_try_read(struct attempt_at *at)
{
	struct hdl_cqueue *queue = at->queue;
	/* Looked at first: what came before the end of the connection is still read. */
	bool gone = cqueue_ended(queue);
	uint64_t bytes = cring_read(&queue->ring, at->to, at->bytes);
	cqueue_wake(queue, cring_release(&queue->ring, bytes == 0));
	at->result = (int64_t)bytes;
	at->is_stuck = queue->ring.in.published != queue->ring.in.rdptr;
	if (bytes > 0)
		return true;
	if (pring_has_ended(&queue->ring.in))
		return true; /* 0 */
	at->result = -HDL_EPERM;
	return gone;
}

int64_t hdl_cqueue_read(struct hdl_cqueue *queue, void *to, uint64_t max, int timeout_ms)
{
	if (!is_cqueue(queue) || to == NULL || max == 0 || max > INT64_MAX)
		return -HDL_EINVAL;
	struct attempt_at at = {.queue = queue, .to = to, .bytes = max};
	return cqueue_repeat(&at, cqueue_try_read, cqueue_arm_data, timeout_ms);
}
