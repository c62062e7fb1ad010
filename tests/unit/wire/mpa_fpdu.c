/* FPDUs both ways: RFC 5044 section 4. */
#include "wire/mpa_fpdu.h"
#include "base/crc.h"
#include "base/prng.h"
#include "iwarp_octets.h"
#include "mpa_gather.h"
#include "wire/be.h"

/* FPDUs on a connection with Linux 6.1 siw, CRCs on: sent by siw, or sent to it and taken. */
static const struct {
	const char *what;
	const char *hex;
} siw[] = {
        {"Read Request from siw", "002e4141000000000000000100000001000000005ac26400000000552aab8000"
                                  "00000064000012340000000000001000abcd22a3"},
        {"Send from siw",
         "00224143000000000000000000000001000000000000000000000000000000000000000084609a12"},
        {"second Send from siw",
         "002241430000000000000000000000020000000000000000000000000000000000000000b3e68405"},
        {"Terminate from siw", "00164147000000000000000200000001000000000202000075d367ed"},
        {"Terminate with headers from siw", "002a41470000000000000002000000010000000021010300001041"
                                            "4300000000000000070000000100000000e57bfc76"},
        {"zero-length Write taken by siw", "000ec140000000010000000000000000ebd34c5f"},
        {"Send taken by siw",
         "0022414300000000000000000000000100000000000000000000100000001234000000642c483c56"},
};

static void rfc3720_b4_crc_examples(void **state)
{
	static const struct {
		const char *what;
		uint8_t first, step;
		uint32_t on_wire; /* as the octets come */
	} rows[] = {
	        {"32 octets of zeros", 0, 0, 0xaa36918a},
	        {"32 octets of ones", 0xff, 0, 0x43aba862},
	        {"32 octets of incrementing", 0, 1, 0x4e79dd46},
	        {"32 octets of decrementing", 31, 0xff, 0x5cdb3f11},
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
		uint8_t data[32];
		for (size_t k = 0; k < 32; k++)
			data[k] = (uint8_t)(rows[i].first + k * rows[i].step);
		assert_int_equal(crc32c(0, data, 32), __builtin_bswap32(rows[i].on_wire));
	}
}

static void rfc5044_4_fpdus_of_siw(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_COUNT(siw); i++) {
		print_message("%s\n", siw[i].what);
		uint8_t wire[128];
		uint8_t out[128];
		uint8_t buffer[128];
		size_t bytes = octets(siw[i].hex, wire);
		size_t ulpdu_bytes = be16_load(wire);
		struct mpa_piece piece = {wire + 2, ulpdu_bytes};
		struct mpa_sender s = {.crc = true};
		assert_int_equal(mpa_fpdu_encode(&s, &piece, 1, out, sizeof(out)), bytes);
		assert_memory_equal(out, wire, bytes);
		assert_int_equal(s.position, bytes);

		struct mpa_gather r;
		struct mpa_ulpdu ulpdu;
		size_t used;
		mpa_gather_init(&r, buffer, sizeof(buffer), false, true);
		assert_int_equal(mpa_gather_feed(&r, wire, bytes, &used, &ulpdu), MPA_STREAM_ULPDU);
		assert_int_equal(used, bytes);
		assert_int_equal(ulpdu.bytes, ulpdu_bytes);
		assert_memory_equal(ulpdu.data, wire + 2, ulpdu_bytes);
	}
}

/* The slow, obvious way: one octet at a time, a marker wherever the position says so. */
static size_t model_fpdu(uint64_t position, bool markers, bool crc, const uint8_t *ulpdu,
                         size_t bytes, uint8_t *out)
{
	static uint8_t content[MPA_MAX_FPDU_BYTES];
	size_t content_bytes = 0;
	content[content_bytes++] = (uint8_t)(bytes >> 8);
	content[content_bytes++] = (uint8_t)bytes;
	for (size_t i = 0; i < bytes; i++)
		content[content_bytes++] = ulpdu[i];
	while (content_bytes % 4 != 0)
		content[content_bytes++] = 0;
	size_t n = 0;
	size_t length_at = SIZE_MAX;
	for (size_t i = 0; i <= content_bytes; i++) { /* one more: the place of the CRC */
		if (markers && (position + n) % 512 == 0) {
			size_t back = length_at == SIZE_MAX ? 0 : n - length_at;
			out[n++] = 0;
			out[n++] = 0;
			out[n++] = (uint8_t)(back >> 8);
			out[n++] = (uint8_t)back;
		}
		if (length_at == SIZE_MAX)
			length_at = n;
		if (i < content_bytes)
			out[n++] = content[i];
	}
	uint32_t sum = crc ? crc32c(0, out, n) : 0;
	for (int i = 0; i < 4; i++)
		out[n++] = (uint8_t)(sum >> (8 * i));
	return n;
}

static void rfc5044_4_3_markers_at_every_phase(void **state)
{
	static uint8_t ulpdu[2100];
	static uint8_t out[4096];
	static uint8_t model[4096];
	struct prng prng;
	(void)state;
	prng_seed(&prng, 1);
	prng_fill(&prng, ulpdu, sizeof(ulpdu));
	for (uint64_t phase = 0; phase < 512; phase += 4) {
		for (size_t bytes = 0; bytes < 2100;
		     bytes += bytes < 40 ? 1 : 1 + prng_below(&prng, 97)) {
			struct mpa_sender s = {
			        .position = 512 * 9 + phase, .markers = true, .crc = true};
			size_t third = bytes / 3;
			struct mpa_piece pieces[] = {
			        {ulpdu, third}, {NULL, 0}, {ulpdu + third, bytes - third}};
			size_t want = model_fpdu(s.position, true, true, ulpdu, bytes, model);
			assert_int_equal(mpa_fpdu_bytes(&s, bytes), want);
			assert_int_equal(mpa_fpdu_encode(&s, pieces, 3, out, want - 1), 0);
			assert_int_equal(s.position, 512 * 9 + phase);
			assert_int_equal(mpa_fpdu_encode(&s, pieces, 3, out, sizeof(out)), want);
			assert_memory_equal(out, model, want);
			assert_int_equal(s.position, 512 * 9 + phase + want);
		}
	}
}

/* Written out by hand: where the markers of RFC 5044 section 4.3 fall and what they say. */
static void rfc5044_4_3_fpduptr(void **state)
{
	static const uint8_t ulpdu[1200];
	static uint8_t out[2048];
	struct mpa_piece piece = {ulpdu, 1200};
	(void)state;
	struct mpa_sender s = {.markers = true};
	size_t bytes = mpa_fpdu_encode(&s, &piece, 1, out, sizeof(out));
	assert_int_equal(bytes, 4 + 2 + 1200 + 2 + 4 + 2 * 4);
	assert_int_equal(be32_load(out),
	                 0); /* the stream begins with a marker, right before the length */
	assert_int_equal(be16_load(out + 4), 1200); /* ULPDU_Length */
	assert_int_equal(be32_load(out + 512), 508);
	assert_int_equal(be32_load(out + 1024), 1020);

	/* An FPDU that ends at a multiple of 512: the marker there belongs to the next one. */
	s.position = 512 - 28;
	piece.bytes = 22;
	assert_int_equal(mpa_fpdu_encode(&s, &piece, 1, out, sizeof(out)), 28);
	assert_int_equal(mpa_fpdu_encode(&s, &piece, 1, out, sizeof(out)), 32);
	assert_int_equal(be32_load(out), 0);

	/* A marker between the ULPDU and the CRC belongs to this one and is covered. */
	s = (struct mpa_sender){.position = 512 - 24, .markers = true, .crc = true};
	assert_int_equal(mpa_fpdu_encode(&s, &piece, 1, out, sizeof(out)), 32);
	assert_int_equal(be32_load(out + 24), 24);
	uint32_t sum = crc32c(0, out, 28);
	assert_int_equal(__builtin_bswap32(be32_load(out + 28)), sum);
}

static void rfc5044_4_4_crc_off_is_zero_and_not_looked_at(void **state)
{
	uint8_t out[16];
	uint8_t buffer[16];
	struct mpa_sender s = {0};
	struct mpa_piece piece = {"abc", 3};
	(void)state;
	assert_int_equal(mpa_fpdu_encode(&s, &piece, 1, out, sizeof(out)), 12);
	assert_memory_equal(out, "\0\3abc\0\0\0\0\0\0\0", 12);
	memset(out + 5, 0xee, 7);
	for (int whole = 0; whole < 2; whole++) {
		struct mpa_gather r;
		struct mpa_ulpdu ulpdu;
		size_t used;
		mpa_gather_init(&r, buffer, sizeof(buffer), false, false);
		size_t cut = whole ? 0 : 4;
		if (cut > 0)
			assert_int_equal(mpa_gather_feed(&r, out, cut, &used, &ulpdu),
			                 MPA_STREAM_MORE);
		assert_int_equal(mpa_gather_feed(&r, out + cut, 12 - cut, &used, &ulpdu),
		                 MPA_STREAM_ULPDU);
		assert_int_equal(ulpdu.bytes, 3);
		assert_memory_equal(ulpdu.data, "abc", 3);
	}
}

static void rfc5044_4_longest_ulpdus(void **state)
{
	static uint8_t ulpdu[MPA_MAX_ULPDU_BYTES + 1];
	static uint8_t out[MPA_MAX_FPDU_BYTES];
	static uint8_t buffer[MPA_MAX_ULPDU_BYTES];
	(void)state;
	for (int markers = 0; markers < 2; markers++) {
		size_t limit = markers ? MPA_MAX_ULPDU_MARKED_BYTES : MPA_MAX_ULPDU_BYTES;
		for (uint64_t phase = 0; phase < (markers ? 512 : 4); phase += 4) {
			struct mpa_sender s = {.position = phase, .markers = markers, .crc = true};
			struct mpa_piece pieces[] = {{ulpdu, 1}, {ulpdu, limit}};
			assert_int_equal(mpa_fpdu_encode(&s, pieces, 2, out, sizeof(out)), 0);
			size_t bytes = mpa_fpdu_encode(&s, pieces + 1, 1, out, sizeof(out));
			assert_in_range(bytes, limit, MPA_MAX_FPDU_BYTES);
			struct mpa_gather r;
			struct mpa_ulpdu got;
			size_t used;
			mpa_gather_init(&r, buffer, sizeof(buffer), markers, true);
			r.r.position = phase;
			assert_int_equal(mpa_gather_feed(&r, out, bytes, &used, &got),
			                 MPA_STREAM_ULPDU);
			assert_int_equal(got.bytes, limit);
		}
	}
}

static void rfc5044_4_5_mulpdu(void **state)
{
	(void)state;
	/* EMSS - (6 + EMSS mod 4), less four octets for each 512 or part of it with markers. */
	assert_int_equal(mpa_mulpdu(1460, false), 1454);
	assert_int_equal(mpa_mulpdu(1448, false),
	                 1442); /* what siw fills on an Ethernet with timestamps */
	assert_int_equal(mpa_mulpdu(1461, false), 1454);
	assert_int_equal(mpa_mulpdu(1460, true), 1442);
	assert_int_equal(mpa_mulpdu(1024, true),
	                 1010); /* two markers at most, whatever their phase */
	assert_int_equal(mpa_mulpdu(1028, true), 1010);
	assert_int_equal(mpa_mulpdu(6, false), 0);
	assert_int_equal(mpa_mulpdu(0, true), 0);
	assert_int_equal(mpa_mulpdu(1 << 20, false), MPA_MAX_ULPDU_BYTES);
	assert_int_equal(mpa_mulpdu(1 << 20, true), MPA_MAX_ULPDU_MARKED_BYTES);
	for (size_t emss = 20; emss < 3000; emss += 7) {
		for (uint64_t position = 0; position < 512; position += 4) {
			struct mpa_sender s = {.position = position, .markers = true};
			assert_true(mpa_fpdu_bytes(&s, mpa_mulpdu(emss, true)) <= emss);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(rfc3720_b4_crc_examples),
	        cmocka_unit_test(rfc5044_4_fpdus_of_siw),
	        cmocka_unit_test(rfc5044_4_3_markers_at_every_phase),
	        cmocka_unit_test(rfc5044_4_3_fpduptr),
	        cmocka_unit_test(rfc5044_4_4_crc_off_is_zero_and_not_looked_at),
	        cmocka_unit_test(rfc5044_4_longest_ulpdus),
	        cmocka_unit_test(rfc5044_4_5_mulpdu),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
