/* The packets of the 'packets' scenario: RoCEv2 datagrams of many opcodes over IPv4 and IPv6, made
 * by the encoders that the transports use and judged by their decoders. */
#include "packets.h"

#include "wire/ib_opcode.h"
#include "wire/ip_headers.h"
#include "wire/roce.h"

#include <assert.h>
#include <string.h>

_Static_assert(PACKETS_SMALLEST == IPV4_BYTES + UDP_BYTES + IB_BTH_BYTES + IB_ICRC_BYTES,
               "a send of nothing over IPv4");

/* What the ICRC does not cover (annex A17): whoever forwards a packet may write there. */
static const uint8_t free_ipv4[] = {
        1, 8, 10, 11, IPV4_BYTES + 6, IPV4_BYTES + 7, IPV4_BYTES + UDP_BYTES + 4};
static const uint8_t free_ipv6[] = {
        1, 2, 3, 7, IPV6_BYTES + 6, IPV6_BYTES + 7, IPV6_BYTES + UDP_BYTES + 4};

static void draw_path(struct prng *prng, const struct sent *sent, bool ipv6, struct roce_path *path)
{
	*path = (struct roce_path){.dont_fragment = true, .hop_limit = 64};
	path->src_port = (uint16_t)(0xc000 | prng_below(prng, 0x4000));
	path->ip_id = (uint16_t)prng_next(prng);
	path->udp_checksum = prng_chance(prng, 500);
	path->traffic_class = (uint8_t)prng_next(prng);
	path->flow_label = (uint32_t)prng_below(prng, 1 << 20);
	roce_gid_from_ipv4(path->sgid, 0x0a000001u + sent->from);
	roce_gid_from_ipv4(path->dgid, 0x0a000001u + sent->to);
	if (ipv6)
		path->sgid[0] = path->dgid[0] = 0xfd;
}

static void draw_packet(struct prng *prng, const struct sent *sent, uint32_t number, uint8_t opcode,
                        struct ib_packet *packet)
{
	memset(packet, 0, sizeof(*packet));
	packet->bth = (struct ib_bth){.opcode = opcode,
	                              .migreq = true,
	                              .pkey = 0xffff,
	                              .dest_qp = sent->to + 2,
	                              .psn = number & IB_PSN_MASK};
	packet->bth.ack_request = prng_chance(prng, 500);
	packet->deth.src_qp = sent->from + 2;
	packet->deth.qkey = (uint32_t)prng_next(prng);
	packet->reth.addr = prng_next(prng);
	packet->reth.rkey = (uint32_t)prng_next(prng);
	packet->reth.length_bytes = (uint32_t)prng_next(prng);
	packet->atomiceth.addr = prng_next(prng);
	packet->atomiceth.rkey = (uint32_t)prng_next(prng);
	packet->atomiceth.swap_or_add = prng_next(prng);
	packet->atomiceth.compare = prng_next(prng);
	packet->aeth.syndrome = (uint8_t)prng_below(prng, 0x80);
	packet->aeth.msn = number;
	packet->atomicack.original = prng_next(prng);
	packet->immdt.data = (uint32_t)prng_next(prng);
	packet->ieth.rkey = (uint32_t)prng_next(prng);
}

uint32_t packets_build(const struct world *world, uint32_t number, uint8_t *out)
{
	static const uint8_t opcodes[] = {
	        IB_UC | IB_OP_SEND_ONLY,     IB_RC | IB_OP_SEND_ONLY,
	        IB_RC | IB_OP_SEND_ONLY_IMM, IB_RC | IB_OP_SEND_ONLY_INV,
	        IB_RC | IB_OP_WRITE_ONLY,    IB_RC | IB_OP_WRITE_ONLY_IMM,
	        IB_RC | IB_OP_READ_REQUEST,  IB_RC | IB_OP_READ_RESPONSE_ONLY,
	        IB_RC | IB_OP_ACK,           IB_RC | IB_OP_ATOMIC_ACK,
	        IB_RC | IB_OP_COMPARE_SWAP,  IB_RC | IB_OP_FETCH_ADD,
	        IB_UD | IB_OP_SEND_ONLY,     IB_UD | IB_OP_SEND_ONLY_IMM};
	const struct sent *sent = &world->sent[number];
	struct prng prng;
	uint8_t payload[PACKETS_LARGEST];
	struct roce_path path;
	struct ib_packet packet;
	prng_seed(&prng, sent->body_seed);
	uint8_t opcode = opcodes[prng_below(&prng, sizeof(opcodes))];
	bool ipv6 = prng_chance(&prng, 500);
	uint32_t spare = sent->room - PACKETS_SMALLEST;
	if (spare < ib_opcode(opcode)->header_bytes)
		opcode = opcodes[0];
	spare -= ib_opcode(opcode)->header_bytes;
	if (spare < IPV6_BYTES - IPV4_BYTES)
		ipv6 = false;
	spare -= ipv6 ? IPV6_BYTES - IPV4_BYTES : 0;
	draw_path(&prng, sent, ipv6, &path);
	draw_packet(&prng, sent, number, opcode, &packet);
	if (ib_opcode(opcode)->payload) { /* with padding it fills the room up to a multiple of 4 */
		uint32_t pad = (uint32_t)prng_below(&prng, 4);
		spare &= ~3u;
		packet.payload_bytes = spare > pad ? spare - pad : 0;
	}
	prng_fill(&prng, payload, packet.payload_bytes);
	packet.payload = payload;
	size_t bytes = roce_encode(&path, &packet, out, PACKETS_LARGEST);
	assert(bytes >= PACKETS_SMALLEST && bytes <= sent->room);
	return (uint32_t)bytes;
}

bool packets_is_good(const uint8_t *packet, size_t bytes)
{
	struct roce_path path;
	struct ib_packet decoded;
	return roce_decode(&path, &decoded, packet, bytes) == IB_OK;
}

bool packets_equal(const uint8_t *a, const uint8_t *b, size_t bytes)
{
	bool ipv6 = a[0] >> 4 == 6;
	const uint8_t *list = ipv6 ? free_ipv6 : free_ipv4;
	if ((ipv6 ? a[0] >> 4 != b[0] >> 4 : a[0] != b[0]))
		return false;
	for (size_t i = 1; i < bytes; i++) {
		bool covered = true;
		for (size_t n = 0; n < sizeof(free_ipv4); n++)
			covered = covered && list[n] != i;
		if (covered && a[i] != b[i])
			return false;
	}
	return true;
}
