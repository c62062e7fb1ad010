/* For the programs of the guest, by LD_PRELOAD: gettimeofday(2) that counts the processor's own
 * clock. Under User-Mode Linux the system call takes so long, and so differently long, that
 * perftest cannot find out from it how fast that clock runs, and then it reports nothing and fails.
 * HEDDLE_PEER_MHZ: what the host says of it. */
#include <stdint.h>
#include <stdlib.h>
#include <sys/time.h>
#include <x86intrin.h>

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	static double mhz;
	(void)zone;
	if (mhz == 0) {
		const char *given = getenv("HEDDLE_PEER_MHZ");
		mhz = given != NULL ? atof(given) : 0;
		if (mhz <= 0)
			mhz = 1000;
	}
	uint64_t us = (uint64_t)((double)__rdtsc() / mhz);
	now->tv_sec = (time_t)(us / 1000000);
	now->tv_usec = (suseconds_t)(us % 1000000);
	return 0;
}
