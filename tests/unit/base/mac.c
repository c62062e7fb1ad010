/* Ethernet addresses as link-local GIDs, and back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mac.h"

/* RFC 4291 appendix A: 34-56-78-9A-BC-DE. The second one is administered locally. */
static const struct {
	uint8_t mac[MAC_BYTES], gid[16];
} rows[] = {
        {{0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde},
         {0xfe, 0x80, [8] = 0x36, 0x56, 0x78, 0xff, 0xfe, 0x9a, 0xbc, 0xde}},
        {{0x02, 0x00, 0x00, 0x00, 0x00, 0x01}, {0xfe, 0x80, [11] = 0xff, 0xfe, [15] = 0x01}},
};

static void rfc4291_a_both_ways(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint8_t gid[16], mac[MAC_BYTES];
		mac_to_gid(rows[i].mac, gid);
		assert_memory_equal(gid, rows[i].gid, sizeof(gid));
		assert_true(mac_from_gid(gid, mac));
		assert_memory_equal(mac, rows[i].mac, sizeof(mac));
	}
}

/* Another prefix, another middle, a group's address: there is no host behind these. */
static void rfc4291_a_others_have_none(void **state)
{
	(void)state;
	static const struct {
		uint8_t at, value;
	} wrong[] = {{0, 0xfd}, {1, 0xc0}, {7, 1}, {11, 0xfe}, {12, 0xff}, {8, 0x37}};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		uint8_t gid[16], mac[MAC_BYTES] = {9, 9, 9, 9, 9, 9};
		static const uint8_t untouched[MAC_BYTES] = {9, 9, 9, 9, 9, 9};
		memcpy(gid, rows[0].gid, sizeof(gid));
		gid[wrong[i].at] = wrong[i].value;
		assert_false(mac_from_gid(gid, mac));
		assert_memory_equal(mac, untouched, sizeof(mac));
	}
}

static void an_address_of_zeroes_is_none(void **state)
{
	(void)state;
	assert_true(mac_is_clear((const uint8_t[MAC_BYTES]){0}));
	for (unsigned i = 0; i < MAC_BYTES; i++) {
		uint8_t mac[MAC_BYTES] = {0};
		mac[i] = 1;
		assert_false(mac_is_clear(mac));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(rfc4291_a_both_ways),
	        cmocka_unit_test(rfc4291_a_others_have_none),
	        cmocka_unit_test(an_address_of_zeroes_is_none),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
