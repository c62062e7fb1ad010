/* heddle ibc discover, and heddle ibc route: the map of the network as it is now. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/prng.h"
#include "cli/ibc.h"

#define PROBE_TRIES 4u
#define PROBE_MS    250u
#define TEXT_BYTES  (16u << 20) /* more than any map needs */

/* Send a probe by the route that begins at our own switch, if it fits; else by the port's name. */
static int send_probe(const struct discovery *discovery, const struct discovery_packet *out)
{
	struct IBC_Target target = {.OutPort = IBC_PORT_ROUTE,
	                            .Destination = VSWITCH_APID_CONFIG,
	                            .Route = {.Pointer = 1}};
	unsigned at = 0;
	if (out->out_port != DISCOVERY_OWN_SWITCH) {
		if (out->packet.route.hops < IBC_LIMIT_HOPS) {
			target.Route.Ports[at++] = out->out_port;
		} else {
			const struct vswitch_nic_port *nic =
			        &discovery->map->nodes[0].nic_ports[out->out_port];
			target.GUID = nic->guid;
			target.OutPort = nic->number;
		}
	}
	memcpy(target.Route.Ports + at, out->packet.route.ports, out->packet.route.hops);
	target.Route.Hops = (uint8_t)(at + out->packet.route.hops);
	return IBC_SendTo(&target, (int)out->packet.type, out->packet.transaction, out->payload,
	                  out->packet.payload_bytes);
}

static void collect_keys(const struct network *network, struct discovery_config *config)
{
	if (network->has_key) { /* in place of those in the topology */
		memcpy(config->keys[config->key_count++], network->key, IBC_KEY_BYTES);
		return;
	}
	for (uint32_t i = 0; i < network->topology->node_count; i++) {
		const struct topology_node *node = &network->topology->nodes[i];
		bool known = !node->has_key || config->key_count == DISCOVERY_MAX_KEYS;
		for (unsigned k = 0; k < config->key_count; k++)
			known |= memcmp(config->keys[k], node->key, IBC_KEY_BYTES) == 0;
		if (!known)
			memcpy(config->keys[config->key_count++], node->key, IBC_KEY_BYTES);
	}
}

/* Devices that the topology file knows have the names that it gives them. */
static void name_devices(const struct network *network, struct topology *map)
{
	for (uint32_t i = 0; i < map->node_count; i++)
		for (uint32_t k = 0; k < network->topology->node_count; k++)
			if (network->topology->nodes[k].id == map->nodes[i].id)
				memcpy(map->nodes[i].name, network->topology->nodes[k].name,
				       TOPOLOGY_NAME_BYTES);
}

/* Wait for one packet until @end_ns, and take it. */
static void hear_one(struct discovery *discovery, IBC_HANDLE handle, uint64_t end_ns)
{
	static uint8_t buffer[IBC_LIMIT_PAYLOAD];
	uint64_t now_ns = clock_now_ns(), wait_ns = end_ns > now_ns ? end_ns - now_ns : 0;
	struct timespec timeout = {.tv_sec = (time_t)(wait_ns / 1000000000u),
	                           .tv_nsec = (long)(wait_ns % 1000000000u)};
	struct IBC_Info info;
	/* Only a switch speaks as the switch itself. */
	if (IBC_RecvWaitInfo(handle, &timeout, buffer, &info) != IBC_RECVDONE ||
	    info.Source != VSWITCH_APID_CONFIG)
		return;
	struct ibc_packet packet = {.type = (enum ibc_type)info.Type,
	                            .reason = (enum ibc_reason)info.Reason,
	                            .transaction = info.Transaction,
	                            .payload = buffer,
	                            .payload_bytes = (uint16_t)info.Length};
	discovery_receive(discovery, &packet);
}

static bool walk(struct network *network, struct discovery *discovery, struct topology *map)
{
	struct discovery_config config = {.transaction = (uint32_t)prng_secret(),
	                                  .tries = PROBE_TRIES,
	                                  .timeout_ns = PROBE_MS * UINT64_C(1000000)};
	struct discovery_packet out;
	IBC_HANDLE handle;
	collect_keys(network, &config);
	if (config.key_count == 0) {
		fprintf(stderr,
		        "%s: discovery needs the key of the switches: --key, or a topology "
		        "file that has it\n",
		        network->name);
		return false;
	}
	if (IBC_RecvPost(&handle) != IBC_SUCCESS)
		return false;
	discovery_begin(discovery, map, &config);
	while (!discovery_is_done(discovery)) {
		while (discovery_next(discovery, clock_now_ns(), &out))
			send_probe(discovery, &out); /* what cannot be sent is not answered */
		uint64_t end_ns = discovery_deadline_ns(discovery);
		if (end_ns != UINT64_MAX)
			hear_one(discovery, handle, end_ns);
	}
	IBC_CloseHandle(handle);
	if (map->node_count == 0)
		fprintf(stderr,
		        "%s: the switch of the own node does not answer: is its port process "
		        "up, and the key right?\n",
		        network->name);
	name_devices(network, map);
	return map->node_count > 0;
}

static bool write_text(const struct network *network, const char *path, const char *text,
                       size_t bytes)
{
	FILE *file = strcmp(path, "-") == 0 ? stdout : fopen(path, "we");
	bool good = file != NULL && bytes > 0 && fwrite(text, 1, bytes, file) == bytes;
	if (file != NULL && file != stdout)
		good &= fclose(file) == 0;
	if (!good)
		fprintf(stderr, "%s: %s: %s\n", network->name, path, strerror(errno));
	return good;
}

static void print_map(const struct topology *map, const struct discovery *discovery)
{
	static const char *const states[DISCOVERY_PORT_COUNT] = {
	        [DISCOVERY_PORT_DOWN] = "down",
	        [DISCOVERY_PORT_SILENT] = "up, but no answer from the other end",
	        [DISCOVERY_PORT_REFUSED] = "the other end accepts no key",
	        [DISCOVERY_PORT_BEYOND] = "too far away",
	};
	char shown[NETWORK_ROUTE_BYTES];
	for (uint32_t i = 0; i < map->node_count; i++) {
		const struct topology_node *node = &map->nodes[i];
		struct topology_path path;
		uint8_t ports[IBC_MAX_HOPS + 1];
		printf("%s, %s %llu", node->name, node->plain ? "switch" : "node",
		       (unsigned long long)node->id);
		if (i > 0 && topology_route(map, 0, i, &path)) {
			ports[0] = path.out_port;
			memcpy(ports + 1, path.ports, path.hops);
			network_print_route(ports, path.hops + 1u, shown, sizeof(shown));
			printf(", route %s", shown);
		}
		putchar('\n');
		for (uint8_t port = 0; port < VSWITCH_HARDWARE_PORTS; port++) {
			if (!(node->ports >> port & 1))
				continue;
			unsigned end;
			int link = topology_link_at(map, i, port, &end);
			const char *state = states[discovery->devices[i].ports[port]];
			if (link >= 0)
				printf("  port %-2u  %s port %u\n", port,
				       map->nodes[map->links[link].ends[!end].node].name,
				       map->links[link].ends[!end].port);
			else
				printf("  port %-2u  %s\n", port, state != NULL ? state : "up");
		}
	}
	printf("%u %s, %u link%s\n", map->node_count,
	       map->node_count == 1 ? "node or switch" : "nodes and switches", map->link_count,
	       map->link_count == 1 ? "" : "s");
}

/* Write @map as a topology file to @text. Returns its length, or 0. */
static size_t print_conf(const struct topology *map, char *text)
{
	static const char head[] =
	        "# As discovered; all links are shm. The file has no keys, and a switch without "
	        "one "
	        "takes no commands:\n# write \"key DIGITS\" above the first node (openssl rand "
	        "-hex 16 makes one).\n";
	memcpy(text, head, sizeof(head) - 1);
	size_t bytes = topology_print(map, text + sizeof(head) - 1, TEXT_BYTES - sizeof(head) + 1);
	return bytes > 0 ? bytes + sizeof(head) - 1 : 0;
}

int ibc_verb_discover(struct ibc_options *options, struct network *network)
{
	struct discovery *discovery = malloc(sizeof(*discovery));
	struct topology *map = calloc(1, sizeof(*map));
	char *text = malloc(TEXT_BYTES);
	bool good = false;
	if (discovery == NULL || map == NULL || text == NULL)
		fprintf(stderr, "%s: out of memory\n", network->name);
	else
		good = network_attach(network, options->node) && walk(network, discovery, map);
	if (good && options->svg != NULL)
		good = write_text(network, options->svg, text, topology_svg(map, text, TEXT_BYTES));
	if (good && options->conf != NULL)
		good = write_text(network, options->conf, text, print_conf(map, text));
	if (good && options->json)
		good = write_text(network, "-", text,
		                  topology_json(map, discovery, text, TEXT_BYTES));
	else if (good)
		print_map(map, discovery);
	free(discovery);
	free(map);
	free(text);
	return good ? 0 : 1;
}

/* Print the way from @from to @to through @map. */
static int print_way(const struct ibc_options *options, const struct network *network,
                     const struct topology *map)
{
	int from = topology_find(map, options->operands[0]);
	int to = topology_find(map, options->operands[1]);
	struct topology_path path;
	char shown[NETWORK_ROUTE_BYTES];
	if (from < 0 || to < 0) {
		const char *name = options->operands[from < 0 ? 0 : 1];
		if (topology_find(network->topology, name) >= 0)
			fprintf(stderr,
			        "%s: no way leads to %s now; `heddle ibc discover' shows what is "
			        "reached from %s\n",
			        network->name, name, network->node);
		else
			fprintf(stderr, "%s: there is no node or switch '%s'\n", network->name,
			        name);
		return 1;
	}
	uint8_t ports[IBC_MAX_HOPS + 1];
	unsigned hops = 0;
	if (from != to) {
		if (!topology_route(map, (uint32_t)from, (uint32_t)to, &path)) {
			fprintf(stderr, "%s: there is no way from %s to %s\n", network->name,
			        options->operands[0], options->operands[1]);
			return 1;
		}
		ports[0] = path.out_port;
		memcpy(ports + 1, path.ports, path.hops);
		hops = path.hops + 1u;
	}
	network_print_route(ports, hops, shown, sizeof(shown));
	if (options->json)
		printf("{\"from\": \"%s\", \"to\": \"%s\", \"route\": \"%s\"}\n",
		       options->operands[0], options->operands[1], shown);
	else
		puts(shown);
	return 0;
}

int ibc_verb_route(struct ibc_options *options, struct network *network)
{
	if (options->file != NULL) /* of the file, whether it is up or not */
		return print_way(options, network, network->topology);
	struct discovery *discovery = malloc(sizeof(*discovery));
	struct topology *map = calloc(1, sizeof(*map));
	int status = 1;
	if (discovery != NULL && map != NULL && network_attach(network, options->node) &&
	    walk(network, discovery, map))
		status = print_way(options, network, map);
	free(discovery);
	free(map);
	return status;
}
