/* Any octets as an MPA Request or Reply: what is taken must come out of the encoder again as it
 * came, but for what the RFCs say is not looked at, and must not change when more is known. */
#include "wire/mpa_connect.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(enum mpa_frame due, const uint8_t *data, size_t bytes)
{
	struct mpa_connect c;
	size_t used = 0;
	enum mpa_connect_verdict verdict = mpa_connect_decode(due, data, bytes, &c, &used);
	for (size_t cut = 0; cut < bytes && verdict != MPA_CONNECT_TRAILING; cut++) {
		struct mpa_connect part;
		size_t part_used;
		enum mpa_connect_verdict early =
		        mpa_connect_decode(due, data, cut, &part, &part_used);
		if (early != MPA_CONNECT_MORE && early != verdict)
			abort();
	}
	if (verdict != MPA_CONNECT_OK)
		return;
	uint8_t out[MPA_CONNECT_MAX_BYTES];
	if (used > bytes || mpa_connect_encode(&c, out, sizeof(out)) != used)
		abort();
	uint8_t looked_at =
	        (uint8_t)(0xc0 | (due == MPA_REPLY ? 0x20 : 0) | (c.revision > 1 ? 0x10 : 0));
	if (memcmp(out, data, 16) != 0 || out[16] != (data[16] & looked_at) ||
	    memcmp(out + 17, data + 17, used - 17) != 0)
		abort();

	struct mpa_agreement agreement;
	if (due == MPA_REQUEST) {
		struct mpa_offer offer = {
		        .crc = bytes & 1, .max_ird = 16, .max_ord = 16, .rtr = MPA_RTR_ALL};
		struct mpa_connect reply;
		verdict = mpa_connect_answer(&c, &offer, &reply, &agreement);
		if (mpa_connect_encode(&reply, out, sizeof(out)) == 0)
			abort();
		/* What we answer, an initiator takes. */
		if (verdict == MPA_CONNECT_OK &&
		    mpa_connect_judge(&c, &reply, &agreement) != MPA_CONNECT_OK)
			abort();
	} else {
		struct mpa_connect request = {.frame = MPA_REQUEST,
		                              .revision = 2,
		                              .enhanced = true,
		                              .peer_to_peer = true,
		                              .rtr = MPA_RTR_WRITE,
		                              .ird = 8,
		                              .ord = 8};
		if (mpa_connect_judge(&request, &c, &agreement) == MPA_CONNECT_OK &&
		    (agreement.ird > 8 || agreement.ord > 8))
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	check(MPA_REQUEST, data, bytes);
	check(MPA_REPLY, data, bytes);
	return 0;
}
