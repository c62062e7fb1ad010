/* The network as the engine sees it: packets go along paths, and a carrier, such as a UDP socket,
 * the simulator or a test, transmits them. A packet here is what is between UDP header and ICRC:
 * BTH, extended headers, payload, padding. */
#ifndef TRANSPORT_PATH_H
#define TRANSPORT_PATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/roce.h"

/* A path to another port, or the path of a received packet: sgid is then its sender's. */
struct path {
	struct roce_path ip;
	uint8_t port; /* which of our ports, counted from 1 */
	uint8_t sl;
	uint16_t slid; /* of a received packet: its sender's LID; 0: none, or unknown */
};

struct carrier {
	/* Room for a packet of at most @bytes, to be filled and committed before the next one;
	 * NULL: none at the moment, try again in the next turn. */
	uint8_t *(*reserve)(void *context, const struct path *path, size_t bytes);
	/* What was reserved last is now a packet of @bytes that goes along @path. The carrier adds
	 * the ICRC. */
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
	/* Send the IPv6 datagram @frame (raw.h). False: not possible at the moment. NULL: this
	 * network carries none. */
	bool (*send_raw)(void *context, const uint8_t *frame, size_t bytes);
};

#endif
