/* Any bytes as a frame of CI packets: what is accepted survives being written and read again, in
 * fewer bytes or the same, and no body names more than its aperture has. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "wire/ci.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look_into(const struct ci_packet *packet)
{
	struct ci_offer offer;
	struct ci_read read;
	if ((packet->kind == CI_CONNECT || packet->kind == CI_ACCEPT) &&
	    ci_get_offer(packet, &offer) == CI_OK)
		assert((uint64_t)offer.first + offer.length <= 1ull << offer.bits ||
		       offer.bits == 0);
	if (packet->kind == CI_READ && ci_get_read(packet, &read) == CI_OK)
		assert(read.bytes > 0 && read.bytes <= CI_MAX_READ);
	if (packet->kind == CI_STATUS || packet->kind == CI_STATUSACK)
		(void)ci_get_status(packet);
	if (packet->kind >= CI_REJECT && packet->kind <= CI_ERROR)
		(void)ci_get_note(packet);
}

static bool same(const struct ci_packet *a, const struct ci_packet *b)
{
	return a->kind == b->kind && a->flags == b->flags && a->cluster == b->cluster &&
	       a->index == b->index && a->nonce == b->nonce && a->offset == b->offset &&
	       a->sequence == b->sequence && a->bytes == b->bytes &&
	       memcmp(a->data, b->data, a->bytes) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t again[CI_MAX_FRAME];
	struct ci_reader reader, second;
	struct ci_writer writer;
	struct ci_packet packet, copy;
	struct ci_burst burst = {0};
	if (size > sizeof(again))
		return 0;
	ci_open(&reader, data, size);
	ci_begin(&writer, again, sizeof(again));
	enum ci_verdict verdict;
	while ((verdict = ci_next(&reader, &packet)) == CI_OK) {
		size_t from = writer.used;
		struct ci_packet last = writer.last;
		look_into(&packet);
		assert(ci_put(&writer, &packet)); /* never longer than it came */
		ci_open(&second, again, writer.used);
		second.at = from;
		second.last = last;
		assert(ci_next(&second, &copy) == CI_OK && same(&packet, &copy));
		if (packet.kind == CI_DATA && !ci_join(&burst, &packet)) {
			while (burst.count > 0)
				ci_written(&burst, burst.pieces[0].bytes / 2 + 1);
			assert(burst.bytes == 0);
		}
	}
	/* Of a damaged packet there is a header, and nothing that could be used. */
	if (verdict == CI_WRONG_CRC)
		assert(packet.kind != 0 && packet.kind < CI_KIND_COUNT && packet.bytes == 0 &&
		       packet.data == NULL);
	return 0;
}
