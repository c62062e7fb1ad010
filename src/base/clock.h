/* Time comes in from outside: whoever needs it is handed a struct clock, which is the machine's in
 * a program and the world's own in the simulator. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

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

/* The clock that reads clock_now_ns(). */
struct clock clock_real(void);

static inline uint64_t clock_read(const struct clock *from)
{
	return from->now(from->context);
}

#endif
