/* A connection over two paths at a time, packet by packet: what comes early is kept and executed in
 * order, what is lost is asked for alone, a path that carries nothing is taken out and tried again.
 * The two paths of these tests have the same ends, and differ in the source port. */
#include "ib_rig.h"

#include <stdlib.h>

#include "adapter/adapter.h"
#include "transport/ib/ib.h"
#include "transport/ib/stripe.h"

#define FIRST RIG_RQ_PSN
#define SENT  RIG_SQ_PSN
#define KEPT  16u

/* Ready, with both paths. */
static void open_both(struct rig *rig)
{
	rig_qp(rig, NULL);
	struct hdl_qp_attr attr;
	assert_int_equal(hdl_qp_query(rig->qp, &attr, NULL), 0);
	struct hdl_qp_attr reset = {.state = HDL_QPS_RESET};
	assert_int_equal(hdl_qp_modify(rig->qp, &reset, HDL_QP_STATE), 0);
	attr.state = HDL_QPS_INIT;
	assert_int_equal(
	        hdl_qp_modify(rig->qp, &attr,
	                      HDL_QP_STATE | HDL_QP_PKEY_INDEX | HDL_QP_PORT | HDL_QP_ACCESS),
	        0);
	attr.state = HDL_QPS_RTR;
	attr.alt_ah = attr.ah;
	attr.alt_port_num = 1;
	attr.stripe = KEPT;
	uint32_t mask = HDL_QP_STATE | HDL_QP_AV | HDL_QP_PATH_MTU | HDL_QP_DEST_QPN |
	                HDL_QP_RQ_PSN | HDL_QP_MAX_DEST_RD_ATOMIC | HDL_QP_MIN_RNR_TIMER |
	                HDL_QP_STRIPE;
	assert_int_equal(hdl_qp_modify(rig->qp, &attr, mask),
	                 -HDL_EINVAL); /* without another path */
	attr.stripe = 24;
	assert_int_equal(hdl_qp_modify(rig->qp, &attr, mask | HDL_QP_ALT_PATH), -HDL_EINVAL);
	attr.stripe = KEPT;
	assert_int_equal(hdl_qp_modify(rig->qp, &attr, mask | HDL_QP_ALT_PATH), 0);
	attr.state = HDL_QPS_RTS;
	attr.retry_cnt = attr.rnr_retry = 7;
	assert_int_equal(hdl_qp_modify(rig->qp, &attr,
	                               HDL_QP_STATE | HDL_QP_SQ_PSN | HDL_QP_TIMEOUT |
	                                       HDL_QP_RETRY_CNT | HDL_QP_RNR_RETRY |
	                                       HDL_QP_MAX_RD_ATOMIC),
	                 0);
}

static void take_by(struct rig *rig, const struct ib_packet *packet, unsigned way)
{
	rig->came_port = (uint16_t)(rig->qp->qp.ib->came_port ^ (way == 0 ? 0 : IB_ALTERNATE_PORT));
	rig_take(rig, packet);
}

/* Message @number, of one packet, comes along a path. */
static void take(struct rig *rig, uint32_t number, unsigned way)
{
	struct ib_packet packet =
	        rig_data(rig, IB_RC + IB_OP_SEND_ONLY, FIRST + number, number, 20);
	packet.bth.ack_request = false;
	take_by(rig, &packet, way);
}

static void expect_received(struct rig *rig, uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < to; i++) {
		assert_int_equal(rig_completion(rig, rig->rcq, i, HDL_WC_SUCCESS).byte_len, 20);
		assert_true(rig_holds(rig, 64 * i, i, 0, 20));
	}
	rig_no_completion(rig, rig->rcq);
}

/* The even ones one way, the odd ones the other, which is faster. */
static void what_comes_early_is_kept(void **state)
{
	struct rig *rig = *state;
	open_both(rig);
	for (uint32_t i = 0; i < 8; i++)
		rig_recv(rig, i, 64 * i, 64);
	take(rig, 1, 1);
	take(rig, 3, 1);
	take(rig, 3, 1); /* once more: it is kept already */
	rig_no_completion(rig, rig->rcq);
	rig_expect_none(rig);
	take(rig, 0, 0);
	expect_received(rig, 0, 2);
	rig_expect_answer(rig, FIRST + 1, IB_AETH_ACK, -1, 2);
	take(rig, 2, 0);
	expect_received(rig, 2, 4);
	rig_expect_answer(rig, FIRST + 3, IB_AETH_ACK, -1, 4);
	rig_expect_none(rig);
	assert_int_equal(rig_state(rig), HDL_QPS_RTS);
}

/* Two packets for one place that are not the same: one of them is not the peer's, and neither is
 * executed. It is asked for when its turn comes. What is further ahead than the peer may send is
 * nobody's, and does not count. */
static void what_contradicts_itself_is_not_believed(void **state)
{
	struct rig *rig = *state;
	open_both(rig);
	for (uint32_t i = 0; i < 8; i++)
		rig_recv(rig, i, 64 * i, 64);
	struct ib_packet forged = rig_data(rig, IB_RC + IB_OP_SEND_ONLY, FIRST + 2, 77, 20);
	forged.bth.ack_request = false;
	take_by(rig, &forged, 0);
	take(rig, 2, 0);
	rig_skip(rig);
	take(rig, 1, 1);
	take(rig, 3, 1);
	take(rig, 0, 0);
	expect_received(rig, 0, 2);
	rig_skip(rig);
	take(rig, 4, 0);
	take(rig, 5, 1);
	rig_expect_answer(rig, FIRST + 2, IB_AETH_NAK, IB_NAK_PSN_SEQUENCE_ERROR, 2);
	take(rig, 2, 0);
	expect_received(rig, 2, 6);
	rig_skip(rig);
	/* Far ahead, along both ways: nothing is taken for lost. */
	for (uint32_t i = 0; i < 20; i++) {
		forged = rig_data(rig, IB_RC + IB_OP_SEND_ONLY, FIRST + 6 + KEPT + 100 * i, 77, 20);
		take_by(rig, &forged, i % 2);
	}
	rig_expect_none(rig);
	take(rig, 7, 1);
	rig_expect_none(rig);
	take(rig, 6, 0);
	expect_received(rig, 6, 8);
}

/* It is lost when both ways have passed it, and not before. */
static void what_is_lost_is_asked_for_once(void **state)
{
	struct rig *rig = *state;
	open_both(rig);
	for (uint32_t i = 0; i < 8; i++)
		rig_recv(rig, i, 64 * i, 64);
	take(rig, 2, 0);
	rig_expect_none(rig);
	take(rig, 1, 1);
	rig_expect_answer(rig, FIRST, IB_AETH_NAK, IB_NAK_PSN_SEQUENCE_ERROR, 0);
	take(rig, 3, 1);
	rig_expect_none(rig);
	take(rig, 0, 1);
	expect_received(rig, 0, 4);
	rig_expect_answer(rig, FIRST + 3, IB_AETH_ACK, -1, 4);
}

/* One way carries nothing: when the other is far enough ahead, what is missing is not waited for.
 */
static void a_way_that_lags_is_not_waited_for(void **state)
{
	struct rig *rig = *state;
	open_both(rig);
	for (uint32_t i = 0; i < 8; i++)
		rig_recv(rig, i, 64 * i, 64);
	for (uint32_t i = 1; i < KEPT / 4; i++) {
		take(rig, i, 0);
		rig_expect_none(rig);
	}
	take(rig, KEPT / 4, 0);
	rig_expect_answer(rig, FIRST, IB_AETH_NAK, IB_NAK_PSN_SEQUENCE_ERROR, 0);
	take(rig, KEPT + 1, 0); /* more than can be kept */
	rig_expect_none(rig);
	take(rig, 0, 0);
	expect_received(rig, 0, KEPT / 4 + 1);
}

static uint16_t port_of(struct rig *rig, uint32_t psn)
{
	const struct ib_packet *packet = rig_look(rig);
	assert_non_null(packet);
	assert_int_equal(packet->bth.psn, psn);
	assert_true(packet->bth.migreq);
	return rig->sent[rig->looked_at - 1].path.ip.src_port;
}

static void packets_take_both_ways_and_a_lost_one_the_other(void **state)
{
	struct rig *rig = *state;
	open_both(rig);
	rig_send(rig, 1, HDL_OP_SEND, 0, 256 * 4);
	uint16_t ports[4];
	for (uint32_t i = 0; i < 4; i++)
		ports[i] = port_of(rig, SENT + i);
	assert_int_equal(ports[0], ports[2]);
	assert_int_equal(ports[1], ports[3]);
	assert_int_not_equal(ports[0], ports[1]);
	rig_answer(rig, SENT + 1, IB_AETH_NAK, IB_NAK_PSN_SEQUENCE_ERROR, 0);
	assert_int_equal(port_of(rig, SENT + 1), ports[0]); /* and nothing else is sent again */
	rig_expect_none(rig);
	rig_no_completion(rig, rig->scq);
	rig_answer(rig, SENT + 3, IB_AETH_ACK, IB_AETH_NO_CREDITS, 1);
	rig_completion(rig, rig->scq, 1, HDL_WC_SUCCESS);
	rig_expect_none(rig);
}

/* When nothing is answered all goes the other way; later a copy is sent where nothing went through,
 * and an answer brings it back. */
static void a_way_is_taken_out_and_tried_again(void **state)
{
	struct rig *rig = *state;
	open_both(rig);
	rig_send(rig, 1, HDL_OP_SEND, 0, 256 * 4);
	uint16_t dead = port_of(rig, SENT), alive = port_of(rig, SENT + 1);
	rig_skip(rig);
	rig_await(rig, 4 * (4096ull << 10));
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(port_of(rig, SENT + i), alive);
	rig_answer(rig, SENT + 3, IB_AETH_ACK, IB_AETH_NO_CREDITS, 1);
	rig_completion(rig, rig->scq, 1, HDL_WC_SUCCESS);
	rig_send(rig, 2, HDL_OP_SEND, 0, 10);
	assert_int_equal(port_of(rig, SENT + 4), alive);
	rig_expect_none(rig);
	rig_answer(rig, SENT + 4, IB_AETH_ACK, IB_AETH_NO_CREDITS, 2);
	rig_pass(rig, STRIPE_RETRY_NS + 1000000);
	rig_send(rig, 3, HDL_OP_SEND, 0, 10);
	assert_int_equal(port_of(rig, SENT + 5), dead);
	assert_int_equal(port_of(rig, SENT + 5), alive);
	struct ib_packet ack = rig_packet(rig, IB_RC + IB_OP_ACK, SENT + 5);
	ack.aeth.syndrome = ib_aeth_syndrome(IB_AETH_ACK, IB_AETH_NO_CREDITS);
	ack.aeth.msn = 3;
	take_by(rig, &ack, dead != rig->qp->qp.ib->path.ip.src_port);
	rig_completion(rig, rig->scq, 2, HDL_WC_SUCCESS);
	rig_completion(rig, rig->scq, 3, HDL_WC_SUCCESS);
	rig_send(rig, 4, HDL_OP_SEND, 0, 256 * 2);
	uint16_t port = port_of(rig, SENT + 6);
	assert_int_not_equal(port_of(rig, SENT + 7), port);
}

/* The way that the packet @psn takes, which is the next one that was sent. */
static unsigned way_of(struct rig *rig, uint32_t psn)
{
	return port_of(rig, psn) != rig->qp->qp.ib->path.ip.src_port;
}

/* Responses @from to @to of a read of 600 bytes into @at, whose first has @psn, along a way. */
static void respond(struct rig *rig, unsigned way, uint32_t psn, uint32_t seed, unsigned from,
                    unsigned to)
{
	static const uint8_t opcodes[] = {IB_OP_READ_RESPONSE_FIRST, IB_OP_READ_RESPONSE_MIDDLE,
	                                  IB_OP_READ_RESPONSE_LAST};
	rig->came_port = (uint16_t)(rig->qp->qp.ib->came_port ^ (way == 0 ? 0 : IB_ALTERNATE_PORT));
	for (unsigned i = from; i < to; i++)
		rig_read_response(rig, opcodes[i], psn + i, seed, 256 * i, i == 2 ? 88 : 256);
}

static void answer_by(struct rig *rig, unsigned way, uint32_t psn, uint8_t syndrome)
{
	struct ib_packet ack = rig_packet(rig, IB_RC + IB_OP_ACK, psn);
	ack.aeth.syndrome = syndrome;
	take_by(rig, &ack, way);
}

/* What comes along the other way is no sign of a loss, and is there when its turn comes. */
static void reads_take_both_ways(void **state)
{
	struct rig *rig = *state;
	open_both(rig);
	rig_post_rdma(rig, 1, HDL_OP_READ, 4096, 600);
	rig_post_rdma(rig, 2, HDL_OP_READ, 8192, 600);
	rig_post_rdma(rig, 3, HDL_OP_READ, 12288, 600);
	unsigned ways[3];
	for (uint32_t i = 0; i < 3; i++)
		ways[i] = way_of(rig, SENT + 3 * i);
	assert_int_not_equal(ways[0], ways[1]);
	assert_int_equal(ways[0], ways[2]);
	respond(rig, ways[1], SENT + 3, 8, 0, 3);
	respond(rig, ways[1], SENT + 3, 8, 1, 2); /* once more */
	rig_no_completion(rig, rig->scq);
	rig_expect_none(rig);
	respond(rig, ways[0], SENT, 7, 0, 3);
	rig_completion(rig, rig->scq, 1, HDL_WC_SUCCESS);
	rig_completion(rig, rig->scq, 2, HDL_WC_SUCCESS);
	rig_no_completion(rig, rig->scq);
	respond(rig, ways[2], SENT + 6, 9, 0, 3);
	rig_completion(rig, rig->scq, 3, HDL_WC_SUCCESS);
	for (uint32_t i = 0; i < 3; i++)
		assert_true(rig_holds(rig, 4096 * (1 + i), 7 + i, 0, 600));
	rig_expect_none(rig);
}

/* What comes along its own way is: everything from there on is asked for again, and what came early
 * counts for nothing. */
static void a_response_is_lost_when_its_way_has_passed_it(void **state)
{
	struct rig *rig = *state;
	open_both(rig);
	rig_post_rdma(rig, 1, HDL_OP_READ, 4096, 600);
	rig_post_rdma(rig, 2, HDL_OP_READ, 8192, 600);
	unsigned first = way_of(rig, SENT), second = way_of(rig, SENT + 3);
	respond(rig, second, SENT + 3, 8, 0, 2);
	respond(rig, first, SENT, 7, 0, 1);
	rig_expect_none(rig);
	respond(rig, first, SENT, 7, 2, 3);
	unsigned again = way_of(rig, SENT + 1);
	assert_int_not_equal(again, first);
	unsigned again_second = way_of(rig, SENT + 3);
	rig_expect_none(rig);
	respond(rig, again, SENT, 7, 1, 3);
	rig_completion(rig, rig->scq, 1, HDL_WC_SUCCESS);
	rig_no_completion(rig, rig->scq);
	respond(rig, again_second, SENT + 3, 8, 0, 3);
	rig_completion(rig, rig->scq, 2, HDL_WC_SUCCESS);
	assert_true(rig_holds(rig, 4096, 7, 0, 600) && rig_holds(rig, 8192, 8, 0, 600));
}

/* An acknowledgement, and a refusal, of what is behind a read may overtake its responses. */
static void answers_wait_for_a_read_before_them(void **state)
{
	struct rig *rig = *state;
	open_both(rig);
	rig_post_rdma(rig, 1, HDL_OP_READ, 4096, 600);
	rig_send(rig, 2, HDL_OP_SEND, 0, 10);
	unsigned first = way_of(rig, SENT), second = way_of(rig, SENT + 3);
	answer_by(rig, second, SENT + 3, ib_aeth_syndrome(IB_AETH_ACK, IB_AETH_NO_CREDITS));
	rig_no_completion(rig, rig->scq);
	rig_expect_none(rig);
	respond(rig, first, SENT, 7, 0, 3);
	rig_completion(rig, rig->scq, 1, HDL_WC_SUCCESS);
	rig_completion(rig, rig->scq, 2, HDL_WC_SUCCESS);

	rig_post_rdma(rig, 3, HDL_OP_READ, 8192, 600);
	rig_post_rdma(rig, 4, HDL_OP_WRITE, 0, 10);
	first = way_of(rig, SENT + 4), second = way_of(rig, SENT + 7);
	answer_by(rig, second, SENT + 7, ib_aeth_syndrome(IB_AETH_NAK, IB_NAK_REMOTE_ACCESS_ERROR));
	rig_no_completion(rig, rig->scq);
	respond(rig, first, SENT + 4, 8, 0, 3);
	rig_completion(rig, rig->scq, 3, HDL_WC_SUCCESS);
	rig_completion(rig, rig->scq, 4, HDL_WC_REM_ACCESS_ERR);
	assert_true(rig_holds(rig, 8192, 8, 0, 600));
	assert_int_equal(rig_state(rig), HDL_QPS_ERR);
}

/* Each is answered along the way that it came; one that is repeated along the other way, along
 * that. */
static void a_read_is_answered_along_its_way(void **state)
{
	struct rig *rig = *state;
	open_both(rig);
	static const struct {
		uint32_t number;
		unsigned way;
	} come[] = {{0, 0}, {1, 1}, {0, 0}, {1, 0}, {0, 1}};
	for (size_t i = 0; i < sizeof(come) / sizeof(come[0]); i++) {
		uint32_t psn = FIRST + come[i].number;
		struct ib_packet read = rig_rdma(rig, IB_RC + IB_OP_READ_REQUEST, psn, 0, 100, 0);
		take_by(rig, &read, come[i].way);
		assert_int_equal(way_of(rig, psn), come[i].way);
	}
	rig_expect_none(rig);
}

/* A way that was tried and answered is in use like before: what comes along it later excuses no
 * losses, only packets that arrive do. */
static void a_way_that_came_back_is_taken_out_again(void **state)
{
	(void)state;
	struct stripe *s = malloc(stripe_bytes(KEPT, 64));
	assert_non_null(s);
	stripe_init(s, KEPT, 64);
	stripe_sent(s, 0, 1);
	stripe_silent(s, 0, 0);
	s->came = 1;
	stripe_heard(s); /* a late answer: it has not been tried */
	assert_true(s->down[1]);
	assert_int_equal(stripe_due(s, STRIPE_RETRY_NS), 1);
	stripe_tried(s, 1, STRIPE_RETRY_NS);
	stripe_heard(s);
	assert_false(s->down[1]);
	for (unsigned strike = 1; strike < STRIPE_STRIKES; strike++) {
		assert_false(stripe_lost(s, 0, 0));
		stripe_heard(s);
	}
	assert_true(stripe_lost(s, 0, 0));
	assert_true(s->down[1]);
	free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        RIGGED(what_comes_early_is_kept),
	        RIGGED(what_contradicts_itself_is_not_believed),
	        RIGGED(what_is_lost_is_asked_for_once),
	        RIGGED(a_way_that_lags_is_not_waited_for),
	        RIGGED(packets_take_both_ways_and_a_lost_one_the_other),
	        RIGGED(a_way_is_taken_out_and_tried_again),
	        RIGGED(reads_take_both_ways),
	        cmocka_unit_test(a_way_that_came_back_is_taken_out_again),
	        RIGGED(a_response_is_lost_when_its_way_has_passed_it),
	        RIGGED(answers_wait_for_a_read_before_them),
	        RIGGED(a_read_is_answered_along_its_way),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
