/* Writes ULPDUs to the stream; see mpa_fpdu.h. */
#include "wire/mpa_fpdu.h"

#include "base/crc.h"
#include "wire/be.h"

#include <assert.h>
#include <string.h>

size_t mpa_mulpdu(size_t emss, bool markers)
{
	size_t overhead = MPA_LENGTH_BYTES + MPA_CRC_BYTES + emss % 4;
	if (markers)
		overhead +=
		        MPA_MARKER_BYTES * ((emss + MPA_MARKER_INTERVAL - 1) / MPA_MARKER_INTERVAL);
	if (emss <= overhead)
		return 0;
	size_t limit = markers ? MPA_MAX_ULPDU_MARKED_BYTES : MPA_MAX_ULPDU_BYTES;
	return emss - overhead < limit ? emss - overhead : limit;
}

/* Octets of stream from @position on that hold @content_bytes (not 0) and the markers before and
 * among them, but not the one that may follow. */
static size_t marked_bytes(uint64_t position, size_t content_bytes)
{
	size_t per_interval = MPA_MARKER_INTERVAL - MPA_MARKER_BYTES;
	size_t phase = (size_t)(position % MPA_MARKER_INTERVAL);
	size_t room = phase == 0 ? 0 : MPA_MARKER_INTERVAL - phase;
	if (content_bytes <= room)
		return content_bytes;
	size_t markers = (content_bytes - room + per_interval - 1) / per_interval;
	return content_bytes + markers * MPA_MARKER_BYTES;
}

size_t mpa_fpdu_bytes(const struct mpa_sender *s, size_t ulpdu_bytes)
{
	size_t content =
	        MPA_LENGTH_BYTES + ulpdu_bytes + mpa_pad_bytes(ulpdu_bytes) + MPA_CRC_BYTES;
	return s->markers ? marked_bytes(s->position, content) : content;
}

/* Where the next octet of an FPDU goes. */
struct pen {
	uint8_t *at;
	uint64_t position;     /* in the stream, of *at */
	uint64_t length_field; /* position of ULPDU_Length; meaningless before it is written */
	bool markers;
	bool started;
};

static void write_marker(struct pen *pen)
{
	uint64_t back = pen->started ? pen->position - pen->length_field : 0;
	assert(back <= UINT16_MAX && back % 4 == 0); /* pairs with MPA_MAX_ULPDU_MARKED_BYTES */
	be16_store(pen->at, 0);
	be16_store(pen->at + 2, (uint16_t)back);
	pen->at += MPA_MARKER_BYTES;
	pen->position += MPA_MARKER_BYTES;
}

static void write_octets(struct pen *pen, const uint8_t *data, size_t bytes)
{
	while (bytes > 0) {
		size_t run = bytes;
		if (pen->markers) {
			size_t phase = (size_t)(pen->position % MPA_MARKER_INTERVAL);
			if (phase == 0) {
				write_marker(pen);
				phase = MPA_MARKER_BYTES;
			}
			if (run > MPA_MARKER_INTERVAL - phase)
				run = MPA_MARKER_INTERVAL - phase;
		}
		if (!pen->started) {
			pen->length_field = pen->position;
			pen->started = true;
		}
		memcpy(pen->at, data, run);
		pen->at += run;
		pen->position += run;
		data += run;
		bytes -= run;
	}
}

size_t mpa_fpdu_encode(struct mpa_sender *s, const struct mpa_piece *pieces, size_t piece_count,
                       uint8_t *out, size_t out_bytes)
{
	static const uint8_t zeros[4];
	size_t limit = s->markers ? MPA_MAX_ULPDU_MARKED_BYTES : MPA_MAX_ULPDU_BYTES;
	size_t ulpdu_bytes = 0;
	for (size_t i = 0; i < piece_count; i++) {
		if (pieces[i].bytes > limit - ulpdu_bytes)
			return 0;
		ulpdu_bytes += pieces[i].bytes;
	}
	size_t fpdu_bytes = mpa_fpdu_bytes(s, ulpdu_bytes);
	if (fpdu_bytes > out_bytes)
		return 0;

	struct pen pen = {.at = out, .position = s->position, .markers = s->markers};
	uint8_t field[4];
	be16_store(field, (uint16_t)ulpdu_bytes);
	write_octets(&pen, field, MPA_LENGTH_BYTES);
	for (size_t i = 0; i < piece_count; i++)
		write_octets(&pen, pieces[i].data, pieces[i].bytes);
	write_octets(&pen, zeros, mpa_pad_bytes(ulpdu_bytes));

	/* The CRC covers a marker right before it, so the marker is written first. */
	if (pen.markers && pen.position % MPA_MARKER_INTERVAL == 0)
		write_marker(&pen);
	uint32_t crc = s->crc ? crc32c(0, out, (size_t)(pen.at - out)) : 0;
	/* Least significant octet first: the bit order of iSCSI's digests (RFC 5044 section 4.4,
	 * RFC 3720 appendix B.4). */
	for (int i = 0; i < MPA_CRC_BYTES; i++)
		field[i] = (uint8_t)(crc >> (8 * i));
	write_octets(&pen, field, MPA_CRC_BYTES);

	assert((size_t)(pen.at - out) == fpdu_bytes); /* pairs with mpa_fpdu_bytes() */
	s->position = pen.position;
	return fpdu_bytes;
}

uint32_t mpa_fpdu_open(const struct mpa_sender *s, uint8_t *fpdu, size_t ulpdu_bytes)
{
	assert(!s->markers && ulpdu_bytes <= MPA_MAX_ULPDU_BYTES);
	be16_store(fpdu, (uint16_t)ulpdu_bytes);
	return s->crc ? crc32c(0, fpdu, MPA_LENGTH_BYTES) : 0;
}

size_t mpa_fpdu_seal_at(struct mpa_sender *s, uint8_t *tail, size_t ulpdu_bytes, uint32_t sum)
{
	size_t pad = mpa_pad_bytes(ulpdu_bytes);
	memset(tail, 0, pad + MPA_CRC_BYTES);
	if (s->crc) {
		if (pad > 0)
			sum = crc32c(sum, tail, pad);
		for (size_t i = 0; i < MPA_CRC_BYTES; i++)
			tail[pad + i] = (uint8_t)(sum >> (8 * i));
	}
	s->position += MPA_LENGTH_BYTES + ulpdu_bytes + pad + MPA_CRC_BYTES;
	return pad + MPA_CRC_BYTES;
}

size_t mpa_fpdu_seal(struct mpa_sender *s, uint8_t *fpdu, size_t ulpdu_bytes, uint32_t sum)
{
	size_t before = MPA_LENGTH_BYTES + ulpdu_bytes;
	return before + mpa_fpdu_seal_at(s, fpdu + before, ulpdu_bytes, sum);
}
