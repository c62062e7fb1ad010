/* The messages of the split driver: each byte for byte, every verdict, the limits, and the
 * indication in 32 bits of immediate data. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "wire/be.h"
#include "wire/push.h"

#define CONTEXT 0x0102030405060708ull

static uint8_t out[PUSH_MAX_BYTES + 1];

static void pp5_pools(void **state)
{
	(void)state;
	static const struct push_pool pools[] = {{7, 256, 65536, 0xabcd, 0x10000, 0x99},
	                                         {8, 1, 1, 2, UINT64_MAX, 0}};
	static const uint8_t expected[] = {
	        0, 1, 0, 1, 1,    2,    3, 4, 5, 6, 7, 8, 0, 0, 0, 7, 0, 0, 1, 0, 0, 1,
	        0, 0, 0, 0, 0xab, 0xcd, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x99,
	};
	struct push_message message;
	assert_int_equal(push_put_pools(CONTEXT, pools, 2, out, sizeof(out)), 12 + 64);
	assert_memory_equal(out, expected, sizeof(expected));
	assert_int_equal(push_decode(&message, out, 76), PUSH_OK);
	assert_int_equal(message.function, PUSH_POOL);
	assert_int_equal(message.context, CONTEXT);
	assert_int_equal(message.count, 2);
	for (uint32_t i = 0; i < 2; i++) {
		struct push_pool pool = push_get_pool(&message, i);
		assert_int_equal(pool.index, pools[i].index);
		assert_int_equal(pool.elements, pools[i].elements);
		assert_int_equal(pool.element_bytes, pools[i].element_bytes);
		assert_int_equal(pool.handle, pools[i].handle);
		assert_int_equal(pool.address, pools[i].address);
		assert_int_equal(pool.context, pools[i].context);
	}
}

static void pp5_updates(void **state)
{
	(void)state;
	static const struct push_run runs[] = {{7, 5, 3}, {8, 0, UINT32_MAX}};
	static const uint8_t expected[] = {0, 3, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8,
	                                   0, 0, 0, 7, 0, 0, 0, 5, 0, 0, 0, 3};
	struct push_message message;
	assert_int_equal(push_put_runs(CONTEXT, runs, 2, out, sizeof(out)), 12 + 24);
	assert_memory_equal(out, expected, sizeof(expected));
	assert_int_equal(push_decode(&message, out, 36), PUSH_OK);
	struct push_run run = push_get_run(&message, 1);
	assert_true(run.pool == 8 && run.first == 0 && run.elements == UINT32_MAX);
}

/* SPLIT's own tables. */
static void pp5_flush(void **state)
{
	(void)state;
	static const uint32_t pools[] = {3, 0xfffffffe};
	static const uint8_t request[] = {0, 4, 0, 1, 1, 2, 3,    4,    5,    6,
	                                  7, 8, 0, 0, 0, 3, 0xff, 0xff, 0xff, 0xfe};
	static const uint8_t reply[] = {0, 5, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8};
	struct push_message message;
	assert_int_equal(push_put_flush(CONTEXT, pools, 2, out, sizeof(out)), sizeof(request));
	assert_memory_equal(out, request, sizeof(request));
	assert_int_equal(push_decode(&message, out, sizeof(request)), PUSH_OK);
	assert_int_equal(message.count, 2);
	assert_int_equal(push_get_flushed(&message, 1), 0xfffffffe);
	message = (struct push_message){.function = PUSH_FLUSH_REPLY, .context = CONTEXT};
	assert_int_equal(push_put(&message, out, sizeof(out)), sizeof(reply));
	assert_memory_equal(out, reply, sizeof(reply));
	assert_int_equal(push_decode(&message, out, sizeof(reply)), PUSH_OK);
}

static void pp5_without_lists(void **state)
{
	(void)state;
	static const struct {
		struct push_message message;
		uint8_t body[12];
		size_t bytes;
	} rows[] = {
	        {{.function = PUSH_POOL_GET, .packet_bytes = 1514, .packets = 64},
	         {0, 0, 5, 0xea, 0, 0, 0, 64},
	         8},
	        {{.function = PUSH_INDICATE, .indication = {0x100, 5, 0x20000}},
	         {0, 0, 1, 0, 0, 0, 0, 5, 0, 2, 0, 0},
	         12},
	        {{.function = PUSH_SEND_DATA, .data = (const uint8_t *)"abc", .data_bytes = 3},
	         {0, 0, 0, 3, 'a', 'b', 'c'},
	         7},
	        {{.function = PUSH_CFG_REQUEST, .data = (const uint8_t *)"m", .data_bytes = 1},
	         {0, 0, 0, 1, 'm'},
	         5},
	        {{.function = PUSH_CFG_REPLY}, {0}, 4},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct push_message back;
		size_t bytes = push_put(&rows[i].message, out, sizeof(out));
		assert_int_equal(bytes, 12 + rows[i].bytes);
		assert_int_equal(be16_load(out), rows[i].message.function);
		assert_memory_equal(out + 12, rows[i].body, rows[i].bytes);
		assert_int_equal(push_decode(&back, out, bytes), PUSH_OK);
		assert_int_equal(back.packet_bytes, rows[i].message.packet_bytes);
		assert_int_equal(back.packets, rows[i].message.packets);
		assert_memory_equal(&back.indication, &rows[i].message.indication,
		                    sizeof(back.indication));
		assert_int_equal(back.data_bytes, rows[i].message.data_bytes);
		if (back.data_bytes > 0)
			assert_memory_equal(back.data, rows[i].message.data, back.data_bytes);
		for (size_t cut = 0; cut < bytes; cut++)
			assert_int_equal(push_decode(&back, out, cut),
			                 cut < 12 ? PUSH_TOO_SHORT : PUSH_WRONG_LENGTH);
		assert_int_equal(push_decode(&back, out, bytes + 1), PUSH_WRONG_LENGTH);
		assert_int_equal(push_put(&rows[i].message, out, bytes - 1), 0);
	}
}

static void pp5_verdicts(void **state)
{
	(void)state;
	static const struct push_pool pools[] = {{1, 0, 1, 0, 0, 0},
	                                         {1, 1, 0, 0, 0, 0},
	                                         {1, 2, 1, 0, UINT64_MAX, 0},
	                                         {1, UINT32_MAX, UINT32_MAX, 0, 1ull << 63, 0}};
	static const struct push_run runs[] = {{1, 5, 0}, {1, 1, UINT32_MAX}, {1, UINT32_MAX, 1}};
	struct push_message message = {.function = PUSH_FLUSH_REPLY};
	size_t bytes = push_put(&message, out, sizeof(out));
	message.count = 77;
	be16_store(out + 2, 2);
	assert_int_equal(push_decode(&message, out, bytes), PUSH_WRONG_VERSION);
	be16_store(out + 2, 1);
	static const uint16_t functions[] = {0, PUSH_FUNCTION_COUNT, 0xffff};
	for (size_t i = 0; i < 3; i++) {
		be16_store(out, functions[i]);
		assert_int_equal(push_decode(&message, out, bytes), PUSH_WRONG_FUNCTION);
	}
	assert_int_equal(push_decode(&message, out, sizeof(out)), PUSH_TOO_LONG);
	/* A list of nothing, and of bad entries: no such message is written, and none accepted. */
	static const uint16_t lists[] = {PUSH_POOL, PUSH_POOL_UPDATE, PUSH_FLUSH_REQUEST};
	for (size_t i = 0; i < 3; i++) {
		be16_store(out, lists[i]);
		assert_int_equal(push_decode(&message, out, bytes), PUSH_WRONG_LENGTH);
	}
	assert_int_equal(push_put_pools(0, pools, 0, out, sizeof(out)), 0);
	assert_int_equal(push_put_runs(0, runs, 0, out, sizeof(out)), 0);
	assert_int_equal(push_put_flush(0, NULL, 0, out, sizeof(out)), 0);
	for (size_t i = 0; i < 4; i++) {
		struct push_pool good = {1, 1, 1, 0, 0, 0};
		assert_int_equal(push_put_pools(0, &pools[i], 1, out, sizeof(out)), 0);
		assert_int_equal(push_put_pools(0, &good, 1, out, sizeof(out)), 44);
		be32_store(out + 16, pools[i].elements);
		be32_store(out + 20, pools[i].element_bytes);
		be64_store(out + 28, pools[i].address);
		assert_int_equal(push_decode(&message, out, 44), PUSH_WRONG_POOL);
	}
	for (size_t i = 0; i < 3; i++) {
		struct push_run good = {1, 1, 1};
		assert_int_equal(push_put_runs(0, &runs[i], 1, out, sizeof(out)), 0);
		assert_int_equal(push_put_runs(0, &good, 1, out, sizeof(out)), 24);
		be32_store(out + 16, runs[i].first);
		be32_store(out + 20, runs[i].elements);
		assert_int_equal(push_decode(&message, out, 24), PUSH_WRONG_RUN);
	}
	assert_int_equal(message.count, 77);
}

static void pp5_limits(void **state)
{
	(void)state;
	static uint32_t pools[PUSH_MAX_FLUSHED + 1];
	static uint8_t data[PUSH_MAX_DATA + 1];
	static uint8_t large[2 * PUSH_MAX_BYTES];
	struct push_message message = {
	        .function = PUSH_SEND_DATA, .data = data, .data_bytes = PUSH_MAX_DATA};
	assert_int_equal(push_put(&message, large, sizeof(large)), PUSH_MAX_BYTES);
	message.data_bytes++;
	assert_int_equal(push_put(&message, large, sizeof(large)), 0);
	assert_int_equal(push_put_flush(0, pools, PUSH_MAX_FLUSHED, large, sizeof(large)),
	                 PUSH_MAX_BYTES);
	assert_int_equal(push_put_flush(0, pools, PUSH_MAX_FLUSHED + 1, large, sizeof(large)), 0);
}

static void pp5_immediate(void **state)
{
	(void)state;
	static const struct {
		struct push_indication indication;
		bool fits;
		uint32_t immediate;
	} rows[] = {
	        {{7, 5, 256}, true, 0x07050100}, /* SPLIT figure 7 */
	        {{255, 255, 65535}, true, 0xffffffff},
	        {{0, 0, 65536}, true, 0},
	        {{0, 0, 1}, true, 1},
	        {{256, 0, 1}, false, 0},
	        {{0, 256, 1}, false, 0},
	        {{0, 0, 65537}, false, 0},
	        {{0, 0, 0}, false, 0},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint32_t immediate = 0;
		assert_int_equal(push_pack(&rows[i].indication, &immediate), rows[i].fits);
		if (!rows[i].fits)
			continue;
		assert_int_equal(immediate, rows[i].immediate);
		struct push_indication back = push_unpack(immediate);
		assert_memory_equal(&back, &rows[i].indication, sizeof(back));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(pp5_pools),     cmocka_unit_test(pp5_updates),
	        cmocka_unit_test(pp5_flush),     cmocka_unit_test(pp5_without_lists),
	        cmocka_unit_test(pp5_verdicts),  cmocka_unit_test(pp5_limits),
	        cmocka_unit_test(pp5_immediate),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
