/* Many producers, one consumer, intrusive: a set of nodes, each in it at most once, so it is
 * bounded by the number of existing nodes. mpsc_push() is wait-free except for one
 * compare-and-swap; the consumer takes everything, oldest first. */
#ifndef BASE_MPSC_H
#define BASE_MPSC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct mpsc_node {
	struct mpsc_node *next;
	_Atomic bool queued;
};

struct mpsc {
	_Atomic(struct mpsc_node *) top;
};

void mpsc_init(struct mpsc *q);
void mpsc_node_init(struct mpsc_node *node);

/* Add @node unless it is already in the set. True if this call added it. */
bool mpsc_push(struct mpsc *q, struct mpsc_node *node);

/* Take everything in the set, oldest first, linked by next; NULL if empty. A node may be pushed
 * again once mpsc_done() has been called for it. Read its next first, then call mpsc_done() before
 * looking at what the node stands for, so that no push is missed. */
struct mpsc_node *mpsc_take(struct mpsc *q);
void mpsc_done(struct mpsc_node *node);
bool mpsc_empty(const struct mpsc *q);
/* Is @node in the set, or taken and not yet done? */
static inline bool mpsc_queued(const struct mpsc_node *node)
{
	return atomic_load_explicit(&node->queued, memory_order_acquire);
}

#endif
