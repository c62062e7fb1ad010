/* Extended reliable connections (IBTA annex A14): a queue pair that only sends, one that only
 * receives, and shared receive queues that a sender names with every request. The same-host path
 * carries them in the same way as RC; what is specific to them is here. */
#include "transport/xrc.h"

#include <assert.h>

#include "queue/qp_state.h"

void engine_add_srq(struct engine *engine, struct srq *srq)
{
	uint32_t index = srq->number & engine->qp_mask;
	assert(engine->srqs[index] == NULL && engine->qps[index] == NULL);
	engine->srqs[index] = srq;
	qp_publish(&engine->qps_public[index], &(struct qp_facts){.type = QP_TYPE_SRQ,
	                                                          .dest_qpn = srq->xrcd,
	                                                          .link = srq->number,
	                                                          .pd = srq->pd});
}

void engine_forget_srq(struct engine *engine, struct srq *srq)
{
	uint32_t index = srq->number & engine->qp_mask;
	qp_publish(&engine->qps_public[index], &(struct qp_facts){0});
	assert(engine->srqs[index] == srq);
	engine->srqs[index] = NULL;
	/* A receive that a message was filling in parts is dropped with it. */
	for (uint32_t i = 0; i <= engine->qp_mask; i++) {
		struct qp *qp = engine->qps[i];
		if (qp == NULL || qp->type != HDL_QP_XRC_TGT || qp->srq != srq)
			continue;
		qp->srq = NULL;
		qp->recv_cq = NULL;
		qp->keeps = false;
	}
}

bool xrc_choose(struct engine *engine, struct qp *qp, uint32_t number)
{
	struct srq *srq = engine->srqs[number & engine->qp_mask];
	if (srq == NULL || srq->number != number || srq->xrcd != qp->xrcd ||
	    (qp->keeps && qp->srq != srq))
		return false;
	qp->srq = srq;
	qp->pd = srq->pd;
	qp->recv_cq = srq->cq;
	return true;
}

enum xrc_target xrc_facts(const struct link *link, const struct qp *qp, const struct wqe_send *wqe,
                          struct qp_facts *facts)
{
	struct qp_facts srq;
	if (qp->type != HDL_QP_XRC_INI ||
	    !qp_read_facts(&link->peer_qps[qp->attr.dest_qpn & link->peer_qp_mask], facts) ||
	    !qp_may_receive(facts->state) || facts->dest_qpn != qp->qpn ||
	    facts->link != link->id || facts->type != qp_peer_type(qp) ||
	    facts->rq_psn != qp->attr.sq_psn)
		return XRC_NOT_READY;
	if (!qp_read_facts(&link->peer_qps[wqe->remote_srq & link->peer_qp_mask], &srq) ||
	    srq.type != QP_TYPE_SRQ || srq.link != wqe->remote_srq || srq.dest_qpn != facts->pd)
		return XRC_NO_QUEUE;
	facts->pd = srq.pd;
	return XRC_READY;
}
