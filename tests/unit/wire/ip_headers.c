/* IPv4, IPv6 and UDP headers: an example that others computed, and every verdict. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ib_sample.h"
#include "wire/be.h"
#include "wire/ip_headers.h"

/* From golden_scapy.h: scapy computed both checksums. */
static const char datagram[] =
        "456a0050123440003f113cbbc0000207c6336409c0a912b7003c67b700c0800180abcdef80fedcba"
        "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232421c543e7";

static void rfc_791_and_768_checksums(void **state)
{
	(void)state;
	uint8_t bytes[128], out[IPV4_BYTES];
	size_t n = ib_sample_hex(bytes, sizeof(bytes), datagram);
	struct ipv4_header ip;
	struct udp_header udp;
	assert_int_equal(ipv4_decode(&ip, bytes, n), IP_OK);
	assert_int_equal(ip.tos, 0x6a);
	assert_int_equal(ip.total_bytes, n);
	assert_int_equal(ip.id, 0x1234);
	assert_true(ip.dont_fragment);
	assert_int_equal(ip.ttl, 63);
	assert_int_equal(ip.protocol, IP_PROTO_UDP);
	assert_int_equal(ip.src, 0xc0000207);
	assert_int_equal(ip.dst, 0xc6336409);
	ipv4_encode(&ip, out);
	assert_memory_equal(out, bytes, IPV4_BYTES);
	assert_int_equal(udp_decode(&udp, bytes + IPV4_BYTES, n - IPV4_BYTES), IP_OK);
	assert_int_equal(udp.src_port, 49321);
	assert_int_equal(udp.dst_port, 4791);
	assert_int_equal(udp.checksum, 0x67b7);
	assert_int_equal(udp_checksum_ipv4(&ip, bytes + IPV4_BYTES, n - IPV4_BYTES), 0x67b7);
}

/* RFC 768: a checksum that comes out as 0 is sent as all ones, since 0 means that there is none. */
static void rfc_768_zero_checksum_becomes_ones(void **state)
{
	(void)state;
	struct ipv4_header ip = {.src = 0, .dst = 0};
	uint8_t udp[UDP_BYTES + 2] = {0};
	/* Pseudo header: 17 + 10. Make the sum 0xffff. */
	be16_store(udp + UDP_BYTES, 0xffff - 27);
	assert_int_equal(udp_checksum_ipv4(&ip, udp, sizeof(udp)), 0xffff);
	be16_store(udp + UDP_BYTES, 0xffff - 28);
	assert_int_equal(udp_checksum_ipv4(&ip, udp, sizeof(udp)), 1);
}

static void rfc_768_odd_length_counts_a_zero(void **state)
{
	(void)state;
	struct ipv6_header ip = {0};
	uint8_t udp[UDP_BYTES + 2] = {[UDP_BYTES] = 0x12};
	assert_int_equal(udp_checksum_ipv6(&ip, udp, UDP_BYTES + 1), 0xffff - 0x1200 - 17 - 9);
	assert_int_equal(udp_checksum_ipv6(&ip, udp, UDP_BYTES + 2), 0xffff - 0x1200 - 17 - 10);
}

static void rfc_791_verdicts(void **state)
{
	(void)state;
	static const struct {
		size_t at;
		uint16_t value;
		bool sum; /* with the checksum made right again */
		enum ip_verdict verdict;
	} rows[] = {
	        {0, 0x556a, false, IP_BAD_VERSION}, {0, 0x466a, false, IP_OPTIONS},
	        {0, 0x446a, false, IP_OPTIONS},     {10, 0x3cbc, false, IP_BAD_CHECKSUM},
	        {2, 0x0051, true, IP_TRUNCATED},    {2, 0x0013, true, IP_BAD_LENGTH},
	        {6, 0x2000, true, IP_FRAGMENT},     {6, 0x0001, true, IP_FRAGMENT},
	        {6, 0x8000, true, IP_FRAGMENT},     {6, 0x0000, true, IP_OK},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint8_t bytes[128];
		size_t n = ib_sample_hex(bytes, sizeof(bytes), datagram);
		be16_store(bytes + rows[i].at, rows[i].value);
		if (rows[i].sum) {
			uint32_t sum = 0;
			be16_store(bytes + 10, 0);
			for (size_t at = 0; at < IPV4_BYTES; at += 2)
				sum += be16_load(bytes + at);
			be16_store(bytes + 10, (uint16_t) ~((sum & 0xffff) + (sum >> 16)));
		}
		struct ipv4_header ip;
		assert_int_equal(ipv4_decode(&ip, bytes, n), rows[i].verdict);
	}
	uint8_t bytes[128];
	struct ipv4_header ip;
	size_t n = ib_sample_hex(bytes, sizeof(bytes), datagram);
	for (size_t cut = 0; cut < n; cut++)
		assert_int_equal(ipv4_decode(&ip, bytes, cut), IP_TRUNCATED);
}

static void rfc_8200_ipv6_header(void **state)
{
	(void)state;
	uint8_t bytes[IPV6_BYTES + 8] = {0}, out[IPV6_BYTES];
	ib_sample_hex(
	        bytes, sizeof(bytes),
	        "6ab1234500081140fd770000000000000000000000000004fd770000000000000000000000000003");
	struct ipv6_header ip;
	assert_int_equal(ipv6_decode(&ip, bytes, sizeof(bytes)), IP_OK);
	assert_int_equal(ip.traffic_class, 0xab);
	assert_int_equal(ip.flow_label, 0x12345);
	assert_int_equal(ip.payload_bytes, 8);
	assert_int_equal(ip.next_header, 17);
	assert_int_equal(ip.hop_limit, 64);
	assert_int_equal(ip.src[15], 4);
	assert_int_equal(ip.dst[15], 3);
	ipv6_encode(&ip, out);
	assert_memory_equal(out, bytes, IPV6_BYTES);
	for (size_t cut = 0; cut < sizeof(bytes); cut++)
		assert_int_equal(ipv6_decode(&ip, bytes, cut), IP_TRUNCATED);
	bytes[0] = 0x7a;
	assert_int_equal(ipv6_decode(&ip, bytes, sizeof(bytes)), IP_BAD_VERSION);
}

static void rfc_768_length_must_be_the_datagrams(void **state)
{
	(void)state;
	struct udp_header udp,
	        h = {.src_port = 1, .dst_port = 2, .length_bytes = 12, .checksum = 3};
	uint8_t bytes[16];
	udp_encode(&h, bytes);
	for (size_t n = 0; n < sizeof(bytes); n++)
		assert_int_equal(udp_decode(&udp, bytes, n), n < UDP_BYTES ? IP_TRUNCATED
		                                             : n == 12     ? IP_OK
		                                                           : IP_BAD_LENGTH);
	assert_memory_equal(&udp, &h, sizeof(h));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(rfc_791_and_768_checksums),
	        cmocka_unit_test(rfc_768_zero_checksum_becomes_ones),
	        cmocka_unit_test(rfc_768_odd_length_counts_a_zero),
	        cmocka_unit_test(rfc_791_verdicts),
	        cmocka_unit_test(rfc_8200_ipv6_header),
	        cmocka_unit_test(rfc_768_length_must_be_the_datagrams),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
