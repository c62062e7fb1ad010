/* The network that is up, and a client of it: see network.h. */
#include "cli/network.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "ibc/observe.h"
#include "port/rundir.h"

#define CURRENT_FILE "vswitch.conf" /* in the agent's directory */

void network_begin(struct network *network, const char *name)
{
	*network = (struct network){.name = name, .timeout_ms = 1000, .own = -1};
	network->topology = calloc(1, sizeof(*network->topology));
	if (network->topology == NULL)
		abort();
}

void network_end(struct network *network)
{
	IBC_Finish();
	free(network->topology);
	network->topology = NULL;
}

static bool read_from(struct network *network, const char *path, const char *advice)
{
	struct topology_error error;
	char message[TOPOLOGY_MESSAGE_BYTES];
	char *text = malloc(TOPOLOGY_MAX_FILE_BYTES + 1);
	FILE *file = text != NULL ? fopen(path, "re") : NULL;
	if (file == NULL) {
		fprintf(stderr, "%s: %s: %s%s\n", network->name, path, strerror(errno), advice);
		free(text);
		return false;
	}
	size_t bytes = fread(text, 1, TOPOLOGY_MAX_FILE_BYTES + 1, file);
	bool good = ferror(file) == 0;
	if (!good) /* a directory can be opened */
		fprintf(stderr, "%s: %s: %s%s\n", network->name, path, strerror(errno), advice);
	fclose(file);
	if (!good) {
		free(text);
		return false;
	}
	good = topology_parse(network->topology, text, bytes, &error);
	free(text);
	if (!good) {
		topology_explain(&error, path, message);
		fprintf(stderr, "%s: %s\n", network->name, message);
	}
	return good;
}

bool network_read(struct network *network, const char *path)
{
	return read_from(network, path, "");
}

static bool current_path(char *path, size_t bytes)
{
	char directory[RUNDIR_MAX];
	int error = rundir_open(directory, NULL);
	if (error != 0)
		return false;
	rundir_file(directory, CURRENT_FILE, path, bytes);
	return true;
}

bool network_read_current(struct network *network)
{
	char path[2 * RUNDIR_MAX];
	if (!current_path(path, sizeof(path)) || access(path, R_OK) != 0)
		return false;
	return read_from(network, path, "");
}

bool network_keep(struct network *network, const char *path)
{
	char kept[2 * RUNDIR_MAX], fresh[2 * RUNDIR_MAX + 8];
	char *text = malloc(TOPOLOGY_MAX_FILE_BYTES);
	bool good = false;
	int fd = -1;
	if (text == NULL || !current_path(kept, sizeof(kept)))
		goto out;
	snprintf(fresh, sizeof(fresh), "%s.new", kept);
	/* It may hold keys: for the owner's eyes only. */
	fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	size_t bytes = topology_print(network->topology, text, TOPOLOGY_MAX_FILE_BYTES);
	good = fd >= 0 && bytes > 0 && write(fd, text, bytes) == (ssize_t)bytes &&
	       rename(fresh, kept) == 0;
out:
	if (!good)
		fprintf(stderr, "%s: cannot keep a copy of %s: %s\n", network->name, path,
		        strerror(errno));
	if (fd >= 0)
		close(fd);
	free(text);
	return good;
}

void network_forget(void)
{
	char path[2 * RUNDIR_MAX];
	if (current_path(path, sizeof(path)))
		unlink(path);
}

struct wanted_member {
	const char *name;
	struct network_member *found;
	bool there;
};

static void look_at_member(const struct observed_member *member, void *context)
{
	struct wanted_member *wanted = context;
	if (!member->ports || strcmp(member->node, wanted->name) != 0)
		return;
	wanted->there = true;
	wanted->found->pid = member->pid;
	memcpy(wanted->found->states, member->board->vswitch.states, VSWITCH_PORTS);
}

bool network_ports_of(const char *name, struct network_member *member)
{
	struct wanted_member wanted = {.name = name, .found = member};
	return ibc_observe(look_at_member, &wanted) == 0 && wanted.there;
}

bool network_explain_absent(const struct network *network, const char *name)
{
	bool known = topology_find(network->topology, name) >= 0;
	fprintf(stderr,
	        known ? "%s: %s is not up\n"
	              : "%s: there is no node or switch '%s'; `heddle vswitch show' lists those "
	                "that are up\n",
	        network->name, name);
	return known;
}

/* The first node, not a plain switch, whose ports are run here. */
static const char *first_node(const struct network *network)
{
	struct network_member member;
	for (uint32_t i = 0; i < network->topology->node_count; i++)
		if (!network->topology->nodes[i].plain &&
		    network_ports_of(network->topology->nodes[i].name, &member))
			return network->topology->nodes[i].name;
	return NULL;
}

bool network_attach(struct network *network, const char *node)
{
	unsigned apid;
	struct network_member member;
	bool from_env = node == NULL && (node = secure_getenv("HEDDLE_NODE")) != NULL;
	network->chosen = node == NULL;
	if (node == NULL)
		node = first_node(network);
	if (node == NULL) {
		fprintf(stderr,
		        "%s: no virtual switch is up; start one with `heddle vswitch up FILE', or "
		        "name a node with --node\n",
		        network->name);
		return false;
	}
	int index = topology_find(network->topology, node);
	if (index >= 0 && network->topology->nodes[index].plain) {
		fprintf(stderr, "%s: %s is a switch without applications; name a node\n",
		        network->name, node);
		return false;
	}
	if (!network_ports_of(node, &member)) {
		fprintf(stderr,
		        "%s: no process runs the ports of node %s%s; `heddle vswitch show' lists "
		        "the nodes that are up\n",
		        network->name, node, from_env ? " (HEDDLE_NODE)" : "");
		return false;
	}
	setenv("HEDDLE_NODE", node, 1);
	int result = IBC_Init(IBC_CLIENTANY, &apid, NULL, NULL);
	if (result != IBC_SUCCESS) {
		fprintf(stderr, "%s: cannot become a client of node %s: %s\n", network->name, node,
		        IBC_ResultName(result));
		return false;
	}
	network->own = index;
	snprintf(network->node, sizeof(network->node), "%s", node);
	return true;
}

static bool parse_route(const char *text, struct IBC_Route *route)
{
	*route = (struct IBC_Route){.Pointer = 1};
	if (strcmp(text, ".") == 0)
		return true;
	for (const char *at = text;; at++) {
		char *end;
		if (*at < '0' || *at > '9')
			return false;
		unsigned long port = strtoul(at, &end, 10);
		if (port >= IBC_END_OF_ROUTE || route->Hops == IBC_LIMIT_HOPS)
			return false;
		route->Ports[route->Hops++] = (uint8_t)port;
		if (*end == '\0')
			return true;
		if (*end != '-')
			return false;
		at = end;
	}
}

bool network_route(struct network *network, const char *text, struct IBC_Route *route)
{
	struct topology_path path;
	if (parse_route(text, route))
		return true;
	int to = topology_find(network->topology, text);
	if (to < 0) {
		fprintf(stderr,
		        "%s: '%s' is neither a route such as 1-3-2 (up to 62 ports from 0 to 62; "
		        "'.' for none) nor a node or switch of the topology\n",
		        network->name, text);
		return false;
	}
	*route = (struct IBC_Route){.Pointer = 1};
	if (to == network->own) {
		if (network->chosen)
			fprintf(stderr,
			        "%s: %s asks itself: it is the first node that is up here; --node "
			        "names another\n",
			        network->name, text);
		return true;
	}
	if (network->own < 0) {
		fprintf(stderr,
		        "%s: %s is not in the topology, so no way from there is known; give a "
		        "route such as 1-3-2\n",
		        network->name, network->node);
		return false;
	}
	if (!topology_route(network->topology, (uint32_t)network->own, (uint32_t)to, &path) ||
	    path.hops + 1u > IBC_LIMIT_HOPS) {
		fprintf(stderr, "%s: the topology has no way to %s\n", network->name, text);
		return false;
	}
	route->Ports[0] = path.out_port;
	memcpy(route->Ports + 1, path.ports, path.hops);
	route->Hops = (uint8_t)(path.hops + 1u);
	return true;
}

const uint8_t *network_key(const struct network *network, int node)
{
	if (network->has_key)
		return network->key;
	if (node >= 0)
		return network->topology->nodes[node].has_key ? network->topology->nodes[node].key
		                                              : NULL;
	for (uint32_t i = 0; i < network->topology->node_count; i++)
		if (network->topology->nodes[i].has_key)
			return network->topology->nodes[i].key;
	return NULL;
}

void network_ask(struct network *network, const struct IBC_Route *route,
                 const struct ibc_config_command *command, unsigned tries,
                 struct network_answer *answer)
{
	static uint8_t out[IBC_LIMIT_PAYLOAD], in[IBC_LIMIT_PAYLOAD];
	struct IBC_Target target = {
	        .OutPort = IBC_PORT_ROUTE, .Destination = VSWITCH_APID_CONFIG, .Route = *route};
	struct timespec timeout = {.tv_sec = network->timeout_ms / 1000u,
	                           .tv_nsec = (long)(network->timeout_ms % 1000u) * 1000000};
	struct IBC_Info info;
	*answer = (struct network_answer){.result = NETWORK_FAILED,
	                                  .needs_no_key = command->operation == IBC_CONFIG_ECHO};
	size_t bytes = ibc_config_encode(command, out, sizeof(out));
	if (bytes == 0) {
		answer->why = "the data is too long";
		return;
	}
	uint64_t start_ns = clock_now_ns();
	int type = command->operation == IBC_CONFIG_SET_PORT ? IBC_WRITE_REQUEST : IBC_READ_REQUEST;
	int result = IBC_Request(&target, type, out, (uint32_t)bytes, &timeout, tries, in,
	                         sizeof(in), &info);
	answer->round_ns = clock_now_ns() - start_ns;
	if (result == IBC_NACKED) {
		answer->result = NETWORK_NACK;
		answer->reason = info.Reason;
		answer->by_application = info.Source != VSWITCH_APID_CONFIG;
	} else if (result == IBC_TIMEDOUT) {
		answer->result = NETWORK_SILENT;
	} else if (result != IBC_SUCCESS) {
		answer->why = IBC_ResultName(result);
	} else if (command->operation == IBC_CONFIG_ECHO) {
		bool same = info.Length == bytes && memcmp(in + IBC_KEY_BYTES, out + IBC_KEY_BYTES,
		                                           bytes - IBC_KEY_BYTES) == 0;
		answer->result = same ? NETWORK_OK : NETWORK_FAILED;
		answer->why = "the answer is not the echo of what was sent";
	} else if (ibc_config_decode_answer(&answer->config, in, info.Length) &&
	           answer->config.operation == command->operation) {
		answer->result = NETWORK_OK;
	} else {
		answer->why = "the answer is not that of a switch";
	}
}

void network_explain(const struct network *network, const struct network_answer *answer, char *out,
                     size_t bytes)
{
	switch (answer->result) {
	case NETWORK_OK:
		snprintf(out, bytes, "ok");
		break;
	case NETWORK_NACK:
		snprintf(out, bytes, "NACK: %s%s", IBC_ReasonName(answer->reason),
		         answer->reason != IBC_NACK_NOT_ALLOWED ? ""
		         : answer->by_application
		                 ? " (so says the application at the end of the route)"
		         : answer->needs_no_key ? " (the topology gives that NIC to other APIDs)"
		         : network_key(network, -1) != NULL
		                 ? " (the switch has another key, or none)"
		                 : " (the topology has no key; the switch takes no commands "
		                   "without one)");
		break;
	case NETWORK_SILENT:
		snprintf(out, bytes, "no answer within %u ms", network->timeout_ms);
		break;
	default:
		snprintf(out, bytes, "%s", answer->why);
		break;
	}
}

void network_print_route(const uint8_t *ports, unsigned hops, char *out, size_t bytes)
{
	size_t used = 0;
	if (hops == 0)
		snprintf(out, bytes, ".");
	for (unsigned i = 0; i < hops && used < bytes; i++)
		used += (size_t)snprintf(out + used, bytes - used, "%s%u", i > 0 ? "-" : "",
		                         ports[i]);
}
