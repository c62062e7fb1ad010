/* The InfiniBand transports as the engine sees them: their table (transport.h). */
#include "transport/ib/ib.h"

#include "transport/transport.h"

bool ib_answer_may_wait(const struct engine *engine, struct qp *qp)
{
	return (engine->by_application || engine->delay_acks) && ib_may_wait(qp);
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
        IB_TRANSPORT_ENTRIES,
};
