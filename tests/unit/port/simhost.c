/* Time, calls, partitions, stalls and deaths in the simulated network. MISSION X4. */
#include "simrig.h"

#include <errno.h>

static struct rig rig;

static int open_rig(void **state)
{
	(void)state;
	rig_open(&rig, 1);
	return 0;
}

static int close_rig(void **state)
{
	(void)state;
	sim_destroy(rig.sim);
	return 0;
}

/* The tags of what was seen, in order, against @expected. */
static void assert_tags(const uint32_t *expected, uint32_t count)
{
	assert_int_equal(rig.seen_count, count);
	for (uint32_t i = 0; i < count; i++)
		assert_int_equal(rig.seen[i].tag, expected[i]);
}

static void x4_calls_come_in_order_of_time_and_then_of_asking(void **state)
{
	const uint32_t expected[] = {3, 1, 2, 0};

	(void)state;
	sim_at(rig.sim, 20, rig_call, &rig, 0);
	sim_at(rig.sim, 10, rig_call, &rig, 1);
	sim_at(rig.sim, 10, rig_call, &rig, 2);
	sim_at(rig.sim, 5, rig_call, &rig, 3);
	assert_int_equal(sim_next_ns(rig.sim), 5);
	rig_run(&rig);
	assert_tags(expected, 4);
	assert_int_equal(rig.seen[3].time_ns, 20);
	assert_int_equal(sim_next_ns(rig.sim), SIM_FOREVER);
}

static void past_is_now(void **state)
{
	(void)state;
	assert_int_equal(sim_run(rig.sim, 100, 1), SIM_STOP_IDLE);
	assert_int_equal(sim_now_ns(rig.sim), 100);
	struct clock clock = sim_clock(rig.sim);
	assert_int_equal(clock_read(&clock), 100);
	sim_at(rig.sim, 50, rig_call, &rig, 0);
	rig_run(&rig);
	assert_int_equal(rig.seen[0].time_ns, 100);
}

static void bounded_events_refuse_when_full(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < RIG_EVENTS; i++)
		assert_int_equal(sim_at(rig.sim, i, rig_call, &rig, i), 0);
	assert_int_equal(sim_at(rig.sim, 0, rig_call, &rig, 0), -ENOBUFS);
	assert_int_equal(sim_at_host(rig.sim, 0, 0, rig_call, &rig, 0), -ENOBUFS);
	assert_int_equal(sim_stall(rig.sim, 0, 9), -ENOBUFS);
	assert_false(sim_is_stalled(rig.sim, 0));
	rig_send(&rig, 0, 1, 1); /* calls do not take the packets' places */
	assert_int_equal(rig_count(&rig, SIM_POOL_EMPTY), 0);
	rig_run(&rig);
	assert_int_equal(rig.seen_count, RIG_EVENTS + 1);
	assert_int_equal(sim_at(rig.sim, 0, rig_call, &rig, 0), 0);
}

static void call_again(struct sim *sim, void *context, uint64_t arg)
{
	(void)context;
	assert_int_equal(sim_at(sim, sim_now_ns(sim) + 1, call_again, NULL, arg), 0);
}

static void bounded_run_stops(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < RIG_EVENTS;
	     i++) /* each finds room again though all places are taken */
		sim_at(rig.sim, 0, call_again, NULL, i);
	assert_int_equal(sim_run(rig.sim, SIM_FOREVER, 1000), SIM_STOP_EVENTS);
	assert_int_equal(rig_count(&rig, SIM_CALLED), 1000);
	assert_int_equal(sim_run(rig.sim, 100, RIG_MAX_RUN), SIM_STOP_TIME);
	assert_int_equal(sim_now_ns(rig.sim), 100);
	assert_int_equal(rig_count(&rig, SIM_CALLED), 101 * RIG_EVENTS);
}

static void x4_partition_cuts_both_ways_for_its_time(void **state)
{
	(void)state;
	assert_int_equal(sim_partition(rig.sim, 1 << 0 | 1 << 1, 1 << 2, 100, 200), 0);
	const struct {
		uint64_t time_ns;
		uint32_t from, to;
		bool cut;
	} rows[] = {
	        {99, 0, 2, false},  {99, 2, 0, false},  {100, 0, 2, true},  {100, 2, 0, true},
	        {100, 1, 2, true},  {100, 0, 1, false}, {100, 0, 3, false}, {100, 2, 3, false},
	        {100, 2, 2, false}, {199, 2, 1, true},  {200, 0, 2, false}, {200, 2, 0, false},
	};
	for (size_t row = 0; row < sizeof(rows) / sizeof(*rows); row++) {
		sim_run(rig.sim, rows[row].time_ns, RIG_MAX_RUN);
		assert_int_equal(sim_is_cut(rig.sim, rows[row].from, rows[row].to), rows[row].cut);
		uint32_t seen = rig.seen_count;
		rig_send(&rig, rows[row].from, rows[row].to, 1);
		sim_run(rig.sim, rows[row].time_ns, RIG_MAX_RUN);
		assert_int_equal(rig.seen_count - seen, !rows[row].cut);
	}
	assert_int_equal(rig_count(&rig, SIM_CUT), 4);
}

static void x4_packet_on_its_way_into_a_partition_is_cut(void **state)
{
	(void)state;
	rig_link(&rig, (struct sim_link){.delay_min_ns = 50, .delay_max_ns = 50});
	sim_partition(rig.sim, 1, 2, 10, 100);
	rig_send(&rig, 0, 1, 1); /* would arrive in it */
	sim_run(rig.sim, 60, RIG_MAX_RUN);
	rig_send(&rig, 0, 1, 2); /* sent in it, would arrive after it */
	rig_run(&rig);
	assert_int_equal(rig.seen_count, 0);
	assert_int_equal(rig_count(&rig, SIM_CUT), 2);
}

static void partitions_heal_by_hand(void **state)
{
	const uint32_t expected[] = {2};

	(void)state;
	sim_partition(rig.sim, 1, 2, 0, SIM_FOREVER);
	sim_partition(rig.sim, 1, 4, 50, 60);
	rig_send(&rig, 0, 1, 1);
	sim_heal(rig.sim);
	rig_send(&rig, 0, 1, 2);
	rig_run(&rig);
	assert_tags(expected, 1);
	sim_run(rig.sim, 55, RIG_MAX_RUN);
	assert_false(sim_is_cut(rig.sim, 0, 2));
}

static void bounded_partitions_and_bad_sets_are_refused(void **state)
{
	const struct {
		uint64_t a, b, start, until;
	} bad[] = {
	        {0, 1, 0, 1}, {1, 0, 0, 1}, {3, 2, 0, 1}, {1, 1ull << RIG_HOSTS, 0, 1},
	        {1, 2, 5, 5}, {1, 2, 6, 5},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(
		        sim_partition(rig.sim, bad[i].a, bad[i].b, bad[i].start, bad[i].until),
		        -EINVAL);
	for (uint32_t i = 0; i < SIM_MAX_PARTITIONS; i++)
		assert_int_equal(sim_partition(rig.sim, 1, 2, 0, 10 + i), 0);
	assert_int_equal(sim_partition(rig.sim, 1, 2, 0, 10), -ENOBUFS);
	sim_run(rig.sim, 10, 1); /* the first is over */
	assert_int_equal(sim_partition(rig.sim, 1, 2, 10, 20), 0);
	assert_int_equal(sim_partition(rig.sim, 1, 2, 10, 20), -ENOBUFS);
}

static void send_tag(struct sim *sim, void *context, uint64_t tag)
{
	(void)sim;
	rig_send(context, 0, 1, (uint32_t)tag);
}

static void x4_stalled_host_gets_everything_when_it_wakes(void **state)
{
	const uint32_t expected[] = {1, 9, 2, 3, 4};

	(void)state;
	assert_int_equal(sim_stall(rig.sim, 1, 100), 0);
	sim_at(rig.sim, 10, send_tag, &rig, 1);
	sim_at_host(rig.sim, 1, 15, rig_call, &rig, 9); /* its own timer waits with it */
	sim_at(rig.sim, 20, send_tag, &rig, 2);
	sim_at(rig.sim, 100, send_tag, &rig, 3);
	sim_at(rig.sim, 101, send_tag, &rig, 4);
	sim_run(rig.sim, 99, RIG_MAX_RUN);
	assert_int_equal(rig.seen_count, 0);
	assert_true(sim_is_stalled(rig.sim, 1));
	assert_int_equal(rig_count(&rig, SIM_HELD), 3);
	assert_int_equal(sim_in_flight(rig.sim), 2);
	rig_run(&rig);
	assert_tags(expected, 5);
	assert_int_equal(rig.seen[0].time_ns, 100);
	assert_int_equal(rig.seen[1].time_ns, 100);
	assert_false(sim_is_stalled(rig.sim, 1));
}

/* What is held came before: it goes first, also before what was in the heap for the time of waking
 * already. */
static void x4_held_comes_before_what_arrives_at_the_time_of_waking(void **state)
{
	const uint32_t expected[] = {1, 2};

	(void)state;
	sim_stall(rig.sim, 1, SIM_FOREVER);
	rig_send(&rig, 0, 1, 1);
	sim_run(rig.sim, 10, RIG_MAX_RUN);
	rig_send(&rig, 0, 1, 2);
	sim_wake(rig.sim, 1);
	rig_run(&rig);
	assert_tags(expected, 2);
}

/* It had come in before the network was cut and before its sender vanished. */
static void x4_held_is_beyond_the_reach_of_the_network(void **state)
{
	const uint32_t expected[] = {1, 2};

	(void)state;
	sim_stall(rig.sim, 1, 100);
	rig_send(&rig, 0, 1, 1);
	rig_send(&rig, 2, 1, 2);
	sim_run(rig.sim, 10, RIG_MAX_RUN);
	sim_partition(rig.sim, 1 << 0, 1 << 1, 10, SIM_FOREVER);
	sim_kill(rig.sim, 2, SIM_DEATH_NODE);
	rig_run(&rig);
	assert_tags(expected, 2);
}

static void x4_second_stall_replaces_the_end_of_the_first(void **state)
{
	const struct {
		uint64_t first_ns, second_ns, wakes_ns;
	} rows[] = {{100, 50, 50}, {50, 100, 100}, {SIM_FOREVER, 70, 70}};

	for (size_t row = 0; row < sizeof(rows) / sizeof(*rows); row++) {
		close_rig(state);
		open_rig(state);
		sim_stall(rig.sim, 1, rows[row].first_ns);
		sim_stall(rig.sim, 1, rows[row].second_ns);
		rig_send(&rig, 0, 1, 1);
		rig_run(&rig);
		assert_int_equal(rig.seen_count, 1);
		assert_int_equal(rig.seen[0].time_ns, rows[row].wakes_ns);
	}
}

static void x4_wake_up_of_an_older_stall_is_ignored(void **state)
{
	(void)state;
	sim_stall(rig.sim, 1, 50);
	sim_wake(rig.sim, 1);
	sim_stall(rig.sim, 1, SIM_FOREVER);
	rig_send(&rig, 0, 1, 1);
	rig_run(&rig);
	assert_int_equal(rig.seen_count, 0);
	assert_int_equal(sim_in_flight(rig.sim), 1);
	sim_wake(rig.sim, 1);
	sim_wake(rig.sim, 1); /* awake already: nothing */
	rig_run(&rig);
	assert_int_equal(rig.seen_count, 1);
	assert_int_equal(rig_count(&rig, SIM_WOKEN), 2);
}

static void stall_at_once(void *context, struct sim *sim, uint32_t host, uint32_t from,
                          const void *packet, size_t bytes)
{
	rig_receive(context, sim, host, from, packet, bytes);
	sim_stall(sim, host, sim_now_ns(sim) + 10);
}

static void x4_host_that_stalls_while_it_wakes_keeps_order(void **state)
{
	const uint32_t expected[] = {1, 2, 3};
	struct sim_host_ops ops = {.receive = stall_at_once};

	(void)state;
	sim_host_attach(rig.sim, 1, &ops, &rig);
	sim_stall(rig.sim, 1, 100);
	for (uint32_t i = 1; i <= 3; i++)
		rig_send(&rig, 0, 1, i);
	rig_run(&rig);
	assert_tags(expected, 3);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(rig.seen[i].time_ns, 100 + 10 * i);
}

static void x4_death_ends_everything_to_and_from_a_host(void **state)
{
	const uint32_t expected_process[] = {1}, expected_node[] = {0};
	const struct {
		enum sim_death death;
		const uint32_t *expected;
		uint32_t count;
	} rows[] = {{SIM_DEATH_PROCESS, expected_process, 1}, {SIM_DEATH_NODE, expected_node, 0}};

	for (size_t row = 0; row < sizeof(rows) / sizeof(*rows); row++) {
		close_rig(state);
		open_rig(state);
		rig_link(&rig, (struct sim_link){.delay_min_ns = 10, .delay_max_ns = 10});
		rig_send(&rig, 0, 1, 1); /* on its way when the sender dies */
		rig_send(&rig, 1, 0, 2); /* on its way to it */
		sim_at_host(rig.sim, 0, 20, rig_call, &rig, 3);
		sim_run(rig.sim, 5, RIG_MAX_RUN);
		sim_kill(rig.sim, 0, rows[row].death);
		sim_kill(rig.sim, 0, rows[row].death); /* nobody dies twice */
		assert_int_equal(rig.deaths, 1);
		assert_int_equal(rig_count(&rig, SIM_KILLED), 1);
		assert_true(sim_is_dead(rig.sim, 0));
		rig_send(&rig, 0, 1, 4);
		rig_send(&rig, 1, 0, 5);
		rig_run(&rig);
		assert_tags(rows[row].expected, rows[row].count);
		assert_int_equal(rig_count(&rig, SIM_SENDER_DEAD), 2 - rows[row].count);
		assert_int_equal(rig_count(&rig, SIM_RECEIVER_DEAD), 2);
		assert_int_equal(rig_count(&rig, SIM_CALL_DROPPED), 1);
		assert_int_equal(sim_stall(rig.sim, 0, 100), -ESRCH);
	}
}

static void x4_what_was_held_dies_with_the_host(void **state)
{
	(void)state;
	sim_stall(rig.sim, 1, 100);
	rig_send(&rig, 0, 1, 1);
	sim_at_host(rig.sim, 1, 5, rig_call, &rig, 2);
	sim_run(rig.sim, 10, RIG_MAX_RUN);
	sim_kill(rig.sim, 1, SIM_DEATH_PROCESS);
	assert_int_equal(sim_in_flight(rig.sim), 0);
	rig_run(&rig);
	assert_int_equal(rig.seen_count, 0);
	assert_int_equal(rig_count(&rig, SIM_RECEIVER_DEAD), 1);
	assert_int_equal(rig_count(&rig, SIM_CALL_DROPPED), 1);
	assert_int_equal(rig_count(&rig, SIM_WOKEN), 0);
	/* Its places are free again: all of them but none too many. */
	for (uint32_t i = 0; i < RIG_EVENTS; i++)
		assert_int_equal(sim_at(rig.sim, 200, rig_call, &rig, i), 0);
	assert_int_equal(sim_at(rig.sim, 200, rig_call, &rig, 0), -ENOBUFS);
	for (uint32_t i = 0; i < RIG_PACKETS; i++)
		rig_send(&rig, 0, 2, i);
	assert_int_equal(rig_count(&rig, SIM_POOL_EMPTY), 0);
}

static void unattended_host_drops(void **state)
{
	struct sim_host_ops none = {0};

	(void)state;
	sim_host_attach(rig.sim, 1, &none, NULL);
	rig_send(&rig, 0, 1, 1);
	rig_run(&rig);
	assert_int_equal(rig_count(&rig, SIM_UNATTENDED), 1);
	sim_kill(rig.sim, 1, SIM_DEATH_NODE); /* and nobody is told of its death */
	assert_int_equal(rig.deaths, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_rig, close_rig)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(x4_calls_come_in_order_of_time_and_then_of_asking),
	        TEST(past_is_now),
	        TEST(bounded_events_refuse_when_full),
	        TEST(bounded_run_stops),
	        TEST(x4_partition_cuts_both_ways_for_its_time),
	        TEST(x4_packet_on_its_way_into_a_partition_is_cut),
	        TEST(partitions_heal_by_hand),
	        TEST(bounded_partitions_and_bad_sets_are_refused),
	        TEST(x4_stalled_host_gets_everything_when_it_wakes),
	        TEST(x4_held_comes_before_what_arrives_at_the_time_of_waking),
	        TEST(x4_held_is_beyond_the_reach_of_the_network),
	        TEST(x4_second_stall_replaces_the_end_of_the_first),
	        TEST(x4_wake_up_of_an_older_stall_is_ignored),
	        TEST(x4_host_that_stalls_while_it_wakes_keeps_order),
	        TEST(x4_death_ends_everything_to_and_from_a_host),
	        TEST(x4_what_was_held_dies_with_the_host),
	        TEST(unattended_host_drops),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
