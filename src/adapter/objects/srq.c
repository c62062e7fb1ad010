/* Shared receive queues, and the domains of those that XRC messages name. */
#include <stdlib.h>
#include <string.h>

#include "adapter/adapter.h"
#include "queue/wqe.h"

static struct hdl_srq *new_srq(struct hdl_pd *pd, const struct hdl_srq_attr *attr, void *context)
{
	if (atomic_fetch_add(&pd->adapter->objects.srqs, 1) >= HDL_MAX_SRQ) {
		atomic_fetch_sub(&pd->adapter->objects.srqs, 1);
		return NULL;
	}
	uint32_t stride = wqe_recv_stride(attr->max_sge);
	struct hdl_srq *srq = aligned_alloc(64, (sizeof(*srq) + 63) & ~(size_t)63);
	void *elements = malloc(wq_bytes(attr->max_wr, stride));
	if (srq == NULL || elements == NULL) {
		atomic_fetch_sub(&pd->adapter->objects.srqs, 1);
		free(srq);
		free(elements);
		return NULL;
	}
	memset(srq, 0, sizeof(*srq));
	wq_init(&srq->srq.wq, elements, attr->max_wr, stride, attr->max_sge);
	srq->srq.pd = pd->number;
	atomic_store(&srq->srq.limit, attr->limit);
	srq->magic = MAGIC_SRQ;
	srq->pd = pd;
	srq->context = context;
	atomic_fetch_add(&pd->users, 1);
	return srq;
}

static int no_srq(void)
{
	return why_not(-HDL_ENOMEM,
	               "cannot create a shared receive queue: no memory, or all %u are in use",
	               HDL_MAX_SRQ);
}

static bool attr_fits(const struct hdl_srq_attr *attr)
{
	return attr->max_wr > 0 && attr->max_wr <= HDL_MAX_SRQ_WR && attr->max_sge <= HDL_MAX_SGE &&
	       attr->limit <= attr->max_wr;
}

int hdl_srq_create(struct hdl_pd *pd, struct hdl_srq_attr *attr, void *context,
                   struct hdl_srq **out)
{
	if (pd == NULL || pd->magic != MAGIC_PD || attr == NULL || out == NULL)
		return -HDL_EINVAL;
	if (!attr_fits(attr))
		return why_not(-HDL_EINVAL,
		               "cannot create a shared receive queue: %u receives of %u pieces, "
		               "limit %u; the most "
		               "are %u of %u",
		               attr->max_wr, attr->max_sge, attr->limit, HDL_MAX_SRQ_WR,
		               HDL_MAX_SGE);
	*out = new_srq(pd, attr, context);
	return *out != NULL ? 0 : no_srq();
}

int hdl_srq_create_xrc(struct hdl_pd *pd, struct hdl_xrcd *xrcd, struct hdl_cq *cq,
                       struct hdl_srq_attr *attr, void *context, struct hdl_srq **out)
{
	if (pd == NULL || pd->magic != MAGIC_PD || xrcd == NULL || xrcd->magic != MAGIC_XRCD ||
	    xrcd->pd->adapter != pd->adapter || cq == NULL || cq->magic != MAGIC_CQ ||
	    cq->adapter != pd->adapter || attr == NULL || out == NULL || !attr_fits(attr))
		return -HDL_EINVAL;
	struct hdl_srq *srq = new_srq(pd, attr, context);
	if (srq == NULL)
		return no_srq();
	srq->xrcd = xrcd;
	srq->cq = cq;
	srq->srq.xrcd = xrcd->pd->number;
	srq->srq.cq = &cq->cq;
	atomic_fetch_add(&xrcd->users, 1);
	atomic_fetch_add(&cq->users, 1);
	adapter_lock(pd->adapter);
	int result = adapter_take_number(pd->adapter, &srq->srq.number);
	if (result == 0)
		engine_add_srq(&pd->adapter->engine, &srq->srq);
	adapter_unlock(pd->adapter);
	if (result != 0)
		hdl_srq_destroy(srq);
	else
		*out = srq;
	return result;
}

uint32_t hdl_srq_number(const struct hdl_srq *srq)
{
	return srq->srq.number;
}

/* Arm the limit event: it is raised once when fewer than @limit requests are left, immediately if
 * there are already fewer. With the drive lock. */
static void arm_limit(struct hdl_srq *srq, uint32_t limit)
{
	struct hdl_adapter *adapter = srq->pd->adapter;
	bool reached = wq_held(&srq->srq.wq) < limit;
	atomic_store(&srq->srq.limit, reached ? 0 : limit);
	if (reached)
		adapter_event(adapter, HDL_EVENT_SRQ_LIMIT, HDL_DETAIL_NONE, &srq->srq,
		              (struct hdl_key){0});
}

int hdl_srq_modify(struct hdl_srq *srq, uint32_t max_wr, uint32_t limit)
{
	if (srq == NULL || srq->magic != MAGIC_SRQ || max_wr > HDL_MAX_SRQ_WR)
		return -HDL_EINVAL;
	struct wq *wq = &srq->srq.wq;
	void *elements = NULL;
	if (max_wr != 0 && (elements = malloc(wq_bytes(max_wr, wq->stride))) == NULL)
		return -HDL_ENOMEM;
	void *unused = elements;
	int result = 0;
	adapter_lock(srq->pd->adapter);
	lock_take(&wq->post_lock);
	uint32_t most = limit != HDL_SRQ_KEEP_LIMIT ? limit : atomic_load(&srq->srq.limit);
	if (most > (max_wr != 0 ? max_wr : wq->depth)) {
		result = -HDL_EINVAL;
	} else if (max_wr != 0) {
		void *old = wq->elements;
		if (wq_move(wq, elements, max_wr))
			unused = old;
		else
			result = -HDL_EINVAL;
	}
	if (result == 0 && limit != HDL_SRQ_KEEP_LIMIT)
		arm_limit(srq, limit);
	lock_drop(&wq->post_lock);
	adapter_unlock(srq->pd->adapter);
	free(unused);
	return result;
}

int hdl_srq_query(struct hdl_srq *srq, struct hdl_srq_attr *attr)
{
	if (srq == NULL || srq->magic != MAGIC_SRQ || attr == NULL)
		return -HDL_EINVAL;
	*attr = (struct hdl_srq_attr){.max_wr = srq->srq.wq.depth,
	                              .max_sge = srq->srq.wq.max_sge,
	                              .limit = atomic_load(&srq->srq.limit)};
	return 0;
}

int hdl_srq_destroy(struct hdl_srq *srq)
{
	if (srq == NULL || srq->magic != MAGIC_SRQ)
		return -HDL_EINVAL;
	if (atomic_load(&srq->users) > 0)
		return -HDL_EBUSY;
	if (srq->srq.number != 0) {
		struct hdl_adapter *adapter = srq->pd->adapter;
		adapter_lock(adapter);
		engine_forget_srq(&adapter->engine, &srq->srq);
		adapter_free_number(adapter, srq->srq.number);
		adapter_unlock(adapter);
	}
	if (srq->xrcd != NULL) {
		atomic_fetch_sub(&srq->xrcd->users, 1);
		atomic_fetch_sub(&srq->cq->users, 1);
	}
	events_purge(&srq->pd->adapter->drive.events, srq);
	atomic_fetch_sub(&srq->pd->adapter->objects.srqs, 1);
	atomic_fetch_sub(&srq->pd->users, 1);
	srq->magic = 0;
	free(srq->srq.wq.elements);
	free(srq);
	return 0;
}

/* --- XRC domains --- */

int hdl_xrcd_open(struct hdl_adapter *adapter, struct hdl_xrcd **out)
{
	if (out == NULL)
		return -HDL_EINVAL;
	struct hdl_xrcd *xrcd = calloc(1, sizeof(*xrcd));
	if (xrcd == NULL)
		return -HDL_ENOMEM;
	int result = hdl_pd_create(adapter, &xrcd->pd);
	if (result != 0) {
		free(xrcd);
		return result;
	}
	xrcd->magic = MAGIC_XRCD;
	*out = xrcd;
	return 0;
}

int hdl_xrcd_close(struct hdl_xrcd *xrcd)
{
	if (xrcd == NULL || xrcd->magic != MAGIC_XRCD)
		return -HDL_EINVAL;
	if (atomic_load(&xrcd->users) > 0)
		return -HDL_EBUSY;
	int result = hdl_pd_destroy(xrcd->pd);
	if (result != 0)
		return result;
	xrcd->magic = 0;
	free(xrcd);
	return 0;
}
