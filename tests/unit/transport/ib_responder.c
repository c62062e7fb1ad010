/* The responder of a reliable connection, packet by packet (IBTA volume 1 section 9.7): what it
 * executes, and what it answers. What it refuses is in ib_responder_refusals.c. */
#include "ib_rig.h"

#define FIRST RIG_RQ_PSN

static uint64_t word(const struct rig *rig, size_t offset)
{
	uint64_t value;
	memcpy(&value, rig->mem + offset, 8);
	return value;
}

static void set_word(struct rig *rig, size_t offset, uint64_t value)
{
	memcpy(rig->mem + offset, &value, 8);
}

/* --- in order --- */

/* C9-69: every message counts once in the MSN; PSNs wrap around at 2^24. */
static void messages_are_counted_and_psns_wrap(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, &(struct rig_options){.psn_given = true, .rq_psn = 0xfffffe});
	for (uint32_t i = 0; i < 6; i++) {
		uint32_t psn = 0xfffffe + i;
		rig_recv(rig, i, 1024 * i, 100);
		rig_take_send(rig, IB_OP_SEND_ONLY, psn, i, 40 + i);
		rig_expect_answer(rig, psn, IB_AETH_ACK, -1, (int)(i + 1));
		struct hdl_wc wc = rig_completion(rig, rig->rcq, i, HDL_WC_SUCCESS);
		assert_int_equal(wc.byte_len, 40 + i);
		assert_int_equal(wc.src_qpn, RIG_PEER_QPN);
		assert_true(rig_holds(rig, 1024 * i, i, 0, 40 + i));
		assert_true(rig_holds(rig, 1024 * i + 40 + i, 0, 1024 * i + 40 + i, 20));
	}
	rig_expect_none(rig);
}

/* A message of several packets: acknowledged where it is asked for, counted at its end. */
static void a_message_of_several_packets(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	rig_recv(rig, 1, 4096, 1000);
	static const struct {
		uint8_t opcode;
		uint32_t bytes;
	} parts[] = {{IB_OP_SEND_FIRST, 256}, {IB_OP_SEND_MIDDLE, 256}, {IB_OP_SEND_LAST, 3}};
	for (uint32_t i = 0; i < COUNT(parts); i++) {
		struct ib_packet packet = rig_data(rig, (uint8_t)(IB_RC + parts[i].opcode),
		                                   FIRST + i, 20 + i, parts[i].bytes);
		packet.bth.ack_request = i == 2;
		if (i == 2)
			rig_no_completion(rig, rig->rcq);
		rig_take(rig, &packet);
	}
	const struct ib_packet *ack;
	bool last_seen = false;
	while ((ack = rig_look(rig)) != NULL) { /* more than what was asked for may be told */
		assert_int_equal(ack->bth.opcode, IB_RC + IB_OP_ACK);
		assert_int_equal(ack->aeth.msn, ack->bth.psn == FIRST + 2 ? 1 : 0);
		last_seen = ack->bth.psn == FIRST + 2;
	}
	assert_true(last_seen);
	assert_int_equal(rig_completion(rig, rig->rcq, 1, HDL_WC_SUCCESS).byte_len, 515);
	for (uint32_t i = 0; i < COUNT(parts); i++)
		assert_true(rig_holds(rig, 4096 + 256 * i, 20 + i, 0, parts[i].bytes));
}

/* Zero-length messages and requests of every kind take a PSN each and are answered. */
static void zero_length_everything(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	rig_recv(rig, 1, 0, 0);
	rig_take_send(rig, IB_OP_SEND_ONLY, FIRST, 0, 0);
	rig_expect_answer(rig, FIRST, IB_AETH_ACK, -1, 1);
	assert_int_equal(rig_completion(rig, rig->rcq, 1, HDL_WC_SUCCESS).byte_len, 0);
	/* C9-88: the key of nothing is not looked at. */
	struct ib_packet write = rig_rdma(rig, IB_OP_WRITE_ONLY, FIRST + 1, 0, 0, 0);
	write.reth.rkey = 0xdeadbeef;
	rig_take(rig, &write);
	rig_expect_answer(rig, FIRST + 1, IB_AETH_ACK, -1, 2);
	struct ib_packet read = rig_rdma(rig, IB_OP_READ_REQUEST, FIRST + 2, 0, 0, 0);
	read.reth.rkey = 0xdeadbeef;
	rig_take(rig, &read);
	const struct ib_packet *response =
	        rig_expect(rig, IB_RC + IB_OP_READ_RESPONSE_ONLY, FIRST + 2);
	assert_int_equal(response->payload_bytes, 0);
	assert_int_equal(response->aeth.msn, 3);
	rig_recv(rig, 2, 0, 0);
	struct ib_packet immediate = rig_rdma(rig, IB_OP_WRITE_ONLY_IMM, FIRST + 3, 0, 0, 0);
	immediate.immdt.data = 0x01020304;
	rig_take(rig, &immediate);
	rig_expect_answer(rig, FIRST + 3, IB_AETH_ACK, -1, 4);
	struct hdl_wc wc = rig_completion(rig, rig->rcq, 2, HDL_WC_SUCCESS);
	assert_int_equal(wc.opcode, HDL_WC_RECV_WRITE_IMM);
	assert_int_equal(wc.flags, HDL_WC_WITH_IMM);
	assert_int_equal(wc.byte_len, 0);
	rig_expect_none(rig);
}

/* Section 9.7.5.1.2: without AckReq an answer may wait for the one that is asked for, which speaks
 * for all before it. */
static void one_ack_for_many(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	for (uint32_t i = 0; i < 8; i++) {
		struct ib_packet packet =
		        rig_rdma(rig, IB_OP_WRITE_ONLY, FIRST + i, 64 * i, 16, 16);
		packet.bth.ack_request = i == 7;
		rig_take(rig, &packet);
		assert_true(rig_holds(rig, 64 * i, RIG_RDMA_SEED, 0, 16));
	}
	const struct ib_packet *ack, *last = NULL;
	while ((ack = rig_look(rig)) != NULL)
		last = ack;
	assert_non_null(last);
	assert_int_equal(last->bth.psn, FIRST + 7);
	assert_int_equal(last->aeth.msn, 8);
	assert_int_equal(ib_aeth_kind(last->aeth.syndrome), IB_AETH_ACK);
}

/* --- reads and atomics --- */

/* @msn negative: a repetition may tell what was true then or is now. */
static void expect_read(struct rig *rig, uint32_t psn, size_t offset, uint32_t length, int msn)
{
	uint32_t count = length == 0 ? 1 : (length + 255) / 256;
	for (uint32_t i = 0; i < count; i++) {
		uint8_t opcode = count == 1       ? IB_OP_READ_RESPONSE_ONLY
		                 : i == 0         ? IB_OP_READ_RESPONSE_FIRST
		                 : i == count - 1 ? IB_OP_READ_RESPONSE_LAST
		                                  : IB_OP_READ_RESPONSE_MIDDLE;
		const struct ib_packet *packet =
		        rig_expect(rig, (uint8_t)(IB_RC + opcode), psn + i);
		uint32_t want = i == count - 1 ? length - 256 * i : 256;
		assert_int_equal(packet->bth.dest_qp, RIG_PEER_QPN);
		assert_int_equal(packet->payload_bytes, want);
		assert_memory_equal(packet->payload, rig->mem + offset + 256 * i, want);
		if (opcode != IB_OP_READ_RESPONSE_MIDDLE) {
			assert_int_equal(ib_aeth_kind(packet->aeth.syndrome), IB_AETH_ACK);
			if (msn >= 0)
				assert_int_equal(packet->aeth.msn, msn);
		}
	}
}

static void reads_are_answered_in_packets(void **state)
{
	static const uint32_t lengths[] = {1, 255, 256, 257, 512, 513, 2000};
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	uint32_t psn = FIRST;
	for (uint32_t i = 0; i < COUNT(lengths); i++) {
		struct ib_packet read =
		        rig_rdma(rig, IB_OP_READ_REQUEST, psn, 100 * i, lengths[i], 0);
		rig_take(rig, &read);
		expect_read(rig, psn, 100 * i, lengths[i], (int)i + 1);
		psn += (lengths[i] + 255) / 256; /* C9-92: a PSN for each of them */
	}
	rig_expect_none(rig);
	rig_take_write(rig, psn, 8192);
	rig_expect_answer(rig, psn, IB_AETH_ACK, -1, COUNT(lengths) + 1);
}

static void atomics_give_what_was_there(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	set_word(rig, 64, 40);
	rig_take_atomic(rig, FIRST, IB_OP_FETCH_ADD, 64, 2, 0);
	const struct ib_packet *ack = rig_expect(rig, IB_RC + IB_OP_ATOMIC_ACK, FIRST);
	assert_int_equal(ack->atomicack.original, 40);
	assert_int_equal(ack->aeth.msn, 1);
	assert_int_equal(word(rig, 64), 42);
	rig_take_atomic(rig, FIRST + 1, IB_OP_COMPARE_SWAP, 64, 7, 42);
	assert_int_equal(rig_expect(rig, IB_RC + IB_OP_ATOMIC_ACK, FIRST + 1)->atomicack.original,
	                 42);
	assert_int_equal(word(rig, 64), 7);
	rig_take_atomic(rig, FIRST + 2, IB_OP_COMPARE_SWAP, 64, 9, 42);
	assert_int_equal(rig_expect(rig, IB_RC + IB_OP_ATOMIC_ACK, FIRST + 2)->atomicack.original,
	                 7);
	assert_int_equal(word(rig, 64), 7);
	rig_expect_none(rig);
}

/* --- again --- */

/* C9-105: a duplicate send or write is acknowledged and not executed. */
static void a_duplicate_is_acknowledged_alone(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	rig_recv(rig, 1, 1024, 64);
	rig_recv(rig, 2, 2048, 64);
	rig_take_send(rig, IB_OP_SEND_ONLY, FIRST, 9, 16);
	rig_take_write(rig, FIRST + 1, 4096);
	rig_completion(rig, rig->rcq, 1, HDL_WC_SUCCESS);
	rig_skip(rig);
	memset(rig->mem + 4096, 0x11, 16);
	memset(rig->mem + 1024, 0x22, 16);
	for (uint32_t i = 0; i < 4; i++) {
		if (i % 2)
			rig_take_write(rig, FIRST + 1, 4096);
		else
			rig_take_send(rig, IB_OP_SEND_ONLY, FIRST, 9, 16);
		/* It speaks for all that was executed. */
		rig_expect_answer(rig, FIRST + 1, IB_AETH_ACK, -1, 2);
		rig_expect_none(rig);
	}
	rig_no_completion(rig, rig->rcq);
	assert_int_equal(rig->mem[4096], 0x11);
	assert_int_equal(rig->mem[1024], 0x22);
	/* Half the space behind what is expected are duplicates, the other half is to come. */
	rig_take_write(rig, FIRST + 2 - (1u << 23), 4096);
	rig_expect_answer(rig, FIRST + 1, IB_AETH_ACK, -1, 2);
	rig_take_write(rig, FIRST + 2 + (1u << 23) - 1, 4096);
	rig_expect_answer(rig, FIRST + 2, IB_AETH_NAK, IB_NAK_PSN_SEQUENCE_ERROR, 2);
	assert_int_equal(rig->mem[4096], 0x11);
	assert_int_equal(rig_state(rig), HDL_QPS_RTS);
}

/* It does not speak for a read behind it: the response may be what was lost. */
static void a_duplicate_before_a_read_is_not_the_reads_answer(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	rig_take_write(rig, FIRST, 4096);
	struct ib_packet read = rig_rdma(rig, IB_OP_READ_REQUEST, FIRST + 1, 512, 1000, 0);
	rig_take(rig, &read);
	rig_skip(rig);
	rig_take_write(rig, FIRST, 4096);
	rig_expect_answer(rig, FIRST, IB_AETH_ACK, -1, 2);
	rig_expect_none(rig);
	rig_take_write(rig, FIRST + 5, 8192);
	rig_expect_answer(rig, FIRST + 5, IB_AETH_ACK, -1, 3);
	rig_take_write(rig, FIRST + 5, 8192);
	rig_expect_answer(rig, FIRST + 5, IB_AETH_ACK, -1, 3);
	rig_expect_none(rig);
}

/* C9-106: a duplicate read is executed again, from wherever it was interrupted. */
static void a_duplicate_read_is_read_again(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	struct ib_packet read = rig_rdma(rig, IB_OP_READ_REQUEST, FIRST, 512, 1000, 0);
	rig_take(rig, &read);
	expect_read(rig, FIRST, 512, 1000, 1);
	rig_take_write(rig, FIRST + 4, 8192);
	rig_expect_answer(rig, FIRST + 4, IB_AETH_ACK, -1, 2);
	rig_take(rig, &read);
	expect_read(rig, FIRST, 512, 1000, -1);
	rig_expect_none(rig);
	struct ib_packet rest = rig_rdma(rig, IB_OP_READ_REQUEST, FIRST + 2, 512 + 512, 488, 0);
	rig_take(rig, &rest);
	expect_read(rig, FIRST + 2, 1024, 488, -1);
	rig_expect_none(rig);
	rig_take_write(rig, FIRST + 5, 8192);
	rig_expect_answer(rig, FIRST + 5, IB_AETH_ACK, -1, 3);
}

/* One that is asked for again in smaller requests: each of them is answered, also where there is no
 * room for it at once. */
static void parts_of_a_duplicate_read_are_answered_each(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	struct ib_packet read = rig_rdma(rig, IB_OP_READ_REQUEST, FIRST, 512, 256 * 8, 0);
	rig_take(rig, &read);
	rig_skip(rig);
	rig->full = true;
	for (uint32_t i = 2; i < 8; i += 2) {
		read = rig_rdma(rig, IB_OP_READ_REQUEST, FIRST + i, 512 + 256 * i, 512, 0);
		rig_take(rig, &read);
	}
	rig_expect_none(rig);
	rig->full = false;
	rig_run(rig);
	for (uint32_t i = 2; i < 8; i += 2)
		expect_read(rig, FIRST + i, 512 + 256 * i, 512, -1);
	rig_expect_none(rig);
}

/* C9-107: a duplicate atomic gets the answer of the first; one that is not remembered gets none. */
static void a_duplicate_atomic_is_executed_once(void **state)
{
	enum { RESOURCES = 2 };
	struct rig *rig = *state;
	rig_qp(rig, &(struct rig_options){.max_rd_atomic = RESOURCES});
	set_word(rig, 64, 10);
	for (uint32_t i = 0; i < 3; i++) {
		rig_take_atomic(rig, FIRST + i, IB_OP_FETCH_ADD, 64, 1, 0);
		assert_int_equal(
		        rig_expect(rig, IB_RC + IB_OP_ATOMIC_ACK, FIRST + i)->atomicack.original,
		        10 + i);
	}
	for (uint32_t i = 3; i-- > 1;) {
		rig_take_atomic(rig, FIRST + i, IB_OP_FETCH_ADD, 64, 1, 0);
		assert_int_equal(
		        rig_expect(rig, IB_RC + IB_OP_ATOMIC_ACK, FIRST + i)->atomicack.original,
		        10 + i);
	}
	rig_expect_none(rig);
	rig_take_atomic(rig, FIRST - 5, IB_OP_FETCH_ADD, 64, 1, 0);
	rig_expect_none(rig);
	assert_int_equal(word(rig, 64), 13);
}

/* --- gaps --- */

/* C9-112: a gap is told once, with the PSN that is missing; nothing behind it is executed before
 * that has come. */
static void a_gap_is_told_once(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	rig_take_write(rig, FIRST, 0);
	rig_expect_answer(rig, FIRST, IB_AETH_ACK, -1, 1);
	for (uint32_t i = 2; i < 6; i++)
		rig_take_write(rig, FIRST + i, 1024);
	rig_expect_answer(rig, FIRST + 1, IB_AETH_NAK, IB_NAK_PSN_SEQUENCE_ERROR, 1);
	rig_expect_none(rig);
	assert_true(rig_holds(rig, 1024, 0, 1024, 16));
	rig_take_write(rig, FIRST + 1, 2048);
	rig_expect_answer(rig, FIRST + 1, IB_AETH_ACK, -1, 2);
	assert_true(rig_holds(rig, 2048, RIG_RDMA_SEED, 0, 16));
	/* The next gap is another one. */
	rig_take_write(rig, FIRST + 4, 1024);
	rig_expect_answer(rig, FIRST + 2, IB_AETH_NAK, IB_NAK_PSN_SEQUENCE_ERROR, 2);
	rig_expect_none(rig);
	assert_int_equal(rig_state(rig), HDL_QPS_RTS);
	assert_true(rig_holds(rig, 1024, 0, 1024, 16));
}

/* A packet is lost in the middle of a message: the rest waits for it. */
static void a_gap_within_a_message(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	rig_recv(rig, 1, 4096, 1000);
	rig_take_send(rig, IB_OP_SEND_FIRST, FIRST, 20, 256);
	rig_skip(rig);
	rig_take_send(rig, IB_OP_SEND_LAST, FIRST + 2, 22, 100);
	rig_expect_answer(rig, FIRST + 1, IB_AETH_NAK, IB_NAK_PSN_SEQUENCE_ERROR, 0);
	rig_no_completion(rig, rig->rcq);
	rig_take_send(rig, IB_OP_SEND_MIDDLE, FIRST + 1, 21, 256);
	rig_skip(rig);
	rig_take_send(rig, IB_OP_SEND_LAST, FIRST + 2, 22, 100);
	rig_expect_answer(rig, FIRST + 2, IB_AETH_ACK, -1, 1);
	assert_int_equal(rig_completion(rig, rig->rcq, 1, HDL_WC_SUCCESS).byte_len, 612);
	for (uint32_t i = 0; i < 3; i++)
		assert_true(rig_holds(rig, 4096 + 256 * i, 20 + i, 0, i < 2 ? 256 : 100));
}

/* --- not ready --- */

static void no_receive_is_told_with_the_timer(void **state)
{
	struct rig *rig = *state;
	static const uint8_t codes[] = {1, 12, 31};
	for (uint32_t c = 0; c < COUNT(codes); c++) {
		rig_qp(rig, &(struct rig_options){.min_rnr_timer = codes[c]});
		rig_take_send(rig, IB_OP_SEND_ONLY, FIRST, 9, 16);
		rig_expect_answer(rig, FIRST, IB_AETH_RNR_NAK, codes[c], 0);
		/* What follows was sent before it was heard, and gets no answer of its own. */
		rig_take_write(rig, FIRST + 1, 0);
		rig_take_send(rig, IB_OP_SEND_ONLY, FIRST + 2, 9, 16);
		rig_expect_none(rig);
		assert_true(rig_holds(rig, 0, 0, 0, 16));
		rig_take_send(rig, IB_OP_SEND_ONLY, FIRST, 9, 16);
		rig_expect_answer(rig, FIRST, IB_AETH_RNR_NAK, codes[c], 0);
		rig_recv(rig, 1, 1024, 16);
		rig_take_send(rig, IB_OP_SEND_ONLY, FIRST, 9, 16);
		rig_expect_answer(rig, FIRST, IB_AETH_ACK, -1, 1);
		rig_completion(rig, rig->rcq, 1, HDL_WC_SUCCESS);
	}
}

/* A write with immediate data needs its receive at the end, where the immediate is. */
static void no_receive_for_immediate_data(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	struct ib_packet first = rig_rdma(rig, IB_OP_WRITE_FIRST, FIRST, 1024, 300, 256);
	rig_take(rig, &first);
	rig_skip(rig);
	struct ib_packet last = rig_data(rig, IB_RC + IB_OP_WRITE_LAST_IMM, FIRST + 1, 5, 44);
	last.immdt.data = 77;
	rig_take(rig, &last);
	rig_expect_answer(rig, FIRST + 1, IB_AETH_RNR_NAK, 1, 0);
	rig_recv(rig, 1, 0, 0);
	last = rig_data(rig, IB_RC + IB_OP_WRITE_LAST_IMM, FIRST + 1, 5, 44);
	last.immdt.data = 77;
	rig_take(rig, &last);
	rig_expect_answer(rig, FIRST + 1, IB_AETH_ACK, -1, 1);
	assert_int_equal(rig_completion(rig, rig->rcq, 1, HDL_WC_SUCCESS).byte_len, 300);
	assert_true(rig_holds(rig, 1024, RIG_RDMA_SEED, 0, 256));
	assert_true(rig_holds(rig, 1280, 5, 0, 44));
}

/* Section 9.7.7.2: an ACK tells how many receives there are, or that it does not tell. */
static void credits_are_no_more_than_receives(void **state)
{
	static const uint16_t counts[] = {0,    1,    2,    3,     4,     6,     8,    12,
	                                  16,   24,   32,   48,    64,    96,    128,  192,
	                                  256,  384,  512,  768,   1024,  1536,  2048, 3072,
	                                  4096, 6144, 8192, 12288, 16384, 24576, 32768};
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	for (uint32_t i = 0; i < 20; i++) {
		rig_recv(rig, i, 0, 16);
		rig_take_write(rig, FIRST + i, 1024);
		const struct ib_packet *ack = rig_expect(rig, IB_RC + IB_OP_ACK, FIRST + i);
		uint8_t code = ib_aeth_value(ack->aeth.syndrome);
		assert_true(code == IB_AETH_NO_CREDITS || counts[code] <= i + 1);
	}
}

/* A carrier that takes nothing for a while holds the answers up. What cannot be executed meanwhile
 * was never here. */
static void answers_wait_for_room(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	rig->full = true;
	struct ib_packet read = rig_rdma(rig, IB_OP_READ_REQUEST, FIRST, 512, 600, 0);
	rig_take(rig, &read);
	set_word(rig, 64, 5);
	rig_take_atomic(rig, FIRST + 3, IB_OP_FETCH_ADD, 64, 1, 0);
	rig_take_write(rig, FIRST + 4, 8192);
	rig_expect_none(rig);
	rig->full = false;
	rig_run(rig);
	expect_read(rig, FIRST, 512, 600, 1);
	rig_skip(rig);
	rig_take_atomic(rig, FIRST + 3, IB_OP_FETCH_ADD, 64, 1, 0);
	assert_int_equal(rig_expect(rig, IB_RC + IB_OP_ATOMIC_ACK, FIRST + 3)->atomicack.original,
	                 5);
	assert_int_equal(word(rig, 64), 6);
	rig_take_write(rig, FIRST + 4, 8192);
	rig_expect_answer(rig, FIRST + 4, IB_AETH_ACK, -1, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        RIGGED(messages_are_counted_and_psns_wrap),
	        RIGGED(a_message_of_several_packets),
	        RIGGED(zero_length_everything),
	        RIGGED(one_ack_for_many),
	        RIGGED(reads_are_answered_in_packets),
	        RIGGED(atomics_give_what_was_there),
	        RIGGED(a_duplicate_is_acknowledged_alone),
	        RIGGED(a_duplicate_before_a_read_is_not_the_reads_answer),
	        RIGGED(a_duplicate_read_is_read_again),
	        RIGGED(parts_of_a_duplicate_read_are_answered_each),
	        RIGGED(a_duplicate_atomic_is_executed_once),
	        RIGGED(a_gap_is_told_once),
	        RIGGED(a_gap_within_a_message),
	        RIGGED(no_receive_is_told_with_the_timer),
	        RIGGED(no_receive_for_immediate_data),
	        RIGGED(credits_are_no_more_than_receives),
	        RIGGED(answers_wait_for_room),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
