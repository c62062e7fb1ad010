/* DDP segment headers (RFC 5041 section 4). A tagged segment names the registered buffer (STag) and
 * the position in it (TO, tagged offset) where its payload belongs. An untagged one names a queue
 * (QN), a message on it (MSN) and an offset in that message (MO). Both carry octets for the
 * protocol above, RDMAP.
 *
 * 	tagged, 14 octets                            untagged, 18 octets
 * 	|T|L| rsvd |DV|  RsvdULP 8  |                |T|L| rsvd |DV|  RsvdULP 8  |
 * 	|           STag            |                |       RsvdULP 32          |
 * 	|            TO             |                |            QN             |
 * 	|            TO             |                |            MSN            |
 * 	                                             |            MO             | */
#ifndef WIRE_DDP_H
#define WIRE_DDP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DDP_VERSION          1
#define DDP_TAGGED_BYTES     14
#define DDP_UNTAGGED_BYTES   18
#define DDP_MAX_HEADER_BYTES DDP_UNTAGGED_BYTES

struct ddp_header {
	bool tagged;         /* T */
	bool last;           /* L: the last segment of its message */
	uint8_t ulp_control; /* RsvdULP, first octet */
	uint32_t stag;       /* tagged */
	uint64_t to;
	uint32_t ulp_word; /* untagged: RsvdULP, the rest */
	uint32_t qn;
	uint32_t msn;
	uint32_t mo;
};

/* The checks that need only the segment (RFC 5041 section 7). */
enum ddp_verdict {
	DDP_OK,
	DDP_SHORT,            /* fewer octets than its header */
	DDP_VERSION_TAGGED,   /* DV is not 1 */
	DDP_VERSION_UNTAGGED, /* DV is not 1 */
	DDP_TO_WRAP,          /* the payload passes the end of the 64-bit offsets */
	DDP_TOO_LONG,         /* the payload passes the end of the 32-bit message length */
	DDP_VERDICT_COUNT
};

static inline size_t ddp_header_bytes(bool tagged)
{
	return tagged ? DDP_TAGGED_BYTES : DDP_UNTAGGED_BYTES;
}

/* Write @h to @out. Returns its length, or 0 if @out_bytes is too small. */
size_t ddp_encode(const struct ddp_header *h, uint8_t *out, size_t out_bytes);

/* Read the header at the start of a segment; the payload follows it. On DDP_OK all of *h is set. It
 * is also set on a wrap or an overlong message, so that a Terminate can name the segment. */
enum ddp_verdict ddp_decode(const uint8_t *segment, size_t segment_bytes, struct ddp_header *h);

#endif
