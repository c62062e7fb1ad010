/* Communication management over a network that loses, repeats and reorders (IBTA volume 1, 12.9):
 * one end of a connection, or of a service ID resolution for datagrams (12.11). It is sans-I/O:
 * time and messages come in, messages and events come out.
 *
 * 	active                                     passive
 * 	IDLE                                       IDLE
 * 	   | ibcm_ask()                               | ibcm_asked()
 * 	REQ_SENT  -- REQ, repeated -->             REQ_RECEIVED   (again: answered with MRA)
 * 	   | REP                                      | ibcm_reply()
 * 	REP_RECEIVED  <-- REP, repeated --         REP_SENT
 * 	   | ibcm_confirm()                           | RTU
 * 	ESTABLISHED   -- RTU -->                   ESTABLISHED
 * 	   | ibcm_disconnect(), or DREQ: DREP         |
 * 	DREQ_SENT     -- DREQ, repeated -->           |
 * 	TIMEWAIT, OVER                             TIMEWAIT, OVER
 *
 * The last message is kept, to send it again when no answer arrives in time or when the peer
 * repeats its own. A request or a reply without an answer is given up after the last repetition, or
 * at the time that ibcm_give_up_at() sets, which no MRA postpones. The peer is told, so that it
 * does not answer a request that nobody waits for. */
#ifndef COMPAT_IBCM_H
#define COMPAT_IBCM_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/ib_cm.h"

/* How long a program may take to answer a request, in an MRA: about 68 seconds. It is also the most
 * that we wait for a peer. */
#define IBCM_SERVICE_TIMEOUT 24u
/* The longest timeouts of a peer and of a path to it that we accept, each about 9 seconds: the
 * fields allow up to 2 hours, and a connection keeps its resources for that long. */
#define IBCM_LONGEST_TIMEOUT 21u
/* A REP goes to an address that only the request named. Until the peer proves that it receives
 * there, by using our number, the REP is repeated only this often on our own initiative, each time
 * after twice the time: a forged request causes this many datagrams, the REP itself and a REJ. A
 * repeated request is answered each time. A peer that needs time proves itself by an MRA. */
#define IBCM_UNPROVEN_REPEATS 3u

enum ibcm_state {
	IBCM_IDLE,
	IBCM_REQ_SENT,
	IBCM_REQ_RECEIVED,
	IBCM_REP_SENT,
	IBCM_REP_RECEIVED,
	IBCM_ESTABLISHED,
	IBCM_DREQ_SENT,
	IBCM_TIMEWAIT, /* late packets may still arrive */
	IBCM_OVER
};

enum ibcm_event {
	IBCM_NOTHING,
	IBCM_REPLIED,      /* a REP, or a SIDR_REP: look at the message */
	IBCM_REJECTED,     /* a REJ: look at the message */
	IBCM_CONNECTED,    /* an RTU */
	IBCM_DISCONNECTED, /* the connection has ended */
	IBCM_UNREACHABLE,  /* there was no answer */
	IBCM_EXITED        /* the end of TIMEWAIT */
};

struct ibcm {
	enum ibcm_state state;
	bool datagram; /* SIDR: REQ_SENT, REQ_RECEIVED and OVER alone */
	bool asked;    /* the peer is the active side */
	bool proven;   /* the peer has used our number: it receives where we send to */
	uint32_t local_id, remote_id;
	uint32_t local_qpn, remote_qpn;
	uint64_t remote_guid;
	uint64_t local_guid; /* of the active side */
	uint64_t transaction_id;
	uint64_t timeout_ns, timewait_ns;
	unsigned tries;      /* how many are left */
	uint64_t pause_ns;   /* between the last try and the next */
	uint64_t give_up_ns; /* for a REQ or a REP: when to give up, neither earlier nor later; 0:
	                       after the last try */
	uint64_t due_ns;     /* when to call ibcm_expire(); 0: never */
	bool has_last;
	uint8_t last[MAD_BYTES]; /* the last message, which may have to be sent again */
};

/* What to send: nothing, or one datagram. */
struct ibcm_out {
	bool any;
	bool last; /* this end does not repeat it: a REJ, or a DREQ of an end that will be freed */
	uint8_t mad[MAD_BYTES];
};

/* Start with @request, a REQ or a SIDR_REQ: its local_id (request_id) is the number of this end
 * from now on. */
void ibcm_ask(struct ibcm *end, const struct ib_cm_message *request, uint64_t now_ns,
              struct ibcm_out *out);
/* The peer starts, with @request; our number is @local_id. */
void ibcm_asked(struct ibcm *end, const struct ib_cm_message *request, uint32_t local_id);
/* Is @request, from the peer, the one that created @end? Then it is a repetition, for
 * ibcm_receive(). */
bool ibcm_is_of(const struct ibcm *end, const struct ib_cm_message *request);

/* These return false if the state does not allow it. They fill in the numbers of the connection. */
bool ibcm_reply(struct ibcm *end, struct ib_cm_message *reply, uint64_t now_ns,
                struct ibcm_out *out);
/* When to give up the last request or reply. */
void ibcm_give_up_at(struct ibcm *end, uint64_t give_up_ns);
bool ibcm_confirm(struct ibcm *end, struct ibcm_out *out);
/* @private_data: IB_CM_REJ_PRIVATE_BYTES, or IB_CM_SIDR_REP_PRIVATE_BYTES for datagrams; NULL:
 * zeros. */
bool ibcm_reject(struct ibcm *end, uint16_t reason, const uint8_t *private_data,
                 struct ibcm_out *out);
bool ibcm_disconnect(struct ibcm *end, uint64_t now_ns, struct ibcm_out *out);
/* Data arrived before the RTU. */
enum ibcm_event ibcm_established(struct ibcm *end);
/* This end is about to be freed: send what the peer has to know. */
void ibcm_part(struct ibcm *end, struct ibcm_out *out);

/* A message for this end. It changes nothing if the state does not expect it, or if it lacks what
 * only the peer knows:
 *
 *	REP, MRA, REJ to our request     the TransactionID of the request
 *	RTU, REJ, REP, repeated later    that, and the number that the peer gave the connection
 *	DREQ, LAP                        both numbers and our queue pair
 *	DREP                             both numbers and the TransactionID of our DREQ
 *	SIDR_REP                         the TransactionID of the request */
enum ibcm_event ibcm_receive(struct ibcm *end, const struct ib_cm_message *message, uint64_t now_ns,
                             struct ibcm_out *out);
/* Call it at due_ns or later. */
enum ibcm_event ibcm_expire(struct ibcm *end, uint64_t now_ns, struct ibcm_out *out);

#endif
