/* Whole InfiniBand packets: from the LRH to the VCRC as on a link, or from the BTH on as every
 *other wire carries them.
 *
 *	local      LRH      BTH  ETH...  payload  pad  ICRC  VCRC
 *	global     LRH GRH  BTH  ETH...  payload  pad  ICRC  VCRC
 *	raw        LRH RWH       payload                     VCRC
 *	raw IPv6   LRH           payload (an IPv6 datagram)  VCRC
 *
 * Everything that can be said of a packet without knowing the queue pair is judged here and nowhere
 *else: lengths, pad count, versions, opcode, checksums. What the opcode means is in ib_opcode.c. */
#ifndef WIRE_IB_PACKET_H
#define WIRE_IB_PACKET_H

#include <stddef.h>
#include <stdint.h>

#include "wire/ib_headers.h"
#include "wire/ib_opcode.h"

#define IB_MAX_MTU_BYTES 4096u
#define IB_MAX_LINK_BYTES \
	(2047u * 4u + IB_VCRC_BYTES) /* the 11 bits of LRH length, and the VCRC \
	                              */

/* What is wrong with a packet. Link, network and damage come first: of a packet that
 * got one, nothing can be believed. From IB_BAD_VERSION on the checksums were right, so
 * ib_packet.bth is what the sender wrote and may be answered to. */
enum ib_verdict {
	IB_OK,
	IB_TRUNCATED,        /* the bytes end before the packet does */
	IB_BAD_LINK_LENGTH,  /* LRH length, GRH payload length, IP and UDP length: they contradict
	                        each other or the bytes */
	IB_BAD_LINK_VERSION, /* LRH version not 0, GRH or IP version not 6 (4) */
	IB_BAD_NEXT_HEADER,  /* GRH next header not IBA's, IP protocol not UDP, UDP port not RoCE's,
	                        IPv4 options */
	IB_BAD_FRAGMENT,     /* a piece of an IPv4 datagram */
	IB_BAD_VCRC,
	IB_BAD_IP_CHECKSUM, /* of the IPv4 header, or UDP's */
	IB_BAD_ICRC,
	IB_BAD_VERSION, /* BTH transport version not 0 */
	IB_BAD_OPCODE,  /* reserved */
	IB_BAD_LENGTH,  /* too short for its headers, no multiple of 4, or a payload where none may
	                   be */
	IB_BAD_PAD,     /* more padding than payload, or padding without payload */
	IB_VERDICT_COUNT
};

/* A packet taken apart. Only what @headers names is there. */
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
	const uint8_t *payload; /* in the bytes that were decoded; without padding */
	size_t payload_bytes;
};

/* Nothing known yet. */
static inline void ib_packet_clear(struct ib_packet *packet)
{
	packet->op = NULL;
	packet->headers = 0;
	packet->payload = NULL;
	packet->payload_bytes = 0;
}

/* Take apart @bytes from the BTH up to, not including, the ICRC, which the caller has checked. The
 * result points into
 * @in. Returns IB_OK or a verdict from IB_TRUNCATED (not even a BTH) or IB_BAD_VERSION on. */
enum ib_verdict ib_transport_decode(struct ib_packet *packet, const uint8_t *in, size_t bytes);

/* How many bytes packet->op's headers take, BTH included; and the padding that its payload needs.
 */
size_t ib_transport_header_bytes(const struct ib_packet *packet);
size_t ib_pad_bytes(size_t payload_bytes);
/* Headers, payload and padding: everything from the BTH up to the ICRC. */
size_t ib_transport_bytes(const struct ib_packet *packet);

/* Write the BTH and what the opcode packet->bth.opcode, which must be a known one, puts behind it,
 * payload excluded. Sets the pad count for packet->payload_bytes. Returns the bytes written, at
 * most IB_MAX_HEADER_BYTES; 0: @capacity is too small. Fields that the opcode does not have are not
 * looked at; packet->op and packet->headers are not either. */
size_t ib_transport_header_encode(const struct ib_packet *packet, uint8_t *out, size_t capacity);

/* The same with payload and padding: everything up to the ICRC. 0 also where a payload is given to
 * an opcode that has none. */
size_t ib_transport_encode(const struct ib_packet *packet, uint8_t *out, size_t capacity);

/* Take apart a packet as on a link, LRH to VCRC: @bytes exactly. */
enum ib_verdict ib_link_decode(struct ib_packet *packet, const uint8_t *in, size_t bytes);

/* Write a packet as on a link. packet->lrh.lnh says which of the four forms. Lengths, GRH version
 * and next header, pad count and both checksums are computed. Returns the bytes written; 0:
 * @capacity is too small, the packet is longer than an LRH can say, a raw payload is no multiple of
 * 4, or a payload is given to an opcode that has none. */
size_t ib_link_encode(const struct ib_packet *packet, uint8_t *out, size_t capacity);

/* A verdict in words. */
const char *ib_verdict_str(enum ib_verdict verdict);

#endif
