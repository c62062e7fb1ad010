/* No system call per message between two programs of one machine with virtual interfaces that poll
 * (PP1; SPLIT section II): from some moment on, each system call of the threads that send and
 * receive is counted and fails. What remains is waking the adapter's own thread, which is per
 * millisecond, not per message. */
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>

#include "forbid.h"
#include "side.h"

#define TRIPS    20000u
#define PER_CALL 200u /* trips for each system call, at least, */
#define PER_MS   1u   /* besides this many for each millisecond: others run, too */
#define BOTH     (HDL_VI_ACKNOWLEDGED | HDL_VI_CONNECTED)
#define SPINS    20000000000ull

static struct report {
	uint64_t trips, calls;
	double ms;
	int last;
} * reports;

static double now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void take(struct hdl_vi *vi, uint32_t queue, const struct hdl_vi_descriptor *descriptor)
{
	void *done;
	int result = -HDL_EAGAIN;
	for (uint64_t spins = 0; result == -HDL_EAGAIN && spins < SPINS; spins++)
		result = hdl_vi_done(vi, queue, &done);
	CHECK(result == 0 && done == descriptor &&
	      (side_status(descriptor) & HDL_VI_ERROR_MASK) == 0);
}

/* Wait for a message and answer it, or the other way round. */
static void trip(struct side *side, struct hdl_vi *vi, uint32_t number, bool first)
{
	struct hdl_vi_descriptor *in = &side->descriptors[number % 2];
	if (first)
		side_post(side, vi, HDL_VI_SEND_QUEUE, side_fill(side, 8, HDL_VI_SENDRECV, 0, 64));
	take(vi, HDL_VI_RECEIVE_QUEUE, in);
	CHECK(in->control.length == 64);
	/* The other of the two receives is still posted. */
	side_post(side, vi, HDL_VI_RECEIVE_QUEUE,
	          side_fill(side, number % 2, HDL_VI_SENDRECV, 4096 + 64 * (number % 2), 64));
	if (!first)
		side_post(side, vi, HDL_VI_SEND_QUEUE, side_fill(side, 8, HDL_VI_SENDRECV, 0, 64));
	take(vi, HDL_VI_SEND_QUEUE, &side->descriptors[8]);
}

static void exchange(struct side *side, struct hdl_vi *vi, bool first)
{
	struct report *report = &reports[first];
	for (uint32_t i = 0; i < 100; i++) /* what happens once has happened then */
		trip(side, vi, i, first);
	forbid_calls();
	double begin = now_ms();
	for (uint32_t i = 0; i < TRIPS; i++, report->trips++)
		trip(side, vi, i, first);
	report->ms = now_ms() - begin;
	report->calls = calls;
	report->last = last_call;
	_exit((double)calls <= (double)TRIPS / PER_CALL + PER_MS * report->ms ? 0 : 5);
}

static struct hdl_vi *ready(struct side *side)
{
	struct hdl_vi *vi = side_vi(side, BOTH);
	for (uint32_t i = 0; i < 2; i++)
		side_post(side, vi, HDL_VI_RECEIVE_QUEUE,
		          side_fill(side, i, HDL_VI_SENDRECV, 4096 + 64 * i, 64));
	return vi;
}

static void server(struct side *side, const char *name)
{
	struct hdl_vi *vi = ready(side);
	struct hdl_vi_listener *listener;
	MUST(hdl_vi_listen(side->adapter, name, NULL, &listener));
	MUST(hdl_vi_accept(listener, vi, SIDE_WAIT_MS));
	exchange(side, vi, false);
}

static void client(struct side *side, const char *name, const struct hdl_gid *to)
{
	struct hdl_vi *vi = ready(side);
	MUST(hdl_vi_connect(vi, to, name, SIDE_WAIT_MS));
	exchange(side, vi, true);
}

int main(void)
{
	reports = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (reports == MAP_FAILED)
		return 1;
	bool good = side_run(server, client);
	for (int i = 0; i < 2; i++)
		printf("%llu trips: %llu system calls in %.0f ms; the last was %d\n",
		       (unsigned long long)reports[i].trips, (unsigned long long)reports[i].calls,
		       reports[i].ms, reports[i].last);
	return good ? 0 : 1;
}
