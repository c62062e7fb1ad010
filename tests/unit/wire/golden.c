/* Packets that others made: by Linux rdma_rxe, read by tshark; by scapy. See golden.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ib_sample.h"
#include "wire/icrc.h"
#include "wire/ip_headers.h"

struct golden {
	const char *hex;
	const char *fields; /* "name=value " ... */
};

#include "golden_rxe.h"
#include "golden_scapy.h"

#define COUNT(rows) (sizeof(rows) / sizeof((rows)[0]))

static void check_fields(const struct golden *row, const struct ib_packet *packet)
{
	char text[IB_SAMPLE_TEXT_BYTES + 1];
	ib_sample_text(text, packet);
	strcat(text, " ");
	char fields[IB_SAMPLE_TEXT_BYTES], *rest = fields;
	snprintf(fields, sizeof(fields), "%s", row->fields);
	for (char *field; (field = strsep(&rest, " ")) && *field;) {
		char token[128];
		snprintf(token, sizeof(token), "%s ", field);
		if (!strstr(text, token))
			fail_msg("%s is not in %s", token, text);
	}
}

/* As a socket gives it: without IP and UDP headers, the IPv4 identification unknown. */
static void check_udp(const struct roce_path *path, const uint8_t *payload, size_t bytes)
{
	struct roce_path known = *path;
	struct ib_packet packet;
	known.ip_id = 0;
	assert_int_equal(roce_udp_decode(&known, &packet, payload, bytes), IB_OK);
	assert_int_equal(known.ip_id, path->ip_id);

	uint8_t again[256];
	assert_int_equal(roce_udp_encode(&known, &packet, again, sizeof(again)), bytes);
	assert_memory_equal(again, payload, bytes);
}

static void check(const struct golden *rows, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		uint8_t bytes[256], again[256];
		size_t n = ib_sample_hex(bytes, sizeof(bytes), rows[i].hex);
		struct roce_path path;
		struct ib_packet packet;
		assert_int_equal(roce_decode(&path, &packet, bytes, n), IB_OK);
		check_fields(&rows[i], &packet);
		assert_int_equal(roce_encode(&path, &packet, again, sizeof(again)), n);
		assert_memory_equal(again, bytes, n);
		size_t network =
		        (roce_gid_is_ipv4(path.sgid) ? IPV4_BYTES : IPV6_BYTES) + UDP_BYTES;
		check_udp(&path, bytes + network, n - network);
	}
}

static void rxe_packets_decode_and_encode_to_the_same_bytes(void **state)
{
	(void)state;
	assert_true(COUNT(golden_rxe) >= 20);
	check(golden_rxe, COUNT(golden_rxe));
}

static void scapy_packets_decode_and_encode_to_the_same_bytes(void **state)
{
	(void)state;
	check(golden_scapy, COUNT(golden_scapy));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(rxe_packets_decode_and_encode_to_the_same_bytes),
	        cmocka_unit_test(scapy_packets_decode_and_encode_to_the_same_bytes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
