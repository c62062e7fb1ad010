/* What the benchmarks share: where they run, what they measure with, and how a figure is told. */
#ifndef BENCH_FIGURES_H
#define BENCH_FIGURES_H

#include <stddef.h>

/* This thread runs on @processor only. */
void figures_pin(size_t processor);
/* Memory that is this process's own, in KiB. */
long figures_resident_kib(void);
/* From the least to the most; the median is in the middle then. */
void figures_sort(double *values, size_t count);
/* A line: what, median, least, most, unit. Sorts @values. */
void figures_report(const char *what, double *values, size_t count, const char *unit);

#endif
