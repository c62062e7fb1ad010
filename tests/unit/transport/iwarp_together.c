/* Two iWARP engines on a stream that arrives in random pieces (RFC 5040, 5041, 5044, 7306), or on
 * messages that are lost and overtake each other (RFC 5043): every operation, with CRC and markers
 * and without, with segments of every length. */
#include "iwarp_rig.h"

#include <stdlib.h>

static const struct iw_options variants[] = {
        {.terms = {.crc = true}},
        {.terms = {.crc = false}},
        {.terms = {.crc = true, .segment = 256}},
        {.terms = {.crc = true, .segment = 65483}},
        {.terms = {.crc = true, .markers_in = true}},
        {.terms = {.crc = true, .markers_in = true, .markers_out = true, .segment = 65483}},
        {.terms = {.crc = false, .markers_out = true, .segment = 9000}},
        {.terms = {.crc = true, .rtr = MPA_RTR_SEND}},
        {.terms = {.crc = true, .rtr = MPA_RTR_WRITE}},
        {.terms = {.crc = true, .rtr = MPA_RTR_READ}},
        {.messages = true},
        {.messages = true, .terms = {.segment = 256}},
        {.messages = true, .terms = {.first_ssn = 65530, .segment = 300}},
        {.messages = true, .terms = {.segment = 65535}},
        {.messages = true, .srq = true},
};

static void each_variant(void (*test)(struct iw_rig *rig))
{
	static struct iw_rig rig;
	for (size_t i = 0; i < IW_COUNT(variants); i++) {
		print_message("variant %zu\n", i);
		iw_open(&rig, &variants[i], 100 + i);
		test(&rig);
		for (unsigned s = 0; s < 2; s++) {
			assert_int_equal(iwarp_ending(&rig.sides[s].iwarp), IWARP_GOES_ON);
			iw_no_completion(rig.sides[s].scq);
			iw_no_completion(rig.sides[s].rcq);
			iw_no_event(&rig.sides[s]);
		}
		iw_close(&rig);
	}
}

static const uint32_t lengths[] = {0, 1, 3, 8, 200, 511, 1430, 1431, 5000, 65536, 100000};

/* The responder is silent until it has heard the initiator. */
static void greet(struct iw_rig *rig)
{
	struct iw_side *a = &rig->sides[0], *b = &rig->sides[1];
	iw_recv(b, 1000, 0, 8);
	iw_send(a, 1001, 0, 8);
	iw_settle(rig);
	iw_completion(a->scq, 1001, HDL_WC_SUCCESS);
	iw_completion(b->rcq, 1000, HDL_WC_SUCCESS);
}

static void sends(struct iw_rig *rig)
{
	greet(rig);
	for (unsigned round = 0; round < 2 * IW_COUNT(lengths); round++) {
		struct iw_side *from = &rig->sides[round % 2], *to = &rig->sides[1 - round % 2];
		uint32_t length = lengths[round / 2];
		iw_recv(to, round, 1, 110000);
		iw_send(from, 500 + round, 111111, length);
		iw_settle(rig);
		iw_completion(from->scq, 500 + round, HDL_WC_SUCCESS);
		struct hdl_wc wc = iw_completion(to->rcq, round, HDL_WC_SUCCESS);
		assert_int_equal(wc.byte_len, length);
		assert_int_equal(wc.opcode, HDL_WC_RECV);
		assert_memory_equal(to->mem + 1, from->mem + 111111, length);
	}
}

static void writes(struct iw_rig *rig)
{
	struct iw_side *a = &rig->sides[0], *b = &rig->sides[1];
	for (unsigned i = 0; i < IW_COUNT(lengths); i++) {
		memset(b->mem, 0xee, 100100);
		iw_recv(b, i, 200000, 8);
		iw_rdma(a, 10 + i, HDL_OP_WRITE, 100000, lengths[i], iw_address(b, 1), iw_key(b));
		iw_send(a, 50 + i, 0, 8); /* what is received after the write finds it there */
		iw_settle(rig);
		iw_completion(a->scq, 10 + i, HDL_WC_SUCCESS);
		iw_completion(a->scq, 50 + i, HDL_WC_SUCCESS);
		iw_completion(b->rcq, i, HDL_WC_SUCCESS);
		assert_int_equal(b->mem[0], 0xee);
		assert_memory_equal(b->mem + 1, a->mem + 100000, lengths[i]);
		assert_int_equal(b->mem[1 + lengths[i]], 0xee);
	}
}

static void write_with_immediate(struct iw_rig *rig)
{
	struct iw_side *a = &rig->sides[0], *b = &rig->sides[1];
	iw_recv(b, 1, 0, 0);
	struct hdl_sge list = iw_piece(a, 0, 3000);
	struct hdl_send_wr wr = {.wr_id = 2,
	                         .opcode = HDL_OP_WRITE_IMM,
	                         .sg_list = &list,
	                         .num_sge = 1,
	                         .imm = 0x04030201};
	wr.u.rdma.addr = iw_address(b, 5000);
	wr.u.rdma.key = iw_key(b);
	iw_post(a, wr);
	iw_settle(rig);
	iw_completion(a->scq, 2, HDL_WC_SUCCESS);
	struct hdl_wc wc = iw_completion(b->rcq, 1, HDL_WC_SUCCESS);
	assert_int_equal(wc.opcode, HDL_WC_RECV_WRITE_IMM);
	assert_int_equal(wc.imm, 0x04030201);
	assert_int_equal(wc.byte_len, 3000);
	assert_true(wc.flags & HDL_WC_WITH_IMM);
	assert_memory_equal(b->mem + 5000, a->mem, 3000);
}

/* More reads than may be open, each into several pieces; the last one fenced. */
static void reads(struct iw_rig *rig)
{
	struct iw_side *a = &rig->sides[0], *b = &rig->sides[1];
	for (unsigned i = 0; i < 9; i++) {
		uint32_t length = i == 0 ? 0 : i * 1777;
		struct hdl_sge list[3] = {
		        iw_piece(a, i * 25000, length / 3),
		        iw_piece(a, i * 25000 + 10000, length / 2),
		        iw_piece(a, i * 25000 + 18000, length - length / 3 - length / 2)};
		struct hdl_send_wr wr = {.wr_id = i,
		                         .opcode = HDL_OP_READ,
		                         .sg_list = list,
		                         .num_sge = length > 0 ? 3 : 0,
		                         .flags = i == 8 ? HDL_SEND_FENCE : 0};
		wr.u.rdma.addr = iw_address(b, 777 * i);
		wr.u.rdma.key = iw_key(b);
		iw_post(a, wr);
	}
	iw_settle(rig);
	for (unsigned i = 0; i < 9; i++) {
		uint32_t length = i == 0 ? 0 : i * 1777;
		struct hdl_wc wc = iw_completion(a->scq, i, HDL_WC_SUCCESS);
		assert_int_equal(wc.opcode, HDL_WC_READ);
		const uint8_t *want = b->mem + 777 * i;
		assert_memory_equal(a->mem + i * 25000, want, length / 3);
		assert_memory_equal(a->mem + i * 25000 + 10000, want + length / 3, length / 2);
		assert_memory_equal(a->mem + i * 25000 + 18000, want + length / 3 + length / 2,
		                    length - length / 3 - length / 2);
	}
}

static void atomics(struct iw_rig *rig)
{
	struct iw_side *a = &rig->sides[0], *b = &rig->sides[1];
	uint64_t *word = (uint64_t *)(void *)(b->mem + 64),
	         *got = (uint64_t *)(void *)(a->mem + 128);
	*word = 40;
	struct hdl_sge list = iw_piece(a, 128, 8);
	for (unsigned i = 0; i < 3; i++) {
		struct hdl_send_wr wr = {.wr_id = i,
		                         .opcode = i == 0 ? HDL_OP_FETCH_ADD : HDL_OP_COMPARE_SWAP,
		                         .sg_list = &list,
		                         .num_sge = 1};
		wr.u.atomic.addr = iw_address(b, 64);
		wr.u.atomic.key = iw_key(b);
		wr.u.atomic.compare_add = i == 0 ? 2 : 42;
		wr.u.atomic.swap = 1000 + i;
		iw_post(a, wr);
		iw_settle(rig);
		iw_completion(a->scq, i, HDL_WC_SUCCESS);
		assert_int_equal(*got, i == 0 ? 40 : i == 1 ? 42 : 1001);
		assert_int_equal(*word, i == 0 ? 42 : 1001);
	}
}

/* Everything at once, both ways, posted before anything moves. */
static void crowd(struct iw_rig *rig)
{
	greet(rig);
	for (unsigned s = 0; s < 2; s++) {
		struct iw_side *own = &rig->sides[s], *peer = &rig->sides[1 - s];
		for (unsigned i = 0; i < 8; i++)
			iw_recv(own, i, 150000 + i * 1000, 1000);
		for (unsigned i = 0; i < 8; i++) {
			iw_send(own, i * 3, 10 * i, 900 + i);
			iw_rdma(own, i * 3 + 1, HDL_OP_WRITE, i * 100, 4000 + i,
			        iw_address(peer, 60000 + i * 5000), iw_key(peer));
			iw_rdma(own, i * 3 + 2, HDL_OP_READ, 110000 + i * 4000, 3000 + i,
			        iw_address(peer, i * 200), iw_key(peer));
		}
	}
	iw_settle(rig);
	for (unsigned s = 0; s < 2; s++) {
		struct iw_side *own = &rig->sides[s], *peer = &rig->sides[1 - s];
		for (unsigned i = 0; i < 24; i++)
			iw_completion(own->scq, i, HDL_WC_SUCCESS);
		for (unsigned i = 0; i < 8; i++) {
			iw_completion(own->rcq, i, HDL_WC_SUCCESS);
			assert_memory_equal(own->mem + 150000 + i * 1000, peer->mem + 10 * i,
			                    900 + i);
			assert_memory_equal(peer->mem + 60000 + i * 5000, own->mem + i * 100,
			                    4000 + i);
			assert_memory_equal(own->mem + 110000 + i * 4000, peer->mem + i * 200,
			                    3000 + i);
		}
	}
}

#define VARIANTS(test)                           \
	static void rfc5040_##test(void **state) \
	{                                        \
		(void)state;                     \
		each_variant(test);              \
	}
VARIANTS(sends)
VARIANTS(writes)
VARIANTS(write_with_immediate)
VARIANTS(reads)
VARIANTS(atomics)
VARIANTS(crowd)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(rfc5040_sends),
	        cmocka_unit_test(rfc5040_writes),
	        cmocka_unit_test(rfc5040_write_with_immediate),
	        cmocka_unit_test(rfc5040_reads),
	        cmocka_unit_test(rfc5040_atomics),
	        cmocka_unit_test(rfc5040_crowd),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
