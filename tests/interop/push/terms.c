/* The terms of a split driver's connection that its users choose, through heddle/push.h: pools with
 * a context, the two forms of SPLIT figure 7, and pools that go while the connection stays (PP5).
 * Both ends are in this process, each with an adapter of its own, and take turns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include <heddle/push.h>

#define MAX_FRAMES 4096u

enum { HOST, UNIT };

/* One end, and what it has received. */
struct end {
	struct hdl_adapter *adapter;
	struct hdl_push_port *port;
	struct hdl_push *push;
	struct hdl_push_terms terms; /* pools, for the unit */
	bool closed, blocked;
	uint32_t answers;
	char why[128];
	uint32_t delivered;
	uint8_t first[MAX_FRAMES]; /* byte of each frame */
	uint32_t bytes[MAX_FRAMES];
	bool indicated[MAX_FRAMES];
	struct hdl_push_indication at[MAX_FRAMES];
};

static struct end ends[2];
static const char *refusal; /* what the unit says to a host; NULL: it accepts */

static const char *on_accept(void *context, const char *name, struct hdl_push_terms *terms)
{
	const struct end *end = context;
	if (refusal != NULL)
		return refusal;
	assert_string_equal(name, "terms");
	assert_int_equal(terms->pool_count, 0); /* those of the host are its own business */
	terms->pool_count = end->terms.pool_count;
	memcpy(terms->pools, end->terms.pools, sizeof(terms->pools));
	return NULL;
}

static void on_opened(void *context, struct hdl_push *push)
{
	struct end *end = context;
	end->push = push;
}

static void on_closed(void *context, struct hdl_push *push, const char *why)
{
	struct end *end = context;
	(void)push;
	snprintf(end->why, sizeof(end->why), "%s", why);
	end->push = NULL;
	end->closed = true;
}

static bool on_frame(void *context, struct hdl_push *push, const uint8_t *frame, uint32_t bytes)
{
	struct end *end = context;
	if (end->blocked)
		return false;
	uint32_t n = end->delivered++;
	assert_true(n < MAX_FRAMES);
	end->first[n] = frame[bytes - 1];
	end->bytes[n] = bytes;
	end->indicated[n] = hdl_push_indicated(push, &end->at[n]);
	return true;
}

static void on_request(void *context, struct hdl_push *push, const struct hdl_push_cfg *request,
                       struct hdl_push_cfg *reply)
{
	(void)context;
	(void)push;
	(void)request;
	reply->has_value = true;
}

static void on_answer(void *context, struct hdl_push *push, uint64_t token,
                      const struct hdl_push_cfg *reply)
{
	struct end *end = context;
	(void)push;
	(void)token;
	assert_non_null(reply);
	end->answers++;
}

static const struct hdl_push_ops ops = {.accept = on_accept,
                                        .opened = on_opened,
                                        .closed = on_closed,
                                        .deliver = on_frame,
                                        .configure = on_request,
                                        .configured = on_answer};

static void turn(void)
{
	for (unsigned i = 0; i < 2; i++)
		hdl_push_run(ends[i].port);
}

/* Take turns until @check is true. However busy the machine is, it is within a minute. */
#define UNTIL(check)                                    \
	do {                                            \
		time_t end = time(NULL) + 60;           \
		while (!(check)) {                      \
			turn();                         \
			assert_true(time(NULL) <= end); \
		}                                       \
	} while (0)

static int open_ends(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct hdl_open_attr attr = {.on_node = true};
		int fds[HDL_PUSH_FDS];
		memset(&ends[i], 0, sizeof(ends[i]));
		assert_int_equal(hdl_open(&attr, &ends[i].adapter), 0);
		assert_int_equal(hdl_push_open(ends[i].adapter, i == UNIT ? HDL_PUSH_SERVICE : 0,
		                               &ops, &ends[i], fds, &ends[i].port),
		                 0);
	}
	return 0;
}

static int close_ends(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		hdl_push_shut(ends[i].port);
		assert_int_equal(hdl_close(ends[i].adapter), 0);
		hdl_push_free(ends[i].port);
	}
	return 0;
}

static struct hdl_push_terms plain(uint32_t frame_bytes)
{
	return (struct hdl_push_terms){
	        .host_owns = true, .unit_owns = true, .frame_bytes = frame_bytes};
}

static void connect_ends(const struct hdl_push_terms *terms)
{
	struct hdl_limits limits;
	struct hdl_push *push;
	assert_int_equal(hdl_adapter_query(ends[UNIT].adapter, &limits), 0);
	assert_int_equal(hdl_push_connect(ends[HOST].port, &limits.gid, HDL_PUSH_SERVICE, "terms",
	                                  terms, &push),
	                 0);
	UNTIL((ends[HOST].push != NULL && ends[UNIT].push != NULL) || ends[HOST].closed);
	assert_string_equal(ends[HOST].why, "");
}

/* A frame, whose last byte is @mark. */
static void send_frame(struct end *from, const uint8_t *head, uint32_t head_bytes, uint32_t bytes,
                       uint8_t mark)
{
	uint8_t *frame = NULL;
	UNTIL((frame = hdl_push_take(from->push)) != NULL);
	memset(frame, 0, bytes);
	if (head_bytes > 0)
		memcpy(frame, head, head_bytes);
	frame[bytes - 1] = mark;
	hdl_push_send(from->push, bytes);
}

static void send_bytes(struct end *from, uint32_t bytes, uint8_t mark)
{
	send_frame(from, NULL, 0, bytes, mark);
}

static size_t pools_of(unsigned end, bool own, struct hdl_push_pool_state *list)
{
	return hdl_push_pools(ends[end].push, own, list, HDL_PUSH_MAX_POOLS);
}

/* A frame has room for more than its offload header. */
static void header_is_shorter_than_the_frame(void **state)
{
	static const uint16_t too_long[] = {1514, 2000, 65535};
	struct hdl_limits limits;
	struct hdl_push *push;
	(void)state;
	assert_int_equal(hdl_adapter_query(ends[UNIT].adapter, &limits), 0);
	struct hdl_push_terms terms = plain(1514);
	for (size_t i = 0; i < sizeof(too_long) / sizeof(too_long[0]); i++) {
		terms.header_bytes = too_long[i];
		assert_int_equal(hdl_push_connect(ends[HOST].port, &limits.gid, HDL_PUSH_SERVICE,
		                                  "terms", &terms, &push),
		                 -HDL_EINVAL);
	}
	terms.header_bytes = 14;
	connect_ends(&terms);
}

/* SPLIT figure 7: (7, 5, 256) is element 5 of pool 7, filled with 256 bytes, and the program that
 * manages the buffers is told. */
static void pp5_the_example_of_figure_7(void **state)
{
	(void)state;
	struct hdl_push_pool_state list[HDL_PUSH_MAX_POOLS];
	struct hdl_push_terms terms = plain(256);
	terms.pool_count = 8;
	for (unsigned i = 0; i < 8; i++)
		terms.pools[i] =
		        (struct hdl_push_pool){.elements = 6, .element_bytes = i < 7 ? 64 : 256};
	connect_ends(&terms);
	UNTIL(pools_of(UNIT, false, list) == 8);
	assert_true(list[7].index == 7 && list[7].pool.elements == 6 && list[7].free == 6 &&
	            list[7].pool.element_bytes == 256);
	ends[HOST].blocked = true;
	for (uint8_t i = 0; i < 6; i++)
		send_bytes(&ends[UNIT], 256, i);
	UNTIL(pools_of(HOST, true, list) == 8 && list[7].free == 0);
	ends[HOST].blocked = false;
	hdl_push_deliver(ends[HOST].push);
	assert_int_equal(ends[HOST].delivered, 6);
	const struct hdl_push_indication *at = &ends[HOST].at[5];
	assert_true(ends[HOST].indicated[5]);
	assert_true(at->pool == 7 && at->element == 5 && at->bytes == 256);
	assert_int_equal(ends[HOST].first[5], 5);
	/* Short ones go to the small elements. */
	send_bytes(&ends[UNIT], 60, 6);
	UNTIL(ends[HOST].delivered == 7);
	assert_int_equal(ends[HOST].at[6].pool, 0);
}

static const char *const *names;
static const uint64_t *values;

static uint64_t counter(unsigned end, const char *name)
{
	size_t count = hdl_push_counters(ends[end].push, &names, &values);
	for (size_t i = 0; i < count; i++)
		if (strcmp(names[i], name) == 0)
			return values[i];
	fail_msg("no counter %s", name);
	return 0;
}

/* The other form of figure 7: the address in the pool and the length of the data. It reaches
 * elements that eight bits of number would not. */
static void pp5_indication_by_address_and_length(void **state)
{
	(void)state;
	struct hdl_push_terms terms = plain(1024);
	terms.pool_count = ends[UNIT].terms.pool_count = 1;
	terms.pools[0] =
	        (struct hdl_push_pool){.elements = 600, .element_bytes = 1024, .by_address = true};
	ends[UNIT].terms.pools[0] = terms.pools[0];
	connect_ends(&terms);
	for (unsigned way = 0; way < 2; way++) {
		struct end *to = &ends[1 - way];
		to->blocked = true;
		for (unsigned i = 0; i < 600; i++)
			send_bytes(&ends[way], 100 + i, (uint8_t)i);
		for (unsigned i = 0; i < 1000; i++)
			turn();
		to->blocked = false;
		hdl_push_deliver(to->push);
		UNTIL(to->delivered == 600);
		for (unsigned i = 0; i < 600; i++) {
			assert_true(to->indicated[i] && to->at[i].element == i);
			assert_true(to->bytes[i] == 100 + i && to->first[i] == (uint8_t)i);
		}
		assert_int_equal(counter(way, "tx_indications"), 0); /* none by message */
	}
	/* It stays the only pool. */
	struct hdl_push_pool more = {.elements = 1, .element_bytes = 1024};
	assert_int_equal(hdl_push_offer(ends[HOST].push, &more), -HDL_EINVAL);
}

/* The context of a pool: the port of a program, and the address of a sender. */
static void pp5_contexts_steer_frames(void **state)
{
	(void)state;
	static const struct {
		uint8_t source[4], port[2], type[2];
		uint32_t pool;
	} flows[] = {{{10, 0, 0, 2}, {0, 80}, {8, 0}, 1},
	             {{10, 0, 0, 2}, {0, 81}, {8, 0}, 0},
	             {{10, 0, 0, 1}, {0, 81}, {8, 0}, 2},
	             {{10, 0, 0, 1}, {0, 80}, {0x86, 0xdd}, 0}};
	struct hdl_push_pool_state list[HDL_PUSH_MAX_POOLS];
	struct hdl_push_terms terms = plain(256);
	terms.pool_count = 3;
	terms.pools[0] = (struct hdl_push_pool){.elements = 8, .element_bytes = 256};
	terms.pools[1] = (struct hdl_push_pool){.elements = 8, .element_bytes = 256, .port = 80};
	terms.pools[2] =
	        (struct hdl_push_pool){.elements = 8, .element_bytes = 256, .source = 0x0a000001};
	connect_ends(&terms);
	UNTIL(pools_of(UNIT, false, list) == 3);
	assert_true(list[1].pool.port == 80 && list[2].pool.source == 0x0a000001);
	for (unsigned i = 0; i < 4; i++) {
		uint8_t head[40] = {[12] = flows[i].type[0], flows[i].type[1], 0x45, [23] = 6};
		memcpy(head + 26, flows[i].source, 4);
		memcpy(head + 36, flows[i].port, 2);
		send_frame(&ends[UNIT], head, sizeof(head), 60, (uint8_t)i);
		UNTIL(ends[HOST].delivered == i + 1);
		assert_int_equal(ends[HOST].at[i].pool, flows[i].pool);
	}
}

/* The owner withdraws a pool, and offers another one; frames go on, and none is lost. */
static void pp5_the_owner_flushes(void **state)
{
	(void)state;
	struct hdl_push_pool_state list[HDL_PUSH_MAX_POOLS];
	struct hdl_push_pool more = {.elements = 16, .element_bytes = 256};
	struct hdl_push_terms terms = plain(256);
	terms.pool_count = 2;
	terms.pools[0] = terms.pools[1] = more;
	connect_ends(&terms);
	UNTIL(pools_of(UNIT, false, list) == 2);
	ends[HOST].blocked = true;
	send_bytes(&ends[UNIT], 200, 1);
	UNTIL(pools_of(HOST, true, list) == 2 && list[0].free == 15);
	assert_int_equal(hdl_push_flush(ends[HOST].push, 0), 0);
	assert_int_equal(hdl_push_flush(ends[HOST].push, 0), -HDL_EINVAL);
	assert_int_equal(hdl_push_flush(ends[HOST].push, 5), -HDL_EINVAL);
	/* The writer stops, and says so; the pool stays as long as it holds a frame. */
	UNTIL(pools_of(UNIT, false, list) == 1);
	assert_int_equal(list[0].index, 1);
	assert_true(pools_of(HOST, true, list) == 2 && list[0].flushing);
	ends[HOST].blocked = false;
	hdl_push_deliver(ends[HOST].push);
	UNTIL(pools_of(HOST, true, list) == 1);
	/* One by one: a writer that finds no free element asks for a pool, and would get one. */
	for (unsigned i = 0; i < 100; i++) {
		send_bytes(&ends[UNIT], 200, (uint8_t)i);
		UNTIL(ends[HOST].delivered == i + 2);
	}
	for (unsigned i = 1; i <= 100; i++)
		assert_int_equal(ends[HOST].at[i].pool, 1);
	assert_int_equal(hdl_push_offer(ends[HOST].push, &more), 0);
	UNTIL(pools_of(UNIT, false, list) == 2);
	assert_true(list[1].index == 0 && list[1].free == 16);
	assert_int_equal(counter(HOST, "flush_timeouts"), 0);
	assert_int_equal(counter(HOST, "refused"), 0);
	assert_int_equal(counter(UNIT, "refused"), 0);
	more.elements = 0;
	assert_int_equal(hdl_push_offer(ends[HOST].push, &more), -HDL_EINVAL);
	more.elements = HDL_PUSH_MAX_RECEIVE;
	assert_int_equal(hdl_push_offer(ends[HOST].push, &more), -HDL_ENOMEM);
}

/* The writer does not need a pool any more, and its owner frees it. */
static void pp5_the_writer_flushes(void **state)
{
	(void)state;
	struct hdl_push_pool_state list[HDL_PUSH_MAX_POOLS];
	struct hdl_push_terms terms = plain(256);
	terms.pool_count = 2;
	terms.pools[0] = terms.pools[1] =
	        (struct hdl_push_pool){.elements = 16, .element_bytes = 256};
	connect_ends(&terms);
	UNTIL(pools_of(UNIT, false, list) == 2);
	for (unsigned i = 0; i < 10; i++)
		send_bytes(&ends[UNIT], 200, (uint8_t)i);
	assert_int_equal(hdl_push_return(ends[UNIT].push, 0), 0);
	assert_int_equal(hdl_push_return(ends[UNIT].push, 0), -HDL_EINVAL);
	assert_int_equal(hdl_push_return(ends[UNIT].push, 7), -HDL_EINVAL);
	UNTIL(pools_of(HOST, true, list) == 1 && pools_of(UNIT, false, list) == 1);
	assert_int_equal(list[0].index, 1);
	for (unsigned i = 10; i < 100; i++) {
		send_bytes(&ends[UNIT], 200, (uint8_t)i);
		UNTIL(ends[HOST].delivered == i + 1);
	}
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(ends[HOST].first[i], i);
	assert_int_equal(ends[HOST].at[99].pool, 1);
	assert_int_equal(counter(HOST, "refused"), 0);
	assert_int_equal(counter(UNIT, "refused"), 0);
}

/* SPLIT section IV.B.2: SendData where there is no separate data channel. Frames that nobody takes
 * do not keep the configuration from passing. */
static void pp5_one_channel(void **state)
{
	(void)state;
	for (uint8_t mode = HDL_PUSH_RDMA; mode <= HDL_PUSH_SEND; mode++) {
		const struct hdl_push_cfg mtu = {.item = HDL_PUSH_CFG_MTU};
		struct hdl_push_terms terms = {
		        .mode = mode, .one_channel = true, .frame_bytes = 2048};
		connect_ends(&terms);
		assert_true(hdl_push_agreed(ends[UNIT].push)->one_channel);
		ends[UNIT].blocked = true;
		unsigned sent = 0;
		uint8_t *frame;
		for (unsigned idle = 0; idle < 1000; idle++) {
			while ((frame = hdl_push_take(ends[HOST].push)) != NULL) {
				frame[99] = (uint8_t)sent++;
				hdl_push_send(ends[HOST].push, 100);
			}
			turn();
		}
		assert_in_range(sent, 1, 200); /* what has no room waits */
		for (unsigned i = 0; i < 100; i++) {
			unsigned before = ends[HOST].answers;
			assert_true(hdl_push_configure(ends[HOST].push, &mtu, 0));
			UNTIL(ends[HOST].answers == before + 1);
		}
		ends[UNIT].blocked = false;
		hdl_push_deliver(ends[UNIT].push);
		for (; sent < 1000; sent++)
			send_bytes(&ends[HOST], 100, (uint8_t)sent);
		UNTIL(ends[UNIT].delivered == sent);
		for (unsigned i = 0; i < sent; i++)
			assert_true(ends[UNIT].first[i] == (uint8_t)i && !ends[UNIT].indicated[i]);
		assert_int_equal(counter(HOST, "tx_sends"), sent);
		assert_int_equal(counter(HOST, "tx_writes"), 0);
		assert_int_equal(counter(UNIT, "refused"), 0);
		close_ends(NULL);
		open_ends(NULL);
	}
	struct hdl_push *push;
	struct hdl_limits limits;
	struct hdl_push_terms bad[] = {plain(2048),
	                               {.iwarp = true, .frame_bytes = 2048},
	                               {.model = HDL_PUSH_PUSH_PULL, .frame_bytes = 2048}};
	assert_int_equal(hdl_adapter_query(ends[UNIT].adapter, &limits), 0);
	for (unsigned i = 0; i < 3; i++) {
		bad[i].one_channel = true;
		assert_int_equal(hdl_push_connect(ends[HOST].port, &limits.gid, HDL_PUSH_SERVICE,
		                                  "terms", &bad[i], &push),
		                 -HDL_EINVAL);
	}
}

/* What cannot be is refused before anything is sent, or by the unit in words. */
static void pp5_pools_that_cannot_be(void **state)
{
	(void)state;
	static const struct hdl_push_pool good = {.elements = 8, .element_bytes = 256};
	static const struct hdl_push_pool bad[][2] = {
	        {{.elements = 0, .element_bytes = 256}, good},
	        {{.elements = 8, .element_bytes = 0}, good},
	        {{.elements = HDL_PUSH_MAX_RECEIVE, .element_bytes = 256}, good},
	        {{.elements = 8, .element_bytes = HDL_PUSH_MAX_ELEMENT_BYTES + 1}, good},
	        {{.elements = 8, .element_bytes = 256, .by_address = true}, good},
	        /* None for frames of any kind and length. */
	        {{.elements = 8, .element_bytes = 255}, {.elements = 8, .element_bytes = 64}},
	        {{.elements = 8, .element_bytes = 256, .port = 80},
	         {.elements = 8, .element_bytes = 256, .source = 1}},
	};
	struct hdl_limits limits;
	struct hdl_push *push;
	struct hdl_push_terms terms = plain(256);
	assert_int_equal(hdl_adapter_query(ends[UNIT].adapter, &limits), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		terms.pool_count = 2;
		terms.pools[0] = bad[i][0];
		terms.pools[1] = bad[i][1];
		assert_int_equal(hdl_push_connect(ends[HOST].port, &limits.gid, HDL_PUSH_SERVICE,
		                                  "terms", &terms, &push),
		                 -HDL_EINVAL);
	}
	terms.pool_count = HDL_PUSH_MAX_POOLS + 1;
	assert_int_equal(hdl_push_connect(ends[HOST].port, &limits.gid, HDL_PUSH_SERVICE, "terms",
	                                  &terms, &push),
	                 -HDL_EINVAL);
	terms.pool_count = 0;
	ends[UNIT].terms.pool_count = 1;
	ends[UNIT].terms.pools[0] = bad[0][0];
	assert_int_equal(hdl_push_connect(ends[HOST].port, &limits.gid, HDL_PUSH_SERVICE, "terms",
	                                  &terms, &push),
	                 0);
	UNTIL(ends[HOST].closed);
	assert_string_equal(ends[HOST].why, "terms that are impossible");
}

/* When hdl_push_run() has to be called again though nothing comes: while a question waits for its
 * answer, and not afterwards. */
static void a_question_has_a_deadline(void **state)
{
	(void)state;
	const struct hdl_push_terms terms = plain(256);
	const struct hdl_push_cfg mtu = {.item = HDL_PUSH_CFG_MTU};
	connect_ends(&terms);
	UNTIL(hdl_push_deadline(ends[HOST].port) == UINT64_MAX);
	assert_true(hdl_push_configure(ends[HOST].push, &mtu, 0));
	hdl_push_run(ends[HOST].port);
	assert_true(hdl_push_deadline(ends[HOST].port) != UINT64_MAX);
	assert_int_equal(ends[HOST].answers, 0);
	UNTIL(ends[HOST].answers == 1);
	assert_true(hdl_push_deadline(ends[HOST].port) == UINT64_MAX);
}

/* A unit that is not there ends the connection that asks for it, and no other one. */
static void there_is_no_such_unit(void **state)
{
	(void)state;
	const struct hdl_push_terms terms = plain(256);
	struct hdl_limits limits;
	struct hdl_push *second;
	connect_ends(&terms);
	struct hdl_push *first = ends[HOST].push;
	assert_int_equal(hdl_adapter_query(ends[UNIT].adapter, &limits), 0);
	assert_int_equal(hdl_push_connect(ends[HOST].port, &limits.gid, HDL_PUSH_SERVICE + 1,
	                                  "terms", &terms, &second),
	                 0);
	UNTIL(ends[HOST].closed);
	assert_string_equal(ends[HOST].why, "there is no such unit");
	assert_false(ends[UNIT].closed);
	ends[HOST].push = first;
	send_bytes(&ends[HOST], 100, 7);
	UNTIL(ends[UNIT].delivered == 1);
	assert_int_equal(ends[UNIT].first[0], 7);
}

/* Why a unit refuses goes to the log and the terminal of the host: it can control neither. */
static void a_refusal_is_printable(void **state)
{
	const struct hdl_push_terms terms = plain(256);
	struct hdl_limits limits;
	struct hdl_push *push;
	(void)state;
	assert_int_equal(hdl_adapter_query(ends[UNIT].adapter, &limits), 0);
	refusal = "no\033]0;title\a\r\nforged \x9b\x7f~ line";
	assert_int_equal(hdl_push_connect(ends[HOST].port, &limits.gid, HDL_PUSH_SERVICE, "terms",
	                                  &terms, &push),
	                 0);
	UNTIL(ends[HOST].closed);
	refusal = NULL;
	assert_string_equal(ends[HOST].why, "no?]0;title???forged ??~ line");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(header_is_shorter_than_the_frame, open_ends,
	                                        close_ends),
	        cmocka_unit_test_setup_teardown(pp5_the_example_of_figure_7, open_ends, close_ends),
	        cmocka_unit_test_setup_teardown(pp5_indication_by_address_and_length, open_ends,
	                                        close_ends),
	        cmocka_unit_test_setup_teardown(pp5_contexts_steer_frames, open_ends, close_ends),
	        cmocka_unit_test_setup_teardown(pp5_the_owner_flushes, open_ends, close_ends),
	        cmocka_unit_test_setup_teardown(pp5_the_writer_flushes, open_ends, close_ends),
	        cmocka_unit_test_setup_teardown(pp5_one_channel, open_ends, close_ends),
	        cmocka_unit_test_setup_teardown(pp5_pools_that_cannot_be, open_ends, close_ends),
	        cmocka_unit_test_setup_teardown(a_question_has_a_deadline, open_ends, close_ends),
	        cmocka_unit_test_setup_teardown(there_is_no_such_unit, open_ends, close_ends),
	        cmocka_unit_test_setup_teardown(a_refusal_is_printable, open_ends, close_ends),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
