/* RoCEv2 datagrams that are not: every verdict that IP and UDP can earn, and what a socket's view
 * cannot be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mac.h"
#include "ib_sample.h"
#include "wire/be.h"
#include "wire/icrc.h"
#include "wire/ip_headers.h"

static struct prng prng;
static const uint8_t payload[8] = {1, 2, 3, 4, 5, 6, 7, 8};

static size_t build(uint8_t *bytes, struct roce_path *path, bool ipv4)
{
	struct ib_packet packet;
	ib_sample_packet(&packet, &prng, IB_RC + IB_OP_SEND_ONLY, payload, sizeof(payload));
	ib_sample_path(path, &prng, ipv4);
	path->udp_checksum = false;
	return roce_encode(path, &packet, bytes, 128);
}

/* Make the checksums right again, so that only what was changed can be found. */
static void repair(uint8_t *bytes, size_t n, bool ipv4)
{
	size_t network = ipv4 ? 28 : 48;
	if (ipv4) {
		uint32_t sum = 0;
		be16_store(bytes + 10, 0);
		for (size_t at = 0; at < IPV4_BYTES; at += 2)
			sum += be16_load(bytes + at);
		sum = (sum & 0xffff) + (sum >> 16);
		be16_store(bytes + 10, (uint16_t) ~((sum & 0xffff) + (sum >> 16)));
	}
	if (n >= network + IB_BTH_BYTES + IB_ICRC_BYTES) {
		uint32_t seed = ipv4 ? icrc_seed_ipv4(bytes) : icrc_seed_ipv6(bytes);
		icrc_put(bytes + n - 4, icrc_transport(seed, bytes + network, n - 4 - network));
	}
}

static void a17_every_verdict_of_the_network(void **state)
{
	(void)state;
	static const struct {
		bool ipv4;
		size_t at;
		uint16_t value;
		enum ib_verdict verdict;
	} rows[] = {
	        {true, 22, ROCE_UDP_PORT, IB_OK},
	        {true, 22, 4790, IB_BAD_NEXT_HEADER},
	        {true, 8, 0x4006, IB_BAD_NEXT_HEADER}, /* TCP */
	        {true, 0, 0x4600, IB_BAD_NEXT_HEADER}, /* options */
	        {true, 6, 0x2000, IB_BAD_FRAGMENT},
	        {true, 2, 20 + 7, IB_BAD_LINK_LENGTH}, /* no room for UDP */
	        {true, 2, 19, IB_BAD_LINK_LENGTH},
	        {true, 24, 31, IB_BAD_LINK_LENGTH}, /* UDP's length is not IP's */
	        {true, 26, 1, IB_BAD_IP_CHECKSUM},
	        {true, 0, 0x5500, IB_BAD_LINK_VERSION},
	        {false, 42, ROCE_UDP_PORT, IB_OK},
	        {false, 42, 4792, IB_BAD_NEXT_HEADER},
	        {false, 6, 0x0640, IB_BAD_NEXT_HEADER},
	        {false, 4, 7, IB_BAD_LINK_LENGTH},
	        {false, 44, 33, IB_BAD_LINK_LENGTH},
	        {false, 46, 1, IB_BAD_IP_CHECKSUM},
	        {false, 0, 0x7000, IB_BAD_LINK_VERSION},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint8_t bytes[128];
		struct roce_path path;
		struct ib_packet packet;
		size_t n = build(bytes, &path, rows[i].ipv4);
		be16_store(bytes + rows[i].at, rows[i].value);
		repair(bytes, n, rows[i].ipv4);
		assert_int_equal(roce_decode(&path, &packet, bytes, n), rows[i].verdict);
	}
}

/* A datagram whose lengths agree but which ends before the ICRC does. */
static void a17_too_short_for_bth_and_icrc(void **state)
{
	(void)state;
	for (int ipv4 = 0; ipv4 < 2; ipv4++) {
		size_t network = ipv4 ? 28 : 48;
		for (size_t n = network; n < network + 16; n++) {
			uint8_t bytes[128];
			struct roce_path path;
			struct ib_packet packet;
			build(bytes, &path, ipv4);
			be16_store(bytes + network - 4, (uint16_t)(n - network + 8));
			be16_store(bytes + (ipv4 ? 2 : 4), (uint16_t)(ipv4 ? n : n - 40));
			repair(bytes, n, ipv4);
			uint8_t *exact = malloc(n);
			memcpy(exact, bytes, n);
			assert_int_equal(roce_decode(&path, &packet, exact, n), IB_TRUNCATED);
			assert_int_equal(
			        roce_udp_decode(&path, &packet, exact + network, n - network),
			        IB_TRUNCATED);
			free(exact);
		}
	}
}

/* Ethernet pads short frames: what lies behind the datagram is not looked at. */
static void a17_bytes_behind_the_datagram_do_not_count(void **state)
{
	(void)state;
	uint8_t bytes[128] = {0};
	struct roce_path path;
	struct ib_packet packet;
	size_t n = build(bytes, &path, true);
	assert_int_equal(roce_decode(&path, &packet, bytes, n + 9), IB_OK);
	assert_int_equal(packet.payload_bytes, sizeof(payload));
}

/* Version 1: a frame comes back as it was, with padding or without; any change of a bit that the
 * ICRC covers, and any length that cannot be, is found. */
static void a16_frames(void **state)
{
	(void)state;
	uint8_t bytes[128] = {0}, changed[128];
	struct roce_path path, back;
	struct ib_packet packet, out;
	ib_sample_packet(&packet, &prng, IB_UD + IB_OP_SEND_ONLY, payload, sizeof(payload));
	ib_sample_path(&path, &prng, false);
	size_t n = roce_frame_encode(&path, &packet, bytes, sizeof(bytes));
	assert_int_equal(n, IB_GRH_BYTES + ib_transport_bytes(&packet) + IB_ICRC_BYTES);
	assert_int_equal(roce_frame_encode(&path, &packet, changed, n), n);
	assert_int_equal(roce_frame_encode(&path, &packet, changed, n - 1), 0);
	assert_int_equal(roce_frame_encode(&path, &packet, changed, IB_GRH_BYTES), 0);
	for (size_t padded = n; padded <= n + 9; padded++) {
		assert_int_equal(roce_frame_decode(&back, &out, bytes, padded), IB_OK);
		assert_memory_equal(back.sgid, path.sgid, IB_GID_BYTES);
		assert_memory_equal(back.dgid, path.dgid, IB_GID_BYTES);
		assert_int_equal(back.traffic_class, path.traffic_class);
		assert_int_equal(back.flow_label, path.flow_label);
		assert_int_equal(back.hop_limit, path.hop_limit);
		assert_int_equal(out.bth.opcode, packet.bth.opcode);
		assert_memory_equal(out.payload, payload, sizeof(payload));
	}
	for (size_t cut = 0; cut < n; cut++)
		assert_int_not_equal(roce_frame_decode(&back, &out, bytes, cut), IB_OK);
	static const struct {
		size_t at;
		uint8_t value;
		enum ib_verdict verdict;
	} rows[] = {{0, 0x40, IB_BAD_LINK_VERSION},
	            {5, 15, IB_BAD_LINK_LENGTH},
	            {5, 255, IB_BAD_LINK_LENGTH},
	            {6, 17, IB_BAD_NEXT_HEADER}};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		memcpy(changed, bytes, n);
		changed[rows[i].at] = rows[i].value;
		assert_int_equal(roce_frame_decode(&back, &out, changed, n), rows[i].verdict);
	}
	for (size_t at = 8; at < n; at++) {
		memcpy(changed, bytes, n);
		changed[at] ^= 0x10;
		bool covered = at != IB_GRH_BYTES + 4; /* FECN and BECN are not */
		assert_int_equal(roce_frame_decode(&back, &out, changed, n),
		                 covered ? IB_BAD_ICRC : IB_OK);
	}
}

/* RFC 4291 appendix A: there and back; what is not made from an address of one host has none. */
static void a16_gids_of_mac_addresses(void **state)
{
	(void)state;
	static const uint8_t mac[6] = {0x02, 0x00, 0x5e, 0x10, 0x00, 0x01};
	static const uint8_t gid[16] = {0xfe, 0x80, 0,    0,    0,    0,    0, 0,
	                                0,    0,    0x5e, 0xff, 0xfe, 0x10, 0, 1};
	uint8_t made[16], back[6];
	mac_to_gid(mac, made);
	assert_memory_equal(made, gid, sizeof(gid));
	assert_true(mac_from_gid(made, back));
	assert_memory_equal(back, mac, sizeof(mac));
	static const size_t wrong[] = {0, 1, 2, 7, 11, 12};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		memcpy(made, gid, sizeof(gid));
		made[wrong[i]] ^= 1;
		assert_false(mac_from_gid(made, back));
	}
	memcpy(made, gid, sizeof(gid));
	made[8] ^= 1; /* a group */
	assert_false(mac_from_gid(made, back));
}

/* RFC 4291: ::ffff:a.b.c.d stands for an IPv4 address and is no IPv6 one; a path has two ends of
 * one kind. */
static void a17_gids_of_two_kinds_do_not_mix(void **state)
{
	(void)state;
	uint8_t bytes[128];
	struct roce_path path;
	struct ib_packet packet;
	for (size_t end = 8; end <= 24; end += 16) {
		size_t n = build(bytes, &path, false);
		roce_gid_from_ipv4(bytes + end, 0x7f000001);
		repair(bytes, n, false);
		assert_int_equal(roce_decode(&path, &packet, bytes, n), IB_BAD_NEXT_HEADER);
	}
	ib_sample_packet(&packet, &prng, IB_RC + IB_OP_SEND_ONLY, payload, sizeof(payload));
	for (int ipv4 = 0; ipv4 < 2; ipv4++) {
		struct roce_path other;
		ib_sample_path(&path, &prng, ipv4);
		ib_sample_path(&other, &prng, !ipv4);
		memcpy(path.dgid, other.dgid, IB_GID_BYTES);
		assert_int_equal(roce_encode(&path, &packet, bytes, sizeof(bytes)), 0);
	}
}

/* IPv6 has no identification: nothing is solved for. */
static void a17_ipv6_behind_a_socket_takes_its_own_icrc_only(void **state)
{
	(void)state;
	uint8_t bytes[128];
	struct roce_path path;
	struct ib_packet packet;
	size_t n = build(bytes, &path, false);
	assert_int_equal(roce_udp_decode(&path, &packet, bytes + 48, n - 48), IB_OK);
	/* What an identification of 1 would do to the ICRC, if there were one. */
	uint8_t zeroes[64] = {0}, one[64] = {0};
	size_t behind = n - 48 - 4 + 22;
	one[1] = 1;
	uint32_t seed = icrc_seed_lrh(zeroes);
	uint32_t difference =
	        icrc_transport(seed, zeroes, 2 + behind) ^ icrc_transport(seed, one, 2 + behind);
	icrc_put(bytes + n - 4, icrc_get(bytes + n - 4) ^ difference);
	uint16_t id;
	assert_true(icrc_solve_ip_id(difference, 0, behind, &id));
	assert_int_equal(id, 1);
	assert_int_equal(roce_udp_decode(&path, &packet, bytes + 48, n - 48), IB_BAD_ICRC);
}

static void a17_longer_than_an_ip_datagram(void **state)
{
	(void)state;
	static uint8_t huge[70000], out[80000];
	struct roce_path path;
	struct ib_packet packet;
	for (int ipv4 = 0; ipv4 < 2; ipv4++) {
		ib_sample_path(&path, &prng, ipv4);
		assert_int_equal(roce_udp_decode(&path, &packet, huge, sizeof(huge)),
		                 IB_BAD_LINK_LENGTH);
		ib_sample_packet(&packet, &prng, IB_RC + IB_OP_SEND_ONLY, huge,
		                 65535 - 48 - 16 - 3);
		size_t n = roce_encode(&path, &packet, out, sizeof(out));
		assert_int_not_equal(n, 0);
		assert_int_equal(roce_decode(&path, &packet, out, n), IB_OK);
		packet.payload_bytes += 4;
		assert_int_equal(roce_encode(&path, &packet, out, sizeof(out)), 0);
	}
}

int main(void)
{
	prng_seed(&prng, 17);
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a17_every_verdict_of_the_network),
	        cmocka_unit_test(a17_too_short_for_bth_and_icrc),
	        cmocka_unit_test(a17_bytes_behind_the_datagram_do_not_count),
	        cmocka_unit_test(a17_gids_of_two_kinds_do_not_mix),
	        cmocka_unit_test(a17_ipv6_behind_a_socket_takes_its_own_icrc_only),
	        cmocka_unit_test(a17_longer_than_an_ip_datagram),
	        cmocka_unit_test(a16_frames),
	        cmocka_unit_test(a16_gids_of_mac_addresses),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
