/* Captures: reconstructs the packets of the same-host path. See capture.h. */
#include "transport/capture.h"

#include <string.h>

#include "transport/capture_iwarp.h"
#include "transport/ib/ib.h"
#include "transport/multicast.h"
#include "transport/request.h"
#include "transport/sg.h"
#include "wire/be.h"
#include "wire/cell.h"
#include "wire/ip_headers.h"

#define ETHERNET_BYTES 14u
#define DEFAULT_PKEY   0xffffu
#define FIRST_SRC_PORT \
	0xc000u /* source ports of RoCEv2: 14 bits that distinguish flows (annex A17.9.2) */

/* What the packets of one message have in common. */
struct talk {
	struct capture *capture;
	struct qp *qp;
	const struct wqe_send *wqe;
	struct roce_path path; /* of requests */
	uint32_t requester, responder;
	uint32_t mtu;
	uint8_t transport; /* enum ib_transport */
	uint64_t wr_id;
	bool again; /* its request was recorded before */
};

/* Where the bytes of a message are. */
struct source {
	const struct copy_ops *copy;
	struct sg list;
	struct hdl_sge piece; /* of plain memory */
	bool gone;
};

/* --- paths --- */

/* Represent an IPv4 address in IPv6, with the prefix for this purpose (RFC 6052 section 2.1). */
static void as_ipv6(uint8_t *gid)
{
	static const uint8_t prefix[12] = {0x00, 0x64, 0xff, 0x9b};
	if (roce_gid_is_ipv4(gid))
		memcpy(gid, prefix, sizeof(prefix));
}

static struct roce_path path_between(const struct hdl_gid *from, const struct hdl_gid *to,
                                     uint32_t entropy)
{
	struct roce_path path = {
	        .src_port = (uint16_t)(FIRST_SRC_PORT | ((entropy ^ entropy >> 14) & 0x3fff)),
	        .dont_fragment = true,
	        .udp_checksum = true,
	        .hop_limit = CAPTURE_HOPS};
	memcpy(path.sgid, from->raw, IB_GID_BYTES);
	memcpy(path.dgid, to->raw, IB_GID_BYTES);
	if (roce_gid_is_ipv4(path.sgid) != roce_gid_is_ipv4(path.dgid)) {
		as_ipv6(path.sgid);
		as_ipv6(path.dgid);
	}
	return path;
}

static void set_global(struct roce_path *path, uint8_t hop_limit, uint8_t traffic_class,
                       uint32_t flow_label)
{
	if (hop_limit != 0)
		path->hop_limit = hop_limit;
	path->traffic_class = traffic_class;
	path->flow_label = flow_label & 0xfffff;
}

/* For ends that address each other by LID, the GIDs of their ports are used. */
static struct roce_path connected_path(const struct engine *engine, const struct qp *qp)
{
	const struct hdl_ah_attr *ah = &qp->attr.ah;
	const struct hdl_gid *from = &engine->gid, *to = &engine->gid;
	if (ah->is_global) {
		from = &engine->gids[ah->sgid_index];
		to = &ah->dgid;
	} else if (qp->link != LINK_NONE) {
		to = &engine->links[qp->link].gid;
	}
	struct roce_path path = path_between(from, to, qp->qpn ^ qp->attr.dest_qpn);
	if (ah->is_global)
		set_global(&path, ah->hop_limit, ah->traffic_class, ah->flow_label);
	return path;
}

static struct roce_path datagram_path(const struct engine *engine, const struct qp *qp,
                                      const struct wqe_send *wqe)
{
	const struct hdl_gid *from = &engine->gid;
	struct hdl_gid to = engine->gid;
	bool grouped = wqe->u.ud.link < LINK_WIRE && wqe->u.ud.link >= MULTICAST_LINK;
	if (wqe->u.ud.is_global || grouped) {
		from = &engine->gids[wqe->u.ud.sgid_index];
		memcpy(to.raw, wqe->u.ud.dgid, sizeof(to.raw));
	} else if (wqe->u.ud.link < LINK_WIRE) {
		to = engine->links[wqe->u.ud.link].gid;
	}
	struct roce_path path = path_between(from, &to, qp->qpn ^ wqe->u.ud.qpn);
	if (wqe->u.ud.is_global)
		set_global(&path, wqe->u.ud.hop_limit, wqe->u.ud.traffic_class,
		           wqe->u.ud.flow_label);
	return path;
}

static struct talk talk_of(struct engine *engine, struct qp *qp, const struct wqe_send *wqe)
{
	static const uint8_t transports[] = {[HDL_QP_RC] = IB_RC,
	                                     [HDL_QP_UC] = IB_UC,
	                                     [HDL_QP_UD] = IB_UD,
	                                     [HDL_QP_XRC_INI] = IB_XRC,
	                                     [HDL_QP_XRC_TGT] = IB_XRC};
	bool datagram = qp->type == HDL_QP_UD;
	return (struct talk){
	        .capture = engine->capture,
	        .qp = qp,
	        .wqe = wqe,
	        .path = datagram ? datagram_path(engine, qp, wqe) : connected_path(engine, qp),
	        .requester = qp->qpn,
	        .responder = datagram ? wqe->u.ud.qpn : qp->attr.dest_qpn,
	        .mtu = datagram || qp->attr.path_mtu == 0 ? IB_MAX_MTU_BYTES : qp->attr.path_mtu,
	        .transport = transports[qp->type],
	        .wr_id = wqe->wr_id};
}

/* --- packets --- */

static struct ib_packet packet_of(const struct talk *talk, uint8_t operation, uint32_t psn)
{
	struct ib_packet packet;
	ib_packet_clear(&packet);
	packet.bth = (struct ib_bth){.opcode = (uint8_t)(talk->transport | operation),
	                             .migreq = true,
	                             .pkey = DEFAULT_PKEY,
	                             .psn = psn & IB_PSN_MASK};
	return packet;
}

/* Record @packet. @missing: how many bytes at the end of its payload are unknown, and therefore
 * everything that depends on them. */
static void capture_put(const struct talk *talk, struct ib_packet *packet, bool answer,
                        size_t missing)
{
	struct capture *capture = talk->capture;
	struct roce_path path = talk->path;
	if (answer) {
		memcpy(path.sgid, talk->path.dgid, IB_GID_BYTES);
		memcpy(path.dgid, talk->path.sgid, IB_GID_BYTES);
	}
	path.ip_id = ++capture->ip_id;
	packet->bth.dest_qp = answer ? talk->requester : talk->responder;
	size_t length = roce_encode(&path, packet, capture->packet, sizeof(capture->packet));
	if (length == 0)
		return;
	size_t cut =
	        missing + (missing > 0 ? ib_pad_bytes(packet->payload_bytes) + IB_ICRC_BYTES : 0);
	struct capture_record record = {.bytes = capture->packet,
	                                .captured = length - cut,
	                                .length = length,
	                                .inbound = answer,
	                                .operation = ib_opcode(packet->bth.opcode)->name,
	                                .qpn = talk->requester,
	                                .has_wr_id = true,
	                                .wr_id = talk->wr_id,
	                                .again = talk->again};
	capture->take(capture->context, &record);
}

/* Fill the payload of @packet with the next @bytes of @source. Returns how many of them are
 * unavailable. */
static size_t fill(const struct talk *talk, struct source *source, uint32_t bytes,
                   struct ib_packet *packet)
{
	struct hdl_sge piece;
	struct sg to = sg_plain(&piece, talk->capture->payload, bytes);
	packet->payload = talk->capture->payload;
	packet->payload_bytes = bytes;
	if (bytes == 0)
		return 0;
	if (!source->gone)
		source->gone =
		        sg_move(source->copy, MOVE_BOTH_OWN, &to, &source->list, bytes).detail !=
		        HDL_DETAIL_NONE;
	if (source->gone)
		memset(talk->capture->payload, 0, bytes);
	return source->gone ? bytes : 0;
}

/* On iWARP only a refusal is a message. */
static void put_terminate(const struct talk *talk, const struct capture_message *message,
                          uint8_t syndrome)
{
	enum rdmap_error error = RDMAP_ERROR_RDMAP_UNSPECIFIED;
	if (syndrome == ib_aeth_syndrome(IB_AETH_NAK, IB_NAK_REMOTE_ACCESS_ERROR))
		error = RDMAP_ERROR_RDMAP_PROTECTION;
	else if (syndrome == ib_aeth_syndrome(IB_AETH_NAK, IB_NAK_REMOTE_OPERATIONAL_ERROR))
		error = RDMAP_ERROR_RDMAP_STREAM_FAILED;
	else if (syndrome != ib_aeth_syndrome(IB_AETH_NAK, IB_NAK_INVALID_REQUEST))
		return;
	capture_iwarp_refusal(talk->qp, talk->wqe, message->number, error);
}

static void put_answer(const struct talk *talk, const struct capture_message *message,
                       uint8_t syndrome, uint32_t psn, uint32_t count)
{
	if (talk->qp->capture->iwarp != NULL) {
		put_terminate(talk, message, syndrome);
		return;
	}
	struct ib_packet packet = packet_of(talk, IB_OP_ACK, psn);
	packet.aeth = (struct ib_aeth){.syndrome = syndrome, .msn = count};
	capture_put(talk, &packet, true, 0);
}

static uint8_t ack_syndrome(void)
{
	return ib_aeth_syndrome(IB_AETH_ACK, IB_AETH_NO_CREDITS);
}

/* --- numbers --- */

void capture_restart(struct capture_qp *state)
{
	state->begun = false;
	state->open.used = false;
	for (uint32_t i = 0; i <= state->mask; i++)
		state->sent[i].used = false;
	if (state->iwarp != NULL)
		capture_iwarp_end(state->iwarp);
}

/* How many packets @bytes take. A read takes the packets of its response (IBTA section 9.7.2). */
static uint32_t packets_of(const struct talk *talk, uint32_t bytes)
{
	return bytes == 0 ? 1 : (bytes - 1) / talk->mtu + 1;
}

/* The numbers of @wqe. A message that is sent again keeps its numbers. A message that has been
 * started but not sent yet has no number in the lane; each queue pair has at most one of these. */
static struct capture_message *capture_message_of(const struct talk *talk, struct qp *qp,
                                                  const struct wqe_send *wqe)
{
	struct capture_qp *state = qp->capture;
	struct capture_message *open = &state->open, *sent = &state->sent[wqe->msn & state->mask];
	if (wqe->numbered && sent->used && sent->msn == wqe->msn)
		return sent;
	if (!state->begun) {
		state->begun = true;
		state->next_psn = qp->attr.sq_psn;
		state->count = 0;
	}
	if (!open->used) {
		bool atomic = request_is_atomic(wqe);
		uint32_t packets = atomic ? 1 : packets_of(talk, wqe->length);
		*open = (struct capture_message){.used = true,
		                                 .first_psn = state->next_psn,
		                                 .last_psn = state->next_psn + packets - 1,
		                                 .count = ++state->count};
		state->next_psn += packets;
	}
	if (!wqe->numbered)
		return open;
	*sent = *open;
	sent->msn = wqe->msn;
	open->used = false;
	return sent;
}

/* --- requests --- */

/* The operation of one packet of a message. */
static uint8_t operation_of(const struct talk *talk, const struct wqe_send *wqe, bool first,
                            bool last)
{
	bool immediate = wqe->opcode == HDL_OP_SEND_IMM || wqe->opcode == HDL_OP_WRITE_IMM;
	/* UC has no such operation on a wire: there it would be a plain send. */
	bool invalidates = wqe->opcode == HDL_OP_SEND_INVALIDATE && talk->transport != IB_UC;
	bool write = wqe->opcode == HDL_OP_WRITE || wqe->opcode == HDL_OP_WRITE_IMM;
	uint8_t base = write ? IB_OP_WRITE_FIRST : IB_OP_SEND_FIRST;
	if (!last)
		return (uint8_t)(base + (first ? IB_OP_SEND_FIRST : IB_OP_SEND_MIDDLE));
	if (invalidates)
		return first ? IB_OP_SEND_ONLY_INV : IB_OP_SEND_LAST_INV;
	return (uint8_t)(base + (first ? IB_OP_SEND_ONLY : IB_OP_SEND_LAST) + (immediate ? 1 : 0));
}

/* Immediate data is a sequence of bytes to the application; only this code treats it as a number.
 */
static uint32_t immediate_of(const struct wqe_send *wqe)
{
	uint8_t bytes[sizeof(wqe->imm)];
	memcpy(bytes, &wqe->imm, sizeof(bytes));
	return be32_load(bytes);
}

static struct source capture_own_source(const struct engine *engine, const struct qp *qp,
                                        struct wqe_send *wqe, uint8_t access)
{
	struct source source = {.copy = &engine->own.ops};
	source.list = sg_own(engine, qp, wqe_sge(wqe), wqe->num_sge, access);
	return source;
}

static void put_data_request(struct engine *engine, struct qp *qp, struct wqe_send *wqe,
                             const struct talk *talk, uint32_t psn)
{
	struct source source = capture_own_source(engine, qp, wqe, HDL_ACCESS_LOCAL_READ);
	if (wqe->flags & HDL_SEND_INLINE)
		source.list = sg_plain(&source.piece, wqe_inline(wqe), wqe->length);
	uint32_t offset = 0, bytes;
	bool last;
	do {
		bytes = wqe->length - offset < talk->mtu ? wqe->length - offset : talk->mtu;
		last = offset + bytes == wqe->length;
		struct ib_packet packet =
		        packet_of(talk, operation_of(talk, wqe, offset == 0, last), psn++);
		packet.bth.solicited = last && (wqe->flags & HDL_SEND_SOLICITED) != 0;
		packet.bth.ack_request = last && qp_reliable(qp);
		packet.deth = (struct ib_deth){.qkey = wqe->u.ud.qkey, .src_qp = qp->qpn};
		packet.xrceth = (struct ib_xrceth){.srq = wqe->remote_srq};
		packet.reth = (struct ib_reth){.addr = wqe->u.rdma.addr,
		                               .rkey = wqe->u.rdma.key.v,
		                               .length_bytes = wqe->length};
		packet.immdt = (struct ib_immdt){.data = immediate_of(wqe)};
		packet.ieth = (struct ib_ieth){.rkey = wqe->imm};
		size_t missing = fill(talk, &source, bytes, &packet);
		capture_put(talk, &packet, false, missing);
		offset += bytes;
	} while (!last);
}

static void put_read_request(struct wqe_send *wqe, const struct talk *talk, uint32_t psn)
{
	bool add = wqe->opcode == HDL_OP_FETCH_ADD;
	struct ib_packet packet = packet_of(talk,
	                                    wqe->opcode == HDL_OP_READ ? IB_OP_READ_REQUEST
	                                    : add                      ? IB_OP_FETCH_ADD
	                                                               : IB_OP_COMPARE_SWAP,
	                                    psn);
	packet.bth.ack_request = true;
	packet.xrceth = (struct ib_xrceth){.srq = wqe->remote_srq};
	packet.reth = (struct ib_reth){
	        .addr = wqe->u.rdma.addr, .rkey = wqe->u.rdma.key.v, .length_bytes = wqe->length};
	packet.atomiceth = (struct ib_atomiceth){.addr = wqe->u.atomic.addr,
	                                         .rkey = wqe->u.atomic.key.v,
	                                         .swap_or_add = add ? wqe->u.atomic.compare_add
	                                                            : wqe->u.atomic.swap,
	                                         .compare = add ? 0 : wqe->u.atomic.compare_add};
	capture_put(talk, &packet, false, 0);
}

static void put_request(struct engine *engine, struct qp *qp, struct wqe_send *wqe,
                        struct talk *talk, struct capture_message *message)
{
	if (qp->capture->iwarp != NULL) {
		if (!message->recorded)
			message->number = capture_iwarp_request(engine, qp, wqe, &talk->path);
	} else {
		talk->again = message->recorded;
		if (request_is_read(wqe))
			put_read_request(wqe, talk, message->first_psn);
		else
			put_data_request(engine, qp, wqe, talk, message->first_psn);
		talk->again = false; /* the answer is recorded once */
	}
	message->recorded = true;
}

void capture_put_request(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	struct talk talk = talk_of(engine, qp, wqe);
	struct capture_message *message = capture_message_of(&talk, qp, wqe);
	put_request(engine, qp, wqe, &talk, message);
	if (!wqe->numbered && !qp_reliable(qp))
		message->used = false; /* finished: nothing more happens to it */
}

/* --- answers --- */

static void put_read_response(struct engine *engine, struct qp *qp, struct wqe_send *wqe,
                              const struct talk *talk, const struct capture_message *message)
{
	struct source source = capture_own_source(engine, qp, wqe, HDL_ACCESS_LOCAL_WRITE);
	uint32_t offset = 0, bytes, psn = message->first_psn;
	bool last;
	if (qp->capture->iwarp != NULL) {
		capture_iwarp_response(engine, qp, wqe, message->number);
		return;
	}
	do {
		bytes = wqe->length - offset < talk->mtu ? wqe->length - offset : talk->mtu;
		last = offset + bytes == wqe->length;
		uint8_t operation =
		        last ? offset == 0 ? IB_OP_READ_RESPONSE_ONLY : IB_OP_READ_RESPONSE_LAST
		        : offset == 0 ? IB_OP_READ_RESPONSE_FIRST
		                      : IB_OP_READ_RESPONSE_MIDDLE;
		struct ib_packet packet = packet_of(talk, operation, psn++);
		packet.aeth = (struct ib_aeth){.syndrome = ack_syndrome(), .msn = message->count};
		size_t missing = fill(talk, &source, bytes, &packet);
		capture_put(talk, &packet, true, missing);
		offset += bytes;
	} while (!last);
}

static void put_value(const struct talk *talk, const struct capture_message *message,
                      uint64_t value)
{
	if (talk->qp->capture->iwarp != NULL) {
		capture_iwarp_value(talk->qp, talk->wqe, message->number, value);
		return;
	}
	struct ib_packet packet = packet_of(talk, IB_OP_ATOMIC_ACK, message->first_psn);
	packet.aeth = (struct ib_aeth){.syndrome = ack_syndrome(), .msn = message->count};
	packet.atomicack = (struct ib_atomicack){.original = value};
	capture_put(talk, &packet, true, 0);
}

void capture_put_answer(struct engine *engine, struct qp *qp, struct wqe_send *wqe, uint32_t end,
                        const struct frame_answer *answer)
{
	if (!qp_reliable(qp))
		return;
	struct talk talk = talk_of(engine, qp, wqe);
	const struct capture_message *message = capture_message_of(&talk, qp, wqe);
	if (wqe->opcode == HDL_OP_READ)
		put_read_response(engine, qp, wqe, &talk, message);
	else if (request_is_read(wqe))
		put_value(&talk, message, answer->value);
	else if (wqe->msn == end) /* the answer acknowledges those before it too */
		put_answer(&talk, message, ack_syndrome(), message->last_psn, message->count);
}

void capture_put_refusal(struct engine *engine, struct qp *qp, struct wqe_send *wqe,
                         const struct frame_answer *answer)
{
	static const uint8_t codes[ANSWER_COUNT] = {
	        [ANSWER_SEQUENCE] = IB_NAK_PSN_SEQUENCE_ERROR,
	        [ANSWER_INVALID] = IB_NAK_INVALID_REQUEST,
	        [ANSWER_ACCESS] = IB_NAK_REMOTE_ACCESS_ERROR,
	        [ANSWER_OPERATION] = IB_NAK_REMOTE_OPERATIONAL_ERROR,
	};
	/* A requester whose own memory is at fault would have sent nothing that could be answered.
	 */
	if (!qp_reliable(qp) || answer->answer == ANSWER_OWN_LIST)
		return;
	struct talk talk = talk_of(engine, qp, wqe);
	const struct capture_message *message = capture_message_of(&talk, qp, wqe);
	uint8_t syndrome = answer->answer == ANSWER_RNR
	                           ? ib_aeth_syndrome(IB_AETH_RNR_NAK, (uint8_t)answer->detail)
	                           : ib_aeth_syndrome(IB_AETH_NAK, codes[answer->answer]);
	put_answer(&talk, message, syndrome, message->first_psn, message->count - 1);
}

/* The 8 bytes that an atomic returned. */
static bool own_value(struct engine *engine, struct qp *qp, struct wqe_send *wqe, uint64_t *value)
{
	struct hdl_sge piece;
	struct sg to = sg_plain(&piece, value, sizeof(*value));
	struct sg from = sg_own(engine, qp, wqe_sge(wqe), wqe->num_sge, HDL_ACCESS_LOCAL_WRITE);
	return sg_move(&engine->own.ops, MOVE_BOTH_OWN, &to, &from, sizeof(*value)).detail ==
	       HDL_DETAIL_NONE;
}

static void put_direct_answer(struct engine *engine, struct qp *qp, struct wqe_send *wqe,
                              const struct talk *talk, const struct capture_message *message)
{
	uint64_t value;
	switch (wqe->status) {
	case HDL_WC_SUCCESS:
		if (wqe->opcode == HDL_OP_READ)
			put_read_response(engine, qp, wqe, talk, message);
		else if (!request_is_read(wqe))
			put_answer(talk, message, ack_syndrome(), message->last_psn,
			           message->count);
		else if (own_value(engine, qp, wqe, &value))
			put_value(talk, message, value);
		return;
	case HDL_WC_REM_ACCESS_ERR:
		put_answer(talk, message, ib_aeth_syndrome(IB_AETH_NAK, IB_NAK_REMOTE_ACCESS_ERROR),
		           message->first_psn, message->count - 1);
		return;
	case HDL_WC_REM_OP_ERR:
		put_answer(talk, message,
		           ib_aeth_syndrome(IB_AETH_NAK, IB_NAK_REMOTE_OPERATIONAL_ERROR),
		           message->first_psn, message->count - 1);
		return;
	default:
		put_answer(talk, message, ib_aeth_syndrome(IB_AETH_NAK, IB_NAK_INVALID_REQUEST),
		           message->first_psn, message->count - 1);
	}
}

void capture_put_direct(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	bool answered = wqe->status == HDL_WC_SUCCESS || wqe->status == HDL_WC_REM_ACCESS_ERR ||
	                wqe->status == HDL_WC_REM_OP_ERR || wqe->status == HDL_WC_REM_INV_REQ_ERR;
	/* Refused here, or there was no target: it was recorded before, if at all. */
	if (!answered) {
		qp->capture->open.used = false;
		return;
	}
	struct talk talk = talk_of(engine, qp, wqe);
	struct capture_message *message = capture_message_of(&talk, qp, wqe);
	put_request(engine, qp, wqe, &talk, message);
	if (qp_reliable(qp))
		put_direct_answer(engine, qp, wqe, &talk, message);
	message->used = false;
}

/* --- other packets in UDP datagrams --- */

void capture_datagram(struct engine *engine, const struct capture_datagram *d, uint8_t *room,
                      size_t room_bytes)
{
	struct capture *capture = engine->capture;
	bool ipv4 = roce_gid_is_ipv4(d->from.gid) && roce_gid_is_ipv4(d->to.gid);
	size_t before = ipv4 ? IPV4_BYTES : IPV6_BYTES;
	uint8_t hops = d->hops != 0 ? d->hops : CAPTURE_HOPS;
	uint8_t *udp = room + before;
	if (d->bytes > room_bytes || before + UDP_BYTES > room_bytes - d->bytes)
		return;
	struct udp_header header = {.src_port = d->from.port,
	                            .dst_port = d->to.port,
	                            .length_bytes = (uint16_t)(UDP_BYTES + d->bytes)};
	memcpy(udp + UDP_BYTES, d->data, d->bytes);
	udp_encode(&header, udp);
	if (ipv4) {
		struct ipv4_header ip = {.tos = d->tos,
		                         .total_bytes = (uint16_t)(before + UDP_BYTES + d->bytes),
		                         .dont_fragment = true,
		                         .ttl = hops,
		                         .protocol = IP_PROTO_UDP,
		                         .src = be32_load(d->from.gid + 12),
		                         .dst = be32_load(d->to.gid + 12)};
		ipv4_encode(&ip, room);
		header.checksum = udp_checksum_ipv4(&ip, udp, UDP_BYTES + d->bytes);
	} else {
		struct ipv6_header ip = {.traffic_class = d->tos,
		                         .payload_bytes = header.length_bytes,
		                         .next_header = IP_PROTO_UDP,
		                         .hop_limit = hops};
		memcpy(ip.src, d->from.gid, sizeof(ip.src));
		memcpy(ip.dst, d->to.gid, sizeof(ip.dst));
		ipv6_encode(&ip, room);
		header.checksum = udp_checksum_ipv6(&ip, udp, UDP_BYTES + d->bytes);
	}
	udp_encode(&header, udp);
	struct capture_record record = {.bytes = room,
	                                .captured = before + UDP_BYTES + d->bytes,
	                                .length = before + UDP_BYTES + d->bytes,
	                                .inbound = d->inbound,
	                                .operation = d->operation};
	capture->take(capture->context, &record);
}

void capture_put_datagram(struct engine *engine, const struct roce_path *path, uint16_t port,
                          const uint8_t *data, size_t bytes, bool inbound, const char *what)
{
	struct capture *capture = engine->capture;
	struct capture_datagram datagram = {.from.port =
	                                            path->src_port != 0 ? path->src_port : port,
	                                    .to.port = port,
	                                    .tos = path->traffic_class,
	                                    .hops = path->hop_limit,
	                                    .inbound = inbound,
	                                    .operation = what,
	                                    .data = data,
	                                    .bytes = bytes};
	memcpy(datagram.from.gid, path->sgid, sizeof(datagram.from.gid));
	memcpy(datagram.to.gid, path->dgid, sizeof(datagram.to.gid));
	if (!roce_gid_is_ipv4(path->sgid) || !roce_gid_is_ipv4(path->dgid)) {
		as_ipv6(datagram.from.gid);
		as_ipv6(datagram.to.gid);
	}
	capture_datagram(engine, &datagram, capture->packet, sizeof(capture->packet));
}

void capture_put_frame(struct engine *engine, const uint8_t to[6], const uint8_t from[6],
                       uint16_t type, const uint8_t *data, size_t bytes, bool inbound,
                       const char *what)
{
	struct capture *capture = engine->capture;
	if (bytes > sizeof(capture->packet) - ETHERNET_BYTES)
		return;
	memcpy(capture->packet, to, 6);
	memcpy(capture->packet + 6, from, 6);
	be16_store(capture->packet + 12, type);
	memcpy(capture->packet + ETHERNET_BYTES, data, bytes);
	struct capture_record record = {.bytes = capture->packet,
	                                .captured = ETHERNET_BYTES + bytes,
	                                .length = ETHERNET_BYTES + bytes,
	                                .inbound = inbound,
	                                .ethernet = true,
	                                .operation = what};
	capture->take(capture->context, &record);
}

void capture_put_cell(struct engine *engine, const struct path *path, const uint8_t *cell,
                      size_t bytes, bool inbound)
{
	const struct carrier *carrier = engine->carriers[path->port];
	if (path->cell.framed || (!inbound && carrier != NULL && carrier->frames))
		capture_put_frame(engine, path->cell.to, path->cell.from, CELL_ETHERTYPE, cell,
		                  bytes, inbound, "cell");
	else
		capture_put_datagram(engine, &path->ip, CELL_UDP_PORT, cell, bytes, inbound,
		                     "cell");
}
