/* Checksums and segments in software, against a slow and obvious model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <linux/virtio_net.h>

#include <heddle/push.h>

#include "base/prng.h"
#include "tap/lan.h"
#include "tap/segment.h"
#include "wire/be.h"

#define LONGEST (LAN_MAX_FRAME + 1)

static uint8_t frame[LONGEST], out[LONGEST];

/* One octet at a time. */
static uint16_t slow_sum(uint32_t start, const uint8_t *data, size_t bytes)
{
	uint32_t sum = start;
	for (size_t i = 0; i < bytes; i++) {
		sum += (i & 1) != 0 ? data[i] : (uint32_t)data[i] << 8;
		if (sum > 0xffff)
			sum = (sum & 0xffff) + 1;
	}
	return (uint16_t)sum;
}

/* Is the checksum at the end of the headers right? */
static void check_sums(const uint8_t *ether, size_t length, size_t network, bool six, bool tcp)
{
	const uint8_t *ip = ether + network;
	size_t head = six ? 40 : (size_t)(ip[0] & 15) * 4;
	uint32_t pseudo = (uint32_t)(length - network - head) + (tcp ? 6 : 17);
	if (!six) {
		assert_int_equal(slow_sum(0, ip, head), 0xffff);
		assert_int_equal(be16_load(ip + 2), length - network);
	} else {
		assert_int_equal(be16_load(ip + 4), length - network - head);
	}
	pseudo = slow_sum(pseudo, six ? ip + 8 : ip + 12, six ? 32 : 8);
	assert_int_equal(slow_sum(pseudo, ip + head, length - network - head), 0xffff);
}

/* Make a frame that is to be cut. Returns its bytes. */
static size_t make(unsigned tags, bool six, bool tcp, size_t options, size_t payload, uint16_t size)
{
	size_t network = 14 + 4 * tags, transport = network + (six ? 40 : 20);
	size_t head = tcp ? 20 + options : 8, length = transport + head + payload;
	uint8_t *at = frame + LAN_HEADER_BYTES;
	struct virtio_net_hdr header = {.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
	                                .gso_type = (uint8_t)(!tcp  ? 5
	                                                      : six ? VIRTIO_NET_HDR_GSO_TCPV6
	                                                            : VIRTIO_NET_HDR_GSO_TCPV4),
	                                .gso_size = size,
	                                .csum_start = (uint16_t)transport,
	                                .csum_offset = tcp ? 16 : 6};
	memset(at, 0, transport + head);
	memcpy(frame, &header, sizeof(header));
	for (unsigned i = 0; i < tags; i++)
		be16_store(at + 12 + 4 * i, 0x8100);
	be16_store(at + network - 2, six ? 0x86dd : 0x0800);
	at[network] = six ? 0x60 : 0x45;
	if (!six) {
		be16_store(at + network + 4, 0xfffe); /* the identification wraps */
		at[network + 9] = tcp ? 6 : 17;
	} else {
		at[network + 6] = tcp ? 6 : 17;
	}
	memset(at + network + (six ? 8 : 12), 0x5a, six ? 32 : 8);
	if (tcp) {
		be32_store(at + transport + 4, 0xfffffff0u); /* and so does the sequence number */
		at[transport + 12] = (uint8_t)((20 + options) / 4 << 4);
		at[transport + 13] = 0x80 | 0x10 | 0x08 | 0x01; /* CWR, ACK, PSH, FIN */
	}
	for (size_t i = 0; i < payload; i++)
		at[transport + head + i] = (uint8_t)(i * 7 + (i >> 8));
	return LAN_HEADER_BYTES + length;
}

static void cut_and_check(unsigned tags, bool six, bool tcp, size_t options, size_t payload,
                          uint16_t size)
{
	size_t bytes = make(tags, six, tcp, options, payload, size), got, done = 0;
	size_t network = 14 + 4 * tags, transport = network + (six ? 40 : 20);
	size_t body = transport + (tcp ? 20 + options : 8);
	struct segments segments;
	uint32_t count = 0;
	assert_true(segments_begin(&segments, frame, bytes));
	while ((got = segments_next(&segments, out)) > 0) {
		const uint8_t *at = out + LAN_HEADER_BYTES;
		size_t length = got - LAN_HEADER_BYTES, part = length - body;
		static const uint8_t none[LAN_HEADER_BYTES];
		assert_memory_equal(out, none, sizeof(none));
		assert_memory_equal(at + body, frame + LAN_HEADER_BYTES + body + done, part);
		check_sums(at, length, network, six, tcp);
		bool last = done + part == payload;
		assert_true(last ? part <= size : part == size);
		if (tcp) {
			assert_int_equal(be32_load(at + transport + 4),
			                 (uint32_t)(0xfffffff0u + done));
			assert_int_equal(at[transport + 13] & 0x09, last ? 0x09 : 0);
			assert_int_equal(at[transport + 13] & 0x80, done == 0 ? 0x80 : 0);
		} else {
			assert_int_equal(be16_load(at + transport + 4), 8 + part);
		}
		if (!six)
			assert_int_equal(be16_load(at + network + 4), (uint16_t)(0xfffe + count));
		done += part;
		count++;
	}
	assert_int_equal(done, payload);
	assert_int_equal(count, (payload + size - 1) / size);
}

static void pp6_segments_are_what_the_kernel_would_make(void **state)
{
	(void)state;
	for (unsigned tags = 0; tags < 3; tags++)
		for (unsigned kind = 0; kind < 4; kind++) {
			bool six = (kind & 1) != 0, tcp = (kind & 2) != 0;
			cut_and_check(tags, six, tcp, 12, 1, 1448);
			cut_and_check(tags, six, tcp, 0, 1448, 1448);
			cut_and_check(tags, six, tcp, 40, 1449, 1448);
			cut_and_check(tags, six, tcp, 12, 65000, 1448);
			cut_and_check(tags, six, tcp, 0, 3001, 1);
		}
}

static void pp6_a_checksum_is_finished(void **state)
{
	(void)state;
	for (unsigned kind = 0; kind < 4; kind++) {
		bool six = (kind & 1) != 0, tcp = (kind & 2) != 0;
		size_t bytes = make(1, six, tcp, 0, 777, 1000);
		uint8_t *ip = frame + LAN_HEADER_BYTES + 18;
		size_t head = six ? 40 : 20, rest = bytes - LAN_HEADER_BYTES - 18 - head;
		struct segments segments;
		frame[1] = VIRTIO_NET_HDR_GSO_NONE;
		if (six)
			be16_store(ip + 4, (uint16_t)rest);
		else
			be16_store(ip + 2, (uint16_t)(rest + head));
		if (!six)
			be16_store(ip + 10, (uint16_t)~slow_sum(0, ip, head));
		uint32_t pseudo = (uint32_t)rest + (tcp ? 6 : 17);
		be16_store(ip + head + (tcp ? 16 : 6),
		           slow_sum(pseudo, six ? ip + 8 : ip + 12, six ? 32 : 8));
		assert_true(segments_needed(frame, HDL_PUSH_OFFLOAD_HEADER));
		assert_false(segments_needed(frame, HDL_PUSH_OFFLOAD_CHECKSUM));
		assert_true(segments_begin(&segments, frame, bytes));
		assert_int_equal(segments_next(&segments, out), bytes);
		check_sums(out + LAN_HEADER_BYTES, bytes - LAN_HEADER_BYTES, 18, six, tcp);
		assert_false(segments_needed(out, 0));
		assert_int_equal(segments_next(&segments, out), 0);
	}
}

static void pp6_offloads_that_are_needed(void **state)
{
	(void)state;
	make(0, false, true, 0, 5000, 1000);
	assert_true(segments_needed(frame, HDL_PUSH_OFFLOAD_CHECKSUM));
	assert_false(segments_needed(frame, HDL_PUSH_OFFLOAD_CHECKSUM | HDL_PUSH_OFFLOAD_TSO4));
	frame[1] |= VIRTIO_NET_HDR_GSO_ECN;
	assert_true(segments_needed(frame, HDL_PUSH_OFFLOAD_CHECKSUM | HDL_PUSH_OFFLOAD_TSO4));
	make(0, true, true, 0, 5000, 1000);
	assert_true(segments_needed(frame, HDL_PUSH_OFFLOAD_CHECKSUM | HDL_PUSH_OFFLOAD_TSO4));
	assert_false(segments_needed(frame, HDL_PUSH_OFFLOAD_CHECKSUM | HDL_PUSH_OFFLOAD_TSO6));
	make(0, true, false, 0, 5000, 1000);
	assert_true(segments_needed(frame, HDL_PUSH_OFFLOAD_ALL)); /* nobody knows UDP segments */
}

/* Headers of a stranger: any octet of them wrong, any length. No access outside, which the address
 * sanitizer sees, and no segment longer than the frame. */
static void pp6_headers_of_strangers(void **state)
{
	struct prng prng;
	(void)state;
	prng_seed(&prng, 18);
	for (unsigned round = 0; round < 200000; round++) {
		struct segments segments;
		size_t bytes = make((unsigned)prng_below(&prng, 3), prng_chance(&prng, 500),
		                    prng_chance(&prng, 500), 4 * prng_below(&prng, 11),
		                    prng_below(&prng, 300), (uint16_t)prng_below(&prng, 200));
		for (unsigned i = 0; i < 3; i++)
			frame[prng_below(&prng, 90)] = (uint8_t)prng_next(&prng);
		if (prng_chance(&prng, 300))
			bytes = LAN_HEADER_BYTES + 14 + prng_below(&prng, bytes - 24 + 1);
		lan_is_too_long(frame, bytes, 1500);
		if (!segments_begin(&segments, frame, bytes))
			continue;
		size_t got, count = 0;
		while ((got = segments_next(&segments, out)) > 0) {
			assert_true(got <= bytes);
			assert_true(++count <= bytes);
		}
	}
}

static void pp6_what_is_too_long(void **state)
{
	(void)state;
	size_t bytes = make(0, false, true, 12, 5000, 1448);
	assert_false(lan_is_too_long(frame, bytes, 1500)); /* 20 + 32 + 1448 */
	assert_true(lan_is_too_long(frame, bytes, 1499));
	bytes = make(2, true, true, 0, 5000, 1440);
	assert_false(lan_is_too_long(frame, bytes, 1500)); /* tags do not count */
	assert_true(lan_is_too_long(frame, bytes, 1499));
	memset(frame, 0, sizeof(frame));
	assert_false(lan_is_too_long(frame, LAN_HEADER_BYTES + 14 + 1500, 1500));
	assert_true(lan_is_too_long(frame, LAN_HEADER_BYTES + 14 + 1501, 1500));
	be16_store(frame + LAN_HEADER_BYTES + 12, 0x8100);
	assert_false(lan_is_too_long(frame, LAN_HEADER_BYTES + 18 + 1500, 1500));
	assert_true(lan_is_too_long(frame, LAN_HEADER_BYTES + 18 + 1501, 1500));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(pp6_segments_are_what_the_kernel_would_make),
	        cmocka_unit_test(pp6_a_checksum_is_finished),
	        cmocka_unit_test(pp6_offloads_that_are_needed),
	        cmocka_unit_test(pp6_headers_of_strangers),
	        cmocka_unit_test(pp6_what_is_too_long),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
