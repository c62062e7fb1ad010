/* Whose a socket of this machine is, by either of the two ways to know. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "port/owner.h"

#define STRANGER  65534 /* nobody */
#define ROUNDS    1000000
#define BUDGET_NS 200 /* of processor for a packet of a known source; it takes 20 */

static struct udp_address address_of(const char *text)
{
	struct udp_address address;
	assert_true(udp_address_parse(text, &address));
	return address;
}

/* A socket on @text, and its port. */
static int bound(const char *text, uint16_t *port)
{
	struct udp_address address = address_of(text);
	struct sockaddr_in6 name;
	socklen_t length = sizeof(name);
	int sock = udp_open(&address, 0);
	assert_true(sock >= 0);
	assert_int_equal(getsockname(sock, (struct sockaddr *)&name, &length), 0);
	*port = ntohs(name.sin6_port);
	return sock;
}

static void begin(struct owner *owner, bool by_proc)
{
	owner_begin(owner);
	owner->no_diag = by_proc;
}

static void ours_and_nobodys(void **state)
{
	static const char *const texts[] = {"127.72.250.1", "127.0.0.1", "::1"};
	(void)state;
	for (unsigned way = 0; way < 2; way++)
		for (unsigned i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
			struct owner owner;
			struct udp_address address = address_of(texts[i]);
			uint16_t port, never;
			uid_t uid = 12345;
			begin(&owner, way == 1);
			close(bound(texts[i], &never));
			int sock = bound(texts[i], &port);
			assert_int_equal(owner_ask(&owner, &address, port, &uid), OWNER_OURS);
			assert_int_equal(uid, geteuid());
			assert_true(owner_proves(&owner, &address, port));
			assert_true(owner_proves(&owner, &address, never)); /* it may have ended */
			owner.gone = 0;
			assert_false(owner_proves(&owner, &address, never));
			close(sock);
			assert_int_equal(owner_ask(&owner, &address, port, &uid), OWNER_NOBODY);
			/* It may have sent before it was closed; it is not believed for ever. */
			assert_true(owner_proves(&owner, &address, port));
			owner.last->until_ns = 0;
			assert_true(owner_proves(&owner, &address, port));
			owner.last->until_ns = 0;
			owner.last->ours_ns = 1; /* long ago */
			owner.gone = 0;
			assert_false(owner_proves(&owner, &address, port));
			assert_int_equal(owner.refused, 2);
			owner_end(&owner);
		}
}

static void another_users(void **state)
{
	struct udp_address address = address_of("127.72.250.2");
	int talk[2];
	uint16_t port;
	(void)state;
	if (geteuid() != 0) {
		print_message("not root: nobody else to be\n");
		skip();
	}
	assert_int_equal(pipe(talk), 0);
	pid_t child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (setgid(STRANGER) != 0 || setuid(STRANGER) != 0)
			_exit(1);
		bound("127.72.250.2", &port);
		if (write(talk[1], &port, sizeof(port)) != sizeof(port))
			_exit(1);
		pause();
		_exit(0);
	}
	assert_int_equal(read(talk[0], &port, sizeof(port)), sizeof(port));
	for (unsigned way = 0; way < 2; way++) {
		struct owner owner;
		uid_t uid = 0;
		begin(&owner, way == 1);
		assert_int_equal(owner_ask(&owner, &address, port, &uid), OWNER_OTHER);
		assert_int_equal(uid, STRANGER);
		assert_false(owner_proves(&owner, &address, port));
		owner_end(&owner);
	}
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	close(talk[0]);
	close(talk[1]);
}

static uint64_t used_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void a_known_source_costs_little(void **state)
{
	struct owner owner;
	struct udp_address own = address_of("192.0.2.1"), far = address_of("192.0.2.2"),
	                   near = address_of("127.72.250.3");
	uint16_t port;
	(void)state;
	int sock = bound("127.72.250.3", &port);
	begin(&owner, false);
	uint64_t start = used_ns();
	for (unsigned i = 0; i < ROUNDS; i++)
		assert_true(owner_admits(&owner, &own, &near, port));
	uint64_t near_ns = (used_ns() - start) / ROUNDS;
	start = used_ns();
	for (unsigned i = 0; i < ROUNDS; i++)
		assert_true(owner_admits(&owner, &own, &far, port)); /* nobody is asked */
	uint64_t far_ns = (used_ns() - start) / ROUNDS;
	print_message("%llu ns from the loopback, %llu from elsewhere\n",
	              (unsigned long long)near_ns, (unsigned long long)far_ns);
	assert_true(near_ns < BUDGET_NS && far_ns < BUDGET_NS);
	owner_end(&owner);
	close(sock);
}

/* Who sends from sockets that are closed before we ask, or from ever new ports: a few packets a
 * second, and no more, are taken. */
static void those_that_are_gone_are_few(void **state)
{
	struct owner owner;
	struct udp_address address = address_of("127.72.250.5");
	uint64_t taken = 0, seconds = 1, second = 0;
	(void)state;
	begin(&owner, false);
	for (unsigned i = 0; i < 10000; i++) {
		taken += owner_proves(&owner, &address, (uint16_t)(1000 + i % 5000));
		seconds += second != 0 && owner.asks_ns != second;
		second = owner.asks_ns;
	}
	assert_true(taken > 0 && taken <= seconds * OWNER_GONE_PER_S);
	owner_end(&owner);
}

/* Whoever sends from ever new ports does not make us ask the kernel without end. */
static void questions_are_limited(void **state)
{
	struct owner owner;
	struct udp_address address = address_of("127.72.250.4");
	(void)state;
	begin(&owner, false);
	for (unsigned tries = 0; tries < 10; tries++) {
		owner_proves(&owner, &address, 1); /* nobody's */
		uint64_t second = owner.asks_ns;
		owner.asks = 5;
		for (unsigned i = 0; i < 100; i++)
			owner_proves(&owner, &address, (uint16_t)(1000 + i));
		if (owner.asks_ns != second)
			continue; /* the next second has begun */
		assert_int_equal(owner.asks, 0);
		owner_end(&owner);
		return;
	}
	fail_msg("a hundred calls take seconds");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(ours_and_nobodys),
	        cmocka_unit_test(another_users),
	        cmocka_unit_test(a_known_source_costs_little),
	        cmocka_unit_test(those_that_are_gone_are_few),
	        cmocka_unit_test(questions_are_limited),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
