/* Nonces that roll (APERTURE columns 8 and 9): the number grows by @step after every @every
 * accepted packets. Sequence numbers count accepted packets, so the nonce is a function of the
 * number, and both ends agree on it whatever is lost, doubled or late. */
#ifndef MEMORY_NONCE_H
#define MEMORY_NONCE_H

#include <stdint.h>

struct nonce {
	uint64_t first; /* of the connection: out-of-band packets have it */
	uint64_t now;
	uint32_t from;  /* the number since which it is @now */
	uint32_t every; /* 0: it does not roll */
	uint16_t step;
};

static inline void nonce_begin(struct nonce *nonce, uint64_t value, uint32_t sequence,
                               uint32_t every, uint16_t step)
{
	*nonce = (struct nonce){
	        .first = value, .now = value, .from = sequence, .every = every, .step = step};
}

/* The nonce of the packet with the number @sequence, near @from. */
static inline uint64_t nonce_at(const struct nonce *nonce, uint32_t sequence)
{
	if (nonce->every == 0)
		return nonce->now;
	int64_t distance = (int32_t)(sequence - nonce->from), every = nonce->every;
	int64_t turns = distance >= 0 ? distance / every : -((-distance + every - 1) / every);
	return nonce->now + (uint64_t)turns * nonce->step;
}

/* The next packet has the number @sequence, all before it were accepted. */
static inline void nonce_roll(struct nonce *nonce, uint32_t sequence)
{
	while (nonce->every != 0 && sequence - nonce->from >= nonce->every) {
		nonce->from += nonce->every;
		nonce->now += nonce->step;
	}
}

#endif
