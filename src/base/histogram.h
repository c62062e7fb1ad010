/* A log-linear histogram: every power of two is divided into HISTOGRAM_PARTS equal buckets, so any
 * 64-bit value is known to within one part in HISTOGRAM_PARTS, in a fixed amount of memory.
 *
 *   values      0 .. 31   32 .. 63   64 .. 127   128 .. 255   ...
 *   bucket width    1         1          2           4        ... */
#ifndef BASE_HISTOGRAM_H
#define BASE_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_PART_BITS 5u
#define HISTOGRAM_PARTS     (1u << HISTOGRAM_PART_BITS)
#define HISTOGRAM_BUCKETS   ((64u - HISTOGRAM_PART_BITS + 1u) * HISTOGRAM_PARTS)

struct histogram {
	uint64_t count;
	uint64_t min, max;     /* exact; meaningless while count is 0 */
	unsigned __int128 sum; /* exact */
	uint64_t buckets[HISTOGRAM_BUCKETS];
};

void histogram_init(struct histogram *histogram);
void histogram_record(struct histogram *histogram, uint64_t value);
/* Add everything that @from has recorded to @to. */
void histogram_merge(struct histogram *to, const struct histogram *from);

/* The value that @percent (0 to 100) of all recorded values do not exceed: never below the true
 * value, never above the largest one recorded, and at most one part in HISTOGRAM_PARTS too high. 0
 * percent gives the smallest value. 0 if empty. */
uint64_t histogram_percentile(const struct histogram *histogram, double percent);

uint64_t histogram_min(const struct histogram *histogram); /* 0 if empty, as are the two below */
uint64_t histogram_max(const struct histogram *histogram);
double histogram_mean(const struct histogram *histogram);

#endif
