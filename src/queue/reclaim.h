/* When an element of a work queue may be posted anew: when the application has taken the completion
 * of its request, or that of a later one. Each element that is over keeps the number of its
 * completion in the completion queue, and how far that queue was taken tells the rest. It is looked
 * at when the queue seems full, so it costs nothing otherwise. */
#ifndef QUEUE_RECLAIM_H
#define QUEUE_RECLAIM_H

#include "queue/cq.h"
#include "queue/wq.h"
#include "queue/wqe.h"

/* By the driver, before the completion is pushed to @cq and the element released: @wqe is over;
 * @tell: it completes. */
static inline void reclaim_note_send(struct wqe_send *wqe, const struct cq *cq, bool tell)
{
	wqe->state = tell ? WQE_TOLD : WQE_SILENT;
	wqe->msn = cq_next(cq);
}

/* By the driver, before the completion of a receive of @wq is pushed to @cq. They complete in the
 * order in which they were posted. */
static inline void reclaim_note_recv(struct wq *wq, const struct cq *cq)
{
	uint32_t told = atomic_load_explicit(&wq->told, memory_order_relaxed);
	((struct wqe_recv *)wq_at(wq, told))->told_at = cq_next(cq);
	atomic_store_explicit(&wq->told, told + 1, memory_order_release); /* W5 */
}

/* Make room in a queue that seems full, by what was taken from @cq. The caller holds post_lock. How
 * many may be posted now. */
uint32_t reclaim_sends(struct wq *wq, const struct cq *cq);
uint32_t reclaim_recvs(struct wq *wq, const struct cq *cq);
/* The same for a queue that is shared: the completions of its elements are in many queues. */
uint32_t reclaim_released(struct wq *wq);

#endif
