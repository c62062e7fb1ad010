/* The channel between a program that is not trusted and its forwarder (agent/forward.h): a pair of
 * Unix sockets, one record per frame of CI packets: this header, then the frame. */
#ifndef PORT_FORWARD_H
#define PORT_FORWARD_H

#include <stdint.h>

struct forward_header {
	uint8_t host[16]; /* where the frame goes, or where it came from */
	uint32_t which;   /* of the addresses of the node, in their order */
};
_Static_assert(sizeof(struct forward_header) == 20, "both sides are of one build");

#endif
