/* A member of a virtual switch. See member.h. */
#include "ibc/member.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/barrier.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/memfile.h"
#include "port/agentstart.h"
#include "port/bell.h"
#include "port/rundir.h"
#include "port/unixsock.h"

#define FIND_WAIT_NS   5000000000u
#define ANSWER_WAIT_NS 10000000000u
#define LOOK_NS        10000000u   /* how often to look at the agent's socket without a hint */
#define ALONE_NS       500000000u  /* without an agent, until a port process starts one */
#define RETRY_NS       1000000000u /* between attempts to find an agent */
#define MEET_WAIT_NS   100000000u  /* for the agent to make lanes, the first time that we ask */

bool member_begin(struct member *member, const struct member_owner *owner, const char *node,
                  const uint8_t key[AGENT_VS_KEY_BYTES])
{
	const char *given = secure_getenv("HEDDLE_NODE");
	*member = (struct member){.owner = owner, .agent = -1, .bell = -1, .rope = -1};
	for (unsigned i = 0; i < BOARD_MEMBERS; i++)
		member->peers[i].bell = -1;
	if (node == NULL)
		node = given != NULL ? given : "";
	if (strlen(node) >= sizeof(member->node)) {
		log_error("the node name '%.16s...' has %zu bytes; the maximum is %zu: choose a "
		          "shorter one (--node, HEDDLE_NODE)",
		          node, strlen(node), sizeof(member->node) - 1);
		return false;
	}
	snprintf(member->node, sizeof(member->node), "%s", node);
	memcpy(member->key, key, sizeof(member->key));
	int ends[2];
	if (!bell_make(ends)) {
		log_error("pipe: %m; close some files, or raise \"ulimit -n\"");
		return false;
	}
	member->bell = ends[0];
	member->rope = ends[1];
	member->barrier = barrier_register();
	return true;
}

static void member_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void member_drop_peer(struct member *member, unsigned number)
{
	struct member_peer *peer = &member->peers[number];
	if (peer->block != NULL)
		munmap(peer->block, lanes_bytes_of(BOARD_LANE_SLOTS));
	peer->block = NULL;
	peer->slow = false;
	member_close(&peer->bell);
	member->known &= ~(1ull << number);
}

static void member_drop_board(struct member *member)
{
	if (member->board != NULL)
		munmap((void *)(uintptr_t)member->board, sizeof(*member->board));
	member->board = NULL;
}

void member_end(struct member *member)
{
	member_close(&member->agent); /* first: then nobody sends to us any more */
	for (unsigned i = 0; i < BOARD_MEMBERS; i++)
		member_drop_peer(member, i);
	member_drop_board(member);
	member_close(&member->bell);
	member_close(&member->rope);
}

/* --- the agent --- */

/* Connect to the agent, and start it if necessary and @start. The socket; -1: there is none, or the
 * reason has been logged. */
static int find_agent_socket(bool start)
{
	char directory[RUNDIR_MAX], path[RUNDIR_MAX + 16];
	int result = rundir_open(directory, NULL);
	if (result != 0) {
		log_error("%s: %s; %s", directory, strerror(-result), rundir_advice(result));
		return -1;
	}
	rundir_file(directory, AGENT_SOCKET, path, sizeof(path));
	for (uint64_t end = clock_now_ns() + FIND_WAIT_NS;;) {
		bool last = clock_now_ns() >= end;
		int sock = fd_aside(unixsock_connect(path));
		if (sock >= 0 && agentstart_is_ours(sock)) {
			fcntl(sock, F_SETFL, O_NONBLOCK);
			return sock;
		}
		if (sock >= 0) {
			close(sock);
			return -1;
		}
		if (!start)
			return -1;
		if (last)
			break;
		if (!agentstart_run((const void *)(uintptr_t)&member_begin))
			return -1;
	}
	log_error("the node agent keeps exiting; remove %s, then try again", directory);
	return -1;
}

static bool member_ask(struct member *member, unsigned apid, uint32_t flags, bool first)
{
	struct agent_msg msg = {
	        .version = AGENT_VERSION,
	        .kind = AGENT_VS_ATTACH,
	        .u.vs_attach = {.apid = apid,
	                        .flags = flags | (member->barrier ? AGENT_VS_BARRIER : 0),
	                        .node_id = member->node_id}};
	struct agent_vs_attach *ask = &msg.u.vs_attach;
	memcpy(ask->node, member->node, sizeof(ask->node));
	memcpy(ask->key, member->key, sizeof(ask->key));
	snprintf(ask->program, sizeof(ask->program), "%s", program_invocation_short_name);
	if ((flags & AGENT_VS_AGAIN) != 0) {
		ask->member = member->number;
		ask->board = member->board->id;
		ask->apids = member->apids;
		ask->known = member->known;
		ask->there = board_members(member->board);
	}
	int bell = first ? bell_lend(member->rope) : -1;
	bool sent = (!first || bell >= 0) &&
	            unixsock_hand_over(member->agent, &msg, sizeof(msg), &bell, first ? 1 : 0) == 0;
	member_close(&bell);
	return sent;
}

/* Greet the next agent, with what the former one gave us. */
static void member_return(struct member *member)
{
	uint64_t now = clock_now_ns();
	/* Starting an agent takes a moment, and who runs ports has packets to forward. Some client
	 * will start one; it is our turn when none did. */
	bool start = (member->flags & AGENT_VS_PORTS) == 0 || now - member->alone_ns > ALONE_NS;
	member_close(&member->agent);
	member->asked = 0;
	member->agent = find_agent_socket(start);
	member->look_ns = now + (start ? RETRY_NS : LOOK_NS); /* not before, if there is none */
	if (member->agent < 0)
		return;
	member->agents++;
	member->returning = true;
	if (!member_ask(member, AGENT_VS_ANY, member->flags | AGENT_VS_AGAIN, true))
		member_close(&member->agent);
	else if (member->owner->returns != NULL)
		member->owner->returns(member);
}

/* The agent has entered us, and @fd is the board. */
static bool take_board(struct member *member, const struct agent_vs_attached *attached, int fd)
{
	if (!memfile_is_sealed(fd, sizeof(*member->board)) || attached->member >= BOARD_MEMBERS)
		return false;
	void *block = mmap(NULL, sizeof(*member->board), PROT_READ, MAP_SHARED, fd, 0);
	if (block == MAP_FAILED)
		return false;
	const struct board *board = block;
	member_drop_board(member);
	member->board = board;
	member->number = attached->member;
	member->apids = 0;
	for (unsigned i = VSWITCH_HARDWARE_PORTS; i < VSWITCH_PORTS; i++)
		if (board->owners[i] == member->number)
			member->apids |= 1ull << i;
	member->lost = false;
	return true;
}

static void hear_attached(struct member *member, const struct agent_vs_attached *attached,
                          const int *fds, int fd_count)
{
	bool returning = member->returning;
	member->returning = false;
	if (attached->error != 0) {
		member->answer = -attached->error;
		member->lost = returning;
		if (returning)
			log_error("the next node agent has given our ports to another program "
			          "(%s): end this one and start it again",
			          strerror(attached->error));
	} else if (fd_count == 1 && take_board(member, attached, fds[0])) {
		member->answer = (int)attached->apid;
	} else {
		member->answer = -ENOMEM;
	}
}

/* We cannot use the lanes to @number that the agent made: the other end must not write to them, and
 * may ask for others. */
static void member_part(struct member *member, uint32_t number)
{
	struct agent_msg msg = {
	        .version = AGENT_VERSION, .kind = AGENT_VS_GONE, .u.vs_gone = {.member = number}};
	unixsock_send(member->agent, &msg, sizeof(msg), NULL, 0);
	member->gone |= 1ull << number;
	member->asked &= ~(1ull << number);
}

static void hear_peer(struct member *member, const struct agent_vs_peer *told, int *fds,
                      int fd_count)
{
	size_t bytes = lanes_bytes_of(BOARD_LANE_SLOTS);
	if (fd_count != 2 || told->member >= BOARD_MEMBERS || told->side > 1 ||
	    !memfile_is_sealed(fds[0], bytes))
		return;
	void *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	if (block == MAP_FAILED) {
		log_error("cannot map the lanes to another client: %m; raise \"ulimit -v\"");
		member_part(member, told->member);
		return;
	}
	member_drop_peer(member, told->member);
	struct member_peer *peer = &member->peers[told->member];
	peer->block = block;
	peer->bell = bell_take(fds[1]);
	fds[1] = -1;
	lanes_attach_of(&peer->end, block, (int)told->side, BOARD_LANE_SLOTS);
	peer->end.tx.unfenced = member->barrier && (told->flags & AGENT_VS_BARRIER) != 0;
	peer->slow = false;
	peer->writer = (struct record_writer){.ports = (told->flags & AGENT_VS_PORTS) != 0,
	                                      .apids = told->apids};
	member->known |= 1ull << told->member;
	member->gone &= ~(1ull << told->member);
	member->asked &= ~(1ull << told->member);
	if (!member->armed)
		return;
	/* Another thread sleeps on the bell, and did not know of this lane when it armed the
	 * others. */
	ring_arm(&peer->end.rx);
	barrier_everyone();
	if (ring_waits(&peer->end.rx))
		bell_ring(member->rope);
}

static void hear_gone(struct member *member, uint32_t number, uint64_t apids)
{
	/* What is in its lane may come from an APID that it got since we last looked. */
	member->peers[number].writer.apids |= apids;
	member->gone |= 1ull << number;
	member->asked &= ~(1ull << number);
}

/* Read one message. False: there is none now, or the agent has gone. */
static bool member_hear_one(struct member *member)
{
	struct agent_msg msg;
	int fds[UNIXSOCK_MAX_FDS], fd_count;
	ssize_t got = unixsock_receive(member->agent, &msg, sizeof(msg), fds, &fd_count);
	if (got == -EAGAIN)
		return false;
	if (got <= 0) {
		member_close(&member->agent);
		member->alone_ns = clock_now_ns();
		member->asked = 0;
		return false;
	}
	if (got == (ssize_t)sizeof(msg) && msg.kind == AGENT_REFUSED) {
		msg.u.refused.why[sizeof(msg.u.refused.why) - 1] = '\0';
		log_error("the node agent refused us: %s", msg.u.refused.why);
	} else if (got == (ssize_t)sizeof(msg) && msg.version == AGENT_VERSION) {
		if (msg.kind == AGENT_VS_ATTACHED)
			hear_attached(member, &msg.u.vs_attached, fds, fd_count);
		else if (msg.kind == AGENT_VS_PEER)
			hear_peer(member, &msg.u.vs_peer, fds, fd_count);
		else if (msg.kind == AGENT_VS_GONE && msg.u.vs_gone.member < BOARD_MEMBERS)
			hear_gone(member, msg.u.vs_gone.member, msg.u.vs_gone.apids);
	}
	for (int i = 0; i < fd_count; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return true;
}

/* Let go of peers that have gone. Not while a record is sent, because the owner may answer what is
 * still in their lanes. */
static void member_bury(struct member *member)
{
	for (uint64_t left; (left = member->gone & member->known) != 0;) {
		unsigned number = (unsigned)__builtin_ctzll(left);
		const void *block = member->peers[number].block;
		member->gone &= ~(1ull << number);
		member->owner->leaves(member, number); /* may send, and so hear of more */
		if (member->peers[number].block == block)
			member_drop_peer(member, number);
	}
	member->gone = 0;
}

void member_hear(struct member *member)
{
	/* The generation first: what changes after this is read the next time. */
	member->seen = atomic_load_explicit(&member->board->generation, memory_order_acquire);
	member_bury(member);
	while (member->agent >= 0 && member_hear_one(member))
		member_bury(member);
	for (uint64_t left = member->known; left != 0; left &= left - 1) {
		unsigned number = (unsigned)__builtin_ctzll(left);
		member->peers[number].writer =
		        (struct record_writer){.ports = member->board->ports_member == number,
		                               .apids = board_apids(member->board, number)};
	}
	if (member->agent < 0 && clock_now_ns() >= member->look_ns)
		member_return(member);
}

void member_look_slowly(struct member *member)
{
	uint64_t now = clock_now_ns();
	if (atomic_load_explicit(&member->board->generation, memory_order_acquire) ==
	            member->seen &&
	    now < member->look_ns)
		return;
	member_hear(member);
	if (member->agent >= 0)
		member->look_ns = now + LOOK_NS;
}

/* If the agent was replaced, have the next one know what we hold before we ask it for more. */
static void member_come_back(struct member *member, uint64_t end_ns)
{
	if (member->agent < 0)
		member_return(member);
	while (member->agent >= 0 && member->returning && clock_now_ns() < end_ns) {
		struct pollfd news = {.fd = member->agent, .events = POLLIN};
		if (!member_hear_one(member) && member->agent >= 0 && member->returning)
			poll(&news, 1, 100);
	}
}

int member_attach(struct member *member, unsigned apid, uint32_t flags)
{
	bool first = member->board == NULL;
	uint64_t end = clock_now_ns() + ANSWER_WAIT_NS;
	if (first)
		member->flags = flags & (AGENT_VS_PORTS | AGENT_VS_PLAIN);
	for (unsigned tries = 0; tries < 3; tries++) { /* an agent may end while we ask it */
		if (!first)
			member_come_back(member, end);
		else if (member->agent < 0)
			member->agent = find_agent_socket(true);
		if (member->agent < 0)
			return -ECONNREFUSED;
		member->answer = MEMBER_NO_ANSWER;
		if (!member_ask(member, apid, flags, first))
			member_close(&member->agent);
		while (member->agent >= 0 && member->answer == MEMBER_NO_ANSWER) {
			struct pollfd news = {.fd = member->agent, .events = POLLIN};
			if (!member_hear_one(member) && member->agent >= 0 &&
			    member->answer == MEMBER_NO_ANSWER) {
				if (clock_now_ns() >= end) {
					log_error("the node agent does not answer; end it, then "
					          "try again");
					member_close(&member->agent);
					return -ECONNREFUSED;
				}
				poll(&news, 1, 100);
			}
		}
		if (member->agent >= 0)
			return member->answer;
	}
	return -ECONNREFUSED;
}

void member_set_port(struct member *member, unsigned port, const struct vswitch_nic_port *nic_port,
                     enum vswitch_port_state state)
{
	struct agent_msg msg = {.version = AGENT_VERSION,
	                        .kind = AGENT_VS_PORT,
	                        .u.vs_port = {.port = port,
	                                      .state = (uint32_t)state,
	                                      .guid = nic_port->guid,
	                                      .number = nic_port->number,
	                                      .denied = nic_port->denied}};
	if (member->agent >= 0)
		unixsock_send(member->agent, &msg, sizeof(msg), NULL, 0);
}

/* --- lanes --- */

bool member_reach(struct member *member, unsigned to)
{
	struct agent_msg msg = {
	        .version = AGENT_VERSION, .kind = AGENT_VS_MEET, .u.vs_gone = {.member = to}};
	uint64_t end = clock_now_ns() + MEET_WAIT_NS;
	if (member_has(member, to))
		return true;
	if (to >= BOARD_MEMBERS || to == member->number || member_is_alone(member))
		return false;
	/* Once asked, the agent is not waited for again: it may be slow, or unable to pass
	 * descriptors, and whoever sends has more to do. */
	bool waits = (member->asked >> to & 1) == 0;
	if (waits) {
		if (unixsock_send(member->agent, &msg, sizeof(msg), NULL, 0) != 0)
			return false;
		member->asked |= 1ull << to;
	}
	while ((member->asked >> to & 1) != 0 && member->agent >= 0) {
		struct pollfd news = {.fd = member->agent, .events = POLLIN};
		if (member_hear_one(member))
			continue;
		if (!waits || member->agent < 0 || clock_now_ns() >= end)
			break;
		poll(&news, 1, 10);
	}
	return member_has(member, to);
}

bool member_put(struct member *member, unsigned to, const struct record *record)
{
	if (!member_reach(member, to))
		return false;
	struct member_peer *peer = &member->peers[to];
	size_t bytes = RECORD_HEADER_BYTES + ibc_bytes(&record->packet);
	uint8_t *room = ring_reserve(&peer->end.tx, bytes);
	if (room == NULL || record_write(record, room, bytes) != bytes)
		return false;
	ring_publish(&peer->end.tx);
	if (ring_take_armed(&peer->end.tx))
		bell_ring(peer->bell);
	return true;
}

/* Has @from got another APID since we last looked? It still has those that it had, so it is the
 * same process. */
static bool has_more(struct member *member, unsigned from)
{
	struct record_writer *writer = &member->peers[from].writer;
	if (atomic_load_explicit(&member->board->generation, memory_order_acquire) == member->seen)
		return false;
	uint64_t apids = board_apids(member->board, from);
	if (writer->apids == 0 || (apids & writer->apids) != writer->apids)
		return false;
	writer->apids = apids;
	return true;
}

enum member_took member_take(struct member *member, unsigned from, uint8_t *copy,
                             struct record *record, enum record_verdict *verdict)
{
	struct ring_rx *rx = &member->peers[from].end.rx;
	size_t bytes;
	bool broken = rx->broken;
	const void *at = ring_peek(rx, &bytes);
	*verdict = RECORD_DAMAGED;
	if (at == NULL) /* counted once; a lane that its writer has broken stays silent */
		return rx->broken && !broken ? MEMBER_REFUSED : MEMBER_NOTHING;
	if (bytes <= RECORD_MAX_BYTES)
		memcpy(copy, at, bytes);
	ring_release(rx);
	if (bytes <= RECORD_MAX_BYTES)
		*verdict = record_read(member->board, member->number, &member->peers[from].writer,
		                       copy, bytes, record);
	if (*verdict == RECORD_WRONG_SOURCE && has_more(member, from))
		*verdict = record_read(member->board, member->number, &member->peers[from].writer,
		                       copy, bytes, record);
	return *verdict == RECORD_OK ? MEMBER_RECORD : MEMBER_REFUSED;
}

bool member_arm(struct member *member, uint64_t ignored)
{
	member->armed = true;
	for (uint64_t left = member->known; left != 0; left &= left - 1)
		ring_arm(&member->peers[__builtin_ctzll(left)].end.rx);
	barrier_everyone();
	for (uint64_t left = member->known & ~ignored; left != 0; left &= left - 1) {
		const struct ring_rx *rx = &member->peers[__builtin_ctzll(left)].end.rx;
		if (!rx->broken && ring_waits(rx))
			return false;
	}
	return true;
}

void member_disarm(struct member *member)
{
	member->armed = false;
	for (uint64_t left = member->known; left != 0; left &= left - 1)
		ring_disarm(&member->peers[__builtin_ctzll(left)].end.rx);
}
