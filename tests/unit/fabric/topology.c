/* The topology file: every statement, every error with its line, every limit; taken whole or not at
 * all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fabric/topology.h"

static struct topology topology, again;
static char text[2 * TOPOLOGY_MAX_FILE_BYTES];

static void parse(const char *file)
{
	struct topology_error error;
	if (topology_parse(&topology, file, strlen(file), &error))
		return;
	char message[TOPOLOGY_MESSAGE_BYTES];
	topology_explain(&error, "test", message);
	fail_msg("%s", message);
}

/* VS1, VS4: the example of the project is the figure with two nodes and two switches. */
static void vs4_example_file(void **state)
{
	(void)state;
	FILE *file = fopen(EXAMPLE, "r");
	assert_non_null(file);
	size_t bytes = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[bytes] = '\0';
	parse(text);
	assert_int_equal(topology.node_count, 4);
	assert_int_equal(topology.link_count, 3);
	static const struct {
		const char *name;
		uint64_t id;
		bool plain;
		unsigned ports;
	} expected[] = {{"n102", 102, false, 0x3},
	                {"n104", 104, false, 0x3},
	                {"s106", 106, true, 0x1e},
	                {"s108", 108, true, 0x1e}};
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(topology_find(&topology, expected[i].name), i);
		assert_int_equal(topology.nodes[i].id, expected[i].id);
		assert_int_equal(topology.nodes[i].plain, expected[i].plain);
		assert_int_equal(topology.nodes[i].ports, expected[i].ports);
		assert_true(topology.nodes[i].has_key);
	}
	/* Paragraph 18: n102 leaves by port 1 and arrives at port 2 of s106, whose port 3 leads to
	 * port 1 of s108, whose port 2 leads to n104. */
	unsigned end;
	int link = topology_link_at(&topology, 0, 1, &end);
	assert_int_equal(topology.links[link].ends[!end].node, 2);
	assert_int_equal(topology.links[link].ends[!end].port, 2);
	link = topology_link_at(&topology, 2, 3, &end);
	assert_int_equal(topology.links[link].ends[!end].node, 3);
	assert_int_equal(topology.links[link].ends[!end].port, 1);
	link = topology_link_at(&topology, 3, 2, &end);
	assert_int_equal(topology.links[link].ends[!end].node, 1);
	assert_int_equal(topology_link_at(&topology, 3, 4, &end), -1);
}

/* Figure 2: two NICs with two ports each, on ports 4 to 7. */
static void vs4_nics_of_a_node(void **state)
{
	(void)state;
	struct vswitch vswitch;
	parse("node a id 1\nnic guid 1 ports 4 5\nnic guid 0x2 ports 6-7\n");
	topology_vswitch(&topology, 0, &vswitch);
	assert_int_equal(vswitch.node, 1);
	assert_false(vswitch.plain);
	assert_int_equal(vswitch_port_of(&vswitch, 1, 1), 5);
	assert_int_equal(vswitch_port_of(&vswitch, 2, 0), 6);
	assert_int_equal(vswitch_port_of(&vswitch, 2, 2), -1);
	for (unsigned i = 0; i < VSWITCH_PORTS; i++)
		assert_int_equal(vswitch.states[i],
		                 i >= 4 && i <= 7 ? VSWITCH_PORT_DOWN : VSWITCH_PORT_ABSENT);
	parse("switch b id 9 ports 3 1\n");
	topology_vswitch(&topology, 0, &vswitch);
	assert_true(vswitch.plain);
	assert_int_equal(vswitch_port_of(&vswitch, 9, 3), 3);
	assert_int_equal(vswitch_port_of(&vswitch, 9, 1), 1);
}

static void vs1_links(void **state)
{
	(void)state;
	static const uint8_t v6[16] = {0x20, 1, 0xd, 0xb8, [14] = 0x12, [15] = 0x34};
	static const uint8_t v6_end[16] = {0xfe, 0x80}, loopback[16] = {[15] = 1};
	static const uint8_t mac[6] = {2, 0, 0, 0xab, 0xCD, 1};
	parse("# comment \xc3\xa9\r\n"
	      "  switch a id 1 ports 0-15 # more\r\n"
	      "\n"
	      "switch b id 2 ports 0-15\n"
	      "link a:0 b:1 udp 192.0.2.1:7000 192.0.2.255:65535\n"
	      "link a:1 b:0 udp [2001:db8::1234]:1 [fe80::]:2\n"
	      "link a:2 a:3 udp [::1]:1 [1:2:3:4:5:6:7:8]:2\n"
	      "link a:4 b:4 ethernet eth0 veth1/02:00:00:ab:CD:01\n"
	      "link a:15 b:15 shm"); /* no end of line */
	assert_int_equal(topology.link_count, 5);
	const struct topology_link *links = topology.links;
	assert_int_equal(links[0].line, 5);
	assert_int_equal(links[0].kind, TOPOLOGY_LINK_UDP);
	assert_false(links[0].ends[0].address.ipv6);
	assert_memory_equal(links[0].ends[0].address.bytes, "\xc0\x00\x02\x01", 4);
	assert_int_equal(links[0].ends[0].address.port, 7000);
	assert_int_equal(links[0].ends[1].address.port, 65535);
	assert_int_equal(links[0].ends[1].port, 1);
	assert_true(links[1].ends[0].address.ipv6);
	assert_memory_equal(links[1].ends[0].address.bytes, v6, 16);
	assert_memory_equal(links[1].ends[1].address.bytes, v6_end, 16);
	assert_memory_equal(links[2].ends[0].address.bytes, loopback, 16);
	assert_memory_equal(links[2].ends[1].address.bytes, "\0\1\0\2\0\3\0\4\0\5\0\6\0\7\0\x08",
	                    16);
	assert_int_equal(links[2].ends[1].node, 0); /* a cable back to the same switch */
	assert_int_equal(links[3].kind, TOPOLOGY_LINK_ETHERNET);
	assert_string_equal(links[3].ends[0].interface, "eth0");
	assert_false(links[3].ends[0].has_mac);
	assert_string_equal(links[3].ends[1].interface, "veth1");
	assert_true(links[3].ends[1].has_mac);
	assert_memory_equal(links[3].ends[1].mac, mac, 6);
	assert_int_equal(links[4].kind, TOPOLOGY_LINK_MEMORY);
}

/* One key for all, or one per node. Without a key there is none. */
static void vs3_keys(void **state)
{
	(void)state;
	uint8_t all[IBC_KEY_BYTES], own[IBC_KEY_BYTES];
	memset(all, 0xaa, sizeof(all));
	memset(own, 0x0f, sizeof(own));
	parse("key aaaaaaaaaaaaaaaaaaaaaaaaaaaaAAAA\nnode a id 1\nnode b id 2\n"
	      "key 0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f\nswitch c id 3 ports 1\n");
	assert_true(topology.nodes[0].has_key);
	assert_memory_equal(topology.nodes[0].key, all, sizeof(all));
	assert_memory_equal(topology.nodes[1].key, own, sizeof(own));
	assert_memory_equal(topology.nodes[2].key, all, sizeof(all));
	parse("node a id 1\n");
	assert_false(topology.nodes[0].has_key);
}

#define TWO "switch a id 1 ports 0-3\nswitch b id 2 ports 0-3\n"

/* Files that are wrong in one place, and the message about it. */
static const struct {
	const char *file;
	const char *message;
} wrong_files[] = {
        {"", "f:1: expected at least one node or switch"},
        {"# nothing\n", "f:1: expected at least one node or switch"},
        {"\nnods a id 1\n",
         "f:2: expected a statement: node, nic, apids, key, switch or link, found 'nods'"},
        {"node", "f:1: expected a name of 1 to 63 letters, digits, '.', '_' and '-' that "
                 "starts with a letter"},
        {"node 1a id 1", "f:1: expected a name of 1 to 63 letters, digits, '.', '_' and '-' "
                         "that starts with a letter, found '1a'"},
        {"node a id 1\nswitch a id 2 ports 1\n",
         "f:2: expected a name that no node or switch above has, found 'a'"},
        {"node a\n", "f:1: expected 'id' and the identifier"},
        {"node a id 0\n", "f:1: expected an identifier: a number from 1 on, of 64 bits, found '0'"},
        {"node a id 18446744073709551616\n",
         "f:1: expected an identifier: a number from 1 on, of 64 bits, found "
         "'18446744073709551616'"},
        {"node a id 0x\n",
         "f:1: expected an identifier: a number from 1 on, of 64 bits, found '0x'"},
        {"node a id 1\nnode b id 0x1\n",
         "f:2: expected an identifier that no node or switch above has, found '0x1'"},
        {"node a id 1 2\n", "f:1: expected the end of the line, found '2'"},
        {"switch a id 1\n", "f:1: expected 'ports' and the list of ports"},
        {"switch a id 1 ports\n",
         "f:1: expected a port from 0 to 15, or a range of them such as 1-4"},
        {"switch a id 1 ports 16\n",
         "f:1: expected a port from 0 to 15, or a range of them such as 1-4, found '16'"},
        {"switch a id 1 ports 4-2\n",
         "f:1: expected a port from 0 to 15, or a range of them such as 1-4, found '4-2'"},
        {"switch a id 1 ports 1-3 2\n", "f:1: expected ports that are not in use yet, found '2'"},
        {"nic guid 1 ports 0\n",
         "f:1: expected a node above its NICs; a switch has none, found 'nic'"},
        {"switch a id 1 ports 1\nnic guid 1 ports 0\n",
         "f:2: expected a node above its NICs; a switch has none, found 'nic'"},
        {"node a id 1\nnic 1 ports 0\n", "f:2: expected 'guid' and the NIC's GUID, found '1'"},
        {"node a id 1\nnic guid x ports 0\n",
         "f:2: expected a GUID: a number from 1 on, of 64 bits, found 'x'"},
        {"node a id 1\nnic guid 5 ports 0\nnode b id 2\nnic guid 5 ports 0\n",
         "f:4: expected a GUID that no NIC above has, found '5'"},
        {"node a id 1\napids 40\n", "f:2: expected a NIC above its APIDs, found 'apids'"},
        {"node a id 1\nnic guid 5 ports 0\nnode b id 2\napids 40\n",
         "f:4: expected a NIC above its APIDs, found 'apids'"},
        {"node a id 1\nnic guid 5 ports 0\napids\n",
         "f:3: expected an APID from 16 to 63, or a range of them such as 40-49"},
        {"node a id 1\nnic guid 5 ports 0\napids 15\n",
         "f:3: expected an APID from 16 to 63, or a range of them such as 40-49, found '15'"},
        {"node a id 1\nnic guid 5 ports 0\napids 20 60-64\n",
         "f:3: expected an APID from 16 to 63, or a range of them such as 40-49, found '60-64'"},
        {"node a id 1\nnic guid 5 ports 0\napids 20\napids 30\n",
         "f:4: expected one list of APIDs per NIC, found 'apids'"},
        {"node a id 1\nkey 00\n", "f:2: expected a key: 32 hexadecimal digits, found '00'"},
        {"key 0000000000000000000000000000000g\n",
         "f:1: expected a key: 32 hexadecimal digits, found "
         "'0000000000000000000000000000000g'"},
        {"key 00000000000000000000000000000000\nkey 00000000000000000000000000000000\n",
         "f:2: expected one key for all nodes and switches, found 'key'"},
        {"node a id 1\nkey 00000000000000000000000000000000\nkey "
         "00000000000000000000000000000000\n",
         "f:3: expected one key per node or switch, found 'key'"},
        {TWO "link a b\n", "f:3: expected NAME:PORT, an end of the link, found 'a'"},
        {TWO "link a:1 c:1\n", "f:3: expected the name of a node or switch above, found 'c'"},
        {TWO "link a:1 b:4 shm\n",
         "f:3: expected a hardware port of that node or switch, found 'b:4'"},
        {TWO "link a:1 b:33 shm\n",
         "f:3: expected a hardware port of that node or switch, found 'b:33'"},
        {TWO "link a:1 a:1 shm\n", "f:3: expected a port that has no link yet, found 'a:1'"},
        {TWO "link a:1 b:1 shm\nlink b:2 a:1 shm\n",
         "f:4: expected a port that has no link yet, found 'a:1'"},
        {TWO "link a:1 b:1\n", "f:3: expected the kind of the link: shm, udp or ethernet"},
        {TWO "link a:1 b:1 tcp\n",
         "f:3: expected the kind of the link: shm, udp or ethernet, found 'tcp'"},
        {TWO "link a:1 b:1 shm 1\n", "f:3: expected the end of the line, found '1'"},
        {TWO "link a:1 b:1 udp 10.0.0.1:1\n",
         "f:3: expected the address of each end, such as 192.0.2.1:7000 or "
         "[2001:db8::1]:7000"},
        {TWO "link a:1 b:1 udp 10.0.0.1:1 10.0.0.1:1\n",
         "f:3: expected an address and port that no other end has, found '10.0.0.1:1'"},
        {TWO "link a:1 b:1 udp 10.0.0.1:1 10.0.0.1:2\nlink a:2 b:2 udp 10.0.0.3:1 "
             "10.0.0.1:1\n",
         "f:4: expected an address and port that no other end has, found '10.0.0.1:1'"},
        {TWO "link a:1 b:1 udp 10.0.0.1:1 [::1]:1\n",
         "f:3: expected two IPv4 addresses or two IPv6 addresses"},
        {TWO "link a:1 b:1 ethernet eth0\n",
         "f:3: expected the interface of each end, such as eth0 or eth0/02:00:00:00:00:01"},
        {"node a id 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n",
         "f:1: expected at most 32 words in a line"},
        {"node \xc3\xa9 id 1\n",
         "f:1: expected text in ASCII; other characters in comments only, found '?'"},
};

/* The message names the line and what was expected there. */
static void vs1_errors_name_the_line(void **state)
{
	(void)state;
	for (unsigned i = 0; i < sizeof(wrong_files) / sizeof(wrong_files[0]); i++) {
		struct topology_error error;
		char message[TOPOLOGY_MESSAGE_BYTES];
		assert_false(topology_parse(&topology, wrong_files[i].file,
		                            strlen(wrong_files[i].file), &error));
		topology_explain(&error, "f", message);
		assert_string_equal(message, wrong_files[i].message);
		assert_int_equal(topology.node_count, 0); /* taken whole or not at all */
		assert_int_equal(topology.link_count, 0);
	}
}

static void vs1_addresses_and_interfaces(void **state)
{
	(void)state;
	static const char *const wrong[] = {
	        "udp 10.0.0.1 10.0.0.2:1",
	        "udp 10.0.0:1 10.0.0.2:1",
	        "udp 10.0.0.1.2:1 10.0.0.2:1",
	        "udp 10.0.0.256:1 10.0.0.2:1",
	        "udp 10.0.0.01:1 10.0.0.2:1",
	        "udp 10.0.0.1:0 10.0.0.2:1",
	        "udp 10.0.0.1:65536 10.0.0.2:1",
	        "udp 0.0.0.0:1 10.0.0.2:1",
	        "udp 224.0.0.1:1 10.0.0.2:1",
	        "udp 255.255.255.255:1 10.0.0.2:1",
	        "udp [::]:1 [::1]:1",
	        "udp [ff02::1]:1 [::1]:1",
	        "udp [::1:1 [::1]:1",
	        "udp [::1]1 [::1]:1",
	        "udp [1:2:3:4:5:6:7]:1 [::1]:1",
	        "udp [1:2:3:4:5:6:7:8:9]:1 [::1]:1",
	        "udp [1::2::3]:1 [::1]:1",
	        "udp [1:2:3:4::5:6:7:8]:1 [::1]:1",
	        "udp [12345::]:1 [::1]:1",
	        "udp [g::]:1 [::1]:1",
	        "udp [1:]:1 [::1]:1",
	        "udp []:1 [::1]:1",
	        "udp [:1]:1 [::1]:1",
	        "udp [1:::2]:1 [::1]:1",
	        "ethernet eth0/02:00:00:00:00 eth1",
	        "ethernet eth0/02:00:00:00:00:00:00 eth1",
	        "ethernet eth0/0:00:00:00:00:00 e1",
	        "ethernet eth0/03:00:00:00:00:00 eth1",
	        "ethernet /02:00:00:00:00:01 eth1",
	        "ethernet interface-is-too-long eth1",
	};
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct topology_error error;
		char file[256];
		snprintf(file, sizeof(file), TWO "link a:1 b:1 %s\n", wrong[i]);
		if (topology_parse(&topology, file, strlen(file), &error))
			fail_msg("accepted: %s", wrong[i]);
		assert_int_equal(error.line, 3);
	}
	parse(TWO "link a:1 b:1 ethernet interface-of-15 e\n");
}

/* As many nodes and links as there may be, and one more of each. */
static void vs1_limits(void **state)
{
	(void)state;
	struct topology_error error;
	size_t used = 0;
	for (unsigned i = 0; i < TOPOLOGY_MAX_NODES; i++)
		used += (size_t)sprintf(text + used, "switch s%u id %u ports 0-15\n", i, i + 1);
	size_t nodes = used;
	used += (size_t)sprintf(text + used, "node one-more id 10000\n");
	assert_false(topology_parse(&topology, text, used, &error));
	assert_int_equal(error.line, TOPOLOGY_MAX_NODES + 1);
	used = nodes;
	for (unsigned i = 0; i < TOPOLOGY_MAX_LINKS; i++)
		used += (size_t)sprintf(text + used, "link s%u:%u s%u:%u shm\n", i / 8, i % 8 * 2,
		                        (i / 8 + 1) % TOPOLOGY_MAX_NODES, i % 8 * 2 + 1);
	assert_true(topology_parse(&topology, text, used, &error));
	assert_int_equal(topology.link_count, TOPOLOGY_MAX_LINKS);
	used += (size_t)sprintf(text + used, "link s0:0 s1:0 shm\n");
	assert_false(topology_parse(&topology, text, used, &error));
	assert_string_equal(error.expected, "at most 4096 links");
	memset(text, '#', sizeof(text));
	assert_false(topology_parse(&topology, text, TOPOLOGY_MAX_FILE_BYTES + 1, &error));
	assert_string_equal(error.expected, "a file of at most 2 MiB");
	char longest[80];
	snprintf(longest, sizeof(longest), "node %063d id 1", 0);
	longest[5] = 'n';
	assert_true(topology_parse(&topology, longest, strlen(longest), &error));
	snprintf(longest, sizeof(longest), "node %064d id 1", 0);
	longest[5] = 'n';
	assert_false(topology_parse(&topology, longest, strlen(longest), &error));
}

/* Paragraph 36: a NIC for some applications only. */
static void vs4_access(void **state)
{
	(void)state;
	parse("node a id 7\nnic guid 9 ports 5 4\napids 20 40-49 63\nnic guid 8 ports 3\n");
	uint64_t allowed = 1ull << 20 | 0x3ffull << 40 | 1ull << 63 | 1ull << 31;
	const struct vswitch_nic_port *ports = topology.nodes[0].nic_ports;
	assert_int_equal(ports[4].denied, ~0xffffull & ~allowed);
	assert_int_equal(ports[5].denied, ~0xffffull & ~allowed);
	assert_int_equal(ports[3].denied, 0);
	struct vswitch vswitch;
	topology_vswitch(&topology, 0, &vswitch);
	for (unsigned apid = 16; apid < 64; apid++) {
		assert_int_equal(vswitch_may_use(&vswitch, apid, 4), allowed >> apid & 1);
		assert_true(vswitch_may_use(&vswitch, apid, 3));
	}
	assert_true(topology_print(&topology, text, sizeof(text)) > 0);
	assert_non_null(strstr(text, "\n    nic guid 9 ports 5 4\n    apids 20 31 40-49 63\n"));
	/* As many words as a line may have. */
	char *at = text + sprintf(text, "node a id 1\nnic guid 1 ports 0\napids");
	for (unsigned apid = 17; apid < 64; apid += 2)
		at += sprintf(at, " %u", apid);
	parse(text);
	assert_true(topology_print(&topology, text, sizeof(text)) > 0);
	parse(text);
}

/* What is printed parses to the same. */
static void vs1_print_and_parse(void **state)
{
	(void)state;
	struct topology_error error;
	parse("key 000102030405060708090a0b0c0d0e0f\nnode a id 7\nnic guid 9 ports 5 4\n"
	      "apids 16-30 44\nnic guid 8 ports 3\nswitch b id 0xffffffffffffffff ports 1-3 "
	      "15\nlink a:5 b:15 ethernet e0 "
	      "e1/02:00:00:00:00:01\nlink a:3 b:1 udp [2001:db8::1]:9 [::1]:9\nlink b:2 b:3 udp "
	      "127.0.0.1:5 127.0.0.1:6\n");
	size_t length = topology_print(&topology, text, sizeof(text));
	assert_int_equal(length, strlen(text));
	assert_true(topology_parse(&again, text, length, &error));
	for (unsigned i = 0; i < topology.node_count; i++)
		again.nodes[i].line = topology.nodes[i].line;
	for (unsigned i = 0; i < topology.link_count; i++)
		again.links[i].line = topology.links[i].line;
	assert_int_equal(again.node_count, 2);
	assert_int_equal(again.link_count, 3);
	assert_memory_equal(again.nodes, topology.nodes, 2 * sizeof(again.nodes[0]));
	assert_memory_equal(again.links, topology.links, 3 * sizeof(again.links[0]));
	assert_int_equal(topology_print(&topology, text, length + 1), length);
	assert_int_equal(topology_print(&topology, text, length), 0);
	assert_int_equal(strlen(text), length - 1); /* cut, but a string */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(vs4_example_file),
	        cmocka_unit_test(vs4_nics_of_a_node),
	        cmocka_unit_test(vs1_links),
	        cmocka_unit_test(vs3_keys),
	        cmocka_unit_test(vs1_errors_name_the_line),
	        cmocka_unit_test(vs1_addresses_and_interfaces),
	        cmocka_unit_test(vs1_limits),
	        cmocka_unit_test(vs4_access),
	        cmocka_unit_test(vs1_print_and_parse),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
