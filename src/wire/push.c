/* The messages of the split driver; see push.h. */
#include "wire/push.h"

#include <string.h>

#include "wire/be.h"

#define FLUSHED_BYTES 4u

/* Bytes behind the header: of one entry of a list, or of the fixed part. */
static const struct {
	bool list, data;
	uint32_t bytes;
} push_shapes[PUSH_FUNCTION_COUNT] = {
        [PUSH_POOL] = {.list = true, .bytes = PUSH_POOL_BYTES},
        [PUSH_POOL_GET] = {.bytes = 8},
        [PUSH_POOL_UPDATE] = {.list = true, .bytes = PUSH_RUN_BYTES},
        [PUSH_FLUSH_REQUEST] = {.list = true, .bytes = FLUSHED_BYTES},
        [PUSH_FLUSH_REPLY] = {.bytes = 0},
        [PUSH_SEND_DATA] = {.data = true, .bytes = 4},
        [PUSH_INDICATE] = {.bytes = 12},
        [PUSH_CFG_REQUEST] = {.data = true, .bytes = 4},
        [PUSH_CFG_REPLY] = {.data = true, .bytes = 4},
};

static bool push_pool_is_good(const struct push_pool *pool)
{
	if (pool->elements == 0 || pool->element_bytes == 0)
		return false;
	uint64_t bytes = (uint64_t)pool->elements * pool->element_bytes;
	return pool->address + (bytes - 1) >= pool->address;
}

static bool push_run_is_good(const struct push_run *run)
{
	return run->elements > 0 && run->elements <= UINT32_MAX - run->first;
}

struct push_pool push_get_pool(const struct push_message *message, uint32_t i)
{
	const uint8_t *at = message->list + (size_t)i * PUSH_POOL_BYTES;
	return (struct push_pool){.index = be32_load(at),
	                          .elements = be32_load(at + 4),
	                          .element_bytes = be32_load(at + 8),
	                          .handle = be32_load(at + 12),
	                          .address = be64_load(at + 16),
	                          .context = be64_load(at + 24)};
}

struct push_run push_get_run(const struct push_message *message, uint32_t i)
{
	const uint8_t *at = message->list + (size_t)i * PUSH_RUN_BYTES;
	return (struct push_run){be32_load(at), be32_load(at + 4), be32_load(at + 8)};
}

uint32_t push_get_flushed(const struct push_message *message, uint32_t i)
{
	return be32_load(message->list + (size_t)i * FLUSHED_BYTES);
}

static enum push_verdict push_judge_list(const struct push_message *message)
{
	for (uint32_t i = 0; i < message->count; i++) {
		struct push_pool pool;
		struct push_run run;
		if (message->function == PUSH_POOL) {
			pool = push_get_pool(message, i);
			if (!push_pool_is_good(&pool))
				return PUSH_WRONG_POOL;
		} else if (message->function == PUSH_POOL_UPDATE) {
			run = push_get_run(message, i);
			if (!push_run_is_good(&run))
				return PUSH_WRONG_RUN;
		}
	}
	return PUSH_OK;
}

/* Decode the @bytes at @body, which are behind the header. */
static enum push_verdict push_decode_body(struct push_message *message, const uint8_t *body,
                                          size_t bytes)
{
	uint32_t unit = push_shapes[message->function].bytes;
	if (push_shapes[message->function].list) {
		if (bytes == 0 || bytes % unit != 0)
			return PUSH_WRONG_LENGTH;
		message->count = (uint32_t)(bytes / unit);
		message->list = body;
		return push_judge_list(message);
	}
	if (push_shapes[message->function].data) {
		if (bytes < unit || be32_load(body) != bytes - unit)
			return PUSH_WRONG_LENGTH;
		message->data_bytes = be32_load(body);
		message->data = body + unit;
		return PUSH_OK;
	}
	if (bytes != unit)
		return PUSH_WRONG_LENGTH;
	if (message->function == PUSH_POOL_GET) {
		message->packet_bytes = be32_load(body);
		message->packets = be32_load(body + 4);
	} else if (message->function == PUSH_INDICATE) {
		message->indication = (struct push_indication){be32_load(body), be32_load(body + 4),
		                                               be32_load(body + 8)};
	}
	return PUSH_OK;
}

enum push_verdict push_decode(struct push_message *message, const uint8_t *in, size_t bytes)
{
	if (bytes < PUSH_HEADER_BYTES)
		return PUSH_TOO_SHORT;
	if (bytes > PUSH_MAX_BYTES)
		return PUSH_TOO_LONG;
	if (be16_load(in + 2) != PUSH_VERSION)
		return PUSH_WRONG_VERSION;
	uint16_t function = be16_load(in);
	if (function < PUSH_POOL || function >= PUSH_FUNCTION_COUNT)
		return PUSH_WRONG_FUNCTION;
	struct push_message out = {.function = (enum push_function)function,
	                           .context = be64_load(in + 4)};
	enum push_verdict verdict =
	        push_decode_body(&out, in + PUSH_HEADER_BYTES, bytes - PUSH_HEADER_BYTES);
	if (verdict == PUSH_OK)
		*message = out;
	return verdict;
}

/* Write the header of a message with @body_bytes behind it. Returns where they belong; NULL: there
 * is no room. */
static uint8_t *push_begin(enum push_function function, uint64_t context, size_t body_bytes,
                           uint8_t *out, size_t capacity)
{
	size_t bytes = PUSH_HEADER_BYTES + body_bytes;
	if (bytes > capacity || bytes > PUSH_MAX_BYTES)
		return NULL;
	be16_store(out, (uint16_t)function);
	be16_store(out + 2, PUSH_VERSION);
	be64_store(out + 4, context);
	return out + PUSH_HEADER_BYTES;
}

size_t push_put_pools(uint64_t context, const struct push_pool *pools, uint32_t count, uint8_t *out,
                      size_t capacity)
{
	size_t bytes = (size_t)count * PUSH_POOL_BYTES;
	for (uint32_t i = 0; i < count; i++)
		if (!push_pool_is_good(&pools[i]))
			return 0;
	uint8_t *at = count > 0 ? push_begin(PUSH_POOL, context, bytes, out, capacity) : NULL;
	if (at == NULL)
		return 0;
	for (uint32_t i = 0; i < count; i++, at += PUSH_POOL_BYTES) {
		be32_store(at, pools[i].index);
		be32_store(at + 4, pools[i].elements);
		be32_store(at + 8, pools[i].element_bytes);
		be32_store(at + 12, pools[i].handle);
		be64_store(at + 16, pools[i].address);
		be64_store(at + 24, pools[i].context);
	}
	return PUSH_HEADER_BYTES + bytes;
}

size_t push_put_runs(uint64_t context, const struct push_run *runs, uint32_t count, uint8_t *out,
                     size_t capacity)
{
	size_t bytes = (size_t)count * PUSH_RUN_BYTES;
	for (uint32_t i = 0; i < count; i++)
		if (!push_run_is_good(&runs[i]))
			return 0;
	uint8_t *at =
	        count > 0 ? push_begin(PUSH_POOL_UPDATE, context, bytes, out, capacity) : NULL;
	if (at == NULL)
		return 0;
	for (uint32_t i = 0; i < count; i++, at += PUSH_RUN_BYTES) {
		be32_store(at, runs[i].pool);
		be32_store(at + 4, runs[i].first);
		be32_store(at + 8, runs[i].elements);
	}
	return PUSH_HEADER_BYTES + bytes;
}

size_t push_put_flush(uint64_t context, const uint32_t *pools, uint32_t count, uint8_t *out,
                      size_t capacity)
{
	size_t bytes = (size_t)count * FLUSHED_BYTES;
	uint8_t *at =
	        count > 0 ? push_begin(PUSH_FLUSH_REQUEST, context, bytes, out, capacity) : NULL;
	if (at == NULL)
		return 0;
	for (uint32_t i = 0; i < count; i++, at += FLUSHED_BYTES)
		be32_store(at, pools[i]);
	return PUSH_HEADER_BYTES + bytes;
}

size_t push_put(const struct push_message *message, uint8_t *out, size_t capacity)
{
	if (message->function < PUSH_POOL || message->function >= PUSH_FUNCTION_COUNT ||
	    push_shapes[message->function].list)
		return 0;
	bool data = push_shapes[message->function].data;
	size_t bytes = push_shapes[message->function].bytes + (data ? message->data_bytes : 0u);
	uint8_t *at = push_begin(message->function, message->context, bytes, out, capacity);
	if (at == NULL)
		return 0;
	if (data) {
		be32_store(at, message->data_bytes);
		if (message->data_bytes > 0)
			memcpy(at + 4, message->data, message->data_bytes);
	} else if (message->function == PUSH_POOL_GET) {
		be32_store(at, message->packet_bytes);
		be32_store(at + 4, message->packets);
	} else if (message->function == PUSH_INDICATE) {
		be32_store(at, message->indication.pool);
		be32_store(at + 4, message->indication.element);
		be32_store(at + 8, message->indication.bytes);
	}
	return PUSH_HEADER_BYTES + bytes;
}

void push_put_send(uint64_t context, uint32_t data_bytes, uint8_t *out)
{
	be32_store(push_begin(PUSH_SEND_DATA, context, 4, out, PUSH_SEND_BYTES), data_bytes);
}

bool push_pack(const struct push_indication *indication, uint32_t *immediate)
{
	if (indication->pool > 0xff || indication->element > 0xff || indication->bytes == 0 ||
	    indication->bytes > 0x10000)
		return false;
	*immediate =
	        indication->pool << 24 | indication->element << 16 | (indication->bytes & 0xffffu);
	return true;
}

struct push_indication push_unpack(uint32_t immediate)
{
	uint32_t bytes = immediate & 0xffffu;
	return (struct push_indication){.pool = immediate >> 24,
	                                .element = immediate >> 16 & 0xffu,
	                                .bytes = bytes == 0 ? 0x10000u : bytes};
}

bool push_pack_address(uint64_t offset, uint32_t bytes, uint32_t *immediate)
{
	if (offset % PUSH_ADDRESS_UNIT != 0 || offset / PUSH_ADDRESS_UNIT > 0xffff || bytes == 0 ||
	    bytes > 0x10000)
		return false;
	*immediate = (uint32_t)(offset / PUSH_ADDRESS_UNIT) << 16 | (bytes & 0xffffu);
	return true;
}

void push_unpack_address(uint32_t immediate, uint64_t *offset, uint32_t *bytes)
{
	*offset = (uint64_t)(immediate >> 16) * PUSH_ADDRESS_UNIT;
	*bytes = (immediate & 0xffffu) == 0 ? 0x10000u : immediate & 0xffffu;
}
