/* The networks that an adapter is on: its ports, and which peers are reached through them. */
#ifndef ADAPTER_NET_H
#define ADAPTER_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <heddle/types.h>

#include "adapter/net/port.h"
#include "port/agentmsg.h"
#include "port/udp.h"
#include "transport/path.h"

struct hdl_ah_attr;

struct net {
	/* Under the drive lock. */
	struct net_port *ports[ENGINE_MAX_PORTS]; /* by number */
	uint32_t port_count;
	/* The port of each of our addresses (engine.gid_ports, cell_ports): for InfiniBand packets,
	 * and for cells. */
	uint8_t gid_ports[AGENT_MAX_GIDS], cell_ports[AGENT_MAX_GIDS];
	bool only;    /* the same-host path is off */
	bool cells;   /* there are ports for cells */
	bool stripes; /* connections are to use two paths (HEDDLE_STRIPE); never changes */
	/* A connection has an event for the program's handler (hdl_conn_notify()). Any thread. */
	_Atomic bool handler_due;

	/* What the user wants. Written before there is a thread, or by the thread that talks to
	 * an agent. */
	enum agent_wire wanted;
	uint32_t address_count; /* addresses requested, later the addresses in use */
	struct udp_address addresses[UDP_MAX_ADDRESSES];
	/* For Ethernet frames, as hdl_open() was told; empty: none. A name that is too long stays
	 * too long. */
	char interface[IF_NAMESIZE + 1];
	uint32_t conn_flags; /* enum hdl_conn_flag for every connection (HEDDLE_MPA) */
};

/* --- all ports; with the drive lock --- */
/* Is there a port that carries packets? */
static inline bool net_has_packets(const struct net *net)
{
	for (uint32_t i = 0; i < net->port_count; i++)
		if (net->ports[i]->mtu > 0)
			return true;
	return false;
}
/* Is there a port for cells, or for InfiniBand packets? A network of the environment is for
 * both. */
static inline bool net_has(const struct net *net, bool cells)
{
	for (uint32_t i = 0; i < net->port_count; i++)
		if (net->ports[i]->mtu > 0 && net->ports[i]->cells == cells)
			return true;
	return !net_has_packets(net);
}
/* Receive where something may have arrived. Called by every drive. */
static inline unsigned net_look(struct net *net)
{
	unsigned count = 0;
	for (uint32_t i = 0; i < net->port_count; i++)
		count += port_look(net->ports[i]);
	return count;
}
/* Receive at most one batch per port. Returns the number of packets. */
static inline unsigned net_receive(struct net *net)
{
	unsigned count = 0;
	for (uint32_t i = 0; i < net->port_count; i++)
		count += port_receive(net->ports[i]);
	return count;
}
/* The number of packets received so far. */
static inline uint64_t net_received(const struct net *net)
{
	uint64_t count = 0;
	for (uint32_t i = 0; i < net->port_count; i++)
		count += net->ports[i]->received;
	return count;
}
/* Are there packets that the kernel had no room for? They are sent before the next batch is
 * received. */
static inline bool net_blocked(const struct net *net)
{
	for (uint32_t i = 0; i < net->port_count; i++)
		if (port_blocked(net->ports[i]))
			return true;
	return false;
}
/* Let the ports handle what is due. Returns how much was done. */
static inline unsigned net_tick(struct net *net, uint64_t now_ns)
{
	unsigned count = 0;
	for (uint32_t i = 0; i < net->port_count; i++)
		count += port_tick(net->ports[i], now_ns);
	return count;
}
/* When net_tick() must be called next; UINT64_MAX: not before something else happens. */
static inline uint64_t net_next_tick(const struct net *net)
{
	uint64_t next = UINT64_MAX;
	for (uint32_t i = 0; i < net->port_count; i++)
		if (net->ports[i]->due_ns < next)
			next = net->ports[i]->due_ns;
	return next;
}

/* --- net.c --- */
/* Read HEDDLE_ADDR, HEDDLE_ETHER and HEDDLE_LOCAL. Returns 0, or an error that has already been
 * logged. */
int net_choose(struct hdl_adapter *adapter);
/* Put the requested wires into a HELLO message. */
void net_ask(const struct hdl_adapter *adapter, struct agent_msg *hello);
/* Take over @socks (agent_wire_socks()), which came with the welcome. Returns 0 or an error. Called
 * without a lock. */
int net_attach(struct hdl_adapter *adapter, const struct agent_msg *welcome, const int *socks);
/* Close the sockets before we register with a new agent: it needs to bind the port. Called without
 * a lock. */
void net_detach(struct hdl_adapter *adapter);
/* Join or leave the group @gid on the network as well. Called without a lock. */
void net_join(struct hdl_adapter *adapter, const struct hdl_gid *gid);
void net_leave(struct hdl_adapter *adapter, const struct hdl_gid *gid);
/* Does a port reach the members of groups? */
bool net_has_groups(const struct hdl_adapter *adapter);
/* The maximum payload of a packet. */
uint16_t net_mtu(const struct hdl_adapter *adapter);
/* A bit mask of our addresses that belong to ports. */
uint32_t net_gids(const struct hdl_adapter *adapter);
/* enum hdl_wire. */
uint16_t net_reach(const struct hdl_adapter *adapter);
/* The port for packets to @to from @from, if @from is the address of a port; else the first port
 * with the address family of @to, or the first port. Frames reach only MAC addresses. NULL: there
 * is none that carries packets. */
const struct net_port *net_port_for(const struct net *net, const uint8_t *from,
                                    const uint8_t to[16]);
/* Frames on @address cannot be sent or received: @error. If the interface has gone, logs it once;
 * *told. Returns whether it has gone. */
bool net_frames_failed(const struct udp_address *address, int error, bool *told);
/* Close all ports. */
void net_close(struct hdl_adapter *adapter);

/* --- udp_link.c --- */
/* Open the ports on the addresses of @adapter, and take over @socks. Returns 0, or an error
 * that has already been logged. With the drive lock. */
int udp_link_begin(struct hdl_adapter *adapter, const struct agent_msg *welcome, const int *socks);
/* A new agent handed out @socks: replace the sockets of the UDP ports. With the drive lock. */
int udp_link_replace(struct hdl_adapter *adapter, const struct agent_msg *welcome,
                     const int *socks);
/* Close the sockets of the UDP ports. With the drive lock. */
void udp_link_detach(struct hdl_adapter *adapter);

/* --- stripe.c --- */
/* @qp is about to be connected (HDL_QPS_RTR) as @attr says. True: its other end would use two
 * paths, and *out is @attr with the second one and HDL_QP_STRIPE. Called without a lock; waits for
 * the agents. */
bool net_stripe(struct hdl_qp *qp, const struct hdl_qp_attr *attr, struct hdl_qp_attr *out);

/* --- connect.c --- */
/* Are all peers reached over the wire, including those on this machine? */
bool wire_only(const struct hdl_adapter *adapter);
/* Is @gid reached over the wire, as far as we know? With the drive lock. */
bool wire_reaches(const struct hdl_adapter *adapter, const struct hdl_gid *gid);
/* Is @gid a loopback address that another user holds? If so, logs an error. */
bool wire_is_foreign(const struct hdl_gid *gid);
/* The address for packets to @gid: our own if @gid is any address of our node; an address in the
 * loopback network if @gid is a LID of another node of this agent. With the drive lock. */
struct hdl_gid wire_address(const struct hdl_adapter *adapter, const struct hdl_gid *gid);
/* The index of our source address for packets to @to when the program chose @index. */
uint8_t wire_source(const struct hdl_adapter *adapter, uint8_t index, const struct hdl_gid *to);
struct path wire_path(const struct hdl_adapter *adapter, const struct hdl_ah_attr *ah, uint32_t qpn,
                      uint32_t dest_qpn);
/* Connect @qp over the wire, or change its path. With the drive lock. Returns 0 or an error. */
int wire_connect(struct hdl_qp *qp, const struct hdl_qp_attr *attr, uint32_t mask);
/* Set the alternate path and the migration state, as selected by @mask. With the drive lock. */
void wire_alternate(struct hdl_qp *qp, const struct hdl_qp_attr *attr, uint32_t mask);
void wire_disconnect(struct hdl_qp *qp);
/* Does a queue pair that wants @packets (enum hdl_packets) send cells over networks? */
static inline bool wire_speaks_cells(const struct net *net, uint32_t packets)
{
	return packets == HDL_PACKETS_CELLS || (packets == HDL_PACKETS_DEFAULT && net->cells);
}
/* Cells: the MAC address of the port that is reached at @gid; what a queue pair of datagrams needs,
 * 0 or an error; a datagram of cells came, with the drive lock. */
void wire_mac(const struct hdl_adapter *adapter, const struct hdl_gid *gid, uint8_t mac[6]);
int wire_make_cells(struct hdl_qp *qp);
void wire_take_cells(struct hdl_adapter *adapter, const struct path *came, const uint8_t *in,
                     size_t bytes);
/* A packet arrived: a UDP payload, with its ICRC. Takes the drive lock. */
void adapter_take(struct hdl_adapter *adapter, const struct path *came, bool congested,
                  const uint8_t *payload, size_t bytes);

#endif
