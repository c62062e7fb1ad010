/* A topology as text: its file, and messages about a file with an error. */
#include <string.h>

#include "fabric/text.h"
#include "fabric/topology.h"

void topology_explain(const struct topology_error *error, const char *file,
                      char message[TOPOLOGY_MESSAGE_BYTES])
{
	struct text text = text_begin(message, TOPOLOGY_MESSAGE_BYTES);
	text_add(&text, file);
	text_add(&text, ":");
	text_add_number(&text, error->line);
	text_add(&text, ": expected ");
	text_add(&text, error->expected);
	if (error->found[0] != '\0') {
		text_add(&text, ", found '");
		text_add(&text, error->found);
		text_add(&text, "'");
	}
}

static void add_apids(struct text *text, uint64_t denied)
{
	uint64_t allowed = VSWITCH_APIDS & ~denied;
	const char *before = "";
	for (unsigned first = 0, last; first < VSWITCH_PORTS; first = last + 1) {
		last = first;
		if ((allowed >> first & 1) == 0)
			continue;
		while (last + 1 < VSWITCH_PORTS && (allowed >> (last + 1) & 1) != 0)
			last++;
		text_add(text, before);
		text_add_number(text, first);
		if (last > first) {
			text_add(text, "-");
			text_add_number(text, last);
		}
		before = " ";
	}
}

void topology_print_apids(uint64_t denied, char out[TOPOLOGY_APIDS_BYTES])
{
	struct text text = text_begin(out, TOPOLOGY_APIDS_BYTES);
	add_apids(&text, denied);
}

/* The NICs of @node, in the order of their first ports; those of one NIC in its own order. */
static void print_nics(struct text *text, const struct topology_node *node)
{
	uint16_t printed = 0;
	for (unsigned first = 0; first < VSWITCH_HARDWARE_PORTS; first++) {
		if (!(node->ports & ~printed & 1u << first))
			continue;
		uint64_t guid = node->nic_ports[first].guid;
		text_add(text, "    nic guid ");
		text_add_number(text, guid);
		text_add(text, " ports");
		for (unsigned number = 0; number < VSWITCH_HARDWARE_PORTS; number++)
			for (unsigned port = 0; port < VSWITCH_HARDWARE_PORTS; port++)
				if (node->ports >> port & 1 && node->nic_ports[port].guid == guid &&
				    node->nic_ports[port].number == number) {
					text_add(text, " ");
					text_add_number(text, port);
					printed = (uint16_t)(printed | 1u << port);
				}
		text_add(text, "\n");
		if (node->nic_ports[first].denied != 0) {
			text_add(text, "    apids ");
			add_apids(text, node->nic_ports[first].denied);
			text_add(text, "\n");
		}
	}
}

static void print_node(struct text *text, const struct topology_node *node)
{
	text_add(text, node->plain ? "switch " : "node ");
	text_add(text, node->name);
	text_add(text, " id ");
	text_add_number(text, node->id);
	if (node->plain) {
		text_add(text, " ports");
		for (unsigned port = 0; port < VSWITCH_HARDWARE_PORTS; port++)
			if (node->ports >> port & 1) {
				text_add(text, " ");
				text_add_number(text, port);
			}
	}
	text_add(text, "\n");
	if (!node->plain)
		print_nics(text, node);
	if (node->has_key) {
		text_add(text, "    key ");
		for (unsigned i = 0; i < IBC_KEY_BYTES; i++)
			text_add_hex(text, node->key[i], 2);
		text_add(text, "\n");
	}
}

static void print_address(struct text *text, const struct topology_address *address)
{
	text_add(text, address->ipv6 ? " [" : " ");
	for (unsigned i = 0; i < (address->ipv6 ? 8u : 4u); i++) {
		if (i > 0)
			text_add(text, address->ipv6 ? ":" : ".");
		if (address->ipv6)
			text_add_hex(text,
			             (uint64_t)address->bytes[2 * i] << 8 |
			                     address->bytes[2 * i + 1],
			             4);
		else
			text_add_number(text, address->bytes[i]);
	}
	text_add(text, address->ipv6 ? "]:" : ":");
	text_add_number(text, address->port);
}

static void print_ethernet(struct text *text, const struct topology_end *end)
{
	text_add(text, " ");
	text_add(text, end->interface);
	for (unsigned i = 0; i < 6 && end->has_mac; i++) {
		text_add(text, i == 0 ? "/" : ":");
		text_add_hex(text, end->mac[i], 2);
	}
}

static void print_link(struct text *text, const struct topology *topology,
                       const struct topology_link *link)
{
	static const char *const kinds[TOPOLOGY_LINK_KIND_COUNT] = {[TOPOLOGY_LINK_MEMORY] = " shm",
	                                                            [TOPOLOGY_LINK_UDP] = " udp",
	                                                            [TOPOLOGY_LINK_ETHERNET] =
	                                                                    " ethernet"};
	text_add(text, "link");
	for (unsigned side = 0; side < 2; side++) {
		text_add(text, " ");
		text_add(text, topology->nodes[link->ends[side].node].name);
		text_add(text, ":");
		text_add_number(text, link->ends[side].port);
	}
	text_add(text, kinds[link->kind]);
	for (unsigned side = 0; side < 2; side++) {
		if (link->kind == TOPOLOGY_LINK_UDP)
			print_address(text, &link->ends[side].address);
		else if (link->kind == TOPOLOGY_LINK_ETHERNET)
			print_ethernet(text, &link->ends[side]);
	}
	text_add(text, "\n");
}

size_t topology_print(const struct topology *topology, char *out, size_t capacity)
{
	struct text text = text_begin(out, capacity);
	for (uint32_t i = 0; i < topology->node_count; i++)
		print_node(&text, &topology->nodes[i]);
	for (uint32_t i = 0; i < topology->link_count; i++)
		print_link(&text, topology, &topology->links[i]);
	return text_fits(&text) ? text.length : 0;
}
