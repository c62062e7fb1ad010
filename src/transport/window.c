/* Packets in flight, and time; see window.h. */
#include "transport/window.h"

#define ONE     (1u << WINDOW_SHIFT)
#define LARGEST (WINDOW_MAX_PACKETS << WINDOW_SHIFT)
#define LEAST   (ONE / WINDOW_PARTS)

static uint32_t window_first(const struct window *window)
{
	return WINDOW_FIRST_BYTES / window->mtu << WINDOW_SHIFT;
}

/* How far @a is ahead of @b; negative: behind. */
static int32_t window_distance(const struct window *window, uint32_t a, uint32_t b)
{
	return (int32_t)((a - b) << window->spare_bits) >> window->spare_bits;
}

void window_begin(struct window *window, uint32_t mtu, uint8_t spare_bits)
{
	*window = (struct window){.mtu = mtu, .spare_bits = spare_bits, .threshold = LARGEST};
	window->size = window_first(window);
}

/* Also in 256ths of a packet. */
static uint32_t window_in_flight(const struct window *window, uint32_t una, uint32_t sent)
{
	uint32_t packets = (uint32_t)window_distance(window, sent, una);
	return (packets != 0 ? packets : 1) << WINDOW_SHIFT;
}

static bool window_is_recovering(const struct window *window, uint32_t una)
{
	return window->recovering && window_distance(window, una, window->recover) < 0;
}

void window_grow(struct window *window, uint32_t una, uint32_t sent, uint32_t count)
{
	if (window->probed) {
		window->probed = false;
		/* More has arrived than was sent again. */
		if (window_distance(window, una, window->probed_number) >
		    (int32_t)(window_first(window) >> WINDOW_SHIFT)) {
			window->size = window->size_before;
			window->threshold = window->threshold_before;
			window->recovering = false;
			return;
		}
	}
	if (window_is_recovering(window, una))
		return;
	window->recovering = false;
	/* Something other than the window limits the sender. */
	if (window_in_flight(window, una, sent) + (count << WINDOW_SHIFT) < window->size / 2)
		return;
	uint64_t more = (uint64_t)count << WINDOW_SHIFT;
	if (window->size >= window->threshold) {
		uint64_t step = ((uint64_t)WINDOW_STEP_BYTES << WINDOW_SHIFT) / window->mtu;
		more = more * step / window->size;
		if (window->size < ONE && more > step)
			more = step;
	}
	window->size = more < LARGEST - window->size ? window->size + (uint32_t)more : LARGEST;
}

static void window_reduce(struct window *window, uint32_t una, uint32_t sent, uint32_t part,
                          uint32_t least)
{
	if (window_is_recovering(window, una))
		return;
	window->recovering = true;
	window->recover = sent;
	/* An unused window is no measure. */
	if (window->size > window_in_flight(window, una, sent))
		window->size = window_in_flight(window, una, sent);
	window->size -= window->size / part;
	if (window->size < least)
		window->size = least;
	window->threshold = window->size;
}

void window_lost(struct window *window, uint32_t una, uint32_t sent)
{
	/* With little in flight, chance is as likely a reason as congestion. */
	uint32_t first = window_first(window);
	window_reduce(window, una, sent, 2, window->size < first ? window->size : first);
}

void window_marked(struct window *window, uint32_t una, uint32_t sent)
{
	window_reduce(window, una, sent, 4, LEAST);
}

void window_hinted(struct window *window, uint32_t una, uint32_t sent, uint64_t now_ns)
{
	uint64_t pause = WINDOW_HINT_TRIPS * window->rtt_ns;
	if (pause < WINDOW_HINT_NS)
		pause = WINDOW_HINT_NS;
	if (sent == una || window->size <= window_first(window) ||
	    (window->hinted && now_ns - window->hinted_ns < pause))
		return;
	window->hinted = true;
	window->hinted_ns = now_ns;
	window->size -= window->size / 4;
	if (window->size < window_first(window))
		window->size = window_first(window);
	window->threshold = window->size;
}

void window_silent(struct window *window, uint32_t una)
{
	if (!window->probed) {
		window->probed = true;
		window->probed_number = una;
		window->size_before = window->size;
		window->threshold_before = window->threshold;
		window->threshold = window->size / 2 > 2 * ONE ? window->size / 2 : 2 * ONE;
	}
	if (window->size > window_first(window))
		window->size = window_first(window);
	window->recovering = false;
}

void window_pace(struct window *window, uint64_t now_ns)
{
	if (window->size < ONE)
		window->next_ns = now_ns + (window->rtt_ns << WINDOW_SHIFT) / window->size;
}

uint64_t window_pace_wait_ns(const struct window *window, uint64_t now_ns)
{
	return window->size < ONE && window->next_ns > now_ns ? window->next_ns - now_ns : 0;
}

/* --- time --- */

/* Not for a packet that is sent again: nobody knows which of the two is answered. */
void window_time_sent(struct window *window, uint32_t number, uint32_t sent, uint64_t now_ns)
{
	if (window->timing || window_distance(window, number, sent) < 0)
		return;
	window->timing = true;
	window->timed_number = number;
	window->timed_ns = now_ns;
}

void window_time_answered(struct window *window, uint32_t una, uint64_t now_ns)
{
	window->backoff = 0;
	window->waited_ns = 0;
	if (!window->timing || window_distance(window, una, window->timed_number) <= 0)
		return;
	window->timing = false;
	/* As in RFC 6298. */
	uint64_t took = now_ns - window->timed_ns;
	uint64_t off = took > window->rtt_ns ? took - window->rtt_ns : window->rtt_ns - took;
	if (window->rtt_ns == 0) {
		window->rtt_ns = took;
		window->rtt_spread_ns = took / 2;
		return;
	}
	window->rtt_spread_ns = (3 * window->rtt_spread_ns + off) / 4;
	window->rtt_ns = (7 * window->rtt_ns + took) / 8;
}

uint64_t window_wait_ns(const struct window *window, uint64_t timeout_ns)
{
	uint64_t left =
	        window->waited_ns < timeout_ns ? timeout_ns - window->waited_ns : timeout_ns;
	uint64_t soon = window->rtt_ns == 0 ? WINDOW_WAIT_FIRST_NS
	                                    : window->rtt_ns + 4 * window->rtt_spread_ns;
	if (soon < WINDOW_WAIT_MIN_NS)
		soon = WINDOW_WAIT_MIN_NS;
	if (soon > timeout_ns / 8)
		return left;
	soon <<= window->backoff;
	return soon < left ? soon : left;
}

bool window_overdue(struct window *window, uint64_t timeout_ns, uint64_t waited_ns)
{
	window->waited_ns += waited_ns;
	if (window->waited_ns < timeout_ns) {
		window->backoff++;
		return false;
	}
	window->waited_ns = 0;
	window->backoff = 0;
	return true;
}
