/* Any bytes as a series of cells: what is accepted is cut to the same bytes again, and reassembly
 * never places data outside the packet that it reports. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/crc.h"
#include "wire/be.h"
#include "wire/cell.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A cell that is a packet of its own is what the cutter makes of it. */
static void cut_again(const struct cell *cell, const uint8_t *bytes, size_t size)
{
	uint8_t again[CELL_MAX_BYTES];
	struct cell_cutter cutter;
	struct cell packet = *cell;
	if ((cell->flags & (CELL_FIRST | CELL_LAST)) != (CELL_FIRST | CELL_LAST))
		return;
	packet.flags &= (uint8_t) ~(CELL_FIRST | CELL_LAST);
	cell_cut(&cutter, &packet, cell->data_bytes);
	assert(cell_cut_next(&cutter, cell->data, again) == size);
	size_t same = size - 8; /* the CRC of the packet may be wrong, and with it the other */
	assert(memcmp(again, bytes, same) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cell_assembly assembly = {0};
	uint8_t bytes[CELL_MAX_BYTES];
	for (unsigned cells = 0; size > 2 && cells < 64; cells++) {
		size_t length = be16_load(data) % (sizeof(bytes) + 1);
		if (length > size - 2)
			length = size - 2;
		memcpy(bytes, data + 2, length);
		if (length >= 4 && (data[0] & 0x80)) /* a CRC that is right */
			be32_store(bytes + length - 4, crc32c(0, bytes, length - 4));
		data += 2 + length;
		size -= 2 + length;
		struct cell cell;
		if (cell_decode(&cell, bytes, length) != CELL_OK)
			continue;
		cut_again(&cell, bytes, length);
		uint64_t offset = UINT64_MAX;
		enum cell_step step = cell_assemble(&assembly, &cell, &offset);
		assert(step < CELL_STEP_COUNT);
		if (step == CELL_PLACE || step == CELL_WHOLE || step == CELL_CUT ||
		    step == CELL_CUT_WHOLE) {
			assert(offset == (uint64_t)cell.number * CELL_DATA_BYTES);
			assert(offset + cell.data_bytes == assembly.bytes);
			assert(assembly.bytes <= CELL_MAX_PACKET);
		}
	}
	return 0;
}
