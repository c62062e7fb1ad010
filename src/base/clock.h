/* Time is an input: code that needs it is handed a struct clock, which reads the machine's clock in
 * a program and virtual time in the simulator. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct clock {
	/* Nanoseconds since some fixed moment; never goes backwards. Called by the thread that uses
	 * the clock. */
	uint64_t (*now)(void *context);
	void *context;
};

/* CLOCK_MONOTONIC: the same in all processes of one machine; stops while the machine is suspended.
 */
uint64_t clock_now_ns(void);
/* The same clock as of the last tick of the kernel, at most 10 ms ago: a quarter of the cost. */
uint64_t clock_tick_ns(void);

/* Time of day in nanoseconds since 1970: for people to read, not for measuring. */
uint64_t clock_wall_ns(void);

/* A condition variable whose timeouts use clock_now_ns(), so that setting the time of day does not
 * disturb them. */
void clock_cond_init(pthread_cond_t *cond);
/* Wait until @cond is signalled, or until @end_ns. The caller holds @lock. False: @end_ns has
 * passed. */
bool clock_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t end_ns);

/* A clock that reads clock_now_ns(). */
struct clock clock_real(void);

static inline uint64_t clock_read(const struct clock *from)
{
	return from->now(from->context);
}

#endif
