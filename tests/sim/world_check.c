/* The checker, completions: every request completes once, in the order of its queue, with a status
 * that its situation allows; what succeeded is in place. */
#include "world.h"

#include <string.h>

/* Not taken from transport/op.c: that is what is checked. */
static uint32_t wc_opcode(uint32_t opcode)
{
	static const uint8_t names[HDL_OP_COUNT] = {
	        [HDL_OP_SEND] = HDL_WC_SEND,
	        [HDL_OP_SEND_IMM] = HDL_WC_SEND,
	        [HDL_OP_SEND_INVALIDATE] = HDL_WC_SEND,
	        [HDL_OP_WRITE] = HDL_WC_WRITE,
	        [HDL_OP_WRITE_IMM] = HDL_WC_WRITE,
	        [HDL_OP_READ] = HDL_WC_READ,
	        [HDL_OP_COMPARE_SWAP] = HDL_WC_COMPARE_SWAP,
	        [HDL_OP_FETCH_ADD] = HDL_WC_FETCH_ADD,
	        [HDL_OP_BIND] = HDL_WC_BIND,
	        [HDL_OP_INVALIDATE] = HDL_WC_INVALIDATE,
	        [HDL_OP_REGISTER] = HDL_WC_REGISTER,
	        [HDL_OP_REGISTER_SEND] = HDL_WC_SEND,
	        [HDL_OP_DELAY] = HDL_WC_DELAY,
	};
	return names[opcode];
}

/* --- what a request's end means for memory --- */

static bool reliable(const struct request *r)
{
	return r->qp && wqp_reliable(r->qp);
}

static bool is_answer(const struct request *r)
{
	return r->opcode == HDL_OP_READ || r->words;
}

/* Does its success say that the peer has executed it? On a stream a send or write is over once it
 * is sent (RFC 5040 section 5.5). */
static bool answered(const struct request *r)
{
	bool sent_alone = r->stream || r->opcode == HDL_OP_WRITE;
	return reliable(r) && !(r->qp->streamed && sent_alone);
}

/* Is the claim on memory of the peer's? */
static bool is_remote(const struct request *r, const struct claim *c)
{
	return c == &r->claims[r->claim_count - 1] &&
	       (r->opcode == HDL_OP_WRITE || r->opcode == HDL_OP_WRITE_IMM ||
	        r->opcode == HDL_OP_READ || r->words) &&
	       (!r->bad_remote || r->partly) && r->length > 0 && !r->receive;
}

static void object_done(struct world *w, struct request *r)
{
	struct opening *o = r->object;
	if (!o)
		return;
	if (r->opcode == HDL_OP_INVALIDATE)
		opening_close(w, o);
	else if (o->state == OPENING_POSTED)
		o->state = OPENING_VALID;
}

/* Executed or not, nobody knows: the object is left alone until the end. */
static void object_unknown(struct opening *o)
{
	if (!o || o->state == OPENING_DEAD || o->state == OPENING_EMPTY)
		return;
	o->state = OPENING_CLOSING;
	o->touched = true;
}

static void touch_done(struct world *w, struct opening *o)
{
	if (!(o->access & HDL_ACCESS_ONE_TOUCH) || o->state != OPENING_VALID)
		return;
	if (o->kind == OPENING_WINDOW) {
		opening_close(w, o);
		return;
	}
	opening_settle(w, o);
	o->generation++;
	o->state = OPENING_EMPTY;
}

void check_done(struct world *w, struct request *r)
{
	r->state = REQUEST_DONE;
	/* A message or write that an unreliable connection loses on the way may end well before its
	 * pieces are looked at. */
	bool lost = r->qp->type == HDL_QP_UD ? world_has(w, FAULT_KILL) : r->qp->reasons != 0;
	bool looked_at = answered(r) || (r->bad_local && (!lost || r->qp->streamed));
	/* That the key could not be invalidated, the receiver alone hears. */
	if (r->opcode == HDL_OP_SEND_INVALIDATE && r->bad_remote)
		looked_at = false;
	if (r->must_fail && looked_at && !opening_key_came_back(w, r))
		world_fail(w, "request %u (opcode %u) succeeded; a check had to refuse it", r->id,
		           r->opcode);
	if (r->skipped && reliable(r))
		world_fail(w, "message %u succeeded, but a later one was received before it",
		           r->id);
	if (r->opcode == HDL_OP_DELAY && world_now(w) - r->posted_ns < r->delay_ns)
		world_fail(w, "the delay %u of %lu ns took %lu ns", r->id,
		           (unsigned long)r->delay_ns,
		           (unsigned long)(world_now(w) - r->posted_ns));
	w->tally.done[r->qp->type - 1][r->opcode]++;
	object_done(w, r);
	for (uint32_t i = 0; i < r->claim_count; i++) {
		struct claim *c = &r->claims[i];
		bool remote = is_remote(r, c);
		if (!c->write || (remote && !answered(r))) {
			/* Sent is not arrived: such a write may come later or never. */
			if (!c->write)
				claim_release(c);
			continue;
		}
		if (r->words) { /* the old value: what an atomic found */
			if (!c->root || c->root->gone)
				r->state =
				        REQUEST_VANISHED; /* executed, but what it found is lost */
			else
				root_out(c->root, c->root->memory, c->at,
				         (uint8_t *)&r->old + c->data_at, c->bytes);
		} else if (!claim_is_placed(c)) {
			world_fail(
			        w,
			        "request %u (opcode %u) completed, but its %u bytes at %u of host "
			        "%u's memory are not in place",
			        r->id, r->opcode, c->bytes, c->at, c->via->host->index);
		}
		claim_settle(w, c);
	}
	if (r->qp->streamed && is_answer(r) && !r->line->lossy)
		check_confirmed(w, r);
	for (uint32_t i = 0; answered(r) && i < r->claim_count; i++)
		/* One that is told of late touched what the opening was then. */
		if (is_remote(r, &r->claims[i]) &&
		    r->generations[i] == r->claims[i].via->generation)
			touch_done(w, r->claims[i].via);
}

/* @r was posted before something that the peer has executed. */
static void confirm(struct world *w, struct request *r, bool before)
{
	if (before && r->bad_remote && r->state != REQUEST_FAILED && !opening_key_came_back(w, r))
		world_fail(w,
		           "behind request %u (opcode %u), which had to be refused, something "
		           "was executed",
		           r->id, r->opcode);
	if ((r->opcode != HDL_OP_WRITE && r->opcode != HDL_OP_WRITE_IMM) || r->bad_remote ||
	    r->length == 0 || r->state == REQUEST_FAILED)
		return;
	struct claim *c = &r->claims[r->claim_count - 1];
	if (!claim_is_placed(c))
		world_fail(w,
		           "request %u (opcode %u): something behind it was executed, but its %u "
		           "bytes at %u of host %u's memory are not in place",
		           r->id, r->opcode, c->bytes, c->at, c->via->host->index);
	claim_settle(w, c);
	if (r->generations[r->claim_count - 1] == c->via->generation)
		touch_done(w, c->via);
}

void check_confirmed(struct world *w, struct request *r)
{
	struct line *line = r->line;
	uint32_t end = line->confirmed;
	while (end < line->count && line->ids[end] != r->id)
		end++;
	if (end == line->count) /* something behind it was seen before */
		return;
	while (!w->run->failed && line->confirmed <= end) {
		struct request *at = &w->requests[line->ids[line->confirmed++]];
		confirm(w, at, at != r);
	}
}

/* Behind a request that the peer refused nothing was executed (IBTA section 9.7.2: requests are
 * executed in order). Where messages overtake each other, writes may have been placed before. */
static void check_unexecuted(struct world *w, struct request *r)
{
	r->unexecuted = true;
	for (uint32_t i = 0; i < r->claim_count; i++) {
		struct claim *c = &r->claims[i];
		if (!c->write || !is_remote(r, c) || w->messages)
			continue;
		if (!claim_is_untouched(c))
			world_fail(w,
			           "request %u (opcode %u) was flushed behind one that was "
			           "refused, but its "
			           "%u bytes at %u of host %u's memory have changed",
			           r->id, r->opcode, c->bytes, c->at, c->via->host->index);
		claim_release(c);
	}
}

/* It failed: what it may have changed stays claimed, because a copy of it may still be on its way.
 */
static void check_failed(struct world *w, struct request *r)
{
	(void)w;
	r->state = REQUEST_FAILED;
	for (uint32_t i = 0; i < r->claim_count; i++)
		if (!r->claims[i].write)
			claim_release(&r->claims[i]);
	object_unknown(r->object);
	object_unknown(r->invalidated);
}

void check_vanished(struct world *w, struct request *r)
{
	if (r->state != REQUEST_PENDING)
		return;
	check_failed(w, r);
	r->state = REQUEST_VANISHED;
	if (!r->srq)
		w->pending--;
}

/* --- which status is allowed --- */

static bool via_changed(const struct opening *via, uint32_t generation)
{
	return via->generation != generation || via->gone || via->state == OPENING_CLOSING;
}

static bool local_changed(const struct request *r)
{
	for (uint32_t i = 0; i < r->claim_count; i++)
		if (!is_remote(r, &r->claims[i]) &&
		    via_changed(r->claims[i].via, r->generations[i]))
			return true;
	return false;
}

static bool remote_changed(const struct request *r)
{
	if (r->claim_count == 0)
		return false;
	const struct claim *c = &r->claims[r->claim_count - 1];
	return is_remote(r, c) && via_changed(c->via, r->generations[r->claim_count - 1]);
}

/* A read that took its one touch, and whose response a network lost. */
static bool touched_before(const struct request *r)
{
	return r->opcode == HDL_OP_READ && r->host->cable && r->claim_count > 0 &&
	       (r->claims[r->claim_count - 1].via->access & HDL_ACCESS_ONE_TOUCH);
}

static bool is_message(const struct request *r)
{
	return r->stream != NULL;
}

static bool status_allowed(const struct request *r, uint32_t status, uint32_t reasons)
{
	if (status == HDL_WC_SUCCESS)
		return true; /* check_done() knows better */
	if (reasons == 0)
		return false;
	switch (status) {
	case HDL_WC_WR_FLUSH_ERR:
		return true;
	case HDL_WC_LOC_PROT_ERR:
		return r->bad_local || local_changed(r);
	case HDL_WC_LOC_ACCESS_ERR: /* that it has gone is seen before anything else */
		return r->bad_local || local_changed(r) ||
		       (r->receive && (reasons & (REASON_BAD | REASON_MEMORY | REASON_STATE)));
	case HDL_WC_LOC_LEN_ERR:
		return r->receive && (reasons & REASON_SHORT);
	case HDL_WC_MEM_MGT_ERR:
		return r->receive ? (reasons & REASON_BAD) != 0 || (reasons & REASON_STATE) != 0
		                  : r->object && (r->bad_local || (reasons & REASON_MEMORY));
	case HDL_WC_REM_ACCESS_ERR:
		return answered(r) && (r->bad_remote || remote_changed(r) || touched_before(r));
	case HDL_WC_REM_OP_ERR:
		return answered(r) && (r->bad_remote || remote_changed(r) ||
		                       (is_message(r) && (reasons & REASON_MEMORY)));
	case HDL_WC_REM_INV_REQ_ERR:
		return answered(r) && (r->bad_remote ||
		                       (is_message(r) && (reasons & (REASON_SHORT | REASON_BAD))));
	case HDL_WC_RETRY_EXC_ERR:
		return reliable(r) && !r->qp->streamed;
	case HDL_WC_RNR_RETRY_EXC_ERR:
		return answered(r) && is_message(r) && r->qp->rnr_retry < 7;
	default:
		return false;
	}
}

/* --- completions --- */

/* Take @r out of its line. Those before it completed in silence: only unsignalled successes may. */
static bool take_from_line(struct world *w, struct request *r)
{
	struct line *line = r->line;
	while (line->head < line->count) {
		struct request *first = &w->requests[line->ids[line->head++]];
		bool vanished = first->state == REQUEST_VANISHED;
		if (first == r)
			return true;
		if (line->lossy) { /* its completion may be lost: no knowing how it ended */
			check_vanished(w, first);
			continue;
		}
		if (first->signaled) {
			world_fail(w, "request %u completes before request %u of the same queue",
			           r->id, first->id);
			return false;
		}
		if (!vanished)
			w->pending--;
		check_done(w, first);
	}
	world_fail(w, "request %u is not in the line it was posted to", r->id);
	return false;
}

static void check_sent(struct world *w, struct request *r, const struct hdl_wc *wc)
{
	if (wc->status == HDL_WC_SUCCESS) {
		if (!r->signaled)
			world_fail(w, "request %u is unsignalled and completes", r->id);
		if (wc->opcode != wc_opcode(r->opcode))
			world_fail(w, "request %u, opcode %u, completes with opcode %u", r->id,
			           r->opcode, wc->opcode);
		if (r->line->failed)
			world_fail(w, "request %u succeeds behind one that failed", r->id);
		check_done(w, r);
		return;
	}
	/* A Terminate quotes one of several open reads; those before it are flushed. */
	bool quoted = r->qp->streamed && is_answer(r) && wc->status >= HDL_WC_REM_INV_REQ_ERR;
	if (r->line->failed && wc->status != HDL_WC_WR_FLUSH_ERR && !quoted)
		world_fail(w, "request %u behind one that failed: %s", r->id,
		           hdl_wc_status_str(wc->status));
	/* Not an error of our own memory: a repetition may meet it when the peer has executed the
	 * first copy. Nor a read on the wire: its first copy may have been answered, what is behind
	 * it executed, and the memory gone before the answer was asked for again. Nor
	 * receiver-not-ready there: a late word of it may cross a repetition that finds a receive.
	 */
	bool wire = r->host->cable != NULL;
	bool repeated = wire && r->opcode == HDL_OP_READ;
	bool late = wire && wc->status == HDL_WC_RNR_RETRY_EXC_ERR;
	/* Nor a read on a stream that was granted at first: it is answered while later ones
	 * come. */
	bool revoked = r->qp->streamed && is_answer(r) && !r->bad_remote;
	if (!r->line->failed)
		r->line->refused =
		        !repeated && !late && !revoked &&
		        (wc->status == HDL_WC_REM_INV_REQ_ERR ||
		         wc->status == HDL_WC_REM_ACCESS_ERR || wc->status == HDL_WC_REM_OP_ERR ||
		         wc->status == HDL_WC_MEM_MGT_ERR ||
		         wc->status == HDL_WC_RNR_RETRY_EXC_ERR);
	else if (r->line->refused && !r->line->lossy)
		check_unexecuted(w, r);
	/* What the peer said, or did not say, is the end of a reliable connection (IBTA
	 * section 10.3.1.7). */
	if (!r->line->failed && wc->status >= HDL_WC_REM_INV_REQ_ERR && reliable(r) &&
	    r->line == r->qp->sends && wqp_state(r->qp) != HDL_QPS_ERR)
		world_fail(w, "request %u failed, but its queue pair is in state %u", r->id,
		           wqp_state(r->qp));
	r->line->failed = true;
	check_failed(w, r);
}

static void check_completion(struct world *w, struct host *host, const struct hdl_wc *wc)
{
	sim_note(w->sim, host->index, wc->wr_id,
	         (uint64_t)wc->status << 32 | (uint64_t)wc->opcode << 16 | wc->vendor_err);
	w->tally.statuses[wc->status < HDL_WC_STATUS_COUNT ? wc->status : 0]++;
	struct request *r = wc->wr_id < w->request_count ? &w->requests[wc->wr_id] : NULL;
	if (!r || r->host != host) {
		world_fail(w, "a completion of host %u names request %lu", host->index,
		           (unsigned long)wc->wr_id);
		return;
	}
	world_say(w, "host %u: request %u completes: %s, detail %u, %u bytes", host->index, r->id,
	          hdl_wc_status_str(wc->status), wc->vendor_err, wc->byte_len);
	if (r->state == REQUEST_DONE || r->state == REQUEST_FAILED) {
		world_fail(w, "request %u completes twice", r->id);
		return;
	}
	const struct wqp *qp = check_qp_of(w, r, wc);
	uint32_t reasons = qp ? qp->reasons : 0;
	if (!status_allowed(r, wc->status, reasons))
		world_fail(w, "request %u (opcode %u, qp reasons 0x%x): %s, detail %s", r->id,
		           r->receive ? HDL_WC_RECV : r->opcode, reasons,
		           hdl_wc_status_str(wc->status), hdl_detail_str(wc->vendor_err));
	if (!r->srq) {
		if (r->state == REQUEST_PENDING)
			w->pending--;
		if (wc->qpn != r->qpn || !take_from_line(w, r)) {
			world_fail(w, "request %u completes for queue pair 0x%x", r->id, wc->qpn);
			return;
		}
	}
	if (r->receive)
		check_received(w, r, wc);
	else
		check_sent(w, r, wc);
}

/* False: nothing was there. */
static bool poll_once(struct world *w, struct host *host, struct wcq *cq, uint32_t max)
{
	struct hdl_wc wc[32];
	int count = hdl_cq_poll(cq->cq, wc, (int)(max < 32 ? max : 32));
	if (count == -HDL_EOVERFLOW) {
		if (!cq->small)
			world_fail(w, "a completion queue with room for all was overrun");
		cq->overrun = true;
		return false;
	}
	if (count < 0)
		world_fail(w, "polling: %s", hdl_strerror(count));
	for (int i = 0; i < count && !w->run->failed; i++)
		check_completion(w, host, &wc[i]);
	return count > 0;
}

void check_poll(struct world *w, struct host *host, uint32_t max)
{
	poll_once(w, host, &host->cqs[world_draw(w, host->cq_count)], max);
}

void check_drain(struct world *w, struct host *host, struct wcq *cq)
{
	while (!w->run->failed && poll_once(w, host, cq, 32))
		;
}

/* --- events --- */

static void check_event(struct world *w, struct host *host, const struct hdl_event *event)
{
	uint32_t reasons = 0;
	for (uint32_t i = 0; i < w->qp_count; i++)
		if (w->qps[i].host == host && (w->qps[i].qp == event->u.qp))
			reasons = w->qps[i].reasons;
	sim_note(w->sim, host->index, 0x10000 + event->type, event->detail);
	world_say(w, "host %u: event %s, detail %u", host->index, hdl_event_str(event->type),
	          event->detail);
	bool fine = false;
	w->tally.events[event->type < HDL_EVENT_TYPE_COUNT ? event->type : 0]++;
	switch (event->type) {
	case HDL_EVENT_CQ_OVERRUN:
		fine = world_has(w, FAULT_OVERRUN);
		break;
	case HDL_EVENT_QP_FATAL:
	case HDL_EVENT_QP_REQUEST_ERR:
	case HDL_EVENT_QP_ACCESS_ERR:
		fine = reasons != 0;
		break;
	case HDL_EVENT_QP_LAST_WQE:
		fine = reasons != 0 || w->settling;
		break;
	case HDL_EVENT_COMM_EST:
	case HDL_EVENT_SQ_DRAINED:
	case HDL_EVENT_SRQ_LIMIT:
		fine = true;
		break;
	case HDL_EVENT_MEMORY_GONE:
		fine = world_has(w, FAULT_UNMAP);
		break;
	case HDL_EVENT_PEER_GONE:
		fine = world_has(w, FAULT_KILL);
		break;
	default:
		break;
	}
	if (!fine)
		world_fail(w, "host %u: the event %s has no cause", host->index,
		           hdl_event_str(event->type));
}

void check_events(struct world *w, struct host *host)
{
	struct hdl_event event;
	while (!w->run->failed && hdl_event_get(host->adapter, &event, 0) == 0)
		check_event(w, host, &event);
}

/* --- the end --- */

static void check_line(struct world *w, const struct wqp *qp, struct line *line,
                       const struct wcq *cq)
{
	for (uint32_t n = line->head; n < line->count; n++) {
		struct request *r = &w->requests[line->ids[n]];
		if (r->state != REQUEST_PENDING)
			continue;
		if (line->lossy && cq->overrun) {
			check_vanished(w, r);
			continue;
		}
		w->pending--;
		if (!r->signaled)
			check_done(w, r);
		else
			world_fail(w, "request %u of qp %u never completed%s", r->id,
			           (unsigned)(qp - w->qps),
			           line->lossy ? ", and no overrun was told" : "");
	}
	line->head = line->count;
}

void check_at_end(struct world *w)
{
	for (uint32_t i = 0; i < w->qp_count; i++) {
		struct wqp *qp = &w->qps[i];
		if (!qp->qp)
			continue;
		check_line(w, qp, qp->sends, qp->send_cq);
		check_line(w, qp, qp->receives, qp->recv_cq);
	}
	for (uint32_t i = 0; i < w->request_count; i++) {
		struct request *r = &w->requests[i];
		bool arrives = answered(r) || (r->qp && r->qp->streamed && r->qp->clean);
		if (r->opcode == HDL_OP_WRITE && !r->receive && r->qp->clean &&
		    r->line == r->qp->sends && r->state == REQUEST_DONE)
			confirm(w, r, false);
		if (r->stream && arrives && r->state == REQUEST_DONE && !r->taken &&
		    !r->stream->lossy && (r->opcode != HDL_OP_SEND_INVALIDATE || !r->qp->reasons))
			world_fail(w, "message %u succeeded and was never received", r->id);
	}
	for (uint32_t i = 0; i < w->root_count; i++)
		root_settle(w, &w->roots[i]);
	world_sweep(w);
	atomics_check(w);
}
