/* xoshiro256** (Blackman and Vigna), seeded through splitmix64 so that close seeds give unrelated
 * streams. */
#include "base/prng.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/cancel.h"

static uint64_t rotate_left(uint64_t value, unsigned bits)
{
	return (value << bits) | (value >> (64u - bits));
}

static uint64_t splitmix64(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15u);
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

void prng_seed(struct prng *prng, uint64_t seed)
{
	/* splitmix64 is a bijection of a counter, so four consecutive outputs are never all zero,
	 * the one forbidden state. */
	for (unsigned i = 0; i < 4; i++)
		prng->state[i] = splitmix64(&seed);
}

static void fill_from_os(void *to, size_t bytes)
{
	unsigned char *out = to;
	size_t done = 0;
	int cancel = cancel_forbid();
	while (done < bytes) {
		ssize_t got = getrandom(out + done, bytes - done, 0);
		if (got > 0)
			done += (size_t)got;
		else if (errno != EINTR)
			abort(); /* continuing would hand out numbers that a peer can guess */
	}
	cancel_restore(cancel);
}

uint64_t prng_secret(void)
{
	uint64_t secret;
	fill_from_os(&secret, sizeof(secret));
	return secret;
}

void prng_seed_from_os(struct prng *prng)
{
	fill_from_os(prng->state, sizeof(prng->state));
	if ((prng->state[0] | prng->state[1] | prng->state[2] | prng->state[3]) == 0)
		prng->state[0] = 1;
}

uint64_t prng_next(struct prng *prng)
{
	uint64_t *s = prng->state;
	uint64_t result = rotate_left(s[1] * 5, 7) * 9;
	uint64_t t = s[1] << 17;
	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = rotate_left(s[3], 45);
	return result;
}

/* Lemire's multiplication: the high half of draw * bound is the result. Draws that would favour
 * some results (low half below 2^64 mod bound) are rejected. */
uint64_t prng_below(struct prng *prng, uint64_t bound)
{
	assert(bound != 0);
	unsigned __int128 product = (unsigned __int128)prng_next(prng) * bound;
	if ((uint64_t)product < bound) {
		uint64_t unfair = (0 - bound) % bound;
		while ((uint64_t)product < unfair)
			product = (unsigned __int128)prng_next(prng) * bound;
	}
	return (uint64_t)(product >> 64);
}

bool prng_chance(struct prng *prng, uint32_t permille)
{
	return prng_below(prng, 1000) < permille;
}

void prng_fill(struct prng *prng, void *out, size_t bytes)
{
	unsigned char *to = out;
	while (bytes > 0) {
		uint64_t draw = prng_next(prng);
		/* Lowest byte first on every machine, so that a seed gives the same bytes
		 * everywhere. */
		for (unsigned i = 0; i < 8 && bytes > 0; i++, bytes--) {
			*to++ = (unsigned char)draw;
			draw >>= 8;
		}
	}
}
