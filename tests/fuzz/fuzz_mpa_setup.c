/* Connection set-up of iWARP against a peer that says anything: the first byte chooses the end and
 * what it wants, the second how the rest is cut into pieces. The result must not depend on the
 * pieces, a connection must not exist without an agreement that both limits allow, and whoever
 * waits for the peer knows until when. */
#include <stdlib.h>
#include <string.h>

#include "transport/iwarp/mpa_setup.h"

#define DEADLINE 77u
#define MAX_IRD  4
#define MAX_ORD  5

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void begin(struct mpa_setup *setup, uint8_t how)
{
	struct mpa_wish wish = {.offer = {.markers = how & 4,
	                                  .crc = how & 8,
	                                  .max_ird = MAX_IRD,
	                                  .max_ord = MAX_ORD,
	                                  .rtr = how >> 5},
	                        .revision = how & 2 ? 2 : 1,
	                        .peer_to_peer = how & 16};
	uint8_t out[MPA_CONNECT_MAX_BYTES];
	if (how & 1) {
		mpa_setup_await(setup, DEADLINE);
	} else {
		if (!mpa_setup_request(setup, &wish, NULL, 0, DEADLINE))
			abort();
		stream_drain(&mpa_setup_stream, setup, out, sizeof(out));
	}
}

static void check(const struct mpa_setup *setup)
{
	bool waits = setup->state == MPA_SETUP_REPLY_DUE || setup->state == MPA_SETUP_REQUEST_DUE ||
	             setup->state == MPA_SETUP_REPLYING;
	if (setup->state >= MPA_SETUP_STATES || (setup->deadline_ns != 0) != waits)
		abort();
	if ((setup->state == MPA_SETUP_FAILED) != (setup->why != MPA_SETUP_NO_REASON))
		abort();
	if (setup->state == MPA_SETUP_AGREED &&
	    (setup->agreement.ird > MAX_IRD || setup->agreement.ord > MAX_ORD))
		abort();
	if (mpa_setup_text(setup) == NULL)
		abort();
}

/* Feed @data in pieces of @piece bytes. */
static void run(struct mpa_setup *setup, uint8_t how, const uint8_t *data, size_t bytes,
                size_t piece)
{
	bool open = true;
	begin(setup, how);
	for (size_t at = 0; at < bytes && open;) {
		size_t part = piece < bytes - at ? piece : bytes - at;
		size_t used = stream_feed(&mpa_setup_stream, setup, data + at, part, &open);
		check(setup);
		at += used;
		if (used < part)
			break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static struct mpa_setup whole, parts;
	static const struct mpa_offer offer = {
	        .crc = true, .max_ird = MAX_IRD, .max_ord = MAX_ORD, .rtr = MPA_RTR_ALL};
	if (bytes < 2)
		return 0;
	run(&whole, data[0], data + 2, bytes - 2, bytes);
	run(&parts, data[0], data + 2, bytes - 2, 1u + data[1] % 32);
	if (whole.state != parts.state || whole.why != parts.why || whole.verdict != parts.verdict)
		abort();
	if (parts.state == MPA_SETUP_ASKED) {
		uint8_t out[MPA_CONNECT_MAX_BYTES];
		if (data[1] & 128)
			mpa_setup_reject(&parts, data, 2, DEADLINE);
		else
			mpa_setup_accept(&parts, &offer, data, 2, DEADLINE);
		check(&parts);
		stream_drain(&mpa_setup_stream, &parts, out, sizeof(out));
		check(&parts);
		if (!mpa_setup_over(&parts))
			abort();
	} else {
		mpa_setup_stream.ended(&parts, data[1] & 128 ? STREAM_BROKEN : STREAM_CLOSED);
		check(&parts);
		if (!mpa_setup_over(&parts))
			abort();
	}
	return 0;
}
