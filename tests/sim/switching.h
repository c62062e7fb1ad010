/* A world of virtual switches: a random network of nodes and plain switches, joined by the
 * simulator's links, with applications that send requests along routes of every kind. */
#ifndef SIM_SWITCHING_H
#define SIM_SWITCHING_H

#include "base/prng.h"
#include "cable/switches.h"
#include "fabric/discovery.h"
#include "scenario.h"

#define SWITCHING_MAX_CLIENTS   64u
#define SWITCHING_MAX_REQUESTS  256u
#define SWITCHING_PAYLOAD_BYTES 200u
#define SWITCHING_MANAGER_APID  20u /* of the application that discovers, on the first node */

enum switching_end {
	SWITCHING_OPEN,
	SWITCHING_RESPONSE,
	SWITCHING_NACK,
	SWITCHING_TIMEOUT,
	SWITCHING_ENDS
};

struct switching_client {
	uint32_t node;
	uint8_t apid;
	bool alive;
};

/* Where a route leads, by the topology alone. */
struct switching_walk {
	int apid;       /* the route names this application, which gets it; -1: it does not */
	bool ends;      /* it ends at .node; otherwise some port on the way leads nowhere */
	uint32_t node;  /* where it ends or stops */
	uint8_t inport; /* through which the packet comes to that node */
	uint8_t used;   /* ports of the route that were used */
	uint8_t arrivals[IBC_MAX_HOPS]; /* through which port it comes to the switch that uses it */
};

struct switching_request {
	uint32_t client; /* the sender */
	enum ibc_type type;
	int out_port; /* of the sender's node, by which it leaves; -1: the route begins there */
	uint8_t source_apid; /* now and then not the sender's */
	uint8_t dest_apid;
	struct ibc_route route; /* as it was sent */
	struct switching_walk walk;
	enum switching_end end;
	uint32_t deliveries;
	uint16_t payload_bytes;
	uint8_t payload[SWITCHING_PAYLOAD_BYTES];
};

struct switching_world {
	struct scenario_run *run;
	struct sim *sim;
	struct prng prng;
	bool faultless;
	struct topology topology, map;
	struct switches switches;
	struct discovery discovery;
	uint32_t client_count, request_count, host_count;
	struct switching_client clients[SWITCHING_MAX_CLIENTS];
	struct switching_request requests[SWITCHING_MAX_REQUESTS];
	uint64_t rejected, nacks; /* packets rejected that are no NACK; NACKs made */
};

/* Follow @route from @node, which the packet entered through @inport or, with @out_port >= 0, left
 * by that port. */
struct switching_walk switching_follow(const struct topology *topology, uint32_t node,
                                       uint8_t inport, int out_port, const struct ibc_route *route);

/* @packet was delivered at @node, which it entered through @inport, to @apid: was that right? */
void switching_check_delivery(struct switching_world *world, uint32_t node, uint8_t inport,
                              uint8_t apid, const struct ibc_packet *packet);
/* @request is a request that has ended. */
void switching_check_end(struct switching_world *world, const struct switching_request *request);
/* The map that discovery made against the topology. */
void switching_check_map(struct switching_world *world);

#endif
