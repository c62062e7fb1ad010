/* Streams through a buffer; see stream.h. */
#include "transport/stream.h"

#include <assert.h>
#include <string.h>

static size_t stream_total(const struct stream_run *runs, size_t count)
{
	size_t total = 0;
	assert(count <= STREAM_MAX_RUNS);
	for (size_t i = 0; i < count; i++) {
		assert(runs[i].length > 0 && runs[i].length <= SIZE_MAX - total);
		total += runs[i].length;
	}
	return total;
}

size_t stream_feed(const struct stream_ops *ops, void *context, const uint8_t *bytes, size_t length,
                   bool *open)
{
	struct stream_run runs[STREAM_MAX_RUNS];
	size_t fed = 0;
	*open = true;
	while (fed < length && *open) {
		size_t count = ops->want(context, runs, STREAM_MAX_RUNS), filled = 0;
		size_t total = stream_total(runs, count);
		if (count == 0)
			break;
		for (size_t i = 0; i < count && fed + filled < length; i++) {
			size_t left = length - fed - filled;
			size_t part = runs[i].length < left ? runs[i].length : left;
			memcpy(runs[i].bytes, bytes + fed + filled, part);
			filled += part;
		}
		assert(filled > 0 && filled <= total);
		*open = ops->arrived(context, filled);
		fed += filled;
	}
	return fed;
}

size_t stream_drain(const struct stream_ops *ops, void *context, uint8_t *out, size_t capacity)
{
	struct stream_run runs[STREAM_MAX_RUNS];
	size_t drained = 0;
	while (drained < capacity) {
		size_t count = ops->offer(context, runs, STREAM_MAX_RUNS), copied = 0;
		stream_total(runs, count);
		for (size_t i = 0; i < count && drained + copied < capacity; i++) {
			size_t left = capacity - drained - copied;
			size_t part = runs[i].length < left ? runs[i].length : left;
			memcpy(out + drained + copied, runs[i].bytes, part);
			copied += part;
		}
		if (copied == 0)
			break;
		ops->taken(context, copied);
		drained += copied;
	}
	return drained;
}
