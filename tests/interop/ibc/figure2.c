/* Figure 2: a node whose two NICs have four ports, the virtual ports 4 to 7. It sends and receives
 * by both NICs, it is in transit between two other nodes, and what comes through a port of a NIC
 * has come through the virtual port that stands for it (figure 3, blocks 204 to 206). Special
 * identifiers are reached from other nodes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "ibc/member.h"
#include "net.h"
#include "peer.h"
#include "wire/be.h"
#include "wire/ibc_config.h"

static const char nodes_text[] = "key 00112233445566778899aabbccddeeff\n"
                                 "node a id 1\n"
                                 "    nic guid 1 ports 4 5\n"
                                 "    nic guid 2 ports 6 7\n"
                                 "node b id 2\n"
                                 "    nic guid 3 ports 0 1\n"
                                 "node c id 3\n"
                                 "    nic guid 4 ports 0 1\n"
                                 "switch s id 4 ports 0-15\n";
/* The same with the second NIC for some applications only. */
static const char access_text[] = "key 00112233445566778899aabbccddeeff\n"
                                  "node a id 1\n"
                                  "    nic guid 1 ports 4 5\n"
                                  "    nic guid 2 ports 6 7\n"
                                  "    apids 16-30 40-49\n"
                                  "node b id 2\n"
                                  "    nic guid 3 ports 0 1\n"
                                  "node c id 3\n"
                                  "    nic guid 4 ports 0 1\n"
                                  "switch s id 4 ports 0-15\n";
static const char links_text[] =
        "link a:5 b:0 shm\nlink a:6 c:0 udp 127.0.0.1:7101 127.0.0.1:7102\n"
        "link b:1 c:1 shm\nlink a:4 s:15 shm\n";
static const char *const names[] = {"a", "b", "c", "s"};
#define NODES 4u

static char file[NET_FILE_BYTES];
static pid_t running[NODES];

/* Ask the switch at the end of the route of @target for its counters. */
static bool ask_counters(struct IBC_Target target, uint64_t counters[IBC_COUNTER_COUNT])
{
	static uint8_t answer[IBC_LIMIT_PAYLOAD];
	uint8_t command[IBC_CONFIG_COMMAND_BYTES] = {0};
	for (unsigned i = 0; i < IBC_KEY_BYTES; i++)
		command[i] = (uint8_t)(i * 0x11);
	command[16] = IBC_CONFIG_COUNTERS;
	target.Destination = 31;
	struct timespec time = {0, 200000000};
	if (IBC_Request(&target, IBC_READ_REQUEST, command, sizeof(command), &time, 1, answer,
	                sizeof(answer), NULL) != 0)
		return false;
	assert_int_equal(answer[3], IBC_COUNTER_COUNT);
	for (unsigned i = 0; i < IBC_COUNTER_COUNT; i++)
		counters[i] = be64_load(answer + IBC_CONFIG_ANSWER_BYTES + 8 * i);
	return true;
}

static struct IBC_Target way(unsigned apid, unsigned hops, uint8_t first, uint8_t second,
                             uint8_t third)
{
	return (struct IBC_Target){
	        .OutPort = IBC_PORT_ROUTE,
	        .Destination = apid,
	        .Route = {.Pointer = 1, .Hops = (uint8_t)hops, .Ports = {first, second, third}}};
}

/* Start the network, and become a client of @node when all links around the ring are up. */
static void enter(const char *text, const char *node, uint8_t first, uint8_t second, uint8_t third)
{
	uint64_t counters[IBC_COUNTER_COUNT], end = clock_now_ns() + 20000000000u;
	net_write(file, text, links_text);
	for (unsigned i = 0; i < NODES; i++)
		running[i] = net_start(file, names[i]);
	setenv("HEDDLE_NODE", node, 1);
	assert_int_equal(IBC_Init(33, NULL, NULL, NULL), 0);
	while (!ask_counters(way(31, 3, first, second, third), counters)) {
		assert_true(clock_now_ns() < end);
		usleep(5000);
	}
}

static int leave(void **state)
{
	(void)state;
	IBC_Finish();
	for (unsigned i = 0; i < NODES; i++)
		if (running[i] != 0)
			net_end(running[i], SIGTERM);
	memset(running, 0, sizeof(running));
	unlink(file);
	return 0;
}

/* An application on @node that tells everything about the packets that it gets. */
static int told[2];

static void teller(int channel)
{
	struct IBC_Info info;
	IBC_HANDLE handle;
	MUST(IBC_RecvPost(&handle) == 0);
	peer_say(channel, 'r');
	while (IBC_RecvWaitInfo(handle, &peer_soon, NULL, &info) == IBC_RECVDONE) {
		MUST(write(told[1], &info, sizeof(info)) == sizeof(info));
		if (info.Type == IBC_READ_REQUEST)
			MUST(IBC_Respond(&info, IBC_READ_RESPONSE, 0, "read", 4) == 0);
	}
	IBC_Finish();
}

static struct peer start_on(const char *node, unsigned apid, void (*run)(int channel))
{
	const char *own = getenv("HEDDLE_NODE");
	char before[16];
	snprintf(before, sizeof(before), "%s", own);
	setenv("HEDDLE_NODE", node, 1);
	struct peer peer = peer_start(apid, run);
	setenv("HEDDLE_NODE", before, 1);
	assert_int_equal(peer.apid, apid);
	assert_int_equal(peer_hear(peer.channel), 'r');
	return peer;
}

/* What the teller has got, after a request that was answered. */
static struct IBC_Info ask(const struct IBC_Target *target, struct IBC_Info *answer)
{
	struct IBC_Info info;
	assert_int_equal(
	        IBC_Request(target, IBC_READ_REQUEST, NULL, 0, &peer_soon, 1, NULL, 0, answer), 0);
	assert_int_equal(read(told[0], &info, sizeof(info)), sizeof(info));
	return info;
}

static void assert_route(const struct IBC_Info *info, bool reverse, unsigned pointer, unsigned hops,
                         const char *ports)
{
	assert_int_equal(info->Route.Reverse, reverse);
	assert_int_equal(info->Route.Pointer, pointer);
	assert_int_equal(info->Route.Hops, hops);
	for (unsigned i = 0; i < hops; i++)
		assert_int_equal(info->Route.Ports[i], (unsigned char)ports[i]);
}

/* From hardware port to hardware port: b reaches c through a, which forwards without any
 * application. The port of arrival is the virtual port of GUID 1, port 1: 5. */
static void vs5_a_node_is_in_transit(void **state)
{
	(void)state;
	uint64_t before[IBC_COUNTER_COUNT], after[IBC_COUNTER_COUNT];
	struct IBC_Info answer;
	enter(nodes_text, "b", 0, 6, 1);
	assert_int_equal(pipe(told), 0);
	struct peer teller_c = start_on("c", 40, teller);
	struct IBC_Target at_a = way(31, 1, 0, 0, 0);
	assert_true(ask_counters(at_a, before));
	struct IBC_Target target = {.GUID = 3,
	                            .OutPort = PORT_0,
	                            .DestNode = 3,
	                            .Destination = 40,
	                            .Route = {.Pointer = 1, .Hops = 1, .Ports = {6}}};
	for (unsigned i = 0; i < 10; i++) {
		struct IBC_Info info = ask(&target, &answer);
		assert_route(&info, false, 2, 1, "\5");
		assert_int_equal(info.GUID, 4);
		assert_int_equal(info.Port, 0);
		assert_int_equal(info.Source, 33);
		assert_route(&answer, true, 0, 1, "\6");
		assert_int_equal(answer.GUID, 3);
		assert_int_equal(answer.Port, 0);
	}
	assert_true(ask_counters(at_a, after));
	assert_int_equal(after[IBC_COUNTER_FORWARDED] - before[IBC_COUNTER_FORWARDED], 20);
	assert_int_equal(after[IBC_COUNTER_DELIVERED], before[IBC_COUNTER_DELIVERED]);
	/* Twice in transit: b, a, c, b, and out of b's first port to a. */
	struct IBC_Target round = way(31, 4, 0, 6, 1);
	round.Route.Ports[3] = 0;
	assert_true(ask_counters(round, after));
	assert_true(after[IBC_COUNTER_FORWARDED] > before[IBC_COUNTER_FORWARDED]);
	peer_end(&teller_c, SIGKILL);
}

/* Both NICs of a, and both ports of them. */
static void vs4_two_nics(void **state)
{
	(void)state;
	static const struct {
		IBC_GUID guid;
		unsigned port;
		const char *to;
		IBC_GUID there; /* and port 0 of it */
	} rows[] = {{1, PORT_1, "b", 3}, {2, PORT_0, "c", 4}};
	struct IBC_Info answer;
	enter(nodes_text, "a", 5, 1, 0);
	assert_int_equal(pipe(told), 0);
	for (unsigned i = 0; i < 2; i++) {
		struct peer peer = start_on(rows[i].to, 40, teller);
		struct IBC_Target target = {.GUID = rows[i].guid,
		                            .OutPort = rows[i].port,
		                            .Destination = 40,
		                            .Route = {.Pointer = 1}};
		struct IBC_Info info = ask(&target, &answer);
		assert_int_equal(info.GUID, rows[i].there);
		assert_int_equal(info.Port, 0);
		assert_route(&info, false, 1, 0, "");
		assert_int_equal(answer.GUID, rows[i].guid);
		assert_int_equal(answer.Port, rows[i].port);
		/* The same through a's own switch: the virtual port stands in the route. */
		target = way(40, 1, (uint8_t)(i == 0 ? 5 : 6), 0, 0);
		info = ask(&target, &answer);
		assert_route(&info, false, 2, 1, "\41"); /* a's application 33 */
		assert_route(&answer, true, 0, 1, i == 0 ? "\5" : "\6");
		assert_int_equal(answer.GUID, rows[i].guid);
		peer_end(&peer, SIGKILL);
	}
	/* The switch at the third port, nothing at the fourth, and no fifth. */
	struct IBC_Target target = {
	        .GUID = 1, .OutPort = PORT_0, .Destination = 31, .Route = {.Pointer = 1}};
	uint64_t counters[IBC_COUNTER_COUNT];
	assert_true(ask_counters(target, counters));
	target.GUID = 2;
	target.OutPort = PORT_1;
	assert_int_equal(IBC_SendTo(&target, IBC_WRITE_REQUEST, 1, "x", 1), IBC_HARDWARE_ERROR);
	target.OutPort = 2;
	assert_int_equal(IBC_SendTo(&target, IBC_WRITE_REQUEST, 1, "x", 1), IBC_BADPARAM);
}

/* Services at APIDs 16 to 30, and all applications of a node, from another node. */
static void vs8_special_identifiers_across_nodes(void **state)
{
	(void)state;
	struct IBC_Info answer;
	enter(nodes_text, "b", 0, 6, 1);
	assert_int_equal(pipe(told), 0);
	peer_take_key();
	for (unsigned apid = 16; apid <= 30; apid++) {
		struct peer peer = start_on("c", apid, teller);
		struct IBC_Target target = way(apid, 2, 0, 6, 0);
		struct IBC_Info info = ask(&target, &answer);
		assert_int_equal(info.Destination, apid);
		assert_int_equal(info.Client, apid);
		assert_int_equal(answer.Source, apid);
		peer_end(&peer, SIGKILL);
	}
	unsetenv("HEDDLE_IBC_KEY");
	struct peer first = start_on("c", 40, teller), second = start_on("c", 41, teller);
	struct IBC_Target all = way(IBC_CLIENTALL, 2, 0, 6, 0);
	unsigned seen = 0;
	assert_int_equal(IBC_SendTo(&all, IBC_WRITE_REQUEST_NO_ACK, 1, "all", 3), 0);
	for (unsigned i = 0; i < 2; i++) {
		struct IBC_Info info;
		assert_int_equal(read(told[0], &info, sizeof(info)), sizeof(info));
		assert_int_equal(info.Destination, IBC_CLIENTALL);
		assert_int_equal(info.Length, 3);
		seen |= 1u << (info.Client - 40);
	}
	assert_int_equal(seen, 3);
	/* Each of them may answer a request to all. */
	assert_int_equal(
	        IBC_Request(&all, IBC_READ_REQUEST, NULL, 0, &peer_soon, 1, NULL, 0, &answer), 0);
	assert_in_range(answer.Source, 40, 41);
	peer_end(&first, SIGKILL);
	peer_end(&second, SIGKILL);
}

static void ignore_lane(struct member *member, unsigned from)
{
	(void)member;
	(void)from;
}

/* A client of node a with APID 50 that asks nobody, and writes packets for the second NIC right
 * into the lane of the port process. */
static void force(int channel)
{
	static const struct member_owner owner = {.leaves = ignore_lane};
	static const uint8_t no_key[AGENT_VS_KEY_BYTES];
	struct member member;
	MUST(IBC_Finish() == 0);
	MUST(member_begin(&member, &owner, NULL, no_key) && member_attach(&member, 50, 0) == 50);
	struct record direct = {.inport = 50,
	                        .outport = 6,
	                        .packet = {.type = IBC_TYPE_WRITE_REQUEST,
	                                   .source_apid = 50,
	                                   .dest_apid = 40,
	                                   .guid = 2,
	                                   .route = {.pointer = 1}}};
	struct record routed = direct;
	routed.by_route = true;
	routed.packet.route = (struct ibc_route){.pointer = 2, .hops = 1, .ports = {50}};
	for (unsigned i = 0; i < 5; i++) {
		MUST(member_put(&member, member.board->ports_member, &direct));
		MUST(member_put(&member, member.board->ports_member, &routed));
	}
	peer_say(channel, 'r');
	peer_hear(channel);
}

/* Paragraph 36: IBC_Init() lists the NICs to which the client has access; through others it neither
 * sends nor receives, and its own library does not decide that. */
static void vs8_access_to_some_nics(void **state)
{
	(void)state;
	uint64_t guids[4], counters[IBC_COUNTER_COUNT], refused,
	        end = clock_now_ns() + 20000000000u;
	unsigned count = 4;
	struct IBC_Info info;
	struct IBC_Target own = way(31, 0, 0, 0, 0), around = way(40, 2, 5, 1, 0);
	enter(access_text, "a", 5, 1, 0);
	assert_int_equal(pipe(told), 0);
	struct peer peer = start_on("c", 40, teller);
	/* 33 has access to the first NIC. */
	assert_int_equal(IBC_Init(34, NULL, guids, &count), 0);
	assert_int_equal(count, 1);
	assert_int_equal(guids[0], 1);
	struct IBC_Target target = {
	        .GUID = 2, .OutPort = PORT_0, .Destination = 40, .Route = {.Pointer = 1}};
	assert_int_equal(IBC_SendTo(&target, IBC_WRITE_REQUEST, 1, "x", 1), IBC_BADPARAM);
	struct IBC_Target routed = way(40, 1, 6, 0, 0);
	assert_int_equal(
	        IBC_Request(&routed, IBC_READ_REQUEST, NULL, 0, &peer_soon, 1, NULL, 0, &info),
	        IBC_NACKED);
	assert_int_equal(info.Reason, IBC_NACK_NOT_ALLOWED);
	ask(&around, &info); /* the other way, over b */
	assert_int_equal(info.Source, 40);
	/* A client that does without the library is refused by the process of the ports. */
	assert_true(ask_counters(own, counters));
	refused = counters[IBC_COUNTER_REJECTED + IBC_REASON_NOT_ALLOWED];
	struct peer forcing = peer_start(50, force);
	assert_int_equal(forcing.apid, 50);
	assert_int_equal(peer_hear(forcing.channel), 'r');
	while (ask_counters(own, counters) &&
	       counters[IBC_COUNTER_REJECTED + IBC_REASON_NOT_ALLOWED] < refused + 10)
		assert_true(clock_now_ns() < end);
	peer_end(&forcing, SIGKILL);
	/* With 41 it has access to both, and what it sends from 41 arrives: the first since. */
	count = 4;
	assert_int_equal(IBC_Init(41, NULL, guids, &count), 0);
	assert_int_equal(count, 2);
	target.Client = 41;
	info = ask(&target, &info);
	assert_int_equal(info.Source, 41);
	assert_int_equal(info.GUID, 4);
	assert_int_equal(info.Port, 0);
	peer_end(&peer, SIGKILL);
	IBC_Finish();
	/* From c: 33 on a is out of reach through the second NIC, 41 and what all get is not. */
	struct peer denied = start_on("a", 33, teller), allowed = start_on("a", 41, teller);
	setenv("HEDDLE_NODE", "c", 1);
	assert_int_equal(IBC_Init(33, NULL, NULL, NULL), 0);
	target = (struct IBC_Target){
	        .GUID = 4, .OutPort = PORT_0, .Destination = 33, .Route = {.Pointer = 1}};
	assert_int_equal(
	        IBC_Request(&target, IBC_READ_REQUEST, NULL, 0, &peer_soon, 1, NULL, 0, &info),
	        IBC_NACKED);
	assert_int_equal(info.Reason, IBC_NACK_NOT_ALLOWED);
	target.Destination = IBC_CLIENTALL;
	info = ask(&target, &info);
	assert_int_equal(info.Client, 41);
	target = way(33, 2, 1, 0, 0); /* over b: through the first NIC */
	info = ask(&target, &info);
	assert_int_equal(info.Client, 33);
	peer_end(&denied, SIGKILL);
	peer_end(&allowed, SIGKILL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_teardown(vs5_a_node_is_in_transit, leave),
	        cmocka_unit_test_teardown(vs4_two_nics, leave),
	        cmocka_unit_test_teardown(vs8_special_identifiers_across_nodes, leave),
	        cmocka_unit_test_teardown(vs8_access_to_some_nics, leave),
	};
	return cmocka_run_group_tests_name("vs4_figure_2", tests, NULL, NULL);
}
