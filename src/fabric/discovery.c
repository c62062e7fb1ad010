/* Discovery: see discovery.h. */
#include "fabric/discovery.h"

#include <assert.h>
#include <string.h>

#include "fabric/text.h"

void discovery_begin(struct discovery *discovery, struct topology *map,
                     const struct discovery_config *config)
{
	assert(config->key_count >= 1 && config->key_count <= DISCOVERY_MAX_KEYS);
	assert(config->tries >= 1 && config->timeout_ns > 0);
	memset(discovery, 0, sizeof(*discovery));
	discovery->config = *config;
	discovery->map = map;
	discovery->next_transaction = config->transaction;
	map->node_count = map->link_count = 0;
	/* The first probe asks the own switch; everything else follows from its answer. */
	discovery->probes[0] =
	        (struct discovery_probe){.busy = true,
	                                 .due = true,
	                                 .operation = IBC_CONFIG_PORTS,
	                                 .port = DISCOVERY_OWN_SWITCH,
	                                 .transaction = discovery->next_transaction++};
}

/* The ports from the own node to the device with index @device, in order; *count of them. */
static void path_to(const struct discovery *discovery, uint16_t device,
                    uint8_t ports[IBC_MAX_HOPS + 1], unsigned *count)
{
	*count = discovery->devices[device].depth;
	for (unsigned i = *count; i-- > 0;) {
		ports[i] = discovery->devices[device].out;
		device = discovery->devices[device].parent;
	}
	assert(device == 0);
}

static void probe_packet(const struct discovery *discovery, const struct discovery_probe *probe,
                         struct discovery_packet *out)
{
	uint8_t ports[IBC_MAX_HOPS + 2];
	unsigned count;
	path_to(discovery, probe->device, ports, &count); /* none to the own switch */
	if (probe->operation == IBC_CONFIG_PORTS && probe->port != DISCOVERY_OWN_SWITCH)
		ports[count++] = probe->port;
	assert(count <= IBC_MAX_HOPS + 1);
	struct ibc_config_command command = {.operation = probe->operation};
	memcpy(command.key, discovery->config.keys[probe->key], IBC_KEY_BYTES);
	size_t bytes = ibc_config_encode(&command, out->payload, sizeof(out->payload));
	assert(bytes == sizeof(out->payload));
	out->out_port = count > 0 ? ports[0] : DISCOVERY_OWN_SWITCH;
	out->packet = (struct ibc_packet){.type = IBC_TYPE_READ_REQUEST,
	                                  .source_apid = discovery->config.source_apid,
	                                  .dest_apid = VSWITCH_APID_CONFIG,
	                                  .guid = discovery->config.guid,
	                                  .transaction = probe->transaction,
	                                  .route = {.pointer = 1},
	                                  .payload = out->payload,
	                                  .payload_bytes = (uint16_t)bytes};
	if (count > 1) {
		out->packet.route.hops = (uint8_t)(count - 1);
		memcpy(out->packet.route.ports, ports + 1, count - 1);
	}
}

static struct discovery_probe *free_probe(struct discovery *discovery)
{
	for (unsigned i = 0; i < DISCOVERY_WINDOW; i++)
		if (!discovery->probes[i].busy)
			return &discovery->probes[i];
	return NULL;
}

static bool is_probed(const struct discovery *discovery, uint16_t device, uint8_t port)
{
	for (unsigned i = 0; i < DISCOVERY_WINDOW; i++) {
		const struct discovery_probe *probe = &discovery->probes[i];
		if (probe->busy && probe->operation == IBC_CONFIG_PORTS &&
		    probe->device == device && probe->port == port)
			return true;
	}
	return false;
}

/* A port that is up and that nobody has looked behind. Devices are asked in the order in which they
 * were found, so the ways are short. */
static bool next_port(struct discovery *discovery, uint16_t *device, uint8_t *port)
{
	bool open = false; /* a device before this one has ports in flight */
	for (uint32_t i = discovery->next_device; i < discovery->map->node_count; i++) {
		for (uint8_t p = 0; p < VSWITCH_HARDWARE_PORTS; p++) {
			if (discovery->devices[i].ports[p] != DISCOVERY_PORT_UP)
				continue;
			open = true;
			if (!is_probed(discovery, (uint16_t)i, p)) {
				*device = (uint16_t)i;
				*port = p;
				return true;
			}
		}
		if (!open)
			discovery->next_device = i + 1;
	}
	return false;
}

/* Use free places of the window for new probes. */
static void fill_window(struct discovery *discovery)
{
	struct discovery_probe *probe;
	uint16_t device;
	uint8_t port;
	while ((probe = free_probe(discovery)) != NULL && next_port(discovery, &device, &port)) {
		if (discovery->devices[device].depth > IBC_MAX_HOPS) {
			discovery->devices[device].ports[port] = DISCOVERY_PORT_BEYOND;
			continue;
		}
		*probe = (struct discovery_probe){.busy = true,
		                                  .due = true,
		                                  .operation = IBC_CONFIG_PORTS,
		                                  .device = device,
		                                  .port = port,
		                                  .key = discovery->devices[device].key,
		                                  .transaction = discovery->next_transaction++};
	}
}

static void give_up(struct discovery *discovery, struct discovery_probe *probe,
                    enum discovery_port state)
{
	probe->busy = false;
	if (probe->operation != IBC_CONFIG_PORTS || probe->port == DISCOVERY_OWN_SWITCH)
		return;
	uint8_t *port = &discovery->devices[probe->device].ports[probe->port];
	if (*port == DISCOVERY_PORT_UP)
		*port = (uint8_t)state;
}

bool discovery_next(struct discovery *discovery, uint64_t now_ns, struct discovery_packet *out)
{
	for (unsigned i = 0; i < DISCOVERY_WINDOW; i++) {
		struct discovery_probe *probe = &discovery->probes[i];
		if (!probe->busy || probe->due || probe->deadline_ns > now_ns)
			continue;
		if (probe->tries >= discovery->config.tries)
			give_up(discovery, probe, DISCOVERY_PORT_SILENT);
		else
			probe->due = true;
	}
	fill_window(discovery);
	for (unsigned i = 0; i < DISCOVERY_WINDOW; i++) {
		struct discovery_probe *probe = &discovery->probes[i];
		if (!probe->busy || !probe->due)
			continue;
		probe->due = false;
		probe->deadline_ns = now_ns + discovery->config.timeout_ns;
		discovery->repeated += probe->tries > 0;
		probe->tries++;
		discovery->sent++;
		probe_packet(discovery, probe, out);
		return true;
	}
	return false;
}

uint64_t discovery_deadline_ns(const struct discovery *discovery)
{
	uint64_t first = UINT64_MAX;
	for (unsigned i = 0; i < DISCOVERY_WINDOW; i++) {
		const struct discovery_probe *probe = &discovery->probes[i];
		if (probe->busy && !probe->due && probe->deadline_ns < first)
			first = probe->deadline_ns;
	}
	return first;
}

bool discovery_is_done(const struct discovery *discovery)
{
	for (unsigned i = 0; i < DISCOVERY_WINDOW; i++)
		if (discovery->probes[i].busy)
			return false;
	for (uint32_t i = discovery->next_device; i < discovery->map->node_count; i++)
		for (unsigned p = 0; p < VSWITCH_HARDWARE_PORTS; p++)
			if (discovery->devices[i].ports[p] == DISCOVERY_PORT_UP)
				return false;
	return true;
}

static int device_with(const struct topology *map, uint64_t id)
{
	for (uint32_t i = 0; i < map->node_count; i++)
		if (map->nodes[i].id == id)
			return (int)i;
	return -1;
}

/* Ask which NICs the ports of the new @device belong to. The place of the probe that found it is
 * free. */
static void ask_nics(struct discovery *discovery, uint16_t device)
{
	struct discovery_probe *probe = free_probe(discovery);
	assert(probe != NULL);
	*probe = (struct discovery_probe){.busy = true,
	                                  .due = true,
	                                  .operation = IBC_CONFIG_NICS,
	                                  .device = device,
	                                  .key = discovery->devices[device].key,
	                                  .transaction = discovery->next_transaction++};
}

/* The device that @answer describes is new. Returns its index, or -1: the map is full. */
static int add_device(struct discovery *discovery, const struct discovery_probe *probe,
                      const struct ibc_config_answer *answer)
{
	struct topology *map = discovery->map;
	if (map->node_count == TOPOLOGY_MAX_NODES)
		return -1;
	uint16_t index = (uint16_t)map->node_count++;
	struct topology_node *node = &map->nodes[index];
	struct discovery_device *device = &discovery->devices[index];
	*node = (struct topology_node){.id = answer->node, .plain = answer->plain};
	*device = (struct discovery_device){.parent = probe->device, .key = probe->key};
	if (probe->port != DISCOVERY_OWN_SWITCH) {
		device->out = probe->port;
		device->depth = (uint8_t)(discovery->devices[probe->device].depth + 1);
	}
	struct text name = text_begin(node->name, sizeof(node->name));
	text_add(&name, answer->plain ? "switch-" : "node-");
	text_add_number(&name, answer->node);
	for (unsigned i = 0; i < answer->count; i++) {
		const struct ibc_config_record *record = &answer->records[i];
		node->ports = (uint16_t)(node->ports | 1u << record->port);
		device->ports[record->port] =
		        record->state == IBC_PORT_UP ? DISCOVERY_PORT_UP : DISCOVERY_PORT_DOWN;
		node->nic_ports[record->port] =
		        (struct vswitch_nic_port){.guid = answer->node, .number = record->port};
	}
	if (!answer->plain)
		ask_nics(discovery, index);
	return index;
}

/* The port @port of @device leads to the port @arrival of @found. */
static void add_link(struct discovery *discovery, uint16_t device, uint8_t port, uint16_t found,
                     uint8_t arrival)
{
	struct topology *map = discovery->map;
	uint8_t *near = &discovery->devices[device].ports[port];
	uint8_t *far = &discovery->devices[found].ports[arrival];
	if (*near == DISCOVERY_PORT_LINKED)
		return; /* found from the other side meanwhile */
	if (!(map->nodes[found].ports >> arrival & 1) || *far == DISCOVERY_PORT_LINKED ||
	    map->link_count == TOPOLOGY_MAX_LINKS || (device == found && port == arrival)) {
		*near = DISCOVERY_PORT_SILENT; /* the network changes, or somebody lies */
		return;
	}
	*near = *far = DISCOVERY_PORT_LINKED;
	map->links[map->link_count++] = (struct topology_link){
	        .kind = TOPOLOGY_LINK_MEMORY,
	        .ends = {{.node = device, .port = port}, {.node = found, .port = arrival}}};
}

static void take_ports(struct discovery *discovery, struct discovery_probe *probe,
                       const struct ibc_config_answer *answer)
{
	struct discovery_probe done = *probe;
	bool own = done.port == DISCOVERY_OWN_SWITCH;
	if (answer->node == 0 || (!own && !vswitch_is_hardware(answer->arrival))) {
		give_up(discovery, probe, DISCOVERY_PORT_SILENT);
		return;
	}
	probe->busy = false;
	int found = device_with(discovery->map, answer->node);
	if (found < 0)
		found = add_device(discovery, &done, answer);
	if (found < 0) {
		give_up(discovery, &done, DISCOVERY_PORT_BEYOND);
		return;
	}
	if (!own)
		add_link(discovery, done.device, done.port, (uint16_t)found, answer->arrival);
}

static void take_nics(struct discovery *discovery, struct discovery_probe *probe,
                      const struct ibc_config_answer *answer)
{
	struct topology_node *node = &discovery->map->nodes[probe->device];
	probe->busy = false;
	if (answer->node != node->id)
		return;
	for (unsigned i = 0; i < answer->count; i++)
		node->nic_ports[answer->records[i].port] = (struct vswitch_nic_port){
		        .guid = answer->records[i].number, .number = answer->records[i].nic_port};
}

static void take_nack(struct discovery *discovery, struct discovery_probe *probe,
                      enum ibc_reason reason)
{
	if (reason == IBC_REASON_NOT_ALLOWED) {
		/* The next key, and after the last one the first, until all have been tried. */
		unsigned first = probe->port == DISCOVERY_OWN_SWITCH
		                         ? 0
		                         : discovery->devices[probe->device].key;
		probe->key = (uint8_t)((probe->key + 1u) % discovery->config.key_count);
		if (probe->key == first) {
			give_up(discovery, probe, DISCOVERY_PORT_REFUSED);
			return;
		}
		probe->due = true;
		probe->tries = 0;
		probe->transaction = discovery->next_transaction++;
		return;
	}
	give_up(discovery, probe,
	        reason == IBC_REASON_PORT_DOWN ? DISCOVERY_PORT_DOWN : DISCOVERY_PORT_SILENT);
}

void discovery_receive(struct discovery *discovery, const struct ibc_packet *packet)
{
	struct discovery_probe *probe = NULL;
	struct ibc_config_answer answer;
	for (unsigned i = 0; i < DISCOVERY_WINDOW && probe == NULL; i++)
		if (discovery->probes[i].busy && discovery->probes[i].tries > 0 &&
		    discovery->probes[i].transaction == packet->transaction)
			probe = &discovery->probes[i];
	if (probe == NULL)
		return;
	if (packet->type == IBC_TYPE_NACK) {
		discovery->answered++;
		take_nack(discovery, probe, packet->reason);
		return;
	}
	if (packet->type != IBC_TYPE_READ_RESPONSE ||
	    !ibc_config_decode_answer(&answer, packet->payload, packet->payload_bytes) ||
	    answer.operation != probe->operation)
		return;
	discovery->answered++;
	if (probe->operation == IBC_CONFIG_PORTS)
		take_ports(discovery, probe, &answer);
	else
		take_nics(discovery, probe, &answer);
}
