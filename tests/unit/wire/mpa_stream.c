/* Finding FPDUs in a stream: RFC 5044 sections 4 and 8. */
#include "base/crc.h"
#include "base/prng.h"
#include "iwarp_octets.h"
#include "mpa_gather.h"
#include "wire/be.h"

/* One marked FPDU at the start of a stream, with two markers and a pad: 4 + 2 + 601 + 1 + 4 + 4
 * octets. */
#define SAMPLE_ULPDU_BYTES 601
#define SAMPLE_BYTES       616

static size_t sample(bool markers, uint8_t *out, size_t out_bytes)
{
	uint8_t ulpdu[SAMPLE_ULPDU_BYTES];
	struct prng prng;
	prng_seed(&prng, 7);
	prng_fill(&prng, ulpdu, sizeof(ulpdu));
	struct mpa_sender s = {.markers = markers, .crc = true};
	struct mpa_piece piece = {ulpdu, sizeof(ulpdu)};
	return mpa_fpdu_encode(&s, &piece, 1, out, out_bytes);
}

/* What becomes of @in, and then, if it is not decided, of a long run of zeros behind it. */
static enum mpa_stream_verdict fate(const uint8_t *in, size_t in_bytes, bool markers)
{
	static const uint8_t zeros[MPA_MAX_FPDU_BYTES];
	static uint8_t buffer[MPA_MAX_ULPDU_BYTES];
	struct mpa_gather r;
	struct mpa_ulpdu ulpdu;
	size_t used;
	mpa_gather_init(&r, buffer, sizeof(buffer), markers, true);
	enum mpa_stream_verdict verdict = mpa_gather_feed(&r, in, in_bytes, &used, &ulpdu);
	if (verdict == MPA_STREAM_MORE) {
		assert_int_equal(used, in_bytes);
		verdict = mpa_gather_feed(&r, zeros, sizeof(zeros), &used, &ulpdu);
	}
	return verdict;
}

static void rfc5044_8_every_flipped_bit_is_caught(void **state)
{
	(void)state;
	for (int markers = 0; markers < 2; markers++) {
		uint8_t fpdu[SAMPLE_BYTES];
		size_t bytes = sample(markers, fpdu, sizeof(fpdu));
		assert_int_equal(bytes, markers ? SAMPLE_BYTES : SAMPLE_BYTES - 8);
		assert_int_equal(fate(fpdu, bytes, markers), MPA_STREAM_ULPDU);
		for (size_t bit = 0; bit < bytes * 8; bit++) {
			fpdu[bit / 8] ^= (uint8_t)(1 << bit % 8);
			enum mpa_stream_verdict verdict = fate(fpdu, bytes, markers);
			if (verdict == MPA_STREAM_ULPDU || verdict == MPA_STREAM_MORE)
				fail_msg("bit %zu of octet %zu flipped: verdict %d", bit % 8,
				         bit / 8, verdict);
			fpdu[bit / 8] ^= (uint8_t)(1 << bit % 8);
		}
	}
}

static void rfc5044_8_every_truncation_waits(void **state)
{
	(void)state;
	for (int markers = 0; markers < 2; markers++) {
		uint8_t fpdu[SAMPLE_BYTES];
		size_t bytes = sample(markers, fpdu, sizeof(fpdu));
		for (size_t cut = 0; cut < bytes; cut++) {
			uint8_t buffer[SAMPLE_ULPDU_BYTES];
			uint8_t *in = exact_copy(fpdu, cut);
			struct mpa_gather r;
			struct mpa_ulpdu ulpdu;
			size_t used;
			mpa_gather_init(&r, buffer, sizeof(buffer), markers, true);
			assert_int_equal(mpa_gather_feed(&r, in, cut, &used, &ulpdu),
			                 MPA_STREAM_MORE);
			assert_int_equal(used, cut);
			free(in);
			in = exact_copy(fpdu + cut, bytes - cut);
			assert_int_equal(mpa_gather_feed(&r, in, bytes - cut, &used, &ulpdu),
			                 MPA_STREAM_ULPDU);
			assert_int_equal(used, bytes - cut);
			assert_int_equal(ulpdu.bytes, SAMPLE_ULPDU_BYTES);
			free(in);
		}
	}
}

/* Make the CRC of @fpdu right again, so that something else must be found. */
static void mend(uint8_t *fpdu, size_t bytes)
{
	uint32_t sum = crc32c(0, fpdu, bytes - 4);
	for (int i = 0; i < 4; i++)
		fpdu[bytes - 4 + (size_t)i] = (uint8_t)(sum >> (8 * i));
}

static void rfc5044_4_3_markers_are_judged(void **state)
{
	static const struct {
		const char *clause;
		size_t at;
		uint16_t value;
		enum mpa_stream_verdict verdict;
	} rows[] = {
	        {"FPDUPTR before the length is 0", 2, 4, MPA_STREAM_BAD_MARKER},
	        {"FPDUPTR before the length: the low two bits count as zero", 2, 3,
	         MPA_STREAM_ULPDU},
	        {"the reserved half is not looked at", 0, 0xffff, MPA_STREAM_ULPDU},
	        {"FPDUPTR counts from the length, not the marker before it", 514, 512,
	         MPA_STREAM_BAD_MARKER},
	        {"FPDUPTR inside an FPDU is not 0", 514, 0, MPA_STREAM_BAD_MARKER},
	        {"FPDUPTR one word short", 514, 504, MPA_STREAM_BAD_MARKER},
	        {"FPDUPTR inside: the low two bits count as zero", 514, 511, MPA_STREAM_ULPDU},
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
		print_message("%s\n", rows[i].clause);
		uint8_t fpdu[SAMPLE_BYTES];
		size_t bytes = sample(true, fpdu, sizeof(fpdu));
		be16_store(fpdu + rows[i].at, rows[i].value);
		mend(fpdu, bytes);
		assert_int_equal(fate(fpdu, bytes, true), rows[i].verdict);
	}
}

static void rfc5044_4_too_long_is_said_at_once(void **state)
{
	struct mpa_gather r;
	struct mpa_ulpdu ulpdu;
	size_t used;
	(void)state;
	/* With markers: longer than FPDUPTR can reach, and said again, with nothing more taken. */
	static uint8_t large[MPA_MAX_ULPDU_BYTES];
	uint8_t head[6] = {0};
	be16_store(head + 4, MPA_MAX_ULPDU_MARKED_BYTES);
	mpa_gather_init(&r, large, sizeof(large), true, true);
	assert_int_equal(mpa_gather_feed(&r, head, 6, &used, &ulpdu), MPA_STREAM_MORE);
	be16_store(head + 4, MPA_MAX_ULPDU_MARKED_BYTES + 1);
	mpa_gather_init(&r, large, sizeof(large), true, true);
	assert_int_equal(mpa_gather_feed(&r, head, 6, &used, &ulpdu), MPA_STREAM_TOO_LONG);
	assert_int_equal(mpa_gather_feed(&r, head, 6, &used, &ulpdu), MPA_STREAM_TOO_LONG);
	assert_int_equal(used, 0);
}

/* Only between two FPDUs may a stream end. */
static void rfc5044_8_the_end_is_between_fpdus(void **state)
{
	(void)state;
	for (int markers = 0; markers < 2; markers++) {
		uint8_t fpdu[SAMPLE_BYTES], buffer[SAMPLE_ULPDU_BYTES];
		size_t bytes = sample(markers, fpdu, sizeof(fpdu)), used;
		struct mpa_gather r;
		struct mpa_ulpdu ulpdu;
		mpa_gather_init(&r, buffer, sizeof(buffer), markers, true);
		for (size_t i = 0; i < bytes; i++) {
			/* A marker before the FPDU belongs to it. */
			bool between = i == 0 || (markers && i == 4);
			assert_int_equal(mpa_stream_between(&r.r), between);
			mpa_gather_feed(&r, fpdu + i, 1, &used, &ulpdu);
		}
		assert_true(mpa_stream_between(&r.r));
	}
}

static void rfc6581_zero_length_fpdu(void **state)
{
	uint8_t out[16];
	uint8_t buffer[1];
	struct mpa_sender s = {.crc = true};
	struct mpa_gather r;
	struct mpa_ulpdu ulpdu;
	size_t used;
	(void)state;
	assert_int_equal(mpa_fpdu_encode(&s, NULL, 0, out, sizeof(out)), 8);
	mpa_gather_init(&r, buffer, 0, false, true);
	assert_int_equal(mpa_gather_feed(&r, out, 8, &used, &ulpdu), MPA_STREAM_ULPDU);
	assert_int_equal(ulpdu.bytes, 0);
	for (size_t i = 0; i < 8; i++)
		assert_int_equal(mpa_gather_feed(&r, out + i, 1, &used, &ulpdu),
		                 i < 7 ? MPA_STREAM_MORE : MPA_STREAM_ULPDU);
	assert_int_equal(ulpdu.bytes, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(rfc5044_8_every_flipped_bit_is_caught),
	        cmocka_unit_test(rfc5044_8_every_truncation_waits),
	        cmocka_unit_test(rfc5044_4_3_markers_are_judged),
	        cmocka_unit_test(rfc5044_4_too_long_is_said_at_once),
	        cmocka_unit_test(rfc5044_8_the_end_is_between_fpdus),
	        cmocka_unit_test(rfc6581_zero_length_fpdu),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
