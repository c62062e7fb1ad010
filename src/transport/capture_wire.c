/* Captures: the packets of InfiniBand transports on a wire, as they are sent and received. See
 * capture.h. */
#include <string.h>

#include "transport/capture.h"
#include "transport/ib/ib.h"

/* How many PSNs @packet takes: a read takes those of its answer. */
static uint32_t psns_of(const struct ib *ib, const struct ib_packet *packet,
                        const struct ib_opcode *op)
{
	return op->operation == IB_READ_REQUEST ? ib_packets(ib, packet->reth.length_bytes) : 1;
}

/* A NAK asks for something to be sent again; it is not an answer that is sent again itself. */
static bool is_answer(const struct ib_packet *packet, const struct ib_opcode *op)
{
	return op->role == IB_RESPONSE && ((op->headers & IB_HAS_AETH) == 0 ||
	                                   ib_aeth_kind(packet->aeth.syndrome) == IB_AETH_ACK);
}

/* Was @packet, or one that comes after it, recorded before? Then something was lost, or came too
 * late. Where packets come along two paths they overtake each other, and only what has been
 * executed tells. */
static bool is_again(struct qp *qp, const struct ib_packet *packet, const struct ib_opcode *op,
                     bool inbound)
{
	uint32_t *next, psn = packet->bth.psn;
	struct ib *ib = qp != NULL ? qp->ib : NULL;
	if (ib == NULL || !qp_reliable(qp) || qp->type == QP_TYPE_EEC)
		return false;
	if (op->role == IB_REQUEST && !inbound)
		return ib_psn_distance(psn, ib->sent_psn) < 0;
	if (inbound && ib->stripe != NULL)
		return ib_psn_distance(psn,
		                       op->role == IB_REQUEST ? ib->expected_psn : ib->una_psn) < 0;
	if (op->role == IB_REQUEST)
		next = &ib->recorded.request_in;
	else if (is_answer(packet, op))
		next = inbound ? &ib->recorded.answer_in : &ib->recorded.answer_out;
	else
		return false;
	if (ib_psn_distance(psn, *next) < 0)
		return true;
	*next = ib_psn(psn + psns_of(ib, packet, op));
	return false;
}

/* The request that @packet, sent to @qp, answers; NULL: no known one. */
static const struct wqe_send *asked_by(const struct qp *qp, const struct ib_packet *packet)
{
	for (uint32_t i = wq_head(&qp->sq), end = wq_tail(&qp->sq); i != end; i++) {
		const struct wqe_send *wqe = wq_at(&qp->sq, i);
		int32_t distance = ib_psn_distance(packet->bth.psn, wqe->msn);
		if (wqe->numbered && distance >= 0 && (uint32_t)distance < ib_span(qp->ib, wqe))
			return wqe;
	}
	return NULL;
}

void capture_put_wire(struct engine *engine, const struct path *path,
                      const struct ib_packet *packet, const uint8_t *payload, bool inbound)
{
	struct capture *capture = engine->capture;
	const struct ib_opcode *op = ib_opcode(packet->bth.opcode);
	struct ib_packet whole = *packet;
	/* The file holds IP datagrams; packets in lanes are recorded as the datagrams that they
	 * would be. */
	if (path->kind != PATH_ROCE && path->kind != PATH_LANE)
		return;
	struct roce_path ip = path->ip;
	whole.payload = payload;
	ip.udp_checksum = true;
	if (ip.hop_limit == 0)
		ip.hop_limit = CAPTURE_HOPS; /* unknown here, or left to the host */
	size_t length = roce_encode(&ip, &whole, capture->packet, sizeof(capture->packet));
	if (length == 0)
		return;
	struct qp *qp = inbound                  ? engine_find_qp(engine, packet->bth.dest_qp)
	                : op->role == IB_REQUEST ? capture->turn
	                                         : capture->answering;
	const struct wqe_send *wqe = NULL;
	if (qp != NULL && !inbound && op->role == IB_REQUEST)
		wqe = wq_at(&qp->sq, qp->next);
	else if (qp != NULL && inbound && op->role == IB_RESPONSE && qp->ib != NULL)
		wqe = asked_by(qp, packet);
	struct capture_record record = {.bytes = capture->packet,
	                                .captured = length,
	                                .length = length,
	                                .inbound = inbound,
	                                .operation = op->name,
	                                .qpn = qp != NULL ? qp->qpn : 0,
	                                .has_wr_id = wqe != NULL,
	                                .wr_id = wqe != NULL ? wqe->wr_id : 0,
	                                .again = is_again(qp, packet, op, inbound)};
	capture->take(capture->context, &record);
}
