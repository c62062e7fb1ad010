/* Counters that any thread may read at any time. A module numbers its counters with an enum and
 * names them in a table next to it; struct counter_set combines the two for code that prints them.
 * Counters do not order other memory accesses. */
#ifndef BASE_COUNTER_H
#define BASE_COUNTER_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct counter {
	_Atomic uint64_t value;
};

struct counter_set {
	const char *const *names; /* @count entries, as in @counters */
	struct counter *counters;
	size_t count;
};

/* For a counter that only one thread at a time increments (its owner, or under a lock): needs no
 * locked instruction. */
static inline void counter_add(struct counter *counter, uint64_t by)
{
	uint64_t value = atomic_load_explicit(&counter->value, memory_order_relaxed);
	atomic_store_explicit(&counter->value, value + by, memory_order_relaxed);
}

/* For a counter that several threads increment concurrently. */
static inline void counter_add_shared(struct counter *counter, uint64_t by)
{
	atomic_fetch_add_explicit(&counter->value, by, memory_order_relaxed);
}

static inline uint64_t counter_read(const struct counter *counter)
{
	return atomic_load_explicit(&counter->value, memory_order_relaxed);
}

/* The counter of that name, or NULL. */
static inline struct counter *counter_find(const struct counter_set *set, const char *name)
{
	for (size_t i = 0; i < set->count; i++)
		if (strcmp(set->names[i], name) == 0)
			return &set->counters[i];
	return NULL;
}

#endif
