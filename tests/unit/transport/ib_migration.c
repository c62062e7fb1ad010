/* Automatic path migration, packet by packet (IBTA volume 1 section 17.2.8): the states and what
 * moves them, the MigReq bit, and what goes on along the alternate path. The two paths of these
 * tests have the same ends, and differ in the source port. */
#include "ib_rig.h"

#define FIRST RIG_SQ_PSN
#define T_NS  (4096ull << 10)

static int set(struct rig *rig, uint32_t state, uint32_t mask)
{
	struct hdl_qp_attr attr = {
	        .path_mig_state = (uint8_t)state,
	        .alt_port_num = 1,
	        .alt_timeout = 11,
	        .alt_ah = {.dgid = rig->peer, .port_num = 1, .is_global = true, .hop_limit = 64}};
	return hdl_qp_modify(rig->qp, &attr, mask);
}

static void expect_state(struct rig *rig, uint32_t state)
{
	struct hdl_qp_attr attr;
	assert_int_equal(hdl_qp_query(rig->qp, &attr, NULL), 0);
	assert_int_equal(attr.path_mig_state, state);
}

static const struct sent *look(struct rig *rig, uint32_t psn, bool migreq)
{
	const struct ib_packet *packet = rig_look(rig);
	assert_non_null(packet);
	assert_int_equal(packet->bth.psn, psn);
	assert_int_equal(packet->bth.migreq, migreq);
	return &rig->sent[rig->looked_at - 1];
}

static void answer(struct rig *rig, uint32_t psn, bool migreq)
{
	struct ib_packet packet = rig_packet(rig, IB_RC + IB_OP_ACK, psn);
	packet.bth.migreq = migreq;
	packet.aeth.syndrome = ib_aeth_syndrome(IB_AETH_ACK, IB_AETH_NO_CREDITS);
	rig_take(rig, &packet);
}

/* Both ends have said that they have another path. Returns the port of the first. */
static uint16_t arm(struct rig *rig)
{
	assert_int_equal(set(rig, HDL_MIG_REARM, HDL_QP_ALT_PATH | HDL_QP_PATH_MIG_STATE), 0);
	expect_state(rig, HDL_MIG_REARM);
	rig_send(rig, 1, HDL_OP_SEND, 0, 10);
	uint16_t port = look(rig, FIRST, false)->path.ip.src_port;
	answer(rig, FIRST, false);
	expect_state(rig, HDL_MIG_ARMED);
	rig_completion(rig, rig->scq, 1, HDL_WC_SUCCESS);
	return port;
}

static void what_can_be_asked_for(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	expect_state(rig, HDL_MIG_MIGRATED);
	assert_int_equal(set(rig, HDL_MIG_REARM, HDL_QP_PATH_MIG_STATE), -HDL_EINVAL);
	assert_int_equal(set(rig, HDL_MIG_ARMED, HDL_QP_ALT_PATH | HDL_QP_PATH_MIG_STATE),
	                 -HDL_EINVAL);
	assert_int_equal(set(rig, 0, HDL_QP_ALT_PATH), 0);
	assert_int_equal(set(rig, HDL_MIG_REARM, HDL_QP_PATH_MIG_STATE), 0);
	expect_state(rig, HDL_MIG_REARM);
	/* Back again, and nothing has moved. */
	assert_int_equal(set(rig, HDL_MIG_MIGRATED, HDL_QP_PATH_MIG_STATE), 0);
	rig_no_event(rig);
	struct hdl_qp_attr attr = {.alt_port_num = 2};
	assert_int_equal(hdl_qp_modify(rig->qp, &attr, HDL_QP_ALT_PATH), -HDL_EINVAL);
	attr = (struct hdl_qp_attr){.alt_port_num = 1, .alt_timeout = 32};
	assert_int_equal(hdl_qp_modify(rig->qp, &attr, HDL_QP_ALT_PATH), -HDL_EINVAL);
}

/* It waits for the peer: a peer that sets MigReq is not ready. */
static void it_is_armed_when_both_are_ready(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	assert_int_equal(set(rig, HDL_MIG_REARM, HDL_QP_ALT_PATH | HDL_QP_PATH_MIG_STATE), 0);
	rig_send(rig, 1, HDL_OP_SEND, 0, 10);
	look(rig, FIRST, false);
	answer(rig, FIRST, true);
	rig_completion(rig, rig->scq, 1, HDL_WC_SUCCESS);
	expect_state(rig, HDL_MIG_REARM);
	rig_send(rig, 2, HDL_OP_SEND, 0, 10);
	look(rig, FIRST + 1, false);
	answer(rig, FIRST + 1, false);
	expect_state(rig, HDL_MIG_ARMED);
	rig_no_event(rig);
}

static void when_nobody_answers_it_changes_over(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, &(struct rig_options){.few = true, .retry_cnt = 1});
	uint16_t port = arm(rig);
	rig_send(rig, 2, HDL_OP_SEND, 0, 10);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(look(rig, FIRST + 1, false)->path.ip.src_port, port);
		assert_true(rig_await(rig, 4 * T_NS) >= T_NS / 2);
	}
	assert_int_not_equal(look(rig, FIRST + 1, true)->path.ip.src_port, port);
	expect_state(rig, HDL_MIG_MIGRATED);
	rig_expect_event(rig, HDL_EVENT_PATH_MIG, HDL_DETAIL_NONE);
	struct hdl_qp_attr attr;
	assert_int_equal(hdl_qp_query(rig->qp, &attr, NULL), 0);
	assert_int_equal(attr.timeout, 11);
	rig_no_completion(rig, rig->scq);
	answer(rig, FIRST + 1, true);
	rig_completion(rig, rig->scq, 2, HDL_WC_SUCCESS);
	/* There is no third path. */
	rig_send(rig, 3, HDL_OP_SEND, 0, 10);
	rig_pass(rig, 10 * T_NS);
	rig_completion(rig, rig->scq, 3, HDL_WC_RETRY_EXC_ERR);
}

static void one_that_is_not_armed_fails(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, &(struct rig_options){.few = true, .retry_cnt = 1});
	assert_int_equal(set(rig, HDL_MIG_REARM, HDL_QP_ALT_PATH | HDL_QP_PATH_MIG_STATE), 0);
	rig_send(rig, 1, HDL_OP_SEND, 0, 10);
	rig_pass(rig, 6 * T_NS);
	rig_completion(rig, rig->scq, 1, HDL_WC_RETRY_EXC_ERR);
	rig_no_event(rig);
}

static void it_follows_the_peer(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	uint16_t port = arm(rig);
	rig_recv(rig, 7, 0, 64);
	struct ib_packet packet = rig_data(rig, IB_RC + IB_OP_SEND_ONLY, RIG_RQ_PSN, 3, 20);
	packet.bth.migreq = true;
	rig_take(rig, &packet);
	rig_completion(rig, rig->rcq, 7, HDL_WC_SUCCESS);
	rig_expect_event(rig, HDL_EVENT_PATH_MIG, HDL_DETAIL_NONE);
	expect_state(rig, HDL_MIG_MIGRATED);
	assert_int_not_equal(look(rig, RIG_RQ_PSN, true)->path.ip.src_port, port);
}

static void it_can_be_told_to(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	uint16_t port = arm(rig);
	assert_int_equal(set(rig, HDL_MIG_MIGRATED, HDL_QP_PATH_MIG_STATE), 0);
	rig_expect_event(rig, HDL_EVENT_PATH_MIG, HDL_DETAIL_NONE);
	rig_send(rig, 2, HDL_OP_SEND, 0, 10);
	assert_int_not_equal(look(rig, FIRST + 1, true)->path.ip.src_port, port);
	/* What came along the former path is taken still. */
	answer(rig, FIRST + 1, false);
	rig_completion(rig, rig->scq, 2, HDL_WC_SUCCESS);
	/* And it can be armed again, with a new path only. */
	assert_int_equal(set(rig, HDL_MIG_REARM, HDL_QP_PATH_MIG_STATE), -HDL_EINVAL);
	assert_int_equal(set(rig, HDL_MIG_REARM, HDL_QP_ALT_PATH | HDL_QP_PATH_MIG_STATE), 0);
}

static void a_stranger_moves_nothing(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	arm(rig);
	rig_recv(rig, 7, 0, 64);
	struct hdl_gid stranger = {{0xfe, 0x80, [15] = 99}};
	struct ib_packet packet = rig_data(rig, IB_RC + IB_OP_SEND_ONLY, RIG_RQ_PSN, 3, 20);
	packet.bth.migreq = true;
	for (int i = 0; i < 3; i++)
		rig_take_from(rig, &packet, &stranger);
	rig_expect_event(rig, HDL_EVENT_PATH_MIG_ERR, HDL_DETAIL_NONE);
	rig_no_event(rig); /* told once */
	rig_expect_none(rig);
	rig_no_completion(rig, rig->rcq);
	expect_state(rig, HDL_MIG_ARMED);
}

/* MigReq in a packet whose PSN is not due moves nothing: anybody can have sent it. What was
 * executed before is acknowledged where it came from, so that a peer whose answers got lost on the
 * old path can go on. */
static void only_the_peer_moves_it(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	uint16_t port = arm(rig);
	rig_recv(rig, 7, 0, 64);
	static const uint8_t opcodes[] = {IB_RC + IB_OP_SEND_ONLY, IB_RC + IB_OP_ACK,
	                                  IB_OPCODE_CNP};
	static const uint32_t off[] = {1, 77, 5000, 0x7fffff};
	for (uint32_t i = 0; i < COUNT(opcodes) * COUNT(off); i++) {
		uint8_t opcode = opcodes[i % COUNT(opcodes)];
		struct ib_packet packet =
		        rig_data(rig, opcode, RIG_RQ_PSN + off[i / COUNT(opcodes)], 3,
		                 opcode == IB_RC + IB_OP_SEND_ONLY ? 20 : 0);
		packet.bth.migreq = true;
		rig_take(rig, &packet);
		expect_state(rig, HDL_MIG_ARMED);
	}
	rig_no_event(rig);
	rig_skip(rig);
	/* One that is due comes along the first path; its answer is lost, and the peer asks along
	 * the other. */
	struct ib_packet packet = rig_data(rig, IB_RC + IB_OP_SEND_ONLY, RIG_RQ_PSN, 3, 20);
	packet.bth.migreq = false;
	rig_take(rig, &packet);
	rig_completion(rig, rig->rcq, 7, HDL_WC_SUCCESS);
	assert_int_equal(look(rig, RIG_RQ_PSN, false)->path.ip.src_port, port);
	packet.bth.migreq = true;
	rig_take(rig, &packet);
	assert_int_not_equal(look(rig, RIG_RQ_PSN, false)->path.ip.src_port, port);
	expect_state(rig, HDL_MIG_ARMED);
	rig_recv(rig, 8, 0, 64);
	packet.bth.psn++;
	rig_take(rig, &packet);
	rig_completion(rig, rig->rcq, 8, HDL_WC_SUCCESS);
	assert_int_not_equal(look(rig, RIG_RQ_PSN + 1, true)->path.ip.src_port, port);
	expect_state(rig, HDL_MIG_MIGRATED);
	rig_expect_event(rig, HDL_EVENT_PATH_MIG, HDL_DETAIL_NONE);
}

/* Nor is it armed by anybody. */
static void only_the_peer_arms_it(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	assert_int_equal(set(rig, HDL_MIG_REARM, HDL_QP_ALT_PATH | HDL_QP_PATH_MIG_STATE), 0);
	answer(rig, FIRST + 70, false);
	struct ib_packet packet = rig_data(rig, IB_RC + IB_OP_SEND_ONLY, RIG_RQ_PSN + 9, 3, 20);
	packet.bth.migreq = false;
	rig_take(rig, &packet);
	expect_state(rig, HDL_MIG_REARM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        RIGGED(what_can_be_asked_for),
	        RIGGED(it_is_armed_when_both_are_ready),
	        RIGGED(when_nobody_answers_it_changes_over),
	        RIGGED(one_that_is_not_armed_fails),
	        RIGGED(it_follows_the_peer),
	        RIGGED(it_can_be_told_to),
	        RIGGED(a_stranger_moves_nothing),
	        RIGGED(only_the_peer_moves_it),
	        RIGGED(only_the_peer_arms_it),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
