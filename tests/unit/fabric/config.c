/* Commands to a switch: every operation, with and without the right, and the bytes of each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fabric/vswitch_config.h"

static const uint8_t right_key[IBC_KEY_BYTES] = {1, 2, 3, [15] = 9};

static struct vswitch vswitch;
static struct vswitch_counters counters, before; /* the last command */
static struct vswitch_owner owner;
static struct vswitch_configured configured;
static uint8_t payload[IBC_MAX_PAYLOAD];

/* Node 104 with two NICs on ports 4 to 7, of which 5 is down, and two applications. */
static int prepare(void **state)
{
	(void)state;
	vswitch_init(&vswitch, 104, false);
	for (uint8_t i = 0; i < 4; i++) {
		assert_true(vswitch_set_nic_port(&vswitch, (uint8_t)(4 + i), 1 + i / 2u, i % 2));
		vswitch.states[4 + i] = VSWITCH_PORT_UP;
	}
	vswitch.states[5] = VSWITCH_PORT_DOWN;
	vswitch.states[20] = vswitch.states[62] = VSWITCH_PORT_UP;
	memset(&counters, 0, sizeof(counters));
	owner = (struct vswitch_owner){
	        .vswitch = &vswitch, .counters = &counters, .key = right_key};
	return 0;
}

static struct ibc_config_command command(enum ibc_config_operation operation)
{
	struct ibc_config_command made = {.operation = operation};
	memcpy(made.key, right_key, sizeof(made.key));
	return made;
}

/* The command in a packet that came by 7-8-63 and is at its end. */
static struct ibc_packet packet_of(const struct ibc_config_command *made)
{
	size_t bytes = ibc_config_encode(made, payload, sizeof(payload));
	assert_true(bytes >= IBC_CONFIG_COMMAND_BYTES);
	return (struct ibc_packet){.type = IBC_TYPE_READ_REQUEST,
	                           .source_apid = 40,
	                           .dest_apid = VSWITCH_APID_CONFIG,
	                           .guid = 77,
	                           .transaction = 5,
	                           .route = {.pointer = 3, .hops = 2, .ports = {7, 8}},
	                           .payload = payload,
	                           .payload_bytes = (uint16_t)bytes};
}

static void configure(const struct ibc_packet *packet)
{
	before = counters;
	vswitch_configure(&owner, packet, 6, &configured);
}

static void run(const struct ibc_config_command *made)
{
	struct ibc_packet packet = packet_of(made);
	assert_int_equal(vswitch_forward(&vswitch, &packet, 6).action, VSWITCH_CONSUME);
	configure(&packet);
}

static void expect_nack(enum ibc_reason reason)
{
	assert_true(configured.answered);
	assert_false(configured.set_port);
	assert_int_equal(configured.answer.type, IBC_TYPE_NACK);
	assert_int_equal(configured.answer.reason, reason);
	assert_int_equal(configured.answer.dest_apid, 40);
	assert_int_equal(configured.answer.transaction, 5);
	assert_true(configured.answer.route.reverse);
	assert_int_equal(configured.answer.route.pointer, 2);
	/* Whoever guesses keys leaves a trace. */
	before.packets[IBC_COUNTER_REJECTED]++;
	before.packets[IBC_COUNTER_REJECTED + reason]++;
	assert_memory_equal(&counters, &before, sizeof(counters));
}

static struct ibc_config_answer answer_to(const struct ibc_config_command *made)
{
	struct ibc_config_answer answer;
	uint8_t bytes[IBC_MAX_BYTES];
	run(made);
	assert_true(configured.answered);
	assert_int_equal(configured.answer.type, made->operation == IBC_CONFIG_SET_PORT
	                                                 ? IBC_TYPE_WRITE_RESPONSE
	                                                 : IBC_TYPE_READ_RESPONSE);
	assert_int_equal(configured.answer.source_apid, VSWITCH_APID_CONFIG);
	assert_int_equal(configured.answer.dest_apid, 40);
	assert_int_equal(configured.answer.guid, 77);
	assert_int_equal(configured.answer.transaction, 5);
	assert_true(configured.answer.route.reverse);
	assert_int_equal(configured.answer.route.pointer, 2);
	assert_true(ibc_encode(&configured.answer, bytes, sizeof(bytes)) > 0);
	assert_true(ibc_config_decode_answer(&answer, configured.answer.payload,
	                                     configured.answer.payload_bytes));
	assert_int_equal(answer.operation, made->operation);
	assert_int_equal(answer.node, 104);
	assert_int_equal(answer.arrival, 6);
	assert_false(answer.plain);
	return answer;
}

/* The command and its answer as heddle-ibc(7) shows them. */
static void vs3_bytes(void **state)
{
	(void)state;
	static const uint8_t asked[] = {1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 3, 5, 2, 0};
	static const uint8_t answered[] = {3, 0, 6, 1, 0, 0, 0, 0, 0, 0, 0, 104, 5, 1};
	struct ibc_config_command set = command(IBC_CONFIG_SET_PORT);
	set.port = 5;
	set.state = IBC_PORT_UP;
	run(&set);
	assert_memory_equal(payload, asked, sizeof(asked));
	assert_int_equal(configured.answer.payload_bytes, sizeof(answered));
	assert_memory_equal(configured.answer.payload, answered, sizeof(answered));
}

static void vs3_ports(void **state)
{
	(void)state;
	struct ibc_config_command read = command(IBC_CONFIG_PORTS);
	struct ibc_config_answer answer = answer_to(&read);
	assert_int_equal(answer.count, 4);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(answer.records[i].port, 4 + i);
		assert_int_equal(answer.records[i].state, i == 1 ? IBC_PORT_DOWN : IBC_PORT_UP);
	}
}

static void vs4_nics(void **state)
{
	(void)state;
	struct ibc_config_command read = command(IBC_CONFIG_NICS);
	struct ibc_config_answer answer = answer_to(&read);
	assert_int_equal(answer.count, 4);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(answer.records[i].port, 4 + i);
		assert_int_equal(answer.records[i].nic_port, i % 2);
		assert_int_equal(answer.records[i].number, 1 + i / 2);
	}
}

static void vs3_applications(void **state)
{
	(void)state;
	struct ibc_config_command read = command(IBC_CONFIG_APPLICATIONS);
	struct ibc_config_answer answer = answer_to(&read);
	assert_int_equal(answer.count, 2);
	assert_int_equal(answer.records[0].port, 20);
	assert_int_equal(answer.records[1].port, 62);
	for (unsigned i = VSWITCH_HARDWARE_PORTS; i < VSWITCH_PORTS; i++)
		vswitch.states[i] = VSWITCH_PORT_UP;
	answer = answer_to(&read);
	assert_int_equal(answer.count, 48);
	assert_int_equal(answer.records[47].port, 63);
}

/* The caller is told to change the port; the switch has not changed by itself. */
static void vs3_set_port(void **state)
{
	(void)state;
	struct ibc_config_command set = command(IBC_CONFIG_SET_PORT);
	set.port = 5;
	set.state = IBC_PORT_UP;
	struct ibc_config_answer answer = answer_to(&set);
	assert_true(configured.set_port);
	assert_true(configured.up);
	assert_int_equal(configured.port, 5);
	assert_int_equal(answer.count, 1);
	assert_int_equal(answer.records[0].port, 5);
	/* Up is what the port may be from now on; it is when its link is. */
	assert_int_equal(answer.records[0].state, IBC_PORT_DOWN);
	assert_int_equal(vswitch.states[5], VSWITCH_PORT_DOWN);
	set.port = 4; /* it is up, and stays so */
	answer = answer_to(&set);
	assert_int_equal(answer.records[0].port, 4);
	assert_int_equal(answer.records[0].state, IBC_PORT_UP);
	set.state = IBC_PORT_DOWN;
	answer = answer_to(&set);
	assert_int_equal(answer.records[0].state, IBC_PORT_DOWN);
	assert_int_equal(vswitch.states[4], VSWITCH_PORT_UP);
	assert_true(configured.set_port);
	assert_false(configured.up);
	set.port = 3;
	run(&set);
	expect_nack(IBC_REASON_NO_PORT);
	set.port = 62; /* an application's */
	run(&set);
	expect_nack(IBC_REASON_NOT_ALLOWED);
}

static void vs3_counters(void **state)
{
	(void)state;
	static const struct vswitch_result results[] = {
	        {.action = VSWITCH_TRANSMIT},
	        {.action = VSWITCH_TRANSMIT},
	        {.action = VSWITCH_DELIVER},
	        {.action = VSWITCH_CONSUME},
	        {.action = VSWITCH_REJECT, .reason = IBC_REASON_LOOP},
	        {.action = VSWITCH_REJECT, .reason = IBC_REASON_NO_RECEIVE},
	};
	for (unsigned i = 0; i < sizeof(results) / sizeof(results[0]); i++)
		vswitch_count(&counters, &results[i]);
	struct ibc_config_command read = command(IBC_CONFIG_COUNTERS);
	struct ibc_config_answer answer = answer_to(&read);
	assert_int_equal(answer.count, IBC_COUNTER_COUNT);
	assert_int_equal(answer.records[IBC_COUNTER_FORWARDED].number, 2);
	assert_int_equal(answer.records[IBC_COUNTER_DELIVERED].number, 1);
	assert_int_equal(answer.records[IBC_COUNTER_CONSUMED].number, 1);
	assert_int_equal(answer.records[IBC_COUNTER_REJECTED].number, 2);
	assert_int_equal(answer.records[IBC_COUNTER_REJECTED + IBC_REASON_LOOP].number, 1);
	assert_int_equal(answer.records[IBC_COUNTER_REJECTED + IBC_REASON_NO_PORT].number, 0);

	counters.ports[7][IBC_PORT_COUNTER_LOST] = UINT64_MAX;
	read = command(IBC_CONFIG_PORT_COUNTERS);
	read.port = 7;
	answer = answer_to(&read);
	assert_int_equal(answer.count, IBC_PORT_COUNTER_COUNT);
	assert_true(answer.records[IBC_PORT_COUNTER_LOST].number == UINT64_MAX);
	read.port = 0;
	run(&read);
	expect_nack(IBC_REASON_NO_PORT);
}

/* The sender learns the ports of arrival, which its own copy of the route does not hold. */
static void vs3_trace(void **state)
{
	(void)state;
	struct ibc_config_command read = command(IBC_CONFIG_TRACE);
	struct ibc_config_answer answer = answer_to(&read);
	assert_int_equal(answer.count, 2);
	assert_int_equal(answer.records[0].port, 7);
	assert_int_equal(answer.records[1].port, 8);
}

static void vs3_echo_needs_no_right(void **state)
{
	(void)state;
	struct ibc_config_command echo = command(IBC_CONFIG_ECHO);
	static const uint8_t data[] = "anything", none[IBC_KEY_BYTES];
	echo.data = data;
	echo.data_bytes = sizeof(data);
	echo.key[0] ^= 1;
	owner.key = NULL;
	run(&echo);
	assert_true(configured.answered);
	assert_int_equal(configured.answer.type, IBC_TYPE_READ_RESPONSE);
	assert_int_equal(configured.answer.payload_bytes, IBC_CONFIG_COMMAND_BYTES + sizeof(data));
	assert_memory_equal(configured.answer.payload, none, sizeof(none));
	assert_memory_equal(configured.answer.payload + IBC_CONFIG_COMMAND_BYTES, data,
	                    sizeof(data));
}

static void vs3_without_the_right(void **state)
{
	(void)state;
	for (unsigned i = IBC_CONFIG_PORTS; i < IBC_CONFIG_OPERATION_COUNT; i++) {
		struct ibc_config_command made = command(i);
		if (i == IBC_CONFIG_SET_PORT)
			made.state = IBC_PORT_DOWN;
		made.port = i == IBC_CONFIG_SET_PORT || i == IBC_CONFIG_PORT_COUNTERS ? 4 : 0;
		for (unsigned bit = 0; bit < 8 * IBC_KEY_BYTES; bit++) {
			made.key[bit / 8] ^= (uint8_t)(1 << bit % 8);
			run(&made);
			expect_nack(IBC_REASON_NOT_ALLOWED);
			made.key[bit / 8] ^= (uint8_t)(1 << bit % 8);
		}
		owner.key = NULL; /* a node whose owner set no key: even zeroes do not open it */
		run(&made);
		expect_nack(IBC_REASON_NOT_ALLOWED);
		memset(made.key, 0, sizeof(made.key));
		run(&made);
		expect_nack(IBC_REASON_NOT_ALLOWED);
		owner.key = right_key;
	}
}

/* A write request carries a command as a read request does; without acknowledgement, there is no
 * answer. What is not a request has no effect. */
static void vs3_types(void **state)
{
	(void)state;
	struct ibc_config_command set = command(IBC_CONFIG_SET_PORT);
	set.port = 5;
	set.state = IBC_PORT_UP;
	for (unsigned type = IBC_TYPE_READ_REQUEST; type < IBC_TYPE_COUNT; type++) {
		struct ibc_packet packet = packet_of(&set);
		packet.type = type;
		packet.reason = type == IBC_TYPE_NACK ? IBC_REASON_LOOP : IBC_REASON_NONE;
		configure(&packet);
		bool request = type <= IBC_TYPE_WRITE_REQUEST_NO_ACK;
		assert_int_equal(configured.set_port, request);
		assert_int_equal(configured.answered,
		                 request && type != IBC_TYPE_WRITE_REQUEST_NO_ACK);
	}
}

static void vs3_malformed(void **state)
{
	(void)state;
	struct ibc_config_command set = command(IBC_CONFIG_SET_PORT), out;
	set.port = 5;
	set.state = IBC_PORT_UP;
	struct ibc_packet packet = packet_of(&set);
	for (uint16_t bytes = 0; bytes <= 30; bytes++) {
		packet.payload_bytes = bytes;
		configure(&packet);
		if (bytes == IBC_CONFIG_COMMAND_BYTES)
			assert_true(configured.set_port);
		else
			expect_nack(IBC_REASON_NOT_ALLOWED);
	}
	static const struct {
		unsigned at;
		uint8_t value;
	} wrong[] = {{16, 0},
	             {16, IBC_CONFIG_OPERATION_COUNT},
	             {16, IBC_CONFIG_PORTS},
	             {17, 64},
	             {18, 0},
	             {18, IBC_PORT_STATE_COUNT},
	             {19, 1}};
	packet.payload_bytes = IBC_CONFIG_COMMAND_BYTES;
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		packet_of(&set);
		payload[wrong[i].at] = wrong[i].value;
		configure(&packet);
		expect_nack(IBC_REASON_NOT_ALLOWED);
	}
	assert_int_equal(ibc_config_encode(&set, payload, IBC_CONFIG_COMMAND_BYTES - 1), 0);
	set.operation = IBC_CONFIG_ECHO;
	assert_int_equal(ibc_config_encode(&set, payload, sizeof(payload)), 0);
	set = command(IBC_CONFIG_ECHO);
	set.data = payload;
	set.data_bytes = IBC_MAX_PAYLOAD - IBC_CONFIG_COMMAND_BYTES; /* the longest */
	uint8_t longest[IBC_MAX_PAYLOAD + 1];
	assert_int_equal(ibc_config_encode(&set, longest, sizeof(longest)), IBC_MAX_PAYLOAD);
	assert_true(ibc_config_decode(&out, longest, IBC_MAX_PAYLOAD));
	set.data_bytes++;
	assert_int_equal(ibc_config_encode(&set, longest, sizeof(longest)), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup(vs3_bytes, prepare),
	        cmocka_unit_test_setup(vs3_ports, prepare),
	        cmocka_unit_test_setup(vs4_nics, prepare),
	        cmocka_unit_test_setup(vs3_applications, prepare),
	        cmocka_unit_test_setup(vs3_set_port, prepare),
	        cmocka_unit_test_setup(vs3_counters, prepare),
	        cmocka_unit_test_setup(vs3_trace, prepare),
	        cmocka_unit_test_setup(vs3_echo_needs_no_right, prepare),
	        cmocka_unit_test_setup(vs3_without_the_right, prepare),
	        cmocka_unit_test_setup(vs3_types, prepare),
	        cmocka_unit_test_setup(vs3_malformed, prepare),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
