/* The guard over the processor time of worlds: who computes for ever without an event is stopped in
 * words, who computes long in many events is not. Usage: sim-guard SIM-WORLDS. */
#include "guard.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define LIMIT_MS 200
#define EVENTS   20
#define EVENT_MS 50 /* far from the limit, but together five times as much */

static const char *worlds;

static int run(const char *arguments, char *said, size_t said_bytes)
{
	char command[1024];
	/* One that nothing stops is to end all the same. */
	snprintf(command, sizeof(command), "ulimit -t 30; exec '%s' %s", worlds, arguments);
	FILE *output = popen(command, "re");
	assert_non_null(output);
	size_t length = fread(said, 1, said_bytes - 1, output);
	said[length] = '\0';
	int status = pclose(output);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void test_endless_event(void **state)
{
	char said[1024];
	(void)state;
	assert_int_equal(run("--seed 77 --endless 200", said, sizeof(said)), 1);
	assert_non_null(strstr(said, "seed 77 scenario endless: FAILED"));
	assert_non_null(strstr(said, "200 ms of processor time"));
}

static void test_ordinary_world(void **state)
{
	char said[1024];
	(void)state;
	assert_int_equal(run("--seed 1 --scenario packets", said, sizeof(said)), 0);
	assert_non_null(strstr(said, "1 runs, 0 failed"));
}

static uint64_t computed_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void compute(struct sim *sim, void *context, uint64_t left)
{
	uint64_t end = computed_ms() + EVENT_MS;
	while (computed_ms() < end)
		;
	if (left > 0)
		assert_int_equal(sim_at(sim, sim_now_ns(sim) + 1, compute, context, left - 1), 0);
}

static void test_many_events(void **state)
{
	(void)state;
	struct sim_config config = {
	        .host_count = 1, .event_capacity = 1, .packet_capacity = 1, .packet_bytes = 1};
	struct sim *sim;
	assert_int_equal(sim_create(&config, &sim), 0);
	assert_int_equal(sim_at(sim, 1, compute, NULL, EVENTS - 1), 0);
	guard_begin("the guard stopped many short events\n", LIMIT_MS);
	assert_int_equal(guard_sim_run(sim, SIM_FOREVER, EVENTS / 2), SIM_STOP_EVENTS);
	assert_int_equal(guard_sim_run(sim, SIM_FOREVER, EVENTS / 2), SIM_STOP_IDLE);
	guard_end();
	sim_destroy(sim);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_endless_event),
	        cmocka_unit_test(test_ordinary_world),
	        cmocka_unit_test(test_many_events),
	};
	if (argc != 2)
		return 2;
	worlds = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
