/* The contents of configuration messages, byte for byte, their verdicts, and the two forms of
 * immediate data. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "wire/push.h"
#include "wire/push_cfg.h"

static uint8_t out[1024];

static void pp5_items_byte_for_byte(void **state)
{
	(void)state;
	static const struct {
		struct push_cfg cfg;
		uint8_t bytes[24];
		size_t length;
	} cases[] = {
	        {{.item = PUSH_CFG_MAC}, {0, 2, 0, 0}, 4},
	        {{.item = PUSH_CFG_MAC, .code = 1, .has_value = true, .mac = {2, 0, 0, 0, 0, 9}},
	         {0, 2, 0, 1, 2, 0, 0, 0, 0, 9},
	         10},
	        {{.item = PUSH_CFG_INIT,
	          .has_value = true,
	          .mac = {2, 0, 0, 0, 0, 9},
	          .mtu = 1500,
	          .offloads = 7,
	          .version = 1},
	         {0, 1, 0, 0, 2, 0, 0, 0, 0, 9, 0x05, 0xdc, 0, 0, 0, 7, 0, 1, 0, 0},
	         20},
	        {{.item = PUSH_CFG_MTU, .has_value = true, .mtu = 9000},
	         {0, 3, 0, 0, 0x23, 0x28},
	         6},
	        {{.item = PUSH_CFG_LINK, .has_value = true, .up = true}, {0, 4, 0, 0, 1}, 5},
	        {{.item = PUSH_CFG_FILTER,
	          .code = 1,
	          .has_value = true,
	          .filter = 2,
	          .multicast_count = 1,
	          .multicast = {{0x33, 0x33, 0, 0, 0, 1}}},
	         {0, 5, 0, 1, 0, 0, 0, 2, 0x33, 0x33, 0, 0, 0, 1},
	         14},
	        {{.item = PUSH_CFG_OFFLOADS, .has_value = true, .offloads = 31},
	         {0, 6, 0, 0, 0, 0, 0, 31},
	         8},
	        {{.item = PUSH_CFG_MORE_MAC,
	          .code = 1,
	          .has_value = true,
	          .mac = {2, 0, 0, 0, 0, 9}},
	         {0, 8, 0, 1, 2, 0, 0, 0, 0, 9},
	         10},
	        {{.item = 99, .code = PUSH_CFG_UNKNOWN}, {0, 99, 0, 1}, 4},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct push_cfg again;
		assert_int_equal(push_cfg_put(&cases[i].cfg, out, sizeof(out)), cases[i].length);
		assert_memory_equal(out, cases[i].bytes, cases[i].length);
		if (cases[i].cfg.item == 99)
			continue;
		assert_int_equal(push_cfg_decode(&again, out, cases[i].length), PUSH_CFG_OK);
		assert_memory_equal(&again, &cases[i].cfg, sizeof(again));
		assert_int_equal(push_cfg_put(&cases[i].cfg, out, cases[i].length - 1), 0);
	}
	struct push_cfg statistics = {.item = PUSH_CFG_STATISTICS, .has_value = true}, again;
	statistics.statistics[PUSH_STAT_FORGED] = 0x0102030405060708ull;
	size_t bytes = push_cfg_put(&statistics, out, sizeof(out));
	assert_int_equal(bytes, 4 + 8 * PUSH_STAT_COUNT);
	assert_int_equal(push_cfg_decode(&again, out, bytes), PUSH_CFG_OK);
	assert_memory_equal(&again, &statistics, sizeof(again));
}

static void pp5_items_that_are_refused(void **state)
{
	(void)state;
	struct push_cfg cfg;
	static const uint8_t zero[512];
	static const uint8_t mac[10] = {0, 2}, filter[512] = {0, 5},
	                     unknown[4] = {0, PUSH_CFG_ITEM_COUNT};
	for (size_t bytes = 0; bytes < 4; bytes++)
		assert_int_equal(push_cfg_decode(&cfg, mac, bytes), PUSH_CFG_MALFORMED);
	for (size_t bytes = 5; bytes < 10; bytes++)
		assert_int_equal(push_cfg_decode(&cfg, mac, bytes), PUSH_CFG_MALFORMED);
	assert_int_equal(push_cfg_decode(&cfg, zero, 4), PUSH_CFG_UNKNOWN);
	assert_int_equal(push_cfg_decode(&cfg, unknown, 4), PUSH_CFG_UNKNOWN);
	assert_int_equal(push_cfg_decode(&cfg, filter, 8 + 6 * 64), PUSH_CFG_OK);
	assert_int_equal(cfg.multicast_count, PUSH_CFG_MAX_MULTICAST);
	assert_int_equal(push_cfg_decode(&cfg, filter, 8 + 6 * 65), PUSH_CFG_MALFORMED);
	assert_int_equal(push_cfg_decode(&cfg, filter, 8 + 5), PUSH_CFG_MALFORMED);
	cfg = (struct push_cfg){.item = PUSH_CFG_FILTER, .has_value = true, .multicast_count = 65};
	assert_int_equal(push_cfg_put(&cfg, out, sizeof(out)), 0);
}

/* SPLIT figure 7, outbound: where, and how much. */
static void pp5_address_and_length(void **state)
{
	(void)state;
	uint32_t immediate, bytes;
	uint64_t offset;
	assert_true(push_pack_address(5 * 256, 256, &immediate));
	assert_int_equal(immediate, 0x00050100);
	push_unpack_address(immediate, &offset, &bytes);
	assert_true(offset == 5 * 256 && bytes == 256);
	assert_true(push_pack_address(0xffff * 256, 65536, &immediate));
	assert_int_equal(immediate, 0xffff0000);
	push_unpack_address(immediate, &offset, &bytes);
	assert_true(offset == 0xffff * 256 && bytes == 65536);
	assert_false(push_pack_address(0x10000 * 256, 1, &immediate));
	assert_false(push_pack_address(255, 1, &immediate));
	assert_false(push_pack_address(0, 0, &immediate));
	assert_false(push_pack_address(0, 65537, &immediate));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(pp5_items_byte_for_byte),
	        cmocka_unit_test(pp5_items_that_are_refused),
	        cmocka_unit_test(pp5_address_and_length),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
