/* Records between the members of a virtual switch: see board.h. */
#include "fabric/board.h"

#include <string.h>

size_t record_write(const struct record *record, uint8_t *out, size_t capacity)
{
	if (capacity < RECORD_HEADER_BYTES)
		return 0;
	size_t bytes = ibc_encode(&record->packet, out + RECORD_HEADER_BYTES,
	                          capacity - RECORD_HEADER_BYTES);
	if (bytes == 0)
		return 0;
	out[0] = record->inport;
	out[1] = record->outport;
	out[2] = record->by_route ? RECORD_BY_ROUTE : 0;
	out[3] = 0;
	return RECORD_HEADER_BYTES + bytes;
}

int route_last_used(const struct ibc_route *route)
{
	/* Forward, ports 1 to pointer - 1 have been used; in reverse, pointer + 1 to hops. */
	unsigned last = route->reverse ? route->pointer + 1u : route->pointer - 1u;
	return last >= 1 && last <= route->hops ? route->ports[last - 1] : -1;
}

/* The record comes from an application: it can only be its own, and only lead back to it. */
static enum record_verdict judge_application(const struct board *board, uint64_t apids,
                                             const struct record *record)
{
	const struct ibc_packet *packet = &record->packet;
	const struct ibc_route *route = &packet->route;
	bool leaves = vswitch_is_hardware(record->outport);
	if (record->inport >= VSWITCH_APID_ALL || vswitch_is_hardware(record->inport) ||
	    (apids >> record->inport & 1) == 0 || packet->source_apid != record->inport)
		return RECORD_WRONG_SOURCE;
	/* The NIC through which it leaves; within a node there is none. */
	if (packet->guid != (leaves ? board->vswitch.nic_ports[record->outport].guid : 0))
		return RECORD_WRONG_GUID;
	if (record->by_route)
		return route_last_used(route) == record->inport ? RECORD_OK : RECORD_WRONG_ROUTE;
	/* Out of the hardware port that the application named, or to an application without any
	 * route: nothing of the route may look used. */
	if (leaves ? route_last_used(route) >= 0 : route->hops != 0)
		return RECORD_WRONG_ROUTE;
	return RECORD_OK;
}

/* The record comes from the process that runs the hardware ports, through which any packet may have
 * come, or which answers for the switch itself. */
static enum record_verdict judge_ports(const struct board *board, const struct record *record)
{
	if (record->inport != VSWITCH_APID_CONFIG &&
	    (!vswitch_is_hardware(record->inport) ||
	     board->vswitch.states[record->inport] == VSWITCH_PORT_ABSENT))
		return RECORD_WRONG_SOURCE;
	if (record->by_route ? route_last_used(&record->packet.route) != record->inport
	                     : !ibc_at_end(&record->packet.route))
		return RECORD_WRONG_ROUTE;
	return RECORD_OK;
}

/* May @self get it? */
static bool is_for(const struct board *board, unsigned self, const struct record *record)
{
	if (record->outport >= VSWITCH_PORTS)
		return false;
	if (self == board->ports_member)
		return vswitch_is_hardware(record->outport)
		               ? board->vswitch.states[record->outport] != VSWITCH_PORT_ABSENT
		               : record->outport == VSWITCH_APID_CONFIG &&
		                         ibc_at_end(&record->packet.route) &&
		                         record->packet.dest_apid == VSWITCH_APID_CONFIG;
	if (vswitch_is_hardware(record->outport) || board->owners[record->outport] != self)
		return false;
	return record->by_route || record->packet.dest_apid == record->outport ||
	       record->packet.dest_apid == VSWITCH_APID_ALL;
}

uint64_t board_apids(const struct board *board, unsigned member)
{
	uint64_t apids = 0;
	for (unsigned i = VSWITCH_HARDWARE_PORTS; i < VSWITCH_PORTS; i++)
		if (board->owners[i] == member)
			apids |= 1ull << i;
	return apids;
}

uint64_t board_members(const struct board *board)
{
	uint64_t members = 0;
	for (unsigned i = VSWITCH_HARDWARE_PORTS; i < VSWITCH_PORTS; i++)
		if (board->owners[i] < BOARD_MEMBERS)
			members |= 1ull << board->owners[i];
	if (board->ports_member < BOARD_MEMBERS)
		members |= 1ull << board->ports_member;
	return members;
}

enum record_verdict record_read(const struct board *board, unsigned self,
                                const struct record_writer *writer, const uint8_t *in, size_t bytes,
                                struct record *record)
{
	struct record found;
	if (bytes < RECORD_HEADER_BYTES || (in[2] & ~RECORD_BY_ROUTE) != 0 || in[3] != 0 ||
	    ibc_decode(&found.packet, in + RECORD_HEADER_BYTES, bytes - RECORD_HEADER_BYTES) !=
	            IBC_OK)
		return RECORD_DAMAGED;
	found.inport = in[0];
	found.outport = in[1];
	found.by_route = (in[2] & RECORD_BY_ROUTE) != 0;
	if (!is_for(board, self, &found))
		return RECORD_WRONG_TARGET;
	enum record_verdict verdict = writer->ports
	                                      ? judge_ports(board, &found)
	                                      : judge_application(board, writer->apids, &found);
	if (verdict == RECORD_OK)
		*record = found;
	return verdict;
}

unsigned board_guids(const struct vswitch *vswitch, uint64_t apids,
                     uint64_t guids[VSWITCH_HARDWARE_PORTS])
{
	unsigned count = 0;
	for (unsigned i = 0; i < VSWITCH_HARDWARE_PORTS; i++) {
		unsigned j = 0;
		if (vswitch->states[i] == VSWITCH_PORT_ABSENT ||
		    (apids & ~vswitch->nic_ports[i].denied) == 0)
			continue;
		while (j < count && guids[j] != vswitch->nic_ports[i].guid)
			j++;
		if (j == count)
			guids[count++] = vswitch->nic_ports[i].guid;
	}
	return count;
}
