/* Which Ethernet address is behind which port of a unit: port 0 is the LAN, the others are hosts.
 * The address of a host is fixed until the host changes it; those on the LAN are learned, and
 * forgotten when they are silent. A host may have more than one, if there is a bridge behind it.
 * Pure. */
#ifndef TAP_MACS_H
#define TAP_MACS_H

#include <stdbool.h>
#include <stdint.h>

#define MACS_MAX      4096u
#define MACS_PROBES   16u /* places where an address may be */
#define MACS_FORGET_S 300u
#define MACS_FLIGHT_S 10u /* far more than a frame takes to the unit */
#define MACS_LAN      0u
#define MACS_NONE     UINT32_MAX

struct macs_entry {
	uint8_t mac[6];
	bool used;
	uint32_t port;
	uint32_t seen_s;
};

struct macs {
	struct macs_entry entries[MACS_MAX];
	uint64_t evicted; /* addresses of the LAN that others took the place of */
};

/* The port of @mac; MACS_NONE: unknown. */
uint32_t macs_find(const struct macs *macs, const uint8_t mac[6], uint32_t now_s);
/* Give @mac to the host at @port. False: another port has it, or there is no room. */
bool macs_claim(struct macs *macs, const uint8_t mac[6], uint32_t port, uint32_t now_s);
/* Give @mac to the host at @port in place of @old. False, as macs_claim(): @old is still its. */
bool macs_replace(struct macs *macs, const uint8_t old[6], const uint8_t mac[6], uint32_t port,
                  uint32_t now_s);
/* A frame of the host at @port has @mac as its source. False: it is not one of the host's. */
bool macs_use(struct macs *macs, const uint8_t mac[6], uint32_t port, uint32_t now_s);
/* At the host, of the same frame before it leaves. False also if the address was silent for so long
 * that the unit may have retired it by the time the frame arrives. */
bool macs_use_recent(struct macs *macs, const uint8_t mac[6], uint32_t port, uint32_t now_s);
/* The addresses of the host at @port, up to @max of them. Returns how many there are. */
uint32_t macs_list(const struct macs *macs, uint32_t port, uint8_t (*list)[6], uint32_t max);
/* Take from a host an address that was silent for MACS_FORGET_S, but not @keep. False: there is
 * none. */
bool macs_retire(struct macs *macs, uint32_t port, const uint8_t keep[6], uint32_t now_s);
/* Take all addresses of a host. */
void macs_leave(struct macs *macs, uint32_t port);
/* The LAN has used @mac as a source. False: it is that of a host. */
bool macs_learn(struct macs *macs, const uint8_t mac[6], uint32_t now_s);

static inline bool macs_is_group(const uint8_t mac[6])
{
	return (mac[0] & 1) != 0;
}

#endif
