/* iWARP: FPDUs that fall on TCP segments (RFC 5044 section 5). TCP cuts what one call to send gave
 * it after every EMSS octets, if the call before was a record of its own (MSG_EOR). So no FPDU is
 * divided if each call ends before the one that would be. FPDUs of a long message are as long as a
 * segment, and many of them go in one call.
 *
 * Only for peers that need it (iwarp_terms.aligned). Linux's siw (6.1) stores an FPDU's trailer
 * wrongly if a segment ends between pad and CRC, and then takes the CRC for a bad one. */
#include "transport/iwarp/iwarp.h"

#include <assert.h>

bool iwarp_align_room(const struct iwarp *iwarp)
{
	return iwarp->cut_end - iwarp->cut_begin < IWARP_CUTS;
}

void iwarp_align_put(struct iwarp *iwarp, size_t ulpdu_bytes)
{
	if (!iwarp->terms.aligned)
		return;
	assert(iwarp->terms.segment > 0);
	uint32_t segment = iwarp->terms.segment, at = (uint32_t)iwarp->sender.position;
	uint32_t fpdu = (uint32_t)mpa_fpdu_bytes(&iwarp->sender, ulpdu_bytes);
	if ((at - iwarp->line) % segment + fpdu <= segment)
		return;
	iwarp->line = at;
	/* The Terminate finds no room if it is the last of many; it is not worth a test. */
	if (iwarp_align_room(iwarp))
		iwarp->cuts[iwarp->cut_end++ % IWARP_CUTS] = at;
}

size_t iwarp_align_offer(const struct iwarp *iwarp, struct stream_run *runs, size_t count)
{
	if (iwarp->cut_begin == iwarp->cut_end)
		return count;
	size_t left = iwarp->cuts[iwarp->cut_begin % IWARP_CUTS] - (uint32_t)iwarp->taken;
	for (size_t i = 0; i < count; i++) {
		if (runs[i].length >= left) {
			runs[i].length = left;
			return i + 1;
		}
		left -= runs[i].length;
	}
	return count;
}

void iwarp_align_taken(struct iwarp *iwarp)
{
	while (iwarp->cut_begin != iwarp->cut_end &&
	       (int32_t)(iwarp->cuts[iwarp->cut_begin % IWARP_CUTS] - (uint32_t)iwarp->taken) <= 0)
		iwarp->cut_begin++;
}
