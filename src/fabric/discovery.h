/* Discovery: walk source routes from one node and draw the map of the network. A pure state
 * machine: packets come out of discovery_next(), answers go into discovery_receive(), and the
 * caller tells the time.
 *
 * Each probe is a command to the switch at the end of a route (wire/ibc_config.h), which answers
 * with its identifier, its ports and the port through which the probe came. So loops and parallel
 * links are recognised: a switch is new if its identifier is, a link if its two ports are.
 *
 *   own node        -> its ports
 *   each device     -> through each port that is up and has no known link: who is there?
 *   each new node   -> which NICs do these ports belong to?
 *
 * A probe that is not answered is repeated; then the port counts as silent. A device that
 * accepts none of the keys is left out, and its port is marked. */
#ifndef FABRIC_DISCOVERY_H
#define FABRIC_DISCOVERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fabric/topology.h"
#include "wire/ibc_config.h"

#define DISCOVERY_WINDOW   16u /* probes in flight */
#define DISCOVERY_MAX_KEYS 8u
/* Instead of a port: the packet is for the own node's switch. */
#define DISCOVERY_OWN_SWITCH 255u

enum discovery_port {
	DISCOVERY_PORT_ABSENT,
	DISCOVERY_PORT_DOWN,
	DISCOVERY_PORT_UP,      /* not probed yet */
	DISCOVERY_PORT_LINKED,  /* in the map */
	DISCOVERY_PORT_SILENT,  /* up, but no answer comes from the other side */
	DISCOVERY_PORT_REFUSED, /* the device on the other side accepts none of the keys */
	DISCOVERY_PORT_BEYOND,  /* what is there does not fit into a route, or into the map */
	DISCOVERY_PORT_COUNT
};

struct discovery_device {
	uint16_t parent; /* the device from which it was reached; its own index: the own node */
	uint8_t out;     /* by this port of that device */
	uint8_t key;     /* index of the key that it accepted */
	uint8_t depth;   /* how many links it is away */
	uint8_t ports[VSWITCH_HARDWARE_PORTS]; /* enum discovery_port */
};

struct discovery_probe {
	bool busy;
	bool due; /* to be sent */
	enum ibc_config_operation operation;
	uint16_t device; /* NICs: of this device. Ports: of what is behind its port .port */
	uint8_t port;
	uint8_t key;
	uint8_t tries;
	uint32_t transaction;
	uint64_t deadline_ns;
};

struct discovery_config {
	uint8_t source_apid;
	uint64_t guid;        /* of the NIC that probes name as their first */
	uint32_t transaction; /* of the first probe */
	uint8_t tries;        /* how often each probe is sent, from 1 on */
	uint64_t timeout_ns;
	unsigned key_count; /* 1 to DISCOVERY_MAX_KEYS */
	uint8_t keys[DISCOVERY_MAX_KEYS][IBC_KEY_BYTES];
};

struct discovery {
	struct discovery_config config;
	struct topology *map; /* devices[i] is map->nodes[i]; the own node is 0 */
	struct discovery_device devices[TOPOLOGY_MAX_NODES];
	struct discovery_probe probes[DISCOVERY_WINDOW];
	uint32_t next_device; /* where to look for the next port to probe */
	uint32_t next_transaction;
	uint64_t sent, answered, repeated;
};

struct discovery_packet {
	uint8_t out_port; /* of the own node, or DISCOVERY_OWN_SWITCH */
	struct ibc_packet packet;
	uint8_t payload[IBC_CONFIG_COMMAND_BYTES];
};

/* Start with an empty @map, which @discovery fills as it goes on. */
void discovery_begin(struct discovery *discovery, struct topology *map,
                     const struct discovery_config *config);
/* The next packet to send at @now_ns. False: none until something is received, or until
 * discovery_deadline_ns(). */
bool discovery_next(struct discovery *discovery, uint64_t now_ns, struct discovery_packet *out);
/* An answer or NACK has come; others are ignored. */
void discovery_receive(struct discovery *discovery, const struct ibc_packet *packet);
/* When to call discovery_next() at the latest; UINT64_MAX: nothing is in flight. */
uint64_t discovery_deadline_ns(const struct discovery *discovery);
/* Is the map complete? discovery_next() has returned false then. */
bool discovery_is_done(const struct discovery *discovery);

#endif
