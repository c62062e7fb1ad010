/* Cells; see cell.h. */
#include "wire/cell.h"

#include <assert.h>
#include <string.h>

#include "base/crc.h"
#include "base/mac.h"
#include "wire/be.h"

#define KNOWN_FLAGS (CELL_FIRST | CELL_LAST | CELL_IMMEDIATE | CELL_ACKNOWLEDGED | CELL_SOLICITED)
#define END_FLAGS   (CELL_IMMEDIATE | CELL_SOLICITED) /* of the last cell of a send or write */
#define CRC_BYTES   4u
#define ANSWER_DATA 4u /* of an answer: its syndrome */

void cell_mac(const uint8_t gid[16], uint8_t mac[CELL_MAC_BYTES])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	if (memcmp(gid, mapped, sizeof(mapped)) == 0) {
		mac[0] = 0x02;
		mac[1] = 0x48;
		memcpy(mac + 2, gid + 12, 4);
		return;
	}
	if (mac_from_gid(gid, mac))
		return;
	uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a */
	for (unsigned i = 0; i < 16; i++)
		hash = (hash ^ gid[i]) * 0x100000001b3ull;
	uint8_t bytes[8];
	be64_store(bytes, hash ^ hash >> 40);
	mac[0] = 0x06;
	memcpy(mac + 1, bytes + 3, 5);
}

static bool cell_has_address(uint8_t operation, uint8_t flags)
{
	return (flags & CELL_FIRST) && (operation == CELL_WRITE || operation == CELL_READ_REQUEST);
}

/* The bytes of a cell between MAC header and data, and behind the data. */
static size_t cell_before_data(uint8_t operation, uint8_t flags)
{
	if (!cell_has_address(operation, flags))
		return 0;
	return CELL_ADDRESS_BYTES + (operation == CELL_READ_REQUEST ? 4u : 0u);
}

static size_t cell_behind_data(uint8_t flags)
{
	return (flags & CELL_IMMEDIATE ? 4u : 0u) + (flags & CELL_LAST ? CRC_BYTES : 0u) +
	       CRC_BYTES;
}

static enum cell_verdict cell_judge_flags(uint8_t operation, uint8_t flags)
{
	if (flags & ~KNOWN_FLAGS)
		return CELL_WRONG_FLAGS;
	if ((flags & END_FLAGS) && !(flags & CELL_LAST))
		return CELL_WRONG_FLAGS;
	if ((flags & END_FLAGS) && operation != CELL_SEND && operation != CELL_WRITE)
		return CELL_WRONG_FLAGS;
	bool single = operation == CELL_READ_REQUEST || operation == CELL_ANSWER;
	if (single && (flags & (CELL_FIRST | CELL_LAST)) != (CELL_FIRST | CELL_LAST))
		return CELL_WRONG_FLAGS;
	return CELL_OK;
}

/* The lengths that an operation allows: only the last cell of a packet has less than 256 bytes. */
static enum cell_verdict cell_judge_data(uint8_t operation, uint8_t flags, uint16_t bytes)
{
	if (operation == CELL_READ_REQUEST)
		return bytes == 0 ? CELL_OK : CELL_WRONG_FIELD;
	if (operation == CELL_ANSWER)
		return bytes == ANSWER_DATA ? CELL_OK : CELL_WRONG_FIELD;
	if (bytes > CELL_DATA_BYTES)
		return CELL_WRONG_FIELD;
	if (!(flags & CELL_LAST))
		return bytes == CELL_DATA_BYTES ? CELL_OK : CELL_WRONG_FIELD;
	return bytes > 0 || (flags & CELL_FIRST) ? CELL_OK : CELL_WRONG_FIELD;
}

size_t cell_bytes(const uint8_t *in, size_t bytes)
{
	if (bytes < CELL_HEADER_BYTES + CRC_BYTES)
		return 0;
	uint8_t operation = in[12] & 0x0f, flags = in[13];
	uint16_t data = be16_load(in + 14);
	if (in[12] >> 4 != CELL_VERSION || operation < CELL_SEND ||
	    operation >= CELL_OPERATION_COUNT || data > CELL_DATA_BYTES)
		return 0;
	size_t count = CELL_HEADER_BYTES + cell_before_data(operation, flags) + data +
	               cell_behind_data(flags);
	return count <= bytes ? count : 0;
}

enum cell_verdict cell_decode(struct cell *cell, const uint8_t *in, size_t bytes)
{
	if (bytes < CELL_HEADER_BYTES + CRC_BYTES)
		return CELL_TOO_SHORT;
	if (be32_load(in + bytes - CRC_BYTES) != crc32c(0, in, bytes - CRC_BYTES))
		return CELL_WRONG_CRC;
	if (in[12] >> 4 != CELL_VERSION)
		return CELL_WRONG_VERSION;
	struct cell out = {.operation = in[12] & 0x0f,
	                   .flags = in[13],
	                   .data_bytes = be16_load(in + 14),
	                   .dest_qp = be32_load(in + 16),
	                   .source_qp = be32_load(in + 20),
	                   .psn = be32_load(in + 24),
	                   .number = be32_load(in + 28)};
	if (out.operation < CELL_SEND || out.operation >= CELL_OPERATION_COUNT)
		return CELL_WRONG_OPERATION;
	enum cell_verdict verdict = cell_judge_flags(out.operation, out.flags);
	if (verdict != CELL_OK)
		return verdict;
	if ((out.dest_qp | out.source_qp | out.psn) >> 24)
		return CELL_WRONG_FIELD;
	if (((out.flags & CELL_FIRST) != 0) != (out.number == 0) ||
	    out.number >= CELL_MAX_PACKET / CELL_DATA_BYTES)
		return CELL_WRONG_NUMBER;
	verdict = cell_judge_data(out.operation, out.flags, out.data_bytes);
	if (verdict != CELL_OK)
		return verdict;
	size_t before = cell_before_data(out.operation, out.flags);
	if (CELL_HEADER_BYTES + before + out.data_bytes + cell_behind_data(out.flags) != bytes)
		return CELL_WRONG_LENGTH;
	memcpy(out.to, in, CELL_MAC_BYTES);
	memcpy(out.from, in + 6, CELL_MAC_BYTES);
	const uint8_t *at = in + CELL_HEADER_BYTES;
	if (before > 0) {
		out.address = be64_load(at);
		out.handle = be32_load(at + 8);
	}
	if (out.operation == CELL_READ_REQUEST)
		out.read_bytes = be32_load(at + 12);
	if (out.read_bytes > CELL_MAX_PACKET)
		return CELL_WRONG_FIELD;
	out.data = at + before;
	at = out.data + out.data_bytes;
	if (out.flags & CELL_IMMEDIATE) {
		out.immediate = be32_load(at);
		at += 4;
	}
	if (out.flags & CELL_LAST)
		out.packet_crc = be32_load(at);
	*cell = out;
	return CELL_OK;
}

/* Write @cell to @out, which has room for it. *crc: the CRC of the packet so far. */
static size_t cell_write(const struct cell *cell, uint32_t *crc, uint8_t *out)
{
	memcpy(out, cell->to, CELL_MAC_BYTES);
	memcpy(out + 6, cell->from, CELL_MAC_BYTES);
	out[12] = (uint8_t)(CELL_VERSION << 4 | cell->operation);
	out[13] = cell->flags;
	be16_store(out + 14, cell->data_bytes);
	be32_store(out + 16, cell->dest_qp);
	be32_store(out + 20, cell->source_qp);
	be32_store(out + 24, cell->psn);
	be32_store(out + 28, cell->number);
	uint8_t *at = out + CELL_HEADER_BYTES;
	if (cell_has_address(cell->operation, cell->flags)) {
		be64_store(at, cell->address);
		be32_store(at + 8, cell->handle);
		at += CELL_ADDRESS_BYTES;
	}
	if (cell->operation == CELL_READ_REQUEST) {
		be32_store(at, cell->read_bytes);
		at += 4;
	}
	if (cell->data_bytes > 0)
		memcpy(at, cell->data, cell->data_bytes);
	at += cell->data_bytes;
	if (cell->flags & CELL_IMMEDIATE) {
		be32_store(at, cell->immediate);
		at += 4;
	}
	*crc = crc32c(*crc, out + CELL_HEADER_BYTES, (size_t)(at - out) - CELL_HEADER_BYTES);
	if (cell->flags & CELL_LAST) {
		be32_store(at, *crc);
		at += CRC_BYTES;
	}
	be32_store(at, crc32c(0, out, (size_t)(at - out)));
	return (size_t)(at - out) + CRC_BYTES;
}

void cell_cut(struct cell_cutter *cutter, const struct cell *packet, uint32_t data_bytes)
{
	assert(packet->operation >= CELL_SEND && packet->operation < CELL_OPERATION_COUNT);
	assert(((packet->dest_qp | packet->source_qp | packet->psn) >> 24) == 0);
	assert(data_bytes <= CELL_MAX_PACKET && packet->read_bytes <= CELL_MAX_PACKET);
	assert(cell_judge_flags(packet->operation,
	                        (uint8_t)(packet->flags | CELL_FIRST | CELL_LAST)) == CELL_OK);
	assert(packet->operation != CELL_READ_REQUEST || data_bytes == 0);
	assert(packet->operation != CELL_ANSWER || data_bytes == ANSWER_DATA);
	*cutter = (struct cell_cutter){.packet = *packet, .data_bytes = data_bytes};
}

uint32_t cell_cut_data(const struct cell_cutter *cutter, uint64_t *offset)
{
	uint64_t at = (uint64_t)cutter->next * CELL_DATA_BYTES;
	*offset = at;
	if (at >= cutter->data_bytes)
		return 0;
	uint64_t left = cutter->data_bytes - at;
	return left < CELL_DATA_BYTES ? (uint32_t)left : CELL_DATA_BYTES;
}

size_t cell_cut_next(struct cell_cutter *cutter, const uint8_t *data, uint8_t *out)
{
	uint32_t count = cell_count(cutter->data_bytes);
	if (cutter->next == count)
		return 0;
	uint64_t offset;
	struct cell cell = cutter->packet;
	bool last = cutter->next == count - 1;
	cell.number = cutter->next;
	cell.data = data;
	cell.data_bytes = (uint16_t)cell_cut_data(cutter, &offset);
	cell.flags = (uint8_t)((cutter->packet.flags &
	                        (last ? END_FLAGS | CELL_ACKNOWLEDGED : CELL_ACKNOWLEDGED)) |
	                       (cell.number == 0 ? CELL_FIRST : 0) | (last ? CELL_LAST : 0));
	cutter->next++;
	return cell_write(&cell, &cutter->crc, out);
}

/* Do both cells belong to one packet? */
static bool cell_same_packet(const struct cell *a, const struct cell *b)
{
	return a->operation == b->operation && a->psn == b->psn && a->dest_qp == b->dest_qp &&
	       a->source_qp == b->source_qp && memcmp(a->to, b->to, CELL_MAC_BYTES) == 0 &&
	       memcmp(a->from, b->from, CELL_MAC_BYTES) == 0 &&
	       (a->flags & CELL_ACKNOWLEDGED) == (b->flags & CELL_ACKNOWLEDGED);
}

/* The CRC of the packet after @cell. */
static uint32_t cell_packet_crc(uint32_t crc, const struct cell *cell)
{
	size_t before = cell_before_data(cell->operation, cell->flags);
	size_t behind = cell->flags & CELL_IMMEDIATE ? 4 : 0;
	return crc32c(crc, cell->data - before, before + cell->data_bytes + behind);
}

enum cell_step cell_assemble(struct cell_assembly *assembly, const struct cell *cell,
                             uint64_t *offset)
{
	bool cut = false;
	if (cell->flags & CELL_FIRST) {
		cut = assembly->open;
		*assembly = (struct cell_assembly){.open = true, .first = *cell};
		assembly->first.data = NULL;
	} else if (!assembly->open) {
		return CELL_ALONE;
	} else if (!cell_same_packet(&assembly->first, cell)) {
		assembly->open = false;
		return CELL_OTHER;
	} else if (cell->number != assembly->next) {
		assembly->open = false;
		return CELL_GAP;
	}
	*offset = assembly->bytes;
	assembly->next = cell->number + 1;
	assembly->bytes += cell->data_bytes;
	assembly->crc = cell_packet_crc(assembly->crc, cell);
	if (!(cell->flags & CELL_LAST))
		return cut ? CELL_CUT : CELL_PLACE;
	assembly->open = false;
	if (assembly->crc != cell->packet_crc)
		return CELL_DAMAGED;
	return cut ? CELL_CUT_WHOLE : CELL_WHOLE;
}
