/* Whole InfiniBand packets: from the LRH to the VCRC as on a link, or from the BTH on as every
 * other wire carries them.
 *
 * 	local      LRH      BTH  ETH...  payload  pad  ICRC  VCRC
 * 	global     LRH GRH  BTH  ETH...  payload  pad  ICRC  VCRC
 * 	raw        LRH RWH       payload                     VCRC
 * 	raw IPv6   LRH           payload (an IPv6 datagram)  VCRC
 *
 * Everything that can be checked without knowing the queue pair is checked here and nowhere else:
 * lengths, pad count, versions, opcode, checksums. ib_opcode.c defines what the opcode means. */
#ifndef WIRE_IB_PACKET_H
#define WIRE_IB_PACKET_H

#include <stddef.h>
#include <stdint.h>

#include "wire/ib_headers.h"
#include "wire/ib_opcode.h"

#define IB_MAX_MTU_BYTES  4096u
#define IB_MAX_LINK_BYTES (2047u * 4u + IB_VCRC_BYTES) /* the 11 bits of LRH length, and the VCRC */

/* What is wrong with a packet. Link, network and damage come first: nothing in such a packet can be
 * trusted. From IB_BAD_VERSION on the checksums were right, so ib_packet.bth is what the sender
 * wrote, and it may be answered. */
enum ib_verdict {
	IB_OK,
	IB_TRUNCATED, /* the bytes end before the packet does */
	/* LRH length, GRH payload length, IP and UDP length contradict each other or the bytes. */
	IB_BAD_LINK_LENGTH,
	IB_BAD_LINK_VERSION, /* LRH version not 0, GRH or IP version not 6 (4) */
	/* GRH next header not IBA, IP protocol not UDP, UDP port not RoCE, IPv4 options. */
	IB_BAD_NEXT_HEADER,
	IB_BAD_FRAGMENT, /* a fragment of an IPv4 datagram */
	IB_BAD_VCRC,
	IB_BAD_IP_CHECKSUM, /* of the IPv4 header or of UDP */
	IB_BAD_ICRC,
	IB_BAD_VERSION, /* BTH transport version not 0 */
	IB_BAD_OPCODE,  /* reserved */
	/* Too short for its headers, not a multiple of 4, or a payload where none is allowed. */
	IB_BAD_LENGTH,
	IB_BAD_PAD, /* more padding than payload, or padding without payload */
	IB_VERDICT_COUNT
};

/* A decoded packet. Only the headers in @headers are valid. */
struct ib_packet {
	const struct ib_opcode *op; /* NULL: a raw packet */
	uint32_t headers;           /* of enum ib_header */
	struct ib_lrh lrh;
	struct ib_rwh rwh;
	struct ib_grh grh;
	struct ib_bth bth;
	struct ib_rdeth rdeth;
	struct ib_deth deth;
	struct ib_xrceth xrceth;
	struct ib_reth reth;
	struct ib_atomiceth atomiceth;
	struct ib_aeth aeth;
	struct ib_atomicack atomicack;
	struct ib_immdt immdt;
	struct ib_ieth ieth;
	struct ib_cnp cnp;
	const uint8_t *payload; /* within the decoded bytes; without padding */
	size_t payload_bytes;
};

/* Reset @packet to know nothing. */
static inline void ib_packet_clear(struct ib_packet *packet)
{
	packet->op = NULL;
	packet->headers = 0;
	packet->payload = NULL;
	packet->payload_bytes = 0;
}

/* Decode @bytes from the BTH up to, but not including, the ICRC, which the caller has checked. The
 * result points into @in. Returns IB_OK, IB_TRUNCATED (not even a BTH), or a verdict from
 * IB_BAD_VERSION on. */
enum ib_verdict ib_transport_decode(struct ib_packet *packet, const uint8_t *in, size_t bytes);

/* Length of packet->op's headers, BTH included; and the padding that a payload needs. */
size_t ib_transport_header_bytes(const struct ib_packet *packet);
size_t ib_pad_bytes(size_t payload_bytes);
/* Headers, payload and padding: everything from the BTH up to the ICRC. */
size_t ib_transport_bytes(const struct ib_packet *packet);

/* Write the BTH and the headers that the opcode packet->bth.opcode, which must be a known one,
 * requires behind it, without the payload. Sets the pad count for packet->payload_bytes. Returns
 * the bytes written, at most IB_MAX_HEADER_BYTES; 0: @capacity is too small. Ignores fields that
 * the opcode does not have, and packet->op and packet->headers. */
size_t ib_transport_header_encode(const struct ib_packet *packet, uint8_t *out, size_t capacity);

/* The same with payload and padding: everything up to the ICRC. Also 0 if there is a payload but
 * the opcode allows none. */
size_t ib_transport_encode(const struct ib_packet *packet, uint8_t *out, size_t capacity);

/* Decode a packet as on a link, LRH to VCRC: exactly @bytes. */
enum ib_verdict ib_link_decode(struct ib_packet *packet, const uint8_t *in, size_t bytes);

/* Write a packet as on a link. packet->lrh.lnh selects one of the four forms. Lengths, GRH version
 * and next header, pad count and both checksums are computed. Returns the bytes written; 0:
 * @capacity is too small, the packet is longer than an LRH can express, a raw payload is not a
 * multiple of 4, or there is a payload but the opcode allows none. */
size_t ib_link_encode(const struct ib_packet *packet, uint8_t *out, size_t capacity);

/* A verdict as text. */
const char *ib_verdict_str(enum ib_verdict verdict);

#endif
