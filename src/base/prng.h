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
uint64_t prng_next(struct prng *prng);
/* Uniformly distributed from 0 to @bound - 1; @bound is not 0. */
uint64_t prng_below(struct prng *prng, uint64_t bound);
/* True with a probability of @permille in 1000. */
bool prng_chance(struct prng *prng, uint32_t permille);
void prng_fill(struct prng *prng, void *out, size_t bytes);

#endif
