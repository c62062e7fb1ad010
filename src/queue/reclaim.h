/* When an element of a work queue may be posted again: once the application has taken the
 * completion of its request, or that of a later one. Each finished element stores the number of its
 * completion in the completion queue, which is compared with how far that queue has been polled.
 * This only happens when the work queue seems full, so it costs nothing otherwise. */
#ifndef QUEUE_RECLAIM_H
#define QUEUE_RECLAIM_H

#include "queue/cq.h"
#include "queue/wq.h"
#include "queue/wqe.h"

/* @wqe is finished. The driver calls this before it pushes the completion to @cq and releases the
 * element. @tell: it has a completion. */
static inline void reclaim_note_send(struct wqe_send *wqe, const struct cq *cq, bool tell)
{
	wqe->state = tell ? WQE_TOLD : WQE_SILENT;
	wqe->msn = cq_next(cq);
}

/* The driver calls this before it pushes the completion of a receive of @wq to @cq. Receives
 * complete in the order in which they were posted. */
static inline void reclaim_note_recv(struct wq *wq, const struct cq *cq)
{
	uint32_t told = atomic_load_explicit(&wq->told, memory_order_relaxed);
	((struct wqe_recv *)wq_at(wq, told))->told_at = cq_next(cq);
	atomic_store_explicit(&wq->told, told + 1, memory_order_release); /* W5 */
}

/* Make room in a queue that seems full, using what has been taken from @cq. The caller holds
 * post_lock. Returns how many may be posted now. */
uint32_t reclaim_sends(struct wq *wq, const struct cq *cq);
uint32_t reclaim_recvs(struct wq *wq, const struct cq *cq);
/* The same for a shared queue, whose completions are in many completion queues. */
uint32_t reclaim_released(struct wq *wq);

#endif
