/* The requester of reliable datagrams, packet by packet (IBTA volume 1 section 9.7.8; MISSION SN2):
 * one message in flight a context, whoever waits for it has a turn, and what fails is a message,
 * not the context. */
#include "ib_rd_rig.h"

/* --- the peer --- */

static void answer(struct rig *rig, uint32_t psn, enum ib_aeth_kind kind, uint8_t value)
{
	struct ib_packet packet = rd_packet(rig->qp, IB_OP_ACK, psn);
	packet.bth.ack_request = false;
	packet.aeth.syndrome = ib_aeth_syndrome(kind, value);
	rig_take(rig, &packet);
}

static void ack(struct rig *rig, uint32_t psn)
{
	answer(rig, psn, IB_AETH_ACK, IB_AETH_NO_CREDITS);
}

/* --- our side --- */

static int try_post(struct rig *rig, struct hdl_qp *qp, struct hdl_send_wr wr, size_t offset,
                    uint32_t length)
{
	struct hdl_sge piece = {rig_address(rig, offset), length, hdl_mr_key(rig->mr)};
	wr.sg_list = &piece;
	wr.num_sge = length > 0;
	wr.flags |= HDL_SEND_SIGNALED;
	if (wr.rd.eec == NULL)
		wr.rd.eec = rd.eec;
	wr.rd.qpn = RIG_PEER_QPN;
	wr.rd.qkey = RD_QKEY;
	return hdl_post_send(qp, &wr, NULL);
}

static void post(struct rig *rig, struct hdl_qp *qp, uint64_t wr_id, uint32_t opcode,
                 uint32_t length)
{
	struct hdl_send_wr wr = {.wr_id = wr_id, .opcode = opcode};
	if (opcode == HDL_OP_WRITE || opcode == HDL_OP_READ) {
		wr.u.rdma.addr = 0x5000;
		wr.u.rdma.key.v = 0x1234;
	}
	if (opcode == HDL_OP_FETCH_ADD) {
		wr.u.atomic.addr = 0x5008;
		wr.u.atomic.key.v = 0x1234;
		wr.u.atomic.compare_add = 3;
	}
	assert_int_equal(try_post(rig, qp, wr, 0, length), 0);
	rig_run(rig);
}

static void completion(struct rig *rig, const struct hdl_qp *qp, uint64_t wr_id, uint32_t status)
{
	struct hdl_wc wc;
	if (hdl_cq_poll(rig->scq, &wc, 1) != 1)
		fail_msg("no completion where %lu must come", (unsigned long)wr_id);
	assert_int_equal(wc.wr_id, wr_id);
	assert_string_equal(hdl_wc_status_str(wc.status), hdl_wc_status_str(status));
	assert_int_equal(wc.qpn, hdl_qp_number(qp));
}

/* --- what is sent --- */

static void a_message_names_context_queue_pair_and_key(void **state)
{
	struct rig *rig = *state;
	post(rig, rig->qp, 1, HDL_OP_SEND, 300);
	const struct ib_packet *packet = rd_expect(rig, IB_OP_SEND_FIRST, RIG_SQ_PSN);
	assert_int_equal(packet->bth.dest_qp, RIG_PEER_QPN);
	assert_int_equal(packet->deth.qkey, RD_QKEY);
	assert_int_equal(packet->deth.src_qp, hdl_qp_number(rig->qp));
	assert_memory_equal(packet->payload, rig->mem, 256);
	packet = rd_expect(rig, IB_OP_SEND_LAST, RIG_SQ_PSN + 1);
	assert_true(packet->bth.ack_request);
	assert_int_equal(packet->payload_bytes, 44);
	rig_no_completion(rig, rig->scq);
	ack(rig, RIG_SQ_PSN + 1);
	completion(rig, rig->qp, 1, HDL_WC_SUCCESS);
	post(rig, rig->qp, 2, HDL_OP_WRITE, 20);
	packet = rd_expect(rig, IB_OP_WRITE_ONLY, RIG_SQ_PSN + 2);
	assert_int_equal(packet->reth.addr, 0x5000);
	assert_int_equal(packet->reth.rkey, 0x1234);
	assert_int_equal(packet->reth.length_bytes, 20);
	ack(rig, RIG_SQ_PSN + 2);
	completion(rig, rig->qp, 2, HDL_WC_SUCCESS);
}

static void one_message_is_in_flight_and_turns_are_fair(void **state)
{
	struct rig *rig = *state;
	struct hdl_qp *const qps[] = {rig->qp, rd.more[0], rd.more[1]};
	/* The first has three messages, posted before the others have one each: they do not wait
	 * for all of it. */
	static const unsigned turns[] = {0, 1, 2, 0, 0};
	for (uint64_t i = 0; i < 3; i++)
		post(rig, rig->qp, i, HDL_OP_SEND, 16);
	post(rig, rd.more[0], 10, HDL_OP_SEND, 16);
	post(rig, rd.more[1], 20, HDL_OP_SEND, 16);
	uint64_t next[] = {0, 10, 20};
	for (unsigned i = 0; i < COUNT(turns); i++) {
		const struct ib_packet *packet = rd_expect(rig, IB_OP_SEND_ONLY, RIG_SQ_PSN + i);
		assert_int_equal(packet->deth.src_qp, hdl_qp_number(qps[turns[i]]));
		rig_expect_none(rig);
		ack(rig, RIG_SQ_PSN + i);
		completion(rig, qps[turns[i]], next[turns[i]]++, HDL_WC_SUCCESS);
	}
	rig_expect_none(rig);
}

static void reads_and_atomics(void **state)
{
	struct rig *rig = *state;
	post(rig, rig->qp, 1, HDL_OP_READ, 300);
	post(rig, rd.more[0], 2, HDL_OP_FETCH_ADD, 8);
	const struct ib_packet *packet = rd_expect(rig, IB_OP_READ_REQUEST, RIG_SQ_PSN);
	assert_int_equal(packet->reth.length_bytes, 300);
	rig_expect_none(rig);
	for (uint32_t i = 0; i < 2; i++) {
		struct ib_packet part = rd_packet(
		        rig->qp, i == 0 ? IB_OP_READ_RESPONSE_FIRST : IB_OP_READ_RESPONSE_LAST,
		        RIG_SQ_PSN + i);
		struct ib_packet data = rig_data(rig, IB_RC, 0, 9 + i, i == 0 ? 256 : 44);
		part.aeth.syndrome = ib_aeth_syndrome(IB_AETH_ACK, IB_AETH_NO_CREDITS);
		part.payload = data.payload;
		part.payload_bytes = data.payload_bytes;
		rig_take(rig, &part);
	}
	completion(rig, rig->qp, 1, HDL_WC_SUCCESS);
	assert_true(rig_holds(rig, 0, 9, 0, 256) && rig_holds(rig, 256, 10, 0, 44));
	packet = rd_expect(rig, IB_OP_FETCH_ADD, RIG_SQ_PSN + 2);
	assert_int_equal(packet->atomiceth.swap_or_add, 3);
	struct ib_packet old = rd_packet(rig->qp, IB_OP_ATOMIC_ACK, RIG_SQ_PSN + 2);
	old.aeth.syndrome = ib_aeth_syndrome(IB_AETH_ACK, IB_AETH_NO_CREDITS);
	old.atomicack.original = 0x1122334455667788;
	rig_take(rig, &old);
	completion(rig, rd.more[0], 2, HDL_WC_SUCCESS);
	assert_int_equal(*(uint64_t *)(void *)rig->mem, 0x1122334455667788);
}

static void what_is_lost_is_sent_again(void **state)
{
	struct rig *rig = *state;
	post(rig, rig->qp, 1, HDL_OP_SEND, 300);
	rig_skip(rig);
	rig_await(rig, 20000000);
	rd_expect(rig, IB_OP_SEND_FIRST, RIG_SQ_PSN);
	rd_expect(rig, IB_OP_SEND_LAST, RIG_SQ_PSN + 1);
	answer(rig, RIG_SQ_PSN + 1, IB_AETH_NAK, IB_NAK_PSN_SEQUENCE_ERROR);
	rd_expect(rig, IB_OP_SEND_LAST, RIG_SQ_PSN + 1);
	ack(rig, RIG_SQ_PSN + 1);
	completion(rig, rig->qp, 1, HDL_WC_SUCCESS);
}

/* What the peer says, what the completion says. After each the context tells the peer where it goes
 * on, and goes on. */
static void a_refusal_is_the_end_of_one_message(void **state)
{
	static const struct {
		enum ib_nak_code code;
		enum hdl_wc_status status;
	} cases[] = {
	        {IB_NAK_INVALID_RD_REQUEST, HDL_WC_REM_INV_RD_REQ_ERR},
	        {IB_NAK_INVALID_REQUEST, HDL_WC_REM_INV_REQ_ERR},
	        {IB_NAK_REMOTE_ACCESS_ERROR, HDL_WC_REM_ACCESS_ERR},
	        {IB_NAK_REMOTE_OPERATIONAL_ERROR, HDL_WC_REM_OP_ERR},
	};
	struct rig *rig = *state;
	uint32_t psn = RIG_SQ_PSN;
	for (unsigned i = 0; i < COUNT(cases); i++) {
		post(rig, rig->qp, 1, HDL_OP_SEND, 700);
		post(rig, rig->qp, 2, HDL_OP_SEND, 8);
		post(rig, rd.more[0], 3, HDL_OP_SEND, 8);
		rig_skip(rig);
		answer(rig, psn + 1, IB_AETH_NAK, (uint8_t)cases[i].code);
		completion(rig, rig->qp, 1, cases[i].status);
		psn += 3;
		const struct ib_packet *packet = rd_expect(rig, IB_OP_RESYNC, psn);
		assert_true(packet->bth.ack_request);
		assert_int_equal(packet->deth.src_qp, hdl_qp_number(rig->qp));
		assert_int_equal(packet->bth.dest_qp, RIG_PEER_QPN);
		rig_expect_none(rig);
		answer(rig, psn - 2, IB_AETH_NAK, IB_NAK_INVALID_REQUEST); /* late: no harm */
		rig_await(rig, 20000000); /* and the RESYNC gets lost */
		rd_expect(rig, IB_OP_RESYNC, psn);
		ack(rig, psn);
		packet = rd_expect(rig, IB_OP_SEND_ONLY, psn + 1);
		assert_int_equal(packet->deth.src_qp, hdl_qp_number(rd.more[0]));
		ack(rig, psn + 1);
		completion(rig, rd.more[0], 3, HDL_WC_SUCCESS);
		rd_expect(rig, IB_OP_SEND_ONLY, psn + 2);
		ack(rig, psn + 2);
		completion(rig, rig->qp, 2, HDL_WC_SUCCESS);
		psn += 3;
		assert_int_equal(rd_state(), HDL_QPS_RTS);
		assert_int_equal(rig_state(rig), HDL_QPS_RTS);
	}
}

static void receiver_not_ready_is_tried_again_and_given_up(void **state)
{
	struct rig *rig = *state;
	post(rig, rig->qp, 1, HDL_OP_SEND, 8);
	post(rig, rd.more[0], 2, HDL_OP_SEND, 8);
	for (unsigned i = 0; i < 3; i++) {
		rd_expect(rig, IB_OP_SEND_ONLY, RIG_SQ_PSN);
		rig_expect_none(rig);
		answer(rig, RIG_SQ_PSN, IB_AETH_RNR_NAK, 1);
		if (i < 2)
			rig_await(rig, 20000000);
	}
	completion(rig, rig->qp, 1, HDL_WC_RNR_RETRY_EXC_ERR);
	rd_expect(rig, IB_OP_RESYNC, RIG_SQ_PSN + 1);
	ack(rig, RIG_SQ_PSN + 1);
	rd_expect(rig, IB_OP_SEND_ONLY, RIG_SQ_PSN + 2);
	ack(rig, RIG_SQ_PSN + 2);
	completion(rig, rd.more[0], 2, HDL_WC_SUCCESS);
}

/* A piece that is no memory of ours: nothing was sent, so nothing needs to be put right. */
static void an_error_of_our_own_sends_nothing(void **state)
{
	struct rig *rig = *state;
	struct hdl_sge bad = {rig_address(rig, 0), 16, {hdl_mr_key(rig->mr).v ^ 1}};
	struct hdl_send_wr wr = {.wr_id = 1,
	                         .opcode = HDL_OP_SEND,
	                         .sg_list = &bad,
	                         .num_sge = 1,
	                         .rd = {rd.eec, RIG_PEER_QPN, RD_QKEY}};
	assert_int_equal(hdl_post_send(rig->qp, &wr, NULL), 0);
	rig_run(rig);
	completion(rig, rig->qp, 1, HDL_WC_LOC_PROT_ERR);
	rig_expect_none(rig);
	post(rig, rig->qp, 2, HDL_OP_SEND, 8);
	rd_expect(rig, IB_OP_SEND_ONLY, RIG_SQ_PSN);
	ack(rig, RIG_SQ_PSN);
	completion(rig, rig->qp, 2, HDL_WC_SUCCESS);
}

static void a_lost_peer_fails_the_context_and_all_who_use_it(void **state)
{
	struct rig *rig = *state;
	struct hdl_eec *other = rd.eec;
	assert_int_equal(hdl_eec_create(rd.rdd, &rd.eec), 0);
	rd_ready(rig, 2);
	post(rig, rig->qp, 1, HDL_OP_SEND, 8); /* to the one that is lost */
	post(rig, rd.more[0], 2, HDL_OP_SEND, 8);
	for (unsigned i = 0; i < 3; i++)
		rig_pass(rig, 30000000);
	completion(rig, rig->qp, 1, HDL_WC_RETRY_EXC_ERR);
	completion(rig, rd.more[0], 2, HDL_WC_INV_EEC_STATE_ERR);
	assert_int_equal(rd_state(), HDL_QPS_ERR);
	post(rig, rig->qp, 3, HDL_OP_SEND, 8);
	completion(rig, rig->qp, 3, HDL_WC_INV_EEC_STATE_ERR);
	rig_skip(rig);
	struct hdl_eec *lost = rd.eec;
	rd.eec = other;
	post(rig, rig->qp, 4, HDL_OP_SEND, 8); /* the way through the other context is open */
	rd_expect(rig, IB_OP_SEND_ONLY, RIG_SQ_PSN);
	ack(rig, RIG_SQ_PSN);
	completion(rig, rig->qp, 4, HDL_WC_SUCCESS);
	assert_int_equal(rig_state(rig), HDL_QPS_RTS);
	/* Brought back, it works again. */
	struct hdl_qp_attr reset = {.state = HDL_QPS_RESET};
	assert_int_equal(hdl_eec_modify(lost, &reset, HDL_QP_STATE), 0);
	rd.eec = lost;
	rd_ready(rig, 2);
	post(rig, rig->qp, 5, HDL_OP_SEND, 8);
	rd_expect(rig, IB_OP_SEND_ONLY, RIG_SQ_PSN);
	ack(rig, RIG_SQ_PSN);
	completion(rig, rig->qp, 5, HDL_WC_SUCCESS);
	assert_int_equal(hdl_eec_destroy(other), 0);
}

static void who_leaves_takes_its_message_along(void **state)
{
	struct rig *rig = *state;
	post(rig, rd.more[0], 1, HDL_OP_SEND, 8);
	post(rig, rd.more[1], 2, HDL_OP_SEND, 8);
	post(rig, rig->qp, 3, HDL_OP_SEND, 8);
	rd_expect(rig, IB_OP_SEND_ONLY, RIG_SQ_PSN);
	/* One waits, one is being sent. */
	assert_int_equal(hdl_qp_destroy(rd.more[1]), 0);
	rd.more[1] = NULL;
	struct hdl_qp_attr fail = {.state = HDL_QPS_ERR};
	assert_int_equal(hdl_qp_modify(rd.more[0], &fail, HDL_QP_STATE), 0);
	completion(rig, rd.more[0], 1, HDL_WC_WR_FLUSH_ERR);
	rig_run(rig);
	rd_expect(rig, IB_OP_RESYNC, RIG_SQ_PSN + 1);
	ack(rig, RIG_SQ_PSN + 1);
	const struct ib_packet *packet = rd_expect(rig, IB_OP_SEND_ONLY, RIG_SQ_PSN + 2);
	assert_int_equal(packet->deth.src_qp, hdl_qp_number(rig->qp));
	/* The context goes: so does what is in it, and what comes to it. */
	post(rig, rig->qp, 4, HDL_OP_SEND, 8);
	assert_int_equal(hdl_eec_destroy(rd.eec), 0);
	rd.eec = NULL;
	completion(rig, rig->qp, 3, HDL_WC_LOC_EEC_OP_ERR);
	rig_run(rig);
	completion(rig, rig->qp, 4, HDL_WC_INV_EECN_ERR);
	assert_int_equal(rig_state(rig), HDL_QPS_RTS);
}

static void requests_that_make_no_sense(void **state)
{
	struct rig *rig = *state;
	struct hdl_rdd *rdd;
	struct hdl_eec *eec;
	struct hdl_send_wr send = {.opcode = HDL_OP_SEND}, inv = {.opcode = HDL_OP_SEND_INVALIDATE};
	assert_int_equal(hdl_rdd_open(rig->adapter, &rdd), 0);
	assert_int_equal(hdl_eec_create(rdd, &eec), 0);
	send.rd.eec = eec;
	assert_int_equal(try_post(rig, rig->qp, send, 0, 8), -HDL_EINVAL); /* another domain */
	assert_int_equal(try_post(rig, rig->qp, inv, 0, 8), -HDL_ENOTSUP);
	assert_int_equal(hdl_rdd_close(rdd), -HDL_EBUSY);
	struct hdl_qp_attr attr = {.state = HDL_QPS_RTR};
	assert_int_equal(hdl_eec_modify(eec, &attr, HDL_QP_STATE), -HDL_EPERM);
	attr.state = HDL_QPS_INIT;
	assert_int_equal(hdl_eec_modify(eec, &attr, HDL_QP_STATE), -HDL_EINVAL);
	attr.max_rd_atomic = 2;
	assert_int_equal(hdl_eec_modify(rd.eec, &attr, HDL_QP_MAX_RD_ATOMIC), -HDL_EINVAL);
	attr.state = HDL_QPS_SQD;
	assert_int_equal(hdl_eec_modify(rd.eec, &attr, HDL_QP_STATE), -HDL_EPERM);
	assert_int_equal(hdl_eec_destroy(eec), 0);
	assert_int_equal(hdl_rdd_close(rdd), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        RD_RIGGED(a_message_names_context_queue_pair_and_key),
	        RD_RIGGED(one_message_is_in_flight_and_turns_are_fair),
	        RD_RIGGED(reads_and_atomics),
	        RD_RIGGED(what_is_lost_is_sent_again),
	        RD_RIGGED(a_refusal_is_the_end_of_one_message),
	        RD_RIGGED(receiver_not_ready_is_tried_again_and_given_up),
	        RD_RIGGED(an_error_of_our_own_sends_nothing),
	        RD_RIGGED(a_lost_peer_fails_the_context_and_all_who_use_it),
	        RD_RIGGED(who_leaves_takes_its_message_along),
	        RD_RIGGED(requests_that_make_no_sense),
	};
	return cmocka_run_group_tests_name("reliable datagrams, requester", tests, NULL, NULL);
}
