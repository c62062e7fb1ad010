/* The paths of a connection: which one its packets take, and automatic path migration (IBTA section
 * 17.2.8). A queue pair with an alternate path is armed once both ends say so, with a cleared
 * MigReq. Then either end may switch, because its requests are no longer answered or because it was
 * told to. From then on it sets MigReq, and the other end follows when it sees that on the
 * alternate path.
 *
 *   MIGRATED --rearm (modify)--> REARM --the peer's MigReq is clear--> ARMED
 *   ARMED --silence, modify, or the peer's MigReq--> MIGRATED */
#include "transport/ib/ib.h"
#include "transport/op.h"

void ib_migrate(struct engine *engine, struct qp *qp)
{
	struct ib *ib = qp->ib;
	struct path former = ib->path;
	ib->path = ib->alternate;
	ib->alternate = former; /* packets that are still on their way there are accepted */
	ib->has_alternate = false;
	ib->has_former = true;
	ib->reply_alternate = false;
	qp->attr.ah = qp->attr.alt_ah;
	qp->attr.port_num = qp->attr.alt_port_num;
	qp->attr.timeout = qp->attr.alt_timeout;
	qp->attr.path_mig_state = HDL_MIG_MIGRATED;
	window_begin(&ib->window, ib->mtu, IB_SPARE_BITS);
	op_event(engine, qp, HDL_EVENT_PATH_MIG, HDL_DETAIL_NONE);
}

bool ib_path_failed(struct engine *engine, struct qp *qp)
{
	if (qp->attr.path_mig_state != HDL_MIG_ARMED)
		return false;
	ib_migrate(engine, qp);
	qp->retries_left = qp->attr.retry_cnt;
	return true;
}

/* Two paths between the same two addresses have different source ports. */
static bool ib_path_striped(struct ib *ib, const struct path *came)
{
	bool first = path_matches(&ib->path, came), second = path_matches(&ib->alternate, came);
	if (first && second)
		second = ((came->ip.src_port ^ ib->came_port) & IB_ALTERNATE_PORT) != 0;
	ib->stripe->came = second;
	return first || second;
}

bool ib_path_take(struct qp *qp, const struct path *came, bool migreq)
{
	struct ib *ib = qp->ib;
	if (ib->stripe != NULL)
		return ib_path_striped(ib, came);
	bool other = (ib->has_alternate || ib->has_former) && path_matches(&ib->alternate, came);
	bool moving = qp->attr.path_mig_state == HDL_MIG_ARMED && migreq && other;
	/* Until the packet is known to be the peer's, it is only answered where it came from. */
	ib->reply_alternate = moving;
	return moving || path_matches(&ib->path, came) || (other && (ib->has_former || !migreq));
}

void ib_path_follow(struct engine *engine, struct qp *qp, const struct path *came, bool migreq)
{
	struct ib *ib = qp->ib;
	uint8_t *state = &qp->attr.path_mig_state;
	if (ib->stripe != NULL)
		return;
	bool first = path_matches(&ib->path, came);
	if (*state == HDL_MIG_ARMED && migreq) {
		if (ib->has_alternate && path_matches(&ib->alternate, came)) {
			ib_migrate(engine, qp);
		} else if (!first && !ib->refused) { /* once, not as often as anybody likes */
			ib->refused = true;
			op_event(engine, qp, HDL_EVENT_PATH_MIG_ERR, HDL_DETAIL_NONE);
		}
	} else if (*state == HDL_MIG_REARM && !migreq && first) {
		*state = HDL_MIG_ARMED;
		ib->refused = false;
	}
}
