/* Whole packets: the opcode table against the specification's, every truncation, every verdict. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/crc.h"
#include "ib_sample.h"
#include "wire/be.h"
#include "wire/icrc.h"

/* IBTA volume 1 section 9.2, written out: what follows the BTH of each opcode, by initials in wire
 * order. R RDETH, D DETH, X XRCETH, W RETH, A AtomicETH, K AETH, T AtomicAckETH, I ImmDt, V IETH, C
 * CNP; small letters: q request, s response, n neither; f first, m middle, l last, o only; p has a
 * payload. */
static const struct {
	uint8_t opcode;
	const char *is;
} table[] = {
        {0x00, "qfp"},    {0x01, "qmp"},     {0x02, "qlp"},   {0x03, "Iqlp"},   {0x04, "qop"},
        {0x05, "Iqop"},   {0x06, "Wqfp"},    {0x07, "qmp"},   {0x08, "qlp"},    {0x09, "Iqlp"},
        {0x0a, "Wqop"},   {0x0b, "WIqop"},   {0x0c, "Wqo"},   {0x0d, "Ksfp"},   {0x0e, "smp"},
        {0x0f, "Kslp"},   {0x10, "Ksop"},    {0x11, "Kso"},   {0x12, "KTso"},   {0x13, "Aqo"},
        {0x14, "Aqo"},    {0x16, "Vqlp"},    {0x17, "Vqop"},  {0x20, "qfp"},    {0x21, "qmp"},
        {0x22, "qlp"},    {0x23, "Iqlp"},    {0x24, "qop"},   {0x25, "Iqop"},   {0x26, "Wqfp"},
        {0x27, "qmp"},    {0x28, "qlp"},     {0x29, "Iqlp"},  {0x2a, "Wqop"},   {0x2b, "WIqop"},
        {0x40, "RDqfp"},  {0x41, "RDqmp"},   {0x42, "RDqlp"}, {0x43, "RDIqlp"}, {0x44, "RDqop"},
        {0x45, "RDIqop"}, {0x46, "RDWqfp"},  {0x47, "RDqmp"}, {0x48, "RDqlp"},  {0x49, "RDIqlp"},
        {0x4a, "RDWqop"}, {0x4b, "RDWIqop"}, {0x4c, "RDWqo"}, {0x4d, "RKsfp"},  {0x4e, "Rsmp"},
        {0x4f, "RKslp"},  {0x50, "RKsop"},   {0x51, "RKso"},  {0x52, "RKTso"},  {0x53, "RDAqo"},
        {0x54, "RDAqo"},  {0x55, "RDqo"},    {0x64, "Dqop"},  {0x65, "DIqop"},  {0x81, "Cno"},
        {0xa0, "Xqfp"},   {0xa1, "Xqmp"},    {0xa2, "Xqlp"},  {0xa3, "XIqlp"},  {0xa4, "Xqop"},
        {0xa5, "XIqop"},  {0xa6, "XWqfp"},   {0xa7, "Xqmp"},  {0xa8, "Xqlp"},   {0xa9, "XIqlp"},
        {0xaa, "XWqop"},  {0xab, "XWIqop"},  {0xac, "XWqo"},  {0xad, "Ksfp"},   {0xae, "smp"},
        {0xaf, "Kslp"},   {0xb0, "Ksop"},    {0xb1, "Kso"},   {0xb2, "KTso"},   {0xb3, "XAqo"},
        {0xb4, "XAqo"},   {0xb6, "XVqlp"},   {0xb7, "XVqop"},
};

static void ibta_9_2_opcode_table(void **state)
{
	(void)state;
	static const struct {
		char letter;
		uint32_t header;
		size_t bytes;
	} headers[] = {{'R', IB_HAS_RDETH, 4},      {'D', IB_HAS_DETH, 8},
	               {'X', IB_HAS_XRCETH, 4},     {'W', IB_HAS_RETH, 16},
	               {'A', IB_HAS_ATOMICETH, 28}, {'K', IB_HAS_AETH, 4},
	               {'T', IB_HAS_ATOMICACK, 8},  {'I', IB_HAS_IMMDT, 4},
	               {'V', IB_HAS_IETH, 4},       {'C', IB_HAS_CNP, 16}};
	size_t row = 0;
	for (unsigned opcode = 0; opcode < 256; opcode++) {
		const struct ib_opcode *op = ib_opcode((uint8_t)opcode);
		if (row == sizeof(table) / sizeof(table[0]) || table[row].opcode != opcode) {
			assert_null(op);
			continue;
		}
		const char *is = table[row++].is;
		assert_non_null(op);
		char letters[16] = "";
		size_t bytes = 0, at = 0;
		for (size_t h = 0; h < sizeof(headers) / sizeof(headers[0]); h++) {
			if (op->headers & headers[h].header) {
				letters[at++] = headers[h].letter;
				bytes += headers[h].bytes;
			}
		}
		letters[at++] = "qsn"[op->role];
		letters[at++] = "fmlo"[op->part];
		if (op->payload)
			letters[at++] = 'p';
		assert_string_equal(letters, is);
		assert_int_equal(op->header_bytes, bytes);
		assert_int_equal(op->transport, opcode & 0xe0);
	}
	assert_int_equal(row, sizeof(table) / sizeof(table[0]));
}

static void ibta_9_7_payload_lengths(void **state)
{
	(void)state;
	static const struct {
		uint8_t opcode;
		size_t bytes;
		bool fits;
	} rows[] = {
	        {IB_OP_SEND_FIRST, 256, true},
	        {IB_OP_SEND_FIRST, 255, false},
	        {IB_OP_SEND_FIRST, 257, false},
	        {IB_OP_SEND_MIDDLE, 256, true},
	        {IB_OP_SEND_MIDDLE, 0, false},
	        {IB_OP_SEND_LAST, 0, false},
	        {IB_OP_SEND_LAST, 1, true},
	        {IB_OP_SEND_LAST, 256, true},
	        {IB_OP_SEND_LAST, 257, false},
	        {IB_OP_SEND_ONLY, 0, true},
	        {IB_OP_SEND_ONLY, 256, true},
	        {IB_OP_SEND_ONLY, 257, false},
	        {IB_OP_READ_REQUEST, 0, true},
	        {IB_OP_READ_REQUEST, 1, false},
	        {IB_OP_ACK, 0, true},
	        {IB_OP_READ_RESPONSE_FIRST, 252, false},
	        {IB_OP_READ_RESPONSE_ONLY, 0, true},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(ib_payload_fits(ib_opcode(rows[i].opcode), rows[i].bytes, 256),
		                 rows[i].fits);
}

/* In memory of exactly its size, so that the address sanitizer sees a read past the end. */
static enum ib_verdict transport_decode_exact(const uint8_t *bytes, size_t count)
{
	uint8_t *exact = malloc(count ? count : 1);
	struct ib_packet packet;
	memcpy(exact, bytes, count);
	enum ib_verdict verdict = ib_transport_decode(&packet, exact, count);
	if (verdict == IB_OK) {
		assert_true(packet.payload >= exact && packet.payload <= exact + count);
		assert_true(packet.payload_bytes <= (size_t)(exact + count - packet.payload));
	}
	free(exact);
	return verdict;
}

static void ibta_9_6_every_truncation_of_every_opcode(void **state)
{
	(void)state;
	struct prng prng;
	uint8_t payload[32] = {1, 2, 3}, bytes[128];
	prng_seed(&prng, 9);
	for (int opcode = ib_sample_next_opcode(-1); opcode >= 0;
	     opcode = ib_sample_next_opcode(opcode)) {
		struct ib_packet packet;
		ib_sample_packet(&packet, &prng, (uint8_t)opcode, payload, 29);
		size_t n = ib_transport_encode(&packet, bytes, sizeof(bytes));
		size_t headers = IB_BTH_BYTES + packet.op->header_bytes;
		assert_int_equal(n, headers + (packet.op->payload ? 32 : 0));
		assert_int_equal(transport_decode_exact(bytes, n), IB_OK);
		for (size_t cut = 0; cut < n; cut++) {
			enum ib_verdict expected = cut < IB_BTH_BYTES              ? IB_TRUNCATED
			                           : cut % 4 != 0 || cut < headers ? IB_BAD_LENGTH
			                           : cut - headers < packet.bth.pad_bytes
			                                   ? IB_BAD_PAD
			                                   : IB_OK;
			assert_int_equal(transport_decode_exact(bytes, cut), expected);
		}
		for (size_t capacity = 0; capacity < n; capacity++)
			assert_int_equal(ib_transport_encode(&packet, bytes, capacity), 0);
	}
}

static void ibta_9_6_transport_verdicts(void **state)
{
	(void)state;
	struct prng prng;
	struct ib_packet packet;
	uint8_t payload[8] = {0}, bytes[64];
	prng_seed(&prng, 10);
	ib_sample_packet(&packet, &prng, IB_RC + IB_OP_SEND_ONLY, payload, 8);
	size_t n = ib_transport_encode(&packet, bytes, sizeof(bytes));

	bytes[1] |= 1; /* transport version 1 */
	assert_int_equal(ib_transport_decode(&packet, bytes, n), IB_BAD_VERSION);
	bytes[1] &= 0xf0;
	for (unsigned opcode = 0; opcode < 256; opcode++) {
		bytes[0] = (uint8_t)opcode;
		bool bad = ib_transport_decode(&packet, bytes, n) == IB_BAD_OPCODE;
		assert_int_equal(bad, ib_opcode((uint8_t)opcode) == NULL);
		assert_int_equal(packet.bth.opcode, opcode);
	}
	/* A payload, or a pad count, where none may be. */
	ib_sample_packet(&packet, &prng, IB_RC + IB_OP_ACK, payload, 8);
	n = ib_transport_encode(&packet, bytes, sizeof(bytes));
	memset(bytes + n, 0, 4);
	assert_int_equal(ib_transport_decode(&packet, bytes, n + 4), IB_BAD_LENGTH);
	bytes[1] |= 0x10;
	assert_int_equal(ib_transport_decode(&packet, bytes, n), IB_BAD_PAD);
	/* More padding than payload cannot be with 4 bytes; with none it can. */
	ib_sample_packet(&packet, &prng, IB_RC + IB_OP_SEND_ONLY, payload, 0);
	n = ib_transport_encode(&packet, bytes, sizeof(bytes));
	bytes[1] |= 0x30;
	assert_int_equal(ib_transport_decode(&packet, bytes, n), IB_BAD_PAD);
	assert_int_equal(ib_transport_decode(&packet, bytes, n + 4), IB_OK);
	assert_int_equal(packet.payload_bytes, 1);
	/* Not sent either. */
	ib_sample_packet(&packet, &prng, IB_RC + IB_OP_ACK, payload, 8);
	packet.payload_bytes = 1;
	assert_int_equal(ib_transport_encode(&packet, bytes, sizeof(bytes)), 0);
	packet.bth.opcode = IB_RC + IB_OP_SEND_ONLY;
	packet.payload_bytes = SIZE_MAX;
	assert_int_equal(ib_transport_encode(&packet, bytes, sizeof(bytes)), 0);
	packet.lrh.lnh = IB_LNH_LOCAL;
	assert_int_equal(ib_link_encode(&packet, bytes, sizeof(bytes)), 0);
}

static enum ib_verdict link_decode_exact(struct ib_packet *packet, const uint8_t *bytes,
                                         size_t count)
{
	uint8_t *exact = malloc(count ? count : 1);
	memcpy(exact, bytes, count);
	enum ib_verdict verdict = ib_link_decode(packet, exact, count);
	free(exact);
	return verdict;
}

static void ibta_7_7_every_truncation_on_a_link(void **state)
{
	(void)state;
	struct prng prng;
	uint8_t payload[16] = {7}, bytes[256];
	prng_seed(&prng, 11);
	for (uint8_t lnh = IB_LNH_RAW; lnh <= IB_LNH_GLOBAL; lnh++) {
		struct ib_packet packet;
		ib_sample_packet(&packet, &prng, IB_RD + IB_OP_SEND_ONLY_IMM, payload, 16);
		packet.lrh.lnh = lnh;
		packet.rwh.ethertype = 0x0800;
		size_t n = ib_link_encode(&packet, bytes, sizeof(bytes));
		assert_int_not_equal(n, 0);
		for (size_t capacity = 0; capacity < n; capacity++)
			assert_int_equal(ib_link_encode(&packet, bytes, capacity), 0);
		assert_int_equal(link_decode_exact(&packet, bytes, n), IB_OK);
		for (size_t cut = 0; cut < n; cut++)
			assert_int_equal(link_decode_exact(&packet, bytes, cut), IB_TRUNCATED);
		assert_int_equal(link_decode_exact(&packet, bytes, n + 1), IB_BAD_LINK_LENGTH);
		/* Truncated with lengths and a VCRC that agree. */
		for (uint16_t words = 2; words * 4u < n - 2; words++) {
			static const size_t shortest[] = {3, 2, 6, 16};
			uint8_t cut[256];
			memcpy(cut, bytes, sizeof(cut));
			size_t m = words * 4u;
			be16_store(cut + 4, words);
			if (lnh == IB_LNH_GLOBAL && m >= 48)
				be16_store(cut + 12, (uint16_t)(m - 48));
			vcrc_put(cut + m, crc16_vcrc(0, cut, m));
			assert_int_equal(link_decode_exact(&packet, cut, m + 2),
			                 words < shortest[lnh] ? IB_BAD_LINK_LENGTH
			                 : lnh < IB_LNH_LOCAL  ? IB_OK
			                                       : IB_BAD_ICRC);
		}
	}
}

static void ibta_7_7_and_8_3_link_verdicts(void **state)
{
	(void)state;
	static const struct {
		size_t at;
		uint8_t flip;
		enum ib_verdict verdict;
	} rows[] = {
	        {0, 0x01, IB_BAD_LINK_VERSION}, /* LVer */
	        {0, 0x10, IB_OK},               /* VL: only the VCRC covers it */
	        {5, 0x01, IB_BAD_LINK_LENGTH},  /* PktLen, made one less */
	        {8, 0x10, IB_BAD_LINK_VERSION}, /* IPVer 7 */
	        {13, 0x01, IB_BAD_LINK_LENGTH}, /* PayLen */
	        {14, 0x01, IB_BAD_NEXT_HEADER},
	        {15, 0x80, IB_OK},       /* hop limit */
	        {16, 0x01, IB_BAD_ICRC}, /* SGID */
	        {48, 0x01, IB_BAD_ICRC}, /* opcode */
	        {52, 0xff, IB_OK},       /* resv8a */
	};
	struct prng prng;
	struct ib_packet packet;
	uint8_t payload[4] = {0}, bytes[128];
	prng_seed(&prng, 12);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		ib_sample_packet(&packet, &prng, IB_UD + IB_OP_SEND_ONLY, payload, 4);
		packet.lrh.lnh = IB_LNH_GLOBAL;
		size_t n = ib_link_encode(&packet, bytes, sizeof(bytes));
		assert_int_equal(bytes[5] & 1, 1);
		bytes[rows[i].at] ^= rows[i].flip;
		if (rows[i].verdict != IB_BAD_LINK_VERSION && rows[i].at != 5)
			assert_int_equal(ib_link_decode(&packet, bytes, n), IB_BAD_VCRC);
		vcrc_put(bytes + n - 2, crc16_vcrc(0, bytes, n - 2));
		assert_int_equal(ib_link_decode(&packet, bytes, n), rows[i].verdict);
	}
}

static void ibta_5_3_raw_packets(void **state)
{
	(void)state;
	struct ib_packet packet = {.lrh = {.lnh = IB_LNH_RAW, .dlid = 5},
	                           .rwh = {.ethertype = 0x88b5}};
	uint8_t payload[12] = "raw packets", bytes[64];
	packet.payload = payload;
	packet.payload_bytes = sizeof(payload);
	size_t n = ib_link_encode(&packet, bytes, sizeof(bytes));
	assert_int_equal(n, 8 + 4 + 12 + 2);
	struct ib_packet back;
	assert_int_equal(ib_link_decode(&back, bytes, n), IB_OK);
	assert_int_equal(back.headers, IB_HAS_LRH | IB_HAS_RWH);
	assert_null(back.op);
	assert_int_equal(back.rwh.ethertype, 0x88b5);
	assert_int_equal(back.payload_bytes, 12);
	assert_memory_equal(back.payload, payload, 12);

	packet.lrh.lnh = IB_LNH_IPV6;
	assert_int_equal(ib_link_encode(&packet, bytes, sizeof(bytes)), 8 + 12 + 2);
	packet.payload_bytes = 11; /* the LRH counts words */
	assert_int_equal(ib_link_encode(&packet, bytes, sizeof(bytes)), 0);
	packet.payload_bytes = 0;
	assert_int_equal(ib_link_encode(&packet, bytes, sizeof(bytes)), 10);
	packet.payload_bytes = SIZE_MAX - 3; /* would wrap to nothing */
	packet.lrh.lnh = IB_LNH_RAW;
	assert_int_equal(ib_link_encode(&packet, bytes, sizeof(bytes)), 0);
}

/* The longest packet of a link: 11 bits of words. */
static void ibta_7_7_longest_packet(void **state)
{
	(void)state;
	static uint8_t payload[IB_MAX_LINK_BYTES], bytes[IB_MAX_LINK_BYTES + 64];
	struct ib_packet packet = {.lrh = {.lnh = IB_LNH_LOCAL},
	                           .bth = {.opcode = IB_RC + IB_OP_SEND_ONLY}};
	packet.payload = payload;
	packet.payload_bytes = 2047 * 4 - 8 - 12 - 4;
	size_t n = ib_link_encode(&packet, bytes, sizeof(bytes));
	assert_int_equal(n, IB_MAX_LINK_BYTES);
	assert_int_equal(ib_link_decode(&packet, bytes, n), IB_OK);
	packet.payload_bytes++;
	assert_int_equal(ib_link_encode(&packet, bytes, sizeof(bytes)), 0);
}

static void verdicts_have_words(void **state)
{
	(void)state;
	for (enum ib_verdict v = IB_OK; v <= IB_VERDICT_COUNT; v++)
		assert_non_null(ib_verdict_str(v));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(ibta_9_2_opcode_table),
	        cmocka_unit_test(ibta_9_7_payload_lengths),
	        cmocka_unit_test(ibta_9_6_every_truncation_of_every_opcode),
	        cmocka_unit_test(ibta_9_6_transport_verdicts),
	        cmocka_unit_test(ibta_7_7_every_truncation_on_a_link),
	        cmocka_unit_test(ibta_7_7_and_8_3_link_verdicts),
	        cmocka_unit_test(ibta_5_3_raw_packets),
	        cmocka_unit_test(ibta_7_7_longest_packet),
	        cmocka_unit_test(verdicts_have_words),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
