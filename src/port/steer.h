/* One UDP port for many processes: a group of sockets on one address and port, where each socket
 * gets the packets for the queue pairs of one process. The kernel runs a program (classic BPF, no
 * privileges) to select the socket for a packet. The program looks at the destination queue pair
 * number, whose high bits are the slot of a process: in the BTH, or in the first cell. Management
 * datagrams, multicast groups and packets for unknown processes go to the first socket, which
 * belongs to the agent.
 *
 * The kernel numbers the sockets in the order in which they were bound, and renumbers them when one
 * is closed. So no socket is closed while the group exists: a process gets a duplicate descriptor,
 * and when it ends, its socket is drained and given to the next process.
 *
 * Where the numbers in packets are not slots, but ports that a process takes one by one (SCTP), the
 * group has ranges: a process adds those that it holds to its socket. There are none on an address
 * for Ethernet frames.
 *
 * On an address for Ethernet frames (ether.h) each socket has a filter of its own instead, and a
 * process always gets a new one. */
#ifndef PORT_STEER_H
#define PORT_STEER_H

#include <stdbool.h>
#include <stdint.h>

#include "port/udp.h"

#define STEER_MAX_SOCKETS 1024u /* the agent's, and one per process */
#define STEER_SLOT_SHIFT  14u   /* of a queue pair's number */
#define STEER_NOBODY      UINT32_MAX
#define STEER_MAX_RANGES  768u /* of a group: the program has room for so many */

/* Where the program finds the slot: in the big-endian word at @offset of the payload. */
struct steer_by {
	uint32_t offset, mask, shift;
	uint32_t below; /* frames: the first byte is; others are of another protocol. 0: all are */
	bool ranges;    /* it is not the slot, but a number within a range of steer_add() */
};
/* By the destination queue pair, of InfiniBand packets (also behind a GRH) and of cells; by the
 * destination port of SCTP packets. */
extern const struct steer_by steer_by_bth, steer_by_grh, steer_by_cell, steer_by_sctp;

/* Packets with the numbers @first to @last are for socket @index. */
struct steer_range {
	uint32_t first, last, index;
};

struct steer {
	struct udp_address address;
	struct steer_by by;
	uint16_t port;
	unsigned count;
	struct {
		int sock;
		uint32_t slot; /* STEER_NOBODY: free */
	} at[STEER_MAX_SOCKETS];
	unsigned range_count;
	struct steer_range ranges[STEER_MAX_RANGES]; /* in no order; none overlap */
};

/* Open the first socket. Returns 0; -EADDRNOTAVAIL: not an address of this machine; -EADDRINUSE:
 * another user, another agent or the kernel's RoCE driver has the port; other errors. */
int steer_open(struct steer *steer, const struct udp_address *address, uint16_t port,
               const struct steer_by *by);
/* An empty socket for @slot, to be passed to the process; the group keeps owning it. Or -errno. */
int steer_take(struct steer *steer, uint32_t slot);
/* The socket of @slot; -ENOENT: it has none. */
int steer_of(const struct steer *steer, uint32_t slot);
/* Release @slot, and its ranges. */
void steer_give(struct steer *steer, uint32_t slot);
/* The packets with @first to @last are for @slot, which has a socket. 0, also if they were already;
 * -EADDRINUSE: some are for another; -ENOSPC: too many ranges; other errors. */
int steer_add(struct steer *steer, uint32_t slot, uint32_t first, uint32_t last);
/* They are for nobody; the range must be one that was added. */
void steer_remove(struct steer *steer, uint32_t slot, uint32_t first, uint32_t last);
void steer_close(struct steer *steer);

#endif
