/* Any octets as a TCP stream of FPDUs: never read or write out of bounds, and however the stream is
 * cut, the same ULPDUs and the same verdict come out. The first octet picks markers, CRC,
 * the head and the length of the runs. */
#include "unit/wire/mpa_gather.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

struct outcome {
	enum mpa_stream_verdict verdict;
	size_t ulpdus;
	size_t octets;
	uint32_t sum;
	uint64_t position;
};

static struct outcome take(const uint8_t *in, size_t bytes, uint8_t how, size_t longest_run)
{
	size_t buffer_bytes = MPA_MAX_ULPDU_BYTES;
	uint8_t *buffer = malloc(buffer_bytes);
	struct mpa_gather r;
	struct outcome o = {.verdict = MPA_STREAM_MORE};
	if (buffer == NULL)
		abort();
	mpa_gather_init(&r, buffer, buffer_bytes, how & 1, how & 2);
	r.head_bytes = how & 4 ? MPA_HEAD_MAX_BYTES : 18;
	size_t at = 0;
	while (at < bytes && (o.verdict == MPA_STREAM_MORE || o.verdict == MPA_STREAM_ULPDU)) {
		size_t run = bytes - at < longest_run ? bytes - at : longest_run;
		struct mpa_ulpdu ulpdu;
		size_t used = 0;
		o.verdict = mpa_gather_feed(&r, in + at, run, &used, &ulpdu);
		if (used > run || (o.verdict == MPA_STREAM_MORE && used != run))
			abort();
		if (o.verdict == MPA_STREAM_ULPDU) {
			o.ulpdus++;
			o.octets += ulpdu.bytes;
			for (size_t i = 0; i < ulpdu.bytes; i++)
				o.sum = o.sum * 31 + ulpdu.data[i];
		}
		at += used;
	}
	o.position = r.r.position;
	free(buffer);
	return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	if (bytes == 0)
		return 0;
	struct outcome whole = take(data + 1, bytes - 1, data[0], SIZE_MAX);
	struct outcome cut = take(data + 1, bytes - 1, data[0], 1 + (data[0] >> 3));
	if (whole.verdict != cut.verdict || whole.ulpdus != cut.ulpdus ||
	    whole.octets != cut.octets || whole.sum != cut.sum || whole.position != cut.position)
		abort();
	return 0;
}
