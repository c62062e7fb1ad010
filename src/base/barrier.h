/* A one-sided barrier. Two sides that each store and then load the other's store need a full
 * barrier between the two (Dekker). If one side does so a million times per second and the other
 * hardly ever, the rare side can pay for both: it makes every processor that runs a registered
 * process execute a barrier (membarrier(2)), and the frequent side needs none. */
#ifndef BASE_BARRIER_H
#define BASE_BARRIER_H

#include <stdbool.h>

/* Let barrier_everyone() in other processes reach this one. False: the kernel does not support it,
 * and this process must use fences. */
bool barrier_register(void);

/* Call between a store and a load. Afterwards either everything that a registered process stored
 * before is visible to us, or that process sees our store. */
void barrier_everyone(void);

#endif
