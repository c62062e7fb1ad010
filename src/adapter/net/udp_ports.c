/* Several wires, one per address, as one carrier. The source address of a packet selects the wire.
 * Each wire builds its own trains, so packets that alternate between two addresses are still
 * joined. With one address, none of this is in the way. */
#include <string.h>

#include "adapter/net/udp.h"
#include "wire/roce.h"

static struct udp_wire *wire_of(struct udp_wire *first, const struct path *path)
{
	for (struct udp_wire *at = first->next; at != NULL; at = at->next)
		if (memcmp(at->address.gid, path->ip.sgid, IB_GID_BYTES) == 0)
			return at;
	return first;
}

static uint8_t *ports_reserve(void *context, const struct path *path, size_t bytes)
{
	struct udp_wire *wire = wire_of(context, path);
	return wire->carrier.reserve(wire, path, bytes);
}

static void ports_commit(void *context, const struct path *path, size_t bytes)
{
	struct udp_wire *first = context, *wire = wire_of(first, path);
	first->last = wire;
	wire->carrier.commit(wire, path, bytes);
}

static bool ports_commit_from(void *context, const struct path *path, size_t header_bytes,
                              const void *from, size_t payload_bytes,
                              bool (*copy)(void *to, const void *from, size_t bytes, uint32_t *crc))
{
	struct udp_wire *first = context, *wire = wire_of(first, path);
	first->last = wire;
	return wire->carrier.commit_from(wire, path, header_bytes, from, payload_bytes, copy);
}

static bool ports_filling(void *context)
{
	struct udp_wire *first = context;
	return first->last->carrier.filling(first->last);
}

static void ports_flush(void *context)
{
	for (struct udp_wire *at = context; at != NULL; at = at->next)
		at->carrier.flush(at);
}

struct carrier *udp_ports_carrier(struct udp_wire *first)
{
	if (first->next == NULL)
		return &first->carrier;
	first->last = first;
	first->ports = (struct carrier){.reserve = ports_reserve,
	                                .commit = ports_commit,
	                                .commit_from = ports_commit_from,
	                                .filling = ports_filling,
	                                .flush = ports_flush,
	                                .context = first};
	return &first->ports;
}

struct udp_wire *udp_ports_find(struct udp_wire *first, const uint8_t *from, const uint8_t to[16])
{
	struct udp_wire *fits = NULL;
	for (struct udp_wire *at = first; at != NULL; at = at->next) {
		if (udp_address_is_ipv4(&at->address) != roce_gid_is_ipv4(to))
			continue;
		if (from != NULL && memcmp(at->address.gid, from, IB_GID_BYTES) == 0)
			return at;
		if (fits == NULL)
			fits = at;
	}
	return fits != NULL ? fits : first;
}

unsigned udp_ports_receive(struct udp_wire *first)
{
	unsigned packets = 0;
	for (struct udp_wire *at = first; at != NULL; at = at->next)
		packets += udp_wire_receive(at);
	return packets;
}

uint64_t udp_ports_received(const struct udp_wire *first)
{
	uint64_t packets = 0;
	for (const struct udp_wire *at = first; at != NULL; at = at->next)
		packets += at->counts.received;
	return packets;
}
