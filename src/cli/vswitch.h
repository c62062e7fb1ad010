/* The verbs of heddle vswitch. */
#ifndef CLI_VSWITCH_H
#define CLI_VSWITCH_H

#include <stdbool.h>

#include "cli/network.h"

#define VSWITCH_MAX_OPERANDS 64

struct vswitch_verb;

struct vswitch_options {
	const struct vswitch_verb *verb;
	bool json;
	const char *capture; /* file, or NULL */
	int given, only_count;
	const char *operands[VSWITCH_MAX_OPERANDS], *only[VSWITCH_MAX_OPERANDS];
};

int vswitch_show(struct vswitch_options *options, struct network *network);

/* Become a client of the best node to ask the switch with index @node (@from, if that is given);
 * *route leads there. False: the reason has been printed. */
bool vswitch_reach(struct network *network, const char *from, int node, struct IBC_Route *route);

#endif
