/* The carrier on UDP sockets, on the loopback: what is committed here is taken there, whole, in
 * order and along the path that it came (MISSION X2), whether or not the kernel cuts and joins
 * trains. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/udp.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "adapter/net/udp.h"
#include "base/clock.h"
#include "base/crc.h"
#include "port/steer.h"
#include "wire/be.h"

#define WAIT_MS 10000
#define MAX     512

/* What one side took. */
struct taken {
	unsigned count;
	struct {
		uint32_t psn, qpn;
		size_t bytes;
		uint16_t src_port, ip_id, slid;
		uint8_t sgid[16], dgid[16], traffic_class, hop_limit, sl;
		bool congested, right;
	} at[MAX];
};

static uint8_t pattern(uint32_t psn, size_t i)
{
	return (uint8_t)(psn * 31 + i * 7 + i / 253);
}

static void take(void *context, const struct path *came, bool congested,
                 const struct ib_packet *packet)
{
	struct taken *taken = context;
	assert_true(taken->count < MAX);
	unsigned n = taken->count++;
	taken->at[n].psn = packet->bth.psn;
	taken->at[n].qpn = packet->bth.dest_qp;
	taken->at[n].bytes = packet->payload_bytes;
	taken->at[n].src_port = came->ip.src_port;
	taken->at[n].ip_id = came->ip.ip_id;
	taken->at[n].traffic_class = came->ip.traffic_class;
	taken->at[n].hop_limit = came->ip.hop_limit;
	taken->at[n].sl = came->sl;
	taken->at[n].slid = came->slid;
	taken->at[n].congested = congested;
	memcpy(taken->at[n].sgid, came->ip.sgid, 16);
	memcpy(taken->at[n].dgid, came->ip.dgid, 16);
	taken->at[n].right = true;
	for (size_t i = 0; i < packet->payload_bytes; i++)
		taken->at[n].right &= packet->payload[i] == pattern(packet->bth.psn, i);
}

/* An address of this process's own: others may run this test at the same time. */
static struct udp_address own(unsigned which)
{
	struct udp_address address = {.gid = {[10] = 0xff, [11] = 0xff, [12] = 127}};
	unsigned pid = (unsigned)getpid();
	address.gid[13] = (uint8_t)(192 + which);
	address.gid[14] = (uint8_t)(pid >> 8);
	address.gid[15] = (uint8_t)pid;
	return address;
}

static struct taken taken[2];
static struct udp_wire *wires[2];

static void wire_up(unsigned which, const struct udp_address *address, int sock)
{
	wires[which] = malloc(sizeof(*wires[which]));
	assert_int_equal(udp_wire_begin(wires[which], address, sock, 4096), 0);
	taken[which].count = 0;
	wires[which]->take = take;
	wires[which]->take_context = &taken[which];
}

static void begin(const struct udp_address *a, const struct udp_address *b)
{
	int first = udp_open(a, UDP_ROCE_PORT), second = udp_open(b, UDP_ROCE_PORT);
	assert_true(first >= 0 && second >= 0);
	wire_up(0, a, first);
	wire_up(1, b, second);
}

static void end(void)
{
	for (unsigned i = 0; i < 2; i++) {
		udp_wire_end(wires[i]);
		free(wires[i]);
	}
}

static struct path path_to(const struct udp_address *to)
{
	struct path path = {.ip = {.src_port = 0xc123, .hop_limit = 64}};
	memcpy(path.ip.dgid, to->gid, 16);
	return path;
}

static bool copy(void *to, const void *from, size_t bytes, uint32_t *crc)
{
	*crc = crc32_ieee_copy(*crc, to, from, bytes);
	return true;
}

static bool copy_nothing(void *to, const void *from, size_t bytes, uint32_t *crc)
{
	(void)to, (void)from, (void)bytes, (void)crc;
	return false;
}

/* A packet by one of the two ways: with its payload, or with where that lies. */
static bool put(struct udp_wire *wire, const struct path *path, uint32_t qpn, uint32_t psn,
                size_t bytes)
{
	uint8_t data[4096];
	for (size_t i = 0; i < bytes; i++)
		data[i] = pattern(psn, i);
	struct ib_packet packet = {.payload = data, .payload_bytes = bytes};
	bool brought = psn % 3 == 0;
	packet.bth.opcode = 0x0a; /* RC RDMA WRITE only */
	packet.bth.dest_qp = qpn;
	packet.bth.psn = psn;
	packet.bth.pkey = 0xffff;
	size_t need = IB_BTH_BYTES + IB_RETH_BYTES + bytes + ib_pad_bytes(bytes);
	uint8_t *room = wire->carrier.reserve(wire->carrier.context, path, need);
	if (room == NULL)
		return false;
	if (!brought) {
		assert_int_equal(ib_transport_encode(&packet, room, need), need);
		wire->carrier.commit(wire->carrier.context, path, need);
		return true;
	}
	size_t header = ib_transport_header_encode(&packet, room, need);
	memset(room + header, 0xee, need - header);
	assert_false(wire->carrier.commit_from(wire->carrier.context, path, header, data, bytes,
	                                       copy_nothing));
	assert_true(
	        wire->carrier.commit_from(wire->carrier.context, path, header, data, bytes, copy));
	return true;
}

static void flush(struct udp_wire *wire)
{
	wire->carrier.flush(wire->carrier.context);
}

static void receive(unsigned which, unsigned count)
{
	struct pollfd readable = {.fd = wires[which]->sock, .events = POLLIN};
	while (taken[which].count < count && poll(&readable, 1, WAIT_MS) > 0)
		udp_wire_receive(wires[which]);
	assert_int_equal(taken[which].count, count);
	for (unsigned i = 0; i < count; i++)
		assert_true(taken[which].at[i].right);
}

static void check_order(unsigned which, uint32_t first_psn)
{
	for (unsigned i = 0; i < taken[which].count; i++)
		assert_int_equal(taken[which].at[i].psn, first_psn + i);
}

static void exchange(const struct udp_address *a, const struct udp_address *b)
{
	begin(a, b);
	struct path path = path_to(b);
	/* Full ones, a short one that ends its train, then others; more than the arena holds at
	 * once. */
	enum { COUNT = 150 };
	for (unsigned i = 0; i < COUNT; i++)
		assert_true(put(wires[0], &path, 0x123456, 1000 + i,
		                i % 40 == 39 ? 5
		                : i < 100    ? 4096
		                             : i * 3));
	flush(wires[0]);
	receive(1, COUNT);
	check_order(1, 1000);
	for (unsigned i = 0; i < COUNT; i++) {
		assert_memory_equal(taken[1].at[i].sgid, a->gid, 16);
		assert_memory_equal(taken[1].at[i].dgid, b->gid, 16);
		assert_in_range(taken[1].at[i].src_port, 0xc000, 0xffff);
		assert_int_equal(taken[1].at[i].src_port, taken[1].at[0].src_port);
		assert_int_equal(taken[1].at[i].hop_limit, 64);
		assert_int_equal(taken[1].at[i].traffic_class, UDP_ECT);
		assert_false(taken[1].at[i].congested);
		assert_int_equal(taken[1].at[i].sl, 8 | 2); /* behind UDP over IPv4 */
	}
	assert_int_equal(wires[0]->counts.sent, COUNT);
	assert_int_equal(wires[1]->counts.received, COUNT);
	assert_int_equal(wires[1]->counts.bad, 0);
	/* And back, with a mark of congestion on the way. */
	path = path_to(a);
	path.ip.traffic_class = 0x80 | UDP_CE;
	path.ip.hop_limit = 7;
	assert_true(put(wires[1], &path, 2, 5, 0));
	flush(wires[1]);
	receive(0, 1);
	assert_true(taken[0].at[0].congested);
	assert_int_equal(taken[0].at[0].traffic_class, 0x80 | UDP_CE);
	assert_int_equal(taken[0].at[0].hop_limit, 7);
	end();
}

static void test_ipv4(void **state)
{
	(void)state;
	struct udp_address a = own(0), b = own(1);
	exchange(&a, &b);
}

/* The nodes of a machine have LIDs, and addresses made of them. */
static void test_lid(void **state)
{
	(void)state;
	struct udp_address a = own(0), b = own(1), node = a;
	node.gid[13] = 72;
	begin(&a, &b);
	udp_wire_end(wires[0]);
	assert_int_equal(udp_wire_begin(wires[0], &node, -1, 4096), 0);
	struct path path = path_to(&b);
	assert_true(put(wires[0], &path, 1, 1, 8));
	flush(wires[0]);
	receive(1, 1);
	assert_int_equal(taken[1].at[0].slid, (uint16_t)getpid());
	/* Another address of the loopback is not one of theirs. */
	path = path_to(&b);
	assert_true(put(wires[1], &path, 1, 2, 8));
	flush(wires[1]);
	receive(1, 2);
	assert_int_equal(taken[1].at[1].slid, 0);
	end();
}

/* One address has to do: then both ends are one node, which LOCAL=off makes of it. */
static void test_ipv6(void **state)
{
	(void)state;
	struct udp_address six;
	assert_true(udp_address_parse("::1", &six));
	int sock = udp_open(&six, UDP_ROCE_PORT);
	if (sock < 0) {
		print_message("[::1]:%u: %s: not tried\n", UDP_ROCE_PORT, strerror(-sock));
		skip();
	}
	wire_up(0, &six, sock);
	struct path path = path_to(&six);
	for (unsigned i = 0; i < 100; i++)
		assert_true(put(wires[0], &path, 9, i, i < 80 ? 1024 : i));
	flush(wires[0]);
	receive(0, 100);
	check_order(0, 0);
	assert_memory_equal(taken[0].at[0].sgid, six.gid, 16);
	assert_int_equal(taken[0].at[0].sl, 8 | 1);
	assert_int_equal(wires[0]->counts.bad, 0);
	udp_wire_end(wires[0]);
	free(wires[0]);
}

/* Trains save calls: as many packets as fit go at once, each with the identification that it has in
 * there. */
static void test_trains(void **state)
{
	(void)state;
	struct udp_address a = own(0), b = own(1);
	begin(&a, &b);
	struct path path = path_to(&b);
	for (unsigned i = 0; i < UDP_MAX_PACKETS + 2; i++)
		assert_true(put(wires[0], &path, 1, i, 256));
	assert_int_equal(wires[0]->queues[SERVICE_NORMAL].count, 2);
	assert_int_equal(wires[0]->queues[SERVICE_NORMAL].trains[0].train.packets, UDP_MAX_PACKETS);
	flush(wires[0]);
	assert_int_equal(wires[0]->queues[SERVICE_NORMAL].count, 0);
	receive(1, UDP_MAX_PACKETS + 2);
	check_order(1, 0);
	for (unsigned i = 0; i < UDP_MAX_PACKETS + 2; i++)
		assert_int_equal(taken[1].at[i].ip_id, i % UDP_MAX_PACKETS);
	/* As long as IPv4 allows. */
	for (unsigned i = 0; i < 16; i++)
		assert_true(put(wires[0], &path, 1, 66 + i, 4096));
	assert_int_equal(wires[0]->queues[SERVICE_NORMAL].count, 2);
	assert_int_equal(wires[0]->queues[SERVICE_NORMAL].trains[0].train.packets, 15);
	/* Another source port that means another socket, another class, another process: trains of
	 * their own. */
	flush(wires[0]);
	assert_true(put(wires[0], &path, 1, 82, 64));
	path.ip.src_port++;
	assert_true(put(wires[0], &path, 1, 83, 64));
	path.ip.traffic_class = 8;
	assert_true(put(wires[0], &path, 1, 84, 64));
	wires[0]->slot_shift = STEER_SLOT_SHIFT;
	assert_true(put(wires[0], &path, 1 + (UDP_SENDERS << STEER_SLOT_SHIFT), 85, 64));
	assert_int_equal(wires[0]->queues[SERVICE_NORMAL].count, 4);
	flush(wires[0]);
	receive(1, 86);
	assert_int_not_equal(taken[1].at[82].src_port, taken[1].at[83].src_port);
	end();
}

/* A kernel that does not cut trains: the packets go all the same, with the ICRC of packets that go
 * alone. */
static void test_without_trains(void **state)
{
	(void)state;
	struct udp_address a = own(0), b = own(1);
	int no_checksum = 1;
	begin(&a, &b);
	struct path path = path_to(&b);
	uint32_t sender = (0xc123u ^ 0xc123u >> 8) % UDP_SENDERS;
	assert_true(put(wires[0], &path, 1, 0, 64));
	flush(wires[0]);
	/* Without checksums the kernel refuses to cut (EINVAL). */
	assert_int_equal(setsockopt(wires[0]->queues[SERVICE_NORMAL].senders[sender].sock,
	                            SOL_SOCKET, SO_NO_CHECK, &no_checksum, sizeof(no_checksum)),
	                 0);
	for (unsigned i = 1; i < 30; i++)
		assert_true(put(wires[0], &path, 1, i, i == 29 ? 12 : 64));
	flush(wires[0]);
	assert_false(wires[0]->trains_work);
	for (unsigned i = 30; i < 80; i++)
		assert_true(put(wires[0], &path, 1, i, 64));
	flush(wires[0]);
	receive(1, 80);
	check_order(1, 0);
	for (unsigned i = 0; i < 80; i++)
		assert_int_equal(taken[1].at[i].ip_id, 0);
	assert_int_equal(wires[0]->counts.sent, 80);
	assert_int_equal(wires[0]->counts.refused, 0);
	end();
}

/* What the kernel does not send is lost, as on any network, and what follows is not. */
static void test_refused(void **state)
{
	(void)state;
	struct udp_address a = own(0), b = own(1), nowhere;
	begin(&a, &b);
	assert_true(udp_address_parse("198.51.100.7", &nowhere)); /* not from 127.0.0.0/8 */
	struct path path = path_to(&nowhere), good = path_to(&b);
	for (unsigned i = 0; i < 3; i++)
		assert_true(put(wires[0], &path, 1, i, 64));
	assert_true(put(wires[0], &good, 1, 3, 64));
	flush(wires[0]);
	receive(1, 1);
	assert_int_equal(wires[0]->counts.refused, 3);
	assert_int_equal(wires[0]->counts.sent, 1);
	assert_true(wires[0]->trains_work);
	end();
}

static void send_raw(int sock, const struct udp_address *to, const uint8_t *data, uint32_t bytes,
                     uint32_t packet_bytes)
{
	int error;
	struct udp_train train = {.to = *to,
	                          .tos = UDP_ECT,
	                          .hop_limit = UDP_HOP_LIMIT,
	                          .packets = (uint16_t)((bytes + packet_bytes - 1) / packet_bytes),
	                          .packet_bytes = packet_bytes,
	                          .bytes = bytes,
	                          .data = data};
	assert_int_equal(udp_send(sock, &train, 1, &error), 1);
}

static void test_damaged(void **state)
{
	(void)state;
	struct udp_address a = own(0), b = own(1);
	static const uint8_t noise[200] = {1, 2, 3};
	begin(&a, &b);
	int sock = wires[0]->queues[SERVICE_NORMAL].senders[0].sock;
	for (uint32_t bytes = 1; bytes < sizeof(noise); bytes += 11)
		send_raw(sock, &b, noise, bytes, bytes);
	struct path path = path_to(&b);
	assert_true(put(wires[0], &path, 1, 0, 64));
	wires[0]->queues[SERVICE_NORMAL].arena[30] ^= 1;
	flush(wires[0]);
	assert_true(put(wires[0], &path, 1, 1, 64));
	flush(wires[0]);
	receive(1, 1);
	check_order(1, 1);
	assert_int_equal(wires[1]->counts.bad, (sizeof(noise) + 10) / 11 + 1);
	end();
}

static bool is_joined(const struct udp_wire *wire)
{
	int joined = 0;
	socklen_t bytes = sizeof(joined);
	assert_int_equal(getsockopt(wire->sock, IPPROTO_UDP, UDP_GRO, &joined, &bytes), 0);
	return joined != 0;
}

/* @count packets that came damaged. */
static void receive_bad(unsigned which, unsigned count)
{
	struct pollfd readable = {.fd = wires[which]->sock, .events = POLLIN};
	uint64_t end = wires[which]->counts.bad + wires[which]->counts.foreign + count;
	while (wires[which]->counts.bad + wires[which]->counts.foreign < end &&
	       poll(&readable, 1, WAIT_MS) > 0)
		udp_wire_receive(wires[which]);
	assert_int_equal(wires[which]->counts.bad + wires[which]->counts.foreign, end);
}

/* Two processes behind one address: each gets its own, and trains never mix them. */
static void test_two_processes(void **state)
{
	(void)state;
	static struct steer steer;
	struct udp_address a = own(0), b = own(1);
	assert_int_equal(steer_open(&steer, &b, UDP_ROCE_PORT, &steer_by_bth), 0);
	for (unsigned i = 0; i < 2; i++) {
		int sock = steer_take(&steer, 5 + i);
		assert_true(sock >= 0);
		wire_up(i, &b, dup(sock));
		wires[i]->slot_shift = STEER_SLOT_SHIFT;
		wires[i]->slot = 5 + i;
	}
	static struct udp_wire sender;
	assert_int_equal(udp_wire_begin(&sender, &a, -1, 4096), 0);
	sender.slot_shift = STEER_SLOT_SHIFT;
	struct path path = path_to(&b);
	for (unsigned i = 0; i < 60; i++)
		assert_true(put(&sender, &path, (5 + i / 3 % 2) << STEER_SLOT_SHIFT | i, i, 128));
	flush(&sender);
	for (unsigned which = 0; which < 2; which++) {
		receive(which, 30);
		for (unsigned i = 0; i < 30; i++)
			assert_int_equal(taken[which].at[i].qpn >> STEER_SLOT_SHIFT, 5 + which);
		assert_int_equal(wires[which]->counts.foreign, 0);
	}
	/* Noise that looks as if it were for several says nothing. */
	uint8_t noise[4 * 64] = {0};
	for (unsigned i = 0; i < 4; i++)
		be32_store(noise + 64 * i + 4, (5 + i % 2) << STEER_SLOT_SHIFT);
	send_raw(sender.queues[SERVICE_NORMAL].senders[0].sock, &b, noise, sizeof(noise), 64);
	receive_bad(0, 4);
	assert_int_equal(wires[0]->counts.foreign, 0);
	assert_true(is_joined(wires[0]));
	/* Somebody who mixes them in one train, or a card that joins them: what is not ours is
	 * left, and nothing is joined for a while. */
	sender.slot_shift = 24;
	for (unsigned i = 0; i < 4; i++)
		assert_true(put(&sender, &path, (5 + i % 2) << STEER_SLOT_SHIFT, 100 + i, 128));
	flush(&sender);
	receive(0, 32);
	assert_int_equal(wires[0]->counts.foreign, 2);
	assert_false(is_joined(wires[0]));
	udp_wire_receive(wires[0]);
	assert_false(is_joined(wires[0]));
	assert_true(wires[0]->apart_ns > clock_now_ns() && wires[0]->pause_ns == UDP_APART_NS);
	wires[0]->apart_ns = clock_now_ns() - 1; /* it has passed */
	udp_wire_receive(wires[0]);
	assert_true(is_joined(wires[0]));
	/* The next time it is longer, up to a limit. */
	for (unsigned i = 0; i < 6; i++) {
		for (unsigned k = 0; k < 2; k++)
			assert_true(put(&sender, &path, (5 + k) << STEER_SLOT_SHIFT, 200 + k, 128));
		flush(&sender);
		receive(0, 33 + i);
		assert_false(is_joined(wires[0]));
		wires[0]->apart_ns = clock_now_ns() - 1;
		udp_wire_receive(wires[0]);
	}
	assert_int_equal(wires[0]->pause_ns, UDP_APART_MAX_NS);
	/* A socket is handed on: the next process begins afresh. */
	for (unsigned k = 0; k < 2; k++)
		assert_true(put(&sender, &path, (5 + k) << STEER_SLOT_SHIFT, 200 + k, 128));
	flush(&sender);
	receive(0, 39);
	assert_false(is_joined(wires[0]));
	static struct udp_wire heir;
	assert_int_equal(udp_wire_begin(&heir, &b, dup(wires[0]->sock), 4096), 0);
	assert_true(is_joined(&heir));
	udp_wire_end(&heir);
	udp_wire_end(&sender);
	end();
	steer_close(&steer);
}

static bool put_to_group(struct udp_wire *wire, const char *group, uint32_t qpn, uint32_t psn)
{
	struct udp_address address = {0};
	assert_int_equal(inet_pton(AF_INET6, group, address.gid), 1);
	struct path path = path_to(&address);
	bool done = put(wire, &path, qpn, psn, 64);
	flush(wire);
	return done;
}

static unsigned receive_groups(unsigned which, unsigned count)
{
	struct pollfd readable[UDP_MAX_GROUPS];
	for (unsigned i = 0; i < UDP_MAX_GROUPS; i++)
		readable[i] = (struct pollfd){.fd = wires[which]->groups[i].sock, .events = POLLIN};
	while (taken[which].count < count && poll(readable, UDP_MAX_GROUPS, WAIT_MS) > 0)
		udp_wire_receive_groups(wires[which]);
	udp_wire_receive_groups(wires[which]); /* on the loopback what was sent is there */
	return taken[which].count;
}

/* Datagrams to groups: to all members, in the group's own name; the GID may be of the other family.
 */
static void test_groups(void **state)
{
	(void)state;
	static const char *const groups[] = {"::ffff:224.77.1.2", "ff0e::77:1"};
	struct udp_address a = own(0), b = own(1);
	uint8_t gid[2][16];
	begin(&a, &b);
	for (unsigned i = 0; i < 2; i++) {
		inet_pton(AF_INET6, groups[i], gid[i]);
		for (unsigned which = 0; which < 2; which++)
			if (udp_wire_join(wires[which], gid[i]) < 0) {
				print_message("no groups on the loopback: not tried\n");
				end();
				skip();
			}
	}
	udp_wire_loop(wires[0], true);
	for (unsigned i = 0; i < 2; i++)
		assert_true(put_to_group(wires[0], groups[i], 0xffffff, i));
	assert_true(put_to_group(wires[0], "::ffff:224.77.1.3", 0xffffff, 2)); /* nobody's */
	assert_true(put_to_group(wires[0], groups[0], 5, 3)); /* not to a group after all */
	for (unsigned which = 0; which < 2; which++) {
		assert_int_equal(receive_groups(which, 2), 2);
		for (unsigned i = 0; i < 2; i++) {
			/* Sockets are looked at in the order in which they were opened. */
			assert_int_equal(taken[which].at[i].psn, i);
			assert_memory_equal(taken[which].at[i].dgid, gid[i], 16);
			assert_memory_equal(taken[which].at[i].sgid, a.gid, 16);
			assert_true(taken[which].at[i].right);
		}
		assert_int_equal(wires[which]->counts.bad, 0);
	}
	udp_wire_leave(wires[0], gid[0]);
	assert_true(put_to_group(wires[0], groups[0], 0xffffff, 4));
	assert_int_equal(receive_groups(1, 3), 3);
	assert_int_equal(receive_groups(0, 2), 2);
	/* Who polls need not wait for the one who sleeps until something comes: each look takes a
	 * group in turn. */
	assert_true(put_to_group(wires[0], groups[1], 0xffffff, 5));
	assert_true(put_to_group(wires[0], groups[0], 0xffffff, 6));
	for (unsigned i = 0; i < 2; i++)
		udp_wire_receive(wires[1]);
	assert_int_equal(taken[1].count, 5);
	for (unsigned i = 1; i < UDP_MAX_GROUPS; i++) {
		uint8_t more[16] = {
		        [10] = 0xff, [11] = 0xff, [12] = 224, [13] = 78, [15] = (uint8_t)i};
		int sock = udp_wire_join(wires[0], more);
		if (sock == -ENOBUFS || sock == -ENOMEM)
			break; /* the kernel has a limit too */
		assert_true(sock >= 0);
	}
	end();
}

/* A drive looks at the socket each time while packets come, and seldom when they have not for long.
 */
static void test_looks(void **state)
{
	(void)state;
	struct udp_address a = own(0), b = own(1);
	begin(&a, &b);
	struct path path = path_to(&b);
	for (unsigned i = 0; i < PORT_EAGER_LOOKS; i++) {
		assert_int_equal(port_look(&wires[1]->port), 0);
		assert_int_equal(wires[1]->port.skip, 0);
	}
	port_look(&wires[1]->port);
	assert_int_equal(wires[1]->port.skip, PORT_SKIP);
	for (unsigned i = 0; i < PORT_LAZY_LOOKS * (PORT_SKIP + 1); i++)
		port_look(&wires[1]->port);
	assert_true(wires[1]->port.empty_looks > PORT_LAZY_LOOKS);
	assert_true(put(wires[0], &path, 1, 0, 64));
	flush(wires[0]);
	unsigned drives = 0;
	while (taken[1].count == 0 && drives <= PORT_LONG_SKIP) {
		port_look(&wires[1]->port);
		drives++;
	}
	assert_int_equal(taken[1].count, 1);
	assert_int_equal(wires[1]->port.skip, 0);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_ipv4),           cmocka_unit_test(test_lid),
	        cmocka_unit_test(test_ipv6),           cmocka_unit_test(test_trains),
	        cmocka_unit_test(test_without_trains), cmocka_unit_test(test_refused),
	        cmocka_unit_test(test_damaged),        cmocka_unit_test(test_groups),
	        cmocka_unit_test(test_two_processes),  cmocka_unit_test(test_looks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
