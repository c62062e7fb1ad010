/* heddle aperture: the aperture tables of programs that use Heddle, the status of a port, and what
 * concerns the node agent (criteria.c). */
#include <argp.h>
#include <arpa/inet.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <heddle/aperture.h>

#include "cli/command.h"
#include "cli/criteria.h"
#include "cli/target.h"

#define STATUS_WAIT_MS 3000

struct aperture_words {
	bool json;
	const char *node; /* NULL: all of them */
	bool asks;        /* for the status of @target */
	struct target target;
	bool about_criteria, sets; /* shows, or sets @criteria ... */
	int pid;                   /* ... of this process; 0: of all */
	struct oob_criteria criteria;
};

static void parse_criteria(const char *arg, struct argp_state *state)
{
	struct aperture_words *words = state->input;
	const char *bad = oob_parse(arg, &words->criteria);
	char list[OOB_TEXT];
	oob_list(list);
	words->sets = true;
	if (bad != NULL)
		argp_error(state,
		           "'%.*s' is not a criterion; give words of %s, with commas between them, "
		           "and ! before those that wake the agent",
		           (int)strcspn(bad, ","), bad, list);
}

static void parse_argument(char *arg, struct argp_state *state)
{
	struct aperture_words *words = state->input;
	if (state->arg_num == 0 && strcmp(arg, "status") == 0)
		words->asks = true;
	else if (state->arg_num == 0 && strcmp(arg, "criteria") == 0)
		words->about_criteria = true;
	else if (words->about_criteria && state->arg_num == 1)
		parse_criteria(arg, state);
	else if (!words->asks || state->arg_num != 1)
		argp_error(state,
		           state->arg_num == 0 ? "'%s' is neither 'status' nor 'criteria'"
		                               : "'%s' is one argument too many",
		           arg);
	else if (!target_parse(arg, &words->target))
		argp_error(state, "'%s' is not NODE:PORT, with a port from 1 to 65535", arg);
}

/* A process id; 0: it is none. */
static int parse_pid(const char *text)
{
	char *end;
	long pid = strtol(text, &end, 10);
	return *text != '\0' && *end == '\0' && pid > 0 && pid <= INT_MAX ? (int)pid : 0;
}

static error_t aperture_parse(int key, char *arg, struct argp_state *state)
{
	struct aperture_words *words = state->input;
	switch (key) {
	case 'j':
		words->json = true;
		return 0;
	case 'n':
		words->node = arg;
		return 0;
	case ARGP_KEY_ARG:
		parse_argument(arg, state);
		return 0;
	case 'p':
		words->pid = parse_pid(arg);
		if (words->pid == 0)
			argp_error(state, "'%s' is not a process id", arg);
		return 0;
	case ARGP_KEY_END:
		if (words->pid != 0 && !words->about_criteria)
			argp_error(state, "--pid is for criteria");
		if (words->node != NULL && words->about_criteria)
			argp_error(state, "--node is not for criteria");
		if (words->asks && words->target.node == NULL)
			argp_error(state, "name the port, NODE:PORT");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option aperture_options[] = {
        {"json", 'j', NULL, 0, "Write JSON", 0},
        {"node", 'n', "NAME", 0, "Show only the programs of the node NAME", 0},
        {"pid", 'p', "PID", 0, "With criteria: of this process alone", 0},
        {0}};

/* --- words --- */

static const char *word_of(const char *const *words, size_t count, uint32_t value)
{
	return value < count ? words[value] : "?";
}
#define WORD_OF(words, value) word_of(words, sizeof(words) / sizeof((words)[0]), value)

static const char *const aperture_types[] = {"data", "event", "ip"};
static const char *const aperture_states[] = {"closed", "offered", "connecting",
                                              "open",   "closing", "failed"};
static const char *const aperture_carriers[] = {"none", "lane", "udp", "ip", "forward"};
static const char *const aperture_ranges[] = {"none", "same", "tracked"};

/* An address of IPv4 as such. */
static const char *host_text(const struct hdl_gid *gid, char text[INET6_ADDRSTRLEN])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	if (memcmp(gid->raw, mapped, sizeof(mapped)) == 0)
		return inet_ntop(AF_INET, gid->raw + 12, text, INET6_ADDRSTRLEN);
	return inet_ntop(AF_INET6, gid->raw, text, INET6_ADDRSTRLEN);
}

/* The checks by their names, in the order in which they are made. */
static const struct {
	uint32_t bit;
	const char *name;
} check_names[] = {{HDL_CHECK_VALID, "valid"},    {HDL_CHECK_SEQUENCE, "sequence"},
                   {HDL_CHECK_NONCE, "nonce"},    {HDL_CHECK_LINK, "link"},
                   {HDL_CHECK_SOURCE, "source"},  {HDL_CHECK_EXTENT, "extent"},
                   {HDL_CHECK_CLUSTER, "cluster"}};
#define CHECK_NAMES (sizeof(check_names) / sizeof(check_names[0]))

/* How many bits of @mask are set before the first that is not; -1: others are set, too. */
static int mask_bits(const struct hdl_gid *mask)
{
	int bits = 0;
	while (bits < 128 && (mask->raw[bits / 8] >> (7 - bits % 8) & 1) != 0)
		bits++;
	for (int i = bits; i < 128; i++)
		if ((mask->raw[i / 8] >> (7 - i % 8) & 1) != 0)
			return -1;
	return bits;
}

static const char *source_text(const struct hdl_aperture_info *info, char *text, size_t bytes)
{
	char host[INET6_ADDRSTRLEN], mask[INET6_ADDRSTRLEN];
	int bits = mask_bits(&info->mask);
	if (bits == 0)
		snprintf(text, bytes, "any");
	else if (bits == 128)
		snprintf(text, bytes, "%s", host_text(&info->source, host));
	else if (bits > 0)
		snprintf(text, bytes, "%s/%d",
		         inet_ntop(AF_INET6, info->source.raw, host, sizeof(host)), bits);
	else
		snprintf(text, bytes, "%s under %s",
		         inet_ntop(AF_INET6, info->source.raw, host, sizeof(host)),
		         inet_ntop(AF_INET6, info->mask.raw, mask, sizeof(mask)));
	return text;
}

/* --- as JSON --- */

static json_t *incoming_json(const struct hdl_aperture_info *info)
{
	char host[INET6_ADDRSTRLEN], mask[INET6_ADDRSTRLEN];
	json_t *checks = json_array();
	for (size_t i = 0; i < CHECK_NAMES; i++)
		if ((info->checks & check_names[i].bit) != 0)
			json_array_append_new(checks, json_string(check_names[i].name));
	return json_pack("{s:I,s:b,s:b,s:b,s:I,s:I,s:I,s:I,s:s,s:s,s:i,s:i,s:o}", "size_bytes",
	                 info->bits != 0 ? (json_int_t)1 << info->bits : 0, "connected",
	                 info->connected, "read", (info->access & HDL_ACCESS_REMOTE_READ) != 0,
	                 "write", (info->access & HDL_ACCESS_REMOTE_WRITE) != 0, "first",
	                 (json_int_t)info->first, "length", (json_int_t)info->length, "expected",
	                 (json_int_t)info->expected, "nonce_every", (json_int_t)info->nonce_every,
	                 "source", inet_ntop(AF_INET6, info->source.raw, host, sizeof(host)),
	                 "mask", inet_ntop(AF_INET6, info->mask.raw, mask, sizeof(mask)), "cluster",
	                 (int)info->source_cluster, "cluster_mask", (int)info->cluster_mask,
	                 "checks", checks);
}

static json_t *outgoing_json(const struct hdl_aperture_info *info)
{
	char host[INET6_ADDRSTRLEN], address[32];
	if (info->carrier == HDL_CARRIER_NONE)
		return json_null();
	json_t *object = json_pack(
	        "{s:s,s:s,s:i,s:b,s:I,s:b,s:b,s:I,s:I,s:I,s:I,s:I,s:s}", "carrier",
	        WORD_OF(aperture_carriers, info->carrier), "host", host_text(&info->host, host),
	        "cluster", (int)info->cluster, "by_cluster", info->by_cluster,
	        info->type == HDL_APERTURE_IP ? "udp_port" : "index", (json_int_t)info->out_index,
	        "pointed", info->pointed, "sequenced", info->sequenced, "size_bytes",
	        info->out_bits != 0 ? (json_int_t)1 << info->out_bits : 0, "first",
	        (json_int_t)info->out_first, "length", (json_int_t)info->out_length, "sequence",
	        (json_int_t)info->sequence, "acknowledged", (json_int_t)info->acknowledged, "range",
	        WORD_OF(aperture_ranges, info->range));
	snprintf(address, sizeof(address), "%#" PRIx64, info->address);
	json_object_set_new(object, "address",
	                    info->address != 0 ? json_string(address) : json_null());
	return object;
}

static json_t *aperture_json(const struct hdl_aperture_info *info)
{
	return json_pack("{s:I,s:s,s:s,s:s,s:o,s:o,s:o}", "index", (json_int_t)info->index, "type",
	                 WORD_OF(aperture_types, info->type), "state",
	                 WORD_OF(aperture_states, info->state), "reason",
	                 hdl_aperture_reason_str(info->reason), "port",
	                 info->port != 0 ? json_integer(info->port) : json_null(), "incoming",
	                 incoming_json(info), "outgoing", outgoing_json(info));
}

static json_t *port_json(const struct hdl_port_info *port)
{
	return json_pack("{s:i,s:i,s:i,s:i,s:i,s:i}", "port", port->number, "rules",
	                 (int)port->rules, "waiting", (int)port->waiting, "offers",
	                 (int)port->offers, "open", (int)port->open, "rejected",
	                 (int)port->rejected);
}

static json_t *owner_json(const struct hdl_aperture_process *p, const struct hdl_oob_status *known)
{
	char gid[INET6_ADDRSTRLEN];
	json_t *apertures = json_array(), *ports = json_array(), *counters = json_object();
	for (size_t i = 0; i < p->count; i++)
		json_array_append_new(apertures, aperture_json(&p->apertures[i]));
	for (size_t i = 0; i < p->port_count; i++)
		json_array_append_new(ports, port_json(&p->ports[i]));
	for (size_t i = 0; i < HDL_APERTURE_COUNTER_COUNT; i++)
		json_object_set_new(counters, p->counters[i].name,
		                    json_integer((json_int_t)p->counters[i].value));
	return json_pack("{s:s,s:s,s:s,s:i,s:i,s:i,s:b,s:b,s:o,s:o,s:o,s:o}", "node", p->node,
	                 "gid", inet_ntop(AF_INET6, p->gid.raw, gid, sizeof(gid)), "program",
	                 p->program, "pid", p->pid, "slot", (int)p->slot, "cluster",
	                 (int)p->cluster, "seen", p->seen, "trusted",
	                 p->seen && p->trust == HDL_TRUST_USER, "ports", ports, "apertures",
	                 apertures, "counters", counters, "last_error", oob_error_json(known));
}

/* --- for people --- */

static void print_size(uint8_t bits)
{
	static const char units[] = "KMG";
	if (bits >= 10 && bits < 40)
		printf("%u %ciB", 1u << (bits - 10) % 10, units[(bits - 10) / 10]);
	else
		fputs("no memory", stdout);
}

static void print_incoming(const struct hdl_aperture_info *info)
{
	char source[2 * INET6_ADDRSTRLEN + 16];
	printf("    in  0x%08x %-5s ", info->index, WORD_OF(aperture_types, info->type));
	print_size(info->bits);
	if (info->length > 0)
		printf(", bytes %" PRIu64 " to %" PRIu64 " %s%s", info->first,
		       info->first + (info->length - 1),
		       (info->access & HDL_ACCESS_REMOTE_READ) != 0 ? "r" : "",
		       (info->access & HDL_ACCESS_REMOTE_WRITE) != 0 ? "w" : "");
	fputs("; checks", stdout);
	for (size_t i = 0; i < CHECK_NAMES; i++)
		if ((info->checks & check_names[i].bit) != 0)
			printf(" %s", check_names[i].name);
	if ((info->checks & HDL_CHECK_SOURCE) != 0 && (info->connected || info->type == 2))
		printf("; from %s", source_text(info, source, sizeof(source)));
	if ((info->checks & HDL_CHECK_CLUSTER) != 0)
		printf("; from cluster address %#x under %#x", info->source_cluster,
		       info->cluster_mask);
	if ((info->checks & HDL_CHECK_SEQUENCE) != 0 && info->connected)
		printf("; expects %u", info->expected);
	if (info->nonce_every != 0)
		printf("; nonce rolls after %u", info->nonce_every);
	if (info->port != 0)
		printf("; events to port %u", info->port);
	putchar('\n');
}

static void print_outgoing(const struct hdl_aperture_info *info)
{
	char host[INET6_ADDRSTRLEN];
	printf("    out 0x%08x %-5s ", info->index, WORD_OF(aperture_types, info->type));
	if (info->carrier == HDL_CARRIER_NONE) {
		printf("%s", WORD_OF(aperture_states, info->state));
		if (info->reason != HDL_REASON_NONE)
			printf(" (%s)", hdl_aperture_reason_str(info->reason));
	} else if (info->carrier == HDL_CARRIER_IP) {
		printf("datagrams to %s, UDP port %u", host_text(&info->host, host),
		       info->out_index);
	} else {
		printf("%s to 0x%08x of %s by %s, bytes %" PRIu64 " from %" PRIu64,
		       info->pointed ? "pointed" : WORD_OF(aperture_states, info->state),
		       info->out_index, host_text(&info->host, host),
		       WORD_OF(aperture_carriers, info->carrier), info->out_length,
		       info->out_first);
		if (info->cluster != 0)
			printf(", %scluster address %u", info->by_cluster ? "by its " : "",
			       info->cluster);
		if (info->sequenced)
			printf("; next %u, acknowledged %u", info->sequence, info->acknowledged);
	}
	if (info->range != HDL_RANGE_NONE)
		printf("; %s pages at %#" PRIx64, WORD_OF(aperture_ranges, info->range),
		       info->address);
	putchar('\n');
}

static void print_owner(const struct hdl_aperture_process *p, const struct hdl_oob_status *known)
{
	printf("  %s (pid %d), slot %u, cluster address %u: ", p->program, p->pid, p->slot,
	       p->cluster);
	if (!p->seen) {
		puts("the system does not let us read its tables, or it is of another version");
		return;
	}
	printf("%zu ports, %zu apertures%s\n", p->port_count, p->count,
	       p->trust == HDL_TRUST_USER ? "" : ", not trusted");
	for (size_t i = 0; i < p->port_count; i++)
		printf("    port %u: %u waiting, %u offered, %u open, %u rejected; %u rules\n",
		       p->ports[i].number, p->ports[i].waiting, p->ports[i].offers,
		       p->ports[i].open, p->ports[i].rejected, p->ports[i].rules);
	for (size_t i = 0; i < p->count; i++)
		print_incoming(&p->apertures[i]);
	for (size_t i = 0; i < p->count; i++)
		print_outgoing(&p->apertures[i]);
	oob_error_print(known);
	bool any = false;
	for (size_t i = 0; i < HDL_APERTURE_COUNTER_COUNT; i++)
		if (p->counters[i].value != 0) {
			printf("%s %s %" PRIu64, any ? "" : "   ", p->counters[i].name,
			       p->counters[i].value);
			any = true;
		}
	if (any)
		putchar('\n');
}

/* What the agent knows of each process, beside what can be read from its memory. */
struct agent_view {
	struct hdl_oob_process *list;
	size_t count;
};

static const struct hdl_oob_status *view_of(const struct agent_view *view,
                                            const struct hdl_aperture_process *p)
{
	static const struct hdl_oob_status nothing;
	for (size_t i = 0; i < view->count; i++)
		if (view->list[i].pid == p->pid && view->list[i].slot == p->slot &&
		    strcmp(view->list[i].node, p->node) == 0)
			return &view->list[i].status;
	return &nothing;
}

static int owner_order(const void *a, const void *b)
{
	const struct hdl_aperture_process *x = a, *y = b;
	int order = strcmp(x->node, y->node);
	return order != 0 ? order : (x->pid > y->pid) - (x->pid < y->pid);
}

static void print_owners(const struct aperture_words *words, const struct agent_view *view,
                         const struct hdl_aperture_process *list, size_t count)
{
	char gid[INET6_ADDRSTRLEN];
	const struct hdl_aperture_process *last = NULL;
	for (size_t i = 0; i < count; i++) {
		if (words->node != NULL && strcmp(words->node, list[i].node) != 0)
			continue;
		if (last == NULL || strcmp(list[i].node, last->node) != 0)
			printf("%snode %s  %s\n", last == NULL ? "" : "\n",
			       list[i].node[0] != '\0' ? list[i].node : "(this machine)",
			       inet_ntop(AF_INET6, list[i].gid.raw, gid, sizeof(gid)));
		print_owner(&list[i], view_of(view, &list[i]));
		last = &list[i];
	}
	if (last == NULL)
		puts("No program has apertures or ports now.");
}

static int show_apertures(const struct aperture_words *words)
{
	struct hdl_aperture_process *list;
	size_t count;
	int result = hdl_aperture_observe(&list, &count);
	if (result != 0 && result != -HDL_EHOSTUNREACH) {
		if (result != -HDL_EIO) /* that has been logged */
			fprintf(stderr, "heddle aperture: %s\n", hdl_strerror(result));
		return EXIT_FAILURE;
	}
	if (count > 0)
		qsort(list, count, sizeof(*list), owner_order);
	struct agent_view view = {0};
	(void)hdl_oob_observe(&view.list, &view.count); /* without: no errors are known */
	if (words->json) {
		json_t *all = json_array();
		for (size_t i = 0; i < count; i++)
			if (words->node == NULL || strcmp(words->node, list[i].node) == 0)
				json_array_append_new(
				        all, owner_json(&list[i], view_of(&view, &list[i])));
		json_dumpf(all, stdout, JSON_INDENT(2));
		putchar('\n');
		json_decref(all);
	} else {
		print_owners(words, &view, list, count);
	}
	hdl_oob_observe_free(view.list);
	hdl_aperture_observe_free(list, count);
	return EXIT_SUCCESS;
}

/* --- STATUS --- */

static int ask_status(const struct aperture_words *words)
{
	struct hdl_open_attr open = {.on_node = true, .node = words->node};
	struct hdl_adapter *adapter;
	struct hdl_port_status status;
	struct hdl_gid host;
	if (!target_find("heddle aperture", words->target.node, &host))
		return EXIT_FAILURE;
	int result = hdl_open(&open, &adapter);
	if (result == 0) {
		result = hdl_port_status(adapter, &host, words->target.port, &status,
		                         STATUS_WAIT_MS);
		hdl_close(adapter);
	}
	if (result != 0) {
		fprintf(stderr, "heddle aperture: port %u of %s: %s\n", words->target.port,
		        words->target.node,
		        result == -HDL_ECONNREFUSED ? "nobody holds it" : hdl_strerror(result));
		return EXIT_FAILURE;
	}
	if (words->json) {
		json_t *object =
		        json_pack("{s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:b}", "node", words->target.node,
		                  "port", words->target.port, "waiting", (int)status.waiting,
		                  "offers", (int)status.offers, "open", (int)status.open,
		                  "rejected", (int)status.rejected, "events", (int)status.events,
		                  "blocked", status.blocked != 0);
		json_dumpf(object, stdout, JSON_INDENT(2));
		putchar('\n');
		json_decref(object);
	} else {
		printf("port %u of %s: %u waiting, %u offered, %u open, %u rejected; %u events%s\n",
		       words->target.port, words->target.node, status.waiting, status.offers,
		       status.open, status.rejected, status.events,
		       status.blocked != 0 ? ", a thread waits for the next" : "");
	}
	return EXIT_SUCCESS;
}

int aperture_command(int argc, char **argv)
{
	static const struct argp argp = {
	        aperture_options,
	        aperture_parse,
	        "\nstatus NODE:PORT\ncriteria [WORDS]",
	        "The apertures and ports of the programs that use Heddle: tables, counters; the "
	        "status of a port; or which events of ports concern the node agent.",
	        NULL,
	        NULL,
	        NULL};
	struct aperture_words words = {0};
	if (argp_parse(&argp, argc, argv, 0, NULL, &words) != 0)
		return EXIT_WRONG_USAGE;
	if (words.sets)
		return criteria_set(words.pid, &words.criteria);
	if (words.about_criteria)
		return criteria_show(words.pid, words.json);
	return words.asks ? ask_status(&words) : show_apertures(&words);
}
