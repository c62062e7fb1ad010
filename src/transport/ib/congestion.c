/* Notices of congestion (IBTA annex A17.9.3): the receiver of marked packets reports them with a
 * CNP; a reader sees the marks itself. What follows from them is in transport/window.h. Data that
 * is read counts in the window of the reader: responders answer immediately, whatever they are
 * asked for.
 *
 * Anybody can send a CNP. Heddle's own contain a PSN that the sender of the packets knows, in
 * reserved bytes that others ignore. A CNP without it reduces the window by a quarter, only
 * occasionally, and never below its initial size. */
#include "transport/ib/ib.h"
#include "wire/be.h"

#define CNP_MARK 0x48u /* precedes a PSN in the first reserved word of a CNP */

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
