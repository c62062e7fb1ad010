/* InfiniBand packets in lanes: reliable datagrams between processes of one machine. A context
 * (transport/ib/rd.h) sends the packets that it would send on a network, and each is the body of a
 * frame (transport/local/frame.h). So everything that reliable datagrams do, and every way in which
 * they fail, is the same code in both cases; docs/adr/0226 has the reasons. Other services have
 * frames of their own, and their packets are not accepted here. */
#include <assert.h>
#include <string.h>

#include "adapter/adapter.h"
#include "transport/ib/ib.h"
#include "transport/local/frame.h"

/* The lane of @path, if the process that it led to is still there. */
static struct link *packets_link(struct hdl_adapter *adapter, const struct path *path)
{
	if (path->lane.link >= adapter->engine.link_count)
		return NULL;
	struct link *link = &adapter->engine.links[path->lane.link];
	return link->up && link->epoch == path->lane.epoch ? link : NULL;
}

static uint8_t *packets_reserve(void *context, const struct path *path, size_t bytes)
{
	struct hdl_adapter *adapter = context;
	struct lane_packets *packets = &adapter->peers.packets;
	assert(path->kind == PATH_LANE && bytes <= FRAME_MAX_PACKET);
	/* To nobody: it is lost, as on a network. */
	if (packets_link(adapter, path) == NULL) {
		packets->record = NULL;
		return packets->scratch;
	}
	packets->record =
	        engine_reserve(&adapter->engine, path->lane.link, sizeof(struct frame) + bytes);
	packets->bytes = bytes;
	return packets->record != NULL ? packets->record + sizeof(struct frame) : NULL;
}

static void packets_commit(void *context, const struct path *path, size_t bytes)
{
	struct hdl_adapter *adapter = context;
	struct lane_packets *packets = &adapter->peers.packets;
	struct frame frame = {.kind = FRAME_PACKET, .length = (uint32_t)bytes};
	if (packets->record == NULL)
		return;
	assert(bytes == packets->bytes);
	memcpy(packets->record, &frame, sizeof(frame));
	engine_publish(&adapter->engine, path->lane.link);
}

/* The engine rings the bells at the end of its turn. */
static void packets_flush(void *context)
{
	(void)context;
}

void packets_begin(struct hdl_adapter *adapter)
{
	adapter->peers.packets.carrier = (struct carrier){.reserve = packets_reserve,
	                                                  .commit = packets_commit,
	                                                  .flush = packets_flush,
	                                                  .context = adapter};
	adapter->engine.carriers[ENGINE_LANES_PORT] = &adapter->peers.packets.carrier;
}

struct path packets_path(const struct hdl_adapter *adapter, const struct hdl_ah_attr *ah,
                         uint32_t number)
{
	struct hdl_gid to = adapter_address(ah);
	uint32_t index = adapter_find_link(adapter, &to, number);
	struct path path = {.kind = PATH_LANE, .port = ENGINE_LANES_PORT, .sl = ah->sl};
	path.lane.link = index;
	path.lane.epoch = index != LINK_NONE ? adapter->engine.links[index].epoch : 0;
	/* For captures. */
	uint8_t own = ah->sgid_index < adapter->gid_count ? ah->sgid_index : 0;
	path.lane.ip.src_port = UDP_FIRST_SOURCE_PORT;
	path.lane.ip.traffic_class = ah->traffic_class;
	path.lane.ip.hop_limit = ah->hop_limit;
	path.lane.ip.flow_label = ah->flow_label;
	memcpy(path.lane.ip.sgid, adapter->gids[own].raw, sizeof(path.lane.ip.sgid));
	memcpy(path.lane.ip.dgid, to.raw, sizeof(path.lane.ip.dgid));
	return path;
}

void packets_take(struct hdl_adapter *adapter, uint32_t index, const uint8_t *body, size_t bytes)
{
	struct engine *engine = &adapter->engine;
	const struct link *link = &engine->links[index];
	struct path path = {.kind = PATH_LANE, .port = ENGINE_LANES_PORT};
	struct ib_packet packet;
	/* The peer may change the lane at any time; the copy is judged and executed. */
	uint8_t copy[FRAME_MAX_PACKET];
	assert(bytes <= sizeof(copy)); /* pairs with is_well_formed() (local/rx.c) */
	memcpy(copy, body, bytes);
	ib_packet_clear(&packet);
	if (ib_transport_decode(&packet, copy, bytes) != IB_OK || packet.op->transport != IB_RD) {
		counter_add(&engine->counters[ENGINE_BAD_FRAMES], 1);
		return;
	}
	path.lane.link = index;
	path.lane.epoch = link->epoch;
	path.lane.ip.src_port = UDP_FIRST_SOURCE_PORT;
	memcpy(path.lane.ip.sgid, link->gid.raw, sizeof(path.lane.ip.sgid));
	memcpy(path.lane.ip.dgid, engine->gid.raw, sizeof(path.lane.ip.dgid));
	ib_take(engine, &path, false, &packet);
}
