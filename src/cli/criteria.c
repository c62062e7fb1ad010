/* heddle aperture criteria: which events of ports concern the node agent. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <heddle/eventq.h>

#include "cli/command.h"
#include "cli/criteria.h"
#include "port/oob.h"

static void criteria_failed(int result, int pid)
{
	const char *text = hdl_strerror(result);
	if (result == -HDL_EHOSTUNREACH)
		text = "no node agent runs; the first program that uses Heddle starts it, with the "
		       "criteria of HEDDLE_CRITERIA (heddled(8))";
	else if (result == -HDL_EACCES)
		text = "the node agent does not trust this program (heddle-ci(7))";
	if (result == -HDL_ESTALE)
		fprintf(stderr,
		        "heddle aperture: process %d has no port with an event queue; "
		        "\"heddle aperture criteria\" lists those that have\n",
		        pid);
	else
		fprintf(stderr, "heddle aperture: %s\n", text);
}

static json_t *words_json(uint32_t bits)
{
	json_t *words = json_array();
	for (size_t i = 0; i < OOB_WORDS; i++)
		if ((bits & oob_words[i].bits) != 0)
			json_array_append_new(words, json_string(oob_words[i].word));
	return words;
}

json_t *oob_error_json(const struct hdl_oob_status *status)
{
	if (status->error_port == 0)
		return json_null();
	return json_pack("{s:I,s:I,s:i,s:s}", "port", (json_int_t)status->error_port, "index",
	                 (json_int_t)status->error_index, "status", (int)status->error_status,
	                 "text", hdl_strerror(status->error_status));
}

void oob_error_print(const struct hdl_oob_status *status)
{
	if (status->error_port != 0)
		printf("    last error at port %u, aperture 0x%08x: %s\n", status->error_port,
		       status->error_index, hdl_strerror(status->error_status));
}

static json_t *criteria_json(const struct hdl_oob_process *p)
{
	const struct hdl_oob_status *s = &p->status;
	if (p->pid == 0)
		return json_pack("{s:i,s:o,s:o}", "pid", 0, "criteria", words_json(s->criteria),
		                 "waking", words_json(s->waking));
	return json_pack("{s:s,s:s,s:i,s:b,s:o,s:o,s:I,s:I,s:I,s:I,s:I,s:I,s:o}", "node", p->node,
	                 "program", p->program, "pid", p->pid, "trusted", p->trusted, "criteria",
	                 words_json(s->criteria), "waking", words_json(s->waking), "messages",
	                 (json_int_t)s->messages, "blocked", (json_int_t)s->blocked, "errors",
	                 (json_int_t)s->errors, "failures", (json_int_t)s->failures, "nobody",
	                 (json_int_t)s->nobody, "lost", (json_int_t)s->lost, "last_error",
	                 oob_error_json(s));
}

static void criteria_print(const struct hdl_oob_process *p)
{
	const struct oob_criteria criteria = {p->status.criteria, p->status.waking};
	char text[OOB_TEXT];
	oob_print(&criteria, text);
	if (p->pid == 0)
		printf("all: %s\n", text);
	else
		printf("%s (pid %d)%s: %s; %llu messages\n", p->program, p->pid,
		       p->trusted ? "" : ", not trusted", text,
		       (unsigned long long)p->status.messages);
	oob_error_print(&p->status);
}

static int criteria_order(const void *a, const void *b)
{
	const struct hdl_oob_process *x = a, *y = b;
	return x->pid != y->pid ? (x->pid > y->pid) - (x->pid < y->pid)
	                        : (x->slot > y->slot) - (x->slot < y->slot);
}

int criteria_show(int pid, bool json)
{
	struct hdl_oob_process *list;
	size_t count, shown = 0;
	int result = hdl_oob_observe(&list, &count);
	if (result != 0) {
		criteria_failed(result, pid);
		return EXIT_FAILURE;
	}
	qsort(list, count, sizeof(*list), criteria_order);
	json_t *all = json_array();
	for (size_t i = 0; i < count; i++) {
		if (pid != 0 && list[i].pid != pid)
			continue;
		shown++;
		if (json)
			json_array_append_new(all, criteria_json(&list[i]));
		else
			criteria_print(&list[i]);
	}
	hdl_oob_observe_free(list);
	if (json && shown > 0) {
		json_dumpf(all, stdout, JSON_INDENT(2));
		putchar('\n');
	}
	json_decref(all);
	if (shown == 0) {
		criteria_failed(-HDL_ESTALE, pid);
		return EXIT_FAILURE;
	}
	return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int criteria_set(int pid, const struct oob_criteria *criteria)
{
	int result = hdl_oob_set(pid, criteria->events, criteria->wakes);
	if (result != 0)
		criteria_failed(result, pid);
	return result == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
