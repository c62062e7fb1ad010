/* Two paths for programs that have no word for them (HEDDLE_STRIPE): a connection that is about to
 * begin gets a second path, and uses both, if the process at its other end wants to as well. The
 * agents find that out (agent/stripe.c, docs/adr/0227). */
#include <string.h>

#include "adapter/adapter.h"
#include "base/log.h"
#include "wire/roce.h"

/* May the address with this index be one of two? */
static bool net_stripe_fits(const struct hdl_adapter *adapter, uint8_t index,
                            const struct hdl_gid *like)
{
	const struct net_port *port = adapter->net.ports[adapter->net.gid_ports[index]];
	return memcmp(port->gid.raw, adapter->gids[index].raw, 16) == 0 && port->mtu > 0 &&
	       !port->frames &&
	       roce_gid_is_ipv4(adapter->gids[index].raw) == roce_gid_is_ipv4(like->raw);
}

/* The index of our address behind @from in their circle, of the same family; @from: there is no
 * other. Both ends count so, and come to the same pair of paths. */
static uint8_t next_own(const struct hdl_adapter *adapter, uint8_t from)
{
	for (uint32_t step = 1; step < adapter->gid_count; step++) {
		uint8_t at = (uint8_t)((from + step) % adapter->gid_count);
		if (net_stripe_fits(adapter, at, &adapter->gids[from]))
			return at;
	}
	return from;
}

/* May packets to a peer at @first also go to @other, as its agent says? Not to a group, nor to
 * somebody else on this machine. */
static bool is_second_address(const uint8_t other[16], const uint8_t first[16])
{
	struct udp_address address = {0}, known = {0};
	struct hdl_gid gid;
	memcpy(address.gid, other, sizeof(address.gid));
	memcpy(known.gid, first, sizeof(known.gid));
	memcpy(gid.raw, other, sizeof(gid.raw));
	return roce_gid_is_ipv4(other) == roce_gid_is_ipv4(first) &&
	       !udp_address_is_group(&address) &&
	       udp_address_is_loopback(&address) == udp_address_is_loopback(&known) &&
	       !wire_is_foreign(&gid);
}

/* The same among @count addresses of the peer: its other one, or NULL. */
static const uint8_t *next_of_peer(uint8_t gids[][16], uint32_t count, const uint8_t gid[16])
{
	uint32_t at = 0;
	while (at < count && memcmp(gids[at], gid, 16) != 0)
		at++;
	for (uint32_t step = 1; at < count && step < count; step++) {
		const uint8_t *other = gids[(at + step) % count];
		if (is_second_address(other, gid))
			return other;
	}
	return NULL;
}

/* The two addresses of the first path of @qp, and the index of our own for the second one. False:
 * there is none, or it is in a lane. */
static bool first_path(struct hdl_qp *qp, const struct hdl_qp_attr *attr, struct hdl_gid *own,
                       struct hdl_gid *to, uint8_t *second)
{
	struct hdl_adapter *adapter = qp->pd->adapter;
	bool good = false;
	adapter_lock(adapter);
	*to = adapter_address(&attr->ah);
	bool on_wire = wire_only(adapter) ||
	               (adapter_find_link(adapter, to, attr->dest_qpn) == LINK_NONE &&
	                wire_reaches(adapter, to));
	if (on_wire && net_has_packets(&adapter->net) &&
	    !wire_speaks_cells(&adapter->net, qp->init.packets)) {
		*to = wire_address(adapter, to);
		uint8_t first = wire_source(adapter, attr->ah.sgid_index, to);
		*own = adapter->gids[first];
		*second = next_own(adapter, first);
		good = net_stripe_fits(adapter, first, to) && *second != first;
	}
	adapter_unlock(adapter);
	return good;
}

bool net_stripe(struct hdl_qp *qp, const struct hdl_qp_attr *attr, struct hdl_qp_attr *out)
{
	struct hdl_adapter *adapter = qp->pd->adapter;
	struct agent_msg msg = {.kind = AGENT_STRIPE, .u.cm.slot = attr->dest_qpn};
	struct hdl_gid own, to;
	uint8_t second;
	if (!adapter->drive.has_thread || !first_path(qp, attr, &own, &to, &second))
		return false;
	memcpy(msg.u.cm.own, own.raw, sizeof(msg.u.cm.own));
	memcpy(msg.u.cm.gid, to.raw, sizeof(msg.u.cm.gid));
	int result = agent_ask(adapter, &msg, &msg.u.cm.token);
	const uint8_t *other = result == 0 ? next_of_peer((uint8_t(*)[16])(void *)msg.u.cm.data,
	                                                  msg.u.cm.length, to.raw)
	                                   : NULL;
	log_info("the connection to queue pair 0x%06x uses %s", (unsigned)attr->dest_qpn,
	         other != NULL ? "two paths"
	                       : "one path: its other end does not say that it would use two");
	if (other == NULL)
		return false;
	*out = *attr;
	out->alt_ah = attr->ah;
	out->alt_ah.is_global = true;
	out->alt_ah.sgid_index = second;
	memcpy(out->alt_ah.dgid.raw, other, sizeof(out->alt_ah.dgid.raw));
	out->alt_port_num = attr->ah.port_num != 0 ? attr->ah.port_num : 1;
	out->alt_timeout = 0;
	out->alt_pkey_index = 0;
	out->stripe = AGENT_STRIPE_WINDOW;
	return true;
}
