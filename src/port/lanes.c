/* The block of memory between two adapters. */
#include "port/lanes.h"

#include <string.h>

#define GUARD_BYTES \
	128u /* each writes its own all the time: two lines, since lines are fetched in pairs */
#define REACH_OFFSET 8u

static unsigned char *lane(void *block, int from)
{
	return (unsigned char *)block + 2 * GUARD_BYTES + (from == 0 ? 0 : ring_bytes(LANES_SLOTS));
}

size_t lanes_bytes(void)
{
	return 2 * GUARD_BYTES + 2 * ring_bytes(LANES_SLOTS);
}

void lanes_format(void *block)
{
	memset(block, 0, 2 * GUARD_BYTES);
	ring_format(lane(block, 0), LANES_SLOTS);
	ring_format(lane(block, 1), LANES_SLOTS);
}

void lanes_attach(struct lanes_end *end, void *block, int side)
{
	end->own_guard = (unsigned char *)block + (side == 0 ? 0 : GUARD_BYTES);
	end->peer_guard = (unsigned char *)block + (side == 0 ? GUARD_BYTES : 0);
	end->own_reach = (_Atomic uint32_t *)((unsigned char *)end->own_guard + REACH_OFFSET);
	end->peer_reach =
	        (const _Atomic uint32_t *)((unsigned char *)end->peer_guard + REACH_OFFSET);
	ring_tx_attach(&end->tx, lane(block, side), LANES_SLOTS);
	ring_rx_attach(&end->rx, lane(block, 1 - side), LANES_SLOTS);
}
