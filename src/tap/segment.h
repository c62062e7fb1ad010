/* Finish in software what an offload header leaves undone: a checksum, or segments of a long TCP or
 * UDP frame. For frames of an interface that cannot be told to do it, on their way to somebody who
 * cannot either. Pure; frames are bytes of strangers. */
#ifndef TAP_SEGMENT_H
#define TAP_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A frame that is being cut. */
struct segments {
	const uint8_t *frame; /* with its offload header; stays the caller's */
	size_t bytes;
	size_t network, transport, payload; /* where these begin, behind the offload header */
	size_t done;                        /* bytes of payload that have left */
	uint32_t size, count;               /* of a segment; of those that have left */
	bool tcp, version6, finished;
	size_t checksum; /* where it is; 0: there is none to finish */
};

/* Does @frame need more than @offloads (enum hdl_push_offload) can do? */
bool segments_needed(const uint8_t *frame, uint32_t offloads);
/* Begin with a frame of at least an Ethernet header. False: its headers are wrong; drop it. */
bool segments_begin(struct segments *segments, const uint8_t *frame, size_t bytes);
/* The next plain frame, with an empty offload header, to @out, which has room for @bytes. Returns
 * its length; 0: there is none any more. */
size_t segments_next(struct segments *segments, uint8_t *out);

#endif
