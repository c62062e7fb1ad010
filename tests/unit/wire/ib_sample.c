/* Packets to test with. See ib_sample.h. */
#include "ib_sample.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int ib_sample_next_opcode(int opcode)
{
	for (opcode++; opcode < 256; opcode++) {
		if (ib_opcode((uint8_t)opcode))
			return opcode;
	}
	return -1;
}

static uint32_t bits(struct prng *prng, unsigned count)
{
	return (uint32_t)(prng_next(prng) >> (64 - count));
}

void ib_sample_packet(struct ib_packet *p, struct prng *prng, uint8_t opcode,
                      const uint8_t *payload, size_t payload_bytes)
{
	memset(p, 0, sizeof(*p));
	p->op = ib_opcode(opcode);
	p->headers = IB_HAS_BTH | p->op->headers;
	p->lrh = (struct ib_lrh){.vl = (uint8_t)bits(prng, 4),
	                         .sl = (uint8_t)bits(prng, 4),
	                         .lnh = IB_LNH_LOCAL,
	                         .dlid = (uint16_t)bits(prng, 16),
	                         .slid = (uint16_t)bits(prng, 16)};
	p->grh.version = 6;
	p->grh.traffic_class = (uint8_t)bits(prng, 8);
	p->grh.flow_label = bits(prng, 20);
	p->grh.next_header = IB_GRH_NEXT_HEADER;
	p->grh.hop_limit = (uint8_t)bits(prng, 8);
	prng_fill(prng, p->grh.sgid, IB_GID_BYTES);
	prng_fill(prng, p->grh.dgid, IB_GID_BYTES);
	p->bth = (struct ib_bth){.opcode = opcode,
	                         .solicited = bits(prng, 1),
	                         .migreq = bits(prng, 1),
	                         .pkey = (uint16_t)bits(prng, 16),
	                         .fecn = bits(prng, 1),
	                         .becn = bits(prng, 1),
	                         .dest_qp = bits(prng, 24),
	                         .ack_request = bits(prng, 1),
	                         .psn = bits(prng, 24)};
	p->rdeth.ee_context = bits(prng, 24);
	p->deth.qkey = bits(prng, 32);
	p->deth.src_qp = bits(prng, 24);
	p->xrceth.srq = bits(prng, 24);
	p->reth = (struct ib_reth){prng_next(prng), bits(prng, 32), bits(prng, 32)};
	p->atomiceth = (struct ib_atomiceth){prng_next(prng), bits(prng, 32), prng_next(prng),
	                                     prng_next(prng)};
	p->aeth = (struct ib_aeth){(uint8_t)bits(prng, 7), bits(prng, 24)};
	p->atomicack.original = prng_next(prng);
	p->immdt.data = bits(prng, 32);
	p->ieth.rkey = bits(prng, 32);
	p->payload = payload;
	p->payload_bytes = p->op->payload ? payload_bytes : 0;
	p->bth.pad_bytes = (uint8_t)ib_pad_bytes(p->payload_bytes);
}

void ib_sample_path(struct roce_path *path, struct prng *prng, bool ipv4)
{
	memset(path, 0, sizeof(*path));
	path->src_port = (uint16_t)bits(prng, 16);
	path->traffic_class = (uint8_t)bits(prng, 8);
	path->hop_limit = (uint8_t)bits(prng, 8);
	path->udp_checksum = bits(prng, 1);
	if (ipv4) {
		roce_gid_from_ipv4(path->sgid, bits(prng, 32));
		roce_gid_from_ipv4(path->dgid, bits(prng, 32));
		path->ip_id = (uint16_t)bits(prng, 16);
		path->dont_fragment = bits(prng, 1);
	} else {
		prng_fill(prng, path->sgid, IB_GID_BYTES);
		prng_fill(prng, path->dgid, IB_GID_BYTES);
		path->flow_label = bits(prng, 20);
	}
}

static size_t used;

static void say(char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(char *text, const char *format, ...)
{
	va_list list;
	va_start(list, format);
	int n = vsnprintf(text + used, IB_SAMPLE_TEXT_BYTES - used, format, list);
	va_end(list);
	assert(n >= 0 && used + (size_t)n < IB_SAMPLE_TEXT_BYTES);
	used += (size_t)n;
}

static void number(char *text, const char *name, uint64_t value)
{
	say(text, "%s%s=0x%" PRIx64, used ? " " : "", name, value);
}

static void hex(char *text, const char *name, const uint8_t *bytes, size_t count)
{
	say(text, "%s%s=", used ? " " : "", name);
	for (size_t i = 0; i < count; i++)
		say(text, "%02x", bytes[i]);
}

static void link_text(char *text, const struct ib_packet *p)
{
	if (p->headers & IB_HAS_LRH) {
		number(text, "infiniband.lrh.vl", p->lrh.vl);
		number(text, "infiniband.lrh.lver", p->lrh.version);
		number(text, "infiniband.lrh.sl", p->lrh.sl);
		number(text, "infiniband.lrh.lnh", p->lrh.lnh);
		number(text, "infiniband.lrh.dlid", p->lrh.dlid);
		number(text, "infiniband.lrh.pktlen", p->lrh.length_words);
		number(text, "infiniband.lrh.slid", p->lrh.slid);
	}
	if (p->headers & IB_HAS_GRH) {
		number(text, "infiniband.grh.ipver", p->grh.version);
		number(text, "infiniband.grh.tclass", p->grh.traffic_class);
		number(text, "infiniband.grh.flowlabel", p->grh.flow_label);
		number(text, "infiniband.grh.paylen", p->grh.payload_bytes);
		number(text, "infiniband.grh.nxthdr", p->grh.next_header);
		number(text, "infiniband.grh.hoplmt", p->grh.hop_limit);
		hex(text, "infiniband.grh.sgid", p->grh.sgid, IB_GID_BYTES);
		hex(text, "infiniband.grh.dgid", p->grh.dgid, IB_GID_BYTES);
	}
}

static void extension_text(char *text, const struct ib_packet *p)
{
	uint8_t bytes[4];
	if (p->headers & IB_HAS_RDETH)
		number(text, "infiniband.rdeth.eecnxt", p->rdeth.ee_context);
	if (p->headers & IB_HAS_DETH) {
		number(text, "infiniband.deth.q_key", p->deth.qkey);
		number(text, "infiniband.deth.srcqp", p->deth.src_qp);
	}
	if (p->headers & IB_HAS_XRCETH)
		number(text, "xrceth.srq", p->xrceth.srq);
	if (p->headers & IB_HAS_RETH) {
		number(text, "infiniband.reth.va", p->reth.addr);
		number(text, "infiniband.reth.r_key", p->reth.rkey);
		number(text, "infiniband.reth.dmalen", p->reth.length_bytes);
	}
	if (p->headers & IB_HAS_ATOMICETH) {
		number(text, "infiniband.reth.va", p->atomiceth.addr);
		number(text, "infiniband.reth.r_key", p->atomiceth.rkey);
		number(text, "infiniband.atomiceth.swapdt", p->atomiceth.swap_or_add);
		number(text, "infiniband.atomiceth.cmpdt", p->atomiceth.compare);
	}
	if (p->headers & IB_HAS_AETH) {
		number(text, "infiniband.aeth.syndrome", p->aeth.syndrome);
		number(text, "infiniband.aeth.msn", p->aeth.msn);
	}
	if (p->headers & IB_HAS_ATOMICACK)
		number(text, "infiniband.atomicacketh.origremdt", p->atomicack.original);
	if (p->headers & IB_HAS_IMMDT) {
		ib_immdt_encode(&p->immdt, bytes);
		hex(text, "infiniband.immdt", bytes, sizeof(bytes));
	}
	if (p->headers & IB_HAS_IETH) {
		ib_ieth_encode(&p->ieth, bytes);
		hex(text, "infiniband.ieth", bytes, sizeof(bytes));
	}
}

void ib_sample_text(char *text, const struct ib_packet *p)
{
	used = 0;
	link_text(text, p);
	number(text, "infiniband.bth.opcode", p->bth.opcode);
	number(text, "infiniband.bth.se", p->bth.solicited);
	number(text, "infiniband.bth.m", p->bth.migreq);
	number(text, "infiniband.bth.padcnt", p->bth.pad_bytes);
	number(text, "infiniband.bth.tver", p->bth.version);
	number(text, "infiniband.bth.p_key", p->bth.pkey);
	number(text, "infiniband.bth.destqp", p->bth.dest_qp);
	number(text, "infiniband.bth.a", p->bth.ack_request);
	number(text, "infiniband.bth.psn", p->bth.psn);
	extension_text(text, p);
}

size_t ib_sample_hex(uint8_t *out, size_t capacity, const char *digits)
{
	size_t count = strlen(digits) / 2;
	assert(count <= capacity);
	for (size_t i = 0; i < count; i++) {
		unsigned byte;
		int n = sscanf(digits + 2 * i, "%2x", &byte);
		assert(n == 1);
		out[i] = (uint8_t)byte;
	}
	return count;
}
