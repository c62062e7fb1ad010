/* What the processes of one node share about its virtual switch, and the records that they pass
 * each other. The agent gives each process that takes part (a member) a number, and lanes to every
 * other member. Members are applications, which hold APIDs, and at most one process that runs the
 * hardware ports.
 *
 * The board is one block of memory that only the agent can write and every member reads: the switch
 * with the state of all its ports, and which member holds which APID. A member that sends calls
 * vswitch_forward() on it and writes the packet into the lane of the member that the result names:
 *
 *   0  inport:  the port through which the packet came into the switch
 *   1  outport: the port through which it leaves, or VSWITCH_APID_CONFIG for the switch itself
 *   2  flags:   enum record_flag
 *   3  0
 *   4  the packet (wire/ibc.h)
 *
 * Any member may write anything into its lanes. So the reader believes nothing: it copies the
 * record and checks that the forwarding process could have produced it from a packet that the
 * writer was entitled to send. */
#ifndef FABRIC_BOARD_H
#define FABRIC_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fabric/vswitch.h"
#include "wire/ibc.h"

#define BOARD_MEMBERS 64u
#define BOARD_NOBODY  0xffu

/* Slots per lane between two members: some packets of full length, hundreds of short ones. */
#define BOARD_LANE_SLOTS 512u

struct board {
	uint64_t id;                   /* a random number, different for each board */
	_Atomic uint32_t generation;   /* grows when anything has changed */
	uint8_t ports_member;          /* who runs the hardware ports, or BOARD_NOBODY */
	uint8_t owners[VSWITCH_PORTS]; /* who holds each APID, or BOARD_NOBODY */
	struct vswitch vswitch;
};

#define RECORD_HEADER_BYTES 4u
#define RECORD_MAX_BYTES    (RECORD_HEADER_BYTES + IBC_MAX_BYTES)

enum record_flag {
	RECORD_BY_ROUTE = 1 /* the switch used a port of the route; otherwise the route is at its
	                       end, or the application named a hardware port */
};

struct record {
	uint8_t inport, outport;
	bool by_route;
	struct ibc_packet packet; /* its payload points into the bytes of the record */
};

/* Whose lane it is. What it held last counts, because it may have left since it wrote. */
struct record_writer {
	bool ports;     /* it runs the hardware ports */
	uint64_t apids; /* by bits */
};

enum record_verdict {
	RECORD_OK,
	RECORD_DAMAGED,      /* not a record with a packet, or its CRC is wrong */
	RECORD_WRONG_SOURCE, /* the writer does not hold the port or APID that it claims to be */
	RECORD_WRONG_TARGET, /* the reader does not hold the port, or it is not the packet's */
	RECORD_WRONG_GUID,
	RECORD_WRONG_ROUTE, /* the way back would not lead to the writer */
	RECORD_VERDICT_COUNT
};

/* Write @record to @out, which has room for RECORD_HEADER_BYTES and ibc_bytes(). Returns the
 * length; 0: a field of the packet is out of range. */
size_t record_write(const struct record *record, uint8_t *out, size_t capacity);
/* The member @self got the @bytes at @in, its private copy, from @writer. *record only changes on
 * RECORD_OK. */
enum record_verdict record_read(const struct board *board, unsigned self,
                                const struct record_writer *writer, const uint8_t *in, size_t bytes,
                                struct record *record);
/* The APIDs that @member holds, by bits. */
uint64_t board_apids(const struct board *board, unsigned member);
/* The members that hold APIDs or run the hardware ports, by bits. */
uint64_t board_members(const struct board *board);
/* The port that was used last in @route, or -1: none has been used yet. */
int route_last_used(const struct ibc_route *route);

/* The GUIDs of the NICs of @vswitch to which any of @apids (by bits) has access, each once. Returns
 * their number. */
unsigned board_guids(const struct vswitch *vswitch, uint64_t apids,
                     uint64_t guids[VSWITCH_HARDWARE_PORTS]);

#endif
