/* Short locks: a test-and-test-and-set lock that yields the processor when its holder seems to have
 * been put to sleep. */
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

struct lock {
	_Atomic bool held;
};

#define LOCK_SPINS 256u

/* Has somebody got it, this moment? */
static inline bool lock_held(const struct lock *lock)
{
	return atomic_load_explicit(&lock->held, memory_order_relaxed);
}

static inline bool lock_try(struct lock *lock)
{
	return !lock_held(lock) &&
	       !atomic_exchange_explicit(&lock->held, true, memory_order_acquire);
}

/* Wait a moment for someone else's store, for the @spins-th time in a row. */
static inline void lock_relax(unsigned spins)
{
	if (spins % LOCK_SPINS != LOCK_SPINS - 1)
		__builtin_ia32_pause();
	else
		sched_yield();
}

static inline void lock_take(struct lock *lock)
{
	for (unsigned spins = 0; !lock_try(lock); spins++)
		lock_relax(spins);
}

static inline void lock_drop(struct lock *lock)
{
	atomic_store_explicit(&lock->held, false, memory_order_release);
}

#endif
