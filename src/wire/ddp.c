/* DDP segment headers; see ddp.h. Reserved bits are sent as zero and ignored on reception. */
#include "wire/ddp.h"

#include "wire/be.h"

#define DDP_FLAG_T  0x80
#define DDP_FLAG_L  0x40
#define DDP_MASK_DV 0x03

size_t ddp_encode(const struct ddp_header *h, uint8_t *out, size_t out_bytes)
{
	size_t bytes = ddp_header_bytes(h->tagged);
	if (out_bytes < bytes)
		return 0;
	out[0] = (uint8_t)((h->tagged ? DDP_FLAG_T : 0) | (h->last ? DDP_FLAG_L : 0) | DDP_VERSION);
	out[1] = h->ulp_control;
	if (h->tagged) {
		be32_store(out + 2, h->stag);
		be64_store(out + 6, h->to);
	} else {
		be32_store(out + 2, h->ulp_word);
		be32_store(out + 6, h->qn);
		be32_store(out + 10, h->msn);
		be32_store(out + 14, h->mo);
	}
	return bytes;
}

enum ddp_verdict ddp_decode(const uint8_t *segment, size_t segment_bytes, struct ddp_header *h)
{
	if (segment_bytes == 0)
		return DDP_SHORT;
	bool tagged = segment[0] & DDP_FLAG_T;
	/* Check the version first: in another version the header may be shorter. */
	if ((segment[0] & DDP_MASK_DV) != DDP_VERSION)
		return tagged ? DDP_VERSION_TAGGED : DDP_VERSION_UNTAGGED;
	if (segment_bytes < ddp_header_bytes(tagged))
		return DDP_SHORT;

	*h = (struct ddp_header){
	        .tagged = tagged,
	        .last = segment[0] & DDP_FLAG_L,
	        .ulp_control = segment[1],
	};
	uint64_t payload_bytes = segment_bytes - ddp_header_bytes(tagged);
	if (tagged) {
		h->stag = be32_load(segment + 2);
		h->to = be64_load(segment + 6);
		/* Never form to + length: the peer chooses both. The last octet may be the last one
		 * possible. */
		if (payload_bytes > 0 && h->to > UINT64_MAX - (payload_bytes - 1))
			return DDP_TO_WRAP;
	} else {
		h->ulp_word = be32_load(segment + 2);
		h->qn = be32_load(segment + 6);
		h->msn = be32_load(segment + 10);
		h->mo = be32_load(segment + 14);
		if (payload_bytes > UINT32_MAX - h->mo)
			return DDP_TOO_LONG;
	}
	return DDP_OK;
}
