/* The network as the engine sees it: packets go along paths and are carried by somebody else, a UDP
 * socket, the simulator or a test. A packet here is what lies between UDP header and ICRC: BTH,
 * extended headers, payload, padding. */
#ifndef TRANSPORT_PATH_H
#define TRANSPORT_PATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/roce.h"

/* A way to another port, or the way that a packet came: then sgid is its sender's. */
struct path {
	struct roce_path ip;
	uint8_t port; /* which of our ports, from 1 on */
	uint8_t sl;
	uint16_t slid; /* of a packet that came: its sender's LID; 0: it has none, or it is not
	                  known */
};

struct carrier {
	/* Room for a packet of at most @bytes, to be filled and committed before the next one;
	 * NULL: not now, try again in the next turn. */
	uint8_t *(*reserve)(void *context, const struct path *path, size_t bytes);
	/* What was reserved last is a packet of @bytes that goes along @path. The carrier adds the
	 * ICRC. */
	void (*commit)(void *context, const struct path *path, size_t bytes);
	/* The same, where only the headers, @header_bytes, have been filled: the payload lies at
	 * @from and is brought by @copy, which takes it into a CRC-32 meanwhile (copy.h). False:
	 * it could not, and there is no packet. NULL: commit() alone is known. */
	bool (*commit_from)(void *context, const struct path *path, size_t header_bytes,
	                    const void *from, size_t payload_bytes,
	                    bool (*copy)(void *to, const void *from, size_t bytes, uint32_t *crc));
	/* Would one more packet like the last one be as good as free, because it travels together
	 * with others that wait? NULL: never. */
	bool (*filling)(void *context);
	/* Nothing follows in this turn: send what waits. */
	void (*flush)(void *context);
	void *context;
	/* Send the IPv6 datagram @frame (raw.h). False: not now. NULL: this network carries none.
	 */
	bool (*send_raw)(void *context, const uint8_t *frame, size_t bytes);
};

#endif
