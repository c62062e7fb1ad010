/* The wire of a node and the processes on it: each gets the packets of its own queue pairs, when
 * others die, when the agent is killed, and when a process that is stopped keeps the next agent
 * from opening the port. Processes here are children that open an adapter and say what has come
 * when they are asked; this process is the network, and sends to them from an address of its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "adapter/adapter.h"
#include "adapter/net/udp.h"
#include "end.h"
#include "port/rundir.h"

#define WAIT_MS 20000
#define QKEY    0x77u

/* What a child says of itself. */
struct report {
	int error; /* of hdl_open() */
	struct hdl_gid gid;
	uint32_t lid, found_lid; /* that it has, and that the agent tells others */
	uint32_t first_qpn, mtu;
	uint64_t received;
	uint32_t agents; /* that it has met after the first */
	bool connected;  /* to one of them */
	bool waits;      /* a thread of its own does, for completions */
};

static struct udp_wire network;

static void fill(struct hdl_adapter *adapter, struct report *report)
{
	struct hdl_event event;
	struct hdl_limits limits;
	MUST(hdl_adapter_query(adapter, &limits));
	while (hdl_event_get(adapter, &event, 0) == 0)
		report->agents += event.type == HDL_EVENT_AGENT_CHANGED;
	report->gid = limits.gid;
	report->lid = limits.lid;
	report->mtu = limits.mtu;
	report->first_qpn = adapter->slot << adapter->objects.qp_bits;
	uint16_t lid = 0;
	hdl_node_find(adapter, &limits.gid, &lid);
	report->found_lid = lid;
	adapter_lock(adapter);
	report->received = net_received(&adapter->net);
	report->waits = adapter->drive.bell_holder == BELL_WAITER;
	adapter_unlock(adapter);
	pthread_mutex_lock(&adapter->agent.lock);
	report->connected = adapter->agent.sock >= 0;
	pthread_mutex_unlock(&adapter->agent.lock);
}

static struct hdl_adapter *open_on(const char *node, const char *address, struct report *report)
{
	struct hdl_open_attr attr = {.on_node = true, .node = node};
	struct hdl_adapter *adapter = NULL;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setenv("HEDDLE_LOCAL", "off", 1);
	if (address != NULL)
		setenv("HEDDLE_ADDR", address, 1);
	*report = (struct report){.error = hdl_open(&attr, &adapter)};
	return adapter;
}

static void answer(int talk, struct hdl_adapter *adapter, struct report report)
{
	char byte;
	while (read(talk, &byte, 1) == 1 && byte == '?') {
		if (adapter != NULL)
			fill(adapter, &report);
		if (write(talk, &report, sizeof(report)) != sizeof(report))
			break;
	}
}

static void live(int talk, const char *node, const char *address)
{
	struct report report;
	struct hdl_adapter *adapter = open_on(node, address, &report);
	answer(talk, adapter, report);
	if (adapter != NULL)
		hdl_close(adapter);
	_exit(0);
}

/* Wait for completions, of which there are none. */
static void *wait_for_ever(void *channel)
{
	struct hdl_cq *cq;
	void *context;
	while (hdl_channel_get(channel, &cq, &context, -1) != 0)
		;
	return NULL;
}

static void live_and_wait(int talk, const char *node, const char *address)
{
	struct report report;
	struct hdl_channel *channel;
	struct hdl_adapter *adapter = open_on(node, address, &report);
	pthread_t thread;
	MUST(report.error);
	MUST(hdl_channel_create(adapter, &channel));
	MUST(-pthread_create(&thread, NULL, wait_for_ever, channel));
	answer(talk, adapter, report);
	_exit(0);
}

static struct child start(const char *node)
{
	return child_start(live, node, NULL);
}

static struct report ask(const struct child *child)
{
	struct report report = {0};
	struct pollfd readable = {.fd = child->talk, .events = POLLIN};
	assert_int_equal(write(child->talk, "?", 1), 1);
	assert_true(poll(&readable, 1, WAIT_MS) > 0);
	assert_int_equal(recv(child->talk, &report, sizeof(report), MSG_WAITALL), sizeof(report));
	return report;
}

static void end_child(struct child *child, int signal_number)
{
	if (signal_number != 0)
		kill(child->pid, signal_number);
	else
		assert_int_equal(write(child->talk, ".", 1), 1);
	close(child->talk);
	assert_int_equal(waitpid(child->pid, NULL, 0), child->pid);
}

/* A packet from the network to queue pair @qpn at @gid. */
static void send_to(const struct hdl_gid *gid, uint32_t qpn)
{
	struct path path = {.ip.src_port = 0xc000};
	struct ib_packet packet = {0};
	memcpy(path.ip.dgid, gid->raw, 16);
	packet.bth.opcode = 0x04; /* RC SEND only */
	packet.bth.dest_qp = qpn;
	uint8_t *room = network.carrier.reserve(&network, &path, IB_BTH_BYTES);
	assert_int_equal(ib_transport_encode(&packet, room, IB_BTH_BYTES), IB_BTH_BYTES);
	network.carrier.commit(&network, &path, IB_BTH_BYTES);
	network.carrier.flush(&network);
}

/* Until @child has got @count. */
static void await(const struct child *child, uint64_t count)
{
	double until = now_ms() + WAIT_MS;
	struct report report;
	do
		report = ask(child);
	while (report.received < count && now_ms() < until);
	assert_int_equal(report.received, count);
}

/* Until @child has greeted another agent, the @agents'th. */
static void await_agent(const struct child *child, uint32_t agents)
{
	double until = now_ms() + WAIT_MS;
	struct report report;
	do
		report = ask(child);
	while ((report.agents < agents || !report.connected) && now_ms() < until);
	assert_int_equal(report.agents, agents);
	assert_true(report.connected);
}

static void test_each_its_own(void **state)
{
	(void)state;
	struct child children[3];
	struct report reports[3];
	for (int i = 0; i < 3; i++) {
		children[i] = start("wire-each");
		reports[i] = ask(&children[i]);
		assert_int_equal(reports[i].error, 0);
		assert_int_equal(reports[i].mtu, 4096);
		assert_memory_equal(&reports[i].gid, &reports[0].gid, 16);
		assert_int_equal(reports[i].gid.raw[12], 127);
		assert_int_equal(reports[i].gid.raw[13], AGENT_LOOPBACK);
	}
	for (uint32_t i = 0; i < 3; i++)
		for (uint32_t j = 0; j <= i; j++)
			send_to(&reports[i].gid, reports[i].first_qpn + 1 + j);
	send_to(&reports[0].gid, 1);        /* the agent's */
	send_to(&reports[0].gid, 0xffffff); /* nobody's */
	for (uint32_t i = 0; i < 3; i++)
		await(&children[i], i + 1);
	/* Of two that are after one another, the second gets nothing of the first. */
	end_child(&children[1], SIGKILL);
	for (int i = 0; i < 10; i++)
		send_to(&reports[1].gid, reports[1].first_qpn + 1);
	struct child next = start("wire-each");
	struct report report = ask(&next);
	assert_int_equal(report.error, 0);
	assert_int_not_equal(report.first_qpn, reports[1].first_qpn);
	send_to(&report.gid, reports[1].first_qpn + 1);
	send_to(&report.gid, report.first_qpn + 1);
	await(&next, 1);
	send_to(&reports[0].gid, reports[0].first_qpn + 1);
	await(&children[0], 2);
	end_child(&next, 0);
	end_child(&children[0], 0);
	end_child(&children[2], 0);
}

static void test_agent_killed(void **state)
{
	(void)state;
	struct child children[2];
	struct report reports[2];
	for (int i = 0; i < 2; i++) {
		children[i] = start("wire-killed");
		reports[i] = ask(&children[i]);
		assert_int_equal(reports[i].error, 0);
	}
	for (uint32_t round = 1; round <= 3; round++) {
		kill_agent();
		for (int i = 0; i < 2; i++) {
			await_agent(&children[i], round);
			struct report report = ask(&children[i]);
			assert_memory_equal(&report.gid, &reports[i].gid, 16);
			assert_int_equal(report.first_qpn, reports[i].first_qpn);
			send_to(&report.gid, report.first_qpn + 1);
			await(&children[i], round);
		}
	}
	struct child next = start("wire-killed");
	struct report report = ask(&next);
	assert_int_equal(report.error, 0);
	assert_memory_equal(&report.gid, &reports[0].gid, 16);
	send_to(&report.gid, report.first_qpn + 1);
	await(&next, 1);
	end_child(&next, 0);
	for (int i = 0; i < 2; i++)
		end_child(&children[i], 0);
}

/* On the same-host path: no port keeps newcomers away. */
static void live_locally(int talk, const char *node, const char *address)
{
	struct report report = {0};
	struct hdl_open_attr attr = {.on_node = true, .node = node};
	struct hdl_adapter *adapter = NULL;
	(void)address;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	report.error = hdl_open(&attr, &adapter);
	answer(talk, adapter, report);
	_exit(0);
}

/* How many numbers of processes after @first the one of @report is. */
static uint32_t numbers_after(const struct report *first, const struct report *report)
{
	return (report->first_qpn - first->first_qpn) >> (24 - AGENT_SLOT_BITS) &
	       (AGENT_MAX_SLOTS - 1);
}

/* Of two processes of an agent that was killed one comes back late: the number that is in those of
 * its queue pairs is not given to newcomers, who come before it, nor is any other that the killed
 * agent gave. They go on where that had got to, over and over. */
static void test_agent_killed_and_process_late(void **state)
{
	(void)state;
	struct child early = child_start(live_locally, "wire-late", NULL);
	struct report first = ask(&early);
	assert_int_equal(first.error, 0);
	uint32_t last = 0;
	for (uint32_t round = 1; round <= 3; round++) {
		struct child late = child_start(live_locally, "wire-late", NULL);
		struct report before = ask(&late);
		assert_int_equal(before.error, 0);
		kill(late.pid, SIGSTOP);
		kill_agent();
		await_agent(&early, round);
		struct child newcomer = child_start(live_locally, "wire-late", NULL);
		struct report report = ask(&newcomer);
		assert_int_equal(report.error, 0);
		/* In the order in which they came; two numbers are never given. */
		assert_true(numbers_after(&first, &before) > last);
		assert_true(numbers_after(&first, &report) > numbers_after(&first, &before));
		last = numbers_after(&first, &report);
		assert_true(last <= 2 * round + 2);
		kill(late.pid, SIGCONT);
		await_agent(&late, 1);
		assert_int_equal(ask(&late).first_qpn, before.first_qpn);
		end_child(&newcomer, 0);
		end_child(&late, SIGKILL);
	}
	end_child(&early, 0);
}

/* Until a thread of @child's waits. */
static void await_waiting(const struct child *child)
{
	double until = now_ms() + WAIT_MS;
	while (!ask(child).waits)
		assert_true(now_ms() < until);
}

/* A thread that waits for packets holds the socket of before: it must let go of it, and then wait
 * with the new one. */
static void test_agent_killed_while_a_thread_waits(void **state)
{
	(void)state;
	struct child child = child_start(live_and_wait, "wire-waiting", NULL);
	struct report before = ask(&child);
	for (uint32_t round = 1; round <= 3; round++) {
		await_waiting(&child);
		kill_agent();
		await_agent(&child, round);
		struct report report = ask(&child);
		assert_memory_equal(&report.gid, &before.gid, 16);
		await_waiting(&child);
		send_to(&report.gid, report.first_qpn + 1);
		await(&child, round);
	}
	end_child(&child, 0);
}

/* Two addresses: what comes to either is taken, also after the agent was killed. */
static void test_two_addresses(void **state)
{
	(void)state;
	char addresses[64];
	struct hdl_gid second;
	int pid = getpid();
	snprintf(addresses, sizeof(addresses), "127.78.%d.%d,127.79.%d.%d", pid >> 8 & 255,
	         pid & 255, pid >> 8 & 255, pid & 255);
	struct child children[2];
	struct report reports[2];
	uint64_t count = 0;
	for (int i = 0; i < 2; i++) {
		children[i] = child_start(live, "wire-two", addresses);
		reports[i] = ask(&children[i]);
		assert_int_equal(reports[i].error, 0);
		assert_int_equal(reports[i].gid.raw[13], 78);
	}
	second = reports[0].gid;
	second.raw[13] = 79;
	for (uint32_t round = 0; round < 2; round++) {
		count += 2;
		for (int i = 0; i < 2; i++) {
			send_to(&reports[i].gid, reports[i].first_qpn + 1);
			send_to(&second, reports[i].first_qpn + 1);
			await(&children[i], count);
		}
		if (round == 0)
			kill_agent();
		for (int i = 0; i < 2; i++)
			await_agent(&children[i], 1);
	}
	/* Who asks for one of them is on both; who asks for another is told. */
	addresses[strcspn(addresses, ",")] = '\0';
	struct child third = child_start(live, "wire-two", addresses);
	struct report report = ask(&third);
	assert_int_equal(report.error, 0);
	send_to(&second, report.first_qpn + 1);
	await(&third, 1);
	end_child(&third, 0);
	addresses[5] = '7'; /* 127.77 */
	third = child_start(live, "wire-two", addresses);
	assert_int_not_equal(ask(&third).error, 0);
	end_child(&third, 0);
	for (int i = 0; i < 2; i++)
		end_child(&children[i], 0);
}

/* As many addresses as a node can have: what comes to any of them is taken, also after the agent
 * was killed. One more is refused. */
static void test_eight_addresses(void **state)
{
	(void)state;
	char addresses[(UDP_MAX_ADDRESSES + 1) * 20] = "";
	unsigned high = (unsigned)getpid() >> 8 & 255, low = (unsigned)getpid() & 255;
	struct hdl_gid gids[UDP_MAX_ADDRESSES];
	size_t length = 0;
	for (unsigned i = 0; i < UDP_MAX_ADDRESSES; i++) {
		length += (size_t)snprintf(addresses + length, sizeof(addresses) - length,
		                           "%s127.%u.%u.%u", i > 0 ? "," : "", 80 + i, high, low);
		gids[i] = (struct hdl_gid){.raw = {[10] = 0xff,
		                                   0xff,
		                                   127,
		                                   (uint8_t)(80 + i),
		                                   (uint8_t)high,
		                                   (uint8_t)low}};
	}
	struct child child = child_start(live, "wire-eight", addresses);
	struct report report = ask(&child);
	uint64_t count = 0;
	assert_int_equal(report.error, 0);
	for (uint32_t round = 0; round < 2; round++) {
		for (unsigned i = 0; i < UDP_MAX_ADDRESSES; i++)
			send_to(&gids[i], report.first_qpn + 1);
		await(&child, count += UDP_MAX_ADDRESSES);
		if (round == 0)
			kill_agent();
		await_agent(&child, 1);
	}
	snprintf(addresses + length, sizeof(addresses) - length, ",127.88.%u.%u", high, low);
	struct child other = child_start(live, "wire-nine", addresses);
	assert_int_equal(ask(&other).error, -HDL_EINVAL);
	end_child(&other, 0);
	end_child(&child, 0);
}

/* A process that cannot let go of its socket keeps the port. Who wants it is told, and does not
 * wait for ever; when the process goes on, so does everything. */
static void test_agent_killed_and_process_stopped(void **state)
{
	(void)state;
	char address[32];
	snprintf(address, sizeof(address), "127.76.%d.%d", getpid() >> 8 & 255, getpid() & 255);
	struct child stopped = child_start(live, "wire-stopped", address);
	struct report before = ask(&stopped);
	assert_int_equal(before.error, 0);
	kill(stopped.pid, SIGSTOP);
	kill_agent();
	struct child next = child_start(live, "wire-stopped", address);
	struct report report = ask(&next);
	assert_int_not_equal(report.error, 0);
	end_child(&next, 0);
	kill(stopped.pid, SIGCONT);
	await_agent(&stopped, 1);
	send_to(&before.gid, before.first_qpn + 1);
	await(&stopped, 1);
	next = child_start(live, "wire-stopped", address);
	report = ask(&next);
	assert_int_equal(report.error, 0);
	end_child(&next, 0);
	end_child(&stopped, 0);
}

static char elsewhere[] = "/tmp/heddle-wire-XXXXXX"; /* where another agent is */

static void live_elsewhere(int talk, const char *node, const char *address)
{
	setenv("HEDDLE_DIR", elsewhere, 1);
	live(talk, node, address);
}

static void live_elsewhere_locally(int talk, const char *node, const char *address)
{
	setenv("HEDDLE_DIR", elsewhere, 1);
	live_locally(talk, node, address);
}

static void leave_elsewhere(void)
{
	char path[RUNDIR_MAX + 16];
	setenv("HEDDLE_DIR", elsewhere, 1);
	kill_agent();
	unsetenv("HEDDLE_DIR");
	rundir_file(elsewhere, AGENT_SOCKET, path, sizeof(path));
	unlink(path);
	rundir_file(elsewhere, AGENT_LOCK, path, sizeof(path));
	unlink(path);
	rmdir(elsewhere);
}

/* Nodes of one name, so of one GUID, with two agents: the LID of each is the address that its
 * packets come to. */
static void test_two_agents(void **state)
{
	(void)state;
	struct child children[2];
	struct report reports[2];
	children[0] = start("wire-agents");
	reports[0] = ask(&children[0]);
	children[1] = child_start(live_elsewhere, "wire-agents", NULL);
	reports[1] = ask(&children[1]);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(reports[i].error, 0);
		assert_int_not_equal(reports[i].lid, 0);
		assert_int_equal(reports[i].lid, agent_lid_at(reports[i].gid.raw));
		assert_int_equal(reports[i].lid, reports[i].found_lid);
		send_to(&reports[i].gid, reports[i].first_qpn + 1);
		await(&children[i], 1);
	}
	assert_int_not_equal(reports[0].lid, reports[1].lid);
	/* Who joins it, or comes back to another agent, has the same. */
	struct child second = child_start(live_elsewhere, "wire-agents", NULL);
	assert_int_equal(ask(&second).lid, reports[1].lid);
	end_child(&second, 0);
	setenv("HEDDLE_DIR", elsewhere, 1);
	kill_agent();
	unsetenv("HEDDLE_DIR");
	await_agent(&children[1], 1);
	assert_int_equal(ask(&children[1]).lid, reports[1].lid);
	end_child(&children[1], 0);
	/* Where a process knows the LID already, it stays: then there is no wire for others. */
	struct child local = child_start(live_elsewhere_locally, "wire-agents", NULL);
	assert_int_equal(ask(&local).lid, reports[0].lid);
	second = child_start(live_elsewhere, "wire-agents", NULL);
	assert_int_not_equal(ask(&second).error, 0);
	end_child(&second, 0);
	end_child(&local, 0);
	end_child(&children[0], 0);
}

/* A datagram queue pair of @end's, ready, with a receive for @bytes of payload behind the first
 * half of the memory. */
static struct hdl_qp *datagram_qp(struct end *end, uint32_t bytes)
{
	struct hdl_qp_init_attr init = {
	        .type = HDL_QP_UD, .send_cq = end->cq, .recv_cq = end->cq, .cap = {4, 4, 1, 1, 0}};
	struct hdl_qp_attr go = {.state = HDL_QPS_INIT, .port_num = 1, .qkey = QKEY};
	struct hdl_sge room = {end->mine.addr + end->bytes / 2, HDL_GRH_BYTES + bytes,
	                       end->mine.key};
	struct hdl_recv_wr receive = {.sg_list = &room, .num_sge = 1};
	struct hdl_qp *qp;
	MUST(hdl_qp_create(end->pd, &init, &qp));
	MUST(hdl_qp_modify(qp, &go, HDL_QP_STATE | HDL_QP_PORT | HDL_QP_QKEY | HDL_QP_PKEY_INDEX));
	go.state = HDL_QPS_RTR;
	MUST(hdl_qp_modify(qp, &go, HDL_QP_STATE));
	go.state = HDL_QPS_RTS;
	MUST(hdl_qp_modify(qp, &go, HDL_QP_STATE | HDL_QP_SQ_PSN));
	MUST(hdl_post_recv(qp, &receive, NULL));
	return qp;
}

static int send_datagram(struct end *end, struct hdl_qp *qp, struct hdl_ah *ah, uint32_t length)
{
	struct hdl_sge piece = {end->mine.addr, length, end->mine.key};
	struct hdl_send_wr wr = {.sg_list = &piece,
	                         .num_sge = 1,
	                         .opcode = HDL_OP_SEND,
	                         .flags = HDL_SEND_SIGNALED,
	                         .u.ud = {ah, hdl_qp_number(qp), QKEY}};
	return hdl_post_send(qp, &wr, NULL);
}

/* No packet of a datagram that is longer than the port takes leaves (IBTA C10-93.1.1), and its
 * sender is told at once. */
static void test_longest_datagram(void **state)
{
	(void)state;
	enum { PORT_MTU = 1024 };
	struct hdl_open_attr attr = {.on_node = true, .node = "wire-longest"};
	struct hdl_adapter *adapter;
	struct hdl_limits limits;
	struct hdl_ah *ah;
	struct hdl_wc wc;
	struct end end;
	uint32_t received = 0;
	setenv("HEDDLE_LOCAL", "off", 1);
	MUST(hdl_open(&attr, &adapter));
	unsetenv("HEDDLE_LOCAL");
	adapter->net.ports[0]->mtu = PORT_MTU; /* as of an interface that takes 1500 bytes */
	MUST(hdl_adapter_query(adapter, &limits));
	assert_int_equal(limits.mtu, PORT_MTU);
	end_open_on(&end, adapter, 4 * HDL_UD_MTU, 4);
	struct hdl_qp *qp = datagram_qp(&end, PORT_MTU);
	/* Another address of the node, which is not the one that its packets come to, will do. */
	struct hdl_ah_attr to = {.port_num = 1, .is_global = true};
	MUST(hdl_gid_query(adapter, 1, &to.dgid));
	assert_memory_not_equal(&to.dgid, &limits.gid, 16);
	MUST(hdl_ah_create(end.pd, &to, &ah));
	assert_int_equal(send_datagram(&end, qp, ah, PORT_MTU + 1), -HDL_EMSGSIZE);
	assert_int_equal(send_datagram(&end, qp, ah, HDL_UD_MTU), -HDL_EMSGSIZE);
	MUST(send_datagram(&end, qp, ah, PORT_MTU));
	for (int i = 0; i < 2; i++) {
		assert_true(end_wait(&end, &wc, WAIT_MS));
		assert_int_equal(wc.status, HDL_WC_SUCCESS);
		received += wc.opcode == HDL_WC_RECV ? wc.byte_len : 0;
	}
	assert_int_equal(received, HDL_GRH_BYTES + PORT_MTU);
	assert_int_equal(udp_wire_of(adapter->net.ports[0])->counts.refused, 0);
	MUST(hdl_ah_destroy(ah));
	MUST(hdl_qp_destroy(qp));
	end_close(&end);
	MUST(hdl_close(adapter));
}

static int begin(void **state)
{
	(void)state;
	struct udp_address address = {.gid = {[10] = 0xff, [11] = 0xff, [12] = 127, [13] = 75}};
	unsigned pid = (unsigned)getpid();
	address.gid[14] = (uint8_t)(pid >> 8);
	address.gid[15] = (uint8_t)pid;
	unsetenv("HEDDLE_ADDR");
	if (mkdtemp(elsewhere) == NULL)
		return -1;
	return udp_wire_begin(&network, &address, -1, 4096);
}

static int end(void **state)
{
	(void)state;
	udp_wire_end(&network);
	leave_elsewhere();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_each_its_own),
	        cmocka_unit_test(test_agent_killed),
	        cmocka_unit_test(test_agent_killed_while_a_thread_waits),
	        cmocka_unit_test(test_agent_killed_and_process_late),
	        cmocka_unit_test(test_two_addresses),
	        cmocka_unit_test(test_eight_addresses),
	        cmocka_unit_test(test_agent_killed_and_process_stopped),
	        cmocka_unit_test(test_two_agents),
	        cmocka_unit_test(test_longest_datagram),
	};
	return cmocka_run_group_tests(tests, begin, end);
}
