/* The messaging layer between two honest ends: every mode, model and owner; order, trips, room. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cable/splitnet.h"
#include "wire/be.h"

#define MS 1000000ull

static struct splitnet net;

static void open_net(enum split_mode mode, enum split_model model, bool host_owns, bool unit_owns,
                     uint32_t frame_bytes)
{
	struct split_config config[2];
	for (unsigned i = 0; i < 2; i++)
		config[i] = splitnet_config(i, mode, model, host_owns, unit_owns, frame_bytes);
	splitnet_open(&net, 1, config);
	splitnet_run(&net, 10 * MS);
	assert_int_equal(net.event_count, 0);
}

static void close_net(void)
{
	for (unsigned i = 0; i < 2; i++) {
		assert_int_not_equal(net.end[i].split.state, SPLIT_FAILED);
		split_close(&net.end[i].split);
	}
	splitnet_run(&net, net.now_ns + 5000 * MS);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(net.end[i].split.state, SPLIT_CLOSED);
	splitnet_close(&net);
}

/* Frames both ways, of every length, while users stop and go and messages take their time. */
static void exchange(uint32_t frames)
{
	net.jitter_ns = 5000;
	uint64_t lost_before = net.lost;
	for (unsigned i = 0; i < 2; i++)
		net.end[i].block_permille = 300;
	uint64_t limit = net.now_ns + 60000 * MS;
	while ((net.end[0].sent < frames || net.end[1].sent < frames) && net.now_ns < limit) {
		for (unsigned i = 0; i < 2; i++) {
			uint32_t longest = net.end[i].split.config.frame_bytes;
			uint32_t bytes = 8 + (uint32_t)prng_below(&net.prng, longest - 7);
			if (net.end[i].sent < frames && prng_chance(&net.prng, 600))
				splitnet_send(&net.end[i], bytes);
		}
		splitnet_pump(&net);
		if (!splitnet_step(&net))
			net.now_ns += 1000;
	}
	for (unsigned i = 0; i < 2; i++)
		net.end[i].block_permille = 0;
	splitnet_run(&net, limit);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(net.end[i].sent, frames);
		if (net.lost == lost_before)
			assert_int_equal(net.end[i].delivered, frames);
		else
			assert_true(net.end[i].delivered < frames &&
			            net.end[i].delivered > frames / 2);
	}
	assert_int_equal(net.refused, 0);
	assert_int_equal(net.not_ready, 0);
}

static void pp4_every_mode_model_and_owner(void **state)
{
	(void)state;
	for (enum split_model model = 0; model < SPLIT_MODEL_COUNT; model++) {
		for (unsigned owners = 0; owners < 4; owners++) {
			open_net(SPLIT_RDMA, model, owners & 1, owners >> 1, 2048);
			exchange(500);
			close_net();
		}
	}
	open_net(SPLIT_SEND, SPLIT_PUSH_PUSH, false, false, 2048);
	exchange(500);
	close_net();
}

/* PP7: dependent one-way trips, counted by the time that a frame takes on a slow link. */
static void pp7_trips_of_each_model(void **state)
{
	(void)state;
	static const unsigned trips[SPLIT_MODEL_COUNT][2] = {
	        [SPLIT_PUSH_PUSH] = {1, 1}, [SPLIT_PUSH_PULL] = {1, 3}, [SPLIT_PULL_PULL] = {3, 3}};
	for (enum split_model model = 0; model < SPLIT_MODEL_COUNT; model++) {
		open_net(SPLIT_RDMA, model, true, true, 2048);
		net.delay_ns[0] = net.delay_ns[1] = MS;
		for (unsigned i = 0; i < 2; i++) {
			splitnet_run(&net, net.now_ns + 100 * MS);
			uint64_t start = net.now_ns;
			assert_true(splitnet_send(&net.end[i], 100));
			splitnet_run(&net, net.now_ns + 100 * MS);
			assert_int_equal(net.end[1 - i].last_frame_ns - start,
			                 trips[model][i] * MS);
		}
		close_net();
	}
}

/* SPLIT section I: an indication inside the write makes the operation faster, and the traffic less,
 * than a message of its own. */
static void pp7_an_indication_inside_the_write_is_faster(void **state)
{
	(void)state;
	enum { FRAMES = 50 };
	uint64_t took[2] = {0}, operations[2];
	for (unsigned by_message = 0; by_message < 2; by_message++) {
		struct split_config config[2];
		for (unsigned i = 0; i < 2; i++) {
			config[i] =
			        splitnet_config(i, SPLIT_RDMA, SPLIT_PUSH_PUSH, true, true, 2048);
			config[i].by_message = by_message;
		}
		splitnet_open(&net, 8, config);
		splitnet_run(&net, 10 * MS);
		net.delay_ns[0] = net.delay_ns[1] = MS;
		const struct splitnet_end *unit = &net.end[SPLIT_UNIT];
		uint64_t start = net.now_ns;
		for (unsigned n = 0; n < FRAMES; n++) {
			assert_true(splitnet_send(&net.end[SPLIT_HOST], 100));
			splitnet_run(&net, net.now_ns + 100 * MS);
			took[by_message] += unit->last_frame_ns - start;
			start = net.now_ns;
		}
		assert_int_equal(unit->delivered, FRAMES);
		const uint64_t *count = net.end[SPLIT_HOST].split.counters;
		operations[by_message] = count[SPLIT_TX_WRITES] + count[SPLIT_INDICATED];
		close_net();
	}
	print_message("%u frames: %u operations in %u us, by message %u in %u us\n", FRAMES,
	              (unsigned)operations[0], (unsigned)(took[0] / 1000), (unsigned)operations[1],
	              (unsigned)(took[1] / 1000));
	assert_int_equal(operations[0], FRAMES);
	assert_int_equal(operations[1], 2 * FRAMES);
	assert_int_equal(took[0], FRAMES * MS);
	assert_true(took[1] > took[0]);
}

/* SPLIT: the message goes on the other channel, and must not overtake the data. */
static void pp5_indication_waits_for_a_slow_data_channel(void **state)
{
	(void)state;
	struct split_config config[2];
	for (unsigned i = 0; i < 2; i++) {
		config[i] = splitnet_config(i, SPLIT_RDMA, SPLIT_PUSH_PUSH, true, true, 2048);
		config[i].by_message = true;
	}
	splitnet_open(&net, 2, config);
	splitnet_run(&net, 10 * MS);
	net.delay_ns[SPLIT_CONTROL] = 10;
	net.delay_ns[SPLIT_DATA] = 10 * MS;
	exchange(100);
	assert_int_equal(net.end[0].split.counters[SPLIT_INDICATED], 100);
	assert_int_equal(net.end[0].split.counters[SPLIT_TX_WRITES], 100);
	close_net();
}

/* Frames above 65,536 bytes do not fit into immediate data; they keep their place in the order. */
static void pp5_long_frames_are_indicated_by_message(void **state)
{
	(void)state;
	open_net(SPLIT_RDMA, SPLIT_PUSH_PUSH, true, true, 69632);
	net.delay_ns[SPLIT_DATA] = MS;
	static const uint32_t sizes[] = {65536, 65537, 100, 69632, 69632, 60, 65536};
	for (unsigned n = 0; n < 40; n++) {
		while (!splitnet_send(&net.end[n % 2], sizes[n % 7])) {
			splitnet_pump(&net);
			assert_true(splitnet_step(&net));
		}
		splitnet_pump(&net);
	}
	splitnet_run(&net, net.now_ns + 1000 * MS);
	assert_int_equal(net.end[0].delivered, 20);
	assert_int_equal(net.end[1].delivered, 20);
	assert_true(net.end[0].split.counters[SPLIT_INDICATED] > 5);
	assert_true(net.end[0].split.counters[SPLIT_INDICATED] < 15);
	close_net();
}

/* SPLIT figure 7: (7, 5, 256) is element 5 of pool 7, filled with 256 bytes. */
static void pp5_the_example_of_figure_7(void **state)
{
	(void)state;
	struct split_config config[2];
	for (unsigned i = 0; i < 2; i++) {
		config[i] = splitnet_config(i, SPLIT_RDMA, SPLIT_PUSH_PUSH, true, true, 256);
		for (unsigned p = 0; p < 8; p++)
			config[i].plans[p] =
			        (struct split_plan){.elements = 6, .element_bytes = 64};
		config[i].plans[7].element_bytes = 256;
		config[i].plan_count = 8;
	}
	splitnet_open(&net, 3, config);
	splitnet_run(&net, 10 * MS);
	for (unsigned n = 0; n < 6; n++)
		assert_true(splitnet_send(&net.end[SPLIT_UNIT], 256));
	splitnet_pump(&net);
	const struct splitnet_event *last = &net.events[net.event_count - 1];
	assert_true(last->op.kind == SPLIT_OP_WRITE && last->op.has_immediate);
	assert_int_equal(last->op.immediate, 0x07050100);
	splitnet_run(&net, net.now_ns + 10 * MS);
	assert_int_equal(net.end[SPLIT_HOST].delivered, 6);
	close_net();
}

static void pp5_indication_by_address(void **state)
{
	(void)state;
	struct split_config config[2];
	for (unsigned i = 0; i < 2; i++) {
		config[i] = splitnet_config(i, SPLIT_RDMA, SPLIT_PUSH_PUSH, true, true, 1024);
		config[i].plans[0] = (struct split_plan){
		        .elements = 300, .element_bytes = 1024, .by_address = true};
		config[i].plan_count = 1;
		config[i].max_pools = 1;
	}
	splitnet_open(&net, 4, config);
	splitnet_run(&net, 10 * MS);
	exchange(700);
	/* Elements above 255 are reached, too: 16 bits of address in units of 256 bytes. */
	assert_int_equal(net.end[0].split.counters[SPLIT_INDICATED], 0);
	close_net();
}

/* No free element: nothing is taken, and more is asked for; nothing is lost. */
/* Send until nothing is taken any more. */
static void starve(struct splitnet_end *end)
{
	for (unsigned idle = 0; idle < 50;) {
		idle = splitnet_send(end, 2048) ? 0 : idle + 1;
		splitnet_run(&net, net.now_ns + MS);
		splitnet_pump(&net);
		net.now_ns += 1000;
	}
}

static void pp5_starving_asks_for_a_pool(void **state)
{
	(void)state;
	open_net(SPLIT_RDMA, SPLIT_PUSH_PUSH, true, true, 2048);
	struct splitnet_end *host = &net.end[SPLIT_HOST], *unit = &net.end[SPLIT_UNIT];
	host->blocked = true;
	assert_int_equal(host->split.mine.open_count, 2);
	starve(unit);
	assert_int_equal(unit->split.counters[SPLIT_STARVED], 2); /* the second is not answered */
	assert_int_equal(host->split.mine.open_count, 3);         /* max_pools */
	assert_int_equal(host->delivered, 0);
	host->blocked = false;
	splitnet_run(&net, net.now_ns + 100 * MS);
	assert_int_equal(host->delivered, unit->sent);
	assert_true(splitnet_send(unit, 2048));
	splitnet_run(&net, net.now_ns + 100 * MS);
	assert_int_equal(host->delivered, unit->sent);
	/* Elements came back: without any, it asks once more. */
	uint64_t asked = unit->split.counters[SPLIT_STARVED];
	host->blocked = true;
	starve(unit);
	assert_int_equal(unit->split.counters[SPLIT_STARVED], asked + 1);
	host->blocked = false;
	splitnet_run(&net, net.now_ns + 100 * MS);
	assert_int_equal(host->delivered, unit->sent);
	close_net();
}

static void pp5_flush_waits_for_writes_in_flight(void **state)
{
	(void)state;
	open_net(SPLIT_RDMA, SPLIT_PUSH_PUSH, true, true, 2048);
	struct splitnet_end *host = &net.end[SPLIT_HOST], *unit = &net.end[SPLIT_UNIT];
	net.delay_ns[SPLIT_DATA] = 50 * MS;
	for (unsigned n = 0; n < 8; n++)
		assert_true(splitnet_send(unit, 2000));
	splitnet_pump(&net);
	uint32_t index = host->split.mine.pools[host->split.mine.open[1]].at.index;
	assert_true(split_flush(&host->split, index));
	assert_false(split_flush(&host->split, index));
	assert_false(split_flush(&host->split, 99));
	splitnet_run(&net, net.now_ns + 20 * MS);
	assert_int_equal(host->split.mine.open_count, 2); /* no reply yet */
	splitnet_run(&net, net.now_ns + 200 * MS);
	assert_int_equal(host->split.mine.open_count, 1);
	assert_int_equal(host->delivered, 8);
	assert_int_equal(net.refused, 0);
	assert_int_equal(host->split.counters[SPLIT_FLUSH_TIMEOUTS], 0);
	/* A frame for which no element is large enough is not taken; another pool is offered. */
	assert_false(splitnet_send(unit, 2000));
	splitnet_run(&net, net.now_ns + 10 * MS);
	assert_true(splitnet_send(unit, 2000));
	splitnet_run(&net, net.now_ns + 200 * MS);
	assert_int_equal(host->delivered, 9);
	/* The other way round: the writer gives a pool back. */
	assert_true(split_return(&unit->split, 0));
	assert_false(split_return(&unit->split, 0));
	splitnet_run(&net, net.now_ns + 200 * MS);
	assert_int_equal(host->split.mine.open_count, 1);
	assert_int_equal(unit->split.theirs.open_count, 1);
	close_net();
}

/* No reply in time: the handle is invalidated, and what comes later is refused. */
static void pp5_flush_without_a_reply(void **state)
{
	(void)state;
	open_net(SPLIT_RDMA, SPLIT_PUSH_PUSH, true, true, 2048);
	struct splitnet_end *host = &net.end[SPLIT_HOST], *unit = &net.end[SPLIT_UNIT];
	net.delay_ns[SPLIT_DATA] = 3 * SPLIT_FLUSH_NS;
	assert_true(splitnet_send(unit, 2000));
	splitnet_pump(&net);
	assert_true(split_flush(&host->split, 1));
	splitnet_run(&net, net.now_ns + SPLIT_FLUSH_NS + MS);
	assert_int_equal(host->split.counters[SPLIT_FLUSH_TIMEOUTS], 1);
	assert_int_equal(host->split.mine.open_count, 1);
	assert_int_equal(net.refused, 0);
	splitnet_run(&net, net.now_ns + 10 * SPLIT_FLUSH_NS);
	assert_int_equal(net.refused, 1);
	assert_int_equal(host->delivered, 0);
	assert_int_equal(unit->split.state, SPLIT_FAILED);
	assert_int_equal(unit->split.verdict, SPLIT_CHANNEL_ERROR);
	splitnet_close(&net);
}

static void pp5_configuration(void **state)
{
	(void)state;
	for (enum split_mode mode = 0; mode < SPLIT_MODE_COUNT; mode++) {
		open_net(mode, SPLIT_PUSH_PUSH, true, true, 1024);
		net.loss_permille = 400;
		struct splitnet_end *host = &net.end[SPLIT_HOST];
		for (unsigned n = 0; n < SPLIT_MAX_REQUESTS; n++)
			assert_true(split_configure(
			        &host->split,
			        &(struct push_cfg){.item = (uint16_t)(PUSH_CFG_INIT + n % 7)}, n));
		assert_false(split_configure(&host->split, &(struct push_cfg){.item = 1}, 9));
		splitnet_run(&net, net.now_ns + 100000 * MS);
		assert_int_equal(host->configured, SPLIT_MAX_REQUESTS);
		assert_int_equal(host->last_answer.item, PUSH_CFG_INIT);
		assert_int_equal(host->last_answer.mtu, 1500);
		/* Of something unknown, something that cannot be set, a set without a value, a get
		 * with one, and neither get nor set. */
		static const struct push_cfg asked[] = {
		        {.item = 99},
		        {.item = 99, .code = 1},
		        {.item = PUSH_CFG_STATISTICS, .code = 1, .has_value = true},
		        {.item = PUSH_CFG_MAC, .code = 1},
		        {.item = PUSH_CFG_MAC, .has_value = true},
		        {.item = PUSH_CFG_MAC, .code = 2, .has_value = true}};
		static const uint16_t expected[] = {PUSH_CFG_UNKNOWN,   PUSH_CFG_UNKNOWN,
		                                    PUSH_CFG_READ_ONLY, PUSH_CFG_MALFORMED,
		                                    PUSH_CFG_MALFORMED, PUSH_CFG_MALFORMED};
		for (unsigned n = 0; n < 6; n++) {
			assert_true(split_configure(&host->split, &asked[n], n));
			splitnet_run(&net, net.now_ns + 100000 * MS);
			assert_int_equal(host->configured, SPLIT_MAX_REQUESTS + n + 1);
			assert_int_equal(host->last_answer.item, asked[n].item);
			assert_int_equal(host->last_answer.code, expected[n]);
			assert_false(host->last_answer.has_value);
		}
		/* The user above has no such value: the answer says so. */
		net.end[SPLIT_UNIT].knows_nothing = true;
		assert_true(split_configure(&host->split, &(struct push_cfg){.item = 2}, 6));
		splitnet_run(&net, net.now_ns + 100000 * MS);
		assert_int_equal(host->last_answer.code, PUSH_CFG_UNKNOWN);
		net.loss_permille = 0;
		/* Nobody answers: a request ends, too. */
		if (mode == SPLIT_SEND) {
			net.loss_permille = 1000;
			assert_true(split_configure(&host->split, &asked[1], 7));
			splitnet_run(&net, net.now_ns + 100000 * MS);
			assert_int_equal(host->unanswered, 1);
			net.loss_permille = 0;
		}
		close_net();
	}
}

/* Figure 6: losses are counted as on an Ethernet, and what arrives is in order. */
static void pp3_send_mode_loses_and_goes_on(void **state)
{
	(void)state;
	open_net(SPLIT_SEND, SPLIT_PUSH_PUSH, false, false, PUSH_MAX_DATA);
	net.loss_permille = 10;
	exchange(2000);
	assert_true(net.lost > 0);
	net.loss_permille = 0;
	close_net();
}

/* Nothing is lost for want of a receive, however long the user takes; neither does it end in a
 * standstill when all frames and updates of a while were lost. */
static void pp3_send_mode_waits_for_room(void **state)
{
	(void)state;
	struct splitnet_end *host = &net.end[SPLIT_HOST], *unit = &net.end[SPLIT_UNIT];
	open_net(SPLIT_SEND, SPLIT_PUSH_PUSH, false, false, PUSH_MAX_DATA);
	unit->blocked = true;
	for (unsigned round = 0; round < 50; round++) {
		while (splitnet_send(host, 100))
			splitnet_pump(&net);
		splitnet_run(&net, net.now_ns + 100 * MS); /* it asks, and gets no more */
	}
	assert_int_equal(host->sent, SPLIT_RECEIVES);
	unit->blocked = false;
	splitnet_run(&net, net.now_ns + 100 * MS);
	assert_int_equal(unit->delivered, SPLIT_RECEIVES);
	exchange(3000); /* counts on from there */
	assert_int_equal(net.overrun, 0);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(net.end[i].split.counters[SPLIT_VERDICTS], 0);
	assert_true(split_deadline(&host->split) == UINT64_MAX); /* nobody asks any more */
	/* Frames that have not left yet count, too. */
	unit->blocked = true;
	while (((host->split.sent_limit - host->split.sent_number) & 0xffffff) > 4) {
		assert_true(splitnet_send(host, 100));
		splitnet_run(&net, net.now_ns + MS);
	}
	unsigned taken = 0;
	while (splitnet_send(host, 100))
		taken++;
	assert_int_equal(taken, 4);
	splitnet_run(&net, net.now_ns + 10 * MS);
	unit->blocked = false;
	splitnet_run(&net, net.now_ns + 100 * MS);
	assert_int_equal(net.overrun, 0);
	/* The last updates were lost: they are repeated. */
	host->split.sent_limit = host->split.sent_number;
	assert_false(splitnet_send(host, 100));
	net.now_ns = split_deadline(&host->split);
	split_pump(&host->split, net.now_ns);
	assert_true(split_deadline(&host->split) > net.now_ns); /* it has asked, not a bit later */
	splitnet_run(&net, net.now_ns + 100 * MS);
	assert_true(splitnet_send(host, 100));
	splitnet_run(&net, net.now_ns + 100 * MS);
	for (unsigned outage = 0; outage < 3; outage++) {
		net.loss_permille = 1000;
		while (splitnet_send(host, 100))
			splitnet_run(&net, net.now_ns + MS);
		splitnet_run(&net, net.now_ns + 500 * MS);
		assert_false(splitnet_send(host, 100));
		net.loss_permille = 0;
		uint64_t before = unit->delivered;
		splitnet_run(&net, net.now_ns + 100 * MS);
		for (unsigned i = 0; i < 2 * SPLIT_RECEIVES; i++) {
			assert_true(splitnet_send(host, 100));
			splitnet_run(&net, net.now_ns + MS);
		}
		assert_int_equal(unit->delivered - before, 2 * SPLIT_RECEIVES);
	}
	assert_int_equal(net.overrun, 0);
	/* Numbers of 24 bits wrap around. */
	for (unsigned i = 0; i < 2; i++) {
		struct splitnet_end *end = &net.end[i], *peer = end->peer;
		end->split.sent_number = 0xfffff0;
		end->split.sent_limit = 0xfffff0 + SPLIT_RECEIVES - (1u << 24);
		peer->split.taken_number = peer->split.told_number = 0xfffff0;
	}
	uint64_t sent = host->sent;
	for (unsigned i = 0; i < 200; i++) {
		assert_true(splitnet_send(host, 100));
		splitnet_run(&net, net.now_ns + MS);
	}
	assert_int_equal(host->sent - sent, 200);
	assert_true(host->split.sent_number == 200 - 16);
	close_net();
}

/* SPLIT section IV.B.2: SendData where there is no separate data channel. */
static void pp5_one_channel(void **state)
{
	(void)state;
	for (enum split_mode mode = 0; mode < SPLIT_MODE_COUNT; mode++) {
		struct split_config config[2];
		for (unsigned i = 0; i < 2; i++) {
			config[i] = splitnet_config(i, mode, SPLIT_PUSH_PUSH, false, false, 2048);
			config[i].one_channel = true;
		}
		splitnet_open(&net, 8, config);
		splitnet_run(&net, 10 * MS);
		exchange(1000);
		assert_int_equal(net.overrun, 0);
		/* Frames that nobody takes do not keep messages from arriving. */
		struct splitnet_end *host = &net.end[SPLIT_HOST], *unit = &net.end[SPLIT_UNIT];
		unit->blocked = true;
		while (splitnet_send(host, 100))
			splitnet_run(&net, net.now_ns + MS);
		for (unsigned n = 1; n <= 100; n++) {
			assert_true(
			        split_configure(&host->split, &(struct push_cfg){.item = 3}, n));
			splitnet_run(&net, net.now_ns + 10 * MS);
			assert_int_equal(host->configured, n);
		}
		unit->blocked = false;
		splitnet_run(&net, net.now_ns + 10 * MS);
		assert_int_equal(unit->delivered, host->sent);
		assert_int_equal(net.overrun, 0);
		close_net();
		config[0].own_pools = true; /* there would be writes */
		assert_int_equal(mode == SPLIT_RDMA ? split_memory_bytes(&config[0]) : 0, 0);
		config[0].own_pools = config[0].credits = false;
		assert_int_equal(split_memory_bytes(&config[0]), 0);
	}
}

/* A context steers a flow to its pool. */
static void any_frame(struct splitnet_end *end, const uint8_t *frame, uint32_t bytes)
{
	(void)end;
	(void)frame;
	(void)bytes;
}

static void pp5_context_steers_a_flow(void **state)
{
	(void)state;
	struct split_config config[2];
	for (unsigned i = 0; i < 2; i++) {
		config[i] = splitnet_config(i, SPLIT_RDMA, SPLIT_PUSH_PUSH, true, true, 256);
		config[i].plans[0] =
		        (struct split_plan){.elements = 4, .element_bytes = 256, .port = 80};
		config[i].plans[1] = (struct split_plan){.elements = 4, .element_bytes = 256};
		config[i].plans[2] = (struct split_plan){
		        .elements = 4, .element_bytes = 256, .source = 0x0a000001};
		config[i].plan_count = 3;
	}
	splitnet_open(&net, 5, config);
	splitnet_run(&net, 10 * MS);
	net.end[SPLIT_HOST].check = any_frame;
	struct split *unit = &net.end[SPLIT_UNIT].split;
	static const struct {
		uint32_t source;
		uint16_t port, type;
		uint32_t pool;
		uint8_t words, protocol, bytes; /* of the header; of the frame */
		uint16_t fragment;
	} flows[] = {
	        {0x0a000002, 80, 0x0800, 0, 5, 6, 60, 0},
	        {0x0a000002, 81, 0x0800, 1, 5, 6, 60, 0},
	        {0x0a000001, 81, 0x0800, 2, 5, 6, 60, 0},
	        {0x0a000001, 80, 0x86dd, 1, 5, 6, 60, 0},
	        {0x0a000002, 80, 0x0800, 0, 5, 17, 60, 0},
	        {0x0a000002, 80, 0x0800, 0, 6, 17, 60, 0}, /* options */
	        {0x0a000002, 80, 0x0800, 1, 5, 1, 60, 0},  /* no ports */
	        {0x0a000002, 80, 0x0800, 1, 5, 6, 60, 9},  /* not the first fragment */
	        {0x0a000002, 80, 0x0800, 0, 5, 6, 60, 0x2000},
	        {0x0a000002, 80, 0x0800, 1, 4, 6, 60, 0}, /* no header is so short */
	        {0x0a000002, 80, 0x0800, 0, 5, 6, 38, 0},
	        {0x0a000002, 80, 0x0800, 1, 5, 6, 37, 0}, /* the ports are cut off */
	        {0x0a000001, 80, 0x0800, 2, 5, 6, 34, 0},
	        {0x0a000001, 80, 0x0800, 1, 5, 6, 33, 0}, /* and the address */
	};
	for (unsigned n = 0; n < sizeof(flows) / sizeof(flows[0]); n++) {
		uint8_t *frame = split_take(unit);
		assert_non_null(frame);
		memset(frame, 0, 60);
		be16_store(frame + 12, flows[n].type);
		frame[14] = (uint8_t)(0x40 | flows[n].words);
		be16_store(frame + 14 + 6, flows[n].fragment);
		frame[14 + 9] = flows[n].protocol;
		be32_store(frame + 14 + 12, flows[n].source);
		be16_store(frame + 14 + 4 * flows[n].words + 2, flows[n].port);
		split_send(unit, flows[n].bytes);
		splitnet_pump(&net);
		assert_int_equal(net.events[net.event_count - 1].op.immediate >> 24, flows[n].pool);
		while (net.event_count > 0)
			splitnet_step(&net);
		splitnet_pump(&net);
	}
	net.event_count = 0;
	splitnet_close(&net);
}

static void pp5_limits_are_reached(void **state)
{
	(void)state;
	struct split_config config[2];
	for (unsigned i = 0; i < 2; i++) {
		config[i] = splitnet_config(i, SPLIT_RDMA, SPLIT_PUSH_PUSH, true, true, 64);
		config[i].slots = SPLIT_MAX_SLOTS;
		config[i].plans[0] = (struct split_plan){.elements = 1, .element_bytes = 64};
		config[i].plan_count = 1;
		config[i].max_pools = SPLIT_MAX_POOLS;
	}
	splitnet_open(&net, 6, config);
	struct splitnet_end *host = &net.end[SPLIT_HOST], *unit = &net.end[SPLIT_UNIT];
	struct split_plan plan = {.elements = 1, .element_bytes = 64};
	for (uint32_t i = 1; i < SPLIT_MAX_POOLS; i++)
		assert_true(split_offer(&host->split, &plan));
	assert_false(split_offer(&host->split, &plan));
	splitnet_run(&net, 10 * MS);
	assert_int_equal(unit->split.theirs.open_count, SPLIT_MAX_POOLS);
	/* Pools above 255 are used, and indicated by message. */
	host->blocked = true;
	unsigned taken = 0;
	while (splitnet_send(unit, 64))
		taken++;
	assert_int_equal(taken, SPLIT_MAX_SLOTS);
	splitnet_run(&net, net.now_ns + 10 * MS);
	while (splitnet_send(unit, 64))
		taken++;
	assert_int_equal(taken, SPLIT_MAX_POOLS);
	splitnet_run(&net, net.now_ns + 10 * MS);
	assert_int_equal(unit->split.counters[SPLIT_INDICATED], SPLIT_MAX_POOLS - 256);
	host->blocked = false;
	splitnet_run(&net, net.now_ns + 10 * MS);
	assert_int_equal(host->delivered, SPLIT_MAX_POOLS);
	close_net();

	config[0].plans[0].elements = SPLIT_MAX_ELEMENTS - 10;
	splitnet_open(&net, 7, config);
	plan.elements = 11;
	assert_false(split_offer(&net.end[0].split, &plan));
	plan.elements = 10;
	assert_true(split_offer(&net.end[0].split, &plan));
	splitnet_run(&net, 10 * MS);
	exchange(1000);
	close_net();

	config[0].plans[0].elements = SPLIT_MAX_ELEMENTS; /* one pool of them all */
	plan.elements = 1;
	splitnet_open(&net, 8, config);
	assert_false(split_offer(&net.end[0].split, &plan));
	splitnet_run(&net, 10 * MS);
	exchange(1000);
	close_net();

	config[0].frame_bytes = SPLIT_MAX_ELEMENT_BYTES - 4096;
	assert_true(split_memory_bytes(&config[0]) > 0);
	config[0].frame_bytes++;
	assert_int_equal(split_memory_bytes(&config[0]), 0);
	config[0].frame_bytes = 64;
	config[0].slots = SPLIT_MAX_SLOTS + 1;
	assert_int_equal(split_memory_bytes(&config[0]), 0);
	config[0] =
	        splitnet_config(0, SPLIT_SEND, SPLIT_PUSH_PUSH, false, false, PUSH_MAX_DATA + 1);
	assert_int_equal(split_memory_bytes(&config[0]), 0);
}

/* The second pool has no room behind the first: nothing stays open to the peer. */
static void pp5_a_beginning_that_fails_leaves_nothing(void **state)
{
	(void)state;
	open_net(SPLIT_RDMA, SPLIT_PUSH_PUSH, true, true, 64);
	struct splitnet_end *host = &net.end[SPLIT_HOST];
	struct split first = host->split;
	struct split_config config = first.config;
	config.plans[0].elements = config.plans[1].elements = SPLIT_MAX_ELEMENTS - 10;
	split_end(&host->split);
	assert_false(split_init(&host->split, &config, first.channel, first.binding, first.user,
	                        first.user_context, host->memory, net.now_ns));
	for (uint32_t i = 0; i < SPLIT_MAX_POOLS; i++)
		assert_false(host->regions[i].used);
	assert_int_equal(host->split.mine.open_count, 0);
	net.event_count = 0;
	splitnet_close(&net);
}

/* Many seeds: every frame that was taken arrives once, in order, whatever the timing. */
static void pp5_many_timings(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct split_config config[2];
		struct prng prng;
		prng_seed(&prng, seed);
		enum split_model model = (enum split_model)prng_below(&prng, SPLIT_MODEL_COUNT);
		bool host_owns = prng_chance(&prng, 700), unit_owns = prng_chance(&prng, 700);
		bool by_message = prng_chance(&prng, 300);
		for (unsigned i = 0; i < 2; i++) {
			config[i] =
			        splitnet_config(i, SPLIT_RDMA, model, host_owns, unit_owns, 1024);
			config[i].slots = 1 + (uint32_t)prng_below(&prng, 40);
			config[i].plans[0].elements = 1 + (uint32_t)prng_below(&prng, 20);
			config[i].plans[1].elements = 1 + (uint32_t)prng_below(&prng, 20);
			config[i].by_message = by_message;
		}
		splitnet_open(&net, seed, config);
		net.depth = 1 + (uint32_t)prng_below(&prng, 20);
		net.delay_ns[0] = prng_below(&prng, 10000);
		net.delay_ns[1] = prng_below(&prng, 10000);
		splitnet_run(&net, 10 * MS);
		exchange(300);
		close_net();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(pp4_every_mode_model_and_owner),
	        cmocka_unit_test(pp7_trips_of_each_model),
	        cmocka_unit_test(pp7_an_indication_inside_the_write_is_faster),
	        cmocka_unit_test(pp5_indication_waits_for_a_slow_data_channel),
	        cmocka_unit_test(pp5_long_frames_are_indicated_by_message),
	        cmocka_unit_test(pp5_the_example_of_figure_7),
	        cmocka_unit_test(pp5_indication_by_address),
	        cmocka_unit_test(pp5_starving_asks_for_a_pool),
	        cmocka_unit_test(pp5_flush_waits_for_writes_in_flight),
	        cmocka_unit_test(pp5_flush_without_a_reply),
	        cmocka_unit_test(pp5_configuration),
	        cmocka_unit_test(pp3_send_mode_loses_and_goes_on),
	        cmocka_unit_test(pp3_send_mode_waits_for_room),
	        cmocka_unit_test(pp5_one_channel),
	        cmocka_unit_test(pp5_context_steers_a_flow),
	        cmocka_unit_test(pp5_limits_are_reached),
	        cmocka_unit_test(pp5_a_beginning_that_fails_leaves_nothing),
	        cmocka_unit_test(pp5_many_timings),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
