/* IBC packets; see ibc.h. */
#include "wire/ibc.h"

#include <assert.h>
#include <string.h>

#include "base/crc.h"
#include "wire/be.h"

#define AT_DIRECTION 1u
#define AT_CHECK     28u
#define REVERSE_BIT  0x80u
#define POINTER_MASK 0x3fu

static size_t ibc_route_bytes(unsigned hops)
{
	return (hops + 1u + 3u) & ~(size_t)3;
}

static size_t ibc_padded(size_t bytes)
{
	return (bytes + 3u) & ~(size_t)3;
}

size_t ibc_bytes(const struct ibc_packet *packet)
{
	return IBC_HEADER_BYTES + ibc_route_bytes(packet->route.hops) +
	       ibc_padded(packet->payload_bytes) + IBC_CRC_BYTES;
}

/* The check of the header and route at @in, which has @hops ports. */
static uint32_t ibc_header_check(const uint8_t *in, unsigned hops)
{
	return crc32c_two(0, in, AT_CHECK, in + IBC_HEADER_BYTES, ibc_route_bytes(hops));
}

static uint32_t ibc_whole_crc(const uint8_t *in, const uint8_t *payload, size_t payload_bytes)
{
	uint32_t crc = crc32c(0, in, 1);
	return crc32c_two(crc, in + 2, AT_CHECK - 2, payload, payload_bytes);
}

/* Is @pointer within a route of @hops ports, or at its end? */
static bool ibc_judge_pointer(bool reverse, unsigned pointer, unsigned hops)
{
	return reverse ? pointer <= hops : pointer >= 1 && pointer <= hops + 1;
}

static enum ibc_verdict ibc_judge_route(const struct ibc_route *route)
{
	if (route->hops > IBC_MAX_HOPS)
		return IBC_WRONG_ROUTE;
	for (unsigned i = 0; i < route->hops; i++)
		if (route->ports[i] >= IBC_END_OF_ROUTE)
			return IBC_WRONG_ROUTE;
	return ibc_judge_pointer(route->reverse, route->pointer, route->hops) ? IBC_OK
	                                                                      : IBC_WRONG_POINTER;
}

static enum ibc_verdict ibc_judge_fields(unsigned type, unsigned reason, unsigned source_apid,
                                         unsigned dest_apid)
{
	if (type < IBC_TYPE_READ_REQUEST || type >= IBC_TYPE_COUNT)
		return IBC_WRONG_TYPE;
	if (type == IBC_TYPE_NACK ? reason == IBC_REASON_NONE || reason >= IBC_REASON_COUNT
	                          : reason != IBC_REASON_NONE)
		return IBC_WRONG_REASON;
	return source_apid > 63 || dest_apid > 63 ? IBC_WRONG_APID : IBC_OK;
}

static enum ibc_verdict ibc_judge(const struct ibc_packet *packet)
{
	enum ibc_verdict verdict = ibc_judge_fields(packet->type, packet->reason,
	                                            packet->source_apid, packet->dest_apid);
	return verdict != IBC_OK ? verdict : ibc_judge_route(&packet->route);
}

static void ibc_put_route(uint8_t *out, const struct ibc_route *route)
{
	uint8_t *ports = out + IBC_HEADER_BYTES;
	memset(ports, 0, ibc_route_bytes(route->hops));
	memcpy(ports, route->ports, route->hops);
	ports[route->hops] = IBC_END_OF_ROUTE;
	out[AT_DIRECTION] = (uint8_t)((route->reverse ? REVERSE_BIT : 0) | route->pointer);
	be32_store(out + AT_CHECK, ibc_header_check(out, route->hops));
}

size_t ibc_encode(const struct ibc_packet *packet, uint8_t *out, size_t capacity)
{
	if (ibc_judge(packet) != IBC_OK || packet->payload_bytes > IBC_MAX_PAYLOAD ||
	    ibc_bytes(packet) > capacity)
		return 0;
	out[0] = (uint8_t)(IBC_VERSION << 4 | packet->type);
	out[2] = packet->route.hops;
	out[3] = (uint8_t)packet->reason;
	out[4] = packet->source_apid;
	out[5] = packet->dest_apid;
	be16_store(out + 6, packet->payload_bytes);
	be64_store(out + 8, packet->dest_node);
	be64_store(out + 16, packet->guid);
	be32_store(out + 24, packet->transaction);
	ibc_put_route(out, &packet->route);
	uint8_t *payload = out + IBC_HEADER_BYTES + ibc_route_bytes(packet->route.hops);
	size_t room = ibc_padded(packet->payload_bytes);
	if (packet->payload_bytes > 0)
		memcpy(payload, packet->payload, packet->payload_bytes);
	memset(payload + packet->payload_bytes, 0, room - packet->payload_bytes);
	be32_store(payload + room, ibc_whole_crc(out, payload, packet->payload_bytes));
	return ibc_bytes(packet);
}

static bool ibc_all_zero(const uint8_t *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (bytes[i] != 0)
			return false;
	return true;
}

/* The ports at @in, and the end mark and zeroes behind them. */
static bool ibc_judge_ports(const uint8_t *in, unsigned hops)
{
	for (unsigned i = 0; i < hops; i++)
		if (in[i] >= IBC_END_OF_ROUTE)
			return false;
	return in[hops] == IBC_END_OF_ROUTE &&
	       ibc_all_zero(in + hops + 1, ibc_route_bytes(hops) - hops - 1);
}

enum ibc_verdict ibc_judge_header(const uint8_t *in, size_t bytes)
{
	if (bytes < IBC_HEADER_BYTES + ibc_route_bytes(0) + IBC_CRC_BYTES)
		return IBC_TOO_SHORT;
	if (in[0] >> 4 != IBC_VERSION)
		return IBC_WRONG_VERSION;
	unsigned hops = in[2], payload_bytes = be16_load(in + 6);
	if (payload_bytes > IBC_MAX_PAYLOAD ||
	    IBC_HEADER_BYTES + ibc_route_bytes(hops) + ibc_padded(payload_bytes) + IBC_CRC_BYTES !=
	            bytes)
		return IBC_WRONG_LENGTH;
	if (be32_load(in + AT_CHECK) != ibc_header_check(in, hops))
		return IBC_WRONG_CHECK;
	if ((in[AT_DIRECTION] & ~(REVERSE_BIT | POINTER_MASK)) != 0 ||
	    !ibc_judge_ports(in + IBC_HEADER_BYTES, hops))
		return IBC_WRONG_ROUTE;
	enum ibc_verdict verdict = ibc_judge_fields(in[0] & 0xf, in[3], in[4], in[5]);
	if (verdict != IBC_OK)
		return verdict;
	if (hops > IBC_MAX_HOPS)
		return IBC_TOO_MANY_HOPS;
	return ibc_judge_pointer(ibc_is_reverse(in), ibc_pointer(in), hops) ? IBC_OK
	                                                                    : IBC_WRONG_POINTER;
}

/* Everything but the route and the payload. */
static void ibc_load_fields(struct ibc_packet *packet, const uint8_t *in)
{
	packet->type = in[0] & 0xf;
	packet->reason = in[3];
	packet->source_apid = in[4];
	packet->dest_apid = in[5];
	packet->dest_node = be64_load(in + 8);
	packet->guid = be64_load(in + 16);
	packet->transaction = be32_load(in + 24);
}

bool ibc_salvage(struct ibc_packet *packet, const uint8_t *in)
{
	bool reverse = ibc_is_reverse(in);
	unsigned hops = in[2], pointer = ibc_pointer(in);
	/* Forward, ports 1 to pointer - 1 have been used; in reverse, pointer + 1 to hops. */
	unsigned first = reverse ? pointer : 0;
	unsigned last = reverse || pointer > hops ? hops : pointer == 0 ? 0 : pointer - 1;
	unsigned used = first < last ? last - first : 0;
	if (used > IBC_MAX_HOPS)
		return false;
	ibc_load_fields(packet, in);
	packet->payload = NULL;
	packet->payload_bytes = 0;
	packet->route = (struct ibc_route){.reverse = reverse,
	                                   .pointer = (uint8_t)(reverse ? 0 : used + 1),
	                                   .hops = (uint8_t)used};
	memcpy(packet->route.ports, in + IBC_HEADER_BYTES + first, used);
	return true;
}

enum ibc_verdict ibc_decode_header(struct ibc_packet *packet, const uint8_t *in, size_t bytes)
{
	enum ibc_verdict verdict = ibc_judge_header(in, bytes);
	if (verdict != IBC_OK)
		return verdict;
	ibc_load_fields(packet, in);
	packet->payload_bytes = be16_load(in + 6);
	packet->route = (struct ibc_route){
	        .reverse = ibc_is_reverse(in), .pointer = ibc_pointer(in), .hops = in[2]};
	memcpy(packet->route.ports, in + IBC_HEADER_BYTES, in[2]);
	packet->payload = in + IBC_HEADER_BYTES + ibc_route_bytes(in[2]);
	return IBC_OK;
}

enum ibc_verdict ibc_decode(struct ibc_packet *packet, const uint8_t *in, size_t bytes)
{
	struct ibc_packet found;
	enum ibc_verdict verdict = ibc_decode_header(&found, in, bytes);
	if (verdict != IBC_OK)
		return verdict;
	size_t room = ibc_padded(found.payload_bytes);
	if (!ibc_all_zero(found.payload + found.payload_bytes, room - found.payload_bytes) ||
	    be32_load(found.payload + room) !=
	            ibc_whole_crc(in, found.payload, found.payload_bytes))
		return IBC_WRONG_CRC;
	*packet = found;
	return IBC_OK;
}

void ibc_rewrite(uint8_t *bytes, const struct ibc_route *route)
{
	assert(bytes[2] == route->hops && ibc_judge_route(route) == IBC_OK);
	ibc_put_route(bytes, route);
}

void ibc_replace_port(uint8_t *bytes, uint8_t port, uint8_t pointer)
{
	assert(ibc_pointer(bytes) >= 1 && ibc_pointer(bytes) <= bytes[2]);
	bytes[IBC_HEADER_BYTES + ibc_pointer(bytes) - 1u] = port;
	bytes[AT_DIRECTION] = (uint8_t)((bytes[AT_DIRECTION] & REVERSE_BIT) | pointer);
	be32_store(bytes + AT_CHECK, ibc_header_check(bytes, bytes[2]));
}
