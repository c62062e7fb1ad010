/* The apertures service: hands out the sockets on which processes exchange CI packets, and passes
 * on what comes to ports, of which it knows the holders. It answers for processes that have gone,
 * and tells each process how far it is trusted (heddle-ci(7)). No data passes through it. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/remote.h"
#include "agent/wire.h"
#include "base/clock.h"
#include "base/log.h"
#include "port/refused.h"
#include "port/steer.h"
#include "wire/ci.h"

#define TRUST_FILE "untrusted" /* one program per line */
/* Where only we can say that a process has gone, we do for so long: peers ask several times in a
 * second. */
#define CI_ANSWERS_NS 2000000000ull

/* Of enum hdl_aperture_reason, the agent knows these. */
#define REASON_NO_PORT 1u
#define REASON_GONE    8u

/* Frames that come back are passed to all processes of the node, each of which looks for the
 * connection. So many per second are: a host may send as many as it likes. */
#define RETURNED_PER_S 256u

/* One of the sockets of an address, whose errors the agent watches. */
struct ci_watch {
	struct agent_source source; /* first */
	struct ci_wire *wire;
	int sock, epoll;
};

/* The sockets of one address. */
struct ci_wire {
	struct agent_source source; /* first */
	struct node_entry *node;
	uint32_t which; /* of the addresses of the node */
	struct steer steer;
	struct udp_receiver receiver;
	struct ci_watch *watches[STEER_MAX_SOCKETS]; /* but for the first */
	uint64_t second;                             /* of which so many have come back: */
	uint32_t returned;
};

static void ci_send(const struct ci_wire *wire, const struct udp_address *to,
                    const struct ci_packet *packet)
{
	uint8_t frame[CI_EXTRA_BYTES + CI_OFFER_BYTES];
	struct ci_writer writer;
	union udp_name name;
	socklen_t length = udp_name_of(to, CI_UDP_PORT, &name);
	ci_begin(&writer, frame, sizeof(frame));
	if (ci_put(&writer, packet))
		(void)sendto(wire->steer.at[0].sock, frame, writer.used,
		             MSG_DONTWAIT | MSG_NOSIGNAL, &name.any, length);
}

/* REJECT, or ERROR: the process that it was for has gone. The answer repeats the nonce, which
 * proves that its sender has seen the packet. */
static void ci_refuse(const struct ci_wire *wire, const struct udp_address *to,
                      const struct ci_packet *packet, uint16_t reason)
{
	uint8_t body[8];
	struct ci_offer offer;
	struct ci_note note = {.element = CI_AGENT};
	/* CONNECT and STATUS say the cluster address of their sender. */
	struct ci_packet out = {.cluster = packet->kind != CI_ALIVE ? (uint16_t)packet->offset : 0,
	                        .data = body};
	if (packet->kind == CI_CONNECT && ci_get_offer(packet, &offer) == CI_OK) {
		out.kind = CI_REJECT;
		out.index = offer.index;
		out.nonce = offer.nonce;
		note.reason = reason;
	} else if (packet->kind == CI_STATUS) {
		struct ci_status status = ci_get_status(packet);
		out.kind = CI_REJECT;
		out.index = status.index;
		out.nonce = status.nonce;
		note.reason = reason;
	} else if (packet->kind == CI_ALIVE) {
		out.kind = CI_ERROR;
		out.index = ci_get_note(packet).index;
		out.nonce = packet->nonce;
		note.reason = REASON_GONE;
	} else {
		return;
	}
	out.bytes = ci_set_note(out.kind, &note, body);
	ci_send(wire, to, &out);
}

static const struct ci_wire *ci_wire_of(const struct node_entry *node, uint32_t which)
{
	return which < UDP_MAX_ADDRESSES ? node->ci_wires[which] : NULL;
}

/* @host, as the sockets of @wire name it. */
static struct udp_address ci_host(const struct ci_wire *wire, const uint8_t host[16])
{
	struct udp_address to = wire->steer.address; /* scope and kind */
	memcpy(to.gid, host, sizeof(to.gid));
	return to;
}

void ci_send_to(const struct node_entry *node, uint32_t which, const uint8_t host[16],
                const uint8_t *frame, size_t bytes)
{
	const struct ci_wire *wire = ci_wire_of(node, which);
	union udp_name name;
	if (wire == NULL)
		return;
	struct udp_address to = ci_host(wire, host);
	if (!udp_address_reaches(&wire->steer.address, &to))
		return;
	socklen_t length = udp_name_of(&to, CI_UDP_PORT, &name);
	(void)sendto(wire->steer.at[0].sock, frame, bytes, MSG_DONTWAIT | MSG_NOSIGNAL, &name.any,
	             length);
}

void ci_is_gone(const struct node_entry *node, uint32_t which, const uint8_t host[16],
                const struct ci_packet *packet)
{
	const struct ci_wire *wire = ci_wire_of(node, which);
	struct udp_address to = wire != NULL ? ci_host(wire, host) : (struct udp_address){0};
	if (wire != NULL)
		ci_refuse(wire, &to, packet, REASON_NO_PORT);
}

static void ci_hear_frame(struct ci_wire *wire, const struct udp_came *came, const uint8_t *data,
                          size_t bytes)
{
	struct ci_reader reader;
	struct ci_packet packet;
	struct agent_msg msg = {.kind = AGENT_CI_FRAME, .u.cm.length = (uint32_t)bytes};
	ci_open(&reader, data, bytes);
	if (came->from_port != CI_UDP_PORT || bytes > sizeof(msg.u.cm.data) ||
	    ci_next(&reader, &packet) != CI_OK)
		return;
	bool to_port = packet.kind == CI_CONNECT || packet.kind == CI_STATUS;
	struct client *holder =
	        to_port ? cm_holder(wire->node, AGENT_CI_SPACE, wire->steer.address.gid,
	                            (uint16_t)ci_row(packet.index), 0)
	                : NULL;
	if (holder == NULL || holder->dead) {
		ci_refuse(wire, &came->from, &packet, REASON_NO_PORT);
		return;
	}
	if (holder->trust == CLIENT_UNTRUSTED) {
		remote_came(holder, wire->which, came->from.gid, data, bytes);
		return;
	}
	memcpy(msg.u.cm.gid, came->from.gid, 16); /* the source, as the socket tells it */
	memcpy(msg.u.cm.own, wire->steer.address.gid, 16);
	memcpy(msg.u.cm.data, data, bytes);
	(void)outbox_send(holder, &msg, NULL, 0); /* CONNECT is repeated */
}

/* A frame of one of our processes came back: it is for the process that knows its nonce. @from got
 * it already; NULL: none. */
static void ci_pass_returned(const struct node_entry *node, const struct client *from,
                             const uint8_t host[16], int error, const uint8_t *data, size_t bytes)
{
	struct agent_msg msg = {.kind = AGENT_CI_FRAME,
	                        .u.cm = {.options = (uint32_t)error, .length = (uint32_t)bytes}};
	memcpy(msg.u.cm.gid, host, 16);
	memcpy(msg.u.cm.data, data, bytes);
	for (unsigned slot = 0; slot < AGENT_MAX_SLOTS; slot++)
		if (node->slots[slot] != NULL && !node->slots[slot]->dead &&
		    node->slots[slot] != from)
			(void)outbox_send(node->slots[slot], &msg, NULL, 0);
}

static bool ci_may_return(struct ci_wire *wire)
{
	uint64_t second = clock_now_ns() / 1000000000u;
	if (second != wire->second) {
		wire->second = second;
		wire->returned = 0;
	}
	return wire->returned++ < RETURNED_PER_S;
}

/* Of the sockets that share a port, the kernel chooses one for an ICMP message by a hash of the
 * addresses, and always the same for one host. That may be the socket of any process, of one that
 * has stopped or ended, or ours. So the agent watches all of them. */
static void ci_hear_returned(struct ci_wire *wire, int sock)
{
	struct refused refused;
	for (unsigned i = 0; i < UDP_BATCH && refused_next(sock, &refused); i++)
		if (refused.bytes > 0 && refused.port == CI_UDP_PORT && ci_may_return(wire))
			ci_pass_returned(wire->node, NULL, refused.to.gid, refused.error,
			                 refused.data, refused.bytes);
}

static void ci_watch_ready(struct agent_source *source)
{
	const struct ci_watch *watch = (const struct ci_watch *)(const void *)source;
	ci_hear_returned(watch->wire, watch->sock);
}

/* Watch the errors of @sock from now on; it is in the group for good. */
static void ci_watch_errors(struct agent *agent, struct ci_wire *wire, int sock)
{
	unsigned at = 1;
	if (wire->steer.address.frames)
		return; /* nobody sends Ethernet frames back */
	while (at < wire->steer.count && wire->steer.at[at].sock != sock)
		at++;
	if (at == wire->steer.count || wire->watches[at] != NULL)
		return;
	struct ci_watch *watch = calloc(1, sizeof(*watch));
	struct epoll_event interest = {.events = 0, .data.ptr = watch}; /* errors always count */
	if (watch == NULL)
		return;
	*watch = (struct ci_watch){
	        .source.ready = ci_watch_ready, .wire = wire, .sock = sock, .epoll = agent->epoll};
	refused_watch(sock, &wire->steer.address);
	if (epoll_ctl(agent->epoll, EPOLL_CTL_ADD, sock, &interest) == 0)
		wire->watches[at] = watch;
	else
		free(watch);
}

void ci_returned_to(const struct client *client, const uint8_t host[16], int error,
                    const uint8_t *data, size_t bytes)
{
	struct ci_wire *wire = client->node->ci_wires[0];
	if (wire != NULL && bytes <= REFUSED_BYTES && ci_may_return(wire))
		ci_pass_returned(client->node, NULL, host, error, data, bytes);
}

/* A process got a frame back that is none of its own. */
static void ci_returned(struct agent *agent, struct client *client, struct agent_request *request)
{
	const struct agent_cm *cm = &request->msg.u.cm;
	struct ci_wire *wire = client->node->ci_wires[0];
	if (wire != NULL && !ci_is_untrusted(agent, client) && cm->length <= REFUSED_BYTES &&
	    ci_may_return(wire))
		ci_pass_returned(client->node, client, cm->gid, (int)cm->options, cm->data,
		                 cm->length);
}

static void ci_hear(struct agent_source *source)
{
	struct ci_wire *wire = (struct ci_wire *)(void *)source;
	struct udp_came came[UDP_BATCH];
	int count = udp_receive(&wire->receiver, wire->steer.at[0].sock, came);
	if (count <= 0)
		ci_hear_returned(wire, wire->steer.at[0].sock);
	for (int i = 0; i < count; i++)
		for (uint32_t at = 0; at < came[i].bytes; at += came[i].packet_bytes) {
			uint32_t rest = came[i].bytes - at;
			ci_hear_frame(wire, &came[i], came[i].data + at,
			              rest < came[i].packet_bytes ? rest : came[i].packet_bytes);
		}
}

static void ci_close_one(struct ci_wire *wire)
{
	for (unsigned i = 0; i < STEER_MAX_SOCKETS; i++) {
		struct ci_watch *watch = wire->watches[i];
		/* A child of a process may hold the socket, too, so closing alone would not take it
		 * out of the epoll set. */
		if (watch != NULL)
			epoll_ctl(watch->epoll, EPOLL_CTL_DEL, watch->sock, NULL);
		free(watch);
	}
	steer_close(&wire->steer);
	udp_receiver_end(&wire->receiver);
	free(wire);
}

void ci_wires_close(struct node_entry *node)
{
	for (unsigned i = 0; i < UDP_MAX_ADDRESSES; i++) {
		if (node->ci_wires[i] != NULL)
			ci_close_one(node->ci_wires[i]);
		node->ci_wires[i] = NULL;
	}
}

/* 0 or -errno. */
static int ci_open_one(struct agent *agent, struct node_entry *node, uint32_t which)
{
	static const struct steer_by slot = {CI_INDEX_OFFSET, UINT32_MAX, CI_ROW_BITS,
	                                     CI_KIND_COUNT, false};
	struct ci_wire *wire = calloc(1, sizeof(*wire));
	if (wire == NULL)
		return -ENOMEM;
	wire->source.ready = ci_hear;
	wire->node = node;
	wire->which = which;
	const struct udp_address *address = wire_address(node->wires[which]);
	int result = steer_open(&wire->steer, address, CI_UDP_PORT, &slot);
	if (result == 0)
		refused_watch(wire->steer.at[0].sock, address);
	if (result == 0)
		result = wire_listen(agent, &wire->steer, &wire->receiver, &wire->source);
	if (result != 0) {
		ci_close_one(wire);
		return result;
	}
	node->ci_wires[which] = wire;
	return 0;
}

/* Is the program of @client, as the kernel names it, in the list? */
static bool ci_is_listed(const struct agent *agent, const struct client *client)
{
	char link[64], path[PATH_MAX], line[PATH_MAX], *name = NULL;
	bool found = false;
	snprintf(link, sizeof(link), "/proc/%d/exe", (int)client->pid);
	ssize_t length = readlink(link, path, sizeof(path) - 1);
	FILE *file = agent->untrusted_path[0] != '\0' ? fopen(agent->untrusted_path, "re") : NULL;
	if (file == NULL)
		return false;
	if (length > 0) {
		path[length] = '\0';
		name = strrchr(path, '/');
	}
	/* A program without a name is nobody's: not trusted where there is a list. */
	found = name == NULL;
	while (!found && fgets(line, sizeof(line), file) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		found = strcmp(line, name + 1) == 0 || strcmp(line, path) == 0;
	}
	fclose(file);
	return found;
}

bool ci_is_untrusted(const struct agent *agent, struct client *client)
{
	if (client->trust == CLIENT_UNKNOWN)
		client->trust = ci_is_listed(agent, client) ? CLIENT_UNTRUSTED : CLIENT_TRUSTED;
	return client->trust == CLIENT_UNTRUSTED;
}

static void ci_open_all(struct agent *agent, struct client *client, struct agent_request *request)
{
	struct node_entry *node = client->node;
	struct agent_msg *msg = &request->msg;
	const struct udp_address *addresses[UDP_MAX_ADDRESSES];
	int fds[UDP_MAX_ADDRESSES], count = 0, result = 0, channel = -1;
	bool untrusted = ci_is_untrusted(agent, client);
	for (unsigned i = 0; i < wires_count(node) && result == 0; i++) {
		if (node->ci_wires[i] == NULL)
			result = ci_open_one(agent, node, i);
		if (result != 0)
			break;
		steer_give(&node->ci_wires[i]->steer, client->slot);
		int sock = steer_take(&node->ci_wires[i]->steer, client->slot);
		if (sock < 0) {
			result = sock;
			break;
		}
		addresses[count] = wire_address(node->wires[i]);
		fds[count++] = sock;
		ci_watch_errors(agent, node->ci_wires[i], sock);
	}
	/* Processes of a former agent may still have its sockets: they try again. */
	if (result != 0 && (result != -EADDRINUSE || clock_now_ns() >= agent->wire_ns)) {
		char text[UDP_ADDRESS_TEXT];
		udp_address_print(wire_address(node->wires[0]), text);
		log_error("UDP port %u of %s, for apertures: %s; is another agent on the address?",
		          CI_UDP_PORT, text, strerror(-result));
	}
	msg->kind = AGENT_CI_OPENED;
	msg->u.cm.error = -result;
	msg->u.cm.options = untrusted;
	msg->u.cm.slot = count > 0 ? wires_mtu(node) : 0;
	/* The sockets of a program that is not trusted are its forwarder's. */
	if (untrusted && result == 0 && count > 0) {
		channel = remote_open(agent, client, fds, addresses, count);
		if (channel < 0)
			log_error("%s (%d) reaches no other machine: cannot start its forwarder: "
			          "%s; is /proc mounted?",
			          client->program, (int)client->pid, strerror(-channel));
		fds[0] = channel;
		count = channel >= 0;
	}
	tell(client, msg, fds, result == 0 ? count : 0);
	if (channel >= 0)
		close(channel);
}

static void ci_leave(struct agent *agent, struct client *client)
{
	(void)agent;
	control_leave(client);
	for (unsigned i = 0; client->node != NULL && i < UDP_MAX_ADDRESSES; i++) {
		struct ci_wire *wire = client->node->ci_wires[i];
		if (wire == NULL)
			continue;
		steer_give(&wire->steer, client->slot);
		/* The sender of a datagram hears from the kernel that nobody is here any more; that
		 * of a frame does not. */
		if (wire->steer.address.frames)
			client->node->answers_ns = clock_now_ns() + CI_ANSWERS_NS;
	}
}

/* Forget the nodes that have answered long enough. */
static uint64_t ci_sweep(struct agent *agent, uint64_t now)
{
	uint64_t first = SERVICES_NEVER;
	for (uint32_t i = agent->node_count; i-- > 0;) { /* backwards: node_tidy() may remove one */
		struct node_entry *node = agent->nodes[i];
		if (node->answers_ns > now && node->answers_ns < first)
			first = node->answers_ns;
		if (node->answers_ns == 0 || node->answers_ns > now)
			continue;
		node->answers_ns = 0;
		node_tidy(agent, node);
	}
	return first;
}

void ci_begin_trust(struct agent *agent, const char *directory)
{
	int length = snprintf(agent->untrusted_path, sizeof(agent->untrusted_path), "%s/%s",
	                      directory, TRUST_FILE);
	if (length >= (int)sizeof(agent->untrusted_path))
		agent->untrusted_path[0] = '\0';
}

static const struct service_kind ci_kinds[] = {
        {AGENT_CI_OPEN, AGENT_MSG_BYTES(cm), false, ci_open_all},
        {AGENT_CI_ARM, AGENT_MSG_BYTES(cm), false, control_arm},
        {AGENT_CI_DISARM, AGENT_MSG_BYTES(cm), false, control_disarm},
        {AGENT_CI_CONTROL, AGENT_MSG_BYTES(cm), false, control_pass},
        {AGENT_CI_RETURNED, AGENT_MSG_BYTES(cm), false, ci_returned},
};
const struct agent_service aperture_service = {.name = "apertures",
                                               .kinds = ci_kinds,
                                               .kind_count = SERVICE_KINDS(ci_kinds),
                                               .leave = ci_leave,
                                               .sweep = ci_sweep};
