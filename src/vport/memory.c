/* Links through shared memory, between two port processes of one user on one machine. The first end
 * of the link listens on a socket in the agent's directory; the other one connects, again and again
 * until it succeeds. The first end makes the lanes and passes them with its bell, and gets the
 * other bell in return. When one process ends, the other sees it by the socket. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/crc.h"
#include "base/memfile.h"
#include "fabric/board.h"
#include "port/bell.h"
#include "port/rundir.h"
#include "port/unixsock.h"
#include "vport/port.h"

#define TURN_FRAMES 64u

/* What each end says first: which link it means. Two links may have the same socket name. */
struct hello {
	uint32_t version;
	uint8_t ports[2];
	uint8_t reserved[2];
	char names[2][TOPOLOGY_NAME_BYTES];
};

#define HELLO_VERSION 1u

static void make_hello(const struct port *port, struct hello *hello)
{
	*hello = (struct hello){.version = HELLO_VERSION};
	for (unsigned i = 0; i < 2; i++) {
		const struct topology_end *end = &port->way->ends[i];
		hello->ports[i] = end->port;
		memcpy(hello->names[i], port->topology->nodes[end->node].name, TOPOLOGY_NAME_BYTES);
	}
}

static int memory_open(struct port *port, const char **why)
{
	char directory[RUNDIR_MAX], name[16];
	struct hello hello;
	int result = rundir_open(directory, NULL);
	*why = result != 0 ? rundir_advice(result)
	                   : "does another process run this node? end it (heddle vswitch down)";
	if (result != 0)
		return result;
	make_hello(port, &hello);
	snprintf(name, sizeof(name), "vl%08x", crc32c(0, &hello, sizeof(hello)));
	rundir_file(directory, name, port->path, sizeof(port->path));
	if (port->end != 0)
		return 0;
	int there = unixsock_connect(port->path);
	if (there >= 0) {
		close(there);
		return -EADDRINUSE;
	}
	unlink(port->path); /* of one that was killed */
	port->listener = unixsock_listen(port->path);
	if (port->listener < 0)
		return port->listener;
	port_watch(port, port->listener);
	return 0;
}

static void memory_drop(struct port *port)
{
	if (port->fd >= 0) {
		port_unwatch(port, port->fd);
		close(port->fd);
	}
	port->fd = -1;
	if (port->block != NULL)
		munmap(port->block, lanes_bytes_of(BOARD_LANE_SLOTS));
	port->block = NULL;
	if (port->peer_bell >= 0)
		close(port->peer_bell);
	port->peer_bell = -1;
	link_lose(&port->link);
}

static void memory_close(struct port *port)
{
	memory_drop(port);
	if (port->listener >= 0) {
		port_unwatch(port, port->listener);
		close(port->listener);
		unlink(port->path);
	}
	port->listener = -1;
}

static bool memory_map(struct port *port, int fd)
{
	size_t bytes = lanes_bytes_of(BOARD_LANE_SLOTS);
	if (!memfile_is_sealed(fd, bytes))
		return false;
	void *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (block == MAP_FAILED)
		return false;
	port->block = block;
	lanes_attach_of(&port->lanes, block, (int)port->end, BOARD_LANE_SLOTS);
	return true;
}

/* End 0: another process has connected. It takes the place of an earlier one. */
static void memory_accept(struct port *port)
{
	struct hello hello;
	pid_t pid;
	uid_t uid;
	int sock = accept4(port->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (sock < 0)
		return;
	int lanes = lanes_make(BOARD_LANE_SLOTS), bell = bell_lend(port_own_bell(port));
	make_hello(port, &hello);
	memory_drop(port);
	if (unixsock_peer(sock, &pid, &uid) == 0 && uid == geteuid() && lanes >= 0 && bell >= 0 &&
	    unixsock_send(sock, &hello, sizeof(hello), (int[]){lanes, bell}, 2) == 0 &&
	    memory_map(port, lanes)) {
		port->fd = sock;
		port_watch(port, sock);
	} else {
		close(sock);
	}
	if (lanes >= 0)
		close(lanes);
	if (bell >= 0)
		close(bell);
}

/* The other end has said which link it means, or has gone. */
static void memory_listen(struct port *port)
{
	struct hello hello, wanted;
	int fds[UNIXSOCK_MAX_FDS], count = 0, used = 0;
	ssize_t got = unixsock_receive(port->fd, &hello, sizeof(hello), fds, &count);
	if (got == -EAGAIN)
		return;
	make_hello(port, &wanted);
	bool good = got == (ssize_t)sizeof(hello) && memcmp(&hello, &wanted, sizeof(hello)) == 0 &&
	            port->peer_bell < 0;
	if (good && port->end == 0 && count == 1) {
		port->peer_bell = bell_take(fds[0]);
		used = 1;
	} else if (good && port->end == 1 && count == 2 && memory_map(port, fds[0])) {
		int bell = bell_lend(port_own_bell(port));
		port->peer_bell = bell_take(fds[1]);
		fds[1] = -1;
		good = bell >= 0 && unixsock_send(port->fd, &wanted, sizeof(wanted), &bell, 1) == 0;
		if (bell >= 0)
			close(bell);
	} else {
		good = false;
	}
	for (int i = used; i < count; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	if (!good)
		memory_drop(port);
}

static void memory_tick(struct port *port)
{
	if (port->end == 0 || port->fd >= 0)
		return;
	int sock = unixsock_connect(port->path);
	if (sock < 0)
		return;
	fcntl(sock, F_SETFL, O_NONBLOCK);
	port->fd = sock;
	port_watch(port, sock);
}

static void memory_ready(struct port *port, int fd)
{
	if (fd == port->listener)
		memory_accept(port);
	else if (fd == port->fd)
		memory_listen(port);
}

static bool memory_hear(struct port *port)
{
	static uint8_t frame[LINK_MAX_BYTES];
	bool any = false;
	for (unsigned i = 0; i < TURN_FRAMES && port->block != NULL; i++) {
		size_t bytes;
		const void *at = ring_peek(&port->lanes.rx, &bytes);
		if (at == NULL)
			break;
		any = true;
		bool fits = bytes <= sizeof(frame);
		if (fits)
			memcpy(frame, at, bytes);
		ring_release(&port->lanes.rx);
		if (fits)
			port_frame(port, frame, bytes);
		else
			port->link.damaged++;
	}
	if (port->block != NULL && port->lanes.rx.broken)
		memory_drop(port);
	return any;
}

static enum port_sent memory_send(struct port *port, const uint8_t header[LINK_HEADER_BYTES],
                                  const uint8_t *packet, size_t bytes)
{
	uint8_t *room = port->block != NULL && port->peer_bell >= 0
	                        ? ring_reserve(&port->lanes.tx, LINK_HEADER_BYTES + bytes)
	                        : NULL;
	if (room == NULL)
		return PORT_FULL;
	memcpy(room, header, LINK_HEADER_BYTES);
	if (bytes > 0)
		memcpy(room + LINK_HEADER_BYTES, packet, bytes);
	ring_publish(&port->lanes.tx);
	if (ring_take_armed(&port->lanes.tx))
		bell_ring(port->peer_bell);
	return PORT_SENT;
}

static bool memory_arm(struct port *port)
{
	if (port->block == NULL)
		return true;
	ring_arm(&port->lanes.rx);
	return !ring_waits(&port->lanes.rx);
}

static void memory_disarm(struct port *port)
{
	if (port->block != NULL)
		ring_disarm(&port->lanes.rx);
}

const struct port_kind port_memory = {.name = "shm",
                                      .open = memory_open,
                                      .close = memory_close,
                                      .hear = memory_hear,
                                      .ready = memory_ready,
                                      .send = memory_send,
                                      .tick = memory_tick,
                                      .arm = memory_arm,
                                      .disarm = memory_disarm};
