/* See segment.h. */
#include "tap/segment.h"

#include <linux/virtio_net.h>
#include <string.h>

#include <heddle/push.h>

#include "tap/lan.h"
#include "wire/be.h"

#define GSO_UDP 5u /* VIRTIO_NET_HDR_GSO_UDP_L4, which older headers lack */

enum {
	ETHER_BYTES = 14,
	TAG_BYTES = 4,
	MAX_TAGS = 2,
	IP4_BYTES = 20,
	IP6_BYTES = 40,
	TCP_BYTES = 20,
	UDP_BYTES = 8,
	TCP_FIN = 1,
	TCP_PSH = 8,
	TCP_CWR = 128,
	PROTOCOL_TCP = 6,
	PROTOCOL_UDP = 17
};

static struct virtio_net_hdr header_of(const uint8_t *frame)
{
	struct virtio_net_hdr header;
	memcpy(&header, frame, sizeof(header));
	return header;
}

bool segments_needed(const uint8_t *frame, uint32_t offloads)
{
	struct virtio_net_hdr header = header_of(frame);
	uint8_t type = header.gso_type & (uint8_t)~VIRTIO_NET_HDR_GSO_ECN;
	uint32_t need = 0;
	if ((header.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) != 0)
		need |= HDL_PUSH_OFFLOAD_CHECKSUM;
	if ((header.gso_type & VIRTIO_NET_HDR_GSO_ECN) != 0)
		need |= HDL_PUSH_OFFLOAD_ECN;
	if (type == VIRTIO_NET_HDR_GSO_TCPV4)
		need |= HDL_PUSH_OFFLOAD_TSO4;
	else if (type == VIRTIO_NET_HDR_GSO_TCPV6)
		need |= HDL_PUSH_OFFLOAD_TSO6;
	else if (type != VIRTIO_NET_HDR_GSO_NONE)
		return true;
	return (need & ~offloads) != 0;
}

/* RFC 1071: the sum of 16-bit numbers, not folded. */
static uint64_t sum_of(const uint8_t *data, size_t bytes)
{
	uint64_t sum = 0;
	size_t i = 0;
	for (; bytes - i >= 2; i += 2)
		sum += be16_load(data + i);
	if (i < bytes)
		sum += (uint64_t)data[i] << 8;
	return sum;
}

static uint16_t folded(uint64_t sum)
{
	while (sum >> 16 != 0)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

/* Find the headers of a frame that is to be cut. */
static bool find_headers(struct segments *s, const struct virtio_net_hdr *header)
{
	const uint8_t *at = s->frame + LAN_HEADER_BYTES;
	size_t length = s->bytes - LAN_HEADER_BYTES;
	s->network = ETHER_BYTES;
	for (unsigned tags = 0; tags < MAX_TAGS; tags++) {
		if (length < s->network + 2)
			return false;
		uint16_t type = be16_load(at + s->network - 2);
		if (type != 0x8100 && type != 0x88a8)
			break;
		s->network += TAG_BYTES;
	}
	s->transport = header->csum_start;
	uint8_t type = header->gso_type & (uint8_t)~VIRTIO_NET_HDR_GSO_ECN;
	if (type != VIRTIO_NET_HDR_GSO_TCPV4 && type != VIRTIO_NET_HDR_GSO_TCPV6 && type != GSO_UDP)
		return false;
	s->tcp = type != GSO_UDP;
	if (length < s->network + IP4_BYTES || header->gso_size == 0)
		return false;
	s->version6 = at[s->network] >> 4 == 6;
	size_t network_bytes = s->version6 ? (size_t)IP6_BYTES : (size_t)(at[s->network] & 15u) * 4;
	if ((!s->version6 && (at[s->network] >> 4 != 4 || network_bytes < IP4_BYTES)) ||
	    s->transport < s->network + network_bytes ||
	    (!s->version6 && s->transport != s->network + network_bytes) ||
	    s->transport + (s->tcp ? TCP_BYTES : UDP_BYTES) > length)
		return false;
	s->payload = s->transport + UDP_BYTES;
	if (s->tcp) {
		size_t transport_bytes = (size_t)(at[s->transport + 12] >> 4) * 4;
		s->payload = s->transport + transport_bytes;
		if (transport_bytes < TCP_BYTES)
			return false;
	}
	s->checksum = s->transport + (s->tcp ? 16 : 6);
	s->size = header->gso_size;
	return s->payload < length;
}

bool segments_begin(struct segments *s, const uint8_t *frame, size_t bytes)
{
	struct virtio_net_hdr header = header_of(frame);
	*s = (struct segments){.frame = frame, .bytes = bytes};
	if (header.gso_type != VIRTIO_NET_HDR_GSO_NONE)
		return find_headers(s, &header);
	if ((header.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) != 0) {
		s->transport = header.csum_start;
		s->checksum = s->transport + header.csum_offset;
		/* Never form a sum that a stranger picks. Both are 16 bits here, and the sum is
		 * not. */
		return s->checksum + 2 <= bytes - LAN_HEADER_BYTES && s->checksum >= ETHER_BYTES;
	}
	return true;
}

/* A checksum over what is there, to which the sender has already added the pseudo-header. */
static size_t finish_checksum(struct segments *s, uint8_t *out)
{
	uint8_t *at = out + LAN_HEADER_BYTES;
	memcpy(out, s->frame, s->bytes);
	memset(out, 0, LAN_HEADER_BYTES);
	if (s->checksum != 0) {
		uint16_t sum = folded(
		        sum_of(at + s->transport, s->bytes - LAN_HEADER_BYTES - s->transport));
		be16_store(at + s->checksum, sum != 0 ? sum : 0xffff);
	}
	s->finished = true;
	return s->bytes;
}

/* The fields of the network header that differ from segment to segment; returns the sum of the
 * pseudo-header. */
static uint64_t put_network(const struct segments *s, uint8_t *at, size_t length)
{
	uint8_t *ip = at + s->network;
	size_t transport_bytes = length - s->transport;
	uint64_t sum = transport_bytes + (s->tcp ? PROTOCOL_TCP : PROTOCOL_UDP);
	if (s->version6) {
		be16_store(ip + 4, (uint16_t)(length - s->network - IP6_BYTES));
		return sum + sum_of(ip + 8, 32);
	}
	be16_store(ip + 2, (uint16_t)(length - s->network));
	be16_store(ip + 4, (uint16_t)(be16_load(ip + 4) + s->count));
	be16_store(ip + 10, 0);
	be16_store(ip + 10, folded(sum_of(ip, s->transport - s->network)));
	return sum + sum_of(ip + 12, 8);
}

size_t segments_next(struct segments *s, uint8_t *out)
{
	if (s->finished)
		return 0;
	if (s->size == 0)
		return finish_checksum(s, out);
	const uint8_t *from = s->frame + LAN_HEADER_BYTES;
	size_t total = s->bytes - LAN_HEADER_BYTES - s->payload, left = total - s->done;
	size_t part = left < s->size ? left : s->size;
	uint8_t *at = out + LAN_HEADER_BYTES;
	size_t length = s->payload + part;
	memset(out, 0, LAN_HEADER_BYTES);
	memcpy(at, from, s->payload);
	memcpy(at + s->payload, from + s->payload + s->done, part);
	uint64_t sum = put_network(s, at, length);
	uint8_t *transport = at + s->transport;
	if (s->tcp) {
		be32_store(transport + 4, be32_load(transport + 4) + (uint32_t)s->done);
		if (part < left)
			transport[13] &= (uint8_t) ~(TCP_FIN | TCP_PSH);
		if (s->done > 0)
			transport[13] &= (uint8_t)~TCP_CWR;
	} else {
		be16_store(transport + 4, (uint16_t)(length - s->transport));
	}
	be16_store(at + s->checksum, 0);
	uint16_t checksum = folded(sum + sum_of(transport, length - s->transport));
	be16_store(at + s->checksum, checksum == 0 && !s->tcp ? 0xffff : checksum);
	s->done += part;
	s->count++;
	s->finished = s->done == total;
	return LAN_HEADER_BYTES + length;
}
