/* Finds ULPDUs in a TCP stream: the receiving half of mpa_fpdu.h, as a state machine that takes
 * octets in whatever runs they arrive and never looks back. It allocates nothing: a ULPDU is
 * collected in the caller's buffer or, if it is in one run and there are no markers, is used where
 * it arrived.
 *
 * 	for (;;) {
 * 		verdict = mpa_stream_feed(&r, in, in_bytes, &used, &ulpdu);
 * 		in += used, in_bytes -= used;
 * 		if (verdict == MPA_STREAM_MORE) break;      // all of the run is used
 * 		if (verdict != MPA_STREAM_ULPDU) terminate; // the connection is lost
 * 		... ulpdu ...
 * 	} */
#ifndef WIRE_MPA_STREAM_H
#define WIRE_MPA_STREAM_H

#include "wire/mpa_fpdu.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mpa_stream_verdict {
	MPA_STREAM_MORE,
	MPA_STREAM_ULPDU, /* one is complete; the CRC was right, or is not used */
	MPA_STREAM_BAD_CRC,
	/* FPDUPTR does not point to the start of the FPDU according to the lengths. */
	MPA_STREAM_BAD_MARKER,
	/* ULPDU_Length exceeds what the receiver can take, or what markers allow. */
	MPA_STREAM_TOO_LONG,
	MPA_STREAM_VERDICT_COUNT
};

enum mpa_stream_state {
	MPA_STREAM_IN_LENGTH,
	MPA_STREAM_IN_ULPDU,
	MPA_STREAM_IN_PAD,
	MPA_STREAM_IN_CRC,
	MPA_STREAM_DEAD /* a verdict ended the connection; every further call returns it again */
};

/* One direction of a connection, at its receiver. Initialized by mpa_stream_init(); private to
 * mpa_stream.c. */
struct mpa_receiver {
	uint8_t *buffer;
	size_t buffer_bytes;
	uint64_t position; /* octets taken since the connection was opened */
	bool markers;
	bool crc;
	enum mpa_stream_state state;
	enum mpa_stream_verdict fault;
	uint8_t field[4]; /* the length or CRC, as far as it has arrived */
	size_t field_bytes;
	uint8_t marker[MPA_MARKER_BYTES];
	size_t marker_bytes;   /* octets of an incomplete marker; 0: none has begun */
	uint64_t length_field; /* position of this FPDU's ULPDU_Length */
	uint32_t sum;          /* CRC-32C of this FPDU so far */
	size_t ulpdu_bytes;
	size_t gathered_bytes; /* of the ULPDU, or of the pad */
};

struct mpa_ulpdu {
	const uint8_t *data; /* in the caller's run or buffer: valid until the next call */
	size_t bytes;        /* may be 0: the ready-to-receive FPDU of RFC 6581 */
};

/* @buffer holds the longest ULPDU that will be accepted. It belongs to the caller and must live as
 * long as @r. */
void mpa_stream_init(struct mpa_receiver *r, uint8_t *buffer, size_t buffer_bytes, bool markers,
                     bool crc);

/* Take octets from @in up to the end of one FPDU. *used is how many; *ulpdu is set on
 * MPA_STREAM_ULPDU. */
enum mpa_stream_verdict mpa_stream_feed(struct mpa_receiver *r, const uint8_t *in, size_t in_bytes,
                                        size_t *used, struct mpa_ulpdu *ulpdu);

#endif
