/* How soon the adapter's thread sees what came from a network. See drive/busy_poll.c. */
#ifndef ADAPTER_WAKEFUL_H
#define ADAPTER_WAKEFUL_H

#include <stdbool.h>
#include <stdint.h>

#define WAKEFUL_NS        50000u    /* after the last packets it looks on, */
#define WAKEFUL_ASK_NS    10000000u /* and so often it is asked who else wants to run */
#define WAKEFUL_WINDOW_NS 1000000u  /* who takes the packets is seen in so long, */
#define WAKEFUL_PROOFS    3u        /* in so many of them one after the other, */
#define WAKEFUL_WINDOWS   64u       /* and after so many the last of these anew */

/* The thread's own. */
struct wakeful {
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
void wakeful_took(struct wakeful *wakeful, uint64_t now_ns, uint64_t mine, uint64_t all);
/* The thread came, found the application at it, and leaves it that. Not when it is eager: then the
 * application may be about to wait for what has come. */
void wakeful_leave(struct wakeful *wakeful);
/* There is nothing to do: look again? */
bool wakeful_stay(struct wakeful *wakeful, uint64_t now_ns);

#endif
