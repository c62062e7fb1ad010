/* A host that breaks the rules of the split driver on an open connection to a real unit.
 *
 *   hostile NODE-GID ATTACK     prints why the connection ended
 *
 * Each attack must end this connection, and nothing else. */
#include <endian.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "ulp/internal.h"
#include "wire/be.h"

static struct hdl_push *connection;
static bool is_open, is_over;
static uint32_t open_count;
static char reason[128];

static void on_opened(void *context, struct hdl_push *push)
{
	(void)context;
	connection = push;
	is_open = true;
	open_count++;
}

static void on_closed(void *context, struct hdl_push *push, const char *why)
{
	(void)context;
	(void)push;
	snprintf(reason, sizeof(reason), "%s", why);
	is_over = true;
	connection = NULL;
}

static bool on_frame(void *context, struct hdl_push *push, const uint8_t *frame, uint32_t bytes)
{
	(void)context;
	(void)push;
	(void)frame;
	(void)bytes;
	return true;
}

static void on_request(void *context, struct hdl_push *push, const struct hdl_push_cfg *request,
                       struct hdl_push_cfg *reply)
{
	(void)context;
	(void)push;
	(void)request;
	(void)reply;
}

static void on_answer(void *context, struct hdl_push *push, uint64_t token,
                      const struct hdl_push_cfg *reply)
{
	(void)context;
	(void)push;
	(void)token;
	(void)reply;
}

static const struct hdl_push_ops ops = {.opened = on_opened,
                                        .closed = on_closed,
                                        .deliver = on_frame,
                                        .configure = on_request,
                                        .configured = on_answer};

/* Post what the messaging layer never would. */
static void post(uint32_t channel, uint32_t opcode, uint32_t bytes, uint64_t address,
                 uint32_t handle, uint32_t immediate)
{
	struct hdl_sge piece = {.addr = (uintptr_t)connection->memory,
	                        .length = bytes,
	                        .key = hdl_mr_key(connection->mr)};
	struct hdl_send_wr wr = {.wr_id = (uint64_t)1 << 32, /* a message in buffer 0 */
	                         .sg_list = &piece,
	                         .num_sge = bytes > 0,
	                         .opcode = opcode,
	                         .flags = HDL_SEND_SIGNALED,
	                         .imm = htobe32(immediate),
	                         .u.rdma = {address, {handle}}};
	if (hdl_post_send(connection->qp[channel], &wr, NULL) != 0)
		exit(3);
}

static void attack(const char *name)
{
	const struct split_side *theirs = &connection->split->theirs;
	const struct push_pool *pool = &theirs->pools[theirs->open[0]].at;
	uint64_t end = pool->address + (uint64_t)pool->elements * pool->element_bytes;
	uint8_t *out = connection->memory;
	size_t bytes = 0;
	if (strcmp(name, "beyond") == 0)
		post(SPLIT_DATA, HDL_OP_WRITE, 64, end, pool->handle, 0);
	else if (strcmp(name, "across") == 0)
		post(SPLIT_DATA, HDL_OP_WRITE, 4096, end - 64, pool->handle, 0);
	else if (strcmp(name, "wrap") == 0)
		post(SPLIT_DATA, HDL_OP_WRITE, 4096, UINT64_MAX - 64, pool->handle, 0);
	else if (strcmp(name, "handle") == 0)
		post(SPLIT_DATA, HDL_OP_WRITE, 64, pool->address, pool->handle ^ 0x5a, 0);
	else if (strcmp(name, "read") == 0)
		post(SPLIT_DATA, HDL_OP_READ, 64, pool->address, pool->handle, 0);
	else if (strcmp(name, "pool") == 0)
		post(SPLIT_DATA, HDL_OP_WRITE_IMM, 64, pool->address, pool->handle, 0x77000040);
	else if (strcmp(name, "size") == 0)
		post(SPLIT_DATA, HDL_OP_WRITE_IMM, 64, pool->address, pool->handle, 0x0000ffff);
	else if (strcmp(name, "twice") == 0)
		for (unsigned i = 0; i < 300; i++) /* more often than there are elements */
			post(SPLIT_DATA, HDL_OP_WRITE_IMM, 64, pool->address, pool->handle,
			     0x00030040);
	else if (strcmp(name, "send") == 0)
		post(SPLIT_DATA, HDL_OP_SEND, 64, 0, 0, 0);
	else if (strcmp(name, "noise") == 0)
		bytes = 100;
	else if (strcmp(name, "elements") == 0)
		bytes = push_put_pools(1, &(struct push_pool){9, UINT32_MAX, 1, 77, 4096, 0}, 1,
		                       out, PUSH_MAX_BYTES);
	else if (strcmp(name, "update") == 0)
		bytes = push_put_runs(1, &(struct push_run){0, 0, UINT32_MAX}, 1, out,
		                      PUSH_MAX_BYTES);
	else if (strcmp(name, "flush") == 0)
		bytes = push_put_flush(1, &(uint32_t){PUSH_YOURS | 99}, 1, out, PUSH_MAX_BYTES);
	else if (strcmp(name, "long") == 0) {
		/* Longer than any receive: the queue pair itself refuses it. */
		post(SPLIT_CONTROL, HDL_OP_SEND, PUSH_MAX_BYTES + 64, 0, 0, 0);
	} else {
		exit(64);
	}
	if (bytes > 0)
		post(SPLIT_CONTROL, HDL_OP_SEND, (uint32_t)bytes, 0, 0, 0);
}

static bool wait_for(struct hdl_push_port *port, struct hdl_adapter *adapter, int epoll, bool *what)
{
	uint64_t end = clock_now_ns() + 30000000000ull;
	while (!*what && !is_over && clock_now_ns() < end) {
		struct epoll_event event;
		struct timespec timeout = {.tv_nsec = 10000000};
		if (hdl_push_run(port) == 0)
			hdl_epoll_wait(adapter, epoll, &event, 1, &timeout, NULL);
	}
	return *what;
}

/* Take all the places that a unit has for hosts, but one, until standard input ends. */
static int crowd(struct hdl_push_port *port, struct hdl_adapter *adapter, int epoll,
                 const struct hdl_gid *gid, const struct hdl_push_terms *terms)
{
	uint64_t end = clock_now_ns() + 60000000000ull;
	struct hdl_push *push;
	char byte;
	for (uint32_t i = 1; i < HDL_PUSH_MAX_LINKS - 1; i++)
		if (hdl_push_connect(port, gid, HDL_PUSH_SERVICE, "crowd", terms, &push) != 0)
			return 5;
	while (open_count < HDL_PUSH_MAX_LINKS - 1 && clock_now_ns() < end) {
		struct epoll_event event;
		struct timespec timeout = {.tv_nsec = 10000000};
		if (hdl_push_run(port) == 0)
			hdl_epoll_wait(adapter, epoll, &event, 1, &timeout, NULL);
	}
	if (open_count < HDL_PUSH_MAX_LINKS - 1)
		return 6;
	puts("all are taken");
	fflush(stdout);
	/* A unit ends hosts that do not answer. */
	struct pollfd input = {.fd = 0, .events = POLLIN};
	while (poll(&input, 1, 10) == 0)
		hdl_push_run(port);
	return read(0, &byte, 1) == 0 ? 0 : 7;
}

int main(int argc, char **argv)
{
	struct hdl_open_attr attr = {.on_node = true};
	struct hdl_push_terms terms = {
	        .host_owns = true, .unit_owns = true, .header_bytes = 10, .frame_bytes = 2048};
	struct hdl_adapter *adapter;
	struct hdl_push_port *port;
	struct hdl_push *push;
	struct hdl_process *list;
	struct hdl_gid gid = {{0}};
	size_t count;
	int fds[HDL_PUSH_FDS], epoll = epoll_create1(EPOLL_CLOEXEC);
	if (argc != 3 || hdl_open(&attr, &adapter) != 0 || hdl_observe(&list, &count) != 0)
		return 64;
	for (size_t i = 0; i < count; i++)
		if (strcmp(list[i].node, argv[1]) == 0)
			gid = list[i].gid;
	hdl_observe_free(list, count);
	if (hdl_push_open(adapter, 0, &ops, NULL, fds, &port) != 0 ||
	    hdl_push_connect(port, &gid, HDL_PUSH_SERVICE, "hostile", &terms, &push) != 0)
		return 1;
	for (unsigned i = 0; i < HDL_PUSH_FDS; i++) {
		struct epoll_event event = {.events = EPOLLIN};
		epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &event);
	}
	if (!wait_for(port, adapter, epoll, &is_open)) {
		fprintf(stderr, "not connected: %s\n", reason);
		return 2;
	}
	/* Let the unit offer its pools. */
	uint64_t end = clock_now_ns() + 30000000000ull;
	while (connection != NULL && connection->split->theirs.open_count == 0 &&
	       clock_now_ns() < end)
		hdl_push_run(port);
	if (connection == NULL || connection->split->theirs.open_count == 0)
		return 3;
	if (strcmp(argv[2], "crowd") == 0)
		return crowd(port, adapter, epoll, &gid, &terms);
	attack(argv[2]);
	if (!wait_for(port, adapter, epoll, &is_over))
		return 4;
	puts(reason);
	hdl_push_shut(port);
	hdl_close(adapter);
	hdl_push_free(port);
	return 0;
}
