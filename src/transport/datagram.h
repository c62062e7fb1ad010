/* Unreliable datagrams: each request finds its own way to its destination, through a lane or over a
 * network, and to a group by both. */
#ifndef TRANSPORT_DATAGRAM_H
#define TRANSPORT_DATAGRAM_H

#include "transport/transport.h"

extern const struct transport datagram_transport;

#endif
