/* A one-sided barrier. Two sides that each store and then look at the other's store need a full
 * barrier between the two (Dekker). Where one side does so a million times a second and the other
 * hardly ever, the rare side can pay for both: it makes every processor that runs a registered
 * process pass a barrier (membarrier(2)), and the frequent side needs none. */
#ifndef BASE_BARRIER_H
#define BASE_BARRIER_H

#include <stdbool.h>

/* Let others' barrier_everyone() reach this process. False: the kernel cannot; then this process
 * must use fences. */
bool barrier_register(void);

/* Between our store and our look: everything that a registered process stored before is visible, or
 * it will see our store. */
void barrier_everyone(void);

#endif
