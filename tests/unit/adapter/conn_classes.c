/* IP9, MEMMGT figure 3A: classes of service on TCP. The end that accepts answers in the class that
 * the other began with, and peers that do not read hold up nobody of a higher class. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <heddle/heddle.h>

#include "adapter/adapter.h"
#include "adapter/net/tcp_port.h"

#define URGENT_CLASS 0xb8u /* expedited forwarding (RFC 3246) */
#define BULK_CLASS   0x20u /* class selector 1 (RFC 4594: low-priority data) */
#define MANY         24u   /* more than could fill all chunks: TCP_CHUNKS / IWARP_OUT_CHUNKS */
#define LONG_BYTES   (16u << 20)
#define URGENT_BYTES (4u << 20)
#define TURNS        2000000u /* of a wait; what it waits for takes some hundreds */
/* Shared chunks have 64 KiB, and a connection has four. Its own one has 1.5 KiB. */
#define MOST_TURNS (URGENT_BYTES / 16384)

static const struct hdl_gid loopback = {.raw = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};
static const struct hdl_gid loopback6 = {.raw = {[15] = 1}};

/* An adapter without a thread: it does something when the test says so. */
struct end {
	struct hdl_adapter *adapter;
	struct hdl_pd *pd;
	struct hdl_cq *cq;
	struct hdl_mr *mr;
	uint8_t *memory;
	struct hdl_qp *qps[MANY + 1];
	struct hdl_conn *conns[MANY + 1];
	unsigned count;
};

static void end_open(struct end *e, uint32_t bytes)
{
	const struct hdl_open_attr attr = {.max_mr = 8, .max_qp = 64, .no_thread = true};
	*e = (struct end){.memory = calloc(1, bytes)};
	assert_non_null(e->memory);
	assert_int_equal(hdl_open(&attr, &e->adapter), 0);
	assert_int_equal(hdl_pd_create(e->adapter, &e->pd), 0);
	assert_int_equal(hdl_cq_create(e->adapter, 64, NULL, NULL, &e->cq), 0);
	assert_int_equal(hdl_mr_register(e->pd, e->memory, bytes,
	                                 HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE |
	                                         HDL_ACCESS_REMOTE_READ,
	                                 &e->mr),
	                 0);
}

static void end_close(struct end *e)
{
	for (unsigned i = 0; i < e->count; i++) {
		assert_int_equal(hdl_conn_destroy(e->conns[i]), 0);
		assert_int_equal(hdl_qp_destroy(e->qps[i]), 0);
	}
	assert_int_equal(hdl_mr_deregister(e->mr), 0);
	assert_int_equal(hdl_cq_destroy(e->cq), 0);
	assert_int_equal(hdl_pd_destroy(e->pd), 0);
	assert_int_equal(hdl_close(e->adapter), 0);
	free(e->memory);
}

static struct hdl_qp *end_qp(struct end *e)
{
	struct hdl_qp *qp;
	struct hdl_qp_init_attr init = {
	        .type = HDL_QP_RC, .send_cq = e->cq, .recv_cq = e->cq, .cap = {4, 4, 1, 1, 0}};
	const struct hdl_qp_attr attr = {
	        .state = HDL_QPS_INIT, .port_num = 1, .access = HDL_ACCESS_REMOTE_READ};
	assert_int_equal(hdl_qp_create(e->pd, &init, &qp), 0);
	assert_int_equal(
	        hdl_qp_modify(qp, &attr,
	                      HDL_QP_STATE | HDL_QP_PKEY_INDEX | HDL_QP_PORT | HDL_QP_ACCESS),
	        0);
	return qp;
}

static struct hdl_conn_event next_event(struct end *a, struct end *b, struct end *of,
                                        enum hdl_conn_event_type type)
{
	struct hdl_conn_event event;
	int result = -HDL_ETIMEDOUT;
	for (unsigned i = 0; i < TURNS && result != 0; i++) {
		hdl_progress(a->adapter);
		hdl_progress(b->adapter);
		result = hdl_conn_event_get(of->adapter, &event, 0);
	}
	assert_int_equal(result, 0);
	assert_int_equal(event.type, type);
	return event;
}

/* Another connection from @a to @b. Returns its number. */
static unsigned join(struct end *a, struct end *b, const struct hdl_gid *gid, uint8_t asked,
                     uint8_t answered)
{
	const struct hdl_conn_param param = {.ird = 4, .ord = 4, .traffic_class = asked};
	const struct hdl_conn_param answer = {.ird = 4, .ord = 4, .traffic_class = answered};
	struct hdl_listener *listener;
	uint16_t port = 0;
	unsigned i = a->count++, j = b->count++;
	a->qps[i] = end_qp(a);
	b->qps[j] = end_qp(b);
	assert_int_equal(hdl_listener_bind(b->adapter, gid, &port, NULL, &listener), 0);
	assert_int_equal(hdl_listener_listen(listener, 4), 0);
	assert_int_equal(
	        hdl_conn_connect(a->qps[i], NULL, NULL, gid, port, &param, NULL, &a->conns[i]), 0);
	b->conns[j] = next_event(a, b, b, HDL_CONN_REQUEST).conn;
	assert_int_equal(hdl_conn_accept(b->conns[j], b->qps[j], &answer, NULL), 0);
	next_event(a, b, b, HDL_CONN_ESTABLISHED);
	next_event(a, b, a, HDL_CONN_ESTABLISHED);
	assert_int_equal(hdl_listener_close(listener), 0);
	return i;
}

/* What the socket of @conn puts into IP headers, and its priority. */
static unsigned class_of(const struct hdl_conn *conn, bool ipv6, int *priority)
{
	int class = 0;
	socklen_t bytes = sizeof(class);
	int level = ipv6 ? IPPROTO_IPV6 : IPPROTO_IP, option = ipv6 ? IPV6_TCLASS : IP_TOS;
	assert_int_equal(getsockopt(conn->flow.sock, level, option, &class, &bytes), 0);
	bytes = sizeof(*priority);
	assert_int_equal(getsockopt(conn->flow.sock, SOL_SOCKET, SO_PRIORITY, priority, &bytes), 0);
	return (unsigned)class & 0xfcu;
}

static void ip9_answers_have_the_class_of_the_initiator(void **state)
{
	static const struct {
		uint8_t asked, answered, is;
	} rows[] = {{0, 0, 0},
	            {URGENT_CLASS, 0, URGENT_CLASS},
	            {BULK_CLASS, 0, BULK_CLASS},
	            {0, URGENT_CLASS, URGENT_CLASS},
	            {URGENT_CLASS, BULK_CLASS, BULK_CLASS},
	            {URGENT_CLASS, 1, 0}};
	(void)state;
	for (unsigned i = 0; i < 2 * sizeof(rows) / sizeof(rows[0]); i++) {
		struct end a, b;
		int asked, answered;
		end_open(&a, 4096);
		end_open(&b, 4096);
		join(&a, &b, i % 2 ? &loopback6 : &loopback, rows[i / 2].asked,
		     rows[i / 2].answered);
		assert_int_equal(class_of(a.conns[0], i % 2, &asked), rows[i / 2].asked);
		assert_int_equal(class_of(b.conns[0], i % 2, &answered), rows[i / 2].is);
		assert_int_equal(a.qps[0]->qp.service, service_class(rows[i / 2].asked));
		assert_int_equal(b.qps[0]->qp.service, service_class(rows[i / 2].is));
		if (rows[i / 2].is == rows[i / 2].asked)
			assert_int_equal(asked, answered);
		end_close(&a);
		end_close(&b);
	}
}

static void post_read(struct end *e, unsigned i, const struct end *of, uint32_t bytes)
{
	struct hdl_sge sge = {(uint64_t)(uintptr_t)e->memory, bytes, hdl_mr_key(e->mr)};
	struct hdl_send_wr wr = {.sg_list = &sge,
	                         .num_sge = 1,
	                         .opcode = HDL_OP_READ,
	                         .flags = HDL_SEND_SIGNALED,
	                         .u.rdma = {(uint64_t)(uintptr_t)of->memory, hdl_mr_key(of->mr)}};
	assert_int_equal(hdl_post_send(e->qps[i], &wr, NULL), 0);
}

/* Many peers of a class have asked for a lot and do not read it: whatever is kept for them is full,
 * in the kernel, too. A peer of a higher class is answered in the largest pieces that there are. */
static void ip9_peers_that_do_not_read_hold_up_no_higher_class(void **state)
{
	static const struct {
		uint8_t many, one;
	} rows[] = {{0, URGENT_CLASS}, {BULK_CLASS, URGENT_CLASS}, {BULK_CLASS, 0}};
	(void)state;
	for (unsigned row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		struct end asker, target, many;
		struct hdl_wc wc;
		end_open(&target, LONG_BYTES);
		end_open(&many, LONG_BYTES);
		end_open(&asker, URGENT_BYTES);
		for (unsigned i = 0; i < MANY; i++)
			join(&many, &target, &loopback, rows[row].many, 0);
		/* Its end at the target is the last there. */
		join(&asker, &target, &loopback, rows[row].one, 0);
		for (unsigned i = 0; i < MANY; i++)
			post_read(&many, i, &target, LONG_BYTES);
		/* Only the target runs from now on, until it can do no more. */
		for (unsigned quiet = 0; quiet < 1000;)
			quiet = hdl_progress(target.adapter) == 0 ? quiet + 1 : 0;
		const struct iwarp_pool *pool = target.adapter->engine.iwarp_pool;
		assert_true(pool->sending >= (pool->count - 1) / 2); /* all that they may fill */
		post_read(&asker, 0, &target, URGENT_BYTES);
		unsigned turns = 0;
		int got = 0;
		for (unsigned i = 0; i < TURNS && got == 0; i++) {
			turns += hdl_progress(target.adapter) > 0;
			got = hdl_cq_poll(asker.cq, &wc, 1);
		}
		assert_int_equal(got, 1);
		assert_int_equal(wc.status, HDL_WC_SUCCESS);
		print_message("%u turns with something to do\n", turns);
		assert_true(turns < MOST_TURNS);
		end_close(&asker);
		end_close(&many);
		end_close(&target);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(ip9_answers_have_the_class_of_the_initiator),
	        cmocka_unit_test(ip9_peers_that_do_not_read_hold_up_no_higher_class),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
