/* CI packets: every kind byte for byte, fields that repeat removed and restored, every verdict, the
 * limits, and data that becomes one write. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <heddle/aperture.h>

#include "base/prng.h"
#include "ci_octets.h"
#include "wire/be.h"
#include "wire/ci.h"

#define NONCE 0x0123456789abcdefull
#define INDEX ci_index(5, 7)
#define PORT  4660u

static uint8_t frame[2 * CI_MAX_FRAME];

static const struct ci_offer offer = {.index = 3u << 22 | 9,
                                      .nonce = 0xfedcba9876543210ull,
                                      .sequence = 0xfffffffe,
                                      .bits = 20,
                                      .checks = 0x37,
                                      .nonce_every = 1000,
                                      .nonce_step = 3,
                                      .port = PORT,
                                      .first = 16,
                                      .length = 0x0f0000};

/* Write @packet alone, compare it with @expected, and read it again. */
static void goes_both_ways(const struct ci_packet *packet, const uint8_t *expected, size_t bytes)
{
	struct ci_writer writer;
	struct ci_reader reader;
	struct ci_packet came;
	ci_begin(&writer, frame, bytes - 1);
	assert_false(ci_put(&writer, packet)); /* one byte too small */
	ci_begin(&writer, frame, bytes);
	assert_int_equal(ci_bytes(&writer, packet), bytes);
	assert_true(ci_put(&writer, packet));
	assert_int_equal(writer.used, bytes);
	assert_memory_equal(frame, expected, bytes);
	ci_open(&reader, frame, bytes);
	assert_int_equal(ci_next(&reader, &came), CI_OK);
	assert_int_equal(came.kind, packet->kind);
	assert_int_equal(came.flags, packet->flags);
	assert_int_equal(came.cluster, packet->cluster);
	assert_int_equal(came.index, packet->index);
	assert_int_equal(came.nonce, packet->nonce);
	assert_int_equal(came.offset, packet->offset);
	assert_int_equal(came.sequence, packet->sequence);
	assert_int_equal(came.bytes, packet->bytes);
	if (packet->bytes > 0)
		assert_memory_equal(came.data, packet->data, packet->bytes);
	assert_int_equal(ci_next(&reader, &came), CI_END);
}

static void ap4_data(void **state)
{
	(void)state;
	static const uint8_t data[] = {10, 11, 12, 13};
	struct ci_packet packet = {.kind = CI_DATA,
	                           .flags = CI_SEQUENCED,
	                           .cluster = 0x12,
	                           .index = INDEX,
	                           .nonce = NONCE,
	                           .offset = 0xbeec,
	                           .sequence = 0x1000,
	                           .bytes = 4,
	                           .data = data};
	assert_int_equal(ci_slot(INDEX), 5);
	assert_int_equal(ci_row(INDEX), 7);
	goes_both_ways(&packet, wire_data, sizeof(wire_data));
	packet.flags = 0;
	packet.sequence = 0;
	packet.bytes = 1;
	goes_both_ways(&packet, wire_plain, sizeof(wire_plain));
}

static void ap4_events_and_reads(void **state)
{
	(void)state;
	static const uint8_t data[] = {0, 1, 2, 3, 4, 5, 6, 7};
	struct ci_packet packet = {.kind = CI_EVENT,
	                           .flags = CI_SEQUENCED | CI_ASK,
	                           .index = INDEX,
	                           .nonce = NONCE,
	                           .offset = 64,
	                           .sequence = 7,
	                           .bytes = 8,
	                           .data = data};
	goes_both_ways(&packet, wire_event, sizeof(wire_event));
	uint8_t body[8];
	struct ci_read wanted = {.token = 0x55, .bytes = 4096}, got;
	ci_set_read(&wanted, body);
	packet = (struct ci_packet){.kind = CI_READ,
	                            .flags = CI_SEQUENCED,
	                            .index = INDEX,
	                            .nonce = NONCE,
	                            .offset = 0x400,
	                            .sequence = 8,
	                            .bytes = 8,
	                            .data = body};
	goes_both_ways(&packet, wire_read, sizeof(wire_read));
	assert_int_equal(ci_get_read(&packet, &got), CI_OK);
	assert_true(got.token == 0x55 && got.bytes == 4096);
	be32_store(body + 4, CI_MAX_READ);
	assert_int_equal(ci_get_read(&packet, &got), CI_OK);
	be32_store(body + 4, CI_MAX_READ + 1);
	assert_int_equal(ci_get_read(&packet, &got), CI_WRONG_BODY);
	be32_store(body + 4, 0);
	assert_int_equal(ci_get_read(&packet, &got), CI_WRONG_BODY);
	packet.kind = CI_RESPONSE;
	packet.sequence = 9;
	packet.bytes = 7;
	packet.data = (const uint8_t *)"\0\0\0\x55"
	                               "abc";
	goes_both_ways(&packet, wire_response, sizeof(wire_response));
	assert_int_equal(ci_get_read(&packet, &got), CI_OK);
	assert_int_equal(got.token, 0x55);
}

static void ap3_offers(void **state)
{
	(void)state;
	uint8_t body[CI_OFFER_BYTES];
	struct ci_offer sent = offer, got;
	struct ci_packet packet = {
	        .kind = CI_CONNECT, .index = PORT, .bytes = sizeof(body), .data = body};
	ci_set_offer(&sent, body);
	goes_both_ways(&packet, wire_connect, sizeof(wire_connect));
	assert_int_equal(ci_get_offer(&packet, &got), CI_OK);
	assert_true(got.index == sent.index && got.nonce == sent.nonce &&
	            got.sequence == sent.sequence && got.bits == 20 && got.type == 0 &&
	            got.checks == 0x37 && got.nonce_every == 1000 && got.nonce_step == 3 &&
	            got.port == PORT && got.first == 16 && got.length == 0x0f0000);
	sent.port = PORT + 1;
	ci_set_offer(&sent, body);
	packet.kind = CI_ACCEPT;
	packet.index = INDEX;
	packet.nonce = NONCE;
	goes_both_ways(&packet, wire_accept, sizeof(wire_accept));
}

static void ap3_offers_that_make_no_sense(void **state)
{
	(void)state;
	static const struct {
		size_t at;
		uint8_t value;
		enum ci_verdict verdict;
	} changes[] = {
	        {16, HDL_APERTURE_MIN_BITS - 1, CI_WRONG_BODY},
	        {16, HDL_APERTURE_MAX_BITS, CI_OK},
	        {16, HDL_APERTURE_MAX_BITS + 1, CI_WRONG_BODY},
	        {16, 255, CI_WRONG_BODY},
	        {16, 19, CI_WRONG_BODY}, /* smaller than the narrowed range */
	        {17, HDL_APERTURE_EVENT, CI_OK},
	        {17, HDL_APERTURE_IP, CI_WRONG_BODY},
	        {18, HDL_CHECK_DEFAULT | HDL_CHECK_LINK, CI_OK},
	        {18, 0x40, CI_WRONG_BODY},
	        {19, 1, CI_WRONG_BODY},
	        {28, 0xff, CI_WRONG_BODY}, /* first + length would wrap */
	        {32, 0xff, CI_WRONG_BODY},
	};
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		uint8_t body[CI_OFFER_BYTES];
		struct ci_packet packet = {.kind = CI_CONNECT, .bytes = sizeof(body), .data = body};
		struct ci_offer got;
		ci_set_offer(&offer, body);
		body[changes[i].at] = changes[i].value;
		assert_int_equal(ci_get_offer(&packet, &got), changes[i].verdict);
	}
}

static void ap3_notes(void **state)
{
	(void)state;
	static const struct {
		uint8_t kind;
		struct ci_note note;
		const uint8_t *wire;
		size_t bytes;
	} rows[] = {
	        {CI_REJECT, {.reason = HDL_REASON_RULE}, wire_reject, sizeof(wire_reject)},
	        {CI_CLOSE,
	         {.reason = HDL_REASON_CLOSED, .number = 0x1001},
	         wire_close,
	         sizeof(wire_close)},
	        {CI_ALIVE,
	         {.number = 0x1001, .index = 3u << 22 | 9},
	         wire_alive,
	         sizeof(wire_alive)},
	        {CI_ALIVEACK, {.number = 0x1001}, wire_aliveack, sizeof(wire_aliveack)},
	        {CI_ERROR,
	         {.reason = HDL_REASON_SEQUENCE, .element = CI_RECEIVER, .number = 0x1001},
	         wire_error,
	         sizeof(wire_error)},
	        {CI_ERROR,
	         {.reason = HDL_REASON_DAMAGED, .element = CI_CARRIER, .number = 0x1001},
	         wire_damaged,
	         sizeof(wire_damaged)},
	        {CI_ERROR,
	         {.reason = HDL_REASON_SILENT, .element = CI_SENDER, .number = 0x1001},
	         wire_gave_up,
	         sizeof(wire_gave_up)},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint8_t body[8];
		struct ci_packet packet = {
		        .kind = rows[i].kind, .index = INDEX, .nonce = NONCE, .data = body};
		packet.bytes = ci_set_note(rows[i].kind, &rows[i].note, body);
		goes_both_ways(&packet, rows[i].wire, rows[i].bytes);
		struct ci_note note = ci_get_note(&packet);
		assert_true(note.reason == rows[i].note.reason &&
		            note.element == rows[i].note.element &&
		            note.number == rows[i].note.number && note.index == rows[i].note.index);
	}
}

/* REJECT with a ticket, and no other length. */
static void ap3_tickets(void **state)
{
	uint8_t body[CI_TICKET_BYTES] = {0}, octets[64];
	struct ci_packet packet = {
	        .kind = CI_REJECT, .index = INDEX, .nonce = NONCE, .bytes = 4, .data = body};
	struct ci_writer writer;
	struct ci_reader reader;
	(void)state;
	assert_int_equal(ci_get_ticket(&packet), 0);
	ci_set_ticket(0x0f1e2d3c4b5a6978ull, body);
	packet.bytes = sizeof(body);
	assert_int_equal(ci_get_note(&packet).reason, HDL_REASON_TICKET);
	assert_int_equal(ci_get_ticket(&packet), 0x0f1e2d3c4b5a6978ull);
	ci_begin(&writer, octets, sizeof(octets));
	assert_true(ci_put(&writer, &packet));
	assert_int_equal(writer.used, sizeof(wire_ticket));
	assert_memory_equal(octets, wire_ticket, sizeof(wire_ticket));
	ci_open(&reader, octets, writer.used);
	assert_int_equal(ci_next(&reader, &packet), CI_OK);
	assert_int_equal(ci_get_ticket(&packet), 0x0f1e2d3c4b5a6978ull);
	packet.data = body;
	for (packet.bytes = 0; packet.bytes <= CI_TICKET_BYTES + 1; packet.bytes++) {
		ci_begin(&writer, octets, sizeof(octets));
		assert_int_equal(ci_put(&writer, &packet),
		                 packet.bytes == 4 || packet.bytes == CI_TICKET_BYTES);
	}
}

static void ap7_status(void **state)
{
	(void)state;
	uint8_t body[CI_STATUSACK_BYTES];
	struct ci_status status = {.index = INDEX, .nonce = NONCE, .token = 0x77}, got;
	struct ci_packet packet = {.kind = CI_STATUS, .index = PORT, .data = body};
	packet.bytes = ci_set_status(CI_STATUS, &status, body);
	goes_both_ways(&packet, wire_status, sizeof(wire_status));
	got = ci_get_status(&packet);
	assert_true(got.index == INDEX && got.nonce == NONCE && got.token == 0x77);
	for (uint32_t i = 0; i < CI_STATUSES; i++)
		status.values[i] = i + 1;
	packet = (struct ci_packet){
	        .kind = CI_STATUSACK, .index = INDEX, .nonce = NONCE, .data = body};
	packet.bytes = ci_set_status(CI_STATUSACK, &status, body);
	goes_both_ways(&packet, wire_statusack, sizeof(wire_statusack));
	got = ci_get_status(&packet);
	assert_int_equal(got.token, 0x77);
	assert_memory_equal(got.values, status.values, sizeof(got.values));
}

/* Five packets in one frame: all of their repeated fields are gone, one kind of field at a time. */
static void ap4_packed_frame(void **state)
{
	(void)state;
	static const struct ci_packet packets[] = {
	        {CI_DATA, CI_SEQUENCED, 0x12, 5u << 22 | 7, NONCE, 0x100, 0xffffffff, 4,
	         (const uint8_t *)"abcd"},
	        {CI_DATA, CI_SEQUENCED, 0x12, 5u << 22 | 7, NONCE, 0x104, 0, 4,
	         (const uint8_t *)"efgh"},
	        {CI_DATA, CI_SEQUENCED, 0x12, 5u << 22 | 7, NONCE, 0x200, 1, 2,
	         (const uint8_t *)"ij"},
	        {CI_DATA, CI_SEQUENCED, 0x12, 5u << 22 | 7, NONCE + 1, 0x202, 2, 1,
	         (const uint8_t *)"k"},
	        {CI_EVENT, CI_SEQUENCED, 0x12, 5u << 22 | 7, NONCE + 1, 0, 9, 0, NULL},
	};
	struct ci_writer writer;
	struct ci_reader reader;
	ci_begin(&writer, frame, sizeof(wire_packed));
	for (size_t i = 0; i < 5; i++)
		assert_true(ci_put(&writer, &packets[i]));
	assert_int_equal(writer.used, sizeof(wire_packed));
	assert_memory_equal(frame, wire_packed, sizeof(wire_packed));
	/* Padding behind the last packet, as on Ethernet. */
	memset(frame + sizeof(wire_packed), 0, 46);
	ci_open(&reader, frame, sizeof(wire_packed) + 46);
	for (size_t i = 0; i < 5; i++) {
		struct ci_packet came;
		assert_int_equal(ci_next(&reader, &came), CI_OK);
		assert_true(came.kind == packets[i].kind && came.flags == packets[i].flags &&
		            came.cluster == packets[i].cluster && came.index == packets[i].index &&
		            came.nonce == packets[i].nonce && came.offset == packets[i].offset &&
		            came.sequence == packets[i].sequence && came.bytes == packets[i].bytes);
		if (came.bytes > 0)
			assert_memory_equal(came.data, packets[i].data, came.bytes);
	}
	struct ci_packet none;
	assert_int_equal(ci_next(&reader, &none), CI_END);
}

/* Any bit that changes is noticed: in the header by its checksum or before, elsewhere by the CRC.
 * */
static void ap4_every_bit_is_protected(void **state)
{
	(void)state;
	for (size_t bit = 0; bit < 8 * sizeof(wire_data); bit++) {
		struct ci_reader reader;
		struct ci_packet came;
		memcpy(frame, wire_data, sizeof(wire_data));
		frame[bit / 8] ^= (uint8_t)(1u << bit % 8);
		ci_open(&reader, frame, sizeof(wire_data));
		enum ci_verdict verdict = ci_next(&reader, &came);
		assert_int_not_equal(verdict, CI_OK);
		if (bit / 8 >= 2 && bit / 8 < 28)
			assert_int_equal(verdict, CI_WRONG_CHECKSUM);
		if (bit / 8 >= 28)
			assert_int_equal(verdict, CI_WRONG_CRC);
	}
}

/* A packet that was damaged behind its header says which one it was, and has no data; with any
 * other verdict nothing is said. */
static void ap3_a_damaged_packet_is_named(void **state)
{
	(void)state;
	for (size_t at = 0; at < sizeof(wire_packed); at++) {
		struct ci_reader reader;
		struct ci_packet came, before;
		uint32_t number = 0xffffffff;
		enum ci_verdict verdict;
		memcpy(frame, wire_packed, sizeof(wire_packed));
		frame[at] ^= 0x10;
		ci_open(&reader, frame, sizeof(wire_packed));
		do {
			memset(&came, 0xee, sizeof(came));
			before = came;
			verdict = ci_next(&reader, &came);
			number += verdict == CI_OK;
		} while (verdict == CI_OK);
		if (verdict != CI_WRONG_CRC) {
			assert_memory_equal(&came, &before, sizeof(came));
			continue;
		}
		assert_true(came.index == INDEX && came.cluster == 0x12 &&
		            (came.flags & CI_SEQUENCED) != 0);
		assert_int_equal(came.sequence, number == 3 ? 9 : number);
		assert_int_equal(came.nonce, number >= 2 && number <= 3 ? NONCE + 1 : NONCE);
		assert_true(came.data == NULL && came.bytes == 0);
	}
}

static void ap4_verdicts(void **state)
{
	(void)state;
	struct ci_packet came;
	struct ci_reader reader;
	for (size_t bytes = 1; bytes < sizeof(wire_data); bytes++) {
		ci_open(&reader, wire_data, bytes);
		assert_int_equal(ci_next(&reader, &came), CI_TOO_SHORT);
	}
	ci_open(&reader, wire_data, 0);
	assert_int_equal(ci_next(&reader, &came), CI_END);
	memcpy(frame, wire_data, sizeof(wire_data));
	frame[0] = CI_KIND_COUNT;
	ci_open(&reader, frame, sizeof(wire_data));
	assert_int_equal(ci_next(&reader, &came), CI_WRONG_KIND);
	static const uint8_t flags[] = {4, 8, 16, CI_SAME, CI_NEXT, CI_SEQUENCED | CI_COUNT};
	for (size_t i = 0; i < sizeof(flags); i++) {
		memcpy(frame, wire_data, sizeof(wire_data));
		frame[1] = flags[i];
		ci_open(&reader, frame, sizeof(wire_data));
		assert_int_equal(ci_next(&reader, &came), CI_WRONG_FLAGS);
	}
	/* A length that the kind does not have: refused by the writer, and by the reader even with
	 * a good checksum. */
	struct ci_writer writer;
	struct ci_packet alive = {.kind = CI_ALIVEACK, .bytes = 8, .data = frame + 100};
	ci_begin(&writer, frame, sizeof(frame));
	assert_false(ci_put(&writer, &alive));
	alive.kind = CI_CLOSE;
	assert_true(ci_put(&writer, &alive));
	frame[0] =
	        CI_ALIVEACK; /* the checksum adds words: the kind is the high half of the first */
	be16_store(frame + 22, (uint16_t)(be16_load(frame + 22) - ((CI_ALIVEACK - CI_CLOSE) << 8)));
	ci_open(&reader, frame, writer.used);
	assert_int_equal(ci_next(&reader, &came), CI_WRONG_LENGTH);
	struct ci_packet big = {
	        .kind = CI_DATA, .bytes = CI_MAX_DATA, .data = frame + CI_MAX_FRAME};
	ci_begin(&writer, frame, CI_MAX_FRAME);
	assert_true(ci_put(&writer, &big));
	big.bytes++;
	ci_begin(&writer, frame, sizeof(frame));
	assert_false(ci_put(&writer, &big));
}

/* APERTURE column 18: consecutive packets become one write, which resumes where it stalled. */
static void ap4_joined_write_resumes(void **state)
{
	(void)state;
	struct ci_burst burst = {0};
	struct ci_packet packet = {.kind = CI_DATA, .index = INDEX, .offset = 1000};
	uint8_t bytes[CI_MAX_PIECES + 1][8], expected[8 * CI_MAX_PIECES], memory[2048] = {0};
	for (uint32_t i = 0; i <= CI_MAX_PIECES; i++) {
		memset(bytes[i], (int)i + 1, sizeof(bytes[i]));
		packet.bytes = sizeof(bytes[i]);
		packet.data = bytes[i];
		if (i < CI_MAX_PIECES) {
			memcpy(expected + 8 * i, bytes[i], 8);
			assert_true(ci_join(&burst, &packet));
		} else {
			assert_false(ci_join(&burst, &packet)); /* the limit */
		}
		packet.offset += packet.bytes;
	}
	struct ci_burst other = burst;
	other.count--;
	other.bytes -= 8;
	packet.offset -= 16;
	packet.index++;
	assert_false(ci_join(&other, &packet)); /* another aperture */
	packet.index--;
	packet.offset++;
	assert_false(ci_join(&other, &packet)); /* a hole */
	packet.offset--;
	assert_true(ci_join(&other, &packet));
	assert_int_equal(burst.offset, 1000);
	assert_int_equal(burst.bytes, sizeof(expected));
	/* The bus stalls after every 5 bytes, or at the end of a piece. */
	while (burst.count > 0) {
		uint32_t n = burst.pieces[0].bytes < 5 ? burst.pieces[0].bytes : 5;
		memcpy(memory + burst.offset, burst.pieces[0].data, n);
		uint32_t next = burst.offset + n;
		ci_written(&burst, n);
		assert_int_equal(burst.offset, next);
	}
	assert_int_equal(burst.bytes, 0);
	assert_memory_equal(memory + 1000, expected, sizeof(expected));
	assert_true(memory[999] == 0 && memory[1000 + sizeof(expected)] == 0);
}

int main(void)
{
	const struct CMUnitTest all[] = {
	        cmocka_unit_test(ap4_data),
	        cmocka_unit_test(ap4_events_and_reads),
	        cmocka_unit_test(ap3_offers),
	        cmocka_unit_test(ap3_offers_that_make_no_sense),
	        cmocka_unit_test(ap3_notes),
	        cmocka_unit_test(ap3_tickets),
	        cmocka_unit_test(ap7_status),
	        cmocka_unit_test(ap4_packed_frame),
	        cmocka_unit_test(ap4_every_bit_is_protected),
	        cmocka_unit_test(ap3_a_damaged_packet_is_named),
	        cmocka_unit_test(ap4_verdicts),
	        cmocka_unit_test(ap4_joined_write_resumes),
	};
	return cmocka_run_group_tests(all, NULL, NULL);
}
