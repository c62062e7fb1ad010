/* Heddle's side of sctp_kernel.py: a queue pair over SCTP, with sctp_peer.c on the SCTP of another
 * kernel as its peer. Usage: sctp-kernel accept OWN | connect OWN PEER PORT. Prints the port that
 * it listens on. */
#include "end.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES 10000u
#define STAG  0x12345678u

static struct end e;

static struct hdl_gid gid_of(const char *text)
{
	struct hdl_gid gid = {.raw = {[10] = 0xff, [11] = 0xff}};
	if (inet_pton(AF_INET, text, gid.raw + 12) != 1)
		assert_int_equal(inet_pton(AF_INET6, text, gid.raw), 1);
	return gid;
}

static uint8_t pattern(size_t i)
{
	return (uint8_t)(i * 11 + i / 253);
}

static void put(uint8_t *p, uint64_t v, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		p[i] = (uint8_t)(v >> 8 * (bytes - 1 - i));
}

static void expect(uint64_t id, uint32_t bytes)
{
	struct hdl_wc wc = end_wc(&e);
	assert_int_equal(wc.status, HDL_WC_SUCCESS);
	assert_int_equal(wc.wr_id, id);
	assert_int_equal(wc.byte_len, bytes);
}

static void do_accept(const char *own)
{
	struct hdl_gid gid = gid_of(own);
	struct hdl_listener *listener;
	uint16_t port = 0;
	assert_int_equal(hdl_listener_bind(e.adapter, &gid, &port, NULL, &listener), 0);
	assert_int_equal(hdl_listener_serve(listener, HDL_CONN_RDMA_SCTP), 0);
	assert_int_equal(hdl_listener_listen(listener, 4), 0);
	end_receive(&e, 1, 1 << 20, 100);
	end_receive(&e, 2, 2 << 20, 100);
	printf("%u\n", port);
	fflush(stdout);
	struct hdl_conn_event event = end_event(&e, HDL_CONN_REQUEST);
	assert_int_equal(event.private_bytes, 6);
	assert_memory_equal(event.private_data, "kernel", 6);
	assert_int_equal(event.ird, 4);
	e.conn = event.conn;
	const struct hdl_conn_param param = {.ird = 4, .ord = 4};
	assert_int_equal(hdl_conn_accept(e.conn, e.qp, &param, NULL), 0);
	end_event(&e, HDL_CONN_ESTABLISHED);
	/* The peer learns where it may write, and does, from the last segment to the first. */
	put(e.memory, (uint64_t)(uintptr_t)e.memory + 4096, 8);
	put(e.memory + 8, hdl_mr_key(e.mr).v, 4);
	end_send(&e, 10, 0, 16);
	expect(10, 16);
	expect(1, 7);
	assert_memory_equal(e.memory + (1 << 20), "written", 7);
	for (size_t i = 0; i < BYTES; i++)
		assert_int_equal(e.memory[4096 + i], pattern(i));
	for (size_t i = 0; i < 12345; i++)
		e.memory[(3 << 20) + i] = pattern(i);
	end_send(&e, 11, 3 << 20, 12345);
	expect(11, 12345);
	expect(2, 4);
	assert_memory_equal(e.memory + (2 << 20), "good", 4);
	assert_int_equal(hdl_conn_disconnect(e.conn), 0);
	assert_int_equal(end_event(&e, HDL_CONN_CLOSED).error, 0);
	assert_int_equal(hdl_listener_close(listener), 0);
}

static void post(enum hdl_opcode opcode, uint64_t id, size_t offset, uint32_t length, uint64_t addr)
{
	struct hdl_sge sge = {(uint64_t)(uintptr_t)e.memory + offset, length, hdl_mr_key(e.mr)};
	struct hdl_send_wr wr = {.wr_id = id,
	                         .opcode = opcode,
	                         .flags = HDL_SEND_SIGNALED,
	                         .sg_list = &sge,
	                         .num_sge = 1};
	wr.u.rdma.addr = addr;
	wr.u.rdma.key = (struct hdl_key){STAG};
	assert_int_equal(hdl_post_send(e.qp, &wr, NULL), 0);
}

static void do_connect(const char *own, const char *peer, uint16_t port)
{
	struct hdl_gid from = gid_of(own), to = gid_of(peer);
	const struct hdl_conn_param param = {.service = HDL_CONN_RDMA_SCTP,
	                                     .ird = 4,
	                                     .ord = 4,
	                                     .private_data = "heddle",
	                                     .private_bytes = 6};
	end_receive(&e, 1, 1 << 20, 100);
	end_receive(&e, 2, 2 << 20, 100);
	assert_int_equal(hdl_conn_connect(e.qp, NULL, &from, &to, port, &param, NULL, &e.conn), 0);
	end_event(&e, HDL_CONN_ESTABLISHED);
	for (size_t i = 0; i < BYTES; i++)
		e.memory[i] = pattern(i);
	post(HDL_OP_WRITE, 10, 0, BYTES, 0);
	expect(10, BYTES);
	post(HDL_OP_READ, 11, 3 << 20, 5000,
	     2000); /* answered from the last segment to the first */
	expect(11, 5000);
	for (size_t i = 0; i < 5000; i++)
		assert_int_equal(e.memory[(3 << 20) + i], pattern(2000 + i));
	memcpy(e.memory + 20000, "done", 4);
	end_send(&e, 12, 20000, 4);
	expect(12, 4);
	expect(1, 4); /* the Send after it was sent first */
	expect(2, 3);
	assert_memory_equal(e.memory + (1 << 20), "good", 4);
	assert_memory_equal(e.memory + (2 << 20), "bye", 3);
	assert_int_equal(hdl_conn_disconnect(e.conn), 0);
	assert_int_equal(end_event(&e, HDL_CONN_CLOSED).error, 0);
}

static char **words;

static void run(void **state)
{
	(void)state;
	end_open_on(&e, HDL_QP_RC, true);
	if (words[1][0] == 'a')
		do_accept(words[2]);
	else
		do_connect(words[2], words[3], (uint16_t)atoi(words[4]));
	end_close(&e);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(run)};
	words = argv;
	if (argc < 3)
		return 2;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
