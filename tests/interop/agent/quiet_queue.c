/* No system call for a store, a byte in a circular queue or an event between two running programs
 * of one machine (AP7 to AP9): from some moment on, a filter (seccomp) makes every system call of
 * the thread a signal, whose handler counts it and lets it fail. What remains is waking the
 * adapter's own thread now and then, which is not per event. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <heddle/aperture.h>
#include <heddle/cqueue.h>

#include "end.h"

#define QUEUE     4096u
#define TRIPS     20000u
#define PER_CALL  200u /* trips for each system call, at least */
#define WAIT      20000
#define MAX_SPINS 2000000000u

static volatile uint64_t calls;
static volatile int last_call;

static void on_call(int number, siginfo_t *info, void *context)
{
	ucontext_t *at = context;
	(void)number;
	calls++;
	last_call = info->si_syscall;
	at->uc_mcontext.gregs[REG_RAX] = -EAGAIN;
}

/* From now on no system call of this thread does anything, but for what ends it. */
static void forbid_calls(void)
{
	struct sock_filter filter[] = {
	        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 3, 0),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 2, 0),
	        /* With two processors for many programs, a lock that is held has to be waited
	         * for. */
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_yield, 1, 0),
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
	struct sigaction action = {.sa_sigaction = on_call, .sa_flags = SA_SIGINFO};
	if (sigaction(SIGSYS, &action, NULL) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
		_exit(77);
}

struct side {
	struct hdl_adapter *adapter;
	struct hdl_port *port;
	struct hdl_eventq *events;
	struct hdl_aperture *aperture;
	struct hdl_cqueue *queue;
};

static void side_open(struct side *side)
{
	struct hdl_open_attr open = {.on_node = true};
	MUST(hdl_open(&open, &side->adapter));
	MUST(hdl_port_open(side->adapter, NULL, &side->port));
	MUST(hdl_eventq_open(side->port, NULL, &side->events));
	struct hdl_aperture_attr attr = {.length = hdl_cqueue_length(QUEUE), .port = side->port};
	MUST(hdl_aperture_open(side->adapter, &attr, &side->aperture));
}

/* One record there and one back, and every tenth time an event. */
static bool trip(struct side *side, uint64_t number, bool first)
{
	struct hdl_port_event event;
	uint64_t got = 0;
	if (first && hdl_cqueue_write(side->queue, &number, 8, 0) != 8)
		return false;
	for (uint32_t i = 0; hdl_cqueue_read(side->queue, &got, 8, 0) != 8; i++)
		if (i > MAX_SPINS)
			return false;
	if (got != number || (!first && hdl_cqueue_write(side->queue, &number, 8, 0) != 8))
		return false;
	if (number % 10 != 0)
		return true;
	if (first)
		return hdl_aperture_event(side->aperture, 0, &number, 8, 0) == 0;
	do
		while (hdl_eventq_take(side->events, &event, 1) != 1)
			;
	while (event.type != HDL_PORT_DATA);
	return true;
}

static int run(struct side *side, bool first)
{
	MUST(hdl_cqueue_open(side->aperture, QUEUE, side->events, &side->queue));
	for (uint64_t i = 1; i <= 100; i++) /* what happens once has happened then */
		if (!trip(side, i, first))
			return 3;
	forbid_calls();
	for (uint64_t i = 101; i <= TRIPS; i++)
		if (!trip(side, i, first))
			return 4;
	if (calls <= TRIPS / PER_CALL)
		return 0;
	fprintf(stderr, "%llu system calls for %u trips, the last was %d\n",
	        (unsigned long long)calls, TRIPS, last_call);
	return 5;
}

/* Where the one finds the other. */
struct place {
	struct hdl_gid gid;
	uint16_t port;
};

static int server(int out)
{
	struct side side = {0};
	struct hdl_limits limits;
	struct place card = {0};
	side_open(&side);
	MUST(hdl_adapter_query(side.adapter, &limits));
	card.gid = limits.gid;
	card.port = hdl_port_number(side.port);
	if (write(out, &card, sizeof(card)) != (ssize_t)sizeof(card))
		return 1;
	MUST(hdl_aperture_accept(side.aperture, side.port, 0, NULL, WAIT));
	return run(&side, false);
}

static int client(int in)
{
	struct side side = {0};
	struct place card;
	side_open(&side);
	if (read(in, &card, sizeof(card)) != (ssize_t)sizeof(card))
		return 1;
	MUST(hdl_aperture_connect(side.aperture, &card.gid, card.port, WAIT));
	return run(&side, true);
}

int main(void)
{
	int ends[2], result = 0;
	if (pipe(ends) != 0)
		return 1;
	for (int i = 0; i < 2; i++)
		if (fork() == 0)
			_exit(i == 0 ? server(ends[1]) : client(ends[0]));
	for (int i = 0; i < 2; i++) {
		int status;
		wait(&status);
		if (status != 0)
			result = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
	}
	return result;
}
