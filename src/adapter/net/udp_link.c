/* The ports of an adapter on UDP and on Ethernet frames, one per address, and one more for cells:
 * the node agent opens their sockets and hands them out. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "adapter/net/cell_port.h"
#include "adapter/net/udp.h"
#include "base/log.h"
#include "transport/ib/ib.h"

static void udp_link_take(void *context, const struct path *came, bool congested,
                          const struct ib_packet *packet)
{
	struct hdl_adapter *adapter = context;
	ib_take(&adapter->engine, came, congested, packet);
}

/* --- the port --- */

static unsigned udp_port_receive(struct net_port *port)
{
	return udp_wire_receive(udp_wire_of(port));
}

static bool udp_port_blocked(const struct net_port *port)
{
	return udp_wire_blocked((const struct udp_wire *)(const void *)port);
}

static unsigned udp_port_hear(struct net_port *port)
{
	return udp_wire_receive_groups(udp_wire_of(port));
}

static int udp_port_join(struct net_port *port, const uint8_t gid[16])
{
	int sock = udp_wire_join(udp_wire_of(port), gid);
	return sock < 0 ? sock : port_keep_awake(port, sock);
}

static void udp_port_leave(struct net_port *port, const uint8_t gid[16])
{
	udp_wire_leave(udp_wire_of(port), gid);
}

static void udp_port_end(struct net_port *port)
{
	struct udp_wire *wire = udp_wire_of(port);
	udp_wire_end(wire);
	free(wire);
}

const struct net_port_ops udp_port_ops = {
        .name = "UDP",
        .receive = udp_port_receive,
        .blocked = udp_port_blocked,
        .hear = udp_port_hear,
        .join = udp_port_join,
        .leave = udp_port_leave,
        .end = udp_port_end,
};

/* --- the agent's sockets --- */

/* A port of RoCEv2 on @address. Takes over @sock. Returns 0 or -errno. */
static int udp_link_add_roce(struct hdl_adapter *adapter, const struct udp_address *address,
                             int sock, uint32_t mtu)
{
	struct udp_wire *wire = malloc(sizeof(*wire));
	if (wire == NULL)
		close(sock);
	int result = wire != NULL ? udp_wire_begin(wire, address, sock, mtu) : -ENOMEM;
	if (result == 0) {
		wire->slot_shift = adapter->objects.qp_bits;
		wire->slot = adapter->slot;
		wire->take = udp_link_take;
		wire->take_context = adapter;
		wire->bad = &adapter->engine.counters[ENGINE_BAD_PACKETS];
		result = ports_add(adapter, &wire->port, &wire->carrier);
		if (result != 0)
			udp_wire_end(wire);
	}
	if (result != 0)
		free(wire);
	return result;
}

/* The same for cells. */
static int udp_link_add_cells(struct hdl_adapter *adapter, const struct udp_address *address,
                              int sock, uint32_t mtu)
{
	struct cell_port *port = malloc(sizeof(*port));
	if (port == NULL)
		close(sock);
	int result = port != NULL ? cell_port_begin(port, address, sock, mtu) : -ENOMEM;
	if (result == 0) {
		port->slot_shift = adapter->objects.qp_bits;
		result = ports_add(adapter, &port->port, &port->carrier);
		if (result != 0)
			cell_port_stop(port);
	}
	if (result != 0)
		free(port);
	return result;
}

/* --- sockets that came with a welcome --- */

struct udp_link_sock {
	const struct udp_address *address;
	bool cells;
	int sock; /* -1: it has been taken over */
};

/* List the sockets with what they are for, as agent_wire_socks() says. Returns how many. */
static unsigned udp_link_list(const struct hdl_adapter *adapter,
                              const struct agent_welcome *welcome, const int *socks,
                              struct udp_link_sock list[AGENT_MAX_WIRE_SOCKS])
{
	unsigned count = 0;
	for (uint32_t i = 0; i < welcome->wire_count; i++) {
		const struct udp_address *address = &welcome->wires[i];
		if (!address->frames) {
			list[count] = (struct udp_link_sock){address, false, socks[count]};
			count++;
		}
		if (adapter->net.cells) {
			list[count] = (struct udp_link_sock){address, true, socks[count]};
			count++;
		}
	}
	return count;
}

static void udp_link_discard(const struct udp_link_sock *list, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if (list[i].sock >= 0)
			close(list[i].sock);
}

/* Add the port on a socket, which is taken over. Returns 0, or an error that has already been
 * logged. */
static int udp_link_add(struct hdl_adapter *adapter, struct udp_link_sock *its, uint32_t mtu)
{
	int result = its->cells ? udp_link_add_cells(adapter, its->address, its->sock, mtu)
	                        : udp_link_add_roce(adapter, its->address, its->sock, mtu);
	its->sock = -1;
	if (result == 0)
		return 0;
	char text[UDP_ADDRESS_TEXT];
	udp_address_print(its->address, text);
	log_error("cannot send packets from %s: %s; is \"ulimit -n\" high enough?", text,
	          strerror(-result));
	return -HDL_EIO;
}

/* Groups: members on this machine are reached without the wire, unless the same-host path is off.
 * The loopback interface reaches no other machine. Cells know no groups. */
static void udp_link_begin_groups(struct hdl_adapter *adapter)
{
	uint32_t at = 0;
	while (at < adapter->net.port_count && adapter->net.ports[at]->ops != &udp_port_ops)
		at++;
	if (at == adapter->net.port_count)
		return;
	struct udp_wire *wire = udp_wire_of(adapter->net.ports[at]);
	udp_wire_loop(wire, adapter->net.only);
	adapter->engine.groups_on_wire =
	        !adapter->net.only && !udp_address_is_loopback(&wire->address);
}

int udp_link_begin(struct hdl_adapter *adapter, const struct agent_msg *welcome, const int *socks)
{
	struct udp_link_sock list[AGENT_MAX_WIRE_SOCKS];
	unsigned count = udp_link_list(adapter, &welcome->u.welcome, socks, list);
	int result = 0;
	for (unsigned i = 0; i < count && result == 0; i++)
		result = udp_link_add(adapter, &list[i], welcome->u.welcome.wire_mtu);
	if (result != 0) {
		udp_link_discard(list, count);
		net_close(adapter);
		return result;
	}
	udp_link_begin_groups(adapter);
	return 0;
}

/* The address of the port with this number, if it is one of UDP or frames; else NULL. */
static const struct udp_address *udp_link_at(const struct hdl_adapter *adapter, uint32_t number)
{
	struct net_port *port = adapter->net.ports[number];
	return port->ops == &udp_port_ops    ? &udp_wire_of(port)->address
	       : port->ops == &cell_port_ops ? &cell_port_of(port)->address
	                                     : NULL;
}

/* Receive on @sock instead; -1: on none. */
static int udp_link_turn_to(struct net_port *port, int sock)
{
	int result = port_show(port, sock);
	if (port->ops == &cell_port_ops)
		cell_port_replace(cell_port_of(port), sock);
	else
		udp_wire_replace(udp_wire_of(port), sock);
	return result == 0 ? 0 : -HDL_EIO;
}

/* Other programs of the node may have asked the agent for more addresses in the meantime. */
int udp_link_replace(struct hdl_adapter *adapter, const struct agent_msg *welcome, const int *socks)
{
	struct udp_link_sock list[AGENT_MAX_WIRE_SOCKS];
	unsigned count = udp_link_list(adapter, &welcome->u.welcome, socks, list);
	int result = 0;
	for (uint32_t at = 0; at < adapter->net.port_count; at++) {
		const struct udp_address *address = udp_link_at(adapter, at);
		struct net_port *port = adapter->net.ports[at];
		unsigned i = 0;
		if (address == NULL)
			continue;
		while (i < count && (list[i].cells != port->cells ||
		                     !udp_address_equal(list[i].address, address)))
			i++;
		if (udp_link_turn_to(port, i < count ? list[i].sock : -1) != 0 || i == count)
			result = -HDL_EIO;
		if (i < count)
			list[i].sock = -1;
	}
	udp_link_discard(list, count);
	return result;
}

void udp_link_detach(struct hdl_adapter *adapter)
{
	for (uint32_t at = 0; at < adapter->net.port_count; at++)
		if (udp_link_at(adapter, at) != NULL)
			udp_link_turn_to(adapter->net.ports[at], -1);
}
