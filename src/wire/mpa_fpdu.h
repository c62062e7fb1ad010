/* FPDUs: what MPA sends once a connection is open (RFC 5044 section 4). One ULPDU, which is one DDP
 * segment, goes into one FPDU:
 *
 * 	| ULPDU_Length (2) | ULPDU | pad (0 to 3) | CRC-32C (4) |
 *
 * The pad makes everything before the CRC a multiple of four, so an FPDU starts at a multiple of
 * four in the stream. The CRC covers everything before it, markers included. Its octets are present
 * even if the two ends agreed not to use it; they are then zero.
 *
 * With markers, every 512th octet of the stream, counted from the first octet after the Request or
 * Reply frame, begins a marker: 16 reserved bits and FPDUPTR, the number of octets from the
 * ULPDU_Length field of the surrounding FPDU to the marker. A marker between two FPDUs belongs to
 * the second and has FPDUPTR 0. The first FPDU starts with such a marker. */
#ifndef WIRE_MPA_FPDU_H
#define WIRE_MPA_FPDU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MPA_LENGTH_BYTES    2
#define MPA_CRC_BYTES       4
#define MPA_MARKER_BYTES    4
#define MPA_MARKER_INTERVAL 512

#define MPA_MAX_ULPDU_BYTES 65535
/* With markers: the longest ULPDU in which FPDUPTR, 16 bits, reaches back from every marker,
 * wherever the FPDU is. */
#define MPA_MAX_ULPDU_MARKED_BYTES 65022
/* The longest FPDU: that of the longest ULPDU without markers, or of the longest with them; they
 * happen to be equal. */
#define MPA_MAX_FPDU_BYTES 65544

struct mpa_piece {
	const void *data;
	size_t bytes;
};

/* One direction of a connection, at its sender. Initially {0, markers, crc}. */
struct mpa_sender {
	uint64_t position; /* octets sent since the connection was opened */
	bool markers;
	bool crc;
};

static inline size_t mpa_pad_bytes(size_t ulpdu_bytes)
{
	return -(MPA_LENGTH_BYTES + ulpdu_bytes) & 3;
}

/* The largest ULPDU whose FPDU fits into a TCP segment of @emss octets wherever the markers fall
 * (RFC 5044 section 4.5); 0 if there is none. */
size_t mpa_mulpdu(size_t emss, bool markers);

/* Length of the FPDU of a ULPDU of @ulpdu_bytes if it were sent next. */
size_t mpa_fpdu_bytes(const struct mpa_sender *s, size_t ulpdu_bytes);

/* Write the ULPDU, the concatenation of @pieces, to @out as the next FPDU. Returns its length and
 * advances @s, or returns 0 and does nothing if the ULPDU is too long or @out_bytes too small. */
size_t mpa_fpdu_encode(struct mpa_sender *s, const struct mpa_piece *pieces, size_t piece_count,
                       uint8_t *out, size_t out_bytes);

/* Without markers, an FPDU can be built in place: the caller writes the ULPDU to mpa_fpdu_ulpdu()
 * and seals the FPDU with @sum, the CRC-32C from mpa_fpdu_open() continued over the ULPDU. Returns
 * the length of the FPDU. */
static inline uint8_t *mpa_fpdu_ulpdu(uint8_t *fpdu)
{
	return fpdu + MPA_LENGTH_BYTES;
}
uint32_t mpa_fpdu_open(const struct mpa_sender *s, uint8_t *fpdu, size_t ulpdu_bytes);
size_t mpa_fpdu_seal(struct mpa_sender *s, uint8_t *fpdu, size_t ulpdu_bytes, uint32_t sum);
/* The same for a ULPDU that is not in one piece: pad and CRC go to @tail. Returns their length. */
size_t mpa_fpdu_seal_at(struct mpa_sender *s, uint8_t *tail, size_t ulpdu_bytes, uint32_t sum);

#endif
