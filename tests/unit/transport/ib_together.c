/* What leaves together: an acknowledgement with the message that the application sends next, and
 * the packets of one turn. On a UDP socket either is one call instead of two. */
#include "ib_rig.h"

#include "adapter/adapter.h"

#define TRAIN 25u /* packets that travel together, in these tests */

static unsigned flushes; /* that had something to send */
static uint32_t flushed;
static struct rig *flushing;

static void flush(void *context)
{
	(void)context;
	flushes += flushing->sent_count != flushed;
	flushed = flushing->sent_count;
}

static bool filling(void *context)
{
	(void)context;
	return flushing->sent_count % TRAIN != 0;
}

static bool always(void *context)
{
	(void)context;
	return true;
}

static void begin(struct rig *rig, uint32_t type)
{
	rig_qp(rig, &(struct rig_options){.type = type});
	flushing = rig;
	flushes = 0;
	flushed = rig->sent_count;
	rig->cable.carrier.flush = flush;
}

/* A send of 8 bytes comes, and nobody runs the adapter yet. */
static void come(struct rig *rig, uint32_t psn)
{
	uint8_t bytes[CABLE_PACKET_BYTES];
	struct ib_packet packet = rig_data(rig, IB_RC + IB_OP_SEND_ONLY, psn, 3, 8);
	struct path came = {.ip = {.src_port = 50000, .hop_limit = 63}};
	packet.bth.ack_request = true;
	memcpy(came.ip.sgid, rig->peer.raw, 16);
	memcpy(came.ip.dgid, rig->own.raw, 16);
	size_t count = roce_udp_encode(&came.ip, &packet, bytes, sizeof(bytes));
	adapter_take(rig->adapter, &came, false, bytes, count);
}

static void post(struct rig *rig, uint32_t length)
{
	struct hdl_sge piece = {rig_address(rig, 0), length, hdl_mr_key(rig->mr)};
	struct hdl_send_wr wr = {
	        .wr_id = 7, .opcode = HDL_OP_SEND, .sg_list = &piece, .num_sge = 1};
	assert_int_equal(hdl_post_send(rig->qp, &wr, NULL), 0);
}

static void the_answer_takes_the_acknowledgement_along(void **state)
{
	struct rig *rig = *state;
	begin(rig, HDL_QP_RC);
	for (uint32_t i = 0; i < 3; i++) {
		flushes = 0;
		rig_recv(rig, i, 4096, 64);
		come(rig, RIG_RQ_PSN + i);
		rig_completion(rig, rig->rcq, i, HDL_WC_SUCCESS);
		rig_expect_none(rig);
		post(rig, 8);
		assert_int_equal(flushes, 1);
		rig_expect(rig, IB_RC + IB_OP_SEND_ONLY, RIG_SQ_PSN + i);
		rig_expect_answer(rig, RIG_RQ_PSN + i, IB_AETH_ACK, -1, (int)i + 1);
		rig_run(rig);
		rig_expect_none(rig);
		rig_answer(rig, RIG_SQ_PSN + i, IB_AETH_ACK, IB_AETH_NO_CREDITS, i + 1);
	}
}

/* The adapter's thread, while the application waits for its memory to change, leaves it a moment to
 * answer. */
static void a_patient_thread_leaves_it_to_the_application(void **state)
{
	struct rig *rig = *state;
	struct engine *engine = &rig->adapter->engine;
	begin(rig, HDL_QP_RC);
	for (uint32_t i = 0; i < 4; i++) {
		flushes = 0;
		rig_recv(rig, i, 4096, 64);
		come(rig, RIG_RQ_PSN + i);
		engine->delay_acks = true;
		engine_run(engine);
		engine->delay_acks = false;
		rig_expect_none(rig);
		if (i % 2 == 0) { /* which it does, or not */
			post(rig, 8);
			assert_int_equal(flushes, 1);
			rig_expect(rig, IB_RC + IB_OP_SEND_ONLY, RIG_SQ_PSN + i / 2);
		}
		engine_run(engine);
		rig_expect_answer(rig, RIG_RQ_PSN + i, IB_AETH_ACK, -1, (int)i + 1);
		rig_run(rig);
		rig_expect_none(rig);
		if (i % 2 == 0)
			rig_answer(rig, RIG_SQ_PSN + i / 2, IB_AETH_ACK, IB_AETH_NO_CREDITS,
			           i / 2 + 1);
	}
}

static void without_an_answer_it_goes_with_the_next_poll(void **state)
{
	struct rig *rig = *state;
	struct hdl_wc wc;
	begin(rig, HDL_QP_RC);
	rig_recv(rig, 1, 4096, 64);
	come(rig, RIG_RQ_PSN);
	rig_completion(rig, rig->rcq, 1, HDL_WC_SUCCESS);
	/* The one that sees it due lets it wait, once. */
	assert_int_equal(hdl_cq_poll(rig->rcq, &wc, 1), 0);
	rig_expect_none(rig);
	assert_int_equal(hdl_cq_poll(rig->rcq, &wc, 1), 0);
	rig_expect_answer(rig, RIG_RQ_PSN, IB_AETH_ACK, -1, 1);
	/* And at once when it is not the application who drives. */
	rig_recv(rig, 2, 4096, 64);
	come(rig, RIG_RQ_PSN + 1);
	assert_true(hdl_progress(rig->adapter) >= 0);
	rig_expect_answer(rig, RIG_RQ_PSN + 1, IB_AETH_ACK, -1, 2);
	rig_completion(rig, rig->rcq, 2, HDL_WC_SUCCESS);
}

/* A turn ends with the train that it is in, and it ends. */
static void a_turn_fills_its_train(void **state)
{
	static const struct {
		bool (*filling)(void *context);
		uint32_t sent;
	} rows[] = {
	        {NULL, IB_TX_BATCH},
	        {filling, (IB_TX_BATCH + TRAIN - 1) / TRAIN * TRAIN},
	        {always, IB_TX_BATCH + IB_TX_MORE},
	};
	struct rig *rig = *state;
	for (uint32_t i = 0; i < COUNT(rows); i++) {
		begin(rig, HDL_QP_UC);
		rig->sent_count = rig->looked_at = flushed = 0;
		rig->cable.carrier.filling = rows[i].filling;
		post(rig, 256 * 200);
		assert_int_equal(rig->sent_count, rows[i].sent);
		rig_run(rig);
		assert_int_equal(rig->sent_count, 200);
		for (uint32_t k = 0; k < 200; k++)
			assert_int_equal(rig_look(rig)->bth.psn, RIG_SQ_PSN + k);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        RIGGED(the_answer_takes_the_acknowledgement_along),
	        RIGGED(a_patient_thread_leaves_it_to_the_application),
	        RIGGED(without_an_answer_it_goes_with_the_next_poll),
	        RIGGED(a_turn_fills_its_train),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
