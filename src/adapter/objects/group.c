/* Multicast groups: joining, leaving, and finding the members. Joined adapters of one process check
 * each other (peers.c). On a node, the agent knows which processes have members, and tells the
 * senders. */
#include <stdlib.h>
#include <string.h>

#include "adapter/adapter.h"
#include "port/unixsock.h"

int groups_init(struct hdl_adapter *adapter)
{
	pthread_mutex_init(&adapter->objects.group_lock, NULL);
	adapter->engine.groups = calloc(HDL_MAX_GROUPS, sizeof(*adapter->engine.groups));
	adapter->objects.group_peers =
	        calloc(HDL_MAX_GROUPS, sizeof(*adapter->objects.group_peers));
	return adapter->engine.groups != NULL && adapter->objects.group_peers != NULL ? 0
	                                                                              : -HDL_ENOMEM;
}

void groups_end(struct hdl_adapter *adapter)
{
	free(adapter->engine.groups);
	free(adapter->objects.group_peers);
	pthread_mutex_destroy(&adapter->objects.group_lock);
}

static struct group_peers *peers_of(const struct hdl_adapter *adapter, const struct group *group)
{
	return &adapter->objects.group_peers[group - adapter->engine.groups];
}

/* --- the agent --- */

static struct agent_msg message(uint32_t kind, const struct hdl_gid *gid)
{
	struct agent_msg msg = {.version = AGENT_VERSION, .kind = kind};
	memcpy(msg.u.group.gid, gid->raw, 16);
	return msg;
}

static int group_ask(struct hdl_adapter *adapter, uint32_t kind, const struct hdl_gid *gid)
{
	if (!adapter->agent.on_node)
		return 0;
	struct agent_msg msg = message(kind, gid);
	int result = agent_ask(adapter, &msg, &msg.u.group.token);
	return result == 0 || result == -HDL_ENOMEM ? result : -HDL_EHOSTUNREACH;
}

/* Send a message, unless there is no agent. */
static void group_say(struct hdl_adapter *adapter, uint32_t kind, const struct hdl_gid *gid)
{
	struct agent_msg msg = message(kind, gid);
	if (adapter->agent.on_node)
		agent_tell(adapter, &msg);
}

/* Record the member, and the link to it if there is one. True: there is no link yet. With the drive
 * lock. */
static bool note_member(struct hdl_adapter *adapter, struct group *group, uint64_t guid,
                        uint32_t slot)
{
	struct group_peers *peers = peers_of(adapter, group);
	uint32_t link = peers_by_process(adapter, guid, slot), at = 0;
	while (at < peers->count && (peers->list[at].guid != guid || peers->list[at].slot != slot))
		at++;
	if (at == HDL_MAX_GROUP_PEERS)
		return false;
	peers->list[at].guid = guid;
	peers->list[at].slot = slot;
	if (at == peers->count)
		peers->count++;
	if (link == LINK_NONE)
		return true;
	multicast_link(group, link, true);
	return false;
}

/* With the drive lock. */
static void drop_member(struct hdl_adapter *adapter, struct group *group, uint64_t guid,
                        uint32_t slot)
{
	struct group_peers *peers = peers_of(adapter, group);
	uint32_t link = peers_by_process(adapter, guid, slot);
	for (uint32_t i = 0; i < peers->count; i++)
		if (peers->list[i].guid == guid && peers->list[i].slot == slot)
			peers->list[i] = peers->list[--peers->count];
	if (link != LINK_NONE)
		multicast_link(group, link, false);
}

void group_hear(struct hdl_adapter *adapter, const struct agent_msg *msg)
{
	uint64_t guid = msg->u.group.guid;
	uint32_t slot = msg->u.group.slot;
	bool unknown = false;
	adapter_lock(adapter);
	struct group *group = multicast_find(&adapter->engine, msg->u.group.gid);
	if (group != NULL && msg->u.group.joined != 0)
		unknown = note_member(adapter, group, guid, slot);
	else if (group != NULL)
		drop_member(adapter, group, guid, slot);
	adapter_unlock(adapter);
	if (!unknown)
		return;
	/* No thread waits for the answer: when the link exists, group_met() finds the groups that
	 * need it. */
	struct agent_msg introduce = {.kind = AGENT_INTRODUCE, .u.introduce = {.slot = slot}};
	struct hdl_gid gid = peers_link_local(guid);
	memcpy(introduce.u.introduce.gid, gid.raw, 16);
	agent_tell(adapter, &introduce);
}

void group_met(struct hdl_adapter *adapter, uint32_t link)
{
	const struct peer *peer = &adapter->peers.list[link];
	for (uint32_t i = 0; i < HDL_MAX_GROUPS; i++) {
		const struct group_peers *peers = &adapter->objects.group_peers[i];
		if (adapter->engine.groups[i].users == 0)
			continue;
		for (uint32_t j = 0; j < peers->count; j++)
			if (peers->list[j].guid == peer->node_guid &&
			    peers->list[j].slot == peer->slot)
				multicast_link(&adapter->engine.groups[i], link, true);
	}
}

void groups_again(struct hdl_adapter *adapter)
{
	for (uint32_t i = 0; i < HDL_MAX_GROUPS; i++) {
		struct group *group = &adapter->engine.groups[i];
		adapter_lock(adapter);
		bool used = group->users > 0, joined = used && group->member_count > 0;
		struct hdl_gid gid = group->gid;
		/* We missed members that left in the meantime; members that remain are announced
		 * again. */
		if (used) {
			adapter->objects.group_peers[i].count = 0;
			group->link_count = 0;
			if (joined)
				multicast_link(group, 0, true);
		}
		bool sends = used && adapter->objects.group_peers[i].senders > 0;
		adapter_unlock(adapter);
		struct agent_msg msg = message(AGENT_GROUP_JOIN, &gid);
		if (joined)
			unixsock_send(adapter->agent.sock, &msg, sizeof(msg), NULL, 0);
		msg.kind = AGENT_GROUP_SEND;
		if (sends)
			unixsock_send(adapter->agent.sock, &msg, sizeof(msg), NULL, 0);
	}
}

/* --- senders --- */

static struct group *open_group(struct hdl_adapter *adapter, const struct hdl_gid *gid)
{
	bool fresh = multicast_find(&adapter->engine, gid->raw) == NULL;
	struct group *group = multicast_open(&adapter->engine, gid);
	if (group != NULL && fresh)
		*peers_of(adapter, group) = (struct group_peers){0};
	return group;
}

/* Is there a member that we have no link to? */
static bool lacks_links(struct hdl_adapter *adapter, const struct group *group)
{
	const struct group_peers *peers = peers_of(adapter, group);
	bool result = false;
	adapter_lock(adapter);
	for (uint32_t i = 0; i < peers->count; i++)
		if (peers_by_process(adapter, peers->list[i].guid, peers->list[i].slot) ==
		    LINK_NONE)
			result = true;
	adapter_unlock(adapter);
	return result;
}

int group_send_begin(struct hdl_adapter *adapter, const struct hdl_gid *gid, struct group **out)
{
	int result = 0;
	pthread_mutex_lock(&adapter->objects.group_lock);
	adapter_lock(adapter);
	struct group *group = open_group(adapter, gid);
	bool first = group != NULL && peers_of(adapter, group)->senders++ == 0;
	adapter_unlock(adapter);
	if (group == NULL)
		result = -HDL_ENOMEM;
	if (result == 0 && first) {
		peers_ask_group(adapter, gid);
		result = group_ask(adapter, AGENT_GROUP_SEND, gid);
		/* The links requested in the meantime are established when the agent has answered
		 * once more. */
		if (result == 0 && lacks_links(adapter, group))
			result = group_ask(adapter, AGENT_GROUP_SEND, gid);
	}
	pthread_mutex_unlock(&adapter->objects.group_lock);
	if (result != 0 && group != NULL)
		group_send_end(adapter, group);
	*out = group;
	return result;
}

void group_send_end(struct hdl_adapter *adapter, struct group *group)
{
	pthread_mutex_lock(&adapter->objects.group_lock);
	adapter_lock(adapter);
	engine_run(&adapter->engine); /* send what was posted */
	struct hdl_gid gid = group->gid;
	bool last = --peers_of(adapter, group)->senders == 0;
	multicast_close(group);
	adapter_unlock(adapter);
	if (last)
		group_say(adapter, AGENT_GROUP_FORGET, &gid);
	pthread_mutex_unlock(&adapter->objects.group_lock);
}

/* --- members --- */

/* Add @qp. Returns 0, 1 if it is the first member, or an error. With group_lock. */
static int group_add(struct hdl_adapter *adapter, struct hdl_qp *qp, const struct hdl_gid *gid)
{
	int result = -HDL_ENOMEM;
	adapter_lock(adapter);
	struct group *group = open_group(adapter, gid);
	if (group != NULL && multicast_attach(group, &qp->qp)) {
		result = group->member_count == 1;
		multicast_link(group, 0, true); /* link 0 leads to ourselves */
	} else if (group != NULL) {
		multicast_close(group);
	}
	adapter_unlock(adapter);
	return result;
}

/* Remove @qp. Returns 0, 1 if it was the last member, or an error. With group_lock. */
static int take_away(struct hdl_adapter *adapter, struct hdl_qp *qp, const struct hdl_gid *gid)
{
	int result = -HDL_EINVAL;
	adapter_lock(adapter);
	struct group *group = multicast_find(&adapter->engine, gid->raw);
	if (group != NULL && multicast_detach(group, &qp->qp)) {
		result = group->member_count == 0;
		if (result == 1)
			multicast_link(group, 0, false);
		multicast_close(group);
	}
	adapter_unlock(adapter);
	return result;
}

int hdl_qp_attach(struct hdl_qp *qp, const struct hdl_gid *gid)
{
	if (qp == NULL || qp->magic != MAGIC_QP || gid == NULL || qp->qp.type != HDL_QP_UD ||
	    !multicast_is(gid))
		return -HDL_EINVAL;
	struct hdl_adapter *adapter = qp->pd->adapter;
	pthread_mutex_lock(&adapter->objects.group_lock);
	adapter_lock(adapter);
	const struct group *group = multicast_find(&adapter->engine, gid->raw);
	bool is_member = group != NULL && multicast_has(group, &qp->qp);
	adapter_unlock(adapter);
	int result = is_member ? 0 : group_add(adapter, qp, gid);
	if (result == 1) {
		peers_tell_group(adapter, gid);
		result = group_ask(adapter, AGENT_GROUP_JOIN, gid);
		if (result != 0)
			take_away(adapter, qp, gid);
		else
			net_join(adapter, gid);
	}
	if (result == 0 && !is_member)
		qp->groups++;
	pthread_mutex_unlock(&adapter->objects.group_lock);
	return result;
}

int hdl_qp_detach(struct hdl_qp *qp, const struct hdl_gid *gid)
{
	if (qp == NULL || qp->magic != MAGIC_QP || gid == NULL)
		return -HDL_EINVAL;
	struct hdl_adapter *adapter = qp->pd->adapter;
	pthread_mutex_lock(&adapter->objects.group_lock);
	int result = take_away(adapter, qp, gid);
	if (result == 1) {
		peers_tell_group(adapter, gid);
		group_say(adapter, AGENT_GROUP_LEAVE, gid);
		net_leave(adapter, gid);
	}
	if (result >= 0)
		qp->groups--;
	pthread_mutex_unlock(&adapter->objects.group_lock);
	return result < 0 ? result : 0;
}
