/* Drawing faults from a seed; see simfault.h. */
#include "port/simfault.h"

#include "base/prng.h"

#include <assert.h>

/* From @low to @high, both possible. */
static uint64_t between(struct prng *prng, uint64_t low, uint64_t high)
{
	return low + prng_below(prng, high - low + 1);
}

/* In half of all links none, else 1 to @most permille. */
static uint32_t draw_permille(struct prng *prng, uint32_t most)
{
	return prng_chance(prng, 500) ? 0 : (uint32_t)between(prng, 1, most);
}

void sim_link_draw(struct prng *prng, struct sim_link *link)
{
	*link = (struct sim_link){0};
	link->delay_min_ns = between(prng, 0, 50000);
	link->delay_max_ns = link->delay_min_ns + between(prng, 0, 50000);
	if (prng_chance(prng, 250))
		return;
	if (prng_chance(prng, 500)) {
		link->bandwidth_bps = between(prng, 1, 100) * 1000000000u;
		link->queue_bytes = (uint32_t)between(prng, 0, 64 * 1024);
	}
	link->loss_permille = draw_permille(prng, 200);
	link->duplicate_permille = draw_permille(prng, 100);
	link->reorder_permille = draw_permille(prng, 200);
	link->reorder_ns = between(prng, 1, 500000);
	link->flip_permille = draw_permille(prng, 100);
	link->flip_bits_max = (uint32_t)between(prng, 1, 16);
	link->truncate_permille = draw_permille(prng, 50);
}

static struct sim_fault draw_partition(struct prng *prng, uint32_t host_count)
{
	struct sim_fault fault = {.kind = SIM_FAULT_PARTITION};

	/* Each host on either side or on neither; then one on each, so that no side is empty. */
	for (uint32_t host = 0; host < host_count; host++) {
		uint64_t side = prng_below(prng, 3);
		fault.set_a |= (uint64_t)(side == 0) << host;
		fault.set_b |= (uint64_t)(side == 1) << host;
	}
	uint32_t a = (uint32_t)prng_below(prng, host_count);
	uint32_t b = (a + (uint32_t)between(prng, 1, host_count - 1)) % host_count;
	fault.set_a = (fault.set_a | 1ull << a) & ~(1ull << b);
	fault.set_b = (fault.set_b | 1ull << b) & ~(1ull << a);
	return fault;
}

uint32_t sim_faults_draw(struct prng *prng, const struct sim_fault_plan *plan, uint32_t host_count,
                         struct sim_fault *faults)
{
	uint32_t partitions = (uint32_t)between(prng, 0, plan->partitions_max);
	uint32_t stalls = (uint32_t)between(prng, 0, plan->stalls_max);
	uint32_t deaths = (uint32_t)between(prng, 0, plan->deaths_max);
	uint64_t dead = 0;
	uint32_t count = 0;

	assert(host_count >= 1 && host_count <= SIM_MAX_HOSTS);
	assert(plan->start_ns < plan->until_ns && plan->longest_ns >= 1);
	assert(plan->partitions_max <= SIM_MAX_PARTITIONS);
	assert(plan->partitions_max + plan->stalls_max + plan->deaths_max <= SIM_MAX_FAULTS);
	if (deaths > host_count - 1)
		deaths = host_count - 1;
	if (host_count < 2)
		partitions = 0;
	for (uint32_t i = 0; i < partitions; i++)
		faults[count++] = draw_partition(prng, host_count);
	for (uint32_t i = 0; i < stalls; i++)
		faults[count++] = (struct sim_fault){
		        .kind = SIM_FAULT_STALL, .host = (uint32_t)prng_below(prng, host_count)};
	for (uint32_t i = 0; i < deaths; i++) {
		uint32_t host = (uint32_t)prng_below(prng, host_count);
		while (dead >> host & 1)
			host = (host + 1) % host_count;
		dead |= 1ull << host;
		faults[count++] = (struct sim_fault){
		        .kind = SIM_FAULT_DEATH,
		        .host = host,
		        .death = prng_chance(prng, 500) ? SIM_DEATH_NODE : SIM_DEATH_PROCESS};
	}
	for (uint32_t i = 0; i < count; i++) {
		faults[i].start_ns = between(prng, plan->start_ns, plan->until_ns - 1);
		faults[i].until_ns =
		        faults[i].kind == SIM_FAULT_DEATH
		                ? SIM_FOREVER
		                : faults[i].start_ns + between(prng, 1, plan->longest_ns);
	}
	return count;
}

static void strike(struct sim *sim, void *context, uint64_t arg)
{
	const struct sim_fault *fault = context;

	(void)arg;
	if (fault->kind == SIM_FAULT_DEATH) {
		sim_kill(sim, fault->host, fault->death);
	} else if (!sim_is_dead(sim, fault->host)) {
		int error = sim_stall(sim, fault->host, fault->until_ns);
		assert(error == 0); /* the call that is running now has just freed its node */
		(void)error;
	}
}

int sim_fault_arm(struct sim *sim, const struct sim_fault *fault)
{
	if (fault->kind == SIM_FAULT_PARTITION)
		return sim_partition(sim, fault->set_a, fault->set_b, fault->start_ns,
		                     fault->until_ns);
	return sim_at(sim, fault->start_ns, strike, (void *)(uintptr_t)fault, fault->host);
}
