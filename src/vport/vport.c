/* The process that runs hardware ports. See vport.h. */
#include "vport/vport.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/barrier.h"
#include "base/clock.h"
#include "base/log.h"
#include "port/bell.h"
#include "port/rundir.h"
#include "port/vskey.h"

#define TICK_NS     (LINK_KEEP_NS / 2)
#define TURN        32u    /* records that are taken from one lane before the next */
#define POLL_NS     50000u /* how long to poll before sleeping */
#define MAX_EVENTS  32
#define WATCH_OTHER UINT64_MAX /* the bell, or the agent */

const struct topology_end *port_own_end(const struct port *port)
{
	return &port->way->ends[port->end];
}

const struct topology_end *port_other_end(const struct port *port)
{
	return &port->way->ends[1 - port->end];
}

int port_own_bell(const struct port *port)
{
	return port->vport->member.rope;
}

void port_watch(struct port *port, int fd)
{
	struct epoll_event interest = {.events = EPOLLIN,
	                               .data.u64 = (uint64_t)port->number << 32 | (uint32_t)fd};
	epoll_ctl(port->vport->epoll, EPOLL_CTL_ADD, fd, &interest);
}

void port_unwatch(struct port *port, int fd)
{
	epoll_ctl(port->vport->epoll, EPOLL_CTL_DEL, fd, NULL);
}

/* --- states --- */

/* Tell the agent, and forward accordingly. */
static void port_update(struct port *port, bool anyway)
{
	struct vport *vport = port->vport;
	bool up = port->kind != NULL && port->link.up;
	if (up == port->told_up && !anyway)
		return;
	port->told_up = up;
	vport->vswitch.states[port->number] = up ? VSWITCH_PORT_UP : VSWITCH_PORT_DOWN;
	member_set_port(&vport->member, port->number, &vport->vswitch.nic_ports[port->number],
	                up ? VSWITCH_PORT_UP : VSWITCH_PORT_DOWN);
	if (!anyway)
		log_info("port %u of %s is %s", port->number, vport->node->name,
		         up ? "up" : "down");
}

static void vport_tell_all(struct vport *vport)
{
	for (unsigned i = 0; i < VSWITCH_HARDWARE_PORTS; i++)
		if ((vport->node->ports >> i & 1) != 0)
			port_update(&vport->ports[i], true);
}

/* Copy which applications there are. */
static void vport_look(struct vport *vport)
{
	struct member *member = &vport->member;
	uint32_t generation =
	        atomic_load_explicit(&member->board->generation, memory_order_acquire);
	if (generation == vport->generation && member->board->id == vport->board)
		return;
	vport->board = member->board->id;
	vport->generation = generation;
	memcpy(vport->vswitch.states + VSWITCH_HARDWARE_PORTS,
	       member->board->vswitch.states + VSWITCH_HARDWARE_PORTS,
	       VSWITCH_PORTS - VSWITCH_HARDWARE_PORTS);
}

/* --- packets --- */

/* Why a packet that the link does not take is rejected. */
static const enum ibc_reason refusals[] = {
        [PORT_FULL] = IBC_REASON_NO_RECEIVE, [PORT_TOO_LONG] = IBC_REASON_TOO_LONG};

static void port_capture(const struct port *port, const uint8_t *packet, size_t bytes, bool inbound)
{
	char comment[PCAPNG_COMMENT_BYTES];
	if (port->vport->capture == NULL)
		return;
	snprintf(comment, sizeof(comment), "port %u", port->number);
	ibc_capture_put(port->vport->capture, packet, bytes, inbound, comment);
}

static enum port_sent port_send(struct port *port, const uint8_t *packet, size_t bytes)
{
	uint8_t header[LINK_HEADER_BYTES];
	link_put(&port->link, header, bytes, port->vport->now_ns);
	enum port_sent sent = port->kind->send(port, header, packet, bytes);
	if (sent != PORT_SENT) {
		port->link.next--; /* the other end shall not count it as lost */
		port->dropped++;
		return sent;
	}
	port->out++;
	port->out_bytes += bytes;
	port_capture(port, packet, bytes, false);
	return PORT_SENT;
}

static bool port_is_up(const struct port *port)
{
	return port->kind != NULL && port->link.up;
}

static void vport_send_in(struct vport *vport, const struct ibc_packet *packet, uint8_t from);

/* The switch itself says @packet out of the hardware port @outport. */
static void vport_say(struct vport *vport, struct ibc_packet packet, uint8_t outport)
{
	uint8_t bytes[IBC_MAX_BYTES];
	packet.guid = vport->vswitch.nic_ports[outport].guid;
	size_t length = ibc_encode(&packet, bytes, sizeof(bytes));
	if (length > 0 && port_is_up(&vport->ports[outport]))
		port_send(&vport->ports[outport], bytes, length);
}

/* Send what the switch itself says out of the port through which the packet came that it answers.
 * To an application, or if this switch has moved the pointer already (@inport is
 * VSWITCH_APID_CONFIG), it goes through the switch, as if it came from port @from. */
static void vport_answer(struct vport *vport, const struct ibc_packet *answer, uint8_t inport,
                         uint8_t from)
{
	if (vswitch_is_hardware(inport))
		vport_say(vport, *answer, inport);
	else
		vport_send_in(vport, answer, from);
}

static void vport_reject(struct vport *vport, const struct ibc_packet *packet, uint8_t inport,
                         uint8_t from, enum ibc_reason reason)
{
	struct ibc_packet nack;
	vswitch_count(&vport->counters,
	              &(struct vswitch_result){.action = VSWITCH_REJECT, .reason = reason});
	if (vswitch_nack(packet, reason, &nack))
		vport_answer(vport, &nack, inport, from);
}

/* Carry out a command for the switch itself. */
static void vport_consume(struct vport *vport, const struct ibc_packet *packet, uint8_t inport)
{
	struct vswitch_configured *done = &vport->configured;
	for (unsigned i = 0; i < VSWITCH_HARDWARE_PORTS; i++) {
		const struct port *port = &vport->ports[i];
		uint64_t *counters = vport->counters.ports[i];
		counters[IBC_PORT_COUNTER_IN] = port->in;
		counters[IBC_PORT_COUNTER_IN_BYTES] = port->in_bytes;
		counters[IBC_PORT_COUNTER_OUT] = port->out;
		counters[IBC_PORT_COUNTER_OUT_BYTES] = port->out_bytes;
		counters[IBC_PORT_COUNTER_DAMAGED] = port->link.damaged + port->bad_packets;
		counters[IBC_PORT_COUNTER_LOST] = port->link.lost;
		counters[IBC_PORT_COUNTER_DROPPED] = port->dropped;
		counters[IBC_PORT_COUNTER_DOWNS] = port->link.downs;
	}
	vport->counters.packets[IBC_COUNTER_UNCAPTURED] =
	        vport->capture != NULL ? vport->capture->dropped : 0;
	struct vswitch_owner owner = {.vswitch = &vport->vswitch,
	                              .counters = &vport->counters,
	                              .key = vport->node->has_key ? vport->node->key : NULL};
	vswitch_configure(&owner, packet, inport, done);
	/* The answer first: the port may be the one through which it leaves. */
	if (done->answered)
		vport_answer(vport, &done->answer, inport, VSWITCH_APID_CONFIG);
	if (done->set_port && vport->ports[done->port].kind != NULL) {
		link_close(&vport->ports[done->port].link, !done->up);
		port_update(&vport->ports[done->port], false);
	}
}

/* Give @packet, which came through @inport, to each application of @applications. */
static unsigned vport_deliver(struct vport *vport, const struct ibc_packet *packet, uint8_t inport,
                              bool by_route, uint64_t applications)
{
	struct record record = {.inport = inport, .by_route = by_route, .packet = *packet};
	unsigned delivered = 0;
	for (uint64_t left = applications; left != 0; left &= left - 1) {
		unsigned port = (unsigned)__builtin_ctzll(left);
		unsigned to = vport->member.board->owners[port];
		record.outport = (uint8_t)port;
		delivered += member_put(&vport->member, to, &record);
	}
	return delivered;
}

/* Forward what the switch itself says, an answer to a command or a NACK, as if it came from port
 * @from. */
static void vport_send_in(struct vport *vport, const struct ibc_packet *packet, uint8_t from)
{
	bool by_route = !ibc_at_end(&packet->route);
	struct vswitch_result result = vswitch_forward(&vport->vswitch, packet, from);
	struct ibc_packet out = *packet;
	out.route = result.route;
	if (result.action == VSWITCH_DELIVER)
		vport_deliver(vport, &out, from, by_route, result.applications);
	else if (result.action == VSWITCH_TRANSMIT)
		vport_say(vport, out, result.port);
}

/* Send on a packet that has been forwarded to the hardware port @outport. */
static void vport_transmit(struct vport *vport, const uint8_t *bytes, size_t length,
                           uint8_t outport)
{
	struct ibc_packet packet;
	enum port_sent sent = port_send(&vport->ports[outport], bytes, length);
	if (sent == PORT_SENT)
		vswitch_count(&vport->counters,
		              &(struct vswitch_result){.action = VSWITCH_TRANSMIT});
	/* It has been rewritten already: the NACK starts from where it would be now. What has no
	 * room is lost, as on a wire; the port counts it. */
	if (sent == PORT_TOO_LONG && ibc_decode(&packet, bytes, length) == IBC_OK)
		vport_reject(vport, &packet, VSWITCH_APID_CONFIG, outport, refusals[sent]);
}

/* A packet that has come through @inport is damaged behind its header. */
static void vport_damaged(struct vport *vport, uint8_t inport)
{
	vport->ports[inport].bad_packets++;
	vport->counters.packets[IBC_COUNTER_DAMAGED]++;
}

/* A packet has come through the hardware port @inport. */
static void vport_forward(struct vport *vport, uint8_t *bytes, size_t length, uint8_t inport)
{
	struct vswitch_decision decision;
	struct ibc_packet packet;
	uint8_t before = length > 1 ? bytes[1] : 0;
	if (vswitch_pass(&vport->vswitch, bytes, length, inport, &decision) != IBC_OK) {
		vport_damaged(vport, inport);
		return;
	}
	bool by_route = bytes[1] != before; /* the switch has moved the pointer */
	if (decision.action == VSWITCH_TRANSMIT) {
		vport_transmit(vport, bytes, length, decision.port);
		return;
	}
	/* What goes no further is checked completely. */
	if (decision.action == VSWITCH_REJECT) {
		if (vswitch_rejected(bytes, length, decision.reason, &packet))
			vport_reject(vport, &packet, inport, inport, decision.reason);
		else
			vport_damaged(vport, inport);
		return;
	}
	if (ibc_decode(&packet, bytes, length) != IBC_OK) {
		vport_damaged(vport, inport);
		return;
	}
	if (decision.action == VSWITCH_DELIVER &&
	    vport_deliver(vport, &packet, inport, by_route, decision.applications) == 0) {
		uint8_t apid = (uint8_t)__builtin_ctzll(decision.applications);
		vport_reject(vport, &packet, by_route ? VSWITCH_APID_CONFIG : inport, apid,
		             IBC_REASON_NO_RECEIVE);
		return;
	}
	vswitch_count(&vport->counters, &(struct vswitch_result){.action = decision.action});
	if (decision.action == VSWITCH_CONSUME)
		vport_consume(vport, &packet, inport);
}

void port_frame(struct port *port, uint8_t *frame, size_t bytes)
{
	struct vport *vport = port->vport;
	bool up = port->link.up;
	size_t length = link_take(&port->link, frame, bytes, vport->now_ns);
	if (port->link.up != up)
		port_update(port, false);
	if (length == 0)
		return;
	port->in++;
	port->in_bytes += length;
	port_capture(port, frame + LINK_HEADER_BYTES, length, true);
	vport_look(vport); /* we may have slept until it came */
	int inport = vswitch_inport(&vport->vswitch, &port->arrival);
	assert(inport >= 0); /* pairs with topology_vswitch(), which gave it that place */
	vport_forward(vport, frame + LINK_HEADER_BYTES, length, (uint8_t)inport);
}

/* An application sends @record, whose packet is in vport->copy. */
static void vport_take_record(struct vport *vport, const struct record *record)
{
	const struct ibc_packet *packet = &record->packet;
	struct vswitch_result left = {.action = VSWITCH_TRANSMIT};
	if (record->outport == VSWITCH_APID_CONFIG) {
		left.action = VSWITCH_CONSUME;
		vswitch_count(&vport->counters, &left);
		vport_consume(vport, packet, record->inport);
		return;
	}
	/* libibc does not let it come here, but a client may do without. */
	if (!vswitch_may_use(&vport->vswitch, record->inport, record->outport)) {
		vport_reject(vport, packet, record->inport, record->outport,
		             IBC_REASON_NOT_ALLOWED);
		return;
	}
	struct port *port = &vport->ports[record->outport];
	bool up = port_is_up(port);
	enum port_sent sent =
	        up ? port_send(port, vport->copy + RECORD_HEADER_BYTES, ibc_bytes(packet))
	           : PORT_FULL;
	if (sent == PORT_SENT)
		vswitch_count(&vport->counters, &left);
	else
		vport_reject(vport, packet, record->inport, record->outport,
		             up ? refusals[sent] : IBC_REASON_PORT_DOWN);
}

static bool vport_take(struct vport *vport, unsigned from, unsigned count)
{
	struct member *member = &vport->member;
	struct record record;
	enum record_verdict verdict;
	bool any = false;
	for (unsigned i = 0; i < count && !ring_quiet(&member->peers[from].end.rx); i++) {
		enum member_took took = member_take(member, from, vport->copy, &record, &verdict);
		if (took == MEMBER_NOTHING)
			break;
		any = true;
		if (took == MEMBER_RECORD)
			vport_take_record(vport, &record);
		else
			vport->counters.packets[IBC_COUNTER_DAMAGED]++;
	}
	return any;
}

static void vport_lane_ends(struct member *member, unsigned from)
{
	vport_take((struct vport *)(void *)member, from, BOARD_LANE_SLOTS);
}

static void vport_returns(struct member *member)
{
	vport_tell_all((struct vport *)(void *)member);
}

static const struct member_owner vport_owner = {.leaves = vport_lane_ends,
                                                .returns = vport_returns};

/* --- the loop --- */

static void vport_watch_agent(struct vport *vport)
{
	struct epoll_event interest = {.events = EPOLLIN, .data.u64 = WATCH_OTHER};
	/* The next agent's socket may have the number of the former's, which is closed, and so out
	 * of the set. */
	if (vport->watched == vport->member.agent && vport->watched_agents == vport->member.agents)
		return;
	vport->watched = vport->member.agent;
	vport->watched_agents = vport->member.agents;
	if (vport->watched >= 0)
		epoll_ctl(vport->epoll, EPOLL_CTL_ADD, vport->watched, &interest);
}

static void vport_tick(struct vport *vport)
{
	uint8_t header[LINK_HEADER_BYTES];
	if (vport->now_ns < vport->tick_ns)
		return;
	vport->tick_ns = vport->now_ns + TICK_NS;
	if (vport->capture != NULL)
		ibc_capture_flush(vport->capture);
	for (unsigned i = 0; i < VSWITCH_HARDWARE_PORTS; i++) {
		struct port *port = &vport->ports[i];
		if (port->kind == NULL)
			continue;
		if (port->kind->tick != NULL)
			port->kind->tick(port);
		if (link_tick(&port->link, vport->now_ns)) {
			link_put(&port->link, header, 0, vport->now_ns);
			if (port->kind->send(port, header, NULL, 0) != PORT_SENT)
				port->link.next--;
		}
		port_update(port, false);
	}
	member_hear(&vport->member);
}

/* Take what applications and neighbours in shared memory have written. */
static bool vport_poll_lanes(struct vport *vport)
{
	bool any = false;
	member_look(&vport->member);
	vport_look(vport);
	for (uint64_t left = vport->member.known; left != 0; left &= left - 1)
		any |= vport_take(vport, (unsigned)__builtin_ctzll(left), TURN);
	for (unsigned i = 0; i < VSWITCH_HARDWARE_PORTS; i++)
		if (vport->ports[i].kind != NULL && vport->ports[i].kind->arm != NULL)
			any |= vport->ports[i].kind->hear(&vport->ports[i]);
	return any;
}

static bool vport_arm(struct vport *vport)
{
	bool quiet = true;
	for (unsigned i = 0; i < VSWITCH_HARDWARE_PORTS; i++)
		if (vport->ports[i].kind != NULL && vport->ports[i].kind->arm != NULL)
			quiet &= vport->ports[i].kind->arm(&vport->ports[i]);
	return member_arm(&vport->member, 0) && quiet;
}

static void vport_disarm(struct vport *vport)
{
	member_disarm(&vport->member);
	for (unsigned i = 0; i < VSWITCH_HARDWARE_PORTS; i++)
		if (vport->ports[i].kind != NULL && vport->ports[i].kind->disarm != NULL)
			vport->ports[i].kind->disarm(&vport->ports[i]);
}

/* Serve the descriptors that are readable. @ms: how long to wait for one. */
static bool vport_poll_files(struct vport *vport, int ms)
{
	struct epoll_event events[MAX_EVENTS];
	vport_watch_agent(vport);
	int count = epoll_wait(vport->epoll, events, MAX_EVENTS, ms);
	vport->now_ns = clock_now_ns();
	for (int i = 0; i < count; i++) {
		uint64_t data = events[i].data.u64;
		if (data == WATCH_OTHER) {
			bell_hear(vport->member.bell);
			member_hear(&vport->member);
			continue;
		}
		struct port *port = &vport->ports[data >> 32];
		if (port->kind->ready != NULL)
			port->kind->ready(port, (int)(uint32_t)data);
		else
			port->kind->hear(port);
	}
	return count > 0;
}

void vport_run(struct vport *vport, volatile const int *stop)
{
	uint64_t busy_ns = 0;
	while (!*stop) {
		vport->now_ns = clock_now_ns();
		vport_tick(vport);
		bool busy = vport_poll_lanes(vport);
		if (busy)
			busy_ns = vport->now_ns;
		bool sleep = vport->now_ns - busy_ns > POLL_NS && vport_arm(vport);
		if (!busy && !sleep)
			sched_yield(); /* whoever sends to us may need this processor */
		uint64_t ns = vport->tick_ns - vport->now_ns;
		if (vport_poll_files(vport, sleep ? (int)(ns / 1000000) + 1 : 0))
			busy_ns = vport->now_ns;
		if (sleep)
			vport_disarm(vport);
	}
}

/* --- beginning and end --- */

static const struct port_kind *const port_kinds[TOPOLOGY_LINK_KIND_COUNT] = {
        [TOPOLOGY_LINK_MEMORY] = &port_memory,
        [TOPOLOGY_LINK_UDP] = &port_udp,
        [TOPOLOGY_LINK_ETHERNET] = &port_ethernet,
};

static bool vport_open_port(struct vport *vport, unsigned number, uint32_t node)
{
	struct port *port = &vport->ports[number];
	unsigned end = 0;
	const char *why = "";
	int way = topology_link_at(vport->topology, node, (uint8_t)number, &end);
	*port = (struct port){
	        .vport = vport,
	        .number = number,
	        .arrival = {.hardware = true, .nic_port = vport->node->nic_ports[number]},
	        .topology = vport->topology,
	        .end = end,
	        .fd = -1,
	        .listener = -1,
	        .peer_bell = -1};
	link_begin(&port->link);
	if (way < 0)
		return true;
	port->way = &vport->topology->links[way];
	port->kind = port_kinds[port->way->kind];
	int result = port->kind->open(port, &why);
	if (result == 0)
		return true;
	log_error("line %u, port %u of %s: cannot open the link (%s): %s; %s", port->way->line,
	          number, vport->node->name, port->kind->name, strerror(-result), why);
	port->kind = NULL;
	return false;
}

/* Attach to the virtual switch as the one that runs its ports. */
static bool vport_attach(struct vport *vport)
{
	char directory[RUNDIR_MAX], path[RUNDIR_MAX + 16];
	uint32_t flags = AGENT_VS_PORTS | (vport->node->plain ? AGENT_VS_PLAIN : 0);
	int result = rundir_open(directory, NULL);
	if (result != 0) {
		log_error("%s: %s; %s", directory, strerror(-result), rundir_advice(result));
		return false;
	}
	rundir_file(directory, AGENT_VS_KEY, path, sizeof(path));
	/* The first to ask makes the agent write the key. */
	for (unsigned tries = 0; tries < 2; tries++) {
		vskey_read(path, vport->member.key);
		result = member_attach(&vport->member, AGENT_VS_ANY, flags);
		if (result != -EPERM)
			break;
	}
	if (result >= 0)
		return true;
	if (result != -ECONNREFUSED)
		log_error("the node agent does not let us run the ports of %s: %s; %s",
		          vport->node->name, strerror(-result),
		          result == -EBUSY ? "another process does (heddle vswitch show)"
		          : result == -EPERM
		                  ? "its key is not the one that \"heddle ibc key\" prints"
		                  : "end some clients, then try again");
	return false;
}

bool vport_begin(struct vport *vport, const struct topology *topology, uint32_t node)
{
	static const uint8_t no_key[AGENT_VS_KEY_BYTES];
	struct epoll_event interest = {.events = EPOLLIN, .data.u64 = WATCH_OTHER};
	memset(vport, 0, sizeof(*vport));
	vport->topology = topology;
	vport->node = &topology->nodes[node];
	vport->watched = vport->epoll = -1;
	topology_vswitch(topology, node, &vport->vswitch);
	if (!member_begin(&vport->member, &vport_owner, vport->node->name, no_key))
		return false;
	vport->member.node_id = vport->node->id;
	vport->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (vport->epoll < 0 ||
	    epoll_ctl(vport->epoll, EPOLL_CTL_ADD, vport->member.bell, &interest) != 0) {
		log_error("epoll: %m; close some files, or raise \"ulimit -n\"");
		return false;
	}
	if (!vport_attach(vport))
		return false;
	for (unsigned i = 0; i < VSWITCH_HARDWARE_PORTS; i++)
		if ((vport->node->ports >> i & 1) != 0 && !vport_open_port(vport, i, node))
			return false;
	vport_tell_all(vport);
	vport->capture = ibc_capture_open(vport->node->name);
	return true;
}

void vport_end(struct vport *vport)
{
	for (unsigned i = 0; i < VSWITCH_HARDWARE_PORTS; i++)
		if (vport->ports[i].kind != NULL)
			vport->ports[i].kind->close(&vport->ports[i]);
	member_end(&vport->member);
	ibc_capture_close(vport->capture, false);
	if (vport->epoll >= 0)
		close(vport->epoll);
}
