/* What tests have instead of a network card: a carrier (transport/path.h) that seals the packets of
 * an adapter as RoCEv2 does and hands each of them to the test, and the way back into an adapter.
 */
#ifndef CABLE_CABLE_H
#define CABLE_CABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transport/path.h"

#define CABLE_PACKET_BYTES \
	(IB_MAX_MTU_BYTES + 128u) /* the longest payload with all its headers \
	                                              */
#define CABLE_PATH_BYTES 44u
#define CABLE_BYTES      (CABLE_PATH_BYTES + CABLE_PACKET_BYTES)

struct cable {
	struct carrier carrier; /* for struct adapter_env */
	/* A packet leaves: a UDP payload with its ICRC. With the adapter's drive lock held, so not
	 * back into an adapter. */
	void (*out)(void *context, const struct path *path, const uint8_t *payload, size_t bytes);
	/* Is there room for one more? NULL: always. */
	bool (*room)(void *context);
	void *context;
	uint8_t packet[CABLE_PACKET_BYTES];
};

void cable_init(struct cable *cable,
                void (*out)(void *context, const struct path *path, const uint8_t *payload,
                            size_t bytes),
                bool (*room)(void *context), void *context);

/* A packet as one row of at most CABLE_BYTES bytes, for networks that carry such. What the IP and
 * UDP headers say is in it, so that damage there is damage to the packet. Returns how many. */
size_t cable_pack(uint8_t *out, const struct path *path, const uint8_t *payload, size_t bytes);
/* False: too short. */
bool cable_unpack(const uint8_t *in, size_t bytes, struct path *came, const uint8_t **payload,
                  size_t *payload_bytes);

#endif
