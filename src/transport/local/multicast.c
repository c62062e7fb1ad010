/* The same-host path: datagrams to groups. */
#include "transport/multicast.h"

#include <string.h>

#include "transport/capture.h"
#include "transport/ib/ib.h"
#include "transport/local/local.h"

bool multicast_is(const struct hdl_gid *gid)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	return gid->raw[0] == 0xff ||
	       (memcmp(gid->raw, mapped, sizeof(mapped)) == 0 && (gid->raw[12] & 0xf0) == 0xe0);
}

struct group *multicast_find(const struct engine *engine, const uint8_t gid[16])
{
	for (uint32_t i = 0; i < HDL_MAX_GROUPS; i++)
		if (engine->groups[i].users > 0 && memcmp(engine->groups[i].gid.raw, gid, 16) == 0)
			return &engine->groups[i];
	return NULL;
}

struct group *multicast_open(struct engine *engine, const struct hdl_gid *gid)
{
	struct group *group = multicast_find(engine, gid->raw);
	for (uint32_t i = 0; i < HDL_MAX_GROUPS && group == NULL; i++) {
		if (engine->groups[i].users > 0)
			continue;
		group = &engine->groups[i];
		group->epoch++;
		group->gid = *gid;
		group->member_count = group->link_count = 0;
	}
	if (group != NULL)
		group->users++;
	return group;
}

void multicast_close(struct group *group)
{
	group->users--;
}

bool multicast_has(const struct group *group, const struct qp *qp)
{
	for (uint32_t i = 0; i < group->member_count; i++)
		if (group->members[i] == qp)
			return true;
	return false;
}

bool multicast_attach(struct group *group, struct qp *qp)
{
	if (group->member_count == HDL_MAX_GROUP_MEMBERS)
		return false;
	group->members[group->member_count++] = qp;
	return true;
}

bool multicast_detach(struct group *group, const struct qp *qp)
{
	for (uint32_t i = 0; i < group->member_count; i++)
		if (group->members[i] == qp) {
			group->members[i] = group->members[--group->member_count];
			return true;
		}
	return false;
}

bool multicast_link(struct group *group, uint32_t link, bool on)
{
	uint32_t at = 0;
	while (at < group->link_count && group->links[at].link != link)
		at++;
	if (at < group->link_count) {
		if (!on)
			group->links[at] = group->links[--group->link_count];
		return true;
	}
	if (on && group->link_count == HDL_MAX_GROUP_PEERS)
		return false;
	if (on)
		group->links[group->link_count++] = (struct group_link){.link = link};
	return true;
}

void multicast_link_down(struct engine *engine, uint32_t link)
{
	for (uint32_t i = 0; i < HDL_MAX_GROUPS; i++)
		if (engine->groups[i].users > 0)
			multicast_link(&engine->groups[i], link, false);
}

/* Is it worth waiting for room in the lane of @entry? A peer that takes nothing must not stop the
 * group for the others. */
static bool local_multicast_must_wait(struct engine *engine, struct group_link *entry, size_t bytes)
{
	if (engine_reserve(engine, entry->link, bytes) != NULL) {
		entry->full = false;
		return false;
	}
	/* The time that the engine knows may be old: the wait begins when it is told the next. */
	if (!entry->full)
		*entry = (struct group_link){
		        .link = entry->link, .full = true, .since_ns = engine->now_ns};
	if (!entry->timed && engine->now_ns != entry->since_ns) {
		entry->timed = true;
		entry->since_ns = engine->now_ns;
	}
	/* Two drivers may look at the clock in one order and tell it in the other: time can seem to
	 * go back a little. */
	return !entry->timed || engine->now_ns < entry->since_ns ||
	       engine->now_ns - entry->since_ns < MULTICAST_PATIENCE_NS;
}

enum step local_multicast(struct engine *engine, struct qp *qp, struct wqe_send *wqe)
{
	struct group *group = &engine->groups[wqe->u.ud.link - MULTICAST_LINK];
	if (group->users == 0 || group->epoch != wqe->u.ud.epoch ||
	    (group->link_count == 0 && !engine->groups_on_wire))
		return local_to_nobody(engine, qp, wqe);
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
	                   .is_global = 1, /* IBTA section 9.8.3.1: groups are known by their GID */
	                   .slid = (uint16_t)(engine->lid | wqe->u.ud.src_path_bits)}};
	_Static_assert(sizeof(head) == sizeof(struct frame) + sizeof(struct frame_datagram),
	               "the two parts lie side by side");
	if (wqe->flags & HDL_SEND_SOLICITED)
		head.frame.flags |= FRAME_SOLICITED;
	if (wqe->opcode == HDL_OP_SEND_IMM)
		head.frame.flags |= FRAME_IMM;
	memcpy(head.body.sgid, engine->gids[wqe->u.ud.sgid_index].raw, 16);
	memcpy(head.body.dgid, group->gid.raw, 16);
	size_t bytes = sizeof(head) + wqe->length;
	for (uint32_t i = 0; i < group->link_count; i++)
		if (local_multicast_must_wait(engine, &group->links[i], bytes))
			return STEP_NO_ROOM;
	enum step step = engine->groups_on_wire ? ib_send_to_group(engine, qp, wqe) : STEP_WAIT;
	if (step != STEP_WAIT)
		return step;
	for (uint32_t i = 0; i < group->link_count; i++) {
		uint32_t link = group->links[i].link;
		unsigned char *out = engine_reserve(engine, link, bytes);
		if (out == NULL) {
			counter_add(&engine->counters[ENGINE_DROPPED], 1);
			continue;
		}
		if (!request_gather(engine, qp, wqe, 0, out + sizeof(head), wqe->length))
			return STEP_NEXT;
		memcpy(out, &head, sizeof(head));
		engine_publish(engine, link);
	}
	capture_request(engine, qp, wqe);
	counter_add(&engine->counters[ENGINE_BYTES_SENT], wqe->length);
	qp->sent_messages++;
	request_finish(wqe, HDL_WC_SUCCESS, HDL_DETAIL_NONE);
	return STEP_NEXT;
}
