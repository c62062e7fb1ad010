/* How many packets of a connection may be in flight, and when an answer is considered missing.
 *
 * The window grows with every acknowledgement: by the amount acknowledged until it first meets
 * congestion, by IB_WINDOW_STEP_BYTES per round trip after that. It is reduced by a quarter when
 * the network marks packets (ECN: the receiver reports them with a CNP, IBTA annex A17.9.3; a
 * reader sees the marks itself), and halved when packets are lost, both at most once per round
 * trip. It starts over when nothing is answered at all. With a window below one packet, the next
 * packet is delayed. Data that is read counts in the window of the reader: responders answer
 * immediately, whatever they are asked for.
 *
 * Anybody can send a CNP. Heddle's own contain a PSN that the sender of the packets knows, in
 * reserved bytes that others ignore. A CNP without it reduces the window by a quarter, only
 * occasionally, and never below its initial size.
 *
 * The timeout of a queue pair is meant for the worst of networks. If answers usually come much
 * sooner, a missing one is requested sooner; only when the whole timeout has passed does this count
 * as a retry. If it turns out that the answers were late and nothing was lost, the window is
 * restored. */
#include "transport/ib/ib.h"
#include "wire/be.h"

#define CNP_MARK   0x48u /* precedes a PSN in the first reserved word of a CNP */
#define ONE        (1u << IB_WINDOW_SHIFT)
#define WINDOW_MAX (IB_WINDOW_MAX << IB_WINDOW_SHIFT)
#define WINDOW_MIN (ONE / IB_WINDOW_PARTS)

static uint32_t first_window(const struct ib *ib)
{
	return IB_WINDOW_FIRST_BYTES / ib->mtu << IB_WINDOW_SHIFT;
}

void ib_window_begin(struct ib *ib)
{
	ib->window = first_window(ib);
	ib->threshold = WINDOW_MAX;
	ib->recovering = ib->probed = ib->timing = false;
	ib->rtt_ns = ib->rtt_spread_ns = ib->waited_ns = 0;
	ib->backoff = 0;
	ib->next_ns = 0;
	ib->bare_seen = false;
}

/* Also in 256ths of a packet. */
static uint32_t in_flight(const struct ib *ib)
{
	uint32_t packets = ib_psn(ib->sent_psn - ib->una_psn);
	return (packets != 0 ? packets : 1) << IB_WINDOW_SHIFT;
}

void ib_window_grow(struct ib *ib, uint32_t count)
{
	if (ib->probed) {
		ib->probed = false;
		/* More has arrived than was sent again. */
		if (ib_psn_distance(ib->una_psn, ib->probed_psn) >
		    (int32_t)(first_window(ib) >> IB_WINDOW_SHIFT)) {
			ib->window = ib->window_before;
			ib->threshold = ib->threshold_before;
			ib->recovering = false;
			return;
		}
	}
	if (ib->recovering && ib_psn_distance(ib->una_psn, ib->recover_psn) < 0)
		return;
	ib->recovering = false;
	/* Something other than the window limits the sender. */
	if (in_flight(ib) + (count << IB_WINDOW_SHIFT) < ib->window / 2)
		return;
	uint64_t more = (uint64_t)count << IB_WINDOW_SHIFT;
	if (ib->window >= ib->threshold) {
		uint64_t step = ((uint64_t)IB_WINDOW_STEP_BYTES << IB_WINDOW_SHIFT) / ib->mtu;
		more = more * step / ib->window;
		if (ib->window < ONE && more > step)
			more = step;
	}
	ib->window = more < WINDOW_MAX - ib->window ? ib->window + (uint32_t)more : WINDOW_MAX;
}

static void reduce(struct ib *ib, uint32_t part, uint32_t least)
{
	if (ib->recovering && ib_psn_distance(ib->una_psn, ib->recover_psn) < 0)
		return;
	ib->recovering = true;
	ib->recover_psn = ib->sent_psn;
	/* An unused window is no measure. */
	if (ib->window > in_flight(ib))
		ib->window = in_flight(ib);
	ib->window -= ib->window / part;
	if (ib->window < least)
		ib->window = least;
	ib->threshold = ib->window;
}

void ib_window_lost(struct ib *ib)
{
	/* With little in flight, chance is as likely a reason as congestion. */
	reduce(ib, 2, ib->window < first_window(ib) ? ib->window : first_window(ib));
}

void ib_window_marked(struct ib *ib)
{
	reduce(ib, 4, WINDOW_MIN);
}

void ib_cnp_sign(const struct ib *ib, struct ib_cnp *cnp)
{
	be32_store(cnp->resv128, CNP_MARK << 24 | ib_psn(ib->expected_psn - 1));
}

bool ib_cnp_proved(const struct ib *ib, const struct ib_cnp *cnp)
{
	uint32_t word = be32_load(cnp->resv128), psn = ib_psn(word);
	return word >> 24 == CNP_MARK && ib_psn_distance(psn, ib->sent_psn) < 0 &&
	       ib_psn_distance(psn, ib->una_psn) >= -(int32_t)IB_CNP_LATE;
}

void ib_window_hinted(struct ib *ib, uint64_t now_ns)
{
	uint64_t pause = IB_CNP_BARE_TRIPS * ib->rtt_ns;
	if (pause < IB_CNP_BARE_NS)
		pause = IB_CNP_BARE_NS;
	if (ib->sent_psn == ib->una_psn || ib->window <= first_window(ib) ||
	    (ib->bare_seen && now_ns - ib->bare_ns < pause))
		return;
	ib->bare_seen = true;
	ib->bare_ns = now_ns;
	ib->window -= ib->window / 4;
	if (ib->window < first_window(ib))
		ib->window = first_window(ib);
	ib->threshold = ib->window;
}

void ib_window_silent(struct ib *ib)
{
	if (!ib->probed) {
		ib->probed = true;
		ib->probed_psn = ib->una_psn;
		ib->window_before = ib->window;
		ib->threshold_before = ib->threshold;
		ib->threshold = ib->window / 2 > 2 * ONE ? ib->window / 2 : 2 * ONE;
	}
	if (ib->window > first_window(ib))
		ib->window = first_window(ib);
	ib->recovering = false;
}

void ib_pace(struct ib *ib, uint64_t now_ns)
{
	if (ib->window < ONE)
		ib->next_ns = now_ns + (ib->rtt_ns << IB_WINDOW_SHIFT) / ib->window;
}

uint64_t ib_pace_wait_ns(const struct ib *ib, uint64_t now_ns)
{
	return ib->window < ONE && ib->next_ns > now_ns ? ib->next_ns - now_ns : 0;
}

/* --- time --- */

/* Start timing the answer to @psn. Not for a packet that is sent again: nobody knows which of the
 * two is answered. */
void ib_time_sent(struct ib *ib, uint32_t psn, uint64_t now_ns)
{
	if (ib->timing || ib_psn_distance(psn, ib->sent_psn) < 0)
		return;
	ib->timing = true;
	ib->timed_psn = psn;
	ib->timed_ns = now_ns;
}

void ib_time_answered(struct ib *ib, uint64_t now_ns)
{
	ib->backoff = 0;
	ib->waited_ns = 0;
	if (!ib->timing || ib_psn_distance(ib->una_psn, ib->timed_psn) <= 0)
		return;
	ib->timing = false;
	/* As in RFC 6298. */
	uint64_t took = now_ns - ib->timed_ns;
	uint64_t off = took > ib->rtt_ns ? took - ib->rtt_ns : ib->rtt_ns - took;
	if (ib->rtt_ns == 0) {
		ib->rtt_ns = took;
		ib->rtt_spread_ns = took / 2;
		return;
	}
	ib->rtt_spread_ns = (3 * ib->rtt_spread_ns + off) / 4;
	ib->rtt_ns = (7 * ib->rtt_ns + took) / 8;
}

uint64_t ib_ack_wait_ns(const struct qp *qp)
{
	const struct ib *ib = qp->ib;
	uint64_t whole = ib_timeout_ns(qp);
	uint64_t left = ib->waited_ns < whole ? whole - ib->waited_ns : whole;
	uint64_t soon = ib->rtt_ns == 0 ? IB_ACK_WAIT_FIRST_NS : ib->rtt_ns + 4 * ib->rtt_spread_ns;
	if (soon < IB_ACK_WAIT_MIN_NS)
		soon = IB_ACK_WAIT_MIN_NS;
	if (soon > whole / 8)
		return left;
	soon <<= ib->backoff;
	return soon < left ? soon : left;
}

bool ib_ack_overdue(struct qp *qp, uint64_t waited_ns)
{
	struct ib *ib = qp->ib;
	ib->waited_ns += waited_ns;
	if (ib->waited_ns < ib_timeout_ns(qp)) {
		ib->backoff++;
		return false;
	}
	ib->waited_ns = 0;
	ib->backoff = 0;
	return true;
}
