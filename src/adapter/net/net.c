/* The networks of an adapter: which ones the user wants, the ports that the agent's sockets become,
 * and what is known of all of them. */
#include "adapter/net/net.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/adapter.h"
#include "adapter/net/sctp_port.h"
#include "base/log.h"
#include "base/mac.h"
#include "port/ether.h"

/* --- what the user wants --- */

/* Ethernet frames on the interface @name. Returns 0, or an error that has already been logged. */
static int net_choose_frames(struct net *net, const char *name)
{
	if (net->address_count == UDP_MAX_ADDRESSES) {
		log_error("HEDDLE_ETHER: a node is on %u networks at most; give one address less "
		          "in HEDDLE_ADDR",
		          UDP_MAX_ADDRESSES);
		return -HDL_EINVAL;
	}
	int result = ether_find(name, &net->addresses[net->address_count]);
	if (result == 0) {
		net->address_count++;
		net->wanted = AGENT_WIRE_ADDRESS;
		return 0;
	}
	if (result == -ENOTSUP)
		log_error("HEDDLE_ETHER: '%s' is not an Ethernet interface", name);
	else
		log_error("HEDDLE_ETHER: there is no interface '%s' (\"ip link\" lists them)",
		          name);
	return -HDL_EINVAL;
}

int net_choose(struct hdl_adapter *adapter)
{
	struct net *net = &adapter->net;
	const char *address = secure_getenv("HEDDLE_ADDR");
	net->wanted = AGENT_WIRE_NONE;
	if (address != NULL && address[0] != '\0') {
		net->address_count = udp_addresses_parse(address, net->addresses);
		if (net->address_count == 0) {
			log_error(
			        "HEDDLE_ADDR (--addr): '%s' is no list of host addresses; give an "
			        "address of this machine, such as 192.0.2.1, 2001:db8::1 or "
			        "fe80::1%%eth0, or several, each once and %u at most, separated by "
			        "commas (\"ip address\" lists them)",
			        address, UDP_MAX_ADDRESSES);
			return -HDL_EINVAL;
		}
		net->wanted = AGENT_WIRE_ADDRESS;
	}
	const char *interface = net->interface;
	if (interface[0] == '\0' && (interface = secure_getenv("HEDDLE_ETHER")) == NULL)
		interface = "";
	int result = interface[0] != '\0' ? net_choose_frames(net, interface) : 0;
	if (net->wanted == AGENT_WIRE_NONE && settings_local_off())
		net->wanted = AGENT_WIRE_LOOPBACK;
	return result;
}

void net_ask(const struct hdl_adapter *adapter, struct agent_msg *hello)
{
	const struct net *net = &adapter->net;
	/* From a new agent we request the old address, no matter how it was chosen. */
	hello->u.hello.wire = net_has_packets(net) ? AGENT_WIRE_ADDRESS : net->wanted;
	hello->u.hello.wire_count = net->address_count;
	memcpy(hello->u.hello.wires, net->addresses, sizeof(net->addresses));
	udp_network(hello->u.hello.network);
	hello->u.hello.cells = net->cells;
	hello->u.hello.stripes = net->stripes;
}

/* --- the agent's sockets --- */

/* Log that the node is not on its usual address: other programs may still look for it there. */
static void say_taken(const struct agent_msg *msg)
{
	struct udp_address taken = {0}, now = {0};
	char taken_text[UDP_ADDRESS_TEXT], now_text[UDP_ADDRESS_TEXT];
	if (msg->u.welcome.taken[12] == 0)
		return;
	memcpy(taken.gid, msg->u.welcome.taken, sizeof(taken.gid));
	memcpy(now.gid, msg->u.welcome.gids[0], sizeof(now.gid));
	udp_address_print(&taken, taken_text);
	udp_address_print(&now, now_text);
	log_warn("UDP port %u of %s, the address of this node, is held by user %u: the node uses "
	         "%s instead, and programs that look for it at the usual address do not find it",
	         UDP_ROCE_PORT, taken_text, (unsigned)msg->u.welcome.taken_by, now_text);
}

/* The bits of our addresses that are the address of @port. */
static uint32_t net_gids_of(const struct hdl_adapter *adapter, const struct net_port *port)
{
	uint32_t bits = 0;
	for (uint32_t i = 0; i < adapter->gid_count; i++)
		if (memcmp(&adapter->gids[i], &port->gid, sizeof(port->gid)) == 0)
			bits |= 1u << i;
	return bits;
}

/* The port that packets to groups leave by, and at which they arrive: the first that can. */
static struct net_port *group_port(const struct hdl_adapter *adapter)
{
	for (uint32_t i = 0; i < adapter->net.port_count; i++)
		if (adapter->net.ports[i]->ops->join != NULL)
			return adapter->net.ports[i];
	return NULL;
}

/* The first port whose packets are cells, or are not; 0: none. */
static uint8_t first_port(const struct net *net, bool cells)
{
	uint8_t at = 0;
	while (at < net->port_count && (net->ports[at]->mtu == 0 || net->ports[at]->cells != cells))
		at++;
	return at < net->port_count ? at : 0;
}

/* Find the port that packets from each of our addresses leave by. With the drive lock. */
static void assign_gids(struct hdl_adapter *adapter)
{
	struct net *net = &adapter->net;
	memset(net->gid_ports, first_port(net, false), sizeof(net->gid_ports));
	memset(net->cell_ports, first_port(net, true), sizeof(net->cell_ports));
	for (uint32_t at = net->port_count; at-- > 0;) {
		const struct net_port *port = net->ports[at];
		uint8_t *its = port->cells ? net->cell_ports : net->gid_ports;
		uint32_t bits = port->mtu > 0 ? net_gids_of(adapter, port) : 0;
		for (uint8_t i = 0; i < adapter->gid_count; i++)
			if (bits >> i & 1) {
				its[i] = port->number;
				if (port == group_port(adapter))
					adapter->engine.group_gid = i;
			}
	}
}

int net_attach(struct hdl_adapter *adapter, const struct agent_msg *welcome, const int *socks)
{
	struct net *net = &adapter->net;
	int result;
	say_taken(welcome);
	if (welcome->u.welcome.wire_count == 0)
		return 0;
	adapter_lock(adapter);
	if (net_has_packets(net)) {
		result = udp_link_replace(adapter, welcome, socks);
	} else {
		net->address_count = welcome->u.welcome.wire_count;
		memcpy(net->addresses, welcome->u.welcome.wires, sizeof(net->addresses));
		/* Frames to ourselves do not come back. */
		net->only = settings_local_off() && !net->addresses[0].frames;
		result = udp_link_begin(adapter, welcome, socks);
	}
	assign_gids(adapter);
	adapter_unlock(adapter);
	return result;
}

void net_detach(struct hdl_adapter *adapter)
{
	adapter_lock(adapter);
	udp_link_detach(adapter);
	sctp_share_detach(adapter);
	adapter_unlock(adapter);
}

void net_close(struct hdl_adapter *adapter)
{
	adapter->engine.groups_on_wire = false;
	ports_end(adapter);
}

bool net_frames_failed(const struct udp_address *address, int error, bool *told)
{
	char name[IF_NAMESIZE], text[UDP_ADDRESS_TEXT];
	unsigned mtu;
	/* A link that is down comes up again, and nothing has to be done for it. */
	if ((error != ENETDOWN && error != ENXIO && error != ENODEV) ||
	    ether_interface(address, name, &mtu) == 0)
		return false;
	struct udp_address was = *address;
	was.frames = false;
	udp_address_print(&was, text);
	if (!*told)
		log_warn("the interface of %s is gone, or has another MAC address: start the "
		         "node's programs again when it is back",
		         text);
	*told = true;
	return true;
}

/* --- groups --- */

bool net_has_groups(const struct hdl_adapter *adapter)
{
	return group_port(adapter) != NULL;
}

void net_join(struct hdl_adapter *adapter, const struct hdl_gid *gid)
{
	adapter_lock(adapter);
	struct net_port *port = group_port(adapter);
	int result = port != NULL ? port->ops->join(port, gid->raw) : 0;
	adapter_unlock(adapter);
	if (result != 0)
		log_warn("cannot join a multicast group on the network: %s; only its members on "
		         "this machine are reached",
		         strerror(-result));
}

void net_leave(struct hdl_adapter *adapter, const struct hdl_gid *gid)
{
	adapter_lock(adapter);
	struct net_port *port = group_port(adapter);
	if (port != NULL)
		port->ops->leave(port, gid->raw);
	adapter_unlock(adapter);
}

/* --- what is known of them --- */

uint32_t net_gids(const struct hdl_adapter *adapter)
{
	uint32_t bits = 0;
	for (uint32_t i = 0; i < adapter->net.port_count; i++)
		bits |= net_gids_of(adapter, adapter->net.ports[i]);
	return bits;
}

uint16_t net_mtu(const struct hdl_adapter *adapter)
{
	for (uint32_t i = 0; i < adapter->net.port_count; i++)
		if (adapter->net.ports[i]->mtu > 0)
			return (uint16_t)adapter->net.ports[i]->mtu;
	return IB_MAX_MTU_BYTES;
}

uint16_t net_reach(const struct hdl_adapter *adapter)
{
	if (!net_has_packets(&adapter->net))
		return HDL_WIRE_NONE;
	return adapter->net.only ? HDL_WIRE_ALL : HDL_WIRE_OTHERS;
}

const struct net_port *net_port_for(const struct net *net, const uint8_t *from,
                                    const uint8_t to[16])
{
	const struct net_port *first = NULL, *fits = NULL;
	uint8_t mac[MAC_BYTES];
	bool has_mac = mac_from_gid(to, mac);
	for (uint32_t i = 0; i < net->port_count; i++) {
		const struct net_port *port = net->ports[i];
		if (port->mtu == 0 || (port->frames && !has_mac))
			continue;
		if (first == NULL)
			first = port;
		if (roce_gid_is_ipv4(port->gid.raw) != roce_gid_is_ipv4(to))
			continue;
		if (from != NULL && memcmp(port->gid.raw, from, sizeof(port->gid.raw)) == 0)
			return port;
		if (fits == NULL)
			fits = port;
	}
	return fits != NULL ? fits : first;
}
