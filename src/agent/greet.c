/* The names service: gives a process its node, addresses and slot when it greets the agent, and
 * lists the processes for an observer. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/wire.h"
#include "base/clock.h"
#include "base/memfile.h"
#include "port/owner.h"

#define LOOPBACK_TRIES 64u

/* @address, by which @node has been known, is taken. If another user holds it, remember that for
 * the processes of the node. */
static void note_taken(struct node_entry *node, const struct udp_address *address)
{
	uid_t uid = 0;
	if (node->taken[12] != 0 || owner_of(address, UDP_ROCE_PORT, &uid) != OWNER_OTHER)
		return;
	memcpy(node->taken, address->gid, sizeof(node->taken));
	node->taken_by = uid;
}

/* Give @node a wire that no other machine reaches: on the address that follows from its LID
 * (agent_lid_at()). If an agent of another directory has that address, the node takes another LID,
 * unless a process knows this one already. */
static int open_loopback(struct agent *agent, struct node_entry *node, char *why, size_t why_bytes)
{
	struct udp_address address = {0};
	node_loopback(node, address.gid);
	if (!udp_has_route(&address)) {
		snprintf(why, why_bytes,
		         "the loopback interface is down: \"ip link set lo up\", or do without "
		         "HEDDLE_LOCAL=off");
		return -ENETUNREACH;
	}
	for (unsigned tries = LOOPBACK_TRIES;; tries--) {
		int result = wires_open(agent, node, &address, 1, why, why_bytes);
		if (result == -EADDRINUSE && clock_now_ns() < agent->wire_ns)
			return -EAGAIN;
		if ((result != -EADDRINUSE && result != -EBUSY) || node->clients > 0 || tries == 0)
			return result;
		note_taken(node, &address);
		node_take_next_lids(agent, node);
		node_loopback(node, address.gid);
	}
}

/* Make sure that @node has the wire that @client wants. 0; -EAGAIN: not yet; else *why says why
 * not. */
static int find_wire(struct agent *agent, struct client *client, struct node_entry *node, char *why,
                     size_t why_bytes)
{
	/* A process that only wants not to be local takes the wire that is there. */
	if (client->wire == AGENT_WIRE_NONE ||
	    (client->wire == AGENT_WIRE_LOOPBACK && wires_count(node) > 0))
		return 0;
	if (client->wire == AGENT_WIRE_LOOPBACK)
		return open_loopback(agent, node, why, why_bytes);
	int result =
	        wires_open(agent, node, client->wire_addresses, client->wire_count, why, why_bytes);
	if (result == -EADDRINUSE && clock_now_ns() < agent->wire_ns)
		return -EAGAIN;
	return result;
}

/* The addresses of @node without those that other nodes were given: the machine's own node lists
 * all addresses of the machine. */
static uint32_t own_addresses(struct agent *agent, const struct node_entry *node,
                              uint8_t gids[AGENT_MAX_GIDS][16])
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < node->gid_count; i++)
		if (i <= AGENT_IB_GID || node_by_gid(agent, node->gids[i]) == node)
			memcpy(gids[count++], node->gids[i], 16);
	return count;
}

static void welcome(struct agent *agent, struct client *client)
{
	struct node_entry *node = client->node;
	struct agent_msg answer = {.kind = AGENT_WELCOME,
	                           .u.welcome = {.slot = client->slot,
	                                         .lid = node->lid,
	                                         .lmc = node->lmc,
	                                         .guid = node->guid}};
	answer.u.welcome.gid_count = own_addresses(agent, node, answer.u.welcome.gids);
	memcpy(answer.u.welcome.taken, node->taken, sizeof(node->taken));
	answer.u.welcome.taken_by = node->taken_by;
	int socks[AGENT_MAX_WIRE_SOCKS];
	unsigned count = client->wire != AGENT_WIRE_NONE ? wires_count(node) : 0;
	int result = count > 0 ? wires_enter(agent, node, client->slot, client->cells, socks) : 0;
	if (result < 0) {
		client_refuse(
		        client, -result,
		        result == -EPERM || result == -EACCES || result == -ENOSYS
		                ? "SO_ATTACH_REUSEPORT_CBPF, by which processes share the port, is "
		                  "forbidden; allow it in the container's filter (seccomp)"
		                : "no socket for the wire; raise \"ulimit -n\", then end the "
		                  "agent");
		return;
	}
	answer.u.welcome.wire_mtu = count > 0 ? wires_mtu(node) : 0;
	answer.u.welcome.wire_count = count;
	for (unsigned i = 0; i < count; i++)
		answer.u.welcome.wires[i] = *wire_address(node->wires[i]);
	client->greeted = true;
	tell(client, &answer, socks, result);
}

/* Give @client its node, slot and wire, unless it has to wait for the wire. */
static void admit(struct agent *agent, struct client *client)
{
	char why[sizeof(((struct agent_msg *)0)->u.refused.why)] = "";
	client->waiting = client->awaiting_wire = false;
	struct node_entry *node = node_of(agent, client->node_name, client->lid,
	                                  client->lmc < 0 ? 0 : (unsigned)client->lmc);
	if (node == NULL) {
		client_refuse(client, ENOSPC, "too many nodes; end the programs of one");
		return;
	}
	if (client->lmc >= 0 && node->lmc != (unsigned)client->lmc) {
		snprintf(why, sizeof(why),
		         "the node has %u LIDs (HEDDLE_LMC=%u), as its first program asked; end "
		         "its programs, or use another node (HEDDLE_NODE)",
		         1u << node->lmc, node->lmc);
		client_refuse(client, EBUSY, why);
		return;
	}
	wires_yield(node, client);
	int result = find_wire(agent, client, node, why, sizeof(why));
	client->awaiting_wire = result == -EAGAIN;
	if (result != 0 && result != -EAGAIN)
		client_refuse(client, -result, why);
	else if (result == 0 && !node_enter(agent, node, client, client->wish))
		client_refuse(client, ENOSPC,
		              client->wish >= 0
		                      ? "another process has this process's slot now"
		                      : "too many processes on the node; use another one");
	else if (result == 0)
		welcome(agent, client);
	node_tidy(agent, node);
}

/* Does @client want packets of a network namespace that the agent is not in? On the same-host path
 * it makes no difference. If no other process is here, the agent exits, and the client starts the
 * next one in its own namespace. */
static bool is_elsewhere(struct agent *agent, struct client *client, const struct agent_msg *msg)
{
	const uint64_t *there = msg->u.hello.network;
	if (msg->u.hello.wire == AGENT_WIRE_NONE || there[1] == 0 || agent->network[1] == 0 ||
	    memcmp(there, agent->network, sizeof(agent->network)) == 0)
		return false;
	if (agent->client_count == 1) {
		agent->leaving = true;
		return true;
	}
	client_refuse(
	        client, ENETUNREACH,
	        "it is in another network namespace; set HEDDLE_DIR to a directory of its own for "
	        "each, or end the programs there");
	return true;
}

static void names_hello(struct agent *agent, struct client *client, struct agent_request *request)
{
	struct agent_msg *msg = &request->msg;
	int *fds = request->fds;
	if (request->fd_count != 2 || client->greeted || client->waiting || client->awaiting_wire ||
	    msg->u.hello.wire_count > UDP_MAX_ADDRESSES ||
	    msg->u.hello.lmc > (int32_t)AGENT_MAX_LMC ||
	    (msg->u.hello.wire == AGENT_WIRE_ADDRESS && msg->u.hello.wire_count == 0) ||
	    !memfile_is_sealed(fds[0], msg->u.hello.sizes.block_bytes)) {
		client_refuse(client, EPROTO, "the greeting is malformed");
		return;
	}
	if (is_elsewhere(agent, client, msg))
		return;
	msg->u.hello.node[AGENT_NAME_MAX - 1] = msg->u.hello.program[AGENT_NAME_MAX - 1] = '\0';
	client->tables = fds[0];
	client->bell = fds[1];
	fds[0] = fds[1] = -1;
	client->sizes = msg->u.hello.sizes;
	client->wish = msg->u.hello.slot;
	client->lid = msg->u.hello.lid;
	client->lmc = msg->u.hello.lmc;
	client->wire = msg->u.hello.wire;
	client->wire_count = msg->u.hello.wire_count;
	client->cells = msg->u.hello.cells != 0;
	client->stripes = msg->u.hello.stripes != 0;
	memcpy(client->wire_addresses, msg->u.hello.wires, sizeof(client->wire_addresses));
	if (client->wish >= 0 && agent->wire_ns == 0)
		agent->wire_ns = clock_now_ns() + AGENT_WIRE_GRACE_NS;
	memcpy(client->program, msg->u.hello.program, sizeof(client->program));
	memcpy(client->node_name, msg->u.hello.node, sizeof(client->node_name));
	client->waiting = client->wish < 0 && agent->open_ns != 0;
	if (!client->waiting)
		admit(agent, client);
}

/* Admit newcomers once the grace period is over, and let the processes that wait for a wire try
 * again. */
static uint64_t names_sweep(struct agent *agent, uint64_t now_ns)
{
	if (agent->open_ns != 0 && now_ns >= agent->open_ns)
		agent->open_ns = 0;
	uint64_t due_ns = agent->open_ns != 0 ? agent->open_ns : SERVICES_NEVER;
	for (struct client *at = agent->clients; at != NULL; at = at->next) {
		if (at->dead || !(at->awaiting_wire || (at->waiting && agent->open_ns == 0)))
			continue;
		admit(agent, at);
		if (at->dead) /* refused: the next turn frees it */
			due_ns = now_ns;
		else if (at->awaiting_wire && now_ns + AGENT_WIRE_RETRY_NS < due_ns)
			due_ns = now_ns + AGENT_WIRE_RETRY_NS;
	}
	return due_ns;
}

static void names_observe(struct agent *agent, struct client *client, struct agent_request *request)
{
	(void)request;
	for (struct client *at = agent->clients; at != NULL; at = at->next) {
		if (!at->greeted || at->dead)
			continue;
		struct agent_msg msg = {
		        .kind = AGENT_PROCESS,
		        .u.process = {.pid = at->pid, .slot = at->slot, .sizes = at->sizes}};
		memcpy(msg.u.process.node, at->node->name, AGENT_NAME_MAX);
		memcpy(msg.u.process.gid, at->node->gids[0], 16);
		memcpy(msg.u.process.taken, at->node->taken, 16);
		msg.u.process.taken_by = at->node->taken_by;
		memcpy(msg.u.process.program, at->program, AGENT_NAME_MAX);
		tell(client, &msg, &at->tables, 1);
	}
	struct agent_msg end = {.kind = AGENT_END};
	tell(client, &end, NULL, 0);
}

static const struct service_kind names_kinds[] = {
        {AGENT_HELLO, AGENT_MSG_BYTES(hello), true, names_hello},
        {AGENT_OBSERVE, AGENT_MSG_HEADER_BYTES, true, names_observe},
};
const struct agent_service names_service = {.name = "names",
                                            .kinds = names_kinds,
                                            .kind_count = SERVICE_KINDS(names_kinds),
                                            .leave = node_leave,
                                            .sweep = names_sweep};
