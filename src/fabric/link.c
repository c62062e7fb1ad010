/* One end of a link. See link.h. */
#include "fabric/link.h"

#include <assert.h>
#include <string.h>

#include "wire/be.h"

#define HEARS 1u

void link_begin(struct link *link)
{
	*link = (struct link){0};
}

static void link_go_down(struct link *link)
{
	link->downs += link->up;
	link->up = link->heard = link->numbered = false;
}

void link_put(struct link *link, uint8_t header[LINK_HEADER_BYTES], size_t bytes, uint64_t now_ns)
{
	assert(bytes <= IBC_MAX_BYTES);
	header[0] = 'H';
	header[1] = 'V';
	header[2] = bytes > 0 ? LINK_PACKET : LINK_KEEP_ALIVE;
	header[3] = link->heard ? HEARS : 0;
	be32_store(header + 4, link->next++);
	be16_store(header + 8, (uint16_t)bytes);
	be16_store(header + 10, 0);
	link->sent_ns = now_ns;
}

/* Count what did not come before the frame with number @number. */
static void link_number(struct link *link, uint32_t number)
{
	uint32_t ahead = number - link->expected, behind = link->expected - number;
	if (!link->numbered || (ahead >= LINK_WINDOW && behind > LINK_WINDOW)) {
		link->numbered = true; /* the other end has just started */
	} else if (ahead < LINK_WINDOW) {
		link->lost += ahead;
	} else { /* late: it was counted as lost, unless it comes twice */
		link->lost -= link->lost > 0;
		return;
	}
	link->expected = number + 1;
}

size_t link_take(struct link *link, const uint8_t *frame, size_t bytes, uint64_t now_ns)
{
	if (link->closed)
		return 0;
	size_t length = bytes >= LINK_HEADER_BYTES ? be16_load(frame + 8) : 0;
	if (bytes < LINK_HEADER_BYTES || frame[0] != 'H' || frame[1] != 'V' ||
	    (frame[2] != LINK_PACKET && frame[2] != LINK_KEEP_ALIVE) || (frame[3] & ~HEARS) != 0 ||
	    be16_load(frame + 10) != 0 || (frame[2] == LINK_PACKET) != (length > 0) ||
	    length > bytes - LINK_HEADER_BYTES || length > IBC_MAX_BYTES) {
		link->damaged++;
		return 0;
	}
	link_number(link, be32_load(frame + 4));
	link->heard = true;
	link->heard_ns = now_ns;
	if ((frame[3] & HEARS) != 0) {
		link->up = true;
	} else if (link->up) { /* it does not hear us any more, or has started again */
		link->up = false;
		link->downs++;
	}
	return length;
}

bool link_tick(struct link *link, uint64_t now_ns)
{
	if (link->closed)
		return false;
	if (link->heard && now_ns - link->heard_ns > LINK_SILENCE_NS)
		link_go_down(link);
	return link->sent_ns == 0 || now_ns - link->sent_ns >= LINK_KEEP_NS;
}

void link_lose(struct link *link)
{
	link_go_down(link);
}

void link_close(struct link *link, bool closed)
{
	if (closed)
		link_go_down(link);
	link->closed = closed;
}
