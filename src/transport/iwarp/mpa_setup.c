/* The negotiation of MPA; see mpa_setup.h. */
#include "transport/iwarp/mpa_setup.h"

#include <assert.h>
#include <string.h>

#include "wire/ddp_sctp.h"

/* Encode @own as the first message of its direction. Returns its length; 0: it is not valid. */
static size_t setup_encode(struct mpa_setup *setup, const struct mpa_connect *own)
{
	return setup->session ? ddp_sctp_control_encode(0, own, setup->out, sizeof(setup->out))
	                      : mpa_connect_encode(own, setup->out, sizeof(setup->out));
}

static void setup_fail(struct mpa_setup *setup, enum mpa_setup_why why)
{
	setup->state = MPA_SETUP_FAILED;
	setup->why = why;
	setup->deadline_ns = 0;
	setup->taken = setup->length; /* what is left of our frame would mislead the peer */
}

static void setup_fail_frame(struct mpa_setup *setup, enum mpa_connect_verdict verdict)
{
	setup_fail(setup, MPA_SETUP_BAD_FRAME);
	setup->verdict = verdict;
}

static void setup_conclude(struct mpa_setup *setup, enum mpa_setup_state state)
{
	setup->state = state;
	setup->deadline_ns = 0;
}

bool mpa_setup_request(struct mpa_setup *setup, const struct mpa_wish *wish,
                       const uint8_t *private_data, size_t bytes, uint64_t deadline_ns)
{
	bool enhanced = wish->revision >= 2;
	struct mpa_connect own = {.frame = MPA_REQUEST,
	                          .revision = wish->revision,
	                          .markers = wish->offer.markers && !wish->session,
	                          .crc = wish->offer.crc && !wish->session,
	                          .enhanced = enhanced,
	                          .peer_to_peer = enhanced && wish->peer_to_peer,
	                          .rtr = enhanced && wish->peer_to_peer ? wish->offer.rtr : 0,
	                          .ird = wish->offer.max_ird,
	                          .ord = wish->offer.max_ord,
	                          .private_data = private_data,
	                          .private_bytes = bytes};
	memset(setup, 0, sizeof(*setup));
	setup->session = wish->session;
	setup->length = setup_encode(setup, &own);
	if (setup->length == 0)
		return false;
	own.private_data = NULL; /* the caller's memory */
	own.private_bytes = 0;
	setup->own = own;
	setup->initiator = true;
	setup->state = MPA_SETUP_REPLY_DUE;
	setup->due = MPA_CONNECT_HEADER_BYTES;
	setup->deadline_ns = deadline_ns;
	return true;
}

void mpa_setup_await(struct mpa_setup *setup, uint64_t deadline_ns)
{
	memset(setup, 0, sizeof(*setup));
	setup->state = MPA_SETUP_REQUEST_DUE;
	setup->due = MPA_CONNECT_HEADER_BYTES;
	setup->deadline_ns = deadline_ns;
}

/* Encode @reply with private data into out. */
static bool setup_reply(struct mpa_setup *setup, struct mpa_connect *reply,
                        const uint8_t *private_data, size_t bytes, uint64_t deadline_ns)
{
	reply->private_data = private_data;
	reply->private_bytes = bytes;
	size_t length = setup_encode(setup, reply);
	if (length == 0)
		return false;
	setup->length = length;
	setup->taken = 0;
	setup->rejects = reply->reject;
	setup->state = MPA_SETUP_REPLYING;
	setup->deadline_ns = deadline_ns;
	return true;
}

bool mpa_setup_accept(struct mpa_setup *setup, const struct mpa_offer *offer,
                      const uint8_t *private_data, size_t bytes, uint64_t deadline_ns)
{
	struct mpa_connect reply;
	struct mpa_offer own = *offer;
	assert(setup->state == MPA_SETUP_ASKED);
	own.markers = offer->markers && !setup->session;
	own.crc = offer->crc && !setup->session;
	enum mpa_connect_verdict verdict =
	        mpa_connect_answer(&setup->peer, &own, &reply, &setup->agreement);
	setup->verdict = verdict; /* MPA_CONNECT_NO_RTR: why it is rejected all the same */
	return setup_reply(setup, &reply, private_data, bytes, deadline_ns);
}

bool mpa_setup_reject(struct mpa_setup *setup, const uint8_t *private_data, size_t bytes,
                      uint64_t deadline_ns)
{
	struct mpa_connect reply;
	struct mpa_agreement unused;
	const struct mpa_offer nothing = {.crc = setup->peer.crc, .rtr = MPA_RTR_ALL};
	assert(setup->state == MPA_SETUP_ASKED);
	mpa_connect_answer(&setup->peer, &nothing, &reply, &unused);
	reply.reject = true;
	return setup_reply(setup, &reply, private_data, bytes, deadline_ns);
}

void mpa_setup_expire(struct mpa_setup *setup, uint64_t now_ns)
{
	if (setup->deadline_ns != 0 && now_ns >= setup->deadline_ns)
		setup_fail(setup, MPA_SETUP_TIMEOUT);
}

/* --- transport/stream.h --- */

static size_t setup_offer(void *context, struct stream_run *runs, size_t max)
{
	struct mpa_setup *setup = context;
	assert(max > 0);
	if (setup->taken == setup->length)
		return 0;
	runs[0] = (struct stream_run){setup->out + setup->taken, setup->length - setup->taken};
	return 1;
}

static void setup_taken(void *context, size_t bytes)
{
	struct mpa_setup *setup = context;
	assert(bytes <= setup->length - setup->taken);
	setup->taken += bytes;
	if (setup->state == MPA_SETUP_REPLYING && setup->taken == setup->length)
		setup_conclude(setup, setup->rejects ? MPA_SETUP_REJECTED : MPA_SETUP_AGREED);
}

static size_t setup_want(void *context, struct stream_run *runs, size_t max)
{
	struct mpa_setup *setup = context;
	assert(max > 0);
	switch (setup->state) {
	case MPA_SETUP_REPLY_DUE:
	case MPA_SETUP_REQUEST_DUE:
		runs[0] = (struct stream_run){setup->in + setup->received,
		                              setup->due - setup->received};
		return 1;
	case MPA_SETUP_ASKED: /* out is not in use yet */
		runs[0] = (struct stream_run){setup->out, 1};
		return 1;
	default:
		return 0;
	}
}

/* The whole frame of the peer is there. */
static void setup_judge(struct mpa_setup *setup)
{
	if (!setup->initiator) {
		setup->state = MPA_SETUP_ASKED;
		setup->deadline_ns = 0; /* the program takes as long as it likes */
		return;
	}
	enum mpa_connect_verdict verdict =
	        mpa_connect_judge(&setup->own, &setup->peer, &setup->agreement);
	/* A Reply to a Request that was not even sent answers something else. */
	if (setup->taken < setup->length)
		setup_fail_frame(setup, MPA_CONNECT_UNASKED);
	else if (verdict == MPA_CONNECT_OK)
		setup_conclude(setup, MPA_SETUP_AGREED);
	else if (verdict == MPA_CONNECT_REJECTED)
		setup_conclude(setup, MPA_SETUP_REJECTED);
	else
		setup_fail_frame(setup, verdict);
}

static bool setup_arrived(void *context, size_t bytes)
{
	struct mpa_setup *setup = context;
	enum mpa_frame due = setup->initiator ? MPA_REPLY : MPA_REQUEST;
	size_t used;
	if (setup->state == MPA_SETUP_ASKED) {
		setup_fail_frame(setup, MPA_CONNECT_TRAILING);
		return false;
	}
	assert(bytes <= setup->due - setup->received);
	setup->received += bytes;
	enum mpa_connect_verdict verdict =
	        mpa_connect_decode(due, setup->in, setup->received, &setup->peer, &used);
	if (verdict == MPA_CONNECT_MORE) {
		if (setup->received == MPA_CONNECT_HEADER_BYTES)
			setup->due = mpa_connect_bytes(setup->in);
	} else if (verdict != MPA_CONNECT_OK) {
		setup_fail_frame(setup, verdict);
	} else {
		assert(used == setup->received);
		setup_judge(setup);
	}
	return setup->state != MPA_SETUP_FAILED;
}

bool mpa_setup_message(struct mpa_setup *setup, const uint8_t *message, size_t bytes)
{
	enum mpa_frame due = setup->initiator ? MPA_REPLY : MPA_REQUEST;
	enum mpa_connect_verdict verdict = MPA_CONNECT_TRAILING;
	uint16_t ssn = 0;
	if (setup->state == MPA_SETUP_REPLY_DUE || setup->state == MPA_SETUP_REQUEST_DUE) {
		size_t some = bytes < sizeof(setup->in) ? bytes : sizeof(setup->in);
		memcpy(setup->in, message, some);
		verdict = ddp_sctp_control_decode(due, setup->in, some, &ssn, &setup->peer);
	}
	/* RFC 5043 section 6.4: a responder whose program cannot be asked answers with a
	 * Terminate. */
	bool refused = setup->state == MPA_SETUP_REPLY_DUE && setup->taken == setup->length &&
	               ddp_sctp_is_terminate(message, bytes, &ssn) && ssn == 0;
	if (verdict == MPA_CONNECT_OK && ssn != 0)
		verdict = MPA_CONNECT_TRAILING;
	if (refused) {
		setup->peer = (struct mpa_connect){.frame = MPA_REPLY, .reject = true};
		setup_conclude(setup, MPA_SETUP_REJECTED);
	} else if (verdict == MPA_CONNECT_OK) {
		setup_judge(setup);
	} else {
		setup_fail_frame(setup, verdict);
	}
	return setup->state != MPA_SETUP_FAILED;
}

static void setup_ended(void *context, enum stream_end why)
{
	struct mpa_setup *setup = context;
	/* A peer that has sent its Request and will send no more cannot speak iWARP either. */
	if (!mpa_setup_over(setup))
		setup_fail(setup, why == STREAM_BROKEN ? MPA_SETUP_BROKEN : MPA_SETUP_CLOSED);
}

const struct stream_ops mpa_setup_stream = {
        .offer = setup_offer,
        .taken = setup_taken,
        .want = setup_want,
        .arrived = setup_arrived,
        .ended = setup_ended,
};

const char *mpa_setup_text(const struct mpa_setup *setup)
{
	static const char *const bad[MPA_CONNECT_VERDICT_COUNT] = {
	        [MPA_CONNECT_BAD_KEY] = "the peer does not speak MPA",
	        [MPA_CONNECT_CROSSED] = "both ends want to be the initiator, or both the responder",
	        [MPA_CONNECT_BAD_REVISION] = "the peer speaks a revision of MPA that is not 1 or "
	                                     "2, or answers with a higher one than it was asked",
	        [MPA_CONNECT_PRIVATE_TOO_LONG] =
	                "the peer sends more than 512 bytes of private data",
	        [MPA_CONNECT_ENHANCED_SHORT] = "the peer's frame has no room for IRD and ORD",
	        [MPA_CONNECT_TRAILING] = "the peer sends data before its request is answered",
	        [MPA_CONNECT_NOT_ENHANCED] = "the peer does not know revision 2 of MPA",
	        [MPA_CONNECT_UNASKED] = "the peer answers what it was not asked",
	        [MPA_CONNECT_NO_PEER_TO_PEER] =
	                "the peer does not support peer-to-peer connections",
	        [MPA_CONNECT_IRD_SHORT] =
	                "the peer wants more outstanding reads than this end allows",
	        [MPA_CONNECT_NO_RTR] = "the two ends have no ready-to-receive message in common",
	};
	switch (setup->why) {
	case MPA_SETUP_BAD_FRAME:
		return bad[setup->verdict] != NULL ? bad[setup->verdict] : "invalid frame";
	case MPA_SETUP_CLOSED:
		return "the peer has closed the connection";
	case MPA_SETUP_BROKEN:
		return "the connection broke";
	case MPA_SETUP_TIMEOUT:
		return "the peer did not answer in time";
	default:
		return setup->state == MPA_SETUP_REJECTED ? "rejected" : "no error";
	}
}
