/* A circular queue between two processes that reach each other over UDP (AP8): an event follows
 * hdl_cqueue_arm(), for data and for room, as soon as the packets have been placed, and a call that
 * waits sleeps until then instead of looking again and again. Whatever has been read is room for
 * the writer, though the reader makes no further call. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <heddle/aperture.h>
#include <heddle/cqueue.h>

#include "adapter/adapter.h"
#include "adapter/cqueue/cqueue.h"
#include "interop/agent/end.h"

#define QUEUE     4096u
#define WAIT      20000 /* ms */
#define QUIET_US  500000
#define MAX_LOOKS 60u /* in QUIET_US; once per millisecond would be hundreds */

#define CHECK(what)                                                        \
	do {                                                               \
		if (!(what)) {                                             \
			fprintf(stderr, "line %d: %s\n", __LINE__, #what); \
			exit(1);                                           \
		}                                                          \
	} while (0)

struct side {
	struct hdl_adapter *adapter;
	struct hdl_port *port;
	struct hdl_eventq *events;
	struct hdl_aperture *aperture;
	struct hdl_cqueue *queue;
	int in, out;
};

/* Where the one finds the other. */
struct place {
	struct hdl_gid gid;
	uint16_t port;
};

static void far_open(struct side *side)
{
	struct hdl_open_attr open = {.on_node = true};
	MUST(hdl_open(&open, &side->adapter));
	MUST(hdl_port_open(side->adapter, NULL, &side->port));
	MUST(hdl_eventq_open(side->port, NULL, &side->events));
	struct hdl_aperture_attr attr = {.length = hdl_cqueue_length(QUEUE), .port = side->port};
	MUST(hdl_aperture_open(side->adapter, &attr, &side->aperture));
}

static void far_close(struct side *side)
{
	MUST(hdl_cqueue_close(side->queue));
	MUST(hdl_aperture_free(side->aperture));
	MUST(hdl_eventq_close(side->events));
	MUST(hdl_port_close(side->port));
	MUST(hdl_close(side->adapter));
}

static void far_tell(const struct side *side)
{
	CHECK(write(side->out, "x", 1) == 1);
}

static void far_hear(const struct side *side)
{
	char byte;
	CHECK(read(side->in, &byte, 1) == 1);
}

/* An event of the queue. Those of the connection may come before it. */
static void far_event(struct side *side)
{
	struct hdl_port_event events[8];
	bool came = false;
	while (!came) {
		CHECK(hdl_eventq_wait(side->events, WAIT) == 0);
		int count = hdl_eventq_take(side->events, events, 8);
		for (int i = 0; i < count; i++)
			came |= events[i].type == HDL_PORT_DATA;
	}
}

static void far_read(struct side *side)
{
	char got[QUEUE];
	CHECK(hdl_cqueue_arm(side->queue, true, false) == 0);
	far_tell(side);
	far_event(side);
	CHECK(hdl_cqueue_arm(side->queue, true, false) == -HDL_EAGAIN);
	CHECK(hdl_cqueue_read(side->queue, got, sizeof(got), 0) == 5);
	CHECK(memcmp(got, "hello", 5) == 0);
	CHECK(hdl_cqueue_read(side->queue, got, 1, 0) == -HDL_EAGAIN); /* the peer is told */
	far_tell(side);                                                /* let it fill the queue */
	far_hear(side);
	uint32_t all = 0;
	while (all < QUEUE) {
		int64_t bytes = hdl_cqueue_read(side->queue, got, QUEUE - all, WAIT);
		CHECK(bytes > 0);
		all += (uint32_t)bytes;
	}
	far_hear(side);
	/* What it wrote as soon as there was room, and quiet. */
	CHECK(hdl_cqueue_read(side->queue, got, 1, WAIT) == 1 && got[0] == 'r');
	uint64_t looks = side->queue->looks;
	far_tell(side);
	CHECK(hdl_cqueue_read(side->queue, got, 4, WAIT) == 4);
	looks = side->queue->looks - looks;
	fprintf(stderr, "%llu looks in %d ms\n", (unsigned long long)looks, QUIET_US / 1000);
	CHECK(looks <= MAX_LOOKS);
	far_tell(side);
	far_hear(side); /* the queue is full */
	CHECK(hdl_cqueue_read(side->queue, got, 1000, WAIT) == 1000);
	far_tell(side);
	far_hear(side); /* no call until the writer has found room for that */
}

static void far_write(struct side *side)
{
	static const char data[QUEUE];
	far_hear(side);
	CHECK(hdl_cqueue_write(side->queue, "hello", 5, WAIT) == 5);
	far_hear(side);
	for (uint32_t all = 0; all < QUEUE;) {
		int64_t bytes = hdl_cqueue_write(side->queue, data, QUEUE - all, WAIT);
		CHECK(bytes > 0);
		all += (uint32_t)bytes;
	}
	CHECK(hdl_cqueue_write(side->queue, data, 1, 0) == -HDL_EAGAIN);
	struct hdl_port_event old[8]; /* of the calls that waited */
	while (hdl_eventq_take(side->events, old, 8) > 0)
		;
	CHECK(hdl_cqueue_arm(side->queue, false, true) == 0);
	far_tell(side);
	far_event(side);
	CHECK(hdl_cqueue_write(side->queue, "r", 1, 0) == 1);
	far_tell(side);
	far_hear(side);
	usleep(QUIET_US);
	CHECK(hdl_cqueue_write(side->queue, "late", 4, WAIT) == 4);
	far_hear(side);
	for (uint32_t all = 0; all < QUEUE;) {
		int64_t bytes = hdl_cqueue_write(side->queue, data, QUEUE - all, WAIT);
		CHECK(bytes > 0);
		all += (uint32_t)bytes;
	}
	far_tell(side);
	far_hear(side);
	CHECK(hdl_cqueue_write(side->queue, data, QUEUE, WAIT) == 1000);
	far_tell(side);
}

static int far_server(struct side *side)
{
	struct hdl_limits limits;
	struct place place = {0};
	far_open(side);
	MUST(hdl_adapter_query(side->adapter, &limits));
	place.gid = limits.gid;
	place.port = hdl_port_number(side->port);
	CHECK(write(side->out, &place, sizeof(place)) == (ssize_t)sizeof(place));
	MUST(hdl_aperture_accept(side->aperture, side->port, 0, NULL, WAIT));
	MUST(hdl_aperture_wait(side->aperture, WAIT));
	MUST(hdl_cqueue_open(side->aperture, QUEUE, side->events, &side->queue));
	far_read(side);
	far_close(side);
	return 0;
}

static int far_client(struct side *side)
{
	struct place place;
	far_open(side);
	CHECK(read(side->in, &place, sizeof(place)) == (ssize_t)sizeof(place));
	MUST(hdl_aperture_connect(side->aperture, &place.gid, place.port, WAIT));
	MUST(hdl_cqueue_open(side->aperture, QUEUE, side->events, &side->queue));
	CHECK(side->queue->ring.peer == NULL); /* by packets */
	far_write(side);
	far_close(side);
	return 0;
}

int main(void)
{
	int there[2], back[2], status;
	CHECK(pipe(there) == 0 && pipe(back) == 0);
	pid_t child = fork();
	struct side side = {.in = child == 0 ? there[0] : back[0],
	                    .out = child == 0 ? back[1] : there[1]};
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* it waits for us */
		_exit(far_client(&side));
	}
	int result = far_server(&side);
	CHECK(waitpid(child, &status, 0) == child);
	return result != 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}
