/* iWARP: what the segments of the peer mean. iwarp_judge() looks at a header before the CRC of its
 * segment is known, so it only decides where the body goes; iwarp_deliver() lets the segment take
 * effect. Over TCP segments come in order: the next one of each queue, the next octets of each
 * message (RFC 5041 section 5.3). Over SCTP they may come early: iwarp_judge_early() decides where
 * the body goes, and iwarp_judge() applies the same rules as over TCP when their turn comes. */
#include "transport/iwarp/iwarp.h"
#include "transport/op.h"
#include "transport/respond.h"
#include "wire/be.h"

static void judge_fault(struct iwarp *iwarp, enum rdmap_error error, enum hdl_detail detail)
{
	iwarp->fault = (uint8_t)error;
	iwarp->result = (struct sg_result){.detail = detail};
	iwarp->place = IWARP_PLACE_WASTE;
}

/* A message on queue 0: of any kind of Send, or immediate data. */
static void judge_receive(struct iwarp *iwarp)
{
	const struct rdmap_segment *s = &iwarp->segment;
	if (s->msn != iwarp->expected_send)
		judge_fault(iwarp, RDMAP_ERROR_DDP_MSN_RANGE, HDL_DETAIL_OUT_OF_WINDOW);
	else if (s->mo != iwarp->receive_offset)
		judge_fault(iwarp, RDMAP_ERROR_DDP_INVALID_MO, HDL_DETAIL_NONE);
	else if (iwarp->receive_open && s->opcode != iwarp->receive_opcode)
		judge_fault(iwarp, RDMAP_ERROR_RDMAP_UNEXPECTED_OPCODE, HDL_DETAIL_NONE);
	else if (s->payload_bytes > HDL_MAX_MESSAGE - s->mo)
		judge_fault(iwarp, RDMAP_ERROR_DDP_MESSAGE_TOO_LONG, HDL_DETAIL_NONE);
	else {
		iwarp->needs_receive = true;
		iwarp->place = IWARP_PLACE_RECEIVE;
	}
}

/* Does the header say what the one before it makes us expect? */
static bool continues_write(const struct iwarp *iwarp)
{
	const struct rdmap_segment *s = &iwarp->segment;
	return iwarp->write_open && s->stag == iwarp->write_stag && s->to == iwarp->write_to;
}

static void judge_write(struct iwarp *iwarp)
{
	/* RFC 5041 section 5.1 (f): a segment without payload is not checked. */
	if (iwarp->segment.payload_bytes == 0)
		return;
	bool now = !iwarp->in.crc || iwarp->whole || continues_write(iwarp);
	iwarp->place = now ? IWARP_PLACE_WRITE : IWARP_PLACE_HOLD;
}

/* Is it the answer to the read that shows that we are ready? */
static bool answers_ready_read(const struct iwarp *iwarp)
{
	const struct rdmap_segment *s = &iwarp->segment;
	return iwarp->ready_read && s->stag == IWARP_READY_STAG && s->payload_bytes == 0 && s->last;
}

/* An answer is compared with the oldest open read, never with the table: only that one may be
 * answered, from where it stands, and to its end. */
static void judge_response(struct iwarp *iwarp)
{
	const struct rdmap_segment *s = &iwarp->segment;
	const struct wqe_send *wqe = iwarp_oldest_read(iwarp);
	if (answers_ready_read(iwarp))
		return;
	if (iwarp->ready_read || wqe == NULL || wqe->opcode != HDL_OP_READ || s->stag != wqe->msn) {
		judge_fault(iwarp, RDMAP_ERROR_DDP_INVALID_STAG, HDL_DETAIL_NONE);
		return;
	}
	uint32_t left = wqe->length - wqe->got;
	if (s->to != wqe->got || s->payload_bytes > left)
		judge_fault(iwarp, RDMAP_ERROR_DDP_BOUNDS, HDL_DETAIL_NONE);
	else if (s->last && s->payload_bytes < left)
		judge_fault(iwarp, RDMAP_ERROR_RDMAP_STREAM_FAILED, HDL_DETAIL_NONE);
	else if (s->payload_bytes > 0)
		iwarp->place = IWARP_PLACE_READ;
}

static void judge_result(struct iwarp *iwarp)
{
	const struct rdmap_segment *s = &iwarp->segment;
	const struct wqe_send *wqe = iwarp_oldest_read(iwarp);
	if (s->msn != iwarp->expected_result)
		judge_fault(iwarp, RDMAP_ERROR_DDP_MSN_RANGE, HDL_DETAIL_OUT_OF_WINDOW);
	else if (iwarp->ready_read || wqe == NULL || !request_is_atomic(wqe) ||
	         s->u.atomic_response.id != wqe->msn)
		judge_fault(iwarp, RDMAP_ERROR_RDMAP_UNEXPECTED_OPCODE, HDL_DETAIL_NONE);
}

/* Is the header one that any segment could have? */
static bool judge_parse(struct iwarp *iwarp)
{
	enum rdmap_verdict verdict = rdmap_parse(iwarp->head, iwarp->ulpdu_bytes, &iwarp->segment);
	iwarp->place = IWARP_PLACE_WASTE;
	iwarp->fault = RDMAP_ERROR_COUNT;
	if (verdict == RDMAP_OK)
		return true;
	bool wraps = verdict == RDMAP_DDP_TO_WRAP || verdict == RDMAP_READ_WRAP;
	judge_fault(iwarp, rdmap_error_of_segment(verdict),
	            wraps ? HDL_DETAIL_BOUNDS : HDL_DETAIL_NONE);
	return false;
}

void iwarp_judge(struct iwarp *iwarp)
{
	const struct rdmap_segment *s = &iwarp->segment;
	if (!judge_parse(iwarp))
		return;
	switch (s->opcode) {
	case RDMAP_WRITE:
		judge_write(iwarp);
		break;
	case RDMAP_READ_RESPONSE:
		judge_response(iwarp);
		break;
	case RDMAP_READ_REQUEST:
	case RDMAP_ATOMIC_REQUEST:
		if (s->msn != iwarp->expected_read)
			judge_fault(iwarp, RDMAP_ERROR_DDP_MSN_RANGE, HDL_DETAIL_OUT_OF_WINDOW);
		break;
	case RDMAP_ATOMIC_RESPONSE:
		judge_result(iwarp);
		break;
	case RDMAP_TERMINATE:
		if (s->msn != 1)
			judge_fault(iwarp, RDMAP_ERROR_DDP_MSN_RANGE, HDL_DETAIL_OUT_OF_WINDOW);
		break;
	default:
		judge_receive(iwarp);
	}
}

/* --- before their turn --- */

/* A part of a read that may not be the oldest, and from anywhere in it. */
static void early_response(struct iwarp *iwarp)
{
	const struct rdmap_segment *s = &iwarp->segment;
	const struct wqe_send *wqe = iwarp_named_read(iwarp, s->stag);
	if (wqe == NULL || wqe->opcode != HDL_OP_READ)
		judge_fault(iwarp, RDMAP_ERROR_DDP_INVALID_STAG, HDL_DETAIL_NONE);
	else if (s->to > wqe->length || s->payload_bytes > wqe->length - s->to)
		judge_fault(iwarp, RDMAP_ERROR_DDP_BOUNDS, HDL_DETAIL_NONE);
	else if (s->payload_bytes > 0)
		iwarp->place = IWARP_PLACE_READ;
}

/* Whether its number and offset are those of the next octets is known when its turn comes. */
static void early_receive(struct iwarp *iwarp)
{
	const struct rdmap_segment *s = &iwarp->segment;
	if (s->msn - iwarp->expected_send >= IWARP_EARLY)
		judge_fault(iwarp, RDMAP_ERROR_DDP_MSN_RANGE, HDL_DETAIL_OUT_OF_WINDOW);
	else if (s->mo > HDL_MAX_MESSAGE || s->payload_bytes > HDL_MAX_MESSAGE - s->mo)
		judge_fault(iwarp, RDMAP_ERROR_DDP_MESSAGE_TOO_LONG, HDL_DETAIL_NONE);
	else if (s->payload_bytes > 0)
		iwarp->place = IWARP_PLACE_RECEIVE;
}

void iwarp_judge_early(struct iwarp *iwarp)
{
	if (!judge_parse(iwarp))
		return;
	switch (iwarp->segment.opcode) {
	case RDMAP_WRITE:
		judge_write(iwarp);
		break;
	case RDMAP_READ_RESPONSE:
		early_response(iwarp);
		break;
	case RDMAP_READ_REQUEST:
	case RDMAP_ATOMIC_REQUEST:
		/* MEMMGT figure 18A steps 1804 and 1806. */
		if (!iwarp_reserve(iwarp))
			judge_fault(iwarp, RDMAP_ERROR_DDP_NO_BUFFER, respond_no_room(iwarp->qp));
		break;
	case RDMAP_ATOMIC_RESPONSE:
	case RDMAP_TERMINATE:
		break;
	default:
		early_receive(iwarp);
	}
}

/* --- placing --- */

/* The segment for table D, in octets of a stream or in numbers of segments. */
static struct tpt_segment place_segment(const struct iwarp *iwarp)
{
	const struct iwarp_window *window = iwarp->window;
	uint32_t position = (uint32_t)iwarp->in.position;
	struct tpt_segment segment = {.last = iwarp->segment.last,
	                              .sn = position - 1,
	                              .next_sn = position,
	                              .window_end = position};
	if (window == NULL)
		return segment;
	bool early = iwarp->number != window->expected;
	segment.sn = iwarp->number;
	segment.next_sn = early ? window->expected : window->expected + 1;
	segment.window_end = window->expected + IWARP_EARLY;
	return segment;
}

void iwarp_place_refused(struct iwarp *iwarp, const struct sg_result *result)
{
	static const uint8_t refused[] = {[IWARP_PLACE_RECEIVE] = IWARP_REFUSED_RECEIVE,
	                                  [IWARP_PLACE_WRITE] = IWARP_REFUSED_RANGE,
	                                  [IWARP_PLACE_READ] = IWARP_REFUSED_READ};
	iwarp->refused = refused[iwarp->place];
	iwarp->result = *result;
	/* Nothing was refused, and yet there is no run: the list is too short. */
	if (iwarp->result.detail == HDL_DETAIL_NONE)
		iwarp->result.detail = HDL_DETAIL_BOUNDS;
	iwarp->place = IWARP_PLACE_WASTE;
}

/* All of the segment is checked before any of it is placed, however it arrives. */
bool iwarp_place_list(struct iwarp *iwarp, uint32_t offset, struct hdl_sge *piece, struct sg *to)
{
	struct engine *engine = iwarp->engine;
	struct qp *qp = iwarp->qp;
	const struct rdmap_segment *s = &iwarp->segment;
	uint32_t bytes = (uint32_t)s->payload_bytes;
	if (iwarp->place == IWARP_PLACE_RECEIVE) {
		if (op_receive_list(engine, qp, s->msn - iwarp->expected_send, s->mo, bytes, to) ==
		    OP_RECEIVED) {
			sg_skip(to, offset);
			return true;
		}
		iwarp->refused = IWARP_REFUSED_TOO_LONG;
		iwarp->place = IWARP_PLACE_WASTE;
		return false;
	}
	if (iwarp->place == IWARP_PLACE_READ) {
		struct wqe_send *wqe = iwarp_named_read(iwarp, s->stag);
		*to = sg_own(engine, qp, wqe_sge(wqe), wqe->num_sge, HDL_ACCESS_LOCAL_WRITE);
		sg_skip(to, s->to + offset);
		return true;
	}
	*piece = (struct hdl_sge){.addr = s->to, .length = bytes, .key = {s->stag}};
	const struct tpt_segment segment = place_segment(iwarp);
	struct sg_result result = {.key = {s->stag}};
	if ((qp->attr.access & HDL_ACCESS_REMOTE_WRITE) == 0) { /* whatever its tag */
		judge_fault(iwarp, RDMAP_ERROR_RDMAP_ACCESS, HDL_DETAIL_NONE);
		return false;
	}
	result.detail = respond_check(engine, qp, piece, HDL_ACCESS_REMOTE_WRITE, &segment, to);
	if (result.detail == HDL_DETAIL_NONE) {
		sg_skip(to, offset);
		return true;
	}
	iwarp_place_refused(iwarp, &result);
	return false;
}

bool iwarp_place_bytes(struct iwarp *iwarp, uint32_t offset, const uint8_t *bytes, uint32_t count)
{
	struct hdl_sge piece, plain;
	struct sg to, from = sg_plain(&plain, bytes, count);
	if (!iwarp_place_list(iwarp, offset, &piece, &to))
		return false;
	struct sg_result result =
	        sg_move(&iwarp->engine->own.ops, MOVE_BOTH_OWN, &to, &from, count);
	if (result.detail == HDL_DETAIL_NONE)
		return true;
	iwarp_place_refused(iwarp, &result);
	return false;
}

/* The memory of @stag is used by a message whose last segment for it is the one that is there. */
static void place_touch(struct iwarp *iwarp, uint32_t stag)
{
	struct tpt_segment segment = place_segment(iwarp);
	segment.last = true;
	if (respond_touch(iwarp->engine, (struct hdl_key){stag}, &segment) == TPT_TERMINATE)
		judge_fault(iwarp, iwarp_error_of(HDL_DETAIL_TOUCHED, true), HDL_DETAIL_TOUCHED);
}

void iwarp_touch(struct iwarp *iwarp)
{
	if (iwarp->segment.last && iwarp->segment.payload_bytes > 0)
		place_touch(iwarp, iwarp->segment.stag);
}

/* --- effects --- */

/* The segment was good, but not what it asked for. */
static void deliver_refused(struct iwarp *iwarp)
{
	struct engine *engine = iwarp->engine;
	const struct sg_result result = iwarp->result;
	struct wqe_send *wqe;
	switch (iwarp->refused) {
	case IWARP_REFUSED_TOO_LONG:
		op_refuse_part(engine, iwarp->qp, NULL);
		iwarp_refuse(iwarp, RDMAP_ERROR_DDP_MESSAGE_TOO_LONG, HDL_DETAIL_BOUNDS, false);
		break;
	case IWARP_REFUSED_RECEIVE: /* our own fault, which the completion reports: no event */
		op_refuse_part(engine, iwarp->qp, &result);
		iwarp_refuse(iwarp, RDMAP_ERROR_RDMAP_CATASTROPHIC, HDL_DETAIL_NONE, true);
		break;
	case IWARP_REFUSED_READ:
		wqe = iwarp_oldest_read(iwarp);
		request_refused(engine, wqe, &result);
		iwarp_request_failed(iwarp, wqe);
		break;
	default:
		if (result.detail == HDL_DETAIL_GONE)
			op_memory_gone(engine, result.key);
		iwarp_refuse(iwarp, iwarp_error_of(result.detail, true), result.detail, false);
	}
}

/* The message of @length bytes on queue 0 is complete. */
static void deliver_message(struct iwarp *iwarp, uint32_t length, uint32_t word, uint32_t wc_flags,
                            uint16_t wc_opcode)
{
	const struct rdmap_operation *op = &rdmap_operations[iwarp->segment.opcode];
	const struct op_message message = {.length = length,
	                                   .src_qpn = iwarp->qp->attr.dest_qpn,
	                                   .imm = word,
	                                   .wc_flags = wc_flags,
	                                   .wc_opcode = wc_opcode,
	                                   .solicited = op->solicited};
	enum hdl_detail detail;
	struct hdl_key key;
	iwarp->expected_send++;
	iwarp->receive_offset = 0;
	iwarp->receive_open = false;
	enum op_received received = op_receive(iwarp->engine, iwarp->qp, &message, &detail, &key);
	if (received == OP_RECEIVED)
		counter_add(&iwarp->engine->counters[ENGINE_BYTES_RECEIVED], length);
	else if (received == OP_INVALIDATE_REFUSED)
		iwarp_refuse(iwarp, RDMAP_ERROR_RDMAP_PROTECT_INVALIDATE, detail, true);
	else /* pairs with op_hold_receive() */
		iwarp_refuse(iwarp, RDMAP_ERROR_DDP_NO_BUFFER, HDL_DETAIL_NONE, false);
}

static void deliver_send(struct iwarp *iwarp)
{
	const struct rdmap_segment *s = &iwarp->segment;
	bool invalidates = rdmap_operations[s->opcode].invalidates;
	iwarp->receive_open = true;
	iwarp->receive_opcode = (uint8_t)s->opcode;
	iwarp->receive_offset += (uint32_t)s->payload_bytes;
	iwarp->write_bytes = 0;
	if (s->last)
		deliver_message(iwarp, iwarp->receive_offset, s->invalidate_stag,
		                invalidates ? HDL_WC_WITH_INVALIDATE : 0, HDL_WC_RECV);
}

/* RFC 7306 section 6: usually it follows an RDMA Write, and says that it is complete. */
static void deliver_immediate(struct iwarp *iwarp)
{
	uint32_t word, length = iwarp->write_bytes;
	be32_store((uint8_t *)&word, (uint32_t)(iwarp->segment.u.immediate >> 32));
	iwarp->write_bytes = 0;
	deliver_message(iwarp, length, word, HDL_WC_WITH_IMM, HDL_WC_RECV_WRITE_IMM);
}

/* Table D for the message that the segment belongs to. It does not matter which segments the peer
 * divides a message into: the last one may bring no octets, or go on with the memory of another
 * tag, and yet what the message has touched is over. */
static void write_touch(struct iwarp *iwarp)
{
	const struct rdmap_segment *s = &iwarp->segment;
	bool bytes = s->payload_bytes > 0;
	if (iwarp->write_touches && s->stag != iwarp->write_stag) {
		place_touch(iwarp, iwarp->write_stag);
		iwarp->write_touches = false;
	}
	iwarp->write_touches |= bytes;
	if (!s->last || !iwarp->write_touches)
		return;
	iwarp->write_touches = false;
	if (iwarp->window == NULL || !bytes)
		place_touch(iwarp, s->stag);
	else /* when it came */
		respond_line_up(iwarp->engine, (struct hdl_key){s->stag}, iwarp->number + 1);
}

static void deliver_write(struct iwarp *iwarp)
{
	const struct rdmap_segment *s = &iwarp->segment;
	uint32_t bytes = (uint32_t)s->payload_bytes;
	counter_add(&iwarp->engine->counters[ENGINE_BYTES_WRITTEN], bytes);
	if (!iwarp->write_open)
		iwarp->write_bytes = 0;
	iwarp->write_bytes += bytes;
	write_touch(iwarp);
	iwarp->write_open = !s->last;
	iwarp->write_stag = s->stag;
	iwarp->write_to = s->to + bytes;
	if (iwarp->fault != RDMAP_ERROR_COUNT)
		iwarp_refuse(iwarp, (enum rdmap_error)iwarp->fault, iwarp->result.detail, false);
}

static void deliver_response(struct iwarp *iwarp)
{
	const struct rdmap_segment *s = &iwarp->segment;
	if (iwarp->ready_read) {
		iwarp->ready_read = false;
		if (iwarp->qp->next != wq_tail(&iwarp->qp->sq))
			engine_activate(iwarp->engine, iwarp->qp);
		return;
	}
	struct wqe_send *wqe = iwarp_oldest_read(iwarp);
	wqe->got += (uint32_t)s->payload_bytes;
	counter_add(&iwarp->engine->counters[ENGINE_BYTES_READ], s->payload_bytes);
	if (s->last)
		iwarp_read_done(iwarp, wqe);
}

static void deliver_result(struct iwarp *iwarp)
{
	struct wqe_send *wqe = iwarp_oldest_read(iwarp);
	uint64_t original = iwarp->segment.u.atomic_response.original;
	iwarp->expected_result++;
	if (request_scatter(iwarp->engine, iwarp->qp, wqe, 0, &original, sizeof(original)))
		iwarp_read_done(iwarp, wqe);
	else
		iwarp_request_failed(iwarp, wqe);
}

void iwarp_deliver(struct iwarp *iwarp)
{
	respond_established(iwarp->engine, iwarp->qp);
	if (iwarp->place == IWARP_PLACE_HOLD && iwarp->hold != NULL) {
		iwarp->place = IWARP_PLACE_WRITE;
		iwarp_place_bytes(iwarp, 0, iwarp->hold->bytes, iwarp->in.body_bytes);
	}
	if (iwarp->fault != RDMAP_ERROR_COUNT) {
		counter_add(&iwarp->engine->counters[ENGINE_BAD_PACKETS], 1);
		iwarp_refuse(iwarp, (enum rdmap_error)iwarp->fault, iwarp->result.detail, false);
		return;
	}
	if (iwarp->refused != IWARP_REFUSED_NONE) {
		deliver_refused(iwarp);
		return;
	}
	counter_add(&iwarp->engine->counters[ENGINE_PACKETS_IN], 1);
	switch (iwarp->segment.opcode) {
	case RDMAP_WRITE:
		deliver_write(iwarp);
		break;
	case RDMAP_READ_RESPONSE:
		deliver_response(iwarp);
		break;
	case RDMAP_READ_REQUEST:
	case RDMAP_ATOMIC_REQUEST:
		iwarp_asked(iwarp);
		break;
	case RDMAP_ATOMIC_RESPONSE:
		deliver_result(iwarp);
		break;
	case RDMAP_TERMINATE:
		iwarp_terminated(iwarp, &iwarp->segment.u.terminate);
		break;
	case RDMAP_IMMEDIATE:
	case RDMAP_IMMEDIATE_SE:
		deliver_immediate(iwarp);
		break;
	default:
		deliver_send(iwarp);
	}
}
