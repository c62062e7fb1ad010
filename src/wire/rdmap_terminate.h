/* Terminate: how one end of an iWARP connection says why it ends it (RFC 5040 section 4.8).
 *
 * 	| Layer 4 | EType 4 | Error Code 8 |M|D|R| reserved 13 |
 * 	| DDP Segment Length 16 |          with M or D
 * 	| DDP header, 14 or 18 octets |    with D
 * 	| RDMAP header |                   with R: of a Read Request (28), or an Atomic Request (52)
 *
 * The errors of all layers are in one table, with the names of the IANA registry for RDDP (RFC
 * 6580). */
#ifndef WIRE_RDMAP_TERMINATE_H
#define WIRE_RDMAP_TERMINATE_H

#include "wire/mpa_connect.h"
#include "wire/mpa_stream.h"
#include "wire/rdmap.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum rdmap_layer { RDMAP_LAYER_RDMAP, RDMAP_LAYER_DDP, RDMAP_LAYER_LLP };

/* What a Terminate for an error includes of the segment that caused it. */
enum rdmap_attach {
	RDMAP_ATTACH_NONE, /* no segment, or one with an unknown layout */
	RDMAP_ATTACH_DDP,  /* M and D */
	RDMAP_ATTACH_RDMAP /* M, D, and R when the segment is a Read or Atomic Request */
};

/* X(name, layer, EType, code, attach, text). RFC 5040 sections 4.8 and 7, RFC 5041 section 7, RFC
 * 5044 section 8, RFC 6581 section 10. */
#define RDMAP_ERRORS(X)                                                                          \
	X(RDMAP_CATASTROPHIC, RDMAP, 0, 0x00, NONE, "local catastrophic error")                  \
	X(RDMAP_INVALID_STAG, RDMAP, 1, 0x00, RDMAP, "invalid STag")                             \
	X(RDMAP_BOUNDS, RDMAP, 1, 0x01, RDMAP, "base or bounds violation")                       \
	X(RDMAP_ACCESS, RDMAP, 1, 0x02, RDMAP, "access rights violation")                        \
	X(RDMAP_STAG_STREAM, RDMAP, 1, 0x03, RDMAP, "STag not associated with the RDMAP stream") \
	X(RDMAP_TO_WRAP, RDMAP, 1, 0x04, RDMAP, "tagged offset wraps")                           \
	X(RDMAP_PROTECT_INVALIDATE, RDMAP, 1, 0x09, RDMAP, "STag cannot be invalidated")         \
	X(RDMAP_PROTECTION, RDMAP, 1, 0xff, RDMAP, "unspecified protection error")               \
	X(RDMAP_INVALID_VERSION, RDMAP, 2, 0x05, DDP, "invalid RDMAP version")                   \
	X(RDMAP_UNEXPECTED_OPCODE, RDMAP, 2, 0x06, DDP, "unexpected opcode")                     \
	X(RDMAP_STREAM_FAILED, RDMAP, 2, 0x07, RDMAP, "catastrophic error of the RDMAP stream")  \
	X(RDMAP_GLOBAL_FAILED, RDMAP, 2, 0x08, NONE, "catastrophic error, global")               \
	X(RDMAP_OPERATION_INVALIDATE, RDMAP, 2, 0x09, RDMAP, "STag cannot be invalidated")       \
	X(RDMAP_UNSPECIFIED, RDMAP, 2, 0xff, RDMAP, "unspecified operation error")               \
	X(DDP_CATASTROPHIC, DDP, 0, 0x00, NONE, "local catastrophic error")                      \
	X(DDP_INVALID_STAG, DDP, 1, 0x00, DDP, "invalid STag")                                   \
	X(DDP_BOUNDS, DDP, 1, 0x01, DDP, "base or bounds violation")                             \
	X(DDP_STAG_STREAM, DDP, 1, 0x02, DDP, "STag not associated with the DDP stream")         \
	X(DDP_WRAP, DDP, 1, 0x03, DDP, "tagged offset wraps")                                    \
	X(DDP_INVALID_VERSION_TAGGED, DDP, 1, 0x04, NONE, "invalid DDP version")                 \
	X(DDP_INVALID_QN, DDP, 2, 0x01, DDP, "invalid queue number")                             \
	X(DDP_NO_BUFFER, DDP, 2, 0x02, DDP, "invalid MSN: no buffer available")                  \
	X(DDP_MSN_RANGE, DDP, 2, 0x03, DDP, "invalid MSN: out of range")                         \
	X(DDP_INVALID_MO, DDP, 2, 0x04, DDP, "invalid message offset")                           \
	X(DDP_MESSAGE_TOO_LONG, DDP, 2, 0x05, DDP, "message too long for the buffer")            \
	X(DDP_INVALID_VERSION_UNTAGGED, DDP, 2, 0x06, NONE, "invalid DDP version")               \
	X(MPA_CLOSED, LLP, 0, 0x01, NONE, "TCP connection closed, terminated or lost")           \
	X(MPA_CRC, LLP, 0, 0x02, NONE, "MPA CRC error")                                          \
	X(MPA_MARKER, LLP, 0, 0x03, NONE, "MPA marker and ULPDU length mismatch")                \
	X(MPA_FRAME, LLP, 0, 0x04, NONE, "invalid MPA request or reply frame")                   \
	X(MPA_CATASTROPHIC, LLP, 0, 0x05, NONE, "local catastrophic error")                      \
	X(MPA_IRD, LLP, 0, 0x06, NONE, "insufficient IRD resources")                             \
	X(MPA_RTR, LLP, 0, 0x07, NONE, "no matching RTR option")

#define RDMAP_ERROR_ENUM(name, layer, etype, code, attach, text) RDMAP_ERROR_##name,
enum rdmap_error { RDMAP_ERRORS(RDMAP_ERROR_ENUM) RDMAP_ERROR_COUNT };
#undef RDMAP_ERROR_ENUM

struct rdmap_error_entry {
	uint8_t layer; /* enum rdmap_layer */
	uint8_t etype;
	uint8_t code;
	uint8_t attach; /* enum rdmap_attach */
	const char *text;
};

extern const struct rdmap_error_entry rdmap_errors[RDMAP_ERROR_COUNT];

/* The entry that a Terminate means; RDMAP_ERROR_COUNT if the table has none. The code of
 * RDMAP_ERROR_RDMAP_CATASTROPHIC is ignored: the registry assigns all codes to it. */
enum rdmap_error rdmap_error_find(uint8_t layer, uint8_t etype, uint8_t code);

/* The error to send for a verdict that ends a stream: not for OK, ULPDU or MORE. */
enum rdmap_error rdmap_error_of_segment(enum rdmap_verdict verdict);
enum rdmap_error rdmap_error_of_stream(enum mpa_stream_verdict verdict);
enum rdmap_error rdmap_error_of_connect(enum mpa_connect_verdict verdict);

/* Fill *t for @error, with what it includes of @segment, as far as that has arrived; NULL and 0 if
 * there is none. *t points into @segment. */
void rdmap_terminate_make(enum rdmap_error error, const uint8_t *segment, size_t segment_bytes,
                          struct rdmap_terminate *t);

/* The message after the DDP header: rdmap_encode() and rdmap_parse() call these. Encoding returns
 * the length, or 0 if @out_bytes is too small. Decoding accepts what is there: headers that M, D or
 * R promise but that are truncated are treated as absent, since the reason for the end is worth
 * more than a complaint about its form. False: not even the reason is there. */
size_t rdmap_terminate_encode(const struct rdmap_terminate *t, uint8_t *out, size_t out_bytes);
bool rdmap_terminate_decode(const uint8_t *in, size_t in_bytes, struct rdmap_terminate *t);

#endif
