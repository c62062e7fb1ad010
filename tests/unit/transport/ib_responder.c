/* The responder of a reliable connection, packet by packet (IBTA volume 1 section 9.7): what it executes, what it answers, and what
 * becomes of the queue pair. */
#include "ib_rig.h"

#define SEED        3u
#define FIRST       RIG_RQ_PSN
#define WRITE_BYTES 16u

static struct ib_packet rdma(struct rig *rig, uint8_t opcode, uint32_t psn, size_t offset,
                             uint32_t length, size_t payload)
{
	struct ib_packet packet = rig_data(rig, (uint8_t)(IB_RC + opcode), psn, SEED, payload);
	packet.reth.addr = rig_address(rig, offset);
	packet.reth.rkey = hdl_mr_key(rig->mr).v;
	packet.reth.length_bytes = length;
	return packet;
}

static void take_write(struct rig *rig, uint32_t psn, size_t offset)
{
	struct ib_packet packet =
	        rdma(rig, IB_OP_WRITE_ONLY, psn, offset, WRITE_BYTES, WRITE_BYTES);
	rig_take(rig, &packet);
}

static void take_send(struct rig *rig, uint8_t opcode, uint32_t psn, uint32_t seed, size_t bytes)
{
	struct ib_packet packet = rig_data(rig, (uint8_t)(IB_RC + opcode), psn, seed, bytes);
	rig_take(rig, &packet);
}

static void take_atomic(struct rig *rig, uint32_t psn, uint8_t opcode, size_t offset,
                        uint64_t swap_or_add, uint64_t compare)
{
	struct ib_packet packet = rig_packet(rig, (uint8_t)(IB_RC + opcode), psn);
	packet.atomiceth.addr = rig_address(rig, offset);
	packet.atomiceth.rkey = hdl_mr_key(rig->mr).v;
	packet.atomiceth.swap_or_add = swap_or_add;
	packet.atomiceth.compare = compare;
	rig_take(rig, &packet);
}

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
		take_send(rig, IB_OP_SEND_ONLY, psn, i, 40 + i);
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
	take_send(rig, IB_OP_SEND_ONLY, FIRST, 0, 0);
	rig_expect_answer(rig, FIRST, IB_AETH_ACK, -1, 1);
	assert_int_equal(rig_completion(rig, rig->rcq, 1, HDL_WC_SUCCESS).byte_len, 0);
	/* C9-88: the key of nothing is not looked at. */
	struct ib_packet write = rdma(rig, IB_OP_WRITE_ONLY, FIRST + 1, 0, 0, 0);
	write.reth.rkey = 0xdeadbeef;
	rig_take(rig, &write);
	rig_expect_answer(rig, FIRST + 1, IB_AETH_ACK, -1, 2);
	struct ib_packet read = rdma(rig, IB_OP_READ_REQUEST, FIRST + 2, 0, 0, 0);
	read.reth.rkey = 0xdeadbeef;
	rig_take(rig, &read);
	const struct ib_packet *response =
	        rig_expect(rig, IB_RC + IB_OP_READ_RESPONSE_ONLY, FIRST + 2);
	assert_int_equal(response->payload_bytes, 0);
	assert_int_equal(response->aeth.msn, 3);
	rig_recv(rig, 2, 0, 0);
	struct ib_packet immediate = rdma(rig, IB_OP_WRITE_ONLY_IMM, FIRST + 3, 0, 0, 0);
	immediate.immdt.data = 0x01020304;
	rig_take(rig, &immediate);
	rig_expect_answer(rig, FIRST + 3, IB_AETH_ACK, -1, 4);
	struct hdl_wc wc = rig_completion(rig, rig->rcq, 2, HDL_WC_SUCCESS);
	assert_int_equal(wc.opcode, HDL_WC_RECV_WRITE_IMM);
	assert_int_equal(wc.flags, HDL_WC_WITH_IMM);
	assert_int_equal(wc.byte_len, 0);
	rig_expect_none(rig);
}

/* Section 9.7.5.1.2: without AckReq an answer may wait for the one that is asked for, which speaks for all before it. */
static void one_ack_for_many(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	for (uint32_t i = 0; i < 8; i++) {
		struct ib_packet packet = rdma(rig, IB_OP_WRITE_ONLY, FIRST + i, 64 * i, 16, 16);
		packet.bth.ack_request = i == 7;
		rig_take(rig, &packet);
		assert_true(rig_holds(rig, 64 * i, SEED, 0, 16));
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
		struct ib_packet read = rdma(rig, IB_OP_READ_REQUEST, psn, 100 * i, lengths[i], 0);
		rig_take(rig, &read);
		expect_read(rig, psn, 100 * i, lengths[i], (int)i + 1);
		psn += (lengths[i] + 255) / 256; /* C9-92: a PSN for each of them */
	}
	rig_expect_none(rig);
	take_write(rig, psn, 8192);
	rig_expect_answer(rig, psn, IB_AETH_ACK, -1, COUNT(lengths) + 1);
}

static void atomics_give_what_was_there(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	set_word(rig, 64, 40);
	take_atomic(rig, FIRST, IB_OP_FETCH_ADD, 64, 2, 0);
	const struct ib_packet *ack = rig_expect(rig, IB_RC + IB_OP_ATOMIC_ACK, FIRST);
	assert_int_equal(ack->atomicack.original, 40);
	assert_int_equal(ack->aeth.msn, 1);
	assert_int_equal(word(rig, 64), 42);
	take_atomic(rig, FIRST + 1, IB_OP_COMPARE_SWAP, 64, 7, 42);
	assert_int_equal(rig_expect(rig, IB_RC + IB_OP_ATOMIC_ACK, FIRST + 1)->atomicack.original,
	                 42);
	assert_int_equal(word(rig, 64), 7);
	take_atomic(rig, FIRST + 2, IB_OP_COMPARE_SWAP, 64, 9, 42);
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
	take_send(rig, IB_OP_SEND_ONLY, FIRST, 9, 16);
	take_write(rig, FIRST + 1, 4096);
	rig_completion(rig, rig->rcq, 1, HDL_WC_SUCCESS);
	rig_skip(rig);
	memset(rig->mem + 4096, 0x11, 16);
	memset(rig->mem + 1024, 0x22, 16);
	for (uint32_t i = 0; i < 4; i++) {
		if (i % 2)
			take_write(rig, FIRST + 1, 4096);
		else
			take_send(rig, IB_OP_SEND_ONLY, FIRST, 9, 16);
		/* It speaks for all that was executed. */
		rig_expect_answer(rig, FIRST + 1, IB_AETH_ACK, -1, 2);
		rig_expect_none(rig);
	}
	rig_no_completion(rig, rig->rcq);
	assert_int_equal(rig->mem[4096], 0x11);
	assert_int_equal(rig->mem[1024], 0x22);
	/* Half the space behind what is expected are duplicates, the other half is to come. */
	take_write(rig, FIRST + 2 - (1u << 23), 4096);
	rig_expect_answer(rig, FIRST + 1, IB_AETH_ACK, -1, 2);
	take_write(rig, FIRST + 2 + (1u << 23) - 1, 4096);
	rig_expect_answer(rig, FIRST + 2, IB_AETH_NAK, IB_NAK_PSN_SEQUENCE_ERROR, 2);
	assert_int_equal(rig->mem[4096], 0x11);
	assert_int_equal(rig_state(rig), HDL_QPS_RTS);
}

/* It does not speak for a read behind it: the response may be what was lost. */
static void a_duplicate_before_a_read_is_not_the_reads_answer(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	take_write(rig, FIRST, 4096);
	struct ib_packet read = rdma(rig, IB_OP_READ_REQUEST, FIRST + 1, 512, 1000, 0);
	rig_take(rig, &read);
	rig_skip(rig);
	take_write(rig, FIRST, 4096);
	rig_expect_answer(rig, FIRST, IB_AETH_ACK, -1, 2);
	rig_expect_none(rig);
	take_write(rig, FIRST + 5, 8192);
	rig_expect_answer(rig, FIRST + 5, IB_AETH_ACK, -1, 3);
	take_write(rig, FIRST + 5, 8192);
	rig_expect_answer(rig, FIRST + 5, IB_AETH_ACK, -1, 3);
	rig_expect_none(rig);
}

/* C9-106: a duplicate read is executed again, from wherever it was interrupted. */
static void a_duplicate_read_is_read_again(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	struct ib_packet read = rdma(rig, IB_OP_READ_REQUEST, FIRST, 512, 1000, 0);
	rig_take(rig, &read);
	expect_read(rig, FIRST, 512, 1000, 1);
	take_write(rig, FIRST + 4, 8192);
	rig_expect_answer(rig, FIRST + 4, IB_AETH_ACK, -1, 2);
	rig_take(rig, &read);
	expect_read(rig, FIRST, 512, 1000, -1);
	rig_expect_none(rig);
	struct ib_packet rest = rdma(rig, IB_OP_READ_REQUEST, FIRST + 2, 512 + 512, 488, 0);
	rig_take(rig, &rest);
	expect_read(rig, FIRST + 2, 1024, 488, -1);
	rig_expect_none(rig);
	take_write(rig, FIRST + 5, 8192);
	rig_expect_answer(rig, FIRST + 5, IB_AETH_ACK, -1, 3);
}

/* One that is asked for again in smaller requests: each of them is answered, also where there is no room for it at once. */
static void parts_of_a_duplicate_read_are_answered_each(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	struct ib_packet read = rdma(rig, IB_OP_READ_REQUEST, FIRST, 512, 256 * 8, 0);
	rig_take(rig, &read);
	rig_skip(rig);
	rig->full = true;
	for (uint32_t i = 2; i < 8; i += 2) {
		read = rdma(rig, IB_OP_READ_REQUEST, FIRST + i, 512 + 256 * i, 512, 0);
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
		take_atomic(rig, FIRST + i, IB_OP_FETCH_ADD, 64, 1, 0);
		assert_int_equal(
		        rig_expect(rig, IB_RC + IB_OP_ATOMIC_ACK, FIRST + i)->atomicack.original,
		        10 + i);
	}
	for (uint32_t i = 3; i-- > 1;) {
		take_atomic(rig, FIRST + i, IB_OP_FETCH_ADD, 64, 1, 0);
		assert_int_equal(
		        rig_expect(rig, IB_RC + IB_OP_ATOMIC_ACK, FIRST + i)->atomicack.original,
		        10 + i);
	}
	rig_expect_none(rig);
	take_atomic(rig, FIRST - 5, IB_OP_FETCH_ADD, 64, 1, 0);
	rig_expect_none(rig);
	assert_int_equal(word(rig, 64), 13);
}

/* --- gaps --- */

/* C9-112: a gap is told once, with the PSN that is missing; nothing behind it is executed before that has come. */
static void a_gap_is_told_once(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	take_write(rig, FIRST, 0);
	rig_expect_answer(rig, FIRST, IB_AETH_ACK, -1, 1);
	for (uint32_t i = 2; i < 6; i++)
		take_write(rig, FIRST + i, 1024);
	rig_expect_answer(rig, FIRST + 1, IB_AETH_NAK, IB_NAK_PSN_SEQUENCE_ERROR, 1);
	rig_expect_none(rig);
	assert_true(rig_holds(rig, 1024, 0, 1024, 16));
	take_write(rig, FIRST + 1, 2048);
	rig_expect_answer(rig, FIRST + 1, IB_AETH_ACK, -1, 2);
	assert_true(rig_holds(rig, 2048, SEED, 0, 16));
	/* The next gap is another one. */
	take_write(rig, FIRST + 4, 1024);
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
	take_send(rig, IB_OP_SEND_FIRST, FIRST, 20, 256);
	rig_skip(rig);
	take_send(rig, IB_OP_SEND_LAST, FIRST + 2, 22, 100);
	rig_expect_answer(rig, FIRST + 1, IB_AETH_NAK, IB_NAK_PSN_SEQUENCE_ERROR, 0);
	rig_no_completion(rig, rig->rcq);
	take_send(rig, IB_OP_SEND_MIDDLE, FIRST + 1, 21, 256);
	rig_skip(rig);
	take_send(rig, IB_OP_SEND_LAST, FIRST + 2, 22, 100);
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
		take_send(rig, IB_OP_SEND_ONLY, FIRST, 9, 16);
		rig_expect_answer(rig, FIRST, IB_AETH_RNR_NAK, codes[c], 0);
		/* What follows was sent before it was heard, and gets no answer of its own. */
		take_write(rig, FIRST + 1, 0);
		take_send(rig, IB_OP_SEND_ONLY, FIRST + 2, 9, 16);
		rig_expect_none(rig);
		assert_true(rig_holds(rig, 0, 0, 0, 16));
		take_send(rig, IB_OP_SEND_ONLY, FIRST, 9, 16);
		rig_expect_answer(rig, FIRST, IB_AETH_RNR_NAK, codes[c], 0);
		rig_recv(rig, 1, 1024, 16);
		take_send(rig, IB_OP_SEND_ONLY, FIRST, 9, 16);
		rig_expect_answer(rig, FIRST, IB_AETH_ACK, -1, 1);
		rig_completion(rig, rig->rcq, 1, HDL_WC_SUCCESS);
	}
}

/* A write with immediate data needs its receive at the end, where the immediate is. */
static void no_receive_for_immediate_data(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	struct ib_packet first = rdma(rig, IB_OP_WRITE_FIRST, FIRST, 1024, 300, 256);
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
	assert_true(rig_holds(rig, 1024, SEED, 0, 256));
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
		take_write(rig, FIRST + i, 1024);
		const struct ib_packet *ack = rig_expect(rig, IB_RC + IB_OP_ACK, FIRST + i);
		uint8_t code = ib_aeth_value(ack->aeth.syndrome);
		assert_true(code == IB_AETH_NO_CREDITS || counts[code] <= i + 1);
	}
}

/* --- refusals --- */

static void expect_refusal(struct rig *rig, uint32_t psn, uint8_t code, uint32_t event,
                           uint32_t detail)
{
	rig_expect_answer(rig, psn, IB_AETH_NAK, code, -1);
	rig_expect_none(rig);
	assert_int_equal(rig_state(rig), HDL_QPS_ERR);
	rig_expect_event(rig, event, detail);
	rig_no_event(rig);
	/* From now on there is nobody. */
	take_write(rig, psn, 0);
	take_write(rig, psn + 1, 0);
	rig_expect_none(rig);
	assert_true(rig_holds(rig, 0, 0, 0, 16));
}

/* C9-81 to C9-87, table 35: which opcode may follow which. */
static void opcodes_out_of_order(void **state)
{
	static const uint8_t rows[][3] = {
	        {IB_OP_SEND_MIDDLE},
	        {IB_OP_SEND_LAST},
	        {IB_OP_SEND_LAST_IMM},
	        {IB_OP_SEND_LAST_INV},
	        {IB_OP_WRITE_MIDDLE},
	        {IB_OP_WRITE_LAST},
	        {IB_OP_WRITE_LAST_IMM},
	        {IB_OP_SEND_FIRST, 1 + IB_OP_SEND_FIRST},
	        {IB_OP_SEND_FIRST, 1 + IB_OP_SEND_ONLY},
	        {IB_OP_SEND_FIRST, 1 + IB_OP_WRITE_MIDDLE},
	        {IB_OP_SEND_FIRST, 1 + IB_OP_WRITE_LAST},
	        {IB_OP_SEND_FIRST, 1 + IB_OP_WRITE_ONLY},
	        {IB_OP_SEND_FIRST, 1 + IB_OP_READ_REQUEST},
	        {IB_OP_SEND_FIRST, 1 + IB_OP_FETCH_ADD},
	        {IB_OP_SEND_FIRST, 1 + IB_OP_SEND_MIDDLE, 1 + IB_OP_WRITE_LAST},
	        {IB_OP_WRITE_FIRST, 1 + IB_OP_SEND_MIDDLE},
	        {IB_OP_WRITE_FIRST, 1 + IB_OP_SEND_LAST},
	        {IB_OP_WRITE_FIRST, 1 + IB_OP_WRITE_FIRST},
	        {IB_OP_WRITE_FIRST, 1 + IB_OP_WRITE_ONLY},
	        {IB_OP_WRITE_FIRST, 1 + IB_OP_READ_REQUEST},
	        {IB_OP_WRITE_FIRST, 1 + IB_OP_COMPARE_SWAP},
	        {IB_OP_WRITE_FIRST, 1 + IB_OP_WRITE_MIDDLE, 1 + IB_OP_SEND_LAST},
	};
	struct rig *rig = *state;
	for (uint32_t i = 0; i < COUNT(rows); i++) {
		uint32_t psn = FIRST;
		rig_qp(rig, NULL);
		rig_recv(rig, 1, 4096, 2000);
		for (uint32_t n = 0; n < 3 && (n == 0 || rows[i][n] != 0); n++) {
			uint8_t opcode = (uint8_t)(n == 0 ? rows[i][0] : rows[i][n] - 1);
			bool whole = opcode == IB_OP_READ_REQUEST || opcode == IB_OP_FETCH_ADD ||
			             opcode == IB_OP_COMPARE_SWAP;
			struct ib_packet packet =
			        rdma(rig, opcode, psn, 8192, 1000, whole ? 0 : 256);
			packet.atomiceth.addr = rig_address(rig, 64);
			packet.atomiceth.rkey = hdl_mr_key(rig->mr).v;
			rig_skip(rig);
			rig_take(rig, &packet);
			psn++;
		}
		expect_refusal(rig, psn - 1, IB_NAK_INVALID_REQUEST, HDL_EVENT_QP_REQUEST_ERR,
		               HDL_DETAIL_NONE);
		struct hdl_wc wc;
		assert_int_equal(hdl_cq_poll(rig->rcq, &wc, 1), 1);
		assert_int_equal(wc.status, HDL_WC_WR_FLUSH_ERR);
	}
}

/* C9-90 and table 36: first and middle packets are full, the last one has something, none has more than the MTU; a write brings what
 * it announced. */
static void payloads_of_the_wrong_length(void **state)
{
	static const struct {
		uint8_t first;
		uint16_t first_bytes;
		uint8_t second; /* 0: none */
		uint16_t second_bytes;
		uint16_t announced;
	} rows[] = {
	        {IB_OP_SEND_FIRST, 255, 0, 0, 0},
	        {IB_OP_SEND_FIRST, 0, 0, 0, 0},
	        {IB_OP_SEND_FIRST, 260, 0, 0, 0},
	        {IB_OP_SEND_ONLY, 257, 0, 0, 0},
	        {IB_OP_SEND_FIRST, 256, IB_OP_SEND_MIDDLE, 255, 0},
	        {IB_OP_SEND_FIRST, 256, IB_OP_SEND_MIDDLE, 257, 0},
	        {IB_OP_SEND_FIRST, 256, IB_OP_SEND_LAST, 0, 0},
	        {IB_OP_SEND_FIRST, 256, IB_OP_SEND_LAST, 257, 0},
	        {IB_OP_WRITE_FIRST, 255, 0, 0, 1000},
	        {IB_OP_WRITE_ONLY, 257, 0, 0, 257},
	        {IB_OP_WRITE_ONLY, 16, 0, 0, 17},
	        {IB_OP_WRITE_ONLY, 16, 0, 0, 15},
	        {IB_OP_WRITE_ONLY, 0, 0, 0, 1},
	        {IB_OP_WRITE_FIRST, 256, IB_OP_WRITE_LAST, 43, 300},
	        {IB_OP_WRITE_FIRST, 256, IB_OP_WRITE_LAST, 45, 300},
	        {IB_OP_WRITE_FIRST, 256, IB_OP_WRITE_MIDDLE, 256, 300},
	};
	struct rig *rig = *state;
	for (uint32_t i = 0; i < COUNT(rows); i++) {
		rig_qp(rig, NULL);
		rig_recv(rig, 1, 4096, 2000);
		struct ib_packet packet = rdma(rig, rows[i].first, FIRST, 8192, rows[i].announced,
		                               rows[i].first_bytes);
		rig_take(rig, &packet);
		uint32_t psn = FIRST;
		if (rows[i].second != 0) {
			rig_skip(rig);
			packet = rig_data(rig, (uint8_t)(IB_RC + rows[i].second), ++psn, SEED,
			                  rows[i].second_bytes);
			rig_take(rig, &packet);
		}
		expect_refusal(rig, psn, IB_NAK_INVALID_REQUEST, HDL_EVENT_QP_REQUEST_ERR,
		               HDL_DETAIL_NONE);
		struct hdl_wc wc;
		assert_int_equal(hdl_cq_poll(rig->rcq, &wc, 1), 1);
		assert_int_equal(wc.status, HDL_WC_WR_FLUSH_ERR);
		assert_true(rig_holds(rig, 8192 + 300, 0, 8192 + 300, 300));
	}
}

/* C9-96 and following: key, bounds and rights. */
static void memory_that_is_not_granted(void **state)
{
	enum { KEY, BOUNDS, BEFORE, WRAPPED, RIGHTS, KINDS };
	static const uint32_t details[KINDS] = {HDL_DETAIL_INSTANCE, HDL_DETAIL_BOUNDS,
	                                        HDL_DETAIL_BOUNDS, HDL_DETAIL_BOUNDS,
	                                        HDL_DETAIL_ACCESS};
	static const uint8_t opcodes[] = {IB_OP_WRITE_ONLY, IB_OP_WRITE_FIRST, IB_OP_READ_REQUEST,
	                                  IB_OP_FETCH_ADD};
	struct rig *rig = *state;
	struct hdl_mr *local;
	assert_int_equal(hdl_mr_register(rig->pd, rig->mem, RIG_BYTES,
	                                 HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE, &local),
	                 0);
	for (uint32_t i = 0; i < KINDS * COUNT(opcodes); i++) {
		uint32_t kind = i / COUNT(opcodes);
		uint8_t opcode = opcodes[i % COUNT(opcodes)];
		rig_qp(rig, NULL);
		struct ib_packet packet = rdma(rig, opcode, FIRST, 0, 512,
		                               opcode == IB_OP_WRITE_FIRST  ? 256
		                               : opcode == IB_OP_WRITE_ONLY ? 200
		                                                            : 0);
		if (opcode == IB_OP_WRITE_ONLY)
			packet.reth.length_bytes = 200;
		if (kind == KEY)
			packet.reth.rkey ^= 1;
		else if (kind == BOUNDS)
			packet.reth.addr +=
			        RIG_BYTES -
			        192; /* nothing of it is placed, not the good part either */
		else if (kind == BEFORE)
			packet.reth.addr -= 8;
		else if (kind == WRAPPED)
			packet.reth.addr = UINT64_MAX - 7;
		else
			packet.reth.rkey = hdl_mr_key(local).v;
		packet.atomiceth.addr = kind == BOUNDS ? packet.reth.addr + 192 : packet.reth.addr;
		packet.atomiceth.rkey = packet.reth.rkey;
		rig_take(rig, &packet);
		expect_refusal(rig, FIRST, IB_NAK_REMOTE_ACCESS_ERROR, HDL_EVENT_QP_ACCESS_ERR,
		               details[kind]);
	}
	for (size_t i = 0; i < RIG_BYTES; i++)
		assert_int_equal(rig->mem[i], rig_byte(0, i));
	assert_int_equal(hdl_mr_deregister(local), 0);
}

static void requests_that_are_refused_as_such(void **state)
{
	struct rig *rig = *state;
	/* An atomic beside its word. */
	rig_qp(rig, NULL);
	take_atomic(rig, FIRST, IB_OP_FETCH_ADD, 65, 1, 0);
	expect_refusal(rig, FIRST, IB_NAK_INVALID_REQUEST, HDL_EVENT_QP_REQUEST_ERR,
	               HDL_DETAIL_MISALIGNED);
	/* A queue pair that grants nothing. */
	static const uint8_t opcodes[] = {IB_OP_WRITE_ONLY, IB_OP_READ_REQUEST, IB_OP_FETCH_ADD};
	for (uint32_t i = 0; i < COUNT(opcodes); i++) {
		rig_qp(rig, &(struct rig_options){.no_access = true});
		struct ib_packet packet =
		        rdma(rig, opcodes[i], FIRST, 0, 8, opcodes[i] == IB_OP_WRITE_ONLY ? 8 : 0);
		packet.atomiceth.addr = rig_address(rig, 0);
		packet.atomiceth.rkey = hdl_mr_key(rig->mr).v;
		rig_take(rig, &packet);
		expect_refusal(rig, FIRST, IB_NAK_INVALID_REQUEST, HDL_EVENT_QP_REQUEST_ERR,
		               HDL_DETAIL_NONE);
	}
	/* A receive that is too small: the receiver's completion tells it. */
	rig_qp(rig, NULL);
	rig_recv(rig, 1, 4096, 299);
	take_send(rig, IB_OP_SEND_FIRST, FIRST, 20, 256);
	rig_skip(rig);
	take_send(rig, IB_OP_SEND_LAST, FIRST + 1, 21, 44);
	rig_expect_answer(rig, FIRST + 1, IB_AETH_NAK, IB_NAK_INVALID_REQUEST, -1);
	rig_completion(rig, rig->rcq, 1, HDL_WC_LOC_LEN_ERR);
	assert_int_equal(rig_state(rig), HDL_QPS_ERR);
	assert_true(rig_holds(rig, 4096 + 299, 0, 4096 + 299, 100));
}

/* --- packets that are nobody's --- */

static void strangers_get_no_answer(void **state)
{
	enum { OTHER_SOURCE, OTHER_PKEY, OTHER_NUMBER, UNRELIABLE, DATAGRAM, RESERVED, KINDS };
	struct rig *rig = *state;
	struct hdl_gid elsewhere = {{0xfe, 0x80, [15] = 3}};
	rig_qp(rig, NULL);
	rig_recv(rig, 1, 4096, 64);
	for (uint32_t kind = 0; kind < KINDS; kind++) {
		struct ib_packet packet = rdma(rig, IB_OP_WRITE_ONLY, FIRST, 0, 16, 16);
		if (kind == OTHER_PKEY)
			packet.bth.pkey = 0x1234;
		else if (kind == OTHER_NUMBER)
			packet.bth.dest_qp ^= 0x40;
		else if (kind == UNRELIABLE)
			packet.bth.opcode = IB_UC + IB_OP_WRITE_ONLY;
		else if (kind == DATAGRAM)
			packet.bth.opcode = IB_UD + IB_OP_SEND_ONLY;
		else if (kind == RESERVED)
			packet.bth.opcode = IB_XRC + IB_OP_SEND_ONLY;
		rig_take_from(rig, &packet, kind == OTHER_SOURCE ? &elsewhere : &rig->peer);
		rig_expect_none(rig);
		assert_true(rig_holds(rig, 0, 0, 0, 16));
	}
	assert_int_equal(rig_state(rig), HDL_QPS_RTS);
	rig_no_event(rig);
	/* A limited member of the partition may talk to a full one; and old senders leave MigReq clear. */
	struct ib_packet packet = rdma(rig, IB_OP_WRITE_ONLY, FIRST, 0, 16, 16);
	packet.bth.pkey = 0x7fff;
	packet.bth.migreq = false;
	rig_take(rig, &packet);
	rig_expect_answer(rig, FIRST, IB_AETH_ACK, -1, 1);
}

/* The states in which there is somebody (section 10.3.1). */
static void states_that_answer(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, &(struct rig_options){.stay_rtr = true});
	rig_recv(rig, 1, 4096, 64);
	take_send(rig, IB_OP_SEND_ONLY, FIRST, 5, 16);
	rig_expect_answer(rig, FIRST, IB_AETH_ACK, -1, 1);
	rig_completion(rig, rig->rcq, 1, HDL_WC_SUCCESS);
	rig_expect_event(rig, HDL_EVENT_COMM_EST, HDL_DETAIL_NONE);
	rig_qp(rig, NULL);
	struct hdl_qp_attr attr = {.state = HDL_QPS_SQD};
	assert_int_equal(hdl_qp_modify(rig->qp, &attr, HDL_QP_STATE), 0);
	rig_run(rig);
	take_write(rig, FIRST, 0);
	rig_expect_answer(rig, FIRST, IB_AETH_ACK, -1, 1);
	attr.state = HDL_QPS_ERR;
	assert_int_equal(hdl_qp_modify(rig->qp, &attr, HDL_QP_STATE), 0);
	take_write(rig, FIRST + 1, 1024);
	rig_expect_none(rig);
	attr.state = HDL_QPS_RESET;
	assert_int_equal(hdl_qp_modify(rig->qp, &attr, HDL_QP_STATE), 0);
	take_write(rig, FIRST + 1, 1024);
	rig_expect_none(rig);
	assert_true(rig_holds(rig, 1024, 0, 1024, 16));
}

/* A carrier that takes nothing for a while holds the answers up. What cannot be executed meanwhile was never here. */
static void answers_wait_for_room(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	rig->full = true;
	struct ib_packet read = rdma(rig, IB_OP_READ_REQUEST, FIRST, 512, 600, 0);
	rig_take(rig, &read);
	set_word(rig, 64, 5);
	take_atomic(rig, FIRST + 3, IB_OP_FETCH_ADD, 64, 1, 0);
	take_write(rig, FIRST + 4, 8192);
	rig_expect_none(rig);
	rig->full = false;
	rig_run(rig);
	expect_read(rig, FIRST, 512, 600, 1);
	rig_skip(rig);
	take_atomic(rig, FIRST + 3, IB_OP_FETCH_ADD, 64, 1, 0);
	assert_int_equal(rig_expect(rig, IB_RC + IB_OP_ATOMIC_ACK, FIRST + 3)->atomicack.original,
	                 5);
	assert_int_equal(word(rig, 64), 6);
	take_write(rig, FIRST + 4, 8192);
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
	        RIGGED(opcodes_out_of_order),
	        RIGGED(payloads_of_the_wrong_length),
	        RIGGED(memory_that_is_not_granted),
	        RIGGED(requests_that_are_refused_as_such),
	        RIGGED(strangers_get_no_answer),
	        RIGGED(states_that_answer),
	        RIGGED(answers_wait_for_room),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
