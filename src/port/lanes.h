/* The block of memory between two adapters on one machine: one lane in each direction, and for each
 * side one cache line that only this side writes and the other side reads (the guard of the
 * protection table). The block holds offsets only, so each side can map it at any address.
 *
 *   0                    guard of side 0 (8 bytes), and whether it can access the memory of the
 *                        other (4 bytes)
 *   64                   guard of side 1, and so on
 *   128                  lane from side 0 to side 1
 *   128 + lane           lane from side 1 to side 0 */
#ifndef PORT_LANES_H
#define PORT_LANES_H

#include <stddef.h>
#include <stdint.h>

#include "base/ring.h"

#define LANES_SLOTS 2048u /* slots of 64 bytes per lane */

/* Can one side read and write the memory of the other directly? */
enum lanes_reach {
	LANES_REACH_UNKNOWN,
	LANES_REACH_YES,
	LANES_REACH_NO,
	LANES_REACH_TRIES /* not known yet, but it has allowed the other side to access its own
	                     memory */
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
/* Initialize an empty block; once, before a side attaches. */
void lanes_format(void *block);
void lanes_attach(struct lanes_end *end, void *block, int side);

/* The same for lanes of @slots slots instead of LANES_SLOTS. */
size_t lanes_bytes_of(uint32_t slots);
void lanes_format_of(void *block, uint32_t slots);
void lanes_attach_of(struct lanes_end *end, void *block, int side, uint32_t slots);
/* A sealed memory file with an empty block, or -1; errno tells why. */
int lanes_make(uint32_t slots);

#endif
