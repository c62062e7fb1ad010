/* Hardware ports: nodes and switches as processes, joined by shared memory, UDP and Ethernet.
 * Packets go by source routes, answers come back along them, ports go down and up, and processes
 * die. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crc.h"
#include "fabric/link.h"
#include "ibc/observe.h"
#include "net.h"
#include "peer.h"
#include "wire/be.h"
#include "wire/ibc_config.h"

#define NODES 4u

static const char *const names[NODES] = {"n102", "n104", "s106", "s108"};
static pid_t running[NODES];
static char file[NET_FILE_BYTES];

static const char nodes_text[] = "key 00112233445566778899aabbccddeeff\n"
                                 "node n102 id 102\n"
                                 "    nic guid 1 ports 0 1\n"
                                 "    nic guid 7 ports 5\n"
                                 "node n104 id 104\n"
                                 "    nic guid 2 ports 0 1\n"
                                 "switch s106 id 106 ports 1-4\n"
                                 "switch s108 id 108 ports 1-4\n";

static pid_t start_node(const char *name)
{
	return net_start(file, name);
}

static void end_node(unsigned node, int signal)
{
	if (running[node] == 0)
		return;
	int status = net_end(running[node], signal);
	if (signal == SIGTERM)
		assert_int_equal(status, 0);
	running[node] = 0;
}

static void write_topology(const char *nodes, const char *links)
{
	net_write(file, nodes, links);
}

/* Write a topology with @links, and start all of it. */
static void start_all(const char *links)
{
	write_topology(nodes_text, links);
	for (unsigned i = 0; i < NODES; i++)
		running[i] = start_node(names[i]);
}

static int end_all(void **state)
{
	(void)state;
	for (unsigned i = 0; i < NODES; i++)
		if (running[i] != 0) {
			kill(running[i], SIGTERM);
			waitpid(running[i], NULL, 0);
			running[i] = 0;
		}
	IBC_Finish();
	unlink(file);
	return 0;
}

/* The example of paragraph 18: out of port 1 of n102, port 3 of s106, port 2 of s108. */
static struct IBC_Target to_n104(unsigned apid)
{
	return (struct IBC_Target){.GUID = 1,
	                           .OutPort = PORT_1,
	                           .DestNode = 104,
	                           .Destination = apid,
	                           .Route = {.Pointer = 1, .Hops = 2, .Ports = {3, 2}}};
}

/* Repeat a request until it succeeds: processes and links need a moment to come up. */
static bool comes_through(const struct IBC_Target *target, struct IBC_Info *answer)
{
	struct timespec time = {0, 100000000};
	uint64_t end = clock_now_ns() + 15000000000u;
	char in[16];
	while (clock_now_ns() < end) {
		int result = IBC_Request(target, IBC_READ_REQUEST, NULL, 0, &time, 1, in,
		                         sizeof(in), answer);
		if (result == 0)
			return memcmp(in, "read", 4) == 0;
		usleep(5000);
	}
	return false;
}

/* Register here on n102, and start a client that answers on n104. */
static struct peer start_clients(void)
{
	unsigned own;
	setenv("HEDDLE_NODE", "n104", 1);
	struct peer echo = peer_start(40, peer_echo);
	assert_int_equal(echo.apid, 40);
	assert_int_equal(peer_hear(echo.channel), 'r');
	setenv("HEDDLE_NODE", "n102", 1);
	assert_int_equal(IBC_Init(33, &own, NULL, NULL), 0);
	return echo;
}

static void talk_across(const char *links)
{
	static char out[IBC_LIMIT_PAYLOAD], in[IBC_LIMIT_PAYLOAD];
	struct IBC_Info answer;
	IBC_HANDLE handle;
	start_all(links);
	struct peer echo = start_clients();
	struct IBC_Target target = to_n104(40);
	assert_true(comes_through(&target, &answer));
	/* 3-2-63 [Rev; 0], as paragraph 18 has it. */
	assert_true(answer.Route.Reverse);
	assert_int_equal(answer.Route.Pointer, 0);
	assert_int_equal(answer.Route.Hops, 2);
	assert_int_equal(answer.Route.Ports[0], 3);
	assert_int_equal(answer.Route.Ports[1], 2);
	assert_int_equal(answer.GUID, 1);
	assert_int_equal(answer.Port, 1);
	assert_int_equal(answer.Source, 40);

	/* Through the switch of the own node: its port is the first of the route, and applications
	 * are ports like others. */
	struct IBC_Target routed = {.OutPort = IBC_PORT_ROUTE,
	                            .Route = {.Pointer = 1, .Hops = 4, .Ports = {1, 3, 2, 40}}};
	assert_true(comes_through(&routed, &answer));
	assert_true(answer.ByRoute);
	assert_int_equal(answer.Route.Ports[0], 1);
	assert_int_equal(answer.Route.Ports[3], 40);

	/* Every length, and what is sent comes back. */
	assert_int_equal(IBC_RecvPost(&handle), 0);
	for (unsigned i = 0; i < sizeof(out); i++)
		out[i] = (char)(i * 13);
	bool ethernet = strstr(links, "ethernet") != NULL;
	for (uint32_t length = 0; length <= (ethernet ? 1024 : IBC_LIMIT_PAYLOAD);
	     length = length == 0 ? 1 : length * 4) {
		assert_int_equal(IBC_SendTo(&target, IBC_WRITE_REQUEST_NO_ACK, length, out, length),
		                 0);
		assert_int_equal(IBC_RecvWaitInfo(handle, &peer_soon, in, &answer), IBC_RECVDONE);
		assert_int_equal(answer.Transaction, length);
		assert_int_equal(answer.Length, length);
		assert_memory_equal(in, out, length);
	}

	/* Longer than the MTU of an interface: its port says so, on the node or in transit. */
	if (ethernet) {
		assert_int_equal(IBC_Request(&target, IBC_WRITE_REQUEST, out, IBC_LIMIT_PAYLOAD,
		                             NULL, 0, NULL, 0, &answer),
		                 IBC_NACKED);
		assert_int_equal(answer.Reason, IBC_NACK_TOO_LONG);
		assert_int_equal(IBC_Request(&routed, IBC_WRITE_REQUEST, out, IBC_LIMIT_PAYLOAD,
		                             NULL, 0, NULL, 0, &answer),
		                 IBC_NACKED);
		assert_int_equal(answer.Reason, IBC_NACK_TOO_LONG);
	}

	/* Rejections come back from wherever they happen. */
	static const struct {
		uint8_t hops, ports[2];
		unsigned apid;
		uint64_t node;
		int reason;
	} rows[] = {{2, {3, 2}, 50, 104, IBC_NACK_NO_APPLICATION},
	            {2, {3, 2}, 40, 105, IBC_NACK_NO_APPLICATION},
	            {2, {3, 9}, 40, 104, IBC_NACK_NO_PORT},
	            {2, {4, 2}, 40, 104, IBC_NACK_PORT_DOWN},
	            {2, {2, 2}, 40, 104, IBC_NACK_LOOP},
	            {2, {3, 40}, 40, 104, IBC_NACK_NO_APPLICATION}};
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct IBC_Target wrong = to_n104(rows[i].apid);
		wrong.DestNode = rows[i].node;
		memcpy(wrong.Route.Ports, rows[i].ports, rows[i].hops);
		assert_int_equal(
		        IBC_Request(&wrong, IBC_WRITE_REQUEST, "x", 1, NULL, 0, NULL, 0, &answer),
		        IBC_NACKED);
		assert_int_equal(answer.Reason, rows[i].reason);
	}
	/* The node's own second port has no link, and there is no third. */
	struct IBC_Target down = to_n104(40);
	down.OutPort = PORT_0;
	assert_int_equal(IBC_SendTo(&down, IBC_WRITE_REQUEST, 1, "x", 1), IBC_HARDWARE_ERROR);
	down.OutPort = 2;
	assert_int_equal(IBC_SendTo(&down, IBC_WRITE_REQUEST, 1, "x", 1), IBC_BADPARAM);
	peer_end(&echo, 0);
	for (unsigned i = 0; i < NODES; i++)
		end_node(i, SIGTERM);
}

static void vs5_through_shared_memory(void **state)
{
	(void)state;
	talk_across("link n102:1 s106:2 shm\nlink s106:3 s108:1 shm\nlink s108:2 n104:0 shm\n");
}

static void vs5_over_udp(void **state)
{
	(void)state;
	talk_across("link n102:1 s106:2 udp 127.0.0.1:7101 127.0.0.1:7102\n"
	            "link s106:3 s108:1 udp 127.0.0.1:7103 127.0.0.1:7104\n"
	            "link s108:2 n104:0 udp [::1]:7105 [::1]:7106\n");
}

static bool write_to(const char *path, const char *text)
{
	FILE *out = fopen(path, "we");
	return out != NULL && fputs(text, out) >= 0 && fclose(out) == 0;
}

/* Become somebody who may open packet sockets, in a network of one's own. */
static bool enter_network(void)
{
	char map[64];
	snprintf(map, sizeof(map), "%u %u 1", (unsigned)geteuid(), (unsigned)geteuid());
	if (unshare(CLONE_NEWNET) != 0 &&
	    (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0 || !write_to("/proc/self/uid_map", map)))
		return false;
	return system("ip link set lo up && ip link add va0 address 02:00:00:00:00:0a type veth "
	              "peer name va1 address 02:00:00:00:00:0b && ip link set va0 up && "
	              "ip link set va1 up") == 0;
}

static void vs5_over_ethernet(void **state)
{
	(void)state;
	int status = 0;
	pid_t pid = fork();
	if (pid == 0) {
		if (!enter_network())
			_exit(77);
		talk_across("link n102:1 s106:2 ethernet va0/02:00:00:00:00:0a "
		            "va1/02:00:00:00:00:0b\n"
		            "link s106:3 s108:1 shm\nlink s108:2 n104:0 shm\n");
		IBC_Finish();
		talk_across("link n102:1 s106:2 shm\nlink s106:3 s108:1 ethernet va0 va1\n"
		            "link s108:2 n104:0 shm\n");
		exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		print_message("no network of our own here: not tested\n");
		skip();
	}
	assert_int_equal(status, 0);
}

/* --- a manager --- */

static int command(struct IBC_Target *target, uint8_t operation, uint8_t port, uint8_t to,
                   bool with_key, uint8_t answer[IBC_LIMIT_PAYLOAD], struct IBC_Info *info)
{
	uint8_t bytes[IBC_CONFIG_COMMAND_BYTES] = {0};
	if (with_key)
		for (unsigned i = 0; i < IBC_KEY_BYTES; i++)
			bytes[i] = (uint8_t)(i * 0x11);
	bytes[16] = operation;
	bytes[17] = port;
	bytes[18] = to;
	target->Destination = 31;
	target->DestNode = 0;
	int type = operation == IBC_CONFIG_SET_PORT ? IBC_WRITE_REQUEST : IBC_READ_REQUEST;
	return IBC_Request(target, type, bytes, sizeof(bytes), NULL, 0, answer, IBC_LIMIT_PAYLOAD,
	                   info);
}

static void ports_are_set_by_a_manager(void **state)
{
	(void)state;
	static uint8_t bytes[IBC_LIMIT_PAYLOAD];
	struct IBC_Info info;
	start_all("link n102:1 s106:2 shm\nlink s106:3 s108:1 shm\nlink s108:2 n104:0 shm\n");
	struct peer echo = start_clients();
	struct IBC_Target target = to_n104(40), s106 = to_n104(31), own = peer_target(31);
	s106.Route.Hops = 0;
	assert_true(comes_through(&target, &info));
	assert_int_equal(command(&s106, IBC_CONFIG_PORTS, 0, 0, false, bytes, &info), IBC_NACKED);
	assert_int_equal(info.Reason, IBC_NACK_NOT_ALLOWED);
	assert_int_equal(command(&s106, IBC_CONFIG_PORTS, 0, 0, true, bytes, &info), 0);
	assert_int_equal(bytes[3], 4); /* ports */
	/* The switch of our own node, by its process; no route at all. */
	assert_int_equal(command(&own, IBC_CONFIG_APPLICATIONS, 0, 0, true, bytes, &info), 0);
	assert_int_equal(bytes[3], 1);
	assert_int_equal(bytes[IBC_CONFIG_ANSWER_BYTES], 33);
	assert_int_equal(command(&own, IBC_CONFIG_APPLICATIONS, 0, 0, false, bytes, &info),
	                 IBC_NACKED);
	/* Out of service and back. */
	assert_int_equal(command(&s106, IBC_CONFIG_SET_PORT, 3, IBC_PORT_UP, true, bytes, &info),
	                 0);
	assert_int_equal(bytes[IBC_CONFIG_ANSWER_BYTES + 1], IBC_PORT_UP); /* it was up */
	assert_int_equal(command(&s106, IBC_CONFIG_SET_PORT, 3, IBC_PORT_DOWN, true, bytes, &info),
	                 0);
	assert_int_equal(bytes[IBC_CONFIG_ANSWER_BYTES + 1], IBC_PORT_DOWN);
	assert_int_equal(IBC_Request(&target, IBC_READ_REQUEST, NULL, 0, NULL, 0, NULL, 0, &info),
	                 IBC_NACKED);
	assert_int_equal(info.Reason, IBC_NACK_PORT_DOWN);
	assert_int_equal(command(&s106, IBC_CONFIG_SET_PORT, 3, IBC_PORT_UP, true, bytes, &info),
	                 0);
	assert_int_equal(bytes[IBC_CONFIG_ANSWER_BYTES + 1], IBC_PORT_DOWN); /* not yet */
	/* A port without a cable never is. */
	assert_int_equal(command(&s106, IBC_CONFIG_SET_PORT, 4, IBC_PORT_UP, true, bytes, &info),
	                 0);
	assert_int_equal(bytes[IBC_CONFIG_ANSWER_BYTES], 4);
	assert_int_equal(bytes[IBC_CONFIG_ANSWER_BYTES + 1], IBC_PORT_DOWN);
	assert_true(comes_through(&target, &info));
	peer_end(&echo, 0);
}

/* --- from outside --- */

struct seen {
	unsigned ports, applications, plain, up;
	bool echo, own;
};

static void see(const struct observed_member *member, void *context)
{
	struct seen *seen = context;
	const struct vswitch *vswitch = &member->board->vswitch;
	seen->ports += member->ports;
	seen->applications += member->apids != 0;
	seen->plain += vswitch->plain;
	if (member->ports) {
		assert_string_equal(member->program, "heddle-vport");
		for (unsigned i = 0; i < VSWITCH_HARDWARE_PORTS; i++)
			seen->up += vswitch->states[i] == VSWITCH_PORT_UP;
	}
	seen->echo |= strcmp(member->node, "n104") == 0 && member->apids == 1ull << 40;
	seen->own |= strcmp(member->node, "n102") == 0 && member->apids == 1ull << 33 &&
	             member->pid == getpid() && vswitch->node == 102;
}

static void all_of_it_can_be_observed(void **state)
{
	(void)state;
	struct IBC_Info info;
	struct seen seen = {0};
	start_all("link n102:1 s106:2 shm\nlink s106:3 s108:1 shm\nlink s108:2 n104:0 shm\n");
	struct peer echo = start_clients();
	struct IBC_Target target = to_n104(40);
	assert_true(comes_through(&target, &info));
	assert_int_equal(ibc_observe(see, &seen), 0);
	assert_int_equal(seen.ports, 4);
	assert_int_equal(seen.applications, 2);
	assert_int_equal(seen.plain, 2);
	assert_int_equal(seen.up, 6);
	assert_true(seen.echo && seen.own);
	/* The NICs of the node. */
	uint64_t guids[4];
	unsigned count = 4, one = 1;
	assert_int_equal(IBC_Init(IBC_CLIENTANY, NULL, guids, &count), 0);
	assert_int_equal(count, 2);
	assert_int_equal(guids[0], 1);
	assert_int_equal(guids[1], 7);
	assert_int_equal(IBC_Init(IBC_CLIENTANY, NULL, guids, &one), 0);
	assert_int_equal(one, 2);
	/* A node that is running is not started twice, and a switch has no applications. */
	int status;
	pid_t again = start_node("n102");
	assert_int_equal(waitpid(again, &status, 0), again);
	assert_int_not_equal(status, 0);
	setenv("HEDDLE_NODE", "s106", 1);
	assert_int_equal(peer_start(IBC_CLIENTANY, peer_echo).apid, 0);
	setenv("HEDDLE_NODE", "n102", 1);
	peer_end(&echo, 0);
}

/* As many NICs as a node can have, one hardware port each. */
static void limit_of_nics(void **state)
{
	(void)state;
	static char nodes[2048];
	uint64_t guids[IBC_LIMIT_NICS + 1];
	unsigned count = 0;
	int used = snprintf(nodes, sizeof(nodes), "node n102 id 102\n");
	for (unsigned i = 0; i < IBC_LIMIT_NICS; i++)
		used += snprintf(nodes + used, sizeof(nodes) - (size_t)used,
		                 "nic guid %u ports %u\n", 100 + i, i);
	write_topology(nodes, "");
	running[0] = start_node("n102");
	setenv("HEDDLE_NODE", "n102", 1);
	for (unsigned tries = 0; tries < 500 && count != IBC_LIMIT_NICS; tries++) {
		count = IBC_LIMIT_NICS + 1;
		assert_int_equal(IBC_Init(IBC_CLIENTANY, NULL, guids, &count), 0);
		assert_int_equal(IBC_Finish(), 0);
		usleep(10000);
	}
	assert_int_equal(count, IBC_LIMIT_NICS);
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(guids[i], 100 + i);
	/* There is no port for one more. */
	int status;
	snprintf(nodes + used, sizeof(nodes) - (size_t)used, "nic guid 99 ports 16\n");
	write_topology(nodes, "");
	pid_t more = start_node("n102");
	assert_int_equal(waitpid(more, &status, 0), more);
	assert_int_not_equal(status, 0);
}

/* --- deaths --- */

static void ports_go_down_and_up(void **state)
{
	(void)state;
	struct IBC_Info info;
	start_all("link n102:1 s106:2 udp 127.0.0.1:7101 127.0.0.1:7102\n"
	          "link s106:3 s108:1 shm\nlink s108:2 n104:0 shm\n");
	struct peer echo = start_clients();
	struct IBC_Target target = to_n104(40);
	assert_true(comes_through(&target, &info));
	for (unsigned round = 0; round < 2; round++) {
		/* A switch in the middle is killed: its neighbour rejects within a second. */
		end_node(3, SIGKILL);
		uint64_t begin = clock_now_ns();
		struct timespec time = {0, 50000000};
		while (IBC_Request(&target, IBC_READ_REQUEST, NULL, 0, &time, 1, NULL, 0, &info) !=
		       IBC_NACKED)
			assert_true(clock_now_ns() - begin < 2000000000u);
		assert_int_equal(info.Reason, IBC_NACK_PORT_DOWN);
		running[3] = start_node(names[3]);
		assert_true(comes_through(&target, &info));
		/* The next one is only known by its silence. */
		end_node(2, SIGKILL);
		begin = clock_now_ns();
		while (IBC_SendTo(&target, IBC_WRITE_REQUEST_NO_ACK, 1, "x", 1) !=
		       IBC_HARDWARE_ERROR) {
			assert_true(clock_now_ns() - begin < 3000000000u);
			usleep(10000);
		}
		running[2] = start_node(names[2]);
		assert_true(comes_through(&target, &info));
		/* Our own ports; and the agent, whom nobody misses. */
		end_node(0, SIGKILL);
		begin = clock_now_ns();
		while (IBC_SendTo(&target, IBC_WRITE_REQUEST_NO_ACK, 1, "x", 1) !=
		       IBC_HARDWARE_ERROR) {
			assert_true(clock_now_ns() - begin < 1000000000u);
			usleep(10000);
		}
		running[0] = start_node(names[0]);
		assert_true(comes_through(&target, &info));
		kill(peer_agent(), SIGKILL);
		begin = clock_now_ns();
		while (clock_now_ns() - begin < 700000000u) {
			int result = IBC_Request(&target, IBC_READ_REQUEST, NULL, 0, NULL, 0, NULL,
			                         0, &info);
			if (result != 0)
				print_message("%s: %s\n", IBC_ResultName(result),
				              IBC_ReasonName(info.Reason));
			assert_int_equal(result, 0);
		}
	}
	peer_end(&echo, 0);
}

/* Whoever registers after the process of the ports was killed hears the same as those that were
 * there before: the hardware is gone, the parameters are right. */
static void a_newcomer_hears_that_the_ports_are_gone(void **state)
{
	(void)state;
	struct IBC_Target far = to_n104(40);
	struct IBC_Target routed = {.OutPort = IBC_PORT_ROUTE,
	                            .Route = {.Pointer = 1, .Hops = 2, .Ports = {1, 3}}};
	struct IBC_Target wrong = {.OutPort = IBC_PORT_ROUTE,
	                           .Route = {.Pointer = 1, .Hops = 1, .Ports = {9}}};
	struct IBC_Info info;
	start_all("");
	setenv("HEDDLE_NODE", "n102", 1);
	assert_int_equal(IBC_Init(IBC_CLIENTANY, NULL, NULL, NULL), 0);
	uint64_t end = clock_now_ns() + 15000000000u;
	unsigned count = 0;
	while (count != 2) { /* its process is there, and has told of the ports */
		assert_int_equal(IBC_Finish(), 0);
		assert_int_equal(IBC_Init(IBC_CLIENTANY, NULL, NULL, &count), 0);
		assert_true(clock_now_ns() < end);
	}
	/* It is there: then a wrong NIC is a wrong parameter, and a wrong port no port. */
	assert_int_equal(IBC_SendTo(&far, IBC_WRITE_REQUEST, 1, "x", 1), IBC_HARDWARE_ERROR);
	far.GUID = 99;
	assert_int_equal(IBC_SendTo(&far, IBC_WRITE_REQUEST, 1, "x", 1), IBC_BADPARAM);
	assert_int_equal(IBC_Request(&wrong, IBC_WRITE_REQUEST, "x", 1, NULL, 0, NULL, 0, &info),
	                 IBC_NACKED);
	assert_int_equal(info.Reason, IBC_NACK_NO_PORT);
	assert_int_equal(IBC_Finish(), 0);
	end_node(0, SIGKILL);
	far.GUID = 1;
	for (;;) { /* until the agent has noticed, the process is thought to be there */
		assert_int_equal(IBC_Init(IBC_CLIENTANY, NULL, NULL, NULL), 0);
		assert_int_equal(IBC_Init(IBC_CLIENTANY, NULL, NULL, &count), 0);
		int result = IBC_SendTo(&far, IBC_WRITE_REQUEST, 1, "x", 1);
		assert_int_equal(result, IBC_HARDWARE_ERROR);
		if (count == 0)
			break;
		assert_int_equal(IBC_Finish(), 0);
		assert_true(clock_now_ns() < end);
		usleep(1000);
	}
	assert_int_equal(IBC_Request(&routed, IBC_WRITE_REQUEST, "x", 1, NULL, 0, NULL, 0, &info),
	                 IBC_NACKED);
	assert_int_equal(info.Reason, IBC_NACK_PORT_DOWN);
	far.OutPort = 64; /* no NIC has that */
	assert_int_equal(IBC_SendTo(&far, IBC_WRITE_REQUEST, 1, "x", 1), IBC_BADPARAM);
}

/* --- impostors --- */

static int number_of[2], turn[2]; /* pipes: the number of a request, and who is next */

/* Is asked, tells the impostor the number, and answers after it. */
static void informer(int channel)
{
	struct IBC_Info info;
	IBC_HANDLE handle;
	char byte;
	MUST(IBC_RecvPost(&handle) == 0);
	peer_say(channel, 'r');
	for (unsigned i = 0; i < 2; i++) {
		MUST(IBC_RecvWaitInfo(handle, &peer_soon, NULL, &info) == IBC_RECVDONE);
		MUST(write(number_of[1], &info.Transaction, 4) == 4);
		MUST(read(turn[0], &byte, 1) == 1);
		MUST(IBC_Respond(&info, IBC_READ_RESPONSE, 0, "read", 4) == 0);
	}
	peer_hear(channel);
	IBC_Finish();
}

/* Another application of the same node: its answer takes the same way, and it knows the number. */
static void impostor(int channel)
{
	static const struct IBC_Route ways[] = {
	        {.Reverse = true, .Pointer = 2, .Hops = 2, .Ports = {2, 1}},
	        {.Pointer = 1, .Hops = 2, .Ports = {1, 2}},
	        {.Reverse = true, .Pointer = 3, .Hops = 3, .Ports = {33, 2, 1}},
	};
	struct IBC_Target target = {.GUID = 2, .OutPort = PORT_0, .Destination = 33};
	uint32_t number;
	peer_say(channel, 'r');
	for (unsigned round = 0; round < 2; round++) {
		MUST(read(number_of[0], &number, 4) == 4);
		for (unsigned i = 0; i < 3; i++)
			for (int type = IBC_READ_RESPONSE; type <= IBC_NACK; type++) {
				target.Route = ways[i];
				MUST(IBC_SendTo(&target, type, number,
				                type == IBC_READ_RESPONSE ? "evil" : NULL,
				                type == IBC_READ_RESPONSE ? 4 : 0) == 0);
			}
		MUST(write(turn[1], "", 1) == 1);
	}
	peer_hear(channel);
	IBC_Finish();
}

static void only_the_one_that_was_asked_can_answer(void **state)
{
	(void)state;
	struct IBC_Info info;
	IBC_HANDLE handle;
	char in[8];
	start_all("link n102:1 s106:2 shm\nlink s106:3 s108:1 shm\nlink s108:2 n104:0 shm\n");
	struct peer echo = start_clients();
	struct IBC_Target target = to_n104(40);
	assert_true(comes_through(&target, &info));
	assert_int_equal(pipe(number_of), 0);
	assert_int_equal(pipe(turn), 0);
	setenv("HEDDLE_NODE", "n104", 1);
	struct peer asked = peer_start(42, informer), other = peer_start(41, impostor);
	setenv("HEDDLE_NODE", "n102", 1);
	assert_int_equal(peer_hear(asked.channel), 'r');
	assert_int_equal(peer_hear(other.channel), 'r');
	assert_int_equal(IBC_RecvPost(&handle), 0);
	struct IBC_Target targets[2] = {
	        to_n104(42),
	        {.OutPort = IBC_PORT_ROUTE,
	         .Route = {.Pointer = 1, .Hops = 4, .Ports = {1, 3, 2, 42}}}};
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(IBC_Request(&targets[i], IBC_READ_REQUEST, NULL, 0, &peer_soon, 1,
		                             in, sizeof(in), &info),
		                 0);
		assert_memory_equal(in, "read", 4);
		assert_int_equal(info.Source, 42);
		for (unsigned k = 0; k < 9; k++) { /* no answers: packets like any other */
			assert_int_equal(IBC_RecvWaitInfo(handle, &peer_soon, NULL, &info),
			                 IBC_RECVDONE);
			assert_int_equal(info.Source, 41);
		}
	}
	peer_end(&asked, 0);
	peer_end(&other, 0);
	peer_end(&echo, 0);
}

/* --- strangers --- */

static void only_the_peer_is_heard(void **state)
{
	(void)state;
	struct IBC_Info info;
	IBC_HANDLE handle;
	start_all("link n102:1 s106:2 udp 127.0.0.1:7101 127.0.0.1:7102\n"
	          "link s106:3 s108:1 shm\nlink s108:2 n104:0 shm\n");
	struct peer echo = start_clients();
	struct IBC_Target target = to_n104(40);
	assert_true(comes_through(&target, &info));
	assert_int_equal(IBC_RecvPost(&handle), 0);
	/* A packet for us that is perfect, but from another socket of this machine. */
	static uint8_t frame[LINK_MAX_BYTES];
	struct link forger;
	struct ibc_packet packet = {.type = IBC_TYPE_WRITE_REQUEST,
	                            .source_apid = 40,
	                            .dest_apid = 33,
	                            .route = {.pointer = 1},
	                            .payload = (const uint8_t *)"forged",
	                            .payload_bytes = 6};
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(net_udp_port(7101))};
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	int sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	link_begin(&forger);
	for (unsigned i = 0; i < 100; i++) {
		size_t bytes = ibc_encode(&packet, frame + LINK_HEADER_BYTES, IBC_MAX_BYTES);
		link_put(&forger, frame, bytes, clock_now_ns());
		sendto(sock, frame, LINK_HEADER_BYTES + bytes, 0, (struct sockaddr *)&to,
		       sizeof(to));
	}
	close(sock);
	assert_true(comes_through(&target, &info));
	assert_int_equal(IBC_RecvPoll(handle), IBC_RECVNOTDONE);
	peer_end(&echo, 0);
}

/* A neighbour that this test plays itself. */
struct neighbour {
	int sock;
	struct link link;
	uint8_t in[LINK_MAX_BYTES];
};

static void neighbour_send(struct neighbour *neighbour, const uint8_t *packet, size_t bytes)
{
	uint8_t frame[LINK_MAX_BYTES];
	link_put(&neighbour->link, frame, bytes, clock_now_ns());
	if (bytes > 0)
		memcpy(frame + LINK_HEADER_BYTES, packet, bytes);
	assert_true(send(neighbour->sock, frame, LINK_HEADER_BYTES + bytes, 0) >= 0 ||
	            errno == ECONNREFUSED);
}

/* The next packet from the other end. Keeps the link alive meanwhile. */
static void neighbour_hear(struct neighbour *neighbour, struct ibc_packet *packet)
{
	uint64_t end = clock_now_ns() + 10000000000u;
	for (;;) {
		assert_true(clock_now_ns() < end);
		if (link_tick(&neighbour->link, clock_now_ns()))
			neighbour_send(neighbour, NULL, 0);
		ssize_t got = recv(neighbour->sock, neighbour->in, sizeof(neighbour->in), 0);
		if (got <= 0)
			continue;
		size_t bytes =
		        link_take(&neighbour->link, neighbour->in, (size_t)got, clock_now_ns());
		if (bytes > 0) {
			assert_int_equal(
			        ibc_decode(packet, neighbour->in + LINK_HEADER_BYTES, bytes),
			        IBC_OK);
			return;
		}
		if (packet == NULL && neighbour->link.up)
			return;
	}
}

/* How many damaged packets the switch of our node has counted, in all and at @port. */
static uint64_t damaged_at(uint8_t port)
{
	static uint8_t bytes[IBC_LIMIT_PAYLOAD];
	struct IBC_Info info;
	struct IBC_Target own = peer_target(31);
	const uint8_t *numbers = bytes + IBC_CONFIG_ANSWER_BYTES;
	assert_int_equal(command(&own, IBC_CONFIG_COUNTERS, 0, 0, true, bytes, &info), 0);
	uint64_t all = be64_load(numbers + 8 * IBC_COUNTER_DAMAGED);
	assert_int_equal(command(&own, IBC_CONFIG_PORT_COUNTERS, port, 0, true, bytes, &info), 0);
	assert_int_equal(be64_load(numbers + 8 * IBC_PORT_COUNTER_DAMAGED), all);
	return all;
}

/* Every byte of the header and route in turn becomes something else, with a check that is right:
 * the node answers with a NACK or not at all, and goes on. */
static void a_neighbour_may_send_anything(void **state)
{
	(void)state;
	struct neighbour other = {0};
	struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(net_udp_port(7102))},
	                   to = own;
	struct timeval soon = {.tv_usec = 20000};
	struct ibc_packet answer, packet = {.type = IBC_TYPE_READ_REQUEST,
	                                    .source_apid = 40,
	                                    .dest_apid = 50,
	                                    .transaction = 1,
	                                    .route = {.pointer = 3, .hops = 2, .ports = {3, 2}}};
	write_topology("key 00112233445566778899aabbccddeeff\n"
	               "node n102 id 102\nnic guid 1 ports 0\n"
	               "node n104 id 104\nnic guid 2 ports 0\n",
	               "link n102:0 n104:0 udp 127.0.0.1:7101 127.0.0.1:7102\n");
	own.sin_addr.s_addr = to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	to.sin_port = htons(net_udp_port(7101));
	other.sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(other.sock, (struct sockaddr *)&own, sizeof(own)), 0);
	assert_int_equal(connect(other.sock, (struct sockaddr *)&to, sizeof(to)), 0);
	setsockopt(other.sock, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon));
	link_begin(&other.link);
	running[0] = start_node("n102");
	neighbour_hear(&other, NULL);
	setenv("HEDDLE_NODE", "n102", 1);
	assert_int_equal(IBC_Init(IBC_CLIENTANY, NULL, NULL, NULL), 0);
	uint8_t bytes[IBC_MAX_BYTES];
	/* A pointer out of range: the way back is the whole route. */
	size_t length = ibc_encode(&packet, bytes, sizeof(bytes));
	bytes[1] = 9;
	be32_store(bytes + 28, crc32c(crc32c(0, bytes, 28), bytes + 32, 4));
	neighbour_send(&other, bytes, length);
	neighbour_hear(&other, &answer);
	assert_int_equal(answer.type, IBC_TYPE_NACK);
	assert_int_equal(answer.reason, IBC_REASON_POINTER);
	assert_int_equal(answer.dest_apid, 40);
	assert_int_equal(answer.route.hops, 2);
	assert_int_equal(answer.route.pointer, 2);
	assert_true(answer.route.reverse);
	/* 63 hops, one of which has been used. */
	length = ibc_encode(&packet, bytes, sizeof(bytes));
	bytes[1] = 2;
	bytes[2] = 63;
	memset(bytes + 32, 3, 63);
	bytes[32 + 63] = 63;
	be32_store(bytes + 28, crc32c(crc32c(0, bytes, 28), bytes + 32, 64));
	neighbour_send(&other, bytes, 32 + 64 + 4);
	neighbour_hear(&other, &answer);
	assert_int_equal(answer.reason, IBC_REASON_TOO_LONG);
	assert_int_equal(answer.route.hops, 1);
	/* Damaged in the header, and behind it: dropped, and counted. */
	uint64_t before = damaged_at(0);
	for (unsigned i = 0; i < 5; i++) {
		length = ibc_encode(&packet, bytes, sizeof(bytes));
		bytes[i < 2 ? 5 : length - 1] ^= 1;
		neighbour_send(&other, bytes, length);
	}
	length = ibc_encode(&packet, bytes, sizeof(bytes));
	neighbour_send(&other, bytes, length);
	neighbour_hear(&other, &answer);
	assert_int_equal(answer.reason, IBC_REASON_NO_APPLICATION);
	assert_int_equal(damaged_at(0) - before, 5);
	for (unsigned at = 0; at < 36; at++)
		for (unsigned value = 0; value < 256; value++) {
			length = ibc_encode(&packet, bytes, sizeof(bytes));
			bytes[at] = (uint8_t)value;
			if (at < 28 || at >= 32)
				be32_store(bytes + 28, crc32c(crc32c(0, bytes, 28), bytes + 32, 4));
			neighbour_send(&other, bytes, length);
			if (value % 64 == 0) /* not more than its socket takes */
				usleep(500);
		}
	/* It is still there, and answers. */
	packet.transaction = 4711;
	length = ibc_encode(&packet, bytes, sizeof(bytes));
	do {
		neighbour_send(&other, bytes, length);
		neighbour_hear(&other, &answer);
	} while (answer.transaction != 4711);
	assert_int_equal(answer.reason, IBC_REASON_NO_APPLICATION);
	close(other.sock);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_teardown(vs5_through_shared_memory, end_all),
	        cmocka_unit_test_teardown(vs5_over_udp, end_all),
	        cmocka_unit_test_teardown(vs5_over_ethernet, end_all),
	        cmocka_unit_test_teardown(ports_are_set_by_a_manager, end_all),
	        cmocka_unit_test_teardown(all_of_it_can_be_observed, end_all),
	        cmocka_unit_test_teardown(limit_of_nics, end_all),
	        cmocka_unit_test_teardown(ports_go_down_and_up, end_all),
	        cmocka_unit_test_teardown(a_newcomer_hears_that_the_ports_are_gone, end_all),
	        cmocka_unit_test_teardown(only_the_one_that_was_asked_can_answer, end_all),
	        cmocka_unit_test_teardown(only_the_peer_is_heard, end_all),
	        cmocka_unit_test_teardown(a_neighbour_may_send_anything, end_all),
	};
	return cmocka_run_group_tests_name("vs5_ports", tests, NULL, NULL);
}
