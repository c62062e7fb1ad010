/* Rings, wake-ups and tracked pages of apertures, beside their floors, from one run:
 *
 *   a circular queue         8-byte records per second of the ring alone; through the calls and
 *                            beside other libraries it is in aperture.c
 *   a wake-up                of a thread that waits for an event queue, beside eventfd with epoll
 *                            and with io_uring
 *   a tracked store          the fault of the first store to a page, and collecting it, per tracker
 *
 * bench/cqueue prints figures; it never fails a build. */
#include <linux/io_uring.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "adapter/cqueue/cqueue.h"
#include "adapter/track/track.h"
#include "base/clock.h"
#include "figures.h"

#define TURNS   11
#define RECORDS 2000000u
#define WAKES   3000u
#define PAGES   1024u
#define RING    65536u

static size_t processors[2];

static void check(bool good, const char *what)
{
	if (!good) {
		perror(what);
		exit(1);
	}
}

/* --- a queue --- */

static struct cring_block *blocks[2];

static void ring_side(struct cring *ring, int side)
{
	cring_init(ring, blocks[side], RING, RING, blocks[!side], NULL);
}

static double ring_rate(void)
{
	struct cring ring;
	for (int i = 0; i < 2; i++)
		memset(blocks[i], 0, sizeof(struct cring_block));
	pid_t child = fork();
	if (child == 0) {
		figures_pin(processors[1]);
		ring_side(&ring, 1);
		uint64_t data[512], got = 0;
		uint32_t waits = 0;
		while (got < RECORDS * 8ull) {
			figures_spin(&waits);
			got += cring_read(&ring, data, sizeof(data));
			cring_release(&ring, false);
		}
		cring_release(&ring, true);
		_exit(0);
	}
	ring_side(&ring, 0);
	uint64_t begin = clock_now_ns();
	uint32_t spins = 0;
	for (uint64_t i = 0; i < RECORDS; i++) {
		while (cring_write(&ring, &i, 8) == 0)
			figures_spin(&spins);
		cring_publish(&ring);
	}
	waitpid(child, NULL, 0);
	return RECORDS * 1000.0 / (double)(clock_now_ns() - begin);
}

/* --- a wake-up --- */

static struct hdl_adapter *adapter;
static struct hdl_eventq *queues[2];
static int epolls[2], eventfds[2];

static void deliver_to(uint16_t port)
{
	struct hdl_port_event event = {.type = HDL_PORT_DATA};
	adapter_lock(adapter);
	eventq_deliver(adapter, port, &event, NULL, 0);
	adapter_unlock(adapter);
}

static void await_queue(struct hdl_eventq *queue)
{
	struct hdl_port_event event;
	while (hdl_eventq_wait(queue, 1000) != 0)
		;
	hdl_eventq_take(queue, &event, 1);
	hdl_eventq_take(queue, &event, 1); /* empty: it is armed again */
}

/* --- io_uring, by its system calls: one read of the eventfd at a time --- */

struct uring {
	int fd; /* -1: it is not here */
	_Atomic uint32_t *sq_tail, *cq_head, *cq_tail;
	uint32_t *sq_array;
	uint32_t sq_mask;
	struct io_uring_sqe *sqes;
	uint64_t count;
};
static struct uring rings[2];

static void uring_open(struct uring *ring)
{
	struct io_uring_params params = {0};
	ring->fd = (int)syscall(SYS_io_uring_setup, 2, &params);
	if (ring->fd < 0)
		return;
	size_t sq_bytes = params.sq_off.array + params.sq_entries * sizeof(uint32_t);
	size_t cq_bytes = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
	char *sq = mmap(NULL, sq_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->fd,
	                IORING_OFF_SQ_RING);
	char *cq = mmap(NULL, cq_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->fd,
	                IORING_OFF_CQ_RING);
	ring->sqes = mmap(NULL, params.sq_entries * sizeof(*ring->sqes), PROT_READ | PROT_WRITE,
	                  MAP_SHARED | MAP_POPULATE, ring->fd, IORING_OFF_SQES);
	check(sq != MAP_FAILED && cq != MAP_FAILED && ring->sqes != MAP_FAILED, "io_uring");
	ring->sq_tail = (_Atomic uint32_t *)(void *)(sq + params.sq_off.tail);
	ring->sq_array = (uint32_t *)(void *)(sq + params.sq_off.array);
	ring->sq_mask = *(uint32_t *)(void *)(sq + params.sq_off.ring_mask);
	ring->cq_head = (_Atomic uint32_t *)(void *)(cq + params.cq_off.head);
	ring->cq_tail = (_Atomic uint32_t *)(void *)(cq + params.cq_off.tail);
}

static void await_uring(int which)
{
	struct uring *ring = &rings[which];
	uint32_t tail = atomic_load(ring->sq_tail), at = tail & ring->sq_mask;
	ring->sqes[at] = (struct io_uring_sqe){.opcode = IORING_OP_READ,
	                                       .fd = eventfds[which],
	                                       .addr = (uint64_t)(uintptr_t)&ring->count,
	                                       .len = sizeof(ring->count)};
	ring->sq_array[at] = at;
	atomic_store(ring->sq_tail, tail + 1);
	long done = syscall(SYS_io_uring_enter, ring->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0);
	while (atomic_load(ring->cq_head) == atomic_load(ring->cq_tail) && done >= 0)
		done = syscall(SYS_io_uring_enter, ring->fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0);
	check(done >= 0, "io_uring_enter");
	atomic_fetch_add(ring->cq_head, 1);
}

static void await_eventfd(int which)
{
	struct epoll_event event;
	uint64_t count;
	while (epoll_wait(epolls[which], &event, 1, 1000) <= 0)
		;
	check(read(eventfds[which], &count, 8) == 8, "read");
}

static void signal_eventfd(int which)
{
	uint64_t one = 1;
	check(write(eventfds[which], &one, 8) == 8, "write");
}

/* How the two threads wake each other. */
enum waker { WAKE_EVENTFD, WAKE_URING, WAKE_QUEUE };

static void wake_other(enum waker waker, int which)
{
	if (waker == WAKE_QUEUE)
		deliver_to((uint16_t)(which + 1));
	else
		signal_eventfd(which);
}

static void await_other(enum waker waker, int which)
{
	if (waker == WAKE_QUEUE)
		await_queue(queues[which]);
	else if (waker == WAKE_URING)
		await_uring(which);
	else
		await_eventfd(which);
}

static void *wake_answers(void *context)
{
	const enum waker *waker = context;
	figures_pin(processors[1]);
	for (uint32_t i = 0; i < WAKES; i++) {
		await_other(*waker, 1);
		wake_other(*waker, 0);
	}
	return NULL;
}

static double wake_trip(enum waker waker)
{
	pthread_t thread;
	check(pthread_create(&thread, NULL, wake_answers, &waker) == 0, "thread");
	uint64_t begin = clock_now_ns();
	for (uint32_t i = 0; i < WAKES; i++) {
		wake_other(waker, 1);
		await_other(waker, 0);
	}
	double us = (double)(clock_now_ns() - begin) / WAKES / 2 / 1000;
	pthread_join(thread, NULL);
	return us;
}

static void wake_open(void)
{
	struct hdl_open_attr attr = {.max_mr = 64, .max_qp = 16};
	struct adapter_env env = {.clock = clock_real()};
	check(adapter_open(&attr, &env, &adapter) == 0, "adapter");
	for (uint16_t i = 0; i < 2; i++) {
		struct epoll_event event = {.events = EPOLLIN};
		check(eventq_open(adapter, (uint16_t)(i + 1), NULL, &queues[i]) == 0, "eventq");
		hdl_eventq_fd(queues[i]);
		eventfds[i] = eventfd(0, EFD_CLOEXEC);
		epolls[i] = epoll_create1(EPOLL_CLOEXEC);
		epoll_ctl(epolls[i], EPOLL_CTL_ADD, eventfds[i], &event);
		uring_open(&rings[i]);
	}
}

/* --- tracked pages --- */

static int forget_run(void *context, uint64_t offset, const void *data, uint64_t bytes)
{
	(void)context;
	(void)offset;
	(void)data;
	(void)bytes;
	return 0;
}

static bool track_turn(enum track_kind kind, double *fault_us, double *collect_us)
{
	struct track *track;
	if (track_open(kind, PAGES * TRACK_PAGE, NULL, &track) != 0)
		return false;
	uint64_t begin = clock_now_ns();
	for (uint32_t i = 0; i < PAGES; i++)
		*(volatile unsigned char *)(track->view + i * TRACK_PAGE) = 1;
	uint64_t stored = clock_now_ns();
	track_collect(track, forget_run, NULL);
	*fault_us = (double)(stored - begin) / PAGES / 1000;
	*collect_us = (double)(clock_now_ns() - stored) / PAGES / 1000;
	track_close(track);
	return true;
}

int main(void)
{
	double a[TURNS], b[TURNS], c[TURNS];
	if (!figures_two_processors(processors)) {
		printf("skipped: needs two processors\n");
		return 77;
	}
	figures_pin(processors[0]);
	for (int i = 0; i < 2; i++) {
		blocks[i] = mmap(NULL, cring_block_bytes(RING), PROT_READ | PROT_WRITE,
		                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		check(blocks[i] != MAP_FAILED, "mmap");
	}
	for (int i = 0; i < TURNS; i++)
		a[i] = ring_rate();
	figures_report("the ring of a circular queue alone, 8 bytes", a, TURNS, "M/s");
	wake_open();
	for (int i = 0; i < TURNS; i++) {
		a[i] = wake_trip(WAKE_EVENTFD);
		b[i] = wake_trip(WAKE_QUEUE);
		c[i] = rings[0].fd >= 0 && rings[1].fd >= 0 ? wake_trip(WAKE_URING) : 0;
	}
	figures_report("floor: eventfd and epoll wake a thread", a, TURNS, "us");
	if (rings[0].fd >= 0 && rings[1].fd >= 0)
		figures_report("eventfd and io_uring wake a thread", c, TURNS, "us");
	else
		printf("io_uring: not here\n");
	figures_report("an event queue wakes a thread", b, TURNS, "us");
	for (enum track_kind kind = TRACK_UFFD; kind <= TRACK_PROTECT; kind++) {
		bool works = true;
		for (int i = 0; i < TURNS && works; i++)
			works = track_turn(kind, &a[i], &b[i]);
		if (!works) {
			printf("%s: not here\n", kind == TRACK_UFFD ? "userfaultfd" : "mprotect");
			continue;
		}
		figures_report(kind == TRACK_UFFD ? "first store to a page, userfaultfd"
		                                  : "first store to a page, mprotect",
		               a, TURNS, "us");
		figures_report("collecting it", b, TURNS, "us");
	}
	return 0;
}
