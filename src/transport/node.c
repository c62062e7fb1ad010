/* The engine of an adapter: turns, timers, links, and the states of queue pairs. */
#include "transport/node.h"

#include <assert.h>
#include <string.h>

#include "queue/qp_state.h"
#include "transport/capture.h"
#include "transport/ib.h"
#include "transport/local.h"
#include "transport/multicast.h"
#include "transport/op.h"
#include "transport/raw.h"
#include "transport/rd.h"

struct qp *node_find_qp(const struct node *node, uint32_t qpn)
{
	struct qp *qp = node->qps[qpn & node->qp_mask];
	return qp != NULL && qp->qpn == qpn ? qp : NULL;
}

void node_activate(struct node *node, struct qp *qp)
{
	if (qp->is_active)
		return;
	qp->is_active = true;
	qp->active_next = NULL;
	*node->active_end = qp;
	node->active_end = &qp->active_next;
}

void node_want_timer(struct node *node, struct qp *qp, uint64_t ns)
{
	timer_stop(&node->wheel, &qp->timer);
	qp->timer_ns = ns;
	if (qp->timer_wanted)
		return;
	qp->timer_wanted = true;
	qp->timer_next = node->timers_wanted;
	node->timers_wanted = qp;
}

void node_drop_timer(struct node *node, struct qp *qp)
{
	timer_stop(&node->wheel, &qp->timer);
	for (struct qp **at = &node->timers_wanted; *at != NULL; at = &(*at)->timer_next) {
		if (*at == qp) {
			*at = qp->timer_next;
			break;
		}
	}
	qp->timer_wanted = false;
}

void node_hold(struct node *node, struct qp *qp, uint64_t ns)
{
	struct ib *ib = qp->ib;
	ib->held_ns = ns;
	if (node->held == NULL || ns < node->held_ns)
		node->held_ns = ns;
	if (ib->held)
		return;
	ib->held = true;
	ib->held_next = node->held;
	node->held = qp;
}

/* Those whose time has come owe again. Returns how many. */
static unsigned release(struct node *node, uint64_t now_ns)
{
	unsigned count = 0;
	if (now_ns < node->held_ns)
		return 0;
	node->held_ns = UINT64_MAX;
	for (struct qp **at = &node->held; *at != NULL;) {
		struct qp *qp = *at;
		if (qp->ib->held_ns > now_ns) {
			if (qp->ib->held_ns < node->held_ns)
				node->held_ns = qp->ib->held_ns;
			at = &qp->ib->held_next;
			continue;
		}
		*at = qp->ib->held_next;
		qp->ib->held = false;
		node_owe(node, qp);
		count++;
	}
	return count;
}

static void drop_held(struct node *node, struct qp *qp)
{
	for (struct qp **at = &node->held; *at != NULL; at = &(*at)->ib->held_next) {
		if (*at == qp) {
			*at = qp->ib->held_next;
			break;
		}
	}
	qp->ib->held = false;
}

void node_forget(struct node *node, struct qp *qp)
{
	assert(qp_state(qp) == HDL_QPS_RESET && !timer_running(&qp->timer));
	for (struct qp **at = &node->active; *at != NULL; at = &(*at)->active_next) {
		if (*at != qp)
			continue;
		*at = qp->active_next;
		if (node->active_end == &qp->active_next)
			node->active_end = at;
		break;
	}
	qp->is_active = false;
	for (struct qp **at = &node->owing; *at != NULL; at = &(*at)->owing_next) {
		if (*at == qp) {
			*at = qp->owing_next;
			break;
		}
	}
	qp->is_owing = false;
}

void node_ring_bells(struct node *node)
{
	while (node->dirty_links != LINK_NONE) {
		uint32_t index = node->dirty_links;
		struct link *link = &node->links[index];
		node->dirty_links = link->dirty_next;
		link->dirty = false;
		if (link->up && ring_take_armed(&link->tx))
			node->sink.bell(node->sink.context, index);
	}
}

/* Packets that wait for more of them go now. */
static void flush(const struct node *node)
{
	if (node->carrier != NULL)
		node->carrier->flush(node->carrier->context);
}

/* The turn of @qp. */
static bool run_qp(struct node *node, struct qp *qp)
{
	capture_turn(node, qp);
	bool did;
	if (qp->ib == NULL)
		did = qp->type < HDL_QP_RD    ? local_run(node, qp)
		      : qp->type == HDL_QP_RD ? rd_run(node, qp)
		                              : raw_run(node, qp);
	else if (qp->type == QP_TYPE_EEC)
		return rd_run_context(node, qp);
	else
		did = ib_run(node, qp);
	enum hdl_qp_state state = qp_state(qp);
	if (state == HDL_QPS_ERR || state == HDL_QPS_SQE) {
		if (!did)
			op_flush_send(node, qp);
		if (state == HDL_QPS_ERR && !qp_shares(qp))
			op_flush_recv(node, qp);
	}
	return did;
}

/* Send what is owed, but for what may wait or finds no room. */
static void settle(struct node *node)
{
	struct qp *qp = node->owing, *next;
	node->owing = NULL;
	for (; qp != NULL; qp = next) {
		next = qp->owing_next;
		qp->is_owing = false;
		if (qp->ib == NULL && !local_owes(qp))
			continue; /* a message took it along */
		bool may_wait = qp->ib != NULL
		                        ? (node->by_application || node->patient) && ib_may_wait(qp)
		                        : node->by_application && local_may_wait(qp);
		if (!may_wait && (qp->ib != NULL ? ib_answer(node, qp) : local_answer(node, qp)))
			continue;
		if (may_wait || qp->ib == NULL || !qp->ib->pausing)
			node_owe(node, qp);
	}
}

static unsigned run_active(struct node *node)
{
	unsigned did = 0;
	/* Those that become active while we run have their turn next time. */
	struct qp *qp = node->active;
	node->active = NULL;
	node->active_end = &node->active;
	while (qp != NULL) {
		struct qp *next = qp->active_next;
		qp->is_active = false;
		did += run_qp(node, qp);
		qp = next;
	}
	return did;
}

void node_post(struct node *node, struct qp *qp)
{
	node->by_application = true;
	run_qp(node, qp);
	if (qp->ib != NULL)
		ib_take_along(node, qp);
	else if (qp->close_due)
		local_answer(node, qp);
	node->by_application = false;
	node_ring_bells(node);
	flush(node);
}

unsigned node_run(struct node *node)
{
	unsigned did = 0;
	node->short_polls = NODE_SHORT_POLLS;
	for (uint32_t i = 0; i < node->link_count; i++)
		if (node->links[i].up && !ring_quiet(&node->links[i].rx))
			did += local_receive(node, i);
	for (struct mpsc_node *at = mpsc_take(&node->pending), *next; at != NULL; at = next) {
		struct qp *qp = (struct qp *)(void *)((char *)at - offsetof(struct qp, pending));
		next = at->next;
		mpsc_done(at);
		node_activate(node, qp);
	}
	if (node->active != NULL)
		did += run_active(node);
	if (node->owing != NULL && !node->no_answers)
		settle(node);
	node_ring_bells(node);
	flush(node);
	return did;
}

unsigned node_tick(struct node *node, uint64_t now_ns)
{
	unsigned count = 0;
	node->now_ns = now_ns;
	while (node->timers_wanted != NULL) {
		struct qp *qp = node->timers_wanted;
		node->timers_wanted = qp->timer_next;
		qp->timer_wanted = false;
		uint64_t deadline =
		        qp->timer_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + qp->timer_ns;
		timer_start(&node->wheel, &qp->timer, deadline);
	}
	struct timer_node *next;
	for (struct timer_node *at = timer_advance(&node->wheel, now_ns); at != NULL; at = next) {
		next = at->next;
		struct qp *qp = (struct qp *)(void *)((char *)at - offsetof(struct qp, timer));
		if (qp->ib == NULL)
			local_timeout(node, qp);
		else
			ib_timeout(node, qp);
		count++;
	}
	if (node->held != NULL)
		count += release(node, now_ns);
	return count;
}

uint64_t node_next_tick(const struct node *node)
{
	if (node->timers_wanted != NULL)
		return node->now_ns;
	uint64_t next = timer_next_ns(&node->wheel);
	return node->held != NULL && node->held_ns < next ? node->held_ns : next;
}

bool node_stuck(const struct node *node)
{
	return node->active != NULL || node->owing != NULL;
}

bool node_idle(const struct node *node)
{
	if (!mpsc_empty(&node->pending))
		return false;
	for (uint32_t i = 0; i < node->link_count; i++) {
		struct link *link = &node->links[i];
		size_t bytes;
		if (link->up && ring_peek(&link->rx, &bytes) != NULL)
			return false;
	}
	return true;
}

/* Did the peer of @qp end its queue pair before it went? Then ours stays as it is, as it would on a wire: nothing is owed, and
 * what is sent from now on is not answered. */
static bool left_in_order(const struct link *link, const struct qp *qp)
{
	struct qp_facts facts;
	return wq_held(&qp->sq) == 0 &&
	       qp_read_facts(&link->peer_qps[qp->attr.dest_qpn & link->peer_qp_mask], &facts) &&
	       (facts.type == 0 || facts.state == HDL_QPS_RESET);
}

void node_link_down(struct node *node, uint32_t index)
{
	struct link *link = &node->links[index];
	if (!link->up)
		return;
	/* What it sent before it went still counts, and that is no more than the lane holds: whoever goes on sending is not waited for.
	 * (Taking it may find the lane broken, and be here again.) */
	uint64_t end = link->rx.position + link->rx.slot_count;
	while (link->up && !link->rx.broken && link->rx.position < end &&
	       local_receive(node, index) > 0)
		;
	if (!link->up)
		return;
	link->up = false;
	multicast_link_down(node, index);
	node->sink.event(node->sink.context, HDL_EVENT_PEER_GONE, HDL_DETAIL_NONE, &link->gid,
	                 (struct hdl_key){0});
	for (uint32_t i = 0; i <= node->qp_mask; i++) {
		struct qp *qp = node->qps[i];
		if (qp == NULL || qp->link != index)
			continue;
		if (!left_in_order(link, qp))
			local_peer_gone(node, qp);
		qp->link = LINK_NONE;
		qp->answer_due = qp->close_due = false;
		qp->results_due = 0;
	}
}

/* --- states --- */

static void publish(const struct node *node, struct qp *qp)
{
	uint32_t access = qp->attr.access;
	/* Who keeps no read resources takes no reads, also from an initiator that reads by itself. */
	if (qp->attr.max_dest_rd_atomic == 0)
		access &= ~(uint32_t)(HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_ATOMIC);
	struct qp_facts facts = {.state = (uint8_t)qp_state(qp),
	                         .type = qp->type,
	                         .access = (uint8_t)access,
	                         .windows_only = qp->windows_only,
	                         .dest_qpn = qp->attr.dest_qpn,
	                         .link = qp->link >= LINK_WIRE ? 0 : node->links[qp->link].id,
	                         .pd = qp->type == HDL_QP_XRC_TGT ? qp->xrcd : qp->pd,
	                         .rq_psn = qp->attr.rq_psn};
	qp_publish(qp->pub, &facts);
}

void qp_restart(struct qp *qp)
{
	qp->next = wq_head(&qp->sq);
	qp->next_read = 0;
	qp->unanswered = qp->reads_open = qp->value_reads = 0;
	qp->waiting = qp->draining = qp->answered = false;
	qp->nak_sent = qp->established = qp->answer_due = qp->close_due = false;
	qp->results_due = 0;
	qp->part_offset = 0;
	qp->keeps = false;
	qp->target.access = 0;
	if (qp->capture != NULL)
		capture_restart(qp->capture);
}

void qp_enter(struct node *node, struct qp *qp, enum hdl_qp_state state)
{
	enum hdl_qp_state old = qp_state(qp);
	if ((state == HDL_QPS_RESET || state == HDL_QPS_ERR) && qp->ib != NULL)
		ib_touch(node, qp);
	if (state == HDL_QPS_RESET && qp->ib != NULL) {
		ib_answer(node, qp);
		drop_held(node, qp);
		flush(node); /* nobody may drive us again */
	} else if (state == HDL_QPS_RESET && (qp->answer_due || qp->close_due))
		local_answer(node, qp); /* it has been received, whatever becomes of us */
	atomic_store_explicit(&qp->state, (uint8_t)state, memory_order_release);
	publish(node, qp);
	if (qp->type == HDL_QP_RD && (state == HDL_QPS_RESET || state >= HDL_QPS_SQE))
		rd_leave(node, qp);
	switch (state) {
	case HDL_QPS_RESET:
		/* Peers see the new state; those that were copying for us have gone when this returns. */
		node->sink.quiesce(node->sink.context);
		node_drop_timer(node, qp);
		wq_clear(&qp->sq);
		wq_clear(&qp->rq);
		atomic_store_explicit(&qp->lists_head, qp->lists_tail, memory_order_release);
		qp->link = LINK_NONE;
		atomic_store_explicit(&qp->pub->executed, 0, memory_order_relaxed);
		qp_restart(qp);
		break;
	case HDL_QPS_RTR:
		qp->expected_msn = qp->attr.rq_psn;
		if (qp->ib != NULL)
			ib_begin_responder(qp);
		break;
	case HDL_QPS_RTS:
		if (old == HDL_QPS_RTS)
			break; /* attributes alone */
		if (old == HDL_QPS_RTR) {
			qp->next_msn = qp->attr.sq_psn;
			if (qp->ib != NULL)
				ib_begin_requester(qp);
		}
		qp->draining = false;
		qp->retries_left = qp->attr.retry_cnt;
		qp->rnr_left = qp->attr.rnr_retry;
		node_activate(node, qp);
		break;
	case HDL_QPS_SQD:
		if (old == HDL_QPS_SQD)
			break;
		qp->draining = true;
		request_reap(node, qp);
		break;
	case HDL_QPS_SQE:
	case HDL_QPS_ERR:
		if (old == state)
			break;
		node->sink.quiesce(node->sink.context);
		node_drop_timer(node, qp);
		qp->waiting = false;
		op_flush_send(node, qp);
		if (state == HDL_QPS_ERR)
			op_flush_recv(node, qp);
		node_activate(node, qp);
		break;
	default:
		break;
	}
}
