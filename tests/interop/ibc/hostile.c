/* A client that follows no rule: it forges the source, the GUID, the APID and the way back, floods
 * others, overwrites its lanes with garbage, and asks the agent for what it has no right to. It
 * harms itself alone: two others talk all the time, and count what they refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/prng.h"
#include "ibc/member.h"
#include "peer.h"
#include "port/bell.h"
#include "port/rundir.h"
#include "port/unixsock.h"

enum { ALICE = 40, BOB = 41, MALLORY = 42, INFORMER = 43 };

/* --- somebody who tells the attacker the number of every request, and answers after him --- */

static int number_of[2], turn[2]; /* pipes: the number, and who is next */

static void informer(int channel)
{
	struct IBC_Info info;
	IBC_HANDLE handle;
	struct timespec time = {0, 20000000};
	struct pollfd end = {.fd = channel, .events = POLLIN};
	char byte;
	MUST(IBC_RecvPost(&handle) == 0);
	peer_say(channel, 'r');
	while (poll(&end, 1, 0) == 0) {
		if (IBC_RecvWaitInfo(handle, &time, NULL, &info) != IBC_RECVDONE)
			continue;
		MUST(write(number_of[1], &info.Transaction, 4) == 4);
		MUST(read(turn[0], &byte, 1) == 1);
		MUST(IBC_Respond(&info, IBC_READ_RESPONSE, 0, "read", 4) == 0);
	}
	IBC_Finish();
}

/* --- the attacker, which has lanes to all others --- */

static struct member mallory;

static void ignore_lane(struct member *member, unsigned from)
{
	(void)member;
	(void)from;
}

static const struct member_owner mallory_owner = {.leaves = ignore_lane};

static void mallory_enter(void)
{
	static const uint8_t no_key[AGENT_VS_KEY_BYTES];
	MUST(member_begin(&mallory, &mallory_owner, NULL, no_key));
	MUST(member_attach(&mallory, MALLORY, 0) == MALLORY);
	member_hear(&mallory);
}

static unsigned member_of(unsigned apid)
{
	unsigned member = mallory.board->owners[apid];
	MUST(member_reach(&mallory, member));
	return member;
}

/* Write @bytes into the lane to @apid, if there is room. */
static bool put_bytes(unsigned apid, const void *bytes, size_t length)
{
	struct member_peer *peer = &mallory.peers[member_of(apid)];
	void *room = ring_reserve(&peer->end.tx, length);
	if (room == NULL)
		return false;
	memcpy(room, bytes, length);
	ring_publish(&peer->end.tx);
	if (ring_take_armed(&peer->end.tx))
		bell_ring(peer->bell);
	return true;
}

static struct record honest_record(void)
{
	return (struct record){.inport = MALLORY,
	                       .outport = ALICE,
	                       .packet = {.type = IBC_TYPE_WRITE_REQUEST,
	                                  .source_apid = MALLORY,
	                                  .dest_apid = ALICE,
	                                  .route = {.pointer = 1},
	                                  .payload = (const uint8_t *)"evil",
	                                  .payload_bytes = 4}};
}

static void put_forged(const struct record *record)
{
	uint8_t bytes[RECORD_MAX_BYTES];
	size_t length = record_write(record, bytes, sizeof(bytes));
	MUST(length > 0);
	while (!put_bytes(ALICE, bytes, length))
		;
}

#define FORGED 9u

static void forge(void)
{
	struct record r = honest_record();
	r.packet.source_apid = BOB; /* 1: as bob */
	put_forged(&r);
	r.inport = BOB; /* 2 */
	put_forged(&r);
	r = honest_record();
	r.packet.guid = 0x1234; /* 3: as if through a NIC */
	put_forged(&r);
	r = honest_record();
	r.outport = BOB; /* 4: through a port that the reader does not hold */
	put_forged(&r);
	r = honest_record();
	r.packet.dest_apid = BOB; /* 5 */
	put_forged(&r);
	r = honest_record(); /* 6: the way back leads to bob */
	r.by_route = true;
	r.packet.route = (struct ibc_route){.pointer = 2, .hops = 1, .ports = {BOB}};
	put_forged(&r);
	r.by_route = false; /* 7: the same, at the end of its route */
	put_forged(&r);
	r = honest_record();
	r.inport = 0; /* 8: as if from the network */
	put_forged(&r);
	r = honest_record();
	r.inport = r.packet.source_apid = 63; /* 9 */
	put_forged(&r);
}

/* Answers to Alice's request with the number @number, which she sent to somebody else: as the
 * attacker itself, which the lane allows, by each way that leads to her. */
#define IMPOSTURES 4u

static void impersonate(uint32_t number)
{
	for (unsigned i = 0; i < IMPOSTURES; i++) {
		struct record r = honest_record();
		r.packet.transaction = number;
		r.packet.type = i % 2 == 0 ? IBC_TYPE_READ_RESPONSE : IBC_TYPE_NACK;
		if (r.packet.type == IBC_TYPE_NACK)
			r.packet.reason = IBC_REASON_NO_RECEIVE;
		r.by_route = i >= 2;
		if (r.by_route)
			r.packet.route =
			        (struct ibc_route){.pointer = 2, .hops = 1, .ports = {MALLORY}};
		put_forged(&r);
	}
}

/* Alice has asked the attacker with the number @seen. Answer what she may ask next. */
static void foretell(uint32_t seen)
{
	for (uint32_t ahead = 1; ahead <= 64; ahead++) {
		struct record r = honest_record();
		r.packet.type = IBC_TYPE_READ_RESPONSE;
		r.packet.transaction = seen + ahead;
		put_forged(&r);
	}
}

/* The number of the next request that comes from Alice. */
static uint32_t number_from_alice(void)
{
	static uint8_t copy[RECORD_MAX_BYTES];
	struct record record;
	enum record_verdict verdict;
	uint64_t end = clock_now_ns() + 20000000000u;
	while (member_take(&mallory, member_of(ALICE), copy, &record, &verdict) != MEMBER_RECORD)
		MUST(clock_now_ns() < end);
	return record.packet.transaction;
}

#define DAMAGED 200u

static void damage(void)
{
	struct prng prng;
	prng_seed(&prng, 7);
	for (unsigned i = 0; i < DAMAGED; i++) {
		uint8_t bytes[RECORD_MAX_BYTES];
		size_t length = 1 + prng_below(&prng, 300);
		for (size_t at = 0; at < length; at++)
			bytes[at] = (uint8_t)prng_next(&prng);
		while (!put_bytes(ALICE, bytes, length))
			;
	}
}

/* Fill the lanes to both with packets as fast as they are read. */
static void flood(uint64_t ns)
{
	uint8_t to_alice[RECORD_MAX_BYTES], to_bob[RECORD_MAX_BYTES];
	struct record r = honest_record();
	size_t alice = record_write(&r, to_alice, sizeof(to_alice));
	r.outport = r.packet.dest_apid = BOB;
	size_t bob = record_write(&r, to_bob, sizeof(to_bob));
	for (uint64_t end = clock_now_ns() + ns; clock_now_ns() < end;) {
		put_bytes(ALICE, to_alice, alice);
		put_bytes(BOB, to_bob, bob);
		bell_ring(mallory.peers[member_of(ALICE)].bell);
	}
}

/* Random bytes all over both lanes, heads and stamps included. */
static void overwrite(unsigned apid, uint64_t seed)
{
	struct prng prng;
	prng_seed(&prng, seed);
	uint8_t *block = mallory.peers[member_of(apid)].block;
	size_t bytes = lanes_bytes_of(BOARD_LANE_SLOTS);
	for (unsigned i = 0; i < 20000; i++)
		block[prng_below(&prng, bytes)] = (uint8_t)prng_next(&prng);
	for (size_t at = 0; at + 8 <= bytes; at += 8) {
		uint64_t word = prng_next(&prng);
		memcpy(block + at, &word, 8);
	}
}

/* Says that it comes back from a former agent, and has lanes to itself; then it leaves. */
static void claim_to_know_itself(void)
{
	char directory[RUNDIR_MAX], path[RUNDIR_MAX + 16];
	const uint32_t number = BOARD_MEMBERS - 1;
	struct agent_msg msg = {.version = AGENT_VERSION,
	                        .kind = AGENT_VS_ATTACH,
	                        .u.vs_attach = {.flags = AGENT_VS_AGAIN,
	                                        .member = number,
	                                        .board = 1,
	                                        .apids = 1ull << 60,
	                                        .known = 1ull << number}};
	MUST(rundir_open(directory, NULL) == 0);
	rundir_file(directory, AGENT_SOCKET, path, sizeof(path));
	int sock = unixsock_connect(path), bell = bell_lend(mallory.rope);
	MUST(sock >= 0 && bell >= 0);
	MUST(unixsock_send(sock, &msg, sizeof(msg), &bell, 1) == 0);
	struct pollfd answer = {.fd = sock, .events = POLLIN};
	MUST(poll(&answer, 1, 5000) == 1);
	close(bell);
	close(sock);
}

/* What the agent must refuse. Each needs a connection of its own: the agent hangs up. */
static void ask_for_too_much(void)
{
	static const uint8_t no_key[AGENT_VS_KEY_BYTES];
	struct vswitch_nic_port nic = {.guid = 5};
	struct member other;
	MUST(member_begin(&other, &mallory_owner, NULL, no_key));
	MUST(member_attach(&other, AGENT_VS_ANY, AGENT_VS_PORTS) == -EPERM);
	MUST(member_attach(&other, 20, 0) == -EADDRINUSE);
	MUST(member_attach(&other, ALICE, 0) == -EADDRINUSE);
	MUST(member_attach(&other, 31, 0) == -EADDRINUSE);
	MUST(member_attach(&other, 3, 0) == -EINVAL);
	MUST(member_attach(&other, 200, 0) == -EINVAL);
	/* Hardware ports of a switch whose ports it does not run. */
	MUST(member_attach(&other, AGENT_VS_ANY, 0) >= 0);
	member_set_port(&other, 0, &nic, VSWITCH_PORT_UP);
	uint64_t end = clock_now_ns() + 5000000000u;
	while (other.agents == 0 && clock_now_ns() < end) {
		other.look_ns = 0;
		member_hear(&other);
	}
	MUST(other.agents > 0); /* refused, and cut off */
	MUST(other.board->vswitch.states[0] == VSWITCH_PORT_ABSENT);
	/* The board is closed to writers, even to one that holds its descriptor. */
	void *board = (void *)(uintptr_t)mallory.board;
	MUST(mprotect(board, sizeof(struct board), PROT_READ | PROT_WRITE) != 0);
	member_end(&other);
	claim_to_know_itself();
	MUST(member_begin(&other, &mallory_owner, NULL, no_key));
	MUST(member_attach(&other, AGENT_VS_ANY, 0) >= 0); /* the agent has survived it */
	MUST(other.agents == 0 && mallory.agents == 0);
	member_end(&other);
}

static void attack(int channel)
{
	IBC_Finish(); /* of the library: Mallory knows better */
	mallory_enter();
	peer_say(channel, 'r');
	for (char order; (order = peer_hear(channel)) != 'q';) {
		member_hear(&mallory);
		if (order == 'f')
			forge();
		else if (order == 'd')
			damage();
		else if (order == 'l')
			flood(500000000u);
		else if (order == 'o')
			overwrite(ALICE, 1);
		else if (order == 'b')
			overwrite(BOB, 2);
		else if (order == 'a')
			ask_for_too_much();
		else if (order == 'n')
			foretell(number_from_alice());
		if (order == 'i') {
			uint32_t number;
			peer_say(channel, 'd');
			MUST(read(number_of[0], &number, 4) == 4);
			impersonate(number);
			MUST(write(turn[1], "", 1) == 1);
		} else {
			peer_say(channel, 'd');
		}
	}
}

/* --- the others --- */

static struct peer bob, attacker;
static IBC_HANDLE handle;

static int everybody_enters(void **state)
{
	(void)state;
	unsigned own;
	bob = peer_start(BOB, peer_echo);
	if (bob.apid != BOB || peer_hear(bob.channel) != 'r')
		return -1;
	attacker = peer_start(IBC_CLIENTANY, attack);
	if (peer_hear(attacker.channel) != 'r')
		return -1;
	return IBC_Init(ALICE, &own, NULL, NULL) != 0 || IBC_RecvPost(&handle) != 0 ? -1 : 0;
}

static int everybody_leaves(void **state)
{
	(void)state;
	peer_end(&attacker, SIGKILL);
	int status = peer_end(&bob, 0); /* it is still alive */
	return IBC_Finish() != 0 || status != 0 ? -1 : 0;
}

static void talk(void)
{
	struct IBC_Target target = peer_target(BOB);
	char in[8];
	assert_int_equal(
	        IBC_Request(&target, IBC_READ_REQUEST, NULL, 0, NULL, 0, in, sizeof(in), NULL), 0);
	assert_memory_equal(in, "read", 4);
}

/* Let the attacker do its worst, and talk meanwhile. If @forged or @damaged is not 0, exactly so
 * many packets are refused as such. */
static void suffer(char order, uint64_t forged, uint64_t damaged)
{
	struct IBC_Counters before, after;
	struct pollfd done = {.fd = attacker.channel, .events = POLLIN};
	assert_int_equal(IBC_Statistics(&before), 0);
	peer_say(attacker.channel, order);
	do
		talk();
	while (poll(&done, 1, 0) == 0);
	assert_int_equal(peer_hear(attacker.channel), 'd');
	/* We may hear of the attacker's lane after it has written to it. */
	uint64_t end = clock_now_ns() + 5000000000u;
	do {
		talk();
		assert_int_equal(IBC_Statistics(&after), 0);
	} while ((after.Forged - before.Forged < forged ||
	          after.Damaged - before.Damaged < damaged) &&
	         clock_now_ns() < end);
	for (unsigned i = 0; i < 10; i++)
		talk();
	assert_int_equal(IBC_Statistics(&after), 0);
	if (forged + damaged > 0) {
		assert_int_equal(after.Forged - before.Forged, forged);
		assert_int_equal(after.Damaged - before.Damaged, damaged);
	}
}

static void forgeries_are_refused(void **state)
{
	(void)state;
	suffer('f', FORGED, 0);
	assert_int_equal(IBC_RecvPoll(handle), IBC_RECVNOTDONE);
}

static void garbage_is_refused(void **state)
{
	(void)state;
	suffer('d', 0, DAMAGED);
	assert_int_equal(IBC_RecvPoll(handle), IBC_RECVNOTDONE);
}

static void a_flood_is_survived(void **state)
{
	(void)state;
	uint64_t begin = clock_now_ns();
	suffer('l', 0, 0);
	assert_true(clock_now_ns() - begin < 10000000000u);
	/* What it sent as itself was honest. */
	while (IBC_RecvWait(handle, &peer_now, NULL, NULL, NULL, NULL) == IBC_RECVDONE)
		;
}

static void a_lane_of_garbage_is_dead_alone(void **state)
{
	(void)state;
	suffer('o', 0, 0);
	suffer('b', 0, 0);
	talk();
	/* It is gone, its port is free, and whoever comes next is heard. */
	peer_end(&attacker, SIGKILL);
	struct peer next = peer_start(IBC_CLIENTANY, peer_echo);
	assert_int_equal(peer_hear(next.channel), 'r');
	struct IBC_Target target = peer_target(next.apid);
	assert_int_equal(IBC_Request(&target, IBC_READ_REQUEST, NULL, 0, NULL, 0, NULL, 0, NULL),
	                 0);
	peer_end(&next, 0);
	attacker = peer_start(IBC_CLIENTANY, attack);
	assert_int_equal(peer_hear(attacker.channel), 'r');
}

static void the_agent_gives_nothing_away(void **state)
{
	(void)state;
	suffer('a', 0, 0);
}

/* Only the one that was asked can answer, even if somebody else knows the number. */
static void answers_of_others_are_not_believed(void **state)
{
	(void)state;
	char in[8] = "";
	struct IBC_Info info;
	assert_int_equal(pipe(number_of), 0);
	assert_int_equal(pipe(turn), 0);
	struct peer asked = peer_start(INFORMER, informer);
	assert_int_equal(peer_hear(asked.channel), 'r');
	peer_end(&attacker, SIGKILL);
	attacker = peer_start(IBC_CLIENTANY, attack);
	assert_int_equal(peer_hear(attacker.channel), 'r');
	peer_say(attacker.channel, 'i');
	assert_int_equal(peer_hear(attacker.channel), 'd');
	struct IBC_Target target = peer_target(INFORMER);
	assert_int_equal(IBC_Request(&target, IBC_READ_REQUEST, NULL, 0, &peer_soon, 1, in,
	                             sizeof(in), &info),
	                 0);
	assert_memory_equal(in, "read", 4);
	assert_int_equal(info.Source, INFORMER);
	/* They are packets like any other, for whoever posts receives. */
	for (unsigned i = 0; i < IMPOSTURES; i++) {
		assert_int_equal(IBC_RecvWaitInfo(handle, &peer_soon, NULL, &info), IBC_RECVDONE);
		assert_int_equal(info.Source, MALLORY);
	}
	peer_end(&asked, 0);
}

/* A request tells the one that gets it nothing about the number of the next. */
static void numbers_cannot_be_foretold(void **state)
{
	(void)state;
	struct IBC_Target target = peer_target(MALLORY);
	struct IBC_Info info;
	struct timespec time = {0, 50000000};
	peer_say(attacker.channel, 'n');
	assert_int_equal(
	        IBC_Request(&target, IBC_WRITE_REQUEST_NO_ACK, "x", 1, NULL, 0, NULL, 0, NULL), 0);
	assert_int_equal(peer_hear(attacker.channel), 'd');
	/* Its answers to the next requests are there already, from the one that is asked. */
	assert_int_equal(IBC_Request(&target, IBC_READ_REQUEST, NULL, 0, &time, 1, NULL, 0, &info),
	                 IBC_TIMEDOUT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(forgeries_are_refused, everybody_enters,
	                                        everybody_leaves),
	        cmocka_unit_test_setup_teardown(garbage_is_refused, everybody_enters,
	                                        everybody_leaves),
	        cmocka_unit_test_setup_teardown(a_flood_is_survived, everybody_enters,
	                                        everybody_leaves),
	        cmocka_unit_test_setup_teardown(a_lane_of_garbage_is_dead_alone, everybody_enters,
	                                        everybody_leaves),
	        cmocka_unit_test_setup_teardown(the_agent_gives_nothing_away, everybody_enters,
	                                        everybody_leaves),
	        cmocka_unit_test_setup_teardown(answers_of_others_are_not_believed,
	                                        everybody_enters, everybody_leaves),
	        cmocka_unit_test_setup_teardown(numbers_cannot_be_foretold, everybody_enters,
	                                        everybody_leaves),
	};
	return cmocka_run_group_tests_name("vs_hostile_client", tests, NULL, NULL);
}
