/* 'packets': random hosts exchange numbered packets over links with every fault there is, then
 * again over links with none. MISSION X4. What must happen to each packet is known to
 * packets_check.c. */
#include "packets.h"

#include <stdlib.h>

#include "guard.h"

#define LONGEST_NS   1000000u
#define BURST_MAX    8u
#define RELINKS_MAX  8u
#define SEND_GAP_NS  200000u
#define EVENTS_SPARE 64u

/* Often the smallest and the largest: that is where lengths go wrong. */
static uint32_t draw_bytes(struct world *world)
{
	uint64_t spread = world->packet_bytes - PACKETS_SMALLEST;

	switch (prng_below(&world->prng, 4)) {
	case 0:
		return PACKETS_SMALLEST;
	case 1:
		return world->packet_bytes;
	default:
		return PACKETS_SMALLEST + (uint32_t)prng_below(&world->prng, spread + 1);
	}
}

static void send_packet(struct world *world, uint32_t from, uint32_t to)
{
	if (world->budget == 0)
		return;
	world->budget--;
	uint32_t number = world->sent_count++;
	struct sent *sent = &world->sent[number];
	*sent = (struct sent){.from = from,
	                      .to = to,
	                      .time_ns = sim_now_ns(world->sim),
	                      .link = *sim_link_get(world->sim, from, to)};
	sent->room =
	        draw_bytes(world); /* one draw after the other: a compiler may choose otherwise */
	sent->body_seed = prng_next(&world->prng);
	sent->bytes = packets_build(world, number, world->packet);
	sent->digest = sim_digest(world->packet, sent->bytes);
	int error = sim_send(world->sim, from, to, world->packet, sent->bytes);
	if (error)
		scenario_fail(world->run, "packet %u of %u bytes refused: %d", number, sent->bytes,
		              error);
}

static void send_burst(struct sim *sim, void *context, uint64_t host)
{
	struct world *world = context;
	uint64_t burst = 1 + prng_below(&world->prng, BURST_MAX);

	for (uint64_t i = 0; i < burst; i++)
		send_packet(world, (uint32_t)host,
		            (uint32_t)prng_below(&world->prng, world->host_count));
	uint64_t next_ns = sim_now_ns(sim) + prng_below(&world->prng, SEND_GAP_NS);
	if (next_ns >= PACKETS_LAST_START_NS || world->budget == 0)
		return;
	if (sim_at_host(sim, (uint32_t)host, next_ns, send_burst, world, host))
		scenario_fail(world->run, "no room for the timer of host %u", (unsigned)host);
}

/* A link changes while packets are on it, and somebody sends who may be dead or stalled. */
static void relink(struct sim *sim, void *context, uint64_t arg)
{
	struct world *world = context;
	uint32_t from = (uint32_t)prng_below(&world->prng, world->host_count);
	uint32_t to = (uint32_t)prng_below(&world->prng, world->host_count);
	struct sim_link link;

	(void)arg;
	sim_link_draw(&world->prng, &link);
	if (sim_link_set(sim, from, to, &link))
		scenario_fail(world->run, "a link drawn from the seed is not valid");
	send_packet(world, to, from);
}

static void receive(void *context, struct sim *sim, uint32_t host, uint32_t from,
                    const void *packet, size_t bytes)
{
	struct world *world = context;

	(void)sim;
	if (packets_check_received(world, host, from, packet, bytes) &&
	    prng_chance(&world->prng, 300))
		send_packet(world, host, from);
}

/* Without faults there is still delay and bandwidth, with a queue that takes whatever a run can
 * send. */
static void draw_links(struct world *world)
{
	struct sim_link link;

	for (uint32_t from = 0; from < world->host_count; from++) {
		for (uint32_t to = 0; to < world->host_count; to++) {
			sim_link_draw(&world->prng, &link);
			if (world->faultless)
				link = (struct sim_link){.delay_min_ns = link.delay_min_ns,
				                         .delay_max_ns = link.delay_max_ns,
				                         .bandwidth_bps = link.bandwidth_bps,
				                         .queue_bytes = SIM_MAX_QUEUE_BYTES};
			if (sim_link_set(world->sim, from, to, &link))
				scenario_fail(world->run,
				              "a link drawn from the seed is not valid");
		}
	}
}

static void arm_faults(struct world *world)
{
	struct sim_fault_plan plan = {.until_ns = PACKETS_LAST_START_NS,
	                              .longest_ns = LONGEST_NS,
	                              .partitions_max = 4,
	                              .stalls_max = 4,
	                              .deaths_max = world->host_count / 2};

	world->fault_count = sim_faults_draw(&world->prng, &plan, world->host_count, world->faults);
	for (uint32_t i = 0; i < world->fault_count; i++)
		if (sim_fault_arm(world->sim, &world->faults[i]))
			scenario_fail(world->run, "fault %u cannot be armed", i);
	uint64_t relinks = prng_below(&world->prng, RELINKS_MAX + 1);
	for (uint64_t i = 0; i < relinks; i++)
		sim_at(world->sim, prng_below(&world->prng, PACKETS_LAST_START_NS), relink, world,
		       i);
}

static void populate(struct world *world)
{
	struct sim_host_ops ops = {.receive = receive};

	sim_set_trace(world->sim, packets_check_trace, world);
	draw_links(world);
	if (!world->faultless)
		arm_faults(world);
	for (uint32_t host = 0; host < world->host_count; host++) {
		sim_host_attach(world->sim, host, &ops, world);
		sim_at_host(world->sim, host, prng_below(&world->prng, SEND_GAP_NS), send_burst,
		            world, host);
	}
}

static void play_half(struct scenario_run *run, bool faultless, uint64_t counts[SIM_KINDS])
{
	struct world *world = calloc(1, sizeof(*world));

	if (!world) {
		scenario_fail(run, "no memory");
		return;
	}
	world->run = run;
	world->faultless = faultless;
	prng_seed(&world->prng, run->seed * 2 + faultless);
	world->host_count = 2 + (uint32_t)prng_below(&world->prng, PACKETS_MAX_HOSTS - 1);
	world->packet_bytes =
	        PACKETS_SMALLEST +
	        (uint32_t)prng_below(&world->prng, PACKETS_LARGEST - PACKETS_SMALLEST + 1);
	world->budget = 1 + (uint32_t)prng_below(&world->prng, PACKETS_MAX_SENT);
	/* A quarter of the worlds is short of buffers. */
	world->packet_capacity = PACKETS_MAX_SENT;
	if (!faultless && prng_chance(&world->prng, 250))
		world->packet_capacity = 1 + (uint32_t)prng_below(&world->prng, 32);
	struct sim_config config = {.seed = prng_next(&world->prng),
	                            .host_count = world->host_count,
	                            .event_capacity =
	                                    PACKETS_MAX_HOSTS + SIM_MAX_FAULTS + EVENTS_SPARE,
	                            .packet_capacity = world->packet_capacity,
	                            .packet_bytes = world->packet_bytes};
	int error = sim_create(&config, &world->sim);
	if (error) {
		scenario_fail(run, "sim_create: %d", error);
	} else {
		populate(world);
		if (guard_sim_run(world->sim, SIM_FOREVER, PACKETS_MAX_EVENTS) != SIM_STOP_IDLE)
			scenario_fail(run, "not at rest after %u events", PACKETS_MAX_EVENTS);
		packets_check_end(world);
		run->hash = sim_fold(run->hash, sim_hash(world->sim));
		for (int kind = 0; counts && kind < SIM_KINDS; kind++)
			counts[kind] += world->counts[kind];
	}
	sim_destroy(world->sim);
	free(world);
}

void packets_play(struct scenario_run *run, uint64_t counts[SIM_KINDS])
{
	run->hash = SIM_FOLD_START;
	play_half(run, false, counts);
	play_half(run, true, counts);
}

static void run_packets(struct scenario_run *run)
{
	packets_play(run, NULL);
}

extern const struct scenario scenario_packets;
const struct scenario scenario_packets = {
        .name = "packets",
        .purpose = "every packet arrives whole, is caught by its CRC, or was dropped for a reason",
        .run = run_packets,
        .test_seeds = 300,
};
