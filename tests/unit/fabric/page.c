/* What heddle-ibc(7) and heddle-vswitch.conf(5) show is true: the bytes in the page decode to what
 * it says, and the example file is accepted. */
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fabric/topology.h"
#include "wire/ibc_config.h"

static char page[1 << 16];

static void read_page(const char *path)
{
	FILE *file = fopen(path, "r");
	assert_non_null(file);
	size_t bytes = fread(page, 1, sizeof(page) - 1, file);
	fclose(file);
	assert_true(bytes > 0 && bytes < sizeof(page) - 1);
	page[bytes] = '\0';
}

/* The bytes of the hexadecimal lines from *at on, up to a line that is not one. *at moves on. */
static size_t read_hex(const char **at, uint8_t *out, size_t capacity)
{
	size_t count = 0;
	for (;;) {
		const char *end = strchr(*at, '\n');
		assert_non_null(end);
		size_t line = (size_t)(end - *at), digits = 0;
		for (size_t i = 0; i < line; i++)
			digits += i % 3 == 2 ? (*at)[i] == ' ' : isxdigit((*at)[i]) != 0;
		if (line < 2 || digits != line) /* not "xx xx ... xx" */
			return count;
		for (size_t i = 0; i < line; i += 3) {
			assert_true(count < capacity);
			out[count++] = (uint8_t)strtoul(*at + i, NULL, 16);
		}
		*at = end + 1;
	}
}

/* Move behind the first line that contains @words, and to the literal text behind it. */
static const char *literal_behind(const char *words)
{
	const char *at = strstr(page, words);
	assert_non_null(at);
	at = strstr(at, ".Bd -literal");
	assert_non_null(at);
	return strchr(at, '\n') + 1;
}

static void vs2_packet_of_the_page(void **state)
{
	(void)state;
	uint8_t bytes[256];
	struct ibc_packet packet;
	read_page(IBC_PAGE);
	const char *at = literal_behind("A write request from APID 33");
	size_t length = read_hex(&at, bytes, sizeof(bytes));
	assert_int_equal(ibc_decode(&packet, bytes, length), IBC_OK);
	assert_int_equal(packet.type, IBC_TYPE_WRITE_REQUEST);
	assert_int_equal(packet.source_apid, 33);
	assert_int_equal(packet.dest_apid, 40);
	assert_int_equal(packet.dest_node, 104);
	assert_int_equal(packet.guid, 1);
	assert_int_equal(packet.transaction, 7);
	assert_false(packet.route.reverse);
	assert_int_equal(packet.route.pointer, 1);
	assert_int_equal(packet.route.hops, 2);
	assert_memory_equal(packet.route.ports, "\3\2", 2);
	assert_int_equal(packet.payload_bytes, 5);
	assert_memory_equal(packet.payload, "hello", 5);
}

static void vs3_command_of_the_page(void **state)
{
	(void)state;
	uint8_t bytes[256];
	struct ibc_config_command command;
	struct ibc_config_answer answer;
	read_page(IBC_PAGE);
	const char *at = literal_behind("The command that sets port 5");
	size_t length = read_hex(&at, bytes, sizeof(bytes));
	assert_true(ibc_config_decode(&command, bytes, length));
	assert_int_equal(command.operation, IBC_CONFIG_SET_PORT);
	assert_int_equal(command.port, 5);
	assert_int_equal(command.state, IBC_PORT_UP);
	at++; /* an empty line */
	length = read_hex(&at, bytes, sizeof(bytes));
	assert_true(ibc_config_decode_answer(&answer, bytes, length));
	assert_int_equal(answer.operation, IBC_CONFIG_SET_PORT);
	assert_int_equal(answer.node, 104);
	assert_int_equal(answer.arrival, 6);
	assert_int_equal(answer.count, 1);
	assert_int_equal(answer.records[0].port, 5);
	assert_int_equal(answer.records[0].state, IBC_PORT_DOWN);
}

static void vs1_file_of_the_page(void **state)
{
	(void)state;
	static struct topology topology;
	struct topology_error error;
	read_page(CONF_PAGE);
	const char *at = literal_behind(".Sh EXAMPLES"), *end = strstr(at, "\n.Ed");
	assert_non_null(end);
	assert_true(topology_parse(&topology, at, (size_t)(end - at), &error));
	assert_int_equal(topology.node_count, 4);
	assert_int_equal(topology.link_count, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(vs2_packet_of_the_page),
	        cmocka_unit_test(vs3_command_of_the_page),
	        cmocka_unit_test(vs1_file_of_the_page),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
