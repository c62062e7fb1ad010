/* heddle tap: an Ethernet interface whose cable ends at another machine. Starts units and hosts as
 * processes of their own (src/tap), and asks them. */
#include <argp.h>
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/words.h"
#include "tap/tap.h"
#include "wire/push.h"

#define TAP_MAX_SHOWN   64u
#define TAP_ENDED_SHOWN 3u
#define FRAME_EXTRA     (LAN_HEADER_BYTES + 14u + 8u + 1u) /* tags; one more shows a cut frame */
#define LARGE_FRAME     69632u

struct tap_command {
	const char *verb;
	struct tap_options options;
	const char *operands[TAP_MAX_SHOWN];
	int given;
	bool json, has_tap, has_unix;
	char lan[128], name[TAP_NAME_BYTES];
};

static const struct argp_option unit_list[] = {
        {"lan", 'l', "tap:NAME|packet:IFACE|unix:PATH", 0, "What the hosts get access to", 0},
        {"addr", 'a', "ADDRESS", 0, "Be reachable from other machines at this address", 0},
        {"netns", 'N', "PID", 0, "The interface is in the namespaces of this process", 0},
        {"name", 'n', "NAME", 0, "Name for stat and down (unit)", 0},
        {"mtu", 'm', "BYTES", 0, "MTU of the interface, 68 to 9000 (1500)", 0},
        {"macs", 'K', "NUMBER", 0, "How many MAC addresses a host may have, 1 to 16 (1)", 0},
        {"host-mac", 'H', "NAME=MAC", 0, "This address is for that host, and it for no other", 0},
        {"reserve", 'R', "MAC", 0, "No host may use this address", 0},
        {"service", 's', "NUMBER", 0, "Number of the unit on its node (4)", 0},
        {"channel", 'c', "rocev2|cells", 0, "With cells: speak them to hosts that do, too", 0},
        {"no-offload", 'O', NULL, 0, "Whole frames only: no segments of 64 KiB", 0},
        {"foreground", 'f', NULL, 0, "Stay in the foreground", 0},
        {"json", 'j', NULL, 0, "Print JSON", 0},
        {0}};
static const struct argp_option host_list[] = {
        {"tap", 't', "NAME", 0, "Make this interface", 0},
        {"unix", 'u', "PATH", 0, "Serve a VM: the socket of QEMU's -netdev stream", 0},
        {"netns", 'N', "PID", 0, "Make it in the namespaces of this process", 0},
        {"addr", 'a', "ADDRESS", 0, "The address of this machine on the way to the unit", 0},
        {"name", 'n', "NAME", 0, "Name for stat and down (that of the interface)", 0},
        {"mac", 'M', "MAC", 0, "MAC address of the interface", 0},
        {"no-wait", 'w', NULL, 0, "Return before the unit has answered", 0},
        {"bridge", 'b', NULL, 0, "Others are behind the interface; see unit --macs", 0},
        {"mtu", 'm', "BYTES", 0, "MTU of the interface, 68 to 9000 (1500)", 0},
        {"mode", 'o', "rdma|send", 0, "How frames travel (rdma)", 0},
        {"model", 'd', "push-push|push-pull|pull-pull", 0, "Who starts a transfer (push-push)", 0},
        {"pools", 'p', "both|host|unit|none", 0, "Who offers pools (both)", 0},
        {"indicate", 'i', "immediate|message", 0, "How frames are announced (immediate)", 0},
        {"channel", 'c', "rocev2|cells|iwarp", 0, "What crosses the network (rocev2)", 0},
        {"service", 's', "NUMBER", 0, "Number of the unit on its node (4)", 0},
        {"no-offload", 'O', NULL, 0, "Whole frames only: no segments of 64 KiB", 0},
        {"foreground", 'f', NULL, 0, "Stay in the foreground", 0},
        {"json", 'j', NULL, 0, "Print JSON", 0},
        {0}};
static const struct argp_option json_list[] = {{"json", 'j', NULL, 0, "Print JSON", 0}, {0}};

static long tap_number(const char *text, long low, long high, struct argp_state *state)
{
	char *end;
	errno = 0;
	long value = strtol(text, &end, 10);
	if (errno != 0 || *end != '\0' || end == text || value < low || value > high)
		argp_error(state, "'%s' is not a number from %ld to %ld", text, low, high);
	return value;
}

/* The place of @text in @words. */
static unsigned tap_word(const char *text, const char *const *words, unsigned count,
                         struct argp_state *state)
{
	for (unsigned i = 0; i < count; i++)
		if (strcmp(text, words[i]) == 0)
			return i;
	argp_error(state, "'%s' is not one of the values that --help names", text);
	return 0;
}

/* A unit speaks iWARP to whoever asks for it. */
static void tap_parse_channel(struct tap_options *options, const char *arg,
                              struct argp_state *state)
{
	static const char *const channels[] = {"rocev2", "cells", "iwarp"};
	unsigned channel = tap_word(arg, channels, 3, state);
	options->cells = channel == 1;
	options->terms.iwarp = channel == 2;
}

static error_t tap_parse_terms(int key, const char *arg, struct argp_state *state)
{
	static const char *const modes[] = {"rdma", "send"};
	static const char *const models[] = {"push-push", "push-pull", "pull-pull"};
	static const char *const owners[] = {"none", "host", "unit", "both"};
	static const char *const ways[] = {"immediate", "message"};
	struct hdl_push_terms *terms = &((struct tap_command *)state->input)->options.terms;
	unsigned owner;
	switch (key) {
	case 'o':
		terms->mode = (uint8_t)tap_word(arg, modes, 2, state);
		return 0;
	case 'd':
		terms->model = (uint8_t)tap_word(arg, models, 3, state);
		return 0;
	case 'p':
		owner = tap_word(arg, owners, 4, state);
		terms->host_owns = (owner & 1) != 0;
		terms->unit_owns = (owner & 2) != 0;
		return 0;
	case 'i':
		terms->by_message = tap_word(arg, ways, 2, state) == 1;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* NAME=MAC, or the MAC address of no host. */
static void tap_parse_rule(struct rights *rights, const char *arg, bool named,
                           struct argp_state *state)
{
	char name[RIGHTS_NAME_BYTES] = "";
	const char *equals = strchr(arg, '='), *text = named && equals != NULL ? equals + 1 : arg;
	uint8_t mac[LAN_MAC_BYTES];
	if (named && (equals == NULL || equals == arg || equals - arg >= (int)sizeof(name)))
		argp_error(state, "'%s' is not NAME=MAC, with a name of up to 31 characters", arg);
	if (named)
		memcpy(name, arg, (size_t)(equals - arg));
	if (!tap_parse_mac(text, mac))
		argp_error(state, "'%s' is not a MAC address such as 02:00:00:00:00:01", text);
	if (!rights_add(rights, name, mac))
		argp_error(state, "there are more than %u rules about addresses", RIGHTS_MAX_RULES);
}

static error_t tap_parse(int key, char *arg, struct argp_state *state)
{
	struct tap_command *command = state->input;
	struct tap_options *options = &command->options;
	switch (key) {
	case 'l':
		snprintf(command->lan, sizeof(command->lan), "%s", arg);
		return 0;
	case 't':
	case 'u':
		command->has_tap |= key == 't';
		command->has_unix |= key == 'u';
		snprintf(command->lan, sizeof(command->lan), "%s:%s", key == 't' ? "tap" : "unix",
		         arg);
		if (command->name[0] == '\0')
			snprintf(command->name, sizeof(command->name), "%.*s",
			         (int)TAP_NAME_BYTES - 1, basename(arg));
		return 0;
	case 'N':
		options->netns = (pid_t)tap_number(arg, 1, INT32_MAX, state);
		return 0;
	case 'a':
		setenv("HEDDLE_ADDR", arg, 1);
		return 0;
	case 'n':
		if (strlen(arg) >= TAP_NAME_BYTES || strchr(arg, '/') != NULL)
			argp_error(state, "'%s' is not a name of up to 31 characters", arg);
		snprintf(command->name, sizeof(command->name), "%s", arg);
		return 0;
	case 'M':
		options->has_mac = true;
		if (!tap_parse_mac(arg, options->mac))
			argp_error(state, "'%s' is not a MAC address such as 02:00:00:00:00:01",
			           arg);
		return 0;
	case 'm':
		options->has_mtu = true;
		options->mtu = (uint16_t)tap_number(arg, HDL_PUSH_MIN_MTU, HDL_PUSH_MAX_MTU, state);
		return 0;
	case 'K':
		options->rights.macs = (uint32_t)tap_number(arg, 1, RIGHTS_MAX_MACS, state);
		return 0;
	case 'H':
	case 'R':
		tap_parse_rule(&options->rights, arg, key == 'H', state);
		return 0;
	case 'w':
		options->no_wait = true;
		return 0;
	case 'b':
		options->bridge = true;
		return 0;
	case 's':
		options->service = (uint16_t)tap_number(arg, 1, 65535, state);
		return 0;
	case 'c':
		tap_parse_channel(options, arg, state);
		return 0;
	case 'O':
		options->offloads = false;
		return 0;
	case 'f':
		options->foreground = true;
		return 0;
	case 'j':
		command->json = options->json = true;
		return 0;
	case ARGP_KEY_ARG:
		if (command->given == (int)TAP_MAX_SHOWN)
			argp_error(state, "'%s' is one argument too many", arg);
		command->operands[command->given++] = arg;
		return 0;
	default:
		return tap_parse_terms(key, arg, state);
	}
}

/* --- unit and host --- */

/* How long frames may be. SendData takes those that fit into a message. */
static bool tap_size_frames(struct tap_options *options)
{
	struct hdl_push_terms *terms = &options->terms;
	bool messages = terms->mode == HDL_PUSH_SEND || !terms->host_owns || !terms->unit_owns;
	terms->header_bytes = LAN_HEADER_BYTES;
	if (terms->iwarp && terms->mode == HDL_PUSH_SEND) {
		fprintf(stderr, "heddle tap: send mode needs channels that are not acknowledged, "
		                "and iWARP has none: give --mode rdma, or another --channel\n");
		return false;
	}
	if (messages && options->mtu + FRAME_EXTRA > PUSH_MAX_DATA) {
		fprintf(stderr,
		        "heddle tap: frames that are sent as messages have at most %u bytes: "
		        "give --mtu %u or less\n",
		        PUSH_MAX_DATA, PUSH_MAX_DATA - FRAME_EXTRA);
		return false;
	}
	if (messages)
		options->offloads = false;
	/* The MTU may change later. */
	terms->frame_bytes = options->offloads ? LARGE_FRAME : HDL_PUSH_MAX_MTU + FRAME_EXTRA;
	if (messages)
		terms->frame_bytes = PUSH_MAX_DATA;
	if (options->unit)
		terms->frame_bytes = LARGE_FRAME;
	return true;
}

/* Become a daemon. Returns in the child, with the descriptor by which it says that it is ready. */
static int tap_into_background(const struct tap_options *options, int *status)
{
	int ready[2];
	char byte;
	fflush(NULL);
	pid_t pid = pipe2(ready, O_CLOEXEC) == 0 ? fork() : -1;
	if (pid < 0) {
		fprintf(stderr, "heddle tap: %s; end some programs, then try again\n",
		        strerror(errno));
		*status = 1;
		return -1;
	}
	if (pid > 0) {
		close(ready[1]);
		*status = read(ready[0], &byte, 1) == 1 ? byte : 1; /* the child has said why not */
		if (*status != 1 && options->json)
			tap_print_started(options, pid,
			                  *status == 0 && (options->unit || !options->no_wait));
		return -1;
	}
	close(ready[0]);
	setsid();
	return ready[1];
}

static int tap_start(struct tap_command *command)
{
	struct tap_options *options = &command->options;
	int status = 0, ready = -1;
	options->lan = command->lan;
	options->name = command->name;
	if (!tap_size_frames(options))
		return EXIT_WRONG_USAGE;
	if (!options->foreground) {
		ready = tap_into_background(options, &status);
		if (ready < 0)
			return status;
	}
	return tap_run(options, ready);
}

static int tap_unit_command(struct tap_command *command)
{
	command->options.unit = true;
	if (command->lan[0] == '\0') {
		fprintf(stderr, "heddle tap unit: what is the LAN? Give --lan tap:NAME, "
		                "packet:INTERFACE or unix:PATH\n");
		return EXIT_WRONG_USAGE;
	}
	struct lan lan = {0};
	if (!lan_parse(&lan, command->lan)) {
		fprintf(stderr, "heddle tap unit: %s\n", lan.why);
		return EXIT_WRONG_USAGE;
	}
	if (command->name[0] == '\0')
		snprintf(command->name, sizeof(command->name), "unit");
	return tap_start(command);
}

/* An address, or else a name, which does not look like one. */
static bool tap_is_node(const char *text)
{
	struct in6_addr address;
	bool six = strchr(text, ':') != NULL;
	bool four = strchr(text, '.') != NULL && text[strspn(text, "0123456789.")] == '\0';
	return six    ? inet_pton(AF_INET6, text, &address) == 1
	       : four ? inet_pton(AF_INET, text, &address) == 1
	              : text[0] != '\0';
}

static int tap_host_command(struct tap_command *command)
{
	if (command->given == 1 && !tap_is_node(command->operands[0])) {
		fprintf(stderr,
		        "heddle tap host: '%s' is neither an address nor the name of a node\n",
		        command->operands[0]);
		return EXIT_WRONG_USAGE;
	}
	if (command->given != 1 || command->has_tap + command->has_unix != 1) {
		fprintf(stderr,
		        "heddle tap host: give the unit's node or address, and either --tap "
		        "NAME or --unix PATH\n");
		return EXIT_WRONG_USAGE;
	}
	command->options.node = command->operands[0];
	return tap_start(command);
}

/* --- questions --- */

static json_t *tap_ask(const char *name, json_t *question, bool until_end)
{
	char why[LAN_WHY_BYTES] = "";
	json_t *answer = control_ask(name, question, until_end, why);
	const char *error = json_string_value(json_object_get(answer, "error"));
	if (answer == NULL || error != NULL) {
		fprintf(stderr, "heddle tap: %s\n", answer == NULL ? why : error);
		json_decref(answer);
		return NULL;
	}
	return answer;
}

static json_int_t tap_count(const json_t *object, const char *name)
{
	return json_integer_value(json_object_get(object, name));
}

static const char *tap_text(const json_t *object, const char *name)
{
	const char *text = json_string_value(json_object_get(object, name));
	return text != NULL ? text : "";
}

static void tap_print_traffic(const char *what, const json_t *from)
{
	printf("    %-22s in %" JSON_INTEGER_FORMAT " frames, %" JSON_INTEGER_FORMAT
	       " bytes; out %" JSON_INTEGER_FORMAT " frames, %" JSON_INTEGER_FORMAT
	       " bytes; dropped %" JSON_INTEGER_FORMAT "\n",
	       what, tap_count(from, "rx_frames"), tap_count(from, "rx_bytes"),
	       tap_count(from, "tx_frames"), tap_count(from, "tx_bytes"),
	       tap_count(from, "dropped"));
}

static void tap_print_trouble(const json_t *from, const char *name, const char *what)
{
	if (tap_count(from, name) > 0)
		printf("    %-22s %" JSON_INTEGER_FORMAT " %s\n", "", tap_count(from, name), what);
}

/* The rules that a peer has broken: counters that say so. */
static void tap_print_refused(const json_t *from)
{
	const char *name;
	json_t *value;
	json_object_foreach(json_object_get(from, "counters"), name, value)
	{
		if ((strncmp(name, "refused_", 8) == 0 || strcmp(name, "channel_errors") == 0) &&
		    json_integer_value(value) > 0)
			printf("    %-22s %" JSON_INTEGER_FORMAT " %s\n", "",
			       json_integer_value(value), name);
	}
}

/* What is wrong with the frames of a host, as its unit has counted it. */
static void tap_print_host_trouble(const json_t *row)
{
	tap_print_trouble(row, "forged", "frames with a forged source");
	tap_print_trouble(row, "refused_macs", "MAC addresses refused");
	tap_print_trouble(row, "too_long", "frames longer than the MTU of the LAN");
	tap_print_refused(row);
}

/* Connections that have ended. */
static void tap_print_ended(const json_t *ended, bool unit)
{
	const json_t *last = json_object_get(ended, "last");
	size_t count = json_array_size(last);
	char what[64];
	if (tap_count(ended, "connections") == 0)
		return;
	printf("    %" JSON_INTEGER_FORMAT " %s ended\n", tap_count(ended, "connections"),
	       tap_count(ended, "connections") == 1 ? "connection has" : "connections have");
	if (unit)
		tap_print_traffic("of these", ended);
	tap_print_host_trouble(ended);
	for (size_t i = count > TAP_ENDED_SHOWN ? count - TAP_ENDED_SHOWN : 0; i < count; i++) {
		const json_t *row = json_array_get(last, i);
		snprintf(what, sizeof(what), "%s%s", unit ? "last, " : "last",
		         unit ? tap_text(row, "name") : "");
		printf("    %-22s %s", what, tap_text(row, "why"));
		if (tap_count(row, "times") > 1)
			printf(" (%" JSON_INTEGER_FORMAT " times)", tap_count(row, "times"));
		putchar('\n');
	}
}

static void tap_print(const json_t *answer)
{
	const json_t *interface = json_object_get(answer, "interface"), *row;
	bool unit = strcmp(tap_text(answer, "role"), "unit") == 0;
	char what[160];
	size_t i;
	if (unit)
		printf("%s: unit\n", tap_text(answer, "name"));
	else
		printf("%s: host of %s, %s%s%s, %s, %s, MAC %s%s%s\n", tap_text(answer, "name"),
		       tap_text(answer, "unit"),
		       json_is_true(json_object_get(answer, "up")) ? "up" : "down",
		       tap_text(answer, "channel")[0] != '\0' ? " by " : "",
		       tap_text(answer, "channel"), tap_text(answer, "mode"),
		       tap_text(answer, "model"), tap_text(answer, "mac"),
		       tap_text(answer, "why")[0] != '\0' ? ": " : "", tap_text(answer, "why"));
	snprintf(what, sizeof(what), "%s:%s", tap_text(interface, "kind"),
	         tap_text(interface, "where"));
	tap_print_traffic(what, interface);
	tap_print_trouble(answer, "too_long", "frames longer than the MTU of the LAN");
	tap_print_trouble(answer, "refused_frames",
	                  "frames with another source than the address of the interface");
	tap_print_trouble(answer, "refused", "connections refused");
	tap_print_trouble(answer, "lan_forged", "frames of the LAN with the source of a host");
	if (!json_is_true(json_object_get(interface, "link")) && unit)
		printf("    %-22s no link\n", "");
	json_array_foreach(json_object_get(answer, "hosts"), i, row)
	{
		snprintf(what, sizeof(what), "%s %s", tap_text(row, "name"), tap_text(row, "mac"));
		tap_print_traffic(what, row);
		tap_print_host_trouble(row);
	}
	tap_print_refused(answer);
	tap_print_ended(json_object_get(answer, "ended"), unit);
}

static int tap_stat_command(struct tap_command *command)
{
	static char names[TAP_MAX_SHOWN][TAP_NAME_BYTES];
	size_t count = (size_t)command->given;
	int status = 0;
	json_t *all = json_array();
	if (count == 0)
		count = control_list(names, TAP_MAX_SHOWN);
	for (size_t i = 0; i < count; i++) {
		json_t *answer = tap_ask(command->given > 0 ? command->operands[i] : names[i],
		                         json_pack("{s:s}", "do", "stat"), false);
		if (answer == NULL) {
			status = 1;
			continue;
		}
		if (!command->json)
			tap_print(answer);
		json_array_append_new(all, answer);
	}
	if (command->json) {
		tap_print_json(all);
		return status;
	}
	if (count == 0)
		puts("no unit or host runs here");
	json_decref(all);
	return status;
}

static int tap_mac_command(struct tap_command *command)
{
	if (command->given < 1 || command->given > 2) {
		fprintf(stderr,
		        "heddle tap mac: give the name of a host, and the new address if it is "
		        "to change\n");
		return EXIT_WRONG_USAGE;
	}
	json_t *question = json_pack("{s:s}", "do", "mac");
	if (command->given == 2)
		json_object_set_new(question, "mac", json_string(command->operands[1]));
	json_t *answer = tap_ask(command->operands[0], question, false);
	if (answer == NULL)
		return 1;
	if (command->json) {
		json_object_set_new(answer, "name", json_string(command->operands[0]));
		tap_print_json(answer);
		return 0;
	}
	puts(tap_text(answer, "mac"));
	json_decref(answer);
	return 0;
}

static int tap_down_command(struct tap_command *command)
{
	static char names[TAP_MAX_SHOWN][TAP_NAME_BYTES];
	size_t count = (size_t)command->given;
	int status = 0;
	json_t *ended = json_array();
	if (count == 0)
		count = control_list(names, TAP_MAX_SHOWN);
	for (size_t i = 0; i < count; i++) {
		const char *name = command->given > 0 ? command->operands[i] : names[i];
		json_t *answer = tap_ask(name, json_pack("{s:s}", "do", "down"), true);
		status |= answer == NULL;
		if (answer != NULL)
			json_array_append_new(ended, json_string(name));
		json_decref(answer);
	}
	if (command->json)
		tap_print_json(json_pack("{s:O}", "ended", ended));
	else if (count == 0)
		puts("no unit or host runs here");
	json_decref(ended);
	return status;
}

static const struct tap_verb {
	const char *name, *arguments, *doc;
	const struct argp_option *options;
	int (*run)(struct tap_command *command);
} tap_verbs[] = {
        {"unit", "--lan LAN", "Serve hosts: connect their interfaces to a LAN.", unit_list,
         tap_unit_command},
        {"host", "NODE --tap NAME", "Make an interface whose cable ends at a unit.", host_list,
         tap_host_command},
        {"stat", "[NAME...]", "Show units and hosts, and their counters.", json_list,
         tap_stat_command},
        {"mac", "NAME [MAC]", "Show or change the MAC address of a host.", json_list,
         tap_mac_command},
        {"down", "[NAME...]", "End units and hosts.", json_list, tap_down_command},
};
#define TAP_VERBS (sizeof(tap_verbs) / sizeof(tap_verbs[0]))

static void tap_print_verbs(FILE *out)
{
	fputs("Usage: heddle tap VERB [OPTION...]\n\n", out);
	for (size_t i = 0; i < TAP_VERBS; i++)
		fprintf(out, "  %-6s %s\n", tap_verbs[i].name, tap_verbs[i].doc);
	fputs("\n`heddle tap VERB --help' tells the options; see also heddle-tap(1).\n", out);
}

static const char *tap_verb_word(size_t index)
{
	return tap_verbs[index].name;
}

int tap_command(int argc, char **argv)
{
	if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-?") == 0) {
		tap_print_verbs(argc < 2 ? stderr : stdout);
		return argc < 2 ? EXIT_WRONG_USAGE : 0;
	}
	for (size_t i = 0; i < TAP_VERBS; i++) {
		if (strcmp(argv[1], tap_verbs[i].name) != 0)
			continue;
		struct tap_command command = {
		        .verb = tap_verbs[i].name,
		        .options = {.mtu = 1500,
		                    .service = HDL_PUSH_SERVICE,
		                    .offloads = true,
		                    .rights = {.macs = 1},
		                    .terms = {.host_owns = true, .unit_owns = true}}};
		struct argp argp = {tap_verbs[i].options,
		                    tap_parse,
		                    tap_verbs[i].arguments,
		                    tap_verbs[i].doc,
		                    NULL,
		                    NULL,
		                    NULL};
		char name[64];
		snprintf(name, sizeof(name), "heddle tap %s", tap_verbs[i].name);
		argv[1] = name;
		error_t error = argp_parse(&argp, argc - 1, argv + 1, 0, NULL, &command);
		return error != 0 ? EXIT_WRONG_USAGE : tap_verbs[i].run(&command);
	}
	fprintf(stderr, "heddle tap: there is no '%s'; `heddle tap --help' lists the verbs\n",
	        argv[1]);
	word_suggest(argv[1], tap_verb_word, TAP_VERBS);
	return EXIT_WRONG_USAGE;
}
