/* The groups service: knows which processes have members of which multicast group, and tells the
 * processes that send to it. A group spans all nodes of the user: they are one subnet. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"

static struct group_entry *group_find(struct agent *agent, const uint8_t gid[16])
{
	struct group_entry *at = agent->groups;
	while (at != NULL && memcmp(at->gid, gid, 16) != 0)
		at = at->next;
	return at;
}

static struct group_part *group_part_of(const struct group_entry *group,
                                        const struct client *client)
{
	struct group_part *at = group != NULL ? group->parts : NULL;
	while (at != NULL && at->client != client)
		at = at->next;
	return at;
}

/* What @client has to do with the group, made if need be; NULL: there are too many groups. */
static struct group_part *take_part(struct agent *agent, struct client *client,
                                    const uint8_t gid[16])
{
	struct group_entry *group = group_find(agent, gid);
	struct group_part *part = group_part_of(group, client);
	if (part != NULL)
		return part;
	if (group == NULL) {
		if (agent->group_count == AGENT_MAX_GROUPS ||
		    (group = calloc(1, sizeof(*group))) == NULL)
			return NULL;
		memcpy(group->gid, gid, 16);
		group->next = agent->groups;
		agent->groups = group;
		agent->group_count++;
	}
	part = calloc(1, sizeof(*part));
	if (part == NULL)
		return NULL;
	*part = (struct group_part){.next = group->parts, .client = client};
	group->parts = part;
	return part;
}

static void tell_of_member(struct client *to, const struct group_entry *group,
                           const struct client *member, bool joined)
{
	struct agent_msg msg = {
	        .kind = AGENT_GROUP_MEMBER,
	        .u.group = {.guid = member->node->guid, .slot = member->slot, .joined = joined}};
	memcpy(msg.u.group.gid, group->gid, 16);
	tell(to, &msg, NULL, 0);
}

/* @member has joined or left. A process knows its own members. */
static void tell_senders(const struct group_entry *group, const struct client *member, bool joined)
{
	for (const struct group_part *at = group->parts; at != NULL; at = at->next)
		if (at->sends && at->client != member)
			tell_of_member(at->client, group, member, joined);
}

static void done(struct client *client, const struct agent_msg *msg, int error)
{
	struct agent_msg answer = {.kind = AGENT_GROUP_DONE,
	                           .u.group = {.token = msg->u.group.token, .error = error}};
	if (msg->u.group.token != 0)
		tell(client, &answer, NULL, 0);
}

static void group_join(struct agent *agent, struct client *client, struct agent_request *request)
{
	const struct agent_msg *msg = &request->msg;
	struct group_part *part = take_part(agent, client, msg->u.group.gid);
	if (part != NULL && !part->joined) {
		part->joined = true;
		tell_senders(group_find(agent, msg->u.group.gid), client, true);
	}
	done(client, msg, part != NULL ? 0 : ENOMEM);
}

static void group_send(struct agent *agent, struct client *client, struct agent_request *request)
{
	const struct agent_msg *msg = &request->msg;
	struct group_part *part = take_part(agent, client, msg->u.group.gid);
	if (part != NULL) {
		const struct group_entry *group = group_find(agent, msg->u.group.gid);
		part->sends = true;
		for (const struct group_part *at = group->parts; at != NULL; at = at->next)
			if (at->joined && at->client != client)
				tell_of_member(client, group, at->client, true);
	}
	done(client, msg, part != NULL ? 0 : ENOMEM);
}

/* Forget the parts of processes that neither send nor have members, and empty groups. */
static void tidy_up(struct agent *agent)
{
	for (struct group_entry **at = &agent->groups; *at != NULL;) {
		struct group_entry *group = *at;
		for (struct group_part **p = &group->parts; *p != NULL;) {
			struct group_part *part = *p;
			if (part->joined || part->sends) {
				p = &part->next;
				continue;
			}
			*p = part->next;
			free(part);
		}
		if (group->parts != NULL) {
			at = &group->next;
			continue;
		}
		*at = group->next;
		agent->group_count--;
		free(group);
	}
}

static void group_end(struct agent *agent, struct client *client, struct agent_request *request)
{
	const struct agent_msg *msg = &request->msg;
	struct group_entry *group = group_find(agent, msg->u.group.gid);
	struct group_part *part = group_part_of(group, client);
	if (part == NULL)
		return;
	if (msg->kind == AGENT_GROUP_FORGET) {
		part->sends = false;
	} else if (part->joined) {
		part->joined = false;
		tell_senders(group, client, false);
	}
	tidy_up(agent);
}

/* @client has gone: tell the processes that send to its groups. */
static void group_leave_all(struct agent *agent, struct client *client)
{
	if (client->node == NULL)
		return;
	for (struct group_entry *group = agent->groups; group != NULL; group = group->next) {
		struct group_part *part = group_part_of(group, client);
		if (part == NULL)
			continue;
		bool joined = part->joined;
		part->joined = part->sends = false;
		if (joined)
			tell_senders(group, client, false);
	}
	tidy_up(agent);
}

static const struct service_kind group_kinds[] = {
        {AGENT_GROUP_JOIN, AGENT_MSG_BYTES(group), false, group_join},
        {AGENT_GROUP_SEND, AGENT_MSG_BYTES(group), false, group_send},
        {AGENT_GROUP_LEAVE, AGENT_MSG_BYTES(group), false, group_end},
        {AGENT_GROUP_FORGET, AGENT_MSG_BYTES(group), false, group_end},
};
const struct agent_service group_service = {.name = "groups",
                                            .kinds = group_kinds,
                                            .kind_count = SERVICE_KINDS(group_kinds),
                                            .leave = group_leave_all};
