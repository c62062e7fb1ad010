/* The frames that open an iWARP connection: MPA Request and Reply (RFC 5044 section 7.1), what RFC
 * 6581 adds to them in revision 2, and what two ends agree on by exchanging them.
 *
 * 	 0               1               2               3
 * 	+---------------------------------------------------------------+
 * 	|  "MPA ID Req Frame" or "MPA ID Rep Frame", 16 octets           |
 * 	+-+-+-+-+-------+---------------+-------------------------------+
 * 	|M|C|R|S|  res  |      Rev      |           PD_Length           |
 * 	+-+-+-+-+-------+---------------+-------------------------------+
 * 	|A|B|            IRD            |C|D|            ORD            |   only with S
 * 	+-------------------------------+-------------------------------+
 * 	|  private data of the application                              |
 *
 * M says that the sender of the frame wants markers in what it receives; C that it wants CRCs,
 * which are then used in both directions; R, in a Reply, that the connection is refused. */
#ifndef WIRE_MPA_CONNECT_H
#define WIRE_MPA_CONNECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MPA_KEY_BYTES            16
#define MPA_CONNECT_HEADER_BYTES 20
#define MPA_ENHANCED_BYTES       4   /* A, B, IRD, C, D, ORD */
#define MPA_MAX_PRIVATE_BYTES    512 /* PD_Length, including the four octets above */
#define MPA_CONNECT_MAX_BYTES    (MPA_CONNECT_HEADER_BYTES + MPA_MAX_PRIVATE_BYTES)
#define MPA_MAX_DEPTH            0x3ffe /* limit of IRD and ORD */
#define MPA_DEPTH_ELSEWHERE      0x3fff /* RFC 6581 section 9.1: left to the application */

enum mpa_frame { MPA_REQUEST, MPA_REPLY };

/* The first message of an initiator, after which the responder of a peer-to-peer connection may
 * send: "ready to receive". */
enum mpa_rtr {
	MPA_RTR_SEND = 1 << 0,  /* B: a zero-length FPDU */
	MPA_RTR_WRITE = 1 << 1, /* C: a zero-length RDMA Write */
	MPA_RTR_READ = 1 << 2,  /* D: a zero-length RDMA Read */
	MPA_RTR_ALL = 7
};

struct mpa_connect {
	enum mpa_frame frame;
	uint8_t revision;  /* 1, or 2 */
	bool markers;      /* M */
	bool crc;          /* C */
	bool reject;       /* R; never in a Request */
	bool enhanced;     /* S: the next four fields are valid; revision 2 only */
	bool peer_to_peer; /* A */
	uint8_t rtr;       /* enum mpa_rtr */
	uint16_t ird;
	uint16_t ord;
	/* Of the application; after decoding it points into the frame. */
	const uint8_t *private_data;
	size_t private_bytes;
};

/* The verdict on a frame, or on a Request and its Reply. All but the first two end the connection.
 */
enum mpa_connect_verdict {
	MPA_CONNECT_OK,
	MPA_CONNECT_MORE,    /* not all octets have arrived yet */
	MPA_CONNECT_BAD_KEY, /* not MPA */
	/* A Request where a Reply is due, or the other way round: both ends have the same role. */
	MPA_CONNECT_CROSSED,
	/* Neither 1 nor 2, or a Reply with a higher revision than its Request. */
	MPA_CONNECT_BAD_REVISION,
	MPA_CONNECT_PRIVATE_TOO_LONG, /* PD_Length above 512 */
	MPA_CONNECT_ENHANCED_SHORT,   /* S, but no room for IRD and ORD */
	MPA_CONNECT_TRAILING,     /* octets after a Request: no FPDU may follow before the Reply */
	MPA_CONNECT_REJECTED,     /* R: the private data may say why */
	MPA_CONNECT_NOT_ENHANCED, /* a Reply without S to a Request with S */
	MPA_CONNECT_UNASKED,      /* a Reply with S or A to a Request without it */
	MPA_CONNECT_NO_PEER_TO_PEER, /* a Reply without A to a Request with A */
	/* The responder would have more reads outstanding than the initiator can answer. */
	MPA_CONNECT_IRD_SHORT,
	MPA_CONNECT_NO_RTR, /* the two ends have no ready-to-receive message in common */
	MPA_CONNECT_VERDICT_COUNT
};

/* What one end supports and wants. */
struct mpa_offer {
	bool markers; /* in what this end receives */
	bool crc;
	uint16_t max_ird;
	uint16_t max_ord;
	uint8_t rtr; /* enum mpa_rtr: what it can send (initiator) or accept (responder) */
};

/* The parameters of a connection, as one of its ends sees them. */
struct mpa_agreement {
	bool crc;
	bool send_markers;
	bool receive_markers;
	bool enhanced;
	bool peer_to_peer;
	uint8_t rtr;  /* the responder's choice; the initiator picks one of them */
	uint16_t ird; /* reads that this end must be ready to answer at a time */
	uint16_t ord; /* reads that this end may have outstanding */
};

/* Write @c to @out. Returns its length, or 0 if it does not fit into @out_bytes or @c violates a
 * limit above. */
size_t mpa_connect_encode(const struct mpa_connect *c, uint8_t *out, size_t out_bytes);

/* Does @c keep to the limits above? */
bool mpa_connect_valid(const struct mpa_connect *c);
/* The MPA_ENHANCED_BYTES with A, B, IRD, C, D and ORD. */
void mpa_depths_encode(const struct mpa_connect *c, uint8_t *out);
void mpa_depths_decode(const uint8_t *data, struct mpa_connect *c);

/* Read the frame at the start of @in, which must be of kind @due. On MPA_CONNECT_OK *c is filled in
 * and *used is the frame's length; more may follow a Reply. Octets are checked as early as
 * possible, so that nobody waits for a peer that does not speak MPA. A Reply with R is
 * MPA_CONNECT_OK here: see mpa_connect_judge(). */
enum mpa_connect_verdict mpa_connect_decode(enum mpa_frame due, const uint8_t *in, size_t in_bytes,
                                            struct mpa_connect *c, size_t *used);

/* The length of the frame that begins with the MPA_CONNECT_HEADER_BYTES at @header, which
 * mpa_connect_decode() has not refused. */
size_t mpa_connect_bytes(const uint8_t *header);

/* The responder's part: the Reply to @request, and the resulting agreement. @reply->private_data is
 * left empty for the caller to fill in. On MPA_CONNECT_NO_RTR, *reply is a rejection. */
enum mpa_connect_verdict mpa_connect_answer(const struct mpa_connect *request,
                                            const struct mpa_offer *offer,
                                            struct mpa_connect *reply,
                                            struct mpa_agreement *agreement);

/* The initiator's part: does @reply answer @request, and what is the agreement? */
enum mpa_connect_verdict mpa_connect_judge(const struct mpa_connect *request,
                                           const struct mpa_connect *reply,
                                           struct mpa_agreement *agreement);

#endif
