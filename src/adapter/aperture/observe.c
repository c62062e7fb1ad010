/* The aperture tables of other processes. Where they are is in the tables that each process shares
 * (reach/tables.h); they are read out of its memory, row by row, while it goes on. So nothing that
 * is read is trusted: pointers are only read through, every walk has a limit, and a row that
 * changes meanwhile is left out. See aperture.h. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/adapter.h"
#include "adapter/agent/observe.h"
#include "adapter/aperture/aperture.h"
#include "adapter/track/track.h"

#define OBSERVE_ROWS (HDL_MAX_APERTURES + 1)
/* Tables of another build are not read. */
#define OBSERVE_LAYOUT                                                                            \
	((uint64_t)sizeof(struct apertures) << 40 ^ (uint64_t)sizeof(struct hdl_aperture) << 24 ^ \
	 (uint64_t)offsetof(struct hdl_aperture, conn) << 16 ^                                    \
	 (uint64_t)offsetof(struct apertures, node) ^ sizeof(struct ap_port))

/* One process while it is looked at. */
struct sight {
	const struct tables_header *header;
	int pid;
	const struct apertures *copy;
	struct hdl_aperture_process *process;
};

struct aperture_list {
	struct hdl_aperture_process *list;
	size_t count;
};

void apertures_show(const struct apertures *apertures)
{
	struct tables_header *header = apertures->adapter->peers.tables.header;
	header->apertures_layout = OBSERVE_LAYOUT;
	atomic_store(&header->apertures_addr, (uint64_t)(uintptr_t)apertures);
}

static bool sight_read(const struct sight *sight, void *to, size_t bytes, const void *from)
{
	return observe_read(sight->pid, sight->header, to, bytes, (uint64_t)(uintptr_t)from);
}

/* --- rows --- */

static void sight_incoming(const struct hdl_aperture *from, const struct hdl_aperture_fixed *in,
                           struct hdl_aperture_info *info)
{
	info->index = from->conn.own.index;
	info->type = in->type;
	info->bits = in->bits;
	info->connected = in->connected;
	info->access = from->access;
	info->checks = from->is_ip ? (uint32_t)HDL_CHECK_SOURCE : in->checks;
	info->expected = in->expected;
	info->nonce_every = from->conn.roll.every;
	info->first = from->conn.own.first;
	info->length = from->conn.own.length;
	info->source = in->source;
	info->mask = in->mask;
	info->source_cluster = in->source_cluster;
	info->cluster_mask = in->cluster_mask;
}

static void sight_outgoing(const struct hdl_aperture *from, const struct outgoing *out,
                           struct hdl_aperture_info *info)
{
	const struct ap_conn *conn = &from->conn;
	bool leads = conn->state == HDL_APERTURE_OPEN || conn->state == HDL_APERTURE_CLOSING ||
	             conn->pointed;
	info->pointed = conn->pointed;
	if (from->is_ip) {
		info->carrier = HDL_CARRIER_IP;
		info->out_index = from->ip_port;
		memcpy(info->host.raw, from->ip_peer.gid, 16);
		return;
	}
	if (!leads)
		return;
	info->carrier = conn->path.route >= APERTURE_ROUTE_FORWARD ? HDL_CARRIER_FORWARD
	                : conn->path.route >= APERTURE_ROUTE_UDP   ? HDL_CARRIER_UDP
	                                                           : HDL_CARRIER_LANE;
	info->sequenced = out->sequenced;
	info->out_bits = conn->peer.bits;
	info->out_index = out->index;
	info->sequence = conn->next;
	info->acknowledged = conn->una;
	info->out_first = out->first;
	info->out_length = out->length;
	memcpy(info->host.raw, conn->path.host, 16);
	info->cluster = out->cluster;
	info->by_cluster = out->address == OUTGOING_CLUSTER;
}

/* The mapped range. Where it is tracked, the tracker knows its address. */
static void sight_range(const struct sight *sight, const struct hdl_aperture *from,
                        struct hdl_aperture_info *info)
{
	struct track track;
	if (from->track != NULL && sight_read(sight, &track, sizeof(track), from->track)) {
		info->range = HDL_RANGE_TRACKED;
		info->address = (uint64_t)(uintptr_t)track.view;
	} else if (from->shared != NULL) {
		info->range = HDL_RANGE_SAME;
		info->address = (uint64_t)(uintptr_t)from->shared;
	}
}

static bool sight_row(const struct sight *sight, uint32_t row, struct hdl_aperture_info *info)
{
	const struct ap_node *node = &sight->copy->node;
	struct ap_conn *conn = NULL;
	struct hdl_aperture_fixed in;
	struct hdl_aperture from;
	struct outgoing out;
	if (!sight_read(sight, &in, sizeof(in), &node->rows[row]) ||
	    !sight_read(sight, &conn, sizeof(conn), &node->conns[row]) || conn == NULL)
		return false;
	uint64_t at = (uint64_t)(uintptr_t)conn - offsetof(struct hdl_aperture, conn);
	if (!observe_read(sight->pid, sight->header, &from, sizeof(from), at) || in.index == 0 ||
	    from.conn.row != row || (uint64_t)(uintptr_t)from.conn.owner != at)
		return false; /* it has gone */
	out = from.conn.plain;
	if (from.conn.out != &conn->plain && !sight_read(sight, &out, sizeof(out), from.conn.out))
		return false;
	*info = (struct hdl_aperture_info){.state = from.conn.state, .reason = from.conn.reason};
	uint16_t port = 0;
	if (from.port != NULL &&
	    sight_read(sight, &port, sizeof(port),
	               (const char *)from.port + offsetof(struct hdl_port, port.number)))
		info->port = port;
	sight_incoming(&from, &in, info);
	sight_outgoing(&from, &out, info);
	sight_range(sight, &from, info);
	return true;
}

static int sight_rows(const struct sight *sight)
{
	const struct ap_node *node = &sight->copy->node;
	struct hdl_aperture_process *process = sight->process;
	size_t words = BITMAP_WORDS((size_t)node->row_count);
	if (node->row_count > OBSERVE_ROWS)
		return 0; /* nonsense */
	uint64_t *map = calloc(words + 1, sizeof(*map));
	if (map == NULL)
		return -HDL_ENOMEM;
	struct bitmap used = {.words = map, .bits = node->row_count};
	size_t count = 0;
	if (sight_read(sight, map, words * sizeof(*map), node->row_map.words))
		count = bitmap_count(&used);
	process->apertures = calloc(count + 1, sizeof(*process->apertures));
	for (uint32_t row = 1; process->apertures != NULL && row < node->row_count; row++) {
		if (row % 64 == 0 && map[row / 64] == 0)
			row += 63;
		else if (bitmap_test(&used, row) &&
		         sight_row(sight, row, &process->apertures[process->count]))
			process->count++;
	}
	free(map);
	return process->apertures != NULL ? 0 : -HDL_ENOMEM;
}

/* --- ports --- */

static int port_by_number(const void *a, const void *b)
{
	const struct hdl_port_info *x = a, *y = b;
	return (x->number > y->number) - (x->number < y->number);
}

static int sight_ports(const struct sight *sight)
{
	struct hdl_aperture_process *process = sight->process;
	uint32_t most = sight->copy->port_count;
	if (most > HDL_MAX_PORTS)
		return 0;
	process->ports = calloc(most + 1, sizeof(*process->ports));
	struct ap_port *port = malloc(sizeof(*port));
	for (unsigned i = 0; process->ports != NULL && port != NULL && i < AP_HASH; i++)
		for (const struct ap_port *at = sight->copy->node.ports[i];
		     at != NULL && process->port_count < most &&
		     sight_read(sight, port, sizeof(*port), at);
		     at = port->hash_next)
			process->ports[process->port_count++] =
			        (struct hdl_port_info){.number = port->number,
			                               .rules = port->rule_count,
			                               .waiting = port->waiting_count,
			                               .offers = port->offer_count,
			                               .open = port->open,
			                               .rejected = port->rejected};
	bool enough = process->ports != NULL && port != NULL;
	free(port);
	if (enough)
		qsort(process->ports, process->port_count, sizeof(*process->ports), port_by_number);
	return enough ? 0 : -HDL_ENOMEM;
}

/* --- processes --- */

static int sight_tables(struct hdl_aperture_process *process, const struct tables_header *header,
                        uint64_t address)
{
	struct apertures *copy = aligned_alloc(64, (sizeof(*copy) + 63) & ~(size_t)63);
	struct sight sight = {
	        .header = header, .pid = process->pid, .copy = copy, .process = process};
	int result = copy != NULL ? 0 : -HDL_ENOMEM;
	process->seen = result == 0 && header->apertures_layout == OBSERVE_LAYOUT &&
	                observe_read(process->pid, header, copy, sizeof(*copy), address);
	if (process->seen) {
		process->trust = copy->trust;
		process->cluster = copy->node.lid;
		for (size_t i = 0; i < HDL_APERTURE_COUNTER_COUNT; i++)
			process->counters[i].value = aperture_counter(copy, i);
		result = sight_ports(&sight);
		if (result == 0)
			result = sight_rows(&sight);
	}
	free(copy);
	return result;
}

static int aperture_look_at(void *context, const struct agent_msg *msg, const struct tables *tables)
{
	struct aperture_list *found = context;
	uint64_t address = atomic_load(&tables->header->apertures_addr);
	if (address == 0)
		return 0; /* it has none */
	struct hdl_aperture_process *more =
	        realloc(found->list, (found->count + 1) * sizeof(*found->list));
	if (more == NULL)
		return -HDL_ENOMEM;
	found->list = more;
	struct hdl_aperture_process *process = &more[found->count++];
	*process = (struct hdl_aperture_process){.pid = msg->u.process.pid,
	                                         .slot = msg->u.process.slot};
	memcpy(process->node, msg->u.process.node, sizeof(process->node) - 1);
	memcpy(process->program, msg->u.process.program, sizeof(process->program) - 1);
	memcpy(process->gid.raw, msg->u.process.gid, sizeof(process->gid.raw));
	for (size_t i = 0; i < HDL_APERTURE_COUNTER_COUNT; i++)
		process->counters[i].name = aperture_counter_name(i);
	return sight_tables(process, tables->header, address);
}

int hdl_aperture_observe(struct hdl_aperture_process **list, size_t *count)
{
	struct aperture_list found = {0};
	if (list == NULL || count == NULL)
		return -HDL_EINVAL;
	int result = observe_each(aperture_look_at, &found);
	if (result != 0) {
		hdl_aperture_observe_free(found.list, found.count);
		found = (struct aperture_list){0};
	}
	*list = found.list;
	*count = found.count;
	return result;
}

void hdl_aperture_observe_free(struct hdl_aperture_process *list, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		free(list[i].apertures);
		free(list[i].ports);
	}
	free(list);
}
