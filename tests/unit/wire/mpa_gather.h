/* Whole ULPDUs out of a stream (wire/mpa_stream.h), for tests: head and body collected in one
 * buffer. */
#ifndef UNIT_WIRE_MPA_GATHER_H
#define UNIT_WIRE_MPA_GATHER_H

#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "wire/mpa_stream.h"

struct mpa_gather {
	struct mpa_receiver r;
	uint8_t *buffer; /* the longest ULPDU that comes */
	size_t buffer_bytes;
	size_t head_bytes; /* of each ULPDU, if it is that long, taken as its head */
};

static inline void mpa_gather_init(struct mpa_gather *g, uint8_t *buffer, size_t buffer_bytes,
                                   bool markers, bool crc)
{
	*g = (struct mpa_gather){.buffer = buffer, .buffer_bytes = buffer_bytes, .head_bytes = 14};
	mpa_stream_init(&g->r, markers, crc);
}

/* The head, as far as it was wanted, is there. In two steps, as a reader of headers would. */
static inline void mpa_gather_head(struct mpa_gather *g)
{
	size_t wanted = g->head_bytes < g->r.ulpdu_bytes ? g->head_bytes : g->r.ulpdu_bytes;
	if (wanted < g->r.head_bytes)
		wanted = g->r.head_bytes;
	if (wanted > g->buffer_bytes)
		abort();
	memcpy(g->buffer, g->r.head, g->r.head_bytes);
	mpa_stream_need(&g->r, wanted);
}

/* Take octets from @in up to the end of one FPDU. *used is how many; *ulpdu is set on
 * MPA_STREAM_ULPDU. */
static inline enum mpa_stream_verdict mpa_gather_feed(struct mpa_gather *g, const uint8_t *in,
                                                      size_t in_bytes, size_t *used,
                                                      struct mpa_ulpdu *ulpdu)
{
	enum mpa_stream_verdict verdict = MPA_STREAM_MORE;
	*used = mpa_stream_whole(&g->r, in, in_bytes);
	if (*used > 0)
		return mpa_stream_take_whole(&g->r, in, *used, ulpdu);
	while (verdict <= MPA_STREAM_HEAD && *used < in_bytes) {
		uint8_t *to;
		size_t run = mpa_stream_due(&g->r, &to);
		if (run == 0)
			return (enum mpa_stream_verdict)g->r.fault;
		run = run < in_bytes - *used ? run : in_bytes - *used;
		if (to == NULL) {
			to = g->buffer + g->r.head_bytes + g->r.body_bytes;
			if (run > g->buffer_bytes - g->r.head_bytes - g->r.body_bytes)
				abort();
			verdict = mpa_stream_took_body(
			        &g->r, run,
			        crc32c_copy(mpa_stream_sum(&g->r), to, in + *used, run));
		} else {
			memcpy(to, in + *used, run);
			verdict = mpa_stream_took(&g->r, run);
		}
		*used += run;
		if (verdict == MPA_STREAM_HEAD)
			mpa_gather_head(g);
	}
	if (verdict == MPA_STREAM_ULPDU)
		*ulpdu = (struct mpa_ulpdu){g->buffer, g->r.ulpdu_bytes};
	return verdict == MPA_STREAM_HEAD ? MPA_STREAM_MORE : verdict;
}

#endif
