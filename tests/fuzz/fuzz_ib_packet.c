/* Any bytes as an InfiniBand packet. The first byte chooses the framing; with bit 7 the harness
 * puts in right lengths and checksums, which no fuzzer would guess. What is taken must encode to
 * the same bytes, padding excepted, whose contents nobody looks at. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/crc.h"
#include "wire/be.h"
#include "wire/icrc.h"
#include "wire/ip_headers.h"
#include "wire/roce.h"

#define MAX_BYTES 4096u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* All bytes but the padding, which lies before the last @behind bytes, and the checksums behind it.
 */
static void same(const struct ib_packet *packet, const uint8_t *a, const uint8_t *b, size_t bytes,
                 size_t behind)
{
	size_t pad = packet->op ? packet->bth.pad_bytes : 0;
	assert(memcmp(a, b, bytes - behind - pad) == 0);
	for (size_t i = bytes - behind - pad; i < bytes - behind; i++) {
		if (a[i] != 0)
			return;
	}
	assert(memcmp(a, b, bytes) == 0);
}

static void within(const struct ib_packet *packet, const uint8_t *bytes, size_t size)
{
	assert(packet->payload >= bytes && packet->payload <= bytes + size);
	assert(packet->payload_bytes <= (size_t)(bytes + size - packet->payload));
}

static void transport(const uint8_t *bytes, size_t size)
{
	struct ib_packet packet;
	uint8_t again[MAX_BYTES];
	if (ib_transport_decode(&packet, bytes, size) != IB_OK)
		return;
	within(&packet, bytes, size);
	size_t n = ib_transport_encode(&packet, again, sizeof(again));
	assert(n == size);
	same(&packet, bytes, again, size, 0);
}

static void link_repair(uint8_t *bytes, size_t size)
{
	if (size < 10 || size % 4 != 2)
		return;
	size_t rest = size - 2;
	bool global = (bytes[1] & 3) == IB_LNH_GLOBAL;
	size_t bth = global ? 48 : 8;
	bytes[0] &= 0xf0;
	be16_store(bytes + 4, (uint16_t)((bytes[4] & 0xf8u) << 8 | rest / 4));
	if (global && rest >= 48) {
		bytes[8] = (uint8_t)((bytes[8] & 0xf) | 0x60);
		be16_store(bytes + 12, (uint16_t)(rest - 48));
		bytes[14] = IB_GRH_NEXT_HEADER;
	}
	if ((bytes[1] & 2) && rest >= bth + 16) {
		uint32_t seed = global ? icrc_seed_grh(bytes + 8) : icrc_seed_lrh(bytes);
		icrc_put(bytes + rest - 4, icrc_transport(seed, bytes + bth, rest - 4 - bth));
	}
	vcrc_put(bytes + rest, crc16_vcrc(0, bytes, rest));
}

static void on_link(const uint8_t *bytes, size_t size)
{
	struct ib_packet packet;
	uint8_t again[MAX_BYTES];
	if (ib_link_decode(&packet, bytes, size) != IB_OK)
		return;
	within(&packet, bytes, size);
	size_t n = ib_link_encode(&packet, again, sizeof(again));
	assert(n == size);
	same(&packet, bytes, again, size, packet.op ? 6 : 2);
}

static void roce_repair(uint8_t *bytes, size_t size)
{
	if (size < 44)
		return;
	bool ipv4 = bytes[0] >> 4 == 4;
	size_t network = ipv4 ? 28 : 48;
	if (size < network + 16)
		return;
	be16_store(bytes + network - 6, 4791);
	be16_store(bytes + network - 4, (uint16_t)(size - network + 8));
	be16_store(bytes + network - 2, 0);
	if (ipv4) {
		struct ipv4_header ip = {bytes[1],
		                         (uint16_t)size,
		                         be16_load(bytes + 4),
		                         bytes[6] & 0x40,
		                         bytes[8],
		                         17,
		                         be32_load(bytes + 12),
		                         be32_load(bytes + 16)};
		ipv4_encode(&ip, bytes);
	} else {
		bytes[0] = (uint8_t)((bytes[0] & 0xf) | 0x60);
		be16_store(bytes + 4, (uint16_t)(size - 40));
		bytes[6] = 17;
	}
	uint32_t seed = ipv4 ? icrc_seed_ipv4(bytes) : icrc_seed_ipv6(bytes);
	icrc_put(bytes + size - 4, icrc_transport(seed, bytes + network, size - 4 - network));
}

static void roce(const uint8_t *bytes, size_t size)
{
	struct ib_packet packet, udp_packet;
	struct roce_path path;
	uint8_t again[MAX_BYTES];
	if (roce_decode(&path, &packet, bytes, size) != IB_OK)
		return;
	within(&packet, bytes, size);
	size_t n = roce_encode(&path, &packet, again, sizeof(again));
	assert(n != 0 && n <= size);
	/* The UDP checksum covers padding too. */
	if (packet.bth.pad_bytes == 0)
		same(&packet, bytes, again, n, 4);
	uint16_t id = path.ip_id;
	size_t network = roce_gid_is_ipv4(path.sgid) ? 28 : 48;
	path.ip_id ^= 0x5a01;
	enum ib_verdict verdict = roce_udp_decode(&path, &udp_packet, bytes + network, n - network);
	assert(verdict == IB_OK);
	assert(network == 48 || path.ip_id == id);
}

static void frame_repair(uint8_t *bytes, size_t size)
{
	if (size < IB_GRH_BYTES + IB_BTH_BYTES + IB_ICRC_BYTES)
		return;
	bytes[0] = (uint8_t)((bytes[0] & 0xf) | 0x60);
	be16_store(bytes + 4, (uint16_t)(size - IB_GRH_BYTES));
	bytes[6] = IB_GRH_NEXT_HEADER;
	icrc_put(bytes + size - 4, icrc_transport(icrc_seed_grh(bytes), bytes + IB_GRH_BYTES,
	                                          size - 4 - IB_GRH_BYTES));
}

static void frame(const uint8_t *bytes, size_t size)
{
	struct ib_packet packet;
	struct roce_path path;
	uint8_t again[MAX_BYTES];
	if (roce_frame_decode(&path, &packet, bytes, size) != IB_OK)
		return;
	within(&packet, bytes, size);
	size_t n = roce_frame_encode(&path, &packet, again, sizeof(again));
	assert(n != 0 && n <= size);
	same(&packet, bytes, again, n, 4);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0 || size > MAX_BYTES)
		return 0;
	uint8_t choice = *data++, repaired[MAX_BYTES];
	size--;
	if (choice & 0x80) {
		memcpy(repaired, data, size);
		data = repaired;
	}
	switch (choice & 3) {
	case 0:
		transport(data, size);
		break;
	case 1:
		if (choice & 0x80)
			link_repair(repaired, size);
		on_link(data, size);
		break;
	case 2:
		if (choice & 0x80)
			(choice & 0x40 ? frame_repair : roce_repair)(repaired, size);
		(choice & 0x40 ? frame : roce)(data, size);
		break;
	case 3: {
		struct ib_packet packet;
		struct roce_path path = {.hop_limit = 64, .src_port = 49152};
		if (choice & 4)
			roce_gid_from_ipv4(path.sgid, 0x7f000001);
		(void)roce_udp_decode(&path, &packet, data, size);
		break;
	}
	}
	return 0;
}
