/* Invariant and variant CRC. See icrc.h for what they cover. */
#include "wire/icrc.h"

#include <string.h>

#include "base/crc.h"
#include "wire/ib_headers.h"
#include "wire/ip_headers.h"

static const uint8_t ones[IB_LRH_BYTES] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

uint32_t icrc_seed_lrh(const uint8_t *lrh)
{
	uint8_t masked[IB_LRH_BYTES];
	memcpy(masked, lrh, sizeof(masked));
	masked[0] |= 0xf0; /* VL */
	return crc32_ieee(0, masked, sizeof(masked));
}

/* GRH and IPv6 header have the same format. */
static void mask_ipv6(uint8_t *header)
{
	header[0] |= 0x0f; /* upper half of the traffic class */
	memset(header + 1, 0xff, 3);
	header[7] = 0xff; /* hop limit */
}

uint32_t icrc_seed_grh(const uint8_t *grh)
{
	uint8_t masked[IB_LRH_BYTES + IB_GRH_BYTES];
	memcpy(masked, ones, IB_LRH_BYTES);
	memcpy(masked + IB_LRH_BYTES, grh, IB_GRH_BYTES);
	mask_ipv6(masked + IB_LRH_BYTES);
	return crc32_ieee(0, masked, sizeof(masked));
}

uint32_t icrc_seed_ipv4(const uint8_t *ip_and_udp)
{
	uint8_t masked[IB_LRH_BYTES + IPV4_BYTES + UDP_BYTES];
	uint8_t *ip = masked + IB_LRH_BYTES;
	memcpy(masked, ones, IB_LRH_BYTES);
	memcpy(ip, ip_and_udp, IPV4_BYTES + UDP_BYTES);
	ip[1] = 0xff;                         /* type of service */
	ip[8] = 0xff;                         /* time to live */
	memset(ip + 10, 0xff, 2);             /* header checksum */
	memset(ip + IPV4_BYTES + 6, 0xff, 2); /* UDP checksum */
	return crc32_ieee(0, masked, sizeof(masked));
}

uint32_t icrc_seed_ipv6(const uint8_t *ip_and_udp)
{
	uint8_t masked[IB_LRH_BYTES + IPV6_BYTES + UDP_BYTES];
	uint8_t *ip = masked + IB_LRH_BYTES;
	memcpy(masked, ones, IB_LRH_BYTES);
	memcpy(ip, ip_and_udp, IPV6_BYTES + UDP_BYTES);
	mask_ipv6(ip);
	memset(ip + IPV6_BYTES + 6, 0xff, 2); /* UDP checksum */
	return crc32_ieee(0, masked, sizeof(masked));
}

uint32_t icrc_seed_ip_id(uint16_t id)
{
	/* A CRC is linear: what both have in common cancels out, so zeroes can replace it. */
	static const uint8_t zeroes[IPV4_BYTES + UDP_BYTES - 4];
	uint8_t from_id[sizeof(zeroes)] = {(uint8_t)(id >> 8), (uint8_t)id};
	return crc32_ieee(0, zeroes, sizeof(zeroes)) ^ crc32_ieee(0, from_id, sizeof(from_id));
}

/* resv8a, the fifth byte, counts as ones. If it is zero, as it nearly always is, changing the seed
 * by this constant compensates: it is the difference at the start of the BTH that has the same
 * effect as ones instead of zeroes in that byte (a CRC is linear). */
#define ONES_FOR_ZEROES 0x0f6a70d9u
#define RESV8A          4

uint32_t icrc_transport(uint32_t seed, const uint8_t *bth, size_t bytes)
{
	uint8_t masked[IB_BTH_BYTES];
	if (bth[RESV8A] == 0)
		return crc32_ieee(seed ^ ONES_FOR_ZEROES, bth, bytes);
	memcpy(masked, bth, sizeof(masked));
	masked[RESV8A] = 0xff;
	uint32_t crc = crc32_ieee(seed, masked, sizeof(masked));
	return crc32_ieee(crc, bth + IB_BTH_BYTES, bytes - IB_BTH_BYTES);
}

void icrc_put(uint8_t *at, uint32_t icrc)
{
	at[0] = (uint8_t)icrc;
	at[1] = (uint8_t)(icrc >> 8);
	at[2] = (uint8_t)(icrc >> 16);
	at[3] = (uint8_t)(icrc >> 24);
}

uint32_t icrc_get(const uint8_t *at)
{
	return (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
}

void vcrc_put(uint8_t *at, uint16_t vcrc)
{
	at[0] = (uint8_t)vcrc;
	at[1] = (uint8_t)(vcrc >> 8);
}

uint16_t vcrc_get(const uint8_t *at)
{
	return (uint16_t)(at[1] << 8 | at[0]);
}

/* @a times @b modulo the CRC-32 polynomial. A register of the reflected CRC holds the coefficient
 * of x^31 in bit 0 and that of x^0 in bit 31. */
static uint32_t multiply(uint32_t a, uint32_t b)
{
	uint32_t product = 0;
	for (int power = 0; power < 32; power++) {
		product ^= b & (0u - (a >> (31 - power) & 1));
		b = b >> 1 ^ (0xedb88320u & (0u - (b & 1)));
	}
	return product;
}

/* x^(-8 * 2^i): undoes the effect of shifting 2^i bytes of zeroes through the register. */
static const uint32_t undo[16] = {
        0x6567cb95, 0xd7125358, 0x5b358fd3, 0x2e9bb40b, 0x12a59a49, 0x8df9403d,
        0x5139de12, 0xba340226, 0x29c45641, 0x12fbc105, 0xecd30c55, 0x3755ebd8,
        0x24ee460c, 0x23783fcf, 0x479933fc, 0xa39442a5,
};

/* A CRC is linear: the exclusive or of two CRCs over messages of the same length is the register
 * that their difference alone leaves. Here the difference is the identification, followed by
 * zeroes. Run the register back through these zeroes and the two bytes of the identification, and
 * it must contain these two bytes: the first in bits 0 to 7, the second in bits 8 to 15, zeroes
 * above. */
bool icrc_solve_ip_id(uint32_t with_zero, uint32_t received, size_t bytes_behind, uint16_t *id)
{
	if (bytes_behind > ICRC_MAX_BYTES_BEHIND_ID)
		return false;
	uint32_t state = with_zero ^ received;
	size_t back = bytes_behind + 2;
	for (int i = 0; back != 0; i++, back >>= 1) {
		if (back & 1)
			state = multiply(state, undo[i]);
	}
	if (state >> 16 != 0)
		return false;
	*id = (uint16_t)((state & 0xff) << 8 | state >> 8);
	return true;
}
