/* Any bytes as a message of the split driver: what is accepted is written as the same bytes again,
 * and no entry names memory that wraps around. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "wire/push.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t write_again(const struct push_message *message, uint8_t *out)
{
	static struct push_pool pools[PUSH_MAX_POOLS];
	static struct push_run runs[PUSH_MAX_RUNS];
	static uint32_t flushed[PUSH_MAX_FLUSHED];
	uint32_t count = message->count;
	if (message->function == PUSH_POOL) {
		assert(count <= PUSH_MAX_POOLS);
		for (uint32_t i = 0; i < count; i++)
			pools[i] = push_get_pool(message, i);
		return push_put_pools(message->context, pools, count, out, PUSH_MAX_BYTES);
	}
	if (message->function == PUSH_POOL_UPDATE) {
		assert(count <= PUSH_MAX_RUNS);
		for (uint32_t i = 0; i < count; i++)
			runs[i] = push_get_run(message, i);
		return push_put_runs(message->context, runs, count, out, PUSH_MAX_BYTES);
	}
	if (message->function == PUSH_FLUSH_REQUEST) {
		assert(count <= PUSH_MAX_FLUSHED);
		for (uint32_t i = 0; i < count; i++)
			flushed[i] = push_get_flushed(message, i);
		return push_put_flush(message->context, flushed, count, out, PUSH_MAX_BYTES);
	}
	return push_put(message, out, PUSH_MAX_BYTES);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t again[PUSH_MAX_BYTES];
	struct push_message message;
	if (push_decode(&message, data, size) != PUSH_OK)
		return 0;
	assert(write_again(&message, again) == size);
	assert(memcmp(again, data, size) == 0);
	return 0;
}
