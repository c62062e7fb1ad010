/* Any bytes as a topology file: it is refused with a message, or what is printed of it parses to
 * the same again. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "fabric/topology.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct topology first, second;
static char printed[4 * TOPOLOGY_MAX_FILE_BYTES];

static void must_be_consistent(const struct topology *topology)
{
	struct vswitch vswitch;
	for (uint32_t i = 0; i < topology->node_count; i++) {
		topology_vswitch(topology, i, &vswitch);
		assert(topology_find(topology, topology->nodes[i].name) == (int)i);
	}
	for (uint32_t i = 0; i < topology->link_count; i++)
		for (unsigned side = 0; side < 2; side++) {
			const struct topology_end *end = &topology->links[i].ends[side];
			unsigned found;
			assert(end->node < topology->node_count);
			assert(topology->nodes[end->node].ports >> end->port & 1);
			assert(topology_link_at(topology, end->node, end->port, &found) == (int)i);
			assert(found == side);
		}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct topology_error error;
	char message[TOPOLOGY_MESSAGE_BYTES];
	if (!topology_parse(&first, (const char *)data, size, &error)) {
		topology_explain(&error, "file", message);
		assert(strlen(message) > 0 && first.node_count == 0 && first.link_count == 0);
		return 0;
	}
	must_be_consistent(&first);
	size_t length = topology_print(&first, printed, sizeof(printed));
	assert(length > 0 && topology_parse(&second, printed, length, &error));
	assert(second.node_count == first.node_count && second.link_count == first.link_count);
	for (uint32_t i = 0; i < first.node_count; i++) {
		second.nodes[i].line = first.nodes[i].line;
		assert(memcmp(&first.nodes[i], &second.nodes[i], sizeof(first.nodes[i])) == 0);
	}
	for (uint32_t i = 0; i < first.link_count; i++) {
		second.links[i].line = first.links[i].line;
		assert(memcmp(&first.links[i], &second.links[i], sizeof(first.links[i])) == 0);
	}
	return 0;
}
