/* Our threads in somebody else's process. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>

/* Start a thread that takes nothing from the one that happens to start it: no signal of the program
 * is delivered to it, except for those that it raises itself, and it may run on every processor
 * that the process was started with. A thread that has pinned itself to one processor and polls
 * would leave no time for ours there. Returns 0 or an error number, as pthread_create(). */
int thread_start(pthread_t *thread, void *(*run)(void *context), void *context);

#endif
