/* The same-host path: datagrams, to one queue pair or to the members of a group. */
#include <string.h>

#include "transport/capture.h"
#include "transport/local/local.h"
#include "transport/multicast.h"

enum step local_send_datagram(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	const struct link *link =
	        wqe->u.ud.link == LINK_NONE ? NULL : &engine->links[wqe->u.ud.link];
	struct frame_datagram body = {.qkey = wqe->u.ud.qkey,
	                              .flow_label = wqe->u.ud.flow_label,
	                              .sl = wqe->u.ud.sl,
	                              .traffic_class = wqe->u.ud.traffic_class,
	                              .hop_limit = wqe->u.ud.hop_limit,
	                              .is_global = wqe->u.ud.is_global,
	                              .slid = (uint16_t)(engine->lid | wqe->u.ud.src_path_bits),
	                              .dlid = wqe->u.ud.dlid};
	if (link == NULL || !link->up || link->epoch != wqe->u.ud.epoch)
		return local_unreachable(engine, qp, wqe);
	struct frame *out =
	        engine_reserve(engine, wqe->u.ud.link, sizeof(*out) + sizeof(body) + wqe->length);
	if (out == NULL)
		return STEP_NO_ROOM;
	if (!request_gather(engine, qp, wqe, 0, (unsigned char *)(out + 1) + sizeof(body),
	                    wqe->length))
		return STEP_NEXT;
	memcpy(body.sgid, engine->gids[wqe->u.ud.sgid_index].raw, 16);
	memcpy(body.dgid, wqe->u.ud.dgid, 16);
	memcpy(out + 1, &body, sizeof(body));
	local_put_header(qp, wqe, FRAME_DATAGRAM, 0, out);
	out->to_qpn = wqe->u.ud.qpn;
	engine_publish(engine, wqe->u.ud.link);
	capture_request(engine, qp, wqe);
	counter_add(&engine->counters[ENGINE_BYTES_SENT], wqe->length);
	qp->sent_messages++;
	request_finish(wqe, HDL_WC_SUCCESS, HDL_DETAIL_NONE);
	return STEP_NEXT;
}

#define GROUP_HEAD_BYTES (sizeof(struct frame) + sizeof(struct frame_datagram))

static bool must_wait_for(struct engine *engine, struct group_link *entry, size_t bytes)
{
	if (engine_reserve(engine, entry->link, bytes) != NULL) {
		entry->full = false;
		return false;
	}
	/* The engine's time may be old: the wait begins with the next update. */
	if (!entry->full)
		*entry = (struct group_link){
		        .link = entry->link, .full = true, .since_ns = engine->now_ns};
	if (!entry->timed && engine->now_ns != entry->since_ns) {
		entry->timed = true;
		entry->since_ns = engine->now_ns;
	}
	/* Two threads may read the clock in one order and update the engine in the other, so time
	 * can seem to go back a little. */
	return !entry->timed || engine->now_ns < entry->since_ns ||
	       engine->now_ns - entry->since_ns < MULTICAST_WAIT_NS;
}

bool local_group_must_wait(struct engine *engine, struct group *group, const struct wqe_send *wqe)
{
	for (uint32_t i = 0; i < group->link_count; i++)
		if (must_wait_for(engine, &group->links[i], GROUP_HEAD_BYTES + wqe->length))
			return true;
	return false;
}

bool local_send_to_group(struct engine *engine, struct qp *qp, struct wqe_send *wqe,
                         const struct group *group)
{
	struct {
		struct frame frame;
		struct frame_datagram body;
	} head = {.frame = {.kind = FRAME_DATAGRAM,
	                    .to_qpn = MULTICAST_QPN,
	                    .from_qpn = qp->qpn,
	                    .length = wqe->length,
	                    .imm = wqe->imm},
	          .body = {.qkey = wqe->u.ud.qkey,
	                   .flow_label = wqe->u.ud.flow_label,
	                   .sl = wqe->u.ud.sl,
	                   .traffic_class = wqe->u.ud.traffic_class,
	                   .hop_limit = wqe->u.ud.hop_limit,
	                   .is_global =
	                           1, /* IBTA section 9.8.3.1: groups are identified by their GID */
	                   .slid = (uint16_t)(engine->lid | wqe->u.ud.src_path_bits)}};
	_Static_assert(sizeof(head) == GROUP_HEAD_BYTES, "the two parts are adjacent");
	if (wqe->flags & HDL_SEND_SOLICITED)
		head.frame.flags |= FRAME_SOLICITED;
	if (wqe->opcode == HDL_OP_SEND_IMM)
		head.frame.flags |= FRAME_IMM;
	memcpy(head.body.sgid, engine->gids[wqe->u.ud.sgid_index].raw, 16);
	memcpy(head.body.dgid, group->gid.raw, 16);
	for (uint32_t i = 0; i < group->link_count; i++) {
		uint32_t link = group->links[i].link;
		unsigned char *out = engine_reserve(engine, link, sizeof(head) + wqe->length);
		if (out == NULL) {
			counter_add(&engine->counters[ENGINE_DROPPED], 1);
			continue;
		}
		if (!request_gather(engine, qp, wqe, 0, out + sizeof(head), wqe->length))
			return false;
		memcpy(out, &head, sizeof(head));
		engine_publish(engine, link);
	}
	return true;
}
