/* The network as the engine sees it. Packets go along paths; a carrier, such as a UDP socket, the
 * simulator or a test, transmits them. An adapter has one carrier per port, and a path says which
 * port it leaves by. A packet here is what every network transports alike: BTH, extended headers,
 * payload, padding. What is around it, headers in front and checksums behind, depends on the kind
 * of the path and is the carrier's business alone:
 *
 *   kind         in front            behind            carriers
 *   PATH_ROCE    IP, UDP             ICRC              adapter/net/udp.c, the simulator
 *   PATH_LID     LRH, perhaps GRH    ICRC, VCRC        none yet
 *   PATH_ROUTE   a source route      CRC-32C           none yet
 *   PATH_CELL    IP, UDP; Ethernet   nothing: own CRC  adapter/net/cell_port.c, the simulator
 *   PATH_LANE    a frame              nothing           adapter/reach/packets.c
 *   PATH_STREAM  none: packets have no place on a byte stream (stream.h), but addresses do */
#ifndef TRANSPORT_PATH_H
#define TRANSPORT_PATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "wire/roce.h"

enum path_kind {
	PATH_ROCE,   /* between GIDs that are IP addresses */
	PATH_LID,    /* between LIDs of an InfiniBand subnet, on a service level */
	PATH_ROUTE,  /* along a list of output ports */
	PATH_CELL,   /* cells: between MAC addresses, which packets of another network carry */
	PATH_LANE,   /* packets in the frames of a lane, to another process of this machine */
	PATH_STREAM, /* through one connection */
};

/* A path to another port, or the path of a received packet: its source is then the sender. */
struct path {
	uint8_t kind; /* enum path_kind: which member of the union counts */
	uint8_t port; /* which of our ports: the index into engine.carriers */
	uint8_t sl;
	uint16_t slid; /* of a received packet: its sender's LID; 0: none, or unknown */
	union {
		struct roce_path ip; /* PATH_ROCE; where cells travel in datagrams, PATH_CELL too */
		struct {
			struct roce_path ip;
			uint8_t to[6], from[6]; /* to: all ones where it is not known */
			bool framed;            /* received: they are those of an Ethernet frame */
		} cell;                         /* PATH_CELL */
		struct {
			struct roce_path ip; /* for captures */
			uint32_t link, epoch;
		} lane; /* PATH_LANE */
	};
};

/* Did @came, the path of a received packet, lead from the far end of @path to its near end? */
static inline bool path_matches(const struct path *path, const struct path *came)
{
	if (came->kind != path->kind)
		return false;
	switch (path->kind) {
	case PATH_ROCE:
	case PATH_CELL:
		return memcmp(came->ip.sgid, path->ip.dgid, IB_GID_BYTES) == 0 &&
		       memcmp(came->ip.dgid, path->ip.sgid, IB_GID_BYTES) == 0;
	case PATH_LANE:
		return came->lane.link == path->lane.link && came->lane.epoch == path->lane.epoch;
	default:
		return false; /* no connection has such a path */
	}
}

/* Turn @path around: the way back to the sender. */
static inline void path_turn(struct path *path)
{
	uint8_t gid[IB_GID_BYTES];
	memcpy(gid, path->ip.sgid, sizeof(gid));
	memcpy(path->ip.sgid, path->ip.dgid, sizeof(gid));
	memcpy(path->ip.dgid, gid, sizeof(gid));
}

struct carrier {
	/* Room for a packet of at most @bytes, to be filled and committed before the next one;
	 * NULL: none at the moment, try again in the next turn. The function is NULL if this is a
	 * network without packets, which only flushes. */
	uint8_t *(*reserve)(void *context, const struct path *path, size_t bytes);
	/* What was reserved last is now a packet of @bytes that goes along @path. The carrier seals
	 * it. */
	void (*commit)(void *context, const struct path *path, size_t bytes);
	/* As commit(), but only the headers, @header_bytes, have been filled. The payload is at
	 * @from, and @copy copies it and adds it to a CRC-32 at the same time (copy.h). False: the
	 * copy failed, and there is no packet. NULL: only commit() is supported. */
	bool (*commit_from)(void *context, const struct path *path, size_t header_bytes,
	                    const void *from, size_t payload_bytes,
	                    bool (*copy)(void *to, const void *from, size_t bytes, uint32_t *crc));
	/* Would one more packet like the last one be almost free, because it travels together with
	 * others that wait? NULL: never. */
	bool (*filling)(void *context);
	/* Nothing follows in this turn: send everything that waits. */
	void (*flush)(void *context);
	void *context;
	/* Cells travel in Ethernet frames: their MAC addresses are those that the GIDs of a path
	 * are made from (base/mac.h). */
	bool frames;
	/* Send the IPv6 datagram @frame (raw.h). False: not possible at the moment. NULL: this
	 * network carries none. */
	bool (*send_raw)(void *context, const uint8_t *frame, size_t bytes);
};

#endif
