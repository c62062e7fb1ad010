/* Short locks: a test-and-test-and-set lock that yields the processor when its holder seems to have
 * been descheduled.
 *
 * A holder can record what it holds the lock for (lock_try_for()). This excludes others that work
 * on the same thing under a lock of their own, without a second lock for the holder. The holder
 * takes its lock and then checks that theirs is free (lock_is_free()); they take theirs and then
 * wait while the first lock is held for the same thing (lock_is_for()). Taking and checking are
 * sequentially consistent, so at least one of the two sees the other. */
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lock {
	_Atomic uintptr_t held; /* 0: not held */
};

#define LOCK_FOR_ANYTHING ((const void *)1)

#define LOCK_SPINS 256u

/* Does any thread hold it at this moment? */
static inline bool lock_held(const struct lock *lock)
{
	return atomic_load_explicit(&lock->held, memory_order_relaxed) != 0;
}

/* @what: any address except NULL. */
static inline bool lock_try_for(struct lock *lock, const void *what)
{
	uintptr_t nobody = 0;
	return !lock_held(lock) &&
	       atomic_compare_exchange_strong_explicit(&lock->held, &nobody, (uintptr_t)what,
	                                               memory_order_seq_cst, memory_order_relaxed);
}

static inline bool lock_try(struct lock *lock)
{
	return lock_try_for(lock, LOCK_FOR_ANYTHING);
}

static inline bool lock_is_for(const struct lock *lock, const void *what)
{
	return atomic_load_explicit(&lock->held, memory_order_seq_cst) == (uintptr_t)what;
}

static inline bool lock_is_free(const struct lock *lock)
{
	return lock_is_for(lock, NULL);
}

/* Wait a moment for another thread's store, for the @spins-th time in a row. */
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
	atomic_store_explicit(&lock->held, 0, memory_order_release);
}

#endif
