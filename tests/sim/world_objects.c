/* The adapters, queue pairs and connections of the world: born, connected, taken down. */
#include "world.h"

#include <stdlib.h>
#include <string.h>

#define REMOTE (HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE | HDL_ACCESS_REMOTE_ATOMIC)

/* --- adapters --- */

static bool make_cqs(struct world *w, struct host *host)
{
	host->cq_count = 1 + world_draw(w, WORLD_MAX_CQS);
	for (uint32_t i = 0; i < host->cq_count; i++) {
		struct wcq *cq = &host->cqs[i];
		cq->small = world_has(w, FAULT_OVERRUN) && world_chance(w, 400);
		cq->depth = cq->small ? 1 + world_draw(w, 8) : WORLD_CQ_DEPTH;
		if (hdl_cq_create(host->adapter, cq->depth, NULL, NULL, &cq->cq))
			return false;
	}
	return true;
}

static bool make_srqs(struct world *w, struct host *host)
{
	host->srq_count = world_draw(w, WORLD_MAX_SRQS + 1);
	for (uint32_t i = 0; i < host->srq_count; i++) {
		struct wsrq *srq = &host->srqs[i];
		struct hdl_srq_attr attr = {.max_wr = 1 + world_draw(w, 24)};
		attr.max_sge = 1 + world_draw(w, WORLD_MAX_PIECES);
		attr.limit = world_draw(w, attr.max_wr + 1);
		srq->max_wr = attr.max_wr;
		srq->max_sge = attr.max_sge;
		srq->pd = world_draw(w, WORLD_MAX_PDS);
		if (hdl_srq_create(host->pds[srq->pd], &attr, NULL, &srq->srq))
			return false;
	}
	return true;
}

static bool make_xrc(struct world *w, struct host *host)
{
	struct wsrq *srq = &host->xrc_srq;
	struct hdl_srq_attr attr = {.max_wr = 4 + world_draw(w, 24)};
	attr.max_sge = 1 + world_draw(w, WORLD_MAX_PIECES);
	srq->max_wr = attr.max_wr;
	srq->max_sge = attr.max_sge;
	srq->pd = world_draw(w, WORLD_MAX_PDS);
	srq->cq = &host->cqs[world_draw(w, host->cq_count)];
	bool good = hdl_xrcd_open(host->adapter, &host->xrcd) == 0 &&
	            hdl_srq_create_xrc(host->pds[srq->pd], host->xrcd, srq->cq->cq, &attr, NULL,
	                               &srq->srq) == 0;
	srq->number = good ? hdl_srq_number(srq->srq) : 0;
	return good;
}

static bool make_memory(struct world *w, struct host *host)
{
	uint32_t count = 2 + world_draw(w, 3);
	for (uint32_t i = 0; i <= count; i++) {
		struct root *root = root_make(w, host, i == count);
		if (!root)
			return false;
		/* Both domains can reach something, and most of it. */
		for (uint32_t n = 0; n < 3; n++)
			if (!opening_register(w, host, root, i == 0 ? n : WORLD_MAX_PDS))
				return false;
	}
	for (uint32_t i = world_draw(w, 3); i > 0; i--)
		opening_share(w, host);
	for (uint32_t i = world_draw(w, 5); i > 0; i--)
		opening_make_window(w, host);
	for (uint32_t i = world_draw(w, 3); i > 0; i--)
		opening_make_fast(w, host);
	return true;
}

bool host_open(struct world *w)
{
	if (w->host_count == WORLD_MAX_HOSTS)
		return false;
	struct host *host = &w->hosts[w->host_count];
	struct hdl_open_attr attr = {.max_mr = 1024, .max_qp = 64, .no_thread = true};
	struct adapter_env env = {.clock = sim_clock(w->sim), .seed = prng_next(&w->prng) | 1};
	if (env.seed % 4 == 3) /* long requests are not so long here: a turn is shorter */
		env.turn_bytes = 1 + (uint32_t)(env.seed >> 32) % 500;
	env.no_fast_path = env.seed >> 32 & 1;
	env.by_target = w->mixed ? world_chance(w, 500) : w->by_target;
	env.by_value = w->mixed ? world_chance(w, 300) : w->by_value;
	*host = (struct host){.index = w->host_count, .born = true};
	if (w->wire)
		env.carrier = wire_attach(w, host, &attr);
	int error = adapter_open(&attr, &env, &host->adapter);
	if (error) {
		world_fail(w, "no adapter: %s", hdl_strerror(error));
		return false;
	}
	w->host_count++;
	struct hdl_limits limits;
	hdl_adapter_query(host->adapter, &limits);
	host->gid = limits.gid;
	bool good = true;
	if (w->streams)
		streams_host_opened(w, host);
	for (uint32_t i = 0; i < WORLD_MAX_PDS; i++)
		good = good && hdl_pd_create(host->adapter, &host->pds[i]) == 0;
	for (uint32_t i = 0; i + 1 < w->host_count; i++)
		if (w->hosts[i].adapter && !w->wire)
			good = good && hdl_join(host->adapter, w->hosts[i].adapter) == 0;
	good = good && make_cqs(w, host) && make_srqs(w, host) && (!w->wire || make_xrc(w, host)) &&
	       make_memory(w, host);
	if (!good)
		world_fail(w, "host %u cannot be furnished", host->index);
	world_say(w, "host %u opens, %s", host->index,
	          w->wire         ? "on the wire"
	          : w->streams    ? "on streams"
	          : env.by_value  ? "by value"
	          : env.by_target ? "by target"
	                          : "direct");
	return good;
}

/* Every queue pair, memory, completion: gone without a word. What the adapter allocated for them is
 * freed here: the memory of a dead process does not outlive it. */
void host_forget(struct world *w, struct host *host)
{
	for (uint32_t i = 0; i < w->qp_count; i++) {
		struct hdl_qp *qp = w->qps[i].qp;
		if (w->qps[i].host != host || !qp)
			continue;
		free(qp->qp.sq.elements);
		free(qp->qp.rq.elements);
		free(qp->qp.lists);
		free(qp->qp.reads.entries);
		free(qp->qp.kept);
		wire_disconnect(qp);
		free(qp);
		w->qps[i].qp = NULL;
	}
	for (uint32_t i = 0; i < host->cq_count && host->cqs[i].cq; i++) {
		free(host->cqs[i].cq->cq.ring);
		free(host->cqs[i].cq);
	}
	for (uint32_t i = 0; i < host->srq_count && host->srqs[i].srq; i++) {
		free(host->srqs[i].srq->srq.wq.elements);
		free(host->srqs[i].srq);
	}
	if (host->xrcd) {
		free(host->xrc_srq.srq->srq.wq.elements);
		free(host->xrc_srq.srq);
		free(host->xrcd->pd);
		free(host->xrcd);
	}
	for (uint32_t i = 0; i < w->opening_count; i++) {
		struct opening *o = &w->openings[i];
		if (o->host != host)
			continue;
		free(o->mr);
		free(o->mw);
		o->mr = NULL;
		o->mw = NULL;
	}
	for (uint32_t pd = 0; pd < WORLD_MAX_PDS; pd++) {
		for (uint32_t i = 0; i < WORLD_MAX_HOSTS; i++)
			free(host->ahs[pd][i]);
		free(host->pds[pd]);
	}
	host->adapter = NULL;
}

void host_kill(struct world *w, struct host *host)
{
	world_say(w, "host %u dies", host->index);
	streams_host_died(w, host);
	adapter_kill(host->adapter);
	wire_kill(w, host->index);
	for (uint32_t i = 0; i < w->qp_count; i++) {
		struct wqp *qp = &w->qps[i];
		if (qp->host != host)
			continue;
		if (qp->conn) {
			wqp_disturb(qp, REASON_PEER);
			qp->conn->dead = true;
			for (uint32_t e = 0; e <= qp->conn->epoch; e++)
				qp->conn->streams[e][1 - qp->side].lossy = true;
		}
		wqp_forget_requests(w, qp);
		qp->ready = false;
	}
	for (uint32_t i = 0; i < w->request_count; i++)
		if (w->requests[i].host == host && w->requests[i].state == REQUEST_PENDING)
			check_vanished(w, &w->requests[i]);
	for (uint32_t i = 0; i < w->root_count; i++)
		if (w->roots[i].host == host)
			root_settle(w, &w->roots[i]);
	for (uint32_t i = 0; i < w->opening_count; i++) {
		if (w->openings[i].host != host)
			continue;
		w->openings[i].state = OPENING_DEAD;
		w->openings[i].generation++;
	}
	host_forget(w, host);
}

/* --- queue pairs --- */

void wqp_disturb(struct wqp *qp, uint32_t reasons)
{
	qp->reasons |= reasons;
	if (qp->conn)
		qp->conn->side[1 - qp->side]->reasons |= reasons;
	if (qp->srq)
		qp->srq->reasons |= reasons;
}

uint32_t wqp_state(const struct wqp *qp)
{
	struct hdl_qp_attr attr;
	return qp->qp && hdl_qp_query(qp->qp, &attr, NULL) == 0 ? attr.state : HDL_QPS_RESET;
}

static uint32_t draw_depth(struct world *w)
{
	return world_chance(w, 250) ? 1 + world_draw(w, 2) : 1 + world_draw(w, 32);
}

/* Limits that mostly let the world go on; with FAULT_RETRY they give up early. */
static void draw_patience(struct world *w, struct wqp *qp)
{
	qp->timeout = world_chance(w, 300) ? 0 : 5 + world_draw(w, 4);
	qp->retry_cnt = 7;
	qp->rnr_retry = 7;
	if (w->wire) /* without a timeout, what is lost would be waited for, for ever */
		qp->timeout = qp->timeout == 0 ? 6 : qp->timeout + 1;
	if (w->loses)
		qp->reasons |= REASON_RETRY;
	if (!world_has(w, FAULT_RETRY))
		return;
	qp->reasons |= REASON_RETRY;
	qp->timeout = w->wire ? 1 + world_draw(w, 7) : world_draw(w, 8);
	qp->retry_cnt = world_draw(w, 8);
	qp->rnr_retry = world_draw(w, 8);
}

static uint32_t draw_max_message(struct world *w)
{
	if (w->large)
		return world_chance(w, 500) ? WORLD_LARGE : 100000;
	switch (world_draw(w, 4)) {
	case 0:
		return 64;
	case 1:
		return 512;
	case 2:
		return 4096 + world_draw(w, 3);
	default:
		return 9000;
	}
}

/* Draws are made one after the other: in an initializer the compiler would choose their order, and
 * a seed would be another world with another compiler. */
static void draw_qp(struct world *w, struct wqp *qp)
{
	struct host *host = qp->host;
	bool reliable = wqp_reliable(qp);
	qp->pd = world_draw(w, WORLD_MAX_PDS);
	qp->send_cq = &host->cqs[world_draw(w, host->cq_count)];
	qp->recv_cq = &host->cqs[world_draw(w, host->cq_count)];
	qp->rd_atomic = world_draw(w, 5);
	qp->signal_all = world_chance(w, 200);
	qp->registers = reliable && world_chance(w, 500);
	qp->windows_only = reliable && world_chance(w, 80);
	qp->drains = world_chance(w, 500);
	qp->access = REMOTE;
	qp->max_message = qp->type == HDL_QP_UD ? WORLD_UD_MAX : draw_max_message(w);
	if (host->srq_count > 0 && world_chance(w, 350))
		qp->srq = &host->srqs[world_draw(w, host->srq_count)];
	draw_patience(w, qp);
	qp->cap.max_send_wr = draw_depth(w);
	qp->cap.max_recv_wr = draw_depth(w);
	qp->cap.max_send_sge = 1 + world_draw(w, WORLD_MAX_PIECES);
	qp->cap.max_recv_sge = 1 + world_draw(w, WORLD_MAX_PIECES);
	qp->cap.max_inline = world_draw(w, 3);
	qp->cap.max_inline *= world_draw(w, 513);
	if (qp->type < HDL_QP_XRC_INI)
		return;
	qp->registers = qp->windows_only = false;
	qp->srq = NULL;
	if (qp->type == HDL_QP_XRC_TGT) { /* all that it has is its queue's */
		qp->srq = &host->xrc_srq;
		qp->pd = qp->srq->pd;
		qp->recv_cq = qp->srq->cq;
	}
}

struct wqp *wqp_make(struct world *w, struct host *host, uint32_t type)
{
	if (w->qp_count == WORLD_MAX_QPS)
		return NULL;
	struct wqp *qp = &w->qps[w->qp_count];
	*qp = (struct wqp){.host = host, .type = type, .streamed = w->streams};
	draw_qp(w, qp);
	if (qp->send_cq->small || qp->recv_cq->small)
		qp->reasons |= REASON_OVERRUN;
	if (qp->srq) { /* what waits there may be short or gone */
		qp->reasons |= qp->srq->reasons;
		qp->srq->reasons |= qp->reasons;
	}
	struct hdl_qp_init_attr attr = {
	        .type = type,
	        .send_cq = qp->send_cq->cq,
	        .recv_cq = qp->recv_cq->cq,
	        .srq = qp->srq && type != HDL_QP_XRC_TGT ? qp->srq->srq : NULL,
	        .xrcd = host->xrcd,
	        .cap = qp->cap,
	        .signal_all = qp->signal_all,
	        .register_on_send = qp->registers,
	        .remote_windows_only = qp->windows_only,
	        .register_error =
	                qp->drains ? HDL_REGISTER_ERROR_DRAIN : HDL_REGISTER_ERROR_TERMINATE};
	struct hdl_qp_cap asked = attr.cap;
	struct hdl_pd *pd = type == HDL_QP_XRC_TGT ? NULL : host->pds[qp->pd];
	int error = hdl_qp_create(pd, &attr, &qp->qp);
	if (error) {
		world_fail(w, "no queue pair: %s", hdl_strerror(error));
		return NULL;
	}
	if (type < HDL_QP_XRC_INI &&
	    (attr.cap.max_send_wr < asked.max_send_wr || attr.cap.max_recv_wr < asked.max_recv_wr))
		world_fail(w, "a queue pair with less than was asked for");
	qp->cap = attr.cap;
	qp->number = hdl_qp_number(qp->qp);
	world_say(w, "host %u makes qp %u: number 0x%06x, type %u", host->index,
	          (unsigned)(qp - w->qps), qp->number, type);
	qp->sends = line_new(w);
	qp->receives = line_new(w);
	qp->sends->lossy = qp->send_cq->small;
	qp->receives->lossy = qp->recv_cq->small;
	w->qp_count++;
	return qp;
}

void wqp_forget_requests(struct world *w, struct wqp *qp)
{
	struct line *lines[2] = {qp->sends, qp->receives};
	for (int i = 0; i < 2; i++) {
		for (uint32_t n = lines[i]->head; n < lines[i]->count; n++)
			check_vanished(w, &w->requests[lines[i]->ids[n]]);
		lines[i]->closed = true;
	}
	qp->sends = line_new(w);
	qp->receives = line_new(w);
	qp->sends->lossy = qp->send_cq->small;
	qp->receives->lossy = qp->recv_cq->small;
}

struct wqp *wqp_pick(struct world *w, const struct host *host)
{
	struct wqp *found = NULL;
	uint32_t seen = 0;
	for (uint32_t i = 0; i < w->qp_count; i++)
		if (w->qps[i].host == host && w->qps[i].qp && world_draw(w, ++seen) == 0)
			found = &w->qps[i];
	return found;
}

void wqp_destroy(struct world *w, struct wqp *qp)
{
	world_say(w, "host %u destroys qp %u", qp->host->index, (unsigned)(qp - w->qps));
	/* A shared receive does not say of which connection it was: leave none to be taken later.
	 */
	if (qp->srq)
		check_drain(w, qp->host, qp->recv_cq);
	int error = hdl_qp_destroy(qp->qp);
	if (error)
		world_fail(w, "a queue pair cannot be destroyed: %s", hdl_strerror(error));
	streams_left(w, qp);
	wqp_forget_requests(w, qp);
	qp->last_epoch = qp->conn ? qp->conn->epoch : 0;
	qp->qp = NULL;
	qp->ready = false;
}

bool wqp_to(struct world *w, struct wqp *qp, uint32_t state)
{
	struct hdl_qp_attr attr = {.state = state};
	if (qp->srq && state == HDL_QPS_RESET)
		check_drain(w, qp->host, qp->recv_cq);
	int error = hdl_qp_modify(qp->qp, &attr, HDL_QP_STATE);
	world_say(w, "qp %u of host %u to state %u: %d", (unsigned)(qp - w->qps), qp->host->index,
	          state, error);
	if (error == 0 && state == HDL_QPS_RESET) {
		streams_left(w, qp);
		wqp_forget_requests(w, qp);
		qp->ready = false;
	}
	return error == 0;
}

/* A message may fail the queue pair as soon as it can receive. */
static void must(struct world *w, struct wqp *qp, int error, const char *what)
{
	if (error && !(qp->reasons && wqp_state(qp) == HDL_QPS_ERR))
		world_fail(w, "qp %u of host %u cannot go to %s: %s", (unsigned)(qp - w->qps),
		           qp->host->index, what, hdl_strerror(error));
}

static void to_init(struct world *w, struct wqp *qp)
{
	struct hdl_qp_attr attr = {
	        .state = HDL_QPS_INIT, .port_num = 1, .access = qp->access, .qkey = WORLD_QKEY};
	uint32_t mask = HDL_QP_STATE | HDL_QP_PKEY_INDEX | HDL_QP_PORT |
	                (qp->type == HDL_QP_UD ? HDL_QP_QKEY : HDL_QP_ACCESS);
	must(w, qp, hdl_qp_modify(qp->qp, &attr, mask), "INIT");
}

void datagram_ready(struct world *w, struct wqp *qp)
{
	struct hdl_qp_attr attr = {.state = HDL_QPS_RTR};
	to_init(w, qp);
	must(w, qp, hdl_qp_modify(qp->qp, &attr, HDL_QP_STATE), "RTR");
	attr.state = HDL_QPS_RTS;
	must(w, qp, hdl_qp_modify(qp->qp, &attr, HDL_QP_STATE | HDL_QP_SQ_PSN), "RTS");
	qp->ready = true;
}

/* --- connections --- */

static void to_receiving(struct world *w, struct wqp *qp)
{
	const struct wqp *peer = qp->conn->side[1 - qp->side];
	uint32_t reads = peer->rd_atomic > qp->rd_atomic ? peer->rd_atomic : qp->rd_atomic;
	struct hdl_qp_attr attr = {.state = HDL_QPS_RTR,
	                           .ah = {.dgid = peer->host->gid, .port_num = 1},
	                           .path_mtu = qp->conn->mtu,
	                           .dest_qpn = peer->number,
	                           .rq_psn = qp->conn->psn[1 - qp->side],
	                           .max_dest_rd_atomic = (uint8_t)reads,
	                           .min_rnr_timer = (uint8_t)(1 + world_draw(w, 12))};
	uint32_t mask =
	        HDL_QP_STATE | HDL_QP_AV | HDL_QP_PATH_MTU | HDL_QP_DEST_QPN | HDL_QP_RQ_PSN;
	if (qp->type == HDL_QP_RC || qp->type == HDL_QP_XRC_TGT)
		mask |= HDL_QP_MAX_DEST_RD_ATOMIC | HDL_QP_MIN_RNR_TIMER;
	if (qp->type == HDL_QP_RC)
		mask |= wire_stripe(w, qp->conn, &attr);
	must(w, qp, hdl_qp_modify(qp->qp, &attr, mask), "RTR");
}

static void to_sending(struct world *w, struct wqp *qp)
{
	struct hdl_qp_attr attr = {.state = HDL_QPS_RTS,
	                           .sq_psn = qp->conn->psn[qp->side],
	                           .timeout = (uint8_t)qp->timeout,
	                           .retry_cnt = (uint8_t)qp->retry_cnt,
	                           .rnr_retry = (uint8_t)qp->rnr_retry,
	                           .max_rd_atomic = (uint8_t)qp->rd_atomic};
	uint32_t mask = HDL_QP_STATE | HDL_QP_SQ_PSN;
	if (qp->type == HDL_QP_RC || qp->type == HDL_QP_XRC_INI)
		mask |= HDL_QP_TIMEOUT | HDL_QP_RETRY_CNT | HDL_QP_RNR_RETRY | HDL_QP_MAX_RD_ATOMIC;
	if (qp->type == HDL_QP_XRC_TGT)
		mask |= HDL_QP_TIMEOUT;
	must(w, qp, hdl_qp_modify(qp->qp, &attr, mask), "RTS");
	qp->ready = true;
}

void conn_side_ready(struct world *w, struct wqp *qp)
{
	if (wqp_state(qp) == HDL_QPS_INIT)
		to_receiving(w, qp);
	to_sending(w, qp);
}

/* The late side of a connection; @arg: which, and of which epoch. */
static void late_side(struct sim *sim, void *context, uint64_t arg)
{
	struct world *w = context;
	struct conn *conn = &w->conns[arg >> 8 & 0xff];
	uint32_t side = arg & 1;
	(void)sim;
	if (conn->dead || !conn->pending || conn->epoch != (arg >> 16 & 0xff) ||
	    !conn->side[side]->qp || !conn->side[side]->host->adapter ||
	    (wqp_state(conn->side[side]) != HDL_QPS_INIT &&
	     wqp_state(conn->side[side]) != HDL_QPS_RTR))
		return;
	conn->pending = false;
	conn_side_ready(w, conn->side[side]);
}

/* Where the packets of a new connection begin to count. On the wire some of the last one may still
 * be on their way: the numbers of the two lie far apart, as they do where connections are made with
 * care (IBTA section 12.9.8.3.1, TimeWait). The first ones wrap around at 2^24. */
static void draw_psns(struct world *w, struct conn *conn)
{
	for (int i = 0; i < 2; i++)
		conn->psn[i] = world_draw(w, 1 << 20);
	if (!w->wire)
		return;
	for (int i = 0; i < 2; i++)
		conn->psn[i] = (conn->epoch * WORLD_PSN_STEP - 1 - conn->psn[i] % 300) & 0xffffff;
}

void conn_connect(struct world *w, struct conn *conn)
{
	if (conn->dead || conn->epoch + 1 >= WORLD_MAX_EPOCHS)
		return;
	for (int i = 0; i < 2; i++) {
		struct wqp *qp = conn->side[i];
		if (wqp_state(qp) != HDL_QPS_RESET && !wqp_to(w, qp, HDL_QPS_RESET))
			world_fail(w, "a queue pair cannot be reset");
	}
	conn->epoch++;
	world_say(w, "connection %u (qps %u and %u): epoch %u", (unsigned)(conn - w->conns),
	          (unsigned)(conn->side[0] - w->qps), (unsigned)(conn->side[1] - w->qps),
	          conn->epoch);
	draw_psns(w, conn);
	conn->streams[conn->epoch][0].lossy = conn->side[1]->recv_cq->small;
	conn->streams[conn->epoch][1].lossy = conn->side[0]->recv_cq->small;
	for (uint32_t i = 0; i < 2; i++)
		conn->streams[conn->epoch][i].gaps =
		        conn->side[i]->registers && conn->side[i]->drains;
	for (int i = 0; i < 2; i++)
		to_init(w, conn->side[i]);
	if (w->streams) {
		world_streams_connect(w, conn);
		return;
	}
	uint32_t first = world_draw(w, 2);
	conn_side_ready(w, conn->side[first]);
	conn->pending = false;
	if (world_has(w, FAULT_LATE) && world_chance(w, 400)) {
		uint64_t arg = (1 - first) | (uint64_t)(conn - w->conns) << 8 |
		               (uint64_t)conn->epoch << 16;
		wqp_disturb(conn->side[0], REASON_STATE);
		if (world_chance(w, 500)) /* it receives, but does not send yet */
			to_receiving(w, conn->side[1 - first]);
		conn->pending = sim_at(w->sim, world_now(w) + world_draw(w, 800000), late_side, w,
		                       arg) == 0;
	}
	if (!conn->pending)
		conn_side_ready(w, conn->side[1 - first]);
}

void conn_make(struct world *w, struct host *a, struct host *b, uint32_t type)
{
	if (w->conn_count == WORLD_MAX_CONNS)
		return;
	struct wqp *one = wqp_make(w, a, type);
	uint32_t other = type == HDL_QP_XRC_INI ? HDL_QP_XRC_TGT : type;
	struct wqp *two = one ? wqp_make(w, b, other) : NULL;
	if (!two)
		return;
	struct conn *conn = &w->conns[w->conn_count++];
	conn->side[0] = one;
	conn->side[1] = two;
	one->conn = two->conn = conn;
	two->side = 1;
	conn->mtu = (uint16_t)(w->wire ? 256u << world_draw(w, 5) : 1024u);
	/* A message fits both ways, and what may fail for one may fail for the other. */
	uint32_t smaller =
	        one->max_message < two->max_message ? one->max_message : two->max_message;
	if ((one->srq || two->srq) && smaller > 512)
		smaller = 512;
	one->max_message = two->max_message = smaller;
	wqp_disturb(one, two->reasons);
	wqp_disturb(two, one->reasons);
	conn_connect(w, conn);
}

/* --- the end --- */

static bool end_host(struct world *w, struct host *host)
{
	bool good = true;
	for (uint32_t i = 0; i < w->opening_count; i++) /* windows first */
		if (w->openings[i].host == host && w->openings[i].mw) {
			good = good && hdl_mw_free(w->openings[i].mw) == 0;
			w->openings[i].mw = NULL;
		}
	for (uint32_t i = 0; i < w->opening_count; i++)
		if (w->openings[i].host == host && w->openings[i].mr) {
			good = good && hdl_mr_deregister(w->openings[i].mr) == 0;
			w->openings[i].mr = NULL;
		}
	for (uint32_t i = 0; i < host->srq_count; i++)
		good = good && hdl_srq_destroy(host->srqs[i].srq) == 0;
	if (host->xrcd)
		good = good && hdl_srq_destroy(host->xrc_srq.srq) == 0 &&
		       hdl_xrcd_close(host->xrcd) == 0;
	for (uint32_t i = 0; i < host->cq_count; i++)
		good = good && hdl_cq_destroy(host->cqs[i].cq) == 0;
	for (uint32_t pd = 0; pd < WORLD_MAX_PDS; pd++)
		for (uint32_t i = 0; i < WORLD_MAX_HOSTS; i++)
			good = good && (!host->ahs[pd][i] || hdl_ah_destroy(host->ahs[pd][i]) == 0);
	for (uint32_t pd = 0; pd < WORLD_MAX_PDS; pd++)
		good = good && hdl_pd_destroy(host->pds[pd]) == 0;
	good = good && streams_host_closing(w, host) && hdl_close(host->adapter) == 0;
	if (good)
		host->adapter = NULL;
	return good;
}

bool world_objects_end(struct world *w)
{
	bool good = true;
	for (uint32_t i = 0; i < w->qp_count; i++)
		if (w->qps[i].qp)
			wqp_destroy(w, &w->qps[i]);
	for (uint32_t i = 0; good && i < w->host_count; i++)
		good = !w->hosts[i].adapter || end_host(w, &w->hosts[i]);
	return good;
}
