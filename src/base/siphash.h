/* SipHash-2-4 (Aumasson and Bernstein, 2012): a digest of a few bytes that nobody can compute, or
 * steer, who does not have the key. */
#ifndef BASE_SIPHASH_H
#define BASE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

static inline uint64_t siphash_load(const unsigned char *at, size_t bytes)
{
	uint64_t word = 0;
	for (size_t i = 0; i < bytes; i++)
		word |= (uint64_t)at[i] << 8 * i;
	return word;
}

static inline uint64_t siphash_rotate(uint64_t word, unsigned bits)
{
	return word << bits | word >> (64 - bits);
}

static inline void siphash_rounds(uint64_t v[4], unsigned rounds)
{
	while (rounds-- > 0) {
		v[0] += v[1];
		v[2] += v[3];
		v[1] = siphash_rotate(v[1], 13) ^ v[0];
		v[3] = siphash_rotate(v[3], 16) ^ v[2];
		v[0] = siphash_rotate(v[0], 32) + v[3];
		v[2] += v[1];
		v[1] = siphash_rotate(v[1], 17) ^ v[2];
		v[3] = siphash_rotate(v[3], 21) ^ v[0];
		v[2] = siphash_rotate(v[2], 32);
	}
}

static inline uint64_t siphash(const uint64_t key[2], const void *data, size_t bytes)
{
	const unsigned char *at = data;
	uint64_t v[4] = {key[0] ^ 0x736f6d6570736575ull, key[1] ^ 0x646f72616e646f6dull,
	                 key[0] ^ 0x6c7967656e657261ull, key[1] ^ 0x7465646279746573ull};
	for (size_t left = bytes;; left -= 8, at += 8) {
		uint64_t word = siphash_load(at, left < 8 ? left : 8);
		if (left < 8)
			word |= (uint64_t)bytes << 56; /* its low byte: the length */
		v[3] ^= word;
		siphash_rounds(v, 2);
		v[0] ^= word;
		if (left < 8)
			break;
	}
	v[2] ^= 0xff;
	siphash_rounds(v, 4);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

#endif
