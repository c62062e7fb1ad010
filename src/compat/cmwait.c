/* Patience with a server that does not listen yet. Elsewhere resolving an address and a route takes milliseconds, and programs that
 * agree on a port by other means rely on it (perftest -R, qperf -cm1): one asks at once, while the other is about to listen. A
 * request that finds nobody is repeated for a while before the program is told.
 *
 * And the time that a connection keeps its name after its end (IBTA 12.9.8.4), whose end programs are told: tgtd frees what it has for a
 * connection only then. Nothing is late here, so it is short. */
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "compat/cm.h"

#define TRIES    20
#define EVERY_NS 10000000
#define LINGER   20 /* rounds of EVERY_NS */

static bool running; /* the thread, which ends when nobody waits; under the lock */

/* Has @id something to wait for? Does what its time has come for. */
static bool serve_waiting(struct cm_id *id)
{
	if (id->waiting) {
		id->waiting = false;
		cm_repeat(id);
		return true;
	}
	if (id->lingers == 0)
		return false;
	if (--id->lingers == 0)
		cm_raise(id, CM_TIMEWAIT_EXIT, 0);
	return true;
}

static void *repeat(void *argument)
{
	const struct timespec pause = {.tv_nsec = EVERY_NS};
	for (bool busy = true; busy;) {
		struct cm_id *id;
		nanosleep(&pause, NULL);
		busy = false;
		cm_lock();
		for (uint32_t at = 0; (id = cm_id_next(&at)) != NULL; at++)
			busy |= serve_waiting(id);
		running = busy;
		cm_unlock();
	}
	return argument;
}

static bool start(void)
{
	pthread_t thread;
	sigset_t all, before;
	if (running)
		return true;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	running = pthread_create(&thread, NULL, repeat, NULL) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (running)
		pthread_detach(thread);
	return running;
}

bool cm_wait_more(struct cm_id *id)
{
	if (id->request == NULL || id->tries >= TRIES || !start())
		return false;
	id->tries++;
	id->waiting = true;
	return true;
}

void cm_linger(struct cm_id *id)
{
	if (start())
		id->lingers = LINGER;
}

void cm_wait_forget(void)
{
	running = false;
}
