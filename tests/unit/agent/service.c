/* The table of services: which service hears a message, which messages no service sees, and the
 * order in which services are told of deaths and of the time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/service.h"

static struct agent an_agent;
static struct client a_client;

/* What the services of this test were called for, one letter per call. */
static char calls[32];
static struct agent_request *heard;

static void note(char letter)
{
	size_t length = strlen(calls);
	assert_true(length + 1 < sizeof(calls));
	calls[length] = letter;
	calls[length + 1] = '\0';
}

static void assert_calls(const char *expected)
{
	assert_string_equal(calls, expected);
	calls[0] = '\0';
}

static void hear_as(char letter, struct agent *agent, struct client *client,
                    struct agent_request *request)
{
	assert_ptr_equal(agent, &an_agent);
	assert_ptr_equal(client, &a_client);
	heard = request;
	note(letter);
}

static void hear_hello(struct agent *agent, struct client *client, struct agent_request *request)
{
	hear_as('h', agent, client, request);
}

static void hear_find(struct agent *agent, struct client *client, struct agent_request *request)
{
	hear_as('f', agent, client, request);
}

static void hear_group(struct agent *agent, struct client *client, struct agent_request *request)
{
	hear_as('g', agent, client, request);
}

static void leave_first(struct agent *agent, struct client *client)
{
	assert_ptr_equal(agent, &an_agent);
	assert_ptr_equal(client, &a_client);
	note('1');
}

static void leave_third(struct agent *agent, struct client *client)
{
	(void)agent;
	(void)client;
	note('3');
}

static uint64_t first_due, third_due;

static uint64_t sweep_first(struct agent *agent, uint64_t now_ns)
{
	assert_ptr_equal(agent, &an_agent);
	assert_int_equal(now_ns, 77);
	note('1');
	return first_due;
}

static uint64_t sweep_third(struct agent *agent, uint64_t now_ns)
{
	(void)agent;
	assert_int_equal(now_ns, 77);
	note('3');
	return third_due;
}

static const struct service_kind first_kinds[] = {
        {AGENT_HELLO, AGENT_MSG_BYTES(hello), true, hear_hello},
        {AGENT_FIND, AGENT_MSG_BYTES(introduce), false, hear_find},
};
static const struct service_kind third_kinds[] = {
        {AGENT_GROUP_JOIN, AGENT_MSG_BYTES(group), false, hear_group},
};
static const struct agent_service first = {.name = "first",
                                           .kinds = first_kinds,
                                           .kind_count = SERVICE_KINDS(first_kinds),
                                           .leave = leave_first,
                                           .sweep = sweep_first};
static const struct agent_service second = {.name = "second"}; /* does nothing */
static const struct agent_service third = {.name = "third",
                                           .kinds = third_kinds,
                                           .kind_count = SERVICE_KINDS(third_kinds),
                                           .leave = leave_third,
                                           .sweep = sweep_third};
static const struct agent_service *const three[] = {&first, &second, &third};

static bool hear(const struct services *services, bool named, uint32_t kind, size_t bytes)
{
	struct agent_request request = {.msg = {.version = AGENT_VERSION, .kind = kind},
	                                .bytes = bytes};
	heard = NULL;
	bool result = services_hear(services, &an_agent, &a_client, named, &request);
	assert_true(heard == (result ? &request : NULL));
	return result;
}

static void test_each_kind_has_its_service(void **state)
{
	(void)state;
	struct services services;
	services_begin(&services, three, 3);
	assert_true(hear(&services, true, AGENT_FIND, sizeof(struct agent_msg)));
	assert_calls("f");
	assert_true(hear(&services, true, AGENT_GROUP_JOIN, sizeof(struct agent_msg)));
	assert_calls("g");
	assert_true(hear(&services, true, AGENT_HELLO, sizeof(struct agent_msg)));
	assert_calls("h");
}

static void test_unknown_kinds_are_refused(void **state)
{
	(void)state;
	static const uint32_t unknown[] = {0,
	                                   AGENT_WELCOME, /* only the agent sends it */
	                                   AGENT_GROUP_LEAVE,
	                                   AGENT_KIND_COUNT,
	                                   AGENT_KIND_COUNT + 1,
	                                   0x80000000u,
	                                   UINT32_MAX};
	struct services services;
	services_begin(&services, three, 3);
	for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++)
		assert_false(hear(&services, true, unknown[i], sizeof(struct agent_msg)));
	assert_calls("");
}

static void test_short_messages_are_refused(void **state)
{
	(void)state;
	static const struct {
		uint32_t kind;
		size_t min_bytes;
	} cases[] = {{AGENT_HELLO, AGENT_MSG_BYTES(hello)},
	             {AGENT_FIND, AGENT_MSG_BYTES(introduce)},
	             {AGENT_GROUP_JOIN, AGENT_MSG_BYTES(group)}};
	struct services services;
	services_begin(&services, three, 3);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (size_t bytes = 0; bytes <= sizeof(struct agent_msg); bytes++) {
			assert_int_equal(hear(&services, true, cases[i].kind, bytes),
			                 bytes >= cases[i].min_bytes);
			calls[0] = '\0';
		}
}

static void test_most_kinds_need_a_name(void **state)
{
	(void)state;
	struct services services;
	services_begin(&services, three, 3);
	assert_false(hear(&services, false, AGENT_FIND, sizeof(struct agent_msg)));
	assert_false(hear(&services, false, AGENT_GROUP_JOIN, sizeof(struct agent_msg)));
	assert_calls("");
	assert_true(hear(&services, false, AGENT_HELLO, sizeof(struct agent_msg)));
	assert_calls("h");
}

static void test_last_row_is_told_first_of_a_death(void **state)
{
	(void)state;
	struct services services;
	services_begin(&services, three, 3);
	services_leave(&services, &an_agent, &a_client);
	assert_calls("31");
}

static void test_first_due_service_decides(void **state)
{
	(void)state;
	struct services services;
	services_begin(&services, three, 3);
	first_due = third_due = SERVICES_NEVER;
	assert_true(services_sweep(&services, &an_agent, 77) == SERVICES_NEVER);
	assert_calls("13");
	third_due = 500;
	assert_int_equal(services_sweep(&services, &an_agent, 77), 500);
	first_due = 90;
	assert_int_equal(services_sweep(&services, &an_agent, 77), 90);
	assert_calls("1313");
	services_begin(&services, three, 0);
	assert_true(services_sweep(&services, &an_agent, 77) == SERVICES_NEVER);
}

/* Does services_begin() abort on a table of @first and a service that hears @kind? */
static bool begin_aborts(const struct service_kind *kind)
{
	const struct agent_service odd = {.name = "odd", .kinds = kind, .kind_count = 1};
	const struct agent_service *const rows[] = {&first, &odd};
	static const struct rlimit no_core;
	struct services services;
	int status = 0;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		signal(SIGABRT, SIG_DFL);
		setrlimit(RLIMIT_CORE, &no_core);
		services_begin(&services, rows, 2);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status))
		assert_int_equal(WEXITSTATUS(status), 0);
	else
		assert_int_equal(WTERMSIG(status), SIGABRT);
	return WIFSIGNALED(status);
}

static void test_bad_tables_abort_at_the_start(void **state)
{
	(void)state;
	struct service_kind kind = third_kinds[0];
	assert_false(begin_aborts(&kind));
	kind.kind = AGENT_FIND; /* the first service has it */
	assert_true(begin_aborts(&kind));
	kind.kind = (enum agent_kind)0;
	assert_true(begin_aborts(&kind));
	kind.kind = AGENT_KIND_COUNT;
	assert_true(begin_aborts(&kind));
	kind = third_kinds[0];
	kind.min_bytes = sizeof(struct agent_msg) + 1;
	assert_true(begin_aborts(&kind));
	kind.min_bytes = AGENT_MSG_HEADER_BYTES - 1;
	assert_true(begin_aborts(&kind));
	kind = third_kinds[0];
	kind.hear = NULL;
	assert_true(begin_aborts(&kind));
}

/* The table of the agent itself: what a process may send, with the part that has to be there. */
static void test_services_of_the_agent(void **state)
{
	(void)state;
	static const size_t min_bytes[AGENT_KIND_COUNT] = {
	        [AGENT_HELLO] = AGENT_MSG_BYTES(hello),
	        [AGENT_OBSERVE] = AGENT_MSG_HEADER_BYTES,
	        [AGENT_INTRODUCE] = AGENT_MSG_BYTES(introduce),
	        [AGENT_FIND] = AGENT_MSG_BYTES(introduce),
	        [AGENT_PART] = AGENT_MSG_BYTES(gone),
	        [AGENT_CM_BIND] = AGENT_MSG_BYTES(cm),
	        [AGENT_CM_LISTEN] = AGENT_MSG_BYTES(cm),
	        [AGENT_CM_UNBIND] = AGENT_MSG_BYTES(cm),
	        [AGENT_CM_SEND] = AGENT_MSG_BYTES(cm),
	        [AGENT_CM_MAD] = AGENT_MSG_BYTES(cm),
	        [AGENT_GROUP_JOIN] = AGENT_MSG_BYTES(group),
	        [AGENT_GROUP_LEAVE] = AGENT_MSG_BYTES(group),
	        [AGENT_GROUP_SEND] = AGENT_MSG_BYTES(group),
	        [AGENT_GROUP_FORGET] = AGENT_MSG_BYTES(group),
	        [AGENT_VS_ATTACH] = AGENT_MSG_BYTES(vs_attach),
	        [AGENT_VS_MEET] = AGENT_MSG_BYTES(vs_gone),
	        [AGENT_VS_GONE] = AGENT_MSG_BYTES(vs_gone),
	        [AGENT_VS_PORT] = AGENT_MSG_BYTES(vs_port),
	        [AGENT_VS_OBSERVE] = AGENT_MSG_HEADER_BYTES,
	        [AGENT_OOB_ATTACH] = AGENT_MSG_HEADER_BYTES,
	        [AGENT_OOB_QUERY] = AGENT_MSG_BYTES(oob),
	        [AGENT_OOB_OBSERVE] = AGENT_MSG_HEADER_BYTES,
	        [AGENT_OOB_SET] = AGENT_MSG_BYTES(oob_set),
	        [AGENT_CI_OPEN] = AGENT_MSG_BYTES(cm),
	        [AGENT_CI_ARM] = AGENT_MSG_BYTES(cm),
	        [AGENT_CI_DISARM] = AGENT_MSG_BYTES(cm),
	        [AGENT_CI_CONTROL] = AGENT_MSG_BYTES(cm),
	        [AGENT_CI_RETURNED] = AGENT_MSG_BYTES(cm),
	        [AGENT_SCTP_OPEN] = AGENT_MSG_BYTES(sctp),
	        [AGENT_SCTP_BIND] = AGENT_MSG_BYTES(sctp),
	        [AGENT_SCTP_UNBIND] = AGENT_MSG_BYTES(sctp),
	        [AGENT_STRIPE] = AGENT_MSG_BYTES(cm),
	};
	/* A client of the virtual switch need not be a process of the node; nor one that looks at
	 * others, or sets what concerns the agent. */
	static const bool before_hello[AGENT_KIND_COUNT] = {
	        [AGENT_HELLO] = true,   [AGENT_OBSERVE] = true,    [AGENT_VS_ATTACH] = true,
	        [AGENT_VS_PORT] = true, [AGENT_VS_OBSERVE] = true, [AGENT_OOB_OBSERVE] = true,
	        [AGENT_OOB_SET] = true, [AGENT_VS_MEET] = true,    [AGENT_VS_GONE] = true,
	};
	struct services services;
	services_begin(&services, agent_services, agent_service_count);
	for (uint32_t kind = 0; kind < AGENT_KIND_COUNT; kind++) {
		const struct service_kind *row = services.by_kind[kind].kind;
		assert_int_equal(row != NULL ? row->min_bytes : 0, min_bytes[kind]);
		if (row == NULL)
			continue;
		assert_int_equal(row->before_hello, before_hello[kind]);
		assert_non_null(services.by_kind[kind].service->leave);
	}
	/* The others still need the node and the slot of a process that has gone. */
	assert_ptr_equal(agent_services[0], &names_service);
}

int main(void)
{
	const struct CMUnitTest list[] = {
	        cmocka_unit_test(test_each_kind_has_its_service),
	        cmocka_unit_test(test_unknown_kinds_are_refused),
	        cmocka_unit_test(test_short_messages_are_refused),
	        cmocka_unit_test(test_most_kinds_need_a_name),
	        cmocka_unit_test(test_last_row_is_told_first_of_a_death),
	        cmocka_unit_test(test_first_due_service_decides),
	        cmocka_unit_test(test_bad_tables_abort_at_the_start),
	        cmocka_unit_test(test_services_of_the_agent),
	};
	return cmocka_run_group_tests(list, NULL, NULL);
}
