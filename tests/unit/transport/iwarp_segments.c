/* iWARP on messages that come in any order (RFC 5043): placed as they come, delivered in order;
 * table D of MEMMGT figure 18B with the last segment first; the read resource queue of figure 18A
 * with requests out of order; numbers that no peer may send. */
#include "iwarp_rig.h"

#include <stdlib.h>

static struct iw_rig rig;
static struct iw_segment got;
static uint8_t data[70000];
#define SIDE (&rig.sides[0])

static void begin(const struct iw_options *o)
{
	struct iw_options options = o != NULL ? *o : (struct iw_options){0};
	options.messages = true;
	iw_open(&rig, &options, 1);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 13 + i / 255);
}

static bool put_send(uint16_t ssn, uint32_t msn, uint32_t mo, bool last, uint32_t bytes)
{
	struct rdmap_segment s = {.opcode = RDMAP_SEND, .last = last, .msn = msn, .mo = mo};
	return iw_put_message(&rig, ssn, &s, data + mo, bytes);
}

static void put_write(uint16_t ssn, struct hdl_key key, uint64_t to, bool last, uint32_t bytes)
{
	struct rdmap_segment s = {.opcode = RDMAP_WRITE, .last = last, .stag = key.v, .to = to};
	assert_true(iw_put_message(&rig, ssn, &s, data, bytes));
}

/* Three segments from the last to the first, with every first number around the wrap. */
static void rfc5043_placed_as_they_come(void **state)
{
	(void)state;
	for (unsigned way = 0; way < 8; way++) {
		uint16_t first = (uint16_t)(65533 + way / 2);
		begin(&(struct iw_options){.terms = {.first_ssn = first}, .srq = way & 1});
		iw_recv(SIDE, 7, 0, 5000);
		memset(SIDE->mem, 0, 5000);
		for (int i = 2; i >= 0; i--) {
			iw_no_completion(SIDE->rcq);
			assert_true(put_send((uint16_t)(first + i), 1, (uint32_t)i * 1000, i == 2,
			                     1000));
			assert_memory_equal(SIDE->mem + i * 1000, data + i * 1000, 1000);
		}
		struct hdl_wc wc = iw_completion(SIDE->rcq, 7, HDL_WC_SUCCESS);
		assert_int_equal(wc.byte_len, 3000);
		iw_no_event(SIDE);
		iw_close(&rig);
	}
}

/* Several messages at a time, each in its own receive; they complete in the order of numbers. */
static void rfc5043_messages_open_at_once(void **state)
{
	(void)state;
	enum { MESSAGES = 20 };
	for (unsigned srq = 0; srq < 2; srq++) {
		begin(&(struct iw_options){.srq = srq});
		for (unsigned m = 0; m < MESSAGES; m++)
			iw_recv(SIDE, m, m * 300, 300);
		memset(SIDE->mem, 0, MESSAGES * 300);
		/* The second halves, backwards; then the first halves. */
		for (unsigned half = 2; half-- > 0;)
			for (unsigned m = MESSAGES; m-- > 0;) {
				assert_true(put_send((uint16_t)(2 * m + half), m + 1, 100 * half,
				                     half == 1, 100));
				assert_memory_equal(SIDE->mem + m * 300 + 100 * half,
				                    data + 100 * half, 100);
				if (half == 1 || m > 0)
					iw_no_completion(SIDE->rcq);
			}
		for (unsigned m = 0; m < MESSAGES; m++)
			assert_int_equal(iw_completion(SIDE->rcq, m, HDL_WC_SUCCESS).byte_len, 200);
		/* What comes now finds the next receive. */
		iw_recv(SIDE, 77, 0, 300);
		assert_true(put_send(2 * MESSAGES, MESSAGES + 1, 0, true, 300));
		iw_completion(SIDE->rcq, 77, HDL_WC_SUCCESS);
		iw_close(&rig);
	}
}

/* Receives of a shared queue that were taken out for messages that are open are flushed with them,
 * oldest first. */
static void open_messages_are_flushed(void **state)
{
	(void)state;
	begin(&(struct iw_options){.srq = true});
	for (unsigned m = 0; m < 4; m++)
		iw_recv(SIDE, m, m * 300, 300);
	assert_true(put_send(5, 3, 0, true, 100));
	struct hdl_qp_attr attr = {.state = HDL_QPS_ERR};
	assert_int_equal(hdl_qp_modify(SIDE->qp, &attr, HDL_QP_STATE), 0);
	for (unsigned m = 0; m < 3; m++)
		iw_completion(SIDE->rcq, m, HDL_WC_WR_FLUSH_ERR);
	iw_no_completion(SIDE->rcq);
	iw_close(&rig);
}

/* No receive for a message that is early: it waits in the stash, because what comes before it may
 * be behind it. */
static void early_without_a_receive(void **state)
{
	(void)state;
	for (unsigned srq = 0; srq < 2; srq++) {
		begin(&(struct iw_options){.srq = srq});
		iw_recv(SIDE, 0, 0, 300);
		for (unsigned m = 8; m-- > 1;)
			assert_true(put_send((uint16_t)m, m + 1, 0, true, 200 + m));
		assert_int_equal(SIDE->window->stash_count, 7);
		assert_true(put_send(0, 1, 0, true, 200));
		iw_completion(SIDE->rcq, 0, HDL_WC_SUCCESS);
		iw_no_completion(SIDE->rcq);
		for (unsigned m = 1; m < 8; m++) {
			memset(SIDE->mem, 0, 300);
			unsigned wakes = SIDE->wakes;
			iw_recv(SIDE, m, 0, 300);
			iw_pass(&rig, 2 * IWARP_RECEIVE_LOOK_MAX_NS, false);
			assert_true(SIDE->wakes > wakes);
			adapter_lock(SIDE->adapter);
			assert_true(iwarp_message_resume(&SIDE->iwarp));
			adapter_unlock(SIDE->adapter);
			assert_int_equal(iw_completion(SIDE->rcq, m, HDL_WC_SUCCESS).byte_len,
			                 200 + m);
			assert_memory_equal(SIDE->mem, data, 200 + m);
		}
		assert_null(SIDE->window->stash);
		iw_close(&rig);
	}
}

/* The stash is full: the peer is held back, and terminated if it goes on for too long. The receive
 * that is there is for the oldest message, and no receive for the one that is held back. */
static void early_stash_is_full(void **state)
{
	(void)state;
	for (unsigned late = 0; late < 3; late++) {
		begin(NULL);
		unsigned count = 0;
		if (late == 2)
			iw_recv(SIDE, 0, 0, 1400);
		while (put_send((uint16_t)(1 + count), 2 + count, 0, true, 1400))
			count++;
		assert_int_equal(count, IWARP_CHUNK_BYTES / 1400);
		iw_pass(&rig, IWARP_RECEIVE_WAIT_NS / 2, false);
		assert_int_equal(iw_state(SIDE), HDL_QPS_RTS);
		if (late) {
			iw_pass(&rig, IWARP_RECEIVE_WAIT_NS, false);
			iw_expect_terminate(&rig, RDMAP_ERROR_DDP_NO_BUFFER);
			iw_event(SIDE, HDL_EVENT_QP_ACCESS_ERR, HDL_DETAIL_LIMIT);
			iw_close(&rig);
			continue;
		}
		/* The oldest comes, and receives for all. */
		for (unsigned i = 0; i < IW_DEPTH; i++)
			iw_recv(SIDE, i, 0, 1400);
		assert_true(put_send(0, 1, 0, true, 1400));
		for (unsigned i = 0; i < IW_DEPTH; i++)
			iw_completion(SIDE->rcq, i, HDL_WC_SUCCESS);
		assert_true(put_send((uint16_t)(1 + count), 2 + count, 0, true, 1400) ||
		            SIDE->window->stash_count > 0);
		iw_close(&rig);
	}
}

/* What is wrong with an early segment counts when its turn comes: messages before it are received
 * as if it had come in order. */
static void an_early_error_waits_for_its_turn(void **state)
{
	(void)state;
	for (unsigned row = 0; row < 5; row++) {
		begin(NULL);
		iw_recv(SIDE, 1, 0, 100);
		iw_recv(SIDE, 2, 100, 100);
		struct rdmap_segment stale = {.opcode = RDMAP_WRITE,
		                              .last = true,
		                              .stag = iw_key(SIDE).v ^ 1,
		                              .to = iw_address(SIDE, 0)};
		struct rdmap_segment answer = {.opcode = RDMAP_READ_RESPONSE, .last = true};
		enum rdmap_error error;
		if (row == 0) {
			assert_true(iw_put_message(&rig, 1, &stale, data, 50));
			error = RDMAP_ERROR_DDP_INVALID_STAG;
		} else if (row == 1) {
			assert_true(iw_put_message(&rig, 1, &answer, data, 50));
			error = RDMAP_ERROR_DDP_INVALID_STAG;
		} else if (row == 2) { /* too long for its receive */
			assert_true(put_send(1, 2, 0, true, 101));
			error = RDMAP_ERROR_DDP_MESSAGE_TOO_LONG;
		} else if (row == 3) { /* a gap in the message that only its turn shows */
			assert_true(put_send(1, 2, 10, true, 20));
			error = RDMAP_ERROR_DDP_INVALID_MO;
		} else { /* the number of a message that nobody sends next */
			assert_true(put_send(1, 3, 0, true, 20));
			iw_recv(SIDE, 3, 200, 100);
			error = RDMAP_ERROR_DDP_MSN_RANGE;
		}
		assert_int_equal(iw_state(SIDE), HDL_QPS_RTS);
		iw_expect_silence(&rig);
		assert_true(put_send(0, 1, 0, true, 100));
		iw_completion(SIDE->rcq, 1, HDL_WC_SUCCESS);
		assert_memory_equal(SIDE->mem, data, 100);
		if (row == 2)
			iw_completion(SIDE->rcq, 2, HDL_WC_LOC_LEN_ERR);
		iw_expect_terminate(&rig, error);
		iw_close(&rig);
	}
}

/* --- IP5: table D --- */

static struct hdl_mr *one_touch(uint32_t touch)
{
	struct hdl_mr *mr;
	assert_int_equal(hdl_mr_register(SIDE->pd, SIDE->mem, 4096,
	                                 HDL_ACCESS_LOCAL_WRITE | HDL_ACCESS_REMOTE_WRITE | touch,
	                                 &mr),
	                 0);
	memset(SIDE->mem, 0, 4096);
	return mr;
}

static uint16_t flags_of(struct hdl_mr *mr)
{
	struct tpt_entry entry;
	assert_true(tpt_read(&SIDE->adapter->engine.tpt->view, hdl_mr_key(mr), &entry));
	return (uint16_t)(entry.flags & (TPT_VALID | TPT_TOUCHED));
}

static void settle_mr(struct hdl_mr *mr)
{
	int result = hdl_mr_deregister(mr);
	assert_int_equal(result, 0);
}

/* Every order of a message of four segments, and of a Send before it, on a one-touch region: all of
 * it is placed, the entry is over exactly when the last gap is closed, and not before. */
static void memmgt_18b_last_segment_first(void **state)
{
	(void)state;
	static const unsigned factorial = 120;
	for (unsigned permutation = 0; permutation < factorial; permutation++) {
		unsigned left[5] = {0, 1, 2, 3, 4}, rest = permutation, seen = 0;
		begin(NULL);
		iw_recv(SIDE, 9, 8192, 16);
		struct hdl_mr *mr = one_touch(HDL_ACCESS_ONE_TOUCH);
		for (unsigned n = 5; n-- > 0;) {
			unsigned choice = rest % (n + 1), ssn = left[choice];
			rest /= n + 1;
			left[choice] = left[n];
			if (ssn == 0)
				assert_true(put_send(0, 1, 0, true, 16));
			else
				put_write((uint16_t)ssn, hdl_mr_key(mr),
				          iw_address(SIDE, (ssn - 1) * 700), ssn == 4, 700);
			seen |= 1u << ssn;
			bool last = (seen & 1u << 4) != 0;
			assert_int_equal(flags_of(mr),
			                 n == 0 ? TPT_TOUCHED
			                        : TPT_VALID | (last ? TPT_TOUCHED : 0));
			for (unsigned i = 1; i < 5; i++)
				if (seen & 1u << i)
					assert_memory_equal(SIDE->mem + (i - 1) * 700, data, 700);
		}
		iw_completion(SIDE->rcq, 9, HDL_WC_SUCCESS);
		assert_int_equal(iw_state(SIDE), HDL_QPS_RTS);
		/* It cannot be used again. */
		put_write(5, hdl_mr_key(mr), iw_address(SIDE, 0), true, 8);
		iw_expect_terminate(&rig, RDMAP_ERROR_DDP_INVALID_STAG);
		settle_mr(mr);
		iw_close(&rig);
	}
}

/* The other rows of the table. */
static void memmgt_18b_table_d(void **state)
{
	(void)state;
	begin(NULL);
	/* Not last: placed, nothing else, in order or early. */
	struct hdl_mr *mr = one_touch(HDL_ACCESS_ONE_TOUCH);
	put_write(0, hdl_mr_key(mr), iw_address(SIDE, 0), false, 100);
	put_write(2, hdl_mr_key(mr), iw_address(SIDE, 300), false, 100);
	assert_int_equal(flags_of(mr), TPT_VALID);
	assert_memory_equal(SIDE->mem + 300, data, 100);
	/* Last, not one-touch: any number of times, early or not. */
	struct hdl_mr *often = one_touch(0);
	put_write(4, hdl_mr_key(often), iw_address(SIDE, 1000), true, 100);
	put_write(3, hdl_mr_key(often), iw_address(SIDE, 1200), true, 100);
	assert_int_equal(flags_of(often), TPT_VALID);
	/* Last, in order: over at once. */
	put_write(1, hdl_mr_key(mr), iw_address(SIDE, 100), true, 200);
	assert_int_equal(flags_of(mr), TPT_TOUCHED);
	assert_int_equal(flags_of(often), TPT_VALID);
	settle_mr(mr);
	settle_mr(often);
	iw_close(&rig);

	/* Last, early, and touched before: the entry is over, nothing is placed, and when the turn
	 * of the second message comes, the stream ends. */
	begin(NULL);
	mr = one_touch(HDL_ACCESS_ONE_TOUCH);
	put_write(1, hdl_mr_key(mr), iw_address(SIDE, 0), true, 100);
	assert_int_equal(flags_of(mr), TPT_VALID | TPT_TOUCHED);
	put_write(2, hdl_mr_key(mr), iw_address(SIDE, 500), true, 100);
	assert_int_equal(flags_of(mr), TPT_TOUCHED);
	assert_int_equal(SIDE->mem[500], 0);
	iw_recv(SIDE, 1, 8192, 16);
	assert_int_equal(iw_state(SIDE), HDL_QPS_RTS);
	assert_true(put_send(0, 1, 0, true, 16));
	iw_completion(SIDE->rcq, 1, HDL_WC_SUCCESS);
	iw_event(SIDE, HDL_EVENT_QP_ACCESS_ERR, HDL_DETAIL_TOUCHED);
	iw_expect_terminate(&rig, RDMAP_ERROR_DDP_INVALID_STAG);
	settle_mr(mr);
	iw_close(&rig);

	/* Outside the window: dropped; nobody sends it again, so the stream ends. */
	begin(NULL);
	mr = one_touch(HDL_ACCESS_ONE_TOUCH);
	put_write(IWARP_EARLY, hdl_mr_key(mr), iw_address(SIDE, 0), true, 100);
	assert_int_equal(flags_of(mr), TPT_VALID);
	assert_int_equal(SIDE->mem[0], 0);
	iw_event(SIDE, HDL_EVENT_QP_REQUEST_ERR, HDL_DETAIL_OUT_OF_WINDOW);
	iw_expect_terminate(&rig, RDMAP_ERROR_RDMAP_STREAM_FAILED);
	settle_mr(mr);
	iw_close(&rig);
}

/* The same with a last segment that brings no octets, and with one that names another region: which
 * segments a message is divided into does not matter. */
static void memmgt_18b_the_end_brings_no_octets(void **state)
{
	(void)state;
	static const unsigned factorial = 24;
	for (unsigned way = 0; way < 2 * factorial; way++) {
		unsigned left[4] = {0, 1, 2, 3}, rest = way / 2;
		begin(NULL);
		iw_recv(SIDE, 9, 8192, 16);
		struct hdl_mr *mr = one_touch(HDL_ACCESS_ONE_TOUCH), *other = one_touch(0);
		for (unsigned n = 4; n-- > 0;) {
			unsigned choice = rest % (n + 1), ssn = left[choice];
			rest /= n + 1;
			left[choice] = left[n];
			if (ssn == 0)
				assert_true(put_send(0, 1, 0, true, 16));
			else
				put_write((uint16_t)ssn,
				          hdl_mr_key(ssn == 3 && way % 2 ? other : mr),
				          iw_address(SIDE, (ssn - 1) * 700), ssn == 3,
				          ssn == 3 ? 0 : 700);
			assert_int_equal(flags_of(mr), n == 0 ? TPT_TOUCHED : TPT_VALID);
		}
		assert_memory_equal(SIDE->mem, data, 700);
		assert_memory_equal(SIDE->mem + 700, data, 700);
		iw_completion(SIDE->rcq, 9, HDL_WC_SUCCESS);
		assert_int_equal(flags_of(other), TPT_VALID);
		put_write(4, hdl_mr_key(mr), iw_address(SIDE, 2000), true, 8);
		iw_expect_terminate(&rig, RDMAP_ERROR_DDP_INVALID_STAG);
		assert_int_equal(SIDE->mem[2000], 0);
		settle_mr(mr);
		settle_mr(other);
		iw_close(&rig);
	}
	/* Of two messages that each end without octets, and of one that ends early beside one that
	 * has begun, the later ends the stream (row 3). */
	for (unsigned way = 0; way < 2; way++) {
		begin(NULL);
		struct hdl_mr *mr = one_touch(HDL_ACCESS_ONE_TOUCH);
		put_write(0, hdl_mr_key(mr), iw_address(SIDE, 0), false, 100);
		put_write(2, hdl_mr_key(mr), iw_address(SIDE, 200), way == 1, 100);
		if (way == 0)
			put_write(3, hdl_mr_key(mr), iw_address(SIDE, 300), true, 0);
		assert_int_equal(iw_state(SIDE), HDL_QPS_RTS);
		put_write(1, hdl_mr_key(mr), iw_address(SIDE, 100), true, 0);
		assert_int_equal(flags_of(mr), TPT_TOUCHED);
		iw_event(SIDE, HDL_EVENT_QP_ACCESS_ERR, HDL_DETAIL_TOUCHED);
		iw_expect_terminate(&rig, RDMAP_ERROR_DDP_INVALID_STAG);
		settle_mr(mr);
		iw_close(&rig);
	}
	/* A message of no octets touches nothing. */
	begin(NULL);
	struct hdl_mr *mr = one_touch(HDL_ACCESS_ONE_TOUCH);
	put_write(1, hdl_mr_key(mr), iw_address(SIDE, 0), true, 0);
	put_write(0, hdl_mr_key(mr), iw_address(SIDE, 0), true, 0);
	assert_int_equal(flags_of(mr), TPT_VALID);
	put_write(2, hdl_mr_key(mr), iw_address(SIDE, 0), true, 100);
	assert_int_equal(flags_of(mr), TPT_TOUCHED);
	assert_int_equal(iw_state(SIDE), HDL_QPS_RTS);
	settle_mr(mr);
	iw_close(&rig);
}

/* --- IP8: the read resource queue --- */

static bool put_read(uint16_t ssn, uint32_t msn, size_t offset, uint32_t bytes)
{
	struct rdmap_segment s = {.opcode = RDMAP_READ_REQUEST,
	                          .msn = msn,
	                          .u.read = {.sink_stag = 1000 + msn,
	                                     .bytes = bytes,
	                                     .source_stag = iw_key(SIDE).v,
	                                     .source_to = iw_address(SIDE, offset)}};
	return iw_put_message(&rig, ssn, &s, NULL, 0);
}

/* Requests in any order are answered in the order of their numbers, once all before have come. */
static void memmgt_18a_requests_out_of_order(void **state)
{
	(void)state;
	begin(NULL);
	for (unsigned round = 0; round < 5; round++) {
		uint16_t first = (uint16_t)(4 * round);
		for (unsigned i = 4; i-- > 0;) {
			iw_expect_silence(&rig);
			put_read((uint16_t)(first + i), first + i + 1, 100 * i, 50 + i);
		}
		for (unsigned i = 0; i < 4; i++) {
			assert_true(iw_look(&rig, &got));
			assert_int_equal(got.s.opcode, RDMAP_READ_RESPONSE);
			assert_int_equal(got.s.stag, 1000 + first + i + 1);
			assert_int_equal(got.bytes, 50 + i);
			assert_memory_equal(got.payload, SIDE->mem + 100 * i, got.bytes);
		}
	}
	iw_close(&rig);
}

static void memmgt_18a_past_its_end(void **state)
{
	(void)state;
	/* IRD is 4: 5 is past the end while 1 is missing; twice the same number is, too. */
	for (unsigned row = 0; row < 2; row++) {
		begin(NULL);
		iw_recv(SIDE, 1, 8192, 16);
		put_read(2, row == 0 ? 5 : 1, 0, 8);
		if (row == 1)
			put_read(1, 1, 0, 8);
		else
			put_read(1, 1, 0, 8);
		assert_int_equal(iw_state(SIDE), HDL_QPS_RTS);
		assert_true(put_send(0, 1, 0, true, 16));
		iw_completion(SIDE->rcq, 1, HDL_WC_SUCCESS);
		iw_expect_terminate(&rig, row == 0 ? RDMAP_ERROR_DDP_MSN_RANGE
		                                   : RDMAP_ERROR_DDP_NO_BUFFER);
		iw_close(&rig);
	}
}

/* Answers to our reads, in any order, each into its own pieces. */
static void rfc5043_responses_out_of_order(void **state)
{
	(void)state;
	begin(NULL);
	for (unsigned i = 0; i < 3; i++)
		iw_rdma(SIDE, i, HDL_OP_READ, 1000 * i, 900, 4096, (struct hdl_key){IW_PEER_KEY});
	uint32_t stags[3];
	for (unsigned i = 0; i < 3; i++) {
		assert_true(iw_look(&rig, &got));
		assert_int_equal(got.s.opcode, RDMAP_READ_REQUEST);
		stags[i] = got.s.u.read.sink_stag;
	}
	memset(SIDE->mem, 0, 3000);
	for (unsigned n = 9; n-- > 0;) {
		struct rdmap_segment s = {.opcode = RDMAP_READ_RESPONSE,
		                          .last = n % 3 == 2,
		                          .stag = stags[n / 3],
		                          .to = n % 3 * 300};
		iw_no_completion(SIDE->scq);
		assert_true(iw_put_message(&rig, (uint16_t)n, &s, data + 300 * n, 300));
		assert_memory_equal(SIDE->mem + 1000 * (n / 3) + n % 3 * 300, data + 300 * n, 300);
	}
	for (unsigned i = 0; i < 3; i++)
		iw_completion(SIDE->scq, i, HDL_WC_SUCCESS);
	iw_close(&rig);
}

/* IP5: table D holds for answers. Those of two reads come to one region before their turn: one of
 * the reads succeeds. */
static void memmgt_18b_answers_to_one_touch_memory(void **state)
{
	(void)state;
	begin(NULL);
	struct hdl_mr *mr = one_touch(HDL_ACCESS_ONE_TOUCH);
	uint32_t stags[2];
	for (unsigned i = 0; i < 2; i++) {
		struct hdl_sge sge = {iw_address(SIDE, 1000 * i), 300, hdl_mr_key(mr)};
		iw_post(SIDE, (struct hdl_send_wr){.wr_id = i,
		                                   .sg_list = &sge,
		                                   .num_sge = 1,
		                                   .opcode = HDL_OP_READ,
		                                   .flags = HDL_SEND_SIGNALED,
		                                   .u.rdma = {4096, {IW_PEER_KEY}}});
		assert_true(iw_look(&rig, &got));
		stags[i] = got.s.u.read.sink_stag;
	}
	for (unsigned i = 2; i-- > 0;) {
		assert_int_equal(flags_of(mr), TPT_VALID);
		iw_no_completion(SIDE->scq);
		struct rdmap_segment s = {
		        .opcode = RDMAP_READ_RESPONSE, .last = true, .stag = stags[i]};
		assert_true(iw_put_message(&rig, (uint16_t)i, &s, data, 300));
	}
	assert_int_equal(flags_of(mr), TPT_TOUCHED);
	iw_completion(SIDE->scq, 0, HDL_WC_SUCCESS);
	assert_memory_equal(SIDE->mem, data, 300);
	assert_int_equal(iw_completion(SIDE->scq, 1, HDL_WC_LOC_PROT_ERR).vendor_err,
	                 HDL_DETAIL_TOUCHED);
	assert_int_equal(iw_state(SIDE), HDL_QPS_ERR);
	settle_mr(mr);
	iw_close(&rig);
}

/* --- numbers --- */

static void rfc5043_bad_numbers(void **state)
{
	(void)state;
	static const uint16_t bad[] = {1, 3, IWARP_EARLY + 2, 0x7fff, 0x8000, 0x8002, 0xffff, 0};
	for (unsigned i = 0; i < IW_COUNT(bad); i++) {
		begin(NULL);
		for (unsigned n = 0; n < 4; n++)
			iw_recv(SIDE, n, 100 * n, 100);
		assert_true(put_send(0, 1, 0, true, 10));
		assert_true(put_send(1, 2, 0, true, 10));
		assert_true(put_send(3, 4, 0, true, 10)); /* 2 is missing */
		uint64_t before = counter_read(&SIDE->adapter->engine.counters[ENGINE_BAD_PACKETS]);
		assert_true(put_send(bad[i], 3, 0, true, 10));
		assert_false(SIDE->open);
		assert_int_equal(counter_read(&SIDE->adapter->engine.counters[ENGINE_BAD_PACKETS]),
		                 before + 1);
		iw_completion(SIDE->rcq, 0, HDL_WC_SUCCESS);
		iw_completion(SIDE->rcq, 1, HDL_WC_SUCCESS);
		iw_completion(SIDE->rcq, 2, HDL_WC_WR_FLUSH_ERR);
		iw_expect_terminate(&rig, RDMAP_ERROR_RDMAP_STREAM_FAILED);
		iw_close(&rig);
	}
}

static void rfc5043_short_messages(void **state)
{
	(void)state;
	static const uint8_t zeros[20];
	for (size_t bytes = 0; bytes < 17; bytes++) {
		begin(NULL);
		uint8_t *message = malloc(bytes > 0 ? bytes : 1);
		assert_non_null(message);
		memcpy(message, zeros, bytes);
		adapter_lock(SIDE->adapter);
		assert_true(iwarp_message(&SIDE->iwarp, message, bytes, &SIDE->open));
		adapter_unlock(SIDE->adapter);
		free(message);
		assert_false(SIDE->open);
		assert_int_equal(iw_state(SIDE), HDL_QPS_ERR);
		iw_close(&rig);
	}
}

/* As many early ones as there may be. */
static void as_many_as_may_be_early(void **state)
{
	(void)state;
	begin(NULL);
	for (unsigned i = IWARP_EARLY; i-- > 1;)
		put_write((uint16_t)i, iw_key(SIDE), iw_address(SIDE, 8 * i), true, 8);
	assert_int_equal(SIDE->window->early_count, IWARP_EARLY - 1);
	put_write(0, iw_key(SIDE), iw_address(SIDE, 0), true, 8);
	assert_int_equal(SIDE->window->early_count, 0);
	assert_int_equal(SIDE->window->expected, IWARP_EARLY);
	assert_int_equal(iw_state(SIDE), HDL_QPS_RTS);
	iw_close(&rig);
}

/* An association that ends while a segment is missing has not ended in order. */
static void ends_with_a_gap(void **state)
{
	(void)state;
	for (unsigned gap = 0; gap < 2; gap++) {
		begin(NULL);
		put_write((uint16_t)gap, iw_key(SIDE), iw_address(SIDE, 0), true, 8);
		adapter_lock(SIDE->adapter);
		iwarp_stream.ended(&SIDE->iwarp, STREAM_CLOSED);
		adapter_unlock(SIDE->adapter);
		assert_int_equal(iw_state(SIDE), HDL_QPS_ERR);
		assert_int_equal(iwarp_ending(&SIDE->iwarp), gap ? IWARP_ABORT : IWARP_FIN);
		if (gap)
			iw_event(SIDE, HDL_EVENT_QP_FATAL, HDL_DETAIL_NONE);
		else
			iw_no_event(SIDE);
		iw_close(&rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(rfc5043_placed_as_they_come),
	        cmocka_unit_test(rfc5043_messages_open_at_once),
	        cmocka_unit_test(open_messages_are_flushed),
	        cmocka_unit_test(early_without_a_receive),
	        cmocka_unit_test(early_stash_is_full),
	        cmocka_unit_test(an_early_error_waits_for_its_turn),
	        cmocka_unit_test(memmgt_18b_last_segment_first),
	        cmocka_unit_test(memmgt_18b_table_d),
	        cmocka_unit_test(memmgt_18b_the_end_brings_no_octets),
	        cmocka_unit_test(memmgt_18b_answers_to_one_touch_memory),
	        cmocka_unit_test(memmgt_18a_requests_out_of_order),
	        cmocka_unit_test(memmgt_18a_past_its_end),
	        cmocka_unit_test(rfc5043_responses_out_of_order),
	        cmocka_unit_test(rfc5043_bad_numbers),
	        cmocka_unit_test(rfc5043_short_messages),
	        cmocka_unit_test(as_many_as_may_be_early),
	        cmocka_unit_test(ends_with_a_gap),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
