/* Programs that are not trusted (AP6). This program is trusted; a copy of it, called "stranger", is
 * in the agent's list. It connects like any other program, its out-of-band packets pass the agent,
 * and whatever it forges there or on its lanes, with every number that it could wish for, changes
 * nothing. With HEDDLE_LOCAL=off its way is the wire, through its forwarder. Both ends of its
 * connections know within a second when the agent that holds them, or one
 * of them, is killed. What no process of the same user can be kept from is shown, too. */
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <heddle/control.h>
#include <heddle/eventq.h>

#include "adapter/adapter.h"
#include "adapter/aperture/aperture.h"
#include "end.h"
#include "port/oob.h"
#include "transport/local/frame.h"

#define WAIT  20000
#define BYTES 4096u
#define SOON  1000.0 /* milliseconds; on this machine also other things run */

#define EXPECT(condition) expect(condition, #condition, __LINE__)
static void expect(bool holds, const char *what, int line)
{
	if (holds)
		return;
	fprintf(stderr, "line %d: not so: %s\n", line, what);
	exit(1);
}

/* Is the stranger on another machine, as far as Heddle is concerned? */
static bool on_wire(void)
{
	return getenv("HEDDLE_LOCAL") != NULL;
}

static struct hdl_adapter *open_adapter(void)
{
	struct hdl_open_attr attr = {.on_node = true};
	struct hdl_adapter *adapter;
	MUST(hdl_open(&attr, &adapter));
	return adapter;
}

static struct hdl_gid own_gid(struct hdl_adapter *adapter)
{
	struct hdl_limits limits;
	MUST(hdl_adapter_query(adapter, &limits));
	return limits.gid;
}

static struct hdl_aperture *open_aperture(struct hdl_adapter *adapter, struct hdl_port *port,
                                          uint32_t checks)
{
	struct hdl_aperture_attr attr = {.length = BYTES, .port = port, .checks = checks};
	struct hdl_aperture *aperture;
	MUST(hdl_aperture_open(adapter, &attr, &aperture));
	return aperture;
}

static uint64_t counter(struct hdl_adapter *adapter, enum hdl_aperture_counter which)
{
	struct hdl_counter list[HDL_APERTURE_COUNTER_COUNT];
	hdl_aperture_counters(adapter, list, HDL_APERTURE_COUNTER_COUNT);
	return list[which].value;
}

static void await_byte(const struct hdl_aperture *aperture, uint32_t at, uint8_t value)
{
	const volatile uint8_t *memory = hdl_aperture_memory(aperture, NULL);
	for (int i = 0; i < WAIT && memory[at] != value; i++)
		usleep(1000);
	EXPECT(memory[at] == value);
}

static void await_end(struct hdl_aperture *aperture)
{
	for (int i = 0; i < WAIT && hdl_aperture_state(aperture) == HDL_APERTURE_OPEN; i++)
		usleep(1000);
}

/* --- the stranger --- */

struct victim {
	struct hdl_gid gid;
	uint16_t port;
	/* Of a connection between two others, and of an entry that checks hardly anything: all that
	 * there is to know. */
	struct hdl_aperture_target taken, loose;
};

static struct ci_packet packet_note(uint8_t kind, uint32_t index, uint64_t nonce, uint16_t reason,
                                    uint16_t element, uint8_t body[8])
{
	struct ci_note note = {.reason = reason, .element = element};
	struct ci_packet packet = {.kind = kind, .index = index, .nonce = nonce, .data = body};
	packet.bytes = ci_set_note(kind, &note, body);
	return packet;
}

static size_t frame_of(const struct ci_packet *packet, uint8_t frame[256])
{
	struct ci_writer writer;
	ci_begin(&writer, frame, 256);
	EXPECT(ci_put(&writer, packet));
	return writer.used;
}

/* Straight into the lane; or, where the way is the wire, into the channel of the forwarder. */
static void forge_on_lane(struct hdl_adapter *adapter, uint32_t link, const struct hdl_gid *host,
                          const struct ci_packet *packet)
{
	uint8_t bytes[256], *record = NULL;
	size_t length = frame_of(packet, bytes);
	if (link >= APERTURE_ROUTE_FORWARD) {
		struct ap_path path = apertures_forward_path_of(adapter->apertures, 0, host->raw);
		adapter_lock(adapter);
		apertures_forward_send(adapter->apertures, &path, bytes, length);
		adapter_unlock(adapter);
		usleep(1000);
		return;
	}
	struct frame frame = {.kind = FRAME_CI, .length = (uint32_t)length};
	for (int i = 0; i < WAIT && record == NULL; i++) {
		adapter_lock(adapter);
		record = engine_reserve(&adapter->engine, link, sizeof(frame) + length);
		if (record != NULL) {
			memcpy(record, &frame, sizeof(frame));
			memcpy(record + sizeof(frame), bytes, length);
			engine_publish(&adapter->engine, link);
			engine_ring_bells(&adapter->engine);
		}
		adapter_unlock(adapter);
		usleep(1000);
	}
	EXPECT(record != NULL);
}

/* @behind: so many bytes follow the end of the frame. */
static void forge_by_agent(struct hdl_adapter *adapter, uint32_t link, const struct hdl_gid *host,
                           const struct ci_packet *packet, size_t behind)
{
	struct agent_msg msg = {.kind = AGENT_CI_CONTROL};
	if (link >= APERTURE_ROUTE_FORWARD) {
		msg.u.cm.options = 1;
		memcpy(msg.u.cm.gid, host->raw, 16);
	} else {
		msg.u.cm.guid = adapter->peers.list[link].node_guid;
		msg.u.cm.slot = adapter->peers.list[link].slot;
	}
	size_t length = frame_of(packet, msg.u.cm.data);
	if (behind > 0)
		memset(msg.u.cm.data + length + 1, 0xee, behind - 1); /* a zero ends the frame */
	msg.u.cm.length = (uint32_t)(length + behind);
	MUST(agent_tell(adapter, &msg));
}

/* Packets that nobody asked for: with numbers of its own, and of others. */
static unsigned forgeries(struct hdl_adapter *adapter, const struct victim *victim,
                          const struct hdl_aperture *mine, struct ci_packet list[16],
                          uint8_t bodies[16][CI_OFFER_BYTES])
{
	const struct hdl_aperture_target *taken = &victim->taken;
	const struct ap_conn *conn = &mine->conn;
	struct ci_offer offer = conn->own;
	unsigned count = 0;
	/* CONNECT with a nonce of its own choice; with its own numbers and the index of another. */
	offer.port = victim->port;
	offer.nonce = 0x5ca1ab1e;
	for (int i = 0; i < 2; i++) {
		ci_set_offer(&offer, bodies[count]);
		list[count] = (struct ci_packet){.kind = CI_CONNECT,
		                                 .index = ci_index(0, victim->port),
		                                 .bytes = CI_OFFER_BYTES,
		                                 .data = bodies[count]};
		count++;
		offer.nonce = conn->own.nonce;
		offer.index = ci_index(adapter->slot + 1, 1);
	}
	/* ACCEPT, REJECT, CLOSE, ALIVE and ERROR to a connection of others. */
	offer.index = conn->own.index;
	ci_set_offer(&offer, bodies[count]);
	list[count] = (struct ci_packet){.kind = CI_ACCEPT,
	                                 .index = taken->index,
	                                 .nonce = taken->nonce,
	                                 .bytes = CI_OFFER_BYTES,
	                                 .data = bodies[count]};
	count++;
	static const uint8_t kinds[] = {CI_REJECT, CI_CLOSE, CI_ALIVE, CI_ERROR};
	for (unsigned i = 0; i < sizeof(kinds); i++, count++)
		list[count] = packet_note(kinds[i], taken->index, taken->nonce, HDL_REASON_GONE,
		                          CI_RECEIVER, bodies[count]);
	/* To its own peer, as the agent: the peer has gone. */
	list[count] = packet_note(CI_ERROR, conn->peer.index, conn->peer.nonce, HDL_REASON_GONE,
	                          CI_AGENT, bodies[count]);
	return count + 1;
}

static uint64_t refused(struct hdl_adapter *adapter)
{
	struct hdl_oob_status status;
	MUST(hdl_oob_query(adapter, &status));
	return status.refused;
}

static void attack(struct hdl_adapter *adapter, const struct victim *victim,
                   struct hdl_aperture *mine)
{
	struct ci_packet list[16];
	static uint8_t bodies[16][CI_OFFER_BYTES];
	uint8_t body[8];
	uint32_t link = mine->conn.path.route;
	const struct hdl_gid *host = &victim->gid;
	unsigned count = forgeries(adapter, victim, mine, list, bodies);
	for (unsigned i = 0; i < count; i++) {
		uint64_t before = refused(adapter);
		forge_by_agent(adapter, link, host, &list[i], 0);
		EXPECT(refused(adapter) == before + 1);
		forge_on_lane(adapter, link, host, &list[i]);
	}
	/* On the lane not even what it may send: CLOSE of its own connection. */
	struct ci_packet close = packet_note(CI_CLOSE, mine->conn.peer.index, mine->conn.peer.nonce,
	                                     HDL_REASON_CLOSED, 0, body);
	forge_on_lane(adapter, link, host, &close);
	/* What it may send, but on the wire nothing behind that. */
	struct ci_packet alive =
	        packet_note(CI_ALIVEACK, mine->conn.peer.index, mine->conn.peer.nonce, 0, 0, body);
	for (size_t behind = 0; behind < 20 && link >= APERTURE_ROUTE_FORWARD; behind += 10) {
		uint64_t before = refused(adapter);
		forge_by_agent(adapter, link, host, &alive, behind);
		EXPECT(refused(adapter) == before + (behind > 0));
	}
	/* Data, with everything right but who sends it; through the agent, none at all. */
	const struct hdl_aperture_target *targets[2] = {&victim->taken, &victim->loose};
	for (int i = 0; i < 2; i++) {
		bool numbered = (targets[i]->checks & HDL_CHECK_SEQUENCE) != 0;
		struct ci_packet data = {.kind = CI_DATA,
		                         .flags = numbered ? CI_SEQUENCED : 0,
		                         .index = targets[i]->index,
		                         .nonce = targets[i]->nonce,
		                         .sequence = targets[i]->sequence,
		                         .offset = 8,
		                         .bytes = 8,
		                         .data = (const uint8_t *)"overrun!"};
		forge_on_lane(adapter, link, host, &data);
		forge_by_agent(adapter, link, host, &data, 0);
	}
}

/* What its level does not allow. */
static void try_calls(struct hdl_adapter *adapter, struct hdl_aperture *mine,
                      const struct victim *victim)
{
	struct hdl_aperture_target target;
	struct hdl_aperture *ip;
	EXPECT(hdl_aperture_trust(adapter) == HDL_TRUST_NONE);
	EXPECT(hdl_aperture_own(mine, &target) == -HDL_EACCES);
	EXPECT(hdl_aperture_point(mine, &victim->loose) == -HDL_EACCES);
	/* It cannot choose what of it concerns the agent, nor of others. */
	EXPECT(hdl_oob_set(0, 0, 0) == -HDL_EACCES);
	EXPECT(hdl_oob_set(getpid(), 0, 0) == -HDL_EACCES);
	EXPECT(hdl_oob_set(getppid(), OOB_ALL, OOB_ALL) == -HDL_EACCES);
	EXPECT(hdl_aperture_open_ip(adapter, NULL, 0, &victim->gid, 4000, &ip) == -HDL_EACCES ||
	       adapter->net.address_count == 0);
}

/* It gets no page to store destinations and nonces to. If it finds one in its own memory, a
 * destination there leads nowhere. */
static void try_stores(struct hdl_adapter *adapter, struct hdl_aperture *mine,
                       const struct victim *victim)
{
	struct hdl_aperture_user *user = &(struct hdl_aperture_user){0};
	const struct hdl_aperture_fixed *fixed = NULL;
	EXPECT(hdl_aperture_control(mine, &user, &fixed) == -HDL_EACCES && user == NULL);
	EXPECT(fixed->index == mine->conn.own.index && fixed->state == HDL_APERTURE_OPEN);
	EXPECT(hdl_aperture_control(mine, NULL, &fixed) == 0);
	struct hdl_aperture *found = open_aperture(adapter, NULL, 0);
	found->conn.user->target = victim->loose;
	__atomic_store_n(&found->conn.user->generation, 1, __ATOMIC_RELEASE);
	EXPECT(hdl_aperture_store(found, 0, "overrun!", 8, WAIT) == -HDL_EPERM);
	EXPECT(hdl_aperture_check(found) == -HDL_EIO);
	EXPECT(hdl_aperture_reason(found) == HDL_REASON_ACCESS);
	MUST(hdl_aperture_free(found));
}

/* The numbers of an entry are the agent's; it has AGENT_CI_ENTRIES of them for a program. */
static void use_up_entries(struct hdl_adapter *adapter)
{
	unsigned armed = 0;
	int result = 0;
	for (uint32_t row = 1000; result == 0 && armed <= AGENT_CI_ENTRIES; row++, armed++) {
		struct agent_msg msg = {.kind = AGENT_CI_ARM, .u.cm = {.slot = row}};
		result = agent_ask(adapter, &msg, &msg.u.cm.token);
	}
	EXPECT(result == -HDL_ENOSPC && armed > AGENT_CI_ENTRIES / 2);
	struct hdl_aperture *one = open_aperture(adapter, NULL, 0);
	struct hdl_gid gid = own_gid(adapter);
	struct hdl_port *port;
	MUST(hdl_port_open(adapter, NULL, &port));
	EXPECT(hdl_aperture_connect(one, &gid, hdl_port_number(port), WAIT) == -HDL_ENOSPC);
	for (uint32_t row = 1000; row < 1000 + armed; row++) {
		struct agent_msg msg = {.kind = AGENT_CI_DISARM, .u.cm = {.slot = row}};
		MUST(agent_tell(adapter, &msg));
	}
	/* And it may connect to itself. */
	struct hdl_aperture *two = open_aperture(adapter, NULL, 0);
	struct hdl_port_rule rule = {.action = HDL_RULE_ACCEPT};
	MUST(hdl_port_rules(port, &rule, 1));
	MUST(hdl_port_offer(port, two, NULL));
	MUST(hdl_aperture_connect(one, &gid, hdl_port_number(port), WAIT));
	MUST(hdl_aperture_store(one, 5, "self", 4, WAIT));
	await_byte(two, 8, 'f');
	MUST(hdl_aperture_free(one));
	MUST(hdl_aperture_free(two));
	MUST(hdl_port_close(port));
}

static int ask_group(struct hdl_adapter *adapter, uint32_t kind, uint32_t number)
{
	struct agent_msg msg = {.kind = kind};
	msg.u.group.gid[0] = 0xff;
	memcpy(msg.u.group.gid + 8, &number, sizeof(number));
	return kind == AGENT_GROUP_JOIN ? agent_ask(adapter, &msg, &msg.u.group.token)
	                                : agent_tell(adapter, &msg);
}

/* The agent does not make groups for ever; one that is left makes room for another. */
static void use_up_groups(struct hdl_adapter *adapter)
{
	uint32_t joined = 0;
	int result = 0;
	while (joined < 1u << 16 && (result = ask_group(adapter, AGENT_GROUP_JOIN, joined)) == 0)
		joined++;
	EXPECT(result == -HDL_ENOMEM && joined > 100);
	MUST(ask_group(adapter, AGENT_GROUP_LEAVE, 1));
	MUST(ask_group(adapter, AGENT_GROUP_JOIN, joined));
	EXPECT(ask_group(adapter, AGENT_GROUP_JOIN, 1) == -HDL_ENOMEM);
	for (uint32_t i = 0; i <= joined; i++)
		MUST(ask_group(adapter, AGENT_GROUP_LEAVE, i));
	MUST(ask_group(adapter, AGENT_GROUP_JOIN, 1));
	MUST(ask_group(adapter, AGENT_GROUP_LEAVE, 1));
}

_Noreturn static void stranger(int in)
{
	struct victim victim;
	struct hdl_adapter *adapter = open_adapter();
	struct hdl_port *port;
	struct hdl_eventq *queue;
	struct hdl_port_event events[8];
	struct hdl_port_status status;
	EXPECT(read(in, &victim, sizeof(victim)) == (ssize_t)sizeof(victim));
	MUST(hdl_port_open(adapter, NULL, &port));
	MUST(hdl_eventq_open(port, NULL, &queue));
	struct hdl_aperture *mine = open_aperture(adapter, port, 0);
	struct hdl_aperture *back = open_aperture(adapter, port, 0);
	MUST(hdl_port_status(adapter, &victim.gid, victim.port, &status, WAIT));
	MUST(hdl_aperture_connect(mine, &victim.gid, victim.port, WAIT));
	EXPECT(hdl_eventq_take(queue, events, 8) == 1 && events[0].type == HDL_PORT_ACCEPT);
	/* Signals of its ports concern the agent, though we did not sleep. */
	struct hdl_oob_status told;
	MUST(hdl_oob_query(adapter, &told));
	for (int i = 0; i < WAIT && (told.messages == 0 || told.wakes == 0); i++, usleep(1000))
		MUST(hdl_oob_query(adapter, &told));
	EXPECT((told.criteria & OOB_SIGNALS) == OOB_SIGNALS);
	EXPECT(told.messages == 1 && told.wakes >= 1 && told.blocked == 0);
	try_calls(adapter, mine, &victim);
	try_stores(adapter, mine, &victim);
	use_up_entries(adapter);
	use_up_groups(adapter);
	/* Data and events, as anybody's. */
	MUST(hdl_aperture_store(mine, 100, "hello", 5, WAIT));
	MUST(hdl_aperture_event(mine, 7, "event", 5, WAIT));
	MUST(hdl_aperture_flush(mine, HDL_FLUSH_PLACED, WAIT));
	EXPECT(refused(adapter) == 0);
	attack(adapter, &victim, mine);
	/* Now the other way round: the victim connects to us. */
	MUST(hdl_aperture_store(mine, 200, "done", 4, WAIT));
	uint16_t number = hdl_port_number(port);
	MUST(hdl_aperture_store(mine, 300, &number, sizeof(number), WAIT));
	MUST(hdl_aperture_store(mine, 299, "p", 1, WAIT));
	MUST(hdl_aperture_accept(back, port, 0, NULL, WAIT));
	await_byte(back, 10, 'y');
	MUST(hdl_aperture_close(mine, WAIT));
	/* The agent is killed, or we are. */
	await_end(back);
	printf("stranger: %s\n", hdl_aperture_reason_str(hdl_aperture_reason(back)));
	/* Its forwarder ended with the agent. */
	EXPECT(hdl_aperture_reason(back) == HDL_REASON_GONE ||
	       (on_wire() && hdl_aperture_reason(back) == HDL_REASON_CARRIER));
	/* The next agent holds entries again. */
	await_byte(back, 11, 0);
	MUST(hdl_aperture_accept(mine, port, 0, NULL, WAIT));
	MUST(hdl_aperture_store(mine, 0, "again", 5, WAIT));
	for (;;)
		pause();
}

/* --- the trusted side --- */

static char folder[] = "/tmp/heddle-untrusted-XXXXXX";

static void copy_self(const char *path)
{
	char bytes[65536];
	int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	int to = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
	ssize_t got = 0;
	EXPECT(from >= 0 && to >= 0);
	while ((got = read(from, bytes, sizeof(bytes))) > 0)
		EXPECT(write(to, bytes, (size_t)got) == got);
	close(from);
	close(to);
}

static pid_t start_stranger(const char *name, const char *part, int *talk)
{
	char path[128], number[16];
	int ends[2];
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	copy_self(path);
	EXPECT(pipe(ends) == 0);
	pid_t child = fork();
	if (child == 0) {
		close(ends[1]);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		snprintf(number, sizeof(number), "%d", ends[0]);
		execl(path, path, part, number, (char *)NULL);
		_exit(127);
	}
	close(ends[0]);
	*talk = ends[1];
	return child;
}

/* A connection between two programs that are trusted. */
static void make_taken(struct hdl_adapter *to, struct hdl_adapter *from, struct hdl_port *port,
                       struct hdl_aperture **held, struct hdl_aperture **other)
{
	struct hdl_gid gid = own_gid(to);
	*held = open_aperture(to, NULL, 0);
	*other = open_aperture(from, NULL, 0);
	EXPECT(hdl_aperture_connect(*other, &gid, hdl_port_number(port), 0) == -HDL_EAGAIN);
	MUST(hdl_aperture_accept(*held, port, 0, NULL, WAIT));
	MUST(hdl_aperture_wait(*other, WAIT));
	MUST(hdl_aperture_store(*other, 0, "mine", 4, WAIT));
	MUST(hdl_aperture_flush(*other, HDL_FLUSH_PLACED, WAIT));
}

static bool is_clear(const struct hdl_aperture *aperture, uint32_t from, uint32_t to)
{
	const uint8_t *memory = hdl_aperture_memory(aperture, NULL);
	for (uint32_t i = from; i < to; i++)
		if (memory[i] != 0)
			return false;
	return true;
}

/* What no process of the same user can be kept from: to write into another one where the kernel
 * lets it trace, and to run under another name. */
static int raised(int in)
{
	struct hdl_adapter *adapter = open_adapter();
	struct hdl_aperture *aperture = open_aperture(adapter, NULL, 0);
	char own[8] = "written";
	struct iovec from = {own, sizeof(own)}, to = {NULL, sizeof(own)};
	EXPECT(read(in, &to.iov_base, sizeof(to.iov_base)) == (ssize_t)sizeof(to.iov_base));
	printf("under another name: %s; bytes that the kernel let it write elsewhere: %zd\n",
	       hdl_aperture_trust(adapter) == HDL_TRUST_USER ? "trusted" : "untrusted",
	       process_vm_writev(getppid(), &from, 1, &to, 1, 0));
	int result = hdl_aperture_trust(adapter) == HDL_TRUST_USER ? 0 : 1;
	MUST(hdl_aperture_free(aperture));
	MUST(hdl_close(adapter));
	return result;
}

static void killed_agent(struct hdl_aperture *back, struct hdl_aperture *held,
                         struct hdl_aperture *other)
{
	kill_agent();
	double began = now_ms();
	await_end(back);
	printf("agent killed: known after %.1f ms: %s\n", now_ms() - began,
	       hdl_aperture_reason_str(hdl_aperture_reason(back)));
	uint32_t reason = hdl_aperture_reason(back);
	EXPECT((reason == HDL_REASON_GONE || (on_wire() && reason == HDL_REASON_CLOSED)) &&
	       now_ms() - began < SOON);
	/* Those that are trusted need no agent. */
	EXPECT(hdl_aperture_state(held) == HDL_APERTURE_OPEN);
	MUST(hdl_aperture_store(other, 4, "still", 5, WAIT));
	MUST(hdl_aperture_flush(other, HDL_FLUSH_PLACED, WAIT));
	await_byte(held, 8, 'l');
}

static struct {
	struct hdl_adapter *adapter, *friend;
	struct hdl_port *port;
	struct hdl_eventq *queue;
	/* A connection with the friend; an entry that checks hardly anything; connections with the
	 * stranger. */
	struct hdl_aperture *held, *other, *loose, *met, *back;
	struct victim victim;
	uint16_t number; /* the stranger's port */
} us;

static void open_ours(void)
{
	us.adapter = open_adapter();
	us.friend = open_adapter();
	MUST(hdl_port_open(us.adapter, NULL, &us.port));
	MUST(hdl_eventq_open(us.port, NULL, &us.queue));
	make_taken(us.adapter, us.friend, us.port, &us.held, &us.other);
	EXPECT(hdl_aperture_trust(us.adapter) == HDL_TRUST_USER);
	us.loose = open_aperture(us.adapter, NULL, HDL_CHECK_NONCE | HDL_CHECK_EXTENT);
	us.met = open_aperture(us.adapter, us.port, 0);
	us.back = open_aperture(us.adapter, us.port, 0);
	us.victim = (struct victim){.gid = own_gid(us.adapter), .port = hdl_port_number(us.port)};
	MUST(hdl_aperture_own(us.held, &us.victim.taken));
	MUST(hdl_aperture_own(us.loose, &us.victim.loose));
}

/* After "done" everything that was forged has come. */
static void nothing_has_changed(void)
{
	struct hdl_port_event events[64];
	struct hdl_connect connect;
	await_byte(us.met, 203, 'e');
	EXPECT(memcmp((const char *)hdl_aperture_memory(us.met, NULL) + 100, "hello", 5) == 0);
	EXPECT(hdl_aperture_state(us.met) == HDL_APERTURE_OPEN);
	EXPECT(hdl_aperture_state(us.held) == HDL_APERTURE_OPEN);
	EXPECT(hdl_aperture_state(us.other) == HDL_APERTURE_OPEN);
	EXPECT(is_clear(us.held, 4, BYTES) && is_clear(us.loose, 0, BYTES));
	uint64_t wrong = counter(us.adapter, HDL_APERTURE_COUNTER_WRONG_WAY);
	uint64_t source = counter(us.adapter, HDL_APERTURE_COUNTER_BAD_SOURCE);
	printf("%llu out-of-band packets on the lane, %llu of a wrong source\n",
	       (unsigned long long)wrong, (unsigned long long)source);
	/* The forwarder lets none of them out. */
	EXPECT(on_wire() ? wrong == 0 && source == 0 : wrong == 9 && source == 2);
	EXPECT(hdl_port_waiting(us.port, &connect, 0) == -HDL_EAGAIN);
	int taken = hdl_eventq_take(us.queue, events, 64), seen = 0;
	for (int i = 0; i < taken; i++) {
		EXPECT(events[i].type == HDL_PORT_CONNECT || events[i].type == HDL_PORT_ACCEPT ||
		       events[i].type == HDL_PORT_DATA);
		seen += events[i].type == HDL_PORT_DATA && events[i].offset == 7;
	}
	EXPECT(seen == 1);
	EXPECT(hdl_aperture_point(us.loose, &us.victim.taken) == 0); /* a trusted one may */
}

static struct hdl_oob_process observed(pid_t pid)
{
	struct hdl_oob_process *list, found = {0};
	size_t count;
	MUST(hdl_oob_observe(&list, &count));
	for (size_t i = 0; i < count; i++)
		if (list[i].pid == pid)
			found = list[i];
	hdl_oob_observe_free(list);
	return found;
}

/* Whatever criteria a trusted program sets, signals at the stranger's ports concern the agent. */
static void criteria_of_the_stranger(pid_t child)
{
	EXPECT(observed(0).status.criteria == OOB_CRITERIA && observed(getpid()).trusted);
	EXPECT(observed(child).status.criteria == (OOB_CRITERIA | OOB_SIGNALS));
	EXPECT(!observed(child).trusted);
	MUST(hdl_oob_set(child, 0, 0));
	EXPECT(observed(child).status.criteria == OOB_SIGNALS);
	EXPECT(observed(child).status.waking == OOB_SIGNALS);
	EXPECT(observed(getpid()).status.criteria == OOB_CRITERIA);
	MUST(hdl_oob_set(0, OOB_ERRORS, 0));
	EXPECT(observed(child).status.criteria == (OOB_ERRORS | OOB_SIGNALS));
	EXPECT(observed(getpid()).status.criteria == OOB_ERRORS);
	MUST(hdl_aperture_alive(us.met, WAIT)); /* through the agent */
}

/* We connect to the stranger. Nothing of it is the same pages. */
static void the_other_way(void)
{
	void *range;
	uint64_t bytes;
	await_byte(us.met, 299, 'p');
	memcpy(&us.number, (const char *)hdl_aperture_memory(us.met, NULL) + 300,
	       sizeof(us.number));
	MUST(hdl_aperture_connect(us.back, &us.victim.gid, us.number, WAIT)); /* the same node */
	MUST(hdl_aperture_map(us.back, 12, &range, &bytes));
	EXPECT(us.back->shared == NULL && us.back->track != NULL);
	((volatile char *)range)[10] = 'y';
	await_end(us.met);
	EXPECT(hdl_aperture_reason(us.met) == HDL_REASON_CLOSED);
}

static void killed_stranger(pid_t child)
{
	int result = -HDL_EAGAIN, status;
	for (int i = 0; i < 200 && result != 0; i++, usleep(10000))
		result = hdl_aperture_connect(us.met, &us.victim.gid, us.number, WAIT);
	MUST(result);
	await_byte(us.met, 4, 'n');
	EXPECT(kill(child, SIGKILL) == 0);
	double began = now_ms();
	await_end(us.met);
	printf("stranger killed: known after %.1f ms: %s\n", now_ms() - began,
	       hdl_aperture_reason_str(hdl_aperture_reason(us.met)));
	EXPECT(hdl_aperture_reason(us.met) == HDL_REASON_GONE && now_ms() - began < SOON);
	waitpid(child, &status, 0);
}

static void close_ours(void)
{
	struct hdl_aperture *all[] = {us.held, us.other, us.loose, us.met, us.back};
	MUST(hdl_eventq_close(us.queue));
	for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		MUST(hdl_aperture_free(all[i]));
	MUST(hdl_port_close(us.port));
	MUST(hdl_close(us.adapter));
	MUST(hdl_close(us.friend));
	kill_agent();
	static const char *const files[] = {"untrusted",  "stranger",   "friend",
	                                    "agent.sock", "agent.lock", "agent.next"};
	for (unsigned i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		char path[128];
		snprintf(path, sizeof(path), "%s/%s", folder, files[i]);
		unlink(path);
	}
	rmdir(folder);
}

int main(int argc, char **argv)
{
	static char memory[8];
	const char *where = memory;
	char list[128];
	int talk, status;
	if (argc == 3 && strcmp(argv[1], "stranger") == 0)
		stranger(atoi(argv[2]));
	if (argc == 3)
		return raised(atoi(argv[2]));
	EXPECT(mkdtemp(folder) != NULL);
	setenv("HEDDLE_DIR", folder, 1);
	snprintf(list, sizeof(list), "%s/untrusted", folder);
	FILE *file = fopen(list, "w");
	EXPECT(file != NULL && fputs("somebody\nstranger\n", file) >= 0 && fclose(file) == 0);
	pid_t child = start_stranger("stranger", "stranger", &talk);
	open_ours();
	EXPECT(write(talk, &us.victim, sizeof(us.victim)) == (ssize_t)sizeof(us.victim));
	MUST(hdl_aperture_accept(us.met, us.port, 0, NULL, WAIT));
	EXPECT(us.met->conn.path.managed == !on_wire());
	nothing_has_changed();
	criteria_of_the_stranger(child);
	the_other_way();
	killed_agent(us.back, us.held, us.other);
	killed_stranger(child);
	close(talk);
	child = start_stranger("friend", "raised", &talk);
	EXPECT(write(talk, &where, sizeof(where)) == (ssize_t)sizeof(where));
	waitpid(child, &status, 0);
	EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	close_ours();
	return 0;
}
