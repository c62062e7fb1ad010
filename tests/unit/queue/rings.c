/* Work queues and completion queues: order, limits, arming, overrun, resizing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "queue/reclaim.h"

static uint64_t *post(struct wq *wq, uint64_t value)
{
	reclaim_released(wq);
	uint64_t *element = wq_post(wq);
	if (element != NULL) {
		*element = value;
		wq_posted(wq);
	}
	return element;
}

static void wq_holds_exactly_its_depth_in_order(void **state)
{
	(void)state;
	uint64_t memory[8];
	struct wq wq;
	wq_init(&wq, memory, 5, 8, 1);
	assert_int_equal(wq_bytes(5, 8), sizeof(memory));
	for (uint64_t round = 0, next = 0; round < 100; round++) {
		for (uint64_t i = 0; i < 5; i++)
			assert_non_null(post(&wq, next + i));
		assert_null(post(&wq, 0));
		assert_int_equal(wq_held(&wq), 5);
		for (uint64_t i = 0; i < 5; i++) {
			assert_int_equal(*(uint64_t *)wq_oldest(&wq), next++);
			wq_release(&wq);
		}
		assert_null(wq_oldest(&wq));
	}
}

static void wq_indices_wrap_at_32_bits(void **state)
{
	(void)state;
	uint64_t memory[4];
	struct wq wq;
	wq_init(&wq, memory, 3, 8, 1);
	atomic_store(&wq.head, UINT32_MAX - 1);
	atomic_store(&wq.tail, UINT32_MAX - 1);
	for (uint64_t i = 0; i < 10; i++) {
		assert_non_null(post(&wq, i));
		assert_int_equal(*(uint64_t *)wq_oldest(&wq), i);
		wq_release(&wq);
	}
}

static void wq_move_keeps_content_and_refuses_what_does_not_fit(void **state)
{
	(void)state;
	uint64_t small[4], large[16];
	struct wq wq;
	wq_init(&wq, small, 4, 8, 1);
	for (uint64_t i = 0; i < 7; i++) {
		if (i >= 4)
			wq_release(&wq);
		post(&wq, i);
	}
	assert_false(wq_move(&wq, large, 3));
	assert_true(wq_move(&wq, large, 16));
	for (uint64_t i = 3; i < 7; i++) {
		assert_int_equal(*(uint64_t *)wq_oldest(&wq), i);
		wq_release(&wq);
	}
}

static struct hdl_wc wc_of(uint64_t id, uint16_t status)
{
	return (struct hdl_wc){.wr_id = id, .status = status};
}

static void cq_overrun_is_said_once_and_overwrites_nothing(void **state)
{
	(void)state;
	struct hdl_wc memory[4], out[8];
	struct cq cq;
	cq_init(&cq, memory, 3, false);
	for (uint64_t i = 0; i < 3; i++) {
		struct hdl_wc wc = wc_of(i, 0);
		assert_int_equal(cq_push(&cq, &wc, false), CQ_STORED);
	}
	struct hdl_wc extra = wc_of(99, 0);
	assert_int_equal(cq_push(&cq, &extra, false), CQ_OVERRUN);
	assert_int_equal(cq_push(&cq, &extra, false), 0);
	assert_int_equal(cq_poll(&cq, out, 8), 3);
	for (uint64_t i = 0; i < 3; i++)
		assert_int_equal(out[i].wr_id, i);
	assert_true(atomic_load(&cq.overrun));
}

static void cq_arming(void **state)
{
	(void)state;
	static const struct {
		bool arm, solicited_only, solicited;
		uint16_t status;
		bool event;
	} rows[] = {
	        {false, false, true, 0, false}, {true, false, false, 0, true},
	        {true, false, true, 0, true},   {true, true, false, 0, false},
	        {true, true, true, 0, true},    {true, true, false, HDL_WC_REM_OP_ERR, true},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct hdl_wc memory[4];
		struct cq cq;
		cq_init(&cq, memory, 4, true);
		if (rows[i].arm)
			cq_arm(&cq, rows[i].solicited_only);
		struct hdl_wc wc = wc_of(1, rows[i].status);
		unsigned want = CQ_STORED | (rows[i].event ? CQ_EVENT : 0u);
		assert_int_equal(cq_push(&cq, &wc, rows[i].solicited), want);
		/* Once only. */
		if (rows[i].event)
			assert_int_equal(cq_push(&cq, &wc, true), CQ_STORED);
	}
}

static void cq_armed_for_any_stays_so(void **state)
{
	(void)state;
	struct hdl_wc memory[4], wc = wc_of(1, 0);
	struct cq cq;
	cq_init(&cq, memory, 4, true);
	cq_arm(&cq, false);
	cq_arm(&cq, true);
	assert_int_equal(cq_push(&cq, &wc, false), CQ_STORED | CQ_EVENT);
}

/* What arming finds in the queue: rows of what was pushed before ('.', or 's' for solicited), of
 * how much was taken, and of what each kind of arming makes of it. */
static void cq_arming_finds_what_is_there(void **state)
{
	(void)state;
	static const struct {
		const char *pushed;
		int taken;
		bool any, solicited;
	} rows[] = {
	        {"", 0, false, false}, {".", 0, true, false},   {".", 1, false, false},
	        {"s", 0, true, true},  {"s", 1, false, false},  {"s.", 1, true, false},
	        {".s", 1, true, true}, {".s.", 2, true, false},
	};
	for (int wrapping = 0; wrapping < 2; wrapping++) {
		for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
			struct hdl_wc memory[4], out[4], wc = wc_of(1, 0);
			struct cq cq;
			cq_init(&cq, memory, 4, true);
			if (wrapping ==
			    1) { /* the numbers of completions begin anew between them */
				cq.solicited = cq.event_solicited = UINT32_MAX;
				cq.event_head = cq.event_tail = UINT32_MAX;
				atomic_store(&cq.head, UINT32_MAX);
				atomic_store(&cq.tail, UINT32_MAX);
			}
			for (const char *at = rows[i].pushed; *at != '\0'; at++)
				cq_push(&cq, &wc, *at == 's');
			assert_int_equal(cq_poll(&cq, out, rows[i].taken), rows[i].taken);
			assert_false(cq_arm_is_due(&cq)); /* not armed */
			cq_arm(&cq, true);
			assert_int_equal(cq_arm_is_due(&cq), rows[i].solicited);
			cq_arm(&cq, false);
			assert_int_equal(cq_arm_is_due(&cq), rows[i].any);
			assert_true(cq_disarm(&cq));
			assert_false(cq_disarm(&cq));
			assert_false(cq_arm_is_due(&cq));
		}
	}
}

/* An event was raised of what is held, or of some of it. Rows of what was pushed before it and
 * after it, how much was taken after it, and of what each kind of arming finds then. */
static void cq_arming_finds_news(void **state)
{
	(void)state;
	static const struct {
		const char *before, *after;
		int taken;
		bool any, solicited;
	} rows[] = {
	        {".", "", 0, false, false}, {"s", "", 0, false, false}, {"s", ".", 0, true, false},
	        {".", "s", 0, true, true},  {".", "s", 1, true, true},  {"..", "", 1, true, false},
	        {".s", "", 1, true, true},  {".", "", 1, false, false}, {"s", ".", 1, true, false},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct hdl_wc memory[4], out[4], wc = wc_of(1, 0);
		struct cq cq;
		cq_init(&cq, memory, 4, true);
		for (const char *at = rows[i].before; *at != '\0'; at++) {
			if (at[1] == '\0')
				cq_arm(&cq, false);
			assert_int_equal(cq_push(&cq, &wc, *at == 's'),
			                 CQ_STORED | (at[1] == '\0' ? CQ_EVENT : 0u));
		}
		for (const char *at = rows[i].after; *at != '\0'; at++)
			cq_push(&cq, &wc, *at == 's');
		assert_int_equal(cq_poll(&cq, out, rows[i].taken), rows[i].taken);
		cq_arm(&cq, true);
		assert_int_equal(cq_arm_is_due(&cq), rows[i].solicited);
		cq_arm(&cq, false);
		assert_int_equal(cq_arm_is_due(&cq), rows[i].any);
		assert_true(cq_raise(&cq));
		assert_false(cq_raise(&cq));
		cq_arm(&cq, false);
		assert_false(cq_arm_is_due(&cq)); /* this one has told of it */
	}
}

/* Of two queue pairs one is taken out, and the solicited completion of the other moves. */
static void cq_discard_keeps_what_is_solicited(void **state)
{
	(void)state;
	struct hdl_wc memory[4], first = wc_of(1, 0), second = wc_of(2, 0);
	struct cq cq;
	cq_init(&cq, memory, 4, true);
	first.qpn = 1;
	second.qpn = 2;
	cq_push(&cq, &first, true);
	cq_push(&cq, &second, false);
	assert_int_equal(cq_discard(&cq, 2), 1);
	cq_arm(&cq, true);
	assert_true(cq_arm_is_due(&cq));
	assert_int_equal(cq_discard(&cq, 1), 1);
	assert_false(cq_arm_is_due(&cq));
}

static void cq_hands_over_what_its_driver_waits_for(void **state)
{
	(void)state;
	struct hdl_wc memory[4], out[4], wc = wc_of(7, 0), error = wc_of(8, HDL_WC_REM_OP_ERR);
	struct cq cq;
	cq_init(&cq, memory, 4, true);
	assert_false(cq_wait(&cq, out, 0));
	assert_true(cq_wait(&cq, out, 2));
	uint32_t first = cq_next(&cq);
	assert_int_equal(cq_push(&cq, &wc, false), CQ_STORED);
	assert_int_equal(cq_push(&cq, &error, false), CQ_STORED);
	assert_int_equal(out[0].wr_id, 7);
	assert_int_equal(out[1].wr_id, 8);
	assert_int_equal(out[1].status, HDL_WC_REM_OP_ERR);
	assert_true(cq_empty(&cq));
	/* One more than it has room for. */
	uint32_t second = cq_next(&cq);
	assert_int_equal(cq_push(&cq, &wc, false), CQ_STORED);
	assert_int_equal(cq_waited(&cq, 2), 2);
	assert_true(cq_taken(&cq, first));
	assert_false(cq_taken(&cq, second));
	assert_false(cq_wait(&cq, out, 2));
	assert_int_equal(cq_poll(&cq, out, 4), 1);
	assert_true(cq_taken(&cq, second));
	/* Nothing came. */
	assert_true(cq_wait(&cq, out, 2));
	assert_int_equal(cq_waited(&cq, 2), 0);
	/* Somebody wants an event. */
	cq_arm(&cq, false);
	assert_false(cq_wait(&cq, out, 2));
	assert_int_equal(cq_push(&cq, &wc, false), CQ_STORED | CQ_EVENT);
}

static void cq_move_keeps_order(void **state)
{
	(void)state;
	struct hdl_wc small[4], large[8], out[8];
	struct cq cq;
	cq_init(&cq, small, 4, false);
	for (uint64_t i = 0; i < 6; i++) {
		struct hdl_wc wc = wc_of(i, 0);
		cq_push(&cq, &wc, false);
		if (i < 3)
			assert_int_equal(cq_poll(&cq, out, 1), 1);
	}
	assert_false(cq_move(&cq, large, 2));
	assert_true(cq_move(&cq, large, 8));
	assert_int_equal(cq_poll(&cq, out, 8), 3);
	for (uint64_t i = 0; i < 3; i++)
		assert_int_equal(out[i].wr_id, 3 + i);
}

static void cq_discard_takes_one_queue_pair_out(void **state)
{
	(void)state;
	struct hdl_wc ring[4], out[4];
	struct cq cq;
	cq_init(&cq, ring, 4, false);
	for (uint32_t i = 0; i < 6; i++) {
		struct hdl_wc wc = wc_of(i, 0);
		wc.qpn = i % 2;
		cq_push(&cq, &wc, false);
		if (i < 2)
			assert_int_equal(cq_poll(&cq, out, 1), 1);
	}
	assert_int_equal(cq_count(&cq, 7), 0);
	assert_int_equal(cq_discard(&cq, 7), 0);
	assert_int_equal(cq_count(&cq, 0), 2);
	assert_int_equal(cq_discard(&cq, 0), 2);
	assert_int_equal(cq_count(&cq, 0), 0);
	assert_int_equal(cq_count(&cq, 1), 2);
	assert_int_equal(cq_poll(&cq, out, 4), 2);
	assert_int_equal(out[0].wr_id, 3);
	assert_int_equal(out[1].wr_id, 5);
	assert_true(cq_empty(&cq));
}

/* A queue that was not used for a long time sees that its completions were taken, however many
 * others there have been since. */
static void places_come_back_when_completions_were_taken(void **state)
{
	(void)state;
	static const uint32_t since[] = {1, 100, INT32_MAX, 1u << 31, UINT32_MAX - 100};
	for (size_t i = 0; i < sizeof(since) / sizeof(since[0]); i++) {
		struct wqe_recv memory[2];
		struct hdl_wc completions[4];
		struct wq wq;
		struct cq cq;
		wq_init(&wq, memory, 2, sizeof(memory[0]), 0);
		cq_init(&cq, completions, 4, false);
		for (int k = 0; k < 2; k++) {
			assert_non_null(wq_post(&wq));
			wq_posted(&wq);
		}
		for (uint32_t k = 0; k < 2; k++) {
			reclaim_note_recv(&wq, &cq);
			assert_int_equal(reclaim_recvs(&wq, &cq), 0); /* it is about to be told */
			atomic_store(&cq.tail, k + 1);
			assert_int_equal(reclaim_recvs(&wq, &cq), 0);
		}
		atomic_store(&cq.head, 1);
		assert_int_equal(reclaim_recvs(&wq, &cq), 1);
		atomic_store(&cq.tail, 2 + since[i]);
		atomic_store(&cq.head, 2 + since[i] - 1);
		assert_int_equal(reclaim_recvs(&wq, &cq), 2);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(places_come_back_when_completions_were_taken),
	        cmocka_unit_test(wq_holds_exactly_its_depth_in_order),
	        cmocka_unit_test(wq_indices_wrap_at_32_bits),
	        cmocka_unit_test(wq_move_keeps_content_and_refuses_what_does_not_fit),
	        cmocka_unit_test(cq_overrun_is_said_once_and_overwrites_nothing),
	        cmocka_unit_test(cq_arming),
	        cmocka_unit_test(cq_armed_for_any_stays_so),
	        cmocka_unit_test(cq_arming_finds_what_is_there),
	        cmocka_unit_test(cq_arming_finds_news),
	        cmocka_unit_test(cq_discard_keeps_what_is_solicited),
	        cmocka_unit_test(cq_hands_over_what_its_driver_waits_for),
	        cmocka_unit_test(cq_move_keeps_order),
	        cmocka_unit_test(cq_discard_takes_one_queue_pair_out),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
