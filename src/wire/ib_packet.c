/* Whole InfiniBand packets. See ib_packet.h. */
#include "wire/ib_packet.h"

#include <assert.h>
#include <string.h>

#include "base/crc.h"
#include "wire/icrc.h"

/* The extension headers in wire order. X(name of the flag, name of the field and functions). */
#define EXTENSION_HEADERS(X)    \
	X(RDETH, rdeth)         \
	X(DETH, deth)           \
	X(XRCETH, xrceth)       \
	X(RETH, reth)           \
	X(ATOMICETH, atomiceth) \
	X(AETH, aeth)           \
	X(ATOMICACK, atomicack) \
	X(IMMDT, immdt)         \
	X(IETH, ieth)           \
	X(CNP, cnp)

size_t ib_pad_bytes(size_t payload_bytes)
{
	return (0u - payload_bytes) & 3;
}

enum ib_verdict ib_transport_decode(struct ib_packet *packet, const uint8_t *in, size_t bytes)
{
	ib_packet_clear(packet);
	if (bytes < IB_BTH_BYTES)
		return IB_TRUNCATED;
	ib_bth_decode(&packet->bth, in);
	packet->headers = IB_HAS_BTH;
	if (packet->bth.version != 0)
		return IB_BAD_VERSION;
	const struct ib_opcode *op = ib_opcode(packet->bth.opcode);
	if (!op)
		return IB_BAD_OPCODE;
	packet->op = op;

	if (bytes % 4 != 0 || bytes - IB_BTH_BYTES < op->header_bytes)
		return IB_BAD_LENGTH;
	const uint8_t *at = in + IB_BTH_BYTES;
#define DECODE(flag, field)                              \
	if (op->headers & IB_HAS_##flag) {               \
		ib_##field##_decode(&packet->field, at); \
		at += IB_##flag##_BYTES;                 \
	}
	EXTENSION_HEADERS(DECODE)
#undef DECODE
	packet->headers |= op->headers;

	size_t rest = bytes - IB_BTH_BYTES - op->header_bytes;
	if (!op->payload && rest != 0)
		return IB_BAD_LENGTH;
	if (packet->bth.pad_bytes > rest)
		return IB_BAD_PAD;
	packet->payload = at;
	packet->payload_bytes = rest - packet->bth.pad_bytes;
	return IB_OK;
}

/* Our own packets have known opcodes: the code that builds them takes them from ib_opcode.h. */
static const struct ib_opcode *opcode_of(const struct ib_packet *packet)
{
	const struct ib_opcode *op = ib_opcode(packet->bth.opcode);
	assert(op);
	return op;
}

size_t ib_transport_header_bytes(const struct ib_packet *packet)
{
	return IB_BTH_BYTES + opcode_of(packet)->header_bytes;
}

size_t ib_transport_bytes(const struct ib_packet *packet)
{
	return ib_transport_header_bytes(packet) + packet->payload_bytes +
	       ib_pad_bytes(packet->payload_bytes);
}

size_t ib_transport_header_encode(const struct ib_packet *packet, uint8_t *out, size_t capacity)
{
	const struct ib_opcode *op = opcode_of(packet);
	if (capacity < IB_BTH_BYTES + op->header_bytes)
		return 0;
	struct ib_bth bth = packet->bth;
	bth.pad_bytes = (uint8_t)ib_pad_bytes(packet->payload_bytes);
	ib_bth_encode(&bth, out);
	uint8_t *at = out + IB_BTH_BYTES;
#define ENCODE(flag, field)                              \
	if (op->headers & IB_HAS_##flag) {               \
		ib_##field##_encode(&packet->field, at); \
		at += IB_##flag##_BYTES;                 \
	}
	EXTENSION_HEADERS(ENCODE)
#undef ENCODE
	assert((size_t)(at - out) == IB_BTH_BYTES + op->header_bytes);
	return (size_t)(at - out);
}

size_t ib_transport_encode(const struct ib_packet *packet, uint8_t *out, size_t capacity)
{
	const struct ib_opcode *op = opcode_of(packet);
	size_t headers = ib_transport_header_bytes(packet);
	if (packet->payload_bytes != 0 && !op->payload)
		return 0;
	/* In this order nothing wraps, whatever the length. */
	if (capacity < headers || capacity - headers < packet->payload_bytes ||
	    capacity - headers - packet->payload_bytes < ib_pad_bytes(packet->payload_bytes))
		return 0;
	uint8_t *at = out + ib_transport_header_encode(packet, out, capacity);
	if (packet->payload_bytes != 0)
		memcpy(at, packet->payload, packet->payload_bytes);
	memset(at + packet->payload_bytes, 0, ib_pad_bytes(packet->payload_bytes));
	return ib_transport_bytes(packet);
}

/* @in: behind the LRH; @bytes: up to the VCRC. */
static enum ib_verdict raw_decode(struct ib_packet *packet, const uint8_t *in, size_t bytes)
{
	if (packet->lrh.lnh == IB_LNH_RAW) {
		if (bytes < IB_RWH_BYTES)
			return IB_BAD_LINK_LENGTH;
		ib_rwh_decode(&packet->rwh, in);
		packet->headers = IB_HAS_RWH;
		in += IB_RWH_BYTES;
		bytes -= IB_RWH_BYTES;
	}
	packet->payload = in;
	packet->payload_bytes = bytes;
	return IB_OK;
}

/* @in: the GRH; @bytes: up to the VCRC. */
static enum ib_verdict grh_judge(struct ib_packet *packet, const uint8_t *in, size_t bytes)
{
	if (bytes < IB_GRH_BYTES)
		return IB_BAD_LINK_LENGTH;
	ib_grh_decode(&packet->grh, in);
	if (packet->grh.version != 6)
		return IB_BAD_LINK_VERSION;
	if (packet->grh.next_header != IB_GRH_NEXT_HEADER)
		return IB_BAD_NEXT_HEADER;
	return packet->grh.payload_bytes == bytes - IB_GRH_BYTES ? IB_OK : IB_BAD_LINK_LENGTH;
}

enum ib_verdict ib_link_decode(struct ib_packet *packet, const uint8_t *in, size_t bytes)
{
	ib_packet_clear(packet);
	if (bytes < IB_LRH_BYTES + IB_VCRC_BYTES)
		return IB_TRUNCATED;
	ib_lrh_decode(&packet->lrh, in);
	if (packet->lrh.version != 0)
		return IB_BAD_LINK_VERSION;
	size_t rest = bytes - IB_VCRC_BYTES;
	if (packet->lrh.length_words * 4u > rest)
		return IB_TRUNCATED;
	if (packet->lrh.length_words * 4u < rest)
		return IB_BAD_LINK_LENGTH;
	if (vcrc_get(in + rest) != crc16_vcrc(0, in, rest))
		return IB_BAD_VCRC;

	const uint8_t *at = in + IB_LRH_BYTES;
	rest -= IB_LRH_BYTES;
	enum ib_verdict verdict;
	uint32_t link = IB_HAS_LRH;
	if (packet->lrh.lnh == IB_LNH_RAW || packet->lrh.lnh == IB_LNH_IPV6) {
		verdict = raw_decode(packet, at, rest);
		packet->headers |= link;
		return verdict;
	}
	uint32_t seed;
	if (packet->lrh.lnh == IB_LNH_GLOBAL) {
		verdict = grh_judge(packet, at, rest);
		if (verdict != IB_OK)
			return verdict;
		seed = icrc_seed_grh(at);
		link |= IB_HAS_GRH;
		at += IB_GRH_BYTES;
		rest -= IB_GRH_BYTES;
	} else {
		seed = icrc_seed_lrh(in);
	}
	if (rest < IB_BTH_BYTES + IB_ICRC_BYTES)
		return IB_BAD_LINK_LENGTH;
	rest -= IB_ICRC_BYTES;
	if (icrc_get(at + rest) != icrc_transport(seed, at, rest))
		return IB_BAD_ICRC;
	verdict = ib_transport_decode(packet, at, rest);
	packet->headers |= link;
	return verdict;
}

/* Length of what is between the LRH (and GRH) and the VCRC. False: the packet is impossible. */
static bool link_body_bytes(const struct ib_packet *packet, size_t *body)
{
	if (packet->payload_bytes > IB_MAX_LINK_BYTES)
		return false;
	if (packet->lrh.lnh == IB_LNH_LOCAL || packet->lrh.lnh == IB_LNH_GLOBAL) {
		*body = ib_transport_bytes(packet) + IB_ICRC_BYTES;
		return true;
	}
	*body = packet->payload_bytes + (packet->lrh.lnh == IB_LNH_RAW ? IB_RWH_BYTES : 0);
	return *body % 4 == 0; /* the LRH counts words, and there is no padding */
}

size_t ib_link_encode(const struct ib_packet *packet, uint8_t *out, size_t capacity)
{
	bool global = packet->lrh.lnh == IB_LNH_GLOBAL;
	size_t body;
	if (!link_body_bytes(packet, &body))
		return 0;
	size_t total = IB_LRH_BYTES + (global ? IB_GRH_BYTES : 0) + body + IB_VCRC_BYTES;
	if (total > IB_MAX_LINK_BYTES || total > capacity)
		return 0;
	struct ib_lrh lrh = packet->lrh;
	lrh.version = 0;
	lrh.length_words = (uint16_t)((total - IB_VCRC_BYTES) / 4);
	ib_lrh_encode(&lrh, out);
	uint8_t *at = out + IB_LRH_BYTES;
	if (packet->lrh.lnh == IB_LNH_RAW || packet->lrh.lnh == IB_LNH_IPV6) {
		if (packet->lrh.lnh == IB_LNH_RAW) {
			ib_rwh_encode(&packet->rwh, at);
			at += IB_RWH_BYTES;
		}
		if (packet->payload_bytes != 0)
			memcpy(at, packet->payload, packet->payload_bytes);
	} else {
		uint32_t seed = icrc_seed_lrh(out);
		if (global) {
			struct ib_grh grh = packet->grh;
			grh.version = 6;
			grh.next_header = IB_GRH_NEXT_HEADER;
			grh.payload_bytes = (uint16_t)body;
			ib_grh_encode(&grh, at);
			seed = icrc_seed_grh(at);
			at += IB_GRH_BYTES;
		}
		size_t transport = body - IB_ICRC_BYTES;
		if (ib_transport_encode(packet, at, transport) == 0)
			return 0;
		icrc_put(at + transport, icrc_transport(seed, at, transport));
	}
	vcrc_put(out + total - IB_VCRC_BYTES, crc16_vcrc(0, out, total - IB_VCRC_BYTES));
	return total;
}

const char *ib_verdict_str(enum ib_verdict verdict)
{
	static const char *const words[IB_VERDICT_COUNT] = {
	        [IB_OK] = "ok",
	        [IB_TRUNCATED] = "truncated",
	        [IB_BAD_LINK_LENGTH] = "link or network length",
	        [IB_BAD_LINK_VERSION] = "link or network version",
	        [IB_BAD_NEXT_HEADER] = "next header, protocol or port",
	        [IB_BAD_FRAGMENT] = "fragment",
	        [IB_BAD_VCRC] = "variant CRC",
	        [IB_BAD_IP_CHECKSUM] = "IP or UDP checksum",
	        [IB_BAD_ICRC] = "invariant CRC",
	        [IB_BAD_VERSION] = "transport version",
	        [IB_BAD_OPCODE] = "reserved opcode",
	        [IB_BAD_LENGTH] = "length",
	        [IB_BAD_PAD] = "pad count",
	};
	return (unsigned)verdict < IB_VERDICT_COUNT ? words[verdict] : "unknown verdict";
}
