/* When an element of a work queue may be posted anew. */
#include "queue/reclaim.h"

uint32_t reclaim_sends(struct wq *wq, const struct cq *cq)
{
	uint32_t head = wq_head(wq), taken = cq_taken(cq);
	for (uint32_t i = wq->free; i != head; i++) {
		const struct wqe_send *wqe = wq_at(wq, i);
		if (wqe->state != WQE_TOLD)
			continue;
		if ((int32_t)(taken - wqe->msn) <= 0)
			break;
		wq->free = i + 1;
	}
	return wq_room(wq);
}

uint32_t reclaim_recvs(struct wq *wq, const struct cq *cq)
{
	/* W6 pairs with W5: what is told has its number. */
	uint32_t told = atomic_load_explicit(&wq->told, memory_order_acquire), taken = cq_taken(cq);
	while (wq->free != told) {
		const struct wqe_recv *wqe = wq_at(wq, wq->free);
		if ((int32_t)(taken - wqe->told_at) <= 0)
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
