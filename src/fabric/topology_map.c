/* Ways through a topology, and its description in JSON: see topology_map.h. */
#include "fabric/topology_map.h"

#include <assert.h>
#include <string.h>

#include "fabric/text.h"

#define NOWHERE UINT16_MAX

/* Breadth first from @to: the first node on the way there, for every node. The way back is as long,
 * since links go both ways. */
bool topology_route(const struct topology *topology, uint32_t from, uint32_t to,
                    struct topology_path *path)
{
	uint16_t queue[TOPOLOGY_MAX_NODES];
	uint16_t toward[TOPOLOGY_MAX_NODES]; /* the link to take */
	uint32_t head = 0, tail = 0;
	assert(from < topology->node_count && to < topology->node_count && from != to);
	for (uint32_t i = 0; i < topology->node_count; i++)
		toward[i] = NOWHERE;
	queue[tail++] = (uint16_t)to;
	while (head < tail && toward[from] == NOWHERE) {
		uint16_t node = queue[head++];
		for (uint32_t i = 0; i < topology->link_count; i++)
			for (unsigned side = 0; side < 2; side++) {
				const struct topology_end *ends = topology->links[i].ends;
				uint16_t other = ends[!side].node;
				if (ends[side].node == node && other != to &&
				    toward[other] == NOWHERE) {
					toward[other] = (uint16_t)i;
					queue[tail++] = other;
				}
			}
	}
	if (toward[from] == NOWHERE)
		return false;
	path->hops = 0;
	for (uint32_t at = from; at != to;) {
		const struct topology_end *ends = topology->links[toward[at]].ends;
		unsigned side = ends[0].node == at ? 0 : 1;
		if (at == from)
			path->out_port = ends[side].port;
		else if (path->hops == IBC_MAX_HOPS)
			return false;
		else
			path->ports[path->hops++] = ends[side].port;
		at = ends[!side].node;
	}
	return true;
}

static void json_end(struct text *text, const struct topology *topology,
                     const struct topology_end *end)
{
	text_add(text, "{\"name\": \"");
	text_add(text, topology->nodes[end->node].name); /* letters, digits, '.', '_', '-' */
	text_add(text, "\", \"port\": ");
	text_add_number(text, end->port);
	text_add(text, "}");
}

static void json_port(struct text *text, const struct topology *topology, uint32_t node,
                      uint8_t port, const struct discovery *discovery)
{
	static const char *const states[DISCOVERY_PORT_COUNT] = {
	        [DISCOVERY_PORT_ABSENT] = "absent", [DISCOVERY_PORT_DOWN] = "down",
	        [DISCOVERY_PORT_UP] = "up",         [DISCOVERY_PORT_LINKED] = "linked",
	        [DISCOVERY_PORT_SILENT] = "silent", [DISCOVERY_PORT_REFUSED] = "refused",
	        [DISCOVERY_PORT_BEYOND] = "beyond",
	};
	const struct topology_node *at = &topology->nodes[node];
	text_add(text, "{\"port\": ");
	text_add_number(text, port);
	text_add(text, ", \"guid\": \"0x");
	text_add_hex(text, at->nic_ports[port].guid, 16);
	text_add(text, "\", \"nic_port\": ");
	text_add_number(text, at->nic_ports[port].number);
	if (discovery != NULL) {
		text_add(text, ", \"state\": \"");
		text_add(text, states[discovery->devices[node].ports[port]]);
		text_add(text, "\"");
	}
	unsigned end;
	int link = topology_link_at(topology, node, port, &end);
	if (link >= 0) {
		text_add(text, ", \"link\": ");
		json_end(text, topology, &topology->links[link].ends[!end]);
	}
	text_add(text, "}");
}

static void json_node(struct text *text, const struct topology *topology, uint32_t node,
                      const struct discovery *discovery)
{
	const struct topology_node *at = &topology->nodes[node];
	const char *between = "";
	text_add(text, "    {\"name\": \"");
	text_add(text, at->name);
	text_add(text, "\", \"kind\": \"");
	text_add(text, at->plain ? "switch" : "node");
	text_add(text, "\", \"id\": ");
	text_add_number(text, at->id);
	text_add(text, ", \"ports\": [");
	for (uint8_t port = 0; port < VSWITCH_HARDWARE_PORTS; port++)
		if (at->ports >> port & 1) {
			text_add(text, between);
			text_add(text, "\n      ");
			json_port(text, topology, node, port, discovery);
			between = ",";
		}
	text_add(text, "]}");
}

size_t topology_json(const struct topology *topology, const struct discovery *discovery, char *out,
                     size_t capacity)
{
	struct text text = text_begin(out, capacity);
	text_add(&text, "{\n  \"nodes\": [");
	for (uint32_t i = 0; i < topology->node_count; i++) {
		text_add(&text, i > 0 ? ",\n" : "\n");
		json_node(&text, topology, i, discovery);
	}
	text_add(&text, "],\n  \"links\": [");
	for (uint32_t i = 0; i < topology->link_count; i++) {
		text_add(&text, i > 0 ? ",\n    [" : "\n    [");
		json_end(&text, topology, &topology->links[i].ends[0]);
		text_add(&text, ", ");
		json_end(&text, topology, &topology->links[i].ends[1]);
		text_add(&text, "]");
	}
	text_add(&text, "]\n}\n");
	return text_fits(&text) ? text.length : 0;
}
