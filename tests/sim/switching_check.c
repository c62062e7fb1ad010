/* The judge of worlds of switches. It knows the topology and what was sent, and follows routes by
 * itself, without the forwarding process. */
#include "switching.h"

#include <inttypes.h>
#include <string.h>

#define NO_PORT 255u

struct switching_walk switching_follow(const struct topology *topology, uint32_t node,
                                       uint8_t inport, int out_port, const struct ibc_route *route)
{
	struct switching_walk walk = {.node = node, .inport = inport, .apid = -1};
	unsigned left = route->reverse ? route->pointer : route->hops + 1u - route->pointer;
	uint8_t next = 0;
	bool by_port = out_port >= 0;
	if (by_port)
		next = (uint8_t)out_port;
	for (;;) {
		if (!by_port) {
			if (left == 0)
				break;
			unsigned at = route->reverse ? left - 1u : route->hops - left;
			next = route->ports[at];
			walk.arrivals[at] = walk.inport;
			left--;
			walk.used++;
		}
		if (!by_port && next == walk.inport)
			return walk; /* no switch sends a packet back by the port it came from */
		by_port = false;
		if (!vswitch_is_hardware(next)) { /* an application, even within the route */
			walk.ends = true;
			walk.apid = next;
			return walk;
		}
		unsigned end;
		int link = topology_link_at(topology, walk.node, next, &end);
		if (link < 0)
			return walk;
		walk.node = topology->links[link].ends[!end].node;
		walk.inport = topology->links[link].ends[!end].port;
	}
	walk.ends = true;
	return walk;
}

/* Does the way back from @node, where @packet came through @inport, lead to @client? */
static bool leads_back(const struct switching_world *world, uint32_t node, uint8_t inport,
                       bool by_route, const struct ibc_packet *packet,
                       const struct switching_client *client)
{
	struct ibc_route back = ibc_turn_around(&packet->route);
	if (!by_route && !vswitch_is_hardware(inport))
		return node == client->node && inport == client->apid && back.pointer == 0;
	struct switching_walk walk =
	        switching_follow(&world->topology, node, NO_PORT, by_route ? -1 : inport, &back);
	return walk.ends && walk.node == client->node;
}

static void check_request(struct switching_world *world, uint32_t node, uint8_t inport,
                          uint8_t apid, const struct ibc_packet *packet,
                          struct switching_request *request)
{
	const struct switching_walk *walk = &request->walk;
	const struct switching_client *sender = &world->clients[request->client];
	uint8_t wanted = walk->apid >= 0 ? (uint8_t)walk->apid : request->dest_apid;
	request->deliveries++;
	if (!walk->ends || walk->node != node || walk->inport != inport || apid != wanted)
		scenario_fail(world->run,
		              "request %u came to application %u of node %u by port %u; its route "
		              "leads to application %u of node %u, by port %u",
		              packet->transaction, apid, node, inport, wanted, walk->node,
		              walk->inport);
	/* It came along its route: each switch left its port of arrival. */
	if (packet->route.hops != request->route.hops || packet->route.pointer != walk->used + 1u ||
	    memcmp(packet->route.ports, walk->arrivals, walk->used) != 0 ||
	    memcmp(packet->route.ports + walk->used, request->route.ports + walk->used,
	           packet->route.hops - walk->used) != 0)
		scenario_fail(world->run, "request %u has another way behind it than its route",
		              packet->transaction);
	if (!leads_back(world, node, inport, walk->apid >= 0, packet, sender))
		scenario_fail(world->run, "the way back of request %u does not lead back",
		              packet->transaction);
	if (packet->type != request->type || packet->source_apid != request->source_apid ||
	    packet->payload_bytes != request->payload_bytes ||
	    memcmp(packet->payload, request->payload, packet->payload_bytes) != 0)
		scenario_fail(world->run, "request %u is not what was sent", packet->transaction);
}

static void check_answer(struct switching_world *world, uint32_t node, uint8_t apid,
                         const struct ibc_packet *packet, struct switching_request *request)
{
	const struct switching_client *sender = &world->clients[request->client];
	bool nack = packet->type == IBC_TYPE_NACK;
	/* A sender that forges its APID has answers go to another one of its node. */
	if (node != sender->node || (apid != request->source_apid && apid != sender->apid)) {
		/* A NACK may also tell who answered that the answer did not arrive. */
		if (!nack || request->deliveries == 0)
			scenario_fail(world->run,
			              "the answer to request %u came to application %u of node %u",
			              packet->transaction, apid, node);
		return;
	}
	if (!nack && request->deliveries == 0)
		scenario_fail(world->run, "request %u was answered but never delivered",
		              packet->transaction);
	if (!nack && (packet->payload_bytes != request->payload_bytes ||
	              memcmp(packet->payload, request->payload, packet->payload_bytes) != 0))
		scenario_fail(world->run, "the answer to request %u is damaged",
		              packet->transaction);
	if (request->end != SWITCHING_OPEN)
		return; /* a second one, or late */
	request->end = nack ? SWITCHING_NACK : SWITCHING_RESPONSE;
	switching_check_end(world, request);
}

void switching_check_delivery(struct switching_world *world, uint32_t node, uint8_t inport,
                              uint8_t apid, const struct ibc_packet *packet)
{
	if (packet->transaction >= world->request_count) {
		scenario_fail(world->run, "a packet that nobody sent: transaction %u",
		              packet->transaction);
		return;
	}
	struct switching_request *request = &world->requests[packet->transaction];
	switch (packet->type) {
	case IBC_TYPE_READ_RESPONSE:
	case IBC_TYPE_WRITE_RESPONSE:
	case IBC_TYPE_NACK:
		check_answer(world, node, apid, packet, request);
		break;
	default:
		check_request(world, node, inport, apid, packet, request);
		break;
	}
}

/* Where nothing fails, a request is answered or rejected, and never forgotten. */
void switching_check_end(struct switching_world *world, const struct switching_request *request)
{
	unsigned number = (unsigned)(request - world->requests);
	bool silent = request->type == IBC_TYPE_WRITE_REQUEST_NO_ACK;
	bool forged = request->source_apid != world->clients[request->client].apid;
	sim_note(world->sim, 0, number, request->end);
	if (!world->faultless)
		return;
	if (request->end == SWITCHING_TIMEOUT && !forged && (!silent || request->deliveries != 1))
		scenario_fail(world->run, "request %u got no answer, though nothing failed",
		              number);
	if (request->end == SWITCHING_NACK && !forged && request->deliveries > 0)
		scenario_fail(world->run, "request %u was delivered and rejected", number);
	if (request->deliveries > 1)
		scenario_fail(world->run, "request %u was delivered %u times", number,
		              request->deliveries);
}

static int true_node(const struct topology *topology, uint64_t id)
{
	for (uint32_t i = 0; i < topology->node_count; i++)
		if (topology->nodes[i].id == id)
			return (int)i;
	return -1;
}

/* How many nodes and links can be reached from the first node. */
static void reachable(const struct topology *topology, uint32_t *nodes, uint32_t *links)
{
	static bool seen[TOPOLOGY_MAX_NODES];
	bool grown = true;
	memset(seen, 0, sizeof(seen));
	seen[0] = true;
	*nodes = 1;
	while (grown) {
		grown = false;
		for (uint32_t i = 0; i < topology->link_count; i++) {
			uint32_t a = topology->links[i].ends[0].node;
			uint32_t b = topology->links[i].ends[1].node;
			if (seen[a] != seen[b]) {
				seen[a] = seen[b] = grown = true;
				++*nodes;
			}
		}
	}
	*links = 0;
	for (uint32_t i = 0; i < topology->link_count; i++)
		*links += seen[topology->links[i].ends[0].node];
}

void switching_check_map(struct switching_world *world)
{
	const struct topology *truth = &world->topology, *map = &world->map;
	uint32_t nodes, links;
	if (!discovery_is_done(&world->discovery))
		scenario_fail(world->run, "discovery did not end");
	for (uint32_t i = 0; i < map->node_count; i++) {
		int node = true_node(truth, map->nodes[i].id);
		if (node < 0 || truth->nodes[node].plain != map->nodes[i].plain ||
		    truth->nodes[node].ports != map->nodes[i].ports)
			scenario_fail(world->run, "the map has a wrong node, %" PRIu64,
			              map->nodes[i].id);
	}
	for (uint32_t i = 0; i < map->link_count && !world->run->failed; i++) {
		const struct topology_end *ends = map->links[i].ends;
		unsigned end;
		int node = true_node(truth, map->nodes[ends[0].node].id);
		int link = topology_link_at(truth, (uint32_t)node, ends[0].port, &end);
		if (link < 0 || truth->links[link].ends[!end].port != ends[1].port ||
		    truth->nodes[truth->links[link].ends[!end].node].id !=
		            map->nodes[ends[1].node].id)
			scenario_fail(world->run, "the map has a wrong link, %u", i);
	}
	reachable(truth, &nodes, &links);
	if (world->faultless && (map->node_count != nodes || map->link_count != links))
		scenario_fail(world->run, "the map has %u nodes and %u links; there are %u and %u",
		              map->node_count, map->link_count, nodes, links);
}
