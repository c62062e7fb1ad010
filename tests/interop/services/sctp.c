/* IP9, IP5: RDMA over SCTP (RFC 5043) through the public calls: two adapters, and two processes, on
 * two addresses of the loopback. */
#include "end.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct hdl_gid first = {.raw = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};
static const struct hdl_gid second = {.raw = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 2}};
static const struct hdl_conn_param on_sctp = {.service = HDL_CONN_RDMA_SCTP,
                                              .ird = 8,
                                              .ord = 8,
                                              .private_data = "hello",
                                              .private_bytes = 5};

static struct end a, b;

static struct hdl_listener *listen_sctp(struct end *e, uint16_t *port)
{
	struct hdl_listener *listener;
	assert_int_equal(hdl_listener_bind(e->adapter, &second, port, NULL, &listener), 0);
	assert_int_equal(hdl_listener_serve(listener, HDL_CONN_RDMA_SCTP), 0);
	assert_int_equal(hdl_listener_listen(listener, 4), 0);
	return listener;
}

static void connect_sctp(struct end *e, uint16_t port)
{
	assert_int_equal(
	        hdl_conn_connect(e->qp, NULL, &first, &second, port, &on_sctp, NULL, &e->conn), 0);
}

static void accept_sctp(struct end *e)
{
	struct hdl_conn_event event = end_event(e, HDL_CONN_REQUEST);
	assert_int_equal(event.private_bytes, 5);
	assert_memory_equal(event.private_data, "hello", 5);
	assert_memory_equal(event.peer.raw, first.raw, 16);
	assert_memory_equal(event.own.raw, second.raw, 16);
	assert_int_equal(event.ird, 8);
	e->conn = event.conn;
	const struct hdl_conn_param answer = {
	        .ird = 4, .ord = 8, .private_data = "welcome", .private_bytes = 7};
	assert_int_equal(hdl_conn_accept(e->conn, e->qp, &answer, NULL), 0);
	end_event(e, HDL_CONN_ESTABLISHED);
}

static void join(uint16_t *port, struct hdl_listener **listener)
{
	*port = 0;
	end_open(&a, HDL_QP_RC);
	end_open(&b, HDL_QP_RC);
	*listener = listen_sctp(&b, port);
	connect_sctp(&a, *port);
	accept_sctp(&b);
	struct hdl_conn_event event = end_event(&a, HDL_CONN_ESTABLISHED);
	assert_int_equal(event.private_bytes, 7);
	assert_memory_equal(event.private_data, "welcome", 7);
	assert_int_equal(event.ord, 4);
	assert_int_equal(event.ird, 8);
}

static void post(struct end *e, enum hdl_opcode opcode, uint64_t id, size_t offset, uint32_t length,
                 uint64_t addr, struct hdl_key key)
{
	struct hdl_sge sge = {(uint64_t)(uintptr_t)e->memory + offset, length, hdl_mr_key(e->mr)};
	struct hdl_send_wr wr = {.wr_id = id,
	                         .opcode = opcode,
	                         .flags = HDL_SEND_SIGNALED,
	                         .sg_list = &sge,
	                         .num_sge = 1};
	wr.u.rdma.addr = addr;
	wr.u.rdma.key = key;
	assert_int_equal(hdl_post_send(e->qp, &wr, NULL), 0);
}

/* A completion of @e, while the other end is driven, too. */
static void expect(struct end *e, uint64_t id)
{
	struct hdl_wc wc = end_wc(e);
	assert_int_equal(wc.status, HDL_WC_SUCCESS);
	assert_int_equal(wc.wr_id, id);
}

static void fill(struct end *e, uint8_t seed)
{
	for (size_t i = 0; i < END_BYTES; i++)
		e->memory[i] = (uint8_t)(i * 7 + i / 255 + seed);
}

static uint64_t address(const struct end *e, size_t offset)
{
	return (uint64_t)(uintptr_t)e->memory + offset;
}

static void post_wr(struct end *e, struct hdl_send_wr wr)
{
	wr.flags |= HDL_SEND_SIGNALED;
	assert_int_equal(hdl_post_send(e->qp, &wr, NULL), 0);
}

/* A write that says at once that it is there, and both atomics. */
static void immediate_data_and_atomics(void)
{
	uint64_t *word = (uint64_t *)(void *)(b.memory + 8192), *old = (uint64_t *)(void *)a.memory;
	struct hdl_sge piece = {address(&a, 64), 100, hdl_mr_key(a.mr)};
	end_receive(&b, 20, 0, 0);
	post_wr(&a, (struct hdl_send_wr){.wr_id = 21,
	                                 .opcode = HDL_OP_WRITE_IMM,
	                                 .sg_list = &piece,
	                                 .num_sge = 1,
	                                 .imm = 0x01020304,
	                                 .u.rdma = {address(&b, 4096), hdl_mr_key(b.mr)}});
	expect(&a, 21);
	struct hdl_wc wc = end_wc(&b);
	assert_int_equal(wc.status, HDL_WC_SUCCESS);
	assert_int_equal(wc.opcode, HDL_WC_RECV_WRITE_IMM);
	assert_int_equal(wc.imm, 0x01020304);
	assert_int_equal(wc.byte_len, 100);
	assert_memory_equal(b.memory + 4096, a.memory + 64, 100);
	piece = (struct hdl_sge){address(&a, 0), 8, hdl_mr_key(a.mr)};
	*word = 40;
	post_wr(&a, (struct hdl_send_wr){.wr_id = 22,
	                                 .opcode = HDL_OP_FETCH_ADD,
	                                 .sg_list = &piece,
	                                 .num_sge = 1,
	                                 .u.atomic = {.addr = address(&b, 8192),
	                                              .key = hdl_mr_key(b.mr),
	                                              .compare_add = 2}});
	expect(&a, 22);
	assert_true(*old == 40 && *word == 42);
	for (uint64_t i = 0; i < 2; i++) { /* the second finds another value */
		post_wr(&a, (struct hdl_send_wr){.wr_id = 23 + i,
		                                 .opcode = HDL_OP_COMPARE_SWAP,
		                                 .sg_list = &piece,
		                                 .num_sge = 1,
		                                 .u.atomic = {.addr = address(&b, 8192),
		                                              .key = hdl_mr_key(b.mr),
		                                              .compare_add = 42,
		                                              .swap = 7 + i}});
		expect(&a, 23 + i);
		assert_true(*old == (i == 0 ? 42 : 7) && *word == 7);
	}
}

/* Requests that give keys and take them away: a bound window, and pages that are registered and
 * told of in one request. */
static void keys_by_request(void)
{
	struct hdl_mr *bindable, *pages;
	struct hdl_mw *mw;
	uint64_t page = (address(&b, 0) + 4095) & ~4095ull;
	assert_int_equal(
	        hdl_mr_register(b.pd, b.memory, 65536,
	                        HDL_ACCESS_LOCAL_WRITE | HDL_ACCESS_LOCAL_READ | HDL_ACCESS_BIND,
	                        &bindable),
	        0);
	assert_int_equal(hdl_mw_alloc(b.pd, HDL_MW_TYPE_2, &mw), 0);
	struct hdl_key key = hdl_mw_draw_key(mw);
	post_wr(&b, (struct hdl_send_wr){.wr_id = 30,
	                                 .opcode = HDL_OP_BIND,
	                                 .bind = {mw,
	                                          key,
	                                          {.mr = bindable,
	                                           .access = HDL_ACCESS_REMOTE_WRITE,
	                                           .addr = address(&b, 100),
	                                           .length = 5000}}});
	expect(&b, 30);
	memset(b.memory, 0, 8192);
	post(&a, HDL_OP_WRITE, 31, 64, 5000, address(&b, 100), key);
	end_receive(&b, 32, 1 << 20, 16);
	post_wr(&a, (struct hdl_send_wr){
	                    .wr_id = 33, .opcode = HDL_OP_SEND_INVALIDATE, .invalidate_key = key});
	expect(&a, 31);
	expect(&a, 33);
	struct hdl_wc wc = end_wc(&b);
	assert_int_equal(wc.flags, HDL_WC_WITH_INVALIDATE);
	assert_int_equal(wc.imm, key.v);
	assert_memory_equal(b.memory + 100, a.memory + 64, 5000);
	assert_int_equal(hdl_mr_alloc(b.pd, 1, &pages), 0);
	key = hdl_mr_draw_key(pages);
	end_receive(&a, 34, 1 << 20, 16);
	struct hdl_send_wr reg = {.wr_id = 35,
	                          .opcode = HDL_OP_REGISTER_SEND,
	                          .reg = {pages,
	                                  key,
	                                  {.pages = &page,
	                                   .num_pages = 1,
	                                   .page_shift = 12,
	                                   .length = 4096,
	                                   .access = HDL_ACCESS_REMOTE_READ}}};
	post_wr(&b, reg);
	expect(&b, 35);
	expect(&a, 34);
	post(&a, HDL_OP_READ, 36, 1 << 20, 4096, 0, key);
	expect(&a, 36);
	assert_memory_equal(a.memory + (1 << 20), (void *)(uintptr_t)page, 4096);
	post_wr(&b, (struct hdl_send_wr){
	                    .wr_id = 37, .opcode = HDL_OP_INVALIDATE, .invalidate_key = key});
	expect(&b, 37);
	assert_int_equal(hdl_mr_deregister(pages), 0);
	assert_int_equal(hdl_mw_free(mw), 0);
	assert_int_equal(hdl_mr_deregister(bindable), 0);
}

/* IP8: more reads than the other end answers at a time (4). They wait, and complete in order. */
static void more_reads_than_are_answered(void)
{
	for (unsigned i = 0; i < 16; i++)
		post(&a, HDL_OP_READ, 40 + i, (1 << 20) + i * 40000, 40000, address(&b, i * 1000),
		     hdl_mr_key(b.mr));
	for (unsigned i = 0; i < 16; i++) {
		expect(&a, 40 + i);
		assert_memory_equal(a.memory + (1 << 20) + i * 40000, b.memory + i * 1000, 40000);
	}
}

static void ip9_every_operation_over_sctp(void **state)
{
	(void)state;
	static const uint32_t sizes[] = {0, 1, 100, 5000, 16384, 100000, 1 << 20};
	struct hdl_listener *listener;
	uint16_t port;
	join(&port, &listener);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint32_t size = sizes[i];
		fill(&a, (uint8_t)i);
		memset(b.memory, 0, END_BYTES);
		end_receive(&b, 10, 2 << 20, size + 1);
		end_send(&a, 11, 3, size);
		expect(&a, 11);
		struct hdl_wc wc = end_wc(&b);
		assert_int_equal(wc.status, HDL_WC_SUCCESS);
		assert_int_equal(wc.byte_len, size);
		assert_memory_equal(b.memory + (2 << 20), a.memory + 3, size);
		/* A write, and a message that says that it is there. */
		end_receive(&b, 12, 0, 8);
		post(&a, HDL_OP_WRITE, 13, 5, size, (uint64_t)(uintptr_t)b.memory + 4096,
		     hdl_mr_key(b.mr));
		end_send(&a, 14, 0, 8);
		expect(&a, 13);
		expect(&a, 14);
		expect(&b, 12);
		assert_memory_equal(b.memory + 4096, a.memory + 5, size);
		post(&a, HDL_OP_READ, 15, 2 << 20, size, (uint64_t)(uintptr_t)b.memory + 4096,
		     hdl_mr_key(b.mr));
		expect(&a, 15);
		assert_memory_equal(a.memory + (2 << 20), b.memory + 4096, size);
	}
	immediate_data_and_atomics();
	keys_by_request();
	more_reads_than_are_answered();
	/* Many at once, both ways. */
	for (unsigned i = 0; i < 32; i++) {
		end_receive(&a, i, i * 1000, 1000);
		end_receive(&b, i, i * 1000, 1000);
	}
	for (unsigned i = 0; i < 32; i++) {
		end_send(&a, 100 + i, 1 << 20, 900);
		end_send(&b, 100 + i, 1 << 20, 800);
	}
	for (unsigned i = 0; i < 64; i++) {
		assert_int_equal(end_wc(&a).status, HDL_WC_SUCCESS);
		assert_int_equal(end_wc(&b).status, HDL_WC_SUCCESS);
	}
	/* The end, in order. */
	assert_int_equal(hdl_conn_disconnect(a.conn), 0);
	assert_int_equal(end_event(&a, HDL_CONN_CLOSED).error, 0);
	assert_int_equal(end_event(&b, HDL_CONN_CLOSED).error, 0);
	assert_int_equal(hdl_listener_close(listener), 0);
	end_close(&a);
	end_close(&b);
}

/* A tag that was never granted: the peer says why, and both ends end. */
static void ip4_a_bad_tag_ends_the_session(void **state)
{
	(void)state;
	struct hdl_listener *listener;
	uint16_t port;
	join(&port, &listener);
	post(&a, HDL_OP_READ, 1, 0, 8, (uint64_t)(uintptr_t)b.memory,
	     (struct hdl_key){hdl_mr_key(b.mr).v ^ 1});
	struct hdl_wc wc = end_wc(&a);
	assert_int_equal(wc.status, HDL_WC_REM_ACCESS_ERR);
	end_event(&a, HDL_CONN_CLOSED);
	end_event(&b, HDL_CONN_CLOSED);
	assert_int_equal(hdl_listener_close(listener), 0);
	end_close(&a);
	end_close(&b);
}

/* IP5: one-touch memory takes one message, of however many segments, in whatever order these come;
 * the next one ends the session. So does the answer to a read, into memory of one's own. */
static void ip5_one_touch_over_sctp(void **state)
{
	(void)state;
	struct hdl_listener *listener;
	uint16_t port;
	for (unsigned way = 0; way < 3; way++) {
		struct hdl_mr *once;
		join(&port, &listener);
		struct end *owner = way == 2 ? &a : &b;
		assert_int_equal(hdl_mr_register(owner->pd, owner->memory, 1 << 20,
		                                 HDL_ACCESS_LOCAL_WRITE | HDL_ACCESS_REMOTE_WRITE |
		                                         HDL_ACCESS_REMOTE_READ |
		                                         HDL_ACCESS_ONE_TOUCH,
		                                 &once),
		                 0);
		fill(way == 0 ? &a : &b, 3);
		for (unsigned i = 0; i < 2; i++) {
			struct hdl_sge piece = {address(&a, way == 2 ? 0 : 2 << 20), 300000,
			                        hdl_mr_key(way == 2 ? once : a.mr)};
			post_wr(&a,
			        (struct hdl_send_wr){
			                .wr_id = i,
			                .opcode = way == 0 && i == 0 ? HDL_OP_WRITE : HDL_OP_READ,
			                .sg_list = &piece,
			                .num_sge = 1,
			                .u.rdma = {address(&b, 0),
			                           hdl_mr_key(way == 2 ? b.mr : once)}});
			struct hdl_wc wc = end_wc(&a);
			assert_int_equal(wc.wr_id, i);
			assert_int_equal(wc.status, i == 0     ? HDL_WC_SUCCESS
			                            : way == 2 ? HDL_WC_LOC_PROT_ERR
			                                       : HDL_WC_REM_ACCESS_ERR);
		}
		/* A write is in place when what was asked behind it has been answered. */
		assert_memory_equal(a.memory + (way == 2 ? 0 : 2 << 20), b.memory, 300000);
		end_event(&a, HDL_CONN_CLOSED);
		end_event(&b, HDL_CONN_CLOSED);
		assert_int_equal(hdl_mr_deregister(once), 0);
		assert_int_equal(hdl_listener_close(listener), 0);
		end_close(&a);
		end_close(&b);
	}
}

static void rejections_and_nobody(void **state)
{
	(void)state;
	uint16_t port = 0;
	end_open(&a, HDL_QP_RC);
	end_open(&b, HDL_QP_RC);
	struct hdl_listener *listener = listen_sctp(&b, &port);
	connect_sctp(&a, port);
	struct hdl_conn_event event = end_event(&b, HDL_CONN_REQUEST);
	assert_int_equal(hdl_conn_reject(event.conn, "no", 2), 0);
	struct hdl_conn_event no = end_event(&a, HDL_CONN_REJECTED);
	assert_int_equal(no.private_bytes, 2);
	assert_memory_equal(no.private_data, "no", 2);
	assert_int_equal(hdl_conn_destroy(a.conn), 0);
	end_event(&b, HDL_CONN_CLOSED);
	assert_int_equal(hdl_conn_destroy(event.conn), 0);
	/* Nobody has this SCTP port. */
	connect_sctp(&a, port == 65535 ? 1 : (uint16_t)(port + 1));
	assert_int_equal(end_event(&a, HDL_CONN_FAILED).error, -HDL_ECONNREFUSED);
	assert_int_equal(hdl_listener_close(listener), 0);
	end_close(&a);
	end_close(&b);
}

/* --- two processes --- */

struct card {
	uint64_t addr;
	struct hdl_key key;
	uint16_t port;
};

/* The second process: accepts, tells where its memory is, and lives until it is told to die. */
static void serve(int talk)
{
	struct hdl_listener *listener;
	uint16_t port = 0;
	char go;
	end_open(&b, HDL_QP_RC);
	assert_int_equal(hdl_listener_bind(b.adapter, &second, &port, NULL, &listener), 0);
	assert_int_equal(hdl_listener_serve(listener, HDL_CONN_RDMA_SCTP), 0);
	assert_int_equal(hdl_listener_listen(listener, 4), 0);
	struct card card = {(uint64_t)(uintptr_t)b.memory, hdl_mr_key(b.mr), port};
	assert_int_equal(write(talk, &card, sizeof(card)), sizeof(card));
	for (unsigned i = 0; i < 16; i++)
		end_receive(&b, i, (1 << 20) + i * 4096, 4096);
	accept_sctp(&b);
	for (unsigned i = 0; i < 16; i++) {
		struct hdl_wc wc = end_wc(&b);
		assert_int_equal(wc.status, HDL_WC_SUCCESS);
		end_send(&b, 100 + i, (1 << 20) + i * 4096, wc.byte_len);
		assert_int_equal(end_wc(&b).status, HDL_WC_SUCCESS);
	}
	assert_int_equal(read(talk, &go, 1), 0); /* until it is killed */
}

static void ip9_two_processes(void **state)
{
	(void)state;
	int talk[2];
	struct card card;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, talk), 0);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		close(talk[0]);
		serve(talk[1]);
		_exit(0);
	}
	close(talk[1]);
	end_open(&a, HDL_QP_RC);
	assert_int_equal(read(talk[0], &card, sizeof(card)), sizeof(card));
	fill(&a, 9);
	connect_sctp(&a, card.port);
	end_event(&a, HDL_CONN_ESTABLISHED);
	post(&a, HDL_OP_WRITE, 1, 0, 500000, card.addr, card.key);
	expect(&a, 1);
	post(&a, HDL_OP_READ, 2, 1 << 20, 500000, card.addr, card.key);
	expect(&a, 2);
	assert_memory_equal(a.memory, a.memory + (1 << 20), 500000);
	for (unsigned i = 0; i < 16; i++) {
		end_receive(&a, 50 + i, (3 << 20) + i * 4096, 4096);
		end_send(&a, i, i * 100, 4000 - i);
		for (unsigned n = 0; n < 2; n++)
			assert_int_equal(end_wc(&a).status, HDL_WC_SUCCESS);
		assert_memory_equal(a.memory + (3 << 20) + i * 4096, a.memory + i * 100, 4000 - i);
	}
	/* It dies without a word. SCTP notices by its timers: requests that it would have to answer
	 * fail. */
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	close(talk[0]);
	post(&a, HDL_OP_READ, 3, 1 << 20, 8, card.addr, card.key);
	struct hdl_conn_event event;
	assert_int_equal(hdl_conn_event_get(a.adapter, &event, 60000), 0);
	assert_int_equal(event.type, HDL_CONN_CLOSED);
	assert_int_equal(event.error, -HDL_EIO);
	assert_int_equal(end_wc(&a).status, HDL_WC_WR_FLUSH_ERR);
	end_close(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(ip9_two_processes), /* before this one has threads */
	        cmocka_unit_test(ip9_every_operation_over_sctp),
	        cmocka_unit_test(ip4_a_bad_tag_ends_the_session),
	        cmocka_unit_test(ip5_one_touch_over_sctp),
	        cmocka_unit_test(rejections_and_nobody),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
