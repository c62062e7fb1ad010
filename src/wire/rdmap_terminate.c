/* Terminate messages and the errors of all layers; see rdmap_terminate.h. */
#include "wire/rdmap_terminate.h"

#include "wire/be.h"

#include <assert.h>
#include <string.h>

#define TERMINATE_FLAG_M    0x80
#define TERMINATE_FLAG_D    0x40
#define TERMINATE_FLAG_R    0x20
#define TERMINATE_FLAGS     0xe0
#define TERMINATE_LOW_FLAGS 0x07

#define RDMAP_ERROR_ENTRY(name, layer, etype, code, attach, text) \
	[RDMAP_ERROR_##name] = {RDMAP_LAYER_##layer, etype, code, RDMAP_ATTACH_##attach, text},
const struct rdmap_error_entry rdmap_errors[RDMAP_ERROR_COUNT] = {RDMAP_ERRORS(RDMAP_ERROR_ENTRY)};

enum rdmap_error rdmap_error_find(uint8_t layer, uint8_t etype, uint8_t code)
{
	if (layer == RDMAP_LAYER_RDMAP && etype == 0)
		return RDMAP_ERROR_RDMAP_CATASTROPHIC;
	for (unsigned i = 0; i < RDMAP_ERROR_COUNT; i++) {
		const struct rdmap_error_entry *e = &rdmap_errors[i];
		if (e->layer == layer && e->etype == etype && e->code == code)
			return (enum rdmap_error)i;
	}
	return RDMAP_ERROR_COUNT;
}

enum rdmap_error rdmap_error_of_segment(enum rdmap_verdict verdict)
{
	assert(verdict > RDMAP_OK && verdict < RDMAP_VERDICT_COUNT);
	switch (verdict) {
	case RDMAP_DDP_VERSION_TAGGED:
		return RDMAP_ERROR_DDP_INVALID_VERSION_TAGGED;
	case RDMAP_DDP_VERSION_UNTAGGED:
		return RDMAP_ERROR_DDP_INVALID_VERSION_UNTAGGED;
	case RDMAP_DDP_TO_WRAP:
		return RDMAP_ERROR_DDP_WRAP;
	case RDMAP_BAD_QUEUE:
		return RDMAP_ERROR_DDP_INVALID_QN;
	case RDMAP_BAD_OFFSET:
		return RDMAP_ERROR_DDP_INVALID_MO;
	/* The buffers of queues 1 to 3 are exactly as long as their messages. */
	case RDMAP_DDP_TOO_LONG:
	case RDMAP_TOO_LONG:
		return RDMAP_ERROR_DDP_MESSAGE_TOO_LONG;
	case RDMAP_BAD_VERSION:
		return RDMAP_ERROR_RDMAP_INVALID_VERSION;
	case RDMAP_BAD_OPCODE:
	case RDMAP_BAD_ATOMIC:
		return RDMAP_ERROR_RDMAP_UNEXPECTED_OPCODE;
	case RDMAP_READ_WRAP:
		return RDMAP_ERROR_RDMAP_TO_WRAP;
	case RDMAP_SHORT:
		return RDMAP_ERROR_RDMAP_UNSPECIFIED;
	case RDMAP_DDP_SHORT:
		return RDMAP_ERROR_DDP_CATASTROPHIC;
	case RDMAP_OK:
	case RDMAP_VERDICT_COUNT:
		break;
	}
	return RDMAP_ERROR_RDMAP_CATASTROPHIC; /* not reached */
}

enum rdmap_error rdmap_error_of_stream(enum mpa_stream_verdict verdict)
{
	assert(verdict > MPA_STREAM_ULPDU && verdict < MPA_STREAM_VERDICT_COUNT);
	return verdict == MPA_STREAM_BAD_CRC ? RDMAP_ERROR_MPA_CRC : RDMAP_ERROR_MPA_MARKER;
}

enum rdmap_error rdmap_error_of_connect(enum mpa_connect_verdict verdict)
{
	assert(verdict > MPA_CONNECT_MORE && verdict < MPA_CONNECT_VERDICT_COUNT);
	switch (verdict) {
	case MPA_CONNECT_IRD_SHORT:
		return RDMAP_ERROR_MPA_IRD;
	case MPA_CONNECT_NO_PEER_TO_PEER:
	case MPA_CONNECT_NO_RTR:
		return RDMAP_ERROR_MPA_RTR;
	default:
		return RDMAP_ERROR_MPA_FRAME;
	}
}

/* Length of the RDMAP header that R may attach to a DDP header; 0: none. */
static size_t attachable_bytes(const struct ddp_header *h)
{
	switch (h->ulp_control & 0x0f) {
	case RDMAP_READ_REQUEST:
		return h->tagged ? 0 : RDMAP_READ_REQUEST_BYTES;
	case RDMAP_ATOMIC_REQUEST:
		return h->tagged ? 0 : RDMAP_ATOMIC_REQUEST_BYTES;
	default:
		return 0;
	}
}

/* Is there a DDP header at @in? One with a wrong length or offset counts. */
static bool ddp_header_at(const uint8_t *in, size_t in_bytes, struct ddp_header *h)
{
	switch (ddp_decode(in, in_bytes, h)) {
	case DDP_OK:
	case DDP_TO_WRAP:
	case DDP_TOO_LONG:
		return true;
	default:
		return false;
	}
}

void rdmap_terminate_make(enum rdmap_error error, const uint8_t *segment, size_t segment_bytes,
                          struct rdmap_terminate *t)
{
	assert((unsigned)error < RDMAP_ERROR_COUNT);
	const struct rdmap_error_entry *e = &rdmap_errors[error];
	*t = (struct rdmap_terminate){.layer = e->layer, .etype = e->etype, .code = e->code};
	struct ddp_header h;
	if (e->attach == RDMAP_ATTACH_NONE || !ddp_header_at(segment, segment_bytes, &h))
		return;
	t->has_length = segment_bytes <= UINT16_MAX;
	t->segment_bytes = t->has_length ? (uint16_t)segment_bytes : 0;
	t->ddp_header = segment;
	t->ddp_header_bytes = ddp_header_bytes(h.tagged);
	size_t rdmap_bytes = attachable_bytes(&h);
	if (e->attach == RDMAP_ATTACH_RDMAP && rdmap_bytes > 0 &&
	    segment_bytes - t->ddp_header_bytes >= rdmap_bytes) {
		t->rdmap_header = segment + t->ddp_header_bytes;
		t->rdmap_header_bytes = rdmap_bytes;
	}
}

size_t rdmap_terminate_encode(const struct rdmap_terminate *t, uint8_t *out, size_t out_bytes)
{
	bool attach_ddp = t->ddp_header != NULL;
	bool attach_rdmap = attach_ddp && t->rdmap_header != NULL;
	assert(t->layer <= 0x0f && t->etype <= 0x0f);
	assert(!attach_ddp || t->ddp_header_bytes <= DDP_MAX_HEADER_BYTES);
	assert(!attach_rdmap || t->rdmap_header_bytes <= RDMAP_ATOMIC_REQUEST_BYTES);
	size_t bytes = RDMAP_TERMINATE_MIN_BYTES;
	if (attach_ddp || t->has_length)
		bytes += 2;
	if (attach_ddp)
		bytes += t->ddp_header_bytes;
	if (attach_rdmap)
		bytes += t->rdmap_header_bytes;
	if (bytes > out_bytes)
		return 0;

	out[0] = (uint8_t)(t->layer << 4 | t->etype);
	out[1] = t->code;
	out[2] = (uint8_t)((t->has_length ? TERMINATE_FLAG_M : 0) |
	                   (attach_ddp ? TERMINATE_FLAG_D : 0) |
	                   (attach_rdmap ? TERMINATE_FLAG_R : 0));
	out[3] = 0;
	uint8_t *at = out + RDMAP_TERMINATE_MIN_BYTES;
	if (attach_ddp || t->has_length) {
		be16_store(at, t->has_length ? t->segment_bytes : 0);
		at += 2;
	}
	if (attach_ddp) {
		memcpy(at, t->ddp_header, t->ddp_header_bytes);
		at += t->ddp_header_bytes;
	}
	if (attach_rdmap)
		memcpy(at, t->rdmap_header, t->rdmap_header_bytes);
	return bytes;
}

/* Linux siw (seen with 6.1 on x86) stores the control word as bit-fields from the low end: EType
 * before Layer, and M, D and R where the low reserved bits are. Such a word is recognized by flags
 * in the wrong place or, without flags, by an error that is only in the registry when read that
 * way. */
static bool low_end_first(const uint8_t *in)
{
	uint8_t layer = in[0] >> 4;
	uint8_t etype = in[0] & 0x0f;
	if (in[2] & TERMINATE_FLAGS)
		return false;
	if (in[2] & TERMINATE_LOW_FLAGS)
		return true;
	return rdmap_error_find(layer, etype, in[1]) == RDMAP_ERROR_COUNT &&
	       rdmap_error_find(etype, layer, in[1]) != RDMAP_ERROR_COUNT;
}

static uint8_t decode_control(const uint8_t *in, struct rdmap_terminate *t)
{
	*t = (struct rdmap_terminate){.layer = in[0] >> 4, .etype = in[0] & 0x0f, .code = in[1]};
	if (!low_end_first(in))
		return in[2];
	t->layer = in[0] & 0x0f;
	t->etype = in[0] >> 4;
	return (uint8_t)((in[2] & 1 ? TERMINATE_FLAG_M : 0) | (in[2] & 2 ? TERMINATE_FLAG_D : 0) |
	                 (in[2] & 4 ? TERMINATE_FLAG_R : 0));
}

bool rdmap_terminate_decode(const uint8_t *in, size_t in_bytes, struct rdmap_terminate *t)
{
	if (in_bytes < RDMAP_TERMINATE_MIN_BYTES)
		return false;
	uint8_t flags = decode_control(in, t);
	in += RDMAP_TERMINATE_MIN_BYTES;
	in_bytes -= RDMAP_TERMINATE_MIN_BYTES;
	if (!(flags & (TERMINATE_FLAG_M | TERMINATE_FLAG_D)) || in_bytes < 2)
		return true;
	t->has_length = flags & TERMINATE_FLAG_M;
	t->segment_bytes = t->has_length ? be16_load(in) : 0;
	in += 2;
	in_bytes -= 2;

	struct ddp_header h;
	if (!(flags & TERMINATE_FLAG_D) || !ddp_header_at(in, in_bytes, &h))
		return true;
	t->ddp_header = in;
	t->ddp_header_bytes = ddp_header_bytes(h.tagged);
	in += t->ddp_header_bytes;
	in_bytes -= t->ddp_header_bytes;
	/* siw also sets R for Sends, which have no RDMAP header. */
	size_t rdmap_bytes = attachable_bytes(&h);
	if ((flags & TERMINATE_FLAG_R) && rdmap_bytes > 0 && in_bytes >= rdmap_bytes) {
		t->rdmap_header = in;
		t->rdmap_header_bytes = rdmap_bytes;
	}
	return true;
}
