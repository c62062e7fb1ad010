/* Long sends and writes are sent from the memory of the program. When requests are flushed, nothing
 * of it is sent any more, and what the peer gets is still a stream of good FPDUs. */
#include "iwarp_rig.h"

#include <sys/mman.h>

#define SEGMENT 65483u /* of the loopback */
#define LONG    65536u

static struct iw_rig rig;
static struct iw_segment got;
#define SIDE (&rig.sides[0])

static int lend_setup(void **state)
{
	(void)state;
	iw_open(&rig, &(struct iw_options){.terms = {.crc = true, .segment = SEGMENT}}, 1);
	return 0;
}

static int lend_teardown(void **state)
{
	(void)state;
	iw_close(&rig);
	return 0;
}

static size_t lend_offer(struct stream_run *runs, size_t max)
{
	iw_drive(&rig);
	adapter_lock(SIDE->adapter);
	size_t count = iwarp_stream.offer(&SIDE->iwarp, runs, max);
	adapter_unlock(SIDE->adapter);
	return count;
}

/* The next segments are @length octets of SIDE->mem, the first of them short. */
static void expect_message(enum rdmap_opcode opcode, uint32_t length)
{
	for (uint32_t at = 0; at < length; at += got.bytes) {
		assert_true(iw_look(&rig, &got)); /* which checks the CRC */
		assert_int_equal(got.s.opcode, opcode);
		assert_true(got.bytes > 0 && got.bytes <= length - at);
		assert_memory_equal(got.payload, SIDE->mem + at, got.bytes);
		assert_int_equal(got.s.last, at + got.bytes == length);
		if (at == 0)
			assert_int_equal(got.bytes, IWARP_FIRST_BYTES);
	}
}

static void long_requests_are_not_copied(void **state)
{
	(void)state;
	struct stream_run runs[STREAM_MAX_RUNS];
	iw_send(SIDE, 1, 0, LONG);
	iw_rdma(SIDE, 2, HDL_OP_WRITE, 0, LONG, 0x1000, (struct hdl_key){IW_PEER_KEY});
	/* Header and short segment and header; payload; trailer and the same of the next. */
	assert_int_equal(lend_offer(runs, STREAM_MAX_RUNS), 5);
	for (unsigned i = 1; i < 5; i += 2) {
		assert_ptr_equal(runs[i].bytes, SIDE->mem + IWARP_FIRST_BYTES);
		assert_int_equal(runs[i].length, LONG - IWARP_FIRST_BYTES);
	}
	assert_int_equal(SIDE->iwarp.out_chunks, 0); /* the connection's own is enough */
	assert_int_equal(lend_offer(runs, 2), 2);
	expect_message(RDMAP_SEND, LONG);
	iw_completion(SIDE->scq, 1, HDL_WC_SUCCESS);
	expect_message(RDMAP_WRITE, LONG);
	iw_completion(SIDE->scq, 2, HDL_WC_SUCCESS);
	assert_int_equal(SIDE->iwarp.lent, 0);
	assert_null(SIDE->iwarp.out);
}

/* Lists of pieces: those of a reasonable length are lent, others are copied. */
static void pieces(void **state)
{
	(void)state;
	static const uint32_t lengths[][3] = {
	        {20000, 30000, 10000}, {100, 40000, 7}, {16000, 1, 500}};
	for (unsigned i = 0; i < IW_COUNT(lengths); i++) {
		struct hdl_sge list[3];
		uint32_t all = 0;
		for (unsigned p = 0; p < 3; p++) {
			list[p] = iw_piece(SIDE, all, lengths[i][p]);
			all += lengths[i][p];
		}
		iw_post(SIDE, (struct hdl_send_wr){.wr_id = i,
		                                   .opcode = HDL_OP_SEND,
		                                   .flags = HDL_SEND_SIGNALED,
		                                   .sg_list = list,
		                                   .num_sge = 3});
		expect_message(RDMAP_SEND, all);
		iw_completion(SIDE->scq, i, HDL_WC_SUCCESS);
	}
	assert_int_equal(SIDE->iwarp.lent, 0);
}

/* What waits to be sent is bounded, and goes on when the stream takes it. */
static void lent_memory_is_bounded(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 16; i++)
		iw_send(SIDE, i, 0, LONG);
	iw_drive(&rig);
	assert_true(SIDE->iwarp.lent >= IWARP_LENT_MOST);
	assert_true(SIDE->iwarp.lent < IWARP_LENT_MOST + LONG);
	for (unsigned i = 0; i < 16; i++) {
		expect_message(RDMAP_SEND, LONG);
		iw_completion(SIDE->scq, i, HDL_WC_SUCCESS);
	}
}

static void fail_qp(void)
{
	const struct hdl_qp_attr attr = {.state = HDL_QPS_ERR};
	assert_int_equal(hdl_qp_modify(SIDE->qp, &attr, HDL_QP_STATE), 0);
	memset(SIDE->mem, 0xee, IW_BYTES); /* requests are over: the program reuses its memory */
}

static void take(size_t bytes)
{
	static uint8_t sink[2 * LONG];
	iw_drive(&rig);
	adapter_lock(SIDE->adapter);
	assert_int_equal(stream_drain(&iwarp_stream, &SIDE->iwarp, sink, bytes), bytes);
	adapter_unlock(SIDE->adapter);
}

/* Nothing of it has been sent: nothing is. */
static void flushed_before_it_began(void **state)
{
	(void)state;
	iw_send(SIDE, 1, 0, 100);
	iw_send(SIDE, 2, 0, LONG);
	iw_send(SIDE, 3, 0, LONG);
	iw_drive(&rig);
	fail_qp();
	for (unsigned i = 1; i <= 3; i++)
		iw_completion(SIDE->scq, i, HDL_WC_WR_FLUSH_ERR);
	assert_int_equal(SIDE->iwarp.lent, 0);
	assert_true(iw_look(&rig, &got)); /* this one was a copy, */
	assert_int_equal(got.bytes, 100);
	assert_true(iw_look(&rig, &got)); /* and this the beginning of the second */
	assert_int_equal(got.bytes, IWARP_FIRST_BYTES);
	iw_expect_terminate(&rig, RDMAP_ERROR_RDMAP_CATASTROPHIC);
	assert_int_equal(iwarp_ending(&SIDE->iwarp), IWARP_FIN);
}

/* A part of an FPDU has been sent: wherever the stream stands, the rest is as it was. */
static void flushed_in_the_middle(void **state)
{
	static const size_t places[] = {153, 171, 172, 173, 1000, 65579, 65580, 65583};
	static uint8_t all[2 * LONG], rest[2 * LONG];
	for (unsigned i = 0; i < IW_COUNT(places); i++) {
		uint8_t *at = all;
		struct stream_run runs[STREAM_MAX_RUNS];
		iw_send(SIDE, 1, 0, LONG);
		size_t count = lend_offer(runs, STREAM_MAX_RUNS);
		for (size_t r = 0; r < count; r++) {
			memcpy(at, runs[r].bytes, runs[r].length);
			at += runs[r].length;
		}
		size_t length = (size_t)(at - all);
		take(places[i]);
		fail_qp();
		iw_completion(SIDE->scq, 1, HDL_WC_WR_FLUSH_ERR);
		adapter_lock(SIDE->adapter);
		size_t left = stream_drain(&iwarp_stream, &SIDE->iwarp, rest, sizeof(rest));
		adapter_unlock(SIDE->adapter);
		assert_true(left > length - places[i]); /* and a Terminate */
		assert_memory_equal(rest, all + places[i], length - places[i]);
		assert_int_equal(iwarp_ending(&SIDE->iwarp), IWARP_FIN);
		assert_int_equal(SIDE->pool.sending, 0);
		lend_teardown(state);
		lend_setup(state);
	}
}

/* No chunk is left for the copy: the stream can only be reset. */
static void flushed_without_chunks(void **state)
{
	(void)state;
	iw_send(SIDE, 1, 0, LONG);
	take(1000);
	struct iwarp_chunk *all = SIDE->pool.free;
	SIDE->pool.free = NULL;
	fail_qp();
	struct stream_run run;
	assert_int_equal(lend_offer(&run, 1), 0);
	assert_int_equal(iwarp_ending(&SIDE->iwarp), IWARP_ABORT);
	SIDE->pool.free = all;
}

/* The memory of a request disappears before it is sent. */
static void memory_that_is_gone(void **state)
{
	(void)state;
	struct hdl_mr *mr;
	uint8_t *memory =
	        mmap(NULL, LONG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(memory != MAP_FAILED);
	assert_int_equal(hdl_mr_register(SIDE->pd, memory, LONG, HDL_ACCESS_LOCAL_READ, &mr), 0);
	struct hdl_sge list = {(uint64_t)(uintptr_t)memory, LONG, hdl_mr_key(mr)};
	iw_send(SIDE, 1, 0, 100);
	iw_post(SIDE, (struct hdl_send_wr){.wr_id = 2,
	                                   .opcode = HDL_OP_SEND,
	                                   .flags = HDL_SEND_SIGNALED,
	                                   .sg_list = &list,
	                                   .num_sge = 1});
	iw_drive(&rig);
	munmap(memory, LONG);
	adapter_lock(SIDE->adapter);
	iwarp_source_gone(&SIDE->iwarp);
	adapter_unlock(SIDE->adapter);
	iw_completion(SIDE->scq, 1, HDL_WC_WR_FLUSH_ERR);
	struct hdl_wc wc = iw_completion(SIDE->scq, 2, HDL_WC_LOC_ACCESS_ERR);
	assert_int_equal(wc.vendor_err, HDL_DETAIL_GONE);
	assert_int_equal(iwarp_ending(&SIDE->iwarp), IWARP_ABORT);
	assert_int_equal(iw_state(SIDE), HDL_QPS_ERR);
	assert_null(SIDE->iwarp.out);
	hdl_mr_deregister(mr);
}

#define LENDS(f) cmocka_unit_test_setup_teardown(f, lend_setup, lend_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        LENDS(long_requests_are_not_copied), LENDS(pieces),
	        LENDS(lent_memory_is_bounded),       LENDS(flushed_before_it_began),
	        LENDS(flushed_in_the_middle),        LENDS(flushed_without_chunks),
	        LENDS(memory_that_is_gone),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
