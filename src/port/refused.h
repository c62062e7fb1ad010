/* Datagrams that came back: a host said that nobody takes them (ICMP port unreachable), or a router
 * that it cannot pass them on. The kernel keeps the beginning of each in the error queue of the
 * socket. Of sockets that share a port, any one may get it. */
#ifndef PORT_REFUSED_H
#define PORT_REFUSED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "port/udp.h"

#define REFUSED_BYTES 96u /* of a datagram that are of interest */

struct refused {
	struct udp_address to;
	uint16_t port;
	int error; /* ECONNREFUSED: nobody is there; EHOSTUNREACH, EMSGSIZE ...: of the way */
	size_t bytes;
	uint8_t data[REFUSED_BYTES];
};

/* Keep such datagrams of @sock, which is on @address, from now on. */
void refused_watch(int sock, const struct udp_address *address);
/* The next one. False: there is none. *out with 0 bytes: another kind of error. */
bool refused_next(int sock, struct refused *out);

#endif
