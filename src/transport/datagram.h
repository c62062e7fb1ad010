/* Unreliable datagrams: each request goes to its own destination, through a lane or over a network;
 * to a group, through both. */
#ifndef TRANSPORT_DATAGRAM_H
#define TRANSPORT_DATAGRAM_H

#include "transport/transport.h"

extern const struct transport datagram_transport;

#endif
