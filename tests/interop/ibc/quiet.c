/* No system call per packet between two clients of one node that poll: from some moment on, a
 * filter (seccomp) makes every system call a signal, whose handler counts it and lets it fail. What
 * remains is a look at the agent's socket now and then, which finds nothing. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "peer.h"

#define RUN_NS    500000000u
#define IN_FLIGHT 32u /* packets, so that a busy machine does not decide how many there are */

/* What the two processes report. */
struct report {
	_Atomic bool started[2], stop;
	_Atomic uint64_t packets[2], calls[2];
	_Atomic int last_call[2];
};

static struct report *report;
static int side;
static IBC_HANDLE handles[IN_FLIGHT];

static void on_call(int number, siginfo_t *info, void *context)
{
	ucontext_t *at = context;
	(void)number;
	report->calls[side]++;
	report->last_call[side] = info->si_syscall;
	at->uc_mcontext.gregs[REG_RAX] = -EAGAIN;
}

/* From now on no system call does anything, except to return from a signal and to end. */
static bool forbid_calls(void)
{
	struct sock_filter filter[] = {
	        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 2, 0),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
	struct sigaction action = {.sa_sigaction = on_call, .sa_flags = SA_SIGINFO};
	return sigaction(SIGSYS, &action, NULL) == 0 &&
	       prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void throw_to(unsigned to)
{
	MUST(IBC_Send(IBC_WRITE_REQUEST_NO_ACK, NULL, 0, to, "bounce!", 8, NULL, IBC_PORT_ROUTE) ==
	     0);
}

/* Poll for packets and send each back, until the end. */
static void bounce(unsigned to, bool begin)
{
	bool received[IN_FLIGHT];
	for (unsigned i = 0; i < IN_FLIGHT && begin; i++)
		throw_to(to);
	while (!report->stop) {
		if (IBC_RecvWaitAny(handles, IN_FLIGHT, &peer_now, NULL, received, NULL, NULL,
		                    NULL) != IBC_RECVDONE)
			continue;
		for (unsigned i = 0; i < IN_FLIGHT; i++)
			if (received[i]) {
				throw_to(to);
				report->packets[side]++;
			}
	}
}

int main(void)
{
	unsigned apid;
	report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
	              0);
	MUST(report != MAP_FAILED);
	pid_t pids[2];
	for (side = 0; side < 2; side++) {
		pids[side] = fork();
		if (pids[side] != 0)
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		MUST(IBC_Init(40u + (unsigned)side, &apid, NULL, NULL) == 0);
		for (unsigned i = 0; i < IN_FLIGHT; i++)
			MUST(IBC_RecvPost(&handles[i]) == 0);
		report->started[side] = true;
		while (!report->started[1 - side])
			usleep(1000);
		/* Meet: the agent makes lanes when the first packet is sent. */
		throw_to(41u - (unsigned)side);
		MUST(IBC_RecvWait(handles[0], &peer_soon, NULL, NULL, NULL, NULL) == IBC_RECVDONE);
		if (!forbid_calls())
			_exit(77);
		bounce(41u - (unsigned)side, side == 0);
		_exit(0);
	}
	while (!report->started[0] || !report->started[1])
		usleep(1000);
	usleep(RUN_NS / 1000);
	report->stop = true;
	int failed = 0;
	for (side = 0; side < 2; side++) {
		int status;
		MUST(waitpid(pids[side], &status, 0) == pids[side]);
		if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
			printf("no seccomp filters here: not tested\n");
			return 77;
		}
		printf("client %d: %llu packets, %llu system calls (the last one %d)\n", side,
		       (unsigned long long)report->packets[side],
		       (unsigned long long)report->calls[side], report->last_call[side]);
		failed |= status != 0 || report->packets[side] < 100 ||
		          report->calls[side] > report->packets[side] / 10 + 5;
	}
	return failed;
}
