/* The wheel in digits: a tick is a number of TIMER_SLOT_BITS-bit digits, lowest first. A timer is
 * on the level of the highest digit in which its tick differs from the current tick, in the slot of
 * that digit; level 0 also takes equal ticks. So a slot of a higher level holds exactly the timers
 * that move to a lower level when the current tick reaches the start of the slot, and of all
 * occupied slots the lowest one of the lowest level comes first in time.
 *
 * Ticks have 54 bits, the eight digits only 48. A timer in a later period of 2^48 ticks (nine
 * years) is kept in slot 0 of the top level, which the rule above never uses otherwise, and is
 * placed when the next period begins.
 *
 * Lists are newest first and are reversed when a slot is emptied. All timers of one tick always
 * share a slot, since the place depends only on the tick and the current tick; so the start order
 * within a tick survives every move. */
#include "base/timer.h"

#include <assert.h>
#include <stddef.h>

#define SLOTS     (1u << TIMER_SLOT_BITS)
#define TOP_LEVEL (TIMER_LEVELS - 1)
#define NEVER     UINT64_MAX

_Static_assert(TIMER_TICK_NS == 1024, "ticks are shifts");
_Static_assert(SLOTS == 64, "occupied holds one bit per slot");

static uint64_t tick_of(uint64_t ns)
{
	return ns / TIMER_TICK_NS;
}

void timer_wheel_init(struct timer_wheel *wheel, uint64_t now_ns)
{
	*wheel = (struct timer_wheel){.now_ns = now_ns};
}

void timer_node_init(struct timer_node *node)
{
	*node = (struct timer_node){0};
}

static void timer_link_in(struct timer_wheel *wheel, struct timer_node *node)
{
	uint64_t now = tick_of(wheel->now_ns);
	uint64_t tick = tick_of(node->deadline_ns);
	if (tick < now)
		tick = now;
	unsigned level = 0;
	unsigned slot = (unsigned)(tick % SLOTS);
	if (tick != now) {
		level = (63u - (unsigned)__builtin_clzll(tick ^ now)) / TIMER_SLOT_BITS;
		slot = (unsigned)((tick >> (level * TIMER_SLOT_BITS)) % SLOTS);
		if (level > TOP_LEVEL) {
			level = TOP_LEVEL;
			slot = 0;
		}
	}
	struct timer_node **head = &wheel->slots[level][slot];
	node->next = *head;
	node->link = head;
	if (node->next != NULL)
		node->next->link = &node->next;
	*head = node;
	wheel->occupied[level] |= UINT64_C(1) << slot;
}

static void unlink_from(struct timer_wheel *wheel, struct timer_node *node)
{
	struct timer_node **link = node->link;
	*link = node->next;
	if (node->next != NULL)
		node->next->link = link;
	node->link = NULL;
	/* If this was the last timer of a slot, its link is the head of the slot, so the address
	 * identifies the slot. */
	size_t index = ((uintptr_t)link - (uintptr_t)&wheel->slots[0][0]) / sizeof(*link);
	if (*link == NULL && index < TIMER_LEVELS * SLOTS)
		wheel->occupied[index / SLOTS] &= ~(UINT64_C(1) << (index % SLOTS));
}

void timer_start(struct timer_wheel *wheel, struct timer_node *node, uint64_t deadline_ns)
{
	timer_stop(wheel, node);
	node->deadline_ns = deadline_ns;
	timer_link_in(wheel, node);
	wheel->running++;
}

void timer_stop(struct timer_wheel *wheel, struct timer_node *node)
{
	if (!timer_running(node))
		return;
	assert(wheel->running > 0);
	unlink_from(wheel, node);
	wheel->running--;
}

bool timer_running(const struct timer_node *node)
{
	return node->link != NULL;
}

/* A slot that holds timers, and the tick at which it begins. */
struct place {
	unsigned level, slot;
	uint64_t tick;
};

/* The occupied slot that comes first in time; false if no timer runs. */
static bool first_place(const struct timer_wheel *wheel, struct place *place)
{
	uint64_t now = tick_of(wheel->now_ns);
	for (unsigned level = 0; level < TIMER_LEVELS; level++) {
		uint64_t occupied = wheel->occupied[level];
		if (occupied == 0)
			continue;
		unsigned shift = level * TIMER_SLOT_BITS;
		uint64_t stretch = now >> (shift + TIMER_SLOT_BITS);
		if (level == TOP_LEVEL && occupied == 1)
			stretch++; /* only timers of later periods are left */
		else if (level == TOP_LEVEL)
			occupied &= ~UINT64_C(1);
		unsigned slot = (unsigned)__builtin_ctzll(occupied);
		uint64_t tick = (stretch << (shift + TIMER_SLOT_BITS)) | ((uint64_t)slot << shift);
		*place = (struct place){.level = level, .slot = slot, .tick = tick};
		return true;
	}
	return false;
}

/* Empty the slot. Returns its timers oldest first, linked by next. */
static struct timer_node *take_slot(struct timer_wheel *wheel, const struct place *place)
{
	struct timer_node *oldest = NULL;
	struct timer_node *node = wheel->slots[place->level][place->slot];
	wheel->slots[place->level][place->slot] = NULL;
	wheel->occupied[place->level] &= ~(UINT64_C(1) << place->slot);
	while (node != NULL) {
		struct timer_node *older = node->next;
		node->next = oldest;
		oldest = node;
		node = older;
	}
	return oldest;
}

struct timer_node *timer_advance(struct timer_wheel *wheel, uint64_t now_ns)
{
	if (now_ns < wheel->now_ns)
		now_ns = wheel->now_ns;
	struct timer_node *expired = NULL;
	struct timer_node **tail = &expired;
	struct place place;
	bool last = false;
	while (!last && first_place(wheel, &place) && place.tick <= tick_of(now_ns)) {
		/* In the current tick only some may be due. The others go back, so do not visit
		 * that slot twice. */
		last = place.level == 0 && place.tick == tick_of(now_ns);
		if (place.tick > tick_of(wheel->now_ns))
			wheel->now_ns = place.tick * TIMER_TICK_NS;
		struct timer_node *node = take_slot(wheel, &place);
		while (node != NULL) {
			struct timer_node *next = node->next;
			if (node->deadline_ns <= now_ns && place.level == 0) {
				node->link = NULL;
				wheel->running--;
				*tail = node;
				tail = &node->next;
			} else {
				timer_link_in(wheel, node);
			}
			node = next;
		}
	}
	*tail = NULL;
	wheel->now_ns = now_ns;
	return expired;
}

uint64_t timer_next_ns(const struct timer_wheel *wheel)
{
	struct place place;
	if (!first_place(wheel, &place))
		return NEVER;
	if (place.level > 0)
		return place.tick * TIMER_TICK_NS;
	/* Return the nanosecond, not the tick: a thread that sleeps until then must find an expired
	 * timer. */
	uint64_t first = NEVER;
	for (const struct timer_node *n = wheel->slots[0][place.slot]; n != NULL; n = n->next)
		if (n->deadline_ns < first)
			first = n->deadline_ns;
	return first;
}
