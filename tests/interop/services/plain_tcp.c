/* IP9, figure 10: plain TCP on queue pairs, with programs as peers that know nothing of it: curl
 * fetches from a queue pair and posts to one, a queue pair talks to netcat. */
#include "end.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BODY (3u << 20)

static struct end server;

static struct hdl_listener *listen_plain(struct end *e, uint16_t *port)
{
	struct hdl_listener *listener;
	*port = 0;
	assert_int_equal(hdl_listener_bind(e->adapter, &end_loopback, port, NULL, &listener), 0);
	assert_int_equal(hdl_listener_serve(listener, HDL_CONN_TCP), 0);
	assert_int_equal(hdl_listener_listen(listener, 4), 0);
	assert_int_equal(hdl_listener_serve(listener, HDL_CONN_TCP), -HDL_EPERM);
	return listener;
}

static void accept_one(struct end *e)
{
	struct hdl_conn_event event = end_event(e, HDL_CONN_REQUEST);
	assert_int_equal(event.private_bytes, 0);
	e->conn = event.conn;
	assert_int_equal(hdl_conn_accept(e->conn, e->qp, NULL, NULL), 0);
	end_event(e, HDL_CONN_ESTABLISHED);
}

/* Receive until @what has come; bytes go to the beginning of the memory. Returns how many. */
static size_t receive_until(struct end *e, const char *what, size_t piece)
{
	size_t got = 0;
	do {
		end_receive(e, got, got, (uint32_t)piece);
		struct hdl_wc wc = end_wc(e);
		assert_int_equal(wc.status, HDL_WC_SUCCESS);
		assert_int_equal(wc.opcode, HDL_WC_RECV);
		assert_true(wc.byte_len > 0 && wc.byte_len <= piece);
		got += wc.byte_len;
	} while (memmem(e->memory, got, what, strlen(what)) == NULL);
	return got;
}

static void ip9_curl_fetches_from_a_queue_pair(void **state)
{
	(void)state;
	program_need("curl");
	static uint8_t got[BODY + 1];
	uint16_t port;
	char url[64];
	end_open(&server, HDL_QP_RC);
	struct hdl_listener *listener = listen_plain(&server, &port);
	snprintf(url, sizeof(url), "http://127.0.0.1:%u/thing", port);
	const char *const argv[] = {"curl", "-s", "--noproxy", "*", url, NULL};
	struct program curl = program_start(argv);
	accept_one(&server);
	receive_until(&server, "\r\n\r\n", 50);
	assert_memory_equal(server.memory, "GET /thing HTTP/1.1\r\n", 21);

	int header = sprintf((char *)server.memory, "HTTP/1.0 200 OK\r\nContent-Length: %u\r\n\r\n",
	                     BODY);
	uint8_t *body = server.memory + 4096;
	for (size_t i = 0; i < BODY; i++)
		body[i] = (uint8_t)(i * 31 + i / 257);
	end_send(&server, 1, 0, (uint32_t)header);
	end_send(&server, 2, 0, 0); /* no bytes: over at once, in its turn */
	for (unsigned i = 0; i < 3; i++)
		end_send(&server, 3 + i, 4096 + i * (BODY / 3), BODY / 3);
	assert_int_equal(program_read(&curl, got, sizeof(got) - 1), BODY);
	assert_memory_equal(got, body, BODY);
	for (unsigned i = 1; i < 6; i++) {
		struct hdl_wc wc = end_wc(&server);
		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.status, HDL_WC_SUCCESS);
	}
	assert_int_equal(hdl_conn_disconnect(server.conn), 0);
	assert_int_equal(end_event(&server, HDL_CONN_CLOSED).error, 0);
	assert_int_equal(program_end(&curl), 0);
	assert_int_equal(hdl_listener_close(listener), 0);
	end_close(&server);
}

/* The peer sends more than there are receives for: TCP holds it back, and nothing is lost. */
static void ip9_curl_posts_to_a_queue_pair(void **state)
{
	(void)state;
	program_need("curl");
	enum { BYTES = 2 << 20 };
	uint16_t port;
	char url[64];
	static char name[] = "/tmp/heddle-plain-XXXXXX";
	char from[sizeof(name) + 1] = "@";
	int file = mkstemp(name);
	assert_true(file >= 0);
	strcat(from, name);
	uint8_t *data = malloc(BYTES);
	assert_non_null(data);
	for (size_t i = 0; i < BYTES; i++)
		data[i] = (uint8_t)(i * 7 + i / 251);
	assert_int_equal(write(file, data, BYTES), BYTES);
	close(file);

	end_open(&server, HDL_QP_RC);
	struct hdl_listener *listener = listen_plain(&server, &port);
	snprintf(url, sizeof(url), "http://127.0.0.1:%u/", port);
	const char *const argv[] = {
	        "curl", "-s", "--noproxy", "*", "-H", "Expect:", "--data-binary", from, url, NULL};
	struct program curl = program_start(argv);
	accept_one(&server);
	usleep(300000); /* it fills all buffers on the way */
	size_t got = receive_until(&server, "\r\n\r\n", 100);
	const uint8_t *mark = memmem(server.memory, got, "\r\n\r\n", 4);
	size_t head = (size_t)(mark - server.memory) + 4;
	while (got < head + BYTES) { /* several receives at a time, of odd sizes */
		uint32_t first = 1 + (uint32_t)(got % 977), second = 60000;
		if (first > head + BYTES - got)
			first = (uint32_t)(head + BYTES - got);
		end_receive(&server, got, got, first);
		size_t before = got;
		struct hdl_wc wc = end_wc(&server);
		assert_int_equal(wc.status, HDL_WC_SUCCESS);
		assert_int_equal(wc.wr_id, before);
		got += wc.byte_len;
		if (got == head + BYTES)
			break;
		if (second > head + BYTES - got)
			second = (uint32_t)(head + BYTES - got);
		end_receive(&server, got, got, second);
		wc = end_wc(&server);
		assert_int_equal(wc.status, HDL_WC_SUCCESS);
		got += wc.byte_len;
	}
	assert_memory_equal(server.memory + head, data, BYTES);
	strcpy((char *)server.memory, "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok");
	end_send(&server, 1, 0, (uint32_t)strlen((char *)server.memory));
	uint8_t answer[10];
	assert_int_equal(program_read(&curl, answer, sizeof(answer)), 2);
	assert_memory_equal(answer, "ok", 2);
	assert_int_equal(program_end(&curl), 0);
	assert_int_equal(hdl_listener_close(listener), 0);
	end_close(&server);
	unlink(name);
	free(data);
}

/* A queue pair connects to netcat, which answers what it reads from its standard input; each ends
 * its direction by itself. */
static void ip9_a_queue_pair_talks_to_netcat(void **state)
{
	(void)state;
	program_need("nc");
	struct end e;
	char port_text[8];
	uint8_t got[64];
	uint16_t port = free_port(SOCK_STREAM);
	snprintf(port_text, sizeof(port_text), "%u", port);
	const char *const argv[] = {"nc", "-l", "-q", "0", "-p", port_text, NULL};
	struct program nc = program_start(argv);
	end_open(&e, HDL_QP_RC);
	const struct hdl_conn_param param = {.service = HDL_CONN_TCP};
	struct hdl_conn_event event;
	/* Until it listens. */
	for (unsigned tries = 0;; tries++) {
		assert_true(tries < 400);
		assert_int_equal(hdl_conn_connect(e.qp, NULL, NULL, &end_loopback, port, &param,
		                                  NULL, &e.conn),
		                 0);
		assert_int_equal(hdl_conn_event_get(e.adapter, &event, END_WAIT_MS), 0);
		if (event.type == HDL_CONN_ESTABLISHED)
			break;
		assert_int_equal(event.error, -HDL_ECONNREFUSED);
		assert_int_equal(hdl_conn_destroy(e.conn), 0);
		usleep(50000);
	}
	strcpy((char *)e.memory, "from a queue pair\n");
	end_send(&e, 1, 0, 18);
	assert_int_equal(end_wc(&e).wr_id, 1);
	assert_int_equal(program_read(&nc, got, 18), 18);
	assert_memory_equal(got, "from a queue pair\n", 18);

	assert_int_equal(write(nc.in, "from netcat\n", 12), 12);
	for (size_t at = 0; at < 12;) {
		end_receive(&e, 2, 1000 + at, 100);
		struct hdl_wc wc = end_wc(&e);
		assert_int_equal(wc.status, HDL_WC_SUCCESS);
		at += wc.byte_len;
	}
	assert_memory_equal(e.memory + 1000, "from netcat\n", 12);
	/* The end of its input is the end of its direction: a receive without bytes, also one that
	 * is posted later. */
	close(nc.in);
	nc.in = -1;
	usleep(100000);
	end_receive(&e, 3, 2000, 100);
	struct hdl_wc wc = end_wc(&e);
	assert_int_equal(wc.wr_id, 3);
	assert_int_equal(wc.status, HDL_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 0);
	end_receive(&e, 4, 2000, 100);
	assert_int_equal(hdl_conn_disconnect(e.conn), 0);
	assert_int_equal(end_event(&e, HDL_CONN_CLOSED).error, 0);
	assert_int_equal(end_wc(&e).status, HDL_WC_WR_FLUSH_ERR);
	assert_int_equal(program_end(&nc), 0);
	end_close(&e);
}

/* Two queue pairs, and what fails: other operations, a receive without room, private data. */
static void ip9_what_plain_tcp_lacks(void **state)
{
	(void)state;
	struct end client;
	uint16_t port;
	const struct hdl_conn_param param = {.service = HDL_CONN_TCP};
	for (unsigned row = 0; row < 3; row++) {
		end_open(&server, HDL_QP_RC);
		end_open(&client, HDL_QP_RC);
		struct hdl_listener *listener = listen_plain(&server, &port);
		struct hdl_conn_param bad = param;
		bad.private_data = "x";
		bad.private_bytes = 1;
		assert_int_equal(hdl_conn_connect(client.qp, NULL, NULL, &end_loopback, port, &bad,
		                                  NULL, &client.conn),
		                 -HDL_EINVAL);
		bad = (struct hdl_conn_param){.service = HDL_CONN_SERVICE_COUNT};
		assert_int_equal(hdl_conn_connect(client.qp, NULL, NULL, &end_loopback, port, &bad,
		                                  NULL, &client.conn),
		                 -HDL_EINVAL);
		assert_int_equal(hdl_conn_connect(client.qp, NULL, NULL, &end_loopback, port,
		                                  &param, NULL, &client.conn),
		                 0);
		end_event(&client, HDL_CONN_ESTABLISHED);
		if (row == 2) { /* rejected: plain TCP has no word for it but the end */
			struct hdl_conn_event event = end_event(&server, HDL_CONN_REQUEST);
			server.conn = event.conn;
			assert_int_equal(hdl_conn_reject(server.conn, NULL, 0), 0);
			end_receive(&client, 1, 0, 10);
			assert_int_equal(end_wc(&client).byte_len, 0);
		} else {
			accept_one(&server);
		}
		if (row == 0) {
			struct hdl_sge sge = {(uint64_t)(uintptr_t)client.memory, 8,
			                      hdl_mr_key(client.mr)};
			struct hdl_send_wr wr = {.wr_id = 5,
			                         .opcode = HDL_OP_WRITE,
			                         .flags = HDL_SEND_SIGNALED,
			                         .sg_list = &sge,
			                         .num_sge = 1};
			assert_int_equal(hdl_post_send(client.qp, &wr, NULL), 0);
			assert_int_equal(end_wc(&client).status, HDL_WC_LOC_QP_OP_ERR);
		} else if (row == 1) {
			end_receive(&server, 6, 0, 0);
			end_send(&client, 7, 0, 8);
			assert_int_equal(end_wc(&server).status, HDL_WC_LOC_LEN_ERR);
			end_event(&server, HDL_CONN_CLOSED);
		}
		assert_int_equal(hdl_listener_close(listener), 0);
		end_close(&client);
		end_close(&server);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(ip9_curl_fetches_from_a_queue_pair),
	        cmocka_unit_test(ip9_curl_posts_to_a_queue_pair),
	        cmocka_unit_test(ip9_a_queue_pair_talks_to_netcat),
	        cmocka_unit_test(ip9_what_plain_tcp_lacks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
