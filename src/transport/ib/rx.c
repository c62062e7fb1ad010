/* The wire: received packets. A packet is checked against the queue pair that it names (IBTA
 * section 9.6) and handed to the responder or to the requester; a datagram is received here. A
 * packet that matches nothing is dropped and counted: an attacker can send anything. */
#include <string.h>

#include "queue/qp_state.h"
#include "transport/capture.h"
#include "transport/ib/ib.h"
#include "transport/ib/rd.h"
#include "transport/multicast.h"
#include "transport/op.h"
#include "wire/be.h"
#include "wire/ip_headers.h"

#define PKEY_MASK 0x7fffu /* the highest bit distinguishes full from limited membership */

static void ib_rx_drop(struct engine *engine)
{
	counter_add(&engine->counters[ENGINE_DROPPED], 1);
}

/* The 40 bytes before a datagram (IBTA annex A17.4.5): the IPv6 header, or the IPv4 header in the
 * last 20 of them. False: it came without such a header. */
static bool put_grh(const struct path *came, const struct ib_packet *packet, uint8_t *grh)
{
	size_t udp_bytes = UDP_BYTES + ib_transport_bytes(packet) + IB_ICRC_BYTES;
	memset(grh, 0, HDL_GRH_BYTES);
	if (came->kind != PATH_ROCE)
		return false;
	if (roce_gid_is_ipv4(came->ip.sgid)) {
		struct ipv4_header ip = {.tos = came->ip.traffic_class,
		                         .total_bytes = (uint16_t)(IPV4_BYTES + udp_bytes),
		                         .id = came->ip.ip_id,
		                         .dont_fragment = came->ip.dont_fragment,
		                         .ttl = came->ip.hop_limit,
		                         .protocol = IP_PROTO_UDP,
		                         .src = be32_load(came->ip.sgid + 12),
		                         .dst = be32_load(came->ip.dgid + 12)};
		ipv4_encode(&ip, grh + HDL_GRH_BYTES - IPV4_BYTES);
		return true;
	}
	struct ipv6_header ip = {.traffic_class = came->ip.traffic_class,
	                         .flow_label = came->ip.flow_label,
	                         .payload_bytes = (uint16_t)udp_bytes,
	                         .next_header = IP_PROTO_UDP,
	                         .hop_limit = came->ip.hop_limit};
	memcpy(ip.src, came->ip.sgid, IB_GID_BYTES);
	memcpy(ip.dst, came->ip.dgid, IB_GID_BYTES);
	ipv6_encode(&ip, grh);
	return true;
}

static void ib_rx_datagram(struct engine *engine, struct qp *qp, const struct path *came,
                           const struct ib_packet *packet)
{
	if (packet->deth.qkey != qp->attr.qkey) {
		counter_add(&engine->counters[ENGINE_DROPPED_QKEY], 1);
		return;
	}
	bool immediate = (packet->headers & IB_HAS_IMMDT) != 0;
	uint32_t word = 0;
	uint8_t grh[HDL_GRH_BYTES];
	bool global = put_grh(came, packet, grh);
	if (immediate)
		be32_store((uint8_t *)&word, packet->immdt.data);
	struct op_message message = {.bytes = (void *)(uintptr_t)packet->payload,
	                             .grh = grh,
	                             .length = (uint32_t)packet->payload_bytes,
	                             .src_qpn = packet->deth.src_qp,
	                             .imm = word,
	                             .wc_flags = (global ? HDL_WC_GRH : 0u) |
	                                         (immediate ? HDL_WC_WITH_IMM : 0u),
	                             .wc_opcode = HDL_WC_RECV,
	                             .sl = came->sl,
	                             .slid = came->slid,
	                             .solicited = packet->bth.solicited};
	op_receive_datagram(engine, qp, &message);
}

static void ib_rx_to_group(struct engine *engine, const struct path *came,
                           const struct ib_packet *packet)
{
	const struct group *group =
	        came->kind == PATH_ROCE ? multicast_find(engine, came->ip.dgid) : NULL;
	for (uint32_t i = 0; group != NULL && i < group->member_count; i++)
		if (qp_may_receive(qp_state(group->members[i])))
			ib_rx_datagram(engine, group->members[i], came, packet);
}

/* The network marked the packet: notify its sender, but not too often. */
static void congested(struct engine *engine, struct qp *qp)
{
	struct ib *ib = qp->ib;
	if (ib->cnp_due || (ib->cnp_ns != 0 && engine->now_ns - ib->cnp_ns < IB_CNP_EVERY_NS))
		return;
	ib->cnp_due = true;
	ib->cnp_ns = engine->now_ns;
	engine_owe(engine, qp);
}

/* Only the peer knows which PSNs are due. Does @packet have one of them? */
static bool is_due(const struct qp *qp, const struct ib_packet *packet)
{
	const struct ib *ib = qp->ib;
	if (packet->op->role == IB_RESPONSE)
		return ib_psn_distance(packet->bth.psn, ib->una_psn) >= 0 &&
		       ib_psn_distance(packet->bth.psn, ib->sent_psn) < 0;
	return packet->bth.psn == ib->expected_psn;
}

/* Does a mark on @packet count? Packets before it may have been lost, or have taken another path.
 */
static bool mark_counts(const struct qp *qp, const struct ib_packet *packet)
{
	const struct ib *ib = qp->ib;
	if (packet->op->role == IB_RESPONSE)
		return is_due(qp, packet);
	int32_t ahead = ib_psn_distance(packet->bth.psn, ib->expected_psn);
	uint32_t near = ib->stripe != NULL ? ib->stripe->count : IB_MARK_AHEAD;
	return ahead >= 0 && (uint32_t)ahead < near;
}

static void notified(struct engine *engine, struct qp *qp, const struct ib_packet *packet)
{
	counter_add(&engine->counters[ENGINE_CNP_RECEIVED], 1);
	if (ib_cnp_proved(qp->ib, &packet->cnp)) {
		window_marked(&qp->ib->window, qp->ib->una_psn, qp->ib->sent_psn);
		return;
	}
	counter_add(&engine->counters[ENGINE_CNP_UNPROVED], 1);
	window_hinted(&qp->ib->window, qp->ib->una_psn, qp->ib->sent_psn, engine->now_ns);
}

static void connected(struct engine *engine, struct qp *qp, const struct path *came, bool marked,
                      const struct ib_packet *packet)
{
	enum hdl_qp_state state = qp_state(qp);
	bool sends = state == HDL_QPS_RTS || state == HDL_QPS_SQD;
	bool notice = packet->op->role == IB_NOTICE;
	bool wanted = packet->op->role == IB_REQUEST ? qp_may_receive(state) : sends;
	if (qp->ib == NULL || (packet->op->transport != ib_transport_of(qp) && !notice)) {
		ib_rx_drop(engine);
		return;
	}
	bool taken = ib_path_take(qp, came, packet->bth.migreq);
	if (!notice && wanted && is_due(qp, packet))
		ib_path_follow(engine, qp, came, packet->bth.migreq);
	if (!taken || (notice && !wanted)) {
		ib_rx_drop(engine);
		return;
	}
	if (notice) {
		notified(engine, qp, packet);
		return;
	}
	/* A packet that requests nothing and carries nothing cannot be sent more slowly. */
	bool data = packet->op->role == IB_REQUEST || packet->payload_bytes > 0;
	if (marked && data && qp_may_receive(state) && mark_counts(qp, packet)) {
		/* A notification names a queue pair, but it is the context that sends too fast:
		 * there is no notification for it. */
		if (qp->type != QP_TYPE_EEC)
			congested(engine, qp);
		if (packet->op->role == IB_RESPONSE)
			window_marked(&qp->ib->window, qp->ib->una_psn, qp->ib->sent_psn);
	}
	if (packet->op->role == IB_RESPONSE) {
		if (sends && qp_reliable(qp) && qp->type != HDL_QP_XRC_TGT)
			ib_answered(engine, qp, packet);
		else
			ib_rx_drop(engine);
	} else if (qp_may_receive(state) && qp->type != HDL_QP_XRC_INI) {
		ib_request(engine, qp, packet);
	} else {
		ib_rx_drop(engine);
	}
}

void ib_take(struct engine *engine, const struct path *came, bool marked,
             const struct ib_packet *packet)
{
	counter_add(&engine->counters[ENGINE_PACKETS_IN], 1);
	capture_wire(engine, came, packet, packet->payload, true);
	if ((packet->bth.pkey & PKEY_MASK) != (IB_DEFAULT_PKEY & PKEY_MASK)) {
		ib_rx_drop(engine);
		return;
	}
	bool is_datagram = packet->op->transport == IB_UD;
	if (is_datagram && packet->bth.dest_qp == MULTICAST_QPN) {
		ib_rx_to_group(engine, came, packet);
		return;
	}
	struct qp *qp = packet->op->transport == IB_RD
	                        ? rd_find_context(engine, packet->rdeth.ee_context)
	                        : engine_find_qp(engine, packet->bth.dest_qp);
	if (qp == NULL || is_datagram != (qp->type == HDL_QP_UD))
		ib_rx_drop(engine);
	else if (!is_datagram)
		connected(engine, qp, came, marked, packet);
	else if (qp_may_receive(qp_state(qp)) && qp->cells == NULL)
		ib_rx_datagram(engine, qp, came, packet);
	else
		ib_rx_drop(engine);
}
