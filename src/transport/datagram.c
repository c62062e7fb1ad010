/* Unreliable datagrams; see datagram.h. */
#include "transport/datagram.h"

#include "transport/capture.h"
#include "transport/cell/cells.h"
#include "transport/ib/ib.h"
#include "transport/local/local.h"
#include "transport/multicast.h"

static enum step datagram_to_group(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	struct group *group = &engine->groups[wqe->u.ud.link - MULTICAST_LINK];
	if (group->users == 0 || group->epoch != wqe->u.ud.epoch ||
	    (group->link_count == 0 && !engine->groups_on_wire))
		return local_unreachable(engine, qp, wqe);
	if (local_group_must_wait(engine, group, wqe))
		return STEP_NO_ROOM;
	enum step step = engine->groups_on_wire ? ib_send_to_group(engine, qp, wqe) : STEP_WAIT;
	if (step != STEP_WAIT)
		return step;
	if (!local_send_to_group(engine, qp, wqe, group))
		return STEP_NEXT;
	capture_request(engine, qp, wqe);
	counter_add(&engine->counters[ENGINE_BYTES_SENT], wqe->length);
	qp->sent_messages++;
	request_finish(wqe, HDL_WC_SUCCESS, HDL_DETAIL_NONE);
	return STEP_NEXT;
}

static enum step datagram_execute(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	enum step step = request_own(engine, qp, wqe);
	if (step != STEP_BY_TARGET)
		return step;
	if (wqe->u.ud.link == LINK_WIRE && qp->cells != NULL)
		return cells_send_datagram(engine, qp, wqe);
	if (qp->acknowledged) { /* lanes and packets acknowledge no datagrams */
		request_finish(wqe, HDL_WC_LOC_QP_OP_ERR, HDL_DETAIL_TYPE);
		return STEP_NEXT;
	}
	if (wqe->u.ud.link == LINK_WIRE)
		return ib_send_datagram(engine, qp, wqe);
	if (wqe->u.ud.link != LINK_NONE && wqe->u.ud.link >= MULTICAST_LINK)
		return datagram_to_group(engine, qp, wqe);
	return local_send_datagram(engine, qp, wqe);
}

static bool datagram_run(struct engine *engine, struct qp *qp)
{
	return request_run(engine, qp, datagram_execute);
}

static void datagram_timeout(struct engine *engine, struct qp *qp)
{
	if (qp->acknowledged)
		cells_datagram_timeout(engine, qp);
	else
		request_timeout(engine, qp);
}

static void datagram_begin(struct qp *qp)
{
	if (qp->cells != NULL)
		cells_begin_requester(qp);
}

const struct transport datagram_transport = {
        .name = "datagrams",
        .run = datagram_run,
        .owes = cells_owes,
        .answer = cells_answer,
        .timeout = datagram_timeout,
        .begin_requester = datagram_begin,
};
