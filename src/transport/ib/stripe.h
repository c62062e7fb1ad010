/* One connection over two ways at a time: its path and its alternate path (ib/ib.h). Packets of a
 * message go out over both in turn, so that they arrive out of order; the responder keeps those
 * that come early and executes them in order. A packet is known to be lost when both ways have
 * delivered later ones, or one way has and the other lags far behind. A way on which nothing
 * arrives is taken out, and tried again from time to time with a copy of a packet. The requests
 * that a read is cut into go out over both in turn, and each is answered along the way that it
 * came: so a response is lost when later ones came along its own way. What comes early is put where
 * it belongs at once. Both ends must be told to; to anybody else the packets are valid, and out of
 * order.
 *
 * All of it is in one piece of memory, the adapter's. Pure: times come in as arguments. */
#ifndef TRANSPORT_STRIPE_H
#define TRANSPORT_STRIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <heddle/limits.h>

#include "wire/ib_packet.h"

#define STRIPE_WAYS     2u
#define STRIPE_LAG      128u /* packets that one way may be ahead of the other */
#define STRIPE_STRIKES  8u   /* losses on a way, and nothing else, until it is taken out */
#define STRIPE_RETRY_NS 5000000u

enum stripe_early { STRIPE_MISSING, STRIPE_PLACED, STRIPE_PLACED_LAST /* of its request */ };

struct stripe {
	uint32_t count;        /* packets in flight at most, and kept at most; a power of two */
	uint32_t packet_bytes; /* of payload */
	/* Requester. */
	uint8_t last_way;
	bool down[STRIPE_WAYS];
	bool trying[STRIPE_WAYS]; /* a copy went along a way that is out: an answer along it brings
	                             it back */
	uint8_t strikes[STRIPE_WAYS];
	uint64_t try_ns;
	bool repairing; /* everything before this PSN is being sent again: that it is missed is no
	                   news */
	uint32_t repair_psn;
	uint8_t sent_on[HDL_MAX_STRIPE]; /* which way each packet went last, by PSN */
	/* What came before its turn: responses to reads, by PSN (enum stripe_early); an
	 * acknowledgement of everything before a PSN, and the way that it came; a refusal. */
	uint8_t early[HDL_MAX_STRIPE];
	bool acked, refused, forgotten;
	uint8_t acked_way, refused_way;
	uint32_t acked_psn;
	struct ib_packet refusal;
	/* Responder, and what came. */
	uint8_t came;  /* which way the packet came that is looked at */
	uint8_t reply; /* along which an acknowledgement goes */
	bool echo;     /* somebody asks whether this way works: */
	uint8_t echo_way;
	bool seen[STRIPE_WAYS];
	uint32_t newest[STRIPE_WAYS]; /* PSN that came along each */
	_Alignas(8) uint8_t slots[];
};

/* How much memory it takes; and fill that in. */
size_t stripe_bytes(uint32_t count, uint32_t packet_bytes);
void stripe_init(struct stripe *s, uint32_t count, uint32_t packet_bytes);

/* --- requester --- */
/* The way of the next packet; of one that is sent again; and of one that needs no company. */
unsigned stripe_next_way(const struct stripe *s);
unsigned stripe_other_way(const struct stripe *s, uint32_t psn);
static inline unsigned stripe_steady_way(const struct stripe *s)
{
	return s->down[0];
}
void stripe_sent(struct stripe *s, uint32_t psn, unsigned way);
/* The way that is out and due to be tried, STRIPE_WAYS: none; and it was. */
unsigned stripe_due(const struct stripe *s, uint64_t now_ns);
void stripe_tried(struct stripe *s, unsigned way, uint64_t now_ns);
/* @count packets from @psn on have arrived. */
void stripe_arrived(struct stripe *s, uint32_t psn, uint32_t count);
/* @psn was lost. True: the way it went is out from now on. */
bool stripe_lost(struct stripe *s, uint32_t psn, uint64_t now_ns);
/* Nothing is answered, @psn is the oldest: the other way has to do. */
void stripe_silent(struct stripe *s, uint32_t psn, uint64_t now_ns);
/* An answer came along s->came. */
void stripe_heard(struct stripe *s);
/* May what answers @psn still be on its way, after what came along s->came? */
static inline bool stripe_may_come(const struct stripe *s, uint32_t psn)
{
	return s->sent_on[psn & (HDL_MAX_STRIPE - 1)] != s->came;
}
/* What came early is for nothing: it is asked for again. */
void stripe_forget_early(struct stripe *s);

/* --- responder --- */
/* The packet @psn came. True: along a way on which nothing came for long. */
bool stripe_note(struct stripe *s, uint32_t psn, uint32_t expected);
/* Keep @packet, which is @ahead of the one that is expected. False: it cannot be kept. */
bool stripe_keep(struct stripe *s, const struct ib_packet *packet, uint32_t ahead);
/* The packet with @psn, if it is kept; valid until the next one is kept. It is kept no longer;
 * s->came is its way. */
const struct ib_packet *stripe_take(struct stripe *s, uint32_t psn);
/* Is the packet that is @expected lost, as far as one can know? */
bool stripe_is_lost(const struct stripe *s, uint32_t expected);

#endif
