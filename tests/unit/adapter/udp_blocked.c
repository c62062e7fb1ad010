/* The carrier on a host that has no room for packets (EAGAIN): what waits stays in order and goes
 * when there is room again, and until then the engine is told so once the arena is full. Loopback
 * sockets never fill, so the call of port/udp.h stands aside for one here that takes as many trains
 * as it may. */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "adapter/net/udp.h"

#define WAIT_MS 10000
#define PAYLOAD 4096u
#define UNTOLD  UINT32_MAX

static uint32_t room = UNTOLD; /* trains that the host takes */
static uint8_t full_class;     /* it has no room for this traffic class; 0: this is not tested */

unsigned __real_udp_send(int sock, const struct udp_train *trains, unsigned count, int *error);
unsigned __wrap_udp_send(int sock, const struct udp_train *trains, unsigned count, int *error);
unsigned __wrap_udp_send(int sock, const struct udp_train *trains, unsigned count, int *error)
{
	if (full_class != 0 && trains[0].tos == full_class) {
		*error = EAGAIN;
		return 0;
	}
	if (room >= count) {
		room -= room == UNTOLD ? 0 : count;
		return __real_udp_send(sock, trains, count, error);
	}
	unsigned sent = __real_udp_send(sock, trains, room, error);
	room -= sent;
	*error = EAGAIN;
	return sent;
}

static struct udp_wire here, there;
static uint32_t expected; /* the next PSN that must come */

static void take(void *context, const struct path *came, bool congested,
                 const struct ib_packet *packet)
{
	(void)context;
	(void)came;
	(void)congested;
	assert_int_equal(packet->bth.psn, expected);
	assert_int_equal(packet->payload_bytes, PAYLOAD);
	assert_int_equal(packet->payload[PAYLOAD - 1], (uint8_t)expected);
	expected++;
}

static struct udp_address own(unsigned which)
{
	struct udp_address address = {.gid = {[10] = 0xff, [11] = 0xff, [12] = 127}};
	unsigned pid = (unsigned)getpid();
	address.gid[13] = (uint8_t)(196 + which);
	address.gid[14] = (uint8_t)(pid >> 8);
	address.gid[15] = (uint8_t)pid;
	return address;
}

static int begin(void **state)
{
	(void)state;
	struct udp_address a = own(0), b = own(1);
	int sock = udp_open(&b, UDP_ROCE_PORT);
	room = UNTOLD;
	expected = 0;
	if (sock < 0 || udp_wire_begin(&here, &a, -1, PAYLOAD) != 0 ||
	    udp_wire_begin(&there, &b, sock, PAYLOAD) != 0)
		return -1;
	there.take = take;
	return 0;
}

static int end(void **state)
{
	(void)state;
	udp_wire_end(&here);
	udp_wire_end(&there);
	return 0;
}

static bool put_in(uint32_t psn, uint8_t traffic_class)
{
	static uint8_t data[PAYLOAD];
	struct path path = {
	        .ip = {.src_port = 0xc123, .hop_limit = 64, .traffic_class = traffic_class}};
	memcpy(path.ip.dgid, there.address.gid, 16);
	struct ib_packet packet = {.payload = data, .payload_bytes = PAYLOAD};
	packet.bth.opcode = 0x0a; /* RC RDMA WRITE only */
	packet.bth.dest_qp = 1;
	packet.bth.psn = psn;
	packet.bth.pkey = 0xffff;
	memset(data, (int)(uint8_t)psn, sizeof(data));
	size_t need = IB_BTH_BYTES + IB_RETH_BYTES + PAYLOAD;
	uint8_t *at = here.carrier.reserve(here.carrier.context, &path, need);
	if (at == NULL)
		return false;
	assert_int_equal(ib_transport_encode(&packet, at, need), need);
	here.carrier.commit(here.carrier.context, &path, need);
	return true;
}

static bool put(uint32_t psn)
{
	return put_in(psn, 0);
}

static uint32_t put_until_full(uint32_t psn)
{
	while (psn < 1000 && put(psn))
		psn++;
	assert_true(psn < 1000); /* the arena ends somewhere */
	return psn;
}

static void await(uint32_t count)
{
	struct pollfd readable = {.fd = there.sock, .events = POLLIN};
	while (expected < count && poll(&readable, 1, WAIT_MS) > 0)
		udp_wire_receive(&there);
	assert_int_equal(expected, count);
	assert_int_equal(poll(&readable, 1, 0), 0);
}

static void flush(void)
{
	here.carrier.flush(here.carrier.context);
}

/* Nothing goes, the arena fills, nothing is lost. Whoever takes packets next sends first: the
 * engine may have no other turn. */
static void test_full(void **state)
{
	(void)state;
	room = 0;
	uint32_t count = put_until_full(0);
	assert_true(count * PAYLOAD > UDP_ARENA_BYTES / 2);
	assert_true(udp_wire_blocked(&here));
	assert_true(here.counts.blocked > 0);
	assert_int_equal(here.counts.sent, 0);
	flush();
	assert_false(put(count));
	await(0);
	room = UNTOLD;
	udp_wire_receive(&here);
	assert_false(udp_wire_blocked(&here));
	await(count);
	assert_int_equal(here.counts.sent, count);
	assert_int_equal(here.counts.refused, 0);
	assert_true(put(count)); /* and it goes on */
	flush();
	await(count + 1);
}

/* There is room for one train at a time, and the engine goes on behind what waits. */
static void test_little_by_little(void **state)
{
	(void)state;
	room = 0;
	uint32_t count = put_until_full(0), turns = 0;
	while (udp_wire_blocked(&here) && turns < UDP_MAX_TRAINS + 1) {
		room = 1;
		flush();
		turns++;
		assert_true(udp_wire_blocked(&here) || room == 0);
	}
	assert_in_range(turns, 2, UDP_MAX_TRAINS);
	await(count);
	/* New packets behind one that waits. */
	room = 0;
	assert_true(put(count));
	flush();
	assert_true(udp_wire_blocked(&here));
	assert_true(put(count + 1));
	room = UNTOLD;
	flush();
	await(count + 2);
	assert_int_equal(here.counts.sent, count + 2);
}

/* --- classes of service (IP9) --- */

#define BULK   (0x20u | UDP_ECT)
#define URGENT (0xb8u | UDP_ECT)

static struct {
	uint32_t psn[8];
	uint8_t tos[8];
	unsigned count;
} order;

static void take_in_order(void *context, const struct path *came, bool congested,
                          const struct ib_packet *packet)
{
	(void)context;
	(void)congested;
	order.psn[order.count % 8] = packet->bth.psn;
	order.tos[order.count++ % 8] = came->ip.traffic_class;
}

static void await_order(unsigned count)
{
	struct pollfd readable = {.fd = there.sock, .events = POLLIN};
	while (order.count < count && poll(&readable, 1, WAIT_MS) > 0)
		udp_wire_receive(&there);
	assert_int_equal(order.count, count);
	assert_int_equal(poll(&readable, 1, 0), 0);
}

/* Of the packets of one turn the urgent ones leave first, the bulk data last. */
static void test_urgent_first(void **state)
{
	(void)state;
	order.count = 0;
	there.take = take_in_order;
	assert_true(put_in(1, 0x20) && put_in(2, 0) && put_in(3, 0xb8) && put_in(4, 0x20));
	flush();
	await_order(4);
	const uint32_t psns[] = {3, 2, 1, 4};
	const uint8_t classes[] = {URGENT, UDP_ECT, BULK, BULK};
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(order.psn[i], psns[i]);
		assert_int_equal(order.tos[i], classes[i]);
	}
}

/* The host has no room for bulk data: only that waits, and stops its senders when there is too much
 * of it. */
static void test_full_of_bulk_data(void **state)
{
	(void)state;
	uint32_t count = 0;
	order.count = 0;
	there.take = take_in_order;
	full_class = BULK;
	while (count < 1000 && put_in(count, 0x20))
		count++;
	assert_in_range(count, UDP_ARENA_BYTES / 2 / PAYLOAD, 999);
	assert_true(put_in(5000, 0xb8) && put_in(5001, 0));
	flush();
	await_order(2);
	assert_int_equal(order.psn[0], 5000);
	assert_int_equal(order.psn[1], 5001);
	assert_true(udp_wire_blocked(&here));
	assert_false(put_in(count, 0x20));
	full_class = 0;
	flush();
	await_order(2 + count);
	assert_false(udp_wire_blocked(&here));
	assert_true(put_in(count, 0x20));
	flush();
	await_order(3 + count);
}

static int option_of(uint8_t service, int level, int name)
{
	int value = -1;
	socklen_t bytes = sizeof(value);
	for (unsigned i = 0; i < UDP_SENDERS; i++)
		if (here.queues[service].senders[i].sock >= 0 &&
		    here.queues[service].senders[i].tos != 0)
			assert_int_equal(getsockopt(here.queues[service].senders[i].sock, level,
			                            name, &value, &bytes),
			                 0);
	return value;
}

/* The kernel's own queues hear of the class, and another traffic class of the same class of service
 * goes with the message. */
static void test_sockets_have_the_class(void **state)
{
	(void)state;
	order.count = 0;
	there.take = take_in_order;
	assert_int_equal(here.queues[SERVICE_URGENT].senders[0].sock, -1); /* none before use */
	assert_true(put_in(1, 0xb8) && put_in(2, 0xa0) && put_in(3, 0x20));
	flush();
	await_order(3);
	assert_int_equal(order.tos[0], URGENT);
	assert_int_equal(order.tos[1], 0xa0 | UDP_ECT);
	assert_int_equal(order.tos[2], BULK);
	assert_int_equal(option_of(SERVICE_URGENT, SOL_SOCKET, SO_PRIORITY), UDP_PRIORITY_URGENT);
	assert_int_equal(option_of(SERVICE_URGENT, IPPROTO_IP, IP_TOS), URGENT);
	assert_int_equal(option_of(SERVICE_BULK, SOL_SOCKET, SO_PRIORITY), UDP_PRIORITY_BULK);
	assert_int_equal(option_of(SERVICE_NORMAL, SOL_SOCKET, SO_PRIORITY), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_full, begin, end),
	        cmocka_unit_test_setup_teardown(test_little_by_little, begin, end),
	        cmocka_unit_test_setup_teardown(test_urgent_first, begin, end),
	        cmocka_unit_test_setup_teardown(test_full_of_bulk_data, begin, end),
	        cmocka_unit_test_setup_teardown(test_sockets_have_the_class, begin, end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
