/* The only place in Heddle that asks the kernel for the time. */
#include "base/clock.h"

#include <time.h>

uint64_t clock_now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail with this clock and a good pointer */
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t clock_wall_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t read_real(void *context)
{
	(void)context;
	return clock_now_ns();
}

struct clock clock_real(void)
{
	return (struct clock){.now = read_real};
}
