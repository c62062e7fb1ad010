/* Descriptors that a careless or hostile program writes (PP1): each is refused at the doorbell, or
 * has no effect beyond its own virtual interface. And the limits of vi.h. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "side.h"

#define BOTH (HDL_VI_ACKNOWLEDGED | HDL_VI_CONNECTED)

static struct side side;

struct pair {
	struct hdl_vi_listener *listener;
	struct hdl_vi *near, *far;
};

static void *accept_far(void *context)
{
	struct pair *pair = context;
	MUST(hdl_vi_accept(pair->listener, pair->far, SIDE_WAIT_MS));
	return NULL;
}

/* Two virtual interfaces of this process, connected to each other. */
static void pair_open(struct pair *pair)
{
	pthread_t thread;
	MUST(hdl_vi_listen(side.adapter, "hostile", NULL, &pair->listener));
	pair->near = side_vi(&side, BOTH);
	pair->far = side_vi(&side, BOTH);
	MUST(-pthread_create(&thread, NULL, accept_far, pair));
	MUST(hdl_vi_connect(pair->near, &side.gid, "hostile", SIDE_WAIT_MS));
	pthread_join(thread, NULL);
	MUST(hdl_vi_unlisten(pair->listener));
}

static void pair_close(struct pair *pair)
{
	MUST(hdl_vi_destroy(pair->near));
	MUST(hdl_vi_destroy(pair->far));
}

static int post(struct hdl_vi *vi, uint32_t queue, const void *descriptor)
{
	return hdl_vi_post(vi, queue, descriptor, side.handle);
}

/* --- what the doorbell refuses --- */

static void vi_malformed_descriptors(void **state)
{
	static const struct {
		const char *what;
		uint32_t at, value, bytes; /* of the descriptor: what is changed */
		uint32_t queue;
		int result;
	} rows[] = {
	        {"too many segments", 12, HDL_VI_MAX_SEGMENTS + 1, 2, 0, -HDL_EMSGSIZE},
	        {"65,535 segments", 12, 0xffff, 2, 0, -HDL_EMSGSIZE},
	        {"fewer segments than an RDMA has", 12, 0, 2, 0, -HDL_EINVAL},
	        {"reserved operation", 14, 3, 2, 0, -HDL_EINVAL},
	        {"reserved bits of control", 14, 0x11, 2, 0, -HDL_EINVAL},
	        {"read with immediate data", 14, 6, 2, 0, -HDL_EINVAL},
	        {"reserved field", 16, 1, 4, 0, -HDL_EINVAL},
	        {"length above the sum", 24, 65, 4, 0, -HDL_EINVAL},
	        {"length below the sum", 24, 63, 4, 0, -HDL_EINVAL},
	        {"status", 28, 1, 4, 0, -HDL_EINVAL},
	        {"reserved field of the address segment", 44, 1, 4, 0, -HDL_EINVAL},
	        {"RDMA in the receive queue", 14, 1, 2, 1, -HDL_EINVAL},
	        {"flags in the receive queue", 14, 4, 2, 1, -HDL_EINVAL},
	        {"a queue that there is not", 14, 1, 2, 2, -HDL_EINVAL},
	};
	struct pair pair;
	(void)state;
	pair_open(&pair);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct hdl_vi_descriptor *descriptor =
		        side_fill_rdma(&side, 0, HDL_VI_RDMA_WRITE, 0, 64,
		                       (uint64_t)(uintptr_t)side.data + 4096, side.handle);
		memcpy((char *)descriptor + rows[i].at, &rows[i].value, rows[i].bytes);
		struct hdl_vi_descriptor before = *descriptor;
		int result = post(pair.near, rows[i].queue, descriptor);
		if (result != rows[i].result)
			fail_msg("%s: %d", rows[i].what, result);
		assert_memory_equal(&before, descriptor, sizeof(before));
	}
	/* The connection is as it was. */
	struct hdl_vi_descriptor *good =
	        side_fill_rdma(&side, 0, HDL_VI_RDMA_WRITE, 0, 64,
	                       (uint64_t)(uintptr_t)side.data + 4096, side.handle);
	side_post(&side, pair.near, HDL_VI_SEND_QUEUE, good);
	assert_int_equal(side_wait(pair.near, HDL_VI_SEND_QUEUE, good),
	                 HDL_VI_DONE | HDL_VI_DONE_RDMA_WRITE);
	pair_close(&pair);
}

static void vi_handles_of_descriptors(void **state)
{
	(void)state;
	struct hdl_vi *vi = side_vi(&side, BOTH);
	struct hdl_pd *other_pd;
	struct hdl_mr *mr, *other, *short_one, *read_only;
	const uint32_t rw = HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE;
	void *memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct hdl_vi_descriptor *descriptor = memory;
	assert_true(memory != MAP_FAILED);
	MUST(hdl_pd_create(side.adapter, &other_pd));
	MUST(hdl_mr_register(side.pd, memory, 4096, rw, &mr));
	MUST(hdl_mr_register(other_pd, memory, 4096, rw, &other));
	MUST(hdl_mr_register(side.pd, memory, 63, rw, &short_one));
	MUST(hdl_mr_register(side.pd, memory, 4096, HDL_ACCESS_LOCAL_READ, &read_only));
	descriptor->control.segments = 2;
	struct hdl_key stale = hdl_mr_key(mr);
	const struct {
		uint64_t addr;
		struct hdl_key handle;
		int result;
	} rows[] = {
	        {(uint64_t)(uintptr_t)memory, hdl_mr_key(mr), 0},
	        {(uint64_t)(uintptr_t)memory, {0}, -HDL_EACCES},
	        {(uint64_t)(uintptr_t)memory, {stale.v ^ 1}, -HDL_EACCES},
	        {(uint64_t)(uintptr_t)memory, {~0u}, -HDL_EACCES},
	        {(uint64_t)(uintptr_t)memory, hdl_mr_key(other), -HDL_EACCES},
	        {(uint64_t)(uintptr_t)memory, hdl_mr_key(read_only), -HDL_EACCES},
	        {(uint64_t)(uintptr_t)memory, hdl_mr_key(short_one), -HDL_EACCES},
	        {(uint64_t)(uintptr_t)memory + 8, hdl_mr_key(mr), -HDL_EINVAL},
	        {(uint64_t)(uintptr_t)memory - 64, hdl_mr_key(mr), -HDL_EACCES},
	        {(uint64_t)(uintptr_t)memory + 4096, hdl_mr_key(mr), -HDL_EACCES},
	        {0, hdl_mr_key(mr), -HDL_EACCES},
	        {UINT64_MAX - 63, hdl_mr_key(mr), -HDL_EACCES}, /* its end wraps */
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int result = hdl_vi_post(vi, HDL_VI_RECEIVE_QUEUE,
		                         (const void *)(uintptr_t)rows[i].addr, rows[i].handle);
		if (result != rows[i].result)
			fail_msg("row %zu: %d", i, result);
	}
	/* One that ends behind the region: its control segment alone is inside. */
	struct hdl_vi_descriptor *last = (void *)((char *)memory + 4096 - 64);
	last->control.segments = 3;
	assert_int_equal(hdl_vi_post(vi, HDL_VI_RECEIVE_QUEUE, last, hdl_mr_key(mr)), -HDL_EACCES);
	MUST(hdl_vi_destroy(vi)); /* the first one is still posted */
	MUST(hdl_mr_deregister(mr));
	vi = side_vi(&side, BOTH);
	assert_int_equal(hdl_vi_post(vi, HDL_VI_RECEIVE_QUEUE, memory, stale), -HDL_EACCES);
	/* Memory that is gone: no crash. */
	MUST(hdl_mr_register(side.pd, memory, 4096, rw, &mr));
	/* (Another thread might get the address if it were unmapped.) */
	assert_true(mmap(memory, 8192, PROT_NONE,
	                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == memory);
	assert_int_equal(hdl_vi_post(vi, HDL_VI_RECEIVE_QUEUE, memory, hdl_mr_key(mr)),
	                 -HDL_EACCES);
	munmap(memory, 8192);
	MUST(hdl_vi_destroy(vi));
	MUST(hdl_mr_deregister(mr));
	MUST(hdl_mr_deregister(other));
	MUST(hdl_mr_deregister(short_one));
	MUST(hdl_mr_deregister(read_only));
	MUST(hdl_pd_destroy(other_pd));
}

/* --- changed after the doorbell --- */

static void vi_changed_after_the_doorbell(void **state)
{
	struct pair pair;
	(void)state;
	pair_open(&pair);
	memset(side.data, 0, 4096);
	struct hdl_vi_descriptor *receive = side_fill(&side, 0, HDL_VI_SENDRECV, 0, 64);
	struct hdl_vi_descriptor *send = side_fill(&side, 1, HDL_VI_SENDRECV, 1024, 64);
	memset(side.data + 1024, 0x5a, 64);
	side_post(&side, pair.far, HDL_VI_RECEIVE_QUEUE, receive);
	/* Elsewhere, longer, more: none of it counts any more. */
	receive->segment[0].data.addr += 2048;
	receive->segment[0].data.length = 1u << 20;
	receive->control.segments = 0xffff;
	receive->control.control = 3;
	side_post(&side, pair.near, HDL_VI_SEND_QUEUE, send);
	send->segment[0].data.addr = UINT64_MAX;
	send->segment[0].data.handle.v = 0;
	assert_int_equal(side_wait(pair.far, HDL_VI_RECEIVE_QUEUE, receive),
	                 HDL_VI_DONE | HDL_VI_DONE_RECEIVE);
	assert_int_equal(receive->control.length, 64);
	assert_int_equal(side_wait(pair.near, HDL_VI_SEND_QUEUE, send), HDL_VI_DONE);
	for (int i = 0; i < 64; i++)
		assert_int_equal(side.data[i], 0x5a);
	assert_int_equal(side.data[64], 0);
	assert_int_equal(side.data[2048], 0);
	pair_close(&pair);
}

/* Data segments are judged when they are used. */
static void vi_data_segments(void **state)
{
	static const struct {
		uint64_t add;
		uint32_t flip; /* bits of the handle */
		uint32_t length;
	} rows[] = {{0, 1, 64}, {0, 0xffffffff, 64}, {1ull << 63, 0, 64}, {SIDE_BYTES - 63, 0, 64}};
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct pair pair;
		pair_open(&pair);
		struct hdl_vi_descriptor *receive = side_fill(&side, 0, HDL_VI_SENDRECV, 0, 64);
		struct hdl_vi_descriptor *send = side_fill(&side, 1, HDL_VI_SENDRECV, 0, 64);
		side_post(&side, pair.far, HDL_VI_RECEIVE_QUEUE, receive);
		send->segment[0].data.addr = (uint64_t)(uintptr_t)side.data + rows[i].add;
		send->segment[0].data.handle.v ^= rows[i].flip;
		side_post(&side, pair.near, HDL_VI_SEND_QUEUE, send);
		assert_int_equal(side_wait(pair.near, HDL_VI_SEND_QUEUE, send),
		                 HDL_VI_DONE | HDL_VI_PROTECTION_ERROR);
		pair_close(&pair);
	}
}

/* --- revoked before it is done --- */

static void vi_revoked_before_done(void **state)
{
	struct pair pair;
	struct hdl_mr *mr;
	struct hdl_event event;
	const uint32_t rw = HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE;
	struct hdl_vi_descriptor *own = aligned_alloc(64, 4096);
	(void)state;
	memset(own, 0, 4096);
	MUST(hdl_mr_register(side.pd, own, 4096, rw, &mr));
	pair_open(&pair);
	own->control.segments = 1;
	own->segment[0].data.addr = (uint64_t)(uintptr_t)side.data;
	own->segment[0].data.handle = side.handle;
	own->segment[0].data.length = 64;
	MUST(hdl_vi_post(pair.far, HDL_VI_RECEIVE_QUEUE, own, hdl_mr_key(mr)));
	struct hdl_vi_descriptor before = *own;
	MUST(hdl_mr_deregister(mr));
	struct hdl_vi_descriptor *send = side_fill(&side, 1, HDL_VI_SENDRECV, 1024, 64);
	side_post(&side, pair.near, HDL_VI_SEND_QUEUE, send);
	side_wait(pair.near, HDL_VI_SEND_QUEUE, send);
	/* Nothing was written to memory that is not ours any more, and the owner learns of it. */
	void *done;
	MUST(hdl_vi_wait(pair.far, HDL_VI_RECEIVE_QUEUE, SIDE_WAIT_MS, &done));
	assert_ptr_equal(done, own);
	assert_memory_equal(&before, own, sizeof(before));
	uint32_t now;
	MUST(hdl_vi_query(pair.far, &now));
	assert_int_equal(now, HDL_VI_ERROR);
	do
		MUST(hdl_event_get(side.adapter, &event, SIDE_WAIT_MS));
	while (event.type != HDL_EVENT_QP_ACCESS_ERR);
	pair_close(&pair);
	free(own);
}

/* --- limits --- */

static void vi_limits(void **state)
{
	static const struct {
		uint32_t channel, access, sends, receives, segments;
		int result;
	} rows[] = {
	        {BOTH, 0, 1, 1, 1, 0},
	        {BOTH, 0, HDL_MAX_QP_WR, HDL_MAX_QP_WR, 1, 0},
	        {BOTH, 0, 1, 1, HDL_MAX_SGE, 0},
	        {0, 0, 1, 1, HDL_MAX_SGE - 1, 0},
	        {BOTH, 0, 0, 1, 1, -HDL_EINVAL},
	        {BOTH, 0, 1, 0, 1, -HDL_EINVAL},
	        {BOTH, 0, 1, 1, 0, -HDL_EINVAL},
	        {BOTH, 0, HDL_MAX_QP_WR + 1, 1, 1, -HDL_EINVAL},
	        {BOTH, 0, 1, HDL_MAX_QP_WR + 1, 1, -HDL_EINVAL},
	        {BOTH, 0, 1, 1, HDL_MAX_SGE + 1, -HDL_EINVAL},
	        {0, 0, 1, 1, HDL_MAX_SGE, -HDL_EINVAL},
	        {4, 0, 1, 1, 1, -HDL_EINVAL},
	        {BOTH, HDL_ACCESS_REMOTE_ATOMIC, 1, 1, 1, -HDL_EINVAL},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct hdl_vi_attr attr = {.channel = rows[i].channel,
		                           .access = rows[i].access,
		                           .max_send = rows[i].sends,
		                           .max_receive = rows[i].receives,
		                           .max_segments = rows[i].segments};
		struct hdl_vi *vi;
		int result = hdl_vi_create(side.pd, &attr, &vi);
		if (result != rows[i].result)
			fail_msg("row %zu: %d", i, result);
		if (result == 0)
			MUST(hdl_vi_destroy(vi));
	}
}

static void vi_full_queues(void **state)
{
	struct pair pair;
	(void)state;
	pair_open(&pair);
	for (uint32_t i = 0; i < 64; i++)
		side_post(&side, pair.far, HDL_VI_RECEIVE_QUEUE,
		          side_fill(&side, i, HDL_VI_SENDRECV, 0, 8));
	assert_int_equal(
	        post(pair.far, HDL_VI_RECEIVE_QUEUE, side_fill(&side, 64, HDL_VI_SENDRECV, 0, 8)),
	        -HDL_ENOSPC);
	for (uint32_t i = 0; i < 64; i++)
		side_post(&side, pair.near, HDL_VI_SEND_QUEUE,
		          side_fill(&side, 100 + i, HDL_VI_SENDRECV, 4096, 8));
	/* A place becomes free only when its descriptor is taken, however long it is done. */
	side_wait(pair.near, HDL_VI_SEND_QUEUE, &side.descriptors[100]);
	side_post(&side, pair.near, HDL_VI_SEND_QUEUE,
	          side_fill(&side, 164, HDL_VI_SENDRECV, 4096, 0));
	for (uint32_t i = 0; i < 64; i++) {
		assert_int_equal(side_wait(pair.far, HDL_VI_RECEIVE_QUEUE, &side.descriptors[i]),
		                 HDL_VI_DONE | HDL_VI_DONE_RECEIVE);
		side_post(&side, pair.far, HDL_VI_RECEIVE_QUEUE,
		          side_fill(&side, 200 + i, HDL_VI_SENDRECV, 0, 8));
	}
	for (uint32_t i = 101; i < 165; i++)
		assert_int_equal(side_wait(pair.near, HDL_VI_SEND_QUEUE, &side.descriptors[i]),
		                 HDL_VI_DONE);
	/* As many segments as it was made for, and one more. */
	struct hdl_vi_descriptor *many = side_fill(&side, 300, HDL_VI_SENDRECV, 0, 8);
	for (uint32_t i = 0; i < 5; i++)
		many->segment[i] = many->segment[0]; /* reaches into the next descriptor */
	many->control.segments = 5;
	many->control.length = 40;
	assert_int_equal(post(pair.near, HDL_VI_SEND_QUEUE, many), -HDL_EMSGSIZE);
	many->control.segments = 4;
	many->control.length = 32;
	side_post(&side, pair.near, HDL_VI_SEND_QUEUE, many);
	assert_int_equal(side_wait(pair.near, HDL_VI_SEND_QUEUE, many),
	                 HDL_VI_DONE | HDL_VI_REMOTE_DESC_ERROR); /* 32 bytes, into 8 */
	pair_close(&pair);
}

static void vi_knows_so_many(void **state)
{
	struct hdl_vi_listener *listener;
	struct hdl_vi *server = side_vi(&side, 0);
	struct hdl_vi_destination to;
	int result = 0;
	uint32_t known = 0;
	(void)state;
	MUST(hdl_vi_listen(side.adapter, "popular", server, &listener));
	for (; result == 0 && known <= HDL_VI_MAX_PEERS; known += result == 0) {
		struct hdl_vi *vi = side_vi(&side, 0);
		result = hdl_vi_resolve(vi, &side.gid, "popular", SIDE_WAIT_MS, &to);
		MUST(hdl_vi_destroy(vi));
	}
	assert_int_equal(result, -HDL_ECONNREFUSED);
	assert_int_equal(known, HDL_VI_MAX_PEERS);
	MUST(hdl_vi_unlisten(listener));
	MUST(hdl_vi_destroy(server));
}

#define ASKERS (HDL_VI_BACKLOG + 8)

/* Asks, and is refused at once or when the name is given up. */
static void *ask(void *context)
{
	struct hdl_vi *vi = side_vi(&side, BOTH);
	atomic_store((atomic_int *)context, hdl_vi_connect(vi, &side.gid, "busy", 5000));
	MUST(hdl_vi_destroy(vi));
	return NULL;
}

/* How many of @results, which end up as such, are refusals by now? */
static uint32_t refusals(atomic_int *results)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < ASKERS; i++)
		count += atomic_load(&results[i]) == -HDL_ECONNREFUSED;
	return count;
}

static void vi_backlog(void **state)
{
	struct hdl_vi_listener *listener;
	struct hdl_vi *last = side_vi(&side, BOTH);
	pthread_t threads[ASKERS];
	atomic_int results[ASKERS];
	int result = -HDL_ETIMEDOUT, connected = 0;
	(void)state;
	MUST(hdl_vi_listen(side.adapter, "busy", NULL, &listener));
	for (uint32_t i = 0; i < ASKERS; i++) {
		atomic_init(&results[i], 0);
		MUST(-pthread_create(&threads[i], NULL, ask, &results[i]));
	}
	/* Not before all places are taken: one that asked earlier would hold the place that another
	 * is refused for. */
	for (int tries = 0; tries < 4000 && refusals(results) < ASKERS - HDL_VI_BACKLOG; tries++)
		usleep(1000);
	for (int tries = 0; tries < 1000 && result == -HDL_ETIMEDOUT; tries++)
		result = hdl_vi_connect(last, &side.gid, "busy", 10);
	assert_int_equal(result, -HDL_ECONNREFUSED);
	/* Whoever waits is served in turn, as often as there is room to wait. */
	for (int tries = 0; connected == 0 || tries < (int)HDL_VI_BACKLOG / 2; tries++) {
		struct hdl_vi *vi = side_vi(&side, BOTH);
		connected += hdl_vi_accept(listener, vi, 1000) == 0;
		MUST(hdl_vi_destroy(vi));
		assert_true(tries < 1000);
	}
	MUST(hdl_vi_unlisten(listener));
	for (uint32_t i = 0; i < ASKERS; i++) {
		pthread_join(threads[i], NULL);
		connected -= results[i] == 0;
	}
	assert_int_equal(connected, 0);
	MUST(hdl_vi_destroy(last));
}

static int open_side(void **state)
{
	(void)state;
	side_open(&side);
	return 0;
}

static int close_side(void **state)
{
	(void)state;
	side_close(&side);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(vi_malformed_descriptors),
	        cmocka_unit_test(vi_handles_of_descriptors),
	        cmocka_unit_test(vi_changed_after_the_doorbell),
	        cmocka_unit_test(vi_data_segments),
	        cmocka_unit_test(vi_revoked_before_done),
	        cmocka_unit_test(vi_limits),
	        cmocka_unit_test(vi_full_queues),
	        cmocka_unit_test(vi_knows_so_many),
	        cmocka_unit_test(vi_backlog),
	};
	return cmocka_run_group_tests(tests, open_side, close_side);
}
