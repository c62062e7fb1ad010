/* The block of memory between two adapters. */
#include "port/lanes.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memfile.h"

#define GUARD_BYTES \
	128u /* each writes its own all the time: two lines, since lines are fetched in pairs */
#define REACH_OFFSET 8u

static unsigned char *lane(void *block, int from, uint32_t slots)
{
	return (unsigned char *)block + 2 * GUARD_BYTES + (from == 0 ? 0 : ring_bytes(slots));
}

size_t lanes_bytes_of(uint32_t slots)
{
	return 2 * GUARD_BYTES + 2 * ring_bytes(slots);
}

size_t lanes_bytes(void)
{
	return lanes_bytes_of(LANES_SLOTS);
}

void lanes_format_of(void *block, uint32_t slots)
{
	memset(block, 0, 2 * GUARD_BYTES);
	ring_format(lane(block, 0, slots), slots);
	ring_format(lane(block, 1, slots), slots);
}

void lanes_format(void *block)
{
	lanes_format_of(block, LANES_SLOTS);
}

void lanes_attach_of(struct lanes_end *end, void *block, int side, uint32_t slots)
{
	end->own_guard = (unsigned char *)block + (side == 0 ? 0 : GUARD_BYTES);
	end->peer_guard = (unsigned char *)block + (side == 0 ? GUARD_BYTES : 0);
	end->own_reach = (_Atomic uint32_t *)((unsigned char *)end->own_guard + REACH_OFFSET);
	end->peer_reach =
	        (const _Atomic uint32_t *)((unsigned char *)end->peer_guard + REACH_OFFSET);
	ring_tx_attach(&end->tx, lane(block, side, slots), slots);
	ring_rx_attach(&end->rx, lane(block, 1 - side, slots), slots);
}

void lanes_attach(struct lanes_end *end, void *block, int side)
{
	lanes_attach_of(end, block, side, LANES_SLOTS);
}

int lanes_make(uint32_t slots)
{
	size_t bytes = lanes_bytes_of(slots);
	int fd = memfile_make("heddle-lanes", bytes);
	void *block =
	        fd < 0 ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (block != MAP_FAILED) {
		lanes_format_of(block, slots);
		munmap(block, bytes);
		if (memfile_seal(fd))
			return fd;
	}
	int error = errno;
	if (fd >= 0)
		close(fd);
	errno = error;
	return -1;
}
