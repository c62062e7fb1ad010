/* heddle status: who uses Heddle, with which queue pairs. */
#include <argp.h>
#include <arpa/inet.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <heddle/heddle.h>

#include "cli/command.h"

static error_t status_parse(int key, char *arg, struct argp_state *state)
{
	bool *json = state->input;
	(void)arg;
	if (key == 'j') {
		*json = true;
		return 0;
	}
	return key == ARGP_KEY_ARG ? (argp_usage(state), 0) : ARGP_ERR_UNKNOWN;
}

static const struct argp_option json_option[] = {{"json", 'j', NULL, 0, "Write JSON", 0}, {0}};

static const char *status_type_name(uint32_t type)
{
	static const char *const names[] = {"?",       "RC",      "UC", "UD",
	                                    "XRC_INI", "XRC_TGT", "RD", "RAW"};
	return names[type < 6 ? type : 0];
}

static const char *state_name(uint32_t state)
{
	static const char *const names[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
	return state < 7 ? names[state] : "?";
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
	return qp->type != HDL_QP_UD && qp->state >= HDL_QPS_RTR;
}

/* The process at the other end of @qp: it has the queue pair, over the same link. NULL when it is
 * gone. */
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
		/* One that is connected to itself has no link that tells. */
		if ((found->link == qp->link && found->dest_qpn == qp->qpn) ||
		    (&list[i] == own && found->dest_qpn == qp->qpn))
			return &list[i];
	}
	return NULL;
}

/* Is the node on another address than its own? */
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

static void print_qp(const struct hdl_process *list, size_t count, const struct hdl_process *p,
                     const struct hdl_qp_info *qp)
{
	const struct hdl_process *peer = status_peer_of(list, count, p, qp);
	printf("    qp 0x%06x %s %-5s", qp->qpn, status_type_name(qp->type), state_name(qp->state));
	if (status_is_connected(qp))
		printf("  to 0x%06x", qp->dest_qpn);
	if (peer == p)
		fputs(" of its own", stdout);
	else if (peer != NULL)
		printf(" of %s (pid %d)", peer->program, peer->pid);
	else if (status_is_connected(qp))
		fputs(", which is not there", stdout);
	putchar('\n');
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

static void print_all(const struct hdl_process *list, size_t count)
{
	char gid[INET6_ADDRSTRLEN];
	for (size_t i = 0; i < count; i++) {
		if (i == 0 || strcmp(list[i].node, list[i - 1].node) != 0)
			printf("%snode %s  %s\n", i == 0 ? "" : "\n",
			       list[i].node[0] != '\0' ? list[i].node : "(this machine)",
			       gid_text(&list[i].gid, gid));
		if (is_taken(&list[i]) && (i == 0 || strcmp(list[i].node, list[i - 1].node) != 0))
			printf("  instead of %s, which user %u holds\n",
			       gid_text(&list[i].taken, gid), list[i].taken_by);
		print_process(list, count, &list[i]);
	}
	if (count == 0)
		puts("No program uses Heddle now.");
}

int status_command(int argc, char **argv)
{
	static const struct argp argp = {
	        json_option, status_parse,
	        NULL,        "Who uses Heddle: nodes, processes, queue pairs, regions, counters.",
	        NULL,        NULL,
	        NULL};
	bool json = false;
	struct hdl_process *list;
	size_t count;
	if (argp_parse(&argp, argc, argv, 0, NULL, &json) != 0)
		return EXIT_WRONG_USAGE;
	int result = hdl_observe(&list, &count);
	if (result != 0 && result != -HDL_EHOSTUNREACH) {
		fprintf(stderr,
		        "heddle: %s; the node agent may be of another version, or of a directory "
		        "that "
		        "is not yours (HEDDLE_DIR): see heddled(8)\n",
		        hdl_strerror(result));
		return EXIT_FAILURE;
	}
	if (count > 0)
		qsort(list, count, sizeof(*list), by_node_and_pid);
	if (json) {
		json_t *all = json_array();
		for (size_t i = 0; i < count; i++)
			json_array_append_new(all, process_json(list, count, &list[i]));
		json_dumpf(all, stdout, JSON_INDENT(2));
		putchar('\n');
		json_decref(all);
	} else {
		print_all(list, count);
	}
	hdl_observe_free(list, count);
	return 0;
}
