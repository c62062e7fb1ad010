/* Random packets: what was encoded decodes to the same, what decodes encodes to the same, and no
 * single flipped bit gets through unless the checksums leave it out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/crc.h"
#include "ib_sample.h"
#include "wire/icrc.h"
#include "wire/ip_headers.h"

#define ROUNDS        40u /* of every opcode and framing */
#define MAX_PAYLOAD   300u
#define RANDOM_ROUNDS 400000u

static struct prng prng;
static uint8_t payload[MAX_PAYLOAD];

/* Field by field, in words: the structures hold fields that the opcode does not use. */
static void same(const struct ib_packet *a, const struct ib_packet *b)
{
	char one[IB_SAMPLE_TEXT_BYTES], two[IB_SAMPLE_TEXT_BYTES];
	ib_sample_text(one, a);
	ib_sample_text(two, b);
	assert_string_equal(one, two);
	assert_int_equal(a->headers, b->headers);
	assert_int_equal(a->bth.fecn, b->bth.fecn);
	assert_int_equal(a->bth.becn, b->bth.becn);
	assert_int_equal(a->payload_bytes, b->payload_bytes);
	if (a->payload_bytes)
		assert_memory_equal(a->payload, b->payload, a->payload_bytes);
}

static void ib_structures_survive_encode_and_decode(void **state)
{
	(void)state;
	for (int opcode = ib_sample_next_opcode(-1); opcode >= 0;
	     opcode = ib_sample_next_opcode(opcode)) {
		for (unsigned round = 0; round < ROUNDS; round++) {
			struct ib_packet packet, back;
			uint8_t bytes[512];
			ib_sample_packet(&packet, &prng, (uint8_t)opcode, payload,
			                 prng_below(&prng, MAX_PAYLOAD + 1));
			size_t n = ib_transport_encode(&packet, bytes, sizeof(bytes));
			assert_int_equal(n, ib_transport_bytes(&packet));
			assert_int_equal(ib_transport_decode(&back, bytes, n), IB_OK);
			same(&packet, &back);

			uint32_t headers = packet.headers;
			for (uint8_t lnh = IB_LNH_LOCAL; lnh <= IB_LNH_GLOBAL; lnh++) {
				bool global = lnh == IB_LNH_GLOBAL;
				packet.lrh.lnh = lnh;
				n = ib_link_encode(&packet, bytes, sizeof(bytes));
				packet.lrh.length_words = (uint16_t)(n / 4);
				packet.grh.payload_bytes = (uint16_t)(n - 2 - 48);
				packet.headers = headers | IB_HAS_LRH | (global ? IB_HAS_GRH : 0);
				assert_int_equal(ib_link_decode(&back, bytes, n), IB_OK);
				same(&packet, &back);
			}
		}
	}
}

static void roce_structures_survive_encode_and_decode(void **state)
{
	(void)state;
	for (int opcode = ib_sample_next_opcode(-1); opcode >= 0;
	     opcode = ib_sample_next_opcode(opcode)) {
		for (unsigned round = 0; round < ROUNDS; round++) {
			struct ib_packet packet, back;
			struct roce_path path, path_back;
			uint8_t bytes[512];
			bool ipv4 = round % 2;
			size_t network = (ipv4 ? IPV4_BYTES : IPV6_BYTES) + UDP_BYTES;
			ib_sample_packet(&packet, &prng, (uint8_t)opcode, payload,
			                 prng_below(&prng, MAX_PAYLOAD + 1));
			ib_sample_path(&path, &prng, ipv4);
			size_t n = roce_encode(&path, &packet, bytes, sizeof(bytes));
			memset(&path_back, 0, sizeof(path_back));
			assert_int_equal(roce_decode(&path_back, &back, bytes, n), IB_OK);
			same(&packet, &back);
			assert_memory_equal(&path, &path_back, sizeof(path));
			/* Behind a socket: any identification to start from. */
			path_back.ip_id = (uint16_t)prng_next(&prng);
			assert_int_equal(
			        roce_udp_decode(&path_back, &back, bytes + network, n - network),
			        IB_OK);
			same(&packet, &back);
			if (ipv4)
				assert_int_equal(path_back.ip_id, path.ip_id);
			for (size_t capacity = 0; capacity < n; capacity++)
				assert_int_equal(roce_encode(&path, &packet, bytes, capacity), 0);
		}
	}
}

/* Every cut and every flipped bit of a datagram: refused, or one of those that change on the way. A
 * flipped bit of the UDP checksum is found by that checksum, one of the IPv4 header by its. */
static void roce_damage_is_found(void **state)
{
	(void)state;
	for (int opcode = ib_sample_next_opcode(-1); opcode >= 0;
	     opcode = ib_sample_next_opcode(opcode)) {
		for (unsigned kind = 0; kind < 4; kind++) {
			bool ipv4 = kind & 1, sum = kind & 2;
			struct ib_packet packet;
			struct roce_path path;
			uint8_t bytes[512];
			ib_sample_packet(&packet, &prng, (uint8_t)opcode, payload,
			                 24 + prng_below(&prng, 4));
			ib_sample_path(&path, &prng, ipv4);
			path.udp_checksum = sum;
			size_t n = roce_encode(&path, &packet, bytes, sizeof(bytes));
			for (size_t cut = 0; cut < n; cut++)
				assert_int_equal(roce_decode(&path, &packet, bytes, cut),
				                 IB_TRUNCATED);
			for (size_t bit = 0; bit < n * 8; bit++) {
				size_t at = bit / 8;
				bool variant = !ipv4 && ((at == 0 && bit % 8 < 4) ||
				                         (at >= 1 && at <= 3) || at == 7);
				size_t network = (ipv4 ? IPV4_BYTES : IPV6_BYTES) + UDP_BYTES;
				if (!sum && at == network + 4)
					variant = true;
				bytes[at] ^= (uint8_t)(1u << bit % 8);
				enum ib_verdict verdict = roce_decode(&path, &packet, bytes, n);
				assert_int_equal(verdict == IB_OK, variant);
				bytes[at] ^= (uint8_t)(1u << bit % 8);
			}
		}
	}
}

/* A socket does not show the identification: a flipped bit passes where another identification
 * explains it, which happens once in 65536 times. */
static void roce_damage_is_found_behind_a_socket(void **state)
{
	(void)state;
	unsigned passed = 0, tried = 0;
	for (int opcode = ib_sample_next_opcode(-1); opcode >= 0;
	     opcode = ib_sample_next_opcode(opcode)) {
		struct ib_packet packet;
		struct roce_path path;
		uint8_t bytes[512];
		ib_sample_packet(&packet, &prng, (uint8_t)opcode, payload,
		                 24 + prng_below(&prng, 4));
		ib_sample_path(&path, &prng, true);
		size_t n = roce_udp_encode(&path, &packet, bytes, sizeof(bytes));
		for (size_t bit = 0; bit < n * 8; bit++) {
			if (bit / 8 == 4) /* resv8a */
				continue;
			bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
			tried++;
			passed += roce_udp_decode(&path, &packet, bytes, n) == IB_OK;
			bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		}
	}
	assert_true(tried > 20000);
	assert_in_range(passed, 0, 4); /* one in 65536 */
}

/* Any bytes: if they are taken, they are what encoding gives, but for padding, whose contents
 * nobody looks at. */
static void ib_bytes_that_decode_encode_to_themselves(void **state)
{
	(void)state;
	unsigned taken = 0;
	for (unsigned round = 0; round < RANDOM_ROUNDS; round++) {
		uint8_t bytes[160], again[160];
		size_t n = 4 * prng_below(&prng, sizeof(bytes) / 4 + 1);
		prng_fill(&prng, bytes, n);
		if (n >= IB_BTH_BYTES)
			bytes[1] &= 0xf0;
		struct ib_packet packet;
		if (ib_transport_decode(&packet, bytes, n) != IB_OK)
			continue;
		taken++;
		assert_int_equal(ib_transport_encode(&packet, again, sizeof(again)), n);
		assert_memory_equal(again, bytes, n - packet.bth.pad_bytes);
	}
	assert_true(taken > RANDOM_ROUNDS / 20);
}

/* The same as a link has it: a random body in a frame whose lengths and checksums are right. */
static void ib_link_bytes_that_decode_encode_to_themselves(void **state)
{
	(void)state;
	unsigned taken = 0;
	for (unsigned round = 0; round < RANDOM_ROUNDS; round++) {
		uint8_t bytes[180], again[180];
		uint16_t words = (uint16_t)(2 + prng_below(&prng, 42));
		size_t n = words * 4u;
		prng_fill(&prng, bytes, n);
		bytes[0] &= 0xf0;
		bytes[4] = (uint8_t)((bytes[4] & 0xf8) | words >> 8);
		bytes[5] = (uint8_t)words;
		bool global = (bytes[1] & 3) == IB_LNH_GLOBAL;
		size_t bth = global ? 48 : 8;
		if (global && n >= 48) {
			bytes[8] = (uint8_t)(0x60 | (bytes[8] & 0xf));
			bytes[12] = 0;
			bytes[13] = (uint8_t)(n - 48);
			bytes[14] = IB_GRH_NEXT_HEADER;
		}
		if ((bytes[1] & 2) && n >= bth + IB_BTH_BYTES + 4) {
			bytes[bth + 1] = 0; /* no padding */
			uint32_t seed = global ? icrc_seed_grh(bytes + 8) : icrc_seed_lrh(bytes);
			icrc_put(bytes + n - 4, icrc_transport(seed, bytes + bth, n - 4 - bth));
		}
		vcrc_put(bytes + n, crc16_vcrc(0, bytes, n));
		struct ib_packet packet;
		if (ib_link_decode(&packet, bytes, n + 2) != IB_OK)
			continue;
		taken++;
		assert_int_equal(ib_link_encode(&packet, again, sizeof(again)), n + 2);
		assert_memory_equal(again, bytes, n + 2);
	}
	assert_true(taken > RANDOM_ROUNDS / 4);
}

int main(void)
{
	prng_seed(&prng, 20);
	prng_fill(&prng, payload, sizeof(payload));
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(ib_structures_survive_encode_and_decode),
	        cmocka_unit_test(roce_structures_survive_encode_and_decode),
	        cmocka_unit_test(roce_damage_is_found),
	        cmocka_unit_test(roce_damage_is_found_behind_a_socket),
	        cmocka_unit_test(ib_bytes_that_decode_encode_to_themselves),
	        cmocka_unit_test(ib_link_bytes_that_decode_encode_to_themselves),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
