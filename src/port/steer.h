/* One UDP port for many processes: a bundle of sockets on one address and port, of which each gets
 * the packets of one process's queue pairs. The kernel asks a program (classic BPF, no privileges)
 * which socket a packet is for; the program looks at the number of the destination queue pair,
 * whose high bits are the slot of a process. Management, groups and everything that is nobody's go
 * to the first socket, which is the agent's.
 *
 * The kernel knows sockets by the order in which they were bound, and closes up when one is closed.
 * So none is closed while the bundle lives: a process gets a second descriptor, and what it leaves
 * behind is emptied and given to the next one. */
#ifndef PORT_STEER_H
#define PORT_STEER_H

#include <stdint.h>

#include "port/udp.h"

#define STEER_MAX_SOCKETS 1024u /* the agent's, and one a process */
#define STEER_SLOT_SHIFT  14u   /* of a queue pair's number */
#define STEER_NOBODY      UINT32_MAX

struct steer {
	struct udp_address address;
	uint16_t port;
	unsigned count;
	struct {
		int sock;
		uint32_t slot; /* STEER_NOBODY: free */
	} at[STEER_MAX_SOCKETS];
};

/* Open the first socket. 0; -EADDRNOTAVAIL: not an address of this machine; -EADDRINUSE: somebody
 * has the port, be it another user, another agent, or the kernel's own RoCE; other errors. */
int steer_open(struct steer *steer, const struct udp_address *address, uint16_t port);
/* A socket for @slot, empty, which stays the bundle's: pass it on. -errno. */
int steer_take(struct steer *steer, uint32_t slot);
/* @slot is nobody's from now on. */
void steer_give(struct steer *steer, uint32_t slot);
void steer_close(struct steer *steer);

#endif
