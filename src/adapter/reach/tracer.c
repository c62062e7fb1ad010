/* Who may reach into this process. Where the kernel lets only ancestors do so (Yama, ptrace_scope
 * 1), a process can except one other process, or all of this user. Peers copy to and from our
 * memory, so they need that, as long as they are peers: one of them is named, and with a second one
 * it is everybody, until all have gone. The kernel remembers one exception, so one that the program
 * itself asked for is lost when the first peer comes. */
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
	links = 0; /* what the kernel remembers is the parent's */
}
