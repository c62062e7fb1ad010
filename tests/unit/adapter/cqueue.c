/* Circular queues in an application (AP8): blocking on full and empty, the end, a connection that
 * ends, many queues on one event stream. Two ends in one adapter, over mapped blocks and over
 * stores that the adapter places, as packets would be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "adapter/cqueue/cqueue.h"

#define RING    4096u
#define SOON_MS 20000

static struct hdl_adapter *adapter;

struct side {
	struct cring_block *block;
	struct hdl_eventq *events;
	struct hdl_cqueue *queue;
	uint16_t port;
	struct side *peer;
	_Atomic bool alive;
	_Atomic uint32_t wakes, stores;
	_Atomic bool stalled; /* the carrier has no room */
	bool owes;            /* and an answer waits for that */
};

static int setup(void **state)
{
	(void)state;
	struct hdl_open_attr attr = {.max_mr = 64, .max_qp = 16};
	struct adapter_env env = {.clock = clock_real()};
	return adapter_open(&attr, &env, &adapter);
}

static int teardown(void **state)
{
	(void)state;
	return hdl_close(adapter);
}

/* With the drive lock. */
static bool side_store_locked(void *context, uint64_t offset, const void *data, uint64_t bytes)
{
	struct side *side = context;
	unsigned char *to = (unsigned char *)side->peer->block + offset;
	assert_true(bytes <= CRING_PIECE);
	if (atomic_load(&side->stalled))
		return false;
	if (bytes == 8 && offset < CRING_DATA) /* a pointer: in one piece, as an adapter does */
		atomic_store_explicit((_Atomic uint64_t *)(void *)to, *(const uint64_t *)data,
		                      memory_order_release);
	else if (bytes == 4 && offset < CRING_DATA)
		atomic_store_explicit((_Atomic uint32_t *)(void *)to, *(const uint32_t *)data,
		                      memory_order_release);
	else
		memcpy(to, data, bytes);
	atomic_fetch_add(&side->stores, 1);
	if (side->peer->queue != NULL)
		side->peer->owes = !cqueue_placed(side->peer->queue, side->peer->port, 0);
	return true;
}

static bool side_store(void *context, uint64_t offset, const void *data, uint64_t bytes)
{
	adapter_lock(adapter);
	bool stored = side_store_locked(context, offset, data, bytes);
	adapter_unlock(adapter);
	return stored;
}

static bool side_wake(void *context)
{
	struct side *side = context;
	struct hdl_port_event event = {.type = HDL_PORT_DATA};
	adapter_lock(adapter);
	enum eventq_result result = eventq_deliver(adapter, side->peer->port, &event, NULL, 0);
	adapter_unlock(adapter);
	atomic_fetch_add(&side->wakes, 1);
	return result != EVENTQ_FULL;
}

static bool side_alive(void *context)
{
	return atomic_load(&((struct side *)context)->alive);
}

static void pair_open(struct side sides[2], bool mapped, uint16_t port, struct hdl_eventset *set)
{
	for (int i = 0; i < 2; i++) {
		sides[i] = (struct side){.port = (uint16_t)(port + i), .peer = &sides[!i]};
		atomic_store(&sides[i].alive, true);
		sides[i].block = aligned_alloc(64, hdl_cqueue_length(RING));
		memset(sides[i].block, 0, hdl_cqueue_length(RING));
		struct hdl_eventq_attr attr = {.set = set, .context = &sides[i]};
		assert_int_equal(eventq_open(adapter, sides[i].port, &attr, &sides[i].events), 0);
	}
	for (int i = 0; i < 2; i++) {
		struct cqueue_carrier carrier = {.store = side_store,
		                                 .store_locked = side_store_locked,
		                                 .wake = side_wake,
		                                 .alive = side_alive,
		                                 .context = &sides[i]};
		assert_int_equal(cqueue_open(adapter, sides[i].block, RING,
		                             mapped ? sides[!i].block : NULL, &carrier,
		                             sides[i].events, &sides[i].queue),
		                 0);
	}
}

static void pair_close(struct side sides[2])
{
	for (int i = 0; i < 2; i++) {
		assert_int_equal(hdl_cqueue_close(sides[i].queue), 0);
		assert_int_equal(hdl_eventq_close(sides[i].events), 0);
		free(sides[i].block);
	}
}

static void lengths_and_arguments(void **state)
{
	(void)state;
	char byte;
	assert_int_equal(hdl_cqueue_length(1), 1024 + 256);
	assert_int_equal(hdl_cqueue_length(1025), 2048 + 256);
	assert_int_equal(hdl_cqueue_length(HDL_CQUEUE_MAX_BYTES + 1), 0);
	assert_int_equal(hdl_cqueue_write(NULL, "", 1, 0), -HDL_EINVAL);
	assert_int_equal(hdl_cqueue_read(NULL, &byte, 1, 0), -HDL_EINVAL);
	assert_int_equal(hdl_cqueue_close(NULL), -HDL_EINVAL);
}

static void ap8_full_empty_and_the_end(void **state)
{
	(void)state;
	for (int mapped = 0; mapped < 2; mapped++) {
		struct side sides[2];
		char data[RING + 100], got[RING + 100];
		memset(data, 'd', sizeof(data));
		pair_open(sides, mapped != 0, 100, NULL);
		assert_int_equal(hdl_cqueue_read(sides[1].queue, got, 10, 0), -HDL_EAGAIN);
		assert_int_equal(hdl_cqueue_read(sides[1].queue, got, 10, 5), -HDL_EAGAIN);
		assert_int_equal(hdl_cqueue_write(sides[0].queue, data, sizeof(data), 0), RING);
		assert_int_equal(hdl_cqueue_write(sides[0].queue, data, 1, 0), -HDL_EAGAIN);
		assert_int_equal(hdl_cqueue_write(sides[0].queue, data, 1, 5), -HDL_EAGAIN);
		assert_int_equal(hdl_cqueue_end(sides[0].queue, 0), 0);
		assert_int_equal(hdl_cqueue_write(sides[0].queue, data, 1, 0), -HDL_EPERM);
		assert_int_equal(hdl_cqueue_read(sides[1].queue, got, sizeof(got), 0), RING);
		assert_memory_equal(got, data, RING);
		assert_int_equal(hdl_cqueue_read(sides[1].queue, got, 1, SOON_MS), 0);
		assert_int_equal(hdl_cqueue_read(sides[1].queue, got, 1, SOON_MS), 0);
		/* The other direction goes on. */
		assert_int_equal(hdl_cqueue_write(sides[1].queue, "back", 4, 0), 4);
		assert_int_equal(hdl_cqueue_read(sides[0].queue, got, 10, SOON_MS), 4);
		pair_close(sides);
	}
}

/* The reader has read less than what it tells of in one go, and makes no further call. */
static void ap8_any_byte_that_was_read_is_room(void **state)
{
	(void)state;
	for (int mapped = 0; mapped < 2; mapped++) {
		struct side sides[2];
		char data[RING], got[RING];
		memset(data, 'd', sizeof(data));
		pair_open(sides, mapped != 0, 100, NULL);
		assert_int_equal(hdl_cqueue_write(sides[0].queue, data, RING, 0), RING);
		assert_int_equal(hdl_cqueue_read(sides[1].queue, got, 1, 0), 1);
		assert_int_equal(hdl_cqueue_write(sides[0].queue, data, RING, SOON_MS), 1);
		/* A writer that does not wait finds it as well, if not always at once. */
		assert_int_equal(hdl_cqueue_read(sides[1].queue, got, 999, 0), 999);
		int64_t wrote = -HDL_EAGAIN;
		for (uint32_t i = 0; i < 10000 && wrote == -HDL_EAGAIN; i++)
			wrote = hdl_cqueue_write(sides[0].queue, data, RING, 0);
		assert_int_equal(wrote, 999);
		pair_close(sides);
	}
}

/* The same where the reader reads while the writer sleeps, or waits for an event. */
static void *read_ten_later(void *context)
{
	struct side *side = context;
	char got[10];
	while (atomic_load(&side->block->in.room_copy) == 0)
		sched_yield(); /* the writer is about to sleep */
	return hdl_cqueue_read(side->queue, got, 10, 0) == 10 ? NULL : (void *)1;
}

static void ap8_a_writer_that_sleeps_is_woken_for_any_room(void **state)
{
	(void)state;
	for (int mapped = 0; mapped < 2; mapped++) {
		struct side sides[2];
		struct hdl_port_event event;
		char data[RING] = {0};
		pthread_t thread;
		void *result;
		pair_open(sides, mapped != 0, 100, NULL);
		assert_int_equal(hdl_cqueue_write(sides[0].queue, data, RING, 0), RING);
		assert_int_equal(pthread_create(&thread, NULL, read_ten_later, &sides[1]), 0);
		assert_int_equal(hdl_cqueue_write(sides[0].queue, data, RING, SOON_MS), 10);
		pthread_join(thread, &result);
		assert_null(result);
		while (hdl_eventq_take(sides[0].events, &event, 1) == 1)
			;
		assert_int_equal(hdl_cqueue_arm(sides[0].queue, false, true), 0);
		assert_int_equal(hdl_cqueue_read(sides[1].queue, data, 10, 0), 10);
		assert_int_equal(hdl_eventq_wait(sides[0].events, SOON_MS), 0);
		assert_int_equal(hdl_cqueue_write(sides[0].queue, data, RING, 0), 10);
		pair_close(sides);
	}
}

static void a_connection_that_ends(void **state)
{
	(void)state;
	struct side sides[2];
	char got[8];
	pair_open(sides, true, 100, NULL);
	assert_int_equal(hdl_cqueue_write(sides[0].queue, "rest", 4, 0), 4);
	atomic_store(&sides[1].alive, false);
	assert_int_equal(hdl_cqueue_read(sides[1].queue, got, 8, -1), 4);
	assert_int_equal(hdl_cqueue_read(sides[1].queue, got, 8, -1), -HDL_EPERM);
	assert_int_equal(hdl_cqueue_write(sides[1].queue, got, 8, -1), -HDL_EPERM);
	assert_int_equal(hdl_cqueue_end(sides[1].queue, -1), -HDL_EPERM);
	pair_close(sides);
}

static void a_carrier_without_room_is_tried_again(void **state)
{
	(void)state;
	struct side sides[2];
	char got[8];
	pair_open(sides, false, 100, NULL);
	atomic_store(&sides[0].stalled, true);
	assert_int_equal(hdl_cqueue_write(sides[0].queue, "kept", 4, 20), -HDL_EAGAIN);
	atomic_store(&sides[0].stalled, false);
	assert_int_equal(hdl_cqueue_write(sides[0].queue, "kept", 4, 20), 4);
	assert_int_equal(hdl_cqueue_read(sides[1].queue, got, 8, SOON_MS), 4);
	/* Neither is an answer lost: the reader's adapter is told to try again. */
	char data[RING] = {0};
	assert_int_equal(hdl_cqueue_write(sides[0].queue, data, RING, 0), RING - 4);
	assert_int_equal(hdl_cqueue_read(sides[1].queue, got, 8, SOON_MS), 8);
	atomic_store(&sides[1].stalled, true);
	assert_int_equal(hdl_cqueue_write(sides[0].queue, data, RING, 0), -HDL_EAGAIN);
	assert_true(sides[1].owes);
	atomic_store(&sides[1].stalled, false);
	adapter_lock(adapter);
	assert_true(cqueue_placed(sides[1].queue, sides[1].port, 0));
	adapter_unlock(adapter);
	assert_int_equal(hdl_cqueue_write(sides[0].queue, data, RING, 0), 4 + 8);
	pair_close(sides);
}

/* Both directions at once, two threads at each end, queues that are always full or empty. */
#define STREAM (1u << 20)

static unsigned char stream_byte(uint32_t at, uint32_t way)
{
	return (unsigned char)(at * 37 >> 4 ^ way);
}

static void *stream_in(void *context)
{
	struct side *side = context;
	unsigned char data[1500];
	for (uint32_t sent = 0; sent < STREAM;) {
		uint32_t want = STREAM - sent < 1500 ? STREAM - sent : 1500;
		for (uint32_t i = 0; i < want; i++)
			data[i] = stream_byte(sent + i, side->port & 1);
		int64_t wrote = hdl_cqueue_write(side->queue, data, want, SOON_MS);
		if (wrote <= 0)
			return (void *)1;
		sent += (uint32_t)wrote;
	}
	return hdl_cqueue_end(side->queue, SOON_MS) == 0 ? NULL : (void *)2;
}

static void *stream_out(void *context)
{
	struct side *side = context;
	unsigned char data[1100];
	uint32_t got = 0;
	int64_t bytes;
	while ((bytes = hdl_cqueue_read(side->queue, data, sizeof(data), SOON_MS)) > 0) {
		for (int64_t i = 0; i < bytes; i++)
			if (data[i] != stream_byte(got + (uint32_t)i, side->peer->port & 1))
				return (void *)3;
		got += (uint32_t)bytes;
	}
	return bytes == 0 && got == STREAM ? NULL : (void *)4;
}

static void ap8_streams_both_ways(void **state)
{
	(void)state;
	for (int mapped = 0; mapped < 2; mapped++) {
		struct side sides[2];
		pthread_t threads[4];
		pair_open(sides, mapped != 0, 100, NULL);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(
			        pthread_create(&threads[2 * i], NULL, stream_in, &sides[i]), 0);
			assert_int_equal(
			        pthread_create(&threads[2 * i + 1], NULL, stream_out, &sides[i]),
			        0);
		}
		for (int i = 0; i < 4; i++) {
			void *result;
			pthread_join(threads[i], &result);
			assert_int_equal((uintptr_t)result, 0);
		}
		pair_close(sides);
	}
}

/* Many queues, one event stream: the set names those that have something. */
static void ap8_many_queues_on_one_event_stream(void **state)
{
	(void)state;
	enum { QUEUES = 200 };
	static struct side sides[QUEUES][2];
	struct hdl_eventset *set;
	struct hdl_eventq *ready[8];
	struct hdl_port_event events[8];
	char got[16];
	assert_int_equal(hdl_eventset_create(adapter, &set), 0);
	for (uint32_t i = 0; i < QUEUES; i++) {
		pair_open(sides[i], i % 2 == 0, (uint16_t)(1000 + 2 * i), set);
		assert_int_equal(hdl_cqueue_arm(sides[i][1].queue, true, false), 0);
	}
	for (uint32_t i = 0; i < 1000; i++) {
		struct side *pair = sides[i * 7 % QUEUES];
		assert_int_equal(hdl_cqueue_write(pair[0].queue, &i, 4, 0), 4);
		assert_int_equal(hdl_cqueue_write(pair[0].queue, &i, 4, 0), 4);
		assert_int_equal(hdl_eventset_wait(set, ready, 8, SOON_MS), 1);
		assert_ptr_equal(ready[0], pair[1].events);
		assert_int_equal(hdl_eventq_take(ready[0], events, 8), 1); /* one per arming */
		assert_int_equal(hdl_cqueue_arm(pair[1].queue, true, false), -HDL_EAGAIN);
		assert_int_equal(hdl_cqueue_read(pair[1].queue, got, 16, 0), 8);
		assert_memory_equal(got, &i, 4);
		while (hdl_eventq_take(ready[0], events, 8) > 0)
			;
		assert_int_equal(hdl_cqueue_arm(pair[1].queue, true, false), 0);
	}
	for (uint32_t i = 0; i < QUEUES; i++)
		pair_close(sides[i]);
	assert_int_equal(hdl_eventset_destroy(set), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(lengths_and_arguments),
	        cmocka_unit_test(ap8_full_empty_and_the_end),
	        cmocka_unit_test(ap8_any_byte_that_was_read_is_room),
	        cmocka_unit_test(ap8_a_writer_that_sleeps_is_woken_for_any_room),
	        cmocka_unit_test(a_connection_that_ends),
	        cmocka_unit_test(a_carrier_without_room_is_tried_again),
	        cmocka_unit_test(ap8_streams_both_ways),
	        cmocka_unit_test(ap8_many_queues_on_one_event_stream),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
