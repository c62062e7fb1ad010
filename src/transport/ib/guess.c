/* Guessed keys. An unreliable connection drops writes with wrong keys in silence (IBTA
 * section 9.9.6.3), so whoever guesses may try as fast as packets go. Some wrong keys are judged at
 * once, then one per millisecond; the keys of the peer's that were right before go on to be judged
 * meanwhile. Reliable connections need none of that: a wrong key is their end. */
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
