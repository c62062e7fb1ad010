/* Each header against bytes written out by hand from the figures of IBTA volume 1 section 5.2:
 * every field has a value of its own, so that no two can be swapped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/prng.h"
#include "ib_sample.h"
#include "wire/ib_headers.h"

#define RANDOM_ROUNDS 2000

/* @h encodes to @hex, and any bytes decode and encode to themselves. */
#define CHECK(name, bytes, text, ...)                                                     \
	do {                                                                              \
		struct ib_##name h = __VA_ARGS__, d;                                      \
		uint8_t expected[64], out[64];                                            \
		memset(out, 0xa5, sizeof(out));                                           \
		assert_int_equal(ib_sample_hex(expected, sizeof(expected), text), bytes); \
		ib_##name##_encode(&h, out);                                              \
		assert_memory_equal(out, expected, bytes);                                \
		assert_int_equal(out[bytes], 0xa5);                                       \
		memset(&d, 0, sizeof(d));                                                 \
		ib_##name##_decode(&d, out);                                              \
		memset(out, 0, sizeof(out));                                              \
		ib_##name##_encode(&d, out);                                              \
		assert_memory_equal(out, expected, bytes);                                \
		struct prng prng;                                                         \
		prng_seed(&prng, bytes);                                                  \
		for (int round = 0; round < RANDOM_ROUNDS; round++) {                     \
			prng_fill(&prng, expected, bytes);                                \
			ib_##name##_decode(&d, expected);                                 \
			ib_##name##_encode(&d, out);                                      \
			assert_memory_equal(out, expected, bytes);                        \
		}                                                                         \
	} while (0)

static void ibta_7_7_lrh(void **state)
{
	(void)state;
	CHECK(lrh, IB_LRH_BYTES, "a15ebbcc97ffddee",
	      {.vl = 0xa,
	       .version = 1,
	       .sl = 5,
	       .resv2 = 3,
	       .lnh = IB_LNH_LOCAL,
	       .resv5 = 0x12,
	       .dlid = 0xbbcc,
	       .length_words = 0x7ff,
	       .slid = 0xddee});
}

static void ibta_5_3_rwh(void **state)
{
	(void)state;
	CHECK(rwh, IB_RWH_BYTES, "123486dd", {.resv16 = 0x1234, .ethertype = 0x86dd});
}

static void ibta_8_3_grh(void **state)
{
	(void)state;
	CHECK(grh, IB_GRH_BYTES,
	      "6ab12345"
	      "cdef1b40"
	      "000102030405060708090a0b0c0d0e0f"
	      "101112131415161718191a1b1c1d1e1f",
	      {.version = 6,
	       .traffic_class = 0xab,
	       .flow_label = 0x12345,
	       .payload_bytes = 0xcdef,
	       .next_header = 0x1b,
	       .hop_limit = 0x40,
	       .sgid = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
	       .dgid = {16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31}});
}

static void ibta_9_2_bth(void **state)
{
	(void)state;
	CHECK(bth, IB_BTH_BYTES, "0ab12345951122b3c2445566",
	      {.opcode = 0x0a,
	       .solicited = true,
	       .migreq = false,
	       .pad_bytes = 3,
	       .version = 1,
	       .pkey = 0x2345,
	       .fecn = true,
	       .becn = false,
	       .resv6 = 0x15,
	       .dest_qp = 0x1122b3,
	       .ack_request = true,
	       .resv7 = 0x42,
	       .psn = 0x445566});
	CHECK(bth, IB_BTH_BYTES, "004000004000000000000001",
	      {.migreq = true, .becn = true, .psn = 1});
}

static void ibta_9_3_extended_headers(void **state)
{
	(void)state;
	CHECK(rdeth, IB_RDETH_BYTES, "01abcdef", {.resv8 = 1, .ee_context = 0xabcdef});
	CHECK(deth, IB_DETH_BYTES, "8001000202fedcba",
	      {.qkey = 0x80010002, .resv8 = 2, .src_qp = 0xfedcba});
	CHECK(xrceth, IB_XRCETH_BYTES, "03123456", {.resv8 = 3, .srq = 0x123456});
	CHECK(reth, IB_RETH_BYTES,
	      "0011223344556677"
	      "8899aabb"
	      "ccddeeff",
	      {.addr = 0x0011223344556677, .rkey = 0x8899aabb, .length_bytes = 0xccddeeff});
	CHECK(atomiceth, IB_ATOMICETH_BYTES,
	      "0011223344556677"
	      "8899aabb"
	      "0102030405060708"
	      "1112131415161718",
	      {.addr = 0x0011223344556677,
	       .rkey = 0x8899aabb,
	       .swap_or_add = 0x0102030405060708,
	       .compare = 0x1112131415161718});
	CHECK(aeth, IB_AETH_BYTES, "63789abc", {.syndrome = 0x63, .msn = 0x789abc});
	CHECK(atomicack, IB_ATOMICACK_BYTES, "fedcba9876543210", {.original = 0xfedcba9876543210});
	CHECK(immdt, IB_IMMDT_BYTES, "deadbeef", {.data = 0xdeadbeef});
	CHECK(ieth, IB_IETH_BYTES, "cafe0102", {.rkey = 0xcafe0102});
	CHECK(cnp, IB_CNP_BYTES, "000102030405060708090a0b0c0d0e0f",
	      {.resv128 = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}});
}

static void ibta_9_7_5_aeth_syndromes(void **state)
{
	(void)state;
	static const struct {
		uint8_t syndrome;
		enum ib_aeth_kind kind;
		uint8_t value;
	} rows[] = {
	        {0x00, IB_AETH_ACK, 0},
	        {0x1f, IB_AETH_ACK, IB_AETH_NO_CREDITS},
	        {0x20, IB_AETH_RNR_NAK, 0},
	        {0x3f, IB_AETH_RNR_NAK, 31},
	        {0x40, IB_AETH_RESERVED, 0},
	        {0x60, IB_AETH_NAK, IB_NAK_PSN_SEQUENCE_ERROR},
	        {0x61, IB_AETH_NAK, IB_NAK_INVALID_REQUEST},
	        {0x62, IB_AETH_NAK, IB_NAK_REMOTE_ACCESS_ERROR},
	        {0x63, IB_AETH_NAK, IB_NAK_REMOTE_OPERATIONAL_ERROR},
	        {0x64, IB_AETH_NAK, IB_NAK_INVALID_RD_REQUEST},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(ib_aeth_kind(rows[i].syndrome), rows[i].kind);
		assert_int_equal(ib_aeth_value(rows[i].syndrome), rows[i].value);
		assert_int_equal(ib_aeth_syndrome(rows[i].kind, rows[i].value), rows[i].syndrome);
		assert_int_equal(ib_aeth_kind(rows[i].syndrome | 0x80), IB_AETH_RESERVED);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(ibta_7_7_lrh),
	        cmocka_unit_test(ibta_5_3_rwh),
	        cmocka_unit_test(ibta_8_3_grh),
	        cmocka_unit_test(ibta_9_2_bth),
	        cmocka_unit_test(ibta_9_3_extended_headers),
	        cmocka_unit_test(ibta_9_7_5_aeth_syndromes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
