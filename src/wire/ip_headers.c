/* IPv4, IPv6 and UDP headers. See ip_headers.h. */
#include "wire/ip_headers.h"

#include <string.h>

#include "wire/be.h"

#define IPV4_DONT_FRAGMENT 0x4000u

/* RFC 1071: the sum of 16-bit words, folded by sum_fold(). An odd last byte counts as if followed
 * by a zero. */
static uint64_t sum_words(uint64_t sum, const uint8_t *in, size_t bytes)
{
	size_t i = 0;
	for (; i + 1 < bytes; i += 2)
		sum += be16_load(in + i);
	if (i < bytes)
		sum += (uint64_t)in[i] << 8;
	return sum;
}

static uint16_t sum_fold(uint64_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

static uint16_t ipv4_checksum(const uint8_t *header)
{
	uint64_t sum = sum_words(0, header, 10);
	return (uint16_t)~sum_fold(sum_words(sum, header + 12, IPV4_BYTES - 12));
}

void ipv4_encode(const struct ipv4_header *h, uint8_t *out)
{
	out[0] = 0x45;
	out[1] = h->tos;
	be16_store(out + 2, h->total_bytes);
	be16_store(out + 4, h->id);
	be16_store(out + 6, h->dont_fragment ? IPV4_DONT_FRAGMENT : 0);
	out[8] = h->ttl;
	out[9] = h->protocol;
	be32_store(out + 12, h->src);
	be32_store(out + 16, h->dst);
	be16_store(out + 10, ipv4_checksum(out));
}

enum ip_verdict ipv4_decode(struct ipv4_header *h, const uint8_t *in, size_t bytes)
{
	if (bytes < IPV4_BYTES)
		return IP_TRUNCATED;
	if (in[0] >> 4 != 4)
		return IP_BAD_VERSION;
	if ((in[0] & 0xf) != IPV4_BYTES / 4)
		return IP_OPTIONS;
	if (be16_load(in + 10) != ipv4_checksum(in))
		return IP_BAD_CHECKSUM;
	uint16_t flags_and_offset = be16_load(in + 6);
	if (flags_and_offset & ~IPV4_DONT_FRAGMENT)
		return IP_FRAGMENT;
	h->tos = in[1];
	h->total_bytes = be16_load(in + 2);
	h->id = be16_load(in + 4);
	h->dont_fragment = flags_and_offset != 0;
	h->ttl = in[8];
	h->protocol = in[9];
	h->src = be32_load(in + 12);
	h->dst = be32_load(in + 16);
	if (h->total_bytes < IPV4_BYTES)
		return IP_BAD_LENGTH;
	return h->total_bytes > bytes ? IP_TRUNCATED : IP_OK;
}

void ipv6_encode(const struct ipv6_header *h, uint8_t *out)
{
	be32_store(out, 6u << 28 | (uint32_t)h->traffic_class << 20 | (h->flow_label & 0xfffff));
	be16_store(out + 4, h->payload_bytes);
	out[6] = h->next_header;
	out[7] = h->hop_limit;
	memcpy(out + 8, h->src, 16);
	memcpy(out + 24, h->dst, 16);
}

enum ip_verdict ipv6_decode(struct ipv6_header *h, const uint8_t *in, size_t bytes)
{
	if (bytes < IPV6_BYTES)
		return IP_TRUNCATED;
	uint32_t first = be32_load(in);
	if (first >> 28 != 6)
		return IP_BAD_VERSION;
	h->traffic_class = (uint8_t)(first >> 20);
	h->flow_label = first & 0xfffff;
	h->payload_bytes = be16_load(in + 4);
	h->next_header = in[6];
	h->hop_limit = in[7];
	memcpy(h->src, in + 8, 16);
	memcpy(h->dst, in + 24, 16);
	return h->payload_bytes > bytes - IPV6_BYTES ? IP_TRUNCATED : IP_OK;
}

void udp_encode(const struct udp_header *h, uint8_t *out)
{
	be16_store(out, h->src_port);
	be16_store(out + 2, h->dst_port);
	be16_store(out + 4, h->length_bytes);
	be16_store(out + 6, h->checksum);
}

enum ip_verdict udp_decode(struct udp_header *h, const uint8_t *in, size_t bytes)
{
	if (bytes < UDP_BYTES)
		return IP_TRUNCATED;
	h->src_port = be16_load(in);
	h->dst_port = be16_load(in + 2);
	h->length_bytes = be16_load(in + 4);
	h->checksum = be16_load(in + 6);
	return h->length_bytes == bytes ? IP_OK : IP_BAD_LENGTH;
}

void tcp_encode(const struct tcp_header *h, uint8_t *out)
{
	be16_store(out, h->src_port);
	be16_store(out + 2, h->dst_port);
	be32_store(out + 4, h->seq);
	be32_store(out + 8, h->ack);
	out[12] = TCP_BYTES / 4 << 4;
	out[13] = h->flags;
	be16_store(out + 14, h->window);
	be16_store(out + 16, h->checksum);
	be16_store(out + 18, 0);
}

static uint64_t pseudo_ipv4(const struct ipv4_header *ip)
{
	return (uint64_t)(ip->src >> 16) + (ip->src & 0xffff) + (ip->dst >> 16) +
	       (ip->dst & 0xffff);
}

static uint64_t pseudo_ipv6(const struct ipv6_header *ip)
{
	return sum_words(sum_words(0, ip->src, 16), ip->dst, 16);
}

static uint16_t udp_checksum(uint64_t pseudo, const uint8_t *udp, size_t bytes)
{
	uint64_t sum = sum_words(pseudo + IP_PROTO_UDP + bytes, udp, 6);
	uint16_t checksum = (uint16_t)~sum_fold(sum_words(sum, udp + UDP_BYTES, bytes - UDP_BYTES));
	return checksum ? checksum : 0xffff;
}

uint16_t udp_checksum_ipv4(const struct ipv4_header *ip, const uint8_t *udp, size_t bytes)
{
	return udp_checksum(pseudo_ipv4(ip), udp, bytes);
}

uint16_t udp_checksum_ipv6(const struct ipv6_header *ip, const uint8_t *udp, size_t bytes)
{
	return udp_checksum(pseudo_ipv6(ip), udp, bytes);
}

static uint16_t tcp_checksum(uint64_t pseudo, const uint8_t *tcp, size_t bytes)
{
	uint64_t sum = sum_words(pseudo + IP_PROTO_TCP + bytes, tcp, 16);
	return (uint16_t)~sum_fold(sum_words(sum, tcp + 18, bytes - 18));
}

uint16_t tcp_checksum_ipv4(const struct ipv4_header *ip, const uint8_t *tcp, size_t bytes)
{
	return tcp_checksum(pseudo_ipv4(ip), tcp, bytes);
}

uint16_t tcp_checksum_ipv6(const struct ipv6_header *ip, const uint8_t *tcp, size_t bytes)
{
	return tcp_checksum(pseudo_ipv6(ip), tcp, bytes);
}
