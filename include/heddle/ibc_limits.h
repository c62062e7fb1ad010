/* The limits of IBC and of virtual switches, in one place. A test reaches each of them. */
#ifndef HEDDLE_IBC_LIMITS_H
#define HEDDLE_IBC_LIMITS_H

/* Ports of a virtual switch: 0 to 15 are hardware ports, 32 to 62 general APIDs, 16 to 31 and 63
 * special ones. The switch itself has APID 31, and packets for APID 63 go to all applications. */
#define IBC_LIMIT_PORTS          64
#define IBC_LIMIT_HARDWARE_PORTS 16
#define IBC_LIMIT_GENERAL_APIDS  31
#define IBC_LIMIT_SPECIAL_APIDS  16 /* without 31 */
#define IBC_LIMIT_NICS           16 /* per node: each has at least one hardware port */

#define IBC_LIMIT_HOPS    62   /* ports in a source route, without the end mark */
#define IBC_LIMIT_PAYLOAD 4096 /* bytes in a packet */

#define IBC_LIMIT_HANDLES 1024 /* per client */
/* Packets that a client takes from each other client, and from the network, while it has no free
 * handle for them. More stay in the lane of their sender; when that one ends, they are taken as
 * well. Those that were taken are rejected after some time. */
#define IBC_LIMIT_KEPT    64
#define IBC_LIMIT_KEPT_MS 2000
/* How long IBC_Send() waits for a receiver on the same node whose lane is full. It waits no more
 * for one that has let this time pass, until that has read all that was sent to it. */
#define IBC_LIMIT_SEND_MS 500

/* Clients per node: each has at least one APID. */
#define IBC_LIMIT_CLIENTS (IBC_LIMIT_GENERAL_APIDS + IBC_LIMIT_SPECIAL_APIDS)

#endif
