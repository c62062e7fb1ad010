/* All switches of a topology, without what is between them: a packet comes to one of them, and the
 * caller carries what leaves to the other end of the link. For tests of networks of switches. */
#ifndef CABLE_SWITCHES_H
#define CABLE_SWITCHES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fabric/topology.h"
#include "fabric/vswitch_config.h"

struct switches {
	const struct topology *topology;
	struct vswitch at[TOPOLOGY_MAX_NODES];
	struct vswitch_counters counters[TOPOLOGY_MAX_NODES];
	bool dead[TOPOLOGY_MAX_NODES]; /* it says nothing any more */
};

enum switches_fate {
	SWITCHES_DROPPED,
	SWITCHES_LEAVES,    /* out of the hardware port .port */
	SWITCHES_DELIVERED, /* to .applications, intact */
};

struct switches_out {
	enum switches_fate fate;
	uint8_t port;
	uint64_t applications;
	struct vswitch_decision decision; /* of the packet that came, if it was intact */
	size_t length;
	uint8_t bytes[IBC_MAX_BYTES]; /* the packet that leaves or is delivered */
};

/* Every switch of @topology, with all linked ports up and no applications. */
void switches_init(struct switches *switches, const struct topology *topology);
/* The @length bytes at @bytes come to @node through @inport, which is a hardware port or an APID:
 * what comes of it? A NACK, or the answer to a command, goes out of @inport. */
void switches_take(struct switches *switches, uint32_t node, uint8_t inport, const void *bytes,
                   size_t length, struct switches_out *out);
/* Both ends of the link are down, or up. */
void switches_set_link(struct switches *switches, uint32_t link, bool up);
/* The other end of the port; false: no link is there. */
bool switches_beyond(const struct switches *switches, uint32_t node, uint8_t port, uint32_t *other,
                     uint8_t *other_port);

#endif
