/* A responder whose responses to a long read get lost: bursts and pauses (ib/answer.c), response by
 * response. */
#include "ib_rig.h"

#define FIRST   RIG_RQ_PSN
#define PACKET  256u
#define PACKETS (RIG_BYTES / PACKET)
#define SHORT   64u /* responses: IB_BURST_MIN */
#define TOOK    1000000u

/* Ask for @bytes that begin at packet @number, for the first time or again. */
static void ask_bytes(struct rig *rig, uint32_t number, uint32_t bytes)
{
	struct ib_packet read = rig_request(rig, IB_RC + IB_OP_READ_REQUEST, FIRST + number);
	read.reth.addr = rig_address(rig, (size_t)number * PACKET);
	read.reth.rkey = hdl_mr_key(rig->mr).v;
	read.reth.length_bytes = bytes;
	rig_take(rig, &read);
}

static void ask(struct rig *rig, uint32_t number, uint32_t packets)
{
	ask_bytes(rig, number, packets * PACKET);
}

/* The responses from @number on that are sent by now are @packets. */
static void expect(struct rig *rig, uint32_t number, uint32_t packets)
{
	rig_run(rig);
	rig_run(rig);
	assert_int_equal(rig->sent_count - rig->looked_at, packets);
	for (uint32_t i = 0; i < packets; i++)
		assert_int_equal(rig_look(rig)->bth.psn, FIRST + number + i);
}

/* A read, all of which is sent, and packet @number is lost. */
static void lose(struct rig *rig, uint32_t number)
{
	rig_qp(rig, NULL);
	ask(rig, 0, PACKETS);
	expect(rig, 0, PACKETS);
	rig_pass(rig, TOOK);
	ask(rig, number, PACKETS - number);
}

static void without_loss_there_is_no_pause(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	ask(rig, 0, PACKETS);
	expect(rig, 0, PACKETS);
}

/* A turn that only answers did something: the adapter's thread goes on at once, and does not pause
 * as if the network were full. When all is sent, a turn does nothing. */
static void a_turn_that_answers_did_something(void **state)
{
	struct rig *rig = *state;
	unsigned turns = 0;
	rig_qp(rig, NULL);
	rig->full = true; /* no room for a single packet: nothing is done */
	ask(rig, 0, PACKETS);
	assert_int_equal(hdl_progress(rig->adapter), 0);
	rig->full = false;
	for (; rig->sent_count < PACKETS; turns++) {
		uint32_t before = rig->sent_count;
		assert_true(hdl_progress(rig->adapter) > 0);
		assert_true(rig->sent_count > before);
	}
	assert_true(turns > 1);
	assert_int_equal(hdl_progress(rig->adapter), 0);
}

static void a_burst_and_a_pause(void **state)
{
	struct rig *rig = *state;
	lose(rig, 10);
	expect(rig, 10, SHORT);
	rig_pass(rig, TOOK); /* as long as it took the last time, and a little longer */
	expect(rig, 0, 0);
	rig_pass(rig, TOOK / 2);
	expect(rig, 10 + SHORT, 2 * SHORT);
	rig_pass(rig, 2 * TOOK);
	expect(rig, 10 + 3 * SHORT, PACKETS - 10 - 3 * SHORT);
}

static void the_last_response_may_be_short(void **state)
{
	struct rig *rig = *state;
	rig_qp(rig, NULL);
	ask_bytes(rig, 0, PACKETS * PACKET - 3);
	expect(rig, 0, PACKETS);
	rig_pass(rig, TOOK);
	ask_bytes(rig, 10, (PACKETS - 10) * PACKET - 3);
	expect(rig, 10, SHORT);
	rig_pass(rig, TOOK);
	expect(rig, 0, 0);
	rig_pass(rig, TOOK / 2);
	expect(rig, 10 + SHORT, 2 * SHORT);
}

static void what_is_lost_again_is_sent_at_once(void **state)
{
	struct rig *rig = *state;
	lose(rig, 10);
	expect(rig, 10, SHORT);
	rig_pass(rig, TOOK / 10);
	ask(rig, 60, PACKETS - 60);
	expect(rig, 60, SHORT / 2 + 50); /* half of what was, and what came of it */
	rig_pass(rig, TOOK);
	expect(rig, 60 + SHORT / 2 + 50, PACKETS - 60 - SHORT / 2 - 50);
}

/* Nothing was lost: the requester had enough of our pause. */
static void who_asks_for_more_gets_more(void **state)
{
	struct rig *rig = *state;
	lose(rig, 10);
	expect(rig, 10, SHORT);
	rig_pass(rig, TOOK / 10);
	ask(rig, 10 + SHORT, PACKETS - 10 - SHORT);
	expect(rig, 10 + SHORT, 2 * SHORT);
}

/* A loss that shows up only after the next burst was begun: the pause was too short. */
static void a_pause_that_was_too_short(void **state)
{
	struct rig *rig = *state;
	lose(rig, 10);
	expect(rig, 10, SHORT);
	rig_pass(rig, 3 * TOOK / 2);
	expect(rig, 10 + SHORT, 2 * SHORT);
	ask(rig, 20, PACKETS - 20);
	expect(rig, 20, SHORT + 10);
	rig_pass(rig, 2 * TOOK);
	expect(rig, 0, 0);
	rig_pass(rig, TOOK);
	rig_run(rig);
	assert_true(rig->sent_count > rig->looked_at);
}

static void short_reads_know_no_pause(void **state)
{
	struct rig *rig = *state;
	lose(rig, 10);
	rig_pass(rig, 10 * TOOK);
	rig_skip(rig);
	rig->looked_at = rig->sent_count;
	for (uint32_t i = 0; i < 3; i++) {
		struct ib_packet read =
		        rig_request(rig, IB_RC + IB_OP_READ_REQUEST, FIRST + PACKETS + 32 * i);
		read.reth.addr = rig_address(rig, 0);
		read.reth.rkey = hdl_mr_key(rig->mr).v;
		read.reth.length_bytes = 32 * PACKET;
		rig_take(rig, &read);
		expect(rig, PACKETS + 32 * i, 32);
	}
}

/* One that waits may be reset and destroyed. */
static void a_queue_pair_that_waits_can_go(void **state)
{
	struct rig *rig = *state;
	lose(rig, 10);
	expect(rig, 10, SHORT);
	struct hdl_qp_attr attr = {.state = HDL_QPS_RESET};
	assert_int_equal(hdl_qp_modify(rig->qp, &attr, HDL_QP_STATE), 0);
	rig_pass(rig, 2 * TOOK);
	expect(rig, 0, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        RIGGED(without_loss_there_is_no_pause),
	        RIGGED(a_turn_that_answers_did_something),
	        RIGGED(a_burst_and_a_pause),
	        RIGGED(the_last_response_may_be_short),
	        RIGGED(what_is_lost_again_is_sent_at_once),
	        RIGGED(who_asks_for_more_gets_more),
	        RIGGED(a_pause_that_was_too_short),
	        RIGGED(short_reads_know_no_pause),
	        RIGGED(a_queue_pair_that_waits_can_go),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
