/* System calls of a thread that must not make any: a filter (seccomp) makes each of them a signal,
 * whose handler counts it and lets it fail. The file that includes this is the whole program. */
#ifndef AGENT_FORBID_H
#define AGENT_FORBID_H

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

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

#endif
