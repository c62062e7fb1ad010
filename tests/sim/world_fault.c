/* What goes wrong on purpose, and what the applications of the world do about it. */
#include "world.h"

#define STALL_NS      150000u
#define LONG_STALL_NS 3000000u

/* In a world without faults too: nothing of the host runs for a while. */
static void stall(struct world *w, struct host *host)
{
	uint64_t now = world_now(w);
	bool lengthy = world_has(w, FAULT_RETRY) && world_chance(w, 300);
	if (now < host->stall_after_ns)
		return;
	uint64_t ns = world_draw(w, lengthy ? LONG_STALL_NS : STALL_NS);
	host->stall_after_ns = now + ns + 2 * STALL_NS;
	world_say(w, "host %u stalls for %lu ns", host->index, (unsigned long)ns);
	if (wire_stall(w, host->index, now + ns))
		world_fail(w, "no room for a stall");
}

static void take_away(struct world *w, struct host *host)
{
	struct opening *o = &w->openings[world_draw(w, w->opening_count)];
	if (o->host != host || o->kind == OPENING_FAST || !o->root || o->state != OPENING_VALID)
		return;
	opening_disturb(w, o);
	struct root *root = o->root;
	bool window = o->kind == OPENING_WINDOW, atomic = root->atomic;
	opening_deregister(w, o);
	if (!window && o->state == OPENING_DEAD && !root->gone && !atomic)
		opening_register(w, host, root, WORLD_MAX_PDS);
}

/* With or without telling the adapter first (SAN SegmentTableUpdate). */
static void unmap(struct world *w, struct host *host)
{
	struct root *root = &w->roots[world_draw(w, w->root_count)];
	if (root->host != host || root->gone || root->atomic)
		return;
	for (uint32_t i = 0; i < w->opening_count; i++)
		if (w->openings[i].host == host && w->openings[i].root == root)
			opening_disturb(w, &w->openings[i]);
	world_say(w, "host %u unmaps block %u", host->index, (unsigned)(root - w->roots));
	if (world_chance(w, 400)) {
		hdl_segment_update(host->adapter, root->memory, root->bytes);
		/* From here on it must not be touched, mapped or not. */
		root_settle(w, root);
		if (world_chance(w, 700))
			root_unmap(w, root);
	} else {
		root_unmap(w, root);
		root_settle(w, root);
	}
	for (uint32_t i = 0; i < w->opening_count; i++)
		if (w->openings[i].host == host && w->openings[i].root == root)
			w->openings[i].gone = true;
	root = root_make(w, host, false);
	opening_register(w, host, root, world_draw(w, WORLD_MAX_PDS));
}

static void change_state(struct world *w, struct wqp *qp)
{
	if (!qp || !qp->ready)
		return;
	wqp_disturb(qp, REASON_STATE);
	switch (world_draw(w, 4)) {
	case 0:
		wqp_to(w, qp, HDL_QPS_ERR);
		break;
	case 1:
		wqp_to(w, qp, HDL_QPS_RESET);
		break;
	case 2:
		wqp_to(w, qp, HDL_QPS_SQD);
		break;
	default:
		if (qp->conn)
			conn_connect(w, qp->conn);
	}
}

/* A new queue pair takes the place of one that was destroyed. */
static void destroy(struct world *w, struct wqp *qp)
{
	if (!qp || w->qp_count + 1 >= WORLD_MAX_QPS)
		return;
	wqp_disturb(qp, REASON_STATE);
	wqp_destroy(w, qp);
	struct wqp *heir = wqp_make(w, qp->host, qp->type);
	if (!heir)
		return;
	if (!qp->conn) {
		datagram_ready(w, heir);
		return;
	}
	struct conn *conn = qp->conn;
	heir->conn = conn;
	heir->side = qp->side;
	heir->max_message = qp->max_message;
	if (heir->srq && heir->max_message > 512) {
		heir->max_message = 512;
		conn->side[1 - qp->side]->max_message = 512;
	}
	conn->side[qp->side] = heir;
	wqp_disturb(heir, qp->reasons | heir->reasons);
	heir->reasons |= conn->side[1 - qp->side]->reasons;
	if (!conn->dead)
		conn_connect(w, conn);
}

static void die(struct world *w, struct host *host)
{
	uint32_t alive = 0;
	for (uint32_t i = 0; i < w->host_count; i++)
		alive += w->hosts[i].adapter != NULL;
	if (alive > 1 && world_chance(w, 300))
		host_kill(w, host);
}

void fault_step(struct world *w, struct host *host)
{
	uint32_t fault = 1u << world_draw(w, 8);
	if (world_has(w, FAULT_PARTITION) && world_chance(w, 150)) {
		w->tally.faults[__builtin_ctz(FAULT_PARTITION)]++;
		wire_partition(w, host);
		return;
	}
	if (world_has(w, FAULT_STREAMS) && world_chance(w, 150)) {
		streams_fault(w, host);
		return;
	}
	if (fault == FAULT_BAD || world_chance(w, 300)) {
		stall(w, host);
		return;
	}
	if (!world_has(w, fault))
		return;
	w->tally.faults[__builtin_ctz(fault)]++;
	switch (fault) {
	case FAULT_KILL:
		die(w, host);
		break;
	case FAULT_DEREGISTER:
		take_away(w, host);
		break;
	case FAULT_UNMAP:
		unmap(w, host);
		break;
	case FAULT_STATE:
		change_state(w, wqp_pick(w, host));
		break;
	case FAULT_DESTROY:
		destroy(w, wqp_pick(w, host));
		break;
	default:
		break;
	}
}

/* An application notices that a queue pair no longer works, and brings it back. */
void fault_repair(struct world *w, struct host *host)
{
	struct wqp *qp = wqp_pick(w, host);
	if (!qp)
		return;
	uint32_t state = wqp_state(qp);
	if (state == HDL_QPS_SQE || (state == HDL_QPS_SQD && world_chance(w, 500))) {
		/* Everything that failed is told before the queue goes on. */
		check_drain(w, host, qp->send_cq);
		qp->sends->failed = false;
		wqp_to(w, qp, HDL_QPS_RTS);
	} else if (state == HDL_QPS_ERR || (state == HDL_QPS_RESET && !qp->ready) ||
	           (w->streams && !qp->ready && streams_down(qp->conn))) {
		if (qp->reasons == 0)
			world_fail(w, "qp %u of host %u is in state %u without a cause",
			           (unsigned)(qp - w->qps), host->index, state);
		if (qp->conn) {
			conn_connect(w, qp->conn);
		} else {
			if (state == HDL_QPS_ERR)
				wqp_to(w, qp, HDL_QPS_RESET);
			datagram_ready(w, qp);
		}
	}
}
