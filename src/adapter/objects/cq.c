/* Completion queues, address handles. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/adapter.h"

int hdl_cq_create(struct hdl_adapter *adapter, uint32_t depth, struct hdl_channel *channel,
                  void *context, struct hdl_cq **out)
{
	if (adapter == NULL || adapter->magic != MAGIC_ADAPTER || out == NULL)
		return -HDL_EINVAL;
	if (depth == 0 || depth > HDL_MAX_CQE)
		return why_not(-HDL_EINVAL,
		               "cannot create a completion queue: %u entries; 1 to %u can be had",
		               depth, HDL_MAX_CQE);
	if (channel != NULL && (channel->magic != MAGIC_CHANNEL || channel->adapter != adapter))
		return why_not(
		        -HDL_EINVAL,
		        "cannot create a completion queue: its channel is of another adapter");
	if (atomic_fetch_add(&adapter->objects.cqs, 1) >= HDL_MAX_CQ) {
		atomic_fetch_sub(&adapter->objects.cqs, 1);
		return why_not(-HDL_ENOMEM, "cannot create a completion queue: all %u are in use",
		               HDL_MAX_CQ);
	}
	struct hdl_cq *cq = aligned_alloc(64, (sizeof(*cq) + 63) & ~(size_t)63);
	void *ring = malloc(cq_bytes(depth));
	if (cq == NULL || ring == NULL) {
		atomic_fetch_sub(&adapter->objects.cqs, 1);
		free(cq);
		free(ring);
		return why_not(-HDL_ENOMEM,
		               "cannot create a completion queue: no memory for %u entries", depth);
	}
	memset(cq, 0, sizeof(*cq));
	cq_init(&cq->cq, ring, depth, channel != NULL);
	cq->magic = MAGIC_CQ;
	cq->adapter = adapter;
	cq->channel = channel;
	cq->context = context;
	if (channel != NULL)
		atomic_fetch_add(&channel->users, 1);
	atomic_fetch_add(&adapter->objects.count, 1);
	*out = cq;
	return 0;
}

/* @cq raises no more events, and all events that were taken from it have been acknowledged. */
static void leave_channel(struct hdl_cq *cq)
{
	adapter_lock(cq->adapter);
	if (cq_disarm(&cq->cq))
		atomic_fetch_sub(&cq->adapter->drive.armed_cqs, 1);
	adapter_unlock(cq->adapter);
	while (!channel_forget(cq->channel, cq))
		sched_yield();
	atomic_fetch_sub(&cq->channel->users, 1);
}

int hdl_cq_destroy(struct hdl_cq *cq)
{
	if (cq == NULL || cq->magic != MAGIC_CQ)
		return -HDL_EINVAL;
	if (atomic_load(&cq->users) > 0)
		return -HDL_EBUSY;
	if (cq->channel != NULL)
		leave_channel(cq);
	events_purge(&cq->adapter->drive.events, cq);
	atomic_fetch_sub(&cq->adapter->objects.cqs, 1);
	atomic_fetch_sub(&cq->adapter->objects.count, 1);
	cq->magic = 0;
	free(cq->cq.ring);
	free(cq);
	return 0;
}

int hdl_cq_resize(struct hdl_cq *cq, uint32_t depth)
{
	if (cq == NULL || cq->magic != MAGIC_CQ || depth == 0 || depth > HDL_MAX_CQE)
		return -HDL_EINVAL;
	void *ring = malloc(cq_bytes(depth));
	if (ring == NULL)
		return -HDL_ENOMEM;
	adapter_lock(cq->adapter);
	lock_take(&cq->cq.poll_lock);
	void *old = cq->cq.ring;
	bool moved = cq_move(&cq->cq, ring, depth);
	lock_drop(&cq->cq.poll_lock);
	adapter_unlock(cq->adapter);
	free(moved ? old : ring);
	return moved ? 0 : -HDL_EINVAL;
}

int hdl_cq_discard(struct hdl_cq *cq, uint32_t qpn)
{
	if (cq == NULL || cq->magic != MAGIC_CQ)
		return -HDL_EINVAL;
	adapter_lock(cq->adapter);
	lock_take(&cq->cq.poll_lock);
	uint32_t count = cq_discard(&cq->cq, qpn);
	lock_drop(&cq->cq.poll_lock);
	adapter_unlock(cq->adapter);
	return (int)count;
}

int hdl_cq_poll(struct hdl_cq *cq, struct hdl_wc *wc, int max)
{
	if (cq == NULL || cq->magic != MAGIC_CQ || max < 0 || (wc == NULL && max > 0))
		return -HDL_EINVAL;
	adapter_touch(cq->adapter);
	if (cq_empty(&cq->cq)) {
		int got = adapter_poll_cq(cq->adapter, &cq->cq, wc, max);
		if (got > 0)
			return got;
	}
	if (cq_empty(&cq->cq))
		return atomic_load_explicit(&cq->cq.overrun, memory_order_relaxed) ? -HDL_EOVERFLOW
		                                                                   : 0;
	return cq_poll(&cq->cq, wc, max);
}

int hdl_cq_arm(struct hdl_cq *cq, bool solicited_only)
{
	if (cq == NULL || cq->magic != MAGIC_CQ || cq->channel == NULL)
		return -HDL_EINVAL;
	adapter_lock(cq->adapter);
	if (atomic_load_explicit(&cq->cq.armed, memory_order_relaxed) == CQ_NOT_ARMED)
		atomic_fetch_add_explicit(&cq->adapter->drive.armed_cqs, 1, memory_order_relaxed);
	cq_arm(&cq->cq, solicited_only);
	/* From here on frames ring the bell; what arrived before is handled now. A thread that arms
	 * a queue polls it next, so pending answers can wait for that. */
	adapter_arm(cq->adapter);
	cq->adapter->engine.no_answers = true;
	engine_run(&cq->adapter->engine);
	cq->adapter->engine.no_answers = false;
	if (cq_arm_is_due(&cq->cq))
		channel_raise_held(cq);
	adapter_unlock(cq->adapter);
	adapter_touch(cq->adapter);
	return 0;
}

/* --- address handles --- */

int hdl_ah_create(struct hdl_pd *pd, const struct hdl_ah_attr *attr, struct hdl_ah **out)
{
	if (pd == NULL || pd->magic != MAGIC_PD || attr == NULL || out == NULL)
		return -HDL_EINVAL;
	if (attr->port_num != 1 || attr->sl > 15 || attr->flow_label > 0xfffff ||
	    attr->sgid_index >= pd->adapter->gid_count ||
	    attr->src_path_bits >> pd->adapter->lmc != 0)
		return why_not(-HDL_EINVAL,
		               "cannot create an address handle: port %u, SL %u, flow label 0x%x, "
		               "sgid_index %u, "
		               "src_path_bits %u: one is out of range",
		               attr->port_num, attr->sl, attr->flow_label, attr->sgid_index,
		               attr->src_path_bits);
	if (atomic_fetch_add(&pd->adapter->objects.ahs, 1) >= HDL_MAX_AH) {
		atomic_fetch_sub(&pd->adapter->objects.ahs, 1);
		return why_not(-HDL_ENOMEM, "cannot create an address handle: all %u are in use",
		               HDL_MAX_AH);
	}
	struct hdl_ah *ah = calloc(1, sizeof(*ah));
	if (ah == NULL) {
		atomic_fetch_sub(&pd->adapter->objects.ahs, 1);
		return -HDL_ENOMEM;
	}
	ah->magic = MAGIC_AH;
	ah->pd = pd;
	ah->attr = *attr;
	ah->to = adapter_address(attr);
	for (uint32_t i = 0; i < AH_ROUTES; i++)
		ah->routes[i].slot = UINT32_MAX;
	int result = 0;
	if (attr->plain) {
		ah->on_wire = true; /* and nothing is known about it */
	} else if (attr->is_global && multicast_is(&attr->dgid) && wire_only(pd->adapter) &&
	           net_has_groups(pd->adapter)) {
		ah->on_wire = ah->grouped = true;
	} else if (attr->is_global && multicast_is(&attr->dgid)) {
		result = group_send_begin(pd->adapter, &attr->dgid, &ah->group);
	} else {
		/* On a node, the process is known only together with the queue pair number;
		 * elsewhere the address is enough. */
		ah->on_wire = wire_only(pd->adapter);
		if (net_has_packets(&pd->adapter->net))
			agent_locate(pd->adapter, &ah->to);
		adapter_lock(pd->adapter);
		bool sure = adapter_sure_of_node(pd->adapter, &ah->to);
		adapter_unlock(pd->adapter);
		/* Find out whether the node exists; the first datagram finds the route to its
		 * process (ah_prepare()). */
		if (!sure)
			ah_prepare(ah, 0);
		adapter_lock(pd->adapter);
		bool known = adapter_knows_node(pd->adapter, &ah->to);
		if (!known && ah_find(ah, 0).link == LINK_NONE)
			ah->on_wire = wire_reaches(pd->adapter, &ah->to);
		if (ah->on_wire) {
			ah->attr.dgid = wire_address(pd->adapter, &ah->to);
			ah->attr.sgid_index =
			        wire_source(pd->adapter, attr->sgid_index, &ah->attr.dgid);
		}
		adapter_unlock(pd->adapter);
		if (!known && ah_find(ah, 0).link == LINK_NONE)
			result = -HDL_EHOSTUNREACH;
	}
	if (result == -HDL_EHOSTUNREACH)
		why_unreachable(pd->adapter, "creating an address handle", attr, result);
	if (result != 0) {
		atomic_fetch_sub(&pd->adapter->objects.ahs, 1);
		free(ah);
		return result;
	}
	atomic_fetch_add(&pd->users, 1);
	*out = ah;
	return 0;
}

static uint32_t ah_slot(const struct hdl_ah *ah, uint32_t qpn)
{
	const struct hdl_adapter *adapter = ah->pd->adapter;
	return adapter->agent.on_node ? qpn >> adapter->objects.qp_bits : 0;
}

struct ah_route ah_find(struct hdl_ah *ah, uint32_t qpn)
{
	struct ah_route found = {.link = LINK_NONE};
	if (ah->group != NULL)
		return (struct ah_route){
		        .link = MULTICAST_LINK +
		                (uint32_t)(ah->group - ah->pd->adapter->engine.groups),
		        .epoch = ah->group->epoch};
	if (ah->on_wire)
		return (struct ah_route){.link = LINK_WIRE};
	uint32_t slot = ah_slot(ah, qpn);
	lock_take(&ah->lock);
	for (uint32_t i = 0; i < AH_ROUTES; i++)
		if (ah->routes[i].slot == slot)
			found = ah->routes[i];
	lock_drop(&ah->lock);
	return found;
}

void ah_prepare(struct hdl_ah *ah, uint32_t qpn)
{
	struct hdl_adapter *adapter = ah->pd->adapter;
	if (ah->group != NULL || ah->on_wire)
		return;
	struct ah_route route = ah_find(ah, qpn);
	/* The epoch reveals a stale route when the datagram is sent; look again if we notice it
	 * here. */
	if (route.link != LINK_NONE && adapter->peers.links[route.link].epoch == route.epoch)
		return;
	if (adapter->agent.on_node && agent_reach(adapter, &ah->to, qpn) != 0)
		return;
	adapter_lock(adapter);
	route.link = adapter_find_link(adapter, &ah->to, qpn);
	if (route.link != LINK_NONE)
		route.epoch = adapter->peers.links[route.link].epoch;
	adapter_unlock(adapter);
	if (route.link == LINK_NONE)
		return;
	route.slot = ah_slot(ah, qpn);
	lock_take(&ah->lock);
	ah->routes[ah->next++ % AH_ROUTES] = route;
	lock_drop(&ah->lock);
}

int hdl_ah_destroy(struct hdl_ah *ah)
{
	if (ah == NULL || ah->magic != MAGIC_AH)
		return -HDL_EINVAL;
	if (ah->group != NULL)
		group_send_end(ah->pd->adapter, ah->group);
	atomic_fetch_sub(&ah->pd->adapter->objects.ahs, 1);
	atomic_fetch_sub(&ah->pd->users, 1);
	ah->magic = 0;
	free(ah);
	return 0;
}
