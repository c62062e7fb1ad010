/* Discovery of known networks: the map is the topology again, through loops and parallel links;
 * ways through it; its pictures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/prng.h"
#include "cable/switches.h"
#include "fabric/topology_map.h"

#define MS        1000000ull
#define OWN_APID  40u
#define MAX_STEPS 100000u
static const char key_line[] = "key 000102030405060708090a0b0c0d0e0f\n";

static struct topology truth, map;
static struct switches net;
static struct discovery discovery;
static struct discovery_config config;
static char text[TOPOLOGY_MAX_FILE_BYTES];
static unsigned loss_permille;
static struct prng prng;

static void use(const char *file)
{
	struct topology_error error;
	char message[TOPOLOGY_MESSAGE_BYTES];
	if (!topology_parse(&truth, file, strlen(file), &error)) {
		topology_explain(&error, "test", message);
		fail_msg("%s", message);
	}
	switches_init(&net, &truth);
	net.at[0].states[OWN_APID] = VSWITCH_PORT_UP;
	config = (struct discovery_config){.source_apid = OWN_APID,
	                                   .transaction = UINT32_MAX - 3, /* it wraps */
	                                   .tries = 3,
	                                   .timeout_ns = 10 * MS,
	                                   .key_count = 1};
	for (uint8_t i = 0; i < IBC_KEY_BYTES; i++)
		config.keys[0][i] = i;
	loss_permille = 0;
}

/* Carry the packet until an application has it; true: that is the answer, in *answer. */
static bool carry(const struct discovery_packet *out, struct switches_out *answer)
{
	struct switches_out at;
	uint8_t bytes[IBC_MAX_BYTES];
	size_t length = ibc_encode(&out->packet, bytes, sizeof(bytes));
	uint32_t node = 0;
	uint8_t port = OWN_APID;
	assert_true(length > 0);
	if (out->out_port != DISCOVERY_OWN_SWITCH) {
		if (net.at[0].states[out->out_port] != VSWITCH_PORT_UP)
			return false;
		assert_true(switches_beyond(&net, 0, out->out_port, &node, &port));
	}
	for (unsigned hop = 0; hop < 4 * IBC_MAX_HOPS; hop++) {
		if (prng_chance(&prng, loss_permille))
			return false;
		switches_take(&net, node, port, bytes, length, &at);
		if (at.fate == SWITCHES_DELIVERED) {
			assert_int_equal(node, 0);
			*answer = at;
			return true;
		}
		if (at.fate == SWITCHES_DROPPED ||
		    !switches_beyond(&net, node, at.port, &node, &port))
			return false;
		length = at.length;
		memcpy(bytes, at.bytes, length);
	}
	fail_msg("a packet without end");
	return false;
}

static void discover(void)
{
	struct discovery_packet out;
	struct switches_out answer;
	struct ibc_packet packet;
	uint64_t now_ns = 0;
	prng_seed(&prng, 1);
	discovery_begin(&discovery, &map, &config);
	for (unsigned step = 0; step < MAX_STEPS; step++) {
		while (discovery_next(&discovery, now_ns, &out)) {
			if (!carry(&out, &answer))
				continue;
			assert_int_equal(ibc_decode(&packet, answer.bytes, answer.length), IBC_OK);
			discovery_receive(&discovery, &packet);
			discovery_receive(&discovery, &packet); /* the second has no effect */
		}
		if (discovery_is_done(&discovery))
			return;
		assert_true(discovery_deadline_ns(&discovery) > now_ns);
		now_ns = discovery_deadline_ns(&discovery);
	}
	fail_msg("discovery does not end");
}

static int true_index(uint64_t id)
{
	for (uint32_t i = 0; i < truth.node_count; i++)
		if (truth.nodes[i].id == id)
			return (int)i;
	return -1;
}

/* Everything in the map is true. */
static void expect_truth(void)
{
	for (uint32_t i = 0; i < map.node_count; i++) {
		int index = true_index(map.nodes[i].id);
		assert_true(index >= 0);
		assert_int_equal(map.nodes[i].plain, truth.nodes[index].plain);
		assert_int_equal(map.nodes[i].ports, truth.nodes[index].ports);
		for (unsigned port = 0; port < VSWITCH_HARDWARE_PORTS; port++) {
			assert_int_equal(map.nodes[i].nic_ports[port].guid,
			                 truth.nodes[index].nic_ports[port].guid);
			assert_int_equal(map.nodes[i].nic_ports[port].number,
			                 truth.nodes[index].nic_ports[port].number);
		}
	}
	for (uint32_t i = 0; i < map.link_count; i++) {
		const struct topology_end *ends = map.links[i].ends;
		unsigned end;
		int link =
		        topology_link_at(&truth, (uint32_t)true_index(map.nodes[ends[0].node].id),
		                         ends[0].port, &end);
		assert_true(link >= 0);
		assert_int_equal(truth.links[link].ends[!end].port, ends[1].port);
		assert_int_equal(truth.nodes[truth.links[link].ends[!end].node].id,
		                 map.nodes[ends[1].node].id);
	}
}

/* A torus of @size by @size plain switches, a node at each of two corners. */
static size_t torus(unsigned size)
{
	size_t used = (size_t)sprintf(text,
	                              "%snode a id 1000\nnic guid 5 ports 0 1\n"
	                              "node b id 1001\nnic guid 6 ports 0 1\n",
	                              key_line);
	for (unsigned i = 0; i < size * size; i++)
		used += (size_t)sprintf(text + used, "switch s%u id %u ports 0-4\n", i, i + 1);
	for (unsigned y = 0; y < size; y++)
		for (unsigned x = 0; x < size; x++)
			used += (size_t)sprintf(text + used,
			                        "link s%u:0 s%u:1 shm\nlink s%u:2 s%u:3 shm\n",
			                        y * size + x, y * size + (x + 1) % size,
			                        y * size + x, (y + 1) % size * size + x);
	used += (size_t)sprintf(text + used, "link a:1 s0:4 shm\nlink b:0 s%u:4 shm\n",
	                        size * size - 1);
	return used;
}

static void vs5_figure_1(void **state)
{
	(void)state;
	FILE *file = fopen(EXAMPLE, "r");
	assert_non_null(file);
	size_t bytes = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[bytes] = '\0';
	use(text);
	memcpy(config.keys[0], truth.nodes[0].key, IBC_KEY_BYTES);
	discover();
	assert_int_equal(map.node_count, 4);
	assert_int_equal(map.link_count, 3);
	expect_truth();
	/* Paragraph 18: out of port 1, then 3-2. */
	struct topology_path path;
	uint32_t to = 0;
	while (map.nodes[to].id != 104)
		to++;
	assert_true(topology_route(&map, 0, to, &path));
	assert_int_equal(path.out_port, 1);
	assert_int_equal(path.hops, 2);
	assert_int_equal(path.ports[0], 3);
	assert_int_equal(path.ports[1], 2);
}

static void vs5_torus_with_a_cut(void **state)
{
	(void)state;
	torus(4);
	use(text);
	discover();
	assert_int_equal(map.node_count, 18);
	assert_int_equal(map.link_count, 34);
	expect_truth();
	/* Ports of a torus are a loop by themselves: each link is asked about once or twice. */
	assert_true(discovery.sent <= 2 * 34 + 3);

	switches_set_link(&net, 6, false); /* out of s3 */
	discover();
	assert_int_equal(map.node_count, 18);
	assert_int_equal(map.link_count, 33);
	expect_truth();
	unsigned down = 0;
	for (uint32_t i = 0; i < map.node_count; i++)
		for (unsigned port = 0; port < VSWITCH_HARDWARE_PORTS; port++)
			down += discovery.devices[i].ports[port] == DISCOVERY_PORT_DOWN;
	/* Its two ends, one free port per node, and port 4 of the other switches. */
	assert_int_equal(down, 2 + 2 + 14);
}

static void vs5_parallel_links_and_loops(void **state)
{
	(void)state;
	snprintf(text, sizeof(text),
	         "%snode a id 9\nnic guid 1 ports 3 2 1\nswitch s id 1 ports 0-15\nswitch t id 2 "
	         "ports 0-15\nnode b id 8\nnic guid 2 ports 7\nnic guid 3 ports 15\n"
	         "link a:1 s:0 shm\nlink a:2 s:1 shm\nlink s:2 t:2 shm\nlink s:3 t:4 shm\n"
	         "link s:5 s:6 shm\nlink t:0 b:7 shm\nlink t:1 b:15 shm\nlink a:3 t:15 shm\n",
	         key_line);
	use(text);
	discover();
	assert_int_equal(map.node_count, 4);
	assert_int_equal(map.link_count, 8);
	expect_truth();
}

/* Nodes that the keys do not open, that are dead, and a switch without a key at all. */
static void vs3_only_with_the_key(void **state)
{
	(void)state;
	static const char file[] =
	        "node a id 9\nnic guid 1 ports 0-3\nkey 000102030405060708090a0b0c0d0e0f\n"
	        "switch s id 1 ports 0-1\nkey ff0102030405060708090a0b0c0d0e0f\n"
	        "switch t id 2 ports 0-1\n"
	        "switch u id 3 ports 0-1\nkey 000102030405060708090a0b0c0d0e0f\n"
	        "switch v id 4 ports 0\nkey 000102030405060708090a0b0c0d0e0f\n"
	        "link a:0 s:0 shm\nlink a:1 t:0 shm\nlink a:2 u:0 shm\nlink s:1 v:0 shm\n";
	use(file);
	net.dead[3] = true;
	discover();
	assert_int_equal(map.node_count, 1);
	assert_int_equal(discovery.devices[0].ports[0], DISCOVERY_PORT_REFUSED);
	assert_int_equal(discovery.devices[0].ports[1], DISCOVERY_PORT_REFUSED);
	assert_int_equal(discovery.devices[0].ports[2], DISCOVERY_PORT_SILENT);
	assert_int_equal(discovery.devices[0].ports[3], DISCOVERY_PORT_DOWN);
	assert_int_equal(discovery.repeated, 2); /* three tries at the dead one */

	memcpy(config.keys[1], config.keys[0], IBC_KEY_BYTES);
	config.keys[1][0] = 0xff;
	config.key_count = 2;
	net.dead[3] = false;
	discover();
	assert_int_equal(map.node_count, 4);
	assert_int_equal(map.link_count, 3);
	assert_int_equal(discovery.devices[0].ports[1], DISCOVERY_PORT_REFUSED);
	expect_truth();

	truth.nodes[0].has_key = false; /* not even the own node */
	discover();
	assert_int_equal(map.node_count, 0);
	assert_true(discovery_is_done(&discovery));
}

/* A probe that nobody answers is sent again when its time is over and not before, as often as it
 * may be tried, and then given up. */
static void a_probe_has_its_time(void **state)
{
	struct discovery_packet out;
	uint64_t now_ns = 5 * MS;
	uint32_t transaction = 0;
	(void)state;
	use("node a id 9\nnic guid 1 ports 0-3\nkey 000102030405060708090a0b0c0d0e0f\n");
	discovery_begin(&discovery, &map, &config);
	for (unsigned i = 0; i < config.tries; i++, now_ns += config.timeout_ns) {
		assert_true(discovery_next(&discovery, now_ns, &out));
		if (i == 0)
			transaction = out.packet.transaction;
		assert_int_equal(out.packet.transaction, transaction);
		assert_false(discovery_next(&discovery, now_ns, &out));
		assert_int_equal(discovery_deadline_ns(&discovery), now_ns + config.timeout_ns);
		assert_false(discovery_next(&discovery, now_ns + config.timeout_ns - 1, &out));
		assert_false(discovery_is_done(&discovery));
	}
	assert_false(discovery_next(&discovery, now_ns, &out));
	assert_true(discovery_is_done(&discovery));
	assert_int_equal(discovery_deadline_ns(&discovery), UINT64_MAX);
	assert_int_equal(discovery.sent, config.tries);
	assert_int_equal(discovery.repeated, config.tries - 1);
}

/* With loss, what is found is true; with enough tries, it is all. */
static void vs5_loss(void **state)
{
	(void)state;
	torus(4);
	use(text);
	loss_permille = 100;
	discover();
	expect_truth();
	config.tries = 100;
	discover();
	expect_truth();
	assert_int_equal(map.node_count, 18);
	assert_int_equal(map.link_count, 34);
	assert_true(discovery.repeated > 0);
}

/* A chain that is longer than a route can be. */
static void vs2_longest_route(void **state)
{
	(void)state;
	size_t used = (size_t)sprintf(text, "%snode a id 1000\nnic guid 5 ports 0\n", key_line);
	for (unsigned i = 0; i < 70; i++)
		used += (size_t)sprintf(text + used, "switch s%u id %u ports 0-1\n", i, i + 1);
	used += (size_t)sprintf(text + used, "link a:0 s0:0 shm\n");
	for (unsigned i = 0; i < 69; i++)
		used += (size_t)sprintf(text + used, "link s%u:1 s%u:0 shm\n", i, i + 1);
	use(text);
	discover();
	/* The own node, and what 0 to 62 hops lead to. */
	assert_int_equal(map.node_count, 1 + 63);
	assert_int_equal(discovery.devices[63].ports[1], DISCOVERY_PORT_BEYOND);
	struct topology_path path;
	assert_true(topology_route(&truth, 0, 63, &path));
	assert_int_equal(path.hops, IBC_MAX_HOPS);
	assert_false(topology_route(&truth, 0, 64, &path));
	assert_true(topology_route(&truth, 64, 2, &path));
	assert_int_equal(path.hops, 61);
}

static void vs5_no_way(void **state)
{
	(void)state;
	struct topology_path path;
	use("switch a id 1 ports 0-3\nswitch b id 2 ports 0-3\nswitch c id 3 ports 0-3\n"
	    "link a:1 b:2 shm\n");
	assert_true(topology_route(&truth, 1, 0, &path));
	assert_int_equal(path.out_port, 2);
	assert_int_equal(path.hops, 0);
	assert_false(topology_route(&truth, 0, 2, &path));
}

/* The JSON is JSON and has everything; both pictures say when the room is too small. */
static void vs5_json(void **state)
{
	(void)state;
	torus(4);
	use(text);
	switches_set_link(&net, 6, false);
	discover();
	size_t length = topology_json(&map, &discovery, text, sizeof(text));
	assert_true(length > 0 && length == strlen(text));
	json_t *root = json_loads(text, 0, NULL);
	assert_non_null(root);
	json_t *nodes = json_object_get(root, "nodes"), *links = json_object_get(root, "links");
	assert_int_equal(json_array_size(nodes), 18);
	assert_int_equal(json_array_size(links), 33);
	unsigned linked = 0, down = 0;
	for (size_t i = 0; i < json_array_size(nodes); i++) {
		json_t *node = json_array_get(nodes, i), *ports = json_object_get(node, "ports");
		assert_int_equal(json_integer_value(json_object_get(node, "id")), map.nodes[i].id);
		assert_string_equal(json_string_value(json_object_get(node, "kind")),
		                    map.nodes[i].plain ? "switch" : "node");
		assert_int_equal(json_array_size(ports), map.nodes[i].plain ? 5 : 2);
		for (size_t p = 0; p < json_array_size(ports); p++) {
			json_t *port = json_array_get(ports, p);
			const char *says = json_string_value(json_object_get(port, "state"));
			bool has_link = json_object_get(port, "link") != NULL;
			assert_int_equal(has_link, strcmp(says, "linked") == 0);
			linked += has_link;
			down += strcmp(says, "down") == 0;
		}
	}
	assert_int_equal(linked, 66);
	assert_int_equal(down, 2 + 2 + 14);
	json_decref(root);
	assert_int_equal(topology_json(&map, &discovery, text, length), 0);
	assert_int_equal(topology_json(&map, NULL, text, sizeof(text)) > 0, true);
	assert_null(strstr(text, "state"));
}

static unsigned count(const char *in, const char *what)
{
	unsigned found = 0;
	for (const char *at = in; (at = strstr(at, what)) != NULL; at++)
		found++;
	return found;
}

static void vs5_svg(void **state)
{
	(void)state;
	torus(4);
	use(text);
	size_t length = topology_svg(&truth, text, sizeof(text));
	assert_true(length > 0 && length == strlen(text));
	assert_int_equal(count(text, "class=\"switch\""), 16);
	assert_int_equal(count(text, "class=\"node\""), 2);
	assert_int_equal(count(text, "class=\"link\""), 34);
	assert_int_equal(count(text, "class=\"port\""), 68);
	assert_int_equal(count(text, "<text"), count(text, "</text>"));
	assert_int_equal(count(text, "<svg"), 1);
	assert_string_equal(text + length - 7, "</svg>\n");
	assert_int_equal(topology_svg(&truth, text, length), 0);
	use("switch alone id 1 ports 0-3\nswitch far id 2 ports 0\nlink alone:0 alone:1 shm\n");
	assert_true(topology_svg(&truth, text, sizeof(text)) > 0);
	assert_int_equal(count(text, "class=\"link\""), 1);
	assert_int_equal(count(text, ">no link: 2 3<"), 1);
	assert_int_equal(count(text, ">no link: 0<"), 1);
}

/* Where the name of a node is drawn. */
static int drawn_at(const char *name)
{
	char label[32];
	snprintf(label, sizeof(label), ">%s<", name);
	const char *end = strstr(text, label), *at = NULL;
	assert_non_null(end);
	for (const char *next = text; (next = strstr(next, " x=\"")) != NULL && next < end; next++)
		at = next;
	assert_non_null(at);
	return atoi(at + 4);
}

/* From left to right as far as they are from the first one; last those that no link leads to. */
static void vs5_svg_columns(void **state)
{
	(void)state;
	use("switch first id 1 ports 0-3\nswitch second id 2 ports 0-3\nswitch third id 3 ports "
	    "0-3\n"
	    "switch fourth id 4 ports 0-3\nswitch beside id 5 ports 0-3\nswitch apart id 6 ports "
	    "0-3\n"
	    "link first:0 second:0 shm\nlink second:1 third:0 shm\nlink third:1 fourth:0 shm\n"
	    "link first:1 beside:0 shm\nlink fourth:1 first:3 shm\n");
	assert_true(topology_svg(&truth, text, sizeof(text)) > 0);
	static const char *const names[] = {"first", "second", "third", "apart"};
	int step = drawn_at("second") - drawn_at("first");
	assert_true(step > 0);
	for (unsigned i = 1; i < 4; i++)
		assert_int_equal(drawn_at(names[i]) - drawn_at(names[i - 1]), step);
	/* A little to the side in the same column: it is the second or third there. */
	assert_in_range(drawn_at("beside"), drawn_at("first") + 1, drawn_at("third") - 1);
	assert_in_range(drawn_at("fourth"), drawn_at("first") + 1, drawn_at("third") - 1);
}

/* Links between the same two nodes can be told apart: each has a curve of its own. */
static void vs5_svg_parallel_links(void **state)
{
	(void)state;
	use("switch one id 1 ports 0-4\nswitch two id 2 ports 0-4\nlink one:0 two:0 shm\n"
	    "link two:1 one:1 shm\nlink one:2 two:2 shm\nlink one:3 two:3 shm\nlink two:4 one:4 "
	    "shm\n");
	assert_true(topology_svg(&truth, text, sizeof(text)) > 0);
	static const char begin[] = "<path class=\"link\" d=\"M";
	const char *curves[5];
	unsigned found = 0;
	for (const char *at = text; (at = strstr(at, begin)) != NULL; at++) {
		const char *bend = strchr(at, 'Q'); /* the ends may be swapped */
		assert_non_null(bend);
		assert_true(found < 5);
		for (unsigned i = 0; i < found; i++)
			assert_true(strtol(bend + 1, NULL, 10) != strtol(curves[i] + 1, NULL, 10) ||
			            strtol(strchr(bend, ' '), NULL, 10) !=
			                    strtol(strchr(curves[i], ' '), NULL, 10));
		curves[found++] = bend;
	}
	assert_int_equal(found, 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(vs5_figure_1),
	        cmocka_unit_test(vs5_torus_with_a_cut),
	        cmocka_unit_test(vs5_parallel_links_and_loops),
	        cmocka_unit_test(vs3_only_with_the_key),
	        cmocka_unit_test(a_probe_has_its_time),
	        cmocka_unit_test(vs5_loss),
	        cmocka_unit_test(vs2_longest_route),
	        cmocka_unit_test(vs5_no_way),
	        cmocka_unit_test(vs5_json),
	        cmocka_unit_test(vs5_svg),
	        cmocka_unit_test(vs5_svg_columns),
	        cmocka_unit_test(vs5_svg_parallel_links),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
