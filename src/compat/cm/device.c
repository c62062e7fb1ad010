/* The device rdma_cm: its descriptors and the events that are read from them. */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "compat/cm/cm.h"

#define MAX_FDS 65536

/* A request is held back while the program has not answered the one before: how often to check, for
 * how long on a busy machine, and for how long if the program is known to collect requests. */
#define PACE_NS      200000
#define PACE_LONG_NS 1000000000u
#define PACE_NONE_NS 5000000u

/* Descriptors start here if the limit of open files allows it. In select(2), librspreload of
 * rdma-core 44 mistakes a channel's descriptor for the one that it gave to the program if the
 * channel's is lower, so the program would never see that it is ready. Numbers from here on are
 * still small enough for select(2). */
#define FIRST_FD 512

static pthread_mutex_t lock = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static _Atomic(struct cm_channel *) channels[MAX_FDS];
static struct hdl_adapter *receiver; /* the adapter whose messages we get */
static pid_t
        process; /* the process that they are for; a child may be created without fork handlers */

void cm_lock(void)
{
	pthread_mutex_lock(&lock);
}

void cm_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

void cm_lock_wait(uint64_t until_ns)
{
	struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
	                         .tv_nsec = (long)(until_ns % 1000000000u)};
	pthread_cond_clockwait(&wake, &lock, CLOCK_MONOTONIC, &until);
}

void cm_lock_wake(void)
{
	pthread_cond_signal(&wake);
}

struct cm_channel *cm_channel_of(int fd)
{
	return fd >= 0 && fd < MAX_FDS ? atomic_load_explicit(&channels[fd], memory_order_acquire)
	                               : NULL;
}

bool compat_cm_owns(int fd)
{
	return cm_channel_of(fd) != NULL;
}

static int high_eventfd(int flags)
{
	int low = eventfd(0, flags);
	if (low < 0)
		return -1;
	int high = fcntl(low, flags & EFD_CLOEXEC ? F_DUPFD_CLOEXEC : F_DUPFD, FIRST_FD);
	if (high < 0)
		return low;
	close(low);
	return high;
}

int compat_cm_open(int flags)
{
	struct hdl_adapter *adapter = compat_adapter();
	if (adapter == NULL)
		return -1;
	struct cm_channel *channel = calloc(1, sizeof(*channel));
	int fd = high_eventfd((flags & O_CLOEXEC ? EFD_CLOEXEC : 0) |
	                      (flags & O_NONBLOCK ? EFD_NONBLOCK : 0));
	if (channel == NULL || fd < 0 || fd >= MAX_FDS) {
		free(channel);
		if (fd >= 0)
			close(fd);
		errno = channel == NULL ? ENOMEM : EMFILE;
		return -1;
	}
	channel->fd = fd;
	channel->end = &channel->first;
	cm_lock();
	bool fresh = receiver != adapter;
	receiver = adapter;
	process = getpid();
	atomic_store_explicit(&channels[fd], channel, memory_order_release);
	cm_unlock();
	if (fresh)
		hdl_cm_receive(adapter, cm_receive, NULL);
	return fd;
}

/* The descriptor is about to be closed: everything that belongs to it ends. */
void compat_cm_close(int fd)
{
	int before;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	cm_lock();
	struct cm_channel *channel = cm_channel_of(fd);
	if (channel != NULL) {
		struct cm_id *id;
		for (uint32_t at = 0; (id = cm_id_next(&at)) != NULL; at++)
			if (id->channel == channel)
				cm_id_end(id);
		atomic_store_explicit(&channels[fd], NULL, memory_order_release);
		free(channel);
	}
	cm_unlock();
	pthread_setcancelstate(before, NULL);
}

void compat_cm_forget(void)
{
	lock = (pthread_mutex_t)PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
	pthread_cond_init(&wake, NULL);
	receiver = NULL;
	cm_forget_all();
	cm_wait_forget();
}

/* A program that exits normally disconnects itself: the agent would send notices for it, but not if
 * both end at the same time, as when their container ends. Not done in a signal handler that
 * interrupted us. */
__attribute__((destructor)) static void at_exit(void)
{
	if (receiver == NULL || process != getpid() || pthread_mutex_lock(&lock) != 0)
		return;
	cm_part_all();
	pthread_mutex_unlock(&lock);
}

/* --- events --- */

struct cm_event *cm_event_new(struct cm_id *id, enum cm_event_type type, int status)
{
	if (id->uid == 0) /* not accepted yet: accepting it will fail */
		return NULL;
	struct cm_event *event = calloc(1, sizeof(*event));
	if (event == NULL)
		return NULL;
	event->owner = id;
	event->resp.uid = id->uid;
	event->resp.id = id->handle;
	event->resp.event = type;
	event->resp.status = (uint32_t)status;
	return event;
}

/* The eventfd's count is 1 while there are events, so neither call can block. */
static void cm_device_show(const struct cm_channel *channel, bool readable)
{
	uint64_t value = 1;
	ssize_t done = readable ? write(channel->fd, &value, sizeof(value))
	                        : read(channel->fd, &value, sizeof(value));
	(void)done; /* the program may have closed the descriptor behind our back */
}

static void cm_device_append(struct cm_channel *channel, struct cm_event *event)
{
	if (channel->first == NULL)
		cm_device_show(channel, true);
	event->next = NULL;
	*channel->end = event;
	channel->end = &event->next;
}

void cm_push(struct cm_event *event)
{
	cm_device_append(event->owner->channel, event);
}

void cm_raise(struct cm_id *id, enum cm_event_type type, int status)
{
	struct cm_event *event = cm_event_new(id, type, status);
	if (event != NULL)
		cm_push(event);
}

void cm_move_events(struct cm_id *id, struct cm_channel *to)
{
	struct cm_channel *from = id->channel;
	bool had = from->first != NULL;
	struct cm_event *orphans = NULL;
	from->end = &from->first;
	while (*from->end != NULL) {
		struct cm_event *event = *from->end;
		if (event->owner != id && event->child != id) {
			from->end = &event->next;
			continue;
		}
		*from->end = event->next;
		if (to != NULL && event->owner == id) {
			cm_device_append(to, event);
			continue;
		}
		event->next = orphans;
		orphans = event;
	}
	if (had && from->first == NULL)
		cm_device_show(from, false);
	while (orphans != NULL) {
		struct cm_event *event = orphans;
		orphans = event->next;
		/* The identifier of a request that nobody will accept. */
		if (event->child != NULL && event->child != id)
			cm_id_end(event->child);
		free(event);
	}
}

void cm_forget_multicast(const struct cm_mc *mc)
{
	struct cm_channel *channel = mc->id->channel;
	bool had = channel->first != NULL;
	channel->end = &channel->first;
	while (*channel->end != NULL) {
		struct cm_event *event = *channel->end;
		if (event->mc != mc) {
			channel->end = &event->next;
			continue;
		}
		*channel->end = event->next;
		free(event);
	}
	if (had && channel->first == NULL)
		cm_device_show(channel, false);
}

/* The channel was closed while we waited. A system call holds the file until it ends, so it would
 * keep waiting until a signal: a program may rely on that and close the channel before it exits
 * while a thread still waits. Called with the lock, as below. */
static int wait_for_nothing(int cancel_state)
{
	cm_unlock();
	pthread_setcancelstate(cancel_state, NULL);
	pause();
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	cm_lock();
	return EINTR;
}

/* Wait for an event. Called with the lock, which is released meanwhile. 0 or an error. */
static int wait_for_event(int fd, int cancel_state)
{
	const struct cm_channel *channel = cm_channel_of(fd);
	while (channel != NULL && channel->first == NULL) {
		if (fcntl(fd, F_GETFL) & O_NONBLOCK)
			return EAGAIN;
		struct pollfd wait = {.fd = fd, .events = POLLIN};
		cm_unlock();
		pthread_setcancelstate(cancel_state, NULL);
		int result = poll(&wait, 1, -1);
		int error = errno;
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
		cm_lock();
		if (result < 0)
			return error;
		if (cm_channel_of(fd) != channel)
			channel = NULL;
	}
	return channel != NULL ? 0 : wait_for_nothing(cancel_state);
}

/* Programs that store the latest request in one place (rping -P before rdma-core 47) lose the first
 * of two that arrive together. On other devices requests are some time apart. So a program that
 * waits for requests, and has not answered the last one, gets time to do so. If it lets the time
 * pass, it is one that accepts several requests before it answers, and it is not delayed again. */
static int give_time(int fd, int cancel_state)
{
	const struct timespec pause = {.tv_nsec = PACE_NS};
	uint64_t begin = cm_now_ns();
	int error = 0;
	while (error == 0 && (fcntl(fd, F_GETFL) & O_NONBLOCK) == 0) {
		const struct cm_event *event = cm_channel_of(fd)->first;
		struct cm_id *listener = event->owner;
		const struct cm_id *last =
		        event->child != NULL ? cm_id_numbered(listener->shown) : NULL;
		if (last == NULL || last->state != CM_REQ_RECEIVED)
			break;
		if (cm_now_ns() - begin > (listener->collects ? PACE_NONE_NS : PACE_LONG_NS)) {
			listener->collects = true;
			break;
		}
		cm_unlock();
		nanosleep(&pause, NULL);
		cm_lock();
		error = wait_for_event(fd, cancel_state);
	}
	return error;
}

/* Some programs poll for completions and events in turn. When they learn that the peer has left,
 * they end the connection, and they lose the completions that arrived since they last polled
 * (libfabric's ofi_rxm: one side waits for its last message for ever, or learns that what arrived
 * was flushed). On other devices this event takes much longer than the messages before it. So a
 * program that does not block for events gets it only when no completion is left, or when it has
 * polled again and taken none. */
static bool comes_too_soon(struct cm_channel *channel)
{
	struct cm_event *event = channel->first;
	if (event->resp.event != CM_DISCONNECTED || event->owner->own_qpn == 0 ||
	    (fcntl(channel->fd, F_GETFL) & O_NONBLOCK) == 0)
		return false;
	int untaken = hdl_qp_untaken(receiver, event->owner->own_qpn);
	if (untaken <= 0 || untaken == event->untaken)
		return false;
	event->untaken = untaken;
	cm_device_show(channel, false); /* an edge for programs that use EPOLLET */
	cm_device_show(channel, true);
	return true;
}

static int get_event(int fd, const struct rdma_ucm_cmd_hdr *header,
                     const struct rdma_ucm_get_event *command, int cancel_state)
{
	if (header->in < sizeof(*command))
		return EINVAL;
	int error = wait_for_event(fd, cancel_state);
	if (error == 0)
		error = give_time(fd, cancel_state);
	if (error != 0)
		return error;
	struct cm_channel *channel = cm_channel_of(fd);
	if (comes_too_soon(channel))
		return EAGAIN;
	struct cm_event *event = channel->first;
	channel->first = event->next;
	if (channel->first == NULL) {
		channel->end = &channel->first;
		cm_device_show(channel, false);
	}
	event->owner->events_reported++;
	if (event->resp.event == CM_DISCONNECTED)
		cm_told(event->owner);
	if (event->mc != NULL)
		event->mc->events_reported++;
	if (event->child != NULL) {
		event->owner->backlog++;
		event->owner->shown = event->child->number;
	}
	size_t room = header->out < sizeof(event->resp) ? header->out : sizeof(event->resp);
	memcpy((void *)(uintptr_t)command->response, &event->resp, room);
	free(event);
	return 0;
}

ssize_t compat_cm_write(int fd, const void *data, size_t bytes)
{
	struct rdma_ucm_cmd_hdr header;
	if (bytes < sizeof(header)) {
		errno = EINVAL;
		return -1;
	}
	memcpy(&header, data, sizeof(header));
	if (header.in + sizeof(header) > bytes) {
		errno = EINVAL;
		return -1;
	}
	/* A thread may be cancelled while it waits for an event, but not while it holds the
	 * lock. */
	int before, error;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	cm_lock();
	struct cm_channel *channel = cm_channel_of(fd);
	const void *body = (const char *)data + sizeof(header);
	if (channel == NULL)
		error = EBADF;
	else if (header.cmd == RDMA_USER_CM_CMD_GET_EVENT)
		error = get_event(fd, &header, body, before);
	else
		error = cm_command(channel, &header, body);
	cm_unlock();
	pthread_setcancelstate(before, NULL);
	if (error != 0) {
		errno = error;
		return -1;
	}
	return (ssize_t)bytes;
}
