/* Cluster addresses: 16 bits that name a host (APERTURE figures 10 and 11, note 2). By default that
 * of an adapter is the first LID of its node, which the agent of the machine gave, so it names a
 * node of this machine. Those of several machines come from a table, a file that all of them have:
 *
 *   # address  host
 *   17         10.0.0.2
 *   0x12       fd00::3
 *
 * An adapter one of whose network addresses is in it has that cluster address. */
#ifndef ADAPTER_APERTURE_CLUSTER_H
#define ADAPTER_APERTURE_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>

#define CLUSTER_LINE_BYTES 256u

struct cluster;

/* Read the table @path. Returns 0 and *out; -HDL_EINVAL or -HDL_ENOMEM, which has been logged. */
int cluster_read(const char *path, struct cluster **out);
void cluster_free(struct cluster *cluster);
/* The cluster address of @host; 0: it is not in the table. */
uint16_t cluster_of(const struct cluster *cluster, const uint8_t host[16]);
/* The host that has @address. False: none. */
bool cluster_find(const struct cluster *cluster, uint16_t address, uint8_t host[16]);

#endif
