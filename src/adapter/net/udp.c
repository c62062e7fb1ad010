/* The port on UDP sockets. See udp.h. */
#include "adapter/net/udp.h"

#include <errno.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/crc.h"
#include "base/fd.h"
#include "port/agentmsg.h"
#include "wire/be.h"
#include "wire/icrc.h"

#define BTH_QPN_OFFSET 4u

/* IP has no service level. A completion uses the field to say which header precedes a datagram
 * (IBTA annex A17.4.5.1), in the way that hardware adapters do and that UCX relies on: UDP, and IP
 * version 6 or 4. */
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
_Static_assert(UDP_SEEDS == 1u << (32 - 26), "the hash must reach all entries");

/* The cache entry of the seed for packets of @bytes between us and @gid from source port @port.
 * False: the seed must be computed. */
static bool seed_known(struct udp_seed *seeds, const uint8_t gid[16], uint16_t port, size_t bytes,
                       struct udp_seed **at)
{
	*at = seed_place(seeds, gid, port, bytes);
	if ((*at)->bytes == bytes && (*at)->port == port && memcmp((*at)->gid, gid, 16) == 0)
		return true;
	(*at)->bytes = (uint16_t)bytes;
	(*at)->port = port;
	memcpy((*at)->gid, gid, 16);
	return false;
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

/* The destination address for packets of a group: its GID, if that belongs to our address family.
 * Otherwise an address derived from the GID, in a range for local use (RFC 2365: 239.0.0.0/8; RFC
 * 4291: ff1e::/16). */
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

static int open_sender(struct udp_wire *wire, struct udp_queue *queue, uint32_t index)
{
	int cancel = cancel_forbid();
	int sock = udp_open_sender(&wire->address, &queue->senders[index].port);
	cancel_restore(cancel);
	if (sock < 0)
		return sock;
	queue->senders[index].sock = sock;
	queue->senders[index].tos = queue == &wire->queues[SERVICE_NORMAL] ? UDP_ECT : 0;
	udp_send_to_groups(sock, &wire->address,
	                   wire->loop); /* if this fails, only groups are affected */
	return 0;
}

/* Get what a class of service needs. The first socket is the fallback for the others, so it must
 * exist. Returns 0 or -errno. */
static int open_queue(struct udp_wire *wire, struct udp_queue *queue)
{
	uint8_t *arena = malloc(UDP_ARENA_BYTES);
	if (arena == NULL)
		return -ENOMEM;
	int result = open_sender(wire, queue, 0);
	if (result == 0)
		queue->arena = arena;
	else
		free(arena);
	return result;
}

/* The queue for packets along @path; that of the normal class if it cannot be opened. */
static struct udp_queue *queue_for(struct udp_wire *wire, const struct path *path)
{
	struct udp_queue *queue = &wire->queues[service_class(path->ip.traffic_class)];
	if (queue->arena != NULL || open_queue(wire, queue) == 0)
		return queue;
	return &wire->queues[SERVICE_NORMAL];
}

/* The socket for a flow; the first socket if this one cannot be opened. */
static uint32_t sender_for(struct udp_wire *wire, struct udp_queue *queue, uint16_t src_port,
                           uint32_t slot)
{
	uint32_t index = ((uint32_t)src_port ^ src_port >> 8 ^ slot) % UDP_SENDERS;
	if (queue->senders[index].sock >= 0)
		return index;
	return open_sender(wire, queue, index) == 0 ? index : 0;
}

/* The path as the host writes it into the headers of packets from @port. */
static struct roce_path way_of(const struct udp_wire *wire, const struct path *path, uint16_t port)
{
	struct roce_path way = path->ip;
	memcpy(way.sgid, wire->address.gid, sizeof(way.sgid));
	if (is_group(way.dgid))
		memcpy(way.dgid, group_address(wire, path->ip.dgid).gid, sizeof(way.dgid));
	way.src_port = port;
	way.ip_id = 0;
	way.dont_fragment = true;
	return way;
}

/* The ICRC seed of a packet of @bytes, ICRC included, from @port along @path: the @number-th packet
 * of a train. */
static uint32_t out_seed(struct udp_wire *wire, const struct path *path, uint16_t port,
                         size_t bytes, unsigned number)
{
	struct udp_seed *at;
	if (!seed_known(wire->out_seeds, path->ip.dgid, port, bytes, &at)) {
		struct roce_path way = way_of(wire, path, port);
		at->seed = roce_icrc_seed(&way, bytes);
	}
	return at->seed ^ wire->id_seeds[number];
}

/* Send the packets of a train that the kernel does not split, one by one. Each then has IPv4
 * identification 0. Returns how many were sent. */
static unsigned send_apart(struct udp_wire *wire, struct udp_queue *queue,
                           const struct udp_train *train, uint32_t sender, int *error)
{
	struct path path = {.ip.traffic_class = train->tos};
	memcpy(path.ip.dgid, train->to.gid, sizeof(path.ip.dgid));
	unsigned sent = 0;
	*error = 0;
	for (uint32_t at = 0; at < train->bytes && *error == 0; at += train->packet_bytes) {
		struct udp_train one = *train;
		uint8_t *packet = queue->arena + (train->data - queue->arena) + at;
		one.packets = 1;
		one.data = packet;
		one.bytes = train->bytes - at < train->packet_bytes ? train->bytes - at
		                                                    : train->packet_bytes;
		one.packet_bytes = one.bytes;
		uint32_t seed = out_seed(wire, &path, queue->senders[sender].port, one.bytes, 0);
		uint32_t covered = one.bytes - IB_ICRC_BYTES;
		icrc_put(packet + covered, icrc_transport(seed, packet, covered));
		sent += udp_send(queue->senders[sender].sock, &one, 1, error);
	}
	return sent;
}

/* The kernel did not accept the first waiting train. */
static void not_taken(struct udp_wire *wire, struct udp_queue *queue, int error)
{
	const struct udp_train *train = &queue->trains[queue->first].train;
	unsigned sent = 0;
	int again = error;
	if (train->packets > 1 && (error == EIO || error == EINVAL)) {
		sent = send_apart(wire, queue, train, queue->trains[queue->first].sender, &again);
		wire->trains_work = wire->trains_work && sent == 0;
	}
	wire->counts.sent += sent;
	wire->counts.refused += train->packets - sent;
	queue->first++;
}

/* Send the waiting trains. A network may lose packets, so packets that the kernel refuses are
 * dropped. Packets that it has no room for stay. */
__attribute__((noinline)) static void send_waiting(struct udp_wire *wire, struct udp_queue *queue)
{
	struct udp_train run[UDP_MAX_TRAINS];
	while (queue->first < queue->count) {
		uint32_t sender = queue->trains[queue->first].sender;
		unsigned length = 0;
		for (unsigned i = queue->first;
		     i < queue->count && queue->trains[i].sender == sender; i++)
			run[length++] = queue->trains[i].train;
		int error;
		unsigned done = udp_send(queue->senders[sender].sock, run, length, &error);
		for (unsigned i = 0; i < done; i++)
			wire->counts.sent += run[i].packets;
		queue->first += done;
		if (done == length)
			continue;
		if (error == EAGAIN) {
			wire->counts.blocked++;
			return;
		}
		not_taken(wire, queue, error);
	}
	queue->first = queue->count = 0;
	queue->used = 0;
}

static void udp_flush(void *context)
{
	struct udp_wire *wire = context;
	for (unsigned i = 0; i < SERVICE_CLASSES; i++) {
		struct udp_queue *queue = &wire->queues[service_order[i]];
		if (queue->first != queue->count) /* else nothing is to do, as in most calls */
			send_waiting(wire, queue);
	}
}

static bool udp_filling(void *context)
{
	const struct udp_wire *wire = context;
	const struct udp_queue *queue = wire->queue;
	if (queue->count == queue->first || !wire->trains_work)
		return false;
	const struct udp_waiting *last = &queue->trains[queue->count - 1];
	return !last->closed && last->train.packets < UDP_MAX_PACKETS &&
	       last->train.bytes + last->train.packet_bytes <= UDP_MAX_TRAIN_BYTES;
}

static uint8_t *udp_reserve(void *context, const struct path *path, size_t bytes)
{
	struct udp_wire *wire = context;
	struct udp_queue *queue = queue_for(wire, path);
	wire->queue = queue;
	if (queue->count == UDP_MAX_TRAINS || bytes + IB_ICRC_BYTES > UDP_ARENA_BYTES - queue->used)
		udp_flush(wire);
	if (queue->count == UDP_MAX_TRAINS || bytes + IB_ICRC_BYTES > UDP_ARENA_BYTES - queue->used)
		return NULL;
	return queue->arena + queue->used;
}

/* Where the packet at the end of the arena goes. */
struct place {
	uint32_t sender, slot, total; /* bytes, with the ICRC */
	uint8_t tos, hops;
	unsigned number; /* in the last train; 0: it starts a new train */
};

static struct place place_for(struct udp_wire *wire, const struct path *path, size_t bytes)
{
	struct udp_queue *queue = wire->queue;
	uint32_t slot = slot_at(wire, queue->arena + queue->used);
	struct place place = {.sender = sender_for(wire, queue, path->ip.src_port, slot),
	                      .slot = slot,
	                      .total = (uint32_t)(bytes + IB_ICRC_BYTES),
	                      .tos = udp_ect(path->ip.traffic_class),
	                      .hops = path->ip.hop_limit != 0 ? path->ip.hop_limit : UDP_HOP_LIMIT};
	if (queue->count == queue->first || !wire->trains_work)
		return place;
	const struct udp_waiting *last = &queue->trains[queue->count - 1];
	const struct udp_train *train = &last->train;
	/* A train goes to one process: the receiving kernel looks only at the first packet to find
	 * the socket. */
	if (!last->closed && last->sender == place.sender && last->slot == slot &&
	    train->tos == place.tos && last->hops == place.hops &&
	    place.total <= train->packet_bytes && train->packets < UDP_MAX_PACKETS &&
	    train->bytes + place.total <= UDP_MAX_TRAIN_BYTES &&
	    memcmp(last->gid, path->ip.dgid, sizeof(last->gid)) == 0)
		place.number = train->packets;
	return place;
}

/* The hop limit to send with a train; 0: that of the socket. */
static uint8_t said_hops(struct udp_wire *wire, const struct path *path, const struct place *place)
{
	if (is_group(path->ip.dgid)) /* set by udp_send_to_groups() */
		return place->hops == UDP_HOP_LIMIT ? 0 : place->hops;
	uint8_t *own = &wire->queue->senders[place->sender].hops;
	if (*own == 0 &&
	    udp_set_hops(wire->queue->senders[place->sender].sock, &wire->address, place->hops))
		*own = place->hops;
	return place->hops == *own ? 0 : place->hops;
}

/* Does the socket have the traffic class of a train? A socket of the urgent or bulk class has a
 * priority, by which the kernel chooses among packets that wait for a line. The kernel would derive
 * the priority from a traffic class that goes with a message, by the meaning that the bits had
 * before RFC 2474, in which expedited forwarding is nothing special. */
static bool has_tos(struct udp_wire *wire, const struct place *place)
{
	uint8_t *own = &wire->queue->senders[place->sender].tos;
	bool urgent = wire->queue == &wire->queues[SERVICE_URGENT];
	if (*own == 0)
		*own = udp_set_class(wire->queue->senders[place->sender].sock, &wire->address,
		                     place->tos, urgent ? UDP_PRIORITY_URGENT : UDP_PRIORITY_BULK)
		               ? place->tos
		               : UDP_ECT;
	return place->tos == *own;
}

/* Queue the packet, which has its ICRC, for sending. */
static void udp_append(struct udp_wire *wire, const struct path *path, const struct place *place)
{
	struct udp_queue *queue = wire->queue;
	if (place->number > 0) {
		struct udp_waiting *last = &queue->trains[queue->count - 1];
		last->train.packets++;
		last->train.bytes += place->total;
		last->closed = place->total < last->train.packet_bytes;
	} else {
		struct udp_waiting *next = &queue->trains[queue->count++];
		next->sender = place->sender;
		next->slot = place->slot;
		next->hops = place->hops;
		next->closed = false;
		memcpy(next->gid, path->ip.dgid, sizeof(next->gid));
		next->train = (struct udp_train){.to.scope = wire->address.scope,
		                                 .tos = place->tos,
		                                 .has_tos = has_tos(wire, place),
		                                 .hop_limit = said_hops(wire, path, place),
		                                 .packets = 1,
		                                 .packet_bytes = place->total,
		                                 .bytes = place->total,
		                                 .data = queue->arena + queue->used};
		memcpy(next->train.to.gid,
		       is_group(next->gid) ? group_address(wire, next->gid).gid : next->gid,
		       sizeof(next->gid));
	}
	queue->used += place->total;
}

static void udp_commit(void *context, const struct path *path, size_t bytes)
{
	struct udp_wire *wire = context;
	struct place place = place_for(wire, path, bytes);
	uint8_t *packet = wire->queue->arena + wire->queue->used;
	uint16_t port = wire->queue->senders[place.sender].port;
	uint32_t seed = out_seed(wire, path, port, place.total, place.number);
	icrc_put(packet + bytes, icrc_transport(seed, packet, bytes));
	udp_append(wire, path, &place);
}

static bool udp_commit_from(void *context, const struct path *path, size_t header_bytes,
                            const void *from, size_t payload_bytes,
                            bool (*copy)(void *to, const void *from, size_t bytes, uint32_t *crc))
{
	struct udp_wire *wire = context;
	size_t pad = ib_pad_bytes(payload_bytes), bytes = header_bytes + payload_bytes + pad;
	struct place place = place_for(wire, path, bytes);
	uint8_t *packet = wire->queue->arena + wire->queue->used, *payload = packet + header_bytes;
	uint16_t port = wire->queue->senders[place.sender].port;
	uint32_t seed = out_seed(wire, path, port, place.total, place.number);
	uint32_t icrc = icrc_transport(seed, packet, header_bytes);
	if (!copy(payload, from, payload_bytes, &icrc))
		return false;
	if (pad > 0) {
		memset(payload + payload_bytes, 0, pad);
		icrc = crc32_ieee(icrc, payload + payload_bytes, pad);
	}
	icrc_put(packet + bytes, icrc);
	udp_append(wire, path, &place);
	return true;
}

/* --- in --- */

static void join_flows(struct udp_wire *wire, int on)
{
	setsockopt(wire->sock, IPPROTO_UDP, UDP_GRO, &on, sizeof(on));
}

/* Packets for several processes arrived joined, because a network card took them for one flow, or
 * because a sender wants us to believe so. Turn GRO off for a while. */
static void part_flows(struct udp_wire *wire)
{
	if (wire->apart_ns != 0)
		return;
	uint64_t now = clock_now_ns();
	wire->pause_ns = wire->pause_ns == 0                     ? UDP_APART_NS
	                 : wire->pause_ns < UDP_APART_MAX_NS / 2 ? 2 * wire->pause_ns
	                                                         : UDP_APART_MAX_NS;
	wire->apart_ns = now + wire->pause_ns;
	join_flows(wire, 0);
}

/* Turn GRO on again. If nothing happened for as long as the longest pause, the next pause is
 * short. */
static void rejoin_flows(struct udp_wire *wire)
{
	uint64_t now = clock_now_ns();
	if (now < wire->apart_ns)
		return;
	if (now - wire->apart_ns > UDP_APART_MAX_NS)
		wire->pause_ns = 0;
	wire->apart_ns = 0;
	join_flows(wire, 1);
}

static void is_bad(struct udp_wire *wire)
{
	wire->counts.bad++;
	if (wire->bad != NULL)
		counter_add(wire->bad, 1);
}

/* An undamaged packet is for another process. A packet that arrived alone was misdirected, which
 * says nothing about joining. */
static void is_foreign(struct udp_wire *wire, const struct udp_came *came)
{
	wire->counts.foreign++;
	if (came->bytes > came->packet_bytes)
		part_flows(wire);
}

static void udp_hand_over(struct udp_wire *wire, const struct path *came, bool congested,
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

/* The ICRC seed of a packet of @bytes that arrived along @path. */
static uint32_t in_seed(struct udp_wire *wire, const struct path *path, size_t bytes)
{
	struct udp_seed *at;
	if (!seed_known(wire->in_seeds, path->ip.sgid, path->ip.src_port, bytes, &at)) {
		struct roce_path first = path->ip;
		first.ip_id = 0;
		at->seed = roce_icrc_seed(&first, bytes);
	}
	return at->seed ^ wire->id_seeds[path->ip.ip_id];
}

/* Process packets to us, or to the group @group with the address @address. */
static unsigned take_all(struct udp_wire *wire, const struct udp_came *came, const uint8_t *group,
                         const uint8_t *address)
{
	bool ipv4 = udp_address_is_ipv4(&came->from);
	struct path path = {.kind = PATH_ROCE,
	                    .port = wire->port.number,
	                    .sl = (uint8_t)(SL_UDP | (ipv4 ? SL_IPV4 : SL_IPV6)),
	                    .slid = agent_lid_at(came->from.gid),
	                    .ip = {.src_port = came->from_port,
	                           .dont_fragment = true,
	                           .traffic_class = came->tos,
	                           .hop_limit = came->hop_limit}};
	bool congested = (came->tos & 3) == UDP_CE;
	unsigned count = 0;
	if (!owner_admits(&wire->owner, &wire->address, &came->from, came->from_port)) {
		for (uint32_t at = 0; at < came->bytes; at += came->packet_bytes)
			count++;
		wire->counts.strange += count;
		if (wire->bad != NULL)
			counter_add(wire->bad, count);
		return count;
	}
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
		/* Joined packets were most likely split from one train. */
		path.ip.ip_id = (uint16_t)(count % UDP_MAX_PACKETS);
		uint32_t seed = group == NULL ? in_seed(wire, &path, bytes)
		                              : roce_icrc_seed(&path.ip, bytes);
		if (roce_udp_decode_seeded(&path.ip, seed, &packet, data, bytes) != IB_OK)
			is_bad(wire);
		else if (group == NULL && slot_at(wire, data) != wire->slot)
			is_foreign(wire, came);
		else
			udp_hand_over(wire, &path, congested, &packet, group);
	}
	return count;
}

static unsigned receive_group(struct udp_wire *wire, unsigned place)
{
	struct udp_came came[UDP_BATCH];
	unsigned packets = 0;
	int count = udp_receive(&wire->receiver, wire->groups[place].sock, came);
	for (int i = 0; i < count; i++)
		packets += take_all(wire, &came[i], wire->groups[place].gid,
		                    wire->groups[place].address.gid);
	wire->counts.received += packets;
	return packets;
}

/* A thread that polls looks at one group at a time: each look is a system call, and there may be
 * many groups. */
static unsigned receive_next_group(struct udp_wire *wire)
{
	do
		wire->group_turn = (wire->group_turn + 1) % UDP_MAX_GROUPS;
	while (wire->groups[wire->group_turn].sock < 0);
	return receive_group(wire, wire->group_turn);
}

unsigned udp_wire_receive(struct udp_wire *wire)
{
	struct udp_came came[UDP_BATCH];
	unsigned packets = 0;
	udp_flush(wire);
	if (wire->apart_ns != 0)
		rejoin_flows(wire);
	int count = wire->sock >= 0 ? udp_receive(&wire->receiver, wire->sock, came) : 0;
	for (int i = 0; i < count; i++)
		packets += take_all(wire, &came[i], NULL, wire->address.gid);
	wire->counts.received += packets;
	if (wire->group_count > 0)
		packets += receive_next_group(wire);
	return packets;
}

/* --- groups --- */

static int udp_place_of(const struct udp_wire *wire, const uint8_t gid[16])
{
	for (int i = 0; i < (int)UDP_MAX_GROUPS; i++)
		if (wire->groups[i].sock >= 0 && memcmp(wire->groups[i].gid, gid, 16) == 0)
			return i;
	return -1;
}

void udp_wire_loop(struct udp_wire *wire, bool loop)
{
	wire->loop = loop;
	for (unsigned c = 0; c < SERVICE_CLASSES; c++)
		for (unsigned i = 0; i < UDP_SENDERS; i++)
			if (wire->queues[c].senders[i].sock >= 0)
				udp_send_to_groups(wire->queues[c].senders[i].sock, &wire->address,
				                   loop);
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
	wire->group_count++;
	wire->groups[at].address = address;
	memcpy(wire->groups[at].gid, gid, 16);
	return sock;
}

void udp_wire_leave(struct udp_wire *wire, const uint8_t gid[16])
{
	int at = udp_place_of(wire, gid);
	if (at < 0)
		return;
	fd_close(wire->groups[at].sock);
	wire->groups[at].sock = -1;
	wire->group_count--;
}

unsigned udp_wire_receive_groups(struct udp_wire *wire)
{
	unsigned packets = 0;
	for (unsigned i = 0; i < UDP_MAX_GROUPS && wire->group_count > 0; i++)
		if (wire->groups[i].sock >= 0)
			packets += receive_group(wire, i);
	return packets;
}

/* --- opening --- */

int udp_wire_begin(struct udp_wire *wire, const struct udp_address *address, int sock, uint32_t mtu)
{
	*wire = (struct udp_wire){.carrier = {.reserve = udp_reserve,
	                                      .commit = udp_commit,
	                                      .commit_from = udp_commit_from,
	                                      .filling = udp_filling,
	                                      .flush = udp_flush,
	                                      .context = wire},
	                          .address = *address,
	                          .slot_shift = 24, /* all queue pairs are ours */
	                          .sock = sock,
	                          .trains_work = true};
	port_init(&wire->port, &udp_port_ops, sock);
	wire->port.mtu = mtu;
	memcpy(wire->port.gid.raw, address->gid, sizeof(wire->port.gid.raw));
	for (unsigned c = 0; c < SERVICE_CLASSES; c++)
		for (unsigned i = 0; i < UDP_SENDERS; i++)
			wire->queues[c].senders[i].sock = -1;
	wire->queue = &wire->queues[SERVICE_NORMAL];
	for (unsigned i = 0; i < UDP_MAX_GROUPS; i++)
		wire->groups[i].sock = -1;
	if (udp_address_is_ipv4(address))
		for (unsigned i = 0; i < UDP_MAX_PACKETS; i++)
			wire->id_seeds[i] = icrc_seed_ip_id((uint16_t)i);
	owner_begin(&wire->owner);
	int result = udp_receiver_begin(&wire->receiver);
	if (result == 0)
		result = open_queue(wire, wire->queue);
	if (result != 0)
		udp_wire_end(wire);
	else if (sock >= 0)
		join_flows(wire, 1); /* a previous owner of the socket may have turned it off */
	return result;
}

void udp_wire_replace(struct udp_wire *wire, int sock)
{
	if (wire->sock >= 0)
		fd_close(wire->sock);
	wire->sock = sock;
	wire->apart_ns = 0;
	if (sock >= 0)
		join_flows(wire, 1);
}

void udp_wire_end(struct udp_wire *wire)
{
	udp_wire_replace(wire, -1);
	for (unsigned c = 0; c < SERVICE_CLASSES; c++) {
		struct udp_queue *queue = &wire->queues[c];
		for (unsigned i = 0; i < UDP_SENDERS; i++)
			if (queue->senders[i].sock >= 0)
				close(queue->senders[i].sock);
		free(queue->arena);
		queue->arena = NULL;
	}
	for (unsigned i = 0; i < UDP_MAX_GROUPS; i++)
		if (wire->groups[i].sock >= 0)
			close(wire->groups[i].sock);
	udp_receiver_end(&wire->receiver);
	owner_end(&wire->owner);
}
