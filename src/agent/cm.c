/* The connections service: knows which process holds which port of a node, and passes messages on
 * to that process. What the messages mean is between the processes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "port/unixsock.h"

/* The ports for processes that ask for any port (RFC 6335 section 6). */
#define FIRST_DYNAMIC 49152u
#define DYNAMIC_COUNT 16384u

static const uint8_t any[16];

static bool cm_overlap(const uint8_t a[16], const uint8_t b[16])
{
	return memcmp(a, any, 16) == 0 || memcmp(b, any, 16) == 0 || memcmp(a, b, 16) == 0;
}

/* A port for IPv4 does not keep another process from having it for IPv6 alone, as in Linux. */
static bool is_alone(uint32_t options)
{
	return (options & (AGENT_CM_ONLY | AGENT_CM_IPV4)) != 0;
}

/* Two ports do not overlap only if each is for one family alone, and not for the same one. */
static bool families_overlap(uint32_t a, uint32_t b)
{
	const uint32_t both = AGENT_CM_IPV4 | AGENT_CM_IPV6;
	return !is_alone(a) || !is_alone(b) || (a & b & both) != 0;
}

/* The entry that keeps a process with @options from having the port; NULL: none. */
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

/* The entry of the port for messages to @gid, an address of @family: one for that family first of
 * all, if there is one. */
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

static void cm_bind(struct agent *agent, struct client *client, struct agent_request *request)
{
	(void)agent;
	struct agent_msg *msg = &request->msg;
	client->connects = true;
	msg->u.cm.error = agent_cm_take(client, msg->u.cm.space, msg->u.cm.gid, &msg->u.cm.port,
	                                msg->u.cm.options);
	msg->kind = AGENT_CM_BOUND;
	if (msg->u.cm.error == 0 && (msg->u.cm.options & AGENT_CM_DEAF) == 0)
		management_listen(client->node);
	if (msg->u.cm.token != 0)
		tell(client, msg, NULL, 0);
}

/* Where the list has the port of @client that @msg names; the end of the list: nowhere. */
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

static void cm_listen(struct agent *agent, struct client *client, struct agent_request *request)
{
	(void)agent;
	struct port_entry *entry = *agent_cm_find_port(client, &request->msg);
	if (entry == NULL)
		return;
	entry->options &= ~(uint32_t)AGENT_CM_DEAF;
	management_listen(client->node);
}

static void cm_unbind(struct agent *agent, struct client *client, struct agent_request *request)
{
	(void)agent;
	struct port_entry **at = agent_cm_find_port(client, &request->msg), *entry = *at;
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

static void cm_send(struct agent *agent, struct client *client, struct agent_request *request)
{
	struct agent_msg *msg = &request->msg;
	int error;
	client->connects = true;
	struct client *to = cm_addressee(agent, msg, &error);
	if (to != NULL && !to->dead) {
		struct agent_msg out = *msg;
		out.u.cm.guid = client->node->guid;
		out.u.cm.slot = client->slot;
		out.u.cm.error = 0;
		to->connects = true;
		/* Other processes can make it fall behind. Then they get their message back; it is
		 * not disconnected for that. */
		if (outbox_send(to, &out, NULL, 0) == 0)
			return;
		error = EAGAIN;
	}
	msg->kind = AGENT_CM_RETURN;
	msg->u.cm.error = error;
	tell(client, msg, NULL, 0);
}

/* The ports of @client become free, and other processes that connect hear that it has gone. */
static void cm_leave(struct agent *agent, struct client *client)
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

static const struct service_kind cm_kinds[] = {
        {AGENT_CM_BIND, AGENT_MSG_BYTES(cm), false, cm_bind},
        {AGENT_CM_LISTEN, AGENT_MSG_BYTES(cm), false, cm_listen},
        {AGENT_CM_UNBIND, AGENT_MSG_BYTES(cm), false, cm_unbind},
        {AGENT_CM_SEND, AGENT_MSG_BYTES(cm), false, cm_send},
};
const struct agent_service cm_service = {.name = "connections",
                                         .kinds = cm_kinds,
                                         .kind_count = SERVICE_KINDS(cm_kinds),
                                         .leave = cm_leave};
