/* heddle explain: what a code means, and what to do about it. */
#include <argp.h>
#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <heddle/heddle.h>

#include "cli/command.h"

struct kind {
	const char *name;
	uint32_t codes; /* enum hdl_codes_kind */
};

static const struct kind kinds[] = {{"vendor_err", HDL_CODES_DETAIL},
                                    {"status", HDL_CODES_STATUS},
                                    {"errno", HDL_CODES_ERROR},
                                    {"event", HDL_CODES_EVENT},
                                    {"counter", HDL_CODES_COUNTER}};
#define KIND_COUNT (sizeof(kinds) / sizeof(kinds[0]))

struct question {
	const struct kind *kind;
	const char *code; /* NULL: all of them */
};

static error_t explain_parse(int key, char *arg, struct argp_state *state)
{
	struct question *question = state->input;
	if (key == ARGP_KEY_NO_ARGS)
		argp_error(state, "explain what?");
	if (key != ARGP_KEY_ARG)
		return ARGP_ERR_UNKNOWN;
	if (state->arg_num > 1)
		argp_error(state, "one code at a time");
	if (state->arg_num == 1) {
		question->code = arg;
		return 0;
	}
	for (size_t i = 0; i < KIND_COUNT; i++)
		if (strcmp(arg, kinds[i].name) == 0)
			question->kind = &kinds[i];
	if (question->kind == NULL)
		argp_error(state,
		           "a code is a vendor_err, status, errno, event or counter, not a "
		           "'%s'",
		           arg);
	return 0;
}

/* @name without the prefix of its kind. */
static const char *short_name(const char *name)
{
	static const char *const prefixes[] = {"HDL_WC_", "HDL_DETAIL_", "HDL_EVENT_",
	                                       "IBV_WC_", "IBV_EVENT_",  "HDL_"};
	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (strncasecmp(name, prefixes[i], strlen(prefixes[i])) == 0)
			return name + strlen(prefixes[i]);
	return name;
}

static bool has_name(const struct hdl_code *code, const char *name)
{
	const char *wanted = short_name(name);
	return strcasecmp(short_name(code->name), wanted) == 0 ||
	       (code->alias != NULL && strcasecmp(short_name(code->alias), wanted) == 0);
}

/* Decimal, hexadecimal or octal. */
static bool to_number(const char *text, uint32_t *number)
{
	char *end;
	errno = 0;
	if (!isdigit((unsigned char)*text))
		return false;
	unsigned long value = strtoul(text, &end, 0);
	*number = (uint32_t)value;
	return errno == 0 && *end == '\0' && value <= UINT32_MAX;
}

static void print_code(const struct kind *kind, const struct hdl_code *code)
{
	printf("%s %u, %s", kind->name, code->value, code->name);
	if (code->alias != NULL && code->alias_value != code->value)
		printf(" (%s, %u)", code->alias, code->alias_value);
	else if (code->alias != NULL)
		printf(" (%s)", code->alias);
	printf(":\n  %s.\n", code->text);
	if (code->advice != NULL)
		printf("  What to do: %s.\n", code->advice);
}

/* An error number that Heddle never returns may still be what a program of libibverbs saw. */
static bool explain_system_error(const char *text)
{
	uint32_t number = 0;
	bool numeric = to_number(text, &number);
	for (uint32_t i = 0; i < 4096; i++) {
		const char *name = strerrorname_np((int)i);
		if (name == NULL || (numeric ? number != i : strcasecmp(name, text) != 0))
			continue;
		if (i == 0)
			puts("errno 0:\n  success.");
		else
			printf("errno %u, %s:\n  %s.\n  No call of Heddle returns it: it comes "
			       "from "
			       "the operating system or from the program itself.\n",
			       i, name, strerrordesc_np((int)i));
		return true;
	}
	return false;
}

static int explain_codes(const struct question *question)
{
	size_t count, found = 0;
	uint32_t number = 0;
	const struct hdl_code *list = hdl_codes(question->kind->codes, &count);
	bool numeric = question->code != NULL && to_number(question->code, &number);
	for (size_t i = 0; i < count; i++) {
		if (question->code != NULL && !(numeric && list[i].value == number) &&
		    !(!numeric && has_name(&list[i], question->code)))
			continue;
		print_code(question->kind, &list[i]);
		found++;
	}
	/* Events have other numbers in libibverbs: show both. */
	for (size_t i = 0; numeric && i < count; i++)
		if (list[i].alias != NULL && list[i].alias_value == number &&
		    list[i].value != number) {
			puts("If ibv_get_async_event(3) returned that number:");
			print_code(question->kind, &list[i]);
			found++;
		}
	if (found == 0 && question->kind->codes == HDL_CODES_ERROR)
		found = explain_system_error(question->code);
	if (found > 0)
		return 0;
	fprintf(stderr, "heddle: there is no %s '%s'; `heddle explain %s' lists them\n",
	        question->kind->name, question->code, question->kind->name);
	return EXIT_WRONG_USAGE;
}

int explain_command(int argc, char **argv)
{
	static const struct argp argp = {
	        NULL,
	        explain_parse,
	        "vendor_err|status|errno|event|counter [NUMBER|NAME]",
	        "What a code of a completion, a call or an event means, and what to do about it; "
	        "without a code, all of its kind.",
	        NULL,
	        NULL,
	        NULL};
	struct question question = {0};
	/* A negative error, as calls return it, is not an option. */
	for (int i = 1; i < argc; i++)
		if (argv[i][0] == '-' && isdigit((unsigned char)argv[i][1]))
			argv[i]++;
	if (argp_parse(&argp, argc, argv, 0, NULL, &question) != 0)
		return EXIT_WRONG_USAGE;
	return explain_codes(&question);
}
