/* What the agent does for a process. */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/wire.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memfile.h"
#include "port/lanes.h"
#include "port/owner.h"
#include "port/pidfd.h"
#include "port/unixsock.h"

#define LOOPBACK_TRIES 64u

static void hang_up(struct client *client)
{
	client->dead = true;
}

void tell(struct client *client, struct agent_msg *msg, const int *fds, int fd_count)
{
	if (!client->dead && !outbox_send(client, msg, fds, fd_count))
		hang_up(client);
}

static void serve_refuse(struct client *client, int error, const char *why)
{
	struct agent_msg msg = {.kind = AGENT_REFUSED, .u.refused = {.error = error}};
	snprintf(msg.u.refused.why, sizeof(msg.u.refused.why), "%s", why);
	tell(client, &msg, NULL, 0);
	hang_up(client);
}

void agent_accept(struct agent *agent)
{
	int sock = accept4(agent->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (sock < 0 && (errno == EMFILE || errno == ENFILE) && agent->spare >= 0) {
		/* Out of descriptors: who knocks is turned away, or else it would keep us awake for
		 * ever. */
		close(agent->spare);
		sock = accept4(agent->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (sock >= 0)
			close(sock);
		agent->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
		return;
	}
	if (sock < 0)
		return;
	struct client *client = calloc(1, sizeof(*client));
	pid_t pid;
	uid_t uid;
	/* The socket is closed to others; should one get in all the same, it is turned away. */
	if (client == NULL || unixsock_peer(sock, &pid, &uid) != 0 || uid != geteuid()) {
		log_debug("a process of another user was turned away: this agent serves user %u",
		          (unsigned)geteuid());
		free(client);
		close(sock);
		return;
	}
	*client = (struct client){.source = SOURCE_CLIENT,
	                          .sock = sock,
	                          .epoll = agent->epoll,
	                          .pid = pid,
	                          .pidfd = pidfd_of_peer(sock, pid),
	                          .tables = -1,
	                          .bell = -1};
	struct epoll_event interest = {.events = EPOLLIN, .data.ptr = client};
	if (epoll_ctl(agent->epoll, EPOLL_CTL_ADD, sock, &interest) != 0) {
		if (client->pidfd >= 0)
			close(client->pidfd);
		free(client);
		close(sock);
		return;
	}
	if (client->pidfd >= 0)
		epoll_ctl(agent->epoll, EPOLL_CTL_ADD, client->pidfd, &interest);
	client->next = agent->clients;
	agent->clients = client;
	agent->client_count++;
}

/* @address, which is what @node has been known by, is not to be had. If another user holds it,
 * everybody is told. */
static void note_taken(struct node_entry *node, const struct udp_address *address)
{
	uid_t uid = 0;
	if (node->taken[12] != 0 || owner_of(address, UDP_ROCE_PORT, &uid) != OWNER_OTHER)
		return;
	memcpy(node->taken, address->gid, sizeof(node->taken));
	node->taken_by = uid;
}

/* Give @node a wire that no other machine reaches: on the address that its LID stands for
 * (agent_lid_at()). Where an agent of another directory has that, the node takes another LID,
 * unless somebody was told of this one. */
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

/* See to it that the node has the wire that @client wants. 0; -EAGAIN: not yet; else *why is why
 * not. */
static int find_wire(struct agent *agent, struct client *client, struct node_entry *node, char *why,
                     size_t why_bytes)
{
	/* Who only wants not to be local takes what is there. */
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

/* The addresses of @node but for those that other nodes have been put on: the machine's own node
 * lists all of the machine's. */
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
	int socks[UDP_MAX_ADDRESSES];
	unsigned count = client->wire != AGENT_WIRE_NONE ? wires_count(node) : 0;
	int result = count > 0 ? wires_enter(node, client->slot, socks) : 0;
	if (result != 0) {
		serve_refuse(
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
	tell(client, &answer, socks, (int)count);
}

/* Give @client its names, unless it has to wait for a wire. */
static void admit(struct agent *agent, struct client *client)
{
	char why[sizeof(((struct agent_msg *)0)->u.refused.why)] = "";
	client->waiting = client->awaiting_wire = false;
	struct node_entry *node = node_of(agent, client->node_name, client->lid,
	                                  client->lmc < 0 ? 0 : (unsigned)client->lmc);
	if (node == NULL) {
		serve_refuse(client, ENOSPC, "too many nodes; end the programs of one");
		return;
	}
	if (client->lmc >= 0 && node->lmc != (unsigned)client->lmc) {
		snprintf(why, sizeof(why),
		         "the node has %u LIDs (HEDDLE_LMC=%u), as its first program asked; end "
		         "its programs, or use another node (HEDDLE_NODE)",
		         1u << node->lmc, node->lmc);
		serve_refuse(client, EBUSY, why);
		return;
	}
	wires_yield(node, client);
	int result = find_wire(agent, client, node, why, sizeof(why));
	client->awaiting_wire = result == -EAGAIN;
	if (result != 0 && result != -EAGAIN)
		serve_refuse(client, -result, why);
	else if (result == 0 && !node_enter(agent, node, client, client->wish))
		serve_refuse(client, ENOSPC,
		             client->wish >= 0 ? "another process has our number now"
		                               : "too many processes on the node; use another one");
	else if (result == 0)
		welcome(agent, client);
	node_tidy(agent, node);
}

/* Does @client want packets of a network namespace that we are not in? On the same-host path it
 * makes no difference. If nobody else is here we leave, and the next agent, which it starts, is
 * where it is. */
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
	serve_refuse(
	        client, ENETUNREACH,
	        "it is in another network namespace; set HEDDLE_DIR to a directory of its own for "
	        "each, or end the programs there");
	return true;
}

static void hello(struct agent *agent, struct client *client, struct agent_msg *msg, int *fds,
                  int fd_count)
{
	if (fd_count != 2 || client->greeted || client->waiting || client->awaiting_wire ||
	    msg->u.hello.wire_count > UDP_MAX_ADDRESSES ||
	    msg->u.hello.lmc > (int32_t)AGENT_MAX_LMC ||
	    (msg->u.hello.wire == AGENT_WIRE_ADDRESS && msg->u.hello.wire_count == 0) ||
	    !memfile_is_sealed(fds[0], msg->u.hello.sizes.block_bytes)) {
		serve_refuse(client, EPROTO, "the greeting makes no sense");
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
	memcpy(client->wire_addresses, msg->u.hello.wires, sizeof(client->wire_addresses));
	if (client->wish >= 0 && agent->wire_ns == 0)
		agent->wire_ns = clock_now_ns() + AGENT_WIRE_GRACE_NS;
	memcpy(client->program, msg->u.hello.program, sizeof(client->program));
	memcpy(client->node_name, msg->u.hello.node, sizeof(client->node_name));
	client->waiting = client->wish < 0 && agent->open_ns != 0;
	if (!client->waiting)
		admit(agent, client);
}

void agent_admit_waiting(struct agent *agent)
{
	agent->open_ns = 0;
	for (struct client *at = agent->clients; at != NULL; at = at->next)
		if (at->waiting && !at->dead)
			admit(agent, at);
}

bool agent_admit_to_wire(struct agent *agent)
{
	bool waits = false;
	for (struct client *at = agent->clients; at != NULL; at = at->next) {
		if (at->awaiting_wire && !at->dead)
			admit(agent, at);
		waits |= at->awaiting_wire && !at->dead;
	}
	return waits;
}

static const struct bond *bond_of(const struct agent *agent, const struct client *a,
                                  const struct client *b)
{
	for (const struct bond *at = agent->bonds; at != NULL; at = at->next)
		if ((at->ends[0] == a && at->ends[1] == b) ||
		    (at->ends[0] == b && at->ends[1] == a))
			return at;
	return NULL;
}

/* Lanes for two processes; -1. */
static int make_lanes(void)
{
	int fd = memfile_make("heddle-lanes", lanes_bytes());
	if (fd < 0)
		goto failed;
	void *block = mmap(NULL, lanes_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (block == MAP_FAILED)
		goto failed;
	lanes_format(block);
	munmap(block, lanes_bytes());
	if (!memfile_seal(fd))
		goto failed;
	return fd;
failed:
	log_error("lanes: %m");
	if (fd >= 0)
		close(fd);
	return -1;
}

static void tell_of_peer(struct client *to, const struct client *peer, const struct bond *bond,
                         uint32_t side, uint32_t token, int lanes)
{
	struct agent_msg msg = {.kind = AGENT_PEER,
	                        .u.peer = {.token = token,
	                                   .side = side,
	                                   .link_id = bond->id,
	                                   .slot = peer->slot,
	                                   .pid = peer->pid,
	                                   .sizes = peer->sizes}};
	memcpy(msg.u.peer.node_guid, &peer->node->guid, 8);
	int fds[4] = {peer->tables, lanes, peer->bell, peer->pidfd};
	tell(to, &msg, fds, peer->pidfd >= 0 ? 4 : 3);
}

static void serve_introduce(struct agent *agent, struct client *client, const struct agent_msg *msg)
{
	uint32_t token = msg->u.introduce.token, slot = msg->u.introduce.slot;
	struct node_entry *node = node_by_gid(agent, msg->u.introduce.gid);
	struct client *peer = node != NULL && slot < AGENT_MAX_SLOTS ? node->slots[slot] : NULL;
	struct agent_msg no = {
	        .kind = AGENT_NO_PEER,
	        .u.known = {.token = token, .node_guid = node != NULL ? node->guid : 0}};
	if (peer == client)
		peer = NULL;
	/* Known to each other already, by another address or because the peer asked first: PEER was
	 * sent before. */
	const struct bond *known = peer != NULL ? bond_of(agent, client, peer) : NULL;
	if (known != NULL) {
		struct agent_msg yes = {
		        .kind = AGENT_KNOWN,
		        .u.known = {.token = token, .link_id = known->id, .node_guid = node->guid}};
		tell(client, &yes, NULL, 0);
		return;
	}
	struct bond *bond = NULL;
	int lanes = -1;
	if (peer != NULL && !peer->dead && agent->bond_count < AGENT_MAX_LINKS &&
	    (bond = calloc(1, sizeof(*bond))) != NULL && (lanes = make_lanes()) >= 0) {
		*bond = (struct bond){.id = ++agent->next_bond % AGENT_LINK_IDS,
		                      .ends = {client, peer},
		                      .next = agent->bonds};
		agent->bonds = bond;
		agent->bond_count++;
		/* The one who is asked first, so that it is ready when the asker begins. */
		tell_of_peer(peer, client, bond, 1, 0, lanes);
		tell_of_peer(client, peer, bond, 0, token, lanes);
		close(lanes);
		return;
	}
	free(bond);
	tell(client, &no, NULL, 0);
}

/* Tell the other end of @bond, which is not @client, that it is over, and forget it. */
static void break_bond(struct agent *agent, struct bond **at, const struct client *client)
{
	struct bond *bond = *at;
	struct agent_msg msg = {.kind = AGENT_GONE, .u.gone = {.link_id = bond->id}};
	tell(bond->ends[bond->ends[0] == client], &msg, NULL, 0);
	*at = bond->next;
	agent->bond_count--;
	free(bond);
}

static void serve_part(struct agent *agent, const struct client *client,
                       const struct agent_msg *msg)
{
	for (struct bond **at = &agent->bonds; *at != NULL; at = &(*at)->next)
		if ((*at)->id == msg->u.gone.link_id &&
		    ((*at)->ends[0] == client || (*at)->ends[1] == client)) {
			break_bond(agent, at, client);
			return;
		}
}

static void serve_find(struct agent *agent, struct client *client, const struct agent_msg *msg)
{
	const struct node_entry *node = node_by_gid(agent, msg->u.introduce.gid);
	struct agent_msg answer = {.kind = node != NULL ? AGENT_KNOWN : AGENT_NO_PEER,
	                           .u.known = {.token = msg->u.introduce.token}};
	if (node != NULL) {
		answer.u.known.node_guid = node->guid;
		answer.u.known.lid = node->lid;
	}
	tell(client, &answer, NULL, 0);
}

static void observe(struct agent *agent, struct client *client)
{
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

/* What a process that has greeted may ask for. False: no such thing. */
static bool serve_serve(struct agent *agent, struct client *client, struct agent_msg *msg)
{
	switch (msg->kind) {
	case AGENT_INTRODUCE:
		serve_introduce(agent, client, msg);
		return true;
	case AGENT_PART:
		serve_part(agent, client, msg);
		return true;
	case AGENT_FIND:
		serve_find(agent, client, msg);
		return true;
	case AGENT_CM_BIND:
		cm_bind(client, msg);
		return true;
	case AGENT_CM_LISTEN:
		cm_listen(client, msg);
		return true;
	case AGENT_CM_UNBIND:
		cm_unbind(client, msg);
		return true;
	case AGENT_CM_SEND:
		cm_send(agent, client, msg);
		return true;
	case AGENT_CM_MAD:
		management_send(client, msg);
		return true;
	case AGENT_GROUP_JOIN:
		group_join(agent, client, msg);
		return true;
	case AGENT_GROUP_SEND:
		group_send(agent, client, msg);
		return true;
	case AGENT_GROUP_LEAVE:
	case AGENT_GROUP_FORGET:
		group_end(agent, client, msg);
		return true;
	default:
		return false;
	}
}

void agent_hear(struct agent *agent, struct client *client)
{
	struct agent_msg msg;
	int fds[UNIXSOCK_MAX_FDS], fd_count;
	if (client->dead)
		return;
	memset(&msg, 0, sizeof(msg));
	ssize_t got = unixsock_receive(client->sock, &msg, sizeof(msg), fds, &fd_count);
	if (got == -EAGAIN) {
		/* Nothing was said: then it is the process that has ended, and one of its children
		 * holds the socket. */
		if (client->pidfd >= 0 && pidfd_ended(client->pidfd))
			hang_up(client);
		return;
	}
	if (got == -EMFILE) {
		serve_refuse(
		        client, EMFILE,
		        "it has no descriptors left; end some programs, or raise \"ulimit -n\" and "
		        "end the agent");
		return;
	}
	if (got <= 0 && got != -EMSGSIZE) {
		hang_up(client);
		return;
	}
	/* The message of another version may be longer than ours. */
	if (got < (ssize_t)offsetof(struct agent_msg, u) || msg.version != AGENT_VERSION) {
		serve_refuse(client, EPROTONOSUPPORT,
		             "another version of Heddle runs the agent; end its programs, then try "
		             "again");
	} else if (msg.kind == AGENT_HELLO && (size_t)got == sizeof(msg)) {
		hello(agent, client, &msg, fds, fd_count);
	} else if (msg.kind == AGENT_OBSERVE) {
		observe(agent, client);
	} else if (!client->greeted || (size_t)got != sizeof(msg) ||
	           !serve_serve(agent, client, &msg)) {
		serve_refuse(client, EPROTO, "the message makes no sense");
	}
	for (int i = 0; i < fd_count; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

/* Those who know @client hear that it is gone. */
static void break_bonds(struct agent *agent, struct client *client)
{
	struct bond **at = &agent->bonds;
	while (*at != NULL) {
		const struct bond *bond = *at;
		if (bond->ends[0] != client && bond->ends[1] != client)
			at = &(*at)->next;
		else
			break_bond(agent, at, client);
	}
}

void agent_sweep(struct agent *agent)
{
	for (struct client **at = &agent->clients; *at != NULL;) {
		struct client *client = *at;
		if (!client->dead) {
			at = &client->next;
			continue;
		}
		*at = client->next;
		break_bonds(agent, client);
		management_leave(client);
		cm_leave(agent, client);
		group_leave_all(agent, client);
		node_leave(agent, client);
		outbox_clear(client);
		close(client->sock);
		if (client->pidfd >= 0) {
			/* Its peers have it too: closing alone would not end our interest. */
			epoll_ctl(agent->epoll, EPOLL_CTL_DEL, client->pidfd, NULL);
			close(client->pidfd);
		}
		if (client->tables >= 0)
			close(client->tables);
		if (client->bell >= 0)
			close(client->bell);
		free(client);
		agent->client_count--;
		at = &agent->clients; /* telling may have found another one dead */
	}
}
