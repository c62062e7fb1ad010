/* Patience with a server that does not listen yet. Elsewhere resolving an address and a route takes milliseconds, and programs that
 * agree on a port by other means rely on it (perftest -R, qperf -cm1): one asks at once, while the other is about to listen. A
 * request that finds nobody is repeated for a while before the program is told. */
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "compat/cm.h"

#define TRIES    20
#define EVERY_NS 10000000

static bool running; /* the thread, which ends when nobody waits; under the lock */

static void *repeat(void *argument)
{
	const struct timespec pause = {.tv_nsec = EVERY_NS};
	for (bool busy = true; busy;) {
		struct cm_id *id;
		nanosleep(&pause, NULL);
		busy = false;
		cm_lock();
		for (uint32_t at = 0; (id = cm_id_next(&at)) != NULL; at++)
			if (id->waiting) {
				id->waiting = false;
				busy = true;
				cm_repeat(id);
			}
		running = busy;
		cm_unlock();
	}
	return argument;
}

bool cm_wait_more(struct cm_id *id)
{
	if (id->request == NULL || id->tries >= TRIES)
		return false;
	if (!running) {
		pthread_t thread;
		sigset_t all, before;
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &before);
		running = pthread_create(&thread, NULL, repeat, NULL) == 0;
		pthread_sigmask(SIG_SETMASK, &before, NULL);
		if (!running)
			return false;
		pthread_detach(thread);
	}
	id->tries++;
	id->waiting = true;
	return true;
}

void cm_wait_forget(void)
{
	running = false;
}
