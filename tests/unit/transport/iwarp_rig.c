/* The rig of the iWARP tests. See iwarp_rig.h. */
#include "iwarp_rig.h"

#include <stdlib.h>

#include "wire/be.h"

#define ALL_RIGHTS                                                                 \
	(HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE | HDL_ACCESS_REMOTE_READ | \
	 HDL_ACCESS_REMOTE_WRITE | HDL_ACCESS_REMOTE_ATOMIC | HDL_ACCESS_BIND)
#define STEP_NS 10000u

static uint64_t iw_now(void *context)
{
	return ((struct iw_rig *)context)->now_ns;
}

static void iw_wake(void *context, struct iwarp *iwarp)
{
	(void)iwarp;
	((struct iw_side *)context)->wakes++;
}

static void side_open(struct iw_rig *rig, struct iw_side *side, const struct iw_options *o,
                      uint64_t seed)
{
	struct hdl_open_attr attr = {.max_qp = 16, .max_mr = 64, .no_thread = true};
	struct adapter_env env = {.clock = {iw_now, rig}, .seed = seed};
	assert_int_equal(adapter_open(&attr, &env, &side->adapter), 0);
	side->chunk_memory = malloc(IW_CHUNKS * IWARP_CHUNK_BYTES);
	assert_non_null(side->chunk_memory);
	iwarp_pool_init(&side->pool, side->chunks, IW_CHUNKS, side->chunk_memory);
	side->adapter->engine.iwarp_pool = &side->pool;
	assert_int_equal(hdl_pd_create(side->adapter, &side->pd), 0);
	assert_int_equal(hdl_cq_create(side->adapter, 4 * IW_DEPTH, NULL, NULL, &side->scq), 0);
	assert_int_equal(hdl_cq_create(side->adapter, 4 * IW_DEPTH, NULL, NULL, &side->rcq), 0);
	if (o->srq) {
		struct hdl_srq_attr wanted = {.max_wr = IW_DEPTH, .max_sge = 4};
		assert_int_equal(hdl_srq_create(side->pd, &wanted, NULL, &side->srq), 0);
	}
	side->mem = aligned_alloc(4096, IW_BYTES);
	assert_non_null(side->mem);
	for (size_t i = 0; i < IW_BYTES; i++)
		side->mem[i] = (uint8_t)(i * 7 + i / 251 + seed);
	assert_int_equal(hdl_mr_register(side->pd, side->mem, IW_BYTES, ALL_RIGHTS, &side->mr), 0);
	struct hdl_qp_init_attr init = {.type = HDL_QP_RC,
	                                .send_cq = side->scq,
	                                .recv_cq = side->rcq,
	                                .srq = side->srq,
	                                .register_on_send = o->register_on_send,
	                                .register_error = o->register_error,
	                                .cap = {IW_DEPTH, IW_DEPTH, 4, 4, 64}};
	assert_int_equal(hdl_qp_create(side->pd, &init, &side->qp), 0);
}

static void side_connect(struct iw_side *side, const struct iw_side *peer,
                         const struct iw_options *o)
{
	struct hdl_qp_attr attr = {.state = HDL_QPS_INIT,
	                           .port_num = 1,
	                           .access = o->no_access ? 0
	                                                  : HDL_ACCESS_REMOTE_READ |
	                                                            HDL_ACCESS_REMOTE_WRITE |
	                                                            HDL_ACCESS_REMOTE_ATOMIC,
	                           .path_mtu = 1024,
	                           .dest_qpn = hdl_qp_number(peer->qp),
	                           .ah = {.dgid = peer->adapter->engine.gid, .port_num = 1},
	                           .max_rd_atomic = 8,
	                           .max_dest_rd_atomic = 8,
	                           .retry_cnt = 7,
	                           .rnr_retry = 7};
	assert_int_equal(
	        hdl_qp_modify(side->qp, &attr,
	                      HDL_QP_STATE | HDL_QP_PORT | HDL_QP_PKEY_INDEX | HDL_QP_ACCESS),
	        0);
	attr.state = HDL_QPS_RTR;
	assert_int_equal(hdl_qp_modify(side->qp, &attr,
	                               HDL_QP_STATE | HDL_QP_AV | HDL_QP_PATH_MTU |
	                                       HDL_QP_DEST_QPN | HDL_QP_RQ_PSN |
	                                       HDL_QP_MAX_DEST_RD_ATOMIC | HDL_QP_MIN_RNR_TIMER),
	                 0);
	attr.state = HDL_QPS_RTS;
	assert_int_equal(hdl_qp_modify(side->qp, &attr,
	                               HDL_QP_STATE | HDL_QP_SQ_PSN | HDL_QP_TIMEOUT |
	                                       HDL_QP_RETRY_CNT | HDL_QP_RNR_RETRY |
	                                       HDL_QP_MAX_RD_ATOMIC),
	                 0);
}

void iw_begin(struct iw_rig *rig, const struct iw_options *o)
{
	for (unsigned i = 0; i < 2; i++) {
		struct iw_side *side = &rig->sides[i];
		struct iwarp_terms terms = o->terms;
		struct iwarp_owner owner = {iw_wake, side};
		terms.initiator = i == 0;
		if (i == 1) {
			terms.markers_in = o->terms.markers_out;
			terms.markers_out = o->terms.markers_in;
		}
		terms.segment = terms.segment != 0 ? terms.segment : 1448;
		if (o->messages && side->window == NULL)
			side->window = malloc(sizeof(*side->window));
		if (o->messages) {
			memset(side->window, 0xa5, sizeof(*side->window));
			terms.window = side->window;
		}
		if (!o->no_reads) {
			terms.ird = terms.ird != 0 ? terms.ird : 4;
			terms.ord = terms.ord != 0 ? terms.ord : 4;
		}
		adapter_lock(side->adapter);
		iwarp_begin(&side->adapter->engine, &side->qp->qp, &side->iwarp, &terms, &owner);
		adapter_unlock(side->adapter);
		side->open = true;
	}
	struct iw_side *own = &rig->sides[0];
	own->sender = (struct mpa_sender){.markers = o->terms.markers_in, .crc = o->terms.crc};
	mpa_stream_init(&own->receiver, o->terms.markers_out, o->terms.crc);
	stream_cable_init(&rig->cable, &rig->prng, &iwarp_stream, &rig->sides[0].iwarp,
	                  &iwarp_stream, &rig->sides[1].iwarp);
	rig->on_messages = o->messages;
	rig->put_ssn = o->terms.first_ssn;
	message_cable_free(&rig->messages);
	message_cable_init(&rig->messages, &rig->prng, &rig->sides[0].iwarp, &rig->sides[1].iwarp);
}

void iw_open(struct iw_rig *rig, const struct iw_options *o, uint64_t seed)
{
	static const struct iw_options none;
	if (o == NULL)
		o = &none;
	memset(rig, 0, sizeof(*rig));
	rig->now_ns = 1000;
	prng_seed(&rig->prng, seed);
	for (unsigned i = 0; i < 2; i++)
		side_open(rig, &rig->sides[i], o, 7 + i);
	assert_int_equal(hdl_join(rig->sides[0].adapter, rig->sides[1].adapter), 0);
	for (unsigned i = 0; i < 2; i++)
		side_connect(&rig->sides[i], &rig->sides[1 - i], o);
	iw_begin(rig, o);
}

void iw_close(struct iw_rig *rig)
{
	struct hdl_event event;
	for (unsigned i = 0; i < 2; i++) {
		struct iw_side *side = &rig->sides[i];
		while (hdl_event_get(side->adapter, &event, 0) == 0)
			;
		assert_int_equal(hdl_qp_destroy(side->qp), 0);
		/* Chunks that nobody gave back are lost for good. */
		adapter_lock(side->adapter);
		iwarp_out_drop(&side->iwarp);
		adapter_unlock(side->adapter);
		unsigned count = 0;
		for (struct iwarp_chunk *at = side->pool.free; at != NULL; at = at->next)
			count++;
		assert_int_equal(count, IW_CHUNKS);
		assert_int_equal(hdl_mr_deregister(side->mr), 0);
		if (side->srq != NULL)
			assert_int_equal(hdl_srq_destroy(side->srq), 0);
		assert_int_equal(hdl_cq_destroy(side->scq), 0);
		assert_int_equal(hdl_cq_destroy(side->rcq), 0);
		assert_int_equal(hdl_pd_destroy(side->pd), 0);
	}
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(hdl_close(rig->sides[i].adapter), 0);
		free(rig->sides[i].mem);
		free(rig->sides[i].chunk_memory);
		free(rig->sides[i].window);
	}
	message_cable_free(&rig->messages);
}

/* --- driving --- */

void iw_drive(struct iw_rig *rig)
{
	for (unsigned quiet = 0; quiet < 3;)
		quiet = hdl_progress(rig->sides[0].adapter) + hdl_progress(rig->sides[1].adapter) >
		                        0
		                ? 0
		                : quiet + 1;
}

static size_t step_cable(struct iw_rig *rig)
{
	adapter_lock(rig->sides[0].adapter);
	adapter_lock(rig->sides[1].adapter);
	size_t moved = rig->on_messages ? message_cable_step(&rig->messages)
	                                : stream_cable_step(&rig->cable);
	adapter_unlock(rig->sides[1].adapter);
	adapter_unlock(rig->sides[0].adapter);
	return moved;
}

void iw_settle(struct iw_rig *rig)
{
	for (unsigned quiet = 0; quiet < 30;) {
		iw_drive(rig);
		quiet = step_cable(rig) > 0 ? 0 : quiet + 1;
	}
}

void iw_pass(struct iw_rig *rig, uint64_t ns, bool cable)
{
	uint64_t end = rig->now_ns + ns;
	uint64_t step = ns / 1000 > STEP_NS ? ns / 1000 : STEP_NS;
	while (rig->now_ns < end) {
		rig->now_ns += end - rig->now_ns < step ? end - rig->now_ns : step;
		iw_drive(rig);
		if (cable)
			iw_settle(rig);
	}
}

/* --- by hand --- */

size_t iw_put_bytes(struct iw_rig *rig, const void *bytes, size_t length, size_t piece)
{
	struct iw_side *side = &rig->sides[0];
	const uint8_t *at = bytes;
	size_t put = 0;
	adapter_lock(side->adapter);
	while (put < length && side->open) {
		size_t some = piece == 0 || length - put < piece ? length - put : piece;
		/* Just as long as it is, so that a sanitizer sees reads past its end. */
		uint8_t *exact = malloc(some);
		assert_non_null(exact);
		memcpy(exact, at + put, some);
		size_t fed = rig->by_feed ? iwarp_feed(&side->iwarp, exact, some, &side->open)
		                          : stream_feed(&iwarp_stream, &side->iwarp, exact, some,
		                                        &side->open);
		free(exact);
		put += fed;
		if (fed < some)
			break;
	}
	adapter_unlock(side->adapter);
	iw_drive(rig);
	return put;
}

size_t iw_fpdu(struct iw_rig *rig, const struct rdmap_segment *s, const void *payload, size_t bytes,
               uint8_t *out)
{
	uint8_t header[RDMAP_MAX_HEADER_BYTES];
	size_t header_bytes = rdmap_encode(s, header, sizeof(header));
	struct mpa_piece pieces[] = {{header, header_bytes}, {payload, bytes}};
	assert_true(header_bytes > 0);
	return mpa_fpdu_encode(&rig->sides[0].sender, pieces, 2, out, MPA_MAX_FPDU_BYTES);
}

bool iw_put_message(struct iw_rig *rig, uint16_t ssn, const struct rdmap_segment *s,
                    const void *payload, size_t bytes)
{
	struct iw_side *side = &rig->sides[0];
	uint8_t header[RDMAP_MAX_HEADER_BYTES];
	size_t header_bytes = rdmap_encode(s, header, sizeof(header));
	uint8_t *message = malloc(DDP_SCTP_SSN_BYTES + header_bytes + bytes);
	assert_non_null(message);
	be16_store(message, ssn);
	memcpy(message + DDP_SCTP_SSN_BYTES, header, header_bytes);
	if (bytes > 0)
		memcpy(message + DDP_SCTP_SSN_BYTES + header_bytes, payload, bytes);
	adapter_lock(side->adapter);
	bool taken = iwarp_message(&side->iwarp, message, DDP_SCTP_SSN_BYTES + header_bytes + bytes,
	                           &side->open);
	adapter_unlock(side->adapter);
	free(message);
	iw_drive(rig);
	return taken;
}

void iw_put(struct iw_rig *rig, const struct rdmap_segment *s, const void *payload, size_t bytes)
{
	if (rig->on_messages) {
		assert_true(iw_put_message(rig, rig->put_ssn++, s, payload, bytes));
		return;
	}
	static uint8_t fpdu[MPA_MAX_FPDU_BYTES];
	size_t length = iw_fpdu(rig, s, payload, bytes, fpdu);
	iw_put_bytes(rig, fpdu, length, 0);
}

static size_t take_out(struct iw_side *side, uint8_t *to, size_t bytes)
{
	adapter_lock(side->adapter);
	size_t count = stream_drain(&iwarp_stream, &side->iwarp, to, bytes);
	adapter_unlock(side->adapter);
	return count;
}

static bool look_message(struct iw_side *side, struct iw_segment *segment)
{
	const uint8_t *message;
	adapter_lock(side->adapter);
	size_t length = iwarp_message_offer(&side->iwarp, &message);
	if (length > 0) {
		const uint8_t *ulpdu = message + DDP_SCTP_SSN_BYTES;
		size_t bytes = length - DDP_SCTP_SSN_BYTES;
		size_t head = rdmap_head_bytes(ulpdu, bytes, bytes);
		memcpy(segment->head, ulpdu, head);
		segment->bytes = (uint32_t)(bytes - head);
		memcpy(segment->payload, ulpdu + head, segment->bytes);
		assert_int_equal(rdmap_parse(segment->head, bytes, &segment->s), RDMAP_OK);
		iwarp_message_taken(&side->iwarp);
	}
	adapter_unlock(side->adapter);
	return length > 0;
}

bool iw_look(struct iw_rig *rig, struct iw_segment *segment)
{
	struct iw_side *side = &rig->sides[0];
	struct mpa_receiver *r = &side->receiver;
	enum mpa_stream_verdict verdict = MPA_STREAM_MORE;
	iw_drive(rig);
	if (rig->on_messages) {
		bool there = look_message(side, segment);
		iw_drive(rig);
		return there;
	}
	while (verdict != MPA_STREAM_ULPDU) {
		uint8_t *to;
		size_t due = mpa_stream_due(r, &to);
		if (to == NULL) {
			to = segment->payload + r->body_bytes;
			assert_int_equal(take_out(side, to, due), due);
			verdict = mpa_stream_took_body(r, due, crc32c(mpa_stream_sum(r), to, due));
			continue;
		}
		size_t some = take_out(side, to, due);
		if (some == 0) {
			assert_true(mpa_stream_between(r)); /* FPDUs are offered whole */
			return false;
		}
		verdict = mpa_stream_took(r, some);
		if (verdict == MPA_STREAM_HEAD) {
			size_t head = rdmap_head_bytes(r->head, r->head_bytes, r->ulpdu_bytes);
			mpa_stream_need(r, head > r->head_bytes ? head : r->head_bytes);
			verdict = MPA_STREAM_MORE;
		}
		assert_true(verdict == MPA_STREAM_MORE || verdict == MPA_STREAM_ULPDU);
	}
	memcpy(segment->head, r->head, r->head_bytes);
	segment->bytes = r->body_bytes;
	memset(&segment->s, 0, sizeof(segment->s));
	if (r->ulpdu_bytes > 0)
		assert_int_equal(rdmap_parse(segment->head, r->ulpdu_bytes, &segment->s), RDMAP_OK);
	iw_drive(rig);
	return true;
}

void iw_expect_terminate(struct iw_rig *rig, enum rdmap_error error)
{
	static struct iw_segment segment;
	do
		assert_true(iw_look(rig, &segment));
	while (segment.s.opcode != RDMAP_TERMINATE);
	const struct rdmap_terminate *t = &segment.s.u.terminate;
	assert_int_equal(segment.s.msn, 1);
	assert_int_equal(rdmap_error_find(t->layer, t->etype, t->code), error);
	assert_int_equal(iw_state(&rig->sides[0]), HDL_QPS_ERR);
	assert_int_equal(iwarp_ending(&rig->sides[0].iwarp), IWARP_FIN);
	iw_expect_silence(rig);
}

void iw_expect_silence(struct iw_rig *rig)
{
	static struct iw_segment segment;
	assert_false(iw_look(rig, &segment));
}

/* --- requests --- */

uint64_t iw_address(const struct iw_side *side, size_t offset)
{
	return (uint64_t)(uintptr_t)(side->mem + offset);
}

struct hdl_key iw_key(const struct iw_side *side)
{
	return hdl_mr_key(side->mr);
}

struct hdl_sge iw_piece(const struct iw_side *side, size_t offset, uint32_t length)
{
	return (struct hdl_sge){
	        .addr = iw_address(side, offset), .length = length, .key = iw_key(side)};
}

void iw_recv(struct iw_side *side, uint64_t wr_id, size_t offset, uint32_t length)
{
	struct hdl_sge list = iw_piece(side, offset, length);
	struct hdl_recv_wr wr = {.wr_id = wr_id, .sg_list = &list, .num_sge = 1};
	if (side->srq != NULL)
		assert_int_equal(hdl_srq_post(side->srq, &wr, NULL), 0);
	else
		assert_int_equal(hdl_post_recv(side->qp, &wr, NULL), 0);
}

void iw_post(struct iw_side *side, struct hdl_send_wr wr)
{
	wr.flags |= HDL_SEND_SIGNALED;
	assert_int_equal(hdl_post_send(side->qp, &wr, NULL), 0);
}

void iw_send(struct iw_side *side, uint64_t wr_id, size_t offset, uint32_t length)
{
	struct hdl_sge list = iw_piece(side, offset, length);
	iw_post(side, (struct hdl_send_wr){.wr_id = wr_id,
	                                   .opcode = HDL_OP_SEND,
	                                   .sg_list = &list,
	                                   .num_sge = length > 0});
}

void iw_rdma(struct iw_side *side, uint64_t wr_id, uint32_t opcode, size_t offset, uint32_t length,
             uint64_t addr, struct hdl_key key)
{
	struct hdl_sge list = iw_piece(side, offset, length);
	struct hdl_send_wr wr = {
	        .wr_id = wr_id, .opcode = opcode, .sg_list = &list, .num_sge = length > 0};
	wr.u.rdma.addr = addr;
	wr.u.rdma.key = key;
	iw_post(side, wr);
}

struct hdl_wc iw_completion(struct hdl_cq *cq, uint64_t wr_id, uint32_t status)
{
	struct hdl_wc wc;
	assert_int_equal(hdl_cq_poll(cq, &wc, 1), 1);
	assert_int_equal(wc.wr_id, wr_id);
	assert_int_equal(wc.status, status);
	return wc;
}

void iw_no_completion(struct hdl_cq *cq)
{
	struct hdl_wc wc;
	assert_int_equal(hdl_cq_poll(cq, &wc, 1), 0);
}

void iw_event(struct iw_side *side, uint32_t type, uint32_t detail)
{
	struct hdl_event event;
	do
		assert_int_equal(hdl_event_get(side->adapter, &event, 0), 0);
	while (event.type == HDL_EVENT_SQ_DRAINED);
	assert_int_equal(event.type, type);
	assert_int_equal(event.detail, detail);
}

void iw_no_event(struct iw_side *side)
{
	struct hdl_event event;
	assert_int_not_equal(hdl_event_get(side->adapter, &event, 0), 0);
}

enum hdl_qp_state iw_state(const struct iw_side *side)
{
	return qp_state(&side->qp->qp);
}
