/* Records between the members of a virtual switch: what a member may send, and what its reader
 * refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "fabric/board.h"

/* Members: alice holds 40 and 41, bob 42, the ports process has hardware ports 0 and 5. */
enum { ALICE = 3, BOB = 7, PORTS = 9 };

static struct board board;

static int make_board(void **state)
{
	(void)state;
	memset(&board, 0, sizeof(board));
	memset(board.owners, BOARD_NOBODY, sizeof(board.owners));
	vswitch_init(&board.vswitch, 102, false);
	vswitch_set_nic_port(&board.vswitch, 0, 0xa1, 0);
	vswitch_set_nic_port(&board.vswitch, 5, 0xa2, 1);
	board.vswitch.states[0] = board.vswitch.states[5] = VSWITCH_PORT_UP;
	board.ports_member = PORTS;
	board.owners[40] = board.owners[41] = ALICE;
	board.owners[42] = BOB;
	for (unsigned i = 40; i <= 42; i++)
		board.vswitch.states[i] = VSWITCH_PORT_UP;
	return 0;
}

static struct record from_alice(void)
{
	return (struct record){.inport = 40,
	                       .outport = 42,
	                       .packet = {.type = IBC_TYPE_WRITE_REQUEST,
	                                  .source_apid = 40,
	                                  .dest_apid = 42,
	                                  .route = {.pointer = 1},
	                                  .payload = (const uint8_t *)"hello",
	                                  .payload_bytes = 5}};
}

static struct record_writer writer(unsigned member)
{
	return (struct record_writer){.ports = member == PORTS,
	                              .apids = board_apids(&board, member)};
}

static enum record_verdict pass(const struct record *record, unsigned from, unsigned to)
{
	uint8_t bytes[RECORD_MAX_BYTES];
	struct record found, before;
	memset(&found, 0x5a, sizeof(found));
	before = found;
	size_t length = record_write(record, bytes, sizeof(bytes));
	assert_int_not_equal(length, 0);
	struct record_writer by = writer(from);
	enum record_verdict verdict = record_read(&board, to, &by, bytes, length, &found);
	if (verdict != RECORD_OK) {
		assert_memory_equal(&found, &before, sizeof(found));
		return verdict;
	}
	assert_int_equal(found.inport, record->inport);
	assert_int_equal(found.outport, record->outport);
	assert_int_equal(found.by_route, record->by_route);
	assert_int_equal(found.packet.payload_bytes, record->packet.payload_bytes);
	return verdict;
}

static void an_application_speaks_for_itself(void **state)
{
	(void)state;
	struct record record = from_alice();
	assert_int_equal(pass(&record, ALICE, BOB), RECORD_OK);
	assert_int_equal(pass(&record, BOB, BOB), RECORD_WRONG_SOURCE);
	record.packet.source_apid = 41; /* its own too, but not the port through which it came */
	assert_int_equal(pass(&record, ALICE, BOB), RECORD_WRONG_SOURCE);
	record.inport = 41;
	assert_int_equal(pass(&record, ALICE, BOB), RECORD_OK);
	record.inport = record.packet.source_apid = 42;
	assert_int_equal(pass(&record, ALICE, BOB), RECORD_WRONG_SOURCE);
	record.inport = record.packet.source_apid = 63;
	board.owners[63] = ALICE;
	assert_int_equal(pass(&record, ALICE, BOB), RECORD_WRONG_SOURCE);
	record.inport = record.packet.source_apid = 0; /* as if it came from the network */
	assert_int_equal(pass(&record, ALICE, BOB), RECORD_WRONG_SOURCE);
	record.inport = VSWITCH_APID_CONFIG; /* as if the switch itself answered */
	record.packet.source_apid = VSWITCH_APID_CONFIG;
	assert_int_equal(pass(&record, ALICE, BOB), RECORD_WRONG_SOURCE);
}

static void a_reader_gets_what_is_its_own(void **state)
{
	(void)state;
	struct record record = from_alice();
	record.outport = 41;
	assert_int_equal(pass(&record, ALICE, BOB), RECORD_WRONG_TARGET);
	record.outport = 42;
	record.packet.dest_apid = 41; /* only a route may name another port than the packet */
	assert_int_equal(pass(&record, ALICE, BOB), RECORD_WRONG_TARGET);
	record.packet.dest_apid = VSWITCH_APID_ALL;
	assert_int_equal(pass(&record, ALICE, BOB), RECORD_OK);
	record.outport = 5;
	assert_int_equal(pass(&record, ALICE, BOB), RECORD_WRONG_TARGET);
	record.outport = 64;
	assert_int_equal(pass(&record, ALICE, BOB), RECORD_WRONG_TARGET);
	record = from_alice();
	assert_int_equal(pass(&record, ALICE, PORTS), RECORD_WRONG_TARGET);
	record.outport = 7; /* no such port */
	assert_int_equal(pass(&record, ALICE, PORTS), RECORD_WRONG_TARGET);
	record.outport = record.packet.dest_apid = VSWITCH_APID_CONFIG;
	assert_int_equal(pass(&record, ALICE, PORTS), RECORD_OK);
	record.packet.dest_apid = 42;
	assert_int_equal(pass(&record, ALICE, PORTS), RECORD_WRONG_TARGET);
}

static void a_guid_is_that_of_the_nic(void **state)
{
	(void)state;
	struct record record = from_alice();
	record.packet.guid = 0xa1; /* within the node there is no NIC */
	assert_int_equal(pass(&record, ALICE, BOB), RECORD_WRONG_GUID);
	record.outport = 5;
	assert_int_equal(pass(&record, ALICE, PORTS), RECORD_WRONG_GUID);
	record.packet.guid = 0xa2;
	assert_int_equal(pass(&record, ALICE, PORTS), RECORD_OK);
}

static void the_way_back_leads_to_the_writer(void **state)
{
	(void)state;
	struct record record = from_alice();
	/* A route that looks as if the packet had come through hardware port 5. */
	record.packet.route = (struct ibc_route){.pointer = 3, .hops = 2, .ports = {2, 5}};
	assert_int_equal(pass(&record, ALICE, BOB), RECORD_WRONG_ROUTE);
	record.by_route = true;
	assert_int_equal(pass(&record, ALICE, BOB), RECORD_WRONG_ROUTE);
	record.packet.route.ports[1] = 40;
	assert_int_equal(pass(&record, ALICE, BOB), RECORD_OK);
	record.packet.route = (struct ibc_route){.reverse = true, .hops = 2, .ports = {42, 5}};
	assert_int_equal(pass(&record, ALICE, BOB), RECORD_WRONG_ROUTE);
	record.packet.route.ports[0] = 40;
	assert_int_equal(pass(&record, ALICE, BOB), RECORD_OK);

	/* Out of a hardware port that the application named: nothing has been used yet. */
	record = from_alice();
	record.outport = 5;
	record.packet.guid = 0xa2;
	record.packet.route = (struct ibc_route){.pointer = 2, .hops = 2, .ports = {42, 5}};
	assert_int_equal(pass(&record, ALICE, PORTS), RECORD_WRONG_ROUTE);
	record.packet.route.pointer = 1;
	assert_int_equal(pass(&record, ALICE, PORTS), RECORD_OK);
	record.packet.route = (struct ibc_route){.reverse = true, .pointer = 2, .hops = 2};
	assert_int_equal(pass(&record, ALICE, PORTS), RECORD_OK);
	record.packet.route.pointer = 1;
	assert_int_equal(pass(&record, ALICE, PORTS), RECORD_WRONG_ROUTE);
	/* Through the switch: the application's own port is in its place. */
	record.by_route = true;
	record.packet.route = (struct ibc_route){.pointer = 2, .hops = 2, .ports = {40, 5}};
	assert_int_equal(pass(&record, ALICE, PORTS), RECORD_OK);
}

static void the_ports_process_brings_anything_from_its_ports(void **state)
{
	(void)state;
	struct record record = from_alice();
	record.inport = 5;
	record.packet.source_apid = 42; /* of another node */
	record.packet.guid = 0xbeef;
	record.packet.route = (struct ibc_route){.pointer = 3, .hops = 2, .ports = {2, 1}};
	assert_int_equal(pass(&record, PORTS, BOB), RECORD_OK);
	assert_int_not_equal(pass(&record, ALICE, BOB), RECORD_OK);
	record.packet.route.pointer = 2;
	assert_int_equal(pass(&record, PORTS, BOB), RECORD_WRONG_ROUTE);
	record.by_route = true;
	record.packet.route.ports[0] = 5;
	assert_int_equal(pass(&record, PORTS, BOB), RECORD_OK);
	record.inport = 7;
	assert_int_equal(pass(&record, PORTS, BOB), RECORD_WRONG_SOURCE);
	record.inport = 40;
	assert_int_equal(pass(&record, PORTS, BOB), RECORD_WRONG_SOURCE);
	record = from_alice();
	record.inport = record.packet.source_apid = VSWITCH_APID_CONFIG;
	record.packet.route = (struct ibc_route){.reverse = true};
	assert_int_equal(pass(&record, PORTS, BOB), RECORD_OK);
}

static void damaged_records_are_refused(void **state)
{
	(void)state;
	uint8_t bytes[RECORD_MAX_BYTES];
	struct record record = from_alice(), found;
	struct record_writer by = writer(ALICE);
	size_t length = record_write(&record, bytes, sizeof(bytes));
	for (size_t cut = 0; cut < length; cut++)
		assert_int_equal(record_read(&board, BOB, &by, bytes, cut, &found), RECORD_DAMAGED);
	for (size_t bit = 0; bit < 8 * length; bit++) {
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_not_equal(record_read(&board, BOB, &by, bytes, length, &found),
		                     RECORD_OK);
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	assert_int_equal(record_read(&board, BOB, &by, bytes, length, &found), RECORD_OK);
	assert_int_equal(record_write(&record, bytes, RECORD_HEADER_BYTES - 1), 0);
	assert_int_equal(record_write(&record, bytes, length - 1), 0);
}

static void members_are_on_the_board(void **state)
{
	(void)state;
	assert_int_equal(board_members(&board), 1u << ALICE | 1u << BOB | 1u << PORTS);
	board.ports_member = board.owners[42] = BOARD_NOBODY;
	assert_int_equal(board_members(&board), 1u << ALICE);
}

static void guids_are_listed_once(void **state)
{
	(void)state;
	uint64_t guids[VSWITCH_HARDWARE_PORTS];
	vswitch_set_nic_port(&board.vswitch, 6, 0xa2, 0);
	assert_int_equal(board_guids(&board.vswitch, UINT64_MAX, guids), 2);
	assert_int_equal(guids[0], 0xa1);
	assert_int_equal(guids[1], 0xa2);
	for (uint8_t i = 0; i < VSWITCH_HARDWARE_PORTS; i++)
		vswitch_set_nic_port(&board.vswitch, i, 1000u + i, 0);
	assert_int_equal(board_guids(&board.vswitch, UINT64_MAX, guids), VSWITCH_HARDWARE_PORTS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup(an_application_speaks_for_itself, make_board),
	        cmocka_unit_test_setup(a_reader_gets_what_is_its_own, make_board),
	        cmocka_unit_test_setup(a_guid_is_that_of_the_nic, make_board),
	        cmocka_unit_test_setup(the_way_back_leads_to_the_writer, make_board),
	        cmocka_unit_test_setup(the_ports_process_brings_anything_from_its_ports,
	                               make_board),
	        cmocka_unit_test_setup(damaged_records_are_refused, make_board),
	        cmocka_unit_test_setup(members_are_on_the_board, make_board),
	        cmocka_unit_test_setup(guids_are_listed_once, make_board),
	};
	return cmocka_run_group_tests_name("vs3_records_between_members", tests, NULL, NULL);
}
