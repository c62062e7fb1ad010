/* A seeded generator (xoshiro256**, seeded through splitmix64): the same seed gives the same
 * numbers on every machine. Not for secrets: numbers that protect something come from
 * prng_seed_from_os(). */
#ifndef BASE_PRNG_H
#define BASE_PRNG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct prng {
	uint64_t state[4];
};

void prng_seed(struct prng *prng, uint64_t seed);
/* Seed all 256 bits of state from getrandom(). Not for the sans-I/O layers. */
void prng_seed_from_os(struct prng *prng);
/* 64 bits straight from getrandom(), which nobody can compute from earlier ones: for values that
 * are shown to peers and yet must not be predictable. Not for the sans-I/O layers. */
uint64_t prng_secret(void);
/* The same without a system call each: ChaCha20 (RFC 8439) with a key of getrandom(), which is
 * replaced with every batch, so that earlier values cannot be computed either. The caller's lock
 * protects it; zero to begin with. */
#define PRNG_POOL_BLOCKS 8u
#define PRNG_POOL        (PRNG_POOL_BLOCKS * 8u - 4u) /* values of a batch, beside the next key */
struct prng_pool {
	bool seeded;
	uint32_t left;
	uint32_t key[8];
	uint64_t values[PRNG_POOL];
};
uint64_t prng_pool_next(struct prng_pool *pool);
/* One block of ChaCha20 (RFC 8439 section 2.3). */
void prng_chacha(const uint32_t key[8], uint32_t counter, const uint32_t nonce[3],
                 uint32_t out[16]);
uint64_t prng_next(struct prng *prng);
/* Uniformly distributed from 0 to @bound - 1; @bound is not 0. */
uint64_t prng_below(struct prng *prng, uint64_t bound);
/* True with a probability of @permille in 1000. */
bool prng_chance(struct prng *prng, uint32_t permille);
void prng_fill(struct prng *prng, void *out, size_t bytes);

#endif
