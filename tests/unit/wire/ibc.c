/* IBC packets: the layout byte for byte, every verdict, and that damage of any bit is seen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/crc.h"
#include "base/prng.h"
#include "wire/be.h"
#include "wire/ibc.h"

static struct ibc_packet sample(void)
{
	return (struct ibc_packet){.type = IBC_TYPE_WRITE_REQUEST,
	                           .source_apid = 33,
	                           .dest_apid = 40,
	                           .dest_node = 0x68,
	                           .guid = 1,
	                           .transaction = 7,
	                           .route = {.pointer = 1, .hops = 2, .ports = {3, 2}},
	                           .payload = (const uint8_t *)"hello",
	                           .payload_bytes = 5};
}

/* The packet that heddle-ibc(7) shows. */
static void vs2_layout(void **state)
{
	(void)state;
	static const uint8_t expected[] = {
	        0x12, 0x01, 0x02, 0x00, 0x21, 0x28, 0x00, 0x05, /* fixed part */
	        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x68, /* node */
	        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, /* GUID */
	        0x00, 0x00, 0x00, 0x07, 0x00, 0x00, 0x00, 0x00, /* check */
	        0x03, 0x02, 0x3f, 0x00,                         /* route */
	        'h',  'e',  'l',  'l',  'o',  0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, /* CRC */
	};
	uint8_t bytes[IBC_MAX_BYTES];
	struct ibc_packet packet = sample(), back;
	assert_int_equal(ibc_encode(&packet, bytes, sizeof(bytes)), sizeof(expected));
	assert_memory_equal(bytes, expected, 28);
	assert_memory_equal(bytes + 32, expected + 32, 12);
	uint32_t check = crc32c(crc32c(0, expected, 28), expected + 32, 4);
	assert_int_equal(be32_load(bytes + 28), check);
	uint32_t crc = crc32c(0, expected, 1);
	crc = crc32c(crc32c(crc, expected + 2, 26), "hello", 5);
	assert_int_equal(be32_load(bytes + 44), crc);
	assert_int_equal(ibc_decode(&back, bytes, sizeof(expected)), IBC_OK);
	assert_int_equal(back.type, packet.type);
	assert_int_equal(back.dest_node, 0x68);
	assert_int_equal(back.transaction, 7);
	assert_int_equal(back.route.hops, 2);
	assert_memory_equal(back.route.ports, packet.route.ports, 2);
	assert_memory_equal(back.payload, "hello", 5);
}

/* Routes of 0 to 62 hops, payloads of every length modulo 4. */
static void vs2_every_length(void **state)
{
	(void)state;
	uint8_t bytes[IBC_MAX_BYTES], payload[IBC_MAX_PAYLOAD] = {0};
	static const uint16_t lengths[] = {0, 1, 2, 3, 4, 63, 64, 4093, IBC_MAX_PAYLOAD};
	for (unsigned hops = 0; hops <= IBC_MAX_HOPS; hops++) {
		for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
			struct ibc_packet packet = sample(), back;
			packet.route = (struct ibc_route){.pointer = (uint8_t)(hops + 1),
			                                  .hops = (uint8_t)hops};
			memset(packet.route.ports, 62, hops);
			packet.payload = payload;
			packet.payload_bytes = lengths[i];
			size_t length = ibc_encode(&packet, bytes, sizeof(bytes));
			assert_int_equal(length, ibc_bytes(&packet));
			assert_int_equal(ibc_encode(&packet, bytes, length - 1), 0);
			assert_int_equal(ibc_decode(&back, bytes, length), IBC_OK);
			assert_int_equal(back.route.hops, hops);
			assert_int_equal(back.payload_bytes, lengths[i]);
			assert_true(ibc_at_end(&back.route));
			assert_int_equal(ibc_decode(&back, bytes, length - 4),
			                 length == 40 ? IBC_TOO_SHORT : IBC_WRONG_LENGTH);
		}
	}
}

/* Any bit that is damaged on the way is seen, at the latest by the CRC from end to end. */
static void vs2_damage(void **state)
{
	(void)state;
	uint8_t bytes[IBC_MAX_BYTES];
	struct ibc_packet packet = sample(), back = {.transaction = 99};
	size_t length = ibc_encode(&packet, bytes, sizeof(bytes));
	for (size_t bit = 0; bit < 8 * length; bit++) {
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_not_equal(ibc_decode(&back, bytes, length), IBC_OK);
		assert_int_equal(back.transaction, 99);
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	assert_int_equal(ibc_decode(&back, bytes, length), IBC_OK);
}

/* Fields that are out of range are not sent, and are refused with a check that is right. */
static void vs2_verdicts(void **state)
{
	(void)state;
	static const struct {
		size_t at;
		uint8_t value;
		enum ibc_verdict verdict;
	} rows[] = {
	        {0, 0x22, IBC_WRONG_VERSION}, {0, 0x10, IBC_WRONG_TYPE},
	        {0, 0x17, IBC_WRONG_TYPE},    {0, 0x16, IBC_WRONG_REASON},
	        {3, 1, IBC_WRONG_REASON},     {1, 0x00, IBC_WRONG_POINTER},
	        {1, 0x04, IBC_WRONG_POINTER}, {1, 0x83, IBC_WRONG_POINTER},
	        {1, 0x41, IBC_WRONG_ROUTE},   {2, 63, IBC_WRONG_LENGTH},
	        {4, 64, IBC_WRONG_APID},      {5, 64, IBC_WRONG_APID},
	        {6, 0x10, IBC_WRONG_LENGTH},  {32, 63, IBC_WRONG_ROUTE},
	        {34, 62, IBC_WRONG_ROUTE},    {35, 1, IBC_WRONG_ROUTE},
	        {41, 1, IBC_WRONG_CRC},
	};
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint8_t bytes[IBC_MAX_BYTES];
		struct ibc_packet packet = sample(), back;
		size_t length = ibc_encode(&packet, bytes, sizeof(bytes));
		bytes[rows[i].at] = rows[i].value;
		be32_store(bytes + 28, crc32c(crc32c(0, bytes, 28), bytes + 32, 4));
		assert_int_equal(ibc_decode(&back, bytes, length), rows[i].verdict);
	}
	struct ibc_packet packet = sample();
	uint8_t bytes[2 * IBC_MAX_BYTES];
	packet.payload_bytes = IBC_MAX_PAYLOAD + 1;
	assert_int_equal(ibc_encode(&packet, bytes, sizeof(bytes)), 0);
	packet = sample();
	packet.type = IBC_TYPE_NACK;
	assert_int_equal(ibc_encode(&packet, bytes, sizeof(bytes)), 0);
	packet = sample();
	packet.route.ports[1] = IBC_END_OF_ROUTE;
	assert_int_equal(ibc_encode(&packet, bytes, sizeof(bytes)), 0);
}

/* A packet with @hops ports 1, 2, 3, ..., which may be too many, and any pointer; its checks are
 * right. Returns its length. */
static size_t strange_packet(uint8_t *bytes, unsigned hops, bool reverse, unsigned pointer)
{
	struct ibc_packet packet = sample();
	packet.payload_bytes = 0;
	ibc_encode(&packet, bytes, IBC_MAX_BYTES);
	size_t route = (hops + 4u) & ~3u;
	bytes[1] = (uint8_t)((reverse ? 0x80u : 0) | pointer);
	bytes[2] = (uint8_t)hops;
	memset(bytes + 32, 0, route);
	for (unsigned i = 0; i < hops; i++)
		bytes[32 + i] = (uint8_t)(1 + i % 62);
	bytes[32 + hops] = IBC_END_OF_ROUTE;
	be32_store(bytes + 28, crc32c(crc32c(0, bytes, 28), bytes + 32, route));
	be32_store(bytes + 32 + route, crc32c(crc32c(0, bytes, 1), bytes + 2, 26));
	return 32 + route + 4;
}

/* A pointer out of range, or a route that is too long: the part that has been used leads back. */
static void vs3_salvage(void **state)
{
	(void)state;
	static const struct {
		unsigned hops, pointer;
		bool reverse;
		enum ibc_verdict verdict;
		int used; /* -1: too many */
		unsigned first;
	} rows[] = {
	        {2, 0, false, IBC_WRONG_POINTER, 0, 0},
	        {2, 4, false, IBC_WRONG_POINTER, 2, 1},
	        {2, 63, false, IBC_WRONG_POINTER, 2, 1},
	        {2, 3, true, IBC_WRONG_POINTER, 0, 0},
	        {0, 2, false, IBC_WRONG_POINTER, 0, 0},
	        {63, 1, false, IBC_TOO_MANY_HOPS, 0, 0},
	        {63, 5, false, IBC_TOO_MANY_HOPS, 4, 1},
	        {63, 0, false, IBC_TOO_MANY_HOPS, 0, 0},
	        {255, 63, false, IBC_TOO_MANY_HOPS, 62, 1},
	        {63, 0, true, IBC_TOO_MANY_HOPS, -1, 0},
	        {63, 1, true, IBC_TOO_MANY_HOPS, 62, 2},
	        {63, 63, true, IBC_TOO_MANY_HOPS, 0, 0},
	        {255, 63, true, IBC_TOO_MANY_HOPS, -1, 0},
	        {63, 63, false, IBC_TOO_MANY_HOPS, 62, 1},
	};
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint8_t bytes[2 * IBC_MAX_BYTES];
		struct ibc_packet found;
		size_t length =
		        strange_packet(bytes, rows[i].hops, rows[i].reverse, rows[i].pointer);
		assert_int_equal(ibc_judge_header(bytes, length), rows[i].verdict);
		assert_int_equal(ibc_salvage(&found, bytes), rows[i].used >= 0);
		if (rows[i].used < 0)
			continue;
		assert_int_equal(found.transaction, sample().transaction);
		assert_int_equal(found.payload_bytes, 0);
		assert_int_equal(found.route.hops, rows[i].used);
		assert_int_equal(found.route.reverse, rows[i].reverse);
		assert_true(ibc_at_end(&found.route));
		if (rows[i].used > 0)
			assert_int_equal(found.route.ports[0], rows[i].first);
	}
}

/* A hop changes route, pointer and header check; the CRC from end to end stays. */
static void vs2_rewrite(void **state)
{
	(void)state;
	uint8_t bytes[IBC_MAX_BYTES], before[IBC_MAX_BYTES];
	struct ibc_packet packet = sample(), back;
	size_t length = ibc_encode(&packet, bytes, sizeof(bytes));
	memcpy(before, bytes, length);
	struct ibc_route route = packet.route;
	route.ports[0] = 9;
	route.pointer = 2;
	ibc_rewrite(bytes, &route);
	assert_int_equal(ibc_decode(&back, bytes, length), IBC_OK);
	assert_int_equal(back.route.ports[0], 9);
	assert_int_equal(back.route.pointer, 2);
	assert_memory_equal(before + 36, bytes + 36, length - 36);
	/* Turning round twice is nothing. */
	struct ibc_route there = ibc_turn_around(&route), again = ibc_turn_around(&there);
	assert_memory_equal(&again, &route, sizeof(route));
	assert_true(there.reverse);
	assert_int_equal(there.pointer, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(vs2_layout),  cmocka_unit_test(vs2_every_length),
	        cmocka_unit_test(vs2_damage),  cmocka_unit_test(vs2_verdicts),
	        cmocka_unit_test(vs2_rewrite), cmocka_unit_test(vs3_salvage),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
