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
 * On an address for Ethernet frames (ether.h) each socket has a filter of its own instead, and a
 * process always gets a new one. */
#ifndef PORT_STEER_H
#define PORT_STEER_H

#include <stdint.h>

#include "port/udp.h"

#define STEER_MAX_SOCKETS 1024u /* the agent's, and one per process */
#define STEER_SLOT_SHIFT  14u   /* of a queue pair's number */
#define STEER_NOBODY      UINT32_MAX

/* Where the program finds the slot: in the big-endian word at @offset of the payload. */
struct steer_by {
	uint32_t offset, mask, shift;
	uint32_t below; /* frames: the first byte is; others are of another protocol. 0: all are */
};
/* By the destination queue pair, of InfiniBand packets (also behind a GRH) and of cells. */
extern const struct steer_by steer_by_bth, steer_by_grh, steer_by_cell;

struct steer {
	struct udp_address address;
	struct steer_by by;
	uint16_t port;
	unsigned count;
	struct {
		int sock;
		uint32_t slot; /* STEER_NOBODY: free */
	} at[STEER_MAX_SOCKETS];
};

/* Open the first socket. Returns 0; -EADDRNOTAVAIL: not an address of this machine; -EADDRINUSE:
 * another user, another agent or the kernel's RoCE driver has the port; other errors. */
int steer_open(struct steer *steer, const struct udp_address *address, uint16_t port,
               const struct steer_by *by);
/* An empty socket for @slot, to be passed to the process; the group keeps owning it. Or -errno. */
int steer_take(struct steer *steer, uint32_t slot);
/* Release @slot. */
void steer_give(struct steer *steer, uint32_t slot);
void steer_close(struct steer *steer);

#endif
