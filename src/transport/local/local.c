/* The same-host path as the engine knows it: the table of its functions (transport.h). */
#include "transport/local/local.h"

#include "queue/qp_state.h"
#include "transport/transport.h"

/* A delayed ACK: the application may answer the message, and its answer carries the ACK. */
static bool local_answer_may_wait(const struct engine *engine, struct qp *qp)
{
	return engine->by_application && local_may_wait(qp);
}

static enum settled local_settle(struct engine *engine, struct qp *qp)
{
	return local_answer(engine, qp) ? SETTLED : UNSETTLED;
}

static void local_posted(struct engine *engine, struct qp *qp)
{
	if (qp->close_due)
		local_answer(engine, qp);
}

/* Did the peer of @qp end its queue pair before it went? */
static bool left_in_order(const struct link *link, const struct qp *qp)
{
	struct qp_facts facts;
	return qp_read_facts(&link->peer_qps[qp->attr.dest_qpn & link->peer_qp_mask], &facts) &&
	       (facts.type == 0 || facts.state == HDL_QPS_RESET);
}

/* If the peer left in order, our queue pair stays as it is, as it would on a wire: it repeats what
 * was not answered until its retries are used up. A program that has what it wanted is done by
 * then. (If the failure of a message that it does not need came in one batch with the last
 * completion that it needs, ibv_srq_pingpong would give up.) */
static void local_link_gone(struct engine *engine, struct qp *qp)
{
	if (!left_in_order(&engine->links[qp->link], qp))
		local_peer_gone(engine, qp);
	else if (qp->unanswered > 0)
		local_peer_left(engine, qp);
	qp->local.answer_due = qp->close_due = false;
	qp->local.results_due = 0;
}

static void local_begin_responder(struct qp *qp)
{
	qp->local.expected_msn = qp->attr.rq_psn;
}

/* A message that was received is acknowledged whatever becomes of the queue pair. */
static void local_leaving(struct engine *engine, struct qp *qp, enum hdl_qp_state state)
{
	if (state == HDL_QPS_RESET && (qp->local.answer_due || qp->close_due))
		local_answer(engine, qp);
}

/* What is in flight is flushed. */
static void local_left(struct engine *engine, struct qp *qp, enum hdl_qp_state state)
{
	(void)engine;
	(void)state;
	qp->local.value_reads = 0;
}

const struct transport local_transport = {
        .name = "lanes",
        .run = local_run,
        .posted = local_posted,
        .owes = local_owes,
        .may_wait = local_answer_may_wait,
        .answer = local_settle,
        .timeout = local_timeout,
        .peer_gone = local_link_gone,
        .begin_responder = local_begin_responder,
        .leaving = local_leaving,
        .left = local_left,
};
