/* xoshiro256** (Blackman and Vigna), seeded through splitmix64 so that close seeds give unrelated
 * streams. */
#include "base/prng.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
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

static uint32_t turn(uint32_t value, unsigned bits)
{
	return value << bits | value >> (32u - bits);
}

static void quarter_round(uint32_t *a, uint32_t *b, uint32_t *c, uint32_t *d)
{
	*a += *b;
	*d = turn(*d ^ *a, 16);
	*c += *d;
	*b = turn(*b ^ *c, 12);
	*a += *b;
	*d = turn(*d ^ *a, 8);
	*c += *d;
	*b = turn(*b ^ *c, 7);
}

void prng_chacha(const uint32_t key[8], uint32_t counter, const uint32_t nonce[3], uint32_t out[16])
{
	uint32_t first[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
	memcpy(first + 4, key, 32);
	first[12] = counter;
	memcpy(first + 13, nonce, 12);
	memcpy(out, first, sizeof(first));
	for (unsigned round = 0; round < 10; round++) {
		for (unsigned i = 0; i < 4; i++)
			quarter_round(&out[i], &out[i + 4], &out[i + 8], &out[i + 12]);
		for (unsigned i = 0; i < 4; i++)
			quarter_round(&out[i], &out[4 + (i + 1) % 4], &out[8 + (i + 2) % 4],
			              &out[12 + (i + 3) % 4]);
	}
	for (unsigned i = 0; i < 16; i++)
		out[i] += first[i];
}

static void pool_fill(struct prng_pool *pool)
{
	static const uint32_t nonce[3]; /* a key is used for one batch */
	uint32_t out[PRNG_POOL_BLOCKS * 16];
	if (!pool->seeded)
		fill_from_os(pool->key, sizeof(pool->key));
	pool->seeded = true;
	for (uint32_t i = 0; i < PRNG_POOL_BLOCKS; i++)
		prng_chacha(pool->key, i, nonce, out + (size_t)i * 16);
	memcpy(pool->key, out, sizeof(pool->key));
	memcpy(pool->values, out + 8, sizeof(pool->values));
	explicit_bzero(out, sizeof(out));
	pool->left = PRNG_POOL;
}

uint64_t prng_pool_next(struct prng_pool *pool)
{
	if (pool->left == 0)
		pool_fill(pool);
	uint64_t value = pool->values[--pool->left];
	pool->values[pool->left] = 0; /* what was given out is in no core dump */
	return value;
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
