/* Which processes may access the memory of this process. If the kernel allows only ancestors to do
 * so (Yama, ptrace_scope 1), a process can allow one other process, or all processes of the user.
 * Peers copy to and from our memory, so they need this permission as long as they are peers. A
 * single peer is allowed by name; with a second peer all processes are allowed, until all peers are
 * gone. The kernel remembers only one exception, so an exception that the program itself made is
 * lost when the first peer arrives. */
#include <pthread.h>
#include <sys/prctl.h>

#include "adapter/adapter.h"

pthread_mutex_t tracer_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned links;
static pid_t named;
static bool anybody;

static bool except(unsigned long whom)
{
	return prctl(PR_SET_PTRACER, whom, 0, 0, 0) == 0;
}

bool tracer_allow(pid_t pid)
{
	pthread_mutex_lock(&tracer_lock);
	anybody = links > 0 && (anybody || pid != named);
	named = pid;
	links++;
	bool restricted = except(anybody ? PR_SET_PTRACER_ANY : (unsigned long)pid);
	pthread_mutex_unlock(&tracer_lock);
	return restricted;
}

void tracer_forbid(void)
{
	pthread_mutex_lock(&tracer_lock);
	if (--links == 0)
		except(0);
	pthread_mutex_unlock(&tracer_lock);
}

void tracer_in_child(void)
{
	links = 0; /* the exception in the kernel belongs to the parent */
}
