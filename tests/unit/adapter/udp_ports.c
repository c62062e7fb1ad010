/* Several addresses of one adapter, on the loopback (MISSION SN3): a packet leaves from the address
 * that its path names, packets that take turns are joined into trains all the same, and what comes
 * to either address is taken. */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "adapter/net/udp.h"

#define WAIT_MS       10000
#define COUNT         40u
#define PAYLOAD_BYTES 1000u

static struct udp_wire *here[2], *there;
static struct {
	unsigned count;
	uint32_t psn; /* the next, by source */
	uint8_t to[16];
} came_from[2], came_to;

static struct udp_address own(unsigned which)
{
	struct udp_address address = {.gid = {[10] = 0xff, [11] = 0xff, [12] = 127}};
	unsigned pid = (unsigned)getpid();
	address.gid[13] = (uint8_t)(204 + which);
	address.gid[14] = (uint8_t)(pid >> 8);
	address.gid[15] = (uint8_t)pid;
	return address;
}

static void take(void *context, const struct path *came, bool congested,
                 const struct ib_packet *packet)
{
	(void)context, (void)congested;
	unsigned from = memcmp(came->ip.sgid, here[1]->address.gid, 16) == 0;
	if (from == 0)
		assert_memory_equal(came->ip.sgid, here[0]->address.gid, 16);
	/* Of one source they keep their order. */
	assert_int_equal(packet->bth.psn % 2, from);
	assert_int_equal(packet->bth.psn / 2, came_from[from].psn++);
	came_from[from].count++;
}

static void take_back(void *context, const struct path *came, bool congested,
                      const struct ib_packet *packet)
{
	(void)context, (void)congested, (void)packet;
	came_to.count++;
	memcpy(came_to.to, came->ip.dgid, 16);
}

static struct udp_wire *wire_at(const struct udp_address *address,
                                void (*taker)(void *, const struct path *, bool,
                                              const struct ib_packet *))
{
	struct udp_wire *wire = malloc(sizeof(*wire));
	int sock = udp_open(address, UDP_ROCE_PORT);
	assert_true(wire != NULL && sock >= 0);
	assert_int_equal(udp_wire_begin(wire, address, sock, 4096), 0);
	wire->take = taker;
	return wire;
}

static int begin(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		struct udp_address address = own(i);
		*(i < 2 ? &here[i] : &there) = wire_at(&address, i < 2 ? take_back : take);
	}
	memset(came_from, 0, sizeof(came_from));
	return 0;
}

static int end(void **state)
{
	(void)state;
	struct udp_wire *all[] = {here[0], here[1], there};
	for (unsigned i = 0; i < 3; i++) {
		udp_wire_end(all[i]);
		free(all[i]);
	}
	return 0;
}

static void put(struct carrier *carrier, const struct udp_address *from,
                const struct udp_address *to, uint32_t psn)
{
	struct path path = {.port = 1, .ip = {.src_port = 0xc123, .hop_limit = 64}};
	uint8_t data[PAYLOAD_BYTES] = {0};
	struct ib_packet packet = {.bth = {.opcode = 0x04,
	                                   .dest_qp = 7,
	                                   .psn = psn,
	                                   .pkey = 0xffff}, /* RC SEND only */
	                           .payload = data,
	                           .payload_bytes = sizeof(data)};
	size_t bytes = IB_BTH_BYTES + sizeof(data);
	memcpy(path.ip.sgid, from->gid, 16);
	memcpy(path.ip.dgid, to->gid, 16);
	uint8_t *room = carrier->reserve(carrier->context, &path, bytes);
	assert_non_null(room);
	assert_int_equal(ib_transport_encode(&packet, room, bytes), bytes);
	carrier->commit(carrier->context, &path, bytes);
}

static void test_each_from_its_own(void **state)
{
	(void)state;
	here[0]->next = here[1];
	struct carrier *carrier = udp_ports_carrier(here[0]);
	assert_ptr_not_equal(carrier, &here[0]->carrier);
	for (uint32_t i = 0; i < COUNT; i++) {
		put(carrier, &here[i % 2]->address, &there->address, i);
		assert_int_equal(here[0]->count, 1); /* one train, */
		assert_int_equal(here[1]->count, i > 0);
		assert_true(carrier->filling(carrier->context));
	}
	assert_true(udp_ports_blocked(here[0])); /* which waits */
	carrier->flush(carrier->context);
	assert_false(udp_ports_blocked(here[0]));
	assert_int_equal(here[0]->counts.sent, COUNT / 2);
	assert_int_equal(here[1]->counts.sent, COUNT / 2);
	struct pollfd readable = {.fd = there->sock, .events = POLLIN};
	while (came_from[0].count + came_from[1].count < COUNT) {
		assert_int_equal(poll(&readable, 1, WAIT_MS), 1);
		udp_wire_receive(there);
	}
	assert_int_equal(came_from[0].count, came_from[1].count);
	assert_int_equal(there->counts.bad, 0);
}

static void test_to_either(void **state)
{
	(void)state;
	here[0]->next = here[1];
	for (unsigned i = 0; i < 2; i++) {
		struct pollfd readable = {.fd = here[i]->sock, .events = POLLIN};
		put(&there->carrier, &there->address, &here[i]->address, i);
		there->carrier.flush(there);
		assert_int_equal(poll(&readable, 1, WAIT_MS), 1);
		came_to.count = 0;
		if (i == 0)
			assert_int_equal(udp_ports_look(here[0]), 1);
		else
			assert_int_equal(udp_ports_receive(here[0]), 1);
		assert_int_equal(came_to.count, 1);
		assert_memory_equal(came_to.to, here[i]->address.gid, 16);
		assert_int_equal(udp_ports_received(here[0]), i + 1);
	}
}

static void test_which(void **state)
{
	(void)state;
	struct udp_wire four = {0}, six = {0}, four_too = {0};
	struct udp_address to_four = own(0), to_six;
	assert_true(udp_address_parse("192.0.2.1", &four.address));
	assert_true(udp_address_parse("2001:db8::1", &six.address));
	assert_true(udp_address_parse("192.0.2.2", &four_too.address));
	assert_true(udp_address_parse("2001:db8::9", &to_six));
	four.next = &six;
	six.next = &four_too;
	assert_ptr_equal(udp_ports_find(&four, four_too.address.gid, to_four.gid), &four_too);
	assert_ptr_equal(udp_ports_find(&four, four.address.gid, to_four.gid), &four);
	assert_ptr_equal(udp_ports_find(&four, NULL, to_four.gid), &four);
	/* One of the other family cannot reach it. */
	assert_ptr_equal(udp_ports_find(&four, six.address.gid, to_four.gid), &four);
	assert_ptr_equal(udp_ports_find(&four, four.address.gid, to_six.gid), &six);
	assert_ptr_equal(udp_ports_find(&four, to_six.gid, to_six.gid), &six);
	/* Nothing can: whichever it is, the kernel refuses it. */
	assert_ptr_equal(udp_ports_find(&four_too, NULL, to_six.gid), &four_too);
}

static void test_one_alone(void **state)
{
	(void)state;
	assert_ptr_equal(udp_ports_carrier(here[0]), &here[0]->carrier);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_each_from_its_own, begin, end),
	        cmocka_unit_test_setup_teardown(test_to_either, begin, end),
	        cmocka_unit_test_setup_teardown(test_one_alone, begin, end),
	        cmocka_unit_test(test_which),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
