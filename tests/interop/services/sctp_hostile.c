/* IP9, IP8: peers of RDMA over SCTP that do not keep to RFC 5043. Each row is an end of SCTP that
 * says the wrong thing to a listener of Heddle, or to a queue pair that connects; Heddle's program
 * hears of the end of the connection, the wrong messages are counted, and the next peer is
 * served. */
#include "end.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "port/sctp.h"

#define SEGMENT 16u
#define CONTROL 17u
#define WAIT_NS 20000000000ull

static const struct hdl_gid here = {
        .raw = {[10] = 0xff, [11] = 0xff, [12] = 127, [14] = 98, [15] = 1}};

static struct end e;
static struct hdl_listener *listener;
static uint16_t port;

/* The peer: an end of SCTP on its own UDP port of its own address. */
static struct sctp_end own;
static struct sctp_sock sock;
static uint8_t room[SCTP_PACKET_BYTES];

static void peer_turn(void)
{
	struct pollfd fd = {.fd = own.fd, .events = POLLIN};
	if (sctp_end_receive(&own, clock_now_ns()) == 0)
		poll(&fd, 1, 1);
}

static enum sctp_came peer_await(size_t *bytes, uint32_t *ppid)
{
	enum sctp_came came;
	uint64_t until = clock_now_ns() + WAIT_NS;
	while ((came = sctp_receive(&sock, room, sizeof(room), bytes, ppid)) == SCTP_CAME_NOTHING) {
		assert_true(clock_now_ns() < until);
		peer_turn();
	}
	return came;
}

static void peer_connect(uint32_t adaptation)
{
	struct udp_address to;
	uint16_t from = 0;
	assert_true(udp_address_parse("127.0.98.1", &to));
	assert_int_equal(
	        sctp_connect(&sock, &own, &to, SCTP_UDP_PORT, port, &from, adaptation, NULL, NULL),
	        0);
}

static void peer_up(void)
{
	size_t bytes;
	uint32_t ppid;
	peer_connect(1);
	assert_int_equal(peer_await(&bytes, &ppid), SCTP_CAME_UP);
}

/* Send octets that are given in hexadecimal. */
static void say(uint32_t ppid, const char *hex)
{
	uint8_t message[256];
	size_t bytes = 0;
	for (unsigned value; sscanf(hex, " %2x", &value) == 1; bytes++) {
		hex += strspn(hex, " ") + 2;
		message[bytes] = (uint8_t)value;
	}
	assert_int_equal(sctp_send(&sock, ppid, message, bytes), 0);
}

static uint64_t bad_packets(void)
{
	struct hdl_counter list[64];
	size_t count = hdl_counters(e.adapter, list, 64);
	for (size_t i = 0; i < count && i < 64; i++)
		if (strcmp(list[i].name, "bad_packets") == 0)
			return list[i].value;
	fail_msg("there is no counter of bad packets");
	return 0;
}

/* The peer is rid of its association. */
static void peer_is_ended(void)
{
	size_t bytes;
	uint32_t ppid;
	enum sctp_came came;
	while ((came = peer_await(&bytes, &ppid)) == SCTP_CAME_MESSAGE || came == SCTP_CAME_UP)
		;
	assert_true(came == SCTP_CAME_BROKEN || came == SCTP_CAME_CLOSED);
	sctp_close(&sock, true);
}

/* --- before the session is established --- */

struct row {
	const char *what;
	uint32_t ppid;
	const char *hex;
};

/* Instead of an Initiate. The program never hears of these. */
static const struct row first_words[] = {
        {"a segment before the Initiate", SEGMENT,
         "0001 41 43 00000000 00000000 00000001 00000000"},
        {"an Accept", CONTROL, "0000 0002"},
        {"a Terminate", CONTROL, "0000 0004"},
        {"an unknown function", CONTROL, "0000 0008"},
        {"an Initiate with another number", CONTROL, "0001 0001"},
        {"three octets", CONTROL, "0000 00"},
        {"a payload protocol identifier of another protocol", 51, "0000 0001"},
        {"no payload protocol identifier", 0, "0000 0001"},
};

static void ip9_first_words(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(first_words) / sizeof(first_words[0]); i++) {
		const struct row *row = &first_words[i];
		uint64_t before = bad_packets();
		print_message("%s\n", row->what);
		peer_up();
		say(row->ppid, row->hex);
		peer_is_ended();
		assert_int_equal(bad_packets(), before + 1);
	}
	struct hdl_conn_event event;
	assert_int_equal(hdl_conn_event_get(e.adapter, &event, 0), -HDL_EAGAIN);
}

static void ip9_wrong_adaptation(void **state)
{
	(void)state;
	uint64_t before = bad_packets();
	peer_connect(7);
	sock.adaptation = 1; /* so that this end does not mind */
	peer_is_ended();
	assert_int_equal(bad_packets(), before + 1);
}

/* --- in the session --- */

static void begin_session(void)
{
	size_t bytes;
	uint32_t ppid;
	peer_up();
	say(CONTROL, "0000 0001");
	struct hdl_conn_event event;
	uint64_t until = clock_now_ns() + WAIT_NS;
	while (hdl_conn_event_get(e.adapter, &event, 0) != 0) {
		assert_true(clock_now_ns() < until);
		peer_turn();
	}
	assert_int_equal(event.type, HDL_CONN_REQUEST);
	e.conn = event.conn;
	e.qp = end_qp(&e, HDL_QP_RC);
	for (unsigned i = 0; i < 4; i++)
		end_receive(&e, i, i * 1000, 1000);
	assert_int_equal(hdl_conn_accept(e.conn, e.qp, NULL, NULL), 0);
	assert_int_equal(end_event(&e, HDL_CONN_ESTABLISHED).error, 0);
	assert_int_equal(peer_await(&bytes, &ppid), SCTP_CAME_MESSAGE);
	assert_int_equal(ppid, CONTROL);
	assert_memory_equal(room, "\0\0\0\2", 4);
}

/* Sends are queue 0: DDP control, RDMAP control, reserved, queue, MSN, offset. */
#define SEND_1 "0001 41 43 00000000 00000000 00000001 00000000 aabb"
#define SEND_2 "0002 41 43 00000000 00000000 00000002 00000000 ccdd"

/* One message that is good, then: */
static const struct row later_words[] = {
        {"a number twice", SEGMENT, SEND_1},
        {"a number of an early one twice", SEGMENT,
         "0003 41 43 00000000 00000000 00000003 00000000"},
        {"a number far ahead", SEGMENT, "0402 41 43 00000000 00000000 00000002 00000000"},
        {"a number far behind", SEGMENT, "8000 41 43 00000000 00000000 00000002 00000000"},
        {"a message without a number", SEGMENT, "00"},
        {"a second Initiate", CONTROL, "0002 0001"},
        {"an Accept", CONTROL, "0002 0002"},
        {"an Enhanced Reject", CONTROL, "0002 0007"},
        {"an unknown function", CONTROL, "0002 0009"},
        {"a Terminate with private data", CONTROL, "0002 0004 00"},
        {"a Terminate with a number that came before", CONTROL, "0001 0004"},
        {"a Terminate far ahead", CONTROL, "0500 0004"},
        {"a payload protocol identifier of another protocol", 46, "0002"},
};

/* The connection is closed, its receives are flushed, and the peer is told. */
static void session_is_ended(void)
{
	end_event(&e, HDL_CONN_CLOSED);
	for (struct hdl_wc wc; hdl_cq_poll(e.cq, &wc, 1) == 1;)
		assert_int_equal(wc.status, HDL_WC_WR_FLUSH_ERR);
	assert_int_equal(hdl_conn_destroy(e.conn), 0);
	assert_int_equal(hdl_qp_destroy(e.qp), 0);
	e.conn = NULL;
}

static void ip8_ip9_later_words(void **state)
{
	(void)state;
	struct hdl_qp *spare = e.qp;
	for (size_t i = 0; i < sizeof(later_words) / sizeof(later_words[0]); i++) {
		const struct row *row = &later_words[i];
		uint64_t before = bad_packets();
		print_message("%s\n", row->what);
		begin_session();
		say(SEGMENT, SEND_1);
		struct hdl_wc wc = end_wc(&e);
		assert_int_equal(wc.status, HDL_WC_SUCCESS);
		assert_int_equal(wc.byte_len, 2);
		if (strncmp(row->hex, "0003", 4) == 0) /* the first of two */
			say(row->ppid, row->hex);
		say(row->ppid, row->hex);
		peer_is_ended();
		session_is_ended();
		assert_int_equal(bad_packets(), before + 1);
	}
	e.qp = spare;
}

/* The association ends while a message is on its way, in order and by an ABORT: no receive
 * completes with what has come. */
static void ip9_shut_down_in_the_middle(void **state)
{
	(void)state;
	struct hdl_qp *spare = e.qp;
	for (unsigned abrupt = 0; abrupt < 2; abrupt++) {
		print_message("%s\n", abrupt ? "ABORT" : "SHUTDOWN");
		begin_session();
		say(SEGMENT, SEND_2); /* early */
		say(SEGMENT,
		    "0003 01 43 00000000 00000000 00000003 00000000 ccdd"); /* not its last */
		uint64_t until = clock_now_ns() + WAIT_NS;
		while (!sctp_is_settled(&sock)) {
			assert_true(clock_now_ns() < until);
			peer_turn();
		}
		if (!abrupt)
			sctp_finish(&sock);
		sctp_close(&sock, abrupt != 0);
		until = clock_now_ns() + WAIT_NS;
		struct hdl_conn_event event;
		while (hdl_conn_event_get(e.adapter, &event, 0) != 0) {
			assert_true(clock_now_ns() < until);
			peer_turn();
		}
		assert_int_equal(event.type, HDL_CONN_CLOSED);
		assert_int_equal(event.error, -HDL_EIO);
		struct hdl_wc wc;
		for (unsigned i = 0; i < 4; i++)
			assert_int_equal(end_wc(&e).status, HDL_WC_WR_FLUSH_ERR);
		assert_int_equal(hdl_cq_poll(e.cq, &wc, 1), 0);
		assert_int_equal(hdl_conn_destroy(e.conn), 0);
		assert_int_equal(hdl_qp_destroy(e.qp), 0);
		e.conn = NULL;
	}
	e.qp = spare;
}

/* After all of that, a peer that keeps to the rules. */
static void ip9_the_next_is_served(void **state)
{
	(void)state;
	struct hdl_qp *spare = e.qp;
	begin_session();
	say(SEGMENT, SEND_2);
	say(CONTROL, "0003 0004");
	say(SEGMENT, SEND_1);
	for (unsigned i = 0; i < 2; i++) {
		struct hdl_wc wc = end_wc(&e);
		assert_int_equal(wc.status, HDL_WC_SUCCESS);
		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.byte_len, 2);
	}
	assert_memory_equal(e.memory, "\xaa\xbb", 2);
	assert_memory_equal(e.memory + 1000, "\xcc\xdd", 2);
	peer_is_ended();
	assert_int_equal(end_event(&e, HDL_CONN_CLOSED).error, 0);
	assert_int_equal(hdl_conn_destroy(e.conn), 0);
	assert_int_equal(hdl_qp_destroy(e.qp), 0);
	e.conn = NULL;
	e.qp = spare;
	struct hdl_wc wc;
	while (hdl_cq_poll(e.cq, &wc, 1) == 1)
		;
}

/* --- Heddle connects --- */

static void connect_out(uint16_t to, const struct hdl_gid *gid)
{
	const struct hdl_conn_param param = {.service = HDL_CONN_RDMA_SCTP};
	assert_int_equal(hdl_conn_connect(e.qp, NULL, &here, gid, to, &param, NULL, &e.conn), 0);
}

/* A socket on UDP port 9899 that never answers an INIT. Runs while the others do. */
static struct hdl_gid silent_gid = {
        .raw = {[10] = 0xff, [11] = 0xff, [12] = 127, [14] = 98, [15] = 3}};
static int silent;
static struct end caller;
static struct hdl_conn *unanswered;
static uint64_t called_ms;

static void call_the_silent(void)
{
	const struct hdl_conn_param param = {.service = HDL_CONN_RDMA_SCTP};
	struct udp_address address;
	uint16_t number = SCTP_UDP_PORT;
	assert_true(udp_address_parse("127.0.98.3", &address));
	silent = udp_open_plain(&address, &number);
	assert_true(silent >= 0);
	end_open(&caller, HDL_QP_RC);
	called_ms = end_now_ms();
	assert_int_equal(hdl_conn_connect(caller.qp, NULL, &silent_gid, &silent_gid, 5, &param,
	                                  NULL, &unanswered),
	                 0);
}

static void ip9_a_peer_that_never_answers(void **state)
{
	(void)state;
	struct hdl_conn_event event;
	uint64_t ahead_ns = 0;
	/* The time of SCTP's timers flies. */
	while (hdl_conn_event_get(caller.adapter, &event, 5) != 0) {
		assert_true(ahead_ns < 60000000000ull);
		ahead_ns += 50000000;
		sctp_tick(clock_now_ns() + ahead_ns);
	}
	assert_int_equal(event.type, HDL_CONN_FAILED);
	assert_int_equal(event.error, -HDL_ETIMEDOUT);
	assert_true(end_now_ms() - called_ms + ahead_ns / 1000000 >= 5000);
	assert_int_equal(hdl_conn_destroy(unanswered), 0);
	end_close(&caller);
	close(silent);
}

/* A listener that says something else than Accept or Reject. */
static void ip9_wrong_answers(void **state)
{
	(void)state;
	static const struct {
		const char *what, *hex;
		uint32_t ppid, adaptation;
		enum hdl_conn_event_type type;
		int error;
	} rows[] = {
	        {"a Terminate", "0000 0004", CONTROL, 1, HDL_CONN_REJECTED, -HDL_ECONNREFUSED},
	        {"an Initiate", "0000 0001", CONTROL, 1, HDL_CONN_FAILED, -HDL_EIO},
	        {"a plain Accept", "0000 0002", CONTROL, 1, HDL_CONN_FAILED, -HDL_EIO},
	        {"an Accept with another number", "0001 0006 0000 0000", CONTROL, 1,
	         HDL_CONN_FAILED, -HDL_EIO},
	        {"another protocol", "0000 0006", 99, 1, HDL_CONN_FAILED, -HDL_EIO},
	        {"another adaptation", NULL, 0, 9, HDL_CONN_FAILED, -HDL_EIO},
	};
	struct hdl_gid gid = {.raw = {[10] = 0xff, [11] = 0xff, [12] = 127, [14] = 98, [15] = 4}};
	struct udp_address address;
	struct sctp_sock listens;
	struct sctp_end theirs;
	assert_true(udp_address_parse("127.0.98.4", &address));
	assert_int_equal(sctp_end_open(&theirs, &address, SCTP_UDP_PORT), 0);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint16_t number = 0, from;
		size_t bytes;
		uint32_t ppid;
		enum sctp_came came;
		print_message("%s\n", rows[i].what);
		assert_int_equal(sctp_listen(&listens, &number, 4, rows[i].adaptation, theirs.mtu,
		                             NULL, NULL),
		                 0);
		connect_out(number, &gid);
		uint64_t until = clock_now_ns() + WAIT_NS;
		while (sctp_accept(&listens, &sock, &from) == -EAGAIN) {
			assert_true(clock_now_ns() < until);
			sctp_end_receive(&theirs, clock_now_ns());
		}
		sock.adaptation = 1;
		do {
			assert_true(clock_now_ns() < until);
			sctp_end_receive(&theirs, clock_now_ns());
			came = sctp_receive(&sock, room, sizeof(room), &bytes, &ppid);
		} while (came == SCTP_CAME_NOTHING || came == SCTP_CAME_UP);
		if (rows[i].hex != NULL) {
			assert_int_equal(came, SCTP_CAME_MESSAGE);
			say(rows[i].ppid, rows[i].hex);
		}
		struct hdl_conn_event event;
		until = clock_now_ns() + WAIT_NS;
		while (hdl_conn_event_get(e.adapter, &event, 0) != 0) {
			assert_true(clock_now_ns() < until);
			sctp_end_receive(&theirs, clock_now_ns());
		}
		assert_int_equal(event.type, rows[i].type);
		assert_int_equal(event.error, rows[i].error);
		sctp_close(&sock, true);
		sctp_close(&listens, true);
		assert_int_equal(hdl_conn_destroy(e.conn), 0);
		e.conn = NULL;
	}
	sctp_end_free(&theirs);
}

static int set_up(void **state)
{
	(void)state;
	struct udp_address address;
	end_open(&e, HDL_QP_RC);
	call_the_silent();
	assert_int_equal(hdl_listener_bind(e.adapter, &here, &port, NULL, &listener), 0);
	assert_int_equal(hdl_listener_serve(listener, HDL_CONN_RDMA_SCTP), 0);
	assert_int_equal(hdl_listener_listen(listener, 4), 0);
	assert_true(udp_address_parse("127.0.98.2", &address));
	return sctp_end_open(&own, &address, 0);
}

static int tear_down(void **state)
{
	(void)state;
	hdl_listener_close(listener);
	end_close(&e);
	sctp_end_free(&own);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(ip9_first_words),
	        cmocka_unit_test(ip9_wrong_adaptation),
	        cmocka_unit_test(ip8_ip9_later_words),
	        cmocka_unit_test(ip9_shut_down_in_the_middle),
	        cmocka_unit_test(ip9_the_next_is_served),
	        cmocka_unit_test(ip9_wrong_answers),
	        cmocka_unit_test(ip9_a_peer_that_never_answers),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
