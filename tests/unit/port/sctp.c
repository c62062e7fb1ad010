/* SCTP inside UDP, by usrsctp: two ends of this process on two addresses of the loopback, without
 * threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "port/sctp.h"
#include "port/sctp_packet.h"

#define ADAPTATION 1u
#define WAIT_NS    20000000000ull
#define UDP_PORT   19899u

static struct sctp_end ends[2];
static uint64_t ahead_ns; /* how far the timers of SCTP are ahead of the clock */
static bool hurry;        /* let their time fly */
static uint8_t room[SCTP_PACKET_BYTES];

static void address_of(unsigned i, struct udp_address *address)
{
	static const char *const texts[] = {"127.0.0.1", "127.0.0.2", "127.0.0.3"};
	assert_true(udp_address_parse(texts[i], address));
}

static void turn(void)
{
	struct pollfd fds[2] = {{.fd = ends[0].fd, .events = POLLIN},
	                        {.fd = ends[1].fd, .events = POLLIN}};
	uint64_t now = clock_now_ns();
	if (sctp_end_receive(&ends[0], now) + sctp_end_receive(&ends[1], now) == 0)
		poll(fds, 2, 5);
	ahead_ns += hurry ? 50000000u : 0;
	sctp_tick(clock_now_ns() + ahead_ns);
}

/* Drive until @sock has something. */
static enum sctp_came await(struct sctp_sock *sock, size_t *bytes, uint32_t *ppid)
{
	uint64_t until = clock_now_ns() + WAIT_NS;
	enum sctp_came came;
	while ((came = sctp_receive(sock, room, sizeof(room), bytes, ppid)) == SCTP_CAME_NOTHING) {
		assert_true(clock_now_ns() < until);
		turn();
	}
	return came;
}

static void open_ends(void)
{
	struct udp_address address;
	for (unsigned i = 0; i < 2; i++) {
		address_of(i, &address);
		assert_int_equal(sctp_end_open(&ends[i], &address, UDP_PORT), 0);
		assert_int_equal(ends[i].port, UDP_PORT);
	}
}

static void associate_in(uint8_t traffic_class, struct sctp_sock *listener, struct sctp_sock *a,
                         struct sctp_sock *b)
{
	struct udp_address peer;
	uint16_t port = 0, own = 0, from;
	size_t bytes;
	uint32_t ppid;
	assert_int_equal(sctp_listen(listener, &port, 5, ADAPTATION, ends[1].mtu, NULL, NULL), 0);
	assert_true(port != 0);
	address_of(1, &peer);
	assert_int_equal(
	        sctp_connect(a, &ends[0], &peer, UDP_PORT, port, &own, ADAPTATION, NULL, NULL), 0);
	assert_true(own != 0);
	if (traffic_class != 0)
		assert_true(sctp_set_class(a, traffic_class));
	uint64_t until = clock_now_ns() + WAIT_NS;
	int result;
	while ((result = sctp_accept(listener, b, &from)) == -EAGAIN) {
		assert_true(clock_now_ns() < until);
		turn();
	}
	assert_int_equal(result, 0);
	assert_int_equal(from, own);
	assert_int_equal(await(a, &bytes, &ppid), SCTP_CAME_UP);
	assert_int_equal(b->path->port, UDP_PORT);
	assert_int_equal(b->peer_class, traffic_class);
}

static void associate(struct sctp_sock *listener, struct sctp_sock *a, struct sctp_sock *b)
{
	associate_in(0, listener, a, b);
}

static void close_ends(void)
{
	for (unsigned i = 0; i < 2; i++)
		sctp_end_free(&ends[i]);
}

static void ip9_messages_pass(void **state)
{
	(void)state;
	struct sctp_sock listener, a, b;
	size_t bytes;
	uint32_t ppid;
	open_ends();
	associate(&listener, &a, &b);
	uint32_t longest = sctp_longest(&ends[0]);
	uint8_t *message = malloc(longest + 100);
	assert_non_null(message);
	for (uint32_t i = 0; i < longest; i++)
		message[i] = (uint8_t)(i * 3 + i / 256);
	for (unsigned round = 0; round < 300; round++) {
		uint32_t length = round % 3 == 0 ? longest : 1 + round * 7 % longest;
		struct sctp_sock *from = round % 2 ? &a : &b, *to = round % 2 ? &b : &a;
		assert_int_equal(sctp_send(from, 16 + round % 2, message, length), 0);
		enum sctp_came came;
		while ((came = await(to, &bytes, &ppid)) == SCTP_CAME_UP)
			;
		assert_int_equal(came, SCTP_CAME_MESSAGE);
		assert_int_equal(bytes, length);
		assert_int_equal(ppid, 16 + round % 2);
		assert_memory_equal(room, message, length);
	}
	/* One that does not fit into a packet is refused, not fragmented. */
	assert_int_equal(sctp_send(&a, 16, message, longest + 100), -EMSGSIZE);
	/* In order: what was sent arrives, then the end. */
	assert_int_equal(sctp_send(&a, 16, message, 5), 0);
	sctp_finish(&a);
	assert_int_equal(await(&b, &bytes, &ppid), SCTP_CAME_MESSAGE);
	assert_int_equal(await(&b, &bytes, &ppid), SCTP_CAME_CLOSED);
	assert_int_equal(await(&a, &bytes, &ppid), SCTP_CAME_CLOSED);
	sctp_close(&a, false);
	sctp_close(&b, false);
	sctp_close(&listener, true);
	free(message);
	close_ends();
}

static void ip9_as_much_as_there_is_room_for(void **state)
{
	(void)state;
	struct sctp_sock listener, a, b;
	size_t bytes;
	uint32_t ppid;
	static uint8_t message[1000];
	open_ends();
	associate(&listener, &a, &b);
	unsigned sent = 0, got = 0, most = 0;
	while (sent < 5000) {
		int result = sctp_send(&a, 16, message, sizeof(message));
		if (result == 0) {
			sent++;
			most = sent - got > most ? sent - got : most;
			continue;
		}
		assert_int_equal(result, -EAGAIN);
		turn();
		enum sctp_came came;
		while ((came = sctp_receive(&b, room, sizeof(room), &bytes, &ppid)) !=
		       SCTP_CAME_NOTHING)
			got += came == SCTP_CAME_MESSAGE;
	}
	assert_true(most < 1024); /* fewer than IWARP_EARLY */
	print_message("at most %u messages on their way\n", most);
	while (got < sent)
		got += await(&b, &bytes, &ppid) == SCTP_CAME_MESSAGE;
	/* An abort. */
	sctp_close(&a, true);
	assert_int_equal(await(&b, &bytes, &ppid), SCTP_CAME_BROKEN);
	sctp_close(&b, true);
	sctp_close(&listener, true);
	close_ends();
}

/* Packets of strangers, damaged ones and short ones have no effect. */
static void ip9_bad_packets(void **state)
{
	(void)state;
	struct udp_address to;
	union udp_name name;
	open_ends();
	address_of(1, &to);
	socklen_t bytes = udp_name_of(&to, UDP_PORT, &name);
	int sock = socket(AF_INET, SOCK_DGRAM, 0);
	assert_true(sock >= 0);
	for (size_t length = 0; length < 64; length++) {
		memset(room, (int)length, length);
		assert_int_equal(sendto(sock, room, length, 0, &name.any, bytes), length);
	}
	for (unsigned i = 0; ends[1].refused < 64; i++) {
		assert_true(i < 4000);
		turn();
	}
	assert_int_equal(ends[1].path_count, 0);
	close(sock);
	close_ends();
}

/* --- peers that are not what they should be --- */

/* Begin an association from @a, with @code, to a listener that wants ADAPTATION. */
static void begin_with(struct sctp_sock *listener, struct sctp_sock *a, uint32_t code)
{
	struct udp_address peer;
	uint16_t port = 0, own = 0;
	address_of(1, &peer);
	assert_int_equal(sctp_listen(listener, &port, 5, ADAPTATION, ends[1].mtu, NULL, NULL), 0);
	assert_int_equal(sctp_connect(a, &ends[0], &peer, UDP_PORT, port, &own, code, NULL, NULL),
	                 0);
}

/* RFC 5043 section 11.1: "compare it to the following table". */
static void ip9_wrong_adaptation(void **state)
{
	(void)state;
	struct sctp_sock listener, a, b;
	size_t bytes;
	uint32_t ppid;
	uint16_t from;
	open_ends();
	begin_with(&listener, &a, ADAPTATION + 1);
	uint64_t until = clock_now_ns() + WAIT_NS;
	int result;
	while ((result = sctp_accept(&listener, &b, &from)) == -EAGAIN) {
		assert_true(clock_now_ns() < until);
		turn();
	}
	assert_int_equal(result, 0);
	assert_int_equal(await(&a, &bytes, &ppid), SCTP_CAME_BROKEN);
	assert_int_equal(a.error, -EPROTO);
	assert_int_equal(await(&b, &bytes, &ppid), SCTP_CAME_BROKEN);
	assert_int_equal(b.error, -EPROTO);
	assert_false(a.up || b.up);
	sctp_close(&a, true);
	sctp_close(&b, true);
	sctp_close(&listener, true);
	close_ends();
}

/* A socket that never answers, and one that says no. */
static void ip9_an_init_that_is_not_answered(void **state)
{
	(void)state;
	struct udp_address peer;
	struct sctp_sock silent, refused;
	uint16_t own = 0;
	size_t bytes;
	uint32_t ppid;
	open_ends();
	address_of(2, &peer);
	uint16_t port = 0;
	int sock = udp_open_plain(&peer, &port);
	assert_true(sock >= 0);
	uint64_t begun = clock_now_ns() + ahead_ns;
	assert_int_equal(
	        sctp_connect(&silent, &ends[0], &peer, port, 5, &own, ADAPTATION, NULL, NULL), 0);
	own = 0;
	address_of(1, &peer);
	assert_int_equal(
	        sctp_connect(&refused, &ends[0], &peer, UDP_PORT, 5, &own, ADAPTATION, NULL, NULL),
	        0);
	assert_int_equal(await(&refused, &bytes, &ppid), SCTP_CAME_BROKEN);
	assert_int_equal(refused.error, -ECONNREFUSED);
	hurry = true;
	assert_int_equal(await(&silent, &bytes, &ppid), SCTP_CAME_BROKEN);
	hurry = false;
	assert_int_equal(silent.error, -ETIMEDOUT);
	uint64_t ms = (clock_now_ns() + ahead_ns - begun) / 1000000;
	print_message("an INIT is given up after %lu ms\n", (unsigned long)ms);
	assert_true(ms >= 6000 && ms <= 20000); /* heddle-services(7): about eight seconds */
	sctp_close(&silent, true);
	sctp_close(&refused, true);
	close(sock);
	close_ends();
}

/* RFC 9260 section 8.4: the answer to a packet that belongs to nothing. */
static void rfc9260_out_of_the_blue(void **state)
{
	(void)state;
	static const struct {
		const char *what;
		uint8_t chunks[24];
		size_t bytes;
		uint8_t answer, flags; /* 0: none */
		uint8_t tag;           /* each of its octets */
	} rows[] = {
	        {"INIT", {1, 0, 0, 20, 7, 7, 7, 7}, 20, 6, 0, 7},
	        {"INIT that is cut", {1, 0, 0, 20}, 4, 0, 0, 0},
	        {"DATA", {0, 3, 0, 17}, 20, 6, 1, 9},
	        {"HEARTBEAT", {4, 0, 0, 8}, 8, 6, 1, 9},
	        {"COOKIE ECHO", {10, 0, 0, 8}, 8, 6, 1, 9},
	        {"SHUTDOWN", {7, 0, 0, 8}, 8, 6, 1, 9},
	        {"SHUTDOWN ACK", {8, 0, 0, 4}, 4, 14, 1, 9},
	        {"ABORT", {6, 0, 0, 4}, 4, 0, 0, 0},
	        {"ABORT behind a SACK", {3, 0, 0, 8, 1, 1, 1, 1, 6, 0, 0, 4}, 12, 0, 0, 0},
	        {"SHUTDOWN COMPLETE", {14, 0, 0, 4}, 4, 0, 0, 0},
	        {"COOKIE ACK", {11, 0, 0, 4}, 4, 0, 0, 0},
	        {"ERROR", {9, 0, 0, 4}, 4, 0, 0, 0},
	        {"a chunk without length", {4, 0, 0, 0, 6, 0, 0, 4}, 8, 6, 1, 9},
	        {"a chunk that is too long", {4, 0, 255, 255}, 8, 6, 1, 9},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint8_t packet[64] = {0x12, 0x34, 0x56, 0x78, 9, 9, 9, 9}, out[SCTP_ANSWER_BYTES];
		size_t bytes = SCTP_HEADER_BYTES + rows[i].bytes;
		print_message("%s\n", rows[i].what);
		memcpy(packet + SCTP_HEADER_BYTES, rows[i].chunks, rows[i].bytes);
		sctp_packet_seal(packet, bytes);
		assert_true(sctp_packet_is_sound(packet, bytes));
		for (size_t n = 0; n < bytes; n++) {
			packet[n] ^= 0x10;
			assert_false(sctp_packet_is_sound(packet, bytes));
			packet[n] ^= 0x10;
		}
		size_t length = sctp_packet_refuse(packet, bytes, out);
		assert_int_equal(length, rows[i].answer != 0 ? SCTP_ANSWER_BYTES : 0);
		if (length == 0)
			continue;
		const uint8_t want[] = {0x56,        0x78,        0x12,        0x34,
		                        rows[i].tag, rows[i].tag, rows[i].tag, rows[i].tag};
		assert_memory_equal(out, want, sizeof(want));
		assert_true(sctp_packet_is_sound(out, length));
		assert_int_equal(out[12], rows[i].answer);
		assert_int_equal(out[13], rows[i].flags);
		assert_int_equal(out[15], 4);
	}
}

/* An end whose UDP port is shared answers nothing that is for the ports of others. */
static void ip9_the_ports_of_others(void **state)
{
	(void)state;
	struct udp_address peer;
	struct sctp_sock sock, listener, a, b;
	uint16_t own = 0;
	open_ends();
	assert_true(sctp_end_share(&ends[1]));
	address_of(1, &peer);
	assert_int_equal(
	        sctp_connect(&sock, &ends[0], &peer, UDP_PORT, 99, &own, ADAPTATION, NULL, NULL),
	        0);
	uint64_t until = clock_now_ns() + WAIT_NS;
	while (ends[1].refused == 0) {
		assert_true(clock_now_ns() < until);
		turn();
	}
	assert_int_equal(ends[1].path_count, 0);
	sctp_close(&sock, true);
	sctp_end_hold(&ends[1], 0, 0xffff, true);
	sctp_end_hold(&ends[1], 0xffff, 1, true);
	associate(&listener, &a, &b);
	sctp_close(&a, true);
	sctp_close(&b, true);
	sctp_close(&listener, true);
	close_ends();
}

/* An association that is closed in order outlives the socket that it leaves by. */
static void ip9_a_path_outlives_its_end(void **state)
{
	(void)state;
	struct sctp_sock listener, a, b;
	open_ends();
	associate(&listener, &a, &b);
	sctp_close(&a, false);
	sctp_end_free(&ends[0]);             /* nobody takes what the peer answers */
	for (unsigned i = 0; i < 300; i++) { /* 15 s: it repeats its SHUTDOWN, and gives up */
		hurry = true;
		ends[0].fd = -1;
		turn();
	}
	hurry = false;
	sctp_close(&b, true);
	sctp_close(&listener, true);
	sctp_end_free(&ends[1]);
}

/* --- classes, and what is recorded --- */

struct records {
	unsigned in, out;
	uint8_t tos;
};

static void note_packet(void *context, const struct sctp_end *end, const struct sctp_seen *seen)
{
	struct records *records = context;
	records->in += seen->inbound;
	records->out += !seen->inbound;
	assert_int_equal(seen->port, UDP_PORT);
	assert_ptr_equal(end, &ends[1]);
	assert_true(seen->bytes >= 12);
	if (seen->inbound)
		records->tos = seen->tos;
}

static void ip9_x6_the_traffic_class_and_the_packets(void **state)
{
	(void)state;
	struct sctp_sock listener, a, b;
	struct records records = {0};
	size_t bytes;
	uint32_t ppid;
	open_ends();
	sctp_end_record(&ends[1]);
	associate(&listener, &a, &b);
	assert_int_equal(await(&b, &bytes, &ppid), SCTP_CAME_UP);
	sctp_end_seen(&ends[1], note_packet, &records);
	assert_true(records.in >= 2 && records.out >= 2); /* INIT, INIT ACK, cookies */
	assert_int_equal(records.tos, 0);
	assert_true(sctp_set_class(&a, 0xba)); /* the two lowest bits are those of ECN */
	records = (struct records){0};
	assert_int_equal(sctp_send(&a, 16, "x", 1), 0);
	assert_int_equal(await(&b, &bytes, &ppid), SCTP_CAME_MESSAGE);
	sctp_end_seen(&ends[1], note_packet, &records);
	assert_int_equal(records.in, 1);
	assert_int_equal(records.tos, 0xb8);
	sctp_close(&a, true);
	sctp_close(&b, true);
	sctp_close(&listener, true);
	close_ends();
}

/* Associations of one peer, on one path, in different classes, and more than are remembered before
 * they are accepted. */
static void ip9_the_accepting_end_learns_the_class(void **state)
{
	static const uint8_t classes[] = {0xb8, 0, 0x20};
	enum { COUNT = 3 * 2 * SCTP_BEGUN };
	static struct sctp_sock listeners[COUNT], a[COUNT], b[COUNT];
	(void)state;
	open_ends();
	for (unsigned i = 0; i < COUNT; i++)
		associate_in(classes[i % 3], &listeners[i], &a[i], &b[i]);
	for (unsigned i = 0; i < COUNT; i++) {
		assert_ptr_equal(a[i].path, a[0].path);
		sctp_close(&a[i], true);
		sctp_close(&b[i], true);
		sctp_close(&listeners[i], true);
	}
	close_ends();
}

/* An INIT, or a cookie that nobody has given out, from UDP port @from of a third address. */
static void attack(uint8_t chunk, uint16_t from, uint16_t to)
{
	uint8_t packet[SCTP_HEADER_BYTES + 20] = {0};
	struct udp_address third, second;
	union udp_name name;
	address_of(2, &third);
	address_of(1, &second);
	int sock = udp_open_plain(&third, &from);
	if (sock < 0)
		return; /* somebody has the port */
	packet[1] = 5;
	packet[2] = (uint8_t)(to >> 8);
	packet[3] = (uint8_t)to;
	packet[SCTP_HEADER_BYTES] = chunk;
	packet[SCTP_HEADER_BYTES + 3] = 20;
	memset(packet + SCTP_HEADER_BYTES + 4, 1, 16);
	sctp_packet_seal(packet, sizeof(packet));
	socklen_t bytes = udp_name_of(&second, UDP_PORT, &name);
	assert_int_equal(sendto(sock, packet, sizeof(packet), 0, &name.any, bytes), sizeof(packet));
	close(sock);
}

/* Strangers from more ports than there are paths: nothing is kept of them, and associations that
 * nobody has accepted yet stay. */
static void ip9_strangers_push_nobody_out(void **state)
{
	enum { WAITING = 5 };
	struct sctp_sock listener, a[WAITING], b[WAITING];
	struct udp_address peer;
	uint16_t port = 0, from;
	size_t bytes;
	uint32_t ppid;
	(void)state;
	open_ends();
	address_of(1, &peer);
	assert_int_equal(sctp_listen(&listener, &port, 5, ADAPTATION, ends[1].mtu, NULL, NULL), 0);
	for (unsigned i = 0; i < WAITING; i++) {
		uint16_t own = 0;
		assert_int_equal(sctp_connect(&a[i], &ends[0], &peer, UDP_PORT, port, &own,
		                              ADAPTATION, NULL, NULL),
		                 0);
		assert_int_equal(await(&a[i], &bytes, &ppid), SCTP_CAME_UP);
	}
	assert_int_equal(ends[1].path_count, 1);
	for (uint32_t i = 0; i < 2 * SCTP_MAX_PATHS; i++) {
		attack(i % 2 ? SCTP_CHUNK_INIT : SCTP_CHUNK_COOKIE_ECHO, (uint16_t)(20000 + i),
		       port);
		if (i % 32 == 0)
			while (sctp_end_receive(&ends[1], clock_now_ns()) > 0)
				;
	}
	while (sctp_end_receive(&ends[1], clock_now_ns()) > 0)
		;
	assert_int_equal(ends[1].path_count, 1);
	for (unsigned i = 0; i < WAITING; i++) {
		assert_int_equal(sctp_accept(&listener, &b[i], &from), 0);
		assert_int_equal(sctp_send(&b[i], 16, "x", 1), 0);
		assert_int_equal(await(&a[i], &bytes, &ppid), SCTP_CAME_MESSAGE);
	}
	for (unsigned i = 0; i < WAITING; i++) {
		sctp_close(&a[i], true);
		sctp_close(&b[i], true);
	}
	sctp_close(&listener, true);
	close_ends();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(ip9_messages_pass),
	        cmocka_unit_test(ip9_as_much_as_there_is_room_for),
	        cmocka_unit_test(ip9_bad_packets),
	        cmocka_unit_test(ip9_wrong_adaptation),
	        cmocka_unit_test(ip9_an_init_that_is_not_answered),
	        cmocka_unit_test(rfc9260_out_of_the_blue),
	        cmocka_unit_test(ip9_the_ports_of_others),
	        cmocka_unit_test(ip9_a_path_outlives_its_end),
	        cmocka_unit_test(ip9_x6_the_traffic_class_and_the_packets),
	        cmocka_unit_test(ip9_the_accepting_end_learns_the_class),
	        cmocka_unit_test(ip9_strangers_push_nobody_out),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
