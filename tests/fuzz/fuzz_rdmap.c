/* Any octets as a DDP segment: a verdict with a Terminate for each, or a segment that the encoder
 * makes again and that reads as the same. */
#include "wire/rdmap.h"
#include "wire/rdmap_terminate.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* The Terminate about a bad segment is a good segment itself. */
static void check_terminate(enum rdmap_verdict verdict, const uint8_t *data, size_t bytes)
{
	struct rdmap_segment s = {.opcode = RDMAP_TERMINATE, .msn = 1};
	struct rdmap_segment got;
	uint8_t out[RDMAP_MAX_HEADER_BYTES];
	enum rdmap_error error = rdmap_error_of_segment(verdict);
	rdmap_terminate_make(error, data, bytes, &s.u.terminate);
	size_t out_bytes = rdmap_encode(&s, out, sizeof(out));
	if (out_bytes == 0 || rdmap_parse(out, out_bytes, &got) != RDMAP_OK)
		abort();
	const struct rdmap_terminate *t = &got.u.terminate;
	if (rdmap_error_find(t->layer, t->etype, t->code) != error ||
	    t->ddp_header_bytes != s.u.terminate.ddp_header_bytes ||
	    t->rdmap_header_bytes != s.u.terminate.rdmap_header_bytes)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct rdmap_segment s;
	enum rdmap_verdict verdict = rdmap_parse(data, bytes, &s);
	if (verdict != RDMAP_OK) {
		check_terminate(verdict, data, bytes);
		return 0;
	}
	uint8_t out[RDMAP_MAX_HEADER_BYTES];
	uint8_t again[RDMAP_MAX_HEADER_BYTES];
	size_t out_bytes = rdmap_encode(&s, out, sizeof(out));
	if (out_bytes == 0 || s.payload_bytes > bytes)
		abort();
	if (s.opcode != RDMAP_TERMINATE && out_bytes + s.payload_bytes != bytes)
		abort();
	/* An error that nobody registered may be read as siw's order of bits once its flags are
	 * gone. */
	if (s.opcode == RDMAP_TERMINATE &&
	    rdmap_error_find(s.u.terminate.layer, s.u.terminate.etype, s.u.terminate.code) ==
	            RDMAP_ERROR_COUNT)
		return 0;
	struct rdmap_segment got;
	if (rdmap_parse(out, out_bytes, &got) != RDMAP_OK || got.opcode != s.opcode ||
	    got.msn != s.msn)
		abort();
	if (rdmap_encode(&got, again, sizeof(again)) != out_bytes ||
	    memcmp(out, again, out_bytes) != 0)
		abort();
	return 0;
}
