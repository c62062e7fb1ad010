/* Finds FPDUs in a stream; see mpa_stream.h. Each step takes one run of octets of a single item (a
 * marker, the length, the ULPDU, the pad, the CRC) and says what is due next. */
#include "wire/mpa_stream.h"

#include "base/crc.h"
#include "wire/be.h"

#include <assert.h>
#include <string.h>

void mpa_stream_init(struct mpa_receiver *r, uint8_t *buffer, size_t buffer_bytes, bool markers,
                     bool crc)
{
	*r = (struct mpa_receiver){
	        .buffer = buffer,
	        .buffer_bytes = buffer_bytes,
	        .markers = markers,
	        .crc = crc,
	        .state = MPA_STREAM_IN_LENGTH,
	};
}

static enum mpa_stream_verdict die(struct mpa_receiver *r, enum mpa_stream_verdict fault)
{
	r->state = MPA_STREAM_DEAD;
	r->fault = fault;
	return fault;
}

static uint32_t crc_load(const uint8_t *p)
{
	return (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}

static bool mpa_stream_too_long(const struct mpa_receiver *r, size_t ulpdu_bytes)
{
	return ulpdu_bytes > r->buffer_bytes ||
	       (r->markers && ulpdu_bytes > MPA_MAX_ULPDU_MARKED_BYTES);
}

static void next_fpdu(struct mpa_receiver *r)
{
	r->state = MPA_STREAM_IN_LENGTH;
	r->field_bytes = 0;
	r->gathered_bytes = 0;
	r->sum = 0;
}

/* Is a marker due, or has it begun? Never inside the length or the CRC: FPDUs and markers are both
 * at multiples of four. */
static bool in_marker(const struct mpa_receiver *r)
{
	return r->marker_bytes > 0 || (r->markers && r->position % MPA_MARKER_INTERVAL == 0);
}

static enum mpa_stream_verdict take_marker(struct mpa_receiver *r, const uint8_t *in,
                                           size_t in_bytes, size_t *run)
{
	*run = MPA_MARKER_BYTES - r->marker_bytes;
	if (*run > in_bytes)
		*run = in_bytes;
	memcpy(r->marker + r->marker_bytes, in, *run);
	r->marker_bytes += *run;
	if (r->marker_bytes < MPA_MARKER_BYTES)
		return MPA_STREAM_MORE;

	/* RFC 5044 section 4.3: the reserved half is ignored, and the low two bits of FPDUPTR count
	 * as zero. */
	bool before_length = r->state == MPA_STREAM_IN_LENGTH;
	uint64_t marker_position = r->position + *run - MPA_MARKER_BYTES;
	uint64_t back = before_length ? 0 : marker_position - r->length_field;
	if ((be16_load(r->marker + 2) & ~3u) != back)
		return die(r, MPA_STREAM_BAD_MARKER);
	r->marker_bytes = 0;
	return MPA_STREAM_MORE;
}

static enum mpa_stream_verdict take_length(struct mpa_receiver *r, const uint8_t *in,
                                           size_t in_bytes, size_t *run)
{
	if (r->field_bytes == 0)
		r->length_field = r->position;
	*run = MPA_LENGTH_BYTES - r->field_bytes;
	if (*run > in_bytes)
		*run = in_bytes;
	memcpy(r->field + r->field_bytes, in, *run);
	r->field_bytes += *run;
	if (r->field_bytes < MPA_LENGTH_BYTES)
		return MPA_STREAM_MORE;

	r->ulpdu_bytes = be16_load(r->field);
	r->field_bytes = 0;
	if (mpa_stream_too_long(r, r->ulpdu_bytes))
		return die(r, MPA_STREAM_TOO_LONG);
	r->state = r->ulpdu_bytes > 0 ? MPA_STREAM_IN_ULPDU : MPA_STREAM_IN_PAD;
	return MPA_STREAM_MORE;
}

static void take_ulpdu(struct mpa_receiver *r, const uint8_t *in, size_t in_bytes, size_t *run)
{
	*run = r->ulpdu_bytes - r->gathered_bytes;
	if (*run > in_bytes)
		*run = in_bytes;
	assert(r->gathered_bytes + *run <= r->buffer_bytes); /* pairs with mpa_stream_too_long() */
	memcpy(r->buffer + r->gathered_bytes, in, *run);
	r->gathered_bytes += *run;
	if (r->gathered_bytes < r->ulpdu_bytes)
		return;
	r->gathered_bytes = 0;
	r->state = mpa_pad_bytes(r->ulpdu_bytes) > 0 ? MPA_STREAM_IN_PAD : MPA_STREAM_IN_CRC;
}

static void take_pad(struct mpa_receiver *r, size_t in_bytes, size_t *run)
{
	*run = mpa_pad_bytes(r->ulpdu_bytes) - r->gathered_bytes;
	if (*run > in_bytes)
		*run = in_bytes;
	r->gathered_bytes += *run;
	if (r->gathered_bytes == mpa_pad_bytes(r->ulpdu_bytes))
		r->state = MPA_STREAM_IN_CRC;
}

static enum mpa_stream_verdict take_crc(struct mpa_receiver *r, const uint8_t *in, size_t in_bytes,
                                        size_t *run)
{
	*run = MPA_CRC_BYTES - r->field_bytes;
	if (*run > in_bytes)
		*run = in_bytes;
	memcpy(r->field + r->field_bytes, in, *run);
	r->field_bytes += *run;
	if (r->field_bytes < MPA_CRC_BYTES)
		return MPA_STREAM_MORE;
	if (r->crc && crc_load(r->field) != r->sum)
		return die(r, MPA_STREAM_BAD_CRC);
	return MPA_STREAM_ULPDU;
}

/* Take one run of at most @in_bytes (not 0), up to the next marker. */
static enum mpa_stream_verdict step(struct mpa_receiver *r, const uint8_t *in, size_t in_bytes,
                                    size_t *run)
{
	if (in_marker(r))
		return take_marker(r, in, in_bytes, run);
	if (r->markers) {
		size_t room = MPA_MARKER_INTERVAL - (size_t)(r->position % MPA_MARKER_INTERVAL);
		if (in_bytes > room)
			in_bytes = room;
	}
	switch (r->state) {
	case MPA_STREAM_IN_LENGTH:
		return take_length(r, in, in_bytes, run);
	case MPA_STREAM_IN_ULPDU:
		take_ulpdu(r, in, in_bytes, run);
		return MPA_STREAM_MORE;
	case MPA_STREAM_IN_PAD:
		take_pad(r, in_bytes, run);
		return MPA_STREAM_MORE;
	case MPA_STREAM_IN_CRC:
		return take_crc(r, in, in_bytes, run);
	case MPA_STREAM_DEAD:
		break;
	}
	*run = 0;
	return r->fault;
}

/* The common case: no markers, and the run begins with a whole FPDU. It is checked in place,
 * without a copy. */
static bool take_whole(struct mpa_receiver *r, const uint8_t *in, size_t in_bytes, size_t *used,
                       struct mpa_ulpdu *ulpdu, enum mpa_stream_verdict *verdict)
{
	if (r->markers || r->state != MPA_STREAM_IN_LENGTH || r->field_bytes > 0 ||
	    in_bytes < MPA_LENGTH_BYTES)
		return false;
	size_t ulpdu_bytes = be16_load(in);
	size_t covered_bytes = MPA_LENGTH_BYTES + ulpdu_bytes + mpa_pad_bytes(ulpdu_bytes);
	if (mpa_stream_too_long(r, ulpdu_bytes) || in_bytes < covered_bytes + MPA_CRC_BYTES)
		return false;
	*used = covered_bytes + MPA_CRC_BYTES;
	r->position += *used;
	if (r->crc && crc32c(0, in, covered_bytes) != crc_load(in + covered_bytes)) {
		*verdict = die(r, MPA_STREAM_BAD_CRC);
		return true;
	}
	*ulpdu = (struct mpa_ulpdu){in + MPA_LENGTH_BYTES, ulpdu_bytes};
	*verdict = MPA_STREAM_ULPDU;
	return true;
}

enum mpa_stream_verdict mpa_stream_feed(struct mpa_receiver *r, const uint8_t *in, size_t in_bytes,
                                        size_t *used, struct mpa_ulpdu *ulpdu)
{
	enum mpa_stream_verdict verdict = MPA_STREAM_MORE;
	*used = 0;
	if (r->state == MPA_STREAM_DEAD)
		return r->fault;
	if (take_whole(r, in, in_bytes, used, ulpdu, &verdict))
		return verdict;
	while (verdict == MPA_STREAM_MORE && *used < in_bytes) {
		size_t run = 0;
		bool covered = r->state != MPA_STREAM_IN_CRC || in_marker(r);
		verdict = step(r, in + *used, in_bytes - *used, &run);
		if (r->crc && covered)
			r->sum = crc32c(r->sum, in + *used, run);
		r->position += run;
		*used += run;
	}
	if (verdict == MPA_STREAM_ULPDU) {
		*ulpdu = (struct mpa_ulpdu){r->buffer, r->ulpdu_bytes};
		next_fpdu(r);
	}
	return verdict;
}
