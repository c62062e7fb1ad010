/* A scenario: a world made from one seed, driven to its end, and judged. The runner (main.c) knows
 * scenarios only through the table in scenarios.c. To add one: write it in a file of its own (the
 * worlds of adapters are world_*.c), declare its `struct scenario` there, name it in scenarios.c,
 * and the file in meson.build with the layers it looks into. */
#ifndef SIM_SCENARIO_H
#define SIM_SCENARIO_H

#include "port/simnet.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCENARIO_WHY_BYTES 512

/* One run. The scenario reads the first part and fills in the second. */
struct scenario_run {
	uint64_t seed;
	bool trace; /* print what happens; must not change it */

	uint64_t hash; /* of everything that happened */
	bool failed;
	char why[SCENARIO_WHY_BYTES]; /* the first thing that was wrong */
};

struct scenario {
	const char *name;
	const char *purpose; /* one line */
	/* Everything from run->seed, nothing kept from one run to the next. Faults go to
	 * scenario_fail(). */
	void (*run)(struct scenario_run *run);
	uint32_t test_seeds; /* how many seeds `make test` gives it */
	uint32_t twice;      /* so many of them are run twice, and must be the same again */
};

/* Ends with a NULL. */
extern const struct scenario *const scenarios[];

/* The run failed. The first reason stays. */
void scenario_fail(struct scenario_run *run, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

/* @play it again; a run that differs from @run is a failure of it. */
void scenario_repeat(struct scenario_run *run, void (*play)(struct scenario_run *run));

/* Print the network's events if the run is traced: a sim_trace_fn whose context is the run. */
void scenario_print(void *run, const struct sim_trace *record);

#endif
