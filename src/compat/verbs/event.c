/* Asynchronous events: the adapter has one stream of them, and each goes to the contexts of the
 * object that it is about.
 *
 * A thread waits for the adapter's events and puts each into the queue of a context. Its async_fd
 * is a counting eventfd whose value is the number of events in the queue. ibv_get_async_event()
 * reads it, so that waiting, signals and O_NONBLOCK behave as with the kernel's descriptor.
 *
 * The thread holds hand_lock from taking an event until it has found the object. Destroying an
 * object takes it, too, so an event never finds another object at the same address. Lock order:
 * hand_lock, then a context's event_lock. */
#include "compat/compat.h"

#include <assert.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread.h"

#define BUCKETS 1024u

static pthread_mutex_t hand_lock = PTHREAD_MUTEX_INITIALIZER;
static struct target *buckets[BUCKETS];
static struct hdl_adapter *served;
static struct compat_context *open_contexts;

static struct target **verbs_event_bucket_of(const void *below)
{
	return &buckets[((uintptr_t)below >> 6) * 0x9e3779b1u % BUCKETS];
}

/* The first one, from @target on, that is about @below. */
static struct target *verbs_event_find(struct target *target, const void *below)
{
	while (target != NULL && target->below != below)
		target = target->next;
	return target;
}

/* --- handing out --- */

static void queue_event(struct compat_context *context, struct target *target,
                        const struct ibv_async_event *event)
{
	uint64_t one = 1;
	pthread_mutex_lock(&context->event_lock);
	/* A program that never reads its events loses the newest, as with the kernel's bounded
	 * queue. */
	if (context->event_count < HDL_MAX_EVENTS) {
		uint32_t at = (context->event_head + context->event_count++) % HDL_MAX_EVENTS;
		context->events[at] = (struct pending_event){.target = target, .event = *event};
		ssize_t done = write(context->verbs.context.async_fd, &one, sizeof(one));
		(void)done; /* cannot fail below 2^64 */
	}
	pthread_mutex_unlock(&context->event_lock);
}

/* The event's type in libibverbs; false: it has none. */
static bool translate(const struct hdl_event *from, enum ibv_event_type *type)
{
	switch (from->type) {
	case HDL_EVENT_CQ_OVERRUN:
		*type = IBV_EVENT_CQ_ERR;
		return true;
	case HDL_EVENT_QP_FATAL:
		*type = IBV_EVENT_QP_FATAL;
		return true;
	case HDL_EVENT_QP_REQUEST_ERR:
		*type = IBV_EVENT_QP_REQ_ERR;
		return true;
	case HDL_EVENT_QP_ACCESS_ERR:
		*type = IBV_EVENT_QP_ACCESS_ERR;
		return true;
	case HDL_EVENT_COMM_EST:
		*type = IBV_EVENT_COMM_EST;
		return true;
	case HDL_EVENT_SQ_DRAINED:
		*type = IBV_EVENT_SQ_DRAINED;
		return true;
	case HDL_EVENT_QP_LAST_WQE:
		*type = IBV_EVENT_QP_LAST_WQE_REACHED;
		return true;
	case HDL_EVENT_SRQ_LIMIT:
		*type = IBV_EVENT_SRQ_LIMIT_REACHED;
		return true;
	case HDL_EVENT_SRQ_ERR:
		*type = IBV_EVENT_SRQ_ERR;
		return true;
	case HDL_EVENT_PATH_MIG:
		*type = IBV_EVENT_PATH_MIG;
		return true;
	case HDL_EVENT_PATH_MIG_ERR:
		*type = IBV_EVENT_PATH_MIG_ERR;
		return true;
	default: /* lost memory, peers or events: the affected queue pairs have events of their
	            own */
		return false;
	}
}

/* For programs the node agent is what a subnet manager is: it gives names, groups and connections.
 * With hand_lock. */
static void hand_out_to_all(void)
{
	struct ibv_async_event event = {.event_type = IBV_EVENT_CLIENT_REREGISTER,
	                                .element.port_num = COMPAT_PORT};
	for (struct compat_context *at = open_contexts; at != NULL; at = at->next_open)
		queue_event(at, NULL, &event);
}

/* With hand_lock. */
static void hand_out(const struct hdl_event *from)
{
	struct ibv_async_event event = {0};
	if (from->type == HDL_EVENT_AGENT_CHANGED)
		hand_out_to_all();
	if (!translate(from, &event.event_type))
		return;
	const void *below = from->type == HDL_EVENT_CQ_OVERRUN ? (const void *)from->u.cq
	                    : from->type == HDL_EVENT_SRQ_LIMIT || from->type == HDL_EVENT_SRQ_ERR
	                            ? (const void *)from->u.srq
	                            : (const void *)from->u.qp;
	/* A queue pair may have been opened more than once: all openers get the event. */
	for (struct target *target = verbs_event_find(*verbs_event_bucket_of(below), below);
	     target != NULL; target = verbs_event_find(target->next, below)) {
		if (from->type == HDL_EVENT_SQ_DRAINED && !target->drained_ok)
			continue;
		if (target->kind == TARGET_CQ)
			event.element.cq = target->seen;
		else if (target->kind == TARGET_SRQ)
			event.element.srq = target->seen;
		else
			event.element.qp = target->seen;
		queue_event(target->context, target, &event);
	}
}

static void *verbs_event_serve(void *argument)
{
	struct hdl_adapter *adapter = argument;
	for (;;) {
		struct pollfd waiting = {.fd = hdl_event_fd(adapter), .events = POLLIN};
		struct hdl_event event;
		if (poll(&waiting, 1, -1) <= 0)
			continue;
		pthread_mutex_lock(&hand_lock);
		while (hdl_event_get(adapter, &event, 0) == 0)
			hand_out(&event);
		pthread_mutex_unlock(&hand_lock);
	}
	return NULL;
}

int compat_events_start(struct hdl_adapter *adapter)
{
	pthread_t thread;
	if (served == adapter)
		return 0;
	int error = thread_start(&thread, verbs_event_serve, adapter);
	if (error != 0) {
		log_error("the thread for events could not be started: %s; end some programs, or "
		          "raise \"ulimit -u\" or \"ulimit -v\"",
		          strerror(error));
		return error;
	}
	pthread_detach(thread);
	served = adapter;
	return 0;
}

void compat_events_forget(void)
{
	pthread_mutex_init(&hand_lock, NULL);
	memset(buckets, 0, sizeof(buckets));
	open_contexts = NULL;
	served = NULL;
}

int compat_events_open(struct compat_context *context)
{
	context->verbs.context.async_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	if (context->verbs.context.async_fd < 0)
		return errno;
	pthread_mutex_init(&context->event_lock, NULL);
	pthread_mutex_lock(&hand_lock);
	context->next_open = open_contexts;
	open_contexts = context;
	pthread_mutex_unlock(&hand_lock);
	return 0;
}

/* Objects that are left when their context is closed get no more events. */
void compat_events_close(struct compat_context *context)
{
	pthread_mutex_lock(&hand_lock);
	for (size_t i = 0; i < BUCKETS; i++)
		for (struct target **at = &buckets[i]; *at != NULL;) {
			if ((*at)->context == context)
				*at = (*at)->next;
			else
				at = &(*at)->next;
		}
	for (struct compat_context **at = &open_contexts; *at != NULL;) {
		if (*at == context)
			*at = context->next_open;
		else
			at = &(*at)->next_open;
	}
	pthread_mutex_unlock(&hand_lock);
	close(context->verbs.context.async_fd);
	pthread_mutex_destroy(&context->event_lock);
}

/* --- objects --- */

void compat_target_add(struct target *target)
{
	pthread_mutex_lock(&hand_lock);
	struct target **bucket = verbs_event_bucket_of(target->below);
	target->next = *bucket;
	*bucket = target;
	pthread_mutex_unlock(&hand_lock);
}

static void unlist(struct target *target)
{
	struct target **at = verbs_event_bucket_of(target->below);
	while (*at != NULL && *at != target)
		at = &(*at)->next;
	if (*at == target)
		*at = target->next;
}

/* Remove the events of @target that the program has not taken from the queue. With event_lock. */
static void purge(struct compat_context *context, const struct target *target)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < context->event_count; i++) {
		struct pending_event *from =
		        &context->events[(context->event_head + i) % HDL_MAX_EVENTS];
		if (from->target != target) {
			context->events[(context->event_head + kept++) % HDL_MAX_EVENTS] = *from;
			continue;
		}
		/* Count down with it, unless a reader has just done so: that one will find fewer
		 * events than it expects. */
		uint64_t one;
		struct iovec piece = {.iov_base = &one, .iov_len = sizeof(one)};
		ssize_t done = preadv2(context->verbs.context.async_fd, &piece, 1, -1, RWF_NOWAIT);
		(void)done;
	}
	assert(kept <= context->event_count);
	context->event_count = kept;
}

/* How many events of @target are acknowledged, and the condition to wait on for more. */
static uint32_t *acknowledged(struct target *target, pthread_mutex_t **mutex, pthread_cond_t **cond)
{
	if (target->kind == TARGET_CQ) {
		struct ibv_cq *cq = target->seen;
		*mutex = &cq->mutex, *cond = &cq->cond;
		return &cq->async_events_completed;
	}
	if (target->kind == TARGET_SRQ) {
		struct ibv_srq *srq = target->seen;
		*mutex = &srq->mutex, *cond = &srq->cond;
		return &srq->events_completed;
	}
	struct ibv_qp *qp = target->seen;
	*mutex = &qp->mutex, *cond = &qp->cond;
	return &qp->events_completed;
}

int compat_target_end(struct target *target, int (*destroy)(void *below))
{
	struct compat_context *context = target->context;
	void *below;
	memcpy(&below, &target->below, sizeof(below));
	if (compat_inherited(&context->verbs.context))
		return 0;
	pthread_mutex_lock(&hand_lock);
	int result = destroy(below);
	if (result == 0)
		unlist(target);
	pthread_mutex_unlock(&hand_lock);
	if (result != 0)
		return result;
	pthread_mutex_lock(&context->event_lock);
	purge(context, target);
	uint32_t taken = target->taken;
	pthread_mutex_unlock(&context->event_lock);
	pthread_mutex_t *mutex;
	pthread_cond_t *cond;
	const uint32_t *done = acknowledged(target, &mutex, &cond);
	pthread_mutex_lock(mutex);
	while (*done != taken)
		pthread_cond_wait(cond, mutex);
	pthread_mutex_unlock(mutex);
	return 0;
}

/* --- the program's side --- */

int ibv_get_async_event(struct ibv_context *ibv, struct ibv_async_event *event)
{
	struct compat_context *context = compat_context(ibv);
	for (;;) {
		uint64_t one;
		if (read(ibv->async_fd, &one, sizeof(one)) != sizeof(one))
			return -1;
		pthread_mutex_lock(&context->event_lock);
		bool found = context->event_count > 0;
		if (found) {
			const struct pending_event *first = &context->events[context->event_head];
			*event = first->event;
			if (first->target != NULL)
				first->target->taken++;
			context->event_head = (context->event_head + 1) % HDL_MAX_EVENTS;
			context->event_count--;
		}
		pthread_mutex_unlock(&context->event_lock);
		if (found)
			return 0;
	}
}

static void verbs_event_acknowledge(pthread_mutex_t *mutex, pthread_cond_t *cond, uint32_t *done)
{
	pthread_mutex_lock(mutex);
	(*done)++;
	pthread_cond_signal(cond);
	pthread_mutex_unlock(mutex);
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		verbs_event_acknowledge(&event->element.cq->mutex, &event->element.cq->cond,
		                        &event->element.cq->async_events_completed);
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		verbs_event_acknowledge(&event->element.qp->mutex, &event->element.qp->cond,
		                        &event->element.qp->events_completed);
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		verbs_event_acknowledge(&event->element.srq->mutex, &event->element.srq->cond,
		                        &event->element.srq->events_completed);
		break;
	default: /* about the port or the device: nothing waits for these */
		break;
	}
}
