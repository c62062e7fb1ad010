#include "base/thread.h"

#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <unistd.h>

/* What the process was started with: taken when we are loaded, before the program pins threads. */
static cpu_set_t processors;
static bool known;

__attribute__((constructor)) static void thread_remember_processors(void)
{
	/* Of the first thread: another one that loads us may be pinned already. */
	known = sched_getaffinity(getpid(), sizeof(processors), &processors) == 0;
}

int thread_start(pthread_t *thread, void *(*run)(void *context), void *context)
{
	static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
	sigset_t program, before;
	pthread_attr_t attr;
	sigfillset(&program);
	for (unsigned i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		sigdelset(&program, own[i]);
	int error = pthread_attr_init(&attr);
	if (error != 0)
		return error;
	pthread_sigmask(SIG_SETMASK, &program, &before);
	bool set =
	        known && pthread_attr_setaffinity_np(&attr, sizeof(processors), &processors) == 0;
	error = pthread_create(thread, &attr, run, context);
	if (error != 0 && set) /* the administrator has taken those processors away since */
		error = pthread_create(thread, NULL, run, context);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return error;
}
