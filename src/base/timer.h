/* A hierarchical timer wheel on nanoseconds that the caller supplies. Nodes are intrusive: nothing
 * is allocated, and starting and stopping are O(1). A timer never fires early. It fires at most one
 * tick (TIMER_TICK_NS) late, provided that timer_advance() is called. */
#ifndef BASE_TIMER_H
#define BASE_TIMER_H

#include <stdbool.h>
#include <stdint.h>

#define TIMER_TICK_NS   1024u
#define TIMER_LEVELS    8u
#define TIMER_SLOT_BITS 6u

struct timer_node {
	struct timer_node *next, **link; /* NULL link: not running */
	uint64_t deadline_ns;
};

struct timer_wheel {
	uint64_t now_ns;
	uint32_t running; /* number of timers */
	uint64_t occupied[TIMER_LEVELS];
	struct timer_node *slots[TIMER_LEVELS][1u << TIMER_SLOT_BITS];
};

void timer_wheel_init(struct timer_wheel *wheel, uint64_t now_ns);
void timer_node_init(struct timer_node *node);

/* Start @node, or move it if it is already running. A deadline in the past counts as now: the timer
 * fires at the next timer_advance(). */
void timer_start(struct timer_wheel *wheel, struct timer_node *node, uint64_t deadline_ns);
void timer_stop(struct timer_wheel *wheel, struct timer_node *node);
bool timer_running(const struct timer_node *node);

/* Advance to @now_ns (an older time is ignored) and unlink the expired timers, ordered by deadline
 * tick, and by start within a tick. Returns them as a list linked by next; timer_start() on a node
 * of the list is allowed once the caller has read its next. */
struct timer_node *timer_advance(struct timer_wheel *wheel, uint64_t now_ns);

/* The latest time by which timer_advance() must be called; UINT64_MAX if no timer runs. May be
 * earlier than the first deadline, never later. */
uint64_t timer_next_ns(const struct timer_wheel *wheel);

#endif
