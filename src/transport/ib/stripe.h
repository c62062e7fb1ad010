/* One connection over two paths at the same time: its path and its alternate path (ib/ib.h). In the
 * code, a way is the number of one of them. The packets of a message alternate between both, so
 * they arrive out of order; the responder keeps those that come early and executes them in order. A
 * packet is known to be lost when both paths have delivered later ones, or when one has and the
 * other lags far behind. A path on which nothing arrives is taken out of use, and tried again from
 * time to time with a copy of a packet. The requests that a read is divided into also alternate,
 * and each is answered along the path on which it came: so a response is lost when later ones have
 * come along its own path. Responses that come early are placed immediately. Both ends must be
 * configured for this; to anybody else the packets are valid, but out of order.
 *
 * All of it is in one block of the adapter's memory. Pure: times are arguments. */
#ifndef TRANSPORT_STRIPE_H
#define TRANSPORT_STRIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <heddle/limits.h>

#include "wire/ib_packet.h"

#define STRIPE_WAYS 2u
#define STRIPE_LAG  128u /* packets that one path may be ahead of the other */
/* Losses on a path, with no success in between, until it is taken out of use. */
#define STRIPE_STRIKES  8u
#define STRIPE_RETRY_NS 5000000u

enum stripe_early { STRIPE_MISSING, STRIPE_PLACED, STRIPE_PLACED_LAST /* of its request */ };

struct stripe {
	/* Maximum number of packets in flight, and of packets kept; a power of two. */
	uint32_t count;
	uint32_t packet_bytes; /* of payload */
	/* Requester. */
	uint8_t last_way;
	bool down[STRIPE_WAYS];
	/* A copy was sent along a path that is out of use: an answer along it brings it back. */
	bool trying[STRIPE_WAYS];
	uint8_t strikes[STRIPE_WAYS];
	uint64_t try_ns;
	/* Everything before repair_psn is being sent again: that it is missing is no news. */
	bool repairing;
	uint32_t repair_psn;
	uint8_t sent_on[HDL_MAX_STRIPE]; /* the path that each packet took last, by PSN */
	/* What came before its turn: responses to reads, by PSN (enum stripe_early); an
	 * acknowledgement of everything before a PSN, and its path; a refusal. */
	uint8_t early[HDL_MAX_STRIPE];
	bool acked, refused, forgotten;
	uint8_t acked_way, refused_way;
	uint32_t acked_psn;
	struct ib_packet refusal;
	/* Responder, and received packets. */
	uint8_t came;  /* the path of the current packet */
	uint8_t reply; /* the path for acknowledgements */
	bool echo;     /* the peer asks whether the path echo_way works */
	uint8_t echo_way;
	bool seen[STRIPE_WAYS];
	uint32_t newest[STRIPE_WAYS]; /* the newest PSN that came along each */
	_Alignas(8) uint8_t slots[];
};

/* How much memory it takes; and initialize that memory. */
size_t stripe_bytes(uint32_t count, uint32_t packet_bytes);
void stripe_init(struct stripe *s, uint32_t count, uint32_t packet_bytes);

/* --- requester --- */
/* The path for the next packet; for one that is sent again; and for one that is sent alone. */
unsigned stripe_next_way(const struct stripe *s);
unsigned stripe_other_way(const struct stripe *s, uint32_t psn);
static inline unsigned stripe_steady_way(const struct stripe *s)
{
	return s->down[0];
}
void stripe_sent(struct stripe *s, uint32_t psn, unsigned way);
/* The path that is out of use and due to be tried, STRIPE_WAYS if none is; and it has been tried.
 */
unsigned stripe_due(const struct stripe *s, uint64_t now_ns);
void stripe_tried(struct stripe *s, unsigned way, uint64_t now_ns);
/* @count packets from @psn on have arrived. */
void stripe_arrived(struct stripe *s, uint32_t psn, uint32_t count);
/* @psn was lost. True: the path that it took is now out of use. */
bool stripe_lost(struct stripe *s, uint32_t psn, uint64_t now_ns);
/* Nothing is answered, and @psn is the oldest: use only the other path. */
void stripe_silent(struct stripe *s, uint32_t psn, uint64_t now_ns);
/* An answer came along s->came. */
void stripe_heard(struct stripe *s);
/* May the answer to @psn still be on its way, given what came along s->came? */
static inline bool stripe_may_come(const struct stripe *s, uint32_t psn)
{
	return s->sent_on[psn & (HDL_MAX_STRIPE - 1)] != s->came;
}
/* Discard what came early: it is requested again. */
void stripe_forget_early(struct stripe *s);

/* --- responder --- */
/* The packet @psn came. True: along a path on which nothing had come for a long time. */
bool stripe_note(struct stripe *s, uint32_t psn, uint32_t expected);
/* Keep @packet, which is @ahead of the expected one. False: it cannot be kept. */
bool stripe_keep(struct stripe *s, const struct ib_packet *packet, uint32_t ahead);
/* Take the packet with @psn, if it is kept; valid until the next one is kept. s->came is set to its
 * path. */
const struct ib_packet *stripe_take(struct stripe *s, uint32_t psn);
/* Is the packet @expected lost, as far as can be known? */
bool stripe_is_lost(const struct stripe *s, uint32_t expected);

#endif
