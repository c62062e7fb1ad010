/* The agent's own queue (AP7): a running application does not concern the agent; one that sleeps
 * gets a message there that names its port, errors and failures wake the agent, a process that
 * writes too much loses its own messages alone, and a new agent gets a queue again. The criteria
 * change while all of them run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>

#include <heddle/aperture.h>

#include "adapter/adapter.h"
#include "adapter/agent/observe.h"
#include "end.h"
#include "port/oob.h"

#define PATIENCE_MS 20000

static struct hdl_adapter *adapters[2];

static void open_both(void)
{
	for (int i = 0; i < 2; i++) {
		struct hdl_open_attr attr = {.on_node = true};
		MUST(hdl_open(&attr, &adapters[i]));
	}
}

static void close_both(void)
{
	for (int i = 0; i < 2; i++)
		MUST(hdl_close(adapters[i]));
}

static void deliver(struct hdl_adapter *adapter, uint16_t port, uint16_t type)
{
	struct hdl_port_event event = {.type = type};
	adapter_lock(adapter);
	assert_int_equal(eventq_deliver(adapter, port, &event, NULL, 0), EVENTQ_PLACED);
	adapter_unlock(adapter);
}

/* The agent's block came. */
static void await_block(struct hdl_adapter *adapter)
{
	bool there = false;
	for (int i = 0; i < PATIENCE_MS && !there; i++) {
		adapter_lock(adapter);
		there = adapter->oob.block != NULL;
		adapter_unlock(adapter);
		if (!there)
			usleep(1000);
	}
	assert_true(there);
}

static struct hdl_eventq *open_port(struct hdl_adapter *adapter, uint16_t port)
{
	struct hdl_eventq *queue;
	struct hdl_eventq_attr attr = {.events = 1024};
	MUST(eventq_open(adapter, port, &attr, &queue));
	await_block(adapter);
	return queue;
}

static struct hdl_oob_status ask(struct hdl_adapter *adapter)
{
	struct hdl_oob_status status;
	MUST(hdl_oob_query(adapter, &status));
	return status;
}

static void figure_9_who_sleeps_is_named_to_the_agent(void **state)
{
	(void)state;
	struct hdl_port_event events[8];
	open_both();
	struct hdl_eventq *queue = open_port(adapters[0], 77);
	/* Running: it polls. */
	deliver(adapters[0], 77, HDL_PORT_DATA);
	assert_int_equal(hdl_eventq_take(queue, events, 8), 1);
	assert_int_equal(ask(adapters[0]).messages, 0);
	/* Sleeping. */
	assert_true(hdl_eventq_fd(queue) >= 0);
	deliver(adapters[0], 77, HDL_PORT_DATA);
	deliver(adapters[0], 77, HDL_PORT_DATA); /* it is awake already */
	struct hdl_oob_status status = ask(adapters[0]);
	assert_int_equal(status.messages, 1);
	assert_int_equal(status.blocked, 1);
	assert_int_equal(status.last_port, 77);
	assert_int_equal(status.criteria, OOB_CRITERIA);
	assert_int_equal(status.wakes, 0);   /* the deliverer wakes the application itself */
	assert_int_equal(status.waiting, 2); /* the agent looked into the queue, and read it */
	assert_int_equal(status.first_type, HDL_PORT_DATA);
	assert_int_equal(ask(adapters[1]).messages, 0);
	MUST(hdl_eventq_close(queue));
	close_both();
}

/* Two ends on one machine: @ends[0] is offered at @port, @ends[1] connects to it. */
static void connect_ends(struct hdl_aperture *ends[2], struct hdl_port *port)
{
	struct hdl_limits limits;
	MUST(hdl_adapter_query(adapters[0], &limits));
	MUST(hdl_port_rules(port, &(struct hdl_port_rule){.action = HDL_RULE_ACCEPT}, 1));
	MUST(hdl_port_offer(port, ends[0], NULL));
	MUST(hdl_aperture_connect(ends[1], &limits.gid, hdl_port_number(port), PATIENCE_MS));
}

static void *sleep_thread(void *context)
{
	return (void *)(intptr_t)hdl_eventq_wait(context, PATIENCE_MS);
}

/* The same through public calls: a thread sleeps, and the event comes from another adapter. */
static void figure_9_a_thread_that_sleeps_is_named_while_it_sleeps(void **state)
{
	(void)state;
	struct hdl_port *port;
	struct hdl_eventq *queue;
	struct hdl_aperture *ends[2];
	struct hdl_port_event event;
	struct hdl_limits limits;
	struct hdl_port_status there;
	pthread_t thread;
	void *result;
	open_both();
	MUST(hdl_adapter_query(adapters[0], &limits));
	MUST(hdl_port_open(adapters[0], NULL, &port));
	MUST(hdl_eventq_open(port, NULL, &queue));
	await_block(adapters[0]);
	MUST(hdl_aperture_open(
	        adapters[0], &(struct hdl_aperture_attr){.length = 4096, .port = port}, &ends[0]));
	MUST(hdl_aperture_open(adapters[1], &(struct hdl_aperture_attr){.length = 4096}, &ends[1]));
	connect_ends(ends, port);
	/* It runs: it looked once for a moment, and takes every event without sleeping. */
	int waited;
	while ((waited = hdl_eventq_wait(queue, 1)) == 0)
		while (hdl_eventq_take(queue, &event, 1) == 1)
			;
	assert_int_equal(waited, -HDL_EAGAIN);
	struct hdl_oob_status before = ask(adapters[0]);
	for (uint64_t i = 0; i < 5; i++) {
		MUST(hdl_aperture_event(ends[1], 0, &i, sizeof(i), PATIENCE_MS));
		while (hdl_eventq_take(queue, &event, 1) == 0)
			;
		assert_int_equal(event.type, HDL_PORT_DATA);
	}
	assert_int_equal(ask(adapters[0]).messages, before.messages);
	MUST(hdl_port_status(adapters[1], &limits.gid, hdl_port_number(port), &there, PATIENCE_MS));
	assert_int_equal(there.blocked, 0);
	/* It sleeps. */
	assert_int_equal(pthread_create(&thread, NULL, sleep_thread, queue), 0);
	do
		MUST(hdl_port_status(adapters[1], &limits.gid, hdl_port_number(port), &there,
		                     PATIENCE_MS));
	while (there.blocked == 0);
	const uint64_t mark = 0x1122334455667788ull;
	MUST(hdl_aperture_event(ends[1], 0, &mark, sizeof(mark), PATIENCE_MS));
	pthread_join(thread, &result);
	assert_int_equal((intptr_t)result, 0);
	struct hdl_oob_status after = ask(adapters[0]);
	assert_int_equal(after.messages, before.messages + 1);
	assert_int_equal(after.blocked, before.blocked + 1);
	assert_int_equal(after.last_port, hdl_port_number(port));
	/* The agent has read what nobody has taken yet. */
	struct hdl_aperture_target target;
	MUST(hdl_aperture_own(ends[0], &target));
	assert_int_equal(after.waiting, 1);
	assert_int_equal(after.first_type, HDL_PORT_DATA);
	assert_int_equal(after.first_index, target.index);
	assert_int_equal(after.first_value, mark);
	for (int i = 0; i < 2; i++)
		MUST(hdl_aperture_free(ends[i]));
	MUST(hdl_eventq_close(queue));
	MUST(hdl_port_close(port));
	close_both();
}

static void claims_3_and_13_errors_and_failures_wake_the_agent(void **state)
{
	(void)state;
	open_both();
	struct hdl_eventq *queue = open_port(adapters[0], 78);
	deliver(adapters[0], 78, HDL_PORT_ERROR); /* the application does not sleep */
	struct hdl_oob_status status = {0};
	for (int i = 0; i < PATIENCE_MS && status.wakes == 0; i++, usleep(1000))
		status = ask(adapters[0]);
	assert_int_equal(status.wakes, 1);
	assert_int_equal(status.errors, 1);
	assert_int_equal(status.blocked, 0);
	assert_int_equal(status.error_status, 0); /* the event had none */
	assert_int_equal(status.error_port, 78);
	adapter_lock(adapters[0]);
	adapter_event(adapters[0], HDL_EVENT_MEMORY_GONE, HDL_DETAIL_GONE, NULL,
	              (struct hdl_key){0});
	adapter_unlock(adapters[0]);
	for (int i = 0; i < PATIENCE_MS && status.wakes == 1; i++, usleep(1000))
		status = ask(adapters[0]);
	assert_int_equal(status.failures, 1);
	assert_int_equal(status.wakes, 2);
	MUST(hdl_eventq_close(queue));
	close_both();
}

/* Claim 13: the data on the agent's queue says what the error is, also where no queue of the
 * application has the event. */
static void claim_13_the_message_says_what_the_error_is(void **state)
{
	(void)state;
	struct hdl_port_event event = {
	        .type = HDL_PORT_ERROR, .status = -HDL_EACCES, .index = 0x01400007};
	struct hdl_port_event other = {.type = HDL_PORT_REJECT, .status = -HDL_EINVAL, .index = 9};
	open_both();
	struct hdl_eventq *queue = open_port(adapters[0], 84);
	struct hdl_oob_status status = ask(adapters[0]);
	assert_int_equal(status.error_port | status.error_index, 0);
	adapter_lock(adapters[0]);
	assert_int_equal(eventq_deliver(adapters[0], 84, &event, NULL, 0), EVENTQ_PLACED);
	assert_int_equal(eventq_deliver(adapters[0], 84, &other, NULL, 0), EVENTQ_PLACED);
	adapter_unlock(adapters[0]);
	status = ask(adapters[0]);
	assert_int_equal(status.errors, 1);
	assert_int_equal(status.error_port, 84);
	assert_int_equal(status.error_status, -HDL_EACCES);
	assert_int_equal(status.error_index, 0x01400007);
	event.status = -HDL_ETIMEDOUT;
	event.index = 0x01400008;
	adapter_lock(adapters[0]);
	assert_int_equal(eventq_deliver(adapters[0], 85, &event, NULL, 0), EVENTQ_NO_PORT);
	adapter_unlock(adapters[0]);
	status = ask(adapters[0]);
	assert_int_equal(status.errors, 2);
	assert_int_equal(status.nobody, 1);
	assert_int_equal(status.error_port, 85);
	assert_int_equal(status.error_status, -HDL_ETIMEDOUT);
	assert_int_equal(status.error_index, 0x01400008);
	MUST(hdl_eventq_close(queue));
	close_both();
}

/* --- criteria that change --- */

/* A process with a port that lives until its socket closes. */
static void keep_a_port(int talk, const char *node, const char *address)
{
	(void)node;
	(void)address;
	struct hdl_open_attr attr = {.on_node = true};
	struct hdl_adapter *adapter;
	char byte = 0;
	MUST(hdl_open(&attr, &adapter));
	(void)open_port(adapter, 86);
	must(write(talk, &byte, 1) == 1 ? 0 : -HDL_EIO, "write");
	_exit(read(talk, &byte, 1) == 0 ? 0 : 1);
}

/* What the agent has for process @pid; 0: for those to come. */
static struct hdl_oob_status observed(pid_t pid)
{
	struct hdl_oob_process *list;
	struct hdl_oob_status status = {0};
	size_t count;
	bool found = false;
	MUST(hdl_oob_observe(&list, &count));
	assert_true(count > 0 && list[0].pid == 0);
	for (size_t i = 0; i < count; i++)
		if (list[i].pid == pid) {
			assert_true(pid == 0 || list[i].trusted);
			status = list[i].status;
			found = true;
		}
	hdl_oob_observe_free(list);
	assert_true(found);
	return status;
}

static void claims_9_and_11_criteria_change_while_the_agent_runs(void **state)
{
	(void)state;
	const uint32_t data = 1u << HDL_PORT_DATA, close = 1u << HDL_PORT_CLOSE;
	char byte;
	struct child child = child_start(keep_a_port, NULL, NULL);
	assert_int_equal(read(child.talk, &byte, 1), 1);
	open_both();
	struct hdl_eventq *queue = open_port(adapters[0], 87);
	assert_int_equal(observed(0).criteria, OOB_CRITERIA);
	deliver(adapters[0], 87, HDL_PORT_DATA); /* the application does not sleep */
	assert_int_equal(ask(adapters[0]).messages, 0);
	/* For all: in force at once, without a message to the processes. */
	MUST(hdl_oob_set(0, data, 0));
	deliver(adapters[0], 87, HDL_PORT_DATA);
	deliver(adapters[0], 87, HDL_PORT_ERROR); /* does not concern the agent any more */
	struct hdl_oob_status status = ask(adapters[0]);
	assert_int_equal(status.messages, 1);
	assert_int_equal(status.errors, 0);
	assert_int_equal(status.criteria, data);
	assert_int_equal(status.waking, 0);
	assert_int_equal(observed(child.pid).criteria, data);
	/* What comes later gets the present ones. */
	struct hdl_eventq *later = open_port(adapters[1], 88);
	assert_int_equal(ask(adapters[1]).criteria, data);
	uint64_t wakes = ask(adapters[0]).wakes;
	MUST(hdl_oob_set(0, data, data));
	deliver(adapters[1], 88, HDL_PORT_DATA);
	for (int i = 0; i < PATIENCE_MS && status.wakes == wakes; i++, usleep(1000))
		status = ask(adapters[0]);
	assert_int_equal(status.wakes, wakes + 1);
	/* For one process: all its adapters, and nobody else. */
	MUST(hdl_oob_set(getpid(), close | data, close));
	assert_int_equal(ask(adapters[0]).criteria, close | data);
	assert_int_equal(ask(adapters[1]).waking, close);
	assert_int_equal(observed(child.pid).criteria, data);
	assert_int_equal(observed(0).criteria, data);
	MUST(hdl_oob_set(child.pid, 0, 0));
	assert_int_equal(observed(child.pid).criteria, 0);
	assert_int_equal(ask(adapters[0]).criteria, close | data);
	MUST(hdl_oob_set(0, OOB_CRITERIA, OOB_WAKES));
	assert_int_equal(observed(child.pid).waking, OOB_WAKES);
	assert_int_equal(observed(getpid()).criteria, OOB_CRITERIA);
	MUST(hdl_eventq_close(queue));
	MUST(hdl_eventq_close(later));
	close_both();
	child_kill(&child);
}

static void claim_9_another_adapter_has_the_criteria_of_its_process(void **state)
{
	(void)state;
	open_both();
	struct hdl_eventq *first = open_port(adapters[0], 89);
	MUST(hdl_oob_set(getpid(), OOB_FAILURES, 0));
	struct hdl_eventq *second = open_port(adapters[1], 90);
	assert_int_equal(ask(adapters[1]).criteria, OOB_FAILURES);
	assert_int_equal(observed(0).criteria, OOB_CRITERIA);
	MUST(hdl_eventq_close(first));
	MUST(hdl_eventq_close(second));
	close_both();
	/* The next ones are another matter. */
	open_both();
	first = open_port(adapters[0], 89);
	assert_int_equal(ask(adapters[0]).criteria, OOB_CRITERIA);
	MUST(hdl_eventq_close(first));
	close_both();
}

static void criteria_that_are_refused(void **state)
{
	(void)state;
	open_both();
	assert_int_equal(hdl_oob_set(-1, 0, 0), -HDL_EINVAL);
	assert_int_equal(hdl_oob_set(0, OOB_ERRORS, OOB_BLOCKED), -HDL_EINVAL);
	assert_int_equal(hdl_oob_set(0, OOB_ALL + 1u, 0), -HDL_EINVAL);
	assert_int_equal(hdl_oob_set(getpid(), 0, 0), -HDL_ESTALE); /* it has no queue yet */
	assert_int_equal(hdl_oob_set(1, 0, 0), -HDL_ESTALE);
	assert_int_equal(hdl_oob_observe(NULL, NULL), -HDL_EINVAL);
	/* A program that does not use the call is refused by the agent. */
	struct agent_msg bad = {.kind = AGENT_OOB_SET, .u.oob_set = {.waking = OOB_ERRORS}};
	assert_int_equal(observe_ask(&bad, NULL, NULL), -HDL_EINVAL);
	bad.u.oob_set = (struct agent_oob_set){.pid = -5};
	assert_int_equal(observe_ask(&bad, NULL, NULL), -HDL_EINVAL);
	assert_int_equal(observed(0).criteria, OOB_CRITERIA);
	close_both();
}

/* Claim 2: an ALIVE that comes over a connection has a form, as every event of a port. */
static void claim_2_signals_are_forms(void **state)
{
	(void)state;
	const uint32_t forms = HDL_SIGNAL_ALL;
	struct hdl_port *ports[2];
	struct hdl_eventq *queues[2];
	struct hdl_aperture *ends[2];
	struct hdl_limits limits;
	struct hdl_port_status asked;
	open_both();
	for (int i = 0; i < 2; i++) {
		struct hdl_port_attr attr = {.signals = HDL_SIGNAL_ALL};
		MUST(hdl_port_open(adapters[i], &attr, &ports[i]));
		MUST(hdl_eventq_open(ports[i], NULL, &queues[i]));
		await_block(adapters[i]);
		struct hdl_aperture_attr with = {.length = 4096, .port = ports[i]};
		MUST(hdl_aperture_open(adapters[i], &with, &ends[i]));
	}
	MUST(hdl_adapter_query(adapters[1], &limits));
	uint16_t number = hdl_port_number(ports[1]);
	assert_int_equal(hdl_aperture_connect(ends[0], &limits.gid, number, 0), -HDL_EAGAIN);
	MUST(hdl_aperture_accept(ends[1], ports[1], 0, NULL, PATIENCE_MS));
	MUST(hdl_aperture_wait(ends[0], PATIENCE_MS));
	MUST(hdl_oob_set(0, forms, 0));
	uint64_t before[2] = {ask(adapters[0]).messages, ask(adapters[1]).messages};
	MUST(hdl_aperture_alive(ends[0], PATIENCE_MS));
	assert_true(ask(adapters[1]).messages > before[1]); /* ALIVE */
	assert_int_equal(ask(adapters[1]).last_port, number);
	assert_true(ask(adapters[0]).messages > before[0]); /* ALIVEACK */
	MUST(hdl_oob_set(0, HDL_SIGNAL_STATUS, 0));
	uint64_t count = ask(adapters[1]).messages;
	MUST(hdl_aperture_alive(ends[0], PATIENCE_MS));
	assert_int_equal(ask(adapters[1]).messages, count);
	MUST(hdl_port_status(adapters[0], &limits.gid, number, &asked, PATIENCE_MS));
	assert_int_equal(ask(adapters[1]).messages, count + 1);
	MUST(hdl_oob_set(0, OOB_CRITERIA, OOB_WAKES));
	for (int i = 0; i < 2; i++) {
		MUST(hdl_aperture_free(ends[i]));
		MUST(hdl_eventq_close(queues[i]));
		MUST(hdl_port_close(ports[i]));
	}
	close_both();
}

/* What the command prints, which is next to the agent. */
static void command_prints(const char *words, const char *expected)
{
	char line[256], text[8192] = "";
	const char *agent = getenv("HEDDLE_AGENT");
	assert_non_null(agent);
	snprintf(line, sizeof(line), "'%.*s' %s", (int)strlen(agent) - 1, agent, words);
	FILE *command = popen(line, "r");
	assert_non_null(command);
	text[fread(text, 1, sizeof(text) - 1, command)] = '\0';
	assert_int_equal(pclose(command), 0);
	if (strstr(text, expected) == NULL)
		print_message("%s: no \"%s\" in\n%s", line, expected, text);
	assert_non_null(strstr(text, expected));
}

static void the_command_shows_the_last_error(void **state)
{
	(void)state;
	struct hdl_port_event event = {
	        .type = HDL_PORT_ERROR, .status = -HDL_EACCES, .index = 0x01400007};
	struct hdl_port *port;
	struct hdl_eventq *queue;
	open_both();
	MUST(hdl_port_open(adapters[0], &(struct hdl_port_attr){.port = 91}, &port));
	MUST(hdl_eventq_open(port, NULL, &queue));
	await_block(adapters[0]);
	command_prints("aperture --json", "\"last_error\": null");
	adapter_lock(adapters[0]);
	assert_int_equal(eventq_deliver(adapters[0], 91, &event, NULL, 0), EVENTQ_PLACED);
	adapter_unlock(adapters[0]);
	command_prints("aperture", "    last error at port 91, aperture 0x01400007: the object");
	command_prints("aperture --json", "\"index\": 20971527,\n      \"status\": -13,");
	command_prints("aperture criteria", "    last error at port 91, aperture 0x01400007: ");
	MUST(hdl_eventq_close(queue));
	MUST(hdl_port_close(port));
	close_both();
}

static void nobody_to_wake_concerns_the_agent(void **state)
{
	(void)state;
	struct hdl_oob_status status;
	struct hdl_port_event event = {.type = HDL_PORT_DATA};
	open_both();
	struct hdl_eventq *queue = open_port(adapters[0], 82);
	adapter_lock(adapters[0]);
	assert_int_equal(eventq_deliver(adapters[0], 83, &event, NULL, 0), EVENTQ_NO_PORT);
	adapter_unlock(adapters[0]);
	status = ask(adapters[0]);
	for (int i = 0; i < PATIENCE_MS && status.wakes == 0; i++, usleep(1000))
		status = ask(adapters[0]);
	assert_int_equal(status.nobody, 1);
	assert_int_equal(status.wakes, 1);
	assert_int_equal(status.last_port, 83);
	/* A signal may be what a call waits for. */
	event.type = HDL_PORT_CONNECT;
	adapter_lock(adapters[0]);
	assert_int_equal(eventq_deliver(adapters[0], 83, &event, NULL, 0), EVENTQ_NO_PORT);
	eventq_lose(adapters[0], 82); /* and one that found no room */
	adapter_unlock(adapters[0]);
	status = ask(adapters[0]);
	assert_int_equal(status.nobody, 2);
	assert_int_equal(status.last_port, 82);
	MUST(hdl_eventq_close(queue));
	close_both();
}

static void a_writer_spoils_its_own_queue_alone(void **state)
{
	(void)state;
	struct hdl_port_event events[64];
	open_both();
	struct hdl_eventq *queues[2] = {open_port(adapters[0], 79), open_port(adapters[1], 80)};
	pid_t agent = agent_pid();
	assert_true(agent > 0);
	assert_int_equal(kill(agent, SIGSTOP), 0);
	for (uint32_t i = 0; i < 3 * OOB_SLOTS; i++) {
		deliver(adapters[0], 79, HDL_PORT_ERROR);
		hdl_eventq_take(queues[0], events, 64);
	}
	deliver(adapters[1], 80, HDL_PORT_ERROR);
	assert_int_equal(kill(agent, SIGCONT), 0);
	struct hdl_oob_status status = ask(adapters[0]);
	assert_true(status.lost > 0);
	assert_int_equal(status.messages + status.lost, 3 * OOB_SLOTS);
	status = ask(adapters[1]);
	assert_int_equal(status.messages, 1);
	assert_int_equal(status.lost, 0);
	MUST(hdl_eventq_close(queues[0]));
	MUST(hdl_eventq_close(queues[1]));
	close_both();
}

static void the_next_agent_has_a_queue_again(void **state)
{
	(void)state;
	open_both();
	struct hdl_eventq *queue = open_port(adapters[0], 81);
	deliver(adapters[0], 81, HDL_PORT_ERROR);
	assert_int_equal(ask(adapters[0]).errors, 1);
	pid_t agent = agent_pid();
	assert_int_equal(kill(agent, SIGKILL), 0);
	struct hdl_oob_status status = {0};
	for (int i = 0; i < PATIENCE_MS && status.criteria == 0; i++, usleep(1000))
		hdl_oob_query(adapters[0], &status);
	assert_int_equal(status.criteria, OOB_CRITERIA);
	for (int i = 0; i < PATIENCE_MS && status.errors == 0; i++, usleep(1000)) {
		deliver(adapters[0], 81, HDL_PORT_ERROR);
		struct hdl_port_event events[8];
		hdl_eventq_take(queue, events, 8);
		hdl_oob_query(adapters[0], &status);
	}
	assert_true(status.errors > 0);
	MUST(hdl_eventq_close(queue));
	close_both();
}

/* The thread that looks for the next agent asks it for sockets, and only the adapter's thread hears
 * the answer: that one must not wait for the first when this agent ends, too. */
static void agents_that_end_one_after_another(void **state)
{
	(void)state;
	struct hdl_oob_status status;
	struct hdl_port *port;
	open_both();
	MUST(hdl_port_open(adapters[0], NULL, &port));
	for (int round = 0; round < 6; round++) {
		pid_t last = 0;
		for (int i = 0; i < PATIENCE_MS && last == 0; i++, usleep(1000))
			last = agent_pid();
		for (int killed = 0; killed < 4; killed++) {
			for (int i = 0; i < 200 && (agent_pid() == last && killed > 0); i++)
				usleep(100);
			last = agent_pid();
			if (last > 1)
				kill(last, SIGKILL);
		}
		double began = now_ms();
		while (hdl_oob_query(adapters[0], &status) != 0 && now_ms() - began < 20000)
			usleep(1000);
		assert_true(now_ms() - began < 8000); /* an answer that nobody hears: 10 s */
	}
	MUST(hdl_port_close(port));
	close_both();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(figure_9_who_sleeps_is_named_to_the_agent),
	        cmocka_unit_test(figure_9_a_thread_that_sleeps_is_named_while_it_sleeps),
	        cmocka_unit_test(claims_3_and_13_errors_and_failures_wake_the_agent),
	        cmocka_unit_test(claim_13_the_message_says_what_the_error_is),
	        cmocka_unit_test(claims_9_and_11_criteria_change_while_the_agent_runs),
	        cmocka_unit_test(claim_9_another_adapter_has_the_criteria_of_its_process),
	        cmocka_unit_test(criteria_that_are_refused),
	        cmocka_unit_test(claim_2_signals_are_forms),
	        cmocka_unit_test(the_command_shows_the_last_error),
	        cmocka_unit_test(nobody_to_wake_concerns_the_agent),
	        cmocka_unit_test(a_writer_spoils_its_own_queue_alone),
	        cmocka_unit_test(the_next_agent_has_a_queue_again),
	        cmocka_unit_test(agents_that_end_one_after_another),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
