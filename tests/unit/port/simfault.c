/* Faults drawn from a seed are valid, differ, and happen when they say. MISSION X4. */
#include "simrig.h"

#include "base/prng.h"
#include "port/simfault.h"

static struct rig rig;

static void drawn_links_are_always_valid_and_meet_every_fault(void **state)
{
	struct sim_link link, met = {0};
	struct prng prng;
	uint32_t perfect = 0;

	(void)state;
	prng_seed(&prng, 1);
	rig_open(&rig, 1);
	for (int i = 0; i < 10000; i++) {
		sim_link_draw(&prng, &link);
		assert_int_equal(sim_link_set(rig.sim, 0, 1, &link), 0);
		met.bandwidth_bps |= link.bandwidth_bps;
		met.loss_permille |= link.loss_permille;
		met.duplicate_permille |= link.duplicate_permille;
		met.reorder_permille |= link.reorder_permille;
		met.flip_permille |= link.flip_permille;
		met.truncate_permille |= link.truncate_permille;
		perfect += !link.bandwidth_bps && !link.loss_permille && !link.duplicate_permille &&
		           !link.reorder_permille && !link.flip_permille && !link.truncate_permille;
	}
	assert_true(met.bandwidth_bps && met.loss_permille && met.duplicate_permille);
	assert_true(met.reorder_permille && met.flip_permille && met.truncate_permille);
	assert_in_range(perfect, 2400, 2900); /* a quarter, and a 64th of the rest by chance */
	sim_destroy(rig.sim);
}

static void check_fault(const struct sim_fault *fault, const struct sim_fault_plan *plan,
                        uint32_t host_count, uint64_t *dead)
{
	assert_in_range(fault->start_ns, plan->start_ns, plan->until_ns - 1);
	if (fault->kind == SIM_FAULT_DEATH)
		assert_true(fault->until_ns == SIM_FOREVER);
	else
		assert_in_range(fault->until_ns - fault->start_ns, 1, plan->longest_ns);
	if (fault->kind == SIM_FAULT_PARTITION) {
		assert_true(fault->set_a && fault->set_b && !(fault->set_a & fault->set_b));
		if (host_count < 64)
			assert_true((fault->set_a | fault->set_b) >> host_count == 0);
		return;
	}
	assert_true(fault->host < host_count);
	if (fault->kind == SIM_FAULT_DEATH) {
		assert_false(*dead >> fault->host & 1);
		*dead |= 1ull << fault->host;
	}
}

static void drawn_faults_keep_to_their_plan(void **state)
{
	const uint32_t host_counts[] = {1, 2, 3, 17, SIM_MAX_HOSTS};
	const struct sim_fault_plan plan = {100, 200, 30, SIM_MAX_PARTITIONS, 24, 24};
	struct sim_fault faults[SIM_MAX_FAULTS];
	struct prng prng;

	(void)state;
	prng_seed(&prng, 1);
	for (size_t row = 0; row < sizeof(host_counts) / sizeof(*host_counts); row++) {
		uint32_t others = host_counts[row] - 1, most[3] = {0};
		for (int i = 0; i < 2000; i++) {
			uint32_t kinds[3] = {0};
			uint64_t dead = 0;
			uint32_t count = sim_faults_draw(&prng, &plan, host_counts[row], faults);
			for (uint32_t f = 0; f < count; f++) {
				check_fault(&faults[f], &plan, host_counts[row], &dead);
				kinds[faults[f].kind]++;
			}
			for (int k = 0; k < 3; k++)
				most[k] = kinds[k] > most[k] ? kinds[k] : most[k];
		}
		/* It takes two for a partition, and one host stays alive. */
		assert_int_equal(most[SIM_FAULT_PARTITION], others > 0 ? SIM_MAX_PARTITIONS : 0);
		assert_int_equal(most[SIM_FAULT_STALL], 24);
		assert_int_equal(most[SIM_FAULT_DEATH], others < 24 ? others : 24);
	}
}

static void x4_armed_faults_happen_in_their_time(void **state)
{
	const struct sim_fault faults[] = {
	        {SIM_FAULT_PARTITION, 10, 20, 1, 2, 0, SIM_DEATH_PROCESS},
	        {SIM_FAULT_STALL, 30, 40, 0, 0, 2, SIM_DEATH_PROCESS},
	        {SIM_FAULT_DEATH, 50, SIM_FOREVER, 0, 0, 3, SIM_DEATH_NODE},
	        {SIM_FAULT_STALL, 60, 70, 0, 0, 3, SIM_DEATH_PROCESS}, /* too late for it */
	};

	(void)state;
	rig_open(&rig, 1);
	for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++)
		assert_int_equal(sim_fault_arm(rig.sim, &faults[i]), 0);
	for (uint64_t time_ns = 0; time_ns < 80; time_ns++) {
		sim_run(rig.sim, time_ns, RIG_MAX_RUN);
		assert_int_equal(sim_is_cut(rig.sim, 0, 1), time_ns >= 10 && time_ns < 20);
		assert_int_equal(sim_is_stalled(rig.sim, 2), time_ns >= 30 && time_ns < 40);
		assert_int_equal(sim_is_dead(rig.sim, 3), time_ns >= 50);
		assert_false(sim_is_stalled(rig.sim, 3));
	}
	sim_destroy(rig.sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(drawn_links_are_always_valid_and_meet_every_fault),
	        cmocka_unit_test(drawn_faults_keep_to_their_plan),
	        cmocka_unit_test(x4_armed_faults_happen_in_their_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
