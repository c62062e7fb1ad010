/* Finds FPDUs in a stream; see mpa_stream.h. Each step takes one run of octets of a single item (a
 * marker, the length, the head, the body, pad and CRC) and says what is due next. */
#include "wire/mpa_stream.h"

#include "base/crc.h"
#include "wire/be.h"

#include <assert.h>

void mpa_stream_init(struct mpa_receiver *r, bool markers, bool crc)
{
	*r = (struct mpa_receiver){.markers = markers, .crc = crc, .state = MPA_STREAM_IN_LENGTH};
}

static enum mpa_stream_verdict mpa_stream_die(struct mpa_receiver *r, enum mpa_stream_verdict fault)
{
	r->state = MPA_STREAM_DEAD;
	r->fault = (uint8_t)fault;
	return fault;
}

static uint32_t mpa_crc_load(const uint8_t *p)
{
	return (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}

/* Is a marker due, or has it begun? Never inside the length or the CRC: FPDUs and markers are both
 * at multiples of four. */
static bool in_marker(const struct mpa_receiver *r)
{
	return r->marker_bytes > 0 || (r->markers && r->position % MPA_MARKER_INTERVAL == 0);
}

bool mpa_stream_between(const struct mpa_receiver *r)
{
	return r->state == MPA_STREAM_IN_LENGTH && r->tail_bytes == 0 && r->marker_bytes == 0;
}

size_t mpa_stream_due(struct mpa_receiver *r, uint8_t **to)
{
	size_t bytes = 0;
	if (r->state == MPA_STREAM_DEAD)
		return 0;
	if (in_marker(r)) {
		*to = r->marker + r->marker_bytes;
		return (size_t)MPA_MARKER_BYTES - r->marker_bytes;
	}
	switch (r->state) {
	case MPA_STREAM_IN_LENGTH:
		*to = r->tail + r->tail_bytes;
		bytes = (size_t)MPA_LENGTH_BYTES - r->tail_bytes;
		break;
	case MPA_STREAM_IN_HEAD:
		*to = r->head + r->head_bytes;
		bytes = (size_t)r->head_need - r->head_bytes;
		break;
	case MPA_STREAM_IN_BODY:
		*to = NULL;
		bytes = mpa_stream_body_left(r);
		break;
	default:
		*to = r->tail + r->tail_bytes;
		bytes = mpa_pad_bytes(r->ulpdu_bytes) + MPA_CRC_BYTES - r->tail_bytes;
	}
	if (r->markers) {
		size_t room = MPA_MARKER_INTERVAL - (size_t)(r->position % MPA_MARKER_INTERVAL);
		if (bytes > room)
			bytes = room;
	}
	return bytes;
}

static enum mpa_stream_verdict took_marker(struct mpa_receiver *r, size_t bytes)
{
	r->marker_bytes = (uint8_t)(r->marker_bytes + bytes);
	if (r->marker_bytes < MPA_MARKER_BYTES)
		return MPA_STREAM_MORE;
	/* RFC 5044 section 4.3: the reserved half is ignored, and the low two bits of FPDUPTR count
	 * as zero. */
	bool before_length = r->state == MPA_STREAM_IN_LENGTH;
	uint64_t back = before_length ? 0 : r->position - MPA_MARKER_BYTES - r->length_field;
	r->marker_bytes = 0;
	if ((be16_load(r->marker + 2) & ~3u) != back)
		return mpa_stream_die(r, MPA_STREAM_BAD_MARKER);
	return MPA_STREAM_MORE;
}

static enum mpa_stream_verdict took_length(struct mpa_receiver *r, size_t bytes)
{
	if (r->tail_bytes == 0)
		r->length_field = r->position - bytes;
	r->tail_bytes = (uint8_t)(r->tail_bytes + bytes);
	if (r->tail_bytes < MPA_LENGTH_BYTES)
		return MPA_STREAM_MORE;
	r->ulpdu_bytes = be16_load(r->tail);
	r->tail_bytes = r->head_bytes = 0;
	r->body_bytes = 0;
	if (r->markers && r->ulpdu_bytes > MPA_MAX_ULPDU_MARKED_BYTES)
		return mpa_stream_die(r, MPA_STREAM_TOO_LONG);
	r->head_need = r->ulpdu_bytes < MPA_HEAD_FIRST_BYTES ? (uint8_t)r->ulpdu_bytes
	                                                     : MPA_HEAD_FIRST_BYTES;
	r->state = r->ulpdu_bytes > 0 ? MPA_STREAM_IN_HEAD : MPA_STREAM_IN_TAIL;
	return MPA_STREAM_MORE;
}

static enum mpa_stream_verdict took_tail(struct mpa_receiver *r, size_t bytes)
{
	size_t pad = mpa_pad_bytes(r->ulpdu_bytes);
	r->tail_bytes = (uint8_t)(r->tail_bytes + bytes);
	if (r->tail_bytes < pad + MPA_CRC_BYTES)
		return MPA_STREAM_MORE;
	r->tail_bytes = 0;
	if (r->crc && mpa_crc_load(r->tail + pad) != r->sum)
		return mpa_stream_die(r, MPA_STREAM_BAD_CRC);
	r->state = MPA_STREAM_IN_LENGTH;
	r->sum = 0;
	return MPA_STREAM_ULPDU;
}

/* How many of the @bytes that just came the CRC covers: all but its own. */
static size_t covered(const struct mpa_receiver *r, size_t bytes)
{
	size_t pad = mpa_pad_bytes(r->ulpdu_bytes);
	if (r->state != MPA_STREAM_IN_TAIL || in_marker(r))
		return bytes;
	if (r->tail_bytes >= pad)
		return 0;
	return bytes < pad - r->tail_bytes ? bytes : pad - r->tail_bytes;
}

enum mpa_stream_verdict mpa_stream_took(struct mpa_receiver *r, size_t bytes)
{
	uint8_t *at = NULL;
	if (r->state == MPA_STREAM_DEAD)
		return (enum mpa_stream_verdict)r->fault;
	size_t due = mpa_stream_due(r, &at);
	assert(at != NULL && bytes <= due);
	bool marker = in_marker(r);
	if (r->crc)
		r->sum = crc32c(r->sum, at, covered(r, bytes));
	r->position += bytes;
	if (marker)
		return took_marker(r, bytes);
	switch (r->state) {
	case MPA_STREAM_IN_LENGTH:
		return took_length(r, bytes);
	case MPA_STREAM_IN_HEAD:
		r->head_bytes = (uint8_t)(r->head_bytes + bytes);
		return r->head_bytes < r->head_need ? MPA_STREAM_MORE : MPA_STREAM_HEAD;
	default:
		return took_tail(r, bytes);
	}
}

enum mpa_stream_verdict mpa_stream_took_body(struct mpa_receiver *r, size_t bytes, uint32_t sum)
{
	assert(r->state == MPA_STREAM_IN_BODY && !in_marker(r) && bytes <= mpa_stream_body_left(r));
	if (r->crc)
		r->sum = sum;
	r->position += bytes;
	r->body_bytes = (uint16_t)(r->body_bytes + bytes);
	if (mpa_stream_body_left(r) == 0)
		r->state = MPA_STREAM_IN_TAIL;
	return MPA_STREAM_MORE;
}

void mpa_stream_need(struct mpa_receiver *r, size_t bytes)
{
	assert(r->state == MPA_STREAM_IN_HEAD && r->head_bytes == r->head_need);
	assert(bytes >= r->head_bytes && bytes <= r->ulpdu_bytes && bytes <= MPA_HEAD_MAX_BYTES);
	r->head_need = (uint8_t)bytes;
	if (bytes == r->head_bytes)
		r->state = bytes < r->ulpdu_bytes ? MPA_STREAM_IN_BODY : MPA_STREAM_IN_TAIL;
}

size_t mpa_stream_whole(const struct mpa_receiver *r, const uint8_t *in, size_t in_bytes)
{
	if (r->markers || !mpa_stream_between(r) || in_bytes < MPA_LENGTH_BYTES)
		return 0;
	size_t ulpdu_bytes = be16_load(in);
	size_t bytes = MPA_LENGTH_BYTES + ulpdu_bytes + mpa_pad_bytes(ulpdu_bytes) + MPA_CRC_BYTES;
	return bytes <= in_bytes ? bytes : 0;
}

enum mpa_stream_verdict mpa_stream_take_whole(struct mpa_receiver *r, const uint8_t *in,
                                              size_t bytes, struct mpa_ulpdu *ulpdu)
{
	assert(mpa_stream_whole(r, in, bytes) == bytes);
	r->position += bytes;
	r->ulpdu_bytes = be16_load(in);
	r->head_bytes = 0;
	r->body_bytes = 0;
	if (r->crc &&
	    crc32c(0, in, bytes - MPA_CRC_BYTES) != mpa_crc_load(in + bytes - MPA_CRC_BYTES))
		return mpa_stream_die(r, MPA_STREAM_BAD_CRC);
	*ulpdu = (struct mpa_ulpdu){in + MPA_LENGTH_BYTES, r->ulpdu_bytes};
	return MPA_STREAM_ULPDU;
}
