/* Messages in memory: see messages.h. */
#include "messages.h"

#include <stdlib.h>
#include <string.h>

#define LOST_DELAY 40u

void message_cable_init(struct message_cable *cable, struct prng *prng, struct iwarp *a,
                        struct iwarp *b)
{
	memset(cable, 0, sizeof(*cable));
	cable->prng = prng;
	cable->ends[0] = a;
	cable->ends[1] = b;
	cable->loss_percent = 5;
}

void message_cable_free(struct message_cable *cable)
{
	for (unsigned i = 0; i < 2; i++) {
		for (unsigned n = 0; n < cable->lines[i].count; n++)
			free(cable->lines[i].slots[n].bytes);
		cable->lines[i].count = 0;
	}
}

static size_t line_fill(struct message_cable *cable, unsigned from)
{
	typeof(&cable->lines[0]) line = &cable->lines[from];
	size_t moved = 0, most = prng_below(cable->prng, 20);
	const uint8_t *message;
	for (; moved < most && line->count < MESSAGE_CABLE_SLOTS; moved++) {
		size_t length = iwarp_message_offer(cable->ends[from], &message);
		if (length == 0)
			break;
		typeof(&line->slots[0]) slot = &line->slots[line->count++];
		slot->bytes = malloc(length);
		if (slot->bytes == NULL)
			abort();
		memcpy(slot->bytes, message, length);
		slot->length = length;
		slot->delay = prng_below(cable->prng, 100) < cable->loss_percent ? LOST_DELAY : 0;
		iwarp_message_taken(cable->ends[from]);
	}
	return moved;
}

/* Which arrives next; count: none. */
static unsigned line_choose(struct message_cable *cable, unsigned from)
{
	typeof(&cable->lines[0]) line = &cable->lines[from];
	unsigned at = cable->in_order ? 0 : (unsigned)prng_below(cable->prng, line->count);
	for (unsigned i = 0; i < line->count; i++, at = (at + 1) % line->count)
		if (cable->in_order || line->slots[at].delay == 0)
			return at;
	return 0; /* all are late: the oldest */
}

static size_t line_pass(struct message_cable *cable, unsigned from)
{
	typeof(&cable->lines[0]) line = &cable->lines[from];
	struct iwarp *to = cable->ends[1 - from];
	size_t moved = 0, most = prng_below(cable->prng, 20);
	bool open = iwarp_message_resume(to);
	/* A peer that could not take a message may be able to take an older one. */
	bool refused = false;
	for (unsigned tries = 0; tries < most && line->count > 0; tries++) {
		unsigned at = refused && line->slots[0].delay == 0 ? 0 : line_choose(cable, from);
		refused = true;
		typeof(&line->slots[0]) slot = &line->slots[at];
		if (!cable->ended[1 - from] && !iwarp_message(to, slot->bytes, slot->length, &open))
			continue;
		refused = false;
		free(slot->bytes);
		line->early += at > 0;
		line->passed++;
		line->count--;
		memmove(slot, slot + 1, (line->count - at) * sizeof(*slot));
		for (unsigned i = 0; i < at; i++)
			line->slots[i].delay -= line->slots[i].delay > 0;
		moved++;
	}
	/* Time passes, too. */
	for (unsigned i = 0; moved == 0 && i < line->count; i++)
		line->slots[i].delay -= line->slots[i].delay > 0;
	return moved;
}

size_t message_cable_step(struct message_cable *cable)
{
	size_t moved = 0;
	for (unsigned from = 0; from < 2; from++)
		moved += line_fill(cable, from) + line_pass(cable, from);
	return moved;
}
