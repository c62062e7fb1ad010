/* What comes to a port and what does not (AP7; APERTURE columns 13 and 14, figure 7): a number is
 * one program's, CONNECT is an event, a store is none, a store to an EVENT aperture is one; and the
 * agent is woken for a port whose application sleeps, if it wants to be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <pthread.h>

#include <heddle/aperture.h>
#include <heddle/eventq.h>

#include "end.h"

#define BYTES    4096u
#define WAIT     20000
#define ORDINARY (HDL_OOB_BLOCKED | HDL_OOB_ERRORS | HDL_OOB_FAILURES | HDL_OOB_NOBODY)
#define WAKES    (HDL_OOB_ERRORS | HDL_OOB_FAILURES | HDL_OOB_NOBODY)

static struct side {
	struct hdl_adapter *adapter;
	struct hdl_port *port;
	struct hdl_eventq *queue;
	struct hdl_aperture *aperture;
	struct hdl_gid gid;
	uint16_t number;
} a, b; /* a connects to b */

static void side_open(struct side *side)
{
	struct hdl_open_attr attr = {.on_node = true};
	struct hdl_limits limits;
	MUST(hdl_open(&attr, &side->adapter));
	MUST(hdl_adapter_query(side->adapter, &limits));
	side->gid = limits.gid;
	MUST(hdl_port_open(side->adapter, NULL, &side->port));
	side->number = hdl_port_number(side->port);
	MUST(hdl_eventq_open(side->port, NULL, &side->queue));
}

static void side_close(struct side *side)
{
	if (side->aperture != NULL)
		MUST(hdl_aperture_free(side->aperture));
	MUST(hdl_eventq_close(side->queue));
	MUST(hdl_port_close(side->port));
	MUST(hdl_close(side->adapter));
	*side = (struct side){0};
}

static int open_both(void **state)
{
	(void)state;
	side_open(&a);
	side_open(&b);
	return 0;
}

static int close_both(void **state)
{
	(void)state;
	side_close(&a);
	side_close(&b);
	return 0;
}

static void make(struct side *side, uint32_t type)
{
	struct hdl_aperture_attr attr = {.length = BYTES, .type = type, .port = side->port};
	MUST(hdl_aperture_open(side->adapter, &attr, &side->aperture));
}

/* The next event of @side, which must be of @type. */
static struct hdl_port_event next(struct side *side, uint16_t type)
{
	struct hdl_port_event event = {0};
	assert_int_equal(hdl_eventq_wait(side->queue, WAIT), 0);
	assert_int_equal(hdl_eventq_take(side->queue, &event, 1), 1);
	assert_int_equal(event.type, type);
	assert_int_equal(event.port, side->number);
	return event;
}

/* Connect; both ends have taken their events. */
static struct hdl_port_event connect_both(uint32_t type)
{
	make(&a, type);
	make(&b, type);
	assert_int_equal(hdl_aperture_connect(a.aperture, &b.gid, b.number, 0), -HDL_EAGAIN);
	struct hdl_port_event connect = next(&b, HDL_PORT_CONNECT);
	MUST(hdl_aperture_accept(b.aperture, b.port, 0, NULL, WAIT));
	MUST(hdl_aperture_wait(a.aperture, WAIT));
	next(&a, HDL_PORT_ACCEPT);
	next(&b, HDL_PORT_ACCEPT);
	return connect;
}

/* --- numbers --- */

static void hold_the_port(int talk, const char *node, const char *address)
{
	struct hdl_open_attr open = {.on_node = true};
	struct hdl_adapter *adapter;
	struct hdl_port *port;
	uint16_t number;
	(void)node;
	(void)address;
	MUST(hdl_open(&open, &adapter));
	MUST(hdl_port_open(adapter, NULL, &port));
	number = hdl_port_number(port);
	must(write(talk, &number, sizeof(number)) == sizeof(number) ? 0 : -HDL_EIO, "write");
	pause();
}

static void ap7_a_port_is_one_programs(void **state)
{
	(void)state;
	struct child child = child_start(hold_the_port, NULL, NULL);
	struct hdl_port_attr attr = {0};
	struct hdl_port *port;
	assert_int_equal(read(child.talk, &attr.port, sizeof(uint16_t)), sizeof(uint16_t));
	assert_int_equal(hdl_port_open(a.adapter, &attr, &port), -HDL_EADDRINUSE);
	child_kill(&child);
	int result = -HDL_EADDRINUSE; /* until the agent has noticed */
	for (int i = 0; i < WAIT && result == -HDL_EADDRINUSE; i++, usleep(1000))
		result = hdl_port_open(a.adapter, &attr, &port);
	MUST(result);
	MUST(hdl_port_close(port));
}

/* --- events --- */

static void ap7_a_connect_is_an_event_of_its_port(void **state)
{
	(void)state;
	struct hdl_aperture_target own;
	struct hdl_port_event connect = connect_both(HDL_APERTURE_DATA);
	MUST(hdl_aperture_own(a.aperture, &own));
	assert_int_equal(connect.index, own.index);
	assert_memory_equal(&connect.source, &a.gid, sizeof(a.gid));
}

static void ap7_a_store_is_no_event(void **state)
{
	(void)state;
	static const uint8_t data[BYTES] = {1, 2, 3};
	struct hdl_port_event event;
	connect_both(HDL_APERTURE_DATA);
	for (unsigned i = 0; i < 10; i++)
		MUST(hdl_aperture_store(a.aperture, 0, data, sizeof(data), WAIT));
	MUST(hdl_aperture_flush(a.aperture, HDL_FLUSH_PLACED, WAIT));
	assert_memory_equal(hdl_aperture_memory(b.aperture, NULL), data, sizeof(data));
	/* The next event is one that comes behind all of them. */
	MUST(hdl_aperture_event(a.aperture, 7, "event", 5, WAIT));
	assert_int_equal(next(&b, HDL_PORT_DATA).offset, 7);
	assert_int_equal(hdl_eventq_take(b.queue, &event, 1), 0);
}

static void ap4_a_store_to_an_event_aperture_is_one(void **state)
{
	(void)state;
	static const uint32_t sizes[] = {1, 8, 16};
	static const uint8_t data[HDL_APERTURE_EVENT_BYTES] = {8, 7, 6, 5, 4, 3, 2, 1, 9};
	struct hdl_port_event event;
	connect_both(HDL_APERTURE_EVENT);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		MUST(hdl_aperture_store(a.aperture, 64 * i, data, sizes[i], WAIT));
		event = next(&b, HDL_PORT_DATA);
		assert_int_equal(event.offset, 64 * i);
		assert_int_equal(event.flags, sizes[i]);
		assert_memory_equal(&event.source, &a.gid, sizeof(a.gid));
		uint8_t first[8] = {0};
		memcpy(first, data, sizes[i] < 8 ? sizes[i] : 8);
		assert_memory_equal(&event.value, first, sizeof(first));
		/* What is longer than the event itself waits in the second queue. */
		assert_int_equal(event.words > 0, sizes[i] > 8);
	}
	assert_int_equal(hdl_eventq_take(b.queue, &event, 1), 0);
}

/* --- who sleeps --- */

static void *sleep_for_an_event(void *context)
{
	struct hdl_port_event event;
	struct side *side = context;
	bool good = hdl_eventq_wait(side->queue, WAIT) == 0 &&
	            hdl_eventq_take(side->queue, &event, 1) == 1 && event.type == HDL_PORT_DATA;
	return good ? side : NULL;
}

static struct hdl_oob_status ask(struct side *side)
{
	struct hdl_oob_status status;
	MUST(hdl_oob_query(side->adapter, &status));
	return status;
}

/* APERTURE claims 1 and 17: a message that names the port, and an interrupt. */
static void claim_1_the_agent_is_woken_for_one_that_sleeps(void **state)
{
	(void)state;
	pthread_t thread;
	void *result;
	connect_both(HDL_APERTURE_DATA);
	MUST(hdl_oob_set(0, HDL_OOB_BLOCKED, HDL_OOB_BLOCKED));
	struct hdl_oob_status before = ask(&b), after;
	MUST(hdl_aperture_event(a.aperture, 0, "x", 1, WAIT)); /* nobody sleeps */
	struct hdl_port_event event;
	while (hdl_eventq_take(b.queue, &event, 1) == 0)
		(void)hdl_progress(b.adapter);
	after = ask(&b);
	assert_int_equal(after.messages, before.messages);
	assert_int_equal(after.wakes, before.wakes);

	assert_int_equal(pthread_create(&thread, NULL, sleep_for_an_event, &b), 0);
	struct hdl_port_status status = {0};
	for (int i = 0; i < WAIT && status.blocked == 0; i++)
		MUST(hdl_port_status(a.adapter, &b.gid, b.number, &status, WAIT));
	assert_int_equal(status.blocked, 1);
	MUST(hdl_aperture_event(a.aperture, 0, "y", 1, WAIT));
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_ptr_equal(result, &b);
	for (int i = 0; i < WAIT && after.wakes == before.wakes; i++, usleep(1000))
		after = ask(&b);
	assert_int_equal(after.messages, before.messages + 1);
	assert_int_equal(after.blocked, before.blocked + 1);
	assert_int_equal(after.last_port, b.number);
	assert_int_equal(after.wakes, before.wakes + 1);
	MUST(hdl_oob_set(0, ORDINARY, WAKES));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_both, close_both)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(ap7_a_port_is_one_programs),
	        TEST(ap7_a_connect_is_an_event_of_its_port),
	        TEST(ap7_a_store_is_no_event),
	        TEST(ap4_a_store_to_an_event_aperture_is_one),
	        TEST(claim_1_the_agent_is_woken_for_one_that_sleeps),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
