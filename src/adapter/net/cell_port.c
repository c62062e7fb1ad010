/* Cells on UDP sockets and in Ethernet frames. See cell_port.h. */
#include "adapter/net/cell_port.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "base/fd.h"
#include "base/mac.h"
#include "port/ether.h"
#include "wire/be.h"

#define CELL_QPN_OFFSET 16u /* of the word whose low 24 bits are the destination */

/* --- out --- */

/* How many bytes of cells one datagram or frame has room for. */
static uint32_t cell_port_room(const struct udp_address *address, uint32_t mtu)
{
	char name[IF_NAMESIZE];
	unsigned link = 0;
	if (address->frames && ether_interface(address, name, &link) == 0 && link > 0)
		mtu = link;
	return mtu < CELL_MAX_BYTES    ? CELL_MAX_BYTES
	       : mtu > CELL_PORT_BYTES ? CELL_PORT_BYTES
	                               : mtu;
}

/* The kernel did not accept a datagram or frame. */
static void cell_port_refused(struct cell_port *port, int error)
{
	if (!port->address.frames)
		return;
	if (error == EMSGSIZE) /* the MTU of the link has changed */
		port->room = cell_port_room(&port->address, port->port.mtu);
	else
		net_frames_failed(&port->address, error, &port->told);
}

/* Send the waiting datagrams. What the kernel refuses is lost, as on a network; what it has no room
 * for stays. */
static void cell_port_flush(void *context)
{
	struct cell_port *port = context;
	struct udp_train trains[CELL_PORT_DATAGRAMS];
	while (port->first < port->count && port->sender >= 0) {
		unsigned count = 0;
		for (unsigned i = port->first; i < port->count; i++) {
			const struct cell_datagram *datagram = &port->datagrams[i];
			trains[count++] = (struct udp_train){.to = datagram->to,
			                                     .port = CELL_UDP_PORT,
			                                     .tos = datagram->tos,
			                                     .packets = 1,
			                                     .packet_bytes = datagram->bytes,
			                                     .bytes = datagram->bytes,
			                                     .data = datagram->data};
		}
		int error;
		unsigned done = udp_send(port->sender, trains, count, &error);
		port->first += done;
		port->sent += done;
		if (port->first < port->count && error == EAGAIN) {
			port->blocked++;
			return;
		}
		if (port->first < port->count) {
			cell_port_refused(port, error);
			port->first++;
		}
	}
	port->first = port->count = 0;
}

static uint8_t *cell_port_reserve(void *context, const struct path *path, size_t bytes)
{
	struct cell_port *port = context;
	(void)path;
	if (bytes > sizeof(port->cell))
		return NULL;
	if (port->count == CELL_PORT_DATAGRAMS)
		cell_port_flush(port);
	return port->count < CELL_PORT_DATAGRAMS ? port->cell : NULL;
}

/* May the cell of @bytes go along in @datagram? The kernel there looks only at the first. */
static bool cell_joins(const struct cell_port *port, const struct cell_datagram *datagram,
                       const struct path *path, uint32_t slot, size_t bytes)
{
	return datagram->slot == slot && datagram->tos == udp_ect(path->ip.traffic_class) &&
	       datagram->bytes + bytes <= port->room &&
	       memcmp(datagram->to.gid, path->ip.dgid, sizeof(datagram->to.gid)) == 0;
}

static void cell_port_commit(void *context, const struct path *path, size_t bytes)
{
	struct cell_port *port = context;
	uint32_t slot = (be32_load(port->cell + CELL_QPN_OFFSET) & 0xffffff) >> port->slot_shift;
	struct cell_datagram *last =
	        port->count > port->first ? &port->datagrams[port->count - 1] : NULL;
	if (last == NULL || !cell_joins(port, last, path, slot, bytes)) {
		last = &port->datagrams[port->count++]; /* pairs with cell_port_reserve() */
		last->slot = slot;
		last->tos = udp_ect(path->ip.traffic_class);
		last->bytes = 0;
		last->to = port->address; /* but for the GID */
		memcpy(last->to.gid, path->ip.dgid, sizeof(last->to.gid));
	}
	memcpy(last->data + last->bytes, port->cell, bytes);
	last->bytes += (uint32_t)bytes;
}

/* --- in --- */

static unsigned cell_port_take(struct cell_port *port, const struct udp_came *came)
{
	struct hdl_adapter *adapter = port->port.adapter;
	struct path path = {.kind = PATH_CELL,
	                    .port = port->port.number,
	                    .ip = {.src_port = came->from_port,
	                           .dont_fragment = true,
	                           .traffic_class = came->tos,
	                           .hop_limit = came->hop_limit}};
	unsigned count = 0;
	memcpy(path.ip.sgid, came->from.gid, sizeof(path.ip.sgid));
	memcpy(path.ip.dgid, port->address.gid, sizeof(path.ip.dgid));
	path.cell.framed = came->from.frames && mac_from_gid(path.ip.sgid, path.cell.from) &&
	                   mac_from_gid(path.ip.dgid, path.cell.to);
	bool ours = owner_admits(&port->owner, &port->address, &came->from, came->from_port);
	for (uint32_t at = 0; at < came->bytes; at += came->packet_bytes, count++) {
		uint32_t rest = came->bytes - at;
		uint32_t bytes = rest < came->packet_bytes ? rest : came->packet_bytes;
		if (ours)
			wire_take_cells(adapter, &path, came->data + at, bytes);
		else
			counter_add(&adapter->engine.counters[ENGINE_BAD_PACKETS], 1);
	}
	return count;
}

static unsigned cell_port_receive(struct net_port *net_port)
{
	struct cell_port *port = cell_port_of(net_port);
	struct udp_came came[UDP_BATCH];
	unsigned packets = 0;
	if (port->first != port->count)
		cell_port_flush(port);
	if (port->sock < 0)
		return 0;
	int count = udp_receive(&port->receiver, port->sock, came);
	if (count < 0)
		cell_port_refused(port, -count);
	for (int i = 0; i < count; i++)
		packets += cell_port_take(port, &came[i]);
	port->received += packets;
	return packets;
}

static bool cell_port_blocked(const struct net_port *net_port)
{
	const struct cell_port *port = (const struct cell_port *)(const void *)net_port;
	return port->first != port->count;
}

static void cell_port_end(struct net_port *net_port)
{
	struct cell_port *port = cell_port_of(net_port);
	cell_port_stop(port);
	free(port);
}

const struct net_port_ops cell_port_ops = {
        .name = "cells on UDP",
        .receive = cell_port_receive,
        .blocked = cell_port_blocked,
        .end = cell_port_end,
};

/* --- opening --- */

int cell_port_begin(struct cell_port *port, const struct udp_address *address, int sock,
                    uint32_t mtu)
{
	uint16_t source;
	memset(port, 0, sizeof(*port));
	port->carrier = (struct carrier){.reserve = cell_port_reserve,
	                                 .commit = cell_port_commit,
	                                 .flush = cell_port_flush,
	                                 .context = port,
	                                 .frames = address->frames};
	port->address = *address;
	port->slot_shift = 24; /* all queue pairs are of one process */
	port->sock = sock;
	port->room = cell_port_room(address, mtu);
	port_init(&port->port, &cell_port_ops, sock);
	port->port.mtu = mtu;
	port->port.cells = true;
	port->port.frames = address->frames;
	memcpy(port->port.gid.raw, address->gid, sizeof(port->port.gid.raw));
	owner_begin(&port->owner);
	int result = udp_receiver_begin(&port->receiver);
	/* Only who has the privilege can open another socket for frames. */
	port->sender = result != 0       ? -1
	               : address->frames ? sock
	                                 : udp_open_sender(address, &source);
	if (result == 0 && port->sender < 0 && !address->frames)
		result = port->sender;
	if (result != 0)
		cell_port_stop(port);
	return result;
}

void cell_port_replace(struct cell_port *port, int sock)
{
	if (port->sock >= 0)
		fd_close(port->sock);
	port->sock = sock;
	if (port->address.frames)
		port->sender = sock;
}

void cell_port_stop(struct cell_port *port)
{
	cell_port_replace(port, -1);
	if (port->sender >= 0 && !port->address.frames)
		close(port->sender);
	port->sender = -1;
	udp_receiver_end(&port->receiver);
	owner_end(&port->owner);
}
