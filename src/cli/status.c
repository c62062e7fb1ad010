/* heddle status and heddle devices: who uses Heddle, with which queue pairs; what a program would see. */
#include <argp.h>
#include <arpa/inet.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <heddle/heddle.h>

#include "cli/command.h"

static error_t parse(int key, char *arg, struct argp_state *state)
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

static const char *type_name(uint32_t type)
{
	static const char *const names[] = {"?", "RC", "UC", "UD", "XRC_INI", "XRC_TGT"};
	return names[type < 6 ? type : 0];
}

static const char *state_name(uint32_t state)
{
	static const char *const names[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
	return state < 7 ? names[state] : "?";
}

static json_t *process_json(const struct hdl_process *p)
{
	json_t *qps = json_array(), *counters = json_object();
	for (size_t i = 0; i < p->qp_count; i++)
		json_array_append_new(qps, json_pack("{s:i,s:s,s:s,s:i}", "qpn", (int)p->qps[i].qpn,
		                                     "type", type_name(p->qps[i].type), "state",
		                                     state_name(p->qps[i].state), "peer_qpn",
		                                     (int)p->qps[i].dest_qpn));
	for (size_t i = 0; i < p->counter_count; i++)
		json_object_set_new(counters, p->counters[i].name,
		                    json_integer((json_int_t)p->counters[i].value));
	return json_pack("{s:s,s:s,s:i,s:i,s:i,s:i,s:I,s:o,s:o}", "node", p->node, "program",
	                 p->program, "pid", p->pid, "slot", (int)p->slot, "regions",
	                 (int)p->regions, "windows", (int)p->windows, "region_bytes",
	                 (json_int_t)p->region_bytes, "queue_pairs", qps, "counters", counters);
}

static void print_process(const struct hdl_process *p)
{
	printf("%s pid %d (%s), slot %u: %u regions (%llu bytes), %u windows, %zu queue pairs\n",
	       p->node[0] != '\0' ? p->node : "(this machine)", p->pid, p->program, p->slot,
	       p->regions, (unsigned long long)p->region_bytes, p->windows, p->qp_count);
	for (size_t i = 0; i < p->qp_count; i++) {
		printf("  qp 0x%06x %s %-5s", p->qps[i].qpn, type_name(p->qps[i].type),
		       state_name(p->qps[i].state));
		if (p->qps[i].type != HDL_QP_UD && p->qps[i].state >= HDL_QPS_RTR)
			printf("  to 0x%06x", p->qps[i].dest_qpn);
		putchar('\n');
	}
	fputs(" ", stdout);
	for (size_t i = 0; i < p->counter_count; i++)
		if (p->counters[i].value != 0)
			printf(" %s %llu", p->counters[i].name,
			       (unsigned long long)p->counters[i].value);
	putchar('\n');
}

int status_command(int argc, char **argv)
{
	static const struct argp argp = {
	        json_option, parse,
	        NULL,        "Who uses Heddle: processes, queue pairs, regions, counters.",
	        NULL,        NULL,
	        NULL};
	bool json = false;
	struct hdl_process *list;
	size_t count;
	if (argp_parse(&argp, argc, argv, 0, NULL, &json) != 0)
		return EXIT_WRONG_USAGE;
	int result = hdl_observe(&list, &count);
	if (result != 0 && result != -HDL_EHOSTUNREACH) {
		fprintf(stderr, "heddle: %s\n", hdl_strerror(result));
		return EXIT_FAILURE;
	}
	if (json) {
		json_t *all = json_array();
		for (size_t i = 0; i < count; i++)
			json_array_append_new(all, process_json(&list[i]));
		json_dumpf(all, stdout, JSON_INDENT(2));
		putchar('\n');
		json_decref(all);
	} else if (count == 0) {
		puts("No program uses Heddle now.");
	} else {
		for (size_t i = 0; i < count; i++)
			print_process(&list[i]);
	}
	hdl_observe_free(list, count);
	return 0;
}

int devices_command(int argc, char **argv)
{
	static const struct argp argp = {
	        json_option, parse, NULL, "The devices that a program would see.",
	        NULL,        NULL,  NULL};
	bool json = false;
	if (argp_parse(&argp, argc, argv, 0, NULL, &json) != 0)
		return EXIT_WRONG_USAGE;
	struct hdl_open_attr attr = {.on_node = true};
	struct hdl_adapter *adapter;
	struct hdl_limits limits;
	int result = hdl_open(&attr, &adapter);
	if (result != 0) {
		fprintf(stderr, "heddle: %s\n", hdl_strerror(result));
		return EXIT_FAILURE;
	}
	hdl_adapter_query(adapter, &limits);
	json_t *gids = json_array();
	if (!json)
		printf("heddle0  port 1 active, GUID %016llx\n", (unsigned long long)limits.guid);
	for (uint32_t i = 0; i < limits.gid_count; i++) {
		struct hdl_gid gid;
		char text[INET6_ADDRSTRLEN];
		hdl_gid_query(adapter, i, &gid);
		inet_ntop(AF_INET6, gid.raw, text, sizeof(text));
		json_array_append_new(gids, json_string(text));
		if (!json)
			printf("  GID %2u  %s\n", i, text);
	}
	json_t *all = json_pack("[{s:s,s:I,s:o}]", "name", "heddle0", "guid",
	                        (json_int_t)limits.guid, "gids", gids);
	if (json) {
		json_dumpf(all, stdout, JSON_INDENT(2));
		putchar('\n');
	}
	json_decref(all);
	hdl_close(adapter);
	return 0;
}
