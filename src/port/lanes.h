/* The block of memory between two adapters of one machine: a lane in each direction, and for each
 * side a cache line that it alone writes and the other reads (the guard of the protection table).
 * Offsets only: both map it where they like.
 *
 *   0                    guard of side 0 (8 bytes), and whether it reaches the memory of the other
 *                        (4 bytes)
 *   64                   guard of side 1, and so on
 *   128                  lane from side 0 to side 1
 *   128 + lane           lane from side 1 to side 0 */
#ifndef PORT_LANES_H
#define PORT_LANES_H

#include <stddef.h>
#include <stdint.h>

#include "base/ring.h"

#define LANES_SLOTS 2048u /* of 64 bytes, a lane */

/* Can a side read and write the memory of the other by itself? */
enum lanes_reach {
	LANES_REACH_UNKNOWN,
	LANES_REACH_YES,
	LANES_REACH_NO,
	LANES_REACH_TRIES /* it does not know yet, but has let the other reach its own */
};

/* One side's end of a block. */
struct lanes_end {
	void *own_guard;
	void *peer_guard;
	_Atomic uint32_t *own_reach; /* enum lanes_reach */
	const _Atomic uint32_t *peer_reach;
	struct ring_tx tx;
	struct ring_rx rx;
};

size_t lanes_bytes(void);
/* Make an empty block; once, before a side attaches. */
void lanes_format(void *block);
void lanes_attach(struct lanes_end *end, void *block, int side);

#endif
