/* All switches of a topology: see switches.h. */
#include "switches.h"

#include <assert.h>
#include <string.h>

void switches_set_link(struct switches *switches, uint32_t link, bool up)
{
	for (unsigned side = 0; side < 2; side++) {
		const struct topology_end *end = &switches->topology->links[link].ends[side];
		switches->at[end->node].states[end->port] =
		        up ? VSWITCH_PORT_UP : VSWITCH_PORT_DOWN;
	}
}

void switches_init(struct switches *switches, const struct topology *topology)
{
	memset(switches, 0, sizeof(*switches));
	switches->topology = topology;
	for (uint32_t i = 0; i < topology->node_count; i++)
		topology_vswitch(topology, i, &switches->at[i]);
	for (uint32_t i = 0; i < topology->link_count; i++)
		switches_set_link(switches, i, true);
}

bool switches_beyond(const struct switches *switches, uint32_t node, uint8_t port, uint32_t *other,
                     uint8_t *other_port)
{
	unsigned end;
	int link = topology_link_at(switches->topology, node, port, &end);
	if (link < 0)
		return false;
	*other = switches->topology->links[link].ends[!end].node;
	*other_port = switches->topology->links[link].ends[!end].port;
	return true;
}

/* What this switch says itself goes back to where the packet came from. */
static void say_back(const struct ibc_packet *packet, uint8_t inport, struct switches_out *out)
{
	out->length = ibc_encode(packet, out->bytes, sizeof(out->bytes));
	assert(out->length > 0);
	if (vswitch_is_hardware(inport)) {
		out->fate = SWITCHES_LEAVES;
		out->port = inport;
	} else {
		out->fate = SWITCHES_DELIVERED;
		out->applications = 1ull << inport;
	}
}

static void consume(struct switches *switches, uint32_t node, uint8_t inport,
                    const struct ibc_packet *packet, struct switches_out *out)
{
	static struct vswitch_configured configured;
	const struct topology_node *from = &switches->topology->nodes[node];
	struct vswitch_owner owner = {.vswitch = &switches->at[node],
	                              .counters = &switches->counters[node],
	                              .key = from->has_key ? from->key : NULL};
	vswitch_configure(&owner, packet, inport, &configured);
	if (configured.set_port)
		switches->at[node].states[configured.port] =
		        configured.up ? VSWITCH_PORT_UP : VSWITCH_PORT_DOWN;
	if (configured.answered)
		say_back(&configured.answer, inport, out);
}

void switches_take(struct switches *switches, uint32_t node, uint8_t inport, const void *bytes,
                   size_t length, struct switches_out *out)
{
	struct ibc_packet packet, nack;
	struct vswitch_counters *counters = &switches->counters[node];
	out->fate = SWITCHES_DROPPED;
	out->length = length;
	out->decision.action = VSWITCH_ACTION_COUNT;
	if (switches->dead[node] || length > sizeof(out->bytes))
		return;
	memcpy(out->bytes, bytes, length);
	if (vswitch_pass(&switches->at[node], out->bytes, length, inport, &out->decision) !=
	    IBC_OK) {
		counters->packets[IBC_COUNTER_DAMAGED]++;
		return;
	}
	/* At the end of the route, and before an answer is made of it, it must be intact. */
	if (out->decision.action == VSWITCH_REJECT
	            ? !vswitch_rejected(out->bytes, length, out->decision.reason, &packet)
	            : out->decision.action != VSWITCH_TRANSMIT &&
	                      ibc_decode(&packet, out->bytes, length) != IBC_OK) {
		counters->packets[IBC_COUNTER_DAMAGED]++;
		out->decision.action = VSWITCH_ACTION_COUNT;
		return;
	}
	struct vswitch_result result = {.action = out->decision.action,
	                                .reason = out->decision.reason};
	vswitch_count(counters, &result);
	switch (out->decision.action) {
	case VSWITCH_TRANSMIT:
		out->fate = SWITCHES_LEAVES;
		out->port = out->decision.port;
		break;
	case VSWITCH_DELIVER:
		out->fate = SWITCHES_DELIVERED;
		out->applications = out->decision.applications;
		break;
	case VSWITCH_CONSUME:
		consume(switches, node, inport, &packet, out);
		break;
	default:
		if (vswitch_nack(&packet, out->decision.reason, &nack))
			say_back(&nack, inport, out);
		break;
	}
}
