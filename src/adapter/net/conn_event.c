/* Events of connections, from the thread that drives to the program. See tcp_port.h. A connection
 * has each event at most once, so the queue is a list of connections. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "adapter/net/tcp_port.h"
#include "base/cancel.h"

#define DRIVE_EVERY_MS 10 /* without a thread, whoever waits drives */

/* The descriptor is readable while there are events. */
static void events_show(const struct tcp_port *port, bool readable)
{
	uint64_t count = 1;
	long done = syscall(readable ? SYS_write : SYS_read, port->event_fd, &count, sizeof(count));
	(void)done; /* EAGAIN: it is already so */
}

void conn_raise(struct hdl_conn *conn, enum hdl_conn_event_type type, int error)
{
	struct tcp_port *port = conn->port;
	if (conn->orphan)
		return;
	if (type >= HDL_CONN_REJECTED)
		conn->error = error;
	if (conn->events == 0) {
		if (port->events == NULL)
			events_show(port, true);
		conn->event_next = NULL;
		*port->events_end = conn;
		port->events_end = &conn->event_next;
	}
	conn->events |= (uint8_t)(1u << type);
	if (port->handler != NULL) {
		atomic_store_explicit(&port->port.adapter->net.handler_due, true,
		                      memory_order_release);
		adapter_nudge(port->port.adapter);
	}
}

static void events_unlink(struct tcp_port *port, struct hdl_conn **at)
{
	struct hdl_conn *conn = *at;
	*at = conn->event_next;
	if (port->events_end == &conn->event_next)
		port->events_end = at;
	if (port->events == NULL)
		events_show(port, false);
}

void conn_forget_events(struct hdl_conn *conn)
{
	if (conn->events == 0)
		return;
	struct hdl_conn **at = &conn->port->events;
	while (*at != conn)
		at = &(*at)->event_next;
	conn->events = 0;
	events_unlink(conn->port, at);
}

static void event_private(struct hdl_conn_event *event, const struct mpa_connect *from)
{
	event->private_bytes = (uint32_t)from->private_bytes;
	if (from->private_bytes > 0)
		memcpy(event->private_data, from->private_data, from->private_bytes);
}

/* Fill in the next event of @conn and what goes with it. */
static void event_fill(struct hdl_conn *conn, struct hdl_conn_event *event)
{
	uint32_t type = (uint32_t)__builtin_ctz(conn->events);
	const struct mpa_connect *peer = conn->setup != NULL ? &conn->setup->peer : NULL;
	event->type = type;
	event->error = type >= HDL_CONN_REJECTED ? conn->error : 0;
	event->conn = conn;
	event->context = conn->context;
	event->listener = type == HDL_CONN_REQUEST ? conn->listener : NULL;
	memcpy(event->own.raw, conn->own.gid, sizeof(event->own.raw));
	memcpy(event->peer.raw, conn->peer.gid, sizeof(event->peer.raw));
	event->own_port = conn->own_port;
	event->peer_port = conn->peer_port;
	event->ird = conn->ird;
	event->ord = conn->ord;
	event->private_bytes = 0;
	if (type == HDL_CONN_REQUEST) {
		/* What the peer answers is what we may ask, and the other way round. */
		event->ird = peer->enhanced ? peer->ord : UINT16_MAX;
		event->ord = peer->enhanced ? peer->ird : UINT16_MAX;
	}
	if (peer != NULL && type != HDL_CONN_FAILED && type != HDL_CONN_CLOSED &&
	    (type == HDL_CONN_REQUEST || conn->initiator))
		event_private(event, peer);
	conn->events &= (uint8_t) ~(1u << type);
	if (type != HDL_CONN_REQUEST && conn->state >= CONN_UP) {
		free(conn->setup);
		conn->setup = NULL;
	}
}

static bool event_take(struct tcp_port *port, struct hdl_conn_event *event)
{
	struct hdl_conn *conn = port->events;
	if (conn == NULL)
		return false;
	event_fill(conn, event);
	if (!conn->held)
		atomic_fetch_add(&port->port.adapter->objects.count, 1);
	conn->held = true;
	if (conn->events == 0)
		events_unlink(port, &port->events);
	return true;
}

/* Without a thread, whoever waits drives: wait for an event, or for something to arrive. */
static void event_wait_alone(const struct tcp_port *port, uint64_t until_ns)
{
	struct pollfd fds[2] = {{.fd = port->event_fd, .events = POLLIN},
	                        {.fd = port->port.fd, .events = POLLIN}};
	uint64_t now = clock_now_ns(), left = until_ns > now ? until_ns - now : 0;
	int ms = left / 1000000u < DRIVE_EVERY_MS ? (int)(left / 1000000u) + 1 : DRIVE_EVERY_MS;
	poll(fds, 2, ms);
}

static bool event_take_one(struct hdl_adapter *adapter, struct hdl_conn_event *event,
                           const struct tcp_port **port)
{
	hdl_progress(adapter);
	adapter_lock(adapter);
	struct tcp_port *own = tcp_port_find(adapter);
	bool found = own != NULL && event_take(own, event);
	adapter_unlock(adapter);
	*port = own;
	return found;
}

int hdl_conn_event_get(struct hdl_adapter *adapter, struct hdl_conn_event *event, int timeout_ms)
{
	if (adapter == NULL || adapter->magic != MAGIC_ADAPTER || event == NULL)
		return -HDL_EINVAL;
	uint64_t until_ns =
	        timeout_ms < 0 ? UINT64_MAX : clock_now_ns() + (uint64_t)timeout_ms * 1000000u;
	const struct tcp_port *port;
	int result = 0;
	pthread_testcancel();
	int cancel = cancel_forbid();
	/* Whoever waits hears the sockets itself: no thread hands the event over. */
	while (result == 0 && !event_take_one(adapter, event, &port)) {
		if (port == NULL || clock_now_ns() >= until_ns)
			result = -HDL_EAGAIN;
		else if (!adapter->drive.has_thread)
			event_wait_alone(port, until_ns);
		else if (adapter_wait(adapter, port->event_fd, until_ns, cancel) < 0)
			result = -HDL_EINTR;
	}
	cancel_restore(cancel);
	return result;
}

int hdl_conn_event_fd(struct hdl_adapter *adapter)
{
	if (adapter == NULL || adapter->magic != MAGIC_ADAPTER)
		return -HDL_EINVAL;
	adapter_lock(adapter);
	const struct tcp_port *port = tcp_port_of(adapter);
	adapter_unlock(adapter);
	return port != NULL ? port->event_fd : -HDL_EIO;
}

int hdl_conn_notify(struct hdl_adapter *adapter, void (*handler)(void *context), void *context)
{
	if (adapter == NULL || adapter->magic != MAGIC_ADAPTER)
		return -HDL_EINVAL;
	if (!adapter->drive.has_thread)
		return -HDL_ENOTSUP;
	adapter_lock(adapter);
	struct tcp_port *port = tcp_port_of(adapter);
	if (port != NULL) {
		port->handler = handler;
		port->handler_context = context;
	}
	adapter_unlock(adapter);
	return port != NULL ? 0 : -HDL_EIO;
}

void conn_call_handler(struct hdl_adapter *adapter)
{
	adapter_lock(adapter);
	struct tcp_port *port = tcp_port_find(adapter);
	void (*handler)(void *) = port != NULL ? port->handler : NULL;
	void *context = port != NULL ? port->handler_context : NULL;
	adapter_unlock(adapter);
	if (handler != NULL)
		handler(context);
}
