/* RDMAP messages (RFC 5040 section 4, RFC 7306 sections 5 and 6): what a DDP segment means. The
 * single octet that a tagged header has for RDMAP is its control field, version and opcode; the
 * five of an untagged header are the control field and the STag to invalidate, or zero.
 *
 * 	opcode                          DDP        queue   RDMAP header after DDP's   payload
 * 	0 RDMA Write                    tagged                                        yes
 * 	1 RDMA Read Request             untagged   1       28                         no
 * 	2 RDMA Read Response            tagged                                        yes
 * 	3 Send                          untagged   0                                  yes
 * 	4 Send with Invalidate          untagged   0                                  yes
 * 	5 Send with Solicited Event     untagged   0                                  yes
 * 	6 Send with SE and Invalidate   untagged   0                                  yes
 * 	7 Terminate                     untagged   2       4 to 76                    no
 * 	8 Immediate Data                untagged   0       8                          no
 * 	9 Immediate Data with SE        untagged   0       8                          no
 * 	A Atomic Request                untagged   1       52                         no
 * 	B Atomic Response               untagged   3       12                         no
 *
 * Messages without payload are one segment each: RFC 5041 requires every transport to carry at
 * least 128 octets. */
#ifndef WIRE_RDMAP_H
#define WIRE_RDMAP_H

#include "wire/ddp.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RDMAP_VERSION               1
#define RDMAP_READ_REQUEST_BYTES    28
#define RDMAP_IMMEDIATE_BYTES       8
#define RDMAP_ATOMIC_REQUEST_BYTES  52
#define RDMAP_ATOMIC_RESPONSE_BYTES 12
#define RDMAP_TERMINATE_MIN_BYTES   4
/* Terminate control, segment length, the longest DDP and the longest RDMAP header. */
#define RDMAP_TERMINATE_MAX_BYTES (4 + 2 + DDP_MAX_HEADER_BYTES + RDMAP_ATOMIC_REQUEST_BYTES)
#define RDMAP_MAX_HEADER_BYTES    (DDP_MAX_HEADER_BYTES + RDMAP_TERMINATE_MAX_BYTES)

enum rdmap_opcode {
	RDMAP_WRITE,
	RDMAP_READ_REQUEST,
	RDMAP_READ_RESPONSE,
	RDMAP_SEND,
	RDMAP_SEND_INVALIDATE,
	RDMAP_SEND_SE,
	RDMAP_SEND_SE_INVALIDATE,
	RDMAP_TERMINATE,
	RDMAP_IMMEDIATE,
	RDMAP_IMMEDIATE_SE,
	RDMAP_ATOMIC_REQUEST,
	RDMAP_ATOMIC_RESPONSE,
	RDMAP_OPCODE_COUNT /* the four opcodes above are reserved */
};

enum rdmap_queue {
	RDMAP_QUEUE_SEND,
	RDMAP_QUEUE_READ_REQUEST, /* Atomic Requests too: they share its MSNs */
	RDMAP_QUEUE_TERMINATE,
	RDMAP_QUEUE_ATOMIC_RESPONSE,
	RDMAP_QUEUE_COUNT
};

/* A row of the table above. */
struct rdmap_operation {
	const char *name;
	bool tagged;
	bool payload;
	bool invalidates;
	bool solicited;
	uint8_t queue;        /* enum rdmap_queue, of untagged operations */
	uint8_t header_bytes; /* after the DDP header; the minimum */
};

extern const struct rdmap_operation rdmap_operations[RDMAP_OPCODE_COUNT];

struct rdmap_read_request {
	uint32_t sink_stag;
	uint64_t sink_to;
	uint32_t bytes;
	uint32_t source_stag;
	uint64_t source_to;
};

enum rdmap_atomic { RDMAP_FETCH_ADD, RDMAP_SWAP, RDMAP_COMPARE_SWAP, RDMAP_ATOMIC_COUNT };

struct rdmap_atomic_request {
	enum rdmap_atomic operation;
	uint32_t id; /* returned in the response */
	uint32_t stag;
	uint64_t to;
	uint64_t data;    /* to add, or to store */
	uint64_t mask;    /* of data: see RFC 7306 section 5.2 */
	uint64_t compare; /* RDMAP_COMPARE_SWAP only; otherwise sent as zero and ignored */
	uint64_t compare_mask;
};

struct rdmap_atomic_response {
	uint32_t id;
	uint64_t original;
};

/* Why a stream ends, and the segment concerned; see rdmap_terminate.h. */
struct rdmap_terminate {
	uint8_t layer; /* 4 bits */
	uint8_t etype; /* 4 bits */
	uint8_t code;
	bool has_length;             /* M: segment_bytes is valid */
	uint16_t segment_bytes;      /* of the segment concerned, headers included */
	const uint8_t *ddp_header;   /* D: of that segment; or NULL */
	size_t ddp_header_bytes;     /* 14 or 18 */
	const uint8_t *rdmap_header; /* R: of a Read or Atomic Request; or NULL */
	size_t rdmap_header_bytes;
};

/* One decoded DDP segment. */
struct rdmap_segment {
	enum rdmap_opcode opcode;
	bool last;
	uint32_t stag; /* Write, Read Response: the data sink */
	uint64_t to;
	uint32_t msn; /* all others */
	uint32_t mo;
	uint32_t invalidate_stag; /* of the two operations that invalidate */
	union {
		struct rdmap_read_request read;
		struct rdmap_atomic_request atomic;
		struct rdmap_atomic_response atomic_response;
		struct rdmap_terminate terminate;
		uint64_t immediate;
	} u;
	const uint8_t *payload; /* within the segment; only of operations that have one */
	size_t payload_bytes;
};

/* The verdict on a segment. All but RDMAP_OK end the stream; rdmap_terminate.h has the code to send
 * for each. */
enum rdmap_verdict {
	RDMAP_OK = DDP_OK,
	RDMAP_DDP_SHORT = DDP_SHORT,
	RDMAP_DDP_VERSION_TAGGED = DDP_VERSION_TAGGED,
	RDMAP_DDP_VERSION_UNTAGGED = DDP_VERSION_UNTAGGED,
	RDMAP_DDP_TO_WRAP = DDP_TO_WRAP,
	RDMAP_DDP_TOO_LONG = DDP_TOO_LONG,
	RDMAP_BAD_QUEUE = DDP_VERDICT_COUNT, /* QN is none of the four queues */
	RDMAP_BAD_VERSION,                   /* RV is not 1 */
	/* Reserved, tagged or untagged where it must not be, or on the wrong queue. */
	RDMAP_BAD_OPCODE,
	RDMAP_BAD_OFFSET, /* MO is not 0 in a message that is one segment */
	RDMAP_SHORT,      /* fewer octets than the opcode's header */
	/* A message that is one segment has more octets, or more segments, than its header. */
	RDMAP_TOO_LONG,
	RDMAP_READ_WRAP,  /* a Read Request passes the end of the source's offsets */
	RDMAP_BAD_ATOMIC, /* an operation that RFC 7306 does not define */
	RDMAP_VERDICT_COUNT
};

/* Write the DDP and RDMAP headers of @s to @out; the caller sends the payload behind them. T, QN
 * and the versions follow from the opcode. Returns their length, or 0 if @out_bytes is too small;
 * RDMAP_MAX_HEADER_BYTES is always enough. */
size_t rdmap_encode(const struct rdmap_segment *s, uint8_t *out, size_t out_bytes);

/* How many octets of a segment of @segment_bytes, of which the first @have are at @segment, are
 * headers: DDP's and, where there is no payload, RDMAP's as far as any message has it. Until two
 * octets are there, as many as these. */
size_t rdmap_head_bytes(const uint8_t *segment, size_t have, size_t segment_bytes);

/* Check a segment, in the order of the layers: DDP's version, length and queue, then RDMAP's
 * version, opcode and header. Only the octets that rdmap_head_bytes() counts are read. Checks that
 * need a connection (MSN order, STags, who may send what) are not done here. */
enum rdmap_verdict rdmap_parse(const uint8_t *segment, size_t segment_bytes,
                               struct rdmap_segment *s);

#endif
