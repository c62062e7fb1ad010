/* ISA-L computes both 32-bit CRCs with the carry-less multiplier if the processor has one. Its
 * functions follow different conventions: crc32_gzip_refl() inverts before and after by itself,
 * crc32_iscsi() does neither and takes an int length. Its crc32_ieee() is the unreflected CRC and
 * of no use here. */
#include <immintrin.h>
#include <isa-l/crc.h>
#include <string.h>

#include "base/crc.h"

/* A multiple of 64, so that ISA-L's main loop leaves no remainder between two calls. */
#define ISCSI_MAX_BYTES (1u << 30)

/* ISA-L leaves the upper halves of the vector registers dirty. Until they are cleared, every SSE
 * instruction of the program, ours or the C library's, pays a penalty. */
__attribute__((target("avx"))) static void clear_upper(void)
{
	_mm256_zeroupper();
}

static inline void leave_wide(void)
{
	if (__builtin_cpu_supports("avx"))
		clear_upper();
}

uint32_t crc32_ieee(uint32_t crc, const void *data, size_t bytes)
{
	crc = crc32_gzip_refl(crc, data, bytes);
	leave_wide();
	return crc;
}

/* Up to this length the instruction is faster than the preparations of ISA-L. */
#define SHORT_BYTES 256u

/* One instruction per 8 bytes; it shifts the low byte in first, as the CRC on the wire does. It
 * inverts neither before nor after. */
__attribute__((target("sse4.2"))) static uint32_t crc32c_short(uint32_t crc, const uint8_t *at,
                                                               size_t bytes)
{
	uint64_t rest = crc, eight;
	for (; bytes >= 8; at += 8, bytes -= 8) {
		memcpy(&eight, at, 8);
		rest = _mm_crc32_u64(rest, eight);
	}
	crc = (uint32_t)rest;
	if (bytes & 4) {
		uint32_t four;
		memcpy(&four, at, 4);
		crc = _mm_crc32_u32(crc, four);
		at += 4;
	}
	if (bytes & 2) {
		uint16_t two;
		memcpy(&two, at, 2);
		crc = _mm_crc32_u16(crc, two);
		at += 2;
	}
	return bytes & 1 ? _mm_crc32_u8(crc, *at) : crc;
}

__attribute__((target("sse4.2"))) static uint32_t crc32c_two_short(uint32_t crc, const void *first,
                                                                   size_t first_bytes,
                                                                   const void *second,
                                                                   size_t second_bytes)
{
	return crc32c_short(crc32c_short(crc, first, first_bytes), second, second_bytes);
}

uint32_t crc32c_two(uint32_t crc, const void *first, size_t first_bytes, const void *second,
                    size_t second_bytes)
{
	if (first_bytes <= SHORT_BYTES && second_bytes <= SHORT_BYTES &&
	    __builtin_cpu_supports("sse4.2"))
		return ~crc32c_two_short(~crc, first, first_bytes, second, second_bytes);
	return crc32c(crc32c(crc, first, first_bytes), second, second_bytes);
}

uint32_t crc32c(uint32_t crc, const void *data, size_t bytes)
{
	if (bytes <= SHORT_BYTES && __builtin_cpu_supports("sse4.2"))
		return ~crc32c_short(~crc, data, bytes);
	/* ISA-L's prototype lacks the const; the function only reads. */
	unsigned char *at = (unsigned char *)(uintptr_t)data;
	crc = ~crc;
	while (bytes > ISCSI_MAX_BYTES) {
		crc = crc32_iscsi(at, (int)ISCSI_MAX_BYTES, crc);
		at += ISCSI_MAX_BYTES;
		bytes -= ISCSI_MAX_BYTES;
	}
	crc = ~crc32_iscsi(at, (int)bytes, crc);
	leave_wide();
	return crc;
}

/* The remainder of each byte under 0xD008, which is 0x100B with its bits reversed: InfiniBand sends
 * the low bit of a byte first, so the register shifts right. tests/unit/base/crc.c recomputes the
 * table bit by bit. */
static const uint16_t vcrc_table[256] = {
        0x0000, 0x1ba1, 0x3742, 0x2ce3, 0x6e84, 0x7525, 0x59c6, 0x4267, 0xdd08, 0xc6a9, 0xea4a,
        0xf1eb, 0xb38c, 0xa82d, 0x84ce, 0x9f6f, 0x1a01, 0x01a0, 0x2d43, 0x36e2, 0x7485, 0x6f24,
        0x43c7, 0x5866, 0xc709, 0xdca8, 0xf04b, 0xebea, 0xa98d, 0xb22c, 0x9ecf, 0x856e, 0x3402,
        0x2fa3, 0x0340, 0x18e1, 0x5a86, 0x4127, 0x6dc4, 0x7665, 0xe90a, 0xf2ab, 0xde48, 0xc5e9,
        0x878e, 0x9c2f, 0xb0cc, 0xab6d, 0x2e03, 0x35a2, 0x1941, 0x02e0, 0x4087, 0x5b26, 0x77c5,
        0x6c64, 0xf30b, 0xe8aa, 0xc449, 0xdfe8, 0x9d8f, 0x862e, 0xaacd, 0xb16c, 0x6804, 0x73a5,
        0x5f46, 0x44e7, 0x0680, 0x1d21, 0x31c2, 0x2a63, 0xb50c, 0xaead, 0x824e, 0x99ef, 0xdb88,
        0xc029, 0xecca, 0xf76b, 0x7205, 0x69a4, 0x4547, 0x5ee6, 0x1c81, 0x0720, 0x2bc3, 0x3062,
        0xaf0d, 0xb4ac, 0x984f, 0x83ee, 0xc189, 0xda28, 0xf6cb, 0xed6a, 0x5c06, 0x47a7, 0x6b44,
        0x70e5, 0x3282, 0x2923, 0x05c0, 0x1e61, 0x810e, 0x9aaf, 0xb64c, 0xaded, 0xef8a, 0xf42b,
        0xd8c8, 0xc369, 0x4607, 0x5da6, 0x7145, 0x6ae4, 0x2883, 0x3322, 0x1fc1, 0x0460, 0x9b0f,
        0x80ae, 0xac4d, 0xb7ec, 0xf58b, 0xee2a, 0xc2c9, 0xd968, 0xd008, 0xcba9, 0xe74a, 0xfceb,
        0xbe8c, 0xa52d, 0x89ce, 0x926f, 0x0d00, 0x16a1, 0x3a42, 0x21e3, 0x6384, 0x7825, 0x54c6,
        0x4f67, 0xca09, 0xd1a8, 0xfd4b, 0xe6ea, 0xa48d, 0xbf2c, 0x93cf, 0x886e, 0x1701, 0x0ca0,
        0x2043, 0x3be2, 0x7985, 0x6224, 0x4ec7, 0x5566, 0xe40a, 0xffab, 0xd348, 0xc8e9, 0x8a8e,
        0x912f, 0xbdcc, 0xa66d, 0x3902, 0x22a3, 0x0e40, 0x15e1, 0x5786, 0x4c27, 0x60c4, 0x7b65,
        0xfe0b, 0xe5aa, 0xc949, 0xd2e8, 0x908f, 0x8b2e, 0xa7cd, 0xbc6c, 0x2303, 0x38a2, 0x1441,
        0x0fe0, 0x4d87, 0x5626, 0x7ac5, 0x6164, 0xb80c, 0xa3ad, 0x8f4e, 0x94ef, 0xd688, 0xcd29,
        0xe1ca, 0xfa6b, 0x6504, 0x7ea5, 0x5246, 0x49e7, 0x0b80, 0x1021, 0x3cc2, 0x2763, 0xa20d,
        0xb9ac, 0x954f, 0x8eee, 0xcc89, 0xd728, 0xfbcb, 0xe06a, 0x7f05, 0x64a4, 0x4847, 0x53e6,
        0x1181, 0x0a20, 0x26c3, 0x3d62, 0x8c0e, 0x97af, 0xbb4c, 0xa0ed, 0xe28a, 0xf92b, 0xd5c8,
        0xce69, 0x5106, 0x4aa7, 0x6644, 0x7de5, 0x3f82, 0x2423, 0x08c0, 0x1361, 0x960f, 0x8dae,
        0xa14d, 0xbaec, 0xf88b, 0xe32a, 0xcfc9, 0xd468, 0x4b07, 0x50a6, 0x7c45, 0x67e4, 0x2583,
        0x3e22, 0x12c1, 0x0960,
};

uint16_t crc16_vcrc(uint16_t crc, const void *data, size_t bytes)
{
	const unsigned char *at = data;
	uint32_t rest = crc ^ 0xffffu;
	for (size_t i = 0; i < bytes; i++)
		rest = (rest >> 8) ^ vcrc_table[(rest ^ at[i]) & 0xffu];
	return (uint16_t)(rest ^ 0xffffu);
}
