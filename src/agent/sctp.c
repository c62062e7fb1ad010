/* The SCTP service: UDP port 9899 of each address of a node, shared by its processes
 * (port/steer.h). It knows which process has which SCTP ports, and answers packets to ports that
 * nobody has, as RFC 9260 wants: so a peer learns at once that nobody listens there, or that a
 * process has gone. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "agent/agent.h"
#include "agent/wire.h"
#include "base/clock.h"
#include "port/sctp.h"
#include "port/sctp_packet.h"
#include "port/steer.h"

/* The ports for processes that ask for any (RFC 6335 section 6), in blocks. */
#define FIRST_BLOCK_PORT 49152u
#define BLOCKS           (16384u / AGENT_SCTP_BLOCK)

/* The sockets of one address. */
struct sctp_wire {
	struct agent_source source; /* first */
	struct agent *agent;
	struct steer steer;
	struct udp_receiver receiver;
};

static void sctp_hear_packet(const struct sctp_wire *wire, const struct udp_came *came,
                             const uint8_t *packet, size_t bytes)
{
	uint8_t answer[SCTP_ANSWER_BYTES];
	union udp_name name;
	/* Processes of a former agent may not have said yet which ports are theirs. */
	if (clock_now_ns() < wire->agent->wire_ns || !sctp_packet_is_sound(packet, bytes) ||
	    sctp_packet_refuse(packet, bytes, answer) == 0)
		return;
	socklen_t length = udp_name_of(&came->from, came->from_port, &name);
	(void)sendto(wire->steer.at[0].sock, answer, sizeof(answer), MSG_DONTWAIT | MSG_NOSIGNAL,
	             &name.any, length);
}

/* Packets have come for ports that nobody has. */
static void sctp_hear(struct agent_source *source)
{
	struct sctp_wire *wire = (struct sctp_wire *)(void *)source;
	struct udp_came came[UDP_BATCH];
	int count = udp_receive(&wire->receiver, wire->steer.at[0].sock, came);
	for (int i = 0; i < count; i++)
		for (uint32_t at = 0; at < came[i].bytes; at += came[i].packet_bytes) {
			uint32_t rest = came[i].bytes - at;
			sctp_hear_packet(wire, &came[i], came[i].data + at,
			                 rest < came[i].packet_bytes ? rest : came[i].packet_bytes);
		}
}

static void sctp_close_one(struct sctp_wire *wire)
{
	steer_close(&wire->steer);
	udp_receiver_end(&wire->receiver);
	free(wire);
}

void sctp_wires_close(struct node_entry *node)
{
	for (unsigned i = 0; i < UDP_MAX_ADDRESSES; i++) {
		if (node->sctp_wires[i] != NULL)
			sctp_close_one(node->sctp_wires[i]);
		node->sctp_wires[i] = NULL;
	}
}

/* 0 or -errno. */
static int sctp_open_one(struct agent *agent, const struct udp_address *address,
                         struct sctp_wire **out)
{
	struct sctp_wire *wire = calloc(1, sizeof(*wire));
	if (wire == NULL)
		return -ENOMEM;
	wire->source.ready = sctp_hear;
	wire->agent = agent;
	int result = steer_open(&wire->steer, address, SCTP_UDP_PORT, &steer_by_sctp);
	if (result == 0)
		result = wire_listen(agent, &wire->steer, &wire->receiver, &wire->source);
	if (result != 0) {
		sctp_close_one(wire);
		return result;
	}
	*out = wire;
	return 0;
}

/* The socket of @client on wire @i of its node; or -errno. */
static int sctp_socket(struct agent *agent, struct client *client, unsigned i)
{
	struct node_entry *node = client->node;
	if (wire_address(node->wires[i])->frames)
		return -EPROTONOSUPPORT; /* it has no UDP */
	if (node->sctp_wires[i] == NULL) {
		int result =
		        sctp_open_one(agent, wire_address(node->wires[i]), &node->sctp_wires[i]);
		if (result != 0)
			return result;
	}
	struct steer *steer = &node->sctp_wires[i]->steer;
	int sock = steer_of(steer, client->slot);
	return sock >= 0 ? sock : steer_take(steer, client->slot);
}

static void sctp_open(struct agent *agent, struct client *client, struct agent_request *request)
{
	struct node_entry *node = client->node;
	struct agent_msg *msg = &request->msg;
	unsigned count = wires_count(node);
	int fds[UDP_MAX_ADDRESSES], result = count > 0 ? 0 : -ENETDOWN;
	for (unsigned i = 0; i < count && result == 0; i++) {
		fds[i] = sctp_socket(agent, client, i);
		result = fds[i] < 0 ? fds[i] : 0;
		msg->u.sctp.wires[i] = *wire_address(node->wires[i]);
	}
	msg->kind = AGENT_SCTP_OPENED;
	msg->u.sctp.error = -result;
	msg->u.sctp.wire_count = result == 0 ? count : 0;
	tell(client, msg, fds, (int)msg->u.sctp.wire_count);
}

/* --- ports --- */

/* Is wire @i of the node one that @gid names? */
static bool sctp_is_meant(const struct node_entry *node, unsigned i, const uint8_t gid[16])
{
	static const uint8_t all[16];
	return node->sctp_wires[i] != NULL &&
	       (memcmp(gid, all, 16) == 0 ||
	        memcmp(gid, node->sctp_wires[i]->steer.address.gid, 16) == 0);
}

static void sctp_forget(const struct client *client, const uint8_t gid[16], uint32_t first,
                        uint32_t last)
{
	for (unsigned i = 0; i < UDP_MAX_ADDRESSES; i++)
		if (sctp_is_meant(client->node, i, gid))
			steer_remove(&client->node->sctp_wires[i]->steer, client->slot, first,
			             last);
}

/* On all addresses, or on none. 0 or -errno. */
static int sctp_grant(const struct client *client, const uint8_t gid[16], uint32_t first,
                      uint32_t last)
{
	int result = -EADDRNOTAVAIL;
	for (unsigned i = 0; i < UDP_MAX_ADDRESSES; i++) {
		if (!sctp_is_meant(client->node, i, gid))
			continue;
		result = steer_add(&client->node->sctp_wires[i]->steer, client->slot, first, last);
		if (result != 0) {
			sctp_forget(client, gid, first, last);
			break;
		}
	}
	return result;
}

static int sctp_grant_any(struct client *client, const uint8_t gid[16], uint32_t count,
                          uint16_t *port)
{
	int result = -EADDRINUSE;
	for (unsigned tries = 0; tries < BLOCKS && result == -EADDRINUSE; tries++) {
		uint32_t first =
		        FIRST_BLOCK_PORT + client->node->sctp_rover++ % BLOCKS * AGENT_SCTP_BLOCK;
		result = sctp_grant(client, gid, first, first + count - 1);
		if (result == 0)
			*port = (uint16_t)first;
	}
	return result;
}

static bool sctp_is_range(const struct agent_sctp *sctp)
{
	return sctp->count > 0 && sctp->count <= AGENT_SCTP_BLOCK &&
	       (uint32_t)sctp->port + sctp->count <= 0x10000u;
}

static void sctp_bind(struct agent *agent, struct client *client, struct agent_request *request)
{
	struct agent_msg *msg = &request->msg;
	struct agent_sctp *sctp = &msg->u.sctp;
	uint32_t first = sctp->port, last = first + sctp->count - 1u;
	(void)agent;
	int result = !sctp_is_range(sctp) ? -EINVAL
	             : first != 0         ? sctp_grant(client, sctp->gid, first, last)
	                          : sctp_grant_any(client, sctp->gid, sctp->count, &sctp->port);
	msg->kind = AGENT_SCTP_BOUND;
	sctp->error = -result;
	tell(client, msg, NULL, 0);
}

static void sctp_unbind(struct agent *agent, struct client *client, struct agent_request *request)
{
	const struct agent_sctp *sctp = &request->msg.u.sctp;
	(void)agent;
	if (sctp_is_range(sctp))
		sctp_forget(client, sctp->gid, sctp->port, sctp->port + sctp->count - 1u);
}

static void sctp_leave(struct agent *agent, struct client *client)
{
	(void)agent;
	for (unsigned i = 0; client->node != NULL && i < UDP_MAX_ADDRESSES; i++)
		if (client->node->sctp_wires[i] != NULL)
			steer_give(&client->node->sctp_wires[i]->steer, client->slot);
}

static const struct service_kind sctp_kinds[] = {
        {AGENT_SCTP_OPEN, AGENT_MSG_BYTES(sctp), false, sctp_open},
        {AGENT_SCTP_BIND, AGENT_MSG_BYTES(sctp), false, sctp_bind},
        {AGENT_SCTP_UNBIND, AGENT_MSG_BYTES(sctp), false, sctp_unbind},
};
const struct agent_service sctp_service = {.name = "SCTP",
                                           .kinds = sctp_kinds,
                                           .kind_count = SERVICE_KINDS(sctp_kinds),
                                           .leave = sctp_leave};
