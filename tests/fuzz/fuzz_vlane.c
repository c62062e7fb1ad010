/* Any bytes as a record in a lane between members of a virtual switch, and as a frame on a link. A
 * record that is accepted is one that its writer could have been given by the forwarding process,
 * and is written as the same bytes again. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/crc.h"
#include "fabric/board.h"
#include "fabric/link.h"
#include "wire/be.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { READER = 2, WRITER = 5, PORTS = 9 };

/* With checks that are right, so that the rest is reached. */
static void mend_packet(uint8_t *bytes, size_t size)
{
	if (size < 40 || bytes[2] > IBC_MAX_HOPS)
		return;
	size_t route = (bytes[2] + 4u) & ~3u, payload = be16_load(bytes + 6);
	size_t padded = (payload + 3u) & ~(size_t)3;
	if (size < 32 + route + 4 || size != 32 + route + padded + 4)
		return;
	uint32_t check = crc32c(crc32c(0, bytes, 28), bytes + 32, route);
	be32_store(bytes + 28, check);
	uint32_t crc = crc32c(crc32c(0, bytes, 1), bytes + 2, 26);
	be32_store(bytes + size - 4, crc32c(crc, bytes + 32 + route, payload));
}

static void read_as(const struct board *board, unsigned self, const struct record_writer *writer,
                    const uint8_t *bytes, size_t size)
{
	struct record record;
	uint8_t again[RECORD_MAX_BYTES];
	if (record_read(board, self, writer, bytes, size, &record) != RECORD_OK)
		return;
	assert(record_write(&record, again, sizeof(again)) == size);
	assert(memcmp(again, bytes, size) == 0);
	if (writer->ports)
		return;
	assert((writer->apids >> record.inport & 1) != 0);
	assert(record.packet.source_apid == record.inport);
	int last = route_last_used(&record.packet.route);
	assert(last < 0 || last == record.inport);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t bytes[RECORD_MAX_BYTES];
	struct board board;
	struct link link;
	memset(&board, 0, sizeof(board));
	memset(board.owners, BOARD_NOBODY, sizeof(board.owners));
	vswitch_init(&board.vswitch, 7, false);
	vswitch_set_nic_port(&board.vswitch, 0, 1, 0);
	vswitch_set_nic_port(&board.vswitch, 5, 2, 1);
	board.vswitch.states[0] = VSWITCH_PORT_UP;
	board.ports_member = PORTS;
	board.owners[40] = READER;
	board.owners[41] = board.owners[42] = WRITER;
	struct record_writer writer = {.apids = board_apids(&board, WRITER)},
	                     ports = {.ports = true};
	link_begin(&link);
	size_t length = link_take(&link, data, size, 1);
	assert(length == 0 || (length <= IBC_MAX_BYTES && length + LINK_HEADER_BYTES <= size));
	if (size > sizeof(bytes))
		return 0;
	memcpy(bytes, data, size);
	for (unsigned mended = 0; mended < 2; mended++) {
		read_as(&board, READER, &writer, bytes, size);
		read_as(&board, PORTS, &writer, bytes, size);
		read_as(&board, READER, &ports, bytes, size);
		if (size > RECORD_HEADER_BYTES)
			mend_packet(bytes + RECORD_HEADER_BYTES, size - RECORD_HEADER_BYTES);
	}
	return 0;
}
