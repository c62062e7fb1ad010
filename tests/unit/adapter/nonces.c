/* Nonces are unpredictable to a peer that has seen many of them (AP5): an attacker who solves for
 * the state of xoshiro256**, which is what the adapter draws other numbers from, learns nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <heddle/aperture.h>

#include "base/prng.h"

#define BITS 256u
#define SEEN 6u
struct row { /* a bit that is known: the sum of bits of the first state */
	uint64_t of[BITS / 64];
	bool value;
};
struct word { /* each bit as a sum of bits of the first state */
	uint64_t of[64][BITS / 64];
};

static void add(struct word *to, const struct word *from, unsigned left)
{
	for (unsigned bit = left; bit < 64; bit++)
		for (unsigned i = 0; i < BITS / 64; i++)
			to->of[bit][i] ^= from->of[bit - left][i];
}

/* One step of the generator, on sums of bits. */
static void step(struct word s[4])
{
	static struct word before, turned;
	before = s[1];
	add(&s[2], &s[0], 0);
	add(&s[3], &s[1], 0);
	add(&s[1], &s[2], 0);
	add(&s[0], &s[3], 0);
	add(&s[2], &before, 17);
	for (unsigned bit = 0; bit < 64; bit++)
		memcpy(turned.of[(bit + 45) % 64], s[3].of[bit], sizeof(turned.of[0]));
	s[3] = turned;
}

/* The state word behind an output, rotl(s1 * 5, 7) * 9. */
static uint64_t unscramble(uint64_t out)
{
	out *= 0x8e38e38e38e38e39ull; /* 1 / 9 */
	out = out >> 7 | out << 57;
	return out * 0xcccccccccccccccdull; /* 1 / 5 */
}

/* Gauss: @rows become the bits of the state, as far as they are determined. */
static void solve(struct row *rows, unsigned count, struct prng *state)
{
	unsigned used = 0;
	memset(state, 0, sizeof(*state));
	for (unsigned bit = 0; bit < BITS && used < count; bit++) {
		unsigned at = used;
		while (at < count && (rows[at].of[bit / 64] >> bit % 64 & 1) == 0)
			at++;
		if (at == count)
			continue;
		struct row row = rows[at];
		rows[at] = rows[used];
		rows[used++] = row;
		for (unsigned i = 0; i < count; i++)
			if (i != used - 1 && (rows[i].of[bit / 64] >> bit % 64 & 1) != 0) {
				for (unsigned k = 0; k < BITS / 64; k++)
					rows[i].of[k] ^= row.of[k];
				rows[i].value ^= row.value;
			}
	}
	for (unsigned i = 0; i < used; i++) {
		unsigned bit = 0;
		while ((rows[i].of[bit / 64] >> bit % 64 & 1) == 0)
			bit++;
		state->state[bit / 64] |= (uint64_t)rows[i].value << bit % 64;
	}
}

/* The output after those at positions 0, 2, 4 ...: a number is drawn in between. */
static uint64_t foretell(const uint64_t seen[SEEN])
{
	static struct word s[4];
	static struct row rows[SEEN * 64];
	struct prng prng;
	memset(s, 0, sizeof(s));
	for (unsigned bit = 0; bit < BITS; bit++)
		s[bit / 64].of[bit % 64][bit / 64] = 1ull << bit % 64;
	for (unsigned i = 0; i < SEEN; i++, step(s), step(s))
		for (unsigned bit = 0; bit < 64; bit++) {
			struct row *row = &rows[i * 64 + bit];
			memcpy(row->of, s[1].of[bit], sizeof(row->of));
			row->value = (unscramble(seen[i]) >> bit & 1) != 0;
		}
	solve(rows, SEEN * 64, &prng);
	uint64_t next = 0;
	for (unsigned i = 0; i <= 2 * SEEN; i++)
		next = prng_next(&prng);
	return next;
}

static void ap5_nonces_that_were_seen_tell_nothing(void **state)
{
	(void)state;
	struct hdl_aperture_attr attr = {.length = 4096};
	struct hdl_adapter *adapter;
	struct hdl_aperture *apertures[SEEN + 1];
	struct hdl_aperture_target target;
	uint64_t seen[SEEN];
	struct prng prng;
	/* The attack works. */
	prng_seed(&prng, 4711);
	for (unsigned i = 0; i < SEEN; i++, prng_next(&prng))
		seen[i] = prng_next(&prng);
	assert_int_equal(foretell(seen), prng_next(&prng));
	assert_int_equal(hdl_open(NULL, &adapter), 0);
	for (unsigned i = 0; i <= SEEN; i++) {
		assert_int_equal(hdl_aperture_open(adapter, &attr, &apertures[i]), 0);
		assert_int_equal(hdl_aperture_own(apertures[i], &target), 0);
		if (i < SEEN)
			seen[i] = target.nonce;
	}
	assert_int_not_equal(foretell(seen), target.nonce);
	for (unsigned i = 0; i <= SEEN; i++)
		hdl_aperture_free(apertures[i]);
	assert_int_equal(hdl_close(adapter), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(ap5_nonces_that_were_seen_tell_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
