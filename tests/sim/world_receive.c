/* The checker, receives: which message a completion brought, whether it was its turn, and every
 * byte of it. */
#include "world.h"

#include <string.h>

/* Byte @i of all that the receive's pieces hold, from a root's memory or shadow. */
static bool byte_of(const struct request *r, uint32_t i, bool shadow, uint8_t *byte)
{
	for (uint32_t n = 0; n < r->claim_count; n++) {
		const struct claim *c = &r->claims[n];
		if (i < c->data_at || i - c->data_at >= c->bytes)
			continue;
		if (!c->root || c->root->gone)
			return false;
		root_out(c->root, shadow ? c->root->shadow : c->root->memory,
		         c->at + i - c->data_at, byte, 1);
		return true;
	}
	return false;
}

/* What the pieces hold from @from on is @bytes of @data. A piece that has gone is not looked at. */
static bool holds(const struct request *r, uint32_t from, const uint8_t *data, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i++) {
		uint8_t byte;
		if (byte_of(r, from + i, false, &byte) && byte != data[i])
			return false;
	}
	return true;
}

/* A message that was pulled from memory which was taken away half-way leaves bytes in a buffer that
 * a later one gets. */
static bool left_by_another(const struct world *w, const struct host *host, uint32_t i,
                            uint8_t byte)
{
	for (uint32_t n = 0; n < w->request_count; n++) {
		const struct request *m = &w->requests[n];
		if (!m->stream || m->taken || !m->data || i >= m->length || m->data[i] != byte ||
		    !m->qp->conn)
			continue;
		if (m->qp->conn->side[1 - m->qp->side]->host == host)
			return true;
	}
	return false;
}

/* The bytes of the receive from @from on are as they were. */
static void check_rest(struct world *w, const struct request *r, uint32_t from)
{
	for (uint32_t i = from; i < r->length; i++) {
		uint8_t is, was;
		if (!byte_of(r, i, false, &is) || !byte_of(r, i, true, &was) || is == was ||
		    left_by_another(w, r->host, i, is))
			continue;
		world_fail(w, "receive %u: byte %u lies behind the %u that came and has changed",
		           r->id, i, from);
		return;
	}
}

/* --- which message --- */

static bool fits_completion(const struct request *m, const struct hdl_wc *wc, uint32_t header,
                            const struct request *r)
{
	bool immediate = m->opcode == HDL_OP_SEND_IMM || m->opcode == HDL_OP_WRITE_IMM;
	bool in_place = m->opcode == HDL_OP_WRITE_IMM;
	uint32_t flags = wc->flags & ~(uint32_t)HDL_WC_GRH;
	uint32_t expected = immediate                             ? HDL_WC_WITH_IMM
	                    : m->opcode == HDL_OP_SEND_INVALIDATE ? HDL_WC_WITH_INVALIDATE
	                                                          : 0;
	/* A connection's packets do not tell who sent them: one may be left over from the peer's
	 * predecessor. */
	bool anonymous = m->qp->type == HDL_QP_UC && m->host->cable;
	if (flags != expected || wc->byte_len != m->length + header ||
	    (wc->src_qpn != m->qpn && !anonymous) ||
	    wc->opcode != (in_place ? HDL_WC_RECV_WRITE_IMM : HDL_WC_RECV))
		return false;
	if (immediate && wc->imm != m->imm)
		return false;
	if (expected == HDL_WC_WITH_INVALIDATE && wc->imm != m->invalidates.v)
		return false;
	return in_place || holds(r, header, m->data, m->length);
}

/* Reliable: the next message and no other, unless the sender flushed some and went on (MEMMGT
 * figure 11 option 1). */
static struct request *next_message(struct world *w, struct wqp *qp, const struct request *r,
                                    const struct hdl_wc *wc)
{
	uint32_t epoch = !r->srq ? r->epoch : qp->qp ? qp->conn->epoch : qp->last_epoch;
	struct stream *stream = &qp->conn->streams[epoch][1 - qp->side];
	bool gaps = stream->gaps || stream->lossy;
	for (uint32_t i = stream->taken; i < stream->count; i++) {
		struct request *m = &w->requests[stream->ids[i]];
		if (fits_completion(m, wc, 0, r)) {
			for (uint32_t n = stream->taken; n < i; n++)
				w->requests[stream->ids[n]].skipped = !stream->lossy;
			stream->taken = i + 1;
			return m;
		}
		if (!gaps)
			return NULL;
	}
	return NULL;
}

/* Unreliable: messages are lost, but never double and never change places; but for datagrams, which
 * have no order of their own, on a network that does so. */
static struct request *any_message(struct world *w, struct stream *stream, uint32_t to_qpn,
                                   const struct request *r, const struct hdl_wc *wc,
                                   uint32_t header)
{
	bool doubles = header > 0 && w->link.duplicate_permille > 0;
	bool reorders = header > 0 && w->link.reorder_permille > 0;
	for (uint32_t i = 0; i < stream->count; i++) {
		struct request *m = &w->requests[stream->ids[i]];
		if ((m->taken && !doubles) || (m->skipped && !reorders && !m->taken) ||
		    m->to_qpn != to_qpn || !fits_completion(m, wc, header, r))
			continue;
		for (uint32_t n = 0; n < i; n++) {
			struct request *before = &w->requests[stream->ids[n]];
			if (before->to_qpn == to_qpn)
				before->skipped = true;
		}
		return m;
	}
	return NULL;
}

static struct request *find_datagram(struct world *w, const struct wqp *qp, const struct request *r,
                                     const struct hdl_wc *wc)
{
	for (uint32_t i = 0; i < w->qp_count; i++) {
		struct wqp *sender = &w->qps[i];
		if (sender->type != HDL_QP_UD || sender->number != wc->src_qpn)
			continue;
		struct request *m = any_message(w, &sender->datagrams[qp->host->index], qp->number,
		                                r, wc, HDL_GRH_BYTES);
		if (m)
			return m;
	}
	return NULL;
}

static struct request *find_message(struct world *w, struct wqp *qp, const struct request *r,
                                    const struct hdl_wc *wc)
{
	if (qp->type == HDL_QP_UD)
		return find_datagram(w, qp, r, wc);
	if (wqp_reliable(qp))
		return next_message(w, qp, r, wc);
	/* An unreliable connection does not number its messages: one of a former epoch may arrive.
	 */
	for (uint32_t e = 1; e <= qp->conn->epoch; e++) {
		struct request *m =
		        any_message(w, &qp->conn->streams[e][1 - qp->side], qp->number, r, wc, 0);
		if (m)
			return m;
	}
	return NULL;
}

/* --- the header of a datagram --- */

static void check_header(struct world *w, const struct request *r, const struct request *m,
                         const struct hdl_wc *wc)
{
	uint8_t gids[32];
	uint32_t bytes =
	        w->ipv4 ? 4
	                : 16; /* of an address; the header of IPv4 is the end of the forty bytes */
	if (!(wc->flags & HDL_WC_GRH))
		return;
	memcpy(gids, m->host->gid.raw + 16 - bytes, bytes);
	memcpy(gids + bytes, r->host->gid.raw + 16 - bytes, bytes);
	if (!holds(r, HDL_GRH_BYTES - 2 * bytes, gids, 2 * bytes))
		world_fail(w, "the header of datagram %u names other hosts", m->id);
}

/* --- a completion --- */

static void end_claims(struct world *w, struct request *r)
{
	for (uint32_t i = 0; i < r->claim_count; i++)
		claim_settle(w, &r->claims[i]);
}

struct wqp *check_qp_of(struct world *w, const struct request *r, const struct hdl_wc *wc)
{
	if (r->qp)
		return r->qp;
	for (uint32_t i = 0; i < w->qp_count; i++)
		if (w->qps[i].host == r->host && w->qps[i].srq == r->srq &&
		    w->qps[i].number == wc->qpn)
			return &w->qps[i];
	return NULL;
}

/* On a stream, a part of a message may have come that was damaged on the way. */
static bool may_be_damaged(const struct wqp *qp, const struct request *r)
{
	bool damaged = false;
	for (uint32_t e = 0; qp->conn && e <= qp->conn->epoch; e++)
		damaged = damaged || (qp->conn->damaged[e] && (r->srq || r->epoch == e));
	return damaged;
}

void check_received(struct world *w, struct request *r, const struct hdl_wc *wc)
{
	struct wqp *qp = check_qp_of(w, r, wc);
	if (!qp) {
		world_fail(w, "receive %u completes for queue pair 0x%x, which is not of its queue",
		           r->id, wc->qpn);
		return;
	}
	if (r->srq)
		r->srq->held--;
	if (wc->status != HDL_WC_SUCCESS) {
		r->state = REQUEST_FAILED;
		if (wc->status == HDL_WC_WR_FLUSH_ERR && !may_be_damaged(qp, r))
			check_rest(w, r, 0);
		end_claims(w, r);
		return;
	}
	r->state = REQUEST_DONE;
	struct request *m = find_message(w, qp, r, wc);
	if (!m) {
		world_fail(w,
		           "receive %u of qp %u: %u bytes, flags 0x%x, opcode %u: not the message "
		           "that "
		           "comes next, or not its bytes",
		           r->id, (unsigned)(qp - w->qps), wc->byte_len, wc->flags, wc->opcode);
		return;
	}
	if (m->taken && qp->type != HDL_QP_UD)
		world_fail(w, "message %u is received twice", m->id);
	m->taken = true;
	w->tally.received[qp->type - 1]++;
	world_say(w, "  it is message %u", m->id);
	if (m->must_fail && !opening_key_came_back(w, m))
		world_fail(w, "message %u was received; a check had to refuse it", m->id);
	if (qp->type == HDL_QP_UD)
		check_header(w, r, m, wc);
	bool in_place = m->opcode == HDL_OP_WRITE_IMM;
	if (qp->streamed)
		check_confirmed(w, m);
	if (in_place && m->length > 0 && !m->bad_remote && m->state == REQUEST_PENDING &&
	    !claim_is_placed(&m->claims[m->claim_count - 1]))
		world_fail(w, "message %u is announced before its bytes are in place", m->id);
	check_rest(w, r, in_place ? 0 : wc->byte_len);
	end_claims(w, r);
	if (m->invalidated)
		opening_close(w, m->invalidated);
}
