/* Connections as far as the agent has to do with them: which process holds which port of a node,
 * and passing messages on to it. What the messages mean is between the processes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "port/unixsock.h"

/* The ports that are given out when any will do (RFC 6335 section 6). */
#define FIRST_DYNAMIC 49152u
#define DYNAMIC_COUNT 16384u

static const uint8_t any[16];

static bool cm_overlap(const uint8_t a[16], const uint8_t b[16])
{
	return memcmp(a, any, 16) == 0 || memcmp(b, any, 16) == 0 || memcmp(a, b, 16) == 0;
}

/* Who is for IPv4 keeps nobody from having IPv6 alone, as in Linux. */
static bool is_alone(uint32_t options)
{
	return (options & (AGENT_CM_ONLY | AGENT_CM_IPV4)) != 0;
}

/* Only two who each want a family alone do not meet. */
static bool families_overlap(uint32_t a, uint32_t b)
{
	const uint32_t both = AGENT_CM_IPV4 | AGENT_CM_IPV6;
	return !is_alone(a) || !is_alone(b) || (a & b & both) != 0;
}

/* Who keeps others with @options from having the port? */
static const struct port_entry *rival(const struct node_entry *node, uint16_t space,
                                      const uint8_t gid[16], uint16_t port, uint32_t options)
{
	for (const struct port_entry *at = node->ports; at != NULL; at = at->next)
		if (at->space == space && at->port == port && cm_overlap(at->gid, gid) &&
		    families_overlap(at->options, options) &&
		    (at->options & options & AGENT_CM_REUSE) == 0)
			return at;
	return NULL;
}

/* Who holds the port for messages to @gid, an address of @family? Rather one who holds it for that
 * family in the first place. */
static const struct port_entry *holder(const struct node_entry *node, uint16_t space,
                                       const uint8_t gid[16], uint16_t port, uint32_t family)
{
	const struct port_entry *found = NULL;
	for (const struct port_entry *at = node->ports; at != NULL; at = at->next)
		if (at->space == space && at->port == port && cm_overlap(at->gid, gid) &&
		    (at->options & AGENT_CM_DEAF) == 0 &&
		    ((at->options & AGENT_CM_ONLY) == 0 || (at->options & family) != 0) &&
		    (found == NULL || (found->options & family) == 0))
			found = at;
	return found;
}

struct client *cm_holder(const struct node_entry *node, uint16_t space, const uint8_t gid[16],
                         uint16_t port, uint32_t family)
{
	const struct port_entry *entry = holder(node, space, gid, port, family);
	return entry != NULL ? entry->client : NULL;
}

static int agent_cm_take(struct client *client, uint16_t space, const uint8_t gid[16],
                         uint16_t *port, uint32_t options)
{
	struct node_entry *node = client->node;
	for (uint32_t i = 0; *port == 0 && i < DYNAMIC_COUNT; i++) {
		uint16_t tried = (uint16_t)(FIRST_DYNAMIC + node->port_rover++ % DYNAMIC_COUNT);
		if (rival(node, space, gid, tried, options & ~(uint32_t)AGENT_CM_REUSE) == NULL)
			*port = tried;
	}
	if (*port == 0 || rival(node, space, gid, *port, options) != NULL)
		return EADDRINUSE;
	struct port_entry *entry =
	        node->port_count < AGENT_MAX_PORTS ? calloc(1, sizeof(*entry)) : NULL;
	if (entry == NULL)
		return ENOMEM;
	*entry = (struct port_entry){.next = node->ports,
	                             .client = client,
	                             .space = space,
	                             .port = *port,
	                             .options = options};
	memcpy(entry->gid, gid, 16);
	node->ports = entry;
	node->port_count++;
	return 0;
}

void cm_bind(struct client *client, struct agent_msg *msg)
{
	client->connects = true;
	msg->u.cm.error = agent_cm_take(client, msg->u.cm.space, msg->u.cm.gid, &msg->u.cm.port,
	                                msg->u.cm.options);
	msg->kind = AGENT_CM_BOUND;
	if (msg->u.cm.error == 0 && (msg->u.cm.options & AGENT_CM_DEAF) == 0)
		management_listen(client->node);
	if (msg->u.cm.token != 0)
		tell(client, msg, NULL, 0);
}

/* The port of @client's that @msg is about; where it ends: there is none. */
static struct port_entry **agent_cm_find_port(struct client *client, const struct agent_msg *msg)
{
	struct port_entry **at = &client->node->ports;
	while (*at != NULL &&
	       ((*at)->client != client || (*at)->space != msg->u.cm.space ||
	        (*at)->port != msg->u.cm.port ||
	        (((*at)->options ^ msg->u.cm.options) & ~(uint32_t)AGENT_CM_DEAF) != 0 ||
	        memcmp((*at)->gid, msg->u.cm.gid, 16) != 0))
		at = &(*at)->next;
	return at;
}

void cm_listen(struct client *client, const struct agent_msg *msg)
{
	struct port_entry *entry = *agent_cm_find_port(client, msg);
	if (entry == NULL)
		return;
	entry->options &= ~(uint32_t)AGENT_CM_DEAF;
	management_listen(client->node);
}

void cm_unbind(struct client *client, const struct agent_msg *msg)
{
	struct port_entry **at = agent_cm_find_port(client, msg), *entry = *at;
	if (entry == NULL)
		return;
	*at = entry->next;
	client->node->port_count--;
	free(entry);
}

static struct client *cm_addressee(struct agent *agent, const struct agent_msg *msg, int *error)
{
	*error = EHOSTUNREACH;
	if (msg->u.cm.to_port != 0) {
		struct node_entry *node = node_by_gid(agent, msg->u.cm.gid);
		if (node == NULL)
			return NULL;
		*error = ECONNREFUSED;
		return cm_holder(node, msg->u.cm.space, msg->u.cm.gid, msg->u.cm.port,
		                 msg->u.cm.options);
	}
	for (uint32_t i = 0; i < agent->node_count; i++)
		if (agent->nodes[i]->guid == msg->u.cm.guid && msg->u.cm.slot < AGENT_MAX_SLOTS)
			return agent->nodes[i]->slots[msg->u.cm.slot];
	return NULL;
}

void cm_send(struct agent *agent, struct client *client, struct agent_msg *msg)
{
	int error;
	client->connects = true;
	struct client *to = cm_addressee(agent, msg, &error);
	if (to != NULL && !to->dead) {
		struct agent_msg out = *msg;
		out.u.cm.guid = client->node->guid;
		out.u.cm.slot = client->slot;
		out.u.cm.error = 0;
		to->connects = true;
		/* Others can make it fall behind: that is theirs to hear, not the end of it. */
		if (outbox_send(to, &out, NULL, 0))
			return;
		error = EAGAIN;
	}
	msg->kind = AGENT_CM_RETURN;
	msg->u.cm.error = error;
	tell(client, msg, NULL, 0);
}

void cm_leave(struct agent *agent, struct client *client)
{
	if (client->node == NULL)
		return;
	for (struct port_entry **at = &client->node->ports; *at != NULL;) {
		struct port_entry *entry = *at;
		if (entry->client != client) {
			at = &entry->next;
			continue;
		}
		*at = entry->next;
		client->node->port_count--;
		free(entry);
	}
	if (!client->connects)
		return;
	struct agent_msg msg = {.kind = AGENT_CM_GONE,
	                        .u.cm = {.guid = client->node->guid, .slot = client->slot}};
	for (struct client *at = agent->clients; at != NULL; at = at->next)
		if (at->connects && at != client)
			tell(at, &msg, NULL, 0);
}
