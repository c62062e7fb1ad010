/* Apertures through the public calls, between two adapters of one process: connections by decision
 * and by rule, stores, reads, events, narrowing, pointing, closing, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <heddle/aperture.h>
#include <heddle/eventq.h>

#define PORT  77u
#define WAIT  20000
#define BYTES 5000u

struct pair {
	struct hdl_adapter *a, *b;
	struct hdl_gid gid_b, gid_a;
	struct hdl_port *port;
};

static struct hdl_gid gid_of(struct hdl_adapter *adapter)
{
	struct hdl_limits limits;
	assert_int_equal(hdl_adapter_query(adapter, &limits), 0);
	return limits.gid;
}

static int pair_open(void **state)
{
	struct pair *p = calloc(1, sizeof(*p));
	assert_int_equal(hdl_open(NULL, &p->a), 0);
	assert_int_equal(hdl_open(NULL, &p->b), 0);
	assert_int_equal(hdl_join(p->a, p->b), 0);
	p->gid_a = gid_of(p->a);
	p->gid_b = gid_of(p->b);
	struct hdl_port_attr attr = {.port = PORT};
	assert_int_equal(hdl_port_open(p->b, &attr, &p->port), 0);
	*state = p;
	return 0;
}

static int pair_close(void **state)
{
	struct pair *p = *state;
	assert_int_equal(hdl_port_close(p->port), 0);
	assert_int_equal(hdl_close(p->a), 0);
	assert_int_equal(hdl_close(p->b), 0);
	free(p);
	return 0;
}

static uint64_t counter(struct hdl_adapter *adapter, enum hdl_aperture_counter which)
{
	struct hdl_counter list[HDL_APERTURE_COUNTER_COUNT];
	assert_int_equal(hdl_aperture_counters(adapter, list, HDL_APERTURE_COUNTER_COUNT),
	                 HDL_APERTURE_COUNTER_COUNT);
	return list[which].value;
}

static struct hdl_aperture *opened(struct hdl_adapter *adapter, uint64_t length)
{
	struct hdl_aperture *aperture;
	struct hdl_aperture_attr attr = {.length = length};
	assert_int_equal(hdl_aperture_open(adapter, &attr, &aperture), 0);
	return aperture;
}

/* Connect @from to @to, by decision. */
static void connect_by_hand(struct pair *p, struct hdl_aperture *from, struct hdl_aperture *to)
{
	assert_int_equal(hdl_aperture_connect(from, &p->gid_b, PORT, 0), -HDL_EAGAIN);
	assert_int_equal(hdl_aperture_accept(to, p->port, 0, NULL, WAIT), 0);
	assert_int_equal(hdl_aperture_wait(from, WAIT), 0);
	assert_int_equal(hdl_aperture_state(from), HDL_APERTURE_OPEN);
	assert_int_equal(hdl_aperture_state(to), HDL_APERTURE_OPEN);
}

static void ap3_stores_and_reads_both_ways(void **state)
{
	struct pair *p = *state;
	struct hdl_aperture *a = opened(p->a, BYTES), *b = opened(p->b, BYTES);
	uint8_t out[BYTES], in[BYTES];
	uint64_t length;
	connect_by_hand(p, a, b);
	for (size_t i = 0; i < sizeof(out); i++)
		out[i] = (uint8_t)(i * 7);
	assert_int_equal(hdl_aperture_store(a, 0, out, sizeof(out), WAIT), 0);
	assert_int_equal(hdl_aperture_flush(a, HDL_FLUSH_PLACED, WAIT), 0);
	uint64_t writes = counter(p->b, HDL_APERTURE_COUNTER_WRITES);
	assert_memory_equal(hdl_aperture_memory(b, &length), out, sizeof(out));
	assert_int_equal(length, BYTES);
	assert_int_equal(hdl_aperture_check(a), 0);
	assert_int_equal(hdl_aperture_store(b, 4, out, 100, WAIT), 0);
	assert_int_equal(hdl_aperture_flush(b, HDL_FLUSH_PLACED, WAIT), 0);
	assert_memory_equal((uint8_t *)hdl_aperture_memory(a, NULL) + 4, out, 100);
	assert_int_equal(hdl_aperture_read(a, 0, in, sizeof(in), WAIT), 0);
	assert_memory_equal(in, out, sizeof(in));
	/* Outside: refused here, before anything is sent. */
	assert_int_equal(hdl_aperture_store(a, BYTES, out, 1, WAIT), -HDL_EINVAL);
	assert_int_equal(hdl_aperture_store(a, UINT64_MAX, out, 2, WAIT), -HDL_EINVAL);
	/* 5000 bytes are two packets of a lane, each in a frame of its own: a write for each. */
	assert_int_equal(writes, 2);
	assert_int_equal(hdl_aperture_close(a, WAIT), 0);
	assert_int_equal(hdl_aperture_wait(b, WAIT), -HDL_EPERM);
	assert_int_equal(hdl_aperture_state(b), HDL_APERTURE_CLOSED);
	assert_int_equal(hdl_aperture_reason(b), HDL_REASON_CLOSED);
	assert_int_equal(hdl_aperture_store(a, 0, out, 1, WAIT), -HDL_EPERM);
	/* Again, with new numbers. */
	connect_by_hand(p, a, b);
	assert_int_equal(hdl_aperture_store(a, 1, "x", 1, WAIT), 0);
	assert_int_equal(hdl_aperture_flush(a, HDL_FLUSH_PLACED, WAIT), 0);
	assert_int_equal(((char *)hdl_aperture_memory(b, NULL))[1], 'x');
	assert_int_equal(hdl_aperture_free(a), 0);
	assert_int_equal(hdl_aperture_free(b), 0);
}

static void ap3_rules_decide(void **state)
{
	struct pair *p = *state;
	struct hdl_aperture *a = opened(p->a, 4096), *big = opened(p->a, 8192);
	struct hdl_aperture *b = opened(p->b, 4096), *second = opened(p->a, 0);
	struct hdl_port_rule rules[] = {
	        {.source = p->gid_b, .mask.raw = {[0 ... 15] = 0xff}, .action = HDL_RULE_REJECT},
	        {.max_length = 4096, .max_count = 1, .action = HDL_RULE_ACCEPT},
	};
	struct hdl_port_status status;
	rules[0].source = p->gid_a;
	assert_int_equal(hdl_port_rules(p->port, rules, 1), 0);
	assert_int_equal(hdl_aperture_connect(a, &p->gid_b, PORT, WAIT), -HDL_ECONNREFUSED);
	assert_int_equal(hdl_aperture_reason(a), HDL_REASON_RULE);
	assert_int_equal(hdl_port_rules(p->port, rules + 1, 1), 0);
	assert_int_equal(hdl_aperture_connect(a, &p->gid_b, PORT, WAIT), -HDL_ECONNREFUSED);
	assert_int_equal(hdl_aperture_reason(a), HDL_REASON_BUSY); /* nothing is offered */
	assert_int_equal(hdl_port_offer(p->port, b, NULL), 0);
	assert_int_equal(hdl_port_offer(p->port, b, NULL), -HDL_EBUSY);
	assert_int_equal(hdl_aperture_connect(big, &p->gid_b, PORT, WAIT), -HDL_ECONNREFUSED);
	assert_int_equal(hdl_aperture_reason(big), HDL_REASON_SIZE);
	assert_int_equal(hdl_port_status(p->a, &p->gid_b, PORT, &status, WAIT), 0);
	assert_true(status.offers == 1 && status.open == 0 && status.rejected == 3);
	assert_int_equal(hdl_aperture_connect(a, &p->gid_b, PORT, WAIT), 0);
	assert_int_equal(hdl_aperture_state(b), HDL_APERTURE_OPEN);
	assert_int_equal(hdl_aperture_connect(second, &p->gid_b, PORT, WAIT), -HDL_ECONNREFUSED);
	assert_int_equal(hdl_aperture_reason(second), HDL_REASON_BUSY); /* the count */
	assert_int_equal(hdl_port_status(p->a, &p->gid_b, PORT, &status, WAIT), 0);
	assert_true(status.offers == 0 && status.open == 1 && status.rejected == 4);
	assert_int_equal(hdl_aperture_connect(second, &p->gid_b, 9999, WAIT), -HDL_ECONNREFUSED);
	assert_int_equal(hdl_aperture_reason(second), HDL_REASON_NO_PORT);
	rules[0].action = 3;
	assert_int_equal(hdl_port_rules(p->port, rules, 1), -HDL_EINVAL);
	assert_int_equal(hdl_port_rules(p->port, rules, HDL_MAX_PORT_RULES + 1), -HDL_EINVAL);
	assert_int_equal(hdl_port_rules(p->port, NULL, 0), 0);
	hdl_aperture_free(a);
	hdl_aperture_free(b);
	hdl_aperture_free(big);
	hdl_aperture_free(second);
}

/* As many as a server has in a second: nothing is remembered of those that have ended. */
static void ap3_connections_are_not_limited_by_their_rate(void **state)
{
	struct pair *p = *state;
	struct hdl_aperture *a = opened(p->a, 0), *b = opened(p->b, 4096);
	const struct hdl_port_rule rule = {.action = HDL_RULE_ACCEPT};
	assert_int_equal(hdl_port_rules(p->port, &rule, 1), 0);
	for (unsigned i = 0; i < 10000; i++) {
		assert_int_equal(hdl_port_offer(p->port, b, NULL), 0);
		assert_int_equal(hdl_aperture_connect(a, &p->gid_b, PORT, WAIT), 0);
		assert_int_equal(hdl_aperture_close(a, WAIT), 0);
		assert_int_equal(hdl_aperture_wait(b, WAIT), -HDL_EPERM);
	}
	assert_int_equal(counter(p->b, HDL_APERTURE_COUNTER_ACCEPTS), 10000);
	assert_int_equal(counter(p->b, HDL_APERTURE_COUNTER_REJECTS), 0);
	hdl_aperture_free(a);
	hdl_aperture_free(b);
}

/* The thread sanitizer has no room where the table of ranges begins, and turns the wish for such an
 * address into one for address 0, which root even gets. */
/* The receiver writes 100 bytes per turn: a write of 5000 stalls again and again, and goes on. */
static void ap4_a_write_stalls_and_goes_on(void **state)
{
	struct pair *p = *state;
	struct hdl_aperture *a = opened(p->a, BYTES), *b = opened(p->b, BYTES);
	uint8_t out[BYTES];
	connect_by_hand(p, a, b);
	for (size_t i = 0; i < sizeof(out); i++)
		out[i] = (uint8_t)(i * 7 + i / 256);
	assert_int_equal(hdl_aperture_budget(NULL, 100), -HDL_EINVAL);
	assert_int_equal(hdl_aperture_budget(p->b, 100), 0);
	assert_int_equal(hdl_aperture_store(a, 0, out, sizeof(out), WAIT), 0);
	assert_int_equal(hdl_aperture_flush(a, HDL_FLUSH_PLACED, WAIT), 0);
	assert_memory_equal(hdl_aperture_memory(b, NULL), out, sizeof(out));
	/* Two packets, 41 and 10 pieces; perhaps two of them in one turn. */
	assert_in_range(counter(p->b, HDL_APERTURE_COUNTER_STALLS), 48, 51);
	assert_in_range(counter(p->b, HDL_APERTURE_COUNTER_WRITES), 49, 53);
	assert_int_equal(counter(p->a, HDL_APERTURE_COUNTER_REPEATED), 0);
	assert_int_equal(hdl_aperture_budget(p->b, 0), 0);
	uint64_t stalls = counter(p->b, HDL_APERTURE_COUNTER_STALLS);
	assert_int_equal(hdl_aperture_store(a, 0, out, sizeof(out), WAIT), 0);
	assert_int_equal(hdl_aperture_flush(a, HDL_FLUSH_PLACED, WAIT), 0);
	assert_int_equal(counter(p->b, HDL_APERTURE_COUNTER_STALLS), stalls);
	hdl_aperture_free(a);
	hdl_aperture_free(b);
}

/* An aperture that needs no connection is freed in the middle of a write. */
static void ap4_freed_while_a_write_stalls(void **state)
{
	struct pair *p = *state;
	struct hdl_aperture_attr attr = {.length = BYTES,
	                                 .checks = HDL_CHECK_NONCE | HDL_CHECK_EXTENT};
	struct hdl_aperture *a = opened(p->a, 0), *b;
	struct hdl_aperture_target target;
	static const uint8_t data[4000] = {1};
	assert_int_equal(hdl_aperture_open(p->b, &attr, &b), 0);
	assert_int_equal(hdl_aperture_own(b, &target), 0);
	assert_int_equal(hdl_aperture_point(a, &target), 0);
	assert_int_equal(hdl_aperture_budget(p->b, 1), 0);
	for (int i = 0; i < 10; i++)
		assert_int_equal(hdl_aperture_store(a, 0, data, sizeof(data), WAIT), 0);
	for (int i = 0; i < WAIT && counter(p->b, HDL_APERTURE_COUNTER_STALLS) == 0; i++) {
		(void)hdl_progress(p->a);
		(void)hdl_progress(p->b);
	}
	assert_true(counter(p->b, HDL_APERTURE_COUNTER_STALLS) > 0);
	assert_int_equal(hdl_aperture_free(b), 0);
	uint64_t bytes = counter(p->b, HDL_APERTURE_COUNTER_BYTES_IN);
	for (int i = 0; i < 100; i++)
		(void)hdl_progress(p->b);
	assert_int_equal(counter(p->b, HDL_APERTURE_COUNTER_BYTES_IN), bytes);
	hdl_aperture_free(a);
}

static void skip_without_addresses(void)
{
#ifdef __SANITIZE_THREAD__
	skip();
#endif
}

static void count_events(struct hdl_eventq *queue, uint32_t want, struct hdl_port_event *events)
{
	for (uint32_t got = 0; got < want;) {
		assert_int_equal(hdl_eventq_wait(queue, WAIT), 0);
		int taken = hdl_eventq_take(queue, events + got, (int)(want - got));
		for (int i = 0; i < taken; i++)
			got += events[got].type == HDL_PORT_DATA;
	}
}

/* Each word that was stored to is an event, with all its bytes; none is lost. */
static void ap4_plain_stores_are_events_by_words(void **state)
{
	enum { WORDS = 1536 }; /* more than are kept for repetition at a time */
	skip_without_addresses();
	struct pair *p = *state;
	struct hdl_aperture *a, *b;
	struct hdl_eventq *queue;
	struct hdl_port *own;
	static struct hdl_port_event events[WORDS];
	void *range;
	uint64_t length;
	const struct hdl_eventq_attr room = {.events = 2 * WORDS};
	const struct hdl_port_attr number = {.port = PORT + 1};
	assert_int_equal(hdl_eventq_open(p->port, &room, &queue), 0);
	assert_int_equal(hdl_port_open(p->a, &number, &own), 0);
	struct hdl_aperture_attr attr = {.type = HDL_APERTURE_EVENT, .port = p->port};
	assert_int_equal(hdl_aperture_open(p->b, &attr, &b), 0);
	attr.port = own;
	assert_int_equal(hdl_aperture_open(p->a, &attr, &a), 0);
	connect_by_hand(p, a, b);
	int mapped = hdl_aperture_map(a, 14, &range, &length);
	if (mapped == -HDL_EIO)
		skip();
	assert_int_equal(mapped, 0);
	assert_int_equal(length, 1u << 14);
	assert_int_equal(hdl_aperture_map(a, 30, &range, &length), 0);
	assert_int_equal(length, 1u << 14); /* as it is, not as it was asked for now */
	volatile uint64_t *words = range;
	struct hdl_port_event event;
	while (hdl_eventq_take(queue, &event, 1) == 1)
		;
	for (uint64_t i = 0; i < 4; i++)
		words[i] = i + 1;
	((volatile uint32_t *)range)[101] = 0x01000000;
	assert_int_equal(hdl_aperture_flush(a, HDL_FLUSH_PLACED, WAIT), 0);
	count_events(queue, 5, events);
	for (uint64_t i = 0; i < 4; i++)
		assert_true(events[i].offset == 8 * i && events[i].value == i + 1 &&
		            events[i].flags == 8);
	assert_true(events[4].offset == 400 && events[4].value == 0x01000000ull << 32);
	/* Stores to one word between two collections are one event; to load is to see them. */
	words[0] = 7;
	words[0] = 8;
	assert_int_equal(hdl_aperture_flush(a, HDL_FLUSH_PLACED, WAIT), 0);
	words[0] = 8;
	assert_int_equal(hdl_aperture_flush(a, HDL_FLUSH_PLACED, WAIT), 0);
	words[0] = 9;
	assert_int_equal(hdl_aperture_flush(a, HDL_FLUSH_PLACED, WAIT), 0);
	assert_int_equal(words[0], 9);
	count_events(queue, 2, events);
	assert_true(events[0].value == 8 && events[1].value == 9);
	for (uint64_t i = 0; i < WORDS; i++)
		words[i] = 1000 + i;
	assert_int_equal(hdl_aperture_flush(a, HDL_FLUSH_PLACED, WAIT), 0);
	count_events(queue, WORDS, events);
	for (uint64_t i = 0; i < WORDS; i++)
		assert_true(events[i].offset == 8 * i && events[i].value == 1000 + i);
	assert_int_equal(hdl_eventq_take(queue, &event, 1), 0);
	assert_int_equal(hdl_aperture_check(a), 0);
	assert_int_equal(hdl_aperture_free(a), 0);
	assert_int_equal(hdl_aperture_free(b), 0);
	assert_int_equal(hdl_port_close(own), 0);
	assert_int_equal(hdl_eventq_close(queue), 0);
}

static void ap3_the_application_declines(void **state)
{
	struct pair *p = *state;
	struct hdl_aperture *a = opened(p->a, 4096);
	struct hdl_connect waiting;
	assert_int_equal(hdl_aperture_connect(a, &p->gid_b, PORT, 0), -HDL_EAGAIN);
	assert_int_equal(hdl_port_waiting(p->port, &waiting, WAIT), 0);
	assert_true(waiting.length == 4096 && waiting.type == HDL_APERTURE_DATA);
	assert_memory_equal(&waiting.source, &p->gid_a, sizeof(waiting.source));
	assert_int_equal(hdl_port_reject(p->port, waiting.id + 1, HDL_REASON_DECLINED),
	                 -HDL_ESTALE);
	assert_int_equal(hdl_port_reject(p->port, waiting.id, HDL_REASON_DECLINED), 0);
	assert_int_equal(hdl_aperture_wait(a, WAIT), -HDL_ECONNREFUSED);
	assert_int_equal(hdl_aperture_reason(a), HDL_REASON_DECLINED);
	assert_int_equal(hdl_port_waiting(p->port, &waiting, 0), -HDL_EAGAIN);
	hdl_aperture_free(a);
}

/* What the peer offers counts, not the power of two that its size is rounded to. */
static void ap3_rules_compare_lengths(void **state)
{
	struct pair *p = *state;
	const struct hdl_port_rule rule = {.max_length = 6000, .action = HDL_RULE_ASK};
	struct hdl_aperture *a = opened(p->a, 5000), *big = opened(p->a, 6001);
	struct hdl_aperture *b = opened(p->b, 4096);
	struct hdl_connect waiting;
	assert_int_equal(hdl_port_rules(p->port, &rule, 1), 0);
	assert_int_equal(hdl_aperture_connect(a, &p->gid_b, PORT, 0), -HDL_EAGAIN);
	assert_int_equal(hdl_port_waiting(p->port, &waiting, WAIT), 0);
	assert_int_equal(waiting.length, 5000);
	assert_int_equal(hdl_aperture_accept(b, p->port, waiting.id, NULL, 0), 0);
	assert_int_equal(hdl_aperture_wait(a, WAIT), 0);
	assert_int_equal(hdl_aperture_connect(big, &p->gid_b, PORT, WAIT), -HDL_ECONNREFUSED);
	assert_int_equal(hdl_aperture_reason(big), HDL_REASON_SIZE);
	assert_int_equal(hdl_aperture_free(a), 0);
	assert_int_equal(hdl_aperture_free(big), 0);
	assert_int_equal(hdl_aperture_free(b), 0);
}

/* REJECT answers STATUS, too. */
static void ap7_status_of_a_port_that_nobody_holds(void **state)
{
	struct pair *p = *state;
	struct hdl_port_status status;
	assert_int_equal(hdl_port_status(p->a, &p->gid_b, 9999, &status, WAIT), -HDL_ECONNREFUSED);
	assert_int_equal(hdl_port_status(p->a, &p->gid_b, PORT, &status, WAIT), 0);
}

static uint16_t error_reason(struct hdl_eventq *queue)
{
	struct hdl_port_event event;
	do
		assert_int_equal(hdl_eventq_wait(queue, WAIT), 0);
	while (hdl_eventq_take(queue, &event, 1) != 1 || event.type != HDL_PORT_ERROR);
	assert_int_equal(event.status, -HDL_EACCES);
	return event.flags;
}

/* What the peer is, and what an ERROR says of an access that it refuses. */
static void ap3_the_peer_and_its_errors(void **state)
{
	struct pair *p = *state;
	struct hdl_aperture *a, *b;
	struct hdl_aperture_peer peer;
	struct hdl_eventq *queue;
	struct hdl_port *own;
	char byte;
	const struct hdl_port_attr number = {.port = PORT + 1};
	assert_int_equal(hdl_port_open(p->a, &number, &own), 0);
	assert_int_equal(hdl_eventq_open(own, NULL, &queue), 0);
	const struct hdl_aperture_attr from = {.port = own},
	                               to = {.length = 5000, .access = HDL_ACCESS_REMOTE_READ};
	assert_int_equal(hdl_aperture_open(p->a, &from, &a), 0);
	assert_int_equal(hdl_aperture_open(p->b, &to, &b), 0);
	assert_int_equal(hdl_aperture_peer(a, &peer), -HDL_EPERM);
	connect_by_hand(p, a, b);
	assert_int_equal(hdl_aperture_peer(a, &peer), 0);
	assert_memory_equal(&peer.host, &p->gid_b, sizeof(peer.host));
	assert_true(peer.first == 0 && peer.length == 5000 && peer.bits == 13);
	assert_true(peer.port == PORT && peer.type == HDL_APERTURE_DATA && peer.index != 0);
	assert_int_equal(hdl_aperture_peer(b, &peer), 0);
	assert_int_equal(peer.length, 0);
	assert_int_equal(hdl_aperture_store(a, 0, "x", 1, WAIT), 0);
	assert_int_equal(error_reason(queue), HDL_REASON_ACCESS);
	assert_int_equal(hdl_aperture_read(a, 5000, &byte, 1, WAIT), -HDL_EACCES);
	assert_int_equal(error_reason(queue), HDL_REASON_EXTENT);
	assert_int_equal(hdl_aperture_free(a), 0);
	assert_int_equal(hdl_aperture_free(b), 0);
	assert_int_equal(hdl_eventq_close(queue), 0);
	assert_int_equal(hdl_port_close(own), 0);
}

/* ACCEPT names another port: the other end learns it, and the events of the connection come to
 * it. The port cannot be closed meanwhile. */
static void ap3_accept_names_a_new_port(void **state)
{
	struct pair *p = *state;
	struct hdl_aperture *a = opened(p->a, 0), *b = opened(p->b, 4096);
	struct hdl_aperture_peer peer;
	struct hdl_eventq *queue;
	struct hdl_port *other;
	struct hdl_port_event events[4];
	struct hdl_port_status status;
	const struct hdl_port_rule rule = {.action = HDL_RULE_ACCEPT};
	const struct hdl_port_attr number = {.port = PORT + 1};
	assert_int_equal(hdl_port_open(p->b, &number, &other), 0);
	assert_int_equal(hdl_eventq_open(other, NULL, &queue), 0);
	assert_int_equal(hdl_port_rules(p->port, &rule, 1), 0);
	for (int offers = 0; offers < 2; offers++) {
		assert_int_equal(offers ? hdl_port_offer(p->port, b, other) : 0, 0);
		assert_int_equal(hdl_port_rules(p->port, &rule, (uint32_t)offers), 0);
		assert_int_equal(hdl_aperture_connect(a, &p->gid_b, PORT, 0), -HDL_EAGAIN);
		if (!offers)
			assert_int_equal(hdl_aperture_accept(b, p->port, 0, other, WAIT), 0);
		assert_int_equal(hdl_aperture_wait(a, WAIT), 0);
		assert_int_equal(hdl_aperture_peer(a, &peer), 0);
		assert_int_equal(peer.port, PORT + 1);
		assert_int_equal(hdl_port_status(p->a, &p->gid_b, peer.port, &status, WAIT), 0);
		assert_int_equal(hdl_port_close(other), -HDL_EBUSY);
		assert_int_equal(hdl_aperture_event(a, 16, "new", 3, WAIT), 0);
		assert_int_equal(hdl_eventq_wait(queue, WAIT), 0);
		assert_int_equal(hdl_aperture_flush(a, HDL_FLUSH_PLACED, WAIT), 0);
		assert_int_equal(hdl_eventq_take(queue, events, 4), 2);
		assert_int_equal(events[0].type, HDL_PORT_ACCEPT);
		assert_true(events[1].type == HDL_PORT_DATA && events[1].offset == 16 &&
		            events[1].port == PORT + 1);
		assert_int_equal(hdl_aperture_close(a, WAIT), 0);
		assert_int_equal(hdl_aperture_wait(b, WAIT), -HDL_EPERM);
		assert_int_equal(hdl_eventq_take(queue, events, 4), 1);
		assert_true(events[0].type == HDL_PORT_CLOSE &&
		            events[0].flags == HDL_REASON_CLOSED);
	}
	/* The next connection without one has the port of the aperture, which is none. */
	assert_int_equal(hdl_port_offer(p->port, b, NULL), 0);
	assert_int_equal(hdl_eventq_close(queue), 0);
	assert_int_equal(hdl_port_close(other), 0);
	assert_int_equal(hdl_aperture_connect(a, &p->gid_b, PORT, WAIT), 0);
	assert_int_equal(hdl_aperture_peer(a, &peer), 0);
	assert_int_equal(peer.port, PORT);
	assert_int_equal(hdl_aperture_free(a), 0);
	assert_int_equal(hdl_aperture_free(b), 0);
}

/* A port may want fewer to wait than the limit. */
static void ap3_fewer_may_wait(void **state)
{
	struct pair *p = *state;
	struct hdl_aperture *all[3];
	struct hdl_port *small;
	struct hdl_port_status status;
	const struct hdl_port_attr attr = {.port = PORT + 1, .waiting = 2};
	assert_int_equal(hdl_port_open(p->b, &attr, &small), 0);
	for (unsigned i = 0; i < 3; i++) {
		all[i] = opened(p->a, 0);
		assert_int_equal(hdl_aperture_connect(all[i], &p->gid_b, PORT + 1, 0), -HDL_EAGAIN);
	}
	assert_int_equal(hdl_aperture_wait(all[2], WAIT), -HDL_ECONNREFUSED);
	assert_int_equal(hdl_aperture_reason(all[2]), HDL_REASON_BUSY);
	assert_int_equal(hdl_port_status(p->a, &p->gid_b, PORT + 1, &status, WAIT), 0);
	assert_int_equal(status.waiting, 2);
	for (unsigned i = 0; i < 3; i++)
		hdl_aperture_free(all[i]);
	assert_int_equal(hdl_port_close(small), 0);
}

/* As many CONNECTs wait as the limit says, and no more. */
static void ap3_waiting_is_bounded(void **state)
{
	struct pair *p = *state;
	struct hdl_aperture *all[HDL_MAX_PORT_WAITING + 1];
	for (unsigned i = 0; i <= HDL_MAX_PORT_WAITING; i++) {
		all[i] = opened(p->a, 0);
		assert_int_equal(hdl_aperture_connect(all[i], &p->gid_b, PORT, 0), -HDL_EAGAIN);
	}
	assert_int_equal(hdl_aperture_wait(all[HDL_MAX_PORT_WAITING], WAIT), -HDL_ECONNREFUSED);
	assert_int_equal(hdl_aperture_reason(all[HDL_MAX_PORT_WAITING]), HDL_REASON_BUSY);
	assert_int_equal(hdl_aperture_state(all[0]), HDL_APERTURE_CONNECTING);
	struct hdl_connect waiting;
	while (hdl_port_waiting(p->port, &waiting, 0) == 0)
		assert_int_equal(hdl_port_reject(p->port, waiting.id, HDL_REASON_DECLINED), 0);
	for (unsigned i = 0; i <= HDL_MAX_PORT_WAITING; i++)
		hdl_aperture_free(all[i]);
}

/* A peer that keeps what it knows writes nothing: the nonce is stale, the range is narrowed, the
 * source is another one. */
static void ap5_hostile_peer_changes_no_byte(void **state)
{
	struct pair *p = *state;
	static uint8_t memory[4096];
	struct hdl_aperture_attr attr = {.memory = memory, .length = sizeof(memory)};
	struct hdl_aperture *a = opened(p->a, 4096), *b;
	struct hdl_aperture *hostile = opened(p->a, 0);
	struct hdl_aperture_target old;
	uint8_t zeroes[4096] = {0};
	assert_int_equal(hdl_aperture_open(p->b, &attr, &b), 0);
	connect_by_hand(p, a, b);
	assert_int_equal(hdl_aperture_own(b, &old), 0);
	assert_int_equal(hdl_aperture_close(b, WAIT), 0);
	connect_by_hand(p, a, b); /* the entry lives again, with another nonce */
	old.checks &= (uint8_t)~HDL_CHECK_SEQUENCE;
	assert_int_equal(hdl_aperture_point(hostile, &old), 0);
	uint64_t before = counter(p->b, HDL_APERTURE_COUNTER_BAD_NONCE);
	assert_int_equal(hdl_aperture_store(hostile, 0, "evil", 4, WAIT), 0);
	assert_int_equal(hdl_aperture_flush(hostile, HDL_FLUSH_SENT, WAIT), 0);
	assert_int_equal(hdl_aperture_flush(hostile, HDL_FLUSH_PLACED, WAIT), -HDL_ENOTSUP);
	/* Everything before this read was taken from the same lane. */
	uint8_t in[16];
	assert_int_equal(hdl_aperture_read(a, 0, in, sizeof(in), WAIT), 0);
	assert_int_equal(counter(p->b, HDL_APERTURE_COUNTER_BAD_NONCE), before + 1);
	assert_memory_equal(hdl_aperture_memory(b, NULL), zeroes, sizeof(zeroes));
	/* The right nonce, guessed or stolen, without a number. */
	assert_int_equal(hdl_aperture_own(b, &old), 0);
	old.checks &= (uint8_t)~HDL_CHECK_SEQUENCE;
	assert_int_equal(hdl_aperture_point(hostile, &old), 0);
	assert_int_equal(hdl_aperture_store(hostile, 0, "evil", 4, WAIT), 0);
	assert_int_equal(hdl_aperture_read(a, 0, in, sizeof(in), WAIT), 0);
	assert_memory_equal(hdl_aperture_memory(b, NULL), zeroes, sizeof(zeroes));
	assert_true(counter(p->b, HDL_APERTURE_COUNTER_BAD_SEQUENCE) > 0);
	/* Narrowed: the peer's own stores outside are refused, and it learns it. Where it may have
	 * mapped the pages themselves, it would not notice. */
	assert_int_equal(hdl_aperture_narrow(a, 100, 50), -HDL_ENOTSUP);
	assert_int_equal(hdl_aperture_narrow(b, 100, 50), 0);
	assert_int_equal(hdl_aperture_store(a, 101, "in", 2, WAIT), 0);
	assert_int_equal(hdl_aperture_flush(a, HDL_FLUSH_PLACED, WAIT), 0);
	assert_memory_equal((uint8_t *)hdl_aperture_memory(b, NULL) + 101, "in", 2);
	assert_int_equal(hdl_aperture_check(a), 0);
	assert_int_equal(hdl_aperture_store(a, 99, "out", 3, WAIT), 0);
	assert_int_equal(hdl_aperture_flush(a, HDL_FLUSH_PLACED, WAIT), 0);
	assert_int_equal(hdl_aperture_check(a), -HDL_EIO);
	assert_int_equal(hdl_aperture_reason(a), HDL_REASON_EXTENT);
	assert_memory_equal((uint8_t *)hdl_aperture_memory(b, NULL) + 99, zeroes, 2);
	assert_true(counter(p->b, HDL_APERTURE_COUNTER_BAD_EXTENT) > 0);
	assert_int_equal(hdl_aperture_narrow(b, 4000, 97), -HDL_EINVAL);
	hdl_aperture_free(hostile);
	hdl_aperture_free(a);
	hdl_aperture_free(b);
}

/* APERTURE column 13: another peer, with no agent, no packets and no new entry. The entries are
 * open to everybody who has the nonce: no connection, no numbers, no source. */
static void ap3_pointed_at_another_peer(void **state)
{
	struct pair *p = *state;
	struct hdl_aperture *a = opened(p->a, 0), *b[2];
	struct hdl_aperture_target targets[2];
	struct hdl_aperture_attr attr = {.length = 4096,
	                                 .checks = HDL_CHECK_NONCE | HDL_CHECK_EXTENT};
	for (int i = 0; i < 2; i++) {
		assert_int_equal(hdl_aperture_open(p->b, &attr, &b[i]), 0);
		assert_int_equal(hdl_aperture_own(b[i], &targets[i]), 0);
	}
	for (int i = 0; i < 4; i++) {
		char text[2] = {(char)('a' + i), 0};
		assert_int_equal(hdl_aperture_point(a, &targets[i % 2]), 0);
		assert_int_equal(hdl_aperture_store(a, (uint64_t)i, text, 1, WAIT), 0);
	}
	for (int tries = 0; tries < 2000; tries++) {
		hdl_progress(p->b);
		if (((char *)hdl_aperture_memory(b[1], NULL))[3] == 'd')
			break;
	}
	assert_memory_equal(hdl_aperture_memory(b[0], NULL), "a\0c\0", 4);
	assert_memory_equal(hdl_aperture_memory(b[1], NULL), "\0b\0d", 4);
	hdl_aperture_free(a);
	hdl_aperture_free(b[0]);
	hdl_aperture_free(b[1]);
}

static void ap5_bad_set_up_is_refused(void **state)
{
	struct pair *p = *state;
	struct hdl_aperture *aperture;
	static const struct {
		struct hdl_aperture_attr attr;
		int error;
	} rows[] = {
	        {{.length = (1ull << HDL_APERTURE_MAX_BITS) + 1}, -HDL_EINVAL},
	        {{.length = 1, .type = HDL_APERTURE_IP}, -HDL_EINVAL},
	        {{.length = 1, .type = HDL_APERTURE_EVENT}, -HDL_EINVAL}, /* no port */
	        {{.length = 1, .access = HDL_ACCESS_LOCAL_READ}, -HDL_EINVAL},
	        {{.length = 1, .checks = 0x80}, -HDL_EINVAL},
	        {{.length = 1, .checks = HDL_CHECK_NONCE, .nonce_every = 1}, -HDL_EINVAL},
	        {{.length = 1, .checks = HDL_CHECK_DEFAULT | HDL_CHECK_LINK}, -HDL_ENOTSUP},
	        {{.memory = (void *)4096, .length = 4096}, -HDL_EFAULT},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(hdl_aperture_open(p->a, &rows[i].attr, &aperture), rows[i].error);
	assert_int_equal(hdl_aperture_free(NULL), -HDL_EINVAL);
	aperture = opened(p->a, 10);
	struct hdl_gid nobody = {{1, 2, 3}};
	assert_int_equal(hdl_aperture_connect(aperture, &nobody, PORT, WAIT), -HDL_EHOSTUNREACH);
	assert_int_equal(hdl_aperture_connect(aperture, &p->gid_b, 0, WAIT), -HDL_EINVAL);
	hdl_aperture_free(aperture);
}

/* Rolling nonces through the public calls: 300 packets, another nonce after every 7. */
static void ap5_rolling_nonces(void **state)
{
	struct pair *p = *state;
	struct hdl_aperture_attr attr = {.length = 4096, .nonce_every = 7, .nonce_step = 9};
	struct hdl_aperture *a = opened(p->a, 4096), *b;
	assert_int_equal(hdl_aperture_open(p->b, &attr, &b), 0);
	connect_by_hand(p, a, b);
	for (uint32_t i = 0; i < 300; i++)
		assert_int_equal(hdl_aperture_store(a, 4 * i % 4096, &i, sizeof(i), WAIT), 0);
	assert_int_equal(hdl_aperture_flush(a, HDL_FLUSH_PLACED, WAIT), 0);
	for (uint32_t i = 0; i < 300; i++)
		assert_int_equal(((uint32_t *)hdl_aperture_memory(b, NULL))[i], i);
	assert_int_equal(counter(p->b, HDL_APERTURE_COUNTER_BAD_NONCE), 0);
	hdl_aperture_free(a);
	hdl_aperture_free(b);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, pair_open, pair_close)
static uint64_t aperture_counter(struct hdl_adapter *adapter, const char *name)
{
	struct hdl_counter list[HDL_APERTURE_COUNTER_COUNT];
	hdl_aperture_counters(adapter, list, HDL_APERTURE_COUNTER_COUNT);
	for (unsigned i = 0; i < HDL_APERTURE_COUNTER_COUNT; i++)
		if (strcmp(list[i].name, name) == 0)
			return list[i].value;
	fail_msg("there is no counter %s", name);
	return 0;
}

#define RANGES 6

/* Each range is found by its first and last byte, and nothing beside it. Then all are freed. */
static void find_ranges(struct hdl_adapter *adapter)
{
	static const uint8_t bits[RANGES] = {10, 10, 12, 13, 16, 20};
	struct hdl_aperture *apertures[RANGES];
	unsigned char *ranges[RANGES];
	int local;
	for (int i = 0; i < RANGES; i++) {
		void *range;
		uint64_t length;
		assert_int_equal(hdl_aperture_open(adapter, NULL, &apertures[i]), 0);
		assert_int_equal(hdl_aperture_map(apertures[i], bits[i], &range, &length), 0);
		assert_int_equal(length, 1u << bits[i]);
		ranges[i] = range;
	}
	for (int again = 0; again < 2; again++)
		for (int i = 0; i < RANGES; i++) {
			uint64_t offset = 7, last = (1ull << bits[i]) - 1;
			assert_ptr_equal(hdl_aperture_find(adapter, ranges[i], &offset),
			                 apertures[i]);
			assert_int_equal(offset, 0);
			assert_ptr_equal(hdl_aperture_find(adapter, ranges[i] + last, &offset),
			                 apertures[i]);
			assert_int_equal(offset, last);
		}
	assert_null(hdl_aperture_find(adapter, &local, NULL));
	for (int i = 0; i < RANGES; i++) {
		assert_int_equal(hdl_aperture_free(apertures[i]), 0);
		assert_null(hdl_aperture_find(adapter, ranges[i], NULL));
	}
}

static void ap2_an_address_tells_the_aperture(void **state)
{
	skip_without_addresses();
	struct pair *p = *state;
	find_ranges(p->a);
	/* The first lookup of each misses, the other three hit; and so do none of those freed. */
	assert_int_equal(aperture_counter(p->a, "lookup_hits"), 3 * RANGES);
	assert_int_equal(aperture_counter(p->a, "lookup_misses"), 2 * RANGES);
	find_ranges(p->a);
}

#define STORED 300 /* more than the 256 entries of the associative table */

/* What is stored to ranges, and loaded from them, finds its outgoing entry by its address: in the
 * large table the first time, and in the associative one as long as it is remembered there. */
static void ap2_accesses_are_translated(void **state)
{
	skip_without_addresses();
	struct pair *p = *state;
	struct hdl_aperture *from[STORED], *to[STORED];
	volatile uint32_t *ranges[STORED];
	for (uint32_t i = 0; i < STORED; i++) {
		void *range;
		from[i] = opened(p->a, 0);
		to[i] = opened(p->b, 4096);
		connect_by_hand(p, from[i], to[i]);
		assert_int_equal(hdl_aperture_map(from[i], 12, &range, NULL), 0);
		ranges[i] = range;
	}
	/* The first load of a page fetches it; the store is sent by the flush. */
	for (uint32_t i = 0; i < 2; i++) {
		uint64_t hits = aperture_counter(p->a, "lookup_hits");
		uint64_t misses = aperture_counter(p->a, "lookup_misses");
		ranges[i][7] = 1000 + i;
		assert_int_equal(hdl_aperture_flush(from[i], HDL_FLUSH_PLACED, WAIT), 0);
		assert_int_equal(((uint32_t *)hdl_aperture_memory(to[i], NULL))[7], 1000 + i);
		assert_int_equal(aperture_counter(p->a, "lookup_misses"), misses + 1);
		assert_true(aperture_counter(p->a, "lookup_hits") > hits);
		ranges[i][8] = 2000 + i;
		assert_int_equal(hdl_aperture_flush(from[i], HDL_FLUSH_PLACED, WAIT), 0);
		assert_int_equal(aperture_counter(p->a, "lookup_misses"), misses + 1);
	}
	/* All of them: each goes where it belongs, and the first ones are forgotten. */
	uint64_t misses = aperture_counter(p->a, "lookup_misses");
	for (uint32_t i = 0; i < STORED; i++) {
		ranges[i][9] = 3000 + i;
		assert_int_equal(hdl_aperture_flush(from[i], HDL_FLUSH_PLACED, WAIT), 0);
	}
	for (uint32_t i = 0; i < STORED; i++)
		assert_int_equal(((uint32_t *)hdl_aperture_memory(to[i], NULL))[9], 3000 + i);
	assert_true(aperture_counter(p->a, "lookup_misses") - misses >= STORED - 2);
	for (uint32_t i = 0; i < STORED; i++) {
		hdl_aperture_free(from[i]);
		hdl_aperture_free(to[i]);
	}
}

static unsigned long mapped_pages(void)
{
	unsigned long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%lu", &pages), 1);
	fclose(file);
	return pages;
}

/* A range costs its own addresses and the table, which programs that lock their memory notice. */
static void ap2_addresses_are_not_reserved(void **state)
{
	skip_without_addresses();
	struct pair *p = *state;
	struct hdl_aperture *aperture;
	void *range;
	assert_int_equal(hdl_aperture_open(p->a, NULL, &aperture), 0);
	unsigned long before = mapped_pages();
	assert_int_equal(hdl_aperture_map(aperture, 12, &range, NULL), 0);
	assert_true(mapped_pages() - before < (2ul << 30) / 4096);
	assert_int_equal(hdl_aperture_free(aperture), 0);
}

/* Where others are at the addresses of the table, ranges are anywhere, and are found as well; what
 * the others have there is nobody's aperture. */
static void ap2_addresses_that_are_taken(void **state)
{
	skip_without_addresses();
	struct pair *p = *state;
	struct hdl_aperture *first;
	void *range;
	uint64_t offset;
	assert_int_equal(hdl_aperture_open(p->a, NULL, &first), 0);
	assert_int_equal(hdl_aperture_map(first, 12, &range, NULL), 0);
	assert_int_equal(hdl_aperture_free(first), 0);
	/* The table has 64 GiB for each size from 1 KiB on, and this was its first of 4 KiB. */
	unsigned char *origin = (unsigned char *)range - (2ull << 36);
	size_t bytes = 32ull << 36;
	void *taken =
	        mmap(origin, bytes, PROT_NONE,
	             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
	if (taken == MAP_FAILED)
		skip(); /* a sanitizer leaves no room */
	uint64_t hits = aperture_counter(p->a, "lookup_hits");
	find_ranges(p->a);
	assert_int_equal(aperture_counter(p->a, "lookup_hits"), hits);
	assert_int_equal(hdl_aperture_open(p->a, NULL, &first), 0);
	assert_int_equal(hdl_aperture_map(first, 12, &range, NULL), 0);
	assert_ptr_equal(hdl_aperture_find(p->a, range, &offset), first);
	for (unsigned i = 0; i < 64; i++)
		assert_null(hdl_aperture_find(p->a, origin + (2ull << 36) + i * 4096u, &offset));
	assert_int_equal(hdl_aperture_free(first), 0);
	munmap(taken, bytes);
}

/* A range for which there are no addresses leaves nothing behind: the next one is as ever. */
static void ap2_a_range_without_room(void **state)
{
	skip_without_addresses();
	struct pair *p = *state;
	struct hdl_aperture *aperture = opened(p->a, BYTES), *second = opened(p->a, BYTES);
	struct rlimit before, few;
	void *range, *first;
	uint64_t offset = 7;
	assert_int_equal(hdl_aperture_map(aperture, 12, &first, NULL), 0);
	assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
	few = before;
	few.rlim_cur = mapped_pages() * 4096 + (64ul << 20);
	assert_int_equal(setrlimit(RLIMIT_AS, &few), 0);
	int result = hdl_aperture_map(second, 30, &range, NULL);
	assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
	assert_int_equal(result, -HDL_ENOMEM);
	assert_int_equal(hdl_aperture_map(second, 30, &range, NULL), 0);
	assert_ptr_equal(hdl_aperture_find(p->a, range, &offset), second);
	assert_int_equal(offset, 0);
	assert_ptr_equal(hdl_aperture_find(p->a, first, &offset), aperture);
	assert_int_equal(hdl_aperture_free(second), 0);
	assert_null(hdl_aperture_find(p->a, range, NULL));
	assert_int_equal(hdl_aperture_free(aperture), 0);
}

int main(void)
{
	const struct CMUnitTest all[] = {
	        TEST(ap3_stores_and_reads_both_ways),
	        TEST(ap3_rules_decide),
	        TEST(ap3_connections_are_not_limited_by_their_rate),
	        TEST(ap4_plain_stores_are_events_by_words),
	        TEST(ap3_rules_compare_lengths),
	        TEST(ap7_status_of_a_port_that_nobody_holds),
	        TEST(ap3_fewer_may_wait),
	        TEST(ap3_the_peer_and_its_errors),
	        TEST(ap3_accept_names_a_new_port),
	        TEST(ap3_the_application_declines),
	        TEST(ap3_waiting_is_bounded),
	        TEST(ap5_hostile_peer_changes_no_byte),
	        TEST(ap3_pointed_at_another_peer),
	        TEST(ap5_bad_set_up_is_refused),
	        TEST(ap5_rolling_nonces),
	        TEST(ap4_a_write_stalls_and_goes_on),
	        TEST(ap4_freed_while_a_write_stalls),
	        TEST(ap2_an_address_tells_the_aperture),
	        TEST(ap2_accesses_are_translated),
	        TEST(ap2_addresses_are_not_reserved),
	        TEST(ap2_addresses_that_are_taken),
	        TEST(ap2_a_range_without_room),
	};
	return cmocka_run_group_tests(all, NULL, NULL);
}
