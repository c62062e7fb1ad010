/* The forwarding process of a virtual switch (founding document "virtual switch", figure 3). Pure:
 * a packet and a port of arrival go in, one action comes out. The same function serves a process
 * that sends to another one of its node, the process that owns hardware ports, plain switches
 * without applications, and the simulator.
 *
 *   block   function                    what it decides
 *   202     vswitch_forward()           a packet has come
 *   204-208 vswitch_inport()            through which port of the virtual switch
 *   210     ibc_judge_header()          its route and pointer
 *   212     ibc_at_end()                is the route at its end?
 *   214-220 vswitch_deliver()           which application gets it, or NACK
 *   222-224 vswitch_outport()           through which port it leaves
 *           vswitch_may_use()           a NIC may be for some applications only (paragraph 36)
 *   226     vswitch_replace()           the port that is used becomes the port of arrival
 *   228-232 vswitch_advance()           the pointer moves
 *   234-236 the action                  the caller transmits
 *
 * 64 ports: 0 to 15 are hardware ports, 32 to 62 general APIDs, 16 to 31 and 63 special ones. */
#ifndef FABRIC_VSWITCH_H
#define FABRIC_VSWITCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/ibc.h"

#define VSWITCH_PORTS          64u
#define VSWITCH_HARDWARE_PORTS 16u
#define VSWITCH_GENERAL_FIRST  32u
#define VSWITCH_GENERAL_LAST   62u
/* Special APIDs: packets for the switch itself, and for every application of the node. */
#define VSWITCH_APID_CONFIG 31u
#define VSWITCH_APID_ALL    63u
/* All APIDs, by bits. */
#define VSWITCH_APIDS (~((UINT64_C(1) << VSWITCH_HARDWARE_PORTS) - 1))

enum vswitch_port_state {
	VSWITCH_PORT_ABSENT,
	VSWITCH_PORT_DOWN,
	VSWITCH_PORT_UP,
};

/* A hardware port: which port of which NIC it is. */
struct vswitch_nic_port {
	uint64_t guid;
	uint8_t number;
	uint64_t denied; /* the APIDs that have no access to it, by bits */
};

enum vswitch_action {
	VSWITCH_TRANSMIT, /* out of the hardware port .port */
	VSWITCH_DELIVER,  /* to each application port in .applications, by bits */
	VSWITCH_CONSUME,  /* by the switch itself: configuration */
	VSWITCH_REJECT,   /* with .reason; the caller answers with vswitch_nack(), except a NACK */
	VSWITCH_ACTION_COUNT
};

/* What becomes of a packet. */
struct vswitch_decision {
	enum vswitch_action action;
	enum ibc_reason reason;
	uint8_t port;
	uint64_t applications;
};

struct vswitch_result {
	enum vswitch_action action;
	uint8_t port;
	uint64_t applications;
	enum ibc_reason reason;
	struct ibc_route route; /* the packet's route from now on; of VSWITCH_REJECT unchanged */
};

struct vswitch {
	bool plain;    /* a switch without applications: its ports are hardware ports only */
	uint64_t node; /* identifier; packets for another node that end here are rejected. 0: any */
	struct vswitch_nic_port nic_ports[VSWITCH_HARDWARE_PORTS];
	uint8_t states[VSWITCH_PORTS]; /* enum vswitch_port_state; of applications: UP or ABSENT */
};

void vswitch_init(struct vswitch *vswitch, uint64_t node, bool plain);
/* The hardware port @port is port @number of the NIC @guid. False: out of range, or that NIC's port
 * has another place already. */
bool vswitch_set_nic_port(struct vswitch *vswitch, uint8_t port, uint64_t guid, uint8_t number);
/* May the application with @apid use the hardware port @port (paragraph 36)? It can neither send
 * through a port to which it has no access, nor get what came through it. */
static inline bool vswitch_may_use(const struct vswitch *vswitch, unsigned apid, unsigned port)
{
	return (vswitch->nic_ports[port].denied >> apid & 1) == 0;
}
/* The port of the virtual switch that stands for port @number of the NIC @guid, or -1. */
int vswitch_port_of(const struct vswitch *vswitch, uint64_t guid, uint8_t number);

static inline bool vswitch_is_hardware(unsigned port)
{
	return port < VSWITCH_HARDWARE_PORTS;
}
static inline bool vswitch_is_general(unsigned port)
{
	return port >= VSWITCH_GENERAL_FIRST && port <= VSWITCH_GENERAL_LAST;
}
/* APIDs that only a client with the administrator's right is given. */
static inline bool vswitch_is_special(unsigned port)
{
	return port < VSWITCH_PORTS && !vswitch_is_hardware(port) && !vswitch_is_general(port);
}

/* Where a packet came from: a port of a NIC, or the application with an APID. */
struct vswitch_arrival {
	bool hardware;
	struct vswitch_nic_port nic_port;
	uint8_t apid;
};

/* Blocks 204 to 208. The port of arrival, or -1: the switch has no such port. */
int vswitch_inport(const struct vswitch *vswitch, const struct vswitch_arrival *arrival);
/* Blocks 214 to 220: what becomes of a packet at the end of its route. */
struct vswitch_decision vswitch_deliver(const struct vswitch *vswitch, uint64_t dest_node,
                                        uint8_t dest_apid);
/* Blocks 222 and 224: where a packet goes that came through @inport and whose pointer names @port.
 */
struct vswitch_decision vswitch_outport(const struct vswitch *vswitch, uint8_t port,
                                        uint8_t inport);
/* Block 226. */
void vswitch_replace(struct ibc_route *route, uint8_t inport);
/* Blocks 228 to 232. */
void vswitch_advance(struct ibc_route *route);
/* Blocks 202 to 236: what becomes of @packet, which came through @inport. */
struct vswitch_result vswitch_forward(const struct vswitch *vswitch,
                                      const struct ibc_packet *packet, uint8_t inport);
/* The same for the packet of @length bytes at @bytes, which is forwarded where it is: only the port
 * and the pointer change, so this is the way for a switch with much transit. The verdict is that of
 * ibc_judge_header(), except that a pointer out of range and a route that is too long are reasons
 * to reject. *decision only changes on IBC_OK. */
enum ibc_verdict vswitch_pass(const struct vswitch *vswitch, uint8_t *bytes, size_t length,
                              uint8_t inport, struct vswitch_decision *decision);
/* What vswitch_nack() needs to know of the packet of @length bytes at @bytes, which vswitch_pass()
 * rejected. False: it is damaged beyond its header, and nobody answers. */
bool vswitch_rejected(const uint8_t *bytes, size_t length, enum ibc_reason reason,
                      struct ibc_packet *packet);
/* The answer to @packet, rejected for @reason: it goes out of the port through which that one came.
 * False: @packet is a NACK, which nobody answers. *nack has no payload. */
bool vswitch_nack(const struct ibc_packet *packet, enum ibc_reason reason, struct ibc_packet *nack);

#endif
