/* The carrier on UDP sockets. See udp.h. */
#include "adapter/udp.h"

#include <errno.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc.h"
#include "port/agentmsg.h"
#include "wire/be.h"
#include "wire/icrc.h"

#define BTH_QPN_OFFSET 4u

/* IP has no service level. A completion says instead which header stands before a datagram (IBTA annex A17.4.5.1), in the way that
 * adapters do and that UCX relies on: behind UDP, and version 6 or 4. */
#define SL_UDP  8u
#define SL_IPV6 1u
#define SL_IPV4 2u

/* --- seeds --- */

static struct udp_seed *seed_place(struct udp_seed *seeds, const uint8_t gid[16], uint16_t port,
                                   size_t bytes)
{
	uint32_t hash = be32_load(gid + 12) ^ be32_load(gid + 8) ^ (uint32_t)port << 7;
	hash = (hash ^ (uint32_t)bytes << 13) * 0x9e3779b1u;
	return &seeds[hash >> 26];
}
_Static_assert(UDP_SEEDS == 1u << (32 - 26), "the hash must reach all of them");

/* The seed of packets of @bytes between us and @gid, one of which is path's sgid, the other its dgid. */
static uint32_t seed_of(struct udp_seed *seeds, const struct roce_path *path, const uint8_t gid[16],
                        size_t bytes)
{
	struct udp_seed *at = seed_place(seeds, gid, path->src_port, bytes);
	if (at->bytes != bytes || at->port != path->src_port || memcmp(at->gid, gid, 16) != 0) {
		struct roce_path first = *path;
		first.ip_id = 0;
		at->bytes = (uint16_t)bytes;
		at->port = path->src_port;
		memcpy(at->gid, gid, 16);
		at->seed = roce_icrc_seed(&first, bytes);
	}
	return at->seed;
}

/* --- out --- */

static uint32_t slot_at(const struct udp_wire *wire, const uint8_t *packet)
{
	return (be32_load(packet + BTH_QPN_OFFSET) & IB_QPN_MASK) >> wire->slot_shift;
}

static bool is_group(const uint8_t gid[16])
{
	return gid[0] == 0xff || ((gid[12] & 0xf0) == 0xe0 && roce_gid_is_ipv4(gid));
}

/* Where the packets of a group go: to the address that its GID is, if that is one of the family of ours. Others have one made of
 * it, in the range for local use (RFC 2365: 239.0.0.0/8; RFC 4291: ff1e::/16). */
static struct udp_address group_address(const struct udp_wire *wire, const uint8_t gid[16])
{
	struct udp_address address = {0};
	bool ipv4 = roce_gid_is_ipv4(gid);
	memcpy(address.gid, gid, 16);
	if (udp_address_is_ipv4(&wire->address) && !ipv4) {
		roce_gid_from_ipv4(address.gid, 0xef000000u | (crc32_ieee(0, gid, 16) & 0xffffff));
	} else if (!udp_address_is_ipv4(&wire->address) && ipv4) {
		address.gid[0] = 0xff;
		address.gid[1] = 0x1e;
	}
	return address;
}

static int open_sender(struct udp_wire *wire, uint32_t index)
{
	int sock = udp_open_sender(&wire->address, &wire->senders[index].port);
	if (sock < 0)
		return sock;
	wire->senders[index].sock = sock;
	udp_send_to_groups(sock, &wire->address,
	                   wire->loop); /* where that is not possible, nothing else fails */
	return 0;
}

/* The socket for a flow; the first that works where this one cannot be opened. */
static uint32_t sender_for(struct udp_wire *wire, uint16_t src_port, uint32_t slot)
{
	uint32_t index = ((uint32_t)src_port ^ src_port >> 8 ^ slot) % UDP_SENDERS;
	if (wire->senders[index].sock >= 0)
		return index;
	return open_sender(wire, index) == 0 ? index : 0;
}

/* The path as the host writes it. */
static struct roce_path way_of(const struct udp_wire *wire, const struct path *path,
                               uint32_t sender)
{
	struct roce_path way = path->ip;
	memcpy(way.sgid, wire->address.gid, sizeof(way.sgid));
	if (is_group(way.dgid))
		memcpy(way.dgid, group_address(wire, path->ip.dgid).gid, sizeof(way.dgid));
	way.src_port = wire->senders[sender].port;
	way.ip_id = 0;
	way.dont_fragment = true;
	return way;
}

static void seal(struct udp_wire *wire, const struct roce_path *way, uint8_t *packet, size_t bytes,
                 unsigned id)
{
	uint32_t seed = seed_of(wire->out_seeds, way, way->dgid, bytes + IB_ICRC_BYTES);
	icrc_put(packet + bytes, icrc_transport(seed ^ wire->id_seeds[id], packet, bytes));
}

/* The packets of a train that the kernel does not cut up, one by one: then each has identification 0. Returns how many went. */
static unsigned send_apart(struct udp_wire *wire, const struct udp_train *train, uint32_t sender,
                           int *error)
{
	struct path path = {.ip.traffic_class = train->tos};
	memcpy(path.ip.dgid, train->to.gid, sizeof(path.ip.dgid));
	struct roce_path way = way_of(wire, &path, sender);
	unsigned sent = 0;
	*error = 0;
	for (uint32_t at = 0; at < train->bytes && *error == 0; at += train->packet_bytes) {
		struct udp_train one = *train;
		uint8_t *packet = wire->arena + (train->data - wire->arena) + at;
		one.packets = 1;
		one.data = packet;
		one.bytes = train->bytes - at < train->packet_bytes ? train->bytes - at
		                                                    : train->packet_bytes;
		one.packet_bytes = one.bytes;
		seal(wire, &way, packet, one.bytes - IB_ICRC_BYTES, 0);
		sent += udp_send(wire->senders[sender].sock, &one, 1, error);
	}
	return sent;
}

/* The kernel did not take the first train that waits. */
static void not_taken(struct udp_wire *wire, int error)
{
	const struct udp_train *train = &wire->trains[wire->first].train;
	unsigned sent = 0;
	int again = error;
	if (train->packets > 1 && (error == EIO || error == EINVAL)) {
		sent = send_apart(wire, train, wire->trains[wire->first].sender, &again);
		wire->trains_work = wire->trains_work && sent == 0;
	}
	wire->counts.sent += sent;
	wire->counts.refused += train->packets - sent;
	wire->first++;
}

/* Send what waits. A network loses packets, so what the kernel refuses is lost; what it has no room for stays. */
static void udp_flush(void *context)
{
	struct udp_wire *wire = context;
	struct udp_train run[UDP_MAX_TRAINS];
	while (wire->first < wire->count) {
		uint32_t sender = wire->trains[wire->first].sender;
		unsigned length = 0;
		for (unsigned i = wire->first; i < wire->count && wire->trains[i].sender == sender;
		     i++)
			run[length++] = wire->trains[i].train;
		int error;
		unsigned done = udp_send(wire->senders[sender].sock, run, length, &error);
		for (unsigned i = 0; i < done; i++)
			wire->counts.sent += run[i].packets;
		wire->first += done;
		if (done == length)
			continue;
		if (error == EAGAIN) {
			wire->counts.blocked++;
			return;
		}
		not_taken(wire, error);
	}
	wire->first = wire->count = 0;
	wire->used = 0;
}

static uint8_t *udp_reserve(void *context, const struct path *path, size_t bytes)
{
	struct udp_wire *wire = context;
	(void)path;
	if (wire->count == UDP_MAX_TRAINS || bytes + IB_ICRC_BYTES > UDP_ARENA_BYTES - wire->used)
		udp_flush(wire);
	if (wire->count == UDP_MAX_TRAINS || bytes + IB_ICRC_BYTES > UDP_ARENA_BYTES - wire->used)
		return NULL;
	return wire->arena + wire->used;
}

static void udp_commit(void *context, const struct path *path, size_t bytes)
{
	struct udp_wire *wire = context;
	uint8_t *packet = wire->arena + wire->used;
	uint32_t total = (uint32_t)(bytes + IB_ICRC_BYTES), slot = slot_at(wire, packet);
	uint32_t sender = sender_for(wire, path->ip.src_port, slot);
	uint8_t tos = udp_ect(path->ip.traffic_class);
	uint8_t hops = path->ip.hop_limit != 0 ? path->ip.hop_limit : UDP_HOP_LIMIT;
	struct roce_path way = way_of(wire, path, sender);
	unsigned last = wire->count - 1;
	struct udp_train *train = wire->count > wire->first ? &wire->trains[last].train : NULL;
	/* To one process: the receiving kernel looks at the first packet alone to find the socket. */
	if (train != NULL && wire->trains_work && !wire->trains[last].closed &&
	    wire->trains[last].sender == sender && wire->trains[last].slot == slot &&
	    train->tos == tos && train->hop_limit == hops && total <= train->packet_bytes &&
	    train->packets < UDP_MAX_PACKETS && train->bytes + total <= UDP_MAX_TRAIN_BYTES &&
	    memcmp(train->to.gid, way.dgid, 16) == 0) {
		seal(wire, &way, packet, bytes, train->packets);
		train->packets++;
		train->bytes += total;
		wire->trains[last].closed = total < train->packet_bytes;
	} else {
		train = &wire->trains[wire->count].train;
		wire->trains[wire->count].sender = sender;
		wire->trains[wire->count].slot = slot;
		wire->trains[wire->count].closed = false;
		wire->count++;
		*train = (struct udp_train){.to.scope = wire->address.scope,
		                            .tos = tos,
		                            .hop_limit = hops,
		                            .packets = 1,
		                            .packet_bytes = total,
		                            .bytes = total,
		                            .data = packet};
		memcpy(train->to.gid, way.dgid, 16);
		seal(wire, &way, packet, bytes, 0);
	}
	wire->used += total;
}

/* --- in --- */

/* Packets for several processes came joined, because one network card took them for one flow: from now on none are joined. */
static void part_flows(struct udp_wire *wire)
{
	int off = 0;
	wire->counts.foreign++;
	setsockopt(wire->sock, IPPROTO_UDP, UDP_GRO, &off, sizeof(off));
}

static void is_bad(struct udp_wire *wire)
{
	wire->counts.bad++;
	if (wire->bad != NULL)
		counter_add(wire->bad, 1);
}

static void hand_over(struct udp_wire *wire, const struct path *came, bool congested,
                      const struct ib_packet *packet, const uint8_t *group)
{
	if (group == NULL) {
		wire->take(wire->take_context, came, congested, packet);
		return;
	}
	struct path path = *came;
	memcpy(path.ip.dgid, group, sizeof(path.ip.dgid));
	if (packet->bth.dest_qp == IB_QPN_MASK) /* IBTA section 9.6.1.1.3 */
		wire->take(wire->take_context, &path, congested, packet);
}

/* What came to us; or to the group @group, which has the address @address. */
static unsigned take_all(struct udp_wire *wire, const struct udp_came *came, const uint8_t *group,
                         const uint8_t *address)
{
	bool ipv4 = udp_address_is_ipv4(&came->from);
	struct path path = {.port = 1,
	                    .sl = (uint8_t)(SL_UDP | (ipv4 ? SL_IPV4 : SL_IPV6)),
	                    .slid = agent_lid_at(came->from.gid),
	                    .ip = {.src_port = came->from_port,
	                           .dont_fragment = true,
	                           .traffic_class = came->tos,
	                           .hop_limit = came->hop_limit}};
	bool congested = (came->tos & 3) == UDP_CE;
	unsigned count = 0;
	memcpy(path.ip.sgid, came->from.gid, sizeof(path.ip.sgid));
	memcpy(path.ip.dgid, address, sizeof(path.ip.dgid));
	for (uint32_t at = 0; at < came->bytes; at += came->packet_bytes, count++) {
		uint32_t rest = came->bytes - at;
		uint32_t bytes = rest < came->packet_bytes ? rest : came->packet_bytes;
		const uint8_t *data = came->data + at;
		struct ib_packet packet;
		if (bytes < IB_BTH_BYTES + IB_ICRC_BYTES) {
			is_bad(wire);
			continue;
		}
		if (group == NULL && slot_at(wire, data) != wire->slot) {
			part_flows(wire);
			continue;
		}
		/* Joined packets were cut from one train, most likely. */
		path.ip.ip_id = (uint16_t)(count % UDP_MAX_PACKETS);
		uint32_t seed = group == NULL
		                        ? seed_of(wire->in_seeds, &path.ip, path.ip.sgid, bytes) ^
		                                  wire->id_seeds[path.ip.ip_id]
		                        : roce_icrc_seed(&path.ip, bytes);
		if (roce_udp_decode_seeded(&path.ip, seed, &packet, data, bytes) != IB_OK)
			is_bad(wire);
		else
			hand_over(wire, &path, congested, &packet, group);
	}
	return count;
}

unsigned udp_wire_receive(struct udp_wire *wire)
{
	struct udp_came came[UDP_BATCH];
	unsigned packets = 0;
	if (udp_wire_blocked(wire))
		udp_flush(wire);
	int count = wire->sock >= 0 ? udp_receive(&wire->receiver, wire->sock, came) : 0;
	for (int i = 0; i < count; i++)
		packets += take_all(wire, &came[i], NULL, wire->address.gid);
	wire->counts.received += packets;
	wire->vain = packets > 0 ? 0 : wire->vain + 1;
	if (wire->vain > UDP_EAGER_LOOKS)
		wire->skip = wire->vain > UDP_LAZY_LOOKS ? UDP_LONG_SKIP : UDP_SKIP;
	return packets;
}

/* --- groups --- */

static int place_of(const struct udp_wire *wire, const uint8_t gid[16])
{
	for (int i = 0; i < (int)UDP_MAX_GROUPS; i++)
		if (wire->groups[i].sock >= 0 && memcmp(wire->groups[i].gid, gid, 16) == 0)
			return i;
	return -1;
}

void udp_wire_loop(struct udp_wire *wire, bool loop)
{
	wire->loop = loop;
	for (unsigned i = 0; i < UDP_SENDERS; i++)
		if (wire->senders[i].sock >= 0)
			udp_send_to_groups(wire->senders[i].sock, &wire->address, loop);
}

int udp_wire_join(struct udp_wire *wire, const uint8_t gid[16])
{
	unsigned at = 0;
	while (at < UDP_MAX_GROUPS && wire->groups[at].sock >= 0)
		at++;
	if (at == UDP_MAX_GROUPS)
		return -ENOSPC;
	struct udp_address address = group_address(wire, gid);
	int sock = udp_open_group(&wire->address, &address, UDP_ROCE_PORT);
	if (sock < 0)
		return sock;
	wire->groups[at].sock = sock;
	wire->groups[at].address = address;
	memcpy(wire->groups[at].gid, gid, 16);
	return sock;
}

void udp_wire_leave(struct udp_wire *wire, const uint8_t gid[16])
{
	int at = place_of(wire, gid);
	if (at < 0)
		return;
	close(wire->groups[at].sock);
	wire->groups[at].sock = -1;
}

unsigned udp_wire_receive_groups(struct udp_wire *wire)
{
	struct udp_came came[UDP_BATCH];
	unsigned packets = 0;
	for (unsigned i = 0; i < UDP_MAX_GROUPS; i++) {
		int count = wire->groups[i].sock >= 0
		                    ? udp_receive(&wire->receiver, wire->groups[i].sock, came)
		                    : 0;
		for (int j = 0; j < count; j++)
			packets += take_all(wire, &came[j], wire->groups[i].gid,
			                    wire->groups[i].address.gid);
	}
	wire->counts.received += packets;
	return packets;
}

/* --- opening --- */

int udp_wire_begin(struct udp_wire *wire, const struct udp_address *address, int sock, uint32_t mtu)
{
	*wire = (struct udp_wire){.carrier = {.reserve = udp_reserve,
	                                      .commit = udp_commit,
	                                      .flush = udp_flush,
	                                      .context = wire},
	                          .address = *address,
	                          .mtu = mtu,
	                          .slot_shift = 24, /* all of them are ours */
	                          .sock = sock,
	                          .trains_work = true};
	for (unsigned i = 0; i < UDP_SENDERS; i++)
		wire->senders[i].sock = -1;
	for (unsigned i = 0; i < UDP_MAX_GROUPS; i++)
		wire->groups[i].sock = -1;
	if (udp_address_is_ipv4(address))
		for (unsigned i = 0; i < UDP_MAX_PACKETS; i++)
			wire->id_seeds[i] = icrc_seed_ip_id((uint16_t)i);
	wire->arena = malloc(UDP_ARENA_BYTES);
	int result = wire->arena != NULL ? udp_receiver_begin(&wire->receiver) : -ENOMEM;
	/* The one that stands in for the others must be there. */
	if (result == 0)
		result = open_sender(wire, 0);
	if (result != 0)
		udp_wire_end(wire);
	return result;
}

void udp_wire_replace(struct udp_wire *wire, int sock)
{
	if (wire->sock >= 0)
		close(wire->sock);
	wire->sock = sock;
}

void udp_wire_end(struct udp_wire *wire)
{
	udp_wire_replace(wire, -1);
	for (unsigned i = 0; i < UDP_SENDERS; i++)
		if (wire->senders[i].sock >= 0)
			close(wire->senders[i].sock);
	for (unsigned i = 0; i < UDP_MAX_GROUPS; i++)
		if (wire->groups[i].sock >= 0)
			close(wire->groups[i].sock);
	udp_receiver_end(&wire->receiver);
	free(wire->arena);
	wire->arena = NULL;
}
