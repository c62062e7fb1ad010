/* Sending: the process that sends forwards the packet itself (VSWITCH figure 3), and writes it into
 * the lane of the process that gets it. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "ibc/client.h"

void client_capture(struct client *client, const struct record *record, bool inbound)
{
	uint8_t bytes[IBC_MAX_BYTES];
	char comment[PCAPNG_COMMENT_BYTES];
	size_t length = ibc_encode(&record->packet, bytes, sizeof(bytes));
	snprintf(comment, sizeof(comment), "from port %u to port %u", record->inport,
	         record->outport);
	ibc_capture_put(client->capture, bytes, length, inbound, comment);
	ibc_capture_flush(client->capture); /* nobody else would */
}

/* Put @record into the lane to member @to, and capture it. */
static bool put_one(struct client *client, unsigned to, const struct record *record)
{
	bool put = member_put(&client->member, to, record);
	if (put && client->capture != NULL)
		client_capture(client, record, false);
	return put;
}

/* Is it worth waiting for room in the lane to member @to? The agent may make it soon; without an
 * agent there is nobody to do so, but another agent comes soon. */
static bool may_have_room(const struct member *member, unsigned to)
{
	return member_has(member, to) || member_is_alone(member) || member_waits_for(member, to);
}

/* Put @record into the lane to member @to, which holds the port @port. */
static bool put_and_wait(struct client *client, unsigned to, unsigned port,
                         const struct record *record, bool wait)
{
	if (put_one(client, to, record))
		return true;
	if (!wait || !may_have_room(&client->member, to))
		return false;
	/* A reader that lets every sender wait would hold up all of us. */
	struct member_peer *peer = &client->member.peers[to];
	peer->slow = peer->slow && !ring_consumed(&peer->end.tx, peer->end.tx.position);
	if (peer->slow)
		return false;
	uint64_t end = clock_now_ns() + IBC_LIMIT_SEND_MS * UINT64_C(1000000);
	for (unsigned spins = 0; may_have_room(&client->member, to); spins++) {
		client_pause(client, spins);
		const struct board *board = client->member.board;
		if (vswitch_is_hardware(port) ? board->ports_member != to
		                              : board->owners[port] != to)
			return false; /* it has gone meanwhile */
		if (put_one(client, to, record))
			return true;
		if (clock_now_ns() >= end) {
			peer->slow = member_has(&client->member, to);
			return false;
		}
	}
	return false;
}

bool client_has_ports(struct client *client)
{
	bool there = client->member.board->ports_member != BOARD_NOBODY;
	if (!there && !client->told_portless)
		log_warn("no process runs the hardware ports of node %s, so only applications of "
		         "this node can be reached; is HEDDLE_NODE right? \"heddle vswitch show\" "
		         "lists the nodes that are up",
		         client->member.node[0] != '\0' ? client->member.node : "''");
	client->told_portless = !there;
	return there;
}

/* We are the switch that rejects our own packet. */
static void reject_own(struct client *client, const struct ibc_packet *packet, uint8_t inport,
                       enum ibc_reason reason)
{
	struct record back = {.inport = inport, .outport = inport};
	if (!vswitch_nack(packet, reason, &back.packet))
		return;
	client->counters.Nacks++;
	client_accept(client, &back, client->member.number);
}

/* Deliver to each application of @applications. Returns how many took it. */
static unsigned deliver(struct client *client, struct record *record, uint64_t applications,
                        bool wait)
{
	const struct board *board = client->member.board;
	unsigned delivered = 0;
	for (uint64_t left = applications; left != 0; left &= left - 1) {
		unsigned port = (unsigned)__builtin_ctzll(left), to = board->owners[port];
		record->outport = (uint8_t)port;
		if (to == client->member.number) {
			client_accept(client, record, client->member.number);
			delivered++;
		} else if (put_and_wait(client, to, port, record, wait)) {
			delivered++;
		}
	}
	return delivered;
}

/* Out of a hardware port, or to the switch itself. */
static bool leave(struct client *client, struct record *record, uint8_t outport, bool wait)
{
	const struct board *board = client->member.board;
	record->outport = outport;
	return board->ports_member != BOARD_NOBODY &&
	       put_and_wait(client, board->ports_member, outport, record, wait);
}

bool client_emit(struct client *client, struct ibc_packet *packet, uint8_t inport, int outport,
                 bool wait)
{
	const struct vswitch *vswitch = &client->member.board->vswitch;
	struct record record = {.inport = inport};
	struct vswitch_result result = {.action = VSWITCH_TRANSMIT, .route = packet->route};
	client->counters.Sent++;
	if (outport >= 0) {
		result.port = (uint8_t)outport;
	} else {
		record.by_route = !ibc_at_end(&packet->route);
		result = vswitch_forward(vswitch, packet, inport);
	}
	packet->guid = result.action == VSWITCH_TRANSMIT ? vswitch->nic_ports[result.port].guid : 0;
	record.packet = *packet;
	record.packet.route = result.route;
	bool many = (result.applications & (result.applications - 1)) != 0;
	switch (result.action) {
	case VSWITCH_TRANSMIT:
		return leave(client, &record, result.port, wait);
	case VSWITCH_CONSUME:
		if (!leave(client, &record, VSWITCH_APID_CONFIG, wait))
			reject_own(client, packet, inport, IBC_REASON_NO_APPLICATION);
		return true;
	case VSWITCH_DELIVER:
		if (deliver(client, &record, result.applications, wait && !many) == 0)
			reject_own(client, packet, inport, IBC_REASON_NO_RECEIVE);
		return true;
	default:
		/* Without the process nobody knows which ports there are. */
		if (result.reason == IBC_REASON_NO_PORT && !client_has_ports(client))
			result.reason = IBC_REASON_PORT_DOWN;
		reject_own(client, packet, inport, result.reason);
		return true;
	}
}

void client_reject(struct client *client, const struct record *record, enum ibc_reason reason)
{
	struct ibc_packet nack;
	/* Nobody is told that one of many did not get it. */
	if (record->packet.dest_apid == VSWITCH_APID_ALL ||
	    !vswitch_nack(&record->packet, reason, &nack))
		return;
	client->counters.Nacks++;
	nack.source_apid = record->outport;
	bool direct = !record->by_route && vswitch_is_hardware(record->inport);
	client_emit(client, &nack, record->outport, direct ? record->inport : -1, false);
}
