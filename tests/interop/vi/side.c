/* See side.h. */
#include "side.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t server_pid;

void side_must(int result, const char *what, int line)
{
	if (result >= 0)
		return;
	fprintf(stderr, "%d: line %d: %s: %s\n", (int)getpid(), line, what, hdl_strerror(result));
	_exit(3);
}

void side_open(struct side *side)
{
	struct hdl_open_attr attr = {.on_node = true, .cells = getenv("VI_CELLS") != NULL};
	struct hdl_limits limits;
	void *memory;
	size_t bytes = SIDE_DESCRIPTORS * sizeof(struct hdl_vi_descriptor) + SIDE_BYTES;
	MUST(hdl_open(&attr, &side->adapter));
	MUST(hdl_pd_create(side->adapter, &side->pd));
	MUST(hdl_mem_alloc(bytes, &memory));
	MUST(hdl_mr_register(side->pd, memory, bytes,
	                     HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE |
	                             HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE,
	                     &side->mr));
	MUST(hdl_adapter_query(side->adapter, &limits));
	side->gid = limits.gid;
	side->handle = hdl_mr_key(side->mr);
	side->descriptors = memory;
	side->data = (unsigned char *)memory + SIDE_DESCRIPTORS * sizeof(struct hdl_vi_descriptor);
}

void side_close(struct side *side)
{
	MUST(hdl_mr_deregister(side->mr));
	MUST(hdl_mem_free(side->descriptors));
	MUST(hdl_pd_destroy(side->pd));
	MUST(hdl_close(side->adapter));
}

struct hdl_vi_attr side_attr(uint32_t channel)
{
	return (struct hdl_vi_attr){.channel = channel,
	                            .access = HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE,
	                            .max_send = 64,
	                            .max_receive = 64,
	                            .max_segments = 4};
}

struct hdl_vi *side_vi(const struct side *side, uint32_t channel)
{
	struct hdl_vi_attr attr = side_attr(channel);
	struct hdl_vi *vi;
	MUST(hdl_vi_create(side->pd, &attr, &vi));
	return vi;
}

static struct hdl_vi_descriptor *fill(struct side *side, uint32_t index, uint16_t control,
                                      uint32_t offset, uint32_t bytes, uint32_t at)
{
	CHECK(index < SIDE_DESCRIPTORS && offset <= SIDE_BYTES && bytes <= SIDE_BYTES - offset);
	struct hdl_vi_descriptor *descriptor = &side->descriptors[index];
	memset(descriptor, 0, sizeof(*descriptor));
	descriptor->control.control = control;
	descriptor->control.length = bytes;
	descriptor->control.immediate = 0x01020304u + index;
	descriptor->control.segments = (uint16_t)(at + (bytes > 0 ? 1 : 0));
	descriptor->segment[at].data.addr = (uint64_t)(uintptr_t)(side->data + offset);
	descriptor->segment[at].data.handle = side->handle;
	descriptor->segment[at].data.length = bytes;
	return descriptor;
}

struct hdl_vi_descriptor *side_fill(struct side *side, uint32_t index, uint16_t control,
                                    uint32_t offset, uint32_t bytes)
{
	return fill(side, index, control, offset, bytes, 0);
}

struct hdl_vi_descriptor *side_fill_rdma(struct side *side, uint32_t index, uint16_t control,
                                         uint32_t offset, uint32_t bytes, uint64_t remote,
                                         struct hdl_key handle)
{
	struct hdl_vi_descriptor *descriptor = fill(side, index, control, offset, bytes, 1);
	descriptor->segment[0].remote.addr = remote;
	descriptor->segment[0].remote.handle = handle;
	return descriptor;
}

struct hdl_vi_descriptor *side_fill_to(struct side *side, uint32_t index, uint32_t offset,
                                       uint32_t bytes, const struct hdl_vi_destination *to)
{
	struct hdl_vi_descriptor *descriptor = fill(side, index, HDL_VI_SENDRECV, offset, bytes, 1);
	if (to != NULL)
		descriptor->segment[0].peer = *to;
	return descriptor;
}

void side_post(struct side *side, struct hdl_vi *vi, uint32_t queue,
               struct hdl_vi_descriptor *descriptor)
{
	MUST(hdl_vi_post(vi, queue, descriptor, side->handle));
}

uint32_t side_status(const struct hdl_vi_descriptor *descriptor)
{
	return __atomic_load_n(&descriptor->control.status, __ATOMIC_ACQUIRE);
}

uint32_t side_wait(struct hdl_vi *vi, uint32_t queue, const struct hdl_vi_descriptor *descriptor)
{
	void *done;
	MUST(hdl_vi_wait(vi, queue, SIDE_WAIT_MS, &done));
	CHECK(done == descriptor);
	return side_status(descriptor);
}

/* --- two processes --- */

/* The server may be on another node, with an agent and an address of its own; or on another host:
 * in a network namespace, with an interface of its own. */
static void be_server(const char *directory)
{
	const char *network = getenv("VI_SERVER_NETWORK");
	if (network != NULL) {
		int file = open(network, O_RDONLY | O_CLOEXEC);
		CHECK(file >= 0 && setns(file, CLONE_NEWNET) == 0);
		close(file);
		setenv("HEDDLE_DIR", directory, 1);
		setenv("HEDDLE_ETHER", getenv("VI_SERVER_ETHER"), 1);
	} else if (directory != NULL) {
		setenv("XDG_RUNTIME_DIR", directory, 1);
		setenv("HEDDLE_ADDR", getenv("VI_SERVER_ADDR"), 1);
	}
}

static bool run(void (*server)(struct side *side, const char *name),
                void (*client)(struct side *side, const char *name, const struct hdl_gid *to),
                bool kill_it)
{
	static unsigned runs;
	char name[HDL_VI_MAX_NAME];
	int talk[2], status;
	struct side side;
	snprintf(name, sizeof(name), "test %d.%u", (int)getpid(), runs++);
	if (pipe(talk) != 0)
		return false;
	server_pid = fork();
	if (server_pid == 0) {
		be_server(getenv("VI_SERVER_DIR"));
		side_open(&side);
		CHECK(write(talk[1], &side.gid, sizeof(side.gid)) == sizeof(side.gid));
		server(&side, name);
		side_close(&side);
		_exit(0);
	}
	pid_t pid = fork();
	if (pid == 0) {
		struct hdl_gid to;
		side_open(&side);
		CHECK(read(talk[0], &to, sizeof(to)) == sizeof(to));
		client(&side, name, &to);
		side_close(&side);
		_exit(0);
	}
	close(talk[0]);
	close(talk[1]);
	waitpid(pid, &status, 0);
	bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
	if (kill_it || !good)
		kill(server_pid, SIGKILL);
	waitpid(server_pid, &status, 0);
	return good && (kill_it || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

bool side_run(void (*server)(struct side *side, const char *name),
              void (*client)(struct side *side, const char *name, const struct hdl_gid *to))
{
	return run(server, client, false);
}

bool side_run_kill(void (*server)(struct side *side, const char *name),
                   void (*client)(struct side *side, const char *name, const struct hdl_gid *to))
{
	return run(server, client, true);
}

void side_kill_server(void)
{
	kill(server_pid, SIGKILL);
}
