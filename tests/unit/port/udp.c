/* UDP sockets for RoCEv2 on the loopback: addresses, trains, what the kernel tells of a datagram,
 * and the bundle that gives each process its packets (DESIGN section 4). */
#include <errno.h>
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

#include "port/refused.h"
#include "port/steer.h"
#include "port/udp.h"

#define WAIT_MS      10000
#define PACKET_BYTES 64u

/* An address of this process's own: others may run this test at the same time. */
static struct udp_address own(unsigned which)
{
	struct udp_address address = {.gid = {[10] = 0xff, [11] = 0xff, [12] = 127}};
	unsigned pid = (unsigned)getpid();
	address.gid[13] = (uint8_t)(128 + which);
	address.gid[14] = (uint8_t)(pid >> 8);
	address.gid[15] = (uint8_t)pid;
	return address;
}

static void test_addresses(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		bool good;
	} table[] = {
	        {"127.0.0.1", true},     {"192.0.2.7", true},     {"2001:db8::7", true},
	        {"::1", true},           {"0.0.0.0", false},      {"255.255.255.255", false},
	        {"224.0.0.1", false},    {"::", false},           {"ff02::1", false},
	        {"fe80::1", false},      {"fe80::1%lo", true},    {"2001:db8::7%lo", false},
	        {"fe80::1%none", false}, {"name.example", false}, {"", false},
	        {"1.2.3", false},        {"fe80::1%", false},     {"::ffff:192.0.2.7", true},
	};
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct udp_address address;
		char text[UDP_ADDRESS_TEXT];
		if (udp_address_parse(table[i].text, &address) != table[i].good)
			fail_msg("'%s' is %s an address", table[i].text,
			         table[i].good ? "" : "not");
		if (!table[i].good || strncmp(table[i].text, "::ffff", 6) == 0)
			continue;
		udp_address_print(&address, text);
		assert_string_equal(text, table[i].text);
	}
}

static void test_lists(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		unsigned count;
	} table[] = {
	        {"192.0.2.1", 1},
	        {"192.0.2.1,192.0.2.2", 2},
	        {"192.0.2.1,2001:db8::1", 2},
	        {"", 0},
	        {"192.0.2.1,", 0},
	        {",192.0.2.1", 0},
	        {",", 0},
	        {"192.0.2.1,192.0.2.2,192.0.2.3", 3},
	        {"10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4,10.0.0.5,10.0.0.6,10.0.0.7,10.0.0.8", 8},
	        {"10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4,10.0.0.5,10.0.0.6,10.0.0.7,10.0.0.8,10.0.0.9",
	         0},
	        {"192.0.2.1,192.0.2.2,192.0.2.1", 0},
	        {"192.0.2.1,192.0.2.1", 0},
	        {"192.0.2.1,x", 0},
	        {"192.0.2.1, 192.0.2.2", 0},
	};
	struct udp_address out[UDP_MAX_ADDRESSES];
	char text[UDP_ADDRESS_TEXT], longest[2 * UDP_ADDRESS_TEXT];
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (udp_addresses_parse(table[i].text, out) != table[i].count)
			fail_msg("'%s' is not %u addresses", table[i].text, table[i].count);
	assert_int_equal(udp_addresses_parse("2001:db8::1,192.0.2.7", out), 2);
	udp_address_print(&out[0], text);
	assert_string_equal(text, "2001:db8::1");
	udp_address_print(&out[1], text);
	assert_string_equal(text, "192.0.2.7");
	memset(longest, '1', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	assert_int_equal(udp_addresses_parse(longest, out), 0);
}

static void test_interfaces(void **state)
{
	(void)state;
	char name[IF_NAMESIZE];
	unsigned mtu;
	struct udp_address address = own(0), other;
	assert_int_equal(udp_interface(&address, name, &mtu), 0);
	assert_string_equal(name, "lo");
	assert_true(mtu >= 1500);
	assert_true(udp_address_parse("198.51.100.7", &other));
	assert_int_equal(udp_interface(&other, name, &mtu), -EADDRNOTAVAIL);
	assert_int_equal(udp_open(&other, UDP_ROCE_PORT), -EADDRNOTAVAIL);
}

/* Wait for the next batch. */
static int next(struct udp_receiver *receiver, int sock, struct udp_came *came)
{
	struct pollfd readable = {.fd = sock, .events = POLLIN};
	if (poll(&readable, 1, WAIT_MS) <= 0)
		return 0;
	return udp_receive(receiver, sock, came);
}

/* Send a train of @packets and check what comes. */
static void exchange(const struct udp_address *to, const struct udp_address *from, unsigned packets,
                     unsigned last_bytes, uint8_t tos, uint8_t hops)
{
	static uint8_t data[UDP_MAX_TRAIN_BYTES];
	struct udp_receiver receiver;
	struct udp_came came[UDP_BATCH];
	uint16_t port;
	int error, got, in = udp_open(to, UDP_ROCE_PORT), out = udp_open_sender(from, &port);
	unsigned bytes = (packets - 1) * PACKET_BYTES + last_bytes, seen = 0;
	assert_true(in >= 0 && out >= 0);
	assert_in_range(port, 0xc000, 0xffff);
	assert_int_equal(udp_receiver_begin(&receiver), 0);
	for (unsigned i = 0; i < bytes; i++)
		data[i] = (uint8_t)(i * 7 + i / 251);
	struct udp_train train = {.to = *to,
	                          .tos = tos,
	                          .hop_limit = hops,
	                          .packets = (uint16_t)packets,
	                          .packet_bytes = packets > 1 ? PACKET_BYTES : bytes,
	                          .bytes = bytes,
	                          .data = data};
	assert_int_equal(udp_send(out, &train, 1, &error), 1);
	while (seen < bytes && (got = next(&receiver, in, came)) > 0)
		for (int i = 0; i < got; i++) {
			assert_true(udp_address_equal(&came[i].from, from));
			assert_int_equal(came[i].from_port, port);
			assert_int_equal(came[i].tos, tos);
			assert_int_equal(came[i].hop_limit, hops);
			assert_int_equal(came[i].packet_bytes, came[i].bytes > PACKET_BYTES
			                                               ? PACKET_BYTES
			                                               : came[i].bytes);
			assert_true(came[i].bytes <= bytes - seen);
			assert_memory_equal(came[i].data, data + seen, came[i].bytes);
			seen += came[i].bytes;
		}
	assert_int_equal(seen, bytes);
	udp_receiver_end(&receiver);
	close(in);
	close(out);
}

static void test_trains(void **state)
{
	(void)state;
	struct udp_address a = own(0), b = own(1);
	exchange(&a, &b, 1, PACKET_BYTES, UDP_ECT, UDP_HOP_LIMIT);
	exchange(&a, &b, 1, 4, 0, 1);
	exchange(&a, &b, UDP_MAX_PACKETS, PACKET_BYTES, UDP_CE, UDP_HOP_LIMIT);
	exchange(&a, &b, 7, 4, 0xb8 | UDP_ECT, 3);
	struct udp_address six;
	assert_true(udp_address_parse("::1", &six));
	int probe = udp_open(&six, 0);
	if (probe < 0) {
		print_message("no IPv6 here: not tried\n");
		return;
	}
	close(probe);
	exchange(&six, &six, 1, PACKET_BYTES, UDP_ECT, UDP_HOP_LIMIT);
	exchange(&six, &six, UDP_MAX_PACKETS, 8, UDP_CE, 9);
}

/* What nobody takes comes back, once: to whom it was, and its beginning. */
static void test_refused(void **state)
{
	(void)state;
	struct udp_address a = own(0), b = own(1);
	struct refused refused;
	uint16_t port;
	int error, out = udp_open_sender(&a, &port), closed = udp_open(&b, UDP_ROCE_PORT);
	assert_true(out >= 0 && closed >= 0);
	close(closed);
	refused_watch(out, &a);
	assert_false(refused_next(out, &refused));
	struct udp_train train = {.to = b,
	                          .hop_limit = UDP_HOP_LIMIT,
	                          .packets = 1,
	                          .packet_bytes = 8,
	                          .bytes = 8,
	                          .data = (const uint8_t *)"nobody's"};
	assert_int_equal(udp_send(out, &train, 1, &error), 1);
	assert_true(refused_next(out, &refused)); /* on the loopback it is there */
	assert_true(udp_address_equal(&refused.to, &b));
	assert_int_equal(refused.port, UDP_ROCE_PORT);
	assert_int_equal(refused.error, ECONNREFUSED);
	assert_int_equal(refused.bytes, 8);
	assert_memory_equal(refused.data, "nobody's", 8);
	assert_false(refused_next(out, &refused));
	close(out);
}

/* Send @count datagrams at once, and take them: nothing is lost or changes places, whatever the
 * size of the last batch. Returns the largest one. */
static int burst(struct udp_receiver *receiver, int in, int out, const struct udp_address *to,
                 unsigned count)
{
	struct udp_train trains[3 * UDP_MAX_TRAINS] = {0};
	struct udp_came came[UDP_BATCH];
	uint32_t numbers[3 * UDP_MAX_TRAINS];
	int error, got, largest = 0;
	unsigned seen = 0;
	for (unsigned i = 0; i < count; i++) {
		numbers[i] = i;
		trains[i] = (struct udp_train){.to = *to,
		                               .tos = UDP_ECT,
		                               .hop_limit = UDP_HOP_LIMIT,
		                               .packets = 1,
		                               .packet_bytes = 4,
		                               .bytes = 4,
		                               .data = (const uint8_t *)&numbers[i]};
	}
	assert_int_equal(udp_send(out, trains, count, &error), count);
	while (seen < count && (got = next(receiver, in, came)) > 0) {
		assert_in_range(got, 1, UDP_BATCH);
		assert_in_range(receiver->batch, 1, UDP_BATCH);
		largest = got > largest ? got : largest;
		for (int i = 0; i < got; i++) {
			assert_int_equal(came[i].bytes, 4);
			assert_memory_equal(came[i].data, &numbers[seen++], 4);
		}
	}
	assert_int_equal(seen, count);
	return largest;
}

static void test_many_datagrams(void **state)
{
	(void)state;
	struct udp_address a = own(0), b = own(1);
	static struct udp_receiver receiver;
	struct udp_came came[UDP_BATCH];
	uint16_t port;
	int in = udp_open(&a, UDP_ROCE_PORT), out = udp_open_sender(&b, &port);
	assert_true(in >= 0 && out >= 0);
	assert_int_equal(udp_receiver_begin(&receiver), 0);
	for (unsigned count = 1; count <= 3 * UDP_MAX_TRAINS; count++)
		burst(&receiver, in, out, &a, count);
	assert_int_equal(burst(&receiver, in, out, &a, 3 * UDP_MAX_TRAINS), UDP_BATCH);
	assert_int_equal(udp_receive(&receiver, in, came), 0);
	udp_receiver_end(&receiver);
	close(in);
	close(out);
}

/* --- the bundle --- */

static void send_to_qp(int out, const struct udp_address *to, uint32_t qpn)
{
	int error;
	uint8_t bth[16] = {
	        [5] = (uint8_t)(qpn >> 16), [6] = (uint8_t)(qpn >> 8), [7] = (uint8_t)qpn};
	struct udp_train train = {.to = *to,
	                          .tos = UDP_ECT,
	                          .hop_limit = UDP_HOP_LIMIT,
	                          .packets = 1,
	                          .packet_bytes = sizeof(bth),
	                          .bytes = sizeof(bth),
	                          .data = bth};
	assert_int_equal(udp_send(out, &train, 1, &error), 1);
}

/* The number of the queue pair that a waiting packet is for; UINT32_MAX: nothing waits. On the
 * loopback what was sent is there. */
static uint32_t qpn_at(int sock)
{
	uint8_t bth[64];
	ssize_t got = recv(sock, bth, sizeof(bth), MSG_DONTWAIT);
	return got == 16 ? (uint32_t)bth[5] << 16 | (uint32_t)bth[6] << 8 | bth[7] : UINT32_MAX;
}

static uint32_t qpn_of(uint32_t slot, uint32_t rest)
{
	return slot << STEER_SLOT_SHIFT | rest;
}

static void test_steering(void **state)
{
	(void)state;
	static struct steer steer, rival;
	static const uint32_t slots[] = {1, 700, 2, 1022, 701};
	enum { COUNT = sizeof(slots) / sizeof(slots[0]) };
	struct udp_address a = own(0), b = own(1);
	uint16_t port;
	int socks[COUNT], out = udp_open_sender(&b, &port);
	assert_int_equal(steer_open(&steer, &a, UDP_ROCE_PORT, &steer_by_bth), 0);
	assert_int_equal(steer_open(&rival, &a, UDP_ROCE_PORT, &steer_by_bth), -EADDRINUSE);
	send_to_qp(out, &a, 1);
	assert_int_equal(qpn_at(steer.at[0].sock), 1);
	for (unsigned i = 0; i < COUNT; i++)
		assert_true((socks[i] = steer_take(&steer, slots[i])) >= 0);
	assert_int_equal(steer_open(&rival, &a, UDP_ROCE_PORT, &steer_by_bth), -EADDRINUSE);
	for (unsigned i = 0; i < COUNT; i++) {
		send_to_qp(out, &a, qpn_of(slots[i], 0));
		send_to_qp(out, &a, qpn_of(slots[i], 0x3fff));
		assert_int_equal(qpn_at(socks[i]), qpn_of(slots[i], 0));
		assert_int_equal(qpn_at(socks[i]), qpn_of(slots[i], 0x3fff));
		assert_int_equal(qpn_at(socks[i]), UINT32_MAX);
	}
	/* Management, groups, slots that nobody has, and what is too short to say. */
	static const uint32_t others[] = {0,
	                                  1,
	                                  0x3fff,
	                                  0xffffff,
	                                  3u << STEER_SLOT_SHIFT,
	                                  699u << STEER_SLOT_SHIFT,
	                                  1023u << STEER_SLOT_SHIFT};
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		send_to_qp(out, &a, others[i]);
		assert_int_equal(qpn_at(steer.at[0].sock), others[i]);
	}
	/* Who has gone hears nothing, and who comes next gets nothing of what was meant for it. */
	send_to_qp(out, &a, qpn_of(700, 5));
	steer_give(&steer, 700);
	send_to_qp(out, &a, qpn_of(700, 6));
	assert_int_equal(qpn_at(steer.at[0].sock), qpn_of(700, 6));
	int again = steer_take(&steer, 33);
	assert_int_equal(again, socks[1]);
	assert_int_equal(qpn_at(again), UINT32_MAX);
	send_to_qp(out, &a, qpn_of(33, 7));
	assert_int_equal(qpn_at(again), qpn_of(33, 7));
	steer_close(&steer);
	assert_int_equal(steer_open(&rival, &a, UDP_ROCE_PORT, &steer_by_bth), 0);
	steer_close(&rival);
	close(out);
}

/* As many as there can be: the program is still one that the kernel takes, and right. */
static void test_steering_to_many(void **state)
{
	(void)state;
	static struct steer steer;
	struct udp_address a = own(2), b = own(1);
	uint16_t port;
	int out = udp_open_sender(&b, &port);
	unsigned count = 0;
	assert_int_equal(steer_open(&steer, &a, UDP_ROCE_PORT, &steer_by_bth), 0);
	int result;
	while ((result = steer_take(&steer, 1 + count * 613 % 1023)) >= 0)
		count++;
	if (result == -EMFILE) {
		print_message("only %u sockets may be open here: tried with these\n", count);
		assert_true(count > 100);
	} else {
		assert_int_equal(result, -ENOSPC);
		assert_int_equal(count, STEER_MAX_SOCKETS - 1);
	}
	for (unsigned i = 0; i < count; i++) {
		uint32_t qpn = qpn_of(steer.at[1 + i].slot, i);
		send_to_qp(out, &a, qpn);
		assert_int_equal(qpn_at(steer.at[1 + i].sock), qpn);
	}
	steer_close(&steer);
	close(out);
}

/* --- ranges: the ports of SCTP --- */

static void send_to_port(int out, const struct udp_address *to, uint32_t number)
{
	int error;
	uint8_t head[12] = {0xab, 0xcd, (uint8_t)(number >> 8), (uint8_t)number};
	struct udp_train train = {.to = *to,
	                          .tos = UDP_ECT,
	                          .packets = 1,
	                          .packet_bytes = sizeof(head),
	                          .bytes = sizeof(head),
	                          .data = head};
	assert_int_equal(udp_send(out, &train, 1, &error), 1);
}

static uint32_t port_at(int sock)
{
	uint8_t head[64];
	ssize_t got = recv(sock, head, sizeof(head), MSG_DONTWAIT);
	return got == 12 ? (uint32_t)head[2] << 8 | head[3] : UINT32_MAX;
}

static void test_steering_by_ranges(void **state)
{
	(void)state;
	static struct steer steer;
	struct udp_address a = own(0), b = own(1);
	uint16_t port;
	int out = udp_open_sender(&b, &port), socks[3];
	assert_int_equal(steer_open(&steer, &a, UDP_ROCE_PORT, &steer_by_sctp), 0);
	for (uint32_t i = 0; i < 3; i++) {
		assert_true((socks[i] = steer_take(&steer, 5 + i)) >= 0);
		assert_int_equal(steer_of(&steer, 5 + i), socks[i]);
	}
	assert_int_equal(steer_of(&steer, 9), -ENOENT);
	assert_int_equal(steer_add(&steer, 9, 1, 1), -ENOENT);
	assert_int_equal(steer_add(&steer, 5, 100, 163), 0);
	assert_int_equal(steer_add(&steer, 5, 100, 163), 0);
	assert_int_equal(steer_add(&steer, 6, 163, 170), -EADDRINUSE);
	assert_int_equal(steer_add(&steer, 6, 90, 200), -EADDRINUSE);
	assert_int_equal(steer_add(&steer, 5, 120, 121), -EADDRINUSE);
	assert_int_equal(steer_add(&steer, 6, 164, 164), 0);
	assert_int_equal(steer_add(&steer, 7, 99, 99), 0);
	assert_int_equal(steer_add(&steer, 7, 65535, 65535), 0);
	static const struct {
		uint32_t number;
		int at; /* of socks; -1: the first, which is the agent's */
	} rows[] = {{98, -1}, {99, 2},   {100, 0},   {131, 0}, {163, 0},
	            {164, 1}, {165, -1}, {65535, 2}, {0, -1},  {65534, -1}};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		send_to_port(out, &a, rows[i].number);
		assert_int_equal(port_at(rows[i].at < 0 ? steer.at[0].sock : socks[rows[i].at]),
		                 rows[i].number);
	}
	steer_remove(&steer, 6, 100, 163); /* which are another's */
	steer_remove(&steer, 5, 100, 163);
	send_to_port(out, &a, 100);
	assert_int_equal(port_at(steer.at[0].sock), 100);
	/* A process that has gone has no ranges any more. */
	steer_give(&steer, 7);
	send_to_port(out, &a, 99);
	assert_int_equal(port_at(steer.at[0].sock), 99);
	assert_int_equal(steer.range_count, 1);
	/* As many as there can be. */
	unsigned count = 1;
	int result;
	while ((result = steer_add(&steer, count % 2 ? 5 : 6, 1000 + count * 10,
	                           1000 + count * 10 + count % 7)) == 0)
		count++;
	assert_int_equal(result, -ENOSPC);
	assert_int_equal(count, STEER_MAX_RANGES);
	for (unsigned i = 1; i < count; i++) {
		send_to_port(out, &a, 1000 + i * 10 + i % 7);
		assert_int_equal(port_at(socks[i % 2 ? 0 : 1]), 1000 + i * 10 + i % 7);
		send_to_port(out, &a, 1000 + i * 10 + i % 7 + 1);
		assert_int_equal(port_at(steer.at[0].sock), 1000 + i * 10 + i % 7 + 1);
	}
	steer_close(&steer);
	close(out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_addresses),
	        cmocka_unit_test(test_lists),
	        cmocka_unit_test(test_interfaces),
	        cmocka_unit_test(test_trains),
	        cmocka_unit_test(test_refused),
	        cmocka_unit_test(test_many_datagrams),
	        cmocka_unit_test(test_steering),
	        cmocka_unit_test(test_steering_to_many),
	        cmocka_unit_test(test_steering_by_ranges),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
