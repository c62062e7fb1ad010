/* The InfiniBand transports as the engine sees them: their table (transport.h). */
#include "transport/ib/ib.h"

#include "transport/transport.h"

bool ib_answer_may_wait(const struct engine *engine, struct qp *qp)
{
	return (engine->by_application || engine->patient) && ib_may_wait(qp);
}

enum settled ib_settle(struct engine *engine, struct qp *qp)
{
	if (ib_answer(engine, qp))
		return SETTLED;
	return qp->ib->pausing ? DEFERRED : UNSETTLED;
}

void ib_leaving(struct engine *engine, struct qp *qp, enum hdl_qp_state state)
{
	ib_touch(engine, qp);
	if (state == HDL_QPS_RESET)
		ib_answer(engine, qp);
}

const struct transport ib_transport = {
        .name = "InfiniBand",
        .run = ib_run,
        .posted = ib_take_along,
        .may_wait = ib_answer_may_wait,
        .answer = ib_settle,
        .timeout = ib_timeout,
        .begin_responder = ib_begin_responder,
        .begin_requester = ib_begin_requester,
        .leaving = ib_leaving,
};
