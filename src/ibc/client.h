/* A client of IBC: a member of the virtual switch with handles.
 *
 *   packets from lanes --> client_drive() --> the first free handle that takes it (figure 5: from
 *                                             non-signalled to signalled)
 *                                         --> or kept, until there is one; beyond
 *                                             IBC_LIMIT_KEPT it stays in its lane
 *
 * One lock protects all of it. A thread that waits polls for a short while, then one of the waiting
 * threads sleeps on the bell, and the others sleep until it has news. */
#ifndef IBC_CLIENT_H
#define IBC_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/prng.h"
#include "fabric/answer.h"
#include "heddle/ibc.h"
#include "ibc/capture.h"
#include "ibc/member.h"

enum handle_state { HANDLE_CLOSED, HANDLE_POSTED, HANDLE_SIGNALLED };

struct handle {
	enum handle_state state;
	uint16_t generation;
	bool matches; /* takes only the answer that is .wanted */
	struct answer_wanted wanted;
	uint32_t length; /* of .buffer */
	uint8_t *buffer;
	struct IBC_Info info; /* of the packet in it */
	struct record came;   /* the same, to answer it; without payload */
	struct handle *next;  /* in the list of posted receives */
	struct handle *previous;
};

/* A packet without a handle. */
struct kept {
	struct kept *next;
	uint8_t from; /* which member wrote it */
	uint64_t arrived_ns;
	struct record record; /* its payload is .payload */
	uint8_t payload[];
};

struct client {
	struct member member;     /* first: see client_owner */
	unsigned first;           /* the first APID that can send; 0: none */
	bool told_mute;           /* the log says so */
	bool told_portless;       /* the log says that nobody runs the hardware ports */
	struct prng_pool numbers; /* of requests: who has seen some cannot tell the next */
	uint32_t next_sent;       /* number of what IBC_Send() sends: no answer is expected */
	struct handle *handles[IBC_LIMIT_HANDLES];
	unsigned handle_count, signalled;
	struct handle *posted, *posted_last; /* receives in the order in which they were posted */
	struct kept *kept, *kept_last;
	unsigned kept_count, kept_from[BOARD_MEMBERS];
	struct IBC_Counters counters;
	bool has_descriptor, rung; /* IBC_Descriptor() was called; the bell rings */
	int epoll;                 /* what IBC_Descriptor() returns, or -1 */
	bool watches;              /* it has the agent's socket, */
	uint64_t watched;          /* that of this agent (member.agents) */
	struct pcapng *capture;    /* NULL: nothing is captured */
	uint8_t copy[RECORD_MAX_BYTES];
};

/* handles.c */
struct handle *client_open_handle(struct client *client, uint32_t length, int *result);
struct handle *client_find_handle(struct client *client, IBC_HANDLE number);
IBC_HANDLE client_handle_number(const struct client *client, const struct handle *handle);
void client_close_handle(struct client *client, struct handle *handle);
/* Copy the packet in @handle, which is signalled, and post the receive again. */
void client_fetch(struct client *client, struct handle *handle, void *buffer,
                  struct IBC_Info *info);
/* A packet has arrived from the member @from: to a handle, to the kept ones, or a NACK. */
void client_accept(struct client *client, const struct record *record, unsigned from);
void client_drop_kept(struct client *client);
/* The client leaves: answer what nobody will read any more. */
void client_reject_all(struct client *client);
extern const struct member_owner client_owner;
/* The lanes from which nothing is taken at the moment, by bits: nobody has posted a receive, or too
 * many packets of that sender are kept already. */
uint64_t client_blocked(const struct client *client);
/* Move what has arrived into handles. Returns true if anything came. */
bool client_drive(struct client *client);

/* send.c */
/* Send @packet from the APID @inport, out of the hardware port @outport or, if that is -1, as its
 * route says. @wait: wait for room in the lane of the receiver. A packet that is rejected comes
 * back to us as a NACK. False: it was for a hardware port, and the process that runs those does not
 * take it. */
bool client_emit(struct client *client, struct ibc_packet *packet, uint8_t inport, int outport,
                 bool wait);
/* Does a process run the hardware ports of the node? If not, the log says so once. */
bool client_has_ports(struct client *client);
/* @record has come or gone, and there is a capture. */
void client_capture(struct client *client, const struct record *record, bool inbound);
/* Answer the packet that came as @record with a NACK. */
void client_reject(struct client *client, const struct record *record, enum ibc_reason reason);

/* ibc.c */
/* While waiting for room in a lane: let other threads in, and take what has arrived. */
void client_pause(struct client *client, unsigned spins);

#endif
