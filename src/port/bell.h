/* Bells: pipes by which processes wake each other. The owner keeps the end that is read, and hands
 * the other end to the agent, which hands it to every peer.
 *
 * Descriptors that are handed on share one open file, and whoever has one can clear O_NONBLOCK for
 * all: then a write to a full pipe waits. So nobody writes to a bell by the descriptor that was
 * handed over. Each opens the pipe anew (by /proc/self/fd), which gives an open file of its own
 * that nobody else can change; the owner's end was never handed to anybody. It is opened for
 * reading as well, so that there is always a reader: ringing for a process that has ended raises no
 * SIGPIPE. (An eventfd, which costs a little less to write to, cannot be opened anew.) Without
 * /proc there is only the descriptor that came. */
#ifndef PORT_BELL_H
#define PORT_BELL_H

#include <stdbool.h>

/* Make one: @ends[0] is heard, @ends[1] is for ringing it in this process. False and errno. */
bool bell_make(int ends[2]);
/* A descriptor of the bell @out that can be handed to others. -1 and errno. */
int bell_lend(int out);
/* @fd came from a peer, and is taken over. A descriptor to ring it by; -1: it is no bell, or nobody
 * hears it any more. */
int bell_take(int fd);
/* Ring. Never waits for who should hear it. */
void bell_ring(int out);
/* It rang, or somebody else has heard it: it rings no more. Never waits. */
void bell_hear(int in);

#endif
