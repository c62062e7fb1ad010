/* ICRC and VCRC: the specification's worked example, what they cover, and the identification that a
 * socket hides. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/crc.h"
#include "ib_sample.h"
#include "wire/be.h"
#include "wire/icrc.h"
#include "wire/ip_headers.h"

/* IBTA volume 1 section 7.8, the sample packet: LRH, BTH, RETH, 14 bytes of payload, 2 of padding,
 * and its ICRC. */
static const char sample[] = "7012375c000e17d20a2024870087b1b3000dec2a01710a1c015d400238f27a050000"
                             "000ebb884d85fd5cfba4728bc0690ed40000";
static const uint8_t sample_icrc[] = {0x96, 0x25, 0xb7, 0x5a};

static void ibta_7_8_sample_packet_has_its_icrc(void **state)
{
	(void)state;
	uint8_t bytes[64], icrc[IB_ICRC_BYTES];
	size_t n = ib_sample_hex(bytes, sizeof(bytes), sample);
	assert_int_equal(n, 52);
	icrc_put(icrc,
	         icrc_transport(icrc_seed_lrh(bytes), bytes + IB_LRH_BYTES, n - IB_LRH_BYTES));
	assert_memory_equal(icrc, sample_icrc, sizeof(icrc));
	assert_int_equal(icrc_get(icrc), 0x5ab72596);
}

static void ibta_7_8_sample_packet_decodes(void **state)
{
	(void)state;
	uint8_t bytes[64], again[64];
	struct ib_packet packet;
	size_t n = ib_sample_hex(bytes, sizeof(bytes), sample);
	memcpy(bytes + n, sample_icrc, IB_ICRC_BYTES);
	n += IB_ICRC_BYTES;
	vcrc_put(bytes + n, crc16_vcrc(0, bytes, n));
	n += IB_VCRC_BYTES;
	assert_int_equal(ib_link_decode(&packet, bytes, n), IB_OK);
	assert_int_equal(packet.lrh.vl, 7);
	assert_int_equal(packet.lrh.sl, 1);
	assert_int_equal(packet.lrh.dlid, 0x375c);
	assert_int_equal(packet.lrh.length_words, 14);
	assert_int_equal(packet.lrh.slid, 0x17d2);
	assert_int_equal(packet.bth.opcode, IB_RC + IB_OP_WRITE_ONLY);
	assert_int_equal(packet.bth.pkey, 0x2487);
	assert_int_equal(packet.bth.dest_qp, 0x87b1b3);
	assert_int_equal(packet.bth.psn, 0x0dec2a);
	assert_int_equal(packet.reth.addr, 0x01710a1c015d4002);
	assert_int_equal(packet.reth.rkey, 0x38f27a05);
	assert_int_equal(packet.reth.length_bytes, 14);
	assert_int_equal(packet.payload_bytes, 14);
	assert_int_equal(ib_link_encode(&packet, again, sizeof(again)), n);
	assert_memory_equal(again, bytes, n);
}

/* Section 7.8.2: reflected, polynomial 0x100b, all ones before, complement after. */
static uint16_t slow_vcrc(const uint8_t *bytes, size_t count)
{
	unsigned crc = 0xffff;
	for (size_t bit = 0; bit < count * 8; bit++) {
		unsigned in = (crc ^ ((unsigned)bytes[bit / 8] >> bit % 8)) & 1;
		crc = crc >> 1 ^ (in ? 0xd008u : 0); /* 0x100b turned round */
	}
	return (uint16_t)~crc;
}

static void ibta_7_8_2_vcrc_covers_every_bit(void **state)
{
	(void)state;
	struct prng prng;
	struct ib_packet packet;
	uint8_t payload[16] = {1}, bytes[128];
	prng_seed(&prng, 7);
	ib_sample_packet(&packet, &prng, IB_UD + IB_OP_SEND_ONLY, payload, sizeof(payload));
	size_t n = ib_link_encode(&packet, bytes, sizeof(bytes));
	assert_int_equal(vcrc_get(bytes + n - 2), slow_vcrc(bytes, n - 2));
	for (size_t bit = 0; bit < n * 8; bit++) {
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_not_equal(ib_link_decode(&packet, bytes, n), IB_OK);
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
}

/* Which bits the ICRC does not cover: byte and mask, from the first header on; ends with a mask of
 * 0. */
struct variant {
	size_t byte;
	uint8_t mask;
};

#define BTH_VARIANT(at)        \
	{                      \
		(at) + 4, 0xff \
	}

static const struct variant variant_local[] = {{0, 0xf0}, BTH_VARIANT(8), {0, 0}};
static const struct variant variant_global[] = {{0, 0xff},  {1, 0xff},       {2, 0xff},  {3, 0xff},
                                                {4, 0xff},  {5, 0xff},       {6, 0xff},  {7, 0xff},
                                                {8, 0x0f},  {9, 0xff},       {10, 0xff}, {11, 0xff},
                                                {15, 0xff}, BTH_VARIANT(48), {0, 0}};
static const struct variant variant_ipv4[] = {{1, 0xff},  {8, 0xff},  {10, 0xff},      {11, 0xff},
                                              {26, 0xff}, {27, 0xff}, BTH_VARIANT(28), {0, 0}};
static const struct variant variant_ipv6[] = {{0, 0x0f},  {1, 0xff},       {2, 0xff},
                                              {3, 0xff},  {7, 0xff},       {46, 0xff},
                                              {47, 0xff}, BTH_VARIANT(48), {0, 0}};

static uint8_t variant_bits(const struct variant *list, size_t byte)
{
	for (; list->mask; list++) {
		if (list->byte == byte)
			return list->mask;
	}
	return 0;
}

enum framing { LOCAL, GLOBAL, IPV4, IPV6 };

static uint32_t icrc_of(enum framing framing, const uint8_t *bytes, size_t count)
{
	size_t before = (size_t[]){8, 48, 28, 48}[framing];
	uint32_t seed = framing == LOCAL    ? icrc_seed_lrh(bytes)
	                : framing == GLOBAL ? icrc_seed_grh(bytes + IB_LRH_BYTES)
	                : framing == IPV4   ? icrc_seed_ipv4(bytes)
	                                    : icrc_seed_ipv6(bytes);
	return icrc_transport(seed, bytes + before, count - before);
}

/* The obvious way: all of the packet in one buffer, masked, behind eight bytes of ones where there
 * is no LRH. */
static uint32_t slow_icrc(enum framing framing, const struct variant *list, const uint8_t *bytes,
                          size_t count)
{
	uint8_t masked[512];
	size_t n = 0;
	if (framing == IPV4 || framing == IPV6) {
		memset(masked, 0xff, 8);
		n = 8;
	}
	for (size_t i = 0; i < count; i++)
		masked[n++] = bytes[i] | variant_bits(list, i);
	uint32_t crc = 0xffffffff;
	for (size_t bit = 0; bit < n * 8; bit++) {
		uint32_t in = (crc ^ ((uint32_t)masked[bit / 8] >> bit % 8)) & 1;
		crc = crc >> 1 ^ (in ? 0xedb88320u : 0);
	}
	return ~crc;
}

static void ibta_7_8_1_and_a17_every_bit_is_covered_but_the_variant_ones(void **state)
{
	(void)state;
	static const struct variant *const variants[] = {variant_local, variant_global,
	                                                 variant_ipv4, variant_ipv6};
	struct prng prng;
	prng_seed(&prng, 1);
	for (enum framing framing = LOCAL; framing <= IPV6; framing++) {
		uint8_t bytes[256];
		for (size_t n = 60; n < 140; n += 8) {
			prng_fill(&prng, bytes, n);
			uint32_t icrc = icrc_of(framing, bytes, n);
			assert_int_equal(icrc, slow_icrc(framing, variants[framing], bytes, n));
			for (size_t bit = 0; bit < n * 8; bit++) {
				uint8_t mask = (uint8_t)(1u << bit % 8);
				bool variant = variant_bits(variants[framing], bit / 8) & mask;
				bytes[bit / 8] ^= mask;
				assert_int_equal(icrc_of(framing, bytes, n) == icrc, variant);
				bytes[bit / 8] ^= mask;
			}
		}
	}
}

/* What icrc_solve_ip_id() does not do: try them all. */
static long slow_solve(uint8_t *bytes, size_t count, uint32_t received)
{
	for (unsigned id = 0; id < 65536; id++) {
		be16_store(bytes + 4, (uint16_t)id);
		if (icrc_of(IPV4, bytes, count) == received)
			return (long)id;
	}
	return -1;
}

static void a17_hidden_ipv4_id_is_solved_as_by_trying_all(void **state)
{
	(void)state;
	struct prng prng;
	prng_seed(&prng, 3);
	for (int round = 0; round < 12; round++) {
		uint8_t bytes[128];
		size_t n = 40 + prng_below(&prng, 88);
		prng_fill(&prng, bytes, n);
		uint16_t id = 0xbeef, sent = be16_load(bytes + 4);
		uint32_t received = icrc_of(IPV4, bytes, n);
		if (round % 2) /* damage */
			received ^= 1u << prng_below(&prng, 32);
		be16_store(bytes + 4, 0);
		bool found = icrc_solve_ip_id(icrc_of(IPV4, bytes, n), received, n - 6, &id);
		long slow = slow_solve(bytes, n, received);
		assert_int_equal(found, slow >= 0);
		assert_int_equal(id, found ? slow : 0xbeef);
		assert_int_equal(found, round % 2 == 0);
		if (found)
			assert_int_equal(id, sent);
	}
}

static void a17_hidden_ipv4_id_every_value_and_every_length(void **state)
{
	(void)state;
	static uint8_t bytes[20 + 65536];
	struct prng prng;
	prng_seed(&prng, 4);
	prng_fill(&prng, bytes, sizeof(bytes));
	for (unsigned id = 0; id < 65536; id++) {
		uint16_t found = (uint16_t)~id;
		be16_store(bytes + 4, (uint16_t)id);
		uint32_t received = icrc_of(IPV4, bytes, 64);
		be16_store(bytes + 4, 0);
		assert_true(icrc_solve_ip_id(icrc_of(IPV4, bytes, 64), received, 58, &found));
		assert_int_equal(found, id);
	}
	for (size_t n = 40; n <= 65535; n += n < 5000 ? 1 : 977) {
		uint16_t id = (uint16_t)prng_next(&prng), found = (uint16_t)~id;
		be16_store(bytes + 4, id);
		uint32_t received = icrc_of(IPV4, bytes, n);
		be16_store(bytes + 4, 0);
		uint32_t zero = icrc_of(IPV4, bytes, n);
		assert_true(icrc_solve_ip_id(zero, received, n - 6, &found));
		assert_int_equal(found, id);
	}
	uint16_t id;
	assert_false(icrc_solve_ip_id(0, 0, ICRC_MAX_BYTES_BEHIND_ID + 1, &id));
	assert_true(icrc_solve_ip_id(0, 0, ICRC_MAX_BYTES_BEHIND_ID, &id));
}

/* A chance of 2^-16 for a packet damaged at random. */
static void a17_hidden_ipv4_id_seldom_explains_damage(void **state)
{
	(void)state;
	struct prng prng;
	prng_seed(&prng, 5);
	unsigned explained = 0;
	for (int i = 0; i < 1 << 20; i++) {
		uint16_t id;
		explained +=
		        icrc_solve_ip_id((uint32_t)prng_next(&prng), (uint32_t)prng_next(&prng),
		                         34 + prng_below(&prng, 64), &id);
	}
	assert_in_range(explained, 1, 48); /* 16 expected */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(ibta_7_8_sample_packet_has_its_icrc),
	        cmocka_unit_test(ibta_7_8_sample_packet_decodes),
	        cmocka_unit_test(ibta_7_8_2_vcrc_covers_every_bit),
	        cmocka_unit_test(ibta_7_8_1_and_a17_every_bit_is_covered_but_the_variant_ones),
	        cmocka_unit_test(a17_hidden_ipv4_id_is_solved_as_by_trying_all),
	        cmocka_unit_test(a17_hidden_ipv4_id_every_value_and_every_length),
	        cmocka_unit_test(a17_hidden_ipv4_id_seldom_explains_damage),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
