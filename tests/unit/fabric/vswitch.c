/* The forwarding process: the worked examples, figure 3 block by block, and random networks in
 * which every packet that arrives finds its way back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/crc.h"
#include "base/prng.h"
#include "fabric/vswitch.h"
#include "wire/be.h"

static void all_up(struct vswitch *vswitch, unsigned first, unsigned last)
{
	for (unsigned i = first; i <= last; i++) {
		if (vswitch_is_hardware(i))
			assert_true(vswitch_set_nic_port(vswitch, (uint8_t)i, 1 + i / 2,
			                                 (uint8_t)(i % 2)));
		vswitch->states[i] = VSWITCH_PORT_UP;
	}
}

static void expect_route(const struct ibc_route *route, uint8_t first, uint8_t second, bool reverse,
                         uint8_t pointer)
{
	assert_int_equal(route->hops, 2);
	assert_int_equal(route->ports[0], first);
	assert_int_equal(route->ports[1], second);
	assert_int_equal(route->reverse, reverse);
	assert_int_equal(route->pointer, pointer);
}

/* Paragraph 18, byte for byte: 3-2-63 [Fwd;1] from node 102 to node 104, and back. */
static void vs2_paragraph_18(void **state)
{
	(void)state;
	struct vswitch s106, s108, n104, n102;
	uint8_t bytes[IBC_MAX_BYTES];
	struct ibc_packet packet = {.type = IBC_TYPE_READ_REQUEST,
	                            .source_apid = 32,
	                            .dest_apid = 33,
	                            .route = {.pointer = 1, .hops = 2, .ports = {3, 2}}};
	vswitch_init(&s106, 0, true);
	vswitch_init(&s108, 0, true);
	vswitch_init(&n104, 104, false);
	vswitch_init(&n102, 102, false);
	all_up(&s106, 1, 4);
	all_up(&s108, 1, 4);
	all_up(&n104, 33, 33);
	all_up(&n102, 32, 32);
	size_t length = ibc_encode(&packet, bytes, sizeof(bytes));
	static const uint8_t at_102[] = {3, 2, 63, 0}, at_108[] = {2, 2, 63, 0},
	                     at_104[] = {2, 1, 63, 0};
	assert_int_equal(bytes[1], 0x01);
	assert_memory_equal(bytes + 32, at_102, 4);

	struct vswitch_result result = vswitch_forward(&s106, &packet, 2);
	assert_int_equal(result.action, VSWITCH_TRANSMIT);
	assert_int_equal(result.port, 3);
	ibc_rewrite(bytes, &result.route);
	assert_int_equal(bytes[1], 0x02);
	assert_memory_equal(bytes + 32, at_108, 4);

	assert_int_equal(ibc_decode(&packet, bytes, length), IBC_OK);
	result = vswitch_forward(&s108, &packet, 1);
	assert_int_equal(result.action, VSWITCH_TRANSMIT);
	assert_int_equal(result.port, 2);
	ibc_rewrite(bytes, &result.route);
	assert_int_equal(bytes[1], 0x03);
	assert_memory_equal(bytes + 32, at_104, 4);

	assert_int_equal(ibc_decode(&packet, bytes, length), IBC_OK);
	result = vswitch_forward(&n104, &packet, 0);
	assert_int_equal(result.action, VSWITCH_DELIVER);
	assert_int_equal(result.applications, 1ull << 33);

	/* The answer. */
	packet.type = IBC_TYPE_READ_RESPONSE;
	packet.source_apid = 33;
	packet.dest_apid = 32;
	packet.route = ibc_turn_around(&packet.route);
	expect_route(&packet.route, 2, 1, true, 2);
	result = vswitch_forward(&s108, &packet, 2);
	assert_int_equal(result.port, 1);
	expect_route(&result.route, 2, 2, true, 1);
	packet.route = result.route;
	result = vswitch_forward(&s106, &packet, 3);
	assert_int_equal(result.port, 2);
	expect_route(&result.route, 3, 2, true, 0);
	packet.route = result.route;
	result = vswitch_forward(&n102, &packet, 1);
	assert_int_equal(result.action, VSWITCH_DELIVER);
	assert_int_equal(result.applications, 1ull << 32);
}

/* Figure 2: GUID 1 port 1 is virtual port 5; the table leads both ways. */
static void vs4_figure_2(void **state)
{
	(void)state;
	struct vswitch vswitch;
	vswitch_init(&vswitch, 1, false);
	for (uint8_t i = 0; i < 4; i++)
		assert_true(vswitch_set_nic_port(&vswitch, (uint8_t)(4 + i), 1 + i / 2u, i % 2));
	struct vswitch_arrival arrival = {.hardware = true, .nic_port = {.guid = 1, .number = 1}};
	assert_int_equal(vswitch_inport(&vswitch, &arrival), 5);
	arrival.nic_port = (struct vswitch_nic_port){.guid = 2, .number = 0};
	assert_int_equal(vswitch_inport(&vswitch, &arrival), 6);
	arrival.nic_port.guid = 3;
	assert_int_equal(vswitch_inport(&vswitch, &arrival), -1);
	assert_int_equal(vswitch.nic_ports[7].guid, 2);
	assert_int_equal(vswitch.nic_ports[7].number, 1);
	assert_false(vswitch_set_nic_port(&vswitch, 8, 1, 1)); /* it has a place */
	assert_true(vswitch_set_nic_port(&vswitch, 5, 1, 1));  /* this one */
	assert_false(vswitch_set_nic_port(&vswitch, 16, 9, 0));
}

/* Paragraph 36: whoever has no access to a NIC sends nothing through it and gets nothing from it;
 * nothing else changes. */
static void vs4_access_to_nics(void **state)
{
	(void)state;
	struct vswitch vswitch;
	struct vswitch_decision decision;
	uint8_t bytes[IBC_MAX_BYTES];
	vswitch_init(&vswitch, 1, false);
	for (uint8_t i = 0; i < 4; i++)
		assert_true(vswitch_set_nic_port(&vswitch, (uint8_t)(4 + i), 1 + i / 2u, i % 2));
	for (unsigned i = 4; i < 8; i++)
		vswitch.states[i] = VSWITCH_PORT_UP;
	vswitch.states[33] = vswitch.states[40] = VSWITCH_PORT_UP;
	vswitch.nic_ports[6].denied = vswitch.nic_ports[7].denied = 1ull << 33;
	static const struct {
		uint8_t inport, port, dest; /* port 0xff: the route is at its end */
		enum vswitch_action action;
		uint64_t applications;
	} rows[] = {
	        {33, 5, 0, VSWITCH_TRANSMIT, 0},
	        {33, 6, 0, VSWITCH_REJECT, 0},
	        {33, 7, 0, VSWITCH_REJECT, 0},
	        {40, 6, 0, VSWITCH_TRANSMIT, 0},
	        {31, 6, 0, VSWITCH_TRANSMIT, 0}, /* the switch itself */
	        {5, 6, 0, VSWITCH_TRANSMIT, 0},  /* transit */
	        {6, 5, 0, VSWITCH_TRANSMIT, 0},
	        {6, 33, 0, VSWITCH_REJECT, 0},
	        {6, 40, 0, VSWITCH_DELIVER, 1ull << 40},
	        {5, 33, 0, VSWITCH_DELIVER, 1ull << 33},
	        {40, 33, 0, VSWITCH_DELIVER, 1ull << 33},
	        {6, 0xff, 33, VSWITCH_REJECT, 0},
	        {6, 0xff, 40, VSWITCH_DELIVER, 1ull << 40},
	        {6, 0xff, 63, VSWITCH_DELIVER, 1ull << 40},
	        {5, 0xff, 63, VSWITCH_DELIVER, 1ull << 33 | 1ull << 40},
	        {6, 0xff, 31, VSWITCH_CONSUME, 0},
	};
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ibc_packet packet = {.type = IBC_TYPE_WRITE_REQUEST,
		                            .source_apid = 50,
		                            .dest_apid = rows[i].dest,
		                            .route = {.pointer = 1,
		                                      .hops = rows[i].port != 0xff,
		                                      .ports = {rows[i].port}}};
		if (rows[i].port == 0xff)
			packet.route.ports[0] = 0;
		struct vswitch_result result = vswitch_forward(&vswitch, &packet, rows[i].inport);
		assert_int_equal(result.action, rows[i].action);
		assert_int_equal(result.applications, rows[i].applications);
		size_t length = ibc_encode(&packet, bytes, sizeof(bytes));
		assert_int_equal(vswitch_pass(&vswitch, bytes, length, rows[i].inport, &decision),
		                 IBC_OK);
		assert_int_equal(decision.action, rows[i].action);
		assert_int_equal(decision.applications, rows[i].applications);
		if (rows[i].action == VSWITCH_REJECT) {
			assert_int_equal(result.reason, IBC_REASON_NOT_ALLOWED);
			assert_int_equal(decision.reason, IBC_REASON_NOT_ALLOWED);
			assert_memory_equal(&result.route, &packet.route, sizeof(packet.route));
		}
	}
}

/* Block 208: an application is known by its APID, if it is registered. */
static void vs3_inport_of_an_application(void **state)
{
	(void)state;
	struct vswitch vswitch;
	struct vswitch_arrival arrival = {.apid = 40};
	vswitch_init(&vswitch, 1, false);
	assert_int_equal(vswitch_inport(&vswitch, &arrival), -1);
	vswitch.states[40] = VSWITCH_PORT_UP;
	assert_int_equal(vswitch_inport(&vswitch, &arrival), 40);
	vswitch.states[3] = VSWITCH_PORT_UP;
	arrival.apid = 3; /* nobody speaks as a hardware port */
	assert_int_equal(vswitch_inport(&vswitch, &arrival), -1);
	vswitch.states[63] = VSWITCH_PORT_UP;
	arrival.apid = 63; /* no route leads back to the end mark */
	assert_int_equal(vswitch_inport(&vswitch, &arrival), -1);
	arrival.apid = 64;
	assert_int_equal(vswitch_inport(&vswitch, &arrival), -1);
	vswitch.plain = true;
	arrival.apid = 40;
	assert_int_equal(vswitch_inport(&vswitch, &arrival), -1);
}

/* The three groups of 64 ports. */
static void vs1_groups(void **state)
{
	(void)state;
	for (unsigned i = 0; i < VSWITCH_PORTS; i++) {
		assert_int_equal(vswitch_is_hardware(i), i <= 15);
		assert_int_equal(vswitch_is_general(i), i >= 32 && i <= 62);
		assert_int_equal(vswitch_is_special(i), (i >= 16 && i <= 31) || i == 63);
	}
}

/* Blocks 212 to 236 as a table: route 5-40-6, ports 4 to 6 and 33, 40 there, 6 down. */
static void vs3_actions(void **state)
{
	(void)state;
	static const struct {
		const char *what;
		uint8_t pointer, inport;
		bool reverse;
		uint8_t dapid;
		enum vswitch_action action;
		uint8_t port; /* or APID, or reason */
	} rows[] = {
	        {"out of a hardware port", 1, 4, false, 33, VSWITCH_TRANSMIT, 5},
	        {"from an application", 1, 33, false, 33, VSWITCH_TRANSMIT, 5},
	        {"to an application that the route names", 2, 4, false, 33, VSWITCH_DELIVER, 40},
	        {"a port that is down", 3, 4, false, 33, VSWITCH_REJECT, IBC_REASON_PORT_DOWN},
	        {"a port that it came through", 1, 5, false, 33, VSWITCH_REJECT, IBC_REASON_LOOP},
	        {"the end: an application", 4, 4, false, 33, VSWITCH_DELIVER, 33},
	        {"the end: nobody", 4, 4, false, 34, VSWITCH_REJECT, IBC_REASON_NO_APPLICATION},
	        {"the end: the switch", 4, 4, false, 31, VSWITCH_CONSUME, 0},
	        {"back, not at the end", 1, 4, true, 33, VSWITCH_TRANSMIT, 5},
	        {"back, at the end", 0, 4, true, 33, VSWITCH_DELIVER, 33},
	        {"back, at the end: nobody", 0, 4, true, 35, VSWITCH_REJECT,
	         IBC_REASON_NO_APPLICATION},
	};
	struct vswitch vswitch;
	vswitch_init(&vswitch, 1, false);
	all_up(&vswitch, 4, 6);
	all_up(&vswitch, 33, 33);
	all_up(&vswitch, 40, 40);
	vswitch.states[6] = VSWITCH_PORT_DOWN;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ibc_packet packet = {.type = IBC_TYPE_READ_REQUEST,
		                            .dest_apid = rows[i].dapid,
		                            .route = {.reverse = rows[i].reverse,
		                                      .pointer = rows[i].pointer,
		                                      .hops = 3,
		                                      .ports = {5, 40, 6}}};
		struct vswitch_result result = vswitch_forward(&vswitch, &packet, rows[i].inport);
		print_message("%s\n", rows[i].what);
		assert_int_equal(result.action, rows[i].action);
		if (result.action == VSWITCH_TRANSMIT)
			assert_int_equal(result.port, rows[i].port);
		if (result.action == VSWITCH_DELIVER)
			assert_int_equal(result.applications, 1ull << rows[i].port);
		if (result.action == VSWITCH_REJECT) {
			assert_int_equal(result.reason, rows[i].port);
			/* Rewritten completely or not at all. */
			assert_memory_equal(&result.route, &packet.route, sizeof(result.route));
		}
	}
	struct ibc_packet packet = {.type = IBC_TYPE_READ_REQUEST,
	                            .route = {.pointer = 1, .hops = 1, .ports = {7}}};
	assert_int_equal(vswitch_forward(&vswitch, &packet, 4).reason, IBC_REASON_NO_PORT);
	packet.route.ports[0] = 50;
	assert_int_equal(vswitch_forward(&vswitch, &packet, 4).reason, IBC_REASON_NO_APPLICATION);
}

/* Paragraph 28: in 0-4-5 with the pointer at 4, forward leads to 5 and reverse to 0 (the text has
 * them the other way round; paragraph 18 decides). */
static void vs3_paragraph_28(void **state)
{
	(void)state;
	struct ibc_route route = {.pointer = 2, .hops = 3, .ports = {0, 4, 5}};
	vswitch_advance(&route);
	assert_int_equal(route.ports[route.pointer - 1], 5);
	route.pointer = 2;
	route.reverse = true;
	vswitch_advance(&route);
	assert_int_equal(route.ports[route.pointer - 1], 0);
}

/* To every application at once, and to a node that is another one. */
static void vs3_several_applications(void **state)
{
	(void)state;
	struct vswitch vswitch;
	vswitch_init(&vswitch, 7, false);
	all_up(&vswitch, 0, 3);
	all_up(&vswitch, 16, 16);
	all_up(&vswitch, 60, 62);
	struct ibc_packet packet = {.type = IBC_TYPE_WRITE_REQUEST_NO_ACK,
	                            .dest_apid = VSWITCH_APID_ALL,
	                            .route = {.pointer = 1}};
	struct vswitch_result result = vswitch_forward(&vswitch, &packet, 0);
	assert_int_equal(result.action, VSWITCH_DELIVER);
	assert_int_equal(result.applications, 1ull << 16 | 7ull << 60);
	packet.dest_node = 8;
	assert_int_equal(vswitch_forward(&vswitch, &packet, 0).reason, IBC_REASON_NO_APPLICATION);
	packet.dest_node = 7;
	assert_int_equal(vswitch_forward(&vswitch, &packet, 0).action, VSWITCH_DELIVER);
}

/* A NACK goes back the way that the packet came, and nobody answers it. */
static void vs3_nack(void **state)
{
	(void)state;
	struct ibc_packet packet = {.type = IBC_TYPE_WRITE_REQUEST,
	                            .source_apid = 32,
	                            .dest_apid = 50,
	                            .transaction = 5,
	                            .route = {.pointer = 3, .hops = 2, .ports = {2, 1}}};
	struct ibc_packet nack, none;
	assert_true(vswitch_nack(&packet, IBC_REASON_NO_APPLICATION, &nack));
	assert_int_equal(nack.type, IBC_TYPE_NACK);
	assert_int_equal(nack.reason, IBC_REASON_NO_APPLICATION);
	assert_int_equal(nack.dest_apid, 32);
	assert_int_equal(nack.source_apid, 50);
	assert_int_equal(nack.transaction, 5);
	expect_route(&nack.route, 2, 1, true, 2);
	assert_false(vswitch_nack(&nack, IBC_REASON_NO_APPLICATION, &none));
}

/* A pointer out of range, and a route that is too long: the NACK says so, and takes the way back
 * that was used. Their checks are right, so they are not damaged. */
static void vs3_nack_of_a_bad_route(void **state)
{
	(void)state;
	static const struct {
		unsigned hops, pointer;
		enum ibc_reason reason;
	} rows[] = {{2, 9, IBC_REASON_POINTER},
	            {2, 0, IBC_REASON_POINTER},
	            {63, 2, IBC_REASON_TOO_LONG}};
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint8_t bytes[IBC_MAX_BYTES], same[IBC_MAX_BYTES];
		struct vswitch vswitch;
		struct vswitch_decision decision;
		struct ibc_packet nack,
		        packet = {.type = IBC_TYPE_READ_REQUEST,
		                  .source_apid = 33,
		                  .transaction = 5,
		                  .route = {.pointer = 1, .hops = 2, .ports = {2, 1}}};
		size_t route = (rows[i].hops + 4u) & ~3u, length = 32 + route + 4;
		vswitch_init(&vswitch, 0, true);
		assert_true(ibc_encode(&packet, bytes, sizeof(bytes)) > 0);
		bytes[1] = (uint8_t)rows[i].pointer;
		if (rows[i].hops > 2) {
			memset(bytes + 32, 2, rows[i].hops);
			bytes[2] = (uint8_t)rows[i].hops;
			bytes[32 + rows[i].hops] = IBC_END_OF_ROUTE;
		}
		be32_store(bytes + 28, crc32c(crc32c(0, bytes, 28), bytes + 32, route));
		memcpy(same, bytes, length);
		assert_int_equal(vswitch_pass(&vswitch, bytes, length, 3, &decision), IBC_OK);
		assert_int_equal(decision.action, VSWITCH_REJECT);
		assert_int_equal(decision.reason, rows[i].reason);
		assert_memory_equal(bytes, same, length);
		assert_true(vswitch_rejected(bytes, length, decision.reason, &packet));
		assert_true(vswitch_nack(&packet, decision.reason, &nack));
		assert_int_equal(nack.dest_apid, 33);
		assert_int_equal(nack.transaction, 5);
		assert_true(nack.route.reverse);
		assert_int_equal(nack.route.pointer, nack.route.hops);
		assert_int_equal(nack.route.hops, rows[i].pointer == 9   ? 2
		                                  : rows[i].pointer == 0 ? 0
		                                                         : 1);
		assert_true(ibc_encode(&nack, bytes, sizeof(bytes)) > 0);
	}
}

/* Random packets, some of them damaged, through random switches: forwarding a packet where it is
 * does what decoding, forwarding and rewriting it do. */
static void vs3_in_place(void **state)
{
	(void)state;
	struct prng prng;
	unsigned seen[VSWITCH_ACTION_COUNT] = {0}, damaged = 0;
	prng_seed(&prng, 1);
	for (unsigned round = 0; round < 20000; round++) {
		uint8_t bytes[IBC_MAX_BYTES], same[IBC_MAX_BYTES];
		struct vswitch vswitch;
		vswitch_init(&vswitch, prng_below(&prng, 3), prng_chance(&prng, 500));
		for (unsigned i = 0; i < VSWITCH_PORTS; i++)
			vswitch.states[i] =
			        prng_chance(&prng, 500) ? VSWITCH_PORT_UP : VSWITCH_PORT_ABSENT;
		vswitch.states[prng_below(&prng, VSWITCH_HARDWARE_PORTS)] = VSWITCH_PORT_DOWN;
		struct ibc_packet packet = {.type = IBC_TYPE_READ_REQUEST,
		                            .dest_apid = (uint8_t)prng_below(&prng, 64),
		                            .dest_node = prng_below(&prng, 3),
		                            .payload = same,
		                            .payload_bytes = (uint16_t)prng_below(&prng, 40)};
		struct ibc_route *route = &packet.route;
		route->hops = (uint8_t)prng_below(&prng, IBC_MAX_HOPS + 1);
		for (unsigned i = 0; i < route->hops; i++)
			route->ports[i] = (uint8_t)prng_below(&prng, IBC_END_OF_ROUTE);
		route->reverse = prng_chance(&prng, 500);
		route->pointer = (uint8_t)(prng_below(&prng, route->hops + 1u) + !route->reverse);
		memset(same, 0, sizeof(same));
		size_t length = ibc_encode(&packet, bytes, sizeof(bytes));
		assert_true(length > 0);
		if (prng_chance(&prng, 100))
			bytes[prng_below(&prng, length)] ^= (uint8_t)(1 << prng_below(&prng, 8));
		memcpy(same, bytes, length);
		uint8_t inport = (uint8_t)prng_below(&prng, IBC_END_OF_ROUTE);
		struct vswitch_decision decision;
		enum ibc_verdict verdict = ibc_decode_header(&packet, bytes, length);
		assert_int_equal(vswitch_pass(&vswitch, same, length, inport, &decision), verdict);
		if (verdict == IBC_OK) {
			struct vswitch_result result = vswitch_forward(&vswitch, &packet, inport);
			ibc_rewrite(bytes, &result.route);
			assert_int_equal(decision.action, result.action);
			assert_int_equal(decision.port, result.port);
			assert_int_equal(decision.applications, result.applications);
			assert_int_equal(decision.reason, result.reason);
			seen[result.action]++;
		} else {
			damaged++;
		}
		assert_memory_equal(bytes, same, length);
	}
	for (unsigned i = 0; i < VSWITCH_ACTION_COUNT; i++)
		assert_true(seen[i] > 0);
	assert_true(damaged > 0);
}

/* --- random networks --- */

#define SWITCHES 40u

struct wire {
	unsigned to; /* switch */
	uint8_t port;
	bool there;
};

struct network {
	struct vswitch at[SWITCHES];
	struct wire wires[SWITCHES][VSWITCH_HARDWARE_PORTS];
};

static void join(struct network *net, struct prng *prng, unsigned a, unsigned b)
{
	uint8_t pa = (uint8_t)prng_below(prng, VSWITCH_HARDWARE_PORTS);
	uint8_t pb = (uint8_t)prng_below(prng, VSWITCH_HARDWARE_PORTS);
	if (net->wires[a][pa].there || net->wires[b][pb].there || (a == b && pa == pb))
		return;
	net->wires[a][pa] = (struct wire){b, pb, true};
	net->wires[b][pb] = (struct wire){a, pa, true};
}

/* Follow @packet from switch @at, where it came through @inport, until it is delivered or rejected.
 * Returns where it is then. */
static unsigned follow(const struct network *net, struct ibc_packet *packet, unsigned at,
                       uint8_t *inport, struct vswitch_result *result)
{
	for (unsigned hop = 0; hop <= IBC_MAX_HOPS; hop++) {
		*result = vswitch_forward(&net->at[at], packet, *inport);
		packet->route = result->route;
		if (result->action != VSWITCH_TRANSMIT)
			return at;
		const struct wire *wire = &net->wires[at][result->port];
		assert_true(wire->there);
		*inport = wire->port;
		at = wire->to;
	}
	fail_msg("a route without end");
	return at;
}

/* A packet that is delivered came along its route, and its return route leads back to its sender;
 * one that is rejected draws a NACK that arrives at the sender. Loops and parallel wires included.
 */
static void vs5_every_answer_finds_its_way(void **state)
{
	(void)state;
	struct network *net = calloc(1, sizeof(*net));
	unsigned delivered = 0, refused = 0;
	assert_non_null(net);
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct prng prng;
		prng_seed(&prng, seed);
		memset(net, 0, sizeof(*net));
		for (unsigned i = 0; i < SWITCHES; i++) {
			vswitch_init(&net->at[i], 0, false);
			net->at[i].states[32] = VSWITCH_PORT_UP;
		}
		for (unsigned i = 0; i < 4 * SWITCHES; i++)
			join(net, &prng, (unsigned)prng_below(&prng, SWITCHES),
			     (unsigned)prng_below(&prng, SWITCHES));
		for (unsigned i = 0; i < SWITCHES; i++)
			for (uint8_t p = 0; p < VSWITCH_HARDWARE_PORTS; p++)
				if (net->wires[i][p].there) {
					vswitch_set_nic_port(&net->at[i], p, 100 + i, p);
					net->at[i].states[p] = VSWITCH_PORT_UP;
				}
		for (unsigned n = 0; n < 500; n++) {
			unsigned from = (unsigned)prng_below(&prng, SWITCHES);
			struct ibc_packet packet = {.type = IBC_TYPE_WRITE_REQUEST,
			                            .source_apid = 32,
			                            .dest_apid = 32,
			                            .transaction = n,
			                            .route = {.pointer = 1}};
			/* A random walk, now and then back, or through a port that is not there. */
			unsigned at = from, came = 32;
			packet.route.hops = (uint8_t)(1 + prng_below(&prng, IBC_MAX_HOPS));
			for (unsigned i = 0; i < packet.route.hops; i++) {
				uint8_t port = 0;
				for (unsigned tries = 0; tries < 64; tries++) {
					port = (uint8_t)prng_below(&prng, VSWITCH_HARDWARE_PORTS);
					if ((net->wires[at][port].there && port != came) ||
					    prng_chance(&prng, 1))
						break;
				}
				packet.route.ports[i] = port;
				const struct wire *wire = &net->wires[at][port];
				came = wire->there ? wire->port : came;
				at = wire->there ? wire->to : at;
			}
			uint8_t inport = 32;
			struct vswitch_result result;
			unsigned end = follow(net, &packet, from, &inport, &result);
			struct ibc_packet answer;
			if (result.action == VSWITCH_DELIVER) {
				assert_int_equal(end, at);
				answer = packet;
				answer.type = IBC_TYPE_WRITE_RESPONSE;
				answer.route = ibc_turn_around(&packet.route);
				delivered++;
			} else {
				assert_int_equal(result.action, VSWITCH_REJECT);
				assert_true(vswitch_nack(&packet, result.reason, &answer));
				refused++;
			}
			/* It leaves through the port that the packet came by. */
			uint8_t back_port = inport;
			unsigned back = end;
			if (vswitch_is_hardware(inport)) {
				back = net->wires[end][inport].to;
				back_port = net->wires[end][inport].port;
				back = follow(net, &answer, back, &back_port, &result);
			} else {
				result = vswitch_forward(&net->at[end], &answer, 31);
			}
			assert_int_equal(result.action, VSWITCH_DELIVER);
			assert_int_equal(result.applications, 1ull << 32);
			assert_int_equal(back, from);
			assert_int_equal(answer.transaction, n);
		}
	}
	print_message("%u delivered, %u refused\n", delivered, refused);
	assert_true(delivered > 1000 && refused > 100);
	free(net);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(vs1_groups),
	        cmocka_unit_test(vs2_paragraph_18),
	        cmocka_unit_test(vs3_actions),
	        cmocka_unit_test(vs3_paragraph_28),
	        cmocka_unit_test(vs3_inport_of_an_application),
	        cmocka_unit_test(vs3_several_applications),
	        cmocka_unit_test(vs3_nack),
	        cmocka_unit_test(vs3_nack_of_a_bad_route),
	        cmocka_unit_test(vs3_in_place),
	        cmocka_unit_test(vs4_figure_2),
	        cmocka_unit_test(vs4_access_to_nics),
	        cmocka_unit_test(vs5_every_answer_finds_its_way),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
