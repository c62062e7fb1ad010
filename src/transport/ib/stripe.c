/* One connection over two paths; see stripe.h. */
#include "transport/ib/stripe.h"

#include <assert.h>
#include <string.h>

#include "transport/ib/ib.h"

struct slot {
	bool used;
	uint8_t way;
	struct ib_packet packet; /* its payload follows */
};

static size_t slot_bytes(uint32_t packet_bytes)
{
	return (sizeof(struct slot) + packet_bytes + 7) & ~(size_t)7;
}

static struct slot *ib_stripe_slot_of(const struct stripe *s, uint32_t psn)
{
	size_t at = (psn & (s->count - 1)) * slot_bytes(s->packet_bytes);
	return (struct slot *)(void *)((uintptr_t)s->slots + at);
}

size_t stripe_bytes(uint32_t count, uint32_t packet_bytes)
{
	return sizeof(struct stripe) + count * slot_bytes(packet_bytes);
}

void stripe_init(struct stripe *s, uint32_t count, uint32_t packet_bytes)
{
	assert(count > 0 && count <= HDL_MAX_STRIPE && (count & (count - 1)) == 0);
	memset(s, 0, stripe_bytes(count, packet_bytes));
	s->count = count;
	s->packet_bytes = packet_bytes;
}

/* --- requester --- */

unsigned stripe_next_way(const struct stripe *s)
{
	return s->down[0] || s->down[1] ? stripe_steady_way(s) : !s->last_way;
}

unsigned stripe_other_way(const struct stripe *s, uint32_t psn)
{
	unsigned way = !s->sent_on[psn & (HDL_MAX_STRIPE - 1)];
	return s->down[way] ? !way : way;
}

void stripe_sent(struct stripe *s, uint32_t psn, unsigned way)
{
	s->last_way = (uint8_t)way;
	s->sent_on[psn & (HDL_MAX_STRIPE - 1)] = (uint8_t)way;
}

unsigned stripe_due(const struct stripe *s, uint64_t now_ns)
{
	if ((!s->down[0] && !s->down[1]) || now_ns < s->try_ns)
		return STRIPE_WAYS;
	return s->down[0] ? 0 : 1;
}

void stripe_tried(struct stripe *s, unsigned way, uint64_t now_ns)
{
	s->try_ns = now_ns + STRIPE_RETRY_NS;
	s->trying[way] = true;
}

void stripe_arrived(struct stripe *s, uint32_t psn, uint32_t count)
{
	/* If there are more than are remembered, the last ones are enough. */
	uint32_t from = count > HDL_MAX_STRIPE ? count - HDL_MAX_STRIPE : 0;
	for (uint32_t i = from; i < count; i++) {
		uint32_t at = (psn + i) & (HDL_MAX_STRIPE - 1);
		s->strikes[s->sent_on[at]] = 0;
		s->early[at] = STRIPE_MISSING;
	}
}

void stripe_forget_early(struct stripe *s)
{
	memset(s->early, STRIPE_MISSING, sizeof(s->early));
	s->acked = s->refused = false;
	s->forgotten = true;
}

static void ib_stripe_take_out(struct stripe *s, unsigned way, uint64_t now_ns)
{
	s->down[way] = true;
	s->down[!way] = false;
	s->trying[0] = s->trying[1] = false;
	s->strikes[0] = s->strikes[1] = 0;
	s->try_ns = now_ns + STRIPE_RETRY_NS;
}

bool stripe_lost(struct stripe *s, uint32_t psn, uint64_t now_ns)
{
	unsigned way = s->sent_on[psn & (HDL_MAX_STRIPE - 1)];
	if (++s->strikes[way] < STRIPE_STRIKES || s->down[!way])
		return false;
	ib_stripe_take_out(s, way, now_ns);
	return true;
}

void stripe_silent(struct stripe *s, uint32_t psn, uint64_t now_ns)
{
	ib_stripe_take_out(s, s->sent_on[psn & (HDL_MAX_STRIPE - 1)], now_ns);
}

void stripe_heard(struct stripe *s)
{
	if (!s->trying[s->came])
		return;
	s->trying[s->came] = false;
	s->down[s->came] = false;
	s->strikes[s->came] = 0;
}

/* --- responder --- */

static bool passed(const struct stripe *s, unsigned way, uint32_t psn)
{
	return s->seen[way] && ib_psn_distance(s->newest[way], psn) > 0;
}

/* Is @way so far behind the other that nothing due before @psn can still be on it? */
static bool lags(const struct stripe *s, unsigned way, uint32_t psn)
{
	uint32_t lag = s->count / 4 < STRIPE_LAG ? s->count / 4 : STRIPE_LAG;
	return s->seen[!way] &&
	       ib_psn_distance(s->newest[!way], s->seen[way] ? s->newest[way] : psn) >=
	               (int32_t)lag;
}

bool stripe_note(struct stripe *s, uint32_t psn, uint32_t expected)
{
	unsigned way = s->came;
	bool was_silent = lags(s, way, psn);
	s->reply = s->came;
	if (!s->seen[way] || ib_psn_distance(psn, s->newest[way]) > 0)
		s->newest[way] = psn;
	s->seen[way] = true;
	/* PSNs wrap around. */
	if (s->seen[!way] &&
	    ib_psn_distance(expected, s->newest[!way]) > (int32_t)(IB_PSN_HALF / 4))
		s->seen[!way] = false;
	return was_silent;
}

/* Is @b a copy of @a, sent again? The two may differ in whether they request an acknowledgement,
 * and in their paths. */
static bool same_packet(const struct ib_packet *a, const struct ib_packet *b)
{
	return a->bth.psn == b->bth.psn && a->bth.opcode == b->bth.opcode &&
	       a->bth.solicited == b->bth.solicited && a->headers == b->headers &&
	       ((a->headers & IB_HAS_RETH) == 0 ||
	        (a->reth.addr == b->reth.addr && a->reth.rkey == b->reth.rkey &&
	         a->reth.length_bytes == b->reth.length_bytes)) &&
	       ((a->headers & IB_HAS_ATOMICETH) == 0 ||
	        (a->atomiceth.addr == b->atomiceth.addr && a->atomiceth.rkey == b->atomiceth.rkey &&
	         a->atomiceth.swap_or_add == b->atomiceth.swap_or_add &&
	         a->atomiceth.compare == b->atomiceth.compare)) &&
	       ((a->headers & IB_HAS_IMMDT) == 0 || a->immdt.data == b->immdt.data) &&
	       ((a->headers & IB_HAS_IETH) == 0 || a->ieth.rkey == b->ieth.rkey) &&
	       ((a->headers & IB_HAS_XRCETH) == 0 || a->xrceth.srq == b->xrceth.srq) &&
	       a->payload_bytes == b->payload_bytes &&
	       (a->payload_bytes == 0 || memcmp(a->payload, b->payload, a->payload_bytes) == 0);
}

bool stripe_keep(struct stripe *s, const struct ib_packet *packet, uint32_t ahead)
{
	struct slot *slot = ib_stripe_slot_of(s, packet->bth.psn);
	if (ahead >= s->count || packet->payload_bytes > s->packet_bytes)
		return false;
	if (slot->used && slot->packet.bth.psn == packet->bth.psn) {
		if (same_packet(&slot->packet, packet))
			return true;
		slot->used = false; /* one of the two is not the peer's: trust neither */
		return false;
	}
	slot->used = true;
	slot->way = s->came;
	slot->packet = *packet;
	slot->packet.payload = (uint8_t *)(slot + 1);
	if (packet->payload_bytes > 0)
		memcpy(slot + 1, packet->payload, packet->payload_bytes);
	return true;
}

const struct ib_packet *stripe_take(struct stripe *s, uint32_t psn)
{
	struct slot *slot = ib_stripe_slot_of(s, psn);
	if (!slot->used)
		return NULL;
	slot->used = false;
	s->came = slot->way;
	return slot->packet.bth.psn == psn ? &slot->packet : NULL;
}

bool stripe_is_lost(const struct stripe *s, uint32_t expected)
{
	return (passed(s, 0, expected) && passed(s, 1, expected)) ||
	       (passed(s, 0, expected) && lags(s, 1, expected)) ||
	       (passed(s, 1, expected) && lags(s, 0, expected));
}
