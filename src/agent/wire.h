/* The wires of a node, one per address: UDP port 4791 there, shared by the processes of the node
 * (port/steer.h). The agent owns the sockets and hands one of each wire to each process that wants
 * to be on the wire. A process that speaks cells gets one of the UDP port for those as well. The
 * agent keeps the first of each port for itself, where packets for management (queue pair 1) and
 * packets for no process arrive. On an interface, the same goes for Ethernet frames (port/ether.h),
 * but only management, cells and CI packets travel there. */
#ifndef AGENT_WIRE_H
#define AGENT_WIRE_H

#include <stddef.h>

#include "agent/agent.h"
#include "port/steer.h"
#include "wire/ib_cm.h"
#include "wire/roce.h"

struct wire;

/* Hear what arrives at the agent's own socket of @steer: @receiver begins, and @source is told when
 * there is something. 0 or -errno; whoever closes ends the receiver in any case. */
int wire_listen(struct agent *agent, const struct steer *steer, struct udp_receiver *receiver,
                struct agent_source *source);

/* management.c: send the datagram @mad to the management of @to. One that cannot be sent is lost,
 * as on the network. */
void management_datagram(struct node_entry *node, const uint8_t from[16], const uint8_t to[16],
                         const uint8_t *mad);
/* stripe.c: is @message, which @gid sent to @own of @node, a question of its agent that gets an
 * answer, or the answer to one of ours? Then it has been handled. */
bool stripe_asked(struct node_entry *node, const uint8_t own[16], const uint8_t gid[16],
                  const struct ib_cm_message *message);
bool stripe_answered(struct node_entry *node, const uint8_t gid[16],
                     const struct ib_cm_message *message);

/* Give @node a wire on each of @count addresses, unless it has these. All of them or none: 0 or
 * -errno, and *why tells the user why not. */
int wires_open(struct agent *agent, struct node_entry *node, const struct udp_address *addresses,
               unsigned count, char *why, size_t why_bytes);
/* @client is about to be the first process on @node. Close the wires that the node still has for
 * its disconnect notices, unless they are those that @client wants. */
void wires_yield(struct node_entry *node, const struct client *client);
void wires_close(struct node_entry *node);
/* How many wires the node has. */
unsigned wires_count(const struct node_entry *node);
const struct udp_address *wire_address(const struct wire *wire);
/* How many bytes of payload fit into a packet of any of them: 256, 512, 1024, 2048 or 4096. */
unsigned wires_mtu(const struct node_entry *node);

/* The sockets for the process with @slot, which the wires still own, as WELCOME has them
 * (agent_wire_socks()); how many, or -errno. With @cells, there are some for cells, too: the first
 * process that asks for those opens the UDP port for them. */
int wires_enter(struct agent *agent, struct node_entry *node, uint32_t slot, bool cells,
                int socks[AGENT_MAX_WIRE_SOCKS]);
void wires_leave(struct node_entry *node, uint32_t slot);

/* A packet for queue pair 1 arrived along @came, whose sgid is the sender's. @packet points into a
 * buffer that is reused afterwards. (management.c) */
void wire_management(struct node_entry *node, const struct roce_path *came,
                     const struct ib_packet *packet);
/* Send @packet to path->dgid from path->sgid, or, where that is no address of @node's wires, from
 * the first that is of the family. Of the path, the traffic class and the hop limit count as well
 * (0: the usual one). 0 or -errno (-EAGAIN: no room now; -EMSGSIZE). */
int wire_send(struct node_entry *node, const struct roce_path *path,
              const struct ib_packet *packet);

#endif
