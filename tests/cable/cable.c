/* A carrier that hands its packets to a test. */
#include "cable.h"

#include <assert.h>
#include <string.h>

#include "wire/be.h"

#define CABLE_CELL 2u

static uint8_t *reserve(void *context, const struct path *path, size_t bytes)
{
	struct cable *cable = context;
	(void)path;
	assert(bytes + IB_ICRC_BYTES <= sizeof(cable->packet));
	return cable->room == NULL || cable->room(cable->context) ? cable->packet : NULL;
}

static void commit(void *context, const struct path *path, size_t bytes)
{
	struct cable *cable = context;
	assert(bytes + IB_ICRC_BYTES <= sizeof(cable->packet));
	if (path->kind == PATH_CELL) { /* which has its own CRC */
		cable->out(cable->context, path, cable->packet, bytes);
		return;
	}
	roce_udp_seal(&path->ip, cable->packet, bytes);
	cable->out(cable->context, path, cable->packet, bytes + IB_ICRC_BYTES);
}

static void flush(void *context)
{
	(void)context;
}

void cable_init(struct cable *cable,
                void (*out)(void *context, const struct path *path, const uint8_t *payload,
                            size_t bytes),
                bool (*room)(void *context), void *context)
{
	*cable = (struct cable){
	        .carrier = {.reserve = reserve, .commit = commit, .flush = flush, .context = cable},
	        .out = out,
	        .room = room,
	        .context = context};
}

size_t cable_pack(uint8_t *out, const struct path *path, const uint8_t *payload, size_t bytes)
{
	const struct roce_path *ip = &path->ip;
	memcpy(out, ip->sgid, 16);
	memcpy(out + 16, ip->dgid, 16);
	be16_store(out + 32, ip->src_port);
	be16_store(out + 34, ip->ip_id);
	be32_store(out + 36, ip->flow_label);
	out[40] = ip->traffic_class;
	out[41] = ip->hop_limit;
	out[42] = (uint8_t)(ip->dont_fragment | (path->kind == PATH_CELL ? CABLE_CELL : 0));
	out[43] = ip->udp_checksum;
	memcpy(out + CABLE_PATH_BYTES, payload, bytes);
	return CABLE_PATH_BYTES + bytes;
}

bool cable_unpack(const uint8_t *in, size_t bytes, struct path *came, const uint8_t **payload,
                  size_t *payload_bytes)
{
	if (bytes < CABLE_PATH_BYTES)
		return false;
	*came = (struct path){.kind = in[42] & CABLE_CELL ? PATH_CELL : PATH_ROCE};
	struct roce_path *ip = &came->ip;
	memcpy(ip->sgid, in, 16);
	memcpy(ip->dgid, in + 16, 16);
	ip->src_port = be16_load(in + 32);
	ip->ip_id = be16_load(in + 34);
	ip->flow_label = be32_load(in + 36) & 0xfffff;
	ip->traffic_class = in[40];
	ip->hop_limit = in[41];
	ip->dont_fragment = in[42] & 1;
	ip->udp_checksum = in[43] & 1;
	*payload = in + CABLE_PATH_BYTES;
	*payload_bytes = bytes - CABLE_PATH_BYTES;
	return true;
}
