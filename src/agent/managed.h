/* The out-of-band packets of programs that are not trusted (APERTURE columns 16 and 17: "kernel
 * connection management"). Such a program sends and receives CONNECT, ACCEPT, REJECT, CLOSE, ALIVE,
 * ERROR and STATUS through the agent alone. The agent holds its entries, and draws their numbers:
 *
 *      the program          the agent: its book                   the other process
 *      CI_ARM row      -->  entry: nonce, first number
 *      CONNECT         -->  with these numbers?              -->
 *                      <--  for a CONNECT of this entry?     <--  ACCEPT, REJECT
 *                      <--  remembered as a call             <--  CONNECT
 *      ACCEPT, REJECT  -->  of a call? with these numbers?   -->
 *      CLOSE, ALIVE .. -->  to the peer of an open entry?    -->
 *                      <--  from it?                         <--  CLOSE, ALIVE ..
 *
 * So the program chooses neither nonce nor first number, names no destination but the holder of a
 * port and the peers of its entries, and has no other source than itself. What agrees is passed on
 * as it is; nothing else is.
 *
 * Packets in, verdicts out: no sockets here, no clock. */
#ifndef AGENT_MANAGED_H
#define AGENT_MANAGED_H

#include <stdbool.h>
#include <stdint.h>

#include "port/agentmsg.h"
#include "wire/ci.h"

#define MANAGED_CALLS 256u /* that came last, and may be answered */

/* A process of this machine: the GUID of its node, and its slot there. Or a host: its address, and
 * nothing else. Which of its processes it is, that host decides. */
struct managed_end {
	uint64_t guid;
	uint32_t slot;
	uint8_t host[16];
	bool remote;
};

enum managed_state {
	MANAGED_FREE,
	MANAGED_ARMED,   /* it has numbers */
	MANAGED_CALLING, /* CONNECT or STATUS was sent to the peer */
	MANAGED_OPEN     /* ACCEPT has passed */
};

struct managed_entry {
	uint8_t state; /* enum managed_state */
	uint32_t row;
	uint64_t nonce;
	uint32_t sequence;
	struct managed_end peer;
	uint32_t peer_index;
	uint64_t peer_nonce;
	bool peer_rolls; /* the peer's nonce changes from packet to packet */
	bool forwarded;  /* the forwarder has something in this place (remote.c) */
};

/* A CONNECT or STATUS that came. */
struct managed_call {
	uint8_t kind; /* 0: none */
	uint32_t index;
	uint64_t nonce;
	bool rolls;
	struct managed_end from;
};

/* What the agent knows of one program. */
struct managed {
	struct managed_end self;
	uint32_t top; /* entries from here on were never used */
	struct managed_entry entries[AGENT_CI_ENTRIES];
	struct managed_call calls[MANAGED_CALLS];
	uint32_t next_call;
	const struct managed_entry *changed; /* by the last call; NULL: none */
};

enum managed_verdict {
	MANAGED_PASS,
	MANAGED_KIND,     /* not an out-of-band packet, or malformed */
	MANAGED_NO_ENTRY, /* an index that it does not have */
	MANAGED_NUMBERS,  /* a nonce or first number that the agent did not draw */
	MANAGED_PEER,     /* it is no connection between these two */
	MANAGED_UNASKED,  /* it answers nothing that came */
	MANAGED_POSES,    /* as the agent or the carrier, or with the slot of another process */
	MANAGED_VERDICT_COUNT
};

/* Give the entry @row these numbers, for one connection. False: there are AGENT_CI_ENTRIES. */
bool managed_arm(struct managed *book, uint32_t row, uint64_t nonce, uint32_t sequence);
void managed_disarm(struct managed *book, uint32_t row);
/* May the program send @packet to @to? */
enum managed_verdict managed_sends(struct managed *book, const struct managed_end *to,
                                   const struct ci_packet *packet);
/* May the program get @packet from @from? */
enum managed_verdict managed_gets(struct managed *book, const struct managed_end *from,
                                  const struct ci_packet *packet);
const char *managed_verdict_str(enum managed_verdict verdict);

#endif
