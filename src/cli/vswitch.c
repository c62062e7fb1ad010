/* heddle vswitch: start, end and look at networks of virtual switches. One process runs the ports
 * of each node or plain switch (heddle-vport); the agent knows them all. */
#include <argp.h>
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/installed.h"
#include "cli/command.h"
#include "cli/network.h"
#include "cli/vswitch.h"
#include "cli/words.h"

#define PATH_BYTES 4096
#define STOP_NS    5000000000ull
#define UP_NS      10000000000ull
#define HEAL_NS    5000000000ull /* a link comes up with the second keep-alive */
#define ECHO_MS    100u

struct vswitch_verb {
	const char *name, *arguments, *doc;
	const char *node; /* what --node means here; NULL: there is no such option */
	int least, most;  /* operands */
	int (*run)(struct vswitch_options *options, struct network *network);
};

static int vswitch_up(struct vswitch_options *options, struct network *network);
static int vswitch_down(struct vswitch_options *options, struct network *network);
static int vswitch_cut(struct vswitch_options *options, struct network *network);
static int vswitch_heal(struct vswitch_options *options, struct network *network);

#define ONLY "Only this node or switch (may be repeated)"
#define FROM "Ask from this node"
static const struct vswitch_verb verbs[] = {
        {"up", "FILE", "Start the network of a topology file on this machine.", ONLY, 1, 1,
         vswitch_up},
        {"down", "[NODE...]", "End the port processes of all nodes and switches, or of some.", NULL,
         0, VSWITCH_MAX_OPERANDS, vswitch_down},
        {"show", "[NODE...]", "Show ports, applications and counters.", FROM, 0,
         VSWITCH_MAX_OPERANDS, vswitch_show},
        {"cut", "NODE:PORT", "Take a port out of service.", FROM, 1, 1, vswitch_cut},
        {"heal", "NODE:PORT", "Put a port back into service.", FROM, 1, 1, vswitch_heal},
};
#define VERB_COUNT (sizeof(verbs) / sizeof(verbs[0]))

static error_t vswitch_parse(int key, char *arg, struct argp_state *state)
{
	struct vswitch_options *options = state->input;
	switch (key) {
	case 'n':
		if (options->only_count == VSWITCH_MAX_OPERANDS)
			argp_error(state, "too many nodes");
		options->only[options->only_count++] = arg;
		return 0;
	case 'j':
		options->json = true;
		return 0;
	case 'w':
		options->capture = arg;
		return 0;
	case ARGP_KEY_ARG:
		if (options->given == options->verb->most)
			argp_error(state, "'%s' is one argument too many", arg);
		options->operands[options->given++] = arg;
		return 0;
	case ARGP_KEY_END:
		if (options->given < options->verb->least)
			argp_error(state, "which %s?", options->verb->arguments);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void vswitch_print_verbs(FILE *out)
{
	fputs("Usage: heddle vswitch VERB [OPTION...]\n\n", out);
	for (size_t i = 0; i < VERB_COUNT; i++)
		fprintf(out, "  %-6s %s\n", verbs[i].name, verbs[i].doc);
	fputs("\n`heddle vswitch VERB --help' tells the options; heddle-vswitch.conf(5) the file, "
	      "heddle-ibc(7) the rest.\n",
	      out);
}

static int vswitch_run_verb(const struct vswitch_verb *verb, int argc, char **argv)
{
	struct argp_option known[4] = {0};
	unsigned count = 0;
	if (verb->node != NULL)
		known[count++] = (struct argp_option){"node", 'n', "NAME", 0, verb->node, 0};
	known[count++] = (struct argp_option){"json", 'j', NULL, 0, "Print JSON", 0};
	if (verb->run == vswitch_up)
		known[count++] = (struct argp_option){
		        "capture", 'w', "FILE", 0, "Write the packets on all links to FILE", 0};
	struct argp parser = {known, vswitch_parse, verb->arguments, verb->doc, NULL, NULL, NULL};
	struct vswitch_options options = {.verb = verb};
	struct network network;
	char name[64];
	snprintf(name, sizeof(name), "heddle vswitch %s", verb->name);
	argv[0] = name;
	argp_parse(&parser, argc, argv, 0, NULL, &options);
	network_begin(&network, name);
	int status = verb->run(&options, &network);
	network_end(&network);
	return status;
}

static const char *vswitch_word(size_t index)
{
	return verbs[index].name;
}

int vswitch_command(int argc, char **argv)
{
	for (size_t i = 0; argc > 1 && i < VERB_COUNT; i++)
		if (strcmp(argv[1], verbs[i].name) == 0)
			return vswitch_run_verb(&verbs[i], argc - 1, argv + 1);
	bool help = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-?") == 0);
	if (argc > 1 && !help) {
		fprintf(stderr, "heddle vswitch: there is no verb '%s'\n", argv[1]);
		word_suggest(argv[1], vswitch_word, VERB_COUNT);
	}
	vswitch_print_verbs(help ? stdout : stderr);
	return help ? 0 : EXIT_WRONG_USAGE;
}

/* --- down --- */

static void nap(void)
{
	usleep(10000);
}

/* End the process that runs the ports of the node @name. False: it does not end. */
static bool stop_node(const char *name)
{
	struct network_member member;
	uint64_t end_ns = clock_now_ns() + STOP_NS;
	if (!network_ports_of(name, &member))
		return true;
	kill(member.pid, SIGTERM);
	pid_t pid = member.pid;
	while (network_ports_of(name, &member) && member.pid == pid) {
		if (clock_now_ns() > end_ns)
			return false;
		nap();
	}
	return true;
}

/* End the node @name, which the user has @named. False: that was tried in vain, or there is no such
 * node; it has been printed. */
static bool end_one(const struct network *network, const char *name, bool named, json_t *ended)
{
	struct network_member member;
	if (!network_ports_of(name, &member))
		return !named || network_explain_absent(network, name);
	bool good = stop_node(name);
	if (good)
		json_array_append_new(ended, json_string(name));
	else
		fprintf(stderr, "%s: the port process of %s does not end\n", network->name, name);
	return good;
}

static void print_result(json_t *whole)
{
	json_dumpf(whole, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(whole);
}

static int vswitch_down(struct vswitch_options *options, struct network *network)
{
	unsigned left = 0;
	int status = 0;
	if (!network_read_current(network) && options->given == 0) {
		fprintf(stderr, "%s: no network is up\n", network->name);
		return 1;
	}
	json_t *ended = json_array();
	for (int i = 0; i < options->given; i++)
		status |= !end_one(network, options->operands[i], true, ended);
	for (uint32_t i = 0; i < network->topology->node_count; i++) {
		struct network_member member;
		const char *name = network->topology->nodes[i].name;
		if (options->given == 0)
			status |= !end_one(network, name, false, ended);
		left += network_ports_of(name, &member);
	}
	if (left == 0)
		network_forget();
	if (options->json)
		print_result(json_pack("{s:O}", "ended", ended));
	json_decref(ended);
	return status;
}

/* --- up --- */

static bool find_vport(char *out, size_t bytes)
{
	char self[PATH_BYTES];
	const char *given = secure_getenv("HEDDLE_VPORT");
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
	self[length > 0 ? length : 0] = '\0';
	if (given != NULL)
		return snprintf(out, bytes, "%s", given) < (int)bytes && access(out, X_OK) == 0;
	return installed_find(INSTALLED_AGENT, length > 0 ? self : NULL, "heddle-vport", X_OK, out,
	                      bytes);
}

/* Start the process for the node @name. It returns when its links are open. */
static bool start_node(const struct network *network, const char *program, const char *name,
                       const char *file)
{
	char *argv[] = {(char *)(uintptr_t)program, (char *)(uintptr_t) "--node",
	                (char *)(uintptr_t)name, (char *)(uintptr_t)file, NULL};
	int status = 0;
	pid_t pid = fork();
	if (pid == 0) {
		execv(program, argv);
		_exit(127);
	}
	if (pid < 0) {
		fprintf(stderr, "%s: %s: %s\n", network->name, program, strerror(errno));
		return false;
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0; /* it has reported why not */
}

static bool is_wanted(const struct vswitch_options *options, const char *name)
{
	for (int i = 0; i < options->only_count; i++)
		if (strcmp(options->only[i], name) == 0)
			return true;
	return options->only_count == 0;
}

/* How many of the links whose two ends run here are up at both. *all is how many there are. */
static unsigned links_up(const struct topology *topology, unsigned *all)
{
	struct network_member *members = calloc(topology->node_count, sizeof(*members));
	unsigned up = 0;
	*all = 0;
	for (uint32_t i = 0; members != NULL && i < topology->node_count; i++)
		network_ports_of(topology->nodes[i].name, &members[i]);
	for (uint32_t i = 0; members != NULL && i < topology->link_count; i++) {
		const struct topology_end *ends = topology->links[i].ends;
		const struct network_member *a = &members[ends[0].node],
		                            *b = &members[ends[1].node];
		if (a->pid == 0 || b->pid == 0)
			continue;
		++*all;
		up += a->states[ends[0].port] == VSWITCH_PORT_UP &&
		      b->states[ends[1].port] == VSWITCH_PORT_UP;
	}
	free(members);
	return up;
}

static bool names_are_known(const struct vswitch_options *options, const struct network *network)
{
	for (int i = 0; i < options->only_count; i++)
		if (topology_find(network->topology, options->only[i]) < 0) {
			fprintf(stderr, "%s: %s has no node or switch '%s'\n", network->name,
			        options->operands[0], options->only[i]);
			return false;
		}
	return true;
}

/* Tell that @running, a node that was to be started, is up already, and how to start the others. */
static void explain_running(const struct vswitch_options *options, const struct network *network,
                            const char *running)
{
	struct network_member member;
	unsigned missing = 0;
	for (uint32_t i = 0; i < network->topology->node_count; i++)
		missing += is_wanted(options, network->topology->nodes[i].name) &&
		           !network_ports_of(network->topology->nodes[i].name, &member);
	if (missing == 0 && options->only_count == 0) {
		fprintf(stderr,
		        "%s: the network of this file is up already; `heddle vswitch down' ends "
		        "it\n",
		        network->name);
		return;
	}
	fprintf(stderr, "%s: %s is up already", network->name, running);
	if (missing > 0)
		fputs("; to start what is missing: heddle vswitch up", stderr);
	for (uint32_t i = 0; i < network->topology->node_count && missing > 0; i++) {
		const char *name = network->topology->nodes[i].name;
		if (is_wanted(options, name) && !network_ports_of(name, &member))
			fprintf(stderr, " --node %s", name);
	}
	fprintf(stderr, "%s%s\n", missing > 0 ? " " : "", missing > 0 ? options->operands[0] : "");
}

/* A network that is up keeps its file: another one would hide its keys and names. */
static bool vswitch_is_free(const struct vswitch_options *options, struct network *network)
{
	struct network current;
	struct network_member member;
	const char *running = NULL;
	bool same = true;
	network_begin(&current, network->name);
	if (network_read_current(&current))
		for (uint32_t i = 0; i < current.topology->node_count && same; i++) {
			const char *name = current.topology->nodes[i].name;
			if (!network_ports_of(name, &member))
				continue;
			int there = topology_find(network->topology, name);
			same = there >= 0 &&
			       network->topology->nodes[there].id == current.topology->nodes[i].id;
			if (!same)
				fprintf(stderr,
				        "%s: another network is up (%s); end it with `heddle "
				        "vswitch "
				        "down' first\n",
				        network->name, name);
			if (same && running == NULL && is_wanted(options, name))
				running = network->topology->nodes[there].name;
		}
	if (same && running != NULL)
		explain_running(options, network, running);
	free(current.topology);
	return same && running == NULL;
}

static int vswitch_up(struct vswitch_options *options, struct network *network)
{
	char program[PATH_BYTES], file[PATH_BYTES];
	const char *started[TOPOLOGY_MAX_NODES];
	unsigned count = 0, all = 0, up = 0;
	if (!network_read(network, options->operands[0]) || !names_are_known(options, network) ||
	    !vswitch_is_free(options, network))
		return 1;
	if (realpath(options->operands[0], file) == NULL || !find_vport(program, sizeof(program))) {
		fprintf(stderr, "%s: cannot find heddle-vport; is Heddle installed completely?\n",
		        network->name);
		return 1;
	}
	if (options->capture != NULL && !command_start_capture(options->capture))
		return 1;
	bool good = network_keep(network, options->operands[0]);
	for (uint32_t i = 0; i < network->topology->node_count && good; i++) {
		const char *name = network->topology->nodes[i].name;
		if (!is_wanted(options, name))
			continue;
		good = start_node(network, program, name, file);
		if (good)
			started[count++] = name;
	}
	if (!good) { /* all of it or nothing */
		fprintf(stderr, "%s: ending what has been started\n", network->name);
		for (unsigned i = 0; i < count; i++)
			stop_node(started[i]);
		if (options->only_count == 0)
			network_forget();
		return 1;
	}
	uint64_t end_ns = clock_now_ns() + UP_NS;
	while ((up = links_up(network->topology, &all)) < all && clock_now_ns() < end_ns)
		nap();
	if (options->json) {
		json_t *names = json_array();
		for (unsigned i = 0; i < count; i++)
			json_array_append_new(names, json_string(started[i]));
		print_result(json_pack("{s:o,s:i,s:i}", "started", names, "links", (int)all, "up",
		                       (int)up));
	} else {
		printf("%u %s here, %u of %u link%s between them %s up\n", count,
		       count == 1 ? "node or switch runs" : "nodes and switches run", up, all,
		       all == 1 ? "" : "s", all == 1 ? "is" : "are");
	}
	return up == all ? 0 : 1;
}

/* --- cut and heal --- */

/* "NODE:PORT" of the network that is up. */
static bool parse_end(struct network *network, const char *text, int *node, uint8_t *port)
{
	const char *colon = strrchr(text, ':');
	char name[TOPOLOGY_NAME_BYTES], *rest;
	*node = -1;
	if (colon != NULL && (size_t)(colon - text) < sizeof(name) && colon[1] >= '0' &&
	    colon[1] <= '9') {
		memcpy(name, text, (size_t)(colon - text));
		name[colon - text] = '\0';
		*node = topology_find(network->topology, name);
		unsigned long number = strtoul(colon + 1, &rest, 10);
		if (*node >= 0 && *rest == '\0' && number < VSWITCH_HARDWARE_PORTS &&
		    network->topology->nodes[*node].ports >> number & 1) {
			*port = (uint8_t)number;
			return true;
		}
	}
	fprintf(stderr, "%s: '%s' is not a port of the network that is up, such as %s:1\n",
	        network->name, text, network->topology->nodes[0].name);
	return false;
}

bool vswitch_reach(struct network *network, const char *from, int node, struct IBC_Route *route)
{
	const struct topology_node *to = &network->topology->nodes[node];
	struct network_member member;
	/* Its own client needs no way; a plain switch has none. */
	if (from == NULL && !to->plain && network_ports_of(to->name, &member))
		from = to->name;
	if (network->own >= 0 &&
	    (from == NULL || topology_find(network->topology, from) == network->own))
		return network_route(network, to->name, route);
	IBC_Finish();
	network->own = -1;
	return network_attach(network, from) && network_route(network, to->name, route);
}

/* The port @port of the node with index @node, to which @route leads, has been put back into
 * service: wait until its link carries packets in both directions. *up: it does. False: it should,
 * and the reason has been printed. */
static bool wait_for_link(struct network *network, const char *text, int node, uint8_t port,
                          struct IBC_Route *route, bool *up)
{
	static const uint8_t data[4];
	const struct ibc_config_command echo = {
	        .operation = IBC_CONFIG_ECHO, .data = data, .data_bytes = sizeof(data)};
	struct network_answer answer;
	unsigned end;
	int link = topology_link_at(network->topology, (uint32_t)node, port, &end);
	if (*up)
		return true;
	if (link < 0 || route->Hops == IBC_LIMIT_HOPS) {
		fprintf(stderr, "%s: %s is in service, and down: %s\n", network->name, text,
		        link < 0 ? "the file has no link there"
		                 : "it is too far away to try its link");
		return true;
	}
	route->Ports[route->Hops++] = port; /* to the switch at the other end */
	network->timeout_ms = ECHO_MS;
	for (uint64_t end_ns = clock_now_ns() + HEAL_NS; !*up && clock_now_ns() < end_ns;) {
		network_ask(network, route, &echo, 1, &answer);
		*up = answer.result == NETWORK_OK;
		if (!*up && answer.result != NETWORK_SILENT)
			nap();
	}
	const struct topology_end *other = &network->topology->links[link].ends[!end];
	if (!*up)
		fprintf(stderr,
		        "%s: %s is in service, but its link to %s:%u has not come up within %u s: "
		        "is that end in service, and its port process up?\n",
		        network->name, text, network->topology->nodes[other->node].name,
		        other->port, (unsigned)(HEAL_NS / 1000000000u));
	return *up;
}

static int set_port(struct vswitch_options *options, struct network *network,
                    enum ibc_port_state state)
{
	struct ibc_config_command command = {.operation = IBC_CONFIG_SET_PORT, .state = state};
	struct network_answer answer;
	struct IBC_Route route;
	char words[160];
	int node;
	if (!network_read_current(network)) {
		fprintf(stderr, "%s: no network is up\n", network->name);
		return 1;
	}
	if (!parse_end(network, options->operands[0], &node, &command.port))
		return 1;
	const uint8_t *key = network_key(network, node);
	if (key == NULL) {
		fprintf(stderr, "%s: %s has no key, so nobody may configure it\n", network->name,
		        network->topology->nodes[node].name);
		return 1;
	}
	memcpy(command.key, key, IBC_KEY_BYTES);
	if (!vswitch_reach(network, options->only_count > 0 ? options->only[0] : NULL, node,
	                   &route))
		return 1;
	network_ask(network, &route, &command, 3, &answer);
	/* The port that is to be healed may be on the way: try from the other nodes that are up. */
	for (uint32_t i = 0; i < network->topology->node_count && options->only_count == 0 &&
	                     answer.result == NETWORK_NACK && answer.reason == IBC_NACK_PORT_DOWN;
	     i++) {
		const struct topology_node *from = &network->topology->nodes[i];
		struct network_member member;
		if (!from->plain && (int)i != network->own &&
		    network_ports_of(from->name, &member) &&
		    vswitch_reach(network, from->name, node, &route))
			network_ask(network, &route, &command, 3, &answer);
	}
	if (answer.result != NETWORK_OK) {
		network_explain(network, &answer, words, sizeof(words));
		fprintf(stderr, "%s: %s: %s\n", network->name, options->operands[0], words);
		return 1;
	}
	bool up = answer.config.count > 0 && answer.config.records[0].state == IBC_PORT_UP;
	bool good = state == IBC_PORT_DOWN ||
	            wait_for_link(network, options->operands[0], node, command.port, &route, &up);
	if (options->json)
		print_result(json_pack("{s:s,s:s}", "port", options->operands[0], "state",
		                       up ? "up" : "down"));
	return good ? 0 : 1;
}

static int vswitch_cut(struct vswitch_options *options, struct network *network)
{
	return set_port(options, network, IBC_PORT_DOWN);
}

static int vswitch_heal(struct vswitch_options *options, struct network *network)
{
	return set_port(options, network, IBC_PORT_UP);
}
