/* The requester of a reliable connection, packet by packet (IBTA volume 1 sections 9.7.3 to 9.7.8): which packets a request becomes,
 * what an answer completes, what is sent again, and how a request ends that is not answered well. */
#include "ib_rig.h"

#define FIRST    RIG_SQ_PSN
#define PEER_AT  0x1122334455667788ull
#define PEER_KEY 0x89abcdefu
#define T_NS     (4096ull << 10) /* the timeout of the rig's queue pairs */

static const struct hdl_send_wr to_peer = {.u.rdma = {PEER_AT, {PEER_KEY}}};

static void post_rdma(struct rig *rig, uint64_t wr_id, uint32_t opcode, size_t offset,
                      uint32_t length)
{
	struct hdl_send_wr wr = to_peer;
	wr.wr_id = wr_id;
	wr.opcode = opcode;
	rig_post(rig, wr, offset, length);
}

static void post_atomic(struct rig *rig, uint64_t wr_id, uint32_t opcode, size_t offset,
                        uint64_t compare_add, uint64_t swap)
{
	struct hdl_send_wr wr = {.wr_id = wr_id,
	                         .opcode = opcode,
	                         .u.atomic = {.addr = PEER_AT - PEER_AT % 8,
	                                      .key = {PEER_KEY},
	                                      .compare_add = compare_add,
	                                      .swap = swap}};
	rig_post(rig, wr, offset, 8);
}

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
			post_rdma(rig, i, HDL_OP_WRITE, 100, length);
			const struct ib_packet *packet = &rig->sent[first].packet;
			assert_int_equal(packet->reth.length_bytes, length);
			if (length > 0) {
				assert_int_equal(packet->reth.addr, PEER_AT);
				assert_int_equal(packet->reth.rkey, PEER_KEY);
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
		struct hdl_send_wr wr = to_peer;
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

/* Table 45: what a NAK says becomes the status; what came before it succeeded, what comes behind is flushed. */
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
			post_rdma(rig, n, HDL_OP_WRITE, 0, 300);
		rig_skip(rig);
		rig_answer(rig, FIRST + 4, IB_AETH_NAK, rows[i].code, 2);
		rig_completion(rig, rig->scq, 0, HDL_WC_SUCCESS);
		rig_completion(rig, rig->scq, 1, HDL_WC_SUCCESS);
		rig_completion(rig, rig->scq, 2, rows[i].status);
		rig_completion(rig, rig->scq, 3, HDL_WC_WR_FLUSH_ERR);
		rig_completion(rig, rig->rcq, 9, HDL_WC_WR_FLUSH_ERR);
		assert_int_equal(rig_state(rig), HDL_QPS_ERR);
		rig_pass(rig, 20 * T_NS);
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
			assert_true(rig_await(rig, 4 * T_NS) >= T_NS);
			expect_message(rig, sends, FIRST, 0, 600);
		}
		rig_no_completion(rig, rig->scq);
		rig_pass(rig, 5 * T_NS);
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
		rig_await(rig, 4 * T_NS);
		const struct ib_packet *packet = rig_look(rig);
		assert_int_equal(packet->bth.psn, FIRST + i); /* from the oldest one on */
		rig_skip(rig);
		rig_answer(rig, FIRST + i, IB_AETH_ACK, IB_AETH_NO_CREDITS, i == 9);
		rig_skip(rig);
	}
	rig_completion(rig, rig->scq, 1, HDL_WC_SUCCESS);
	rig_pass(rig, 20 * T_NS);
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

/* A sequence error names the first PSN that is missing: what lies before has arrived, the rest goes again at once. */
static void a_sequence_error_is_made_good_at_once(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	rig_send(rig, 0, HDL_OP_SEND, 0, 256);
	rig_send(rig, 1, HDL_OP_SEND, 1024, 700);
	post_rdma(rig, 2, HDL_OP_WRITE, 2048, 10);
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

static uint64_t rnr_ns(uint32_t code)
{
	static const double ms[32] = {655.36, 0.01,  0.02,  0.03,   0.04,   0.06,   0.08,   0.12,
	                              0.16,   0.24,  0.32,  0.48,   0.64,   0.96,   1.28,   1.92,
	                              2.56,   3.84,  5.12,  7.68,   10.24,  15.36,  20.48,  30.72,
	                              40.96,  61.44, 81.92, 122.88, 163.84, 245.76, 327.68, 491.52};
	return (uint64_t)(ms[code] * 1e6 + 0.5);
}

/* Table 45: not before the time that the peer asked for, and not long after it. */
static void not_ready_is_waited_for(void **state)
{
	struct rig *rig = *state;
	for (uint8_t code = 0; code < 32; code++) {
		rig_qp(rig, &(struct rig_options){.few = true, .rnr_retry = 1, .retry_cnt = 7});
		rig_send(rig, 1, HDL_OP_SEND, 0, 300);
		post_rdma(rig, 2, HDL_OP_WRITE, 1024, 10);
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

/* --- reads and atomics --- */

static void reads_take_as_many_psns_as_answers(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	rig_send(rig, 0, HDL_OP_SEND, 0, 10);
	post_rdma(rig, 1, HDL_OP_READ, 4096, 600);
	rig_send(rig, 2, HDL_OP_SEND, 0, 10);
	rig_expect(rig, IB_RC + IB_OP_SEND_ONLY, FIRST);
	const struct ib_packet *read = rig_expect(rig, IB_RC + IB_OP_READ_REQUEST, FIRST + 1);
	assert_int_equal(read->reth.addr, PEER_AT);
	assert_int_equal(read->reth.rkey, PEER_KEY);
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

/* C9-76: an answer that is lost is asked for again from its first byte on, and what was lost behind it too. */
static void a_lost_response_is_asked_for_again(void **state)
{
	struct rig *rig = *state;
	for (int by_timeout = 0; by_timeout < 2; by_timeout++) {
		rig_qp(rig, NULL);
		memset(rig->mem + 4096, 0, 1100);
		post_rdma(rig, 1, HDL_OP_READ, 4096, 1100);
		rig_expect(rig, IB_RC + IB_OP_READ_REQUEST, FIRST);
		rig_read_response(rig, IB_OP_READ_RESPONSE_FIRST, FIRST, 9, 0, 256);
		if (!by_timeout) /* the next but one shows that the next is lost */
			rig_read_response(rig, IB_OP_READ_RESPONSE_MIDDLE, FIRST + 2, 9, 512, 256);
		rig_await(rig, 4 * T_NS);
		const struct ib_packet *read =
		        rig_expect(rig, IB_RC + IB_OP_READ_REQUEST, FIRST + 1);
		assert_int_equal(read->reth.addr, PEER_AT + 256);
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

/* Answer the request @read of a read of @length, but for one packet in eight or so once the window has grown; *got counts
 * those that came in order. */
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

/* Whatever becomes of the window: one that is repeated asks for the rest of one that was sent before, and ends where it ended.
 * Responders need not know of any other kind (Linux's rdma_rxe does not). */
static void a_read_is_repeated_as_it_was_cut(void **state)
{
	struct rig *rig = *state;
	enum { LENGTH = 50000, PACKETS = 196 };
	uint32_t ends[PACKETS] = {0}, expected = 0, answered = 0, repeats = 0, got = 0;
	const struct ib_packet *read;
	rig_qp(rig, NULL);
	memset(rig->mem + 4096, 0, LENGTH);
	post_rdma(rig, 1, HDL_OP_READ, 4096, LENGTH);
	while (got < PACKETS) {
		if ((read = rig_look(rig)) == NULL) {
			rig_await(rig, 64 * T_NS);
			read = rig_look(rig);
		}
		const uint32_t at = read->bth.psn - FIRST;
		const uint32_t last = at + (read->reth.length_bytes - 1) / 256;
		assert_true(last < PACKETS && at <= expected);
		assert_int_equal(read->reth.addr, PEER_AT + 256 * at);
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
	post_rdma(rig, 1, HDL_OP_READ, 4096, 100);
	rig_send(rig, 2, HDL_OP_SEND, 0, 10);
	rig_skip(rig);
	rig_answer(rig, FIRST + 1, IB_AETH_ACK, IB_AETH_NO_CREDITS, 2);
	rig_no_completion(rig, rig->scq);
	rig_await(rig, 4 * T_NS);
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
	assert_int_equal(packet->atomiceth.addr, PEER_AT - PEER_AT % 8);
	assert_int_equal(packet->atomiceth.rkey, PEER_KEY);
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
	rig_await(rig, 4 * T_NS);
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
		post_rdma(rig, i, HDL_OP_READ, 4096 + 256 * i, 100);
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
	post_rdma(rig, 1, HDL_OP_READ, 4096, 100);
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

/* Responses that were not asked for, or bring more or less than was: no byte beside the target, and the request does not succeed. */
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
		post_rdma(rig, 1, HDL_OP_READ, 4096, 300);
		rig_read_response(rig, rows[i].opcode, FIRST + rows[i].psn_ahead, 9, 0,
		                  rows[i].bytes);
		assert_true(rig_holds(rig, 0, 0, 0, 4096));
		assert_true(rig_holds(rig, 4096 + 300, 0, 4096 + 300, RIG_BYTES - 4096 - 300));
		if (hdl_cq_poll(rig->scq, &wc, 1) == 1) /* it may be given up at once */
			assert_int_not_equal(wc.status, HDL_WC_SUCCESS);
		rig_skip(rig);
	}
}

/* --- room --- */

static void requests_wait_for_room(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	rig->full = true;
	rig_send(rig, 1, HDL_OP_SEND, 0, 600);
	post_rdma(rig, 2, HDL_OP_READ, 4096, 100);
	rig_expect_none(rig);
	rig->full = false;
	rig_run(rig);
	expect_message(rig, sends, FIRST, 0, 600);
	rig_expect(rig, IB_RC + IB_OP_READ_REQUEST, FIRST + 3);
	rig_expect_none(rig);
	assert_int_equal(rig_state(rig), HDL_QPS_RTS);
}

/* One lost answer is one loss, however many answers that were on their way pass it by. */
static void a_loss_counts_once(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, &(struct rig_options){.few = true, .retry_cnt = 2});
	post_rdma(rig, 1, HDL_OP_READ, 4096, 256 * 20);
	rig_read_response(rig, IB_OP_READ_RESPONSE_FIRST, FIRST, 9, 0, 256);
	for (uint32_t i = 2; i < 19; i++)
		rig_read_response(rig, IB_OP_READ_RESPONSE_MIDDLE, FIRST + i, 9, 256 * i, 256);
	assert_int_equal(rig_state(rig), HDL_QPS_RTS);
	/* And the same with a read whose only answer is lost before those of ten sends. */
	rig_qp(rig, &(struct rig_options){.few = true, .retry_cnt = 2});
	post_rdma(rig, 1, HDL_OP_READ, 4096, 100);
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
	        RIGGED(messages_become_packets),
	        RIGGED(extras_ride_on_the_last_packet),
	        RIGGED(an_ack_speaks_for_all_before_it),
	        RIGGED(answers_from_elsewhere_do_not_count),
	        RIGGED(naks_become_statuses),
	        RIGGED(silence_is_met_by_repetition),
	        RIGGED(progress_refills_the_counter),
	        RIGGED(no_timeout_no_repetition),
	        RIGGED(a_sequence_error_is_made_good_at_once),
	        RIGGED(sequence_errors_use_up_retries),
	        RIGGED(not_ready_is_waited_for),
	        RIGGED(not_ready_too_often),
	        RIGGED(reads_take_as_many_psns_as_answers),
	        RIGGED(a_lost_response_is_asked_for_again),
	        RIGGED(a_read_is_repeated_as_it_was_cut),
	        RIGGED(an_ack_behind_a_read_does_not_complete_it),
	        RIGGED(a_loss_counts_once),
	        RIGGED(atomics_bring_what_was_there),
	        RIGGED(reads_wait_for_resources),
	        RIGGED(a_fence_waits_for_reads),
	        RIGGED(responses_that_lie),
	        RIGGED(requests_wait_for_room),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
