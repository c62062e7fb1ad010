/* The responder of reliable datagrams, packet by packet (IBTA volume 1 section 9.7.8; MISSION SN2):
 * a message reaches the queue pair that it names, and what is refused harms no other one. */
#include "ib_rd_rig.h"

static void take_data(struct rig *rig, const struct hdl_qp *qp, uint8_t opcode, uint32_t psn,
                      uint32_t seed, size_t bytes)
{
	struct ib_packet packet = rd_packet(qp, opcode, psn);
	struct ib_packet data = rig_data(rig, IB_RC, psn, seed, bytes);
	packet.payload = data.payload;
	packet.payload_bytes = bytes;
	packet.reth =
	        (struct ib_reth){rig_address(rig, 8192), hdl_mr_key(rig->mr).v, (uint32_t)bytes};
	rig_take(rig, &packet);
}

static void expect_answer(struct rig *rig, uint32_t psn, enum ib_aeth_kind kind, uint8_t value)
{
	const struct ib_packet *packet = rd_expect(rig, IB_OP_ACK, psn);
	assert_int_equal(packet->bth.dest_qp, RIG_PEER_QPN);
	assert_int_equal(packet->aeth.syndrome, ib_aeth_syndrome(kind, value));
}

static void expect_ack(struct rig *rig, uint32_t psn)
{
	expect_answer(rig, psn, IB_AETH_ACK, IB_AETH_NO_CREDITS);
}

static void recv_at(struct rig *rig, struct hdl_qp *qp, uint64_t wr_id, size_t offset,
                    uint32_t length)
{
	struct hdl_sge piece = {rig_address(rig, offset), length, hdl_mr_key(rig->mr)};
	struct hdl_recv_wr wr = {.wr_id = wr_id, .sg_list = &piece, .num_sge = 1};
	assert_int_equal(hdl_post_recv(qp, &wr, NULL), 0);
}

static void received(struct rig *rig, const struct hdl_qp *qp, uint64_t wr_id, uint32_t status,
                     uint32_t bytes)
{
	struct hdl_wc wc;
	assert_int_equal(hdl_cq_poll(rig->rcq, &wc, 1), 1);
	assert_int_equal(wc.wr_id, wr_id);
	assert_string_equal(hdl_wc_status_str(wc.status), hdl_wc_status_str(status));
	assert_int_equal(wc.qpn, hdl_qp_number(qp));
	if (status != HDL_WC_SUCCESS)
		return;
	assert_int_equal(wc.byte_len, bytes);
	assert_int_equal(wc.src_qpn, RIG_PEER_QPN);
	assert_int_equal(wc.eecn, hdl_eec_number(rd.eec));
}

static void messages_go_to_the_queue_pair_they_name(void **state)
{
	struct rig *rig = *state;
	recv_at(rig, rig->qp, 1, 0, 64);
	recv_at(rig, rd.more[0], 2, 1024, 600);
	take_data(rig, rig->qp, IB_OP_SEND_ONLY, RIG_RQ_PSN, 5, 40);
	expect_ack(rig, RIG_RQ_PSN);
	received(rig, rig->qp, 1, HDL_WC_SUCCESS, 40);
	assert_true(rig_holds(rig, 0, 5, 0, 40));
	take_data(rig, rd.more[0], IB_OP_SEND_FIRST, RIG_RQ_PSN + 1, 6, 256);
	take_data(rig, rd.more[0], IB_OP_SEND_LAST, RIG_RQ_PSN + 2, 7, 30);
	rig_skip(rig);
	received(rig, rd.more[0], 2, HDL_WC_SUCCESS, 286);
	assert_true(rig_holds(rig, 1024, 6, 0, 256) && rig_holds(rig, 1280, 7, 0, 30));
	/* Doubled: acknowledged again, executed once. */
	take_data(rig, rd.more[0], IB_OP_SEND_LAST, RIG_RQ_PSN + 2, 7, 30);
	expect_ack(rig, RIG_RQ_PSN + 2);
	/* A gap is asked for, once. */
	take_data(rig, rig->qp, IB_OP_SEND_ONLY, RIG_RQ_PSN + 4, 5, 40);
	expect_answer(rig, RIG_RQ_PSN + 3, IB_AETH_NAK, IB_NAK_PSN_SEQUENCE_ERROR);
	take_data(rig, rig->qp, IB_OP_SEND_ONLY, RIG_RQ_PSN + 5, 5, 40);
	rig_expect_none(rig);
	rig_no_completion(rig, rig->rcq);
}

/* Somebody who knows numbers and no PSN: neither does a RESYNC move what is expected, nor are
 * answers led elsewhere. */
static void strangers_move_nothing(void **state)
{
	struct rig *rig = *state;
	static const uint32_t ahead[] = {5000, 0x10000, 0x7fffff};
	recv_at(rig, rig->qp, 1, 0, 600);
	take_data(rig, rig->qp, IB_OP_SEND_FIRST, RIG_RQ_PSN, 5, 256);
	rig_skip(rig);
	for (unsigned i = 0; i < COUNT(ahead); i++) {
		struct ib_packet packet = rd_packet(rig->qp, IB_OP_RESYNC, RIG_RQ_PSN + ahead[i]);
		rig_take(rig, &packet);
		rig_no_completion(rig, rig->rcq);
		packet = rd_packet(rig->qp, IB_OP_SEND_ONLY, RIG_RQ_PSN + ahead[i]);
		packet.deth.src_qp = 0x123456;
		rig_take(rig, &packet);
	}
	/* Near enough, and of another queue pair than the one whose message is there in part. */
	struct ib_packet packet = rd_packet(rig->qp, IB_OP_RESYNC, RIG_RQ_PSN + 3);
	packet.deth.src_qp = 0x123456;
	rig_take(rig, &packet);
	packet = rd_packet(rd.more[0], IB_OP_RESYNC, RIG_RQ_PSN + 3);
	rig_take(rig, &packet);
	rig_no_completion(rig, rig->rcq);
	while (rig->looked_at != rig->sent_count) /* what was said went to the peer */
		assert_int_equal(rig_look(rig)->bth.dest_qp, RIG_PEER_QPN);
	take_data(rig, rig->qp, IB_OP_SEND_LAST, RIG_RQ_PSN + 1, 6, 40);
	expect_ack(rig, RIG_RQ_PSN + 1);
	received(rig, rig->qp, 1, HDL_WC_SUCCESS, 296);
	/* The peer's own, for a message that it gives up. */
	recv_at(rig, rig->qp, 2, 0, 600);
	take_data(rig, rig->qp, IB_OP_SEND_FIRST, RIG_RQ_PSN + 2, 5, 256);
	rig_skip(rig);
	packet = rd_packet(rig->qp, IB_OP_RESYNC, RIG_RQ_PSN + 9);
	rig_take(rig, &packet);
	expect_ack(rig, RIG_RQ_PSN + 9);
	received(rig, rig->qp, 2, HDL_WC_REM_ABORT_ERR, 0);
}

static void rdma_and_atomics_are_executed(void **state)
{
	struct rig *rig = *state;
	take_data(rig, rig->qp, IB_OP_WRITE_ONLY, RIG_RQ_PSN, 5, 40);
	expect_ack(rig, RIG_RQ_PSN);
	assert_true(rig_holds(rig, 8192, 5, 0, 40));
	struct ib_packet read = rd_packet(rig->qp, IB_OP_READ_REQUEST, RIG_RQ_PSN + 1);
	read.reth = (struct ib_reth){rig_address(rig, 4096), hdl_mr_key(rig->mr).v, 300};
	for (unsigned i = 0; i < 2; i++) { /* and again */
		rig_take(rig, &read);
		const struct ib_packet *part =
		        rd_expect(rig, IB_OP_READ_RESPONSE_FIRST, RIG_RQ_PSN + 1);
		assert_memory_equal(part->payload, rig->mem + 4096, 256);
		assert_int_equal(part->bth.dest_qp, RIG_PEER_QPN);
		part = rd_expect(rig, IB_OP_READ_RESPONSE_LAST, RIG_RQ_PSN + 2);
		assert_memory_equal(part->payload, rig->mem + 4352, 44);
	}
	*(uint64_t *)(void *)(rig->mem + 512) = 100;
	struct ib_packet add = rd_packet(rd.more[0], IB_OP_FETCH_ADD, RIG_RQ_PSN + 3);
	add.atomiceth = (struct ib_atomiceth){
	        .addr = rig_address(rig, 512), .rkey = hdl_mr_key(rig->mr).v, .swap_or_add = 7};
	for (unsigned i = 0; i < 2; i++) {
		rig_take(rig, &add);
		const struct ib_packet *old = rd_expect(rig, IB_OP_ATOMIC_ACK, RIG_RQ_PSN + 3);
		assert_int_equal(old->atomicack.original, 100);
	}
	assert_int_equal(*(uint64_t *)(void *)(rig->mem + 512), 107);
}

static void take_resync(struct rig *rig, uint32_t psn)
{
	struct ib_packet packet = rd_packet(rig->qp, IB_OP_RESYNC, psn);
	rig_take(rig, &packet);
	expect_ack(rig, psn);
}

/* What is wrong with a message, and what is said about it, as often as it is asked, until a RESYNC.
 */
static void what_is_refused_harms_nobody_else(void **state)
{
	struct rig *rig = *state;
	uint32_t psn = RIG_RQ_PSN;
	struct hdl_rdd *rdd;
	assert_int_equal(hdl_rdd_open(rig->adapter, &rdd), 0);
	struct hdl_qp *stranger = rd_qp(rig, rdd, NULL);
	for (unsigned kind = 0; kind < 6; kind++) {
		struct ib_packet packet = rd_packet(rig->qp, IB_OP_SEND_ONLY, psn);
		struct ib_packet data = rig_data(rig, IB_RC, psn, 5, 64);
		enum ib_nak_code code = IB_NAK_INVALID_RD_REQUEST;
		packet.payload = data.payload;
		packet.payload_bytes = 64;
		switch (kind) {
		case 0: /* a wrong key */
			packet.deth.qkey ^= 1;
			break;
		case 1: /* nobody there */
			packet.bth.dest_qp ^= 0x800000;
			break;
		case 2: /* not of this domain */
			packet.bth.dest_qp = hdl_qp_number(stranger);
			break;
		case 3: /* too long for its receive */
			recv_at(rig, rig->qp, 9, 0, 32);
			code = IB_NAK_INVALID_REQUEST;
			break;
		case 4: /* memory that it may not write */
			packet.bth.opcode = IB_RD + IB_OP_WRITE_ONLY;
			packet.reth = (struct ib_reth){rig_address(rig, 0),
			                               hdl_mr_key(rig->mr).v ^ 1, 64};
			code = IB_NAK_REMOTE_ACCESS_ERROR;
			break;
		default: /* a middle without a first */
			packet.bth.opcode = IB_RD + IB_OP_SEND_MIDDLE;
			data = rig_data(rig, IB_RC, psn, 5, 256);
			packet.payload_bytes = 256;
			code = IB_NAK_INVALID_REQUEST;
		}
		for (unsigned times = 0; times < 3; times++) {
			rig_take(rig, &packet);
			expect_answer(rig, psn, IB_AETH_NAK, (uint8_t)code);
		}
		take_data(rig, rig->qp, IB_OP_SEND_ONLY, psn + 1, 5, 8); /* not its turn */
		rig_expect_none(rig);
		if (kind == 3)
			received(rig, rig->qp, 9, HDL_WC_LOC_LEN_ERR, 0);
		rig_no_completion(rig, rig->rcq);
		take_resync(rig, psn + 3);
		recv_at(rig, rd.more[0], 1, 0, 64);
		take_data(rig, rd.more[0], IB_OP_SEND_ONLY, psn + 4, 6, 20);
		expect_ack(rig, psn + 4);
		received(rig, rd.more[0], 1, HDL_WC_SUCCESS, 20);
		psn += 5;
		assert_int_equal(rd_state(), HDL_QPS_RTS);
		assert_int_equal(rig_state(rig), HDL_QPS_RTS);
	}
	rig_no_event(rig);
	assert_int_equal(hdl_qp_destroy(stranger), 0);
	assert_int_equal(hdl_rdd_close(rdd), 0);
}

static void no_receive_is_said_and_forgotten(void **state)
{
	struct rig *rig = *state;
	take_data(rig, rig->qp, IB_OP_SEND_ONLY, RIG_RQ_PSN, 5, 8);
	expect_answer(rig, RIG_RQ_PSN, IB_AETH_RNR_NAK, 1);
	recv_at(rig, rig->qp, 1, 0, 64);
	take_data(rig, rig->qp, IB_OP_SEND_ONLY, RIG_RQ_PSN, 5, 8);
	expect_ack(rig, RIG_RQ_PSN);
	received(rig, rig->qp, 1, HDL_WC_SUCCESS, 8);
}

/* The sender gives a message up half way: its receive is over, and others come through. */
static void a_message_that_is_given_up_uses_its_receive(void **state)
{
	struct rig *rig = *state;
	recv_at(rig, rig->qp, 1, 0, 600);
	recv_at(rig, rig->qp, 2, 1024, 600);
	take_data(rig, rig->qp, IB_OP_SEND_FIRST, RIG_RQ_PSN, 5, 256);
	rig_skip(rig);
	take_resync(rig, RIG_RQ_PSN + 3);
	received(rig, rig->qp, 1, HDL_WC_REM_ABORT_ERR, 0);
	take_resync(rig, RIG_RQ_PSN + 3); /* doubled */
	take_data(rig, rig->qp, IB_OP_SEND_ONLY, RIG_RQ_PSN + 4, 6, 256);
	expect_ack(rig, RIG_RQ_PSN + 4);
	received(rig, rig->qp, 2, HDL_WC_SUCCESS, 256);
	rig_no_completion(rig, rig->rcq);
}

/* Two contexts deliver to one queue pair at the same time: each message has a receive of its own.
 */
static void contexts_do_not_mix_their_messages(void **state)
{
	struct rig *rig = *state;
	struct hdl_eec *first = rd.eec, *second;
	assert_int_equal(hdl_eec_create(rd.rdd, &rd.eec), 0);
	rd_ready(rig, 2);
	second = rd.eec;
	recv_at(rig, rig->qp, 1, 0, 600);
	recv_at(rig, rig->qp, 2, 1024, 600);
	rd.eec = first;
	take_data(rig, rig->qp, IB_OP_SEND_FIRST, RIG_RQ_PSN, 5, 256);
	rd.eec = second;
	take_data(rig, rig->qp, IB_OP_SEND_FIRST, RIG_RQ_PSN, 6, 256);
	take_data(rig, rig->qp, IB_OP_SEND_LAST, RIG_RQ_PSN + 1, 6, 10);
	received(rig, rig->qp, 2, HDL_WC_SUCCESS, 266);
	rd.eec = first;
	take_data(rig, rig->qp, IB_OP_SEND_LAST, RIG_RQ_PSN + 1, 5, 10);
	received(rig, rig->qp, 1, HDL_WC_SUCCESS, 266);
	assert_true(rig_holds(rig, 0, 5, 0, 256) && rig_holds(rig, 1024, 6, 0, 256));
	assert_int_equal(hdl_eec_destroy(second), 0);
}

/* Receives from a shared queue: each message takes one of its own when it begins. */
static void shared_receives(void **state)
{
	struct rig *rig = *state;
	struct hdl_srq_attr limits = {.max_wr = 8, .max_sge = 1};
	struct hdl_srq *srq;
	assert_int_equal(hdl_srq_create(rig->pd, &limits, NULL, &srq), 0);
	assert_int_equal(hdl_qp_destroy(rd.more[0]), 0);
	rd.more[0] = rd_qp(rig, rd.rdd, srq);
	for (uint64_t i = 0; i < 2; i++) {
		struct hdl_sge piece = {rig_address(rig, 1024 * i), 600, hdl_mr_key(rig->mr)};
		struct hdl_recv_wr wr = {.wr_id = i, .sg_list = &piece, .num_sge = 1};
		assert_int_equal(hdl_srq_post(srq, &wr, NULL), 0);
	}
	take_data(rig, rd.more[0], IB_OP_SEND_FIRST, RIG_RQ_PSN, 5, 256);
	take_data(rig, rd.more[0], IB_OP_SEND_LAST, RIG_RQ_PSN + 1, 6, 10);
	received(rig, rd.more[0], 0, HDL_WC_SUCCESS, 266);
	take_data(rig, rd.more[0], IB_OP_SEND_FIRST, RIG_RQ_PSN + 2, 7, 256);
	rig_skip(rig);
	struct ib_packet packet = rd_packet(rd.more[0], IB_OP_RESYNC, RIG_RQ_PSN + 4);
	rig_take(rig, &packet);
	expect_ack(rig, RIG_RQ_PSN + 4);
	received(rig, rd.more[0], 1, HDL_WC_REM_ABORT_ERR, 0);
	take_data(rig, rd.more[0], IB_OP_SEND_ONLY, RIG_RQ_PSN + 5, 5, 8);
	expect_answer(rig, RIG_RQ_PSN + 5, IB_AETH_RNR_NAK, 1);
	assert_true(rig_holds(rig, 0, 5, 0, 256) && rig_holds(rig, 1024, 7, 0, 256));
	assert_int_equal(hdl_qp_destroy(rd.more[0]), 0);
	rd.more[0] = NULL;
	assert_int_equal(hdl_srq_destroy(srq), 0);
}

/* The target of a message goes while it is being received, or read. */
static void a_target_that_goes_refuses(void **state)
{
	struct rig *rig = *state;
	recv_at(rig, rd.more[0], 1, 0, 600);
	take_data(rig, rd.more[0], IB_OP_SEND_FIRST, RIG_RQ_PSN, 5, 256);
	rig_skip(rig);
	struct hdl_qp_attr fail = {.state = HDL_QPS_ERR};
	assert_int_equal(hdl_qp_modify(rd.more[0], &fail, HDL_QP_STATE), 0);
	rig_run(rig);
	received(rig, rd.more[0], 1, HDL_WC_WR_FLUSH_ERR, 0);
	expect_answer(rig, RIG_RQ_PSN + 1, IB_AETH_NAK, IB_NAK_INVALID_RD_REQUEST);
	take_resync(rig, RIG_RQ_PSN + 2);
	struct ib_packet read = rd_packet(rd.more[1], IB_OP_READ_REQUEST, RIG_RQ_PSN + 3);
	read.reth = (struct ib_reth){rig_address(rig, 4096), hdl_mr_key(rig->mr).v, 300};
	rig_take(rig, &read);
	rig_skip(rig);
	assert_int_equal(hdl_qp_destroy(rd.more[1]), 0);
	rd.more[1] = NULL;
	rig_take(rig, &read);
	expect_answer(rig, RIG_RQ_PSN + 3, IB_AETH_NAK, IB_NAK_INVALID_RD_REQUEST);
	assert_int_equal(rd_state(), HDL_QPS_RTS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        RD_RIGGED(messages_go_to_the_queue_pair_they_name),
	        RD_RIGGED(strangers_move_nothing),
	        RD_RIGGED(rdma_and_atomics_are_executed),
	        RD_RIGGED(what_is_refused_harms_nobody_else),
	        RD_RIGGED(no_receive_is_said_and_forgotten),
	        RD_RIGGED(a_message_that_is_given_up_uses_its_receive),
	        RD_RIGGED(contexts_do_not_mix_their_messages),
	        RD_RIGGED(shared_receives),
	        RD_RIGGED(a_target_that_goes_refuses),
	};
	return cmocka_run_group_tests_name("reliable datagrams, responder", tests, NULL, NULL);
}
