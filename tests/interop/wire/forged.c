/* A connection over real sockets while another process forges packets into it. The attacker sends
 * from the peer's address, which any process may bind on the loopback, and knows the numbers of
 * both queue pairs; it knows no PSN and no key. */
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
#include "base/clock.h"
#include "base/prng.h"
#include "interop/agent/end.h"
#include "transport/ib/ib.h"

#define ROUNDS     120
#define BYTES      200000u
#define BURST      16u
#define PAUSE_US   300u
#define ANSWER_NS  60000000000ull /* of the whole attack; a busy machine is no reason to fail */
#define ENOUGH     3000u          /* forged packets that each end must have seen */
#define NOTICE_OPS 4u             /* one packet in so many is a CNP */

struct target {
	struct hdl_gid gid;
	uint32_t qpn[2];
};

/* --- the attacker --- */

static const uint8_t opcodes[] = {
        IB_RC + IB_OP_SEND_ONLY,          IB_RC + IB_OP_WRITE_ONLY, IB_RC + IB_OP_WRITE_ONLY_IMM,
        IB_RC + IB_OP_READ_REQUEST,       IB_RC + IB_OP_ACK,        IB_RC + IB_OP_ACK,
        IB_RC + IB_OP_READ_RESPONSE_ONLY, IB_RC + IB_OP_FETCH_ADD};

/* The first PSN of these connections is 0, and they do not come that far. */
static uint32_t wrong_psn(struct prng *prng)
{
	return 0x100000u + (uint32_t)prng_below(prng, 0xe00000u);
}

static void forge(struct udp_wire *wire, struct prng *prng, const struct path *path, uint32_t qpn)
{
	struct ib_packet packet;
	memset(&packet, 0, sizeof(packet));
	bool notice = prng_below(prng, NOTICE_OPS) == 0;
	uint8_t opcode = opcodes[prng_below(prng, sizeof(opcodes))];
	packet.bth = (struct ib_bth){.opcode = notice ? IB_OPCODE_CNP : opcode,
	                             .becn = notice,
	                             .migreq = prng_chance(prng, 500),
	                             .ack_request = true,
	                             .pkey = 0xffff,
	                             .dest_qp = qpn,
	                             .psn = wrong_psn(prng)};
	packet.op = ib_opcode(packet.bth.opcode);
	packet.reth = (struct ib_reth){prng_next(prng), (uint32_t)prng_next(prng), 64};
	packet.atomiceth = (struct ib_atomiceth){.addr = prng_next(prng) & ~7ull,
	                                         .rkey = (uint32_t)prng_next(prng)};
	packet.aeth.syndrome = prng_chance(prng, 500)
	                               ? ib_aeth_syndrome(IB_AETH_NAK, IB_NAK_REMOTE_ACCESS_ERROR)
	                               : ib_aeth_syndrome(IB_AETH_ACK, IB_AETH_NO_CREDITS);
	static const uint8_t lie[64] = "forged";
	bool data = opcode == IB_RC + IB_OP_SEND_ONLY || opcode == IB_RC + IB_OP_WRITE_ONLY ||
	            opcode == IB_RC + IB_OP_WRITE_ONLY_IMM ||
	            opcode == IB_RC + IB_OP_READ_RESPONSE_ONLY;
	packet.payload = lie;
	packet.payload_bytes = data && !notice ? sizeof(lie) : 0;
	uint8_t bytes[256];
	struct roce_path ip = path->ip;
	size_t count = roce_udp_encode(&ip, &packet, bytes, sizeof(bytes));
	uint8_t *to = wire->carrier.reserve(wire, path, count);
	if (count <= IB_ICRC_BYTES || to == NULL)
		return;
	memcpy(to, bytes, count - IB_ICRC_BYTES);
	wire->carrier.commit(wire, path, count - IB_ICRC_BYTES);
}

/* Until the other side closes. */
static void attack(int talk)
{
	static struct udp_wire wire;
	struct target target;
	struct prng prng;
	prng_seed(&prng, 7);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (recv(talk, &target, sizeof(target), MSG_WAITALL) != sizeof(target))
		_exit(0);
	struct udp_address address = {0};
	memcpy(address.gid, target.gid.raw, 16);
	MUST(udp_wire_begin(&wire, &address, -1, 4096));
	wire.slot_shift = 24; /* trains for several processes, too */
	struct path path = {.ip = {.hop_limit = 64, .src_port = 0xd000}};
	memcpy(path.ip.dgid, target.gid.raw, 16);
	memcpy(path.ip.sgid, target.gid.raw, 16);
	struct pollfd readable = {.fd = talk, .events = POLLIN};
	while (poll(&readable, 1, 0) == 0) {
		for (uint32_t i = 0; i < BURST; i++)
			forge(&wire, &prng, &path, target.qpn[i / 2 % 2]);
		wire.carrier.flush(&wire);
		usleep(PAUSE_US);
	}
	udp_wire_end(&wire);
	_exit(0);
}

/* --- the connection --- */

static uint64_t counter(struct hdl_adapter *adapter, const char *name)
{
	struct hdl_counter list[64];
	size_t count = hdl_counters(adapter, list, sizeof(list) / sizeof(list[0]));
	for (size_t i = 0; i < count; i++)
		if (strcmp(list[i].name, name) == 0)
			return list[i].value;
	fail_msg("no counter %s", name);
	return 0;
}

static uint32_t window(struct end *end)
{
	adapter_lock(end->adapter);
	uint32_t window = end->qp->qp.ib->window.size;
	adapter_unlock(end->adapter);
	return window;
}

static bool is_apart(struct end *end)
{
	adapter_lock(end->adapter);
	bool apart = udp_wire_of(end->adapter->net.ports[0])->apart_ns != 0;
	adapter_unlock(end->adapter);
	return apart;
}

static void expect_state(struct end *end, enum hdl_qp_state state)
{
	struct hdl_qp_attr attr;
	assert_int_equal(hdl_qp_query(end->qp, &attr, NULL), 0);
	assert_int_equal(attr.state, state);
}

static void fill(struct end *end, uint32_t round)
{
	for (uint32_t i = 0; i < BYTES; i++)
		end->room[i] = (unsigned char)(round * 37 + i * 11 + i / 255);
}

/* A write, a send and a read, each of whose bytes must have arrived. */
static void talk_once(struct end *from, struct end *to, uint32_t round)
{
	struct hdl_wc wc;
	fill(from, round);
	end_must(from, HDL_OP_WRITE, BYTES);
	assert_memory_equal(to->room, from->room, BYTES);
	from->room[0] ^= 0xff;
	end_must(from, HDL_OP_SEND, 5000);
	assert_true(end_wait(to, &wc, 10000));
	assert_int_equal(wc.status, HDL_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 5000);
	assert_memory_equal(to->room, from->room, BYTES);
	end_post_receive(to);
	fill(to, round + 1);
	end_must(from, HDL_OP_READ, BYTES);
	assert_memory_equal(to->room, from->room, BYTES);
}

static void a_connection_survives_forged_packets(void **state)
{
	(void)state;
	int pair[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	pid_t attacker = fork(); /* before there are threads */
	if (attacker == 0) {
		close(pair[0]);
		attack(pair[1]);
	}
	assert_true(attacker > 0);
	close(pair[1]);
	setenv("HEDDLE_LOCAL", "off", 1);
	struct end ends[2];
	for (int i = 0; i < 2; i++)
		end_open(&ends[i], BYTES, 8);
	for (int i = 0; i < 2; i++) {
		ends[i].peer = ends[1 - i].mine;
		end_connect(&ends[i]);
	}
	talk_once(&ends[0], &ends[1], 0);
	struct target target = {.gid = ends[0].mine.gid,
	                        .qpn = {ends[0].mine.qpn, ends[1].mine.qpn}};
	assert_int_equal(write(pair[0], &target, sizeof(target)), sizeof(target));
	uint64_t end_ns = clock_now_ns() + ANSWER_NS;
	uint32_t least = UINT32_MAX, rounds = 0;
	for (;
	     rounds < ROUNDS || counter(ends[0].adapter, "cnp_unproved") < ENOUGH / NOTICE_OPS / 2;
	     rounds++) {
		talk_once(&ends[rounds % 2], &ends[1 - rounds % 2], rounds);
		for (int i = 0; i < 2; i++)
			least = window(&ends[i]) < least ? window(&ends[i]) : least;
		assert_true(clock_now_ns() < end_ns);
	}
	for (int i = 0; i < 2; i++) {
		expect_state(&ends[i], HDL_QPS_RTS);
		assert_int_equal(counter(ends[i].adapter, "refused_not_valid"), 0);
	}
	/* No notification of a stranger's brought a window below what it began with, and nothing
	 * else did. */
	assert_true(least >= 1u << WINDOW_SHIFT);
	close(pair[0]);
	assert_int_equal(waitpid(attacker, NULL, 0), attacker);
	/* The attack is over: trains are joined again. */
	for (int i = 0; i < 2; i++)
		while (is_apart(&ends[i])) {
			talk_once(&ends[0], &ends[1], rounds++);
			assert_true(clock_now_ns() < end_ns);
		}
	for (int i = 0; i < 2; i++)
		end_close(&ends[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_connection_survives_forged_packets),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
