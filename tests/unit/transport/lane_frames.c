/* Frames by hand: what each path makes of them, and that the one judge refuses those that make no
 * sense on both. */
#include "lane_rig.h"
#include "port/lanes.h"

#define RECV_AT (LANE_BYTES / 2)

/* By the fast path messages that are posted together share a frame, by the general one they do not:
 * a test that compares the two compares two things. */
static uint32_t frames_of_three(bool no_fast_path)
{
	struct lane_rig rig;
	struct hdl_send_wr wrs[3];
	struct lane_message message;
	lane_open(&rig, no_fast_path);
	struct hdl_sge piece = lane_piece(&rig, 0, 16);
	for (int i = 0; i < 3; i++)
		wrs[i] = (struct hdl_send_wr){.next = i < 2 ? &wrs[i + 1] : NULL,
		                              .opcode = HDL_OP_SEND,
		                              .sg_list = &piece,
		                              .num_sge = 1};
	assert_int_equal(hdl_post_send(rig.qp, wrs, NULL), 0);
	uint64_t frames = counter_read(&rig.adapter->engine.counters[ENGINE_FRAMES_OUT]);
	for (uint32_t i = 0; i < 3; i++) {
		assert_true(lane_look(&rig, &message));
		assert_int_equal(message.frame.msn, LANE_SQ_PSN + i);
		assert_int_equal(message.bytes, 16);
	}
	assert_false(lane_look(&rig, &message));
	lane_close(&rig);
	return (uint32_t)frames;
}

static void only_the_fast_path_makes_bursts(void **state)
{
	(void)state;
	assert_int_equal(frames_of_three(false), 1);
	assert_int_equal(frames_of_three(true), 3);
}

/* A thread that polls an empty queue gets the completion of a short message directly, and the ACK
 * waits; by the general path the completion goes through the queue. It is the same one. */
static void a_poll_takes_a_message(void **state)
{
	(void)state;
	for (int general = 0; general < 2; general++) {
		struct lane_rig rig;
		struct hdl_wc wc;
		struct lane_message message;
		lane_open(&rig, general);
		lane_recv(&rig, 5, RECV_AT, 64);
		lane_run(&rig);
		lane_put_send(&rig, LANE_RQ_PSN, "sixteen bytes..", 16);
		assert_int_equal(hdl_cq_poll(rig.rcq, &wc, 1), 1);
		assert_int_equal(wc.wr_id, 5);
		assert_int_equal(wc.byte_len, 16);
		assert_memory_equal(rig.mem + RECV_AT, "sixteen bytes..", 16);
		/* The queue itself was not used. */
		assert_int_equal(atomic_load(&rig.rcq->cq.tail), general ? 1 : 0);
		lane_run(&rig);
		assert_true(lane_look(&rig, &message));
		assert_int_equal(message.frame.kind, FRAME_ANSWER);
		assert_int_equal(message.frame.msn, LANE_RQ_PSN);
		lane_close(&rig);
	}
}

/* A frame whose lengths disagree is counted and not taken, whichever path looks at it first: that
 * of a poll, or that of a turn. */
static void a_frame_that_makes_no_sense(void **state)
{
	static const struct {
		struct frame frame;
		size_t bytes;
	} bad[] = {
	        {{.kind = FRAME_SEND, .length = 16}, 15},
	        {{.kind = FRAME_SEND, .length = 16}, 17},
	        {{.kind = FRAME_SEND, .length = 16}, 0},
	        {{.kind = FRAME_SEND, .length = 0}, 16},
	        {{.kind = FRAME_SEND, .length = FRAME_MAX_PART + 1}, FRAME_MAX_PART + 1},
	        {{.kind = FRAME_SEND, .length = 16, .offset = 8}, 16},
	        {{.kind = FRAME_SEND, .flags = FRAME_MORE, .length = 16}, 16},
	        {{.kind = FRAME_SEND, .flags = FRAME_BY_REFERENCE, .length = 16}, 16},
	        {{.kind = FRAME_BURST, .num_sge = 1}, 4},
	        {{.kind = FRAME_BURST, .num_sge = 1}, 8}, /* the item says more than follows */
	        {{.kind = FRAME_ANSWER}, 8},
	        {{.kind = FRAME_PACKET, .length = 24}, 23},
	        {{.kind = FRAME_PACKET, .length = FRAME_MAX_PACKET + 1}, FRAME_MAX_PACKET + 1},
	        {{.kind = FRAME_PACKET, .length = 11}, 11}, /* no packet, */
	        {{.kind = FRAME_PACKET, .length = 16}, 16}, /* and one of a connection */
	        {{.kind = 0}, 0},
	        {{.kind = FRAME_KIND_COUNT}, 0},
	};
	static uint8_t body[FRAME_MAX_PART + 1] = {16};
	(void)state;
	for (unsigned way = 0; way < 4; way++) {
		struct lane_rig rig;
		struct hdl_wc wc;
		lane_open(&rig, way & 1);
		lane_recv(&rig, 5, RECV_AT, 64);
		const struct counter *counter = &rig.adapter->engine.counters[ENGINE_BAD_FRAMES];
		for (size_t i = 0; i < LANE_COUNT(bad); i++) {
			struct frame frame = lane_frame(&rig, FRAME_SEND, LANE_RQ_PSN);
			uint32_t to = frame.to_qpn, from = frame.from_qpn;
			frame = bad[i].frame;
			frame.to_qpn = to;
			frame.from_qpn = from;
			frame.msn = LANE_RQ_PSN;
			lane_put(&rig, &frame, body, bad[i].bytes);
			if (way < 2)
				assert_int_equal(hdl_cq_poll(rig.rcq, &wc, 1), 0);
			lane_run(&rig);
			assert_int_equal(hdl_cq_poll(rig.rcq, &wc, 1), 0);
			if (counter_read(counter) != i + 1)
				fail_msg("bad frame %zu was taken", i);
		}
		assert_int_equal(rig.qp->qp.local.expected_msn, LANE_RQ_PSN);
		lane_close(&rig);
	}
}

/* The first copies its bytes itself, and only its notice is a frame. The others do not wait for the
 * answer to that: the target copies theirs. */
static void writes_with_immediate_data_do_not_wait_for_each_other(void **state)
{
	enum { WRITES = 6 };
	struct lane_rig rig;
	struct lane_message message;
	(void)state;
	lane_open(&rig, false);
	for (uint32_t i = 0; i < WRITES; i++) {
		struct hdl_sge piece = lane_piece(&rig, 1500 * i, 1500);
		struct hdl_send_wr wr = {
		        .sg_list = &piece,
		        .num_sge = 1,
		        .opcode = HDL_OP_WRITE_IMM,
		        .imm = i,
		        .u.rdma = {(uintptr_t)rig.peer_mem + 1500 * i, hdl_mr_key(rig.peer_mr)}};
		memset(rig.mem + 1500 * i, (int)(i + 1), 1500);
		assert_int_equal(hdl_post_send(rig.qp, &wr, NULL), 0);
	}
	lane_run(&rig);
	for (uint32_t i = 0; i < WRITES; i++) {
		const uint8_t *data = rig.peer_mem;
		assert_true(lane_look(&rig, &message));
		assert_int_equal(message.frame.kind, i == 0 ? FRAME_NOTICE : FRAME_WRITE);
		assert_int_equal(message.frame.imm, i);
		if (i > 0)
			data = message.body + sizeof(struct frame_target);
		assert_int_equal(data[0], i + 1);
		assert_int_equal(data[1499], i + 1);
	}
	assert_false(lane_look(&rig, &message));
	lane_close(&rig);
}

/* Its memory does not allow the write, which we found out ourselves: the peer hears of it with the
 * post that failed, though the program may never call again. */
static void the_target_hears_of_a_refusal_at_once(void **state)
{
	static const uint32_t opcodes[] = {HDL_OP_WRITE, HDL_OP_WRITE_IMM, HDL_OP_READ};
	(void)state;
	for (unsigned i = 0; i < LANE_COUNT(opcodes); i++) {
		struct lane_rig rig;
		struct lane_message message;
		lane_open(&rig, false);
		struct hdl_sge piece = lane_piece(&rig, 0, 64);
		struct hdl_key key = hdl_mr_key(rig.peer_mr);
		struct hdl_send_wr wr = {.sg_list = &piece,
		                         .num_sge = 1,
		                         .opcode = opcodes[i],
		                         .u.rdma = {(uintptr_t)rig.peer_mem + LANE_BYTES, key}};
		assert_int_equal(hdl_post_send(rig.qp, &wr, NULL), 0);
		assert_true(lane_look(&rig, &message));
		assert_int_equal(message.frame.kind, FRAME_CLOSE);
		assert_int_equal(message.frame.msn, key.v);
		assert_int_equal(message.frame.imm, HDL_EVENT_QP_ACCESS_ERR);
		/* A receive is to report it. */
		assert_int_equal((message.frame.flags & FRAME_IMM) != 0,
		                 opcodes[i] == HDL_OP_WRITE_IMM);
		lane_run(&rig);
		assert_false(lane_look(&rig, &message)); /* once */
		lane_close(&rig);
	}
}

/* The peer learns that it can access our memory while a long message is on its way in parts: this
 * message goes on in parts, and the next ones leave their data in our memory. */
static void a_peer_that_reaches_us_in_the_middle_of_a_message(void **state)
{
	_Atomic uint32_t reach = LANES_REACH_TRIES;
	struct hdl_send_wr wr = {.opcode = HDL_OP_SEND, .num_sge = 1, .flags = HDL_SEND_SIGNALED};
	struct lane_message message;
	struct lane_rig rig;
	struct hdl_wc wc;
	uint32_t posted = 0, done = 0, begun, offset = 0, referred = 0;
	(void)state;
	lane_open(&rig, true);
	struct qp *qp = &rig.qp->qp;
	rig.adapter->engine.links[qp->link].peer_reach = &reach;
	struct hdl_sge piece = lane_piece(&rig, 0, LANE_BYTES);
	wr.sg_list = &piece;
	do { /* until one has begun and does not fit */
		assert_true(posted++ < LANE_DEPTH);
		assert_int_equal(hdl_post_send(rig.qp, &wr, NULL), 0);
		lane_run(&rig);
		struct wqe_send *last = wq_at(&qp->sq, wq_tail(&qp->sq) - 1);
		begun = last->offset;
	} while (begun == 0 || begun == LANE_BYTES);
	assert_int_equal(hdl_post_send(rig.qp, &wr, NULL), 0);
	assert_int_equal(qp->unanswered, posted);
	atomic_store(&reach, LANES_REACH_YES);
	while (lane_look(&rig, &message)) {
		assert_int_equal(message.frame.msn, LANE_SQ_PSN + done);
		if (message.frame.flags & FRAME_BY_REFERENCE) {
			assert_int_equal(done++, posted);
			referred++;
		} else {
			assert_int_equal(message.frame.offset, offset);
			offset += (uint32_t)message.bytes;
			if (offset == LANE_BYTES) {
				offset = 0;
				done++;
			}
		}
		lane_run(&rig);
	}
	assert_int_equal(done, posted + 1);
	assert_int_equal(referred, 1);
	assert_int_equal(qp->unanswered, done);
	lane_put_answer(&rig, LANE_SQ_PSN + posted, 0, 0);
	lane_run(&rig);
	for (uint32_t i = 0; i < done; i++) {
		assert_int_equal(hdl_cq_poll(rig.scq, &wc, 1), 1);
		assert_int_equal(wc.status, HDL_WC_SUCCESS);
	}
	assert_int_equal(qp->unanswered, 0);
	lane_close(&rig);
}

/* What may be retried begins anew with every message that is acknowledged, whichever kind of
 * refusal came before. */
static void retries_are_counted_by_message(void **state)
{
	static const uint32_t refusals[] = {ANSWER_SEQUENCE, ANSWER_RNR};
	(void)state;
	for (unsigned kind = 0; kind < LANE_COUNT(refusals); kind++) {
		struct lane_rig rig;
		struct lane_message message;
		struct hdl_wc wc;
		lane_open(&rig, true);
		struct qp *qp = &rig.qp->qp;
		qp->attr.retry_cnt = qp->retries_left = 2;
		qp->attr.rnr_retry = qp->rnr_left = 2;
		struct hdl_sge piece = lane_piece(&rig, 0, 16);
		struct hdl_send_wr wr = {.opcode = HDL_OP_SEND,
		                         .flags = HDL_SEND_SIGNALED,
		                         .sg_list = &piece,
		                         .num_sge = 1};
		for (uint32_t msn = LANE_SQ_PSN; msn < LANE_SQ_PSN + 5; msn++) {
			bool last = msn == LANE_SQ_PSN + 4;
			assert_int_equal(hdl_post_send(rig.qp, &wr, NULL), 0);
			for (unsigned refused = 0; refused < (last ? 3 : 2); refused++) {
				lane_run(&rig);
				assert_true(lane_look(&rig, &message));
				assert_int_equal(message.frame.msn, msn);
				lane_put_answer(&rig, msn, refusals[kind], 1);
				lane_run(&rig);
				lane_pass(&rig, 1000000);
			}
			if (!last) {
				assert_true(lane_look(&rig, &message));
				assert_int_equal(message.frame.msn, msn);
				lane_put_answer(&rig, msn, ANSWER_ACK, 0);
				lane_run(&rig);
			}
			assert_int_equal(hdl_cq_poll(rig.scq, &wc, 1), 1);
			assert_int_equal(wc.status, !last       ? HDL_WC_SUCCESS
			                            : kind == 0 ? HDL_WC_RETRY_EXC_ERR
			                                        : HDL_WC_RNR_RETRY_EXC_ERR);
		}
		lane_close(&rig);
	}
}

/* A write in parts has one key: a peer that ended it with another one would never use up the key
 * of the first part, if that is good for one message (MEMMGT figure 18B, table D). */
static void a_write_in_parts_has_one_key(void **state)
{
	enum { HALF = 512, AT = 4096 };
	(void)state;
	for (unsigned same = 0; same < 2; same++) {
		struct lane_rig rig;
		struct lane_message message;
		struct frame_answer answer;
		struct hdl_mr *once;
		lane_open(&rig, false);
		memset(rig.mem + AT, 0, 2 * HALF);
		assert_int_equal(hdl_mr_register(rig.pd, rig.mem, LANE_BYTES,
		                                 HDL_ACCESS_LOCAL_WRITE | HDL_ACCESS_REMOTE_WRITE |
		                                         HDL_ACCESS_ONE_TOUCH,
		                                 &once),
		                 0);
		for (unsigned part = 0; part < 2; part++) {
			struct frame frame = lane_frame(&rig, FRAME_WRITE, LANE_RQ_PSN);
			struct {
				struct frame_target target;
				uint8_t data[HALF];
			} body = {{.addr = (uintptr_t)rig.mem + AT,
			           .key = hdl_mr_key(part == 0 || same ? once : rig.mr)},
			          {0}};
			memset(body.data, (int)(1 + part), HALF);
			frame.length = 2 * HALF;
			frame.offset = part * HALF;
			frame.flags = part == 0 ? FRAME_MORE : 0;
			lane_put(&rig, &frame, &body, sizeof(body));
			lane_run(&rig);
		}
		assert_int_equal(rig.mem[AT], 1);
		assert_int_equal(rig.mem[AT + HALF], same ? 2 : 0);
		assert_true(lane_look(&rig, &message));
		assert_int_equal(message.frame.kind, FRAME_ANSWER);
		memcpy(&answer, message.body, sizeof(answer));
		assert_int_equal(answer.answer, same ? ANSWER_ACK : ANSWER_INVALID);
		assert_int_equal(lane_state(&rig), same ? HDL_QPS_RTS : HDL_QPS_ERR);
		assert_int_equal(hdl_mr_deregister(once), 0);
		lane_close(&rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(only_the_fast_path_makes_bursts),
	        cmocka_unit_test(a_poll_takes_a_message),
	        cmocka_unit_test(a_frame_that_makes_no_sense),
	        cmocka_unit_test(a_write_in_parts_has_one_key),
	        cmocka_unit_test(retries_are_counted_by_message),
	        cmocka_unit_test(writes_with_immediate_data_do_not_wait_for_each_other),
	        cmocka_unit_test(the_target_hears_of_a_refusal_at_once),
	        cmocka_unit_test(a_peer_that_reaches_us_in_the_middle_of_a_message),
	};
	return cmocka_run_group_tests_name("lane_frames", tests, NULL, NULL);
}
