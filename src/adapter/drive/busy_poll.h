/* Busy polling: how soon the adapter's thread sees packets from a network. See
 * drive/busy_poll.c. */
#ifndef ADAPTER_BUSY_POLL_H
#define ADAPTER_BUSY_POLL_H

#include <stdbool.h>
#include <stdint.h>

#define BUSY_POLL_NS        50000u    /* keep polling for this long after the last packet */
#define BUSY_POLL_ASK_NS    10000000u /* check this often whether other threads want to run */
#define BUSY_POLL_WINDOW_NS 1000000u  /* observe for this long which thread takes the packets; */
#define BUSY_POLL_PROOFS    3u        /* decide after this many such windows in a row, */
#define BUSY_POLL_WINDOWS   64u       /* and check the last of them again after this many */

/* Used only by the adapter's thread. */
struct busy_poll {
	uint64_t until_ns, asked_ns;
	bool alone; /* at the last check no thread was waiting for a processor */

	uint64_t window_ns;    /* when the window ends */
	uint64_t seen;         /* packets so far; of those in this window: */
	uint64_t mine, theirs; /* taken by the thread; by the application */
	uint32_t proofs;       /* windows in a row in which packets were left waiting */
	uint32_t age;          /* windows since wake_on_packet was set */
	bool wake_on_packet;   /* packets wake the thread even while the application is active */
};

/* A turn of the thread took @mine packets; @all is the total so far, including these. */
void busy_poll_took(struct busy_poll *poll, uint64_t now_ns, uint64_t mine, uint64_t all);
/* The thread found the application driving and leaves the packets to it. Not called while
 * wake_on_packet is set: the application may then be about to wait for what has arrived. */
void busy_poll_leave(struct busy_poll *poll);
/* There is nothing to do: poll again? */
bool busy_poll_stay(struct busy_poll *poll, uint64_t now_ns);

#endif
