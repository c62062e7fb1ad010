/* The introductions service: makes two processes known to each other, with lanes between them, and
 * tells each when the other has gone. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"
#include "base/log.h"
#include "port/lanes.h"

static const struct peer_link *link_between(const struct agent *agent, const struct client *a,
                                            const struct client *b)
{
	for (const struct peer_link *at = agent->links; at != NULL; at = at->next)
		if ((at->ends[0] == a && at->ends[1] == b) ||
		    (at->ends[0] == b && at->ends[1] == a))
			return at;
	return NULL;
}

/* A memory file with lanes for two processes, or -1. */
static int make_lanes(void)
{
	int fd = lanes_make(LANES_SLOTS);
	if (fd < 0)
		log_error("cannot make lanes for two processes: %m");
	return fd;
}

static void tell_of_peer(const struct agent *agent, struct client *to, struct client *peer,
                         const struct peer_link *link, uint32_t side, uint32_t token, int lanes)
{
	struct agent_msg msg = {
	        .kind = AGENT_PEER,
	        .u.peer = {.token = token,
	                   .side = side,
	                   .link_id = link->id,
	                   .slot = peer->slot,
	                   .pid = peer->pid,
	                   .managed = ci_is_untrusted(agent, to) || ci_is_untrusted(agent, peer),
	                   .sizes = peer->sizes}};
	memcpy(msg.u.peer.node_guid, &peer->node->guid, 8);
	int fds[4] = {peer->tables, lanes, peer->bell, peer->pidfd};
	tell(to, &msg, fds, peer->pidfd >= 0 ? 4 : 3);
}

static void introduce_peer(struct agent *agent, struct client *client,
                           struct agent_request *request)
{
	const struct agent_introduce *asked = &request->msg.u.introduce;
	uint32_t token = asked->token, slot = asked->slot;
	struct node_entry *node = node_by_gid(agent, asked->gid);
	struct client *peer = node != NULL && slot < AGENT_MAX_SLOTS ? node->slots[slot] : NULL;
	struct agent_msg no = {
	        .kind = AGENT_NO_PEER,
	        .u.known = {.token = token, .node_guid = node != NULL ? node->guid : 0}};
	if (peer == client)
		peer = NULL;
	/* They know each other already, by another address or because the peer asked first: PEER
	 * has been sent. */
	const struct peer_link *known = peer != NULL ? link_between(agent, client, peer) : NULL;
	if (known != NULL) {
		struct agent_msg yes = {
		        .kind = AGENT_KNOWN,
		        .u.known = {.token = token, .link_id = known->id, .node_guid = node->guid}};
		tell(client, &yes, NULL, 0);
		return;
	}
	struct peer_link *link = NULL;
	int lanes = -1;
	if (peer != NULL && !peer->dead && agent->link_count < AGENT_MAX_LINKS &&
	    (link = calloc(1, sizeof(*link))) != NULL && (lanes = make_lanes()) >= 0) {
		*link = (struct peer_link){.id = ++agent->next_link % AGENT_LINK_IDS,
		                           .ends = {client, peer},
		                           .next = agent->links};
		agent->links = link;
		agent->link_count++;
		/* The peer first, so that it is ready when the process that asked begins. */
		tell_of_peer(agent, peer, client, link, 1, 0, lanes);
		tell_of_peer(agent, client, peer, link, 0, token, lanes);
		close(lanes);
		return;
	}
	free(link);
	tell(client, &no, NULL, 0);
}

/* Tell the end of the link that is not @client that the link is gone, and forget it. */
static void break_link(struct agent *agent, struct peer_link **at, const struct client *client)
{
	struct peer_link *link = *at;
	struct agent_msg msg = {.kind = AGENT_GONE, .u.gone = {.link_id = link->id}};
	tell(link->ends[link->ends[0] == client], &msg, NULL, 0);
	*at = link->next;
	agent->link_count--;
	free(link);
}

static void introduce_part(struct agent *agent, struct client *client,
                           struct agent_request *request)
{
	for (struct peer_link **at = &agent->links; *at != NULL; at = &(*at)->next)
		if ((*at)->id == request->msg.u.gone.link_id &&
		    ((*at)->ends[0] == client || (*at)->ends[1] == client)) {
			break_link(agent, at, client);
			return;
		}
}

static void introduce_find(struct agent *agent, struct client *client,
                           struct agent_request *request)
{
	const struct agent_introduce *asked = &request->msg.u.introduce;
	const struct node_entry *node = node_by_gid(agent, asked->gid);
	struct agent_msg answer = {.kind = node != NULL ? AGENT_KNOWN : AGENT_NO_PEER,
	                           .u.known = {.token = asked->token}};
	if (node != NULL) {
		answer.u.known.node_guid = node->guid;
		answer.u.known.lid = node->lid;
	}
	tell(client, &answer, NULL, 0);
}

/* Tell the processes that know @client that it has gone. */
static void break_links(struct agent *agent, struct client *client)
{
	struct peer_link **at = &agent->links;
	while (*at != NULL) {
		const struct peer_link *link = *at;
		if (link->ends[0] != client && link->ends[1] != client)
			at = &(*at)->next;
		else
			break_link(agent, at, client);
	}
}

static const struct service_kind introduce_kinds[] = {
        {AGENT_INTRODUCE, AGENT_MSG_BYTES(introduce), false, introduce_peer},
        {AGENT_FIND, AGENT_MSG_BYTES(introduce), false, introduce_find},
        {AGENT_PART, AGENT_MSG_BYTES(gone), false, introduce_part},
};
const struct agent_service introduce_service = {.name = "introductions",
                                                .kinds = introduce_kinds,
                                                .kind_count = SERVICE_KINDS(introduce_kinds),
                                                .leave = break_links};
