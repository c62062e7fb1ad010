/* The ports of an adapter (adapter/net/port.h). UDP ports of two addresses (MISSION SN3): a packet
 * leaves by the port that its path names, packets that take turns are joined into trains all the
 * same, and what comes to either address is taken. And a port of this test's own, to which every
 * part of the contract applies: whoever drives, what arrives is taken, timers expire, what is
 * blocked is tried again, descriptors change. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "adapter/adapter.h"
#include "adapter/net/udp.h"
#include "base/mac.h"
#include "wire/ib_opcode.h"

#define WAIT_MS       10000
#define COUNT         40u
#define PAYLOAD_BYTES 1000u
#define FLOOD_NS      200000u /* of a turn while packets keep coming */
#define FLOOD_CALLS   50u
#define FLOOD_TURNS   64u /* of the thread during one call */

/* --- two UDP ports --- */

static struct hdl_adapter *adapter;
static struct udp_wire *here[2], there;
static struct {
	unsigned count;
	uint32_t psn; /* the next, by source */
	uint8_t to[16];
	uint8_t port;
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
	came_to.port = came->port;
	memcpy(came_to.to, came->ip.dgid, 16);
}

static int begin(void **state)
{
	(void)state;
	struct udp_address last = own(2);
	struct agent_msg welcome = {
	        .u.welcome = {.wire_mtu = 1024, .wire_count = 2, .wires = {own(0), own(1)}}};
	struct hdl_open_attr attr = {.max_qp = 16, .max_mr = 16, .no_thread = true, .capture = ""};
	struct adapter_env env = {.clock = clock_real()};
	int socks[2];
	memcpy(attr.gid.raw, own(0).gid, 16);
	memcpy(env.second_gid.raw, own(1).gid, 16);
	assert_int_equal(adapter_open(&attr, &env, &adapter), 0);
	for (unsigned i = 0; i < 2; i++)
		assert_true((socks[i] = udp_open(&welcome.u.welcome.wires[i], UDP_ROCE_PORT)) >= 0);
	assert_int_equal(net_attach(adapter, &welcome, socks), 0);
	assert_int_equal(adapter->net.port_count, 2);
	for (unsigned i = 0; i < 2; i++) {
		here[i] = udp_wire_of(adapter->net.ports[i]);
		here[i]->slot_shift = 24; /* all of them are ours */
		here[i]->take = take_back;
	}
	int sock = udp_open(&last, UDP_ROCE_PORT);
	assert_true(sock >= 0);
	assert_int_equal(udp_wire_begin(&there, &last, sock, 4096), 0);
	there.take = take;
	memset(came_from, 0, sizeof(came_from));
	return 0;
}

static int end(void **state)
{
	(void)state;
	udp_wire_end(&there);
	assert_int_equal(hdl_close(adapter), 0);
	return 0;
}

static void put(const struct carrier *carrier, const struct path *path, uint32_t psn)
{
	uint8_t data[PAYLOAD_BYTES] = {0};
	struct ib_packet packet = {.bth = {.opcode = IB_RC + IB_OP_SEND_ONLY,
	                                   .dest_qp = 7,
	                                   .psn = psn,
	                                   .pkey = 0xffff},
	                           .payload = data,
	                           .payload_bytes = sizeof(data)};
	size_t bytes = IB_BTH_BYTES + sizeof(data);
	uint8_t *room = carrier->reserve(carrier->context, path, bytes);
	assert_non_null(room);
	assert_int_equal(ib_transport_encode(&packet, room, bytes), bytes);
	carrier->commit(carrier->context, path, bytes);
}

static void test_each_from_its_own(void **state)
{
	(void)state;
	struct hdl_ah_attr to = {.is_global = true, .port_num = 1};
	memcpy(to.dgid.raw, there.address.gid, 16);
	for (uint32_t i = 0; i < COUNT; i++) {
		to.sgid_index = (uint8_t)(i % 2);
		struct path path = wire_path(adapter, &to, 7, 7);
		assert_int_equal(path.kind, PATH_ROCE);
		assert_int_equal(path.port, i % 2);
		assert_memory_equal(path.ip.sgid, here[i % 2]->address.gid, 16);
		const struct carrier *carrier = adapter->engine.carriers[path.port];
		put(carrier, &path, i);
		assert_int_equal(here[0]->queues[SERVICE_NORMAL].count, 1); /* one train, */
		assert_int_equal(here[1]->queues[SERVICE_NORMAL].count, i > 0);
		assert_true(carrier->filling(carrier->context));
	}
	assert_true(net_blocked(&adapter->net)); /* which waits */
	assert_true(adapter_is_stuck(adapter));
	engine_run(&adapter->engine);
	assert_false(net_blocked(&adapter->net));
	assert_int_equal(here[0]->counts.sent, COUNT / 2);
	assert_int_equal(here[1]->counts.sent, COUNT / 2);
	struct pollfd readable = {.fd = there.sock, .events = POLLIN};
	while (came_from[0].count + came_from[1].count < COUNT) {
		assert_int_equal(poll(&readable, 1, WAIT_MS), 1);
		udp_wire_receive(&there);
	}
	assert_int_equal(came_from[0].count, came_from[1].count);
	assert_int_equal(there.counts.bad, 0);
}

static void test_to_either(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct pollfd readable = {.fd = here[i]->port.fd, .events = POLLIN};
		struct path path = {.ip = {.src_port = 0xc123, .hop_limit = 64}};
		memcpy(path.ip.dgid, here[i]->address.gid, 16);
		put(&there.carrier, &path, i);
		there.carrier.flush(&there);
		assert_int_equal(poll(&readable, 1, WAIT_MS), 1);
		came_to.count = 0;
		if (i == 0)
			assert_int_equal(net_look(&adapter->net), 1);
		else
			assert_int_equal(net_receive(&adapter->net), 1);
		assert_int_equal(came_to.count, 1);
		assert_int_equal(came_to.port, i);
		assert_memory_equal(came_to.to, here[i]->address.gid, 16);
		assert_int_equal(net_received(&adapter->net), i + 1);
	}
}

/* A datagram has no connection: the address that it is sent from says by which port. */
static void test_datagrams(void **state)
{
	(void)state;
	assert_int_equal(adapter->engine.gid_ports[0], 0);
	assert_int_equal(adapter->engine.gid_ports[1], 1);
	assert_int_equal(adapter->engine.group_gid, 0);
	assert_int_equal(net_gids(adapter), 3);
	assert_int_equal(net_mtu(adapter), 1024);
}

static void test_which(void **state)
{
	(void)state;
	struct net_port four = {.mtu = 1}, six = {.mtu = 1}, four_too = {.mtu = 1},
	                none = {.mtu = 0};
	struct udp_address to_four = own(0), to_six, address;
	assert_true(udp_address_parse("192.0.2.1", &address));
	memcpy(four.gid.raw, address.gid, 16);
	assert_true(udp_address_parse("2001:db8::1", &address));
	memcpy(six.gid.raw, address.gid, 16);
	assert_true(udp_address_parse("192.0.2.2", &address));
	memcpy(four_too.gid.raw, address.gid, 16);
	memcpy(none.gid.raw, to_four.gid, 16);
	assert_true(udp_address_parse("2001:db8::9", &to_six));
	struct net net = {.ports = {&none, &four, &six, &four_too}, .port_count = 4};
	assert_ptr_equal(net_port_for(&net, four_too.gid.raw, to_four.gid), &four_too);
	assert_ptr_equal(net_port_for(&net, four.gid.raw, to_four.gid), &four);
	assert_ptr_equal(net_port_for(&net, NULL, to_four.gid), &four);
	/* One that carries no packets does not count. */
	assert_ptr_equal(net_port_for(&net, none.gid.raw, to_four.gid), &four);
	/* One of the other family cannot reach it. */
	assert_ptr_equal(net_port_for(&net, six.gid.raw, to_four.gid), &four);
	assert_ptr_equal(net_port_for(&net, four.gid.raw, to_six.gid), &six);
	assert_ptr_equal(net_port_for(&net, to_six.gid, to_six.gid), &six);
	/* Frames reach MAC addresses only, and nothing else reaches those before them. */
	struct net_port frames = {.mtu = 1, .frames = true};
	uint8_t to_mac[16];
	mac_to_gid((const uint8_t[]){2, 0, 0, 0, 0, 9}, to_mac);
	mac_to_gid((const uint8_t[]){2, 0, 0, 0, 0, 1}, frames.gid.raw);
	net = (struct net){.ports = {&frames, &four, &six}, .port_count = 3};
	assert_ptr_equal(net_port_for(&net, NULL, to_mac), &frames);
	assert_ptr_equal(net_port_for(&net, four.gid.raw, to_mac), &frames);
	assert_ptr_equal(net_port_for(&net, NULL, to_six.gid), &six);
	assert_ptr_equal(net_port_for(&net, frames.gid.raw, to_six.gid), &six);
	assert_ptr_equal(net_port_for(&net, NULL, to_four.gid), &four);
	/* Nothing can: whichever it is, the kernel refuses it. */
	net = (struct net){.ports = {&four_too}, .port_count = 1};
	assert_ptr_equal(net_port_for(&net, NULL, to_six.gid), &four_too);
	net.port_count = 0;
	assert_null(net_port_for(&net, NULL, to_six.gid));
}

/* --- a port of ours --- */

static struct fake {
	struct net_port port; /* must be first */
	int always;           /* wakes the thread whoever drives */
	int other;            /* shown by and by */
	_Atomic unsigned receives, arrivals, heard, ticks, ends;
	_Atomic unsigned by_program; /* arrivals that a thread of the program took */
	_Atomic unsigned blocked;    /* turns until there is room */
	_Atomic uint64_t ticked_ns;
	_Atomic bool flood; /* there is always something to receive */
	_Atomic pthread_t program;
} fake;

static void signal_once(int fd)
{
	uint64_t one = 1;
	assert_int_equal(write(fd, &one, sizeof(one)), sizeof(one));
}

static unsigned fake_receive(struct net_port *port)
{
	uint64_t count;
	fake.receives++;
	if (fake.blocked > 0)
		fake.blocked--;
	if (fake.flood) {
		for (uint64_t end = clock_now_ns() + FLOOD_NS; clock_now_ns() < end;)
			;
		return 1;
	}
	if (port->fd < 0 || read(port->fd, &count, sizeof(count)) != sizeof(count))
		return 0;
	fake.by_program += pthread_equal(pthread_self(), fake.program) != 0;
	fake.arrivals += (unsigned)count;
	return (unsigned)count;
}

static bool fake_blocked(const struct net_port *port)
{
	(void)port;
	return fake.blocked > 0;
}

static unsigned fake_hear(struct net_port *port)
{
	uint64_t count;
	(void)port;
	if (read(fake.always, &count, sizeof(count)) != sizeof(count))
		return 0;
	fake.heard += (unsigned)count;
	return (unsigned)count;
}

static unsigned fake_tick(struct net_port *port, uint64_t now_ns)
{
	assert_true(now_ns >= port->due_ns);
	port->due_ns = UINT64_MAX;
	fake.ticked_ns = now_ns;
	fake.ticks++;
	return 1;
}

static void fake_end(struct net_port *port)
{
	close(port->fd);
	close(fake.always);
	close(fake.other);
	fake.ends++;
}

static const struct net_port_ops fake_ops = {.name = "fake",
                                             .receive = fake_receive,
                                             .blocked = fake_blocked,
                                             .hear = fake_hear,
                                             .tick = fake_tick,
                                             .end = fake_end};

static int new_event(void)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	assert_true(fd >= 0);
	return fd;
}

static int begin_fake(void **state)
{
	(void)state;
	struct hdl_open_attr attr = {.max_qp = 16, .max_mr = 16, .capture = ""};
	memset(&fake, 0, sizeof(fake));
	fake.always = new_event();
	fake.other = new_event();
	assert_int_equal(hdl_open(&attr, &adapter), 0);
	adapter_lock(adapter);
	port_init(&fake.port, &fake_ops, new_event());
	assert_int_equal(ports_add(adapter, &fake.port, NULL), 0);
	assert_int_equal(port_keep_awake(&fake.port, fake.always), 0);
	adapter_unlock(adapter);
	return 0;
}

static int end_fake(void **state)
{
	(void)state;
	assert_int_equal(fake.ends, 0);
	assert_int_equal(hdl_close(adapter), 0);
	assert_int_equal(fake.ends, 1);
	return 0;
}

/* Wait until *value is at least @least. */
static void await(_Atomic unsigned *value, unsigned least)
{
	for (unsigned ms = 0; *value < least; ms++) {
		struct timespec moment = {.tv_nsec = 1000000};
		assert_true(ms < WAIT_MS);
		nanosleep(&moment, NULL);
	}
}

/* No thread of the program calls: the adapter's own takes everything. */
static void test_thread_takes(void **state)
{
	(void)state;
	for (unsigned i = 1; i <= 20; i++) {
		signal_once(fake.port.fd);
		await(&fake.arrivals, i);
		signal_once(fake.always);
		await(&fake.heard, i);
	}
	assert_int_equal(fake.by_program, 0);
	adapter_lock(adapter);
	assert_int_equal(net_received(&adapter->net), 40);
	adapter_unlock(adapter);
}

static void test_thread_keeps_time(void **state)
{
	(void)state;
	for (unsigned i = 1; i <= 5; i++) {
		/* The thread sleeps by then, and does not know of the timer. */
		struct timespec moment = {.tv_nsec = 5000000};
		nanosleep(&moment, NULL);
		adapter_lock(adapter);
		uint64_t due_ns = fake.port.due_ns = clock_read(&adapter->clock) + 3000000;
		adapter_unlock(adapter);
		await(&fake.ticks, i);
		assert_true(fake.ticked_ns >= due_ns);
	}
}

static void test_thread_tries_again(void **state)
{
	(void)state;
	adapter_lock(adapter);
	fake.blocked = 50;
	unsigned before = fake.receives;
	adapter_unlock(adapter);
	await(&fake.receives, before + 50);
	for (unsigned ms = 0; fake.blocked > 0; ms++)
		assert_true(ms < WAIT_MS && poll(NULL, 0, 1) == 0);
}

/* A program that waits takes what arrives itself, from the descriptor that the port shows. */
static void *wait_for_events(void *context)
{
	struct hdl_channel *channel = context;
	struct hdl_cq *cq;
	void *cq_context;
	fake.program = pthread_self();
	while (fake.arrivals < 20)
		assert_int_equal(hdl_channel_get(channel, &cq, &cq_context, 50), -HDL_EAGAIN);
	return NULL;
}

static void test_waiter_takes(void **state)
{
	(void)state;
	struct hdl_channel *channel;
	pthread_t thread;
	assert_int_equal(hdl_channel_create(adapter, &channel), 0);
	assert_int_equal(pthread_create(&thread, NULL, wait_for_events, channel), 0);
	for (unsigned i = 1; i <= 20; i++) {
		signal_once(fake.port.fd);
		await(&fake.arrivals, i);
		if (i % 5 != 0)
			continue;
		adapter_lock(adapter); /* another descriptor from now on */
		int former = fake.port.fd;
		assert_int_equal(port_show(&fake.port, fake.other), 0);
		fake.other = former;
		adapter_unlock(adapter);
	}
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(fake.by_program > 0);
	assert_int_equal(hdl_channel_destroy(channel), 0);
}

/* A port may show nothing for a while. */
static void test_nothing_to_show(void **state)
{
	(void)state;
	adapter_lock(adapter);
	int fd = fake.port.fd;
	assert_int_equal(port_show(&fake.port, -1), 0);
	adapter_unlock(adapter);
	signal_once(fd);
	assert_int_equal(hdl_progress(adapter), 0);
	struct pollfd caller = {.fd = fake.other, .events = POLLIN};
	struct timespec soon = {.tv_nsec = 1000000};
	assert_int_equal(hdl_poll(adapter, &caller, 1, &soon, NULL), 0);
	assert_int_equal(fake.arrivals, 0);
	adapter_lock(adapter);
	assert_int_equal(port_show(&fake.port, fd), 0);
	adapter_unlock(adapter);
	await(&fake.arrivals, 1);
}

/* This thread and the adapter's share one processor, or have back what they had. */
static void share_processor(const cpu_set_t *set)
{
	assert_int_equal(pthread_setaffinity_np(pthread_self(), sizeof(*set), set), 0);
	assert_int_equal(pthread_setaffinity_np(adapter->drive.thread, sizeof(*set), set), 0);
}

/* While packets keep coming, the adapter's thread goes on; but a call of the program waits for a
 * few of its turns, not until the last packet. */
static void test_flood_lets_calls_in(void **state)
{
	(void)state;
	cpu_set_t before, one;
	struct hdl_channel *channel;
	struct hdl_cq *cq;
	unsigned all = 0;
	assert_int_equal(hdl_channel_create(adapter, &channel), 0);
	assert_int_equal(hdl_cq_create(adapter, 16, channel, NULL, &cq), 0);
	assert_int_equal(hdl_cq_arm(cq, false), 0); /* the thread keeps driving */
	assert_int_equal(pthread_getaffinity_np(pthread_self(), sizeof(before), &before), 0);
	CPU_ZERO(&one);
	CPU_SET((unsigned)sched_getcpu(), &one);
	share_processor(&one);
	fake.flood = true;
	signal_once(fake.port.fd);
	await(&fake.receives, 1);
	for (unsigned i = 0; i < FLOOD_CALLS; i++) {
		unsigned turns = fake.receives;
		assert_int_equal(hdl_cq_arm(cq, false), 0);
		turns = fake.receives - turns;
		assert_in_range(turns, 0, FLOOD_TURNS);
		all += turns;
		await(&fake.receives, fake.receives + 2);
	}
	assert_in_range(all, 0, FLOOD_CALLS * 4);
	fake.flood = false;
	share_processor(&before);
	assert_int_equal(hdl_cq_destroy(cq), 0);
	assert_int_equal(hdl_channel_destroy(channel), 0);
}

/* A program that posts all the time, so that another thread waits for the lock, receives too. */
static void test_posts_receive(void **state)
{
	(void)state;
	struct hdl_pd *pd;
	struct hdl_cq *cq;
	struct hdl_qp *qp;
	struct hdl_wc wc;
	bool received = false;
	assert_int_equal(hdl_pd_create(adapter, &pd), 0);
	assert_int_equal(hdl_cq_create(adapter, 16, NULL, NULL, &cq), 0);
	struct hdl_qp_init_attr init = {
	        .type = HDL_QP_RC, .send_cq = cq, .recv_cq = cq, .cap = {4, 4, 1, 1, 0}};
	assert_int_equal(hdl_qp_create(pd, &init, &qp), 0);
	struct hdl_qp_attr attr = {.state = HDL_QPS_INIT, .port_num = 1};
	assert_int_equal(
	        hdl_qp_modify(qp, &attr,
	                      HDL_QP_STATE | HDL_QP_PKEY_INDEX | HDL_QP_PORT | HDL_QP_ACCESS),
	        0);
	attr.state = HDL_QPS_ERR; /* each post is a call of the doorbell */
	assert_int_equal(hdl_qp_modify(qp, &attr, HDL_QP_STATE), 0);
	fake.program = pthread_self();
	atomic_fetch_add(&adapter->drive.wanted, 1);
	for (unsigned tries = 0; !received; tries++) { /* the thread may be faster */
		assert_true(tries < WAIT_MS);
		struct hdl_recv_wr wr = {0};
		unsigned before = fake.by_program;
		signal_once(fake.port.fd);
		assert_int_equal(hdl_post_recv(qp, &wr, NULL), 0);
		received = fake.by_program > before;
		for (unsigned polls = 0; hdl_cq_poll(cq, &wc, 1) == 0; polls++)
			assert_true(polls < 1000000);
	}
	atomic_fetch_sub(&adapter->drive.wanted, 1);
	assert_int_equal(hdl_qp_destroy(qp), 0);
	assert_int_equal(hdl_cq_destroy(cq), 0);
	assert_int_equal(hdl_pd_destroy(pd), 0);
}

static void test_no_more_than(void **state)
{
	(void)state;
	struct net_port more[ENGINE_MAX_PORTS];
	adapter_lock(adapter);
	for (uint32_t i = 1; i <= ENGINE_MAX_PORTS; i++) {
		port_init(&more[i - 1], &fake_ops, -1);
		assert_int_equal(ports_add(adapter, &more[i - 1], NULL),
		                 i < ENGINE_MAX_PORTS ? 0 : -ENOSPC);
	}
	assert_false(engine_has_network(&adapter->engine)); /* none carries packets */
	adapter->net.port_count = adapter->engine.carrier_count = 1;
	adapter_unlock(adapter);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_each_from_its_own, begin, end),
	        cmocka_unit_test_setup_teardown(test_to_either, begin, end),
	        cmocka_unit_test_setup_teardown(test_datagrams, begin, end),
	        cmocka_unit_test(test_which),
	        cmocka_unit_test_setup_teardown(test_thread_takes, begin_fake, end_fake),
	        cmocka_unit_test_setup_teardown(test_thread_keeps_time, begin_fake, end_fake),
	        cmocka_unit_test_setup_teardown(test_thread_tries_again, begin_fake, end_fake),
	        cmocka_unit_test_setup_teardown(test_waiter_takes, begin_fake, end_fake),
	        cmocka_unit_test_setup_teardown(test_nothing_to_show, begin_fake, end_fake),
	        cmocka_unit_test_setup_teardown(test_flood_lets_calls_in, begin_fake, end_fake),
	        cmocka_unit_test_setup_teardown(test_posts_receive, begin_fake, end_fake),
	        cmocka_unit_test_setup_teardown(test_no_more_than, begin_fake, end_fake),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
