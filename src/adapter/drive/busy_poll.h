/* How soon the adapter's thread sees what came from a network. See drive/busy_poll.c. */
#ifndef ADAPTER_BUSY_POLL_H
#define ADAPTER_BUSY_POLL_H

#include <stdbool.h>
#include <stdint.h>

#define BUSY_POLL_NS        50000u    /* after the last packets it looks on, */
#define BUSY_POLL_ASK_NS    10000000u /* and so often it is asked who else wants to run */
#define BUSY_POLL_WINDOW_NS 1000000u  /* who takes the packets is seen in so long, */
#define BUSY_POLL_PROOFS    3u        /* in so many of them one after the other, */
#define BUSY_POLL_WINDOWS   64u       /* and after so many the last of these anew */

/* The thread's own. */
struct busy_poll {
	uint64_t until_ns, asked_ns;
	bool alone; /* nobody waits for a processor, when it was last asked */

	uint64_t window_ns;    /* when it ends */
	uint64_t seen;         /* packets up to now, of them in this window: */
	uint64_t mine, theirs; /* taken by the thread, by the application */
	uint32_t proofs;       /* windows in a row in which packets lay there */
	uint32_t age;          /* windows, since: */
	bool eager;            /* the thread is to be woken though the application is at work */
};

/* A turn of the thread took @mine packets; with them there have been @all. */
void busy_poll_took(struct busy_poll *poll, uint64_t now_ns, uint64_t mine, uint64_t all);
/* The thread came, found the application at it, and leaves it that. Not when it is eager: then the
 * application may be about to wait for what has come. */
void busy_poll_leave(struct busy_poll *poll);
/* There is nothing to do: look again? */
bool busy_poll_stay(struct busy_poll *poll, uint64_t now_ns);

#endif
