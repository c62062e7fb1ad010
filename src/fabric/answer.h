/* Which record answers a request. Whoever knows or guesses a transaction number could answer in
 * place of the one that was asked, so the number alone proves nothing. What does is what the
 * switches on the way have written: each of them replaces the port that it uses with the port of
 * arrival, so an answer that took the way of its request back arrives with the ports of that
 * request, in the other direction. An answer from anywhere else has another port in at least one
 * place. At the end of the way, the APID tells the applications of one node apart: their own switch
 * lets nobody send as another one. Pure. */
#ifndef FABRIC_ANSWER_H
#define FABRIC_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#include "fabric/board.h"

/* What the answer to a request looks like when it arrives. */
struct answer_wanted {
	uint32_t transaction;
	uint8_t asker;  /* the APID that asked */
	uint8_t asked;  /* the APID that was asked; VSWITCH_APID_ALL: each application there */
	uint8_t dest;   /* the destination APID of the request: switches reject in its name */
	uint8_t inport; /* through which it comes; VSWITCH_APID_ALL: from each application here */
	bool by_route;  /* our own switch uses a port of its route */
	struct ibc_route route;
};

/* @request is about to be sent from the APID @asker, out of the hardware port @outport or, if that
 * is -1, as its route says. */
void answer_want(struct answer_wanted *wanted, const struct ibc_packet *request, uint8_t asker,
                 int outport);
/* Is @record, which record_read() accepted or which we have made ourselves, that answer? */
bool answer_is_wanted(const struct answer_wanted *wanted, const struct record *record);

#endif
