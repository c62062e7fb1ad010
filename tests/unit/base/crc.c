/* The checksums against published values: the catalogue check value, RFC 3720 appendix B.4, and a
 * bit-by-bit model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/prng.h"

/* The textbook register, low bit first, for any of the three. */
static uint32_t slow_crc(uint32_t polynomial, uint32_t ones, const uint8_t *data, size_t bytes)
{
	uint32_t rest = ones;
	for (size_t i = 0; i < bytes; i++) {
		rest ^= data[i];
		for (int bit = 0; bit < 8; bit++)
			rest = (rest >> 1) ^ (rest & 1 ? polynomial : 0);
	}
	return rest ^ ones;
}

static void check_values_of_the_catalogue(void **state)
{
	(void)state;
	assert_int_equal(crc32_ieee(0, "123456789", 9), 0xcbf43926);
	assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283);
	assert_int_equal(crc32_ieee(0, NULL, 0), 0);
	assert_int_equal(crc32c(0, NULL, 0), 0);
	assert_int_equal(crc16_vcrc(0, NULL, 0), 0);
}

static void rfc3720_b4_crc32c(void **state)
{
	(void)state;
	uint8_t zeros[32], ones[32], up[32], down[32];
	for (uint8_t i = 0; i < 32; i++) {
		zeros[i] = 0;
		ones[i] = 0xff;
		up[i] = i;
		down[i] = (uint8_t)(31 - i);
	}
	/* An iSCSI read (10) command. */
	static const uint8_t command[48] = {
	        0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	        0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00,
	        0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x18, 0x28, 0x00, 0x00, 0x00,
	        0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	};
	/* The appendix shows the bytes as sent, lowest first. */
	assert_int_equal(crc32c(0, zeros, 32), 0x8a9136aa);
	assert_int_equal(crc32c(0, ones, 32), 0x62a8ab43);
	assert_int_equal(crc32c(0, up, 32), 0x46dd794e);
	assert_int_equal(crc32c(0, down, 32), 0x113fdb5c);
	assert_int_equal(crc32c(0, command, 48), 0xd9963a56);
}

static void every_length_matches_the_register(void **state)
{
	(void)state;
	static uint8_t data[1500];
	struct prng prng;
	prng_seed(&prng, 1);
	prng_fill(&prng, data, sizeof(data));
	for (size_t bytes = 0; bytes < sizeof(data); bytes++) {
		assert_int_equal(crc32_ieee(0, data, bytes),
		                 slow_crc(0xedb88320, UINT32_MAX, data, bytes));
		assert_int_equal(crc32c(0, data, bytes),
		                 slow_crc(0x82f63b78, UINT32_MAX, data, bytes));
		assert_int_equal(crc16_vcrc(0, data, bytes),
		                 slow_crc(0xd008, UINT16_MAX, data, bytes));
	}
}

static void going_on_equals_one_go(void **state)
{
	(void)state;
	uint8_t data[300];
	struct prng prng;
	prng_seed(&prng, 2);
	prng_fill(&prng, data, sizeof(data));
	for (size_t cut = 0; cut <= sizeof(data); cut++) {
		size_t rest = sizeof(data) - cut;
		assert_int_equal(crc32_ieee(crc32_ieee(0, data, cut), data + cut, rest),
		                 crc32_ieee(0, data, sizeof(data)));
		assert_int_equal(crc32c(crc32c(0, data, cut), data + cut, rest),
		                 crc32c(0, data, sizeof(data)));
		assert_int_equal(crc32c_two(0, data, cut, data + cut, rest),
		                 crc32c(0, data, sizeof(data)));
		assert_int_equal(crc16_vcrc(crc16_vcrc(0, data, cut), data + cut, rest),
		                 crc16_vcrc(0, data, sizeof(data)));
	}
}

/* Every remainder of its steps, from and to any place, begun anew and gone on with. */
static void copying_takes_the_same_crc(void **state)
{
	(void)state;
	static uint8_t data[4500], copy[4500], want[4500];
	struct prng prng;
	prng_seed(&prng, 3);
	prng_fill(&prng, data, sizeof(data));
	for (size_t bytes = 0; bytes + 64 < sizeof(data); bytes += bytes < 1100 ? 1 : 37) {
		size_t from = bytes % 64, to = bytes * 7 % 61;
		uint32_t before = bytes % 3 == 0 ? 0 : (uint32_t)prng_next(&prng);
		memset(copy, 0xee, sizeof(copy));
		memset(want, 0xee, sizeof(want));
		memcpy(want + to, data + from, bytes);
		assert_int_equal(crc32_ieee_copy(before, copy + to, data + from, bytes),
		                 crc32_ieee(before, data + from, bytes));
		assert_memory_equal(copy, want, sizeof(copy));
		memset(copy + to, 0x11, bytes);
		assert_int_equal(crc32c_copy(before, copy + to, data + from, bytes),
		                 crc32c(before, data + from, bytes));
		assert_memory_equal(copy, want, sizeof(copy));
	}
}

/* Packets that InfiniBand hardware sent, caught on the link: reliable-connection acknowledgements
 * and a management datagram. The VCRC covers all before it and travels low byte first. */
static void vcrc_of_packets_from_hardware(void **state)
{
	(void)state;
	static const char *const packets[] = {
	        "00020004000700011140ffff0087040800d40a551f000001a80355503081",
	        "00020004000700011140ffff0087040800d40a561f000002c228fc8e4b7a",
	        "00020004000700021140ffff00890408007323281f0000014aee54f2225b",
	        "00020004001700016440ffff00000405000d43bc00000b1b0000040408060000002008001404000280"
	        "000404"
	        "fe800000000000000002c9020020b4dd0a00003a80000405fe800000000000000002c9020024f6360a"
	        "000122"
	        "06e87bdb685c",
	};
	for (size_t i = 0; i < sizeof(packets) / sizeof(packets[0]); i++) {
		uint8_t bytes[128];
		size_t length = strlen(packets[i]) / 2;
		for (size_t b = 0; b < length; b++) {
			char pair[3] = {packets[i][2 * b], packets[i][2 * b + 1], 0};
			bytes[b] = (uint8_t)strtoul(pair, NULL, 16);
		}
		uint16_t sent = (uint16_t)(bytes[length - 2] | bytes[length - 1] << 8);
		assert_int_equal(crc16_vcrc(0, bytes, length - 2), sent);
	}
}

/* 0x100B as IBTA volume 1 section 7.8.2 writes it, highest power first, is 0xD008 in a register
 * that shifts right. */
static void vcrc_polynomial_turned_round(void **state)
{
	(void)state;
	unsigned turned = 0;
	for (unsigned bit = 0; bit < 16; bit++)
		if (0x100bu >> bit & 1)
			turned |= 1u << (15 - bit);
	assert_int_equal(turned, 0xd008);
	/* A packet followed by its own VCRC, low byte first, leaves a constant: what a link's
	 * receiver looks for. */
	uint8_t data[66];
	uint16_t residue = 0;
	struct prng prng;
	prng_seed(&prng, 3);
	for (int round = 0; round < 100; round++) {
		prng_fill(&prng, data, 64);
		uint16_t crc = crc16_vcrc(0, data, 64);
		data[64] = (uint8_t)crc;
		data[65] = (uint8_t)(crc >> 8);
		uint16_t left = crc16_vcrc(0, data, 66);
		if (round == 0)
			residue = left;
		assert_int_equal(left, residue);
		data[prng_below(&prng, 66)] ^= (uint8_t)(1u << prng_below(&prng, 8));
		assert_int_not_equal(crc16_vcrc(0, data, 66), residue);
	}
}

int main(void)
{
	const struct CMUnitTest all[] = {
	        cmocka_unit_test(check_values_of_the_catalogue),
	        cmocka_unit_test(rfc3720_b4_crc32c),
	        cmocka_unit_test(every_length_matches_the_register),
	        cmocka_unit_test(going_on_equals_one_go),
	        cmocka_unit_test(copying_takes_the_same_crc),
	        cmocka_unit_test(vcrc_of_packets_from_hardware),
	        cmocka_unit_test(vcrc_polynomial_turned_round),
	};
	return cmocka_run_group_tests(all, NULL, NULL);
}
