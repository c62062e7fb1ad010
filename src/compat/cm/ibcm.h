/* Communication management over a network that loses, repeats and reorders (IBTA volume 1, 12.9):
 * one end of a connection, or of the question who serves datagrams (12.11). It knows no clock, no
 * socket and no memory but its own: time comes in, messages and what happened come out.
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
 * What was said last is kept, to say it again when its answer does not come in time, or when the
 * peer repeats itself. A request or a reply without an answer is given up when all repetitions
 * were in vain, or at the time that ibcm_give_up_at() sets, which no MRA puts off; the peer is
 * told, so that it does not answer what nobody waits for. */
#ifndef COMPAT_IBCM_H
#define COMPAT_IBCM_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/ib_cm.h"

/* How long a program may take to answer a request, as an MRA says it: about 68 seconds. Nor do we
 * believe a peer that takes longer. */
#define IBCM_SERVICE_TIMEOUT 24u
/* The longest times of a peer and of a path to it that we believe, each about 9 seconds: the fields
 * hold up to 2 hours, and what a connection takes is taken until they are over. */
#define IBCM_LONGEST_TIMEOUT 21u
/* A REP goes to an address that only the request named. Until the peer proves that it receives
 * there, by naming our number, the REP is repeated so often without being asked for, each time
 * after twice the time: a forged request draws this many datagrams, the REP itself and a REJ. A
 * repeated request is answered as often as it comes. A peer that needs time proves it by an MRA. */
#define IBCM_UNPROVEN_REPEATS 3u

enum ibcm_state {
	IBCM_IDLE,
	IBCM_REQ_SENT,
	IBCM_REQ_RECEIVED,
	IBCM_REP_SENT,
	IBCM_REP_RECEIVED,
	IBCM_ESTABLISHED,
	IBCM_DREQ_SENT,
	IBCM_TIMEWAIT, /* what the network still holds may come late */
	IBCM_OVER
};

enum ibcm_event {
	IBCM_NOTHING,
	IBCM_REPLIED,      /* a REP, or a SIDR_REP: look at the message */
	IBCM_REJECTED,     /* a REJ: look at the message */
	IBCM_CONNECTED,    /* an RTU */
	IBCM_DISCONNECTED, /* the connection is over */
	IBCM_UNREACHABLE,  /* nobody answers */
	IBCM_EXITED        /* the end of TIMEWAIT */
};

struct ibcm {
	enum ibcm_state state;
	bool datagram; /* SIDR: REQ_SENT, REQ_RECEIVED and OVER alone */
	bool asked;    /* the peer began */
	bool proven;   /* it has named our number: it receives where we send to */
	uint32_t local_id, remote_id;
	uint32_t local_qpn, remote_qpn;
	uint64_t remote_guid;
	uint64_t local_guid; /* of the one who asks */
	uint64_t transaction_id;
	uint64_t timeout_ns, timewait_ns;
	unsigned tries;      /* that are left */
	uint64_t pause_ns;   /* between the last one and the next */
	uint64_t give_up_ns; /* a REQ or a REP: neither earlier nor later; 0: after the last try */
	uint64_t due_ns;     /* ibcm_expire() then; 0: nothing is waited for */
	bool has_last;
	uint8_t last[MAD_BYTES]; /* what may have to be said again */
};

/* What is to be sent: nothing, or one datagram. */
struct ibcm_out {
	bool any;
	bool last; /* this end does not repeat it by itself: a REJ, or a DREQ of one that will be
	              forgotten */
	uint8_t mad[MAD_BYTES];
};

/* Begin, with @request, a REQ or a SIDR_REQ: its local_id (request_id) is the name of this end from
 * now on. */
void ibcm_ask(struct ibcm *end, const struct ib_cm_message *request, uint64_t now_ns,
              struct ibcm_out *out);
/* The peer begins, with @request; we are @local_id. */
void ibcm_asked(struct ibcm *end, const struct ib_cm_message *request, uint32_t local_id);
/* Is @request, from the peer, the one that @end came from? Then it is a repetition, for
 * ibcm_hear(). */
bool ibcm_is_of(const struct ibcm *end, const struct ib_cm_message *request);

/* These return false where the state does not allow it. Numbers that name the connection are filled
 * in. */
bool ibcm_reply(struct ibcm *end, struct ib_cm_message *reply, uint64_t now_ns,
                struct ibcm_out *out);
/* What was just asked or replied is given up then. */
void ibcm_give_up_at(struct ibcm *end, uint64_t give_up_ns);
bool ibcm_confirm(struct ibcm *end, struct ibcm_out *out);
/* @private_data: IB_CM_REJ_PRIVATE_BYTES, or IB_CM_SIDR_REP_PRIVATE_BYTES where it is about
 * datagrams; NULL: zeros. */
bool ibcm_reject(struct ibcm *end, uint16_t reason, const uint8_t *private_data,
                 struct ibcm_out *out);
bool ibcm_disconnect(struct ibcm *end, uint64_t now_ns, struct ibcm_out *out);
/* Data came before the RTU did. */
enum ibcm_event ibcm_established(struct ibcm *end);
/* This end will be forgotten: say what is due. */
void ibcm_part(struct ibcm *end, struct ibcm_out *out);

/* A message for this end. What a state does not expect, or what does not name what only the peer
 *knows, changes nothing:
 *
 *	REP, MRA, REJ to our request     the TransactionID of the request
 *	RTU, REJ, REP again later on     that, and the number that the peer gave the connection
 *	DREQ, LAP                        both numbers and our queue pair
 *	DREP                             both numbers and the TransactionID of our DREQ
 *	SIDR_REP                         the TransactionID of the question */
enum ibcm_event ibcm_hear(struct ibcm *end, const struct ib_cm_message *message, uint64_t now_ns,
                          struct ibcm_out *out);
/* It is due_ns, or later. */
enum ibcm_event ibcm_expire(struct ibcm *end, uint64_t now_ns, struct ibcm_out *out);

#endif
