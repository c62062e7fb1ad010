/* IP9, figure 10: plain UDP on queue pairs, with netcat and a DNS server as peers that know nothing
 * of it, and with an ordinary socket. */
#include "end.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct end e;

static struct hdl_ah *handle_of(const struct hdl_gid *gid)
{
	struct hdl_ah *ah;
	const struct hdl_ah_attr attr = {.dgid = *gid, .plain = true, .port_num = 1};
	assert_int_equal(hdl_ah_create(e.pd, &attr, &ah), 0);
	return ah;
}

static void send_to(struct hdl_ah *ah, uint16_t port, uint64_t id, size_t offset, uint32_t length)
{
	struct hdl_sge sge = {(uint64_t)(uintptr_t)e.memory + offset, length, hdl_mr_key(e.mr)};
	struct hdl_send_wr wr = {.wr_id = id,
	                         .opcode = HDL_OP_SEND,
	                         .flags = HDL_SEND_SIGNALED,
	                         .sg_list = &sge,
	                         .num_sge = 1};
	wr.u.ud.ah = ah;
	wr.u.ud.qpn = port;
	assert_int_equal(hdl_post_send(e.qp, &wr, NULL), 0);
}

static struct hdl_wc expect(uint64_t id)
{
	struct hdl_wc wc = end_wc(&e);
	assert_int_equal(wc.status, HDL_WC_SUCCESS);
	assert_int_equal(wc.wr_id, id);
	return wc;
}

/* netcat speaks first, and gets an answer at the address and port that the receive names. */
static void ip9_netcat_asks_a_queue_pair(void **state)
{
	(void)state;
	program_need("nc");
	uint16_t port = 0;
	char text[8];
	uint8_t got[32];
	end_open(&e, HDL_QP_UD);
	assert_int_equal(hdl_qp_open_udp(e.qp, &end_loopback, &port), 0);
	assert_true(port != 0);
	assert_int_equal(hdl_qp_open_udp(e.qp, &end_loopback, &port), -HDL_EPERM);
	snprintf(text, sizeof(text), "%u", port);
	const char *const argv[] = {"nc", "-u", "127.0.0.1", text, NULL};
	struct program nc = program_start(argv);
	end_receive(&e, 1, 0, 200);
	assert_int_equal(write(nc.in, "what?\n", 6), 6);
	struct hdl_wc wc = expect(1);
	assert_int_equal(wc.byte_len, HDL_GRH_BYTES + 6);
	assert_true(wc.flags & HDL_WC_GRH);
	assert_memory_equal(e.memory + HDL_GRH_BYTES, "what?\n", 6);
	/* The header names both ends. */
	assert_memory_equal(e.memory + 8, end_loopback.raw, 16);
	assert_memory_equal(e.memory + 24, end_loopback.raw, 16);
	struct hdl_gid from;
	memcpy(from.raw, e.memory + 8, 16);
	struct hdl_ah *ah = handle_of(&from);
	memcpy(e.memory + 1000, "that.\n", 6);
	send_to(ah, (uint16_t)wc.src_qpn, 2, 1000, 6);
	expect(2);
	assert_int_equal(program_read(&nc, got, 6), 6);
	assert_memory_equal(got, "that.\n", 6);
	kill(nc.pid, SIGTERM);
	program_end(&nc);
	assert_int_equal(hdl_ah_destroy(ah), 0);
	end_close(&e);
}

/* --- DNS (RFC 1035) --- */

#define DNS_HEADER 12u
#define DNS_A      1u
#define DNS_TXT    16u

/* A question for @type of @name. Returns its length. */
static uint32_t dns_question(uint8_t *out, uint16_t id, const char *name, uint8_t type)
{
	uint8_t *at = out + DNS_HEADER;
	memset(out, 0, DNS_HEADER);
	out[0] = (uint8_t)(id >> 8);
	out[1] = (uint8_t)id;
	out[2] = 1; /* recursion desired */
	out[5] = 1; /* one question */
	while (*name != '\0') {
		size_t length = strcspn(name, ".");
		*at++ = (uint8_t)length;
		memcpy(at, name, length);
		at += length;
		name += length + (name[length] == '.');
	}
	const uint8_t end[] = {0, 0, type, 0, 1};
	memcpy(at, end, sizeof(end));
	return (uint32_t)(at + sizeof(end) - out);
}

/* Ask until the server, which may just have been started, answers. The answer is in memory behind
 * the header of the receive. Returns its length. */
static uint32_t dns_ask(struct hdl_ah *ah, uint16_t port, uint16_t id, const char *name,
                        uint8_t type)
{
	uint64_t until = end_now_ms() + END_WAIT_MS;
	uint32_t bytes = dns_question(e.memory + 8192, id, name, type);
	struct hdl_wc wc;
	end_receive(&e, id, 0, 4096);
	while (end_now_ms() < until) {
		send_to(ah, port, 0, 8192, bytes);
		expect(0);
		for (uint64_t again = end_now_ms() + 200; end_now_ms() < again;)
			if (hdl_cq_poll(e.cq, &wc, 1) == 1) {
				assert_int_equal(wc.status, HDL_WC_SUCCESS);
				assert_int_equal(wc.wr_id, id);
				assert_int_equal(wc.src_qpn, port);
				return wc.byte_len - HDL_GRH_BYTES;
			}
	}
	fail_msg("the DNS server does not answer");
	return 0;
}

/* The data of the only record of the answer to a question of @asked octets; @length: of it. */
static const uint8_t *dns_record(uint32_t bytes, uint32_t asked, uint16_t id, uint8_t type,
                                 size_t length)
{
	const uint8_t *answer = e.memory + HDL_GRH_BYTES, *record = answer + asked;
	assert_true(bytes >= asked + 12 + length);
	assert_int_equal(answer[0] << 8 | answer[1], id);
	assert_true(answer[2] & 0x80);            /* it is an answer */
	assert_int_equal(answer[3] & 0xf, 0);     /* without an error */
	assert_int_equal(answer[7], 1);           /* one record */
	assert_int_equal(record[0] & 0xc0, 0xc0); /* its name is that of the question */
	assert_int_equal(record[3], type);
	assert_int_equal(record[10] << 8 | record[11], length);
	return record + 12;
}

/* A queue pair is the client of a DNS server. */
static void ip9_a_queue_pair_asks_a_dns_server(void **state)
{
	(void)state;
	program_need("dnsmasq");
	uint16_t own = 0, port = free_port(SOCK_DGRAM);
	char port_word[32], text[201], record[240];
	memset(text, 'x', 200);
	text[200] = '\0';
	snprintf(port_word, sizeof(port_word), "--port=%u", port);
	snprintf(record, sizeof(record), "--txt-record=long.heddle.test,%s", text);
	const char *const argv[] = {"dnsmasq",
	                            "--keep-in-foreground",
	                            "--conf-file=/dev/null",
	                            "--pid-file=",
	                            "--user=",
	                            "--no-resolv",
	                            "--no-hosts",
	                            "--bind-interfaces",
	                            "--listen-address=127.0.0.1",
	                            "--address=/name.heddle.test/192.0.2.7",
	                            record,
	                            port_word,
	                            NULL};
	struct program server = program_start(argv);
	end_open(&e, HDL_QP_UD);
	assert_int_equal(hdl_qp_open_udp(e.qp, &end_loopback, &own), 0);
	struct hdl_ah *ah = handle_of(&end_loopback);
	uint8_t question[256];
	uint32_t asked = dns_question(question, 0, "name.heddle.test", DNS_A);
	uint32_t bytes = dns_ask(ah, port, 0x1234, "name.heddle.test", DNS_A);
	const uint8_t want[] = {192, 0, 2, 7};
	assert_memory_equal(dns_record(bytes, asked, 0x1234, DNS_A, 4), want, 4);
	asked = dns_question(question, 0, "long.heddle.test", DNS_TXT);
	bytes = dns_ask(ah, port, 0x4321, "long.heddle.test", DNS_TXT);
	const uint8_t *words = dns_record(bytes, asked, 0x4321, DNS_TXT, 201);
	assert_int_equal(words[0], 200);
	assert_memory_equal(words + 1, text, 200);
	/* What it does not know, it says. */
	bytes = dns_ask(ah, port, 7, "none.heddle.test", DNS_A);
	assert_true(bytes >= DNS_HEADER);
	assert_int_not_equal(e.memory[HDL_GRH_BYTES + 3] & 0xf, 0);
	kill(server.pid, SIGTERM);
	program_end(&server);
	assert_int_equal(hdl_ah_destroy(ah), 0);
	end_close(&e);
}

/* An ordinary socket of this process as the peer: the longest datagram, one that is too long for
 * its receive, one without a receive, and the limits of the calls. */
static void ip9_datagrams_of_every_length(void **state)
{
	(void)state;
	uint16_t port = 0;
	struct sockaddr_in name = {.sin_family = AF_INET,
	                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t bytes = sizeof(name);
	static uint8_t data[HDL_MAX_UDP], back[HDL_MAX_UDP + 1];
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 3 + i / 256);
	int sock = socket(AF_INET, SOCK_DGRAM, 0);
	assert_true(sock >= 0 && bind(sock, (struct sockaddr *)&name, bytes) == 0);
	assert_int_equal(getsockname(sock, (struct sockaddr *)&name, &bytes), 0);
	struct timeval limit = {.tv_sec = 20};
	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	uint16_t peer_port = ntohs(name.sin_port);
	end_open(&e, HDL_QP_UD);
	assert_int_equal(hdl_qp_open_udp(e.qp, &end_loopback, &port), 0);
	struct hdl_ah *ah = handle_of(&end_loopback);
	static const uint32_t lengths[] = {0, 1, 1472, 1473, 4097, 9000, HDL_MAX_UDP};
	name.sin_port = htons(port);
	for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		uint32_t length = lengths[i];
		end_receive(&e, 1, 0, HDL_GRH_BYTES + length);
		assert_int_equal(
		        sendto(sock, data, length, 0, (struct sockaddr *)&name, sizeof(name)),
		        length);
		struct hdl_wc wc = expect(1);
		assert_int_equal(wc.byte_len, HDL_GRH_BYTES + length);
		assert_int_equal(wc.src_qpn, peer_port);
		assert_memory_equal(e.memory + HDL_GRH_BYTES, data, length);
		send_to(ah, peer_port, 2, HDL_GRH_BYTES, length);
		expect(2);
		assert_int_equal(recv(sock, back, sizeof(back), 0), length);
		assert_memory_equal(back, data, length);
	}
	/* Dropped: no receive; a receive that is too short serves the next one that fits. */
	sendto(sock, data, 10, 0, (struct sockaddr *)&name, sizeof(name));
	usleep(50000);
	hdl_progress(e.adapter);
	end_receive(&e, 3, 0, HDL_GRH_BYTES + 20);
	sendto(sock, data, 21, 0, (struct sockaddr *)&name, sizeof(name));
	sendto(sock, data + 5, 20, 0, (struct sockaddr *)&name, sizeof(name));
	struct hdl_wc wc = expect(3);
	assert_int_equal(wc.byte_len, HDL_GRH_BYTES + 20);
	assert_memory_equal(e.memory + HDL_GRH_BYTES, data + 5, 20);
	/* No such port. */
	send_to(ah, 0, 4, 0, 8);
	assert_int_equal(end_wc(&e).status, HDL_WC_LOC_QP_OP_ERR);
	assert_int_equal(hdl_ah_destroy(ah), 0);
	end_close(&e);

	end_open(&e, HDL_QP_RC);
	assert_int_equal(hdl_qp_open_udp(e.qp, &end_loopback, &port), -HDL_ENOTSUP);
	end_close(&e);
	end_open(&e, HDL_QP_UD);
	struct hdl_gid elsewhere = {
	        .raw = {[10] = 0xff, [11] = 0xff, [12] = 192, [14] = 2, [15] = 1}};
	assert_int_equal(hdl_qp_open_udp(e.qp, &elsewhere, &port), -HDL_EHOSTUNREACH);
	assert_int_equal(hdl_qp_open_udp(e.qp, &end_loopback, &peer_port), -HDL_EADDRINUSE);
	assert_int_equal(hdl_qp_open_udp(NULL, &end_loopback, &port), -HDL_EINVAL);
	end_close(&e);
	close(sock);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(ip9_netcat_asks_a_queue_pair),
	        cmocka_unit_test(ip9_a_queue_pair_asks_a_dns_server),
	        cmocka_unit_test(ip9_datagrams_of_every_length),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
