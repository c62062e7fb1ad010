/* Each value below HISTOGRAM_PARTS has a bucket of its own. Above, the bucket is the exponent and
 * the HISTOGRAM_PART_BITS bits that follow the leading one. */
#include "base/histogram.h"

#include <assert.h>

static unsigned histogram_bucket_of(uint64_t value)
{
	if (value < HISTOGRAM_PARTS)
		return (unsigned)value;
	unsigned shift = 63u - (unsigned)__builtin_clzll(value) - HISTOGRAM_PART_BITS;
	return shift * HISTOGRAM_PARTS + (unsigned)(value >> shift);
}

/* The largest value that falls into @bucket. */
static uint64_t top_of(unsigned bucket)
{
	if (bucket < 2 * HISTOGRAM_PARTS)
		return bucket;
	unsigned shift = bucket / HISTOGRAM_PARTS - 1;
	uint64_t first = (uint64_t)(bucket % HISTOGRAM_PARTS + HISTOGRAM_PARTS) << shift;
	return first + ((UINT64_C(1) << shift) - 1);
}

void histogram_init(struct histogram *histogram)
{
	*histogram = (struct histogram){.min = UINT64_MAX};
}

void histogram_record(struct histogram *histogram, uint64_t value)
{
	histogram->buckets[histogram_bucket_of(value)]++;
	histogram->count++;
	histogram->sum += value;
	if (value < histogram->min)
		histogram->min = value;
	if (value > histogram->max)
		histogram->max = value;
}

void histogram_merge(struct histogram *to, const struct histogram *from)
{
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		to->buckets[i] += from->buckets[i];
	to->count += from->count;
	to->sum += from->sum;
	if (from->min < to->min)
		to->min = from->min;
	if (from->max > to->max)
		to->max = from->max;
}

uint64_t histogram_percentile(const struct histogram *histogram, double percent)
{
	assert(percent >= 0 && percent <= 100);
	if (histogram->count == 0)
		return 0;
	if (percent == 0)
		return histogram->min;
	/* The rank is the smallest count that is at least this fraction of all values. */
	double share = percent / 100 * (double)histogram->count;
	uint64_t seen = 0;
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		seen += histogram->buckets[i];
		if (seen != 0 && (double)seen >= share)
			return top_of(i) < histogram->max ? top_of(i) : histogram->max;
	}
	return histogram->max; /* rounding of a count above 2^53 */
}

uint64_t histogram_min(const struct histogram *histogram)
{
	return histogram->count == 0 ? 0 : histogram->min;
}

uint64_t histogram_max(const struct histogram *histogram)
{
	return histogram->count == 0 ? 0 : histogram->max;
}

double histogram_mean(const struct histogram *histogram)
{
	return histogram->count == 0 ? 0 : (double)histogram->sum / (double)histogram->count;
}
