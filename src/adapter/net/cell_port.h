/* The port that carries cells: several cells in a UDP datagram, on a UDP port of their own, or in
 * an Ethernet frame (port/ether.h). The node agent keeps one group of sockets there per address, as
 * for RoCEv2 (port/steer.h), and hands one to each process that speaks cells.
 *
 *   out   reserve, commit: cells to one process of one address join the datagram that is being
 *         filled; a flush sends all datagrams
 *   in    each datagram is taken apart, cell by cell */
#ifndef ADAPTER_CELL_PORT_H
#define ADAPTER_CELL_PORT_H

#include <stdbool.h>
#include <stdint.h>

#include "adapter/net/port.h"
#include "port/owner.h"
#include "port/udp.h"
#include "transport/path.h"
#include "wire/cell.h"

#define CELL_PORT_DATAGRAMS UDP_MAX_TRAINS /* that wait for the end of a turn */
#define CELL_PORT_BYTES     4096u          /* of one of them, at most */

struct cell_port {
	struct net_port port; /* must be first: cell_port_of() */
	struct carrier carrier;
	struct udp_address address;
	uint32_t slot_shift; /* of queue pair numbers */
	uint32_t room;       /* bytes of a datagram */

	/* In. */
	int sock; /* -1: none */
	struct udp_receiver receiver;
	struct owner owner; /* which user sent cells from this machine */

	/* Out. Datagrams [first, count) wait; the last of them is being filled. */
	int sender; /* frames: the socket that receives; -1: none */
	unsigned first, count;
	struct cell_datagram {
		struct udp_address to;
		uint32_t slot; /* of the process there */
		uint8_t tos;
		uint32_t bytes;
		uint8_t data[CELL_PORT_BYTES];
	} datagrams[CELL_PORT_DATAGRAMS];
	uint8_t cell[CELL_MAX_BYTES]; /* what was reserved */
	uint64_t sent, received;      /* datagrams */
	uint64_t blocked;             /* how often the kernel had no room */
	bool told;                    /* that the interface has gone */
};

extern const struct net_port_ops cell_port_ops;
static inline struct cell_port *cell_port_of(struct net_port *port)
{
	return (struct cell_port *)(void *)port;
}

/* Prepare to send from @address and to receive on @sock, which is taken over (-1: none). Returns 0
 * or -errno. */
int cell_port_begin(struct cell_port *port, const struct udp_address *address, int sock,
                    uint32_t mtu);
void cell_port_stop(struct cell_port *port);
/* Receive on another socket: there is a new agent. */
void cell_port_replace(struct cell_port *port, int sock);

#endif
