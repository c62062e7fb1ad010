/* Captures of the same-host path as iWARP; see capture_iwarp.h. */
#include "transport/capture_iwarp.h"

#include <string.h>

#include "base/crc.h"
#include "transport/request.h"
#include "transport/sg.h"
#include "wire/be.h"
#include "wire/mpa_connect.h"
#include "wire/roce.h"

#define REQUESTER_PORTS 0xc000u /* TCP ports: a quarter of them, by queue pair number */
#define RESPONDER_PORTS 0x8000u
#define PORT_MASK       0x3fffu
#define ALL_BITS        UINT64_MAX

/* Where the payload of a message is; NULL: it has none. */
struct octets {
	const struct copy_ops *copy;
	struct sg list;
	struct hdl_sge piece;
	bool gone;
};

static struct capture_iwarp *iwarp_of(const struct qp *qp)
{
	return qp->capture->iwarp;
}

static void iwarp_put(struct capture_iwarp *iwarp, bool inbound, const uint8_t *bytes, size_t count)
{
	capture_stream_put(&iwarp->stream, inbound, bytes, count);
}

/* --- the connection --- */

static void put_frame(struct capture_iwarp *iwarp, const struct qp *qp, enum mpa_frame frame)
{
	uint8_t bytes[MPA_CONNECT_MAX_BYTES];
	bool reply = frame == MPA_REPLY;
	uint16_t out = qp->attr.max_rd_atomic, in = qp->attr.max_dest_rd_atomic;
	const struct mpa_connect c = {.frame = frame,
	                              .revision = 2,
	                              .crc = true,
	                              .enhanced = true,
	                              .ird = reply ? out : in,
	                              .ord = reply ? in : out};
	iwarp_put(iwarp, reply, bytes, mpa_connect_encode(&c, bytes, sizeof(bytes)));
}

static void capture_begin(struct capture_iwarp *iwarp, struct engine *engine, const struct qp *qp,
                          const struct roce_path *path)
{
	struct capture_end own = {
	        .port = (uint16_t)(REQUESTER_PORTS | ((qp->qpn + iwarp->count) & PORT_MASK))};
	struct capture_end peer = {
	        .port = (uint16_t)(RESPONDER_PORTS | (qp->attr.dest_qpn & PORT_MASK))};
	memcpy(own.gid, path->sgid, sizeof(own.gid));
	memcpy(peer.gid, path->dgid, sizeof(peer.gid));
	iwarp->begun = true;
	iwarp->over = false;
	iwarp->count++;
	iwarp->send_msn = iwarp->read_msn = iwarp->result_msn = 1;
	capture_stream_begin(&iwarp->stream, engine, &own, &peer, true, path->traffic_class);
	put_frame(iwarp, qp, MPA_REQUEST);
	put_frame(iwarp, qp, MPA_REPLY);
}

void capture_iwarp_end(struct capture_iwarp *iwarp)
{
	if (iwarp->begun) {
		capture_stream_end(&iwarp->stream, false, false);
		capture_stream_end(&iwarp->stream, true, false);
	}
	iwarp->begun = false;
}

/* --- FPDUs --- */

/* The FPDU of @segment with the next @bytes of @from. */
static void put_fpdu(struct capture_iwarp *iwarp, bool inbound, const struct rdmap_segment *segment,
                     struct octets *from, uint32_t bytes)
{
	struct capture *capture = iwarp->stream.engine->capture;
	struct mpa_sender sender = {.crc = true};
	uint8_t head[MPA_LENGTH_BYTES + RDMAP_MAX_HEADER_BYTES], tail[3 + MPA_CRC_BYTES];
	size_t header = rdmap_encode(segment, mpa_fpdu_ulpdu(head), RDMAP_MAX_HEADER_BYTES);
	uint32_t sum = mpa_fpdu_open(&sender, head, header + bytes);
	if (iwarp->over || capture == NULL)
		return;
	sum = crc32c(sum, mpa_fpdu_ulpdu(head), header);
	iwarp_put(iwarp, inbound, head, MPA_LENGTH_BYTES + header);
	for (uint32_t left = bytes, some; left > 0; left -= some) {
		struct hdl_sge piece;
		some = left < sizeof(capture->payload) ? left : (uint32_t)sizeof(capture->payload);
		struct sg to = sg_plain(&piece, capture->payload, some);
		if (!from->gone)
			from->gone =
			        sg_move(from->copy, MOVE_BOTH_OWN, &to, &from->list, some).detail !=
			        HDL_DETAIL_NONE;
		if (from->gone)
			memset(capture->payload, 0, some);
		sum = crc32c(sum, capture->payload, some);
		iwarp_put(iwarp, inbound, capture->payload, some);
	}
	iwarp_put(iwarp, inbound, tail, mpa_fpdu_seal_at(&sender, tail, header + bytes, sum));
}

/* The segments of a message of @length octets, like @first. */
static void put_segments(struct capture_iwarp *iwarp, bool inbound,
                         const struct rdmap_segment *first, struct octets *from, uint32_t length)
{
	size_t header = ddp_header_bytes(rdmap_operations[first->opcode].tagged);
	uint32_t most = (uint32_t)(mpa_mulpdu(CAPTURE_STREAM_SEGMENT, false) - header);
	uint32_t offset = 0, some;
	do {
		struct rdmap_segment segment = *first;
		some = length - offset < most ? length - offset : most;
		segment.last = offset + some == length;
		segment.to += offset;
		segment.mo = offset;
		put_fpdu(iwarp, inbound, &segment, from, some);
		offset += some;
	} while (offset < length);
}

/* --- requests --- */

static struct octets own_octets(const struct engine *engine, const struct qp *qp,
                                struct wqe_send *wqe, uint8_t access)
{
	return (struct octets){.copy = &engine->own.ops,
	                       .list = sg_own(engine, qp, wqe_sge(wqe), wqe->num_sge, access)};
}

static bool is_write(const struct wqe_send *wqe)
{
	return wqe->opcode == HDL_OP_WRITE || wqe->opcode == HDL_OP_WRITE_IMM;
}

/* A send or write, and the message with its immediate data (RFC 7306 section 6). */
static void put_data(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	struct capture_iwarp *iwarp = iwarp_of(qp);
	struct octets from = own_octets(engine, qp, wqe, HDL_ACCESS_LOCAL_READ);
	bool solicited = (wqe->flags & HDL_SEND_SOLICITED) != 0;
	bool immediate = wqe->opcode == HDL_OP_SEND_IMM || wqe->opcode == HDL_OP_WRITE_IMM;
	bool invalidates = wqe->opcode == HDL_OP_SEND_INVALIDATE;
	struct rdmap_segment segment = {.opcode = RDMAP_WRITE};
	if (wqe->flags & HDL_SEND_INLINE)
		from.list = sg_plain(&from.piece, wqe_inline(wqe), wqe->length);
	if (is_write(wqe)) {
		segment.stag = wqe->u.rdma.key.v;
		segment.to = wqe->u.rdma.addr;
	} else {
		segment.opcode =
		        invalidates ? solicited ? RDMAP_SEND_SE_INVALIDATE : RDMAP_SEND_INVALIDATE
		        : solicited && !immediate ? RDMAP_SEND_SE
		                                  : RDMAP_SEND;
		segment.msn = iwarp->send_msn++;
		segment.invalidate_stag = invalidates ? wqe->imm : 0;
	}
	put_segments(iwarp, false, &segment, &from, wqe->length);
	if (!immediate)
		return;
	segment = (struct rdmap_segment){
	        .opcode = solicited ? RDMAP_IMMEDIATE_SE : RDMAP_IMMEDIATE,
	        .last = true,
	        .msn = iwarp->send_msn++,
	        .u.immediate = (uint64_t)be32_load((const uint8_t *)&wqe->imm) << 32};
	put_fpdu(iwarp, false, &segment, NULL, 0);
}

/* The Read or Atomic Request of @wqe. */
static struct rdmap_segment read_request(const struct wqe_send *wqe, uint32_t number)
{
	struct rdmap_segment segment = {.opcode = RDMAP_READ_REQUEST, .last = true, .msn = number};
	bool add = wqe->opcode == HDL_OP_FETCH_ADD;
	if (wqe->opcode == HDL_OP_READ) {
		segment.u.read = (struct rdmap_read_request){.sink_stag = number,
		                                             .bytes = wqe->length,
		                                             .source_stag = wqe->u.rdma.key.v,
		                                             .source_to = wqe->u.rdma.addr};
		return segment;
	}
	segment.opcode = RDMAP_ATOMIC_REQUEST;
	segment.u.atomic = (struct rdmap_atomic_request){
	        .operation = add ? RDMAP_FETCH_ADD : RDMAP_COMPARE_SWAP,
	        .id = number,
	        .stag = wqe->u.atomic.key.v,
	        .to = wqe->u.atomic.addr,
	        .data = add ? wqe->u.atomic.compare_add : wqe->u.atomic.swap,
	        .mask = add ? 0 : ALL_BITS,
	        .compare = add ? 0 : wqe->u.atomic.compare_add,
	        .compare_mask = add ? 0 : ALL_BITS};
	return segment;
}

static void name_request(struct qp *qp, const struct wqe_send *wqe)
{
	struct capture_stream *stream = &iwarp_of(qp)->stream;
	stream->has_wr_id = true;
	stream->wr_id = wqe->wr_id;
	stream->qpn = qp->qpn;
}

uint32_t capture_iwarp_request(struct engine *engine, struct qp *qp, struct wqe_send *wqe,
                               const struct roce_path *path)
{
	struct capture_iwarp *iwarp = iwarp_of(qp);
	if (!iwarp->begun)
		capture_begin(iwarp, engine, qp, path);
	name_request(qp, wqe);
	if (!request_is_read(wqe)) {
		put_data(engine, qp, wqe);
		return is_write(wqe) ? 0 : iwarp->send_msn - 1;
	}
	const struct rdmap_segment segment = read_request(wqe, iwarp->read_msn);
	put_fpdu(iwarp, false, &segment, NULL, 0);
	return iwarp->read_msn++;
}

/* --- answers --- */

void capture_iwarp_response(struct engine *engine, struct qp *qp, struct wqe_send *wqe,
                            uint32_t number)
{
	struct octets from = own_octets(engine, qp, wqe, HDL_ACCESS_LOCAL_WRITE);
	const struct rdmap_segment segment = {.opcode = RDMAP_READ_RESPONSE, .stag = number};
	name_request(qp, wqe);
	put_segments(iwarp_of(qp), true, &segment, &from, wqe->length);
}

void capture_iwarp_value(struct qp *qp, const struct wqe_send *wqe, uint32_t number, uint64_t value)
{
	struct capture_iwarp *iwarp = iwarp_of(qp);
	const struct rdmap_segment segment = {
	        .opcode = RDMAP_ATOMIC_RESPONSE,
	        .last = true,
	        .msn = iwarp->result_msn++,
	        .u.atomic_response = {.id = number, .original = value}};
	name_request(qp, wqe);
	put_fpdu(iwarp, true, &segment, NULL, 0);
}

/* The header that a Terminate about @wqe quotes: that of its last segment, as far as it is known.
 * */
static size_t refused_header(const struct wqe_send *wqe, uint32_t number, uint8_t *out,
                             size_t out_bytes)
{
	struct rdmap_segment segment = {.opcode = RDMAP_SEND, .last = true, .msn = number};
	if (request_is_read(wqe)) {
		segment = read_request(wqe, number);
	} else if (is_write(wqe)) {
		segment.opcode = RDMAP_WRITE;
		segment.stag = wqe->u.rdma.key.v;
		segment.to = wqe->u.rdma.addr;
	}
	return rdmap_encode(&segment, out, out_bytes);
}

void capture_iwarp_refusal(struct qp *qp, const struct wqe_send *wqe, uint32_t number,
                           enum rdmap_error error)
{
	struct capture_iwarp *iwarp = iwarp_of(qp);
	uint8_t header[RDMAP_MAX_HEADER_BYTES];
	size_t bytes = refused_header(wqe, number, header, sizeof(header));
	struct rdmap_segment segment = {.opcode = RDMAP_TERMINATE, .last = true, .msn = 1};
	rdmap_terminate_make(error, header, bytes, &segment.u.terminate);
	name_request(qp, wqe);
	put_fpdu(iwarp, true, &segment, NULL, 0);
	iwarp->over = true;
}
