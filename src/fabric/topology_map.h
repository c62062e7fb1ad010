/* What can be told of a topology: ways through it, and pictures of it. */
#ifndef FABRIC_TOPOLOGY_MAP_H
#define FABRIC_TOPOLOGY_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fabric/discovery.h"
#include "fabric/topology.h"

/* A way through a topology: out of @out_port of the first node, then by @ports, one per switch. */
struct topology_path {
	uint8_t out_port;
	uint8_t hops;
	uint8_t ports[IBC_MAX_HOPS];
};

/* A shortest way from the node with index @from to the one with index @to, which is another one.
 * False: there is none, or none of at most IBC_MAX_HOPS hops. */
bool topology_route(const struct topology *topology, uint32_t from, uint32_t to,
                    struct topology_path *path);
/* Write @topology to @out as JSON, which heddle-ibc(7) describes, or as a drawing in SVG.
 * @discovery, or NULL, tells the states of ports. Return the length without the final 0; 0: it is
 * longer than @capacity - 1. */
size_t topology_json(const struct topology *topology, const struct discovery *discovery, char *out,
                     size_t capacity);
size_t topology_svg(const struct topology *topology, char *out, size_t capacity);

#endif
