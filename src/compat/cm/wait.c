/* What connections wait for, each for a limited time:
 *
 *   A server that does not listen yet. Elsewhere resolving an address and a route takes
 *   milliseconds, and programs that agree on a port by other means rely on it (perftest -R, qperf
 *   -cm1): one side connects while the other is about to listen. A request that finds no listener,
 *   or one with too many requests waiting, is repeated before the program gets an event.
 *
 *   An answer. A request or a response is repeated, because it is lost if the agent is killed at
 *   the wrong moment. It times out if the other program does not react, at a time that is set once
 *   and that no sign of life from the peer postpones. A disconnect is repeated in the same way; the
 *   peer's process answers it unless that process is stopped.
 *
 *   A timer of the connection manager, if it keeps time itself (cm/manager.h), until the same time.
 *
 *   A node that does not exist yet, while an address is resolved, for as long as the program
 *   allows.
 *
 *   The end of TIMEWAIT (IBTA volume 1, 12.9.8.4). Programs get an event then: tgtd frees the
 *   resources of a connection only after it.
 *
 * One thread does all of this. It ends when no identifier waits. */
#include <assert.h>
#include <stdlib.h>
#include <time.h>

#include "base/thread.h"
#include "compat/cm/cm.h"

#define TRIES       20
#define EVERY_NS    10000000ull
#define AGAIN_NS    1000000000ull
#define ANSWER_MS   60000u       /* about as long as 15 repetitions take elsewhere */
#define TIMEWAIT_NS 200000000ull /* short, because no packets are late here */

static bool running; /* the thread runs; under the lock */

/* The identifiers that wait, a heap from index 1 on: each is due no later than the two at twice its
 * index. */
static struct cm_id *waiting[CM_MAX_IDS + 1];
static uint32_t waiting_count;

static void cm_wait_put(struct cm_id *id, uint32_t place)
{
	assert(place >= 1 && place <= CM_MAX_IDS);
	waiting[place] = id;
	id->queued = place;
}

/* Find the place for @id in the heap, starting at @place, which is free. */
static void cm_wait_settle(struct cm_id *id, uint32_t place)
{
	for (; place > 1 && waiting[place / 2]->wait_ns > id->wait_ns; place /= 2)
		cm_wait_put(waiting[place / 2], place);
	for (;;) {
		uint32_t next = place * 2;
		if (next < waiting_count && waiting[next + 1]->wait_ns < waiting[next]->wait_ns)
			next++;
		if (next > waiting_count || waiting[next]->wait_ns >= id->wait_ns)
			break;
		cm_wait_put(waiting[next], place);
		place = next;
	}
	cm_wait_put(id, place);
}

void cm_wait_end(struct cm_id *id)
{
	uint32_t place = id->queued;
	id->wait = CM_WAIT_NONE;
	if (place == 0)
		return;
	assert(place <= waiting_count && waiting[place] == id); /* pairs with cm_wait_put() */
	struct cm_id *last = waiting[waiting_count--];
	id->queued = 0;
	if (last != id)
		cm_wait_settle(last, place);
}

uint64_t cm_now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* HEDDLE_CM_TIMEOUT_MS, for users who do not want to wait for a minute. */
uint32_t cm_answer_ms(void)
{
	const char *given = secure_getenv("HEDDLE_CM_TIMEOUT_MS");
	uint64_t ms = given != NULL ? strtoull(given, NULL, 10) : 0;
	return ms > 0 && ms < ANSWER_MS ? (uint32_t)ms : ANSWER_MS;
}

/* The answer that @id waits for has not arrived yet. */
static void cm_wait_await(struct cm_id *id)
{
	if (cm_now_ns() >= id->give_up_ns) {
		cm_expire(id);
		return;
	}
	cm_send_again(id);
	cm_wait_answer(id);
}

/* The time of @id is over: give up, or try again. Called with the lock, which may be released
 * meanwhile. */
static void act(struct cm_id *id)
{
	enum cm_wait what = id->wait;
	cm_wait_end(id);
	if (what == CM_WAIT_LISTENER)
		cm_repeat(id);
	else if (what == CM_WAIT_ANSWER)
		cm_wait_await(id);
	else if (what == CM_WAIT_NODE)
		cm_seek(id, cm_now_ns() >= id->give_up_ns);
	else if (what == CM_WAIT_MANAGER)
		id->manager->expire(id);
	else if (what == CM_WAIT_TIMEWAIT)
		cm_raise(id, CM_TIMEWAIT_EXIT, 0);
}

static void *cm_wait_watch(void *argument)
{
	cm_lock();
	while (waiting_count > 0) {
		struct cm_id *first = waiting[1];
		if (first->wait_ns <= cm_now_ns())
			act(first);
		else
			cm_lock_wait(first->wait_ns);
	}
	running = false;
	cm_unlock();
	return argument;
}

static bool start(struct cm_id *id, enum cm_wait what, uint64_t ns)
{
	if (!running) {
		pthread_t thread;
		running = thread_start(&thread, cm_wait_watch, NULL) == 0;
		if (!running)
			return false;
		pthread_detach(thread);
	}
	cm_wait_end(id);
	id->wait = what;
	id->wait_ns = cm_now_ns() + ns;
	cm_wait_settle(id, ++waiting_count);
	if (id->queued == 1) /* the thread is waiting for another one, which is due later */
		cm_lock_wake();
	return true;
}

bool cm_wait_more(struct cm_id *id)
{
	/* A peer across the wire may have kept the request for that long before it rejected it. A
	 * peer that keeps no requests may start to listen only when a message of its own is
	 * acknowledged, which takes Linux half a second if that message is lost. So the request is
	 * repeated for as long, at growing intervals. */
	uint64_t limit_ns = id->manager->relisten_ns;
	bool late = limit_ns != 0 && cm_now_ns() - id->asked_ns >= limit_ns;
	uint64_t pause_ns = limit_ns != 0 ? EVERY_NS * (1 + id->tries / 2) : EVERY_NS;
	if (id->sent == NULL || late || id->tries >= TRIES ||
	    !start(id, CM_WAIT_LISTENER, pause_ns))
		return false;
	id->tries++;
	return true;
}

void cm_wait_answer(struct cm_id *id)
{
	uint64_t now = cm_now_ns(), left = id->give_up_ns > now ? id->give_up_ns - now : 0;
	if (id->manager->due_ns != NULL)
		cm_wait_manager(id);
	else
		start(id, CM_WAIT_ANSWER, left < AGAIN_NS ? left : AGAIN_NS);
}

void cm_wait_timewait(struct cm_id *id)
{
	/* TCP has a TIMEWAIT of its own, of which no program hears: the event comes as on the
	 * same host. */
	if (id->manager->due_ns != NULL && !id->manager->one_exchange)
		cm_wait_manager(id);
	else
		start(id, CM_WAIT_TIMEWAIT, TIMEWAIT_NS);
}

void cm_give_up_in(struct cm_id *id, uint32_t timeout_ms)
{
	id->give_up_ns = cm_now_ns() + timeout_ms * 1000000ull;
}

void cm_wait_node(struct cm_id *id)
{
	start(id, CM_WAIT_NODE, EVERY_NS);
}

void cm_wait_manager(struct cm_id *id)
{
	uint64_t due = id->manager->due_ns(id), now = cm_now_ns();
	if (due != 0)
		start(id, CM_WAIT_MANAGER, due > now ? due - now : 0);
	else if (id->wait == CM_WAIT_MANAGER)
		cm_wait_end(id);
}

void cm_wait_forget(void)
{
	struct cm_id *id;
	for (uint32_t at = 0; (id = cm_id_next(&at)) != NULL; at++) {
		id->wait = CM_WAIT_NONE;
		id->queued = 0;
	}
	waiting_count = 0;
	running = false;
}
