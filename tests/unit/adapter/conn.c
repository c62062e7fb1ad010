/* IP1, IP3: connections over TCP through the public calls, on the loopback: set-up, messages, ends,
 * and what a peer or a program does wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <heddle/heddle.h>

#include "adapter/adapter.h"
#include "adapter/net/tcp_port.h"

#define WAIT_MS   20000
#define BIG_BYTES (3u << 20)
#define RECEIVES  16u

static const struct hdl_gid loopback = {.raw = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};
static const struct hdl_gid loopback6 = {.raw = {[15] = 1}};

/* One end: an adapter with one queue pair and one region. */
struct end {
	struct hdl_adapter *adapter;
	struct hdl_pd *pd;
	struct hdl_cq *cq;
	struct hdl_mr *mr;
	struct hdl_qp *qp;
	struct hdl_conn *conn;
	uint8_t *memory;
};

static void ready_to_connect(struct hdl_qp *qp)
{
	const struct hdl_qp_attr attr = {.state = HDL_QPS_INIT,
	                                 .port_num = 1,
	                                 .access = HDL_ACCESS_REMOTE_READ |
	                                           HDL_ACCESS_REMOTE_WRITE |
	                                           HDL_ACCESS_REMOTE_ATOMIC};
	assert_int_equal(
	        hdl_qp_modify(qp, &attr,
	                      HDL_QP_STATE | HDL_QP_PKEY_INDEX | HDL_QP_PORT | HDL_QP_ACCESS),
	        0);
}

static struct hdl_qp *end_qp(struct end *e)
{
	struct hdl_qp *qp;
	struct hdl_qp_init_attr init = {.type = HDL_QP_RC,
	                                .send_cq = e->cq,
	                                .recv_cq = e->cq,
	                                .cap = {.max_send_wr = 64,
	                                        .max_recv_wr = 64,
	                                        .max_send_sge = 4,
	                                        .max_recv_sge = 4}};
	assert_int_equal(hdl_qp_create(e->pd, &init, &qp), 0);
	ready_to_connect(qp);
	return qp;
}

static void end_open(struct end *e)
{
	const struct hdl_open_attr attr = {.max_mr = 64, .max_qp = 64};
	*e = (struct end){.memory = calloc(1, BIG_BYTES)};
	assert_non_null(e->memory);
	assert_int_equal(hdl_open(&attr, &e->adapter), 0);
	assert_int_equal(hdl_pd_create(e->adapter, &e->pd), 0);
	assert_int_equal(hdl_cq_create(e->adapter, 256, NULL, NULL, &e->cq), 0);
	assert_int_equal(hdl_mr_register(e->pd, e->memory, BIG_BYTES,
	                                 HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE |
	                                         HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE |
	                                         HDL_ACCESS_REMOTE_ATOMIC,
	                                 &e->mr),
	                 0);
	e->qp = end_qp(e);
}

static void end_close(struct end *e)
{
	if (e->conn != NULL)
		assert_int_equal(hdl_conn_destroy(e->conn), 0);
	assert_int_equal(hdl_qp_destroy(e->qp), 0);
	assert_int_equal(hdl_mr_deregister(e->mr), 0);
	assert_int_equal(hdl_cq_destroy(e->cq), 0);
	assert_int_equal(hdl_pd_destroy(e->pd), 0);
	assert_int_equal(hdl_close(e->adapter), 0);
	free(e->memory);
}

static struct hdl_conn_event end_event(struct end *e, enum hdl_conn_event_type type)
{
	struct hdl_conn_event event;
	assert_int_equal(hdl_conn_event_get(e->adapter, &event, WAIT_MS), 0);
	assert_int_equal(event.type, type);
	return event;
}

static void end_receive(struct end *e, uint64_t id, size_t offset, uint32_t length)
{
	const struct hdl_recv_wr *bad;
	struct hdl_sge sge = {(uint64_t)(uintptr_t)e->memory + offset, length, hdl_mr_key(e->mr)};
	struct hdl_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1};
	assert_int_equal(hdl_post_recv(e->qp, &wr, &bad), 0);
}

static void end_post(struct end *e, enum hdl_opcode opcode, uint64_t id, size_t offset,
                     uint32_t length, const struct end *to, size_t to_offset)
{
	const struct hdl_send_wr *bad;
	struct hdl_sge sge = {(uint64_t)(uintptr_t)e->memory + offset, length, hdl_mr_key(e->mr)};
	struct hdl_send_wr wr = {.wr_id = id,
	                         .opcode = opcode,
	                         .flags = HDL_SEND_SIGNALED,
	                         .sg_list = &sge,
	                         .num_sge = 1};
	if (to != NULL) {
		wr.u.rdma.addr = (uint64_t)(uintptr_t)to->memory + to_offset;
		wr.u.rdma.key = hdl_mr_key(to->mr);
	}
	assert_int_equal(hdl_post_send(e->qp, &wr, &bad), 0);
}

static struct hdl_wc end_wc(struct end *e)
{
	struct hdl_wc wc;
	uint64_t until = clock_now_ns() + (uint64_t)WAIT_MS * 1000000u;
	int got;
	while ((got = hdl_cq_poll(e->cq, &wc, 1)) == 0 && clock_now_ns() < until)
		;
	assert_int_equal(got, 1);
	return wc;
}

static void end_expect(struct end *e, uint64_t id)
{
	struct hdl_wc wc = end_wc(e);
	if (wc.status != HDL_WC_SUCCESS)
		print_message("request %u, %u expected: status %u, detail %u\n", (unsigned)wc.wr_id,
		              (unsigned)id, wc.status, wc.vendor_err);
	assert_int_equal(wc.status, HDL_WC_SUCCESS);
	assert_int_equal(wc.wr_id, id);
}

static void fill(struct end *e, uint8_t seed)
{
	for (size_t i = 0; i < BIG_BYTES; i++)
		e->memory[i] = (uint8_t)(i * 7 + (i >> 8) + seed);
}

static struct hdl_listener *listen_at(struct end *e, const struct hdl_gid *gid, uint16_t *port,
                                      int backlog)
{
	struct hdl_listener *listener;
	*port = 0;
	assert_int_equal(hdl_listener_bind(e->adapter, gid, port, e, &listener), 0);
	assert_int_not_equal(*port, 0);
	assert_int_equal(hdl_listener_listen(listener, backlog), 0);
	return listener;
}

/* @a connects to @b with @param, and @b accepts with @answer. */
static void join(struct end *a, struct end *b, const struct hdl_gid *gid,
                 const struct hdl_conn_param *param, const struct hdl_conn_param *answer)
{
	uint16_t port;
	struct hdl_listener *listener = listen_at(b, gid, &port, 4);
	assert_int_equal(hdl_conn_connect(a->qp, NULL, NULL, gid, port, param, a, &a->conn), 0);
	struct hdl_conn_event asked = end_event(b, HDL_CONN_REQUEST);
	assert_ptr_equal(asked.listener, listener);
	assert_ptr_equal(asked.context, b);
	assert_int_equal(asked.own_port, port);
	b->conn = asked.conn;
	assert_int_equal(hdl_conn_accept(b->conn, b->qp, answer, b), 0);
	end_event(b, HDL_CONN_ESTABLISHED);
	struct hdl_conn_event up = end_event(a, HDL_CONN_ESTABLISHED);
	assert_ptr_equal(up.conn, a->conn);
	assert_int_equal(up.peer_port, port);
	assert_int_equal(hdl_listener_close(listener), 0);
}

static void open_both(struct end *a, struct end *b)
{
	end_open(a);
	end_open(b);
}

static void close_both(struct end *a, struct end *b)
{
	end_close(a);
	end_close(b);
}

static enum hdl_qp_state state_of(struct end *e)
{
	struct hdl_qp_attr attr;
	assert_int_equal(hdl_qp_query(e->qp, &attr, NULL), 0);
	return (enum hdl_qp_state)attr.state;
}

/* Send, write and read in both directions, short and long, and compare every byte. */
static void exchange(struct end *a, struct end *b, uint32_t bytes)
{
	fill(a, 1);
	memset(b->memory, 0, BIG_BYTES);
	end_receive(b, 10, 0, bytes);
	end_post(a, HDL_OP_SEND, 11, 0, bytes, NULL, 0);
	end_expect(a, 11);
	end_expect(b, 10);
	assert_memory_equal(a->memory, b->memory, bytes);
	memset(b->memory, 0, BIG_BYTES);
	end_post(a, HDL_OP_WRITE, 12, 0, bytes, b, 0);
	end_expect(a, 12);
	memset(a->memory, 0, BIG_BYTES);
	end_post(a, HDL_OP_READ, 13, 0, bytes, b, 0); /* placed after the write */
	end_expect(a, 13);
	assert_memory_equal(a->memory, b->memory, bytes);
	assert_int_equal(a->memory[bytes - 1], (uint8_t)((bytes - 1) * 7 + ((bytes - 1) >> 8) + 1));
}

static const struct hdl_conn_param deep = {.ird = 4, .ord = 4};

/* IP1: everything an initiator and a responder can do to each other. */
/* The peer has acknowledged that many octets of the connection of @e: for TCP the kernel's affair,
 * without which none would be forgotten. */
static void expect_acknowledged(struct end *e, uint64_t least)
{
	struct tcp_info info = {0};
	socklen_t bytes = sizeof(info);
	assert_int_equal(getsockopt(e->conn->flow.sock, IPPROTO_TCP, TCP_INFO, &info, &bytes), 0);
	assert_true(info.tcpi_bytes_acked >= least);
	assert_true(info.tcpi_bytes_received >= least);
}

static void ip1_messages_pass_over_tcp(void **state)
{
	(void)state;
	static const uint32_t sizes[] = {1, 8, 4096, 65536, BIG_BYTES};
	struct end a, b;
	open_both(&a, &b);
	join(&a, &b, &loopback, &deep, &deep);
	assert_int_equal(state_of(&a), HDL_QPS_RTS);
	assert_int_equal(state_of(&b), HDL_QPS_RTS);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		exchange(&a, &b, sizes[i]);
		exchange(&b, &a, sizes[i]);
	}
	expect_acknowledged(&a, BIG_BYTES);
	expect_acknowledged(&b, BIG_BYTES);
	close_both(&a, &b);
}

static void ip1_every_wish_of_mpa_works(void **state)
{
	(void)state;
	static const struct hdl_conn_param wishes[] = {
	        {.ird = 4, .ord = 4, .flags = HDL_CONN_NO_CRC},
	        {.ird = 4, .ord = 4, .flags = HDL_CONN_MARKERS},
	        {.ird = 4, .ord = 4, .flags = HDL_CONN_REVISION_1},
	        {.ird = 4, .ord = 4, .flags = HDL_CONN_CLIENT_SERVER},
	        {.ird = 4, .ord = 4, .traffic_class = 0xb8},
	};
	for (size_t i = 0; i < sizeof(wishes) / sizeof(wishes[0]); i++) {
		struct end a, b;
		open_both(&a, &b);
		join(&a, &b, &loopback, &wishes[i], &wishes[i]);
		exchange(&b, &a, 100000); /* the responder speaks first */
		exchange(&a, &b, 100000);
		close_both(&a, &b);
	}
}

static void ip1_ipv6_works(void **state)
{
	(void)state;
	struct end a, b;
	open_both(&a, &b);
	join(&a, &b, &loopback6, &deep, &deep);
	exchange(&a, &b, 100000);
	close_both(&a, &b);
}

static void private_data_and_depths_are_agreed(void **state)
{
	(void)state;
	uint8_t long_data[HDL_CONN_PRIVATE];
	for (size_t i = 0; i < sizeof(long_data); i++)
		long_data[i] = (uint8_t)i;
	const struct hdl_conn_param ask = {
	        .ird = 3, .ord = 9, .private_data = long_data, .private_bytes = 508};
	const struct hdl_conn_param answer = {
	        .ird = 5, .ord = 2, .private_data = "yes", .private_bytes = 3};
	struct end a, b;
	uint16_t port;
	open_both(&a, &b);
	struct hdl_listener *listener = listen_at(&b, &loopback, &port, 4);
	struct hdl_conn_param too_much = ask;
	too_much.private_bytes = 509;
	assert_int_equal(
	        hdl_conn_connect(a.qp, NULL, NULL, &loopback, port, &too_much, &a, &a.conn),
	        -HDL_EINVAL);
	assert_int_equal(hdl_conn_connect(a.qp, NULL, NULL, &loopback, port, &ask, &a, &a.conn), 0);
	struct hdl_conn_event asked = end_event(&b, HDL_CONN_REQUEST);
	assert_int_equal(asked.private_bytes, 508);
	assert_memory_equal(asked.private_data, long_data, 508);
	assert_int_equal(asked.ird, 9);
	assert_int_equal(asked.ord, 3);
	b.conn = asked.conn;
	assert_int_equal(hdl_conn_accept(b.conn, b.qp, &answer, &b), 0);
	assert_int_equal(hdl_conn_accept(b.conn, b.qp, &answer, &b), -HDL_EPERM);
	struct hdl_conn_event up = end_event(&b, HDL_CONN_ESTABLISHED);
	assert_int_equal(up.ird, 5);
	assert_int_equal(up.ord, 2);
	up = end_event(&a, HDL_CONN_ESTABLISHED);
	assert_int_equal(up.ird, 2);
	assert_int_equal(up.ord, 5);
	assert_int_equal(up.private_bytes, 3);
	assert_memory_equal(up.private_data, "yes", 3);
	hdl_listener_close(listener);
	close_both(&a, &b);
}

static void a_request_is_rejected_with_data(void **state)
{
	(void)state;
	struct end a, b;
	uint16_t port;
	open_both(&a, &b);
	struct hdl_listener *listener = listen_at(&b, &loopback, &port, 4);
	assert_int_equal(hdl_conn_connect(a.qp, NULL, NULL, &loopback, port, NULL, &a, &a.conn), 0);
	struct hdl_conn_event asked = end_event(&b, HDL_CONN_REQUEST);
	assert_int_equal(hdl_conn_reject(asked.conn, "no", 2), 0);
	assert_int_equal(hdl_conn_reject(asked.conn, "no", 2), -HDL_EPERM);
	struct hdl_conn_event said = end_event(&a, HDL_CONN_REJECTED);
	assert_int_equal(said.private_bytes, 2);
	assert_memory_equal(said.private_data, "no", 2);
	assert_int_equal(state_of(&a), HDL_QPS_INIT);
	assert_int_equal(hdl_conn_destroy(asked.conn), 0);
	/* The queue pair may try again; a request that is destroyed is rejected, too. */
	assert_int_equal(hdl_conn_destroy(a.conn), 0);
	assert_int_equal(hdl_conn_connect(a.qp, NULL, NULL, &loopback, port, NULL, &a, &a.conn), 0);
	asked = end_event(&b, HDL_CONN_REQUEST);
	assert_int_equal(hdl_conn_destroy(asked.conn), 0);
	end_event(&a, HDL_CONN_REJECTED);
	hdl_listener_close(listener);
	close_both(&a, &b);
}

static void nobody_listens(void **state)
{
	(void)state;
	struct end a, b;
	uint16_t port;
	open_both(&a, &b);
	struct hdl_listener *listener = listen_at(&b, &loopback, &port, 4);
	hdl_listener_close(listener);
	assert_int_equal(hdl_conn_connect(a.qp, NULL, NULL, &loopback, port, NULL, &a, &a.conn), 0);
	struct hdl_conn_event failed = end_event(&a, HDL_CONN_FAILED);
	assert_int_equal(failed.error, -HDL_ECONNREFUSED);
	assert_int_equal(state_of(&a), HDL_QPS_INIT);
	close_both(&a, &b);
}

/* What was posted before goes out, then both ends hear that it is over, in order. */
static void disconnecting_loses_nothing(void **state)
{
	(void)state;
	struct end a, b;
	open_both(&a, &b);
	join(&a, &b, &loopback, &deep, &deep);
	fill(&a, 3);
	for (uint64_t i = 0; i < RECEIVES; i++)
		end_receive(&b, i, i * 65536, 65536);
	end_receive(&a, 99, 0, 8);
	for (uint64_t i = 0; i < RECEIVES; i++)
		end_post(&a, HDL_OP_SEND, 100 + i, i * 65536, 65536, NULL, 0);
	assert_int_equal(hdl_conn_disconnect(a.conn), 0);
	for (uint64_t i = 0; i < RECEIVES; i++)
		end_expect(&b, i);
	assert_memory_equal(a.memory, b.memory, RECEIVES * 65536);
	assert_int_equal(end_event(&b, HDL_CONN_CLOSED).error, 0);
	assert_int_equal(end_event(&a, HDL_CONN_CLOSED).error, 0);
	for (uint64_t i = 0; i < RECEIVES; i++)
		end_expect(&a, 100 + i);
	struct hdl_wc flushed = end_wc(&a);
	assert_int_equal(flushed.wr_id, 99);
	assert_int_equal(flushed.status, HDL_WC_WR_FLUSH_ERR);
	assert_int_equal(state_of(&a), HDL_QPS_ERR);
	assert_int_equal(state_of(&b), HDL_QPS_ERR);
	assert_int_equal(hdl_conn_disconnect(a.conn), 0);
	close_both(&a, &b);
}

/* A connection, its queue pair and its adapter may end in any order. */
static void objects_end_in_any_order(void **state)
{
	(void)state;
	for (unsigned order = 0; order < 4; order++) {
		struct end a, b;
		open_both(&a, &b);
		join(&a, &b, &loopback, &deep, &deep);
		if (order == 0) { /* the queue pair first */
			hdl_qp_destroy(a.qp);
			end_event(&b, HDL_CONN_CLOSED);
			hdl_conn_destroy(a.conn);
		} else if (order == 1) { /* the connection first */
			hdl_conn_destroy(a.conn);
			end_event(&b, HDL_CONN_CLOSED);
			assert_int_equal(state_of(&a), HDL_QPS_ERR);
			hdl_qp_destroy(a.qp);
		} else if (order == 2) { /* a queue pair that is reset can be connected again */
			const struct hdl_qp_attr reset = {.state = HDL_QPS_RESET};
			assert_int_equal(hdl_qp_modify(a.qp, &reset, HDL_QP_STATE), 0);
			end_event(&b, HDL_CONN_CLOSED);
			end_event(&a, HDL_CONN_CLOSED);
			hdl_conn_destroy(a.conn);
			hdl_conn_destroy(b.conn);
			assert_int_equal(hdl_qp_modify(b.qp, &reset, HDL_QP_STATE), 0);
			ready_to_connect(a.qp);
			ready_to_connect(b.qp);
			join(&a, &b, &loopback, &deep, &deep);
			exchange(&a, &b, 5000);
			hdl_conn_destroy(a.conn);
			hdl_qp_destroy(a.qp);
		} else { /* in the middle of the set-up */
			uint16_t port;
			struct hdl_listener *listener = listen_at(&b, &loopback, &port, 4);
			struct hdl_qp *other = end_qp(&a);
			struct hdl_conn *conn;
			assert_int_equal(hdl_conn_connect(other, NULL, NULL, &loopback, port, NULL,
			                                  &a, &conn),
			                 0);
			struct hdl_conn_event asked = end_event(&b, HDL_CONN_REQUEST);
			hdl_qp_destroy(other);
			struct hdl_qp *third = end_qp(&b);
			assert_int_equal(hdl_conn_accept(asked.conn, third, NULL, NULL), 0);
			struct hdl_conn_event failed = end_event(&a, HDL_CONN_FAILED);
			assert_int_equal(failed.error, -HDL_EPERM);
			hdl_conn_destroy(conn);
			hdl_conn_destroy(asked.conn);
			hdl_qp_destroy(third);
			hdl_listener_close(listener);
			hdl_qp_destroy(a.qp);
			hdl_conn_destroy(a.conn);
		}
		a.conn = NULL;
		a.qp = end_qp(&a);
		end_close(&a);
		end_close(&b);
	}
}

/* A bad tag is refused with a Terminate, and both programs know. */
static void a_bad_tag_ends_the_connection(void **state)
{
	(void)state;
	struct end a, b;
	open_both(&a, &b);
	join(&a, &b, &loopback, &deep, &deep);
	const struct hdl_send_wr *bad;
	struct hdl_sge sge = {(uint64_t)(uintptr_t)a.memory, 8, hdl_mr_key(a.mr)};
	struct hdl_send_wr wr = {.wr_id = 1,
	                         .opcode = HDL_OP_READ,
	                         .flags = HDL_SEND_SIGNALED,
	                         .sg_list = &sge,
	                         .num_sge = 1,
	                         .u.rdma = {(uint64_t)(uintptr_t)b.memory, {0xdead00}}};
	assert_int_equal(hdl_post_send(a.qp, &wr, &bad), 0);
	struct hdl_wc wc = end_wc(&a);
	assert_int_equal(wc.status, HDL_WC_REM_ACCESS_ERR);
	end_event(&a, HDL_CONN_CLOSED);
	end_event(&b, HDL_CONN_CLOSED);
	assert_int_equal(state_of(&a), HDL_QPS_ERR);
	assert_int_equal(state_of(&b), HDL_QPS_ERR);
	close_both(&a, &b);
}

/* A TCP socket of the test's own, connected to @port. */
static int dial(uint16_t port)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
	                         .sin_port = htons(port),
	                         .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(sock >= 0);
	assert_int_equal(connect(sock, (struct sockaddr *)&to, sizeof(to)), 0);
	return sock;
}

/* Wait until the other side closes or resets @sock. */
static bool hangs_up(int sock)
{
	char byte;
	struct pollfd wait = {.fd = sock, .events = POLLIN};
	return poll(&wait, 1, WAIT_MS) == 1 && recv(sock, &byte, 1, 0) <= 0;
}

/* The frame that opens a connection: @key is "Req" or "Rep"; flags and revision as on the wire. */
static size_t frame(uint8_t out[24], const char *key, uint8_t flags, uint8_t revision, uint16_t ird,
                    uint16_t ord)
{
	bool enhanced = revision > 1;
	memcpy(out, "MPA ID Rxx Frame", 16);
	memcpy(out + 7, key, 3);
	out[16] = flags;
	out[17] = revision;
	out[18] = 0;
	out[19] = enhanced ? 4 : 0;
	for (unsigned i = 0; i < 2; i++) {
		out[20 + i] = (uint8_t)(ird >> 8 * (1 - i));
		out[22 + i] = (uint8_t)(ord >> 8 * (1 - i));
	}
	return enhanced ? 24 : 20;
}

/* Nothing comes on @sock for half of the pause, and something after it. */
static void expect_pause(int sock)
{
	struct pollfd wait = {.fd = sock, .events = POLLIN};
	assert_int_equal(poll(&wait, 1, (int)(TCP_SILENCE_NS / 2000000u)), 0);
	assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
}

/* Linux's siw drops a connection whose Reply is followed by data at once: the responder's program
 * speaks first, and its message waits. */
static void a_responder_pauses_before_it_speaks(void **state)
{
	(void)state;
	struct end b;
	uint16_t port;
	uint8_t bytes[24];
	end_open(&b);
	struct hdl_listener *listener = listen_at(&b, &loopback, &port, 4);
	int sock = dial(port);
	size_t length = frame(bytes, "Req", 0x40, 1, 0, 0); /* C: with CRC */
	assert_int_equal(send(sock, bytes, length, 0), length);
	struct hdl_conn_event asked = end_event(&b, HDL_CONN_REQUEST);
	assert_int_equal(asked.ird, 0xffff);
	assert_int_equal(hdl_conn_accept(b.conn = asked.conn, b.qp, &deep, &b), 0);
	end_event(&b, HDL_CONN_ESTABLISHED);
	end_post(&b, HDL_OP_SEND, 1, 0, 8, NULL, 0);
	assert_int_equal(recv(sock, bytes, 20, MSG_WAITALL), 20);
	assert_memory_equal(bytes, "MPA ID Rep Frame", 16);
	expect_pause(sock);
	close(sock);
	hdl_listener_close(listener);
	end_close(&b);
}

/* As a responder, siw sends its Reply before it hears of data; it takes a write of no bytes as the
 * sign that the initiator is ready, not an empty FPDU. */
static void an_initiator_pauses_after_the_reply(void **state)
{
	(void)state;
	struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(own);
	struct end a;
	uint8_t bytes[24];
	end_open(&a);
	int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(listening, (struct sockaddr *)&own, sizeof(own)), 0);
	assert_int_equal(listen(listening, 1), 0);
	assert_int_equal(getsockname(listening, (struct sockaddr *)&own, &length), 0);
	assert_int_equal(hdl_conn_connect(a.qp, NULL, NULL, &loopback, ntohs(own.sin_port), &deep,
	                                  &a, &a.conn),
	                 0);
	int sock = accept(listening, NULL, NULL);
	assert_int_equal(recv(sock, bytes, 24, MSG_WAITALL), 24);
	assert_int_equal(bytes[16], 0x50); /* C, S */
	assert_int_equal(bytes[17], 2);
	assert_int_equal(bytes[20], 0xc0); /* A, B */
	/* C, S; A; C: a write shows that it is ready. */
	size_t reply = frame(bytes, "Rep", 0x50, 2, 0x8004, 0x8004);
	assert_int_equal(send(sock, bytes, reply, 0), reply);
	end_event(&a, HDL_CONN_ESTABLISHED);
	end_post(&a, HDL_OP_SEND, 1, 0, 8, NULL, 0);
	expect_pause(sock);
	close(sock);
	close(listening);
	end_close(&a);
}

/* IP3: a plain stream becomes RDMA after some bytes; a part of the Request was already read. */
static void ip3_a_plain_stream_becomes_rdma(void **state)
{
	(void)state;
	struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t bytes = sizeof(own);
	struct end a, b;
	uint8_t read_so_far[20];
	open_both(&a, &b);
	int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(listening, (struct sockaddr *)&own, sizeof(own)), 0);
	assert_int_equal(listen(listening, 1), 0);
	assert_int_equal(getsockname(listening, (struct sockaddr *)&own, &bytes), 0);
	int one = dial(ntohs(own.sin_port)), two = accept(listening, NULL, NULL);
	close(listening);
	assert_int_equal(send(one, "STARTRDMA\n", 10, 0), 10);
	assert_int_equal(recv(two, read_so_far, 10, MSG_WAITALL), 10);
	assert_int_equal(hdl_conn_adopt(a.adapter, a.qp, one, true, NULL, 0, &deep, &a, &a.conn),
	                 0);
	assert_int_equal(recv(two, read_so_far, 7, MSG_WAITALL), 7);
	assert_int_equal(
	        hdl_conn_adopt(b.adapter, NULL, two, false, read_so_far, 7, NULL, &b, &b.conn), 0);
	struct hdl_conn_event asked = end_event(&b, HDL_CONN_REQUEST);
	assert_ptr_equal(asked.conn, b.conn);
	assert_null(asked.listener);
	assert_int_equal(hdl_conn_accept(b.conn, b.qp, &deep, &b), 0);
	end_event(&b, HDL_CONN_ESTABLISHED);
	end_event(&a, HDL_CONN_ESTABLISHED);
	exchange(&a, &b, 100000);
	int pipes[2];
	assert_int_equal(pipe(pipes), 0);
	struct hdl_conn *none;
	assert_int_equal(
	        hdl_conn_adopt(a.adapter, NULL, pipes[0], false, NULL, 0, NULL, NULL, &none),
	        -HDL_EINVAL);
	close(pipes[0]);
	close(pipes[1]);
	close_both(&a, &b);
}

/* Who does not speak MPA is disconnected, and the program never hears of it. */
static void garbage_is_disconnected(void **state)
{
	(void)state;
	static const char *const garbage[] = {"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
	                                      "MPA ID Rep Frame\0\0\0\0", "M"};
	struct end b;
	struct hdl_conn_event event;
	uint16_t port;
	end_open(&b);
	struct hdl_listener *listener = listen_at(&b, &loopback, &port, 4);
	for (unsigned i = 0; i < 2; i++) {
		int sock = dial(port);
		assert_true(send(sock, garbage[i], 20, 0) == 20);
		assert_true(hangs_up(sock));
		close(sock);
	}
	/* One that leaves in the middle of its Request. */
	int sock = dial(port);
	assert_int_equal(send(sock, "MPA ID Re", 9, 0), 9);
	close(sock);
	assert_int_equal(hdl_conn_event_get(b.adapter, &event, 50), -HDL_EAGAIN);
	hdl_listener_close(listener);
	end_close(&b);
}

/* On the loopback any user can connect: another one is disconnected before it has said a word. */
static void other_users_are_refused(void **state)
{
	(void)state;
	struct end b;
	struct hdl_conn_event event;
	uint16_t port;
	if (geteuid() != 0)
		skip(); /* we cannot be somebody else */
	end_open(&b);
	struct hdl_listener *listener = listen_at(&b, &loopback, &port, 4);
	for (unsigned other = 0; other < 2; other++) {
		pid_t child = fork();
		if (child == 0) {
			uint8_t bytes[24];
			if (other && setuid(65534) != 0)
				_exit(2);
			int sock = dial(port);
			ssize_t sent =
			        send(sock, bytes, frame(bytes, "Req", 0x40, 1, 0, 0), MSG_NOSIGNAL);
			struct pollfd wait = {.fd = sock, .events = POLLIN};
			bool refused = sent < 0 || poll(&wait, 1, other ? WAIT_MS : 500) == 1;
			_exit(refused == other ? 0 : 1);
		}
		int status;
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_int_equal(status, 0);
	}
	/* The first left without an answer, the second was never heard. */
	assert_int_equal(hdl_conn_event_get(b.adapter, &event, 100), -HDL_EAGAIN);
	hdl_listener_close(listener);
	end_close(&b);
}

/* TCP_SILENT peers that say nothing do not keep the next one away. */
static void silence_makes_room_for_others(void **state)
{
	(void)state;
	static int socks[TCP_SILENT];
	struct end a, b;
	uint16_t port;
	open_both(&a, &b);
	struct hdl_listener *listener = listen_at(&b, &loopback, &port, 4);
	for (unsigned i = 0; i < TCP_SILENT; i++)
		socks[i] = dial(port);
	assert_int_equal(hdl_conn_connect(a.qp, NULL, NULL, &loopback, port, &deep, &a, &a.conn),
	                 0);
	struct hdl_conn_event asked = end_event(&b, HDL_CONN_REQUEST);
	assert_true(hangs_up(socks[0])); /* the oldest */
	struct pollfd still = {.fd = socks[TCP_SILENT - 1], .events = POLLIN};
	assert_int_equal(poll(&still, 1, 0), 0);
	hdl_conn_destroy(asked.conn);
	end_event(&a, HDL_CONN_REJECTED);
	hdl_listener_close(listener);
	for (unsigned i = 0; i < TCP_SILENT; i++)
		close(socks[i]);
	close_both(&a, &b);
}

/* Not more requests than the backlog are reported before one is answered. */
static void the_backlog_holds(void **state)
{
	(void)state;
	struct end a, b;
	struct hdl_conn_event first, second;
	struct hdl_conn *others[2];
	struct hdl_qp *qps[2];
	uint16_t port;
	open_both(&a, &b);
	struct hdl_listener *listener = listen_at(&b, &loopback, &port, 1);
	assert_int_equal(hdl_conn_connect(a.qp, NULL, NULL, &loopback, port, NULL, &a, &a.conn), 0);
	first = end_event(&b, HDL_CONN_REQUEST);
	for (unsigned i = 0; i < 2; i++) {
		qps[i] = end_qp(&a);
		assert_int_equal(
		        hdl_conn_connect(qps[i], NULL, NULL, &loopback, port, NULL, &a, &others[i]),
		        0);
	}
	assert_int_equal(hdl_conn_event_get(b.adapter, &second, 100), -HDL_EAGAIN);
	hdl_conn_destroy(first.conn);
	second = end_event(&b, HDL_CONN_REQUEST);
	hdl_conn_destroy(second.conn);
	for (unsigned i = 0; i < 2; i++) {
		hdl_conn_destroy(others[i]);
		hdl_qp_destroy(qps[i]);
	}
	hdl_listener_close(listener);
	close_both(&a, &b);
}

/* Descriptors are used up: peers wait, and are served when there are some again. */
static void descriptors_are_used_up(void **state)
{
	(void)state;
	struct rlimit before, few;
	struct end b;
	uint16_t port;
	end_open(&b);
	struct hdl_listener *listener = listen_at(&b, &loopback, &port, 4);
	int sock = dial(port), next = dup(sock);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	close(next);
	int late = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	few = (struct rlimit){(rlim_t)late + 1, before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	struct sockaddr_in to = {.sin_family = AF_INET,
	                         .sin_port = htons(port),
	                         .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	assert_int_equal(connect(late, (struct sockaddr *)&to, sizeof(to)), 0);
	assert_int_equal(send(late, "nonsense", 8, 0), 8);
	struct pollfd wait = {.fd = late, .events = POLLIN};
	assert_int_equal(poll(&wait, 1, 200), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_true(hangs_up(late));
	close(late);
	close(sock);
	hdl_listener_close(listener);
	end_close(&b);
}

static void wrong_calls_are_refused(void **state)
{
	(void)state;
	const struct hdl_gid elsewhere = {.raw = {[10] = 0xff, [11] = 0xff, [12] = 192, [14] = 2}};
	struct end a, b;
	struct hdl_listener *listener, *second;
	struct hdl_conn *conn;
	uint16_t port = 0;
	open_both(&a, &b);
	/* Closed by default: without a node, only the loopback. */
	assert_int_equal(hdl_listener_bind(a.adapter, &elsewhere, &port, NULL, &listener),
	                 -HDL_EHOSTUNREACH);
	assert_int_equal(hdl_listener_bind(a.adapter, NULL, &port, NULL, &listener),
	                 -HDL_EHOSTUNREACH);
	assert_int_equal(hdl_conn_connect(a.qp, NULL, NULL, &elsewhere, 1, NULL, NULL, &conn),
	                 -HDL_EHOSTUNREACH);
	listener = listen_at(&a, &loopback, &port, 4);
	assert_int_equal(hdl_listener_listen(listener, 4), -HDL_EINVAL);
	assert_int_equal(hdl_listener_bind(b.adapter, &loopback, &port, NULL, &second),
	                 -HDL_EADDRINUSE);
	assert_int_equal(hdl_conn_connect(b.qp, listener, NULL, &loopback, port, NULL, NULL, &conn),
	                 -HDL_EINVAL); /* of another adapter, and it listens */
	assert_int_equal(hdl_conn_connect(a.qp, NULL, NULL, &loopback, 0, NULL, NULL, &conn),
	                 -HDL_EINVAL);
	const struct hdl_qp_attr reset = {.state = HDL_QPS_RESET};
	assert_int_equal(hdl_qp_modify(b.qp, &reset, HDL_QP_STATE), 0);
	assert_int_equal(hdl_conn_connect(b.qp, NULL, NULL, &loopback, port, NULL, NULL, &conn),
	                 -HDL_EPERM);
	assert_int_equal(hdl_close(a.adapter), -HDL_EBUSY);
	assert_int_equal(hdl_listener_close(listener), 0);
	close_both(&a, &b);
}

/* A queue pair has one connection, whichever end it is. */
static void ip9_a_connected_queue_pair_is_taken(void **state)
{
	(void)state;
	struct end a, b;
	struct hdl_conn *conn;
	uint16_t port;
	open_both(&a, &b);
	join(&a, &b, &loopback, &deep, &deep);
	struct hdl_listener *listener = listen_at(&b, &loopback, &port, 4);
	assert_int_equal(hdl_conn_connect(a.qp, NULL, NULL, &loopback, port, NULL, NULL, &conn),
	                 -HDL_EPERM);
	struct hdl_qp *other = end_qp(&a);
	assert_int_equal(hdl_conn_connect(other, NULL, NULL, &loopback, port, NULL, &a, &conn), 0);
	struct hdl_conn_event asked = end_event(&b, HDL_CONN_REQUEST);
	assert_int_equal(hdl_conn_accept(asked.conn, b.qp, NULL, NULL), -HDL_EPERM);
	exchange(&a, &b, 5000); /* which harms nobody */
	assert_int_equal(hdl_conn_destroy(asked.conn), 0);
	end_event(&a, HDL_CONN_REJECTED);
	assert_int_equal(hdl_conn_destroy(conn), 0);
	assert_int_equal(hdl_qp_destroy(other), 0);
	assert_int_equal(hdl_listener_close(listener), 0);
	close_both(&a, &b);
}

/* Also by one that is being set up, whichever end it is, until that has failed. */
static void ip9_a_queue_pair_has_one_attempt(void **state)
{
	(void)state;
	struct end a, b;
	struct hdl_conn *second;
	struct hdl_listener *listener;
	uint16_t port;
	open_both(&a, &b);
	listener = listen_at(&b, &loopback, &port, 4);
	for (unsigned round = 0; round < 2; round++) {
		assert_int_equal(
		        hdl_conn_connect(a.qp, NULL, NULL, &loopback, port, &deep, &a, &a.conn), 0);
		assert_int_equal(
		        hdl_conn_connect(a.qp, NULL, NULL, &loopback, port, &deep, &a, &second),
		        -HDL_EPERM);
		b.conn = end_event(&b, HDL_CONN_REQUEST).conn;
		if (round == 0) { /* its end makes room for the next one */
			assert_int_equal(hdl_conn_destroy(a.conn), 0);
			assert_int_equal(hdl_conn_destroy(b.conn), 0);
		}
	}
	/* Two are asked for at the same time: the queue pair of the first is not the second's. */
	struct hdl_qp *other = end_qp(&a);
	assert_int_equal(hdl_conn_connect(other, NULL, NULL, &loopback, port, &deep, &a, &second),
	                 0);
	struct hdl_conn *asked = end_event(&b, HDL_CONN_REQUEST).conn;
	assert_int_equal(hdl_conn_accept(b.conn, b.qp, &deep, &b), 0);
	assert_int_equal(hdl_conn_accept(asked, b.qp, &deep, &b), -HDL_EPERM);
	end_event(&b, HDL_CONN_ESTABLISHED);
	end_event(&a, HDL_CONN_ESTABLISHED);
	exchange(&a, &b, 5000);
	/* A queue pair that goes takes nothing along that is not its own. */
	assert_int_equal(hdl_qp_destroy(other), 0);
	assert_int_equal(hdl_conn_destroy(asked), 0);
	assert_int_equal(hdl_conn_destroy(second), 0);
	assert_int_equal(hdl_listener_close(listener), 0);
	close_both(&a, &b);
}

/* The port that a listener holds is the source of the connection. */
static void a_bound_port_connects(void **state)
{
	(void)state;
	struct end a, b;
	struct hdl_listener *source;
	uint16_t port, own = 0;
	open_both(&a, &b);
	struct hdl_listener *listener = listen_at(&b, &loopback, &port, 4);
	assert_int_equal(hdl_listener_bind(a.adapter, &loopback, &own, NULL, &source), 0);
	assert_int_equal(hdl_conn_connect(a.qp, source, NULL, &loopback, port, &deep, &a, &a.conn),
	                 0);
	struct hdl_conn_event asked = end_event(&b, HDL_CONN_REQUEST);
	assert_int_equal(asked.peer_port, own);
	assert_int_equal(hdl_conn_accept(b.conn = asked.conn, b.qp, &deep, &b), 0);
	end_event(&a, HDL_CONN_ESTABLISHED);
	end_event(&b, HDL_CONN_ESTABLISHED);
	assert_int_equal(hdl_listener_close(source), 0);
	exchange(&a, &b, 1000);
	hdl_listener_close(listener);
	close_both(&a, &b);
}

/* In a child of fork() the connection is the parent's, and goes on when the child ends. */
static void a_child_does_not_disturb(void **state)
{
	(void)state;
	struct end a, b;
	open_both(&a, &b);
	join(&a, &b, &loopback, &deep, &deep);
	pid_t child = fork();
	if (child == 0)
		_exit(hdl_conn_disconnect(a.conn) == -HDL_EINVAL ? 0 : 1);
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	exchange(&a, &b, 100000);
	close_both(&a, &b);
}

static void count_call(void *context)
{
	atomic_fetch_add((_Atomic int *)context, 1);
}

/* The adapter's thread tells that there is an event, whoever caused it. */
static void the_handler_is_called(void **state)
{
	(void)state;
	_Atomic int calls = 0;
	struct end a, b;
	open_both(&a, &b);
	assert_int_equal(hdl_conn_notify(b.adapter, count_call, &calls), 0);
	uint16_t port;
	struct hdl_listener *listener = listen_at(&b, &loopback, &port, 4);
	assert_int_equal(hdl_conn_connect(a.qp, NULL, NULL, &loopback, port, NULL, &a, &a.conn), 0);
	for (unsigned i = 0; i < WAIT_MS && atomic_load(&calls) == 0; i++)
		usleep(1000);
	assert_int_equal(atomic_load(&calls), 1);
	hdl_conn_destroy(end_event(&b, HDL_CONN_REQUEST).conn);
	end_event(&a, HDL_CONN_REJECTED);
	assert_int_equal(hdl_conn_notify(b.adapter, NULL, NULL), 0);
	hdl_listener_close(listener);
	close_both(&a, &b);
}

/* IP1: what has come before a reset counts, even if the program has to post receives first. */
static void what_comes_before_a_reset_counts(void **state)
{
	struct end a, b;
	(void)state;
	open_both(&a, &b);
	join(&a, &b, &loopback, &deep, &deep);
	fill(&a, 9);
	for (uint32_t i = 0; i < 3; i++) {
		end_post(&a, HDL_OP_SEND, i, i * 1000, 1000, NULL, 0);
		end_expect(&a, i);
	}
	adapter_lock(a.adapter);
	conn_abort(a.conn, -HDL_EIO);
	adapter_unlock(a.adapter);
	end_event(&a, HDL_CONN_CLOSED);
	uint64_t until = clock_now_ns() + 50000000u; /* b hears of the reset */
	while (clock_now_ns() < until)
		hdl_progress(b.adapter);
	assert_int_equal(state_of(&b), HDL_QPS_RTS);
	for (uint32_t i = 0; i < 4; i++)
		end_receive(&b, i, i * 1000, 1000);
	for (uint32_t i = 0; i < 3; i++)
		end_expect(&b, i);
	assert_memory_equal(a.memory, b.memory, 3000);
	assert_int_equal(end_wc(&b).status, HDL_WC_WR_FLUSH_ERR);
	struct hdl_conn_event over = end_event(&b, HDL_CONN_CLOSED);
	assert_int_not_equal(over.error, 0);
	close_both(&a, &b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(ip1_messages_pass_over_tcp),
	        cmocka_unit_test(ip1_every_wish_of_mpa_works),
	        cmocka_unit_test(ip1_ipv6_works),
	        cmocka_unit_test(private_data_and_depths_are_agreed),
	        cmocka_unit_test(a_request_is_rejected_with_data),
	        cmocka_unit_test(nobody_listens),
	        cmocka_unit_test(disconnecting_loses_nothing),
	        cmocka_unit_test(objects_end_in_any_order),
	        cmocka_unit_test(a_bad_tag_ends_the_connection),
	        cmocka_unit_test(a_responder_pauses_before_it_speaks),
	        cmocka_unit_test(an_initiator_pauses_after_the_reply),
	        cmocka_unit_test(ip3_a_plain_stream_becomes_rdma),
	        cmocka_unit_test(garbage_is_disconnected),
	        cmocka_unit_test(other_users_are_refused),
	        cmocka_unit_test(silence_makes_room_for_others),
	        cmocka_unit_test(the_backlog_holds),
	        cmocka_unit_test(descriptors_are_used_up),
	        cmocka_unit_test(wrong_calls_are_refused),
	        cmocka_unit_test(ip9_a_connected_queue_pair_is_taken),
	        cmocka_unit_test(ip9_a_queue_pair_has_one_attempt),
	        cmocka_unit_test(a_bound_port_connects),
	        cmocka_unit_test(a_child_does_not_disturb),
	        cmocka_unit_test(the_handler_is_called),
	        cmocka_unit_test(what_comes_before_a_reset_counts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
