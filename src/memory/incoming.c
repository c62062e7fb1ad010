/* The checks of incoming packets; see incoming.h. */
#include "memory/incoming.h"

#include <string.h>

bool incoming_matches(const uint8_t host[16], const uint8_t source[16], const uint8_t mask[16])
{
	uint8_t differs = 0;
	for (unsigned i = 0; i < 16; i++)
		differs |= (host[i] ^ source[i]) & mask[i];
	return differs == 0;
}

/* The nonce that the packet must have. False: none would do. */
static bool incoming_expects(const struct hdl_aperture_fixed *row,
                             const struct hdl_aperture_user *user, const struct nonce *roll,
                             const struct incoming_request *req, uint64_t *nonce)
{
	bool numbered = (row->checks & HDL_CHECK_SEQUENCE) != 0 && req->sequenced;
	uint64_t first = incoming_nonce(user);
	*nonce = first + (req->control ? 0 : numbered ? nonce_at(roll, req->sequence) : roll->now);
	return first != 0;
}

static enum incoming_verdict incoming_judge_sender(const struct hdl_aperture_fixed *row,
                                                   const struct hdl_aperture_user *user,
                                                   const struct nonce *roll,
                                                   const struct incoming_request *req)
{
	uint64_t nonce;
	if ((row->checks & HDL_CHECK_NONCE) != 0 &&
	    (!incoming_expects(row, user, roll, req, &nonce) || req->nonce != nonce))
		return INCOMING_NONCE;
	if ((row->checks & HDL_CHECK_LINK) != 0 &&
	    (!req->source.has_link ||
	     memcmp(req->source.link, row->link, INCOMING_LINK_BYTES) != 0))
		return INCOMING_LINK;
	if ((row->checks & HDL_CHECK_SOURCE) != 0 &&
	    !incoming_matches(req->source.host, row->source.raw, row->mask.raw))
		return INCOMING_SOURCE;
	if ((row->checks & HDL_CHECK_CLUSTER) != 0 &&
	    ((req->source.cluster ^ row->source_cluster) & row->cluster_mask) != 0)
		return INCOMING_SOURCE;
	return INCOMING_OK;
}

enum incoming_verdict incoming_judge(const struct hdl_aperture_fixed *row,
                                     const struct hdl_aperture_user *user, const struct nonce *roll,
                                     const struct incoming_request *req)
{
	if (row == NULL || row->index == 0)
		return INCOMING_NO_ENTRY;
	if ((row->checks & HDL_CHECK_VALID) != 0 && !row->connected && !req->control)
		return INCOMING_NOT_VALID;
	enum incoming_verdict verdict = incoming_judge_sender(row, user, roll, req);
	if (verdict != INCOMING_OK || req->control)
		return verdict;
	if ((row->checks & HDL_CHECK_SEQUENCE) == 0)
		return INCOMING_OK;
	if (!req->sequenced)
		return INCOMING_UNNUMBERED;
	int32_t ahead = (int32_t)(req->sequence - row->expected);
	return ahead == 0 ? INCOMING_OK : ahead < 0 ? INCOMING_DUPLICATE : INCOMING_GAP;
}

void incoming_accept(struct hdl_aperture_fixed *row, struct nonce *roll)
{
	row->expected++;
	nonce_roll(roll, row->expected);
}

enum incoming_verdict incoming_extent(const struct tpt_view *view,
                                      const struct hdl_aperture_fixed *row, uint32_t pd,
                                      uint8_t access, uint64_t offset, uint64_t *length,
                                      struct tpt_grant *grant)
{
	if (row->bits == 0)
		return INCOMING_EXTENT;
	if ((row->checks & HDL_CHECK_EXTENT) == 0) {
		uint64_t size = (uint64_t)1 << row->bits;
		offset &= size - 1;
		if (*length > size - offset)
			*length = size - offset;
	}
	const struct tpt_request req = {.key = row->key,
	                                .side = TPT_CI,
	                                .access = access,
	                                .pd = pd,
	                                .addr = offset,
	                                .length = *length};
	switch (tpt_check(view, &req, grant)) {
	case HDL_DETAIL_NONE:
		return INCOMING_OK;
	case HDL_DETAIL_BOUNDS:
		return INCOMING_EXTENT;
	case HDL_DETAIL_ACCESS:
		return INCOMING_ACCESS;
	default:
		return INCOMING_MEMORY;
	}
}
