/* Errors of apertures as an application sees them (AP3): the event at its port, who found it, and
 * what hdl_aperture_check() says. Frames between two adapters of one process pass a carrier that
 * damages them, or says what a peer on another host would. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <heddle/aperture.h>
#include <heddle/eventq.h>

#include "transport/aperture/ap.h"

#define PORT 77u
#define WAIT 20000

static enum { CARRY, DAMAGE, GIVE_UP } carrier; /* what becomes of the next frame with data */

void __real_ap_take(struct ap_node *node, const uint8_t *frame, size_t bytes,
                    const struct ap_path *from);
void __wrap_ap_take(struct ap_node *node, const uint8_t *frame, size_t bytes,
                    const struct ap_path *from);
void __wrap_ap_take(struct ap_node *node, const uint8_t *frame, size_t bytes,
                    const struct ap_path *from)
{
	static const struct ci_note note = {.reason = HDL_REASON_SILENT, .element = CI_SENDER};
	uint8_t other[CI_MAX_FRAME], body[8];
	struct ci_reader reader;
	struct ci_packet packet;
	struct ci_writer writer;
	ci_open(&reader, frame, bytes);
	if (carrier == CARRY || ci_next(&reader, &packet) != CI_OK || packet.kind != CI_DATA) {
		__real_ap_take(node, frame, bytes, from);
		return;
	}
	memcpy(other, frame, bytes);
	if (carrier == DAMAGE) {
		other[packet.data - frame] ^= 1;
	} else {
		struct ci_packet error = {.kind = CI_ERROR,
		                          .index = packet.index,
		                          .nonce = packet.nonce,
		                          .bytes = ci_set_note(CI_ERROR, &note, body),
		                          .data = body};
		ci_begin(&writer, other, sizeof(other));
		assert_true(ci_put(&writer, &error));
		bytes = writer.used;
	}
	carrier = CARRY;
	__real_ap_take(node, other, bytes, from);
}

static struct {
	struct hdl_adapter *a, *b;
	struct hdl_port *port, *events_port;
	struct hdl_eventq *queue;
	struct hdl_aperture *from, *to;
} w;

static uint64_t counted(struct hdl_adapter *adapter, enum hdl_aperture_counter which)
{
	struct hdl_counter list[HDL_APERTURE_COUNTER_COUNT];
	hdl_aperture_counters(adapter, list, HDL_APERTURE_COUNTER_COUNT);
	return list[which].value;
}

/* Connect w.from, whose events we see, to w.to, which checks @checks. */
static void begin(uint32_t checks)
{
	struct hdl_limits limits;
	struct hdl_port_attr attr = {.port = PORT};
	struct hdl_eventq_attr size = {.words = 1024};
	memset(&w, 0, sizeof(w));
	carrier = CARRY;
	assert_int_equal(hdl_open(NULL, &w.a), 0);
	assert_int_equal(hdl_open(NULL, &w.b), 0);
	assert_int_equal(hdl_join(w.a, w.b), 0);
	assert_int_equal(hdl_adapter_query(w.b, &limits), 0);
	assert_int_equal(hdl_port_open(w.b, &attr, &w.port), 0);
	attr.port++;
	assert_int_equal(hdl_port_open(w.a, &attr, &w.events_port), 0);
	assert_int_equal(hdl_eventq_open(w.events_port, &size, &w.queue), 0);
	struct hdl_aperture_attr to = {.length = 4096, .checks = checks};
	struct hdl_aperture_attr from = {.length = 4096, .port = w.events_port};
	assert_int_equal(hdl_aperture_open(w.b, &to, &w.to), 0);
	assert_int_equal(hdl_aperture_open(w.a, &from, &w.from), 0);
	assert_int_equal(hdl_aperture_connect(w.from, &limits.gid, PORT, 0), -HDL_EAGAIN);
	assert_int_equal(hdl_aperture_accept(w.to, w.port, 0, NULL, WAIT), 0);
	assert_int_equal(hdl_aperture_wait(w.from, WAIT), 0);
}

static void end(void)
{
	assert_int_equal(hdl_aperture_free(w.from), 0);
	assert_int_equal(hdl_aperture_free(w.to), 0);
	assert_int_equal(hdl_eventq_close(w.queue), 0);
	assert_int_equal(hdl_port_close(w.port), 0);
	assert_int_equal(hdl_port_close(w.events_port), 0);
	assert_int_equal(hdl_close(w.a), 0);
	assert_int_equal(hdl_close(w.b), 0);
}

/* The next error at the port. False: none waits. */
static bool next_error(struct hdl_port_event *event)
{
	while (hdl_eventq_take(w.queue, event, 1) == 1)
		if (event->type == HDL_PORT_ERROR)
			return true;
	return false;
}

static bool wait_error(struct hdl_port_event *event)
{
	for (int i = 0; i < 1000000; i++) {
		hdl_progress(w.b);
		hdl_progress(w.a);
		if (next_error(event))
			return true;
	}
	return false;
}

/* With numbers, damage is repaired, and the application has nothing to do. */
static void ap3_damage_is_repaired(void **state)
{
	(void)state;
	struct hdl_port_event event;
	begin(0);
	carrier = DAMAGE;
	assert_int_equal(hdl_aperture_store(w.from, 8, "whole", 5, WAIT), 0);
	assert_int_equal(hdl_aperture_flush(w.from, HDL_FLUSH_PLACED, WAIT), 0);
	assert_memory_equal((uint8_t *)hdl_aperture_memory(w.to, NULL) + 8, "whole", 5);
	assert_int_equal(counted(w.b, HDL_APERTURE_COUNTER_BAD_CRC), 1);
	assert_int_equal(counted(w.b, HDL_APERTURE_COUNTER_ERRORS_OUT), 1);
	assert_int_equal(counted(w.a, HDL_APERTURE_COUNTER_ERRORS_IN), 1);
	assert_int_equal(hdl_aperture_check(w.from), 0);
	assert_false(next_error(&event));
	end();
}

/* Without numbers it is lost: an event of the carrier, and an error of the check, once. */
static void ap3_damage_without_numbers(void **state)
{
	(void)state;
	struct hdl_port_event event;
	begin(HDL_CHECK_DEFAULT & ~HDL_CHECK_SEQUENCE);
	assert_int_equal(hdl_aperture_check(w.from), 0);
	carrier = DAMAGE;
	assert_int_equal(hdl_aperture_store(w.from, 8, "lost", 4, WAIT), 0);
	assert_true(wait_error(&event));
	assert_int_equal(event.value, HDL_ELEMENT_CARRIER);
	assert_int_equal(event.status, -HDL_EIO);
	assert_int_equal(((uint8_t *)hdl_aperture_memory(w.to, NULL))[8], 0);
	assert_int_equal(hdl_aperture_check(w.from), -HDL_EIO);
	assert_int_equal(hdl_aperture_reason(w.from), HDL_REASON_DAMAGED);
	assert_string_equal(hdl_aperture_reason_str(HDL_REASON_DAMAGED),
	                    "a packet was damaged on its way");
	assert_int_equal(hdl_aperture_state(w.from), HDL_APERTURE_OPEN);
	assert_int_equal(hdl_aperture_check(w.from), 0);
	end();
}

/* The peer has given up: the connection ends at once, for its reason. */
static void ap3_the_peer_gives_up(void **state)
{
	(void)state;
	struct hdl_port_event event;
	begin(0);
	carrier = GIVE_UP;
	assert_int_equal(hdl_aperture_store(w.to, 0, "x", 1, WAIT), 0);
	assert_true(wait_error(&event));
	assert_int_equal(event.value, HDL_ELEMENT_SENDER);
	assert_int_equal(event.status, -HDL_ETIMEDOUT);
	assert_int_equal(hdl_aperture_state(w.from), HDL_APERTURE_FAILED);
	assert_int_equal(hdl_aperture_reason(w.from), HDL_REASON_SILENT);
	assert_int_equal(hdl_aperture_check(w.from), -HDL_EPERM);
	end();
}

/* A receiver refuses an access: the event says that it was the receiver. */
static void ap3_the_receiver_refuses(void **state)
{
	(void)state;
	struct hdl_port_event event;
	uint8_t memory[4096];
	begin(0);
	assert_int_equal(hdl_aperture_free(w.to), 0);
	assert_true(wait_error(&event) || hdl_aperture_state(w.from) == HDL_APERTURE_CLOSED);
	struct hdl_aperture_attr attr = {
	        .memory = memory, .length = sizeof(memory), .access = HDL_ACCESS_REMOTE_READ};
	struct hdl_limits limits;
	assert_int_equal(hdl_adapter_query(w.b, &limits), 0);
	assert_int_equal(hdl_aperture_open(w.b, &attr, &w.to), 0);
	assert_int_equal(hdl_aperture_connect(w.from, &limits.gid, PORT, 0), -HDL_EAGAIN);
	assert_int_equal(hdl_aperture_accept(w.to, w.port, 0, NULL, WAIT), 0);
	assert_int_equal(hdl_aperture_wait(w.from, WAIT), 0);
	assert_int_equal(hdl_aperture_store(w.from, 0, "x", 1, WAIT), 0);
	assert_true(wait_error(&event));
	assert_int_equal(event.value, HDL_ELEMENT_RECEIVER);
	assert_int_equal(event.status, -HDL_EACCES);
	end();
}

int main(void)
{
	const struct CMUnitTest all[] = {
	        cmocka_unit_test(ap3_damage_is_repaired),
	        cmocka_unit_test(ap3_damage_without_numbers),
	        cmocka_unit_test(ap3_the_peer_gives_up),
	        cmocka_unit_test(ap3_the_receiver_refuses),
	};
	return cmocka_run_group_tests(all, NULL, NULL);
}
