/* Copies data and computes its CRC in one pass: each byte is loaded once. ISA-L has no such
 * function for a 32-bit CRC. The wide version folds four vectors of 64 bytes at a time by
 * carry-less multiplication (V. Gopal and others, "Fast CRC Computation for Generic Polynomials
 * Using PCLMULQDQ Instruction", 2009) and leaves the last 64 bytes to ISA-L: they are not the data
 * itself, but have the same remainder. Processors without these instructions make two passes, over
 * data short enough that the second pass finds it in the cache. */
#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

#include "base/crc.h"

#define STEP 256u /* bytes in four vectors */

/* The remainders of x^(distance + 32) and x^(distance - 32) under the polynomial, bits reversed,
 * for the older and the younger half of 128 bits that are moved forward by @distance bits.
 * tests/unit/base/crc.c verifies them. */
#define IEEE_OVER_2048 0x11542778a, 0x1322d1430
#define IEEE_OVER_1536 0x1821d8bc0, 0x12e958ac4
#define IEEE_OVER_1024 0x1e88ef372, 0x14a7fe880
#define IEEE_OVER_512  0x154442bd4, 0x1c6e41596
#define C_OVER_2048    0x0dcb17aa4, 0x0b9e02b86
#define C_OVER_1536    0x0a87ab8a8, 0x0ab7aff2a
#define C_OVER_1024    0x06992cea2, 0x00d3b6092
#define C_OVER_512     0x0740eef02, 0x09e4addf8

#define WIDE __attribute__((target("avx512f,avx512vl,pclmul,vpclmulqdq")))

WIDE static inline __m512i constants(int64_t older, int64_t younger)
{
	return _mm512_broadcast_i32x4(_mm_set_epi64x(younger, older));
}

/* @data, with @far folded into it. */
WIDE static inline __m512i fold(__m512i far, __m512i over, __m512i data)
{
	__m512i older = _mm512_clmulepi64_epi128(far, over, 0x00);
	__m512i younger = _mm512_clmulepi64_epi128(far, over, 0x11);
	return _mm512_ternarylogic_epi64(older, younger, data,
	                                 0x96); /* exclusive or of all three */
}

WIDE static inline __m512i pass(uint8_t *to, const uint8_t *from)
{
	__m512i data = _mm512_loadu_si512(from);
	_mm512_storeu_si512(to, data);
	return data;
}

/* At least STEP bytes. One function per polynomial: @plain is the CRC without copying, the others
 * are its constants. */
#define COPY_WIDE(name, plain, over_2048, over_1536, over_1024, over_512)                       \
	WIDE static uint32_t name(uint32_t crc, uint8_t *to, const uint8_t *from, size_t bytes) \
	{                                                                                       \
		const __m512i on = constants(over_2048);                                        \
		uint8_t last[64];                                                               \
		__m512i a = _mm512_xor_si512(                                                   \
		        pass(to, from), _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc)));  \
		__m512i b = pass(to + 64, from + 64);                                           \
		__m512i c = pass(to + 128, from + 128);                                         \
		__m512i d = pass(to + 192, from + 192);                                         \
		size_t at = STEP;                                                               \
		for (; bytes - at >= STEP; at += STEP) {                                        \
			a = fold(a, on, pass(to + at, from + at));                              \
			b = fold(b, on, pass(to + at + 64, from + at + 64));                    \
			c = fold(c, on, pass(to + at + 128, from + at + 128));                  \
			d = fold(d, on, pass(to + at + 192, from + at + 192));                  \
		}                                                                               \
		d = fold(a, constants(over_1536), d);                                           \
		d = fold(b, constants(over_1024), d);                                           \
		d = fold(c, constants(over_512), d);                                            \
		_mm512_storeu_si512(last, d);                                                   \
		crc = plain(UINT32_MAX, last, sizeof(last)); /* an empty register, inverted */  \
		if (at == bytes)                                                                \
			return crc;                                                             \
		memcpy(to + at, from + at, bytes - at);                                         \
		return plain(crc, to + at, bytes - at);                                         \
	}

COPY_WIDE(copy_wide_ieee, crc32_ieee, IEEE_OVER_2048, IEEE_OVER_1536, IEEE_OVER_1024, IEEE_OVER_512)
COPY_WIDE(copy_wide_c, crc32c, C_OVER_2048, C_OVER_1536, C_OVER_1024, C_OVER_512)

static inline bool is_wide(size_t bytes)
{
	return bytes >= STEP && __builtin_cpu_supports("avx512f") &&
	       __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("vpclmulqdq");
}

uint32_t crc32_ieee_copy(uint32_t crc, void *to, const void *from, size_t bytes)
{
	if (is_wide(bytes))
		return copy_wide_ieee(crc, to, from, bytes);
	memcpy(to, from, bytes);
	return crc32_ieee(crc, to, bytes);
}

uint32_t crc32c_copy(uint32_t crc, void *to, const void *from, size_t bytes)
{
	if (is_wide(bytes))
		return copy_wide_c(crc, to, from, bytes);
	memcpy(to, from, bytes);
	return crc32c(crc, to, bytes);
}
