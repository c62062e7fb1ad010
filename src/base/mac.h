/* Ethernet addresses as GIDs: the link-local address that is made from a MAC address (RFC 4291
 * appendix A; IBTA annex A16 takes it as the default GID of a port on Ethernet). The way back needs
 * no table, so the sender of a frame is known by the frame alone. */
#ifndef BASE_MAC_H
#define BASE_MAC_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define MAC_BYTES 6u

static inline bool mac_is_clear(const uint8_t mac[MAC_BYTES])
{
	static const uint8_t clear[MAC_BYTES];
	return memcmp(mac, clear, sizeof(clear)) == 0;
}

static inline void mac_to_gid(const uint8_t mac[MAC_BYTES], uint8_t gid[16])
{
	static const uint8_t form[16] = {0xfe, 0x80, [11] = 0xff, [12] = 0xfe};
	memcpy(gid, form, sizeof(form));
	memcpy(gid + 8, mac, 3);
	memcpy(gid + 13, mac + 3, 3);
	gid[8] ^= 2;
}

/* The MAC address of one host in @gid. False: there is none; @mac is untouched. */
static inline bool mac_from_gid(const uint8_t gid[16], uint8_t mac[MAC_BYTES])
{
	static const uint8_t prefix[8] = {0xfe, 0x80};
	if (memcmp(gid, prefix, sizeof(prefix)) != 0 || gid[11] != 0xff || gid[12] != 0xfe ||
	    (gid[8] & 1) != 0)
		return false;
	memcpy(mac, gid + 8, 3);
	memcpy(mac + 3, gid + 13, 3);
	mac[0] ^= 2;
	return true;
}

#endif
