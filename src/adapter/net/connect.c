/* Which peers are reached over the wire, and the paths to them. */
#include <stdlib.h>
#include <string.h>

#include "adapter/adapter.h"
#include "base/log.h"
#include "port/owner.h"
#include "transport/cell/cells.h"
#include "transport/ib/ib.h"
#include "transport/local/local.h"

#define FLOW_PORTS \
	0xc000u /* source ports that distinguish flows (IBTA annex A17.7.3): the upper quarter */
#define ECT_0     2u
#define HOP_LIMIT 64u /* if the program gives none */

bool wire_only(const struct hdl_adapter *adapter)
{
	return adapter->net.only && engine_has_network(&adapter->engine);
}

bool wire_reaches(const struct hdl_adapter *adapter, const struct hdl_gid *gid)
{
	return engine_has_network(&adapter->engine) &&
	       (adapter->net.only || !adapter_knows_node(adapter, gid));
}

/* The index of @gid among our addresses, if it is the address of a port; else 0. */
static uint8_t wire_of_own(const struct hdl_adapter *adapter, const struct hdl_gid *gid)
{
	uint32_t wires = net_gids(adapter);
	for (uint8_t i = 0; i < adapter->gid_count; i++)
		if ((wires >> i & 1) && memcmp(&adapter->gids[i], gid, sizeof(*gid)) == 0)
			return i;
	return 0;
}

uint8_t wire_source(const struct hdl_adapter *adapter, uint8_t index, const struct hdl_gid *to)
{
	const uint8_t *from = index < adapter->gid_count ? adapter->gids[index].raw : NULL;
	/* A port has one address; a network of the environment uses all our addresses. */
	const struct net_port *port = net_port_for(&adapter->net, from, to->raw);
	if (port == NULL)
		return from != NULL ? index : 0;
	return wire_of_own(adapter, &port->gid);
}

struct hdl_gid wire_address(const struct hdl_adapter *adapter, const struct hdl_gid *gid)
{
	struct hdl_gid address = *gid;
	if (net_has_packets(&adapter->net) && adapter_is_own_node(adapter, gid))
		return adapter->gids[wire_of_own(adapter, gid)];
	uint16_t lid = adapter_first_lid(adapter, gid);
	if (lid != 0)
		roce_gid_from_ipv4(address.raw, 127u << 24 | AGENT_LOOPBACK << 16 | lid);
	return address;
}

/* Only the two ends of a flow decide its port, so that packets of one connection keep their
 * order. */
static uint16_t flow_port(uint32_t qpn, uint32_t dest_qpn)
{
	uint32_t flow = (qpn * 0x9e3779b1u) ^ (dest_qpn * 0x85ebca6bu);
	return (uint16_t)(FLOW_PORTS | (flow >> 18));
}

/* A path through one of @ports, by our addresses. */
static struct path wire_path_by(const struct hdl_adapter *adapter, const uint8_t *ports,
                                const struct hdl_ah_attr *ah, uint32_t qpn, uint32_t dest_qpn)
{
	struct hdl_gid to = adapter_address(ah);
	to = wire_address(adapter, &to);
	uint8_t source = wire_source(adapter, ah->sgid_index, &to);
	struct path path = {.kind = PATH_ROCE,
	                    .port = ports[source],
	                    .ip = {.src_port = flow_port(qpn, dest_qpn),
	                           .dont_fragment = true,
	                           .traffic_class = (uint8_t)((ah->traffic_class & ~3u) | ECT_0),
	                           .hop_limit = ah->hop_limit != 0 ? ah->hop_limit : HOP_LIMIT,
	                           .flow_label = ah->flow_label},
	                    .sl = ah->sl};
	memcpy(path.ip.sgid, adapter->gids[source].raw, sizeof(path.ip.sgid));
	memcpy(path.ip.dgid, to.raw, sizeof(path.ip.dgid));
	return path;
}

struct path wire_path(const struct hdl_adapter *adapter, const struct hdl_ah_attr *ah, uint32_t qpn,
                      uint32_t dest_qpn)
{
	return wire_path_by(adapter, adapter->net.gid_ports, ah, qpn, dest_qpn);
}

bool wire_is_foreign(const struct hdl_gid *gid)
{
	struct udp_address address = {0};
	char text[UDP_ADDRESS_TEXT];
	uid_t uid = 0;
	memcpy(address.gid, gid->raw, sizeof(address.gid));
	if (!udp_address_is_loopback(&address) ||
	    owner_of(&address, UDP_ROCE_PORT, &uid) != OWNER_OTHER)
		return false;
	udp_address_print(&address, text);
	log_error("UDP port %u of %s is held by user %u: this is not a node of yours; \"heddle "
	          "status\" shows where yours are",
	          UDP_ROCE_PORT, text, (unsigned)uid);
	return true;
}

int wire_make_cells(struct hdl_qp *qp)
{
	if (qp->qp.cells == NULL && (qp->qp.cells = calloc(1, sizeof(*qp->qp.cells))) == NULL)
		return -HDL_ENOMEM;
	qp->qp.cells->path.kind = PATH_CELL;
	return 0;
}

/* Connect @qp by cells. */
static int wire_connect_cells(struct hdl_qp *qp, const struct hdl_qp_attr *attr, uint32_t dest)
{
	int result = wire_make_cells(qp);
	if (result != 0)
		return result;
	struct hdl_adapter *adapter = qp->pd->adapter;
	struct path *path = &qp->qp.cells->path;
	*path = wire_path_by(adapter, adapter->net.cell_ports, &attr->ah, qp->qp.qpn, dest);
	path->kind = PATH_CELL;
	memcpy(path->cell.to, attr->ah.dmac, sizeof(path->cell.to));
	cells_address(path);
	qp->qp.transport = &cells_transport;
	return 0;
}

void wire_mac(const struct hdl_adapter *adapter, const struct hdl_gid *gid, uint8_t mac[6])
{
	struct hdl_gid address = wire_address(adapter, gid);
	cell_mac(address.raw, mac);
}

int wire_connect(struct hdl_qp *qp, const struct hdl_qp_attr *attr, uint32_t mask)
{
	uint32_t dest = mask & HDL_QP_DEST_QPN ? attr->dest_qpn : qp->qp.attr.dest_qpn;
	if (wire_speaks_cells(&qp->pd->adapter->net, qp->init.packets) &&
	    (qp->qp.type == HDL_QP_RC || qp->qp.type == HDL_QP_UC))
		return wire_connect_cells(qp, attr, dest);
	if (!net_has(&qp->pd->adapter->net, false))
		return -HDL_EHOSTUNREACH; /* frames carry cells only */
	if ((mask & HDL_QP_PATH_MTU) && attr->path_mtu > net_mtu(qp->pd->adapter))
		return -HDL_EINVAL; /* larger packets could not be sent, and the peer does not know
		                       a smaller MTU */
	if (qp->qp.ib == NULL && (qp->qp.ib = calloc(1, sizeof(*qp->qp.ib))) == NULL)
		return -HDL_ENOMEM;
	qp->qp.transport = &ib_transport;
	struct ib *ib = qp->qp.ib;
	ib->path = wire_path(qp->pd->adapter, &attr->ah, qp->qp.qpn, dest);
	struct hdl_gid to;
	memcpy(to.raw, ib->path.ip.dgid, sizeof(to.raw));
	if (net_has_packets(&qp->pd->adapter->net) && wire_is_foreign(&to))
		return -HDL_EACCES;
	if (mask & HDL_QP_PATH_MTU)
		ib->mtu = attr->path_mtu;
	ib->came_port = flow_port(dest, qp->qp.qpn);
	if ((mask & HDL_QP_STRIPE) == 0 || attr->stripe == 0)
		return 0;
	if ((mask & HDL_QP_ALT_PATH) == 0)
		return -HDL_EINVAL;
	free(ib->stripe); /* from an attempt that failed */
	ib->stripe = malloc(stripe_bytes(attr->stripe, ib->mtu));
	if (ib->stripe == NULL)
		return -HDL_ENOMEM;
	stripe_init(ib->stripe, attr->stripe, ib->mtu);
	return 0;
}

void wire_alternate(struct hdl_qp *qp, const struct hdl_qp_attr *attr, uint32_t mask)
{
	struct ib *ib = qp->qp.ib;
	uint8_t *state = &qp->qp.attr.path_mig_state;
	if (ib != NULL && (mask & HDL_QP_ALT_PATH)) {
		ib->alternate =
		        wire_path(qp->pd->adapter, &attr->alt_ah, qp->qp.qpn, qp->qp.attr.dest_qpn);
		/* Between the same two addresses, the source port makes a network choose another
		 * route. */
		ib->alternate.ip.src_port ^= IB_ALTERNATE_PORT;
		ib->has_alternate = true;
		ib->has_former = false;
	}
	if ((mask & HDL_QP_PATH_MIG_STATE) == 0)
		return;
	if (attr->path_mig_state == HDL_MIG_MIGRATED && *state == HDL_MIG_ARMED)
		ib_migrate(&qp->pd->adapter->engine, &qp->qp);
	*state = attr->path_mig_state;
}

void wire_disconnect(struct hdl_qp *qp)
{
	if (qp->qp.cells != NULL && qp->qp.type != HDL_QP_UD) {
		free(qp->qp.cells);
		qp->qp.transport = &local_transport;
		qp->qp.cells = NULL;
	}
	if (qp->qp.ib == NULL)
		return;
	free(qp->qp.ib->stripe);
	free(qp->qp.ib);
	qp->qp.transport = &local_transport;
	qp->qp.ib = NULL;
}

/* Are the last @bytes of a frame padding? */
static bool wire_is_padding(const struct path *came, const uint8_t *in, size_t bytes)
{
	if (!came->cell.framed || bytes >= CELL_HEADER_BYTES)
		return false;
	while (bytes > 0 && in[bytes - 1] == 0)
		bytes--;
	return bytes == 0;
}

void wire_take_cells(struct hdl_adapter *adapter, const struct path *came, const uint8_t *in,
                     size_t bytes)
{
	while (bytes > 0 && !wire_is_padding(came, in, bytes)) {
		size_t count = cell_bytes(in, bytes);
		if (count == 0) { /* where the next one begins is not known */
			counter_add(&adapter->engine.counters[ENGINE_BAD_PACKETS], 1);
			return;
		}
		cells_take(&adapter->engine, came, in, count);
		in += count;
		bytes -= count;
	}
}

void adapter_take(struct hdl_adapter *adapter, const struct path *came, bool congested,
                  const uint8_t *payload, size_t bytes)
{
	struct path path = *came;
	struct ib_packet packet;
	adapter_lock(adapter);
	adapter->engine.now_ns = clock_read(&adapter->clock);
	if (came->kind == PATH_CELL)
		wire_take_cells(adapter, came, payload, bytes);
	else if (roce_udp_decode(&path.ip, &packet, payload, bytes) == IB_OK)
		ib_take(&adapter->engine, &path, congested, &packet);
	else
		counter_add(&adapter->engine.counters[ENGINE_BAD_PACKETS], 1);
	adapter_unlock(adapter);
}
