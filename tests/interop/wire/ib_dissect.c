/* Prints a packet of every opcode in every framing for ib_dissect.py, which has other programs take
 * them apart. A line is: framing, the bytes in hex, what the packet holds as "tshark's field
 * name=value", separated by tabs. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ib_sample.h"
#include "wire/icrc.h"

static void print(const char *framing, const uint8_t *bytes, size_t count,
                  const struct ib_packet *packet)
{
	char text[IB_SAMPLE_TEXT_BYTES];
	ib_sample_text(text, packet);
	printf("%s\t", framing);
	for (size_t i = 0; i < count; i++)
		printf("%02x", bytes[i]);
	printf("\t%s", text);
	/* tshark reads both checksums as big-endian numbers. */
	size_t vcrc = packet->headers & IB_HAS_LRH ? IB_VCRC_BYTES : 0;
	const uint8_t *icrc = bytes + count - vcrc - IB_ICRC_BYTES;
	printf(" infiniband.invariant.crc=0x%02x%02x%02x%02x", icrc[0], icrc[1], icrc[2], icrc[3]);
	if (vcrc)
		printf(" infiniband.variant.crc=0x%02x%02x", icrc[4], icrc[5]);
	printf("\n");
}

int main(void)
{
	struct prng prng;
	prng_seed(&prng, 4791);
	uint8_t payload[64], out[512];
	prng_fill(&prng, payload, sizeof(payload));
	/* Bytes that tshark takes for none of the protocols it knows inside RDMA. */
	memset(payload, 0xee, 24);
	for (int opcode = ib_sample_next_opcode(-1); opcode >= 0;
	     opcode = ib_sample_next_opcode(opcode)) {
		struct ib_packet packet;
		struct roce_path path;
		ib_sample_packet(&packet, &prng, (uint8_t)opcode, payload,
		                 40 + prng_below(&prng, 24));
		for (int ipv4 = 0; ipv4 < 2; ipv4++) {
			ib_sample_path(&path, &prng, ipv4);
			path.src_port |= 0xc000; /* those that the annex gives to RoCE */
			if (!ipv4)
				path.udp_checksum = true; /* tshark calls 0 illegal there */
			size_t n = roce_encode(&path, &packet, out, sizeof(out));
			print(ipv4 ? "ipv4" : "ipv6", out, n, &packet);
		}
		for (uint8_t lnh = IB_LNH_LOCAL; lnh <= IB_LNH_GLOBAL; lnh++) {
			packet.lrh.lnh = lnh;
			size_t n = ib_link_encode(&packet, out, sizeof(out));
			packet.lrh.length_words = (uint16_t)(n / 4);
			packet.grh.payload_bytes =
			        (uint16_t)(n - IB_VCRC_BYTES - IB_LRH_BYTES - IB_GRH_BYTES);
			packet.headers |= IB_HAS_LRH | (lnh == IB_LNH_GLOBAL ? IB_HAS_GRH : 0);
			print("link", out, n, &packet);
		}
	}
	return 0;
}
