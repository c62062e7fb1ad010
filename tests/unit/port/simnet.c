/* The simulated network's links, one fault at a time, and its limits. MISSION X4. */
#include "simrig.h"

#include "base/prng.h"

#include <errno.h>

static struct rig rig;

static void limits_are_checked_at_creation(void **state)
{
	const struct sim_config good = {1, 1, 1, 1, 1};
	const struct sim_config most = {1, SIM_MAX_HOSTS, 1, 1, SIM_MAX_PACKET_BYTES};
	const struct sim_config bad[] = {
	        {1, 0, 1, 1, 1}, {1, SIM_MAX_HOSTS + 1, 1, 1, 1},
	        {1, 1, 0, 1, 1}, {1, 1, SIM_MAX_EVENTS + 1, 1, 1},
	        {1, 1, 1, 0, 1}, {1, 1, 1, SIM_MAX_PACKETS + 1, 1},
	        {1, 1, 1, 1, 0}, {1, 1, 1, 1, SIM_MAX_PACKET_BYTES + 1},
	};
	struct sim *sim = NULL;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		assert_int_equal(sim_create(&bad[i], &sim), -EINVAL);
		assert_null(sim);
	}
	assert_int_equal(sim_create(&good, &sim), 0);
	sim_destroy(sim);
	assert_int_equal(sim_create(&most, &sim), 0);
	sim_destroy(sim);
	sim_destroy(NULL);
}

static void link_numbers_outside_their_limits_are_refused(void **state)
{
	const struct sim_link bad[] = {
	        {.delay_min_ns = 2, .delay_max_ns = 1},
	        {.delay_max_ns = SIM_MAX_DELAY_NS + 1},
	        {.bandwidth_bps = SIM_MIN_BANDWIDTH_BPS - 1},
	        {.queue_bytes = SIM_MAX_QUEUE_BYTES + 1},
	        {.loss_permille = 1001},
	        {.duplicate_permille = 1001},
	        {.reorder_permille = 1001, .reorder_ns = 1},
	        {.reorder_permille = 1},
	        {.reorder_permille = 1, .reorder_ns = SIM_MAX_DELAY_NS + 1},
	        {.flip_permille = 1001, .flip_bits_max = 1},
	        {.flip_permille = 1},
	        {.flip_permille = 1, .flip_bits_max = SIM_MAX_FLIPS + 1},
	        {.truncate_permille = 1001},
	};

	(void)state;
	rig_open(&rig, 1);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		assert_int_equal(sim_link_set(rig.sim, 0, 1, &bad[i]), -EINVAL);
		assert_int_equal(sim_link_set_all(rig.sim, &bad[i]), -EINVAL);
	}
	assert_int_equal(rig_count(&rig, SIM_LINK_SET), 0);
	sim_destroy(rig.sim);
}

static void link_numbers_at_their_limits_are_taken(void **state)
{
	const struct sim_link good[] = {
	        {0},
	        {.delay_min_ns = SIM_MAX_DELAY_NS, .delay_max_ns = SIM_MAX_DELAY_NS},
	        {.bandwidth_bps = SIM_MIN_BANDWIDTH_BPS},
	        {.queue_bytes = SIM_MAX_QUEUE_BYTES},
	        {.loss_permille = 1000},
	        {.duplicate_permille = 1000},
	        {.reorder_permille = 1000, .reorder_ns = SIM_MAX_DELAY_NS},
	        {.reorder_permille = 1, .reorder_ns = 1},
	        {.flip_permille = 1000, .flip_bits_max = SIM_MAX_FLIPS},
	        {.flip_permille = 1, .flip_bits_max = 1},
	        {.truncate_permille = 1000},
	};

	(void)state;
	rig_open(&rig, 1);
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		assert_int_equal(sim_link_set(rig.sim, 0, 1, &good[i]), 0);
		assert_int_equal(sim_link_set_all(rig.sim, &good[i]), 0);
	}
	sim_destroy(rig.sim);
}

static void x4_perfect_link_delivers_once_in_order_at_once(void **state)
{
	(void)state;
	rig_open(&rig, 1);
	for (uint32_t i = 0; i < RIG_PACKETS; i++)
		rig_send(&rig, i % RIG_HOSTS, (i + 1) % RIG_HOSTS, i);
	assert_int_equal(sim_in_flight(rig.sim), RIG_PACKETS);
	rig_run(&rig);
	assert_int_equal(rig.seen_count, RIG_PACKETS);
	for (uint32_t i = 0; i < RIG_PACKETS; i++) {
		assert_int_equal(rig.seen[i].tag, i);
		assert_int_equal(rig.seen[i].from, i % RIG_HOSTS);
		assert_int_equal(rig.seen[i].host, (i + 1) % RIG_HOSTS);
		assert_int_equal(rig.seen[i].bytes, 4);
		assert_int_equal(rig.seen[i].time_ns, 0);
	}
	sim_destroy(rig.sim);
}

static void packet_sizes_from_nothing_to_the_largest(void **state)
{
	static uint8_t bytes[RIG_PACKET_BYTES + 1];

	(void)state;
	rig_open(&rig, 1);
	assert_int_equal(sim_send(rig.sim, 0, 1, NULL, 0), 0);
	assert_int_equal(sim_send(rig.sim, 0, 1, bytes, RIG_PACKET_BYTES), 0);
	assert_int_equal(sim_send(rig.sim, 0, 1, bytes, RIG_PACKET_BYTES + 1), -EMSGSIZE);
	rig_run(&rig);
	assert_int_equal(rig.seen_count, 2);
	assert_int_equal(rig.seen[0].bytes, 0);
	assert_int_equal(rig.seen[1].bytes, RIG_PACKET_BYTES);
	assert_int_equal(rig_count(&rig, SIM_SENT), 2);
	sim_destroy(rig.sim);
}

static void x4_delay_stays_in_its_bounds_and_keeps_order(void **state)
{
	uint64_t least = UINT64_MAX, most = 0;

	(void)state;
	rig_open(&rig, 1);
	rig_link(&rig, (struct sim_link){.delay_min_ns = 100, .delay_max_ns = 200});
	for (uint32_t i = 0; i < 5000; i++) {
		uint64_t start_ns = sim_now_ns(rig.sim);
		rig_send(&rig, 0, 1, i);
		rig_run(&rig);
		uint64_t took_ns = rig.seen[i].time_ns - start_ns;
		least = took_ns < least ? took_ns : least;
		most = took_ns > most ? took_ns : most;
	}
	assert_int_equal(least, 100);
	assert_int_equal(most, 200);
	rig.seen_count = 0;
	for (uint32_t i = 0; i < RIG_PACKETS; i++)
		rig_send(&rig, 0, 1, i);
	rig_run(&rig);
	for (uint32_t i = 0; i < RIG_PACKETS; i++)
		assert_int_equal(rig.seen[i].tag, i);
	sim_destroy(rig.sim);
}

/* 1000 bytes at 1 Gbit/s are 8 us; the queue takes two of them behind the one that leaves. */
static void x4_bandwidth_serialises_and_the_full_queue_drops_the_tail(void **state)
{
	static const uint8_t bytes[1000];

	(void)state;
	rig_open(&rig, 1);
	rig_link(&rig, (struct sim_link){.delay_min_ns = 5,
	                                 .delay_max_ns = 5,
	                                 .bandwidth_bps = 1000000000,
	                                 .queue_bytes = 2000});
	for (int i = 0; i < 5; i++)
		assert_int_equal(sim_send(rig.sim, 0, 1, bytes, sizeof(bytes)), 0);
	assert_int_equal(sim_send(rig.sim, 1, 0, bytes, sizeof(bytes)), 0); /* a link of its own */
	rig_run(&rig);
	assert_int_equal(rig_count(&rig, SIM_QUEUE_FULL), 2);
	assert_int_equal(rig.seen_count, 4);
	const uint64_t times_ns[] = {8005, 8005, 16005, 24005};
	for (int i = 0; i < 4; i++)
		assert_int_equal(rig.seen[i].time_ns, times_ns[i]);
	/* Idle again: the link takes at once. And one without a limit has no queue to wait in. */
	assert_int_equal(sim_send(rig.sim, 0, 1, bytes, sizeof(bytes)), 0);
	rig_link(&rig, (struct sim_link){0});
	assert_int_equal(sim_send(rig.sim, 0, 1, bytes, sizeof(bytes)), 0);
	assert_int_equal(sim_send(rig.sim, 0, 2, bytes, sizeof(bytes)), 0);
	rig_run(&rig);
	assert_int_equal(rig_count(&rig, SIM_QUEUE_FULL), 2);
	assert_int_equal(rig.seen_count, 7);
	assert_int_equal(rig.seen[4].time_ns, 24005);
	assert_int_equal(rig.seen[5].time_ns, 24005 + 8005);
	assert_int_equal(rig.seen[6].time_ns, 24005 + 8005); /* it may not overtake */
	sim_destroy(rig.sim);
}

static bool mark_unless_zero(void *packet, size_t bytes)
{
	uint8_t *data = packet;
	if (bytes < 4 || data[1] == 0)
		return false;
	data[0] = 1;
	return true;
}

/* Three senders share the way into host 0: 1000 bytes at 1 Gbit/s are 8 us; what finds more than
 * 1,500 before it is marked, if it lets itself be marked, and more than 3,000 it is dropped. */
static void x4_all_senders_share_the_ingress_of_a_host(void **state)
{
	static const struct sim_ingress ingress = {1000000000, 3000, 1500, mark_unless_zero};
	static const struct sim_ingress none, bad[] = {{.bandwidth_bps = SIM_MIN_BANDWIDTH_BPS - 1},
	                                               {.queue_bytes = SIM_MAX_QUEUE_BYTES + 1},
	                                               {.mark_bytes = SIM_MAX_QUEUE_BYTES + 1}};
	uint8_t bytes[1000] = {0, 9};

	(void)state;
	rig_open(&rig, 1);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(sim_ingress_set(rig.sim, 0, &bad[i]), -EINVAL);
	assert_int_equal(sim_ingress_set(rig.sim, 0, &ingress), 0);
	rig_link(&rig, (struct sim_link){.delay_min_ns = 5, .delay_max_ns = 5});
	for (uint32_t i = 0; i < 6; i++) {
		bytes[1] = i != 3 ? 9 : 0;
		assert_int_equal(sim_send(rig.sim, 1 + i % 3, 0, bytes, sizeof(bytes)), 0);
	}
	assert_int_equal(sim_send(rig.sim, 0, 1, bytes, sizeof(bytes)), 0);
	sim_run(rig.sim, 5, RIG_MAX_RUN);
	assert_int_equal(sim_ingress_bytes(rig.sim, 0), 4000);
	rig_run(&rig);
	assert_int_equal(rig_count(&rig, SIM_QUEUE_FULL), 2);
	assert_int_equal(rig_count(&rig, SIM_MARKED), 1);
	assert_int_equal(rig.seen_count, 5);
	for (uint32_t i = 0; i < 4; i++) { /* the first was the one that went out */
		assert_int_equal(rig.seen[i + 1].time_ns, 8005 + 8000 * i);
		assert_int_equal(rig.seen[i + 1].from, 1 + i % 3);
		assert_int_equal(rig.seen[i + 1].tag & 1, i == 2);
	}
	/* A stalled host still has its ingress; without an ingress nothing is queued. */
	assert_int_equal(sim_stall(rig.sim, 0, 100000), 0);
	assert_int_equal(sim_send(rig.sim, 1, 0, bytes, sizeof(bytes)), 0);
	rig_run(&rig);
	assert_int_equal(rig.seen[5].time_ns, 100000);
	assert_int_equal(sim_ingress_set(rig.sim, 0, &none), 0);
	assert_int_equal(sim_send(rig.sim, 1, 0, bytes, sizeof(bytes)), 0);
	rig_run(&rig);
	assert_int_equal(rig.seen[6].time_ns, 100005);
	sim_destroy(rig.sim);
}

static void x4_serialisation_rounds_up(void **state)
{
	(void)state;
	rig_open(&rig, 1);
	rig_link(&rig, (struct sim_link){.bandwidth_bps = 3000000000u, .queue_bytes = 100});
	rig_send(&rig, 0, 1, 1); /* 32 bits at 3 Gbit/s: 10.67 ns */
	rig_run(&rig);
	assert_int_equal(rig.seen[0].time_ns, 11);
	sim_destroy(rig.sim);
}

/* Each chance at 0, at 1000 and between; of 20,000 packets, within 5 standard deviations. */
static void x4_faults_come_as_often_as_asked(void **state)
{
	const struct {
		struct sim_link link;
		enum sim_kind kind;
		uint64_t least, most;
	} rows[] = {
	        {{0}, SIM_LOST, 0, 0},
	        {{0}, SIM_DUPLICATED, 0, 0},
	        {{0}, SIM_DELAYED, 0, 0},
	        {{0}, SIM_FLIPPED, 0, 0},
	        {{0}, SIM_TRUNCATED, 0, 0},
	        {{.loss_permille = 1000}, SIM_LOST, 20000, 20000},
	        {{.loss_permille = 100}, SIM_LOST, 1788, 2212},
	        {{.duplicate_permille = 1000}, SIM_DUPLICATED, 20000, 20000},
	        {{.duplicate_permille = 500}, SIM_DUPLICATED, 9647, 10353},
	        {{.reorder_permille = 1000, .reorder_ns = 9}, SIM_DELAYED, 20000, 20000},
	        {{.reorder_permille = 100, .reorder_ns = 9}, SIM_DELAYED, 1788, 2212},
	        {{.flip_permille = 1000, .flip_bits_max = 1}, SIM_FLIPPED, 20000, 20000},
	        {{.flip_permille = 100, .flip_bits_max = 1}, SIM_FLIPPED, 1788, 2212},
	        {{.truncate_permille = 1000}, SIM_TRUNCATED, 20000, 20000},
	        {{.truncate_permille = 100}, SIM_TRUNCATED, 1788, 2212},
	};

	(void)state;
	for (size_t row = 0; row < sizeof(rows) / sizeof(*rows); row++) {
		rig_open(&rig, row);
		rig_link(&rig, rows[row].link);
		for (uint32_t i = 0; i < 20000; i++) {
			rig_send(&rig, 0, 1, i);
			rig_run(&rig);
			rig.seen_count = 0;
		}
		assert_in_range(rig_count(&rig, rows[row].kind), rows[row].least, rows[row].most);
		assert_int_equal(rig_count(&rig, SIM_DELIVERED),
		                 20000 + rig_count(&rig, SIM_DUPLICATED) -
		                         rig_count(&rig, SIM_LOST));
		sim_destroy(rig.sim);
	}
}

static void x4_reordered_packet_is_overtaken(void **state)
{
	uint32_t overtaken = 0;

	(void)state;
	rig_open(&rig, 1);
	rig_link(&rig, (struct sim_link){.reorder_permille = 300, .reorder_ns = 1000});
	for (uint32_t i = 0; i < RIG_PACKETS; i++)
		rig_send(&rig, 0, 1, i);
	rig_run(&rig);
	assert_int_equal(rig.seen_count, RIG_PACKETS);
	for (uint32_t i = 1; i < RIG_PACKETS; i++)
		overtaken += rig.seen[i].tag < rig.seen[i - 1].tag;
	assert_true(overtaken > 0);
	/* From 1 to reorder_ns later than its turn. */
	rig_link(&rig, (struct sim_link){.reorder_permille = 1000, .reorder_ns = 1});
	uint64_t start_ns = sim_now_ns(rig.sim);
	rig_send(&rig, 2, 3, 0);
	rig_run(&rig);
	assert_int_equal(rig.seen[RIG_PACKETS].time_ns, start_ns + 1);
	sim_destroy(rig.sim);
}

struct flips {
	uint32_t most, least;
};

static void count_flipped(void *context, struct sim *sim, uint32_t host, uint32_t from,
                          const void *packet, size_t bytes)
{
	struct flips *flips = context;
	const uint8_t *data = packet;
	uint32_t flipped = 0;

	(void)sim;
	(void)host;
	(void)from;
	for (size_t i = 0; i < bytes; i++)
		flipped += (uint32_t)__builtin_popcount(data[i]);
	if (flipped > flips->most)
		flips->most = flipped;
	if (flipped < flips->least)
		flips->least = flipped;
}

/* Two bytes of zeros: whatever is set afterwards was flipped; a bit flipped twice would not show.
 */
static void x4_flips_are_one_to_the_most_and_never_undo_each_other(void **state)
{
	const uint8_t zeros[2] = {0};
	const struct {
		uint32_t bits_max, most;
	} rows[] = {{1, 1}, {3, 3}, {16, 16}, {SIM_MAX_FLIPS, 16}};
	struct sim_host_ops ops = {.receive = count_flipped};

	(void)state;
	for (size_t row = 0; row < sizeof(rows) / sizeof(*rows); row++) {
		struct flips flips = {0, UINT32_MAX};
		rig_open(&rig, 1);
		sim_host_attach(rig.sim, 1, &ops, &flips);
		rig_link(&rig, (struct sim_link){.flip_permille = 1000,
		                                 .flip_bits_max = rows[row].bits_max});
		for (int i = 0; i < 2000; i++) {
			sim_send(rig.sim, 0, 1, zeros, sizeof(zeros));
			rig_run(&rig);
		}
		assert_int_equal(flips.least, 1);
		assert_int_equal(flips.most, rows[row].most);
		sim_destroy(rig.sim);
	}
}

static void x4_truncation_takes_at_least_a_byte(void **state)
{
	bool seen[5] = {false};

	(void)state;
	rig_open(&rig, 1);
	rig_link(&rig, (struct sim_link){.truncate_permille = 1000,
	                                 .flip_permille = 1000,
	                                 .flip_bits_max = 8});
	for (uint32_t i = 0; i < 1000; i++) {
		rig_send(&rig, 0, 1, i);
		rig_run(&rig);
		assert_true(rig.seen[i].bytes < 4);
		seen[rig.seen[i].bytes] = true;
	}
	assert_true(seen[0] && seen[1] && seen[2] && seen[3]);
	/* An empty packet cannot be damaged. */
	uint64_t damaged = rig_count(&rig, SIM_TRUNCATED);
	sim_send(rig.sim, 0, 1, NULL, 0);
	rig_run(&rig);
	assert_int_equal(rig_count(&rig, SIM_TRUNCATED), damaged);
	sim_destroy(rig.sim);
}

static void bounded_packet_pool_drops_when_empty(void **state)
{
	(void)state;
	rig_open(&rig, 1);
	for (uint32_t i = 0; i < RIG_PACKETS + 3; i++)
		rig_send(&rig, 0, 1, i);
	assert_int_equal(sim_in_flight(rig.sim), RIG_PACKETS);
	assert_int_equal(rig_count(&rig, SIM_POOL_EMPTY), 3);
	/* A full pool leaves room for every call. */
	for (uint32_t i = 0; i < RIG_EVENTS; i++)
		assert_int_equal(sim_at(rig.sim, 1, rig_call, &rig, i), 0);
	rig_run(&rig);
	assert_int_equal(rig.seen_count, RIG_PACKETS + RIG_EVENTS);
	assert_int_equal(sim_in_flight(rig.sim), 0);
	rig_send(&rig, 0, 1, 0);
	assert_int_equal(rig_count(&rig, SIM_POOL_EMPTY), 3);
	sim_destroy(rig.sim);
}

static uint64_t hash_of(uint64_t seed)
{
	rig_open(&rig, seed);
	rig_link(&rig, (struct sim_link){.delay_max_ns = 1000, .loss_permille = 500});
	for (uint32_t i = 0; i < RIG_PACKETS; i++)
		rig_send(&rig, 0, 1, i);
	rig_run(&rig);
	uint64_t hash = sim_hash(rig.sim);
	sim_destroy(rig.sim);
	return hash;
}

static void x4_same_seed_same_hash(void **state)
{
	(void)state;
	assert_true(hash_of(1) == hash_of(1));
	assert_true(hash_of(1) != hash_of(2));
}

static void x4_notes_are_part_of_the_hash(void **state)
{
	(void)state;
	rig_open(&rig, 1);
	uint64_t before = sim_hash(rig.sim);
	sim_note(rig.sim, 2, 3, 4);
	assert_true(sim_hash(rig.sim) != before);
	assert_int_equal(rig_count(&rig, SIM_NOTED), 1);
	sim_destroy(rig.sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(limits_are_checked_at_creation),
	        cmocka_unit_test(link_numbers_outside_their_limits_are_refused),
	        cmocka_unit_test(link_numbers_at_their_limits_are_taken),
	        cmocka_unit_test(x4_perfect_link_delivers_once_in_order_at_once),
	        cmocka_unit_test(packet_sizes_from_nothing_to_the_largest),
	        cmocka_unit_test(x4_delay_stays_in_its_bounds_and_keeps_order),
	        cmocka_unit_test(x4_bandwidth_serialises_and_the_full_queue_drops_the_tail),
	        cmocka_unit_test(x4_all_senders_share_the_ingress_of_a_host),
	        cmocka_unit_test(x4_serialisation_rounds_up),
	        cmocka_unit_test(x4_faults_come_as_often_as_asked),
	        cmocka_unit_test(x4_reordered_packet_is_overtaken),
	        cmocka_unit_test(x4_flips_are_one_to_the_most_and_never_undo_each_other),
	        cmocka_unit_test(x4_truncation_takes_at_least_a_byte),
	        cmocka_unit_test(bounded_packet_pool_drops_when_empty),
	        cmocka_unit_test(x4_same_seed_same_hash),
	        cmocka_unit_test(x4_notes_are_part_of_the_hash),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
