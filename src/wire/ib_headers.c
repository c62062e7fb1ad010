/* Conversion of InfiniBand headers to bytes and back, with shifts and masks only. See ib_headers.h.
 */
#include "wire/ib_headers.h"

#include <string.h>

#include "wire/be.h"

void ib_lrh_encode(const struct ib_lrh *h, uint8_t *out)
{
	out[0] = (uint8_t)(h->vl << 4 | (h->version & 0xf));
	out[1] = (uint8_t)(h->sl << 4 | (h->resv2 & 3) << 2 | (h->lnh & 3));
	be16_store(out + 2, h->dlid);
	be16_store(out + 4, (uint16_t)(h->resv5 << 11 | (h->length_words & 0x7ff)));
	be16_store(out + 6, h->slid);
}

void ib_lrh_decode(struct ib_lrh *h, const uint8_t *in)
{
	h->vl = in[0] >> 4;
	h->version = in[0] & 0xf;
	h->sl = in[1] >> 4;
	h->resv2 = in[1] >> 2 & 3;
	h->lnh = in[1] & 3;
	h->dlid = be16_load(in + 2);
	h->resv5 = in[4] >> 3;
	h->length_words = be16_load(in + 4) & 0x7ff;
	h->slid = be16_load(in + 6);
}

void ib_rwh_encode(const struct ib_rwh *h, uint8_t *out)
{
	be16_store(out, h->resv16);
	be16_store(out + 2, h->ethertype);
}

void ib_rwh_decode(struct ib_rwh *h, const uint8_t *in)
{
	h->resv16 = be16_load(in);
	h->ethertype = be16_load(in + 2);
}

void ib_grh_encode(const struct ib_grh *h, uint8_t *out)
{
	be32_store(out, (uint32_t)h->version << 28 | (uint32_t)h->traffic_class << 20 |
	                        (h->flow_label & 0xfffff));
	be16_store(out + 4, h->payload_bytes);
	out[6] = h->next_header;
	out[7] = h->hop_limit;
	memcpy(out + 8, h->sgid, IB_GID_BYTES);
	memcpy(out + 24, h->dgid, IB_GID_BYTES);
}

void ib_grh_decode(struct ib_grh *h, const uint8_t *in)
{
	uint32_t first = be32_load(in);
	h->version = (uint8_t)(first >> 28);
	h->traffic_class = (uint8_t)(first >> 20);
	h->flow_label = first & 0xfffff;
	h->payload_bytes = be16_load(in + 4);
	h->next_header = in[6];
	h->hop_limit = in[7];
	memcpy(h->sgid, in + 8, IB_GID_BYTES);
	memcpy(h->dgid, in + 24, IB_GID_BYTES);
}

void ib_bth_encode(const struct ib_bth *h, uint8_t *out)
{
	out[0] = h->opcode;
	out[1] = (uint8_t)(h->solicited << 7 | h->migreq << 6 | (h->pad_bytes & 3) << 4 |
	                   (h->version & 0xf));
	be16_store(out + 2, h->pkey);
	out[4] = (uint8_t)(h->fecn << 7 | h->becn << 6 | (h->resv6 & 0x3f));
	be24_store(out + 5, h->dest_qp);
	out[8] = (uint8_t)(h->ack_request << 7 | (h->resv7 & 0x7f));
	be24_store(out + 9, h->psn);
}

void ib_bth_decode(struct ib_bth *h, const uint8_t *in)
{
	h->opcode = in[0];
	h->solicited = in[1] >> 7;
	h->migreq = in[1] >> 6 & 1;
	h->pad_bytes = in[1] >> 4 & 3;
	h->version = in[1] & 0xf;
	h->pkey = be16_load(in + 2);
	h->fecn = in[4] >> 7;
	h->becn = in[4] >> 6 & 1;
	h->resv6 = in[4] & 0x3f;
	h->dest_qp = be24_load(in + 5);
	h->ack_request = in[8] >> 7;
	h->resv7 = in[8] & 0x7f;
	h->psn = be24_load(in + 9);
}

void ib_rdeth_encode(const struct ib_rdeth *h, uint8_t *out)
{
	out[0] = h->resv8;
	be24_store(out + 1, h->ee_context);
}

void ib_rdeth_decode(struct ib_rdeth *h, const uint8_t *in)
{
	h->resv8 = in[0];
	h->ee_context = be24_load(in + 1);
}

void ib_deth_encode(const struct ib_deth *h, uint8_t *out)
{
	be32_store(out, h->qkey);
	out[4] = h->resv8;
	be24_store(out + 5, h->src_qp);
}

void ib_deth_decode(struct ib_deth *h, const uint8_t *in)
{
	h->qkey = be32_load(in);
	h->resv8 = in[4];
	h->src_qp = be24_load(in + 5);
}

void ib_xrceth_encode(const struct ib_xrceth *h, uint8_t *out)
{
	out[0] = h->resv8;
	be24_store(out + 1, h->srq);
}

void ib_xrceth_decode(struct ib_xrceth *h, const uint8_t *in)
{
	h->resv8 = in[0];
	h->srq = be24_load(in + 1);
}

void ib_reth_encode(const struct ib_reth *h, uint8_t *out)
{
	be64_store(out, h->addr);
	be32_store(out + 8, h->rkey);
	be32_store(out + 12, h->length_bytes);
}

void ib_reth_decode(struct ib_reth *h, const uint8_t *in)
{
	h->addr = be64_load(in);
	h->rkey = be32_load(in + 8);
	h->length_bytes = be32_load(in + 12);
}

void ib_atomiceth_encode(const struct ib_atomiceth *h, uint8_t *out)
{
	be64_store(out, h->addr);
	be32_store(out + 8, h->rkey);
	be64_store(out + 12, h->swap_or_add);
	be64_store(out + 20, h->compare);
}

void ib_atomiceth_decode(struct ib_atomiceth *h, const uint8_t *in)
{
	h->addr = be64_load(in);
	h->rkey = be32_load(in + 8);
	h->swap_or_add = be64_load(in + 12);
	h->compare = be64_load(in + 20);
}

void ib_aeth_encode(const struct ib_aeth *h, uint8_t *out)
{
	out[0] = h->syndrome;
	be24_store(out + 1, h->msn);
}

void ib_aeth_decode(struct ib_aeth *h, const uint8_t *in)
{
	h->syndrome = in[0];
	h->msn = be24_load(in + 1);
}

void ib_atomicack_encode(const struct ib_atomicack *h, uint8_t *out)
{
	be64_store(out, h->original);
}

void ib_atomicack_decode(struct ib_atomicack *h, const uint8_t *in)
{
	h->original = be64_load(in);
}

void ib_immdt_encode(const struct ib_immdt *h, uint8_t *out)
{
	be32_store(out, h->data);
}

void ib_immdt_decode(struct ib_immdt *h, const uint8_t *in)
{
	h->data = be32_load(in);
}

void ib_ieth_encode(const struct ib_ieth *h, uint8_t *out)
{
	be32_store(out, h->rkey);
}

void ib_ieth_decode(struct ib_ieth *h, const uint8_t *in)
{
	h->rkey = be32_load(in);
}

void ib_cnp_encode(const struct ib_cnp *h, uint8_t *out)
{
	memcpy(out, h->resv128, IB_CNP_BYTES);
}

void ib_cnp_decode(struct ib_cnp *h, const uint8_t *in)
{
	memcpy(h->resv128, in, IB_CNP_BYTES);
}
