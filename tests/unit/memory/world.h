/* What the tests of the checks share: a table, and the entries that each of them makes. */
#ifndef TESTS_MEMORY_WORLD_H
#define TESTS_MEMORY_WORLD_H

#include "table.h"

struct world {
	struct table *table;
	struct tpt *tpt;
	struct hdl_key region, window, task, stopped;
};

static inline struct world *world_open(uint32_t capacity, uint64_t arena_words)
{
	struct world *w = calloc(1, sizeof *w);
	assert_non_null(w);
	w->table = table_open(capacity, arena_words);
	w->tpt = &w->table->tpt;
	return w;
}

/* A teardown function of cmocka. */
static inline int close_world(void **state)
{
	struct world *w = *state;
	table_close(w->table);
	free(w);
	return 0;
}

#endif
