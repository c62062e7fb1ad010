/* Time comes in from outside: whoever needs it is handed a struct clock, which is the machine's in
 * a program and the world's own in the simulator. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct clock {
	/* Nanoseconds since some fixed moment; never goes backwards. Called from the thread that
	 * uses the clock. */
	uint64_t (*now)(void *context);
	void *context;
};

/* CLOCK_MONOTONIC: the same on all processes of one machine, stands still while it is suspended. */
uint64_t clock_now_ns(void);

/* The time of day, in nanoseconds since 1970: for people to read, not to measure by. */
uint64_t clock_wall_ns(void);

/* A condition that is waited for by clock_now_ns(): the time of day may be set meanwhile. */
void clock_cond_init(pthread_cond_t *cond);
/* Wait until it is signalled, or until @end_ns. The caller holds @lock. False: it is that late. */
bool clock_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t end_ns);

/* The clock that reads clock_now_ns(). */
struct clock clock_real(void);

static inline uint64_t clock_read(const struct clock *from)
{
	return from->now(from->context);
}

#endif
