/* Reads and atomics of a reliable connection, as their requester sees them, packet by packet (IBTA
 * volume 1 sections 9.7.3 to 9.7.8): how they are cut, what their answers bring, and what is asked
 * for again when one is lost. */
#include "ib_rig.h"

#define FIRST RIG_SQ_PSN

static void post_atomic(struct rig *rig, uint64_t wr_id, uint32_t opcode, size_t offset,
                        uint64_t compare_add, uint64_t swap)
{
	struct hdl_send_wr wr = {.wr_id = wr_id,
	                         .opcode = opcode,
	                         .u.atomic = {.addr = RIG_PEER_AT - RIG_PEER_AT % 8,
	                                      .key = {RIG_PEER_KEY},
	                                      .compare_add = compare_add,
	                                      .swap = swap}};
	rig_post(rig, wr, offset, 8);
}

static void reads_take_as_many_psns_as_answers(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	rig_send(rig, 0, HDL_OP_SEND, 0, 10);
	rig_post_rdma(rig, 1, HDL_OP_READ, 4096, 600);
	rig_send(rig, 2, HDL_OP_SEND, 0, 10);
	rig_expect(rig, IB_RC + IB_OP_SEND_ONLY, FIRST);
	const struct ib_packet *read = rig_expect(rig, IB_RC + IB_OP_READ_REQUEST, FIRST + 1);
	assert_int_equal(read->reth.addr, RIG_PEER_AT);
	assert_int_equal(read->reth.rkey, RIG_PEER_KEY);
	assert_int_equal(read->reth.length_bytes, 600);
	rig_expect(rig, IB_RC + IB_OP_SEND_ONLY, FIRST + 4);
	/* An answer to the read speaks for the send before it. */
	rig_read_response(rig, IB_OP_READ_RESPONSE_FIRST, FIRST + 1, 9, 0, 256);
	rig_completion(rig, rig->scq, 0, HDL_WC_SUCCESS);
	rig_no_completion(rig, rig->scq);
	rig_read_response(rig, IB_OP_READ_RESPONSE_MIDDLE, FIRST + 2, 9, 256, 256);
	rig_read_response(rig, IB_OP_READ_RESPONSE_LAST, FIRST + 3, 9, 512, 88);
	assert_int_equal(rig_completion(rig, rig->scq, 1, HDL_WC_SUCCESS).byte_len, 600);
	assert_true(rig_holds(rig, 4096, 9, 0, 600));
	assert_true(rig_holds(rig, 4096 + 600, 0, 4096 + 600, 100));
	rig_answer(rig, FIRST + 4, IB_AETH_ACK, IB_AETH_NO_CREDITS, 3);
	rig_completion(rig, rig->scq, 2, HDL_WC_SUCCESS);
	rig_expect_none(rig);
}

/* C9-76: an answer that is lost is asked for again from its first byte on, and what was lost behind
 * it too. */
static void a_lost_response_is_asked_for_again(void **state)
{
	struct rig *rig = *state;
	for (int by_timeout = 0; by_timeout < 2; by_timeout++) {
		rig_qp(rig, NULL);
		memset(rig->mem + 4096, 0, 1100);
		rig_post_rdma(rig, 1, HDL_OP_READ, 4096, 1100);
		rig_expect(rig, IB_RC + IB_OP_READ_REQUEST, FIRST);
		rig_read_response(rig, IB_OP_READ_RESPONSE_FIRST, FIRST, 9, 0, 256);
		if (!by_timeout) /* the next but one shows that the next is lost */
			rig_read_response(rig, IB_OP_READ_RESPONSE_MIDDLE, FIRST + 2, 9, 512, 256);
		rig_await(rig, 4 * RIG_TIMEOUT_NS);
		const struct ib_packet *read =
		        rig_expect(rig, IB_RC + IB_OP_READ_REQUEST, FIRST + 1);
		assert_int_equal(read->reth.addr, RIG_PEER_AT + 256);
		assert_int_equal(read->reth.length_bytes, 1100 - 256);
		rig_skip(rig);
		rig_read_response(rig, IB_OP_READ_RESPONSE_FIRST, FIRST + 1, 9, 256, 256);
		rig_read_response(rig, IB_OP_READ_RESPONSE_MIDDLE, FIRST + 2, 9, 512, 256);
		rig_read_response(rig, IB_OP_READ_RESPONSE_MIDDLE, FIRST + 3, 9, 768, 256);
		rig_no_completion(rig, rig->scq);
		rig_read_response(rig, IB_OP_READ_RESPONSE_LAST, FIRST + 4, 9, 1024, 76);
		rig_completion(rig, rig->scq, 1, HDL_WC_SUCCESS);
		assert_true(rig_holds(rig, 4096, 9, 0, 1100));
	}
}

/* Answer the request @read of a read of @length, but for one packet in eight or so once the window
 * has grown; *got counts those that came in order. */
static void answer_some(struct rig *rig, const struct ib_packet *read, uint32_t length,
                        uint32_t *answered, uint32_t *got)
{
	const uint32_t at = read->bth.psn - FIRST, count = (read->reth.length_bytes + 255) / 256;
	for (uint32_t i = 0; i < count; i++) {
		const uint32_t from = 256 * (at + i), left = length - from;
		const bool first = i == 0, last = i == count - 1;
		if (++*answered > 80 && *answered * 0x9e3779b1u >> 29 == 0)
			continue;
		*got += at + i == *got;
		rig_read_response(rig,
		                  first  ? last ? IB_OP_READ_RESPONSE_ONLY
		                                : IB_OP_READ_RESPONSE_FIRST
		                  : last ? IB_OP_READ_RESPONSE_LAST
		                         : IB_OP_READ_RESPONSE_MIDDLE,
		                  FIRST + at + i, 9, from, left < 256 ? left : 256);
	}
}

/* Whatever becomes of the window: one that is repeated asks for the rest of one that was sent
 * before, and ends where it ended. Responders need not know of any other kind (Linux's rdma_rxe
 * does not). */
static void a_read_is_repeated_as_it_was_cut(void **state)
{
	struct rig *rig = *state;
	enum { LENGTH = 50000, PACKETS = 196 };
	uint32_t ends[PACKETS] = {0}, expected = 0, answered = 0, repeats = 0, got = 0;
	const struct ib_packet *read;
	rig_qp(rig, NULL);
	memset(rig->mem + 4096, 0, LENGTH);
	rig_post_rdma(rig, 1, HDL_OP_READ, 4096, LENGTH);
	while (got < PACKETS) {
		if ((read = rig_look(rig)) == NULL) {
			rig_await(rig, 64 * RIG_TIMEOUT_NS);
			read = rig_look(rig);
		}
		const uint32_t at = read->bth.psn - FIRST;
		const uint32_t last = at + (read->reth.length_bytes - 1) / 256;
		assert_true(last < PACKETS && at <= expected);
		assert_int_equal(read->reth.addr, RIG_PEER_AT + 256 * at);
		repeats += at < expected;
		if (at < expected)
			assert_int_equal(last, ends[at]);
		for (; expected <= last; expected++)
			ends[expected] = last;
		answer_some(rig, read, LENGTH, &answered, &got);
	}
	assert_true(repeats > 5);
	rig_completion(rig, rig->scq, 1, HDL_WC_SUCCESS);
	assert_true(rig_holds(rig, 4096, 9, 0, LENGTH));
}

/* C9-74: an ACK for what lies behind a read whose answer has not come shows that it is lost. */
static void an_ack_behind_a_read_does_not_complete_it(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	rig_post_rdma(rig, 1, HDL_OP_READ, 4096, 100);
	rig_send(rig, 2, HDL_OP_SEND, 0, 10);
	rig_skip(rig);
	rig_answer(rig, FIRST + 1, IB_AETH_ACK, IB_AETH_NO_CREDITS, 2);
	rig_no_completion(rig, rig->scq);
	rig_await(rig, 4 * RIG_TIMEOUT_NS);
	rig_expect(rig, IB_RC + IB_OP_READ_REQUEST, FIRST);
	rig_read_response(rig, IB_OP_READ_RESPONSE_ONLY, FIRST, 9, 0, 100);
	rig_completion(rig, rig->scq, 1, HDL_WC_SUCCESS);
	assert_true(rig_holds(rig, 4096, 9, 0, 100));
}

static void answer_atomic(struct rig *rig, uint32_t psn, uint64_t original)
{
	struct ib_packet packet = rig_packet(rig, IB_RC + IB_OP_ATOMIC_ACK, psn);
	packet.aeth.syndrome = ib_aeth_syndrome(IB_AETH_ACK, IB_AETH_NO_CREDITS);
	packet.atomicack.original = original;
	rig_take(rig, &packet);
}

static void atomics_bring_what_was_there(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	post_atomic(rig, 1, HDL_OP_FETCH_ADD, 4096, 5, 0);
	const struct ib_packet *packet = rig_expect(rig, IB_RC + IB_OP_FETCH_ADD, FIRST);
	assert_int_equal(packet->atomiceth.addr, RIG_PEER_AT - RIG_PEER_AT % 8);
	assert_int_equal(packet->atomiceth.rkey, RIG_PEER_KEY);
	assert_int_equal(packet->atomiceth.swap_or_add, 5);
	answer_atomic(rig, FIRST, 0x1234);
	rig_completion(rig, rig->scq, 1, HDL_WC_SUCCESS);
	post_atomic(rig, 2, HDL_OP_COMPARE_SWAP, 4104, 6, 7);
	packet = rig_expect(rig, IB_RC + IB_OP_COMPARE_SWAP, FIRST + 1);
	assert_int_equal(packet->atomiceth.swap_or_add, 7);
	assert_int_equal(packet->atomiceth.compare, 6);
	uint64_t value;
	memcpy(&value, rig->mem + 4096, 8);
	assert_int_equal(value, 0x1234);
	/* The second answer is lost: the request goes again as it was. */
	rig_await(rig, 4 * RIG_TIMEOUT_NS);
	packet = rig_expect(rig, IB_RC + IB_OP_COMPARE_SWAP, FIRST + 1);
	assert_int_equal(packet->atomiceth.compare, 6);
	answer_atomic(rig, FIRST + 1, 99);
	rig_completion(rig, rig->scq, 2, HDL_WC_SUCCESS);
}

/* Section 9.7.3.4: no more reads and atomics at a time than the peer keeps resources for. */
static void reads_wait_for_resources(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, &(struct rig_options){.max_rd_atomic = 2});
	for (uint32_t i = 0; i < 4; i++)
		rig_post_rdma(rig, i, HDL_OP_READ, 4096 + 256 * i, 100);
	rig_expect(rig, IB_RC + IB_OP_READ_REQUEST, FIRST);
	rig_expect(rig, IB_RC + IB_OP_READ_REQUEST, FIRST + 1);
	rig_expect_none(rig);
	for (uint32_t i = 0; i < 4; i++) {
		rig_read_response(rig, IB_OP_READ_RESPONSE_ONLY, FIRST + i, i, 0, 100);
		rig_completion(rig, rig->scq, i, HDL_WC_SUCCESS);
		if (i < 2)
			rig_expect(rig, IB_RC + IB_OP_READ_REQUEST, FIRST + 2 + i);
		rig_expect_none(rig);
	}
}

static void a_fence_waits_for_reads(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	rig_post_rdma(rig, 1, HDL_OP_READ, 4096, 100);
	rig_post(rig,
	         (struct hdl_send_wr){.wr_id = 2, .opcode = HDL_OP_SEND, .flags = HDL_SEND_FENCE},
	         4096, 100);
	rig_expect(rig, IB_RC + IB_OP_READ_REQUEST, FIRST);
	rig_expect_none(rig);
	rig_read_response(rig, IB_OP_READ_RESPONSE_ONLY, FIRST, 9, 0, 100);
	const struct ib_packet *packet = rig_expect(rig, IB_RC + IB_OP_SEND_ONLY, FIRST + 1);
	for (uint32_t i = 0; i < 100; i++)
		assert_int_equal(packet->payload[i], rig_byte(9, i));
}

/* Responses that were not asked for, or bring more or less than was: no byte beside the target, and
 * the request does not succeed. */
static void responses_that_lie(void **state)
{
	static const struct {
		uint8_t opcode;
		uint32_t psn_ahead, bytes;
	} rows[] = {{IB_OP_READ_RESPONSE_ONLY, 0, 200},  {IB_OP_READ_RESPONSE_ONLY, 0, 256},
	            {IB_OP_READ_RESPONSE_FIRST, 0, 200}, {IB_OP_READ_RESPONSE_MIDDLE, 0, 256},
	            {IB_OP_READ_RESPONSE_LAST, 0, 44},   {IB_OP_READ_RESPONSE_LAST, 1, 44},
	            {IB_OP_READ_RESPONSE_FIRST, 5, 256}, {IB_OP_READ_RESPONSE_FIRST, 0, 300},
	            {IB_OP_READ_RESPONSE_MIDDLE, 1, 256}};
	struct rig *rig = *state;
	for (uint32_t i = 0; i < COUNT(rows); i++) {
		struct hdl_wc wc;
		rig_qp(rig, NULL);
		for (size_t n = 0; n < RIG_BYTES; n++)
			rig->mem[n] = rig_byte(0, n);
		rig_post_rdma(rig, 1, HDL_OP_READ, 4096, 300);
		rig_read_response(rig, rows[i].opcode, FIRST + rows[i].psn_ahead, 9, 0,
		                  rows[i].bytes);
		assert_true(rig_holds(rig, 0, 0, 0, 4096));
		assert_true(rig_holds(rig, 4096 + 300, 0, 4096 + 300, RIG_BYTES - 4096 - 300));
		if (hdl_cq_poll(rig->scq, &wc, 1) == 1) /* it may be given up at once */
			assert_int_not_equal(wc.status, HDL_WC_SUCCESS);
		rig_skip(rig);
	}
}

/* One lost answer is one loss, however many answers that were on their way pass it by. */
static void a_loss_counts_once(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, &(struct rig_options){.few = true, .retry_cnt = 2});
	rig_post_rdma(rig, 1, HDL_OP_READ, 4096, 256 * 20);
	rig_read_response(rig, IB_OP_READ_RESPONSE_FIRST, FIRST, 9, 0, 256);
	for (uint32_t i = 2; i < 19; i++)
		rig_read_response(rig, IB_OP_READ_RESPONSE_MIDDLE, FIRST + i, 9, 256 * i, 256);
	assert_int_equal(rig_state(rig), HDL_QPS_RTS);
	/* And the same with a read whose only answer is lost before those of ten sends. */
	rig_qp(rig, &(struct rig_options){.few = true, .retry_cnt = 2});
	rig_post_rdma(rig, 1, HDL_OP_READ, 4096, 100);
	for (uint32_t i = 0; i < 10; i++)
		rig_send(rig, 2 + i, HDL_OP_SEND, 0, 10);
	for (uint32_t i = 0; i < 10; i++)
		rig_answer(rig, FIRST + 1 + i, IB_AETH_ACK, IB_AETH_NO_CREDITS, 2 + i);
	assert_int_equal(rig_state(rig), HDL_QPS_RTS);
	rig_read_response(rig, IB_OP_READ_RESPONSE_ONLY, FIRST, 9, 0, 100);
	rig_completion(rig, rig->scq, 1, HDL_WC_SUCCESS);
	rig_answer(rig, FIRST + 10, IB_AETH_ACK, IB_AETH_NO_CREDITS, 11);
	for (uint32_t i = 0; i < 10; i++)
		rig_completion(rig, rig->scq, 2 + i, HDL_WC_SUCCESS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        RIGGED(reads_take_as_many_psns_as_answers),
	        RIGGED(a_lost_response_is_asked_for_again),
	        RIGGED(a_read_is_repeated_as_it_was_cut),
	        RIGGED(an_ack_behind_a_read_does_not_complete_it),
	        RIGGED(a_loss_counts_once),
	        RIGGED(atomics_bring_what_was_there),
	        RIGGED(reads_wait_for_resources),
	        RIGGED(a_fence_waits_for_reads),
	        RIGGED(responses_that_lie),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
