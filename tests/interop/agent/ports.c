/* The agent's own queue (AP7): a running application does not concern the agent; one that sleeps
 * gets a message there that names its port, errors and failures wake the agent, a process that
 * writes too much loses its own messages alone, and a new agent gets a queue again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <signal.h>

#include <heddle/aperture.h>

#include "adapter/adapter.h"
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
	assert_int_equal(status.waiting, 2); /* the agent looked into the queue */
	assert_int_equal(ask(adapters[1]).messages, 0);
	MUST(hdl_eventq_close(queue));
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
	        cmocka_unit_test(claims_3_and_13_errors_and_failures_wake_the_agent),
	        cmocka_unit_test(claim_13_the_message_says_what_the_error_is),
	        cmocka_unit_test(nobody_to_wake_concerns_the_agent),
	        cmocka_unit_test(a_writer_spoils_its_own_queue_alone),
	        cmocka_unit_test(the_next_agent_has_a_queue_again),
	        cmocka_unit_test(agents_that_end_one_after_another),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
