/* Finds FPDUs in a TCP stream: the receiving half of mpa_fpdu.h, as a state machine that takes
 * octets in whatever runs they arrive, never looks back and keeps no payload. The beginning of each
 * ULPDU, its head, is collected in the receiver; how long it is, the caller decides while it
 * arrives. What follows the head, the body, goes where the caller wants it. Then come pad and CRC.
 *
 * 	| length | head                | body                | pad | CRC |
 * 	           in mpa_receiver.head  the caller's memory
 *
 * 	bytes = mpa_stream_due(&r, &to);         // to != NULL: read at most so many octets to there
 * 	verdict = mpa_stream_took(&r, n);        // ... and say how many came
 * 	                                         // to == NULL: body, at most so many octets
 * 	verdict = mpa_stream_took_body(&r, n, crc32c(mpa_stream_sum(&r), where, n));
 *
 * MPA_STREAM_HEAD: the head has come as far as it was requested. mpa_stream_need() requests more of
 * it, or begins the body. MPA_STREAM_ULPDU: an FPDU is complete, and its CRC was right. Nothing of
 * it may have had an effect before that. */
#ifndef WIRE_MPA_STREAM_H
#define WIRE_MPA_STREAM_H

#include "wire/mpa_fpdu.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MPA_HEAD_FIRST_BYTES \
	2                     /* of the head, requested at first: control octets of DDP and RDMAP */
#define MPA_HEAD_MAX_BYTES 96 /* the longest that may be requested */

enum mpa_stream_verdict {
	MPA_STREAM_MORE,
	MPA_STREAM_HEAD,  /* the head is there as far as requested: call mpa_stream_need() */
	MPA_STREAM_ULPDU, /* one is complete; the CRC was right, or is not used */
	MPA_STREAM_BAD_CRC,
	/* FPDUPTR does not point to the start of the FPDU according to the lengths. */
	MPA_STREAM_BAD_MARKER,
	/* ULPDU_Length exceeds what markers allow. */
	MPA_STREAM_TOO_LONG,
	MPA_STREAM_VERDICT_COUNT
};

enum mpa_stream_state {
	MPA_STREAM_IN_LENGTH,
	MPA_STREAM_IN_HEAD,
	MPA_STREAM_IN_BODY,
	MPA_STREAM_IN_TAIL,
	MPA_STREAM_DEAD /* a verdict ended the connection; every further call returns it again */
};

/* One direction of a connection, at its receiver. Initialized by mpa_stream_init(); written only by
 * mpa_stream.c. */
struct mpa_receiver {
	uint64_t position; /* octets taken since the connection was opened */
	bool markers;
	bool crc;
	uint8_t state;      /* enum mpa_stream_state */
	uint8_t fault;      /* enum mpa_stream_verdict */
	uint8_t tail_bytes; /* pad and CRC that have arrived, or of the length */
	uint8_t tail[8];
	uint8_t marker[MPA_MARKER_BYTES];
	uint8_t marker_bytes;  /* octets of an incomplete marker; 0: none has begun */
	uint64_t length_field; /* position of this FPDU's ULPDU_Length */
	uint32_t sum;          /* CRC-32C of this FPDU so far */
	/* These stay valid after MPA_STREAM_ULPDU, until the next octet is taken. */
	uint16_t ulpdu_bytes; /* may be 0: the ready-to-receive FPDU of RFC 6581 */
	uint16_t body_bytes;  /* of the body that have arrived */
	uint8_t head_bytes, head_need;
	uint8_t head[MPA_HEAD_MAX_BYTES];
};

struct mpa_ulpdu {
	const uint8_t *data;
	size_t bytes;
};

void mpa_stream_init(struct mpa_receiver *r, bool markers, bool crc);

/* Where the next octets belong: at most the returned number, to *to, or to the body if *to is NULL.
 * 0: the stream is dead, or mpa_stream_need() is due. */
size_t mpa_stream_due(struct mpa_receiver *r, uint8_t **to);

/* @bytes, at most what is due, have arrived where mpa_stream_due() said. */
enum mpa_stream_verdict mpa_stream_took(struct mpa_receiver *r, size_t bytes);

/* @bytes of the body have arrived, and @sum is their CRC-32C, continued from mpa_stream_sum(). It
 * is ignored where CRCs are not used. */
enum mpa_stream_verdict mpa_stream_took_body(struct mpa_receiver *r, size_t bytes, uint32_t sum);
static inline uint32_t mpa_stream_sum(const struct mpa_receiver *r)
{
	return r->sum;
}

/* After MPA_STREAM_HEAD: the head has @bytes octets, not fewer than have arrived and at most
 * MPA_HEAD_MAX_BYTES and the length of the ULPDU. If they are there, the body begins. */
void mpa_stream_need(struct mpa_receiver *r, size_t bytes);

/* Octets of the body that have not arrived. */
static inline size_t mpa_stream_body_left(const struct mpa_receiver *r)
{
	return (size_t)r->ulpdu_bytes - r->head_bytes - r->body_bytes;
}

/* Is @r between two FPDUs? Only there may a stream end. */
bool mpa_stream_between(const struct mpa_receiver *r);

/* The usual case for data that was read ahead: @in begins with a whole FPDU, @r is between two
 * FPDUs, and there are no markers. Its length; 0: something of that is not so. Takes nothing. */
size_t mpa_stream_whole(const struct mpa_receiver *r, const uint8_t *in, size_t in_bytes);
/* Take the FPDU of @bytes that mpa_stream_whole() found: MPA_STREAM_ULPDU or MPA_STREAM_BAD_CRC.
 * Its head and body are where it is. */
enum mpa_stream_verdict mpa_stream_take_whole(struct mpa_receiver *r, const uint8_t *in,
                                              size_t bytes, struct mpa_ulpdu *ulpdu);

#endif
