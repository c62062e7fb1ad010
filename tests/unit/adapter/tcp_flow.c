/* A TCP socket as the carrier of a byte stream: transports that offer and want runs of random
 * lengths, that hold back, refuse and lose their memory; and how many calls and copies it takes. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "adapter/net/tcp_flow.h"
#include "base/prng.h"
#include "port/tcp.h"

#define WAIT_MS    10000
#define MAX_STREAM (4u << 20)

static uint8_t staging[TCP_STAGING_BYTES];

/* One end: sends @out_bytes of @out, places what comes at @in. Byte i of a stream is pattern(i). */
struct end {
	struct prng prng;
	uint8_t *out, *in;
	size_t out_bytes, sent;
	size_t in_bytes; /* room */
	size_t received;
	size_t piece;    /* length of a run; 0: random */
	size_t run_most; /* runs per call; 0: random */
	size_t stop_at;  /* want() says no here */
	size_t bad_at;   /* arrived() says no from here on */
	enum stream_end why;
};

static uint8_t pattern(size_t i)
{
	return (uint8_t)(i * 31 + (i >> 9));
}

static size_t run_length(struct end *end)
{
	if (end->piece != 0)
		return end->piece;
	return 1 + (size_t)prng_below(&end->prng, prng_chance(&end->prng, 500) ? 40 : 20000);
}

static size_t end_runs(struct end *end, uint8_t *base, size_t from, size_t to,
                       struct stream_run *runs, size_t max)
{
	size_t count = 0;
	size_t most = end->run_most != 0 ? end->run_most : 1 + (size_t)prng_below(&end->prng, max);
	for (; from < to && count < most && count < max; count++) {
		size_t length = run_length(end);
		if (length > to - from)
			length = to - from;
		runs[count] = (struct stream_run){base + from, length};
		from += length;
	}
	return count;
}

static size_t end_offer(void *context, struct stream_run *runs, size_t max)
{
	struct end *end = context;
	return end_runs(end, end->out, end->sent, end->out_bytes, runs, max);
}

static void end_taken(void *context, size_t bytes)
{
	struct end *end = context;
	end->sent += bytes;
}

static size_t end_want(void *context, struct stream_run *runs, size_t max)
{
	struct end *end = context;
	size_t to = end->stop_at < end->in_bytes ? end->stop_at : end->in_bytes;
	return end_runs(end, end->in, end->received, to, runs, max);
}

static bool end_arrived(void *context, size_t bytes)
{
	struct end *end = context;
	end->received += bytes;
	return end->received < end->bad_at;
}

static void end_ended(void *context, enum stream_end why)
{
	struct end *end = context;
	end->why = why;
}

static const struct stream_ops ops = {end_offer, end_taken, end_want, end_arrived, end_ended};

static void end_init(struct end *end, uint64_t seed, size_t out_bytes, size_t in_bytes)
{
	*end = (struct end){.out_bytes = out_bytes,
	                    .in_bytes = in_bytes,
	                    .stop_at = SIZE_MAX,
	                    .bad_at = SIZE_MAX};
	prng_seed(&end->prng, seed);
	end->out = malloc(out_bytes + 1);
	end->in = calloc(1, in_bytes + 1);
	assert_true(end->out != NULL && end->in != NULL);
	for (size_t i = 0; i < out_bytes; i++)
		end->out[i] = pattern(i);
}

static void end_check(struct end *end, size_t bytes)
{
	assert_int_equal(end->received, bytes);
	for (size_t i = 0; i < bytes; i++)
		if (end->in[i] != pattern(i))
			fail_msg("byte %zu", i);
}

static void end_free(struct end *end)
{
	free(end->out);
	free(end->in);
}

static void connect_flows(struct tcp_flow *a, struct end *at_a, struct tcp_flow *b,
                          struct end *at_b)
{
	struct udp_address here, peer;
	uint16_t port = 0, peer_port;
	assert_true(udp_address_parse("127.0.0.1", &here));
	int listener = tcp_bind(&here, &port);
	assert_true(listener >= 0);
	assert_int_equal(tcp_listen(listener, 1), 0);
	int one = tcp_connect(&here, &here, port, &(struct tcp_class){0});
	struct pollfd wait = {.fd = listener, .events = POLLIN};
	assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
	int other = tcp_accept(listener, &peer, &peer_port);
	assert_true(one >= 0 && other >= 0);
	close(listener);
	tcp_flow_init(a, one, &ops, at_a);
	tcp_flow_init(b, other, &ops, at_b);
}

static void end_flow(struct tcp_flow *flow)
{
	tcp_flow_end(flow);
	tcp_close(flow->sock, false);
}

static void await(const struct tcp_flow *flow)
{
	struct pollfd wait = {.fd = flow->sock, .events = POLLIN};
	assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
}

/* Move bytes both ways until @bytes have arrived at each end. */
static void exchange(struct tcp_flow *a, struct end *at_a, struct tcp_flow *b, struct end *at_b)
{
	size_t moved;
	while (at_a->received < at_b->out_bytes || at_b->received < at_a->out_bytes) {
		tcp_flow_out(a, &moved);
		tcp_flow_out(b, &moved);
		if (at_a->received < at_b->out_bytes)
			await(a);
		else
			await(b);
		assert_true(tcp_flow_in(a, staging, &moved) < TCP_FLOW_CLOSED);
		assert_true(tcp_flow_in(b, staging, &moved) < TCP_FLOW_CLOSED);
	}
}

static void any_runs_both_ways(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 6; seed++) {
		struct end at_a, at_b;
		struct tcp_flow a, b;
		end_init(&at_a, seed, MAX_STREAM / 4, MAX_STREAM / 8);
		end_init(&at_b, seed + 100, MAX_STREAM / 8, MAX_STREAM / 4);
		connect_flows(&a, &at_a, &b, &at_b);
		exchange(&a, &at_a, &b, &at_b);
		end_check(&at_a, MAX_STREAM / 8);
		end_check(&at_b, MAX_STREAM / 4);
		end_flow(&a);
		end_flow(&b);
		end_free(&at_a);
		end_free(&at_b);
	}
}

/* A transport that wants no more, in the middle of what the staging area got: it is kept, and comes
 * first when the transport goes on. */
static void held_back(void **state)
{
	struct end at_a, at_b;
	struct tcp_flow a, b;
	size_t moved;
	(void)state;
	end_init(&at_a, 3, 50000, 0);
	end_init(&at_b, 4, 0, 50000);
	at_b.piece = 10;
	at_b.run_most = 1;
	at_b.stop_at = 20000;
	connect_flows(&a, &at_a, &b, &at_b);
	assert_int_equal(tcp_flow_out(&a, &moved), TCP_FLOW_IDLE);
	while (at_b.received < at_b.stop_at) {
		await(&b);
		tcp_flow_in(&b, staging, &moved);
	}
	end_check(&at_b, 20000);
	memset(staging, 0, sizeof(staging)); /* other connections use it meanwhile */
	assert_int_equal(tcp_flow_in(&b, staging, &moved), TCP_FLOW_HELD);
	assert_int_equal(moved, 0);
	at_b.stop_at = SIZE_MAX;
	for (unsigned i = 0; i < WAIT_MS && at_b.received < 50000; i++) {
		tcp_flow_in(&b, staging, &moved);
		usleep(1000);
	}
	end_check(&at_b, 50000);
	assert_null(b.kept);
	end_flow(&a);
	end_flow(&b);
	end_free(&at_a);
	end_free(&at_b);
}

/* A long payload: one call, and no byte goes through the staging area. A thousand short messages:
 * one call, too. */
static void calls_and_copies(void **state)
{
	struct end at_a, at_b;
	struct tcp_flow a, b;
	size_t moved;
	(void)state;
	end_init(&at_a, 3, 65536, 0);
	end_init(&at_b, 4, 0, 65536);
	at_a.piece = at_b.piece = 65536;
	connect_flows(&a, &at_a, &b, &at_b);
	assert_int_equal(tcp_flow_out(&a, &moved), TCP_FLOW_IDLE);
	assert_int_equal(a.sends, 1);
	for (unsigned i = 0; i < WAIT_MS && tcp_unacknowledged(a.sock) > 0; i++)
		usleep(1000);
	assert_int_equal(tcp_flow_in(&b, staging, &moved), TCP_FLOW_IDLE);
	assert_int_equal(b.receives, 1);
	assert_int_equal(b.staged_bytes, 0);
	end_check(&at_b, 65536);
	end_free(&at_a);
	end_free(&at_b);
	end_flow(&a);
	end_flow(&b);

	end_init(&at_a, 3, 32000, 0);
	end_init(&at_b, 4, 0, 32000);
	at_a.piece = 32000;
	at_b.piece = 32;
	at_b.run_most = 1;
	connect_flows(&a, &at_a, &b, &at_b);
	assert_int_equal(tcp_flow_out(&a, &moved), TCP_FLOW_IDLE);
	for (unsigned i = 0; i < WAIT_MS && tcp_unacknowledged(a.sock) > 0; i++)
		usleep(1000);
	tcp_flow_in(&b, staging, &moved);
	assert_int_equal(b.receives, 1);
	end_check(&at_b, 32000);
	end_free(&at_a);
	end_free(&at_b);
	end_flow(&a);
	end_flow(&b);
}

static void how_it_ends(void **state)
{
	struct end at_a, at_b;
	struct tcp_flow a, b;
	size_t moved;
	(void)state;
	/* Data, then FIN. */
	end_init(&at_a, 3, 100, 10);
	end_init(&at_b, 4, 10, 200);
	connect_flows(&a, &at_a, &b, &at_b);
	tcp_flow_out(&a, &moved);
	tcp_finish(a.sock);
	enum tcp_flow_result result = TCP_FLOW_IDLE;
	while (result == TCP_FLOW_IDLE) {
		await(&b);
		result = tcp_flow_in(&b, staging, &moved);
	}
	assert_int_equal(result, TCP_FLOW_CLOSED);
	end_check(&at_b, 100);
	end_flow(&a);
	end_flow(&b);
	/* The stream is invalid. */
	at_a.sent = at_b.received = 0;
	at_b.bad_at = 60;
	connect_flows(&a, &at_a, &b, &at_b);
	tcp_flow_out(&a, &moved);
	do {
		await(&b);
		result = tcp_flow_in(&b, staging, &moved);
	} while (result == TCP_FLOW_IDLE);
	assert_int_equal(result, TCP_FLOW_REFUSED);
	/* RST. */
	tcp_close(a.sock, true);
	tcp_flow_end(&a);
	at_b.bad_at = SIZE_MAX;
	for (unsigned i = 0; i < WAIT_MS; i++) {
		result = tcp_flow_in(&b, staging, &moved);
		if (result != TCP_FLOW_IDLE)
			break;
		await(&b);
	}
	assert_int_equal(result, TCP_FLOW_BROKEN);
	assert_int_equal(b.error, ECONNRESET);
	end_flow(&b);
	end_free(&at_a);
	end_free(&at_b);
}

/* The program has unmapped what it sends, or where it receives. */
static void memory_that_is_gone(void **state)
{
	struct end at_a, at_b;
	struct tcp_flow a, b;
	size_t moved;
	uint8_t *gone = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	(void)state;
	assert_ptr_not_equal(gone, MAP_FAILED);
	end_init(&at_a, 3, 100, 0);
	end_init(&at_b, 4, 100, 100);
	connect_flows(&a, &at_a, &b, &at_b);
	uint8_t *out = at_b.out, *in = at_b.in;
	at_b.out = at_b.in = gone;
	assert_int_equal(tcp_flow_out(&b, &moved), TCP_FLOW_FAULT);
	tcp_flow_out(&a, &moved);
	await(&b);
	assert_int_equal(tcp_flow_in(&b, staging, &moved), TCP_FLOW_FAULT);
	assert_int_equal(at_b.received, 0);
	at_b.out = out;
	at_b.in = in;
	munmap(gone, 4096);
	end_flow(&a);
	end_flow(&b);
	end_free(&at_a);
	end_free(&at_b);
}

static size_t feeds;

static size_t counting_feed(void *context, const uint8_t *bytes, size_t length, bool *open)
{
	feeds++;
	return stream_feed(&ops, context, bytes, length, open);
}

/* Another transport takes over in the middle: set-up, then the engine. */
static void handed_over(void **state)
{
	struct end at_a, first, second;
	struct tcp_flow a, b;
	size_t moved;
	(void)state;
	end_init(&at_a, 3, 5000, 0);
	end_init(&first, 4, 0, 20);
	end_init(&second, 5, 0, 5000);
	connect_flows(&a, &at_a, &b, &first);
	tcp_flow_out(&a, &moved);
	while (first.received < 20) {
		await(&b);
		tcp_flow_in(&b, staging, &moved);
	}
	end_check(&first, 20);
	memcpy(second.in, first.in, 20);
	second.received = 20;
	feeds = 0;
	tcp_flow_become(&b, &ops, &second, counting_feed, NULL);
	for (unsigned i = 0; i < WAIT_MS && second.received < 5000; i++) {
		tcp_flow_in(&b, staging, &moved);
		usleep(1000);
	}
	end_check(&second, 5000);
	assert_true(feeds > 0);
	end_flow(&a);
	end_flow(&b);
	end_free(&at_a);
	end_free(&first);
	end_free(&second);
}

/* Bytes that somebody read before the stream became ours come first. */
static void bytes_read_before(void **state)
{
	struct end at_a, at_b;
	struct tcp_flow a, b;
	size_t moved;
	uint8_t early[10];
	(void)state;
	end_init(&at_a, 3, 100, 0);
	end_init(&at_b, 4, 0, 100);
	connect_flows(&a, &at_a, &b, &at_b);
	for (size_t i = 0; i < sizeof(early); i++)
		early[i] = pattern(i);
	at_a.sent = sizeof(early);
	assert_true(tcp_flow_put_back(&b, early, sizeof(early)));
	tcp_flow_in(&b, staging, &moved);
	end_check(&at_b, sizeof(early));
	tcp_flow_out(&a, &moved);
	while (at_b.received < 100) {
		await(&b);
		tcp_flow_in(&b, staging, &moved);
	}
	end_check(&at_b, 100);
	end_flow(&a);
	end_flow(&b);
	end_free(&at_a);
	end_free(&at_b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(any_runs_both_ways),  cmocka_unit_test(held_back),
	        cmocka_unit_test(calls_and_copies),    cmocka_unit_test(how_it_ends),
	        cmocka_unit_test(memory_that_is_gone), cmocka_unit_test(bytes_read_before),
	        cmocka_unit_test(handed_over),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
