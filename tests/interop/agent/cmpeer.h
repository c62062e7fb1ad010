/* A peer across the wire made by hand: it has an address, and sends and hears messages of
 * communication management there. */
#ifndef AGENT_CMPEER_H
#define AGENT_CMPEER_H

#include "port/udp.h"
#include "wire/ib_cm.h"

struct cm_peer {
	struct udp_address address;
	int sock;
	struct udp_receiver receiver;
	struct udp_came came[UDP_BATCH];
	int count, next; /* of what came: how many, and which of them was not heard yet */
};

/* At @address. False: it is not to be had. */
bool cm_peer_open(struct cm_peer *peer, const char *address);
void cm_peer_close(struct cm_peer *peer);
void cm_peer_say(struct cm_peer *peer, const struct ib_cm_message *message,
                 const struct udp_address *to);
/* The next message, of whom, within @ms. False: there is none. */
bool cm_peer_hear(struct cm_peer *peer, struct ib_cm_message *message, struct udp_address *from,
                  double ms);

#endif
