/* Which frames of a program that is not trusted pass to other machines, and where those that come
 * go. See forward.h. */
#include "agent/forward.h"

#include <string.h>

void forward_set(struct forward_table *table, const struct forward_entry *entry)
{
	uint32_t at = 0;
	while (at < table->count && table->entries[at].place != entry->place)
		at++;
	if (entry->open) {
		if (at == AGENT_CI_ENTRIES)
			return; /* the agent has no more than that, either */
		table->entries[at] = *entry;
		table->count += at == table->count;
	} else if (at < table->count) {
		table->entries[at] = table->entries[--table->count];
	}
}

static bool forward_is_allowed(const struct forward_table *table, const uint8_t host[16],
                               const struct ci_packet *packet)
{
	if (ci_is_out_of_band(packet))
		return false;
	for (uint32_t i = 0; i < table->count; i++) {
		const struct forward_entry *entry = &table->entries[i];
		if (entry->index == packet->index &&
		    (entry->nonce == packet->nonce || entry->rolls) &&
		    memcmp(entry->host, host, sizeof(entry->host)) == 0)
			return true;
	}
	return false;
}

bool forward_may_send(const struct forward_table *table, const uint8_t host[16],
                      const uint8_t *frame, size_t bytes)
{
	struct ci_reader reader;
	struct ci_packet packet;
	enum ci_verdict verdict;
	unsigned count = 0;
	ci_open(&reader, frame, bytes);
	for (; (verdict = ci_next(&reader, &packet)) == CI_OK; count++)
		if (!forward_is_allowed(table, host, &packet))
			return false;
	/* What follows the end has no meaning here, and may have one elsewhere. */
	return verdict == CI_END && count > 0 && reader.at == bytes;
}

size_t forward_divide(const uint8_t *frame, size_t bytes, uint8_t *out,
                      void (*control)(void *context, const uint8_t *frame, size_t bytes),
                      void *context)
{
	uint8_t single[CI_EXTRA_BYTES + CI_OFFER_BYTES];
	struct ci_reader reader;
	struct ci_writer writer, apart;
	struct ci_packet packet;
	ci_open(&reader, frame, bytes);
	ci_begin(&writer, out, CI_MAX_FRAME);
	while (ci_next(&reader, &packet) == CI_OK) {
		if (!ci_is_out_of_band(&packet)) {
			(void)ci_put(&writer, &packet); /* it fitted into the frame that came */
			continue;
		}
		ci_begin(&apart, single, sizeof(single));
		if (ci_put(&apart, &packet))
			control(context, single, apart.used);
	}
	return writer.used;
}
