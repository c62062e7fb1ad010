/* The only place in Heddle that asks the kernel for the time. */
#include "base/clock.h"

#include <errno.h>
#include <time.h>

uint64_t clock_now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail with this clock and a good pointer */
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t clock_tick_ns(void)
{
	struct timespec tick;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &tick);
	return (uint64_t)tick.tv_sec * 1000000000u + (uint64_t)tick.tv_nsec;
}

uint64_t clock_wall_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void clock_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

bool clock_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t end_ns)
{
	struct timespec end = {.tv_sec = (time_t)(end_ns / 1000000000u),
	                       .tv_nsec = (long)(end_ns % 1000000000u)};
	return pthread_cond_timedwait(cond, lock, &end) != ETIMEDOUT;
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
