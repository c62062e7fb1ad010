/* CI ("computer interface") packets: stores and loads through apertures, and what surrounds them
 * (APERTURE columns 11 to 18). Layouts that APERTURE names without drawing are defined here and in
 * heddle-ci(7). All numbers are big-endian.
 *
 *    0  kind (1)
 *    1  flags (1)              enum ci_flag
 *    2  cluster address (2)    of the destination; 0: the carrier knows the host
 *    4  index (4)              slot of the process (10 bits), row in its incoming table (22 bits)
 *    8  nonce (8)
 *   16  offset (4)             in the aperture; of ALIVE and its answer: which ALIVE it is; of
 *                             CONNECT, ACCEPT and STATUS: the cluster address of the sender
 *   20  length (2)             of the data
 *   22  header checksum (2)    RFC 1071, over the header with all its fields, without itself
 *   24  sequence number (4)    only with CI_SEQUENCED
 *       data
 *       CRC-32C (4)            of the header with all its fields, then the data
 *
 * Several packets for one process share a frame. In all but the first, fields that repeat the
 * packet before are left out, and flags tell which (APERTURE column 18, step 6):
 *
 *   CI_SAME    cluster address, index and nonce are those of the packet before
 *   CI_NEXT    the offset is where the data of the packet before ended
 *   CI_COUNT   the sequence number is one more than that of the packet before
 *
 * The checksum and the CRC cover the header as it is with every field in its place and these three
 * flags zero, so that a hop may pack packets in another way without computing a CRC again: it is
 * end to end. A frame ends with the bytes that the carrier delivers, or with a kind of 0, which is
 * what Ethernet pads with.
 *
 * The source is not in the packet: it is what the carrier says.
 *
 * Packets to a port, CONNECT and STATUS, have the port's number as their row and slot 0, which is
 * that of the node agent. The nonce of CONNECT is the ticket that REJECT gave for it, and 0 before
 * that; the nonce of STATUS is 0. All others are addressed to an entry, with its nonce. */
#ifndef WIRE_CI_H
#define WIRE_CI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CI_UDP_PORT     18490u
#define CI_ETHERTYPE    0x88b5u /* of Ethernet frames */
#define CI_HEADER_BYTES 24u
#define CI_NUMBER_BYTES 4u
#define CI_CRC_BYTES    4u
#define CI_EXTRA_BYTES  (CI_HEADER_BYTES + CI_NUMBER_BYTES + CI_CRC_BYTES) /* around the data */
#define CI_MAX_DATA     16384u
#define CI_MAX_FRAME    (CI_MAX_DATA + CI_EXTRA_BYTES)
#define CI_ROW_BITS     22u
#define CI_MAX_ROWS     (1u << CI_ROW_BITS)
#define CI_INDEX_OFFSET 4u /* of the word whose high bits are the slot: carriers steer by it */
#define CI_EVENT_BYTES  16u
#define CI_OFFER_BYTES  36u
#define CI_MAX_READ     16384u /* bytes of one read request */
#define CI_TOKEN_BYTES  4u
#define CI_TICKET_BYTES 12u /* of a REJECT with a ticket */

enum ci_kind {
	CI_DATA = 1,  /* the data goes to offset */
	CI_EVENT,     /* CI_EVENT_BYTES or fewer; becomes an event with the offset */
	CI_READ,      /* token (4), bytes wanted (4), from offset on */
	CI_RESPONSE,  /* token (4), then data that was at offset */
	CI_CONNECT,   /* an offer; to a port */
	CI_ACCEPT,    /* an offer */
	CI_REJECT,    /* reason (2), reserved (2); and a ticket (8), if it is to be tried again */
	CI_CLOSE,     /* next number (4), reason (2), reserved (2) */
	CI_ALIVE,     /* next number (4) */
	CI_ALIVEACK,  /* expected number (4) */
	CI_ERROR,     /* reason (2), element (2), expected number (4) */
	CI_STATUS,    /* index (4), nonce (8), token (4): where the reply goes; to a port */
	CI_STATUSACK, /* token (4), six numbers (4 each) */
	CI_KIND_COUNT
};

enum ci_flag {
	CI_SEQUENCED = 1 << 0,
	CI_ASK = 1 << 1, /* the sender wants an ALIVEACK; of ALIVEACK: it answers ALIVE, not data */
	CI_SAME = 1 << 5,
	CI_NEXT = 1 << 6,
	CI_COUNT = 1 << 7
};
#define CI_PACKING (CI_SAME | CI_NEXT | CI_COUNT)

/* A packet; when decoded, @data is within the frame. */
struct ci_packet {
	uint8_t kind;  /* enum ci_kind */
	uint8_t flags; /* CI_SEQUENCED, CI_ASK */
	uint16_t cluster;
	uint32_t index;
	uint64_t nonce;
	uint32_t offset;
	uint32_t sequence;
	uint32_t bytes;
	const uint8_t *data;
};

static inline uint32_t ci_index(uint32_t slot, uint32_t row)
{
	return slot << CI_ROW_BITS | row;
}
static inline uint32_t ci_slot(uint32_t index)
{
	return index >> CI_ROW_BITS;
}
static inline uint32_t ci_row(uint32_t index)
{
	return index & (CI_MAX_ROWS - 1);
}

enum ci_verdict {
	CI_OK,
	CI_END,            /* no packet follows */
	CI_TOO_SHORT,      /* the frame ends within a packet */
	CI_WRONG_KIND,     /* unknown */
	CI_WRONG_FLAGS,    /* unknown, or refer to a packet before the first */
	CI_WRONG_LENGTH,   /* not that of the kind */
	CI_WRONG_CHECKSUM, /* of the header */
	CI_WRONG_CRC,      /* damaged on its way */
	CI_WRONG_BODY,     /* a field of an out-of-band packet that makes no sense */
	CI_VERDICT_COUNT
};

/* --- frames --- */

struct ci_writer {
	uint8_t *out;
	size_t capacity, used;
	struct ci_packet last; /* what fields may repeat; its data is not used */
};
void ci_begin(struct ci_writer *writer, uint8_t *out, size_t capacity);
/* Add @packet to the frame. False: it does not fit, or its length is not that of its kind; nothing
 * has changed. */
bool ci_put(struct ci_writer *writer, const struct ci_packet *packet);
/* How many bytes ci_put() would add. */
size_t ci_bytes(const struct ci_writer *writer, const struct ci_packet *packet);

struct ci_reader {
	const uint8_t *in;
	size_t bytes, at;
	struct ci_packet last;
};
void ci_open(struct ci_reader *reader, const uint8_t *in, size_t bytes);
/* The next packet. *packet only changes on CI_OK, and on CI_WRONG_CRC: its header has a checksum of
 * its own, which is right, so *packet says which packet was damaged, without data (bytes 0, data
 * NULL). That is enough to tell its sender, and good for nothing else. After any verdict but CI_OK
 * the rest of the frame has no meaning. */
enum ci_verdict ci_next(struct ci_reader *reader, struct ci_packet *packet);

/* --- bodies --- */

/* An incoming entry, as the other end needs it. */
struct ci_offer {
	uint32_t index;
	uint64_t nonce;
	uint32_t sequence; /* the first number that it expects */
	uint8_t bits;      /* of the size; 0: it offers no memory */
	uint8_t type;      /* enum hdl_aperture_type */
	uint8_t checks;    /* enum hdl_aperture_check_bit */
	uint32_t nonce_every;
	uint16_t nonce_step;
	uint16_t port;          /* CONNECT: to which; ACCEPT: for what follows */
	uint32_t first, length; /* narrowing */
};
/* CI_WRONG_BODY: bits, type or checks are unknown, or the narrowed range exceeds the size. */
enum ci_verdict ci_get_offer(const struct ci_packet *packet, struct ci_offer *offer);
void ci_set_offer(const struct ci_offer *offer, uint8_t body[CI_OFFER_BYTES]);

struct ci_read {
	uint32_t token, bytes;
};
/* Also for RESPONSE, of which it returns the token alone. CI_WRONG_BODY: 0 bytes, or more than
 * CI_MAX_READ. */
enum ci_verdict ci_get_read(const struct ci_packet *packet, struct ci_read *read);
void ci_set_read(const struct ci_read *read, uint8_t body[8]);

/* ERROR comes from any element on the path (APERTURE column 13): who found the error, as in enum
 * hdl_element. */
enum ci_element { CI_RECEIVER, CI_AGENT, CI_CARRIER, CI_SENDER, CI_ELEMENT_COUNT };
/* REJECT, CLOSE, ALIVE, ALIVEACK and ERROR have some of these. */
struct ci_note {
	uint16_t reason;  /* enum hdl_aperture_reason */
	uint16_t element; /* enum ci_element */
	uint32_t number;  /* expected, or next */
	uint32_t index;   /* ALIVE: of the sender's own entry, where an agent may answer ERROR */
};
struct ci_note ci_get_note(const struct ci_packet *packet);
/* The ticket of a REJECT; 0: it has none. */
uint64_t ci_get_ticket(const struct ci_packet *packet);
void ci_set_ticket(uint64_t ticket, uint8_t body[CI_TICKET_BYTES]);
/* Of enum hdl_aperture_reason: the only one of REJECT that is no end. */
#define CI_REASON_TICKET 17u
/* Of enum hdl_aperture_reason, those of an ERROR that acknowledges data. */
#define CI_REASON_SEQUENCE 10u
#define CI_REASON_DAMAGED  16u
/* Does @packet set up, end or question a connection? Acknowledgements do not: they come and go with
 * the data that they count. */
static inline bool ci_is_out_of_band(const struct ci_packet *packet)
{
	if (packet->kind == CI_ERROR) {
		uint16_t reason = ci_get_note(packet).reason;
		return reason != CI_REASON_SEQUENCE && reason != CI_REASON_DAMAGED;
	}
	return packet->kind >= CI_CONNECT && packet->kind != CI_ALIVEACK;
}
/* Returns the bytes of the body. */
uint32_t ci_set_note(uint8_t kind, const struct ci_note *note, uint8_t body[8]);

#define CI_STATUS_BYTES    16u
#define CI_STATUSES        6u
#define CI_STATUSACK_BYTES (CI_TOKEN_BYTES + 4u * CI_STATUSES)
struct ci_status {
	uint32_t index; /* STATUS: where the reply goes */
	uint64_t nonce;
	uint32_t token;
	uint32_t values[CI_STATUSES]; /* STATUSACK, in the order of struct hdl_port_status */
};
struct ci_status ci_get_status(const struct ci_packet *packet);
/* Returns the bytes of the body. */
uint32_t ci_set_status(uint8_t kind, const struct ci_status *status,
                       uint8_t body[CI_STATUSACK_BYTES]);

/* --- joining (APERTURE column 18) --- */

/* Data packets that follow each other in one aperture become one write: their data, without the
 * headers in between. A write that stalls after N bytes resumes at base + offset + N. */
#define CI_MAX_PIECES 16u
struct ci_burst {
	uint32_t index;
	uint32_t offset; /* where the next byte goes */
	uint32_t bytes;  /* left */
	uint32_t count;  /* pieces; 0: the burst is empty */
	struct {
		const uint8_t *data;
		uint32_t bytes;
	} pieces[CI_MAX_PIECES];
};
/* Add the data of @packet, which has been checked. False: it does not continue the burst, or the
 * burst has no room. */
bool ci_join(struct ci_burst *burst, const struct ci_packet *packet);
/* @bytes have been written: the rest begins behind them. */
void ci_written(struct ci_burst *burst, uint32_t bytes);

#endif
