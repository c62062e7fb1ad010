/* What the benchmarks share: where they run, how they measure, and how they print a figure. */
#ifndef BENCH_FIGURES_H
#define BENCH_FIGURES_H

#include <stddef.h>

/* Run this thread on @processor only. */
void figures_pin(size_t processor);
/* Private memory of this process, in KiB. */
long figures_resident_kib(void);
/* In ascending order, so that the median is in the middle. */
void figures_sort(double *values, size_t count);
/* Print one line: what, median, minimum, maximum, unit. Sorts @values. */
void figures_report(const char *what, double *values, size_t count, const char *unit);

#endif
