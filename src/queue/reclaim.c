/* When an element of a work queue may be posted again. */
#include "queue/reclaim.h"

uint32_t reclaim_sends(struct wq *wq, const struct cq *cq)
{
	uint32_t head = wq_head(wq);
	for (uint32_t i = wq->free; i != head; i++) {
		const struct wqe_send *wqe = wq_at(wq, i);
		if (wqe->state != WQE_TOLD)
			continue;
		if (!cq_taken(cq, wqe->msn))
			break;
		wq->free = i + 1;
	}
	return wq_room(wq);
}

uint32_t reclaim_recvs(struct wq *wq, const struct cq *cq)
{
	/* W6 pairs with W5: an element that counts as told has its number. */
	uint32_t told = atomic_load_explicit(&wq->told, memory_order_acquire);
	while (wq->free != told) {
		const struct wqe_recv *wqe = wq_at(wq, wq->free);
		if (!cq_taken(cq, wqe->told_at))
			break;
		wq->free++;
	}
	return wq_room(wq);
}

uint32_t reclaim_released(struct wq *wq)
{
	wq->free = wq_head(wq);
	return wq_room(wq);
}
