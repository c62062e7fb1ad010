/* Completion queues. */
#include "queue/cq.h"

#include <assert.h>
#include <string.h>

#include "queue/wq.h"

size_t cq_bytes(uint32_t depth)
{
	return (size_t)wq_slots(depth) * sizeof(struct hdl_wc);
}

void cq_init(struct cq *cq, void *memory, uint32_t depth, bool notifies)
{
	memset(cq, 0, sizeof(*cq));
	cq->ring = memory;
	cq->depth = depth;
	cq->mask = wq_slots(depth) - 1;
	cq->notifies = notifies;
}

unsigned cq_push_notify(struct cq *cq, bool solicited, uint32_t tail)
{
	if (solicited)
		cq->solicited = tail;
	/* C5 pairs with C6: either we see that the queue is armed, or the thread that arms it sees
	 * the completion when it polls. */
	atomic_store_explicit(&cq->tail, tail, memory_order_seq_cst); /* C3 */
	uint32_t armed = atomic_load_explicit(&cq->armed, memory_order_seq_cst);
	if (armed == CQ_NOT_ARMED)
		return CQ_STORED;
	if (armed == CQ_ARMED_SOLICITED && !solicited)
		return CQ_STORED;
	return cq_raise(cq) ? CQ_STORED | CQ_EVENT : CQ_STORED;
}

int cq_poll(struct cq *cq, struct hdl_wc *wc, int max)
{
	lock_take(&cq->poll_lock);
	uint32_t head = atomic_load_explicit(&cq->head, memory_order_relaxed);
	uint32_t held = atomic_load_explicit(&cq->tail, memory_order_seq_cst) - head; /* C4, C6 */
	int count = held < (uint32_t)max ? (int)held : max;
	for (int i = 0; i < count; i++) {
		const volatile struct hdl_wc *slot = &cq->ring[(head + (uint32_t)i) & cq->mask];
		CQ_COPY(&wc[i], slot);
	}
	if (count > 0)
		atomic_store_explicit(&cq->head, head + (uint32_t)count,
		                      memory_order_release); /* C2 */
	lock_drop(&cq->poll_lock);
	return count;
}

void cq_arm(struct cq *cq, bool solicited_only)
{
	uint32_t want = solicited_only ? CQ_ARMED_SOLICITED : CQ_ARMED_ANY;
	uint32_t armed = atomic_load_explicit(&cq->armed, memory_order_relaxed);
	while (armed < want && !atomic_compare_exchange_weak_explicit(&cq->armed, &armed, want,
	                                                              memory_order_seq_cst, /* C6 */
	                                                              memory_order_relaxed))
		;
}

bool cq_arm_is_due(const struct cq *cq)
{
	uint32_t head = atomic_load_explicit(&cq->head, memory_order_relaxed);
	uint32_t tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);
	switch (atomic_load_explicit(&cq->armed, memory_order_relaxed)) {
	case CQ_ARMED_ANY:
		return tail != head && (tail != cq->event_tail || head != cq->event_head);
	case CQ_ARMED_SOLICITED:
		return cq->solicited - 1 - head < tail - head &&
		       (cq->solicited != cq->event_solicited || head != cq->event_head);
	default:
		return false;
	}
}

bool cq_raise(struct cq *cq)
{
	if (!cq_disarm(cq))
		return false;
	cq->event_head = atomic_load_explicit(&cq->head, memory_order_relaxed);
	cq->event_tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);
	cq->event_solicited = cq->solicited;
	return true;
}

bool cq_move(struct cq *cq, void *memory, uint32_t depth)
{
	uint32_t head = atomic_load_explicit(&cq->head, memory_order_relaxed);
	uint32_t tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);
	if (tail - head > depth)
		return false;
	struct hdl_wc *ring = memory;
	uint32_t mask = wq_slots(depth) - 1;
	for (uint32_t i = head; i != tail; i++)
		ring[i & mask] = cq->ring[i & cq->mask];
	cq->ring = ring;
	cq->mask = mask;
	cq->depth = depth;
	return true;
}

uint32_t cq_discard(struct cq *cq, uint32_t qpn)
{
	uint32_t head = atomic_load_explicit(&cq->head, memory_order_relaxed);
	uint32_t tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);
	uint32_t to = tail;
	for (uint32_t from = tail; from-- != head;)
		if (cq->ring[from & cq->mask].qpn != qpn)
			cq->ring[--to & cq->mask] = cq->ring[from & cq->mask];
	/* We do not know which of the moved completions are solicited: one event too many is better
	 * than one too few. */
	if (cq->solicited - 1 - head < tail - head)
		cq->solicited = tail;
	atomic_store_explicit(&cq->head, to, memory_order_seq_cst);
	return to - head;
}

uint32_t cq_count(const struct cq *cq, uint32_t qpn)
{
	uint32_t tail = atomic_load_explicit(&cq->tail, memory_order_relaxed), count = 0;
	for (uint32_t i = atomic_load_explicit(&cq->head, memory_order_relaxed); i != tail; i++)
		count += cq->ring[i & cq->mask].qpn == qpn;
	return count;
}
