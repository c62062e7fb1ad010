/* How many packets of a sender may be in flight, and when an answer is considered missing. Shared
 * by every protocol of ours that repeats what gets lost: InfiniBand connections (ib/congestion.c)
 * and apertures (aperture/).
 *
 * The window grows with every acknowledgement: by the amount acknowledged until it first meets
 * congestion, by WINDOW_STEP_BYTES per round trip after that. It is reduced by a quarter when the
 * network marks packets, and halved when packets are lost, both at most once per round trip. It
 * starts over when nothing is answered at all. With a window below one packet, the next packet is
 * delayed.
 *
 * The timeout of a connection is meant for the worst of networks. If answers usually come much
 * sooner, a missing one is requested sooner; only when the whole timeout has passed does this count
 * as a retry. If it turns out that the answers were late and nothing was lost, the window is
 * restored.
 *
 * Packets have numbers, which wrap. The caller passes @una, the oldest that is not acknowledged,
 * and @sent, one past the last that has ever been sent. */
#ifndef TRANSPORT_WINDOW_H
#define TRANSPORT_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#define WINDOW_MAX_PACKETS   1024u /* in flight */
#define WINDOW_FIRST_BYTES   4096u /* the initial window */
#define WINDOW_STEP_BYTES    1024u
#define WINDOW_PARTS         16u        /* the minimum: one packet per this many round trips */
#define WINDOW_SHIFT         8u         /* the window is kept in 256ths of a packet */
#define WINDOW_HINT_NS       100000000u /* a hint of anybody counts at most this often, */
#define WINDOW_HINT_TRIPS    64u        /* and at most once in this many round trips */
#define WINDOW_WAIT_MIN_NS   1000000u   /* no answer is considered missing sooner */
#define WINDOW_WAIT_FIRST_NS 4000000u   /* the same while the round-trip time is unknown */

struct window {
	uint32_t size;      /* in 256ths of a packet */
	uint32_t threshold; /* likewise: below it the window doubles in every round trip */
	uint32_t recover;   /* only one reduction counts until this is acknowledged */
	uint32_t mtu;       /* the largest payload of a packet in bytes */
	uint8_t spare_bits; /* of 32, which numbers do not have */
	uint8_t backoff;
	bool recovering;
	/* The answer to probed_number was missing; the next two are the window at that time. */
	bool probed;
	bool hinted; /* a hint came and counted, at hinted_ns */
	bool timing; /* the answer to timed_number is being timed, since timed_ns */
	uint32_t probed_number, size_before, threshold_before;
	uint32_t timed_number;
	uint64_t hinted_ns, timed_ns;
	uint64_t rtt_ns, rtt_spread_ns; /* 0: unknown */
	uint64_t waited_ns;             /* of the timeout, without an answer */
	/* With a window of less than one packet, the next packet is not sent before this. */
	uint64_t next_ns;
};

void window_begin(struct window *window, uint32_t mtu, uint8_t spare_bits);
/* @count packets have been acknowledged. */
void window_grow(struct window *window, uint32_t una, uint32_t sent, uint32_t count);
/* Packets were lost, or marked by the network: reduce the number in flight. */
void window_lost(struct window *window, uint32_t una, uint32_t sent);
void window_marked(struct window *window, uint32_t una, uint32_t sent);
/* Somebody says that packets were marked, without proof. */
void window_hinted(struct window *window, uint32_t una, uint32_t sent, uint64_t now_ns);
/* The answer to the oldest packet is missing: it is sent again, with a few after it. */
void window_silent(struct window *window, uint32_t una);
/* The packet @number is about to be sent and requests an answer. */
void window_time_sent(struct window *window, uint32_t number, uint32_t sent, uint64_t now_ns);
/* Everything before @una has been answered. */
void window_time_answered(struct window *window, uint32_t una, uint64_t now_ns);
/* How long to wait for an answer if the timeout is @timeout_ns; and, after waiting without one: has
 * the timeout passed by now? */
uint64_t window_wait_ns(const struct window *window, uint64_t timeout_ns);
bool window_overdue(struct window *window, uint64_t timeout_ns, uint64_t waited_ns);
/* Schedule the packet after one that is sent now; and how long the next one has to wait. */
void window_pace(struct window *window, uint64_t now_ns);
uint64_t window_pace_wait_ns(const struct window *window, uint64_t now_ns);

/* In whole packets; at least one may be in flight. */
static inline uint32_t window_packets(const struct window *window)
{
	return window->size >> WINDOW_SHIFT != 0 ? window->size >> WINDOW_SHIFT : 1;
}

#endif
