/* Which answers a client believes: every honest one, from an application or from a switch, and none
 * that another application of the network could send, whatever route it composes. The packets
 * travel through real switches, because what these write is the proof. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "cable/switches.h"
#include "fabric/answer.h"

/* Figure 1, with a node of other users at each switch, and a second way over a node in transit. */
static const char text[] = "node n102 id 102\nnic guid 1 ports 0 1\n"
                           "node n104 id 104\nnic guid 2 ports 0 1\n"
                           "node n105 id 105\nnic guid 3 ports 0 1\n"
                           "node n106 id 106\nnic guid 4 ports 0\n"
                           "switch s107 id 107 ports 1-4\nswitch s108 id 108 ports 1-4\n"
                           "link n102:1 s107:2 shm\nlink s107:3 s108:1 shm\n"
                           "link s108:2 n104:0 shm\nlink s107:1 n105:0 shm\n"
                           "link n105:1 s108:3 shm\nlink s108:4 n106:0 shm\n"
                           "link n102:0 n104:1 shm\n";
enum { N102, N104, N105, N106, S107, S108, NODES };
enum { ALICE = 33, BOB = 40, MALLORY = 41 };

static struct topology topology;
static struct switches switches;

static int make_network(void **state)
{
	(void)state;
	struct topology_error error;
	if (!topology_parse(&topology, text, sizeof(text) - 1, &error))
		return -1;
	switches_init(&switches, &topology);
	for (unsigned node = N102; node <= N106; node++)
		for (unsigned i = 0; i < 2; i++)
			switches.at[node].states[i == 0 ? BOB : MALLORY] = VSWITCH_PORT_UP;
	switches.at[N102].states[ALICE] = VSWITCH_PORT_UP;
	return 0;
}

/* Where a packet has arrived, and how: .record is what its reader gets. */
struct arrival {
	bool delivered;
	uint32_t node;
	struct record record;
	struct ibc_packet packet;
	uint8_t bytes[IBC_MAX_BYTES];
};

/* @packet comes to @node through @inport; carry it until it is delivered or lost. */
static void travel(uint32_t node, uint8_t inport, const struct ibc_packet *packet,
                   struct arrival *arrival)
{
	struct switches_out out;
	uint8_t bytes[IBC_MAX_BYTES];
	size_t length = ibc_encode(packet, bytes, sizeof(bytes));
	assert_int_not_equal(length, 0);
	arrival->delivered = false;
	for (unsigned steps = 0; steps < 200; steps++) {
		uint8_t before = bytes[1];
		switches_take(&switches, node, inport, bytes, length, &out);
		if (out.fate == SWITCHES_DROPPED)
			return;
		length = out.length;
		memcpy(bytes, out.bytes, length);
		if (out.fate == SWITCHES_DELIVERED) {
			/* A switch that answers an application of its own speaks as 31, or returns
			 * what the sender itself would reject. */
			bool said = out.decision.action != VSWITCH_DELIVER;
			memcpy(arrival->bytes, bytes, length);
			arrival->delivered = true;
			arrival->node = node;
			assert_int_equal(ibc_decode(&arrival->packet, arrival->bytes, length),
			                 IBC_OK);
			arrival->record = (struct record){
			        .inport = said && arrival->packet.type != IBC_TYPE_NACK
			                          ? VSWITCH_APID_CONFIG
			                          : inport,
			        .outport = (uint8_t)__builtin_ctzll(out.applications),
			        .by_route = !said && bytes[1] != before,
			        .packet = arrival->packet};
			return;
		}
		uint8_t port = out.port;
		if (!switches_beyond(&switches, node, port, &node, &inport))
			return;
	}
}

/* The application @apid of @node sends @packet, out of @outport or (-1) as its route says. A route
 * of which something looks used does not pass its own switch (record_read()). */
static void emit(uint32_t node, uint8_t apid, struct ibc_packet *packet, int outport,
                 struct arrival *arrival)
{
	uint32_t to = node;
	uint8_t inport = apid;
	arrival->delivered = false;
	packet->source_apid = apid;
	if (outport >= 0 && (route_last_used(&packet->route) >= 0 ||
	                     !switches_beyond(&switches, node, (uint8_t)outport, &to, &inport)))
		return;
	if (outport < 0 && ibc_at_end(&packet->route) && packet->route.hops > 0)
		return;
	travel(to, inport, packet, arrival);
}

/* As IBC_Respond() does. */
static void respond(const struct arrival *request, enum ibc_type type, struct arrival *answer)
{
	const struct record *came = &request->record;
	bool direct = !came->by_route && vswitch_is_hardware(came->inport);
	struct ibc_packet packet = {.type = type,
	                            .reason = type == IBC_TYPE_NACK ? IBC_REASON_NOT_ALLOWED
	                                                            : IBC_REASON_NONE,
	                            .dest_apid = request->packet.source_apid,
	                            .transaction = request->packet.transaction,
	                            .route = ibc_turn_around(&request->packet.route)};
	emit(request->node, came->outport, &packet, direct ? came->inport : -1, answer);
}

/* What Alice asks: out of which port, by which route, whom. */
struct question {
	const char *what;
	int outport;
	struct ibc_route route;
	uint8_t dest;
	uint32_t node; /* where it ends */
	uint8_t apid;  /* who gets it; 0: a switch answers */
};

static const struct question questions[] = {
        {"through a port, over two switches",
         1,
         {.pointer = 1, .hops = 2, .ports = {3, 2}},
         BOB,
         N104,
         BOB},
        {"by the route, over two switches",
         -1,
         {.pointer = 1, .hops = 3, .ports = {1, 3, 2}},
         BOB,
         N104,
         BOB},
        {"to an application that the route names",
         -1,
         {.pointer = 1, .hops = 4, .ports = {1, 3, 2, BOB}},
         MALLORY,
         N104,
         BOB},
        {"the same through a port",
         1,
         {.pointer = 1, .hops = 3, .ports = {3, 2, BOB}},
         5,
         N104,
         BOB},
        {"over a node in transit",
         -1,
         {.pointer = 1, .hops = 4, .ports = {1, 1, 1, 2}},
         BOB,
         N104,
         BOB},
        {"to the neighbour", 0, {.pointer = 1}, BOB, N104, BOB},
        {"to the neighbour, by the route",
         -1,
         {.pointer = 1, .hops = 1, .ports = {0}},
         BOB,
         N104,
         BOB},
        {"in reverse",
         -1,
         {.reverse = true, .pointer = 3, .hops = 3, .ports = {2, 3, 1}},
         BOB,
         N104,
         BOB},
        {"on this node", -1, {.pointer = 1}, BOB, N102, BOB},
        {"on this node, by the route", -1, {.pointer = 1, .hops = 1, .ports = {BOB}}, 5, N102, BOB},
        {"the switch of this node", -1, {.pointer = 1}, 31, N102, 0},
        {"a switch", 1, {.pointer = 1}, 31, S107, 0},
        {"a switch behind another", -1, {.pointer = 1, .hops = 2, .ports = {1, 3}}, 31, S108, 0},
        {"nobody", 1, {.pointer = 1, .hops = 2, .ports = {3, 2}}, 50, N104, 0},
        {"a port that is not there",
         -1,
         {.pointer = 1, .hops = 3, .ports = {1, 3, 9}},
         BOB,
         S108,
         0},
        {"an application that is not there",
         -1,
         {.pointer = 1, .hops = 4, .ports = {1, 3, 2, 50}},
         BOB,
         N104,
         0},
        {"a port of our own that is not there",
         -1,
         {.pointer = 1, .hops = 1, .ports = {9}},
         BOB,
         N102,
         0},
};
#define QUESTIONS (sizeof(questions) / sizeof(questions[0]))

static struct ibc_packet ask(const struct question *question, struct answer_wanted *wanted,
                             struct arrival *arrival)
{
	static const uint8_t echo[IBC_KEY_BYTES + 4] = {[IBC_KEY_BYTES] = 1};
	struct ibc_packet packet = {.type = IBC_TYPE_WRITE_REQUEST,
	                            .source_apid = ALICE,
	                            .dest_apid = question->dest,
	                            .transaction = 4711,
	                            .route = question->route,
	                            .payload = echo,
	                            .payload_bytes = sizeof(echo)};
	answer_want(wanted, &packet, ALICE, question->outport);
	emit(N102, ALICE, &packet, question->outport, arrival);
	return packet;
}

static void honest_answers_are_believed(void **state)
{
	(void)state;
	static struct arrival request, answer;
	struct answer_wanted wanted;
	for (unsigned i = 0; i < QUESTIONS; i++)
		for (unsigned type = IBC_TYPE_READ_RESPONSE; type <= IBC_TYPE_NACK; type++) {
			ask(&questions[i], &wanted, &request);
			assert_true(request.delivered);
			if (questions[i].apid == 0) { /* it is the answer */
				answer = request;
			} else {
				assert_int_equal(request.node, questions[i].node);
				assert_int_equal(request.record.outport, questions[i].apid);
				respond(&request, (enum ibc_type)type, &answer);
				assert_true(answer.delivered);
			}
			assert_int_equal(answer.node, N102);
			if (!answer_is_wanted(&wanted, &answer.record))
				fail_msg("%s: the answer is not believed", questions[i].what);
			/* Nothing else than an answer, and not the answer to another request. */
			struct record other = answer.record;
			other.packet.type = IBC_TYPE_WRITE_REQUEST;
			assert_false(answer_is_wanted(&wanted, &other));
			other = answer.record;
			other.packet.transaction++;
			assert_false(answer_is_wanted(&wanted, &other));
			other = answer.record;
			other.outport = MALLORY;
			assert_false(answer_is_wanted(&wanted, &other));
			struct ibc_route *route = &other.packet.route;
			for (unsigned change = 0; change < 3 && route->hops > 0; change++) {
				other = answer.record;
				if (other.inport == ALICE) /* we have rejected it ourselves */
					break;
				route->reverse ^= change == 0;
				route->pointer = (uint8_t)(route->pointer + (change == 1));
				route->hops = (uint8_t)(route->hops + (change == 2));
				assert_false(answer_is_wanted(&wanted, &other));
			}
		}
}

/* The route of @hops ports with number @number among all of them. False: there are no more. */
static bool compose(uint32_t number, uint8_t hops, struct ibc_route *route)
{
	static const uint8_t ports[] = {0, 1, 2, 3, 4, BOB, MALLORY};
	route->hops = hops;
	for (unsigned i = 0; i < hops; i++, number /= sizeof(ports))
		route->ports[i] = ports[number % sizeof(ports)];
	return number == 0;
}

/* One application tries every route with as many ports as the request had, in both directions, with
 * each pointer and through each port. Returns how many of these packets reached Alice. */
static unsigned try_all(const struct question *question, const struct answer_wanted *wanted,
                        uint32_t node, uint8_t apid, enum ibc_type type)
{
	static struct arrival arrival;
	struct ibc_packet packet = {.type = type,
	                            .reason = type == IBC_TYPE_NACK ? IBC_REASON_NO_APPLICATION
	                                                            : IBC_REASON_NONE,
	                            .dest_apid = ALICE,
	                            .transaction = 4711};
	unsigned arrived = 0;
	uint8_t hops = question->route.hops;
	struct ibc_route *route = &packet.route;
	for (uint32_t number = 0; compose(number, hops, route); number++)
		for (unsigned way = 0; way < 2u * (hops + 2u); way++) {
			route->reverse = way % 2 != 0;
			route->pointer = (uint8_t)(way / 2);
			if (!route->reverse && route->pointer == 0)
				continue;
			if (route->reverse && route->pointer > hops)
				continue;
			for (int outport = -1; outport < 2; outport++) {
				compose(number, hops, route);
				emit(node, apid, &packet, outport, &arrival);
				if (!arrival.delivered || arrival.node != N102 ||
				    arrival.record.outport != ALICE)
					continue;
				arrived++;
				if (answer_is_wanted(wanted, &arrival.record))
					fail_msg("%s: %s of node %u passes", question->what,
					         apid == BOB ? "Bob" : "Mallory", node);
			}
		}
	return arrived;
}

static void nobody_else_is_believed(void **state)
{
	(void)state;
	static struct arrival request;
	struct answer_wanted wanted;
	unsigned arrived = 0;
	for (unsigned i = 0; i < QUESTIONS; i++) {
		ask(&questions[i], &wanted, &request);
		for (uint32_t node = N102; node <= N106; node++)
			for (unsigned who = 0; who < 2; who++) {
				uint8_t apid = who == 0 ? BOB : MALLORY;
				if (node == questions[i].node && apid == questions[i].apid)
					continue; /* the one that was asked */
				arrived += try_all(&questions[i], &wanted, node, apid,
				                   IBC_TYPE_READ_RESPONSE);
				arrived +=
				        try_all(&questions[i], &wanted, node, apid, IBC_TYPE_NACK);
			}
	}
	assert_true(arrived > 1000); /* it was worth trying */
}

/* Whoever asks all applications of a node takes the answer of each of them, and of no other node.
 */
static void all_may_answer_what_all_were_asked(void **state)
{
	(void)state;
	static struct arrival request, answer;
	static const struct question rows[] = {
	        {"there", 1, {.pointer = 1, .hops = 2, .ports = {3, 2}}, VSWITCH_APID_ALL, N104, 0},
	        {"here", -1, {.pointer = 1}, VSWITCH_APID_ALL, N102, 0}};
	for (unsigned i = 0; i < 2; i++) {
		struct answer_wanted wanted;
		ask(&rows[i], &wanted, &request);
		assert_true(request.delivered);
		assert_int_equal(request.node, rows[i].node);
		for (unsigned who = 0; who < 2; who++) {
			request.record.outport = who == 0 ? BOB : MALLORY;
			respond(&request, IBC_TYPE_READ_RESPONSE, &answer);
			assert_true(answer.delivered);
			assert_true(answer_is_wanted(&wanted, &answer.record));
		}
		try_all(&rows[i], &wanted, N105, BOB, IBC_TYPE_READ_RESPONSE);
		try_all(&rows[i], &wanted, rows[i].node == N102 ? N104 : N102, BOB,
		        IBC_TYPE_READ_RESPONSE);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(honest_answers_are_believed),
	        cmocka_unit_test(nobody_else_is_believed),
	        cmocka_unit_test(all_may_answer_what_all_were_asked),
	};
	return cmocka_run_group_tests_name("vs_answers", tests, make_network, NULL);
}
