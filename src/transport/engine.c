/* The engine of an adapter: turns, timers, links, and the states of queue pairs. */
#include "transport/engine.h"

#include <assert.h>
#include <string.h>

#include "queue/qp_state.h"
#include "transport/capture.h"
#include "transport/local/local.h"
#include "transport/multicast.h"
#include "transport/op.h"
#include "transport/transport.h"

struct qp *engine_find_qp(const struct engine *engine, uint32_t qpn)
{
	struct qp *qp = engine->qps[qpn & engine->qp_mask];
	return qp != NULL && qp->qpn == qpn ? qp : NULL;
}

void engine_activate(struct engine *engine, struct qp *qp)
{
	if (qp->is_active)
		return;
	qp->is_active = true;
	qp->active_next = NULL;
	struct engine_turns *turns = &engine->turns[qp->service];
	*turns->active_end = qp;
	turns->active_end = &qp->active_next;
}

void engine_begin_turns(struct engine *engine)
{
	for (unsigned i = 0; i < SERVICE_CLASSES; i++)
		engine->turns[i].active_end = &engine->turns[i].active;
}

void engine_want_timer(struct engine *engine, struct qp *qp, uint64_t ns)
{
	assert(qp->transport->timeout != NULL);
	timer_stop(&engine->wheel, &qp->timer);
	qp->timer_ns = ns;
	if (qp->timer_wanted)
		return;
	qp->timer_wanted = true;
	qp->timer_next = engine->timers_wanted;
	engine->timers_wanted = qp;
}

void engine_drop_timer(struct engine *engine, struct qp *qp)
{
	timer_stop(&engine->wheel, &qp->timer);
	for (struct qp **at = &engine->timers_wanted; *at != NULL; at = &(*at)->timer_next) {
		if (*at == qp) {
			*at = qp->timer_next;
			break;
		}
	}
	qp->timer_wanted = false;
}

void engine_hold(struct engine *engine, struct qp *qp, uint64_t ns)
{
	assert(qp->transport->answer != NULL);
	qp->held_ns = ns;
	if (engine->held == NULL || ns < engine->held_ns)
		engine->held_ns = ns;
	if (qp->held)
		return;
	qp->held = true;
	qp->held_next = engine->held;
	engine->held = qp;
}

/* Queue pairs whose time has come owe their answer again. Returns how many. */
static unsigned release(struct engine *engine, uint64_t now_ns)
{
	unsigned count = 0;
	if (now_ns < engine->held_ns)
		return 0;
	engine->held_ns = UINT64_MAX;
	for (struct qp **at = &engine->held; *at != NULL;) {
		struct qp *qp = *at;
		if (qp->held_ns > now_ns) {
			if (qp->held_ns < engine->held_ns)
				engine->held_ns = qp->held_ns;
			at = &qp->held_next;
			continue;
		}
		*at = qp->held_next;
		qp->held = false;
		engine_owe(engine, qp);
		count++;
	}
	return count;
}

static void drop_held(struct engine *engine, struct qp *qp)
{
	for (struct qp **at = &engine->held; *at != NULL; at = &(*at)->held_next) {
		if (*at == qp) {
			*at = qp->held_next;
			break;
		}
	}
	qp->held = false;
}

/* Take @qp out of the lists of queue pairs that want a turn. */
static void leave_turns(struct engine *engine, struct qp *qp)
{
	struct engine_turns *turns = &engine->turns[qp->service];
	for (struct qp **at = &turns->active; *at != NULL; at = &(*at)->active_next) {
		if (*at != qp)
			continue;
		*at = qp->active_next;
		if (turns->active_end == &qp->active_next)
			turns->active_end = at;
		break;
	}
	qp->is_active = false;
	for (struct qp **at = &turns->owing; *at != NULL; at = &(*at)->owing_next) {
		if (*at == qp) {
			*at = qp->owing_next;
			break;
		}
	}
	qp->is_owing = false;
}

void engine_serve(struct engine *engine, struct qp *qp, uint8_t service)
{
	bool active = qp->is_active, owing = qp->is_owing;
	if (qp->service == service)
		return;
	leave_turns(engine, qp);
	qp->service = service;
	if (active)
		engine_activate(engine, qp);
	if (owing)
		engine_owe(engine, qp);
}

void engine_forget(struct engine *engine, struct qp *qp)
{
	/* Pairs with qp_enter(): RESET leaves nothing that refers to @qp but the lists of turns. */
	assert(qp_state(qp) == HDL_QPS_RESET && !timer_running(&qp->timer));
	assert(!qp->timer_wanted && !qp->held);
	leave_turns(engine, qp);
}

void engine_ring_bells(struct engine *engine)
{
	while (engine->dirty_links != LINK_NONE) {
		uint32_t index = engine->dirty_links;
		struct link *link = &engine->links[index];
		engine->dirty_links = link->dirty_next;
		link->dirty = false;
		if (link->up && ring_take_armed(&link->tx))
			engine->sink.bell(engine->sink.context, index);
	}
}

/* Send the packets that wait for more of them now. */
static void engine_flush(const struct engine *engine)
{
	for (uint32_t i = 0; i < engine->carrier_count; i++)
		if (engine->carriers[i] != NULL)
			engine->carriers[i]->flush(engine->carriers[i]->context);
}

/* The turn of @qp. */
static bool run_qp(struct engine *engine, struct qp *qp)
{
	capture_turn(engine, qp);
	bool did = qp->transport->run(engine, qp);
	if (qp->transport->borrows_requests)
		return did;
	enum hdl_qp_state state = qp_state(qp);
	if (state == HDL_QPS_SQD && qp->flushes)
		op_flush_send(engine, qp);
	if (state == HDL_QPS_ERR || state == HDL_QPS_SQE) {
		if (!did)
			op_flush_send(engine, qp);
		if (state == HDL_QPS_ERR && !qp_shares(qp))
			op_flush_recv(engine, qp);
	}
	return did;
}

static uint64_t sent_so_far(const struct engine *engine)
{
	return counter_read(&engine->counters[ENGINE_PACKETS_OUT]) +
	       counter_read(&engine->counters[ENGINE_FRAMES_OUT]);
}

/* Send the answers that are owed in one class, except those that may wait. *did grows if some got
 * on: a long answer takes many turns, and whoever drives must not take the next one for a
 * repetition in vain. False: some found no room. */
static bool settle_class(struct engine *engine, struct engine_turns *turns, unsigned *did)
{
	struct qp *qp = turns->owing, *next;
	uint64_t before = sent_so_far(engine);
	bool room = true;
	turns->owing = NULL;
	for (; qp != NULL; qp = next) {
		next = qp->owing_next;
		qp->is_owing = false;
		const struct transport *transport = qp->transport;
		if (transport->owes != NULL && !transport->owes(qp))
			continue; /* a message carried the answer */
		if (transport->may_wait != NULL && transport->may_wait(engine, qp)) {
			engine_owe(engine, qp);
		} else if (transport->answer(engine, qp) == UNSETTLED) {
			engine_owe(engine, qp);
			room = false;
		} else {
			*did += 1;
		}
	}
	*did += !room && sent_so_far(engine) != before;
	return room;
}

/* Queue pairs that have been posted to have work. */
static void take_pending(struct engine *engine)
{
	for (struct mpsc_node *at = mpsc_take(&engine->pending), *next; at != NULL; at = next) {
		struct qp *qp = (struct qp *)(void *)((char *)at - offsetof(struct qp, pending));
		next = at->next;
		mpsc_done(at);
		engine_activate(engine, qp);
	}
}

static unsigned run_class(struct engine *engine, uint8_t service);

/* A queue pair of another class has had its turn: urgent ones that have work by now come before the
 * next. So an urgent request waits for one turn, however many queue pairs are busy, and as each
 * turn is bounded, the others go on in any case. */
static unsigned run_urgent(struct engine *engine)
{
	if (!mpsc_empty(&engine->pending))
		take_pending(engine);
	return engine->turns[SERVICE_URGENT].active != NULL ? run_class(engine, SERVICE_URGENT) : 0;
}

/* @qp found no room for its packets, because others had taken it: it is first next time. */
static void put_first(struct engine_turns *turns, struct qp *qp)
{
	struct qp **at = &turns->active;
	while (*at != NULL && *at != qp)
		at = &(*at)->active_next;
	if (*at == NULL || at == &turns->active)
		return;
	*turns->active_end = turns->active;
	turns->active_end = at;
	turns->active = qp;
	*at = NULL;
}

static unsigned run_class(struct engine *engine, uint8_t service)
{
	struct engine_turns *turns = &engine->turns[service];
	struct qp *starved = NULL;
	unsigned did = 0;
	/* Queue pairs that become active meanwhile get their turn next time. */
	struct qp *qp = turns->active;
	turns->active = NULL;
	turns->active_end = &turns->active;
	while (qp != NULL) {
		struct qp *next = qp->active_next;
		qp->is_active = false;
		if (run_qp(engine, qp))
			did++;
		else if (starved == NULL && qp->is_active)
			starved = qp;
		qp = next;
		if (qp != NULL && service != SERVICE_URGENT)
			did += run_urgent(engine);
	}
	if (starved != NULL)
		put_first(turns, starved);
	return did;
}

/* The turn of one class: requests, then answers, because an answer may travel with a message. Where
 * requests take all the room there is, answers go first the next time that there is some. */
static unsigned serve_class(struct engine *engine, uint8_t service)
{
	struct engine_turns *turns = &engine->turns[service];
	bool may_answer = !engine->no_answers, first = turns->answers_first && may_answer;
	unsigned did = 0, answered = 0;
	if (first) {
		uint64_t before = sent_so_far(engine);
		turns->answers_first =
		        !settle_class(engine, turns, &answered) && sent_so_far(engine) == before;
	}
	if (turns->active != NULL)
		did = run_class(engine, service);
	if (turns->owing != NULL && !first && may_answer)
		turns->answers_first = !settle_class(engine, turns, &answered) && did > 0;
	return did + answered;
}

/* Bulk data uses what the normal class leaves, but has the first turn now and then. */
static unsigned serve_all(struct engine *engine)
{
	const struct engine_turns *bulk = &engine->turns[SERVICE_BULK];
	unsigned did = serve_class(engine, SERVICE_URGENT);
	if (bulk->active == NULL && bulk->owing == NULL)
		return did + serve_class(engine, SERVICE_NORMAL);
	if (engine->bulk_behind < ENGINE_BULK_EVERY) {
		uint64_t before = sent_so_far(engine);
		did += serve_class(engine, SERVICE_NORMAL);
		engine->bulk_behind += sent_so_far(engine) != before;
		return did + serve_class(engine, SERVICE_BULK);
	}
	uint64_t before = sent_so_far(engine);
	did += serve_class(engine, SERVICE_BULK);
	if (sent_so_far(engine) != before) /* else there was no room for anybody */
		engine->bulk_behind = 0;
	return did + serve_class(engine, SERVICE_NORMAL);
}

void engine_post(struct engine *engine, struct qp *qp)
{
	engine->by_application = true;
	run_qp(engine, qp);
	if (qp->transport->posted != NULL)
		qp->transport->posted(engine, qp);
	engine->by_application = false;
	engine_ring_bells(engine);
	engine_flush(engine);
}

unsigned engine_run(struct engine *engine)
{
	unsigned did = 0;
	engine->short_polls = engine_fast(engine) ? ENGINE_SHORT_POLLS : 0;
	for (uint32_t i = 0; i < engine->link_count; i++)
		if (engine->links[i].up && !ring_quiet(&engine->links[i].rx))
			did += local_receive(engine, i);
	take_pending(engine);
	if (engine_is_active(engine) || engine_is_owing(engine))
		did += serve_all(engine);
	engine_ring_bells(engine);
	engine_flush(engine);
	return did;
}

unsigned engine_tick(struct engine *engine, uint64_t now_ns)
{
	unsigned count = 0;
	engine->now_ns = now_ns;
	while (engine->timers_wanted != NULL) {
		struct qp *qp = engine->timers_wanted;
		engine->timers_wanted = qp->timer_next;
		qp->timer_wanted = false;
		uint64_t deadline =
		        qp->timer_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + qp->timer_ns;
		timer_start(&engine->wheel, &qp->timer, deadline);
	}
	struct timer_node *next;
	for (struct timer_node *at = timer_advance(&engine->wheel, now_ns); at != NULL; at = next) {
		next = at->next;
		struct qp *qp = (struct qp *)(void *)((char *)at - offsetof(struct qp, timer));
		qp->transport->timeout(engine, qp);
		count++;
	}
	if (engine->held != NULL)
		count += release(engine, now_ns);
	return count;
}

uint64_t engine_next_tick(const struct engine *engine)
{
	if (engine->timers_wanted != NULL)
		return engine->now_ns;
	uint64_t next = timer_next_ns(&engine->wheel);
	return engine->held != NULL && engine->held_ns < next ? engine->held_ns : next;
}

bool engine_stuck(const struct engine *engine)
{
	return engine_is_active(engine) || engine_is_owing(engine);
}

bool engine_idle(const struct engine *engine)
{
	if (!mpsc_empty(&engine->pending))
		return false;
	for (uint32_t i = 0; i < engine->link_count; i++) {
		struct link *link = &engine->links[i];
		size_t bytes;
		if (link->up && ring_peek(&link->rx, &bytes) != NULL)
			return false;
	}
	return true;
}

void engine_link_down(struct engine *engine, uint32_t index)
{
	assert(index < engine->link_count);
	struct link *link = &engine->links[index];
	if (!link->up)
		return;
	/* What the peer sent before it went still counts, but no more than the lane can hold: we do
	 * not wait for a peer that keeps sending. (Receiving may find the lane broken and re-enter
	 * this function.) */
	uint64_t end = link->rx.position + link->rx.slot_count;
	while (link->up && !link->rx.broken && link->rx.position < end &&
	       local_receive(engine, index) > 0)
		;
	if (!link->up)
		return;
	link->up = false;
	multicast_link_down(engine, index);
	if (engine->sink.link_down != NULL)
		engine->sink.link_down(engine->sink.context, index);
	engine->sink.event(engine->sink.context, HDL_EVENT_PEER_GONE, HDL_DETAIL_NONE, &link->gid,
	                   (struct hdl_key){0});
	for (uint32_t i = 0; i <= engine->qp_mask; i++) {
		struct qp *qp = engine->qps[i];
		if (qp == NULL || qp->link != index)
			continue;
		if (qp->transport->peer_gone != NULL)
			qp->transport->peer_gone(engine, qp);
		qp->link = LINK_NONE;
	}
}

/* --- states --- */

static void transport_engine_publish(const struct engine *engine, struct qp *qp)
{
	uint32_t access = qp->attr.access;
	/* A queue pair without read resources accepts no reads, not even from an initiator that
	 * reads by itself. */
	if (qp->attr.max_dest_rd_atomic == 0)
		access &= ~(uint32_t)(HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_ATOMIC);
	struct qp_facts facts = {.state = (uint8_t)qp_state(qp),
	                         .type = qp->type,
	                         .access = (uint8_t)access,
	                         .windows_only = qp->windows_only,
	                         .on_wire = qp->transport != &local_transport,
	                         .dest_qpn = qp->attr.dest_qpn,
	                         .link = qp->link == LINK_NONE ? 0 : engine->links[qp->link].id,
	                         .pd = qp->type == HDL_QP_XRC_TGT ? qp->xrcd : qp->pd,
	                         .rq_psn = qp->attr.rq_psn};
	qp_publish(qp->pub, &facts);
}

void qp_restart(struct qp *qp)
{
	qp->next = wq_head(&qp->sq);
	qp->unanswered = qp->reads_open = 0;
	qp->waiting = qp->draining = qp->flushes = qp->answered = false;
	qp->nak_sent = qp->established = qp->close_due = false;
	qp->keeps = false;
	qp->behind_count = 0;
	qp->local = (struct qp_local){0};
	if (qp->capture != NULL)
		capture_restart(qp->capture);
}

void qp_enter(struct engine *engine, struct qp *qp, enum hdl_qp_state state)
{
	enum hdl_qp_state old = qp_state(qp);
	const struct transport *transport = qp->transport;
	if ((state == HDL_QPS_RESET || state == HDL_QPS_ERR) && transport->leaving != NULL)
		transport->leaving(engine, qp, state);
	if (state == HDL_QPS_RESET) {
		drop_held(engine, qp);
		engine_flush(engine); /* the engine may never be driven again */
	}
	atomic_store_explicit(&qp->state, (uint8_t)state, memory_order_release);
	transport_engine_publish(engine, qp);
	if ((state == HDL_QPS_RESET || state >= HDL_QPS_SQE) && transport->left != NULL)
		transport->left(engine, qp, state);
	switch (state) {
	case HDL_QPS_RESET:
		/* Peers see the new state. Those that were copying for us have left when this
		 * returns. */
		engine->sink.quiesce(engine->sink.context);
		engine_drop_timer(engine, qp);
		wq_clear(&qp->sq);
		wq_clear(&qp->rq);
		atomic_store_explicit(&qp->lists_head, qp->lists_tail, memory_order_release);
		qp->link = LINK_NONE;
		atomic_store_explicit(&qp->pub->executed, 0, memory_order_relaxed);
		qp_publish_fault(qp->pub, (struct qp_fault){0});
		qp_restart(qp);
		assert(!qp->held && !qp->timer_wanted); /* pairs with engine_forget() */
		break;
	case HDL_QPS_RTR:
		if (transport->begin_responder != NULL)
			transport->begin_responder(qp);
		break;
	case HDL_QPS_RTS:
		if (old == HDL_QPS_RTS)
			break;   /* only attributes change */
		if (qp->flushes) /* posted before the program went on */
			op_flush_send(engine, qp);
		qp->flushes = false;
		if (old == HDL_QPS_RTR) {
			qp->next_msn = qp->attr.sq_psn;
			if (transport->begin_requester != NULL)
				transport->begin_requester(qp);
		}
		qp->draining = false;
		qp->retries_left = qp->attr.retry_cnt;
		qp->rnr_left = qp->attr.rnr_retry;
		engine_activate(engine, qp);
		break;
	case HDL_QPS_SQD:
		if (old == HDL_QPS_SQD)
			break;
		qp->draining = true;
		request_reap(engine, qp);
		break;
	case HDL_QPS_SQE:
	case HDL_QPS_ERR:
		if (old == state)
			break;
		engine->sink.quiesce(engine->sink.context);
		engine_drop_timer(engine, qp);
		qp->waiting = false;
		op_flush_send(engine, qp);
		if (state == HDL_QPS_ERR)
			op_flush_recv(engine, qp);
		engine_activate(engine, qp);
		break;
	default:
		break;
	}
}
