/* What a responder does, whatever path a request took. */
#include "transport/respond.h"

#include "transport/op.h"

const struct tpt_segment respond_whole_message = {
        .last = true, .sn = 0, .next_sn = 1, .window_end = 1};

enum tpt_action respond_touch(struct engine *engine, struct hdl_key key,
                              const struct tpt_segment *segment)
{
	return tpt_touch(engine->tpt, key, segment);
}

void respond_line_up(struct engine *engine, struct hdl_key key, uint32_t next_sn)
{
	tpt_line_up(engine->tpt, key, next_sn);
}

struct sg respond_range(struct engine *engine, struct qp *qp, const struct hdl_sge *piece,
                        uint8_t access)
{
	return (struct sg){.table = &engine->tpt->view,
	                   .pieces = piece,
	                   .count = 1,
	                   .pd = qp->pd,
	                   .qpn = qp->qpn,
	                   .access = access,
	                   .side = TPT_REMOTE,
	                   .windows_only = qp->windows_only};
}

enum hdl_detail respond_check(struct engine *engine, struct qp *qp, const struct hdl_sge *piece,
                              uint8_t access, const struct tpt_segment *segment, struct sg *range)
{
	*range = respond_range(engine, qp, piece, access);
	struct tpt_grant grant;
	enum hdl_detail detail = sg_ask(range, piece, &grant);
	if (detail == HDL_DETAIL_NONE && (grant.entry.flags & TPT_TOUCHED) != 0 &&
	    tpt_touch(engine->tpt, piece->key, segment) == TPT_TERMINATE)
		return HDL_DETAIL_TOUCHED;
	return detail;
}

void respond_refused(struct engine *engine, struct qp *qp, bool invalid, enum hdl_detail detail,
                     bool told)
{
	if (!told)
		op_event(engine, qp, invalid ? HDL_EVENT_QP_REQUEST_ERR : HDL_EVENT_QP_ACCESS_ERR,
		         detail);
	qp_enter(engine, qp, HDL_QPS_ERR);
}

void respond_established(struct engine *engine, struct qp *qp)
{
	if (qp_state(qp) != HDL_QPS_RTR || qp->established)
		return;
	qp->established = true;
	op_event(engine, qp, HDL_EVENT_COMM_EST, HDL_DETAIL_NONE);
}
