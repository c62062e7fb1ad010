/* How two ends of a byte stream agree to speak iWARP on it: one sends an MPA Request, the other
 * answers with a Reply (RFC 5044 section 7.1, RFC 6581). One struct per end, for as long as that
 * takes; it is a transport of transport/stream.h, so bytes may come in any pieces.
 *
 *	initiator                                responder
 *	   | mpa_setup_request()                    | mpa_setup_await()
 *	REPLY_DUE   -- Request -->               REQUEST_DUE
 *	   |                                        | the whole Request has arrived
 *	   |                                     ASKED
 *	   |                                        | mpa_setup_accept(), mpa_setup_reject()
 *	   |            <-- Reply --             REPLYING
 *	AGREED, REJECTED                         AGREED, REJECTED
 *
 * Either end reaches FAILED instead when the peer sends anything else, leaves, or says nothing
 * until the deadline. The bytes behind the Reply are not touched: they are the first FPDUs. RFC
 * 5044 allows no FPDU between Request and Reply: the responder takes one byte more than the Request
 * while the program decides, and fails if it comes. So it also learns that the peer has left.
 *
 * On SCTP the same exchange takes messages of session control (RFC 5043): Initiate instead of the
 * Request, Accept or Reject instead of the Reply, each with the first DDP-SSN of its direction. A
 * Terminate instead of the Reply counts as a Reject without private data. */
#ifndef TRANSPORT_IWARP_MPA_SETUP_H
#define TRANSPORT_IWARP_MPA_SETUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transport/stream.h"
#include "wire/mpa_connect.h"

enum mpa_setup_state {
	MPA_SETUP_REPLY_DUE,   /* initiator: the Request is sent, or being sent */
	MPA_SETUP_REQUEST_DUE, /* responder */
	MPA_SETUP_ASKED,       /* responder: the program has to answer */
	MPA_SETUP_REPLYING,    /* responder: the Reply is being sent */
	MPA_SETUP_AGREED,      /* the next byte is that of an FPDU */
	MPA_SETUP_REJECTED,    /* by the program of the responder; close */
	MPA_SETUP_FAILED,      /* close; why says more */
	MPA_SETUP_STATES
};

enum mpa_setup_why {
	MPA_SETUP_NO_REASON,
	MPA_SETUP_BAD_FRAME, /* verdict says what is wrong with what the peer sent */
	MPA_SETUP_CLOSED,    /* the peer has closed the stream */
	MPA_SETUP_BROKEN,    /* the stream broke */
	MPA_SETUP_TIMEOUT    /* the deadline has passed */
};

/* What the initiator asks for. */
struct mpa_wish {
	bool session; /* on SCTP: in messages of session control */
	struct mpa_offer offer;
	uint8_t revision;  /* 1 or 2; only 2 negotiates IRD and ORD */
	bool peer_to_peer; /* revision 2: the responder may send first, after the RTR message */
};

struct mpa_setup {
	enum mpa_setup_state state;
	enum mpa_setup_why why;           /* of MPA_SETUP_FAILED */
	enum mpa_connect_verdict verdict; /* of MPA_SETUP_BAD_FRAME */
	bool initiator;
	/* On SCTP: out is one message of session control (wire/ddp_sctp.h), and what arrives is
	 * passed to mpa_setup_message(). A responder sets it after mpa_setup_await(). */
	bool session;
	uint64_t deadline_ns; /* 0: none; see mpa_setup_expire() */
	/* The frame that has arrived, for its private data: valid in ASKED, and for the initiator
	 * in AGREED and REJECTED. */
	struct mpa_connect peer;
	struct mpa_agreement agreement; /* valid in AGREED */
	struct mpa_connect own;         /* the Request that we have sent */
	size_t received, due;           /* of in */
	size_t taken, length;           /* of out */
	bool rejects;                   /* out is a Reply with R */
	uint8_t in[MPA_CONNECT_MAX_BYTES];
	uint8_t out[MPA_CONNECT_MAX_BYTES];
};

extern const struct stream_ops mpa_setup_stream; /* context: struct mpa_setup */

/* Begin as initiator: send a Request with @bytes of private data, and fail at @deadline_ns. False:
 * the private data does not fit (512 bytes, in revision 2 four less), or @wish is not valid. */
bool mpa_setup_request(struct mpa_setup *setup, const struct mpa_wish *wish,
                       const uint8_t *private_data, size_t bytes, uint64_t deadline_ns);
/* Begin as responder; fail if the Request is not there at @deadline_ns. */
void mpa_setup_await(struct mpa_setup *setup, uint64_t deadline_ns);
/* Answer in ASKED; the Reply must have been taken at @deadline_ns. False: the private data does not
 * fit, and nothing has changed. If no ready-to-receive message suits both ends, the answer is a
 * rejection (RFC 6581 section 9.2). */
bool mpa_setup_accept(struct mpa_setup *setup, const struct mpa_offer *offer,
                      const uint8_t *private_data, size_t bytes, uint64_t deadline_ns);
bool mpa_setup_reject(struct mpa_setup *setup, const uint8_t *private_data, size_t bytes,
                      uint64_t deadline_ns);
/* The time is @now_ns: fail if the deadline has passed. */
void mpa_setup_expire(struct mpa_setup *setup, uint64_t now_ns);

/* On SCTP: the message of session control at @message has come. False: it is invalid, and the state
 * is MPA_SETUP_FAILED. */
bool mpa_setup_message(struct mpa_setup *setup, const uint8_t *message, size_t bytes);

/* Is there nothing left to do with this struct? */
static inline bool mpa_setup_over(const struct mpa_setup *setup)
{
	return setup->state >= MPA_SETUP_AGREED;
}

/* Why it failed, in words. */
const char *mpa_setup_text(const struct mpa_setup *setup);

#endif
