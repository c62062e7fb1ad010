/* Requests for send queues: of every opcode, with random pieces, lengths and flags, good ones and
 * such that a check must refuse. */
#include "world.h"

#include <stdlib.h>
#include <string.h>

#define BAD_PERMILLE 40u

/* One request on its way into the queue. */
struct draft {
	struct world *w;
	struct wqp *qp;
	struct wqp *peer; /* NULL: datagrams */
	struct request *r;
	struct hdl_send_wr wr;
	uint64_t pages[WORLD_MAX_PAGES];
	uint8_t text[HDL_MAX_INLINE];
	bool bad;
};

static uint32_t draw_length(struct world *w, uint32_t max)
{
	static const uint32_t edges[] = {0, 1, 7, 8, 63, 64, 65, 4095, 4096, 4097, 8192};
	uint32_t length;
	switch (world_draw(w, 5)) {
	case 0:
		length = edges[world_draw(w, sizeof(edges) / sizeof(edges[0]))];
		break;
	case 1:
		length = max;
		break;
	case 2:
		length = world_draw(w, max + 1);
		break;
	default:
		length = world_draw(w, 129);
	}
	return length < max ? length : max;
}

static uint8_t *new_data(uint32_t bytes)
{
	uint8_t *data = malloc(bytes ? bytes : 1);
	if (!data)
		abort();
	return data;
}

/* What the local pieces hold now is what will travel: nothing changes it while it is claimed. */
static void gather(struct request *r)
{
	r->data = new_data(r->length);
	for (uint32_t i = 0; i < r->claim_count; i++) {
		const struct claim *c = &r->claims[i];
		root_out(c->root, c->root->shadow, c->at, r->data + c->data_at, c->bytes);
	}
}

static void spoil_piece(struct draft *d)
{
	struct request *r = d->r;
	if (r->number_of_pieces == 0)
		return;
	struct hdl_sge *piece = &r->pieces[world_draw(d->w, r->number_of_pieces)];
	if (piece->length == 0)
		return;
	r->bad_local = r->must_fail = true;
	r->bad_host = r->host;
	switch (world_draw(d->w, 3)) {
	case 0:
		piece->key.v ^= 1u << world_draw(d->w, 8);
		r->bad_key = piece->key;
		break;
	case 1:
		piece->addr += 0x100000000ull;
		break;
	default:
		piece->addr = UINT64_MAX - 3;
	}
}

/* A fence makes what an earlier read brings the data of this request (IBTA section 10.8.3.3). */
static bool fenced_source(struct draft *d)
{
	struct request *r = d->r, *read = d->qp->last_read;
	if (d->qp->registers &&
	    d->qp->drains) /* the read may be flushed, and the queue go on without it */
		return false;
	if (!read || read->state != REQUEST_PENDING || read->must_fail ||
	    read->line != d->qp->sends || read->claim_count == 0 || !read->claims[0].write ||
	    !read->claims[0].root)
		return false;
	const struct claim *c = &read->claims[0];
	if (c->bytes > d->qp->max_message || c->via->state != OPENING_VALID || c->via->gone)
		return false;
	r->length = c->bytes;
	r->data = new_data(r->length);
	memcpy(r->data, read->data + c->data_at, r->length);
	r->pieces[0] = (struct hdl_sge){
	        .addr = opening_address(c->via, c->at), .length = c->bytes, .key = c->via->key};
	r->number_of_pieces = 1;
	claim_add(r, c->via, c->at, c->bytes, 0, false);
	d->wr.flags |= HDL_SEND_FENCE;
	return true;
}

/* The data of the request: inline from a buffer that changes right after, or from registered
 * pieces. */
static bool local_source(struct draft *d, struct opening *first)
{
	struct request *r = d->r;
	struct world *w = d->w;
	if (!first && !d->bad && d->qp->last_read && world_chance(w, 400) && fenced_source(d))
		return true;
	uint32_t room =
	        d->qp->cap.max_inline < HDL_MAX_INLINE ? d->qp->cap.max_inline : HDL_MAX_INLINE;
	if (!first && room > 0 && r->length <= room && world_chance(w, 300)) {
		uint32_t cut = world_draw(w, r->length + 1);
		prng_fill(&w->prng, d->text, r->length);
		r->pieces[0] =
		        (struct hdl_sge){.addr = (uint64_t)(uintptr_t)d->text, .length = cut};
		r->pieces[1] = (struct hdl_sge){.addr = (uint64_t)(uintptr_t)(d->text + cut),
		                                .length = r->length - cut};
		r->number_of_pieces = 2;
		d->wr.flags |= HDL_SEND_INLINE;
		r->data = new_data(r->length);
		memcpy(r->data, d->text, r->length);
		return true;
	}
	if (!request_pieces(w, r, d->qp->pd, r->length, d->qp->cap.max_send_sge, false, first))
		return false;
	gather(r);
	if (d->bad && !first && world_chance(w, 400))
		spoil_piece(d);
	return true;
}

static bool local_target(struct draft *d)
{
	if (!request_pieces(d->w, d->r, d->qp->pd, d->r->length, d->qp->cap.max_send_sge, true,
	                    NULL))
		return false;
	if (d->bad && world_chance(d->w, 300))
		spoil_piece(d);
	return true;
}

/* On a stream each segment is checked when it comes: the part of a write that lies within the
 * opening may be placed before the rest is refused. Where segments overtake each other, that may
 * also be the end of one that begins before the opening, around the end of all addresses. False:
 * others claim it. */
static bool aim_partly(struct draft *d, struct opening *o)
{
	uint64_t offset = d->wr.u.rdma.addr - opening_address(o, o->at);
	uint32_t before = 0;
	if (!d->qp->streamed || d->wr.u.rdma.key.v != o->key.v)
		return true;
	if (offset >= o->length && d->w->messages && -offset < d->r->length) {
		before = (uint32_t)-offset;
		offset = 0;
	}
	if (offset >= o->length)
		return true;
	uint32_t at = o->at + (uint32_t)offset, bytes = o->length - (uint32_t)offset;
	if (before > 0 && bytes > d->r->length - before)
		bytes = d->r->length - before;
	if (!root_is_free(o->root, at, bytes, true))
		return false;
	claim_add(d->r, o, at, bytes, before, true);
	d->r->partly = true;
	return true;
}

/* Aim at memory that the checks must protect. */
static bool aim_badly(struct draft *d, uint32_t access)
{
	struct world *w = d->w;
	struct request *r = d->r;
	struct opening *o = world_chance(w, 500) ? opening_pick_stale(w, d->peer->host)
	                                         : opening_pick(w, d->peer->host, d->peer->pd,
	                                                        access, false, d->peer);
	if (!o || r->length == 0)
		return false;
	d->wr.u.rdma.addr = opening_address(o, o->at);
	d->wr.u.rdma.key = o->key;
	if (o->state == OPENING_VALID) {
		switch (world_draw(w, 3)) {
		case 0: /* one byte too far, or much */
			d->wr.u.rdma.addr += o->length - r->length + 1 + world_draw(w, 3) * 5000;
			if (r->length > o->length)
				d->wr.u.rdma.addr = opening_address(o, o->at);
			break;
		case 1:
			d->wr.u.rdma.addr = UINT64_MAX - world_draw(w, r->length);
			break;
		default:
			d->wr.u.rdma.key.v ^= 1u << world_draw(w, 8);
		}
		if (access == HDL_ACCESS_REMOTE_WRITE && !aim_partly(d, o))
			return false;
	}
	r->bad_remote = r->must_fail = true;
	r->bad_host = d->peer->host;
	r->bad_key = d->wr.u.rdma.key;
	return true;
}

static bool aim(struct draft *d, uint32_t access, bool write)
{
	struct world *w = d->w;
	struct request *r = d->r;
	uint32_t at;
	if (d->bad && !r->bad_local && aim_badly(d, access))
		return true;
	struct opening *o = opening_pick(w, d->peer->host, d->peer->pd, access, false, d->peer);
	if (!o || !root_pick(w, o, r->length, write, &at))
		return false;
	d->wr.u.rdma.addr = opening_address(o, at);
	d->wr.u.rdma.key = o->key;
	if (r->length == 0)
		return true;
	claim_add(r, o, at, r->length, 0, write);
	if (o->access & HDL_ACCESS_ONE_TOUCH)
		o->touched = true;
	/* A response that is lost is not given twice. */
	if (w->wire && !write && (o->access & HDL_ACCESS_ONE_TOUCH))
		wqp_disturb(d->qp, REASON_MEMORY);
	return true;
}

/* --- one function a family of opcodes --- */

static bool draft_message(struct draft *d, struct opening *first)
{
	d->r->length = draw_length(d->w, d->qp->max_message);
	return local_source(d, first);
}

/* Something of the peer's that this message may take back, and that nobody uses. */
static struct opening *pick_to_invalidate(struct draft *d)
{
	const uint32_t remote =
	        HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE | HDL_ACCESS_REMOTE_ATOMIC;
	struct opening *found = NULL;
	uint32_t seen = 0;
	for (uint32_t i = 0; i < d->w->opening_count; i++) {
		struct opening *o = &d->w->openings[i];
		if (o->host == d->peer->host && o->state == OPENING_VALID && o->pd == d->peer->pd &&
		    (o->kind == OPENING_FAST || o->only == d->peer) && o->windows == 0 &&
		    !o->gone && !o->touched && !o->root->claims && (o->access & remote) &&
		    world_draw(d->w, ++seen) == 0)
			found = o;
	}
	return found;
}

static bool draft_invalidating(struct draft *d)
{
	struct opening *o = pick_to_invalidate(d);
	if (!draft_message(d, NULL))
		return false;
	if (d->bad && !d->r->bad_local) {
		d->wr.invalidate_key = (struct hdl_key){world_draw(d->w, 1u << 31)};
		d->r->bad_remote = d->r->must_fail = true;
		d->r->bad_host = d->peer->host;
		d->r->bad_key = d->wr.invalidate_key;
		return true;
	}
	if (!o || o->root->claims) /* or the message comes from there */
		return false;
	d->wr.invalidate_key = d->r->invalidates = o->key;
	d->r->invalidated = o;
	o->state = OPENING_CLOSING;
	return true;
}

static bool draft_write(struct draft *d)
{
	d->r->length = draw_length(d->w, d->qp->max_message);
	return local_source(d, NULL) && aim(d, HDL_ACCESS_REMOTE_WRITE, true);
}

static bool draft_read(struct draft *d)
{
	struct request *r = d->r;
	if (d->qp->rd_atomic == 0)
		return false;
	r->length = draw_length(d->w, d->qp->max_message);
	if (!local_target(d) || !aim(d, HDL_ACCESS_REMOTE_READ, false))
		return false;
	if (r->bad_remote || r->length == 0) {
		gather(r); /* what is there, for it must not change */
		return true;
	}
	const struct claim *c = &r->claims[r->claim_count - 1];
	r->data = new_data(r->length);
	root_out(c->root, c->root->shadow, c->at, r->data, r->length);
	return true;
}

static bool draft_atomic(struct draft *d)
{
	struct world *w = d->w;
	struct request *r = d->r;
	r->length = 8;
	if (d->qp->rd_atomic == 0 || !local_target(d))
		return false;
	struct opening *o = opening_pick(w, d->peer->host, d->peer->pd, HDL_ACCESS_REMOTE_ATOMIC,
	                                 false, d->peer);
	if (!o || o->length < 64)
		return false;
	/* The words of a root are its first ones; a window shows some of them. */
	uint32_t first = (o->at + 7) / 8, end = (o->at + o->length) / 8;
	if (end > WORLD_MAX_WORDS)
		end = WORLD_MAX_WORDS;
	if (first >= end)
		return false;
	r->word = first + world_draw(w, end - first);
	r->add = r->opcode == HDL_OP_FETCH_ADD;
	atomics_aim(w, r, o->root);
	d->wr.u.atomic.addr = opening_address(o, r->word * 8);
	d->wr.u.atomic.key = o->key;
	/* The address as requests name it must be a multiple of 8 too. */
	if (d->wr.u.atomic.addr % 8 != 0 || (d->bad && !r->bad_local && world_chance(w, 500))) {
		wqp_disturb(d->qp, REASON_BAD);
		d->wr.u.atomic.addr |= 1 + world_draw(w, 7);
		r->bad_remote = r->must_fail = true;
	}
	d->wr.u.atomic.compare_add = r->compare_add;
	d->wr.u.atomic.swap = r->swap;
	claim_add(r, o, r->word * 8, 8, 0,
	          false); /* what the request goes through; words are not in the sweep */
	return true;
}

static bool draft_bind(struct draft *d)
{
	struct world *w = d->w;
	for (uint32_t i = 0; i < w->opening_count; i++) {
		struct opening *o = &w->openings[i], after;
		if (o->host != d->qp->host || o->kind != OPENING_WINDOW ||
		    o->state != OPENING_EMPTY || o->pd != d->qp->pd)
			continue;
		struct wqp *only = o->mw_type == HDL_MW_TYPE_2 ? d->qp : NULL;
		if (!opening_plan_bind(w, o, only, &after, &d->wr.bind.bind))
			return false;
		after.key = hdl_key_with_instance(o->key, (uint8_t)(o->key.v + 1));
		d->wr.bind.mw = o->mw;
		d->wr.bind.key = after.key;
		*o = after;
		opening_log_key(w, o);
		o->state = OPENING_POSTED;
		o->parent->windows++;
		d->r->object = o;
		return true;
	}
	return false;
}

/* A registration; with REGISTER_SEND the message comes from the region. */
static bool draft_register(struct draft *d)
{
	struct world *w = d->w;
	for (uint32_t i = 0; d->qp->registers && i < w->opening_count; i++) {
		struct opening *o = &w->openings[i], after;
		if (o->host != d->qp->host || o->kind != OPENING_FAST ||
		    o->state != OPENING_EMPTY || o->pd != d->qp->pd || o->root->gone)
			continue;
		struct hdl_register *reg = &d->wr.reg.reg;
		opening_plan_register(w, o, &after, reg, d->pages);
		after.key = hdl_key_with_instance(o->key, (uint8_t)(o->key.v + 1));
		d->wr.reg.mr = o->mr;
		d->wr.reg.key = after.key;
		if (d->bad) {
			reg->num_pages = 1; /* fewer than the length needs */
			d->r->bad_local = d->r->must_fail = true;
		}
		*o = after;
		opening_log_key(w, o);
		o->state = OPENING_POSTED;
		d->r->object = o;
		return d->r->opcode == HDL_OP_REGISTER || draft_message(d, o);
	}
	return false;
}

static bool draft_invalidate(struct draft *d)
{
	struct world *w = d->w;
	for (uint32_t i = 0; i < w->opening_count; i++) {
		struct opening *o = &w->openings[i];
		if (o->host != d->qp->host || o->state != OPENING_VALID || o->pd != d->qp->pd ||
		    (o->kind != OPENING_FAST && o->only != d->qp) || o->windows > 0 || o->touched)
			continue;
		if (o->root->claims && !world_has(w, FAULT_DEREGISTER))
			continue;
		opening_disturb(w, o);
		d->wr.invalidate_key = o->key;
		d->r->object = o;
		o->state = OPENING_CLOSING;
		return true;
	}
	return false;
}

static bool draft_datagram(struct draft *d)
{
	struct world *w = d->w;
	struct wqp *to = NULL;
	uint32_t seen = 0;
	for (uint32_t i = 0; i < w->qp_count; i++)
		if (w->qps[i].type == HDL_QP_UD && w->qps[i].ready && world_draw(w, ++seen) == 0)
			to = &w->qps[i];
	if (!to)
		return false;
	struct hdl_ah **ah = &d->qp->host->ahs[d->qp->pd][to->host->index];
	struct hdl_ah_attr attr = {
	        .dgid = to->host->gid, .port_num = 1, .is_global = world_chance(w, 500)};
	if (!*ah && hdl_ah_create(d->qp->host->pds[d->qp->pd], &attr, ah))
		world_fail(w, "no address handle");
	d->wr.u.ud.ah = *ah;
	d->wr.u.ud.qpn = d->r->to_qpn = to->number;
	d->wr.u.ud.qkey = WORLD_QKEY;
	if (world_chance(w, 50)) { /* never arrives */
		d->wr.u.ud.qkey++;
		d->r->to_qpn = 0;
	}
	d->r->stream = &d->qp->datagrams[to->host->index];
	return *ah && draft_message(d, NULL);
}

static bool draft_operation(struct draft *d)
{
	switch (d->r->opcode) {
	case HDL_OP_SEND:
	case HDL_OP_SEND_IMM:
		return d->peer ? draft_message(d, NULL) : draft_datagram(d);
	case HDL_OP_SEND_INVALIDATE:
		return draft_invalidating(d);
	case HDL_OP_WRITE:
	case HDL_OP_WRITE_IMM:
		return draft_write(d);
	case HDL_OP_READ:
		return draft_read(d);
	case HDL_OP_COMPARE_SWAP:
	case HDL_OP_FETCH_ADD:
		return draft_atomic(d);
	case HDL_OP_BIND:
		return draft_bind(d);
	case HDL_OP_REGISTER:
	case HDL_OP_REGISTER_SEND:
		return draft_register(d);
	case HDL_OP_INVALIDATE:
		return draft_invalidate(d);
	default:
		d->wr.u.delay.ns = d->r->delay_ns = world_draw(d->w, 60000);
		return true;
	}
}

static uint32_t draw_opcode(struct world *w, const struct wqp *qp)
{
	static const uint8_t rc[] = {
	        HDL_OP_SEND,          HDL_OP_SEND,      HDL_OP_SEND,      HDL_OP_SEND_IMM,
	        HDL_OP_WRITE,         HDL_OP_WRITE,     HDL_OP_WRITE,     HDL_OP_WRITE_IMM,
	        HDL_OP_READ,          HDL_OP_READ,      HDL_OP_FETCH_ADD, HDL_OP_COMPARE_SWAP,
	        HDL_OP_BIND,          HDL_OP_REGISTER,  HDL_OP_DELAY,     HDL_OP_SEND_INVALIDATE,
	        HDL_OP_REGISTER_SEND, HDL_OP_INVALIDATE};
	static const uint8_t uc[] = {HDL_OP_SEND,  HDL_OP_SEND,      HDL_OP_SEND_IMM,
	                             HDL_OP_WRITE, HDL_OP_WRITE_IMM, HDL_OP_DELAY};
	static const uint8_t ud[] = {HDL_OP_SEND, HDL_OP_SEND_IMM, HDL_OP_SEND, HDL_OP_DELAY};
	static const uint8_t xrc[] = {HDL_OP_SEND,         HDL_OP_SEND,
	                              HDL_OP_SEND_IMM,     HDL_OP_WRITE,
	                              HDL_OP_WRITE,        HDL_OP_WRITE_IMM,
	                              HDL_OP_READ,         HDL_OP_FETCH_ADD,
	                              HDL_OP_COMPARE_SWAP, HDL_OP_SEND_INVALIDATE,
	                              HDL_OP_DELAY};
	if (qp->type == HDL_QP_XRC_INI)
		return xrc[world_draw(w, sizeof(xrc))];
	if (qp->type == HDL_QP_RC)
		return rc[world_draw(w, sizeof(rc))];
	return qp->type == HDL_QP_UC ? uc[world_draw(w, sizeof(uc))]
	                             : ud[world_draw(w, sizeof(ud))];
}

static bool takes_receive(uint32_t opcode)
{
	return opcode == HDL_OP_SEND || opcode == HDL_OP_SEND_IMM ||
	       opcode == HDL_OP_SEND_INVALIDATE || opcode == HDL_OP_WRITE_IMM ||
	       opcode == HDL_OP_REGISTER_SEND;
}

/* The request was not posted: what it would have changed is as before. */
static void undo(struct draft *d)
{
	struct opening *o = d->r->object;
	if (o && o->state == OPENING_POSTED) {
		if (o->kind == OPENING_WINDOW)
			o->parent->windows--;
		o->state = OPENING_EMPTY;
		o->parent = NULL;
		o->only = NULL;
		if (o->kind == OPENING_WINDOW)
			o->root = NULL;
	} else if (o) {
		o->state = OPENING_VALID;
	}
	if (d->r->invalidated)
		d->r->invalidated->state = OPENING_VALID;
	for (uint32_t i = 0; i < d->r->claim_count; i++)
		d->r->claims[i].via->touched = false;
	request_drop(d->w, d->r);
}

static void post(struct draft *d)
{
	struct world *w = d->w;
	struct request *r = d->r;
	struct line *line = d->qp->sends;
	uint32_t held = line->count - line->head;
	const struct hdl_send_wr *bad = NULL;
	r->key_mark = w->key_count;
	r->line = line;
	line_add(line, r->id);
	if (r->stream)
		stream_add(r->stream, r->id);
	w->pending++;
	int error = hdl_post_send(d->qp->qp, &d->wr, &bad);
	prng_fill(&w->prng, d->text, d->wr.flags & HDL_SEND_INLINE ? r->length : 0);
	world_say(w, "host %u qp %u posts %u: opcode %u, flags %u, %u bytes in %u%s%s: %d",
	          d->qp->host->index, (unsigned)(d->qp - w->qps), r->id, r->opcode, r->flags,
	          r->length, r->number_of_pieces, r->bad_local ? ", bad piece" : "",
	          r->bad_remote ? ", bad aim" : "", error);
	for (uint32_t i = 0; i < r->claim_count; i++)
		world_say(w, "  %s %u bytes at %u of block %u through opening %u",
		          r->claims[i].write ? "changes" : "reads", r->claims[i].bytes,
		          r->claims[i].at, (unsigned)(r->claims[i].root - w->roots),
		          (unsigned)(r->claims[i].via - w->openings));
	if (r->bad_remote)
		world_say(w, "  aims at 0x%lx with key 0x%x", (unsigned long)d->wr.u.rdma.addr,
		          d->wr.u.rdma.key.v);
	if (error == 0 && r->opcode == HDL_OP_READ)
		d->qp->last_read = r;
	if (error == 0)
		return;
	if (error != -HDL_ENOSPC || held < d->qp->cap.max_send_wr || bad != &d->wr)
		world_fail(w, "request %u (opcode %u, %u bytes, %u of %u held) was refused: %s",
		           r->id, r->opcode, r->length, held, d->qp->cap.max_send_wr,
		           hdl_strerror(error));
	line->count--;
	if (r->stream)
		r->stream->count--;
	w->pending--;
	undo(d);
}

void load_send(struct world *w, struct wqp *qp)
{
	struct draft d = {.w = w, .qp = qp, .r = request_new(w, qp, qp->host)};
	struct request *r = d.r;
	if (!r)
		return;
	d.peer = qp->conn ? qp->conn->side[1 - qp->side] : NULL;
	r->opcode = draw_opcode(w, qp);
	if (qp->streamed && r->opcode == HDL_OP_SEND_IMM) /* RFC 7306 has none */
		r->opcode = HDL_OP_WRITE_IMM;
	bool rare = r->opcode == HDL_OP_REGISTER || r->opcode == HDL_OP_SEND_INVALIDATE;
	d.bad = world_has(w, FAULT_BAD) && world_chance(w, rare ? 8 * BAD_PERMILLE : BAD_PERMILLE);
	r->imm = (uint32_t)prng_next(&w->prng);
	d.wr.flags = world_chance(w, 600) ? HDL_SEND_SIGNALED : 0;
	if (world_chance(w, 100))
		d.wr.flags |= HDL_SEND_FENCE;
	if (world_chance(w, 100))
		d.wr.flags |= HDL_SEND_SOLICITED;
	if (!draft_operation(&d) || w->run->failed) {
		undo(&d);
		return;
	}
	if (r->must_fail)
		wqp_disturb(qp, REASON_BAD);
	r->flags = d.wr.flags;
	r->signaled = qp->signal_all || (r->flags & HDL_SEND_SIGNALED);
	if (qp->conn) {
		r->epoch = qp->conn->epoch;
		r->to_qpn = d.peer->number;
		if (takes_receive(r->opcode))
			r->stream = &qp->conn->streams[r->epoch][qp->side];
	}
	d.wr.wr_id = r->id;
	d.wr.sg_list = r->pieces;
	d.wr.num_sge = r->number_of_pieces;
	d.wr.opcode = r->opcode;
	if (qp->type == HDL_QP_XRC_INI)
		d.wr.remote_srq = d.peer->srq->number;
	if (d.wr.opcode == HDL_OP_SEND_IMM || d.wr.opcode == HDL_OP_WRITE_IMM)
		d.wr.imm = r->imm;
	post(&d);
}
