/* heddle status: the processes that use Heddle, and their queue pairs. */
#include <argp.h>
#include <arpa/inet.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <heddle/heddle.h>

#include "cli/command.h"
#include "port/rundir.h"

#define WATCH_MOST_SECONDS 86400.0

struct look {
	bool json;
	const char *node; /* NULL: all of them */
	double seconds;   /* between updates; 0: only once */
};

static double to_seconds(struct argp_state *state, const char *text)
{
	char *end;
	double seconds = text != NULL ? strtod(text, &end) : 1;
	if (text != NULL &&
	    (end == text || *end != '\0' || !(seconds >= 0.1 && seconds <= WATCH_MOST_SECONDS)))
		argp_error(state, "--watch must be from 0.1 to %.0f seconds, not '%s'",
		           WATCH_MOST_SECONDS, text);
	return seconds;
}

static error_t status_parse(int key, char *arg, struct argp_state *state)
{
	struct look *look = state->input;
	switch (key) {
	case 'j':
		look->json = true;
		return 0;
	case 'n':
		look->node = arg;
		return 0;
	case 'w':
		look->seconds = to_seconds(state, arg);
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "'%s' is not expected: it takes no arguments", arg);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option status_options[] = {
        {"json", 'j', NULL, 0, "Write JSON", 0},
        {"node", 'n', "NAME", 0, "Show only the programs of the node NAME", 0},
        {"watch", 'w', "SECONDS", OPTION_ARG_OPTIONAL,
         "Update every so many seconds (default: 1), until interrupted", 0},
        {0}};

/* The short name that @value has in the list of @kind. */
static const char *short_word(uint32_t kind, uint32_t value)
{
	size_t count;
	const struct hdl_code *list = hdl_codes(kind, &count);
	for (size_t i = 0; i < count; i++)
		if (list[i].value == value)
			return list[i].text;
	return "?";
}

static const char *status_type_name(uint32_t type)
{
	return short_word(HDL_CODES_QP_TYPE, type);
}

static const char *state_name(uint32_t state)
{
	return short_word(HDL_CODES_QP_STATE, state);
}

static bool status_shows(const struct look *look, const struct hdl_process *process)
{
	return look->node == NULL || strcmp(look->node, process->node) == 0;
}

/* --- who is connected with whom --- */

static int by_qpn(const void *key, const void *element)
{
	uint32_t qpn = *(const uint32_t *)key, other = ((const struct hdl_qp_info *)element)->qpn;
	return (qpn > other) - (qpn < other);
}

static int by_node_and_pid(const void *a, const void *b)
{
	const struct hdl_process *x = a, *y = b;
	int order = strcmp(x->node, y->node);
	return order != 0 ? order : (x->pid > y->pid) - (x->pid < y->pid);
}

static bool status_is_connected(const struct hdl_qp_info *qp)
{
	return qp->type != HDL_QP_UD && qp->type != HDL_QP_RD && qp->type != HDL_QP_RAW &&
	       qp->state >= HDL_QPS_RTR;
}

/* The process at the other end of @qp, which has that queue pair and the same link. NULL: it is
 * gone, or on another machine. */
static const struct hdl_process *status_peer_of(const struct hdl_process *list, size_t count,
                                                const struct hdl_process *own,
                                                const struct hdl_qp_info *qp)
{
	for (size_t i = 0; status_is_connected(qp) && i < count; i++) {
		const struct hdl_qp_info *found =
		        list[i].qp_count == 0
		                ? NULL
		                : bsearch(&qp->dest_qpn, list[i].qps, list[i].qp_count,
		                          sizeof(*list[i].qps), by_qpn);
		if (found == NULL)
			continue;
		/* A queue pair that is connected to its own process has no link. */
		if ((found->link == qp->link && found->dest_qpn == qp->qpn) ||
		    (&list[i] == own && found->dest_qpn == qp->qpn))
			return &list[i];
	}
	return NULL;
}

/* Does another user hold the node's own address? */
static bool is_taken(const struct hdl_process *p)
{
	static const struct hdl_gid none;
	return memcmp(&p->taken, &none, sizeof(none)) != 0;
}

/* --- as JSON --- */

static const char *gid_text(const struct hdl_gid *gid, char text[INET6_ADDRSTRLEN])
{
	return inet_ntop(AF_INET6, gid->raw, text, INET6_ADDRSTRLEN);
}

static json_t *level_json(uint32_t level)
{
	return level == HDL_UNSEEN ? json_null() : json_integer(level);
}

/* The last error: how a request ended, and the event. */
static json_t *fault_json(const struct hdl_qp_info *qp)
{
	if (qp->status == HDL_WC_SUCCESS && !qp->has_event)
		return json_null();
	json_t *fault = json_object();
	if (qp->status != HDL_WC_SUCCESS)
		json_object_update_new(
		        fault, json_pack("{s:i,s:s,s:i,s:s}", "status", (int)qp->status, "text",
		                         hdl_wc_status_str(qp->status), "vendor_err",
		                         (int)qp->detail, "detail", hdl_detail_str(qp->detail)));
	if (qp->has_event)
		json_object_update_new(fault,
		                       json_pack("{s:i,s:s,s:i,s:s}", "event", (int)qp->event,
		                                 "event_text", hdl_event_str(qp->event),
		                                 "event_vendor_err", (int)qp->event_detail,
		                                 "event_detail", hdl_detail_str(qp->event_detail)));
	return fault;
}

static json_t *qp_json(const struct hdl_process *list, size_t count, const struct hdl_process *p,
                       const struct hdl_qp_info *qp)
{
	const struct hdl_process *peer = status_peer_of(list, count, p, qp);
	json_t *object = json_pack("{s:i,s:s,s:s}", "qpn", (int)qp->qpn, "type",
	                           status_type_name(qp->type), "state", state_name(qp->state));
	json_object_set_new(object, "peer_qpn",
	                    status_is_connected(qp) ? json_integer(qp->dest_qpn) : json_null());
	json_object_set_new(object, "peer_pid",
	                    peer != NULL ? json_integer(peer->pid) : json_null());
	json_object_set_new(object, "over_network",
	                    status_is_connected(qp) ? json_boolean(qp->on_wire) : json_null());
	json_object_set_new(object, "requests_outstanding", level_json(qp->outstanding));
	json_object_set_new(object, "receives_posted", level_json(qp->receives));
	json_object_set_new(object, "receives_shared", json_boolean(qp->shared));
	json_object_set_new(object, "last_error", fault_json(qp));
	return object;
}

static json_t *process_json(const struct hdl_process *list, size_t count,
                            const struct hdl_process *p)
{
	char gid[INET6_ADDRSTRLEN];
	json_t *qps = json_array(), *counters = json_object();
	for (size_t i = 0; i < p->qp_count; i++)
		json_array_append_new(qps, qp_json(list, count, p, &p->qps[i]));
	for (size_t i = 0; i < p->counter_count; i++)
		json_object_set_new(counters, p->counters[i].name,
		                    json_integer((json_int_t)p->counters[i].value));
	json_t *object = json_pack(
	        "{s:s,s:s,s:s,s:i,s:i,s:i,s:i,s:I,s:o,s:o}", "node", p->node, "gid",
	        gid_text(&p->gid, gid), "program", p->program, "pid", p->pid, "slot", (int)p->slot,
	        "regions", (int)p->regions, "windows", (int)p->windows, "region_bytes",
	        (json_int_t)p->region_bytes, "queue_pairs", qps, "counters", counters);
	if (is_taken(p)) {
		json_object_set_new(object, "taken", json_string(gid_text(&p->taken, gid)));
		json_object_set_new(object, "taken_by", json_integer(p->taken_by));
	}
	return object;
}

/* --- for people --- */

static void print_levels(const struct hdl_qp_info *qp)
{
	if (qp->outstanding != HDL_UNSEEN)
		printf("; %u requests outstanding", qp->outstanding);
	if (qp->receives != HDL_UNSEEN)
		printf(", %u receives posted%s", qp->receives, qp->shared ? " (shared)" : "");
}

static void print_fault(const char *what, const char *text, uint32_t detail)
{
	printf("      %s: %s%s%s\n", what, text, detail != HDL_DETAIL_NONE ? "; " : "",
	       detail != HDL_DETAIL_NONE ? hdl_detail_str(detail) : "");
}

static void print_qp(const struct hdl_process *list, size_t count, const struct hdl_process *p,
                     const struct hdl_qp_info *qp)
{
	const struct hdl_process *peer = status_peer_of(list, count, p, qp);
	printf("    qp 0x%06x %s %s", qp->qpn, status_type_name(qp->type), state_name(qp->state));
	if (status_is_connected(qp))
		printf("  to 0x%06x", qp->dest_qpn);
	if (peer == p)
		fputs(" of its own", stdout);
	else if (peer != NULL)
		printf(" of %s (pid %d)", peer->program, peer->pid);
	else if (status_is_connected(qp))
		fputs(qp->on_wire ? " over a network" : ", which does not exist", stdout);
	print_levels(qp);
	putchar('\n');
	if (qp->status != HDL_WC_SUCCESS)
		print_fault("last error", hdl_wc_status_str(qp->status), qp->detail);
	if (qp->has_event)
		print_fault("last event", hdl_event_str(qp->event), qp->event_detail);
}

static void print_process(const struct hdl_process *list, size_t count, const struct hdl_process *p)
{
	bool any = false;
	printf("  %s (pid %d), slot %u: %u regions (%llu bytes), %u windows, %zu queue pairs\n",
	       p->program, p->pid, p->slot, p->regions, (unsigned long long)p->region_bytes,
	       p->windows, p->qp_count);
	for (size_t i = 0; i < p->qp_count; i++)
		print_qp(list, count, p, &p->qps[i]);
	for (size_t i = 0; i < p->counter_count; i++)
		if (p->counters[i].value != 0) {
			printf("%s %s %llu", any ? "" : "   ", p->counters[i].name,
			       (unsigned long long)p->counters[i].value);
			any = true;
		}
	if (any)
		putchar('\n');
}

static void print_all(const struct look *look, const struct hdl_process *list, size_t count)
{
	char gid[INET6_ADDRSTRLEN], directory[RUNDIR_MAX];
	const struct hdl_process *last = NULL;
	(void)rundir_open(directory, NULL); /* its name is there in any case */
	for (size_t i = 0; i < count; i++) {
		if (!status_shows(look, &list[i]))
			continue;
		if (last == NULL || strcmp(list[i].node, last->node) != 0)
			printf("%snode %s  %s\n", last == NULL ? "" : "\n",
			       list[i].node[0] != '\0' ? list[i].node : "(this machine)",
			       gid_text(&list[i].gid, gid));
		if (is_taken(&list[i]) && (i == 0 || strcmp(list[i].node, list[i - 1].node) != 0))
			printf("  instead of %s, which user %u holds\n",
			       gid_text(&list[i].taken, gid), list[i].taken_by);
		print_process(list, count, &list[i]);
		last = &list[i];
	}
	if (last == NULL && look->node != NULL)
		printf("No program uses Heddle on the node %s now. ", look->node);
	else if (last == NULL)
		printf("No program uses Heddle now. ");
	printf("%s(Directory of the node agent: %s)\n", last != NULL ? "\n" : "", directory);
}

/* With --watch, one line per update. */
static void print_json(const struct look *look, const struct hdl_process *list, size_t count)
{
	json_t *all = json_array();
	for (size_t i = 0; i < count; i++)
		if (status_shows(look, &list[i]))
			json_array_append_new(all, process_json(list, count, &list[i]));
	json_dumpf(all, stdout, look->seconds > 0 ? JSON_COMPACT : JSON_INDENT(2));
	putchar('\n');
	json_decref(all);
}

static int look_once(const struct look *look)
{
	struct hdl_process *list;
	size_t count;
	int result = hdl_observe(&list, &count);
	if (result != 0 && result != -HDL_EHOSTUNREACH) {
		if (result != -HDL_EIO) /* that has been logged */
			fprintf(stderr, "heddle: %s\n", hdl_strerror(result));
		return EXIT_FAILURE;
	}
	if (count > 0)
		qsort(list, count, sizeof(*list), by_node_and_pid);
	if (look->json)
		print_json(look, list, count);
	else
		print_all(look, list, count);
	hdl_observe_free(list, count);
	/* Otherwise main() does it. */
	return look->seconds == 0 || fflush(stdout) == 0 ? 0 : EXIT_FAILURE;
}

int status_command(int argc, char **argv)
{
	static const struct argp argp = {
	        status_options,
	        status_parse,
	        NULL,
	        "The programs that use Heddle: nodes, processes, queue pairs, regions, counters.",
	        NULL,
	        NULL,
	        NULL};
	struct look look = {0};
	if (argp_parse(&argp, argc, argv, 0, NULL, &look) != 0)
		return EXIT_WRONG_USAGE;
	bool clear = look.seconds > 0 && !look.json && isatty(STDOUT_FILENO) == 1;
	for (;;) {
		if (clear)
			fputs("\033[H\033[2J", stdout);
		int status = look_once(&look);
		if (status != 0 || look.seconds == 0)
			return status;
		if (!clear && !look.json)
			putchar('\n');
		struct timespec pause = {.tv_sec = (time_t)look.seconds};
		pause.tv_nsec = (long)((look.seconds - (double)pause.tv_sec) * 1e9);
		nanosleep(&pause, NULL);
	}
}
