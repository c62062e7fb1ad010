/* ALIVE, ALIVEACK and STATUS as events of a port that asks for them, and hdl_aperture_alive() (AP7;
 * APERTURE column 13): two adapters of one process, on a line that may lose frames. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <heddle/aperture.h>
#include <heddle/eventq.h>

#include "adapter/adapter.h"
#include "adapter/aperture/aperture.h"

#define PORT   77u
#define WAIT   20000
#define EVENTS 32u /* the smallest queue: 16 places for what has no place of its own */

/* One end: its port has the queue of all events of its aperture. */
struct side {
	struct hdl_adapter *adapter;
	struct hdl_gid gid;
	struct hdl_port *port;
	struct hdl_eventq *queue;
	struct hdl_aperture *aperture;
	uint32_t seen[HDL_PORT_EVENT_TYPES];
	struct hdl_port_event last[HDL_PORT_EVENT_TYPES];
	/* Frames that its apertures send and that get lost on the way. */
	const struct ap_sink *sink;
	struct ap_sink lossy;
	uint32_t to_lose, lost;
};
static struct side a, b;

static void side_open(struct side *side, uint16_t number, uint32_t signals)
{
	struct hdl_port_attr port = {.port = number, .signals = signals};
	struct hdl_eventq_attr queue = {.events = EVENTS};
	struct hdl_limits limits;
	assert_int_equal(hdl_port_open(side->adapter, &port, &side->port), 0);
	assert_int_equal(hdl_eventq_open(side->port, &queue, &side->queue), 0);
	struct hdl_aperture_attr attr = {.length = 4096, .port = side->port};
	assert_int_equal(hdl_aperture_open(side->adapter, &attr, &side->aperture), 0);
	assert_int_equal(hdl_adapter_query(side->adapter, &limits), 0);
	side->gid = limits.gid;
}

static void side_close(struct side *side)
{
	assert_int_equal(hdl_aperture_free(side->aperture), 0);
	assert_int_equal(hdl_eventq_close(side->queue), 0);
	assert_int_equal(hdl_port_close(side->port), 0);
}

/* Both ends, connected; @signals are those of both ports. */
static void open_both(uint32_t signals)
{
	a = b = (struct side){0};
	assert_int_equal(hdl_open(NULL, &a.adapter), 0);
	assert_int_equal(hdl_open(NULL, &b.adapter), 0);
	assert_int_equal(hdl_join(a.adapter, b.adapter), 0);
	side_open(&a, PORT + 1, signals);
	side_open(&b, PORT, signals);
	assert_int_equal(hdl_aperture_connect(a.aperture, &b.gid, PORT, 0), -HDL_EAGAIN);
	assert_int_equal(hdl_aperture_accept(b.aperture, b.port, 0, NULL, WAIT), 0);
	assert_int_equal(hdl_aperture_wait(a.aperture, WAIT), 0);
}

static void close_both(void)
{
	side_close(&a);
	side_close(&b);
	assert_int_equal(hdl_close(a.adapter), 0);
	assert_int_equal(hdl_close(b.adapter), 0);
}

static void take(struct side *side)
{
	struct hdl_port_event events[EVENTS];
	int count = hdl_eventq_take(side->queue, events, EVENTS);
	for (int i = 0; i < count; i++) {
		side->seen[events[i].type]++;
		side->last[events[i].type] = events[i];
	}
}

/* Wait until an event of @type has come to @side. */
static void await_event(struct side *side, uint16_t type)
{
	uint64_t until = clock_now_ns() + WAIT * 1000000ull;
	for (take(side); side->seen[type] == 0 && clock_now_ns() < until; take(side))
		(void)hdl_eventq_wait(side->queue, 100);
	assert_true(side->seen[type] > 0);
}

/* --- losses --- */

static void lossy_commit(void *context, const struct ap_path *path, size_t bytes)
{
	struct side *side = ((struct apertures *)context)->adapter == a.adapter ? &a : &b;
	if (side->to_lose == 0) {
		side->sink->commit(context, path, bytes);
		return;
	}
	side->to_lose--;
	side->lost++;
}

/* The next @frames that @side sends get lost. */
static void lose(struct side *side, uint32_t frames)
{
	struct ap_node *node = &side->adapter->apertures->node;
	adapter_lock(side->adapter);
	if (side->sink == NULL) {
		side->sink = node->sink;
		side->lossy = *node->sink;
		side->lossy.commit = lossy_commit;
		node->sink = &side->lossy;
	}
	side->to_lose = frames;
	side->lost = 0;
	adapter_unlock(side->adapter);
}

static uint32_t lost_by(struct side *side)
{
	adapter_lock(side->adapter);
	uint32_t lost = side->lost;
	adapter_unlock(side->adapter);
	return lost;
}

/* --- tests --- */

static void ap7_signals_are_events_of_ports_that_ask(void **state)
{
	(void)state;
	struct hdl_port_status status;
	struct hdl_port *port;
	struct hdl_port_attr wrong = {.port = 5, .signals = 1u << HDL_PORT_CONNECT};
	open_both(HDL_SIGNAL_ALL);
	assert_int_equal(hdl_port_open(a.adapter, &wrong, &port), -HDL_EINVAL);
	assert_int_equal(hdl_aperture_alive(a.aperture, 0), 0);
	await_event(&b, HDL_PORT_ALIVE);
	await_event(&a, HDL_PORT_ALIVEACK);
	const struct hdl_port_event *alive = &b.last[HDL_PORT_ALIVE];
	assert_int_equal(alive->port, PORT);
	assert_int_equal(alive->index, b.aperture->conn.own.index);
	assert_int_equal(alive->status, 0);
	assert_memory_equal(&alive->source, &a.gid, sizeof(a.gid));
	assert_int_equal(a.last[HDL_PORT_ALIVEACK].index, a.aperture->conn.own.index);
	assert_int_equal(a.last[HDL_PORT_ALIVEACK].port, PORT + 1);
	/* STATUS is an event of the port that was asked; the call has the answer. */
	assert_int_equal(b.seen[HDL_PORT_STATUS], 0);
	assert_int_equal(hdl_port_status(a.adapter, &b.gid, PORT, &status, WAIT), 0);
	assert_int_equal(status.open, 1);
	await_event(&b, HDL_PORT_STATUS);
	assert_memory_equal(&b.last[HDL_PORT_STATUS].source, &a.gid, sizeof(a.gid));
	assert_int_equal(b.last[HDL_PORT_STATUS].port, PORT);
	take(&a);
	assert_int_equal(a.seen[HDL_PORT_STATUS], 0);
	close_both();
}

static void ap7_other_ports_get_none(void **state)
{
	(void)state;
	struct hdl_port_status status;
	open_both(0);
	assert_int_equal(hdl_aperture_alive(a.aperture, WAIT), 0);
	assert_int_equal(hdl_port_status(a.adapter, &b.gid, PORT, &status, WAIT), 0);
	/* The event comes behind everything that the two have sent before. */
	assert_int_equal(hdl_aperture_event(a.aperture, 0, "x", 1, WAIT), 0);
	assert_int_equal(hdl_aperture_event(b.aperture, 0, "x", 1, WAIT), 0);
	await_event(&a, HDL_PORT_DATA);
	await_event(&b, HDL_PORT_DATA);
	for (int type = HDL_PORT_ALIVE; type <= HDL_PORT_STATUS; type++)
		assert_int_equal(a.seen[type] + b.seen[type], 0);
	close_both();
}

/* An ALIVEACK with the number of an ALIVE comes to @side. */
static void inject_answer(struct side *side, uint32_t number)
{
	struct ap_conn *conn = &side->aperture->conn;
	uint8_t body[8];
	struct ci_note note = {.number = conn->una};
	struct ci_packet packet = {.kind = CI_ALIVEACK,
	                           .flags = CI_ASK,
	                           .offset = number,
	                           .bytes = ci_set_note(CI_ALIVEACK, &note, body),
	                           .data = body};
	ap_hear_control(conn, &packet, &conn->path);
}

/* An ALIVEACK is an event only if it answers an ALIVE: not one that acknowledges data, not one that
 * nobody asked for, not a copy. */
static void ap7_only_answers_are_reported(void **state)
{
	(void)state;
	open_both(HDL_SIGNAL_ALIVEACK);
	struct ap_conn *conn = &a.aperture->conn;
	for (int i = 0; i < 10; i++) {
		assert_int_equal(hdl_aperture_store(a.aperture, 0, "data", 4, WAIT), 0);
		assert_int_equal(hdl_aperture_flush(a.aperture, HDL_FLUSH_PLACED, WAIT), 0);
	}
	adapter_lock(a.adapter);
	uint32_t answered = conn->lives; /* of ALIVEs that the timer sent */
	conn->asks++;
	for (int i = 0; i < 5; i++)
		inject_answer(&a, conn->asks);
	inject_answer(&a, conn->asks + 1);
	inject_answer(&a, conn->asks + INT32_MAX);
	inject_answer(&a, conn->asks - 1);
	assert_int_equal(conn->lives, conn->asks);
	adapter_unlock(a.adapter);
	take(&a);
	assert_int_equal(a.seen[HDL_PORT_ALIVEACK], answered + 1);
	close_both();
}

static void *late_answer(void *number)
{
	usleep(100000);
	adapter_lock(a.adapter);
	inject_answer(&a, *(const uint32_t *)number);
	adapter_unlock(a.adapter);
	return NULL;
}

/* A peer that was slow to answer an earlier ALIVE, and has stopped since, is not alive. */
static void ap7_an_answer_to_an_earlier_question_does_not_count(void **state)
{
	(void)state;
	pthread_t thread;
	open_both(0);
	lose(&b, UINT32_MAX);
	assert_int_equal(hdl_aperture_alive(a.aperture, 0), 0);
	adapter_lock(a.adapter);
	uint32_t earlier = a.aperture->conn.asks;
	adapter_unlock(a.adapter);
	assert_int_equal(pthread_create(&thread, NULL, late_answer, &earlier), 0);
	assert_int_equal(hdl_aperture_alive(a.aperture, 300), -HDL_ETIMEDOUT);
	pthread_join(thread, NULL);
	adapter_lock(a.adapter);
	assert_int_equal(a.aperture->conn.lives, earlier);
	adapter_unlock(a.adapter);
	lose(&b, 0);
	close_both();
}

static void ap7_lost_packets_are_repeated_within_the_wait(void **state)
{
	(void)state;
	open_both(0);
	/* Only the call asks, and no timer. */
	adapter_lock(a.adapter);
	a.aperture->conn.path.idle_ns = 0;
	ap_set_timer(&a.aperture->conn);
	adapter_unlock(a.adapter);
	lose(&a, 2);
	assert_int_equal(hdl_aperture_alive(a.aperture, WAIT), 0);
	assert_int_equal(lost_by(&a), 2);
	lose(&b, 1); /* the answer */
	assert_int_equal(hdl_aperture_alive(a.aperture, WAIT), 0);
	assert_int_equal(lost_by(&b), 1);
	close_both();
}

static void ap7_silence_is_known_in_time(void **state)
{
	(void)state;
	open_both(0);
	assert_int_equal(hdl_aperture_alive(NULL, 0), -HDL_EINVAL);
	lose(&b, UINT32_MAX);
	uint64_t began = clock_now_ns();
	assert_int_equal(hdl_aperture_alive(a.aperture, 300), -HDL_ETIMEDOUT);
	assert_true(clock_now_ns() - began >= 300000000u);
	assert_int_equal(hdl_aperture_state(a.aperture), HDL_APERTURE_OPEN);
	/* Questions do not prolong its life: it fails as it would without. */
	assert_int_equal(hdl_aperture_alive(a.aperture, -1), -HDL_ETIMEDOUT);
	assert_true(clock_now_ns() - began < 4 * AP_SILENT_NS);
	assert_int_equal(hdl_aperture_reason(a.aperture), HDL_REASON_SILENT);
	assert_int_equal(hdl_aperture_alive(a.aperture, WAIT), -HDL_EPERM);
	lose(&b, 0);
	close_both();
}

static void ap7_closed_apertures_cannot_ask(void **state)
{
	(void)state;
	open_both(0);
	struct hdl_aperture *closed;
	assert_int_equal(hdl_aperture_open(a.adapter, NULL, &closed), 0);
	assert_int_equal(hdl_aperture_alive(closed, WAIT), -HDL_EPERM);
	assert_int_equal(hdl_aperture_free(closed), 0);
	/* The peer closes; whether CLOSE comes before the question or after it. */
	assert_int_equal(hdl_aperture_close(b.aperture, 0), 0);
	assert_int_equal(hdl_aperture_alive(a.aperture, WAIT), -HDL_EPERM);
	close_both();
}

/* An application that does not take its events: ALIVE fills the queue, and is counted from then on.
 * CONNECT and ERROR still find their places. */
static void ap7_a_flood_leaves_room_for_connect_and_error(void **state)
{
	(void)state;
	struct hdl_eventq_status status;
	struct hdl_port_event error = {.type = HDL_PORT_ERROR};
	struct hdl_aperture *more[EVRING_OWN_ROOM];
	open_both(HDL_SIGNAL_ALIVE);
	for (uint32_t i = 0; i < 3 * EVENTS; i++)
		assert_int_equal(hdl_aperture_alive(a.aperture, WAIT), 0);
	assert_int_equal(hdl_eventq_query(b.queue, &status), 0);
	assert_int_equal(status.delivered, EVENTS - 2 * EVRING_OWN_ROOM + 1); /* and a CONNECT */
	assert_true(status.lost >= 2 * EVENTS);
	for (uint32_t i = 0; i < EVRING_OWN_ROOM - 1; i++) {
		assert_int_equal(hdl_aperture_open(a.adapter, NULL, &more[i]), 0);
		assert_int_equal(hdl_aperture_connect(more[i], &b.gid, PORT, 0), -HDL_EAGAIN);
	}
	for (uint32_t i = 0; i < EVRING_OWN_ROOM; i++) {
		adapter_lock(b.adapter);
		assert_int_equal(eventq_deliver(b.adapter, PORT, &error, NULL, 0), EVENTQ_PLACED);
		adapter_unlock(b.adapter);
	}
	assert_int_equal(hdl_aperture_alive(a.aperture, WAIT), 0); /* behind the CONNECTs */
	take(&b);
	assert_int_equal(b.seen[HDL_PORT_CONNECT], EVRING_OWN_ROOM);
	assert_int_equal(b.seen[HDL_PORT_ERROR], EVRING_OWN_ROOM);
	/* The next event tells how many there were. */
	assert_int_equal(hdl_aperture_alive(a.aperture, WAIT), 0);
	await_event(&b, HDL_PORT_LOST);
	assert_int_equal(hdl_eventq_query(b.queue, &status), 0);
	assert_int_equal(b.last[HDL_PORT_LOST].value, status.lost);
	for (uint32_t i = 0; i < EVRING_OWN_ROOM - 1; i++)
		assert_int_equal(hdl_aperture_free(more[i]), 0);
	close_both();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(ap7_signals_are_events_of_ports_that_ask),
	        cmocka_unit_test(ap7_other_ports_get_none),
	        cmocka_unit_test(ap7_only_answers_are_reported),
	        cmocka_unit_test(ap7_an_answer_to_an_earlier_question_does_not_count),
	        cmocka_unit_test(ap7_lost_packets_are_repeated_within_the_wait),
	        cmocka_unit_test(ap7_silence_is_known_in_time),
	        cmocka_unit_test(ap7_closed_apertures_cannot_ask),
	        cmocka_unit_test(ap7_a_flood_leaves_room_for_connect_and_error),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
