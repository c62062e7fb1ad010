/* IP1: what 64 KiB cost on a TCP connection: one call at each side, and no copy of ours where they
 * arrive. Both ends are driven by this thread, so that the numbers are exact. And a buffer that
 * disappears while it is sent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <heddle/heddle.h>

#include "adapter/adapter.h"
#include "adapter/net/tcp_port.h"

#define TURNS     1000000u
#define LONG      65536u
#define BURST     4u
#define BURSTS    16u
#define BYTES     (BURST * LONG)
#define BIG_BYTES (16u << 20) /* more than the buffers of a connection hold */

static const struct hdl_gid loopback = {.raw = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};

struct end {
	struct hdl_adapter *adapter;
	struct hdl_pd *pd;
	struct hdl_cq *cq;
	struct hdl_mr *mr;
	struct hdl_qp *qp;
	struct hdl_conn *conn;
	uint8_t *memory;
};

static struct end ends[2];

static void copies_open(struct end *e)
{
	const struct hdl_open_attr attr = {.max_mr = 16, .max_qp = 16, .no_thread = true};
	struct hdl_qp_init_attr init = {.type = HDL_QP_RC, .cap = {64, 64, 2, 2, 0}};
	const struct hdl_qp_attr ready = {.state = HDL_QPS_INIT,
	                                  .port_num = 1,
	                                  .access =
	                                          HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE};
	*e = (struct end){.memory = malloc(BYTES)};
	assert_non_null(e->memory);
	assert_int_equal(hdl_open(&attr, &e->adapter), 0);
	assert_int_equal(hdl_pd_create(e->adapter, &e->pd), 0);
	assert_int_equal(hdl_cq_create(e->adapter, 256, NULL, NULL, &e->cq), 0);
	init.send_cq = init.recv_cq = e->cq;
	assert_int_equal(hdl_qp_create(e->pd, &init, &e->qp), 0);
	assert_int_equal(
	        hdl_qp_modify(e->qp, &ready,
	                      HDL_QP_STATE | HDL_QP_PKEY_INDEX | HDL_QP_PORT | HDL_QP_ACCESS),
	        0);
	assert_int_equal(hdl_mr_register(e->pd, e->memory, BYTES,
	                                 HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE |
	                                         HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE,
	                                 &e->mr),
	                 0);
}

static void copies_close(struct end *e)
{
	assert_int_equal(hdl_conn_destroy(e->conn), 0);
	assert_int_equal(hdl_qp_destroy(e->qp), 0);
	assert_int_equal(hdl_mr_deregister(e->mr), 0);
	assert_int_equal(hdl_cq_destroy(e->cq), 0);
	assert_int_equal(hdl_pd_destroy(e->pd), 0);
	assert_int_equal(hdl_close(e->adapter), 0);
	free(e->memory);
}

static struct hdl_conn_event copies_event(unsigned which, enum hdl_conn_event_type type)
{
	struct hdl_conn_event event;
	int result = -HDL_EAGAIN;
	for (unsigned i = 0; i < TURNS && result != 0; i++) {
		hdl_progress(ends[!which].adapter);
		hdl_progress(ends[which].adapter);
		result = hdl_conn_event_get(ends[which].adapter, &event, 0);
	}
	assert_int_equal(result, 0);
	assert_int_equal(event.type, type);
	return event;
}

static int copies_setup(void **state)
{
	const struct hdl_conn_param param = {.ird = 8, .ord = 8};
	struct hdl_listener *listener;
	uint16_t port = 0;
	(void)state;
	for (unsigned i = 0; i < 2; i++)
		copies_open(&ends[i]);
	assert_int_equal(hdl_listener_bind(ends[1].adapter, &loopback, &port, NULL, &listener), 0);
	assert_int_equal(hdl_listener_listen(listener, 4), 0);
	assert_int_equal(hdl_conn_connect(ends[0].qp, NULL, NULL, &loopback, port, &param, NULL,
	                                  &ends[0].conn),
	                 0);
	ends[1].conn = copies_event(1, HDL_CONN_REQUEST).conn;
	assert_int_equal(hdl_conn_accept(ends[1].conn, ends[1].qp, &param, NULL), 0);
	copies_event(0, HDL_CONN_ESTABLISHED);
	copies_event(1, HDL_CONN_ESTABLISHED);
	assert_int_equal(hdl_listener_close(listener), 0);
	return 0;
}

static int copies_teardown(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++)
		copies_close(&ends[i]);
	return 0;
}

/* A list of @count requests of @bytes each, the last of which is told. */
static void post_list(uint32_t opcode, uint32_t count, uint32_t bytes)
{
	struct hdl_sge pieces[BURST];
	struct hdl_send_wr list[BURST];
	for (uint32_t i = 0; i < count; i++) {
		pieces[i] = (struct hdl_sge){(uint64_t)(uintptr_t)ends[0].memory + i * bytes, bytes,
		                             hdl_mr_key(ends[0].mr)};
		list[i] = (struct hdl_send_wr){
		        .next = i + 1 < count ? &list[i + 1] : NULL,
		        .sg_list = &pieces[i],
		        .num_sge = 1,
		        .opcode = opcode,
		        .flags = i + 1 == count ? HDL_SEND_SIGNALED : 0,
		        .u.rdma = {(uint64_t)(uintptr_t)ends[1].memory + i * bytes,
		                   hdl_mr_key(ends[1].mr)}};
	}
	assert_int_equal(hdl_post_send(ends[0].qp, list, NULL), 0);
}

static void post_receives(uint32_t count, uint32_t bytes)
{
	for (uint32_t i = 0; i < count; i++) {
		struct hdl_sge piece = {(uint64_t)(uintptr_t)ends[1].memory + i * bytes, bytes,
		                        hdl_mr_key(ends[1].mr)};
		struct hdl_recv_wr wr = {.sg_list = &piece, .num_sge = 1};
		assert_int_equal(hdl_post_recv(ends[1].qp, &wr, NULL), 0);
	}
}

/* Until end @which has @count completions. */
static void copies_await(unsigned which, unsigned count)
{
	struct hdl_wc wc;
	for (unsigned i = 0; i < TURNS && count > 0; i++) {
		hdl_progress(ends[!which].adapter);
		int got = hdl_cq_poll(ends[which].cq, &wc, 1);
		assert_true(got == 0 || (got == 1 && wc.status == HDL_WC_SUCCESS));
		count -= (unsigned)got;
	}
	assert_int_equal(count, 0);
}

static void copies_fill(uint8_t seed)
{
	for (size_t i = 0; i < BYTES; i++) {
		ends[0].memory[i] = (uint8_t)(i * 13 + (i >> 9) + seed);
		ends[1].memory[i] = (uint8_t)~ends[0].memory[i];
	}
}

/* What the calls and copies of one end are, from here on. */
struct count {
	uint64_t sends, receives, staged;
};

static struct count count_of(const struct end *e)
{
	const struct tcp_flow *flow = &e->conn->flow;
	return (struct count){flow->sends, flow->receives, flow->staged_bytes};
}

/* @move moves a burst from ends[0] to ends[1]. Returns what it cost at both ends, in the best of
 * several bursts: TCP may be short of room in one. */
static struct count least_of(void (*move)(void))
{
	struct count least = {UINT64_MAX, UINT64_MAX, UINT64_MAX};
	for (unsigned i = 0; i < BURSTS; i++) {
		copies_fill((uint8_t)i);
		struct count before[2] = {count_of(&ends[0]), count_of(&ends[1])};
		move();
		struct count after[2] = {count_of(&ends[0]), count_of(&ends[1])};
		assert_memory_equal(ends[0].memory, ends[1].memory, BYTES);
		uint64_t sends = after[0].sends - before[0].sends;
		uint64_t receives = after[1].receives - before[1].receives;
		uint64_t staged = after[1].staged - before[1].staged;
		least.sends = sends < least.sends ? sends : least.sends;
		least.receives = receives < least.receives ? receives : least.receives;
		least.staged = staged < least.staged ? staged : least.staged;
	}
	return least;
}

static void move_writes(void)
{
	post_list(HDL_OP_WRITE, BURST, LONG);
	copies_await(0, 1);
	for (unsigned i = 0; i < TURNS && ends[1].memory[BYTES - 1] != ends[0].memory[BYTES - 1];
	     i++)
		hdl_progress(ends[1].adapter);
}

static void move_sends(void)
{
	post_receives(BURST, LONG);
	post_list(HDL_OP_SEND, BURST, LONG);
	copies_await(0, 1);
	copies_await(1, BURST);
}

/* One call to send at most, one to receive, and one more for each burst, because nobody knows where
 * the first octets after a pause belong, and one that finds nothing. Headers, trailers and the
 * short segments at the beginning of messages are copied. */
static void one_call_for_64_kib(void **state)
{
	(void)state;
	struct count writes = least_of(move_writes), sends = least_of(move_sends);
	print_message("%u writes of 64 KiB: %u sends, %u receives, %u bytes copied\n", BURST,
	              (unsigned)writes.sends, (unsigned)writes.receives, (unsigned)writes.staged);
	print_message("%u sends of 64 KiB: %u sends, %u receives, %u bytes copied\n", BURST,
	              (unsigned)sends.sends, (unsigned)sends.receives, (unsigned)sends.staged);
	assert_true(writes.sends <= BURST && sends.sends <= BURST);
	assert_true(writes.receives <= BURST + 2 && sends.receives <= BURST + 2);
	assert_true(writes.staged <= (BURST + 1) * TCP_BEHIND_BYTES);
	assert_true(sends.staged <= (BURST + 1) * TCP_BEHIND_BYTES);
}

/* The answers to reads arrive in the same way. */
static void move_reads(void)
{
	struct hdl_sge piece = {(uint64_t)(uintptr_t)ends[1].memory, BYTES, hdl_mr_key(ends[1].mr)};
	struct hdl_send_wr wr = {
	        .sg_list = &piece,
	        .num_sge = 1,
	        .opcode = HDL_OP_READ,
	        .flags = HDL_SEND_SIGNALED,
	        .u.rdma = {(uint64_t)(uintptr_t)ends[0].memory, hdl_mr_key(ends[0].mr)}};
	assert_int_equal(hdl_post_send(ends[1].qp, &wr, NULL), 0);
	copies_await(1, 1);
}

static void reads_are_placed_where_they_belong(void **state)
{
	(void)state;
	struct count reads = least_of(move_reads);
	print_message("a read of %u KiB: %u receives, %u bytes copied\n", BYTES >> 10,
	              (unsigned)reads.receives, (unsigned)reads.staged);
	assert_true(reads.staged <= (BURST + 2) * TCP_BEHIND_BYTES);
}

/* The kernel finds that memory of a request is gone, in the middle of an FPDU. */
static void a_buffer_that_disappears(void **state)
{
	(void)state;
	struct hdl_mr *mr;
	struct hdl_wc wc;
	int got = 0;
	uint8_t *memory =
	        mmap(NULL, BIG_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(memory != MAP_FAILED);
	memset(memory, 1, BIG_BYTES);
	assert_int_equal(hdl_mr_register(ends[0].pd, memory, BIG_BYTES, HDL_ACCESS_LOCAL_READ, &mr),
	                 0);
	struct hdl_sge piece = {(uint64_t)(uintptr_t)memory, BIG_BYTES, hdl_mr_key(mr)};
	struct hdl_send_wr wr = {.wr_id = 7,
	                         .sg_list = &piece,
	                         .num_sge = 1,
	                         .opcode = HDL_OP_SEND,
	                         .flags = HDL_SEND_SIGNALED};
	assert_int_equal(hdl_post_send(ends[0].qp, &wr, NULL), 0);
	for (unsigned i = 0; i < 100 && ends[0].conn->iwarp.lent == 0; i++)
		hdl_progress(ends[0].adapter); /* nobody receives: TCP takes a part of it */
	assert_true(ends[0].conn->iwarp.lent > 0);
	munmap(memory, BIG_BYTES);
	for (unsigned i = 0; i < TURNS && got == 0; i++) {
		post_receives(i == 0, BYTES); /* too short, but it makes the other end read */
		hdl_progress(ends[1].adapter);
		got = hdl_cq_poll(ends[0].cq, &wc, 1);
	}
	assert_int_equal(got, 1);
	assert_int_equal(wc.wr_id, 7);
	assert_true(wc.status == HDL_WC_LOC_ACCESS_ERR);
	hdl_mr_deregister(mr);
}

#define COPIES(f) cmocka_unit_test_setup_teardown(f, copies_setup, copies_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        COPIES(one_call_for_64_kib),
	        COPIES(reads_are_placed_where_they_belong),
	        COPIES(a_buffer_that_disappears),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
