/* The virtual switch service: knows which processes take part in the virtual switch of a node
 * (members), gives them APIDs and, when one first sends to another, lanes between the two, and
 * writes the board that all of them read (fabric/board.h). Packets never come here.
 *
 * After an agent was killed, its members attach again, with the numbers, APIDs and lanes that they
 * have. Until the grace period is over (AGENT_GRACE_NS) nobody is told anything: the members go on
 * with the board of the dead agent. Then those that came back are entered first, so that no
 * newcomer gets an APID in use. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/agent.h"
#include "base/log.h"
#include "base/memfile.h"
#include "fabric/board.h"
#include "port/lanes.h"
#include "port/vskey.h"

/* How long, after the grace period, to wait for a member that others have seen, and that has not
 * come back: on a busy machine it may be late. */
#define VS_MISSING_NS 900000000u
#define VS_LOOK_NS    10000000u

struct vs_node {
	struct vs_node *next;
	char name[AGENT_NAME_MAX];
	struct board *board;
	int reader; /* the descriptor of the board that members get */
	struct vs_member *members[BOARD_MEMBERS];
	unsigned count, next_number;
};

struct vs_member {
	struct client *client;
	struct vs_node *node; /* NULL: it waits for the end of the grace period */
	bool welcome;         /* it has the board */
	uint32_t number;
	struct agent_vs_attach asked;
	uint64_t met; /* those that it has lanes to, by bits */
	/* What it says of its ports while it waits. */
	struct agent_vs_port ports[VSWITCH_HARDWARE_PORTS];
	uint32_t told; /* which of them, by bits */
};

void vswitch_begin(struct agent *agent, const char *directory)
{
	rundir_file(directory, AGENT_VS_KEY, agent->vs_key_path, sizeof(agent->vs_key_path));
}

void vswitch_end(const struct agent *agent)
{
	vskey_remove(agent->vs_key_path);
}

/* Does the member present the key of the administrator? */
static bool has_right(const struct agent *agent, const struct agent_vs_attach *asked)
{
	uint8_t key[AGENT_VS_KEY_BYTES];
	return vskey_read(agent->vs_key_path, key) && vskey_equal(key, asked->key);
}

/* A new board. Only the mapping of the agent can be written. */
static bool make_board(struct agent *agent, struct vs_node *node)
{
	int fd = memfile_make("heddle-vswitch", sizeof(*node->board));
	void *block = fd < 0 ? MAP_FAILED
	                     : mmap(NULL, sizeof(*node->board), PROT_READ | PROT_WRITE, MAP_SHARED,
	                            fd, 0);
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	/* An old kernel cannot close the file to writers; then members get a descriptor for
	 * reading, which suffices against accidents. */
	if (block != MAP_FAILED)
		node->reader = memfile_close_to_writers(fd) ? fcntl(fd, F_DUPFD_CLOEXEC, 3)
		                                            : open(path, O_RDONLY | O_CLOEXEC);
	bool made = block != MAP_FAILED && memfile_seal(fd) && node->reader >= 0;
	if (!made) {
		log_error("cannot make the table of a virtual switch: %m");
		if (block != MAP_FAILED)
			munmap(block, sizeof(*node->board));
	} else {
		node->board = block;
		*node->board =
		        (struct board){.id = prng_next(&agent->prng), .ports_member = BOARD_NOBODY};
		memset(node->board->owners, BOARD_NOBODY, sizeof(node->board->owners));
		vswitch_init(&node->board->vswitch, 0, false);
	}
	if (fd >= 0)
		close(fd);
	return made;
}

static struct vs_node *vs_node_of(struct agent *agent, const char *name)
{
	struct vs_node *node = agent->vs_nodes;
	while (node != NULL && strcmp(node->name, name) != 0)
		node = node->next;
	if (node != NULL || agent->vs_node_count == AGENT_MAX_NODES)
		return node;
	node = calloc(1, sizeof(*node));
	if (node == NULL)
		return NULL;
	node->reader = -1;
	memcpy(node->name, name, sizeof(node->name));
	if (!make_board(agent, node)) {
		if (node->reader >= 0)
			close(node->reader);
		free(node);
		return NULL;
	}
	node->next = agent->vs_nodes;
	agent->vs_nodes = node;
	agent->vs_node_count++;
	return node;
}

static void vs_node_tidy(struct agent *agent, struct vs_node *node)
{
	if (node->count > 0)
		return;
	struct vs_node **at = &agent->vs_nodes;
	while (*at != node)
		at = &(*at)->next;
	*at = node->next;
	agent->vs_node_count--;
	munmap(node->board, sizeof(*node->board));
	close(node->reader);
	free(node);
}

static void vs_changed(struct vs_node *node)
{
	atomic_fetch_add(&node->board->generation, 1);
}

void vswitch_told(const struct client *client)
{
	if (client->vs != NULL && client->vs->node != NULL)
		vs_changed(client->vs->node);
}

static bool is_free(const struct vs_node *node, unsigned apid)
{
	return node->board->owners[apid] == BOARD_NOBODY;
}

static void vs_hold(struct vs_node *node, struct vs_member *member, unsigned apid)
{
	node->board->owners[apid] = (uint8_t)member->number;
	node->board->vswitch.states[apid] = VSWITCH_PORT_UP;
}

static int first_general(const struct vs_node *node)
{
	for (unsigned apid = VSWITCH_GENERAL_FIRST; apid <= VSWITCH_GENERAL_LAST; apid++)
		if (is_free(node, apid))
			return (int)apid;
	return -ENOSPC;
}

/* The APID that @asked gets. -EADDRINUSE: it is not available; -ENOSPC: none is. */
static int choose_apid(const struct agent *agent, const struct vs_node *node,
                       const struct agent_vs_attach *asked)
{
	unsigned apid = asked->apid;
	if (node->board->vswitch.plain)
		return -EOPNOTSUPP;
	if (apid == AGENT_VS_ANY)
		return first_general(node);
	if (apid >= VSWITCH_PORTS || vswitch_is_hardware(apid))
		return -EINVAL;
	/* The switch itself has one, which no application gets. */
	if (apid != VSWITCH_APID_CONFIG && is_free(node, apid) &&
	    (vswitch_is_general(apid) || has_right(agent, asked)))
		return (int)apid;
	return (asked->flags & AGENT_VS_WISH) != 0 ? first_general(node) : -EADDRINUSE;
}

static int choose_number(struct vs_node *node, const struct agent_vs_attach *asked)
{
	if ((asked->flags & AGENT_VS_AGAIN) != 0 && asked->member < BOARD_MEMBERS &&
	    node->members[asked->member] == NULL)
		return (int)asked->member;
	/* Numbers are reused late: whoever has not heard yet that a member left takes no other
	 * process for it. */
	for (unsigned i = 0; i < BOARD_MEMBERS; i++) {
		unsigned number = (node->next_number + i) % BOARD_MEMBERS;
		if (node->members[number] == NULL) {
			node->next_number = number + 1;
			return (int)number;
		}
	}
	return -ENOSPC;
}

/* Give @member, which has a number, what it asked for: the hardware ports, the APIDs that it had,
 * or one APID. The APID or -errno. */
static int vs_grant(struct agent *agent, struct vs_node *node, struct vs_member *member,
                    const struct agent_vs_attach *asked)
{
	struct board *board = node->board;
	if ((asked->flags & AGENT_VS_PORTS) != 0) {
		if (!has_right(agent, asked))
			return -EPERM;
		if (board->ports_member != BOARD_NOBODY)
			return -EBUSY;
		board->ports_member = (uint8_t)member->number;
		board->vswitch.node = asked->node_id;
		board->vswitch.plain = (asked->flags & AGENT_VS_PLAIN) != 0;
		return (int)AGENT_VS_ANY;
	}
	if ((asked->flags & AGENT_VS_AGAIN) == 0) {
		int apid = choose_apid(agent, node, asked);
		if (apid >= 0)
			vs_hold(node, member, (unsigned)apid);
		return apid;
	}
	bool any = false;
	for (unsigned apid = VSWITCH_HARDWARE_PORTS; apid < VSWITCH_PORTS; apid++)
		if ((asked->apids >> apid & 1) != 0 && is_free(node, apid) &&
		    apid != VSWITCH_APID_CONFIG &&
		    (vswitch_is_general(apid) || has_right(agent, asked))) {
			vs_hold(node, member, apid);
			any = true;
		}
	return any ? (int)AGENT_VS_ANY : -EADDRINUSE;
}

/* Do both have the lanes between them that a former agent made? */
static bool have_lanes(const struct vs_member *a, const struct vs_member *b)
{
	return (a->asked.flags & b->asked.flags & AGENT_VS_AGAIN) != 0 &&
	       a->asked.board == b->asked.board && a->number == a->asked.member &&
	       b->number == b->asked.member && (a->asked.known >> b->number & 1) != 0 &&
	       (b->asked.known >> a->number & 1) != 0;
}

static bool vs_tell_of_peer(const struct vs_member *to, const struct vs_member *peer, uint32_t side,
                            int lanes)
{
	struct agent_msg msg = {
	        .kind = AGENT_VS_PEER,
	        .u.vs_peer = {.member = peer->number,
	                      .side = side,
	                      .flags = peer->asked.flags & (AGENT_VS_BARRIER | AGENT_VS_PORTS),
	                      .apids = board_apids(peer->node->board, peer->number)}};
	int fds[2] = {lanes, peer->client->bell};
	return outbox_send(to->client, &msg, fds, 2) == 0;
}

/* @apids: what that member held. */
static void vs_tell_gone(struct client *client, uint32_t number, uint64_t apids)
{
	struct agent_msg msg = {.kind = AGENT_VS_GONE,
	                        .u.vs_gone = {.member = number, .apids = apids}};
	tell(client, &msg, NULL, 0);
}

static void vs_have_met(struct vs_member *a, struct vs_member *b)
{
	a->met |= 1ull << b->number;
	b->met |= 1ull << a->number;
}

/* Give lanes to @member and @other. False: that is not possible now, and the reason has been
 * logged. */
static bool vs_introduce(struct vs_member *member, struct vs_member *other)
{
	int lanes = lanes_make(BOARD_LANE_SLOTS);
	if (lanes < 0) {
		log_error("cannot make lanes for two clients of a virtual switch: %m");
		return false;
	}
	/* The other one first: if it cannot be told, @member must not write into its lane. */
	bool told = vs_tell_of_peer(other, member, 1, lanes);
	if (told) {
		vs_have_met(member, other);
		vs_changed(member->node); /* a member that polls looks at its socket now */
		if (!vs_tell_of_peer(member, other, 0, lanes))
			member->client->dead = true;
	}
	close(lanes);
	return told;
}

/* @client is about to send to another member for the first time. */
static void vs_meet(struct agent *agent, struct client *client, struct agent_request *request)
{
	(void)agent;
	struct vs_member *member = client->vs;
	uint32_t number = request->msg.u.vs_gone.member;
	if (member == NULL || !member->welcome || number >= BOARD_MEMBERS) {
		client_refuse(client, EPROTO, "the message makes no sense");
		return;
	}
	struct vs_member *other = member->node->members[number];
	if (other != NULL && (member->met >> number & 1) != 0)
		return; /* it asked first, and PEER has been sent */
	if (other == NULL || other == member || !other->welcome || !vs_introduce(member, other))
		vs_tell_gone(client, number, 0);
}

/* @client cannot use the lanes to another member. */
static void vs_part(struct agent *agent, struct client *client, struct agent_request *request)
{
	(void)agent;
	struct vs_member *member = client->vs;
	uint32_t number = request->msg.u.vs_gone.member;
	if (member == NULL || !member->welcome || number >= BOARD_MEMBERS) {
		client_refuse(client, EPROTO, "the message makes no sense");
		return;
	}
	struct vs_member *other = member->node->members[number];
	if (other == NULL || (member->met >> number & 1) == 0)
		return;
	member->met &= ~(1ull << number);
	other->met &= ~(1ull << member->number);
	vs_tell_gone(other->client, member->number,
	             board_apids(member->node->board, member->number));
	vs_changed(member->node);
}

/* @member has come back. Those that it has lanes to, and that have come back as well, are its
 * peers; it forgets the others. */
static void vs_meet_again(struct vs_member *member)
{
	if ((member->asked.flags & AGENT_VS_AGAIN) == 0)
		return;
	for (uint64_t left = member->asked.known; left != 0; left &= left - 1) {
		unsigned number = (unsigned)__builtin_ctzll(left);
		struct vs_member *other = member->node->members[number];
		if (other != NULL && other != member && have_lanes(member, other)) {
			vs_have_met(member, other);
			continue;
		}
		member->asked.known &= ~(1ull << number);
		vs_tell_gone(member->client, number, 0);
	}
}

static void vs_answer(struct client *client, const struct vs_member *member, int apid)
{
	struct agent_msg msg = {.kind = AGENT_VS_ATTACHED};
	if (apid < 0)
		msg.u.vs_attached.error = -apid;
	else
		msg.u.vs_attached = (struct agent_vs_attached){.apid = (uint32_t)apid,
		                                               .member = member->number};
	tell(client, &msg, apid >= 0 ? &member->node->reader : NULL, apid >= 0 ? 1 : 0);
}

static bool vs_enter_port(struct vs_node *node, const struct agent_vs_port *port)
{
	struct vswitch *vswitch = &node->board->vswitch;
	if (port->port >= VSWITCH_HARDWARE_PORTS || port->state > VSWITCH_PORT_UP ||
	    port->number > UINT8_MAX ||
	    (port->state != VSWITCH_PORT_ABSENT &&
	     !vswitch_set_nic_port(vswitch, (uint8_t)port->port, port->guid,
	                           (uint8_t)port->number)))
		return false;
	vswitch->nic_ports[port->port].denied = port->denied;
	vswitch->states[port->port] = (uint8_t)port->state;
	return true;
}

/* Enter @member, which asks for the first time, on the board. If it cannot be entered it is
 * forgotten; then it may ask again. */
static bool vs_enter(struct agent *agent, struct vs_member *member)
{
	struct client *client = member->client;
	struct vs_node *node = vs_node_of(agent, member->asked.node);
	int number = node != NULL ? choose_number(node, &member->asked) : -ENOSPC, apid = number;
	if (number >= 0) {
		member->number = (uint32_t)number;
		apid = vs_grant(agent, node, member, &member->asked);
	}
	if (apid < 0) {
		vs_answer(client, NULL, apid);
		client->vs = NULL;
		free(member);
		if (node != NULL)
			vs_node_tidy(agent, node);
		return false;
	}
	member->node = node;
	member->asked.apid = (uint32_t)apid;
	node->members[number] = member;
	node->count++;
	for (uint32_t left = member->told; left != 0 && node->board->ports_member == number;
	     left &= left - 1)
		vs_enter_port(node, &member->ports[__builtin_ctz(left)]);
	return true;
}

/* Give @member, which has been entered, the board. When it hears its APID, everybody can send to
 * it. */
static void vs_welcome(struct vs_member *member)
{
	vs_meet_again(member);
	member->welcome = true;
	vs_changed(member->node);
	vs_answer(member->client, member, (int)member->asked.apid);
}

static void vs_attach(struct agent *agent, struct client *client, struct agent_request *request)
{
	struct agent_vs_attach *asked = &request->msg.u.vs_attach;
	asked->node[AGENT_NAME_MAX - 1] = asked->program[AGENT_NAME_MAX - 1] = '\0';
	vskey_make(agent->vs_key_path);
	if (client->vs != NULL && client->vs->node != NULL) { /* one more APID */
		struct vs_node *node = client->vs->node;
		asked->flags &= ~(uint32_t)(AGENT_VS_AGAIN | AGENT_VS_PORTS);
		int apid = vs_grant(agent, node, client->vs, asked);
		vs_changed(node); /* before it can send from that one */
		vs_answer(client, client->vs, apid);
		return;
	}
	if (client->greeted || client->vs != NULL || request->fd_count != 1) {
		client_refuse(client, EPROTO, "the message makes no sense");
		return;
	}
	struct vs_member *member = calloc(1, sizeof(*member));
	if (member == NULL) {
		client_refuse(client, ENOMEM, "out of memory");
		return;
	}
	if (client->bell >= 0)
		close(client->bell);
	client->bell = request->fds[0];
	request->fds[0] = -1;
	*member = (struct vs_member){.client = client, .asked = *asked};
	client->vs = member;
	if (agent->open_ns == 0 && agent->vs_open && vs_enter(agent, member))
		vs_welcome(member);
}

/* Has the member @number of the switch of @other come back? */
static bool vs_is_back(const struct agent *agent, const struct agent_vs_attach *other,
                       uint32_t number)
{
	for (const struct client *at = agent->clients; at != NULL; at = at->next) {
		const struct agent_vs_attach *asked = at->vs != NULL ? &at->vs->asked : NULL;
		if (asked != NULL && (asked->flags & AGENT_VS_AGAIN) != 0 &&
		    asked->member == number && asked->board == other->board &&
		    strcmp(asked->node, other->node) == 0)
			return true;
	}
	return false;
}

/* Has a member that came back seen another one on the board that did not, lanes or not? */
static bool vs_is_missing(const struct agent *agent)
{
	for (const struct client *at = agent->clients; at != NULL; at = at->next) {
		if (at->vs == NULL || (at->vs->asked.flags & AGENT_VS_AGAIN) == 0)
			continue;
		for (uint64_t left = at->vs->asked.there; left != 0; left &= left - 1)
			if (!vs_is_back(agent, &at->vs->asked, (uint32_t)__builtin_ctzll(left)))
				return true;
	}
	return false;
}

/* Enter the members that wait: those of the former agent, or the others. */
static void vs_enter_all(struct agent *agent, bool again)
{
	for (struct client *at = agent->clients; at != NULL; at = at->next)
		if (at->vs != NULL && at->vs->node == NULL && !at->dead &&
		    ((at->vs->asked.flags & AGENT_VS_AGAIN) != 0) == again)
			vs_enter(agent, at->vs);
}

/* The grace period is over: admit those that wait, the members of the former agent first. Nobody
 * sees a board on which one of them is missing. */
static uint64_t vs_sweep(struct agent *agent, uint64_t now_ns)
{
	if (agent->open_ns != 0)
		return SERVICES_NEVER; /* the names service wakes us */
	if (agent->vs_wait_ns == 0)
		agent->vs_wait_ns = now_ns + VS_MISSING_NS;
	if (!agent->vs_open && now_ns < agent->vs_wait_ns && vs_is_missing(agent))
		return now_ns + VS_LOOK_NS;
	agent->vs_open = true;
	vs_enter_all(agent, true);
	vs_enter_all(agent, false);
	for (struct client *at = agent->clients; at != NULL; at = at->next)
		if (at->vs != NULL && at->vs->node != NULL && !at->vs->welcome && !at->dead)
			vs_welcome(at->vs);
	return SERVICES_NEVER;
}

static void vs_set_port(struct agent *agent, struct client *client, struct agent_request *request)
{
	(void)agent;
	const struct agent_vs_port *port = &request->msg.u.vs_port;
	struct vs_member *member = client->vs;
	struct vs_node *node = member != NULL ? member->node : NULL;
	if (member != NULL && node == NULL && port->port < VSWITCH_HARDWARE_PORTS) {
		member->ports[port->port] = *port;
		member->told |= 1u << port->port;
		return;
	}
	if (node == NULL || node->board->ports_member != member->number ||
	    !vs_enter_port(node, port)) {
		client_refuse(client, EPROTO, "the message makes no sense");
		return;
	}
	vs_changed(node);
}

static void vs_leave(struct agent *agent, struct client *client)
{
	struct vs_member *member = client->vs;
	struct vs_node *node = member != NULL ? member->node : NULL;
	client->vs = NULL;
	if (node != NULL) {
		struct board *board = node->board;
		const uint64_t apids = board_apids(board, member->number);
		for (unsigned i = VSWITCH_HARDWARE_PORTS; i < VSWITCH_PORTS; i++)
			if (board->owners[i] == member->number) {
				board->vswitch.states[i] = VSWITCH_PORT_ABSENT;
				board->owners[i] = BOARD_NOBODY;
			}
		if (board->ports_member == member->number) {
			board->ports_member = BOARD_NOBODY;
			board->vswitch.plain = false;
			for (unsigned i = 0; i < VSWITCH_HARDWARE_PORTS; i++)
				if (board->vswitch.states[i] == VSWITCH_PORT_UP)
					board->vswitch.states[i] = VSWITCH_PORT_DOWN;
		}
		node->members[member->number] = NULL;
		node->count--;
		for (uint64_t left = member->met; left != 0; left &= left - 1) {
			struct vs_member *peer = node->members[__builtin_ctzll(left)];
			peer->met &= ~(1ull << member->number);
			vs_tell_gone(peer->client, member->number, apids);
		}
		vs_changed(node);
		vs_node_tidy(agent, node);
	}
	free(member);
}

static void vs_observe(struct agent *agent, struct client *client, struct agent_request *request)
{
	(void)request;
	for (struct vs_node *node = agent->vs_nodes; node != NULL; node = node->next)
		for (unsigned i = 0; i < BOARD_MEMBERS; i++) {
			const struct vs_member *member = node->members[i];
			if (member == NULL)
				continue;
			struct agent_msg msg = {
			        .kind = AGENT_VS_MEMBER,
			        .u.vs_member = {.pid = member->client->pid,
			                        .member = i,
			                        .flags = member->asked.flags & AGENT_VS_PORTS,
			                        .apids = board_apids(node->board, i)}};
			memcpy(msg.u.vs_member.node, node->name, AGENT_NAME_MAX);
			memcpy(msg.u.vs_member.program, member->asked.program, AGENT_NAME_MAX);
			tell(client, &msg, &node->reader, 1);
		}
	struct agent_msg end = {.kind = AGENT_END};
	tell(client, &end, NULL, 0);
}

static const struct service_kind vs_kinds[] = {
        {AGENT_VS_ATTACH, AGENT_MSG_BYTES(vs_attach), true, vs_attach},
        {AGENT_VS_MEET, AGENT_MSG_BYTES(vs_gone), true, vs_meet},
        {AGENT_VS_GONE, AGENT_MSG_BYTES(vs_gone), true, vs_part},
        {AGENT_VS_PORT, AGENT_MSG_BYTES(vs_port), true, vs_set_port},
        {AGENT_VS_OBSERVE, AGENT_MSG_HEADER_BYTES, true, vs_observe},
};
const struct agent_service vswitch_service = {.name = "virtual switches",
                                              .kinds = vs_kinds,
                                              .kind_count = SERVICE_KINDS(vs_kinds),
                                              .leave = vs_leave,
                                              .sweep = vs_sweep};
