/* The wires of a node. See wire.h. */
#include "agent/wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "port/owner.h"
#include "port/steer.h"
#include "wire/cell.h"

#define HEADER_BYTES  80u /* IPv6, UDP, BTH and the longest that can follow, ICRC */
#define MIN_MTU_BYTES 256u

/* The UDP port for cells at the address of a wire. */
struct wire_cells {
	struct agent_source source; /* first */
	struct steer steer;
};

struct wire {
	struct agent_source source; /* first */
	struct wire_cells *cells;   /* NULL: no process speaks them */
	struct node_entry *node;
	unsigned mtu;
	struct steer steer;
	struct udp_receiver receiver;
	struct owner owner; /* which user sent a datagram on this machine */
};

const struct udp_address *wire_address(const struct wire *wire)
{
	return &wire->steer.address;
}

unsigned wires_count(const struct node_entry *node)
{
	unsigned count = 0;
	while (count < UDP_MAX_ADDRESSES && node->wires[count] != NULL)
		count++;
	return count;
}

unsigned wires_mtu(const struct node_entry *node)
{
	unsigned mtu = IB_MAX_MTU_BYTES;
	for (unsigned i = 0; i < wires_count(node); i++)
		if (node->wires[i]->mtu < mtu)
			mtu = node->wires[i]->mtu;
	return mtu;
}

static bool wire_has_address(const struct node_entry *node, const struct udp_address *address)
{
	for (unsigned i = 0; i < wires_count(node); i++)
		if (udp_address_equal(wire_address(node->wires[i]), address))
			return true;
	return false;
}

static bool has_all(const struct node_entry *node, const struct udp_address *addresses,
                    unsigned count)
{
	unsigned has = 0;
	for (unsigned i = 0; i < count; i++)
		has += wire_has_address(node, &addresses[i]);
	return has == count;
}

/* The largest MTU that fits into the packets of the interface. If those are not known, those of
 * Ethernet. */
static unsigned mtu_for(const struct udp_address *address)
{
	char name[IF_NAMESIZE];
	unsigned room = 0, mtu = IB_MAX_MTU_BYTES;
	if (udp_interface(address, name, &room) != 0 || room == 0)
		room = 1500;
	while (mtu > MIN_MTU_BYTES && mtu + HEADER_BYTES > room)
		mtu /= 2;
	return mtu;
}

static int explain(int error, const struct udp_address *address, char *why, size_t why_bytes)
{
	char text[UDP_ADDRESS_TEXT];
	udp_address_print(address, text);
	switch (-error) {
	case EPERM:
		snprintf(why, why_bytes,
		         "frames on %s need CAP_NET_RAW: run the programs in a namespace of "
		         "your own (unshare -Urn), or as root",
		         text);
		break;
	case EADDRNOTAVAIL:
		snprintf(why, why_bytes,
		         "%s is no address of this machine (\"ip address\" lists them)", text);
		break;
	case EHOSTDOWN:
		snprintf(why, why_bytes,
		         "%s is no address of this machine any more; give it back (\"ip address "
		         "add\"), or end the node's programs",
		         text);
		break;
	case EADDRINUSE:
		snprintf(why, why_bytes,
		         "UDP port %u of %s is taken, by the kernel's RoCE (rxe), another user or "
		         "another agent; end that",
		         UDP_ROCE_PORT, text);
		break;
	default:
		snprintf(why, why_bytes, "UDP port %u of %s: %s", UDP_ROCE_PORT, text,
		         strerror(-error));
		break;
	}
	return error;
}

/* The node that is on @address; NULL: none. */
static struct node_entry *node_on(const struct agent *agent, const struct udp_address *address)
{
	for (uint32_t i = 0; i < agent->node_count; i++)
		if (wire_has_address(agent->nodes[i], address))
			return agent->nodes[i];
	return NULL;
}

/* Is an address, or the node, taken already? */
static int wire_judge(struct agent *agent, const struct node_entry *node,
                      const struct udp_address *addresses, unsigned count, char *why,
                      size_t why_bytes)
{
	char text[UDP_ADDRESS_TEXT];
	if (wires_count(node) > 0) {
		udp_address_print(wire_address(node->wires[0]), text);
		snprintf(why, why_bytes,
		         "the node is on %s%s; use another node (HEDDLE_NODE), or end its programs",
		         text,
		         wires_count(node) > 2   ? " and others"
		         : wires_count(node) > 1 ? " and another"
		                                 : "");
		return -EBUSY;
	}
	for (unsigned j = 0; j < count; j++) {
		struct node_entry *other = node_on(agent, &addresses[j]);
		if (other == NULL)
			continue;
		if (other->clients == 0) { /* it only repeats notices */
			management_silence(other);
			node_tidy(agent, other);
			continue;
		}
		udp_address_print(&addresses[j], text);
		snprintf(why, why_bytes,
		         "%s is the address of your node '%.24s'; each node needs one of its own",
		         text, other->name);
		return -EBUSY;
	}
	return 0;
}

static void wire_close_one(struct wire *wire)
{
	if (wire->cells != NULL)
		steer_close(&wire->cells->steer);
	free(wire->cells);
	steer_close(&wire->steer);
	udp_receiver_end(&wire->receiver);
	owner_end(&wire->owner);
	free(wire);
}

/* One datagram. One that is not for management is dropped without an answer. */
static void hear_packet(struct wire *wire, const struct udp_came *came, const uint8_t *data,
                        size_t bytes)
{
	struct ib_packet packet;
	if (wire_address(wire)->frames) {
		struct roce_path way;
		/* The sender is who the kernel says, whatever the GRH has. */
		if (roce_frame_decode(&way, &packet, data, bytes) == IB_OK &&
		    memcmp(way.sgid, came->from.gid, sizeof(way.sgid)) == 0 &&
		    memcmp(way.dgid, wire_address(wire)->gid, sizeof(way.dgid)) == 0 &&
		    packet.bth.dest_qp == 1)
			wire_management(wire->node, &way, &packet);
		return;
	}
	struct roce_path path = {.src_port = came->from_port,
	                         .dont_fragment = true,
	                         .traffic_class = came->tos,
	                         .hop_limit = came->hop_limit};
	memcpy(path.sgid, came->from.gid, sizeof(path.sgid));
	memcpy(path.dgid, wire_address(wire)->gid, sizeof(path.dgid));
	if (roce_udp_decode(&path, &packet, data, bytes) == IB_OK && packet.bth.dest_qp == 1)
		wire_management(wire->node, &path, &packet);
}

/* Datagrams have arrived at the agent's socket. */
static void wire_hear(struct agent_source *source)
{
	struct wire *wire = (struct wire *)(void *)source;
	struct udp_came came[UDP_BATCH];
	int count = udp_receive(&wire->receiver, wire->steer.at[0].sock, came);
	for (int i = 0; i < count; i++) {
		if (!owner_admits(&wire->owner, wire_address(wire), &came[i].from,
		                  came[i].from_port))
			continue;
		for (uint32_t at = 0; at < came[i].bytes; at += came[i].packet_bytes) {
			uint32_t rest = came[i].bytes - at;
			hear_packet(wire, &came[i], came[i].data + at,
			            rest < came[i].packet_bytes ? rest : came[i].packet_bytes);
		}
	}
}

int wire_listen(struct agent *agent, const struct steer *steer, struct udp_receiver *receiver,
                struct agent_source *source)
{
	struct epoll_event interest = {.events = EPOLLIN, .data.ptr = source};
	int result = udp_receiver_begin(receiver);
	if (result == 0 &&
	    epoll_ctl(agent->epoll, EPOLL_CTL_ADD, steer->at[0].sock, &interest) != 0)
		result = -errno;
	return result;
}

/* 0 or -errno. */
static int open_one(struct agent *agent, struct node_entry *node, const struct udp_address *address,
                    struct wire **out)
{
	struct wire *wire = calloc(1, sizeof(*wire));
	if (wire == NULL)
		return -ENOMEM;
	wire->source.ready = wire_hear;
	wire->node = node;
	owner_begin(&wire->owner);
	int result = steer_open(&wire->steer, address, UDP_ROCE_PORT,
	                        address->frames ? &steer_by_grh : &steer_by_bth);
	if (result == 0)
		result = wire_listen(agent, &wire->steer, &wire->receiver, &wire->source);
	if (result != 0) {
		wire_close_one(wire);
		return result;
	}
	wire->mtu = mtu_for(address);
	*out = wire;
	return 0;
}

void wires_yield(struct node_entry *node, const struct client *client)
{
	if (wires_count(node) == 0 || node->clients > 0)
		return;
	bool is_loopback = agent_lid_at(wire_address(node->wires[0])->gid) == node->lid;
	if (client->wire == AGENT_WIRE_ADDRESS
	            ? wires_count(node) == client->wire_count &&
	                      has_all(node, client->wire_addresses, client->wire_count)
	            : client->wire == AGENT_WIRE_LOOPBACK && is_loopback)
		return;
	management_silence(node);
	wires_close(node);
	node_list_addresses(node);
}

/* The first of @addresses that this machine no longer has; @count: it has them all. It always has
 * the whole loopback network. */
static unsigned first_gone(const struct udp_address *addresses, unsigned count)
{
	char name[IF_NAMESIZE];
	unsigned mtu, at = 0;
	while (at < count && (udp_address_is_loopback(&addresses[at]) ||
	                      udp_interface(&addresses[at], name, &mtu) != -EADDRNOTAVAIL))
		at++;
	return at;
}

int wires_open(struct agent *agent, struct node_entry *node, const struct udp_address *addresses,
               unsigned count, char *why, size_t why_bytes)
{
	if (wires_count(node) > 0 && has_all(node, addresses, count)) {
		unsigned gone = first_gone(addresses, count);
		if (gone == count)
			return 0;
		/* The sockets are still bound, but no packet arrives there. */
		if (node->clients > 0)
			return explain(-EHOSTDOWN, &addresses[gone], why, why_bytes);
		management_silence(node);
		wires_close(node);
		node_list_addresses(node);
	}
	int result = wire_judge(agent, node, addresses, count, why, why_bytes);
	for (unsigned i = 0; i < count && result == 0; i++) {
		result = open_one(agent, node, &addresses[i], &node->wires[i]);
		if (result != 0) {
			wires_close(node);
			return explain(result, &addresses[i], why, why_bytes);
		}
	}
	if (result == 0)
		node_list_addresses(node);
	return result;
}

void wires_close(struct node_entry *node)
{
	ci_wires_close(node);
	sctp_wires_close(node);
	for (unsigned i = 0; i < UDP_MAX_ADDRESSES && node->wires[i] != NULL; i++) {
		wire_close_one(node->wires[i]);
		node->wires[i] = NULL;
	}
}

/* Cells for no process: they are nobody's. */
static void wire_drain_cells(struct agent_source *source)
{
	struct wire_cells *cells = (struct wire_cells *)(void *)source;
	udp_drain(cells->steer.at[0].sock);
}

/* 0 or -errno. */
static int wire_open_cells(struct agent *agent, struct wire *wire)
{
	if (wire->cells != NULL)
		return 0;
	struct wire_cells *cells = calloc(1, sizeof(*cells));
	if (cells == NULL)
		return -ENOMEM;
	cells->source.ready = wire_drain_cells;
	int result = steer_open(&cells->steer, wire_address(wire), CELL_UDP_PORT, &steer_by_cell);
	struct epoll_event interest = {.events = EPOLLIN, .data.ptr = cells};
	if (result == 0 &&
	    epoll_ctl(agent->epoll, EPOLL_CTL_ADD, cells->steer.at[0].sock, &interest) != 0) {
		result = -errno;
		steer_close(&cells->steer);
	}
	if (result != 0)
		free(cells);
	else
		wire->cells = cells;
	return result;
}

int wires_enter(struct agent *agent, struct node_entry *node, uint32_t slot, bool cells,
                int socks[AGENT_MAX_WIRE_SOCKS])
{
	int count = 0;
	for (unsigned i = 0; i < wires_count(node); i++) {
		struct wire *wire = node->wires[i];
		int result = cells ? wire_open_cells(agent, wire) : 0;
		if (result != 0)
			return result;
		/* If one fails, the others are closed when the process leaves. */
		if (!wire_address(wire)->frames &&
		    (socks[count++] = steer_take(&wire->steer, slot)) < 0)
			return socks[count - 1];
		if (cells && (socks[count++] = steer_take(&wire->cells->steer, slot)) < 0)
			return socks[count - 1];
	}
	return count;
}

void wires_leave(struct node_entry *node, uint32_t slot)
{
	for (unsigned i = 0; i < wires_count(node); i++) {
		steer_give(&node->wires[i]->steer, slot);
		if (node->wires[i]->cells != NULL)
			steer_give(&node->wires[i]->cells->steer, slot);
	}
}

/* The wire with the address @from; or else the first with one of @to's family, or the first. */
static struct wire *sender(const struct node_entry *node, const uint8_t from[16],
                           const uint8_t to[16])
{
	struct wire *fits = NULL;
	for (unsigned i = 0; i < wires_count(node); i++) {
		const uint8_t *gid = wire_address(node->wires[i])->gid;
		if (memcmp(gid, from, 16) == 0)
			return node->wires[i];
		if (fits == NULL && roce_gid_is_ipv4(gid) == roce_gid_is_ipv4(to))
			fits = node->wires[i];
	}
	return fits != NULL ? fits : node->wires[0];
}

int wire_send(struct node_entry *node, const struct roce_path *path, const struct ib_packet *packet)
{
	struct wire *wire = sender(node, path->sgid, path->dgid);
	uint8_t data[IB_MAX_MTU_BYTES + HEADER_BYTES];
	struct roce_path way = *path;
	int error;
	if (wire == NULL)
		return -ENETDOWN;
	memcpy(way.sgid, wire_address(wire)->gid, sizeof(way.sgid));
	way.src_port = UDP_ROCE_PORT;
	way.ip_id = 0;
	way.dont_fragment = true;
	size_t bytes = wire_address(wire)->frames
	                       ? roce_frame_encode(&way, packet, data, sizeof(data))
	                       : roce_udp_encode(&way, packet, data, sizeof(data));
	if (bytes == 0)
		return -EMSGSIZE;
	struct udp_train train = {.to = *wire_address(wire),
	                          .tos = udp_ect(path->traffic_class),
	                          .hop_limit = path->hop_limit,
	                          .packets = 1,
	                          .packet_bytes = (uint32_t)bytes,
	                          .bytes = (uint32_t)bytes,
	                          .data = data};
	memcpy(train.to.gid, path->dgid, sizeof(train.to.gid));
	return udp_send(wire->steer.at[0].sock, &train, 1, &error) == 1 ? 0 : -error;
}
