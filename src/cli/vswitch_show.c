/* heddle vswitch show: the nodes and switches of this user, as the agent and the switches tell. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/vswitch.h"
#include "ibc/observe.h"

static const char *const counter_names[IBC_COUNTER_COUNT] = {
        [IBC_COUNTER_FORWARDED] = "forwarded",
        [IBC_COUNTER_DELIVERED] = "delivered",
        [IBC_COUNTER_CONSUMED] = "consumed",
        [IBC_COUNTER_DAMAGED] = "damaged",
        [IBC_COUNTER_REJECTED] = "rejected",
        [IBC_COUNTER_REJECTED + IBC_REASON_NO_APPLICATION] = "no_application",
        [IBC_COUNTER_REJECTED + IBC_REASON_NO_PORT] = "no_port",
        [IBC_COUNTER_REJECTED + IBC_REASON_PORT_DOWN] = "port_down",
        [IBC_COUNTER_REJECTED + IBC_REASON_POINTER] = "pointer",
        [IBC_COUNTER_REJECTED + IBC_REASON_TOO_LONG] = "too_long",
        [IBC_COUNTER_REJECTED + IBC_REASON_LOOP] = "loop",
        [IBC_COUNTER_REJECTED + IBC_REASON_NOT_ALLOWED] = "not_allowed",
        [IBC_COUNTER_REJECTED + IBC_REASON_NO_RECEIVE] = "no_receive",
        [IBC_COUNTER_UNCAPTURED] = "missing_in_capture",
};
static const char *const port_counter_names[IBC_PORT_COUNTER_COUNT] = {
        [IBC_PORT_COUNTER_IN] = "in",           [IBC_PORT_COUNTER_IN_BYTES] = "in_bytes",
        [IBC_PORT_COUNTER_OUT] = "out",         [IBC_PORT_COUNTER_OUT_BYTES] = "out_bytes",
        [IBC_PORT_COUNTER_DAMAGED] = "damaged", [IBC_PORT_COUNTER_LOST] = "lost",
        [IBC_PORT_COUNTER_DROPPED] = "dropped", [IBC_PORT_COUNTER_DOWNS] = "downs",
};

struct show {
	const struct vswitch_options *options;
	struct network *network;
	json_t *nodes; /* by name */
};

static bool show_wants(const struct vswitch_options *options, const char *name)
{
	for (int i = 0; i < options->given; i++)
		if (strcmp(options->operands[i], name) == 0)
			return true;
	return options->given == 0;
}

/* The port @port of @board, and what the topology says is at its other end. */
static json_t *describe_port(const struct show *show, const struct board *board, int node,
                             uint8_t port)
{
	static const char *const states[] = {"absent", "down", "up"};
	const struct topology *topology = show->network->topology;
	char guid[24], link[TOPOLOGY_NAME_BYTES + 8];
	unsigned end;
	snprintf(guid, sizeof(guid), "0x%016llx",
	         (unsigned long long)board->vswitch.nic_ports[port].guid);
	json_t *row = json_pack("{s:i,s:s,s:s,s:i}", "port", port, "state",
	                        states[board->vswitch.states[port] % 3], "guid", guid, "nic_port",
	                        board->vswitch.nic_ports[port].number);
	if (board->vswitch.nic_ports[port].denied != 0) {
		char apids[TOPOLOGY_APIDS_BYTES];
		topology_print_apids(board->vswitch.nic_ports[port].denied, apids);
		json_object_set_new(row, "apids", json_string(apids));
	}
	int at = node >= 0 ? topology_link_at(topology, (uint32_t)node, port, &end) : -1;
	if (at >= 0) {
		const struct topology_end *other = &topology->links[at].ends[!end];
		snprintf(link, sizeof(link), "%s:%u", topology->nodes[other->node].name,
		         other->port);
		json_object_set_new(row, "link", json_string(link));
	}
	return row;
}

static void look(const struct observed_member *member, void *context)
{
	struct show *show = context;
	if (!show_wants(show->options, member->node))
		return;
	int index = topology_find(show->network->topology, member->node);
	json_t *node = json_object_get(show->nodes, member->node);
	if (node == NULL) {
		node = json_pack("{s:s,s:I,s:s,s:[],s:[]}", "name", member->node, "id",
		                 (json_int_t)member->board->vswitch.node, "kind",
		                 member->board->vswitch.plain ? "switch" : "node", "ports",
		                 "applications");
		json_object_set_new(show->nodes, member->node, node);
		for (uint8_t port = 0; port < VSWITCH_HARDWARE_PORTS; port++)
			if (member->board->vswitch.states[port] != VSWITCH_PORT_ABSENT)
				json_array_append_new(
				        json_object_get(node, "ports"),
				        describe_port(show, member->board, index, port));
	}
	if (member->ports)
		json_object_set_new(node, "pid", json_integer(member->pid));
	for (uint64_t left = member->apids; left != 0; left &= left - 1)
		json_array_append_new(json_object_get(node, "applications"),
		                      json_pack("{s:i,s:i,s:s}", "apid", __builtin_ctzll(left),
		                                "pid", (int)member->pid, "program",
		                                member->program));
}

static json_t *counters_of(const struct network_answer *answer, const char *const *names,
                           unsigned count)
{
	json_t *all = json_object();
	for (unsigned i = 0; i < answer->config.count && i < count; i++)
		if (names[i] != NULL)
			json_object_set_new(
			        all, names[i],
			        json_integer((json_int_t)answer->config.records[i].number));
	return all;
}

/* Ask the switch itself for its counters. */
static void add_counters(struct show *show, json_t *node, const char *name)
{
	struct network *network = show->network;
	struct ibc_config_command command = {.operation = IBC_CONFIG_COUNTERS};
	struct network_answer answer;
	struct IBC_Route route;
	char words[160];
	size_t i;
	json_t *port;
	int index = topology_find(network->topology, name);
	const uint8_t *key = index >= 0 ? network_key(network, index) : NULL;
	const char *from = show->options->only_count > 0 ? show->options->only[0] : NULL;
	if (key == NULL || json_object_get(node, "pid") == NULL)
		return;
	memcpy(command.key, key, IBC_KEY_BYTES);
	if (!vswitch_reach(network, from, index, &route))
		return;
	network_print_route(route.Ports, route.Hops, words, sizeof(words));
	json_object_set_new(node, "route", json_string(words));
	json_object_set_new(node, "route_from",
	                    json_string(network->topology->nodes[network->own].name));
	network_ask(network, &route, &command, 2, &answer);
	if (answer.result != NETWORK_OK) {
		network_explain(network, &answer, words, sizeof(words));
		json_object_set_new(node, "counters_missing", json_string(words));
		return;
	}
	json_object_set_new(node, "counters",
	                    counters_of(&answer, counter_names, IBC_COUNTER_COUNT));
	command.operation = IBC_CONFIG_PORT_COUNTERS;
	json_array_foreach(json_object_get(node, "ports"), i, port)
	{
		command.port = (uint8_t)json_integer_value(json_object_get(port, "port"));
		network_ask(network, &route, &command, 2, &answer);
		if (answer.result == NETWORK_OK)
			json_object_set_new(
			        port, "counters",
			        counters_of(&answer, port_counter_names, IBC_PORT_COUNTER_COUNT));
	}
}

static void print_counters(json_t *counters)
{
	const char *name;
	json_t *value, *between = NULL;
	json_object_foreach(counters, name, value)
	{
		if (json_integer_value(value) == 0)
			continue;
		printf("%s%lld %s", between == NULL ? "" : ", ",
		       (long long)json_integer_value(value), name);
		between = value;
	}
	putchar('\n');
}

static void show_node(json_t *node)
{
	size_t i;
	json_t *item;
	const char *route = json_string_value(json_object_get(node, "route"));
	bool has_nics = strcmp(json_string_value(json_object_get(node, "kind")), "node") == 0;
	printf("%s, %s %lld", json_string_value(json_object_get(node, "name")),
	       json_string_value(json_object_get(node, "kind")),
	       (long long)json_integer_value(json_object_get(node, "id")));
	if (json_object_get(node, "pid") != NULL)
		printf(", process %lld",
		       (long long)json_integer_value(json_object_get(node, "pid")));
	else
		printf(", no port process");
	if (route != NULL && strcmp(route, ".") != 0)
		printf(", route %s from %s", route,
		       json_string_value(json_object_get(node, "route_from")));
	putchar('\n');
	json_array_foreach(json_object_get(node, "ports"), i, item)
	{
		const char *link = json_string_value(json_object_get(item, "link"));
		printf("  port %-2lld %-5s %-12s ",
		       (long long)json_integer_value(json_object_get(item, "port")),
		       json_string_value(json_object_get(item, "state")),
		       link != NULL ? link : "-");
		if (has_nics) /* what IBC_Send() takes */
			printf("NIC %#llx port %-2lld  ",
			       strtoull(json_string_value(json_object_get(item, "guid")), NULL, 0),
			       (long long)json_integer_value(json_object_get(item, "nic_port")));
		if (json_object_get(item, "apids") != NULL)
			printf("apids %s  ", json_string_value(json_object_get(item, "apids")));
		print_counters(json_object_get(item, "counters"));
	}
	json_array_foreach(json_object_get(node, "applications"), i, item)
	        printf("  application %-2lld process %lld (%s)\n",
	               (long long)json_integer_value(json_object_get(item, "apid")),
	               (long long)json_integer_value(json_object_get(item, "pid")),
	               json_string_value(json_object_get(item, "program")));
	if (json_object_get(node, "counters") != NULL) {
		printf("  packets: ");
		print_counters(json_object_get(node, "counters"));
	} else if (json_object_get(node, "counters_missing") != NULL) {
		printf("  counters: %s\n",
		       json_string_value(json_object_get(node, "counters_missing")));
	}
}

int vswitch_show(struct vswitch_options *options, struct network *network)
{
	struct show show = {.options = options, .network = network, .nodes = json_object()};
	const char *name;
	json_t *node, *list = json_array();
	size_t i;
	network_read_current(network);
	int error = ibc_observe(look, &show);
	if (error != 0)
		fprintf(stderr, "%s: %s\n", network->name, strerror(-error));
	bool missing = false;
	for (int k = 0; k < options->given; k++) {
		if (json_object_get(show.nodes, options->operands[k]) != NULL)
			continue;
		network_explain_absent(network, options->operands[k]);
		missing = true;
	}
	/* In the order of the file; then nodes that are in none. */
	for (uint32_t k = 0; k < network->topology->node_count; k++) {
		name = network->topology->nodes[k].name;
		node = json_object_get(show.nodes, name);
		if (node == NULL)
			continue;
		add_counters(&show, node, name);
		json_array_append(list, node);
		json_object_del(show.nodes, name);
	}
	json_object_foreach(show.nodes, name, node) json_array_append(list, node);
	if (options->json) {
		json_dumpf(list, stdout, JSON_INDENT(2));
		putchar('\n');
	} else {
		json_array_foreach(list, i, node) show_node(node);
		if (json_array_size(list) == 0 && !missing)
			puts("no virtual switch is up");
	}
	json_decref(list);
	json_decref(show.nodes);
	return missing ? 1 : 0;
}
