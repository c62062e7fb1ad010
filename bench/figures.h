/* What the benchmarks share: where they run, how they measure, and how they print a figure. */
#ifndef BENCH_FIGURES_H
#define BENCH_FIGURES_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Two processors that this process may use. False: there is only one. */
bool figures_two_processors(size_t processors[2]);
/* One turn of a loop that waits for another process; after many, others get the processor. */
static inline void figures_spin(uint32_t *spins)
{
	if (++*spins % 20000u == 0)
		sched_yield();
}
/* Run this thread on @processor only. */
void figures_pin(size_t processor);
/* Private memory of this process, in KiB. */
long figures_resident_kib(void);
/* In ascending order, so that the median is in the middle. */
void figures_sort(double *values, size_t count);
/* Print one line: what, median, minimum, maximum, unit. Sorts @values. */
void figures_report(const char *what, double *values, size_t count, const char *unit);

#endif
