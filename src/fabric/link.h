/* One end of a link between hardware ports: what goes before each packet, when a link is up, and
 * what was lost. Pure: frames and the time go in, frames and changes come out. UDP, Ethernet and
 * shared memory carry the same frames:
 *
 *    0  0x48, 0x56 ("HV")
 *    2  kind (1): enum link_kind
 *    3  bit 0: the sender hears the other end (1)
 *    4  sequence number (4): counts all frames, so that a gap is a loss
 *    8  length of the packet (2); 0 in a keep-alive
 *   10  0 (2)
 *   12  the packet; behind it there may be padding (Ethernet)
 *
 * Both ends send a frame at least every LINK_KEEP_NS. An end that hears frames says so in its own.
 * The link is up when both hear each other, and down when nothing has been heard for
 * LINK_SILENCE_NS. */
#ifndef FABRIC_LINK_H
#define FABRIC_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/ibc.h"

#define LINK_HEADER_BYTES 12u
#define LINK_MAX_BYTES    (LINK_HEADER_BYTES + IBC_MAX_BYTES)
#define LINK_KEEP_NS      100000000u
#define LINK_SILENCE_NS   1500000000u /* on a busy machine an end may not run for long */
/* A sequence number that is further away is that of an end that has started again. */
#define LINK_WINDOW 65536u

enum link_kind { LINK_PACKET = 1, LINK_KEEP_ALIVE, LINK_KIND_COUNT };

struct link {
	bool up;
	bool closed;       /* taken out of service: sends nothing, hears nothing */
	bool heard;        /* something, within LINK_SILENCE_NS */
	bool numbered;     /* .expected is valid */
	uint64_t heard_ns; /* when something was heard last */
	uint64_t sent_ns;  /* when something was sent last */
	uint32_t next;     /* sequence number to send */
	uint32_t expected; /* sequence number to hear */
	uint64_t lost, damaged, downs;
};

void link_begin(struct link *link);
/* Write the header of a frame with a packet of @bytes to @header (0: a keep-alive), which is sent
 * now. */
void link_put(struct link *link, uint8_t header[LINK_HEADER_BYTES], size_t bytes, uint64_t now_ns);
/* A frame of @bytes has come. Returns the length of its packet, which begins behind the header; 0:
 * there is none. */
size_t link_take(struct link *link, const uint8_t *frame, size_t bytes, uint64_t now_ns);
/* What is due: true means a keep-alive. The link may have gone down. Call at least every
 * LINK_KEEP_NS / 2. */
bool link_tick(struct link *link, uint64_t now_ns);
/* The other end is known to have gone. */
void link_lose(struct link *link);
/* Take the link out of service, or put it back. */
void link_close(struct link *link, bool closed);

#endif
