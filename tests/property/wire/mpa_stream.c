/* Streams of random ULPDUs, with and without markers and CRCs, from every phase, cut at random:
 * what went in comes out, in order, and the sender and the receiver agree on the position after
 * each. */
#include "base/prng.h"
#include "iwarp_octets.h"
#include "mpa_gather.h"

#define ULPDUS       40
#define MAX_BYTES    3000
#define STREAM_BYTES (ULPDUS * (MAX_BYTES + 64))

static uint8_t ulpdus[ULPDUS][MAX_BYTES];
static size_t lengths[ULPDUS];
static uint8_t stream[STREAM_BYTES];

static size_t random_length(struct prng *prng)
{
	switch (prng_below(prng, 4)) {
	case 0:
		return prng_below(prng, 8);
	case 1:
		return 490 + prng_below(prng, 40);
	default:
		return prng_below(prng, MAX_BYTES + 1);
	}
}

static void one_stream(uint64_t seed)
{
	struct prng prng;
	prng_seed(&prng, seed);
	uint64_t start =
	        prng_below(&prng, 128) * 4 + (prng_chance(&prng, 100) ? UINT64_C(1) << 40 : 0);
	struct mpa_sender s = {.position = start,
	                       .markers = prng_chance(&prng, 700),
	                       .crc = prng_chance(&prng, 700)};
	bool markers = s.markers;
	bool crc = s.crc;
	size_t total = 0;
	for (size_t i = 0; i < ULPDUS; i++) {
		lengths[i] = random_length(&prng);
		prng_fill(&prng, ulpdus[i], lengths[i]);
		size_t cut = prng_below(&prng, lengths[i] + 1);
		struct mpa_piece pieces[] = {{ulpdus[i], cut}, {ulpdus[i] + cut, lengths[i] - cut}};
		size_t bytes =
		        mpa_fpdu_encode(&s, pieces, 2, stream + total, sizeof(stream) - total);
		assert_true(bytes > 0);
		total += bytes;
		assert_int_equal(s.position, start + total);
	}

	uint8_t buffer[MAX_BYTES];
	struct mpa_gather r;
	mpa_gather_init(&r, buffer, sizeof(buffer), markers, crc);
	r.r.position = start;
	r.head_bytes = prng_below(&prng, MPA_HEAD_MAX_BYTES + 1);
	uint64_t longest = prng_chance(&prng, 300) ? 5 : 1 + prng_below(&prng, 8000);
	size_t at = 0;
	size_t got = 0;
	while (at < total) {
		size_t run = 1 + prng_below(&prng, longest);
		run = run < total - at ? run : total - at;
		uint8_t *in = exact_copy(stream + at, run);
		size_t taken = 0;
		struct mpa_ulpdu ulpdu;
		size_t used;
		enum mpa_stream_verdict verdict;
		while ((verdict = mpa_gather_feed(&r, in + taken, run - taken, &used, &ulpdu)) ==
		       MPA_STREAM_ULPDU) {
			taken += used;
			assert_true(got < ULPDUS);
			assert_int_equal(ulpdu.bytes, lengths[got]);
			if (ulpdu.bytes > 0)
				assert_memory_equal(ulpdu.data, ulpdus[got], ulpdu.bytes);
			got++;
		}
		assert_int_equal(verdict, MPA_STREAM_MORE);
		assert_int_equal(taken + used, run);
		free(in);
		at += run;
		assert_int_equal(r.r.position, start + at);
	}
	assert_int_equal(got, ULPDUS);
}

static void rfc5044_4_what_goes_in_comes_out(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 1500; seed++)
		one_stream(seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(rfc5044_4_what_goes_in_comes_out),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
