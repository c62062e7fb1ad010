/* Look at the virtual switches of this user from outside: which processes take part in which node,
 * and the board of each node. */
#ifndef IBC_OBSERVE_H
#define IBC_OBSERVE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "fabric/board.h"
#include "port/agentmsg.h"

struct observed_member {
	char node[AGENT_NAME_MAX];
	char program[AGENT_NAME_MAX];
	pid_t pid;
	unsigned number;
	bool ports; /* it runs the hardware ports */
	uint64_t apids;
	const struct board *board; /* valid during the call */
};

/* Call @visit for every member of every node, those of one node after each other. Starts no agent:
 * without one there are no members. Returns 0 or -errno. */
int ibc_observe(void (*visit)(const struct observed_member *member, void *context), void *context);

#endif
