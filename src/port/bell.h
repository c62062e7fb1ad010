/* Doorbells: pipes by which processes wake each other. The owner keeps the read end and passes the
 * other end to the agent, which passes it to every peer.
 *
 * Passed descriptors share one open file description, and any holder can clear O_NONBLOCK for all
 * of them: then a write to a full pipe blocks. So no process writes to a bell through the
 * descriptor that it received. Each process reopens the pipe (through /proc/self/fd), which gives
 * it an open file description of its own that no other process can change; the owner's end is never
 * passed on. The pipe is opened for reading as well, so that there is always a reader: ringing for
 * a process that has ended raises no SIGPIPE. (An eventfd, which costs a little less to write to,
 * cannot be reopened.) Without /proc there is only the received descriptor. */
#ifndef PORT_BELL_H
#define PORT_BELL_H

#include <stdbool.h>

/* Create a bell: @ends[0] is the end to wait on, @ends[1] rings it from this process. False and
 * errno. */
bool bell_make(int ends[2]);
/* A descriptor of the bell @out to pass to other processes. -1 and errno. */
int bell_lend(int out);
/* Take over @fd, which came from a peer. Returns a descriptor that rings the bell; -1: it is not a
 * bell, or it has no reader any more. */
int bell_take(int fd);
/* Ring the bell. Never blocks. */
void bell_ring(int out);
/* Clear the bell after it rang; another thread may already have done so. Never blocks. */
void bell_hear(int in);

#endif
