/* Finding ULPDUs in a TCP stream again: the receiving half of mpa_fpdu.h, as a state machine that
 * takes octets in whatever runs they come and never looks back. It allocates nothing: a ULPDU is
 * gathered in a buffer of the caller's, or, when it lies in one run and there are no markers, is
 * read where it came.
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
	MPA_STREAM_BAD_MARKER, /* FPDUPTR does not point at the start of the FPDU that the lengths
	                          say */
	MPA_STREAM_TOO_LONG, /* ULPDU_Length above what the receiver can take, or above what markers
	                        allow */
	MPA_STREAM_VERDICT_COUNT
};

enum mpa_stream_state {
	MPA_STREAM_IN_LENGTH,
	MPA_STREAM_IN_ULPDU,
	MPA_STREAM_IN_PAD,
	MPA_STREAM_IN_CRC,
	MPA_STREAM_DEAD /* a verdict ended the connection; it is given again to whoever asks */
};

/* One direction of a connection, at its receiver. Made by mpa_stream_init(); the caller reads none
 * of it. */
struct mpa_receiver {
	uint8_t *buffer;
	size_t buffer_bytes;
	uint64_t position; /* octets taken since the connection was opened */
	bool markers;
	bool crc;
	enum mpa_stream_state state;
	enum mpa_stream_verdict fault;
	uint8_t field[4]; /* the length or CRC, as far as it has come */
	size_t field_bytes;
	uint8_t marker[MPA_MARKER_BYTES];
	size_t marker_bytes;   /* of a marker that has come in part; 0: none has begun */
	uint64_t length_field; /* position of this FPDU's ULPDU_Length */
	uint32_t sum;          /* CRC-32C of this FPDU so far */
	size_t ulpdu_bytes;
	size_t gathered_bytes; /* of the ULPDU, or of the pad */
};

struct mpa_ulpdu {
	const uint8_t *data; /* in the caller's run or buffer: good until the next call */
	size_t bytes;        /* 0 is lawful: the ready-to-receive FPDU of RFC 6581 */
};

/* @buffer holds the longest ULPDU that will be taken; it stays the caller's and must live as long
 * as @r. */
void mpa_stream_init(struct mpa_receiver *r, uint8_t *buffer, size_t buffer_bytes, bool markers,
                     bool crc);

/* Take octets from @in up to the end of one FPDU. *used says how many; *ulpdu is set on
 * MPA_STREAM_ULPDU. */
enum mpa_stream_verdict mpa_stream_feed(struct mpa_receiver *r, const uint8_t *in, size_t in_bytes,
                                        size_t *used, struct mpa_ulpdu *ulpdu);

#endif
