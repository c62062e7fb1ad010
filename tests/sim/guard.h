/* A guard over the processor time of a simulated world. Virtual time does not pass while the engine
 * computes, so that a loop that does not end, or takes very long, shows neither in a world nor in
 * its verdict. */
#ifndef SIM_GUARD_H
#define SIM_GUARD_H

#include <stdint.h>

#include "port/simnet.h"

/* sim_run(), event by event, under the eyes of the guard. */
enum sim_stop guard_sim_run(struct sim *sim, uint64_t until_ns, uint64_t max_events);

/* From now on this thread may compute for @limit_ms (0: as long as is usual here), and no longer
 * than twice that, without an event: else @verdict is printed and the process ends with status 1.
 * Nothing else can be done about a loop that does not end.
 * @verdict stays the caller's until guard_end(). */
void guard_begin(const char *verdict, unsigned limit_ms);
void guard_end(void);
/* For verdicts. */
unsigned guard_limit_ms(void);

#endif
