/* TCP sockets for iWARP on the loopback: IPv4 and IPv6, what the calls report of the peer's end, of
 * ports in use and of memory that is not there. */
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "port/tcp.h"

#define WAIT_MS 10000

static struct udp_address loopback(bool ipv6)
{
	struct udp_address address;
	assert_true(udp_address_parse(ipv6 ? "::1" : "127.0.0.1", &address));
	return address;
}

static void await(int sock, short events)
{
	struct pollfd wait = {.fd = sock, .events = events};
	assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
}

struct pair {
	int listener, a, b; /* a has connected, b was accepted */
	uint16_t port;
};

static void connect_pair(struct pair *pair, bool ipv6)
{
	struct udp_address here = loopback(ipv6), peer, own;
	uint16_t port, own_port, peer_port;
	pair->port = 0;
	pair->listener = tcp_bind(&here, &pair->port);
	assert_true(pair->listener >= 0 && pair->port != 0);
	assert_int_equal(tcp_listen(pair->listener, 4), 0);
	assert_int_equal(tcp_accept(pair->listener, &peer, &port), -EAGAIN);
	pair->a = tcp_connect(&here, &here, pair->port, &(struct tcp_class){0});
	assert_true(pair->a >= 0);
	await(pair->a, POLLOUT);
	assert_int_equal(tcp_connected(pair->a), 0);
	await(pair->listener, POLLIN);
	pair->b = tcp_accept(pair->listener, &peer, &port);
	assert_true(pair->b >= 0);
	assert_true(udp_address_equal(&peer, &here));
	assert_int_equal(tcp_names(pair->a, &own, &own_port, &peer, &peer_port), 0);
	assert_int_equal(own_port, port);
	assert_int_equal(peer_port, pair->port);
}

static void end_pair(struct pair *pair)
{
	close(pair->listener);
	if (pair->a >= 0)
		tcp_close(pair->a, false);
	if (pair->b >= 0)
		tcp_close(pair->b, false);
}

static void both_families(void **state)
{
	(void)state;
	for (unsigned ipv6 = 0; ipv6 < 2; ipv6++) {
		struct pair pair;
		uint8_t first[3], second[5] = {0};
		struct iovec in[2] = {{first, sizeof(first)}, {second, sizeof(second)}};
		struct iovec out[2] = {{(void *)(uintptr_t) "iWA", 3},
		                       {(void *)(uintptr_t) "RP", 2}};
		connect_pair(&pair, ipv6 != 0);
		assert_int_equal(tcp_receive(pair.b, in, 2), -EAGAIN);
		assert_int_equal(tcp_send(pair.a, out, 2, TCP_MORE), 5);
		tcp_push(pair.a);
		await(pair.b, POLLIN);
		assert_int_equal(tcp_receive(pair.b, in, 2), 5);
		assert_memory_equal(first, "iWA", 3);
		assert_memory_equal(second, "RP", 2);
		assert_true(tcp_segment(pair.a) > 500);
		assert_true(tcp_segment(pair.a) <= TCP_MAX_SEGMENT);
		for (unsigned i = 0; i < WAIT_MS && tcp_unacknowledged(pair.a) > 0; i++)
			usleep(1000);
		assert_int_equal(tcp_unacknowledged(pair.a), 0);
		end_pair(&pair);
	}
}

/* Everything that is needed to notice a peer that disappears, at both ends. */
static void options_are_set(void **state)
{
	struct pair pair;
	(void)state;
	connect_pair(&pair, false);
	for (unsigned end = 0; end < 2; end++) {
		int sock = end ? pair.a : pair.b, value = 0;
		socklen_t bytes = sizeof(value);
		assert_int_equal(getsockopt(sock, SOL_SOCKET, SO_KEEPALIVE, &value, &bytes), 0);
		assert_int_equal(value, 1);
		assert_int_equal(getsockopt(sock, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &bytes),
		                 0);
		assert_int_equal(value, TCP_GIVE_UP_MS);
		assert_int_equal(getsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &value, &bytes), 0);
		assert_int_not_equal(value, 0);
	}
	end_pair(&pair);
}

static void orderly_and_abortive_ends(void **state)
{
	struct pair pair;
	uint8_t byte;
	struct iovec one = {&byte, 1};
	(void)state;
	connect_pair(&pair, false);
	assert_int_equal(tcp_send(pair.a, &one, 1, TCP_AS_IT_IS), 1);
	tcp_finish(pair.a);
	await(pair.b, POLLIN);
	assert_int_equal(tcp_receive(pair.b, &one, 1), 1);
	await(pair.b, POLLIN);
	assert_int_equal(tcp_receive(pair.b, &one, 1), 0);
	assert_int_equal(tcp_send(pair.b, &one, 1, TCP_AS_IT_IS), 1); /* its direction is open */
	end_pair(&pair);

	connect_pair(&pair, false);
	tcp_close(pair.a, true);
	pair.a = -1;
	await(pair.b, POLLIN);
	assert_int_equal(tcp_receive(pair.b, &one, 1), -ECONNRESET);
	end_pair(&pair);
}

static void ports_in_use_and_nobody_there(void **state)
{
	struct udp_address here = loopback(false), six = loopback(true), far;
	uint16_t port = 0, again;
	(void)state;
	int first = tcp_bind(&here, &port);
	assert_true(first >= 0);
	assert_int_equal(tcp_listen(first, 1), 0);
	again = port;
	assert_int_equal(tcp_bind(&here, &again), -EADDRINUSE);
	close(first);
	/* Nobody listens any more. */
	int sock = tcp_connect(&here, &here, port, &(struct tcp_class){0});
	if (sock >= 0) {
		await(sock, POLLOUT);
		assert_int_equal(tcp_connected(sock), -ECONNREFUSED);
		close(sock);
	} else {
		assert_int_equal(sock, -ECONNREFUSED);
	}
	assert_int_equal(tcp_connect(&here, &six, port, &(struct tcp_class){0}), -EAFNOSUPPORT);
	assert_true(udp_address_parse("192.0.2.77", &far)); /* nobody's (RFC 5737) */
	assert_int_equal(tcp_bind(&far, &again), -EADDRNOTAVAIL);
}

static void memory_that_is_not_there(void **state)
{
	struct pair pair;
	uint8_t byte = 7;
	struct iovec good = {&byte, 1};
	void *gone = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct iovec bad = {gone, 16};
	(void)state;
	assert_ptr_not_equal(gone, MAP_FAILED);
	connect_pair(&pair, false);
	assert_int_equal(tcp_send(pair.a, &bad, 1, TCP_AS_IT_IS), -EFAULT);
	assert_int_equal(tcp_send(pair.a, &good, 1, TCP_AS_IT_IS), 1);
	await(pair.b, POLLIN);
	assert_int_equal(tcp_receive(pair.b, &bad, 1), -EFAULT);
	assert_int_equal(tcp_receive(pair.b, &good, 1), 1);
	munmap(gone, 4096);
	end_pair(&pair);
}

static void sockets_of_others(void **state)
{
	struct pair pair;
	int pipes[2], udp = socket(AF_INET, SOCK_DGRAM, 0);
	int fresh = socket(AF_INET, SOCK_STREAM, 0);
	(void)state;
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(tcp_adopt(pipes[0]), -ENOTSOCK);
	assert_int_equal(tcp_adopt(udp), -EPROTOTYPE);
	assert_int_equal(tcp_adopt(fresh), -ENOTCONN);
	assert_int_equal(tcp_adopt(-1), -EBADF);
	connect_pair(&pair, false);
	assert_int_equal(tcp_adopt(pair.a), 0);
	end_pair(&pair);
	close(pipes[0]);
	close(pipes[1]);
	close(udp);
	close(fresh);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(both_families),
	        cmocka_unit_test(options_are_set),
	        cmocka_unit_test(orderly_and_abortive_ends),
	        cmocka_unit_test(ports_in_use_and_nobody_there),
	        cmocka_unit_test(memory_that_is_not_there),
	        cmocka_unit_test(sockets_of_others),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
