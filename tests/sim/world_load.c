/* The workload: what an application does next, receives, and posts that must be refused.
 * world_send.c has the requests for send queues. */
#include "world.h"

#include <stdlib.h>
#include <string.h>

#define SHORT_PERMILLE 50u

static void *grown(void *array, uint32_t count, uint32_t *capacity, size_t bytes)
{
	if (count < *capacity)
		return array;
	*capacity = *capacity ? 2 * *capacity : 8;
	void *larger = realloc(array, *capacity * bytes);
	if (!larger)
		abort();
	return larger;
}

struct line *line_new(struct world *w)
{
	struct line *line = calloc(1, sizeof(*line));
	if (!line)
		abort();
	line->next = w->lines;
	w->lines = line;
	return line;
}

void line_add(struct line *line, uint32_t id)
{
	line->ids = grown(line->ids, line->count, &line->capacity, sizeof(*line->ids));
	line->ids[line->count++] = id;
}

void stream_add(struct stream *stream, uint32_t id)
{
	stream->ids = grown(stream->ids, stream->count, &stream->capacity, sizeof(*stream->ids));
	stream->ids[stream->count++] = id;
}

/* --- requests --- */

struct request *request_new(struct world *w, struct wqp *qp, struct host *host)
{
	if (w->request_count >= w->request_limit)
		return NULL;
	struct request *r = &w->requests[w->request_count];
	*r = (struct request){.id = w->request_count,
	                      .qp = qp,
	                      .host = host,
	                      .qpn = qp ? qp->number : 0,
	                      .posted_ns = world_now(w)};
	w->request_count++;
	return r;
}

void request_drop(struct world *w, struct request *r)
{
	for (uint32_t i = 0; i < r->claim_count; i++)
		claim_release(&r->claims[i]);
	free(r->data);
	r->data = NULL;
	w->request_count--;
}

bool request_pieces(struct world *w, struct request *r, uint32_t pd, uint32_t bytes,
                    uint32_t max_pieces, bool write, struct opening *first)
{
	uint32_t count = 1 + world_draw(w, max_pieces), done = 0;
	if (bytes == 0 && world_chance(w, 500))
		count = 0;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t length = i + 1 == count ? bytes - done : world_draw(w, bytes - done + 1);
		uint32_t access = write ? HDL_ACCESS_LOCAL_WRITE : HDL_ACCESS_LOCAL_READ;
		struct opening *o =
		        i == 0 && first ? first : opening_pick(w, r->host, pd, access, true, NULL);
		uint32_t at;
		if (!o || !root_pick(w, o, length, write, &at))
			return false;
		r->pieces[i] = (struct hdl_sge){
		        .addr = opening_address(o, at), .length = length, .key = o->key};
		if (length > 0)
			claim_add(r, o, at, length, done, write);
		done += length;
	}
	r->number_of_pieces = count;
	return true;
}

/* --- receives --- */

static void say_pieces(struct world *w, const struct request *r)
{
	for (uint32_t i = 0; i < r->claim_count; i++)
		world_say(w, "  into %u bytes at %u of block %u", r->claims[i].bytes,
		          r->claims[i].at, (unsigned)(r->claims[i].root - w->roots));
}

static uint32_t shortened(struct world *w, uint32_t bytes, uint32_t *reasons)
{
	if (!world_has(w, FAULT_SHORT) || w->settling || !world_chance(w, SHORT_PERMILLE))
		return bytes;
	*reasons |= REASON_SHORT;
	return world_draw(w, bytes + 1);
}

bool load_receive(struct world *w, struct wqp *qp, uint32_t bytes)
{
	struct request *r = request_new(w, qp, qp->host);
	if (!r)
		return false;
	uint32_t reasons = 0;
	bytes = shortened(w, bytes, &reasons);
	r->receive = r->signaled = true;
	r->length = bytes;
	if (!request_pieces(w, r, qp->pd, bytes,
	                    qp->cap.max_recv_sge < WORLD_MAX_PIECES ? qp->cap.max_recv_sge
	                                                            : WORLD_MAX_PIECES,
	                    true, NULL)) {
		request_drop(w, r);
		return false;
	}
	wqp_disturb(qp, reasons);
	r->line = qp->receives;
	r->epoch = qp->conn ? qp->conn->epoch : 0;
	uint32_t held = r->line->count - r->line->head;
	line_add(r->line, r->id);
	w->pending++;
	const struct hdl_recv_wr *bad = NULL;
	struct hdl_recv_wr wr = {
	        .wr_id = r->id, .sg_list = r->pieces, .num_sge = r->number_of_pieces};
	int error = hdl_post_recv(qp->qp, &wr, &bad);
	world_say(w, "host %u qp %u posts receive %u of %u bytes: %d", qp->host->index,
	          (unsigned)(qp - w->qps), r->id, bytes, error);
	say_pieces(w, r);
	if (error == 0)
		return true;
	if (error != -HDL_ENOSPC || held < qp->cap.max_recv_wr || bad != &wr)
		world_fail(w, "receive %u with %u of %u held was refused: %s", r->id, held,
		           qp->cap.max_recv_wr, hdl_strerror(error));
	r->line->count--;
	w->pending--;
	request_drop(w, r);
	return true;
}

bool load_receive_shared(struct world *w, struct host *host, struct wsrq *srq, uint32_t bytes)
{
	struct request *r = request_new(w, NULL, host);
	if (!r)
		return false;
	uint32_t reasons = 0;
	bytes = shortened(w, bytes, &reasons);
	r->receive = r->signaled = true;
	r->srq = srq;
	r->length = bytes;
	if (!request_pieces(w, r, srq->pd, bytes, srq->max_sge, true, NULL)) {
		request_drop(w, r);
		return false;
	}
	srq->reasons |= reasons;
	for (uint32_t i = 0; reasons && i < w->qp_count; i++)
		if (w->qps[i].srq == srq)
			wqp_disturb(&w->qps[i], reasons);
	const struct hdl_recv_wr *bad = NULL;
	struct hdl_recv_wr wr = {
	        .wr_id = r->id, .sg_list = r->pieces, .num_sge = r->number_of_pieces};
	int error = hdl_srq_post(srq->srq, &wr, &bad);
	world_say(w, "host %u posts shared receive %u of %u bytes: %d", host->index, r->id, bytes,
	          error);
	say_pieces(w, r);
	if (error == 0) {
		srq->held++;
		return true;
	}
	if (error != -HDL_ENOSPC || srq->held < srq->max_wr)
		world_fail(w, "shared receive %u with %u of %u held was refused: %s", r->id,
		           srq->held, srq->max_wr, hdl_strerror(error));
	request_drop(w, r);
	return true;
}

/* --- what must be refused --- */

struct refusal {
	const char *what;
	int error;
	struct hdl_send_wr wr;
};

void load_refused(struct world *w, struct wqp *qp)
{
	struct hdl_sge piece = {.addr = 4096, .length = 1}, many[HDL_MAX_SGE + 1];
	struct hdl_sge huge[2] = {{.addr = 0, .length = 0x40000000}, {.addr = 0, .length = 1}};
	uint8_t text[HDL_MAX_INLINE + 1] = {0};
	struct hdl_sge line = {.addr = (uint64_t)(uintptr_t)text, .length = qp->cap.max_inline + 1};
	for (uint32_t i = 0; i <= HDL_MAX_SGE; i++)
		many[i] = piece;
	bool datagram = qp->type == HDL_QP_UD;
	struct hdl_sge wide = {.addr = 0, .length = HDL_UD_MTU + 1};
	const struct refusal list[] = {
	        {"too many pieces",
	         -HDL_EMSGSIZE,
	         {.opcode = HDL_OP_SEND, .sg_list = many, .num_sge = qp->cap.max_send_sge + 1}},
	        {"too long",
	         -HDL_EMSGSIZE,
	         {.opcode = HDL_OP_SEND,
	          .sg_list = datagram ? &wide : huge,
	          .num_sge = datagram || qp->cap.max_send_sge < 2 ? 1 : 2}},
	        {"too much inline",
	         -HDL_EMSGSIZE,
	         {.opcode = HDL_OP_SEND, .flags = HDL_SEND_INLINE, .sg_list = &line, .num_sge = 1}},
	        {"an opcode that is none", -HDL_EINVAL, {.opcode = HDL_OP_COUNT}},
	        {"a flag that is none", -HDL_EINVAL, {.opcode = HDL_OP_SEND, .flags = 1u << 30}},
	        {"an atomic of one byte",
	         -HDL_EINVAL,
	         {.opcode = HDL_OP_FETCH_ADD, .sg_list = &piece, .num_sge = 1}},
	        {"a read on an unreliable connection",
	         -HDL_ENOTSUP,
	         {.opcode = HDL_OP_READ, .sg_list = &piece, .num_sge = 1}},
	};
	uint32_t which = world_draw(w, sizeof(list) / sizeof(list[0]));
	const struct refusal *refusal = &list[which];
	int expected = refusal->error;
	if (which == 1 && !datagram && qp->cap.max_send_sge < 2)
		return; /* one piece cannot be that long without being a message that is allowed */
	if (which == 5 && !wqp_reliable(qp))
		expected = -HDL_ENOTSUP;
	if (which == 6 && wqp_reliable(qp))
		return;
	uint32_t state = wqp_state(qp);
	if (state == HDL_QPS_RESET || state == HDL_QPS_INIT || state == HDL_QPS_RTR)
		expected = -HDL_EPERM;
	const struct hdl_send_wr *bad = NULL;
	int error = hdl_post_send(qp->qp, &refusal->wr, &bad);
	bool full = error == -HDL_ENOSPC && which == 5; /* looked at in the element itself */
	if ((error != expected && !full) || bad != &refusal->wr)
		world_fail(w, "%s: %s instead of %s", refusal->what, hdl_strerror(error),
		           hdl_strerror(expected));
}

/* --- what next --- */

static void memory_step(struct world *w, struct host *host)
{
	struct opening *o = &w->openings[world_draw(w, w->opening_count)];
	switch (world_draw(w, 4)) {
	case 0:
	case 1:
		opening_bind_call(w, host);
		break;
	case 2:
		opening_share(w, host);
		break;
	default:
		/* Nobody uses it: it may go without harm, and its memory comes back under another
		 * key. */
		if (o->host == host && o->root && !o->root->claims && !o->root->gone &&
		    !o->root->atomic && o->windows == 0 &&
		    (o->kind == OPENING_RUN || o->kind == OPENING_PAGES)) {
			opening_deregister(w, o);
			if (o->state == OPENING_DEAD)
				opening_register(w, host, o->root, WORLD_MAX_PDS);
		}
	}
}

void load_step(struct world *w, struct host *host)
{
	struct wqp *qp = wqp_pick(w, host);
	uint32_t what = world_draw(w, 1000);
	if (what < w->load_weight[0] && qp && qp->ready) {
		if (qp->type != HDL_QP_XRC_TGT)
			load_send(w, qp);
	} else if (what < w->load_weight[1] && qp) {
		uint32_t bytes = qp->max_message + (qp->type == HDL_QP_UD ? HDL_GRH_BYTES : 0);
		if (qp->srq)
			load_receive_shared(w, host, qp->srq, 512 + HDL_GRH_BYTES);
		else if (wqp_state(qp) != HDL_QPS_RESET && qp->type != HDL_QP_XRC_INI)
			load_receive(w, qp, bytes);
	} else if (what < w->load_weight[2]) {
		check_poll(w, host, 1 + world_draw(w, 16));
	} else if (what < w->load_weight[3]) {
		memory_step(w, host);
	} else if (what < 980) {
		if (world_chance(w, 300))
			fault_step(w, host);
		else
			fault_repair(w, host);
	} else if (qp && qp->type != HDL_QP_XRC_TGT) {
		load_refused(w, qp);
	}
}
