/* Reliable datagrams, packet by packet (IBTA volume 1 section 9.7.8; MISSION SN2): one message in flight a context, whoever waits for it
 * has a turn, and what fails is a message, not the context. */
#include "ib_rig.h"

#define PEER_EEC 0x00eec5u
#define QKEYS    0x00000077u
#define OTHERS   2u

#define ALL (HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE | HDL_ACCESS_REMOTE_ATOMIC)

struct world {
	struct hdl_rdd *rdd;
	struct hdl_eec *eec;
	struct hdl_qp *more[OTHERS]; /* beside rig.qp */
};

static struct world world;

static struct hdl_qp *make_qp_with(struct rig *rig, struct hdl_rdd *rdd, struct hdl_srq *srq)
{
	struct hdl_qp *qp;
	struct hdl_qp_init_attr init = {.type = HDL_QP_RD,
	                                .send_cq = rig->scq,
	                                .recv_cq = rig->rcq,
	                                .rdd = rdd,
	                                .srq = srq,
	                                .cap = {8, 8, 4, 4, 64}};
	struct hdl_qp_attr attr = {.state = HDL_QPS_INIT,
	                           .port_num = 1,
	                           .qkey = QKEYS,
	                           .access = ALL,
	                           .min_rnr_timer = 1};
	assert_int_equal(hdl_qp_create(rig->pd, &init, &qp), 0);
	assert_int_equal(hdl_qp_modify(qp, &attr,
	                               HDL_QP_STATE | HDL_QP_PKEY_INDEX | HDL_QP_PORT |
	                                       HDL_QP_QKEY | HDL_QP_ACCESS | HDL_QP_MIN_RNR_TIMER),
	                 0);
	attr.state = HDL_QPS_RTR;
	assert_int_equal(hdl_qp_modify(qp, &attr, HDL_QP_STATE), 0);
	attr.state = HDL_QPS_RTS;
	assert_int_equal(hdl_qp_modify(qp, &attr, HDL_QP_STATE), 0);
	return qp;
}

static struct hdl_qp *make_qp(struct rig *rig, struct hdl_rdd *rdd)
{
	return make_qp_with(rig, rdd, NULL);
}

static void ready_context(struct rig *rig, uint8_t retries)
{
	struct hdl_qp_attr attr = {
	        .state = HDL_QPS_INIT,
	        .port_num = 1,
	        .ah = {.dgid = rig->peer, .port_num = 1, .is_global = true, .hop_limit = 64},
	        .path_mtu = 256,
	        .dest_qpn = PEER_EEC,
	        .rq_psn = RIG_RQ_PSN,
	        .sq_psn = RIG_SQ_PSN,
	        .max_dest_rd_atomic = 1,
	        .max_rd_atomic = 1,
	        .timeout = 10,
	        .retry_cnt = retries,
	        .rnr_retry = retries};
	assert_int_equal(
	        hdl_eec_modify(world.eec, &attr, HDL_QP_STATE | HDL_QP_PKEY_INDEX | HDL_QP_PORT),
	        0);
	attr.state = HDL_QPS_RTR;
	assert_int_equal(hdl_eec_modify(world.eec, &attr,
	                                HDL_QP_STATE | HDL_QP_AV | HDL_QP_PATH_MTU |
	                                        HDL_QP_DEST_QPN | HDL_QP_RQ_PSN |
	                                        HDL_QP_MAX_DEST_RD_ATOMIC),
	                 0);
	attr.state = HDL_QPS_RTS;
	assert_int_equal(hdl_eec_modify(world.eec, &attr,
	                                HDL_QP_STATE | HDL_QP_SQ_PSN | HDL_QP_TIMEOUT |
	                                        HDL_QP_RETRY_CNT | HDL_QP_RNR_RETRY |
	                                        HDL_QP_MAX_RD_ATOMIC),
	                 0);
}

static int setup(void **state)
{
	rig_setup(state);
	struct rig *rig = *state;
	assert_int_equal(hdl_rdd_open(rig->adapter, &world.rdd), 0);
	assert_int_equal(hdl_eec_create(world.rdd, &world.eec), 0);
	ready_context(rig, 2);
	rig->qp = make_qp(rig, world.rdd);
	for (unsigned i = 0; i < OTHERS; i++)
		world.more[i] = make_qp(rig, world.rdd);
	return 0;
}

static int teardown(void **state)
{
	struct rig *rig = *state;
	for (unsigned i = 0; i < OTHERS; i++)
		if (world.more[i] != NULL)
			assert_int_equal(hdl_qp_destroy(world.more[i]), 0);
	if (rig->qp != NULL)
		assert_int_equal(hdl_qp_destroy(rig->qp), 0);
	rig->qp = NULL;
	if (world.eec != NULL)
		assert_int_equal(hdl_eec_destroy(world.eec), 0);
	assert_int_equal(hdl_rdd_close(world.rdd), 0);
	return rig_teardown(state);
}

#define WITH(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

/* --- the peer --- */

static struct ib_packet packet_to(const struct hdl_qp *qp, uint8_t opcode, uint32_t psn)
{
	struct ib_packet packet = {0};
	packet.bth.opcode = (uint8_t)(IB_RD + opcode);
	packet.bth.migreq = true;
	packet.bth.ack_request = true;
	packet.bth.pkey = 0xffff;
	packet.bth.dest_qp = hdl_qp_number(qp);
	packet.bth.psn = psn;
	packet.rdeth.ee_context = hdl_eec_number(world.eec);
	packet.deth.qkey = QKEYS;
	packet.deth.src_qp = RIG_PEER_QPN;
	return packet;
}

static void take_data(struct rig *rig, const struct hdl_qp *qp, uint8_t opcode, uint32_t psn,
                      uint32_t seed, size_t bytes)
{
	struct ib_packet packet = packet_to(qp, opcode, psn);
	struct ib_packet data = rig_data(rig, IB_RC, psn, seed, bytes);
	packet.payload = data.payload;
	packet.payload_bytes = bytes;
	packet.reth =
	        (struct ib_reth){rig_address(rig, 8192), hdl_mr_key(rig->mr).v, (uint32_t)bytes};
	rig_take(rig, &packet);
}

static void answer(struct rig *rig, uint32_t psn, enum ib_aeth_kind kind, uint8_t value)
{
	struct ib_packet packet = packet_to(rig->qp, IB_OP_ACK, psn);
	packet.bth.ack_request = false;
	packet.aeth.syndrome = ib_aeth_syndrome(kind, value);
	rig_take(rig, &packet);
}

static void ack(struct rig *rig, uint32_t psn)
{
	answer(rig, psn, IB_AETH_ACK, IB_AETH_NO_CREDITS);
}

static const struct ib_packet *expect(struct rig *rig, uint8_t opcode, uint32_t psn)
{
	const struct ib_packet *packet = rig_expect(rig, (uint8_t)(IB_RD + opcode), psn);
	assert_int_equal(packet->rdeth.ee_context, PEER_EEC);
	return packet;
}

static void expect_answer(struct rig *rig, uint32_t psn, enum ib_aeth_kind kind, uint8_t value)
{
	const struct ib_packet *packet = expect(rig, IB_OP_ACK, psn);
	assert_int_equal(packet->bth.dest_qp, RIG_PEER_QPN);
	assert_int_equal(packet->aeth.syndrome, ib_aeth_syndrome(kind, value));
}

static void expect_ack(struct rig *rig, uint32_t psn)
{
	expect_answer(rig, psn, IB_AETH_ACK, IB_AETH_NO_CREDITS);
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
		wr.rd.eec = world.eec;
	wr.rd.qpn = RIG_PEER_QPN;
	wr.rd.qkey = QKEYS;
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

static enum hdl_qp_state context_state(void)
{
	struct hdl_qp_attr attr;
	assert_int_equal(hdl_eec_query(world.eec, &attr), 0);
	return attr.state;
}

/* --- requester --- */

static void a_message_names_context_queue_pair_and_key(void **state)
{
	struct rig *rig = *state;
	post(rig, rig->qp, 1, HDL_OP_SEND, 300);
	const struct ib_packet *packet = expect(rig, IB_OP_SEND_FIRST, RIG_SQ_PSN);
	assert_int_equal(packet->bth.dest_qp, RIG_PEER_QPN);
	assert_int_equal(packet->deth.qkey, QKEYS);
	assert_int_equal(packet->deth.src_qp, hdl_qp_number(rig->qp));
	assert_memory_equal(packet->payload, rig->mem, 256);
	packet = expect(rig, IB_OP_SEND_LAST, RIG_SQ_PSN + 1);
	assert_true(packet->bth.ack_request);
	assert_int_equal(packet->payload_bytes, 44);
	rig_no_completion(rig, rig->scq);
	ack(rig, RIG_SQ_PSN + 1);
	completion(rig, rig->qp, 1, HDL_WC_SUCCESS);
	post(rig, rig->qp, 2, HDL_OP_WRITE, 20);
	packet = expect(rig, IB_OP_WRITE_ONLY, RIG_SQ_PSN + 2);
	assert_int_equal(packet->reth.addr, 0x5000);
	assert_int_equal(packet->reth.rkey, 0x1234);
	assert_int_equal(packet->reth.length_bytes, 20);
	ack(rig, RIG_SQ_PSN + 2);
	completion(rig, rig->qp, 2, HDL_WC_SUCCESS);
}

static void one_message_is_in_flight_and_turns_are_fair(void **state)
{
	struct rig *rig = *state;
	struct hdl_qp *const qps[] = {rig->qp, world.more[0], world.more[1]};
	/* The first has three messages, posted before the others have one each: they do not wait for all of it. */
	static const unsigned turns[] = {0, 1, 2, 0, 0};
	for (uint64_t i = 0; i < 3; i++)
		post(rig, rig->qp, i, HDL_OP_SEND, 16);
	post(rig, world.more[0], 10, HDL_OP_SEND, 16);
	post(rig, world.more[1], 20, HDL_OP_SEND, 16);
	uint64_t next[] = {0, 10, 20};
	for (unsigned i = 0; i < COUNT(turns); i++) {
		const struct ib_packet *packet = expect(rig, IB_OP_SEND_ONLY, RIG_SQ_PSN + i);
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
	post(rig, world.more[0], 2, HDL_OP_FETCH_ADD, 8);
	const struct ib_packet *packet = expect(rig, IB_OP_READ_REQUEST, RIG_SQ_PSN);
	assert_int_equal(packet->reth.length_bytes, 300);
	rig_expect_none(rig);
	for (uint32_t i = 0; i < 2; i++) {
		struct ib_packet part = packet_to(
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
	packet = expect(rig, IB_OP_FETCH_ADD, RIG_SQ_PSN + 2);
	assert_int_equal(packet->atomiceth.swap_or_add, 3);
	struct ib_packet old = packet_to(rig->qp, IB_OP_ATOMIC_ACK, RIG_SQ_PSN + 2);
	old.aeth.syndrome = ib_aeth_syndrome(IB_AETH_ACK, IB_AETH_NO_CREDITS);
	old.atomicack.original = 0x1122334455667788;
	rig_take(rig, &old);
	completion(rig, world.more[0], 2, HDL_WC_SUCCESS);
	assert_int_equal(*(uint64_t *)(void *)rig->mem, 0x1122334455667788);
}

static void what_is_lost_is_sent_again(void **state)
{
	struct rig *rig = *state;
	post(rig, rig->qp, 1, HDL_OP_SEND, 300);
	rig_skip(rig);
	rig_await(rig, 20000000);
	expect(rig, IB_OP_SEND_FIRST, RIG_SQ_PSN);
	expect(rig, IB_OP_SEND_LAST, RIG_SQ_PSN + 1);
	answer(rig, RIG_SQ_PSN + 1, IB_AETH_NAK, IB_NAK_PSN_SEQUENCE_ERROR);
	expect(rig, IB_OP_SEND_LAST, RIG_SQ_PSN + 1);
	ack(rig, RIG_SQ_PSN + 1);
	completion(rig, rig->qp, 1, HDL_WC_SUCCESS);
}

/* What the peer says, what the completion says. After each the context tells the peer where it goes on, and goes on. */
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
		post(rig, world.more[0], 3, HDL_OP_SEND, 8);
		rig_skip(rig);
		answer(rig, psn + 1, IB_AETH_NAK, (uint8_t)cases[i].code);
		completion(rig, rig->qp, 1, cases[i].status);
		psn += 3;
		const struct ib_packet *packet = expect(rig, IB_OP_RESYNC, psn);
		assert_true(packet->bth.ack_request);
		assert_int_equal(packet->deth.src_qp, hdl_qp_number(rig->qp));
		assert_int_equal(packet->bth.dest_qp, RIG_PEER_QPN);
		rig_expect_none(rig);
		answer(rig, psn - 2, IB_AETH_NAK, IB_NAK_INVALID_REQUEST); /* late: no harm */
		rig_await(rig, 20000000); /* and the RESYNC gets lost */
		expect(rig, IB_OP_RESYNC, psn);
		ack(rig, psn);
		packet = expect(rig, IB_OP_SEND_ONLY, psn + 1);
		assert_int_equal(packet->deth.src_qp, hdl_qp_number(world.more[0]));
		ack(rig, psn + 1);
		completion(rig, world.more[0], 3, HDL_WC_SUCCESS);
		expect(rig, IB_OP_SEND_ONLY, psn + 2);
		ack(rig, psn + 2);
		completion(rig, rig->qp, 2, HDL_WC_SUCCESS);
		psn += 3;
		assert_int_equal(context_state(), HDL_QPS_RTS);
		assert_int_equal(rig_state(rig), HDL_QPS_RTS);
	}
}

static void receiver_not_ready_is_tried_again_and_given_up(void **state)
{
	struct rig *rig = *state;
	post(rig, rig->qp, 1, HDL_OP_SEND, 8);
	post(rig, world.more[0], 2, HDL_OP_SEND, 8);
	for (unsigned i = 0; i < 3; i++) {
		expect(rig, IB_OP_SEND_ONLY, RIG_SQ_PSN);
		rig_expect_none(rig);
		answer(rig, RIG_SQ_PSN, IB_AETH_RNR_NAK, 1);
		if (i < 2)
			rig_await(rig, 20000000);
	}
	completion(rig, rig->qp, 1, HDL_WC_RNR_RETRY_EXC_ERR);
	expect(rig, IB_OP_RESYNC, RIG_SQ_PSN + 1);
	ack(rig, RIG_SQ_PSN + 1);
	expect(rig, IB_OP_SEND_ONLY, RIG_SQ_PSN + 2);
	ack(rig, RIG_SQ_PSN + 2);
	completion(rig, world.more[0], 2, HDL_WC_SUCCESS);
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
	                         .rd = {world.eec, RIG_PEER_QPN, QKEYS}};
	assert_int_equal(hdl_post_send(rig->qp, &wr, NULL), 0);
	rig_run(rig);
	completion(rig, rig->qp, 1, HDL_WC_LOC_PROT_ERR);
	rig_expect_none(rig);
	post(rig, rig->qp, 2, HDL_OP_SEND, 8);
	expect(rig, IB_OP_SEND_ONLY, RIG_SQ_PSN);
	ack(rig, RIG_SQ_PSN);
	completion(rig, rig->qp, 2, HDL_WC_SUCCESS);
}

static void a_lost_peer_fails_the_context_and_all_who_use_it(void **state)
{
	struct rig *rig = *state;
	struct hdl_eec *other = world.eec;
	assert_int_equal(hdl_eec_create(world.rdd, &world.eec), 0);
	ready_context(rig, 2);
	post(rig, rig->qp, 1, HDL_OP_SEND, 8); /* to the one that is lost */
	post(rig, world.more[0], 2, HDL_OP_SEND, 8);
	for (unsigned i = 0; i < 3; i++)
		rig_pass(rig, 30000000);
	completion(rig, rig->qp, 1, HDL_WC_RETRY_EXC_ERR);
	completion(rig, world.more[0], 2, HDL_WC_INV_EEC_STATE_ERR);
	assert_int_equal(context_state(), HDL_QPS_ERR);
	post(rig, rig->qp, 3, HDL_OP_SEND, 8);
	completion(rig, rig->qp, 3, HDL_WC_INV_EEC_STATE_ERR);
	rig_skip(rig);
	struct hdl_eec *lost = world.eec;
	world.eec = other;
	post(rig, rig->qp, 4, HDL_OP_SEND, 8); /* the way through the other context is open */
	expect(rig, IB_OP_SEND_ONLY, RIG_SQ_PSN);
	ack(rig, RIG_SQ_PSN);
	completion(rig, rig->qp, 4, HDL_WC_SUCCESS);
	assert_int_equal(rig_state(rig), HDL_QPS_RTS);
	/* Brought back, it works again. */
	struct hdl_qp_attr reset = {.state = HDL_QPS_RESET};
	assert_int_equal(hdl_eec_modify(lost, &reset, HDL_QP_STATE), 0);
	world.eec = lost;
	ready_context(rig, 2);
	post(rig, rig->qp, 5, HDL_OP_SEND, 8);
	expect(rig, IB_OP_SEND_ONLY, RIG_SQ_PSN);
	ack(rig, RIG_SQ_PSN);
	completion(rig, rig->qp, 5, HDL_WC_SUCCESS);
	assert_int_equal(hdl_eec_destroy(other), 0);
}

static void who_leaves_takes_its_message_along(void **state)
{
	struct rig *rig = *state;
	post(rig, world.more[0], 1, HDL_OP_SEND, 8);
	post(rig, world.more[1], 2, HDL_OP_SEND, 8);
	post(rig, rig->qp, 3, HDL_OP_SEND, 8);
	expect(rig, IB_OP_SEND_ONLY, RIG_SQ_PSN);
	/* One waits, one is being sent. */
	assert_int_equal(hdl_qp_destroy(world.more[1]), 0);
	world.more[1] = NULL;
	struct hdl_qp_attr fail = {.state = HDL_QPS_ERR};
	assert_int_equal(hdl_qp_modify(world.more[0], &fail, HDL_QP_STATE), 0);
	completion(rig, world.more[0], 1, HDL_WC_WR_FLUSH_ERR);
	rig_run(rig);
	expect(rig, IB_OP_RESYNC, RIG_SQ_PSN + 1);
	ack(rig, RIG_SQ_PSN + 1);
	const struct ib_packet *packet = expect(rig, IB_OP_SEND_ONLY, RIG_SQ_PSN + 2);
	assert_int_equal(packet->deth.src_qp, hdl_qp_number(rig->qp));
	/* The context goes: so does what is in it, and what comes to it. */
	struct hdl_eec *gone = world.eec;
	post(rig, rig->qp, 4, HDL_OP_SEND, 8);
	assert_int_equal(hdl_eec_destroy(world.eec), 0);
	world.eec = NULL;
	(void)gone;
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
	assert_int_equal(hdl_eec_modify(world.eec, &attr, HDL_QP_MAX_RD_ATOMIC), -HDL_EINVAL);
	attr.state = HDL_QPS_SQD;
	assert_int_equal(hdl_eec_modify(world.eec, &attr, HDL_QP_STATE), -HDL_EPERM);
	assert_int_equal(hdl_eec_destroy(eec), 0);
	assert_int_equal(hdl_rdd_close(rdd), 0);
}

/* --- responder --- */

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
	assert_int_equal(wc.eecn, hdl_eec_number(world.eec));
}

static void messages_go_to_the_queue_pair_they_name(void **state)
{
	struct rig *rig = *state;
	recv_at(rig, rig->qp, 1, 0, 64);
	recv_at(rig, world.more[0], 2, 1024, 600);
	take_data(rig, rig->qp, IB_OP_SEND_ONLY, RIG_RQ_PSN, 5, 40);
	expect_ack(rig, RIG_RQ_PSN);
	received(rig, rig->qp, 1, HDL_WC_SUCCESS, 40);
	assert_true(rig_holds(rig, 0, 5, 0, 40));
	take_data(rig, world.more[0], IB_OP_SEND_FIRST, RIG_RQ_PSN + 1, 6, 256);
	take_data(rig, world.more[0], IB_OP_SEND_LAST, RIG_RQ_PSN + 2, 7, 30);
	rig_skip(rig);
	received(rig, world.more[0], 2, HDL_WC_SUCCESS, 286);
	assert_true(rig_holds(rig, 1024, 6, 0, 256) && rig_holds(rig, 1280, 7, 0, 30));
	/* Doubled: acknowledged again, executed once. */
	take_data(rig, world.more[0], IB_OP_SEND_LAST, RIG_RQ_PSN + 2, 7, 30);
	expect_ack(rig, RIG_RQ_PSN + 2);
	/* A gap is asked for, once. */
	take_data(rig, rig->qp, IB_OP_SEND_ONLY, RIG_RQ_PSN + 4, 5, 40);
	expect_answer(rig, RIG_RQ_PSN + 3, IB_AETH_NAK, IB_NAK_PSN_SEQUENCE_ERROR);
	take_data(rig, rig->qp, IB_OP_SEND_ONLY, RIG_RQ_PSN + 5, 5, 40);
	rig_expect_none(rig);
	rig_no_completion(rig, rig->rcq);
}

static void rdma_and_atomics_are_executed(void **state)
{
	struct rig *rig = *state;
	take_data(rig, rig->qp, IB_OP_WRITE_ONLY, RIG_RQ_PSN, 5, 40);
	expect_ack(rig, RIG_RQ_PSN);
	assert_true(rig_holds(rig, 8192, 5, 0, 40));
	struct ib_packet read = packet_to(rig->qp, IB_OP_READ_REQUEST, RIG_RQ_PSN + 1);
	read.reth = (struct ib_reth){rig_address(rig, 4096), hdl_mr_key(rig->mr).v, 300};
	for (unsigned i = 0; i < 2; i++) { /* and again */
		rig_take(rig, &read);
		const struct ib_packet *part =
		        expect(rig, IB_OP_READ_RESPONSE_FIRST, RIG_RQ_PSN + 1);
		assert_memory_equal(part->payload, rig->mem + 4096, 256);
		assert_int_equal(part->bth.dest_qp, RIG_PEER_QPN);
		part = expect(rig, IB_OP_READ_RESPONSE_LAST, RIG_RQ_PSN + 2);
		assert_memory_equal(part->payload, rig->mem + 4352, 44);
	}
	*(uint64_t *)(void *)(rig->mem + 512) = 100;
	struct ib_packet add = packet_to(world.more[0], IB_OP_FETCH_ADD, RIG_RQ_PSN + 3);
	add.atomiceth = (struct ib_atomiceth){
	        .addr = rig_address(rig, 512), .rkey = hdl_mr_key(rig->mr).v, .swap_or_add = 7};
	for (unsigned i = 0; i < 2; i++) {
		rig_take(rig, &add);
		const struct ib_packet *old = expect(rig, IB_OP_ATOMIC_ACK, RIG_RQ_PSN + 3);
		assert_int_equal(old->atomicack.original, 100);
	}
	assert_int_equal(*(uint64_t *)(void *)(rig->mem + 512), 107);
}

static void take_resync(struct rig *rig, uint32_t psn)
{
	struct ib_packet packet = packet_to(rig->qp, IB_OP_RESYNC, psn);
	rig_take(rig, &packet);
	expect_ack(rig, psn);
}

/* What is wrong with a message, and what is said about it, as often as it is asked, until a RESYNC. */
static void what_is_refused_harms_nobody_else(void **state)
{
	struct rig *rig = *state;
	uint32_t psn = RIG_RQ_PSN;
	struct hdl_rdd *rdd;
	assert_int_equal(hdl_rdd_open(rig->adapter, &rdd), 0);
	struct hdl_qp *stranger = make_qp(rig, rdd);
	for (unsigned kind = 0; kind < 6; kind++) {
		struct ib_packet packet = packet_to(rig->qp, IB_OP_SEND_ONLY, psn);
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
		recv_at(rig, world.more[0], 1, 0, 64);
		take_data(rig, world.more[0], IB_OP_SEND_ONLY, psn + 4, 6, 20);
		expect_ack(rig, psn + 4);
		received(rig, world.more[0], 1, HDL_WC_SUCCESS, 20);
		psn += 5;
		assert_int_equal(context_state(), HDL_QPS_RTS);
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

/* Two contexts deliver to one queue pair at the same time: each message has a receive of its own. */
static void contexts_do_not_mix_their_messages(void **state)
{
	struct rig *rig = *state;
	struct hdl_eec *first = world.eec, *second;
	assert_int_equal(hdl_eec_create(world.rdd, &world.eec), 0);
	ready_context(rig, 2);
	second = world.eec;
	recv_at(rig, rig->qp, 1, 0, 600);
	recv_at(rig, rig->qp, 2, 1024, 600);
	world.eec = first;
	take_data(rig, rig->qp, IB_OP_SEND_FIRST, RIG_RQ_PSN, 5, 256);
	world.eec = second;
	take_data(rig, rig->qp, IB_OP_SEND_FIRST, RIG_RQ_PSN, 6, 256);
	take_data(rig, rig->qp, IB_OP_SEND_LAST, RIG_RQ_PSN + 1, 6, 10);
	received(rig, rig->qp, 2, HDL_WC_SUCCESS, 266);
	world.eec = first;
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
	assert_int_equal(hdl_qp_destroy(world.more[0]), 0);
	world.more[0] = make_qp_with(rig, world.rdd, srq);
	for (uint64_t i = 0; i < 2; i++) {
		struct hdl_sge piece = {rig_address(rig, 1024 * i), 600, hdl_mr_key(rig->mr)};
		struct hdl_recv_wr wr = {.wr_id = i, .sg_list = &piece, .num_sge = 1};
		assert_int_equal(hdl_srq_post(srq, &wr, NULL), 0);
	}
	take_data(rig, world.more[0], IB_OP_SEND_FIRST, RIG_RQ_PSN, 5, 256);
	take_data(rig, world.more[0], IB_OP_SEND_LAST, RIG_RQ_PSN + 1, 6, 10);
	received(rig, world.more[0], 0, HDL_WC_SUCCESS, 266);
	take_data(rig, world.more[0], IB_OP_SEND_FIRST, RIG_RQ_PSN + 2, 7, 256);
	rig_skip(rig);
	take_resync(rig, RIG_RQ_PSN + 4);
	received(rig, world.more[0], 1, HDL_WC_REM_ABORT_ERR, 0);
	take_data(rig, world.more[0], IB_OP_SEND_ONLY, RIG_RQ_PSN + 5, 5, 8);
	expect_answer(rig, RIG_RQ_PSN + 5, IB_AETH_RNR_NAK, 1);
	assert_true(rig_holds(rig, 0, 5, 0, 256) && rig_holds(rig, 1024, 7, 0, 256));
	assert_int_equal(hdl_qp_destroy(world.more[0]), 0);
	world.more[0] = NULL;
	assert_int_equal(hdl_srq_destroy(srq), 0);
}

/* The target of a message goes while it is being received, or read. */
static void a_target_that_goes_refuses(void **state)
{
	struct rig *rig = *state;
	recv_at(rig, world.more[0], 1, 0, 600);
	take_data(rig, world.more[0], IB_OP_SEND_FIRST, RIG_RQ_PSN, 5, 256);
	rig_skip(rig);
	struct hdl_qp_attr fail = {.state = HDL_QPS_ERR};
	assert_int_equal(hdl_qp_modify(world.more[0], &fail, HDL_QP_STATE), 0);
	rig_run(rig);
	received(rig, world.more[0], 1, HDL_WC_WR_FLUSH_ERR, 0);
	expect_answer(rig, RIG_RQ_PSN + 1, IB_AETH_NAK, IB_NAK_INVALID_RD_REQUEST);
	take_resync(rig, RIG_RQ_PSN + 2);
	struct ib_packet read = packet_to(world.more[1], IB_OP_READ_REQUEST, RIG_RQ_PSN + 3);
	read.reth = (struct ib_reth){rig_address(rig, 4096), hdl_mr_key(rig->mr).v, 300};
	rig_take(rig, &read);
	rig_skip(rig);
	assert_int_equal(hdl_qp_destroy(world.more[1]), 0);
	world.more[1] = NULL;
	rig_take(rig, &read);
	expect_answer(rig, RIG_RQ_PSN + 3, IB_AETH_NAK, IB_NAK_INVALID_RD_REQUEST);
	assert_int_equal(context_state(), HDL_QPS_RTS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        WITH(a_message_names_context_queue_pair_and_key),
	        WITH(one_message_is_in_flight_and_turns_are_fair),
	        WITH(reads_and_atomics),
	        WITH(what_is_lost_is_sent_again),
	        WITH(a_refusal_is_the_end_of_one_message),
	        WITH(receiver_not_ready_is_tried_again_and_given_up),
	        WITH(an_error_of_our_own_sends_nothing),
	        WITH(a_lost_peer_fails_the_context_and_all_who_use_it),
	        WITH(who_leaves_takes_its_message_along),
	        WITH(requests_that_make_no_sense),
	        WITH(messages_go_to_the_queue_pair_they_name),
	        WITH(rdma_and_atomics_are_executed),
	        WITH(what_is_refused_harms_nobody_else),
	        WITH(no_receive_is_said_and_forgotten),
	        WITH(a_message_that_is_given_up_uses_its_receive),
	        WITH(contexts_do_not_mix_their_messages),
	        WITH(shared_receives),
	        WITH(a_target_that_goes_refuses),
	};
	return cmocka_run_group_tests_name("reliable datagrams", tests, NULL, NULL);
}
