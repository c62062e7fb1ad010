/* The requester of a reliable connection, packet by packet (IBTA volume 1 sections 9.7.3 to 9.7.8):
 * which packets a request becomes, what an answer completes, what is sent again, and how a request
 * ends that is not answered well. Reads and atomics are in ib_requester_reads.c. */
#include <time.h>

#include "ib_rig.h"

#include "cable/rnr.h"

#define FIRST RIG_SQ_PSN

/* The packets of a message from @offset on. */
static void expect_message(struct rig *rig, const uint8_t opcodes[4], uint32_t psn, size_t offset,
                           uint32_t length)
{
	uint32_t count = length == 0 ? 1 : (length + 255) / 256;
	for (uint32_t i = 0; i < count; i++) {
		uint8_t opcode = opcodes[count == 1 ? 3 : i == 0 ? 0 : i == count - 1 ? 2 : 1];
		const struct ib_packet *packet = rig_expect(rig, opcode, psn + i);
		uint32_t bytes = i == count - 1 ? length - 256 * i : 256;
		assert_int_equal(packet->payload_bytes, bytes);
		if (bytes > 0)
			assert_memory_equal(packet->payload, rig->mem + offset + 256 * i, bytes);
		assert_int_equal(packet->bth.pad_bytes, (4 - bytes % 4) % 4);
		assert_int_equal(packet->bth.dest_qp, RIG_PEER_QPN);
		if (i == count - 1)
			assert_true(packet->bth.ack_request);
	}
}

static const uint8_t sends[4] = {IB_RC + IB_OP_SEND_FIRST, IB_RC + IB_OP_SEND_MIDDLE,
                                 IB_RC + IB_OP_SEND_LAST, IB_RC + IB_OP_SEND_ONLY};
static const uint8_t writes[4] = {IB_RC + IB_OP_WRITE_FIRST, IB_RC + IB_OP_WRITE_MIDDLE,
                                  IB_RC + IB_OP_WRITE_LAST, IB_RC + IB_OP_WRITE_ONLY};

/* --- packets --- */

/* C9-28 and following: full packets but for the last; PSNs one by one, around 2^24 too. */
static void messages_become_packets(void **state)
{
	static const uint32_t lengths[] = {0, 1, 2, 3, 4, 255, 256, 257, 512, 513, 1000};
	struct rig *rig = *state;
	rig_qp(rig, &(struct rig_options){.psn_given = true, .sq_psn = 0xfffff9});
	uint32_t psn = 0xfffff9;
	for (uint32_t i = 0; i < 2 * COUNT(lengths); i++) {
		uint32_t length = lengths[i / 2], packets = length == 0 ? 1 : (length + 255) / 256;
		if (i % 2) {
			uint32_t first = rig->sent_count;
			rig_post_rdma(rig, i, HDL_OP_WRITE, 100, length);
			const struct ib_packet *packet = &rig->sent[first].packet;
			assert_int_equal(packet->reth.length_bytes, length);
			if (length > 0) {
				assert_int_equal(packet->reth.addr, RIG_PEER_AT);
				assert_int_equal(packet->reth.rkey, RIG_PEER_KEY);
			}
		} else {
			rig_send(rig, i, HDL_OP_SEND, 100, length);
		}
		expect_message(rig, i % 2 ? writes : sends, psn, 100, length);
		rig_expect_none(rig);
		rig_no_completion(rig, rig->scq);
		psn += packets;
		rig_answer(rig, psn - 1, IB_AETH_ACK, IB_AETH_NO_CREDITS, i + 1);
		assert_int_equal(rig_completion(rig, rig->scq, i, HDL_WC_SUCCESS).byte_len, length);
	}
}

static void extras_ride_on_the_last_packet(void **state)
{
	struct rig *rig = *state;
	static const uint32_t lengths[] = {10, 300};
	static const struct {
		uint32_t opcode;
		uint8_t only, last;
	} rows[] = {{HDL_OP_SEND_IMM, IB_OP_SEND_ONLY_IMM, IB_OP_SEND_LAST_IMM},
	            {HDL_OP_SEND_INVALIDATE, IB_OP_SEND_ONLY_INV, IB_OP_SEND_LAST_INV},
	            {HDL_OP_WRITE_IMM, IB_OP_WRITE_ONLY_IMM, IB_OP_WRITE_LAST_IMM}};
	uint32_t psn = FIRST;
	rig_qp(rig, NULL);
	for (uint32_t i = 0; i < 2 * COUNT(rows); i++) {
		struct hdl_send_wr wr = {.u.rdma = {RIG_PEER_AT, {RIG_PEER_KEY}}};
		wr.wr_id = i;
		wr.opcode = rows[i / 2].opcode;
		wr.flags = HDL_SEND_SOLICITED;
		uint32_t value = 0x01020304;
		memcpy(&wr.imm, &value, 4);
		rig_post(rig, wr, 0, lengths[i % 2]);
		if (i % 2)
			assert_false(rig_look(rig)->bth.solicited);
		psn += i % 2;
		const struct ib_packet *last = rig_expect(
		        rig, (uint8_t)(IB_RC + (i % 2 ? rows[i / 2].last : rows[i / 2].only)), psn);
		assert_true(last->bth.solicited);
		if (wr.opcode == HDL_OP_SEND_INVALIDATE)
			assert_int_equal(last->ieth.rkey, value);
		rig_answer(rig, psn++, IB_AETH_ACK, IB_AETH_NO_CREDITS, i + 1);
		rig_completion(rig, rig->scq, i, HDL_WC_SUCCESS);
	}
}

/* --- answers --- */

/* An ACK speaks for everything up to its PSN; a message is done when its last packet is. */
static void an_ack_speaks_for_all_before_it(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	for (uint32_t i = 0; i < 4; i++)
		rig_send(rig, i, HDL_OP_SEND, 0, 600); /* three packets each */
	rig_answer(rig, FIRST + 1, IB_AETH_ACK, IB_AETH_NO_CREDITS, 0);
	rig_no_completion(rig, rig->scq);
	rig_answer(rig, FIRST + 7, IB_AETH_ACK, IB_AETH_NO_CREDITS, 2);
	rig_completion(rig, rig->scq, 0, HDL_WC_SUCCESS);
	rig_completion(rig, rig->scq, 1, HDL_WC_SUCCESS);
	rig_no_completion(rig, rig->scq);
	/* Again, older, and such for what was never sent: no matter. */
	rig_answer(rig, FIRST + 7, IB_AETH_ACK, IB_AETH_NO_CREDITS, 2);
	rig_answer(rig, FIRST - 1, IB_AETH_ACK, IB_AETH_NO_CREDITS, 0);
	rig_answer(rig, FIRST + 12, IB_AETH_ACK, IB_AETH_NO_CREDITS, 9);
	rig_answer(rig, FIRST + (1u << 23), IB_AETH_ACK, IB_AETH_NO_CREDITS, 9);
	rig_answer(rig, FIRST - 5, IB_AETH_NAK, IB_NAK_REMOTE_ACCESS_ERROR, 0);
	rig_answer(rig, FIRST + 40, IB_AETH_NAK, IB_NAK_INVALID_REQUEST, 0);
	rig_no_completion(rig, rig->scq);
	assert_int_equal(rig_state(rig), HDL_QPS_RTS);
	rig_answer(rig, FIRST + 11, IB_AETH_ACK, IB_AETH_NO_CREDITS, 4);
	rig_completion(rig, rig->scq, 2, HDL_WC_SUCCESS);
	rig_completion(rig, rig->scq, 3, HDL_WC_SUCCESS);
}

static void answers_from_elsewhere_do_not_count(void **state)
{
	struct rig *rig = *state;
	struct hdl_gid elsewhere = {{0xfe, 0x80, [15] = 3}};
	rig_qp(rig, NULL);
	rig_send(rig, 1, HDL_OP_SEND, 0, 10);
	struct ib_packet ack = rig_packet(rig, IB_RC + IB_OP_ACK, FIRST);
	ack.aeth.syndrome = ib_aeth_syndrome(IB_AETH_ACK, IB_AETH_NO_CREDITS);
	ack.aeth.msn = 1;
	rig_take_from(rig, &ack, &elsewhere);
	rig_no_completion(rig, rig->scq);
	ack.bth.pkey = 0x1234;
	rig_take(rig, &ack);
	rig_no_completion(rig, rig->scq);
	ack.bth.pkey = 0xffff;
	rig_take(rig, &ack);
	rig_completion(rig, rig->scq, 1, HDL_WC_SUCCESS);
}

/* Table 45: what a NAK says becomes the status; what came before it succeeded, what comes behind is
 * flushed. */
static void naks_become_statuses(void **state)
{
	static const struct {
		uint8_t code;
		uint32_t status;
	} rows[] = {{IB_NAK_INVALID_REQUEST, HDL_WC_REM_INV_REQ_ERR},
	            {IB_NAK_REMOTE_ACCESS_ERROR, HDL_WC_REM_ACCESS_ERR},
	            {IB_NAK_REMOTE_OPERATIONAL_ERROR, HDL_WC_REM_OP_ERR}};
	struct rig *rig = *state;
	for (uint32_t i = 0; i < COUNT(rows); i++) {
		rig_qp(rig, NULL);
		rig_recv(rig, 9, 4096, 16);
		for (uint32_t n = 0; n < 4; n++)
			rig_post_rdma(rig, n, HDL_OP_WRITE, 0, 300);
		rig_skip(rig);
		rig_answer(rig, FIRST + 4, IB_AETH_NAK, rows[i].code, 2);
		rig_completion(rig, rig->scq, 0, HDL_WC_SUCCESS);
		rig_completion(rig, rig->scq, 1, HDL_WC_SUCCESS);
		rig_completion(rig, rig->scq, 2, rows[i].status);
		rig_completion(rig, rig->scq, 3, HDL_WC_WR_FLUSH_ERR);
		rig_completion(rig, rig->rcq, 9, HDL_WC_WR_FLUSH_ERR);
		assert_int_equal(rig_state(rig), HDL_QPS_ERR);
		rig_pass(rig, 20 * RIG_TIMEOUT_NS);
		rig_expect_none(rig);
	}
}

/* --- again --- */

/* C9-141: what is not answered in time is sent again, with its old PSNs, retry_cnt times. */
static void silence_is_met_by_repetition(void **state)
{
	static const uint8_t counts[] = {0, 1, 3, 7};
	struct rig *rig = *state;
	for (uint32_t i = 0; i < COUNT(counts); i++) {
		rig_qp(rig, &(struct rig_options){.few = true, .retry_cnt = counts[i]});
		rig_send(rig, 1, HDL_OP_SEND, 0, 600);
		expect_message(rig, sends, FIRST, 0, 600);
		for (uint32_t n = 0; n < counts[i]; n++) {
			assert_true(rig_await(rig, 4 * RIG_TIMEOUT_NS) >= RIG_TIMEOUT_NS);
			expect_message(rig, sends, FIRST, 0, 600);
		}
		rig_no_completion(rig, rig->scq);
		rig_pass(rig, 5 * RIG_TIMEOUT_NS);
		rig_expect_none(rig);
		rig_completion(rig, rig->scq, 1, HDL_WC_RETRY_EXC_ERR);
		assert_int_equal(rig_state(rig), HDL_QPS_ERR);
	}
}

/* Progress refills the counter: many losses, each of them made good. */
static void progress_refills_the_counter(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, &(struct rig_options){.few = true, .retry_cnt = 1});
	rig_send(rig, 1, HDL_OP_SEND, 0, 256 * 10);
	rig_skip(rig);
	for (uint32_t i = 0; i < 10; i++) {
		rig_await(rig, 4 * RIG_TIMEOUT_NS);
		const struct ib_packet *packet = rig_look(rig);
		assert_int_equal(packet->bth.psn, FIRST + i); /* from the oldest one on */
		rig_skip(rig);
		rig_answer(rig, FIRST + i, IB_AETH_ACK, IB_AETH_NO_CREDITS, i == 9);
		rig_skip(rig);
	}
	rig_completion(rig, rig->scq, 1, HDL_WC_SUCCESS);
	rig_pass(rig, 20 * RIG_TIMEOUT_NS);
	rig_expect_none(rig);
}

/* C9-145: with timeout 0 nobody waits, and nothing is sent again. */
static void no_timeout_no_repetition(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, &(struct rig_options){.no_timeout = true});
	rig_send(rig, 1, HDL_OP_SEND, 0, 10);
	rig_skip(rig);
	rig_pass(rig, 60000000000ull);
	rig_expect_none(rig);
	rig_no_completion(rig, rig->scq);
}

/* A sequence error names the first PSN that is missing: what lies before has arrived, the rest goes
 * again at once. */
static void a_sequence_error_is_made_good_at_once(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	rig_send(rig, 0, HDL_OP_SEND, 0, 256);
	rig_send(rig, 1, HDL_OP_SEND, 1024, 700);
	rig_post_rdma(rig, 2, HDL_OP_WRITE, 2048, 10);
	rig_skip(rig);
	rig_answer(rig, FIRST + 2, IB_AETH_NAK, IB_NAK_PSN_SEQUENCE_ERROR, 1);
	rig_completion(rig, rig->scq, 0, HDL_WC_SUCCESS);
	rig_no_completion(rig, rig->scq);
	const struct ib_packet *packet = rig_expect(rig, IB_RC + IB_OP_SEND_MIDDLE, FIRST + 2);
	assert_memory_equal(packet->payload, rig->mem + 1024 + 256, 256);
	rig_expect(rig, IB_RC + IB_OP_SEND_LAST, FIRST + 3);
	packet = rig_expect(rig, IB_RC + IB_OP_WRITE_ONLY, FIRST + 4);
	assert_int_equal(packet->reth.length_bytes, 10);
	rig_expect_none(rig);
	rig_answer(rig, FIRST + 4, IB_AETH_ACK, IB_AETH_NO_CREDITS, 3);
	rig_completion(rig, rig->scq, 1, HDL_WC_SUCCESS);
	rig_completion(rig, rig->scq, 2, HDL_WC_SUCCESS);
}

/* What waits to be sent again turns out to have come, all but the end of it: only that is sent, and
 * nobody walks around the queue to find it. */
static void what_came_is_not_sent_again(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	for (uint64_t i = 0; i < 4; i++)
		rig_send(rig, i, HDL_OP_SEND, 1024 * i, 10);
	rig_send(rig, 4, HDL_OP_SEND, 4096, 700);
	rig_skip(rig);
	rig_answer(rig, FIRST, IB_AETH_RNR_NAK, 31, 0);
	rig_expect_none(rig);
	clock_t begin = clock();
	rig_answer(rig, FIRST + 5, IB_AETH_NAK, IB_NAK_PSN_SEQUENCE_ERROR, 4);
	assert_true(clock() - begin < CLOCKS_PER_SEC);
	for (uint64_t i = 0; i < 4; i++)
		rig_completion(rig, rig->scq, i, HDL_WC_SUCCESS);
	rig_expect(rig, IB_RC + IB_OP_SEND_MIDDLE, FIRST + 5);
	rig_expect(rig, IB_RC + IB_OP_SEND_LAST, FIRST + 6);
	rig_expect_none(rig);
	/* The peer has one receive more: message 6 may go, 7 may not. */
	rig_answer(rig, FIRST + 6, IB_AETH_ACK, 1, 5);
	rig_completion(rig, rig->scq, 4, HDL_WC_SUCCESS);
	for (uint64_t i = 5; i < 7; i++)
		rig_send(rig, i, HDL_OP_SEND, 0, 300);
	expect_message(rig, sends, FIRST + 7, 0, 300);
	rig_expect_none(rig);
}

/* A peer that complains without end is a peer that does not answer. */
static void sequence_errors_use_up_retries(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, &(struct rig_options){.few = true, .retry_cnt = 3});
	rig_send(rig, 1, HDL_OP_SEND, 0, 600);
	uint32_t times = 0;
	for (; times < 20 && rig_state(rig) == HDL_QPS_RTS; times++) {
		rig_skip(rig);
		rig_answer(rig, FIRST, IB_AETH_NAK, IB_NAK_PSN_SEQUENCE_ERROR, 0);
		rig_pass(rig, 10000);
	}
	assert_true(times >= 3 && times < 20);
	rig_completion(rig, rig->scq, 1, HDL_WC_RETRY_EXC_ERR);
}

/* --- receiver not ready --- */

/* Table 45: not before the time that the peer asked for, and not long after it. */
static void not_ready_is_waited_for(void **state)
{
	struct rig *rig = *state;
	for (uint8_t code = 0; code < 32; code++) {
		rig_qp(rig, &(struct rig_options){.few = true, .rnr_retry = 1, .retry_cnt = 7});
		rig_send(rig, 1, HDL_OP_SEND, 0, 300);
		rig_post_rdma(rig, 2, HDL_OP_WRITE, 1024, 10);
		rig_skip(rig);
		rig_answer(rig, FIRST, IB_AETH_RNR_NAK, code, 0);
		rig_pass(rig, rnr_ns(code) - 2000);
		rig_expect_none(rig);
		rig_await(rig, rnr_ns(code) / 4 + 200000);
		expect_message(rig, sends, FIRST, 0, 300);
		expect_message(rig, writes, FIRST + 2, 1024, 10);
		rig_answer(rig, FIRST + 2, IB_AETH_ACK, IB_AETH_NO_CREDITS, 2);
		rig_completion(rig, rig->scq, 1, HDL_WC_SUCCESS);
		rig_completion(rig, rig->scq, 2, HDL_WC_SUCCESS);
		rig_skip(rig);
	}
}

static void not_ready_too_often(void **state)
{
	static const uint8_t counts[] = {0, 1, 6};
	struct rig *rig = *state;
	for (uint32_t i = 0; i < COUNT(counts); i++) {
		rig_qp(rig,
		       &(struct rig_options){.few = true, .rnr_retry = counts[i], .retry_cnt = 7});
		rig_send(rig, 1, HDL_OP_SEND, 0, 10);
		for (uint32_t n = 0; n <= counts[i]; n++) {
			rig_expect(rig, IB_RC + IB_OP_SEND_ONLY, FIRST);
			rig_no_completion(rig, rig->scq);
			rig_answer(rig, FIRST, IB_AETH_RNR_NAK, 1, 0);
			rig_pass(rig, n < counts[i] ? 100000 : 0);
		}
		rig_completion(rig, rig->scq, 1, HDL_WC_RNR_RETRY_EXC_ERR);
		assert_int_equal(rig_state(rig), HDL_QPS_ERR);
		rig_expect_none(rig);
	}
	/* Seven is for ever. */
	rig_qp(rig, &(struct rig_options){.few = true, .rnr_retry = 7, .retry_cnt = 0});
	rig_send(rig, 1, HDL_OP_SEND, 0, 10);
	for (uint32_t n = 0; n < 50; n++) {
		rig_expect(rig, IB_RC + IB_OP_SEND_ONLY, FIRST);
		rig_answer(rig, FIRST, IB_AETH_RNR_NAK, 1, 0);
		rig_pass(rig, 100000);
	}
	assert_int_equal(rig_state(rig), HDL_QPS_RTS);
}

/* --- room --- */

static void requests_wait_for_room(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	rig->full = true;
	rig_send(rig, 1, HDL_OP_SEND, 0, 600);
	rig_post_rdma(rig, 2, HDL_OP_READ, 4096, 100);
	rig_expect_none(rig);
	rig->full = false;
	rig_run(rig);
	expect_message(rig, sends, FIRST, 0, 600);
	rig_expect(rig, IB_RC + IB_OP_READ_REQUEST, FIRST + 3);
	rig_expect_none(rig);
	assert_int_equal(rig_state(rig), HDL_QPS_RTS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        RIGGED(messages_become_packets),
	        RIGGED(extras_ride_on_the_last_packet),
	        RIGGED(an_ack_speaks_for_all_before_it),
	        RIGGED(answers_from_elsewhere_do_not_count),
	        RIGGED(naks_become_statuses),
	        RIGGED(silence_is_met_by_repetition),
	        RIGGED(progress_refills_the_counter),
	        RIGGED(no_timeout_no_repetition),
	        RIGGED(a_sequence_error_is_made_good_at_once),
	        RIGGED(what_came_is_not_sent_again),
	        RIGGED(sequence_errors_use_up_retries),
	        RIGGED(not_ready_is_waited_for),
	        RIGGED(not_ready_too_often),
	        RIGGED(requests_wait_for_room),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
