/* RDMAP messages; see rdmap.h. */
#include "wire/rdmap.h"

#include "wire/be.h"
#include "wire/rdmap_terminate.h"

#include <assert.h>

#define RDMAP_MASK_OPCODE   0x0f
#define RDMAP_VERSION_SHIFT 6
#define RDMAP_MASK_ATOMIC   0x0f /* the low four bits of the Atomic Request's first word */

const struct rdmap_operation rdmap_operations[RDMAP_OPCODE_COUNT] = {
        [RDMAP_WRITE] = {.name = "RDMA Write", .tagged = true, .payload = true},
        [RDMAP_READ_REQUEST] = {.name = "RDMA Read Request",
                                .queue = RDMAP_QUEUE_READ_REQUEST,
                                .header_bytes = RDMAP_READ_REQUEST_BYTES},
        [RDMAP_READ_RESPONSE] = {.name = "RDMA Read Response", .tagged = true, .payload = true},
        [RDMAP_SEND] = {.name = "Send", .payload = true},
        [RDMAP_SEND_INVALIDATE] = {.name = "Send with Invalidate",
                                   .payload = true,
                                   .invalidates = true},
        [RDMAP_SEND_SE] = {.name = "Send with Solicited Event", .payload = true, .solicited = true},
        [RDMAP_SEND_SE_INVALIDATE] = {.name = "Send with Solicited Event and Invalidate",
                                      .payload = true,
                                      .invalidates = true,
                                      .solicited = true},
        [RDMAP_TERMINATE] = {.name = "Terminate",
                             .queue = RDMAP_QUEUE_TERMINATE,
                             .header_bytes = RDMAP_TERMINATE_MIN_BYTES},
        [RDMAP_IMMEDIATE] = {.name = "Immediate Data", .header_bytes = RDMAP_IMMEDIATE_BYTES},
        [RDMAP_IMMEDIATE_SE] = {.name = "Immediate Data with Solicited Event",
                                .solicited = true,
                                .header_bytes = RDMAP_IMMEDIATE_BYTES},
        [RDMAP_ATOMIC_REQUEST] = {.name = "Atomic Request",
                                  .queue = RDMAP_QUEUE_READ_REQUEST,
                                  .header_bytes = RDMAP_ATOMIC_REQUEST_BYTES},
        [RDMAP_ATOMIC_RESPONSE] = {.name = "Atomic Response",
                                   .queue = RDMAP_QUEUE_ATOMIC_RESPONSE,
                                   .header_bytes = RDMAP_ATOMIC_RESPONSE_BYTES},
};

static void encode_read_request(const struct rdmap_read_request *r, uint8_t *out)
{
	be32_store(out, r->sink_stag);
	be64_store(out + 4, r->sink_to);
	be32_store(out + 12, r->bytes);
	be32_store(out + 16, r->source_stag);
	be64_store(out + 20, r->source_to);
}

static void decode_read_request(const uint8_t *in, struct rdmap_read_request *r)
{
	r->sink_stag = be32_load(in);
	r->sink_to = be64_load(in + 4);
	r->bytes = be32_load(in + 12);
	r->source_stag = be32_load(in + 16);
	r->source_to = be64_load(in + 20);
}

static void encode_atomic_request(const struct rdmap_atomic_request *a, uint8_t *out)
{
	bool compares = a->operation == RDMAP_COMPARE_SWAP;
	be32_store(out, (uint32_t)a->operation);
	be32_store(out + 4, a->id);
	be32_store(out + 8, a->stag);
	be64_store(out + 12, a->to);
	be64_store(out + 20, a->data);
	be64_store(out + 28, a->mask);
	be64_store(out + 36, compares ? a->compare : 0);
	be64_store(out + 44, compares ? a->compare_mask : 0);
}

static enum rdmap_verdict decode_atomic_request(const uint8_t *in, struct rdmap_atomic_request *a)
{
	uint32_t operation = be32_load(in) & RDMAP_MASK_ATOMIC;
	if (operation >= RDMAP_ATOMIC_COUNT)
		return RDMAP_BAD_ATOMIC;
	*a = (struct rdmap_atomic_request){
	        .operation = (enum rdmap_atomic)operation,
	        .id = be32_load(in + 4),
	        .stag = be32_load(in + 8),
	        .to = be64_load(in + 12),
	        .data = be64_load(in + 20),
	        .mask = be64_load(in + 28),
	};
	if (operation == RDMAP_COMPARE_SWAP) {
		a->compare = be64_load(in + 36);
		a->compare_mask = be64_load(in + 44);
	}
	return RDMAP_OK;
}

static size_t encode_body(const struct rdmap_segment *s, uint8_t *out, size_t out_bytes)
{
	size_t bytes = rdmap_operations[s->opcode].header_bytes;
	assert(out_bytes >= bytes); /* pairs with rdmap_encode() */
	switch (s->opcode) {
	case RDMAP_READ_REQUEST:
		encode_read_request(&s->u.read, out);
		break;
	case RDMAP_IMMEDIATE:
	case RDMAP_IMMEDIATE_SE:
		be64_store(out, s->u.immediate);
		break;
	case RDMAP_ATOMIC_REQUEST:
		encode_atomic_request(&s->u.atomic, out);
		break;
	case RDMAP_ATOMIC_RESPONSE:
		be32_store(out, s->u.atomic_response.id);
		be64_store(out + 4, s->u.atomic_response.original);
		break;
	case RDMAP_TERMINATE:
		return rdmap_terminate_encode(&s->u.terminate, out, out_bytes);
	default:
		break;
	}
	return bytes;
}

size_t rdmap_encode(const struct rdmap_segment *s, uint8_t *out, size_t out_bytes)
{
	assert((unsigned)s->opcode < RDMAP_OPCODE_COUNT);
	const struct rdmap_operation *op = &rdmap_operations[s->opcode];
	struct ddp_header h = {
	        .tagged = op->tagged,
	        .last = s->last || !op->payload,
	        .ulp_control =
	                (uint8_t)(RDMAP_VERSION << RDMAP_VERSION_SHIFT | (unsigned)s->opcode),
	        .stag = s->stag,
	        .to = s->to,
	        .ulp_word = op->invalidates ? s->invalidate_stag : 0,
	        .qn = op->queue,
	        .msn = s->msn,
	        .mo = op->payload ? s->mo : 0,
	};
	if (out_bytes < ddp_header_bytes(op->tagged) + op->header_bytes)
		return 0;
	size_t ddp_bytes = ddp_encode(&h, out, out_bytes);
	size_t body_bytes = encode_body(s, out + ddp_bytes, out_bytes - ddp_bytes);
	return body_bytes < op->header_bytes ? 0 : ddp_bytes + body_bytes;
}

/* The message of an operation without payload: one segment that contains only its header. */
static enum rdmap_verdict parse_body(const struct ddp_header *h, const uint8_t *body, size_t bytes,
                                     struct rdmap_segment *s)
{
	size_t due = rdmap_operations[s->opcode].header_bytes;
	if (h->mo != 0)
		return RDMAP_BAD_OFFSET;
	if (bytes < due)
		return RDMAP_SHORT;
	if (!h->last || (bytes > due && s->opcode != RDMAP_TERMINATE))
		return RDMAP_TOO_LONG;
	switch (s->opcode) {
	case RDMAP_READ_REQUEST:
		decode_read_request(body, &s->u.read);
		if (s->u.read.bytes > 0 && s->u.read.source_to > UINT64_MAX - (s->u.read.bytes - 1))
			return RDMAP_READ_WRAP;
		return RDMAP_OK;
	case RDMAP_IMMEDIATE:
	case RDMAP_IMMEDIATE_SE:
		s->u.immediate = be64_load(body);
		return RDMAP_OK;
	case RDMAP_ATOMIC_REQUEST:
		return decode_atomic_request(body, &s->u.atomic);
	case RDMAP_ATOMIC_RESPONSE:
		s->u.atomic_response.id = be32_load(body);
		s->u.atomic_response.original = be64_load(body + 4);
		return RDMAP_OK;
	default:
		assert(s->opcode == RDMAP_TERMINATE);
		rdmap_terminate_decode(body, bytes, &s->u.terminate);
		return RDMAP_OK;
	}
}

size_t rdmap_head_bytes(const uint8_t *segment, size_t have, size_t segment_bytes)
{
	size_t bytes = 2;
	if (have >= 2) {
		unsigned opcode = segment[1] & RDMAP_MASK_OPCODE;
		bytes = ddp_header_bytes(segment[0] >> 7);
		if (opcode >= RDMAP_OPCODE_COUNT || !rdmap_operations[opcode].payload)
			bytes += RDMAP_TERMINATE_MAX_BYTES;
	}
	return bytes < segment_bytes ? bytes : segment_bytes;
}

enum rdmap_verdict rdmap_parse(const uint8_t *segment, size_t segment_bytes,
                               struct rdmap_segment *s)
{
	struct ddp_header h;
	enum ddp_verdict ddp = ddp_decode(segment, segment_bytes, &h);
	if (ddp != DDP_OK)
		return (enum rdmap_verdict)ddp; /* both enums start with the same values */
	if (!h.tagged && h.qn >= RDMAP_QUEUE_COUNT)
		return RDMAP_BAD_QUEUE;
	if (h.ulp_control >> RDMAP_VERSION_SHIFT != RDMAP_VERSION)
		return RDMAP_BAD_VERSION;
	unsigned opcode = h.ulp_control & RDMAP_MASK_OPCODE;
	if (opcode >= RDMAP_OPCODE_COUNT)
		return RDMAP_BAD_OPCODE;
	const struct rdmap_operation *op = &rdmap_operations[opcode];
	if (op->tagged != h.tagged || (!h.tagged && op->queue != h.qn))
		return RDMAP_BAD_OPCODE;

	size_t ddp_bytes = ddp_header_bytes(h.tagged);
	*s = (struct rdmap_segment){
	        .opcode = (enum rdmap_opcode)opcode,
	        .last = h.last,
	        .stag = h.stag,
	        .to = h.to,
	        .msn = h.msn,
	        .mo = h.mo,
	        .invalidate_stag = op->invalidates ? h.ulp_word : 0,
	};
	if (!op->payload)
		return parse_body(&h, segment + ddp_bytes, segment_bytes - ddp_bytes, s);
	s->payload = segment + ddp_bytes;
	s->payload_bytes = segment_bytes - ddp_bytes;
	return RDMAP_OK;
}
