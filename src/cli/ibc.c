/* heddle ibc: ping, trace, discover and route, over the virtual switch of one node. */
#include <argp.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/command.h"
#include "cli/ibc.h"
#include "cli/network.h"
#include "cli/words.h"
#include "fabric/topology_text.h"
#include "port/rundir.h"
#include "port/vskey.h"

#define MAX_COUNT 1000000u

enum { OPTION_SVG = 1000, OPTION_CONF };

struct ibc_verb {
	const char *name, *arguments, *doc;
	const char *options; /* by the letters in the table below */
	int operands;
	int (*run)(struct ibc_options *options, struct network *network);
};

static int ibc_ping(struct ibc_options *options, struct network *network);
static int ibc_trace(struct ibc_options *options, struct network *network);
static int ibc_print_key(struct ibc_options *options, struct network *network);

static const struct ibc_verb verbs[] = {
        {"ping", "ROUTE|NODE", "Ask the switch at the end of a route for an echo.", "nftjcs", 1,
         ibc_ping},
        {"trace", "ROUTE|NODE", "Ask every switch on a route, with the time of each.", "nfktj", 1,
         ibc_trace},
        {"discover", "", "Walk the network from one node and print its map.", "nfkjSC", 0,
         ibc_verb_discover},
        {"route", "FROM TO", "Print a shortest route from one node to another.", "nfkj", 2,
         ibc_verb_route},
        {"key", "", "Print the key of the administrator, for HEDDLE_IBC_KEY.", "j", 0,
         ibc_print_key},
};
#define VERB_COUNT (sizeof(verbs) / sizeof(verbs[0]))

static unsigned parse_count(struct argp_state *state, const char *text, unsigned long most)
{
	char *end;
	unsigned long number = strtoul(text, &end, 10);
	if (*text < '0' || *text > '9' || *end != '\0' || number == 0 || number > most)
		argp_error(state, "'%s' is not a number from 1 to %lu", text, most);
	return (unsigned)number;
}

static error_t ibc_parse(int key, char *arg, struct argp_state *state)
{
	struct ibc_options *options = state->input;
	struct topology_word word = {.text = arg, .length = arg != NULL ? strlen(arg) : 0};
	switch (key) {
	case 'n':
		options->node = arg;
		return 0;
	case 'f':
		options->file = arg;
		return 0;
	case 'k':
		if (!topology_to_key(&word, options->key))
			argp_error(state, "a key has 32 hexadecimal digits");
		options->has_key = true;
		return 0;
	case 'j':
		options->json = true;
		return 0;
	case 't':
		options->timeout_ms = parse_count(state, arg, 600000);
		return 0;
	case 'c':
		options->count = parse_count(state, arg, MAX_COUNT);
		return 0;
	case 's':
		options->size =
		        parse_count(state, arg, IBC_LIMIT_PAYLOAD - IBC_CONFIG_COMMAND_BYTES);
		return 0;
	case OPTION_SVG:
		options->svg = arg;
		return 0;
	case OPTION_CONF:
		options->conf = arg;
		return 0;
	case ARGP_KEY_ARG:
		if (options->given == options->verb->operands)
			argp_error(state, "'%s' is one argument too many", arg);
		options->operands[options->given++] = arg;
		return 0;
	case ARGP_KEY_END:
		if (options->given < options->verb->operands)
			argp_error(state, "which %s?", options->verb->arguments);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void ibc_print_verbs(FILE *out)
{
	fputs("Usage: heddle ibc VERB [OPTION...]\n\n", out);
	for (size_t i = 0; i < VERB_COUNT; i++)
		fprintf(out, "  %-10s %s\n", verbs[i].name, verbs[i].doc);
	fputs("\n`heddle ibc VERB --help' tells the options; heddle-ibc(7) tells the rest.\n", out);
}

static const struct {
	char letter;
	struct argp_option option;
} all_options[] = {
        {'n',
         {"node", 'n', "NAME", 0, "Be a client of this node (HEDDLE_NODE; else the first)", 0}},
        {'f', {"file", 'f', "FILE", 0, "The topology (else that of the network that is up)", 0}},
        {'k', {"key", 'k', "DIGITS", 0, "The key of the switches (else that in the topology)", 0}},
        {'t', {"timeout", 't', "MS", 0, "How long to wait for an answer (1000)", 0}},
        {'j', {"json", 'j', NULL, 0, "Print JSON", 0}},
        {'c', {"count", 'c', "N", 0, "How many (4)", 0}},
        {'s', {"size", 's', "BYTES", 0, "How much data (56)", 0}},
        {'S', {"svg", OPTION_SVG, "FILE", 0, "Write a drawing", 0}},
        {'C', {"conf", OPTION_CONF, "FILE", 0, "Write a topology file", 0}},
};
#define OPTION_COUNT (sizeof(all_options) / sizeof(all_options[0]))

/* The command with its verb, options and operands; the network is read but not attached to. */
static int ibc_run_verb(const struct ibc_verb *verb, int argc, char **argv)
{
	struct argp_option known[OPTION_COUNT + 1] = {0};
	unsigned count = 0;
	for (unsigned i = 0; i < OPTION_COUNT; i++)
		if (strchr(verb->options, all_options[i].letter) != NULL)
			known[count++] = all_options[i].option;
	struct argp parser = {known, ibc_parse, verb->arguments, verb->doc, NULL, NULL, NULL};
	struct ibc_options options = {.verb = verb, .count = 4, .size = 56, .timeout_ms = 1000};
	struct network network;
	char name[64];
	snprintf(name, sizeof(name), "heddle ibc %s", verb->name);
	argv[0] = name;
	argp_parse(&parser, argc, argv, 0, NULL, &options);
	network_begin(&network, name);
	network.timeout_ms = options.timeout_ms;
	network.has_key = options.has_key;
	memcpy(network.key, options.key, IBC_KEY_BYTES);
	int status = 1;
	if (options.file != NULL ? network_read(&network, options.file)
	                         : network_read_current(&network) || true)
		status = verb->run(&options, &network);
	network_end(&network);
	return status;
}

static const char *ibc_word(size_t index)
{
	return verbs[index].name;
}

int ibc_command(int argc, char **argv)
{
	for (size_t i = 0; argc > 1 && i < VERB_COUNT; i++)
		if (strcmp(argv[1], verbs[i].name) == 0)
			return ibc_run_verb(&verbs[i], argc - 1, argv + 1);
	bool help = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-?") == 0);
	if (argc > 1 && !help) {
		fprintf(stderr, "heddle ibc: there is no verb '%s'\n", argv[1]);
		word_suggest(argv[1], ibc_word, VERB_COUNT);
	}
	ibc_print_verbs(help ? stdout : stderr);
	return help ? 0 : EXIT_WRONG_USAGE;
}

/* --- ping --- */

static int ibc_ping(struct ibc_options *options, struct network *network)
{
	static uint8_t data[IBC_LIMIT_PAYLOAD];
	struct IBC_Route route;
	char words[160], shown[NETWORK_ROUTE_BYTES];
	json_t *all = json_array();
	unsigned answered = 0;
	uint64_t least_ns = UINT64_MAX, most_ns = 0, sum_ns = 0;
	if (!network_attach(network, options->node) ||
	    !network_route(network, options->operands[0], &route)) {
		json_decref(all);
		return 1;
	}
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)i;
	network_print_route(route.Ports, route.Hops, shown, sizeof(shown));
	for (unsigned i = 0; i < options->count; i++) {
		struct ibc_config_command command = {.operation = IBC_CONFIG_ECHO,
		                                     .data = data,
		                                     .data_bytes = (uint16_t)options->size};
		struct network_answer answer;
		data[0] = (uint8_t)i;
		network_ask(network, &route, &command, 1, &answer);
		network_explain(network, &answer, words, sizeof(words));
		bool good = answer.result == NETWORK_OK;
		if (good) {
			answered++;
			sum_ns += answer.round_ns;
			least_ns = answer.round_ns < least_ns ? answer.round_ns : least_ns;
			most_ns = answer.round_ns > most_ns ? answer.round_ns : most_ns;
		}
		if (options->json)
			json_array_append_new(all, json_pack("{s:b,s:f,s:s}", "answered", good,
			                                     "us", (double)answer.round_ns / 1e3,
			                                     "result", words));
		else if (good)
			printf("%u bytes from %s: %.1f us\n", options->size, shown,
			       (double)answer.round_ns / 1e3);
		else
			printf("%s: %s\n", shown, words);
		fflush(stdout);
	}
	if (options->json) {
		json_t *whole =
		        json_pack("{s:s,s:i,s:i,s:o}", "route", shown, "sent", (int)options->count,
		                  "answered", (int)answered, "pings", all);
		json_dumpf(whole, stdout, JSON_INDENT(2));
		putchar('\n');
		json_decref(whole);
	} else {
		printf("%u sent, %u answered", options->count, answered);
		if (answered > 0)
			printf("; least %.1f us, mean %.1f us, most %.1f us",
			       (double)least_ns / 1e3, (double)sum_ns / 1e3 / answered,
			       (double)most_ns / 1e3);
		putchar('\n');
		json_decref(all);
	}
	return answered == options->count ? 0 : 1;
}

/* --- trace --- */

/* What the switch after @hops ports of @route says of itself. */
static void trace_hop(struct network *network, const struct IBC_Route *route, unsigned hops,
                      struct network_answer *answer)
{
	struct IBC_Route part = *route;
	struct ibc_config_command command = {.operation = IBC_CONFIG_TRACE};
	const uint8_t *key = network_key(network, -1);
	part.Hops = (uint8_t)hops;
	if (key != NULL)
		memcpy(command.key, key, IBC_KEY_BYTES);
	network_ask(network, &part, &command, 3, answer);
	/* Other switches may have other keys. */
	for (uint32_t i = 0;
	     i < network->topology->node_count && !network->has_key &&
	     answer->result == NETWORK_NACK && answer->reason == IBC_NACK_NOT_ALLOWED;
	     i++) {
		const struct topology_node *node = &network->topology->nodes[i];
		if (!node->has_key || memcmp(node->key, command.key, IBC_KEY_BYTES) == 0)
			continue;
		memcpy(command.key, node->key, IBC_KEY_BYTES);
		network_ask(network, &part, &command, 3, answer);
	}
}

static json_t *trace_row(struct network *network, const struct IBC_Route *route, unsigned hops,
                         const struct network_answer *answer)
{
	char words[160], shown[NETWORK_ROUTE_BYTES], name[TOPOLOGY_NAME_BYTES + 24] = "?";
	network_print_route(route->Ports, hops, shown, sizeof(shown));
	network_explain(network, answer, words, sizeof(words));
	json_t *row = json_pack("{s:i,s:s,s:f,s:s}", "hop", (int)hops, "route", shown, "us",
	                        (double)answer->round_ns / 1e3, "result", words);
	if (answer->result != NETWORK_OK)
		return row;
	const struct ibc_config_answer *config = &answer->config;
	snprintf(name, sizeof(name), "%s %llu", config->plain ? "switch" : "node",
	         (unsigned long long)config->node);
	for (uint32_t i = 0; i < network->topology->node_count; i++)
		if (network->topology->nodes[i].id == config->node)
			snprintf(name, sizeof(name), "%s", network->topology->nodes[i].name);
	json_object_set_new(row, "name", json_string(name));
	json_object_set_new(row, "id", json_integer((json_int_t)config->node));
	json_object_set_new(row, "arrival", json_integer(config->arrival));
	return row;
}

static void print_row(json_t *row)
{
	const char *name = json_string_value(json_object_get(row, "name"));
	int arrival = (int)json_integer_value(json_object_get(row, "arrival"));
	printf("%2d  %-16s", (int)json_integer_value(json_object_get(row, "hop")),
	       json_string_value(json_object_get(row, "route")));
	if (name == NULL)
		printf("  %s\n", json_string_value(json_object_get(row, "result")));
	else
		printf("  %-12s %-16s %-3d %9.1f us\n", name,
		       vswitch_is_hardware((unsigned)arrival) ? "came by port" : "from application",
		       arrival, json_real_value(json_object_get(row, "us")));
}

static int ibc_trace(struct ibc_options *options, struct network *network)
{
	struct IBC_Route route;
	struct network_answer answer = {.result = NETWORK_OK};
	json_t *all = json_array();
	int status = 0;
	if (!network_attach(network, options->node) ||
	    !network_route(network, options->operands[0], &route)) {
		json_decref(all);
		return 1;
	}
	for (unsigned hops = 0; hops <= route.Hops; hops++) {
		trace_hop(network, &route, hops, &answer);
		json_t *row = trace_row(network, &route, hops, &answer);
		if (!options->json)
			print_row(row);
		fflush(stdout);
		json_array_append_new(all, row);
		status = answer.result == NETWORK_OK ? 0 : 1;
		/* Without the right, a switch can still be passed. */
		if (status != 0 &&
		    !(answer.result == NETWORK_NACK && answer.reason == IBC_NACK_NOT_ALLOWED))
			break;
	}
	if (options->json) {
		json_dumpf(all, stdout, JSON_INDENT(2));
		putchar('\n');
	}
	json_decref(all);
	return status;
}

/* --- key --- */

/* Print the key in the agent's directory; if there is none yet, make the one that the agent will
 * use. */
static int ibc_print_key(struct ibc_options *options, struct network *network)
{
	char directory[RUNDIR_MAX], path[RUNDIR_MAX + 16], text[2 * AGENT_VS_KEY_BYTES + 1];
	uint8_t key[AGENT_VS_KEY_BYTES];
	int result = rundir_open(directory, NULL);
	if (result != 0) {
		fprintf(stderr, "%s: %s: %s; %s\n", network->name, directory, strerror(-result),
		        rundir_advice(result));
		return 1;
	}
	rundir_file(directory, AGENT_VS_KEY, path, sizeof(path));
	vskey_make(path);
	if (!vskey_read(path, key)) /* logged */
		return 1;
	for (unsigned i = 0; i < AGENT_VS_KEY_BYTES; i++)
		snprintf(text + 2 * i, 3, "%02x", key[i]);
	printf(options->json ? "{\"key\": \"%s\"}\n" : "%s\n", text);
	return 0;
}
