/* RoCEv2 datagrams and UDP payloads. See roce.h. */
#include "wire/roce.h"

#include <string.h>

#include "wire/be.h"
#include "wire/icrc.h"
#include "wire/ip_headers.h"

#define MAX_NETWORK_BYTES (IPV6_BYTES + UDP_BYTES)
#define IPV4_ID_OFFSET    4u

static const uint8_t ipv4_prefix[12] = {[10] = 0xff, [11] = 0xff};

bool roce_gid_is_ipv4(const uint8_t *gid)
{
	return memcmp(gid, ipv4_prefix, sizeof(ipv4_prefix)) == 0;
}

void roce_gid_from_ipv4(uint8_t *gid, uint32_t addr)
{
	memcpy(gid, ipv4_prefix, sizeof(ipv4_prefix));
	be32_store(gid + sizeof(ipv4_prefix), addr);
}

static bool path_is_ipv4(const struct roce_path *path)
{
	return roce_gid_is_ipv4(path->sgid);
}

static struct ipv4_header path_ipv4(const struct roce_path *path, size_t udp_bytes)
{
	return (struct ipv4_header){
	        .tos = path->traffic_class,
	        .total_bytes = (uint16_t)(IPV4_BYTES + udp_bytes),
	        .id = path->ip_id,
	        .dont_fragment = path->dont_fragment,
	        .ttl = path->hop_limit,
	        .protocol = IP_PROTO_UDP,
	        .src = be32_load(path->sgid + sizeof(ipv4_prefix)),
	        .dst = be32_load(path->dgid + sizeof(ipv4_prefix)),
	};
}

static struct ipv6_header path_ipv6(const struct roce_path *path, size_t udp_bytes)
{
	struct ipv6_header ip = {
	        .traffic_class = path->traffic_class,
	        .flow_label = path->flow_label,
	        .payload_bytes = (uint16_t)udp_bytes,
	        .next_header = IP_PROTO_UDP,
	        .hop_limit = path->hop_limit,
	};
	memcpy(ip.src, path->sgid, IB_GID_BYTES);
	memcpy(ip.dst, path->dgid, IB_GID_BYTES);
	return ip;
}

/* IP and UDP headers for a UDP datagram of @udp_bytes, UDP checksum 0. */
static size_t network_encode(const struct roce_path *path, size_t udp_bytes, uint8_t *out)
{
	size_t ip_bytes;
	if (path_is_ipv4(path)) {
		struct ipv4_header ip = path_ipv4(path, udp_bytes);
		ipv4_encode(&ip, out);
		ip_bytes = IPV4_BYTES;
	} else {
		struct ipv6_header ip = path_ipv6(path, udp_bytes);
		ipv6_encode(&ip, out);
		ip_bytes = IPV6_BYTES;
	}
	struct udp_header udp = {.src_port = path->src_port,
	                         .dst_port = ROCE_UDP_PORT,
	                         .length_bytes = (uint16_t)udp_bytes};
	udp_encode(&udp, out + ip_bytes);
	return ip_bytes + UDP_BYTES;
}

uint32_t roce_icrc_seed(const struct roce_path *path, size_t udp_payload_bytes)
{
	uint8_t headers[MAX_NETWORK_BYTES];
	network_encode(path, UDP_BYTES + udp_payload_bytes, headers);
	return path_is_ipv4(path) ? icrc_seed_ipv4(headers) : icrc_seed_ipv6(headers);
}

void roce_udp_seal(const struct roce_path *path, uint8_t *packet, size_t bytes)
{
	uint32_t seed = roce_icrc_seed(path, bytes + IB_ICRC_BYTES);
	icrc_put(packet + bytes, icrc_transport(seed, packet, bytes));
}

size_t roce_udp_encode(const struct roce_path *path, const struct ib_packet *packet, uint8_t *out,
                       size_t capacity)
{
	if (capacity > UINT16_MAX - MAX_NETWORK_BYTES)
		capacity = UINT16_MAX - MAX_NETWORK_BYTES;
	if (capacity < IB_ICRC_BYTES)
		return 0;
	size_t bytes = ib_transport_encode(packet, out, capacity - IB_ICRC_BYTES);
	if (bytes == 0)
		return 0;
	roce_udp_seal(path, out, bytes);
	return bytes + IB_ICRC_BYTES;
}

enum ib_verdict roce_udp_decode_seeded(struct roce_path *path, uint32_t seed,
                                       struct ib_packet *packet, const uint8_t *in, size_t bytes)
{
	ib_packet_clear(packet);
	if (bytes < IB_BTH_BYTES + IB_ICRC_BYTES)
		return IB_TRUNCATED;
	if (bytes > UINT16_MAX - MAX_NETWORK_BYTES)
		return IB_BAD_LINK_LENGTH;
	size_t covered = bytes - IB_ICRC_BYTES;
	uint32_t received = icrc_get(in + covered);
	uint32_t computed = icrc_transport(seed, in, covered);
	if (received != computed) {
		/* Solve for the difference of the two identifications, as if from 0. */
		uint16_t difference;
		size_t behind = IPV4_BYTES - IPV4_ID_OFFSET - 2 + UDP_BYTES + covered;
		if (!path_is_ipv4(path) ||
		    !icrc_solve_ip_id(computed, received, behind, &difference))
			return IB_BAD_ICRC;
		path->ip_id ^= difference;
	}
	return ib_transport_decode(packet, in, covered);
}

enum ib_verdict roce_udp_decode(struct roce_path *path, struct ib_packet *packet, const uint8_t *in,
                                size_t bytes)
{
	return roce_udp_decode_seeded(path, roce_icrc_seed(path, bytes), packet, in, bytes);
}

size_t roce_frame_encode(const struct roce_path *path, const struct ib_packet *packet, uint8_t *out,
                         size_t capacity)
{
	if (capacity > UINT16_MAX)
		capacity = UINT16_MAX;
	if (capacity < IB_GRH_BYTES + IB_ICRC_BYTES)
		return 0;
	size_t bytes = ib_transport_encode(packet, out + IB_GRH_BYTES,
	                                   capacity - IB_GRH_BYTES - IB_ICRC_BYTES);
	if (bytes == 0)
		return 0;
	struct ib_grh grh = {.version = 6,
	                     .traffic_class = path->traffic_class,
	                     .flow_label = path->flow_label,
	                     .payload_bytes = (uint16_t)(bytes + IB_ICRC_BYTES),
	                     .next_header = IB_GRH_NEXT_HEADER,
	                     .hop_limit = path->hop_limit};
	memcpy(grh.sgid, path->sgid, sizeof(grh.sgid));
	memcpy(grh.dgid, path->dgid, sizeof(grh.dgid));
	ib_grh_encode(&grh, out);
	icrc_put(out + IB_GRH_BYTES + bytes,
	         icrc_transport(icrc_seed_grh(out), out + IB_GRH_BYTES, bytes));
	return IB_GRH_BYTES + bytes + IB_ICRC_BYTES;
}

enum ib_verdict roce_frame_decode(struct roce_path *path, struct ib_packet *packet,
                                  const uint8_t *in, size_t bytes)
{
	struct ib_grh grh;
	ib_packet_clear(packet);
	if (bytes < IB_GRH_BYTES + IB_BTH_BYTES + IB_ICRC_BYTES)
		return IB_TRUNCATED;
	ib_grh_decode(&grh, in);
	if (grh.version != 6)
		return IB_BAD_LINK_VERSION;
	if (grh.next_header != IB_GRH_NEXT_HEADER)
		return IB_BAD_NEXT_HEADER;
	if (grh.payload_bytes < IB_BTH_BYTES + IB_ICRC_BYTES ||
	    grh.payload_bytes > bytes - IB_GRH_BYTES)
		return IB_BAD_LINK_LENGTH;
	size_t covered = grh.payload_bytes - IB_ICRC_BYTES;
	const uint8_t *bth = in + IB_GRH_BYTES;
	if (icrc_get(bth + covered) != icrc_transport(icrc_seed_grh(in), bth, covered))
		return IB_BAD_ICRC;
	*path = (struct roce_path){.traffic_class = grh.traffic_class,
	                           .hop_limit = grh.hop_limit,
	                           .flow_label = grh.flow_label};
	memcpy(path->sgid, grh.sgid, sizeof(path->sgid));
	memcpy(path->dgid, grh.dgid, sizeof(path->dgid));
	return ib_transport_decode(packet, bth, covered);
}

size_t roce_encode(const struct roce_path *path, const struct ib_packet *packet, uint8_t *out,
                   size_t capacity)
{
	bool ipv4 = path_is_ipv4(path);
	size_t network = (ipv4 ? IPV4_BYTES : IPV6_BYTES) + UDP_BYTES;
	if (ipv4 != roce_gid_is_ipv4(path->dgid) || capacity < network)
		return 0;
	uint8_t *udp = out + network - UDP_BYTES;
	size_t payload = roce_udp_encode(path, packet, out + network, capacity - network);
	if (payload == 0)
		return 0;
	size_t udp_bytes = UDP_BYTES + payload;
	network_encode(path, udp_bytes, out);
	if (path->udp_checksum && ipv4) {
		struct ipv4_header ip = path_ipv4(path, udp_bytes);
		be16_store(udp + 6, udp_checksum_ipv4(&ip, udp, udp_bytes));
	} else if (path->udp_checksum) {
		struct ipv6_header ip = path_ipv6(path, udp_bytes);
		be16_store(udp + 6, udp_checksum_ipv6(&ip, udp, udp_bytes));
	}
	return network + payload;
}

static enum ib_verdict verdict_of(enum ip_verdict verdict)
{
	switch (verdict) {
	case IP_OK:
		return IB_OK;
	case IP_TRUNCATED:
		return IB_TRUNCATED;
	case IP_BAD_VERSION:
		return IB_BAD_LINK_VERSION;
	case IP_OPTIONS:
		return IB_BAD_NEXT_HEADER;
	case IP_BAD_CHECKSUM:
		return IB_BAD_IP_CHECKSUM;
	case IP_FRAGMENT:
		return IB_BAD_FRAGMENT;
	case IP_BAD_LENGTH:
		break;
	}
	return IB_BAD_LINK_LENGTH;
}

/* Check the UDP datagram. @checksum is what its checksum should be. */
static enum ib_verdict udp_judge(struct roce_path *path, const uint8_t *in, size_t bytes,
                                 uint16_t checksum)
{
	struct udp_header udp;
	enum ip_verdict verdict = udp_decode(&udp, in, bytes);
	if (verdict != IP_OK)
		return verdict_of(verdict);
	if (udp.dst_port != ROCE_UDP_PORT)
		return IB_BAD_NEXT_HEADER;
	path->src_port = udp.src_port;
	path->udp_checksum = udp.checksum != 0;
	return udp.checksum == 0 || udp.checksum == checksum ? IB_OK : IB_BAD_IP_CHECKSUM;
}

static enum ib_verdict ipv4_judge(struct roce_path *path, const uint8_t *in, size_t bytes,
                                  size_t *udp_bytes)
{
	struct ipv4_header ip;
	enum ip_verdict verdict = ipv4_decode(&ip, in, bytes);
	if (verdict != IP_OK)
		return verdict_of(verdict);
	if (ip.protocol != IP_PROTO_UDP)
		return IB_BAD_NEXT_HEADER;
	*udp_bytes = ip.total_bytes - IPV4_BYTES;
	if (*udp_bytes < UDP_BYTES)
		return IB_BAD_LINK_LENGTH;
	roce_gid_from_ipv4(path->sgid, ip.src);
	roce_gid_from_ipv4(path->dgid, ip.dst);
	path->ip_id = ip.id;
	path->dont_fragment = ip.dont_fragment;
	path->traffic_class = ip.tos;
	path->hop_limit = ip.ttl;
	path->flow_label = 0;
	const uint8_t *udp = in + IPV4_BYTES;
	return udp_judge(path, udp, *udp_bytes, udp_checksum_ipv4(&ip, udp, *udp_bytes));
}

static enum ib_verdict ipv6_judge(struct roce_path *path, const uint8_t *in, size_t bytes,
                                  size_t *udp_bytes)
{
	struct ipv6_header ip;
	enum ip_verdict verdict = ipv6_decode(&ip, in, bytes);
	if (verdict != IP_OK)
		return verdict_of(verdict);
	if (ip.next_header != IP_PROTO_UDP)
		return IB_BAD_NEXT_HEADER;
	/* A mapped IPv4 address must not be on the wire, and its GID would be mistaken for an IPv4
	 * path. */
	if (roce_gid_is_ipv4(ip.src) || roce_gid_is_ipv4(ip.dst))
		return IB_BAD_NEXT_HEADER;
	*udp_bytes = ip.payload_bytes;
	if (*udp_bytes < UDP_BYTES)
		return IB_BAD_LINK_LENGTH;
	memcpy(path->sgid, ip.src, IB_GID_BYTES);
	memcpy(path->dgid, ip.dst, IB_GID_BYTES);
	path->ip_id = 0;
	path->dont_fragment = false;
	path->traffic_class = ip.traffic_class;
	path->hop_limit = ip.hop_limit;
	path->flow_label = ip.flow_label;
	const uint8_t *udp = in + IPV6_BYTES;
	return udp_judge(path, udp, *udp_bytes, udp_checksum_ipv6(&ip, udp, *udp_bytes));
}

enum ib_verdict roce_decode(struct roce_path *path, struct ib_packet *packet, const uint8_t *in,
                            size_t bytes)
{
	ib_packet_clear(packet);
	if (bytes == 0)
		return IB_TRUNCATED;
	bool ipv4 = in[0] >> 4 == 4;
	size_t network = (ipv4 ? IPV4_BYTES : IPV6_BYTES) + UDP_BYTES;
	size_t udp_bytes = 0;
	enum ib_verdict verdict = ipv4 ? ipv4_judge(path, in, bytes, &udp_bytes)
	                               : ipv6_judge(path, in, bytes, &udp_bytes);
	if (verdict != IB_OK)
		return verdict;
	size_t payload = udp_bytes - UDP_BYTES;
	if (payload < IB_BTH_BYTES + IB_ICRC_BYTES)
		return IB_TRUNCATED;
	size_t covered = payload - IB_ICRC_BYTES;
	uint32_t seed = ipv4 ? icrc_seed_ipv4(in) : icrc_seed_ipv6(in);
	if (icrc_get(in + network + covered) != icrc_transport(seed, in + network, covered))
		return IB_BAD_ICRC;
	return ib_transport_decode(packet, in + network, covered);
}
