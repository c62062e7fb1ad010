/* MPA Request and Reply; see mpa_connect.h. Reserved bits are sent as zero and ignored on reception
 * (RFC 5044 section 7.1); Linux siw uses one of them. */
#include "wire/mpa_connect.h"

#include "wire/be.h"

#include <assert.h>
#include <string.h>

#define MPA_FLAG_M 0x80
#define MPA_FLAG_C 0x40
#define MPA_FLAG_R 0x20
#define MPA_FLAG_S 0x10

#define MPA_DEPTH_MASK 0x3fff
#define MPA_HIGH_FLAG  0x8000 /* A before IRD, C before ORD */
#define MPA_LOW_FLAG   0x4000 /* B before IRD, D before ORD */

static const char *const keys[] = {
        [MPA_REQUEST] = "MPA ID Req Frame",
        [MPA_REPLY] = "MPA ID Rep Frame",
};

bool mpa_connect_valid(const struct mpa_connect *c)
{
	size_t enhanced_bytes = c->enhanced ? MPA_ENHANCED_BYTES : 0;
	if (c->private_bytes > MPA_MAX_PRIVATE_BYTES - enhanced_bytes)
		return false;
	if (c->revision < 1 || c->revision > 2 || (c->enhanced && c->revision < 2))
		return false;
	if (c->ird > MPA_DEPTH_ELSEWHERE || c->ord > MPA_DEPTH_ELSEWHERE)
		return false;
	return !c->reject || c->frame == MPA_REPLY;
}

void mpa_depths_encode(const struct mpa_connect *c, uint8_t *out)
{
	be16_store(out, (uint16_t)(c->ird | (c->peer_to_peer ? MPA_HIGH_FLAG : 0) |
	                           (c->rtr & MPA_RTR_SEND ? MPA_LOW_FLAG : 0)));
	be16_store(out + 2, (uint16_t)(c->ord | (c->rtr & MPA_RTR_WRITE ? MPA_HIGH_FLAG : 0) |
	                               (c->rtr & MPA_RTR_READ ? MPA_LOW_FLAG : 0)));
}

size_t mpa_connect_encode(const struct mpa_connect *c, uint8_t *out, size_t out_bytes)
{
	size_t enhanced_bytes = c->enhanced ? MPA_ENHANCED_BYTES : 0;
	if (!mpa_connect_valid(c))
		return 0;
	size_t pd_bytes = enhanced_bytes + c->private_bytes;
	if (out_bytes < MPA_CONNECT_HEADER_BYTES + pd_bytes)
		return 0;

	memcpy(out, keys[c->frame], MPA_KEY_BYTES);
	out[16] = (uint8_t)((c->markers ? MPA_FLAG_M : 0) | (c->crc ? MPA_FLAG_C : 0) |
	                    (c->reject ? MPA_FLAG_R : 0) | (c->enhanced ? MPA_FLAG_S : 0));
	out[17] = c->revision;
	be16_store(out + 18, (uint16_t)pd_bytes);
	uint8_t *data = out + MPA_CONNECT_HEADER_BYTES;
	if (c->enhanced)
		mpa_depths_encode(c, data);
	if (c->private_bytes != 0)
		memcpy(data + enhanced_bytes, c->private_data, c->private_bytes);
	return MPA_CONNECT_HEADER_BYTES + pd_bytes;
}

/* Is what has arrived so far the start of the key of @due? */
static enum mpa_connect_verdict judge_key(enum mpa_frame due, const uint8_t *in, size_t in_bytes)
{
	size_t bytes = in_bytes < MPA_KEY_BYTES ? in_bytes : MPA_KEY_BYTES;
	enum mpa_frame other = due == MPA_REQUEST ? MPA_REPLY : MPA_REQUEST;
	if (bytes == 0 || memcmp(in, keys[due], bytes) == 0)
		return bytes == MPA_KEY_BYTES ? MPA_CONNECT_OK : MPA_CONNECT_MORE;
	/* Both ends are initiators: RFC 5044 section 7.1 prefers neither, and both close. */
	if (memcmp(in, keys[other], bytes) == 0)
		return bytes == MPA_KEY_BYTES ? MPA_CONNECT_CROSSED : MPA_CONNECT_MORE;
	return MPA_CONNECT_BAD_KEY;
}

void mpa_depths_decode(const uint8_t *data, struct mpa_connect *c)
{
	uint16_t first = be16_load(data);
	uint16_t second = be16_load(data + 2);
	c->ird = first & MPA_DEPTH_MASK;
	c->ord = second & MPA_DEPTH_MASK;
	c->peer_to_peer = first & MPA_HIGH_FLAG;
	c->rtr = (uint8_t)((first & MPA_LOW_FLAG ? MPA_RTR_SEND : 0) |
	                   (second & MPA_HIGH_FLAG ? MPA_RTR_WRITE : 0) |
	                   (second & MPA_LOW_FLAG ? MPA_RTR_READ : 0));
}

enum mpa_connect_verdict mpa_connect_decode(enum mpa_frame due, const uint8_t *in, size_t in_bytes,
                                            struct mpa_connect *c, size_t *used)
{
	enum mpa_connect_verdict key = judge_key(due, in, in_bytes);
	if (key != MPA_CONNECT_OK)
		return key;
	if (in_bytes >= 18 && (in[17] < 1 || in[17] > 2))
		return MPA_CONNECT_BAD_REVISION;
	if (in_bytes < MPA_CONNECT_HEADER_BYTES)
		return MPA_CONNECT_MORE;

	size_t pd_bytes = be16_load(in + 18);
	if (pd_bytes > MPA_MAX_PRIVATE_BYTES)
		return MPA_CONNECT_PRIVATE_TOO_LONG;
	/* In revision 1 the S bit is reserved (RFC 5044 section 7.1), so it is ignored. */
	bool enhanced = in[17] >= 2 && (in[16] & MPA_FLAG_S);
	size_t enhanced_bytes = enhanced ? MPA_ENHANCED_BYTES : 0;
	if (pd_bytes < enhanced_bytes)
		return MPA_CONNECT_ENHANCED_SHORT;
	size_t frame_bytes = MPA_CONNECT_HEADER_BYTES + pd_bytes;
	if (in_bytes < frame_bytes)
		return MPA_CONNECT_MORE;
	if (due == MPA_REQUEST && in_bytes > frame_bytes)
		return MPA_CONNECT_TRAILING;

	*c = (struct mpa_connect){
	        .frame = due,
	        .revision = in[17],
	        .markers = in[16] & MPA_FLAG_M,
	        .crc = in[16] & MPA_FLAG_C,
	        .reject = due == MPA_REPLY && (in[16] & MPA_FLAG_R),
	        .enhanced = enhanced,
	        .private_data = in + MPA_CONNECT_HEADER_BYTES + enhanced_bytes,
	        .private_bytes = pd_bytes - enhanced_bytes,
	};
	if (enhanced)
		mpa_depths_decode(in + MPA_CONNECT_HEADER_BYTES, c);
	*used = frame_bytes;
	return MPA_CONNECT_OK;
}

size_t mpa_connect_bytes(const uint8_t *header)
{
	size_t pd_bytes = be16_load(header + 18);
	assert(pd_bytes <= MPA_MAX_PRIVATE_BYTES);
	return MPA_CONNECT_HEADER_BYTES + pd_bytes;
}

/* The smaller depth; one that is left to the application sets no limit. */
static uint16_t smaller_depth(uint16_t a, uint16_t b)
{
	if (a == MPA_DEPTH_ELSEWHERE)
		return b;
	if (b == MPA_DEPTH_ELSEWHERE)
		return a;
	return a < b ? a : b;
}

enum mpa_connect_verdict mpa_connect_answer(const struct mpa_connect *request,
                                            const struct mpa_offer *offer,
                                            struct mpa_connect *reply,
                                            struct mpa_agreement *agreement)
{
	assert(request->frame == MPA_REQUEST);
	assert(offer->max_ird <= MPA_MAX_DEPTH && offer->max_ord <= MPA_MAX_DEPTH);
	*reply = (struct mpa_connect){
	        .frame = MPA_REPLY,
	        .revision = request->revision,
	        .markers = offer->markers,
	        .crc = offer->crc || request->crc, /* RFC 5044 section 7.1: one end is enough */
	        .enhanced = request->enhanced,
	};
	*agreement = (struct mpa_agreement){
	        .crc = reply->crc,
	        .send_markers = request->markers,
	        .receive_markers = offer->markers,
	        .enhanced = request->enhanced,
	        .ird = offer->max_ird,
	        .ord = offer->max_ord,
	};
	if (!request->enhanced)
		return MPA_CONNECT_OK;

	/* RFC 6581 section 9: what the initiator can answer limits what we send, and vice versa. */
	agreement->ird = smaller_depth(offer->max_ird, request->ord);
	agreement->ord = smaller_depth(offer->max_ord, request->ird);
	reply->ird = request->ord == MPA_DEPTH_ELSEWHERE ? MPA_DEPTH_ELSEWHERE : agreement->ird;
	reply->ord = request->ird == MPA_DEPTH_ELSEWHERE ? MPA_DEPTH_ELSEWHERE : agreement->ord;
	if (!request->peer_to_peer)
		return MPA_CONNECT_OK;

	reply->peer_to_peer = true; /* section 9.2: A is answered with A */
	reply->rtr = request->rtr & offer->rtr;
	if (reply->rtr == 0) {
		reply->reject = true;
		return MPA_CONNECT_NO_RTR;
	}
	agreement->peer_to_peer = true;
	agreement->rtr = reply->rtr;
	return MPA_CONNECT_OK;
}

static enum mpa_connect_verdict judge_enhanced(const struct mpa_connect *request,
                                               const struct mpa_connect *reply,
                                               struct mpa_agreement *agreement)
{
	/* More reads would come than we can answer. That we may send fewer than we wanted is no
	 * error. */
	if (reply->ord != MPA_DEPTH_ELSEWHERE && request->ird != MPA_DEPTH_ELSEWHERE &&
	    reply->ord > request->ird)
		return MPA_CONNECT_IRD_SHORT;
	agreement->ird = smaller_depth(request->ird, reply->ord);
	agreement->ord = smaller_depth(request->ord, reply->ird);
	if (!request->peer_to_peer)
		return reply->peer_to_peer ? MPA_CONNECT_UNASKED : MPA_CONNECT_OK;
	if (!reply->peer_to_peer)
		return MPA_CONNECT_NO_PEER_TO_PEER;
	if ((reply->rtr & request->rtr) == 0)
		return MPA_CONNECT_NO_RTR;
	agreement->peer_to_peer = true;
	agreement->rtr = reply->rtr & request->rtr;
	return MPA_CONNECT_OK;
}

enum mpa_connect_verdict mpa_connect_judge(const struct mpa_connect *request,
                                           const struct mpa_connect *reply,
                                           struct mpa_agreement *agreement)
{
	assert(request->frame == MPA_REQUEST && reply->frame == MPA_REPLY);
	if (reply->reject)
		return MPA_CONNECT_REJECTED;
	if (reply->revision > request->revision)
		return MPA_CONNECT_BAD_REVISION;
	*agreement = (struct mpa_agreement){
	        .crc = reply->crc || request->crc,
	        .send_markers = reply->markers,
	        .receive_markers = request->markers,
	        .enhanced = request->enhanced,
	        .ird = request->ird,
	        .ord = request->ord,
	};
	if (request->enhanced != reply->enhanced)
		return request->enhanced ? MPA_CONNECT_NOT_ENHANCED : MPA_CONNECT_UNASKED;
	return request->enhanced ? judge_enhanced(request, reply, agreement) : MPA_CONNECT_OK;
}
