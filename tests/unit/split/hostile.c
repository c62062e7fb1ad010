/* A peer with an open connection that breaks the rules: each breach has its verdict, its counter,
 * ends the connection, and reaches no memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cable/splitnet.h"
#include "wire/be.h"

#define MS 1000000ull

static struct splitnet net;
static uint8_t out[PUSH_MAX_BYTES + 1];

static struct split *begin(enum split_mode mode, enum split_model model)
{
	struct split_config config[2];
	for (unsigned i = 0; i < 2; i++)
		config[i] = splitnet_config(i, mode, model, mode == SPLIT_RDMA, mode == SPLIT_RDMA,
		                            2048);
	splitnet_open(&net, 1, config);
	splitnet_run(&net, 10 * MS);
	return &net.end[SPLIT_HOST].split;
}

static void expect(struct split *split, enum split_verdict verdict)
{
	assert_int_equal(split->state, SPLIT_FAILED);
	assert_int_equal(split->verdict, verdict);
	assert_int_equal(split->counters[SPLIT_VERDICTS], 1);
	assert_int_equal(split->counters[SPLIT_VERDICTS + verdict], 1);
	assert_int_equal(net.end[SPLIT_HOST].delivered, 0);
	splitnet_close(&net);
}

static void receive(struct split *split, size_t bytes)
{
	assert_true(bytes > 0);
	split_received(split, SPLIT_CONTROL, out, bytes, 0);
}

static void offer(const struct push_pool *pools, uint32_t count, enum split_verdict verdict)
{
	struct split *split = begin(SPLIT_RDMA, SPLIT_PUSH_PUSH);
	receive(split, push_put_pools(1, pools, count, out, sizeof(out)));
	expect(split, verdict);
}

static void pp5_pools_that_cannot_be(void **state)
{
	(void)state;
	/* Index 0 and 1 are open. */
	offer(&(struct push_pool){0, 1, 64, 77, 4096, 0}, 1, SPLIT_POOL_TWICE);
	offer(&(struct push_pool){5, UINT32_MAX, 1, 77, 4096, 0}, 1, SPLIT_POOL_LIMIT);
	offer(&(struct push_pool){5, SPLIT_MAX_ELEMENTS, 1, 77, 4096, 0}, 1, SPLIT_POOL_LIMIT);
	offer(&(struct push_pool){5, 1, SPLIT_MAX_ELEMENT_BYTES + 1, 77, 0, 0}, 1,
	      SPLIT_POOL_LIMIT);
	offer(&(struct push_pool){0x80000000u, 1, 1, 77, 4096, 0}, 1, SPLIT_POOL_LIMIT);
	offer(&(struct push_pool){PUSH_MAX_INDEX + 1, 1, 1, 77, 4096, 0}, 1, SPLIT_POOL_LIMIT);
	static const struct push_pool overlapping[] = {{5, 4, 64, 77, 4096, 0},
	                                               {6, 1, 64, 77, 4096 + 255, 0}};
	offer(overlapping, 2, SPLIT_POOL_OVERLAP);
	static const struct push_pool around[] = {{5, 1, 64, 77, 4096, 0},
	                                          {6, 4, 64, 77, 4096 - 255, 0}};
	offer(around, 2, SPLIT_POOL_OVERLAP);
	offer(&(struct push_pool){5, 1, 1, 77, 0, push_pool_context(PUSH_POOL_READABLE, 0, 0)}, 1,
	      SPLIT_POOL_KIND);
	offer(&(struct push_pool){5, 1, 1, 77, 0, push_pool_context(PUSH_POOL_ON_REQUEST, 0, 0)}, 1,
	      SPLIT_POOL_KIND);
	offer(&(struct push_pool){5, 1, 1, 77, 0, push_pool_context(PUSH_POOL_BY_ADDRESS, 0, 0)}, 1,
	      SPLIT_POOL_KIND);
	offer(&(struct push_pool){5, 1, 1, 77, 0, push_pool_context(8, 0, 0)}, 1, SPLIT_POOL_KIND);
	/* The last index and the largest element are good. */
	struct split *split = begin(SPLIT_RDMA, SPLIT_PUSH_PUSH);
	size_t bytes = push_put_pools(
	        1, &(struct push_pool){PUSH_MAX_INDEX, 1, SPLIT_MAX_ELEMENT_BYTES, 77, 4096, 0}, 1,
	        out, sizeof(out));
	receive(split, bytes);
	assert_int_equal(split->counters[SPLIT_VERDICTS], 0);
	assert_int_equal(split->theirs.open_count, 3);
	splitnet_close(&net);
	/* One that wraps around is refused by the decoder. */
	split = begin(SPLIT_RDMA, SPLIT_PUSH_PUSH);
	bytes = push_put_pools(1, &(struct push_pool){5, 4, 64, 77, 4096, 0}, 1, out, sizeof(out));
	be64_store(out + 28, UINT64_MAX - 254);
	receive(split, bytes);
	expect(split, SPLIT_BAD_MESSAGE);
}

static void indicate(uint32_t pool, uint32_t element, uint32_t size, enum split_verdict verdict)
{
	struct split *split = begin(SPLIT_RDMA, SPLIT_PUSH_PUSH);
	struct push_message message = {.function = PUSH_INDICATE,
	                               .indication = {pool, element, size}};
	receive(split, push_put(&message, out, sizeof(out)));
	expect(split, verdict);
	uint32_t immediate;
	if (!push_pack(&message.indication, &immediate))
		return;
	split = begin(SPLIT_RDMA, SPLIT_PUSH_PUSH);
	split_indicated(split, immediate);
	expect(split, verdict);
}

static void pp5_indications_that_lie(void **state)
{
	(void)state;
	indicate(2, 0, 64, SPLIT_NO_POOL);
	indicate(0x80000000u, 0, 64, SPLIT_NO_POOL);
	indicate(0, 16, 64, SPLIT_NO_ELEMENT);
	indicate(0, UINT32_MAX, 64, SPLIT_NO_ELEMENT);
	indicate(0, 0, 257, SPLIT_BAD_SIZE);
	indicate(0, 0, 65536, SPLIT_BAD_SIZE);
	indicate(0, 0, UINT32_MAX, SPLIT_BAD_SIZE);
	indicate(0, 0, 0, SPLIT_BAD_SIZE);
	/* Twice. The second time it is the owner's. */
	struct split *split = begin(SPLIT_RDMA, SPLIT_PUSH_PUSH);
	net.end[SPLIT_HOST].blocked = true;
	split_indicated(split, 0x00030040);
	assert_int_equal(split->state, SPLIT_OPEN);
	split_indicated(split, 0x00030040);
	expect(split, SPLIT_NOT_OFFERED);
	/* Immediate data where frames are read, or sent. */
	split = begin(SPLIT_RDMA, SPLIT_PUSH_PULL);
	split_indicated(split, 0x00030040);
	expect(split, SPLIT_BAD_IMMEDIATE);
	split = begin(SPLIT_SEND, SPLIT_PUSH_PUSH);
	split_indicated(split, 0x00030040);
	assert_int_equal(split->state, SPLIT_OPEN); /* dropped: the channel promises nothing */
	assert_int_equal(split->counters[SPLIT_VERDICTS + SPLIT_BAD_IMMEDIATE], 1);
	splitnet_close(&net);
}

static void update(uint32_t pool, uint32_t first, uint32_t elements, enum split_verdict verdict)
{
	struct split *split = begin(SPLIT_RDMA, SPLIT_PUSH_PUSH);
	receive(split,
	        push_put_runs(1, &(struct push_run){pool, first, elements}, 1, out, sizeof(out)));
	expect(split, verdict);
}

static void pp5_updates_of_what_was_not_used(void **state)
{
	(void)state;
	update(0, 0, 1, SPLIT_NOT_USED);
	update(0, 0, 16, SPLIT_NOT_USED);
	update(0, 16, 1, SPLIT_NO_ELEMENT);
	update(0, 1, 16, SPLIT_NO_ELEMENT);
	update(0, 1, UINT32_MAX - 1, SPLIT_NO_ELEMENT);
	update(9, 0, 1, SPLIT_NO_POOL);
	update(PUSH_YOURS, 0, 1, SPLIT_NO_POOL); /* not a pool that the peer reads */
	/* A run that contains one used element and one that is not. */
	struct split *split = begin(SPLIT_RDMA, SPLIT_PUSH_PUSH);
	assert_true(splitnet_send(&net.end[SPLIT_HOST], 64));
	splitnet_pump(&net);
	receive(split, push_put_runs(1, &(struct push_run){0, 0, 2}, 1, out, sizeof(out)));
	net.event_count = 0;
	expect(split, SPLIT_NOT_USED);
}

static uint32_t find_source(const struct split *split)
{
	for (uint32_t i = 0; i < split->theirs.open_count; i++) {
		const struct split_pool *pool = &split->theirs.pools[split->theirs.open[i]];
		if ((pool->flags & PUSH_POOL_READABLE) != 0)
			return pool->at.index;
	}
	fail();
	return 0;
}

/* Push-pull: what the reader is told, and what it gives back. */
static void pp5_slots_that_were_not_shown(void **state)
{
	(void)state;
	static const struct {
		struct push_indication indication;
		enum split_verdict verdict;
	} told[] = {{{0, 16, 64}, SPLIT_NO_ELEMENT},
	            {{9, 0, 64}, SPLIT_NO_POOL},
	            {{UINT32_MAX, 0, 64}, SPLIT_NO_POOL},
	            {{0, 0, 0}, SPLIT_BAD_SIZE},
	            {{0, 0, 2049}, SPLIT_BAD_SIZE}};
	for (unsigned i = 0; i < 5; i++) {
		struct split *split = begin(SPLIT_RDMA, SPLIT_PUSH_PULL);
		uint32_t source = find_source(split);
		struct push_message message = {.function = PUSH_INDICATE,
		                               .indication = told[i].indication};
		message.indication.pool += source;
		receive(split, push_put(&message, out, sizeof(out)));
		expect(split, told[i].verdict);
	}
	/* Told twice. */
	struct split *split = begin(SPLIT_RDMA, SPLIT_PUSH_PULL);
	uint32_t source = find_source(split);
	struct push_message message = {.function = PUSH_INDICATE, .indication = {source, 3, 64}};
	size_t bytes = push_put(&message, out, sizeof(out));
	receive(split, bytes);
	receive(split, bytes);
	expect(split, SPLIT_NOT_OFFERED);
	/* The unit is told that a slot was read which it had not shown. */
	begin(SPLIT_RDMA, SPLIT_PUSH_PULL);
	struct split *unit = &net.end[SPLIT_UNIT].split;
	receive(unit, push_put_runs(1, &(struct push_run){source | PUSH_YOURS, 3, 1}, 1, out,
	                            sizeof(out)));
	expect(unit, SPLIT_NOT_USED);
}

static void pp5_requests_and_replies_out_of_place(void **state)
{
	(void)state;
	struct push_message message = {.function = PUSH_FLUSH_REPLY, .context = 1};
	struct split *split = begin(SPLIT_RDMA, SPLIT_PUSH_PUSH);
	receive(split, push_put(&message, out, sizeof(out)));
	expect(split, SPLIT_BAD_REPLY);

	message = (struct push_message){.function = PUSH_CFG_REPLY, .data = out, .data_bytes = 0};
	split = begin(SPLIT_RDMA, SPLIT_PUSH_PUSH);
	receive(split, push_put(&message, out, sizeof(out)));
	expect(split, SPLIT_BAD_REPLY);

	static const uint32_t unknown = 9;
	split = begin(SPLIT_RDMA, SPLIT_PUSH_PUSH);
	receive(split, push_put_flush(1, &unknown, 1, out, sizeof(out)));
	expect(split, SPLIT_NO_POOL);
	static const uint32_t yours = 9 | PUSH_YOURS;
	split = begin(SPLIT_RDMA, SPLIT_PUSH_PUSH);
	receive(split, push_put_flush(1, &yours, 1, out, sizeof(out)));
	expect(split, SPLIT_NO_POOL);
	/* A second request before the first is answered; one that names a pool twice. */
	static const uint32_t both[] = {0, 0};
	split = begin(SPLIT_RDMA, SPLIT_PUSH_PUSH);
	receive(split, push_put_flush(1, both, 2, out, sizeof(out)));
	expect(split, SPLIT_NO_POOL);
	split = begin(SPLIT_RDMA, SPLIT_PUSH_PUSH);
	receive(split, push_put_flush(1, both, 1, out, sizeof(out)));
	receive(split, push_put_flush(1, &(uint32_t){1}, 1, out, sizeof(out)));
	expect(split, SPLIT_TOO_MANY);

	split = begin(SPLIT_RDMA, SPLIT_PUSH_PUSH);
	uint8_t data[4] = {0, 2, 0, 0};
	message =
	        (struct push_message){.function = PUSH_CFG_REQUEST, .data = data, .data_bytes = 4};
	for (unsigned i = 0; i <= SPLIT_MAX_REQUESTS; i++)
		receive(split, push_put(&message, out, sizeof(out)));
	expect(split, SPLIT_TOO_MANY);

	message =
	        (struct push_message){.function = PUSH_POOL_GET, .packet_bytes = 64, .packets = 1};
	split = begin(SPLIT_RDMA, SPLIT_PULL_PULL);
	net.end[SPLIT_HOST].blocked = true;
	message.packets = SPLIT_MAX_SLOTS;
	receive(split, push_put(&message, out, sizeof(out)));
	assert_int_equal(split->state, SPLIT_OPEN);
	message.packets = UINT32_MAX;
	receive(split, push_put(&message, out, sizeof(out)));
	expect(split, SPLIT_TOO_MANY);
	static const uint32_t sizes[] = {0, 2049, UINT32_MAX};
	for (unsigned i = 0; i < 3; i++) {
		split = begin(SPLIT_RDMA, SPLIT_PUSH_PUSH);
		message.packet_bytes = sizes[i];
		receive(split, push_put(&message, out, sizeof(out)));
		expect(split, SPLIT_BAD_SIZE);
	}
}

/* Room for SendData that the receiver cannot have given. */
static void pp5_credit_that_cannot_be(void **state)
{
	(void)state;
	static const struct push_run cases[] = {
	        {PUSH_RECEIVES, 1, SPLIT_RECEIVES},               /* that was not sent yet, */
	        {PUSH_RECEIVES, 5, SPLIT_RECEIVES},               /* nor this */
	        {PUSH_RECEIVES, 0, SPLIT_RECEIVES + 1},           /* more than there are */
	        {PUSH_RECEIVES, 1u << 24, SPLIT_RECEIVES},        /* not a number */
	        {PUSH_RECEIVES, 0xffffff - 64, SPLIT_RECEIVES},   /* long ago */
	        {PUSH_RECEIVES | PUSH_YOURS, 0, SPLIT_RECEIVES}}; /* of the receiver of this */
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct split *split = begin(SPLIT_SEND, SPLIT_PUSH_PUSH);
		uint32_t limit = split->sent_limit;
		receive(split, push_put_runs(1, &cases[i], 1, out, sizeof(out)));
		assert_int_equal(split->state, SPLIT_OPEN);
		assert_int_equal(split->counters[SPLIT_VERDICTS], 1);
		assert_int_equal(split->sent_limit, limit);
		splitnet_close(&net);
	}
	/* An older one comes late: it takes nothing back. */
	struct split *split = begin(SPLIT_SEND, SPLIT_PUSH_PUSH);
	assert_true(splitnet_send(&net.end[SPLIT_HOST], 64));
	assert_true(splitnet_send(&net.end[SPLIT_HOST], 64));
	splitnet_run(&net, net.now_ns + MS);
	for (unsigned i = 0; i < 3; i++) {
		struct push_run run = {PUSH_RECEIVES, 2 - i, SPLIT_RECEIVES};
		receive(split, push_put_runs(1, &run, 1, out, sizeof(out)));
		assert_int_equal(split->sent_limit, 2 + SPLIT_RECEIVES);
	}
	assert_int_equal(split->counters[SPLIT_VERDICTS], 0);
	/* Frames have a channel of their own. */
	struct push_message data = {.function = PUSH_SEND_DATA, .data = out, .data_bytes = 8};
	receive(split, push_put(&data, out, sizeof(out)));
	assert_int_equal(split->counters[SPLIT_VERDICTS + SPLIT_BAD_CHANNEL], 1);
	net.event_count = 0;
	splitnet_close(&net);
	/* Where frames are written, there is no such thing. */
	update(PUSH_RECEIVES, 0, 1, SPLIT_NO_POOL);
}

/* Ask for the MTU, and answer it with the @bytes at @data. */
static struct split *answer_mtu(const uint8_t *data, uint32_t bytes)
{
	struct split *split = begin(SPLIT_RDMA, SPLIT_PUSH_PUSH);
	assert_true(split_configure(split, &(struct push_cfg){.item = PUSH_CFG_MTU}, 1));
	split_pump(split, net.now_ns);
	struct push_message reply = {.function = PUSH_CFG_REPLY,
	                             .context = split->requests[0].context,
	                             .data = data,
	                             .data_bytes = bytes};
	receive(split, push_put(&reply, out, sizeof(out)));
	net.event_count = 0;
	return split;
}

/* What is no answer to the question is not taken for one. */
static void pp5_replies_that_do_not_fit(void **state)
{
	(void)state;
	static const struct {
		uint8_t data[8];
		uint32_t bytes;
		enum split_verdict verdict; /* or, with SPLIT_OK, what the asker gets: */
		uint16_t code;
	} cases[] = {
	        {{0, 3, 0, 0, 5, 0xdc}, 6, SPLIT_OK, PUSH_CFG_OK},
	        {{0, 3, 0, 3}, 4, SPLIT_OK, PUSH_CFG_REFUSED},
	        {{0, 3, 0, 1}, 4, SPLIT_OK, PUSH_CFG_UNKNOWN},
	        {{0, 3, 0, 0}, 4, SPLIT_OK, PUSH_CFG_MALFORMED}, /* "success", and no MTU */
	        {{0, 4, 0, 0, 1}, 5, SPLIT_BAD_REPLY, 0},        /* of another item */
	        {{0, 99, 0, 0}, 4, SPLIT_BAD_REPLY, 0},
	        {{0, 3, 0}, 3, SPLIT_BAD_MESSAGE, 0},
	        {{0, 3, 0, 0, 5}, 5, SPLIT_BAD_MESSAGE, 0},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct split *split = answer_mtu(cases[i].data, cases[i].bytes);
		const struct splitnet_end *host = &net.end[SPLIT_HOST];
		if (cases[i].verdict != SPLIT_OK) {
			assert_int_equal(host->configured, 0);
			expect(split, cases[i].verdict);
			continue;
		}
		assert_int_equal(split->state, SPLIT_OPEN);
		assert_int_equal(host->configured, 1);
		assert_int_equal(host->last_answer.code, cases[i].code);
		assert_int_equal(host->last_answer.has_value, cases[i].code == PUSH_CFG_OK);
		splitnet_close(&net);
	}
}

static void pp5_messages_on_the_wrong_channel(void **state)
{
	(void)state;
	struct push_message data = {.function = PUSH_SEND_DATA, .data = out, .data_bytes = 0};
	struct split *split = begin(SPLIT_RDMA, SPLIT_PUSH_PUSH);
	receive(split, push_put(&data, out, sizeof(out)));
	expect(split, SPLIT_BAD_CHANNEL);
	split = begin(SPLIT_RDMA, SPLIT_PUSH_PUSH); /* where frames are written */
	split_received(split, SPLIT_DATA, out, push_put(&data, out, sizeof(out)), 0);
	expect(split, SPLIT_BAD_CHANNEL);
	split = begin(SPLIT_RDMA, SPLIT_PUSH_PUSH); /* where only data goes */
	split_received(split, SPLIT_DATA, out,
	               push_put_flush(1, &(uint32_t){0}, 1, out, sizeof(out)), 0);
	expect(split, SPLIT_BAD_CHANNEL);
	split = begin(SPLIT_RDMA, SPLIT_PUSH_PUSH);
	memset(out, 0xff, 100);
	split_received(split, SPLIT_CONTROL, out, 100, 0);
	expect(split, SPLIT_BAD_MESSAGE);
	/* In send mode they are dropped, and the connection goes on. */
	split = begin(SPLIT_SEND, SPLIT_PUSH_PUSH);
	split_received(split, SPLIT_CONTROL, out, 100, 0);
	size_t bytes = push_put_flush(1, &(uint32_t){0}, 1, out, sizeof(out));
	split_received(split, SPLIT_CONTROL, out, bytes, 0);
	split_received(split, SPLIT_DATA, out, push_put(&data, out, sizeof(out)), 0);
	assert_int_equal(split->state, SPLIT_OPEN);
	assert_int_equal(split->counters[SPLIT_VERDICTS + SPLIT_BAD_MESSAGE], 1);
	assert_int_equal(split->counters[SPLIT_VERDICTS + SPLIT_BAD_CHANNEL], 1);
	assert_int_equal(split->counters[SPLIT_VERDICTS + SPLIT_BAD_SIZE], 1);
	splitnet_close(&net);
}

static void pp5_addresses_between_elements(void **state)
{
	(void)state;
	struct split_config config[2];
	for (unsigned i = 0; i < 2; i++) {
		config[i] = splitnet_config(i, SPLIT_RDMA, SPLIT_PUSH_PUSH, true, true, 1024);
		config[i].plans[0] = (struct split_plan){
		        .elements = 4, .element_bytes = 1024, .by_address = true};
		config[i].plan_count = 1;
	}
	static const struct {
		uint32_t immediate;
		enum split_verdict verdict;
	} cases[] = {{0x00010010, SPLIT_BAD_IMMEDIATE},
	             {0x00100010, SPLIT_NO_ELEMENT},
	             {0x00040000, SPLIT_BAD_SIZE}};
	for (unsigned i = 0; i < 3; i++) {
		splitnet_open(&net, 1, config);
		splitnet_run(&net, 10 * MS);
		struct split *split = &net.end[SPLIT_HOST].split;
		split_indicated(split, cases[i].immediate);
		expect(split, cases[i].verdict);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(pp5_pools_that_cannot_be),
	        cmocka_unit_test(pp5_indications_that_lie),
	        cmocka_unit_test(pp5_updates_of_what_was_not_used),
	        cmocka_unit_test(pp5_slots_that_were_not_shown),
	        cmocka_unit_test(pp5_requests_and_replies_out_of_place),
	        cmocka_unit_test(pp5_replies_that_do_not_fit),
	        cmocka_unit_test(pp5_credit_that_cannot_be),
	        cmocka_unit_test(pp5_messages_on_the_wrong_channel),
	        cmocka_unit_test(pp5_addresses_between_elements),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
