/* Shared receive queues. */
#include "compat/compat.h"

#include <stdlib.h>

/* @xrcd and @cq: for an XRC queue, else NULL. */
static struct ibv_srq *verbs_srq_make(struct ibv_pd *pd, struct ibv_srq_init_attr *attr,
                                      struct ibv_xrcd *xrcd, struct ibv_cq *cq)
{
	if (!compat_live(OBJECT_PD, pd) || (xrcd != NULL && !compat_live(OBJECT_XRCD, xrcd)) ||
	    (cq != NULL && !compat_live(OBJECT_CQ, cq)))
		return compat_fail(EINVAL);
	struct compat_srq *srq = calloc(1, sizeof(*srq));
	if (srq == NULL)
		return compat_fail(ENOMEM);
	/* Creating the queue does not arm the limit: ibv_create_srq(3). */
	struct hdl_srq_attr limits = {.max_wr = attr->attr.max_wr, .max_sge = attr->attr.max_sge};
	int error = xrcd == NULL ? -hdl_srq_create(compat_pd(pd)->hdl, &limits, srq, &srq->hdl)
	                         : -hdl_srq_create_xrc(compat_pd(pd)->hdl, compat_xrcd_use(xrcd),
	                                               compat_cq(cq)->hdl, &limits, srq, &srq->hdl);
	if (error != 0) {
		if (xrcd != NULL)
			compat_xrcd_leave(xrcd);
		free(srq);
		return compat_fail(error);
	}
	attr->attr.max_wr = limits.max_wr;
	attr->attr.max_sge = limits.max_sge;
	srq->ibv.context = pd->context;
	srq->ibv.srq_context = attr->srq_context;
	srq->ibv.pd = pd;
	srq->xrcd = xrcd;
	pthread_mutex_init(&srq->ibv.mutex, NULL);
	pthread_cond_init(&srq->ibv.cond, NULL);
	srq->target = (struct target){.below = srq->hdl,
	                              .context = compat_context(pd->context),
	                              .kind = TARGET_SRQ,
	                              .seen = &srq->ibv};
	compat_target_add(&srq->target);
	compat_pd_use(pd);
	srq->ibv.handle = compat_live_add(&srq->live, OBJECT_SRQ, &srq->ibv);
	return &srq->ibv;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	return verbs_srq_make(pd, attr, NULL, NULL);
}

struct ibv_srq *compat_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	const uint32_t xrc = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
	(void)context;
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) ||
	    attr->comp_mask >= IBV_SRQ_INIT_ATTR_RESERVED)
		return compat_fail(EINVAL);
	enum ibv_srq_type type =
	        attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE ? attr->srq_type : IBV_SRQT_BASIC;
	/* The first members of both structures are the same. */
	struct ibv_srq_init_attr *basic = (struct ibv_srq_init_attr *)(void *)attr;
	if (type == IBV_SRQT_BASIC)
		return verbs_srq_make(attr->pd, basic, NULL, NULL);
	if (type != IBV_SRQT_XRC)
		return compat_fail(EOPNOTSUPP);
	if ((attr->comp_mask & xrc) != xrc || attr->xrcd == NULL || attr->cq == NULL)
		return compat_fail(EINVAL);
	return verbs_srq_make(attr->pd, basic, attr->xrcd, attr->cq);
}

int ibv_modify_srq(struct ibv_srq *ibv, struct ibv_srq_attr *attr, int mask)
{
	if (!compat_live(OBJECT_SRQ, ibv) || (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)))
		return compat_error(EINVAL);
	if (((mask & IBV_SRQ_MAX_WR) && attr->max_wr == 0) ||
	    ((mask & IBV_SRQ_LIMIT) && attr->srq_limit == HDL_SRQ_KEEP_LIMIT))
		return compat_error(EINVAL);
	return compat_error(
	        -hdl_srq_modify(compat_srq(ibv)->hdl, mask & IBV_SRQ_MAX_WR ? attr->max_wr : 0,
	                        mask & IBV_SRQ_LIMIT ? attr->srq_limit : HDL_SRQ_KEEP_LIMIT));
}

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	struct hdl_srq_attr now;
	if (!compat_live(OBJECT_SRQ, srq))
		return compat_error(EINVAL);
	int error = -hdl_srq_query(compat_srq(srq)->hdl, &now);
	if (error == 0)
		*attr = (struct ibv_srq_attr){
		        .max_wr = now.max_wr, .max_sge = now.max_sge, .srq_limit = now.limit};
	return compat_error(error);
}

static int end_srq(void *below)
{
	return hdl_srq_destroy(below);
}

int ibv_destroy_srq(struct ibv_srq *ibv)
{
	struct compat_srq *srq = compat_srq(ibv);
	struct live *live = compat_live_take(OBJECT_SRQ, ibv);
	if (live == NULL)
		return compat_error(EINVAL);
	int error = compat_live_end(live, -compat_target_end(&srq->target, end_srq));
	if (error != 0)
		return error;
	if (!compat_inherited(ibv->context)) {
		compat_pd_leave(ibv->pd);
		if (srq->xrcd != NULL)
			compat_xrcd_leave(srq->xrcd);
	}
	pthread_cond_destroy(&ibv->cond);
	pthread_mutex_destroy(&ibv->mutex);
	free(srq);
	return 0;
}
