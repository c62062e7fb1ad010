/* Guessed keys. An unreliable connection silently drops writes with wrong keys (IBTA section
 * 9.9.6.3), so an attacker could try keys as fast as packets can be sent. Only some wrong keys are
 * checked in a burst, then one per millisecond; keys of the peer that were valid before are always
 * checked. Reliable connections do not need this: a wrong key ends them. */
#include <string.h>

#include "transport/ib/ib.h"

void ib_guess_begin(struct ib *ib)
{
	memset(ib->keys_known, 0, sizeof(ib->keys_known));
	ib->keys_next = 0;
	ib->wrong_left = IB_WRONG_KEYS;
	ib->wrong_ns = 0;
}

static bool key_is_known(const struct ib *ib, struct hdl_key key)
{
	for (uint32_t i = 0; i < IB_KEYS_KNOWN; i++)
		if (ib->keys_known[i].v == key.v && key.v != 0)
			return true;
	return false;
}

bool ib_may_judge(struct engine *engine, struct qp *qp, struct hdl_key key)
{
	struct ib *ib = qp->ib;
	if (qp_reliable(qp) || key_is_known(ib, key))
		return true;
	uint64_t more = (engine->now_ns - ib->wrong_ns) / IB_WRONG_KEY_NS;
	if (more > 0) {
		ib->wrong_left = more < IB_WRONG_KEYS - ib->wrong_left
		                         ? ib->wrong_left + (uint32_t)more
		                         : IB_WRONG_KEYS;
		ib->wrong_ns = engine->now_ns;
	}
	return ib->wrong_left > 0;
}

void ib_judged(struct qp *qp, struct hdl_key key, bool right)
{
	struct ib *ib = qp->ib;
	if (qp_reliable(qp))
		return;
	if (!right)
		ib->wrong_left -= ib->wrong_left > 0;
	else if (!key_is_known(ib, key))
		ib->keys_known[ib->keys_next++ % IB_KEYS_KNOWN] = key;
}
