/* The forwarder of a program that is not trusted (AP6): what it lets pass to other machines, and
 * where it directs what comes from them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <string.h>

#include "agent/forward.h"
#include "base/prng.h"

#define INDEX (9u << CI_ROW_BITS | 3u)
#define NONCE 0x5555666677778888ull

static const uint8_t host[16] = {[10] = 0xff, 0xff, 10, 0, 0, 2};
static const uint8_t other_host[16] = {[10] = 0xff, 0xff, 10, 0, 0, 3};
static struct forward_table table;
static uint8_t frame[CI_MAX_FRAME];

static struct forward_entry entry_of(uint32_t place, uint32_t index, bool open)
{
	struct forward_entry entry = {.place = place, .index = index, .nonce = NONCE, .open = open};
	memcpy(entry.host, host, sizeof(entry.host));
	return entry;
}

static int one_entry(void **state)
{
	(void)state;
	memset(&table, 0, sizeof(table));
	struct forward_entry entry = entry_of(7, INDEX, true);
	forward_set(&table, &entry);
	return 0;
}

static struct ci_packet data_packet(void)
{
	return (struct ci_packet){.kind = CI_DATA,
	                          .flags = CI_SEQUENCED,
	                          .index = INDEX,
	                          .nonce = NONCE,
	                          .sequence = 5,
	                          .bytes = 4,
	                          .data = (const uint8_t *)"data"};
}

static size_t frame_of(const struct ci_packet *packets, unsigned count)
{
	struct ci_writer writer;
	ci_begin(&writer, frame, sizeof(frame));
	for (unsigned i = 0; i < count; i++)
		assert_true(ci_put(&writer, &packets[i]));
	return writer.used;
}

static bool may_send(const uint8_t to[16], struct ci_packet packet)
{
	size_t bytes = frame_of(&packet, 1);
	return forward_may_send(&table, to, frame, bytes);
}

/* A packet of every kind, with a body of the right length. */
static struct ci_packet packet_of(uint8_t kind, struct ci_note note, uint8_t body[CI_OFFER_BYTES])
{
	static const uint8_t bytes[CI_KIND_COUNT] = {
	        [CI_DATA] = 4,
	        [CI_EVENT] = 4,
	        [CI_READ] = 8,
	        [CI_RESPONSE] = 8,
	        [CI_CONNECT] = CI_OFFER_BYTES,
	        [CI_ACCEPT] = CI_OFFER_BYTES,
	        [CI_STATUS] = CI_STATUS_BYTES,
	        [CI_STATUSACK] = CI_STATUSACK_BYTES,
	};
	struct ci_packet packet = {.kind = kind, .index = INDEX, .nonce = NONCE, .data = body};
	memset(body, 0, CI_OFFER_BYTES);
	packet.bytes = bytes[kind];
	if (packet.bytes == 0)
		packet.bytes = ci_set_note(kind, &note, body);
	return packet;
}

static void ap6_data_goes_to_connections(void **state)
{
	(void)state;
	struct ci_packet packet = data_packet();
	assert_true(may_send(host, packet));
	assert_false(may_send(other_host, packet));
	packet.index++;
	assert_false(may_send(host, packet));
	packet = data_packet();
	packet.nonce++;
	assert_false(may_send(host, packet));
	/* The entry is over. */
	struct forward_entry closed = entry_of(7, INDEX, false);
	forward_set(&table, &closed);
	assert_false(may_send(host, data_packet()));
	forward_set(&table, &closed); /* again: nothing */
	assert_int_equal(table.count, 0);
}

static void ap6_a_nonce_that_rolls_is_for_the_receiver(void **state)
{
	(void)state;
	struct ci_packet packet = data_packet();
	struct forward_entry entry = entry_of(7, INDEX, true);
	entry.rolls = true;
	forward_set(&table, &entry);
	packet.nonce += 3;
	assert_true(may_send(host, packet));
	assert_false(may_send(other_host, packet));
}

static void ap6_what_is_out_of_band_does_not_pass(void **state)
{
	(void)state;
	uint8_t body[CI_OFFER_BYTES];
	for (uint8_t kind = CI_DATA; kind < CI_KIND_COUNT; kind++) {
		struct ci_packet packet = packet_of(kind, (struct ci_note){.reason = 8}, body);
		bool passes = kind <= CI_RESPONSE || kind == CI_ALIVEACK;
		assert_int_equal(may_send(host, packet), passes);
	}
	struct ci_packet gap =
	        packet_of(CI_ERROR, (struct ci_note){.reason = CI_REASON_SEQUENCE}, body);
	assert_true(may_send(host, gap));
}

static void ap6_all_of_a_frame_or_nothing(void **state)
{
	(void)state;
	uint8_t body[CI_OFFER_BYTES];
	struct ci_packet packets[3] = {data_packet(), data_packet(), data_packet()};
	packets[1].sequence++;
	size_t bytes = frame_of(packets, 2);
	assert_true(forward_may_send(&table, host, frame, bytes));
	packets[2] = packet_of(CI_CLOSE, (struct ci_note){.reason = 7}, body);
	bytes = frame_of(packets, 3);
	assert_false(forward_may_send(&table, host, frame, bytes));
	packets[2] = data_packet();
	packets[2].index++;
	bytes = frame_of(packets, 3);
	assert_false(forward_may_send(&table, host, frame, bytes));
	/* Behind the end of a frame, where other programs might read on. */
	bytes = frame_of(packets, 2);
	frame[bytes] = 0;
	frame[bytes + 1] = CI_CLOSE;
	assert_false(forward_may_send(&table, host, frame, bytes + 2));
	assert_false(forward_may_send(&table, host, frame, 0));
	/* Damaged, and cut short. */
	for (size_t i = 0; i < bytes; i++) {
		frame[i] ^= 0x10;
		assert_false(forward_may_send(&table, host, frame, bytes));
		frame[i] ^= 0x10;
		if (i != CI_EXTRA_BYTES + 4) /* where the second packet begins */
			assert_false(forward_may_send(&table, host, frame, i));
	}
	assert_true(forward_may_send(&table, host, frame, bytes));
}

static void limits_of_the_table(void **state)
{
	(void)state;
	memset(&table, 0, sizeof(table));
	for (uint32_t i = 0; i < AGENT_CI_ENTRIES + 10; i++) {
		struct forward_entry entry = entry_of(i, INDEX + i, true);
		forward_set(&table, &entry);
	}
	assert_int_equal(table.count, AGENT_CI_ENTRIES);
	struct forward_entry closed = entry_of(3, INDEX + 3, false);
	forward_set(&table, &closed);
	assert_int_equal(table.count, AGENT_CI_ENTRIES - 1);
	struct ci_packet packet = data_packet();
	packet.index = INDEX + AGENT_CI_ENTRIES - 1; /* the one that took its place */
	assert_true(may_send(host, packet));
	packet.index = INDEX + 3;
	assert_false(may_send(host, packet));
	/* A place has one entry. */
	struct forward_entry other = entry_of(5, 12345, true);
	forward_set(&table, &other);
	packet.index = INDEX + 5;
	assert_false(may_send(host, packet));
	packet.index = 12345;
	assert_true(may_send(host, packet));
}

/* --- what comes --- */

static uint8_t kinds[64];
static unsigned kind_count;

static void take_control(void *context, const uint8_t *data, size_t bytes)
{
	struct ci_reader reader;
	struct ci_packet packet;
	assert_ptr_equal(context, kinds);
	ci_open(&reader, data, bytes);
	assert_int_equal(ci_next(&reader, &packet), CI_OK);
	kinds[kind_count++] = packet.kind;
	assert_int_equal(ci_next(&reader, &packet), CI_END);
}

/* Any mixture: the program gets what is in band, in order and with all fields; the agent gets the
 * rest. */
static void ap6_frames_are_divided(void **state)
{
	(void)state;
	static uint8_t out[CI_MAX_FRAME], bodies[16][CI_OFFER_BYTES];
	struct prng prng;
	prng_seed(&prng, 1);
	for (unsigned round = 0; round < 2000; round++) {
		struct ci_packet packets[16], got;
		unsigned count = (unsigned)prng_below(&prng, 16), controls = 0;
		for (unsigned i = 0; i < count; i++) {
			uint8_t kind = (uint8_t)(1 + prng_below(&prng, CI_KIND_COUNT - 1));
			struct ci_note note = {
			        .reason = prng_below(&prng, 2) == 0 ? CI_REASON_SEQUENCE : 8};
			packets[i] = packet_of(kind, note, bodies[i]);
			packets[i].index += (uint32_t)prng_below(&prng, 2);
			packets[i].sequence = i;
			packets[i].flags = kind <= CI_RESPONSE ? CI_SEQUENCED : 0;
			if (packets[i].flags == 0)
				packets[i].sequence = 0;
			controls += ci_is_out_of_band(&packets[i]);
		}
		kind_count = 0;
		size_t bytes =
		        forward_divide(frame, frame_of(packets, count), out, take_control, kinds);
		assert_int_equal(kind_count, controls);
		struct ci_reader reader;
		ci_open(&reader, out, bytes);
		unsigned control = 0;
		for (unsigned i = 0; i < count; i++) {
			if (ci_is_out_of_band(&packets[i])) {
				assert_int_equal(kinds[control++], packets[i].kind);
				continue;
			}
			assert_int_equal(ci_next(&reader, &got), CI_OK);
			assert_int_equal(got.kind, packets[i].kind);
			assert_int_equal(got.index, packets[i].index);
			assert_int_equal(got.sequence, packets[i].sequence);
			assert_memory_equal(got.data, packets[i].data, got.bytes);
		}
		assert_int_equal(ci_next(&reader, &got), CI_END);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup(ap6_data_goes_to_connections, one_entry),
	        cmocka_unit_test_setup(ap6_a_nonce_that_rolls_is_for_the_receiver, one_entry),
	        cmocka_unit_test_setup(ap6_what_is_out_of_band_does_not_pass, one_entry),
	        cmocka_unit_test_setup(ap6_all_of_a_frame_or_nothing, one_entry),
	        cmocka_unit_test_setup(limits_of_the_table, one_entry),
	        cmocka_unit_test_setup(ap6_frames_are_divided, one_entry),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
