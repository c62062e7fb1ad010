/* How many packets of a connection may be in flight. The window grows with every acknowledgement, by as much as was
 * acknowledged until it met congestion, by one packet a round trip after that; it is halved when packets are lost, and cut
 * by a quarter when the network marked them (ECN; the receiver tells by a CNP, IBTA annex A17.9.3), at most once a round trip. */
#include "transport/ib.h"

void ib_window_begin(struct ib *ib)
{
	ib->window = IB_WINDOW_FIRST << IB_WINDOW_SHIFT;
	ib->threshold = IB_WINDOW_MAX << IB_WINDOW_SHIFT;
	ib->recovering = false;
}

void ib_window_grow(struct ib *ib, uint32_t count)
{
	if (ib->recovering && ib_psn_distance(ib->una_psn, ib->recover_psn) >= 0)
		ib->recovering = false;
	uint32_t more = count << IB_WINDOW_SHIFT;
	if (ib->window >= ib->threshold)
		more = (uint32_t)(((uint64_t)more << IB_WINDOW_SHIFT) / ib->window);
	ib->window += more;
	if (ib->window > IB_WINDOW_MAX << IB_WINDOW_SHIFT)
		ib->window = IB_WINDOW_MAX << IB_WINDOW_SHIFT;
}

static void reduce(struct ib *ib, uint32_t by)
{
	if (ib->recovering && ib_psn_distance(ib->una_psn, ib->recover_psn) < 0)
		return;
	ib->recovering = true;
	ib->recover_psn = ib->sent_psn;
	ib->window -= by;
	if (ib->window < IB_WINDOW_MIN << IB_WINDOW_SHIFT)
		ib->window = IB_WINDOW_MIN << IB_WINDOW_SHIFT;
	ib->threshold = ib->window;
}

void ib_window_lost(struct ib *ib)
{
	reduce(ib, ib->window / 2);
}

void ib_window_marked(struct ib *ib)
{
	reduce(ib, ib->window / 4);
}
