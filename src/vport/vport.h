/* The process that runs the hardware ports of a node's virtual switch, or a plain switch. It is a
 * member of the switch like any client (ibc/member.h): applications write packets for its ports
 * into their lanes to it, and it delivers what comes through its ports. */
#ifndef VPORT_VPORT_H
#define VPORT_VPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "fabric/vswitch_config.h"
#include "ibc/capture.h"
#include "ibc/member.h"
#include "vport/port.h"

struct vport {
	struct member member; /* first: see vport_owner */
	struct vswitch vswitch;
	struct vswitch_counters counters;
	const struct topology *topology;
	const struct topology_node *node;
	struct port ports[VSWITCH_HARDWARE_PORTS];
	int epoll, watched;      /* the agent's socket that is in it, */
	uint64_t watched_agents; /* and member.agents then */
	uint64_t board;          /* whose applications were copied, */
	uint32_t generation;     /* when it was this old */
	bool stop;
	uint64_t now_ns, tick_ns;
	struct pcapng *capture; /* NULL: nothing is captured */
	struct vswitch_configured configured;
	uint8_t copy[RECORD_MAX_BYTES];
};

/* Run the node with index @node of @topology. False: the reason has been logged. */
bool vport_begin(struct vport *vport, const struct topology *topology, uint32_t node);
/* Until vport->stop. */
void vport_run(struct vport *vport, volatile const int *stop);
void vport_end(struct vport *vport);

#endif
