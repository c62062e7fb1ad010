/* Cells: the layout byte for byte, cutting and joining packets of every size of interest, every
 * verdict, and what lost, doubled and foreign cells lead to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/crc.h"
#include "base/prng.h"
#include "wire/be.h"
#include "wire/cell.h"

#define MIB (1u << 20)

static struct cell sample(uint8_t operation, uint8_t flags)
{
	return (struct cell){.to = {0x02, 1, 2, 3, 4, 5},
	                     .from = {0x06, 7, 8, 9, 10, 11},
	                     .operation = operation,
	                     .flags = flags,
	                     .dest_qp = 0x112233,
	                     .source_qp = 0x445566,
	                     .psn = 0x778899,
	                     .address = 0x0123456789abcdef,
	                     .handle = 0xdeadbeef,
	                     .immediate = 0x07050100};
}

/* A send of three bytes, whole, as heddle-push(7) shows it. */
static void pp2_layout(void **state)
{
	(void)state;
	static const uint8_t expected[] = {
	        0x02, 0x01, 0x02, 0x03, 0x04, 0x05,             /* destination MAC */
	        0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b,             /* source MAC */
	        0x11, 0x03, 0x00, 0x03,                         /* SEND, FIRST | LAST, length */
	        0x00, 0x11, 0x22, 0x33, 0x00, 0x44, 0x55, 0x66, /* queue pairs */
	        0x00, 0x77, 0x88, 0x99, 0x00, 0x00, 0x00, 0x00, /* sequence numbers */
	        'a',  'b',  'c',
	};
	uint8_t out[CELL_MAX_BYTES];
	struct cell_cutter cutter;
	struct cell packet = sample(CELL_SEND, 0), back;
	cell_cut(&cutter, &packet, 3);
	assert_int_equal(cell_cut_next(&cutter, (const uint8_t *)"abc", out), sizeof(expected) + 8);
	assert_memory_equal(out, expected, sizeof(expected));
	assert_int_equal(be32_load(out + 35), crc32c(0, "abc", 3));
	assert_int_equal(be32_load(out + 39), crc32c(0, out, 39));
	assert_int_equal(cell_cut_next(&cutter, NULL, out + 43), 0);
	assert_int_equal(cell_decode(&back, out, 43), CELL_OK);
	assert_int_equal(back.operation, CELL_SEND);
	assert_int_equal(back.dest_qp, 0x112233);
	assert_int_equal(back.source_qp, 0x445566);
	assert_int_equal(back.psn, 0x778899);
	assert_memory_equal(back.data, "abc", 3);
}

/* The cell @number of a write of @bytes with immediate data, put together from figure 8. */
static size_t figure_8(uint8_t *out, const uint8_t *data, uint32_t bytes, uint32_t number)
{
	uint32_t cells = bytes == 0 ? 1 : (bytes + 255) / 256;
	uint32_t here = number < cells - 1 ? 256 : bytes - 256 * number;
	uint8_t *at = out;
	static const uint8_t macs[] = {2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
	memcpy(at, macs, 12);
	at[12] = 0x12;
	at[13] = (uint8_t)(0x08 | (number == 0 ? 1 : 0) | (number == cells - 1 ? 2 | 4 : 0));
	be16_store(at + 14, (uint16_t)here);
	be32_store(at + 16, 0x112233);
	be32_store(at + 20, 0x445566);
	be32_store(at + 24, 0x778899);
	be32_store(at + 28, number);
	at += 32;
	if (number == 0) {
		static const uint8_t address[] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab,
		                                  0xcd, 0xef, 0xde, 0xad, 0xbe, 0xef};
		memcpy(at, address, 12);
		at += 12;
	}
	if (here > 0)
		memcpy(at, data + 256 * (size_t)number, here);
	at += here;
	if (number == cells - 1) {
		static const uint8_t front[] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab,
		                                0xcd, 0xef, 0xde, 0xad, 0xbe, 0xef};
		static const uint8_t indication[] = {7, 5, 1, 0};
		memcpy(at, indication, 4);
		uint32_t crc = crc32c(crc32c(0, front, 12), data, bytes);
		be32_store(at + 4, crc32c(crc, indication, 4));
		at += 8;
	}
	be32_store(at, crc32c(0, out, (size_t)(at - out)));
	return (size_t)(at - out) + 4;
}

static void cut_and_join(const uint8_t *data, uint8_t *place, uint32_t bytes)
{
	uint8_t out[CELL_MAX_BYTES], expected[CELL_MAX_BYTES];
	struct cell_cutter cutter;
	struct cell_assembly assembly = {0};
	struct cell packet = sample(CELL_WRITE, CELL_IMMEDIATE | CELL_ACKNOWLEDGED), cell;
	cell_cut(&cutter, &packet, bytes);
	memset(place, 0, bytes);
	for (uint32_t i = 0; i < cell_count(bytes); i++) {
		uint64_t offset;
		uint32_t here = cell_cut_data(&cutter, &offset);
		assert_int_equal(offset, 256 * (uint64_t)i);
		size_t length = cell_cut_next(&cutter, data + offset, out);
		assert_int_equal(length, figure_8(expected, data, bytes, i));
		assert_memory_equal(out, expected, length);
		assert_int_equal(cell_decode(&cell, out, length), CELL_OK);
		enum cell_step step = cell_assemble(&assembly, &cell, &offset);
		assert_int_equal(step, i + 1 < cell_count(bytes) ? CELL_PLACE : CELL_WHOLE);
		assert_true(offset + cell.data_bytes <= bytes && cell.data_bytes == here);
		memcpy(place + offset, cell.data, cell.data_bytes);
	}
	assert_int_equal(cell_cut_next(&cutter, NULL, out), 0);
	assert_int_equal(cell.immediate, 0x07050100);
	assert_int_equal(assembly.first.address, packet.address);
	assert_int_equal(assembly.first.handle, packet.handle);
	assert_int_equal(assembly.bytes, bytes);
	assert_memory_equal(place, data, bytes);
}

static void pp2_sizes(void **state)
{
	(void)state;
	static const uint32_t sizes[] = {0, 1, 255, 256, 257, 511, 512, 513, MIB - 1, MIB};
	struct prng prng;
	uint8_t *data = malloc(MIB), *place = malloc(MIB);
	assert_true(data != NULL && place != NULL);
	prng_seed(&prng, 8);
	for (uint32_t i = 0; i < MIB; i++)
		data[i] = (uint8_t)prng_next(&prng);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		cut_and_join(data, place, sizes[i]);
	free(data);
	free(place);
}

static size_t encode(const struct cell *packet, const void *data, uint32_t bytes, uint8_t *out)
{
	struct cell_cutter cutter;
	cell_cut(&cutter, packet, bytes);
	return cell_cut_next(&cutter, data, out);
}

static void pp2_read_and_answer(void **state)
{
	(void)state;
	uint8_t out[CELL_MAX_BYTES];
	struct cell request = sample(CELL_READ_REQUEST, CELL_ACKNOWLEDGED), back;
	request.read_bytes = CELL_MAX_PACKET;
	assert_int_equal(encode(&request, NULL, 0, out), 32 + 16 + 8);
	assert_int_equal(cell_decode(&back, out, 56), CELL_OK);
	assert_int_equal(back.address, request.address);
	assert_int_equal(back.handle, request.handle);
	assert_int_equal(back.read_bytes, CELL_MAX_PACKET);
	struct cell answer = sample(CELL_ANSWER, 0);
	assert_int_equal(encode(&answer, "\0\0\0\1", 4, out), 32 + 4 + 8);
	assert_int_equal(cell_decode(&back, out, 44), CELL_OK);
}

/* A change of a good cell, with a CRC that is right again, and the verdict that it gets. */
struct wrong {
	uint8_t at, value;
	enum cell_verdict verdict;
};

static void pp2_verdicts(void **state)
{
	(void)state;
	static const struct wrong wrongs[] = {
	        {12, 0x01, CELL_WRONG_VERSION},   {12, 0x21, CELL_WRONG_VERSION},
	        {12, 0x10, CELL_WRONG_OPERATION}, {12, 0x16, CELL_WRONG_OPERATION},
	        {13, 0x23, CELL_WRONG_FLAGS},     {13, 0x05, CELL_WRONG_FLAGS},
	        {13, 0x02, CELL_WRONG_NUMBER},    {31, 1, CELL_WRONG_NUMBER},
	        {13, 0x01, CELL_WRONG_FIELD},     {14, 1, CELL_WRONG_FIELD},
	        {15, 2, CELL_WRONG_LENGTH},       {15, 4, CELL_WRONG_LENGTH},
	        {16, 1, CELL_WRONG_FIELD},        {20, 1, CELL_WRONG_FIELD},
	        {24, 1, CELL_WRONG_FIELD},        {12, 0x12, CELL_WRONG_LENGTH},
	        {12, 0x13, CELL_WRONG_FIELD},     {12, 0x15, CELL_WRONG_FIELD},
	};
	uint8_t good[CELL_MAX_BYTES], bad[CELL_MAX_BYTES];
	struct cell packet = sample(CELL_SEND, 0), back = {.operation = 77};
	size_t bytes = encode(&packet, "abc", 3, good);
	for (size_t i = 0; i < sizeof(wrongs) / sizeof(wrongs[0]); i++) {
		memcpy(bad, good, bytes);
		bad[wrongs[i].at] = wrongs[i].value;
		assert_int_equal(cell_decode(&back, bad, bytes), CELL_WRONG_CRC);
		be32_store(bad + bytes - 4, crc32c(0, bad, bytes - 4));
		assert_int_equal(cell_decode(&back, bad, bytes), wrongs[i].verdict);
	}
	for (size_t i = 0; i < 36; i++)
		assert_int_equal(cell_decode(&back, good, i), CELL_TOO_SHORT);
	for (size_t i = 36; i < bytes; i++)
		assert_int_equal(cell_decode(&back, good, i), CELL_WRONG_CRC);
	for (size_t bit = 0; bit < 8 * bytes; bit++) {
		memcpy(bad, good, bytes);
		bad[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_not_equal(cell_decode(&back, bad, bytes), CELL_OK);
	}
	assert_int_equal(back.operation, 77);
}

/* The cells of a send of 600 bytes: three of them. */
static void three_cells(struct cell cells[3], uint8_t store[3][CELL_MAX_BYTES], uint32_t psn)
{
	static uint8_t data[600];
	struct cell_cutter cutter;
	struct cell packet = sample(CELL_SEND, 0);
	packet.psn = psn;
	cell_cut(&cutter, &packet, sizeof(data));
	for (unsigned i = 0; i < 3; i++) {
		size_t bytes = cell_cut_next(&cutter, data + 256 * (size_t)i, store[i]);
		assert_int_equal(cell_decode(&cells[i], store[i], bytes), CELL_OK);
	}
}

static void pp2_steps(void **state)
{
	(void)state;
	/* Which cells arrive (a to c of one packet, A to C of the next, x: of another queue pair),
	 * and the steps. */
	static const struct {
		const char *cells;
		enum cell_step steps[6];
	} rows[] = {
	        {"abc", {CELL_PLACE, CELL_PLACE, CELL_WHOLE}},
	        {"abcABC",
	         {CELL_PLACE, CELL_PLACE, CELL_WHOLE, CELL_PLACE, CELL_PLACE, CELL_WHOLE}},
	        {"b", {CELL_ALONE}},
	        {"ac", {CELL_PLACE, CELL_GAP}},
	        {"acb", {CELL_PLACE, CELL_GAP, CELL_ALONE}},
	        {"abbc", {CELL_PLACE, CELL_PLACE, CELL_GAP, CELL_ALONE}},
	        {"abcc", {CELL_PLACE, CELL_PLACE, CELL_WHOLE, CELL_ALONE}},
	        {"abABC", {CELL_PLACE, CELL_PLACE, CELL_CUT, CELL_PLACE, CELL_WHOLE}},
	        {"aBbc", {CELL_PLACE, CELL_OTHER, CELL_ALONE, CELL_ALONE}},
	        {"ax", {CELL_PLACE, CELL_OTHER}},
	        {"aabc", {CELL_PLACE, CELL_CUT, CELL_PLACE, CELL_WHOLE}},
	        {"abs", {CELL_PLACE, CELL_PLACE, CELL_CUT_WHOLE}},
	        {"abdc", {CELL_PLACE, CELL_PLACE, CELL_DAMAGED, CELL_ALONE}},
	};
	struct cell small[3], big[3], alone;
	static uint8_t store[3][CELL_MAX_BYTES], next_store[3][CELL_MAX_BYTES], one[CELL_MAX_BYTES];
	three_cells(small, store, 5);
	three_cells(big, next_store, 6);
	struct cell packet = sample(CELL_SEND, 0);
	assert_int_equal(cell_decode(&alone, one, encode(&packet, "z", 1, one)), CELL_OK);
	for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		struct cell_assembly assembly = {0};
		for (size_t i = 0; rows[row].cells[i] != '\0'; i++) {
			char name = rows[row].cells[i];
			struct cell cell = name == 's'                  ? alone
			                   : name == 'x'                ? small[1]
			                   : name == 'd'                ? small[2]
			                   : name >= 'A' && name <= 'C' ? big[name - 'A']
			                                                : small[name - 'a'];
			if (name == 'x')
				cell.source_qp++;
			if (name == 'd')
				cell.packet_crc ^= 1;
			uint64_t offset = 0;
			assert_int_equal(cell_assemble(&assembly, &cell, &offset),
			                 rows[row].steps[i]);
		}
	}
}

static void pp2_mac(void **state)
{
	(void)state;
	static const struct {
		uint8_t gid[16], mac[CELL_MAC_BYTES];
	} cases[] = {
	        {{[10] = 0xff, [11] = 0xff, 192, 0, 2, 1}, {0x02, 0x48, 192, 0, 2, 1}},
	        {{[10] = 0xff, [11] = 0xff, 192, 0, 2, 2}, {0x02, 0x48, 192, 0, 2, 2}},
	        /* RFC 4291 appendix A: made from 34-56-78-9A-BC-DE. */
	        {{0xfe, 0x80, [8] = 0x36, 0x56, 0x78, 0xff, 0xfe, 0x9a, 0xbc, 0xde},
	         {0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde}},
	};
	uint8_t mac[CELL_MAC_BYTES], other[CELL_MAC_BYTES];
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cell_mac(cases[i].gid, mac);
		assert_memory_equal(mac, cases[i].mac, sizeof(mac));
	}
	/* Neighbours have others, and all are addresses of one port each, administered locally. */
	for (unsigned i = 0; i < 256; i++) {
		cell_mac((const uint8_t[16]){0xfd, [15] = (uint8_t)i}, mac);
		cell_mac((const uint8_t[16]){0xfd, [15] = (uint8_t)(i + 1)}, other);
		assert_int_equal(mac[0], 0x06);
		assert_memory_not_equal(mac, other, sizeof(mac));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(pp2_layout),          cmocka_unit_test(pp2_sizes),
	        cmocka_unit_test(pp2_read_and_answer), cmocka_unit_test(pp2_verdicts),
	        cmocka_unit_test(pp2_steps),           cmocka_unit_test(pp2_mac),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
