/* The forwarding process of a virtual switch: see vswitch.h. */
#include "fabric/vswitch.h"

#include <assert.h>
#include <string.h>

#include "wire/be.h"

void vswitch_init(struct vswitch *vswitch, uint64_t node, bool plain)
{
	memset(vswitch, 0, sizeof(*vswitch));
	vswitch->node = node;
	vswitch->plain = plain;
}

int vswitch_port_of(const struct vswitch *vswitch, uint64_t guid, uint8_t number)
{
	for (unsigned i = 0; i < VSWITCH_HARDWARE_PORTS; i++)
		if (vswitch->states[i] != VSWITCH_PORT_ABSENT &&
		    vswitch->nic_ports[i].guid == guid && vswitch->nic_ports[i].number == number)
			return (int)i;
	return -1;
}

bool vswitch_set_nic_port(struct vswitch *vswitch, uint8_t port, uint64_t guid, uint8_t number)
{
	if (!vswitch_is_hardware(port))
		return false;
	int there = vswitch_port_of(vswitch, guid, number);
	if (there >= 0 && there != port)
		return false;
	vswitch->nic_ports[port] = (struct vswitch_nic_port){.guid = guid, .number = number};
	if (vswitch->states[port] == VSWITCH_PORT_ABSENT)
		vswitch->states[port] = VSWITCH_PORT_DOWN;
	return true;
}

int vswitch_inport(const struct vswitch *vswitch, const struct vswitch_arrival *arrival)
{
	if (arrival->hardware)
		return vswitch_port_of(vswitch, arrival->nic_port.guid, arrival->nic_port.number);
	if (vswitch->plain || arrival->apid >= IBC_END_OF_ROUTE ||
	    vswitch_is_hardware(arrival->apid) || vswitch->states[arrival->apid] != VSWITCH_PORT_UP)
		return -1;
	return arrival->apid;
}

static struct vswitch_decision rejected(enum ibc_reason reason)
{
	return (struct vswitch_decision){.action = VSWITCH_REJECT, .reason = reason};
}

/* Every application port in use, by bits. */
static uint64_t all_applications(const struct vswitch *vswitch)
{
	uint64_t bits = 0;
	for (unsigned i = VSWITCH_HARDWARE_PORTS; i < VSWITCH_PORTS; i++)
		if (vswitch->states[i] == VSWITCH_PORT_UP)
			bits |= 1ull << i;
	return bits;
}

struct vswitch_decision vswitch_deliver(const struct vswitch *vswitch, uint64_t dest_node,
                                        uint8_t dest_apid)
{
	if (vswitch->node != 0 && dest_node != 0 && dest_node != vswitch->node)
		return rejected(IBC_REASON_NO_APPLICATION);
	if (dest_apid == VSWITCH_APID_CONFIG)
		return (struct vswitch_decision){.action = VSWITCH_CONSUME};
	uint64_t there = 0;
	if (vswitch->plain)
		there = 0;
	else if (dest_apid == VSWITCH_APID_ALL)
		there = all_applications(vswitch);
	else if (!vswitch_is_hardware(dest_apid) && vswitch->states[dest_apid] == VSWITCH_PORT_UP)
		there = 1ull << dest_apid;
	if (there == 0)
		return rejected(IBC_REASON_NO_APPLICATION);
	return (struct vswitch_decision){.action = VSWITCH_DELIVER, .applications = there};
}

struct vswitch_decision vswitch_outport(const struct vswitch *vswitch, uint8_t port, uint8_t inport)
{
	assert(port < IBC_END_OF_ROUTE);
	if (port == inport)
		return rejected(IBC_REASON_LOOP);
	if (vswitch->states[port] == VSWITCH_PORT_ABSENT ||
	    (vswitch->plain && !vswitch_is_hardware(port)))
		return rejected(vswitch_is_hardware(port) ? IBC_REASON_NO_PORT
		                                          : IBC_REASON_NO_APPLICATION);
	if (vswitch->states[port] == VSWITCH_PORT_DOWN)
		return rejected(IBC_REASON_PORT_DOWN);
	if (vswitch_is_hardware(port))
		return (struct vswitch_decision){.action = VSWITCH_TRANSMIT, .port = port};
	return (struct vswitch_decision){.action = VSWITCH_DELIVER, .applications = 1ull << port};
}

/* @decision was made about a packet that came through @inport: an application that has no access to
 * the NIC's port on its way gets nothing from there, and sends nothing there. */
static void restrict_access(const struct vswitch *vswitch, uint8_t inport,
                            struct vswitch_decision *decision)
{
	bool hardware = vswitch_is_hardware(inport);
	if (decision->action == VSWITCH_DELIVER && hardware)
		decision->applications &= ~vswitch->nic_ports[inport].denied;
	if ((decision->action == VSWITCH_DELIVER && decision->applications == 0) ||
	    (decision->action == VSWITCH_TRANSMIT && !hardware &&
	     !vswitch_may_use(vswitch, inport, decision->port)))
		*decision = rejected(IBC_REASON_NOT_ALLOWED);
}

void vswitch_replace(struct ibc_route *route, uint8_t inport)
{
	assert(route->pointer >= 1 && route->pointer <= route->hops);
	route->ports[route->pointer - 1] = inport;
}

static uint8_t next_pointer(bool reverse, uint8_t pointer)
{
	return (uint8_t)(reverse ? pointer - 1u : pointer + 1u);
}

void vswitch_advance(struct ibc_route *route)
{
	route->pointer = next_pointer(route->reverse, route->pointer);
}

struct vswitch_result vswitch_forward(const struct vswitch *vswitch,
                                      const struct ibc_packet *packet, uint8_t inport)
{
	assert(inport < IBC_END_OF_ROUTE); /* a route cannot lead back to 63, its end mark */
	const struct ibc_route *route = &packet->route;
	bool end = ibc_at_end(route);
	assert(end || (route->pointer >= 1 && route->pointer <= route->hops));
	struct vswitch_decision decision =
	        end ? vswitch_deliver(vswitch, packet->dest_node, packet->dest_apid)
	            : vswitch_outport(vswitch, route->ports[route->pointer - 1], inport);
	restrict_access(vswitch, inport, &decision);
	struct vswitch_result result = {.action = decision.action,
	                                .port = decision.port,
	                                .applications = decision.applications,
	                                .reason = decision.reason,
	                                .route = *route};
	if (!end && decision.action != VSWITCH_REJECT) {
		vswitch_replace(&result.route, inport);
		vswitch_advance(&result.route);
	}
	return result;
}

enum ibc_verdict vswitch_pass(const struct vswitch *vswitch, uint8_t *bytes, size_t length,
                              uint8_t inport, struct vswitch_decision *decision)
{
	assert(inport < IBC_END_OF_ROUTE);
	enum ibc_verdict verdict = ibc_judge_header(bytes, length);
	if (verdict == IBC_WRONG_POINTER || verdict == IBC_TOO_MANY_HOPS) {
		*decision = rejected(verdict == IBC_WRONG_POINTER ? IBC_REASON_POINTER
		                                                  : IBC_REASON_TOO_LONG);
		return IBC_OK;
	}
	if (verdict != IBC_OK)
		return verdict;
	bool reverse = ibc_is_reverse(bytes);
	uint8_t pointer = ibc_pointer(bytes);
	if (pointer == (reverse ? 0 : bytes[2] + 1)) {
		*decision = vswitch_deliver(vswitch, be64_load(bytes + 8), bytes[5]);
		restrict_access(vswitch, inport, decision);
		return IBC_OK;
	}
	*decision = vswitch_outport(vswitch, bytes[IBC_HEADER_BYTES + pointer - 1u], inport);
	restrict_access(vswitch, inport, decision);
	if (decision->action != VSWITCH_REJECT)
		ibc_replace_port(bytes, inport, next_pointer(reverse, pointer));
	return IBC_OK;
}

bool vswitch_rejected(const uint8_t *bytes, size_t length, enum ibc_reason reason,
                      struct ibc_packet *packet)
{
	if (reason == IBC_REASON_POINTER || reason == IBC_REASON_TOO_LONG)
		return ibc_salvage(packet, bytes);
	return ibc_decode(packet, bytes, length) == IBC_OK;
}

bool vswitch_nack(const struct ibc_packet *packet, enum ibc_reason reason, struct ibc_packet *nack)
{
	assert(reason > IBC_REASON_NONE && reason < IBC_REASON_COUNT);
	if (packet->type == IBC_TYPE_NACK)
		return false;
	*nack = (struct ibc_packet){.type = IBC_TYPE_NACK,
	                            .reason = reason,
	                            .source_apid = packet->dest_apid,
	                            .dest_apid = packet->source_apid,
	                            .guid = packet->guid,
	                            .transaction = packet->transaction,
	                            .route = ibc_turn_around(&packet->route)};
	return true;
}
