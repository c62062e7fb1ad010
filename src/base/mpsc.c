/* A stack that the consumer takes as a whole and reverses. Since nobody pops a single node, there
 * is no ABA problem.
 *
 * Memory order, by pairs:
 *   M1 push: queued to true    with M4: next may be written again; and a refused push hands M4 what
 *                              its producer wrote before
 *   M2 push: top               with M3: next, and what the producer wrote before the push
 *   M3 take: top
 *   M4 done: queued to false   an exchange, not a store: it must see what every refused push wrote
 *                              before */
#include "base/mpsc.h"

#include <assert.h>

void mpsc_init(struct mpsc *q)
{
	atomic_init(&q->top, NULL);
}

void mpsc_node_init(struct mpsc_node *node)
{
	atomic_init(&node->queued, false);
}

bool mpsc_push(struct mpsc *q, struct mpsc_node *node)
{
	/* Do not test queued before the exchange: a push refused by a plain load would hand M4
	 * nothing. */
	if (atomic_exchange_explicit(&node->queued, true, memory_order_acq_rel)) /* M1 */
		return false;
	struct mpsc_node *top = atomic_load_explicit(&q->top, memory_order_relaxed);
	do {
		node->next = top;
	} while (!atomic_compare_exchange_weak_explicit(&q->top, &top, node, memory_order_release,
	                                                memory_order_relaxed)); /* M2 */
	return true;
}

struct mpsc_node *mpsc_take(struct mpsc *q)
{
	if (mpsc_empty(q))
		return NULL; /* keeps an idle consumer from taking ownership of the cache line */
	struct mpsc_node *node =
	        atomic_exchange_explicit(&q->top, NULL, memory_order_acquire); /* M3 */
	struct mpsc_node *oldest = NULL;
	while (node != NULL) {
		struct mpsc_node *older = node->next;
		node->next = oldest;
		oldest = node;
		node = older;
	}
	return oldest;
}

void mpsc_done(struct mpsc_node *node)
{
	bool was = atomic_exchange_explicit(&node->queued, false, memory_order_acq_rel); /* M4 */
	assert(was);
	(void)was;
}

bool mpsc_empty(const struct mpsc *q)
{
	return atomic_load_explicit(&q->top, memory_order_relaxed) == NULL;
}
