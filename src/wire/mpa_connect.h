/* The frames that open an iWARP connection: MPA Request and Reply (RFC 5044 section 7.1) and what
 * RFC 6581 adds to them in revision 2, and what two ends agree on by exchanging them.
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
 * which then are used both ways; R, in a Reply, that the connection is refused. */
#ifndef WIRE_MPA_CONNECT_H
#define WIRE_MPA_CONNECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MPA_KEY_BYTES            16
#define MPA_CONNECT_HEADER_BYTES 20
#define MPA_ENHANCED_BYTES       4   /* A, B, IRD, C, D, ORD */
#define MPA_MAX_PRIVATE_BYTES    512 /* PD_Length, the four octets above included */
#define MPA_CONNECT_MAX_BYTES    (MPA_CONNECT_HEADER_BYTES + MPA_MAX_PRIVATE_BYTES)
#define MPA_MAX_DEPTH            0x3ffe /* of IRD and ORD */
#define MPA_DEPTH_ELSEWHERE      0x3fff /* RFC 6581 section 9.1: left to the application */

enum mpa_frame { MPA_REQUEST, MPA_REPLY };

/* The first message of an initiator that lets the responder of a peer-to-peer connection send:
 * "ready to receive". */
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
	bool enhanced;     /* S: the next four are there; revision 2 only */
	bool peer_to_peer; /* A */
	uint8_t rtr;       /* enum mpa_rtr */
	uint16_t ird;
	uint16_t ord;
	const uint8_t *private_data; /* the application's; once decoded, it lies in the frame */
	size_t private_bytes;
};

/* What a frame, or a Request and its Reply, deserve. All but the first two end the connection. */
enum mpa_connect_verdict {
	MPA_CONNECT_OK,
	MPA_CONNECT_MORE,    /* not all octets are there yet */
	MPA_CONNECT_BAD_KEY, /* not MPA */
	MPA_CONNECT_CROSSED, /* a Request where a Reply is due, or the other way round: two of one
	                        role */
	MPA_CONNECT_BAD_REVISION,     /* neither 1 nor 2, or a Reply above its Request */
	MPA_CONNECT_PRIVATE_TOO_LONG, /* PD_Length above 512 */
	MPA_CONNECT_ENHANCED_SHORT,   /* S, but no room for IRD and ORD */
	MPA_CONNECT_TRAILING,     /* octets after a Request: no FPDU may follow before the Reply */
	MPA_CONNECT_REJECTED,     /* R: the private data may say why */
	MPA_CONNECT_NOT_ENHANCED, /* a Reply without S to a Request with it */
	MPA_CONNECT_UNASKED,      /* a Reply with S or A to a Request without */
	MPA_CONNECT_NO_PEER_TO_PEER, /* a Reply without A to a Request with it */
	MPA_CONNECT_IRD_SHORT, /* the responder will have more reads outstanding than the initiator
	                          can take */
	MPA_CONNECT_NO_RTR,    /* the two have no ready-to-receive message in common */
	MPA_CONNECT_VERDICT_COUNT
};

/* What one end can do and wants. */
struct mpa_offer {
	bool markers; /* in what this end receives */
	bool crc;
	uint16_t max_ird;
	uint16_t max_ord;
	uint8_t rtr; /* enum mpa_rtr: what it can send (initiator) or take (responder) */
};

/* How a connection runs, as one of its ends sees it. */
struct mpa_agreement {
	bool crc;
	bool send_markers;
	bool receive_markers;
	bool enhanced;
	bool peer_to_peer;
	uint8_t rtr;  /* the choice of the responder; the initiator picks one of them */
	uint16_t ird; /* reads this end must be ready to answer at a time */
	uint16_t ord; /* reads this end may have outstanding */
};

/* Lay @c into @out. Returns its length, or 0 when it does not fit @out_bytes or @c breaks a limit
 * above. */
size_t mpa_connect_encode(const struct mpa_connect *c, uint8_t *out, size_t out_bytes);

/* Read the frame at the start of @in, which must be of kind @due. On MPA_CONNECT_OK *c is filled
 * and *used is the frame's length; a Reply may be followed by more. Judged as early as the octets
 * allow, so that a stranger is not waited for. A Reply with R is MPA_CONNECT_OK here: see
 * mpa_connect_judge(). */
enum mpa_connect_verdict mpa_connect_decode(enum mpa_frame due, const uint8_t *in, size_t in_bytes,
                                            struct mpa_connect *c, size_t *used);

/* The responder's part: the Reply to @request, and what holds afterwards. @reply->private_data is
 * left empty for the caller to fill in. On MPA_CONNECT_NO_RTR, *reply is a rejection. */
enum mpa_connect_verdict mpa_connect_answer(const struct mpa_connect *request,
                                            const struct mpa_offer *offer,
                                            struct mpa_connect *reply,
                                            struct mpa_agreement *agreement);

/* The initiator's part: does @reply answer @request, and what holds afterwards? */
enum mpa_connect_verdict mpa_connect_judge(const struct mpa_connect *request,
                                           const struct mpa_connect *reply,
                                           struct mpa_agreement *agreement);

#endif
