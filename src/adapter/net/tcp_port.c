/* The TCP port: which connections have something to do, and when. See tcp_port.h. */
#include "adapter/net/tcp_port.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "base/fd.h"

#define CHUNK_BYTES ((size_t)TCP_CHUNKS * IWARP_CHUNK_BYTES)

/* The lowest bit of what the epoll stores: it is a listener. */
#define WATCH_LISTENER 1u
#define WATCH_END      2u /* the second: a UDP socket of SCTP */
#define WATCH_UDP      4u /* the third: a socket of plain UDP */

/* --- lists --- */

void tcp_port_wake(struct tcp_port *port, struct hdl_conn *conn)
{
	if (conn->woken)
		return;
	port->port.skip = 0;
	conn->woken = true;
	conn->woken_next = NULL;
	*port->woken_end = conn;
	port->woken_end = &conn->woken_next;
}

void tcp_port_at(struct tcp_port *port, uint64_t ns)
{
	if (ns < port->port.due_ns)
		port->port.due_ns = ns;
}

void tcp_port_heat(struct tcp_port *port, struct hdl_conn *conn)
{
	conn->cold = 0;
	port->port.skip = port->port.empty_looks = 0;
	if (conn->heat != 0 || conn->state != CONN_UP)
		return;
	if (port->hot_count == TCP_HOT) { /* the coldest gives way */
		struct hdl_conn *coldest = port->hot[0];
		for (unsigned i = 1; i < TCP_HOT; i++)
			if (port->hot[i]->cold > coldest->cold)
				coldest = port->hot[i];
		if (coldest->cold == 0)
			return;
		tcp_port_cool(port, coldest);
	}
	port->hot[port->hot_count++] = conn;
	conn->heat = (uint8_t)port->hot_count;
}

void tcp_port_cool(struct tcp_port *port, struct hdl_conn *conn)
{
	if (conn->heat == 0)
		return;
	struct hdl_conn *last = port->hot[--port->hot_count];
	port->hot[conn->heat - 1] = last;
	last->heat = conn->heat;
	conn->heat = 0;
}

/* --- the epoll --- */

int tcp_port_watch(struct tcp_port *port, int sock, struct hdl_conn *conn,
                   struct hdl_listener *listener)
{
	struct epoll_event interest = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
	                               .data.u64 = (uint64_t)(uintptr_t)conn};
	if (listener != NULL) {
		interest.events = EPOLLIN;
		interest.data.u64 = (uint64_t)(uintptr_t)listener | WATCH_LISTENER;
	}
	return epoll_ctl(port->port.fd, EPOLL_CTL_ADD, sock, &interest) == 0 ? 0 : -errno;
}

int tcp_port_watch_end(struct tcp_port *port, struct sctp_end *end)
{
	struct epoll_event interest = {.events = EPOLLIN,
	                               .data.u64 = (uint64_t)(uintptr_t)end | WATCH_END};
	return epoll_ctl(port->port.fd, EPOLL_CTL_ADD, end->fd, &interest) == 0 ? 0 : -errno;
}

void tcp_port_unwatch_end(struct tcp_port *port, const struct sctp_end *end)
{
	epoll_ctl(port->port.fd, EPOLL_CTL_DEL, end->fd, NULL);
}

int tcp_port_watch_udp(struct tcp_port *port, struct udp_sock *sock, int fd)
{
	struct epoll_event interest = {.events = EPOLLIN,
	                               .data.u64 = (uint64_t)(uintptr_t)sock | WATCH_UDP};
	return epoll_ctl(port->port.fd, EPOLL_CTL_ADD, fd, &interest) == 0 ? 0 : -errno;
}

/* All that there is to do for @conn, in this turn of the port. */
static unsigned port_serve(struct tcp_port *port, struct hdl_conn *conn)
{
	conn->turn = port->turn;
	return conn_service(conn);
}

static unsigned port_news(struct hdl_conn *conn, uint32_t events)
{
	if (events & EPOLLOUT)
		conn->out_held = false;
	if (events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP))
		conn->hung_up = true;
	if (events & (EPOLLERR | EPOLLHUP))
		conn_hung_up(conn);
	return port_serve(conn->port, conn);
}

/* Ask the epoll which sockets have news. */
static unsigned port_ask(struct tcp_port *port)
{
	struct epoll_event events[TCP_EVENTS];
	unsigned did = 0;
	long count = syscall(SYS_epoll_pwait, port->port.fd, events, TCP_EVENTS, 0, NULL, 0);
	for (long i = 0; i < count; i++) {
		uint64_t which = events[i].data.u64;
		if (which & WATCH_LISTENER)
			listener_accept(
			        (struct hdl_listener *)(uintptr_t)(which &
			                                           ~(uint64_t)WATCH_LISTENER));
		else if (which & WATCH_END)
			did += sctp_port_packets(
			        port, (struct sctp_end *)(uintptr_t)(which & ~(uint64_t)WATCH_END));
		else if (which & WATCH_UDP)
			did += udp_service_receive(
			        (struct udp_sock *)(uintptr_t)(which & ~(uint64_t)WATCH_UDP));
		else
			did += port_news((struct hdl_conn *)(uintptr_t)which, events[i].events);
	}
	return did + (count > 0);
}

/* --- the port --- */

static struct tcp_port *tcp_port_from(struct net_port *port)
{
	return (struct tcp_port *)(void *)port;
}

static void port_bury(struct tcp_port *port)
{
	while (port->dead != NULL) {
		struct hdl_conn *conn = port->dead;
		port->dead = conn->woken_next;
		free(conn);
	}
}

/* Connections that were woken; those that are woken meanwhile have their turn next time. */
static unsigned port_serve_woken(struct tcp_port *port)
{
	struct hdl_conn *conn = port->woken, *next;
	unsigned did = 0;
	port->woken = NULL;
	port->woken_end = &port->woken;
	for (; conn != NULL; conn = next) {
		next = conn->woken_next;
		conn->woken = false;
		did += port_serve(port, conn);
	}
	return did;
}

static unsigned port_read_hot(struct tcp_port *port)
{
	unsigned did = 0;
	for (unsigned i = 0; i < port->hot_count; i++) {
		struct hdl_conn *conn = port->hot[i];
		if (conn->turn == port->turn) /* it has just been read */
			continue;
		unsigned came = conn_receive(conn);
		did += came;
		conn->cold = came > 0 ? 0 : conn->cold + 1;
		if (conn->cold > TCP_COLD_LOOKS)
			tcp_port_cool(port,
			              conn); /* the last one is here now; it waits for a turn */
	}
	return did;
}

static unsigned tcp_port_receive(struct net_port *base)
{
	struct tcp_port *port = tcp_port_from(base);
	unsigned did = 0;
	port->turn++;
	if (port->dead != NULL)
		port_bury(port);
	if (port->woken != NULL)
		did = port_serve_woken(port);
	if (base->woke || port->hot_count == 0 || ++port->looks % TCP_ASK_EVERY == 0) {
		base->woke = false;
		did += port_ask(port);
	}
	return did + port_read_hot(port);
}

static bool tcp_port_blocked(const struct net_port *base)
{
	return ((const struct tcp_port *)(const void *)base)->woken != NULL;
}

static unsigned tcp_port_tick(struct net_port *base, uint64_t now_ns)
{
	struct tcp_port *port = tcp_port_from(base);
	unsigned did = 0;
	base->due_ns = UINT64_MAX;
	for (struct hdl_conn *conn = port->conns, *next; conn != NULL; conn = next) {
		next = conn->next;
		if (conn->due_ns <= now_ns) {
			conn_expire(conn, now_ns);
			did++;
		}
	}
	for (struct hdl_conn *conn = port->conns; conn != NULL; conn = conn->next)
		tcp_port_at(port, conn->due_ns);
	did += sctp_port_tick(port, now_ns);
	for (struct hdl_listener *at = port->listeners; at != NULL; at = at->next) {
		if (at->paused && at->resume_ns != 0)
			listener_resume(at, now_ns);
		if (at->paused && at->resume_ns != 0)
			tcp_port_at(port, at->resume_ns);
	}
	return did;
}

/* The turn is over: send what has been built in it. Most connections were woken for that alone. */
static void tcp_port_flush(void *context)
{
	struct tcp_port *port = context;
	struct hdl_conn **at = &port->woken;
	while (*at != NULL) {
		struct hdl_conn *conn = *at;
		conn_send(conn);
		if (!conn_is_quiet(conn)) {
			at = &conn->woken_next;
			continue;
		}
		conn->woken = false;
		*at = conn->woken_next;
		if (port->woken_end == &conn->woken_next)
			port->woken_end = at;
	}
}

/* Also in a child of fork(): sockets are closed, and nothing is sent. */
static void tcp_port_end(struct net_port *base)
{
	struct tcp_port *port = tcp_port_from(base);
	sctp_port_mute(port);
	while (port->conns != NULL)
		conn_drop(port->conns);
	while (port->listeners != NULL)
		listener_drop(port->listeners);
	port_bury(port);
	sctp_port_end_all(port);
	udp_service_end(port);
	base->adapter->engine.iwarp_pool = NULL;
	munmap(port->chunk_memory, CHUNK_BYTES);
	owner_end(&port->owner);
	free(port->chunks);
	free(port->staging);
	fd_close(base->fd);
	fd_close(port->event_fd);
	free(port);
}

static const struct net_port_ops tcp_port_ops = {
        .name = "TCP",
        .receive = tcp_port_receive,
        .blocked = tcp_port_blocked,
        .tick = tcp_port_tick,
        .end = tcp_port_end,
};

struct tcp_port *tcp_port_find(const struct hdl_adapter *adapter)
{
	for (uint32_t i = 0; i < adapter->net.port_count; i++)
		if (adapter->net.ports[i]->ops == &tcp_port_ops)
			return tcp_port_from(adapter->net.ports[i]);
	return NULL;
}

/* What a new port is made of. False: errno says why. */
static bool port_make(struct tcp_port *port)
{
	port->staging = malloc(TCP_STAGING_BYTES);
	port->chunks = calloc(TCP_CHUNKS, sizeof(*port->chunks));
	port->chunk_memory = mmap(NULL, CHUNK_BYTES, PROT_READ | PROT_WRITE,
	                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (port->staging == NULL || port->chunks == NULL || port->chunk_memory == MAP_FAILED)
		return false;
	iwarp_pool_init(&port->pool, port->chunks, TCP_CHUNKS, port->chunk_memory);
	port->woken_end = &port->woken;
	port->events_end = &port->events;
	port->carrier = (struct carrier){.flush = tcp_port_flush, .context = port};
	port->event_fd = fd_aside(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	port_init(&port->port, &tcp_port_ops, fd_aside(epoll_create1(EPOLL_CLOEXEC)));
	return port->event_fd >= 0 && port->port.fd >= 0;
}

static void port_unmake(struct tcp_port *port)
{
	if (port->port.fd >= 0)
		fd_close(port->port.fd);
	if (port->event_fd >= 0)
		fd_close(port->event_fd);
	owner_end(&port->owner);
	if (port->chunk_memory != MAP_FAILED && port->chunk_memory != NULL)
		munmap(port->chunk_memory, CHUNK_BYTES);
	free(port->chunks);
	free(port->staging);
	free(port);
}

struct tcp_port *tcp_port_of(struct hdl_adapter *adapter)
{
	struct tcp_port *port = tcp_port_find(adapter);
	if (port != NULL)
		return port;
	port = calloc(1, sizeof(*port));
	if (port == NULL)
		return NULL;
	port->port.fd = port->event_fd = -1;
	port->owner = (struct owner){.uid = geteuid(), .diag = -1};
	if (!port_make(port) || ports_add(adapter, &port->port, &port->carrier) != 0) {
		int error = errno;
		port_unmake(port);
		errno = error;
		return NULL;
	}
	adapter->engine.iwarp_pool = &port->pool;
	return port;
}

/* --- exit --- */

/* One turn of those that linger. False: there are none. */
static bool port_linger(struct tcp_port *port)
{
	bool lingers = false;
	for (struct hdl_conn *conn = port->conns, *next; conn != NULL; conn = next) {
		next = conn->next;
		if (!conn_lingers(conn))
			continue;
		lingers = true;
		conn_service(conn);
	}
	return lingers;
}

/* The kernel resets a connection of a process that exits if something has come that nobody has
 * read, and drops what it has not sent yet: the end of what the program sent and saw completed,
 * before it closed the connection in order. */
static void linger(struct hdl_adapter *adapter, void *context)
{
	(void)context;
	struct timespec pause = {.tv_nsec = 1000000};
	uint64_t until = clock_now_ns() + TCP_EXIT_NS;
	bool lingers = tcp_port_find(adapter) != NULL;
	while (lingers && clock_now_ns() < until) {
		if (lock_try(&adapter->drive.lock)) {
			struct tcp_port *port = tcp_port_find(adapter);
			lingers = port != NULL && port_linger(port);
			lock_drop(&adapter->drive.lock);
		}
		if (lingers)
			nanosleep(&pause, NULL);
	}
}

__attribute__((destructor)) static void linger_at_exit(void)
{
	(void)fork_each(linger, NULL);
}
